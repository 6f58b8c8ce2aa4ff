/* A ring of pinned memory for copies from and to pageable memory, and a pool of pinned memory for
 * others (cuda_staging.h).
 *
 * A copy is split into chunks. take_room() finds space in the ring for a chunk, and waits for the
 * oldest transfers if there is none; finish_oldest() delivers a chunk that has arrived from the
 * device. Read cuda_staging_out(), take_room() and finish_oldest() first. */
#include "exec/cuda/cuda_staging.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_internal.h"

/* Transfers in flight lie in the ring in the order in which they were started, and end in that
 * order. So the oldest one is the first to free its space. */
enum { MAX_FLIGHT = 256 };
#define RING_BYTES ((int64_t)64 << 20)
#define MAX_CHUNK ((int64_t)8 << 20)
/* Limit of released pinned memory that is kept. A change of plan releases and requests similar
 * sizes, and the driver is slow because it pins and unpins page by page. */
#define SPARE_BYTES ((int64_t)1 << 30)

struct flight {
    int64_t first, end; /* byte range in the ring */
    char *deliver; /* host memory that receives the bytes; NULL: the transfer goes to the device */
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
    int64_t head; /* where the next transfer goes */
    struct flight flights[MAX_FLIGHT];
    int oldest, count;
    struct pinned *pinned, *spare; /* pinned: in use; spare: released and kept */
    int64_t spare_bytes;
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

static void free_pinned(struct pinned **list)
{
    for (struct pinned *p = *list, *next; p; p = next) {
        next = p->next;
        cudaFreeHost(p->base);
        free(p);
    }
    *list = NULL;
}

static void drop_spare(struct cuda_staging *s)
{
    free_pinned(&s->spare);
    s->spare_bytes = 0;
}

void cuda_staging_free(struct cuda_staging *s)
{
    if (!s)
        return;
    for (int i = 0; i < MAX_FLIGHT; i++)
        if (s->flights[i].arrived)
            cudaEventDestroy(s->flights[i].arrived);
    free_pinned(&s->pinned);
    drop_spare(s);
    cudaFreeHost(s->ring);
    free(s);
}

/* Waits for the oldest transfer, delivers it, and frees its part of the ring. */
static void finish_oldest(struct cuda_staging *s)
{
    struct flight *f = &s->flights[s->oldest];
    CUDA_NOTE(cudaEventSynchronize(f->arrived));
    if (f->deliver)
        memcpy(f->deliver, s->ring + f->first, (size_t)(f->end - f->first));
    s->oldest = (s->oldest + 1) % MAX_FLIGHT;
    s->count--;
}

/* Finds space for `bytes` in the ring, and an entry for the transfer; waits for older ones if
 * needed. */
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

/* --- pinned memory ---------------------------------------------------------------------------- */

/* Takes from the list the smallest spare piece of at least `bytes` that is not more than twice as
 * large. NULL: none. */
static struct pinned *take_spare(struct cuda_staging *s, int64_t bytes)
{
    struct pinned **best = NULL;
    for (struct pinned **at = &s->spare; *at; at = &(*at)->next)
        if ((*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes &&
            (!best || (*at)->bytes < (*best)->bytes))
            best = at;
    if (!best)
        return NULL;
    struct pinned *p = *best;
    *best = p->next;
    s->spare_bytes -= p->bytes;
    return p;
}

static enum status new_pinned(struct cuda_staging *s, int64_t bytes, struct pinned **out,
                              struct err *err)
{
    const size_t size = bytes ? (size_t)bytes : 1;
    struct pinned *p = calloc(1, sizeof *p);
    void *base = NULL;
    if (!p)
        return err_nomem(err);
    cudaError_t code = cudaHostAlloc(&base, size, cudaHostAllocDefault);
    if (code == cudaErrorMemoryAllocation && s->spare) {
        drop_spare(s);
        code = cudaHostAlloc(&base, size, cudaHostAllocDefault);
    }
    (void)cudaGetLastError(); /* clear the error, or the next launch would report it */
    if (code != cudaSuccess) {
        free(p);
        return cuda_failed(err, "cudaHostAlloc", code, __FILE__, __LINE__);
    }
    *p = (struct pinned){.base = base, .bytes = bytes};
    *out = p;
    return OK;
}

enum status cuda_staging_pin(struct cuda_staging *s, int64_t bytes, void **ptr, struct err *err)
{
    if (bytes < 0)
        return err_set(err, ERR_INPUT, "cuda: cannot pin %lld bytes", (long long)bytes);
    struct pinned *p = take_spare(s, bytes);
    enum status rc = OK;
    if (p) /* copies of the previous user may still be in flight */
        CUDA_NOTE(cudaDeviceSynchronize());
    else
        rc = new_pinned(s, bytes, &p, err);
    if (rc != OK)
        return rc;
    p->next = s->pinned;
    s->pinned = p;
    *ptr = p->base;
    return OK;
}

void cuda_staging_unpin(struct cuda_staging *s, void *ptr)
{
    for (struct pinned **at = &s->pinned; *at; at = &(*at)->next) {
        struct pinned *p = *at;
        if (p->base != (char *)ptr)
            continue;
        *at = p->next;
        if (p->bytes > SPARE_BYTES - s->spare_bytes) {
            p->next = NULL;
            free_pinned(&p);
            return;
        }
        p->next = s->spare;
        s->spare = p;
        s->spare_bytes += p->bytes;
        return;
    }
}
