/* The interpreter of PTX (tests/cudasim/cudasim_ptx.h): kernels written here by hand, one warp or
 * two, against what PTX ISA says, worked out in the test; and the faults. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#define _Noreturn [[noreturn]]
extern "C" {
#include <cmocka.h>
}
#include <cuda_runtime_api.h>

#include "tests/cudasim/cudasim_internal.h"
#include "tests/cudasim/cudasim_ptx.h"

enum { LANES = 32, WORDS = 64 }; /* of in and out, for each thread one */

/* A kernel of (in, out), both uint32_t[threads]: %r1 is the thread, %r2 its word of in, and what is
 * in %r3 at the end becomes its word of out. */
static struct ptx_kernel *kernel_of(const char *body, const char *declared = "")
{
    std::vector<struct ptx_kernel *> kernels;
    const std::string text =
        std::string(".version 9.0\n.target sm_90\n.address_size 64\n"
                    ".extern .shared .align 16 .b8 dynamic[];\n"
                    ".visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)\n"
                    ".maxntid 1024, 1, 1\n{\n"
                    ".reg .pred %p<20>; .reg .b16 %rs<20>; .reg .b32 %r<60>;\n"
                    ".reg .f32 %f<20>; .reg .b64 %rd<20>; .reg .f64 %fd<20>;\n") +
        declared +
        "ld.param.u64 %rd1, [k_param_0]; ld.param.u64 %rd2, [k_param_1];\n"
        "mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;\n"
        "cvta.to.global.u64 %rd1, %rd1; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;\n"
        "ld.global.u32 %r2, [%rd4]; mov.b32 %f2, %r2;\n" +
        body + "\n$L__end:\nst.global.u32 [%rd5], %r3;\nret;\n}\n";
    cudasim_ptx_load(text.c_str(), &kernels);
    assert_int_equal(kernels.size(), 1);
    return kernels[0];
}

static uint32_t in[WORDS], out[WORDS];

/* Runs it on in[threads]; the runtime's answer. */
static cudaError_t run(struct ptx_kernel *k, unsigned threads, size_t shared = 0)
{
    uint32_t *device = NULL;
    assert_int_equal(cudaMalloc((void **)&device, 2 * sizeof in), cudaSuccess);
    cudaMemcpy(device, in, sizeof in, cudaMemcpyHostToDevice);
    uint32_t **args = (uint32_t **)calloc(2, sizeof *args);
    args[0] = device;
    args[1] = device + WORDS;
    assert_int_equal(k->param_bytes, 16);
    cudasim_submit_ptx((const void *)k, k, dim3(1), dim3(threads), shared, 0, args, 16);
    const cudaError_t code = cudaDeviceSynchronize();
    if (code == cudaSuccess) {
        cudaMemcpy(out, device + WORDS, sizeof out, cudaMemcpyDeviceToHost);
        cudaFree(device);
    }
    return code;
}

/* The kernel ends with a fault whose text holds this. */
static void faults(const char *body, const char *what, unsigned threads = LANES,
                   const char *declared = "")
{
    cudasim_set_quiet(true);
    const cudaError_t code = run(kernel_of(body, declared), threads);
    cudasim_set_quiet(false);
    const char *text = cudasim_take_fault();
    if (code == cudaSuccess || !strstr(text, what))
        fail_msg("wanted a fault with \"%s\", got %d, \"%s\"", what, (int)code, text);
}

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static float value(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* out[i] of a kernel of one warp, for in[] = these. */
static const uint32_t *of(const char *body, std::vector<uint32_t> words, const char *declared = "")
{
    for (int i = 0; i < WORDS; i++)
        in[i] = words[(size_t)i % words.size()];
    assert_int_equal(run(kernel_of(body, declared), LANES), cudaSuccess);
    return out;
}

/* --- arithmetic ------------------------------------------------------------------------------ */

static void integers__wrap_shift_and_divide_as_ptx_says(void **state)
{
    (void)state;
    const std::vector<uint32_t> some = {0,  1,          7,          31,         32,
                                        33, 0x7fffffff, 0x80000000, 0xffffffff, 1000000007};
    const uint32_t *r = of("mad.lo.s32 %r3, %r2, 1000003, -5;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], some[i] * 1000003u - 5u);
    r = of("shl.b32 %r3, 1, %r2;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], some[i] >= 32 ? 0 : 1u << some[i]);
    r = of("mov.u32 %r4, -2147483648; shr.s32 %r3, %r4, %r2;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], some[i] >= 31 ? 0xffffffff : (uint32_t)(INT32_MIN >> some[i]));
    r = of("div.s32 %r3, %r2, -3;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], (uint32_t)((int32_t)some[i] / -3));
    r = of("rem.u32 %r3, %r2, 10;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], some[i] % 10);
    r = of("mul.hi.s32 %r3, %r2, 715827883;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], (uint32_t)(((int64_t)(int32_t)some[i] * 715827883) >> 32));
    r = of("bfi.b32 %r3, %r2, 305419896, 8, 5;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], (305419896u & ~(31u << 8)) | (some[i] & 31) << 8);
    r = of("bfind.shiftamt.u32 %r3, %r2;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], some[i] ? (uint32_t)__builtin_clz(some[i]) : 0xffffffffu);
    r = of("cvt.s64.s32 %rd6, %r2; shr.s64 %rd6, %rd6, 4; cvt.u32.u64 %r3, %rd6;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], (uint32_t)((int64_t)(int32_t)some[i] >> 4));
    r = of("mov.b32 {%rs1, %rs2}, %r2; mov.b32 %r3, {%rs2, %rs1};", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], some[i] << 16 | some[i] >> 16);
}

static void floats__round_compare_and_convert_as_ptx_says(void **state)
{
    (void)state;
    const float numbers[] = {0.0f,  -0.0f, 1.0f,      1.5f,     -2.25f, 3e-39f,
                             1e30f, 0.1f,  -INFINITY, INFINITY, NAN,    1.00390625f};
    std::vector<uint32_t> some;
    for (const float x : numbers)
        some.push_back(bits(x));
    const uint32_t *r = of("cvt.sat.f32.f32 %f3, %f2; mov.b32 %r3, %f3;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_true(value(r[i]) == (numbers[i] > 0 ? fminf(numbers[i], 1) : 0));
    r = of("max.f32 %f3, %f2, 0f3F800000; mov.b32 %r3, %f3;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_true(value(r[i]) == (numbers[i] > 1 ? numbers[i] : 1)); /* of NaN the other */
    r = of("setp.leu.f32 %p1, %f2, 0f3F800000; selp.u32 %r3, 1, 0, %p1;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], !(numbers[i] > 1));
    r = of("setp.ne.f32 %p1, %f2, %f2; selp.u32 %r3, 1, 0, %p1;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_int_equal(r[i], 0);                           /* false of NaN; .neu is not */
    r = of("cvt.rn.bf16x2.f32 %r3, %f2, 0f3F808000;", some); /* 1 + 2^-8: a tie, to even */
    for (size_t i = 0; i < some.size(); i++) {
        assert_int_equal(r[i] & 0xffff, 0x3f80);
        if (numbers[i] == numbers[i] && fabsf(numbers[i]) != 0.1f && numbers[i] != 1e30f &&
            numbers[i] != 3e-39f)
            assert_int_equal(r[i] >> 16, numbers[i] == 1.00390625f ? 0x3f80 : some[i] >> 16);
    }
    r = of("copysign.f32 %f3, %f2, 0f40000000; mov.b32 %r3, %f3;", some);
    for (size_t i = 0; i < some.size(); i++)
        assert_true(fabsf(value(r[i])) == 2 && signbit(value(r[i])) == signbit(numbers[i]));
    /* 1 + 2^-24 is halfway; down it is 1, and to the nearest, of 1 + 3 2^-25, 1 + 2^-23. */
    const std::vector<uint32_t> tiny = {bits(0x1p-24f), bits(0x1.8p-24f), bits(-0x1p-30f)};
    r = of("fma.rm.f32 %f3, %f2, 0f3F800000, 0f3F800000; mov.b32 %r3, %f3;", tiny);
    assert_true(value(r[0]) == 1.0f && value(r[1]) == 1.0f && value(r[2]) == 1.0f - 0x1p-24f);
    r = of("fma.rn.f32 %f3, %f2, 0f3F800000, 0f3F800000; mov.b32 %r3, %f3;", tiny);
    assert_true(value(r[0]) == 1.0f && value(r[1]) == 1.0f + 0x1p-23f && value(r[2]) == 1.0f);
    /* One rounding, not two: (1 + 2^-12)^2 - 1 - 2^-11 = 2^-24. */
    r = of("mul.f32 %f4, %f2, %f2; fma.rn.f32 %f3, %f2, %f2, 0fBF801000; mov.b32 %r3, %f3;",
           {bits(1 + 0x1p-12f)});
    assert_true(value(r[0]) == 0x1p-24f);
    r = of("ex2.approx.ftz.f32 %f3, %f2; mov.b32 %r3, %f3;",
           {bits(3), bits(-130), bits(-INFINITY), bits(0.5f)});
    assert_true(value(r[0]) == 8 && value(r[1]) == 0 && value(r[2]) == 0 &&
                fabsf(value(r[3]) - 1.41421356f) < 1e-6f);
}

/* --- lanes ----------------------------------------------------------------------------------- */

static void shuffles__reach_as_ptx_says(void **state)
{
    (void)state;
    std::vector<uint32_t> some;
    for (uint32_t i = 0; i < LANES; i++)
        some.push_back(100 + i);
    const uint32_t *r = of("shfl.sync.bfly.b32 %r3|%p1, %r2, 5, 31, -1;", some);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(r[i], 100 + (i ^ 5));
    r = of("shfl.sync.down.b32 %r3|%p1, %r2, 4, 31, -1; @!%p1 mov.u32 %r3, 7;", some);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(r[i], i + 4 < LANES ? 104 + i : 7);
    r = of("shfl.sync.up.b32 %r3, %r2, 4, 0, -1;", some);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(r[i], i >= 4 ? 96 + i : 100 + i);
    /* by eights: clamp 7 in the low bits, segment 0x18 above */
    r = of("shfl.sync.idx.b32 %r3|%p1, %r2, 2, 6175, -1;", some);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(r[i], 102 + i / 8 * 8);
    r = of("setp.gt.u32 %p1, %r2, 110; vote.sync.ballot.b32 %r3, %p1, -1;", some);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(r[i], 0xfffff800u);
}

static void lanes__part_join_and_leave(void **state)
{
    (void)state;
    /* Each lane goes round as often as its word says: the sum 1 + 2 + ... of it. */
    std::vector<uint32_t> some;
    for (uint32_t i = 0; i < LANES; i++)
        some.push_back(i * 7 % 32);
    const uint32_t *r = of("mov.u32 %r3, 0; mov.u32 %r4, 0;\n"
                           "$L__again:\n setp.ge.u32 %p1, %r4, %r2;\n @%p1 bra $L__done;\n"
                           "add.s32 %r4, %r4, 1; add.s32 %r3, %r3, %r4;\n bra.uni $L__again;\n"
                           "$L__done:\n bar.warp.sync -1;\n"
                           "shfl.sync.bfly.b32 %r5|%p2, %r3, 1, 31, -1; add.s32 %r3, %r3, %r5;",
                           some);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(r[i], some[i] * (some[i] + 1) / 2 + some[i ^ 1] * (some[i ^ 1] + 1) / 2);
    /* Odd lanes leave; the others' ballot is theirs. */
    memset(out, 0, sizeof out);
    r = of("and.b32 %r4, %r1, 1; setp.eq.s32 %p1, %r4, 1;\n @%p1 ret;\n"
           "setp.eq.s32 %p2, %r4, 0; vote.sync.ballot.b32 %r3, %p2, 1431655765;",
           some);
    for (uint32_t i = 0; i < LANES; i += 2)
        assert_int_equal(r[i], 0x55555555u);
}

static void blocks__wait_and_share(void **state)
{
    (void)state;
    static const char *const reversed =
        "shl.b32 %r4, %r1, 2; mov.u32 %r5, dynamic; add.s32 %r4, %r4, %r5;\n"
        "st.shared.u32 [%r4], %r2;\n bar.sync 0;\n"
        "sub.s32 %r6, 63, %r1; shl.b32 %r6, %r6, 2; add.s32 %r6, %r6, %r5;\n"
        "ld.shared.u32 %r3, [%r6]; ld.shared.u32 %r7, [own+8]; add.s32 %r3, %r3, %r7;";
    static const char *const own = ".shared .align 8 .b8 own[24];\n";
    struct ptx_kernel *k =
        kernel_of((std::string("st.shared.u32 [own+8], 1000;\n") + reversed).c_str(), own);
    assert_int_equal(k->static_shared, 32);
    for (unsigned order = 0; order < 2; order++) {
        for (uint32_t i = 0; i < WORDS; i++)
            in[i] = i * i;
        cudasim_set_order(order);
        assert_int_equal(run(k, WORDS, WORDS * 4), cudaSuccess);
        for (uint32_t i = 0; i < WORDS; i++)
            assert_int_equal(out[i], (63 - i) * (63 - i) + 1000);
    }
    cudasim_set_order(0);
}

/* --- costs ----------------------------------------------------------------------------------- */

/* The cost of the one instruction that goes through shared memory, or of the last that reads device
 * memory. */
static uint64_t cost_of(const struct ptx_kernel *k, enum ptx_class of_class, const char *name)
{
    uint64_t cost = 0;
    for (const struct ptx_op &op : k->ops)
        if (op.counted == of_class && strstr(op.text, name))
            cost = op.cost;
    return cost;
}

static void costs__count_banks_and_sectors(void **state)
{
    (void)state;
    const struct {
        unsigned stride;
        uint64_t passes;
    } columns[] = {
        {4,   1 },
        {8,   2 },
        {32,  8 },
        {36,  1 },
        {128, 32},
        {0,   1 }
    };
    for (const auto &c : columns) {
        char body[256];
        snprintf(body, sizeof body,
                 "mul.lo.u32 %%r4, %%r1, %u; st.shared.u32 [%%r4], %%r2; mov.u32 %%r3, 0;",
                 c.stride);
        struct ptx_kernel *k = kernel_of(body);
        assert_int_equal(run(k, LANES, 4096), cudaSuccess);
        assert_int_equal(cost_of(k, PTX_SHARED, "st."), c.passes);
    }
    const struct {
        unsigned stride;
        uint64_t passes;
    } fours[] = {
        {16, 4},
        {32, 8},
        {0,  4}
    }; /* of 16 bytes, a quarter of the warp a pass */
    for (const auto &c : fours) {
        char body[256];
        snprintf(body, sizeof body,
                 "mul.lo.u32 %%r4, %%r1, %u; ld.shared.v4.u32 {%%r3, %%r5, %%r6, %%r7}, [%%r4];",
                 c.stride);
        struct ptx_kernel *k = kernel_of(body);
        assert_int_equal(run(k, LANES, 4096), cudaSuccess);
        assert_int_equal(cost_of(k, PTX_SHARED, "ld."), c.passes);
    }
    struct ptx_kernel *k = kernel_of("mov.u32 %r3, 0;");
    assert_int_equal(run(k, LANES), cudaSuccess);
    assert_int_equal(cost_of(k, PTX_GLOBAL, "ld."), 4); /* 32 x 4 bytes in a row */
    k = kernel_of("and.b32 %r4, %r1, 7; mul.wide.u32 %rd6, %r4, 32; add.s64 %rd6, %rd1, %rd6; "
                  "ld.global.u32 %r3, [%rd6];");
    assert_int_equal(run(k, LANES), cudaSuccess);
    assert_int_equal(cost_of(k, PTX_GLOBAL, "ld."), 8);
}

/* --- faults ---------------------------------------------------------------------------------- */

static void faults__are_named_where_they_happen(void **state)
{
    (void)state;
    faults("add.s64 %rd6, %rd4, 1048576; ld.global.u32 %r3, [%rd6];", "ld.global.u32");
    faults("ld.global.v2.u32 {%r3, %r4}, [%rd4];", "no multiple of 8");
    faults("mov.u32 %r4, 64; st.shared.u32 [%r4], %r2; mov.u32 %r3, 0;", "shared memory");
    faults("ld.param.u32 %r3, [k_param_1+12];", "of parameters");
    faults("popc.b64 %r3, %rd1;", "does not know instruction popc.b64");
    faults("mov.u32 %r3, %clock;", "does not know an operand, %clock");
    faults("setp.lt.u32 %p1, %r1, 16;\n @%p1 bra $L__other;\n bar.warp.sync -1; mov.u32 %r3, 1;\n "
           "bra.uni $L__end;\n"
           "$L__other:\n vote.sync.ballot.b32 %r3, %p1, -1;\n bra.uni $L__end;",
           "for each other");
    faults("setp.lt.u32 %p1, %r1, 16;\n @%p1 bra $L__end;\n bar.warp.sync 65535;",
           "not in its mask");
    faults("setp.lt.u32 %p1, %r1, 8;\n @%p1 bra $L__end;\n shfl.sync.idx.b32 %r3|%p2, %r2, 0, 31, "
           "-256;",
           "which is not there");
    faults("setp.lt.u32 %p1, %r1, 32;\n @%p1 bra $L__end;\n bar.sync 0;", "divergent barrier",
           WORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers__wrap_shift_and_divide_as_ptx_says),
        cmocka_unit_test(floats__round_compare_and_convert_as_ptx_says),
        cmocka_unit_test(shuffles__reach_as_ptx_says),
        cmocka_unit_test(lanes__part_join_and_leave),
        cmocka_unit_test(blocks__wait_and_share),
        cmocka_unit_test(costs__count_banks_and_sectors),
        cmocka_unit_test(faults__are_named_where_they_happen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
