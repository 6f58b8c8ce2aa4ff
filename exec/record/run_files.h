/* exec/record/run_files.h - the files of a run's folder: metrics.jsonl, run.db, summary.json. Rank 0
 * only. */
#pragma once

#include <stdbool.h>

#include "exec/checkpoint/checkpoint.h"
#include "exec/step/runtime.h"
#include "partition/plan/job.h"
#include "profiles/json/json.h"
#include "profiles/store/record.h"

struct run_files; /* opaque */

/* Before a new run makes anything in folder dir: refuse a folder that holds anything but hidden
 * files, logs (*.log, *.out, *.err) and the job's own file, because the run must not meet files
 * that it did not write. A missing folder is fine. ERR_INPUT. */
enum status run_folder_check(const char *dir, const char *job_path, struct err *err);

/* Times of a start, since 1970. 0: not known. */
struct start_times {
    int64_t ended_ns; /* `elapse` saw that the ranks before had ended */
    int64_t ready_ns; /* MPI knew the ranks */
    int64_t data_ns;  /* the data was open */
    int64_t built_ns; /* the stages had their weights */
    int64_t load_ns;  /* the part of it that loading the checkpoint took */
};

/* Make the folder and open its files. A folder that already holds a run is ERR_INPUT, unless resume
 * is set. Then metrics of steps after progress->step are dropped, new ones are appended, and
 * checkpoints of later steps get the suffix ".old-1" (or the next free number). A folder that a
 * running program uses is ERR_SYSTEM. trace: a file for a Chrome trace of the rows that
 * run_files_ops() gets, complete after run_files_finish(); NULL: none. A failure leaves no new file
 * after. */
struct run_start {
    bool resume;
    bool is_held; /* the caller holds the folder's lock */
    const struct progress *progress;
    const struct job *job;
    int num_ranks;
    const char *cost_label, *trace;
    const char *call; /* names all starts of one call of `elapse`; NULL: it starts the run once */
    /* why `elapse` has restarted the run, "KIND: REASON"; NULL: it has not */
    const char *restarted;
    struct start_times times;
};
enum status run_files_open(const char *dir, const struct run_start *start, struct run_files **files,
                           struct err *err);
/* The id of the run (exec/checkpoint/owned_folder.h). */
const char *run_files_id(const struct run_files *files);
/* The step that the call began with: progress->step of its first start. */
int64_t run_files_first_step(const struct run_files *files);
/* Losses of the first and the last step that the run had before it was resumed; NaN: none. */
void run_files_losses(const struct run_files *files, double *first, double *last);
/* The summary of the run in dir, if the run ended after `step` steps without being interrupted;
 * else NULL. The caller frees it. */
struct json *run_files_summary(const char *dir, int64_t step);
void run_files_free(struct run_files *files); /* NULL is fine */

/* The cost of a restart, known when the first step after it ends. */
struct restart_cost {
    int64_t lost_ns; /* from the end of the last step before to the begin of the first one after */
    int64_t lost_steps; /* steps after the checkpoint, which are done again */
    int64_t redo_ns;    /* the time that these had taken */
};
/* Whether the step that run_files_step() has just written is the first one after a restart. Its line
 * of metrics.jsonl then follows one of the restart, with the parts of its time (end_ns, launch_ns,
 * data_ns, build_ns, load_ns, first_ns), and run.db has the time as part "restart" of the
 * epoch's transitions. */
bool run_files_restart(const struct run_files *files, struct restart_cost *cost);

/* All restarts of the run so far, by the lines of metrics.jsonl. */
struct restart_total {
    int64_t num;
    struct restart_cost cost; /* summed */
};
void run_files_restarts(const struct run_files *files, struct restart_total *total);

/* Add time that the run waited for a checkpoint or a copy in memory. The line of the next step has
 * the sum since the step before, as stall_ns. */
void run_files_stall(struct run_files *files, int64_t ns);
/* Writes a line of metrics.jsonl at once, and a row of run.db later. row->start_ns is on the clock
 * of comm_now_ns(). */
enum status run_files_step(struct run_files *files, const struct step_row *row, struct err *err);
/* Times of a rank's ops in one step, for run.db and the trace. */
struct rank_step {
    int64_t step, start_ns; /* start_ns: of the step */
    int replica, rank;
    const struct rank_ops *ops;
    const struct op_time *times;
};
enum status run_files_ops(struct run_files *files, const struct rank_step *of, struct err *err);
/* Write the rows of all steps so far into run.db, before a checkpoint gets its name: a run that goes
 * on from there writes no row of them again. */
void run_files_flush(struct run_files *files);
void run_files_epoch(struct run_files *files, const struct epoch_row *row);

void run_files_transitions(struct run_files *files, const struct transition_row *rows,
                           int num_rows);

/* Bytes that each rank holds, and the plan's prediction (NULL: none). */
enum status run_files_memory(struct run_files *files, const int64_t *bytes, int num_ranks,
                             const int64_t *predicted, int64_t epoch, struct err *err);

/* Write summary.json (whole or absent) and mark the record finished. If rows could not be written
 * into run.db, the summary gets "record_note", which says where they are. */
enum status run_files_finish(struct run_files *files, struct json *summary, int64_t total_ns,
                             struct err *err);
