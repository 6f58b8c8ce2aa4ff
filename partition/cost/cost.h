/* partition/cost/cost.h - times of passes, messages and all-reduces, from one of the sources of
 * enum cost_source. Planner, simulator and reports get every time through
 * struct cost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/cluster/cluster.h"
#include "partition/cluster/device_kinds.h"
#include "partition/model/model.h"
#include "partition/model/rerun.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PASS_BWD_REST replaces PASS_BWD_INPUT in the first item after a frozen prefix. No item below
 * needs the gradient of its input, so only the gradients that its own weights need are computed.
 * PASS_FWD_NOGRAD is a forward that keeps no stash (frozen items, the first forward under
 * recompute); it is never slower than PASS_FWD. */
enum pass {
    PASS_FWD,
    PASS_BWD_INPUT,
    PASS_BWD_WEIGHT,
    PASS_BWD_REST,
    PASS_FWD_NOGRAD,
    PASS_UPDATE,
    PASS_COUNT
};

enum cost_source {
    COST_CONSTANT,
    COST_MEASURED,
    COST_PUBLISHED, /* a profile of times that others published */
    COST_ROOFLINE,  /* ideal: nothing real is faster */
    COST_KERNELS,
    COST_SOURCE_COUNT
};

struct cost {
    enum cost_source source;
    char label[96];  /* for people: "profile cpu-2core (measured)", "roofline of published data" */
    const void *ctx; /* borrowed; the maker of the cost source owns it */
    /* Time of one pass of an item over a micro-batch of `samples` on a device kind at nominal
     * speed; the caller divides by device.speed. For PASS_UPDATE samples is the number of
     * optimizer state tensors (0 SGD, 1 momentum, 2 Adam), which constants and rooflines ignore.
     * *extrapolated is set to true (never to false) if the answer lies outside the measured range.
     * ERR_INFEASIBLE if the source does not know the item ("no layers for ... in profile ..."). */
    enum status (*item_ns)(const void *ctx, const struct model *model, int item, enum pass pass,
                           int64_t samples, const struct device *device, int64_t *ns,
                           bool *extrapolated, struct err *err);
    /* Optional (NULL: the forward's time by the share of its flops, and reading and writing what is given up):
     * the parts of an item's forward that run again inside its backward (rerun.h). Callers use
     * cost_rerun_ns(). */
    enum status (*rerun_ns)(const void *ctx, const struct model *model, int item, enum rerun rerun,
                            int64_t samples, const struct device *device, int64_t *ns,
                            bool *extrapolated, struct err *err);
    /* Optional (NULL: not known): the time of a pass' products that run in steps with a collective of this kind
     * (model_steps_tensor()); 0: it has none. At nominal speed. */
    enum status (*beside_ns)(const void *ctx, const struct model *model, int item, enum pass pass,
                             int64_t samples, const struct device *device, enum collective kind,
                             int64_t *ns, struct err *err);
    /* Optional (NULL: nothing is saved): the time that a pass saves per byte of its item's stash
     * because the processor's caches still hold some of it. `distance` is the number of stash bytes
     * touched between two uses of one byte (step_rules.h, stash-distance). pass is PASS_FWD,
     * PASS_BWD_INPUT (also for PASS_BWD_REST) or PASS_BWD_WEIGHT. At nominal speed; never negative,
     * never growing with distance. Callers use cost_item_ns(). */
    double (*near_ns_per_byte)(const void *ctx, const struct device *device, enum pass pass,
                               int64_t distance);
    /* Optional (NULL: cluster_transfer_ns and cluster_allreduce_ns): measured times of a message
     * and of an all-reduce. Callers use cost_transfer_ns() and cost_allreduce_ns(). */
    int64_t (*transfer_ns)(const void *ctx, const struct cluster *cluster, int from, int to,
                           int64_t bytes);
    int64_t (*allreduce_ns)(const void *ctx, const struct cluster *cluster, const int *devices,
                            int n, int64_t bytes);
    /* Real over computed time of collectives inside a node and between nodes (calibration.h); 0: 1.
     * Callers use cost_collective_ns(). */
    double inside_factor, between_factor;
    double memory_factor; /* real over computed memory of tensors and allocator; 0: 1 */
    /* Time of a collective of the tensor-parallel group that starts at device `first`, alone on its
     * links. NULL: a rank is one device. */
    int64_t (*group_ns)(const void *ctx, enum collective kind, int first, int64_t bytes);
    /* Time of an all-to-all of experts between devices of n tensor-parallel groups, given by their
     * first devices, of which each puts in `bytes`. NULL: between one device of each. */
    int64_t (*experts_ns)(const void *ctx, const int *first, int n, int64_t bytes);
    /* Range of bytes for which these two were measured inside a node; {0, 0}: not measured. The
     * caller flags answers outside the range (workload.extrapolated). */
    int64_t message_bytes[2], allreduce_bytes[2];
    /* Cache of frozen activations: host time per sample, without the copy engine's. */
    int64_t cache_read_ns, cache_write_ns;
    /* Measured copies between pinned host memory and the device; 0: by the device's copy rate. */
    double copy_in_ns_per_byte, copy_out_ns_per_byte;
    int64_t op_overhead_ns; /* the runtime's own time per compute op, measured; added to every op */
    /* Time to prepare a sample (decode, augment, lay out); 0: unknown, or done by cores that do not
     * compute. */
    double input_ns_per_sample;
    double norm_ns_per_byte;            /* the gradient norm's sum of squares; 0: unknown */
    bool bits_independent_of_row_count; /* a sample's result has the same bits in a micro-batch of
                                           any size; see cache_whole_wanted() */
};

/* The model that runs, the cluster that it runs on, and the cost source that gives its times.
 * Nearly every question about time needs all three. */
struct setting {
    const struct model *model; /* all three borrowed */
    const struct cluster *cluster;
    const struct cost *cost;
};

/* The setting of a plan with this many frozen layers: model_at(). */
static inline struct setting setting_at(const struct setting *setting, int num_frozen_layers)
{
    return (struct setting){model_at(setting->model, num_frozen_layers), setting->cluster,
                            setting->cost};
}

/* Times are the constants of ITEM_OPAQUE items (uniform and explicit models). item_ns() answers
 * ERR_INFEASIBLE for other kinds of items. */
void cost_constant(struct cost *cost);

/* The cost source that a user asks for. AUTO: constants of the model, else measured ones, else
 * kernels, else the roofline: the first that knows the model and every device. */
enum cost_choice {
    COST_AUTO,
    COST_BY_KERNELS,
    COST_BY_ROOFLINE,
    COST_BY_PROFILE,
    COST_CHOICE_COUNT
};
extern const char *const cost_choice_names[]; /* by value, NULL-terminated */
/* ERR_INPUT: no such choice; an efficiency that is not EFFICIENCY_MIN..EFFICIENCY_MAX. More than 1:
 * faster than the published curves, as a calibration may find. */
#define EFFICIENCY_MIN 1e-6
#define EFFICIENCY_MAX 10
enum status cost_choice_parse(const char *text, enum cost_choice *choice, struct err *err);
enum status cost_efficiency_check(double efficiency, struct err *err);

/* Values of train.cuda_graphs: what the host launches as a whole, each time one has been recorded.
 * Kernels whose sizes depend on the choice of experts stay outside graphs of layers. */
enum graph_parts {
    GRAPHS_NONE,
    GRAPHS_MLP,    /* MLPs and routers */
    GRAPHS_LAYERS, /* attention too */
    GRAPHS_STEP,   /* all passes of a step; experts are one grouped product */
    GRAPHS_COUNT
};
extern const char *const graph_parts_names[]; /* by value, NULL-terminated */

/* Values of train.fp8_scaling: whether a tensor's scale is that of its own largest value, which takes a pass to
 * find, or of the largest of earlier steps (Transformer Engine's Float8CurrentScaling, DelayedScaling). */
enum fp8_scaling { SCALING_CURRENT, SCALING_DELAYED, SCALING_COUNT };
extern const char *const fp8_scaling_names[]; /* by value, NULL-terminated */

/* Assumptions about a job and its framework that computed times depend on. */
struct cost_options {
    double efficiency;      /* times are divided by it; EFFICIENCY_MIN..EFFICIENCY_MAX */
    double compute, launch; /* factors of calibration.h on kernels and on launching them; 0: 1 */
    bool tf32, fp16; /* what 4-byte and 2-byte elements are multiplied as; else fp32 and bf16 */
    bool dropout;
    enum narrow_format narrow; /* of the products of the layers' weights */
    bool fp8_attention;        /* fused attention in fp8, its inputs cast before it */
    bool delayed_scaling;      /* fp8's scales are those of earlier steps (SCALING_DELAYED) */
    enum graph_parts graphs;
};

/* ERR_INFEASIBLE where the kind has no units for the narrow format of the options. */
enum status roofline_check_narrow(const struct roofline *roof, const struct cost_options *options,
                                  struct err *err);
/* The peak at which the device multiplies the model's numbers. */
double roofline_peak(const struct roofline *roof, const struct model *model,
                     const struct cost_options *options);
/* Refuse a job on a kind whose peak is 0, because none is published: ERR_INFEASIBLE. */
enum status roofline_no_peak(const struct roofline *roof, struct err *err);

/* Times are roofline estimates for the device's kind: ideal ones, which nothing real reaches.
 * options is borrowed; NULL: efficiency 1, fp32 and bf16. */
void cost_roofline(struct cost *cost, const struct cost_options *options);

/* Costs by kernels (cost_kernels.c): each pass is the list of kernels that a training framework
 * launches (kernels.h), each kernel takes what the device's curve says (device_curves.h), and a pass
 * is never faster than the host launches its kernels. Answers are remembered, so two threads must
 * not share one. */
struct kernel_costs;
struct kernel_costs *kernel_costs_new(const struct cost_options *options); /* NULL: no memory */
void kernel_costs_free(struct kernel_costs *costs);                        /* costs may be NULL */
const struct cost_options *kernel_costs_options(const struct kernel_costs *costs);
/* Times come from kernel lists; costs is borrowed. */
void cost_kernels(struct cost *cost, struct kernel_costs *costs);

/* The distance at which no cache holds any stash, so near_ns_per_byte() saves nothing. */
#define STASH_FAR INT64_MAX

/* Time of a pass of an item that trains: item_ns() minus the time that near stash saves; at least
 * 0. */
enum status cost_item_ns(const struct cost *cost, const struct model *model, int item,
                         enum pass pass, int64_t samples, const struct device *device,
                         int64_t distance, int64_t *ns, bool *extrapolated, struct err *err);

/* Time of the parts of an item's forward that run again; RERUN_CORE: the forward of attention's core. */
enum status cost_rerun_ns(const struct cost *cost, const struct model *model, int item,
                          enum rerun rerun, int64_t samples, const struct device *device,
                          int64_t *ns, bool *extrapolated, struct err *err);

/* Time of a message and of an all-reduce: measured if the source has it, else the cluster's
 * formula. */
int64_t cost_transfer_ns(const struct cost *cost, const struct cluster *cluster, int from, int to,
                         int64_t bytes);
int64_t cost_allreduce_ns(const struct cost *cost, const struct cluster *cluster,
                          const int *devices, int n, int64_t bytes);
/* cluster_collective_ns() with the source's factors. */
int64_t cost_collective_ns(const struct cost *cost, const struct cluster *cluster,
                           enum collective kind, const int *devices, int n, int64_t bytes);
/* cost_collective_ns() of a ring that cluster_ring() has made. kind is not COLLECTIVE_ALLTOALL,
 * because an all-to-all uses no ring. */
int64_t cost_ring_ns(const struct setting *setting, enum collective kind, const struct ring *ring,
                     int64_t bytes);
extern const char *const cost_source_names[]; /* by value, NULL-terminated */
const char *cost_source_name(enum cost_source source);

/* Whether times were measured: here, or by others who published them. */
static inline bool cost_is_measured(const struct cost *cost)
{
    return cost->source == COST_MEASURED || cost->source == COST_PUBLISHED;
}

#ifdef __cplusplus
}
#endif
