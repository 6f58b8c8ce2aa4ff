/* Step time and memory: closed forms, and a slow oracle over every op of every replica. */
#include "partition/model/framework.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "tests/unit/plan_case.h"
#include "tests/unit/test.h"

/* --- the oracle: the rules of step_rules.h as written, swept until nothing changes
 * -------------------
 */

struct timed {
    struct op op;
    int replica, rank;
    int64_t launch; /* launch-async: earliest start */
    int64_t start, end;
};

static struct timed *find(struct timed *all, int n, int replica, enum op_kind kind, int stage,
                          int microbatch, int arg)
{
    for (int i = 0; i < n; i++) {
        const struct op op = all[i].op;
        if (all[i].replica == replica && op.kind == kind && op.stage == stage &&
            op.microbatch == microbatch && (arg < 0 || op.arg == arg))
            return &all[i];
    }
    return NULL;
}

static bool on_compute(const struct plan_case *c, struct op op)
{
    switch (op.kind) {
    case OP_F:
    case OP_B:
    case OP_I:
    case OP_W:
    case OP_R:
    case OP_Z:
    case OP_UPDATE:
        return true;
    case OP_C:
    case OP_P:
        return c->cluster.host_blocking;
    default:
        return false;
    }
}

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The message of a RECV: its SEND. */
static struct timed *sender(const struct plan_case *c, struct timed *all, int n,
                            const struct timed *recv, int *edge)
{
    const struct workload *w = &c->workload;
    const bool grad = recv->op.kind == OP_RECV_GRAD;
    const int s = recv->op.stage;
    int seen = 0;
    *edge = -1;
    for (int e = 0; e < w->num_edges; e++) {
        if ((grad ? w->edges[e].from : w->edges[e].to) == s && seen++ == recv->op.arg) {
            *edge = e;
            break;
        }
    }
    const int other = grad ? w->edges[*edge].to : w->edges[*edge].from;
    int arg = 0;
    for (int e = 0; e < *edge; e++)
        arg += (grad ? w->edges[e].to : w->edges[e].from) == other;
    return find(all, n, recv->replica, grad ? OP_SEND_GRAD : OP_SEND_ACT, other,
                recv->op.microbatch, arg);
}

static int64_t duration(const struct plan_case *c, const struct timed *t)
{
    const struct op op = t->op;
    const int class_index = c->workload.class_of_replica[t->replica];
    if ((op.kind == OP_B || op.kind == OP_W) && c->plan.shares.share) { /* time-9 */
        const struct stage_cost *stage =
            &c->workload.stages[class_index * c->plan.num_stages + op.stage];
        const int M = c->plan.microbatches.count, mb = op.microbatch == M - 1;
        return stage->op_ns[op.kind][mb] -
               (int64_t)(c->plan.shares.share[op.stage * M + op.microbatch] *
                         (double)stage->weight_ns[mb]);
    }
    return workload_op_ns(&c->workload, c->workload.class_of_replica[t->replica], op);
}

static int64_t oracle_step(const struct plan_case *c)
{
    const int K = c->plan.num_ranks, R = c->plan.num_pipelines;
    int n = 0;
    for (int k = 0; k < K; k++)
        n += R * (int)c->full.ranks[k].num_ops;
    struct timed *all = calloc((size_t)n, sizeof *all);
    int at = 0;
    for (int r = 0; r < R; r++) {
        for (int k = 0; k < K; k++) {
            int launched = 0;
            for (int64_t i = 0; i < c->full.ranks[k].num_ops; i++) {
                const struct op op = c->full.ranks[k].ops[i];
                const bool counts = op.kind <= OP_P || op.kind == OP_UPDATE;
                all[at++] = (struct timed){.op = op,
                                           .replica = r,
                                           .rank = k,
                                           .launch = counts && !c->cluster.host_blocking
                                                         ? ++launched * c->cluster.host_op_ns
                                                         : 0};
            }
        }
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            struct timed *t = &all[i];
            int64_t start = t->launch, took = 0;
            int edge;
            const bool compute = on_compute(c, t->op);
            /* Earlier ops on the same device. */
            for (int j = i - 1; j >= 0 && all[j].rank == t->rank && all[j].replica == t->replica;
                 j--) {
                const struct timed *b = &all[j];
                if (on_compute(c, b->op) &&
                    (compute || t->op.kind == OP_P || t->op.kind == OP_SEND_ACT ||
                     t->op.kind == OP_SEND_GRAD || t->op.kind == OP_TIED || t->op.kind == OP_NORM))
                    start = latest(start, b->end);
                const bool from_elsewhere =
                    b->op.kind == OP_RECV_ACT || b->op.kind == OP_RECV_GRAD || b->op.kind == OP_C;
                if (compute && (from_elsewhere || b->op.kind == OP_TIED || b->op.kind == OP_NORM))
                    start = latest(start, b->end);
                if (!compute && b->op.kind == t->op.kind &&
                    (t->op.kind == OP_C || t->op.kind == OP_P))
                    start = latest(start, b->end);
                if (t->op.kind == OP_UPDATE && b->op.kind == OP_ALLREDUCE &&
                    b->op.stage == t->op.stage)
                    start = latest(start, b->end);
                if ((t->op.kind == OP_TIED && b->op.kind == OP_ALLREDUCE) ||
                    (t->op.kind == OP_NORM &&
                     (b->op.kind == OP_ALLREDUCE || b->op.kind == OP_TIED)))
                    start = latest(start, b->end);
            }
            switch (t->op.kind) {
            case OP_SEND_ACT:
            case OP_SEND_GRAD:
                break;
            case OP_RECV_ACT:
            case OP_RECV_GRAD: {
                const struct timed *send = sender(c, all, n, t, &edge);
                const int from = c->plan.device[t->replica * K + send->rank];
                const int to = c->plan.device[t->replica * K + t->rank];
                const int mb = t->op.microbatch == c->full.num_microbatches - 1;
                start = send->start + cost_transfer_ns(&c->cost, &c->cluster, from, to,
                                                       c->workload.edges[edge].bytes[mb]);
                break;
            }
            case OP_ALLREDUCE: { /* of the stage in every replica, and of its copy */
                const int S = c->plan.num_stages, first = t->op.stage % S;
                const struct bucket *bucket =
                    &c->workload.buckets[c->workload.first_bucket[first] + t->op.arg];
                int devices[64], num = 0;
                for (int s = first; s < c->full.num_stages; s += S) {
                    for (int r = 0; r < R; r++) {
                        devices[num++] = c->plan.device[r * K + c->full.rank_of_stage[s]];
                        const int end = c->full.num_microbatches - 1;
                        const struct timed *last = find(all, n, r, OP_B, s, end, -1);
                        int64_t lead = bucket->lead_ns;
                        if (!last) {
                            last = find(all, n, r, OP_W, s, end, -1);
                            lead = bucket->lead_w_ns;
                        }
                        start = latest(start, latest(last->start, last->end - lead));
                        if (t->op.arg > 0) {
                            start = latest(start, find(all, n, r, OP_ALLREDUCE, s, OP_WHOLE_BATCH,
                                                       t->op.arg - 1)
                                                      ->end);
                        }
                    }
                }
                took = cost_allreduce_ns(&c->cost, &c->cluster, devices, num, bucket->bytes);
                break;
            }
            case OP_TIED: { /* time-8: the later of the two */
                int devices[2];
                for (int j = 0, ends = 0; j < n; j++) {
                    if (all[j].op.kind == OP_TIED && all[j].replica == t->replica) {
                        start = latest(start, all[j].start);
                        devices[ends++] = c->plan.device[t->replica * K + all[j].rank];
                    }
                }
                took = cost_allreduce_ns(&c->cost, &c->cluster, devices, 2,
                                         c->model.items[c->model.num_items - 1].tied_params *
                                             c->model.param_bytes);
                break;
            }
            case OP_NORM: /* time-5: the latest of all */
                for (int j = 0; j < n; j++)
                    if (all[j].op.kind == OP_NORM)
                        start = latest(start, all[j].start);
                took = c->workload.norm_ns;
                break;
            default:
                took = duration(c, t);
                break;
            }
            if (start != t->start || start + took != t->end) {
                t->start = start;
                t->end = start + took;
                moved = true;
            }
        }
    }
    int64_t first = INT64_MAX, last = 0;
    for (int i = 0; i < n; i++) {
        const enum op_kind kind = (enum op_kind)all[i].op.kind;
        if (kind <= OP_P || kind >= OP_ALLREDUCE) {
            first = all[i].start < first ? all[i].start : first;
            last = latest(last, all[i].end);
        }
    }
    free(all);
    return last - first;
}

static void schedule_time__equals_the_oracle_on_random_plans(void **state)
{
    (void)state;
    uint64_t seed = 3;
    int seen[FROZEN_PLACEMENT_COUNT] = {0}, classes = 0, hosts = 0, buckets = 0, tied = 0;
    for (int round = 0; round < 250; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        struct step_time time = {0};
        plan_case_random(&c, &seed, 4, 6);
        if (round % 3 == 0)
            plan_case_shares(&c, &seed);
        if (plan_case_lower(&c, &err) != OK ||
            schedule_time(&c.full, &c.workload, &c.plan, &time, &err) != OK)
            fail_msg("round %d: %s", round, err.msg);
        assert_int_equal(time.step_ns, oracle_step(&c));
        for (int k = 0; k < c.plan.num_ranks; k++) {
            assert_true(time.rank_busy_ns[k] <= time.rank_last_ns[k] - time.rank_first_ns[k]);
            assert_true(time.rank_last_ns[k] <= time.step_ns);
        }
        seen[c.plan.frozen]++;
        classes += c.workload.num_classes > 1;
        hosts += c.cluster.host_op_ns > 0;
        buckets += c.workload.num_buckets > c.plan.num_stages;
        tied += c.full.tied;
        step_time_clear(&time);
        plan_case_clear(&c);
    }
    for (int i = 0; i < FROZEN_PLACEMENT_COUNT; i++)
        assert_true(seen[i] > 10);
    assert_true(classes > 10 && hosts > 10 && buckets > 10 && tied > 10);
}

/* --- the critical chain ------------------------------------------------------------------------ */

/* The least step of a lowered plan by the chain of another cut of it. */
static int64_t chain_bound(const struct plan_case *c, const struct step_chain *chain,
                           const int *origin)
{
    const struct workload *w = &c->workload;
    const struct stage_cost *costs = &w->stages[(ptrdiff_t)chain->class_index * w->num_stages];
    int64_t ns = chain->fixed_ns, updates = 0;
    bool same = true;
    for (int s = 0; s < w->num_stages; s++) {
        const int rank = w->rank_of_stage[s];
        const bool moved = memcmp(origin + s, c->plan.first_item + s, 2 * sizeof *origin) != 0;
        ns += step_chain_stage_ns(chain, s, &costs[s]);
        if (s + 1 < w->num_stages && c->model.items[c->plan.first_item[s + 1] - 1].act_bytes >=
                                         c->model.items[origin[s + 1] - 1].act_bytes)
            ns += chain->message_ns[s];
        updates += rank == chain->end_rank ? costs[s].op_ns[OP_UPDATE][MB_FULL] : 0;
        same = same && !(moved && (rank == chain->entry_rank || rank == chain->end_rank));
    }
    return ns + (same ? chain->tail_ns : updates);
}

/* Check a step timed with a limit: below the limit it is exact, above it is a lower bound, and so is
 * the bound of its chain. Returns whether the walk ended early. */
static int end_early(const struct plan_case *c, int64_t step_ns, int64_t limit_ns)
{
    struct step_chain chain = {.class_index = c->workload.num_classes - 1};
    struct step_time time = {0};
    case_must(schedule_time_chain(&c->full, &c->workload, &c->plan, limit_ns, &time, &chain, NULL),
              NULL);
    const int64_t early_ns = time.step_ns;
    assert_true(early_ns == step_ns || (early_ns >= limit_ns && early_ns < step_ns));
    assert_non_null(chain.counts);
    assert_true(chain_bound(c, &chain, c->plan.first_item) <= step_ns);
    if (early_ns < step_ns)
        assert_int_equal(chain_bound(c, &chain, c->plan.first_item), early_ns);
    step_chain_clear(&chain);
    step_time_clear(&time);
    return early_ns < step_ns;
}

/* No cache and, unless `frozen`, nothing frozen, no skip edges, and equal messages at all boundaries. */
static void make_even(struct plan_case *c, bool equal_messages, bool frozen)
{
    for (int i = 0; i < c->model.num_items && equal_messages; i++)
        c->model.items[i].act_bytes = c->model.items[0].act_bytes;
    c->model.num_skips = 0;
    c->plan.cache_write = false;
    if (!frozen || c->plan.frozen == FROZEN_CACHED) {
        c->plan.frozen = FROZEN_NONE;
        c->plan.num_frozen_layers = 0;
        c->plan.first_item[0] = 0;
    }
    c->cost.near_ns_per_byte = NULL;
}

static void schedule_time_chain__takes_the_step_and_bounds_that_of_every_other_cut(void **state)
{
    (void)state;
    uint64_t seed = 29;
    int found = 0, none = 0, tight = 0, early = 0, tails[2] = {0, 0}, frozen[2] = {0, 0};
    for (int round = 0; round < 400; round++) {
        struct plan_case c = {0};
        struct step_chain chain = {0};
        struct step_time time = {0};
        struct err err = {0};
        int origin[64];
        plan_case_random(&c, &seed, 4, 6);
        const bool equal_messages = round % 2;
        make_even(&c, equal_messages, round % 4 == 3);
        const int S = c.plan.num_stages;
        case_must(plan_case_lower(&c, &err), &err);
        case_must(schedule_time_chain(&c.full, &c.workload, &c.plan, 0, &time, &chain, &err), &err);
        memcpy(origin, c.plan.first_item, ((size_t)S + 1) * sizeof *origin);
        const int classes = c.workload.num_classes, frozen_stages = c.workload.num_frozen_stages;
        const bool folded = c.workload.i_folded_into_w;
        none += !chain.counts;
        early += end_early(&c, time.step_ns, time.step_ns / 2 + case_below(&seed, time.step_ns));
        if (chain.counts) {
            const int64_t norm_ns = c.full.norm ? c.workload.norm_ns : 0;
            assert_int_equal(chain_bound(&c, &chain, origin) + norm_ns, time.step_ns);
            tails[chain.entry_rank == chain.end_rank]++;
            found++;
        }
        if (c.plan.num_frozen_layers > 0)
            frozen[chain.counts != NULL]++;
        for (int cut = 0; cut < 6 && chain.counts; cut++) {
            const int s = S > 1 ? 1 + (int)case_below(&seed, S - 1) : 0,
                      by = case_below(&seed, 2) ? 1 : -1;
            if (s == 0 || c.plan.first_item[s] + by <= c.plan.first_item[s - 1] ||
                c.plan.first_item[s] + by >= c.plan.first_item[s + 1])
                continue;
            c.plan.first_item[s] += by;
            step_time_clear(&time);
            case_must(plan_case_lower(&c, &err), &err);
            case_must(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), &err);
            if (!equal_messages && (classes > 1 || c.workload.num_classes > 1))
                continue; /* the classes may be others */
            if (frozen_stages != c.workload.num_frozen_stages ||
                folded != c.workload.i_folded_into_w)
                continue; /* the lists are others */
            const int64_t bound = chain_bound(&c, &chain, origin);
            assert_true(bound <= time.step_ns);
            tight += bound == time.step_ns;
        }
        step_time_clear(&time);
        step_chain_clear(&chain);
        plan_case_clear(&c);
    }
    assert_true(early > 100 && found > 380 && none < 20 && tight > 100 && tails[0] > 30 &&
                tails[1] > 100 && frozen[1] > 30 && frozen[0] < 5);
}

/* --- closed forms ----------------------------------------------------------------------------- */

/* K*v equal stages of one uniform layer; times in ns a micro-batch. */
struct uniform {
    enum schedule_kind kind;
    int K, M, v, R;
    int64_t f, i, w, update, latency;
    enum recompute_mode recompute;
    int frozen;
    enum frozen_placement placement;
};

static struct step_time uniform_step(struct uniform u, struct plan_case *kept)
{
    struct plan_case c = {0};
    struct err err = {0};
    const int S = u.K * u.v, outside = u.placement == FROZEN_FIRST ? u.frozen : 0;
    const int num_items = S + outside;
    struct item *items = calloc((size_t)num_items, sizeof *items);
    for (int i = 0; i < num_items; i++) {
        items[i] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = i,
                                 .params = 1000,
                                 .stash_bytes = 7,
                                 .act_bytes = u.latency > 0 ? 16000 : 0,
                                 .fwd_ns = u.f,
                                 .bwd_input_ns = u.i,
                                 .bwd_weight_ns = u.w,
                                 .update_ns = u.update};
    }
    case_must(model_explicit("u", items, num_items, NULL, 0, true, &c.model, &err), &err);
    free(items);
    case_must(cluster_grid(1, u.K * (u.R ? u.R : 1), &c.cluster, &err), &err);
    c.cluster.link_latency_ns = c.cluster.uplink_latency_ns = u.latency;
    cost_constant(&c.cost);
    c.plan = (struct plan){
        .num_ranks = u.K,
        .chunks = u.v,
        .num_pipelines = u.R ? u.R : 1,
        .batch = u.M,
        .microbatches = {u.M, 1, 1},
        .schedule = u.kind,
        .recompute = u.recompute,
        .num_frozen_layers = u.frozen,
        .frozen = u.placement,
        .num_stages = S
    };
    c.plan.first_item = calloc((size_t)S + 1, sizeof(int));
    c.plan.device = calloc((size_t)c.cluster.num_devices, sizeof(int));
    for (int s = 0; s <= S; s++)
        c.plan.first_item[s] = outside + s;
    for (int d = 0; d < c.cluster.num_devices; d++)
        c.plan.device[d] = d;
    struct step_time time = {0};
    case_must(plan_case_lower(&c, &err), &err);
    case_must(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), &err);
    if (kept)
        *kept = c;
    else
        plan_case_clear(&c);
    return time;
}

static int64_t uniform_ns(struct uniform u)
{
    struct step_time time = uniform_step(u, NULL);
    const int64_t ns = time.step_ns;
    step_time_clear(&time);
    return ns;
}

static void schedule_time__is_the_closed_form_when_stages_are_equal(void **state)
{
    (void)state;
    const int64_t f = 700, i = 600, w = 500, b = i + w;
    for (int K = 1; K <= 6; K++) {
        for (int M = K; M <= 3 * K; M += K) {
            const struct uniform u = {.K = K, .M = M, .v = 1, .f = f, .i = i, .w = w};
            struct uniform x = u;
            x.kind = SCHEDULE_GPIPE;
            assert_int_equal(uniform_ns(x), (M + K - 1) * (f + b));
            x.kind = SCHEDULE_1F1B;
            assert_int_equal(uniform_ns(x), (M + K - 1) * (f + b));
            /* Inside the backward R makes each backward a forward longer. */
            x.recompute = RECOMPUTE_STAGE;
            assert_int_equal(uniform_ns(x), (M + K - 1) * (2 * f + b));
            x.kind = SCHEDULE_GPIPE;
            assert_int_equal(uniform_ns(x), (M + K - 1) * (2 * f + b));
            /* An early R needs no gradient: a rank that waits for its first one recomputes
             * meanwhile. */
            x.recompute = RECOMPUTE_STAGE_EARLY;
            assert_int_equal(uniform_ns(x), (M + K - 1) * (f + b) + M * f);
            x = u;
            x.kind = SCHEDULE_INTERLEAVED;
            for (x.v = 2; x.v <= 3; x.v++)
                assert_int_equal(uniform_ns(x), (M * x.v + K - 1) * (f + b));
            x = u;
            x.update = 90;
            assert_int_equal(uniform_ns(x), (M + K - 1) * (f + b) + 90);
        }
        struct uniform unit = {.K = K, .M = 3 * K, .v = 1, .f = 1, .i = 1, .w = 1};
        unit.kind = SCHEDULE_ZB_H1;
        assert_int_equal(uniform_ns(unit), 3 * unit.M + K - 1);
        unit.kind = SCHEDULE_ZB_H2;
        struct step_time time = uniform_step(unit, NULL);
        for (int k = 0; k < K; k++)
            assert_int_equal(time.rank_last_ns[k] - time.rank_first_ns[k], time.rank_busy_ns[k]);
        step_time_clear(&time);
        unit.kind = SCHEDULE_ZB_V;
        unit.v = 2;
        assert_int_equal(uniform_ns(unit), 6 * unit.M + K - 1);
    }
}

static void schedule_time__is_the_closed_form_of_gpipe_when_stages_are_uneven(void **state)
{
    (void)state;
    uint64_t seed = 61;
    for (int round = 0; round < 40; round++) {
        const int K = 1 + (int)case_below(&seed, 6), M = 1 + (int)case_below(&seed, 9);
        struct uniform u = {.kind = SCHEDULE_GPIPE, .K = K, .M = M, .v = 1, .f = 1, .i = 1, .w = 1};
        struct plan_case c = {0};
        struct err err = {0};
        struct step_time time = uniform_step(u, &c);
        int64_t sum_f = 0, sum_b = 0, max_f = 0, max_b = 0;
        step_time_clear(&time);
        for (int k = 0; k < K; k++) {
            struct item *item = &c.model.items[k];
            item->fwd_ns = case_below(&seed, 1000);
            item->bwd_input_ns = case_below(&seed, 1000);
            item->bwd_weight_ns = case_below(&seed, 1000);
            const int64_t b = item->bwd_input_ns + item->bwd_weight_ns;
            sum_f += item->fwd_ns;
            sum_b += b;
            max_f = latest(max_f, item->fwd_ns);
            max_b = latest(max_b, b);
        }
        case_must(plan_case_lower(&c, &err), &err);
        case_must(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), &err);
        assert_int_equal(time.step_ns, sum_f + (M - 1) * max_f + sum_b + (M - 1) * max_b);
        step_time_clear(&time);
        plan_case_clear(&c);
    }
}

static void schedule_time__is_the_closed_form_with_messages_when_they_hide(void **state)
{
    (void)state;
    /* c: latency + 16000 B at 16 GB/s. GPipe sends while it computes: only fill and drain pay. */
    const int64_t f = 70000, i = 60000, w = 50000, latency = 4000, c = latency + 1000;
    for (int K = 2; K <= 6; K++) {
        for (int M = K; M <= 3 * K; M += K) {
            struct uniform u = {.K = K, .M = M, .v = 1, .f = f, .i = i, .w = w, .latency = latency};
            u.kind = SCHEDULE_GPIPE;
            assert_int_equal(uniform_ns(u), (M + K - 1) * (f + i + w) + 2 * (K - 1) * c);
            /* 1F1B has K micro-batches in flight, which takes K(f+b) + 2(K-1)c a round: of M - 1
             * micro-batches behind the first, all but one in K pay a message both ways. */
            u.kind = SCHEDULE_1F1B;
            const int64_t paid = K - 1 + M - 1 - (M - 1 + K - 1) / K;
            assert_int_equal(uniform_ns(u), (M + K - 1) * (f + i + w) + 2 * paid * c);
            /* With v chunks a rank has other work while messages fly: only the first micro-batch's
             * way down and up all vK stages counts. */
            u.kind = SCHEDULE_INTERLEAVED;
            u.v = 2;
            assert_int_equal(uniform_ns(u), (2 * M + K - 1) * (f + i + w) + 2 * (2 * K - 1) * c);
        }
        /* ZB-H1's W's hide all but four messages a rank. */
        struct uniform h1 = {.kind = SCHEDULE_ZB_H1,
                             .K = K,
                             .M = 2 * K,
                             .v = 1,
                             .f = f,
                             .i = f,
                             .w = f,
                             .latency = latency};
        assert_int_equal(uniform_ns(h1), (3 * h1.M + K - 1) * f + 4 * (K - 1) * c);
    }
}

static void schedule_time__runs_the_frozen_prefix_where_the_plan_says(void **state)
{
    (void)state;
    const int K = 3, M = 6, F = 2;
    struct uniform u = {.kind = SCHEDULE_1F1B, .K = K, .M = M, .v = 1, .f = 7, .i = 5, .w = 3};
    u.frozen = F;
    u.placement = FROZEN_FIRST;
    /* The whole mini-batch through F items, then a pipeline whose first stage has no I half:
     * its last B is 5 shorter. */
    assert_int_equal(uniform_ns(u), F * M * 7 + (M + K - 1) * (7 + 8) - 5);
    u.placement = FROZEN_SPREAD; /* one active stage: it waits for F forwards, then runs alone */
    assert_int_equal(uniform_ns(u), F * 7 + M * (7 + 3));
}

static void schedule_time__adds_the_ring_when_there_are_replicas(void **state)
{
    (void)state;
    struct uniform u = {
        .kind = SCHEDULE_GPIPE, .K = 2, .M = 4, .v = 1, .R = 4, .f = 70, .i = 60, .w = 50};
    struct plan_case c = {0};
    struct step_time time = uniform_step(u, &c);
    /* 2(n-1)/n * 4000 B at 16 GB/s = 375 ns; stage 0 ends last. */
    assert_int_equal(time.allreduce_ns, 375);
    assert_int_equal(time.allreduce_exposed_ns, 375);
    assert_int_equal(time.step_ns, (4 + 1) * 180 + 375);
    assert_int_equal(c.workload.num_classes, 1);
    step_time_clear(&time);
    plan_case_clear(&c);
}

static void schedule_time__charges_the_host_as_the_rules_of_launching_say(void **state)
{
    (void)state;
    struct uniform u = {.kind = SCHEDULE_GPIPE, .K = 2, .M = 4, .v = 1, .f = 10, .i = 10, .w = 10};
    struct plan_case c = {0};
    struct step_time time = uniform_step(u, &c);
    step_time_clear(&time);
    struct err err = {0};
    c.cluster.host_op_ns = 100; /* launches are the bottleneck: 8 a rank and an update */
    case_must(plan_case_lower(&c, &err), &err);
    case_must(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), &err);
    assert_int_equal(time.step_ns, 9 * 100 - 100);
    step_time_clear(&time);
    c.cluster.host_blocking = true;
    case_must(plan_case_lower(&c, &err), &err);
    case_must(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), &err);
    assert_int_equal(time.step_ns, (4 + 1) * (10 + 20 + 2 * 2 * 100));
    step_time_clear(&time);
    plan_case_clear(&c);
}

static void schedule_time__never_gets_faster_when_links_get_slower(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (int round = 0; round < 60; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 4, 6);
        int64_t before = 0;
        for (int step = 0; step < 4; step++) {
            struct step_time time = {0};
            case_must(plan_case_lower(&c, &err), &err);
            case_must(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), &err);
            assert_true(time.step_ns >= before);
            before = time.step_ns;
            step_time_clear(&time);
            c.cluster.link_latency_ns += 500;
            c.cluster.uplink_latency_ns += 500;
            for (int d = 0; d < c.cluster.num_devices; d++)
                c.cluster.devices[d].link_bytes_per_s /= 2;
        }
        plan_case_clear(&c);
    }
}

static void schedule_time__refuses_lists_that_deadlock(void **state)
{
    (void)state;
    struct uniform u = {.kind = SCHEDULE_1F1B, .K = 2, .M = 4, .v = 1, .f = 1, .i = 1, .w = 1};
    struct plan_case c = {0};
    struct step_time time = uniform_step(u, &c);
    struct err err = {0};
    step_time_clear(&time);
    struct op *ops = c.full.ranks[1].ops; /* RECV_ACT0 F0 RECV... : wait for the last one first */
    for (int64_t i = 1; i < c.full.ranks[1].num_ops; i++) {
        if (ops[i].kind == OP_RECV_ACT && ops[i].microbatch == 3) {
            const struct op kept = ops[0];
            ops[0] = ops[i];
            ops[i] = kept;
        }
    }
    assert_int_equal(schedule_time(&c.full, &c.workload, &c.plan, &time, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "rank"));
    plan_case_clear(&c);
}

/* --- memory ----------------------------------------------------------------------------------- */

static void schedule_memory__is_the_closed_form_when_stages_are_equal(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++) {
        const int v = schedule_default_chunks((enum schedule_kind)kind);
        struct uniform u = {
            .kind = (enum schedule_kind)kind, .K = 4, .M = 12, .v = v, .f = 1, .i = 1, .w = 1};
        struct plan_case c = {0};
        struct step_time time = uniform_step(u, &c);
        struct err err = {0};
        int64_t memory[4];
        int live[4];
        c.workload.context_bytes = 1000;
        assert_int_equal(schedule_memory(&c.full, &c.workload, memory, &err), OK);
        schedule_peak_live(&c.full, live);
        for (int k = 0; k < 4; k++) {
            /* 1000 parameters a stage, weight and gradient of 4 B; 7 B of stash a pair */
            assert_int_equal(memory[k], 1000 + v * 8000 + 7 * live[k]);
        }
        step_time_clear(&time);
        plan_case_clear(&c);
    }
}

/* Sum over everything that an op's interval in the list covers, op by op: O(n^2). */
static int64_t oracle_memory(const struct plan_case *c, int k)
{
    const struct rank_ops *list = &c->full.ranks[k];
    const struct workload *w = &c->workload;
    const int M = w->num_microbatches;
    int64_t fixed = w->context_bytes, peak = 0;
    for (int s = 0; s < w->num_stages; s++) {
        if (w->rank_of_stage[s] == k) {
            const struct stage_cost *stage = &w->stages[s];
            fixed += stage->weight_bytes + stage->frozen_bytes + stage->grad_bytes +
                     stage->optim_bytes + stage->lagged_bytes;
        }
    }
    for (int64_t t = 0; t < list->num_ops; t++) {
        int64_t live = 0;
        for (int64_t i = 0; i <= t; i++) {
            const struct op op = list->ops[i];
            const struct stage_cost *stage = &w->stages[op.stage];
            const int mb = op.microbatch == M - 1 ? MB_LAST : MB_FULL;
            /* From op i up to and with the op that frees it. */
            bool backward_ended = false, input_ended = false, consumed = false, again = false;
            for (int64_t j = 0; j < list->num_ops; j++) {
                const struct op other = list->ops[j];
                const bool same = other.stage == op.stage && other.microbatch == op.microbatch;
                again = again || (same && other.kind == OP_R);
                input_ended = input_ended || (j < t && j > i && same && other.kind == OP_I);
                backward_ended = backward_ended || (j < t && j > i && same &&
                                                    (other.kind == OP_B || other.kind == OP_W));
                consumed = consumed ||
                           (j < t && j > i && same && other.kind <= OP_Z && other.kind != OP_R);
            }
            const int64_t left_out =
                input_ended && c->plan.shares.share
                    ? (int64_t)(c->plan.shares.share[op.stage * M + op.microbatch] *
                                (double)stage->stash_bytes[mb])
                    : 0; /* memory-2 */
            if (op.kind == (again ? OP_R : OP_F) && !backward_ended)
                live -= left_out;
            if (op.kind == OP_F && !backward_ended) {
                live += again ? stage->input_bytes[mb] : stage->stash_bytes[mb];
            } else if (op.kind == OP_R && !backward_ended) {
                live += stage->stash_bytes[mb];
            } else if (op.kind == OP_C && !consumed) {
                live += stage->copy_bytes[mb];
            } else if ((op.kind == OP_RECV_ACT || op.kind == OP_RECV_GRAD) && !consumed) {
                const int *first = op.kind == OP_RECV_ACT ? w->in_first : w->out_first;
                const int *edges = op.kind == OP_RECV_ACT ? w->in_edge : w->out_edge;
                live += w->edges[edges[first[op.stage] + op.arg]].bytes[mb];
            }
        }
        peak = latest(peak, live);
    }
    return fixed + peak;
}

/* The most that schedule_memory_curve() says a rank holds, which must be back where it began after
 * the last op. */
static int64_t curve_peak(const struct plan_case *c, int rank)
{
    const int64_t n = c->full.ranks[rank].num_ops;
    int64_t *during = calloc((size_t)n * 2 + 2, sizeof *during), *after = during + n + 1, most = 0;
    assert_int_equal(schedule_memory_curve(&c->full, &c->workload, rank, during, after, NULL), OK);
    for (int64_t i = 0; i < n; i++) {
        assert_true(after[i] <= during[i]);
        most = during[i] > most ? during[i] : most;
    }
    assert_true(n == 0 || after[n - 1] <= during[0]);
    free(during);
    return most;
}

/* The parts add up to the peak, and a framework's allocator comes on top of all but the context. */
static void check_parts(struct plan_case *c, int k, int64_t peak)
{
    int64_t limits[8];
    struct rank_memory ranks[8];
    for (int i = 0; i < 8; i++)
        limits[i] = INT64_MAX;
    for (int kind = FRAMEWORK_AUTO; kind <= FRAMEWORK_DEEPSPEED; kind += FRAMEWORK_DEEPSPEED) {
        int64_t most;
        const int beyond = framework_beyond_tensors(framework_of((enum framework_kind)kind), 0);
        c->workload.beyond_tensors = beyond;
        assert_int_equal(schedule_memory_limited(&c->full, &c->workload, limits, ranks, NULL), OK);
        const struct memory_parts *p = &ranks[k].parts;
        most = peak + framework_beyond_bytes(beyond, peak - c->workload.context_bytes);
        assert_int_equal(ranks[k].peak_bytes, most);
        assert_int_equal(p->allocator, most - peak);
        assert_int_equal(p->context + p->weights + p->gradients + p->optimizer + p->stash +
                             p->work + p->buffers + p->allocator,
                         most);
        assert_int_equal(curve_peak(c, k), most);
    }
    c->workload.beyond_tensors = 0;
}

static void schedule_memory__equals_the_oracle_on_random_plans(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < 60; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        int64_t memory[8];
        plan_case_random(&c, &seed, 3, 4);
        if (round % 2 == 0)
            plan_case_shares(&c, &seed);
        case_must(plan_case_lower(&c, &err), &err);
        assert_int_equal(schedule_memory(&c.full, &c.workload, memory, &err), OK);
        for (int k = 0; k < c.plan.num_ranks; k++) {
            assert_int_equal(memory[k], oracle_memory(&c, k));
            assert_int_equal(curve_peak(&c, k), memory[k]);
            check_parts(&c, k, memory[k]);
        }
        plan_case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule_time__equals_the_oracle_on_random_plans),
        cmocka_unit_test(schedule_time_chain__takes_the_step_and_bounds_that_of_every_other_cut),
        cmocka_unit_test(schedule_time__is_the_closed_form_when_stages_are_equal),
        cmocka_unit_test(schedule_time__is_the_closed_form_of_gpipe_when_stages_are_uneven),
        cmocka_unit_test(schedule_time__is_the_closed_form_with_messages_when_they_hide),
        cmocka_unit_test(schedule_time__runs_the_frozen_prefix_where_the_plan_says),
        cmocka_unit_test(schedule_time__adds_the_ring_when_there_are_replicas),
        cmocka_unit_test(schedule_time__charges_the_host_as_the_rules_of_launching_say),
        cmocka_unit_test(schedule_time__never_gets_faster_when_links_get_slower),
        cmocka_unit_test(schedule_time__refuses_lists_that_deadlock),
        cmocka_unit_test(schedule_memory__is_the_closed_form_when_stages_are_equal),
        cmocka_unit_test(schedule_memory__equals_the_oracle_on_random_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
