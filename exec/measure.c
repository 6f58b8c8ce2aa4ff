#include "exec/measure.h"

#include <cblas.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/cache_arena.h"
#include "exec/choices.h"
#include "exec/cpu/gemm.h"
#include "exec/data/loader.h"
#include "exec/device_info.h"
#include "exec/rng.h"
#include "exec/stage.h"
#include "partition/job.h"
#include "partition/units.h"

/* Times of the device are taken by its events; clock_gettime() is for what the host does. Layers
 * are measured in passes over the whole model with LIVE micro-batches, so they find the caches as
 * in a step; copies go round in memory that no cache holds.
 *
 * Repeats go on until the budget of a phase is spent, within these limits. */
enum { MIN_REPEATS = 6, MAX_REPEATS = 60, WARM_UP = 2 };
enum { STASH_SAMPLES = 4 };
enum { SWEEP = 3 }; /* repeats of a sweep */
/* Micro-batches in flight while layers are measured, as on the first of two stages under 1F1B. */
enum { LIVE = 2 };
/* Optimizer state tensors: 1 momentum, 2 Adam. */
enum { MAX_STATES = 2 };
static const int64_t phase_budget_ns = 12000000000, quick_budget_ns = 4000000000;

/* One distinct sublayer: all items of the model that cost the same. */
struct shape {
    struct layer_key key;
    int num_items;
    bool trains_first; /* an item of it was measured behind frozen layers: PASS_BWD_REST */
    double *times; /* [num_samples][PASS_UPDATE][MAX_REPEATS] of passes, [MAX_STATES] of updates */
};

struct measure {
    const struct comm *comm;
    const struct cores *cores;
    const struct measure_options *options;
    struct job job;
    struct backend *backend;
    struct stage *stage; /* the whole model */
    struct backend_event *from, *to;
    struct shape *shapes;
    int num_shapes;
    int *shape_of;    /* by item */
    int64_t *item_ns; /* [num_items][PASS_COUNT], of the round under way */
    double *item_sumsq;
    double norm_times[MAX_REPEATS],
        op_times[MAX_REPEATS]; /* op_times: what a pass of a stage takes besides its items */
    int64_t most;              /* largest micro-batch */
    float *images;
    int32_t *tokens, *types, *lengths, *labels;
    int64_t *ids;
    struct profile *profile; /* rank 0 */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Time of the device between the two; the latter waits for it. */
static void clock_start(struct measure *m)
{
    m->backend->event_record(m->backend, m->from);
}

static double clock_ns(struct measure *m)
{
    m->backend->event_record(m->backend, m->to);
    return (double)m->backend->event_ns(m->backend, m->from, m->to);
}

static double *pass_times(const struct shape *shape, int size, int pass)
{
    return shape->times + ((size_t)size * PASS_UPDATE + (size_t)pass) * MAX_REPEATS;
}

static double *update_times(const struct measure *m, const struct shape *shape, int states)
{
    return pass_times(shape, m->options->num_samples, 0) + (size_t)(states - 1) * MAX_REPEATS;
}

/* --- layers ----------------------------------------------------------------------------------- */

static void fill_normal(float *values, int64_t n, uint64_t key)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)rng_normal(key, (uint64_t)i);
}

static void clear_shapes(struct measure *m)
{
    for (int i = 0; i < m->num_shapes; i++)
        free(m->shapes[i].times);
    free(m->shapes);
    free(m->shape_of);
    free(m->item_ns);
    free(m->item_sumsq);
    m->shapes = NULL;
    m->shape_of = NULL;
    m->item_ns = NULL;
    m->item_sumsq = NULL;
    m->num_shapes = 0;
    stage_free(m->stage);
    m->stage = NULL;
}

static enum status make_shapes(struct measure *m, struct err *err)
{
    const struct model *model = &m->job.model;
    const size_t n = (size_t)model->num_items;
    m->shapes = calloc(n, sizeof *m->shapes);
    m->shape_of = calloc(n, sizeof *m->shape_of);
    m->item_ns = calloc(n * PASS_COUNT, sizeof *m->item_ns);
    m->item_sumsq = calloc(n, sizeof *m->item_sumsq);
    if (!m->shapes || !m->shape_of || !m->item_ns || !m->item_sumsq)
        return err_nomem(err);
    for (int i = 0; i < model->num_items; i++) {
        struct layer_key key;
        int j = 0;
        layer_key_of(model, i, &key);
        while (j < m->num_shapes && memcmp(&m->shapes[j].key, &key, sizeof key) != 0)
            j++;
        struct shape *shape = &m->shapes[j];
        m->shape_of[i] = j;
        shape->num_items++;
        if (j < m->num_shapes)
            continue;
        m->num_shapes++;
        shape->key = key;
        shape->times =
            calloc(((size_t)m->options->num_samples * PASS_UPDATE + MAX_STATES) * MAX_REPEATS,
                   sizeof *shape->times);
        if (!shape->times)
            return err_nomem(err);
    }
    return OK;
}

/* The whole model on this rank, as a pipeline of one stage holds it. */
static enum status make_stage(struct measure *m, int64_t samples, struct err *err)
{
    const struct model *model = &m->job.model;
    m->job.train.optimizer.kind = OPTIMIZER_ADAMW; /* room for the state of all */
    struct stage_spec spec = {.model = model,
                              .job = &m->job,
                              .backend = m->backend,
                              .end_item = model->num_items,
                              .max_samples = samples,
                              .max_live = LIVE};
    enum status rc = stage_new(&spec, &m->stage, err);
    if (rc == OK)
        rc = stage_init_weights(m->stage, 1, err);
    return rc;
}

/* What the items of a shape took in one round, the mean, so that rows add up to a stage. */
static double shape_mean(const struct measure *m, int shape, int pass, int rounds)
{
    double sum = 0;
    for (int i = 0; i < m->job.model.num_items; i++)
        if (m->shape_of[i] == shape)
            sum += (double)m->item_ns[i * PASS_COUNT + pass];
    return sum / ((double)rounds * m->shapes[shape].num_items);
}

static void forget_round(struct measure *m)
{
    memset(m->item_ns, 0, (size_t)m->job.model.num_items * PASS_COUNT * sizeof *m->item_ns);
}

/* LIVE micro-batches of a size forward through the whole model, then backward: every item finds
 * weights, stash and caches as in a step, not as its own last call left them. What the items took
 * is in item_ns, *rest_ns is what a pass took besides. */
static enum status run_passes(struct measure *m, int size, double *rest_ns, struct err *err)
{
    struct sample_block block = {.num_samples = m->options->samples[size],
                                 .ids = m->ids,
                                 .images = m->images,
                                 .tokens = m->tokens,
                                 .token_types = m->types,
                                 .lengths = m->lengths,
                                 .labels = m->labels};
    void *in[1] = {NULL}, *out[1], *grad_in[1];
    struct loss_sums loss;
    enum status rc = OK;
    int64_t items_ns = 0;
    stage_time_items(m->stage, m->item_ns);
    clock_start(m);
    for (int mb = 0; rc == OK && mb < LIVE; mb++)
        rc = stage_forward(m->stage, mb, &block, 0, in, out, true, &loss, err);
    for (int mb = 0; rc == OK && mb < LIVE; mb++)
        rc = stage_backward(m->stage, mb, &block, 0, BACKWARD_BOTH, 1, in, grad_in, err);
    const double all_ns = clock_ns(m);
    stage_time_read(m->stage);
    for (int i = 0; rc == OK && i < m->job.model.num_items * PASS_COUNT; i++)
        items_ns += m->item_ns[i];
    *rest_ns = (all_ns - (double)items_ns) / (2 * LIVE);
    return rc == OK ? m->backend->sync(m->backend, err) : rc;
}

static enum status time_passes(struct measure *m, int size, int repeat, struct err *err)
{
    double rest_ns;
    enum status rc = run_passes(m, size, &rest_ns, err);
    if (rc == OK && size == 0 && repeat >= 0)
        m->op_times[repeat] = rest_ns;
    for (int j = 0; rc == OK && repeat >= 0 && j < m->num_shapes; j++)
        for (int pass = 0; pass < PASS_BWD_REST; pass++)
            pass_times(&m->shapes[j], size, pass)[repeat] = shape_mean(m, j, pass, LIVE);
    forget_round(m);
    return rc;
}

/* The same behind a frozen prefix, for what the first item that trains has left of its input half:
 * with half of the layers frozen, and with all. The stage stays frozen. */
static enum status time_rests(struct measure *m, int size, int repeat, struct err *err)
{
    const int layers = m->job.model.num_layers;
    const int frozen[] = {layers > 1 ? layers / 2 : layers, layers};
    enum status rc = OK;
    for (int f = 0; rc == OK && f < 2; f++) {
        const int first = model_frozen_items(&m->job.model, frozen[f]);
        struct shape *shape = &m->shapes[m->shape_of[first]];
        double rest_ns;
        rc = stage_freeze(m->stage, first, err);
        for (int i = 0; rc == OK && i < SWEEP; i++) {
            rc = run_passes(m, size, &rest_ns, err);
            pass_times(shape, size, PASS_BWD_REST)[repeat + i] =
                (double)m->item_ns[first * PASS_COUNT + PASS_BWD_REST] / LIVE;
            forget_round(m);
        }
        shape->trains_first = true;
    }
    return rc;
}

/* The end of a step: norm, and the update by each kind of optimizer state. Learning rate 0: the
 * weights stay what they are. */
static enum status time_update(struct measure *m, int repeat, struct err *err)
{
    clock_start(m);
    enum status rc = stage_grad_sumsq(m->stage, m->item_sumsq, err);
    const double norm_ns = clock_ns(m);
    if (repeat >= 0)
        m->norm_times[repeat] = norm_ns;
    for (int states = 1; rc == OK && states <= MAX_STATES; states++) {
        m->job.train.optimizer.kind = states == 1 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
        rc = stage_update(m->stage, 0, 0, 1, NULL, err);
        stage_time_read(m->stage);
        for (int j = 0; repeat >= 0 && j < m->num_shapes; j++)
            update_times(m, &m->shapes[j], states)[repeat] = shape_mean(m, j, PASS_UPDATE, 1);
        forget_round(m);
    }
    stage_begin_grad(m->stage);
    return rc;
}

/* What the runtime and a stage add to the items of a compute op: the walk over the list, a turn of
 * the message engine, two clock readings, the checks of a block. */
static enum status add_op_overhead(struct measure *m, int repeats, int ranks, struct err *err)
{
    enum { OPS = 1000 };
    struct host_row row = {.what = "op_overhead", .threads = m->backend->threads, .ranks = ranks};
    volatile int64_t sink = 0;
    for (int i = 0; i < repeats; i++) {
        int64_t begin = now_ns();
        for (int j = 0; j < OPS; j++) {
            comm_progress(m->comm->all);
            sink += comm_now_ns(m->comm) + comm_now_ns(m->comm);
        }
        m->op_times[i] += (double)(now_ns() - begin) / OPS;
    }
    snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
    row.ns = spread_of(m->op_times, repeats);
    return profile_add_host(m->profile, &row, err);
}

static enum status add_row(struct measure *m, int shape, const char *pass, int64_t samples,
                           int ranks, double *times, int repeats, struct err *err)
{
    struct layer_row row = {.threads = m->backend->threads,
                            .ranks = ranks,
                            .key = m->shapes[shape].key,
                            .samples = samples,
                            .ns = spread_of(times, repeats)};
    snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
    snprintf(row.dtype, sizeof row.dtype, "%s", dtype_text(m->backend->dtype));
    snprintf(row.pass, sizeof row.pass, "%s", pass);
    return profile_add_layer(m->profile, &row, err);
}

static enum status add_layers(struct measure *m, int repeats, int ranks, struct err *err)
{
    struct host_row norm = {.what = "norm", .threads = m->backend->threads, .ranks = ranks};
    enum status rc = OK;
    for (int i = 0; i < m->num_shapes && rc == OK; i++) {
        for (int size = 0; size < m->options->num_samples; size++)
            for (int pass = 0; rc == OK && pass < PASS_UPDATE; pass++)
                if (pass != PASS_BWD_REST || m->shapes[i].trains_first)
                    rc = add_row(m, i, pass_name(pass), m->options->samples[size], ranks,
                                 pass_times(&m->shapes[i], size, pass), repeats, err);
        for (int states = 1; rc == OK && states <= MAX_STATES; states++)
            rc = add_row(m, i, pass_name(PASS_UPDATE), states, ranks,
                         update_times(m, &m->shapes[i], states), repeats, err);
    }
    if (rc != OK)
        return rc;
    for (int i = 0; i < m->job.model.num_items; i++)
        norm.bytes += m->job.model.items[i].params * m->job.model.param_bytes;
    snprintf(norm.backend, sizeof norm.backend, "%s", m->backend->name);
    norm.ns = spread_of(m->norm_times, repeats);
    return profile_add_host(m->profile, &norm, err);
}

/* A sweep over all sizes, each in a stage of its own, as a plan with that micro-batch would have
 * it: where buffers come to lie matters to the caches. */
static enum status sweep(struct measure *m, int repeat, bool together, struct err *err)
{
    enum status rc = OK;
    for (int size = 0; rc == OK && size < m->options->num_samples; size++) {
        rc = make_stage(m, m->options->samples[size], err);
        for (int i = 0; rc == OK && i < WARM_UP; i++)
            rc = time_passes(m, size, -1, err);
        if (rc == OK && together)
            rc = comm_barrier(m->comm->all, err);
        for (int i = 0; rc == OK && i < SWEEP; i++)
            rc = time_passes(m, size, repeat + i, err);
        if (rc == OK && size == 0)
            rc = time_update(m, -1, err);
        for (int i = 0; rc == OK && i < SWEEP && size == 0; i++)
            rc = time_update(m, repeat + i, err);
        if (rc == OK)
            rc = time_rests(m, size, repeat, err);
        stage_free(m->stage);
        m->stage = NULL;
    }
    return rc;
}

/* Sweeps in turn: drift of the machine, and luck with memory, spread over all rows alike.
 * `together`: all ranks do the same. */
static enum status measure_layers(struct measure *m, bool together, struct err *err)
{
    int64_t budget = m->options->quick ? quick_budget_ns : phase_budget_ns, begin = now_ns();
    int repeats = 0;
    enum status rc = OK;
    for (int64_t go_on = 1; rc == OK && go_on;) {
        rc = sweep(m, repeats, together, err);
        repeats += SWEEP;
        go_on =
            repeats + SWEEP <= MAX_REPEATS && (repeats < MIN_REPEATS || now_ns() - begin < budget);
        if (rc == OK && together)
            rc = comm_bcast(m->comm->all, &go_on, sizeof go_on, 0, err);
    }
    if (rc == OK && m->comm->rank == 0)
        rc = add_layers(m, repeats, together ? m->comm->local_size : 1, err);
    if (rc == OK && m->comm->rank == 0)
        rc = add_op_overhead(m, repeats, together ? m->comm->local_size : 1, err);
    return rc;
}

/* What one more micro-batch in flight adds to a stage of one item, less its output, the gradient of
 * its input and, on a device, the copy of what it reads: the stash. */
static enum status measure_stash(struct measure *m, int shape, struct err *err)
{
    const struct model *model = &m->job.model;
    struct memory_row row = {0};
    struct stage_spec spec = {
        .model = model, .job = &m->job, .backend = m->backend, .max_samples = STASH_SAMPLES};
    int64_t bytes[2];
    enum status rc = OK;
    while (m->shape_of[spec.first_item] != shape)
        spec.first_item++;
    spec.end_item = spec.first_item + 1;
    for (int i = 0; i < 2; i++) {
        struct stage *stage = NULL;
        spec.max_live = i + 1;
        rc = stage_new(&spec, &stage, err);
        if (rc != OK)
            return rc;
        bytes[i] = stage_bytes(stage);
        stage_free(stage);
    }
    if (!m->backend->host_memory)
        bytes[1] -= model_block_bytes(model, spec.first_item == 0,
                                      spec.end_item == model->num_items, STASH_SAMPLES);
    stash_row_name(&m->shapes[shape].key, m->backend->dtype, row.what);
    row.predicted_bytes = model->items[spec.first_item].stash_bytes;
    row.measured_bytes = (bytes[1] - bytes[0]) / STASH_SAMPLES -
                         model->items[spec.first_item].act_bytes -
                         stage_input_elems(model, spec.first_item) * m->backend->elem_bytes;
    return profile_add_memory(m->profile, &row, err);
}

/* --- links ------------------------------------------------------------------------------------ */

enum { OTHER_BYTES = 128 << 20 }; /* what a step goes through between two sums, at least */
enum { LINK_ROUNDS = 40, SUM_ROUNDS = 15, QUICK_NET_ROUNDS = 5, FEWEST_ROUNDS = 3 };
static const int64_t size_budget_ns = 2000000000; /* of one size at one place, on a slow network */

/* As many rounds as fit the budget when one takes round_ns. */
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
    const int64_t begin = now_ns();
    if (rc == OK && !first)
        rc = comm_wait(&recv, err);
    if (rc == OK)
        rc = comm_isend(all, buffer, bytes, peer, 1, &send, err);
    if (rc == OK)
        rc = comm_wait(&send, err);
    if (rc == OK)
        rc = comm_wait(&recv, err);
    *ns = now_ns() - begin;
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
    for (int i = 0; rc == OK && i < WARM_UP; i++)
        rc = round_trip(all, peer, first, bytes, buffer, &ns, err);
    if (rc == OK) { /* both take what rank 0 has seen */
        struct comm_request request = {0};
        rounds = rounds_within(ns, LINK_ROUNDS);
        rc = first ? comm_isend(all, &rounds, sizeof rounds, peer, 2, &request, err)
                   : comm_irecv(all, &rounds, sizeof rounds, peer, 2, &request, err);
        if (rc == OK)
            rc = comm_wait(&request, err);
    }
    for (int i = 0; rc == OK && i < rounds; i++) {
        rc = round_trip(all, peer, first, bytes, buffer, &ns, err);
        times[i] = (double)ns / 2;
    }
    if (rc == OK && first) {
        struct link_row row = {.backend = "mpi", .ranks = 1, .bytes = bytes};
        snprintf(row.place, sizeof row.place, "%s", place);
        row.ns = spread_of(times, (int)rounds);
        rc = profile_add_link(m->profile, &row, err);
    }
    return rc;
}

/* Buffers that measure_links() goes through. */
struct link_room {
    char *buffer;     /* two messages */
    float *gradients; /* in it */
    char *other;
};

/* A group whose sums are measured, and where they are; bucket is its sum buffer. */
struct sums {
    struct comm_group *group; /* NULL: this rank is in none */
    const char *place;
    float *bucket;
};

/* As the runtime does it: gradients gathered into a bucket, summed, put back. A backward lies
 * between two sums of a step, so that caches hold other things by then: `other` stands for it. */
static enum status measure_allreduce(struct measure *m, const struct sums *sums, int64_t bytes,
                                     const struct link_room *room, struct err *err)
{
    const struct comm_group *group = sums->group;
    const bool net = strcmp(sums->place, "net") == 0;
    const int64_t most = net && m->options->quick ? QUICK_NET_ROUNDS : SUM_ROUNDS;
    double times[SUM_ROUNDS];
    int64_t rounds = most;
    enum status rc = OK;
    if (!group)
        return OK;
    memset(sums->bucket, 0, (size_t)bytes);
    for (int64_t i = -WARM_UP; rc == OK && i < rounds; i++) {
        int64_t begin;
        memset(room->other, i & 1, OTHER_BYTES);
        rc = comm_barrier(group, err);
        begin = now_ns();
        memcpy(sums->bucket, room->gradients, (size_t)bytes);
        if (rc == OK)
            rc =
                comm_allreduce_f32(group, sums->bucket, bytes / (int64_t)sizeof *sums->bucket, err);
        memcpy(room->gradients, sums->bucket, (size_t)bytes);
        const int64_t ns = now_ns() - begin;
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
        row.ns = spread_of(times, (int)rounds);
        rc = profile_add_collective(m->profile, &row, err);
    }
    return rc;
}

/* What is measured: sums of the ranks of a node, of one rank a node, and of all. */
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
static enum status measure_links(struct measure *m, struct err *err)
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
            if (rc == OK)
                rc = comm_barrier(comm->all, err);
            if (rc == OK)
                rc = measure_allreduce(m, &sums[s], bytes, &room, err);
        }
        if (rc == OK)
            rc = comm_barrier(comm->all, err);
    }
    for (int s = 0; s < SUMS_KINDS; s++)
        comm_group_free(sums[s].group);
    free(room.buffer);
    return rc;
}

/* --- overheads -------------------------------------------------------------------------------- */

/* A batch of the procedural set: made, augmented, laid out. */
static enum status measure_input(struct measure *m, struct err *err)
{
    enum { ROUNDS = 5, BATCH = 32 };
    struct dataset dataset = {0};
    struct sampler sampler;
    struct loader *loader = NULL;
    double times[ROUNDS];
    struct host_row row = {.what = "input", .ranks = 1, .samples = BATCH};
    const struct model *model = &m->job.model;
    row.bytes = model->family == FAMILY_VIT
                    ? (int64_t)model->channels * model->image * model->image * 4
                    : (int64_t)model->seq * 4;
    enum status rc = dataset_open(&m->job, &dataset, err);
    if (rc == OK)
        rc = sampler_init(&sampler, dataset.num_samples[SPLIT_TRAIN], 1, true, 1, BATCH, 1, err);
    if (rc == OK) {
        struct loader_spec spec = {
            .dataset = &dataset, .sampler = &sampler, .want_inputs = true, .want_labels = true};
        rc = loader_new(&spec, &loader, err);
    }
    for (int i = 0; rc == OK && i < ROUNDS; i++) {
        const struct batch *batch;
        int64_t begin = now_ns();
        rc = loader_get(loader, 0, i, &batch, err);
        times[i] = (double)(now_ns() - begin);
    }
    if (rc == OK) {
        snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
        row.ns = spread_of(times, ROUNDS);
        rc = profile_add_host(m->profile, &row, err);
    }
    loader_free(loader);
    dataset_clear(&dataset);
    return rc;
}

/* A sample's way into the cache's arena and out of it, over more samples than a processor's own
 * caches hold. An arena that this machine does not give is no error: the profile is silent then. */
static enum status measure_cache(struct measure *m, struct err *err)
{
    enum { ROUNDS = 5, FEW = 8, MANY = 512, BYTES = 1 << 24 };
    const struct model *model = &m->job.model;
    struct cache_spec spec = {.job_key = (uint64_t)getpid(),
                              .sample_elems = (int64_t)model->seq * model->hidden};
    const int64_t bytes = spec.sample_elems * (int64_t)sizeof(float);
    struct host_row row = {.threads = m->backend->threads, .ranks = 1, .samples = 1};
    struct cache_arena *arena = NULL;
    double write[ROUNDS], read[ROUNDS];
    bool held = true;
    enum status rc = OK;
    if (bytes < 1 || bytes > BYTES)
        return OK;
    spec.num_samples = BYTES / bytes < FEW ? FEW : BYTES / bytes > MANY ? MANY : BYTES / bytes;
    float *data = calloc((size_t)spec.sample_elems, sizeof *data);
    if (!data)
        return err_nomem(err);
    if (cache_arena_create(&spec, &arena, NULL) != OK)
        goto out;
    cache_arena_unlink(arena);
    fill_normal(data, spec.sample_elems, 1);
    for (int i = 0; i < ROUNDS && held; i++) {
        const int64_t begin = now_ns();
        for (int64_t s = 0; s < spec.num_samples && held; s++)
            held = cache_arena_put(arena, s, i + 1, data);
        const int64_t middle = now_ns();
        for (int64_t s = 0; s < spec.num_samples && held; s++)
            held = cache_arena_take(arena, s, i + 1, data) == CACHE_HIT;
        write[i] = (double)(middle - begin) / (double)spec.num_samples;
        read[i] = (double)(now_ns() - middle) / (double)spec.num_samples;
    }
    if (!held) /* the limit of the machine's memory left samples without a slot */
        goto out;
    row.bytes = bytes;
    snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
    snprintf(row.what, sizeof row.what, "cache_read");
    row.ns = spread_of(read, ROUNDS);
    rc = profile_add_host(m->profile, &row, err);
    snprintf(row.what, sizeof row.what, "cache_write");
    row.ns = spread_of(write, ROUNDS);
    if (rc == OK)
        rc = profile_add_host(m->profile, &row, err);
out:
    cache_arena_free(arena);
    free(data);
    return rc;
}

/* --- the device ------------------------------------------------------------------------------- */

/* A copy of `bytes` to the device, from it (both pinned), and within it. */
enum copy_kind { COPY_IN, COPY_OUT, COPY_WITHIN, COPY_KINDS };
static const char *const copy_names[COPY_KINDS] = {"copy_in", "copy_out", "copy"};

/* More than the L2 of any device that is supported (B200: 126 MB). */
#define RING_BYTES ((int64_t)256 << 20)

static enum status measure_copies(struct measure *m, enum copy_kind kind, int64_t bytes, char *ring,
                                  void *host, struct err *err)
{
    enum { ROUNDS = 20 };
    struct backend *be = m->backend;
    struct host_row row = {.threads = be->threads, .ranks = 1, .bytes = bytes};
    double times[ROUNDS];
    int64_t at = 0;
    for (int i = -WARM_UP; i < ROUNDS; i++) {
        char *to = ring + at, *from = ring + (at + bytes) % RING_BYTES;
        at = (at + 2 * bytes) % RING_BYTES;
        clock_start(m);
        if (kind == COPY_IN)
            be->copy_in(be, to, host, bytes);
        else if (kind == COPY_OUT)
            be->copy_out(be, host, from, bytes);
        else
            be->copy(be, to, from, bytes);
        const double ns = clock_ns(m);
        if (i >= 0)
            times[i] = ns;
    }
    enum status rc = be->sync(be, err);
    if (rc != OK)
        return rc;
    snprintf(row.what, sizeof row.what, "%s", copy_names[kind]);
    snprintf(row.backend, sizeof row.backend, "%s", be->name);
    row.ns = spread_of(times, ROUNDS);
    return profile_add_host(m->profile, &row, err);
}

/* What the host takes to issue a kernel, with room in the device's queue. */
static enum status measure_launch(struct measure *m, float *at, struct err *err)
{
    enum { ROUNDS = 20, OPS = 100 };
    struct backend *be = m->backend;
    struct host_row row = {.what = "launch", .threads = be->threads, .ranks = 1};
    double times[ROUNDS];
    enum status rc = OK;
    for (int i = -WARM_UP; rc == OK && i < ROUNDS; i++) {
        const int64_t begin = now_ns();
        for (int k = 0; k < OPS; k++)
            be->accumulate(be, 1, at, at + 1);
        if (i >= 0)
            times[i] = (double)(now_ns() - begin) / OPS;
        rc = be->sync(be, err);
    }
    if (rc != OK)
        return rc;
    snprintf(row.backend, sizeof row.backend, "%s", be->name);
    row.ns = spread_of(times, ROUNDS);
    return profile_add_host(m->profile, &row, err);
}

/* Copies and launches; a backend in host memory has neither. */
static enum status measure_device(struct measure *m, struct err *err)
{
    static const int64_t sizes[] = {1 << 16, 1 << 20, 1 << 24};
    enum { NUM_SIZES = sizeof sizes / sizeof *sizes };
    struct backend *be = m->backend;
    void *ring = NULL, *host = NULL;
    if (be->host_memory)
        return OK;
    enum status rc = be->alloc(be, RING_BYTES, &ring, err);
    if (rc == OK)
        rc = be->alloc_host(be, sizes[NUM_SIZES - 1], &host, err);
    if (rc == OK) {
        be->zero(be, ring, RING_BYTES);
        memset(host, 0, (size_t)sizes[NUM_SIZES - 1]);
        rc = measure_launch(m, ring, err);
    }
    for (int kind = 0; kind < COPY_KINDS; kind++)
        for (int i = 0; rc == OK && i < NUM_SIZES; i++)
            rc = measure_copies(m, (enum copy_kind)kind, sizes[i], ring, host, err);
    be->free_host(be, host);
    be->free(be, ring);
    return rc;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void read_line(const char *path, const char *key, char *to, size_t size)
{
    FILE *in = fopen(path, "r");
    char line[256];
    while (in && fgets(line, sizeof line, in)) {
        char *value = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) != 0 || !value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = '\0';
        snprintf(to, size, "%s", value);
        break;
    }
    if (in)
        fclose(in);
}

void measure_describe(const struct cores *cores, struct profile_info *info)
{
    char mhz[32] = "", library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    double load[1] = {0};
    time_t now = time(NULL);
    struct tm utc;
    snprintf(info->source, sizeof info->source, "measured");
    snprintf(info->device_kind, sizeof info->device_kind, "cpu");
    read_line("/proc/cpuinfo", "model name", info->device_name, sizeof info->device_name);
    read_line("/proc/cpuinfo", "cpu MHz", mhz, sizeof mhz);
    info->clock_mhz = (int64_t)strtod(mhz, NULL);
    info->cores = cores->at_hand;
    info->mem_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    snprintf(info->libraries, sizeof info->libraries, "%.60s; %.60s", openblas_get_config(),
             library);
    snprintf(info->bf16_kernel, sizeof info->bf16_kernel, "%s", gemm_name(2));
    snprintf(info->fp32_kernel, sizeof info->fp32_kernel, "%s", gemm_name(4));
    if (gethostname(info->host, sizeof info->host) != 0)
        snprintf(info->host, sizeof info->host, "unknown");
    info->host[sizeof info->host - 1] = '\0';
    snprintf(info->name, sizeof info->name, "cpu-%.50s", info->host);
    gmtime_r(&now, &utc);
    strftime(info->measured_at, sizeof info->measured_at, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(info->version, sizeof info->version, "%s", ELAPSE_VERSION);
    if (getloadavg(load, 1) == 1)
        info->load = load[0];
}

static enum status make_inputs(struct measure *m, struct err *err)
{
    const struct model *model = &m->job.model;
    int64_t n = m->most, seq = model->seq > 2 ? model->seq : 2;
    int64_t pixels = (int64_t)model->channels * model->image * model->image;
    m->ids = calloc((size_t)n, sizeof *m->ids);
    m->labels = calloc((size_t)(n * seq), sizeof *m->labels);
    if (model->family == FAMILY_VIT) {
        m->images = malloc((size_t)(n * pixels) * sizeof *m->images);
        if (m->images)
            fill_normal(m->images, n * pixels, 3);
    } else {
        m->tokens = calloc((size_t)(n * seq), sizeof *m->tokens);
        m->types = calloc((size_t)(n * seq), sizeof *m->types);
        m->lengths = calloc((size_t)n, sizeof *m->lengths);
    }
    if (!m->ids || !m->labels || (model->family == FAMILY_VIT && !m->images) ||
        (model->family != FAMILY_VIT && (!m->tokens || !m->types || !m->lengths)))
        return err_nomem(err);
    for (int64_t i = 0; i < n; i++) {
        m->ids[i] = i;
        if (m->lengths)
            m->lengths[i] = model->seq;
        for (int64_t j = 0; m->tokens && j < seq; j++) {
            m->tokens[i * seq + j] = (int32_t)((i * 31 + j * 17) % model->vocab);
            if (model->task == TASK_MLM && j >= model_masked_of(model->seq))
                m->labels[i * seq + j] = -100;
        }
    }
    return OK;
}

/* Others sleep while rank 0 measures by itself: a rank that spins in a barrier takes clocks and
 * cache from it. */
static enum status wait_asleep(const struct comm *comm, struct err *err)
{
    enum status rc = OK;
    char token = 0;
    if (comm->rank == 0) {
        for (int peer = 1; rc == OK && peer < comm->size; peer++) {
            struct comm_request request = {0};
            rc = comm_isend(comm->all, &token, 1, peer, 2, &request, err);
            if (rc == OK)
                rc = comm_wait(&request, err);
        }
    } else {
        struct comm_request request = {0};
        bool done = false;
        rc = comm_irecv(comm->all, &token, 1, 0, 2, &request, err);
        while (rc == OK && !done) {
            usleep(20000);
            rc = comm_test(&request, &done, err);
        }
    }
    return rc;
}

/* One phase with a fresh backend of so many threads. What a library may do in several ways is
 * found out by the rank that measures alone, kept, and the same for all phases to come. */
static enum status phase(struct measure *m, int threads, bool together, struct err *err)
{
    enum status rc;
    struct store *store = m->options->store;
    const struct profile_info *here = &m->profile->info;
    const bool whole = !together && threads == m->cores->threads;
    const struct backend_spec spec = {.device = device_text(m->options->device),
                                      .dtype = m->job.train.dtype,
                                      .threads = threads,
                                      .local_rank = m->comm->local_rank,
                                      .tune = !together};
    m->backend = backend_new(&spec, err);
    if (!m->backend)
        return err ? err->status : ERR_NOMEM;
    struct backend *be = m->backend;
    rc = choices_give(together ? m->comm : NULL, store, here, be, err);
    if (rc == OK)
        rc = be->event_new(be, &m->from, err);
    if (rc == OK)
        rc = be->event_new(be, &m->to, err);
    if (rc == OK)
        rc = make_shapes(m, err);
    if (rc == OK)
        rc = measure_layers(m, together, err);
    if (rc == OK && !together)
        rc = choices_keep(store, here, be, err);
    if (rc == OK && whole)
        rc = measure_device(m, err);
    if (rc == OK && whole)
        rc = measure_input(m, err);
    if (rc == OK && whole)
        rc = measure_cache(m, err);
    for (int i = 0; rc == OK && i < m->num_shapes && whole && m->job.model.num_skips == 0; i++)
        rc = measure_stash(m, i, err);
    clear_shapes(m);
    be->event_free(be, m->from);
    be->event_free(be, m->to);
    m->from = m->to = NULL;
    backend_free(be);
    m->backend = NULL;
    return rc;
}

static void say(const struct measure *m, const char *what)
{
    if (m->comm->rank == 0 && m->options->progress)
        fprintf(stderr, "\rprofile: %s \033[K%s", what, *what ? "" : "\r");
}

enum status measure_machine(const struct comm *comm, const struct cores *cores,
                            const struct model *model, const struct measure_options *options,
                            struct profile *profile, bool *alone, struct err *err)
{
    struct measure m = {.comm = comm, .cores = cores, .options = options};
    struct profile got = {0};
    enum status rc;
    m.profile = &got;
    job_defaults(&m.job);
    m.job.train.dtype = model->elem_bytes == 2 ? DTYPE_BF16 : DTYPE_FP32;
    rc = model_copy(model, &m.job.model, err);
    for (int i = 0; i < options->num_samples; i++)
        m.most = options->samples[i] > m.most ? options->samples[i] : m.most;
    if (rc == OK)
        rc = make_inputs(&m, err);
    if (rc == OK)
        rc = device_describe(options->device, cores, &got.info, err);
    rc = comm_agree(comm, rc, err);
    *alone = rc == OK; /* from here on an error may be one rank's own */
    if (rc == OK && comm->rank == 0) {
        say(&m, "layers, one rank alone");
        rc = phase(&m, cores->threads, false, err);
    }
    if (rc == OK)
        rc = wait_asleep(comm, err);
    if (rc == OK && comm->node_ranks[0] > 1) { /* one rank a node was busy alone */
        say(&m, "layers, all ranks busy");
        rc = phase(&m, cores->threads, true, err);
    }
    if (rc == OK && comm->size > 1) {
        say(&m, "links and all-reduce");
        rc = measure_links(&m, err);
        /* One rank that has the machine to itself runs with all cores. */
        if (rc == OK && comm->rank == 0 && cores->at_hand > cores->threads &&
            options->device == DEVICE_CPU) {
            say(&m, "layers, one rank on all cores");
            rc = cores_release(cores, err);
            if (rc == OK)
                rc = phase(&m, cores->at_hand, false, err);
        }
        if (rc == OK)
            rc = wait_asleep(comm, err);
    }
    say(&m, "");
    if (rc == OK && comm->rank == 0) {
        *profile = got;
        got = (struct profile){0};
    }
    profile_clear(&got);
    free(m.ids);
    free(m.images);
    free(m.tokens);
    free(m.types);
    free(m.lengths);
    free(m.labels);
    job_clear(&m.job);
    return rc;
}
