/* exec/serve/generate_request.h - `elapse generate`: continues a prompt. */
#pragma once

#include "exec/serve/choose_token.h"
#include "partition/base/options.h"

struct generate_request {
    const char *from;    /* a run's folder, a checkpoint, or weights with their config.json */
    const char *adapter; /* folder of adapters beside weights with a config.json; NULL */
    const char *prompt;
    const char *vocab; /* tokenizer; NULL: the run's, or the one beside the weights */
    int64_t max_tokens, seed;
    int64_t threads; /* 0: all available cores */
    struct token_rule rule;
    struct option_list stops; /* texts before which the answer ends */
    bool json;
};

/* Print the text on stdout as it comes, or one JSON object at the end. It ends at max_tokens, at
 * a special token, in front of a stop text, or where the context is full. ERR_SYSTEM: a
 * file is missing; ERR_INPUT: a prompt that is empty or longer than the context, a
 * vocabulary that is not the model's, a model that does not predict the next token. */
enum status generate_request_run(const struct generate_request *q, struct err *err);
