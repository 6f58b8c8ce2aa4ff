/* exec/serve/choose_token.h - draws the next token from a model's logits. Pure. */
#pragma once

#include <stdint.h>

#include "partition/base/status.h"

struct token_rule {
    double temperature; /* divides the logits; 0: always the likeliest token */
    int64_t top_k;      /* only that many likeliest tokens; 0: all */
    double top_p;       /* then only the likeliest ones that hold that much probability together */
};

/* Scratch of choose_token(): a token and its probability, times a constant. */
struct token_work {
    int32_t id;
    float weight;
};

/* Choose with a number in [0, 1). Of equal logits the smaller id counts as likelier. logprob: the
 * natural logarithm of the token's probability before the rule. work: [vocab] of scratch. O(vocab),
 * and O(log vocab) more for each token that top_k or top_p keeps. */
int32_t choose_token(const float *logits, int vocab, const struct token_rule *rule, double draw,
                     struct token_work *work, double *logprob);
