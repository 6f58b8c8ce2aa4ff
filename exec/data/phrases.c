/* exec/data/phrases.c - token sequences made from a seed, for text models when no text is
 * available.
 *
 * A phrase walks over a small alphabet. The next token follows from the previous one by a fixed
 * keyed map, except one token in eight, which is random. Language models learn the map. For a
 * classifier the label (class = id % classes) selects the map, so the class can be read from the
 * transitions but not from any single token. Phrases for the bert family vary in length. Masked
 * models see 0 in place of the tokens that they must predict (masking.h). */
#include <stdlib.h>

#include "exec/data/dataset.h"
#include "exec/data/masking.h"

enum { ALPHABET = 64, NO_LABEL = -100 };

struct phrases {
    enum model_task task;
    bool varied_length;
    int alphabet, classes;
};

static void phrases_clear(struct dataset *dataset)
{
    free(dataset->ctx);
    dataset->ctx = NULL;
}

static enum status phrases_sample(const struct dataset *dataset, enum split split, int64_t id,
                                  const struct sample_out *out, struct err *err)
{
    const struct phrases *phrases = dataset->ctx;
    uint64_t key = counter_key(dataset->seed ^ 0x706872617365u, (uint64_t)split, (uint64_t)id);
    uint64_t class = phrases->classes ? (uint64_t)(id % phrases->classes) : 0;
    uint64_t map = counter_key(dataset->seed, class, 0x6d6170u);
    int seq = dataset->seq, length = seq;
    int32_t token = (int32_t)(counter_bits(key, 0) % (uint64_t)phrases->alphabet);
    (void)err;
    if (phrases->varied_length)
        length = seq / 2 + (int)(counter_bits(key, 1) % (uint64_t)(seq - seq / 2) + 1);
    if (out->length)
        out->length[0] = length;
    if (out->labels && phrases->task == TASK_CLASSIFY)
        out->labels[0] = (int32_t) class;
    const int span = phrases->task == TASK_QA ? (int)(counter_bits(key, 2) % (uint64_t)length) : -1;
    if (out->labels && phrases->task == TASK_QA)
        out->labels[0] = out->labels[1] = span;
    struct masking masks = masking_start(dataset->seed, split, out->epoch, id, length - 1);
    for (int i = 0; i < seq; i++) {
        uint64_t draw = counter_bits(key, (uint64_t)i + 3);
        int32_t next = (int32_t)((draw & 7) == 0 ? (draw >> 8) % (uint64_t)phrases->alphabet
                                                 : counter_bits(map, (uint64_t)token) %
                                                       (uint64_t)phrases->alphabet);
        bool inside = i < length;
        bool masked = phrases->task == TASK_MLM && i > 0 && inside && masking_next(&masks);
        /* The answer of a question is the one token outside the alphabet. */
        int32_t shown = masked ? 0 : token;
        if (i == span)
            shown = (int32_t)phrases->alphabet;
        if (out->tokens)
            out->tokens[i] = inside ? shown : 0;
        if (out->token_types)
            out->token_types[i] = 0;
        if (out->labels && phrases->task == TASK_CAUSAL_LM)
            out->labels[i] = i + 1 < seq ? next : NO_LABEL;
        if (out->labels && phrases->task == TASK_MLM)
            out->labels[i] = masked ? token : NO_LABEL;
        token = next;
    }
    return OK;
}

enum status phrases_open(const struct model *model, int64_t num_train, int64_t num_test,
                         uint64_t seed, struct dataset *dataset, struct err *err)
{
    struct phrases *phrases;
    if (model->seq < 2 || model->vocab < 4)
        return err_set(err, ERR_INPUT,
                       "synthetic text needs a model with seq >= 2 and vocab >= 4, '%s' has %d, %d",
                       model->name, model->seq, model->vocab);
    phrases = calloc(1, sizeof *phrases);
    if (!phrases)
        return err_nomem(err);
    phrases->task = model->task;
    phrases->varied_length = model->family == FAMILY_BERT;
    phrases->alphabet = (model->vocab < ALPHABET ? model->vocab : ALPHABET) - 1;
    phrases->classes = model->task == TASK_CLASSIFY ? model->classes : 0;
    *dataset = (struct dataset){
        .seq = model->seq,
        .labels_per_sample = model->task == TASK_CLASSIFY ? 1
                             : model->task == TASK_QA     ? 2
                                                          : model->seq,
        .targets_per_sample = model->task == TASK_CLASSIFY    ? 1
                              : model->task == TASK_QA        ? 2
                              : model->task == TASK_CAUSAL_LM ? model->seq - 1
                                                              : 0,
        .classes = model->task == TASK_CLASSIFY ? model->classes : model->vocab,
        .seed = seed,
        .num_samples = {num_train, num_test},
        .ctx = phrases,
        .sample = phrases_sample,
        .clear = phrases_clear
    };
    return OK;
}
