/* Models given as chains of items: checks, and a sorted copy. */
#include "partition/model/model_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"

#define ITEMS_MAX (1 << 20)

static enum status check_item(const char *name, const struct item *item, int index, struct err *err)
{
    const struct {
        const char *what;
        int64_t value;
    } sizes[] = {
        {"params",        item->params       },
        {"tied_params",   item->tied_params  },
        {"fwd_flops",     item->fwd_flops    },
        {"act_bytes",     item->act_bytes    },
        {"stash_bytes",   item->stash_bytes  },
        {"work_bytes",    item->work_bytes   },
        {"bytes",         item->moved_bytes  },
        {"fwd_ns",        item->fwd_ns       },
        {"bwd_input_ns",  item->bwd_input_ns },
        {"bwd_weight_ns", item->bwd_weight_ns},
        {"bwd_rest_ns",   item->bwd_rest_ns  },
        {"fwd_stash_ns",  item->fwd_stash_ns },
        {"update_ns",     item->update_ns    }
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i].value < 0)
            return err_set(err, ERR_INPUT, "model '%s': item %d: %s must not be negative, got %lld",
                           name, index, sizes[i].what, (long long)sizes[i].value);
    const struct {
        const char *what, *whole;
        int64_t value, most;
    } parts[] = {
        {"bwd_rest_ns",  "bwd_input_ns", item->bwd_rest_ns,  item->bwd_input_ns},
        {"fwd_stash_ns", "fwd_ns",       item->fwd_stash_ns, item->fwd_ns      }
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].value > parts[i].most)
            return err_set(err, ERR_INPUT,
                           "model '%s': item %d: %s must be at most %s, %lld, got %lld", name,
                           index, parts[i].what, parts[i].whole, (long long)parts[i].most,
                           (long long)parts[i].value);
    if ((unsigned)item->kind >= ITEM_KIND_COUNT)
        return err_set(err, ERR_INPUT, "model '%s': item %d: unknown kind %d", name, index,
                       (int)item->kind);
    return OK;
}

static int compare_skips(const void *a, const void *b)
{
    const struct skip_edge *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static enum status check_skips(const char *name, const struct skip_edge *skips, int num_skips,
                               int num_items, struct err *err)
{
    if (num_skips < 0 || num_skips > ITEMS_MAX)
        return err_set(err, ERR_INPUT, "model '%s': skips must be 0..%d, got %d", name, ITEMS_MAX,
                       num_skips);
    for (int i = 0; i < num_skips; i++) {
        const struct skip_edge *skip = &skips[i];
        if (skip->from < 0 || skip->to >= num_items || skip->from >= skip->to)
            return err_set(err, ERR_INPUT,
                           "model '%s': skip edge %d -> %d must go forward inside items 0..%d "
                           "(from, to of skips)",
                           name, skip->from, skip->to, num_items - 1);
        if (skip->bytes < 0)
            return err_set(err, ERR_INPUT,
                           "model '%s': skip edge %d -> %d: bytes must not be negative, got %lld",
                           name, skip->from, skip->to, (long long)skip->bytes);
    }
    return OK;
}

enum status model_explicit(const char *name, const struct item *items, int num_items,
                           const struct skip_edge *skips, int num_skips, bool per_microbatch,
                           struct model *model, struct err *err)
{
    struct model got = {.family = FAMILY_EXPLICIT,
                        .per_microbatch = per_microbatch,
                        .elem_bytes = 4,
                        .param_bytes = 4,
                        .tensor = 1,
                        .expert_ways = 1};
    enum status rc = OK;
    int last_layer = -1;
    snprintf(got.name, sizeof got.name, "%s", name);
    if (num_items < 1 || num_items > ITEMS_MAX)
        return err_set(err, ERR_INPUT, "model '%s': items must be 1..%d, got %d", name, ITEMS_MAX,
                       num_items);
    for (int i = 0; i < num_items; i++) {
        if ((rc = check_item(name, &items[i], i, err)) != OK)
            return rc;
        if (items[i].layer < last_layer || items[i].layer > MODEL_LAYERS_MAX)
            return err_set(err, ERR_INPUT,
                           "model '%s': item %d: layer must be %d..%d (ascending), got %d", name, i,
                           last_layer, MODEL_LAYERS_MAX, items[i].layer);
        last_layer = items[i].layer;
        if (items[i].kind != ITEM_NORM && items[i].kind != ITEM_POOLER &&
            items[i].kind != ITEM_HEAD)
            got.num_layers = last_layer + 1;
    }
    if ((rc = check_skips(name, skips, num_skips, num_items, err)) != OK)
        return rc;
    got.items = malloc((size_t)num_items * sizeof *got.items);
    got.skips = num_skips ? malloc((size_t)num_skips * sizeof *got.skips) : NULL;
    if (!got.items || (num_skips && !got.skips)) {
        rc = err_nomem(err);
        goto out;
    }
    memcpy(got.items, items, (size_t)num_items * sizeof *items);
    got.num_items = num_items;
    if (num_skips) {
        memcpy(got.skips, skips, (size_t)num_skips * sizeof *skips);
        qsort(got.skips, (size_t)num_skips, sizeof *got.skips, compare_skips);
        got.num_skips = num_skips;
    }
    rc = model_check_totals(&got, err);
    if (rc != OK)
        goto out;
    *model = got;
    got = (struct model){0};
out:
    model_clear(&got);
    return rc;
}

/* A stored weight has 4 bytes at most; what is above that is the rounded copy. */
void model_set_bytes(struct model *model, int weight_bytes, int grad_bytes)
{
    model->weight_bytes_per_param = weight_bytes;
    model->grad_bytes_per_param = grad_bytes;
    if (weight_bytes > 0)
        model->param_bytes = weight_bytes < 4 ? weight_bytes : 4;
}

static enum status check_times(const struct model *model, int item, const char *kind,
                               const struct time_row *rows, int num_rows, struct err *err)
{
    const char *name = model->items[item].name;
    if (num_rows < 1)
        return err_set(err, ERR_INPUT, "model '%s': item '%s': times of '%s' are empty",
                       model->name, name, kind);
    if (!*kind || strlen(kind) >= sizeof model->times->kind)
        return err_set(err, ERR_INPUT,
                       "model '%s': item '%s': a kind of device has 1..%zu characters, got '%.40s'",
                       model->name, name, sizeof model->times->kind - 1, kind);
    if (model_time_table(model, item, kind))
        return err_set(err, ERR_INPUT, "model '%s': item '%s' has times of '%s' twice", model->name,
                       name, kind);
    for (int r = 0; r < num_rows; r++) {
        const struct time_row none = {0}, *row = &rows[r], *last = r ? &rows[r - 1] : &none;
        if (row->samples <= last->samples)
            return err_set(err, ERR_INPUT,
                           "model '%s': item '%s': times of '%s': micro-batch sizes must ascend "
                           "from 1, got %lld after %lld",
                           model->name, name, kind, (long long)row->samples,
                           (long long)last->samples);
        if (row->fwd_ns < last->fwd_ns || row->bwd_input_ns < last->bwd_input_ns ||
            row->bwd_weight_ns < last->bwd_weight_ns)
            return err_set(err, ERR_INPUT,
                           "model '%s': item '%s': times of '%s': %s must take no less than %s",
                           model->name, name, kind, COUNT_TEXT(row->samples, "sample"),
                           r ? "fewer samples" : "0 ns");
    }
    return OK;
}

enum status model_add_times(struct model *model, int item, const char *kind,
                            const struct time_row *rows, int num_rows, struct err *err)
{
    struct item *it = &model->items[item];
    const size_t size = (size_t)num_rows * sizeof *rows;
    enum status rc = check_times(model, item, kind, rows, num_rows, err);
    if (rc != OK)
        return rc;
    if (!array_extend(&model->times, model->num_times, sizeof *model->times))
        return err_nomem(err);
    struct time_table *times = &model->times[model->num_times];
    *times = (struct time_table){.num_rows = num_rows, .rows = malloc(size)};
    if (!times->rows)
        return err_nomem(err);
    snprintf(times->kind, sizeof times->kind, "%s", kind);
    memcpy(times->rows, rows, size);
    if (it->num_times == 0)
        it->first_times = model->num_times;
    it->num_times++;
    model->num_times++;
    return OK;
}

const struct time_table *model_time_table(const struct model *model, int item, const char *kind)
{
    const struct item *it = &model->items[item];
    for (int t = it->first_times; t < it->first_times + it->num_times; t++)
        if (strcmp(model->times[t].kind, kind) == 0)
            return &model->times[t];
    return NULL;
}
