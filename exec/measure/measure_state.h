/* exec/measure/measure_state.h - what the files of the profiler (measure.h) share: measure.c has
 * the phases, layer_costs.c times the model's sublayers, link_costs.c messages and sums,
 * host_costs.c what the host does beside them and the device's copies. Private to them.
 *
 * Times of the device are taken by its events; clock_now_ns() is for what the host does. Each
 * function adds its rows to the profile. */
#ifndef ELAPSE_EXEC_MEASURE_MEASURE_STATE_H
#define ELAPSE_EXEC_MEASURE_MEASURE_STATE_H

#include "exec/base/backend.h"
#include "exec/measure/measure.h"

enum { MEASURE_WARM_UP = 2 }; /* runs of each kind that are not counted */

struct measure {
    const struct comm *comm;
    const struct cores *cores;
    const struct measure_options *options;
    struct job job;
    struct backend *backend; /* of the phase */
    struct backend_event *from, *to;
    int64_t most; /* largest micro-batch; what it is made of: */
    float *images;
    int32_t *tokens, *types, *lengths, *labels;
    int64_t *ids;
    struct profile *profile; /* rank 0 */
};

/* Sublayers by micro-batch size, norm, updates, an op's overhead; where `stash`, what a micro-batch
 * in flight keeps, too. `together`: all ranks do the same. */
enum status measure_layers(struct measure *m, bool together, bool stash, struct err *err);
/* Messages and all-reduce by size. Collective. */
enum status measure_links(struct measure *m, struct err *err);
/* Copies and launches; a backend in host memory has neither. */
enum status measure_device(struct measure *m, struct err *err);
/* A batch of the procedural set: made, augmented, laid out. */
enum status measure_input(struct measure *m, struct err *err);
/* A sample's way into the cache's arena and out of it, over more samples than a processor's own
 * caches hold. An arena that this machine does not give is no error: the profile is silent then. */
enum status measure_cache(struct measure *m, struct err *err);

/* Time of the device between the two; the latter waits for it. */
void measure_clock_start(struct measure *m);
double measure_clock_ns(struct measure *m);
void measure_fill_normal(float *values, int64_t n, uint64_t key);

#endif
