/* cli/simulate/sim_request.h - the settings of a simulated step: options of `elapse sim` that are short for
 * keys of a job, and the few that no job has. A step without a job is a job of these keys alone.
 *
 * The command line and --sweep share the settings. */
#pragma once

#include "cli/plans/plan_search.h"
#include "cli/plans/rates_show.h"
#include "partition/base/options.h"
#include "partition/cost/cost.h"
#include "partition/plan/job.h"
#include "partition/step/workload.h"
#include "profiles/cost/profile_cost.h"
#include "sim/run/plan_judge.h"
#include "sim/step/engine.h"

/* The settings of one simulated step that are no keys of its job. */
struct step_request {
    const char *db_path, *cut_text;                /* borrowed; NULL: none */
    const char *stragglers_text, *slow_links_text; /* NULL: none; see cluster_slow() */
    int64_t num_frozen;
    enum frozen_placement frozen; /* in place of pipeline.frozen; FROZEN_NONE: as the job says */
    double share; /* of the weight gradients of every backward, in place of the plan's; 0: none */
    bool cache_write;
    const struct schedule *order; /* borrowed: op lists in place of the plan's; NULL: none */
    struct plan_time time;        /* of the search for its plan */
    struct sim_options options;
};

void step_request_init(struct step_request *request);

/* A setting. text is the value given for it, borrowed; NULL: none. values are the words that it
 * takes, as in struct option; "": not a fixed set. */
struct step_setting {
    const char *name, *arg, *help; /* arg NULL: a flag */
    const char *key;               /* of a job; NULL: the setting is of the step alone */
    const char *text;
    bool flag; /* given; its text is "true" */
    char values[160];
};
enum { STEP_SETTINGS_MAX = 64 };
/* List the settings in the order of the help, without texts. Returns how many. */
int step_settings(struct step_setting settings[STEP_SETTINGS_MAX]);

/* The setting of a name, or of the field's short word for it ("pp"); NULL: there is none. */
struct step_setting *step_setting_find(struct step_setting *settings, int num, const char *name);

/* Set the request from the texts of settings that are of the step alone. ERR_INPUT: a bad value. */
enum status step_request_read(const struct step_setting *settings, int num,
                              struct step_request *request, struct err *err);

/* Overrides of a job, some of them owned. */
struct job_sets {
    const char *items[4 * OPTION_LIST_MAX];
    char *owned[OPTION_LIST_MAX];
    int count, num_owned;
};
/* Append the settings that have a text and a key, and, with `whole`, the defaults of a step without a
 * job. The caller clears the list, on failure too. ERR_INPUT: a bad value, or no model. */
enum status job_sets_add(struct job_sets *sets, const struct step_setting *settings, int num,
                         bool whole, struct err *err);
void job_sets_append(struct job_sets *sets, const char *const *items, int count);
void job_sets_clear(struct job_sets *sets);
/* In an error about a job without a file, name the option that was given for a key. */
void job_sets_name_option(const struct step_setting *settings, int num, struct err *err);

/* A simulated step of a job. */
struct step_answer {
    struct model model;
    struct cluster cluster; /* slowed as the request says */
    struct cost_handle cost;
    struct cost_query query; /* the query that the costs answer */
    double headroom;         /* job_headroom() */
    const char *optimizer;   /* its name in answers */
    struct plan plan;
    struct searched searched; /* for the plan */
    struct schedule full;
    struct workload workload;
    struct sim_result result;
    int64_t wall_ns; /* wall time from generating the lists to the result */
};
void step_answer_clear(struct step_answer *answer);
double step_answer_samples_per_s(const struct step_answer *answer);
struct step_rates step_answer_rates(const struct step_answer *answer);

/* Simulate an answer whose plan is made, and set wall_ns. A step that was judged on the same setting is
 * taken out of `judged`, which may be NULL, if it is this one. */
enum status step_answer_simulate(struct step_answer *answer, const struct sim_options *options,
                                 struct judged_step *judged, struct err *err);

/* Slow the cluster's devices and links as the request says: tables "3:0.5,7:0.8" of speed or port
 * bandwidth, or "random:0.1:0.5", each device with probability 0.1 by the seed. ERR_INPUT. */
enum status cluster_slow(const struct step_request *request, struct cluster *cluster,
                         struct err *err);
