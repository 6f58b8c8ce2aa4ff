/* exec/serve/exec_serve.h - the commands of this wing, for the table of exec/main.c. */
#ifndef ELAPSE_EXEC_SERVE_EXEC_SERVE_H
#define ELAPSE_EXEC_SERVE_EXEC_SERVE_H

#include "exec/commands/exec_command.h"

extern const struct exec_command exec_generate, exec_predict;

#endif
