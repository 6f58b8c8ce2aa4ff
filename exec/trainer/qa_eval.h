/* exec/trainer/qa_eval.h - exact match and F1 of question answering, gathered while an evaluation runs.
 *
 * The rank with the span head keeps the best span of each sample. At the end rank 0 of the group
 * compares the texts with the answers (exec/data/squad.h). */
#pragma once

#include "exec/comm/comm.h"
#include "exec/data/squad.h"
#include "exec/stage/stage.h"

struct qa_eval {
    const struct dataset *dataset; /* borrowed; of kind squad */
    enum split split;
    struct span *spans; /* owned */
    int64_t count, room;
    float *probabilities; /* owned, scratch */
    int64_t num_probabilities;
};

/* A runtime_eval_hook with a struct qa_eval as ctx. It takes the most probable span of each sample,
 * of at most 30 tokens of the sample's context (google-research/bert, run_squad.py). */
enum status qa_eval_block(void *ctx, struct stage *stage, const struct sample_block *block,
                          struct err *err);

/* The best span of one sample. probabilities: as from stage_span_probabilities(); positions [first,
 * end) hold the context. The score is 0 if there is no span. O((end - first) * 30). */
struct span qa_best_span(const float *probabilities, int first, int end);

/* Collective; *score is filled on rank 0 of the group. */
enum status qa_eval_score(const struct qa_eval *eval, const struct comm_group *group,
                          struct qa_score *score, struct err *err);
void qa_eval_clear(struct qa_eval *eval);
