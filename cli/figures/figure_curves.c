/* Figures over the steps or epochs of runs: `plot loss`, `lr`, `step-time` and `throughput`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"

/* --- over steps ------------------------------------------------------------------------------ */

/* A curve: its name on the y axis, and whether single steps scatter so much that a mean helps. */
static const struct {
    const char *kind, *label;
    bool smooth;
} curves[] = {
    {"loss",      "training loss",      true },
    {"lr",        "learning rate",      false},
    {"step-time", "time of a step, ms", true },
};

static double step_value(const char *kind, const struct step_row *step)
{
    if (strcmp(kind, "loss") == 0)
        return step->loss;
    return strcmp(kind, "lr") == 0 ? step->lr : (double)step->step_ns / NS_PER_MS;
}

/* Whether a step runs on another plan than the one before it. */
static bool plan_changed(const struct step_row *a, const struct step_row *b)
{
    return a->pipeline_length != b->pipeline_length || a->replicas != b->replicas ||
           a->frozen_layers != b->frozen_layers;
}

/* Write the rows "step value mean" of a run. The mean is exponential with the time constant
 * `window`, corrected for its start. */
static void write_curve(FILE *out, const char *kind, const struct run_rows *rows, int run,
                        double window)
{
    const double keep = exp(-1 / window);
    double sum = 0, weight = 0;
    fprintf(out, "$run_%d << EOD\n", run);
    for (int64_t i = 0; i < rows->num_steps; i++) {
        const double value = step_value(kind, &rows->steps[i]);
        if (!isfinite(value))
            continue;
        sum = keep * sum + (1 - keep) * value;
        weight = keep * weight + (1 - keep);
        fprintf(out, "%lld %.9g %.9g\n", (long long)rows->steps[i].step, value, sum / weight);
    }
    fputs("EOD\n", out);
}

/* Places of labels that are drawn so far, in shares of the axes, and how they lie. */
enum { LABEL_PX = 130, LINE_PX = 16 }; /* of a label's text, about */
struct labels {
    double cosine, sine;  /* of the angle that the text has */
    double width, height; /* of the axes, in pixels */
    double x[64], y[64];
    int num;
};

/* Labels of a figure that has begun. A terminal of characters cannot turn them. */
static struct labels labels_of(const struct figure_call *call, double degrees)
{
    const double angle = call->plot.dumb ? 0 : degrees * acos(-1) / 180;
    return (struct labels){.cosine = cos(angle),
                           .sine = sin(angle),
                           .width = 0.6 * call->width,
                           .height = 0.75 * call->height};
}

static bool is_free(const struct labels *labels, double x, double y)
{
    for (int i = 0; i < labels->num; i++) {
        const double right = (x - labels->x[i]) * labels->width,
                     up = (y - labels->y[i]) * labels->height;
        if (fabs(right * labels->cosine + up * labels->sine) < LABEL_PX &&
            fabs(up * labels->cosine - right * labels->sine) < LINE_PX)
            return false;
    }
    return true;
}

/* Find a place for a label that covers no other one, at most `lines` lines above *y. False: there is
 * none, so it is left out. */
static bool take_place(struct labels *labels, double x, double *y, int lines)
{
    const double line = LINE_PX / labels->height;
    double at = *y;
    while (!is_free(labels, x, at) && at < *y + lines * line)
        at += line;
    if (!is_free(labels, x, at) || labels->num == sizeof labels->x / sizeof *labels->x)
        return false;
    labels->x[labels->num] = x;
    labels->y[labels->num++] = *y = at;
    return true;
}

/* Mark the steps at which a run's plan changes by a line over the figure's height. `last` is the
 * last step of the figure. */
static void write_changes(FILE *out, const struct run_rows *rows, int run, int64_t last,
                          struct labels *labels)
{
    for (int64_t i = 1; i < rows->num_steps; i++) {
        const struct step_row *step = &rows->steps[i];
        if (!plan_changed(step - 1, step))
            continue;
        fprintf(out, "set arrow from %lld, graph 0 to %lld, graph 1 nohead lt %d lw 1 dt 3\n",
                (long long)step->step, (long long)step->step, run);
        double top = 1;
        if (!take_place(labels, (double)step->step / (double)last, &top, 0))
            continue;
        fprintf(out,
                "set label \"F=%lld K=%lld R=%lld\" at %lld, graph 1.02 left rotate by 25 "
                "textcolor lt %d\n",
                (long long)step->frozen_layers, (long long)step->pipeline_length,
                (long long)step->replicas, (long long)step->step, run);
    }
}

enum status figure_curves(struct figure_call *call, struct err *err)
{
    int curve = 0;
    int64_t longest = 0, last = 1;
    struct labels labels;
    bool changes = false;
    while (strcmp(curves[curve].kind, call->kind) != 0)
        curve++;
    for (int r = 0; r < call->num_args; r++) {
        const struct run_rows *rows = &call->subjects[r].rows;
        if (rows->num_steps < 1)
            return err_set(err, ERR_INFEASIBLE, "%.200s: no finished step", call->args[r]);
        longest = rows->num_steps > longest ? rows->num_steps : longest;
        last = rows->steps[rows->num_steps - 1].step > last ? rows->steps[rows->num_steps - 1].step
                                                            : last;
        for (int64_t i = 1; i < rows->num_steps; i++)
            changes = changes || plan_changed(&rows->steps[i - 1], &rows->steps[i]);
    }
    double window = longest < 50 ? 1 : floor((double)longest / 25);
    if (!curves[curve].smooth)
        window = 1e-9; /* the mean is the value itself */
    FILE *out = figure_begin(call, 1000, 480);
    labels = labels_of(call, 25);
    fprintf(out, "array names[%d]\n", call->num_args);
    for (int r = 0; r < call->num_args; r++) {
        char name[32];
        write_curve(out, call->kind, &call->subjects[r].rows, r + 1, window);
        write_changes(out, &call->subjects[r].rows, r + 1, last, &labels);
        snprintf(name, sizeof name, "names[%d]", r + 1);
        figure_text(call, name, "%s", call->subjects[r].word);
    }
    fprintf(out, "runs = %d\nsmooth = %d\nchanges = %d\n", call->num_args,
            curves[curve].smooth && window > 1, changes);
    figure_text(call, "what", "%s", curves[curve].label);
    if (curves[curve].smooth && window > 1)
        figure_text(call, "heading", "%s: each step (thin), and its mean over about %.0f steps",
                    curves[curve].label, window);
    else
        figure_text(call, "heading", "%s by step", curves[curve].label);
    return figure_end(call, script_curves, err);
}

/* --- over epochs ----------------------------------------------------------------------------- */

/* Write the rate of each step, at its place within its epoch. */
static void write_steps(FILE *out, const struct run_rows *rows, int run, double tokens)
{
    fprintf(out, "$steps_%d << EOD\n", run);
    for (int64_t i = 0; i < rows->num_steps;) {
        int64_t end = i;
        while (end < rows->num_steps && rows->steps[end].epoch == rows->steps[i].epoch)
            end++;
        for (int64_t s = i; s < end; s++)
            if (isfinite(rows->steps[s].samples_per_s))
                fprintf(out, "%.5f %.6g\n",
                        (double)rows->steps[i].epoch + ((double)(s - i) + 0.5) / (double)(end - i),
                        tokens * rows->steps[s].samples_per_s);
        i = end;
    }
    fputs("EOD\n", out);
}

/* Write a level line over the epochs, and a label where the plan changes. A run that was ended
 * within its first epoch has only steps: their mean is the level. */
static void write_epochs(FILE *out, const struct run_rows *rows, int run, double tokens,
                         double *top)
{
    fprintf(out, "$levels_%d << EOD\n", run);
    for (int64_t i = 0; i < rows->num_epochs; i++) {
        const struct epoch_row *e = &rows->epochs[i];
        if (!isfinite(e->samples_per_s))
            continue;
        const double rate = tokens * e->samples_per_s;
        *top = fmax(*top, rate);
        fprintf(out, "%lld %.6g\n%lld %.6g\n", (long long)e->epoch, rate, (long long)e->epoch + 1,
                rate);
    }
    double sum = 0;
    for (int64_t i = 0; i < rows->num_steps; i++)
        sum += tokens * rows->steps[i].samples_per_s;
    if (rows->num_epochs == 0 && rows->num_steps > 0) {
        *top = fmax(*top, sum / (double)rows->num_steps);
        fprintf(out, "%lld %.6g\n%lld %.6g\n", (long long)rows->steps[0].epoch,
                sum / (double)rows->num_steps,
                (long long)rows->steps[rows->num_steps - 1].epoch + 1,
                sum / (double)rows->num_steps);
    }
    fputs("EOD\n", out);
}

#define THROUGHPUT_AXIS 1.5 /* the axis over the highest level, for labels (throughput.gp) */

/* Write the labels of a run where its plan changes. */
static void write_plans(FILE *out, const struct run_rows *rows, int run, double tokens, double top,
                        int64_t epochs, struct labels *labels)
{
    fprintf(out, "$changes_%d << EOD\n", run);
    for (int64_t i = 0; i < rows->num_epochs; i++) {
        const struct epoch_row *e = &rows->epochs[i], *b = i ? e - 1 : e;
        double place = tokens * e->samples_per_s / (THROUGHPUT_AXIS * top);
        if ((i == 0 || e->pipeline_length != b->pipeline_length || e->replicas != b->replicas ||
             e->frozen_layers != b->frozen_layers) &&
            take_place(labels, (double)e->epoch / (double)epochs, &place, 8))
            fprintf(out, "%lld %.6g \"F=%lld K=%lld R=%lld%s\"\n", (long long)e->epoch,
                    place * THROUGHPUT_AXIS * top, (long long)e->frozen_layers,
                    (long long)e->pipeline_length, (long long)e->replicas,
                    e->cached ? " cached" : "");
    }
    fputs("EOD\n", out);
}

enum status figure_throughput(struct figure_call *call, struct err *err)
{
    double top = 0, level = NAN;
    int64_t epochs = 1;
    struct labels labels;
    bool points = false;
    for (int r = 0; r < call->num_args; r++) {
        enum status rc = subject_epochs(&call->subjects[r], err);
        if (rc != OK)
            return rc;
        const struct run_rows *rows = &call->subjects[r].rows;
        if (rows->num_epochs < 1 && rows->num_steps < 1)
            return err_set(err, ERR_INFEASIBLE, "%.200s: no finished step", call->args[r]);
        points = points || rows->num_steps > 0;
    }
    const double tokens = figure_tokens(call);
    const struct subject *first = &call->subjects[0];
    if (call->num_args == 1 && first->kind == SUBJECT_JOB) {
        const enum status rc = subject_static_rate(first, NULL, &level, err);
        if (rc != OK)
            return rc;
        level *= tokens;
        top = isfinite(level) ? level : 0;
    }
    FILE *out = figure_begin(call, 1000, 480);
    labels = labels_of(call, 60);
    fprintf(out, "array names[%d]\n", call->num_args);
    for (int r = 0; r < call->num_args; r++) {
        const struct subject *s = &call->subjects[r];
        char name[32];
        write_steps(out, &s->rows, r + 1, tokens);
        write_epochs(out, &s->rows, r + 1, tokens, &top);
        snprintf(name, sizeof name, "names[%d]", r + 1);
        figure_text(call, name, "%s%s", s->word, s->rows.info.simulated ? " (simulated)" : "");
        for (int64_t i = 0; i < s->rows.num_epochs; i++)
            epochs = s->rows.epochs[i].epoch + 1 > epochs ? s->rows.epochs[i].epoch + 1 : epochs;
    }
    for (int r = 0; r < call->num_args; r++)
        write_plans(out, &call->subjects[r].rows, r + 1, tokens, top, epochs, &labels);
    fprintf(out, "runs = %d\npoints = %d\ntop = %.6g\nepochs = %lld\nlevel = %.6g\n",
            call->num_args, points, top, (long long)epochs, isfinite(level) ? level : 0.0);
    figure_text(call, "y_label", tokens > 1 ? "tokens per second" : "samples per second");
    return figure_end(call, script_throughput, err);
}
