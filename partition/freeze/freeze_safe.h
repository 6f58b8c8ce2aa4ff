/* partition/freeze/freeze_safe.h - the policy `safe`: freeze by what the run itself has shown,
 * within a stated loss.
 *
 * The run measures rows of evidence (partition/freeze/evidence.h). What freezing F layers for the
 * rest of the run would give up follows from the rows by two laws (partition/freeze/freeze_cost.h):
 * how the fall of the loss continues, and how the other layers learn without the prefix.
 *
 * F may freeze if its cost, a one-sided 80 % of its standard error, and what earlier freezes were
 * estimated to cost fit in freeze.max_loss. Of those that fit, the policy takes the one that saves
 * most of the predicted time a sample (partition/search/plan_for.h, with cache and replicas), and
 * none where less than LEAST_SAVING is saved.
 *
 * Where noise makes a cost uncertain, its mean above 0 is what counts as spent: that training a
 * prefix seems to do harm is not credited.
 *
 * A freeze is undone, once, if in the next row the layers that still train bring less than they did
 * before by more than noise and by more than what is left of the budget. After that nothing freezes
 * for HOLD turns. A freeze on the very first row cannot be undone, because one window does not show
 * how the fall would continue.
 *
 * Shares (freeze.max_share, partition/freeze/shares.h) are held to the same budget. A run that leaves
 * out a share s of its weight gradients learns at least 1 - s times as fast, because the gradients
 * that it counts stay unbiased. So it ends as if it had stopped s of its steps earlier, and the
 * second law of freeze_cost.h says what that costs. On each row the policy takes the largest share
 * up to max_share whose cost for the rest of the run, with the steps that shares have already cost,
 * fits beside the freezes. A share is a decision for one turn: a row that shows a higher cost
 * lowers it. Before the first row it is 0.
 *
 * The state follows from the spec and the rows alone, so a resumed run repeats its decisions.
 * Pure; no I/O. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "partition/freeze/evidence.h"

#ifdef __cplusplus
extern "C" {
#endif

struct freeze;

/* The policy's memory. Costs are in the unit of freeze.max_loss. */
struct freeze_safe {
    bool pending;          /* the last freeze may still be undone */
    int undo_to;           /* F before it */
    int hold;              /* turns in which nothing may freeze */
    double cost, var;      /* of all freezes but the pending one: estimate and its variance */
    double last, last_var; /* of the pending one */
    /* While pending: what the layers that train are to bring per step, and its variance, in nats;
     * and the mean learning rate after that. */
    double due, due_var, due_rate;
    double share;      /* of weight gradients, for the steps up to the next row */
    double lost_steps; /* that earlier shares were, at most */
};

/* Samples of the probe: freeze.probe, or with 0 enough that the evidence of a run of run_samples
 * training samples costs little; at most test_samples, if that is known (> 0). */
int64_t freeze_safe_probe(int64_t wanted, int64_t run_samples, int64_t test_samples);
/* Forward passes over a probe of this size that a run without freezing may take: 2 % of the
 * time of its steps, where a step takes three forwards of its samples. Half of them are there in
 * advance; the others become due with the time that the run's own steps take. A job that names
 * freeze.probe (wanted > 0) gets RUN_PASSES at least, and may so spend more. */
double freeze_safe_passes(int64_t wanted, int64_t run_samples, int64_t probe);

/* Whether the window that ends now is to be measured. row has what is known before that: turn, step,
 * num_frozen, steps and rates. If not, the window continues. */
bool freeze_safe_due(const struct freeze *freeze, const struct freeze_history *history,
                     const struct freeze_evidence *row);

/* Passes of a row with the candidates that it has. Forwards begin after the frozen prefix, and
 * those of the largest candidate after that one, where earlier forwards have kept the input. A
 * part of the layers is a part of a pass, by their floating-point operations. What a restart costs
 * beyond that is not counted, so that the run decides as without one. */
double freeze_safe_row_passes(const struct freeze *freeze, const struct freeze_history *history,
                              const struct freeze_evidence *row);
/* The passes that measuring this prefix too adds to that, the first one of a row or a smaller one. */
double freeze_safe_candidate_passes(const struct freeze *freeze,
                                    const struct freeze_history *history,
                                    const struct freeze_evidence *row, int frozen);

/* The next prefix to measure for the row, or -1: enough. row has all but further candidates. */
int freeze_safe_ask(const struct freeze *freeze, const struct freeze_history *history,
                    const struct freeze_evidence *row);

/* Decide on a row: returns F, at most `most`, and fills *verdict. row NULL: the turn was not
 * measured, F stays. freeze->safe gets the new state. */
int freeze_safe_decide(struct freeze *freeze, const struct freeze_history *history,
                       const struct freeze_evidence *row, int most, struct freeze_verdict *verdict);

/* The 80 % interval of a cost, not below 0. */
void freeze_safe_interval(double cost, double cost_se, double *low, double *high);

#ifdef __cplusplus
}
#endif
