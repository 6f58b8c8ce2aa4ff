#include "profiles/cost/profile_cost.h"

#include <unistd.h>

#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

/* --- curves ----------------------------------------------------------------------------------- */

/* Isotonic regression by its min-max formula: y_i = max over a <= i of min over b >= i of the
 * weighted mean of a..b (Robertson et al. 1988). Slow and obvious. */
static double isotonic(const double *y, const double *w, int n, int i)
{
    double highest = -INFINITY;
    for (int a = 0; a <= i; a++) {
        double lowest = INFINITY;
        for (int b = i; b < n; b++) {
            double sum = 0, weight = 0;
            for (int k = a; k <= b; k++) {
                sum += y[k] * w[k];
                weight += w[k];
            }
            lowest = fmin(lowest, sum / weight);
        }
        highest = fmax(highest, lowest);
    }
    return highest;
}

static void curve_build__equals_minmax_formula(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        double x[12], y[12], w[12];
        struct curve curve = {0};
        int n = 1 + (int)random_below(12);
        for (int i = 0; i < n; i++) {
            x[i] = i * i + 1;
            y[i] = 100 * random_unit();
            w[i] = (double)random_between(1, 9);
        }
        assert_int_equal(curve_build(x, y, w, n, &curve, NULL), OK);
        assert_int_equal(curve.n, n);
        for (int i = 0; i < n; i++)
            assert_true(fabs(curve.y[i] - isotonic(y, w, n, i)) < 1e-9);
        /* Between and beyond: never falling, and flagged exactly outside. */
        double before = -INFINITY;
        for (double at_x = 0; at_x < 200; at_x += 0.37) {
            bool beyond = false;
            double got = curve_at(&curve, at_x, &beyond);
            assert_true(got >= before - 1e-9 && got >= 0);
            assert_int_equal(beyond, at_x < x[0] || at_x > x[n - 1]);
            before = got;
        }
        curve_clear(&curve);
    }
}

static void curve_at__goes_through_points_and_lines(void **state)
{
    (void)state;
    const double x[] = {8, 1, 2, 2}, y[] = {80, 10, 19, 21}, w[] = {1, 1, 1, 1};
    struct curve curve = {0};
    bool beyond = false;
    assert_int_equal(curve_build(x, y, w, 4, &curve, NULL), OK);
    assert_int_equal(curve.n, 3);
    assert_true(curve_at(&curve, 1, &beyond) == 10);
    assert_true(curve_at(&curve, 2, &beyond) == 20);
    assert_true(curve_at(&curve, 5, &beyond) == 50);
    assert_true(curve_at(&curve, 8, &beyond) == 80);
    assert_false(beyond);
    assert_true(curve_at(&curve, 16, &beyond) == 160);
    assert_true(beyond);
    beyond = false;
    assert_true(curve_at(&curve, 0.5, &beyond) == 5);
    assert_true(beyond);
    curve_clear(&curve);
}

/* --- profiles --------------------------------------------------------------------------------- */

static void add_pass(struct profile *profile, const struct layer_key *key, const char *pass,
                     int64_t samples, int64_t threads, int64_t ranks, double ns)
{
    struct layer_row row = {
        .backend = "cpu",
        .dtype = "fp32",
        .threads = threads,
        .ranks = ranks,
        .key = *key,
        .samples = samples,
        .ns = {ns, ns, ns, 9}
    };
    strcpy(row.pass, pass);
    assert_int_equal(profile_add_layer(profile, &row, NULL), OK);
}

/* Every item of a model costs per_sample x (1 + its index among the distinct) a pass and sample,
 * what is left of the input half behind frozen layers half of that, and a forward without stash
 * three quarters; of the third distinct item as much again, which noise alone can be. */
static void measure(struct profile *profile, const char *name, const char *kind,
                    const struct model *model, int64_t threads, int64_t ranks, double per_sample)
{
    static const char *const passes[] = {"fwd", "bwd_input", "bwd_weight", "bwd_rest",
                                         "fwd_nograd"};
    struct layer_key seen[64], key;
    int n = 0;
    strcpy(profile->info.name, name);
    strcpy(profile->info.device_kind, kind);
    for (int i = 0; i < model->num_items; i++) {
        bool known = false;
        layer_key_of(model, i, &key);
        for (int j = 0; j < n; j++)
            known = known || memcmp(&seen[j], &key, sizeof key) == 0;
        if (known)
            continue;
        seen[n++] = key;
        const double part[] = {1, 1, 1, 0.5, n == 3 ? 2 : 0.75};
        for (int p = 0; p < PASS_UPDATE; p++)
            for (int64_t b = 1; b <= 16; b *= 4)
                if ((p != PASS_BWD_INPUT && p != PASS_BWD_REST) || i > 0)
                    add_pass(profile, &key, passes[p], b, threads, ranks,
                             per_sample * n * (double)b * part[p]);
        add_pass(profile, &key, "update", 0, threads, ranks, 77);
    }
}

static int64_t ask(const struct cost *cost, const struct model *model, int item, enum pass pass,
                   int64_t samples, const char *kind, bool *beyond)
{
    struct device device = {.speed = 1};
    struct err err = {0};
    int64_t ns = -1;
    strcpy(device.kind, kind);
    *beyond = false;
    if (cost->item_ns(cost->ctx, model, item, pass, samples, &device, &ns, beyond, &err) != OK)
        fail_msg("%s", err.msg);
    return ns;
}

/* One model, one cluster, what was measured of it, and a handle: begin() and end() of most tests.
 */
static struct model model;
static struct cluster cluster;
static struct profile profile;
static struct cost_handle handle;

static void begin(const char *machine)
{
    assert_int_equal(model_parse("vit-tiny", &model, NULL), OK);
    assert_int_equal(cluster_parse(machine, &cluster, NULL), OK);
}

static void end(void)
{
    cost_handle_clear(&handle);
    profile_clear(&profile);
    model_clear(&model);
    cluster_clear(&cluster);
}

static void profile_cost__interpolates_and_flags_extrapolation(void **state)
{
    (void)state;
    bool beyond;
    begin("cpu-1x2");
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    assert_string_equal(handle.note, "");
    assert_string_equal(handle.cost.label, "profile p (measured)");
    assert_int_equal(handle.cost.source, COST_MEASURED);
    const struct cost *cost = &handle.cost;
    /* Attention is the second distinct item: 2000 ns a sample, in every one of the 12 layers. */
    assert_int_equal(ask(cost, &model, 1, PASS_FWD, 4, "cpu", &beyond), 8000);
    assert_int_equal(ask(cost, &model, 23, PASS_FWD, 7, "cpu", &beyond), 14000);
    assert_false(beyond);
    assert_int_equal(ask(cost, &model, 1, PASS_BWD_WEIGHT, 32, "cpu", &beyond), 64000);
    assert_true(beyond);
    assert_int_equal(ask(cost, &model, 0, PASS_BWD_INPUT, 8, "cpu", &beyond), 0);
    assert_int_equal(ask(cost, &model, 1, PASS_BWD_REST, 8, "cpu", &beyond), 8000);
    assert_int_equal(ask(cost, &model, 0, PASS_BWD_REST, 8, "cpu", &beyond), 0);
    assert_int_equal(ask(cost, &model, 1, PASS_FWD_NOGRAD, 8, "cpu", &beyond), 12000);
    assert_int_equal(ask(cost, &model, 2, PASS_FWD_NOGRAD, 8, "cpu", &beyond), 24000);
    assert_int_equal(ask(cost, &model, 1, PASS_UPDATE, 1000, "cpu", &beyond), 77);
    assert_false(beyond);
    /* Nothing was measured about links: the cluster answers. */
    assert_null(cost->transfer_ns);
    assert_null(cost->allreduce_ns);
    /* A layer of the same shape in another model is known too; the other items are not. */
    struct model other = {0};
    struct device device = cluster.devices[0];
    struct err err = {0};
    int64_t ns;
    assert_int_equal(model_parse("vit-tiny:layers=5,classes=3", &other, NULL), OK);
    assert_int_equal(ask(cost, &other, 9, PASS_FWD, 4, "cpu", &beyond), 8000);
    assert_int_equal(cost->item_ns(cost->ctx, &other, other.num_items - 1, PASS_FWD, 1, &device,
                                   &ns, &beyond, &err),
                     ERR_INFEASIBLE);
    assert_string_equal(err.msg, "no layers for model 'vit-tiny' in profile 'p': item 'head'");
    err = (struct err){0};
    cost_handle_clear(&handle);
    assert_int_equal(profile_cost(&profile, &other, &cluster, NULL, &handle, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "no layers for model 'vit-tiny' in profile 'p': item 'head'"));
    assert_null(handle.ctx);
    model_clear(&other);
    end();
}

/* Eight documents of 128 tokens in a row of 1,024 of GPT-2: a token's products with weights are 8 h^2
 * flops, a pair of tokens 4 h. A row as one document computes 1,024 (1,024 + 128) / 2 pairs, by 128
 * queries at once, and as eight 1,024 (128 + 64); the backward for the input has 5/2 of them. */
static void profile_cost__attention_of_packed_rows_takes_less(void **state)
{
    (void)state;
    const struct packing_ask packing = {.mean = 128};
    const double h = 768, products = 8 * h * h, one = 4 * h * 576, eight = 4 * h * 192;
    struct model packed = {0};
    bool beyond;
    begin("cpu-1x2");
    model_clear(&model);
    assert_int_equal(model_parse("gpt2:seq=1024", &model, NULL), OK);
    assert_int_equal(model_copy(&model, &packed, NULL), OK);
    assert_int_equal(model_set_packing(&packed, &packing, NULL), OK);
    measure(&profile, "p", "cpu", &model, 1, 2, 1000000);
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    const struct {
        int item;
        enum pass pass;
        double share;
    } rows[] = {
        {1, PASS_FWD,        (products + eight) / (products + one)            },
        {1, PASS_BWD_INPUT,  (products + 2.5 * eight) / (products + 2.5 * one)},
        {1, PASS_BWD_WEIGHT, 1                                                },
        {2, PASS_FWD,        1                                                },
    };
    for (int i = 0; i < 4; i++) {
        const double whole =
            (double)ask(&handle.cost, &model, rows[i].item, rows[i].pass, 4, "cpu", &beyond);
        const double got =
            (double)ask(&handle.cost, &packed, rows[i].item, rows[i].pass, 4, "cpu", &beyond);
        assert_true(fabs(got - whole * rows[i].share) < 2);
    }
    model_clear(&packed);
    end();
}

/* A head that has taken over the table of 50257 rows updates it in the time that the embedding took for it:
 * 50257 of the 50257 + 1024 rows of its two tables. Every update that was measured takes 77 ns. */
static void profile_cost__updates_a_table_that_the_head_has_taken_over(void **state)
{
    (void)state;
    bool beyond;
    begin("cpu-1x2");
    model_clear(&model);
    assert_int_equal(model_parse("gpt2:seq=1024", &model, NULL), OK);
    assert_int_equal(model_let_head_go_on(&model, NULL), OK);
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    const int head = model.num_items - 1;
    for (int frozen = 0; frozen < 2; frozen++) {
        const struct model *at = model_at(&model, frozen);
        assert_int_equal(ask(&handle.cost, at, head, PASS_UPDATE, 0, "cpu", &beyond),
                         frozen ? 77 + 77 * 50257 / 51281 : 77);
        assert_int_equal(ask(&handle.cost, at, head - 2, PASS_UPDATE, 0, "cpu", &beyond), 77);
        assert_int_equal(ask(&handle.cost, at, head, PASS_BWD_WEIGHT, 4, "cpu", &beyond),
                         ask(&handle.cost, &model, head, PASS_BWD_WEIGHT, 4, "cpu", &beyond));
    }
    end();
}

/* Profiles of older versions lack the pass: the whole input half stands for it, and is said to. */
static void profile_cost__takes_input_half_where_rest_was_not_measured(void **state)
{
    (void)state;
    bool beyond;
    int kept = 0;
    begin("cpu-1x2");
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    for (int lacking = 0; lacking < 2; lacking++) { /* first what never trains first, then all */
        kept = 0;
        for (int i = 0; i < profile.num_layers; i++)
            if (strcmp(profile.layers[i].pass, "bwd_rest") != 0 ||
                (lacking == 0 && strcmp(profile.layers[i].key.item, "mlp") != 0))
                profile.layers[kept++] = profile.layers[i];
        profile.num_layers = kept;
        assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
        assert_int_equal(ask(&handle.cost, &model, 1, PASS_BWD_REST, 4, "cpu", &beyond),
                         lacking ? 8000 : 4000);
        assert_int_equal(ask(&handle.cost, &model, 2, PASS_BWD_REST, 4, "cpu", &beyond), 12000);
        if (!lacking)
            assert_string_equal(handle.note, "");
        else
            assert_non_null(strstr(handle.note, "its bwd_input time is used instead"));
        cost_handle_clear(&handle);
    }
    end();
}

/* Layers that train have the times measured with or without dropout, as asked; else those that there are,
 * with a note. Frozen layers and updates never drop. */
static void profile_cost__tells_layers_that_drop_from_others(void **state)
{
    (void)state;
    bool beyond;
    begin("cpu-1x2");
    for (int way = 0; way < 3; way++) { /* without; both; with */
        int num = 0;
        profile_clear(&profile);
        measure(&profile, "p", "cpu", &model, 1, 2, 1000);
        for (int i = 0, n = profile.num_layers; i < n && way > 0; i++) {
            struct layer_row row = profile.layers[i];
            row.ns.p10_ns *= 3;
            row.ns.median_ns *= 3;
            row.ns.p90_ns *= 3;
            layer_key_dropping(&row.key);
            assert_int_equal(profile_add_layer(&profile, &row, NULL), OK);
        }
        for (int i = 0; i < profile.num_layers; i++) {
            const struct layer_row *row = &profile.layers[i];
            const bool drops = strstr(row->key.variant, "+drop");
            const bool trains = strcmp(row->pass, "fwd_nograd") && strcmp(row->pass, "update");
            if (trains ? way < 2 || drops : !drops)
                profile.layers[num++] = *row;
        }
        profile.num_layers = num;
        for (int dropout = 0; dropout < 2; dropout++) {
            const struct cost_query query = {.dtype = DTYPE_FP32, .dropout = dropout};
            const bool dropping = way == 2 || (way == 1 && dropout);
            assert_int_equal(profile_cost(&profile, &model, &cluster, &query, &handle, NULL), OK);
            const struct cost *cost = &handle.cost;
            const int64_t times = dropping ? 3 : 1;
            assert_int_equal(ask(cost, &model, 1, PASS_FWD, 4, "cpu", &beyond), 8000 * times);
            assert_int_equal(ask(cost, &model, 1, PASS_BWD_INPUT, 4, "cpu", &beyond), 8000 * times);
            assert_int_equal(ask(cost, &model, 1, PASS_BWD_WEIGHT, 4, "cpu", &beyond),
                             8000 * times);
            assert_int_equal(ask(cost, &model, 1, PASS_BWD_REST, 4, "cpu", &beyond), 4000 * times);
            assert_int_equal(ask(cost, &model, 1, PASS_FWD_NOGRAD, 4, "cpu", &beyond), 6000);
            assert_int_equal(ask(cost, &model, 1, PASS_UPDATE, 0, "cpu", &beyond), 77);
            assert_string_equal(handle.note, dropout == dropping ? ""
                                             : dropout
                                                 ? "profile 'p' was measured without dropout: "
                                                   "'elapse profile --dropout' with"
                                                 : "profile 'p' was measured with dropout: "
                                                   "'elapse profile' without");
            cost_handle_clear(&handle);
        }
    }
    end();
}

static void profile_cost__takes_forward_where_none_without_stash_was_measured(void **state)
{
    (void)state;
    bool beyond;
    int kept = 0;
    begin("cpu-1x2");
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    for (int i = 0; i < profile.num_layers; i++)
        if (strcmp(profile.layers[i].pass, "fwd_nograd") != 0)
            profile.layers[kept++] = profile.layers[i];
    assert_true(kept < profile.num_layers);
    profile.num_layers = kept;
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    assert_int_equal(ask(&handle.cost, &model, 1, PASS_FWD_NOGRAD, 4, "cpu", &beyond), 8000);
    assert_string_equal(handle.note, "");
    end();
}

static void profile_cost__takes_nearest_way_of_measuring(void **state)
{
    (void)state;
    bool beyond;
    begin("cpu-1x2");
    measure(&profile, "p", "cpu", &model, 1, 1, 1000);
    measure(&profile, "p", "cpu", &model, 1, 2, 1100);
    measure(&profile, "p", "cpu", &model, 2, 1, 600);
    /* Two devices a node: one thread each, both busy. */
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    assert_int_equal(ask(&handle.cost, &model, 0, PASS_FWD, 1, "cpu", &beyond), 1100);
    cost_handle_clear(&handle);
    struct cost_query query = {.threads = 2, .ranks = 1};
    assert_int_equal(profile_cost(&profile, &model, &cluster, &query, &handle, NULL), OK);
    assert_int_equal(ask(&handle.cost, &model, 0, PASS_FWD, 1, "cpu", &beyond), 600);
    assert_string_equal(handle.note, "");
    cost_handle_clear(&handle);
    /* Threads count for more than busy ranks. */
    query = (struct cost_query){.threads = 2, .ranks = 2};
    assert_int_equal(profile_cost(&profile, &model, &cluster, &query, &handle, NULL), OK);
    assert_int_equal(ask(&handle.cost, &model, 0, PASS_FWD, 1, "cpu", &beyond), 600);
    assert_string_equal(handle.note, "profile 'p' was measured with 1 busy ranks a node, not 2");
    cost_handle_clear(&handle);
    /* Asked for what is not there: the nearest, and a word about it. */
    query = (struct cost_query){.threads = 4, .ranks = 1};
    assert_int_equal(profile_cost(&profile, &model, &cluster, &query, &handle, NULL), OK);
    assert_string_equal(handle.note, "profile 'p' was measured with 2 threads a rank, not 4");
    cost_handle_clear(&handle);
    /* Measured on a busy machine: said, not hidden. */
    for (int i = 0; i < profile.num_layers; i++)
        profile.layers[i].ns.p90_ns *= 1.5;
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    assert_string_equal(handle.note, "profile 'p' is noisy: p10 to p90 spans 50 % of the median");
    assert_true(fabs(handle.spread - 0.5) < 1e-9);
    cost_handle_clear(&handle);
    /* Another dtype or backend is another measurement. */
    struct err err = {0};
    query = (struct cost_query){.dtype = DTYPE_BF16};
    assert_int_equal(profile_cost(&profile, &model, &cluster, &query, &handle, &err),
                     ERR_INFEASIBLE);
    assert_string_equal(err.msg, "no layers for model 'vit-tiny' in profile 'p': nothing in bf16");
    model.elem_bytes = 2; /* which a model of that dtype asks for by itself */
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, &err), ERR_INFEASIBLE);
    end();
}

static void profile_cost__answers_links_collectives_and_overheads(void **state)
{
    (void)state;
    static const int devices[] = {0, 1, 2, 3};
    begin("cpu-2x2");
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    for (int i = 0; i < 3; i++) {
        double bytes = 1000 << 2 * i;
        struct link_row link = {
            "mpi", "node", 1, (int64_t)bytes, {500 + bytes, 500, 1e9, 3}
        };
        struct link_row busy = {
            "mpi", "node", 2, (int64_t)bytes, {900 + bytes, 500, 1e9, 3}
        };
        struct collective_row sum = {
            "allreduce", "mpi", "node", 2, (int64_t)bytes, {700 + 3 * bytes, 500, 1e9, 3}
        };
        struct host_row read = {
            "cache_read", "cpu", 1, 1, 0, (int64_t)bytes, {bytes * 2, 500, 1e9, 3}
        };
        profile_add_link(&profile, &link, NULL);
        profile_add_link(&profile, &busy, NULL);
        profile_add_collective(&profile, &sum, NULL);
        struct host_row copy = {
            "copy_in", "cpu", 1, 1, 0, (int64_t)bytes, {bytes / (1 << i), 500, 1e9, 3}
        };
        profile_add_host(&profile, &read, NULL);
        profile_add_host(&profile, &copy, NULL);
    }
    struct host_row overhead = {
        "op_overhead", "cpu", 1, 1, 0, 0, {1234, 1000, 2000, 3}
    };
    profile_add_host(&profile, &overhead, NULL);
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    const struct cost *cost = &handle.cost;
    assert_int_equal(cost->op_overhead_ns, 1234);
    assert_int_equal(cost->cache_read_ns, 2 * 65 * 192 * 4);
    assert_true(cost->copy_in_ns_per_byte == 0.25 && cost->copy_out_ns_per_byte == 0);
    assert_int_equal(cost_transfer_ns(cost, &cluster, 0, 1, 2500), 3000);
    assert_true(cost->message_bytes[0] == 1000 && cost->message_bytes[1] == 16000);
    assert_true(cost->allreduce_bytes[0] == 1000 && cost->allreduce_bytes[1] == 16000);
    assert_int_equal(cost_transfer_ns(cost, &cluster, 1, 1, 2500), 0);
    /* Between nodes and among four nothing was measured: the cluster answers. */
    assert_int_equal(cost_transfer_ns(cost, &cluster, 1, 2, 2500),
                     cluster_transfer_ns(&cluster, 1, 2, 2500));
    assert_int_equal(cost_allreduce_ns(cost, &cluster, devices, 2, 2000), 6700);
    assert_int_equal(cost_allreduce_ns(cost, &cluster, devices, 2, INT64_MAX), INT64_MAX);
    struct cost_query low = {.spread = -1};
    struct cost_handle lower = {0};
    assert_int_equal(profile_cost(&profile, &model, &cluster, &low, &lower, NULL), OK);
    assert_int_equal(lower.cost.op_overhead_ns, 1000);
    assert_int_equal(cost_transfer_ns(&lower.cost, &cluster, 0, 1, 2500), 500);
    cost_handle_clear(&lower);
    assert_int_equal(cost_allreduce_ns(cost, &cluster, devices, 4, 2000),
                     cluster_allreduce_ns(&cluster, devices, 4, 2000));
    end();
}

/* Near stash saves time by its distance, as measured in the chosen way, never more when farther, and at
 * the ends as at the last distance that was measured. */
static void profile_cost__knows_what_near_stash_saves(void **state)
{
    (void)state;
    const double mib = 1 << 20;
    begin("cpu-2x2");
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    assert_null(handle.cost.near_ns_per_byte);
    cost_handle_clear(&handle);
    for (int pass = 0; pass <= PASS_BWD_WEIGHT; pass++) {
        /* By noise 4 MiB saves more than 3 MiB: 5000 for both. */
        static const double saved[] = {8000, 4000, 6000, 0};
        for (int i = 0; i < 4; i++) {
            struct host_row row = {
                "", "cpu", 1, 2, 8, (int64_t)((2 + i) * mib), {saved[i], 0, 9000, 3}
            };
            near_row_name((enum pass)pass, DTYPE_FP32, row.what);
            row.ns.median_ns += row.ns.median_ns > 0 ? 100 * pass : 0;
            profile_add_host(&profile, &row, NULL);
            row.ranks = 1; /* one rank alone has the cache to itself */
            row.ns.median_ns = 8500;
            profile_add_host(&profile, &row, NULL);
            row.ranks = 2;
            near_row_name((enum pass)pass, DTYPE_BF16, row.what);
            profile_add_host(&profile, &row, NULL);
        }
    }
    static const struct {
        double distance, saved;
    } want[] = {
        {0,   8000},
        {2,   8000},
        {2.5, 6500},
        {3,   5000},
        {3.5, 5000},
        {4,   5000},
        {4.5, 2500},
        {5,   0   },
        {99,  0   },
    };
    const struct device *device = &cluster.devices[0];
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    const struct cost *cost = &handle.cost;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const int64_t distance = (int64_t)(want[i].distance * mib);
        assert_float_equal(cost->near_ns_per_byte(cost->ctx, device, PASS_FWD, distance) * mib,
                           want[i].saved, 1e-6);
    }
    assert_float_equal(cost->near_ns_per_byte(cost->ctx, device, PASS_BWD_WEIGHT, 0) * mib, 8200,
                       1e-6);
    /* The 10th percentile of times: the 90th of what is saved. */
    struct cost_query low = {.spread = -1};
    struct cost_handle lower = {0};
    assert_int_equal(profile_cost(&profile, &model, &cluster, &low, &lower, NULL), OK);
    assert_float_equal(lower.cost.near_ns_per_byte(lower.cost.ctx, device, PASS_FWD, 0) * mib, 9000,
                       1e-6);
    cost_handle_clear(&lower);
    end();
}

/* Between nodes: as measured with so many ranks; else a ring whose steps are messages there. */
static void profile_cost__keeps_nodes_and_the_network_apart(void **state)
{
    (void)state;
    static const int inside[] = {0, 1}, across[] = {0, 2}, all[] = {0, 1, 2, 3};
    begin("cpu-2x2");
    measure(&profile, "p", "cpu", &model, 1, 2, 1000);
    for (int64_t bytes = 1000; bytes <= 16000; bytes *= 4) {
        const double b = (double)bytes;
        struct link_row links[] = {
            {"mpi", "node", 1, bytes, {500 + b, 500, 1e9, 3}     },
            {"mpi", "net",  1, bytes, {9000 + 8 * b, 500, 1e9, 3}},
        };
        struct collective_row sums[] = {
            {"allreduce", "mpi", "node", 2, bytes, {700 + 3 * b, 500, 1e9, 3}  },
            {"allreduce", "mpi", "net",  4, bytes, {8000 + 20 * b, 500, 1e9, 3}},
        };
        for (int i = 0; i < 2; i++) {
            profile_add_link(&profile, &links[i], NULL);
            profile_add_collective(&profile, &sums[i], NULL);
        }
    }
    assert_int_equal(profile_cost(&profile, &model, &cluster, NULL, &handle, NULL), OK);
    const struct cost *cost = &handle.cost;
    assert_int_equal(cost_transfer_ns(cost, &cluster, 0, 1, 2500), 3000);
    assert_int_equal(cost_transfer_ns(cost, &cluster, 1, 2, 2500), 29000);
    assert_int_equal(cost_allreduce_ns(cost, &cluster, inside, 2, 2000), 6700);
    assert_int_equal(cost_allreduce_ns(cost, &cluster, all, 4, 2000), 48000);
    assert_int_equal(cost_allreduce_ns(cost, &cluster, across, 2, 4000), 2 * (9000 + 8 * 2000));
    assert_true(cost->allreduce_bytes[0] == 1000 && cost->allreduce_bytes[1] == 16000);
    end();
}

static void cost_choose_for__never_mixes_sources(void **state)
{
    (void)state;
    struct model vit = {0}, uniform = {0};
    struct cluster cpu = {0}, mixed = {0}, strange = {0};
    struct err err = {0};
    struct store *store = NULL;
    bool beyond;
    const char *path = at("choose.db");
    assert_int_equal(model_parse("vit-tiny:hidden=96,heads=2", &vit, NULL), OK); /* not shipped */
    assert_int_equal(model_parse("uniform:layers=4", &uniform, NULL), OK);
    assert_int_equal(cluster_parse("cpu-1x2", &cpu, NULL), OK);
    assert_int_equal(cluster_parse("cpu-1x2", &mixed, NULL), OK);
    assert_int_equal(cluster_parse("1x2", &strange, NULL), OK);
    strcpy(mixed.devices[1].kind, "h100");
    assert_int_equal(store_open(path, STORE_WRITE, &store, NULL), OK);
    /* Nobody measured a cpu yet. */
    assert_int_equal(cost_choose_for(path, &vit, &cpu, NULL, &handle, &err), OK);
    assert_int_equal(handle.cost.source, COST_ROOFLINE);
    cost_handle_clear(&handle);
    measure(&profile, "older", "cpu", &vit, 1, 2, 1000);
    strcpy(profile.info.measured_at, "2026-01-01T00:00:00Z");
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    profile_clear(&profile);
    measure(&profile, "newer", "cpu", &vit, 1, 2, 2000);
    strcpy(profile.info.measured_at, "2026-02-01T00:00:00Z");
    assert_int_equal(store_put_profile(store, &profile, PROFILE_MERGE, NULL), OK);
    profile_clear(&profile);
    store_close(store);
    assert_int_equal(cost_choose_for(path, &vit, &cpu, NULL, &handle, &err), OK);
    assert_string_equal(handle.cost.label, "profile newer (measured)");
    assert_int_equal(ask(&handle.cost, &vit, 0, PASS_FWD, 4, "cpu", &beyond), 8000);
    cost_handle_clear(&handle);
    /* The machine is another one now. */
    struct profile_info present = {.host = "elsewhere", .driver = "9", .clock_mhz = 100};
    struct cost_query query = {.present = &present};
    assert_int_equal(cost_choose_for(path, &vit, &cpu, &query, &handle, &err), OK);
    assert_string_equal(handle.note,
                        "profile 'newer' was measured with another host, driver, clock");
    assert_true(handle.spread == 0);
    cost_handle_clear(&handle);
    /* One of two kinds measured is not enough: all from the roofline. */
    assert_int_equal(cost_choose_for(path, &vit, &mixed, NULL, &handle, &err), OK);
    assert_int_equal(handle.cost.source, COST_ROOFLINE);
    cost_handle_clear(&handle);
    assert_int_equal(cost_choose_for(path, &uniform, &cpu, NULL, &handle, &err), OK);
    assert_int_equal(handle.cost.source, COST_CONSTANT);
    cost_handle_clear(&handle);
    /* A kind that nobody knows. */
    assert_int_equal(cost_choose_for(path, &vit, &strange, NULL, &handle, &err), ERR_INFEASIBLE);
    assert_true(*err.msg);
    /* A model that the profile lacks: the roofline, and a note why. */
    struct model other = {0};
    err = (struct err){0};
    assert_int_equal(model_parse("vit-b16", &other, NULL), OK);
    assert_int_equal(cost_choose_for(path, &other, &cpu, NULL, &handle, &err), OK);
    assert_int_equal(handle.cost.source, COST_ROOFLINE);
    assert_non_null(strstr(handle.note, "no layers for model 'vit-b16' in profile '"));
    cost_handle_clear(&handle);
    /* A store that was named must be there. */
    assert_int_equal(cost_choose_for(at("none.db"), &vit, &cpu, NULL, &handle, &err), ERR_SYSTEM);
    model_clear(&other);
    model_clear(&vit);
    model_clear(&uniform);
    cluster_clear(&cpu);
    cluster_clear(&mixed);
    cluster_clear(&strange);
}

/* Told where it computes, and where the profile knows what it was measured with. */
/* The source that the user asks for, beside the one that AUTO takes. */
static void cost_choose_for__obeys_choice_and_efficiency(void **state)
{
    (void)state;
    struct cluster gpus = {0}, cpus = {0};
    struct model gpt = {0}, chain = {0};
    struct err err = {0};
    struct item items[2] = {
        {.name = "a",          .kind = ITEM_OPAQUE, .fwd_flops = 1000000000000},
        { .name = "b", .kind = ITEM_OPAQUE,   .fwd_flops = 1000,                .fwd_ns = 5}
    };
    const char *path = at("choice.db");
    struct store *store = NULL;
    assert_int_equal(store_open(path, STORE_WRITE, &store, NULL), OK);
    store_close(store);
    assert_int_equal(model_parse("gpt2", &gpt, NULL), OK);
    assert_int_equal(cluster_parse("h200-1x1", &gpus, NULL), OK);
    assert_int_equal(cluster_parse("cpu-1x1", &cpus, NULL), OK);
    struct cost_query query = cost_query_of_model(&gpt);
    assert_int_equal(cost_choose_for(path, &gpt, &gpus, &query, &handle, &err), OK);
    assert_int_equal(handle.cost.source, COST_KERNELS);
    assert_non_null(strstr(handle.note, "h200 has the kernel curve of h100 at its own peak"));
    assert_non_null(strstr(handle.note, "dtype is fp32: matrix products on h200 have 15 times the "
                                        "peak with bf16"));
    cost_handle_clear(&handle);
    query.choice = COST_BY_ROOFLINE;
    query.efficiency = 0.5;
    assert_int_equal(cost_choose_for(path, &gpt, &gpus, &query, &handle, &err), OK);
    assert_string_equal(handle.cost.label, "roofline of published data at 0.5 of its speed");
    cost_handle_clear(&handle);
    /* A host that nobody measured takes time for each op, unless the user wants the ideal. */
    query.efficiency = 0;
    assert_int_equal(cost_choose_for(path, &gpt, &cpus, &query, &handle, &err), OK);
    assert_int_equal(handle.cost.op_overhead_ns, 0);
    cost_handle_clear(&handle);
    query.choice = COST_AUTO;
    assert_int_equal(cost_choose_for(path, &gpt, &cpus, &query, &handle, &err), OK);
    assert_int_equal(handle.cost.op_overhead_ns, 100000);
    assert_non_null(strstr(handle.cost.label, "not measured here"));
    cost_handle_clear(&handle);
    query.choice = COST_BY_KERNELS;
    assert_int_equal(cost_choose_for(path, &gpt, &cpus, &query, &handle, &err), ERR_INFEASIBLE);
    query.choice = COST_BY_PROFILE;
    assert_int_equal(cost_choose_for(path, &gpt, &gpus, &query, &handle, &err), ERR_INFEASIBLE);
    query.choice = COST_AUTO;
    query.efficiency = 10.5;
    err = (struct err){0};
    assert_int_equal(cost_choose_for(path, &gpt, &gpus, &query, &handle, &err), ERR_INPUT);
    assert_string_equal(err.msg, "efficiency must be 1e-06..10, got 10.5");
    /* Flops without times are computed, and a chain is not of two minds. */
    query.efficiency = 0;
    err = (struct err){0};
    assert_int_equal(model_explicit("chain", items, 1, NULL, 0, false, &chain, NULL), OK);
    assert_int_equal(cost_choose_for(path, &chain, &gpus, &query, &handle, &err), OK);
    assert_int_equal(handle.cost.source, COST_KERNELS);
    bool beyond = false;
    assert_true(ask(&handle.cost, &chain, 0, PASS_FWD, 1, "h200", &beyond) > 1000000);
    cost_handle_clear(&handle);
    model_clear(&chain);
    assert_int_equal(model_explicit("chain", items, 2, NULL, 0, false, &chain, NULL), OK);
    assert_int_equal(cost_choose_for(path, &chain, &gpus, &query, &handle, &err), ERR_INPUT);
    assert_string_equal(err.msg, "model 'chain': item 'a' has fwd_flops and no times, but item 'b' "
                                 "has times");
    model_clear(&chain);
    model_clear(&gpt);
    cluster_clear(&gpus);
    cluster_clear(&cpus);
}

static void cost_choose_for__tells_another_kernel(void **state)
{
    static const struct {
        const char *then[2], *now[2]; /* of bf16, of fp32 */
        enum dtype dtype;
        const char *told;
    } cases[] = {
        {{"widened", "blas"},   {"amx", "avx512"}, DTYPE_BF16, "bf16 kernel"},
        {{"widened", "blas"},   {"amx", "avx512"}, DTYPE_FP32, "fp32 kernel"},
        {{"widened", "blas"},   {"amx", "avx512"}, DTYPE_TF32, NULL         },
        {{"widened", "avx512"}, {"amx", "avx512"}, DTYPE_FP32, NULL         },
        {{"amx", "blas"},       {"amx", "avx512"}, DTYPE_BF16, NULL         },
        {{"", ""},              {"amx", "avx512"}, DTYPE_BF16, NULL         },
        {{"", ""},              {"amx", "avx512"}, DTYPE_FP32, NULL         },
        {{"amx", "avx512"},     {"", ""},          DTYPE_BF16, NULL         },
        {{"amx", "avx512"},     {"", ""},          DTYPE_FP32, NULL         }
    };
    struct model vit = {0};
    struct cluster cpu = {0};
    const char *path = at("kernel.db");
    (void)state;
    assert_int_equal(model_parse("vit-tiny", &vit, NULL), OK);
    assert_int_equal(cluster_parse("cpu-1x2", &cpu, NULL), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct profile_info present = {0};
        struct store *store = NULL;
        const struct cost_query query = {.dtype = cases[i].dtype, .present = &present};
        measure(&profile, "here", "cpu", &vit, 1, 2, 1000);
        for (int r = 0; r < profile.num_layers; r++)
            strcpy(profile.layers[r].dtype, dtype_text(cases[i].dtype));
        strcpy(profile.info.measured_at, "2026-01-01T00:00:00Z");
        strcpy(profile.info.bf16_kernel, cases[i].then[0]);
        strcpy(profile.info.fp32_kernel, cases[i].then[1]);
        strcpy(present.bf16_kernel, cases[i].now[0]);
        strcpy(present.fp32_kernel, cases[i].now[1]);
        assert_int_equal(store_open(path, STORE_RECORD, &store, NULL), OK);
        assert_int_equal(store_put_profile(store, &profile, PROFILE_REPLACE, NULL), OK);
        store_close(store);
        profile_clear(&profile);
        assert_int_equal(cost_choose_for(path, &vit, &cpu, &query, &handle, NULL), OK);
        char note[64] = "";
        if (cases[i].told)
            snprintf(note, sizeof note, "profile 'here' was measured with another %s",
                     cases[i].told);
        assert_string_equal(handle.note, note);
        cost_handle_clear(&handle);
    }
    model_clear(&vit);
    cluster_clear(&cpu);
}

/* The shipped constants are those of examples/paper: 0.535 ms forward and 1.026 ms training a layer
 * and image, 36 % of it attention. */
static void cost_choose_for__has_shipped_paper_profile(void **state)
{
    (void)state;
    struct model vit = {0};
    struct err err = {0};
    bool beyond;
    setenv("ELAPSE_DB", at("absent.db"), 1);
    assert_int_equal(model_parse("vit-b16:classes=10", &vit, NULL), OK);
    assert_int_equal(cluster_parse("rtx5000-2x8", &cluster, NULL), OK);
    if (cost_choose_for(NULL, &vit, &cluster, NULL, &handle, &err) != OK)
        fail_msg("%s", err.msg);
    assert_string_equal(handle.cost.label, "profile rtx5000-paper (published)");
    int64_t fwd = 0, all = 0;
    for (int item = 1; item <= 2; item++)
        for (int pass = PASS_FWD; pass <= PASS_BWD_WEIGHT; pass++) {
            int64_t ns = ask(&handle.cost, &vit, item, pass, 54, "rtx5000", &beyond);
            assert_false(beyond);
            all += ns;
            fwd += pass == PASS_FWD ? ns : 0;
        }
    assert_int_equal(fwd, 54 * 535000);
    assert_true(llabs(all - 54 * 1026000) <= 2);
    assert_int_equal(ask(&handle.cost, &vit, 0, PASS_FWD, 54, "rtx5000", &beyond), 0);
    assert_false(beyond);
    cost_handle_clear(&handle);
    model_clear(&vit);
    cluster_clear(&cluster);
}

static void layer_key_of__tells_what_determines_cost(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"bert-base:seq=64", "bert-base:seq=64,classes=5"}
    };
    static const char *const differ[][2] = {
        {"bert-base:seq=64", "bert-base:seq=65"     },
        {"vit-b16",          "vit-b16:image=384"    },
        {"vit-tiny",         "vit-tiny:unet_skips=1"}
    };
    struct model a = {0}, b = {0};
    struct layer_key ka, kb;
    for (int i = 0; i < 1; i++) {
        model_parse(same[i][0], &a, NULL);
        model_parse(same[i][1], &b, NULL);
        layer_key_of(&a, 1, &ka);
        layer_key_of(&b, 5, &kb);
        assert_memory_equal(&ka, &kb, sizeof ka);
        layer_key_of(&b, b.num_items - 1, &kb);
        layer_key_of(&a, a.num_items - 1, &ka);
        assert_memory_not_equal(&ka, &kb, sizeof ka);
        model_clear(&a);
        model_clear(&b);
    }
    for (int i = 0; i < 3; i++) {
        model_parse(differ[i][0], &a, NULL);
        model_parse(differ[i][1], &b, NULL);
        int item = a.num_items - 4; /* attention of the last layer */
        layer_key_of(&a, item, &ka);
        layer_key_of(&b, item, &kb);
        assert_memory_not_equal(&ka, &kb, sizeof ka);
        model_clear(&a);
        model_clear(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curve_build__equals_minmax_formula),
        cmocka_unit_test(curve_at__goes_through_points_and_lines),
        cmocka_unit_test(profile_cost__interpolates_and_flags_extrapolation),
        cmocka_unit_test(profile_cost__attention_of_packed_rows_takes_less),
        cmocka_unit_test(profile_cost__updates_a_table_that_the_head_has_taken_over),
        cmocka_unit_test(profile_cost__takes_input_half_where_rest_was_not_measured),
        cmocka_unit_test(profile_cost__tells_layers_that_drop_from_others),
        cmocka_unit_test(profile_cost__takes_forward_where_none_without_stash_was_measured),
        cmocka_unit_test(profile_cost__takes_nearest_way_of_measuring),
        cmocka_unit_test(profile_cost__answers_links_collectives_and_overheads),
        cmocka_unit_test(profile_cost__knows_what_near_stash_saves),
        cmocka_unit_test(profile_cost__keeps_nodes_and_the_network_apart),
        cmocka_unit_test(cost_choose_for__never_mixes_sources),
        cmocka_unit_test(cost_choose_for__obeys_choice_and_efficiency),
        cmocka_unit_test(cost_choose_for__tells_another_kernel),
        cmocka_unit_test(cost_choose_for__has_shipped_paper_profile),
        cmocka_unit_test(layer_key_of__tells_what_determines_cost),
    };
    return cmocka_run_group_tests_name("profile_cost", tests, scratch_make, scratch_remove);
}
