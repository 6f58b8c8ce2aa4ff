/* partition/step/lower.h - the one way from a plan to the op lists and costs of a step, by which
 * planner, simulator and executor go. */
#pragma once

#include "partition/step/workload.h"

/* Add to a compute schedule everything else that a step does: recompute, cache reads and writes,
 * the frozen forward of the whole batch, messages, all-reduces, tied gradients, norm, update. Only
 * this function knows where they go:
 *   - RECV_ACT before F or Z of a stage and SEND_ACT after it, one for each edge;
 *   - RECV_GRAD before B or I (W where I is dropped) and SEND_GRAD after it;
 *   - R directly before the RECV_GRADs of its stage and micro-batch;
 *   - C before F on stage 0, and P after the forward of cache_write_stage;
 *   - ALLREDUCE after the stage's last B or W;
 *   - TIED, NORM and UPDATE at the end of the list.
 * Stages of one rank exchange no messages. */
enum status schedule_lower(const struct schedule *compute, const struct workload *workload,
                           const struct plan *plan, struct schedule *full, struct err *err);

/* Whether an F and the B after it that run as one op (OP_OVERLAPPED) hide something: all-to-alls of
 * experts. Where schedule_overlaps(), schedule_lower() makes such pairs then. */
bool workload_hides_messages(const struct workload *workload);

/* The workload and the full op lists of a plan, checked by schedule_check(). The compute list is
 * plan->order, or generated. */
enum status plan_lower(const struct setting *setting, const struct plan *plan,
                       struct workload *workload, struct schedule *full, struct err *err);

/* plan_lower() for a simulation, which names a deadlock by itself: lists of named schedules, which
 * the tests have proved, are not checked again. */
enum status plan_lower_to_simulate(const struct setting *setting, const struct plan *plan,
                                   struct workload *workload, struct schedule *full,
                                   struct err *err);

/* plan_lower() for a generated schedule, without schedule_check() and without a look at the plan's
 * devices, whose sites the caller knows: for the planner, which lowers many candidates of kinds
 * that the tests have proved and has the chosen one checked by plan_lower(). sites and memo (NULL:
 * none) are borrowed as long as the workload lives. */
enum status plan_lower_unchecked(const struct setting *setting, const struct plan *plan,
                                 const struct sites *sites, struct stage_memo *memo,
                                 struct workload *workload, struct schedule *full, struct err *err);
