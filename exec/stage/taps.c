/* exec/stage/taps.c - inputs of items that a forward stores or reads (stage_tap()).
 *
 * The input of a later item comes into a buffer between items: item i writes ping[i % 2], so its
 * input may lie in the other one. */
#include "exec/stage/stage_state.h"

void stage_tap(struct stage *stage, const struct stage_taps *taps)
{
    stage->taps = taps;
}

static int64_t input_bytes(const struct stage *stage, int item, int64_t n)
{
    return backend_bytes(stage->spec.backend, n * stage_input_elems(stage->spec.model, item));
}

int tap_begin(struct stage *stage, int64_t n, const void **x)
{
    struct backend *be = stage->spec.backend;
    const struct stage_tap *from = stage->taps ? &stage->taps->from : NULL;
    if (!from || from->item < 1 || from->item < stage->spec.first_item ||
        from->item >= stage->spec.end_item)
        return 0;
    const int i = from->item - stage->spec.first_item;
    void *input = stage->ping[(i + 1) % 2];
    be->copy_in(be, input, from->host, input_bytes(stage, from->item, n));
    *x = input;
    return i;
}

void tap_keep(struct stage *stage, int i, int64_t n, const void *x)
{
    struct backend *be = stage->spec.backend;
    const int item = stage->spec.first_item + i;
    for (int k = 0; stage->taps && k < STAGE_KEEPS; k++)
        if (item > 0 && stage->taps->keep[k].item == item)
            be->copy_out(be, stage->taps->keep[k].host, x, input_bytes(stage, item, n));
}
