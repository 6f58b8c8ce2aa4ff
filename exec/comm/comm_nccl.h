/* exec/comm/comm_nccl.h - messages and sums between devices by NCCL, beside the host's.
 *
 * comm.h stays the message group: decisions, agreement, errors, and whatever goes through the host.
 * With train.transport nccl activations and their gradients go from device to device, and the
 * replicas of a stage sum their gradients where they lie. A group is a communicator and a lane of
 * its own; a call puts work into that lane and returns. The order of a sum is NCCL's (the same on
 * every run of the same machine), so reduction canonical goes through the host as before.
 *
 * G1  Work of a group runs in the order of the calls, which must match on all its ranks.
 * G2  Groups know nothing of each other: one that waits for a peer holds up no other, since each
 *     has its lane. What orders them are events (exec/base/backend.h).
 * G3  The first message of a pair sets up its connection and waits for the peer to do likewise, so
 *     it is sent when the group is made, where all ranks are at the same place.
 * G4  A thread looks at all communicators. When one fails it aborts all, so that nothing on the
 *     device waits any longer; nccl_check() knows it from then on. A process that has not ended
 *     5 s later, since it waits in some other library, ends itself with the cause.
 * G5  Groups that a later plan may ask for are made ahead (nccl_prepare()), one after the other and
 *     in the same order on all ranks, beside the steps: each nccl_go_on() looks once at what is
 *     under way and starts what follows it. All ranks keep the same groups at the same calls, those
 *     too that have no part in them, so that each knows without a message which are there.
 *     ELAPSE_NCCL_AHEAD=off in the environment: a change makes what it needs.
 *
 * The library is loaded when it is asked for (elapse-nccl.so beside the program). Its log goes to a
 * file a rank. Ranks that share a device are told apart by NCCL_HOSTID. */
#ifndef ELAPSE_EXEC_COMM_COMM_NCCL_H
#define ELAPSE_EXEC_COMM_COMM_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "exec/comm/comm.h"

struct nccl;       /* opaque: the parent communicator of all ranks */
struct nccl_group; /* opaque: a communicator split from it, and a lane */

/* Before the first call of CUDA: settings that the driver reads then, unless the user has set them.
 * As many hardware queues as there may be lanes, and kernels loaded at the start: a kernel loaded
 * in mid-run waits for those that run, and they may wait for it. */
void nccl_environment(void);

/* Collective over the message group. log_dir: a folder, where the log of each rank goes; NULL:
 * nowhere. num_gpus: that this rank can see. ERR_INFEASIBLE: this build has no NCCL, or the backend
 * is no GPU; ERR_SYSTEM: NCCL's own. */
enum status nccl_open(const struct comm *comm, struct backend *be, const char *log_dir,
                      int num_gpus, struct nccl **nccl, struct err *err);
void nccl_close(struct nccl *nccl); /* NULL is fine */

/* Which ranks form groups: arrays by rank of the message group, the same on all ranks. */
struct nccl_pattern {
    const int *color; /* ranks of the same color >= 0 form a group; below: in none */
    const int *key;   /* they are ordered by it */
    int copy;         /* tells several alike of one plan apart */
    int most_blocks;  /* of the device that its kernels may take at once; 0: NCCL chooses */
    bool sums;        /* for sums; else groups of two, for messages */
};

bool nccl_pattern_same(const struct nccl_pattern *a, const struct nccl_pattern *b, int num_ranks);

/* This rank's group: one that is there already, or made now and waited for, which has carried a
 * message each way or a sum (G3). Never NULL behind OK; a rank in no group gets one that is for
 * nccl_group_free() alone. The same pattern again is the same group. Collective over the message
 * group, in the same order. */
enum status nccl_group_open(struct nccl *nccl, const struct nccl_pattern *pattern,
                            struct nccl_group **group, struct err *err);
/* As often as opened, at the same places on all ranks; gone with the last, unless it is kept for
 * later (nccl_prepare()). Work under way is given up then. NULL is fine. */
void nccl_group_free(struct nccl_group *group);
struct backend_lane *nccl_group_lane(const struct nccl_group *group);

/* Groups that are wanted soon, in place of those named before: what is there of them is kept, the
 * others are made beside what runs (G5). Collective as above. */
enum status nccl_prepare(struct nccl *nccl, const struct nccl_pattern *patterns, int num,
                         struct err *err);
/* Move what is being made ahead; never waits. To be called by all ranks until it is done: idle ones
 * too, since a group needs its ranks. meet: a group that was split off by the last call sends its
 * first message. Ranks that depend on each other's work must all get that word at the same place of
 * it, where nccl_splits() was false on each of them when they last came by: then all of them have
 * started the message before one goes on to what the others wait for, and it needs no host any
 * more. Ranks that nobody waits for may always say so. Costs nothing when nothing is to be made. */
enum status nccl_go_on(struct nccl *nccl, bool meet, struct err *err);
/* Whether a group is being split off, as of the last call above. NULL: no. */
bool nccl_splits(const struct nccl *nccl);
/* At a run's end: first nccl_prepare() of nothing, where all ranks are well, so that none is left
 * in the middle of making a group; then this, anywhere. It ends all groups with what is under way,
 * at once: one by one each would wait for the messages of the others. They can only be freed
 * afterwards. NULL is fine. */
void nccl_end(struct nccl *nccl);
/* Groups opened so far that were there, and those that had to be waited for. NULL: none. */
struct nccl_counts {
    int ready, made;
};
struct nccl_counts nccl_counts(const struct nccl *nccl);

/* To, and from, the other rank of a group of two; device memory, which belongs to the message until
 * the lane is past it. exchange does both at once. */
enum status nccl_send(struct nccl_group *group, const void *data, int64_t bytes, struct err *err);
enum status nccl_recv(struct nccl_group *group, void *data, int64_t bytes, struct err *err);
enum status nccl_exchange(struct nccl_group *group, const void *out, void *in, int64_t bytes,
                          struct err *err);

/* Add up blocks of fp32 over the group, in place: each holds the sum of all ranks' afterwards. */
struct nccl_block {
    float *values; /* device memory */
    int64_t count;
};
enum status nccl_sum(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                     struct err *err);

/* ERR_SYSTEM with the cause once a communicator has failed (G4). Costs nothing. */
enum status nccl_check(const struct nccl *nccl, struct err *err);

/* What elapse-nccl.so offers, for comm_nccl.c; streams are cudaStream_t. */
enum { NCCL_ID_BYTES = 128 };
struct nccl_device; /* the parent, and the thread of G4 */
struct nccl_comm;
struct nccl_functions {
    enum status (*make_id)(char id[NCCL_ID_BYTES], struct err *err);
    enum status (*open)(const char id[NCCL_ID_BYTES], int rank, int size,
                        struct nccl_device **device, struct err *err);
    void (*end)(struct nccl_device *device); /* all communicators at once */
    void (*close)(struct nccl_device *device);
    /* Starts one; the next may start when it has ended. */
    enum status (*split)(struct nccl_device *device, int color, int key, int most_blocks,
                         struct nccl_comm **comm, struct err *err);
    /* Whether the last call on it has ended: until then there may be no other. */
    enum status (*ended)(struct nccl_comm *comm, bool *done, struct err *err);
    void (*drop)(struct nccl_comm *comm);
    /* In a communicator of two; out or in may be NULL. later NULL: the call waits until its work is
     * in the stream; else *later says that it is not yet. */
    enum status (*exchange)(struct nccl_comm *comm, const void *out, void *in, int64_t bytes,
                            void *stream, bool *later, struct err *err);
    enum status (*sum)(struct nccl_comm *comm, const struct nccl_block *blocks, int num_blocks,
                       void *stream, bool *later, struct err *err);
    enum status (*check)(const struct nccl_device *device, struct err *err);
};

#endif
