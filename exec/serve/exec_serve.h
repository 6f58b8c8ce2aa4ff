/* exec/serve/exec_serve.h - the commands of this wing, for the table of exec/main.c. */
#pragma once

#include "exec/commands/exec_command.h"

extern const struct exec_command exec_generate, exec_predict;
