/* cli/simulate/sim_command.h - declarations of the files that make up `elapse sim`. */
#pragma once

#include "cli/base/command.h"
#include "cli/simulate/sim_request.h"
#include "sim/run/elastic_run.h"

struct sim_args {
    struct step_request request;
    const char *job_path; /* NULL: the settings are the job of a step */
    struct option_list overrides, sweeps;
    const char *schedule_csv; /* op lists of the step; NULL: by --schedule */
    char counts[3][16];       /* their K, v and M, as texts */
    const char *trace_path, *snapshot_path, *chakra_path, *ops_path;
    const char *plan_path;   /* the plan to simulate; NULL: plan_for() makes one */
    const char *record_path; /* a run record to write, with the tables of real runs */
    bool step, json, csv, table, explain, no_wall, quiet;
    int64_t monte_carlo;
    const char *faults;        /* losses of nodes: a file, pairs or "none"; NULL: as the job says */
    const char *timeline_path; /* CSV of the first of these runs; NULL: none */
    int64_t seeds;             /* runs of --faults; 0: 1000 */
    int64_t threads;           /* 0: all cores */
    struct step_setting settings[STEP_SETTINGS_MAX]; /* with their texts */
    int num_settings;
};
/* Read and check the options of `elapse sim`; their texts are borrowed from argv. *help: it was
 * asked for, and is printed. */
enum status sim_args_read(const struct command *command, int argc, char **argv,
                          struct sim_args *args, bool *help, struct err *err);

/* Load the job file, or the job of a step, with the settings and overrides of the command line; for
 * a sweep job_open() it. *job must be zeroed; the caller clears it. */
enum status sim_job_load(const struct sim_args *args, struct job *job, struct err *err);
/* `JOB --step`: simulate one step of the job's plan. */
enum status sim_job_step(const struct sim_args *args, const struct job *job,
                         struct step_answer *answer, struct err *err);
/* The step of a job. given: its plan, which the answer takes over; NULL: plan_for() makes one.
 * request->frozen replaces pipeline.frozen. *answer must be zeroed; the caller clears it, on
 * failure too. */
enum status sim_step_of_job(const struct step_request *request, const struct job *job,
                            struct plan *given, struct step_answer *answer, struct err *err);
/* Simulate the whole run of a job, on its cluster slowed as the request says. cost NULL:
 * cost_choose(). plan is the first plan; NULL: plan_for_sim() makes it. *run must be zeroed. */
enum status simulate_job(const struct step_request *request, const struct job *job,
                         const struct cost *cost, const struct plan *plan, struct elastic_run *run,
                         struct err *err);
/* `JOB`: simulate the run, its baseline and the best static plan, and print them. */
enum status sim_run(const struct command *command, const struct sim_args *args,
                    const struct job *job, struct err *err);
/* A table over the settings of a step, or over the keys of a job. */
struct sweep_ask {
    const struct job *job; /* job_open() is enough; NULL: the settings give the step */
    const struct step_request *request;
    const struct step_setting *settings; /* that may be axes; NULL: keys alone are */
    int num_settings;
    const struct option_list *overrides; /* of the settings' job; the job has its own */
    const struct option_list *axes;      /* "path=v1,v2,..." */
    bool step;                           /* each point is one step */
    bool json, csv, table, quiet, no_wall;
    int64_t threads; /* 0: all cores */
};
/* Print the table, a line for each point. */
enum status sim_sweep(const struct command *command, const struct sweep_ask *ask, struct err *err);

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
