/* The run goes from activity to activity; spend() passes time and lets the cluster's events happen in
 * it. Read fault_run() at the end first, then spend() and recover(). */
#include "sim/faults/fault_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

#define NS_PER_HOUR 3.6e12

/* A place that a run can return to. */
struct mark {
    int turn;
    int64_t step;
    int nodes;           /* of the plan by which turn and step count */
    bool begun;          /* the turn's change of plan is done */
    int64_t stepping_ns; /* time in steps and changes of plan up to here */
    int64_t complete_ns; /* when the checkpoint is complete */
    int64_t at_ns;       /* when the run was here */
};

enum node_state { NODE_USED, NODE_IDLE, NODE_DOWN };
struct node {
    enum node_state state;
    int64_t back_ns;  /* of a node in repair; INT64_MAX: the trace brings it back */
    int64_t found_ns; /* of a slow node; INT64_MAX: never */
    bool slow;
};

enum outcome { SPENT, LOST, CHANGED, ENDED };

struct world {
    const struct fault_setting *set;
    const struct fault_plan *plans;
    struct node *nodes; /* owned */
    int num_nodes, num_up, num_used, num_slow;
    int64_t now, next_loss;
    int64_t next_return; /* the earliest back_ns */
    int64_t next_found;  /* the earliest found_ns */
    int next_trace;
    uint64_t seed, draws;
    int64_t losses;         /* random ones, also of nodes that are not in use */
    enum fault_cause cause; /* of the loss that spend() reports */
    int found;              /* a slow node to be replaced at the step's end; -1: none */
    bool copy_gone;
    struct mark at, saved, writing, copied; /* complete_ns INT64_MAX: there is none */
    struct fault_run *run;
    fault_watch *watch;
    void *ctx;
};

int64_t fault_plan_ns(const struct fault_plan *plan)
{
    int64_t ns = 0;
    for (int t = 0; t < plan->num_turns; t++) {
        const struct fault_turn *turn = &plan->turns[t];
        ns = add_saturated(ns, turn->before_ns);
        ns = add_saturated(ns, mul_saturated(turn->steps - 1, turn->step_ns));
        ns = add_saturated(ns, turn->last_step_ns);
    }
    return ns;
}

double fault_rate(const struct fault_setting *set)
{
    const double node =
        set->node_per_hour + set->link_per_hour + set->devices_per_node * set->device_per_hour;
    const int racks =
        set->nodes_per_rack ? (set->num_nodes + set->nodes_per_rack - 1) / set->nodes_per_rack : 0;
    return set->num_nodes * node + racks * set->rack_per_hour;
}

double fault_young_ns(double cost_ns, double mean_ns)
{
    return sqrt(2 * cost_ns * mean_ns);
}

double fault_daly_ns(double cost_ns, double mean_ns)
{
    const double ratio = cost_ns / (2 * mean_ns);
    if (ratio >= 1)
        return mean_ns;
    return fault_young_ns(cost_ns, mean_ns) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost_ns;
}

/* ---- the cluster ---- */

/* A random number in (0, 1]. */
static double draw(struct world *w)
{
    const uint64_t bits = mix64(mix64(w->seed) + w->draws++);
    return (double)((bits >> 11) + 1) * 0x1p-53;
}

static int num_racks(const struct world *w)
{
    const int per = w->set->nodes_per_rack;
    return per ? (w->num_nodes + per - 1) / per : 0;
}

/* The rate of each random cause, and their sum. Slow devices are the last. */
static double rates(const struct world *w, double rate[FAULT_CAUSE_COUNT])
{
    const struct fault_setting *set = w->set;
    const double devices = (double)w->num_up * set->devices_per_node;
    rate[FAULT_DEVICE] = devices * set->device_per_hour;
    rate[FAULT_NODE] = w->num_up * set->node_per_hour;
    rate[FAULT_LINK] = w->num_up * set->link_per_hour;
    rate[FAULT_RACK] = num_racks(w) * set->rack_per_hour;
    rate[FAULT_TRACE] = 0;
    rate[FAULT_SLOW] = devices * set->slow_per_hour;
    double sum = 0;
    for (int c = 0; c < FAULT_CAUSE_COUNT; c++)
        sum += rate[c];
    return sum;
}

/* Draw the time of the next random event. Because the processes have no memory, it may be drawn
 * anew whenever the number of nodes changes. */
static void draw_next(struct world *w)
{
    double rate[FAULT_CAUSE_COUNT];
    const double sum = rates(w, rate);
    const double ns = sum > 0 ? -log(draw(w)) / sum * NS_PER_HOUR : INFINITY;
    w->next_loss = ns < 0x1p62 - (double)w->now ? w->now + (int64_t)ns : INT64_MAX;
}

static void find_returns(struct world *w)
{
    w->next_return = w->next_found = INT64_MAX;
    for (int n = 0; n < w->num_nodes; n++) {
        const struct node *node = &w->nodes[n];
        if (node->state == NODE_DOWN && node->back_ns < w->next_return)
            w->next_return = node->back_ns;
        if (node->slow && node->found_ns < w->next_found)
            w->next_found = node->found_ns;
    }
}

static bool is_down(const struct world *w, int n)
{
    return w->nodes[(n + w->num_nodes) % w->num_nodes].state == NODE_DOWN;
}

/* Take a node down. Returns whether the run used it. */
static bool take_down(struct world *w, int n, int64_t back_ns)
{
    struct node *node = &w->nodes[n];
    const bool used = node->state == NODE_USED;
    if (node->state == NODE_DOWN)
        return false;
    if (node->slow)
        w->num_slow--;
    w->num_up--;
    w->num_used -= used;
    *node = (struct node){.state = NODE_DOWN, .back_ns = back_ns, .found_ns = INT64_MAX};
    if (used && (is_down(w, n - 1) || is_down(w, n + 1)))
        w->copy_gone = true;
    return used;
}

static void bring_back(struct world *w, int n)
{
    w->nodes[n] = (struct node){.state = NODE_IDLE, .found_ns = INT64_MAX};
    w->num_up++;
}

/* The i-th node that is up. */
static int nth_up(const struct world *w, int i)
{
    int n = 0;
    for (; w->nodes[n].state == NODE_DOWN || i-- > 0; n++)
        ;
    return n;
}

/* A random event happens. Returns what it means for the run. */
static enum outcome strike(struct world *w)
{
    double rate[FAULT_CAUSE_COUNT];
    double at = rates(w, rate) * (1 - draw(w));
    int cause = 0;
    while (cause < FAULT_SLOW && (rate[cause] == 0 || at >= rate[cause]))
        at -= rate[cause++];
    enum outcome outcome = SPENT;
    const int64_t back_ns = add_saturated(w->now, w->set->repair_ns);
    if (cause == FAULT_RACK) {
        const int rack = (int)((1 - draw(w)) * num_racks(w)), per = w->set->nodes_per_rack;
        for (int n = rack * per; n < (rack + 1) * per && n < w->num_nodes; n++)
            if (take_down(w, n, back_ns))
                outcome = LOST;
    } else if (w->num_up > 0) {
        const int n = nth_up(w, (int)((1 - draw(w)) * w->num_up));
        struct node *node = &w->nodes[n];
        if (cause != FAULT_SLOW) {
            outcome = take_down(w, n, back_ns) ? LOST : SPENT;
        } else if (!node->slow) {
            node->slow = true;
            node->found_ns = w->set->found_ns ? add_saturated(w->now, w->set->found_ns) : INT64_MAX;
            w->num_slow++;
            outcome = CHANGED;
        }
    }
    w->cause = (enum fault_cause)cause;
    w->losses++;
    return outcome;
}

/* Steps that are done up to the present place. */
static int64_t steps_done(const struct world *w)
{
    int64_t steps = w->at.step;
    for (int t = 0; t < w->at.turn; t++)
        steps += w->plans[w->at.nodes].turns[t].steps;
    return steps;
}

/* The next event of a trace of steps; NULL: there is none, or the trace is one of times. */
static const struct fault_event *next_at_step(const struct world *w)
{
    return w->set->trace_steps && w->next_trace < w->set->num_trace ? &w->set->trace[w->next_trace]
                                                                    : NULL;
}

static enum outcome follow_trace(struct world *w, const struct fault_event *event)
{
    struct node *node = &w->nodes[event->node];
    enum outcome outcome = SPENT;
    w->next_trace++;
    if (!event->back) {
        outcome = take_down(w, event->node, INT64_MAX) ? LOST : SPENT;
        node->back_ns = INT64_MAX; /* also if it was in repair */
        w->cause = FAULT_TRACE;
    } else if (node->state == NODE_DOWN) {
        bring_back(w, event->node);
    }
    return outcome;
}

/* The events of a trace of steps up to the present place, only returns if `back`. LOST: a node in use
 * is lost. */
static enum outcome follow_steps(struct world *w, bool back)
{
    enum outcome outcome = SPENT;
    const struct fault_event *e;
    while (outcome == SPENT && (e = next_at_step(w)) && e->at_ns <= steps_done(w) &&
           (e->back || !back)) {
        outcome = follow_trace(w, e);
        find_returns(w);
        draw_next(w);
    }
    return outcome;
}

/* Let the event at the present time happen. At one time, nodes return before others are lost. */
static enum outcome happen(struct world *w)
{
    enum outcome outcome = SPENT;
    const struct fault_event *trace = w->next_trace < w->set->num_trace && !w->set->trace_steps
                                          ? &w->set->trace[w->next_trace]
                                          : NULL;
    if (w->next_return <= w->now) {
        for (int n = 0; n < w->num_nodes; n++)
            if (w->nodes[n].state == NODE_DOWN && w->nodes[n].back_ns <= w->now)
                bring_back(w, n);
    } else if (trace && trace->at_ns <= w->now) {
        outcome = follow_trace(w, trace);
    } else if (w->next_found <= w->now) {
        for (int n = 0; n < w->num_nodes; n++)
            if (w->nodes[n].slow && w->nodes[n].found_ns <= w->now) {
                /* Found again later, if another one is replaced first. */
                w->nodes[n].found_ns = add_saturated(w->now, w->set->found_ns);
                if (w->nodes[n].state == NODE_USED)
                    w->found = n;
                else
                    take_down(w, n, add_saturated(w->now, w->set->repair_ns));
            }
        outcome = CHANGED;
    } else {
        outcome = strike(w);
    }
    find_returns(w);
    draw_next(w);
    return outcome;
}

static int64_t next_event(const struct world *w)
{
    int64_t at = w->next_loss < w->next_return ? w->next_loss : w->next_return;
    if (w->next_found < at)
        at = w->next_found;
    if (!w->set->trace_steps && w->next_trace < w->set->num_trace &&
        w->set->trace[w->next_trace].at_ns < at)
        at = w->set->trace[w->next_trace].at_ns;
    return at;
}

/* ---- time ---- */

static void pass(struct world *w, int64_t until, enum fault_part part)
{
    if (until == w->now)
        return;
    if (w->watch)
        w->watch(w->ctx, w->now, until, part, w->num_used);
    w->run->part_ns[part] += until - w->now;
    w->run->node_hours += (double)(until - w->now) * w->num_up / NS_PER_HOUR;
    w->now = until;
}

/* Pass duration_ns. LOST: a node in use was lost at w->now. CHANGED: the pace of steps changed
 * there. ENDED: the limit. An event at the very end belongs to the next activity, so that a
 * checkpoint that is complete counts. */
static enum outcome spend(struct world *w, int64_t duration_ns, enum fault_part part)
{
    const int64_t end = add_saturated(w->now, duration_ns);
    const int64_t limit = w->set->limit_ns ? w->set->limit_ns : INT64_MAX - 1;
    while (w->now < end) {
        if (w->set->most_losses > 0 && w->losses > w->set->most_losses)
            return ENDED;
        const int64_t event = next_event(w);
        int64_t until = event < end ? event : end;
        if (until > limit) {
            pass(w, limit, part);
            return ENDED;
        }
        pass(w, until > w->now ? until : w->now, part);
        if (event >= end)
            return SPENT;
        const enum outcome outcome = happen(w);
        if (outcome == LOST || (outcome == CHANGED && part == FAULT_USEFUL))
            return outcome;
    }
    return SPENT;
}

/* ---- checkpoints ---- */

static const struct fault_turn *turn_of(const struct world *w)
{
    return &w->plans[w->at.nodes].turns[w->at.turn];
}

/* A step's time, with slow devices. */
static int64_t paced(const struct world *w, int64_t ns)
{
    for (int n = 0; w->num_slow > 0 && n < w->num_nodes; n++)
        if (w->nodes[n].slow && w->nodes[n].state == NODE_USED)
            return llround((double)ns / w->set->slow_speed);
    return ns;
}

/* Express a mark in steps of the plan for `nodes`. */
static void convert(const struct world *w, struct mark *mark, int nodes)
{
    const int64_t old = w->plans[mark->nodes].turns[mark->turn].steps;
    const int64_t steps = w->plans[nodes].turns[mark->turn].steps;
    if (old != steps)
        mark->step = (int64_t)((__int128)mark->step * steps / old);
    mark->nodes = nodes;
}

/* A write that is complete by now becomes the checkpoint to return to. */
static void settle(struct world *w)
{
    if (w->writing.complete_ns <= w->now) {
        w->saved = w->writing;
        w->writing.complete_ns = INT64_MAX;
    }
}

/* Save. whole: wait until the checkpoint is complete. */
static enum outcome save(struct world *w, bool whole)
{
    enum outcome outcome = SPENT;
    settle(w);
    if (w->writing.complete_ns != INT64_MAX) {
        outcome = spend(w, w->writing.complete_ns - w->now, FAULT_SAVE);
        if (outcome != SPENT)
            return outcome;
        settle(w);
    }
    whole = whole || !w->set->async;
    outcome = spend(w, w->set->stall_ns + (whole ? w->set->write_ns : 0), FAULT_SAVE);
    if (outcome != SPENT)
        return outcome;
    w->writing = w->at;
    w->writing.at_ns = w->now;
    w->writing.complete_ns = add_saturated(w->now, whole ? 0 : w->set->write_ns);
    w->run->saves++;
    settle(w);
    return SPENT;
}

/* Throw away the work after the checkpoint or copy that is left. Returns whether it is a copy. */
static bool go_back(struct world *w)
{
    settle(w);
    const bool copy = w->copied.complete_ns <= w->now && !w->copy_gone &&
                      w->copied.stepping_ns > w->saved.stepping_ns;
    const struct mark *to = copy ? &w->copied : &w->saved;
    const int64_t lost = w->at.stepping_ns - to->stepping_ns;
    w->run->part_ns[FAULT_LOST] += lost;
    w->run->part_ns[FAULT_USEFUL] -= lost;
    w->run->lost_ns[w->cause] += lost;
    if (w->watch && lost > 0)
        w->watch(w->ctx, to->at_ns, w->now, FAULT_LOST, w->num_used);
    w->at = *to;
    w->writing.complete_ns = INT64_MAX;
    if (!copy)
        w->copied.complete_ns = INT64_MAX;
    w->copy_gone = false;
    return copy;
}

/* The largest plan for the nodes that are up; 0: none. */
static int plan_for_up(const struct world *w)
{
    const struct fault_setting *set = w->set;
    int most = w->num_up < set->num_nodes ? w->num_up : set->num_nodes;
    if (set->policy != FAULT_SHRINK)
        return most == set->num_nodes ? most : 0;
    while (most > 0 && w->plans[most].num_turns == 0)
        most--;
    return most;
}

/* Whether the nodes that the run may use are enough. Restart leaves the spares alone. */
static bool is_enough(const struct world *w)
{
    if (w->set->policy == FAULT_RESTART) {
        int own = 0;
        for (int n = 0; n < w->set->num_nodes; n++)
            own += w->nodes[n].state != NODE_DOWN;
        return own == w->set->num_nodes;
    }
    return plan_for_up(w) > 0;
}

/* Use the first nodes that are up, slow ones too. */
static void use_nodes(struct world *w, int count)
{
    w->num_used = 0;
    for (int n = 0; n < w->num_nodes; n++)
        if (w->nodes[n].state != NODE_DOWN) {
            w->nodes[n].state = w->num_used < count ? NODE_USED : NODE_IDLE;
            w->num_used += w->num_used < count;
        }
}

/* Detection (first_ns of it), waiting for nodes, restart; again if another node is lost meanwhile. */
static enum outcome recover(struct world *w, int64_t first_ns, bool from_copy)
{
    for (int64_t detect_ns = first_ns;; detect_ns = w->set->detect_ns) {
        enum outcome outcome = spend(w, detect_ns, FAULT_DETECT);
        while (outcome == SPENT && (!is_enough(w) || next_event(w) <= w->now)) {
            const int64_t event = next_event(w);
            if (event == INT64_MAX) {
                w->run->end = FAULT_TOO_FEW;
                return ENDED;
            }
            outcome = spend(w, event - w->now, FAULT_WAIT);
            if (outcome != ENDED) {
                happen(w);
                outcome = SPENT;
            }
        }
        if (outcome == ENDED)
            return ENDED;
        if (outcome == LOST) {
            w->run->losses[w->cause]++;
            from_copy = go_back(w);
            continue;
        }
        if (w->copy_gone) /* lost while the run waited */
            from_copy = go_back(w);
        const int nodes = plan_for_up(w);
        use_nodes(w, nodes);
        outcome = spend(w, from_copy ? w->set->memory_restart_ns : w->set->restart_ns, FAULT_LOAD);
        if (outcome == SPENT) {
            convert(w, &w->at, nodes);
            w->run->restarts++;
            w->run->from_memory += from_copy;
        }
        if (outcome != LOST)
            return outcome;
        w->run->losses[w->cause]++;
        from_copy = go_back(w);
    }
}

/* ---- steps ---- */

/* The number of steps of step_ns until `interval` of work has passed since the mark. */
static int64_t until_due(const struct world *w, const struct mark *mark, int64_t interval_ns,
                         int64_t step_ns)
{
    const int64_t left = interval_ns - (w->at.stepping_ns - mark->stepping_ns);
    return left <= 0 || step_ns == 0 ? 1 : (left + step_ns - 1) / step_ns;
}

/* The newest state that is saved or being written: intervals count from it. */
static const struct mark *newest(const struct world *w)
{
    return w->writing.complete_ns != INT64_MAX ? &w->writing : &w->saved;
}
static const struct mark *newest_copy(const struct world *w)
{
    return w->copied.complete_ns != INT64_MAX && w->copied.stepping_ns > newest(w)->stepping_ns
               ? &w->copied
               : newest(w);
}

/* Pass `count` steps of step_ns, or those up to a change of pace. A loss throws away a part of a
 * step at once. */
static enum outcome take_steps(struct world *w, int64_t count, int64_t step_ns)
{
    const int64_t start = w->now;
    enum outcome outcome = spend(w, mul_saturated(count, step_ns), FAULT_USEFUL);
    int64_t done = outcome == SPENT ? count : (w->now - start) / step_ns;
    while (outcome == CHANGED) { /* the present step ends at its old pace */
        const int64_t whole = (w->now - start + step_ns - 1) / step_ns;
        outcome = spend(w, whole * step_ns - (w->now - start), FAULT_USEFUL);
        if (outcome == SPENT)
            done = whole;
    }
    const int64_t part = w->now - start - done * step_ns;
    if (part > 0) {
        w->run->part_ns[FAULT_USEFUL] -= part;
        w->run->part_ns[FAULT_LOST] += part;
        w->run->lost_ns[w->cause] += outcome == LOST ? part : 0;
    }
    w->at.step += done;
    w->at.stepping_ns += done * step_ns;
    return outcome;
}

/* After steps: whether a checkpoint is due. */
static bool is_save_due(const struct world *w, bool end)
{
    const struct fault_setting *set = w->set;
    if (set->interval_steps)
        return end || (steps_done(w) % set->interval_steps == 0);
    return set->interval_ns &&
           (end || w->at.stepping_ns - newest(w)->stepping_ns >= set->interval_ns);
}

/* The steps until a checkpoint, a copy or an event of the trace, `most` at the most. */
static int64_t steps_to_event(const struct world *w, int64_t step_ns, int64_t most)
{
    const struct fault_setting *set = w->set;
    const struct fault_event *event = next_at_step(w);
    const int64_t done = steps_done(w);
    int64_t count = most, due = most;
    if (set->interval_steps)
        due = set->interval_steps - done % set->interval_steps;
    else if (set->interval_ns)
        due = until_due(w, newest(w), set->interval_ns, step_ns);
    count = due < count ? due : count;
    if (event && event->at_ns > done && event->at_ns - done < count)
        count = event->at_ns - done;
    if (set->memory_interval_ns)
        due = until_due(w, newest_copy(w), set->memory_interval_ns, step_ns);
    return due < count ? due : count;
}

/* A slow device was found: save, give its node to repair, restart without it. */
static enum outcome replace_found(struct world *w)
{
    const int node = w->found;
    w->found = -1;
    const enum outcome outcome = save(w, true);
    w->cause = FAULT_SLOW;
    if (outcome != SPENT || w->nodes[node].state != NODE_USED)
        return outcome;
    take_down(w, node, add_saturated(w->now, w->set->repair_ns));
    find_returns(w);
    draw_next(w);
    w->run->losses[FAULT_SLOW]++;
    return recover(w, 0, false);
}

/* One activity of a run that has its nodes. */
static enum outcome proceed(struct world *w)
{
    const struct fault_setting *set = w->set;
    const struct fault_turn *turn = turn_of(w);
    enum outcome outcome;
    if (!w->at.begun) {
        const int64_t start = w->now;
        do
            outcome = spend(w, start + turn->before_ns - w->now, FAULT_USEFUL);
        while (outcome == CHANGED);
        w->at.stepping_ns += w->now - start;
        w->at.begun = outcome == SPENT;
        return outcome;
    }
    if (follow_steps(w, false) == LOST)
        return LOST;
    const bool last = w->at.step >= turn->steps - 1;
    const int64_t step_ns = paced(w, last ? turn->last_step_ns : turn->step_ns);
    const int64_t count = steps_to_event(w, step_ns, last ? 1 : turn->steps - 1 - w->at.step);
    outcome = take_steps(w, count, step_ns);
    if (outcome != SPENT)
        return outcome;
    if (w->at.step == turn->steps) {
        w->at.turn++;
        w->at.step = 0;
        w->at.begun = false;
    }
    const bool end = w->at.turn == w->plans[w->at.nodes].num_turns;
    if (w->found >= 0 && !end)
        return replace_found(w);
    follow_steps(w, true);
    if (is_save_due(w, end)) {
        const bool grow = !end && set->policy == FAULT_SHRINK && plan_for_up(w) > w->num_used;
        outcome = save(w, end || grow);
        if (outcome != SPENT || !grow)
            return outcome;
        w->run->grown++;
        return recover(w, set->join_ns, false);
    }
    if (set->memory_interval_ns && !end &&
        w->at.stepping_ns - newest_copy(w)->stepping_ns >= set->memory_interval_ns) {
        outcome = spend(w, set->memory_stall_ns, FAULT_SAVE);
        if (outcome == SPENT) {
            w->copied = w->at;
            w->copied.at_ns = w->now;
            w->copied.complete_ns = w->now;
            w->copy_gone = false;
        }
    }
    return outcome;
}

/* The useful part of a run that did not end: its place on the full plan. */
static int64_t value_of(const struct world *w)
{
    const struct fault_plan *full = &w->plans[w->set->num_nodes];
    const struct fault_plan done = {w->at.turn, full->turns};
    int64_t ns = fault_plan_ns(&done);
    if (w->at.turn < full->num_turns) {
        const int64_t steps = turn_of(w)->steps;
        if (w->at.begun)
            ns += full->turns[w->at.turn].before_ns;
        ns += (int64_t)((__int128)w->at.step * full->turns[w->at.turn].steps / steps) *
              full->turns[w->at.turn].step_ns;
    }
    return ns;
}

enum status fault_setting_check(const struct fault_setting *set, struct err *err)
{
    const struct {
        const char *name;
        double value;
    } limits[] = {
        {"device_per_hour", set->device_per_hour           },
        {"node_per_hour",   set->node_per_hour             },
        {"link_per_hour",   set->link_per_hour             },
        {"rack_per_hour",   set->rack_per_hour             },
        {"slow_per_hour",   set->slow_per_hour             },
        {"found",           (double)set->found_ns          },
        {"detect",          (double)set->detect_ns         },
        {"restart",         (double)set->restart_ns        },
        {"memory_restart",  (double)set->memory_restart_ns },
        {"repair",          (double)set->repair_ns         },
        {"join",            (double)set->join_ns           },
        {"interval",        (double)set->interval_ns       },
        {"interval_steps",  (double)set->interval_steps    },
        {"stall",           (double)set->stall_ns          },
        {"write",           (double)set->write_ns          },
        {"memory_interval", (double)set->memory_interval_ns},
        {"memory_stall",    (double)set->memory_stall_ns   },
        {"limit",           (double)set->limit_ns          },
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!(limits[i].value >= 0) || isinf(limits[i].value))
            return err_set(err, ERR_INPUT, "faults.%s must be 0 or more, got %g", limits[i].name,
                           limits[i].value);
    if (set->num_nodes < 1 || set->spare_nodes < 0 || set->devices_per_node < 1 ||
        set->nodes_per_rack < 0)
        return err_set(err, ERR_INPUT,
                       "faults: %d nodes, %d spares, %d devices per node, %d nodes "
                       "per rack: the counts must not be negative",
                       set->num_nodes, set->spare_nodes, set->devices_per_node,
                       set->nodes_per_rack);
    if (!(set->slow_speed > 0 && set->slow_speed <= 1))
        return err_set(err, ERR_INPUT, "faults.slow_speed must be above 0, at most 1, got %g",
                       set->slow_speed);
    if (set->async && set->interval_ns > 0 && set->write_ns > set->interval_ns)
        return err_set(err, ERR_INFEASIBLE,
                       "no checkpoint is complete within the interval: one takes %.3f s to write, "
                       "and one is due every %.3f s",
                       (double)set->write_ns / 1e9, (double)set->interval_ns / 1e9);
    return fault_trace_check(set->trace, set->num_trace, set->num_nodes + set->spare_nodes, err);
}

enum status fault_run(const struct fault_setting *set, const struct fault_plan *plans,
                      uint64_t seed, fault_watch *watch, void *ctx, struct fault_run *run,
                      struct err *err)
{
    struct world w = {.set = set,
                      .plans = plans,
                      .num_nodes = set->num_nodes + set->spare_nodes,
                      .seed = seed,
                      .found = -1,
                      .run = run,
                      .watch = watch,
                      .ctx = ctx};
    *run = (struct fault_run){0};
    w.nodes = calloc((size_t)w.num_nodes, sizeof *w.nodes);
    if (!w.nodes)
        return err_nomem(err);
    for (int n = 0; n < w.num_nodes; n++)
        w.nodes[n].found_ns = INT64_MAX;
    w.num_up = w.num_nodes;
    use_nodes(&w, set->num_nodes);
    find_returns(&w);
    draw_next(&w);
    w.at = (struct mark){.nodes = set->num_nodes};
    w.saved = w.at;
    w.writing = w.copied = (struct mark){.complete_ns = INT64_MAX};
    enum outcome outcome = SPENT;
    while (outcome != ENDED && w.at.turn < plans[w.at.nodes].num_turns) {
        outcome = proceed(&w);
        if (outcome == CHANGED)
            outcome = SPENT;
        if (outcome == LOST) {
            run->losses[w.cause]++;
            outcome = recover(&w, set->detect_ns, go_back(&w));
        }
    }
    if (outcome == ENDED && run->end == FAULT_DONE)
        run->end = set->most_losses > 0 && w.losses > set->most_losses ? FAULT_MANY : FAULT_LIMIT;
    run->total_ns = w.now;
    const int64_t useful = value_of(&w);
    run->part_ns[FAULT_SLOWER] = run->part_ns[FAULT_USEFUL] - useful;
    run->part_ns[FAULT_USEFUL] = useful;
    free(w.nodes);
    return OK;
}
