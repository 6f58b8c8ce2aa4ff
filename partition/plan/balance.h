/* partition/plan/balance.h - PipeTransformer's greedy balancers and its compression rule.
 *
 * They are for comparison, exactly as published (AutoPipe; He et al., ICML 2021) and as in the
 * released code, with their weaknesses. partition/plan/cut.h has the exact cut. Sizes are millions of
 * parameters. Pure. */
#pragma once

#include <stdint.h>

#include "partition/model/model.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum balancer_kind {
    BALANCER_OPTIMAL,  /* the planner's exact cut (cut.h); the functions below do not take it */
    BALANCER_RELEASED, /* frozen items are removed from the list first */
    BALANCER_PAPER     /* frozen items are in stage 0, with their size times lambda = 1/6 */
};
extern const char *const balancer_kind_names[]; /* by value, NULL-terminated */

/* Cut sizes[0..num_items) (millions of parameters) into num_stages; the first num_frozen items are
 * frozen. count[k] gets the number of items of stage k, load[k] the sum of their sizes. With
 * BALANCER_RELEASED both cover only active items. With BALANCER_PAPER both cover all items: frozen
 * ones are in stage 0, and load[0] has their full size. A stage may be empty. count and load are
 * the caller's, with num_stages entries each. ERR_INPUT: num_stages < 1, a size that is negative or
 * not finite, num_frozen outside 0..num_items. ERR_INFEASIBLE: more stages than items to cut.
 * O(num_items * num_stages). */
enum status balance_greedy(enum balancer_kind balancer, const double *sizes, int num_items,
                           int num_frozen, int num_stages, int *count, double *load,
                           struct err *err);

/* The largest stage, as balance_compress() compares it with the budget. With BALANCER_PAPER the
 * frozen items of stage 0 count with their size times lambda. */
double balance_max(enum balancer_kind balancer, const double *sizes, int num_frozen, int num_stages,
                   const double *load);

/* The paper's compression: halve K while K >= 2 and the greedy cut into K/2 stages is within
 * budget, the largest stage of the unfrozen model at the initial K. *num_stages is K before and
 * after. ERR_INFEASIBLE: no item is left to cut. Other errors are those of balance_greedy(). */
enum status balance_compress(enum balancer_kind balancer, const double *sizes, int num_items,
                             int num_frozen, double budget, int *num_stages, struct err *err);

/* Write the parameters of each item, in millions, to sizes (the caller's, with num_items entries).
 */
void balance_sizes(const struct model *model, double *sizes);

#ifdef __cplusplus
}
#endif
