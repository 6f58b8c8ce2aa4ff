/* exec/step/runtime.h - runs one training step: the lowered op list of this rank, op by op.
 *
 * The list is the one that sim/ replays (partition/step/workload.h); nothing here knows what GPipe is.
 * A compute op calls exec/stage/stage.h; a SEND starts a message and returns; a RECV waits for a
 * message whose buffer was posted ahead. Activations stay where the stage made them until their
 * message has left and their slot is wanted again; so the slots bound what is in flight.
 *
 * A runtime is built for one plan and thrown away with it. The stages (weights, optimizer state)
 * outlive it: a change of plan builds a new runtime over moved stages. */
#pragma once

#include "exec/cache/cache.h"
#include "exec/comm/comm_nccl.h"
#include "exec/comm/comm.h"
#include "exec/data/loader.h"
#include "exec/stage/stage.h"
#include "partition/freeze/freeze_choice.h"
#include "partition/plan/plan.h"
#include "partition/step/workload.h"

struct runtime; /* opaque */

struct runtime_spec {
    const struct model *model; /* everything is borrowed while the runtime lives */
    const struct job *job;
    const struct plan *plan;
    const struct workload *workload;
    const struct schedule *full; /* lowered and checked */
    const struct comm *comm;
    struct comm_group *active;         /* all K * R ranks, by their number in the message group */
    struct comm_group *pipeline;       /* the K ranks of this replica, by position */
    struct comm_group *replicas;       /* the R ranks that hold the same stages, by replica */
    struct nccl *nccl;                 /* train.transport nccl; NULL: through the host */
    const struct runtime_links *links; /* of the plan, where nccl is set */
    struct backend *backend;
    struct stage **stages; /* num_stages entries; those of other ranks are NULL */
    /* Frozen items in front of the pipeline (FROZEN_FIRST, FROZEN_CACHED), one slot; NULL on ranks
     * without the first stage, and where there are none. */
    struct stage *prefix;
    /* Cache of the prefix's output, for training steps under FROZEN_CACHED, and the sampler whose
     * order it reads ahead. NULL: none. Without a sampler nothing is left out beside other replicas. */
    struct cache *cache;
    const struct sampler *sampler;
    int replica, rank; /* position of this process in the plan */
};

/* The times of an op on this rank, on the clock of comm_now_ns(). On a device these are the
 * times at which the op's lane began and ended it, so a RECV lasts as long as the device waited.
 * The clock is read once a step, at its end. Ops of empty micro-batches have start_ns = end_ns =
 * 0. */
struct op_time {
    int64_t start_ns, end_ns;
};

/* The same on every rank. */
struct step_result {
    double loss; /* mean over all targets of the step, computed before the update */
    int64_t count, correct;
    double grad_norm; /* before clipping; not part of step_ns where the list has no NORM */
    int64_t start_ns; /* first start of an op over all ranks */
    int64_t step_ns;  /* from there to the last end over all ranks */
    int64_t vote;     /* the largest vote of any rank */
    bool next_fails;  /* a rank cannot read the batch that its loader prefetches (loader_next()) */
};

/* Groups of a plan, collective over the message group: replica r's rank k is rank
 * plan->device[r * K + k]. Ranks without a place get *rank = -1 and NULL groups. */
struct runtime_groups {
    int replica, rank;
    struct comm_group *active, *pipeline, *replicas; /* owned */
};
enum status runtime_groups_open(const struct comm *comm, const struct plan *plan,
                                struct runtime_groups *groups, struct err *err);
void runtime_groups_clear(struct runtime_groups *groups); /* safe twice */

/* Communicators between devices: one for each direction of each edge between ranks, one for the two
 * ends of a tied table, one for the replicas that hold the same stages. NULL where this rank has no
 * part in it. */
struct runtime_links {
    struct nccl_group **edges; /* owned array of borrowed groups, [edges][directions]; direction 0
                                  is the activations' */
    struct nccl_group *tied, *replicas; /* borrowed */
    struct nccl_group **groups;         /* owned: all that were opened, in their order */
    int num_groups;
};
/* The groups that a plan's links need, in the order in which they are opened: rounds of pairs of
 * ranks, then the replicas. Each pair goes into the first round in which both ranks are free. */
struct link_patterns {
    struct nccl_pattern *patterns; /* owned, with what they point to */
    int num;
    struct link_pair *pairs; /* owned; each names its round */
    int num_pairs;
};
/* A lowered plan. */
struct link_plan {
    const struct plan *plan;
    const struct workload *workload;
    const struct schedule *full;
};
/* num_ranks: of the message group. Local; ERR_NOMEM. */
enum status runtime_links_list(const struct link_plan *of, int num_ranks,
                               struct link_patterns *list, struct err *err);
void link_patterns_clear(struct link_patterns *list); /* safe twice */

/* Collective over the message group. It sends a message each way over each link, so that no message
 * of a step has to wait for its connection. */
enum status runtime_links_open(const struct comm *comm, struct nccl *nccl,
                               const struct link_plan *of, struct runtime_links *links,
                               struct err *err);
void runtime_links_clear(struct runtime_links *links); /* safe twice */

enum status runtime_new(const struct runtime_spec *spec, struct runtime **runtime, struct err *err);
void runtime_free(struct runtime *runtime); /* NULL is fine */

/* One step. Collective over all ranks of the plan. Under train.reduction canonical, gradients are
 * summed by a tree that halves [0, R * M) at midpoints; R must be a power of two. Each rank votes
 * once per step; the maximum wins and comes back on all ranks. step counts from 0 over the whole
 * run (dropout and bias correction use it). A loss or norm that is not finite is ERR_INFEASIBLE on
 * every rank, and the message names the first micro-batch or item; where the list has a NORM op, no
 * weight has changed by then. Other failures may be known to this rank only. */
enum status runtime_step(struct runtime *runtime, const struct batch *batch, int64_t step,
                         double lr, int64_t vote, struct step_result *result, struct err *err);

/* Timed freezing (partition/freeze/freeze_choice.h): weight gradients that steps leave out, the same on
 * all replicas. An item's sum over a step is divided by the samples that were counted for it
 * (rescale), or by all samples of the step; an item that no micro-batch counted is not updated. */
struct leave_out {
    const double *share; /* borrowed, [num_stages][micro-batches of a replica], each in [0, 1] */
    double ramp;         /* multiplies the shares; in [0, 1] */
    enum freeze_choice choice;
    const int *order; /* borrowed; struct freeze_pass */
    bool rescale;
};
/* Takes effect with the next step; call it between steps. The rule is copied. NULL: leave out
 * nothing, which is the begin's state. ERR_NOMEM. */
enum status runtime_leave_out(struct runtime *runtime, const struct leave_out *rule,
                              struct err *err);

/* stage_apf() and stage_held() of this rank's stages. */
void runtime_apf(struct runtime *runtime, const struct apf_rule *rule);
void runtime_held(const struct runtime *runtime, double *held, double *all);
/* stage_anneal() of this rank's stages. */
void runtime_anneal(struct runtime *runtime, int end_item, double share);

/* Forward only, by the forward ops of the same list. Every rank gets the sums over all replicas.
 * Collective. */
enum status runtime_eval(struct runtime *runtime, const struct batch *batch, struct loss_sums *sums,
                         struct err *err);

/* The input of one item of the model, of all micro-batches that a rank evaluates, on the rank that
 * has the item. boundary_make() is local; the boundary is of this plan, and `batches` batches. For
 * models without skip edges. */
struct boundary {
    int item;      /* 0: empty */
    void **blocks; /* owned, alloc_host()'s; NULL on other ranks */
    int num_blocks;
    struct backend *backend;
    int replica, num_pipelines; /* of this rank and of the plan */
    int64_t size;               /* samples of a block at most */
};
enum status boundary_make(const struct runtime *runtime, int item, int64_t batches,
                          struct boundary *boundary, struct err *err);
void boundary_clear(struct boundary *boundary); /* safe twice */
/* Whether a boundary, perhaps of an earlier plan, is what boundary_make() would make. */
bool boundary_fits(const struct runtime *runtime, int item, int64_t batches,
                   const struct boundary *boundary);

/* runtime_eval() that begins at a boundary and fills others. */
struct eval_part {
    const struct boundary *from;              /* empty: begin with the first item */
    const struct boundary *keep[STAGE_KEEPS]; /* NULL or empty: none */
    int64_t batch;                            /* of the boundaries' batches */
};
enum status runtime_eval_part(struct runtime *runtime, const struct batch *batch,
                              const struct eval_part *part, struct loss_sums *sums,
                              struct err *err);

/* The sums of one micro-batch of the last evaluation, over all ranks; count is 0 for an empty one.
 * Blocks are numbered over all replicas, in the order in which sums add them. */
int runtime_num_blocks(const struct runtime *runtime);
struct loss_sums runtime_block(const struct runtime *runtime, int block);
/* Whether the last step or evaluation ended with a value that was not finite. All ranks of the plan
 * agree. */
bool runtime_not_finite(const struct runtime *runtime);

/* runtime_eval() calls the hook after each forward of the stage with the head, on its rank. NULL:
 * off.
 */
typedef enum status (*runtime_eval_hook)(void *ctx, struct stage *stage,
                                         const struct sample_block *block, struct err *err);
void runtime_on_eval(struct runtime *runtime, runtime_eval_hook hook, void *ctx);

/* Times of the last step's ops, one per op of the rank's list. On a device, asking for them costs
 * some us an op. */
const struct op_time *runtime_times(struct runtime *runtime);
/* Sum of squares of the last step's gradients by item, over all stages; NULL before the first. */
const double *runtime_item_sumsq(const struct runtime *runtime);
/* Time that this rank's steps have spent on the frozen forward of samples that the cache missed. */
int64_t runtime_fill_ns(const struct runtime *runtime);
/* Bytes of backend and host memory that messages, sums and the runtime's own tables take. */
int64_t runtime_bytes(const struct runtime *runtime);
