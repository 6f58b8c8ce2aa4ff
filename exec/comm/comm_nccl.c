/* Groups of NCCL: a list of them, and a small state machine that makes each (comm_nccl.h says why).
 *
 * The list has the same groups in the same order on all ranks; they are made in that order. make()
 * takes one step of the first group that is not ready: split it off, wait for that, start its first
 * message, wait until it is connected, wait until the device has carried the message. nccl_go_on()
 * calls make() without waiting, while steps run; make_all() waits. Read enum making and make()
 * first, then nccl_group_open() and nccl_prepare(). The calls of NCCL itself are in nccl_device.c,
 * which is loaded at run time as nccl_lib. */
#include "exec/comm/comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/base/plugin.h"
#include "exec/base/watch.h"

/* The functions of elapse-nccl.so; NULL until it is loaded. */
static const struct nccl_functions *nccl_lib;

enum { MEETING_BYTES = 256, PAUSE_NS = 20000 };

/* The state of a group. NEW: nothing done. SPLITS: the split is in flight. SPLIT: the group waits
 * for meet (nccl_go_on()). CONNECTS: its first message is being set up. MEETS: the message is in
 * the lane. READY: it can be used. */
enum making { NEW, SPLITS, SPLIT, CONNECTS, MEETS, READY };

struct nccl_group {
    struct nccl *nccl;           /* borrowed */
    struct nccl_comm *comm;      /* NULL in state NEW */
    struct backend_lane *lane;   /* NULL unless the group is open and this rank is in it */
    struct nccl_pattern pattern; /* its arrays are owned */
    bool kept, late; /* kept: nccl_prepare() named it. late: a call had to wait for it */
    int opened;
    enum making at;
    struct nccl_group *next;
};

struct nccl {
    const struct comm *comm;
    struct backend *be;
    struct nccl_device *device;
    struct nccl_group *groups; /* owned; the same groups in the same order on all ranks */
    struct nccl_counts counts;
    bool ahead;    /* false: ELAPSE_NCCL_AHEAD=off */
    void *meeting; /* owned, device memory of first messages: MEETING_BYTES to send, then
                      MEETING_BYTES to receive */
    struct backend_lane *lane; /* carries first messages, one at a time */
    struct backend_event *met;
};

void nccl_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* Set NCCL's environment variables, which it reads when the first communicator is made. For
 * NCCL_DEBUG_FILE, NCCL_DEBUG and NCCL_HOSTID a value set by the user stays. */
static void set_environment(const struct comm *comm, const char *log_dir, int num_gpus)
{
    char text[512], host[128] = "host";
    if (log_dir) {
        snprintf(text, sizeof text, "%.400s/nccl-%d.log", log_dir, comm->rank);
        setenv("NCCL_DEBUG_FILE", text, 0);
        setenv("NCCL_DEBUG", "WARN", 0);
    }
    /* NCCL refuses two ranks on one device of one host. It accepts them if the ranks claim to be on
     * different hosts. */
    if (comm->local_size > num_gpus) {
        gethostname(host, sizeof host);
        host[sizeof host - 1] = '\0';
        snprintf(text, sizeof text, "%.100s-%d", host, comm->rank);
        setenv("NCCL_HOSTID", text, 0);
    }
}

static enum status read_ahead(bool *ahead, struct err *err)
{
    const char *named = getenv("ELAPSE_NCCL_AHEAD");
    *ahead = !named || strcmp(named, "on") == 0;
    if (!*ahead && strcmp(named, "off") != 0)
        return err_set(err, ERR_INPUT, "ELAPSE_NCCL_AHEAD must be on or off, got '%.40s'", named);
    return OK;
}

/* The second half of nccl_open(), with its checks passed. Collective over the message group. */
static enum status new_nccl(const struct comm *comm, struct backend *be, bool ahead,
                            const char id[NCCL_ID_BYTES], struct nccl **out, struct err *err)
{
    struct nccl *nccl = calloc(1, sizeof *nccl);
    enum status rc = comm_agree(comm, nccl ? OK : err_nomem(err), err);
    if (rc != OK) {
        free(nccl);
        return rc;
    }
    nccl->comm = comm;
    nccl->be = be;
    nccl->ahead = ahead;
    rc = be->alloc(be, 2 * MEETING_BYTES, &nccl->meeting, err);
    THEN(be->event_new(be, &nccl->met, err));
    THEN(be->lane_new(be, &nccl->lane, err));
    if (rc == OK) {
        be->zero(be, nccl->meeting, 2 * MEETING_BYTES);
        rc = be->sync(be, err);
    }
    /* Agree first, because opening a communicator waits for every rank. */
    rc = comm_agree(comm, rc, err);
    if (rc == OK) {
        watch_wait("for NCCL's start", -1, comm->size);
        rc = nccl_lib->open(id, comm->rank, comm->size, &nccl->device, err);
        watch_wait_end();
        rc = comm_agree(comm, rc, err);
    }
    if (rc == OK)
        *out = nccl;
    else
        nccl_close(nccl);
    return rc;
}

enum status nccl_open(const struct comm *comm, struct backend *be, const char *log_dir,
                      int num_gpus, struct nccl **nccl, struct err *err)
{
    char id[NCCL_ID_BYTES] = {0};
    bool ahead;
    enum status rc = read_ahead(&ahead, err);
    if (rc == OK && !be->lane_new)
        rc = err_set(err, ERR_INFEASIBLE, "train.transport: nccl needs train.device cuda, got %s",
                     be->name);
    if (rc == OK && !nccl_lib)
        nccl_lib = plugin_symbol(PLUGIN_NCCL, "nccl_functions", err);
    if (rc == OK && !nccl_lib)
        rc = err ? err->status : ERR_SYSTEM;
    rc = comm_agree(comm, rc, err);
    if (rc != OK)
        return rc;
    set_environment(comm, log_dir, num_gpus);
    if (comm->rank == 0)
        rc = nccl_lib->make_id(id, err);
    rc = comm_agree(comm, rc, err);
    THEN(comm_bcast(comm->all, id, sizeof id, 0, err));
    THEN(new_nccl(comm, be, ahead, id, nccl, err));
    return rc;
}

/* --- groups ----------------------------------------------------------------------------------- */

bool nccl_pattern_same(const struct nccl_pattern *a, const struct nccl_pattern *b, int num_ranks)
{
    const size_t bytes = (size_t)num_ranks * sizeof(int);
    return a->copy == b->copy && a->most_blocks == b->most_blocks && a->sums == b->sums &&
           memcmp(a->color, b->color, bytes) == 0 && memcmp(a->key, b->key, bytes) == 0;
}

static bool is_in(const struct nccl_group *group)
{
    return group->pattern.color[group->nccl->comm->rank] >= 0;
}

/* The group of an equal pattern; NULL: there is none. */
static struct nccl_group *find(const struct nccl *nccl, const struct nccl_pattern *pattern)
{
    struct nccl_group *group = nccl->groups;
    while (group && !nccl_pattern_same(&group->pattern, pattern, nccl->comm->size))
        group = group->next;
    return group;
}

static void drop(struct nccl_group *group)
{
    struct nccl_group **at = &group->nccl->groups;
    while (*at && *at != group)
        at = &(*at)->next;
    if (*at)
        *at = group->next;
    if (group->comm)
        nccl_lib->drop(group->comm);
    group->nccl->be->lane_free(group->nccl->be, group->lane);
    free((void *)group->pattern.color);
    free((void *)group->pattern.key);
    free(group);
}

/* Appends a group to the list. The end is the only place, because groups are made in the order of
 * the list. */
static enum status append(struct nccl *nccl, const struct nccl_pattern *pattern,
                          struct nccl_group **out, struct err *err)
{
    const size_t bytes = (size_t)nccl->comm->size * sizeof(int);
    struct nccl_group **at = &nccl->groups, *group = calloc(1, sizeof *group);
    int *color = malloc(bytes), *key = malloc(bytes);
    if (!group || !color || !key) {
        free(group);
        free(color);
        free(key);
        return err_nomem(err);
    }
    memcpy(color, pattern->color, bytes);
    memcpy(key, pattern->key, bytes);
    *group = (struct nccl_group){.nccl = nccl, .pattern = *pattern};
    group->pattern.color = color;
    group->pattern.key = key;
    while (*at)
        at = &(*at)->next;
    *at = *out = group;
    return OK;
}

/* Start the first message of a group. It needs no host from here on: NCCL's threads set up the
 * connection and put the message into the lane. */
static enum status start_meeting(struct nccl_group *group, struct err *err)
{
    struct nccl *nccl = group->nccl;
    void *stream = nccl->be->lane_stream(nccl->be, nccl->lane);
    const struct nccl_block block = {nccl->meeting, MEETING_BYTES / (int64_t)sizeof(float)};
    void *in = (char *)nccl->meeting + MEETING_BYTES;
    bool later;
    group->at = CONNECTS;
    return group->pattern.sums ? nccl_lib->sum(group->comm, &block, 1, stream, &later, err)
                               : nccl_lib->exchange(group->comm, nccl->meeting, in, MEETING_BYTES,
                                                    stream, &later, err);
}

/* Take one step of making a group, unless the operation it waits for is still in flight. */
static enum status make(struct nccl_group *group, bool meet, struct err *err)
{
    struct nccl *nccl = group->nccl;
    const struct nccl_pattern *pattern = &group->pattern;
    const int rank = nccl->comm->rank;
    enum status rc = OK;
    bool done = false;
    switch (group->at) {
    case NEW:
        rc = nccl_lib->split(nccl->device, pattern->color[rank], pattern->key[rank],
                             pattern->most_blocks, &group->comm, err);
        group->at = SPLITS;
        break;
    case SPLITS:
        rc = nccl_lib->ended(group->comm, &done, err);
        if (rc == OK && done)
            group->at = SPLIT;
        break;
    case SPLIT: /* ranks outside the group also wait for meet, because the next split needs all
                   ranks */
        if (meet && is_in(group))
            rc = start_meeting(group, err);
        else if (meet)
            group->at = READY;
        break;
    case CONNECTS:
        rc = nccl_lib->ended(group->comm, &done, err);
        if (rc != OK || !done)
            break;
        nccl->be->lane_record(nccl->be, nccl->lane, nccl->met);
        group->at = MEETS;
        break;
    case MEETS:
        rc = nccl_lib->check(nccl->device, err);
        if (rc == OK && nccl->be->event_done(nccl->be, nccl->met))
            group->at = READY;
        break;
    case READY:
        break;
    }
    return rc;
}

/* The first group of the list that is not ready; NULL: all are ready. */
static struct nccl_group *unmade(const struct nccl *nccl)
{
    struct nccl_group *group = nccl->groups;
    while (group && group->at == READY)
        group = group->next;
    return group;
}

bool nccl_splits(const struct nccl *nccl)
{
    const struct nccl_group *group = nccl ? unmade(nccl) : NULL;
    return group && group->at < SPLIT;
}

enum status nccl_go_on(struct nccl *nccl, bool meet, struct err *err)
{
    for (struct nccl_group *group; (group = unmade(nccl));) {
        const enum making was = group->at;
        const enum status rc = make(group, meet, err);
        if (rc != OK || group->at == was)
            return rc;
        if (was < SPLIT) /* meet applies only to a group that was split off before this call */
            meet = false;
    }
    return OK;
}

/* Make all groups of the list; waits until they are ready. */
static enum status make_all(struct nccl *nccl, struct err *err)
{
    for (struct nccl_group *group = nccl->groups; group; group = group->next)
        group->late |= group->at != READY;
    enum status rc = nccl_go_on(nccl, true, err);
    watch_wait("for connections", -1, nccl->comm->size);
    while (rc == OK && unmade(nccl)) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        rc = nccl_go_on(nccl, true, err);
    }
    watch_wait_end();
    return rc;
}

enum status nccl_group_open(struct nccl *nccl, const struct nccl_pattern *pattern,
                            struct nccl_group **out, struct err *err)
{
    struct nccl_group *group = find(nccl, pattern);
    /* Equal on all ranks, because all make the same calls. */
    const bool opens = !group || group->opened == 0;
    enum status rc = group ? OK : append(nccl, pattern, &group, err);
    *out = NULL;
    if (rc == OK && opens && is_in(group))
        rc = nccl->be->lane_new(nccl->be, &group->lane, err);
    if (opens) /* agree first, because making the group waits for every rank */
        rc = comm_agree(nccl->comm, rc, err);
    THEN(make_all(nccl, err));
    if (rc != OK)
        return rc;
    group->opened++;
    nccl->counts.ready += !group->late;
    nccl->counts.made += group->late;
    group->late = false;
    *out = group;
    return OK;
}

void nccl_group_free(struct nccl_group *group)
{
    if (!group || --group->opened > 0)
        return;
    if (!group->kept) {
        drop(group);
        return;
    }
    group->nccl->be->lane_free(group->nccl->be, group->lane);
    group->lane = NULL;
}

static void keep_none(struct nccl *nccl)
{
    for (struct nccl_group *group = nccl->groups; group; group = group->next)
        group->kept = false;
}

void nccl_end(struct nccl *nccl)
{
    if (!nccl)
        return;
    keep_none(nccl);
    nccl_lib->end(nccl->device);
}

enum status nccl_prepare(struct nccl *nccl, const struct nccl_pattern *patterns, int num,
                         struct err *err)
{
    /* A group that is ready on this rank may still have its first message in flight on another
     * rank. */
    enum status rc = comm_agree(nccl->comm, make_all(nccl, err), err);
    keep_none(nccl);
    for (int i = 0; rc == OK && nccl->ahead && i < num; i++) {
        struct nccl_group *group = find(nccl, &patterns[i]);
        if (!group)
            rc = append(nccl, &patterns[i], &group, err);
        if (rc == OK)
            group->kept = true;
    }
    for (struct nccl_group *group = nccl->groups, *next; group; group = next) {
        next = group->next;
        if (!group->kept && group->opened == 0)
            drop(group);
    }
    return rc;
}

struct nccl_counts nccl_counts(const struct nccl *nccl)
{
    return nccl ? nccl->counts : (struct nccl_counts){0};
}

void nccl_close(struct nccl *nccl)
{
    if (!nccl)
        return;
    if (nccl->device) {
        while (nccl->groups)
            drop(nccl->groups);
        nccl_lib->close(nccl->device);
    }
    nccl->be->lane_free(nccl->be, nccl->lane);
    nccl->be->event_free(nccl->be, nccl->met);
    nccl->be->free(nccl->be, nccl->meeting);
    free(nccl);
}

struct backend_lane *nccl_group_lane(const struct nccl_group *group)
{
    return group->lane;
}

/* --- work ------------------------------------------------------------------------------------- */

static enum status exchange(struct nccl_group *group, const void *out, void *in, int64_t bytes,
                            struct err *err)
{
    struct backend *be = group->nccl->be;
    return nccl_lib->exchange(group->comm, out, in, bytes, be->lane_stream(be, group->lane), NULL,
                              err);
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
    return nccl_lib->sum(group->comm, blocks, num_blocks, be->lane_stream(be, group->lane), NULL,
                         err);
}

enum status nccl_check(const struct nccl *nccl, struct err *err)
{
    return nccl_lib->check(nccl->device, err);
}
