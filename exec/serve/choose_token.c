#include "exec/serve/choose_token.h"

#include <math.h>
#include <stdbool.h>

static bool likelier(struct token_work x, struct token_work y)
{
    return x.weight != y.weight ? x.weight > y.weight : x.id < y.id;
}

/* Restore a binary heap of n tokens, likeliest first, below a place that may be too unlikely. */
static void sift_down(struct token_work *heap, int at, int n)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && likelier(heap[child + 1], heap[child]))
            child++;
        if (!likelier(heap[child], heap[at]))
            return;
        const struct token_work swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Choose among the likeliest tokens. The heap gives them in order, and only the kept ones leave it:
 * a whole sort of a large vocabulary would cost more than all other work of the draw. */
static int32_t choose_likely(const struct token_rule *rule, double draw, double all, int vocab,
                             struct token_work *work)
{
    const int most = rule->top_k > 0 && rule->top_k < vocab ? (int)rule->top_k : vocab;
    struct token_work *last = work + vocab; /* kept tokens follow the heap, the likeliest last */
    int n = 0;
    double kept = 0.0, wanted = rule->top_p * all;
    for (int at = vocab / 2 - 1; at >= 0; at--)
        sift_down(work, at, vocab);
    while (n < most && (n == 0 || rule->top_p >= 1.0 || most < vocab || kept < wanted)) {
        const struct token_work top = work[0];
        n++;
        work[0] = *(last - n);
        *(last - n) = top;
        sift_down(work, 0, vocab - n);
        kept += (double)top.weight;
    }
    if (rule->top_p < 1.0 && most < vocab) {
        wanted = rule->top_p * kept;
        n = 0;
        for (kept = 0.0; n < most && (n == 0 || kept < wanted); n++)
            kept += (double)(last - n - 1)->weight;
    }
    double sum = 0.0;
    for (int i = 1; i < n; i++) {
        sum += (double)(last - i)->weight;
        if (draw * kept < sum)
            return (last - i)->id;
    }
    return (last - n)->id; /* the last one also where rounding leaves the draw beyond the sum */
}

int32_t choose_token(const float *logits, int vocab, const struct token_rule *rule, double draw,
                     struct token_work *work, double *logprob)
{
    int32_t best = 0;
    double all = 0.0, kept = 0.0, sum = 0.0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < vocab; i++)
        all += exp((double)(logits[i] - logits[best]));
    int32_t chosen = best;
    if (rule->temperature > 0.0) {
        for (int i = 0; i < vocab; i++) {
            work[i] = (struct token_work){
                i, (float)exp((double)(logits[i] - logits[best]) / rule->temperature)};
            kept += (double)work[i].weight;
        }
        if (rule->top_k > 0 || rule->top_p < 1.0) {
            chosen = choose_likely(rule, draw, kept, vocab, work);
        } else {
            int i = 0;
            while (i < vocab - 1 && (sum += (double)work[i].weight) <= draw * kept)
                i++;
            chosen = work[i].id;
        }
    }
    *logprob = (double)(logits[chosen] - logits[best]) - log(all);
    return chosen;
}
