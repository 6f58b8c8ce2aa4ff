/* Attention by cuDNN (exec/cuda/cuda_attention_pick.h) against the cpu backend in fp32 and, where
 * cuDNN must not serve, against our own kernels bit by bit.
 *
 * Without a GPU (ELAPSE_TEST_DEVICE is not cuda) cuDNN is tests/cudasim/cudasim_dnn.cpp, which
 * computes what the graphs say; the installed library itself judges the graphs and compiles their
 * kernels, for GPUs that are not there. On a GPU the installed library serves. Skipped where none
 * of this is there.
 * group: emulated, seconds: 51 */
#include <dlfcn.h>
#include <unistd.h>

#include "exec/base/backend.h"
#include "exec/base/bf16.h"
#include "exec/base/plugin.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/cuda/cuda_cudnn.h"
#include "exec/device/cuda_load.h"
#include "tests/unit/test.h"

enum { MAX_SAMPLES = 3, FIRST_KEY = 40 };

static bool emulated;
static char emulation[4096];
static struct backend *cpu, *own;
static int (*served)(struct backend *be, bool backward);
static void (*set_streams)(unsigned mode);

/* The results of one call of each direction. */
struct results {
    int64_t ctx_elems, lse_elems;
    uint16_t *ctx, *dqkv; /* dqkv: 3 ctx_elems */
    float *lse;
};
static void results_clear(struct results *r)
{
    free(r->ctx);
    free(r->dqkv);
    free(r->lse);
    *r = (struct results){0};
}

struct problem {
    int n, seq, heads, dim;
    bool causal, padded, in_place;
    float p;
    int off; /* elements behind an aligned address */
};

/* attention NULL: the default. */
static struct backend *open_as(const char *attention, bool tune)
{
    struct err err = {0};
    if (attention)
        setenv("ELAPSE_ATTENTION", attention, 1);
    struct backend *be = cuda_load_backend(
        &(struct cuda_spec){.dtype = DTYPE_BF16, .threads = 1, .tune = tune}, &err);
    unsetenv("ELAPSE_ATTENTION");
    if (!be)
        fail_msg("%s", err.msg);
    return be;
}
static struct backend *open_with(const char *attention)
{
    return open_as(attention, false);
}

static void *bytes_on(struct backend *be, int64_t bytes)
{
    struct err err = {0};
    void *at = NULL;
    if (be->alloc(be, bytes, &at, &err) != OK)
        fail_msg("%s", err.msg);
    return at;
}
static void *host(int64_t bytes)
{
    void *at = bytes > 0 ? malloc((size_t)bytes) : NULL;
    assert_non_null(at);
    return at;
}

static void lengths_of(const struct problem *q, int32_t lengths[MAX_SAMPLES])
{
    const int32_t all[MAX_SAMPLES] = {q->seq - q->seq / 3, q->seq, 1};
    memcpy(lengths, all, sizeof all);
}

/* Normal numbers in bf16, the same for the same key. */
static uint16_t *numbers(uint64_t key, int64_t num)
{
    uint16_t *x = host(num * 2);
    for (int64_t i = 0; i < num; i++)
        x[i] = bf16_from((float)rng_normal(rng_mix(key), (uint64_t)i));
    return x;
}

/* Checks the sums of a gradient's columns, which a call can make in several ways. */
static void check_sums(const float *sums, const uint16_t *x, int64_t rows, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0.0, size = 0.0;
        for (int64_t r = 0; r < rows; r++) {
            sum += bf16_to(x[r * cols + c]);
            size += fabs(bf16_to(x[r * cols + c]));
        }
        if (!(fabs(sums[c] - sum) <= 2e-3 * size))
            fail_msg("column %lld sums to %g, must be %g", (long long)c, sums[c], sum);
    }
}

static struct results on_device(struct backend *be, const struct problem *q)
{
    static const int64_t ids[MAX_SAMPLES] = {1000, 17, 4};
    struct err err = {0};
    struct results r = {.ctx_elems = (int64_t)q->n * q->seq * q->heads * q->dim,
                        .lse_elems = (int64_t)q->n * q->seq * q->heads};
    const int64_t ctx_bytes = r.ctx_elems * 2, off = q->off * 2;
    int32_t lengths[MAX_SAMPLES];
    uint16_t *qkv = numbers(FIRST_KEY, 3 * r.ctx_elems);
    uint16_t *dctx = numbers(FIRST_KEY + 1, r.ctx_elems);
    lengths_of(q, lengths);
    char *held[8];
    const int64_t cols = 3 * (int64_t)q->heads * q->dim;
    const int64_t sizes[8] = {3 * ctx_bytes,   ctx_bytes,      ctx_bytes,  3 * ctx_bytes,
                              r.lse_elems * 4, sizeof lengths, sizeof ids, cols * 4};
    for (int i = 0; i < 8; i++)
        held[i] = bytes_on(be, sizes[i] + off);
    char *qkv_d = held[0] + off, *dctx_d = held[1] + off, *ctx_d = held[2] + off;
    char *dqkv_d = q->in_place ? qkv_d : held[3] + off;
    float *lse_d = (float *)(void *)held[4];
    be->copy_in(be, qkv_d, qkv, 3 * ctx_bytes);
    be->copy_in(be, dctx_d, dctx, ctx_bytes);
    be->copy_in(be, held[5], lengths, sizeof lengths);
    be->copy_in(be, held[6], ids, sizeof ids);
    const struct attention a = {.num_samples = q->n,
                                .seq = q->seq,
                                .heads = q->heads,
                                .head_dim = q->dim,
                                .causal = q->causal,
                                .lengths = q->padded ? (int32_t *)(void *)held[5] : NULL,
                                .dqkv_sums = (float *)(void *)held[7]};
    const struct dropout drop = {q->p, 5, (int64_t *)(void *)held[6], 0};
    be->attention_forward(be, &a, qkv_d, &drop, ctx_d, lse_d);
    const bool said = be->sums_dqkv(be, &a, &drop);
    be->attention_backward(be, &a, qkv_d, &drop, ctx_d, lse_d, dctx_d, dqkv_d);
    assert_int_equal(be->sums_dqkv(be, &a, &drop), said); /* the weights' half asks again */
    float *sums = host(cols * 4);
    be->copy_out(be, sums, held[7], cols * 4);
    r.ctx = host(ctx_bytes);
    r.dqkv = host(3 * ctx_bytes);
    r.lse = host(r.lse_elems * 4);
    be->copy_out(be, r.ctx, ctx_d, ctx_bytes);
    be->copy_out(be, r.dqkv, dqkv_d, 3 * ctx_bytes);
    be->copy_out(be, r.lse, lse_d, r.lse_elems * 4);
    if (be->sync(be, &err) != OK)
        fail_msg("%s", err.msg);
    check_sums(sums, r.dqkv, (int64_t)q->n * q->seq, cols);
    for (int i = 0; i < 8; i++)
        be->free(be, held[i]);
    free(sums);
    free(qkv);
    free(dctx);
    return r;
}

static void near(const char *what, const uint16_t *got, const float *want, int64_t rows,
                 int64_t row_elems, int64_t stride, double tolerance)
{
    double off = 0.0, size = 0.0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = r * stride; i < r * stride + row_elems; i++) {
            const double d = bf16_to(got[i]) - (double)want[i];
            off += d * d;
            size += (double)want[i] * want[i];
        }
    if (!(sqrt(off) <= tolerance * sqrt(size)))
        fail_msg("%s: relative error %.3g, allowed %.3g", what, sqrt(off / size), tolerance);
}

static void judge_by_cpu(const struct problem *q, const struct results *r)
{
    const int64_t width = (int64_t)q->heads * q->dim, rows = (int64_t)q->n * q->seq;
    float *qkv = host(3 * r->ctx_elems * 4), *dctx = host(r->ctx_elems * 4);
    float *ctx = host(r->ctx_elems * 4), *dqkv = host(3 * r->ctx_elems * 4);
    float *lse = host(r->lse_elems * 4);
    uint16_t *low = numbers(FIRST_KEY, 3 * r->ctx_elems);
    bf16_widen(3 * r->ctx_elems, low, qkv);
    free(low);
    low = numbers(FIRST_KEY + 1, r->ctx_elems);
    bf16_widen(r->ctx_elems, low, dctx);
    free(low);
    int32_t lengths[MAX_SAMPLES];
    lengths_of(q, lengths);
    const struct attention a = {.num_samples = q->n,
                                .seq = q->seq,
                                .heads = q->heads,
                                .head_dim = q->dim,
                                .causal = q->causal,
                                .lengths = q->padded ? lengths : NULL};
    const struct dropout off = {0};
    cpu->attention_forward(cpu, &a, qkv, &off, ctx, lse);
    cpu->attention_backward(cpu, &a, qkv, &off, ctx, lse, dctx, dqkv);
    near("ctx", r->ctx, ctx, rows, width, width, 6e-3);
    for (int part = 0; part < 3; part++)
        near(part == 0   ? "dq"
             : part == 1 ? "dk"
                         : "dv",
             r->dqkv + part * width, dqkv + part * width, rows, width, 3 * width, 1.2e-2);
    for (int64_t i = 0; i < r->lse_elems; i++)
        if (!(fabs((double)r->lse[i] - lse[i]) <= 2e-3 * (1.0 + fabs((double)lse[i]))))
            fail_msg("lse %lld is %g, must be %g", (long long)i, (double)r->lse[i], (double)lse[i]);
    free(qkv);
    free(dctx);
    free(ctx);
    free(dqkv);
    free(lse);
}

static void same_bits(const struct results *a, const struct results *b)
{
    assert_memory_equal(a->ctx, b->ctx, (size_t)a->ctx_elems * 2);
    assert_memory_equal(a->lse, b->lse, (size_t)a->lse_elems * 4);
    assert_memory_equal(a->dqkv, b->dqkv, (size_t)a->ctx_elems * 6);
}
/* The problem gives on `be` what it gives on our own kernels. */
static void own_kernels_serve(struct backend *be, const struct problem *q)
{
    struct results got = on_device(be, q), want = on_device(own, q);
    same_bits(&got, &want);
    results_clear(&got);
    results_clear(&want);
}

/* Lines on stderr that say which kernels keep a shape, between the two. */
static FILE *listening;
static int real_stderr;
static void listen(void)
{
    fflush(stderr);
    listening = tmpfile();
    real_stderr = dup(STDERR_FILENO);
    assert_true(listening && real_stderr >= 0);
    dup2(fileno(listening), STDERR_FILENO);
}
static int heard(void)
{
    char line[2048];
    int lines = 0;
    fflush(stderr);
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    rewind(listening);
    while (fgets(line, sizeof line, listening))
        lines += strncmp(line, "elapse: attention", 17) == 0;
    fclose(listening);
    return lines;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void cudnn__agrees_with_the_cpu_and_repeats_its_bits(void **state)
{
    static const int dims[] = {64, 32, 128, 96, 40};
    (void)state;
    if (!own)
        skip();
    for (unsigned late = 0; late < (emulated ? 2 : 1); late++) {
        struct backend *be = open_with("cudnn");
        if (emulated)
            set_streams(late);
        for (int form = 0; form < 10; form++) {
            const struct problem q = {.n = form & 2 ? 3 : 2,
                                      .seq = form < 8 ? 37 + form : 97 + form * 11, /* 185, 196 */
                                      .heads = 2,
                                      .dim = dims[form % 5],
                                      .causal = form & 1,
                                      .padded = form & 2,
                                      .in_place = form & 4};
            struct results first = on_device(be, &q), again = on_device(be, &q);
            judge_by_cpu(&q, &first);
            same_bits(&first, &again); /* the first use is no other than those after it */
            results_clear(&first);
            results_clear(&again);
        }
        if (emulated) {
            assert_int_equal(served(be, false), 10);
            assert_int_equal(served(be, true), 10);
        } else {
            print_message("cuDNN serves %d of 10 forward, %d backward\n", served(be, false),
                          served(be, true));
        }
        backend_free(be);
        if (emulated)
            set_streams(0);
    }
}

static void lengths__go_with_every_batch_where_the_version_wants_them(void **state)
{
    const struct problem q = {.n = 2, .seq = 37, .heads = 2, .dim = 64};
    (void)state;
    if (!emulated)
        skip();
    setenv("ELAPSE_CUDASIM_CUDNN", "odd", 1);
    struct backend *be = open_with("cudnn");
    struct results r = on_device(be, &q);
    unsetenv("ELAPSE_CUDASIM_CUDNN");
    judge_by_cpu(&q, &r);
    assert_int_equal(served(be, true), 1);
    results_clear(&r);
    backend_free(be);
}

static void first_use__keeps_our_kernels_where_cudnn_will_not_do(void **state)
{
    static const struct {
        const char *name, *value;
        int lines; /* one for each direction, or one for all */
    } ways[] = {
        {"ELAPSE_CUDASIM_CUDNN", "refuse", 2},
        {"ELAPSE_CUDASIM_CUDNN", "wrong",  2},
        {"ELAPSE_CUDASIM_CUDNN", "old",    1},
        {"ELAPSE_CUDASIM_FAULT", "cudnn",  2},
    };
    (void)state;
    if (!emulated)
        skip();
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int in_place = 0; in_place < 2; in_place++) {
            const struct problem q = {.n = 2,
                                      .seq = 37,
                                      .heads = 2,
                                      .dim = 64,
                                      .causal = true,
                                      .padded = true,
                                      .in_place = in_place};
            setenv(ways[way].name, ways[way].value, 1);
            listen();
            struct backend *be = open_with("cudnn");
            own_kernels_serve(be, &q);
            own_kernels_serve(be, &q); /* decided once, said once */
            const int lines = heard();
            unsetenv(ways[way].name);
            own_kernels_serve(be, &q);
            assert_int_equal(served(be, false) + served(be, true), 0);
            assert_int_equal(lines, ways[way].lines);
            backend_free(be);
        }
}

/* Its workspace is no part of what a plan announces. */
static void first_use__keeps_our_kernels_without_memory_for_cudnns(void **state)
{
    enum { SLAB = 64 << 20, TENSORS = 132864 }; /* of exec/cuda/cuda_arena.c; of on_device() */
    const struct problem q = {.n = 2, .seq = 64, .heads = 1, .dim = 64};
    static const struct {
        int64_t room; /* beside the tensors */
        int served;
    } cases[] = {
        {16896,              0}, /* our ctx and lse to compare with, no more */
        {49152 + 256 + 1024, 1}, /* our dqkv, too, and what cuDNN's forward takes */
    };
    (void)state;
    if (!emulated)
        skip();
    for (int i = 0; i < 2; i++) {
        struct backend *be = open_with("cudnn");
        bytes_on(be, SLAB - TENSORS - cases[i].room);
        setenv("ELAPSE_CUDASIM_FAULT", "malloc", 1);
        listen();
        struct results r = on_device(be, &q);
        unsetenv("ELAPSE_CUDASIM_FAULT");
        assert_int_equal(heard(), 2 - cases[i].served);
        judge_by_cpu(&q, &r);
        assert_int_equal(served(be, false), cases[i].served);
        assert_int_equal(served(be, true), 0);
        results_clear(&r);
        backend_free(be);
    }
}

static void later_failure__goes_back_to_our_kernels(void **state)
{
    const struct problem q = {.n = 2, .seq = 64, .heads = 1, .dim = 64};
    (void)state;
    if (!emulated)
        skip();
    struct backend *be = open_with("cudnn");
    struct results r = on_device(be, &q);
    results_clear(&r);
    assert_int_equal(served(be, false) + served(be, true), 2);
    setenv("ELAPSE_CUDASIM_FAULT", "cudnn", 1);
    listen();
    own_kernels_serve(be, &q);
    unsetenv("ELAPSE_CUDASIM_FAULT");
    own_kernels_serve(be, &q);
    assert_int_equal(heard(), 2);
    assert_int_equal(served(be, false) + served(be, true), 0);
    backend_free(be);
}

static void dropout_and_odd_addresses__are_for_our_kernels(void **state)
{
    const struct problem dropped = {.n = 2, .seq = 37, .heads = 2, .dim = 64, .p = 0.1f};
    const struct problem odd = {.n = 2, .seq = 37, .heads = 2, .dim = 64, .off = 1};
    (void)state;
    if (!own)
        skip();
    struct backend *be = open_with("cudnn");
    own_kernels_serve(be, &dropped);
    own_kernels_serve(be, &odd);
    assert_int_equal(served(be, false) + served(be, true), 0);
    backend_free(be);
}

/* --- choices by time ------------------------------------------------------------------------- */

static int serves(struct backend *be)
{
    return served(be, false) + served(be, true);
}
/* Problem q on a fresh backend that was given these choices; how many directions cuDNN served. */
static int served_given(const struct problem *q, const struct library_choice *given, int num)
{
    struct err err = {0};
    struct backend *be = open_as(NULL, false);
    assert_int_equal(be->choose(be, given, num, &err), OK);
    own_kernels_serve(be, &(struct problem){.n = 1, .seq = 9, .heads = 1, .dim = 64});
    struct results r = on_device(be, q);
    const int count = serves(be);
    const struct library_choice *made;
    assert_int_equal(be->choices(be, &made), 0); /* a run times nothing */
    judge_by_cpu(q, &r);
    results_clear(&r);
    backend_free(be);
    return count;
}

/* Stores the choices that a profiler makes on q in made[2]. */
static void find_choices(const struct problem *q, const char *mode, struct library_choice made[2])
{
    const struct library_choice *list;
    setenv("ELAPSE_CUDASIM_CUDNN", mode, 1);
    struct backend *be = open_as(NULL, true);
    struct results first = on_device(be, q), again = on_device(be, q);
    unsetenv("ELAPSE_CUDASIM_CUDNN");
    same_bits(&first, &again); /* what was timed beside it left no trace */
    judge_by_cpu(q, &first);
    assert_int_equal(be->choices(be, &list), 2);
    memcpy(made, list, 2 * sizeof *made);
    assert_int_equal(serves(be),
                     !strcmp(made[0].answer, "cudnn") + !strcmp(made[1].answer, "cudnn"));
    results_clear(&first);
    results_clear(&again);
    backend_free(be);
}

static void choices__are_found_by_time_and_followed_without(void **state)
{
    (void)state;
    if (!emulated)
        skip();
    for (int in_place = 0; in_place < 2; in_place++) {
        struct problem q = {
            .n = 2, .seq = 37, .heads = 2, .dim = 64, .padded = true, .in_place = in_place};
        struct library_choice made[2], turned[2];
        find_choices(&q, "slow", made);
        assert_string_equal(made[0].answer, "own");
        assert_string_equal(made[1].answer, "own");
        assert_int_equal(served_given(&q, NULL, 0), 0);
        assert_int_equal(served_given(&q, made, 2), 0);
        memcpy(turned, made, sizeof made);
        snprintf(turned[1].answer, sizeof turned[1].answer, "cudnn");
        assert_int_equal(served_given(&q, turned, 2), 1);
        snprintf(turned[0].answer, sizeof turned[0].answer, "cudnn");
        assert_int_equal(served_given(&q, turned, 2), 2);
        /* Another number of samples goes the way of its nearest, another shape its own. */
        q.n = 3;
        assert_int_equal(served_given(&q, turned, 2), 2);
        q.causal = true;
        assert_int_equal(served_given(&q, turned, 2), 0);
    }
}

static void choices__of_samples_that_were_not_timed_are_the_nearest(void **state)
{
    struct problem q = {.n = 2, .seq = 21, .heads = 1, .dim = 64};
    struct library_choice made[2], given[4];
    (void)state;
    if (!emulated)
        skip();
    find_choices(&q, "slow", made);
    for (int i = 0; i < 4; i++) {
        given[i] = made[i % 2];
        if (i >= 2) {
            given[i].problem[strlen(given[i].problem) - 1] = '0';
            snprintf(given[i].answer, sizeof given[i].answer, "cudnn");
        }
    }
    /* "samples 0" says cuDNN, "samples 2" says own: 1 is as near to both, and takes the smaller. */
    q.n = 1;
    assert_int_equal(served_given(&q, given, 4), 2);
    q.n = 2;
    assert_int_equal(served_given(&q, given, 4), 0);
    q.n = 3;
    assert_int_equal(served_given(&q, given, 4), 0);
}

/* A profiler follows what an earlier one found, and says nothing of shapes cuDNN has no way for. */
static void tuning__leaves_alone_what_was_given_and_what_cannot_be(void **state)
{
    const struct problem q = {.n = 2, .seq = 37, .heads = 1, .dim = 64};
    struct library_choice made[2];
    const struct library_choice *list;
    struct err err = {0};
    (void)state;
    if (!emulated)
        skip();
    find_choices(&q, "slow", made);
    snprintf(made[0].answer, sizeof made[0].answer, "cudnn");
    struct backend *be = open_as(NULL, true);
    assert_int_equal(be->choose(be, made, 2, &err), OK);
    struct results r = on_device(be, &q);
    assert_int_equal(serves(be), 1);
    assert_int_equal(be->choices(be, &list), 0);
    results_clear(&r);
    backend_free(be);
    for (int wrong = 0; wrong < 2; wrong++) {
        setenv("ELAPSE_CUDASIM_CUDNN", wrong ? "wrong" : "refuse", 1);
        listen();
        be = open_as(NULL, true);
        own_kernels_serve(be, &q);
        assert_int_equal(heard(), wrong ? 2 : 0);
        unsetenv("ELAPSE_CUDASIM_CUDNN");
        assert_int_equal(serves(be), 0);
        assert_int_equal(be->choices(be, &list), 0);
        backend_free(be);
    }
}

static void environment__is_own_cudnn_or_auto(void **state)
{
    const struct problem q = {.n = 2, .seq = 37, .heads = 2, .dim = 64};
    struct err err = {0};
    (void)state;
    if (!own)
        skip();
    setenv("ELAPSE_ATTENTION", "best", 1);
    assert_null(cuda_load_backend(&(struct cuda_spec){.dtype = DTYPE_BF16, .threads = 1}, &err));
    unsetenv("ELAPSE_ATTENTION");
    assert_int_equal(err.status, ERR_INPUT);
    assert_string_equal(err.msg, "ELAPSE_ATTENTION must be own, cudnn or auto, got 'best'");
    const char *kept = getenv("ELAPSE_CUDNN_LIB");
    char library[4096];
    snprintf(library, sizeof library, "%s", kept ? kept : "");
    setenv("ELAPSE_CUDNN_LIB", "./no-such-library.so", 1);
    for (int loud = 0; loud < 2; loud++) {
        listen();
        struct backend *be = open_with(loud ? "cudnn" : "auto");
        own_kernels_serve(be, &q);
        assert_int_equal(heard(), loud);
        assert_int_equal(served(be, false), 0);
        backend_free(be);
    }
    if (kept)
        setenv("ELAPSE_CUDNN_LIB", library, 1);
    else
        unsetenv("ELAPSE_CUDNN_LIB");
}

/* --- the installed library ------------------------------------------------------------------- */

/* These GPUs as a driver reports them, in cuDNN's description of a device. */
#define DEVICE(arch, sms, shared, l2, name)                                                        \
    "{\"cudaDeviceId\":0,\"deviceVer\":" arch                                                      \
    ",\"driverVer\":13000,\"totalGlobalMem\":85000000000,"                                         \
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"                    \
    "\"regsPerBlock\":65536,\"multiProcessorCount\":" sms ",\"warpSize\":32,"                      \
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" shared ","               \
    "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"       \
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"    \
    "\"supportCoopLaunch\":1,\"smClockRateKHz\":1410000,\"memClockRateKHz\":1593000,"              \
    "\"l2CacheSize\":" l2 ",\"deviceName\":\"" name "\"}"

static enum status (*try_graph)(const char *device, const struct sdpa_shape *shape,
                                int64_t *workspace, struct err *err);

/* The installed library matches attention's graphs and compiles them, beside a driver that says
 * yes to everything (tests/cudasim/cudasim_driver.c). */
static void try_attention(const char *device, int form, const int shape[3])
{
    struct sdpa_shape s;
    struct err err = {0};
    int64_t workspace = 0;
    memset(&s, 0, sizeof s);
    s.samples = 2;
    s.seq = shape[0];
    s.heads = shape[1];
    s.head_dim = shape[2];
    s.causal = form & 1;
    s.padded = form & 2;
    s.backward = form & 4;
    if (try_graph(device, &s, &workspace, &err) != OK)
        fail_msg("attention %d x %d x %d, form %d: %s", s.seq, s.heads, s.head_dim, form, err.msg);
    const int64_t side = (s.seq + 63) / 64 * 64;
    if (s.backward) /* dS is written, as docs/cuda.md says */
        assert_true(workspace >= s.samples * s.heads * side * side * 2);
}

static void graphs__are_those_that_the_installed_cudnn_compiles(void **state)
{
    static const char *const devices[] = {
        DEVICE("900", "132", "232448", "52428800", "NVIDIA H100 80GB HBM3"),
        DEVICE("800", "108", "166912", "41943040", "NVIDIA A100-SXM4-80GB"),
        DEVICE("700", "80", "98304", "6291456", "Tesla V100-SXM2-16GB")};
    static const int attentions[][3] = {
        {1024, 12, 64}, /* GPT-2 */
        {197,  12, 64}, /* ViT-B/16 */
        {37,   2,  32}
    };
    struct err err = {0};
    int64_t workspace = 0;
    struct sdpa_shape s;
    char driver[sizeof emulation];
    (void)state;
    void *symbol = own ? plugin_symbol(PLUGIN_CUDA, "cuda_cudnn_try", &err) : NULL;
    if (!symbol || !emulated) /* with a GPU the tests above have asked it for the real device */
        skip();
    memcpy(&try_graph, &symbol, sizeof symbol);
    unsetenv("ELAPSE_CUDNN_LIB");
    snprintf(driver, sizeof driver, "%s", emulation);
    snprintf(strrchr(driver, '/'), 64, "/libcuda.so.1");
    if (!dlopen(driver, RTLD_NOW | RTLD_LOCAL)) /* by its name, for whoever asks next */
        fail_msg("%s", dlerror());
    memset(&s, 0, sizeof s);
    s.samples = 2;
    s.seq = s.head_dim = 64;
    s.heads = 1;
    const enum status rc = try_graph(devices[2], &s, &workspace, &err);
    if (rc == ERR_INFEASIBLE && (strstr(err.msg, "cannot load") || strstr(err.msg, "headers") ||
                                 strstr(err.msg, "must be 9.10.2"))) {
        print_message("%s: skipped\n", err.msg);
        setenv("ELAPSE_CUDNN_LIB", emulation, 1);
        skip();
    }
    assert_int_equal(rc, ERR_INFEASIBLE); /* a V100 has no bf16 */
    if (try_graph(devices[0], &s, &workspace, &err) != OK && strstr(err.msg, "libcuda")) {
        print_message("%s: a version that wants more of a driver, skipped\n", err.msg);
        setenv("ELAPSE_CUDNN_LIB", emulation, 1);
        skip();
    }
    for (int form = 0; form < 8; form++)
        for (size_t i = 0; i < sizeof attentions / sizeof *attentions; i++)
            try_attention(devices[(form + (int)i) % 2], form, attentions[i]);
    setenv("ELAPSE_CUDNN_LIB", emulation, 1);
}

static int open_backends(void **state)
{
    const char *device = getenv("ELAPSE_TEST_DEVICE");
    struct err err = {0};
    (void)state;
    cpu = backend_cpu_new(DTYPE_FP32, 1, &err);
    if (!cpu)
        return -1;
    if (!device || strcmp(device, "cuda") != 0) {
        ssize_t length = readlink("/proc/self/exe", emulation, sizeof emulation - 64);
        if (length <= 0)
            return -1;
        emulation[length] = '\0';
        snprintf(strrchr(emulation, '/'), 64, "/../cudasim/elapse-cuda-plain.so");
        if (access(emulation, R_OK) != 0) {
            print_message("no GPU and no emulation (CUDA toolkit and g++): skipped\n");
            return 0;
        }
        setenv("ELAPSE_CUDA_LIB", emulation, 1);
        setenv("ELAPSE_CUDNN_LIB", emulation, 1); /* it is cuDNN too */
        emulated = true;
    }
    own = open_with("own");
    void *symbol = plugin_symbol(PLUGIN_CUDA, "cuda_pick_served", &err);
    assert_non_null(symbol);
    memcpy(&served, &symbol, sizeof symbol);
    if (emulated) {
        symbol = plugin_symbol(PLUGIN_CUDA, "cudasim_set_streams", &err);
        assert_non_null(symbol);
        memcpy(&set_streams, &symbol, sizeof symbol);
        if (!plugin_symbol(PLUGIN_CUDA, "cudnnCreate", NULL)) {
            print_message("built without cuDNN's headers: skipped\n");
            backend_free(own);
            own = NULL;
            emulated = false;
        }
    }
    return 0;
}

static int close_backends(void **state)
{
    (void)state;
    backend_free(own);
    backend_free(cpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cudnn__agrees_with_the_cpu_and_repeats_its_bits),
        cmocka_unit_test(lengths__go_with_every_batch_where_the_version_wants_them),
        cmocka_unit_test(first_use__keeps_our_kernels_where_cudnn_will_not_do),
        cmocka_unit_test(first_use__keeps_our_kernels_without_memory_for_cudnns),
        cmocka_unit_test(later_failure__goes_back_to_our_kernels),
        cmocka_unit_test(dropout_and_odd_addresses__are_for_our_kernels),
        cmocka_unit_test(choices__are_found_by_time_and_followed_without),
        cmocka_unit_test(choices__of_samples_that_were_not_timed_are_the_nearest),
        cmocka_unit_test(tuning__leaves_alone_what_was_given_and_what_cannot_be),
        cmocka_unit_test(environment__is_own_cudnn_or_auto),
        cmocka_unit_test(graphs__are_those_that_the_installed_cudnn_compiles),
    };
    return cmocka_run_group_tests(tests, open_backends, close_backends);
}
