/* Schedules at size: generate, lower, check and time 1F1B and ZB-H1, in million ops a second (ops
 * of the lowered lists; median of repeats), and what the auto search takes. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "partition/step/lower.h"
#include "partition/search/plan_for.h"
#include "partition/step/schedule_time.h"
#include "partition/step/workload.h"

enum { REPEATS = 5 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *ms)
{
    qsort(ms, REPEATS, sizeof *ms, compare);
    return ms[REPEATS / 2];
}

struct setup {
    struct model model;
    struct cluster cluster;
    struct cost cost;
    struct plan plan;
};

/* K stages of one item; uneven when asked: stage k takes 1 + (7k mod 5) / 4 ms. */
static enum status set_up(int K, int M, bool uneven, struct setup *s, struct err *err)
{
    struct item *items = calloc((size_t)K, sizeof *items);
    s->plan = (struct plan){
        .num_ranks = K,
        .chunks = 1,
        .num_pipelines = 1,
        .batch = M,
        .microbatches = {M, 1, 1},
        .num_stages = K,
        .first_item = calloc((size_t)K + 1, sizeof(int)),
        .device = calloc((size_t)K, sizeof(int))
    };
    if (!items || !s->plan.first_item || !s->plan.device) {
        free(items);
        return err_nomem(err);
    }
    for (int k = 0; k < K; k++) {
        const int64_t ns = uneven ? 1000000 + 250000 * (7 * k % 5) : 1000000;
        items[k] = (struct item){.kind = ITEM_OPAQUE,
                                 .layer = k,
                                 .act_bytes = 1 << 20,
                                 .fwd_ns = ns,
                                 .bwd_input_ns = ns,
                                 .bwd_weight_ns = ns};
        s->plan.first_item[k + 1] = k + 1;
        s->plan.device[k] = k;
    }
    enum status rc = model_explicit("bench", items, K, NULL, 0, true, &s->model, err);
    if (rc == OK)
        rc = cluster_grid((K + 7) / 8, K < 8 ? K : 8, &s->cluster, err);
    cost_constant(&s->cost);
    free(items);
    return rc;
}

static void tear_down(struct setup *s)
{
    plan_clear(&s->plan);
    model_clear(&s->model);
    cluster_clear(&s->cluster);
}

static enum status lists(enum schedule_kind kind, int K, int M, struct err *err)
{
    struct setup s = {0};
    double made[REPEATS], lowered[REPEATS], checked[REPEATS], timed[REPEATS];
    int64_t ops = 0, step_ns = 0;
    enum status rc = set_up(K, M, false, &s, err);
    for (int i = 0; i < REPEATS && rc == OK; i++) {
        struct workload w = {0};
        struct schedule compute = {0}, full = {0};
        struct step_time time = {0};
        rc = workload_build(&(struct setting){&s.model, &s.cluster, &s.cost}, &s.plan, NULL, &w,
                            err);
        double t0 = now_ms(), t1;
        if (rc == OK)
            rc = schedule_generate(kind, K, M, 1, &compute, err);
        made[i] = (t1 = now_ms()) - t0;
        if (rc == OK)
            rc = schedule_lower(&compute, &w, &s.plan, &full, err);
        lowered[i] = (t0 = now_ms()) - t1;
        if (rc == OK)
            rc = schedule_check(&full, 0, err);
        checked[i] = (t1 = now_ms()) - t0;
        if (rc == OK)
            rc = schedule_time(&full, &w, &s.plan, &time, err);
        timed[i] = now_ms() - t1;
        ops = 0;
        for (int k = 0; k < full.num_ranks; k++)
            ops += full.ranks[k].num_ops;
        step_ns = time.step_ns;
        step_time_clear(&time);
        schedule_clear(&compute);
        schedule_clear(&full);
        workload_clear(&w);
    }
    if (rc == OK) {
        const double m = (double)ops * 1e-3; /* ops / ms -> M ops / s */
        printf("%-6s %5d x %-5d %10lld %9.1f %9.1f %9.1f %9.1f %12.3f\n", schedule_kind_name(kind),
               K, M, (long long)ops, m / median(made), m / median(lowered), m / median(checked),
               m / median(timed), (double)step_ns * 1e-6);
    }
    tear_down(&s);
    return rc;
}

static enum status search(int K, int M, struct err *err)
{
    struct setup s = {0};
    struct workload w = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    double ms[2] = {0};
    enum status rc = set_up(K, M, true, &s, err);
    int64_t best = INT64_MAX, found = 0;
    const char *name = "";
    const enum schedule_kind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZB_H1,
                                        SCHEDULE_ZB_H2, SCHEDULE_SEARCH};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && rc == OK; i++) {
        s.plan.schedule = kinds[i];
        ms[0] = now_ms();
        if (kinds[i] == SCHEDULE_SEARCH)
            rc = plan_find_order(&(struct setting){&s.model, &s.cluster, &s.cost}, &s.plan, err);
        if (rc == OK)
            rc = plan_lower(&(struct setting){&s.model, &s.cluster, &s.cost}, &s.plan, &w, &full,
                            err);
        ms[1] = now_ms();
        if (rc == OK)
            rc = schedule_time(&full, &w, &s.plan, &time, err);
        if (kinds[i] == SCHEDULE_SEARCH) {
            found = time.step_ns;
        } else if (time.step_ns < best) {
            best = time.step_ns;
            name = schedule_kind_name(kinds[i]);
        }
        step_time_clear(&time);
        schedule_clear(&full);
        workload_clear(&w);
    }
    if (rc == OK) {
        printf("auto   %5d x %-5d %10.0f ms, step %.3f ms, best named %s %.3f ms, ratio %.3f\n", K,
               M, ms[1] - ms[0], (double)found * 1e-6, name, (double)best * 1e-6,
               (double)best / (double)found);
    }
    tear_down(&s);
    return rc;
}

int main(void)
{
    struct err err = {0};
    printf("%-6s %13s %10s %9s %9s %9s %9s %12s\n", "kind", "K x M", "ops", "generate", "lower",
           "check", "time", "step ms");
    enum status rc = lists(SCHEDULE_1F1B, 8, 32, &err);
    const int sizes[][2] = {
        {64,   1024},
        {1024, 4096}
    };
    for (int i = 0; i < 2 && rc == OK; i++) {
        rc = lists(SCHEDULE_1F1B, sizes[i][0], sizes[i][1], &err);
        if (rc == OK)
            rc = lists(SCHEDULE_ZB_H1, sizes[i][0], sizes[i][1], &err);
    }
    for (int K = 4; K <= 16 && rc == OK; K *= 2)
        rc = search(K, K, &err);
    if (rc != OK)
        fprintf(stderr, "bench_schedule: %s\n", err.msg);
    return status_exit_code(rc);
}
