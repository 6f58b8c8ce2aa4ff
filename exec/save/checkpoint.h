/* exec/save/checkpoint.h - a training run on disk: weights, optimizer state, and where it stood.
 *
 * A checkpoint is a folder: one safetensors file a stage, and manifest.json, which lists them. It
 * is written under a temporary name, synced and renamed, so it is whole or absent. Tensors are
 * found by name, so it loads at any K, R and frozen boundary. Optimizer state is stored as
 * "optimizer.0.NAME" and "optimizer.1.NAME" beside the weight NAME. */
#ifndef ELAPSE_EXEC_SAVE_CHECKPOINT_H
#define ELAPSE_EXEC_SAVE_CHECKPOINT_H

#include "exec/comm/comm.h"
#include "exec/stage/stage.h"
#include "partition/job.h"

/* Where a run stands: `step` steps are done. The next one takes samples from position `position` of
 * epoch `epoch` on. */
struct progress {
    int64_t step, epoch, position;
    int num_frozen_layers;
};

/* What freeze policies decide by (partition/turn.h U2): norms of the turns that are over, and of
 * the one under way squares of gradients, summed over its steps. */
struct turn_norms {
    double *rows; /* owned, [num_turns][num_layers]: root mean square over a turn's steps */
    int64_t num_turns;
    double *sumsq; /* owned, a layer each */
    int64_t steps;
};

/* Write DIR. Collective over the message group; ranks with write == false only take part in the
 * agreement. The status is the same everywhere. norms: rank 0's. */
enum status checkpoint_save(const struct comm *comm, const char *dir, const struct job *job,
                            const struct stage_list *list, bool write,
                            const struct progress *progress, const struct turn_norms *norms,
                            struct err *err);

/* Only the manifest: where the run stood, and whether it fits the job's model. state: its optimizer
 * and seed too, as a run needs that goes on from it. ERR_INPUT: it does not. */
enum status checkpoint_peek(const char *dir, const struct job *job, bool state,
                            struct progress *progress, struct err *err);

/* Fill norms; sums are zero where the checkpoint stands at the begin of a turn. */
enum status checkpoint_norms(const char *dir, int num_layers, struct turn_norms *norms,
                             struct err *err);

/* Fill weights and optimizer state of this rank's stages. state false: weights only (--init,
 * eval). ERR_INPUT: a tensor is missing or has another shape. Not collective. (From a safetensors
 * file: hf_load_file().) */
enum status checkpoint_load(const char *dir, const struct stage_list *list, bool state,
                            struct err *err);

/* All weights of a checkpoint into one safetensors file, under Hugging Face's names, with the
 * config.json that goes with it in the same folder (U-ViT has none). *tensors gets their number. */
enum status checkpoint_export(const char *dir, const char *path, int *tensors, struct err *err);

/* The newest checkpoint of a run folder ("checkpoint-STEP" with the largest STEP), or the folder
 * itself when it is one. A fresh path. ERR_SYSTEM when there is none. */
enum status checkpoint_find(const char *dir, char **path, struct err *err);
/* The run folder of what checkpoint_find() finds there: dir, or the one around it. A fresh path. */
enum status checkpoint_run(const char *dir, char **run, struct err *err);

#endif
