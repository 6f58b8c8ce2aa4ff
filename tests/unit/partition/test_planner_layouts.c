/* The planner over tensor-parallel groups, shards and recompute inside backwards, for frameworks too, against a loop
 * over everything: small GPTs on small clusters, costs and memory by the public functions. */
#include "partition/plan/autodp.h"
#include "partition/step/lower.h"
#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"
#include "partition/search/planner.h"
#include "partition/search/rank_places.h"
#include "partition/model/framework.h"
#include "partition/step/recompute_fit.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"
#include "partition/layout/tensor_group.h"
#include "partition/step/traffic.h"
#include "tests/unit/test.h"

#include <limits.h>

enum { MOST_RANKS = 4, MOST_LAYERS = 3 };

/* Flops of what the device has of an item, and 40 ns to begin. Attention's core costs its flops. */
static enum status flops_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                            int64_t samples, const struct device *device, int64_t *ns,
                            bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err;
    const int64_t once = model->items[item].fwd_flops / 64 * samples + 40;
    *ns = pass == PASS_UPDATE ? model->items[item].params / 8 : once;
    return OK;
}

static enum status core_ns(const void *ctx, const struct model *model, int item, enum rerun rerun,
                           int64_t samples, const struct device *device, int64_t *ns,
                           bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err;
    *ns = model_rerun_flops(model, item, rerun) / 64 * samples + 10;
    return OK;
}

struct instance {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct planner_problem problem;
    struct planner_options options;
};

static struct setting setting_of(const struct instance *in)
{
    return (struct setting){&in->model, &in->cluster, &in->cost};
}

static void make_model(struct model *model)
{
    struct model_spec spec;
    assert_int_equal(model_preset("gpt2", &spec, NULL), OK);
    spec.num_layers = (int)random_between(1, 2);
    spec.heads = 4;
    spec.hidden = 8 * (int)random_between(1, 3);
    spec.mlp = 4 * spec.hidden;
    spec.seq = spec.max_seq = 8 * (int)random_between(1, 4);
    spec.vocab = 16 * (int)random_between(1, 4);
    spec.elem_bytes = 2;
    assert_int_equal(model_build(&spec, model, NULL), OK);
    model_set_attention(model, random_between(0, 2) ? ATTENTION_UNFUSED : ATTENTION_AUTO);
}

/* Runs all parts of layers again, and differs from FRAMEWORK_AUTO in nothing else. */
static const struct framework reruns_all = {.reruns = (1u << RERUN_COUNT) - 1};

static void instance_random(struct instance *in)
{
    memset(in, 0, sizeof *in);
    make_model(&in->model);
    in->model.framework = random_state % 3 ? &reruns_all : NULL;
    const int nodes = (int)random_between(1, 2),
              devices = nodes == 1 ? (int)random_between(2, 4) : 2;
    assert_int_equal(cluster_grid(nodes, devices, &in->cluster, NULL), OK);
    const int64_t link = random_between(1, 40), up = random_between(1, 40),
                  mem = random_between(2, 60) * 4000;
    for (int d = 0; d < in->cluster.num_devices; d++) {
        in->cluster.devices[d].link_bytes_per_s = (double)link * 1e9;
        in->cluster.devices[d].mem_bytes = mem;
    }
    for (int n = 0; n < nodes; n++)
        in->cluster.uplink_bytes_per_s[n] = (double)up * 1e9;
    in->cluster.link_latency_ns = random_between(0, 300);
    in->cluster.uplink_latency_ns = random_between(0, 600);
    in->cost = (struct cost){.source = COST_ROOFLINE, .item_ns = flops_ns, .rerun_ns = core_ns};
    in->problem = (struct planner_problem){.setting = setting_of(in),
                                           .batch = random_between(1, 4),
                                           .bucket_bytes = random_between(0, 1) ? 0 : 2000,
                                           .clip = random_between(0, 1),
                                           .optim_bytes_per_param = 8};
    in->options = (struct planner_options){.layout.open[LAYOUT_TENSOR] = true,
                                           .layout.at.sequence_parallel = random_between(0, 1),
                                           .layout.open[LAYOUT_SHARD] = random_between(0, 1),
                                           .recompute_auto = true,
                                           .recompute_inside = true,
                                           .schedules = 1u << SCHEDULE_GPIPE | 1u << SCHEDULE_1F1B |
                                                        1u << SCHEDULE_ZB_H1};
}

static void instance_clear(struct instance *in)
{
    model_clear(&in->model);
    cluster_clear(&in->cluster);
}

/* The best that the loop has seen. */
struct loop {
    const struct instance *in;
    double rate;      /* of the best plan that fits, samples per second; 0: none */
    struct plan best; /* its numbers; no arrays */
    int64_t plans, fitting;
};

static void look_at(struct loop *loop, struct plan *plan)
{
    const struct setting setting = setting_of(loop->in);
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    int64_t memory[MOST_RANKS], traffic_ns;
    loop->plans++;
    if (plan_lower(&setting, plan, &workload, &full, NULL) == OK) {
        assert_int_equal(schedule_memory(&full, &workload, memory, NULL), OK);
        bool fits = true;
        for (int k = 0; k < plan->num_ranks; k++)
            fits &= memory[k] <= loop->in->cluster.devices[0].mem_bytes;
        if (fits) {
            assert_int_equal(schedule_time(&full, &workload, plan, &time, NULL), OK);
            assert_int_equal(workload_traffic_ns(&workload, plan, &traffic_ns, NULL), OK);
            const double step = fmax(fmax((double)time.step_ns, (double)traffic_ns), 1);
            const double rate = (double)plan->num_pipelines * (double)plan->batch / step * 1e9;
            loop->fitting++;
            if (rate > loop->rate) {
                loop->rate = rate;
                loop->best = *plan;
            }
        }
    }
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
}

/* Any number of a stage's layers may run again, from its first one on. */
static void loop_layers(struct loop *loop, struct plan *plan, int s)
{
    const struct model *model = &loop->in->model;
    const struct plan_target *target = loop->in->options.target;
    if (plan->recompute != RECOMPUTE_LAYER || s == plan->num_stages) {
        int most = 0;
        bool equal = true;
        for (int k = 0; k < s; k++)
            most = plan->recompute_layers[k] > most ? plan->recompute_layers[k] : most;
        for (int k = 0; k < s; k++) {
            const int has = recompute_layers_of(model, plan, k);
            equal = equal && plan->recompute_layers[k] == (most < has ? most : has);
        }
        if (equal || !target || !target->equal_layers)
            look_at(loop, plan);
        return;
    }
    const bool all = loop->in->options.recompute_layers == INT_MAX;
    const int has = recompute_layers_of(model, plan, s);
    for (int n = all ? has : 0; n <= (all ? has : model->num_layers); n++) {
        plan->recompute_layers[s] = n;
        loop_layers(loop, plan, s + 1);
    }
}

static void loop_cuts(struct loop *loop, struct plan *plan, int s)
{
    const int last = loop->in->model.num_items - (plan->num_stages - s);
    const struct item *items = loop->in->model.items;
    if (s == plan->num_stages) {
        plan->first_item[s] = loop->in->model.num_items;
        for (int k = 1; k < s && loop->in->options.target; k++)
            if (items[plan->first_item[k]].layer == items[plan->first_item[k] - 1].layer)
                return;
        loop_layers(loop, plan, 0);
        return;
    }
    for (plan->first_item[s] = plan->first_item[s - 1] + 1; plan->first_item[s] <= last;
         plan->first_item[s]++)
        loop_cuts(loop, plan, s + 1);
}

/* Frameworks on GPUs start no recompute early, and elapse train runs whole stages only. */
static bool mode_is_tried(const struct instance *in, enum recompute_mode mode)
{
    const struct plan_target *target = in->options.target;
    return (mode == RECOMPUTE_NEVER || recompute_early(mode) != in->options.recompute_inside) &&
           (!target || (target->recomputes >> mode & 1)) &&
           (!recompute_whole_backward(mode) || mode == RECOMPUTE_LAYER ||
            framework_reruns(in->model.framework, recompute_parts(mode)));
}

/* Everything below a layout, a length and a number of replicas. */
static void loop_counts(struct loop *loop, struct plan *plan)
{
    const struct instance *in = loop->in;
    struct microbatches *counts = NULL;
    int num;
    assert_int_equal(planner_microbatches(plan->batch, plan->num_ranks, &counts, &num, NULL), OK);
    struct rank_places *places;
    const int *place;
    int num_places;
    assert_int_equal(
        rank_places_new(&in->cluster, layout_tensor(&plan->layout), false, &places, NULL), OK);
    if (in->options.target)
        rank_places_by_stage(places);
    assert_int_equal(
        rank_places_of(places, plan->num_ranks, plan->num_pipelines, &place, &num_places, NULL),
        OK);
    for (int p = 0; p < num_places; p++) {
        assert_int_equal(rank_places_map(places, place[p], plan->num_ranks, plan->num_pipelines,
                                         plan->device, NULL),
                         OK);
        for (int i = 0; i < num; i++)
            for (int kind = 0; kind < SCHEDULE_SEARCH; kind++)
                for (int mode = 0; mode < RECOMPUTE_MODE_COUNT; mode++) {
                    if (!(in->options.schedules >> kind & 1) ||
                        (in->options.equal_microbatches && counts[i].last_size != counts[i].size) ||
                        !mode_is_tried(in, (enum recompute_mode)mode))
                        continue;
                    plan->microbatches = counts[i];
                    plan->schedule = (enum schedule_kind)kind;
                    plan->recompute = (enum recompute_mode)mode;
                    loop_cuts(loop, plan, 1);
                }
    }
    rank_places_free(places);
    free(counts);
}

static void loop_layouts(struct loop *loop)
{
    const struct instance *in = loop->in;
    const int modes = in->options.layout.open[LAYOUT_SHARD] ? SHARD_MODE_COUNT : 1;
    int cut[8] = {0}, device[MOST_RANKS], layers[8] = {0};
    for (int T = 1; T <= in->cluster.num_devices; T++) {
        const bool tokens = in->options.layout.at.sequence_parallel && T > 1;
        const int groups = tensor_group_list(&in->cluster, T, NULL);
        if (model_shard_check(&in->model, T, tokens, NULL) != OK)
            continue;
        const unsigned shards = in->options.target ? in->options.target->shards : ~0u;
        for (int shard = 0; shard < modes; shard++)
            for (int K = 1; K <= groups; K++)
                for (int R = shard == SHARD_NONE ? 1 : 2; K * R <= groups && (shards >> shard & 1);
                     R++) {
                    struct plan plan = {.num_ranks = K,
                                        .chunks = 1,
                                        .num_stages = K,
                                        .num_pipelines = R,
                                        .layout.tensor = T,
                                        .layout.sequence_parallel = tokens,
                                        .layout.shard = (enum shard_mode)shard,
                                        .batch = in->problem.batch,
                                        .first_item = cut,
                                        .device = device,
                                        .recompute_layers = layers,
                                        .bucket_bytes = in->problem.bucket_bytes,
                                        .clip = in->problem.clip,
                                        .optim_bytes_per_param = 8};
                    loop_counts(loop, &plan);
                    /* and in groups of a node, of which others have copies */
                    plan.layout.shard_group = in->cluster.num_devices / in->cluster.num_nodes / T;
                    if (in->cluster.num_nodes > 1 && in->options.layout.open[LAYOUT_SHARD] &&
                        !in->options.target && shard >= SHARD_GRADIENTS &&
                        plan.layout.shard_group > 1 && R % plan.layout.shard_group == 0 &&
                        R > plan.layout.shard_group)
                        loop_counts(loop, &plan);
                }
    }
}

static void planner_solve__equals_a_loop_over_groups_shards_and_modes(void **state)
{
    (void)state;
    int solved = 0, targets = 0, groups = 0, modes[RECOMPUTE_MODE_COUNT] = {0}, shards = 0;
    for (int trial = 0; trial < 200; trial++) {
        struct instance in;
        struct planner_result result = {0};
        struct err err = {0};
        random_state = (uint64_t)trial * 99991 + 7;
        instance_random(&in);
        in.options.recompute_inside = trial % 4 != 0;
        if (trial % 4 == 1) {
            const char *const names[] = {"torchtitan", "megatron"};
            assert_int_equal(target_find(names[trial % 8 == 1], &in.options.target, NULL), OK);
            in.options.schedules &= in.options.target->schedules;
            in.options.equal_microbatches = true;
            if (in.options.target->all_layers)
                in.options.recompute_layers = INT_MAX;
            targets++;
        }
        struct loop loop = {.in = &in};
        loop_layouts(&loop);
        const enum status rc = planner_solve(&in.problem, &in.options, &result, &err);
        const struct plan *best = &loop.best, *got = &result.plan;
        if (rc != (loop.fitting == 0 ? ERR_INFEASIBLE : OK) ||
            (rc == OK && fabs(result.samples_per_s - loop.rate) > 1e-12 * loop.rate))
            fail_msg(
                "trial %d: planner %d %.17g (K %d R %d T %d M %d %s %s %s), loop %.17g (K %d R "
                "%d T %d M %d %s %s %s), %lld of %lld fit",
                trial, rc, result.samples_per_s, got->num_ranks, got->num_pipelines,
                got->layout.tensor, got->microbatches.count, schedule_kind_name(got->schedule),
                recompute_mode_name(got->recompute), shard_mode_name(got->layout.shard), loop.rate,
                best->num_ranks, best->num_pipelines, best->layout.tensor, best->microbatches.count,
                schedule_kind_name(best->schedule), recompute_mode_name(best->recompute),
                shard_mode_name(best->layout.shard), (long long)loop.fitting,
                (long long)loop.plans);
        if (rc == OK) {
            solved++;
            groups += got->layout.tensor > 1;
            shards += got->layout.shard != SHARD_NONE;
            modes[got->recompute]++;
        }
        planner_result_clear(&result);
        instance_clear(&in);
    }
    assert_true(targets == 50 && solved > 80 && groups > 10 && shards > 10 &&
                modes[RECOMPUTE_SELECTIVE] > 3 && modes[RECOMPUTE_LAYER] > 3 &&
                modes[RECOMPUTE_STAGE_EARLY] > 0 && modes[RECOMPUTE_NORMS] > 0 &&
                modes[RECOMPUTE_OP] > 0);
}

/* A layout can be refused before its search begins: by its group, or by what the options ask. */
static void planner_solve__says_why_when_layouts_are_refused_early(void **state)
{
    (void)state;
    static const char *const why[] = {"cannot cut", "does not fit", "experts"};
    for (int i = 0; i < 3; i++) {
        struct instance in;
        struct planner_result result = {0};
        struct err err = {0};
        random_state = 7;
        instance_random(&in);
        in.options.layout.open[LAYOUT_SHARD] = true;
        if (i == 0)
            in.options.num_ranks = in.model.num_items + 1;
        else if (i == 1)
            in.options.num_ranks = 5;
        else
            in.options.layout.at.expert = 2;
        assert_int_equal(planner_solve(&in.problem, &in.options, &result, &err), ERR_INFEASIBLE);
        if (!strstr(err.msg, why[i]))
            fail_msg("refusal %d: %s", i, err.msg);
        instance_clear(&in);
    }
}

/* The answer on equal nodes, as many as a batch of `batch` samples can use or `times` as many. */
static void answer_on_nodes(int64_t times, int64_t batch, uint64_t seed,
                            struct planner_result *result)
{
    struct instance in;
    struct err err = {0};
    random_state = seed;
    instance_random(&in);
    for (int d = 1; d < in.cluster.num_devices; d++) {
        const int node = in.cluster.devices[d].node;
        in.cluster.devices[d] = in.cluster.devices[0];
        in.cluster.devices[d].node = node;
    }
    const int width = in.cluster.num_devices / in.cluster.num_nodes,
              of_pipeline = (in.model.num_items + width - 1) / width;
    assert_int_equal(cluster_set_nodes(&in.cluster, (int)(times * batch * of_pipeline), NULL), OK);
    in.problem.batch = batch;
    in.problem.batch_mode = BATCH_GLOBAL;
    in.options.num_ranks = in.options.num_replicas = in.options.num_microbatches = AUTO;
    in.options.microbatch_size = AUTO;
    in.options.layout.open[LAYOUT_TENSOR] = false;
    in.options.layout.at.tensor = 1;
    if (planner_solve(&in.problem, &in.options, result, &err) != OK)
        printf("# seed %d: %s\n", (int)seed, err.msg);
    instance_clear(&in);
}

static void planner_solve__searches_no_devices_that_the_batch_cannot_use(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct planner_result few = {0}, many = {0};
        answer_on_nodes(1, 2, seed, &few);
        answer_on_nodes(3, 2, seed, &many);
        assert_true(few.samples_per_s == many.samples_per_s);
        assert_int_equal(few.candidates, many.candidates);
        assert_int_equal(few.searched.judged, many.searched.judged);
        assert_int_equal(few.lower_bound_ns, many.lower_bound_ns);
        for (int i = 0; i < few.plan.num_ranks * few.plan.num_pipelines; i++)
            assert_int_equal(few.plan.device[i], many.plan.device[i]);
        planner_result_clear(&few);
        planner_result_clear(&many);
    }
}

/* A judge that finds every plan three times slower than the planner. */
static enum status thrice(void *ctx, const struct plan *plan, int64_t *step_ns, struct err *err)
{
    (void)ctx, (void)err;
    *step_ns = 3 * plan->step_ns;
    return OK;
}

/* A watch: the count of cuts only grows. */
static bool grows(void *ctx, const struct planner_progress *progress)
{
    int64_t *evaluated = ctx;
    assert_true(progress->evaluated >= *evaluated);
    *evaluated = progress->evaluated;
    return true;
}

/* Plans that the planner left out because of the best one are looked for once more when the judge finds
 * that one slower. */
static void planner_solve__counts_on_when_a_layout_is_searched_once_more(void **state)
{
    (void)state;
    int64_t again = 0;
    for (int trial = 0; trial < 20; trial++) {
        struct instance in;
        instance_random(&in);
        for (int with_judge = 0; with_judge < 2; with_judge++) {
            struct planner_result result = {0};
            int64_t evaluated = 0;
            in.options.judge = (struct planner_judge){
                .step_ns = with_judge ? thrice : NULL, .watch = grows, .watch_ctx = &evaluated};
            if (planner_solve(&in.problem, &in.options, &result, NULL) == OK)
                again += with_judge ? result.searched.judged : -result.searched.judged;
            planner_result_clear(&result);
        }
        instance_clear(&in);
    }
    assert_true(again > 0);
}

static bool no_time(void *ctx, const struct planner_progress *progress)
{
    (void)ctx, (void)progress;
    return false;
}

/* A search that had no time for any plan does not say that none exists; where it is known that none
 * does, it says so. */
static void planner_solve__tells_no_plan_yet_from_no_plan(void **state)
{
    (void)state;
    int num[2] = {0};
    for (int trial = 0; trial < 60; trial++) {
        struct instance in;
        instance_random(&in);
        in.problem.with_device_0 = true; /* without textbooks, which take the time they need */
        for (int hurried = 0; hurried < 2; hurried++) {
            struct planner_result result = {0};
            struct err err = {0};
            in.options.judge = (struct planner_judge){.watch = hurried ? no_time : NULL};
            const enum status rc = planner_solve(&in.problem, &in.options, &result, &err);
            assert_int_not_equal(rc, hurried ? OK : ERR_UNFINISHED);
            num[hurried] += rc == (hurried ? ERR_UNFINISHED : OK);
            if (rc == ERR_UNFINISHED)
                assert_non_null(strstr(err.msg, " yet: "));
            planner_result_clear(&result);
        }
        instance_clear(&in);
    }
    assert_true(num[0] > 0 && num[1] >= num[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planner_solve__tells_no_plan_yet_from_no_plan),
        cmocka_unit_test(planner_solve__says_why_when_layouts_are_refused_early),
        cmocka_unit_test(planner_solve__equals_a_loop_over_groups_shards_and_modes),
        cmocka_unit_test(planner_solve__searches_no_devices_that_the_batch_cannot_use),
        cmocka_unit_test(planner_solve__counts_on_when_a_layout_is_searched_once_more),
    };
    return cmocka_run_group_tests_name("planner over layouts", tests, NULL, NULL);
}
