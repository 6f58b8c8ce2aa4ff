/* Figures that simulate a job's step many times: `plot bubble` and `scaling`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/figures/figure_draw.h"
#include "partition/plan/rates.h"

enum { MAX_LINES = 16, MAX_POINTS = 16 };

/* Simulate one step of a job that the caller changed. false: there is no such plan. */
static bool step_of(const struct subject *s, const struct job *job, struct step_answer *answer)
{
    struct step_request request;
    step_request_init(&request);
    request.db_path = s->options.db_path;
    request.num_frozen = s->options.num_frozen;
    step_answer_clear(answer);
    return sim_step_of_job(&request, job, NULL, answer, NULL) == OK;
}

/* --- bubble ---------------------------------------------------------------------------------- */

struct scan_line {
    char title[64];
    int type, dash; /* colour and dash; 0: by its number */
    bool apart;     /* its points are not joined */
    int num;
    double x[MAX_POINTS], y[MAX_POINTS];
    bool stopped[MAX_POINTS]; /* the search for its plan was cut short */
};

static bool was_stopped(const struct step_answer *answer)
{
    return answer->searched.judged > 0 && !answer->searched.complete;
}

/* The bubble of one pipeline of K ranks at growing M. A batch that cannot be cut into M equal parts
 * has no point there. */
static void scan_bubble(const struct subject *s, int k, enum schedule_kind kind,
                        struct scan_line *line)
{
    struct job job = s->job; /* borrows everything */
    struct step_answer answer = {0};
    job.pipeline.num_stages = k;
    job.pipeline.num_replicas = 1;
    job.pipeline.schedule_auto = false;
    job.pipeline.schedule = kind;
    job.pipeline.balancer = BALANCER_OPTIMAL;
    job.pipeline.chunks = schedule_default_chunks(kind);
    snprintf(line->title, sizeof line->title, "K=%d %s", k, schedule_kind_name(kind));
    for (int m = 1; m <= 256 && line->num < MAX_POINTS; m *= 2) {
        job.pipeline.num_microbatches = m;
        job.train.micro = AUTO;
        if (m < k / 2 || !step_of(s, &job, &answer) || answer.plan.microbatches.count != m)
            continue;
        line->x[line->num] = m;
        line->stopped[line->num] = was_stopped(&answer);
        line->y[line->num++] = 100 * answer.result.bubble_fraction;
    }
    step_answer_clear(&answer);
}

static void write_lines(struct figure_call *call, const struct scan_line *lines, int num)
{
    FILE *out = call->plot.program;
    fprintf(out, "series = %d\narray titles[%d]\narray types[%d]\narray dashes[%d]\n", num, num,
            num, num);
    for (int i = 0; i < num; i++) {
        char name[32];
        snprintf(name, sizeof name, "titles[%d]", i + 1);
        figure_text(call, name, "%s", lines[i].title);
        fprintf(out, "types[%d] = %d\ndashes[%d] = %d\n", i + 1,
                lines[i].type ? lines[i].type : i + 1, i + 1, lines[i].dash ? lines[i].dash : 1);
        fprintf(out, "$s_%d << EOD\n", i + 1);
        for (int p = 0; p < lines[i].num; p++)
            fprintf(out, "%.9g %.9g\n%s", lines[i].x[p], lines[i].y[p], lines[i].apart ? "\n" : "");
        fputs("EOD\n", out);
    }
    bool stopped = false;
    fputs("$stopped << EOD\n", out);
    for (int i = 0; i < num; i++)
        for (int p = 0; p < lines[i].num; p++)
            if (lines[i].stopped[p]) {
                fprintf(out, "%.9g %.9g\n", lines[i].x[p], lines[i].y[p]);
                stopped = true;
            }
    fprintf(out, "EOD\nstopped = %d\n", stopped);
}

enum status figure_bubble(struct figure_call *call, struct err *err)
{
    static const enum schedule_kind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZB_H1,
                                               SCHEDULE_INTERLEAVED};
    struct subject *s = &call->subjects[0];
    struct scan_line *lines = calloc(MAX_LINES, sizeof *lines);
    int num = 0;
    if (!lines)
        return err_nomem(err);
    if (s->kind != SUBJECT_JOB) {
        free(lines);
        return err_set(err, ERR_INPUT, "plot bubble takes a JOB, got '%.200s'", s->path);
    }
    for (int k = 2; k <= s->job.cluster.num_devices && k <= 8; k *= 2)
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && num < MAX_LINES; i++) {
            lines[num].type = (int)i + 1; /* a colour a schedule, a dash a length */
            lines[num].dash = k == 2 ? 3 : k == 4 ? 2 : 1;
            scan_bubble(s, k, kinds[i], &lines[num]);
            if (lines[num].num > 0)
                num++;
            else
                lines[num] = (struct scan_line){0};
        }
    enum status rc =
        num > 0 ? OK
                : err_set(err, ERR_INFEASIBLE,
                          "%.200s: no pipeline of 2 or more ranks can run a step", s->path);
    if (rc == OK) {
        FILE *out = figure_begin(call, 1000, 520);
        write_lines(call, lines, num);
        fputs("log_x = 1\nlog_y = 0\nhow = 'linespoints'\nlimit = 0\nlimit_name = ''\nideal = 0\n",
              out);
        figure_text(call, "heading", "%s: bubble of one pipeline of K ranks (simulated)", s->word);
        figure_text(call, "x_label", "micro-batches of a step, M");
        figure_text(call, "y_label", "bubble, %% of the step");
        rc = figure_end(call, script_lines, err);
    }
    free(lines);
    return rc;
}

/* --- scaling --------------------------------------------------------------------------------- */

/* The best plan of a job on the first n devices of its cluster, for n = 1, 2, 4, ... and all: its rate
 * of this key. */
static void scan_devices(const struct subject *s, const char *key, struct scan_line *line)
{
    struct job job = s->job; /* borrows everything */
    struct step_answer answer = {0};
    const int all = s->job.cluster.num_devices;
    job.pipeline.num_stages = job.pipeline.num_replicas = AUTO;
    job.pipeline.num_microbatches = AUTO;
    job.train.micro = AUTO;
    job.pipeline.balancer = BALANCER_OPTIMAL;
    snprintf(line->title, sizeof line->title, "%.40s, best plan (simulated)", s->word);
    for (int n = 1; line->num < MAX_POINTS; n = 2 * n < all ? 2 * n : all) {
        job.cluster.num_devices = n;
        job.cluster.num_nodes = s->job.cluster.devices[n - 1].node + 1;
        if (step_of(s, &job, &answer)) {
            const struct step_rates rates = step_answer_rates(&answer);
            line->x[line->num] = n;
            line->stopped[line->num] = was_stopped(&answer);
            line->y[line->num] = rates_value(&rates, key);
            line->num += isfinite(line->y[line->num]);
        }
        if (n == all)
            break;
    }
    step_answer_clear(&answer);
}

double figure_tokens(const struct figure_call *call)
{
    double tokens = 0;
    for (int i = 0; i < call->num_args; i++) {
        const struct subject *s = &call->subjects[i];
        const double own = s->kind == SUBJECT_JOB ? rates_sample_tokens(&s->job.model) : 0;
        if (own < 1 || s->job.model.per_microbatch || (tokens > 0 && own != tokens))
            return 1;
        tokens = own;
    }
    return tokens > 0 ? tokens : 1;
}

/* A point for each run: its ranks and the samples per second of its median step. */
static void add_run(const struct subject *s, struct scan_line *line)
{
    double sum = 0;
    for (int64_t i = 0; i < s->rows.num_steps; i++)
        sum += s->rows.steps[i].samples_per_s;
    if (s->rows.num_steps > 0 && line->num < MAX_POINTS) {
        line->x[line->num] = (double)s->rows.info.num_devices;
        line->y[line->num++] = sum / (double)s->rows.num_steps;
    }
}

enum status figure_scaling(struct figure_call *call, struct err *err)
{
    struct scan_line *lines = calloc(MAX_LINES + 1, sizeof *lines);
    struct scan_line runs = {.title = "measured runs", .apart = true};
    int num = 0;
    double ideal = 0, factor;
    const char *y = call->options->y, *key = y                         ? y
                                             : figure_tokens(call) > 1 ? "tokens_per_s"
                                                                       : "samples_per_s";
    const char *label = figure_value_label(key, &factor);
    const bool grows = !strstr(key, "_per_device") && strcmp(key, "mfu") != 0 &&
                       strcmp(key, "hfu") != 0; /* with the devices */
    if (!lines)
        return err_nomem(err);
    for (int i = 0; i < call->num_args; i++) {
        const struct subject *s = &call->subjects[i];
        if (s->kind == SUBJECT_RUN && strcmp(key, "samples_per_s") == 0)
            add_run(s, &runs);
        else if (s->kind == SUBJECT_JOB && num < MAX_LINES)
            scan_devices(s, key, &lines[num++]);
    }
    if (runs.num > 0)
        lines[num++] = runs;
    for (int i = 0; i < num; i++)
        for (int p = 0; p < lines[i].num; p++)
            if (lines[i].x[p] > 0) /* few devices may be slower each, for want of memory */
                ideal = fmax(ideal, (lines[i].y[p] *= factor) / lines[i].x[p]);
    enum status rc = OK;
    if (ideal <= 0 && y)
        rc = err_set(err, ERR_INPUT,
                     "-y: no plan has a rate '%.64s' (those of 'elapse plan --json'; runs have "
                     "samples_per_s)",
                     y);
    else if (ideal <= 0)
        rc = err_set(err, ERR_INFEASIBLE, "no plan and no run to draw: give a JOB or RUN_DIRs");
    if (rc == OK) {
        FILE *out = figure_begin(call, 1000, 500);
        write_lines(call, lines, num);
        fprintf(out,
                "log_x = 1\nlog_y = %d\nhow = 'linespoints'\nlimit = "
                "0\nlimit_name = ''\nideal = %.9g\n",
                grows, grows ? ideal : 0);
        figure_text(call, "heading",
                    grows ? "training throughput by the number of devices" : "%s by devices",
                    label);
        figure_text(call, "x_label", "devices");
        figure_text(call, "y_label", "%s", label);
        rc = figure_end(call, script_lines, err);
    }
    free(lines);
    return rc;
}
