/* exec/data/squad.h - scores answers to SQuAD questions: exact match and F1.
 *
 * A sample is one window of a context, and a question has one or more windows. An evaluation keeps
 * the best span of each question over its windows and scores the text of that span. */
#pragma once

#include "exec/data/dataset.h"

/* A span of a sample in token positions, and the model's score for it. */
struct span {
    int64_t sample;
    int32_t start, end; /* end is included */
    double score;       /* larger is better; comparable between windows */
};

/* Scores over the questions of the split, 0..1: for each question the best over its answers, then
 * the mean (rajpurkar.github.io/SQuAD-explorer, evaluate-v1.1.py: lower case, without punctuation
 * and articles). A question without a span counts 0. A span outside the context of its window is an
 * empty answer. ERR_NOMEM. */
struct qa_score {
    int64_t questions;
    double exact, f1;
};
enum status squad_score(const struct dataset *dataset, enum split split, const struct span *spans,
                        int64_t num_spans, struct qa_score *score, struct err *err);

/* The token positions [*first, *end) of a sample that hold its context. */
void squad_context(const struct dataset *dataset, enum split split, int64_t sample, int *first,
                   int *end);

/* The bytes of the context after a span. false: the span is not inside the context. */
bool squad_text(const struct dataset *dataset, const struct span *span, enum split split,
                const char **text, int *bytes);
