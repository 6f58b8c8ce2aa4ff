/* exec/step/boundary.c - evaluations that begin between two items, with an input that an earlier
 * one has kept. The stages below do not run, and no message comes to the stage that begins. */
#include <stdlib.h>

#include "exec/step/runtime_state.h"

static int stage_of(const struct runtime *rt, int item)
{
    const struct plan *plan = rt->spec.plan;
    int s = 0;
    while (s + 1 < plan->num_stages && item >= plan->first_item[s + 1])
        s++;
    return s;
}

enum status boundary_make(const struct runtime *rt, int item, int64_t batches,
                          struct boundary *boundary, struct err *err)
{
    struct backend *be = rt->spec.backend;
    const int64_t size = rt->spec.plan->microbatches.size, num = batches * rt->num_microbatches;
    struct boundary got = {.item = item,
                           .backend = be,
                           .replica = rt->spec.replica,
                           .num_pipelines = rt->spec.plan->num_pipelines,
                           .size = size};
    enum status rc = OK;
    if (rt->stages[stage_of(rt, item)].stage) {
        got.blocks = calloc((size_t)num + 1, sizeof *got.blocks);
        if (!got.blocks)
            return err_nomem(err);
        for (; rc == OK && got.num_blocks < num; got.num_blocks++)
            rc = be->alloc_host(be,
                                backend_bytes(be, size * stage_input_elems(rt->spec.model, item)),
                                &got.blocks[got.num_blocks], err);
    }
    if (rc == OK) {
        *boundary = got;
        return OK;
    }
    boundary_clear(&got);
    return rc;
}

void boundary_clear(struct boundary *boundary)
{
    for (int i = 0; i < boundary->num_blocks; i++)
        boundary->backend->free_host(boundary->backend, boundary->blocks[i]);
    free(boundary->blocks);
    *boundary = (struct boundary){0};
}

bool boundary_fits(const struct runtime *rt, int item, int64_t batches,
                   const struct boundary *boundary)
{
    const bool here = rt->stages[stage_of(rt, item)].stage;
    return boundary->item == item && boundary->num_pipelines == rt->spec.plan->num_pipelines &&
           boundary->replica == rt->spec.replica &&
           boundary->size == rt->spec.plan->microbatches.size &&
           boundary->num_blocks == (here ? batches * rt->num_microbatches : 0);
}

void boundary_part(struct runtime *rt, const struct eval_part *part)
{
    rt->part = part;
    rt->first_stage = boundary_begins(rt) ? stage_of(rt, part->from->item) : 0;
}

static void tap(const struct runtime *rt, const struct boundary *boundary, int stage,
                int microbatch, struct stage_tap *tap)
{
    *tap = (struct stage_tap){0};
    if (!boundary || boundary->item < 1 || stage_of(rt, boundary->item) != stage)
        return;
    *tap = (struct stage_tap){
        boundary->item, boundary->blocks[rt->part->batch * rt->num_microbatches + microbatch]};
}

void boundary_tap(struct runtime *rt, int stage, int microbatch, struct stage_taps *taps)
{
    bool any;
    tap(rt, rt->part->from, stage, microbatch, &taps->from);
    any = taps->from.item > 0;
    for (int k = 0; k < STAGE_KEEPS; k++) {
        tap(rt, rt->part->keep[k], stage, microbatch, &taps->keep[k]);
        any |= taps->keep[k].item > 0;
    }
    if (any)
        stage_tap(rt->stages[stage].stage, taps);
}
