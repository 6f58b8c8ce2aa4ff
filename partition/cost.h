/* partition/cost.h - how long things take: one struct of functions over a measured profile, a
 * roofline or constants. Planner, simulator and reports all ask here and nowhere else. */
#ifndef ELAPSE_PARTITION_COST_H
#define ELAPSE_PARTITION_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/cluster.h"
#include "partition/model.h"
#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PASS_BWD_REST: what is left of PASS_BWD_INPUT where nobody below the item wants the gradient of
 * its input, as behind a frozen prefix: all that the item's own weights need. PASS_FWD_NOGRAD: a
 * forward that keeps no stash (frozen items, the first forward under recompute); never slower than
 * PASS_FWD. */
enum pass {
    PASS_FWD,
    PASS_BWD_INPUT,
    PASS_BWD_WEIGHT,
    PASS_BWD_REST,
    PASS_FWD_NOGRAD,
    PASS_UPDATE,
    PASS_COUNT
};

enum cost_source { COST_CONSTANT, COST_MEASURED, COST_ROOFLINE };

struct cost {
    enum cost_source source;
    char label[96];  /* for people: "profile cpu-2core (measured)", "roofline h200" */
    const void *ctx; /* borrowed by the struct; owned by whoever made the cost source */
    /* Time of one pass of an item over a micro-batch of `samples` on a device kind at nominal
     * speed; the caller divides by device.speed. For PASS_UPDATE samples is the number of
     * optimizer state tensors (0 SGD, 1 momentum, 2 Adam), which constants and rooflines ignore.
     * *extrapolated is set to true (never to false) when the answer lies outside what was measured.
     * ERR_INFEASIBLE when the source does not know the item ("no layers for ... in profile ...").
     */
    enum status (*item_ns)(const void *ctx, const struct model *model, int item, enum pass pass,
                           int64_t samples, const struct device *device, int64_t *ns,
                           bool *extrapolated, struct err *err);
    /* Optional (NULL: none): how much less a pass takes for each byte of its item's stash when only
     * `distance` bytes of stash are touched from one use of that byte to the next, so that the
     * processor's caches still hold some of it (step_rules.h, stash-distance). Of PASS_FWD,
     * PASS_BWD_INPUT (for PASS_BWD_REST too) and PASS_BWD_WEIGHT; at nominal speed; never negative,
     * never growing with distance. Ask cost_item_ns(). */
    double (*near_ns_per_byte)(const void *ctx, const struct device *device, enum pass pass,
                               int64_t distance);
    /* Optional (NULL: cluster_transfer_ns / cluster_allreduce_ns): measured times of a message. */
    int64_t (*transfer_ns)(const void *ctx, const struct cluster *cluster, int from, int to,
                           int64_t bytes);
    int64_t (*allreduce_ns)(const void *ctx, const struct cluster *cluster, const int *devices,
                            int n, int64_t bytes);
    /* Least and most bytes of which these two were measured, inside a node; {0, 0}: they were not.
     * Answers outside are flagged by whoever asks (workload.extrapolated). */
    int64_t message_bytes[2], allreduce_bytes[2];
    /* Cache of frozen activations, per sample of `bytes`; host side, besides the copy engine. */
    int64_t cache_read_ns, cache_write_ns;
    int64_t op_overhead_ns; /* the runtime's own time per compute op, measured; added to every op */
    /* 0: not known, or beside the device. A sample's preparation where the compute device's own
     * cores do it (decode, augment, lay out); the norm's sum of squares. */
    double input_ns_per_sample, norm_ns_per_byte;
    /* The bits of a sample do not depend on how many are computed with it (cache_whole_wanted()).
     */
    bool rows_alone;
};

/* What runs, where, and how long it takes there: what nearly every question about time needs. */
struct setting {
    const struct model *model; /* all three borrowed */
    const struct cluster *cluster;
    const struct cost *cost;
};

/* The constants inside an ITEM_OPAQUE model (uniform, explicit); ERR_INFEASIBLE for other kinds. */
void cost_constant(struct cost *cost);

/* Published data of one device kind, for the roofline max(flops / peak, bytes / bandwidth). */
struct roofline {
    const char *kind;
    double fp32_flops_per_s, bf16_flops_per_s; /* dense tensor-core or FMA peak, as published */
    double mem_bytes_per_s;
    int64_t mem_bytes;
    double link_bytes_per_s;
    const char *source; /* the vendor's data sheet */
};
const struct roofline *roofline_find(const char *kind); /* NULL when unknown */
const char *const *roofline_names(void);

/* Roofline estimates for the device's kind, always marked COST_ROOFLINE. */
void cost_roofline(struct cost *cost);

/* The distance at which no cache holds anything: what item_ns() says. */
#define STASH_FAR INT64_MAX

/* item_ns() of an item that trains, less what nearness saves; never below 0. */
enum status cost_item_ns(const struct cost *cost, const struct model *model, int item,
                         enum pass pass, int64_t samples, const struct device *device,
                         int64_t distance, int64_t *ns, bool *extrapolated, struct err *err);

/* The two shared questions, overrides applied. */
int64_t cost_transfer_ns(const struct cost *cost, const struct cluster *cluster, int from, int to,
                         int64_t bytes);
int64_t cost_allreduce_ns(const struct cost *cost, const struct cluster *cluster,
                          const int *devices, int n, int64_t bytes);
const char *cost_source_name(enum cost_source source);

#ifdef __cplusplus
}
#endif
#endif
