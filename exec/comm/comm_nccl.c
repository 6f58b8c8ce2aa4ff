#include "exec/comm/comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/cuda_load.h"

/* Of elapse-nccl.so, once it is loaded. */
static const struct nccl_functions *nccl_lib;

/* NCCL reads its environment at the first communicator. What the user has set stays. */
static void set_environment(const struct comm *comm, const char *log_dir)
{
    char text[512], host[128] = "host";
    if (log_dir) {
        mkdir(log_dir, 0777); /* or it is there; a log that cannot be written is no failure */
        snprintf(text, sizeof text, "%.400s/nccl-%d.log", log_dir, comm->rank);
        setenv("NCCL_DEBUG_FILE", text, 0);
        setenv("NCCL_DEBUG", "WARN", 0);
    }
    /* NCCL takes two ranks on one device of one host for a mistake; of two hosts, for what they
     * are. */
    if (comm->local_size > cuda_load_num_devices()) {
        gethostname(host, sizeof host);
        host[sizeof host - 1] = '\0';
        snprintf(text, sizeof text, "%.100s-%d", host, comm->rank);
        setenv("NCCL_HOSTID", text, 0);
    }
}

enum status nccl_open(const struct comm *comm, struct backend *be, const char *log_dir,
                      struct nccl **nccl, struct err *err)
{
    char id[NCCL_ID_BYTES] = {0};
    void *stream = be->stream ? be->stream(be) : NULL;
    enum status rc = OK;
    if (!stream)
        rc = err_set(err, ERR_INFEASIBLE, "train.transport: nccl needs train.device cuda, got %s",
                     be->name);
    if (rc == OK && !nccl_lib)
        nccl_lib = cuda_load_symbol(CUDA_LOAD_NCCL, "nccl_functions", err);
    if (rc == OK && !nccl_lib)
        rc = err ? err->status : ERR_SYSTEM;
    rc = comm_agree(comm, rc, err);
    if (rc != OK)
        return rc;
    set_environment(comm, log_dir);
    if (comm->rank == 0)
        rc = nccl_lib->make_id(id, err);
    rc = comm_agree(comm, rc, err);
    if (rc == OK)
        rc = comm_bcast(comm->all, id, sizeof id, 0, err);
    if (rc == OK)
        rc = nccl_lib->open(id, comm->rank, comm->size, stream, nccl, err);
    return rc;
}

void nccl_close(struct nccl *nccl)
{
    if (nccl)
        nccl_lib->close(nccl);
}

enum status nccl_split(struct nccl *nccl, int color, int key, struct nccl_group **group,
                       struct err *err)
{
    return nccl_lib->split(nccl, color, key, group, err);
}

void nccl_group_free(struct nccl_group *group)
{
    if (group)
        nccl_lib->group_free(group);
}

enum status nccl_sum(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                     struct err *err)
{
    return nccl_lib->sum(group, blocks, num_blocks, err);
}

enum status nccl_test(struct nccl_group *group, bool *done, struct err *err)
{
    return nccl_lib->test(group, done, err);
}

enum status nccl_join(struct nccl_group *group, struct err *err)
{
    return nccl_lib->join(group, err);
}
