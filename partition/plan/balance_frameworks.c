/* Each cut_*() follows the released function of its framework step by step, because ties and
 * rounding decide between cuts of one cost. tests/reference/balancers.py holds them against the
 * real ones. */
#include "partition/plan/balance_frameworks.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "partition/base/units.h"

static enum status too_few(const char *name, int num_units, int num_stages, struct err *err)
{
    return err_set(err, ERR_INFEASIBLE, "%s cannot cut %s into %s", name,
                   COUNT_TEXT(num_units, "unit"), COUNT_TEXT(num_stages, "stage"));
}

/* --- deepspeed -------------------------------------------------------------------------------- */

/* The best cut of the first i units into j stages, by the difference of its heaviest and its
 * lightest stage. */
struct spread {
    double cost, heaviest, lightest;
    int last_first; /* the first unit of the last stage */
};

/* Extend cuts into j - 1 stages, which are in `from`, by a stage that ends before unit i. */
static struct spread best_spread(const struct spread *from, const double *prefix, int i)
{
    struct spread best = {INFINITY, INFINITY, INFINITY, 0};
    for (int k = 0; k < i; k++) {
        const double load = prefix[i] - prefix[k];
        const double heaviest = from[k].heaviest > load ? from[k].heaviest : load;
        const double lightest = from[k].lightest < load ? from[k].lightest : load;
        if (best.cost >= heaviest - lightest)
            best = (struct spread){heaviest - lightest, heaviest, lightest, k};
    }
    return best;
}

/* DeepSpeed minimises the spread, not the heaviest stage, by dynamic programming; ties take the
 * last cut. With no more units than stages each unit is a stage, and the last stages are empty. */
static enum status cut_deepspeed(const double *sizes, int num_units, int num_stages, int *count,
                                 struct err *err)
{
    const int n = num_units;
    if (n <= num_stages) {
        for (int k = 0; k < num_stages; k++)
            count[k] = k < n;
        return OK;
    }
    double *prefix = calloc((size_t)n + 1, sizeof *prefix);
    struct spread *cuts = calloc(((size_t)num_stages + 1) * ((size_t)n + 1), sizeof *cuts);
    if (!prefix || !cuts) {
        free(prefix);
        free(cuts);
        return err_nomem(err);
    }
    for (int i = 0; i < n; i++)
        prefix[i + 1] = prefix[i] + sizes[i];
    for (int i = 0; i <= n; i++) /* no stages hold no units; the lightest of none is infinite */
        cuts[i] = (struct spread){i ? INFINITY : 0, i ? INFINITY : 0, INFINITY, 0};
    for (int j = 1; j <= num_stages; j++) {
        struct spread *to = cuts + (size_t)j * ((size_t)n + 1), *from = to - (n + 1);
        for (int i = 0; i <= n; i++)
            to[i] = i < j ? (struct spread){INFINITY, INFINITY, INFINITY, 0}
                          : best_spread(from, prefix, i);
    }
    for (int j = num_stages, end = n; j > 0; j--) {
        const int first = cuts[(size_t)j * ((size_t)n + 1) + (size_t)end].last_first;
        count[j - 1] = end - first;
        end = first;
    }
    free(prefix);
    free(cuts);
    return OK;
}

/* --- torchgpipe ------------------------------------------------------------------------------- */

/* Blocks of a sequence whose values were moved to 0..1; block k ends before end[k]. */
struct blocks {
    const double *sizes;
    int num, *end;
};

static double block_size(const struct blocks *b, int k)
{
    double sum = 0;
    for (int i = k > 0 ? b->end[k - 1] : 0; i < b->end[k]; i++)
        sum += b->sizes[i];
    return sum;
}

/* The largest block, the last one of these; or the smallest, the first one of these. */
static int extreme_block(const struct blocks *b, bool largest, double *size)
{
    int at = 0;
    *size = block_size(b, 0);
    for (int k = 1; k < b->num; k++) {
        const double now = block_size(b, k);
        if (largest ? now >= *size : now < *size) {
            at = k;
            *size = now;
        }
    }
    return at;
}

/* Barany and Grinberg's walk (Block partitions of sequences, arXiv:1308.2452): an element moves
 * towards the smallest block until the largest is at most 1 larger. The walk of torchgpipe 0.0.7
 * also takes elements from empty blocks, so that the ends of blocks cross. Mostly they come back;
 * on some lists with zeros it ends with units in two stages, or never (0 0 1 0 0 2 0 2 into 6).
 * Returns whether it ended within that many moves. */
static bool walk_blocks(struct blocks *b, int num_units)
{
    int64_t left = 1000 * (int64_t)num_units * b->num;
    double largest, smallest;
    int p = extreme_block(b, true, &largest);
    while (left-- > 0) {
        const int q = extreme_block(b, false, &smallest);
        if (largest <= smallest + 1)
            return true;
        const int h = p < q ? q - 1 : q + 1; /* gives an element to q */
        int *const end = &b->end[p < q ? h : q];
        *end += p < q ? -1 : 1;
        if (*end < 0 || *end > num_units)
            return false;
        if (p == h)
            p = extreme_block(b, true, &largest);
    }
    return false;
}

/* The remainder of an even cut goes to the last stage before the walk begins. */
static enum status cut_torchgpipe(const double *sizes, int num_units, int num_stages, int *count,
                                  struct err *err)
{
    if (num_units < num_stages)
        return too_few("torchgpipe", num_units, num_stages, err);
    double *moved = calloc((size_t)num_units, sizeof *moved), least = sizes[0], most = sizes[0];
    int *ends = calloc((size_t)num_stages, sizeof *ends);
    if (!moved || !ends) {
        free(moved);
        free(ends);
        return err_nomem(err);
    }
    for (int i = 1; i < num_units; i++) {
        least = sizes[i] < least ? sizes[i] : least;
        most = sizes[i] > most ? sizes[i] : most;
    }
    for (int i = 0; i < num_units; i++)
        moved[i] = most > least ? (sizes[i] - least) / (most - least) : 0;
    for (int k = 0; k < num_stages; k++)
        ends[k] = k < num_stages - 1 ? num_units / num_stages * (k + 1) : num_units;
    struct blocks blocks = {moved, num_stages, ends};
    bool cuts = walk_blocks(&blocks, num_units);
    for (int k = 0; k < num_stages; k++) {
        count[k] = ends[k] - (k > 0 ? ends[k - 1] : 0);
        cuts &= count[k] >= 0;
    }
    free(moved);
    free(ends);
    return cuts ? OK : err_set(err, ERR_INFEASIBLE, "torchgpipe has no cut of these sizes");
}

/* --- by number -------------------------------------------------------------------------------- */

/* torchtitan counts the embedding and the head as a layer each; the first stages get the
 * remainder. */
static enum status cut_pytorch(const double *sizes, int num_units, int num_stages, int *count,
                               struct err *err)
{
    (void)sizes;
    if (num_units < num_stages || num_units < 2)
        return too_few("torchtitan", num_units, num_stages, err);
    for (int k = 0; k < num_stages; k++)
        count[k] = num_units / num_stages + (k < num_units % num_stages);
    return OK;
}

static enum status cut_megatron(const double *sizes, int num_units, int num_stages, int *count,
                                struct err *err)
{
    (void)sizes;
    if (num_units % num_stages != 0) {
        err_set(err, ERR_INFEASIBLE, "Megatron cuts evenly: %s are not a multiple of %s",
                COUNT_TEXT(num_units, "layer"), COUNT_TEXT(num_stages, "stage"));
        err_hint(err,
                 "it has --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers "
                 "and --pipeline-model-parallel-layout for other cuts");
        return ERR_INFEASIBLE;
    }
    for (int k = 0; k < num_stages; k++)
        count[k] = num_units / num_stages;
    return OK;
}

const struct framework_balancer framework_balancers[NUM_FRAMEWORK_BALANCERS] = {
    {"deepspeed",  "deepspeed 0.19.8, partition_balanced()",               false, cut_deepspeed },
    {"torchgpipe", "torchgpipe 0.0.7, blockpartition.solve()",             false, cut_torchgpipe},
    {"pytorch",    "torchtitan 0.3.0, _generate_llm_fqn_per_model_part()", false, cut_pytorch   },
    {"megatron",   "megatron-core 0.19.2, get_num_layers_to_build()",      true,  cut_megatron  },
};
