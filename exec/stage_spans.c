#include <string.h>

#include "exec/stage.h"
#include "exec/stage_internal.h"

/* The loss leaves softmax minus target in place of the logits; the target is known. */
enum status stage_span_probabilities(struct stage *stage, const struct sample_block *block,
                                     float *probabilities, struct err *err)
{
    const struct stash_set *shared = &stage->sets[stage->num_slots];
    struct backend *be = stage->spec.backend;
    const int64_t n = block->num_samples, seq = stage->arch.seq;
    const float smoothing = (float)stage->spec.job->train.label_smoothing;
    enum status rc;
    if (stage->arch.task != TASK_QA || stage->spec.end_item != stage->spec.model->num_items)
        return err_set(err, ERR_INPUT, "stage: no span head here");
    be->copy_out(be, probabilities, shared->buf[stage->num_items - 1][HE_LOGITS],
                 n * seq * 2 * (int64_t)sizeof *probabilities);
    rc = be->sync(be, err);
    for (int64_t i = 0; rc == OK && i < n * seq * 2; i++)
        probabilities[i] += smoothing / (float)seq;
    for (int64_t i = 0; rc == OK && i < n * 2; i++)
        if (block->labels[i] >= 0)
            probabilities[(i / 2 * seq + block->labels[i]) * 2 + i % 2] += 1.0f - smoothing;
    return rc;
}
