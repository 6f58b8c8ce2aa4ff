/* Fills batches, ahead of their use on a thread of its own.
 *
 * There are two slots: slots[current] was handed out last, and the other one is filled next. Its
 * state goes from EMPTY to WANTED (loader_get() asks for the next step) to READY (the thread has
 * filled it). While it is WANTED only the thread touches its contents; `lock` protects the states.
 * Without a thread, or if another step is asked for, loader_get() fills the slot itself. The
 * samples of a batch are made by a parallel loop. Read loader_get(), prefetch_thread() and
 * fill_slot() first. */
#include "exec/data/loader.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/watch.h"
#include "partition/base/units.h"

enum slot_state { SLOT_EMPTY, SLOT_WANTED, SLOT_READY };

/* One batch and its memory. Each array holds a block of `size` samples for every micro-batch. */
struct slot {
    enum slot_state state;
    int64_t epoch, step;
    enum status status;
    struct err err;
    struct batch batch;
    int64_t *ids;
    float *images;
    int32_t *tokens, *token_types, *lengths, *labels;
};

struct loader {
    struct loader_spec spec;
    struct sampler sampler;
    int64_t image_elems;
    int workers;
    float **scratch; /* [workers], one image each; NULL unless images are augmented */
    struct slot slots[2];
    int current; /* the slot that was handed out last */
    bool threaded, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* The first failure among samples that are made in parallel: the first in the order of samples, not
 * of time, so that the message does not depend on scheduling. */
struct first_failure {
    int64_t at; /* index of the sample; INT64_MAX: no failure */
    struct err err;
};

static void note_failure(struct first_failure *first, int64_t at, const struct err *err)
{
#pragma omp critical(loader_failure)
    if (at < first->at)
        *first = (struct first_failure){at, *err};
}

static enum status failure_of(const struct first_failure *first, struct err *err)
{
    return first->at == INT64_MAX ? OK : err_copy(err, &first->err);
}

/* Counts the targets of a step over all replicas. If every sample has a fixed number, the data need
 * not be read. Masked tokens are counted by making the labels, which costs little beside a forward.
 */
static enum status count_targets(struct loader *loader, int64_t epoch, int64_t step, int64_t *count,
                                 struct err *err)
{
    const struct dataset *dataset = loader->spec.dataset;
    const int64_t samples = sampler_step_samples(&loader->sampler, step);
    const int64_t first = sampler_position(&loader->sampler, step);
    const int per_sample = dataset->labels_per_sample;
    struct first_failure failure = {.at = INT64_MAX};
    int64_t counted = 0;
    if (dataset->targets_per_sample > 0) {
        *count = samples * dataset->targets_per_sample;
        return OK;
    }
    int32_t *labels = malloc((size_t)loader->workers * (size_t)per_sample * sizeof *labels);
    if (!labels)
        return err_nomem(err);
#pragma omp parallel for schedule(dynamic) num_threads(loader->workers) reduction(+ : counted)
    for (int64_t i = 0; i < samples; i++) {
        int32_t *mine = labels + omp_get_thread_num() * per_sample;
        const struct sample_out out = {.labels = mine};
        struct err why = {0};
        const int64_t id = sampler_id(&loader->sampler, epoch, first + i);
        const enum status rc =
            dataset_view(dataset, loader->spec.split, epoch, id, &out, NULL, &why);
        for (int j = 0; rc == OK && j < per_sample; j++)
            counted += mine[j] >= 0;
        if (rc != OK)
            note_failure(&failure, i, &why);
    }
    free(labels);
    *count = counted;
    return failure_of(&failure, err);
}

static _Atomic uint64_t serials; /* the last serial number given to a block */

/* Makes sample `id`, as the slot's epoch sees it, at index `at` of the batch. */
static enum status fill_sample(struct loader *loader, struct slot *slot, int64_t at, int64_t id,
                               float *scratch, struct err *err)
{
    const struct dataset *dataset = loader->spec.dataset;
    struct sample_out out = {0};
    slot->ids[at] = id;
    if (slot->images)
        out.image = slot->images + at * loader->image_elems;
    if (slot->tokens)
        out.tokens = slot->tokens + at * dataset->seq;
    if (slot->token_types)
        out.token_types = slot->token_types + at * dataset->seq;
    if (slot->lengths)
        out.length = slot->lengths + at;
    if (slot->labels)
        out.labels = slot->labels + at * dataset->labels_per_sample;
    return dataset_view(dataset, loader->spec.split, slot->epoch, id, &out, scratch, err);
}

/* Fills a slot with the batch of its epoch and step. */
static enum status fill_slot(struct loader *loader, struct slot *slot, struct err *err)
{
    const struct microbatches *mb = &loader->sampler.microbatches;
    struct first_failure failure = {.at = INT64_MAX};
    enum status rc;
    slot->batch.epoch = slot->epoch;
    slot->batch.step = slot->step;
    slot->batch.num_samples = sampler_step_samples(&loader->sampler, slot->step);
    rc = count_targets(loader, slot->epoch, slot->step, &slot->batch.num_targets, err);
    if (rc != OK)
        return rc;
    for (int m = 0; m < mb->count; m++) {
        int64_t first;
        slot->batch.blocks[m].num_samples =
            sampler_microbatch(&loader->sampler, slot->step, loader->spec.replica, m, &first);
        slot->batch.blocks[m].serial = ++serials;
    }
#pragma omp parallel for schedule(dynamic) num_threads(loader->workers)
    for (int64_t at = 0; at < mb->count * mb->size; at++) {
        const int m = (int)(at / mb->size);
        const int64_t i = at % mb->size;
        struct err why = {0};
        int64_t first;
        if (i >= sampler_microbatch(&loader->sampler, slot->step, loader->spec.replica, m, &first))
            continue;
        const enum status one =
            fill_sample(loader, slot, at, sampler_id(&loader->sampler, slot->epoch, first + i),
                        loader->scratch[omp_get_thread_num()], &why);
        if (one != OK)
            note_failure(&failure, at, &why);
    }
    return failure_of(&failure, err);
}

static void *prefetch_thread(void *arg)
{
    struct loader *loader = arg;
    pthread_mutex_lock(&loader->lock);
    for (;;) {
        struct slot *slot = &loader->slots[!loader->current];
        if (loader->stop)
            break;
        if (slot->state != SLOT_WANTED) {
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        pthread_mutex_unlock(&loader->lock);
        slot->err = (struct err){0};
        slot->status = fill_slot(loader, slot, &slot->err);
        pthread_mutex_lock(&loader->lock);
        slot->state = SLOT_READY;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* The next slot, when the thread no longer fills it. Called with the lock. */
static struct slot *next_slot(struct loader *loader)
{
    struct slot *next = &loader->slots[!loader->current];
    watch_files(true);
    while (next->state == SLOT_WANTED)
        pthread_cond_wait(&loader->changed, &loader->lock);
    watch_files(false);
    return next;
}

/* The next slot with the batch of a step, or its error. Called with the lock. */
static struct slot *ready_slot(struct loader *loader, int64_t epoch, int64_t step_in_epoch)
{
    struct slot *next = next_slot(loader);
    if (next->state != SLOT_READY || next->epoch != epoch || next->step != step_in_epoch) {
        next->epoch = epoch;
        next->step = step_in_epoch;
        next->err = (struct err){0};
        next->status = fill_slot(loader, next, &next->err);
        next->state = SLOT_READY;
    }
    return next;
}

enum status loader_ready(struct loader *loader, int64_t epoch, int64_t step_in_epoch,
                         struct err *err)
{
    pthread_mutex_lock(&loader->lock);
    const struct slot *next = ready_slot(loader, epoch, step_in_epoch);
    const enum status rc = next->status == OK ? OK : err_copy(err, &next->err);
    pthread_mutex_unlock(&loader->lock);
    return rc;
}

enum status loader_next(struct loader *loader, struct err *err)
{
    enum status rc = OK;
    if (!loader)
        return OK;
    pthread_mutex_lock(&loader->lock);
    const struct slot *next = next_slot(loader);
    if (next->state == SLOT_READY && next->status != OK)
        rc = err_copy(err, &next->err);
    pthread_mutex_unlock(&loader->lock);
    return rc;
}

enum status loader_get(struct loader *loader, int64_t epoch, int64_t step_in_epoch,
                       const struct batch **batch, struct err *err)
{
    enum status rc;
    pthread_mutex_lock(&loader->lock);
    struct slot *next = ready_slot(loader, epoch, step_in_epoch);
    next->state = SLOT_EMPTY;
    rc = next->status;
    if (rc != OK) {
        err_copy(err, &next->err);
    } else {
        *batch = &next->batch;
        loader->current = !loader->current;
        if (loader->threaded) {
            struct slot *later = &loader->slots[!loader->current];
            bool last = step_in_epoch + 1 >= sampler_steps_per_epoch(&loader->sampler);
            later->epoch = last ? epoch + 1 : epoch;
            later->step = last ? 0 : step_in_epoch + 1;
            later->state = SLOT_WANTED;
            pthread_cond_broadcast(&loader->changed);
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return rc;
}

const struct batch *loader_peek(struct loader *loader)
{
    const struct batch *batch = NULL;
    if (!loader)
        return NULL;
    pthread_mutex_lock(&loader->lock);
    const struct slot *next = &loader->slots[!loader->current];
    if (next->state == SLOT_READY && next->status == OK)
        batch = &next->batch;
    pthread_mutex_unlock(&loader->lock);
    return batch;
}

/* A zeroed array of count * elems elements of `size` bytes. With a backend it is host memory that
 * the device can copy from directly. */
static void *new_array(const struct loader_spec *spec, int64_t count, int64_t elems, size_t size)
{
    struct backend *be = spec->backend;
    void *array = NULL;
    int64_t num, bytes;
    if (!mul_ok(count, elems, &num) || !mul_ok(num, (int64_t)size, &bytes))
        return NULL;
    if (!be)
        return calloc(1, bytes ? (size_t)bytes : 1);
    if (be->alloc_host(be, bytes, &array, NULL) == OK)
        memset(array, 0, (size_t)bytes);
    return array;
}

static void free_array(const struct loader_spec *spec, void *array)
{
    if (spec->backend)
        spec->backend->free_host(spec->backend, array);
    else
        free(array);
}

/* Give each micro-batch its part of the slot's arrays. */
static void share_blocks(const struct loader *loader, struct slot *slot)
{
    const struct dataset *dataset = loader->spec.dataset;
    const struct microbatches *mb = &loader->sampler.microbatches;
    for (int m = 0; m < mb->count; m++) {
        int64_t at = m * mb->size;
        slot->batch.blocks[m] = (struct sample_block){
            .ids = slot->ids + at,
            .images = slot->images ? slot->images + at * loader->image_elems : NULL,
            .tokens = slot->tokens ? slot->tokens + at * dataset->seq : NULL,
            .token_types = slot->token_types ? slot->token_types + at * dataset->seq : NULL,
            .documents = dataset->packed,
            .lengths = slot->lengths ? slot->lengths + at : NULL,
            .labels = slot->labels ? slot->labels + at * dataset->labels_per_sample : NULL};
    }
}

static enum status slot_init(struct loader *loader, struct slot *slot, struct err *err)
{
    const struct loader_spec *spec = &loader->spec;
    const struct dataset *dataset = spec->dataset;
    const struct microbatches *mb = &loader->sampler.microbatches;
    int64_t n = mb->size * mb->count;
    bool text = dataset->seq > 0;
    slot->batch.loader = loader;
    slot->batch.num_blocks = mb->count;
    slot->batch.blocks = calloc((size_t)mb->count, sizeof *slot->batch.blocks);
    const int64_t seq = dataset->seq, labels = dataset->labels_per_sample;
    bool made = slot->batch.blocks != NULL;
#define NEW(member, wanted, width)                                                                 \
    if (wanted)                                                                                    \
    made = (slot->member = new_array(spec, n, width, sizeof *slot->member)) && made
    NEW(ids, true, 1);
    NEW(images, spec->want_inputs && !text, loader->image_elems);
    NEW(tokens, spec->want_inputs && text, seq);
    NEW(token_types, text && (spec->want_inputs || dataset->packed), seq);
    NEW(lengths, text, 1);
    NEW(labels, spec->want_labels, labels);
#undef NEW
    if (!made)
        return err_nomem(err);
    share_blocks(loader, slot);
    return OK;
}

static void slot_clear(const struct loader_spec *spec, struct slot *slot)
{
    void *arrays[] = {slot->ids,         slot->images,  slot->tokens,
                      slot->token_types, slot->lengths, slot->labels};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free_array(spec, arrays[i]);
    free(slot->batch.blocks);
    *slot = (struct slot){0};
}

enum status loader_new(const struct loader_spec *spec, struct loader **loader, struct err *err)
{
    enum status rc = OK;
    struct loader *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    got->spec = *spec;
    got->sampler = *spec->sampler;
    got->image_elems =
        (int64_t)spec->dataset->channels * spec->dataset->image * spec->dataset->image;
    pthread_mutex_init(&got->lock, NULL);
    pthread_cond_init(&got->changed, NULL);
    got->workers = spec->workers > 0 ? spec->workers : 1;
    got->scratch = calloc((size_t)got->workers, sizeof *got->scratch);
    if (!got->scratch)
        rc = err_nomem(err);
    for (int i = 0; rc == OK && i < 2; i++)
        rc = slot_init(got, &got->slots[i], err);
    for (int i = 0; rc == OK && i < got->workers && spec->dataset->augment; i++) {
        got->scratch[i] = malloc((size_t)got->image_elems * sizeof *got->scratch[i]);
        if (!got->scratch[i])
            rc = err_nomem(err);
    }
    if (rc == OK && spec->prefetch) {
        got->threaded = pthread_create(&got->thread, NULL, prefetch_thread, got) == 0;
        if (!got->threaded)
            rc = err_set(err, ERR_SYSTEM, "cannot start the prefetch thread");
    }
    if (rc == OK)
        *loader = got;
    else
        loader_free(got);
    return rc;
}

void loader_free(struct loader *loader)
{
    if (!loader)
        return;
    if (loader->threaded) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        slot_clear(&loader->spec, &loader->slots[i]);
    for (int i = 0; loader->scratch && i < loader->workers; i++)
        free(loader->scratch[i]);
    free(loader->scratch);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
