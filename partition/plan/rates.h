/* partition/plan/rates.h - the speed of a step in the units that people compare: samples, tokens
 * and model flops a second, and the share of the devices' peak. Also what a whole run costs. Pure.
 * docs/numbers.md has the formulas. */
#pragma once

#include "partition/plan/job.h"
#include "partition/plan/plan.h"

/* Flops of one sample in a training step. A multiply-add is 2. Only matrix products count. */
struct sample_flops {
    /* three times the forward: 6 N for each token, N the weights of products that a token uses (of
     * experts, the active ones), and 12 s^2 h of attention for each layer. Frozen layers count
     * their forward, cached ones nothing */
    double model;
    double hardware; /* model, and the forward that recompute runs again */
};
/* Of rows of documents only the documents count, not padding, and of attention only pairs inside a
 * document. Both are 0 if the flops of an item are unknown (uniform and explicit models).
 * O(items). */
struct sample_flops rates_sample_flops(const struct model *model, const struct plan *plan);

/* Rates of a step. 0: unknown, or the model has no such unit. */
struct step_rates {
    double samples_per_s, images_per_s;
    double documents_per_s; /* samples are rows of documents */
    double tokens_per_s, tokens_per_s_per_device;
    double flops_per_s_per_device, hardware_flops_per_s_per_device;
    double mfu, hfu; /* shares of the devices' published dense peak at the dtype */
};
/* Rates of a plan with this many samples per second. Devices are those in use. */
struct step_rates rates_of_step(const struct model *model, const struct cluster *cluster,
                                const struct plan *plan, enum dtype dtype, double samples_per_s);

/* Tokens of a sample, padding left out; 0: the model's input is not text. */
double rates_sample_tokens(const struct model *model);

/* Device time, price and energy of a whole run, on all devices of the cluster, idle ones included,
 * because they are reserved. */
struct run_cost {
    int64_t run_ns;
    double device_hours; /* run_ns x devices of the cluster */
    double cost;         /* by cluster.price; 0: no price */
    double energy_kwh;   /* by cluster.power; 0: no power */
};
struct run_cost run_cost_of(const struct cluster *cluster, int64_t run_ns);
/* Samples of the job's whole run by this plan, with num_samples in an epoch; INT64_MAX if it
 * overflows; 0 where the job says neither samples, tokens, documents nor steps. */
int64_t rates_run_samples(const struct job *job, const struct plan *plan, int64_t num_samples);
/* Time of this number of samples at this rate; INT64_MAX if it overflows. */
int64_t rates_run_ns(int64_t samples, double samples_per_s);
