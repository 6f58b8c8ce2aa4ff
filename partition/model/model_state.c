/* Items that carry a state from token to token in the place of attention: Mamba, Mamba-2, gated delta
 * nets, lightning attention. partition/cost/kernels.c lists their kernels.
 *
 * s tokens of a sample, h hidden, H heads of width P, D = H P; G groups of keys and queries, N numbers
 * of a key (and of a channel's state), C channels of the convolution over k tokens, Q tokens of a
 * chunk, R rank of Mamba's time steps, e bytes of an element.
 *
 * params: linears
 *     Mamba      h 2 D, D (R + 2 N), R D, D h              (Gu and Dao 2023, section 3.4)
 *     Mamba-2    h (2 D + 2 G N + H), D h                  (Dao and Gu 2024, section 7)
 *     delta      h (2 G N + 2 D + 2 H), D h                (Yang et al. 2024, section 3.4; Qwen3-Next)
 *     lightning  3 h D, a gate h D, D h                    (MiniMax-01, 2025, section 2.2)
 *   and the convolution C k (Mamba: C = D, Mamba-2: D + 2 G N, delta: 2 G N + D), biases, a decay, a
 *   skip and a bias of the time step for each head or channel, norms.
 * fwd_flops: two per weight of a linear and token; the convolution 2 C k a token; the scan, of chunks
 *   whose masked half counts, as attention's does:
 *     Mamba      7 D N a token: decay x state + input x B, output by C
 *     Mamba-2    in a chunk C B^T 2 Q N G and its product with x 2 Q D; the chunk's state 2 N D; its
 *                use 2 N D a token; 2 N D a chunk to pass it on (Dao and Gu 2024, section 6)
 *     delta      per head K K^T, W, U, the two products with the state, Q K^T, its product with the new
 *                values: 2 (3 Q N + 2 Q P + 3 N P), and Q^2 / 3 for the inverse of the chunk's
 *                triangle (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule",
 *                section 3.2; chunks of 64 as flash-linear-attention has them)
 *     lightning  Mamba-2's with a group for each head (Lightning Attention-2, Qin et al. 2024)
 *   Megatron-LM's own count of Mamba-2 has 7 D N for the scan (num_floating_point_operations()).
 * stash_bytes: norm input and the linears' input 2 [s, h], as attention; and
 *     Mamba      x, gate, convolved x, time steps, output, gated output 6 D; R + 2 N, twice with norms;
 *                states in fp32, D 2 N each 2,048 tokens (selective_scan_interface.py of mamba_ssm 2.2)
 *     Mamba-2    what the first linear gives, from which convolution and states are computed again; the
 *                scan's output, the last linear's input (MambaSplitConv1dScanCombinedFn of mamba_ssm)
 *     delta      the same, the convolved C with queries and keys repeated for each head of values, the
 *                chunks' triangles H Q, decay, rates and 1 / norms in fp32 (ChunkGatedDeltaRuleFunction
 *                of flash-linear-attention 0.4)
 *     lightning  queries, keys and values before and after their activation 6 D, output, normed output,
 *                gate, product 4 D (modeling_minimax.py of transformers) */
#include "partition/model/model_items.h"

#include <stdio.h>
#include <string.h>

#define SCAN_TOKENS 2048 /* of a state that Mamba's scan keeps */

/* Weights of linears and other parameters; channels of the convolution; elements and fp32 bytes that are
 * kept of a token, and bytes of a sample. */
struct state_size {
    wide weights, others, shared, channels, kept, kept_bytes, sample_bytes;
};

static wide chunk_of(const struct model *m)
{
    return m->state.chunk < m->seq ? m->state.chunk : m->seq;
}

static struct state_size size_of(const struct model *m)
{
    const struct state_space *t = &m->state;
    const wide h = m->hidden, H = t->heads, D = H * t->head_dim, N = t->state, keys = t->groups * N;
    const wide R = t->rank, k = t->conv;
    struct state_size got = {0};
    wide in = 0;
    switch ((enum mixer_kind)t->kind) {
    case MIXER_MAMBA:
        in = 2 * D;
        got.channels = D;
        got.weights = h * in + D * (R + 2 * N) + R * D + D * h;
        got.others = D * N + 2 * D + (t->inner_norms ? R + 2 * N : 0);
        got.kept = 6 * D + (t->inner_norms ? 2 : 1) * (R + 2 * N);
        got.sample_bytes = 8 * D * N * ((m->seq + SCAN_TOKENS - 1) / SCAN_TOKENS);
        break;
    case MIXER_MAMBA2:
        in = 2 * D + 2 * keys + H;
        got.channels = D + 2 * keys;
        got.weights = h * in + D * h;
        got.others = 3 * H + (t->norm ? D : 0);
        got.kept = in + 2 * D;
        got.kept_bytes = t->norm ? 4 * t->groups : 0;
        break;
    case MIXER_DELTA:
        in = 2 * keys + 2 * D + 2 * H;
        got.channels = 2 * keys + D;
        got.weights = h * in + D * h;
        got.shared = t->head_dim;
        got.others = 2 * H + got.shared;
        got.kept = in + 2 * H * N + D + H * chunk_of(m) + 2 * D;
        got.kept_bytes = 20 * H;
        break;
    case MIXER_LIGHTNING:
        in = 4 * D;
        got.weights = h * in + D * h;
        got.others = D;
        got.kept = 10 * D;
        got.kept_bytes = 4;
        break;
    case MIXER_NONE:
        break;
    }
    got.others +=
        got.channels * (k + (t->conv_bias ? 1 : 0)) + (t->bias ? in : 0) + (t->out_bias ? h : 0);
    return got;
}

static wide scan_flops(const struct model *m)
{
    const struct state_space *t = &m->state;
    const wide s = m->seq, H = t->heads, P = t->head_dim, D = H * P, N = t->state, Q = chunk_of(m);
    switch ((enum mixer_kind)t->kind) {
    case MIXER_MAMBA:
        return 7 * s * D * N;
    case MIXER_DELTA:
        return s * H * (2 * (3 * Q * N + 2 * Q * P + 3 * N * P) + Q * Q / 3);
    case MIXER_MAMBA2:
    case MIXER_LIGHTNING:
        return 2 * s * (Q * N * t->groups + Q * D + 2 * N * D) + (s + Q - 1) / Q * 2 * N * D;
    case MIXER_NONE:
        break;
    }
    return 0;
}

static wide conv_flops(const struct model *m, const struct state_size *size)
{
    return 2 * (wide)m->seq * size->channels * m->state.conv;
}

struct state_work model_state_work(const struct model *model)
{
    const struct state_size size = size_of(model);
    return (struct state_work){.linears = 2.0 * model->seq * (double)size.weights,
                               .shared_params = (int64_t)size.shared};
}

bool state_fill(const struct model *model, int layer, struct item *item)
{
    static const char *const names[] = {"?", "mamba", "mamba", "delta", "linear"};
    const wide s = model->seq, h = model->hidden, e = model->elem_bytes;
    const struct state_size size = size_of(model);
    const wide statistics = model->rms_norm ? 4 : 8;
    struct item beside = {.params = model_norm_params(model),
                          .stash_bytes = (int64_t)(s * (2 * h * e + statistics))};
    char name[32];
    snprintf(name, sizeof name, "%s%d", names[model->state.kind], layer);
    if (model->state.beside_attention && !llama_fill_attention(model, layer, &beside))
        return false;
    return item_fill(
        item, ITEM_STATE, layer, name, size.weights + size.others + beside.params,
        2 * s * size.weights + conv_flops(model, &size) + scan_flops(model) + beside.fwd_flops,
        s * h * e, s * (size.kept * e + size.kept_bytes) + size.sample_bytes + beside.stash_bytes);
}

enum status state_resolve(const struct model_spec *spec, struct model *model, struct err *err)
{
    const struct state_space *t = &spec->state;
    const size_t letters = strlen(spec->pattern);
    model->state = *t;
    if (letters == 0) {
        model->state.kind = MIXER_NONE;
        return OK;
    }
    memcpy(model->pattern, spec->pattern, letters + 1);
    model->layer_items = spec->layer_items;
    if (letters != (size_t)model->num_layers * (size_t)spec->layer_items)
        return err_set(err, ERR_INPUT, "model '%s': layers must be %zu, as its pattern has, got %d",
                       spec->name, letters / (size_t)spec->layer_items, model->num_layers);
    if (!strchr(spec->pattern, 'M')) {
        model->state.kind = MIXER_NONE;
        return OK;
    }
    const int64_t width = (int64_t)t->heads * t->head_dim;
    const bool mamba = t->kind == MIXER_MAMBA;
    const struct dim dims[] = {
        {"heads of states",       t->heads,                                       MODEL_DIM_MAX},
        {"width of their heads",  t->head_dim,                                    MODEL_DIM_MAX},
        {"states of all heads",   width > MODEL_DIM_MAX ? INT32_MAX : (int)width, MODEL_DIM_MAX},
        {"width of a state",      t->state,                                       1 << 14      },
        {"heads of states' keys", t->groups,                                      t->heads     },
        {"chunk of states",       mamba ? 1 : t->chunk,                           1 << 16      },
        {"rank of time steps",    mamba ? t->rank : 1,                            MODEL_DIM_MAX},
        {"states' convolution",   t->conv,                                        256          },
    };
    return model_check_dims(spec->name, dims, 7 + (t->kind != MIXER_LIGHTNING), err);
}
