#include "exec/commands/exec_command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELP_MAX 16384 /* bytes */

bool exec_on_terminal(void)
{
    const char *tty = getenv("ELAPSE_TTY");
    return (tty && strcmp(tty, "1") == 0) || isatty(STDERR_FILENO);
}

bool exec_speaks(const struct call *call)
{
    return !call->comm || call->comm->rank == 0;
}

enum status exec_parse(const struct exec_command *command, struct call *call,
                       struct command_line *line, struct err *err)
{
    enum status rc = options_parse(line, call->argc, call->argv, err);
    if (rc == OK && line->help) {
        char *text = malloc(HELP_MAX);
        if (!text)
            return err_nomem(err);
        if (line->rows)
            options_rows(line->options, line->num_options, text, HELP_MAX);
        else
            options_help(line->options, line->num_options, true, text, HELP_MAX);
        if (exec_speaks(call) && !line->rows)
            printf("usage: elapse %s %s\n%s\n\n", command->name, command->args, command->summary);
        if (exec_speaks(call))
            fputs(text, stdout);
        free(text);
        return OK;
    }
    if (rc == OK && line->num_positional < command->num_needed)
        rc = err_set(err, ERR_INPUT, "usage: elapse %s %s", command->name, command->args);
    if (rc != OK)
        err_hint(err, "'elapse %s --help' lists the options", command->name);
    return rc;
}

struct json *exec_answer(const char *command)
{
    struct json *root = json_object_new();
    json_add_int(root, "schema", 1);
    json_add_string(root, "version", ELAPSE_VERSION);
    json_add_string(root, "command", command);
    return root;
}

enum status exec_print(const struct json *json, struct err *err)
{
    return json_write(json, false, stdout, err);
}

void exec_catch_signals(void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}
