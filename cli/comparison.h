/* cli/comparison.h - one configuration measured and simulated, and what a table of them says.
 *
 * A configuration may have been run several times; the prediction is the same each time. Where the
 * machine does not repeat itself the measured time is known only so well, and an error below that
 * says nothing: such a configuration is noisy, and the summary leaves it out and counts it. */
#ifndef ELAPSE_CLI_COMPARISON_H
#define ELAPSE_CLI_COMPARISON_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/replay.h"

#define COMPARISONS_MAX 256 /* of a summary */
#define COMPARISON_RUNS_MAX 9

/* Time of one kind of op over a step, all ranks together. */
struct kind_time {
    int64_t count, real_ns, sim_ns;
};

/* {0} before the first run. */
struct comparison {
    int num_ranks, num_replicas, num_microbatches, num_frozen_layers;
    int64_t batch;
    enum schedule_kind schedule;
    enum recompute_mode recompute;
    enum frozen_placement frozen;
    int num_runs;
    int64_t run_step_ns[COMPARISON_RUNS_MAX]; /* median step of each run, ascending */
    int64_t real_step_ns, sim_step_ns, num_steps;
    int64_t real_p10_ns; /* what the machine does when nothing else runs on it */
    double spread;       /* of the steps, (p90 - p10) / median; of the runs, where that is larger */
    double noise; /* how well the median is known: the runs' spread, of a single run its steps' */
    double error; /* simulated / measured - 1 */
    double real_bubble, sim_bubble; /* NaN where no ops were recorded */
    struct kind_time kinds[OP_KIND_COUNT];
    int64_t real_peak_bytes, sim_peak_bytes; /* of the rank that holds most; 0: not known */
    bool cache_unknown; /* a cached run, and nobody measured what a read takes: taken as 0 */
    bool extrapolated;  /* sizes outside of what was measured */
    char cost_label[96], note[256];
};

/* Add a run, at most COMPARISON_RUNS_MAX. */
void comparison_add_run(struct comparison *c, const struct replay *replay);

/* Simulated / measured - 1 of the memory; NaN where either is not known. */
double comparison_peak_error(const struct comparison *c);
bool comparison_is_noisy(const struct comparison *c, double limit);
double comparison_ratio(double a, double b); /* NaN for b <= 0 */

/* Median and largest of n > 0 absolute errors, which get sorted. */
void comparison_errors(double *errors, int64_t n, double *median, double *worst);

struct comparison_summary {
    double noise_limit; /* 10 %, or the tolerance (NaN: none) where that is larger */
    int num_noisy;
    double median_abs_error, worst_abs_error; /* of the others; NaN where there are none */
    double worst_spread;
    double worst_abs_peak_error; /* NaN where nobody knows */
};

/* n <= COMPARISONS_MAX. */
struct comparison_summary comparison_summarize(const struct comparison *configs, int n,
                                               double tolerance);

#endif
