/* exec/checkpoint/memory_copies.h - a run's state in shared memory, for a run that is killed.
 *
 * Every train.checkpoint_memory_every_steps steps the ranks write a checkpoint (checkpoint.h) into
 * the run's folder of shared memory (memory_folder.h), during the next steps. The newest whole one
 * stays until the next one is whole, so at most two are there. A resumed run takes it if it is
 * newer than the last file. On several nodes each holds the files of its own ranks and of the node
 * before it, so a run outlives the loss of any one node (node_copies.h). Where copies cannot be
 * made, files count. */
#pragma once

#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_check.h"

struct memory_copies {
    bool on;
    char note[240]; /* why not, or where and how large; rank 0 */
    char dir[80];   /* the run's folder of shared memory */
    char run_id[33];
    struct checkpoint_write *write;     /* the copy that is being written; NULL: none */
    int64_t step, whole_step;           /* of write; of the newest whole copy, -1: none */
    int64_t num;                        /* copies that are whole */
    int64_t stall_ns, longest_stall_ns; /* while no step ran for a copy: of all, of one */
};

/* Begin to keep copies, if the job wants them and all nodes can: a node's part of two copies is at
 * most half of what its shared memory and its memory have left. Copies of an earlier start are
 * removed, unless the run resumes from one of them (from_copy). run_id counts on rank 0. Collective
 * over the message group. */
enum status memory_copies_open(const struct comm *comm, const struct job *job, const char *run_id,
                               bool from_copy, struct memory_copies *copies, struct err *err);
/* End the copy that is being written, and begin that of state->progress->step. A copy that cannot be
 * written turns copies off, and the note says why. Collective; OK except where ranks cannot agree. */
enum status memory_copies_make(const struct comm *comm, const struct checkpoint_state *state,
                               struct memory_copies *copies, struct err *err);
/* Remove all copies, because the run has ended. Collective. */
enum status memory_copies_end(const struct comm *comm, struct memory_copies *copies,
                              struct err *err);

/* Choose the newest good copy of the run in folder `from`, of those newer than the step of
 * choice->dir (NULL: than none), with a note. All nodes then have it whole. If none is good, the
 * note names the newest, and choice stays. Collective; all ranks get the same. */
enum status memory_copies_choose(const struct comm *comm, const char *from,
                                 struct checkpoint_choice *choice, struct err *err);
