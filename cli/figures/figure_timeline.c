/* `plot timeline`: the ops of one step, a lane a rank, simulated and measured. */
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "partition/base/units.h"

enum { MAX_PANELS = 6, MAX_LANES = 48 };

/* The ops that a timeline shows, and their colours: Okabe and Ito's, with tints for passes that are
 * a part of another or run forward only. Sends and receives appear as gaps. */
static const struct {
    enum op_kind kind;
    const char *name, *colour;
    bool compute; /* it occupies the compute stream; others overlap with it */
} shown_ops[] = {
    {OP_F,         "F forward",           "#56B4E9", true },
    {OP_B,         "B backward",          "#009E73", true },
    {OP_I,         "I backward, inputs",  "#7FCFB9", true },
    {OP_W,         "W backward, weights", "#E69F00", true },
    {OP_R,         "R recompute",         "#999999", true },
    {OP_Z,         "Z frozen forward",    "#C6DCEC", true },
    {OP_C,         "C cache read",        "#CC79A7", true },
    {OP_P,         "P cache write",       "#E8C1D6", true },
    {OP_ALLREDUCE, "all-reduce",          "#D55E00", false},
    {OP_TIED,      "tied weights",        "#8C3D00", false},
    {OP_NORM,      "gradient norm",       "#6D5D4B", true },
    {OP_UPDATE,    "update",              "#F0E442", true },
};
enum { NUM_SHOWN = sizeof shown_ops / sizeof shown_ops[0] };

static int shown_index(int kind)
{
    for (int i = 0; i < NUM_SHOWN; i++)
        if ((int)shown_ops[i].kind == kind)
            return i;
    return -1;
}

struct panel {
    char title[256];
    const struct op_row *ops;           /* borrowed */
    const struct freeze_shares *shares; /* borrowed; of weight gradients that backwards leave out */
    struct op_row *owned;               /* the ops of a simulation; NULL: borrowed from a run */
    int64_t num_ops, span_ns;
    int num_ranks, num_lanes; /* lanes of all replicas */
    int shown_lanes;
};

struct timeline {
    struct panel panels[MAX_PANELS];
    int num_panels;
    bool used[NUM_SHOWN], shared; /* shared: a bar is hatched */
};

static void timeline_clear(struct timeline *t)
{
    for (int p = 0; p < t->num_panels; p++)
        free(t->panels[p].owned);
}

/* A sum over what a replica computes that is equal for equal ops, in any order. An all-reduce is an op of
 * one of its replicas. */
static uint64_t sum_of_ops(const struct panel *panel, int replica)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < panel->num_ops; i++) {
        const struct op_row *op = &panel->ops[i];
        const int shown = shown_index(op->op.kind);
        uint64_t one = mix64((uint64_t)op->rank);
        one = mix64(one ^ (uint64_t)op->op.kind);
        one = mix64(one ^ (uint64_t)op->op.microbatch);
        one = mix64(one ^ (uint64_t)op->start_ns);
        sum += op->replica == replica && shown >= 0 && shown_ops[shown].compute
                   ? mix64(one ^ (uint64_t)op->end_ns)
                   : 0;
    }
    return sum;
}

/* Keep the ops of pipeline 0 where those of all others are equal to them. */
static bool keep_one_of_equals(struct panel *panel, int num_pipelines)
{
    const uint64_t first = sum_of_ops(panel, 0);
    int64_t kept = 0;
    for (int r = 1; r < num_pipelines; r++)
        if (sum_of_ops(panel, r) != first)
            return false;
    for (int64_t i = 0; i < panel->num_ops; i++)
        if (panel->owned[i].replica == 0)
            panel->owned[kept++] = panel->owned[i];
    panel->num_ops = kept;
    panel->num_lanes = panel->num_ranks;
    return num_pipelines > 1;
}

static enum status add_simulated(struct timeline *t, const struct subject *s, struct err *err)
{
    char plan[128], time[32];
    struct panel *panel = &t->panels[t->num_panels++];
    panel->owned = sim_op_rows(s->sim);
    if (!panel->owned)
        return err_nomem(err);
    panel->ops = panel->owned;
    panel->shares = &s->plan->shares;
    panel->num_ops = s->sim->num_ops;
    panel->span_ns = s->sim->step_ns;
    panel->num_ranks = s->plan->num_ranks;
    panel->num_lanes = s->plan->num_ranks * s->plan->num_pipelines;
    const bool equal = keep_one_of_equals(panel, s->plan->num_pipelines);
    snprintf(panel->title, sizeof panel->title,
             "%s, simulated (%s): %s%s, %s a step, bubble %.1f %%", s->word, s->cost->cost.label,
             figure_plan_text(s->plan, plan, sizeof plan), equal ? ", R drawn once" : "",
             format_ns(s->sim->step_ns, time, sizeof time), 100 * s->sim->bubble_fraction);
    return OK;
}

/* The share of a lane in which its compute stream works. */
static double busy_share(const struct panel *panel, int lane)
{
    int64_t busy = 0;
    for (int64_t i = 0; i < panel->num_ops; i++) {
        const struct op_row *op = &panel->ops[i];
        const int shown = shown_index(op->op.kind);
        if (shown >= 0 && shown_ops[shown].compute &&
            op->replica * panel->num_ranks + op->rank == lane)
            busy += op->end_ns - op->start_ns;
    }
    return panel->span_ns > 0 ? (double)busy / (double)panel->span_ns : 0;
}

/* The measured ops of a run. A rank that idles in the run has no lane. */
static void add_measured(struct timeline *t, const struct subject *s, const struct op_row *ops,
                         int64_t n)
{
    char time[32];
    double busy = 0;
    struct panel *panel = &t->panels[t->num_panels++];
    int64_t last_rank = 0, last_replica = 0;
    panel->ops = ops;
    panel->num_ops = n;
    for (int64_t i = 0; i < n; i++) {
        last_rank = ops[i].rank > last_rank ? ops[i].rank : last_rank;
        last_replica = ops[i].replica > last_replica ? ops[i].replica : last_replica;
        if (shown_index(ops[i].op.kind) >= 0 && ops[i].end_ns > panel->span_ns)
            panel->span_ns = ops[i].end_ns;
    }
    panel->num_ranks = (int)last_rank + 1;
    panel->num_lanes = panel->num_ranks * ((int)last_replica + 1);
    for (int lane = 0; lane < panel->num_lanes; lane++)
        busy += busy_share(panel, lane);
    snprintf(panel->title, sizeof panel->title, "%s, measured: step %lld, %s, idle %.1f %%",
             s->word, (long long)ops[0].step, format_ns(panel->span_ns, time, sizeof time),
             100 * (1 - busy / panel->num_lanes));
}

static enum status add_subject(struct timeline *t, struct subject *s, struct err *err)
{
    const struct op_row *ops = NULL;
    int64_t n = 0;
    enum status rc = subject_simulate(s, err);
    THEN(subject_real_ops(s, &ops, &n, err));
    if (rc != OK)
        return rc;
    if (!s->sim && n == 0)
        return err_set(err, ERR_INFEASIBLE, "%.200s: no step with recorded ops, and %.200s",
                       s->path, s->no_sim.msg);
    if (t->num_panels + (s->sim != NULL) + (n > 0) > MAX_PANELS)
        return err_set(err, ERR_INPUT, "a timeline has at most %d panels", MAX_PANELS);
    if (s->sim)
        rc = add_simulated(t, s, err);
    if (rc == OK && n > 0)
        add_measured(t, s, ops, n);
    return rc;
}

/* Write the label of a bar that is wide enough: its micro-batch, or its letter in a terminal, which
 * has no colours. */
static void write_label(FILE *out, const struct op_row *op, int64_t span_ns, bool dumb)
{
    const double share = (double)(op->end_ns - op->start_ns) / (double)span_ns;
    const bool pass = op->op.kind <= OP_P;
    if (dumb && share > 0.008 && pass)
        fprintf(out, "\"%s\"\n", op_kind_name((enum op_kind)op->op.kind));
    else if (!dumb && op->op.microbatch >= 0 && pass && share > 0.022)
        fprintf(out, "\"%d\"\n", (int)op->op.microbatch);
    else
        fputs("\"\"\n", out);
}

/* The ops of a lane in the panel that has most of them. */
static int64_t ops_of_lane(const struct timeline *t)
{
    int64_t most = 0;
    for (int p = 0; p < t->num_panels; p++) {
        const int64_t ops = t->panels[p].num_ops / t->panels[p].num_lanes;
        most = ops > most ? ops : most;
    }
    return most;
}

/* More ops of a lane than WIDE_BARS leave a bar less than 8 px: no room for its border. More than
 * MAX_BARS are a blur. Then the figure shows pipeline 0 only, and the beginning of the step. */
enum { WIDE_BARS = 100, MAX_BARS = 400, WINDOW_BARS = 100 };

static int64_t choose_window(struct timeline *t, int64_t span_ns)
{
    const int64_t ops = ops_of_lane(t);
    for (int p = 0; p < t->num_panels; p++) {
        struct panel *panel = &t->panels[p];
        panel->shown_lanes = ops > MAX_BARS ? panel->num_ranks : panel->num_lanes;
        if (panel->shown_lanes > MAX_LANES)
            panel->shown_lanes = MAX_LANES;
    }
    return ops > MAX_BARS ? span_ns / ops * WINDOW_BARS : span_ns;
}

/* The share of its weight gradients that an op leaves out. */
static double share_of(const struct panel *panel, const struct op_row *op)
{
    const struct freeze_shares *shares = panel->shares;
    const bool leaves = op->op.kind == OP_B || op->op.kind == OP_W;
    return shares && shares->share && leaves && op->op.microbatch < shares->num_micro_batches
               ? shares_at(shares, op->op.stage, op->op.microbatch)
               : 0;
}

/* Write the bars of a panel: start, end, lane, colour, share, label. */
static void write_bars(FILE *out, struct timeline *t, int p, int64_t span_ns,
                       const struct time_unit *unit, bool dumb)
{
    const struct panel *panel = &t->panels[p];
    fprintf(out, "$ops_%d << EOD\n", p + 1);
    for (int64_t i = 0; i < panel->num_ops; i++) {
        const struct op_row *op = &panel->ops[i];
        const int shown = shown_index(op->op.kind);
        const int64_t lane = op->replica * panel->num_ranks + op->rank;
        if (shown < 0 || op->end_ns <= op->start_ns || lane >= panel->shown_lanes ||
            op->start_ns > span_ns)
            continue;
        const double share = share_of(panel, op);
        t->used[shown] = true;
        t->shared = t->shared || share > 0.005;
        fprintf(out, "%.6f %.6f %d 0x%s %.3f ", (double)op->start_ns / unit->ns,
                (double)op->end_ns / unit->ns, (int)lane, shown_ops[shown].colour + 1, share);
        write_label(out, op, span_ns, dumb);
    }
    fputs("EOD\n", out);
}

/* The names of the lanes with their idle share, as a command of gnuplot. */
static void write_lanes(struct figure_call *call, const struct panel *panel, int p)
{
    char name[32], label[96], ticks[MAX_LANES * 112] = "set ytics (";
    size_t used = strlen(ticks);
    const int lanes = panel->shown_lanes;
    for (int lane = 0; lane < lanes; lane++) {
        const double idle = 100 * (1 - busy_share(panel, lane));
        if (panel->num_lanes > panel->num_ranks && call->plot.dumb)
            snprintf(label, sizeof label, "%d.%d: %.0f %%%% idle", lane / panel->num_ranks,
                     lane % panel->num_ranks, idle);
        else if (panel->num_lanes > panel->num_ranks)
            snprintf(label, sizeof label, "pipeline %d rank %d: %.0f %%%% idle",
                     lane / panel->num_ranks, lane % panel->num_ranks, idle);
        else
            snprintf(label, sizeof label, "rank %d: %.0f %%%% idle", lane, idle);
        used += (size_t)snprintf(ticks + used, sizeof ticks - used, "%s\"%s\" %d", lane ? "," : "",
                                 label, lane);
    }
    snprintf(ticks + used, sizeof ticks - used, ")");
    snprintf(name, sizeof name, "ytics_%d", p + 1);
    figure_text(call, name, "%s", ticks);
    fprintf(call->plot.program, "lanes_%d = %d\n", p + 1, lanes);
}

static enum status draw(struct figure_call *call, struct timeline *t, struct err *err)
{
    int64_t span_ns = 1;
    int lanes = 0;
    char name[32];
    for (int p = 0; p < t->num_panels; p++) {
        const struct panel *panel = &t->panels[p];
        span_ns = panel->span_ns > span_ns ? panel->span_ns : span_ns;
    }
    const int64_t whole_ns = span_ns;
    span_ns = choose_window(t, whole_ns);
    for (int p = 0; p < t->num_panels; p++)
        lanes += t->panels[p].shown_lanes;
    const struct time_unit *unit = figure_time_unit(span_ns);
    const int lane_px = lanes > 24 ? 22 : 34;
    const int rows = lanes < 6 ? 6 : lanes; /* the key needs this room */
    bool pipelines = false;                 /* some lanes have the longer name */
    for (int p = 0; p < t->num_panels; p++)
        pipelines = pipelines || t->panels[p].num_lanes > t->panels[p].num_ranks;
    FILE *out = figure_begin(call, 1100, 30 + 80 * t->num_panels + lane_px * rows);
    fprintf(out,
            "panels = %d\nspan = %.6f\nlanes_all = %d\nwidth_px = %d\nheight_px = %d\nleft_px = "
            "%d\ncrowded = %d\n",
            t->num_panels, (double)span_ns / unit->ns, lanes, call->width, call->height,
            pipelines         ? 215
            : call->plot.dumb ? 190
                              : 145,
            ops_of_lane(t) > WIDE_BARS && span_ns == whole_ns);
    figure_text(call, "time_unit", "%s", unit->name);
    for (int p = 0; p < t->num_panels; p++) {
        const struct panel *panel = &t->panels[p];
        snprintf(name, sizeof name, "title_%d", p + 1);
        if (span_ns < whole_ns && panel->num_lanes > panel->shown_lanes)
            figure_text(call, name, "%s; its first %.0f %%, %s of %d", panel->title,
                        100.0 * (double)span_ns / (double)whole_ns,
                        COUNT_TEXT(panel->shown_lanes, "rank"), panel->num_lanes);
        else if (span_ns < whole_ns)
            figure_text(call, name, "%s; its first %.0f %%", panel->title,
                        100.0 * (double)span_ns / (double)whole_ns);
        else if (panel->num_lanes > MAX_LANES)
            figure_text(call, name, "%s (the first %d of %d ranks)", panel->title, MAX_LANES,
                        panel->num_lanes);
        else
            figure_text(call, name, "%s", panel->title);
        write_lanes(call, panel, p);
        write_bars(out, t, p, span_ns, unit, call->plot.dumb);
    }
    int used = 0;
    fputs("array kinds[12]\narray colours[12]\n", out);
    for (int i = 0; i < NUM_SHOWN; i++)
        if (t->used[i])
            fprintf(out, "kinds[%d] = '%s'\ncolours[%d] = '%s'\n", used + 1, shown_ops[i].name,
                    used + 1, shown_ops[i].colour),
                used++;
    fprintf(out, "num_kinds = %d\nshared = %d\n", used, t->shared);
    return figure_end(call, script_timeline, err);
}

enum status figure_timeline(struct figure_call *call, struct err *err)
{
    struct timeline t = {0};
    enum status rc = OK;
    for (int i = 0; rc == OK && i < call->num_args; i++)
        rc = add_subject(&t, &call->subjects[i], err);
    THEN(draw(call, &t, err));
    timeline_clear(&t);
    return rc;
}
