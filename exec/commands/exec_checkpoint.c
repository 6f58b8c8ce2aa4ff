/* exec/commands/exec_checkpoint.c - are the files of a checkpoint those that the run wrote? */
#include <stdlib.h>
#include <string.h>

#include "exec/commands/exec_command.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_check.h"
#include "exec/run/report.h"

static enum status run_checkpoint(const struct exec_command *command, struct call *call,
                                  struct err *err)
{
    char *dir = NULL;
    bool json = false;
    const struct option table[] = {
        OPTION_JSON(&json),
    };
    struct command_line line = COMMAND_LINE(table, 2);
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (strcmp(line.positional[0], "verify") != 0)
        return err_set(err, ERR_INPUT, "checkpoint has the action verify, got '%.64s'",
                       line.positional[0]);
    rc = checkpoint_find(line.positional[1], &dir, err);
    if (rc != OK)
        return rc;
    struct json *root = exec_answer("checkpoint verify");
    json_add_string(root, "checkpoint", dir);
    rc = checkpoint_verify(dir, root, err);
    const bool good = rc == OK && json_true(json_get(root, "ok"));
    if (rc == OK && json)
        rc = exec_print(root, err);
    else if (rc == OK)
        report_verdicts(root, dir, stdout);
    if (rc == OK && !good)
        rc = err_set(err, ERR_INFEASIBLE, "'%s' is damaged", dir);
    json_free(root);
    free(dir);
    return rc;
}

const struct exec_command exec_checkpoint = {
    .name = "checkpoint",
    .args = "verify DIR",
    .summary = "Compare every file of a checkpoint with the digests of its manifest.",
    .num_needed = 2,
    .run = run_checkpoint,
};
