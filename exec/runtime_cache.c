#include <stdlib.h>

#include "exec/runtime_state.h"

/* Samples [first, first + n) of a block for the prefix, which has no head. */
static struct sample_block part_of(const struct runtime *rt, const struct sample_block *b,
                                   int64_t first, int64_t n)
{
    const struct model *m = rt->spec.model;
    const int64_t image = (int64_t)m->channels * m->image * m->image, seq = m->seq;
    return (struct sample_block){.num_samples = n,
                                 .ids = b->ids ? b->ids + first : NULL,
                                 .images = b->images ? b->images + first * image : NULL,
                                 .tokens = b->tokens ? b->tokens + first * seq : NULL,
                                 .token_types =
                                     b->token_types ? b->token_types + first * seq : NULL,
                                 .lengths = b->lengths ? b->lengths + first : NULL};
}

/* Compute samples [first, first + n), of which the cache gave level `from` (0: nothing), and put
 * them there. at: their place in the prefix's output; host: the same in host memory. */
static enum status compute(struct runtime *rt, const struct sample_block *block, int64_t first,
                           int64_t n, int from, float *at, float *host, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int level = rt->spec.plan->first_item[0];
    const int64_t elems = stage_input_elems(rt->spec.model, level);
    const int64_t bytes = elems * n * (int64_t)sizeof(float);
    const struct sample_block part = part_of(rt, block, first, n);
    float *in[1] = {NULL}, *out[1] = {NULL};
    enum status rc;
    if (from > 0 && !be->host_memory)
        be->copy_in(be, at, host, bytes);
    rc = from > 0 ? stage_forward_tail(rt->spec.prefix, 0, &part, from, at, out, err)
                  : stage_forward(rt->spec.prefix, 0, &part, STEP_EVAL, in, out, false, NULL, err);
    if (rc != OK)
        return rc;
    be->copy(be, at, out[0], bytes);
    if (!be->host_memory)
        be->copy_out(be, host, at, bytes);
    rc = be->sync(be, err);
    if (!rt->spec.job->cache.bf16 && n < rt->spec.plan->microbatches.size)
        return rc;
    for (int64_t i = 0; rc == OK && i < n; i++)
        cache_put(rt->spec.cache, part.ids[i], level, elems, host + i * elems);
    return rc;
}

/* The bits of a sample depend on the size of its micro-batch (BLAS has other kernels for small
 * matrices), not on its place in it or on its neighbours. So where equal bits are promised (fp32),
 * only full micro-batches meet the cache, and one that lacks a sample is computed as a whole. In
 * bf16, neighbours that lack the same are computed together and the rest is not. */
enum status runtime_prefix_cached(struct runtime *rt, int microbatch, const struct batch *batch,
                                  struct err *err)
{
    struct backend *be = rt->spec.backend;
    const struct sample_block *block = &batch->blocks[microbatch];
    const int level = rt->spec.plan->first_item[0];
    const int64_t n = block->num_samples, most = rt->spec.plan->microbatches.size;
    const int64_t elems = stage_input_elems(rt->spec.model, level);
    const bool exact = !rt->spec.job->cache.bf16;
    float *to = rt->prefix_out[microbatch], *host = to;
    int lowest = level, highest = 0;
    enum status rc = OK;
    if (!rt->cache_level)
        rt->cache_level = calloc((size_t)most, sizeof *rt->cache_level);
    if (!be->host_memory && !rt->cache_host)
        rt->cache_host = calloc((size_t)(most * elems), sizeof *rt->cache_host);
    if (!rt->cache_level || (!be->host_memory && !rt->cache_host))
        return err_nomem(err);
    if (!be->host_memory)
        host = rt->cache_host;
    for (int64_t i = 0; i < n; i++) {
        const bool take = !exact || n == most;
        const int got =
            take ? cache_take(rt->spec.cache, block->ids[i], level, elems, host + i * elems) : 0;
        rt->cache_level[i] = got;
        lowest = got < lowest ? got : lowest;
        highest = got > highest ? got : highest;
    }
    for (int64_t i = 0; exact && lowest < level && i < n; i++)
        rt->cache_level[i] = lowest == highest ? lowest : 0;
    for (int64_t i = 0, end; rc == OK && i < n; i = end) {
        const int from = rt->cache_level[i];
        for (end = i + 1; end < n && rt->cache_level[end] == from;)
            end++;
        if (from < level)
            rc = compute(rt, block, i, end - i, from, to + i * elems, host + i * elems, err);
        else if (!be->host_memory)
            be->copy_in(be, to + i * elems, host + i * elems,
                        elems * (end - i) * (int64_t)sizeof(float));
    }
    if (rc == OK && !be->host_memory)
        rc = be->sync(be, err);
    rt->prefix_ready[microbatch] = rc == OK;
    return rc;
}
