/* exec/step/step_cache.c - the frozen prefix by way of the cache of its output.
 *
 * For each micro-batch runtime_prefix_cached() takes from the cache's thread what the cache holds
 * of its samples, computes the rest from the highest level that it got, and gives the results to
 * the thread, which puts them into the cache while the step continues. On a device both directions go
 * through pinned host memory on lanes of their own. */
#include <stdlib.h>

#include "exec/cache/cache_ahead.h"
#include "exec/step/runtime_state.h"
#include "partition/base/units.h"

/* On a device: a computed micro-batch on its way into the cache. */
struct outgoing_content {
    enum { OUT_FREE, OUT_LEAVING, OUT_PUT } state; /* OUT_PUT: the cache's thread has it */
    void *host;                                    /* from alloc_host() */
    struct backend_event *from, *made, *left;      /* computing begins, ends; the copy has ended */
    int64_t epoch, n;
    const int64_t *ids; /* borrowed from the batch, which stays until the step has ended */
};
enum { CONTENTS_OUT = 3 };

struct runtime_cache {
    struct cache *cache;
    struct cache_ahead *ahead;
    int *levels; /* owned, by sample of a micro-batch */
    int level;   /* frozen items */
    bool whole;  /* cache_whole() */
    int64_t elems, sample_bytes;
    int64_t fill_ns;            /* time spent on samples that the cache missed */
    void *buffers[CACHE_AHEAD]; /* from alloc_host(); the thread's while it runs */
    /* On a device. host (owned) holds a micro-batch from the cache, lane copies it in, and copied
     * marks the end of that. out[] are micro-batches that lane_out copies out, the oldest at
     * first_out. */
    void *host;
    struct backend_lane *lane, *lane_out;
    struct backend_event *copied;
    struct outgoing_content out[CONTENTS_OUT];
    int first_out;
};

/* Host memory for one micro-batch. On a host-memory backend the prefix's output may lie in it. */
static enum status new_buffer(struct runtime *rt, void **buffer, struct err *err)
{
    const struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    int64_t bytes;
    if (!mul_ok(c->sample_bytes, rt->spec.plan->microbatches.size, &bytes))
        return err_set(err, ERR_INPUT, "the frozen prefix's output is too large");
    return be->alloc_host(be, bytes, buffer, err);
}

static enum status init_device(struct runtime *rt, struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    enum status rc = new_buffer(rt, &c->host, err);
    THEN(be->lane_new(be, &c->lane, err));
    THEN(be->lane_new(be, &c->lane_out, err));
    THEN(be->event_new(be, &c->copied, err));
    for (int i = 0; rc == OK && i < CONTENTS_OUT; i++) {
        struct outgoing_content *out = &c->out[i];
        rc = new_buffer(rt, &out->host, err);
        THEN(be->event_new(be, &out->from, err));
        THEN(be->event_new(be, &out->made, err));
        THEN(be->event_new(be, &out->left, err));
    }
    return rc;
}

static void clear_device(struct runtime *rt)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    be->free_host(be, c->host);
    be->lane_free(be, c->lane);
    be->lane_free(be, c->lane_out);
    be->event_free(be, c->copied);
    for (int i = 0; i < CONTENTS_OUT; i++) {
        be->free_host(be, c->out[i].host);
        be->event_free(be, c->out[i].from);
        be->event_free(be, c->out[i].made);
        be->event_free(be, c->out[i].left);
    }
}

enum status runtime_cache_init(struct runtime *rt, struct err *err)
{
    const struct plan *plan = rt->spec.plan;
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
        rc = init_device(rt, err);
    if (rc != OK)
        return rc;
    rt->bytes +=
        CACHE_AHEAD * c->sample_bytes * plan->microbatches.size; /* pool_memory() counts it, too */
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
    if (runtime_on_device(rt))
        clear_device(rt);
    free(c->levels);
    free(c);
    rt->cache = NULL;
}

/* --- what was computed, into the cache ------------------------------------------------------ */

/* Hand micro-batches that have left the device to the cache's thread, and wait for the oldest
 * `wait` of them. If the device has failed they hold garbage; then the step fails on all ranks that
 * share the cache. */
static enum status hand_to_thread(struct runtime *rt, int wait, struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    for (int i = 0; i < CONTENTS_OUT; i++) {
        struct outgoing_content *out = &c->out[(c->first_out + i) % CONTENTS_OUT];
        if (out->state != OUT_LEAVING)
            continue;
        if (i >= wait && !be->event_done(be, out->left))
            return OK;
        enum status rc = runtime_await(rt, out->left, err);
        if (rc != OK)
            return rc;
        c->fill_ns += be->event_ns(be, out->from, out->made);
        cache_ahead_put(c->ahead, out->epoch, out->ids, out->n, out->host);
        out->state = OUT_PUT;
    }
    return OK;
}

/* Wait until the thread has put everything that it was handed. */
static void finish_puts(struct runtime_cache *c)
{
    cache_ahead_flush(c->ahead);
    for (int i = 0; i < CONTENTS_OUT; i++)
        if (c->out[i].state == OUT_PUT)
            c->out[i].state = OUT_FREE;
}

enum status runtime_cache_flush(struct runtime *rt, enum status rc, struct err *err)
{
    if (!rt->cache)
        return rc;
    if (rc == OK && runtime_on_device(rt))
        rc = hand_to_thread(rt, CONTENTS_OUT, err);
    finish_puts(rt->cache);
    return rc;
}

/* Take the oldest entry for a new micro-batch, after its own content has reached the cache. */
static enum status take_out(struct runtime *rt, struct outgoing_content **out, struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct outgoing_content *oldest = &c->out[c->first_out];
    enum status rc = hand_to_thread(rt, 1, err);
    if (rc == OK && oldest->state == OUT_PUT)
        finish_puts(c);
    c->first_out = (c->first_out + 1) % CONTENTS_OUT;
    *out = oldest;
    return rc;
}

/* Samples [first, first + n) of a block. The prefix has no head, so labels are left out. */
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
                                 .documents = b->documents,
                                 .lengths = b->lengths ? b->lengths + first : NULL};
}

/* Compute samples [first, first + n) into the prefix's output at `at`. The cache has given their
 * level `from` there; 0: it had nothing. */
static enum status compute(struct runtime *rt, const struct sample_block *block, int64_t first,
                           int64_t n, int from, void *at, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const struct sample_block part = part_of(rt, block, first, n);
    const struct stage_batch whole = {.block = &part, .step = STEP_EVAL};
    void *in[1] = {NULL}, *out[1] = {NULL};
    const enum status rc = from > 0 ? stage_forward_tail(rt->spec.prefix, &part, from, at, out, err)
                                    : stage_forward(rt->spec.prefix, &whole, in, out, false, err);
    if (rc == OK)
        be->copy(be, at, out[0], rt->cache->sample_bytes * n);
    return rc;
}

/* Consecutive samples of a micro-batch that the cache gave at one level. */
struct run {
    int64_t first, n;
    int from;
};
/* Advance *run to the next run; false: there is none. */
static bool next_run(const struct runtime_cache *c, int64_t n, struct run *run)
{
    const int64_t first = run->first + run->n;
    int64_t end = first;
    if (first == n)
        return false;
    while (end < n && c->levels[end] == c->levels[first])
        end++;
    *run = (struct run){.first = first, .n = end - first, .from = c->levels[first]};
    return true;
}

/* Copy in what the cache has, then compute the rest, then copy the micro-batch out while the main
 * lane continues. */
static enum status fill_on_device(struct runtime *rt, int64_t epoch,
                                  const struct sample_block *block, char *to, bool lacks, bool keep,
                                  struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    const int64_t n = block->num_samples, bytes = c->sample_bytes;
    struct outgoing_content *out = NULL;
    enum status rc = keep ? take_out(rt, &out, err) : OK;
    for (struct run run = {0}; rc == OK && next_run(c, n, &run);)
        if (run.from > 0)
            be->lane_copy_in(be, c->lane, to + run.first * bytes,
                             (char *)c->host + run.first * bytes, bytes * run.n);
    be->lane_record(be, c->lane, c->copied); /* the previous step was the last reader of `to` */
    be->lane_wait(be, NULL, c->copied);
    if (!lacks || rc != OK)
        return rc;
    if (out)
        be->event_record(be, out->from);
    for (struct run run = {0}; rc == OK && next_run(c, n, &run);)
        if (run.from < c->level)
            rc = compute(rt, block, run.first, run.n, run.from, to + run.first * bytes, err);
    if (!out || rc != OK)
        return rc;
    be->event_record(be, out->made);
    be->lane_wait(be, c->lane_out, out->made);
    be->lane_copy_out(be, c->lane_out, out->host, to, bytes * n);
    be->lane_record(be, c->lane_out, out->left);
    out->epoch = epoch;
    out->ids = block->ids;
    out->n = n;
    out->state = OUT_LEAVING;
    return OK;
}

static enum status fill_on_host(struct runtime *rt, int64_t epoch, const struct sample_block *block,
                                char *to, bool keep, struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    const int64_t begin = comm_now_ns(rt->spec.comm), bytes = c->sample_bytes;
    bool lacks = false;
    enum status rc = OK;
    for (struct run run = {0}; rc == OK && next_run(c, block->num_samples, &run);) {
        if (run.from == c->level)
            continue;
        lacks = true;
        rc = compute(rt, block, run.first, run.n, run.from, to + run.first * bytes, err);
        THEN(be->sync(be, err));
        if (rc == OK && keep) /* `to` does not change before the step has ended */
            cache_ahead_put(c->ahead, epoch, block->ids + run.first, run.n, to + run.first * bytes);
    }
    if (lacks)
        c->fill_ns += comm_now_ns(rt->spec.comm) - begin;
    return rc;
}

/* The bits of a sample depend neither on its place in a micro-batch nor on its neighbours. BLAS
 * results depend on the batch size, however. Where that matters (cache_whole()) and the cache
 * misses one sample, the whole micro-batch is recomputed; it is kept only if it is full. Elsewhere
 * only missing samples are computed, those of one level together. */
enum status runtime_prefix_cached(struct runtime *rt, int microbatch, const struct batch *batch,
                                  struct err *err)
{
    struct runtime_cache *c = rt->cache;
    struct backend *be = rt->spec.backend;
    const struct sample_block *block = &batch->blocks[microbatch];
    const int64_t n = block->num_samples;
    void *host = be->host_memory ? (void *)rt->prefix_out[microbatch] : c->host;
    int lowest = c->level, highest = 0;
    enum status rc = runtime_await(rt, c->copied, err); /* the thread gets this memory back */
    if (rc != OK)
        return rc;
    cache_ahead_get(c->ahead, batch->epoch, batch->step, microbatch, &host, c->levels);
    if (be->host_memory)
        rt->prefix_out[microbatch] = host;
    else
        c->host = host;
    for (int64_t i = 0; i < n; i++) {
        const int got = c->levels[i] > 0 ? c->levels[i] : 0;
        lowest = got < lowest ? got : lowest;
        highest = got > highest ? got : highest;
    }
    for (int64_t i = 0; i < n; i++) { /* the levels that are used and counted */
        const bool damaged = c->levels[i] < 0;
        if (damaged || (c->whole && lowest < c->level))
            c->levels[i] = lowest == highest ? lowest : 0;
        cache_count(c->cache, c->level, damaged ? -1 : c->levels[i]);
    }
    char *to = (char *)rt->prefix_out[microbatch];
    const bool lacks = lowest < c->level;
    const bool keep = lacks && !(c->whole && n < rt->spec.plan->microbatches.size);
    rc = runtime_on_device(rt) ? fill_on_device(rt, batch->epoch, block, to, lacks, keep, err)
                               : fill_on_host(rt, batch->epoch, block, to, keep, err);
    rt->prefix_ready[microbatch] = rc == OK;
    return rc;
}

int64_t runtime_fill_ns(const struct runtime *rt)
{
    return rt->cache ? rt->cache->fill_ns : 0;
}
