/* partition/step/shares_solve.h - the shares of weight gradients with which a step ends soonest.
 *
 * The op lists and costs of a plan are a project (partition/step/crash.h): its events are the starts
 * of ops, by the rules that schedule_time() follows (compute, messages, launches, all-reduces, TIED,
 * NORM, UPDATE), and its works are the weight gradients of each stage and micro-batch. */
#pragma once

#include "partition/step/crash.h"
#include "partition/step/workload.h"

/* The project of a plan whose lists and workload have no shares. work_of[stage * M + micro-batch] is
 * the number of its work, -1 where there is none to leave out. Each stage is a group, whose budget is
 * max_share of its works. crash_end_ns() with all shares 0 is schedule_time()'s end of the step, counted
 * from when the hosts begin. *project must be zeroed; the caller owns it, and work_of, which is set.
 * ERR_INFEASIBLE: the lists deadlock. O(ops). */
enum status step_project(const struct schedule *full, const struct workload *workload,
                         const struct plan *plan, double max_share, struct crash_project *project,
                         int **work_of, struct err *err);
void crash_project_clear(struct crash_project *project);

/* Find the shares, with which the step ends soonest, whose mean in each stage is max_share (0..1) at
 * most; of these the least. None where no pass has weight gradients. Arguments as for step_project();
 * *shares must be zeroed or freed. */
enum status shares_solve(const struct schedule *full, const struct workload *workload,
                         const struct plan *plan, double max_share, struct freeze_shares *shares,
                         struct err *err);

/* plan_set_shares(). ERR_INPUT where no layer is frozen either and nothing can be left out. */
enum status plan_leave_out(const struct setting *setting, double max_share, struct plan *plan,
                           struct err *err);

/* Give a plan its shares for freeze.max_share, and the step time and the memory that it has with
 * them. max_share 0: none. On failure the plan is unchanged. */
enum status plan_set_shares(const struct setting *setting, double max_share, struct plan *plan,
                            struct err *err);
