/* exec/checkpoint/owned_folder.h - folders that belong to a run, and their safe removal.
 *
 * A run has an id of 32 hex digits, which it keeps in run.json of its folder. Each folder that it
 * makes there holds the file "owner" with that id. Nothing else is ever removed: a folder without
 * this run's mark stays, a symbolic link is not followed, and a file with a name that no checkpoint
 * has stays. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

enum { RUN_ID_SIZE = 33 }; /* 32 hex digits and the terminating zero */

/* A fresh id from the system's random numbers. ERR_SYSTEM. */
enum status run_id_new(char id[RUN_ID_SIZE], struct err *err);
/* The id of the run in folder dir. "" if the folder has no run.json, which older versions did not
 * write. ERR_INPUT: run.json is there and is not ours. */
enum status run_id_read(const char *dir, char id[RUN_ID_SIZE], struct err *err);
/* Write run.json. */
enum status run_id_write(const char *dir, const char *id, struct err *err);

/* Begin a call of `elapse train` that may start the run several times. If run.json names this call,
 * *first_step becomes the step that its first start began with. Else run.json is written with this
 * id, the call's name and *first_step. ERR_SYSTEM, ERR_INPUT. */
enum status run_call_begin(const char *dir, const char *id, const char *call, int64_t *first_step,
                           struct err *err);

/* Make a folder with the mark. ERR_SYSTEM: it is there already, or cannot be made. */
enum status owned_folder_make(const char *path, const char *id, struct err *err);
/* Whether path is a folder, not a link to one, with the mark of this run. */
bool owned_folder_is(const char *path, const char *id);
/* Remove a checkpoint's folder of this run, and its mark last. A missing folder is fine. false:
 * something is left, because it is not of this run or the system refuses. */
bool owned_folder_remove(const char *path, const char *id);

/* Remove the checkpoints of this run in the folder path, whole or not, then the folder. */
bool owned_folder_remove_all(const char *path, const char *id);

/* Lock a run's folder, which holds one run at a time, by the descriptor *lock: until that is closed,
 * or the process ends. File systems that have no such locks are used without. wait: for 15 s, for
 * ranks that outlive their launcher, which is said. ERR_SYSTEM: the run there has not ended. */
enum status run_folder_lock(const char *dir, bool wait, int *lock, struct err *err);
/* The same, with the wait, for the folder of a run or of one of its checkpoints, before a checkpoint
 * is chosen: an older start that still trains would prune it. *lock is -1 where there is no folder. */
enum status run_folder_hold(const char *named, int *lock, struct err *err);

/* Steps of the folders "checkpoint-STEP" in dir, the largest first, in a fresh array. A name with
 * anything after the number, such as ".tmp" or ".old-1", does not count. ERR_SYSTEM. */
enum status checkpoint_steps(const char *dir, int64_t **steps, int *num, struct err *err);
