/* The kinds of figures, and what each is drawn from. Read figure_draw() at the end first. */
#include "cli/figures/figures.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "partition/base/units.h"

/* clang-format off */
const struct figure_kind figure_kinds[] = {
    {"timeline",   "RUN_DIR | JOB | PLAN_FILE ...", "the ops of one step, a lane a rank",          figure_timeline,
          3,               FIGURE_DB},
    {"loss",       "RUN_DIR ...",                   "training loss, smoothed, changes marked",     figure_curves,     FIGURE_MAX_RUNS, 0},
    {"lr",         "RUN_DIR ...",                   "learning rate by step",                       figure_curves,     FIGURE_MAX_RUNS, 0},
    {"step-time",  "RUN_DIR ...",                   "time of each step",                           figure_curves,     FIGURE_MAX_RUNS, 0},
    {"throughput", "RUN_DIR | RECORD | JOB ...",    "samples or tokens a second by epoch",         figure_throughput,
        FIGURE_MAX_RUNS, FIGURE_DB},
    {"error",      "COMPARE_JSON",                  "simulated against measured step time",        figure_error,
             1,               FIGURE_OF_FILES | FIGURE_DB},
    {"memory",     "RUN_DIR | JOB | PLAN_FILE",     "memory of each device over a step",           figure_memory,
            1,               FIGURE_DB},
    {"traffic",    "RUN_DIR | JOB | PLAN_FILE",     "bytes between devices in a step",             figure_traffic,
           1,               FIGURE_DB},
    {"partition",  "RUN_DIR | JOB | PLAN_FILE",     "items and time of each stage",                figure_partition,
         1,               FIGURE_DB},
    {"freeze",     "RUN_DIR | RECORD | JOB",        "frozen layers by epoch, over gradient norms", figure_freeze,
            1,               FIGURE_DB},
    {"breakdown",  "JOB",                           "speed with parts of elastic training off",    figure_breakdown,
         1,               FIGURE_DB},
    {"bubble",     "JOB",                           "bubble by M, for several K and schedules",    figure_bubble,
            1,               FIGURE_DB},
    {"scaling",    "JOB ... | RUN_DIR ...",         "a rate by devices: samples, tokens, -y mfu",  figure_scaling,
           FIGURE_MAX_RUNS, FIGURE_DB | FIGURE_Y},
    {"sweep",      "SWEEP_JSON",                    "a sweep as lines or, with --heat, as colours", figure_sweep,
             1,               FIGURE_OF_FILES | FIGURE_DB | FIGURE_Y | FIGURE_X},
    {"goodput",    "FAULTS_JSON",                   "useful time by the interval of checkpoints",  figure_goodput,
           1,               FIGURE_OF_FILES | FIGURE_DB},
    {"losses",     "TIMELINE_CSV | RUN_DIR",        "a run with its losses: what each time was",   figure_losses,
            1,               FIGURE_OF_FILES | FIGURE_DB},
};
/* clang-format on */
const int num_figure_kinds = sizeof figure_kinds / sizeof figure_kinds[0];

FILE *figure_begin(struct figure_call *call, int width, int height)
{
    const struct figure_options *options = call->options;
    call->height = options->height ? options->height : height;
    call->width = options->width ? options->width : width;
    gnuplot_size(&call->plot, call->width, call->height);
    return call->plot.program;
}

void figure_text(struct figure_call *call, const char *name, const char *format, ...)
{
    char *text = NULL;
    va_list list;
    va_start(list, format);
    if (vasprintf(&text, format, list) < 0)
        text = NULL;
    va_end(list);
    fprintf(call->plot.program, "%s = ", name);
    gnuplot_quote(&call->plot, text ? text : "");
    fputc('\n', call->plot.program);
    free(text);
}

const struct time_unit *figure_time_unit(int64_t span_ns)
{
    static const struct time_unit units[] = {
        {"us", 1e3},
        {"ms", 1e6},
        {"s",  1e9}
    };
    return &units[span_ns < 2000000 ? 0 : span_ns < 10000000000 ? 1 : 2];
}

const char *figure_plan_text(const struct plan *plan, char *text, size_t size)
{
    snprintf(text, size, "K=%d R=%d M=%d %s", plan->num_ranks, plan_width(plan),
             plan->microbatches.count, schedule_kind_name(plan->schedule));
    return text;
}

static enum status find_figure(const char *name, const struct figure_kind **kind, struct err *err)
{
    char known[512];
    const char *names[sizeof figure_kinds / sizeof figure_kinds[0]];
    for (int i = 0; i < num_figure_kinds; i++) {
        *kind = &figure_kinds[i];
        names[i] = figure_kinds[i].name;
        if (strcmp(names[i], name) == 0)
            return OK;
    }
    const char *near = nearest_name(name, names, num_figure_kinds);
    enum status rc = err_set(err, ERR_INPUT, "no figure '%.64s'; there are %s", name,
                             join_names(names, num_figure_kinds, known, sizeof known));
    if (near)
        err_hint(err, "did you mean '%s'?", near);
    return rc;
}

static enum status draw(struct figure_call *call, const struct figure_kind *kind, struct err *err)
{
    const struct figure_options *options = call->options;
    enum status rc = gnuplot_begin(&call->plot, options->out_path, options->term, err);
    for (int i = 0; rc == OK && call->subjects && i < call->num_args; i++)
        if (!call->subjects[i].path)
            rc = subject_open(call->args[i], &options->subject, &call->subjects[i], err);
    THEN(kind->draw(call, err));
    gnuplot_clear(&call->plot);
    return rc;
}

/* Refuse an option that the kind does not take. */
static enum status check_options(const struct figure_kind *kind,
                                 const struct figure_options *options, struct err *err)
{
    if (options->subject.db_path && !(kind->flags & FIGURE_DB))
        return err_set(err, ERR_INPUT, "--db: only 'plot timeline' takes it");
    if (options->y && !(kind->flags & FIGURE_Y))
        return err_set(err, ERR_INPUT, "-y: only plot sweep and scaling take it");
    if ((options->x || options->heat) && !(kind->flags & FIGURE_X))
        return err_set(err, ERR_INPUT, "--%s: only plot sweep takes it", options->x ? "x" : "heat");
    return OK;
}

enum status figure_draw(const char *name, const char *const *args, int num_args,
                        const struct figure_options *options, struct err *err)
{
    struct figure_call call = {
        .kind = name, .args = args, .num_args = num_args, .options = options};
    const struct figure_kind *kind;
    enum status rc = find_figure(name, &kind, err);
    THEN(check_options(kind, options, err));
    if (rc == OK && num_args > kind->max_args)
        rc = err_set(err, ERR_INPUT, "plot %s takes at most %d of %s, got %d", name, kind->max_args,
                     kind->takes, num_args);
    if (rc == OK && !(kind->flags & FIGURE_OF_FILES)) {
        call.subjects = calloc((size_t)num_args + 1, sizeof *call.subjects);
        if (!call.subjects)
            rc = err_nomem(err);
    }
    THEN(draw(&call, kind, err));
    for (int i = 0; call.subjects && i < num_args; i++)
        subject_clear(&call.subjects[i]);
    free(call.subjects);
    return rc;
}

enum status figure_draw_subjects(const char *name, struct subject *subjects, int num_subjects,
                                 const struct figure_options *options, struct err *err)
{
    const char *paths[FIGURE_MAX_RUNS];
    struct figure_call call = {.kind = name,
                               .args = paths,
                               .num_args = num_subjects,
                               .subjects = subjects,
                               .options = options};
    const struct figure_kind *kind;
    for (int i = 0; i < num_subjects && i < FIGURE_MAX_RUNS; i++)
        paths[i] = subjects[i].path;
    enum status rc = find_figure(name, &kind, err);
    return rc == OK ? draw(&call, kind, err) : rc;
}
