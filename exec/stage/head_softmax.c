/* The probabilities of a head that classifies tokens or samples, out of what its loss left. */
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

/* The softmax of the head: `rows` of `classes` logits, of which class c of row r of group g lies at
 * (g * classes + c) * group + r. The loss has replaced the logits by softmax minus target, so adding the
 * target gives the softmax. */
static enum status read_softmax(struct stage *stage, const struct sample_block *block, int group,
                                int64_t classes, float *probabilities, struct err *err)
{
    const struct stash_set *shared = &stage->sets[stage->num_slots];
    struct backend *be = stage->spec.backend;
    const int64_t rows = block->num_samples * group, num = rows * classes;
    const float smoothing = (float)stage->spec.job->train.label_smoothing;
    const bool wide = be->elem_bytes == (int)sizeof *probabilities;
    be->copy_out(be, wide ? (void *)probabilities : (char *)probabilities + 2 * num,
                 shared->buf[stage->num_items - 1][HE_LOGITS], backend_bytes(be, num));
    enum status rc = be->sync(be, err);
    if (rc == OK && !wide)
        widen_upper_half(num, probabilities);
    for (int64_t i = 0; rc == OK && i < num; i++)
        probabilities[i] += smoothing / (float)classes;
    for (int64_t r = 0; rc == OK && r < rows; r++)
        if (block->labels[r] >= 0)
            probabilities[(r / group * classes + block->labels[r]) * group + r % group] +=
                1.0f - smoothing;
    return rc;
}

static bool has_head(const struct stage *stage, enum model_task task)
{
    return stage->arch.task == task && stage->spec.end_item == stage->spec.model->num_items;
}

enum status stage_span_probabilities(struct stage *stage, const struct sample_block *block,
                                     float *probabilities, struct err *err)
{
    return has_head(stage, TASK_QA)
               ? read_softmax(stage, block, 2, stage->arch.seq, probabilities, err)
               : err_set(err, ERR_INPUT, "stage: no span head here");
}

enum status stage_class_probabilities(struct stage *stage, const struct sample_block *block,
                                      float *probabilities, struct err *err)
{
    return has_head(stage, TASK_CLASSIFY)
               ? read_softmax(stage, block, 1, stage->arch.outputs, probabilities, err)
               : err_set(err, ERR_INPUT, "stage: no class head here");
}
