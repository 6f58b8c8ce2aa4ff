/* Workloads and lowered lists: naive sums, counts of ops, custom lists, overflow. */
#include "partition/step/lower.h"
#include "partition/step/schedule_auto.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "partition/step/stage_memo.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/plan_case.h"
#include "tests/unit/test.h"

static int frozen_items(const struct plan_case *c)
{
    return model_frozen_items(&c->model, c->plan.num_frozen_layers);
}

static int stage_of(const struct plan *p, int item)
{
    for (int s = p->num_stages - 1; s > 0; s--)
        if (item >= p->first_item[s])
            return s;
    return 0;
}

static int64_t stash_of(const struct plan_case *c, int stage, int mb)
{
    const struct microbatches *m = &c->plan.microbatches;
    const int64_t n = mb == m->count - 1 ? m->last_size : m->size;
    int64_t bytes = 0;
    for (int i = c->plan.first_item[stage]; i < c->plan.first_item[stage + 1]; i++)
        bytes += i >= frozen_items(c) ? c->model.items[i].stash_bytes : 0;
    return bytes * (c->model.per_microbatch ? 1 : n);
}

/* stash-distance op by op: which stash the stage's rank holds, written down and added up anew each
 * time.
 */
static int64_t distance_of(const struct plan_case *c, int stage)
{
    const int M = c->plan.microbatches.count, S = c->plan.num_stages;
    const struct rank_ops *list = &c->full.ranks[c->full.rank_of_stage[stage]];
    bool *held = calloc((size_t)(S * M), sizeof *held);
    int64_t most = 0;
    for (int64_t i = 0; i < list->num_ops; i++) {
        const struct op op = list->ops[i];
        const bool again = recompute_every(c->plan.recompute) ||
                           (c->plan.recompute == RECOMPUTE_EXCEPT_LAST && op.microbatch < M - 1);
        if (op.kind == OP_R || (op.kind == OP_F && !again))
            held[op.stage * M + op.microbatch] = true;
        int64_t now = 0;
        for (int j = 0; j < S * M; j++)
            now += held[j] ? stash_of(c, j / M, j % M) : 0;
        most = now > most ? now : most;
        if (op.kind == OP_B || op.kind == OP_W)
            held[op.stage * M + op.microbatch] = false;
    }
    free(held);
    return most - stash_of(c, stage, 0) / 2;
}

/* Nearest ns at the device's speed, as the cost of an item is asked for. */
static int64_t item_time(const struct plan_case *c, int item, enum pass pass, int64_t samples,
                         const struct device *device, int64_t distance)
{
    int64_t ns = 0;
    bool far = false;
    struct err err = {0};
    case_must(c->cost.item_ns(c->cost.ctx, &c->model, item, pass, samples, device, &ns, &far, &err),
              &err);
    if (c->cost.near_ns_per_byte && pass < PASS_FWD_NOGRAD) {
        const int64_t bytes =
            c->model.items[item].stash_bytes * (c->model.per_microbatch ? 1 : samples);
        const enum pass like = pass == PASS_BWD_REST ? PASS_BWD_INPUT : pass;
        ns -= (int64_t)(near_case(NULL, device, like, distance) * (double)bytes);
        ns = ns < 0 ? 0 : ns;
    }
    const double exact = (double)ns / device->speed;
    return (int64_t)(exact + 0.5);
}

/* What the messages of a stage's activations take from its processor, with their gradients' in grads. */
static int64_t message_times(const struct plan_case *c, int stage, int mb, int64_t *grads)
{
    const struct workload *w = &c->workload;
    int64_t acts = 0;
    *grads = 0;
    for (int e = 0; e < w->num_edges; e++) {
        const struct stage_edge *edge = &w->edges[e];
        const bool here = edge->from == stage || edge->to == stage;
        const double rate = c->cluster.message_host_bytes_per_s;
        int64_t ns = c->cluster.message_host_ns;
        if (!here || w->rank_of_stage[edge->from] == w->rank_of_stage[edge->to])
            continue;
        if (rate > 0)
            ns += (int64_t)ceil((double)edge->bytes[mb] / rate * 1e9);
        acts += ns;
        *grads += edge->grad ? ns : 0;
    }
    return acts;
}

static void workload_build__sums_the_items_of_each_stage(void **state)
{
    (void)state;
    uint64_t seed = 17;
    for (int round = 0; round < 150; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 4, 5);
        c.model.items[c.model.num_items - 1].tied_params = 0; /* has a test of its own */
        c.model.split_backward = round % 3 * 0.15;
        case_must(plan_case_lower(&c, &err), &err);
        const struct workload *w = &c.workload;
        const struct plan *p = &c.plan;
        const int frozen = frozen_items(&c);
        for (int r = 0; r < p->num_pipelines; r++) {
            for (int s = 0; s < p->num_stages; s++) {
                const struct stage_cost *stage =
                    &w->stages[w->class_of_replica[r] * w->num_stages + s];
                const struct device *device =
                    &c.cluster.devices[p->device[r * p->num_ranks + w->rank_of_stage[s]]];
                const int64_t distance = distance_of(&c, s);
                for (int mb = 0; mb < MB_SIZES; mb++) {
                    const int64_t n =
                        mb == MB_FULL ? p->microbatches.size : p->microbatches.last_size;
                    const int64_t bytes_n = c.model.per_microbatch ? 1 : n;
                    const int64_t host =
                        c.cost.op_overhead_ns +
                        (c.cluster.host_blocking ? p->num_ranks * c.cluster.host_op_ns : 0);
                    int64_t f = host, again = host, in = host, weight = host, stash = 0;
                    int64_t update = 0, params = 0, held = 0;
                    for (int i = p->first_item[s]; i < p->first_item[s + 1]; i++) {
                        const bool keeps =
                            i >= frozen &&
                            (p->recompute == RECOMPUTE_NEVER ||
                             (p->recompute == RECOMPUTE_EXCEPT_LAST && mb == MB_LAST));
                        f += item_time(&c, i, keeps ? PASS_FWD : PASS_FWD_NOGRAD, n, device,
                                       distance);
                        if (i < frozen) {
                            again += item_time(&c, i, PASS_FWD_NOGRAD, n, device, distance);
                            held += c.model.items[i].params;
                            continue;
                        }
                        again += item_time(&c, i, PASS_FWD, n, device, distance);
                        in += item_time(&c, i,
                                        i == frozen && frozen > 0 ? PASS_BWD_REST : PASS_BWD_INPUT,
                                        n, device, distance);
                        weight += item_time(&c, i, PASS_BWD_WEIGHT, n, device, distance);
                        update += item_time(&c, i, PASS_UPDATE, n, device, distance);
                        stash += c.model.items[i].stash_bytes * bytes_n;
                        params += c.model.items[i].params;
                    }
                    const bool whole_batch = s == 0 && p->frozen == FROZEN_FIRST;
                    int64_t whole = whole_batch ? host : 0;
                    for (int i = 0; s == 0 && i < p->first_item[0]; i++)
                        held += c.model.items[i].params; /* a cached prefix stays at hand */
                    for (int i = 0; whole_batch && i < frozen; i++) {
                        whole += item_time(&c, i, PASS_FWD_NOGRAD, p->batch, device, distance) *
                                 (c.model.per_microbatch ? p->microbatches.count : 1);
                    }
                    /* A stage that trains the first active item only has no I: W does it. */
                    const int64_t both = in + weight - host;
                    if (frozen > 0 && p->first_item[s] <= frozen &&
                        p->first_item[s + 1] == frozen + 1) {
                        weight = both;
                        in = host;
                    }
                    if (s > w->num_frozen_stages)
                        weight += llround(c.model.split_backward * (double)both);
                    int64_t grads = 0;
                    f += message_times(&c, s, mb, &grads);
                    assert_int_equal(stage->op_ns[OP_F][mb], f);
                    assert_int_equal(stage->op_ns[OP_Z][mb], f);
                    assert_int_equal(stage->whole_batch_ns[0], whole);
                    assert_int_equal(stage->op_ns[OP_R][mb], again);
                    assert_int_equal(stage->op_ns[OP_I][mb], in + grads);
                    assert_int_equal(stage->op_ns[OP_W][mb], weight);
                    assert_int_equal(stage->op_ns[OP_B][mb], both + grads);
                    if (update > 0 || params > 0)
                        update += c.cost.op_overhead_ns;
                    assert_int_equal(stage->op_ns[OP_UPDATE][mb], update);
                    assert_int_equal(stage->stash_bytes[mb], stash);
                    assert_int_equal(stage->weight_bytes, 4 * params);
                    assert_int_equal(stage->grad_bytes, 4 * params);
                    assert_int_equal(stage->frozen_bytes, 4 * held);
                    assert_int_equal(stage->optim_bytes, p->optim_bytes_per_param * params);
                    assert_int_equal(stage->lagged_bytes,
                                     p->lagged && params > 0 ? 4 * params + LAG_ROOM_BYTES : 0);
                }
            }
        }
        plan_case_clear(&c);
    }
}

/* Messages and buckets outside of the measured sizes are flagged, inside a node only. */
static void workload_build__flags_messages_of_sizes_that_were_not_measured(void **state)
{
    (void)state;
    uint64_t seed = 29;
    int flagged = 0, clean = 0;
    for (int round = 0; round < 200; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 4, 3);
        c.cost.message_bytes[0] = case_below(&seed, 50000);
        c.cost.message_bytes[1] = c.cost.message_bytes[0] + case_below(&seed, 400000);
        c.cost.allreduce_bytes[0] = case_below(&seed, 2000);
        c.cost.allreduce_bytes[1] = case_below(&seed, 2) ? case_below(&seed, 1000000) : 0;
        case_must(plan_case_lower(&c, &err), &err);
        const struct workload *w = &c.workload;
        const struct plan *p = &c.plan;
        const struct device *d = c.cluster.devices;
        bool outside = false;
        for (int r = 0; r < p->num_pipelines; r++) {
            const int *row = p->device + r * p->num_ranks;
            for (int e = 0; e < w->num_edges; e++) {
                const int from = row[w->rank_of_stage[w->edges[e].from]];
                const int to = row[w->rank_of_stage[w->edges[e].to]];
                for (int mb = 0; mb < MB_SIZES; mb++) {
                    const int64_t bytes = w->edges[e].bytes[mb];
                    outside |= from != to && d[from].node == d[to].node &&
                               c.cost.message_bytes[1] > 0 &&
                               (bytes < c.cost.message_bytes[0] || bytes > c.cost.message_bytes[1]);
                }
            }
        }
        for (int b = 0; b < w->num_buckets; b++) {
            const int rank = w->rank_of_stage[w->buckets[b].stage];
            bool together = true;
            for (int r = 0; r < p->num_pipelines; r++)
                together &= d[p->device[r * p->num_ranks + rank]].node == d[p->device[rank]].node;
            outside |= together && c.cost.allreduce_bytes[1] > 0 &&
                       (w->buckets[b].bytes < c.cost.allreduce_bytes[0] ||
                        w->buckets[b].bytes > c.cost.allreduce_bytes[1]);
        }
        assert_int_equal(w->extrapolated, outside);
        flagged += outside;
        clean += !outside;
        plan_case_clear(&c);
    }
    assert_true(flagged > 20 && clean > 20);
}

static void workload_build__carries_every_skip_once_when_it_crosses(void **state)
{
    (void)state;
    uint64_t seed = 23;
    int crossing = 0, outside = 0, shared = 0;
    for (int round = 0; round < 200; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 4, 5);
        for (int i = 1; i < c.model.num_skips; i++)
            if (c.model.skips[i].from == c.model.skips[i - 1].from)
                c.model.skips[i].bytes = c.model.skips[i - 1].bytes;
        case_must(plan_case_lower(&c, &err), &err);
        const struct workload *w = &c.workload;
        const struct plan *p = &c.plan;
        const int S = p->num_stages, frozen = frozen_items(&c);
        int64_t carried = 0, wanted = 0, with_grad = 0, want_grad = 0;
        const int64_t n = c.model.per_microbatch ? 1 : p->microbatches.size;
        for (int e = 0; e < w->num_edges; e++) {
            if (e < S - 1) {
                assert_int_equal(w->edges[e].from, e);
                assert_int_equal(w->edges[e].to, e + 1);
                assert_int_equal(w->edges[e].bytes[MB_FULL],
                                 n * c.model.items[p->first_item[e + 1] - 1].act_bytes);
                assert_int_equal(w->edges[e].grad, p->first_item[e + 1] > frozen);
            } else {
                carried += w->edges[e].bytes[MB_FULL];
                with_grad += w->edges[e].grad ? w->edges[e].bytes[MB_FULL] : 0;
            }
        }
        for (int i = 0; i < c.model.num_skips; i++) {
            const struct skip_edge *skip = &c.model.skips[i];
            bool again = false; /* another item of that stage gets the tensor already */
            for (int j = 0; j < i; j++)
                again = again || (c.model.skips[j].from == skip->from &&
                                  c.model.skips[j].bytes == skip->bytes &&
                                  c.model.skips[j].to >= p->first_item[0] &&
                                  stage_of(p, c.model.skips[j].to) == stage_of(p, skip->to));
            shared += again;
            if (!again && skip->to >= p->first_item[0] &&
                stage_of(p, skip->from) != stage_of(p, skip->to)) {
                wanted += n * skip->bytes;
                want_grad += skip->from >= frozen ? n * skip->bytes : 0;
                crossing++;
                outside += skip->from < p->first_item[0];
            }
        }
        assert_int_equal(carried, wanted);
        assert_int_equal(with_grad, want_grad);
        plan_case_clear(&c);
    }
    assert_true(crossing > 50 && outside > 5 && shared > 2);
}

/* The work that the last backward of a bucket's stage still has behind the bucket's last gradient. */
static void leads_of(const struct plan_case *c, const struct bucket *b, int64_t lead[2])
{
    const struct plan *p = &c->plan;
    const int frozen = frozen_items(c), first = p->first_item[b->stage];
    const struct device *device = &c->cluster.devices[p->device[c->full.rank_of_stage[b->stage]]];
    const int64_t n = p->microbatches.last_size, distance = distance_of(c, b->stage);
    int done = b->first_item;
    while (c->model.items[done].params == 0)
        done++;
    lead[0] = lead[1] = 0;
    for (int i = first > frozen ? first : frozen; i < done && p->bucket_bytes > 0; i++) {
        const enum pass input = i == frozen && frozen > 0 ? PASS_BWD_REST : PASS_BWD_INPUT;
        const int64_t weight = item_time(c, i, PASS_BWD_WEIGHT, n, device, distance);
        lead[0] += item_time(c, i, input, n, device, distance) + weight;
        lead[1] += weight;
    }
}

static void workload_build__cuts_gradients_into_buckets_from_the_end(void **state)
{
    (void)state;
    uint64_t seed = 29;
    int several = 0;
    for (int round = 0; round < 150; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 3, 5);
        c.model.items[c.model.num_items - 1].tied_params = 0; /* has a test of its own */
        case_must(plan_case_lower(&c, &err), &err);
        const struct workload *w = &c.workload;
        for (int s = 0; s < w->num_stages; s++) {
            const int first = w->first_bucket[s], end = w->first_bucket[s + 1];
            int64_t bytes = 0;
            for (int i = first; i < end; i++) {
                const struct bucket *b = &w->buckets[i];
                assert_int_equal(b->stage, s);
                int64_t lead[2];
                leads_of(&c, b, lead);
                assert_true(b->bytes > 0);
                assert_int_equal(b->lead_ns, lead[0]);
                assert_int_equal(b->lead_w_ns, lead[1]);
                /* all but the last are full */
                assert_true(i == end - 1 || b->bytes >= c.plan.bucket_bytes);
                bytes += b->bytes;
            }
            assert_int_equal(bytes, w->num_pipelines > 1 ? w->stages[s].grad_bytes : 0);
            assert_true(c.plan.bucket_bytes > 0 || end - first <= 1);
            assert_true(c.plan.bucket_bytes > 0 || end == first || w->buckets[first].lead_ns == 0);
            several += end - first > 1;
        }
        plan_case_clear(&c);
    }
    assert_true(several > 20);
}

/* A processor that sums on its own cores sums nothing beside a backward. */
static void workload_build__gives_a_host_s_buckets_no_lead(void **state)
{
    (void)state;
    uint64_t seed = 29;
    int early = 0;
    for (int round = 0; round < 40; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 3, 5);
        for (int host = 0; host < 2; host++) {
            for (int d = 0; d < c.cluster.num_devices && host; d++)
                strcpy(c.cluster.devices[d].kind, "cpu");
            case_must(plan_case_lower(&c, &err), &err);
            for (int b = 0; b < c.workload.num_buckets; b++) {
                const struct bucket *bucket = &c.workload.buckets[b];
                early += !host && bucket->lead_ns > 0;
                assert_true(!host || (bucket->lead_ns == 0 && bucket->lead_w_ns == 0));
            }
        }
        plan_case_clear(&c);
    }
    assert_true(early > 20);
}

static void plan_lower__holds_every_op_of_the_plan(void **state)
{
    (void)state;
    uint64_t seed = 31;
    int halves = 0;
    for (int round = 0; round < 200; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 4, 5);
        case_must(plan_case_lower(&c, &err), &err);
        const struct plan *p = &c.plan;
        const struct workload *w = &c.workload;
        const int M = p->microbatches.count;
        int64_t count[OP_KIND_COUNT] = {0}, whole[OP_KIND_COUNT] = {0}, want[OP_KIND_COUNT] = {0};
        for (int k = 0; k < p->num_ranks; k++) {
            for (int64_t i = 0; i < c.full.ranks[k].num_ops; i++) {
                const struct op op = c.full.ranks[k].ops[i];
                if (op.microbatch == OP_WHOLE_BATCH)
                    whole[op.kind]++;
                else
                    count[op.kind]++;
            }
        }
        const int active = p->num_stages - w->num_frozen_stages;
        for (int e = 0; e < w->num_edges; e++) {
            if (w->rank_of_stage[w->edges[e].from] != w->rank_of_stage[w->edges[e].to]) {
                want[OP_SEND_ACT] += M;
                want[OP_SEND_GRAD] += w->edges[e].grad ? M : 0;
            }
        }
        assert_int_equal(count[OP_F], active * M);
        assert_int_equal(count[OP_Z], w->num_frozen_stages * M);
        assert_int_equal(count[OP_B] + count[OP_W], active * M);
        const int first = p->first_item[w->num_frozen_stages], frozen = frozen_items(&c);
        const int trained =
            p->first_item[w->num_frozen_stages + 1] - (first > frozen ? first : frozen);
        assert_int_equal(w->i_folded_into_w, p->num_frozen_layers > 0 && trained == 1);
        if (p->schedule == SCHEDULE_ZB_H1 || p->schedule == SCHEDULE_ZB_V) {
            assert_int_equal(count[OP_I], (active - w->i_folded_into_w) * M);
            halves += w->i_folded_into_w;
        }
        assert_int_equal(count[OP_R], p->recompute == RECOMPUTE_NEVER ? 0
                                      : recompute_every(p->recompute) ? active * M
                                                                      : active * (M - 1));
        assert_int_equal(count[OP_C], p->frozen == FROZEN_CACHED ? M : 0);
        assert_int_equal(count[OP_P], p->frozen == FROZEN_SPREAD && p->cache_write ? M : 0);
        assert_int_equal(whole[OP_Z], p->frozen == FROZEN_FIRST);
        assert_int_equal(whole[OP_P], p->frozen == FROZEN_FIRST && p->cache_write);
        assert_int_equal(count[OP_SEND_ACT], want[OP_SEND_ACT]);
        assert_int_equal(count[OP_RECV_ACT], want[OP_SEND_ACT]);
        assert_int_equal(count[OP_SEND_GRAD], want[OP_SEND_GRAD]);
        assert_int_equal(count[OP_RECV_GRAD], want[OP_SEND_GRAD]);
        assert_int_equal(whole[OP_ALLREDUCE], w->num_buckets);
        const bool apart = w->rank_of_stage[0] != w->rank_of_stage[w->num_stages - 1];
        const bool trains = c.model.items[c.model.num_items - 1].tied_params > 0 && frozen == 0;
        assert_int_equal(whole[OP_TIED], apart && trains ? 2 : 0);
        assert_int_equal(whole[OP_NORM], p->clip ? p->num_ranks : 0);
        plan_case_clear(&c);
    }
    assert_true(halves > 3);
}

static void plan_lower__takes_a_custom_list_and_its_ranks(void **state)
{
    (void)state;
    uint64_t seed = 37;
    int compared = 0;
    for (int round = 0; round < 60; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        struct step_time named = {0}, custom = {0};
        struct schedule compute = {0}, list = {0};
        char *csv = NULL;
        plan_case_random(&c, &seed, 4, 5);
        case_must(plan_case_lower(&c, &err), &err);
        case_must(schedule_time(&c.full, &c.workload, &c.plan, &named, &err), &err);
        /* The named list through a CSV, under a plan that says custom. */
        case_must(schedule_generate(c.plan.schedule, c.plan.num_ranks, c.plan.microbatches.count,
                                    c.plan.chunks, &compute, &err),
                  &err);
        case_must(schedule_to_csv(&compute, &csv, &err), &err);
        case_must(schedule_from_csv(csv, "csv", &list, &err), &err);
        case_must(plan_set_order(&c.plan, SCHEDULE_CUSTOM, &list, &err), &err);
        case_must(plan_case_lower(&c, &err), &err);
        case_must(schedule_time(&c.full, &c.workload, &c.plan, &custom, &err), &err);
        assert_int_equal(custom.step_ns, named.step_ns);
        compared++;
        /* One micro-batch too few. */
        struct workload w = {0};
        struct schedule full = {0};
        c.plan.microbatches = microbatches_of(c.plan.batch, c.plan.microbatches.count - 1);
        if (c.plan.microbatches.count != list.num_microbatches) {
            assert_int_equal(plan_lower(&(struct setting){&c.model, &c.cluster, &c.cost}, &c.plan,
                                        &w, &full, &err),
                             ERR_INFEASIBLE);
            assert_non_null(strstr(err.msg, "does not fit a plan"));
            assert_null(full.ranks);
        }
        free(csv);
        schedule_clear(&compute);
        schedule_clear(&list);
        step_time_clear(&named);
        step_time_clear(&custom);
        plan_case_clear(&c);
    }
    assert_int_equal(compared, 60);
}

static void plan_lower__refuses_a_custom_list_that_is_wrong(void **state)
{
    (void)state;
    uint64_t seed = 41;
    struct plan_case c = {0};
    struct err err = {0};
    struct schedule list = {0}, full = {0};
    struct workload w = {0};
    plan_case_random(&c, &seed, 1, 5);
    c.plan.chunks = c.plan.num_stages = 1;
    c.plan.first_item[1] = c.model.num_items;
    c.plan.microbatches = (struct microbatches){3, 1, 1};
    c.plan.batch = 3;
    case_must(schedule_from_csv("0F0,0F1,0F2,0B1,0B0,0B2", "csv", &list, &err), &err);
    case_must(plan_set_order(&c.plan, SCHEDULE_CUSTOM, &list, &err), &err);
    assert_int_equal(
        plan_lower(&(struct setting){&c.model, &c.cluster, &c.cost}, &c.plan, &w, &full, &err),
        ERR_INFEASIBLE);
    assert_string_equal(err.msg, "rank 0: 0B1 before 0B0");
    schedule_clear(&list);
    plan_case_clear(&c);
}

static void workload_build__keeps_a_copy_of_a_tied_table_where_its_owner_is_not(void **state)
{
    (void)state;
    uint64_t seed = 59;
    for (int frozen = 0; frozen < 2; frozen++) {
        for (int K = 1; K <= 2; K++) {
            struct plan_case c = {0};
            struct err err = {0};
            int64_t sums[2][7] = {{0}};
            do {
                plan_case_clear(&c);
                plan_case_random(&c, &seed, 2, 3);
            } while (c.plan.num_stages != K || c.plan.num_pipelines < 2 ||
                     (c.plan.frozen == FROZEN_SPREAD) != (frozen == 1) ||
                     (frozen == 0 && c.plan.frozen != FROZEN_NONE));
            for (int tied = 0; tied < 2; tied++) {
                c.model.items[c.model.num_items - 1].tied_params = tied ? 1000 : 0;
                c.model.vocab = tied ? 10 : 0;
                case_must(plan_case_lower(&c, &err), &err);
                const struct stage_cost *last = &c.workload.stages[K - 1];
                sums[tied][0] = last->weight_bytes;
                sums[tied][1] = last->frozen_bytes;
                sums[tied][2] = last->optim_bytes;
                for (int i = c.workload.first_bucket[K - 1]; i < c.workload.first_bucket[K]; i++)
                    sums[tied][3] += c.workload.buckets[i].bytes;
                for (int s = 0; s < K; s++)
                    sums[tied][4] += c.workload.stages[s].grad_bytes;
                sums[tied][5] = last->op_ns[OP_UPDATE][MB_FULL];
                sums[tied][6] = last->op_ns[OP_W][MB_FULL];
            }
            const int64_t copy = K > 1 ? 4000 : 0; /* one rank holds both: no copy */
            assert_int_equal(sums[1][0] - sums[0][0], frozen ? 0 : copy);
            assert_int_equal(sums[1][1] - sums[0][1], frozen ? copy : 0);
            assert_int_equal(sums[1][2] - sums[0][2],
                             frozen ? 0 : copy / 4 * c.plan.optim_bytes_per_param);
            /* Table and head have an accumulator each; where they are apart, both of them both. */
            assert_int_equal(sums[1][3] - sums[0][3], frozen ? 0 : 4000);
            assert_int_equal(sums[1][4] - sums[0][4], frozen ? 0 : K > 1 ? 3 * 4000 : 4000);
            const struct device *device =
                &c.cluster.devices[c.plan.device[c.workload.rank_of_stage[K - 1]]];
            const int64_t update = item_time(&c, 0, PASS_UPDATE, 1, device, STASH_FAR);
            assert_true(update > 0);
            assert_int_equal(sums[1][5] - sums[0][5], frozen || K == 1 ? 0 : update);
            /* The head is the table's product alone, of which a frozen table leaves no gradient. */
            const int64_t table =
                item_time(&c, c.model.num_items - 1, PASS_BWD_WEIGHT, c.plan.microbatches.size,
                          device, distance_of(&c, K - 1));
            assert_true(table > 0);
            assert_int_equal(sums[0][6] - sums[1][6], frozen ? table : 0);
            plan_case_clear(&c);
        }
    }
}

/* Under freeze.head alone a plan with a frozen prefix is that of the model whose head has the table. */
static void workload_build__takes_the_model_of_its_frozen_layers(void **state)
{
    (void)state;
    uint64_t seed = 61;
    for (int frozen = 0; frozen < 2; frozen++) {
        struct plan_case c = {0};
        struct err err = {0};
        int64_t optim[3];
        do {
            plan_case_clear(&c);
            plan_case_random(&c, &seed, 2, 3);
        } while (c.plan.num_stages != 2 || c.plan.optim_bytes_per_param == 0 ||
                 (c.plan.frozen == FROZEN_SPREAD) != (frozen == 1) ||
                 (frozen == 0 && c.plan.frozen != FROZEN_NONE));
        c.model.items[c.model.num_items - 1].tied_params = 1000;
        for (int i = 0; i < 3; i++) { /* shared, alone, and with a table from the start */
            if (i == 1)
                assert_int_equal(model_let_head_go_on(&c.model, &err), OK);
            if (i == 2) {
                model_drop_untied(&c.model);
                model_untie(&c.model);
            }
            case_must(plan_case_lower(&c, &err), &err);
            optim[i] = c.workload.stages[1].optim_bytes;
        }
        assert_int_equal(optim[1], optim[frozen ? 2 : 0]);
        assert_int_equal(optim[2] - optim[0], frozen ? 1000 * c.plan.optim_bytes_per_param
                                                     : 0); /* a copy has state, too */
        plan_case_clear(&c);
    }
}

static void workload_build__waits_with_the_norm_for_the_slowest_replica(void **state)
{
    (void)state;
    uint64_t seed = 71;
    int late = 0;
    for (int round = 0; round < 200; round++) {
        struct plan_case c = {0};
        struct err err = {0};
        plan_case_random(&c, &seed, 4, 3);
        const struct plan *p = &c.plan;
        const int K = p->num_ranks, R = p->num_pipelines;
        c.plan.clip = true;
        c.cost.norm_ns_per_byte = 3;
        c.cluster.link_latency_ns = c.cluster.uplink_latency_ns = 0;
        c.model.items[c.model.num_items - 1].tied_params = 1000; /* another item's, counted there */
        case_must(plan_case_lower(&c, &err), &err);
        double most = 0, first = 0;
        for (int i = 0; i < K * R; i++) {
            double bytes = 0;
            for (int item = frozen_items(&c); item < c.model.num_items; item++) {
                const int rank = c.workload.rank_of_stage[stage_of(p, item)];
                bytes += rank == i % K ? 4 * (double)c.model.items[item].params : 0;
            }
            const double ns = 3 * bytes / c.cluster.devices[p->device[i]].speed;
            most = ns > most ? ns : most;
            first = i < K ? most : first;
        }
        assert_int_equal(c.workload.norm_ns, (int64_t)(most + 0.5));
        late += most > first;
        plan_case_clear(&c);
    }
    assert_true(late > 10);
}

static void workload_build__refuses_sums_that_overflow(void **state)
{
    (void)state;
    for (int what = 0; what < 8; what++) {
        uint64_t seed = 43;
        struct plan_case c = {0};
        struct err err = {0};
        do { /* with messages */
            plan_case_clear(&c);
            plan_case_random(&c, &seed, 4, 5);
        } while (c.plan.num_ranks == 1);
        const int64_t huge = INT64_MAX / 2;
        struct item *item = &c.model.items[c.model.num_items - 1];
        if (what == 0) {
            item->fwd_ns = huge;
        } else if (what == 1) {
            item->bwd_weight_ns = (int64_t)1 << 59; /* fits once, not M times */
        } else if (what == 2) {
            item->params = huge;
        } else if (what == 3) {
            item->stash_bytes = huge;
            c.model.per_microbatch = false;
        } else if (what == 4) {
            item->fwd_ns = -1;
        } else if (what == 5) { /* each message fits, all of them do not */
            const int64_t most = STEP_NS_MAX / c.plan.microbatches.count - ((int64_t)1 << 40);
            c.cluster.link_latency_ns = c.cluster.uplink_latency_ns = most;
        } else if (what == 6) { /* one launch fits, those of a step do not */
            c.cluster.host_blocking = false;
            c.cluster.host_op_ns = STEP_NS_MAX / 16;
        } else {
            c.model.items[c.plan.first_item[c.plan.num_stages - 1] - 1].act_bytes = huge;
            c.model.per_microbatch = false;
        }
        if (plan_case_lower(&c, &err) != ERR_INPUT)
            fail_msg("case %d was taken", what);
        assert_true(strlen(err.msg) > 0);
        assert_null(c.full.ranks);
        plan_case_clear(&c);
    }
}

/* Work space that every op needs while it runs is a part of every peak. */
static void schedule_memory__counts_the_work_space_of_passes(void **state)
{
    enum { WORK = 12345 };
    uint64_t seed = 17;
    (void)state;
    for (int n = 0; n < 50; n++) {
        struct plan_case c = {0};
        struct err err = {0};
        int64_t before[8], after[8];
        plan_case_random(&c, &seed, 4, 5);
        case_must(plan_case_lower(&c, &err), &err);
        case_must(schedule_memory(&c.full, &c.workload, before, &err), &err);
        for (int s = 0; s < c.full.num_stages; s++)
            for (int back = 0; back < 2; back++)
                for (int mb = 0; mb < MB_SIZES; mb++)
                    c.workload.stages[s].work_bytes[back][mb] += WORK;
        case_must(schedule_memory(&c.full, &c.workload, after, &err), &err);
        for (int k = 0; k < c.full.num_ranks; k++)
            assert_int_equal(after[k], before[k] + WORK);
        plan_case_clear(&c);
    }
}

/* Everything from a plan to its time, memory and CSV and back. */
static enum status whole_way(struct plan_case *c, struct err *err)
{
    struct step_time time = {0};
    struct schedule copy = {0}, back = {0};
    int64_t memory[8];
    char *csv = NULL;
    enum status rc = plan_case_lower(c, err);
    if (rc == OK)
        rc = schedule_time(&c->full, &c->workload, &c->plan, &time, err);
    if (rc == OK)
        rc = schedule_memory(&c->full, &c->workload, memory, err);
    if (rc == OK)
        rc = schedule_copy(&c->full, &copy, err);
    if (rc == OK)
        rc = schedule_to_csv(&copy, &csv, err);
    if (rc == OK)
        rc = schedule_from_csv(csv, "csv", &back, err);
    free(csv);
    schedule_clear(&copy);
    schedule_clear(&back);
    step_time_clear(&time);
    return rc;
}

static void plan_lower__survives_the_failure_of_any_allocation(void **state)
{
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    uint64_t seed = 47;
    for (int round = 0; round < 4; round++) {
        struct plan_case c = {0};
        plan_case_random(&c, &seed, 3, 3);
        int n = 0;
        for (;; n++) {
            struct err err = {0};
            workload_clear(&c.workload);
            schedule_clear(&c.full);
            fail_malloc_after(n);
            const enum status rc = whole_way(&c, &err);
            if (fail_malloc_done()) {
                assert_int_equal(rc, OK);
                break;
            }
            assert_int_equal(rc, ERR_NOMEM);
            assert_int_equal(err.status, ERR_NOMEM);
        }
        assert_true(n > 50);
        plan_case_clear(&c);
    }
}

static void schedule_auto__survives_the_failure_of_any_allocation(void **state)
{
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    uint64_t seed = 53;
    struct plan_case c = {0};
    struct schedule found = {0};
    plan_case_random(&c, &seed, 2, 2);
    for (int n = 0; n < 4000; n += n < 300 ? 1 : 97) {
        struct err err = {0};
        fail_malloc_after(n);
        enum status rc = schedule_auto(&(struct setting){&c.model, &c.cluster, &c.cost}, &c.plan,
                                       &c.workload, &found, &err);
        if (fail_malloc_done())
            break;
        assert_int_equal(rc, ERR_NOMEM);
        assert_null(found.ranks);
        assert_null(c.workload.stages);
    }
    schedule_clear(&found);
    plan_case_clear(&c);
}

/* Move one boundary of the cut by an item, if no stage becomes empty. */
static void move_boundary(struct plan *p, uint64_t *seed)
{
    const int s = p->num_stages > 1 ? 1 + (int)case_below(seed, p->num_stages - 1) : 0,
              by = case_below(seed, 2) ? 1 : -1;
    if (s > 0 && p->first_item[s] + by > p->first_item[s - 1] &&
        p->first_item[s] + by < p->first_item[s + 1])
        p->first_item[s] += by;
}

static void workload_build__takes_costs_of_earlier_cuts_for_those_of_this_one(void **state)
{
    (void)state;
    uint64_t seed = 61;
    for (int n = 0; n < 60; n++) {
        struct plan_case c = {0};
        struct stage_memo *memo = stage_memo_new();
        plan_case_random(&c, &seed, 4, 3);
        const struct setting setting = {&c.model, &c.cluster, &c.cost};
        for (int cut = 0; cut < 8; cut++) {
            struct workload plain = {0}, kept = {0};
            if (c.plan.num_frozen_layers == 0)
                move_boundary(&c.plan, &seed);
            assert_int_equal(workload_build(&setting, &c.plan, NULL, &plain, NULL), OK);
            assert_int_equal(workload_build_at(&setting, &c.plan, NULL, NULL, memo, &kept, NULL),
                             OK);
            const size_t stages = (size_t)plain.num_classes * (size_t)plain.num_stages;
            assert_memory_equal(plain.stages, kept.stages, stages * sizeof *plain.stages);
            assert_int_equal(plain.num_buckets, kept.num_buckets);
            assert_memory_equal(plain.buckets, kept.buckets,
                                (size_t)plain.num_buckets * sizeof *plain.buckets);
            assert_int_equal(plain.extrapolated, kept.extrapolated);
            workload_clear(&plain);
            workload_clear(&kept);
        }
        stage_memo_free(memo);
        plan_case_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workload_build__sums_the_items_of_each_stage),
        cmocka_unit_test(workload_build__flags_messages_of_sizes_that_were_not_measured),
        cmocka_unit_test(workload_build__carries_every_skip_once_when_it_crosses),
        cmocka_unit_test(workload_build__cuts_gradients_into_buckets_from_the_end),
        cmocka_unit_test(workload_build__gives_a_host_s_buckets_no_lead),
        cmocka_unit_test(plan_lower__holds_every_op_of_the_plan),
        cmocka_unit_test(plan_lower__takes_a_custom_list_and_its_ranks),
        cmocka_unit_test(plan_lower__refuses_a_custom_list_that_is_wrong),
        cmocka_unit_test(workload_build__keeps_a_copy_of_a_tied_table_where_its_owner_is_not),
        cmocka_unit_test(workload_build__takes_the_model_of_its_frozen_layers),
        cmocka_unit_test(workload_build__waits_with_the_norm_for_the_slowest_replica),
        cmocka_unit_test(workload_build__refuses_sums_that_overflow),
        cmocka_unit_test(schedule_memory__counts_the_work_space_of_passes),
        cmocka_unit_test(workload_build__takes_costs_of_earlier_cuts_for_those_of_this_one),
        cmocka_unit_test(plan_lower__survives_the_failure_of_any_allocation),
        cmocka_unit_test(schedule_auto__survives_the_failure_of_any_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
