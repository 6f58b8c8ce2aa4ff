/* Rows of texts as tokens (text_pairs.h). A sample is [CLS] text [SEP], or [CLS] text [SEP] text
 * [SEP]; texts that are too long are shortened, the longer one first. */
#include "exec/data/text_pairs.h"

#include <stdlib.h>

#include "partition/base/arrays.h"

enum status text_pairs_add(struct pair_list *list, const struct token_list *tokens,
                           int64_t num_first, int32_t label, struct err *err)
{
    if (!array_grow(&list->rows, list->num_rows + 1, &list->room_rows, sizeof *list->rows))
        return err_nomem(err);
    /* One more than needed, so that ids exists without a token, too. */
    if (!array_grow(&list->ids, list->num_ids + tokens->count + 1, &list->room_ids,
                    sizeof *list->ids))
        return err_nomem(err);
    list->rows[list->num_rows++] = (struct pair_row){
        .first = list->num_ids,
        .tokens = {(int32_t)num_first, (int32_t)(tokens->count - num_first)},
        .label = label
    };
    for (int64_t i = 0; i < tokens->count; i++)
        list->ids[list->num_ids++] = tokens->at[i].id;
    return OK;
}

static enum status pairs_sample(const struct dataset *dataset, enum split split, int64_t id,
                                const struct sample_out *out, struct err *err)
{
    const struct text_pairs *pairs = dataset->ctx;
    const struct pair_list *list = &pairs->splits[split];
    const struct pair_row *row = &list->rows[id];
    int32_t a = row->tokens[0], b = row->tokens[1];
    const int32_t *ids = list->ids + row->first, *ids_b = ids + a;
    int at = 0, room = dataset->seq - 2 - (b > 0);
    (void)err;
    if (out->labels)
        out->labels[0] = row->label;
    /* Too long: shorten the longer text first. */
    if (a + b > room) {
        int32_t half = (int32_t)room / 2;
        int32_t keep_b = a < room - half ? (int32_t)room - a : half;
        b = b < keep_b ? b : keep_b;
        a = (int32_t)room - b;
    }
    if (out->length)
        out->length[0] = a + b + 2 + (b > 0);
    if (out->token_types)
        for (int i = 0; i < dataset->seq; i++)
            out->token_types[i] = b > 0 && i >= a + 2 && i < a + b + 3;
    if (!out->tokens)
        return OK;
    out->tokens[at++] = pairs->bert.cls;
    for (int i = 0; i < a; i++)
        out->tokens[at++] = ids[i];
    out->tokens[at++] = pairs->bert.sep;
    for (int i = 0; i < b; i++)
        out->tokens[at++] = ids_b[i];
    if (b > 0)
        out->tokens[at++] = pairs->bert.sep;
    while (at < dataset->seq)
        out->tokens[at++] = pairs->bert.pad;
    return OK;
}

static void pairs_clear(struct dataset *dataset)
{
    struct text_pairs *pairs = dataset->ctx;
    if (!pairs)
        return;
    tokenizer_free(pairs->bert.tokenizer);
    for (int split = 0; split < SPLIT_COUNT; split++) {
        free(pairs->splits[split].ids);
        free(pairs->splits[split].rows);
    }
    free(pairs);
    dataset->ctx = NULL;
}

enum status text_pairs_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    struct dataset got = {.seq = job->model.seq,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .classes = job->model.classes,
                          .sample = pairs_sample,
                          .clear = pairs_clear};
    struct text_pairs *pairs = calloc(1, sizeof *pairs);
    enum status rc;
    if (!pairs)
        return err_nomem(err);
    got.ctx = pairs;
    rc = dataset_text_model(job, TASK_CLASSIFY, err);
    if (rc == OK && job->model.seq < 8)
        rc = err_set(err, ERR_INPUT, "%s: model.seq must be at least 8 for texts, got %d",
                     dataset_job_name(job), job->model.seq);
    THEN(dataset_wordpiece(job, &pairs->bert, err));
    if (rc == OK)
        got.lower_case = tokenizer_lowers(pairs->bert.tokenizer);
    return dataset_hand_over(rc, &got, dataset);
}
