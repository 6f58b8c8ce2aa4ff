/* exec/checkpoint/node_copies.h - a checkpoint in the memory of several nodes; private to exec/checkpoint/.
 *
 * Each node has a folder of its own for the checkpoint, under the same name. The files of a node's
 * ranks are in its folder and in that of the next node (the last node's are on the first), so they
 * outlive the loss of any one node. A resumed run completes the folder of every node. */
#pragma once

#include "exec/comm/comm.h"
#include "partition/base/status.h"

/* A file of this rank as it lies in memory: its header, then its values. All is borrowed. */
struct node_file {
    int64_t stage; /* the file is "stage-STAGE.safetensors" */
    const void *part[2];
    int64_t bytes[2];
};
struct node_sends; /* opaque: files that are under way */

/* Bytes that this node can spare for copies: half of what shared memory and memory have left. */
int64_t node_memory_left(void);

/* Begin to send this rank's files to a rank of the next node, and to receive those of the node before
 * into the folder dir. The messages progress during the next steps. Memory of the files must stay
 * until node_sends_end(). Collective over the message group; all ranks get the same status.
 * ERR_SYSTEM: a node cannot take the files, or has no memory for them; nothing is under way then. */
enum status node_sends_begin(const struct comm *comm, const char *dir,
                             const struct node_file *files, int num_files,
                             struct node_sends **sends, struct err *err);
/* Wait until this rank's files are sent and received; release sends. NULL is fine. */
enum status node_sends_end(struct node_sends *sends, struct err *err);

/* Give the file `path` of the group's rank root to the ranks that want it, which write it whole or
 * not at all. Collective; each rank gets its own status. ERR_SYSTEM. */
enum status node_share_file(const struct comm_group *group, int root, const char *path, bool wants,
                            struct err *err);

/* Complete the run's copy of a step on every node: run_dir/checkpoint-STEP then has the manifest and
 * all files that any node has in good order. Each node reads its files once for that, and takes at
 * most node_memory_left(). Collective over the message group, while no group is split from it; all
 * ranks get the same status. ERR_INPUT: a file is on no node; ERR_SYSTEM. */
enum status node_copies_complete(const struct comm *comm, const char *run_dir, const char *run_id,
                                 int64_t step, struct err *err);
