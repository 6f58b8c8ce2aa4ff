/* exec/comm/comm.h - messages between ranks through host memory, by MPI; between devices they go by
 * exec/comm/comm_nccl.h.
 *
 * The message group is all ranks, static: decisions, agreement, errors. Active groups are split
 * from it and rebuilt at a change of plan: the pipeline of a replica, the replicas of a stage.
 * Buffers are host memory. Sums are formed by index, so that they have the same bits on every run.
 * One thread per process calls these functions. A rank that fails where its peers do not know ends
 * the job by comm_fail(), so that none waits for ever. */
#ifndef ELAPSE_EXEC_COMM_COMM_H
#define ELAPSE_EXEC_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

struct comm_group; /* opaque: ranks 0..size-1 of a group */

struct comm {
    int rank, size;             /* in the message group */
    int local_rank, local_size; /* among the ranks of this machine */
    int num_nodes, node;        /* machines, and which of them is this one */
    int *node_ranks;            /* owned, [num_nodes]: ranks of each; a node's ranks are contiguous,
                                   in whatever order the launcher has started them */
    int max_tag;                /* of a message */
    int64_t clock_offset_ns;    /* add to this machine's monotonic clock to get rank 0's */
    struct comm_group *all;     /* the message group as a group */
    /* The program's part of comm_fail(), NULL: none; does not return */
    void (*fail)(const struct comm *comm, const struct err *err);
};

/* A message under way. Storage belongs to the caller and must stay in place until it is done. */
struct comm_request {
    union {
        void *pointer;
        int number;
    } handle; /* the backend's own */
    int64_t bytes;
    bool active;
};

/* Start the backend, find out who is where, and set the clocks: by ping-pong between machines (the
 * fastest of 32 round trips counts), 0 within one. Collective. */
enum status comm_init(int *argc, char ***argv, struct comm *comm, struct err *err);
void comm_finalize(struct comm *comm);

/* Print nothing; end all ranks of the job with the exit code. Does not return. */
_Noreturn void comm_abort(const struct comm *comm, int exit_code);

/* For a rank that has failed where its peers do not know: the program says why and ends the job.
 * To be called while all that the rank holds is in place, for until all have ended messages may
 * arrive in it, and peers read from it. */
_Noreturn void comm_fail(const struct comm *comm, const struct err *err);

/* Rank 0's monotonic clock, ns. */
int64_t comm_now_ns(const struct comm *comm);

/* All ranks learn the status of the lowest rank that failed, its message included; OK when none
 * did. Collective over the message group: where input is checked, everyone goes on or nobody. */
enum status comm_agree(const struct comm *comm, enum status status, struct err *err);

/* Ranks with the same color >= 0 form a group, ordered by key; color < 0: in none, *group becomes
 * NULL. Collective over the message group, and so is its failure, where it is not MPI's own.
 * Released by comm_group_free(), on all its ranks before the next split, where what it shared goes.
 */
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
/* A request that is not active is done. A message shorter than asked for is ERR_SYSTEM. */
enum status comm_test(struct comm_request *request, bool *done, struct err *err);
enum status comm_wait(struct comm_request *request, struct err *err);
/* Take a receive back, so that its memory may go. A message that has begun to arrive is waited for
 * and lost; later ones go to later receives. */
void comm_cancel(struct comm_request *request);

/* Let messages under way go on; the backend has no thread of its own. Costs less than 1 us when
 * there is nothing to do. */
void comm_progress(const struct comm_group *group);

/* Collective over the group. Small ones: every rank gets the sum, formed in the order of ranks. */
enum status comm_sum_f64(const struct comm_group *group, double *values, int count,
                         struct err *err);
enum status comm_max_i64(const struct comm_group *group, int64_t *values, int count,
                         struct err *err);
enum status comm_bcast(const struct comm_group *group, void *data, int64_t bytes, int root,
                       struct err *err);
enum status comm_barrier(const struct comm_group *group, struct err *err);
/* Rank 0 gets everyone's bytes, one after the other in the order of ranks, in a fresh buffer (NULL
 * elsewhere), and *sizes, group-size entries; the caller frees both. */
enum status comm_gather(const struct comm_group *group, const void *data, int64_t bytes,
                        void **gathered, int64_t **sizes, struct err *err);

/* A buffer of at least `count` floats for the two sums below; where all ranks of the group are on
 * one machine and it gives them shared memory, sums of values inside it need no message.
 * Collective, the same count everywhere; belongs to the group, valid until a call that asks for
 * more (which loses what it held). */
enum status comm_sum_buffer(struct comm_group *group, int64_t count, float **buffer,
                            struct err *err);

/* values[i] = sum over ranks 0, 1, 2, ... of values[i], left to right. Each rank sums one segment
 * and hands it round: 2 (n - 1) / n of the bytes cross each port, as in a ring. Takes a buffer of
 * the same size for the call. */
enum status comm_allreduce_f32(const struct comm_group *group, float *values, int64_t count,
                               struct err *err);

/* Such a sum under way, or the pairwise one: neighbours first, then neighbouring pairs, ... whose
 * group must have a power of two of ranks (ERR_INPUT else). With micro-batches summed alike inside
 * each rank, the pairwise sum over all does not depend on how many ranks share them. Storage
 * belongs to the caller, starts zeroed, and stays in place until the sum is done. */
struct comm_reduce {
    const struct comm_group *group;
    float *values;
    int64_t count;
    bool pairwise, active;
    struct comm_request request; /* the rest is the backend's own */
    int64_t at;
    int phase;
    float *parts;
    int *counts;
};

/* Start a sum and let it go on: test does what can be done now and never waits; it must be called,
 * by all ranks of the group, for the sum to move. From start until done, values belong to the sum.
 * One sum at a time in a group, and no other collective of that group meanwhile; all ranks start
 * the same sums in the same order. A reduce that is not active is done. An error ends the sum on
 * this rank. */
enum status comm_allreduce_start(const struct comm_group *group, float *values, int64_t count,
                                 bool pairwise, struct comm_reduce *reduce, struct err *err);
enum status comm_allreduce_test(struct comm_reduce *reduce, bool *done, struct err *err);
enum status comm_allreduce_wait(struct comm_reduce *reduce, struct err *err);

#endif
