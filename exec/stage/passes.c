/* exec/stage/passes.c - forward and backward of one micro-batch.
 *
 * A pass first makes the block's fields available in backend memory (take_block()), then runs the
 * items in order (forward_items(), backward_items()). Read stage_forward() first, then
 * stage_backward(). */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "exec/base/bf16.h"
#include "exec/stage/layers.h"
#include "exec/stage/skips.h"
#include "exec/stage/stash.h"

static enum status check_range(const int32_t *v, int64_t num, int64_t per_sample, int64_t end,
                               bool may_skip, const char *what, struct err *err)
{
    for (int64_t i = 0; i < num; i++)
        if ((v[i] < 0 || v[i] >= end) && !(may_skip && v[i] == -100))
            return err_set(err, ERR_INPUT,
                           "%s %d of sample %lld in the micro-batch is not in 0..%lld", what, v[i],
                           (long long)(i / per_sample), (long long)end - 1);
    return OK;
}

static enum status check_block(const struct stage *stage, const struct sample_block *b,
                               struct err *err)
{
    const struct arch *a = &stage->arch;
    const int64_t n = b->num_samples;
    enum status rc = OK;
    if (n < 1 || n > stage->spec.max_samples)
        return err_set(err, ERR_INPUT, "stage: micro-batch of %lld samples, limit %lld",
                       (long long)n, (long long)stage->spec.max_samples);
    if (stage->spec.first_item == 0) {
        if (a->family == FAMILY_VIT ? !b->images : !b->tokens)
            return err_set(err, ERR_INPUT, "stage: the data has no %s for model '%s'",
                           a->family == FAMILY_VIT ? "images" : "tokens", stage->spec.model->name);
        if (a->family != FAMILY_VIT)
            rc = check_range(b->tokens, n * a->seq, a->seq, stage->spec.model->vocab, false,
                             "token", err);
        if (rc == OK && a->family == FAMILY_BERT && b->token_types)
            rc = check_range(b->token_types, n * a->seq, a->seq, 2, false, "token type", err);
    }
    if (rc == OK && stage->has_head) {
        const bool span = a->task == TASK_QA, class = a->task == TASK_CLASSIFY;
        const int64_t each = class ? 1 : span ? 2 : a->seq;
        if (!b->labels)
            return err_set(err, ERR_INPUT, "stage: the data has no labels for model '%s'",
                           stage->spec.model->name);
        rc = check_range(b->labels, n * each, each, span ? a->seq : a->outputs, true, "label", err);
    }
    return rc;
}

/* Most tokens of a sample that a masked language model predicts; 0 for others. */
static int64_t rows_each(const struct stage *stage)
{
    return stage->has_head && stage->arch.task == TASK_MLM ? model_masked_of(stage->arch.seq) : 0;
}

/* List the rows that have a label, in host memory. */
static enum status pick_rows(struct stage *stage, struct slot *slot, const struct sample_block *b,
                             struct err *err)
{
    const int64_t rows = b->num_samples * stage->arch.seq, most = b->num_samples * rows_each(stage);
    const int64_t room = stage->spec.max_samples * rows_each(stage);
    int64_t num = 0;
    if (room == 0)
        return OK;
    if (!slot->rows)
        slot->rows = malloc(2 * (size_t)room * sizeof *slot->rows);
    if (!slot->rows)
        return err_nomem(err);
    for (int64_t i = 0; i < rows; i++)
        if (b->labels[i] >= 0 && num++ < most) {
            slot->rows[num - 1] = (int32_t)i;
            slot->rows[room + num - 1] = b->labels[i];
        }
    if (num > most)
        return err_set(err, ERR_INPUT,
                       "stage: %lld tokens of a micro-batch are to be predicted, at most %lld (15 "
                       "%%) can be",
                       (long long)num, (long long)most);
    slot->batch.num_rows = num;
    slot->batch.rows = slot->rows;
    slot->batch.row_labels = slot->rows + room;
    return OK;
}

/* Point refs to the fields of the block's copy on the device. With copy, also copy the fields
 * there: on the lane, or with lane NULL in the order of the main lane. */
static void refer(struct stage *stage, char *area, bool copy, struct backend_lane *lane,
                  struct batch_refs *refs)
{
    struct backend *be = stage->spec.backend;
    const void **fields[BLOCK_FIELDS] = {
        (const void **)&refs->ids,   (const void **)&refs->images,    (const void **)&refs->tokens,
        (const void **)&refs->types, (const void **)&refs->lengths,   (const void **)&refs->labels,
        (const void **)&refs->rows,  (const void **)&refs->row_labels};
    int64_t bytes[BLOCK_FIELDS], first[BLOCK_FIELDS];
    stage_block_bytes(stage, bytes, first);
    for (int i = 0; i < BLOCK_FIELDS; i++) {
        if (bytes[i] == 0)
            *fields[i] = NULL;
        if (!*fields[i])
            continue;
        if (copy && lane)
            be->lane_copy_in(be, lane, area + first[i], *fields[i], bytes[i] * refs->num_samples);
        else if (copy)
            be->copy_in(be, area + first[i], *fields[i], bytes[i] * refs->num_samples);
        *fields[i] = area + first[i];
    }
}

static struct batch_refs refs_of(const struct sample_block *b)
{
    return (struct batch_refs){.num_samples = b->num_samples,
                               .ids = b->ids,
                               .images = b->images,
                               .tokens = b->tokens,
                               .types = b->token_types,
                               .documents = b->documents,
                               .lengths = b->lengths,
                               .labels = b->labels};
}

bool stage_uploads(const struct stage *stage)
{
    return stage->upload.area != NULL;
}

bool stage_upload(struct stage *stage, const struct sample_block *block)
{
    struct backend *be = stage->spec.backend;
    struct upload *up = &stage->upload;
    if (!up->area || !block->serial || up->serial == block->serial)
        return false;
    struct batch_refs refs = refs_of(block);
    be->lane_wait(be, up->lane, up->freed);
    refer(stage, up->area, true, up->lane, &refs);
    be->lane_record(be, up->lane, up->ready);
    up->serial = block->serial;
    return true;
}

void stage_upload_end(struct stage *stage)
{
    struct backend *be = stage->spec.backend;
    if (stage->upload.serial)
        be->lane_wait(be, NULL, stage->upload.ready);
}

/* Exchange the slot's memory for the uploaded copy. The slot's old memory may be overwritten after
 * everything issued so far. */
static void exchange(struct stage *stage, struct slot *slot)
{
    struct backend *be = stage->spec.backend;
    struct upload *up = &stage->upload;
    void *old = slot->inputs;
    be->lane_wait(be, NULL, up->ready);
    be->event_record(be, up->freed);
    slot->inputs = up->area;
    up->area = old;
    up->serial = 0;
}

/* Make the block's fields available in backend memory: the fields themselves, or a copy in the
 * slot, which may exist already. */
static enum status take_block(struct stage *stage, struct slot *slot, const struct sample_block *b,
                              struct err *err)
{
    slot->batch = refs_of(b);
    enum status rc = pick_rows(stage, slot, b, err);
    if (rc != OK || stage->spec.backend->host_memory)
        return rc;
    bool there = b->serial && slot->serial == b->serial; /* under recompute */
    if (!there && b->serial && stage->upload.serial == b->serial) {
        exchange(stage, slot);
        there = true;
    }
    refer(stage, slot->inputs, !there, NULL, &slot->batch);
    slot->serial = b->serial;
    return OK;
}

static struct layer_pass pass_of(struct stage *stage, const struct slot *slot, uint64_t step)
{
    return (struct layer_pass){
        .be = stage->spec.backend,
        .model = stage->spec.model,
        .arch = &stage->arch,
        .batch = &slot->batch,
        .seed = stage->spec.job->train.seed,
        .step = step,
        .smoothing = (float)stage->spec.job->train.label_smoothing,
        .scratch = {stage->scratch[0], stage->scratch[1]},
        .cols = stage->cols,
        .angles = stage->angles,
        .wide = stage->wide,
        .sums = slot->sums
    };
}

/* Dropout is off in evaluation and in frozen layers. */
static float dropout_of(const struct stage *stage, const struct layer *l, uint64_t step)
{
    return l->frozen || step == STEP_EVAL ? 0.0f : (float)stage->spec.job->train.dropout;
}

/* For stage_watch(): check item i's output of n samples. */
static enum status watch_output(struct stage *stage, int i, int64_t n, const void *y,
                                struct err *err)
{
    struct backend *be = stage->spec.backend;
    const int item = stage->layers[i].item;
    const int64_t elems = n * stage_input_elems(stage->spec.model, item + 1);
    if (elems == 0 || item >= *stage->first_bad)
        return OK;
    void *host = malloc((size_t)backend_bytes(be, elems));
    if (!host)
        return err_nomem(err);
    be->copy_out(be, host, y, backend_bytes(be, elems));
    enum status rc = be->sync(be, err);
    for (int64_t e = 0; rc == OK && e < elems && item < *stage->first_bad; e++)
        if (!isfinite(be->elem_bytes == 2 ? bf16_to(((const uint16_t *)host)[e])
                                          : ((const float *)host)[e]))
            *stage->first_bad = item;
    free(host);
    return rc;
}

/* Run the items of a forward; in: as for stage_forward(). */
static enum status forward_items(struct stage *stage, struct slot *slot, uint64_t step,
                                 void *const *in, struct err *err)
{
    const int64_t n = slot->batch.num_samples;
    const int active = slot->set ? stage_first_active(stage) : stage->num_items;
    const struct stash_set *shared = &stage->sets[stage->num_slots];
    struct layer_pass pass = pass_of(stage, slot, step);
    enum status rc = OK;
    pass.x = slot->in;
    stage_clock_start(stage);
    for (int i = tap_begin(stage, n, &pass.x); i < stage->num_items && rc == OK; i++) {
        const struct layer *l = &stage->layers[i];
        tap_keep(stage, i, n, pass.x);
        pass.stash = i >= active ? slot->set->buf[i] : shared->buf[i];
        pass.dropout = dropout_of(stage, l, step);
        if (i + 1 == stage->num_items)
            pass.y = slot->out;
        else
            pass.y = slot->set && i + 1 >= active ? slot->set->y[i] : stage->ping[i % 2];
        pass.skip = stage_skip_in(stage, in, i, n);
        layer_forward(l, &pass);
        stage_skip_leave(stage, slot, i, n, pass.y);
        stage_clock_lap(stage, i, i >= active ? PASS_FWD : PASS_FWD_NOGRAD);
        if (stage->first_bad)
            rc = watch_output(stage, i, n, pass.y, err);
        pass.x = pass.y;
    }
    return rc;
}

enum status stage_forward(struct stage *stage, const struct stage_batch *batch, void *const *in,
                          void **out, bool keep_stash, struct err *err)
{
    assert(batch->slot >= 0 && batch->slot < stage->num_slots);
    struct slot *slot = &stage->slots[batch->slot];
    const bool keep = keep_stash && stage_first_active(stage) < stage->num_items;
    enum status rc = check_block(stage, batch->block, err);
    THEN(take_block(stage, slot, batch->block, err));
    if (rc == OK && slot->state != SLOT_FREE)
        rc = err_set(err, ERR_INPUT, "stage: slot %d still waits for its backward", batch->slot);
    struct stash_set *set = NULL;
    if (rc == OK && keep)
        rc = stash_take(stage, &set, err);
    if (rc != OK)
        return rc;
    slot->in = in ? in[0] : NULL;
    slot->set = set;
    slot->state = keep ? SLOT_FORWARD : SLOT_FREE;
    rc = forward_items(stage, slot, batch->step, in, err);
    if (rc != OK)
        return rc;
    if (out)
        out[0] = slot->out;
    for (int e = 1; out && e <= stage->num_out; e++)
        out[e] = slot->skip_out[e];
    return OK;
}

bool stage_loss_out(struct stage *stage, int slot, struct loss_sums *host)
{
    struct backend *be = stage->spec.backend;
    _Static_assert(sizeof *host == sizeof(struct xent_sums) &&
                       offsetof(struct loss_sums, loss) == offsetof(struct xent_sums, loss) &&
                       offsetof(struct loss_sums, count) == offsetof(struct xent_sums, count) &&
                       offsetof(struct loss_sums, correct) == offsetof(struct xent_sums, correct),
                   "loss_sums and xent_sums have one layout");
    if (stage->has_head)
        be->copy_out(be, host, stage->slots[slot].sums, (int64_t)sizeof *host);
    return stage->has_head;
}

enum status stage_loss(struct stage *stage, int slot, struct loss_sums *loss, struct err *err)
{
    struct backend *be = stage->spec.backend;
    return stage_loss_out(stage, slot, loss) ? be->sync(be, err) : OK;
}

enum status stage_forward_tail(struct stage *stage, const struct sample_block *block, int first,
                               void *in, void **out, struct err *err)
{
    assert(first > 0 && first < stage->num_items && stage_first_active(stage) == stage->num_items);
    struct slot *slot = &stage->slots[0];
    struct stash_set *shared = &stage->sets[stage->num_slots];
    enum status rc = check_block(stage, block, err);
    THEN(take_block(stage, slot, block, err));
    if (rc != OK)
        return rc;
    slot->in = in;
    slot->set = NULL;
    slot->state = SLOT_FREE;
    struct layer_pass pass = pass_of(stage, slot, STEP_EVAL);
    pass.x = in;
    for (int i = first; i < stage->num_items; i++) {
        const struct layer *l = &stage->layers[i];
        pass.stash = shared->buf[i];
        pass.dropout = dropout_of(stage, l, STEP_EVAL);
        pass.y = i + 1 == stage->num_items ? slot->out : stage->ping[i % 2];
        layer_forward(l, &pass);
        pass.x = pass.y;
    }
    *out = slot->out;
    return OK;
}

/* Item i's input as the forward saw it. */
static void *input_of(const struct slot *slot, int i)
{
    return i == 0 ? slot->in : slot->set->y[i - 1];
}

/* The target of the gradient of item i's input: out of the stage, over the input itself, or into
 * the stage's gradient buffer. NULL if no trainable item lies below. */
static void *gradient_of(struct stage *stage, struct slot *slot, int i)
{
    if (i <= stage_first_active(stage) &&
        stage->spec.first_item + i <= stage->spec.num_frozen_items)
        return NULL;
    if (i == 0)
        return stage->spec.first_item == 0 ? NULL : slot->grad_in;
    return layer_in_place(&stage->layers[i], &stage->arch) ? slot->set->y[i - 1] : stage->flow;
}

/* On a device, attention's kernels need an extra pass if dqkv overwrites qkv. If the weights' half
 * follows at once, dqkv goes to the memory of passes without stash instead, which is unused during
 * a backward. */
static void *aside_of(const struct stage *stage, int i, enum backward what)
{
    const struct stash_set *shared = &stage->sets[stage->num_slots];
    return what == BACKWARD_BOTH && stage->layers[i].kind == ITEM_ATTENTION &&
                   !stage->spec.backend->host_memory
               ? shared->buf[i][AT_QKV]
               : NULL;
}

static bool leaves_out(const struct stage_batch *batch, int i)
{
    return batch->left_out && batch->left_out[i];
}

/* The weights' halves of a pass have been issued. */
static void note_written(struct stage *stage, const struct stage_batch *batch)
{
    for (int i = stage_first_active(stage); i < stage->num_items; i++)
        if (!leaves_out(batch, i))
            stage->fresh[i] = false;
}

/* The weights' half of item i, or nothing if it is left out. */
static enum status backward_weight(struct stage *stage, const struct stage_batch *batch, int i,
                                   struct layer_pass *pass, struct err *err)
{
    const struct layer *l = &stage->layers[i];
    if (!leaves_out(batch, i)) {
        pass->fresh = stage->fresh[i];
        layer_backward_weight(l, pass, stage->slots[batch->slot].dy[i]);
    } else if (batch->completes) {
        stage_skip_item(stage, i);
    }
    stage_clock_lap(stage, i, PASS_BWD_WEIGHT);
    return stage->on_grad ? stage->on_grad(stage->on_grad_ctx, i, err) : OK;
}

/* Run the items of a backward. */
static enum status backward_items(struct stage *stage, const struct stage_batch *batch,
                                  enum backward what, void *const *grad_out, struct err *err)
{
    struct slot *slot = &stage->slots[batch->slot];
    const int64_t n = slot->batch.num_samples;
    const int active = stage_first_active(stage);
    struct layer_pass pass = pass_of(stage, slot, batch->step);
    pass.grad_scale = batch->grad_scale;
    void *dy = slot->grad_out;
    enum status rc = OK;
    stage_clock_start(stage);
    for (int i = stage->num_items - 1; i >= active && rc == OK; i--) {
        const struct layer *l = &stage->layers[i];
        pass.stash = slot->set->buf[i];
        pass.aside = aside_of(stage, i, what);
        pass.dropout = dropout_of(stage, l, batch->step);
        pass.x = input_of(slot, i);
        pass.y = i + 1 == stage->num_items ? slot->out : slot->set->y[i];
        if (what != BACKWARD_WEIGHT) {
            void *dx = gradient_of(stage, slot, i);
            slot->dy[i] = dy;
            stage_skip_grad_out(stage, grad_out, i, n, dy);
            pass.skip_dx = stage_skip_grad_in(stage, slot, i, n);
            layer_backward_input(l, &pass, dy, dx);
            stage_clock_lap(stage, i, dx || l->item == 0 ? PASS_BWD_INPUT : PASS_BWD_REST);
            dy = dx;
        }
        if (what != BACKWARD_INPUT)
            rc = backward_weight(stage, batch, i, &pass, err);
    }
    return rc;
}

enum status stage_backward(struct stage *stage, const struct stage_batch *batch, enum backward what,
                           void *const *grad_out, void **grad_in, struct err *err)
{
    assert(batch->slot >= 0 && batch->slot < stage->num_slots);
    struct backend *be = stage->spec.backend;
    struct slot *slot = &stage->slots[batch->slot];
    const enum slot_state need = what == BACKWARD_WEIGHT ? SLOT_INPUT_DONE : SLOT_FORWARD;
    if (what == BACKWARD_WEIGHT && slot->state == SLOT_FORWARD)
        what = BACKWARD_BOTH;
    else if (slot->state != need)
        return err_set(err, ERR_INPUT, "stage: backward of slot %d without its forward",
                       batch->slot);
    /* On a device the slot still holds the forward's copy. */
    enum status rc = be->host_memory ? take_block(stage, slot, batch->block, err) : OK;
    if (rc != OK)
        return rc;
    if (what != BACKWARD_WEIGHT)
        slot->grad_out = grad_out ? grad_out[0] : NULL;
    rc = backward_items(stage, batch, what, grad_out, err);
    if (what != BACKWARD_INPUT)
        note_written(stage, batch);
    if (grad_in)
        grad_in[0] =
            stage_first_active(stage) == 0 && gradient_of(stage, slot, 0) ? slot->grad_in : NULL;
    for (int e = 1; grad_in && e <= stage->num_in; e++)
        grad_in[e] = slot->skip_grad[e];
    if (what == BACKWARD_INPUT) {
        slot->state = SLOT_INPUT_DONE;
    } else {
        slot->state = SLOT_FREE;
        slot->set->used = false;
        slot->set = NULL;
    }
    return rc;
}

void stage_on_grad(struct stage *stage, stage_grad_hook hook, void *ctx)
{
    stage->on_grad = hook;
    stage->on_grad_ctx = ctx;
}

void stage_watch(struct stage *stage, int *first_bad)
{
    stage->first_bad = first_bad;
}
