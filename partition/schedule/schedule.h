/* partition/schedule/schedule.h - a training step as one ordered op list per rank.
 *
 * The project has no other description of a schedule. Generators write it, schedule_check() proves
 * it correct, schedule_time() and sim/ compute its time, exec/ runs it. A rank is a position 0..K-1
 * in a pipeline; all R replicas run equal lists. Stages are numbered 0..K*v-1 with v chunks per
 * rank, and stage s feeds stage s+1. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum op_kind {
    OP_F, /* forward of one micro-batch, stash kept */
    OP_B, /* full backward (I and W in one); the input's gradient is sent when it ends */
    OP_I, /* backward for the input; the input's gradient is sent when it ends */
    OP_W, /* backward for the weights */
    OP_R, /* recompute: forward again, to rebuild a dropped stash */
    OP_Z, /* forward of frozen items only, without stash. microbatch >= 0: a frozen stage inside the
             pipeline; OP_WHOLE_BATCH: the whole mini-batch on rank 0, before the pipeline */
    OP_C, /* cache read of one micro-batch, host to device */
    OP_P, /* cache write of one micro-batch (or of the whole batch), device to host */
    OP_SEND_ACT,  /* arg: index among the edges that leave the stage; does not wait for the peer */
    OP_RECV_ACT,  /* arg: index among the edges that enter the stage */
    OP_SEND_GRAD, /* arg: index among the entering edges, as for RECV_ACT */
    OP_RECV_GRAD, /* arg: index among the leaving edges, as for SEND_ACT */
    OP_ALLREDUCE, /* arg: bucket of the stage; sums over the replicas */
    OP_TIED,      /* adds the gradients of a table that the first and the last stage share; on both
                     their ranks, if these differ */
    OP_NORM,      /* global gradient norm over all ranks and replicas (clipping) */
    OP_UPDATE,    /* optimizer step of the stage */
    OP_KIND_COUNT
};

#define OP_WHOLE_BATCH (-1) /* op.microbatch of an op on the whole mini-batch */

/* op.arg of an F and of the B after it that run as one op: both messages are received before it,
 * both are sent when it ends, and communication inside them is hidden (time-1b). */
#define OP_OVERLAPPED 1
/* Added to op.arg of the B, or of the I and the W, of a micro-batch for which the stage leaves out
 * weight gradients: the share that the plan has for them (partition/freeze/shares.h). */
#define OP_PARTIAL 2

struct op {
    int32_t microbatch; /* 0..M-1, or OP_WHOLE_BATCH */
    uint16_t stage;
    uint8_t kind; /* enum op_kind */
    uint8_t arg;
};

/* Whether op is the F, or with kind OP_B the B, of a pair that runs as one op. */
static inline bool op_overlapped(struct op op, enum op_kind kind)
{
    return op.kind == kind && (op.arg & OP_OVERLAPPED);
}

/* Value and name of each schedule that a user may ask for. A new one goes before SEARCH, because
 * loops over the named kinds end there; all else about it is its row of traits in
 * schedule_named.c. */
#define SCHEDULE_KINDS(ROW)                                                                        \
    ROW(SCHEDULE_GPIPE, "gpipe")                                                                   \
    ROW(SCHEDULE_1F1B, "1f1b")                                                                     \
    ROW(SCHEDULE_INTERLEAVED, "interleaved")                                                       \
    ROW(SCHEDULE_ZB_H1, "zb-h1")                                                                   \
    ROW(SCHEDULE_ZB_H2, "zb-h2")                                                                   \
    ROW(SCHEDULE_ZB_V, "zb-v")                                                                     \
    ROW(SCHEDULE_DUALPIPE_V, "dualpipe-v")                                                         \
    ROW(SCHEDULE_EAGER_1F1B, "eager-1f1b")                                                         \
    ROW(SCHEDULE_BREADTH_FIRST, "breadth-first")                                                   \
    ROW(SCHEDULE_V_HALF, "v-half")                                                                 \
    ROW(SCHEDULE_V_MIN, "v-min")                                                                   \
    ROW(SCHEDULE_LOOPED_BFS, "looped-bfs")                                                         \
    ROW(SCHEDULE_SEARCH, "search") /* a list that schedule_auto.h found */

#define SCHEDULE_VALUE(value, name) value,
enum schedule_kind {
    SCHEDULE_KINDS(SCHEDULE_VALUE) SCHEDULE_CUSTOM, /* read from a CSV */
    SCHEDULE_KIND_COUNT
};

/* The same names in one text, each after a blank, for help texts. */
#define SCHEDULE_WORD(value, name) " " name
#define SCHEDULE_NAMES (&(SCHEDULE_KINDS(SCHEDULE_WORD))[1])

/* All names by value, "custom" the last, NULL-terminated. */
extern const char *const schedule_names[];

struct rank_ops {
    struct op *ops; /* points into schedule.block */
    int64_t num_ops;
};

/* A message between stages that lowering put into the lists. The first num_stages - 1 edges
 * are the boundaries s -> s+1, ascending; the others are skip edges. op.arg counts
 * the edges that leave (or enter) a stage in the order of this array. */
struct schedule_edge {
    uint16_t from, to;
    bool grad; /* a gradient is sent back over this edge */
};

/* The ops that lowering added to a stage; schedule_check() demands exactly these. */
struct lowered_stage {
    uint16_t num_buckets; /* all-reduces after the last backward */
    bool update;
    bool cache_read, cache_write;          /* a C before each forward, a P after it */
    bool whole_batch, whole_batch_written; /* a Z of OP_WHOLE_BATCH, a P after it; stage 0 only */
    bool recompute;                        /* an R for each micro-batch but the last */
    bool recompute_last;                   /* an R for the last micro-batch too */
};

/* Micro-batches of a mini-batch, cut like torch.chunk: size = ceil(batch / wanted), count =
 * ceil(batch / size). The last micro-batch holds the remaining samples. */
struct microbatches {
    int count;
    int64_t size, last_size; /* samples */
};
struct microbatches microbatches_of(int64_t batch, int wanted);

struct schedule {
    enum schedule_kind kind;
    int num_ranks, num_stages;
    int num_microbatches;
    int num_frozen_stages;         /* stages [0, n) run Z and have no backward */
    bool drop_first_input;         /* the first active stage has no I, see schedule_freeze() */
    int *rank_of_stage;            /* owned, num_stages */
    struct rank_ops *ranks;        /* owned, num_ranks */
    struct op *block;              /* owned: the memory of all lists */
    struct lowered_stage *lowered; /* owned, num_stages; NULL: compute ops only */
    int num_edges;
    struct schedule_edge *edges; /* owned; NULL: compute ops only */
    bool norm;                   /* each rank runs one OP_NORM */
    bool tied;                   /* the ranks of the first and the last stage run one OP_TIED */
};

/* Whether an R rebuilds the stash of op's stage and micro-batch. Always false in a compute list. */
static inline bool schedule_recomputes(const struct schedule *schedule, struct op op)
{
    return schedule->lowered && schedule->lowered[op.stage].recompute &&
           (schedule->lowered[op.stage].recompute_last ||
            op.microbatch < schedule->num_microbatches - 1);
}

/* More compute ops than this are refused: 2 GiB of lists. */
#define SCHEDULE_MAX_OPS ((int64_t)1 << 28)
#define SCHEDULE_MAX_STAGES 65535 /* op.stage has 16 bits */

/* How the stages of a pipeline lie on its ranks. */
enum schedule_shape {
    SHAPE_LINE,   /* one stage a rank */
    SHAPE_CHUNKS, /* as many chunks as the job asks for, stage s on rank s mod K */
    SHAPE_V,      /* two chunks; the second runs against the order of ranks */
};
enum schedule_shape schedule_shape(enum schedule_kind kind);
static inline bool schedule_v_shaped(enum schedule_kind kind)
{
    return schedule_shape(kind) == SHAPE_V;
}
static inline bool schedule_any_chunks(enum schedule_kind kind)
{
    return schedule_shape(kind) == SHAPE_CHUNKS;
}

/* The rank that holds a stage: stage mod K, or by the V where schedule_v_shaped(). */
int schedule_rank_of_stage(enum schedule_kind kind, int num_ranks, int stage);
/* Whether a named schedule splits the backward into I and W. */
bool schedule_splits(enum schedule_kind kind);
/* Whether lowering may make one op of an F and the B after it (OP_OVERLAPPED). */
bool schedule_overlaps(enum schedule_kind kind);
/* Whether an op list splits a backward into I and W. O(ops). */
bool schedule_has_halves(const struct schedule *schedule);
/* Default number of chunks per rank: 2 for V-shaped schedules and those with any number, else 1. */
int schedule_default_chunks(enum schedule_kind kind);
/* Number of chunks per rank if a job asks for `asked` (0: it does not). Schedules that do not allow
 * any number have their default. */
int schedule_chunks(enum schedule_kind kind, int asked);
/* The least number of micro-batches whose stash a stage of a named schedule holds just before its
 * rank's first backward (for zb-h1 and zb-h2: its first W). All stages of a rank hold theirs at
 * that moment. Lists that were found or read count as 1F1B's. */
int64_t schedule_live(enum schedule_kind kind, int num_ranks, int num_microbatches, int chunks,
                      int stage);

/* Write the compute ops (F B I W) of a named schedule; schedule_lower() adds communication. The
 * backwards of a stage are always in ascending micro-batch order. chunks: v >= 1 where
 * schedule_any_chunks(), otherwise the default. ERR_INPUT: K, M, v or the number of ops out
 * of range (checked before anything is allocated); ERR_INFEASIBLE: the schedule does not exist for
 * these counts. Time and memory O(ops), 8 bytes per op. */
enum status schedule_generate(enum schedule_kind kind, int num_ranks, int num_microbatches,
                              int chunks, struct schedule *schedule, struct err *err);

/* Make an empty schedule with space for room[k] ops on rank k (num_ops 0, rank_of_stage zero), for
 * callers that write the lists themselves. *schedule must be zeroed or cleared. */
enum status schedule_alloc(enum schedule_kind kind, int num_ranks, int num_stages,
                           int num_microbatches, const int64_t *room, struct schedule *schedule,
                           struct err *err);

/* Rewrite a compute list for a frozen prefix, in place: stages [0, num_frozen_stages) run Z instead
 * of F and have no backward. drop_first_input: the first active stage trains one item, so its I has
 * nothing to compute and is removed (a B stays and costs as much as a W). Otherwise the stage keeps
 * its I, which sends no gradient. ERR_INPUT: num_frozen_stages is not 0..num_stages-1, or the list
 * is already lowered or frozen. O(ops). */
enum status schedule_freeze(struct schedule *schedule, int num_frozen_stages, bool drop_first_input,
                            struct err *err);

/* Peak number of live stashes per rank. A stash, one per (stage, micro-batch), lives from the start
 * of F to the end of B, or of W if the backward is split. Z keeps none. peak_live is the caller's,
 * with num_ranks entries. O(ops). */
void schedule_peak_live(const struct schedule *schedule, int *peak_live);

/* Prove that a schedule is correct:
 *   - every stage runs each micro-batch exactly once in each direction that it needs;
 *   - the order respects all dependencies;
 *   - the backwards of a stage ascend, the input half and the weight half each;
 *   - no rank waits for ever if each edge holds at most buffer_limit unreceived messages per
 *     direction (0: unbounded).
 * Works on compute lists and on lowered lists. In a compute list F, B and I send, and the op that
 * needs the message receives it. ERR_INFEASIBLE names the ops ("rank 2: 5B3 before 5F3"; an op is
 * written stage, kind, micro-batch). Time O(ops). */
enum status schedule_check(const struct schedule *schedule, int buffer_limit, struct err *err);

/* CSV in the form of PyTorch's pipelining schedules: one row per rank, "0F0,1F0,0I0,0W0". Empty
 * cells are bubbles. They are skipped, and so are the messages and FSDP ops of PyTorch's _dump_csv();
 * "(0F5;7B0)OVERLAP_F_B" is a pair of OP_OVERLAPPED. schedule_to_csv() writes the compute ops (F B
 * I W Z) as a fresh NUL-terminated string that the caller frees. schedule_from_csv() makes a
 * schedule of kind SCHEDULE_CUSTOM: a stage belongs to the rank whose row has it, and a stage that
 * runs Z is frozen. ERR_INPUT names the file (`what`), row and cell. Lists of PyTorch's schedule
 * classes are read as PyTorch runs them: the last rank of its 1F1B, written 1..M, and LoopedBFS,
 * whose backwards descend (its micro-batches are then counted from the last). Reading does not
 * check the schedule; call schedule_check(). O(length). */
enum status schedule_to_csv(const struct schedule *schedule, char **csv, struct err *err);
enum status schedule_from_csv(const char *csv, const char *what, struct schedule *schedule,
                              struct err *err);

enum status schedule_copy(const struct schedule *src, struct schedule *dst, struct err *err);
void schedule_clear(struct schedule *schedule);

const char *schedule_kind_name(enum schedule_kind kind); /* "zb-h1" */
/* One line about a schedule, for help texts. */
const char *schedule_kind_about(enum schedule_kind kind);
enum status schedule_kind_parse(const char *name, enum schedule_kind *kind, struct err *err);
extern const char *const op_kind_names[]; /* "F", "SEND_ACT", ..., NULL */
const char *op_kind_name(enum op_kind kind);

#ifdef __cplusplus
}
#endif
