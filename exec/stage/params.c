/* exec/stage/params.c - parameters, gradients and optimizer state.
 *
 * Each item has one allocation of weights, one of gradients and one for each tensor of optimizer
 * state; its blocks lie in them one after another. params_wire() points layers and params into the
 * allocations; it runs again whenever these have changed (freezing, stage_adopt()). A tied token
 * table is the special case: the head uses the embedding's weights if both are in this stage, and
 * has a copy otherwise. */
#include "exec/stage/params.h"

#include <stdlib.h>
#include <string.h>

#include "exec/base/rng.h"

enum { F32 = sizeof(float) };

static int64_t pad(int64_t elems)
{
    return (elems + 15) / 16 * 16;
}

int params_num_moments(const struct job *job)
{
    switch (job->train.optimizer.kind) {
    case OPTIMIZER_SGD:
        return job->train.optimizer.momentum != 0.0 ? 1 : 0;
    case OPTIMIZER_ADAMW:
    case OPTIMIZER_LAMB:
        break;
    }
    return 2;
}

int params_num_states(const struct job *job)
{
    return params_num_moments(job) + (job->freeze.policy == FREEZE_APF ? APF_STATES : 0);
}

_Static_assert((int)STAGE_ITEM_PARAMS == (int)MAX_TENSORS, "an item's params");

int stage_num_states(const struct job *job)
{
    return params_num_states(job);
}

/* Whether a block of an item stays as it is because only adapters train. */
static bool in_base(const struct model *model, int item, int block)
{
    return block < ADAPTERS && model_item_is_base(model, item);
}

enum status stage_item_params(const struct model *model, int item,
                              struct param params[STAGE_ITEM_PARAMS], int *num, struct err *err)
{
    struct item_spec spec;
    struct arch arch;
    enum status rc = arch_init(model, &arch, err);
    *num = 0;
    if (rc != OK)
        return rc;
    arch_item(model, &arch, item, &spec);
    for (int t = 0; t < spec.num_tensors; t++) {
        const struct tensor_spec *ts = &spec.tensors[t];
        if (spec.tied && ts->block == HEAD_TABLE)
            continue;
        struct param *p = &params[(*num)++];
        *p = (struct param){.item = item,
                            .frozen = in_base(model, item, ts->block),
                            .ndim = ts->ndim,
                            .num_elems = ts->num_elems};
        memcpy(p->name, ts->name, sizeof p->name);
        memcpy(p->shape, ts->shape, sizeof p->shape);
    }
    return OK;
}

/* Whether this block is the head's token table, and the embedding's memory serves for it. (The
 * gradient of the head's table always has memory of its own.) */
static bool aliases_table(const struct stage *stage, const struct item_spec *spec, int block)
{
    return spec->tied && block == HEAD_TABLE && stage->has_table;
}

bool params_table_trains(const struct stage *stage)
{
    return stage->spec.num_frozen_items == 0 && stage->spec.model->lora.rank == 0;
}

int64_t params_base_elems(const struct stage *stage, int i)
{
    return stage->spec.model->lora.rank > 0 ? stage->weight_elems[i] - stage->state_elems[i] : 0;
}

void params_wire(struct stage *stage)
{
    int at = 0;
    for (int i = 0; i < stage->num_items; i++) {
        struct layer *l = &stage->layers[i];
        struct item_spec spec;
        arch_item(stage->spec.model, &stage->arch, l->item, &spec);
        const int64_t base = params_base_elems(stage, i);
        int64_t first[MAX_BLOCKS], elems = 0;
        for (int b = 0; b < spec.num_blocks; b++) {
            first[b] = elems;
            elems += pad(spec.block_elems[b]);
            l->w[b] = stage->weights[i] + first[b];
            l->low[b] = backend_at(stage->spec.backend, stage->low[i], first[b]);
            l->g[b] = stage->grads[i] && !in_base(stage->spec.model, l->item, b)
                          ? stage->grads[i] + first[b] - base
                          : NULL;
        }
        const bool table_frozen = !params_table_trains(stage);
        if (spec.tied && stage->has_table) {
            l->w[HEAD_TABLE] = stage->layers[0].w[WORD];
            l->low[HEAD_TABLE] = stage->layers[0].low[WORD];
        }
        if (spec.tied && table_frozen)
            l->g[HEAD_TABLE] = NULL;
        for (int t = 0; t < spec.num_tensors; t++) {
            const struct tensor_spec *ts = &spec.tensors[t];
            if (aliases_table(stage, &spec, ts->block))
                continue;
            const bool copy = spec.tied && ts->block == HEAD_TABLE;
            struct param *p = &stage->params[at];
            *p = (struct param){.item = l->item, .ndim = ts->ndim, .num_elems = ts->num_elems};
            memcpy(p->name, ts->name, sizeof p->name);
            memcpy(p->shape, ts->shape, sizeof p->shape);
            p->tied_copy = copy;
            if (stage->spec.model->was_tied && l->kind == ITEM_HEAD && ts->block == HEAD_TABLE)
                p->began_as = arch_table_name(&stage->arch);
            p->frozen = l->frozen || (copy && table_frozen) ||
                        in_base(stage->spec.model, l->item, ts->block);
            const int64_t offset = first[ts->block] + ts->offset;
            p->weight = stage->weights[i] + offset;
            if (!p->frozen) {
                /* After the exchange both sides have the sum in the table's accumulator. */
                p->grad = copy ? stage->tied_other : stage->grads[i] + offset - base;
                for (int s = 0; s < stage->num_states; s++)
                    p->state[s] = stage->states[s][i] + offset - base;
            }
            stage->decay[at] = ts->decay;
            at++;
        }
    }
    stage->num_params = at;
}

bool params_rounded(const struct stage *stage)
{
    return stage->spec.backend->elem_bytes != F32;
}

static void count_elems(struct stage *stage, int i, const struct item_spec *spec)
{
    const bool frozen = spec->tied && !params_table_trains(stage);
    int64_t elems = 0, base = 0;
    for (int b = 0; b < spec->num_blocks; b++) {
        elems += pad(spec->block_elems[b]);
        base +=
            in_base(stage->spec.model, stage->layers[i].item, b) ? pad(spec->block_elems[b]) : 0;
    }
    const int64_t rest = spec->tied ? elems - pad(spec->block_elems[HEAD_TABLE]) : elems;
    stage->block_elems[i] = frozen ? rest : elems;
    stage->weight_elems[i] = aliases_table(stage, spec, HEAD_TABLE) ? rest : elems;
    stage->state_elems[i] = frozen ? rest : stage->weight_elems[i];
    if (base > 0)
        stage->block_elems[i] = stage->state_elems[i] = elems - base;
}

enum status params_make(struct stage *stage, struct err *err)
{
    struct backend *be = stage->spec.backend;
    enum status rc = OK;
    int count = 0;
    for (int i = 0; i < stage->num_items && rc == OK; i++) {
        struct layer *l = &stage->layers[i];
        struct item_spec spec;
        arch_item(stage->spec.model, &stage->arch, l->item, &spec);
        count_elems(stage, i, &spec);
        const int64_t kept = stage->weight_elems[i];
        count += spec.num_tensors;
        rc = stage_grab_zeroed(stage, kept * F32, &stage->weights[i], err);
        if (rc == OK && params_rounded(stage))
            rc = stage_grab_zeroed(stage, backend_bytes(be, kept), &stage->low[i], err);
        else
            stage->low[i] = stage->weights[i];
        if (rc != OK || l->frozen || stage->block_elems[i] == 0)
            continue;
        rc = stage_grab_zeroed(stage, stage->block_elems[i] * F32, &stage->grads[i], err);
        for (int s = 0; s < stage->num_states && rc == OK; s++)
            rc = stage_grab_zeroed(stage, stage->state_elems[i] * F32, &stage->states[s][i], err);
    }
    if (rc != OK)
        return rc;
    const int64_t table = (int64_t)stage->spec.model->vocab * stage->spec.model->hidden;
    if (stage_shares_table(stage->spec.model) && stage->has_table != stage->has_head &&
        params_table_trains(stage))
        rc = stage_grab(stage, table * F32, &stage->tied_other, err);
    stage->params = calloc((size_t)count + 1, sizeof *stage->params);
    stage->decay = calloc((size_t)count + 1, sizeof *stage->decay);
    stage->sumsq = calloc((size_t)count + 1, sizeof *stage->sumsq);
    stage->held = calloc((size_t)count + 1, sizeof *stage->held);
    if (!stage->params || !stage->decay || !stage->sumsq || !stage->held)
        return err_nomem(err);
    if (rc == OK)
        params_wire(stage);
    return rc;
}

void stage_round_weights(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    for (int i = 0; params_rounded(stage) && i < stage->num_items; i++)
        be->round(be, stage->weight_elems[i], stage->weights[i], stage->low[i]);
}

static void swap_floats(float **a, float **b)
{
    float *c = *a;
    *a = *b;
    *b = c;
}

static void swap_blocks(void **a, void **b)
{
    void *c = *a;
    *a = *b;
    *b = c;
}

bool stage_adopt(struct stage *stage, struct stage *from, int item)
{
    const int i = item - stage->spec.first_item, j = item - from->spec.first_item;
    if (i < 0 || i >= stage->num_items || j < 0 || j >= from->num_items ||
        stage->weight_elems[i] != from->weight_elems[j])
        return false;
    const bool trains = stage->states[0][i] && stage->state_elems[i] > 0;
    for (int s = 0; trains && s < stage->num_states; s++)
        if (!from->states[s][j] || stage->state_elems[i] != from->state_elems[j])
            return false;
    swap_floats(&stage->weights[i], &from->weights[j]);
    swap_blocks(&stage->low[i], &from->low[j]);
    for (int s = 0; trains && s < stage->num_states; s++)
        swap_floats(&stage->states[s][i], &from->states[s][j]);
    params_wire(stage);
    params_wire(from);
    return true;
}

enum status stage_init_weights(struct stage *stage, uint64_t seed, struct err *err)
{
    struct backend *be = stage->spec.backend;
    int at = 0;
    for (int i = 0; i < stage->num_items; i++) {
        struct item_spec spec;
        arch_item(stage->spec.model, &stage->arch, stage->layers[i].item, &spec);
        for (int t = 0; t < spec.num_tensors; t++) {
            const struct tensor_spec *ts = &spec.tensors[t];
            if (aliases_table(stage, &spec, ts->block))
                continue;
            const struct param *p = &stage->params[at++];
            float *host = malloc((size_t)p->num_elems * sizeof *host);
            if (!host)
                return err_nomem(err);
            /* The head's copy, or own table, draws the same numbers as item 0, tensor 0. */
            const uint64_t key = p->tied_copy || p->began_as
                                     ? rng_key(seed, 0, 0, 0)
                                     : rng_key(seed, (uint64_t)p->item, (uint64_t)t, 0);
#pragma omp parallel for schedule(static) num_threads(be->threads)
            for (int64_t e = 0; e < p->num_elems; e++)
                host[e] =
                    ts->bound != 0.0f
                        ? ts->bound *
                              (2.0f * (float)(rng_bits(key, (uint32_t)e) >> 8) + 1.0f - 0x1p24f) *
                              0x1p-24f
                    : ts->std == 0.0f ? ts->value
                                      : ts->value + ts->std * (float)rng_normal(key, (uint64_t)e);
            be->copy_in(be, p->weight, host, p->num_elems * (int64_t)sizeof *host);
            enum status rc = be->sync(be, err);
            free(host);
            if (rc != OK)
                return rc;
        }
    }
    stage_round_weights(stage);
    return be->sync(be, err);
}

enum status params_freeze_table(struct stage *stage, struct err *err)
{
    struct backend *be = stage->spec.backend;
    const int i = stage->num_items - 1;
    const int64_t grads = stage->block_elems[i], states = stage->state_elems[i];
    struct item_spec spec;
    arch_item(stage->spec.model, &stage->arch, stage->layers[i].item, &spec);
    count_elems(stage, i, &spec);
    if (stage->layers[i].frozen || stage->block_elems[i] == grads)
        return OK;
    stage_drop(stage, &stage->grads[i], grads * F32);
    enum status rc = stage_grab_zeroed(stage, stage->block_elems[i] * F32, &stage->grads[i], err);
    for (int s = 0; rc == OK && s < stage->num_states && stage->state_elems[i] < states; s++) {
        float *had = stage->states[s][i];
        rc = stage_grab(stage, stage->state_elems[i] * F32, &stage->states[s][i], err);
        if (rc == OK) {
            be->copy(be, stage->states[s][i], had, stage->state_elems[i] * F32);
            stage_drop(stage, &had, states * F32);
        }
    }
    return rc;
}
