/* cli/runs/sim_request.h - one step without a job: from texts to a plan, its op lists and a simulated
 * step.
 *
 * A request is a small set of named settings ("stages", "link", ...). They are the long options of
 * `elapse sim --step`, so that the command line and --sweep share them. */
#ifndef ELAPSE_CLI_SIM_REQUEST_H
#define ELAPSE_CLI_SIM_REQUEST_H

#include "cli/runs/rates_show.h"
#include "partition/cost/cost.h"
#include "partition/step/workload.h"
#include "profiles/cost/profile_cost.h"
#include "sim/step/engine.h"

struct step_request {
    const char *model_text, *cluster_text; /* borrowed */
    const char *schedule_text, *cut_text, *db_path;
    const char *stragglers_text, *slow_links_text; /* NULL: none; see cluster_slow() */
    int64_t num_ranks, num_replicas, num_microbatches, chunks, num_frozen;
    int64_t batch;                    /* 0: as many samples as micro-batches */
    int64_t tensor, recompute_layers; /* recompute_layers AUTO: what the memory needs */
    int64_t expert, expert_tensor;    /* expert_tensor 0: T */
    int64_t context, shard_group;
    enum context_kind context_kind;
    bool sequence_parallel;
    enum shard_mode shard;
    enum attention_kind attention;
    enum framework_kind framework;
    enum norm_kind norm;
    enum recompute_mode recompute;
    enum frozen_placement frozen; /* FROZEN_NONE: spread if F > 0 */
    enum cost_choice cost;
    double efficiency;
    const char *calibration; /* borrowed; NULL: none */
    bool dropout;
    bool cache_write, host_blocking, half_duplex, clip;
    int sends;                                   /* enum cluster_sends; -1: as the cluster says */
    int64_t host_op_ns, latency_ns, mem_bytes;   /* -1: as the cluster says */
    double link_bytes_per_s, uplink_bytes_per_s; /* 0: as the cluster says */
    int optimizer;                               /* of the table in sim_request.c; 0: momentum */
    int64_t bucket_bytes, optimizer_bytes;       /* optimizer_bytes -1: as the optimizer needs */
    struct sim_options options;
};

void step_request_init(struct step_request *request);

/* A setting that is an option with a value. text is the value given for it; NULL: none. values are
 * the words that it takes, as in struct option; "": not a fixed set. */
struct step_setting {
    const char *name, *arg, *help;
    const char *text;
    char values[128];
};
enum { STEP_SETTINGS_MAX = 40 };
/* List these settings in the order of the help, without texts. Returns how many. */
int step_settings(struct step_setting settings[STEP_SETTINGS_MAX]);

/* Whether a setting takes no value on the command line ("clip"). */
bool step_setting_is_flag(const char *name);

/* Set one setting from its text, which is borrowed. ERR_INPUT names an unknown setting and lists
 * the valid ones, or names a bad value. */
enum status step_request_set(struct step_request *request, const char *name, const char *text,
                             struct err *err);

/* The result of a request. It is kept between requests, so that a sweep builds a model once. */
struct step_answer {
    char *model_key, *cluster_key; /* owned: the texts from which model and base were made */
    struct model model;
    struct cluster base, cluster; /* the named cluster; the cluster with the request's changes */
    struct cost_handle cost;
    enum cost_choice cost_choice; /* of the request that chose the costs */
    double efficiency;
    struct cost_query query; /* the query that the costs answer */
    const char *optimizer;   /* its name in answers */
    struct plan plan;
    struct schedule custom, full;
    struct workload workload;
    struct sim_result result;
    enum attention_kind attention; /* of the model; also framework and norm */
    enum framework_kind framework;
    enum norm_kind norm;
    bool fit_layers; /* plan.recompute_layers are what the memory needs, not what was asked */
    int64_t wall_ns; /* wall time from generating the lists to the result */
};
void step_answer_clear(struct step_answer *answer);
double step_answer_samples_per_s(const struct step_answer *answer);
struct step_rates step_answer_rates(const struct step_answer *answer);

/* Build and simulate the step. The answer's parts stay valid until the next call or clear. */
enum status step_request_run(const struct step_request *request, struct step_answer *answer,
                             struct err *err);

/* Simulate an answer whose plan, lists and workload are made, and set wall_ns. */
enum status step_answer_simulate(struct step_answer *answer, const struct sim_options *options,
                                 struct err *err);

/* Slow the cluster's devices and links as the request says: tables "3:0.5,7:0.8" of speed or port
 * bandwidth, or "random:0.1:0.5", each device with probability 0.1 by the seed. ERR_INPUT. */
enum status cluster_slow(const struct step_request *request, struct cluster *cluster,
                         struct err *err);

#endif
