/* exec/stage/stage_build.c - makes a stage, frees it, and moves its frozen boundary. */
#include "exec/stage/stage.h"

#include <stdlib.h>

#include "exec/stage/params.h"
#include "exec/stage/rope.h"
#include "exec/stage/skips.h"
#include "exec/stage/stash.h"
#include "partition/step/pool_memory.h"
#include "profiles/store/profile.h"

static enum status make_upload(struct stage *stage, struct err *err)
{
    struct backend *be = stage->spec.backend;
    struct upload *up = &stage->upload;
    enum status rc = OK;
    if (!stage->spec.uploads || be->host_memory || stage->arch.family != FAMILY_VIT ||
        stage->spec.first_item > 0)
        return OK;
    rc = be->lane_new(be, &up->lane, err);
    THEN(be->event_new(be, &up->freed, err));
    THEN(be->event_new(be, &up->ready, err));
    THEN(stage_grab(stage, stage_block_bytes(stage, NULL, NULL), &up->area, err));
    return rc;
}

static void free_upload(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    struct upload *up = &stage->upload;
    if (up->serial)
        be->event_wait(be, up->ready);
    be->free(be, up->area);
    if (!up->lane)
        return;
    be->lane_free(be, up->lane);
    be->event_free(be, up->freed);
    be->event_free(be, up->ready);
}

static enum status make_angles(struct stage *stage, struct err *err)
{
    struct backend *be = stage->spec.backend;
    const struct arch *a = &stage->arch;
    const int64_t bytes = a->seq * pool_angle_bytes(stage->spec.model);
    if (!a->decoder)
        return OK;
    float *host = malloc((size_t)bytes);
    enum status rc = host ? stage_grab(stage, bytes, &stage->angles, err) : err_nomem(err);
    if (rc == OK) {
        rope_angles(&stage->spec.model->turns, a->seq, a->head_dim, host);
        be->copy_in(be, stage->angles, host, bytes);
        rc = be->sync(be, err);
    }
    free(host);
    return rc;
}

static enum status make_buffers(struct stage *stage, struct err *err)
{
    const struct stage_spec *spec = &stage->spec;
    const struct backend *be = spec->backend;
    const int64_t rows = spec->max_samples * stage->arch.seq;
    const int64_t wide = backend_bytes(be, rows * stage->arch.hidden);
    int64_t stash[MAX_STASH], out;
    stash_sizes(stage, stage->num_items - 1, stash, &out);
    enum status rc = OK;
    for (int i = 0; i < stage->num_slots && rc == OK; i++) {
        struct slot *slot = &stage->slots[i];
        slot->dy = calloc((size_t)stage->num_items, sizeof *slot->dy);
        if (!slot->dy)
            return err_nomem(err);
        if (out > 0)
            rc = stage_grab(stage, out, &slot->out, err);
        if (rc == OK && spec->first_item > 0)
            rc = stage_grab(stage,
                            backend_bytes(be, spec->max_samples *
                                                  stage_input_elems(spec->model, spec->first_item)),
                            &slot->grad_in, err);
        if (rc == OK && stage->has_head)
            rc = stage_grab(stage, 64, &slot->sums, err);
        if (rc == OK && !be->host_memory)
            rc = stage_grab(stage, stage_block_bytes(stage, NULL, NULL), &slot->inputs, err);
    }
    THEN(make_upload(stage, err));
    THEN(make_angles(stage, err));
    for (int i = 0; i < 2 && rc == OK; i++) {
        rc = stage_grab(stage, backend_bytes(be, rows * stage->arch.scratch), &stage->scratch[i],
                        err);
        THEN(stage_grab(stage, wide, &stage->ping[i], err));
    }
    THEN(stage_grab(stage, wide, &stage->flow, err));
    if (rc == OK && spec->first_item == 0 && stage->arch.family == FAMILY_VIT)
        rc = stage_grab(stage,
                        backend_bytes(be, rows * spec->model->channels * spec->model->patch *
                                              spec->model->patch),
                        &stage->cols, err);
    THEN(stash_make(stage, &stage->sets[stage->num_slots], true, err));
    for (int i = 0; i < (spec->recompute ? 1 : stage->num_slots) && rc == OK; i++)
        if (stage_first_active(stage) < stage->num_items)
            rc = stash_make(stage, &stage->sets[i], false, err);
    return rc;
}

/* The most elements that a token has in a tensor. */
static int64_t widest(const struct model *m)
{
    int64_t wide = m->mlp > 3 * m->hidden ? m->mlp : 3 * (int64_t)m->hidden;
    if (m->family == FAMILY_LLAMA && 2 * (int64_t)m->mlp > wide)
        wide = 2 * (int64_t)m->mlp;
    if (3 * (int64_t)m->heads * m->head_dim > wide)
        wide = 3 * (int64_t)m->heads * m->head_dim;
    if (m->vocab > wide)
        wide = m->vocab;
    return wide;
}

static enum status check_spec(const struct stage_spec *spec, struct err *err)
{
    const struct model *m = spec->model;
    if (spec->first_item < 0 || spec->end_item <= spec->first_item || spec->end_item > m->num_items)
        return err_set(err, ERR_INPUT, "stage: items %d..%d are not in 0..%d", spec->first_item,
                       spec->end_item - 1, m->num_items - 1);
    if (spec->max_samples < 1 || spec->max_live < 1)
        return err_set(err, ERR_INPUT,
                       "stage: %lld samples and %d micro-batches must be at least 1",
                       (long long)spec->max_samples, spec->max_live);
    if (spec->job->train.dtype != spec->backend->dtype)
        return err_set(err, ERR_INPUT, "stage: train.dtype is %s, the %s backend computes in %s",
                       dtype_text(spec->job->train.dtype), spec->backend->name,
                       dtype_text(spec->backend->dtype));
    if (m->num_skips > 0 && (m->family != FAMILY_VIT || spec->job->train.dropout > 0.0))
        return err_set(err, ERR_INPUT, "model '%s': skip edges train in vit without dropout only",
                       m->name);
    if (m->num_skips > 0 && spec->end_item - spec->first_item < m->num_items && !spec->first_items)
        return err_set(err, ERR_INPUT, "model '%s': skip edges need the cut of the whole model",
                       m->name);
    /* A backend that only counts memory has no kernels at all. */
    const struct backend *be = spec->backend;
    if (m->family == FAMILY_LLAMA && be->linear_forward && !be->rotary_forward)
        return err_set(err, ERR_INFEASIBLE, "model '%s': the %s backend has no kernels of decoders",
                       m->name, be->name);
    /* The widest tensor of a micro-batch, in bytes, must be countable and its rows an int of BLAS.
     */
    const int64_t most = INT32_MAX;
    const int64_t wide = widest(m);
    if (m->seq < 1 || spec->max_samples > most / m->seq ||
        spec->max_samples * m->seq > INT64_MAX / 8 / wide)
        return err_set(err, ERR_INPUT,
                       "stage: a micro-batch of %lld samples of %d tokens is too big",
                       (long long)spec->max_samples, m->seq);
    return OK;
}

enum status stage_new(const struct stage_spec *spec, struct stage **out, struct err *err)
{
    enum status rc = check_spec(spec, err);
    if (rc != OK)
        return rc;
    struct stage *stage = calloc(1, sizeof *stage);
    if (!stage)
        return err_nomem(err);
    stage->spec = *spec;
    rc = arch_init(spec->model, &stage->arch, err);
    if (rc != OK)
        goto out;
    const int items = stage->num_items = spec->end_item - spec->first_item;
    const size_t n = (size_t)items;
    stage->num_slots = spec->max_live;
    stage->num_states = params_num_states(spec->job);
    stage->has_table = stage_shares_table(spec->model) && spec->first_item == 0;
    stage->has_head = spec->end_item == spec->model->num_items;
    stage->layers = arrays_new(&stage->arrays, n, sizeof *stage->layers);
    stage->weights = arrays_new(&stage->arrays, n, sizeof *stage->weights);
    stage->low = arrays_new(&stage->arrays, n, sizeof *stage->low);
    stage->grads = arrays_new(&stage->arrays, n, sizeof *stage->grads);
    for (int s = 0; s < STAGE_STATES; s++)
        stage->states[s] = arrays_new(&stage->arrays, n, sizeof *stage->states[s]);
    stage->block_elems = arrays_new(&stage->arrays, n, sizeof *stage->block_elems);
    stage->weight_elems = arrays_new(&stage->arrays, n, sizeof *stage->weight_elems);
    stage->state_elems = arrays_new(&stage->arrays, n, sizeof *stage->state_elems);
    stage->fresh = arrays_new(&stage->arrays, n, sizeof *stage->fresh);
    stage->slots = arrays_new(&stage->arrays, (size_t)stage->num_slots, sizeof *stage->slots);
    stage->sets = arrays_new(&stage->arrays, (size_t)stage->num_slots + 1, sizeof *stage->sets);
    if (stage->arrays.failed) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < items; i++)
        stage->layers[i] = (struct layer){.item = spec->first_item + i,
                                          .kind = spec->model->items[spec->first_item + i].kind,
                                          .frozen = spec->first_item + i < spec->num_frozen_items};
    rc = params_make(stage, err);
    THEN(lagged_make(stage, err));
    THEN(make_buffers(stage, err));
    THEN(stage_skips_open(stage, err));
out:
    if (rc != OK)
        stage_free(stage);
    else
        *out = stage;
    return rc;
}

void stage_free(struct stage *stage)
{
    if (!stage)
        return;
    struct backend *be = stage->spec.backend;
    stage_skips_close(stage);
    free_upload(stage);
    lagged_free(stage);
    for (int i = 0; i < stage->num_items; i++) {
        if (stage->low && params_rounded(stage))
            be->free(be, stage->low[i]);
        float **owned[] = {stage->weights, stage->grads, stage->states[0], stage->states[1]};
        for (int k = 0; k < 4; k++)
            if (owned[k] && owned[k][i])
                be->free(be, owned[k][i]);
    }
    for (int i = 0; stage->slots && i < stage->num_slots; i++) {
        struct slot *slot = &stage->slots[i];
        be->free(be, slot->out);
        be->free(be, slot->grad_in);
        be->free(be, slot->inputs);
        be->free(be, slot->sums);
        free(slot->dy);
        free(slot->rows);
    }
    for (int i = 0; stage->sets && i <= stage->num_slots; i++) {
        be->free(be, stage->sets[i].mem);
        free(stage->sets[i].buf);
        free(stage->sets[i].y);
    }
    for (int i = 0; i < 2; i++) {
        be->free(be, stage->scratch[i]);
        be->free(be, stage->ping[i]);
    }
    be->free(be, stage->flow);
    be->free(be, stage->cols);
    be->free(be, stage->angles);
    be->free(be, stage->tied_other);
    for (int i = 0; i < stage->room_marks; i++)
        be->event_free(be, stage->marks[i].at);
    free(stage->marks);
    free(stage->params);
    free(stage->decay);
    free(stage->sumsq);
    free(stage->held);
    arrays_clear(&stage->arrays);
    free(stage);
}

enum status stage_freeze(struct stage *stage, int num_frozen_items, struct err *err)
{
    if (num_frozen_items < stage->spec.num_frozen_items)
        return err_set(err, ERR_INPUT, "stage: cannot thaw from %d to %d frozen items",
                       stage->spec.num_frozen_items, num_frozen_items);
    for (int i = 0; i < stage->num_slots; i++)
        if (stage->slots[i].state != SLOT_FREE)
            return err_set(err, ERR_INPUT, "stage: cannot freeze with slot %d in flight", i);
    for (int i = 0; i < stage->num_slots; i++)
        stash_drop(stage, &stage->sets[i], false); /* laid out anew, smaller, at the next use */
    if (num_frozen_items > 0)
        stage_drop(stage, &stage->tied_other,
                   (int64_t)stage->spec.model->vocab * stage->arch.hidden * (int64_t)sizeof(float));
    stage->spec.num_frozen_items = num_frozen_items;
    for (int i = 0; i < stage_first_active(stage); i++) {
        stage->layers[i].frozen = true;
        stage_drop(stage, &stage->grads[i], stage->block_elems[i] * (int64_t)sizeof(float));
        for (int s = 0; s < stage->num_states; s++)
            stage_drop(stage, &stage->states[s][i], stage->state_elems[i] * (int64_t)sizeof(float));
    }
    if (stage->has_head && num_frozen_items > 0) {
        const enum status rc = params_freeze_table(stage, err);
        if (rc != OK)
            return rc;
    }
    params_wire(stage);
    stage_skips_close(stage);
    return stage_skips_open(stage, err);
}
