/* Rank maps, the transfers of a change, and survivors that keep their devices. */
#include "partition/plan/autodp.h"
#include "tests/unit/test.h"

static void grid(int nodes, int devices, struct cluster *cluster)
{
    memset(cluster, 0, sizeof *cluster);
    assert_int_equal(cluster_grid(nodes, devices, cluster, NULL), OK);
}

static void chain(int n, struct model *model)
{
    struct item items[16] = {0};
    for (int i = 0; i < n; i++) {
        snprintf(items[i].name, sizeof items[i].name, "i%d", i);
        items[i].kind = ITEM_OPAQUE;
        items[i].layer = i;
        items[i].params = random_between(1, 100);
    }
    items[n - 1].tied_params = random_between(0, 1) * random_between(1, 100);
    memset(model, 0, sizeof *model);
    assert_int_equal(model_explicit("chain", items, n, NULL, 0, false, model, NULL), OK);
    model->num_layers = n;
}

/* A plan on the map, its cut as even as items go. */
static void make_plan(const struct cluster *cluster, const struct model *model, enum rank_map map,
                      int K, int R, int F, enum frozen_placement frozen, struct plan *plan)
{
    int first =
        frozen == FROZEN_FIRST || frozen == FROZEN_CACHED ? model_frozen_items(model, F) : 0;
    *plan = (struct plan){.num_ranks = K,
                          .chunks = 1,
                          .num_pipelines = R,
                          .num_stages = K,
                          .batch = 4,
                          .microbatches = microbatches_of(4, 2),
                          .schedule = SCHEDULE_1F1B,
                          .num_frozen_layers = F,
                          .frozen = frozen,
                          .optim_bytes_per_param = 8};
    plan->first_item = malloc(((size_t)K + 1) * sizeof(int));
    plan->device = malloc((size_t)(K * R) * sizeof(int));
    for (int s = 0; s <= K; s++)
        plan->first_item[s] = first + (model->num_items - first) * s / K;
    assert_int_equal(autodp_map_groups(cluster, map, 1, K, R, plan->device, NULL), OK);
    struct err err = {0};
    if (plan_check(plan, model, cluster, &err) != OK)
        fail_msg("%s", err.msg);
}

static void autodp_map__is_the_papers_on_two_nodes_of_eight(void **state)
{
    (void)state;
    struct cluster c;
    int device[16];
    grid(2, 8, &c);
    for (int K = 1; K <= 8; K *= 2) {
        int R = 16 / K;
        assert_int_equal(autodp_map_groups(&c, MAP_PIPELINE_INSIDE, 1, K, R, device, NULL), OK);
        for (int r = 0; r < R; r++) /* pipeline r of a node owns [r*K, (r+1)*K) */
            for (int k = 0; k < K; k++)
                assert_int_equal(device[r * K + k], r * K + k);
    }
    cluster_clear(&c);
}

static void autodp_map__gives_distinct_devices_for_every_K_and_R(void **state)
{
    (void)state;
    for (int nodes = 1; nodes <= 4; nodes++)
        for (int per_node = 1; per_node <= 5; per_node++) {
            struct cluster c;
            grid(nodes, per_node, &c);
            for (int K = 1; K <= c.num_devices; K++)
                for (int R = 1; R * K <= c.num_devices; R++)
                    for (int map = 0; map < MAP_COUNT; map++) {
                        int device[20], crossing = 0;
                        bool used[20] = {0};
                        assert_int_equal(
                            autodp_map_groups(&c, (enum rank_map)map, 1, K, R, device, NULL), OK);
                        for (int i = 0; i < K * R; i++) {
                            assert_in_range(device[i], 0, c.num_devices - 1);
                            assert_false(used[device[i]]);
                            used[device[i]] = true;
                        }
                        for (int r = 0; r < R; r++)
                            crossing += c.devices[device[r * K]].node !=
                                        c.devices[device[r * K + K - 1]].node;
                        /* only what nodes have left crosses */
                        int inside = nodes * (per_node / K);
                        if (map == MAP_PIPELINE_INSIDE)
                            assert_true(crossing <= (R > inside ? R - inside : 0));
                    }
            int device[1];
            assert_int_equal(
                autodp_map_groups(&c, MAP_PIPELINE_INSIDE, 1, c.num_devices + 1, 1, device, NULL),
                ERR_INFEASIBLE);
            cluster_clear(&c);
        }
}

/* The part of an item that device d must hold under a plan: bit 0 weights, bit 1 optimizer state. */
static int holds(const struct plan *plan, const struct model *model, int d, int item)
{
    int frozen = model_frozen_items(model, plan->num_frozen_layers);
    for (int i = 0; i < plan->num_pipelines * plan->num_ranks; i++) {
        if (plan->device[i] != d)
            continue;
        int k = i % plan->num_ranks;
        bool in_stage = item >= plan->first_item[k] && item < plan->first_item[k + 1];
        bool prefix = item < plan->first_item[0] && k == 0;
        if (in_stage || prefix)
            return item >= frozen ? 3 : 1;
    }
    return 0;
}

static void transition_build__moves_exactly_what_is_lacking(void **state)
{
    (void)state;
    int copies = 0, alone = 0;
    for (int trial = 0; trial < 400; trial++) {
        random_state = (uint64_t)trial + 99;
        struct cluster c;
        struct model model;
        struct plan old, fresh;
        struct transition got = {0};
        int n = (int)random_between(4, 9);
        grid((int)random_between(1, 3), (int)random_between(1, 4), &c);
        chain(n, &model);
        int K0 = (int)random_between(1, c.num_devices < 4 ? c.num_devices : 4), R0, K1, R1;
        R0 = (int)random_between(1, c.num_devices / K0);
        K1 = (int)random_between(1, c.num_devices < 3 ? c.num_devices : 3);
        R1 = (int)random_between(1, c.num_devices / K1);
        int F0 = (int)random_between(0, 1) ? 0 : (int)random_between(1, n - 4 > 0 ? n - 4 : 1);
        F0 = F0 > n - K0 ? 0 : F0;
        int F1 = (int)random_between(F0, n - K1);
        make_plan(&c, &model, (enum rank_map)random_between(0, 1), K0, R0, F0,
                  F0 ? (enum frozen_placement)random_between(FROZEN_FIRST, FROZEN_CACHED)
                     : FROZEN_NONE,
                  &old);
        make_plan(&c, &model, (enum rank_map)random_between(0, 1), K1, R1, F1,
                  F1 ? (enum frozen_placement)random_between(FROZEN_FIRST, FROZEN_CACHED)
                     : FROZEN_NONE,
                  &fresh);
        /* A head that goes on alone takes the table with it, with the state, from the last stage. */
        if (random_between(0, 1))
            assert_int_equal(model_let_head_go_on(&model, NULL), OK);
        const struct model *run = model_at(&model, F1);
        alone += run != &model && F0 == 0;
        assert_int_equal(transition_build(&model, &c, &old, &fresh, &got, NULL), OK);
        int64_t bytes = 0, count = 0, inside = 0;
        int moved = 0;
        for (int d = 0; d < c.num_devices; d++) {
            bool receives = false;
            for (int item = 0; item < n; item++) {
                int have = holds(&old, &model, d, item);
                int want = holds(&fresh, &model, d, item);
                for (int bit = 0; bit < 2; bit++) {
                    /* a move is of the whole item: who has its weights has its state too */
                    bool lacks = (want >> bit & 1) && !have;
                    int found = -1;
                    for (int64_t i = 0; i < got.num_transfers; i++)
                        if (got.transfers[i].to == d && got.transfers[i].item == item &&
                            !got.transfers[i].tied &&
                            (got.transfers[i].kind == TRANSFER_OPTIMIZER) == (bit == 1)) {
                            assert_int_equal(found, -1);
                            found = (int)i;
                        }
                    assert_int_equal(found >= 0, lacks);
                    if (!lacks)
                        continue;
                    const struct transfer *t = &got.transfers[found];
                    assert_int_equal(t->bytes, run->items[item].params * (bit ? 8 : 4));
                    /* the source owns it, and no owner is nearer */
                    assert_true(holds(&old, &model, t->from, item) != 0);
                    bool near = c.devices[t->from].node == c.devices[d].node;
                    for (int o = 0; o < c.num_devices; o++)
                        if (holds(&old, &model, o, item) && c.devices[o].node == c.devices[d].node)
                            assert_true(near);
                    bytes += t->bytes;
                    inside += near ? t->bytes : 0;
                    count++;
                    receives = true;
                }
            }
            /* the last stage's copy of a tied table, where neither table nor copy has been */
            const int copy = run->items[n - 1].tied_params > 0 && fresh.first_item[K1 - 1] > 0 &&
                                     holds(&fresh, &model, d, n - 1) &&
                                     !holds(&old, &model, d, n - 1) && !holds(&old, &model, d, 0)
                                 ? F1 > 0 ? 1 : 3
                                 : 0;
            for (int bit = 0; bit < 2; bit++) {
                int found = 0;
                for (int64_t i = 0; i < got.num_transfers; i++) {
                    const struct transfer *t = &got.transfers[i];
                    if (!t->tied || t->to != d || (t->kind == TRANSFER_OPTIMIZER) != (bit == 1))
                        continue;
                    found++;
                    assert_int_equal(t->bytes, model.items[n - 1].tied_params * (bit ? 8 : 4));
                    assert_true(holds(&old, &model, t->from, 0) != 0);
                    bytes += t->bytes;
                    inside += c.devices[t->from].node == c.devices[d].node ? t->bytes : 0;
                    count++;
                    receives = true;
                }
                assert_int_equal(found, copy >> bit & 1);
                copies += found;
            }
            moved += receives;
        }
        assert_int_equal(got.num_transfers, count);
        assert_int_equal(got.bytes, bytes);
        assert_int_equal(got.bytes_inside, inside);
        assert_int_equal(got.bytes_between, bytes - inside);
        assert_int_equal(got.moved_devices, moved);
        assert_int_equal(got.ns > 0, count > 0);
        transition_clear(&got);
        transition_clear(&got);
        plan_clear(&old);
        plan_clear(&fresh);
        model_clear(&model);
        cluster_clear(&c);
    }
    assert_true(copies > 20 && alone > 20);
}

static void transition_build__takes_the_busiest_link(void **state)
{
    (void)state;
    struct cluster c;
    struct model model;
    struct plan old, fresh;
    struct transition got = {0};
    grid(2, 2, &c);
    c.uplink_latency_ns = 7000;
    c.uplink_bytes_per_s[0] = 1e9;
    chain(2, &model);
    model.items[0].params = model.items[1].params = 250000;
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 1, 0, FROZEN_NONE, &old); /* device 0 has all */
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 4, 0, FROZEN_NONE, &fresh);
    assert_int_equal(transition_build(&model, &c, &old, &fresh, &got, NULL), OK);
    /* 6 MB to each of three; two of them over the uplink of node 0 at 1 GB/s: 12 ms */
    assert_int_equal(got.bytes, 3 * 6000000);
    assert_int_equal(got.bytes_between, 2 * 6000000);
    assert_int_equal(got.ns, 12000000 + 7000);
    transition_clear(&got);
    plan_clear(&fresh);
    /* two owners share the work: tensor by tensor */
    plan_clear(&old);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 2, 0, FROZEN_NONE, &old);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 4, 0, FROZEN_NONE, &fresh);
    assert_int_equal(transition_build(&model, &c, &old, &fresh, &got, NULL), OK);
    int64_t sent[2] = {0};
    for (int64_t i = 0; i < got.num_transfers; i++)
        sent[got.transfers[i].from] += got.transfers[i].bytes;
    assert_int_equal(sent[0] + sent[1], 12000000);
    assert_true(sent[0] >= 5000000 && sent[1] >= 5000000);
    transition_clear(&got);
    plan_clear(&fresh);
    plan_clear(&old);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 1, 0, FROZEN_NONE, &old);
    /* nothing changes: nothing moves */
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 1, 0, FROZEN_NONE, &fresh);
    assert_int_equal(transition_build(&model, &c, &old, &fresh, &got, NULL), OK);
    assert_int_equal(got.num_transfers, 0);
    assert_int_equal(got.ns, 0);
    transition_clear(&got);
    plan_clear(&fresh);
    plan_clear(&old);
    /* the weights of an item that trains again move; its old owner has no state of it */
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 1, 1, FROZEN_SPREAD, &old);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 1, 2, 0, FROZEN_NONE, &fresh);
    assert_int_equal(transition_build(&model, &c, &old, &fresh, &got, NULL), OK);
    int64_t state_of[2] = {0};
    for (int64_t i = 0; i < got.num_transfers; i++)
        if (got.transfers[i].kind == TRANSFER_OPTIMIZER)
            state_of[got.transfers[i].item] += got.transfers[i].bytes;
    assert_int_equal(state_of[0], 0);
    assert_int_equal(state_of[1], 2000000);
    assert_int_equal(got.bytes, 2 * 1000000 + 2000000);
    transition_clear(&got);
    plan_clear(&fresh);
    plan_clear(&old);
    model_clear(&model);
    cluster_clear(&c);
}

static int64_t moved_bytes(const struct model *model, const struct cluster *c,
                           const struct plan *old, const struct plan *fresh, int *moves)
{
    struct transition got = {0};
    assert_int_equal(transition_build(model, c, old, fresh, &got, NULL), OK);
    int64_t bytes = got.bytes;
    *moves = got.moved_devices;
    transition_clear(&got);
    return bytes;
}

/* Every renaming of the devices that keeps nodes together, by recursion. */
static void every_renaming(const struct model *model, const struct cluster *c,
                           const struct plan *old, struct plan *fresh, const int *start,
                           int *renamed, int d, int64_t *bytes, int *moves)
{
    if (d == c->num_devices) {
        int got_moves;
        for (int i = 0; i < fresh->num_ranks * fresh->num_pipelines; i++)
            fresh->device[i] = renamed[start[i]];
        int64_t got = moved_bytes(model, c, old, fresh, &got_moves);
        if (got < *bytes || (got == *bytes && got_moves < *moves)) {
            *bytes = got;
            *moves = got_moves;
        }
        return;
    }
    for (int to = 0; to < c->num_devices; to++) {
        bool free_here = true;
        for (int e = 0; e < d; e++) {
            free_here &= renamed[e] != to;
            /* devices of one node go to one node */
            bool together = c->devices[e].node == c->devices[d].node;
            free_here &= together == (c->devices[renamed[e]].node == c->devices[to].node);
        }
        if (!free_here)
            continue;
        renamed[d] = to;
        every_renaming(model, c, old, fresh, start, renamed, d + 1, bytes, moves);
    }
}

static void autodp_keep_devices__moves_least_when_compared_with_every_renaming(void **state)
{
    (void)state;
    int gained = 0;
    for (int trial = 0; trial < 150; trial++) {
        random_state = (uint64_t)trial * 31 + 7;
        struct cluster c;
        struct model model;
        struct plan old, fresh;
        int n = (int)random_between(4, 8);
        int nodes = (int)random_between(1, 3),
            per_node = nodes == 1 ? (int)random_between(1, 5) : (int)random_between(1, 3);
        if (nodes == 3)
            per_node = (int)random_between(1, 2);
        grid(nodes, per_node, &c);
        chain(n, &model);
        int K0 = (int)random_between(1, c.num_devices < 4 ? c.num_devices : 4);
        int K1 = (int)random_between(1, c.num_devices < 4 ? c.num_devices : 4);
        int R0 = (int)random_between(1, c.num_devices / K0),
            R1 = (int)random_between(1, c.num_devices / K1);
        make_plan(&c, &model, (enum rank_map)random_between(0, 1), K0, R0, 0, FROZEN_NONE, &old);
        int F1 = random_between(0, 1) ? 0 : 1;
        make_plan(&c, &model, (enum rank_map)random_between(0, 1), K1, R1, n - K1 >= 1 ? F1 : 0,
                  n - K1 >= 1 && F1 ? FROZEN_FIRST : FROZEN_NONE, &fresh);
        /* where the old plan's devices happen to lie after earlier changes */
        for (int i = K0 * R0 - 1; i > 0; i--) {
            int j = (int)random_between(0, i), swap = old.device[i];
            old.device[i] = old.device[j];
            old.device[j] = swap;
        }
        int start[16], renamed[16], moves = 1 << 30, got_moves, plain_moves;
        int64_t bytes = INT64_MAX;
        memcpy(start, fresh.device, (size_t)(K1 * R1) * sizeof *start);
        int64_t plain = moved_bytes(&model, &c, &old, &fresh, &plain_moves);
        every_renaming(&model, &c, &old, &fresh, start, renamed, 0, &bytes, &moves);
        memcpy(fresh.device, start, (size_t)(K1 * R1) * sizeof *start);
        assert_int_equal(autodp_keep_devices(&model, &c, &old, false, &fresh, NULL), OK);
        assert_int_equal(plan_check(&fresh, &model, &c, NULL), OK);
        assert_int_equal(moved_bytes(&model, &c, &old, &fresh, &got_moves), bytes);
        assert_int_equal(got_moves, moves);
        gained += bytes < plain;
        plan_clear(&old);
        plan_clear(&fresh);
        model_clear(&model);
        cluster_clear(&c);
    }
    assert_true(gained > 30);
}

static void autodp_keep_devices__never_mixes_unlike_devices(void **state)
{
    (void)state;
    struct cluster c;
    struct model model;
    struct plan old, fresh;
    grid(1, 4, &c);
    c.devices[1].speed = 2;
    chain(6, &model);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 4, 1, 0, FROZEN_NONE, &old);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 4, 1, 0, FROZEN_NONE, &fresh);
    int swapped[] = {1, 0, 2, 3};
    memcpy(old.device, swapped, sizeof swapped);
    assert_int_equal(autodp_keep_devices(&model, &c, &old, false, &fresh, NULL), OK);
    assert_int_equal(fresh.device[1], 1); /* the fast device keeps the stage cut for it */
    plan_clear(&old);
    plan_clear(&fresh);
    model_clear(&model);
    cluster_clear(&c);
}

/* Stages of 6 GB each on 1,024 devices. */
static void autodp_keep_devices__takes_large_models_on_many_devices(void **state)
{
    (void)state;
    struct cluster c;
    struct model model;
    struct plan old, fresh;
    struct err err = {0};
    grid(128, 8, &c);
    c.devices[9].speed = 2; /* its node is like no other */
    chain(8, &model);
    for (int i = 0; i < 8; i++)
        model.items[i].params = 500000000 + i;
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 8, 128, 0, FROZEN_NONE, &old);
    make_plan(&c, &model, MAP_PIPELINE_INSIDE, 8, 127, 0, FROZEN_NONE, &fresh);
    for (int i = 0; i < 8; i++) { /* the second node's pipeline the other way round */
        old.device[8 + i] = 15 - i;
        fresh.device[8 * i] = 8 * i + 7;
        fresh.device[8 * i + 7] = 8 * i;
    }
    int moves;
    if (autodp_keep_devices(&model, &c, &old, false, &fresh, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(plan_check(&fresh, &model, &c, NULL), OK);
    assert_int_equal(fresh.device[8 + 1], 9); /* cut for the fast one */
    /* alike, the others take back what they had; of the second node but a pair stays */
    moved_bytes(&model, &c, &old, &fresh, &moves);
    assert_int_equal(moves, 2);
    plan_clear(&old);
    plan_clear(&fresh);
    model_clear(&model);
    cluster_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(autodp_map__is_the_papers_on_two_nodes_of_eight),
        cmocka_unit_test(autodp_map__gives_distinct_devices_for_every_K_and_R),
        cmocka_unit_test(transition_build__moves_exactly_what_is_lacking),
        cmocka_unit_test(transition_build__takes_the_busiest_link),
        cmocka_unit_test(autodp_keep_devices__moves_least_when_compared_with_every_renaming),
        cmocka_unit_test(autodp_keep_devices__never_mixes_unlike_devices),
        cmocka_unit_test(autodp_keep_devices__takes_large_models_on_many_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
