/* Exact cuts of 1,000 items into 64 stages beside the plain O(K n^2) program
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

enum shape { EVEN, WILD, GIANT, NUM_SHAPES };
static const char *const shape_names[] = {"even", "wild", "one giant item"};

static void draw_sizes(int64_t *sizes, enum shape shape)
{
    for (int i = 0; i < ITEMS; i++)
        sizes[i] = shape == GIANT && i == ITEMS / 3 ? 300000000
                   : shape == EVEN                  ? 900000 + draw(200000)
                                                    : 1000 + draw(draw(20) ? 100000 : 3000000);
}

int main(void)
{
    static int64_t sizes[ITEMS];
    printf("%-16s %-44s %10s %14s\n", "chain", "problem", "median ms", "slowest stage");
    for (int shape = 0; shape < NUM_SHAPES; shape++) {
        double plain_ms[REPEATS];
        struct cut cut = {0};
        int64_t answer = 0;
        draw_sizes(sizes, (enum shape)shape);
        for (int i = 0; i < REPEATS; i++) {
            double start = now_ms();
            if (cut_sizes(sizes, ITEMS, STAGES, &cut, NULL) != OK)
                return 1;
            plain_ms[i] = now_ms() - start;
            answer = cut.max;
            cut_clear(&cut);
        }
        double start = now_ms();
        int64_t simple = simple_program(sizes);
        double simple_ms = now_ms() - start;
        printf("%-16s %-44s %10.3f %14lld\n", shape_names[shape], "plain sizes", median(plain_ms),
               (long long)answer);
        printf("%-16s %-44s %10.3f %14lld\n", "", "the same by the O(K n^2) program", simple_ms,
               (long long)simple);
        if (simple != answer)
            return 1;
    }
    return 0;
}
