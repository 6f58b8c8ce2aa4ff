/* exec/checkpoint/checkpoint.h - a training run on disk: weights, optimizer state, progress.
 *
 * A checkpoint is a folder with one safetensors file for each stage, and manifest.json, which lists
 * them with their SHA-256. It is written under a temporary name, synced and renamed, so it is whole
 * or absent. Tensors are found by name, so it loads at any K, R and frozen boundary. Optimizer
 * state, also that of frozen layers that may train again, is stored as "optimizer.0.NAME" and
 * "optimizer.1.NAME" beside the weight NAME. Whether the files are those that the run wrote is
 * checked by exec/checkpoint/checkpoint_check.h. */
#pragma once

#include "exec/comm/comm.h"
#include "exec/weights/hf_config.h"
#include "exec/checkpoint/kept_state.h"
#include "exec/stage/stage.h"
#include "partition/freeze/evidence.h"
#include "partition/plan/job.h"

/* The progress of a run: `step` steps are done, and the next one starts at sample `position` of
 * epoch `epoch`. */
struct progress {
    int64_t step, epoch, position;
    int num_frozen_layers;
};

/* Gradient norms that freeze policies decide by (partition/search/turn.h): norms of the turns that
 * are over, and for the present turn squares of gradients, summed over its steps. */
struct turn_norms {
    double *rows; /* owned, [num_turns][num_layers]: root mean square over a turn's steps */
    int64_t num_turns;
    double *sumsq; /* owned, [num_layers] */
    int64_t steps;
};

/* The totals of a run so far, over all its resumes. NaN: not known. */
struct run_history {
    double first_loss;     /* of its first step */
    double first_accuracy; /* before its first step */
    int64_t train_ns;      /* training and changes of plan */
};

/* The contents of a checkpoint. All is borrowed. */
struct checkpoint_state {
    const struct job *job;
    const struct stage_list *list;
    bool write;         /* this rank writes its stages; else it takes part in the agreement only */
    const char *run_id; /* rank 0: the run that owns the folder (exec/checkpoint/owned_folder.h) */
    /* Each node has a folder of that name, and gets the files of its ranks and of the node before
     * (exec/checkpoint/node_copies.h). run_id counts on all ranks then. */
    bool per_node;
    const struct progress *progress;
    const struct turn_norms *norms;        /* of rank 0 */
    const struct kept_state *kept;         /* of rank 0 */
    const struct freeze_history *evidence; /* of rank 0; NULL: none is measured */
    double rate, steps;                    /* of rank 0: of the open window, see struct probe */
    bool lagged; /* a window is open: write the lagged weights too, as "lagged.NAME" */
    struct run_history history; /* of rank 0 */
    struct hf_data data;        /* of rank 0; what an export says of the data */
    const char *db;   /* of rank 0: the profile store of its plans; NULL: the default one */
    double eval_loss; /* rank 0: of an evaluation at this step; NaN: there was none */
};

/* A checkpoint that is being written. */
struct checkpoint_write; /* opaque */

/* The times and bytes of a written checkpoint. */
struct checkpoint_cost {
    int64_t write_ns;   /* from its begin until the last file was on disk */
    int64_t copy_bytes; /* of the copy on the rank that had most; 0: there was none */
};

/* Begin to write the folder dir, under a temporary name. With `beside` each rank copies its state
 * and a thread writes the copy, so the state may change as soon as this returns. A rank that may
 * not take that much memory (half of its share of what the machine has left) writes its files
 * before this returns; without `beside` all ranks do. An older checkpoint of this run under that
 * name will be replaced in one step; anything else there is ERR_SYSTEM and stays as it is.
 * Collective over the message group; all ranks get the same status. On OK checkpoint_end() must
 * follow; it returns failures of writing. */
enum status checkpoint_begin(const struct comm *comm, const char *dir,
                             const struct checkpoint_state *state, bool beside,
                             struct checkpoint_write **write, struct err *err);
/* Whether this rank's thread still writes. NULL: no. */
bool checkpoint_busy(const struct checkpoint_write *write);
/* Wait for the files of all ranks, then write the manifest and give the folder its name; release
 * write. On failure nothing has that name, or what had it before. cost: for rank 0; may be NULL.
 * Collective over the message group; all ranks get the same status. */
enum status checkpoint_end(const struct comm *comm, struct checkpoint_write *write,
                           struct checkpoint_cost *cost, struct err *err);
/* Release write where the ranks cannot agree any more. The folder keeps its temporary name. */
void checkpoint_leave(struct checkpoint_write *write);

/* Both at once, without a copy. */
enum status checkpoint_save(const struct comm *comm, const char *dir,
                            const struct checkpoint_state *state, struct err *err);

/* Remove checkpoints of this run in the run's folder, all but the newest `keep` and that with the
 * lowest loss of an evaluation. keep 0: remove none. What cannot be removed stays. Rank 0 only. */
void checkpoint_prune(const char *run_dir, const char *run_id, int64_t keep);

/* The lowest loss of an evaluation among this run's checkpoints. NaN: none holds one. */
double checkpoint_best_loss(const char *run_dir, const char *run_id);

/* Make the model that of the weights in a checkpoint, for use without further training: under freeze.head
 * alone the head has a table of its own if layers were frozen. */
enum status checkpoint_untie(const char *dir, struct model *model, struct err *err);

/* Read the manifest only: the run's progress, and whether the model is the job's. state: check
 * optimizer and seed too, which a resumed run needs; the model is then that of the run's frozen layers
 * (model_at()). ERR_INPUT if they differ. */
enum status checkpoint_peek(const char *dir, const struct job *job, bool state,
                            struct progress *progress, struct err *err);

/* Read the history. A checkpoint of an older version has none. */
enum status checkpoint_history(const char *dir, struct run_history *history, struct err *err);

/* The profile store that the run was planned from, in a fresh string; NULL: the default one, or a
 * checkpoint of an older version. ERR_SYSTEM, ERR_INPUT: there is no such checkpoint. */
enum status checkpoint_store(const char *dir, char **db, struct err *err);

/* Read the norms. The sums are zero if the checkpoint was written at the beginning of a turn. */
enum status checkpoint_norms(const char *dir, int num_layers, struct turn_norms *norms,
                             struct err *err);

/* Read the evidence, and the rate and the steps of a window that was open. A checkpoint without
 * evidence gives an empty history. */
enum status checkpoint_evidence(const char *dir, const struct model *model,
                                struct freeze_history *history, double *rate, double *steps,
                                struct err *err);

/* Fill weights and, with state, optimizer state of this rank's stages, and the lagged
 * weights that the checkpoint has. Call checkpoint_choose()
 * before: this function trusts the bytes of the files. ERR_INPUT: a tensor is missing or has
 * another shape. Not collective. hf_load() reads weights of other tools instead. */
enum status checkpoint_load(const char *dir, const struct stage_list *list, bool state,
                            struct err *err);

/* The newest checkpoint of a run folder ("checkpoint-STEP" with the largest STEP), or the folder
 * itself when it is one. Nothing is checked. A fresh path. ERR_SYSTEM when there is none. */
enum status checkpoint_find(const char *dir, char **path, struct err *err);
/* The run folder that the checkpoint of checkpoint_find() lies in. A fresh path. */
enum status checkpoint_run(const char *dir, char **run, struct err *err);
