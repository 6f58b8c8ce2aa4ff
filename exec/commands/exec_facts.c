/* exec/commands/exec_facts.c - facts and ping, for `elapse doctor`. */
#include "exec/commands/exec_command.h"
#include "exec/device/doctor.h"

#define PING_S 30 /* that a ping may take with the start of MPI */

static enum status run_facts(const struct exec_command *command, struct call *call, struct err *err)
{
    struct command_line line = {0};
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    struct json *root = exec_answer(command->name);
    if (call->comm)
        rc = doctor_ping(call->comm, root, err);
    else
        doctor_facts(root);
    if (rc == OK && exec_speaks(call))
        rc = exec_print(root, err);
    json_free(root);
    return rc;
}

const struct exec_command exec_facts = {
    .name = "facts",
    .args = "",
    .summary = "What libraries and GPUs say of themselves, as JSON.",
    .run = run_facts,
};

const struct exec_command exec_ping = {
    .name = "ping",
    .args = "",
    .summary = "Latency and rate between ranks 0 and 1, as JSON.",
    .ranks = true,
    .limit_s = PING_S,
    .run = run_facts,
};
