/* exec/change/slow_ranks.h - finds ranks that compute slower than the plan assumes.
 *
 * Every few steps each rank divides the time of its passes by what the plan's op list has for them.
 * A rank whose quotient stays far above that of its peers is slow: the log names it, and with
 * train.on_slow replan the next turn's plan weighs its speed. Both need ranks with the same costs
 * in the plan, so a quotient counts beside the peers' only. */
#pragma once

#include "exec/trainer/trainer_state.h"

/* After a step of a rank that holds stages. Collective over the active group every few steps. */
enum status slow_ranks_look(struct trainer *t, struct err *err);

/* Rank 0: whether the plan in place was made for other speeds, so that the next turn should make
 * another one. */
bool slow_ranks_replan(const struct trainer *t);
/* The plan that was just made has weighed the present speeds. */
void slow_ranks_weighed(struct trainer *t);
void slow_ranks_clear(struct slow_ranks *slow);
