/* The rows of a layout, its checks and its words. */
#include "partition/layout/layout.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

const char *const shard_mode_names[] = {"none", "optimizer", "gradients", "weights", NULL};
static const char *const zero_stages[] = {NULL, "ZeRO-1", "ZeRO-2", "ZeRO-3"};

#define DIM(dim_, key_, type_, member, ...)                                                        \
    [LAYOUT_##dim_] = {.key = (key_),                                                              \
                       .type = LAYOUT_##type_,                                                     \
                       .offset = offsetof(struct layout, member),                                  \
                       __VA_ARGS__}
const struct layout_member layout_members[LAYOUT_DIM_COUNT] = {
    DIM(TENSOR, "tensor", COUNT, tensor, .least = 1, .word = "TP", .place = LAYOUT_ALWAYS,
        .core = true, .opens = true),
    DIM(SEQUENCE, "sequence_parallel", FLAG, sequence_parallel, .word = "SP",
        .place = LAYOUT_BRACKETS, .core = true, .opens = true),
    DIM(EXPERT, "expert", COUNT, expert, .least = 1, .word = "EP", .place = LAYOUT_LIST,
        .core = true, .opens = true),
    DIM(EXPERT_TENSOR, "expert_tensor", COUNT, expert_tensor, .word = "ETP", .place = LAYOUT_LIST),
    DIM(CONTEXT, "context", COUNT, context, .least = 1, .word = "CP", .place = LAYOUT_PRODUCT,
        .opens = true),
    DIM(CONTEXT_KIND, "context_comm", NAME, context_kind, .names = context_kind_names,
        .words = context_kind_names, .place = LAYOUT_BRACKETS),
    DIM(SHARD, "shard", NAME, shard, .names = shard_mode_names, .words = zero_stages,
        .place = LAYOUT_LIST, .core = true, .opens = true),
    DIM(SHARD_GROUP, "shard_group", COUNT, shard_group, .word = "HSDP", .place = LAYOUT_BRACKETS),
    DIM(OFFLOAD, "offload", FLAG, offload, .word = "optimizer offload", .place = LAYOUT_LIST),
};

int layout_get(const struct layout *layout, enum layout_dim dim)
{
    const struct layout_member *row = &layout_members[dim];
    const char *at = (const char *)layout + row->offset;
    if (dim == LAYOUT_EXPERT_TENSOR)
        return layout_expert_tensor(layout);
    const int value = row->type == LAYOUT_FLAG ? *(const bool *)at : *(const int *)at;
    return value > row->least ? value : row->least;
}

void layout_set(struct layout *layout, enum layout_dim dim, int value)
{
    char *at = (char *)layout + layout_members[dim].offset;
    if (layout_members[dim].type == LAYOUT_FLAG)
        *(bool *)at = value;
    else
        *(int *)at = value;
}

bool layout_uses(const struct layout *layout, enum layout_dim dim)
{
    if (dim == LAYOUT_SEQUENCE && layout_tensor(layout) == 1)
        return false;
    if (dim == LAYOUT_EXPERT_TENSOR)
        return layout_expert_tensor(layout) != layout_tensor(layout);
    if (dim == LAYOUT_CONTEXT_KIND)
        return layout_context(layout) > 1;
    return layout_get(layout, dim) > layout_members[dim].least;
}

struct layout_ask layout_ask_whole(void)
{
    struct layout_ask ask = {0};
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++)
        layout_set(&ask.at, (enum layout_dim)d, layout_members[d].least);
    return ask;
}

bool layout_ask_opens(const struct layout_ask *ask, enum layout_dim dim)
{
    const struct layout_member *row = &layout_members[dim];
    return ask->open[dim] || (row->type == LAYOUT_COUNT && row->least == 1 &&
                              *(const int *)((const char *)&ask->at + row->offset) == 0);
}

bool layout_equal(const struct layout *a, const struct layout *b)
{
    bool equal = true;
    for (int d = 0; d < LAYOUT_DIM_COUNT && equal; d++) {
        const bool uses = layout_uses(a, (enum layout_dim)d);
        equal = uses == layout_uses(b, (enum layout_dim)d) &&
                (!uses || layout_get(a, (enum layout_dim)d) == layout_get(b, (enum layout_dim)d));
    }
    return equal;
}

/* A text that grows until it is full. */
struct line {
    char *text;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(line->text + line->length, line->size - line->length, format, args);
    va_end(args);
    const size_t room = line->size - line->length - 1;
    line->length += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

static void append_value(struct line *line, const struct layout *layout, enum layout_dim dim)
{
    const struct layout_member *row = &layout_members[dim];
    const int value = layout_get(layout, dim);
    if (row->type == LAYOUT_COUNT)
        append(line, "%s %d", row->word, value);
    else
        append(line, "%s", row->type == LAYOUT_FLAG ? row->word : row->words[value]);
}

/* Append the dimensions of the product, or of the list, each with what stands in brackets after it. */
static void append_dims(struct line *line, const struct layout *layout, bool product)
{
    bool shown = false;
    for (int d = 0; d < LAYOUT_DIM_COUNT; d++) {
        const struct layout_member *row = &layout_members[d];
        const bool uses = layout_uses(layout, (enum layout_dim)d);
        if (row->place == LAYOUT_BRACKETS && shown && uses) {
            append(line, " (");
            append_value(line, layout, (enum layout_dim)d);
            append(line, ")");
        }
        if (row->place == LAYOUT_BRACKETS)
            continue;
        shown = product == (row->place != LAYOUT_LIST) && (uses || row->place == LAYOUT_ALWAYS);
        if (!shown)
            continue;
        if (line->length > 0)
            append(line, product ? " x " : ", ");
        append_value(line, layout, (enum layout_dim)d);
    }
}

const char *layout_text(const struct layout *layout, int ranks, int replicas, int chunks,
                        char *text, size_t size)
{
    struct line line = {.text = text, .size = size};
    text[0] = 0;
    if (ranks > 0)
        append(&line, "PP %d x DP %d", ranks, replicas);
    append_dims(&line, layout, true);
    if (chunks > 1)
        append(&line, ", VP %d", chunks);
    append_dims(&line, layout, false);
    return text;
}

enum status shard_group_check(int group, enum shard_mode shard, int replicas, int expert,
                              struct err *err)
{
    if (group == 0)
        return OK;
    if (shard < SHARD_GRADIENTS)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.shard_group %d needs pipeline.shard gradients or weights, got %s",
                       group, shard_mode_name(shard));
    if (expert > 1)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.shard_group %d cannot be combined with pipeline.expert %d", group,
                       expert);
    if (group < 2 || replicas % group != 0 || replicas == group)
        return err_set(err, ERR_INFEASIBLE,
                       "pipeline.shard_group %d leaves no whole copies of %d replicas", group,
                       replicas);
    return OK;
}

const char *shard_mode_name(enum shard_mode mode)
{
    return shard_mode_names[mode];
}
