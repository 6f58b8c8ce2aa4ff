/* `elapse sim --sweep`: the cross product of settings, a line each, on all cores. Lines come out in
 * the order of the product whatever thread made them. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/sim_command.h"
#include "partition/units.h"
#include "profiles/job_json.h"
#include "sim/elastic_run.h"

#define POINTS_MAX 10000000

struct axis {
    char *path;    /* owned, and the values lie in it */
    char **values; /* owned; into path */
    int64_t num;
};

struct line {
    char *text; /* owned; JSON or CSV, no newline */
    enum status rc;
    struct err *err; /* owned; of what ends the sweep */
};

struct sweep {
    const struct command *command;
    const struct sim_args *args;
    struct axis axes[OPTION_LIST_MAX];
    int num_axes;
    int64_t num_points;
    struct line *lines; /* owned, num_points */
    atomic_llong next;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t made; /* a line was made */
};

static void axis_clear(struct axis *axis)
{
    free(axis->path);
    free(axis->values);
}

/* "link=1GBps,2GBps". */
static enum status axis_parse(const char *text, struct axis *axis, struct err *err)
{
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || equals[1] == '\0')
        return err_set(err, ERR_INPUT, "--sweep takes path=v1,v2,..., got '%.128s'", text);
    axis->path = strdup(text);
    size_t most = 2;
    for (const char *c = equals; *c; c++)
        most += *c == ',';
    axis->values = calloc(most, sizeof *axis->values);
    if (!axis->path || !axis->values)
        return err_nomem(err);
    char *value = axis->path + (equals - text);
    *value++ = '\0';
    while (value) {
        char *comma = strchr(value, ',');
        if (comma)
            *comma++ = '\0';
        if (*value == '\0')
            return err_set(err, ERR_INPUT, "--sweep %s: an empty value", axis->path);
        axis->values[axis->num++] = value;
        value = comma;
    }
    return OK;
}

static void add_value(struct json *json, const char *path, const char *text)
{
    char *end;
    double number = strtod(text, &end);
    int64_t whole;
    if (parse_int(text, path, INT64_MIN / 2, INT64_MAX / 2, &whole, NULL) == OK)
        json_add_int(json, path, whole);
    else if (end != text && *end == '\0')
        json_add_double(json, path, number);
    else
        json_add_string(json, path, text);
}

/* The columns of a point's answer; values are integers unless real is set. */
struct sweep_column {
    const char *name;
    bool real;
    int64_t whole;
    double number;
};

enum { MAX_COLUMNS = 8 };

static int step_columns(const struct step_answer *a, struct sweep_column *columns)
{
    const struct sim_result *r = &a->result;
    int64_t peak = 0;
    for (int i = 0; i < r->num_devices; i++) {
        if (r->devices[i].peak_bytes > peak)
            peak = r->devices[i].peak_bytes;
    }
    double rate = r->step_ns > 0
                      ? (double)a->plan.batch * a->plan.num_replicas * 1e9 / (double)r->step_ns
                      : 0;
    columns[0] = (struct sweep_column){"step_ns", false, r->step_ns, 0};
    columns[1] = (struct sweep_column){"bubble_fraction", true, 0, r->bubble_fraction};
    columns[2] = (struct sweep_column){"samples_per_s", true, 0, rate};
    columns[3] = (struct sweep_column){"peak_bytes", false, peak, 0};
    columns[4] = (struct sweep_column){"allreduce_ns", false, r->allreduce_ns, 0};
    columns[5] = (struct sweep_column){"allreduce_exposed_ns", false, r->allreduce_exposed_ns, 0};
    columns[6] = (struct sweep_column){"events", false, r->events, 0};
    return 7;
}

static enum status run_point_job(const struct sim_args *args, const char **overrides, int num,
                                 struct sweep_column *columns, int *num_columns, struct err *err)
{
    struct job job = {0}, base = {0};
    struct cost_handle cost = {0};
    struct elastic_run run = {0}, baseline = {0};
    const char **more = NULL;
    enum status rc = job_load(args->job_path, overrides, num, &job, err);
    if (rc == OK)
        rc = cost_choose(args->request.db_path, &job, &cost, err);
    if (rc == OK)
        rc = sim_elastic(args, &job, &cost.cost, &run, err);
    if (rc == OK && job.num_baseline > 0) {
        more = calloc((size_t)num + (size_t)job.num_baseline, sizeof *more);
        if (!more)
            rc = err_nomem(err);
        for (int i = 0; rc == OK && i < num; i++)
            more[i] = overrides[i];
        for (int i = 0; rc == OK && i < job.num_baseline; i++)
            more[num + i] = job.baseline[i];
        if (rc == OK)
            rc = job_load(args->job_path, more, num + job.num_baseline, &base, err);
        if (rc == OK)
            rc = sim_elastic(args, &base, &cost.cost, &baseline, err);
    }
    if (rc == OK) {
        int64_t ns = run.total_ns;
        double speedup =
            baseline.total_ns > 0 && ns > 0 ? (double)baseline.total_ns / (double)ns : 0;
        columns[0] = (struct sweep_column){"total_ns", false, ns, 0};
        columns[1] = (struct sweep_column){"baseline_ns", false, baseline.total_ns, 0};
        columns[2] = (struct sweep_column){"speedup", true, 0, speedup};
        columns[3] = (struct sweep_column){"device_hours", true, 0, run.device_hours};
        columns[4] = (struct sweep_column){"samples_per_s", true, 0, run.epochs[0].samples_per_s};
        columns[5] = (struct sweep_column){"step_ns", false, run.epochs[0].step_ns, 0};
        *num_columns = 6;
    }
    free(more);
    elastic_run_clear(&run);
    elastic_run_clear(&baseline);
    cost_handle_clear(&cost);
    job_clear(&job);
    job_clear(&base);
    return rc;
}

static enum status run_point(const struct sweep *sweep, const int64_t *index,
                             struct step_answer *answer, struct sweep_column *columns,
                             int *num_columns, struct err *err)
{
    const struct sim_args *args = sweep->args;
    enum status rc = OK;
    if (args->job_path) {
        char texts[OPTION_LIST_MAX][160];
        const char *overrides[2 * OPTION_LIST_MAX];
        int num = 0;
        for (int i = 0; i < args->overrides.count; i++)
            overrides[num++] = args->overrides.items[i];
        for (int i = 0; i < sweep->num_axes; i++) {
            snprintf(texts[i], sizeof texts[i], "%s=%s", sweep->axes[i].path,
                     sweep->axes[i].values[index[i]]);
            overrides[num++] = texts[i];
        }
        if (!args->step)
            return run_point_job(args, overrides, num, columns, num_columns, err);
        struct sim_args point = *args;
        memcpy(point.overrides.items, overrides, (size_t)num * sizeof *overrides);
        point.overrides.count = num;
        step_answer_clear(answer);
        rc = sim_job_step(&point, answer, err);
    } else {
        struct step_request request = args->request;
        for (int i = 0; i < sweep->num_axes && rc == OK; i++)
            rc = step_request_set(&request, sweep->axes[i].path, sweep->axes[i].values[index[i]],
                                  err);
        if (rc == OK)
            rc = step_request_run(&request, answer, err);
    }
    if (rc == OK)
        *num_columns = step_columns(answer, columns);
    return rc;
}

static char *csv_line(const struct sweep *sweep, const int64_t *index,
                      const struct sweep_column *columns, int num_columns, const char *error)
{
    char text[4096];
    size_t used = 0;
    for (int i = 0; i < sweep->num_axes && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "",
                                 sweep->axes[i].values[index[i]]);
    for (int i = 0; i < num_columns && used < sizeof text; i++)
        used +=
            columns[i].real
                ? (size_t)snprintf(text + used, sizeof text - used, ",%.17g", columns[i].number)
                : (size_t)snprintf(text + used, sizeof text - used, ",%" PRId64, columns[i].whole);
    if (error && used < sizeof text)
        snprintf(text + used, sizeof text - used, ",\"%s\"", error);
    return strdup(text);
}

static char *json_line(const struct sweep *sweep, const int64_t *index,
                       const struct sweep_column *columns, int num_columns, const char *error)
{
    struct json *json = command_json(sweep->command);
    for (int i = 0; i < sweep->num_axes; i++)
        add_value(json, sweep->axes[i].path, sweep->axes[i].values[index[i]]);
    for (int i = 0; i < num_columns; i++) {
        if (columns[i].real)
            json_add_double(json, columns[i].name, columns[i].number);
        else
            json_add_int(json, columns[i].name, columns[i].whole);
    }
    if (error)
        json_add_string(json, "error", error);
    char *text = NULL;
    if (json_text(json, false, &text, NULL) != OK)
        text = NULL;
    json_free(json);
    return text;
}

static void make_line(struct sweep *sweep, int64_t point, struct step_answer *answer)
{
    int64_t index[OPTION_LIST_MAX], rest = point;
    for (int i = sweep->num_axes - 1; i >= 0; i--) {
        index[i] = rest % sweep->axes[i].num;
        rest /= sweep->axes[i].num;
    }
    struct err err = {0};
    struct sweep_column columns[MAX_COLUMNS];
    int num_columns = 0;
    struct line line = {.rc = run_point(sweep, index, answer, columns, &num_columns, &err)};
    /* "no" is an answer of this point; anything else ends the sweep. */
    const char *error = line.rc == ERR_INFEASIBLE ? err.msg : NULL;
    if (line.rc == OK || line.rc == ERR_INFEASIBLE) {
        line.text = sweep->args->csv ? csv_line(sweep, index, columns, num_columns, error)
                                     : json_line(sweep, index, columns, num_columns, error);
        line.rc = line.text ? OK : ERR_NOMEM;
    } else if ((line.err = malloc(sizeof err))) {
        *line.err = err;
    }
    pthread_mutex_lock(&sweep->lock);
    sweep->lines[point] = line;
    if (!line.text && !line.err)
        sweep->lines[point].rc = ERR_NOMEM;
    pthread_cond_signal(&sweep->made);
    pthread_mutex_unlock(&sweep->lock);
    if (line.rc != OK)
        atomic_store(&sweep->stop, true);
}

static void *work(void *arg)
{
    struct sweep *sweep = arg;
    struct step_answer answer = {0};
    while (!atomic_load(&sweep->stop)) {
        int64_t point = atomic_fetch_add(&sweep->next, 1);
        if (point >= sweep->num_points)
            break;
        make_line(sweep, point, &answer);
    }
    step_answer_clear(&answer);
    return NULL;
}

static void print_head(const struct sweep *sweep)
{
    if (!sweep->args->csv)
        return;
    for (int i = 0; i < sweep->num_axes; i++)
        printf("%s,", sweep->axes[i].path);
    printf("%s\n", sweep->args->job_path && !sweep->args->step
                       ? "total_ns,baseline_ns,speedup,device_hours,samples_per_s,step_ns"
                       : "step_ns,bubble_fraction,samples_per_s,peak_bytes,allreduce_ns,"
                         "allreduce_exposed_ns,events");
}

/* Print lines in order as they are made. */
static enum status print_lines(struct sweep *sweep, struct err *err)
{
    int64_t start = monotonic_ns(), told = start;
    bool terminal = isatty(STDERR_FILENO);
    enum status rc = OK;
    for (int64_t point = 0; point < sweep->num_points && rc == OK; point++) {
        pthread_mutex_lock(&sweep->lock);
        while (!sweep->lines[point].text && sweep->lines[point].rc == OK)
            pthread_cond_wait(&sweep->made, &sweep->lock);
        struct line line = sweep->lines[point];
        pthread_mutex_unlock(&sweep->lock);
        if (line.text) {
            puts(line.text);
            free(line.text);
            sweep->lines[point].text = NULL;
        } else if (line.err) {
            rc = err_set(err, line.rc, "%s", line.err->msg);
            if (line.err->hint[0])
                err_hint(err, "%s", line.err->hint);
        } else {
            rc = err_nomem(err);
        }
        if (terminal && monotonic_ns() - start > 2000000000 && monotonic_ns() - told > 200000000) {
            told = monotonic_ns();
            fprintf(stderr, "\r%" PRId64 " of %" PRId64 " points", point + 1, sweep->num_points);
        }
    }
    if (told != start)
        fprintf(stderr, "\r\033[K");
    return rc;
}

enum status sim_sweep(const struct command *command, const struct sim_args *args, struct err *err)
{
    struct sweep sweep = {.command = command, .args = args, .num_points = 1};
    enum status rc = OK;
    int started = 0, threads = args->threads;
    pthread_t *workers = NULL;
    for (int i = 0; i < args->sweeps.count && rc == OK; i++) {
        struct axis *axis = &sweep.axes[sweep.num_axes++];
        rc = axis_parse(args->sweeps.items[i], axis, err);
        if (rc == OK && (!mul_ok(sweep.num_points, axis->num, &sweep.num_points) ||
                         sweep.num_points > POINTS_MAX))
            rc = err_set(err, ERR_INPUT, "sweep has more than %d points", POINTS_MAX);
    }
    for (int i = 0; i < sweep.num_axes && rc == OK && !args->job_path; i++) {
        for (int64_t v = 0; v < sweep.axes[i].num && rc == OK; v++) {
            struct step_request probe = args->request;
            rc = step_request_set(&probe, sweep.axes[i].path, sweep.axes[i].values[v], err);
        }
    }
    if (rc != OK)
        goto out;
    if (threads == 0)
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1)
        threads = 1;
    if (threads > sweep.num_points)
        threads = (int)sweep.num_points;
    sweep.lines = calloc((size_t)sweep.num_points, sizeof *sweep.lines);
    workers = calloc((size_t)threads, sizeof *workers);
    if (!sweep.lines || !workers) {
        rc = err_nomem(err);
        goto out;
    }
    pthread_mutex_init(&sweep.lock, NULL);
    pthread_cond_init(&sweep.made, NULL);
    print_head(&sweep);
    for (; started < threads; started++) {
        if (pthread_create(&workers[started], NULL, work, &sweep) != 0)
            break;
    }
    if (started == 0)
        work(&sweep);
    rc = print_lines(&sweep, err);
    atomic_store(&sweep.stop, true);
    for (int i = 0; i < started; i++)
        pthread_join(workers[i], NULL);
    pthread_mutex_destroy(&sweep.lock);
    pthread_cond_destroy(&sweep.made);
out:
    for (int64_t i = 0; sweep.lines && i < sweep.num_points; i++) {
        free(sweep.lines[i].text);
        free(sweep.lines[i].err);
    }
    free(sweep.lines);
    free(workers);
    for (int i = 0; i < sweep.num_axes; i++)
        axis_clear(&sweep.axes[i]);
    return rc;
}
