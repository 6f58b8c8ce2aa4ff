#include "exec/comm/comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/cuda_load.h"

/* Of elapse-nccl.so, once it is loaded. */
static const struct nccl_functions *nccl_lib;

struct nccl {
    struct backend *be;
    struct nccl_device *device;
    void *meeting; /* owned, backend: MEETING_BYTES out and as many in */
    struct backend_event *met;
};

struct nccl_group {
    struct nccl *nccl; /* borrowed */
    struct nccl_comm *comm;
    struct backend_lane *lane;
};

enum { MEETING_BYTES = 256 };

void nccl_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* NCCL reads its environment at the first communicator. What the user has set stays. */
static void set_environment(const struct comm *comm, const char *log_dir)
{
    char text[512], host[128] = "host";
    if (log_dir) {
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

static enum status new_nccl(const struct comm *comm, struct backend *be,
                            const char id[NCCL_ID_BYTES], struct nccl **out, struct err *err)
{
    struct nccl *nccl = calloc(1, sizeof *nccl);
    if (!nccl)
        return err_nomem(err);
    nccl->be = be;
    enum status rc = be->alloc(be, 2 * MEETING_BYTES, &nccl->meeting, err);
    if (rc == OK)
        rc = be->event_new(be, &nccl->met, err);
    if (rc == OK) {
        be->zero(be, nccl->meeting, 2 * MEETING_BYTES);
        rc = be->sync(be, err);
    }
    if (rc == OK)
        rc = nccl_lib->open(id, comm->rank, comm->size, &nccl->device, err);
    if (rc == OK)
        *out = nccl;
    else
        nccl_close(nccl);
    return rc;
}

enum status nccl_open(const struct comm *comm, struct backend *be, const char *log_dir,
                      struct nccl **nccl, struct err *err)
{
    char id[NCCL_ID_BYTES] = {0};
    enum status rc = OK;
    if (!be->lane_new)
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
        rc = comm_agree(comm, new_nccl(comm, be, id, nccl, err), err);
    return rc;
}

void nccl_close(struct nccl *nccl)
{
    if (!nccl)
        return;
    if (nccl->device)
        nccl_lib->close(nccl->device);
    nccl->be->event_free(nccl->be, nccl->met);
    nccl->be->free(nccl->be, nccl->meeting);
    free(nccl);
}

enum status nccl_split(struct nccl *nccl, int color, int key, int most_blocks,
                       struct nccl_group **out, struct err *err)
{
    struct backend *be = nccl->be;
    struct nccl_comm *comm = NULL;
    enum status rc = nccl_lib->split(nccl->device, color, key, most_blocks, &comm, err);
    *out = NULL;
    if (rc != OK || !comm)
        return rc;
    struct nccl_group *group = calloc(1, sizeof *group);
    if (group) {
        *group = (struct nccl_group){.nccl = nccl, .comm = comm};
        rc = be->lane_new(be, &group->lane, err);
    } else {
        nccl_lib->drop(comm);
        rc = err_nomem(err);
    }
    if (rc == OK)
        *out = group;
    else
        nccl_group_free(group);
    return rc;
}

void nccl_group_free(struct nccl_group *group)
{
    if (!group)
        return;
    nccl_lib->drop(group->comm);
    group->nccl->be->lane_free(group->nccl->be, group->lane);
    free(group);
}

struct backend_lane *nccl_group_lane(const struct nccl_group *group)
{
    return group->lane;
}

static enum status exchange(struct nccl_group *group, const void *out, void *in, int64_t bytes,
                            struct err *err)
{
    struct backend *be = group->nccl->be;
    return nccl_lib->exchange(group->comm, out, in, bytes, be->lane_stream(be, group->lane), err);
}

enum status nccl_meet(struct nccl_group *group, bool sums, struct err *err)
{
    struct nccl *nccl = group->nccl;
    struct backend *be = nccl->be;
    const struct nccl_block block = {nccl->meeting, MEETING_BYTES / (int64_t)sizeof(float)};
    void *in = (char *)nccl->meeting + MEETING_BYTES;
    enum status rc = sums ? nccl_sum(group, &block, 1, err)
                          : exchange(group, nccl->meeting, in, MEETING_BYTES, err);
    if (rc != OK)
        return rc;
    be->lane_record(be, group->lane, nccl->met);
    while (rc == OK && !be->event_done(be, nccl->met))
        rc = nccl_check(nccl, err);
    return rc;
}

enum status nccl_send(struct nccl_group *group, const void *data, int64_t bytes, struct err *err)
{
    return exchange(group, data, NULL, bytes, err);
}

enum status nccl_recv(struct nccl_group *group, void *data, int64_t bytes, struct err *err)
{
    return exchange(group, NULL, data, bytes, err);
}

enum status nccl_exchange(struct nccl_group *group, const void *out, void *in, int64_t bytes,
                          struct err *err)
{
    return exchange(group, out, in, bytes, err);
}

enum status nccl_sum(struct nccl_group *group, const struct nccl_block *blocks, int num_blocks,
                     struct err *err)
{
    struct backend *be = group->nccl->be;
    return nccl_lib->sum(group->comm, blocks, num_blocks, be->lane_stream(be, group->lane), err);
}

enum status nccl_check(const struct nccl *nccl, struct err *err)
{
    return nccl_lib->check(nccl->device, err);
}
