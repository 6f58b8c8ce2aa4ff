/* cli/frameworks/plan_from.h - `elapse plan --from`: the layout of a command that runs today, and the best
 * one that its framework runs. */
#pragma once

#include "cli/base/command.h"
#include "cli/plans/plan_search.h"
#include "partition/base/options.h"

struct plan_from {
    const char *framework, *cluster, *db_path;
    const char *model; /* NULL: the flags name it */
    const struct option_list *overrides;
    struct plan_time time;
    bool as_json, quiet, stages;
    bool unshared; /* rank plans without shared links */
};

/* Predict the layout of a text that command_job_read() reads, search for the best one, and print
 * both. The best one is never slower than today's. ERR_INPUT, ERR_SYSTEM; ERR_INFEASIBLE: neither
 * runs. */
enum status plan_from(const struct command *command, const struct plan_from *ask, const char *text,
                      struct err *err);
