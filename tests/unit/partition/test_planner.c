/* The planner against brute force over everything, its bounds against every cut, the released rules
 * against the goldens of the specification.
 * repeated: yes */
#include "partition/plan/autodp.h"
#include "partition/plan/balance.h"
#include "partition/plan/cut.h"
#include "partition/step/cache_rule.h"
#include "partition/step/lower.h"
#include "partition/search/plan_for.h"
#include "partition/search/planner.h"
#include "partition/search/planner_bound.h"
#include "partition/search/planner_search.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "partition/step/traffic.h"
#include "partition/step/workload.h"
#include "tests/unit/near_case.h"
#include "tests/unit/test.h"

struct instance {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct planner_problem problem;
    struct planner_options options;
    bool layers_in_chunks; /* brute force runs layers of several chunks again, too */
};

/* Updates as a profile has them: longer for optimizers of more states. */
static enum status update_by_states(const void *ctx, const struct model *model, int item,
                                    enum pass pass, int64_t samples, const struct device *device,
                                    int64_t *ns, bool *extrapolated, struct err *err)
{
    struct cost constant;
    cost_constant(&constant);
    enum status rc =
        constant.item_ns(ctx, model, item, pass, samples, device, ns, extrapolated, err);
    if (pass == PASS_UPDATE)
        *ns *= samples;
    return rc;
}

static void instance_random(struct instance *in, int most_items)
{
    memset(in, 0, sizeof *in);
    struct item items[16] = {0};
    const int n = (int)random_between(2, most_items);
    for (int i = 0; i < n; i++) {
        snprintf(items[i].name, sizeof items[i].name, "i%d", i);
        items[i].kind = ITEM_OPAQUE;
        items[i].layer = i;
        items[i].params = random_between(0, 3) ? random_between(1, 3000) : 0;
        items[i].act_bytes = random_between(0, 4000);
        items[i].stash_bytes = random_between(0, 6000);
        items[i].fwd_ns = random_between(0, 4000);
        items[i].bwd_input_ns = random_between(0, 4000);
        items[i].bwd_weight_ns = random_between(0, 4000);
        items[i].bwd_rest_ns = random_between(0, items[i].bwd_input_ns);
        items[i].fwd_stash_ns = items[i].fwd_ns * (i % 4) / 4;
        items[i].update_ns = random_between(0, 3000);
    }
    /* One roll a statement: a case is the same whatever compiler orders its arguments. */
    const int num_nodes = (int)random_between(1, 2), per_node = (int)random_between(1, 3);
    struct err err = {0};
    assert_int_equal(
        model_explicit("random", items, n, NULL, 0, random_between(0, 3) == 0, &in->model, &err),
        OK);
    in->model.num_layers = n;
    assert_int_equal(cluster_grid(num_nodes, per_node, &in->cluster, &err), OK);
    in->cluster.link_latency_ns = random_between(0, 800);
    in->cluster.uplink_latency_ns = random_between(0, 2000);
    in->cluster.host_op_ns = random_between(0, 3) ? 0 : random_between(1, 1500);
    in->cluster.host_blocking = random_between(0, 3) == 0;
    in->cluster.context_bytes = random_between(0, 1000);
    bool limited = random_between(0, 2) > 0;
    bool unequal = random_between(0, 3) == 0;
    for (int d = 0; d < in->cluster.num_devices; d++) {
        struct device *device = &in->cluster.devices[d];
        device->link_bytes_per_s = (double)random_between(1, 8) * 1e9;
        device->mem_bytes = limited ? random_between(30000, 140000) : INT64_MAX;
        device->speed = unequal ? (double)random_between(1, 4) / 2 : 1;
        if (!unequal && d > 0 && random_between(0, 3)) { /* like the device before it */
            device->link_bytes_per_s = device[-1].link_bytes_per_s;
            device->mem_bytes = device[-1].mem_bytes;
        }
    }
    cost_constant(&in->cost);
    in->cost.op_overhead_ns = random_between(0, 2) ? 0 : random_between(1, 500);
    in->problem = (struct planner_problem){.setting.model = &in->model,
                                           .setting.cluster = &in->cluster,
                                           .setting.cost = &in->cost,
                                           .optim_bytes_per_param = 4};
    in->problem.batch_mode = random_between(0, 2) ? BATCH_PER_PIPELINE : BATCH_GLOBAL;
    in->problem.batch = random_between(1, 6);
    in->problem.num_frozen_layers = random_between(0, 2) ? 0 : (int)random_between(1, n - 1);
    in->problem.bucket_bytes = random_between(0, 1) ? 0 : 5000;
    in->problem.clip = random_between(0, 1);
    in->options = (struct planner_options){
        .schedules = PLANNER_ALL_SCHEDULES, .recompute_auto = true, .frozen_auto = true};
    if (in->problem.num_frozen_layers > 0 && random_between(0, 1))
        in->problem.cache =
            (struct planner_cache){.use = random_between(0, 3) ? CACHE_ALLOWED : CACHE_WANTED,
                                   .filled = random_between(0, 2) == 0};
    in->problem.cache.level = (int)random_between(0, in->problem.num_frozen_layers);
    in->problem.cache.room = (double)random_between(0, 4) / 4;
    in->problem.cache.whole = random_between(0, 1);
    in->problem.cache.epochs = random_between(1, 5);
    in->problem.cache.views = random_between(1, 3);
    in->cost.cache_write_ns = random_between(0, 900);
    in->cost.cache_read_ns = random_between(0, 2000);
    if (random_between(0, 2) == 0)
        in->cost.item_ns = update_by_states;
    in->cost.near_ns_per_byte = random_between(0, 2) ? NULL : near_case;
    in->model.items[n - 1].tied_params = random_between(0, 2) ? 0 : random_between(1, 4000);
    in->model.items[0].params += in->model.items[n - 1].tied_params;
    in->model.vocab =
        (int)in->model.items[n - 1].tied_params; /* so model_weight_ns() has a table */
}

static void instance_clear(struct instance *in)
{
    model_clear(&in->model);
    cluster_clear(&in->cluster);
}

/* A judge that finds some candidates slower than they seem, whatever their cut. */
static enum status some_slower(void *ctx, const struct plan *plan, int64_t *step_ns,
                               struct err *err)
{
    (void)ctx, (void)err;
    const int mix = 7 * plan->num_ranks + 5 * plan->num_pipelines + 3 * (int)plan->schedule;
    *step_ns = plan->step_ns * (4 + mix % 9) / 4;
    return OK;
}

struct brute {
    double rate; /* the best's, samples per second; 0: none yet */
    int64_t plans, fitting;
    int64_t bound_broken; /* cuts whose bound exceeds their step */
    int64_t mixed;        /* plans that search_mixed_bound() bounded */
    struct search search; /* for its places and the bounds of the family at hand */
};

/* The average fill time of a step under a plan that reads the cache, epoch by epoch. */
static double fill_ns(const struct instance *in, const struct plan *plan)
{
    const struct planner_cache *cache = &in->problem.cache;
    double sum = 0;
    int64_t extra = 0;
    if (plan->frozen != FROZEN_CACHED || cache->filled)
        return 0;
    assert_int_equal(cache_fill_extra(&in->problem.setting, plan, cache->level, &extra, NULL), OK);
    const double has = cache_share(cache->room, plan->microbatches.size, cache->whole);
    for (int64_t e = 0; e < cache->epochs; e++)
        sum += (double)extra * (e < cache->views ? 1 : 1 - has);
    return sum / (double)cache->epochs;
}

/* Whether the planner counts a plan with this placement and these micro-batches among its own. */
static bool placement_exists(const struct instance *in, int frozen, struct microbatches mb)
{
    const enum cache_use use = in->problem.cache.use;
    if (in->problem.num_frozen_layers == 0)
        return true;
    if (frozen != FROZEN_CACHED)
        return use != CACHE_WANTED;
    return use != CACHE_UNUSED && (in->options.num_microbatches != AUTO || mb.size == mb.last_size);
}

/* Hold the bound from the types of the ranks against a plan of the family that search_mix() saw, if
 * there is one. */
static void brute_mixed(struct brute *brute, const struct plan *plan, int64_t step_ns)
{
    double bound_ns = 0;
    if (!brute->search.mixed)
        return;
    assert_int_equal(
        search_mixed_bound(&brute->search, &plan->microbatches,
                           bound_again_of(plan->recompute, recompute_by_stage(plan->recompute)),
                           bound_again_of(plan->recompute, recompute_every(plan->recompute)),
                           frozen_outside(plan->frozen) ? brute->search.table.num_frozen_items : 0,
                           &bound_ns),
        OK);
    assert_true(bound_ns <= (double)step_ns);
    brute->mixed += bound_ns > 0;
}

/* Time and weigh one full plan, and hold the bounds against it. */
static void brute_plan(const struct instance *in, struct plan *plan, struct bound_table *table,
                       struct brute *brute)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    int64_t memory[16];
    brute->plans++;
    if (plan_lower(&(struct setting){&in->model, &in->cluster, &in->cost}, plan, &workload, &full,
                   NULL) != OK)
        return;
    assert_int_equal(schedule_memory(&full, &workload, memory, NULL), OK);
    assert_int_equal(schedule_time(&full, &workload, plan, &time, NULL), OK);
    bool fits = true;
    for (int i = 0; i < plan->num_ranks * plan->num_pipelines; i++)
        fits &= memory[i % plan->num_ranks] <= in->cluster.devices[plan->device[i]].mem_bytes;
    int64_t traffic_ns, step_ns = time.step_ns > 0 ? time.step_ns : 1;
    assert_int_equal(workload_traffic_ns(&workload, plan, &traffic_ns, NULL), OK);
    step_ns = traffic_ns > step_ns ? traffic_ns : step_ns;
    if (fits) {
        int64_t samples = plan->num_pipelines * plan->batch;
        brute->fitting++;
        plan->step_ns = step_ns;
        if (in->options.judge.step_ns)
            assert_int_equal(in->options.judge.step_ns(NULL, plan, &step_ns, NULL), OK);
        brute->rate =
            fmax(brute->rate, (double)samples / ((double)step_ns + fill_ns(in, plan)) * 1e9);
        struct bound_family family = {0};
        struct bound_shape shape = {0};
        int cut[32];
        int64_t bound, over[16];
        assert_int_equal(bound_family_init(&family, table, plan->num_ranks, plan->num_pipelines,
                                           plan->device, NULL),
                         OK);
        assert_int_equal(bound_shape_init(&shape, table, &family, plan, NULL), OK);
        assert_true(bound_average_ns(&shape) <= step_ns);
        assert_true(bound_of_cut(&shape, plan->first_item) <= step_ns);
        assert_true(bound_cut_fits(&shape, plan->first_item, over));
        assert_true(bound_solve(&shape, step_ns, &bound, cut, NULL));
        assert_true(bound <= step_ns);
        brute_mixed(brute, plan, step_ns);
        bound_shape_clear(&shape);
        bound_family_clear(&family);
    }
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
}

/* All counts of layers that run again, by recursion; an item is a layer here. */
static void brute_layers(const struct instance *in, struct plan *plan, int s,
                         struct bound_table *table, struct brute *brute)
{
    if (plan->recompute != RECOMPUTE_LAYER || s == plan->num_stages) {
        brute_plan(in, plan, table, brute);
        return;
    }
    for (int n = 0; n <= plan->first_item[s + 1] - plan->first_item[s]; n++) {
        plan->recompute_layers[s] = n;
        brute_layers(in, plan, s + 1, table, brute);
    }
}

/* All cuts, by recursion. */
static void brute_cuts(const struct instance *in, struct plan *plan, int s,
                       struct bound_table *table, struct brute *brute)
{
    if (s == plan->num_stages) {
        plan->first_item[s] = in->model.num_items;
        brute_layers(in, plan, 0, table, brute);
        return;
    }
    for (int a = plan->first_item[s - 1] + 1; a <= in->model.num_items - (plan->num_stages - s);
         a++) {
        plan->first_item[s] = a;
        brute_cuts(in, plan, s + 1, table, brute);
    }
}

static bool search_kind(const struct instance *in, enum schedule_kind kind)
{
    return in->options.schedules >> kind & 1;
}

/* Whether the planner tries a recompute mode. */
static bool mode_exists(const struct instance *in, int mode, enum schedule_kind kind, int chunks)
{
    const bool inside = in->options.recompute_inside;
    if (mode == RECOMPUTE_LAYER)
        return inside && (chunks == 1 || in->layers_in_chunks) && !schedule_splits(kind);
    if (mode == RECOMPUTE_STAGE || recompute_early((enum recompute_mode)mode))
        return inside == (mode == RECOMPUTE_STAGE);
    return mode != RECOMPUTE_SELECTIVE; /* items without attention */
}

static void brute_force(const struct instance *in, struct brute *brute)
{
    static const struct {
        enum schedule_kind kind;
        int chunks;
    } kinds[] = {
        {SCHEDULE_GPIPE,         1},
        {SCHEDULE_1F1B,          1},
        {SCHEDULE_INTERLEAVED,   2},
        {SCHEDULE_INTERLEAVED,   3},
        {SCHEDULE_INTERLEAVED,   4},
        {SCHEDULE_ZB_H1,         1},
        {SCHEDULE_ZB_H2,         1},
        {SCHEDULE_ZB_V,          2},
        {SCHEDULE_DUALPIPE_V,    2},
        {SCHEDULE_EAGER_1F1B,    1},
        {SCHEDULE_BREADTH_FIRST, 2},
        {SCHEDULE_BREADTH_FIRST, 3},
        {SCHEDULE_BREADTH_FIRST, 4},
        {SCHEDULE_V_HALF,        2},
        {SCHEDULE_V_MIN,         2},
    };
    static struct search_common no_others;
    struct search *search = &brute->search;
    assert_int_equal(search_init(search, &no_others, &in->problem, &in->options, NULL), OK);
    const int D = in->cluster.num_devices, F = in->problem.num_frozen_layers;
    for (int K = 1; K <= D && K <= in->model.num_items; K++)
        for (int R = 1; K * R <= D; R++) {
            const int *place;
            int num_places;
            assert_int_equal(rank_places_of(search->places, K, R, &place, &num_places, NULL), OK);
            for (int i = 0; i < num_places; i++) {
                const struct node family = {.num_ranks = K, .num_pipelines = R, .place = place[i]};
                assert_int_equal(search_mix(search, &family), OK);
                for (int wanted = 1; wanted <= 6 * K || wanted <= in->problem.batch; wanted++)
                    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
                        for (int f = F ? FROZEN_FIRST : FROZEN_NONE;
                             f <= (F ? FROZEN_CACHED : FROZEN_NONE); f++)
                            for (int rec = 0; rec < RECOMPUTE_MODE_COUNT; rec++) {
                                if (!search_kind(in, kinds[k].kind) ||
                                    (in->options.layout.at.shard != SHARD_NONE && R == 1))
                                    continue;
                                if (!mode_exists(in, rec, kinds[k].kind, kinds[k].chunks))
                                    continue;
                                int64_t B = in->problem.batch;
                                if (in->problem.batch_mode == BATCH_GLOBAL) {
                                    if (B % R != 0)
                                        continue;
                                    B /= R;
                                }
                                if (wanted > B ||
                                    ((wanted < K || wanted > 6 * K) && B % wanted != 0) ||
                                    !placement_exists(in, f, microbatches_of(B, wanted)))
                                    continue;
                                if (K == 1 && kinds[k].kind != SCHEDULE_1F1B)
                                    continue;
                                int cut[8] = {0}, device[8], layers[8] = {0};
                                struct plan plan = {.num_ranks = K,
                                                    .num_pipelines = R,
                                                    .chunks = kinds[k].chunks,
                                                    .num_stages = K * kinds[k].chunks,
                                                    .batch = B,
                                                    .microbatches = microbatches_of(B, wanted),
                                                    .schedule = kinds[k].kind,
                                                    .num_frozen_layers = F,
                                                    .frozen = (enum frozen_placement)f,
                                                    .recompute = (enum recompute_mode)rec,
                                                    .layout.shard = in->options.layout.at.shard,
                                                    .recompute_layers = layers,
                                                    .first_item = cut,
                                                    .device = device,
                                                    .bucket_bytes = in->problem.bucket_bytes,
                                                    .clip = in->problem.clip,
                                                    .optim_bytes_per_param = 4};
                                if (f == FROZEN_FIRST || f == FROZEN_CACHED)
                                    cut[0] = model_frozen_items(&in->model, F);
                                if (plan.num_stages > in->model.num_items - cut[0])
                                    continue;
                                assert_int_equal(search_map(search, &family, device, NULL), OK);
                                brute_cuts(in, &plan, 1, &search->table, brute);
                            }
            }
        }
    search_clear(search);
}

/* Layers that run again, any number in each stage, and what replicas divide. */
static void planner_solve__equals_brute_force_over_layers_and_shards(void **state)
{
    (void)state;
    int solved = 0, again = 0;
    int first;
    const int end = test_trials(40, 160, &first), trials = end - first;
    for (int trial = first; trial < end; trial++) {
        random_state = (uint64_t)trial * 99991 + 7;
        struct instance in;
        struct brute brute = {0};
        struct planner_result result = {0};
        struct err err = {0};
        instance_random(&in, 5);
        for (int i = 0; i < in.model.num_items; i++) {
            in.model.items[i].stash_bytes += 9000; /* a stash holds the item's input */
            in.model.items[i].fwd_stash_ns = 0;    /* see recompute_fit.h */
        }
        in.cost.near_ns_per_byte = NULL; /* less stash makes no pass faster */
        in.options.schedules = 1u << SCHEDULE_GPIPE | 1u << SCHEDULE_1F1B | 1u << SCHEDULE_ZB_H1;
        in.options.recompute_inside = true;
        in.options.layout.at.shard = in.problem.layout.shard =
            (enum shard_mode)(trial % SHARD_MODE_COUNT);
        brute_force(&in, &brute);
        const enum status rc = planner_solve(&in.problem, &in.options, &result, &err);
        assert_int_equal(rc, brute.fitting == 0 ? ERR_INFEASIBLE : OK);
        if (rc == OK && fabs(result.samples_per_s - brute.rate) > 1e-12 * brute.rate)
            fail_msg("trial %d: planner %.17g samples/s, brute force %.17g", trial,
                     result.samples_per_s, brute.rate);
        for (int s = 0; rc == OK && result.plan.recompute_layers && s < result.plan.num_stages; s++)
            again += result.plan.recompute_layers[s];
        solved += rc == OK;
        planner_result_clear(&result);
        instance_clear(&in);
    }
    assert_true(solved > trials / 3 && again > trials / 48);
}

/* Forwards are most of the work, stash is most of the memory and messages take next to nothing, so a
 * bound that counts a little too much breaks. Two devices, and layers of one or two items. */
static void instance_tight(struct instance *in)
{
    memset(in, 0, sizeof *in);
    struct item items[8] = {0};
    const int n = (int)random_between(4, 6), width = (int)random_between(1, 2),
              uneven = (int)random_between(0, 2);
    for (int i = 0; i < n; i++)
        items[i] =
            (struct item){.kind = ITEM_OPAQUE,
                          .layer = i / width,
                          .params = uneven == 1 && i % 3 == 0 ? random_between(500, 1500) : 50,
                          .act_bytes = 10,
                          .stash_bytes = uneven == 2   ? (i < n / 2 ? 10 : 12000)
                                         : uneven == 1 ? random_between(4000, 8000)
                                                       : 6000,
                          .fwd_ns = uneven == 1 ? random_between(2000, 9000) : 8000,
                          .bwd_input_ns = 10,
                          .bwd_weight_ns = 10};
    assert_int_equal(model_explicit("tight", items, n, NULL, 0, false, &in->model, NULL), OK);
    in->model.num_layers = (n + width - 1) / width;
    assert_int_equal(cluster_grid(1, 2, &in->cluster, NULL), OK);
    in->cluster.link_latency_ns = 0;
    for (int d = 0; d < 2; d++) {
        in->cluster.devices[d].link_bytes_per_s = 1e12;
        in->cluster.devices[d].mem_bytes = random_between(20000, 60000);
    }
    cost_constant(&in->cost);
    in->problem = (struct planner_problem){.setting.model = &in->model,
                                           .setting.cluster = &in->cluster,
                                           .setting.cost = &in->cost,
                                           .batch = random_between(2, 6),
                                           .optim_bytes_per_param = 4};
    in->options = (struct planner_options){.recompute_auto = true, .recompute_inside = true};
    in->layers_in_chunks = true;
}

/* Any number of layers runs again in each chunk: brute_plan() holds the bounds against each plan
 * that fits. The planner shares the layers of a rank out by a rule, so its plan may be slower than
 * the best of these. */
static void bound_of_cut__holds_when_layers_of_chunks_run_again(void **state)
{
    (void)state;
    int64_t fitting = 0;
    for (int trial = 0; trial < 120; trial++) {
        random_state = (uint64_t)trial * 77977 + 3;
        struct instance in;
        struct brute brute = {0};
        const bool tight = trial % 2;
        if (tight)
            instance_tight(&in);
        else
            instance_random(&in, 5);
        in.layers_in_chunks = in.options.recompute_inside = true;
        in.options.schedules = 1u << (trial % 3 == 0   ? SCHEDULE_1F1B
                                      : trial % 3 == 1 ? SCHEDULE_INTERLEAVED
                                                       : SCHEDULE_BREADTH_FIRST);
        for (int i = 0; !tight && i < in.model.num_items; i++)
            in.model.items[i].stash_bytes += 9000;
        brute_force(&in, &brute);
        fitting += brute.fitting;
        instance_clear(&in);
    }
    assert_true(fitting > 10000);
}

/* On one device the bound is the step: work, and the layers that its memory forces to run again. */
static void planner_solve__bound_is_the_step_when_one_device_runs_layers_again(void **state)
{
    (void)state;
    enum { LAYERS = 5 };
    for (int again = 0; again < LAYERS; again++) {
        struct instance in;
        memset(&in, 0, sizeof in);
        struct item items[2 * LAYERS] = {0};
        for (int i = 0; i < 2 * LAYERS; i++)
            items[i] = (struct item){.kind = ITEM_OPAQUE,
                                     .layer = i / 2,
                                     .act_bytes = 100,
                                     .stash_bytes = 1000,
                                     .fwd_ns = 300 + i % 2,
                                     .bwd_input_ns = 400,
                                     .bwd_weight_ns = 500};
        assert_int_equal(
            model_explicit("equal", items, 2 * LAYERS, NULL, 0, false, &in.model, NULL), OK);
        in.model.num_layers = LAYERS;
        assert_int_equal(cluster_grid(1, 1, &in.cluster, NULL), OK);
        /* A layer keeps 2,000 bytes, or 100 if it runs again. The first one has no input to keep.
         * Layers run again when the others have freed their stash. */
        in.cluster.devices[0].mem_bytes =
            2000 * (LAYERS - again) + 100 * (again > 0 ? again - 1 : 0);
        cost_constant(&in.cost);
        in.problem = (struct planner_problem){.setting.model = &in.model,
                                              .setting.cluster = &in.cluster,
                                              .setting.cost = &in.cost,
                                              .batch = 4};
        in.options = (struct planner_options){.num_microbatches = 4,
                                              .schedules = 1u << SCHEDULE_1F1B,
                                              .recompute = RECOMPUTE_LAYER,
                                              .recompute_layers = AUTO};
        struct planner_result result = {0};
        struct err err = {0};
        if (planner_solve(&in.problem, &in.options, &result, &err) != OK)
            fail_msg("%d layers: %s", again, err.msg);
        assert_int_equal(result.plan.recompute_layers[0], again);
        assert_int_equal(result.plan.step_ns, 4 * (LAYERS * (601 + 1800) + again * 601));
        assert_int_equal(result.lower_bound_ns, result.plan.step_ns);
        planner_result_clear(&result);
        instance_clear(&in);
    }
}

static void planner_solve__equals_brute_force_over_everything_when_small(void **state)
{
    (void)state;
    int solved = 0, infeasible = 0;
    int64_t plans = 0, mixed = 0;
    int first;
    const int end = test_trials(80, 330, &first), trials = end - first;
    for (int trial = first; trial < end; trial++) {
        random_state = (uint64_t)trial * 77777 + 5;
        struct instance in;
        struct brute brute = {0};
        struct planner_result result = {0};
        struct err err = {0};
        instance_random(&in, 5);
        for (int d = 0; trial % 4 == 1 && d < in.cluster.num_devices; d++)
            in.cluster.devices[d].link_bytes_per_s /= 20;
        for (int n = 0; trial % 4 == 1 && n < in.cluster.num_nodes; n++)
            in.cluster.uplink_bytes_per_s[n] = 2e8;
        in.options.judge.step_ns = trial % 3 == 0 ? some_slower : NULL;
        brute_force(&in, &brute);
        plans += brute.plans;
        mixed += brute.mixed;
        enum status rc = planner_solve(&in.problem, &in.options, &result, &err);
        if (brute.fitting == 0) {
            assert_int_equal(rc, ERR_INFEASIBLE);
            assert_true(err.msg[0] != '\0');
            infeasible++;
        } else {
            if (rc != OK)
                fail_msg("trial %d: %s", trial, err.msg);
            const struct plan *plan = &result.plan;
            if (fabs(result.samples_per_s - brute.rate) > 1e-12 * brute.rate)
                fail_msg("trial %d: planner %.17g samples/s, brute force %.17g", trial,
                         result.samples_per_s, brute.rate);
            assert_int_equal(plan_check(plan, &in.model, &in.cluster, NULL), OK);
            assert_true(result.lower_bound_ns >= 1 && result.lower_bound_ns <= plan->step_ns);
            assert_true(result.gap >= 0);
            for (int i = 0; i < result.num_lengths; i++) {
                const struct planner_length *length = &result.lengths[i];
                assert_true(length->samples_per_s <= result.samples_per_s);
                if (length->verdict == PLANNER_CHOSEN)
                    assert_true(length->samples_per_s == result.samples_per_s);
            }
            assert_true(result.candidates > 0 && result.searched.judged > 0);
            solved++;
        }
        planner_result_clear(&result);
        planner_result_clear(&result);
        instance_clear(&in);
    }
    assert_true(solved > trials * 3 / 5 && infeasible > trials / 50);
    assert_true(plans > 10000 && mixed > 10000);
}

/* One device more never makes the plan slower, and every plan fits the devices that it names. */
static void planner_solve__keeps_the_plans_of_fewer_devices(void **state)
{
    (void)state;
    int compared = 0, idle = 0;
    for (int trial = 0; trial < 150; trial++) {
        random_state = (uint64_t)trial * 77777 + 5;
        struct instance in;
        struct planner_result more = {0}, fewer = {0};
        instance_random(&in, 5);
        for (int d = 0; d < in.cluster.num_devices; d++)
            in.cluster.devices[d].speed = (double)random_between(1, 4) / 2;
        in.problem.num_frozen_layers = 0;
        in.problem.cache.use = CACHE_UNUSED;
        in.options.schedules = 1u << SCHEDULE_GPIPE | 1u << SCHEDULE_1F1B;
        in.options.recompute_auto = false;
        const enum status rc = planner_solve(&in.problem, &in.options, &more, NULL);
        if (rc == OK)
            idle += more.plan.num_ranks * more.plan.num_pipelines < in.cluster.num_devices;
        for (int rest = in.cluster.num_devices - 1; rest > 0; rest--) {
            in.cluster.num_devices = rest;
            in.cluster.num_nodes = in.cluster.devices[rest - 1].node + 1;
            if (planner_solve(&in.problem, &in.options, &fewer, NULL) != OK)
                continue;
            assert_int_equal(rc, OK);
            if (more.samples_per_s < fewer.samples_per_s * (1 - 1e-12))
                fail_msg("trial %d: %.17g samples/s, on the first %d devices %.17g", trial,
                         more.samples_per_s, rest, fewer.samples_per_s);
            compared++;
            planner_result_clear(&fewer);
        }
        planner_result_clear(&more);
        instance_clear(&in);
    }
    assert_true(compared > 100 && idle > 10);
}

/* --- plain cuts ---------------------------------------------------------------------------- */

/* Equally many items a stage, or the shortest longest stage by time. */
static void plain_cut(const struct instance *in, struct plan *plan, bool by_time)
{
    const int first = plan->first_item[0], n = in->model.num_items - first;
    const int nf = model_frozen_items(&in->model, in->problem.num_frozen_layers);
    int64_t sizes[16];
    struct cut cut = {0};
    for (int i = 0; i < n; i++) {
        const struct item *item = &in->model.items[first + i];
        sizes[i] = !by_time ? 1 : item->fwd_ns - item->fwd_stash_ns;
        if (by_time && first + i >= nf)
            sizes[i] += item->fwd_stash_ns + item->bwd_weight_ns +
                        (first + i == nf && nf > 0 ? item->bwd_rest_ns : item->bwd_input_ns);
    }
    assert_int_equal(cut_sizes(sizes, n, plan->num_stages, &cut, NULL), OK);
    for (int s = 0; s <= plan->num_stages; s++)
        plan->first_item[s] =
            first + (by_time ? cut.first_item[s] : (int)((int64_t)n * s / plan->num_stages));
    cut_clear(&cut);
}

/* Every schedule of a few micro-batch counts with both plain cuts; brute keeps the best. */
static void plain_plans(const struct instance *in, struct brute *brute)
{
    struct bound_table table;
    assert_int_equal(bound_table_init(&table, &in->problem, NULL), OK);
    const int K = in->options.num_ranks, R = in->options.num_replicas;
    const int F = in->problem.num_frozen_layers;
    const int64_t B = in->problem.batch / (in->problem.batch_mode == BATCH_GLOBAL ? R : 1);
    const int wanted[] = {1, K, 2 * K, (int)B};
    for (int map = 0; map < (K > 1 && R > 1 && in->cluster.num_nodes > 1 ? MAP_COUNT : 1); map++)
        for (size_t m = 0; m < sizeof wanted / sizeof *wanted; m++)
            for (int kind = 0; kind < SCHEDULE_SEARCH; kind++)
                for (int v = in->options.schedules >> kind & 1
                                 ? schedule_default_chunks((enum schedule_kind)kind)
                                 : 5;
                     v <= (kind == SCHEDULE_INTERLEAVED ? 4 : 2); v++)
                    for (int f = F ? FROZEN_FIRST : FROZEN_NONE;
                         f <= (F ? FROZEN_CACHED : FROZEN_NONE); f++)
                        for (int by_time = 0; by_time < 2; by_time++) {
                            int cut[32] = {0}, device[16];
                            struct plan plan = {.num_ranks = K,
                                                .num_pipelines = R,
                                                .chunks = v,
                                                .num_stages = K * v,
                                                .batch = B,
                                                .schedule = (enum schedule_kind)kind,
                                                .num_frozen_layers = F,
                                                .frozen = (enum frozen_placement)f,
                                                .first_item = cut,
                                                .device = device,
                                                .bucket_bytes = in->problem.bucket_bytes,
                                                .clip = in->problem.clip,
                                                .optim_bytes_per_param = 4};
                            if (f == FROZEN_FIRST || f == FROZEN_CACHED)
                                cut[0] = model_frozen_items(&in->model, F);
                            if (wanted[m] > B ||
                                !placement_exists(in, f, microbatches_of(B, wanted[m])) ||
                                plan.num_stages > in->model.num_items - cut[0] ||
                                (kind != SCHEDULE_INTERLEAVED &&
                                 v != schedule_default_chunks((enum schedule_kind)kind)))
                                continue;
                            plan.microbatches = microbatches_of(B, wanted[m]);
                            assert_int_equal(autodp_map_groups(&in->cluster, (enum rank_map)map, 1,
                                                               K, R, device, NULL),
                                             OK);
                            plain_cut(in, &plan, by_time);
                            brute_plan(in, &plan, &table, brute);
                        }
    bound_table_clear(&table);
}

static void planner_solve__is_never_slower_than_a_plain_cut(void **state)
{
    (void)state;
    int solved = 0;
    int first;
    const int end = test_trials(160, 660, &first), trials = end - first;
    for (int trial = first; trial < end; trial++) {
        random_state = (uint64_t)trial * 77777 + 11;
        struct instance in;
        struct brute brute = {0};
        struct planner_result result = {0};
        struct err err = {0};
        instance_random(&in, 16);
        const int D = in.cluster.num_devices, R = (int)random_between(1, D > 3 ? 2 : 1);
        const int most = in.model.num_items < D / R ? in.model.num_items : D / R;
        in.options.num_replicas = R;
        in.options.num_ranks = (int)random_between(most > 1 ? 2 : 1, most);
        in.options.recompute_auto = false;
        in.options.schedules = 1u << random_between(0, SCHEDULE_SEARCH - 1);
        in.problem.batch = R * random_between(1, 24);
        for (int d = 0; d < D; d++)
            if (in.cluster.devices[d].mem_bytes != INT64_MAX)
                in.cluster.devices[d].mem_bytes *= random_between(1, 8);
        plain_plans(&in, &brute);
        enum status rc = planner_solve(&in.problem, &in.options, &result, &err);
        if (brute.fitting > 0 && in.options.num_ranks > 1) {
            if (rc != OK)
                fail_msg("trial %d: %s", trial, err.msg);
            if (result.samples_per_s < brute.rate * (1 - 1e-12))
                fail_msg("trial %d: planner %.17g samples/s, a plain cut %.17g", trial,
                         result.samples_per_s, brute.rate);
            solved++;
        }
        planner_result_clear(&result);
        instance_clear(&in);
    }
    assert_true(solved > trials / 5);
}

static void schedule_live__is_what_the_lists_hold_at_one_moment(void **state)
{
    (void)state;
    for (int kind = 0; kind < SCHEDULE_SEARCH; kind++)
        for (int K = 1; K <= 5; K++)
            for (int M = 1; M <= 24; M++)
                for (int v = 1; v <= 4; v++) {
                    struct schedule list = {0};
                    if (schedule_generate((enum schedule_kind)kind, K, M, v, &list, NULL) != OK)
                        continue;
                    /* The moment: before the rank's first backward, or its first W. */
                    const bool late = kind == SCHEDULE_ZB_H1 || kind == SCHEDULE_ZB_H2;
                    for (int r = 0; r < K; r++) {
                        int live[20] = {0};
                        for (int64_t i = 0; i < list.ranks[r].num_ops; i++) {
                            const struct op op = list.ranks[r].ops[i];
                            if (op.kind == OP_F)
                                live[op.stage]++;
                            else if (!late || op.kind == OP_W)
                                break;
                        }
                        for (int s = 0; s < K * v; s++)
                            if (list.rank_of_stage[s] == r)
                                assert_int_equal(
                                    schedule_live((enum schedule_kind)kind, K, M, v, s), live[s]);
                    }
                    schedule_clear(&list);
                }
}

/* planner_candidates.c lets the schedule of a group that holds least on the first stage of 16 stand for
 * the others of its shape and form of backward. */
static void schedule_live__has_one_order_within_a_group(void **state)
{
    (void)state;
    for (int i = 0; i < SCHEDULE_SEARCH * SCHEDULE_SEARCH; i++) {
        const enum schedule_kind a = (enum schedule_kind)(i / SCHEDULE_SEARCH);
        const enum schedule_kind b = (enum schedule_kind)(i % SCHEDULE_SEARCH);
        const int v = schedule_default_chunks(a);
        if (a == b || schedule_shape(a) != schedule_shape(b) ||
            schedule_splits(a) != schedule_splits(b))
            continue;
        const int64_t first = schedule_live(a, 16, 64, v, 0),
                      other = schedule_live(b, 16, 64, v, 0);
        if (first > other || (first == other && a > b))
            continue;
        for (int chunks = v; chunks <= (schedule_any_chunks(a) ? 4 : v); chunks++)
            for (int K = 2; K <= 24; K++)
                for (int M = 1; M <= 3 * K; M++)
                    for (int s = 0; s < K * chunks; s++)
                        assert_true(schedule_live(a, K, M, chunks, s) <=
                                    schedule_live(b, K, M, chunks, s));
    }
}

static void bound_solve__is_the_closed_form_when_stages_are_equal(void **state)
{
    (void)state;
    for (int K = 1; K <= 6; K++)
        for (int M = 1; M <= 9; M += 2)
            for (int kind = 0; kind < 2; kind++) {
                struct instance in;
                memset(&in, 0, sizeof in);
                struct item items[12] = {0};
                for (int i = 0; i < K; i++)
                    items[i] = (struct item){.kind = ITEM_OPAQUE,
                                             .layer = i,
                                             .fwd_ns = 300,
                                             .bwd_input_ns = 400,
                                             .bwd_weight_ns = 500};
                assert_int_equal(model_explicit("equal", items, K, NULL, 0, true, &in.model, NULL),
                                 OK);
                assert_int_equal(cluster_grid(1, K, &in.cluster, NULL), OK);
                in.cluster.link_latency_ns = 0;
                cost_constant(&in.cost);
                in.problem = (struct planner_problem){.setting.model = &in.model,
                                                      .setting.cluster = &in.cluster,
                                                      .setting.cost = &in.cost,
                                                      .batch = M};
                in.options = (struct planner_options){
                    .num_ranks = K,
                    .num_replicas = 1,
                    .num_microbatches = M,
                    .schedules = 1u << (kind ? SCHEDULE_GPIPE : SCHEDULE_1F1B)};
                struct planner_result result = {0};
                assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
                assert_int_equal(result.plan.step_ns, (M + K - 1) * 1200);
                assert_int_equal(result.lower_bound_ns, (M + K - 1) * 1200);
                assert_true(result.gap == 0);
                planner_result_clear(&result);
                instance_clear(&in);
            }
}

/* Messages between devices of kind "a" take 1 ms, others nothing. */
static int64_t slow_among_a(const void *ctx, const struct cluster *cluster, int from, int to,
                            int64_t bytes)
{
    (void)ctx;
    (void)bytes;
    return *cluster->devices[from].kind == 'a' && *cluster->devices[to].kind == 'a' ? 1000000 : 0;
}

static void bound_solve__takes_each_link_as_its_devices_have_it(void **state)
{
    (void)state;
    struct item items[4];
    for (int i = 0; i < 4; i++)
        items[i] = (struct item){.kind = ITEM_OPAQUE, .layer = i, .fwd_ns = 1000};
    struct instance in = {0};
    struct planner_result result = {0};
    assert_int_equal(model_explicit("four", items, 4, NULL, 0, false, &in.model, NULL), OK);
    assert_int_equal(cluster_grid(1, 4, &in.cluster, NULL), OK);
    for (int d = 0; d < 4; d++)
        strcpy(in.cluster.devices[d].kind, d < 3 ? "a" : "b"); /* two neighbours are "a" */
    cost_constant(&in.cost);
    in.cost.transfer_ns = slow_among_a;
    in.problem = (struct planner_problem){.setting.model = &in.model,
                                          .setting.cluster = &in.cluster,
                                          .setting.cost = &in.cost,
                                          .batch = 4};
    in.options = (struct planner_options){
        .num_ranks = 4, .num_replicas = 1, .num_microbatches = 4, .schedules = 1u << SCHEDULE_1F1B};
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
    assert_in_range(result.best[0].unshared_ns, 2000000, 2100000);
    assert_true(result.best[0].lower_bound_ns <= result.best[0].unshared_ns);
    planner_result_clear(&result);
    instance_clear(&in);
}

/* A single micro-batch is the last: it keeps its stash, which the first forward finds near. */
static void bound_solve__takes_a_single_microbatch_for_the_last(void **state)
{
    (void)state;
    struct item items[2];
    items[0] = (struct item){.kind = ITEM_OPAQUE, .fwd_ns = 3000, .stash_bytes = 60000};
    items[1] = (struct item){.kind = ITEM_OPAQUE, .layer = 1, .fwd_ns = 1000};
    struct instance in = {0};
    struct planner_result result = {0};
    assert_int_equal(model_explicit("two", items, 2, NULL, 0, false, &in.model, NULL), OK);
    assert_int_equal(cluster_grid(1, 2, &in.cluster, NULL), OK);
    cost_constant(&in.cost);
    in.cost.near_ns_per_byte = near_case;
    in.problem = (struct planner_problem){.setting.model = &in.model,
                                          .setting.cluster = &in.cluster,
                                          .setting.cost = &in.cost,
                                          .batch = 1};
    in.options = (struct planner_options){.num_ranks = 2,
                                          .num_replicas = 1,
                                          .schedules = 1u << SCHEDULE_1F1B,
                                          .recompute = RECOMPUTE_EXCEPT_LAST};
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
    assert_true(result.best[0].lower_bound_ns <= result.best[0].unshared_ns);
    planner_result_clear(&result);
    instance_clear(&in);
}

/* --- the released rules -------------------------------------------------------------------- */

static void vit_problem(struct instance *in, const char *model, const char *cluster, int64_t batch)
{
    memset(in, 0, sizeof *in);
    struct err err = {0};
    assert_int_equal(model_parse(model, &in->model, &err), OK);
    assert_int_equal(cluster_parse(cluster, &in->cluster, &err), OK);
    cost_roofline(&in->cost, NULL);
    in->problem = (struct planner_problem){.setting.model = &in->model,
                                           .setting.cluster = &in->cluster,
                                           .setting.cost = &in->cost,
                                           .batch = batch,
                                           .bucket_bytes = 25 << 20,
                                           .optim_bytes_per_param = 4};
    in->options = (struct planner_options){.schedules = PLANNER_ALL_SCHEDULES, .frozen_auto = true};
}

static void planner_solve__follows_the_release_when_asked(void **state)
{
    (void)state;
    static const int lengths[] = {8, 8, 8, 8, 8, 4, 4, 4, 4, 2, 2, 1, 1};
    static const int cut0[] = {4, 2, 3, 3, 3, 3, 4, 5}, cut5[] = {3, 4, 4, 5}, cut10[] = {2, 4};
    struct instance in;
    vit_problem(&in, "vit-b16:classes=1000", "rtx5000-2x8", 320);
    for (int d = 0; d < in.cluster.num_devices; d++)
        in.cluster.devices[d].mem_bytes = INT64_MAX;
    in.options.balancer = BALANCER_RELEASED;
    for (int f = 0; f <= 12; f++) {
        struct planner_result result = {0};
        struct err err = {0};
        in.problem.num_frozen_layers = f;
        assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), OK);
        const struct plan *plan = &result.plan;
        assert_int_equal(plan->num_ranks, lengths[f]);
        assert_int_equal(plan->num_pipelines, 16 / lengths[f]);
        assert_int_equal(plan->microbatches.count, lengths[f] == 1 ? 4 : 16);
        assert_int_equal(plan->schedule, SCHEDULE_GPIPE);
        assert_int_equal(plan->frozen, f ? FROZEN_FIRST : FROZEN_NONE);
        const int *want = f == 0 ? cut0 : f == 5 ? cut5 : f == 10 ? cut10 : NULL;
        for (int s = 0; want && s < plan->num_stages; s++)
            assert_int_equal(plan->first_item[s + 1] - plan->first_item[s], want[s]);
        planner_result_clear(&result);
    }
    instance_clear(&in);
}

static void planner_solve__cuts_greedily_into_all_chunks(void **state)
{
    (void)state;
    struct instance in;
    vit_problem(&in, "vit-b16", "rtx5000-2x8", 320);
    in.options.balancer = BALANCER_RELEASED;
    in.options.num_ranks = 4;
    for (int chunks = 1; chunks <= 3; chunks++) {
        struct planner_result result = {0};
        double sizes[64], load[64];
        int count[64];
        in.options.chunks = chunks;
        in.options.schedules = 1u << (chunks == 2 ? SCHEDULE_ZB_V : SCHEDULE_INTERLEAVED);
        assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
        balance_sizes(&in.model, sizes);
        assert_int_equal(balance_greedy(BALANCER_RELEASED, sizes, in.model.num_items, 0, 4 * chunks,
                                        count, load, NULL),
                         OK);
        assert_int_equal(result.plan.num_stages, 4 * chunks);
        for (int s = 0; s < 4 * chunks; s++)
            assert_int_equal(result.plan.first_item[s + 1] - result.plan.first_item[s], count[s]);
        planner_result_clear(&result);
    }
    instance_clear(&in);
}

static void planner_solve__refuses_when_the_greedy_cut_has_an_empty_stage(void **state)
{
    (void)state;
    struct instance in;
    struct planner_result result = {0};
    struct err err = {0};
    vit_problem(&in, "bert-base", "rtx5000-2x8", 64);
    in.options.balancer = BALANCER_RELEASED;
    in.options.num_ranks = 8;
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "empty"));
    assert_null(result.stage_ns);
    instance_clear(&in);
}

static void planner_solve__is_never_slower_than_the_release(void **state)
{
    (void)state;
    struct instance in;
    vit_problem(&in, "vit-b16", "rtx5000-2x8", 320);
    for (int f = 0; f <= 12; f += 3) {
        struct planner_result ours = {0}, theirs = {0};
        in.problem.num_frozen_layers = f;
        in.options.balancer = BALANCER_OPTIMAL;
        assert_int_equal(planner_solve(&in.problem, &in.options, &ours, NULL), OK);
        in.options.balancer = BALANCER_RELEASED;
        if (planner_solve(&in.problem, &in.options, &theirs, NULL) == OK)
            assert_true(ours.samples_per_s >= theirs.samples_per_s);
        planner_result_clear(&ours);
        planner_result_clear(&theirs);
    }
    instance_clear(&in);
}

/* --- the rest ------------------------------------------------------------------------------ */

static void planner_microbatches__has_every_count_once_when_compared_with_a_scan(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= 130; batch += 3)
        for (int K = 1; K <= 12; K++) {
            struct microbatches *list = NULL;
            int num = 0, found = 0;
            assert_int_equal(planner_microbatches(batch, K, &list, &num, NULL), OK);
            bool seen[131] = {0};
            for (int wanted = 1; wanted <= batch; wanted++)
                if (batch % wanted == 0 || (wanted >= K && wanted <= 6 * K))
                    seen[microbatches_of(batch, wanted).count] = true;
            for (int m = 1; m <= batch; m++)
                if (seen[m]) {
                    assert_true(found < num);
                    assert_int_equal(list[found].count, m);
                    assert_int_equal(list[found].size * (m - 1) + list[found].last_size, batch);
                    found++;
                }
            assert_int_equal(found, num);
            free(list);
        }
}

static void planner_solve__takes_fewer_microbatches_when_launching_costs(void **state)
{
    (void)state;
    struct instance in;
    memset(&in, 0, sizeof in);
    assert_int_equal(model_parse("vit-b16", &in.model, NULL), OK);
    assert_int_equal(cluster_parse("h100-1x8", &in.cluster, NULL), OK);
    cost_roofline(&in.cost, NULL);
    in.problem = (struct planner_problem){.setting.model = &in.model,
                                          .setting.cluster = &in.cluster,
                                          .setting.cost = &in.cost,
                                          .batch = 256,
                                          .optim_bytes_per_param = 4};
    in.options = (struct planner_options){.num_ranks = 4, .schedules = 1u << SCHEDULE_1F1B};
    int before = 1 << 30;
    in.cluster.host_blocking = true;
    for (int64_t host_ns = 0; host_ns <= 4000000; host_ns = host_ns ? host_ns * 10 : 400) {
        struct planner_result result = {0};
        in.cluster.host_op_ns = host_ns;
        assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
        assert_true(result.plan.microbatches.count <= before);
        before = result.plan.microbatches.count;
        planner_result_clear(&result);
    }
    assert_true(before <= 8);
    instance_clear(&in);
}

/* Two layers on each of 24 ranks: with two chunks a rank the bubble is half as long. */
static void planner_solve__gives_long_pipelines_several_chunks(void **state)
{
    (void)state;
    struct instance in;
    const int64_t layer_ns = 3000000, num_microbatches = 48, num_ranks = 24;
    vit_problem(&in, "uniform:layers=48,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,params=0,act=0",
                "1x24", num_microbatches);
    cost_constant(&in.cost);
    for (int d = 0; d < num_ranks; d++)
        in.cluster.devices[d].link_bytes_per_s = 1e18;
    in.cluster.link_latency_ns = 0;
    in.options.num_replicas = 1;
    in.options.num_microbatches = (int)num_microbatches;
    in.options.chunks = AUTO;
    in.options.schedules = 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED;
    struct planner_result result = {0};
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
    assert_int_equal(result.plan.num_ranks, num_ranks);
    assert_int_equal(result.plan.schedule, SCHEDULE_INTERLEAVED);
    assert_int_equal(result.plan.step_ns, (2 * num_microbatches + num_ranks - 1) * layer_ns);
    planner_result_clear(&result);
    instance_clear(&in);
}

/* Places are numbered in the order in which a search has listed them. A plan of another layout therefore
 * has a number that this search may not know, or knows for another place. */
static void search_adopt__takes_a_place_that_its_own_search_has_listed(void **state)
{
    (void)state;
    struct instance in;
    struct search_common no_others = {0};
    struct search other = {0}, own = {0};
    const int *place;
    int num, first_item[] = {0, 2, 4};
    vit_problem(&in, "uniform:layers=4,fwd=1ms,bwd_input=1ms,bwd_weight=1ms,params=0,act=0", "1x4",
                8);
    cost_constant(&in.cost);
    for (int d = 0; d < in.cluster.num_devices; d++)
        in.cluster.devices[d].speed = 1 + d; /* four types: every place is listed */
    in.options.schedules = 1u << SCHEDULE_1F1B;
    assert_int_equal(search_open_bare(&other, &no_others, &in.problem, &in.options, NULL), OK);
    assert_int_equal(search_open_bare(&own, &no_others, &in.problem, &in.options, NULL), OK);
    for (int K = 4; K >= 2; K--) /* the other search has listed those of longer pipelines before */
        assert_int_equal(rank_places_of(other.places, K, 1, &place, &num, NULL), OK);
    struct node node = {.num_ranks = 2,
                        .num_pipelines = 1,
                        .place = place[num - 1],
                        .batch = 8,
                        .microbatches = microbatches_of(8, 4),
                        .schedule = SCHEDULE_1F1B,
                        .chunks = 1,
                        .frozen = search_first_placement(&other)};
    int theirs[2], ours[2];
    assert_int_equal(search_map(&other, &node, theirs, NULL), OK);
    assert_int_equal(search_keep(&other, node, first_item, 1, 1), OK);
    assert_int_equal(search_adopt(&own, &other), OK);
    assert_int_equal(own.num_judged, 1);
    assert_true(own.judged[0].step_ns > 0);
    assert_int_equal(search_map(&own, &own.judged[0].node, ours, NULL), OK);
    assert_memory_equal(ours, theirs, sizeof ours);
    search_clear(&own);
    search_clear(&other);
    instance_clear(&in);
}

static void planner_solve__divides_the_batch_when_equal_microbatches_are_wanted(void **state)
{
    (void)state;
    struct instance in;
    int ragged = 0;
    vit_problem(&in, "vit-b16", "h100-1x8", 0);
    in.options.num_ranks = 4;
    in.options.schedules = 1u << SCHEDULE_1F1B;
    in.cluster.host_blocking = true; /* micro-batches of one sample are dear */
    in.cluster.host_op_ns = 40000;
    for (in.problem.batch = 24; in.problem.batch < 40; in.problem.batch++) {
        struct planner_result any = {0}, equal = {0};
        in.options.equal_microbatches = false;
        assert_int_equal(planner_solve(&in.problem, &in.options, &any, NULL), OK);
        in.options.equal_microbatches = true;
        assert_int_equal(planner_solve(&in.problem, &in.options, &equal, NULL), OK);
        ragged += any.plan.batch % any.plan.microbatches.count != 0;
        assert_int_equal(equal.plan.batch % equal.plan.microbatches.count, 0);
        assert_true(equal.samples_per_s <= any.samples_per_s);
        planner_result_clear(&any);
        planner_result_clear(&equal);
    }
    assert_true(ragged > 0);
    instance_clear(&in);
}

struct favourite {
    int num_ranks, asked;
};

/* Steps of other lengths take twice as long as they seem. */
static enum status prefer(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err)
{
    struct favourite *favourite = ctx;
    (void)err;
    favourite->asked++;
    assert_true(plan->step_ns > 0);
    *step_ns = plan->num_ranks == favourite->num_ranks ? plan->step_ns : 2 * plan->step_ns;
    return OK;
}

static void planner_solve__obeys_the_judge_when_there_is_one(void **state)
{
    (void)state;
    struct instance in;
    vit_problem(&in, "vit-b16", "rtx5000-2x8", 320);
    in.options.judge.step_ns = prefer;
    for (int K = 1; K <= 4; K *= 2) {
        struct planner_result result = {0}, alone = {0};
        struct favourite favourite = {.num_ranks = K};
        in.options.judge.ctx = &favourite;
        in.options.num_ranks = AUTO;
        assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
        /* The first is slower than its like seem until one of K is asked; no other is then. A textbook
         * plan is asked about before. */
        assert_true(K == 1 ? favourite.asked <= 2 : favourite.asked > 1);
        in.options.num_ranks = K;
        in.options.judge.all = true;
        favourite.asked = 0;
        assert_int_equal(planner_solve(&in.problem, &in.options, &alone, NULL), OK);
        assert_true(favourite.asked > 1 && favourite.asked <= alone.num_best + 1);
        in.options.judge.all = false;
        assert_int_equal(result.plan.num_ranks, K);
        assert_int_equal(result.best[0].judged_ns, result.plan.step_ns);
        planner_result_clear(&result);
        planner_result_clear(&alone);
    }
    instance_clear(&in);
}

/* Plans take three times as long as they seem, but those of a length that run forwards again. */
static enum status prefer_recompute(void *ctx, const struct plan *plan, int64_t *step_ns,
                                    struct err *err)
{
    const struct favourite *favourite = ctx;
    (void)err;
    *step_ns = plan->step_ns;
    if (plan->num_ranks != favourite->num_ranks || plan->recompute != RECOMPUTE_STAGE_EARLY)
        *step_ns *= 3;
    return OK;
}

static void planner_solve__finds_again_what_it_had_left_out_for_less(void **state)
{
    (void)state;
    struct instance in;
    vit_problem(&in, "vit-b16", "rtx5000-2x8", 320);
    in.problem.batch_mode = BATCH_GLOBAL;
    in.options.judge.step_ns = prefer_recompute;
    in.options.recompute_auto = true;
    in.options.schedules = 1u << SCHEDULE_1F1B;
    for (int M = 8; M <= 32; M *= 2) {
        struct planner_result result = {0};
        struct favourite favourite = {.num_ranks = 7};
        in.options.judge.ctx = &favourite;
        in.options.num_microbatches = M;
        assert_int_equal(planner_solve(&in.problem, &in.options, &result, NULL), OK);
        assert_int_equal(result.plan.num_ranks, 7);
        assert_int_equal(result.plan.recompute, RECOMPUTE_STAGE_EARLY);
        planner_result_clear(&result);
    }
    instance_clear(&in);
}

static void planner_solve__ends_when_the_passes_cost_nothing(void **state)
{
    (void)state;
    struct item items[2] = {
        {.name = "a", .kind = ITEM_OPAQUE, .layer = 0},
        {.name = "b", .kind = ITEM_OPAQUE, .layer = 1}
    };
    struct instance in = {0};
    struct planner_result result = {0};
    struct err err = {0};
    assert_int_equal(model_explicit("free", items, 2, NULL, 0, false, &in.model, &err), OK);
    assert_int_equal(cluster_grid(1, 2, &in.cluster, &err), OK);
    in.cluster.link_latency_ns = 0;
    cost_constant(&in.cost);
    in.problem = (struct planner_problem){.setting.model = &in.model,
                                          .setting.cluster = &in.cluster,
                                          .setting.cost = &in.cost,
                                          .batch = 4};
    in.options = (struct planner_options){.schedules = PLANNER_ALL_SCHEDULES};
    if (planner_solve(&in.problem, &in.options, &result, &err) != OK)
        fail_msg("%s", err.msg);
    assert_in_range(result.plan.step_ns, 1, 8); /* no more than an update and 4 bytes reduced */
    planner_result_clear(&result);
    instance_clear(&in);
}

static void planner_solve__stays_on_one_device_when_links_take_for_ever(void **state)
{
    (void)state;
    for (int host = 0; host < 2; host++) {
        struct instance in = {0};
        struct planner_result result = {0};
        struct err err = {0};
        vit_problem(&in, "vit-tiny", "rtx5000-2x8", 32);
        if (host)
            in.cluster.host_op_ns = INT64_MAX;
        else
            in.cluster.link_latency_ns = in.cluster.uplink_latency_ns = INT64_MAX;
        enum status rc = planner_solve(&in.problem, &in.options, &result, &err);
        if (host) {
            assert_int_equal(rc, ERR_INPUT);
            assert_non_null(strstr(err.msg, "longer than 2^60 ns"));
        } else {
            if (rc != OK)
                fail_msg("%s", err.msg);
            assert_int_equal(result.plan.num_ranks, 1);
            assert_int_equal(result.plan.num_pipelines, 1);
            assert_in_range(result.plan.step_ns, 1, 1000000000);
        }
        planner_result_clear(&result);
        instance_clear(&in);
    }
}

static void planner_solve__says_why_when_nothing_is_possible(void **state)
{
    (void)state;
    struct instance in;
    struct planner_result result = {0};
    struct err err = {0};
    vit_problem(&in, "vit-b16", "rtx5000-1x4", 64);
    in.options.num_ranks = 28;
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "cannot cut 27 items into 28 stages"));
    err = (struct err){0};
    in.options.num_ranks = 8;
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "4 devices"));
    err = (struct err){0};
    in.options.num_ranks = 2;
    for (int d = 0; d < 4; d++)
        in.cluster.devices[d].mem_bytes = 1 << 30;
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "does not fit"));
    assert_true(err.hint[0] != '\0');
    /* Devices that differ: the largest is named. */
    err = (struct err){0};
    in.options.num_ranks = AUTO;
    for (int d = 0; d < 4; d++)
        in.cluster.devices[d].mem_bytes = d == 2 ? 2 << 20 : 1 << 20;
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "does not fit 4 devices of at most 2.00 MiB with any cut"));
    err = (struct err){0};
    in.options = (struct planner_options){.schedules = 0};
    assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INPUT);
    instance_clear(&in);
}

static void planner_from_job__translates_every_choice(void **state)
{
    (void)state;
    struct job job;
    struct cost cost;
    struct planner_problem problem;
    struct planner_options options;
    job_defaults(&job);
    const struct setting setting = {&job.model, &job.cluster, &cost};
    cost_constant(&cost);
    planner_from_job(&job, &setting, 0, &problem, &options);
    assert_int_equal(options.schedules, PLANNER_ALL_SCHEDULES);
    assert_int_equal(options.num_ranks, AUTO);
    assert_int_equal(problem.optim_bytes_per_param, 4);
    assert_false(problem.clip || options.equal_microbatches);
    struct model alone = {0};
    job.model.untied = &alone; /* freeze.head alone: the model of a frozen prefix */
    for (int frozen = 0; frozen < 2; frozen++) {
        planner_from_job(&job, &setting, frozen, &problem, &options);
        assert_ptr_equal(problem.setting.model, frozen ? &alone : &job.model);
    }
    job.model.untied = NULL;
    job.train.reduction = REDUCTION_CANONICAL;
    job.pipeline.schedule_auto = false;
    job.pipeline.schedule = SCHEDULE_ZB_V;
    job.pipeline.num_stages = 4;
    job.train.optimizer.kind = OPTIMIZER_ADAMW;
    job.train.clip_norm = 1;
    job.cache.policy = CACHE_ON;
    job.train.batch_mode = BATCH_GLOBAL;
    planner_from_job(&job, &setting, 3, &problem, &options);
    assert_int_equal(options.schedules, 1u << SCHEDULE_ZB_V);
    assert_int_equal(options.num_ranks, 4);
    assert_int_equal(problem.optim_bytes_per_param, 8);
    assert_int_equal(problem.num_frozen_layers, 3);
    assert_int_equal(problem.batch_mode, BATCH_GLOBAL);
    assert_true(problem.clip && options.equal_microbatches);
    job.train.post_validation = true; /* nobody waits for the norm, unless a policy needs it */
    planner_from_job(&job, &setting, 3, &problem, &options);
    assert_false(problem.clip);
    job.train.clip_norm = 0;
    for (int policy = 0; policy < FREEZE_POLICY_COUNT; policy++) {
        job.freeze.policy = policy;
        planner_from_job(&job, &setting, 0, &problem, &options);
        assert_int_equal(problem.clip, policy == FREEZE_GRADIENT_NORM ||
                                           policy == FREEZE_RELATIVE_CHANGE ||
                                           policy == FREEZE_PLATEAU || policy == FREEZE_AUTOFREEZE);
    }
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planner_solve__equals_brute_force_over_everything_when_small),
        cmocka_unit_test(planner_solve__equals_brute_force_over_layers_and_shards),
        cmocka_unit_test(bound_of_cut__holds_when_layers_of_chunks_run_again),
        cmocka_unit_test(planner_solve__bound_is_the_step_when_one_device_runs_layers_again),
        cmocka_unit_test(planner_solve__keeps_the_plans_of_fewer_devices),
        cmocka_unit_test(planner_solve__is_never_slower_than_a_plain_cut),
        cmocka_unit_test(schedule_live__is_what_the_lists_hold_at_one_moment),
        cmocka_unit_test(schedule_live__has_one_order_within_a_group),
        cmocka_unit_test(bound_solve__is_the_closed_form_when_stages_are_equal),
        cmocka_unit_test(bound_solve__takes_each_link_as_its_devices_have_it),
        cmocka_unit_test(bound_solve__takes_a_single_microbatch_for_the_last),
        cmocka_unit_test(planner_solve__follows_the_release_when_asked),
        cmocka_unit_test(planner_solve__cuts_greedily_into_all_chunks),
        cmocka_unit_test(planner_solve__refuses_when_the_greedy_cut_has_an_empty_stage),
        cmocka_unit_test(planner_solve__is_never_slower_than_the_release),
        cmocka_unit_test(planner_microbatches__has_every_count_once_when_compared_with_a_scan),
        cmocka_unit_test(planner_solve__takes_fewer_microbatches_when_launching_costs),
        cmocka_unit_test(planner_solve__gives_long_pipelines_several_chunks),
        cmocka_unit_test(search_adopt__takes_a_place_that_its_own_search_has_listed),
        cmocka_unit_test(planner_solve__divides_the_batch_when_equal_microbatches_are_wanted),
        cmocka_unit_test(planner_solve__obeys_the_judge_when_there_is_one),
        cmocka_unit_test(planner_solve__finds_again_what_it_had_left_out_for_less),
        cmocka_unit_test(planner_solve__ends_when_the_passes_cost_nothing),
        cmocka_unit_test(planner_solve__stays_on_one_device_when_links_take_for_ever),
        cmocka_unit_test(planner_solve__says_why_when_nothing_is_possible),
        cmocka_unit_test(planner_from_job__translates_every_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
