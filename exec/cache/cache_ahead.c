/* exec/cache/cache_ahead.c - a reading and writing thread behind one lock.
 *
 * The state is a few reads (buffers, each EMPTY, FILLING or READY), a ring of puts, and the place
 * `next` to read from. ahead_thread() prefers reads to puts, because a step waits for reads. Read
 * cache_ahead_get() first: it waits until the wanted micro-batch is READY, and moves `next` if the
 * thread is heading elsewhere. */
#include "exec/cache/cache_ahead.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"

enum { MOST_PUTS = 64 };
enum read_state { READ_EMPTY, READ_FILLING, READ_READY };

/* A micro-batch of the run; step -1: none. */
struct place {
    int64_t epoch, step;
    int microbatch;
};

struct read {
    enum read_state state;
    struct place place;
    void *data;
    int *levels; /* owned, by sample */
};

struct put {
    int64_t epoch, n;
    const int64_t *ids;
    const char *data;
};

struct cache_ahead {
    struct cache_ahead_spec spec;
    int64_t sample_bytes;
    pthread_t thread;
    bool threaded;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* The lock guards everything below except the contents of a FILLING read, which belong to the
     * thread that fills it. The sampler changes only while no read is FILLING. */
    struct sampler sampler;
    bool stop;
    struct place next; /* to be read */
    struct read reads[CACHE_AHEAD];
    struct put puts[MOST_PUTS];
    int first_put, num_puts; /* the one being made among them */
};

static bool same(struct place a, struct place b)
{
    return a.epoch == b.epoch && a.step == b.step && a.microbatch == b.microbatch;
}

static void fill(struct cache_ahead *ahead, struct read *read)
{
    const struct cache_ahead_spec *spec = &ahead->spec;
    const struct place at = read->place;
    int64_t first,
        n = sampler_microbatch(&ahead->sampler, at.step, spec->replica, at.microbatch, &first);
    const bool look = !spec->full || n == ahead->sampler.microbatches.size;
    for (int64_t i = 0; i < n; i++) {
        const int64_t id = sampler_id(&ahead->sampler, at.epoch, first + i);
        read->levels[i] = look ? cache_look(spec->cache, at.epoch, id, spec->level, spec->elems,
                                            (char *)read->data + i * ahead->sample_bytes)
                               : 0;
    }
}

static void make_put(struct cache_ahead *ahead, const struct put *put)
{
    for (int64_t i = 0; i < put->n; i++)
        cache_put(ahead->spec.cache, put->epoch, put->ids[i], ahead->spec.level, ahead->spec.elems,
                  put->data + i * ahead->sample_bytes);
}

/* The micro-batch after `at` in the same epoch; step -1 at its end. Micro-batches without samples
 * are skipped, because nobody asks for them. */
static struct place behind(const struct cache_ahead *ahead, struct place at)
{
    const int64_t steps = sampler_steps_per_epoch(&ahead->sampler);
    int64_t first;
    do {
        if (++at.microbatch == ahead->sampler.microbatches.count) {
            at.microbatch = 0;
            at.step++;
        }
        if (at.step >= steps)
            return (struct place){.step = -1};
    } while (sampler_microbatch(&ahead->sampler, at.step, ahead->spec.replica, at.microbatch,
                                &first) == 0);
    return at;
}

static bool filling(const struct cache_ahead *ahead)
{
    bool any = false;
    for (int i = 0; i < CACHE_AHEAD; i++)
        any |= ahead->reads[i].state == READ_FILLING;
    return any;
}

static struct read *empty_read(struct cache_ahead *ahead)
{
    for (int i = 0; i < CACHE_AHEAD; i++)
        if (ahead->reads[i].state == READ_EMPTY)
            return &ahead->reads[i];
    return NULL;
}

/* Fill a read with the next micro-batch. The lock is held on entry and exit, not while reading. */
static void read_next(struct cache_ahead *ahead, struct read *read)
{
    read->place = ahead->next;
    read->state = READ_FILLING;
    ahead->next = behind(ahead, ahead->next);
    pthread_mutex_unlock(&ahead->lock);
    fill(ahead, read);
    pthread_mutex_lock(&ahead->lock);
    read->state = READ_READY;
    pthread_cond_broadcast(&ahead->changed);
}

static void *ahead_thread(void *arg)
{
    struct cache_ahead *ahead = arg;
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stop || ahead->num_puts > 0) {
        struct read *read = ahead->next.step >= 0 && !ahead->stop ? empty_read(ahead) : NULL;
        if (read) {
            read_next(ahead, read);
        } else if (ahead->num_puts > 0) {
            const struct put put = ahead->puts[ahead->first_put];
            pthread_mutex_unlock(&ahead->lock);
            make_put(ahead, &put);
            pthread_mutex_lock(&ahead->lock);
            ahead->first_put = (ahead->first_put + 1) % MOST_PUTS;
            ahead->num_puts--;
            pthread_cond_broadcast(&ahead->changed);
        } else {
            pthread_cond_wait(&ahead->changed, &ahead->lock);
        }
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

void cache_ahead_get(struct cache_ahead *ahead, int64_t epoch, int64_t step_in_epoch,
                     int microbatch, void **buffer, int *levels)
{
    const struct place want = {.epoch = epoch, .step = step_in_epoch, .microbatch = microbatch};
    struct read *found;
    pthread_mutex_lock(&ahead->lock);
    watch_files(true);
    for (;;) {
        const struct place next = ahead->next;
        found = NULL;
        for (int i = 0; i < CACHE_AHEAD && !found; i++)
            if (ahead->reads[i].state != READ_EMPTY && same(ahead->reads[i].place, want))
                found = &ahead->reads[i];
        if (found && found->state == READ_READY)
            break;
        for (int i = 0; i < CACHE_AHEAD && !found; i++) /* read ahead, but not wanted any more */
            if (ahead->reads[i].state == READ_READY)
                ahead->reads[i].state = READ_EMPTY;
        if (!found && !same(next, want)) {
            if (filling(ahead)) { /* let the thread finish first */
                ahead->next.step = -1;
            } else { /* then jump */
                ahead->next = want;
                ahead->sampler = *ahead->spec.sampler;
            }
        }
        pthread_cond_broadcast(&ahead->changed);
        if (ahead->threaded)
            pthread_cond_wait(&ahead->changed, &ahead->lock);
        else
            read_next(ahead, empty_read(ahead));
    }
    watch_files(false);
    void *filled = found->data;
    found->data = *buffer;
    *buffer = filled;
    memcpy(levels, found->levels, (size_t)ahead->sampler.microbatches.size * sizeof *levels);
    found->state = READ_EMPTY;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
}

void cache_ahead_put(struct cache_ahead *ahead, int64_t epoch, const int64_t *ids, int64_t n,
                     const void *data)
{
    const struct put put = {.epoch = epoch, .n = n, .ids = ids, .data = data};
    pthread_mutex_lock(&ahead->lock);
    const bool queued = ahead->threaded && ahead->num_puts < MOST_PUTS;
    if (queued) {
        ahead->puts[(ahead->first_put + ahead->num_puts) % MOST_PUTS] = put;
        ahead->num_puts++;
        pthread_cond_broadcast(&ahead->changed);
    }
    pthread_mutex_unlock(&ahead->lock);
    if (!queued)
        make_put(ahead, &put);
}

void cache_ahead_flush(struct cache_ahead *ahead)
{
    if (!ahead)
        return;
    pthread_mutex_lock(&ahead->lock);
    watch_files(true);
    while (ahead->num_puts > 0)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    watch_files(false);
    pthread_mutex_unlock(&ahead->lock);
}

enum status cache_ahead_new(const struct cache_ahead_spec *spec, struct cache_ahead **ahead,
                            struct err *err)
{
    struct cache_ahead *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    got->spec = *spec;
    got->sampler = *spec->sampler;
    got->sample_bytes = spec->elems * cache_elem_bytes(spec->cache);
    got->next.step = -1;
    pthread_mutex_init(&got->lock, NULL);
    pthread_cond_init(&got->changed, NULL);
    bool room = true;
    for (int i = 0; i < CACHE_AHEAD; i++) {
        got->reads[i].data = spec->buffers[i];
        got->reads[i].levels =
            calloc((size_t)got->sampler.microbatches.size, sizeof *got->reads[i].levels);
        room = room && got->reads[i].levels;
    }
    if (!room) {
        cache_ahead_free(got, NULL);
        return err_nomem(err);
    }
    got->threaded = pthread_create(&got->thread, NULL, ahead_thread, got) == 0;
    *ahead = got;
    return OK;
}

void cache_ahead_free(struct cache_ahead *ahead, void *buffers[CACHE_AHEAD])
{
    if (!ahead)
        return;
    if (ahead->threaded) {
        pthread_mutex_lock(&ahead->lock);
        ahead->stop = true;
        pthread_cond_broadcast(&ahead->changed);
        pthread_mutex_unlock(&ahead->lock);
        pthread_join(ahead->thread, NULL);
    }
    for (int i = 0; i < CACHE_AHEAD; i++) {
        free(ahead->reads[i].levels);
        if (buffers)
            buffers[i] = ahead->reads[i].data;
    }
    pthread_cond_destroy(&ahead->changed);
    pthread_mutex_destroy(&ahead->lock);
    free(ahead);
}
