#include "partition/evidence.h"

#include <stdlib.h>
#include <string.h>

enum status freeze_evidence_add(struct freeze_evidence *row, struct freeze_candidate candidate,
                                struct err *err)
{
    struct freeze_candidate *grown =
        realloc(row->candidates, ((size_t)row->num_candidates + 1) * sizeof *grown);
    int at = row->num_candidates;
    if (!grown)
        return err_nomem(err);
    row->candidates = grown;
    for (; at > 0 && grown[at - 1].frozen > candidate.frozen; at--)
        grown[at] = grown[at - 1];
    grown[at] = candidate;
    row->num_candidates++;
    return OK;
}

void freeze_evidence_clear(struct freeze_evidence *row)
{
    free(row->candidates);
    free(row->plasticity);
    free(row->norms);
    *row = (struct freeze_evidence){0};
}

enum status freeze_history_add(struct freeze_history *history, struct freeze_evidence *row,
                               struct err *err)
{
    struct freeze_evidence *grown =
        realloc(history->rows, ((size_t)history->num_rows + 1) * sizeof *grown);
    if (!grown)
        return err_nomem(err);
    history->rows = grown;
    grown[history->num_rows++] = *row;
    *row = (struct freeze_evidence){0};
    return OK;
}

void freeze_history_clear(struct freeze_history *history)
{
    for (int64_t i = 0; i < history->num_rows; i++)
        freeze_evidence_clear(&history->rows[i]);
    free(history->rows);
    *history = (struct freeze_history){0};
}
