/* cli/sim_command.h - the parts of `elapse sim`, one file each. */
#ifndef ELAPSE_CLI_SIM_COMMAND_H
#define ELAPSE_CLI_SIM_COMMAND_H

#include "cli/command.h"
#include "cli/sim_request.h"
#include "sim/elastic_run.h"

struct sim_args {
    struct step_request request;
    const char *job_path; /* NULL: the step is given by options */
    struct option_list overrides, sweeps;
    const char *trace_path, *ops_path;
    const char *plan_path;   /* the plan to simulate; NULL: the planner's */
    const char *record_path; /* a run record, in the tables that real runs use */
    bool step, json, csv, explain, no_wall;
    int64_t monte_carlo;
    int threads; /* 0: all cores */
};

/* `JOB --step`: the planner's plan for the job, simulated. */
enum status sim_job_step(const struct sim_args *args, struct step_answer *answer, struct err *err);
/* `JOB`: the whole elastic run. */
enum status sim_run(const struct command *command, const struct sim_args *args, struct err *err);
/* What a run's answer says of the job and its costs. */
struct run_source {
    enum cost_source cost;
    char label[96], name[64];
    char *json;     /* owned: the resolved job */
    char note[256]; /* what the answer leaves out or does its own way; "": nothing */
};
/* The job file with the command line's overrides, then num_more others; *job must be zeroed. */
enum status sim_job_load(const struct sim_args *args, char *const *more, int num_more,
                         struct job *job, struct err *err);
/* That job as a whole run, on its cluster slowed as the arguments say. *run must be zeroed; source
 * may be NULL. */
enum status sim_job_run(const struct sim_args *args, char *const *more, int num_more,
                        struct elastic_run *run, struct run_source *source, struct err *err);
/* `--sweep`. */
enum status sim_sweep(const struct command *command, const struct sim_args *args, struct err *err);

/* How far a step varies. */
struct step_spread {
    int64_t median_ns, p05_ns, p95_ns;
    bool profile; /* ops drew their times from what the profile holds, else from --jitter alone */
};
/* --monte-carlo: that many steps whose ops draw their times, each on its own, from the spread that
 * the profile holds and from --jitter, whichever there is. ERR_INPUT: there is neither. */
enum status sim_monte_carlo(const struct sim_args *args, const struct step_answer *answer,
                            struct step_spread *spread, struct err *err);
/* What was asked of critical path, sensitivity and Monte Carlo of a simulated step: into json, or
 * as text when NULL. */
enum status sim_explain(const struct sim_args *args, struct step_answer *answer,
                        const struct step_spread *spread, struct json *json, struct err *err);

#endif
