#include "cli/commands/measured_rows.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "cli/runs/replay.h"
#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"
#include "profiles/store/nsys.h"

enum { WORDS_MAX = 256 };

void measured_rows_clear(struct measured_rows *rows)
{
    for (int i = 0; i < rows->n; i++) {
        step_answer_clear(&rows->at[i].answer);
        free(rows->at[i].label);
    }
    free(rows->at);
    *rows = (struct measured_rows){0};
}

/* A new row at the end, counted only once it is complete. */
static struct measured_row *next_row(struct measured_rows *rows, const char *label, struct err *err)
{
    if (!array_extend(&rows->at, rows->n, sizeof *rows->at)) {
        err_nomem(err);
        return NULL;
    }
    struct measured_row *row = &rows->at[rows->n];
    *row = (struct measured_row){.label = strdup(label)};
    if (!row->label)
        err_nomem(err);
    return row->label ? row : NULL;
}

enum status measured_row_simulate(const struct measured_rows *rows, struct measured_row *row,
                                  const double *factors, struct err *err)
{
    struct step_answer *a = &row->answer;
    struct cost_query query = a->query;
    const struct sim_options options = {0};
    query.factors = factors;
    cost_handle_clear(&a->cost);
    enum status rc = cost_choose_for(rows->db_path, &a->model, &a->cluster, &query, &a->cost, err);
    return rc == OK ? step_answer_simulate(a, &options, NULL, err) : rc;
}

/* Simulate a complete row with uncalibrated costs, and count it. It ran, so its memory sufficed. */
static enum status finish_row(struct measured_rows *rows, struct measured_row *row, struct err *err)
{
    static const double ones[FACTOR_COUNT] = {1, 1, 1, 1, 1};
    struct step_answer *a = &row->answer;
    for (int d = 0; d < a->cluster.num_devices; d++)
        a->cluster.devices[d].mem_bytes = INT64_MAX;
    enum status rc = measured_row_simulate(rows, row, ones, err);
    row->computed_ns = (double)a->result.step_ns;
    for (int i = 0; rc == OK && i < a->result.num_devices; i++)
        row->computed_peak = fmax(row->computed_peak, (double)a->result.devices[i].peak_bytes);
    const double samples = (double)plan_samples(&a->plan), tokens = samples * a->model.seq;
    if (row->log.samples_per_s > 0)
        row->measured_ns = 1e9 * samples / row->log.samples_per_s;
    else if (row->log.tokens_per_s_per_device > 0)
        row->measured_ns =
            1e9 * tokens / row->log.tokens_per_s_per_device / (double)plan_num_devices(&a->plan);
    const double context = (double)a->result.context_bytes;
    if (rc == OK && row->peak_bytes > 0 && row->peak_bytes <= context)
        rc = err_set(err, ERR_INPUT, "%s: a peak of %.0f bytes is no more than the context, %.0f",
                     row->label, row->peak_bytes, context);
    row->peak_ratio = (row->peak_bytes - context) / (row->computed_peak - context);
    if (rc == OK && row->computed_ns <= 0)
        rc = err_set(err, ERR_INFEASIBLE, "%s: the computed step takes no time", row->label);
    if (rc == OK)
        rows->n++;
    return rc;
}

/* Unpack all of `in` into *text, which the caller frees. */
static enum status unpack(gzFile in, const char *path, char **text, struct err *err)
{
    enum { BLOCK = 1 << 20, PACKED_MAX = 1 << 30 };
    size_t used = 0;
    int got, code = Z_OK;
    do {
        char *more = realloc(*text, used + BLOCK + 1);
        if (!more)
            return err_nomem(err);
        *text = more;
        got = gzread(in, more + used, BLOCK);
        used += got > 0 ? (size_t)got : 0;
        if (used > PACKED_MAX)
            return err_set(err, ERR_INPUT, "%s: larger than 1 GiB when unpacked", path);
    } while (got > 0);
    const char *why = got < 0 || !gzeof(in) ? gzerror(in, &code) : "";
    if (got < 0 || code != Z_OK)
        return err_set(err, ERR_INPUT, "%s: not a whole gzip file: %s", path, why);
    (*text)[used] = '\0';
    return OK;
}

/* --- what was measured ------------------------------------------------------------------------ */

/* Read a JSON file that gzip packed, of at most PACKED_MAX bytes in all. */
static enum status read_packed(const char *path, struct json **root, struct err *err)
{
    char *text = NULL;
    int fd = -1;
    enum status rc = input_open(path, "read", &fd, NULL, err);
    gzFile in = rc == OK ? gzdopen(fd, "rb") : NULL;
    if (rc == OK && !in) {
        close(fd);
        rc = err_nomem(err);
    }
    THEN(unpack(in, path, &text, err));
    if (in && gzclose(in) != Z_OK && rc == OK)
        rc = err_set(err, ERR_INPUT, "%s: not a whole gzip file", path);
    THEN(json_parse(text, path, root, err));
    free(text);
    return rc;
}

/* The durations of the steps in a trace, and that of step 0 apart. us has room for all events. */
static int64_t list_steps(const struct json *events, double *us, double *first_us)
{
    int64_t steps = 0;
    for (const struct json *e = json_first(events); e; e = json_next(e)) {
        const char *name = json_string(json_get(e, "name"));
        const char *kind = json_string(json_get(e, "cat"));
        const double dur = json_number(json_get(e, "dur"));
        const bool device = kind && strncmp(kind, "gpu_", 4) == 0;
        if (!name || device || strncmp(name, "ProfilerStep", 12) != 0 || !(dur > 0))
            continue;
        if (strcmp(name, "ProfilerStep#0") == 0)
            *first_us = dur;
        else
            us[steps++] = dur;
    }
    return steps;
}

/* The median of the steps in a trace of torch.profiler: events "ProfilerStep#N" with a duration in
 * us. Step 0 of the run is left out where there are others: it warms up, and DDP has one bucket in
 * it. With a GPU each step shows once more, as the span of its kernels (gpu_user_annotation): that
 * one is shorter wherever the device waits, so the host's counts. */
static enum status trace_step_ns(const char *path, double *ns, bool *first_left_out,
                                 struct err *err)
{
    struct json *root = NULL;
    enum status rc =
        text_ends(path, ".gz") ? read_packed(path, &root, err) : json_read_file(path, &root, err);
    const struct json *events = rc == OK ? json_get(root, "traceEvents") : NULL;
    const int n = events ? json_count(events) : 0;
    double *us = malloc(((size_t)n + 1) * sizeof *us);
    double first_us = 0;
    if (rc == OK && !us)
        rc = err_nomem(err);
    int64_t steps = rc == OK && events ? list_steps(events, us, &first_us) : 0;
    *first_left_out = steps > 0 && first_us > 0;
    if (rc == OK && steps == 0 && first_us > 0)
        us[steps++] = first_us;
    if (rc == OK && steps == 0)
        rc = err_set(err, ERR_INPUT, "%s: a trace of torch.profiler has events 'ProfilerStep#N'",
                     path);
    if (rc == OK) {
        qsort(us, (size_t)steps, sizeof *us, compare_doubles);
        *ns = 1e3 * (us[(steps - 1) / 2] + us[steps / 2]) / 2;
    }
    free(us);
    json_free(root);
    return rc;
}

static enum status take_measured(struct measured_row *row, const char *measured, const char *peak,
                                 struct err *err)
{
    enum status rc;
    int64_t value = 0;
    if (text_ends(measured, ".json") || text_ends(measured, ".json.gz")) {
        rc = trace_step_ns(measured, &row->measured_ns, &row->log.first_left_out, err);
    } else if (text_ends(measured, ".sqlite")) {
        rc = nsys_step_ns(measured, &row->measured_ns, &row->log.first_left_out, err);
    } else if (access(measured, R_OK) == 0) {
        rc = measured_log_read(measured, &row->log, err);
        row->measured_ns = row->log.steps_per_s > 0 ? 1e9 / row->log.steps_per_s : row->log.step_ns;
        if (rc == OK && row->measured_ns <= 0)
            return rc; /* a rate of samples or tokens: finish_row() knows the step */
    } else {
        rc = parse_ns(measured, "measured", &value, err);
        row->measured_ns = (double)value;
    }
    if (rc == OK && !(row->measured_ns > 0))
        rc = err_set(err, ERR_INPUT, "measured must be more than 0, got '%.64s'", measured);
    if (rc == OK && peak && *peak) {
        rc = parse_bytes(peak, "peak", &value, err);
        row->peak_bytes = (double)value;
    }
    return rc;
}

/* --- options ---------------------------------------------------------------------------------- */

/* The words of `elapse sim` for a row. */
struct words {
    char *text; /* owned: what the words point into */
    size_t used, size;
    char *at[WORDS_MAX];
    int n;
};

static enum status add_word(struct words *words, const char *word, size_t length, struct err *err)
{
    if (words->n >= WORDS_MAX - 1 || words->used + length + 1 > words->size)
        return err_set(err, ERR_INPUT, "a step has more than %d words", WORDS_MAX);
    char *to = words->text + words->used;
    memcpy(to, word, length);
    to[length] = '\0';
    words->used += length + 1;
    words->at[words->n++] = to;
    return OK;
}

static enum status words_init(struct words *words, struct err *err)
{
    *words = (struct words){.size = 1 << 16};
    words->text = malloc(words->size);
    if (!words->text)
        return err_nomem(err);
    enum status rc = add_word(words, "sim", 3, err);
    return rc == OK ? add_word(words, "--step", 6, err) : rc;
}

/* Divide a text at blanks outside of quotes. */
static enum status words_split(struct words *words, const char *text, struct err *err)
{
    enum status rc = OK;
    while (rc == OK) {
        char word[4096];
        size_t length = 0;
        char quote = 0;
        while (isspace((unsigned char)*text))
            text++;
        if (!*text)
            break;
        for (; *text && (quote || !isspace((unsigned char)*text)); text++)
            if (quote ? *text == quote : *text == '\'' || *text == '"')
                quote = quote ? 0 : *text;
            else if (length < sizeof word)
                word[length++] = *text;
        if (quote || length == sizeof word)
            return err_set(err, ERR_INPUT, "step: %s",
                           quote ? "a quote is not closed" : "a word has more than 4096 bytes");
        rc = add_word(words, word, length, err);
    }
    return rc;
}

/* A row names the layout that ran. Where it leaves some of it to the planner, the search for that
 * may not take the 10 s that `sim` gives it. */
static const int64_t ROW_BUDGET_NS = 600 * INT64_C(1000000);

/* Read the options and simulate the step. */
static enum status take_step(struct measured_rows *rows, struct words *words, const char *label,
                             const char *measured, const char *peak, struct err *err)
{
    struct sim_args args = {0};
    struct job job = {0};
    bool help = false;
    struct err inner = {0};
    struct measured_row *row = next_row(rows, label, err);
    if (!row)
        return ERR_NOMEM;
    enum status rc = take_measured(row, measured, peak, &inner);
    THEN(sim_args_read(&command_sim, words->n, words->at, &args, &help, &inner));
    if (rc == OK && help)
        rc = err_set(&inner, ERR_INPUT, "--help is not a step");
    if (rc == OK && args.request.db_path)
        rc = err_set(&inner, ERR_INPUT, "--db belongs to 'elapse calibrate', not to a step");
    args.request.db_path = rows->db_path;
    if (args.request.time.budget_ns == PLAN_BUDGET_NS)
        args.request.time.budget_ns = ROW_BUDGET_NS;
    THEN(sim_job_load(&args, &job, &inner));
    const struct step_setting *mem = step_setting_find(args.settings, args.num_settings, "mem");
    const bool limited = mem && mem->text;
    for (int d = 0; (args.plan_path || (!args.job_path && !limited)) && d < job.cluster.num_devices;
         d++)
        job.cluster.devices[d].mem_bytes = INT64_MAX; /* it ran, so memory sufficed */
    THEN(sim_job_step(&args, &job, &row->answer, &inner));
    job_clear(&job);
    THEN(finish_row(rows, row, &inner));
    if (rc != OK) {
        step_answer_clear(&row->answer);
        free(row->label);
        err_set(err, rc, "%.160s: %.320s", label, inner.msg);
        if (*inner.hint)
            err_hint(err, "%s", inner.hint);
    }
    return rc;
}

enum status measured_rows_add(struct measured_rows *rows, const char *text, const char *measured,
                              const char *peak, struct err *err)
{
    struct words words;
    enum status rc = words_init(&words, err);
    THEN(words_split(&words, text, err));
    THEN(take_step(rows, &words, text, measured, peak, err));
    free(words.text);
    return rc;
}

/* --- CSV -------------------------------------------------------------------------------------- */

/* The next cell of a line, which it ends in place; cells may be in double quotes. NULL: none
 * left. */
static char *next_cell(char **line)
{
    char *cell = *line, *to;
    if (!cell)
        return NULL;
    if (*cell != '"') {
        char *comma = strchr(cell, ',');
        *line = comma ? comma + 1 : NULL;
        if (comma)
            *comma = '\0';
        return cell;
    }
    to = ++cell;
    char *from = cell;
    for (; *from && (*from != '"' || from[1] == '"'); from++)
        *to++ = *from == '"' ? *++from : *from;
    *line = *from && from[1] == ',' ? from + 2 : NULL;
    *to = '\0';
    return cell;
}

static bool is_no(const char *text)
{
    return strcmp(text, "no") == 0 || strcmp(text, "false") == 0 || strcmp(text, "0") == 0;
}

static bool is_yes(const char *text)
{
    return strcmp(text, "yes") == 0 || strcmp(text, "true") == 0 || strcmp(text, "1") == 0;
}

/* Append the option of one cell. */
static enum status cell_words(struct words *words, const char *name, const char *value,
                              struct err *err)
{
    char text[1024];
    const bool key = strchr(name, '.') != NULL;
    struct step_setting settings[STEP_SETTINGS_MAX];
    const struct step_setting *setting = step_setting_find(settings, step_settings(settings), name);
    const bool flag = setting && !setting->arg;
    if (flag && !is_yes(value) && !is_no(value))
        return err_set(err, ERR_INPUT, "%s must be yes or no, got '%.64s'", name, value);
    if (flag && is_no(value))
        return OK;
    if (key)
        snprintf(text, sizeof text, "--set");
    else
        snprintf(text, sizeof text, "--%s", name);
    enum status rc = add_word(words, text, strlen(text), err);
    if (rc != OK || flag)
        return rc;
    snprintf(text, sizeof text, "%s%s%s", key ? name : "", key ? "=" : "", value);
    return add_word(words, text, strlen(text), err);
}

enum { COLUMNS_MAX = 64 };

static enum status take_line(struct measured_rows *rows, char *line, const char *label,
                             const char *common, char *const *columns, int num_columns,
                             struct err *err)
{
    struct words words;
    char measured[80] = "";
    const char *peak = NULL;
    enum status rc = words_init(&words, err);
    THEN(words_split(&words, common, err));
    for (int c = 0; c < num_columns && rc == OK; c++) {
        const char *value = next_cell(&line);
        if (!value)
            rc = err_set(err, ERR_INPUT, "%s: the header has %d columns, the line %d", label,
                         num_columns, c);
        else if (strcmp(columns[c], "measured") == 0)
            snprintf(measured, sizeof measured, "%s", value);
        else if (strcmp(columns[c], "measured_ms") == 0)
            snprintf(measured, sizeof measured, "%sms", value);
        else if (strcmp(columns[c], "peak") == 0)
            peak = value;
        else if (*value)
            rc = cell_words(&words, columns[c], value, err);
    }
    THEN(take_step(rows, &words, label, measured, peak, err));
    free(words.text);
    return rc;
}

enum status measured_rows_add_csv(struct measured_rows *rows, const char *path, const char *common,
                                  struct err *err)
{
    char *text = NULL, *columns[COLUMNS_MAX], label[320];
    int num_columns = 0, number = 0, first = rows->n;
    bool measured = false;
    enum status rc = file_read_text(path, &text, err);
    for (char *line = text, *end; rc == OK && line && *line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        char *cr = strchr(line, '\r');
        if (cr)
            *cr = '\0';
        number++;
        snprintf(label, sizeof label, "%.256s:%d", path, number);
        if (!*line || *line == '#')
            continue;
        if (num_columns > 0) {
            rc = take_line(rows, line, label, common, columns, num_columns, err);
            continue;
        }
        for (char *cell; num_columns < COLUMNS_MAX && (cell = next_cell(&line));) {
            measured =
                measured || strcmp(cell, "measured") == 0 || strcmp(cell, "measured_ms") == 0;
            columns[num_columns++] = cell;
        }
        if (!measured)
            rc = err_set(err, ERR_INPUT, "%s: the header needs 'measured' or 'measured_ms'", label);
    }
    if (rc == OK && rows->n == first)
        rc = err_set(err, ERR_INPUT, "%s: no measured steps", path);
    free(text);
    return rc;
}

/* --- runs ------------------------------------------------------------------------------------- */

enum status measured_rows_add_run(struct measured_rows *rows, const char *run_dir, struct err *err)
{
    struct replay replay = {0};
    enum status rc = replay_read(run_dir, &replay, err);
    if (rc != OK)
        return rc;
    struct measured_row *row = next_row(rows, run_dir, err);
    if (!row) {
        replay_clear(&replay);
        return ERR_NOMEM;
    }
    struct step_answer *a = &row->answer;
    rc = model_copy(&replay.job.model, &a->model, err);
    THEN(cluster_copy(&replay.job.cluster, &a->cluster, err));
    if (rc == OK) {
        a->query = cost_query_of(&replay.job);
        *a->query.calibration = '\0';
        a->plan = replay.plan;
        replay.plan = (struct plan){0};
        row->measured_ns = (double)replay.real_step_ns;
        rc = finish_row(rows, row, err);
    }
    if (rc != OK) {
        step_answer_clear(a);
        free(row->label);
    }
    replay_clear(&replay);
    return rc;
}
