/* exec/comm/comm_nccl.h - sums of gradients between devices by NCCL, beside the host's messages.
 *
 * comm.h stays the message group: decisions, agreement, errors, and whatever goes through the host.
 * With train.transport nccl the replicas of a stage sum their gradients where they lie, on a stream
 * of its own, beside the backward. The order of such a sum is NCCL's (the same on every run of the
 * same machine), so reduction canonical goes through the host as before; so do activations.
 *
 * The library is loaded when it is asked for (elapse-nccl.so beside the program). Its log goes to a
 * file a rank. Ranks that share a device are told apart by NCCL_HOSTID. A rank whose peer is gone
 * sees it in nccl_test(), ends the job with comm_abort(), and mpirun ends the rest. */
#ifndef ELAPSE_EXEC_COMM_COMM_NCCL_H
#define ELAPSE_EXEC_COMM_COMM_NCCL_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/backend.h"
#include "exec/comm/comm.h"

struct nccl;       /* opaque: the parent communicator of all ranks, and a stream */
struct nccl_group; /* opaque: ranks that sum; split from the parent */

/* Collective over the message group. log_dir: where the log of each rank goes; NULL: nowhere.
 * ERR_INFEASIBLE: this build has no NCCL, or the backend is no GPU; ERR_SYSTEM: NCCL's own. */
enum status nccl_open(const struct comm *comm, struct backend *be, const char *log_dir,
                      struct nccl **nccl, struct err *err);
void nccl_close(struct nccl *nccl); /* NULL is fine */

/* As comm_split(): collective, color < 0: in none. */
enum status nccl_split(struct nccl *nccl, int color, int key, struct nccl_group **group,
                       struct err *err);
void nccl_group_free(struct nccl_group *group); /* NULL is fine */

/* Add up blocks of fp32 over the group, in place: each holds the sum of all ranks' afterwards.
 * Starts behind what the backend was given so far and runs beside what it gets later, until
 * nccl_join(): what follows that finds the sums. One under way per group. */
struct nccl_block {
    float *values; /* device memory */
    int64_t count;
};
enum status nccl_sum(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                     struct err *err);
/* Whether it has ended. ERR_SYSTEM: a peer or a link has failed. */
enum status nccl_test(struct nccl_group *group, bool *done, struct err *err);
enum status nccl_join(struct nccl_group *group, struct err *err);

/* What elapse-nccl.so offers; for comm_nccl.c. */
enum { NCCL_ID_BYTES = 128 };
struct nccl_functions {
    enum status (*make_id)(char id[NCCL_ID_BYTES], struct err *err);
    enum status (*open)(const char id[NCCL_ID_BYTES], int rank, int size, void *stream,
                        struct nccl **nccl, struct err *err);
    void (*close)(struct nccl *nccl);
    enum status (*split)(struct nccl *nccl, int color, int key, struct nccl_group **group,
                         struct err *err);
    void (*group_free)(struct nccl_group *group);
    enum status (*sum)(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                       struct err *err);
    enum status (*test)(struct nccl_group *group, bool *done, struct err *err);
    enum status (*join)(struct nccl_group *group, struct err *err);
};

#endif
