/* tests/unit/ref64.h - the slow obvious answers: forward passes in double by plain loops. Gradients are
 * judged by central differences of these, never by another hand-written backward. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static inline void ref_linear(const double *x, const double *w, const double *b, int rows, int in,
                              int out, bool in_out, double *y)
{
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < out; o++) {
            double sum = b ? b[o] : 0.0;
            for (int i = 0; i < in; i++)
                sum += x[r * in + i] * (in_out ? w[i * out + o] : w[o * in + i]);
            y[r * out + o] = sum;
        }
}

static inline double ref_gelu(double x, bool tanh_form)
{
    if (tanh_form)
        return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x / 1.4142135623730951));
}

static inline void ref_layernorm(const double *x, const double *g, const double *b, int rows,
                                 int cols, double eps, double *y)
{
    for (int r = 0; r < rows; r++) {
        double mean = 0, var = 0;
        for (int c = 0; c < cols; c++)
            mean += x[r * cols + c] / cols;
        for (int c = 0; c < cols; c++)
            var += (x[r * cols + c] - mean) * (x[r * cols + c] - mean) / cols;
        for (int c = 0; c < cols; c++)
            y[r * cols + c] = (x[r * cols + c] - mean) / sqrt(var + eps) * g[c] + b[c];
    }
}

static inline double ref_act(double x, bool silu)
{
    return silu ? x / (1 + exp(-x)) : ref_gelu(x, true);
}

static inline void ref_rmsnorm(const double *x, const double *g, double plus, int rows, int cols,
                               double eps, double *y)
{
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int c = 0; c < cols; c++)
            sum += x[r * cols + c] * x[r * cols + c] / cols;
        for (int c = 0; c < cols; c++)
            y[r * cols + c] = x[r * cols + c] / sqrt(sum + eps) * (plus + g[c]);
    }
}

/* x [rows, heads + 2 kv, d] -> qkv [rows, 3, heads, d]; angles [seq, d / 2, 2]; gamma [2, d] or
 * NULL. */
static inline void ref_rotary(const double *x, const float *angles, const double *gamma,
                              double plus, double eps, int rows, int seq, int heads, int kv, int d,
                              double *qkv)
{
    for (int r = 0; r < rows; r++)
        for (int kind = 0; kind < 3; kind++)
            for (int h = 0; h < heads; h++) {
                const int from = kind == 0 ? h : heads + (kind - 1) * kv + h / (heads / kv);
                const double *in = x + (r * (heads + 2 * kv) + from) * d;
                double *out = qkv + ((r * 3 + kind) * heads + h) * d, normed[64];
                if (gamma && kind < 2) {
                    ref_rmsnorm(in, gamma + kind * d, plus, 1, d, eps, normed);
                    in = normed;
                }
                for (int i = 0; i < d / 2; i++) {
                    const float *turn = angles + (r % seq) * d + 2 * i;
                    const double c = kind < 2 ? turn[0] : 1, s = kind < 2 ? turn[1] : 0;
                    out[i] = in[i] * c - in[i + d / 2] * s;
                    out[i + d / 2] = in[i + d / 2] * c + in[i] * s;
                }
            }
}

/* qkv [n, seq, 3, heads, d]; keep, when not NULL, multiplies probability [n, heads, seq, seq]. */
static inline void ref_attention_from(const double *qkv, int n, int seq, int heads, int d,
                                      bool causal, const int32_t *lengths, int window,
                                      const int32_t *starts, const double *keep, double *ctx)
{
    const int h = heads * d;
    for (int s = 0; s < n; s++)
        for (int a = 0; a < heads; a++)
            for (int i = 0; i < seq; i++) {
                const double *q = qkv + ((s * seq + i) * 3) * h + a * d;
                int keys = lengths ? lengths[s] : seq;
                double sum = 0, p[256];
                if (causal && keys > i + 1)
                    keys = i + 1;
                int first = starts ? starts[s * seq + i] : 0;
                if (window && i + 1 - window > first)
                    first = i + 1 - window;
                if (first > keys - 1)
                    first = keys - 1;
                for (int j = first; j < keys; j++) {
                    const double *k = qkv + ((s * seq + j) * 3 + 1) * h + a * d;
                    double dot = 0;
                    for (int c = 0; c < d; c++)
                        dot += q[c] * k[c];
                    sum += p[j] = exp(dot / sqrt(d));
                }
                for (int c = 0; c < d; c++) {
                    double out = 0;
                    for (int j = first; j < keys; j++) {
                        const double m = keep ? keep[((s * heads + a) * seq + i) * seq + j] : 1.0;
                        out += m * p[j] / sum * qkv[((s * seq + j) * 3 + 2) * h + a * d + c];
                    }
                    ctx[(s * seq + i) * h + a * d + c] = out;
                }
            }
}

static inline void ref_attention(const double *qkv, int n, int seq, int heads, int d, bool causal,
                                 const int32_t *lengths, const double *keep, double *ctx)
{
    ref_attention_from(qkv, n, seq, heads, d, causal, lengths, 0, NULL, keep, ctx);
}

static inline double ref_xent(const double *logits, int stride, int classes, int label,
                              double smoothing)
{
    double sum = 0, mean = 0;
    for (int c = 0; c < classes; c++) {
        sum += exp(logits[c * stride]);
        mean += logits[c * stride] / classes;
    }
    return log(sum) - (1 - smoothing) * logits[label * stride] - smoothing * mean;
}
