/* exec/data/loader.h - prefetches the micro-batches of a step.
 *
 * A loader holds two batches: the one in use, and the next one, which its own threads fill
 * meanwhile. The sampler decides which samples a batch holds, and the dataset makes them, so a
 * batch is the same whether it was prefetched or not. */
#pragma once

#include "exec/data/dataset.h"
#include "exec/data/sampler.h"
#include "exec/stage/stage.h"

struct loader; /* opaque */

/* The micro-batches of one replica in one step. */
struct batch {
    struct loader *loader; /* the loader that owns it; NULL: the batch was not made by a loader */
    int64_t epoch, step;   /* step: within the epoch */
    int num_blocks;
    struct sample_block *blocks; /* one per micro-batch; some may be empty */
    int64_t num_samples;         /* of the step, over all replicas */
    int64_t num_targets;         /* of the step, over all replicas; the loss is divided by it */
};

struct loader_spec {
    const struct dataset *dataset; /* borrowed while the loader lives */
    const struct sampler *sampler; /* copied */
    enum split split;
    int replica;
    bool want_inputs; /* fill images or tokens: this rank holds the first stage */
    bool want_labels; /* fill labels: this rank holds the last stage */
    bool prefetch;
    int workers;             /* threads that make the samples of a batch; 0 means 1 */
    struct backend *backend; /* borrowed; its copies read the batches, so it allocates them; NULL:
                                plain memory */
};

/* Allocates both batches. Release with loader_free(). ERR_NOMEM; ERR_SYSTEM: a thread cannot start.
 */
enum status loader_new(const struct loader_spec *spec, struct loader **loader, struct err *err);
void loader_free(struct loader *loader); /* NULL is fine */

/* The batch of a step, valid until the next call. Starts to prefetch the step after it. If a record
 * can no longer be read, the call that needs it returns the error. */
enum status loader_get(struct loader *loader, int64_t epoch, int64_t step_in_epoch,
                       const struct batch **batch, struct err *err);

/* Make the batch of a step, unless it is being prefetched, and wait for it: the next loader_get()
 * returns it, or the same error. So ranks can agree on it before one of them begins the step. */
enum status loader_ready(struct loader *loader, int64_t epoch, int64_t step_in_epoch,
                         struct err *err);

/* Wait for the batch that is being prefetched. Returns the error that the next loader_get() will
 * return if it asks for that batch. OK: it is well, or nothing is prefetched. */
enum status loader_next(struct loader *loader, struct err *err); /* loader may be NULL */

/* The prefetched batch, if it is ready, without taking it: the next loader_get() returns this batch
 * if it asks for the step that follows. The batch stays valid until then. NULL: it is not ready, or
 * nothing is prefetched. */
const struct batch *loader_peek(struct loader *loader); /* NULL is fine */
