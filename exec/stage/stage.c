#include "exec/stage/stage.h"

#include <stdlib.h>
#include <string.h>

#include "exec/base/rng.h"
#include "exec/stage/stage_internal.h"
#include "profiles/profile.h"

static int64_t pad(int64_t elems)
{
    return (elems + 15) / 16 * 16;
}

/* The same for bytes: 64, the alignment of alloc(). */
static int64_t pad_bytes(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

enum { F32 = sizeof(float) };

static enum status grab(struct stage *stage, bool zeroed, int64_t bytes, void *ptr, struct err *err)
{
    void *mem = NULL;
    struct backend *be = stage->spec.backend;
    enum status rc = (zeroed ? be->alloc_zeroed : be->alloc)(be, bytes, &mem, err);
    if (rc == OK) {
        memcpy(ptr, &mem, sizeof mem);
        stage->bytes += bytes;
    }
    return rc;
}

enum status stage_grab(struct stage *stage, int64_t bytes, void *ptr, struct err *err)
{
    return grab(stage, false, bytes, ptr, err);
}

void stage_drop(struct stage *stage, void *ptr, int64_t bytes)
{
    void *mem;
    memcpy(&mem, ptr, sizeof mem);
    if (mem) {
        stage->spec.backend->free(stage->spec.backend, mem);
        stage->bytes -= bytes;
        memset(ptr, 0, sizeof mem);
    }
}

/* --- sizes ----------------------------------------------------------------------------------- */

int64_t stage_input_elems(const struct model *model, int item)
{
    if (item <= 0 || item >= model->num_items)
        return 0;
    const enum item_kind below = model->items[item - 1].kind;
    return below == ITEM_POOLER ? model->hidden : (int64_t)model->seq * model->hidden;
}

bool stage_shares_table(const struct model *model)
{
    return model->task == TASK_CAUSAL_LM || model->task == TASK_MLM;
}

int stage_first_active(const struct stage *stage)
{
    int first = stage->spec.num_frozen_items - stage->spec.first_item;
    return first < 0 ? 0 : (first > stage->num_items ? stage->num_items : first);
}

/* --- parameters ------------------------------------------------------------------------------ */

static int num_state_tensors(const struct job *job)
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

/* Whether a block of an item needs memory here: the head's table does only where the embedding is
 * elsewhere (its gradient always does). */
static bool aliases_table(const struct stage *stage, const struct item_spec *spec, int block)
{
    return spec->tied && block == HEAD_TABLE && stage->has_table;
}

/* Point the blocks of every layer into its item's allocations, and the params at them. */
static void wire(struct stage *stage)
{
    int at = 0;
    for (int i = 0; i < stage->num_items; i++) {
        struct layer *l = &stage->layers[i];
        struct item_spec spec;
        arch_item(stage->spec.model, &stage->arch, l->item, &spec);
        int64_t first[MAX_BLOCKS], elems = 0;
        for (int b = 0; b < spec.num_blocks; b++) {
            first[b] = elems;
            elems += pad(spec.block_elems[b]);
            l->w[b] = stage->weights[i] + first[b];
            l->low[b] = backend_at(stage->spec.backend, stage->low[i], first[b]);
            l->g[b] = stage->grads[i] ? stage->grads[i] + first[b] : NULL;
        }
        const bool table_frozen = stage->spec.num_frozen_items > 0;
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
            p->frozen = l->frozen || (copy && table_frozen);
            const int64_t offset = first[ts->block] + ts->offset;
            p->weight = stage->weights[i] + offset;
            if (!p->frozen) {
                /* Behind the exchange the sum lies in the table's accumulator, on both sides. */
                p->grad = copy ? stage->tied_other : stage->grads[i] + offset;
                for (int s = 0; s < stage->num_states; s++)
                    p->state[s] = stage->states[s][i] + offset;
            }
            stage->decay[at] = ts->decay;
            at++;
        }
    }
    stage->num_params = at;
}

/* Whether kernels read a copy of the weights in fewer bits. */
static bool rounds(const struct stage *stage)
{
    return stage->spec.backend->elem_bytes != F32;
}

static void count_elems(struct stage *stage, int i, const struct item_spec *spec)
{
    const bool frozen = spec->tied && stage->spec.num_frozen_items > 0;
    int64_t elems = 0;
    for (int b = 0; b < spec->num_blocks; b++)
        elems += pad(spec->block_elems[b]);
    const int64_t rest = spec->tied ? elems - pad(spec->block_elems[HEAD_TABLE]) : elems;
    stage->block_elems[i] = frozen ? rest : elems;
    stage->weight_elems[i] = aliases_table(stage, spec, HEAD_TABLE) ? rest : elems;
    stage->state_elems[i] = frozen ? rest : stage->weight_elems[i];
}

static enum status make_params(struct stage *stage, struct err *err)
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
        rc = grab(stage, true, kept * F32, &stage->weights[i], err);
        if (rc == OK && rounds(stage))
            rc = grab(stage, true, backend_bytes(be, kept), &stage->low[i], err);
        else
            stage->low[i] = stage->weights[i];
        if (rc != OK || l->frozen)
            continue;
        rc = grab(stage, true, stage->block_elems[i] * F32, &stage->grads[i], err);
        for (int s = 0; s < stage->num_states && rc == OK; s++)
            rc = grab(stage, true, stage->state_elems[i] * F32, &stage->states[s][i], err);
    }
    if (rc != OK)
        return rc;
    const int64_t table = (int64_t)stage->spec.model->vocab * stage->spec.model->hidden;
    if (stage_shares_table(stage->spec.model) && stage->has_table != stage->has_head &&
        stage->spec.num_frozen_items == 0)
        rc = stage_grab(stage, table * F32, &stage->tied_other, err);
    stage->params = calloc((size_t)count + 1, sizeof *stage->params);
    stage->decay = calloc((size_t)count + 1, sizeof *stage->decay);
    stage->sumsq = calloc((size_t)count + 1, sizeof *stage->sumsq);
    if (!stage->params || !stage->decay || !stage->sumsq)
        return err_nomem(err);
    if (rc == OK)
        wire(stage);
    return rc;
}

void stage_round_weights(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    for (int i = 0; rounds(stage) && i < stage->num_items; i++)
        be->round(be, stage->weight_elems[i], stage->weights[i], stage->low[i]);
}

int stage_num_items(const struct stage *stage)
{
    return stage->num_items;
}

float *stage_grad_block(const struct stage *stage, int i, int64_t *num_elems)
{
    *num_elems = stage->grads[i] ? stage->block_elems[i] : 0;
    return stage->grads[i];
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
    wire(stage);
    wire(from);
    return true;
}

int stage_num_params(const struct stage *stage)
{
    return stage->num_params;
}

struct param *stage_params(struct stage *stage)
{
    return stage->params;
}

int64_t stage_bytes(const struct stage *stage)
{
    return stage->bytes;
}

void stage_time_items(struct stage *stage, int64_t *item_ns)
{
    stage->item_ns = item_ns;
    stage->num_marks = 0;
}

/* An event behind what was issued so far; entry: of item_ns, what lies between it and the one
 * before. */
static void set_mark(struct stage *stage, int entry)
{
    struct backend *be = stage->spec.backend;
    if (stage->num_marks == stage->room_marks) {
        const int room = stage->room_marks ? 2 * stage->room_marks : 64;
        struct mark *grown = realloc(stage->marks, (size_t)room * sizeof *grown);
        if (!grown)
            return;
        stage->marks = grown;
        while (stage->room_marks < room &&
               be->event_new(be, &grown[stage->room_marks].at, NULL) == OK)
            stage->room_marks++;
    }
    if (stage->num_marks < stage->room_marks) {
        struct mark *mark = &stage->marks[stage->num_marks++];
        mark->entry = entry;
        be->event_record(be, mark->at);
    }
}

void stage_clock_start(struct stage *stage)
{
    if (stage->item_ns)
        set_mark(stage, -1);
}

void stage_clock_lap(struct stage *stage, int item, enum pass pass)
{
    if (stage->item_ns)
        set_mark(stage, item * PASS_COUNT + (int)pass);
}

void stage_time_read(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    for (int i = 1; i < stage->num_marks; i++)
        if (stage->marks[i].entry >= 0)
            stage->item_ns[stage->marks[i].entry] +=
                be->event_ns(be, stage->marks[i - 1].at, stage->marks[i].at);
    stage->num_marks = 0;
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
            /* The head's copy draws the numbers of item 0, tensor 0. */
            const uint64_t key = p->tied_copy ? rng_key(seed, 0, 0, 0)
                                              : rng_key(seed, (uint64_t)p->item, (uint64_t)t, 0);
#pragma omp parallel for schedule(static) num_threads(be->threads)
            for (int64_t e = 0; e < p->num_elems; e++)
                host[e] = ts->std == 0.0f
                              ? ts->value
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

/* --- stash ----------------------------------------------------------------------------------- */

/* Bytes of item i's stash buffers and output. */
static void stash_of(const struct stage *stage, int i, int64_t *bytes, int64_t *out)
{
    arch_stash(stage->spec.model, &stage->arch, stage->layers[i].item, stage->spec.max_samples,
               stage->spec.backend->elem_bytes, !stage->spec.backend->host_memory, bytes, out);
}

/* Lay one set out over mem; with set NULL only count. */
static int64_t lay_out(struct stage *stage, struct stash_set *set, char *mem)
{
    int64_t at = 0;
    for (int i = 0; i < stage->num_items; i++) {
        int64_t bytes[MAX_STASH], out;
        stash_of(stage, i, bytes, &out);
        const bool last = i + 1 == stage->num_items;
        if (i < stage_first_active(stage)) { /* frozen: nothing kept but the input of what trains */
            memset(bytes, 0, sizeof bytes);
            if (i + 1 < stage_first_active(stage))
                out = 0;
        }
        for (int b = 0; b < MAX_STASH; b++) {
            if (set)
                set->buf[i][b] = mem + at;
            at += pad_bytes(bytes[b]);
        }
        if (set)
            set->y[i] = mem + at;
        at += last ? 0 : pad_bytes(out);
    }
    return at;
}

/* Buffers of a pass without stash: one item at a time, all sharing the same memory. */
static int64_t lay_out_shared(struct stage *stage, struct stash_set *set, char *mem)
{
    int64_t most = 0;
    for (int i = 0; i < stage->num_items; i++) {
        int64_t bytes[MAX_STASH], out, at = 0;
        stash_of(stage, i, bytes, &out);
        for (int b = 0; b < MAX_STASH; b++) {
            if (set)
                set->buf[i][b] = mem + at;
            at += pad_bytes(bytes[b]);
        }
        most = at > most ? at : most;
    }
    return most;
}

static enum status make_set(struct stage *stage, struct stash_set *set, bool shared,
                            struct err *err)
{
    const size_t n = (size_t)stage->num_items;
    if (!set->buf)
        set->buf = calloc(n, sizeof *set->buf);
    if (!set->y)
        set->y = calloc(n, sizeof *set->y);
    if (!set->buf || !set->y)
        return err_nomem(err);
    const int64_t bytes = shared ? lay_out_shared(stage, NULL, NULL) : lay_out(stage, NULL, NULL);
    enum status rc = stage_grab(stage, bytes, &set->mem, err);
    if (rc == OK) {
        if (shared)
            lay_out_shared(stage, set, set->mem);
        else
            lay_out(stage, set, set->mem);
    }
    return rc;
}

static void drop_set(struct stage *stage, struct stash_set *set, bool shared)
{
    const int64_t bytes = shared ? lay_out_shared(stage, NULL, NULL) : lay_out(stage, NULL, NULL);
    stage_drop(stage, &set->mem, bytes);
}

enum status stage_take_set(struct stage *stage, struct stash_set **set, struct err *err)
{
    for (int i = 0; i < stage->num_slots; i++) {
        struct stash_set *s = &stage->sets[i];
        if (s->used)
            continue;
        enum status rc = s->mem ? OK : make_set(stage, s, false, err);
        if (rc == OK) {
            s->used = true;
            *set = s;
        }
        return rc;
    }
    return err_set(err, ERR_INPUT, "stage of items %d..%d: more than %d micro-batches in flight",
                   stage->spec.first_item, stage->spec.end_item - 1, stage->num_slots);
}

static enum status make_upload(struct stage *stage, struct err *err)
{
    struct backend *be = stage->spec.backend;
    struct upload *up = &stage->upload;
    enum status rc = OK;
    if (!stage->spec.uploads || be->host_memory || stage->arch.family != FAMILY_VIT ||
        stage->spec.first_item > 0)
        return OK;
    rc = be->lane_new(be, &up->lane, err);
    if (rc == OK)
        rc = be->event_new(be, &up->freed, err);
    if (rc == OK)
        rc = be->event_new(be, &up->ready, err);
    if (rc == OK)
        rc = stage_grab(stage, stage_block_bytes(stage, NULL, NULL), &up->area, err);
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

static enum status make_buffers(struct stage *stage, struct err *err)
{
    const struct stage_spec *spec = &stage->spec;
    const struct backend *be = spec->backend;
    const int64_t rows = spec->max_samples * stage->arch.seq;
    const int64_t wide = backend_bytes(be, rows * stage->arch.hidden);
    int64_t stash[MAX_STASH], out;
    stash_of(stage, stage->num_items - 1, stash, &out);
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
            rc = stage_grab(stage, pad_bytes(sizeof *slot->sums), &slot->sums, err);
        if (rc == OK && !be->host_memory)
            rc = stage_grab(stage, stage_block_bytes(stage, NULL, NULL), &slot->inputs, err);
    }
    if (rc == OK)
        rc = make_upload(stage, err);
    for (int i = 0; i < 2 && rc == OK; i++) {
        rc = stage_grab(stage, wide, &stage->scratch[i], err);
        if (rc == OK)
            rc = stage_grab(stage, wide, &stage->ping[i], err);
    }
    if (rc == OK)
        rc = stage_grab(stage, wide, &stage->flow, err);
    if (rc == OK && spec->first_item == 0 && stage->arch.family == FAMILY_VIT)
        rc = stage_grab(stage,
                        backend_bytes(be, rows * spec->model->channels * spec->model->patch *
                                              spec->model->patch),
                        &stage->cols, err);
    if (rc == OK)
        rc = make_set(stage, &stage->sets[stage->num_slots], true, err);
    for (int i = 0; i < (spec->recompute ? 1 : stage->num_slots) && rc == OK; i++)
        if (stage_first_active(stage) < stage->num_items)
            rc = make_set(stage, &stage->sets[i], false, err);
    return rc;
}

/* --- life ------------------------------------------------------------------------------------ */

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
    /* The widest tensor of a micro-batch, in bytes, must be countable and its rows an int of BLAS.
     */
    const int64_t most = INT32_MAX;
    int64_t wide = m->mlp > 3 * m->hidden ? m->mlp : 3 * (int64_t)m->hidden;
    if (m->vocab > wide)
        wide = m->vocab;
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
    stage->num_states = num_state_tensors(spec->job);
    stage->has_table = stage_shares_table(spec->model) && spec->first_item == 0;
    stage->has_head = spec->end_item == spec->model->num_items;
    stage->layers = calloc(n, sizeof *stage->layers);
    stage->weights = calloc(n, sizeof *stage->weights);
    stage->low = calloc(n, sizeof *stage->low);
    stage->grads = calloc(n, sizeof *stage->grads);
    stage->states[0] = calloc(n, sizeof *stage->states[0]);
    stage->states[1] = calloc(n, sizeof *stage->states[1]);
    stage->block_elems = calloc(n, sizeof *stage->block_elems);
    stage->weight_elems = calloc(n, sizeof *stage->weight_elems);
    stage->state_elems = calloc(n, sizeof *stage->state_elems);
    stage->slots = calloc((size_t)stage->num_slots, sizeof *stage->slots);
    stage->sets = calloc((size_t)stage->num_slots + 1, sizeof *stage->sets);
    if (!stage->layers || !stage->weights || !stage->low || !stage->grads || !stage->states[0] ||
        !stage->states[1] || !stage->block_elems || !stage->weight_elems || !stage->state_elems ||
        !stage->slots || !stage->sets) {
        rc = err_nomem(err);
        goto out;
    }
    for (int i = 0; i < items; i++)
        stage->layers[i] = (struct layer){.item = spec->first_item + i,
                                          .kind = spec->model->items[spec->first_item + i].kind,
                                          .frozen = spec->first_item + i < spec->num_frozen_items};
    rc = make_params(stage, err);
    if (rc == OK)
        rc = make_buffers(stage, err);
    if (rc == OK)
        rc = stage_skips_open(stage, err);
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
    for (int i = 0; i < stage->num_items; i++) {
        if (stage->low && rounds(stage))
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
        free(stage->states[i]);
    }
    be->free(be, stage->flow);
    be->free(be, stage->cols);
    be->free(be, stage->tied_other);
    free(stage->layers);
    free(stage->weights);
    free(stage->low);
    free(stage->grads);
    free(stage->block_elems);
    free(stage->weight_elems);
    free(stage->state_elems);
    free(stage->slots);
    free(stage->sets);
    for (int i = 0; i < stage->room_marks; i++)
        be->event_free(be, stage->marks[i].at);
    free(stage->marks);
    free(stage->params);
    free(stage->decay);
    free(stage->sumsq);
    free(stage);
}

/* --- freezing -------------------------------------------------------------------------------- */

/* The head without the gradients and state of a table that has frozen. */
static enum status freeze_table(struct stage *stage, struct err *err)
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
    enum status rc = grab(stage, true, stage->block_elems[i] * F32, &stage->grads[i], err);
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

enum status stage_freeze(struct stage *stage, int num_frozen_items, struct err *err)
{
    if (num_frozen_items < stage->spec.num_frozen_items)
        return err_set(err, ERR_INPUT, "stage: cannot thaw from %d to %d frozen items",
                       stage->spec.num_frozen_items, num_frozen_items);
    for (int i = 0; i < stage->num_slots; i++)
        if (stage->slots[i].state != SLOT_FREE)
            return err_set(err, ERR_INPUT, "stage: cannot freeze with slot %d in flight", i);
    for (int i = 0; i < stage->num_slots; i++)
        drop_set(stage, &stage->sets[i], false); /* laid out anew, smaller, at the next use */
    if (num_frozen_items > 0)
        stage_drop(stage, &stage->tied_other,
                   (int64_t)stage->spec.model->vocab * stage->arch.hidden * F32);
    stage->spec.num_frozen_items = num_frozen_items;
    for (int i = 0; i < stage_first_active(stage); i++) {
        stage->layers[i].frozen = true;
        stage_drop(stage, &stage->grads[i], stage->block_elems[i] * F32);
        for (int s = 0; s < stage->num_states; s++)
            stage_drop(stage, &stage->states[s][i], stage->state_elems[i] * F32);
    }
    if (stage->has_head && num_frozen_items > 0) {
        const enum status rc = freeze_table(stage, err);
        if (rc != OK)
            return rc;
    }
    wire(stage);
    stage_skips_close(stage);
    return stage_skips_open(stage, err);
}
