#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "exec/measure/measure_state.h"
#include "profiles/base/clock.h"

enum { OTHER_BYTES = 128 << 20 }; /* a step touches at least this much between two sums */
enum { LINK_ROUNDS = 40, SUM_ROUNDS = 15, QUICK_SUM_ROUNDS = 5, FEWEST_ROUNDS = 3 };
static const int64_t size_budget_ns = 2000000000; /* for one size at one place, on a slow network */

/* The rounds that fit the budget if one takes round_ns; at least FEWEST_ROUNDS, at most `most`. */
static int64_t rounds_within(int64_t round_ns, int64_t most)
{
    const int64_t fit = size_budget_ns / (round_ns + 1);
    return fit > most ? most : fit < FEWEST_ROUNDS ? FEWEST_ROUNDS : fit;
}

/* One round trip between this rank and a peer, the receive posted ahead as in the runtime. */
static enum status round_trip(const struct comm_group *all, int peer, bool first, int64_t bytes,
                              char *buffer, int64_t *ns, struct err *err)
{
    struct comm_request send = {0}, recv = {0};
    enum status rc = comm_irecv(all, buffer + bytes, bytes, peer, 1, &recv, err);
    const int64_t begin = clock_now_ns();
    if (rc == OK && !first)
        rc = comm_wait(&recv, err);
    THEN(comm_isend(all, buffer, bytes, peer, 1, &send, err));
    THEN(comm_wait(&send, err));
    THEN(comm_wait(&recv, err));
    *ns = clock_now_ns() - begin;
    return rc;
}

/* Half a round trip between ranks 0 and other; other ranks do nothing. */
static enum status measure_link(struct measure *m, int other, const char *place, int64_t bytes,
                                char *buffer, struct err *err)
{
    const struct comm_group *all = m->comm->all;
    const bool first = m->comm->rank == 0;
    const int peer = first ? other : 0;
    double times[LINK_ROUNDS];
    int64_t rounds = 0, ns = 0;
    enum status rc = OK;
    if (!first && m->comm->rank != other)
        return OK;
    for (int i = 0; rc == OK && i < MEASURE_WARM_UP; i++)
        rc = round_trip(all, peer, first, bytes, buffer, &ns, err);
    if (rc == OK) { /* rank 0's time decides for both */
        struct comm_request request = {0};
        rounds = rounds_within(ns, LINK_ROUNDS);
        rc = first ? comm_isend(all, &rounds, sizeof rounds, peer, 2, &request, err)
                   : comm_irecv(all, &rounds, sizeof rounds, peer, 2, &request, err);
        THEN(comm_wait(&request, err));
    }
    for (int i = 0; rc == OK && i < rounds; i++) {
        rc = round_trip(all, peer, first, bytes, buffer, &ns, err);
        times[i] = (double)ns / 2;
    }
    if (rc == OK && first) {
        struct link_row row = {.backend = "mpi", .ranks = 1, .bytes = bytes};
        snprintf(row.place, sizeof row.place, "%s", place);
        row.ns = measure_spread(m, times, (int)rounds);
        rc = profile_add_link(m->profile, &row, err);
    }
    return rc;
}

/* Buffers of measure_links(). */
struct link_room {
    char *buffer;     /* two messages */
    float *gradients; /* points into buffer */
    char *other;
};

/* A group whose sums are measured. bucket: its sum buffer. */
struct sums {
    struct comm_group *group; /* NULL: this rank is in none */
    const char *place;
    float *bucket;
};

/* Like the runtime: copy gradients into a bucket, sum, copy them back. In a step a backward runs
 * between two sums and replaces the content of the caches; writing `other` has that effect here. */
static enum status measure_allreduce(struct measure *m, const struct sums *sums, int64_t bytes,
                                     const struct link_room *room, struct err *err)
{
    const struct comm_group *group = sums->group;
    const int64_t most = m->options->quick_ns > 0 ? QUICK_SUM_ROUNDS : SUM_ROUNDS;
    double times[SUM_ROUNDS];
    int64_t rounds = most;
    enum status rc = OK;
    if (!group)
        return OK;
    memset(sums->bucket, 0, (size_t)bytes);
    for (int64_t i = -MEASURE_WARM_UP; rc == OK && i < rounds; i++) {
        int64_t begin;
        memset(room->other, i & 1, OTHER_BYTES);
        rc = comm_barrier(group, err);
        begin = clock_now_ns();
        memcpy(sums->bucket, room->gradients, (size_t)bytes);
        if (rc == OK)
            rc =
                comm_allreduce_f32(group, sums->bucket, bytes / (int64_t)sizeof *sums->bucket, err);
        memcpy(room->gradients, sums->bucket, (size_t)bytes);
        const int64_t ns = clock_now_ns() - begin;
        if (i >= 0)
            times[i] = (double)ns;
        rounds = i == -1 ? rounds_within(ns, most) : rounds;
        if (rc == OK && i == -1)
            rc = comm_bcast(group, &rounds, sizeof rounds, 0, err);
    }
    if (rc == OK && m->comm->rank == 0) {
        struct collective_row row = {
            .op = "allreduce", .backend = "mpi", .ranks = comm_group_size(group), .bytes = bytes};
        snprintf(row.place, sizeof row.place, "%s", sums->place);
        row.ns = measure_spread(m, times, (int)rounds);
        rc = profile_add_collective(m->profile, &row, err);
    }
    return rc;
}

/* Sums are measured over the ranks of a node, over one rank of each node, and over all ranks. */
enum { SUMS_NODE, SUMS_ACROSS, SUMS_ALL, SUMS_KINDS };

static enum status make_sums(const struct measure *m, int64_t bytes, struct sums sums[SUMS_KINDS],
                             struct err *err)
{
    const struct comm *comm = m->comm;
    const bool nodes = comm->num_nodes > 1, several = comm->size > comm->num_nodes;
    const int color[SUMS_KINDS] = {comm->local_size > 1 ? comm->node : -1,
                                   nodes && comm->local_rank == 0 ? 0 : -1,
                                   nodes && several ? 0 : -1};
    enum status rc = OK;
    for (int s = 0; rc == OK && s < SUMS_KINDS; s++) {
        sums[s].place = s == SUMS_NODE ? "node" : "net";
        rc = comm_split(comm, color[s], comm->rank, &sums[s].group, err);
        if (rc == OK && sums[s].group)
            rc = comm_sum_buffer(sums[s].group, bytes / (int64_t)sizeof(float), &sums[s].bucket,
                                 err);
    }
    return rc;
}

/* From where latency is all to the default bucket of gradients; inside a node where it has ranks
 * for that (rank 0's), between nodes where there are several. */
enum status measure_links(struct measure *m, struct err *err)
{
    static const int64_t sizes[] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18,
                                    1 << 20, 1 << 22, 1 << 24, 25 << 20};
    enum { NUM_SIZES = sizeof sizes / sizeof *sizes };
    const int64_t most = sizes[NUM_SIZES - 1];
    const struct comm *comm = m->comm;
    struct sums sums[SUMS_KINDS] = {{0}};
    struct link_room room = {.buffer = calloc(1, 2 * (size_t)most + OTHER_BYTES)};
    enum status rc = comm_agree(comm, room.buffer ? OK : err_nomem(err), err);
    if (rc == OK) {
        room.gradients = (float *)(void *)(room.buffer + most);
        room.other = room.buffer + 2 * most;
        rc = make_sums(m, most, sums, err);
    }
    for (int i = 0; rc == OK && i < NUM_SIZES; i++) {
        const int64_t bytes = sizes[i];
        if (comm->node_ranks[0] > 1)
            rc = measure_link(m, 1, "node", bytes, room.buffer, err);
        if (rc == OK && comm->num_nodes > 1)
            rc = measure_link(m, comm->node_ranks[0], "net", bytes, room.buffer, err);
        for (int s = 0; s < SUMS_KINDS && bytes >= 16384; s++) {
            THEN(comm_barrier(comm->all, err));
            THEN(measure_allreduce(m, &sums[s], bytes, &room, err));
        }
        THEN(comm_barrier(comm->all, err));
    }
    for (int s = 0; s < SUMS_KINDS; s++)
        comm_group_free(sums[s].group);
    if (rc == OK) /* after a failure messages may be in flight in it: this rank ends the job */
        free(room.buffer);
    return rc;
}
