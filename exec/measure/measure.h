/* exec/measure/measure.h - measures this machine: the profiler behind `elapse profile`.
 *
 * It measures through the interfaces that training uses (stages, comm.h, the loader), with one rank
 * alone and with all ranks busy, in interleaved repeats, after a warm-up. A device is timed by its
 * own events. Nothing is fitted to whole steps.
 *
 * profile_request.c is the command, measure_machine.c has the phases, layer_costs.c times layers,
 * link_costs.c messages and sums, host_costs.c input, cache, copies and launches. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/comm/comm.h"
#include "exec/device/cores.h"
#include "partition/plan/job.h"
#include "partition/model/model.h"
#include "profiles/store/profile.h"
#include "profiles/base/ticker.h"
#include "profiles/store/store.h"

struct measure_options {
    enum device_kind device;
    const int64_t *samples; /* micro-batch sizes, borrowed */
    int num_samples;
    bool dropout; /* measure layers with dropout */
    /* Above 0: fewer repeats, of which the fastest counts, in about this time. Sizes that do not fit
     * are left out. */
    int64_t quick_ns;
    bool for_run; /* before a run of these ranks: not one rank on all cores, which would unbind it,
                     and with few micro-batches in flight */
    bool retune;  /* time the libraries' ways again and replace the choices in the store */
    enum ticker_mode progress; /* rank 0 */
    struct store *store; /* rank 0: libraries' choices from earlier profiles, and to it; NULL: none
                          */
};

/* End the measurement after the size in hand; what was measured counts. Safe in a signal handler. */
void measure_stop(void);

/* Fill *profile on rank 0: layers of the model (each distinct shape once), links and all-reduces by
 * size if there are two ranks or more, the runtime's overhead for an op, the input pipeline. Before
 * the call *profile holds the info of device_describe() on all ranks; the caller clears it.
 * Collective; failures like those of trainer_run() (exec/run/trainer_run.h). After measure_stop() what
 * was measured is there; ERR_INFEASIBLE: nothing was. */
enum status measure_machine(const struct comm *comm, const struct cores *cores,
                            const struct model *model, const struct measure_options *options,
                            struct profile *profile, struct err *err);
