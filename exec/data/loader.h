/* exec/data/loader.h - the micro-batches of a step, ready when they are wanted.
 *
 * A loader holds two batches: the one in use, and the next one, which threads of its own make
 * meanwhile. Which samples a batch holds is the sampler's; what they look like the dataset's; so a
 * batch is the same whether it was prefetched or not. */
#ifndef ELAPSE_EXEC_DATA_LOADER_H
#define ELAPSE_EXEC_DATA_LOADER_H

#include "exec/data/dataset.h"
#include "exec/data/sampler.h"
#include "exec/stage/stage.h"

struct loader; /* opaque */

/* The micro-batches of one replica in one step. */
struct batch {
    struct loader *loader; /* whose it is; NULL: made by hand */
    int64_t epoch, step;   /* of the epoch */
    int num_blocks;
    struct sample_block *blocks; /* may hold 0 samples at the end of an epoch */
    int64_t num_samples;         /* over all replicas */
    int64_t num_targets;         /* over all replicas: what the loss is divided by */
};

struct loader_spec {
    const struct dataset *dataset; /* borrowed while the loader lives */
    const struct sampler *sampler; /* copied */
    enum split split;
    int replica;
    bool want_inputs; /* images or tokens: the rank holds the first stage */
    bool want_labels; /* it holds the last one */
    bool prefetch;
    int workers;             /* threads that make a batch's samples; 0 is 1 */
    struct backend *backend; /* borrowed: whose copies read the batches; NULL: nobody's */
};

/* Allocates both batches. The caller releases with loader_free(). ERR_NOMEM, ERR_SYSTEM (thread).
 */
enum status loader_new(const struct loader_spec *spec, struct loader **loader, struct err *err);
void loader_free(struct loader *loader); /* NULL is fine */

/* The batch of a step; valid until the next call. Starts to make the step behind it. A record that
 * cannot be read any more is the error of the call that needs it. */
enum status loader_get(struct loader *loader, int64_t epoch, int64_t step_in_epoch,
                       const struct batch **batch, struct err *err);

/* The batch behind the one that was handed out last, if it is ready: the next loader_get() gives
 * it, if asked for what comes next, and until then it stays. NULL: not yet, or there is none. */
const struct batch *loader_peek(struct loader *loader); /* NULL is fine */

#endif
