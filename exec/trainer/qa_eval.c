#include "exec/trainer/qa_eval.h"

#include <stdlib.h>

#include "partition/base/arrays.h"

enum { MAX_ANSWER_TOKENS = 30 };

struct span qa_best_span(const float *probabilities, int first, int end)
{
    struct span best = {.start = 0, .end = 0, .score = 0};
    for (int s = first; s < end; s++)
        for (int e = s; e < end && e < s + MAX_ANSWER_TOKENS; e++) {
            double score = (double)probabilities[2 * s] * (double)probabilities[2 * e + 1];
            if (score > best.score)
                best = (struct span){.start = s, .end = e, .score = score};
        }
    return best;
}

enum status qa_eval_block(void *ctx, struct stage *stage, const struct sample_block *block,
                          struct err *err)
{
    struct qa_eval *eval = ctx;
    int64_t n = block->num_samples, seq = eval->dataset->seq, need = n * seq * 2;
    enum status rc;
    if (!array_grow(&eval->probabilities, need, &eval->num_probabilities,
                    sizeof *eval->probabilities) ||
        !array_grow(&eval->spans, eval->count + n, &eval->room, sizeof *eval->spans))
        return err_nomem(err);
    rc = stage_span_probabilities(stage, block, eval->probabilities, err);
    for (int64_t i = 0; rc == OK && i < n; i++) {
        int first = 0, end = 0;
        squad_context(eval->dataset, eval->split, block->ids[i], &first, &end);
        struct span span = qa_best_span(eval->probabilities + i * seq * 2, first, end);
        span.sample = block->ids[i];
        eval->spans[eval->count++] = span;
    }
    return rc;
}

enum status qa_eval_score(const struct qa_eval *eval, const struct comm_group *group,
                          struct qa_score *score, struct err *err)
{
    void *all = NULL;
    int64_t *sizes = NULL, bytes = 0;
    enum status rc = comm_gather(group, eval->spans, eval->count * (int64_t)sizeof *eval->spans,
                                 &all, &sizes, err);
    if (rc == OK && comm_group_rank(group) == 0) {
        for (int r = 0; r < comm_group_size(group); r++)
            bytes += sizes[r];
        rc = squad_score(eval->dataset, eval->split, all, bytes / (int64_t)sizeof(struct span),
                         score, err);
    }
    free(all);
    free(sizes);
    return rc;
}

void qa_eval_clear(struct qa_eval *eval)
{
    free(eval->spans);
    free(eval->probabilities);
    *eval = (struct qa_eval){0};
}
