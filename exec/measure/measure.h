/* exec/measure/measure.h - what this machine takes for what: the profiler behind `elapse profile`.
 *
 * Measured through the interfaces that training uses (stages, comm.h, the loader), alone and with
 * all ranks busy, repeats interleaved, after warm-up, on the device by its own events. Nothing is
 * fitted to whole steps. */
#ifndef ELAPSE_EXEC_MEASURE_MEASURE_H
#define ELAPSE_EXEC_MEASURE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/comm/comm.h"
#include "exec/device/cores.h"
#include "partition/job.h"
#include "partition/model.h"
#include "profiles/profile.h"
#include "profiles/store.h"

struct measure_options {
    enum device_kind device;
    const int64_t *samples; /* micro-batch sizes, borrowed */
    int num_samples;
    bool dropout; /* of jobs that drop */
    bool quick;   /* fewer repeats: about a third of the time */
    bool progress;
    struct store *store; /* rank 0: libraries' choices from earlier profiles, and to it; NULL: none
                          */
};

/* Fill *profile on rank 0: layers of the model (each distinct shape once), links and all-reduce by
 * size where there are two ranks or more, the runtime's overhead an op, the input pipeline. On all
 * ranks *profile holds device_describe()'s info alone; the caller clears it. Collective; failures
 * as of trainer_run() (exec/run/trainer.h). */
enum status measure_machine(const struct comm *comm, const struct cores *cores,
                            const struct model *model, const struct measure_options *options,
                            struct profile *profile, struct err *err);

#endif
