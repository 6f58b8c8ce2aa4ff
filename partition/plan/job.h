/* partition/plan/job.h - a job as plain data. `plan`, `sim` and `train` all start from it.
 *
 * profiles/job/job_json.h reads and writes its JSON form. Limits and defaults of its keys stand in
 * their rows (job_members.c), rules between keys in job.c, and nowhere else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/plan/balance.h"
#include "partition/cost/calibration.h"
#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "partition/freeze/freeze.h"
#include "partition/model/framework.h"
#include "partition/model/lora.h"
#include "partition/model/model.h"
#include "partition/model/packing.h"
#include "partition/plan/plan.h"
#include "partition/plan/target.h"
#include "partition/base/member.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AUTO 0 /* value of a count that the planner chooses */

enum batch_mode { BATCH_PER_PIPELINE, BATCH_GLOBAL };
enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAMW, OPTIMIZER_LAMB };
enum lr_kind { LR_CONSTANT, LR_LINEAR, LR_COSINE };
enum data_kind {
    DATA_SYNTHETIC, /* the built-in procedural set */
    DATA_CIFAR10,
    DATA_CIFAR100,
    DATA_IDX,
    DATA_IMAGES, /* folder of JPEG/PNG */
    DATA_SST2,   /* GLUE TSV */
    DATA_SQUAD,
    DATA_TEXT,
    DATA_TABLE, /* CSV, TSV or JSON lines with named columns */
    DATA_KIND_COUNT
};
/* The source of the samples on which evidence about freezing is measured: a part of the training
 * split that is not trained on, the test split, or a folder or file of its own. */
enum valid_source { VALID_HELD_OUT, VALID_TEST, VALID_PATH };
enum lower_case { LOWER_AUTO, LOWER_ON, LOWER_OFF }; /* AUTO: as the vocabulary is */
enum cache_policy { CACHE_OFF, CACHE_ON, CACHE_AUTO };
/* From FP16 on for plan and sim only. With FP8, MXFP8 and NVFP4 activations are bf16 and the
 * products of the layers' weights have that format. */
enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_TF32, DTYPE_FP16, DTYPE_FP8, DTYPE_MXFP8, DTYPE_NVFP4 };
enum device_kind { DEVICE_CPU, DEVICE_CUDA };
enum transport { TRANSPORT_MPI, TRANSPORT_NCCL };
enum on_slow { ON_SLOW_LOG, ON_SLOW_REPLAN, ON_SLOW_IGNORE };
enum reduction { REDUCTION_FAST, REDUCTION_CANONICAL };

/* Only in jobs: what a plan needs to fit its devices, RECOMPUTE_NEVER where no memory is limited. */
#define RECOMPUTE_FIT RECOMPUTE_MODE_COUNT

/* Names of the values of these enums, NULL-terminated. */
extern const char *const data_kind_names[];
extern const char *const lower_case_names[];
extern const char *const optimizer_kind_names[];
extern const char *const lr_kind_names[];
extern const char *const dtype_names[];
extern const char *const device_kind_names[];
extern const char *const transport_names[];
extern const char *const on_slow_names[];
extern const char *const reduction_names[];
extern const char *const offload_choice_names[];
extern const char *const cache_policy_names[];

/* Where masters and optimizer state are (layout.offload). */
enum offload_choice {
    OFFLOAD_NONE,      /* on the devices */
    OFFLOAD_OPTIMIZER, /* in host memory */
    OFFLOAD_AUTO,      /* the faster of the two */
    OFFLOAD_FIT        /* in host memory where no plan fits the devices otherwise, or 5 % faster */
};

struct job {
    char name[64];
    char *path;      /* owned: the job's file, for messages; NULL if built from options */
    bool of_options; /* options are all that there is: a first question (job_json.h) */
    struct job_assumed {
        bool dtype, optimizer; /* not given, and not the default of a job file */
    } assumed;
    char *dir;          /* owned: folder that relative paths start from */
    struct model model; /* owned */
    struct {
        enum data_kind kind;
        char *path;   /* owned, resolved against dir; NULL for synthetic */
        char *vocab;  /* owned, resolved against dir; NULL: none */
        char *merges; /* owned, resolved against dir: GPT-2's merges.txt; NULL: beside vocab */
        char *text, *text_pair, *label; /* owned: columns of a table; NULL: text, none, label */
        char *valid; /* owned: where the probe's samples come from, see job_valid_source() */
        enum lower_case lower_case;
        bool special_tokens; /* special tokens spelled out in texts become those tokens */
        bool augment, resize;
        int64_t train_samples, test_samples; /* 0: all samples (synthetic: its default number) */
        double length, length_deviation;     /* tokens of a document; 0: model.seq (packing.h) */
        int64_t documents; /* of an epoch, in place of train_samples; 0: not given */
        int workers; /* threads per rank that prepare samples; 0: as many as it has idle cores */
    } data;
    struct {
        int epochs;
        int64_t max_steps; /* 0: no limit */
        int64_t tokens;    /* of the whole run, in place of data.train_samples; 0: not given */
        enum batch_mode batch_mode;
        int64_t batch;
        int64_t micro; /* samples of a micro-batch, in place of pipeline.num_microbatches; AUTO */
        struct {
            enum optimizer_kind kind;
            double lr, momentum, beta1, beta2, eps, weight_decay;
            enum dtype state_dtype; /* of moments: fp32 or bf16 */
        } optimizer;
        enum lr_kind lr_schedule;
        int64_t warmup_steps;
        double clip_norm; /* 0: off */
        /* No device waits for the gradient norm that clips. For plan and sim only. */
        bool post_validation;
        double dropout, label_smoothing;
        enum fill_kind rows; /* what samples hold, with data.length */
        double expert_load;  /* model_set_expert_load(); 0: 1 */
        enum dtype dtype;
        enum attention_kind attention;   /* whether stashes hold score matrices */
        enum framework_kind framework;   /* what launches the kernels */
        enum norm_kind norm;             /* whether RMSNorm is one kernel */
        enum overlap_kind overlap;       /* which collectives overlap compute */
        enum dispatcher_kind dispatcher; /* how tokens reach experts */
        enum graph_parts cuda_graphs;    /* what the host launches as a whole */
        bool fp8_attention;              /* fused attention computes in fp8 */
        bool fp8_activation;             /* SwiGLU keeps its input in fp8 */
        enum fp8_scaling fp8_scaling;    /* where the scales of fp8 are from */
        struct lora_ask lora;
        int gradient_bytes; /* of a parameter, for plan and sim; 0: as model and framework have it */
        bool gradient_copy;       /* the optimizer has an fp32 copy of them; for plan and sim */
        enum device_kind device;  /* for `elapse train`; plan and sim use the cluster's devices */
        enum transport transport; /* how activations and gradients travel between GPUs */
        enum reduction reduction;
        uint64_t seed;
        int64_t eval_every_epochs, checkpoint_every_steps; /* 0: only at the end of the run */
        enum on_slow on_slow;       /* what `elapse train` does about a slow rank */
        int64_t memory_every_steps; /* copies in shared memory; 0: none */
        int64_t keep_checkpoints;   /* the newest n, and the best; 0: all */
    } train;
    struct cluster cluster; /* owned */
    struct {
        enum cost_choice source;
        double efficiency; /* of computed costs, EFFICIENCY_MIN..EFFICIENCY_MAX */
        char calibration[CALIBRATION_NAME_MAX]; /* of the store, for computed costs; "": none */
    } cost;
    struct {
        int num_stages, num_replicas, num_microbatches; /* AUTO, or the count */
        int chunks;
        bool schedule_auto;
        enum schedule_kind schedule;
        unsigned schedules; /* with schedule_auto, only these: bits 1 << kind; 0: all */
        enum balancer_kind balancer;
        bool by_params; /* balance parameters instead of time */
        /* AUTO for T, E, C: the planner's choice; for X: T, or what is faster; for G: all replicas,
         * and where the shard is searched also a node's. at.offload is `offload`. */
        struct layout_ask layout;
        enum offload_choice offload;
        bool recompute_auto;
        enum recompute_mode recompute; /* RECOMPUTE_FIT unless the job says another */
        bool headroom_auto;            /* as framework and costs ask */
        double headroom;               /* share of a device's memory that plans keep free */
        int recompute_layers; /* of each stage, with RECOMPUTE_LAYER; AUTO: what the memory needs */
        bool frozen_auto;
        enum frozen_placement frozen;
        int64_t bucket_bytes; /* FRAMEWORK_BUCKET_BYTES unless the job says another */
        bool bucket_auto;     /* it says none, but a framework: framework_bucket_bytes() */
        /* The job names no tensor, sequence_parallel, shard, expert, context, recompute and
         * schedule but auto or search: on GPUs plan and sim choose them all (plan_for.h). */
        bool layout_open;
        const struct plan_target *target; /* only what this framework runs (target.h); NULL: all */
    } pipeline;
    struct freeze_spec freeze; /* owned */
    double *norms; /* owned: recorded gradient norms, norm_epochs x model.num_layers; or NULL */
    int norm_epochs;
    struct freeze_history evidence; /* owned: recorded evidence; no rows: none */
    struct {
        bool auto_pipe, auto_dp;
        bool halving; /* use the paper's compression rule instead of ours */
        int *stages;  /* owned: K of epoch e is stages[min(e, num_stages - 1)]; NULL: planned */
        int num_stages;
        int64_t setup_ns; /* time that a change of K or R takes apart from transfers over links:
                             processes, groups, warm-up */
    } elastic;
    struct {
        enum cache_policy policy;
        int64_t limit_bytes; /* per node; 0: half of the free memory */
        bool bf16;
        char *dir;                 /* owned; NULL: shared memory */
        char *spill_dir;           /* owned; NULL: samples that do not fit are recomputed */
        int64_t spill_bytes;       /* 0: half of the disk's free space */
        int64_t views;             /* distinct views of a sample, see job_views(); 0: unlimited */
        int64_t read_ns, write_ns; /* host time per sample; 0: ask the cost source */
    } cache;
    char **baseline; /* owned: "key=value" overrides that define the baseline run */
    int num_baseline;
    char *json; /* owned: the resolved job as JSON text, for records and --json */
    /* owned: the JSON text that it was read from, with its overrides; see job_changed() */
    char *text;
};

/* The keys of a job file, by their place in struct job: limits, defaults, help (job_members.c). Help,
 * readers, writers and job_check() follow these rows. */
extern const struct member_table job_keys;

/* A kind of data set. */
struct data_set {
    const char *path, *models;   /* what data.path holds, the models that train on it */
    int64_t num_train, num_test; /* published numbers of samples; 0: depends on the files */
};
extern const struct data_set data_sets[DATA_KIND_COUNT]; /* by enum data_kind */

/* Set every field to its default: no model yet, synthetic data, SGD at 0.03 with momentum 0.9,
 * seed 1, one epoch, batch 32. */
void job_defaults(struct job *job);

/* The share of a device's memory that plans keep free; -1: as framework and costs ask. */
static inline double job_headroom(const struct job *job)
{
    return job->pipeline.headroom_auto ? -1 : job->pipeline.headroom;
}

/* Whether a key has its default. */
bool job_is_default(const struct job *job, const struct member *key);

/* Add to the model's note each key of the job that has another value than its default, and no effect
 * beside the job's other keys ("train.lora.alpha has no effect without train.lora.rank"). */
void job_note_unused(struct job *job);

/* Check ranges, and combinations of fields that the parser cannot check one by one. The error names
 * key, value and limit. */
enum status job_check(const struct job *job, struct err *err);
void job_clear(struct job *job);

/* The same training without freezing, by the best plan that the planner finds: what an elastic run
 * is compared with. The result borrows all that the job owns; do not clear it. */
struct job job_as_static(const struct job *job);

/* The job with the settings of PipeTransformer's released code. Borrows as job_as_static() does. */
struct job job_as_released(const struct job *job);

/* Training samples of the whole run with num_samples in an epoch: train.max_steps may end it early.
 * Replicas with a batch each are not counted, because their number is not known here. */
int64_t job_run_samples(const struct job *job, int64_t num_samples);

/* data.valid: NULL and "auto" are VALID_HELD_OUT, "test" is VALID_TEST, else it is a path. */
enum valid_source job_valid_source(const struct job *job);

/* Samples of the probe: freeze.probe; else 256 for freeze.record, or as many as cost little
 * (partition/freeze/freeze_safe.h), num_source at most (0: no limit). num_train: training samples.
 * 0: the job measures no evidence. */
int64_t job_probe_samples(const struct job *job, int64_t num_train, int64_t num_source);

/* Samples that are held out for the probe, of a training split with num_split samples: without
 * freeze.probe an eighth of them at most. Synthetic samples are made in addition to those of the split.
 * 0: none are. */
int64_t job_held_out(const struct job *job, int64_t num_split);

/* Samples that are trained on, of a training split with num_split samples (0: not known): all but
 * those held out, or data.train_samples if that is fewer. */
int64_t job_train_samples(const struct job *job, int64_t num_split);

/* The most samples that the probe of a run can have that trains on num_train samples and tests on
 * num_test; 0: not known. */
int64_t job_probe_limit(const struct job *job, int64_t num_train, int64_t num_test);

/* Forward passes over the probe that a run under the policy safe may take
 * (partition/freeze/freeze_safe.h). num_source: samples to take the probe from; 0: any number. */
double job_probe_passes(const struct job *job, int64_t num_samples, int64_t num_source);

/* The model, if forwards over the probe of such a run keep inputs of layers (exec/probe/probe.h): it
 * has no skip edges, and one input of all samples of the probe takes 256 MiB at most. Else NULL. */
const struct model *job_probe_keeps(const struct job *job, int64_t num_samples, int64_t num_source);

/* Number of views of a training sample. 1: every epoch sees the sample unchanged. With augmentation
 * or masks it is cache.views = n, and epoch e sees view e mod n. 0: each epoch sees a new view, so
 * no activation can be reused in a later epoch. */
int64_t job_views(const struct job *job);

/* Whether plans get op lists of their own if these are faster: pipeline.schedule is search, or a list
 * with it. */
bool job_searches(const struct job *job);

/* The job with the named schedules alone. Borrows as job_as_static() does. */
struct job job_with_named_schedules(const struct job *job);

/* Whether all devices wait for the global gradient norm before their update, either to clip gradients
 * (unless train.post_validation) or because the freeze policy needs norms. A plan carries it as
 * `clip`. */
bool job_wants_norm(const struct job *job);

/* sgd, sgd-momentum, adamw or lamb. */
const char *job_optimizer_name(const struct job *job);

/* Bytes of optimizer state per parameter: 0 SGD without momentum, 4 with, 8 AdamW and LAMB; 4 more for
 * train.gradient_copy. */
int job_optim_bytes_per_param(const struct job *job);
/* Whether stages keep a copy of the weights that train, to measure evidence by (plan.lagged). */
bool job_lags(const struct job *job);

#ifdef __cplusplus
}
#endif
