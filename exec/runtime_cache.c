#include <stdlib.h>

#include "exec/cache_ahead.h"
#include "exec/runtime_state.h"
#include "partition/units.h"

struct runtime_cache {
    struct cache *cache;
    struct cache_ahead *ahead;
    int *levels; /* owned, by sample of a micro-batch */
    int level;   /* frozen items */
    bool whole;  /* cache_whole() */
    int64_t elems, sample_bytes;
    int64_t fill_ns;            /* spent on what the cache lacked */
    void *buffers[CACHE_AHEAD]; /* the thread's, when it does not run; alloc_host()'s */
    /* On a device: a micro-batch in host memory (owned), what copies it in, and when it has. */
    void *host;
    struct backend_lane *lane;
    struct backend_event *copied;
};

/* A micro-batch's worth of what the cache holds, in memory that the prefix's output may lie in. */
static enum status new_buffer(struct runtime *rt, void **buffer, struct err *err)
{
    const struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    int64_t bytes;
    if (!mul_ok(c->sample_bytes, rt->spec.plan->microbatches.size, &bytes))
        return err_set(err, ERR_INPUT, "the frozen prefix's output is too large");
    rt->bytes += bytes;
    return be->alloc_host(be, bytes, buffer, err);
}

enum status runtime_cache_init(struct runtime *rt, struct err *err)
{
    const struct plan *plan = rt->spec.plan;
    struct backend *be = rt->spec.backend;
    struct runtime_cache *c;
    enum status rc = OK;
    if (!rt->spec.cache || !rt->spec.prefix || plan->frozen != FROZEN_CACHED)
        return OK;
    c = rt->cache = calloc(1, sizeof *c);
    if (!c)
        return err_nomem(err);
    c->cache = rt->spec.cache;
    c->level = plan->first_item[0];
    c->whole = cache_whole(c->cache);
    c->elems = stage_input_elems(rt->spec.model, c->level);
    c->sample_bytes = c->elems * cache_elem_bytes(c->cache);
    c->levels = calloc((size_t)plan->microbatches.size, sizeof *c->levels);
    if (!c->levels)
        return err_nomem(err);
    for (int i = 0; rc == OK && i < CACHE_AHEAD; i++)
        rc = new_buffer(rt, &c->buffers[i], err);
    if (rc == OK && runtime_on_device(rt))
        rc = new_buffer(rt, &c->host, err);
    if (rc == OK && runtime_on_device(rt))
        rc = be->lane_new(be, &c->lane, err);
    if (rc == OK && runtime_on_device(rt))
        rc = be->event_new(be, &c->copied, err);
    if (rc != OK)
        return rc;
    struct cache_ahead_spec spec = {.cache = c->cache,
                                    .sampler = rt->spec.sampler,
                                    .replica = rt->spec.replica,
                                    .level = c->level,
                                    .elems = c->elems,
                                    .full = c->whole};
    for (int i = 0; i < CACHE_AHEAD; i++)
        spec.buffers[i] = c->buffers[i];
    return cache_ahead_new(&spec, &c->ahead, err);
}

void runtime_cache_clear(struct runtime *rt)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    if (!c)
        return;
    cache_ahead_free(c->ahead, c->buffers);
    for (int i = 0; i < CACHE_AHEAD; i++)
        be->free_host(be, c->buffers[i]);
    be->free_host(be, c->host);
    if (runtime_on_device(rt)) {
        be->lane_free(be, c->lane);
        be->event_free(be, c->copied);
    }
    free(c->levels);
    free(c);
    rt->cache = NULL;
}

void runtime_cache_flush(struct runtime *rt)
{
    if (rt->cache)
        cache_ahead_flush(rt->cache->ahead);
}

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
static enum status compute(struct runtime *rt, int64_t epoch, const struct sample_block *block,
                           int64_t first, int64_t n, int from, void *at, char *host,
                           struct err *err)
{
    const struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    const int64_t bytes = c->sample_bytes * n;
    const struct sample_block part = part_of(rt, block, first, n);
    void *in[1] = {NULL}, *out[1] = {NULL};
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
    if (rc != OK || (c->whole && n < rt->spec.plan->microbatches.size))
        return rc;
    if (be->host_memory) /* what lies there stays until the step has ended */
        cache_ahead_put(c->ahead, epoch, part.ids, n, host);
    for (int64_t i = 0; i < n && !be->host_memory; i++)
        cache_put(c->cache, epoch, part.ids[i], c->level, c->elems, host + i * c->sample_bytes);
    return OK;
}

/* The bits of a sample never depend on its place in a micro-batch or on its neighbours. Where they
 * depend on the size of the micro-batch (cache_whole()), one that lacks a sample is computed as a
 * whole; else neighbours that lack the same are computed together and the rest is not. */
enum status runtime_prefix_cached(struct runtime *rt, int microbatch, const struct batch *batch,
                                  struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    const struct sample_block *block = &batch->blocks[microbatch];
    const int64_t n = block->num_samples;
    void *host = be->host_memory ? (void *)rt->prefix_out[microbatch] : c->host;
    int64_t begin;
    int lowest = c->level, highest = 0;
    enum status rc = runtime_await(rt, c->copied, err); /* out of what the thread gets back */
    if (rc != OK)
        return rc;
    cache_ahead_get(c->ahead, batch->epoch, batch->step, microbatch, &host, c->levels);
    if (be->host_memory)
        rt->prefix_out[microbatch] = host;
    else
        c->host = host;
    char *to = (char *)rt->prefix_out[microbatch];
    for (int64_t i = 0; i < n; i++) {
        const int got = c->levels[i] > 0 ? c->levels[i] : 0;
        lowest = got < lowest ? got : lowest;
        highest = got > highest ? got : highest;
    }
    for (int64_t i = 0; i < n; i++) { /* what is used, and counted */
        const bool damaged = c->levels[i] < 0;
        if (damaged || (c->whole && lowest < c->level))
            c->levels[i] = lowest == highest ? lowest : 0;
        cache_count(c->cache, c->level, damaged ? -1 : c->levels[i]);
    }
    begin = comm_now_ns(rt->spec.comm);
    for (int64_t i = 0, end; rc == OK && i < n; i = end) {
        const int from = c->levels[i];
        char *part = to + i * c->sample_bytes, *read = (char *)host + i * c->sample_bytes;
        for (end = i + 1; end < n && c->levels[end] == from;)
            end++;
        if (from < c->level)
            rc = compute(rt, batch->epoch, block, i, end - i, from, part, read, err);
        else if (runtime_on_device(rt))
            be->lane_copy_in(be, c->lane, part, read, c->sample_bytes * (end - i));
    }
    if (runtime_on_device(rt)) { /* what was there has had no reader since the last step */
        be->lane_record(be, c->lane, c->copied);
        be->lane_wait(be, NULL, c->copied);
    }
    if (lowest < c->level)
        c->fill_ns += comm_now_ns(rt->spec.comm) - begin;
    rt->prefix_ready[microbatch] = rc == OK;
    return rc;
}

int64_t runtime_fill_ns(const struct runtime *rt)
{
    return rt->cache ? rt->cache->fill_ns : 0;
}
