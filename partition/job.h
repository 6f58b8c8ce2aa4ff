/* partition/job.h - a job as plain data: what `plan`, `sim` and `train` all start from.
 *
 * The JSON form is profiles/job_json.h; defaults and range checks are here, so that they exist
 * once. */
#ifndef ELAPSE_PARTITION_JOB_H
#define ELAPSE_PARTITION_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/balance.h"
#include "partition/cluster.h"
#include "partition/freeze.h"
#include "partition/model.h"
#include "partition/plan.h"
#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AUTO 0 /* of a count that the planner chooses */

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
    DATA_TEXT
};
enum cache_policy { CACHE_OFF, CACHE_ON, CACHE_AUTO };
enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_TF32 };
enum device_kind { DEVICE_CPU, DEVICE_CUDA };
enum transport { TRANSPORT_MPI, TRANSPORT_NCCL };
enum reduction { REDUCTION_FAST, REDUCTION_CANONICAL };

struct job {
    char name[64];
    char *path; /* owned: the file it came from, for messages; NULL when built from options */
    char *dir;  /* owned: folder that relative paths start from */
    struct model model; /* owned */
    struct {
        enum data_kind kind;
        char *path;   /* owned, resolved against dir; NULL for synthetic */
        char *vocab;  /* owned, likewise; NULL */
        char *merges; /* owned, likewise: GPT-2's merges.txt; NULL: beside vocab */
        bool augment, resize;
        int64_t train_samples, test_samples; /* 0: all there are (synthetic: its default) */
        int workers; /* threads a rank that make samples; 0: its cores that do not compute */
    } data;
    struct {
        int epochs;
        int64_t max_steps; /* 0: no limit */
        enum batch_mode batch_mode;
        int64_t batch;
        struct {
            enum optimizer_kind kind;
            double lr, momentum, beta1, beta2, eps, weight_decay;
        } optimizer;
        enum lr_kind lr_schedule;
        int64_t warmup_steps;
        double clip_norm; /* 0: off */
        double dropout, label_smoothing;
        enum dtype dtype;
        enum device_kind device;  /* of `elapse train`; plan and sim study the cluster's */
        enum transport transport; /* of activations and gradients, between GPUs */
        enum reduction reduction;
        uint64_t seed;
        int64_t eval_every_epochs, checkpoint_every_steps; /* 0: at the end only */
    } train;
    struct cluster cluster; /* owned */
    struct {
        int num_stages, num_replicas, num_microbatches; /* AUTO, or the count */
        int chunks;
        bool schedule_auto;
        enum schedule_kind schedule;
        enum balancer_kind balancer;
        bool by_params; /* balance parameters instead of time */
        bool recompute_auto;
        enum recompute_mode recompute;
        bool frozen_auto;
        enum frozen_placement frozen;
        int64_t bucket_bytes;
    } pipeline;
    struct freeze_spec freeze; /* owned */
    double *norms; /* owned: recorded gradient norms, norm_epochs x model.num_layers; NULL */
    int norm_epochs;
    struct {
        bool auto_pipe, auto_dp;
        bool halving; /* the paper's compression rule in place of ours */
        int *stages;  /* owned: K of epoch e at stages[min(e, num_stages - 1)]; NULL: planned */
        int num_stages;
        int64_t setup_ns; /* of a change of K or R, besides what moves over links: processes,
                             groups, warm-up */
    } elastic;
    struct {
        enum cache_policy policy;
        int64_t limit_bytes; /* of a node; 0: half of what is free */
        bool bf16;
        char *dir;                 /* owned; NULL: shared memory */
        char *spill_dir;           /* owned; NULL: what does not fit is computed again */
        int64_t spill_bytes;       /* 0: half of what the disk has left */
        int64_t views;             /* distinct views of a sample, see job_views(); 0: endless */
        int64_t read_ns, write_ns; /* host side, per sample; 0: as the cost source says */
    } cache;
    char **baseline; /* owned: overrides "key=value" that define the baseline run */
    int num_baseline;
    char *json; /* owned: the resolved job as JSON text, for records and --json */
};

/* Every field at its default: no model yet, synthetic data, SGD at 0.03 with momentum 0.9, seed 1,
 * one epoch, batch 32. */
void job_defaults(struct job *job);

/* Ranges and combinations that one field cannot show; names key, value and limit. */
enum status job_check(const struct job *job, struct err *err);
void job_clear(struct job *job);

/* How many views a training sample has: 1 where all epochs see the same; else (crops and flips,
 * masks) cache.views, and epoch e sees view e mod that many; 0: another one in each epoch, so that
 * what is computed from one does not serve the next. */
int64_t job_views(const struct job *job);

/* Whether each step forms the global gradient norm before its update: to clip by it, or because the
 * freeze policy decides by norms. Plans say it as `clip`. */
bool job_wants_norm(const struct job *job);

/* Bytes of optimizer state per parameter: 0 SGD without momentum, 4 with, 8 AdamW and LAMB. */
int job_optim_bytes_per_param(const struct job *job);

#ifdef __cplusplus
}
#endif
#endif
