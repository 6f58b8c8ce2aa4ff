/* Layers over a cache of keys and values (generator.h): the passes of exec/stage/layers.h with a
 * `past`. Read read_chunk() first. */
#include "exec/serve/generator.h"

#include <stdlib.h>
#include <string.h>

#include "exec/weights/adapter_files.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/weights/hf_names.h"
#include "exec/stage/adapters.h"
#include "exec/stage/layers.h"
#include "exec/stage/rope.h"
#include "exec/stage/stage.h"
#include "partition/plan/job.h"

enum { CHUNK = 64 }; /* tokens of a prompt that are read at once */

struct generator {
    struct model model;   /* a view of the caller's, with samples of one token: the stage keeps no
                           activations */
    struct model longest; /* for the passes: samples of the whole context, adapters merged */
    struct job job;
    struct arch arch;
    struct backend *be;
    struct stage *stage;  /* owned */
    struct layer *layers; /* owned; of all items, with weights of the stage */
    int context;
    struct past *past;                       /* owned; by layer */
    float *angles;                           /* owned; NULL: the model has none */
    void *stash[ITEM_KIND_COUNT][MAX_STASH]; /* owned; of a pass over a chunk */
    float *x, *y, *logits;                   /* owned; [CHUNK, hidden]; of one row */
    int32_t ids[CHUNK];
};

/* Memory for the caller, unless a step before it failed. */
static void *grab(int64_t bytes, enum status *rc, struct err *err)
{
    if (*rc != OK)
        return NULL;
    void *at = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
    if (!at)
        *rc = err_nomem(err);
    return at;
}

/* The first item of each kind stands for all: their stashes are equal. The head has none, because
 * only a last row's logits are computed. */
static enum status make_stash(struct generator *g, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; i < g->model.num_items - 1; i++) {
        void **stash = g->stash[g->model.items[i].kind];
        int64_t bytes[MAX_STASH], out;
        arch_stash(&g->model, &g->arch, i, CHUNK, (int)sizeof(float), false, bytes, &out);
        for (int b = 0; b < MAX_STASH && rc == OK; b++)
            if (bytes[b] > 0 && !stash[b])
                stash[b] = grab(bytes[b], &rc, err);
    }
    return rc;
}

static enum status make_buffers(struct generator *g, struct err *err)
{
    const struct arch *a = &g->arch;
    const int64_t word = (int64_t)sizeof(float), rows = CHUNK * (int64_t)a->hidden * word;
    const int64_t keys = a->decoder ? (int64_t)a->kv_heads * a->head_dim : a->hidden;
    enum status rc = make_stash(g, err);
    g->x = grab(rows, &rc, err);
    g->y = grab(rows, &rc, err);
    g->logits = grab(a->logit_stride * word, &rc, err);
    g->past = calloc((size_t)g->model.num_layers, sizeof *g->past);
    if (rc == OK && !g->past)
        rc = err_nomem(err);
    for (int l = 0; l < g->model.num_layers && rc == OK; l++) {
        g->past[l].keys = grab(g->context * keys * word, &rc, err);
        g->past[l].values = grab(g->context * keys * word, &rc, err);
    }
    if (rc == OK && a->decoder) {
        g->angles = grab((int64_t)g->context * a->head_dim * word, &rc, err);
        if (rc == OK)
            rope_angles(&g->model.turns, g->context, a->head_dim, g->angles);
    }
    return rc;
}

/* The address of each block: that of the tensor with which it begins. */
static enum status find_blocks(struct generator *g, struct err *err)
{
    g->layers = calloc((size_t)g->model.num_items, sizeof *g->layers);
    if (!g->layers)
        return err_nomem(err);
    struct param *params = stage_params(g->stage);
    for (int i = 0; i < g->model.num_items; i++) {
        struct layer *l = &g->layers[i];
        struct item_spec spec;
        *l = (struct layer){.item = i, .kind = g->model.items[i].kind, .frozen = true};
        arch_item(&g->model, &g->arch, i, &spec);
        for (int t = 0; t < spec.num_tensors; t++)
            for (int p = 0; p < stage_num_params(g->stage); p++)
                if (params[p].item == i && spec.tensors[t].offset == 0 &&
                    strcmp(params[p].name, spec.tensors[t].name) == 0)
                    l->w[spec.tensors[t].block] = params[p].weight;
        if (spec.tied)
            l->w[HEAD_TABLE] = g->layers[0].w[WORD];
        for (int b = 0; b < MAX_BLOCKS; b++)
            l->low[b] = l->w[b];
    }
    return OK;
}

/* Add each adapter to the weights beside which it was trained. */
static void merge_adapters(struct generator *g)
{
    for (int i = 0; i < g->model.num_items; i++) {
        struct adapter list[LORA_PRODUCTS];
        const int num = adapters_of(&g->model, i, list);
        for (int n = 0; n < num; n++) {
            float *const *w = g->layers[i].w;
            /* a product [in, out] is no part of another */
            adapter_merge(list[n].out, list[n].in, g->arch.in_out, g->model.lora.rank,
                          g->model.lora.scale, w[ADAPTERS + 2 * n], w[ADAPTERS + 2 * n + 1],
                          w[list[n].block] + list[n].column * list[n].in);
        }
    }
    g->longest.lora.rank = 0;
}

enum status generator_new(const struct model *model, const char *path, bool foreign,
                          const char *adapter, int context, struct backend *backend,
                          struct generator **generator, struct err *err)
{
    struct generator *g = calloc(1, sizeof *g);
    if (!g)
        return err_nomem(err);
    g->model = *model;
    g->model.seq = 1;
    g->longest = *model;
    g->longest.seq = context;
    g->be = backend;
    g->context = context;
    job_defaults(&g->job);
    enum status rc = arch_init(&g->model, &g->arch, err);
    if (rc == OK && model->task != TASK_CAUSAL_LM)
        rc = err_set(err, ERR_INPUT, "model '%s' does not predict the next token", model->name);
    if (rc == OK && (!backend->attention_cached || backend->elem_bytes != 4))
        rc = err_set(err, ERR_INPUT, "text is generated on the cpu backend in fp32 only");
    const struct stage_spec spec = {.model = &g->model,
                                    .job = &g->job,
                                    .backend = backend,
                                    .end_item = model->num_items,
                                    .num_frozen_items = model->num_items,
                                    .max_samples = 1,
                                    .max_live = 1};
    THEN(stage_new(&spec, &g->stage, err));
    const struct stage_list list = {&g->stage, 1, backend};
    THEN(foreign ? hf_load(path, &g->model, NULL, &list, false, NULL, err)
                 : checkpoint_load(path, &list, false, err));
    if (rc == OK && adapter)
        rc = adapter_files_load(adapter, path, NULL, &g->model, &list, err);
    THEN(find_blocks(g, err));
    if (rc == OK)
        merge_adapters(g);
    THEN(make_buffers(g, err));
    if (rc == OK) {
        *generator = g;
        g = NULL;
    }
    generator_free(g);
    return rc;
}

void generator_free(struct generator *g)
{
    if (!g)
        return;
    for (int kind = 0; kind < ITEM_KIND_COUNT; kind++)
        for (int b = 0; b < MAX_STASH; b++)
            free(g->stash[kind][b]);
    for (int l = 0; g->past && l < g->model.num_layers; l++) {
        free(g->past[l].keys);
        free(g->past[l].values);
    }
    free(g->past);
    free(g->x);
    free(g->y);
    free(g->logits);
    free(g->angles);
    free(g->layers);
    stage_free(g->stage);
    job_clear(&g->job);
    free(g);
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Read g->ids[0 .. n); logits: of the last of them. */
static void read_chunk(struct generator *g, int n, bool logits)
{
    const struct arch *a = &g->arch;
    const int head = g->model.num_items - 1;
    const struct batch_refs batch = {.num_samples = n, .tokens = g->ids};
    for (int i = 0; i < head; i++) {
        const struct item *item = &g->model.items[i];
        const struct layer_pass pass = {
            .be = g->be,
            .model = &g->longest,
            .arch = a,
            .batch = &batch,
            .stash = g->stash[item->kind],
            .angles = g->angles,
            .x = g->x,
            .y = g->y,
            .past = &g->past[item->kind == ITEM_ATTENTION ? item->layer : 0]};
        layer_forward(&g->layers[i], &pass);
        float *const swap = g->x;
        g->x = g->y;
        g->y = swap;
    }
    const struct linear last = {.rows = 1, .in = a->hidden, .out = a->table_rows, .alone = true};
    if (logits)
        g->be->linear_forward(g->be, &last, g->x + (int64_t)(n - 1) * a->hidden,
                              g->layers[head].w[HEAD_TABLE], NULL, ACT_NONE, NULL, NULL, NULL,
                              g->logits);
    for (int l = 0; l < g->model.num_layers; l++)
        g->past[l].num += n;
}

enum status generator_read(struct generator *g, const int32_t *tokens, int num,
                           const float **logits, struct err *err)
{
    if (num < 1 || num > g->context - g->past[0].num)
        return err_set(err, ERR_INPUT, "context of %d is full: %d tokens used, %d more asked",
                       g->context, g->past[0].num, num);
    for (int at = 0, n; at < num; at += n) {
        n = num - at < CHUNK ? num - at : CHUNK;
        for (int i = 0; i < n; i++) {
            g->ids[i] = tokens[at + i];
            if (g->ids[i] < 0 || g->ids[i] >= g->model.vocab)
                return err_set(err, ERR_INPUT, "token %d is not in the model's vocabulary of %d",
                               g->ids[i], g->model.vocab);
        }
        read_chunk(g, n, at + n == num);
    }
    *logits = g->logits;
    return g->be->sync(g->be, err);
}
