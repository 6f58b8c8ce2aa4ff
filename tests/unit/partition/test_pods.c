/* The planner on networks of three levels, against brute force: two pods of two nodes of two devices, every
 * K, R and T, every place of the ranks, every cut. */
#include <math.h>

#include "partition/layout/tensor_group.h"
#include "partition/search/planner.h"
#include "partition/step/lower.h"
#include "partition/step/schedule_time.h"
#include "partition/step/traffic.h"
#include "tests/unit/test.h"

enum { DEVICES = 8, M = 4 };
#define NEARLY 1.03

struct bench {
    struct model model;
    struct cluster cluster;
    struct cost cost;
};

/* A small Llama whose passes take as long as their parameters say, on slow links. */
static enum status params_ns(const void *ctx, const struct model *model, int item, enum pass pass,
                             int64_t samples, const struct device *device, int64_t *ns,
                             bool *extrapolated, struct err *err)
{
    (void)ctx, (void)device, (void)extrapolated, (void)err;
    *ns = pass == PASS_UPDATE ? 0 : model->items[item].params * samples;
    return OK;
}

static void bench_init(struct bench *b, double pod_uplink, int64_t pod_latency_ns)
{
    memset(b, 0, sizeof *b);
    assert_int_equal(
        model_parse("llama:layers=2,hidden=64,heads=4,mlp=128,seq=16,vocab=64", &b->model, NULL),
        OK);
    assert_int_equal(cluster_grid(4, 2, &b->cluster, NULL), OK);
    b->cluster.pod_nodes = 2;
    b->cluster.pod_uplink_bytes_per_s = pod_uplink;
    b->cluster.pod_latency_ns = pod_latency_ns;
    for (int n = 0; n < 4; n++)
        b->cluster.uplink_bytes_per_s[n] = 4e9;
    assert_int_equal(cluster_check(&b->cluster, NULL), OK);
    b->cost = (struct cost){.source = COST_ROOFLINE, .item_ns = params_ns};
}

static void bench_clear(struct bench *b)
{
    model_clear(&b->model);
    cluster_clear(&b->cluster);
}

struct brute {
    const struct bench *bench;
    struct setting own; /* of the groups */
    struct plan plan;   /* its arrays are here */
    int first[DEVICES]; /* the first device of each group */
    int num_groups, places;
    bool used[DEVICES]; /* groups */
    int device[DEVICES], cut[16];
    double best;
};

static void weigh(struct brute *b)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    int64_t traffic_ns;
    assert_int_equal(plan_lower(&b->own, &b->plan, &workload, &full, NULL), OK);
    assert_int_equal(schedule_time(&full, &workload, &b->plan, &time, NULL), OK);
    assert_int_equal(workload_traffic_ns(&workload, &b->plan, &traffic_ns, NULL), OK);
    const int64_t step_ns = time.step_ns > traffic_ns ? time.step_ns : traffic_ns;
    b->best = fmax(b->best, (double)plan_samples(&b->plan) * 1e9 / (double)step_ns);
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
}

static void try_cuts(struct brute *b, int s)
{
    const int n = b->bench->model.num_items;
    if (s == b->plan.num_stages) {
        b->cut[s] = n;
        weigh(b);
        return;
    }
    for (int a = b->cut[s - 1] + 1; a <= n - (b->plan.num_stages - s); a++) {
        b->cut[s] = a;
        try_cuts(b, s + 1);
    }
}

/* Whether a group before this one could stand in its place: of equal nodes and pods of which nothing is
 * used yet the first is enough. */
static bool has_equal(const struct brute *b, int group)
{
    const struct cluster *c = &b->bench->cluster;
    for (int other = 0; other < group; other++) {
        const int nodes[2] = {c->devices[b->first[other]].node, c->devices[b->first[group]].node};
        const int pods[2] = {cluster_pod(c, nodes[0]), cluster_pod(c, nodes[1])};
        bool fresh = !b->used[other], fresh_pod = fresh;
        for (int g = 0; g < b->num_groups; g++)
            for (int side = 0; side < 2 && b->used[g]; side++) {
                const int node = c->devices[b->first[g]].node;
                fresh = fresh && node != nodes[side];
                fresh_pod = fresh_pod && cluster_pod(c, node) != pods[side];
            }
        if (!b->used[other] && (nodes[0] == nodes[1] || (fresh && pods[0] == pods[1]) || fresh_pod))
            return true;
    }
    return false;
}

static void try_places(struct brute *b, int i)
{
    if (i == b->plan.num_ranks * b->plan.num_pipelines) {
        b->places++;
        try_cuts(b, 1);
        return;
    }
    for (int g = 0; g < b->num_groups; g++) {
        if (b->used[g] || has_equal(b, g))
            continue;
        b->used[g] = true;
        b->device[i] = b->first[g];
        try_places(b, i + 1);
        b->used[g] = false;
    }
}

/* The best rate of all plans with K, R and T, and the number of their places. */
static double brute_force(const struct bench *bench, int K, int R, int T, int *places)
{
    const struct setting whole = {&bench->model, &bench->cluster, &bench->cost};
    const struct layout layout = {.tensor = T};
    struct tensor_group *group = NULL;
    struct brute b = {.bench = bench};
    assert_int_equal(tensor_group_new(&whole, &layout, &group, NULL), OK);
    b.own = tensor_group_setting(group, &whole);
    b.num_groups = tensor_group_list(&bench->cluster, T, b.first);
    b.plan = (struct plan){.num_ranks = K,
                           .chunks = 1,
                           .num_pipelines = R,
                           .layout.tensor = T,
                           .batch = DEVICES / R,
                           .microbatches = microbatches_of(DEVICES / R, M / R > 0 ? M / R : 1),
                           .schedule = SCHEDULE_1F1B,
                           .num_stages = K,
                           .first_item = b.cut,
                           .device = b.device,
                           .optim_bytes_per_param = 8};
    try_places(&b, 0);
    *places = b.places;
    tensor_group_free(group);
    return b.best;
}

/* The planner's best plan is the best of all. With K, R and T given it is nearly so: it looks through MOST_PLACES
 * (rank_places.c) of 315 places. */
static void planner_solve__equals_brute_force_on_pods(void **state)
{
    (void)state;
    static const struct {
        double pod_uplink;
        int64_t pod_latency_ns;
    } pods[] = {
        {8e9,   0     },
        {1e9,   20000 },
        {2.5e8, 100000}
    };
    int crossing = 0, exact = 0, all = 0;
    for (size_t p = 0; p < sizeof pods / sizeof *pods; p++) {
        struct bench b;
        bench_init(&b, pods[p].pod_uplink, pods[p].pod_latency_ns);
        const struct planner_problem problem = {
            .setting = {&b.model, &b.cluster, &b.cost},
            .batch = DEVICES,
            .batch_mode = BATCH_GLOBAL,
            .optim_bytes_per_param = 8
        };
        struct planner_options options = {
            .num_microbatches = M, .schedules = 1u << SCHEDULE_1F1B, .chunks = 1};
        for (int T = 1; T <= 2; T++) {
            double most = 0;
            for (int K = 1; K <= DEVICES / T && K <= b.model.num_items; K++)
                for (int R = 1; R * K <= DEVICES / T; R *= 2) {
                    struct planner_result result = {0};
                    int places = 0;
                    const double best = brute_force(&b, K, R, T, &places);
                    options.num_ranks = K;
                    options.num_replicas = R;
                    options.layout.at.tensor = T;
                    assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
                    exact += result.samples_per_s >= best * (1 - 1e-12);
                    all++;
                    if (result.samples_per_s < best / NEARLY)
                        fail_msg("pods %zu, K %d, R %d, T %d: planner %.17g, %d places %.17g", p, K,
                                 R, T, result.samples_per_s, places, best);
                    most = fmax(most, best);
                    planner_result_clear(&result);
                }
            struct planner_result result = {0};
            options.num_ranks = options.num_replicas = AUTO;
            assert_int_equal(planner_solve(&problem, &options, &result, NULL), OK);
            assert_true(fabs(result.samples_per_s - most) <= 1e-12 * most);
            crossing += plan_num_devices(&result.plan) > DEVICES / 2;
            planner_result_clear(&result);
        }
        bench_clear(&b);
    }
    assert_true(all - exact <= all / 10);
    assert_in_range(crossing, 1, 5); /* where the pods' uplink is slow, the plan stays in one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planner_solve__equals_brute_force_on_pods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
