/* Models of FAMILY_COMPOSED: encoder-decoders and towers whose items are lists of operations. Read
 * struct model_piece in model.h first, then build() of one type: build_t5() is the example.
 *
 * An item's parameters, flops and stash are sums over its pieces, and kernels.c makes its kernels of
 * them, so a type is written once. A multiply-add is 2 flops. What is kept for the backward: the
 * input of each linear and norm, what an activation reads, and queries, keys, values and row
 * statistics of attention, whose scores never reach memory. Dropout is not modelled.
 *
 * Sources: Raffel et al. 2020 (T5), Radford et al. 2022 (Whisper), Grattafiori et al. 2024, section 7
 * (Llama 3.2's cross-attention), Touvron et al. 2021 (DeiT), Liu et al. 2021 (Swin), Radford et al.
 * 2021 (CLIP), Peebles and Xie 2023 (DiT), and modeling_<type>.py of transformers.
 *
 * The token table, which several items use, is in the first item alone. It looks up the decoder's
 * tokens as well, and skips take them and the encoder's output to the items that read them. */
#include "partition/model/model_items.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"

struct composer {
    const struct model_spec *spec;
    struct model *m;
    int64_t items_room, pieces_room, skips_room;
    bool no_memory;
};

/* Make room for one more element of an array. */
static bool grow(struct composer *c, void *array, int count, int64_t *room, size_t each)
{
    c->no_memory = c->no_memory || !array_grow(array, count + 1, room, each);
    return !c->no_memory;
}

/* Start an item, to which piece() adds. act: numbers of a sample that it hands to the next item. */
static void begin(struct composer *c, enum item_kind kind, int layer, const char *name, int64_t act)
{
    struct model *m = c->m;
    if (!grow(c, &m->items, m->num_items, &c->items_room, sizeof *m->items))
        return;
    struct item *item = &m->items[m->num_items++];
    *item = (struct item){.kind = kind,
                          .layer = layer,
                          .first_piece = m->num_pieces,
                          .act_bytes = act * m->elem_bytes};
    if (kind == ITEM_OPAQUE)
        snprintf(item->name, sizeof item->name, "%s%d", name, layer);
    else
        snprintf(item->name, sizeof item->name, "%s", name);
}

static void piece(struct composer *c, struct model_piece piece)
{
    struct model *m = c->m;
    if (!grow(c, &m->pieces, m->num_pieces, &c->pieces_room, sizeof *m->pieces))
        return;
    m->pieces[m->num_pieces++] = piece;
    m->items[m->num_items - 1].num_pieces++;
}

/* From an item to the last one; callers make them in ascending order. */
static void skip(struct composer *c, int from, int64_t numbers)
{
    struct model *m = c->m;
    if (grow(c, &m->skips, m->num_skips, &c->skips_room, sizeof *m->skips))
        m->skips[m->num_skips++] = (struct skip_edge){
            .from = from, .to = m->num_items - 1, .bytes = numbers * m->elem_bytes};
}

/* --- pieces  */

static void linear(struct composer *c, int64_t rows, int64_t in, int64_t out, int64_t biases)
{
    piece(c, (struct model_piece){PIECE_LINEAR, .rows = rows, .in = in, .out = out,
                                  .params = in * out + biases});
}

/* A linear whose input is the sample's own data or another item's tensor: the item keeps no copy. */
static void linear_of(struct composer *c, enum piece_input input, int64_t rows, int64_t in,
                      int64_t out, int64_t biases)
{
    piece(c, (struct model_piece){PIECE_LINEAR, .input = input, .rows = rows, .in = in, .out = out,
                                  .params = in * out + biases});
}

/* weights: parameters per number of a row, 2 with a bias. */
static void norm(struct composer *c, int64_t rows, int64_t width, int weights)
{
    piece(c,
          (struct model_piece){PIECE_NORM, .rows = rows, .in = width, .params = weights * width});
}

static void elementwise(struct composer *c, enum piece_kind kind, int64_t rows, int64_t width)
{
    piece(c, (struct model_piece){kind, .rows = rows, .in = width});
}

/* Parameters that no piece above has: a class token, positions, a gate. */
static void numbers(struct composer *c, int64_t params)
{
    piece(c, (struct model_piece){PIECE_NUMBERS, .params = params});
}

static void table(struct composer *c, int64_t tokens, int64_t entries, int64_t width)
{
    piece(c, (struct model_piece){PIECE_TABLE, .rows = tokens, .in = width,
                                  .params = entries * width});
}

/* The dims of one stack of layers. */
struct stack {
    int64_t hidden, heads, keys_heads, head_dim, mlp;
    int norm;          /* parameters of a norm per number */
    bool biases, gate; /* of linears; of the MLP */
    bool causal;
};

static struct stack stack_of(const struct model_spec *s, int norm, bool biases)
{
    const int64_t width = s->head_dim ? s->head_dim : s->hidden / s->heads;
    return (struct stack){.hidden = s->hidden,
                          .heads = s->heads,
                          .keys_heads = s->kv_heads ? s->kv_heads : s->heads,
                          .head_dim = width,
                          .mlp = s->mlp,
                          .norm = norm,
                          .biases = biases};
}

/* Attention of `rows` tokens to themselves, in groups of `window` tokens. key_biases 0: keys have no
 * bias. */
static void self_attention(struct composer *c, const struct stack *k, int64_t rows, int64_t window,
                           int key_biases)
{
    const int64_t query = k->heads * k->head_dim, key = k->keys_heads * k->head_dim;
    norm(c, rows, k->hidden, k->norm);
    linear(c, rows, k->hidden, query + 2 * key, k->biases ? query + key + key_biases * key : 0);
    piece(c, (struct model_piece){PIECE_CORE, .causal = k->causal, .rows = rows, .keys = window,
                                  .groups = (rows + window - 1) / window, .in = k->head_dim,
                                  .heads = k->heads, .out = k->keys_heads});
    linear(c, rows, query, k->hidden, k->biases ? k->hidden : 0);
    elementwise(c, PIECE_ADD, rows, k->hidden);
}

/* Attention of `rows` tokens to `keys` tokens of another item, of equal width. */
static void cross_attention(struct composer *c, const struct stack *k, int64_t rows, int64_t keys)
{
    const int64_t query = k->heads * k->head_dim, key = k->keys_heads * k->head_dim;
    norm(c, rows, k->hidden, k->norm);
    linear(c, rows, k->hidden, query, k->biases ? query : 0);
    linear_of(c, PIECE_INPUT_SKIP, keys, k->hidden, 2 * key, k->biases ? key : 0);
    piece(c, (struct model_piece){PIECE_CORE, .rows = rows, .keys = keys, .groups = 1,
                                  .in = k->head_dim, .heads = k->heads, .out = k->keys_heads});
    linear(c, rows, query, k->hidden, k->biases ? k->hidden : 0);
    elementwise(c, PIECE_ADD, rows, k->hidden);
}

static void mlp(struct composer *c, const struct stack *k, int64_t rows)
{
    const int64_t first = k->gate ? 2 * k->mlp : k->mlp;
    norm(c, rows, k->hidden, k->norm);
    linear(c, rows, k->hidden, first, k->biases ? first : 0);
    elementwise(c, k->gate ? PIECE_GATE : PIECE_ACTIVATION, rows, k->mlp);
    linear(c, rows, k->mlp, k->hidden, k->biases ? k->hidden : 0);
    elementwise(c, PIECE_ADD, rows, k->hidden);
}

/* A layer of self-attention and MLP: two items. */
static void plain_layer(struct composer *c, const struct stack *k, int layer, int64_t rows)
{
    begin(c, ITEM_OPAQUE, layer, "attn", rows * k->hidden);
    self_attention(c, k, rows, rows, 1);
    begin(c, ITEM_OPAQUE, layer, "mlp", rows * k->hidden);
    mlp(c, k, rows);
}

/* The last norm and a head of `rows` rows with a loss over `out` numbers each. */
static void head(struct composer *c, int layer, int64_t rows, int64_t width, int64_t out, bool bias)
{
    const bool tied = c->m->tied_head;
    begin(c, ITEM_HEAD, layer, "head", 0);
    linear(c, rows, width, out, bias ? out : 0);
    if (tied && !c->no_memory) {
        c->m->pieces[c->m->num_pieces - 1].params = 0;
        c->m->items[c->m->num_items - 1].tied_params = width * out;
    }
    elementwise(c, PIECE_LOSS, rows, out);
}

/* --- types ------------------------------------------------------------------------------------ */

/* Whisper and T5: items of the encoder, then of the decoder, which reads the encoder's last item. */
static void encoder_decoder(struct composer *c, const struct stack *k, int64_t buckets,
                            int key_biases)
{
    const struct model_spec *s = c->spec;
    const int64_t rows = s->seq, keys = s->encoder.seq, h = s->hidden;
    struct stack decoder = *k;
    decoder.causal = true;
    const int encoder_layers = s->encoder.layers, layers = encoder_layers + s->num_layers;
    for (int i = 0; i < encoder_layers; i++) {
        begin(c, ITEM_OPAQUE, i, "attn", keys * h);
        self_attention(c, k, keys, keys, key_biases);
        if (i == 0)
            numbers(c, buckets * s->heads);
        begin(c, ITEM_OPAQUE, i, "mlp", keys * h);
        mlp(c, k, keys);
    }
    /* The decoder gets it by skips alone. */
    begin(c, ITEM_OPAQUE, encoder_layers - 1, "norm", 0);
    norm(c, keys, h, k->norm);
    const int encoded = c->m->num_items - 1;
    for (int i = encoder_layers; i < layers; i++) {
        begin(c, ITEM_OPAQUE, i, "attn", rows * h);
        self_attention(c, &decoder, rows, rows, key_biases);
        if (i == encoder_layers) {
            numbers(c, buckets * s->heads);
            skip(c, 0, rows * h);
        }
        begin(c, ITEM_OPAQUE, i, "cross", rows * h);
        cross_attention(c, &decoder, rows, keys);
        skip(c, encoded, keys * h);
        begin(c, ITEM_OPAQUE, i, "mlp", rows * h);
        mlp(c, &decoder, rows);
    }
    begin(c, ITEM_NORM, layers, "norm", rows * h);
    norm(c, rows, h, k->norm);
    head(c, layers, rows, h, s->vocab, false);
}

static void build_t5(struct composer *c)
{
    const struct model_spec *s = c->spec;
    struct stack k = stack_of(s, 1, false);
    k.gate = !s->block.plain_mlp;
    begin(c, ITEM_EMBEDDING, -1, "embedding", (int64_t)s->encoder.seq * s->hidden);
    table(c, (int64_t)s->encoder.seq + s->seq, s->vocab, s->hidden);
    encoder_decoder(c, &k, s->buckets, 1);
}

static void build_whisper(struct composer *c)
{
    const struct model_spec *s = c->spec;
    const struct stack k = stack_of(s, 2, true);
    const int64_t h = s->hidden, frames = 2 * (int64_t)s->encoder.seq;
    begin(c, ITEM_EMBEDDING, -1, "embedding", s->encoder.seq * h);
    linear_of(c, PIECE_INPUT_DATA, frames, 3 * (int64_t)s->channels, h, h);
    elementwise(c, PIECE_ACTIVATION, frames, h);
    linear(c, s->encoder.seq, 3 * h, h, h);
    elementwise(c, PIECE_ACTIVATION, s->encoder.seq, h);
    elementwise(c, PIECE_ADD, s->encoder.seq, h);
    numbers(c, s->encoder.seq * h);
    table(c, s->seq, s->vocab, h);
    elementwise(c, PIECE_ADD, s->seq, h);
    numbers(c, s->max_seq * h);
    encoder_decoder(c, &k, 0, 0);
}

/* The text part of Llama 3.2 Vision: of cross_every layers one, from cross_first on, meets the images
 * instead of the text. Images are tensors of the vision tower, which is not here. */
static void build_mllama(struct composer *c)
{
    const struct model_spec *s = c->spec;
    const int64_t rows = s->seq, h = s->hidden, keys = s->encoder.seq;
    struct stack k = stack_of(s, 1, false);
    k.gate = k.causal = true;
    begin(c, ITEM_EMBEDDING, -1, "embedding", rows * h);
    table(c, rows, (int64_t)s->vocab + 8, h);
    for (int i = 0; i < s->num_layers; i++) {
        if (i % s->cross_every != s->cross_first) {
            plain_layer(c, &k, i, rows);
            continue;
        }
        begin(c, ITEM_OPAQUE, i, "cross", rows * h);
        cross_attention(c, &k, rows, keys);
        norm(c, rows, k.heads * k.head_dim, 0);
        norm(c, keys, k.keys_heads * k.head_dim, 0);
        numbers(c, 2 * k.head_dim + 1);
        skip(c, 0, keys * h);
        begin(c, ITEM_OPAQUE, i, "mlp", rows * h);
        mlp(c, &k, rows);
        numbers(c, 1);
    }
    begin(c, ITEM_NORM, s->num_layers, "norm", rows * h);
    norm(c, rows, h, 1);
    head(c, s->num_layers, rows, h, s->vocab, false);
}

static int64_t patches_of(const struct model_spec *s)
{
    const int64_t side = s->image / s->patch;
    return side * side;
}

static void patch_embedding(struct composer *c, int64_t extra_tokens, bool bias)
{
    const struct model_spec *s = c->spec;
    const int64_t n = patches_of(s), h = s->hidden;
    begin(c, ITEM_EMBEDDING, -1, "embedding", (n + extra_tokens) * h);
    linear_of(c, PIECE_INPUT_DATA, n, (int64_t)s->channels * s->patch * s->patch, h, bias ? h : 0);
}

/* A class token and a distillation token; DeiT's own classifier, and with the teacher's two. */
static void build_deit(struct composer *c)
{
    const struct model_spec *s = c->spec;
    const struct stack k = stack_of(s, 2, true);
    const int64_t rows = patches_of(s) + 2, h = s->hidden;
    patch_embedding(c, 2, true);
    elementwise(c, PIECE_ADD, rows, h);
    numbers(c, (rows + 2) * h);
    for (int i = 0; i < s->num_layers; i++)
        plain_layer(c, &k, i, rows);
    begin(c, ITEM_NORM, s->num_layers, "norm", 2 * h);
    norm(c, rows, h, 2);
    head(c, s->num_layers, 1 + s->teacher, h, s->classes, true);
    if (s->teacher) /* each token has its own */
        numbers(c, h * s->classes + s->classes);
}

/* Four stages (or fewer) of twice the width and a quarter of the tokens each. Attention is inside
 * windows, which every second layer shifts: tokens are copied into windows and back. */
static void build_swin(struct composer *c)
{
    const struct model_spec *s = c->spec;
    struct stack k = stack_of(s, 2, true);
    int64_t side = s->image / s->patch;
    int layer = 0;
    patch_embedding(c, 0, true);
    norm(c, side * side, k.hidden, 2);
    for (int stage = 0; stage < SWIN_STAGES && s->depths[stage] > 0; stage++) {
        for (int i = 0; i < s->depths[stage]; i++, layer++) {
            begin(c, ITEM_OPAQUE, layer, "attn", 0);
            if (stage > 0 && i == 0) { /* four neighbours become one token of twice the width */
                side = (side + 1) / 2;
                elementwise(c, PIECE_MOVE, side * side, 4 * k.hidden);
                norm(c, side * side, 4 * k.hidden, 2);
                linear(c, side * side, 4 * k.hidden, 2 * k.hidden, 0);
                k = (struct stack){.hidden = 2 * k.hidden,
                                   .heads = 2 * k.heads,
                                   .keys_heads = 2 * k.heads,
                                   .head_dim = k.head_dim,
                                   .mlp = 2 * k.mlp,
                                   .norm = 2,
                                   .biases = true};
            }
            const int64_t window = side < s->block.window ? side : s->block.window;
            const int64_t windows = (side + window - 1) / window;
            const int64_t padded = windows * window * windows * window;
            self_attention(c, &k, padded, window * window, 1);
            elementwise(c, PIECE_MOVE, padded, k.hidden);
            elementwise(c, PIECE_MOVE, padded, k.hidden);
            numbers(c, (2 * s->block.window - 1) * (2 * s->block.window - 1) * k.heads);
            const int64_t act = side * side * k.hidden * c->m->elem_bytes;
            if (!c->no_memory)
                c->m->items[c->m->num_items - 1].act_bytes = act;
            begin(c, ITEM_OPAQUE, layer, "mlp", side * side * k.hidden);
            mlp(c, &k, side * side);
        }
    }
    begin(c, ITEM_NORM, layer, "norm", k.hidden);
    norm(c, side * side, k.hidden, 2);
    head(c, layer, 1, k.hidden, s->classes, true);
}

static int64_t vision_tower(struct composer *c)
{
    const struct model_spec *s = c->spec;
    const struct stack k = stack_of(s, 2, true);
    const int64_t rows = patches_of(s) + 1, h = s->hidden;
    patch_embedding(c, 1, false);
    elementwise(c, PIECE_ADD, rows, h);
    numbers(c, (rows + 1) * h);
    norm(c, rows, h, 2);
    for (int i = 0; i < s->num_layers; i++)
        plain_layer(c, &k, i, rows);
    return h;
}

/* CLIP's text tower has the dims of spec.encoder. */
static void text_tower(struct composer *c, int layer)
{
    const struct model_spec *s = c->spec;
    const int64_t rows = s->encoder.seq, h = s->encoder.hidden;
    const struct stack k = {.hidden = h,
                            .heads = s->encoder.heads,
                            .keys_heads = s->encoder.heads,
                            .head_dim = h / s->encoder.heads,
                            .mlp = s->encoder.mlp,
                            .norm = 2,
                            .biases = true,
                            .causal = true};
    begin(c, layer > 0 ? ITEM_OPAQUE : ITEM_EMBEDDING, layer > 0 ? layer : -1, "tokens", rows * h);
    table(c, rows, s->vocab, h);
    elementwise(c, PIECE_ADD, rows, h);
    numbers(c, rows * h);
    for (int i = 0; i < s->encoder.layers; i++)
        plain_layer(c, &k, layer + i, rows);
}

/* A tower's end: a norm, and the projection of one token. */
static void project(struct composer *c, enum item_kind kind, int layer, int64_t rows, int64_t width)
{
    begin(c, kind, layer, kind == ITEM_HEAD ? "head" : "norm", c->spec->project);
    norm(c, rows, width, 2);
    linear(c, 1, width, c->spec->project, 0);
}

static void build_clip_vision(struct composer *c)
{
    const int64_t h = vision_tower(c);
    project(c, ITEM_HEAD, c->spec->num_layers, 1, h);
}

static void build_clip_text(struct composer *c)
{
    text_tower(c, 0);
    project(c, ITEM_HEAD, c->spec->encoder.layers, c->spec->encoder.seq, c->spec->encoder.hidden);
}

/* Both towers, one after the other. The loss compares the images of a micro-batch with its texts, so
 * its products are as good as nothing beside theirs. */
static void build_clip(struct composer *c)
{
    const struct model_spec *s = c->spec;
    const int64_t h = vision_tower(c);
    project(c, ITEM_OPAQUE, s->num_layers - 1, 1, h);
    if (!c->no_memory) /* it goes to the loss by a skip, not to the text */
        c->m->items[c->m->num_items - 1].act_bytes = 0;
    const int seen = c->m->num_items - 1;
    text_tower(c, s->num_layers);
    project(c, ITEM_HEAD, s->num_layers + s->encoder.layers, s->encoder.seq, s->encoder.hidden);
    numbers(c, 1);
    skip(c, seen, s->project);
}

/* Latent images of an eighth of the side. Step and class make one vector, from which every layer gets
 * shifts, scales and gates of its norms by a linear (adaLN-Zero, figure 3). */
static void build_dit(struct composer *c)
{
    const struct model_spec *s = c->spec;
    const struct stack k = stack_of(s, 0, true);
    const int64_t side = s->image / 8 / s->patch, rows = side * side, h = s->hidden;
    const int64_t pixels = (int64_t)s->patch * s->patch * s->channels;
    begin(c, ITEM_EMBEDDING, -1, "embedding", rows * h);
    linear_of(c, PIECE_INPUT_DATA, rows, pixels, h, h);
    elementwise(c, PIECE_ADD, rows, h);
    linear_of(c, PIECE_INPUT_DATA, 1, 256, h, h);
    elementwise(c, PIECE_ACTIVATION, 1, h);
    linear(c, 1, h, h, h);
    table(c, 1, (int64_t)s->classes + 1, h);
    for (int i = 0; i < s->num_layers; i++) {
        begin(c, ITEM_OPAQUE, i, "attn", rows * h);
        linear_of(c, PIECE_INPUT_SKIP, 1, h, 6 * h, 6 * h);
        self_attention(c, &k, rows, rows, 1);
        skip(c, 0, h);
        elementwise(c, PIECE_MOVE, rows, h);
        elementwise(c, PIECE_MOVE, rows, h);
        begin(c, ITEM_OPAQUE, i, "mlp", rows * h);
        mlp(c, &k, rows);
        elementwise(c, PIECE_MOVE, rows, h);
        elementwise(c, PIECE_MOVE, rows, h);
    }
    begin(c, ITEM_NORM, s->num_layers, "norm", rows * h);
    linear_of(c, PIECE_INPUT_SKIP, 1, h, 2 * h, 2 * h);
    norm(c, rows, h, 0);
    elementwise(c, PIECE_MOVE, rows, h);
    skip(c, 0, h);
    begin(c, ITEM_HEAD, s->num_layers, "head", 0);
    linear(c, rows, h, 2 * pixels, 2 * pixels);
    elementwise(c, PIECE_MOVE, rows, 2 * pixels);
}

static const struct composed_type {
    const char *name;
    void (*build)(struct composer *c);
    bool images;
    const char *keys; /* beside hidden, heads, mlp and dtype; each is a dim that must be set */
} composed_types[] = {
    {"t5",                build_t5,          false, " layers vocab seq encoder_seq encoder_layers "                 },
    {"whisper",           build_whisper,     false, " layers vocab seq encoder_seq encoder_layers channels "        },
    {"mllama_text_model", build_mllama,      false, " layers vocab seq encoder_seq "                                },
    {"deit",              build_deit,        true,  " layers image patch channels classes "                         },
    {"swin",              build_swin,        true,  " image patch channels classes window "                         },
    {"clip",              build_clip,        true,  " layers image patch channels vocab encoder_seq encoder_layers "},
    {"clip_vision_model", build_clip_vision, true,  " layers image patch channels "                                 },
    {"clip_text_model",   build_clip_text,   false, " vocab encoder_seq encoder_layers "                            },
    {"dit",               build_dit,         true,  " layers image patch channels classes "                         },
};
enum { NUM_COMPOSED = sizeof composed_types / sizeof composed_types[0] };

static const struct composed_type *composed_type_find(const char *name)
{
    for (int i = 0; i < NUM_COMPOSED && name; i++)
        if (strcmp(name, composed_types[i].name) == 0)
            return &composed_types[i];
    return NULL;
}

static bool has_key(const struct composed_type *type, const char *key)
{
    char word[40];
    snprintf(word, sizeof word, " %s ", key);
    return strstr(" hidden heads mlp dtype ", word) || (type && strstr(type->keys, word));
}

bool composed_has_key(const char *type, const char *key)
{
    return has_key(composed_type_find(type), key);
}

/* --- sums ------------------------------------------------------------------------------------- */

static wide piece_flops(const struct model_piece *p)
{
    if (p->kind == PIECE_LINEAR)
        return 2 * (wide)p->rows * p->in * p->out;
    return p->kind == PIECE_CORE ? 4 * (wide)p->rows * p->keys * p->heads * p->in : 0;
}

static wide piece_stash(const struct model_piece *p, wide e)
{
    const wide x = (wide)p->rows * p->in * e;
    switch (p->kind) {
    case PIECE_LINEAR:
        return p->input == PIECE_INPUT_SKIP ? 0 : x;
    case PIECE_NORM:
        return x + 8 * (wide)p->rows;
    case PIECE_ACTIVATION:
        return x;
    case PIECE_GATE:
        return 2 * x;
    case PIECE_CORE:
        return (wide)p->in * e * (p->rows * p->heads + 2 * (wide)p->groups * p->keys * p->out) +
               4 * (wide)p->rows * p->heads;
    case PIECE_TABLE:
        return 8 * (wide)p->rows;
    case PIECE_LOSS:
        return 4 * (wide)p->rows * p->in;
    case PIECE_ADD:
    case PIECE_MOVE:
    case PIECE_NUMBERS:
        return 0;
    }
    return 0;
}

static bool sum_pieces(const struct model *m, struct item *item)
{
    wide params = 0, flops = 0, stash = 0;
    for (int i = 0; i < item->num_pieces; i++) {
        const struct model_piece *p = &m->pieces[item->first_piece + i];
        params += p->params;
        flops += piece_flops(p);
        stash += piece_stash(p, m->elem_bytes);
    }
    return item_store(params, &item->params) && item_store(flops, &item->fwd_flops) &&
           item_store(stash, &item->stash_bytes);
}

int64_t model_product_flops(const struct model *model, const struct item *item)
{
    wide sum = 0;
    if (item->kind == ITEM_STATE)
        return (int64_t)(model_state_work(model).linears / (model->tensor > 1 ? model->tensor : 1));
    for (int i = 0; i < item->num_pieces; i++)
        if (model->pieces[item->first_piece + i].kind == PIECE_LINEAR)
            sum += piece_flops(&model->pieces[item->first_piece + i]);
    return (int64_t)sum; /* at most fwd_flops */
}

/* --- from a spec ------------------------------------------------------------------------------ */

static enum status check_spec(const struct model_spec *s, const struct composed_type *type,
                              struct err *err)
{
    const bool dit = type->build == build_dit;
    const struct dim dims[] = {
        {"hidden",         s->hidden,         1 << 17             },
        {"heads",          s->heads,          1 << 12             },
        {"mlp",            s->mlp,            MODEL_DIM_MAX       },
        {"layers",         s->num_layers,     MODEL_LAYERS_MAX / 2},
        {"vocab",          s->vocab,          MODEL_VOCAB_MAX     },
        {"seq",            s->seq,            MODEL_DIM_MAX / 4   },
        {"encoder_seq",    s->encoder.seq,    MODEL_DIM_MAX / 4   },
        {"encoder_layers", s->encoder.layers, MODEL_LAYERS_MAX / 2},
        {"image",          s->image,          MODEL_IMAGE_MAX / 16},
        {"patch",          s->patch,          MODEL_IMAGE_MAX / 16},
        {"channels",       s->channels,       MODEL_CHANNELS_MAX  },
        {"classes",        s->classes,        MODEL_VOCAB_MAX     },
        {"window",         s->block.window,   4096                },
    };
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++) {
        const enum status rc =
            has_key(type, dims[i].name) ? model_check_dims(s->name, &dims[i], 1, err) : OK;
        if (rc != OK)
            return rc;
    }
    const int each = dit ? 8 * s->patch : s->patch;
    if (type->images && s->image % each != 0)
        return err_set(err, ERR_INPUT, "model '%s': image %d is not a multiple of patch %d%s",
                       s->name, s->image, s->patch,
                       dit ? " on latent images of an eighth of the side" : "");
    if (!s->head_dim && s->hidden % s->heads != 0)
        return err_set(err, ERR_INPUT, "model '%s': hidden %d is not a multiple of heads %d",
                       s->name, s->hidden, s->heads);
    if (type->build == build_whisper && s->seq > s->max_seq)
        return err_set(err, ERR_INPUT, "model '%s': seq must be 1..%d, got %d", s->name, s->max_seq,
                       s->seq);
    return OK;
}

enum status composed_build(const struct model_spec *spec, struct model *model, struct err *err)
{
    struct model got = {.family = FAMILY_COMPOSED,
                        .elem_bytes = spec->elem_bytes ? spec->elem_bytes : 4,
                        .dtype = spec->dtype,
                        .param_bytes = 4,
                        .tensor = 1,
                        .expert_ways = 1,
                        .vocab = spec->vocab,
                        .tied_head = spec->tied_head};
    struct composer c = {.spec = spec, .m = &got};
    const struct composed_type *type = composed_type_find(spec->type);
    if (!type)
        return err_set(
            err, ERR_INPUT,
            "model '%s': family composed has no dims of its own; take one of its presets",
            spec->name);
    enum status rc = check_spec(spec, type, err);
    if (rc != OK)
        return rc;
    snprintf(got.name, sizeof got.name, "%s", spec->name);
    got.task = type->images ? TASK_CLASSIFY : TASK_CAUSAL_LM;
    got.hidden = spec->hidden;
    if (type->images) {
        got.image = spec->image;
        got.patch = spec->patch;
        got.channels = spec->channels;
        got.classes = spec->classes;
    }
    got.seq = type->build == build_t5          ? spec->seq + spec->encoder.seq
              : type->build == build_clip_text ? spec->encoder.seq
              : type->images                   ? 1
                                               : spec->seq;
    type->build(&c);
    if (c.no_memory) {
        rc = err_nomem(err);
        goto out;
    }
    got.num_layers = got.items[got.num_items - 1].layer;
    for (int i = 0; i < got.num_items && rc == OK; i++)
        if (!sum_pieces(&got, &got.items[i]))
            rc = err_set(err, ERR_INPUT, "model '%s': the size of an item overflows", got.name);
    THEN(model_check_totals(&got, err));
    if (rc != OK)
        goto out;
    *model = got;
    got = (struct model){0};
out:
    model_clear(&got);
    return rc;
}
