/* Exact cuts of 1,000 items into 64 stages, plain and general, beside the plain O(K n^2) program
 * that gives the same answer. Times are medians of repeats; the answers are compared. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "partition/plan/cut.h"

enum { ITEMS = 1000, STAGES = 64, REPEATS = 21 };

static uint64_t random_state = 42;

static int64_t draw(int64_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int64_t)(random_state % (uint64_t)below);
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *ms)
{
    qsort(ms, REPEATS, sizeof *ms, compare);
    return ms[REPEATS / 2];
}

/* Suffix program over prefix sums: the obvious answer for plain sizes. */
static int64_t simple_program(const int64_t *sizes)
{
    static int64_t prefix[ITEMS + 1], best[STAGES + 1][ITEMS + 1];
    for (int i = 0; i < ITEMS; i++)
        prefix[i + 1] = prefix[i] + sizes[i];
    for (int a = 0; a <= ITEMS; a++)
        best[STAGES][a] = a == ITEMS ? 0 : INT64_MAX;
    for (int k = STAGES - 1; k >= 0; k--)
        for (int a = 0; a <= ITEMS; a++) {
            int64_t least = INT64_MAX;
            for (int b = a + 1; b <= ITEMS; b++) {
                int64_t cost = prefix[b] - prefix[a];
                cost = cost > best[k + 1][b] ? cost : best[k + 1][b];
                least = cost < least ? cost : least;
            }
            best[k][a] = least;
        }
    return best[0][0];
}

struct chain {
    struct cut_time times[4 * ITEMS];
    struct cut_item items[ITEMS];
    struct cut_skip skips[40];
    struct cut_link links[STAGES];
    int classes[STAGES];
    int64_t live[STAGES], limits[STAGES], sizes[ITEMS];
};

enum shape { EVEN, WILD, GIANT, NUM_SHAPES };
static const char *const shape_names[] = {"even", "wild", "one giant item"};

static void draw_chain(struct chain *c, enum shape shape)
{
    int64_t memory = 0;
    for (int i = 0; i < ITEMS; i++) {
        int64_t f =
            shape == EVEN ? 900000 + draw(200000) : 1000 + draw(draw(20) ? 100000 : 3000000);
        if (shape == GIANT && i == ITEMS / 3)
            f = 300000000;
        for (int class = 0; class < 4; class ++) /* the slowest takes twice the time */
            c->times[class * ITEMS + i] = (struct cut_time){
                f * (3 + class) / 3, f * (3 + class) / 3, f * (3 + class) / 3, f / 10, 0, 0};
        c->sizes[i] = 3 * f;
        c->items[i] = (struct cut_item){.out_bytes = 1 << (12 + draw(10)),
                                        .weight_bytes = 1 << (16 + draw(8)),
                                        .stash_bytes = 1 << (16 + draw(6))};
        c->items[i].train_bytes = 2 * c->items[i].weight_bytes;
        memory += 3 * c->items[i].weight_bytes + 32 * c->items[i].stash_bytes;
    }
    for (int e = 0; e < 40; e++) {
        int from = (int)draw(ITEMS - 60);
        c->skips[e] = (struct cut_skip){from, from + 2 + (int)draw(50), 1 << 20};
    }
    for (int k = 0; k < STAGES; k++) {
        c->classes[k] = (int)draw(4);
        c->links[k] = (struct cut_link){5000, k % 8 == 7 ? 5e9 : 16e9};
        c->live[k] = STAGES - k < 32 ? STAGES - k : 32;
        c->limits[k] = memory / STAGES * 2;
    }
}

int main(void)
{
    static struct chain c;
    printf("%-16s %-44s %10s %14s\n", "chain", "problem", "median ms", "slowest stage");
    for (int shape = 0; shape < NUM_SHAPES; shape++) {
        double plain_ms[REPEATS], ms[REPEATS];
        struct cut cut = {0};
        int64_t answer = 0;
        draw_chain(&c, (enum shape)shape);
        struct cut_problem p = {.num_items = ITEMS,
                                .num_stages = STAGES,
                                .num_microbatches = 128,
                                .num_classes = 4,
                                .class_of_stage = c.classes,
                                .times = c.times,
                                .items = c.items,
                                .links = c.links,
                                .live = c.live,
                                .mem_limit_bytes = c.limits};
        for (int i = 0; i < REPEATS; i++) {
            double start = now_ms();
            if (cut_sizes(c.sizes, ITEMS, STAGES, &cut, NULL) != OK)
                return 1;
            plain_ms[i] = now_ms() - start;
            answer = cut.max;
            cut_clear(&cut);
        }
        double start = now_ms();
        int64_t simple = simple_program(c.sizes);
        double simple_ms = now_ms() - start;
        printf("%-16s %-44s %10.3f %14lld\n", shape_names[shape], "plain sizes", median(plain_ms),
               (long long)answer);
        printf("%-16s %-44s %10.3f %14lld\n", "", "the same by the O(K n^2) program", simple_ms,
               (long long)simple);
        if (simple != answer)
            return 1;
        for (int variant = 0; variant < 6; variant++) {
            static const char *const names[] = {"4 kinds of device, links, memory",
                                                "and 40 skip edges",
                                                "and sends overlap",
                                                "and a third frozen",
                                                "and links 100 times slower",
                                                "and memory as tight as it goes (1%)"};
            struct err err = {0};
            enum status rc = OK;
            p.skips = variant > 0 ? c.skips : NULL;
            p.num_skips = variant > 0 ? 40 : 0;
            p.overlap = variant > 1;
            p.num_frozen = variant > 2 ? ITEMS / 3 : 0;
            for (int k = 0; k < STAGES && variant == 4; k++)
                c.links[k].bytes_per_s /= 100;
            for (int tighter = 0; tighter < 400 && variant == 5; tighter++) {
                int64_t before[STAGES];
                memcpy(before, c.limits, sizeof before);
                for (int k = 0; k < STAGES; k++)
                    c.limits[k] = c.limits[k] / 100 * 99;
                if (cut_solve(&p, &cut, NULL) != OK) {
                    memcpy(c.limits, before, sizeof before);
                    break;
                }
                cut_clear(&cut);
            }
            for (int i = 0; i < REPEATS; i++) {
                start = now_ms();
                rc = cut_solve(&p, &cut, &err);
                ms[i] = now_ms() - start;
                answer = cut.max;
                cut_clear(&cut);
            }
            printf("%-16s %-44s %10.3f %14lld %s\n", "", names[variant], median(ms),
                   (long long)answer, rc == OK ? "" : err.msg);
        }
    }
    return 0;
}
