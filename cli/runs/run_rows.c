#include "cli/runs/run_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/base/whole_file.h"
#include "profiles/json/json.h"
#include "partition/base/arrays.h"

enum status run_rows_read(struct store *store, int64_t run_id, struct run_rows *rows,
                          struct err *err)
{
    enum status rc = record_run(store, run_id, &rows->info, err);
    const int64_t id = rows->info.id;
    THEN(record_read_epochs(store, id, &rows->epochs, &rows->num_epochs, err));
    THEN(record_read_steps(store, id, &rows->steps, &rows->num_steps, err));
    THEN(record_read_transitions(store, id, &rows->transitions, &rows->num_transitions, err));
    THEN(record_read_memory(store, id, &rows->memories, &rows->num_memories, err));
    return rc;
}

enum status run_rows_read_ops(struct store *store, struct run_rows *rows, struct err *err)
{
    return record_read_ops(store, rows->info.id, &rows->ops, &rows->num_ops, err);
}

static int64_t integer_of(const struct json *line, const char *key)
{
    int64_t value = 0;
    return json_int64(json_get(line, key), &value) ? value : 0;
}

static int by_epoch(const void *a, const void *b)
{
    const struct epoch_row *x = a, *y = b;
    return x->epoch < y->epoch ? -1 : x->epoch > y->epoch;
}

/* Put the rows of an earlier start before those that are there. An epoch that is there stays, and
 * gets the earlier one's changes of plan. */
static enum status add_epochs(struct run_rows *rows, const struct epoch_row *earlier, int64_t n,
                              struct err *err)
{
    struct epoch_row *all = realloc(rows->epochs, (size_t)(rows->num_epochs + n + 1) * sizeof *all);
    if (!all)
        return err_nomem(err);
    rows->epochs = all;
    const int64_t own = rows->num_epochs;
    for (int64_t i = 0; i < n; i++) {
        struct epoch_row *there = bsearch(&earlier[i], all, (size_t)own, sizeof *all, by_epoch);
        if (there)
            there->transition_ns += earlier[i].transition_ns;
        else
            all[rows->num_epochs++] = earlier[i];
    }
    qsort(all, (size_t)rows->num_epochs, sizeof *all, by_epoch);
    return OK;
}

static enum status add_transitions(struct run_rows *rows, const struct transition_row *earlier,
                                   int64_t n, struct err *err)
{
    struct transition_row *all = malloc((size_t)(rows->num_transitions + n + 1) * sizeof *all);
    if (!all)
        return err_nomem(err);
    if (n > 0)
        memcpy(all, earlier, (size_t)n * sizeof *all);
    if (rows->num_transitions > 0)
        memcpy(all + n, rows->transitions, (size_t)rows->num_transitions * sizeof *all);
    free(rows->transitions);
    rows->transitions = all;
    rows->num_transitions += n;
    return OK;
}

enum status run_rows_add_earlier(struct store *store, struct run_rows *rows, struct err *err)
{
    struct run_info *infos = NULL;
    int count = 0;
    enum status rc = rows->info.simulated ? OK : record_list(store, &infos, &count, err);
    for (int i = count; i-- > 0 && rc == OK;) { /* the newest first */
        struct epoch_row *epochs = NULL;
        struct transition_row *transitions = NULL;
        int64_t num_epochs = 0, num_transitions = 0;
        if (infos[i].simulated || infos[i].id >= rows->info.id)
            continue;
        rc = record_read_epochs(store, infos[i].id, &epochs, &num_epochs, err);
        THEN(record_read_transitions(store, infos[i].id, &transitions, &num_transitions, err));
        THEN(add_epochs(rows, epochs, num_epochs, err));
        THEN(add_transitions(rows, transitions, num_transitions, err));
        free(epochs);
        free(transitions);
    }
    free(infos);
    return rc;
}

/* Sums of an epoch over its steps. */
static void count_epoch(const struct step_row *steps, int64_t n, struct epoch_row *row)
{
    double samples = 0, loss = 0;
    int64_t ns = 0;
    for (int64_t i = 0; i < n; i++) {
        samples += steps[i].samples_per_s * (double)steps[i].step_ns;
        loss += steps[i].loss;
        ns += steps[i].step_ns;
    }
    row->steps = n;
    row->step_ns = ns / n;
    row->train_loss = loss / (double)n;
    row->samples_per_s = ns > 0 ? samples / (double)ns : 0;
}

enum status run_rows_count_epochs(struct run_rows *rows, struct err *err)
{
    const int64_t own = rows->num_epochs;
    if (rows->num_steps == 0)
        return OK;
    struct epoch_row *all =
        realloc(rows->epochs, (size_t)(own + rows->num_steps) * sizeof *rows->epochs);
    if (!all)
        return err_nomem(err);
    rows->epochs = all;
    for (int64_t i = 0, end; i < rows->num_steps; i = end) {
        const struct step_row *steps = &rows->steps[i];
        const struct epoch_row key = {.epoch = steps->epoch};
        for (end = i; end < rows->num_steps && rows->steps[end].epoch == steps->epoch;)
            end++;
        struct epoch_row *row = bsearch(&key, all, (size_t)own, sizeof *all, by_epoch);
        if (!row) {
            const struct step_row *last = &rows->steps[end - 1];
            row = &all[rows->num_epochs++];
            *row = (struct epoch_row){.epoch = steps->epoch,
                                      .frozen_layers = last->frozen_layers,
                                      .pipeline_length = last->pipeline_length,
                                      .replicas = last->replicas,
                                      .bubble_fraction = NAN,
                                      .eval_loss = NAN,
                                      .eval_accuracy = NAN};
        }
        if (end - i > row->steps)
            count_epoch(steps, end - i, row);
    }
    qsort(all, (size_t)rows->num_epochs, sizeof *all, by_epoch);
    while (rows->num_epochs > 0 &&
           all[rows->num_epochs - 1].epoch > rows->steps[rows->num_steps - 1].epoch)
        rows->num_epochs--;
    return OK;
}

/* The steps of metrics.jsonl. */
struct metrics {
    struct step_row *steps;
    int64_t num, room;
};

static enum status add_step(struct metrics *all, const struct json *line, struct err *err)
{
    if (!array_grow(&all->steps, all->num + 1, &all->room, sizeof *all->steps))
        return err_nomem(err);
    const struct step_row *last = all->num ? &all->steps[all->num - 1] : NULL;
    all->steps[all->num++] = (struct step_row){
        .step = integer_of(line, "step"),
        .epoch = integer_of(line, "epoch"),
        .start_ns = last ? last->start_ns + last->step_ns : 0,
        .step_ns = integer_of(line, "step_ns"),
        .loss = json_number(json_get(line, "loss")),
        .lr = json_number(json_get(line, "lr")),
        .grad_norm = json_number(json_get(line, "grad_norm")),
        .samples_per_s = json_number(json_get(line, "samples_per_s")),
        .frozen_layers = integer_of(line, "frozen_layers"),
        .pipeline_length = integer_of(line, "pipeline_length"),
        .replicas = integer_of(line, "replicas"),
    };
    return OK;
}

/* Read the lines of steps, in ascending order of steps. */
static enum status read_metrics(const char *path, struct metrics *all, struct err *err)
{
    enum status rc = OK;
    char *text = NULL;
    size_t room = 0;
    FILE *file = NULL;
    if (access(path, F_OK) == 0)
        rc = input_file(path, &file, err);
    while (file && rc == OK && getline(&text, &room, file) > 0) {
        struct json *line = NULL;
        if (json_parse(text, path, &line, NULL) != OK)
            break;
        const int64_t last = all->num ? all->steps[all->num - 1].step : 0;
        if (integer_of(line, "step") > last && !json_get(line, "event"))
            rc = add_step(all, line, err);
        json_free(line);
    }
    free(text);
    if (file)
        fclose(file);
    return rc;
}

/* Both files hold the numbers of one computation, so equal steps have equal bits. */
static bool same_step(const struct step_row *a, const struct step_row *b)
{
    return a->step_ns == b->step_ns && (a->loss == b->loss || (isnan(a->loss) && isnan(b->loss)));
}

enum status run_rows_merge_metrics(const char *path, struct run_rows *rows, struct err *err)
{
    struct metrics all = {0};
    struct step_row *merged = NULL;
    int64_t n = 0, m = 0;
    enum status rc = read_metrics(path, &all, err);
    if (rc == OK && all.num > 0) {
        merged = calloc((size_t)(all.num + rows->num_steps), sizeof *merged);
        rc = merged ? OK : err_nomem(err);
    }
    for (int64_t i = 0; merged && (i < rows->num_steps || m < all.num);) {
        const struct step_row *row = i < rows->num_steps ? &rows->steps[i] : NULL;
        const struct step_row *line = m < all.num ? &all.steps[m] : NULL;
        const bool both = row && line && row->step == line->step;
        rows->num_differing += both && !same_step(row, line);
        merged[n++] = !row || (line && line->step < row->step) ? *line : *row;
        i += row && merged[n - 1].step >= row->step;
        m += line && merged[n - 1].step >= line->step;
    }
    if (merged) {
        free(rows->steps);
        rows->steps = merged;
        rows->num_steps = n;
    }
    free(all.steps);
    return rc;
}

enum status run_rows_simulated(const struct elastic_run *run, struct run_rows *rows,
                               struct err *err)
{
    rows->info.simulated = rows->info.finished = true;
    rows->info.total_ns = run->total_ns;
    rows->num_samples = run->samples;
    rows->epochs = calloc((size_t)run->num_epochs + 1, sizeof *rows->epochs);
    rows->transitions = calloc((size_t)run->num_epochs + 1, sizeof *rows->transitions);
    if (!rows->epochs || !rows->transitions)
        return err_nomem(err);
    for (int e = 0; e < run->num_epochs; e++) {
        const struct elastic_epoch *x = &run->epochs[e];
        rows->epochs[rows->num_epochs++] =
            (struct epoch_row){.epoch = e,
                               .frozen_layers = x->frozen_layers,
                               .pipeline_length = x->pipeline_length,
                               .replicas = x->replicas,
                               .microbatches = x->microbatches,
                               .steps = x->steps,
                               .step_ns = x->step_ns,
                               .transition_ns = x->transition_ns,
                               .samples_per_s = x->samples_per_s,
                               .bubble_fraction = x->bubble_fraction,
                               .cached = x->cache_read > 0 && x->cache_read == x->frozen_layers,
                               .train_loss = NAN,
                               .eval_loss = NAN,
                               .eval_accuracy = NAN};
        if (x->transition_ns > 0)
            rows->transitions[rows->num_transitions++] = (struct transition_row){
                .epoch = e, .part = "total", .ns = x->transition_ns, .bytes = x->moved_bytes};
        if (x->devices > rows->info.num_devices)
            rows->info.num_devices = x->devices;
    }
    return OK;
}

double run_rows_accuracy(const struct run_rows *rows)
{
    for (int64_t i = rows->num_epochs; i-- > 0;)
        if (!isnan(rows->epochs[i].eval_accuracy))
            return rows->epochs[i].eval_accuracy;
    return NAN;
}

void run_rows_clear(struct run_rows *rows)
{
    free(rows->info.job_json);
    free(rows->epochs);
    free(rows->steps);
    free(rows->transitions);
    free(rows->memories);
    free(rows->ops);
    *rows = (struct run_rows){0};
}
