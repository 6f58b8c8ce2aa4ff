/* exec/cuda/cuda_rows.c - measures bits_independent_of_row_position: whether a linear layer gives
 * a row the same bits at any position in its matrix. Runs a few layers twice, with the rows
 * shifted, and compares. */
#include <stdlib.h>
#include <string.h>

#include "exec/base/bf16.h"
#include "exec/cuda/cuda_choice.h"
#include "exec/cuda/cuda_internal.h"
#include "exec/base/rng.h"

/* Layers of one tile and of several, none of whole tiles, because a library has different kernels
 * for each. */
static const struct probe {
    int rows, in, out;
    enum act act;
} probes[] = {
    {61,   64,  64,  ACT_NONE     },
    {197,  192, 576, ACT_NONE     },
    {400,  256, 64,  ACT_GELU_TANH},
    {1000, 64,  256, ACT_GELU_ERF },
};

/* Fills with numbers in [-1, 1) that repeat after `period`. */
static void fill(const struct backend *be, void *to, int64_t num, int64_t period, uint64_t key)
{
    for (int64_t i = 0; i < num; i++) {
        const float x = (float)rng_bits(key, (uint32_t)(i % period)) * 0x1p-31f - 1.0f;
        if (be->elem_bytes == 2)
            ((uint16_t *)to)[i] = bf16_from(x);
        else
            ((float *)to)[i] = x;
    }
}

/* The operands of a probe on the device, and its results on the host. */
struct operands {
    char *x, *w, *bias, *pre, *y; /* x: the rows, twice in succession */
    char *first, *moved;
    int64_t x_bytes, w_bytes, row_bytes, y_bytes; /* row: a row of y */
};

static struct operands operands_of(const struct backend *be, const struct probe *q)
{
    return (struct operands){.x_bytes = 2 * backend_bytes(be, (int64_t)q->rows * q->in),
                             .w_bytes = backend_bytes(be, (int64_t)q->in * q->out),
                             .row_bytes = backend_bytes(be, q->out),
                             .y_bytes = q->rows * backend_bytes(be, q->out)};
}

/* Runs the layer with every row `shift` places further down, and the last rows at the top. */
static void run(struct backend *be, const struct probe *q, const struct operands *o, int shift,
                char *y)
{
    const struct linear l = {.rows = q->rows, .in = q->in, .out = q->out};
    const char *x = o->x + (shift > 0 ? q->rows - shift : 0) * backend_bytes(be, q->in);
    be->linear_forward(be, &l, x, o->w, o->bias, q->act, NULL, NULL,
                       q->act == ACT_NONE ? NULL : o->pre, o->y);
    be->copy_out(be, y, o->y, o->y_bytes);
}

static bool same_rows(const struct operands *o, int shift)
{
    const size_t down = (size_t)(shift * o->row_bytes), rest = (size_t)o->y_bytes - down;
    return memcmp(o->moved + down, o->first, rest) == 0 &&
           memcmp(o->moved, o->first + rest, down) == 0;
}

/* Whether a layer gives a row the same bits at several places. false also if memory runs out. */
static bool rows_agree(struct backend *be, const struct probe *q)
{
    const int shifts[] = {1, 5, q->rows / 2};
    struct operands o = operands_of(be, q);
    const int64_t in_bytes = o.x_bytes + o.w_bytes + o.row_bytes;
    struct err broken = {0};
    void *device = NULL;
    char *host = malloc((size_t)(in_bytes + 2 * o.y_bytes));
    bool agree = host && be->alloc(be, in_bytes + 2 * o.y_bytes, &device, NULL) == OK;
    if (agree) {
        o.x = device;
        o.w = o.x + o.x_bytes;
        o.bias = o.w + o.w_bytes;
        o.y = o.bias + o.row_bytes;
        o.pre = o.y + o.y_bytes;
        o.first = host + in_bytes;
        o.moved = o.first + o.y_bytes;
        fill(be, host, 2 * (int64_t)q->rows * q->in, (int64_t)q->rows * q->in, 1);
        fill(be, host + o.x_bytes, (int64_t)q->in * q->out, (int64_t)q->in * q->out, 2);
        fill(be, host + o.x_bytes + o.w_bytes, q->out, q->out, 3);
        be->copy_in(be, device, host, in_bytes);
        run(be, q, &o, 0, o.first);
    }
    for (size_t i = 0; agree && i < sizeof shifts / sizeof *shifts; i++) {
        run(be, q, &o, shifts[i], o.moved);
        if (be->sync(be, &broken) != OK) { /* leave it for the next sync() to report */
            cuda_note_text(broken.status, "%s", broken.msg);
            agree = false;
        }
        agree = agree && same_rows(&o, shifts[i]);
    }
    be->free(be, device);
    free(host);
    return agree;
}

/* Not for a profiler: it would time these shapes and keep the results, and it does not need the
 * answer. */
static void measure_row_position(struct backend *be)
{
    struct cuda_backend *cuda = cuda_of(be);
    if (cuda->row_position_known || cuda_choices_tune(cuda->choices))
        return;
    cuda->row_position_known = be->bits_independent_of_row_position = true;
    for (size_t i = 0; i < sizeof probes / sizeof *probes && be->bits_independent_of_row_position;
         i++)
        be->bits_independent_of_row_position = rows_agree(be, &probes[i]);
}

void cuda_rows_install(struct backend *be)
{
    be->measure_row_position = measure_row_position;
}
