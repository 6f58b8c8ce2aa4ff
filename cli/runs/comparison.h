/* cli/runs/comparison.h - one configuration measured and simulated, and the summary of several.
 *
 * A configuration may have been run several times; each run has an equal prediction. If the
 * machine's times vary, the measured time is uncertain, and an error below this uncertainty means
 * nothing. Such a configuration is noisy: the summary counts it, but leaves out its error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cli/runs/message_times.h"
#include "cli/runs/replay.h"

#define COMPARISON_NOISY 0.10 /* a step time that is not known to this gives no error */
#define COMPARISONS_MAX 256   /* configurations of a summary */
#define COMPARISON_RUNS_MAX 9

/* Time of one kind of op over a step, all ranks together. Of an op that ranks do together, the real
 * time of each rank is that of the rank that came last: the others waited for it. */
struct kind_time {
    int64_t count, real_ns, sim_ns;
};

/* One configuration. It must be {0} before the first run is added. */
struct comparison {
    int num_ranks, num_replicas, num_microbatches, num_frozen_layers;
    int64_t batch;
    enum schedule_kind schedule;
    enum recompute_mode recompute;
    enum frozen_placement frozen;
    int num_runs;
    int64_t run_step_ns[COMPARISON_RUNS_MAX]; /* median step of each run, ascending */
    int64_t real_step_ns, sim_step_ns, num_steps;
    int64_t real_p10_ns; /* 10th percentile: a step while nothing else runs on the machine */
    double spread; /* (p90 - p10) / median of the steps, or the spread of the runs if larger */
    double noise;  /* uncertainty of the median: spread of the runs; of one run, of its steps */
    double error;  /* simulated / measured - 1 */
    /* The smallest and the largest median step of the parts of all runs (replay.h); 0: there are
     * too few steps. */
    int64_t real_low_ns, real_high_ns;
    int num_parts;
    bool noisy;                            /* set by comparison_summarize() */
    double peak_error;                     /* set there too: comparison_peak_error() */
    double real_bubble, sim_bubble;        /* NaN: no ops were recorded */
    struct kind_time kinds[OP_KIND_COUNT]; /* without messages */
    struct message_times messages[MESSAGE_KINDS];
    int64_t real_peak_bytes, sim_peak_bytes; /* of the rank that holds most; 0: not known */
    bool cache_unknown; /* the run read the cache, but the profile has no read time; 0 was used */
    bool extrapolated;  /* sizes are outside the measured range */
    enum cost_source cost;
    bool other_host; /* the costs were measured on another host than the run's */
    char cost_label[96], note[COST_NOTE_BYTES];
};

/* Add a run, at most COMPARISON_RUNS_MAX. ERR_NOMEM. */
enum status comparison_add_run(struct comparison *c, const struct replay *replay, struct err *err);

/* A step time that is not known to this gives no error. tolerance NaN: none. */
double comparison_noise_limit(double tolerance);
/* Print what is said of the costs on stderr. */
void comparison_print_notes(const char *note, enum cost_source source);
/* Refuse to judge by a tolerance: the time of the run is not known within noise_limit, or its costs are
 * of another host. ERR_INFEASIBLE. */
enum status comparison_refuse(bool noisy, double noise_limit, bool other_host, struct err *err);

/* The errors that the parts of the runs allow: simulated / measured - 1 for the slowest and for the
 * fastest part. False: there are too few steps. */
bool comparison_interval(const struct comparison *c, double *low, double *high);

/* Simulated / measured - 1 of the memory; NaN if either is not known. */
double comparison_peak_error(const struct comparison *c);
bool comparison_is_noisy(const struct comparison *c, double limit);
double comparison_ratio(double a, double b); /* NaN for b <= 0 */

/* Set the median and the largest of n > 0 absolute errors. Sorts errors. */
void comparison_errors(double *errors, int64_t n, double *median, double *worst);

struct comparison_summary {
    double noise_limit; /* 10 %, or the tolerance if it is larger (NaN: no tolerance) */
    int num_noisy;
    double median_abs_error, worst_abs_error; /* of the others; NaN: all are noisy */
    double worst_spread;
    double worst_abs_peak_error; /* NaN: not known */
};

/* n <= COMPARISONS_MAX. Sets noisy and peak_error of each. */
struct comparison_summary comparison_summarize(struct comparison *configs, int n, double tolerance);
