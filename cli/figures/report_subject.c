/* The part of a report about one subject. Read report_subject() at the end first. */
#include "cli/figures/report_subject.h"

#include "cli/figures/report_freeze.h"
#include "cli/figures/report_losses.h"
#include "cli/figures/report_timeline.h"
#include "cli/plans/band_show.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/safe_text.h"
#include "cli/runs/comparison.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
#include "profiles/json/json.h"

/* --- the verdict ----------------------------------------------------------------------------- */

static double summary_number(const struct subject *s, const char *key)
{
    return s->finished ? json_number(json_get(s->replay.summary, key)) : NAN;
}

/* Samples per second over a whole run, with what lies between its steps. */
static void measured_rate(const struct subject *s, struct verdict *v)
{
    double samples = 0;
    int64_t steps_ns = 0;
    for (int64_t i = 0; i < s->rows.num_steps; i++) {
        const struct step_row *step = &s->rows.steps[i];
        samples +=
            isfinite(step->samples_per_s) ? step->samples_per_s * (double)step->step_ns / 1e9 : 0;
        steps_ns += step->step_ns;
    }
    const double train_ns = summary_number(s, "train_ns");
    v->total_ns = train_ns > 0 ? (int64_t)train_ns : steps_ns;
    v->steps = s->rows.num_steps;
    v->samples_per_s = v->total_ns > 0 ? samples * 1e9 / (double)v->total_ns : NAN;
    if (s->rows.num_steps > 0) {
        v->loss_first = s->rows.steps[0].loss;
        v->loss_last = s->rows.steps[s->rows.num_steps - 1].loss;
    }
}

/* The rate of a simulated or recorded run, changes of plan included. A record lacks the number of
 * samples; it follows from the rates, because all epochs have equally many. */
static void simulated_rate(const struct subject *s, struct verdict *v)
{
    double per_sample = 0; /* time of one sample of each epoch */
    int64_t steps_ns = 0, changes_ns = 0;
    for (int64_t i = 0; i < s->rows.num_epochs; i++) {
        const struct epoch_row *e = &s->rows.epochs[i];
        v->steps += e->steps;
        per_sample += e->samples_per_s > 0 ? 1e9 / e->samples_per_s : 0;
        steps_ns += e->steps * e->step_ns;
        changes_ns += e->transition_ns;
    }
    v->total_ns = s->rows.info.total_ns > 0 ? s->rows.info.total_ns : steps_ns + changes_ns;
    const double samples =
        s->rows.num_samples > 0
            ? (double)s->rows.num_samples
            : (double)s->rows.num_epochs * (double)(v->total_ns - changes_ns) / per_sample;
    v->samples_per_s = v->total_ns > 0 ? samples * 1e9 / (double)v->total_ns : NAN;
}

/* Simulate the job's own baseline, if it has one. */
static void predict_baseline(const struct subject *s, struct verdict *v)
{
    struct job base = {0};
    if (s->kind == SUBJECT_JOB && s->job.num_baseline > 0 &&
        job_changed(&s->job, (const char *const *)s->job.baseline, s->job.num_baseline, &base,
                    NULL) == OK)
        subject_rate(s, &base, NULL, &v->baseline_samples_per_s, NULL);
    job_clear(&base);
}

/* Whether costs are those of the machine, or nothing was run. Otherwise they predict no run of it. */
static bool predicts(const struct subject *s)
{
    return s->kind != SUBJECT_RUN || (s->cost && cost_is_measured(&s->cost->cost));
}

enum status verdict_find(struct subject *s, struct verdict *v, struct err *err)
{
    *v = (struct verdict){.samples_per_s = NAN,
                          .accuracy_before = summary_number(s, "initial_accuracy"),
                          .accuracy = summary_number(s, "eval_accuracy"),
                          .loss_first = NAN,
                          .loss_last = NAN,
                          .static_samples_per_s = NAN,
                          .baseline_samples_per_s = NAN,
                          .step_error = NAN};
    enum status rc = subject_simulate(s, err);
    if (rc == OK && s->kind == SUBJECT_JOB)
        rc = subject_epochs(s, err);
    if (rc != OK)
        return rc;
    if (s->rows.num_steps > 0)
        measured_rate(s, v);
    else if (s->rows.num_epochs > 0)
        simulated_rate(s, v);
    if (!isfinite(v->accuracy))
        v->accuracy = run_rows_accuracy(&s->rows);
    if (s->sim && s->finished && s->replay.real_step_ns > 0 && predicts(s))
        v->step_error = (double)s->sim->step_ns / (double)s->replay.real_step_ns - 1;
    v->noisy = isfinite(v->step_error) && (double)(s->replay.real_p90_ns - s->replay.real_p10_ns) >
                                              COMPARISON_NOISY * (double)s->replay.real_step_ns;
    if (s->sim && s->kind == SUBJECT_PLAN)
        v->samples_per_s = step_answer_samples_per_s(&s->answer);
    if (s->sim && predicts(s))
        subject_static_rate(s, &s->cost->cost, &v->static_samples_per_s, NULL);
    predict_baseline(s, v);
    return OK;
}

/* "1.31 times as fast as", or how much longer it takes. */
static const char *speed_text(double ratio, char *text, size_t size)
{
    if (ratio >= 1.005)
        snprintf(text, size, "%.2f times as fast as", ratio);
    else if (ratio > 0.995)
        snprintf(text, size, "as fast as");
    else
        snprintf(text, size, "slower by a factor of %.2f than", 1 / ratio);
    return text;
}

/* Print the command that resumes a run that has not ended. */
static void put_resume(FILE *out, const struct subject *s)
{
    glob_t found = {0};
    char pattern[4200];
    snprintf(pattern, sizeof pattern, "%.4000s/checkpoint-*/manifest.json", s->path);
    if (glob(pattern, 0, NULL, &found) == 0)
        page_put(out, "p",
                 "It continues from its last checkpoint with: elapse train --resume %s -n %lld",
                 SHELL_PATH(s->path), (long long)s->rows.info.num_devices);
    else
        page_put(out, "p", "It left no checkpoint to continue from.");
    globfree(&found);
}

static void put_state(FILE *out, const struct subject *s, const struct verdict *v)
{
    char total[32], name[80] = "";
    const char *model = s->model ? s->model->name : "";
    if (s->rows.info.name[0] || s->job.name[0])
        snprintf(name, sizeof name, "%s", s->rows.info.name[0] ? s->rows.info.name : s->job.name);
    format_ns(v->total_ns, total, sizeof total);
    switch (s->kind) {
    case SUBJECT_RUN:
        if (!s->finished)
            page_put(out, "p", "%s was killed or is still running: %s recorded, %s of training.",
                     name, COUNT_TEXT(v->steps, "step"), total);
        else if (json_true(json_get(s->replay.summary, "interrupted")))
            page_put(out, "p", "%s (%s) was interrupted after %s, %s of training.", name, model,
                     COUNT_TEXT(v->steps, "step"), total);
        else
            page_put(out, "p", "%s trained %s: %s in %s on %s.", name, model,
                     COUNT_TEXT(v->steps, "step"), total, COUNT_TEXT(s->replay.num_ranks, "rank"));
        if (!s->finished || json_true(json_get(s->replay.summary, "interrupted")))
            put_resume(out, s);
        break;
    case SUBJECT_RECORD:
        page_put(out, "p", "%s was simulated: %s would take %s.", name,
                 COUNT_TEXT(v->steps, "step"), total);
        break;
    case SUBJECT_JOB:
        page_put(out, "p", "%s would train %s: %s in %s (simulated, nothing was run).", name, model,
                 COUNT_TEXT(v->steps, "step"), total);
        break;
    case SUBJECT_PLAN:
        page_put(out, "p", "A plan for %s; nothing was run.", model);
        break;
    }
}

/* Beyond this error of a run's own step, a measured rate beside a predicted one says little. */
#define DOUBTFUL_ERROR 0.2

/* The measured rate beside the best static plan and the job's baseline. */
static void put_comparisons(FILE *out, const struct verdict *v)
{
    char text[64];
    if (isfinite(v->static_samples_per_s) && v->noisy)
        page_put(out, "p",
                 "The best static plan without freezing is predicted at %.4g samples per second. "
                 "Equal steps of this run spread too much for a comparison.",
                 v->static_samples_per_s);
    else if (isfinite(v->static_samples_per_s) && isfinite(v->samples_per_s))
        page_put(out, "p",
                 "That is %s the best static plan without freezing, whose prediction is %.4g "
                 "samples per second.",
                 speed_text(v->samples_per_s / v->static_samples_per_s, text, sizeof text),
                 v->static_samples_per_s);
    if (isfinite(v->static_samples_per_s) && !v->noisy && fabs(v->step_error) > DOUBTFUL_ERROR)
        page_put(out, "p",
                 "That factor says little, because the prediction of this run's own step is off by "
                 "%.0f %%.",
                 100 * fabs(v->step_error));
    if (isfinite(v->baseline_samples_per_s) && isfinite(v->samples_per_s))
        page_put(out, "p", "It is %s the job's baseline, %.4g samples per second.",
                 speed_text(v->samples_per_s / v->baseline_samples_per_s, text, sizeof text),
                 v->baseline_samples_per_s);
}

/* The predicted time of a step beside the measured one. */
static void put_step(FILE *out, const struct subject *s, const struct verdict *v)
{
    char time[32], other[32];
    if (v->noisy)
        page_put(out, "p",
                 "Prediction: %s a step. The measured median is %s, but 80 %% of equal steps lie "
                 "between %s and %s: the machine was too noisy to judge the prediction.",
                 format_ns(s->sim->step_ns, time, sizeof time),
                 format_ns(s->replay.real_step_ns, other, sizeof other),
                 format_ns(s->replay.real_p10_ns, (char[32]){0}, 32),
                 format_ns(s->replay.real_p90_ns, (char[32]){0}, 32));
    else if (isfinite(v->step_error))
        page_put(out, "p",
                 "Prediction: %s a step, %.1f %% %s the measured median of %s; 80 %% of equal "
                 "steps lie between %s and %s.",
                 format_ns(s->sim->step_ns, time, sizeof time), 100 * fabs(v->step_error),
                 v->step_error < 0 ? "below" : "above",
                 format_ns(s->replay.real_step_ns, other, sizeof other),
                 format_ns(s->replay.real_p10_ns, (char[32]){0}, 32),
                 format_ns(s->replay.real_p90_ns, (char[32]){0}, 32));
    else if (s->sim && !predicts(s))
        page_put(out, "p",
                 "There is no prediction, because this machine has no profile of the model: by "
                 "published data a step takes %s, measured were %s. elapse profile makes one.",
                 format_ns(s->sim->step_ns, time, sizeof time),
                 format_ns(s->replay.real_step_ns, other, sizeof other));
    else if (s->sim)
        page_put(out, "p", "A step takes %s (simulated), with a bubble of %.1f %%.",
                 format_ns(s->sim->step_ns, time, sizeof time), 100 * s->sim->bubble_fraction);
}

static void put_speed(FILE *out, const struct subject *s, const struct verdict *v)
{
    char line[256];
    if (isfinite(v->samples_per_s))
        page_put(out, "p", "Throughput: %.4g samples per second.", v->samples_per_s);
    if (s->sim && v->samples_per_s > 0) {
        const struct job *job = s->kind == SUBJECT_RUN ? &s->replay.job : &s->job;
        const struct step_rates rates =
            rates_of_step(s->model, s->cluster, s->plan, job->train.dtype, v->samples_per_s);
        page_put(out, "p", "In other units: %s.", rates_text(&rates, NULL, line, sizeof line));
    }
    put_comparisons(out, v);
    put_step(out, s, v);
    if (s->sim && s->cost) {
        const struct setting setting = {s->model, s->cluster, &s->cost->cost};
        char says[BAND_TEXT];
        const char *band = band_text(&setting, s->cost, s->sim->step_ns, says, sizeof says);
        if (*band)
            page_put(out, "p", "%s.", band);
    }
}

static void put_verdict(FILE *out, const struct subject *s, const struct verdict *v)
{
    fputs("<div class=\"verdict\">\n", out);
    put_state(out, s, v);
    put_speed(out, s, v);
    if (isfinite(v->accuracy) && isfinite(v->accuracy_before))
        page_put(out, "p", "Accuracy on the test set: %.1f %% before, %.1f %% after.",
                 100 * v->accuracy_before, 100 * v->accuracy);
    else if (isfinite(v->accuracy))
        page_put(out, "p", "Accuracy on the test set: %.1f %%.", 100 * v->accuracy);
    if (isfinite(v->loss_first))
        page_put(out, "p", "Training loss: %.4f at the first step, %.4f at the last.",
                 v->loss_first, v->loss_last);
    fputs("</div>\n", out);
    if (s->kind == SUBJECT_RUN && !s->sim && s->finished)
        page_put(out, "p", "There is no prediction: %s", s->no_sim.msg);
}

/* --- tables ---------------------------------------------------------------------------------- */

static void put_plan(FILE *out, const struct subject *s)
{
    char text[512] = "", rest[32] = "";
    size_t used = 0;
    const struct plan *plan = s->plan;
    if (!plan)
        return;
    page_row(out, "plan", "K = %d, R = %d, M = %s of %s, %s, F = %d", plan->num_ranks,
             plan_width(plan), COUNT_TEXT(plan->microbatches.count, "micro-batch"),
             COUNT_TEXT(plan->microbatches.size, "sample"), schedule_kind_name(plan->schedule),
             plan->num_frozen_layers);
    for (int i = 0; i < plan->num_stages && used < sizeof text - 16; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? ", " : "",
                                 plan->first_item[i + 1] - plan->first_item[i]);
    if (used >= sizeof text - 16)
        snprintf(rest, sizeof rest, ", ... (%d stages)", plan->num_stages);
    page_row(out, "items per stage", "%s%s", text, rest);
}

static void put_machine(FILE *out, const struct subject *s)
{
    const struct json *machine = s->finished ? json_get(s->replay.summary, "machine") : NULL;
    const char *device = json_string(json_get(machine, "device_name"));
    const char *libraries = json_string(json_get(machine, "libraries"));
    const struct run_info *info = &s->rows.info;
    if (s->kind == SUBJECT_RUN) {
        page_row(out, "started", "%s on %s, %s", info->started_at, info->host,
                 COUNT_TEXT(info->num_devices, "rank"));
        page_row(out, "Elapse version", "%s", info->version);
    }
    if (device && *device)
        page_row(out, "processor", "%s", device);
    if (libraries && *libraries)
        page_row(out, "libraries", "%s", libraries);
    if (s->cluster)
        page_row(out, "cluster", "%s, %s in %s",
                 s->cluster->name[0] ? s->cluster->name : "of the run",
                 COUNT_TEXT(s->cluster->num_devices, "device"),
                 COUNT_TEXT(s->cluster->num_nodes, "node"));
    if (s->cost)
        page_row(out, "costs", "%s%s%s", s->cost->cost.label, s->cost->note[0] ? "; " : "",
                 s->cost->note);
    else if (info->cost_source[0])
        page_row(out, "costs", "%s", info->cost_source);
}

static void put_cell(FILE *out, double value, int digits)
{
    if (isfinite(value))
        fprintf(out, "<td>%.*f</td>", digits, value);
    else
        fputs("<td>-</td>", out);
}

static void put_epochs(FILE *out, const struct run_rows *rows)
{
    char time[32];
    if (rows->num_epochs == 0)
        return;
    page_put(out, "h3", "Epochs");
    page_table(
        out, "epoch|F|K|R|M|cache|steps|step|samples/s|bubble, %|change of plan|loss|accuracy, %");
    for (int64_t i = 0; i < rows->num_epochs; i++) {
        const struct epoch_row *row = &rows->epochs[i];
        fprintf(
            out, "<tr><td>%lld</td><td>%lld</td><td>%lld</td><td>%lld</td><td>%lld</td><td>%s</td>",
            (long long)row->epoch, (long long)row->frozen_layers, (long long)row->pipeline_length,
            (long long)row->replicas, (long long)row->microbatches, row->cached ? "read" : "-");
        fprintf(out, "<td>%lld</td><td>%s</td>", (long long)row->steps,
                format_ns(row->step_ns, time, sizeof time));
        put_cell(out, row->samples_per_s, 1);
        put_cell(out, 100 * row->bubble_fraction, 1);
        fprintf(out, "<td>%s</td>",
                row->transition_ns > 0 ? format_ns(row->transition_ns, time, sizeof time) : "-");
        put_cell(out, row->train_loss, 4);
        put_cell(out, 100 * row->eval_accuracy, 1);
        fputs("</tr>\n", out);
    }
    page_table_end(out);
}

static void put_devices(FILE *out, const struct subject *s)
{
    char busy[32], idle[32], peak[32];
    if (!s->sim)
        return;
    page_put(out, "h3", "Devices in the simulated step");
    page_table(out, "device|pipeline|rank|busy|idle|peak memory|most micro-batches in flight");
    for (int i = 0; i < s->sim->num_devices && i < 64; i++) {
        const struct sim_device *d = &s->sim->devices[i];
        fprintf(out,
                "<tr><td>%d</td><td>%d</td><td>%d</td><td>%s</td><td>%s (%.1f %%)</td><td>%s</td>"
                "<td>%d</td></tr>\n",
                d->device, d->replica, d->rank, format_ns(d->busy_ns, busy, sizeof busy),
                format_ns(d->idle_ns, idle, sizeof idle),
                100.0 * (double)d->idle_ns / (double)(s->sim->step_ns ? s->sim->step_ns : 1),
                format_bytes(d->peak_bytes, peak, sizeof peak), d->peak_live);
    }
    page_table_end(out);
    if (s->sim->num_devices > 64)
        page_put(out, "p", "The first 64 of %d devices.", s->sim->num_devices);
}

static void put_job(FILE *out, const struct subject *s)
{
    const char *text = s->rows.info.job_json ? s->rows.info.job_json : s->job.json;
    struct json *json = NULL;
    char *pretty = NULL;
    if (text && json_parse(text, "job", &json, NULL) == OK &&
        json_text(json, true, &pretty, NULL) == OK) {
        fputs("<details><summary>the whole job, with every default</summary>\n<pre>", out);
        page_text(out, pretty);
        fputs("</pre></details>\n", out);
    }
    free(pretty);
    json_free(json);
}

/* --- all of it ------------------------------------------------------------------------------- */

enum { ANY_STEP = 1 << SUBJECT_RUN | 1 << SUBJECT_JOB | 1 << SUBJECT_PLAN };
enum { ANY_EPOCHS = 1 << SUBJECT_RUN | 1 << SUBJECT_JOB | 1 << SUBJECT_RECORD };

/* clang-format off */
static const struct {
    const char *name, *caption;
    unsigned kinds; /* bits of enum subject_kind */
} shown[] = {
    {"timeline",
     "One training step, one lane per rank: passes in colour with their micro-batch, waiting in "
     "white.", ANY_STEP},
    {"throughput", "Throughput by epoch, with the plan where it changes.",
     ANY_EPOCHS},
    {"loss", "Training loss of each step and its mean; lines mark changes of plan.",
     1u << SUBJECT_RUN},
    {"freeze",
     "Frozen layers by epoch; where norms were recorded, the colour of a layer is its norm.", ANY_EPOCHS},
    {"partition",
     "Items and parameters of each stage, and the time of its passes for one micro-batch.", ANY_STEP},
    {"memory", "Memory of the devices of one pipeline over the simulated step.",
     ANY_STEP},
    {"traffic", "Bytes that devices send each other in the simulated step.",
     ANY_STEP},
};
/* clang-format on */

/* Whether a figure would show something: no freezing of nothing, no traffic of one device, no cut of
 * one stage, no level of one epoch, no curve of one step. */
static bool worth_showing(const char *name, const struct subject *s)
{
    int64_t frozen = 0;
    for (int64_t i = 0; i < s->rows.num_epochs; i++)
        frozen += s->rows.epochs[i].frozen_layers;
    if (strcmp(name, "freeze") == 0)
        return frozen > 0;
    if (strcmp(name, "throughput") == 0)
        return s->rows.num_epochs > 1;
    if (strcmp(name, "loss") == 0)
        return s->rows.num_steps > 1;
    if (strcmp(name, "timeline") == 0)
        return true;
    if (strcmp(name, "partition") == 0 && s->plan && s->plan->num_stages < 2)
        return false;
    return s->sim && (strcmp(name, "traffic") != 0 || s->sim->num_traffic > 0);
}

enum status report_subject(FILE *out, struct subject *s, const struct verdict *verdict,
                           bool interactive, struct err *err)
{
    page_put(out, "h2", "%s", s->path);
    put_verdict(out, s, verdict);
    enum status rc = interactive ? report_timelines(out, s, err) : OK;
    for (size_t i = 0; rc == OK && i < sizeof shown / sizeof shown[0]; i++)
        if (shown[i].kinds >> s->kind & 1 && worth_showing(shown[i].name, s))
            rc = page_figure(out, shown[i].name, shown[i].caption, s, 1, err);
    page_put(out, "h3", "Plan and machine");
    page_table(out, NULL);
    if (s->model)
        page_row(out, "model", "%s, %s, %s", s->model->name,
                 COUNT_TEXT(s->model->num_layers, "layer"),
                 COUNT_TEXT(s->model->num_items, "item"));
    put_plan(out, s);
    put_machine(out, s);
    page_table_end(out);
    put_epochs(out, &s->rows);
    if (s->kind == SUBJECT_RUN) {
        report_freeze(out, s->path);
        THEN(report_losses(out, s, err));
    }
    put_devices(out, s);
    put_job(out, s);
    return rc;
}
