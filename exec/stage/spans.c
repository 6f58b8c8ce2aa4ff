#include <string.h>

#include "exec/base/bf16.h"
#include "exec/stage/stage_state.h"

/* Widen bf16 numbers in place, from the front; they lie in the upper half of values. */
static void widen_upper_half(int64_t num, float *values)
{
    for (int64_t i = 0; i < num; i++) {
        uint16_t half;
        memcpy(&half, (const char *)values + 2 * (num + i), sizeof half);
        values[i] = bf16_to(half);
    }
}

/* The loss has replaced the logits by softmax minus target, so adding the target gives the softmax.
 */
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
    const bool wide = be->elem_bytes == (int)sizeof *probabilities;
    be->copy_out(be, wide ? probabilities : probabilities + n * seq,
                 shared->buf[stage->num_items - 1][HE_LOGITS], backend_bytes(be, n * seq * 2));
    rc = be->sync(be, err);
    if (rc == OK && !wide)
        widen_upper_half(n * seq * 2, probabilities);
    for (int64_t i = 0; rc == OK && i < n * seq * 2; i++)
        probabilities[i] += smoothing / (float)seq;
    for (int64_t i = 0; rc == OK && i < n * 2; i++)
        if (block->labels[i] >= 0)
            probabilities[(i / 2 * seq + block->labels[i]) * 2 + i % 2] += 1.0f - smoothing;
    return rc;
}
