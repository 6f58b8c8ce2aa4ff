/* cli/commands/cmd_calibrate.c - `elapse calibrate`: factors between computed and measured steps,
 * kept in the store under a name. measured_rows.c reads the rows, partition/cost/calibration.c
 * fits. Read run() last.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/base/command.h"
#include "cli/commands/measured_rows.h"
#include "partition/cost/calibration_prior.h"
#include "partition/model/framework.h"
#include "partition/base/units.h"
#include "profiles/json/build_facts.h"
#include "profiles/store/store_calibration.h"

struct request {
    struct option_list steps, measured, peaks, csvs, runs, judges;
    const char *name, *db_path, *remove, *framework;
    bool list, as_json;
};

/* --- rows ------------------------------------------------------------------------------------- */

static enum status read_rows(const struct request *q, struct measured_rows *rows, struct err *err)
{
    const int pairs = q->measured.count;
    const char *common = "";
    enum status rc = OK;
    if (pairs == 0 && q->steps.count == 1 && q->csvs.count + q->judges.count > 0)
        common = q->steps.items[0];
    else if (q->steps.count != pairs)
        return err_set(err, ERR_INPUT, "--step is given %d times, --measured %d times",
                       q->steps.count, pairs);
    if (q->peaks.count > 0 && q->peaks.count != pairs)
        return err_set(err, ERR_INPUT, "--peak is given %d times, --measured %d times",
                       q->peaks.count, pairs);
    for (int i = 0; i < pairs && rc == OK; i++)
        rc = measured_rows_add(rows, q->steps.items[i], q->measured.items[i],
                               q->peaks.count ? q->peaks.items[i] : NULL, err);
    for (int i = 0; i < q->csvs.count && rc == OK; i++)
        rc = measured_rows_add_csv(rows, q->csvs.items[i], common, err);
    for (int i = 0; i < q->runs.count && rc == OK; i++)
        rc = measured_rows_add_run(rows, q->runs.items[i], err);
    return rc;
}

static enum status read_judges(const struct request *q, struct measured_rows *rows, struct err *err)
{
    const char *common = q->measured.count == 0 && q->steps.count == 1 ? q->steps.items[0] : "";
    enum status rc = OK;
    for (int i = 0; i < q->judges.count && rc == OK; i++)
        rc = measured_rows_add_csv(rows, q->judges.items[i], common, err);
    return rc;
}

/* --- the fit ---------------------------------------------------------------------------------- */

static void all_factors(const double times[FACTOR_TIMES], double factors[FACTOR_COUNT])
{
    for (int k = 0; k < FACTOR_COUNT; k++)
        factors[k] = k < FACTOR_TIMES ? times[k] : 1;
}

static enum status predict(void *ctx, int row, const double factor[FACTOR_TIMES], double *ns,
                           struct err *err)
{
    struct measured_rows *rows = ctx;
    double factors[FACTOR_COUNT];
    bool ones = true;
    all_factors(factor, factors);
    for (int k = 0; k < FACTOR_TIMES; k++)
        ones = ones && factor[k] == 1;
    *ns = rows->at[row].computed_ns;
    if (ones)
        return OK;
    const enum status rc = measured_row_simulate(rows, &rows->at[row], factors, err);
    *ns = (double)rows->at[row].answer.result.step_ns;
    return rc;
}

/* Note the device, data type and framework of a row in *c. */
static void measured_on(const struct step_answer *a, struct calibration *c)
{
    snprintf(c->device, sizeof c->device, "%s", a->cluster.devices[0].kind);
    snprintf(c->dtype, sizeof c->dtype, "%s", dtype_text((int)a->query.dtype));
    snprintf(c->launcher, sizeof c->launcher, "%s", framework_name(a->model.framework));
}

/* Every row must be computed from one kind of source, for one device, data type and framework:
 * factors of two of them would be good for neither. */
static enum status check_sources(const struct measured_rows *rows, bool *ideal, struct err *err)
{
    struct calibration first = {0}, c = {0};
    char other[96];
    *ideal = rows->at[0].answer.cost.cost.source == COST_ROOFLINE;
    measured_on(&rows->at[0].answer, &first);
    for (int i = 1; i < rows->n; i++) {
        if ((rows->at[i].answer.cost.cost.source == COST_ROOFLINE) != *ideal)
            return err_set(err, ERR_INPUT,
                           "%s is computed by the roofline, %s by kernels: calibrate them apart",
                           rows->at[*ideal ? 0 : i].label, rows->at[*ideal ? i : 0].label);
        measured_on(&rows->at[i].answer, &c);
        if (*calibration_differs(&first, c.device, c.dtype, c.launcher, other, sizeof other))
            return err_set(err, ERR_INPUT, "%s is of %s, %s of %s, %s, %s: calibrate them apart",
                           rows->at[0].label, other, rows->at[i].label, c.device, c.dtype,
                           c.launcher);
    }
    return OK;
}

/* The widest prior of the rows: they may be of several models. */
static struct calibration_prior prior_of(const struct measured_rows *rows, bool ideal)
{
    struct calibration_prior widest = {0};
    for (int i = 0; i < rows->n; i++) {
        const struct step_answer *a = &rows->at[i].answer;
        const struct calibration_prior prior = calibration_prior_of(
            &a->model, a->cluster.devices[0].kind, dtype_text((int)a->query.dtype), ideal);
        widest.compute = fmax(widest.compute, prior.compute);
        widest.spread = fmax(widest.spread, prior.spread);
        widest.held = fmax(widest.held, prior.held);
    }
    return widest;
}

static enum status fit(struct measured_rows *rows, struct calibration *c,
                       struct calibrated_row *fitted, struct err *err)
{
    double *measured = malloc((size_t)rows->n * sizeof *measured);
    double *ratios = malloc((size_t)rows->n * sizeof *ratios);
    bool ideal = false;
    int peaks = 0;
    enum status rc = measured && ratios ? check_sources(rows, &ideal, err) : err_nomem(err);
    for (int i = 0; rc == OK && i < rows->n; i++) {
        const struct measured_row *row = &rows->at[i];
        measured[i] = row->measured_ns;
        if (row->peak_bytes > 0)
            ratios[peaks++] = row->peak_ratio;
    }
    const struct calibration_prior prior = prior_of(rows, ideal);
    calibration_init(&prior, c);
    THEN(calibration_fit(predict, rows, measured, rows->n, ratios, peaks, c, fitted, err));
    free(measured);
    free(ratios);
    return rc;
}

/* Mean |measured - predicted| / measured of rows. */
struct judged {
    double before, after; /* without and with the calibration */
    double inside;        /* share of rows that lie in their interval */
};

/* Predict a row at the fitted factors, and its sensitivities. */
static enum status predict_row(struct measured_rows *rows, int row, const struct calibration *c,
                               struct calibrated_row *got, struct err *err)
{
    double more, times[FACTOR_TIMES];
    enum status rc = predict(rows, row, c->factor, &got->predicted_ns, err);
    for (int k = 0; k < FACTOR_TIMES && rc == OK; k++) {
        memcpy(times, c->factor, sizeof times);
        times[k] *= exp(0.05);
        rc = predict(rows, row, times, &more, err);
        got->sensitivity[k] = log(more / got->predicted_ns) / 0.05;
    }
    return rc;
}

/* fitted: what the fit left of each row; NULL: the rows were not fitted. */
static enum status judge(struct measured_rows *rows, const struct calibration *c,
                         const struct calibrated_row *fitted, struct judged *got, struct err *err)
{
    *got = (struct judged){0};
    for (int i = 0; i < rows->n; i++) {
        const struct measured_row *row = &rows->at[i];
        struct calibrated_row now;
        double interval[2];
        enum status rc = fitted ? OK : predict_row(rows, i, c, &now, err);
        if (rc != OK)
            return rc;
        now = fitted ? fitted[i] : now;
        calibration_interval(c, now.sensitivity, now.predicted_ns, interval);
        got->before += fabs(row->computed_ns / row->measured_ns - 1) / rows->n;
        got->after += fabs(now.predicted_ns / row->measured_ns - 1) / rows->n;
        got->inside +=
            (row->measured_ns >= interval[0] && row->measured_ns <= interval[1]) / (double)rows->n;
    }
    return OK;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* The relative standard deviation of a factor. */
static double relative_spread(const struct calibration *c, int factor)
{
    return sqrt(c->covariance[factor][factor]);
}

static void add_calibration(struct json *json, const struct calibration *c)
{
    json_add_string(json, "name", c->name);
    json_add_string(json, "cluster", c->cluster);
    json_add_string(json, "framework", c->framework);
    json_add_string(json, "device", c->device);
    json_add_string(json, "dtype", c->dtype);
    json_add_string(json, "train_framework", c->launcher);
    json_add_string(json, "made_at", c->made_at);
    json_add_int(json, "num_rows", c->num_rows);
    json_add_int(json, "num_peaks", c->num_peaks);
    struct json *factors = json_add_object(json, "factors");
    for (int k = 0; k < FACTOR_COUNT; k++)
        json_add_double(factors, factor_name((enum factor)k), c->factor[k]);
    struct json *spreads = json_add_object(json, "uncertainty");
    for (int k = 0; k < FACTOR_COUNT; k++)
        json_add_double(spreads, factor_name((enum factor)k), relative_spread(c, k));
    struct json *determined = json_add_object(json, "determined");
    for (int k = 0; k < FACTOR_COUNT; k++)
        json_add_bool(determined, factor_name((enum factor)k), c->determined[k]);
    json_add_double(json, "noise", c->noise);
}

static void print_calibration(const struct calibration *c)
{
    printf("calibration '%s': %s on %s%s%s\n", c->name, COUNT_TEXT(c->num_rows, "step"),
           *c->cluster ? c->cluster : "an unnamed cluster", *c->framework ? ", framework " : "",
           c->framework);
    if (*c->device)
        printf("  for device %s, dtype %s, train.framework %s\n", c->device, c->dtype, c->launcher);
    for (int k = 0; k < FACTOR_COUNT; k++)
        if (c->determined[k])
            printf("  %-8s %6.3f, within %.1f %%\n", factor_name((enum factor)k), c->factor[k],
                   100 * relative_spread(c, k));
        else
            printf("  %-8s      1, not determined by these rows\n", factor_name((enum factor)k));
    printf("  error that the factors leave: %.1f %%\n", 100 * c->noise);
}

/* A row that differs more from what was computed is more likely a wrong unit than a slow machine. */
#define STRANGE_RATIO 20.0

/* What was known before, what each row says, and the factors that would have gone further. */
static void print_fit(const struct calibration *c, const struct measured_rows *rows)
{
    printf("  before any row: compute within %.1f %%\n", 100 * c->prior[FACTOR_COMPUTE]);
    for (int i = 0; i < rows->n; i++) {
        const double ratio = rows->at[i].measured_ns / rows->at[i].computed_ns;
        const bool strange = ratio > STRANGE_RATIO || ratio < 1 / STRANGE_RATIO;
        printf("  row %d: %.*f times as long as computed%s\n", i + 1, ratio < 0.01 ? 9 : 3, ratio,
               strange ? ": is its unit right?" : "");
    }
    for (int k = 0; k < FACTOR_TIMES; k++)
        if (c->at_bound[k])
            printf("  %s is as far from 1 as %s may move it: add a row\n",
                   factor_name((enum factor)k), COUNT_TEXT(c->num_rows, "row"));
}

static void add_fit(struct json *json, const struct calibration *c,
                    const struct measured_rows *rows)
{
    struct json *prior = json_add_object(json, "prior"), *bound, *list;
    for (int k = 0; k < FACTOR_COUNT; k++)
        json_add_double(prior, factor_name((enum factor)k), c->prior[k]);
    bound = json_add_object(json, "at_bound");
    for (int k = 0; k < FACTOR_COUNT; k++)
        json_add_bool(bound, factor_name((enum factor)k), c->at_bound[k]);
    list = json_add_array(json, "measured_over_computed");
    for (int i = 0; i < rows->n; i++)
        json_add_double(list, NULL, rows->at[i].measured_ns / rows->at[i].computed_ns);
}

static void add_judged(struct json *json, const char *key, const struct judged *got, int rows)
{
    struct json *object = json_add_object(json, key);
    json_add_int(object, "rows", rows);
    json_add_double(object, "mean_abs_error_before", got->before);
    json_add_double(object, "mean_abs_error", got->after);
    json_add_double(object, "share_in_interval", got->inside);
}

static void print_judged(const char *what, const struct judged *got, int rows)
{
    printf("%s (%d): mean error %.1f %%, without the calibration %.1f %%; %.0f %% lie in their "
           "interval\n",
           what, rows, 100 * got->after, 100 * got->before, 100 * got->inside);
}

/* --- the command ------------------------------------------------------------------------------ */

static enum status put(const struct request *q, struct calibration *c, struct err *err)
{
    struct store *store = NULL;
    struct tm utc;
    const time_t now = time(NULL);
    strftime(c->made_at, sizeof c->made_at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    snprintf(c->version, sizeof c->version, "%s", build_facts.version);
    enum status rc = store_open(q->db_path, STORE_WRITE, &store, err);
    THEN(store_put_calibration(store, c, err));
    store_close(store);
    return rc;
}

static enum status make(const struct command *command, const struct request *q,
                        struct measured_rows *rows, struct measured_rows *judges, struct err *err)
{
    struct calibration c;
    struct judged own, others;
    struct calibrated_row *fitted = NULL;
    struct json *json = NULL;
    enum status rc = read_rows(q, rows, err);
    if (rc == OK && rows->n == 0)
        rc = err_set(err, ERR_INPUT, "calibrate needs --step and --measured, --csv or --run");
    THEN(read_judges(q, judges, err));
    fitted = rc == OK ? calloc((size_t)rows->n, sizeof *fitted) : NULL;
    if (rc == OK && !fitted)
        rc = err_nomem(err);
    THEN(fit(rows, &c, fitted, err));
    THEN(judge(rows, &c, fitted, &own, err));
    THEN(judge(judges, &c, NULL, &others, err));
    free(fitted);
    if (rc != OK)
        return rc;
    snprintf(c.name, sizeof c.name, "%s", q->name);
    snprintf(c.cluster, sizeof c.cluster, "%s", rows->at[0].answer.cluster.name);
    measured_on(&rows->at[0].answer, &c);
    snprintf(c.framework, sizeof c.framework, "%s", q->framework ? q->framework : "");
    rc = put(q, &c, err);
    if (rc != OK)
        return rc;
    for (int i = 0; i < rows->n; i++)
        if (rows->at[i].log.first_left_out)
            fprintf(stderr,
                    "note: %s: its first step is left out, because it warms up and DDP "
                    "reduces all gradients in one bucket\n",
                    rows->at[i].label);
    if (q->as_json) {
        json = command_json(command);
        add_calibration(json, &c);
        add_fit(json, &c, rows);
        add_judged(json, "fitted", &own, rows->n);
        if (judges->n > 0)
            add_judged(json, "judged", &others, judges->n);
        return command_answer(json, err);
    }
    print_calibration(&c);
    print_fit(&c, rows);
    print_judged("these rows", &own, rows->n);
    if (judges->n > 0)
        print_judged("rows that were not fitted", &others, judges->n);
    printf("use it: --calibration %s, or \"cost\": {\"calibration\": \"%s\"}\n", c.name, c.name);
    return OK;
}

static enum status list(const struct command *command, const struct request *q, struct err *err)
{
    char(*names)[CALIBRATION_NAME_MAX] = NULL;
    struct store *store = NULL;
    int n = 0;
    struct json *json = q->as_json ? command_json(command) : NULL;
    struct json *all = json ? json_add_array(json, "calibrations") : NULL;
    enum status rc = store_open(q->db_path, STORE_READ, &store, err);
    THEN(store_list_calibrations(store, &names, &n, err));
    for (int i = 0; i < n && rc == OK; i++) {
        struct calibration c;
        rc = store_get_calibration(store, names[i], &c, err);
        if (rc == OK && json)
            add_calibration(json_add_object(all, NULL), &c);
        else if (rc == OK)
            print_calibration(&c);
    }
    free(names);
    store_close(store);
    if (rc == OK && json)
        return command_answer(json, err);
    json_free(json);
    return rc;
}

static enum status remove_one(const struct request *q, struct err *err)
{
    struct store *store = NULL;
    enum status rc = store_open(q->db_path, STORE_WRITE, &store, err);
    THEN(store_remove_calibration(store, q->remove, err));
    store_close(store);
    return rc;
}

static enum status check_request(const struct request *q, struct err *err)
{
    const int rows = q->steps.count + q->measured.count + q->csvs.count + q->runs.count;
    enum status rc = OK;
    if (q->list + (q->remove != NULL) + (q->name != NULL) > 1)
        return err_set(err, ERR_INPUT, "--list, --remove and -o exclude each other");
    if ((q->list || q->remove) && rows > 0)
        return err_set(err, ERR_INPUT, "--%s takes no steps", q->list ? "list" : "remove");
    if (!q->list && !q->remove && !q->name) {
        rc = err_set(err, ERR_INPUT, "calibrate: -o NAME is missing");
        err_hint(err, "elapse calibrate --step \"JOB or flags\" --measured TIME -o NAME");
    } else if (q->name && (!*q->name || strlen(q->name) >= CALIBRATION_NAME_MAX)) {
        rc = err_set(err, ERR_INPUT, "-o must have 1..%d bytes, got %zu", CALIBRATION_NAME_MAX - 1,
                     strlen(q->name));
    }
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    struct request q = {0};
    const struct option options[] = {
        OPTION("step", LIST, &q.steps, "TEXT",
               "a step that ran: JOB, with options of 'elapse sim' (--plan, --set), or the options "
               "of 'elapse sim --step'; without --measured, the options of all rows of --csv"),
        OPTION("measured", LIST, &q.measured, "TIME",
               "how long the step took (8.31s), a trace of torch.profiler (*.json, *.json.gz), "
               "an export of Nsight Systems (*.sqlite), or a log"),
        OPTION("peak", LIST, &q.peaks, "SIZE", "the most memory that a device of the step used"),
        OPTION(
            "csv", LIST, &q.csvs, "FILE",
            "measured steps: a header with 'measured', 'peak' and names of settings or job keys"),
        OPTION("run", LIST, &q.runs, "RUN_DIR", "the folder of a run of 'elapse train'"),
        OPTION("judge", LIST, &q.judges, "FILE",
               "a CSV of steps that are not fitted: print how well the calibration predicts them"),
        OPTION("o", STRING, &q.name, "NAME", "the calibration's name in the store"),
        OPTION("framework", STRING, &q.framework, "TEXT", "what ran the steps, for people"),
        OPTION("list", FLAG, &q.list, NULL, "print the calibrations of the store"),
        OPTION("remove", STRING, &q.remove, "NAME", "remove a calibration from the store"),
        OPTION_DB(&q.db_path),
        OPTION_JSON(&q.as_json),
    };
    struct command_line line = COMMAND_LINE(options, 0);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    rc = check_request(&q, err);
    if (rc != OK)
        return rc;
    if (q.list)
        return list(command, &q, err);
    if (q.remove)
        return remove_one(&q, err);
    struct measured_rows rows = {.db_path = q.db_path}, judges = {.db_path = q.db_path};
    rc = make(command, &q, &rows, &judges, err);
    measured_rows_clear(&rows);
    measured_rows_clear(&judges);
    return rc;
}

const struct command command_calibrate = {
    .name = "calibrate",
    .args = "--step \"JOB or flags\" --measured TIME -o NAME",
    .summary = "factors between computed and measured steps, for plan and sim",
    .takes = "",
    .run = run,
};
