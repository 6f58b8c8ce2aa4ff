/* exec/commands/exec_profile.c - measure this machine. */
#include <signal.h>

#include "exec/commands/exec_begin.h"
#include "exec/measure/measure.h"
#include "exec/measure/profile_request.h"

#define QUICK_NS ((int64_t)46000000000) /* of `profile --quick`; start and end come on top */

static volatile sig_atomic_t stopped_by; /* the signal that ended it early; 0: none */

static void on_stop_measuring(int signal_number)
{
    if (stopped_by == 0 && signal_number != SIGUSR1)
        stopped_by = signal_number;
    measure_stop();
}

static enum status run_profile(const struct exec_command *command, struct call *call,
                               struct err *err)
{
    struct profile_request q = {.model_text = "vit-tiny:image=32,patch=4,classes=10",
                                .device = "cpu",
                                .sizes_text = "1,2,4,8,16,32"};
    bool quiet = false, quick = false;
    const struct option table[] = {
        OPTION("model", STRING, &q.model_text, "MODEL",
               "whose sublayers to measure (default vit-tiny:image=32,patch=4,classes=10)"),
        OPTION("device", STRING, &q.device, "KIND", "%s (default cpu)", .values = "cpu cuda"),
        OPTION("microbatches", STRING, &q.sizes_text, "B,B,...",
               "micro-batch sizes in samples (default 1,2,4,8,16,32)"),
        THREADS_OPTION(&q.threads),
        OPTION("dropout", FLAG, &q.measure.dropout, NULL,
               "layers drop, as jobs with train.dropout train them"),
        OPTION("quick", FLAG, &quick, NULL,
               "fewer repeats, of which the fastest counts, within a minute"),
        OPTION("retune", FLAG, &q.measure.retune, NULL,
               "time the GPU libraries' algorithms again and replace the stored choices"),
        OPTION_QUIET(&quiet),
        OPTION("name", STRING, &q.name, "NAME", "of the profile (default: KIND-HOST)"),
        OPTION_DB(&q.db),
        OPTION_JSON(&q.json),
    };
    struct command_line line = COMMAND_LINE(table, 0);
    enum status rc = exec_parse(command, call, &line, err);
    if (rc != OK || line.help)
        return rc;
    if (call->words.check)
        return OK;
    q.measure.quick_ns = quick ? QUICK_NS : 0;
    q.measure.progress = quiet ? TICKER_QUIET : exec_on_terminal() ? TICKER_TERMINAL : TICKER_LINES;
    exec_catch_signals(on_stop_measuring);
    rc = profile_request_run(&q, call->comm, err);
    call->stopped_by = stopped_by;
    return rc;
}

const struct exec_command exec_profile = {
    .name = "profile",
    .args = "[--model MODEL] [-n RANKS] [options]",
    .summary = "Measure layers, links and overheads of this machine into the profile store.",
    .ranks = true,
    .run = run_profile,
};
