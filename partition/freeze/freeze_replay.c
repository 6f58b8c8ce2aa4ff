#include "partition/freeze/freeze_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The share of [0, F) in a recorded row: 0 up to what was frozen, in proportion between two
 * candidates. */
static bool share_below(const struct freeze_evidence *recorded, int frozen,
                        struct freeze_candidate *candidate)
{
    struct freeze_candidate low = {.frozen = recorded->num_frozen};
    *candidate = (struct freeze_candidate){.frozen = frozen};
    if (frozen <= recorded->num_frozen)
        return true;
    for (int c = 0; c < recorded->num_candidates; c++) {
        const struct freeze_candidate *high = &recorded->candidates[c];
        if (high->frozen < frozen) {
            low = *high;
            continue;
        }
        const double part = (double)(frozen - low.frozen) / (double)(high->frozen - low.frozen);
        candidate->share = low.share + part * (high->share - low.share);
        candidate->share_se = high->share_se; /* no smaller than that of a part of the prefix */
        return true;
    }
    return false;
}

bool freeze_replay_share(const struct freeze_evidence *recorded, int from, int frozen,
                         struct freeze_candidate *candidate)
{
    struct freeze_candidate below;
    if (from < recorded->num_frozen || !share_below(recorded, frozen, candidate) ||
        !share_below(recorded, from, &below))
        return false;
    candidate->share -= below.share;
    return true;
}

static double *copy_of(const double *values, int num)
{
    double *copy = values ? malloc((size_t)num * sizeof *copy) : NULL;
    if (copy)
        memcpy(copy, values, (size_t)num * sizeof *copy);
    return copy;
}

/* Add a recorded turn to the window. Its candidates become all prefixes that are known, so that the
 * policy's question finds them; a prefix that another turn of the window lacks is dropped. */
static enum status extend(struct freeze_replay *replay, const struct freeze_evidence *recorded,
                          const struct freeze *freeze, struct err *err)
{
    struct freeze_evidence *window = &replay->window;
    struct freeze_evidence next = *recorded;
    enum status rc = OK;
    next.num_frozen = freeze->num_frozen;
    next.candidates = NULL;
    next.num_candidates = 0;
    next.passes = 0;
    next.plasticity = next.norms = next.sample_ns = NULL;
    next.verdict = (struct freeze_verdict){0};
    for (int f = freeze->num_frozen + 1; rc == OK && f <= freeze->num_layers; f++) {
        struct freeze_candidate one;
        const struct freeze_candidate *before = freeze_evidence_find(window, f);
        if (!freeze_replay_share(recorded, freeze->num_frozen, f, &one) ||
            (replay->open && !before))
            continue;
        if (replay->open) {
            one.share += before->share;
            one.share_se = sqrt(one.share_se * one.share_se + before->share_se * before->share_se);
        }
        rc = freeze_evidence_add(&next, one, err);
    }
    if (replay->open) {
        next.steps_window += window->steps_window;
        next.rate_window += window->rate_window;
        next.fall_se = sqrt(next.fall_se * next.fall_se + window->fall_se * window->fall_se);
        next.loss_before = window->loss_before;
    }
    freeze_evidence_clear(window);
    *window = next;
    replay->open = true;
    return rc;
}

/* Ask the policy, and answer from the window. */
static enum status answer(const struct freeze_replay *replay, const struct freeze *freeze,
                          struct freeze_evidence *row, struct err *err)
{
    enum status rc = OK;
    for (;;) {
        row->passes = freeze_safe_row_passes(freeze, &replay->history, row);
        const int frozen = freeze_safe_ask(freeze, &replay->history, row);
        const struct freeze_candidate *known = freeze_evidence_find(&replay->window, frozen);
        if (frozen < 0 || !known)
            return rc;
        rc = freeze_evidence_add(row, *known, err);
        if (rc != OK)
            return rc;
    }
}

enum status freeze_replay_turn(struct freeze_replay *replay, const struct freeze *freeze,
                               int64_t turn, const struct freeze_predict *predict, struct err *err)
{
    const struct freeze_evidence *recorded = freeze_history_at(replay->recorded, turn);
    struct freeze_evidence row;
    enum status rc;
    if (replay->open && replay->window.num_frozen != freeze->num_frozen) {
        freeze_evidence_clear(&replay->window); /* a change of plan ends a window */
        replay->open = false;
    }
    if (!recorded)
        return OK;
    rc = extend(replay, recorded, freeze, err);
    if (rc != OK || !freeze_safe_due(freeze, &replay->history, &replay->window))
        return rc;
    row = replay->window;
    row.candidates = NULL;
    row.num_candidates = 0;
    if (predict) {
        row.sample_ns = calloc((size_t)freeze->num_layers + 1, sizeof *row.sample_ns);
        rc = row.sample_ns
                 ? predict->sample_ns(predict->ctx, freeze_cap(freeze), row.sample_ns, err)
                 : err_nomem(err);
    } else {
        row.sample_ns = copy_of(recorded->sample_ns, freeze->num_layers + 1);
        if (row.sample_ns && !(row.sample_ns[freeze->num_frozen] > 0)) {
            free(row.sample_ns); /* recorded with other layers frozen */
            row.sample_ns = NULL;
        }
    }
    THEN(answer(replay, freeze, &row, err));
    THEN(freeze_history_add(&replay->history, &row, err));
    freeze_evidence_clear(&row);
    freeze_evidence_clear(&replay->window);
    replay->open = false;
    return rc;
}

void freeze_replay_clear(struct freeze_replay *replay)
{
    freeze_history_clear(&replay->history);
    freeze_evidence_clear(&replay->window);
    *replay = (struct freeze_replay){0};
}
