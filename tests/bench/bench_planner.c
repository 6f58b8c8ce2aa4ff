/* The planner's own time, on one core: how long until the plan is there, how many candidates there
 * are and how many were judged. Best and median of the repeats; cpu is the
 * median of the processor time, which a busy machine disturbs less. `bench_planner MODEL` takes the
 * cases of one model, once each, for tools that count instructions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "partition/search/planner.h"

static int compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static double now_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *model, *cluster;
        int64_t batch;
        int frozen_layers, repeats;
        bool recompute;
        double target_ms; /* 0: none */
    } cases[] = {
        {"vit-b16",    "rtx5000-2x8", 320, 0, 9, false, 50  },
        {"vit-b16",    "rtx5000-2x8", 400, 8, 9, false, 50  },
        {"bert-large", "a100-1x8",    64,  0, 9, true,  0   },
        {"gpt2-xl",    "h100-8x8",    64,  0, 3, true,  0   },
        {"gpt3-175b",  "h200-128x8",  256, 0, 1, true,  5000},
        {"gpt3-175b",  "h100-128x8",  64,  0, 1, true,  5000},
    };
    printf("%-11s %-12s %5s %2s | %9s %9s %9s %9s | %10s %7s | %s\n", "model", "cluster", "batch",
           "F", "best ms", "median ms", "cpu ms", "target", "candidates", "judged", "plan");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model model = {0};
        struct cluster cluster = {0};
        struct cost cost;
        struct err err = {0};
        double ms[16], cpu[16];
        const int repeats = argc > 1 ? 1 : cases[i].repeats;
        if (argc > 1 && strcmp(argv[1], cases[i].model) != 0)
            continue;
        if (model_parse(cases[i].model, &model, &err) != OK ||
            cluster_parse(cases[i].cluster, &cluster, &err) != OK) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        cost_roofline(&cost, NULL);
        const struct planner_problem problem = {.setting.model = &model,
                                                .setting.cluster = &cluster,
                                                .setting.cost = &cost,
                                                .batch = cases[i].batch,
                                                .num_frozen_layers = cases[i].frozen_layers,
                                                .bucket_bytes = 25 << 20,
                                                .optim_bytes_per_param = 4};
        const struct planner_options options = {.schedules = PLANNER_ALL_SCHEDULES,
                                                .recompute_auto = cases[i].recompute,
                                                /* GPUs that nobody measured, as in plan_for() */
                                                .recompute_inside = cases[i].recompute,
                                                .frozen_auto = true};
        struct planner_result result = {0};
        for (int r = 0; r < repeats; r++) {
            planner_result_clear(&result);
            double start = now_ms(CLOCK_MONOTONIC), start_cpu = now_ms(CLOCK_PROCESS_CPUTIME_ID);
            if (planner_solve(&problem, &options, &result, &err) != OK) {
                fprintf(stderr, "%s\n", err.msg);
                return 1;
            }
            ms[r] = now_ms(CLOCK_MONOTONIC) - start;
            cpu[r] = now_ms(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
        }
        qsort(ms, (size_t)repeats, sizeof *ms, compare);
        qsort(cpu, (size_t)repeats, sizeof *cpu, compare);
        char target[16] = "-";
        if (cases[i].target_ms > 0)
            snprintf(target, sizeof target, "%.0f", cases[i].target_ms);
        printf("%-11s %-12s %5lld %2d | %9.1f %9.1f %9.1f %9s | %10lld %7lld | K %d, R %d, M %d, "
               "%s%s, "
               "gap %.1f %%\n",
               cases[i].model, cases[i].cluster, (long long)cases[i].batch, cases[i].frozen_layers,
               ms[0], ms[repeats / 2], cpu[repeats / 2], target, (long long)result.candidates,
               (long long)result.searched.judged, result.plan.num_ranks, result.plan.num_pipelines,
               result.plan.microbatches.count, schedule_kind_name(result.plan.schedule),
               result.plan.recompute != RECOMPUTE_NEVER ? ", recompute" : "", 100 * result.gap);
        planner_result_clear(&result);
        model_clear(&model);
        cluster_clear(&cluster);
    }
    return 0;
}
