/* tests/unit/plan_case.h - random small plans with everything in them: uneven stages, skip edges, slow
 * links, unequal devices, replicas, frozen prefixes, recompute, buckets, host launches, tied
 * tables, caches that hold stash. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/step/lower.h"
#include "partition/step/workload.h"
#include "tests/unit/near_case.h"

struct plan_case {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct plan plan;
    struct workload workload;
    struct schedule full;
};

/* splitmix64 */
static inline uint64_t case_random(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline int64_t case_below(uint64_t *seed, int64_t n)
{
    return (int64_t)(case_random(seed) % (uint64_t)n);
}

static inline void plan_case_clear(struct plan_case *c)
{
    model_clear(&c->model);
    cluster_clear(&c->cluster);
    plan_clear(&c->plan);
    workload_clear(&c->workload);
    schedule_clear(&c->full);
}

static inline enum status plan_case_lower(struct plan_case *c, struct err *err)
{
    workload_clear(&c->workload);
    schedule_clear(&c->full);
    return plan_lower(&(struct setting){&c->model, &c->cluster, &c->cost}, &c->plan, &c->workload,
                      &c->full, err);
}

static inline void case_must(enum status rc, const struct err *err)
{
    if (rc != OK) {
        fprintf(stderr, "plan_case: %s\n", err->msg);
        abort();
    }
}

/* Give the plan random shares, many of them 0 or 1. */
static inline void plan_case_shares(struct plan_case *c, uint64_t *seed)
{
    struct err err = {0};
    case_must(shares_init(c->plan.num_stages, c->plan.microbatches.count, &c->plan.shares, &err),
              &err);
    for (int i = 0; i < c->plan.num_stages * c->plan.microbatches.count; i++) {
        const double share = (double)(case_below(seed, 1400) - 200) / 1000;
        c->plan.shares.share[i] = share < 0 ? 0 : share > 1 ? 1 : share;
    }
}

/* K of 1..max_ranks, about max_microbatches micro-batches (at least 2K). */
static inline void plan_case_random(struct plan_case *c, uint64_t *seed, int max_ranks,
                                    int max_microbatches)
{
    struct err err = {0};
    struct plan *p = &c->plan;
    int K = 1 + (int)case_below(seed, max_ranks), R = 1 + (int)case_below(seed, 3);
    p->schedule = (enum schedule_kind)case_below(seed, SCHEDULE_SEARCH);
    p->chunks = schedule_default_chunks(p->schedule);
    p->num_ranks = K;
    p->num_pipelines = R;
    p->num_stages = K * p->chunks;
    const int extra = (int)case_below(seed, 4), num_items = p->num_stages + 4 + extra;
    struct item *items = calloc((size_t)num_items, sizeof *items);
    struct skip_edge skips[4];
    for (int i = 0; i < num_items; i++) {
        snprintf(items[i].name, sizeof items[i].name, "item%d", i);
        items[i].kind = ITEM_OPAQUE;
        items[i].layer = i;
        items[i].params = case_below(seed, 4) ? case_below(seed, 100000) : 0;
        items[i].act_bytes = case_below(seed, 100000);
        items[i].stash_bytes = case_below(seed, 100000);
        items[i].fwd_ns = case_below(seed, 5000);
        items[i].bwd_input_ns = case_below(seed, 5000);
        items[i].bwd_weight_ns = case_below(seed, 5000);
        items[i].bwd_rest_ns = case_below(seed, items[i].bwd_input_ns + 1);
        items[i].fwd_stash_ns = items[i].fwd_ns * (i % 4) / 4;
        items[i].update_ns = case_below(seed, 500);
    }
    items[num_items - 1].tied_params = extra % 2 ? 20000 * extra : 0;
    int num_skips = (int)case_below(seed, 4);
    for (int i = 0; i < num_skips; i++) {
        skips[i].from = (int)case_below(seed, num_items - 2);
        skips[i].to = skips[i].from + 2 + (int)case_below(seed, num_items - 2 - skips[i].from);
        skips[i].bytes = case_below(seed, 50000);
        for (int j = 0; j < i; j++)
            if (skips[j].from == skips[i].from && skips[j].to == skips[i].to)
                num_skips = i; /* no edge twice */
    }
    case_must(model_explicit("random", items, num_items, skips, num_skips, case_below(seed, 2),
                             &c->model, &err),
              &err);
    free(items);
    const int nodes = 1 + (int)case_below(seed, 3);
    case_must(cluster_grid(nodes, (K * R + nodes - 1) / nodes, &c->cluster, &err), &err);
    c->cluster.link_latency_ns = case_below(seed, 2000);
    c->cluster.uplink_latency_ns = case_below(seed, 9000);
    for (int n = 0; n < nodes; n++)
        c->cluster.uplink_bytes_per_s[n] = 1e9 * (double)(1 + case_below(seed, 20));
    for (int i = 0; i < c->cluster.num_devices && case_below(seed, 2); i++)
        c->cluster.devices[i].speed = 1 + 0.5 * (double)case_below(seed, 3);
    switch (case_below(seed, 4)) {
    case 0:
        c->cluster.host_op_ns = case_below(seed, 3000);
        c->cluster.message_host_ns = c->cluster.host_op_ns / 3;
        c->cluster.message_host_bytes_per_s = 1e9;
        break;
    case 1:
        c->cluster.host_op_ns = case_below(seed, 500);
        c->cluster.host_blocking = true;
        break;
    default:
        break;
    }
    c->cluster.context_bytes = case_below(seed, 1000000);
    cost_constant(&c->cost);
    c->cost.op_overhead_ns = case_below(seed, 100);
    c->cost.cache_read_ns = case_below(seed, 300);
    c->cost.cache_write_ns = case_below(seed, 300);
    int M = 2 * K + (int)case_below(seed, max_microbatches);
    const int64_t missing = case_below(seed, 3);
    p->batch = M * 3 - (p->schedule == SCHEDULE_LOOPED_BFS ? 0 : missing);
    p->microbatches = (struct microbatches){M, 3, p->batch - 3 * (M - 1)};
    static const enum recompute_mode modes[] = {RECOMPUTE_NEVER, RECOMPUTE_STAGE,
                                                RECOMPUTE_EXCEPT_LAST, RECOMPUTE_STAGE_EARLY};
    p->recompute = modes[case_below(seed, 4)];
    p->bucket_bytes = case_below(seed, 2) ? case_below(seed, 300000) : 0;
    p->clip = case_below(seed, 2);
    p->optim_bytes_per_param = 4 * (int)case_below(seed, 3);
    p->cache_write = case_below(seed, 2);
    p->lagged = K % 2;
    if (case_below(seed, 3) > 0) {
        p->frozen = (enum frozen_placement)(1 + case_below(seed, FROZEN_PLACEMENT_COUNT - 1));
        p->num_frozen_layers = 1 + (int)case_below(seed, 4);
    }
    const bool outside = p->frozen == FROZEN_FIRST || p->frozen == FROZEN_CACHED;
    const int first = outside ? p->num_frozen_layers : 0, S = p->num_stages;
    p->first_item = calloc((size_t)S + 1, sizeof(int));
    p->device = calloc((size_t)(K * R), sizeof(int));
    /* A random cut without empty stages whose last stage is active. */
    for (int s = 0, at = first; s <= S; s++) {
        p->first_item[s] = s == S ? num_items : at;
        const int spare = num_items - at - (S - s);
        at += 1 + (spare > 0 ? (int)case_below(seed, spare / 2 + 1) : 0);
    }
    if (p->frozen == FROZEN_SPREAD && p->num_frozen_layers >= num_items)
        p->num_frozen_layers = num_items - 1;
    for (int i = 0; i < K * R; i++)
        p->device[i] = i;
    for (int i = K * R - 1; i > 0 && case_below(seed, 3) == 0; i--) {
        const int j = (int)case_below(seed, i + 1), kept = p->device[i];
        p->device[i] = p->device[j];
        p->device[j] = kept;
    }
    c->cost.near_ns_per_byte = case_below(seed, 2) ? near_case : NULL;
}
