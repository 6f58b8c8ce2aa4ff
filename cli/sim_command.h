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
    const char *record_path; /* a run record, in the tables that real runs use */
    bool step, json, csv, explain, no_wall;
    int64_t monte_carlo;
    int threads; /* 0: all cores */
};

/* `JOB --step`: the planner's plan for the job, simulated. */
enum status sim_job_step(const struct sim_args *args, struct step_answer *answer, struct err *err);
/* `JOB`: the whole elastic run. */
enum status sim_run(const struct command *command, const struct sim_args *args, struct err *err);
/* One elastic run on the job's cluster, slowed as the arguments say. */
enum status sim_elastic(const struct sim_args *args, const struct job *job, const struct cost *cost,
                        struct elastic_run *run, struct err *err);
/* `--sweep`. */
enum status sim_sweep(const struct command *command, const struct sim_args *args, struct err *err);

/* Critical path, sensitivity and Monte Carlo of a simulated step: into json, or as text when NULL.
 */
enum status sim_explain(const struct sim_args *args, struct step_answer *answer, struct json *json,
                        struct err *err);
enum status sim_answer_step(const struct command *command, const struct sim_args *args,
                            struct step_answer *answer, struct err *err);
enum status sim_write_ops(const struct sim_args *args, const struct sim_result *result,
                          struct err *err);

#endif
