#include "exec/run/choose_token.h"

#include <math.h>
#include <stdlib.h>

static int likelier(const void *a, const void *b)
{
    const struct token_work *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

int32_t choose_token(const float *logits, int vocab, const struct token_rule *rule, double draw,
                     struct token_work *work, double *logprob)
{
    int32_t best = 0;
    double all = 0.0, kept = 0.0, sum = 0.0;
    int n = vocab;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < vocab; i++)
        all += exp((double)(logits[i] - logits[best]));
    int32_t chosen = best;
    if (rule->temperature > 0.0) {
        for (int i = 0; i < vocab; i++)
            work[i] = (struct token_work){
                i, (float)exp((double)(logits[i] - logits[best]) / rule->temperature)};
        if (rule->top_k > 0 || rule->top_p < 1.0)
            qsort(work, (size_t)vocab, sizeof *work, likelier);
        if (rule->top_k > 0 && rule->top_k < n)
            n = (int)rule->top_k;
        for (int i = 0; i < n; i++)
            kept += (double)work[i].weight;
        if (rule->top_p < 1.0) {
            const double wanted = rule->top_p * kept;
            int keep = 0;
            for (kept = 0.0; keep < n && (keep == 0 || kept < wanted); keep++)
                kept += (double)work[keep].weight;
            n = keep;
        }
        chosen = work[n - 1].id; /* where rounding leaves the draw beyond the sum */
        for (int i = 0; i < n; i++) {
            sum += (double)work[i].weight;
            if (draw * kept < sum) {
                chosen = work[i].id;
                break;
            }
        }
    }
    *logprob = (double)(logits[chosen] - logits[best]) - log(all);
    return chosen;
}
