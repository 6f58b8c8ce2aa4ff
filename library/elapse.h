/* elapse.h - plan and simulate elastic pipeline training of transformers, as a library.
 *
 * A job (model, cluster, batch, optimizer, what is fixed and what is open) is the JSON of a job
 * file; `elapse help job` lists its keys. From a job come a plan, a simulated step of a plan, and a
 * simulated run. The answers are those of `elapse plan`, `elapse sim --step` and `elapse sim`.
 *
 *     struct elapse_job *job;
 *     struct elapse_plan *plan;
 *     if (elapse_job_load("job.json", NULL, &job, &error) == ELAPSE_OK &&
 *         elapse_plan_find(job, NULL, &plan, &error) == ELAPSE_OK) ...
 *
 * Build with `pkg-config --cflags --libs elapse`; add --static for libelapse.a.
 *
 * Units: times are integer nanoseconds (_ns), sizes are bytes (_bytes), rates are per second
 * (_per_s). A count that does not apply is 0.
 *
 * Ownership: a function that makes a handle sets the pointer that it is given only if it returns
 * ELAPSE_OK; the caller frees the handle with the matching _free(), which takes NULL too. A plan, a
 * step and a run do not refer to their job and may outlive it. Texts that a struct points to belong
 * to the handle and live as long as it does. Arguments are only read, and are not kept.
 *
 * Errors: functions that can fail return a status, and describe a failure in *error, which may be
 * NULL. The library never prints and never ends the process.
 *
 * Threads: functions may be called from any thread. At most one thread at a time may use a job,
 * const or not, because a job remembers the costs that it has worked out. Any number of threads may
 * read one plan, step or run. Different handles do not affect each other. elapse_job_load() and
 * elapse_job_parse() read the environment, so no thread may call setenv() meanwhile. Numbers are
 * read and written as in the "C" locale, whatever locale the program has set.
 *
 * Determinism: equal jobs give equal answers, on every machine and with any number of threads.
 *
 * Growth: a struct whose first member is `size` may get members at its end. Set size to the size of
 * the struct as you compiled it ({.size = sizeof x}); the library fills or reads that many bytes,
 * and sets members that it does not know to zero. In options, zero is every member's default. Other
 * structs never change. Functions are only added, each under a symbol version of the release that
 * brought it. A change that breaks programs raises ELAPSE_ABI_VERSION and the number in the
 * library's soname. */
#ifndef ELAPSE_H
#define ELAPSE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ELAPSE_API __attribute__((visibility("default")))
#else
#define ELAPSE_API
#endif

#define ELAPSE_ABI_VERSION 0

/* ELAPSE_ABI_VERSION of the library that runs. */
ELAPSE_API int elapse_abi_version(void);
/* The release of the library that runs, as "0.1.0". */
ELAPSE_API const char *elapse_version(void);

enum elapse_status {
    ELAPSE_OK = 0,
    ELAPSE_ERR_INPUT = 1,      /* malformed text, an unknown key, a value out of range */
    ELAPSE_ERR_INFEASIBLE = 2, /* a sound question without a solution: no plan fits the memory */
    ELAPSE_ERR_SYSTEM = 3,     /* a missing or unreadable file */
    ELAPSE_ERR_NOMEM = 4,      /* the host is out of memory */
    ELAPSE_ERR_UNFINISHED = 5  /* a search was ended before it had an answer */
};

struct elapse_error {
    enum elapse_status status;
    char message[512]; /* one line without a full stop: the subject, the value, the limit */
    char hint[256];    /* the remedy if one is known, else "" */
};

/* ---- jobs ------------------------------------------------------------------------------------ */

struct elapse_job; /* a job, its model and cluster, and the costs that were chosen for it */

struct elapse_job_options {
    size_t size;
    const char *const *overrides; /* num_overrides texts "key=value" that replace values of the job,
                                     in order: "pipeline.num_stages=4", "cluster=dgx-h100-2" */
    size_t num_overrides;
    const char *dir; /* elapse_job_parse() only: the folder that relative paths of the text start
                             from; NULL: the current folder. A file's paths start from its folder */
    const char *profiles; /* profile store (an SQLite file) with measured costs; NULL: the store
                             that `elapse` uses, or the profiles inside the library if the user has
                             none */
};

/* Read a job from a JSON file. options may be NULL. Data sets are not opened. The costs are chosen
 * here, as `elapse plan` does: constants of the model, measured profiles, kernel models or a
 * roofline. ELAPSE_ERR_SYSTEM: the file or the store cannot be read. ELAPSE_ERR_INPUT: the error
 * names the key. ELAPSE_ERR_INFEASIBLE: no cost source knows the devices. Takes about 20 ms to open
 * the profile store, or 0.5 ms if the model has its own times. */
ELAPSE_API enum elapse_status elapse_job_load(const char *path,
                                              const struct elapse_job_options *options,
                                              struct elapse_job **job, struct elapse_error *error);
/* Read a job from JSON text. Otherwise like elapse_job_load(). */
ELAPSE_API enum elapse_status elapse_job_parse(const char *text,
                                               const struct elapse_job_options *options,
                                               struct elapse_job **job, struct elapse_error *error);
ELAPSE_API void elapse_job_free(struct elapse_job *job);

struct elapse_job_info {
    size_t size;
    const char *name, *model, *cluster;
    const char *json;        /* the job with every key and default; elapse_job_parse() takes it */
    const char *cost_source; /* "constant", "measured", "published", "kernels", "roofline" */
    const char *cost_label;  /* for people: "profile cpu-2core (measured)" */
    const char *cost_note;   /* "", or one line that says how the costs do not fit */
    int num_layers;          /* transformer layers: what freezing counts */
    int num_items;           /* sublayers: what a cut divides */
    int num_devices;
    int num_epochs;
    int64_t num_samples; /* of an epoch; 0: not known without reading the data */
    int64_t num_params;
};
ELAPSE_API void elapse_job_info(const struct elapse_job *job, struct elapse_job_info *info);

/* ---- plans ----------------------------------------------------------------------------------- */

struct elapse_plan; /* how a job runs: lengths, cut, schedule, devices */

struct elapse_plan_options {
    size_t size;
    int frozen_layers; /* F: the number of first layers that are frozen; at most num_layers */
    int cached;        /* not 0: a cache holds the output of the frozen layers */
    int simulate;      /* not 0: choose by the event engine, where transfers share links. Otherwise
                          the fastest plan without sharing is chosen, and its step is then
                          simulated */
    const struct elapse_plan *current; /* the plan in force, for a change of plan: its devices are
                                          kept, and K and R unless elastic.auto_pipe and
                                          elastic.auto_dp open them. NULL: the first plan */
    int64_t turn; /* of the run, for elastic.stages; see struct elapse_freezer */
};

/* Find the best plan of a job. options may be NULL. ELAPSE_ERR_INFEASIBLE: no plan exists or fits
 * the memory; the error names the smallest need. The search is exact. It takes 0.3 ms for two fixed
 * stages, 0.3 s for GPT-2 XL (98 items) on 16 devices with everything open, and more with more of
 * both. */
ELAPSE_API enum elapse_status elapse_plan_find(struct elapse_job *job,
                                               const struct elapse_plan_options *options,
                                               struct elapse_plan **plan,
                                               struct elapse_error *error);
/* Read a plan file, as `elapse plan -o FILE` or elapse_plan_json() writes it. The plan must fit the
 * job; ELAPSE_ERR_INPUT and ELAPSE_ERR_INFEASIBLE name the member that does not. */
ELAPSE_API enum elapse_status elapse_plan_load(struct elapse_job *job, const char *path,
                                               struct elapse_plan **plan,
                                               struct elapse_error *error);
ELAPSE_API void elapse_plan_free(struct elapse_plan *plan);

struct elapse_plan_info {
    size_t size;
    int pipeline_length;  /* K: ranks of a pipeline */
    int replicas;         /* R: pipelines side by side */
    int tensor;           /* T: devices that hold each item together. K x R x T devices are used */
    int expert;           /* E: replicas that divide the experts of each layer */
    int num_stages;       /* K times the chunks of a rank */
    int microbatches;     /* M of a pipeline */
    int frozen_layers;    /* F */
    const char *schedule; /* "1f1b"; the names of `elapse schedule --help` */
    const char *frozen;   /* where frozen layers run: "none", "first", "spread", "cached" */
    const char *
        recompute; /* "never", "stage", "except-last", "selective", "layer", "stage-early", "norms", "op" */
    const char *shard;       /* what replicas divide: "none", "optimizer", "gradients", "weights" */
    int64_t batch;           /* samples of a pipeline in a step; a step has R times as many */
    int64_t microbatch_size; /* samples; the last micro-batch may have fewer */
    int64_t step_ns;         /* predicted */
    double samples_per_s;    /* predicted */
    /* no plan runs such a step in less; 0: it was read from a file, or has shares */
    int64_t lower_bound_ns;
    int64_t candidates; /* plans that the search compared; 0: read from a file */
    /* where no framework is named: the step under the fastest and the slowest one that people run; else 0 */
    int64_t framework_low_ns, framework_high_ns;
    /* Where the step is expected by the errors of published runs of its kind; zeros: the times are not
     * computed, or no run was published. */
    int64_t step_band_ns[2];
};
ELAPSE_API void elapse_plan_info(const struct elapse_plan *plan, struct elapse_plan_info *info);

struct elapse_stage {
    size_t size;
    int rank;                  /* of a pipeline, 0 to K - 1 */
    int first_item, num_items; /* items of the model */
    int64_t pass_ns;           /* forward and backward of a full micro-batch; 0: read from a file */
    /* predicted peak of the rank's device, all its stages; 0: not predicted */
    int64_t memory_bytes;
};
/* Stage 0 to num_stages - 1. ELAPSE_ERR_INPUT: there is no such stage. */
ELAPSE_API enum elapse_status elapse_plan_stage(const struct elapse_plan *plan, int index,
                                                struct elapse_stage *stage);
/* The device (its number in the cluster) of a rank of a replica, with T > 1 the first of its T
 * neighbouring devices. -1: there is no such rank. */
ELAPSE_API int elapse_plan_device(const struct elapse_plan *plan, int replica, int rank);
/* The plan as JSON, which `elapse sim --plan` and `elapse train --plan` read. The caller frees
 * *text with free(). */
ELAPSE_API enum elapse_status elapse_plan_json(const struct elapse_plan *plan, char **text,
                                               struct elapse_error *error);

/* ---- a simulated step ------------------------------------------------------------------------ */

struct elapse_step;

struct elapse_step_options {
    size_t size;
    double jitter; /* standard deviation of an op's time over its mean; 0: none */
    uint64_t seed; /* of the jitter; 0 is as good a seed as any */
    int ops;       /* not 0: keep every op with its start and end, for elapse_step_op() */
};

/* Simulate one training step of a plan. options may be NULL. ELAPSE_ERR_INFEASIBLE: a device is out
 * of memory (which one, when, what filled it), or the plan does not fit the job. Takes about 0.3 us
 * an op. */
ELAPSE_API enum elapse_status elapse_step_simulate(struct elapse_job *job,
                                                   const struct elapse_plan *plan,
                                                   const struct elapse_step_options *options,
                                                   struct elapse_step **step,
                                                   struct elapse_error *error);
ELAPSE_API void elapse_step_free(struct elapse_step *step);

struct elapse_step_info {
    size_t size;
    int num_devices;
    int num_traffic; /* pairs of devices that exchange bytes */
    int64_t num_ops; /* kept ops; 0 unless options.ops was set */
    int64_t step_ns;
    double bubble_fraction; /* idle time of the devices over all their time */
    double samples_per_s;
    int64_t allreduce_ns, allreduce_exposed_ns; /* exposed: not hidden behind computing */
    int64_t events;                             /* starts and ends of ops, ends of transfers */
    int extrapolated; /* not 0: a cost lies outside the range that was measured */
    /* where no framework is named: the step under the fastest and the slowest one that people run; else 0 */
    int64_t framework_low_ns, framework_high_ns;
    int64_t step_band_ns[2]; /* as in struct elapse_plan_info */
};
ELAPSE_API void elapse_step_info(const struct elapse_step *step, struct elapse_step_info *info);

struct elapse_device {
    size_t size;
    int device, replica, rank;
    int peak_live; /* stashes of (stage, micro-batch) pairs that are alive at once */
    int64_t busy_ns, idle_ns, first_ns,
        last_ns; /* first, last: its first op starts, its last ends */
    int64_t peak_bytes;
};
/* Device 0 to num_devices - 1 of the step, by replica, then rank. ELAPSE_ERR_INPUT: no such one. */
ELAPSE_API enum elapse_status elapse_step_device(const struct elapse_step *step, int index,
                                                 struct elapse_device *device);

struct elapse_op {
    size_t size;
    const char *kind; /* "F", "B", "SEND_ACT", ...; docs/numbers.md lists them */
    int stage, microbatch, replica, rank; /* microbatch -1: the op belongs to the whole batch */
    int64_t start_ns, end_ns;
};
/* Op 0 to num_ops - 1 by start time. ELAPSE_ERR_INPUT: no such one. */
ELAPSE_API enum elapse_status elapse_step_op(const struct elapse_step *step, int64_t index,
                                             struct elapse_op *op);

struct elapse_traffic {
    size_t size;
    int from, to; /* devices */
    int64_t bytes;
};
/* Pair 0 to num_traffic - 1, by sender, then receiver. ELAPSE_ERR_INPUT: no such one. */
ELAPSE_API enum elapse_status elapse_step_traffic(const struct elapse_step *step, int index,
                                                  struct elapse_traffic *traffic);

/* ---- a simulated run ------------------------------------------------------------------------- */

struct elapse_run;

struct elapse_run_options {
    size_t size;
    double jitter; /* as in struct elapse_step_options */
    uint64_t seed;
    const struct elapse_plan *plan; /* the run begins with it; NULL: with the best plan */
};

/* Simulate all epochs of a job: freeze decisions, changes of plan, the cache, steps. options may be
 * NULL. Errors are those of elapse_plan_find() and elapse_step_simulate(). Takes the time of one
 * plan and one or two steps for each change of the frozen layers. */
ELAPSE_API enum elapse_status elapse_run_simulate(struct elapse_job *job,
                                                  const struct elapse_run_options *options,
                                                  struct elapse_run **run,
                                                  struct elapse_error *error);
ELAPSE_API void elapse_run_free(struct elapse_run *run);

struct elapse_run_info {
    size_t size;
    int num_epochs;
    int stopped; /* not 0: train.max_steps ended the run before its last sample */
    int64_t samples;
    int64_t total_ns; /* steps and changes of plan */
    int64_t eval_ns;  /* evaluations, not in total_ns */
    double device_hours;
    int extrapolated; /* not 0: a cost lies outside the range that was measured */
};
ELAPSE_API void elapse_run_info(const struct elapse_run *run, struct elapse_run_info *info);

/* The members about a plan describe the plan at the end of the epoch. */
struct elapse_epoch {
    size_t size;
    int frozen_layers, pipeline_length, replicas, microbatches;
    const char *schedule;
    const char *frozen; /* as in struct elapse_plan_info */
    const char *reason; /* of the freeze decision, one line */
    int64_t microbatch_size, samples, steps;
    int64_t step_ns; /* of a full step; the mean if the plan changed within the epoch */
    int64_t epoch_ns;
    int64_t transition_ns; /* changes of plan, not in epoch_ns */
    int64_t eval_ns;
    double samples_per_s, bubble_fraction;
    int64_t step_band_ns[2]; /* as in struct elapse_plan_info */
};
/* Epoch 0 to num_epochs - 1. ELAPSE_ERR_INPUT: there is no such epoch. */
ELAPSE_API enum elapse_status elapse_run_epoch(const struct elapse_run *run, int index,
                                               struct elapse_epoch *epoch);

/* ---- freezing while another program trains --------------------------------------------------- */

/* Decides which first layers of a job freeze, for a program that trains by itself. A turn is an
 * epoch, or freeze.every_steps steps. At the start of each turn, turn 0 included, the program calls
 * elapse_freezer_decide(). Under the policy `safe` it measures before that, at a turn's end:
 *
 *     elapse_freezer_begin(freezer, &window, &due, &error);  window: what the turn's steps were
 *     if (due) {                                             measure, then decide
 *         elapse_freezer_ask(freezer, &frozen);
 *         elapse_freezer_losses(freezer, &losses, &error);   now, and with the lagged weights
 *         for (; frozen > 0; elapse_freezer_ask(freezer, &frozen))
 *             elapse_freezer_share(freezer, frozen, share, share_se, &error);
 *         elapse_freezer_end(freezer, &error);
 *         ... the present weights become the lagged ones
 *     }
 *
 * The lagged weights are those with which the window began. With o for lagged and n for present
 * weights, of the first `frozen` layers and of the rest, the share of these layers is
 * (L(o,n) - L(n,n) + L(o,o) - L(n,o)) / 2 in the mean loss over the probe. A window continues over
 * turns that are not due. After a change of plan the program begins a new window. */
struct elapse_freezer;

struct elapse_freezer_options {
    size_t size;
    int64_t train_samples; /* of an epoch; 0: as the job says */
    int64_t probe_source;  /* samples that the probe may be taken from; 0: any number */
};
/* The job must outlive the freezer. ELAPSE_ERR_INPUT: the job's freeze keys do not fit its model. */
ELAPSE_API enum elapse_status elapse_freezer_new(struct elapse_job *job,
                                                 const struct elapse_freezer_options *options,
                                                 struct elapse_freezer **freezer,
                                                 struct elapse_error *error);
ELAPSE_API void elapse_freezer_free(struct elapse_freezer *freezer);

struct elapse_freezer_info {
    size_t size;
    const char *policy;               /* "safe"; static */
    int num_layers;                   /* L */
    int num_frozen;                   /* F, the last decision */
    int uses_norms;                   /* not 0: decisions read gradient norms */
    int uses_evidence;                /* not 0: the program measures windows */
    int64_t every_steps;              /* steps of a turn; 0: a turn is an epoch */
    int64_t probe_samples;            /* of validation data that a window is measured on */
    double max_loss, spent, spent_se; /* of `safe`: the budget, and the estimate of what is used */
};
ELAPSE_API void elapse_freezer_info(const struct elapse_freezer *freezer,
                                    struct elapse_freezer_info *info);

struct elapse_freeze_window {
    size_t size;
    int64_t turn, step;               /* the turn that has ended; steps of the run until then */
    double steps_window, rate_window; /* its steps, and the sum of their learning rates */
    double steps_left, rate_left;     /* of the rest of the run */
};
/* A turn has ended. *due: whether its window is to be measured; then times of plans are predicted,
 * which takes two calls of elapse_plan_find(). ELAPSE_ERR_INPUT: a number is negative. */
ELAPSE_API enum elapse_status elapse_freezer_begin(struct elapse_freezer *freezer,
                                                   const struct elapse_freeze_window *window,
                                                   int *due, struct elapse_error *error);
/* *frozen: the next prefix to measure, or -1. */
ELAPSE_API void elapse_freezer_ask(struct elapse_freezer *freezer, int *frozen);

struct elapse_freeze_losses {
    size_t size;
    double loss, loss_before; /* L(n,n), L(o,o): nats per target */
    double fall_se;           /* standard error of loss_before - loss over micro-batches */
    double accuracy;          /* of the probe, 0 to 1; negative: not a classifier */
    int64_t num_probe;
};
/* ELAPSE_ERR_INPUT: a loss is not a number. */
ELAPSE_API enum elapse_status elapse_freezer_losses(struct elapse_freezer *freezer,
                                                    const struct elapse_freeze_losses *losses,
                                                    struct elapse_error *error);
/* ELAPSE_ERR_INPUT: elapse_freezer_ask() did not ask for this prefix; a share is not a number. */
ELAPSE_API enum elapse_status elapse_freezer_share(struct elapse_freezer *freezer, int frozen,
                                                   double share, double share_se,
                                                   struct elapse_error *error);
/* The window is measured. */
ELAPSE_API enum elapse_status elapse_freezer_end(struct elapse_freezer *freezer,
                                                 struct elapse_error *error);

struct elapse_freeze_decision {
    size_t size;
    int num_frozen;             /* F of this turn */
    int lowest;                 /* layers below that never train again */
    int change;                 /* not 0: the plan in force is to be replaced */
    double cost_low, cost_high; /* of `safe`: the 80 % interval of what freezing has cost, in points
                                   of accuracy, or per cent of the loss */
    char reason[160];           /* one line */
};
/* A turn begins. Turns count from 0, and each is decided once, in order. norms: [num_norms], one for
 * each layer, the gradient norms of the turn before, or NULL. plan: the one in force; NULL: none.
 * ELAPSE_ERR_INPUT: a turn is out of order; a norm is negative or not a number. */
ELAPSE_API enum elapse_status elapse_freezer_decide(struct elapse_freezer *freezer, int64_t turn,
                                                    const double *norms, int num_norms,
                                                    const struct elapse_plan *plan,
                                                    struct elapse_freeze_decision *decision,
                                                    struct elapse_error *error);

/* Timed freezing: a plan's JSON may have shares[stage][micro-batch] of weight-gradient time that
 * backwards leave out. Each step multiplies them with the ramp. A backward leaves out whole items, the
 * same on all replicas. */
struct elapse_freeze_pass {
    size_t size;
    uint64_t seed;            /* train.seed */
    int64_t step;             /* of the run, from 0 */
    int microbatch;           /* of its replica, from 0 */
    int first_item, end_item; /* the stage's items that train */
    double share;             /* 0 to 1, times the ramp */
    const char *choice;       /* freeze.choice; norm without an order is rotate */
    const int *order;         /* norm: by item of the model, its place in the order; NULL: none */
};
/* left_out: [end_item - first_item], 1: the item's weight gradients are left out. ELAPSE_ERR_INPUT: a
 * share outside 0..1, no items, a choice that does not exist. */
ELAPSE_API enum elapse_status elapse_freeze_choose(const struct elapse_freeze_pass *pass,
                                                   unsigned char *left_out,
                                                   struct elapse_error *error);
/* The ramp before a step: 0 in the freeze.warmup turns, then rising to 1. epoch: from 0; position:
 * samples that the epoch of num_samples has had. */
ELAPSE_API double elapse_freeze_ramp(const struct elapse_job *job, int64_t step, int64_t epoch,
                                     int64_t position, int64_t num_samples);

#ifdef __cplusplus
}
#endif
#endif
