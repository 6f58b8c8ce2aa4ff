#include "exec/cuda/cuda_staging.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_internal.h"

/* The ring: transfers in flight lie in it in the order in which they were started, and end in that
 * order, so its oldest entry is the first that makes room. */
enum { MAX_FLIGHT = 256 };
#define RING_BYTES ((int64_t)64 << 20)
#define MAX_CHUNK ((int64_t)8 << 20)

struct flight {
    int64_t first, end; /* in the ring */
    char *deliver;      /* host memory that gets it at the end; NULL: went to the device */
    cudaEvent_t arrived;
};

struct pinned {
    char *base;
    int64_t bytes;
    struct pinned *next;
};

struct cuda_staging {
    cudaStream_t stream;
    char *ring;
    int64_t head; /* where the next one goes */
    struct flight flights[MAX_FLIGHT];
    int oldest, count;
    struct pinned *pinned;
};

enum status cuda_staging_new(cudaStream_t stream, struct cuda_staging **out, struct err *err)
{
    enum status rc;
    struct cuda_staging *s = calloc(1, sizeof *s);
    void *ring = NULL;
    if (!s)
        return err_nomem(err);
    s->stream = stream;
    CUDA_TRY(cudaHostAlloc(&ring, RING_BYTES, cudaHostAllocDefault));
    s->ring = ring;
    for (int i = 0; i < MAX_FLIGHT; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&s->flights[i].arrived, cudaEventDisableTiming));
    *out = s;
    s = NULL;
    rc = OK;
out:
    cuda_staging_free(s);
    return rc;
}

void cuda_staging_free(struct cuda_staging *s)
{
    if (!s)
        return;
    for (int i = 0; i < MAX_FLIGHT; i++)
        if (s->flights[i].arrived)
            cudaEventDestroy(s->flights[i].arrived);
    while (s->pinned)
        cuda_staging_unpin(s, s->pinned->base);
    cudaFreeHost(s->ring);
    free(s);
}

/* The oldest transfer has ended: its part of the ring is free. */
static void finish_oldest(struct cuda_staging *s)
{
    struct flight *f = &s->flights[s->oldest];
    CUDA_NOTE(cudaEventSynchronize(f->arrived));
    if (f->deliver)
        memcpy(f->deliver, s->ring + f->first, (size_t)(f->end - f->first));
    s->oldest = (s->oldest + 1) % MAX_FLIGHT;
    s->count--;
}

/* Room for `bytes` in the ring, and an entry for its transfer. */
static struct flight *take_room(struct cuda_staging *s, int64_t bytes)
{
    const int64_t first = s->head + bytes > RING_BYTES ? 0 : s->head, end = first + bytes;
    bool overlaps = true;
    while (s->count == MAX_FLIGHT)
        finish_oldest(s);
    while (overlaps) {
        overlaps = false;
        for (int i = 0; i < s->count && !overlaps; i++) {
            const struct flight *f = &s->flights[(s->oldest + i) % MAX_FLIGHT];
            overlaps = f->first < end && first < f->end;
        }
        if (overlaps)
            finish_oldest(s);
    }
    struct flight *f = &s->flights[(s->oldest + s->count) % MAX_FLIGHT];
    f->first = first;
    f->end = end;
    f->deliver = NULL;
    s->head = (end + 63) / 64 * 64;
    return f;
}

static void start(struct cuda_staging *s, struct flight *f)
{
    CUDA_NOTE(cudaEventRecord(f->arrived, s->stream));
    s->count++;
}

static bool is_pinned(const struct cuda_staging *s, const void *at, int64_t bytes)
{
    const char *from = at;
    for (const struct pinned *p = s->pinned; p; p = p->next)
        if (from >= p->base && from + bytes <= p->base + p->bytes)
            return true;
    return false;
}

void cuda_staging_in(struct cuda_staging *s, void *dst, const void *host, int64_t bytes)
{
    if (is_pinned(s, host, bytes)) {
        CUDA_NOTE(cudaMemcpyAsync(dst, host, (size_t)bytes, cudaMemcpyHostToDevice, s->stream));
        return;
    }
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < MAX_CHUNK ? bytes - at : MAX_CHUNK;
        struct flight *f = take_room(s, n);
        memcpy(s->ring + f->first, (const char *)host + at, (size_t)n);
        CUDA_NOTE(cudaMemcpyAsync((char *)dst + at, s->ring + f->first, (size_t)n,
                                  cudaMemcpyHostToDevice, s->stream));
        start(s, f);
    }
}

void cuda_staging_out(struct cuda_staging *s, void *host, const void *src, int64_t bytes)
{
    if (is_pinned(s, host, bytes)) {
        CUDA_NOTE(cudaMemcpyAsync(host, src, (size_t)bytes, cudaMemcpyDeviceToHost, s->stream));
        return;
    }
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < MAX_CHUNK ? bytes - at : MAX_CHUNK;
        struct flight *f = take_room(s, n);
        CUDA_NOTE(cudaMemcpyAsync(s->ring + f->first, (const char *)src + at, (size_t)n,
                                  cudaMemcpyDeviceToHost, s->stream));
        f->deliver = (char *)host + at;
        start(s, f);
    }
}

void cuda_staging_flush(struct cuda_staging *s)
{
    while (s->count > 0)
        finish_oldest(s);
}

enum status cuda_staging_pin(struct cuda_staging *s, int64_t bytes, void **ptr, struct err *err)
{
    enum status rc;
    struct pinned *p = calloc(1, sizeof *p);
    void *base = NULL;
    if (!p)
        return err_nomem(err);
    if (bytes < 0) {
        rc = err_set(err, ERR_INPUT, "cuda: cannot pin %lld bytes", (long long)bytes);
        goto out;
    }
    CUDA_TRY(cudaHostAlloc(&base, bytes ? (size_t)bytes : 1, cudaHostAllocDefault));
    *p = (struct pinned){.base = base, .bytes = bytes, .next = s->pinned};
    s->pinned = p;
    p = NULL;
    *ptr = base;
    rc = OK;
out:
    free(p);
    return rc;
}

void cuda_staging_unpin(struct cuda_staging *s, void *ptr)
{
    for (struct pinned **at = &s->pinned; *at; at = &(*at)->next) {
        struct pinned *p = *at;
        if (p->base != (char *)ptr)
            continue;
        *at = p->next;
        cudaFreeHost(p->base);
        free(p);
        return;
    }
}
