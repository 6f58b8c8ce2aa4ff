/* exec/trainer/trainer.h - the options of a training run, and the calls that ask it to stop. The
 * run itself: exec/run/trainer_run.h. */
#pragma once

#include <stdbool.h>

#include "exec/comm/comm.h"
#include "exec/device/cores.h"
#include "exec/trainer/run_log.h"
#include "exec/step/runtime.h"
#include "partition/plan/job.h"

struct trainer_options {
    const char *out;    /* run folder; NULL: "runs/NAME" */
    const char *resume; /* checkpoint to resume from, of resume_choose(); NULL */
    bool is_held;       /* the caller has locked the folder (run_folder_hold()) */
    const char *run;    /* its run's folder, where `resume` is a copy in memory; else NULL */
    const char *init;   /* safetensors file or checkpoint to start from, of resume_choose(); NULL */
    const char *adapter;   /* folder of adapters that begin beside `init`; NULL: they are new */
    const char *plan;      /* file of the plan to begin with; NULL: it is planned */
    const char *db;        /* profile store; NULL: the default one */
    const char *call;      /* names all starts of one call (--max-restarts); NULL: one start */
    const char *restarted; /* why the run was restarted, "KIND: REASON"; NULL: it was not */
    int64_t ended_ns, ready_ns; /* of struct start_times */
    int64_t max_steps;          /* steps of this call, however often it starts; 0: all of the job */
    int64_t trace_steps;        /* steps of which every op is recorded, apart from the last */
    const char *trace;          /* file for a Chrome trace of the recorded steps' ops; NULL: none */
    const char *tensorboard;    /* folder for an event file of TensorBoard; NULL: none */
    /* Called when a signal is to end the run by trainer_stop(): until then the run has nothing that
     * a checkpoint would keep, so a signal may end the process. NULL: nothing to do. */
    void (*heeds_signals)(void);
    /* Measures the job's model on these ranks, at micro-batches of `samples` (0: of those that its
     * plan may have), and keeps the profile in the store `db`; collective. Called before a fresh run
     * that is long, by costs of another machine or of other micro-batches. NULL: nothing is. */
    enum status (*measure)(const struct comm *comm, const struct cores *cores,
                           const struct job *job, int64_t samples, const char *db, struct err *err);
    /* For --plan-losses: this rank kills itself when die_step is done; the run yields, as if
     * trainer_yield() was called, when yield_step is done. */
    bool dies, yields;
    int64_t die_step, yield_step;
    /* For predictions, NULL elsewhere: samples in place of the job's data (borrowed), whose test
     * split is evaluated, and a function that the evaluation calls after each forward of the
     * head. */
    const struct dataset *samples;
    runtime_eval_hook on_eval;
    void *on_eval_ctx;
    bool evaluate;      /* evaluate before, between (as the job says) and after; save at the end */
    struct run_log log; /* how the run says on stderr how far it is: mode and every_ns */
};

/* Ask the run to write a checkpoint and stop after the present step, or after the present batch of
 * an evaluation, because of this signal; 0: for a reason of its own. Safe in a signal handler. */
void trainer_stop(int signal_number);
/* Ask the run to stop at its next checkpoint or the end of the present epoch, with a checkpoint.
 * Safe in a signal handler. */
void trainer_yield(void);
/* The first SIGINT or SIGTERM that trainer_stop() was called for; 0: none. */
int trainer_stop_signal(void);
