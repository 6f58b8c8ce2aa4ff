/* exec/data/text_lines.h - JSON lines for causal language models, as `data.kind: text` reads them.
 *
 * data.path is FILE.jsonl, whose last tenth of the lines (at least one) is the test split, or a folder
 * with train.jsonl and test.jsonl. A line is an object with "text"; or with "prompt" and "completion",
 * of which the completion counts in the loss; or with "messages", which the model's chat template
 * writes (chat.h), and in which what the assistant says counts. A document without a token that counts
 * is left out, and a note says of how many; a split of only such documents is refused.
 *
 * A line becomes a document. One that is no chat ends with the tokenizer's end-of-text token, if it
 * has one. Documents lie one after the other in windows of model.seq tokens: one that does not fit the
 * rest of a window begins the next. No token sees another document. A text that is longer than a window
 * continues in the next one; of a longer prompt or chat the end is left out, and a note says of how
 * many. */
#pragma once

#include "exec/data/dataset.h"

/* Whether a job's path is for text_lines_open(). */
bool text_lines_at(const char *path);
/* Opens as the readers of dataset.h do. ERR_INPUT names file and line. O(tokens) memory. */
enum status text_lines_open(const struct job *job, struct dataset *dataset, struct err *err);
