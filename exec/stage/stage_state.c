/* exec/stage/stage_state.c - what every file of a stage uses: its memory account, sizes, the timing
 * of items, the layout of a block's copy. */
#include "exec/stage/stage_state.h"

#include <stdlib.h>
#include <string.h>

static enum status allocate_bytes(struct stage *stage, bool zeroed, int64_t bytes, void *ptr,
                                  struct err *err)
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
    return allocate_bytes(stage, false, bytes, ptr, err);
}

enum status stage_grab_zeroed(struct stage *stage, int64_t bytes, void *ptr, struct err *err)
{
    return allocate_bytes(stage, true, bytes, ptr, err);
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

int64_t stage_input_elems(const struct model *model, int item)
{
    if (item <= 0 || item >= model->num_items)
        return 0;
    const enum item_kind below = model->items[item - 1].kind;
    return below == ITEM_POOLER ? model->hidden : (int64_t)model->seq * model->hidden;
}

bool stage_shares_table(const struct model *model)
{
    return model->tied_head && (model->task == TASK_MLM || model->task == TASK_CAUSAL_LM);
}

int stage_first_active(const struct stage *stage)
{
    int first = stage->spec.num_frozen_items - stage->spec.first_item;
    return first < 0 ? 0 : (first > stage->num_items ? stage->num_items : first);
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

/* Record an event after everything issued so far. entry: index into item_ns for the time since the
 * previous event. */
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

int64_t stage_block_bytes(const struct stage *stage, int64_t sample_bytes[BLOCK_FIELDS],
                          int64_t first[BLOCK_FIELDS])
{
    int64_t each[BLOCK_FIELDS], all = 0;
    model_block_fields(stage->spec.model, stage->spec.first_item == 0, stage->has_head, each);
    for (int i = 0; i < BLOCK_FIELDS; i++) {
        if (sample_bytes)
            sample_bytes[i] = each[i];
        if (first)
            first[i] = all;
        all += model_block_pad(each[i] * stage->spec.max_samples);
    }
    return all;
}
