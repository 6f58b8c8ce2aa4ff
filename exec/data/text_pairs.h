/* exec/data/text_pairs.h - rows of one or two texts as tokens, and a class: what a BERT that
 * classifies reads (tsv.c, table.c). */
#pragma once

#include "exec/data/dataset.h"

struct pair_row {
    int64_t first; /* index in ids of the first token of its first text */
    int32_t tokens[2];
    int32_t label;
};
struct pair_list {
    int32_t *ids; /* owned */
    int64_t num_ids, room_ids;
    struct pair_row *rows; /* owned */
    int64_t num_rows, room_rows;
};
struct text_pairs {
    struct bert_tokens bert;
    struct pair_list splits[SPLIT_COUNT];
};

/* Begin a data set of pairs for a job: check the model and open the vocabulary. dataset->ctx owns
 * the result; dataset_clear() releases it. Errors of dataset_wordpiece(). */
enum status text_pairs_open(const struct job *job, struct dataset *dataset, struct err *err);

/* Add a row of tokens, of which the first num_first are the first text's. Amortised O(tokens). */
enum status text_pairs_add(struct pair_list *list, const struct token_list *tokens,
                           int64_t num_first, int32_t label, struct err *err);
