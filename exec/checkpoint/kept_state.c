#include "exec/checkpoint/kept_state.h"

#include <stdio.h>
#include <stdlib.h>

#include "exec/checkpoint/checkpoint_files.h"

enum { NAME_BYTES = 128 };

int kept_list(const struct job *job, const struct param *params, int num_params,
              struct kept_tensor tensors[KEPT_TENSORS], int64_t *num_elems)
{
    int count = 0;
    int64_t at = 0;
    for (int state = 0; state < stage_num_states(job); state++)
        for (int p = 0; p < num_params; p++) {
            if (params[p].frozen)
                continue;
            tensors[count++] = (struct kept_tensor){.param = p, .state = state, .first = at};
            at += params[p].num_elems;
        }
    if (num_elems)
        *num_elems = at;
    return count;
}

enum status kept_make(struct kept_state *kept, const struct job *job, int item, struct err *err)
{
    struct param params[STAGE_ITEM_PARAMS];
    struct kept_tensor tensors[KEPT_TENSORS];
    int64_t elems = 0;
    int num = 0;
    if (!kept->blocks) {
        kept->blocks = calloc((size_t)job->model.num_items, sizeof *kept->blocks);
        if (!kept->blocks)
            return err_nomem(err);
        kept->num_items = job->model.num_items;
    }
    if (kept->blocks[item])
        return OK;
    enum status rc = stage_item_params(&job->model, item, params, &num, err);
    if (rc != OK)
        return rc;
    kept_list(job, params, num, tensors, &elems);
    kept->blocks[item] = calloc((size_t)elems + 1, sizeof **kept->blocks);
    return kept->blocks[item] ? OK : err_nomem(err);
}

void kept_drop(struct kept_state *kept, int first, int end)
{
    for (int i = first; i < end && i < kept->num_items; i++) {
        free(kept->blocks[i]);
        kept->blocks[i] = NULL;
    }
}

void kept_clear(struct kept_state *kept)
{
    kept_drop(kept, 0, kept->num_items);
    free(kept->blocks);
    *kept = (struct kept_state){0};
}

bool kept_any(const struct kept_state *kept)
{
    for (int i = 0; i < kept->num_items; i++)
        if (kept->blocks[i])
            return true;
    return false;
}

bool kept_has(const struct kept_state *kept, int first, int end)
{
    for (int i = first; i < end; i++)
        if (i >= kept->num_items || !kept->blocks[i])
            return false;
    return true;
}

static void name_of(const struct param *param, int state, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "optimizer.%d.%s", state, param->name);
}

enum status kept_put(const struct kept_state *kept, const struct job *job, tensor_put put,
                     void *ctx, struct err *err)
{
    const size_t most = (size_t)kept->num_items * KEPT_TENSORS + 1;
    struct param *params = calloc((size_t)kept->num_items * STAGE_ITEM_PARAMS + 1, sizeof *params);
    struct tensor_out *out = calloc(most, sizeof *out);
    char(*names)[NAME_BYTES] = calloc(most, sizeof *names);
    int count = 0;
    enum status rc = params && out && names ? OK : err_nomem(err);
    for (int item = 0; rc == OK && item < kept->num_items; item++) {
        struct param *of = params + (size_t)item * STAGE_ITEM_PARAMS; /* shapes are borrowed */
        struct kept_tensor tensors[KEPT_TENSORS];
        int num = 0;
        if (!kept->blocks[item])
            continue;
        rc = stage_item_params(&job->model, item, of, &num, err);
        const int n = rc == OK ? kept_list(job, of, num, tensors, NULL) : 0;
        for (int i = 0; i < n; i++) {
            const struct param *param = &of[tensors[i].param];
            name_of(param, tensors[i].state, names[count]);
            out[count] = (struct tensor_out){.name = names[count],
                                             .ndim = param->ndim,
                                             .shape = param->shape,
                                             .num_elems = param->num_elems,
                                             .source = kept->blocks[item] + tensors[i].first};
            count++;
        }
    }
    THEN(put(ctx, &(struct tensor_source){out, count, tensor_fetch_host, NULL}, err));
    free(params);
    free(out);
    free(names);
    return rc;
}

/* Read the state of an item. *found: all of it is there. */
static enum status load_item(struct safetensors **files, int num_files, const struct job *job,
                             int item, struct kept_state *kept, bool *found, struct err *err)
{
    struct param params[STAGE_ITEM_PARAMS];
    struct kept_tensor tensors[KEPT_TENSORS];
    int num = 0;
    *found = true;
    enum status rc = stage_item_params(&job->model, item, params, &num, err);
    THEN(kept_make(kept, job, item, err));
    const int n = rc == OK ? kept_list(job, params, num, tensors, NULL) : 0;
    for (int i = 0; rc == OK && *found && i < n; i++) {
        const struct param *param = &params[tensors[i].param];
        struct tensor_info info;
        char name[NAME_BYTES];
        int f = 0;
        name_of(param, tensors[i].state, name);
        while (f < num_files && !safetensors_find(files[f], name, &info))
            f++;
        *found = f < num_files && info.num_elems == param->num_elems;
        if (*found)
            rc =
                safetensors_read(files[f], name, &info, kept->blocks[item] + tensors[i].first, err);
    }
    if (!*found)
        kept_drop(kept, item, item + 1);
    return rc;
}

enum status kept_load(const char *dir, const struct job *job, int first, int end,
                      struct kept_state *kept, struct err *err)
{
    struct safetensors **files = NULL;
    int num_files = 0;
    bool found = true;
    enum status rc = first < end ? checkpoint_files_open(dir, &files, &num_files, err) : OK;
    for (int item = end - 1; rc == OK && found && item >= first; item--)
        rc = load_item(files, num_files, job, item, kept, &found, err);
    checkpoint_files_close(files, num_files);
    return rc;
}
