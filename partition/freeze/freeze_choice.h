/* partition/freeze/freeze_choice.h - which items a weight-gradient pass leaves out under timed
 * freezing.
 *
 * A share says how much of a pass's weight time is left out; a choice says which whole items (the
 * parameters of a sublayer) that are. The choice depends on nothing that a rank measures for
 * itself, so all replicas leave out the same items and sums over replicas stay defined.
 *
 * choice-1  rotate: item i of (step, micro-batch m) has the place
 *               frac(hash(seed) + i / golden ratio + step * sqrt(2) + m * sqrt(3))
 *           and is left out where its place is below the share. All three numbers have bounded
 *           partial quotients, so along items, steps and micro-batches alike the places fill [0, 1)
 *           evenly: among n in a row, n * share are left out, but for O(log n). Items are thus left
 *           out equally often, and a stage leaves out almost the same number in each pass.
 * choice-2  Neither the stage nor the number of micro-batches enters the place. So a plan with other
 *           stages leaves out the same items at the same share.
 * choice-3  random, norm: round(n * share) of the stage's n items. random draws them without
 *           replacement; in the first stage the front items have the larger weights (TimelyFreeze's
 *           released code: weights fall linearly from 1 to 0.1, the other stages are uniform). norm
 *           takes them by a given order. Both depend on the cut.
 * choice-4  That order is by the relative change of the layer's gradient norm between the last two
 *           turns that have one (a turn in which all of a layer was left out has none), the smallest
 *           first. Items of no layer, and of layers with one norm at most, come last. Equal changes:
 *           by item.
 *
 * Pure; no I/O. O(n) for rotate, O(n^2) for random, norm and the order. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

enum freeze_choice { CHOICE_ROTATE, CHOICE_RANDOM, CHOICE_NORM };
extern const char *const freeze_choice_names[]; /* by value, NULL-terminated */

/* The weight-gradient pass of a micro-batch over a stage, whose items are [first_item, end_item) of
 * the model. */
struct freeze_pass {
    uint64_t seed;
    int64_t step;   /* of the run, from 0 */
    int microbatch; /* of its replica, from 0 */
    int first_item, end_item;
    double share;     /* of the pass that is left out, in [0, 1] */
    const int *order; /* borrowed; norm: each item's place in the order in which the model's items
                         are left out, by item, no two equal; NULL: as rotate */
};

/* left_out[i]: whether the pass leaves out item first_item + i. Share 0 leaves out nothing, share 1
 * everything. */
void freeze_choose(enum freeze_choice choice, const struct freeze_pass *pass, bool *left_out);

/* order[i], num_items of them: item i's place by choice-4. norms: [num_turns][num_layers], 0: none. */
void freeze_order(const struct model *model, const double *norms, int64_t num_turns, int *order);

#ifdef __cplusplus
}
#endif
