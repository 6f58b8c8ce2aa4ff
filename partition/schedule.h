/* partition/schedule.h - a training step as one ordered op list per rank.
 *
 * The only description of a schedule in the project: generators write it, schedule_check() proves
 * it, schedule_time() and sim/ time it, exec/ runs it. A rank is a position 0..K-1 in a pipeline;
 * all R replicas run the same lists. A stage is 0..K*v-1 (v chunks a rank), stage s feeds stage
 * s+1. */
#ifndef ELAPSE_PARTITION_SCHEDULE_H
#define ELAPSE_PARTITION_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum op_kind {
    OP_F, /* forward of one micro-batch, stash kept */
    OP_B, /* full backward (I and W in one); its gradient leaves when it ends */
    OP_I, /* backward for the input; its gradient leaves when it ends */
    OP_W, /* backward for the weights */
    OP_R, /* forward again, to rebuild a dropped stash */
    OP_Z, /* forward of frozen items only, nothing kept. microbatch >= 0: a frozen stage's turn
             in the pipeline; OP_WHOLE_BATCH: the whole mini-batch on rank 0, before the pipeline */
    OP_C, /* cache read of one micro-batch, host to device */
    OP_P, /* cache write of one micro-batch (or of the whole batch), device to host */
    OP_SEND_ACT,  /* arg: index into the edges that leave the stage (workload.h); eager */
    OP_RECV_ACT,  /* arg: index into the edges that enter the stage */
    OP_SEND_GRAD, /* arg: as RECV_ACT: the gradient goes back over the entering edge */
    OP_RECV_GRAD, /* arg: as SEND_ACT */
    OP_ALLREDUCE, /* arg: bucket of the stage; over the replicas */
    OP_TIED,      /* gradients of a table that the first and the last stage share, added between
                     their ranks; on both, where these are two */
    OP_NORM,      /* global gradient norm over all ranks and replicas (clipping) */
    OP_UPDATE,    /* optimizer step of the stage */
    OP_KIND_COUNT
};

#define OP_WHOLE_BATCH (-1) /* microbatch of ops that stand for the whole mini-batch */

struct op {
    int32_t microbatch; /* 0..M-1, or OP_WHOLE_BATCH */
    uint16_t stage;
    uint8_t kind; /* enum op_kind */
    uint8_t arg;
};

enum schedule_kind {
    SCHEDULE_GPIPE,
    SCHEDULE_1F1B,
    SCHEDULE_INTERLEAVED,
    SCHEDULE_ZB_H1,
    SCHEDULE_ZB_H2,
    SCHEDULE_ZB_V,
    SCHEDULE_DUALPIPE_V,
    SCHEDULE_AUTO,   /* searched, see schedule_auto.h */
    SCHEDULE_CUSTOM, /* read from a CSV */
    SCHEDULE_KIND_COUNT
};

struct rank_ops {
    struct op *ops; /* points into schedule.block */
    int64_t num_ops;
};

/* A message between stages that lowering put into the lists. Edges that leave (enter) a stage are
 * counted in the order of this array; op.arg is that count. Edge s is the chain's boundary
 * s -> s+1 for s < num_stages - 1, the rest are skip edges. */
struct schedule_edge {
    uint16_t from, to;
    bool grad; /* the gradient comes back */
};

/* What lowering added to a stage, so that schedule_check() knows what to look for. */
struct lowered_stage {
    uint16_t num_buckets; /* all-reduces behind the last backward */
    bool update;
    bool cache_read, cache_write;          /* a C before, a P behind each forward */
    bool whole_batch, whole_batch_written; /* Z, then P, of OP_WHOLE_BATCH; stage 0 only */
    bool recompute, recompute_last; /* an R for each micro-batch but the last; for that too */
};

struct schedule {
    enum schedule_kind kind;
    int num_ranks, num_stages, num_microbatches;
    int num_frozen_stages;         /* stages [0, n) run Z and have no backward */
    bool drop_first_input;         /* the first active stage has no I */
    int *rank_of_stage;            /* owned, num_stages */
    struct rank_ops *ranks;        /* owned, num_ranks */
    struct op *block;              /* owned: the memory of all lists */
    struct lowered_stage *lowered; /* owned, num_stages; NULL: compute ops only */
    int num_edges;
    struct schedule_edge *edges; /* owned; NULL: compute ops only */
    bool norm;                   /* each rank runs one OP_NORM */
    bool tied;                   /* the ranks of the first and the last stage run one OP_TIED */
};

/* Whether the pair of op has its stash rebuilt by an R; not in a compute list. */
static inline bool schedule_recomputes(const struct schedule *schedule, struct op op)
{
    return schedule->lowered && schedule->lowered[op.stage].recompute &&
           (schedule->lowered[op.stage].recompute_last ||
            op.microbatch < schedule->num_microbatches - 1);
}

/* More compute ops than this are refused: 2 GiB of lists. */
#define SCHEDULE_MAX_OPS ((int64_t)1 << 28)
#define SCHEDULE_MAX_STAGES 65535 /* op.stage has 16 bits */

/* Whether the second of two chunks a rank goes back along the ranks (zb-v, dualpipe-v): there are
 * two then, no other number. */
bool schedule_v_shaped(enum schedule_kind kind);
/* Chunks a rank where nobody says: 2 for interleaved, zb-v and dualpipe-v, else 1. */
int schedule_default_chunks(enum schedule_kind kind);
/* Likewise where a job asks for so many (0: it does not), which interleaved alone follows. */
int schedule_chunks(enum schedule_kind kind, int asked);

/* The compute ops (F B I W) of a named schedule; communication comes with schedule_lower(). Runs
 * the backwards of a stage in ascending micro-batch order, always. chunks: 1 for gpipe, 1f1b,
 * zb-h1, zb-h2; v >= 1 for interleaved; 2 for zb-v and dualpipe-v. ERR_INPUT for K, M or v out of
 * range (checked before anything is allocated, total ops included), ERR_INFEASIBLE where the
 * schedule does not exist for these counts. Time and memory O(ops), 8 bytes an op. */
enum status schedule_generate(enum schedule_kind kind, int num_ranks, int num_microbatches,
                              int chunks, struct schedule *schedule, struct err *err);

/* An empty schedule with room for room[k] ops on rank k (num_ops 0, rank_of_stage zero), for those
 * who build lists themselves. *schedule must be zeroed or cleared. */
enum status schedule_alloc(enum schedule_kind kind, int num_ranks, int num_stages,
                           int num_microbatches, const int64_t *room, struct schedule *schedule,
                           struct err *err);

/* Rewrite a compute list for a frozen prefix, in place: stages [0, num_frozen_stages) run Z instead
 * of F and have no backward. drop_first_input: the first active stage holds one trainable item, so
 * that its I would compute nothing, and its I ops vanish (a B stays, and costs what a W costs). A
 * first active stage of several items keeps its I, which sends no gradient. ERR_INPUT when
 * num_frozen_stages is not 0..num_stages-1 or the list is lowered or frozen already. O(ops). */
enum status schedule_freeze(struct schedule *schedule, int num_frozen_stages, bool drop_first_input,
                            struct err *err);

/* A schedule's peak of live activations per rank: (stage, micro-batch) pairs from F's start to the
 * end of B, or of W where split. Z keeps nothing. peak_live is the caller's, num_ranks. O(ops). */
void schedule_peak_live(const struct schedule *schedule, int *peak_live);

/* Prove that every stage sees each micro-batch exactly once in each direction it needs, in an order
 * that respects all dependencies, that backwards ascend (the input half and the weight half each),
 * and that no rank waits for ever when each edge holds at most buffer_limit unreceived messages a
 * direction (0: unbounded). Works on compute-only and on lowered lists; in the former a message
 * leaves with F, B or I and is received by the op that needs it. ERR_INFEASIBLE with the ops named
 * ("rank 2: 5B3 before 5F3"); an op is written stage, kind, micro-batch. Time O(ops). */
enum status schedule_check(const struct schedule *schedule, int buffer_limit, struct err *err);

/* CSV in the form of PyTorch's pipelining schedules: a row a rank, "0F0,1F0,0I0,0W0"; empty cells
 * are bubbles and carry no meaning; "(0F5;7B0)OVERLAP_F_B" stands for its two ops. Writing gives
 * the compute ops (F B I W Z) as a fresh NUL-terminated string, the caller's; reading gives a
 * schedule of kind SCHEDULE_CUSTOM, whose stages lie where the file has them and whose frozen
 * stages are those that run Z. ERR_INPUT names what (the file), row and cell; whether the schedule
 * works is schedule_check()'s to say. O(length). */
enum status schedule_to_csv(const struct schedule *schedule, char **csv, struct err *err);
enum status schedule_from_csv(const char *csv, const char *what, struct schedule *schedule,
                              struct err *err);

enum status schedule_copy(const struct schedule *src, struct schedule *dst, struct err *err);
void schedule_clear(struct schedule *schedule);

const char *schedule_kind_name(enum schedule_kind kind); /* "zb-h1" */
enum status schedule_kind_parse(const char *name, enum schedule_kind *kind, struct err *err);
const char *op_kind_name(enum op_kind kind); /* "F", "SEND_ACT", ... */

#ifdef __cplusplus
}
#endif
#endif
