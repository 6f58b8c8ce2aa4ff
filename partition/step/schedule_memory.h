/* partition/step/schedule_memory.h - the memory that each rank holds while it runs its list, by the
 * rules memory-1 to memory-3 of partition/step/step_rules.h. For the planner and the simulator. */
#pragma once

#include "partition/step/workload.h"

/* Peak bytes of each rank: weights, gradients, optimizer state, stash, inputs under recompute,
 * receive buffers, context. memory_bytes is the caller's, num_ranks entries. ERR_INPUT on overflow.
 * O(ops). */
enum status schedule_memory(const struct schedule *full, const struct workload *workload,
                            int64_t *memory_bytes, struct err *err);
/* Like schedule_memory(), for the ranks with wanted[k] only. wanted has num_ranks entries. The
 * entries of the other ranks have no meaning. */
enum status schedule_memory_of(const struct schedule *full, const struct workload *workload,
                               const bool *wanted, int64_t *memory_bytes, struct err *err);

/* The contents of a rank's memory at its peak. The parts add up to the peak. */
struct memory_parts {
    int64_t context; /* driver, and communicators of the framework */
    int64_t weights, gradients, optimizer;
    int64_t stash;     /* of micro-batches in flight, with inputs kept under recompute */
    int64_t work;      /* of the op that runs: workspace, logits, layers that run again, gathers */
    int64_t buffers;   /* of messages */
    int64_t allocator; /* what the framework's allocator and a calibration's factor add; < 0 where
                          a calibration takes away */
};

struct rank_memory {
    int64_t peak_bytes;
    struct memory_parts parts;
    int peak_live; /* most (stage, micro-batch) pairs that hold stash at one time */
    /* The first compute op at which the rank exceeds its limit, and the bytes held when it starts.
     */
    int64_t full_op;                       /* position in the rank's list; -1: none */
    int64_t full_bytes, full_buffer_bytes; /* all bytes; the part of them in receive buffers */
    int full_live;
};

/* Like schedule_memory(), and also find the op at which each rank exceeds its limit. limit_bytes is
 * borrowed for the call, memory is the caller's. Both have num_ranks entries. */
enum status schedule_memory_limited(const struct schedule *full, const struct workload *workload,
                                    const int64_t *limit_bytes, struct rank_memory *memory,
                                    struct err *err);

/* The memory of a rank around each op of its list: while op i runs, and when it has ended. Both
 * arrays are the caller's, full->ranks[rank].num_ops entries. The largest of during_bytes is the peak
 * of schedule_memory(). ERR_INPUT on overflow, ERR_NOMEM. */
enum status schedule_memory_curve(const struct schedule *full, const struct workload *workload,
                                  int rank, int64_t *during_bytes, int64_t *after_bytes,
                                  struct err *err);
