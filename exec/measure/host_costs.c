#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/cache/arena.h"
#include "exec/data/dataset_open.h"
#include "exec/data/loader.h"
#include "exec/measure/measure_state.h"
#include "profiles/base/clock.h"

enum status measure_input(struct measure *m, struct err *err)
{
    enum { ROUNDS = 5, BATCH = 32 };
    struct dataset dataset = {0};
    struct sampler sampler;
    struct loader *loader = NULL;
    double times[ROUNDS];
    struct host_row row = {.what = "input", .ranks = 1, .samples = BATCH};
    struct job job = m->job;
    if (model_family_traits(job.model.family)
            ->images) { /* procedural images, whatever the model's input is */
        job.model.channels = 3;
        job.model.classes = INT_MAX;
    }
    enum status rc = dataset_open(&job, &dataset, err);
    row.bytes = 4 * (dataset.image ? (int64_t)dataset.channels * dataset.image * dataset.image
                                   : job.model.seq);
    THEN(sampler_init(
        &sampler, &(struct sampler_spec){dataset.num_samples[SPLIT_TRAIN], 1, true, 1, BATCH, 1},
        err));
    if (rc == OK) {
        struct loader_spec spec = {
            .dataset = &dataset, .sampler = &sampler, .want_inputs = true, .want_labels = true};
        rc = loader_new(&spec, &loader, err);
    }
    for (int i = 0; rc == OK && i < ROUNDS; i++) {
        const struct batch *batch;
        int64_t begin = clock_now_ns();
        rc = loader_get(loader, 0, i, &batch, err);
        times[i] = (double)(clock_now_ns() - begin);
    }
    if (rc == OK) {
        snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
        row.ns = measure_spread(m, times, ROUNDS);
        rc = profile_add_host(m->profile, &row, err);
    }
    loader_free(loader);
    dataset_clear(&dataset);
    return rc;
}

enum status measure_cache(struct measure *m, struct err *err)
{
    enum { ROUNDS = 5, FEW = 8, MANY = 512, BYTES = 1 << 24 };
    const struct model *model = &m->job.model;
    struct cache_spec spec = {.job_key = (uint64_t)getpid(),
                              .sample_elems = (int64_t)model->seq * model->hidden};
    const int64_t bytes = spec.sample_elems * (int64_t)sizeof(float);
    struct host_row row = {.threads = m->backend->threads, .ranks = 1, .samples = 1};
    struct cache_arena *arena = NULL;
    double write[ROUNDS], read[ROUNDS];
    bool held = true;
    enum status rc = OK;
    if (bytes < 1 || bytes > BYTES)
        return OK;
    spec.num_samples = BYTES / bytes < FEW ? FEW : BYTES / bytes > MANY ? MANY : BYTES / bytes;
    float *data = calloc((size_t)spec.sample_elems, sizeof *data);
    if (!data)
        return err_nomem(err);
    if (cache_arena_create(&spec, &arena, NULL) != OK)
        goto out;
    cache_arena_unlink(arena);
    measure_fill_normal(data, spec.sample_elems, 1);
    for (int i = 0; i < ROUNDS && held; i++) {
        const int64_t begin = clock_now_ns();
        for (int64_t s = 0; s < spec.num_samples && held; s++)
            held = cache_arena_put(arena, s, i + 1, data);
        const int64_t middle = clock_now_ns();
        for (int64_t s = 0; s < spec.num_samples && held; s++)
            held = cache_arena_take(arena, s, i + 1, data) == CACHE_HIT;
        write[i] = (double)(middle - begin) / (double)spec.num_samples;
        read[i] = (double)(clock_now_ns() - middle) / (double)spec.num_samples;
    }
    if (!held) /* memory was too short, so some samples have no slot */
        goto out;
    row.bytes = bytes;
    snprintf(row.backend, sizeof row.backend, "%s", m->backend->name);
    snprintf(row.what, sizeof row.what, "cache_read");
    row.ns = measure_spread(m, read, ROUNDS);
    rc = profile_add_host(m->profile, &row, err);
    snprintf(row.what, sizeof row.what, "cache_write");
    row.ns = measure_spread(m, write, ROUNDS);
    THEN(profile_add_host(m->profile, &row, err));
out:
    cache_arena_free(arena);
    free(data);
    return rc;
}

/* A copy of `bytes` to the device, from it (both pinned), and within it. */
enum copy_kind { COPY_IN, COPY_OUT, COPY_WITHIN, COPY_KINDS };
static const char *const copy_names[COPY_KINDS] = {"copy_in", "copy_out", "copy"};

/* More than the L2 of any device that is supported (B200: 126 MB). */
#define RING_BYTES ((int64_t)256 << 20)

static enum status measure_copies(struct measure *m, enum copy_kind kind, int64_t bytes, char *ring,
                                  void *host, struct err *err)
{
    enum { ROUNDS = 20 };
    struct backend *be = m->backend;
    struct host_row row = {.threads = be->threads, .ranks = 1, .bytes = bytes};
    double times[ROUNDS];
    int64_t at = 0;
    for (int i = -MEASURE_WARM_UP; i < ROUNDS; i++) {
        char *to = ring + at, *from = ring + (at + bytes) % RING_BYTES;
        at = (at + 2 * bytes) % RING_BYTES;
        measure_clock_start(m);
        if (kind == COPY_IN)
            be->copy_in(be, to, host, bytes);
        else if (kind == COPY_OUT)
            be->copy_out(be, host, from, bytes);
        else
            be->copy(be, to, from, bytes);
        const double ns = measure_clock_ns(m);
        if (i >= 0)
            times[i] = ns;
    }
    enum status rc = be->sync(be, err);
    if (rc != OK)
        return rc;
    snprintf(row.what, sizeof row.what, "%s", copy_names[kind]);
    snprintf(row.backend, sizeof row.backend, "%s", be->name);
    row.ns = measure_spread(m, times, ROUNDS);
    return profile_add_host(m->profile, &row, err);
}

/* The time in which the host issues a kernel while the device's queue has room. */
static enum status measure_launch(struct measure *m, float *at, struct err *err)
{
    enum { ROUNDS = 20, OPS = 100 };
    struct backend *be = m->backend;
    struct host_row row = {.what = "launch", .threads = be->threads, .ranks = 1};
    double times[ROUNDS];
    enum status rc = OK;
    for (int i = -MEASURE_WARM_UP; rc == OK && i < ROUNDS; i++) {
        const int64_t begin = clock_now_ns();
        for (int k = 0; k < OPS; k++)
            be->accumulate(be, 1, at, at + 1);
        if (i >= 0)
            times[i] = (double)(clock_now_ns() - begin) / OPS;
        rc = be->sync(be, err);
    }
    if (rc != OK)
        return rc;
    snprintf(row.backend, sizeof row.backend, "%s", be->name);
    row.ns = measure_spread(m, times, ROUNDS);
    return profile_add_host(m->profile, &row, err);
}

enum status measure_device(struct measure *m, struct err *err)
{
    static const int64_t sizes[] = {1 << 16, 1 << 20, 1 << 24};
    enum { NUM_SIZES = sizeof sizes / sizeof *sizes };
    struct backend *be = m->backend;
    void *ring = NULL, *host = NULL;
    if (be->host_memory)
        return OK;
    enum status rc = be->alloc(be, RING_BYTES, &ring, err);
    THEN(be->alloc_host(be, sizes[NUM_SIZES - 1], &host, err));
    if (rc == OK) {
        be->zero(be, ring, RING_BYTES);
        memset(host, 0, (size_t)sizes[NUM_SIZES - 1]);
        rc = measure_launch(m, ring, err);
    }
    for (int kind = 0; kind < COPY_KINDS; kind++)
        for (int i = 0; rc == OK && i < NUM_SIZES; i++)
            rc = measure_copies(m, (enum copy_kind)kind, sizes[i], ring, host, err);
    be->free_host(be, host);
    be->free(be, ring);
    return rc;
}
