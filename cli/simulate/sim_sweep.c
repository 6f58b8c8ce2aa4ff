/* `--sweep` of `elapse sim` and `elapse plan`: the cross product of settings, one line for each
 * point, on all cores. A new column is a row of sweep_lines.c and a value in step_values() or
 * run_values().
 *
 * Threads take the next point from a counter and store its line. The main thread prints the lines
 * in the order of the product. Read sim_sweep() at the end first, then print_lines(). */
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/threads.h"
#include "cli/plans/band_show.h"
#include "cli/plans/plan_show.h"
#include "cli/simulate/sim_command.h"
#include "cli/simulate/sweep_lines.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
#include "sim/run/elastic_run.h"

#define POINTS_MAX 10000000

struct axis {
    char *path;      /* owned */
    char **settings; /* owned, and each text: "path=value" */
    int64_t num;
};

struct line {
    char *text;  /* owned; no newline */
    double cost; /* sweep_cost(); 0: no answer */
    enum status rc;
    struct err *err; /* owned; the error that ended the sweep, or that of the first point */
    char *note;      /* owned; the warning of its profile, or the assumed options; NULL: none */
};

/* The last point of a thread. The next one has its job if all keys are equal, and its plan if the
 * settings of the step alone that a plan depends on are, too. */
struct kept {
    char *key; /* owned: point_key(); NULL: no point yet */
    struct job job;
    struct plan plan; /* num_ranks 0: none */
};

static void kept_clear(struct kept *kept)
{
    free(kept->key);
    job_clear(&kept->job);
    plan_clear(&kept->plan);
    *kept = (struct kept){0};
}

struct sweep {
    const struct command *command;
    const struct sweep_ask *ask;
    struct axis axes[OPTION_LIST_MAX];
    int num_axes;
    int64_t num_points;
    struct sweep_table table;
    struct line *lines; /* owned, num_points */
    atomic_llong next;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t made; /* signalled when a line is finished */
};

static void axis_clear(struct axis *axis)
{
    for (int64_t v = 0; axis->settings && v < axis->num; v++)
        free(axis->settings[v]);
    free(axis->settings);
    free(axis->path);
}

static const char *axis_value(const struct axis *axis, int64_t v)
{
    return axis->settings[v] + strlen(axis->path) + 1;
}

/* Parse one --sweep, such as "link=1GBps,2GBps". */
static enum status axis_parse(const char *text, struct axis *axis, struct err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || equals[1] == '\0')
        return err_set(err, ERR_INPUT, "--sweep takes path=v1,v2,..., got '%.128s'", text);
    size_t most = 1;
    for (const char *c = equals; *c; c++)
        most += *c == ',';
    axis->path = strndup(text, (size_t)(equals - text));
    axis->settings = calloc(most, sizeof *axis->settings);
    if (!axis->path || !axis->settings)
        return err_nomem(err);
    for (const char *value = equals; *value;) {
        size_t length = strcspn(++value, ",");
        if (length == 0)
            return err_set(err, ERR_INPUT, "--sweep %s: an empty value", axis->path);
        if (length > INT_MAX ||
            asprintf(&axis->settings[axis->num], "%s=%.*s", axis->path, (int)length, value) < 0) {
            axis->settings[axis->num] = NULL;
            return err_nomem(err);
        }
        axis->num++;
        value += length;
    }
    return OK;
}

/* Keep what is said of a profile. What computed costs assume is equal for most points. */
static void take_note(const struct cost_handle *cost, struct sweep_values *values)
{
    if (cost_is_measured(&cost->cost))
        memcpy(values->note, cost->note, sizeof values->note);
}

static void step_values(const struct step_answer *a, struct sweep_values *values)
{
    const struct sim_result *r = &a->result;
    int64_t peak = 0;
    for (int i = 0; i < r->num_devices; i++)
        if (r->devices[i].peak_bytes > peak)
            peak = r->devices[i].peak_bytes;
    *values = (struct sweep_values){
        .step_ns = r->step_ns,
        .peak_bytes = peak,
        .allreduce_ns = r->allreduce_ns,
        .allreduce_exposed_ns = r->allreduce_exposed_ns,
        .events = r->events,
        .bubble_fraction = r->bubble_fraction,
        .samples_per_s = step_answer_samples_per_s(a),
        .rates = step_answer_rates(a),
        .pipeline_length = a->plan.num_ranks,
        .replicas = plan_width(&a->plan),
        .microbatches = a->plan.microbatches.count,
        .schedule = a->plan.schedule,
        .extrapolated = a->workload.extrapolated,
        .searched = a->searched,
        .layout = a->plan.layout,
    };
    values->layout.tensor = layout_tensor(&a->plan.layout);
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    band_of_step(&setting, &a->cost, r->step_ns, values->step_band_ns);
    take_note(&a->cost, values);
}

static enum status run_values(const struct step_request *request, const struct job *job,
                              struct sweep_values *values, struct err *err)
{
    struct job base = {0};
    struct elastic_run run = {0}, baseline = {0};
    struct cost_handle cost = {0};
    enum status rc = cost_choose(request->db_path, job, &cost, err);
    THEN(simulate_job(request, job, &cost.cost, NULL, &run, err));
    if (rc == OK && job->num_baseline > 0)
        rc = job_point(job, (const char *const *)job->baseline, job->num_baseline, &base, err);
    if (rc == OK && job->num_baseline > 0)
        rc = simulate_job(request, &base, NULL, NULL, &baseline, err);
    if (rc == OK) {
        const double hours = run.device_hours + run.device_hours_idle;
        values->total_ns = run.total_ns;
        values->baseline_ns = baseline.total_ns;
        values->speedup = baseline.num_epochs > 0 ? elastic_speedup(&run, &baseline) : 0;
        values->device_hours = run.device_hours;
        values->samples_per_s = run.epochs[0].samples_per_s;
        values->step_ns = run.epochs[0].step_ns;
        values->cost = hours * job->cluster.price_per_hour;
        values->energy_kwh = hours * job->cluster.power_watts / 1000;
        values->searched = run.searched;
        if (baseline.searched.judged > 0 && !baseline.searched.complete)
            values->searched.complete = false;
        values->extrapolated = run.extrapolated || baseline.extrapolated;
        values->pipeline_length = run.epochs[0].pipeline_length;
        values->replicas = run.epochs[0].replicas;
        values->layout.tensor = layout_tensor(&job->pipeline.layout.at);
        values->microbatches = run.epochs[0].microbatches;
        values->schedule = run.epochs[0].schedule;
        take_note(&cost, values);
    }
    cost_handle_clear(&cost);
    elastic_run_clear(&run);
    elastic_run_clear(&baseline);
    job_clear(&base);
    return rc;
}

/* A text that is equal for points with one job and one plan; NULL: no memory. */
static char *point_key(const struct job_sets *sets, const struct step_request *q)
{
    char *key = NULL;
    size_t size;
    FILE *out = open_memstream(&key, &size);
    if (!out)
        return NULL;
    fprintf(out, "%" PRId64 " %d %d %.17g %s", q->num_frozen, (int)q->frozen, q->cache_write,
            q->share, q->cut_text ? q->cut_text : "");
    for (int i = 0; i < sets->count; i++)
        fprintf(out, "\n%s", sets->items[i]);
    if (fclose(out) == 0)
        return key;
    free(key);
    return NULL;
}

/* The request of a point, and its job in *kept. */
static enum status make_point(const struct sweep *sweep, const int64_t *index, struct kept *kept,
                              struct step_request *request, struct err *err)
{
    const struct sweep_ask *ask = sweep->ask;
    const int n = ask->num_settings;
    struct step_setting settings[STEP_SETTINGS_MAX];
    struct job_sets sets = {0};
    const char *keys[OPTION_LIST_MAX];
    int num_keys = 0;
    if (n > 0)
        memcpy(settings, ask->settings, (size_t)n * sizeof *settings);
    for (int i = 0; ask->job && i < n; i++)
        settings[i].text = NULL; /* the job has them */
    for (int i = 0; i < sweep->num_axes; i++) {
        struct step_setting *s = step_setting_find(settings, n, sweep->axes[i].path);
        if (s)
            s->text = axis_value(&sweep->axes[i], index[i]);
        else
            keys[num_keys++] = sweep->axes[i].settings[index[i]];
    }
    *request = *ask->request;
    enum status rc = step_request_read(settings, n, request, err);
    THEN(job_sets_add(&sets, settings, n, !ask->job, err));
    job_sets_append(&sets, ask->overrides->items, ask->job ? 0 : ask->overrides->count);
    job_sets_append(&sets, keys, num_keys);
    char *key = rc == OK ? point_key(&sets, request) : NULL;
    if (rc == OK && !key)
        rc = err_nomem(err);
    if (rc == OK && kept->key && strcmp(key, kept->key) == 0) {
        free(key);
    } else {
        kept_clear(kept);
        THEN(job_point(ask->job, sets.items, sets.count, &kept->job, err));
        if (rc == OK)
            kept->key = key;
        else
            free(key);
    }
    if (rc != OK)
        job_sets_name_option(settings, n, err);
    job_sets_clear(&sets);
    return rc;
}

static enum status run_point(const struct sweep *sweep, const int64_t *index, struct kept *kept,
                             struct sweep_values *values, struct err *err)
{
    struct step_request request;
    struct step_answer answer = {0};
    enum status rc = make_point(sweep, index, kept, &request, err);
    if (rc == OK && !sweep->ask->step)
        rc = run_values(&request, &kept->job, values, err);
    else if (rc == OK)
        rc = sim_step_of_job(&request, &kept->job, kept->plan.num_ranks > 0 ? &kept->plan : NULL,
                             &answer, err);
    if (rc == OK && sweep->ask->step)
        step_values(&answer, values);
    if (rc == OK && sweep->ask->step && sweep->ask->job) { /* a step alone is of no run */
        const int64_t samples =
            rates_run_samples(&kept->job, &answer.plan, job_num_samples(&kept->job, true));
        values->run = run_cost_of(&kept->job.cluster, rates_run_ns(samples, values->samples_per_s));
    }
    if (kept->plan.num_ranks == 0) { /* none yet, or sim_step_of_job() took it */
        kept->plan = answer.plan;
        answer.plan = (struct plan){0};
    }
    step_answer_clear(&answer);
    return rc;
}

/* The value of each axis at a point. */
static void find_index(const struct sweep *sweep, int64_t point, int64_t *index)
{
    for (int i = sweep->num_axes - 1; i >= 0; i--) {
        index[i] = point % sweep->axes[i].num;
        point /= sweep->axes[i].num;
    }
}

static void make_line(struct sweep *sweep, struct kept *kept, int64_t point)
{
    int64_t index[OPTION_LIST_MAX];
    find_index(sweep, point, index);
    struct err err = {0};
    struct sweep_values values = {0};
    struct line line = {.rc = run_point(sweep, index, kept, &values, &err)};
    /* A refusal is the answer of this point only, because a value may be valid with other settings.
     */
    const bool refused =
        line.rc == ERR_INPUT || line.rc == ERR_INFEASIBLE || line.rc == ERR_UNFINISHED;
    if (line.rc == OK || refused) {
        values.assumed = kept->job.assumed;
        struct sweep_row row = {.values = &values, .error = refused ? err.msg : NULL};
        for (int i = 0; i < sweep->num_axes; i++)
            row.texts[i] = axis_value(&sweep->axes[i], index[i]);
        line.text = sweep_line(&sweep->table, &row);
        if (line.rc == OK)
            line.cost = sweep_cost(&sweep->table, &values);
        const struct job *job = &kept->job;
        char note[160];
        if (line.rc == OK && *values.note)
            line.note = strdup(values.note);
        else if (line.rc == OK && (job->assumed.dtype || job->assumed.optimizer))
            line.note = strdup(plan_training_text(job, note, sizeof note));
    }
    if (line.rc != OK && (!refused || point == 0) && (line.err = malloc(sizeof err)))
        *line.err = err;
    if (!line.text && !line.err)
        line.rc = ERR_NOMEM;
    pthread_mutex_lock(&sweep->lock);
    sweep->lines[point] = line;
    pthread_cond_signal(&sweep->made);
    pthread_mutex_unlock(&sweep->lock);
    if (!line.text)
        atomic_store(&sweep->stop, true);
}

static void *work(void *arg)
{
    struct sweep *sweep = arg;
    struct kept kept = {0};
    while (!atomic_load(&sweep->stop)) {
        int64_t point = atomic_fetch_add(&sweep->next, 1);
        if (point >= sweep->num_points)
            break;
        make_line(sweep, &kept, point);
    }
    kept_clear(&kept);
    return NULL;
}

/* Print the notes of the points on stderr, each once, and the first few alone. */
static void print_notes(const struct sweep *sweep)
{
    enum { MOST_NOTES = 8 };
    const char *printed[MOST_NOTES];
    int n = 0;
    for (int64_t point = 0; point < sweep->num_points && n < MOST_NOTES; point++) {
        const char *note = sweep->lines[point].note;
        bool known = !note;
        for (int i = 0; i < n && !known; i++)
            known = strcmp(printed[i], note) == 0;
        if (known)
            continue;
        fprintf(stderr, "elapse: note: %s\n", note);
        printed[n++] = note;
    }
}

/* Name the fastest point after a table. */
static void print_fastest(const struct sweep *sweep, int64_t point)
{
    int64_t index[OPTION_LIST_MAX];
    if (sweep->table.form != SWEEP_TABLE || point < 0 || sweep->num_points < 2)
        return;
    find_index(sweep, point, index);
    printf("fastest:");
    for (int i = 0; i < sweep->num_axes; i++)
        printf(" %s", sweep->axes[i].settings[index[i]]);
    printf("\n");
}

static void say_progress(struct ticker *progress, int64_t done, int64_t all)
{
    char text[96], left[32];
    if (!ticker_due(progress))
        return;
    snprintf(text, sizeof text, "sweep: %" PRId64 " of %" PRId64 " points, %s left", done, all,
             format_left(ticker_left(progress, (double)done / (double)all), left, sizeof left));
    ticker_say(progress, stderr, text);
}

/* Print the lines in order as they are finished. If no point has an answer, the command fails. */
static enum status print_lines(struct sweep *sweep, struct err *err)
{
    struct ticker progress;
    bool answered = false;
    int64_t fastest = -1;
    double least = 0;
    enum status rc = OK;
    ticker_begin(&progress, command_progress(sweep->ask->quiet));
    for (int64_t point = 0; point < sweep->num_points && rc == OK; point++) {
        pthread_mutex_lock(&sweep->lock);
        while (!sweep->lines[point].text && sweep->lines[point].rc == OK)
            pthread_cond_wait(&sweep->made, &sweep->lock);
        struct line line = sweep->lines[point];
        pthread_mutex_unlock(&sweep->lock);
        if (!line.text) {
            rc = line.err ? err_copy(err, line.err) : err_nomem(err);
            break;
        }
        if (isatty(STDOUT_FILENO))
            ticker_clear(&progress, stderr);
        if (puts(line.text) == EOF) /* the pipe is closed: stop */
            rc = err_set(err, ERR_SYSTEM, "cannot write to standard output");
        free(line.text);
        sweep->lines[point].text = NULL;
        answered = answered || line.rc == OK;
        if (line.cost > 0 && (fastest < 0 || line.cost < least)) {
            least = line.cost;
            fastest = point;
        }
        say_progress(&progress, point + 1, sweep->num_points);
    }
    ticker_clear(&progress, stderr);
    if (rc == OK)
        print_fastest(sweep, fastest);
    if (rc == OK && sweep->table.form != SWEEP_JSON) /* its lines have them */
        print_notes(sweep);
    const struct err *first = sweep->lines[0].err;
    if (rc == OK && !answered) {
        rc = first
                 ? err_set(err, first->status, "no point has an answer; the first: %s", first->msg)
                 : err_nomem(err);
        if (first)
            err_hint(err, "%s", first->hint);
    }
    return rc;
}

/* The form of the sweep's table. A terminal gets a table for people; a program that reads
 * the output gets JSON lines, as it does with --json. */
static struct sweep_table sweep_table(const struct sweep *sweep)
{
    const struct sweep_ask *ask = sweep->ask;
    struct sweep_table table = {
        .form = ask->csv                                              ? SWEEP_CSV
                : ask->table || (!ask->json && isatty(STDOUT_FILENO)) ? SWEEP_TABLE
                                                                      : SWEEP_JSON,
        .command = sweep->command,
        .num_axes = sweep->num_axes,
        .timed = !ask->no_wall,
        .of_runs = !ask->step,
    };
    for (int i = 0; i < sweep->num_axes; i++) {
        table.paths[i] = sweep->axes[i].path;
        table.widths[i] = (int)strlen(table.paths[i]);
        for (int64_t v = 0; v < sweep->axes[i].num; v++) {
            const int width = (int)strlen(axis_value(&sweep->axes[i], v));
            table.widths[i] = width > table.widths[i] ? width : table.widths[i];
        }
    }
    if (table.form == SWEEP_TABLE)
        sweep_fit(&table);
    return table;
}

/* Refuse an axis that is neither a setting nor looks like a key. */
static enum status check_path(const char *path, struct err *err)
{
    struct step_setting settings[STEP_SETTINGS_MAX];
    const char *names[STEP_SETTINGS_MAX];
    const int n = step_settings(settings);
    if (strchr(path, '.') || step_setting_find(settings, n, path))
        return OK;
    for (int i = 0; i < n; i++)
        names[i] = settings[i].name;
    const enum status rc = err_set(err, ERR_INPUT, "no setting '%.64s'", path);
    const char *near = nearest_name(path, names, n);
    if (near)
        err_hint(err, "did you mean '%s'?", near);
    else
        err_hint(err, "settings are the long options of 'elapse sim --step', without dashes");
    return rc;
}

enum status sim_sweep(const struct command *command, const struct sweep_ask *ask, struct err *err)
{
    struct sweep sweep = {.command = command, .ask = ask, .num_points = 1};
    enum status rc = OK;
    struct threads workers;
    for (int i = 0; i < ask->axes->count && rc == OK; i++) {
        struct axis *axis = &sweep.axes[sweep.num_axes++];
        rc = axis_parse(ask->axes->items[i], axis, err);
        for (int other = 0; other < i && rc == OK; other++)
            if (strcmp(sweep.axes[other].path, axis->path) == 0)
                rc = err_set(err, ERR_INPUT, "--sweep %s given twice", axis->path);
        if (rc == OK && !ask->job)
            rc = check_path(axis->path, err);
        if (rc == OK && (!mul_ok(sweep.num_points, axis->num, &sweep.num_points) ||
                         sweep.num_points > POINTS_MAX))
            rc = err_set(err, ERR_INPUT, "sweep has more than %d points", POINTS_MAX);
    }
    if (rc != OK)
        goto out;
    sweep.lines = calloc((size_t)sweep.num_points, sizeof *sweep.lines);
    if (!sweep.lines) {
        rc = err_nomem(err);
        goto out;
    }
    pthread_mutex_init(&sweep.lock, NULL);
    pthread_cond_init(&sweep.made, NULL);
    sweep.table = sweep_table(&sweep);
    sweep_head(&sweep.table);
    threads_start(&workers, ask->threads, sweep.num_points, work, &sweep);
    rc = print_lines(&sweep, err);
    atomic_store(&sweep.stop, true);
    threads_join(&workers);
    pthread_mutex_destroy(&sweep.lock);
    pthread_cond_destroy(&sweep.made);
out:
    for (int64_t i = 0; sweep.lines && i < sweep.num_points; i++) {
        free(sweep.lines[i].text);
        free(sweep.lines[i].err);
        free(sweep.lines[i].note);
    }
    free(sweep.lines);
    for (int i = 0; i < sweep.num_axes; i++)
        axis_clear(&sweep.axes[i]);
    return rc;
}
