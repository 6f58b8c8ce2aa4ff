/* exec/stage/lagged.c - the lagged copy of a stage's weights, and its exchange with the weights.
 *
 * The copy of an item is laid out as the item's weights are, without a tied table that has frozen
 * (as optimizer state is), or without the base beside adapters. Contents change places, not
 * pointers, because a captured graph of a device and the tied table keep their addresses. The
 * head's own copy of a tied table counts as item 0, where the table is, so that a range of items
 * means the same at every cut. */
#include <stdlib.h>

#include "exec/stage/params.h"
#include "partition/step/workload.h"

enum { F32 = sizeof(float), SWAP_ELEMS = LAG_ROOM_BYTES / F32 };

enum status lagged_make(struct stage *stage, struct err *err)
{
    enum status rc = OK;
    bool any = false;
    if (!stage->spec.lagged)
        return OK;
    stage->lagged = calloc((size_t)stage->num_items, sizeof *stage->lagged);
    if (!stage->lagged)
        return err_nomem(err);
    for (int i = 0; rc == OK && i < stage->num_items; i++)
        if (!stage->layers[i].frozen && stage->state_elems[i] > 0) {
            rc = stage_grab_zeroed(stage, stage->state_elems[i] * F32, &stage->lagged[i], err);
            any = true;
        }
    if (rc == OK && any)
        rc = stage_grab(stage, SWAP_ELEMS * F32, &stage->lag_room, err);
    return rc;
}

void lagged_free(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    for (int i = 0; stage->lagged && i < stage->num_items; i++)
        be->free(be, stage->lagged[i]);
    be->free(be, stage->lag_room);
    free(stage->lagged);
}

float *stage_lagged(const struct stage *stage, const struct param *param)
{
    const int i = param->item - stage->spec.first_item;
    if (!stage->lagged || !stage->lagged[i] || param->frozen)
        return NULL;
    return stage->lagged[i] + (param->weight - stage->weights[i]) - params_base_elems(stage, i);
}

void stage_lag_take(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    for (int i = 0; stage->lagged && i < stage->num_items; i++)
        if (stage->lagged[i])
            be->copy(be, stage->lagged[i], stage->weights[i] + params_base_elems(stage, i),
                     stage->state_elems[i] * F32);
}

static void exchange(struct stage *stage, float *a, float *b, int64_t num_elems)
{
    struct backend *be = stage->spec.backend;
    for (int64_t at = 0, n; at < num_elems; at += n) {
        n = num_elems - at < SWAP_ELEMS ? num_elems - at : SWAP_ELEMS;
        be->copy(be, stage->lag_room, a + at, n * F32);
        be->copy(be, a + at, b + at, n * F32);
        be->copy(be, b + at, stage->lag_room, n * F32);
    }
}

void stage_lag_swap(struct stage *stage, int first_item, int end_item)
{
    for (int p = 0; stage->lagged && p < stage->num_params; p++) {
        const struct param *param = &stage->params[p];
        const int item = param->tied_copy ? 0 : param->item;
        float *lagged = stage_lagged(stage, param);
        if (lagged && item >= first_item && item < end_item)
            exchange(stage, param->weight, lagged, param->num_elems);
    }
    if (stage->lagged)
        stage_round_weights(stage);
}
