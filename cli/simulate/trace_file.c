#include "cli/simulate/trace_file.h"

#include <stdlib.h>
#include <string.h>

#include "cli/simulate/rank_memory.h"
#include "cli/simulate/subject.h"
#include "profiles/store/trace.h"
#include "profiles/base/whole_file.h"

/* Write the memory of each rank; devices are by replica, then rank. */
static enum status trace_memory(struct trace *trace, const struct traced_step *step,
                                struct err *err)
{
    for (int d = 0; d < step->sim->num_devices; d++) {
        const struct sim_device *device = &step->sim->devices[d];
        struct memory_point *points = NULL;
        int64_t n = 0;
        enum status rc = rank_memory(step, device->replica, device->rank, &points, &n, err);
        for (int64_t i = 0; rc == OK && i < n; i++)
            if (i + 1 == n || points[i + 1].at_ns > points[i].at_ns)
                trace_bytes(trace, "memory", device->replica, device->rank, points[i].at_ns,
                            points[i].bytes);
        free(points);
        if (rc != OK)
            return rc;
    }
    return OK;
}

static enum status trace_simulated(struct trace *trace, const struct traced_step *step,
                                   struct err *err)
{
    struct op_row *rows = sim_op_rows(step->sim);
    if (!rows)
        return err_nomem(err);
    trace_ops(trace, rows, step->sim->num_ops, 0);
    free(rows);
    return trace_memory(trace, step, err);
}

/* A run records the most that each rank has held, not its course: one level over the step. */
static enum status trace_peaks(struct trace *trace, const char *run_dir,
                               const struct replay *replay, struct err *err)
{
    char db[4200];
    struct store *store = NULL;
    struct device_memory_row *rows = NULL;
    int64_t n = 0;
    const int ranks = replay->plan.num_ranks, places = ranks * replay->plan.num_pipelines;
    snprintf(db, sizeof db, "%.4000s/run.db", run_dir);
    enum status rc = store_open(db, STORE_READ, &store, err);
    THEN(record_read_memory(store, replay->info.id, &rows, &n, err));
    for (int place = 0; rc == OK && place < places; place++) {
        int64_t bytes = 0;
        for (int64_t i = 0; i < n; i++)
            if (rows[i].device == replay->plan.device[place] && strcmp(rows[i].what, "total") == 0)
                bytes = rows[i].peak_bytes;
        if (bytes > 0)
            trace_bytes(trace, "peak memory", place / ranks, place % ranks, 0, bytes);
    }
    free(rows);
    store_close(store);
    return rc;
}

static enum status write_file(const char *path, const struct traced_step *step, const char *run_dir,
                              const struct replay *replay, struct err *err)
{
    struct atomic_file file = {0};
    struct trace *trace = NULL;
    enum status rc = output_open(&file, path, err);
    if (rc != OK)
        return rc;
    rc = trace_begin(file.out, "simulated", &trace, err);
    if (rc == OK) {
        rc = trace_simulated(trace, step, err);
        if (rc == OK && replay) {
            trace_group(trace, "measured");
            trace_ops(trace, replay->ops, replay->num_ops, 0);
            rc = trace_peaks(trace, run_dir, replay, err);
        }
        const enum status ended = trace_end(trace, rc == OK ? err : NULL);
        THEN(ended);
    }
    return atomic_close(&file, rc, err);
}

enum status trace_step_file(const char *path, const struct traced_step *step, struct err *err)
{
    return write_file(path, step, NULL, NULL, err);
}

enum status trace_both_file(const char *path, const char *run_dir, const struct replay *replay,
                            struct err *err)
{
    const struct traced_step step = {&replay->sim, &replay->full, &replay->workload};
    if (replay->num_ops == 0)
        return err_set(err, ERR_INFEASIBLE, "run '%.200s' recorded no ops: it had no --trace-steps",
                       run_dir);
    return write_file(path, &step, run_dir, replay, err);
}
