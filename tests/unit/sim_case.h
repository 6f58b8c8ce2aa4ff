/* tests/unit/sim_case.h - a step on a uniform model and a grid of devices, for the simulator's tests. */
#pragma once

#include "partition/step/lower.h"
#include "partition/step/workload.h"
#include "sim/step/engine.h"
#include "tests/unit/test.h"

struct sim_case {
    enum schedule_kind kind;
    int K, R, M, chunks, nodes;
    int num_frozen;
    enum frozen_placement frozen;
    enum recompute_mode recompute;
    int64_t f, i, w, update;    /* ns a stage and micro-batch */
    const int64_t *stage_f;     /* NULL, or per stage in place of f (i, w in proportion) */
    int64_t act, params, stash; /* bytes, count, bytes */
    int64_t tied;               /* parameters that the last stage shares with the first */
    double link, uplink;        /* 0: 10^18 B/s */
    int64_t latency, host_op, bucket;
    bool blocking, sends_blocking, half_duplex, clip;
    struct sim_options options;
    /* built */
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct plan plan;
    struct workload workload;
    struct schedule full;
    struct sim_result result;
};

/* The initializer of a case: K ranks, M micro-batches, times of an item's three passes, then what
 * else the case has. */
#define SIM_CASE(kind_, K_, M_, f_, i_, w_, ...)                                                   \
    {                                                                                              \
        .kind = (kind_), .K = (K_), .M = (M_), .f = (f_), .i = (i_), .w = (w_), __VA_ARGS__        \
    }

static inline void sim_case_clear(struct sim_case *c)
{
    model_clear(&c->model);
    cluster_clear(&c->cluster);
    plan_clear(&c->plan);
    workload_clear(&c->workload);
    schedule_clear(&c->full);
    sim_result_clear(&c->result);
}

/* Fill in the defaults and build everything up to the lists; the caller may change c->cluster and
 * call sim_case_lower() again. */
static inline enum status sim_case_lower(struct sim_case *c, struct err *err)
{
    workload_clear(&c->workload);
    schedule_clear(&c->full);
    return plan_lower(&(struct setting){&c->model, &c->cluster, &c->cost}, &c->plan, &c->workload,
                      &c->full, err);
}

static inline void sim_case_build(struct sim_case *c)
{
    struct err err = {0};
    if (c->R == 0)
        c->R = 1;
    if (c->chunks == 0)
        c->chunks = 1;
    if (c->nodes == 0)
        c->nodes = 1;
    const int S = c->K * c->chunks, outside = frozen_outside(c->frozen) ? c->num_frozen : 0;
    const int num_items = S + outside;
    struct item *items = calloc((size_t)num_items, sizeof *items);
    assert_non_null(items);
    for (int s = 0; s < num_items; s++) {
        int64_t f = c->stage_f ? c->stage_f[s] : c->f;
        items[s] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = s,
                                 .params = c->params,
                                 .act_bytes = c->act,
                                 .stash_bytes = c->stash,
                                 .fwd_ns = f,
                                 .bwd_input_ns = c->stage_f ? f * c->i / c->f : c->i,
                                 .bwd_weight_ns = c->stage_f ? f * c->w / c->f : c->w,
                                 .update_ns = c->update};
        snprintf(items[s].name, sizeof items[s].name, "layer%d", s);
    }
    items[num_items - 1].tied_params = c->tied;
    assert_int_equal(model_explicit("case", items, num_items, NULL, 0, true, &c->model, &err), OK);
    free(items);
    int devices = c->K * c->R;
    assert_int_equal(devices % c->nodes, 0);
    assert_int_equal(cluster_grid(c->nodes, devices / c->nodes, &c->cluster, &err), OK);
    for (int d = 0; d < devices; d++)
        c->cluster.devices[d].link_bytes_per_s = c->link > 0 ? c->link : 1e18;
    for (int n = 0; n < c->nodes; n++)
        c->cluster.uplink_bytes_per_s[n] = c->uplink > 0 ? c->uplink : 1e18;
    c->cluster.link_latency_ns = c->cluster.uplink_latency_ns = c->latency;
    c->cluster.host_op_ns = c->host_op;
    c->cluster.host_blocking = c->blocking;
    c->cluster.half_duplex = c->half_duplex;
    c->cluster.sends = c->sends_blocking ? SENDS_BLOCKING : SENDS_EAGER;
    cost_constant(&c->cost);
    struct plan *plan = &c->plan;
    plan->num_ranks = c->K;
    plan->chunks = c->chunks;
    plan->num_stages = S;
    plan->num_pipelines = c->R;
    plan->batch = c->M;
    plan->microbatches = microbatches_of(c->M, c->M);
    plan->schedule = c->kind;
    plan->num_frozen_layers = c->num_frozen;
    plan->frozen = c->frozen;
    plan->recompute = c->recompute;
    plan->bucket_bytes = c->bucket;
    plan->clip = c->clip;
    plan->optim_bytes_per_param = 4;
    plan->first_item = calloc((size_t)S + 1, sizeof *plan->first_item);
    plan->device = calloc((size_t)devices, sizeof *plan->device);
    assert_non_null(plan->first_item);
    assert_non_null(plan->device);
    for (int s = 0; s <= S; s++)
        plan->first_item[s] = outside + s;
    for (int d = 0; d < devices; d++)
        plan->device[d] = d;
    if (sim_case_lower(c, &err) != OK)
        fail_msg("%s", err.msg);
}

static inline enum status sim_case_step(struct sim_case *c, struct err *err)
{
    sim_result_clear(&c->result);
    return sim_step(&c->full, &c->workload, &c->plan, &c->options, &c->result, err);
}

/* Build and run; the answer is in c.result. */
static inline void sim_case_run(struct sim_case *c)
{
    struct err err = {0};
    sim_case_build(c);
    if (sim_case_step(c, &err) != OK)
        fail_msg("%s", err.msg);
}
