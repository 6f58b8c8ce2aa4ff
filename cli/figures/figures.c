/* The kinds of figures, and what each is drawn from. Read figure_draw() at the end first. */
#include "cli/figures/figures.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "partition/base/units.h"

const struct figure_kind figure_kinds[] = {
    {"timeline",   "RUN_DIR | JOB | PLAN_FILE ...", "the ops of one step, a lane a rank"          },
    {"loss",       "RUN_DIR ...",                   "training loss, smoothed, changes marked"     },
    {"lr",         "RUN_DIR ...",                   "learning rate by step"                       },
    {"step-time",  "RUN_DIR ...",                   "time of each step"                           },
    {"throughput", "RUN_DIR | RECORD | JOB ...",    "samples or tokens a second by epoch"         },
    {"error",      "COMPARE_JSON",                  "simulated against measured step time"        },
    {"memory",     "RUN_DIR | JOB | PLAN_FILE",     "memory of each device over a step"           },
    {"traffic",    "RUN_DIR | JOB | PLAN_FILE",     "bytes between devices in a step"             },
    {"partition",  "RUN_DIR | JOB | PLAN_FILE",     "items and time of each stage"                },
    {"freeze",     "RUN_DIR | RECORD | JOB",        "frozen layers by epoch, over gradient norms" },
    {"breakdown",  "JOB",                           "speed with parts of elastic training off"    },
    {"bubble",     "JOB",                           "bubble by M, for several K and schedules"    },
    {"scaling",    "JOB ... | RUN_DIR ...",         "a rate by devices: samples, tokens, -y mfu"  },
    {"sweep",      "SWEEP_JSON",                    "a sweep as lines or, with --heat, as colours"},
    {"goodput",    "FAULTS_JSON",                   "useful time by the interval of checkpoints"  },
    {"losses",     "TIMELINE_CSV | RUN_DIR",        "a run with its losses: what each time was"   },
};
const int num_figure_kinds = sizeof figure_kinds / sizeof figure_kinds[0];

/* The function that draws each kind, in the order of figure_kinds. */
static const struct {
    figure_function *draw;
    bool of_files; /* its arguments are files of answers, not runs and jobs */
    int max_args;
} ways[] = {
    {figure_timeline,   false, 3              },
    {figure_curves,     false, FIGURE_MAX_RUNS},
    {figure_curves,     false, FIGURE_MAX_RUNS},
    {figure_curves,     false, FIGURE_MAX_RUNS},
    {figure_throughput, false, FIGURE_MAX_RUNS},
    {figure_error,      true,  1              },
    {figure_memory,     false, 1              },
    {figure_traffic,    false, 1              },
    {figure_partition,  false, 1              },
    {figure_freeze,     false, 1              },
    {figure_breakdown,  false, 1              },
    {figure_bubble,     false, 1              },
    {figure_scaling,    false, FIGURE_MAX_RUNS},
    {figure_sweep,      true,  1              },
    {figure_goodput,    true,  1              },
    {figure_losses,     true,  1              },
};
_Static_assert(sizeof ways / sizeof ways[0] == sizeof figure_kinds / sizeof figure_kinds[0],
               "one way a kind");

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

enum status figure_end(struct figure_call *call, const char *script, struct err *err)
{
    return gnuplot_run(&call->plot, script, err);
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

static enum status find_figure(const char *name, int *index, struct err *err)
{
    char known[512] = "";
    const char *names[sizeof ways / sizeof ways[0]];
    for (int i = 0; i < num_figure_kinds; i++) {
        names[i] = figure_kinds[i].name;
        if (strcmp(names[i], name) == 0) {
            *index = i;
            return OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 names[i]);
    }
    const char *near = nearest_name(name, names, num_figure_kinds);
    enum status rc = err_set(err, ERR_INPUT, "no figure '%.64s'; there are %s", name, known);
    if (near)
        err_hint(err, "did you mean '%s'?", near);
    return rc;
}

static enum status draw(struct figure_call *call, int index, struct err *err)
{
    const struct figure_options *options = call->options;
    enum status rc = gnuplot_begin(&call->plot, options->out_path, options->term, err);
    for (int i = 0; rc == OK && call->subjects && i < call->num_args; i++)
        if (!call->subjects[i].path)
            rc = subject_open(call->args[i], &options->subject, &call->subjects[i], err);
    THEN(ways[index].draw(call, err));
    gnuplot_clear(&call->plot);
    return rc;
}

enum status figure_draw(const char *name, const char *const *args, int num_args,
                        const struct figure_options *options, struct err *err)
{
    struct figure_call call = {
        .kind = name, .args = args, .num_args = num_args, .options = options};
    int index = 0;
    enum status rc = find_figure(name, &index, err);
    if (rc != OK)
        return rc;
    if (options->subject.db_path && strcmp(name, "timeline") != 0 &&
        ways[index].draw == figure_curves)
        return err_set(err, ERR_INPUT, "--db: only 'plot timeline' takes it");
    const bool sweep = strcmp(name, "sweep") == 0;
    if (options->y && !sweep && strcmp(name, "scaling") != 0)
        return err_set(err, ERR_INPUT, "-y: only plot sweep and scaling take it");
    if ((options->x || options->heat) && !sweep)
        return err_set(err, ERR_INPUT, "--%s: only plot sweep takes it", options->x ? "x" : "heat");
    if (num_args > ways[index].max_args)
        return err_set(err, ERR_INPUT, "plot %s takes at most %d of %s, got %d", name,
                       ways[index].max_args, figure_kinds[index].takes, num_args);
    if (!ways[index].of_files) {
        call.subjects = calloc((size_t)num_args + 1, sizeof *call.subjects);
        if (!call.subjects)
            return err_nomem(err);
    }
    rc = draw(&call, index, err);
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
    int index = 0;
    for (int i = 0; i < num_subjects && i < FIGURE_MAX_RUNS; i++)
        paths[i] = subjects[i].path;
    enum status rc = find_figure(name, &index, err);
    return rc == OK ? draw(&call, index, err) : rc;
}
