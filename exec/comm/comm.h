/* exec/comm/comm.h - messages between ranks through host memory, by MPI. Messages between devices
 * go by exec/comm/comm_nccl.h.
 *
 * The message group holds all ranks and never changes. It carries decisions, agreement and errors.
 * Active groups (the pipeline of a replica, the replicas of a stage) are split from it and rebuilt
 * when the plan changes. Buffers are host memory. Sums add the ranks in a fixed order, so their
 * bits are the same on every run. One thread per process calls these functions. A rank that fails
 * where its peers cannot know ends the job by comm_fail(), so that no peer waits for ever. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

struct comm_group; /* opaque: ranks 0..size-1 of a group */

struct comm {
    int rank, size;             /* in the message group */
    int local_rank, local_size; /* among the ranks of this machine */
    int num_nodes, node;        /* number of machines; index of this one */
    int *node_ranks; /* owned, [num_nodes]: the number of ranks on each node; a node's ranks are
                        contiguous, whatever the order in which the launcher started them */
    int max_tag;     /* the largest tag that a message may have */
    int64_t clock_offset_ns; /* add to this machine's monotonic clock to get rank 0's */
    struct comm_group *all;  /* the message group as a group */
    /* Called by comm_fail() first; must not return. NULL: comm_fail() aborts the job at once. */
    void (*fail)(const struct comm *comm, const struct err *err);
};

/* A message in flight. Its storage belongs to the caller and must stay in place until the message
 * is done. */
struct comm_request {
    union {
        void *pointer;
        int number;
    } handle; /* private to the backend, as all but active */
    int64_t bytes;
    const char *waits; /* for the watchdog: see watch_wait() */
    int peer, num_peers;
    bool active;
};

/* Start the backend, number the ranks node by node and set the clocks. The clock of another machine
 * is set by ping-pong (the fastest of 32 round trips counts); within one machine the offset is 0.
 * Collective. */
enum status comm_init(int *argc, char ***argv, struct comm *comm, struct err *err);
void comm_finalize(struct comm *comm);

/* Print nothing; end all ranks of the job with the exit code. Does not return. */
_Noreturn void comm_abort(const struct comm *comm, int exit_code);

/* End the job after a failure that the peers do not know of: the program prints why, then all ranks
 * end. Call it while all buffers of this rank are still allocated, because until every rank has
 * ended messages may arrive in them and peers may read from them. */
_Noreturn void comm_fail(const struct comm *comm, const struct err *err);

/* Rank 0's monotonic clock, ns. */
int64_t comm_now_ns(const struct comm *comm);

/* Every rank returns the status and the message of the lowest rank that failed, or OK if none did.
 * Call it after checking input, so that either all ranks continue or none does. Collective over the
 * message group. */
enum status comm_agree(const struct comm *comm, enum status status, struct err *err);

/* Ranks with the same color >= 0 form a group, ordered by key. A rank with color < 0 is in no
 * group; its *group becomes NULL. Collective over the message group; unless MPI itself fails, all
 * ranks return the same status. Release with comm_group_free(). All ranks of a group must have
 * freed it before the next split, which also releases the group's shared memory. */
enum status comm_split(const struct comm *comm, int color, int key, struct comm_group **group,
                       struct err *err);
void comm_group_free(struct comm_group *group);
int comm_group_rank(const struct comm_group *group);
int comm_group_size(const struct comm_group *group);

/* Point to point, nonblocking. tag 0..comm.max_tag; messages of one (peer, tag) arrive in order. */
enum status comm_isend(const struct comm_group *group, const void *data, int64_t bytes, int peer,
                       int tag, struct comm_request *request, struct err *err);
enum status comm_irecv(const struct comm_group *group, void *data, int64_t bytes, int peer, int tag,
                       struct comm_request *request, struct err *err);
/* A request that is not active counts as done. A message that is shorter than the receive is
 * ERR_SYSTEM. */
enum status comm_test(struct comm_request *request, bool *done, struct err *err);
enum status comm_wait(struct comm_request *request, struct err *err);
/* Cancel a receive, so that its buffer may be freed. If its message has begun to arrive, the call
 * waits for it and drops it. Later messages go to later receives. */
void comm_cancel(struct comm_request *request);

/* Let messages in flight make progress; the backend has no thread of its own. Costs less than 1 us
 * when there is nothing to do. */
void comm_progress(const struct comm_group *group);

/* Small collectives over the group. In a sum every rank gets the same result, added in the order of
 * the ranks. */
enum status comm_sum_f64(const struct comm_group *group, double *values, int count,
                         struct err *err);
enum status comm_max_i64(const struct comm_group *group, int64_t *values, int count,
                         struct err *err);
enum status comm_bcast(const struct comm_group *group, void *data, int64_t bytes, int root,
                       struct err *err);
enum status comm_barrier(const struct comm_group *group, struct err *err);
/* Rank 0 gets the bytes of all ranks, in the order of the ranks, in a new buffer, and *sizes, one
 * entry a rank. Both are NULL on the other ranks. The caller frees both. ERR_NOMEM on all ranks if
 * one has no memory. */
enum status comm_gather(const struct comm_group *group, const void *data, int64_t bytes,
                        void **gathered, int64_t **sizes, struct err *err);

/* A buffer of at least `count` floats for the two sums below. If all ranks of the group are on one
 * machine and it has enough shared memory, sums of values inside the buffer need no message.
 * Collective, with the same count on every rank. The group owns the buffer. It is valid until a
 * call that asks for more; that call does not keep its contents. */
enum status comm_sum_buffer(struct comm_group *group, int64_t count, float **buffer,
                            struct err *err);

/* values[i] = the sum of values[i] over ranks 0, 1, 2, ..., added left to right. Each rank adds one
 * segment and sends it to the others, so 2 (n - 1) / n of the bytes cross each port, as in a ring.
 * Allocates at most as much memory as values take, for the duration of the call. */
enum status comm_allreduce_f32(const struct comm_group *group, float *values, int64_t count,
                               struct err *err);

/* A sum in flight: left to right as above, or pairwise. A pairwise sum adds neighbouring ranks,
 * then neighbouring pairs, and so on; the group must have a power of two of ranks (else ERR_INPUT).
 * If each rank has also summed its micro-batches pairwise, the result does not depend on the number
 * of ranks. Storage belongs to the caller, starts zeroed, and must stay in place until the sum is
 * done. */
struct comm_reduce {
    const struct comm_group *group;
    float *values;
    int64_t count;
    bool pairwise, active;
    struct comm_request request; /* this field and those below are private to the backend */
    int64_t at;
    int phase;
    float *parts;
    int *counts;
};

/* Start a sum, and let it make progress. comm_allreduce_test() does what is possible now and never
 * waits; all ranks of the group must keep calling it, or the sum does not progress. From the start
 * until it is done, values belong to the sum. Only one sum of a group may be in flight, and no
 * other collective of that group meanwhile. All ranks start the same sums in the same order. A
 * reduce that is not active counts as done. An error ends the sum on this rank. */
enum status comm_allreduce_start(const struct comm_group *group, float *values, int64_t count,
                                 bool pairwise, struct comm_reduce *reduce, struct err *err);
enum status comm_allreduce_test(struct comm_reduce *reduce, bool *done, struct err *err);
enum status comm_allreduce_wait(struct comm_reduce *reduce, struct err *err);
