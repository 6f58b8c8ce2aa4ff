#include "cli/runs/comparison.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

static bool is_compute(enum op_kind kind)
{
    return kind <= OP_Z || kind == OP_NORM || kind == OP_UPDATE;
}

double comparison_ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

/* Median of n > 0 sorted times: the middle one, or the mean of the two middle ones. */
static int64_t middle(const int64_t *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : sorted[n / 2 - 1] + (sorted[n / 2] - sorted[n / 2 - 1]) / 2;
}

static bool is_message(enum op_kind kind)
{
    return kind >= OP_SEND_ACT && kind <= OP_RECV_GRAD;
}

/* Whether two ops are the parts of two ranks in one op that ranks do together. */
static bool is_joint(struct op a, struct op b)
{
    return a.kind == b.kind && (a.kind == OP_NORM || a.kind == OP_TIED ||
                                (a.kind == OP_ALLREDUCE && a.stage == b.stage && a.arg == b.arg));
}

/* The time of an op of a real step, without a wait for other ranks. */
static int64_t real_time(const struct replay *replay, const struct op_row *op)
{
    int64_t shortest = op->end_ns - op->start_ns;
    if (op->op.kind == OP_NORM || op->op.kind == OP_TIED || op->op.kind == OP_ALLREDUCE)
        for (int64_t i = 0; i < replay->num_ops; i++) {
            const int64_t ns = replay->ops[i].end_ns - replay->ops[i].start_ns;
            if (is_joint(op->op, replay->ops[i].op) && ns < shortest)
                shortest = ns;
        }
    return shortest;
}

static void add_parts(struct comparison *c, const struct replay *replay)
{
    for (int i = 0; i < replay->num_parts; i++) {
        const int64_t ns = replay->part_ns[i];
        if (c->num_parts == 0 || ns < c->real_low_ns)
            c->real_low_ns = ns;
        if (c->num_parts++ == 0 || ns > c->real_high_ns)
            c->real_high_ns = ns;
    }
}

bool comparison_interval(const struct comparison *c, double *low, double *high)
{
    *low = comparison_ratio((double)c->sim_step_ns, (double)c->real_high_ns) - 1;
    *high = comparison_ratio((double)c->sim_step_ns, (double)c->real_low_ns) - 1;
    return c->num_parts > 0;
}

enum status comparison_add_run(struct comparison *c, const struct replay *replay, struct err *err)
{
    double step_spread = comparison_ratio((double)(replay->real_p90_ns - replay->real_p10_ns),
                                          (double)replay->real_step_ns);
    int64_t busy = 0, span = 0;
    c->num_ranks = replay->plan.num_ranks;
    c->num_replicas = plan_width(&replay->plan);
    c->num_microbatches = replay->plan.microbatches.count;
    c->num_frozen_layers = replay->plan.num_frozen_layers;
    c->batch = replay->plan.batch;
    c->schedule = replay->plan.schedule;
    c->recompute = replay->plan.recompute;
    c->frozen = replay->plan.frozen;
    c->cache_unknown = replay->plan.frozen == FROZEN_CACHED && replay->cost.cost.cache_read_ns == 0;
    c->extrapolated = replay->workload.extrapolated;
    c->sim_step_ns = replay->sim.step_ns;
    c->real_peak_bytes = replay->peak_bytes;
    c->sim_peak_bytes = replay->pool_bytes;
    c->sim_bubble = replay->sim.bubble_fraction;
    c->num_steps += replay->num_counted;
    if (c->num_runs == 0 || replay->real_p10_ns < c->real_p10_ns)
        c->real_p10_ns = replay->real_p10_ns;
    c->cost = replay->cost.cost.source;
    snprintf(c->cost_label, sizeof c->cost_label, "%s", replay->cost.cost.label);
    snprintf(c->note, sizeof c->note, "%s", replay->cost.note);
    c->other_host = replay->cost.other_host;
    int at = c->num_runs++; /* insert such that the times stay sorted */
    for (; at > 0 && c->run_step_ns[at - 1] > replay->real_step_ns; at--)
        c->run_step_ns[at] = c->run_step_ns[at - 1];
    c->run_step_ns[at] = replay->real_step_ns;
    c->real_step_ns = middle(c->run_step_ns, c->num_runs);
    double run_spread = comparison_ratio(
        (double)(c->run_step_ns[c->num_runs - 1] - c->run_step_ns[0]), (double)c->real_step_ns);
    c->spread = fmax(fmax(c->spread, step_spread), run_spread);
    c->noise = c->num_runs > 1 ? run_spread : step_spread;
    c->error = comparison_ratio((double)c->sim_step_ns, (double)c->real_step_ns) - 1;
    add_parts(c, replay);

    memset(c->kinds, 0, sizeof c->kinds);
    for (int64_t i = 0; i < replay->num_ops; i++) {
        const struct op_row *op = &replay->ops[i];
        if (is_message((enum op_kind)op->op.kind))
            continue;
        c->kinds[op->op.kind].count++;
        c->kinds[op->op.kind].real_ns += real_time(replay, op);
        if (is_compute((enum op_kind)op->op.kind)) {
            busy += op->end_ns - op->start_ns;
            span = op->end_ns > span ? op->end_ns : span;
        }
    }
    for (int64_t i = 0; i < replay->sim.num_ops; i++) {
        const struct sim_op *op = &replay->sim.ops[i];
        if (!is_message((enum op_kind)op->op.kind))
            c->kinds[op->op.kind].sim_ns += op->end_ns - op->start_ns;
    }
    c->real_bubble =
        1 - comparison_ratio((double)busy, (double)span * c->num_ranks * c->num_replicas);
    return message_times(replay->ops, replay->num_ops, &replay->sim, &replay->workload, c->messages,
                         err);
}

double comparison_peak_error(const struct comparison *c)
{
    return c->sim_peak_bytes > 0
               ? comparison_ratio((double)c->sim_peak_bytes, (double)c->real_peak_bytes) - 1
               : NAN;
}

double comparison_noise_limit(double tolerance)
{
    return isnan(tolerance) ? COMPARISON_NOISY : fmax(tolerance, COMPARISON_NOISY);
}

void comparison_print_notes(const char *note, enum cost_source source)
{
    if (*note)
        fprintf(stderr, "elapse: note: %s\n", note);
    if (source != COST_MEASURED && source != COST_PUBLISHED)
        fprintf(stderr, "elapse: note: simulated with published data, which say nothing about this "
                        "machine; 'elapse profile' measures it\n");
}

enum status comparison_refuse(bool noisy, double noise_limit, bool other_host, struct err *err)
{
    if (other_host) {
        err_set(err, ERR_INFEASIBLE,
                "the profile is of another host, so its error says nothing of this one");
        err_hint(err, "'elapse profile' measures the run's host; --db names its store");
        return ERR_INFEASIBLE;
    }
    if (!noisy)
        return OK;
    err_set(err, ERR_INFEASIBLE,
            "the machine is too noisy to judge: no step time is known within %.0f %%",
            100 * noise_limit);
    err_hint(err, "let nothing else run, or take more steps");
    return ERR_INFEASIBLE;
}

bool comparison_is_noisy(const struct comparison *c, double limit)
{
    return !(c->noise <= limit);
}

void comparison_errors(double *errors, int64_t n, double *median, double *worst)
{
    qsort(errors, (size_t)n, sizeof *errors, compare_doubles);
    *median = (errors[(n - 1) / 2] + errors[n / 2]) / 2;
    *worst = errors[n - 1];
}

struct comparison_summary comparison_summarize(struct comparison *configs, int n, double tolerance)
{
    struct comparison_summary s = {.noise_limit = comparison_noise_limit(tolerance),
                                   .median_abs_error = NAN,
                                   .worst_abs_error = NAN,
                                   .worst_abs_peak_error = NAN};
    double errors[COMPARISONS_MAX];
    int quiet = 0;
    for (int i = 0; i < n; i++) {
        struct comparison *c = &configs[i];
        c->noisy = comparison_is_noisy(c, s.noise_limit);
        c->peak_error = comparison_peak_error(c);
        s.worst_abs_peak_error = fmax(s.worst_abs_peak_error, fabs(c->peak_error));
        s.worst_spread = fmax(s.worst_spread, c->spread);
        if (!c->noisy)
            errors[quiet++] = fabs(c->error);
    }
    s.num_noisy = n - quiet;
    if (quiet == 0)
        return s;
    comparison_errors(errors, quiet, &s.median_abs_error, &s.worst_abs_error);
    return s;
}
