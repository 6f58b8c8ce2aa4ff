/* cli/runs/sim_command.h - the parts of `elapse sim`, one file each. */
#ifndef ELAPSE_CLI_SIM_COMMAND_H
#define ELAPSE_CLI_SIM_COMMAND_H

#include "cli/base/command.h"
#include "cli/runs/sim_request.h"
#include "sim/run/elastic_run.h"

struct sim_args {
    struct step_request request;
    const char *job_path; /* NULL: the step is given by options */
    bool job_of_sets;     /* there is a job without a file: the overrides are all of it */
    struct option_list overrides, sweeps;
    const char *schedule_csv; /* op lists of the step; NULL: by --schedule */
    const char *trace_path, *ops_path;
    const char *plan_path;   /* the plan to simulate; NULL: plan_for() makes one */
    const char *record_path; /* a run record to write, with the tables of real runs */
    bool step, json, csv, table, explain, no_wall, quiet;
    bool ran; /* the plan of --plan was run, so memory sufficed */
    int64_t monte_carlo;
    const char *faults;        /* losses of nodes: a file, pairs or "none"; NULL: as the job says */
    const char *timeline_path; /* CSV of the first of these runs; NULL: none */
    int64_t seeds;             /* runs of --faults; 0: 1000 */
    int64_t threads;           /* 0: all cores */
    struct step_setting settings[STEP_SETTINGS_MAX]; /* of the request, with their texts */
    int num_settings;
};
/* Read and check the options of `elapse sim`; their texts are borrowed from argv. *help: it was
 * asked for, and is printed. */
enum status sim_args_read(const struct command *command, int argc, char **argv,
                          struct sim_args *args, bool *help, struct err *err);

/* `JOB --step`: simulate one step of the job's plan. */
enum status sim_job_step(const struct sim_args *args, struct step_answer *answer, struct err *err);
/* The step of a job that is loaded. given: its plan, which the answer takes over; NULL: plan_for()
 * makes one. *answer must be zeroed; the caller clears it, on failure too. */
enum status sim_step_of_job(const struct step_request *request, const struct job *job,
                            struct plan *given, struct step_answer *answer, struct err *err);
/* `JOB`: simulate the whole elastic run. */
enum status sim_run(const struct command *command, const struct sim_args *args, struct err *err);
/* The job and the costs that a run's answer names. */
struct run_source {
    enum cost_source cost;
    char label[96], name[64];
    char *json;     /* owned: the resolved job */
    char note[256]; /* what the answer does not model; "": nothing */
};
/* Load the job file with the overrides of the command line, then num_more others. *job must be
 * zeroed; the caller clears it. */
enum status sim_job_load(const struct sim_args *args, char *const *more, int num_more,
                         struct job *job, struct err *err);
/* Load that job and simulate it as a whole run, on its cluster slowed as the arguments say. *run
 * must be zeroed; source may be NULL. */
enum status sim_job_run(const struct sim_args *args, char *const *more, int num_more,
                        struct elastic_run *run, struct run_source *source, struct err *err);
/* Load that job and simulate its training without freezing, by the best plan: job_as_static(). */
enum status sim_job_run_static(const struct sim_args *args, struct elastic_run *run,
                               struct err *err);
/* `JOB --faults`: many runs on a cluster that loses nodes. ERR_INFEASIBLE: none of them is done. */
enum status sim_faults(const struct command *command, const struct sim_args *args, struct err *err);
/* Whether the job's cluster loses nodes (cluster.faults). */
enum status sim_has_faults(const struct sim_args *args, bool *has, struct err *err);
/* `--sweep`. */
enum status sim_sweep(const struct command *command, const struct sim_args *args, struct err *err);

/* The spread of a step's time. */
struct step_spread {
    int64_t median_ns, p05_ns, p95_ns;
    bool profile; /* times were drawn from the profile's spread; false: from --jitter alone */
};
/* --monte-carlo: simulate that many steps. Each op draws its own time from the spread in the
 * profile and from --jitter, if there is one. ERR_INPUT: there is neither. */
enum status sim_monte_carlo(const struct sim_args *args, const struct step_answer *answer,
                            struct step_spread *spread, struct err *err);
/* Write the critical path, sensitivity and spread of a simulated step, as far as they were asked
 * for: into json, or as text if json is NULL. */
enum status sim_explain(const struct sim_args *args, struct step_answer *answer,
                        const struct step_spread *spread, struct json *json, struct err *err);

#endif
