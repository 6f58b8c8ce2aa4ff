/* exec/trainer/trainer_state.h - everything that a run holds on one rank; for trainer/, change/,
 * probe/ and run/. */
#pragma once

#include "exec/cache/cache.h"
#include "exec/trainer/run_log.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/record/event_file.h"
#include "exec/trainer/deployment.h"
#include "exec/trainer/qa_eval.h"
#include "exec/checkpoint/kept_state.h"
#include "exec/checkpoint/memory_copies.h"
#include "exec/weights/hf_names.h"
#include "exec/record/run_files.h"
#include "partition/freeze/evidence.h"
#include "partition/freeze/freeze.h"

/* The outcome of an evaluation pass. */
struct evaluation {
    double loss, accuracy; /* per target */
    int64_t count, ns;
    bool stopped;       /* a signal came before all samples were seen; the other members are 0 */
    struct qa_score qa; /* squad, rank 0 of the active group */
};

/* Parts of a change of plan, timed on rank 0. PART_CACHE is no part of total_ns: it is the time
 * that steps after the change spent on the frozen forward of samples that the cache missed, on the
 * rank that spent most. */
enum transition_part {
    PART_DECIDE,
    PART_PLAN,
    PART_MOVE,
    PART_GROUPS,
    PART_CACHE,
    TRANSITION_PARTS
};
struct transition_note {
    int64_t epoch, step, bytes; /* bytes that went from rank to rank */
    int64_t part_ns[TRANSITION_PARTS], total_ns;
    int frozen_layers, pipeline_length, replicas;
    struct nccl_counts links; /* communicators found ready, and made during the change */
    char reason[160];
};

struct elastic {
    struct freeze freeze;          /* rank 0: the policy's state */
    struct turn_norms norms;       /* rank 0: gradient norms that the policy decides by */
    struct kept_state kept;        /* rank 0: of frozen layers that may train again */
    int first_frozen;              /* frozen layers in the run's first turn */
    int next_frozen;               /* layers that the next turn is certain to have frozen */
    int *order;                    /* owned; freeze.choice norm: see order_items() */
    double share;                  /* policy safe: of weight gradients, in this turn */
    double weights_held;           /* policy apf: share of the weights, at the turn's last check */
    bool undecided;                /* resumed after a turn's last step, see elastic_open() */
    int64_t transition_ns;         /* time of changes that no epoch's record holds yet */
    struct transition_note *notes; /* owned */
    int num_notes;
    /* Rank 0, empty if there is nothing to tell. held: the last decision to freeze that was held
     * back, and why. limited: why the ranks form fewer replicas than they could. */
    char held[200], limited[200];
    struct ahead *ahead; /* rank 0, see exec/change/plan_ahead.h; NULL: no plan is made ahead */
};

/* See exec/probe/probe.h. */
struct probe {
    bool on;
    int64_t num; /* samples */
    bool open;   /* a window has begun, so the stages' lagged weights count */
    bool cut;    /* a signal has ended the passes of a window, which stays open: see probe_end() */
    double rate, steps;            /* the window's learning rates, summed, and its steps */
    int64_t ns;                    /* time spent on passes, on this rank */
    int64_t passes;                /* forward passes over the probe */
    int num_base;                  /* blocks of base; 0: not measured yet */
    struct loss_sums *base;        /* owned; L(n,n) of the last window's end by block */
    struct freeze_history history; /* rank 0 */
    /* Kept inputs of the probe's samples, see exec/probe/probe.c: after the frozen prefix; after the
     * row's first candidate; there with the prefix lagged; after its last smaller candidate. */
    struct boundary frozen, upper, lagged, smaller;
};

/* Checkpoints of this call. */
struct saves {
    int64_t num, write_ns, stall_ns, longest_stall_ns, copy_bytes; /* copy: the largest one */
};

/* See exec/change/slow_ranks.h. The arrays: rank 0; by rank, num entries. */
struct slow_ranks {
    double *speeds, *ratios; /* owned; 1: as the others. Of the looks that count now */
    double *weighed;         /* owned; speeds that the plan in place has weighed */
    int *looks;              /* owned; the number in a row that contradict speeds */
    int num;
    int64_t took_ns, planned_ns; /* of this rank's passes, in the steps of the present look */
};

struct trainer_options;

struct trainer {
    const struct comm *comm;
    const struct cores *cores;
    const struct job *job;
    const struct trainer_options *options;
    char *out;    /* owned; the run's folder */
    bool goes_on; /* a resumed run that continues in its own folder */
    struct dataset dataset;
    struct backend *backend;
    struct nccl *nccl; /* train.transport nccl; NULL: mpi */
    struct deployment_base base;
    struct deployment deployment;
    struct elastic elastic;
    struct probe probe;
    struct cache *cache; /* NULL: off, cache_note says why */
    char cache_note[CACHE_NOTE_BYTES];
    struct progress progress;
    /* Steps of the first plan: the learning rate counts epochs in these. */
    int64_t first_steps_per_epoch, total_steps;
    int64_t first_step; /* that this call began with, before any restart */
    /* The present epoch so far. A change of plan may happen within it. */
    struct epoch_row epoch_row;
    struct epoch_row written_row;       /* the last one in the record; steps 0: none */
    struct cache_counts cache_at_epoch; /* counts of this rank at the epoch's begin */
    int64_t epoch_samples, epoch_step_ns;
    double epoch_loss;
    int64_t last_saved;              /* step of the last whole checkpoint of this call; -1: none */
    struct checkpoint_write *saving; /* of step saving_step; NULL: none is being written */
    int64_t saving_step, saving_stall_ns; /* stall: while steps waited for it, up to now */
    struct saves saves;                   /* rank 0 */
    struct memory_copies copies;
    struct slow_ranks slow;
    struct evaluation evaluated; /* the last one at an epoch's end */
    int64_t evaluated_step;      /* the step of `evaluated`; -1: none */
    struct run_files *files;     /* rank 0 */
    struct start_times times;
    /* Why this rank ends the run, after a checkpoint: metrics could not be written (rank 0), or
     * samples could not be read. */
    struct err fault;
    struct event_file *events; /* rank 0; NULL: none wanted */
    struct run_log log;        /* rank 0 */
    int64_t train_ns;          /* of this call */
    double first_loss, last_loss;
    struct run_history history; /* rank 0: of the calls before */
    bool yielded;               /* the run stopped at a checkpoint, so that ranks can join */
    bool interrupted, trains;   /* trains: false for an evaluation only */
    bool fresh_head;            /* the head may be missing in a weights file (--init) */
    bool failure_agreed;     /* all ranks know why the run ended, so they may return, not abort */
    bool unreadable;         /* trainer_batch() has failed, on all ranks with stages */
    struct hf_import import; /* which tensors the weights file had */
};

/* The turn that the next step belongs to (partition/search/turn.h). */
int64_t trainer_turn(const struct trainer *t);
/* Whether that turn is still to be decided on: at an epoch's start, or by freeze.every_steps. The
 * same on all ranks. */
bool trainer_turn_due(const struct trainer *t);

/* Steps of the whole run, if its plan stays as it is: those that are done, and those that are
 * left. */
int64_t trainer_whole_steps(const struct trainer *t);

/* The history up to now, for a checkpoint and the summary. Rank 0. */
struct run_history trainer_history(const struct trainer *t);

/* Job, costs and ranks that every plan of this run is made from. */
struct planning trainer_planning(const struct trainer *t);

/* The question to the planner at a turn: the present frozen prefix, cache and data, and the plan in
 * place, if any. */
struct run_state trainer_ask(const struct trainer *t, int64_t epoch, int64_t turn);

/* Whether all ranks with stages have this batch: *batch as loader_get() gives it, or, with batch
 * NULL, made ready for it. If one of them cannot read its samples, that rank's fault says why,
 * `unreadable` is set, and all return ERR_SYSTEM before any of them has begun to use the batch.
 * Collective over the active group. */
enum status trainer_batch(struct trainer *t, struct loader *loader, int64_t epoch, int64_t step,
                          const struct batch **batch, struct err *err);

/* Write a checkpoint, unless the last one is of the same step. beside: begin it only, and let
 * threads write it during the next steps. One that is still being written is ended before.
 * Collective over the message group. */
enum status trainer_save(struct trainer *t, bool beside, struct err *err);
/* Begin a copy in memory, if the run keeps any. Collective over the message group. */
enum status trainer_copy(struct trainer *t, struct err *err);
/* A file of the run could not be written (ERR_SYSTEM): the hint names the last checkpoint. */
void trainer_hint_saved(const struct trainer *t, enum status rc, struct err *err);
/* End the checkpoint that is being written, if there is one: wait for it, give it its name, and
 * remove older ones as train.keep_checkpoints says. Collective over the message group. */
enum status trainer_saved(struct trainer *t, struct err *err);
