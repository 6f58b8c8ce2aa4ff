/* exec/data/masking.h - chooses the tokens that a masked language model must predict.
 *
 * Exactly model_masked_of(count) of `count` tokens are chosen, and every choice is equally likely.
 * The choice is drawn from (seed, split, epoch, sample): training samples show different masks in
 * each epoch, test samples always the same masks, and a resumed run shows the masks that the first
 * run would have shown. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/data/counter.h"
#include "partition/model/model.h"

struct masking {
    uint64_t key; /* key of the random stream; the caller may use its numbers from 2^32 on */
    int64_t left, wanted;
};

static inline struct masking masking_start(uint64_t seed, int split, int64_t epoch, int64_t id,
                                           int64_t count)
{
    uint64_t sample = counter_key(seed ^ 0x6d61736bu, (uint64_t)split, (uint64_t)id);
    return (struct masking){.key = counter_key(sample, (uint64_t)epoch, 0),
                            .left = count,
                            .wanted = model_masked_of(count)};
}

/* Whether the next token is masked; call it once for each of the `count` tokens. Knuth, The Art of
 * Computer Programming 2, 3.4.2, algorithm S: a token is chosen with probability wanted / left. */
static inline bool masking_next(struct masking *m)
{
    uint64_t index = (uint64_t)m->left--;
    if (counter_unit(m->key, index) * (double)index >= (double)m->wanted)
        return false;
    m->wanted--;
    return true;
}
