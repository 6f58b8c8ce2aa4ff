/* sim/faults/fault_run.h - a training run on a cluster that loses nodes, in virtual time.
 *
 * The run is a list of turns (the epochs of sim/run/elastic_run.h), once for each number of nodes.
 * Its activities are steps, changes of plan, checkpoints, and after a loss detection, waiting and
 * the restart. Each activity lasts an integer number of ns. A loss interrupts any of them:
 *
 *   steps -> checkpoint -> steps --x loss: back to the last complete checkpoint
 *                                   \ detection -> (waiting for nodes) -> restart -> steps
 *
 * Rules:
 *   - Losses are Poisson processes: one for each node (its own rate, plus that of its devices and
 *     links) and one for each rack, which loses all its nodes. A lost node is back after repair_ns.
 *     Losses of the trace are added; only the trace brings those nodes back.
 *   - A node that is not in use (a spare) can be lost too. The run continues.
 *   - A loss during detection or restart begins the detection again. During waiting it does not.
 *   - Restart waits until all nodes of the full plan are back. Spare takes a spare first. Shrink
 *     takes a spare first, then the largest plan for the nodes that are left, and grows at the next
 *     checkpoint, which it then writes completely, followed by a restart.
 *   - A checkpoint is due at the end of the first step with interval_ns of work after the last one,
 *     and at the end of the run. Asynchronous ones stall the run for stall_ns and are complete
 *     write_ns later. If the next one is due earlier, or the run ends, the run waits for the write.
 *   - A copy in memory (every memory_interval_ns of work) lies on its node and on the next node. It
 *     is gone if two neighbouring nodes are lost before the next copy.
 *   - A slow device slows all steps after the present one. If found_ns has passed, the run saves at
 *     the end of its step, gives the node to repair and restarts. No work is lost.
 *   - With trace_steps the times of the trace are numbers of steps that are done, as in `train
 *     --plan-losses`: a node is lost when that step is done for the first time, or back then.
 *   - A smaller plan may have other numbers of steps in a turn. The position then rounds down.
 *
 * The renewal formula that the tests use as judge: J. T. Daly, "A higher order estimate of the
 * optimum checkpoint interval for restart dumps", FGCS 22 (2006), eq. 13. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "partition/cluster/fault_event.h"

enum fault_policy { FAULT_RESTART, FAULT_SHRINK, FAULT_SPARE };
enum fault_cause {
    FAULT_DEVICE,
    FAULT_NODE,
    FAULT_LINK,
    FAULT_RACK,
    FAULT_TRACE,
    FAULT_SLOW, /* a slow device was found, and its node replaced */
    FAULT_CAUSE_COUNT
};
/* The parts of the time. They add up to the total exactly. */
enum fault_part {
    FAULT_USEFUL, /* steps and changes of plan, as on a cluster that loses nothing */
    FAULT_LOST,   /* work that a loss threw away */
    FAULT_SLOWER, /* what steps took longer on slow devices or fewer nodes */
    FAULT_SAVE,   /* stalls of checkpoints and copies */
    FAULT_DETECT,
    FAULT_WAIT, /* for nodes */
    FAULT_LOAD, /* restarts */
    FAULT_PART_COUNT
};

/* All durations in ns, all rates in losses per hour. */
struct fault_setting {
    enum fault_policy policy;
    int num_nodes, spare_nodes;           /* in use by the full plan; beside those */
    int devices_per_node, nodes_per_rack; /* nodes_per_rack 0: no racks */
    double device_per_hour, node_per_hour, link_per_hour, rack_per_hour, slow_per_hour;
    double slow_speed; /* of a slow device, 0 < x <= 1 */
    int64_t found_ns;  /* until a slow device is found; 0: never */
    int64_t detect_ns, restart_ns, memory_restart_ns, repair_ns;
    int64_t join_ns;     /* until a run that grows has stopped, in place of detect_ns */
    int64_t interval_ns; /* work between checkpoints; 0: no checkpoints */
    /* in place of interval_ns: a checkpoint every N steps; 0: none */
    int64_t interval_steps;
    int64_t stall_ns, write_ns;
    bool async;
    int64_t memory_interval_ns, memory_stall_ns; /* interval 0: no copies in memory */
    int64_t limit_ns;                            /* the run ends here if it is not done; 0: never */
    int64_t most_losses; /* a run with more random losses ends as FAULT_MANY; 0: any number */
    const struct fault_event *trace; /* borrowed; ascending in time */
    int num_trace;
    bool trace_steps;
};

struct fault_turn {
    int64_t steps, step_ns, last_step_ns; /* steps >= 1 */
    int64_t before_ns; /* time of the change of plan before the first step; 0: none */
};
/* The run on some number of nodes. num_turns 0: no plan fits on so few. */
struct fault_plan {
    int num_turns;
    const struct fault_turn *turns; /* borrowed */
};

enum fault_end {
    FAULT_DONE,
    FAULT_LIMIT,   /* limit_ns was reached */
    FAULT_MANY,    /* more losses than most_losses */
    FAULT_TOO_FEW, /* no plan for the nodes that are left, and none returns */
};
struct fault_run {
    enum fault_end end;
    int64_t total_ns, part_ns[FAULT_PART_COUNT];
    int64_t losses[FAULT_CAUSE_COUNT];  /* that stopped the run */
    int64_t lost_ns[FAULT_CAUSE_COUNT]; /* work thrown away, by cause; adds up to FAULT_LOST */
    int64_t saves, restarts, from_memory, grown;
    double node_hours; /* nodes in use or spare, as they are paid, without those in repair */
};

/* One interval of the timeline of a run. FAULT_LOST comes afterwards: the useful time that passed
 * in the interval is thrown away. */
typedef void fault_watch(void *ctx, int64_t from_ns, int64_t to_ns, enum fault_part part,
                         int nodes);

/* Check a setting and the trace. ERR_INPUT: a negative rate or time, a node of the trace that does
 * not exist, returns without being lost or is lost twice. ERR_INFEASIBLE: asynchronous checkpoints
 * that take longer to write than the interval. */
enum status fault_setting_check(const struct fault_setting *setting, struct err *err);

/* Simulate a run. plans[n] is that on n nodes, for n = 0..num_nodes; only shrink reads other plans
 * than the full one. The same seed gives the same run on every machine with the same log().
 * watch may be NULL. ERR_NOMEM. Time: O(checkpoints + losses * nodes in repair). */
enum status fault_run(const struct fault_setting *setting, const struct fault_plan *plans,
                      uint64_t seed, fault_watch *watch, void *ctx, struct fault_run *run,
                      struct err *err);

/* Time of a run that loses nothing and saves nothing. */
int64_t fault_plan_ns(const struct fault_plan *plan);

/* Losses that stop the full plan, per hour. */
double fault_rate(const struct fault_setting *setting);

/* The best work between two checkpoints, for the mean time between losses `mean_ns` and the cost of
 * a checkpoint. Young 1974: sqrt(2 cost mean). Daly 2006, eq. 37: its next terms, `mean` for a cost
 * of 2 * mean or more. */
double fault_young_ns(double cost_ns, double mean_ns);
double fault_daly_ns(double cost_ns, double mean_ns);
