/* exec/change/thaw.h - moves optimizer state between the stages and what rank 0 keeps of frozen items
 * (exec/checkpoint/kept_state.h), at a change of plan. */
#pragma once

#include "exec/trainer/deployment.h"
#include "exec/checkpoint/kept_state.h"

/* Items [first, end) train in this deployment and are about to freeze: rank 0 gets their state from the
 * first replica. Call it before weights leave the deployment. Collective over the message group. kept is
 * rank 0's; other ranks keep nothing. */
enum status thaw_keep(const struct deployment_base *base, const struct deployment *deployment,
                      int first, int end, struct kept_state *kept, struct err *err);

/* Items [first, end) were frozen and train in this deployment: all their holders get the state back, and
 * rank 0 forgets it. *bytes grows by what went to other ranks. Collective over the message group.
 * ERR_INPUT on all ranks if rank 0 has not kept them. */
enum status thaw_return(const struct deployment_base *base, const struct deployment *deployment,
                        int first, int end, struct kept_state *kept, int64_t *bytes,
                        struct err *err);
