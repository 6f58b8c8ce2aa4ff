/* exec/data/squad.h - the answers behind SQuAD's samples: what exact match and F1 are taken from.
 *
 * A sample is a window of a context; a question has one or more. An evaluation keeps the best span
 * of each question over its windows and scores the text that it stands for. */
#ifndef ELAPSE_EXEC_DATA_SQUAD_H
#define ELAPSE_EXEC_DATA_SQUAD_H

#include "exec/data/dataset.h"

/* A span of a sample, in positions of its tokens, and how much the model believes in it. */
struct span {
    int64_t sample;
    int32_t start, end; /* end included */
    double score;       /* larger is better; comparable between windows */
};

/* Mean over the split's questions, 0..1, best over the answers of each (rajpurkar.github.io/
 * SQuAD-explorer, evaluate-v1.1.py: lower case, no punctuation, no articles). A question without a
 * span counts 0; a span outside the window's context is an empty answer. ERR_NOMEM. */
struct qa_score {
    int64_t questions;
    double exact, f1;
};
enum status squad_score(const struct dataset *dataset, enum split split, const struct span *spans,
                        int64_t num_spans, struct qa_score *score, struct err *err);

/* Positions [*first, *end) of a sample hold its context. */
void squad_context(const struct dataset *dataset, enum split split, int64_t sample, int *first,
                   int *end);

/* The bytes of the context that positions start..end of a sample stand for; false: none. */
bool squad_text(const struct dataset *dataset, const struct span *span, enum split split,
                const char **text, int *bytes);

#endif
