/* partition/balance.h - PipeTransformer's greedy balancers and its compression rule.
 *
 * Kept exactly as published and as released, oddities included, for comparison (AutoPipe; He et
 * al., ICML 2021, and the released code); partition/cut.h has the exact answer. Sizes are millions
 * of parameters. Pure. */
#ifndef ELAPSE_PARTITION_BALANCE_H
#define ELAPSE_PARTITION_BALANCE_H

#include <stdint.h>

#include "partition/model.h"
#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum balancer_kind {
    BALANCER_OPTIMAL,  /* the planner's exact cut (cut.h); the functions here know the greedy two */
    BALANCER_RELEASED, /* frozen items are removed from the list first */
    BALANCER_PAPER     /* frozen items are pinned to stage 0, discounted by lambda = 1/6 */
};

/* Cut sizes[0..num_items) (millions of parameters) into num_stages; the first num_frozen items are
 * frozen. count[k] gets the items of stage k and load[k] their size: of active items for
 * BALANCER_RELEASED (frozen ones are not in the list), of all for BALANCER_PAPER (frozen ones are
 * in stage 0, load[0] includes them undiscounted). A stage may come out empty. count and load are
 * the caller's, num_stages each. ERR_INPUT: num_stages < 1, a size that is negative or not finite,
 * num_frozen outside 0..num_items. ERR_INFEASIBLE: more stages than items to cut.
 * O(num_items * num_stages). */
enum status balance_greedy(enum balancer_kind balancer, const double *sizes, int num_items,
                           int num_frozen, int num_stages, int *count, double *load,
                           struct err *err);

/* The largest stage as the compression test sees it: for BALANCER_PAPER load[0] counts its frozen
 * items by lambda only. */
double balance_max(enum balancer_kind balancer, const double *sizes, int num_frozen, int num_stages,
                   const double *load);

/* The paper's compression: while K >= 2 and the greedy cut into K/2 stages stays within budget
 * (largest stage of the unfrozen model at the initial K), halve. *num_stages is K before and after.
 * ERR_INFEASIBLE: no item is left to cut; else as balance_greedy(). */
enum status balance_compress(enum balancer_kind balancer, const double *sizes, int num_items,
                             int num_frozen, double budget, int *num_stages, struct err *err);

/* The items' parameters in millions, into sizes (the caller's, num_items). */
void balance_sizes(const struct model *model, double *sizes);

#ifdef __cplusplus
}
#endif
#endif
