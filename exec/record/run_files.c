/* exec/record/run_files.c - opens, fills and closes the files of a run's folder. Read
 * run_files_open() first: it decides what a resumed run keeps, and what a failed start removes. */
#include "exec/record/run_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/checkpoint/owned_folder.h"
#include "exec/record/record_rows.h"
#include "partition/base/arrays.h"
#include "partition/base/safe_text.h"
#include "partition/base/units.h"
#include "profiles/store/trace.h"
#include "profiles/base/clock.h"
#include "profiles/base/whole_file.h"

enum {
    STEP_ROWS = 256,        /* rows that are gathered before they go into run.db */
    END_PATIENCE_MS = 2000, /* for the lock of run.db at the end of the run */
};

struct run_files {
    char *dir;
    char id[RUN_ID_SIZE];
    int lock;           /* descriptor of the folder, locked while the program runs; below 0: none */
    int64_t first_step; /* of the call */
    double first_loss, last_loss; /* of steps before a resume; NaN: none */
    FILE *metrics;
    struct record_rows *rows; /* of run.db */
    int64_t start_ns;         /* of the first step, on the clock of comm_now_ns(); 0: none yet */
    char *restarted;          /* why the run was restarted; NULL: it was not, or that is written */
    int64_t last_ns;          /* end of the last step before, since 1970; 0: unknown */
    struct start_times times;
    struct restart_cost cost;
    int64_t stall_ns; /* waits for checkpoints since the last step */
    struct restart_total restarts;
    bool just_restarted; /* the last step was the first one after the restart */
    int num_ranks;
    struct step_row steps[STEP_ROWS];
    int num_steps;
    struct trace *trace; /* NULL: not wanted */
    struct atomic_file trace_file;
};

/* Count a line that is dropped: a step that will be done again. */
static void count_lost(struct restart_cost *cost, const struct json *line)
{
    int64_t ns;
    if (!json_int64(json_get(line, "step_ns"), &ns))
        return;
    cost->lost_steps++;
    cost->redo_ns += ns;
}

/* Add the line of a restart to the run's totals. Returns false if the line is of something else. */
static bool count_restart(struct run_files *files, const struct json *line)
{
    struct restart_total *all = &files->restarts;
    const char *event = json_string(json_get(line, "event"));
    int64_t lost_ns = 0, lost_steps = 0, redo_ns = 0;
    if (!event || strcmp(event, "restart") != 0)
        return false;
    (void)json_int64(json_get(line, "lost_ns"), &lost_ns);
    (void)json_int64(json_get(line, "lost_steps"), &lost_steps);
    (void)json_int64(json_get(line, "redo_ns"), &redo_ns);
    all->num++;
    all->cost.lost_ns += lost_ns;
    all->cost.lost_steps += lost_steps;
    all->cost.redo_ns += redo_ns;
    return true;
}

/* Rows of the steps that metrics.jsonl has. */
struct step_list {
    struct step_row *rows; /* owned */
    int64_t n, room;
};

/* Add the row of a line that run_files_step() has written; when the step began is not in it. */
static enum status add_step(struct step_list *list, const struct json *line, struct err *err)
{
    struct step_row row = {.loss = json_number(json_get(line, "loss")),
                           .lr = json_number(json_get(line, "lr")),
                           .grad_norm = json_number(json_get(line, "grad_norm")),
                           .samples_per_s = json_number(json_get(line, "samples_per_s"))};
    if (!json_int64(json_get(line, "step"), &row.step) ||
        !json_int64(json_get(line, "epoch"), &row.epoch) ||
        !json_int64(json_get(line, "step_ns"), &row.step_ns))
        return OK;
    (void)json_int64(json_get(line, "frozen_layers"), &row.frozen_layers);
    (void)json_int64(json_get(line, "pipeline_length"), &row.pipeline_length);
    (void)json_int64(json_get(line, "replicas"), &row.replicas);
    if (!array_grow(&list->rows, list->n + 1, &list->room, sizeof *list->rows))
        return err_nomem(err);
    list->rows[list->n++] = row;
    return OK;
}

/* Keep the lines of steps up to last_step, and those of restarts, whose time stays lost. The file
 * keeps the time of its last change, which is that of the run's last step. */
static enum status cut_metrics(struct run_files *files, const char *path, int64_t last_step,
                               struct err *err)
{
    FILE *in = fopen(path, "r");
    struct atomic_file out = {0};
    char *line = NULL;
    size_t size = 0;
    bool torn = false;
    struct stat was = {0};
    struct step_list steps = {0};
    if (!in)
        return errno == ENOENT
                   ? OK
                   : err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fileno(in), &was) == 0)
        files->last_ns = was.st_mtim.tv_sec * (int64_t)1000000000 + was.st_mtim.tv_nsec;
    enum status rc = atomic_open(&out, path, err);
    if (rc != OK)
        goto out;
    while (rc == OK && !torn && getline(&line, &size, in) > 0) {
        struct json *json = NULL;
        int64_t number;
        rc = json_parse(line, path, &json, NULL);
        if (rc == ERR_INPUT) { /* the last line of a run that was killed */
            torn = true;
            rc = OK;
        } else if (rc == ERR_NOMEM) {
            err_nomem(err);
        } else if (count_restart(files, json)) {
            fputs(line, out.out);
        } else if (json_int64(json_get(json, "step"), &number) && number <= last_step) {
            fputs(line, out.out);
            if (json_get(json, "loss"))
                files->last_loss = json_number(json_get(json, "loss"));
            if (isnan(files->first_loss))
                files->first_loss = files->last_loss;
            rc = add_step(&steps, json, err);
        } else {
            count_lost(&files->cost, json);
        }
        json_free(json);
    }
    if (rc == OK && !torn && !feof(in))
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", path, strerror(errno));
    rc = atomic_close(&out, rc, err);
    if (rc == OK && files->last_ns > 0) {
        const struct timespec times[2] = {was.st_atim, was.st_mtim};
        (void)utimensat(AT_FDCWD, path, times,
                        0); /* else the time that a restart takes is unknown */
    }
    if (rc == OK)
        record_rows_fill(files->rows, steps.rows, steps.n);
out:
    free(steps.rows);
    fclose(in);
    free(line);
    return rc;
}

/* Rename checkpoints of steps after the one that the run continues from, so that checkpoint_find()
 * does not take them for the newest. Like the metrics that cut_metrics() drops, they belong to a
 * history that the resumed run does not share. */
static enum status set_aside(const char *dir, int64_t last_step, struct err *err)
{
    enum status rc = OK;
    struct dirent *entry;
    DIR *folder = opendir(dir);
    if (!folder)
        return err_set(err, ERR_SYSTEM, "cannot open folder '%s': %s", dir, strerror(errno));
    while (rc == OK && (entry = readdir(folder))) {
        int64_t step;
        char from[PATH_MAX], to[PATH_MAX + 16];
        if (strncmp(entry->d_name, "checkpoint-", 11) != 0 ||
            parse_int(entry->d_name + 11, "step", 0, INT64_MAX, &step, NULL) != OK ||
            step <= last_step)
            continue;
        snprintf(from, sizeof from, "%s/%s", dir, entry->d_name);
        for (int n = 1; n == 1 || (rc != OK && (errno == EEXIST || errno == ENOTEMPTY)); n++) {
            snprintf(to, sizeof to, "%s.old-%d", from, n);
            rc = rename(from, to) == 0 ? OK : ERR_SYSTEM;
        }
        if (rc != OK)
            err_set(err, rc, "cannot rename '%s': %s", from, strerror(errno));
    }
    closedir(folder);
    return rc;
}

static bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

/* A file of the run that is there must be a plain one, because opening a named pipe would wait. */
static enum status check_plain(const char *path, struct err *err)
{
    int fd = -1;
    const enum status rc = is_there(path) ? input_open(path, "open", &fd, NULL, err) : OK;
    if (fd >= 0)
        close(fd);
    return rc;
}

static enum status begin_trace(struct run_files *files, const char *path, struct err *err)
{
    enum status rc = output_open(&files->trace_file, path, err);
    return rc == OK ? trace_begin(files->trace_file.out, "measured", &files->trace, err) : rc;
}

/* Remove a store with its log and the log's index, which stay if closing could not write them back.
 */
static void remove_store(const char *db)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s%s", db, suffixes[i]) < 0)
            return;
        unlink(path);
        free(path);
    }
}

static enum status already_a_run(const char *dir, struct err *err)
{
    char *checkpoint = NULL;
    enum status rc = err_set(err, ERR_INPUT, "folder '%s' already holds a run", dir);
    if (checkpoint_find(dir, &checkpoint, NULL) == OK)
        err_hint(err, "choose another --out, or continue with --resume %s", SHELL_PATH(dir));
    else
        err_hint(err, "choose another --out, or remove it: it has no checkpoint to continue from");
    free(checkpoint);
    return rc;
}

/* A name that a new run's folder may hold. */
static bool may_be_there(const char *dir, const char *name, const char *job_path)
{
    static const char *const logs[] = {".log", ".out", ".err"};
    const size_t length = strlen(name);
    char path[PATH_MAX];
    struct stat a, b;
    if (name[0] == '.')
        return true;
    for (int i = 0; i < 3; i++)
        if (length > 4 && strcmp(name + length - 4, logs[i]) == 0)
            return true;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return job_path && stat(path, &a) == 0 && stat(job_path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

enum status run_folder_check(const char *dir, const char *job_path, struct err *err)
{
    char *metrics = NULL;
    enum status rc = OK;
    struct dirent *entry;
    DIR *folder = opendir(dir);
    if (!folder)
        return OK; /* it will be made, or whoever makes it says why not */
    if (asprintf(&metrics, "%s/metrics.jsonl", dir) < 0) {
        metrics = NULL;
        rc = err_nomem(err);
    } else if (is_there(metrics)) {
        rc = already_a_run(dir, err);
    }
    while (rc == OK && (entry = readdir(folder)))
        if (!may_be_there(dir, entry->d_name, job_path)) {
            rc = err_set(err, ERR_INPUT, "folder '%s' holds '%s', which is not of this run", dir,
                         entry->d_name);
            err_hint(err, "choose a new or an empty folder with --out");
        }
    closedir(folder);
    free(metrics);
    return rc;
}

/* A run keeps its id when it resumes in its folder. One of an older version gets its first. */
static enum status take_id(struct run_files *files, const char *dir, bool resume, struct err *err)
{
    enum status rc = resume ? run_id_read(dir, files->id, err) : OK;
    if (rc != OK || *files->id)
        return rc;
    rc = run_id_new(files->id, err);
    return rc == OK ? run_id_write(dir, files->id, err) : rc;
}

/* All checks have passed; files change from here on. A kill between set_aside() and cut_metrics()
 * leaves an older checkpoint with metrics of later steps, from which the run can be resumed again. */
static enum status continue_files(struct run_files *files, const struct run_start *start,
                                  const char *metrics, struct err *err)
{
    enum status rc = take_id(files, files->dir, start->resume, err);
    if (start->call)
        THEN(run_call_begin(files->dir, files->id, start->call, &files->first_step, err));
    if (start->resume) {
        THEN(set_aside(files->dir, start->progress->step, err));
        THEN(cut_metrics(files, metrics, start->progress->step, err));
    }
    return rc;
}

/* The files of a run's folder that opening it makes, looks for or removes. */
struct run_paths {
    char *metrics, *db, *summary, *norms, *id; /* owned */
};

static enum status run_paths_init(struct run_paths *paths, const char *dir, struct err *err)
{
    const struct {
        char **path;
        const char *name;
    } rows[] = {
        {&paths->metrics, "metrics.jsonl"},
        {&paths->db,      "run.db"       },
        {&paths->summary, "summary.json" },
        {&paths->norms,   "norms.json"   },
        {&paths->id,      "run.json"     },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (asprintf(rows[i].path, "%s/%s", dir, rows[i].name) < 0) {
            *rows[i].path = NULL;
            return err_nomem(err);
        }
    return OK;
}

static void run_paths_clear(struct run_paths *paths)
{
    free(paths->metrics);
    free(paths->db);
    free(paths->summary);
    free(paths->norms);
    free(paths->id);
}

/* The files of a run, none of them opened yet. *files is zeroed; the caller frees it. */
static enum status describe(const char *dir, const struct run_start *start, struct run_files *files,
                            struct err *err)
{
    files->lock = -1;
    files->first_loss = files->last_loss = NAN;
    files->num_ranks = start->num_ranks;
    files->times = start->times;
    files->first_step = start->progress->step;
    files->dir = strdup(dir);
    files->restarted = start->restarted ? strdup(start->restarted) : NULL;
    return files->dir && (files->restarted || !start->restarted) ? OK : err_nomem(err);
}

/* Open the record and the metrics of a folder that this run holds. */
static enum status open_rows(struct run_files *files, const struct run_start *start,
                             const struct run_paths *paths, struct err *err)
{
    struct run_info info = {.num_devices = start->num_ranks, .job_json = start->job->json};
    snprintf(info.name, sizeof info.name, "%s", start->job->name);
    snprintf(info.cost_source, sizeof info.cost_source, "%s", start->cost_label);
    enum status rc = record_rows_open(files->dir, &info, &files->rows, err);
    THEN(continue_files(files, start, paths->metrics, err));
    return rc;
}

static enum status open_metrics(struct run_files *files, const char *path, struct err *err)
{
    files->metrics = fopen(path, "a");
    if (!files->metrics)
        return err_set(err, ERR_SYSTEM, "cannot write '%s': %s", path, strerror(errno));
    setvbuf(files->metrics, NULL, _IOLBF, 0);
    return OK;
}

enum status run_files_open(const char *dir, const struct run_start *start, struct run_files **files,
                           struct err *err)
{
    struct run_files *got = calloc(1, sizeof *got);
    struct run_paths paths = {0};
    const bool new_dir = !is_there(dir);
    bool ours = false, new_metrics = false, new_db = false; /* to be removed on failure */
    bool new_id = false;
    if (!got)
        return err_nomem(err);
    enum status rc = describe(dir, start, got, err);
    THEN(run_paths_init(&paths, dir, err));
    THEN(folders_make(dir, true, err));
    if (!start->is_held)
        THEN(run_folder_lock(dir, start->restarted != NULL, &got->lock, err));
    ours = rc == OK;
    if (rc == OK && !start->resume && is_there(paths.metrics))
        rc = already_a_run(dir, err);
    THEN(check_plain(paths.metrics, err));
    THEN(check_plain(paths.norms, err));
    if (start->trace)
        THEN(begin_trace(got, start->trace, err));
    if (rc != OK)
        goto out;
    new_db = !is_there(paths.db);
    new_id = !is_there(paths.id);
    rc = open_rows(got, start, &paths, err);
    if (rc != OK)
        goto out;
    new_metrics = !is_there(paths.metrics);
    rc = open_metrics(got, paths.metrics, err);
    if (rc != OK)
        goto out;
    unlink(paths.summary); /* the old one; run_files_finish() writes a new one */
    *files = got;
    got = NULL;
out:
    run_files_free(got);
    if (new_metrics && rc != OK)
        unlink(paths.metrics);
    if (new_db && rc != OK)
        remove_store(paths.db);
    if (new_id && rc != OK)
        unlink(paths.id);
    if (new_dir && ours && rc != OK)
        rmdir(dir);
    run_paths_clear(&paths);
    return rc;
}

const char *run_files_id(const struct run_files *files)
{
    return files->id;
}

int64_t run_files_first_step(const struct run_files *files)
{
    return files->first_step;
}

void run_files_losses(const struct run_files *files, double *first, double *last)
{
    *first = files->first_loss;
    *last = files->last_loss;
}

struct json *run_files_summary(const char *dir, int64_t step)
{
    char *path = NULL;
    struct json *got = NULL;
    int64_t steps;
    if (asprintf(&path, "%s/summary.json", dir) < 0)
        return NULL;
    if (access(path, F_OK) != 0 || json_read_file(path, &got, NULL) != OK ||
        !json_int64(json_get(got, "steps"), &steps) || steps != step ||
        json_true(json_get(got, "interrupted"))) {
        json_free(got);
        got = NULL;
    }
    free(path);
    return got;
}

/* Finish the trace file; it appears only if status is OK. */
static enum status end_trace(struct run_files *files, enum status status, struct err *err)
{
    enum status rc = files->trace ? trace_end(files->trace, err) : OK;
    files->trace = NULL;
    rc = status != OK ? status : rc;
    return files->trace_file.out ? atomic_close(&files->trace_file, rc, err) : rc;
}

void run_files_flush(struct run_files *files)
{
    record_rows_add(files->rows, ROWS_STEP, files->steps, files->num_steps);
    files->num_steps = 0;
}

void run_files_free(struct run_files *files)
{
    if (!files)
        return;
    end_trace(files, ERR_SYSTEM, NULL); /* run_files_finish() was not called */
    if (files->rows)
        run_files_flush(files);
    record_rows_free(files->rows);
    if (files->metrics)
        fclose(files->metrics);
    if (files->lock >= 0)
        close(files->lock);
    free(files->dir);
    free(files->restarted);
    free(files);
}

/* The parts of the time between the last step before a restart and the first one after it. Their sum
 * is lost_ns. Several processes read the clock: if somebody set it back meanwhile, a part would be
 * negative, and none is known. */
static void add_parts(struct json *line, const struct start_times *at, int64_t last_ns,
                      int64_t first_ns)
{
    const struct {
        const char *name;
        int64_t ns;
    } parts[] = {
        {"end_ns",    at->ended_ns - last_ns                  },
        {"launch_ns", at->ready_ns - at->ended_ns             },
        {"data_ns",   at->data_ns - at->ready_ns              },
        {"build_ns",  at->built_ns - at->data_ns - at->load_ns},
        {"load_ns",   at->load_ns                             },
        {"first_ns",  first_ns - at->built_ns                 },
    };
    const size_t count = sizeof parts / sizeof *parts;
    bool known = last_ns != 0 && at->ended_ns != 0 && at->built_ns != 0;
    for (size_t i = 0; i < count; i++)
        known = known && parts[i].ns >= 0;
    for (size_t i = 0; known && i < count; i++)
        json_add_int(line, parts[i].name, parts[i].ns);
}

/* Before the line of the first step after a restart: a line of the restart, and a row of run.db. */
static enum status write_restart(struct run_files *files, const struct step_row *row,
                                 struct err *err)
{
    struct transition_row lost = {.epoch = row->epoch, .part = "restart"};
    struct json *line = json_object_new();
    const int64_t now_ns = clock_wall_ns();
    if (files->last_ns > 0 && now_ns - row->step_ns > files->last_ns)
        files->cost.lost_ns = now_ns - row->step_ns - files->last_ns;
    json_add_string(line, "event", "restart");
    json_add_int(line, "step", row->step);
    json_add_int(line, "ranks", files->num_ranks);
    json_add_int(line, "lost_ns", files->cost.lost_ns);
    json_add_int(line, "lost_steps", files->cost.lost_steps);
    json_add_int(line, "redo_ns", files->cost.redo_ns);
    add_parts(line, &files->times, files->last_ns, now_ns - row->step_ns);
    json_add_string(line, "why", files->restarted);
    count_restart(files, line);
    enum status rc = json_write(line, false, files->metrics, err);
    json_free(line);
    lost.ns = files->cost.lost_ns + files->cost.redo_ns;
    run_files_transitions(files, &lost, 1);
    free(files->restarted);
    files->restarted = NULL;
    files->just_restarted = true;
    return rc;
}

bool run_files_restart(const struct run_files *files, struct restart_cost *cost)
{
    *cost = files->cost;
    return files->just_restarted;
}

void run_files_restarts(const struct run_files *files, struct restart_total *total)
{
    *total = files->restarts;
}

void run_files_stall(struct run_files *files, int64_t ns)
{
    files->stall_ns += ns;
}

enum status run_files_step(struct run_files *files, const struct step_row *row, struct err *err)
{
    struct json *line = json_object_new();
    enum status rc = OK;
    files->just_restarted = false;
    if (files->restarted)
        rc = write_restart(files, row, err);
    json_add_int(line, "step", row->step);
    json_add_int(line, "epoch", row->epoch);
    json_add_double(line, "loss", row->loss);
    json_add_double(line, "lr", row->lr);
    json_add_double(line, "grad_norm", row->grad_norm);
    json_add_int(line, "step_ns", row->step_ns);
    json_add_double(line, "samples_per_s", row->samples_per_s);
    json_add_int(line, "frozen_layers", row->frozen_layers);
    json_add_int(line, "pipeline_length", row->pipeline_length);
    json_add_int(line, "replicas", row->replicas);
    if (files->stall_ns > 0)
        json_add_int(line, "stall_ns", files->stall_ns);
    files->stall_ns = 0;
    THEN(json_write(line, false, files->metrics, err));
    json_free(line);
    if (rc == OK && (fflush(files->metrics) != 0 || ferror(files->metrics)))
        rc = err_set(err, ERR_SYSTEM, "cannot write '%s/metrics.jsonl': %s", files->dir,
                     strerror(errno));
    if (rc != OK)
        return rc;
    if (files->start_ns == 0)
        files->start_ns = row->start_ns;
    files->steps[files->num_steps] = *row;
    files->steps[files->num_steps++].start_ns -= files->start_ns;
    if (files->num_steps == STEP_ROWS)
        run_files_flush(files);
    return OK;
}

enum status run_files_ops(struct run_files *files, const struct rank_step *of, struct err *err)
{
    struct op_row *rows = calloc((size_t)of->ops->num_ops + 1, sizeof *rows);
    int64_t n = 0;
    if (!rows)
        return err_nomem(err);
    run_files_flush(files);
    for (int64_t i = 0; i < of->ops->num_ops; i++)
        if (of->times[i].end_ns > 0)
            rows[n++] = (struct op_row){.step = of->step,
                                        .replica = of->replica,
                                        .rank = of->rank,
                                        .start_ns = of->times[i].start_ns - of->start_ns,
                                        .end_ns = of->times[i].end_ns - of->start_ns,
                                        .op = of->ops->ops[i]};
    record_rows_add(files->rows, ROWS_OP, rows, n);
    if (files->trace)
        trace_ops(files->trace, rows, n, of->start_ns - files->start_ns);
    free(rows);
    return OK;
}

void run_files_epoch(struct run_files *files, const struct epoch_row *row)
{
    run_files_flush(files);
    record_rows_add(files->rows, ROWS_EPOCH, row, 1);
}

void run_files_transitions(struct run_files *files, const struct transition_row *rows, int num_rows)
{
    record_rows_add(files->rows, ROWS_TRANSITION, rows, num_rows);
}

enum status run_files_memory(struct run_files *files, const int64_t *bytes, int num_ranks,
                             const int64_t *predicted, int64_t epoch, struct err *err)
{
    struct device_memory_row *rows = calloc((size_t)num_ranks, sizeof *rows);
    if (!rows)
        return err_nomem(err);
    for (int r = 0; r < num_ranks; r++)
        rows[r] = (struct device_memory_row){.epoch = epoch,
                                             .device = r,
                                             .predicted_bytes = predicted ? predicted[r] : 0,
                                             .peak_bytes = bytes[r],
                                             .what = "total"};
    record_rows_add(files->rows, ROWS_MEMORY, rows, num_ranks);
    free(rows);
    return OK;
}

enum status run_files_finish(struct run_files *files, struct json *summary, int64_t total_ns,
                             struct err *err)
{
    char *path = NULL, note[ROWS_NOTE_BYTES];
    enum status rc = OK;
    run_files_flush(files);
    record_rows_finish(files->rows, total_ns, END_PATIENCE_MS, note);
    if (*note)
        json_add_string(summary, "record_note", note);
    if (asprintf(&path, "%s/summary.json", files->dir) < 0) {
        path = NULL;
        rc = err_nomem(err);
    }
    THEN(json_write_file(summary, path, err));
    THEN(end_trace(files, OK, err));
    free(path);
    return rc;
}
