/* partition/schedule/schedule_blocks.h - the schedules that repeat one building block: v-half and v-min.
 *
 * schedule_generate() calls this; nobody else needs it. */
#pragma once

#include "partition/schedule/schedule.h"

/* Write all lists of an allocated schedule of kind SCHEDULE_V_HALF or SCHEDULE_V_MIN, which has
 * space for 6 M ops on each rank. ERR_NOMEM. O(ops) time, 16 bytes per (rank, micro-batch). */
enum status schedule_write_blocks(struct schedule *schedule, struct err *err);

/* The number of micro-batches in flight on a stage just before its rank's first backward, if M does
 * not limit it. */
int schedule_block_live(enum schedule_kind kind, int num_ranks, int stage);
