/* partition/plan/cut.h - cut a chain of items into contiguous stages, exactly.
 *
 * Both solvers minimize the largest stage exactly, and no stage is empty. cut_sizes() cuts plain
 * numbers (parameters, or times on equal devices) within microseconds. cut_solve() also handles
 * devices that differ, communication, skip tensors, a frozen prefix and memory. Of several optimal
 * cuts both return the one whose first_item is lexicographically smallest: the first stage is as
 * short as possible, then the second, and so on. Pure; threads may call it on distinct objects. */
#ifndef ELAPSE_PARTITION_CUT_H
#define ELAPSE_PARTITION_CUT_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cut {
    int num_stages, num_items;
    int *first_item; /* owned; num_stages + 1 entries, [0] = 0, the last is num_items */
    int64_t max;     /* the largest stage: sum of its sizes (cut_sizes), ns per step (cut_solve) */
};

void cut_clear(struct cut *cut);

/* Check the counts; both solvers call this first. ERR_INPUT: a count below 1, or more than 2^20
 * items; ERR_INFEASIBLE: more stages than items. */
enum status cut_check_counts(int num_items, int num_stages, struct err *err);

/* Cut sizes[0..num_items) into num_stages runs so that the largest sum is minimal. *cut must be
 * zeroed or cleared and is untouched on failure. ERR_INPUT: num_stages or num_items < 1, a negative
 * size, a sum beyond int64; ERR_INFEASIBLE: more stages than items. Time O(num_items + num_stages *
 * log(num_items) * probes), about 10 us for 1,000 items and 64 stages. */
enum status cut_sizes(const int64_t *sizes, int num_items, int num_stages, struct cut *cut,
                      struct err *err);

/* Times of one item and one micro-batch on one class of device. */
struct cut_time {
    int64_t fwd_ns, bwd_input_ns, bwd_weight_ns;
    int64_t update_ns;     /* once a step */
    int64_t bwd_rest_ns;   /* replaces bwd_input_ns if no item below needs the input's gradient */
    int64_t fwd_nograd_ns; /* replaces fwd_ns if no stash is kept */
};

/* Sizes of one item and one micro-batch. */
struct cut_item {
    int64_t out_bytes;    /* crosses the boundary behind the item; its gradient comes back */
    int64_t weight_bytes; /* needed whether the item is frozen or not */
    int64_t train_bytes;  /* gradient and optimizer state; not needed while frozen */
    int64_t stash_bytes;  /* per live micro-batch; not needed while frozen */
    int64_t tied_bytes;   /* copy of a table of item 0 (weights, gradient, optimizer state), needed
                             if another stage holds item 0 */
};

struct cut_skip {
    int from, to; /* items, from < to */
    int64_t bytes;
};

/* The link between a stage and the next; both directions are equal. */
struct cut_link {
    int64_t latency_ns;
    double bytes_per_s;
};

/* The cost of a stage k that holds items [a, b), in a step of M micro-batches:
 *   compute  M * (forward + backward-input + backward-weight) + update, summed over the items.
 *            Items below num_frozen run forward only, without stash, and have no update. If
 *            num_frozen > 0, the first active item takes bwd_rest_ns for its backward-input. With
 *            recompute, active items run forward twice, the first time without stash.
 *   sends    M * (activations to stage k+1 over links[k] + gradients to stage k-1 over links[k-1]),
 *            each latency + bytes / bandwidth, rounded up. Skip tensors that leave the stage are
 *            added to the activations, gradients of skip tensors that enter it to the gradients. If
 *            all items before the stage are frozen, it sends no gradient.
 *   cost     compute + sends; with overlap the larger of the two.
 *   memory   weights + train of active items + live[k] * stash + tied copies if a > 0. With
 *            recompute live[k] * (input of the stage) + one stash instead of live[k] * stash. */
struct cut_problem {
    int num_items, num_stages;
    int num_frozen; /* number of leading items that are frozen */
    int64_t num_microbatches;
    int num_classes;              /* classes of devices; devices of a class are equal */
    const int *class_of_stage;    /* borrowed, num_stages; NULL: all class 0 */
    const struct cut_time *times; /* borrowed, [num_classes][num_items] */
    const struct cut_item *items; /* borrowed, num_items; NULL: no bytes, no memory */
    const struct cut_skip *skips; /* borrowed, num_skips, any order */
    int num_skips;
    const struct cut_link *links; /* borrowed, num_stages - 1; NULL: communication is free */
    bool overlap;                 /* sends overlap with compute */
    bool recompute;
    const int64_t *live;            /* borrowed, num_stages: micro-batches in flight; NULL: 1 */
    const int64_t *mem_limit_bytes; /* borrowed, num_stages: limit of each stage; NULL: no limit */
};

/* Find the cut whose slowest stage is fastest among those that fit the memory; cut->max is that
 * stage's ns per step. *cut must be zeroed or cleared and is untouched on failure. ERR_INPUT:
 * counts out of range, negative or overflowing figures, an edge that does not go forward, a
 * bandwidth that is not positive; ERR_INFEASIBLE: more stages than items, or no cut fits (the
 * error names the item or stage); ERR_NOMEM. Time of a round: O(num_stages * num_items * items
 * per stage) on ordinary chains, at most O(num_stages * num_items^2); a few rounds are enough.
 * Memory O(num_stages * num_items), at most 1 GiB. */
enum status cut_solve(const struct cut_problem *problem, struct cut *cut, struct err *err);

/* Cost and memory of each stage of a given cut, as defined at struct cut_problem. first_item has
 * num_stages + 1 entries; stage_ns and memory_bytes (either may be NULL) get num_stages. The
 * problem must be one that cut_solve() accepts. */
void cut_evaluate(const struct cut_problem *problem, const int *first_item, int64_t *stage_ns,
                  int64_t *memory_bytes);

#ifdef __cplusplus
}
#endif
#endif
