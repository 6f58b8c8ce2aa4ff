/* partition/cut.h - cut a chain of items into contiguous stages, exactly.
 *
 * Two questions, both answered with the true minimum of the largest stage, every stage non-empty:
 * cut_sizes() for plain numbers (parameters, times on equal devices), in microseconds; cut_solve()
 * for the real thing: devices that differ, communication, skip tensors, a frozen prefix, memory.
 * Ties: of all optimal cuts the one whose first_item is lexicographically smallest (the first stage
 * as short as possible, then the second, ...). Pure; threads may call it on distinct objects. */
#ifndef ELAPSE_PARTITION_CUT_H
#define ELAPSE_PARTITION_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cut {
    int num_stages, num_items;
    int *first_item; /* owned; num_stages + 1 entries, [0] = 0, the last is num_items */
    int64_t max;     /* the largest stage: the sum of its sizes, or its ns a step */
};

void cut_clear(struct cut *cut);

/* What both solvers ask first. ERR_INPUT: a count below 1, or more than 2^20 items; ERR_INFEASIBLE:
 * more stages than items. */
enum status cut_check_counts(int num_items, int num_stages, struct err *err);

/* Cut sizes[0..num_items) into num_stages runs with the smallest possible largest sum. *cut must be
 * zeroed or cleared and is untouched on failure. ERR_INPUT: num_stages or num_items < 1, a negative
 * size, a sum beyond int64; ERR_INFEASIBLE: more stages than items.
 * Time O(num_items + num_stages * log(num_items) * probes), some 10 us for 1,000 items in 64. */
enum status cut_sizes(const int64_t *sizes, int num_items, int num_stages, struct cut *cut,
                      struct err *err);

/* Times of one item, one micro-batch, on one class of device. */
struct cut_time {
    int64_t fwd_ns, bwd_input_ns, bwd_weight_ns;
    int64_t update_ns;     /* once a step */
    int64_t bwd_rest_ns;   /* in place of bwd_input_ns where nobody wants the input's gradient */
    int64_t fwd_nograd_ns; /* in place of fwd_ns where no stash is kept */
};

/* Sizes of one item, one micro-batch. */
struct cut_item {
    int64_t out_bytes;    /* crosses the boundary behind the item; its gradient comes back */
    int64_t weight_bytes; /* held frozen or not */
    int64_t train_bytes;  /* gradient and optimizer state; 0 is charged while frozen */
    int64_t stash_bytes;  /* per live micro-batch; 0 is charged while frozen */
    int64_t tied_bytes;   /* copy (weights, gradient, optimizer) needed where item 0 is elsewhere */
};

struct cut_skip {
    int from, to; /* items, from < to */
    int64_t bytes;
};

/* Both directions between a stage and the next. */
struct cut_link {
    int64_t latency_ns;
    double bytes_per_s;
};

/* What a stage k that holds items [a, b) costs in a step of M micro-batches:
 *   compute  M * (forward + backward-input + backward-weight) + update over its items; items below
 *            num_frozen run forward only, without stash, and are not updated; when num_frozen > 0
 *            the first active item has bwd_rest_ns for its backward-input. With recompute, active
 *            items run forward twice, first without stash.
 *   sends    M * (activations to stage k+1 over links[k] + gradients to stage k-1 over links[k-1]),
 *            each latency + bytes / bandwidth, rounded up. Skip tensors that leave the stage ride
 *            on links[k], gradients of those that enter it on links[k-1]. No gradient goes to where
 *            everything before is frozen.
 *   cost     compute + sends, or with overlap the larger of the two.
 *   memory   weights + (active) train + live[k] * stash + tied copies when a > 0; with recompute
 *            live[k] * (its input) + stash once. */
struct cut_problem {
    int num_items, num_stages;
    int num_frozen; /* leading items */
    int64_t num_microbatches;
    int num_classes;              /* of devices that differ */
    const int *class_of_stage;    /* borrowed, num_stages; NULL: all class 0 */
    const struct cut_time *times; /* borrowed, [num_classes][num_items] */
    const struct cut_item *items; /* borrowed, num_items; NULL: no bytes, no memory */
    const struct cut_skip *skips; /* borrowed, num_skips, any order */
    int num_skips;
    const struct cut_link *links; /* borrowed, num_stages - 1; NULL: communication is free */
    bool overlap;                 /* sends run beside compute */
    bool recompute;
    const int64_t *live;            /* borrowed, num_stages: micro-batches in flight; NULL: 1 */
    const int64_t *mem_limit_bytes; /* borrowed, num_stages: of a stage; NULL: no limit */
};

/* The cut whose slowest stage is fastest among those that fit the memory; cut->max is its ns a
 * step. *cut as for cut_sizes(). ERR_INPUT: counts out of range, negative or overflowing figures,
 * an edge that does not go forward, a bandwidth that is not positive; ERR_INFEASIBLE: more stages
 * than items, or no cut fits (the item or stage is named); ERR_NOMEM. Time O(num_stages * num_items
 * * items a stage) on ordinary chains, never above num_stages * num_items^2 a round and a few
 * rounds; memory O(num_stages * num_items), at most 1 GiB. */
enum status cut_solve(const struct cut_problem *problem, struct cut *cut, struct err *err);

/* Cost and memory of any one cut by the same definition; first_item has num_stages + 1 entries,
 * stage_ns and memory_bytes (either may be NULL) num_stages. The problem must be one that
 * cut_solve() accepts. */
void cut_evaluate(const struct cut_problem *problem, const int *first_item, int64_t *stage_ns,
                  int64_t *memory_bytes);

#ifdef __cplusplus
}
#endif
#endif
