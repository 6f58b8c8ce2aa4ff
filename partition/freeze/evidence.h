/* partition/freeze/evidence.h - what a run has measured about freezing, turn by turn.
 *
 * A window is a turn, or several under the policy `safe`: the run keeps a copy of the weights of
 * its begin (the lagged weights) and at its end evaluates a small probe of the test set. For a
 * prefix of F layers, L(o,n) is the loss with the prefix lagged and the rest of today, L(n,o) the
 * reverse. The prefix's share of the fall of the loss is the Shapley value of two players,
 *     share(F) = ( L(o,n) - L(n,n) + L(o,o) - L(n,o) ) / 2.
 * The shares of prefix and rest add up to the fall L(o,o) - L(n,n). A share below zero means that
 * training the prefix has made the loss worse. Losses are nats per target.
 *
 * The executor measures and writes evidence.json; the simulator reads it
 * (profiles/job/evidence_json.h). Pure; no I/O. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct freeze_candidate {
    int frozen;             /* layers of the prefix, 1..L */
    double share, share_se; /* with its standard error over the probe's blocks */
};

/* The decision of the policy `safe` on a row (partition/freeze/freeze_safe.h). Costs are in the unit of
 * freeze.max_loss: points of accuracy, or per cent of the loss. */
struct freeze_verdict {
    bool made;
    int frozen;           /* F from then on */
    double cost, cost_se; /* estimate of what freezing costs until the run's end, all in all */
    double left;          /* max_loss - cost, at least 0 */
    char reason[160];
};

struct freeze_evidence {
    int64_t turn, step; /* the turn that has ended; steps of the run until then */
    int num_frozen;     /* during the window */
    /* Sums of the learning rates over the window's steps, and over the steps that are left. */
    double rate_window, rate_left;
    double steps_window, steps_left;     /* their number, in steps of the present plan */
    double loss, loss_before;            /* L(n,n), L(o,o) */
    double fall_se;                      /* standard error of loss_before - loss */
    double accuracy;                     /* of the probe; NaN: not a classifier */
    int64_t num_probe;                   /* samples */
    double passes;                       /* forwards over the probe that this row took */
    struct freeze_candidate *candidates; /* owned; by rising F */
    int num_candidates;
    /* Owned, [L], or NULL. plasticity: |w_now - w_lagged| / |w_lagged| of a layer's weights, 0
     * where it is frozen. norms: gradient norms as policies read them. */
    double *plasticity, *norms;
    double *sample_ns; /* owned, [L + 1], or NULL: predicted time a sample by F; 0: not known */
    struct freeze_verdict verdict;
};

struct freeze_history {
    struct freeze_evidence *rows; /* owned, in the order of turns */
    int64_t num_rows;
};

/* Insert a candidate in its place. ERR_NOMEM. */
enum status freeze_evidence_add(struct freeze_evidence *row, struct freeze_candidate candidate,
                                struct err *err);
/* The candidate of a row with this F, or NULL. */
const struct freeze_candidate *freeze_evidence_find(const struct freeze_evidence *row, int frozen);
void freeze_evidence_clear(struct freeze_evidence *row); /* safe twice */

/* Append a row; on OK the history owns what the row held, and *row is zeroed. ERR_NOMEM. */
enum status freeze_history_add(struct freeze_history *history, struct freeze_evidence *row,
                               struct err *err);
/* The row of a turn, or NULL if the turn was not measured. */
struct freeze_evidence *freeze_history_at(const struct freeze_history *history, int64_t turn);
void freeze_history_clear(struct freeze_history *history); /* safe twice */

#ifdef __cplusplus
}
#endif
