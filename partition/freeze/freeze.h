/* partition/freeze/freeze.h - which prefix of the layers is frozen, epoch by epoch.
 *
 * One interface over all policies, after PipeTransformer's freeze algorithm (He et al., ICML 2021).
 * F is the number of frozen layers. Rank 0 decides before each epoch, from the gradient norms of
 * the epoch before, or from evidence. F falls only where a table says so, or where `safe` undoes a
 * freeze. Pure functions; a decision takes O(L). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/freeze/freeze_safe.h"
#include "partition/freeze/freeze_choice.h"
#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum freeze_policy {
    FREEZE_NONE,
    FREEZE_CLOSED_FORM,     /* the cap alone, as in the released code */
    FREEZE_GRADIENT_NORM,   /* min(cap, argmin of the active norms), as in the paper */
    FREEZE_RELATIVE_CHANGE, /* median test of |prev - now| / prev, as in the released code */
    FREEZE_TABLE,           /* F per epoch from a table */
    FREEZE_PLATEAU,         /* ours: does not depend on the learning rate, see freeze.c */
    FREEZE_SAFE,            /* ours: within a stated loss, see freeze_safe.h */
    FREEZE_TIMED,           /* no prefix: shares of backward passes alone, shares.h */
    FREEZE_AUTOFREEZE,      /* layers below the median of |prev - now| / prev (AutoFreeze) */
    FREEZE_APF,             /* no prefix: single weights, for a time, apf.h */
    FREEZE_POLICY_COUNT
};
extern const char *const freeze_policy_names[]; /* by value, NULL-terminated */

#define JOB_EPOCHS_MAX 1000000

struct model;

/* What becomes of a head that shares the embedding's token table when the embedding freezes. */
enum freeze_head {
    HEAD_FROZEN, /* it freezes with the table */
    HEAD_ALONE,  /* it goes on with a table of its own, which begins as the shared one */
};
extern const char *const freeze_head_names[]; /* by value, NULL-terminated */

struct freeze_spec {
    enum freeze_policy policy;
    double alpha;   /* (0, 1): one decision freezes at most this share of the active layers.
                       Closed form, gradient norm, plateau and safe use it */
    int min_active; /* layers that must stay active; with the default 0, F = L is legal */
    int warmup;     /* first epochs (or turns of every_steps) in which nothing freezes; the
                       policy counts its epochs from there */
    int *table;     /* owned; F of policy epoch e at table[min(e, num_table - 1)] */
    int num_table;
    double max_loss; /* of safe: points of accuracy, or per cent of the loss; 0: freeze nothing */
    bool record;     /* measure the evidence of all prefixes (partition/freeze/evidence.h) */
    int64_t probe;   /* test samples that evidence is measured on; 0: as many as cost little */
    bool anneal;     /* layers that the next turn freezes train with a rate that falls to 0 */
    enum freeze_head head;
    double max_share; /* 0..1: of each stage, mean over the micro-batches; 0: no shares */
    enum freeze_choice choice;
    bool rescale;        /* an item's gradient is divided by the samples counted for it */
    int64_t every_steps; /* decide after this many steps instead of every epoch; 0: off */
    struct {
        int64_t every; /* steps between checks */
        double threshold, decay;
    } apf; /* partition/freeze/apf.h */
};

struct freeze {
    const struct freeze_spec *spec; /* borrowed */
    int num_layers;
    int num_frozen; /* the last decision */
    double *prev;   /* owned; the policy's memory of each layer, see freeze.c */
    int num_seen;   /* evaluations so far */
    bool held;      /* min_active cut the last decision short */
    /* For the policy safe. The caller sets passes and keeps after freeze_init(), and history and
     * row before each decision: the evidence so far, borrowed, and the row of the turn before,
     * NULL if it was not measured. passes: forwards over the probe that the run may take. keeps:
     * borrowed; forwards over the probe of this model keep inputs of layers (job_probe_keeps());
     * NULL: they do not. */
    double passes;
    const struct model *keeps;
    const struct freeze_history *history;
    const struct freeze_evidence *row;
    struct freeze_safe safe;
    struct freeze_verdict verdict; /* the last decision */
};

/* *freeze must be zeroed or cleared. ERR_INPUT: alpha outside (0, 1) where the policy has one,
 * num_layers < 1, warmup < 0, min_active or a table entry outside 0..num_layers, an empty table,
 * annealing by a policy whose decisions are not known ahead. */
enum status freeze_init(struct freeze *freeze, const struct freeze_spec *spec, int num_layers,
                        struct err *err);
void freeze_clear(struct freeze *freeze);

/* Decide F before `epoch` (0-based; call it for 0, 1, 2, ... in order). norms holds num_layers
 * gradient norms of the previous epoch. It is NULL where none exist (epoch 0, or a simulation
 * without a record): gradient-norm then uses its cap alone and says so, relative-change and plateau
 * keep F. reason (may be NULL, else 160 bytes) receives one line that explains the decision.
 * ERR_INPUT: a norm is negative, infinite or not a number; freeze is then unchanged. */
enum status freeze_decide(struct freeze *freeze, int epoch, const double *norms, int *num_frozen,
                          char reason[160], struct err *err);

/* The least and the most that the next freeze_decide(), before `epoch`, can decide over all
 * possible norms. The two are equal where the policy ignores norms. *freeze does not change. */
void freeze_bounds(const struct freeze *freeze, int epoch, int *least, int *most);

/* The fewest layers that a decision before `epoch` or a later one can leave frozen. Layers below
 * that never train again; those above may, where a policy lets F fall. */
int freeze_lowest(const struct freeze *freeze, int epoch);

/* The most layers that the next decision freezes under a policy with alpha. */
int freeze_cap(const struct freeze *freeze);

/* The closed form of the released code, evaluated in the same order of operations. */
int freeze_closed_form(int num_layers, double alpha, int epoch);

/* Fill spec->table (owned; frees the old one) for num_epochs with a named table of the released
 * code: mild, mild-early (6 from epoch 1 on), by_epoch or linear. Entries are at most num_layers.
 */
enum status freeze_named_table(const char *name, int num_layers, int num_epochs,
                               struct freeze_spec *spec, struct err *err);

/* Whether the policy needs gradient norms. A run must then compute them in each step. */
bool freeze_uses_norms(enum freeze_policy policy);

void freeze_spec_clear(struct freeze_spec *spec);
const char *freeze_policy_name(enum freeze_policy policy);
/* One line about a policy, for help texts. */
const char *freeze_policy_about(enum freeze_policy policy);
enum status freeze_policy_parse(const char *name, enum freeze_policy *policy, struct err *err);

#ifdef __cplusplus
}
#endif
