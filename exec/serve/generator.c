/* Layers over a cache of keys and values (generator.h). Read read_chunk() first: it is the forward of
 * exec/stage/decoder.c and layers.c for rows of one sequence. */
#include "exec/serve/generator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/weights/adapter_files.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/weights/hf_names.h"
#include "exec/stage/adapters.h"
#include "exec/stage/arch.h"
#include "exec/stage/rope.h"
#include "exec/stage/stage.h"
#include "partition/plan/job.h"

enum { CHUNK = 64 }; /* tokens of a prompt that are read at once */

struct generator {
    struct model model;   /* a view of the caller's, with samples of one token: the stage keeps no
                           activations */
    struct model longest; /* another view, with samples of the whole context */
    struct job job;
    struct arch arch;
    struct backend *be;
    struct stage *stage;           /* owned */
    float *(*weights)[MAX_BLOCKS]; /* owned; by item and block of arch.h */
    int context, position;
    float *angles;          /* owned; NULL: the model has none */
    float **keys, **values; /* owned, by layer: [context, kv_heads, head_dim] */
    float *x, *y, *norm, *heads, *qkv, *ctx, *pre, *act, *stats, *logits; /* owned */
    int32_t ids[CHUNK];
};

static enum status grab(int64_t elems, float **to, struct err *err)
{
    *to = aligned_alloc(64, (size_t)((elems * (int64_t)sizeof(float) + 63) / 64 * 64));
    return *to ? OK : err_nomem(err);
}

static int kv_heads(const struct generator *g)
{
    return g->arch.decoder ? g->arch.kv_heads : g->arch.heads;
}

static int head_dim(const struct generator *g)
{
    return g->arch.decoder ? g->arch.head_dim : g->arch.hidden / g->arch.heads;
}

static enum status make_buffers(struct generator *g, struct err *err)
{
    const struct arch *a = &g->arch;
    const int64_t query = (int64_t)a->heads * head_dim(g), key = (int64_t)kv_heads(g) * head_dim(g);
    const int64_t wide = a->decoder ? 2 * (int64_t)a->mlp : a->mlp;
    const struct {
        float **to;
        int64_t elems;
    } buffers[] = {
        {&g->x,      CHUNK * (int64_t)a->hidden                   },
        {&g->y,      CHUNK * (int64_t)a->hidden                   },
        {&g->norm,   CHUNK * (int64_t)a->hidden                   },
        {&g->heads,  CHUNK * (query + 2 * key)                    },
        {&g->qkv,    CHUNK * 3 * query                            },
        {&g->ctx,    CHUNK * query                                },
        {&g->pre,    CHUNK * wide                                 },
        {&g->act,    CHUNK * (int64_t)a->mlp                      },
        {&g->stats,  CHUNK * (int64_t)(2 + a->heads + kv_heads(g))},
        {&g->logits, a->logit_stride                              },
    };
    enum status rc = OK;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers && rc == OK; i++)
        rc = grab(buffers[i].elems, buffers[i].to, err);
    g->keys = calloc((size_t)g->model.num_layers, sizeof *g->keys);
    g->values = calloc((size_t)g->model.num_layers, sizeof *g->values);
    if (rc == OK && (!g->keys || !g->values))
        rc = err_nomem(err);
    for (int l = 0; l < g->model.num_layers && rc == OK; l++) {
        rc = grab(g->context * key, &g->keys[l], err);
        THEN(grab(g->context * key, &g->values[l], err));
    }
    if (rc == OK && a->decoder) {
        rc = grab((int64_t)g->context * head_dim(g), &g->angles, err);
        if (rc == OK)
            rope_angles(&g->model.turns, g->context, head_dim(g), g->angles);
    }
    return rc;
}

/* The address of each block: that of the tensor with which it begins. */
static enum status find_blocks(struct generator *g, struct err *err)
{
    g->weights = calloc((size_t)g->model.num_items, sizeof *g->weights);
    if (!g->weights)
        return err_nomem(err);
    struct param *params = stage_params(g->stage);
    for (int i = 0; i < g->model.num_items; i++) {
        struct item_spec spec;
        arch_item(&g->model, &g->arch, i, &spec);
        for (int t = 0; t < spec.num_tensors; t++)
            for (int p = 0; p < stage_num_params(g->stage); p++)
                if (params[p].item == i && spec.tensors[t].offset == 0 &&
                    strcmp(params[p].name, spec.tensors[t].name) == 0)
                    g->weights[i][spec.tensors[t].block] = params[p].weight;
        if (spec.tied)
            g->weights[i][HEAD_TABLE] = g->weights[0][WORD];
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
            float *const *w = g->weights[i];
            /* a product [in, out] is no part of another */
            adapter_merge(list[n].out, list[n].in, g->arch.in_out, g->model.lora.rank,
                          g->model.lora.scale, w[ADAPTERS + 2 * n], w[ADAPTERS + 2 * n + 1],
                          w[list[n].block] + list[n].column * list[n].in);
        }
    }
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
    if (rc == OK && (!backend->attention_cached || !backend->matvec || backend->elem_bytes != 4))
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
    float *const buffers[] = {g->x,   g->y,   g->norm,  g->heads,  g->qkv,   g->ctx,
                              g->pre, g->act, g->stats, g->logits, g->angles};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
    for (int l = 0; l < g->model.num_layers; l++) {
        free(g->keys ? g->keys[l] : NULL);
        free(g->values ? g->values[l] : NULL);
    }
    free(g->keys);
    free(g->values);
    free(g->weights);
    stage_free(g->stage);
    job_clear(&g->job);
    free(g);
}

/* --- forward ---------------------------------------------------------------------------------- */

static void dense(const struct generator *g, int n, int in, int out, const float *x, const float *w,
                  const float *bias, enum act act, const float *add, float *y)
{
    if (n == 1 && !g->arch.in_out && act == ACT_NONE) {
        g->be->matvec(g->be, out, in, x, w, bias, add, y);
        return;
    }
    const struct linear linear = {.rows = n, .in = in, .out = out, .in_out = g->arch.in_out};
    g->be->linear_forward(g->be, &linear, x, w, bias, act, add, NULL, act ? g->pre : NULL, y);
}

static void norm(const struct generator *g, int n, float *const *w, const float *x)
{
    const struct arch *a = &g->arch;
    const struct rmsnorm rms = {n, a->hidden, a->eps, a->decoder ? a->decoder->plus : 0.0f};
    if (a->decoder)
        g->be->rmsnorm_forward(g->be, &rms, x, w[NORM_G], g->norm, g->stats);
    else
        g->be->layernorm_forward(g->be, n, a->hidden, 0, x, w[NORM_G], w[NORM_B], a->eps, g->norm,
                                 g->stats);
}

static void attention(struct generator *g, int layer, float *const *w, int n)
{
    const struct arch *a = &g->arch;
    const int d = head_dim(g), heads = a->heads, few = kv_heads(g), width = heads * d;
    norm(g, n, w, g->x);
    if (a->decoder) {
        const struct rotary rotary = {1,
                                      n,
                                      heads,
                                      few,
                                      d,
                                      g->angles + (int64_t)g->position * d,
                                      g->model.block.qk_norm == QK_NORM_HEAD ? w[QK_G] : NULL,
                                      a->eps,
                                      a->decoder->plus};
        dense(g, n, a->hidden, width + 2 * few * d, g->norm, w[HEADS_W],
              g->model.qkv_bias ? w[HEADS_B] : NULL, ACT_NONE, NULL, g->heads);
        g->be->rotary_forward(g->be, &rotary, g->heads, g->qkv, g->stats);
    } else {
        dense(g, n, a->hidden, 3 * width, g->norm, w[QKV_W], w[QKV_B], ACT_NONE, NULL, g->qkv);
    }
    for (int r = 0; r < n; r++)
        for (int h = 0; h < few; h++) {
            const float *key = g->qkv + (3 * (int64_t)r + 1) * width + h * (heads / few) * d;
            const int64_t at = ((int64_t)(g->position + r) * few + h) * d;
            memcpy(g->keys[layer] + at, key, (size_t)d * sizeof *key);
            memcpy(g->values[layer] + at, key + width, (size_t)d * sizeof *key);
        }
    const struct cached_attention cached = {n,
                                            g->position,
                                            heads,
                                            few,
                                            d,
                                            a->decoder ? model_window(&g->longest, layer) : 0,
                                            g->keys[layer],
                                            g->values[layer]};
    g->be->attention_cached(g->be, &cached, g->qkv, g->ctx);
    dense(g, n, width, a->hidden, g->ctx, w[OUT_W], a->decoder ? NULL : w[OUT_B], ACT_NONE, g->x,
          g->y);
}

static void mlp(struct generator *g, float *const *w, int n)
{
    const struct arch *a = &g->arch;
    norm(g, n, w, g->x);
    if (a->decoder) {
        dense(g, n, a->hidden, 2 * a->mlp, g->norm, w[GATE_UP_W], NULL, ACT_NONE, NULL, g->pre);
        g->be->gate_forward(g->be, n, a->mlp, a->decoder->gate, g->pre, g->act);
        dense(g, n, a->mlp, a->hidden, g->act, w[DOWN_W], NULL, ACT_NONE, g->x, g->y);
    } else {
        dense(g, n, a->hidden, a->mlp, g->norm, w[FC1_W], w[FC1_B], a->gelu, NULL, g->act);
        dense(g, n, a->mlp, a->hidden, g->act, w[FC2_W], w[FC2_B], ACT_NONE, g->x, g->y);
    }
}

static void embed(struct generator *g, int n)
{
    const struct arch *a = &g->arch;
    float *const *w = g->weights[0];
    const bool scaled = a->decoder && a->decoder->scale_embedding;
    const struct tokens tokens = {.num_samples = 1,
                                  .seq = n,
                                  .hidden = a->hidden,
                                  .vocab = g->model.vocab,
                                  .scale = scaled ? sqrtf((float)a->hidden) : 0.0f,
                                  .ids = g->ids};
    const float *places = a->decoder ? NULL : w[WORD_POS] + (int64_t)g->position * a->hidden;
    g->be->tokens_forward(g->be, &tokens, w[WORD], places, NULL, g->y);
}

/* Read g->ids[0 .. n); logits: of the last of them. */
static void read_chunk(struct generator *g, int n, bool logits)
{
    const struct arch *a = &g->arch;
    for (int i = 0; i < g->model.num_items; i++) {
        float *const *w = g->weights[i];
        const float *last = g->x + (int64_t)(n - 1) * a->hidden;
        switch (g->model.items[i].kind) {
        case ITEM_EMBEDDING:
            embed(g, n);
            break;
        case ITEM_ATTENTION:
            attention(g, g->model.items[i].layer, w, n);
            break;
        case ITEM_MLP:
            mlp(g, w, n);
            break;
        case ITEM_NORM:
            norm(g, n, w, g->x);
            memcpy(g->y, g->norm, (size_t)n * (size_t)a->hidden * sizeof *g->y);
            break;
        case ITEM_HEAD:
            if (logits)
                g->be->matvec(g->be, a->table_rows, a->hidden, last, w[HEAD_TABLE], NULL, NULL,
                              g->logits);
            return;
        default:
            return;
        }
        float *const swap = g->x;
        g->x = g->y;
        g->y = swap;
    }
}

enum status generator_read(struct generator *g, const int32_t *tokens, int num,
                           const float **logits, struct err *err)
{
    if (num < 1 || num > g->context - g->position)
        return err_set(err, ERR_INPUT, "%d tokens do not fit behind %d of a context of %d", num,
                       g->position, g->context);
    for (int at = 0, n; at < num; at += n) {
        n = num - at < CHUNK ? num - at : CHUNK;
        for (int i = 0; i < n; i++) {
            g->ids[i] = tokens[at + i];
            if (g->ids[i] < 0 || g->ids[i] >= g->model.vocab)
                return err_set(err, ERR_INPUT, "token %d is not in the model's vocabulary of %d",
                               g->ids[i], g->model.vocab);
        }
        read_chunk(g, n, at + n == num);
        g->position += n;
    }
    *logits = g->logits;
    return g->be->sync(g->be, err);
}
