/* partition/freeze.h - which prefix of the layers is frozen, epoch by epoch.
 *
 * One interface over all policies, after PipeTransformer's freeze algorithm (He et al., ICML 2021).
 * The decision is taken before an epoch from the previous epoch's gradient norms, once, on rank 0;
 * F never shrinks. Pure; O(L) a decision. */
#ifndef ELAPSE_PARTITION_FREEZE_H
#define ELAPSE_PARTITION_FREEZE_H

#include <stdbool.h>
#include <stdint.h>

#include "partition/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum freeze_policy {
    FREEZE_NONE,
    FREEZE_CLOSED_FORM,     /* the cap alone [C] */
    FREEZE_GRADIENT_NORM,   /* min(cap, argmin of the active norms) [P] */
    FREEZE_RELATIVE_CHANGE, /* median test of |prev - now| / prev [C] */
    FREEZE_TABLE,           /* F per epoch, given */
    FREEZE_PLATEAU,         /* ours: robust to the learning rate, see freeze.c */
    FREEZE_POLICY_COUNT
};

#define JOB_EPOCHS_MAX 1000000

struct freeze_spec {
    enum freeze_policy policy;
    double alpha;   /* (0, 1); closed form, gradient norm, plateau: largest share of the active
                       layers that one decision freezes */
    int min_active; /* layers that must stay active; default 0: F = L is legal */
    int warmup;     /* epochs (or turns of every_steps) that train whole before the policy's
                       own epoch 0 */
    int *table;     /* owned; F of policy epoch e at table[min(e, num_table - 1)] */
    int num_table;
    int64_t every_steps; /* decide every so many steps, not every epoch; 0: off */
};

struct freeze {
    const struct freeze_spec *spec; /* borrowed */
    int num_layers;
    int num_frozen; /* the last decision */
    double *prev;   /* owned, num_layers times what the policy remembers of each, see freeze.c */
    int num_seen;   /* evaluations so far */
    bool held;      /* the last decision wanted more than may freeze (F2) */
};

/* *freeze must be zeroed or cleared. ERR_INPUT: alpha outside (0, 1) where the policy has one,
 * num_layers < 1, warmup < 0, min_active or a table entry outside 0..num_layers, an empty table. */
enum status freeze_init(struct freeze *freeze, const struct freeze_spec *spec, int num_layers,
                        struct err *err);
void freeze_clear(struct freeze *freeze);

/* Decide F before `epoch` (0-based, called for 0, 1, 2, ... in order). norms: num_layers gradient
 * norms of the previous epoch, or NULL where none exist (epoch 0, or a simulation without a record:
 * gradient-norm then uses its cap alone and says so; relative-change and plateau keep F). reason
 * (may be NULL, else 160 bytes) says why. ERR_INPUT: a norm that is negative, infinite or not a
 * number; freeze is unchanged then. */
enum status freeze_decide(struct freeze *freeze, int epoch, const double *norms, int *num_frozen,
                          char reason[160], struct err *err);

/* Between what the next freeze_decide(), before `epoch`, will decide, whatever its norms are; equal
 * where they do not matter. *freeze stays as it is. */
void freeze_bounds(const struct freeze *freeze, int epoch, int *least, int *most);

/* The closed form of the release, evaluated as it is there. */
int freeze_closed_form(int num_layers, double alpha, int epoch);

/* Named tables of the release's history: mild, mild-early (6 from epoch 1 on), by_epoch, linear;
 * fills spec->table (replaced; owned) for num_epochs, clipped to num_layers. */
enum status freeze_named_table(const char *name, int num_layers, int num_epochs,
                               struct freeze_spec *spec, struct err *err);

/* Whether the policy decides by gradient norms, which a run then has to form in each step. */
bool freeze_uses_norms(enum freeze_policy policy);

void freeze_spec_clear(struct freeze_spec *spec);
const char *freeze_policy_name(enum freeze_policy policy);
enum status freeze_policy_parse(const char *name, enum freeze_policy *policy, struct err *err);

#ifdef __cplusplus
}
#endif
#endif
