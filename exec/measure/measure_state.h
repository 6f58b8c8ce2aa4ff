/* exec/measure/measure_state.h - the state of the profiler; private to exec/measure/.
 *
 * Device times come from events; clock_now_ns() times only the host's own work. Each function adds
 * its rows to the profile. */
#pragma once

#include "exec/base/backend.h"
#include "exec/measure/measure.h"

enum { MEASURE_WARM_UP = 2 }; /* runs of each kind that are not counted */

struct measure {
    const struct comm *comm;
    const struct cores *cores;
    const struct measure_options *options;
    struct job job;
    struct backend *backend; /* of the present phase */
    int64_t cache_bytes;     /* of the device's last cache; 0: not known, or a processor's */
    struct backend_event *from, *middle, *to;
    int64_t most; /* samples of the largest micro-batch; its content is below */
    float *images;
    int32_t *tokens, *types, *lengths, *labels;
    int64_t *ids;
    struct profile *profile; /* rank 0 */
    struct ticker progress;
    const char *phase; /* what is measured now */
    int phases_done, num_phases;
    int64_t phase_end_ns; /* of a quick profile: when the present phase is to end */
};

/* Tell that a share (0 to 1) of the present phase is done, if a line is due. */
void measure_report(struct measure *m, double share);

/* spread_of() repeats. Of the few repeats of a quick profile the fastest stands for all, because
 * other programs only make repeats slower. */
struct spread measure_spread(const struct measure *m, double *times_ns, int repeats);
/* Whether measure_stop() was called in this process. */
bool measure_stopped(void);

/* Sublayers by micro-batch size, the norm, updates, the overhead of an op; with stash also the
 * memory that a micro-batch in flight keeps. together: all ranks measure at the same time. */
enum status measure_layers(struct measure *m, bool together, bool stash, struct err *err);
/* Messages and all-reduce by size. Collective. */
enum status measure_links(struct measure *m, struct err *err);
/* Copies and launches; a host-memory backend has neither. */
enum status measure_device(struct measure *m, struct err *err);
/* Making a batch of the procedural data set. */
enum status measure_input(struct measure *m, struct err *err);
/* Putting a sample into the cache's arena and taking it out, over more samples than the processor's
 * caches hold. If this machine cannot have an arena, no row is added; that is no error. */
enum status measure_cache(struct measure *m, struct err *err);

/* Device time between the two calls; the second waits for the device, which begins when the host has
 * issued all of it: launches of the host are no part of the time. */
void measure_clock_start(struct measure *m);
double measure_clock_ns(struct measure *m);
/* A mark between the two calls, which does not wait, and the time since it, after the second call. */
void measure_clock_mark(struct measure *m);
double measure_clock_since_mark_ns(struct measure *m);
void measure_fill_normal(float *values, int64_t n, uint64_t key);
