#include "partition/freeze/evidence.h"

#include <stdlib.h>

#include "partition/base/arrays.h"

enum status freeze_evidence_add(struct freeze_evidence *row, struct freeze_candidate candidate,
                                struct err *err)
{
    int at = row->num_candidates;
    if (!array_extend(&row->candidates, at, sizeof *row->candidates))
        return err_nomem(err);
    struct freeze_candidate *grown = row->candidates;
    for (; at > 0 && grown[at - 1].frozen > candidate.frozen; at--)
        grown[at] = grown[at - 1];
    grown[at] = candidate;
    row->num_candidates++;
    return OK;
}

const struct freeze_candidate *freeze_evidence_find(const struct freeze_evidence *row, int frozen)
{
    for (int c = 0; c < row->num_candidates; c++)
        if (row->candidates[c].frozen == frozen)
            return &row->candidates[c];
    return NULL;
}

void freeze_evidence_clear(struct freeze_evidence *row)
{
    free(row->candidates);
    free(row->plasticity);
    free(row->norms);
    free(row->sample_ns);
    *row = (struct freeze_evidence){0};
}

enum status freeze_history_add(struct freeze_history *history, struct freeze_evidence *row,
                               struct err *err)
{
    if (!array_extend(&history->rows, history->num_rows, sizeof *history->rows))
        return err_nomem(err);
    history->rows[history->num_rows++] = *row;
    *row = (struct freeze_evidence){0};
    return OK;
}

struct freeze_evidence *freeze_history_at(const struct freeze_history *history, int64_t turn)
{
    for (int64_t i = history ? history->num_rows : 0; i-- > 0;)
        if (history->rows[i].turn == turn)
            return &history->rows[i];
    return NULL;
}

void freeze_history_clear(struct freeze_history *history)
{
    for (int64_t i = 0; i < history->num_rows; i++)
        freeze_evidence_clear(&history->rows[i]);
    free(history->rows);
    *history = (struct freeze_history){0};
}
