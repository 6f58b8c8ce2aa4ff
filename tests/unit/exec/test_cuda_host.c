/* The host side of the cuda backend on an emulated device (tests/cudasim/): memory announced before
 * it is asked for, choices of matrix products that other backends make alike, an epilogue in place,
 * images uploaded ahead, the halves of a backward.
 * Skipped where the emulation is not built. */
#include <dlfcn.h>
#include <unistd.h>

#include "exec/base/backend.h"
#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/device/cuda_load.h"
#include "exec/stage/stage.h"
#include "tests/unit/cache_case.h"
#include "tests/unit/test.h"

#define MIB ((int64_t)1 << 20)
enum { ROWS = 48, IN = 64, OUT = 40 };

static int64_t (*num_mallocs)(void), (*num_matmuls)(void);
static void (*set_streams)(unsigned);
static const char *(*take_fault)(void);
static bool emulated;

static struct backend *open_cuda(enum dtype dtype, bool tune)
{
    struct err err = {0};
    struct backend *be = cuda_load_backend(
        &(struct cuda_spec){.device = 0, .dtype = dtype, .threads = 1, .tune = tune}, &err);
    if (!be)
        fail_msg("%s", err.msg);
    return be;
}

static void ok(enum status rc, const struct err *err)
{
    if (rc != OK)
        fail_msg("%s", err->msg);
    const char *fault = take_fault();
    if (fault[0])
        fail_msg("%s", fault);
}

static void *take(struct backend *be, int64_t bytes)
{
    struct err err = {0};
    void *at = NULL;
    ok(be->alloc(be, bytes, &at, &err), &err);
    return at;
}

/* Numbers that fp32 and bf16 hold alike. */
static void *up(struct backend *be, int64_t num, uint64_t key)
{
    float *x = malloc((size_t)num * sizeof *x);
    uint16_t *low = malloc((size_t)num * sizeof *low);
    assert_non_null(x);
    assert_non_null(low);
    for (int64_t i = 0; i < num; i++) {
        uint32_t bits;
        x[i] = (float)rng_normal(rng_mix(key), (uint64_t)i);
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0xffff0000u;
        memcpy(&x[i], &bits, sizeof bits);
        low[i] = (uint16_t)(bits >> 16);
    }
    void *at = take(be, num * be->elem_bytes);
    be->copy_in(be, at, be->elem_bytes == 2 ? (void *)low : x, num * be->elem_bytes);
    free(x);
    free(low);
    return at;
}

static void down(struct backend *be, void *host, const void *at, int64_t num)
{
    struct err err = {0};
    be->copy_out(be, host, at, num * be->elem_bytes);
    ok(be->sync(be, &err), &err);
}

/* --- memory ----------------------------------------------------------------------------------- */

static enum status reserve(struct backend *be, int64_t pieces, int64_t piece_bytes, struct err *err)
{
    int64_t bytes[64];
    for (int i = 0; i < pieces; i++)
        bytes[i] = piece_bytes;
    return be->reserve(be, &(struct memory_need){bytes, pieces, 4 * MIB}, err);
}

static void reserve__one_allocation_serves_all_that_was_announced(void **state)
{
    enum { PIECES = 50 };
    struct err err = {0};
    void *pieces[PIECES];
    (void)state;
    if (!emulated)
        skip();
    const int64_t before = num_mallocs();
    struct backend *be = open_cuda(DTYPE_FP32, false);
    assert_int_equal(num_mallocs(), before); /* opening takes none */
    ok(reserve(be, PIECES + 3, 2 * MIB - 100, &err), &err);
    assert_int_equal(num_mallocs(), before + 1);
    for (int i = 0; i < PIECES; i++)
        pieces[i] = take(be, 2 * MIB - 100);
    const struct linear l = {.rows = ROWS, .in = IN, .out = OUT}; /* and what products need */
    void *x = up(be, ROWS * IN, 1), *w = up(be, IN * OUT, 2), *y = take(be, 4 * ROWS * OUT);
    be->linear_forward(be, &l, x, w, NULL, ACT_NONE, NULL, NULL, NULL, y);
    ok(be->sync(be, &err), &err);
    assert_int_equal(num_mallocs(), before + 1);
    for (int i = 0; i < PIECES; i += 2)
        be->free(be, pieces[i]);
    ok(reserve(be, PIECES / 2, 2 * MIB - 100, &err), &err); /* the gaps hold it */
    assert_int_equal(num_mallocs(), before + 1);
    ok(reserve(be, PIECES / 2, 2 * MIB + 1, &err), &err); /* they do not hold this */
    assert_int_equal(num_mallocs(), before + 2);
    for (int i = 0; i < PIECES; i += 2)
        pieces[i] = take(be, 2 * MIB + 1);
    assert_int_equal(num_mallocs(), before + 2);
    backend_free(be);
}

static void reserve__says_what_was_asked_what_was_free_and_what_helps(void **state)
{
    struct err err = {0};
    (void)state;
    if (!emulated)
        skip();
    struct backend *be = open_cuda(DTYPE_FP32, false);
    void *held = take(be, 80 * MIB);
    assert_int_equal(reserve(be, 5, 1000 * MIB, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "out of device memory: 4.9"));
    assert_non_null(strstr(err.msg, "asked for"));
    assert_non_null(strstr(err.msg, "free, this rank holds 80"));
    assert_non_null(strstr(err.hint, "pipeline.num_microbatches"));
    assert_non_null(strstr(err.hint, "recompute"));
    struct err none = {0};
    ok(be->sync(be, &none), &none); /* no failure of the device's work */
    be->free(be, held);
    backend_free(be);
}

static void reserve__gives_memory_back_behind_the_work_that_uses_it(void **state)
{
    struct err err = {0};
    (void)state;
    if (!emulated)
        skip();
    struct backend *be = open_cuda(DTYPE_FP32, false);
    set_streams(1); /* nothing is done before something waits for it */
    void *held = take(be, 80 * MIB);
    be->zero(be, held, 80 * MIB);
    be->free(be, held);
    ok(reserve(be, 1, 160 * MIB, &err), &err); /* in the place of the 80 MiB */
    ok(be->sync(be, &err), &err);
    set_streams(0);
    backend_free(be);
}

/* A change of plan gives pinned memory back and asks for it again, because pinning is slow. */
static void pinned__comes_again_behind_the_copies_of_who_had_it(void **state)
{
    struct err err = {0};
    void *first, *other, *again;
    (void)state;
    if (!emulated)
        skip();
    struct backend *be = open_cuda(DTYPE_FP32, false);
    void *device = take(be, MIB);
    be->zero(be, device, MIB);
    ok(be->sync(be, &err), &err);
    ok(be->alloc_host(be, MIB, &first, &err), &err);
    memset(first, 7, MIB);
    be->free_host(be, first);
    ok(be->alloc_host(be, MIB / 4, &other, &err), &err); /* of a piece four times as large, no */
    assert_true(other < first || (char *)other >= (char *)first + MIB);
    ok(be->alloc_host(be, MIB - 100, &again, &err), &err);
    assert_ptr_equal(again, first);
    assert_int_equal(*((char *)again + MIB / 2), 7); /* new memory is another */
    set_streams(1);                                  /* nothing is done before something waits */
    be->copy_out(be, again, device, MIB - 100);
    be->free_host(be, again);
    ok(be->alloc_host(be, MIB, &again, &err), &err);
    assert_ptr_equal(again, first);
    memset(again, 9, MIB);
    ok(be->sync(be, &err), &err);
    assert_int_equal(*((char *)again + MIB / 2), 9);
    set_streams(0);
    be->free_host(be, other);
    be->free_host(be, again);
    backend_free(be);
}

/* --- choices ---------------------------------------------------------------------------------- */

/* A product on a backend that was given these choices; its bits into out. */
static void product(enum dtype dtype, bool tune, const struct library_choice *given, int num,
                    struct library_choice *made, int *num_made, void *out)
{
    const struct linear l = {.rows = ROWS, .in = IN, .out = OUT};
    const struct library_choice *list;
    struct err err = {0};
    struct backend *be = open_cuda(dtype, tune);
    ok(be->choose(be, given, num, &err), &err);
    void *x = up(be, ROWS * IN, 1), *w = up(be, IN * OUT, 2), *y = take(be, 4 * ROWS * OUT);
    be->linear_forward(be, &l, x, w, NULL, ACT_NONE, NULL, NULL, NULL, y);
    down(be, out, y, ROWS * OUT);
    const int count = be->choices(be, &list);
    assert_true(count <= 1);
    if (count && made)
        *made = list[0];
    if (num_made)
        *num_made = count;
    backend_free(be);
}

static void choices__what_one_backend_found_gives_its_bits_on_others(void **state)
{
    float first[ROWS * OUT], found[ROWS * OUT], given[ROWS * OUT];
    struct library_choice choice = {0};
    int num;
    (void)state;
    if (!emulated)
        skip();
    int64_t before = num_matmuls();
    product(DTYPE_FP32, false, NULL, 0, NULL, &num, first);
    assert_int_equal(num, 0);
    assert_int_equal(num_matmuls(), before + 1); /* nothing was timed */
    setenv("ELAPSE_CUDASIM_SLOW", "01", 1);
    product(DTYPE_FP32, true, NULL, 0, &choice, &num, found);
    assert_int_equal(num, 1);
    assert_true(memcmp(first, found, sizeof first) != 0); /* the third algorithm's bits */
    before = num_matmuls();
    product(DTYPE_FP32, false, &choice, 1, NULL, &num, given);
    assert_int_equal(num_matmuls(), before + 1);
    assert_memory_equal(found, given, sizeof found);
    /* Tuning leaves earlier choices alone. */
    setenv("ELAPSE_CUDASIM_SLOW", "2", 1);
    product(DTYPE_FP32, true, &choice, 1, NULL, &num, given);
    assert_int_equal(num, 0);
    assert_memory_equal(found, given, sizeof found);
    unsetenv("ELAPSE_CUDASIM_SLOW");
}

/* A choice of another shape or dtype, or a damaged one, is as none. */
static void choices__of_other_problems_change_nothing(void **state)
{
    float first[ROWS * OUT], given[ROWS * OUT];
    struct library_choice choice = {0}, bad[3];
    int num;
    (void)state;
    if (!emulated)
        skip();
    setenv("ELAPSE_CUDASIM_SLOW", "01", 1);
    product(DTYPE_FP32, true, NULL, 0, &choice, &num, given);
    unsetenv("ELAPSE_CUDASIM_SLOW");
    product(DTYPE_FP32, false, NULL, 0, NULL, &num, first);
    for (int i = 0; i < 3; i++)
        bad[i] = choice;
    memcpy(bad[0].problem, "bf16", 4);
    bad[1].answer[5] = 'x';
    bad[2].answer[2] ^= 1; /* not what the library calls an algorithm */
    product(DTYPE_FP32, false, bad, 3, NULL, &num, given);
    assert_memory_equal(first, given, sizeof first);
}

/* --- rows and their places -------------------------------------------------------------------- */

static void rows__that_are_rounded_by_their_place_are_found(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16};
    (void)state;
    if (!emulated)
        skip();
    for (int faulty = 0; faulty < 2; faulty++)
        for (int i = 0; i < 2; i++) {
            struct err err = {0};
            struct backend *be = open_cuda(dtypes[i], false);
            assert_false(be->bits_independent_of_row_position); /* nobody has looked */
            if (faulty)
                setenv("ELAPSE_CUDASIM_PLACES", "1", 1);
            const int64_t before = num_matmuls();
            be->measure_row_position(be);
            assert_true(num_matmuls() > before);
            unsetenv("ELAPSE_CUDASIM_PLACES");
            assert_int_equal(be->bits_independent_of_row_position, !faulty);
            const int64_t once = num_matmuls();
            be->measure_row_position(be);
            assert_int_equal(num_matmuls(), once);
            assert_int_equal(be->bits_independent_of_row_position, !faulty);
            ok(be->sync(be, &err), &err);
            backend_free(be);
        }
}

/* --- an epilogue in place --------------------------------------------------------------------- */

/* GELU's gradient with the output over what entered the GELU. */
static void dgelu(enum dtype dtype, float *out)
{
    const struct linear l = {.rows = ROWS, .in = IN, .out = OUT};
    struct err err = {0};
    uint16_t low[ROWS * IN];
    struct backend *be = open_cuda(dtype, false);
    void *dy = up(be, ROWS * OUT, 1), *w = up(be, IN * OUT, 2), *pre = up(be, ROWS * IN, 3);
    for (int i = 0; i < 2; i++) { /* the second with the plan made */
        be->linear_backward_input(be, &l, dy, w, 1.0f, ACT_GELU_TANH, pre, NULL, pre);
        ok(be->sync(be, &err), &err);
    }
    if (be->elem_bytes == 4) {
        down(be, out, pre, ROWS * IN);
    } else {
        down(be, low, pre, ROWS * IN);
        for (int i = 0; i < ROWS * IN; i++) {
            const uint32_t bits = (uint32_t)low[i] << 16;
            memcpy(&out[i], &bits, sizeof bits);
        }
    }
    backend_free(be);
}

static void dgelu__in_place_only_where_it_has_the_bits_of_out_of_place(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16};
    (void)state;
    if (!emulated)
        skip();
    for (int i = 0; i < 2; i++) {
        float whole[ROWS * IN], broken[ROWS * IN], apart[ROWS * IN];
        dgelu(dtypes[i], whole);
        setenv("ELAPSE_CUDASIM_IN_PLACE", "0", 1);
        dgelu(dtypes[i], broken);
        unsetenv("ELAPSE_CUDASIM_IN_PLACE");
        setenv("ELAPSE_CUDASIM_EPILOGUES", "0", 1);
        dgelu(dtypes[i], apart);
        unsetenv("ELAPSE_CUDASIM_EPILOGUES");
        assert_memory_equal(broken, apart, sizeof apart); /* the pass of ours was taken */
        for (int k = 0; k < ROWS * IN; k++)
            assert_true(whole[k] - apart[k] <= 2e-2f * (1 + whole[k] * whole[k]) &&
                        apart[k] - whole[k] <= 2e-2f * (1 + whole[k] * whole[k]));
    }
}

/* --- a block uploaded ahead ------------------------------------------------------------------- */

enum { SAMPLES = 2, IMAGE = 3 * 12 * 12 };

/* Copies the stage's output for the block. */
static void made_of(struct backend *be, struct stage *stage, const struct sample_block *block,
                    float *out, int64_t num)
{
    struct err err = {0};
    void *in[1] = {NULL}, *y[1] = {NULL};
    ok(stage_forward(stage, &(struct stage_batch){.block = block, .step = STEP_EVAL}, in, y, false,
                     &err),
       &err);
    down(be, out, y[0], num);
}

static void upload__is_what_the_next_forward_of_the_block_reads(void **state)
{
    struct job job;
    struct err err = {0};
    struct stage *stage = NULL;
    (void)state;
    if (!emulated)
        skip();
    case_job(&job, FAMILY_VIT, DTYPE_FP32);
    struct backend *be = open_cuda(DTYPE_FP32, false);
    const struct stage_spec spec = {.model = &job.model,
                                    .job = &job,
                                    .backend = be,
                                    .end_item = 2,
                                    .max_samples = SAMPLES,
                                    .max_live = 1,
                                    .uploads = true};
    ok(stage_new(&spec, &stage, &err), &err);
    ok(stage_init_weights(stage, 5, &err), &err);
    const int64_t num = SAMPLES * stage_input_elems(&job.model, 2);
    float *images, *one = malloc((size_t)num * 4), *other = malloc((size_t)num * 4),
                   *got = malloc((size_t)num * 4);
    static const int64_t ids[SAMPLES] = {3, 4};
    void *pinned;
    ok(be->alloc_host(be, SAMPLES * IMAGE * 4, &pinned, &err), &err);
    images = pinned;
    struct sample_block block = {.num_samples = SAMPLES, .ids = ids, .images = images};
    for (int i = 0; i < SAMPLES * IMAGE; i++)
        images[i] = (float)rng_normal(1, (uint64_t)i);
    made_of(be, stage, &block, one, num);
    assert_false(stage_upload(stage, &block)); /* of a block that nobody could know again */
    block.serial = 7;
    assert_true(stage_upload(stage, &block));
    assert_false(stage_upload(stage, &block)); /* it is on its way */
    stage_upload_end(stage);
    ok(be->sync(be, &err), &err);
    for (int i = 0; i < SAMPLES * IMAGE; i++)
        images[i] = -images[i];
    const struct sample_block next = {
        .serial = 8, .num_samples = SAMPLES, .ids = ids, .images = images};
    made_of(be, stage, &next, other, num); /* another block leaves it waiting */
    assert_true(memcmp(one, other, (size_t)num * 4) != 0);
    for (int again = 0; again < 2; again++) { /* the second time it is in the slot, as for R */
        made_of(be, stage, &block, got, num);
        assert_memory_equal(got, one, (size_t)num * 4);
    }
    made_of(be, stage, &next, got, num);
    assert_memory_equal(got, other, (size_t)num * 4);
    block.serial = 9;
    assert_true(stage_upload(stage, &next));
    assert_true(stage_upload(stage, &block)); /* in place of that one */
    made_of(be, stage, &next, got, num);
    assert_memory_equal(got, other, (size_t)num * 4);
    stage_upload_end(stage);
    assert_true(stage_upload(stage, &next)); /* and is not taken */
    stage_free(stage);
    be->free_host(be, pinned);
    free(one);
    free(other);
    free(got);
    backend_free(be);
    job_clear(&job);
}

/* All of a job's model, two micro-batches alive. */
static struct stage *open_stage(struct backend *be, const struct job *job)
{
    const struct stage_spec spec = {.model = &job->model,
                                    .job = job,
                                    .backend = be,
                                    .end_item = job->model.num_items,
                                    .max_samples = SAMPLES,
                                    .max_live = 2};
    struct stage *stage = NULL;
    struct err err = {0};
    ok(stage_new(&spec, &stage, &err), &err);
    ok(stage_init_weights(stage, 5, &err), &err);
    return stage;
}

/* --- halves of a backward --------------------------------------------------------------------- */

static void (*real_attention)(struct backend *be, const struct attention *a, const void *qkv,
                              const struct dropout *drop, const void *ctx, const float *lse,
                              const void *dctx, void *dqkv);
static int over_qkv, beside_qkv;
enum { ROOM = 1 << 20, MOST_ITEMS = 32 }; /* of gradients, bytes; of a case's model */
static void spy_attention(struct backend *be, const struct attention *a, const void *qkv,
                          const struct dropout *drop, const void *ctx, const float *lse,
                          const void *dctx, void *dqkv)
{
    *(dqkv == qkv ? &over_qkv : &beside_qkv) += 1;
    real_attention(be, a, qkv, drop, ctx, lse, dctx, dqkv);
}

/* The gradients of a stage after two micro-batches, halves of their backwards together or apart. be
 * is freed. Returns how many items the stage has; block_bytes: of each one's gradients. */
static int gradients_of(struct backend *be, enum model_family family, bool together, void *grads,
                        int64_t room, int64_t *block_bytes)
{
    static const int64_t ids[SAMPLES] = {3, 4};
    static const int32_t numbers[SAMPLES * 64] = {1, 0, 1, 1};
    static const int32_t lengths[SAMPLES] = {1, 2};
    float images[SAMPLES * IMAGE];
    struct job job;
    struct err err = {0};
    case_job(&job, family, be->dtype);
    job.model.heads = 1; /* of 32 elements, which all attention kernels take */
    real_attention = be->attention_backward;
    be->attention_backward = spy_attention;
    struct stage *stage = open_stage(be, &job);
    for (int i = 0; i < SAMPLES * IMAGE; i++)
        images[i] = (float)rng_normal(1, (uint64_t)i);
    stage_begin_grad(stage);
    const bool vit = family == FAMILY_VIT;
    const struct sample_block block = {.num_samples = SAMPLES,
                                       .ids = ids,
                                       .labels = numbers,
                                       .images = vit ? images : NULL,
                                       .tokens = vit ? NULL : numbers,
                                       .token_types = family == FAMILY_BERT ? numbers : NULL,
                                       .lengths = vit ? NULL : lengths};
    void *none[1] = {NULL}, *out[1];
    for (int slot = 0; slot < 2; slot++)
        ok(stage_forward(stage, &(struct stage_batch){.block = &block, .slot = slot}, none, out,
                         true, &err),
           &err);
    for (int slot = 0; slot < 2 && together; slot++)
        ok(stage_backward(stage,
                          &(struct stage_batch){.block = &block, .slot = slot, .grad_scale = 0.5f},
                          BACKWARD_BOTH, none, out, &err),
           &err);
    for (int half = 0; half < 2 && !together; half++)
        for (int slot = 0; slot < 2; slot++)
            ok(stage_backward(
                   stage, &(struct stage_batch){.block = &block, .slot = slot, .grad_scale = 0.5f},
                   half ? BACKWARD_WEIGHT : BACKWARD_INPUT, none, out, &err),
               &err);
    char *at = grads, *end = at + room;
    const int num_items = stage_num_items(stage);
    assert_true(num_items <= MOST_ITEMS);
    for (int i = 0; i < num_items; i++) {
        int64_t elems;
        const float *block_grads = stage_grad_block(stage, i, &elems);
        block_bytes[i] = elems * 4;
        assert_true(elems * 4 <= end - at);
        be->copy_out(be, at, block_grads, elems * 4);
        ok(be->sync(be, &err), &err);
        at += elems * 4;
    }
    stage_free(stage);
    backend_free(be);
    job_clear(&job);
    return num_items;
}

static void backward__both_halves_together_take_no_detour_and_have_the_bits_of_apart(void **state)
{
    int64_t bytes[MOST_ITEMS];
    (void)state;
    if (!emulated)
        skip();
    char *together = calloc(1, ROOM), *apart = calloc(1, ROOM);
    assert_true(together && apart);
    for (int dtype = DTYPE_FP32; dtype <= DTYPE_BF16; dtype++)
        for (int bert = 0; bert < 2; bert++) {
            const enum model_family family = bert ? FAMILY_BERT : FAMILY_VIT;
            over_qkv = beside_qkv = 0;
            gradients_of(open_cuda((enum dtype)dtype, false), family, true, together, ROOM, bytes);
            assert_int_equal(over_qkv, 0);
            assert_true(beside_qkv > 0);
            const int calls = beside_qkv;
            gradients_of(open_cuda((enum dtype)dtype, false), family, false, apart, ROOM, bytes);
            assert_int_equal(beside_qkv, calls);
            assert_int_equal(over_qkv, calls); /* nobody else's memory is free for that long */
            assert_memory_equal(together, apart, ROOM);
        }
    free(together);
    free(apart);
}

/* With all that kernels sum on their way for the weights' half. Each element within 1e-5 of its
 * item's largest in fp32, in bf16 within 3 roundings. */
static void backward__gradients_are_those_of_the_cpu_backend(void **state)
{
    int64_t bytes[MOST_ITEMS];
    (void)state;
    if (!emulated)
        skip();
    float *cuda = calloc(1, ROOM), *cpu = calloc(1, ROOM);
    assert_true(cuda && cpu);
    for (int i = 0; i < 4; i++) {
        const enum model_family family = i & 1 ? FAMILY_BERT : FAMILY_VIT;
        const enum dtype dtype = i & 2 ? DTYPE_BF16 : DTYPE_FP32;
        const float tolerance = i & 2 ? 3.0f / 256.0f : 1e-5f;
        gradients_of(open_cuda(dtype, false), family, true, cuda, ROOM, bytes);
        const int num_items =
            gradients_of(backend_cpu_new(dtype, 1, NULL), family, true, cpu, ROOM, bytes);
        const float *got = cuda, *want = cpu;
        for (int item = 0; item < num_items; item++) {
            const int64_t num = bytes[item] / 4;
            float most = 0.0f;
            for (int64_t e = 0; e < num; e++)
                most = fmaxf(most, fabsf(want[e]));
            assert_true(most > 0.0f);
            for (int64_t e = 0; e < num; e++)
                if (!(fabsf(got[e] - want[e]) <= tolerance * most))
                    fail_msg("case %d, item %d, element %lld: %g, cpu %g (largest %g)", i, item,
                             (long long)e, got[e], want[e], most);
            got += num;
            want += num;
        }
    }
    free(cuda);
    free(cpu);
}

/* ---------------------------------------------------------------------------------------------- */

static int find_device(void **state)
{
    char path[4096];
    (void)state;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    if (length <= 0)
        return -1;
    path[length] = '\0';
    snprintf(strrchr(path, '/'), 64, "/../cudasim/elapse-cuda-plain.so");
    if (access(path, R_OK) != 0) {
        print_message("no emulation (CUDA toolkit and g++): skipped\n");
        return 0;
    }
    setenv("ELAPSE_CUDA_LIB", path, 1);
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(lib);
    void *symbols[] = {dlsym(lib, "cudasim_num_mallocs"), dlsym(lib, "cudasim_num_matmuls"),
                       dlsym(lib, "cudasim_take_fault"), dlsym(lib, "cudasim_set_streams")};
    memcpy(&num_mallocs, &symbols[0], sizeof symbols[0]);
    memcpy(&num_matmuls, &symbols[1], sizeof symbols[1]);
    memcpy(&take_fault, &symbols[2], sizeof symbols[2]);
    memcpy(&set_streams, &symbols[3], sizeof symbols[3]);
    emulated = true;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserve__one_allocation_serves_all_that_was_announced),
        cmocka_unit_test(reserve__says_what_was_asked_what_was_free_and_what_helps),
        cmocka_unit_test(reserve__gives_memory_back_behind_the_work_that_uses_it),
        cmocka_unit_test(pinned__comes_again_behind_the_copies_of_who_had_it),
        cmocka_unit_test(choices__what_one_backend_found_gives_its_bits_on_others),
        cmocka_unit_test(choices__of_other_problems_change_nothing),
        cmocka_unit_test(rows__that_are_rounded_by_their_place_are_found),
        cmocka_unit_test(dgelu__in_place_only_where_it_has_the_bits_of_out_of_place),
        cmocka_unit_test(upload__is_what_the_next_forward_of_the_block_reads),
        cmocka_unit_test(backward__both_halves_together_take_no_detour_and_have_the_bits_of_apart),
        cmocka_unit_test(backward__gradients_are_those_of_the_cpu_backend),
    };
    return cmocka_run_group_tests(tests, find_device, NULL);
}
