/* partition/freeze/freeze_replay.h - answers the policy `safe` from recorded evidence, where nothing is
 * trained: in the simulator and in `elapse freeze`.
 *
 * The recorded rows are those of a run with freeze.record, which measured every prefix in each
 * turn, or of a run under `safe`. The replay makes rows of its own from them, as the policy asks: a
 * turn that it does not want measured is added to the next window. A prefix between two recorded
 * ones gets a share in proportion, one above all recorded ones is not known. Where the replay has
 * more layers frozen than the recorded run had, their share is left out; where it has fewer,
 * nothing is known. Steps and learning rates are those of the recorded run.
 *
 * Pure; no I/O. */
#pragma once

#include "partition/freeze/evidence.h"
#include "partition/freeze/freeze.h"

struct freeze_replay {
    const struct freeze_history *recorded; /* borrowed; may have no rows */
    struct freeze_history history;         /* owned: the rows so far */
    struct freeze_evidence window;         /* owned: recorded turns that no row has yet */
    bool open;                             /* window has a turn */
};

/* Predict the time a sample by F, for F from the present one to most: sample_ns[F]. */
struct freeze_predict {
    enum status (*sample_ns)(void *ctx, int most, double *sample_ns, struct err *err);
    void *ctx;
};

/* A turn has ended, before freeze_decide(): add its row to replay->history if the policy wants one.
 * predict may be NULL. ERR_NOMEM; errors of predict pass through. */
enum status freeze_replay_turn(struct freeze_replay *replay, const struct freeze *freeze,
                               int64_t turn, const struct freeze_predict *predict, struct err *err);
void freeze_replay_clear(struct freeze_replay *replay);

/* The share of [from, F) in a recorded row. Returns false if it is not known. */
bool freeze_replay_share(const struct freeze_evidence *recorded, int from, int frozen,
                         struct freeze_candidate *candidate);
