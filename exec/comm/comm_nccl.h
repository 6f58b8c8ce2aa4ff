/* exec/comm/comm_nccl.h - messages and sums between devices by NCCL, beside the host's.
 *
 * comm.h stays the message group: decisions, agreement, errors, and all messages through the host.
 * With train.transport nccl, activations and their gradients go from device to device, and the
 * replicas of a stage sum their gradients in device memory. A group is a communicator with a lane
 * of its own (exec/base/backend.h). A call puts work into that lane and returns. NCCL chooses the
 * order of a sum (the same order on every run of the same machine), so canonical reduction still
 * goes through the host.
 *
 * Order. The work of one group runs in the order of the calls, and all its ranks must make the same
 * calls in the same order. Groups are independent: a group that waits for a peer does not block
 * another group, because each has its own lane. Events order the lanes where that is needed.
 *
 * First message. The first message of a pair sets up its connection, which blocks until the peer
 * does the same. It is therefore sent when the group is made, at a point that all ranks reach.
 *
 * Failures. A thread watches all communicators. When one fails, the thread aborts all of them, so
 * that nothing on the device waits any longer, and nccl_check() returns the cause from then on. If
 * the process has not ended 5 s later, because it waits in another library, a second thread prints
 * the cause and ends the process.
 *
 * Groups made ahead. nccl_prepare() names groups that a later plan may need. They are made one
 * after another, in the same order on all ranks, while training steps run: each nccl_go_on() looks
 * once at the operation in flight and starts the next one. All ranks keep the same list of groups,
 * including ranks that are in none of them, so each rank knows without a message which groups
 * exist. ELAPSE_NCCL_AHEAD=off in the environment disables this: a change of plan then makes its
 * groups itself.
 *
 * The library is loaded on first use (elapse-nccl.so beside the program). Each rank writes NCCL's
 * log to a file of its own. Ranks that share a device get different values of NCCL_HOSTID. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "exec/comm/comm.h"

struct nccl;       /* opaque: the parent communicator of all ranks */
struct nccl_group; /* opaque: a communicator split from the parent, and its lane */

/* Set environment variables that the CUDA driver reads at its first call, unless the user has set
 * them. CUDA_DEVICE_MAX_CONNECTIONS=32 gives every lane a hardware queue of its own.
 * CUDA_MODULE_LOADING=EAGER loads all kernels at the start: a kernel that is loaded during the run
 * blocks until the running ones end, and those may be waiting for a peer. Call it before any CUDA
 * call. */
void nccl_environment(void);

/* Collective over the message group. log_dir: the folder for the log of each rank; NULL: no log.
 * num_gpus: the number of GPUs that this rank can see. ERR_INPUT: ELAPSE_NCCL_AHEAD is neither on
 * nor off. ERR_INFEASIBLE: this build has no NCCL, or the backend is not a GPU. ERR_SYSTEM: an
 * error of NCCL. */
enum status nccl_open(const struct comm *comm, struct backend *be, const char *log_dir,
                      int num_gpus, struct nccl **nccl, struct err *err);
void nccl_close(struct nccl *nccl); /* NULL is fine */

/* The ranks that form groups. Arrays are indexed by rank of the message group and equal on all ranks.
 */
struct nccl_pattern {
    const int *color; /* ranks with the same color >= 0 form a group; < 0: in no group */
    const int *key;   /* order of the ranks within their group */
    int copy;         /* distinguishes groups of one plan that are otherwise equal */
    int most_blocks;  /* limit of thread blocks for NCCL's kernels; 0: NCCL chooses */
    bool sums;        /* the group sums; otherwise it has two ranks and carries messages */
};

bool nccl_pattern_same(const struct nccl_pattern *a, const struct nccl_pattern *b, int num_ranks);

/* This rank's group: an existing one, or a new one for which the call waits. It has then carried a
 * first message or sum. *group is never NULL on OK; a rank in no group gets one that it may only
 * pass to nccl_group_free(). An equal pattern gives the same group again. Collective over the
 * message group, with the same calls in the same order on all ranks. */
enum status nccl_group_open(struct nccl *nccl, const struct nccl_pattern *pattern,
                            struct nccl_group **group, struct err *err);
/* Call it once for each nccl_group_open(), at the same points on all ranks. The last call releases
 * the group and drops its work in flight, unless nccl_prepare() keeps the group. NULL is fine. */
void nccl_group_free(struct nccl_group *group);
struct backend_lane *nccl_group_lane(const struct nccl_group *group);

/* Name the groups that are needed soon; this replaces the list of the call before. Groups that
 * exist are kept, and the others are made while steps run (see nccl_go_on()). Collective over the
 * message group. */
enum status nccl_prepare(struct nccl *nccl, const struct nccl_pattern *patterns, int num,
                         struct err *err);
/* Advance the groups that are being made ahead; never waits. All ranks must call it until they are
 * made, idle ranks too, because making a group needs all its ranks. Costs nothing when there is
 * nothing to make.
 *
 * meet: a group that the last call has split off sends its first message. Pass meet=true only at a
 * step boundary that all dependent ranks share, and only if nccl_splits() was false on each of them
 * at the boundary before. Then all of them have started the message before any of them proceeds to
 * work that the others wait for, and the message needs no host any more. A rank that nobody waits
 * for may always pass true. */
enum status nccl_go_on(struct nccl *nccl, bool meet, struct err *err);
/* Whether a group was being split off at the last nccl_go_on(). nccl may be NULL: false. */
bool nccl_splits(const struct nccl *nccl);
/* End all groups at once and drop their work in flight; ended one by one, each would wait for the
 * messages of the others. Afterwards groups can only be freed. If all ranks are well, call
 * nccl_prepare() with no groups first, so that no rank is left in the middle of making one. NULL is
 * fine. */
void nccl_end(struct nccl *nccl);
/* Groups opened so far. ready: they existed already. made: the call had to wait for them. nccl may
 * be NULL: both are 0. */
struct nccl_counts {
    int ready, made;
};
struct nccl_counts nccl_counts(const struct nccl *nccl);

/* Send to, or receive from, the other rank of a group of two; nccl_exchange() does both at once.
 * The buffers are device memory and belong to the message until the lane has passed it. */
enum status nccl_send(struct nccl_group *group, const void *data, int64_t bytes, struct err *err);
enum status nccl_recv(struct nccl_group *group, void *data, int64_t bytes, struct err *err);
enum status nccl_exchange(struct nccl_group *group, const void *out, void *in, int64_t bytes,
                          struct err *err);

/* Sum blocks of fp32 over the group, in place: afterwards each block holds the sum over all ranks.
 */
struct nccl_block {
    float *values; /* device memory */
    int64_t count;
};
enum status nccl_sum(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                     struct err *err);

/* ERR_SYSTEM with the cause once a communicator of this process has failed. Costs one atomic load.
 */
enum status nccl_check(const struct nccl *nccl, struct err *err);

/* The functions of elapse-nccl.so, for comm_nccl.c. A stream is a cudaStream_t. */
enum { NCCL_ID_BYTES = 128 };
struct nccl_device; /* opaque: the parent communicator and the thread that watches for failures */
struct nccl_comm;
struct nccl_functions {
    enum status (*make_id)(char id[NCCL_ID_BYTES], struct err *err);
    enum status (*open)(const char id[NCCL_ID_BYTES], int rank, int size,
                        struct nccl_device **device, struct err *err);
    void (*end)(struct nccl_device *device); /* ends all communicators at once */
    void (*close)(struct nccl_device *device);
    /* Starts to split off one communicator. The next split may start when this one has ended. */
    enum status (*split)(struct nccl_device *device, int color, int key, int most_blocks,
                         struct nccl_comm **comm, struct err *err);
    /* Whether the last call on comm has ended. Until then no other call on comm is allowed. */
    enum status (*ended)(struct nccl_comm *comm, bool *done, struct err *err);
    /* Frees a communicator and drops its work in flight. */
    void (*drop)(struct nccl_comm *comm);
    /* comm has two ranks; out or in may be NULL. later == NULL: the call waits until its work is in
     * the stream. Otherwise *later says whether it is still in flight; ask ended() then. */
    enum status (*exchange)(struct nccl_comm *comm, const void *out, void *in, int64_t bytes,
                            void *stream, bool *later, struct err *err);
    enum status (*sum)(struct nccl_comm *comm, const struct nccl_block *blocks, int num_blocks,
                       void *stream, bool *later, struct err *err);
    enum status (*check)(const struct nccl_device *device, struct err *err);
};
