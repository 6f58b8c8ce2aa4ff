/* exec/run/trainer_state.h - everything a run holds on one rank, for trainer.c (the run), elastic.c
 * (what changes in mid-run) and summary.c (what is told of it). */
#ifndef ELAPSE_EXEC_RUN_TRAINER_STATE_H
#define ELAPSE_EXEC_RUN_TRAINER_STATE_H

#include "exec/cache/cache.h"
#include "exec/run/layout.h"
#include "exec/run/qa_eval.h"
#include "exec/save/hf_names.h"
#include "exec/save/run_files.h"
#include "partition/freeze.h"

/* The outcome of an evaluation pass. */
struct evaluation {
    double loss, accuracy; /* per target */
    int64_t count, ns;
    struct qa_score qa; /* squad, rank 0 of the active group */
};

/* One change, as it went: times of the parts on rank 0. They sum to total_ns (with what lies
 * between them) but for PART_CACHE: what the steps behind the change spent on the frozen forward of
 * samples that the cache lacked, on the rank that spent most; it is in their time. */
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
    struct nccl_counts links; /* communicators that were there, or were made in the change */
    char reason[160];
};

struct elastic {
    struct freeze freeze;          /* rank 0 decides with it, */
    struct turn_norms norms;       /* and by these */
    int first_frozen;              /* layers, in the run's first turn */
    int64_t transition_ns;         /* of changes, until they are recorded */
    struct transition_note *notes; /* owned */
    int num_notes;
    /* Rank 0: the last decision that asked for more than there may be, and why; empty: none. */
    char held[200], limited[200];
    struct ahead *ahead; /* see exec/run/plan_ahead.h; NULL: nothing is under way */
};

struct trainer_options;

struct trainer {
    const struct comm *comm;
    const struct cores *cores;
    const struct job *job;
    const struct trainer_options *options;
    const char *db;
    char *out;    /* owned; the run's folder */
    bool goes_on; /* a resumed run in its own folder */
    struct dataset dataset;
    struct backend *backend;
    struct nccl *nccl; /* train.transport nccl; NULL: mpi */
    struct layout_base base;
    struct layout layout;
    struct elastic elastic;
    struct cache *cache; /* NULL: off, cache_note says why */
    char cache_note[256];
    struct progress progress;
    /* Of the first plan: the learning rate goes by epochs, counted in its steps. */
    int64_t first_steps_per_epoch, total_steps;
    /* The present epoch so far; a change of plan may part it. */
    struct epoch_row epoch_row;
    int64_t epoch_samples, epoch_step_ns;
    double epoch_loss;
    int64_t last_saved;          /* step of the last checkpoint of this call; -1 */
    struct evaluation evaluated; /* behind the last epoch that asked for it, */
    int64_t evaluated_step;      /* at this step; -1: behind none */
    struct run_files *files;     /* rank 0 */
    int64_t train_ns, shown_ns;
    double first_loss, last_loss;
    bool interrupted, trains; /* trains: not only an evaluation */
    bool fresh_head;          /* a weights file may lack the head (--init) */
    bool all_know;            /* what has ended the run; else it may be known to this rank only */
    struct hf_import import;  /* what it held */
};

/* The turn that the next step belongs to (partition/turn.h). */
int64_t trainer_turn(const struct trainer *t);
/* Whether that turn is still to be decided on: at an epoch's start, or by freeze.every_steps. The
 * same on all ranks. */
bool trainer_turn_due(const struct trainer *t);

/* What its plans come from. */
struct planning trainer_planning(const struct trainer *t);

/* What to plan for at a turn, as the cache and the data are now; F is the present one, and there is
 * no old plan but the one in place, if any. */
struct run_state trainer_ask(const struct trainer *t, int64_t epoch, int64_t turn);

/* A checkpoint of now; nothing where the last one is of the same step. Collective over the message
 * group. */
enum status trainer_save(struct trainer *t, struct err *err);

#endif
