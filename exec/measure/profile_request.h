/* exec/measure/profile_request.h - `elapse profile`: measure this machine, keep the profile in the
 * store, and print how far it can be relied on. And what `elapse train` measures before a long run. */
#pragma once

#include "exec/measure/measure.h"

/* The texts of `elapse profile`. NULL: not given. */
struct profile_request {
    const char *model_text, *device, *db, *sizes_text, *name;
    int64_t threads; /* of a rank; 0: its share of the cores */
    bool json;
    struct measure_options measure; /* device, samples and store are set by the call */
};

/* Collective over the message group; rank 0 stores and prints. ERR_INPUT: a text is malformed.
 * ERR_INFEASIBLE: the model has no layers to measure. ERR_SYSTEM: no device, or the store. */
enum status profile_request_run(struct profile_request *q, const struct comm *comm,
                                struct err *err);

/* Measure a job's model on its ranks' processors for a few seconds, at micro-batches of `samples`, 0:
 * of those that its plan may have, and keep the profile in the store (NULL: the default one).
 * Collective. ERR_SYSTEM: no store. ERR_INFEASIBLE: the machine is too busy, and nothing is kept. */
enum status profile_for_run(const struct comm *comm, const struct cores *cores,
                            const struct job *job, int64_t samples, const char *db,
                            struct err *err);
