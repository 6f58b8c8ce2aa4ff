/* The emulation of tests/cudasim/ judged by kernels whose answer is known, and by kernels with one
 * bug each, which it must name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

extern "C" {
#include <cmocka.h>
}
#include <cublasLt.h>

#include "exec/cuda/launch.cuh"
#include "exec/cuda/ptx.cuh"

extern "C" {
void cuda_launched(const char *, const char *, int)
{
}
enum status cuda_note(cudaError_t code, const char *, const char *, int)
{
    return code == cudaSuccess ? OK : ERR_SYSTEM;
}
}

static float *device_floats(int num)
{
    void *at = NULL;
    assert_int_equal(cudaMalloc(&at, (size_t)num * 4), cudaSuccess);
    return (float *)at;
}
static void put(void *device, const void *host, size_t bytes)
{
    assert_int_equal(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), cudaSuccess);
}
static void get(void *host, const void *device, size_t bytes)
{
    assert_int_equal(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}
static void assert_fault(const char *text)
{
    const char *fault = cudasim_take_fault();
    if (!strstr(fault, text))
        fail_msg("the fault is '%s', wanted '%s'", fault, text);
}
static void assert_no_fault(void)
{
    const cudaError_t code = cudaDeviceSynchronize();
    const char *fault = cudasim_take_fault();
    if (fault[0] || code != cudaSuccess)
        fail_msg("error %d, fault '%s'", (int)code, fault);
}
static int quiet(void **state)
{
    (void)state;
    cudasim_take_fault();
    cudasim_set_order(0);
    cudasim_set_streams(0);
    cudasim_set_quiet(true);
    return 0;
}

/* --- right answers --------------------------------------------------------------------------- */

/* Sum of a row by shuffles, then over warps through shared memory. */
static __global__ void sum_rows(int cols, const float *x, float *y)
{
    __shared__ float parts[32];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        sum += x[blockIdx.x * cols + c];
    for (int by = 16; by > 0; by /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, by);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < (int)blockDim.x / 32; i++)
            sum += parts[i];
        y[blockIdx.x] = sum;
    }
}

static void blocks__sum_rows_in_any_order(void **state)
{
    (void)state;
    enum { ROWS = 7, COLS = 1111 };
    static float x[ROWS * COLS];
    float y[ROWS];
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = (float)(i % 97);
    float *dx = device_floats(ROWS * COLS), *dy = device_floats(ROWS);
    put(dx, x, sizeof x);
    for (unsigned order = 0; order < 5; order++) {
        cudasim_set_order(order);
        for (int threads = 32; threads <= 1024; threads *= 2) {
            CUDA_LAUNCH(sum_rows, ROWS, threads, 0, NULL, COLS, dx, dy);
            get(y, dy, sizeof y);
            for (int r = 0; r < ROWS; r++) {
                float want = 0;
                for (int c = 0; c < COLS; c++)
                    want += x[r * COLS + c];
                assert_true(y[r] == want); /* whole numbers: exact in any order */
            }
        }
    }
    assert_no_fault();
    cudaFree(dx);
    cudaFree(dy);
}

static __global__ void lanes(int *out)
{
    const int lane = threadIdx.x, odd = lane & 1;
    int *mine = out + lane * 12;
    mine[0] = __shfl_sync(0xffffffff, lane, lane + 1);
    mine[1] = __shfl_up_sync(0xffffffff, lane, 3);
    mine[2] = __shfl_down_sync(0xffffffff, lane, 3, 8);
    mine[3] = __shfl_xor_sync(0xffffffff, lane, 5);
    mine[4] = (int)__ballot_sync(0xffffffff, lane % 3 == 0);
    mine[5] = __any_sync(0xffffffff, lane == 31) + 2 * __all_sync(0xffffffff, lane < 31);
    mine[6] = __reduce_max_sync(0xffffffff, -lane);
    mine[7] = (int)__reduce_add_sync(0xffffffff, (unsigned)lane);
    if (odd) /* half a warp of its own */
        mine[8] = __shfl_sync(0xaaaaaaaa, lane, 3);
    else
        mine[8] = __shfl_sync(0x55555555, lane, 2);
    mine[9] = __syncthreads_count(lane < 5);
    mine[10] = __syncthreads_or(lane == 40);
    mine[11] = (int)__shfl_sync(0xffffffff, (double)lane + 0.5, 7, 16);
}

static void warps__exchange_as_the_guide_says(void **state)
{
    (void)state;
    int out[32][12];
    int *device = (int *)device_floats(32 * 12);
    for (unsigned order = 0; order < 4; order++) {
        cudasim_set_order(order);
        CUDA_LAUNCH(lanes, 1, 32, 0, NULL, device);
        get(out, device, sizeof out);
        for (int lane = 0; lane < 32; lane++) {
            const int *mine = out[lane];
            assert_int_equal(mine[0], (lane + 1) % 32);
            assert_int_equal(mine[1], lane < 3 ? lane : lane - 3);
            assert_int_equal(mine[2], lane % 8 + 3 < 8 ? lane + 3 : lane);
            assert_int_equal(mine[3], lane ^ 5);
            assert_int_equal(mine[4], 0x49249249);
            assert_int_equal(mine[5], 1);
            assert_int_equal(mine[6], 0);
            assert_int_equal(mine[7], 496);
            assert_int_equal(mine[8], lane & 1 ? 3 : 2);
            assert_int_equal(mine[9], 5);
            assert_int_equal(mine[10], 0);
            assert_int_equal(mine[11], lane / 16 * 16 + 7);
        }
    }
    assert_no_fault();
    cudaFree(device);
}

static __global__ void count_up(int *count, unsigned *ticket, int *last)
{
    atomicAdd(count, 2);
    if (atomicInc(ticket, gridDim.x * blockDim.x - 1) == gridDim.x * blockDim.x - 1)
        atomicExch(last, (int)blockIdx.x + 1);
}

static void atomics__lose_nothing(void **state)
{
    (void)state;
    int zero[3] = {0, 0, 0};
    int *at = (int *)device_floats(3);
    put(at, zero, sizeof zero);
    CUDA_LAUNCH(count_up, dim3(3, 2), 100, 0, NULL, at, (unsigned *)at + 1, at + 2);
    get(zero, at, sizeof zero);
    assert_int_equal(zero[0], 1200);
    assert_no_fault();
    cudaFree(at);
}

/* --- tensor cores: fragments by the PTX ISA's formulas, the product by plain loops ----------- */

static uint16_t bf16_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16); /* exact for the small numbers here */
}

/* D = A B by mma of bf16. A and B are loaded element by element: "groupID = %laneid >> 2,
 * threadID_in_group = %laneid % 4", row and column as the ISA lists them for each a_i and b_i. */
static __global__ void mma_plain(const uint16_t *a, const uint16_t *b, float *d)
{
    const int group = threadIdx.x >> 2, member = threadIdx.x % 4;
    uint16_t ra[8], rb[4];
    float rd[4] = {0, 0, 0, 0};
    for (int i = 0; i < 8; i++) {
        const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
        const int col = i < 4 ? member * 2 + (i & 1) : member * 2 + (i & 1) + 8;
        ra[i] = a[row * 16 + col];
    }
    for (int i = 0; i < 4; i++) {
        const int row = i < 2 ? member * 2 + (i & 1) : member * 2 + (i & 1) + 8;
        rb[i] = b[row * 8 + group];
    }
    uint32_t wa[4], wb[2];
    for (int i = 0; i < 4; i++)
        wa[i] = ra[2 * i] | (uint32_t)ra[2 * i + 1] << 16;
    for (int i = 0; i < 2; i++)
        wb[i] = rb[2 * i] | (uint32_t)rb[2 * i + 1] << 16;
    mma_bf16_16816(rd, wa, wb[0], wb[1]);
    for (int i = 0; i < 4; i++)
        d[(i < 2 ? group : group + 8) * 8 + member * 2 + (i & 1)] = rd[i];
}

/* The same through shared memory and ldmatrix: A's four 8 x 8 tiles as they lie, B's two transposed
 * (B lies [k][n], the fragment wants pairs along k). */
static __global__ void mma_ldmatrix(const uint16_t *a, const uint16_t *b, float *d)
{
    CUDA_DYNAMIC_SHARED(uint16_t, tile);
    uint16_t *ta = tile, *tb = tile + 256;
    const int lane = threadIdx.x;
    cp_async_16(ta + lane * 8, a + lane * 8, true);
    if (lane < 16)
        cp_async_16(tb + lane * 8, b + lane * 8, true);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    uint32_t ra[4], rb[4];
    const int matrix = lane / 8, row = lane % 8;
    ldmatrix_x4(ra, ta + (row + (matrix & 1) * 8) * 16 + (matrix >> 1) * 8);
    ldmatrix_x4_trans(rb, tb + ((matrix & 1) * 8 + row) * 8);
    float rd[4] = {1, 1, 1, 1};
    mma_bf16_16816(rd, ra, rb[0], rb[1]);
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + 8 * (i / 2)) * 8 + lane % 4 * 2 + i % 2] = rd[i] - 1;
}

static void mma_bf16__multiplies_matrices(void **state)
{
    (void)state;
    uint16_t a[256], b[128];
    float d[128], want[128];
    float *fa = (float *)calloc(256, 4), *fb = (float *)calloc(128, 4);
    for (int i = 0; i < 256; i++)
        a[i] = bf16_bits(fa[i] = (float)((i * 7) % 13 - 6));
    for (int i = 0; i < 128; i++)
        b[i] = bf16_bits(fb[i] = (float)((i * 5) % 11 - 5));
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            want[r * 8 + c] = 0;
            for (int k = 0; k < 16; k++)
                want[r * 8 + c] += fa[r * 16 + k] * fb[k * 8 + c];
        }
    uint16_t *da = (uint16_t *)device_floats(128), *db = (uint16_t *)device_floats(64);
    float *dd = device_floats(128);
    put(da, a, sizeof a);
    put(db, b, sizeof b);
    CUDA_LAUNCH(mma_plain, 1, 32, 0, NULL, da, db, dd);
    get(d, dd, sizeof d);
    assert_memory_equal(d, want, sizeof d);
    cudaMemset(dd, 0, sizeof d);
    for (unsigned order = 0; order < 4; order++) {
        cudasim_set_order(order);
        CUDA_LAUNCH(mma_ldmatrix, 1, 32, 768, NULL, da, db, dd);
        get(d, dd, sizeof d);
        assert_memory_equal(d, want, sizeof d);
    }
    assert_no_fault();
    cudaFree(da);
    cudaFree(db);
    cudaFree(dd);
    free(fa);
    free(fb);
}

/* --- bugs, one each -------------------------------------------------------------------------- */

enum bug {
    NO_BUG,
    DIVERGENT_BARRIER,
    LEFT_BEFORE_BARRIER,
    LANE_NOT_IN_MASK,
    HALF_A_COLLECTIVE,
    TWO_COLLECTIVES,
    READ_OF_ABSENT_LANE,
    PAST_SHARED,
    PAST_DEVICE,
    MISALIGNED,
    UNWRITTEN_SHARED,
    RACE_BETWEEN_WARPS,
    RACE_IN_WARP,
    RACE_READ_THEN_WRITE,
    RACE_BETWEEN_BLOCKS,
    SHUFFLE_IS_NO_BARRIER,
    HOST_POINTER,
    UNMAPPED,
    DEEP_STACK,
    NO_ASYNC_WAIT,
    PAST_LOCAL_ARRAY,
    TRAP
};

/* Without the hooks: what kernels of the plain build meet. */
__attribute__((no_sanitize_thread, noinline)) static float unchecked(const float *at)
{
    return *at;
}

__attribute__((noinline)) static int use_stack(int t)
{
    volatile char deep[80 * 1024];
    deep[0] = (char)t;
    return deep[0];
}

static __global__ void buggy(enum bug bug, float *x, int num, float *host)
{
    CUDA_DYNAMIC_SHARED(float, shared);
    const int t = threadIdx.x;
    shared[t] = (float)t;
    __syncthreads();
    switch (bug) {
    case NO_BUG:
        x[blockIdx.x * blockDim.x + t] = shared[t ^ 1];
        break;
    case DIVERGENT_BARRIER:
        if (t < 32)
            __syncthreads();
        else
            __syncthreads();
        break;
    case LEFT_BEFORE_BARRIER:
        if (t == 5)
            return;
        __syncthreads();
        break;
    case LANE_NOT_IN_MASK:
        x[t] = __shfl_sync(0xfffffffe, 1.0f, 3);
        break;
    case HALF_A_COLLECTIVE:
        if (t % 32 < 16)
            __syncwarp();
        __syncthreads();
        break;
    case TWO_COLLECTIVES:
        if (t % 2)
            x[t] = __shfl_sync(0xffffffff, 1.0f, 3);
        else
            __syncwarp();
        break;
    case READ_OF_ABSENT_LANE:
        if (t % 32 < 8)
            x[t] = __shfl_sync(0xff, 1.0f, 9);
        break;
    case PAST_SHARED:
        shared[blockDim.x + t / 32] = 1.0f;
        break;
    case PAST_DEVICE:
        x[num + t] = 1.0f;
        break;
    case MISALIGNED:
        if (t == 0)
            *(float4 *)(x + 1) = make_float4(1, 2, 3, 4);
        break;
    case UNWRITTEN_SHARED:
        x[t] = shared[blockDim.x - 1 + t % 2 * 8];
        break;
    case RACE_BETWEEN_WARPS:
        shared[t] = shared[(t + 32) % blockDim.x];
        break;
    case RACE_IN_WARP:
        shared[t] = 1.0f;
        x[t] = shared[t ^ 1];
        break;
    case RACE_READ_THEN_WRITE:
        x[t] = shared[t ^ 1];
        shared[t] = 1.0f;
        break;
    case RACE_BETWEEN_BLOCKS:
        x[t] = (float)blockIdx.x;
        break;
    case SHUFFLE_IS_NO_BARRIER:
        shared[t] = __shfl_xor_sync(0xffffffff, 1.0f, 1);
        (void)__shfl_xor_sync(0xffffffff, 1.0f, 1);
        x[t] = shared[t ^ 1];
        break;
    case HOST_POINTER:
        x[t] = host[t];
        break;
    case UNMAPPED:
        x[t] = unchecked(x + ((int64_t)1 << 30) / 4);
        break;
    case DEEP_STACK:
        x[t] = (float)use_stack(t);
        break;
    case NO_ASYNC_WAIT: /* copies late: the block reads what was there before */
        cp_async_16(shared + t * 4 % 32, x, t < 8);
        cp_async_commit();
        x[num - 1] = shared[0];
        break;
    case PAST_LOCAL_ARRAY: {
        float local[4] = {1, 2, 3, 4};
        x[t] = local[num / 64 + t / 63];
        break;
    }
    case TRAP:
        if (t == 3)
            __trap();
        break;
    }
}

static void kernels__bugs_are_named(void **state)
{
    (void)state;
    static const struct {
        enum bug bug;
        const char *fault;
        cudaError_t code;
    } cases[] = {
        {NO_BUG,                "",                                      cudaSuccess               },
        {DIVERGENT_BARRIER,     "divergent barrier",                     cudaErrorLaunchFailure    },
        {LEFT_BEFORE_BARRIER,   "threads left before it",                cudaErrorLaunchFailure    },
        {LANE_NOT_IN_MASK,      "is not in its mask",                    cudaErrorLaunchFailure    },
        {HALF_A_COLLECTIVE,     "hangs",                                 cudaErrorLaunchFailure    },
        {TWO_COLLECTIVES,       "lanes diverge",                         cudaErrorLaunchFailure    },
        {READ_OF_ABSENT_LANE,   "which is not there",                    cudaErrorLaunchFailure    },
        {PAST_SHARED,           "of dynamic shared memory of 256 bytes", cudaErrorIllegalAddress   },
        {PAST_DEVICE,           "past the end of an allocation of 1024", cudaErrorIllegalAddress   },
        {MISALIGNED,            "not aligned",                           cudaErrorMisalignedAddress},
        {RACE_BETWEEN_WARPS,    "race: thread",                          cudaErrorLaunchFailure    },
        {RACE_IN_WARP,          "race: thread",                          cudaErrorLaunchFailure    },
        {RACE_READ_THEN_WRITE,  "race: thread",                          cudaErrorLaunchFailure    },
        {RACE_BETWEEN_BLOCKS,   "race: thread 0 of another block",       cudaErrorLaunchFailure    },
        {SHUFFLE_IS_NO_BARRIER, "race: thread",                          cudaErrorLaunchFailure    },
        {HOST_POINTER,          "host memory",                           cudaErrorIllegalAddress   },
        {UNMAPPED,              "illegal address",                       cudaErrorIllegalAddress   },
        {DEEP_STACK,            "stack overrun",                         cudaErrorLaunchFailure    },
        {NO_ASYNC_WAIT,         "race",                                  cudaErrorLaunchFailure    },
        {PAST_LOCAL_ARRAY,      "past an array",                         cudaErrorIllegalAddress   },
        {TRAP,                  "trap at",                               cudaErrorLaunchFailure    },
    };
    float *host = (float *)calloc(64, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float *x = device_floats(256);
        CUDA_LAUNCH(buggy, cases[i].bug == RACE_BETWEEN_BLOCKS ? 2 : 1, 64, 256, NULL, cases[i].bug,
                    x, 256, host);
        const cudaError_t code = cudaDeviceSynchronize();
        if (code != cases[i].code)
            print_message("bug %d: %s\n", (int)cases[i].bug, cudaGetErrorString(code));
        assert_int_equal(code, cases[i].code);
        assert_fault(cases[i].fault);
        assert_int_equal(cudaFree(x), cudaSuccess);
    }
    float *x = device_floats(256);
    CUDA_LAUNCH(buggy, 1, 64, 1024, NULL, UNWRITTEN_SHARED, x, 256, host);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    assert_fault("has not written");
    cudaFree(x);
    free(host);
}

static __global__ void nothing(void)
{
}

static __global__ void write_as(unsigned who, float *x)
{
    if (threadIdx.x == who)
        x[0] = (float)who;
}

/* Stamps of the race check hold 12 bits of the launch's number. */
static void launches__are_told_apart_after_thousands(void **state)
{
    (void)state;
    float *x = device_floats(1);
    CUDA_LAUNCH(write_as, 1, 32, 0, NULL, 5u, x);
    for (int between = 4096 - 8; between < 4096 + 8; between++) {
        for (int i = 0; i < between; i++)
            CUDA_LAUNCH(nothing, 1, 1, 0, NULL);
        CUDA_LAUNCH(write_as, 1, 32, 0, NULL, (unsigned)(between % 32), x);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
        assert_no_fault();
    }
    cudaFree(x);
}

static void launches__limits_of_the_hardware(void **state)
{
    (void)state;
    CUDA_LAUNCH(nothing, 1, 1024, 0, NULL);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    CUDA_LAUNCH(nothing, 1, 1025, 0, NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(nothing, 0, 32, 0, NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(nothing, dim3(1, 65536), 32, 0, NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CUDA_LAUNCH(nothing, 1, 32, 48 * 1024 + 1, NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(CUDA_ALLOW_SHARED(nothing, 227 * 1024 + 1), ERR_SYSTEM);
    assert_int_equal(CUDA_ALLOW_SHARED(nothing, 227 * 1024), OK);
    cudaGetLastError();
    CUDA_LAUNCH(nothing, 1, 32, 227 * 1024, NULL);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    cudasim_take_fault();
}

/* --- host side ------------------------------------------------------------------------------- */

static void copies__wrong_memory_is_refused(void **state)
{
    (void)state;
    float host[16] = {0}, *x = device_floats(16);
    assert_int_equal(cudaMemcpy(x, host, 68, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, host + 8, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, x, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(x, host, 64, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(host, 0, 64), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(host), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, x, 64, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_true(host[0] != host[0]); /* fresh memory is NaN */
    assert_int_equal(cudaFree(x), cudaSuccess);
    assert_int_equal(cudaMemcpy(host, x, 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    cudaGetLastError();
    cudasim_take_fault();
}

static __global__ void add_one(float *x)
{
    x[threadIdx.x] += 1.0f;
}

static void streams__work_comes_late_but_in_order(void **state)
{
    (void)state;
    float *x = device_floats(32), *pinned, seen[32];
    cudaStream_t a, b;
    cudaEvent_t done;
    assert_int_equal(cudaHostAlloc((void **)&pinned, 128, 0), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreate(&done), cudaSuccess);
    cudasim_set_streams(1);
    memset(pinned, 0, 128);
    cudaMemcpyAsync(x, pinned, 128, cudaMemcpyHostToDevice, a);
    CUDA_LAUNCH(add_one, 1, 32, 0, a, x);
    cudaEventRecord(done, a);
    assert_int_equal(cudaEventQuery(done), cudaErrorNotReady);
    cudaStreamWaitEvent(b, done, 0);
    CUDA_LAUNCH(add_one, 1, 32, 0, b, x);
    cudaMemcpyAsync(pinned, x, 128, cudaMemcpyDeviceToHost, b);
    assert_int_equal(cudaEventQuery(done), cudaErrorNotReady);
    assert_int_equal(cudaStreamSynchronize(b), cudaSuccess);
    assert_true(pinned[0] == 2.0f && pinned[1] == 2.0f);
    /* To pageable memory a copy returns when it is done. */
    CUDA_LAUNCH(add_one, 1, 32, 0, b, x);
    cudaMemcpyAsync(seen, x, 128, cudaMemcpyDeviceToHost, b);
    assert_true(seen[1] == 3.0f);
    cudasim_set_streams(0);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaEventDestroy(done);
    cudaFreeHost(pinned);
    cudaFree(x);
    assert_no_fault();
}

static __global__ void copy_one(const float *x, float *y)
{
    y[threadIdx.x] = x[threadIdx.x];
}

/* Work runs as it is issued here, always in the right order; what would not hold elsewhere is
 * named all the same. */
static void hazards__between_streams_are_named(void **state)
{
    (void)state;
    enum { NONE, EVENT, EARLY, HOST, WAYS };
    float *x = device_floats(64), *y = device_floats(64);
    cudaStream_t a, b;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&done);
    cudaMemset(x, 0, 256);
    cudaMemset(y, 0, 256);
    for (int way = 0; way < 4 * WAYS; way++) {
        cudaDeviceSynchronize();
        const int how = way / 4;
        if (how == EARLY)
            cudaEventRecord(done, a);
        if (way % 4 < 2) /* written */
            CUDA_LAUNCH(add_one, 1, 32, 0, a, x);
        else /* read */
            CUDA_LAUNCH(copy_one, 1, 32, 0, a, x, y);
        if (how == EVENT)
            cudaEventRecord(done, a);
        if (how == EVENT || how == EARLY)
            cudaStreamWaitEvent(b, done, 0);
        if (how == HOST)
            cudaStreamSynchronize(a);
        if (way % 2 == 0)
            cudaMemsetAsync(x, 0, 128, b);
        else /* shares with what a reads and writes nothing but what is read here */
            CUDA_LAUNCH(copy_one, 1, 32, 0, b, x, y + 32);
        const bool ordered = how == EVENT || how == HOST || way % 4 == 3;
        if (ordered)
            assert_no_fault();
        else
            assert_fault("with nothing to order them");
    }
    /* The word goes on from stream to stream. */
    cudaStream_t c;
    cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking);
    CUDA_LAUNCH(add_one, 1, 32, 0, a, x);
    cudaEventRecord(done, a);
    cudaStreamWaitEvent(b, done, 0);
    cudaEventRecord(done, b);
    cudaStreamWaitEvent(c, done, 0);
    CUDA_LAUNCH(add_one, 1, 32, 0, c, x);
    assert_no_fault();
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaStreamDestroy(c);
    cudaEventDestroy(done);
    cudaFree(x);
    cudaFree(y);
}

static void hazards__of_the_host_with_copies_are_named(void **state)
{
    (void)state;
    float *x = device_floats(64), *pinned;
    cudaStream_t a;
    cudaEvent_t done;
    cudaHostAlloc((void **)&pinned, 512, 0);
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaEventCreate(&done);
    for (int way = 0; way < 12; way++) {
        const bool out = way % 2, waits = way / 2 % 2;
        cudaMemcpyAsync(out ? pinned : x, out ? x : pinned, 256,
                        out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, a);
        cudaEventRecord(done, a);
        if (waits && way / 4 == 0)
            cudaEventSynchronize(done);
        if (waits && way / 4 == 1)
            assert_int_equal(cudaEventQuery(done), cudaSuccess);
        if (waits && way / 4 == 2)
            cudaStreamSynchronize(a);
        (void)((volatile float *)pinned)[3]; /* what a copy reads may be read */
        if (out && !waits)
            assert_fault("nobody has waited for it");
        else
            assert_string_equal(cudasim_take_fault(), "");
        cudaMemcpyAsync(out ? pinned : x, out ? x : pinned, 256,
                        out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, a);
        if (waits)
            cudaDeviceSynchronize();
        ((volatile float *)pinned)[3] = 1.0f;
        if (waits)
            assert_no_fault();
        else
            assert_fault("nobody has waited for it");
        cudaMemcpyAsync(pinned, x, 256, cudaMemcpyDeviceToHost, a);
        ((volatile float *)pinned)[100] = 1.0f; /* beside it */
        assert_no_fault();
    }
    cudaStreamDestroy(a);
    cudaEventDestroy(done);
    cudaFreeHost(pinned);
    cudaFree(x);
}

/* --- cuBLASLt -------------------------------------------------------------------------------- */

struct product {
    int m, n, k, lda, ldb, ldd;
    bool ta, tb, low, low_out;
    cublasLtEpilogue_t epilogue;
    float beta;
    int aux_ld, align;
};

/* One product on given device memory; *algos: how many were proposed. */
static cublasStatus_t multiply(const struct product *p, const void *a, const void *b, void *d,
                               void *bias, void *aux, int pick, int *algos)
{
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, ld;
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found[4];
    const cublasOperation_t ta = p->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t tb = p->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cudaDataType_t in = p->low ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t out = p->low_out ? CUDA_R_16BF : CUDA_R_32F;
    const int64_t aux_ld = p->aux_ld;
    const uint64_t space = 1 << 20;
    const uint32_t align = (uint32_t)p->align;
    const float one = 1.0f;
    void *workspace = NULL;
    int count = 0;
    cublasLtCreate(&lt);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue,
                                   sizeof p->epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                   sizeof aux);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld,
                                   sizeof aux_ld);
    cublasLtMatrixLayoutCreate(&la, in, (uint64_t)(p->ta ? p->k : p->m),
                               (uint64_t)(p->ta ? p->m : p->k), p->lda);
    cublasLtMatrixLayoutCreate(&lb, in, (uint64_t)(p->tb ? p->n : p->k),
                               (uint64_t)(p->tb ? p->k : p->n), p->ldb);
    cublasLtMatrixLayoutCreate(&ld, out, (uint64_t)p->m, (uint64_t)p->n, p->ldd);
    cublasLtMatmulPreferenceCreate(&pref);
    cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space,
                                         sizeof space);
    for (int i = 0; i < 4; i++)
        cublasLtMatmulPreferenceSetAttribute(
            pref,
            (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i),
            &align, sizeof align);
    cublasStatus_t code =
        cublasLtMatmulAlgoGetHeuristic(lt, desc, la, lb, ld, ld, pref, 4, found, &count);
    if (algos)
        *algos = count;
    if (code == CUBLAS_STATUS_SUCCESS) {
        cudaMalloc(&workspace, space);
        code = cublasLtMatmul(lt, desc, &one, a, la, b, lb, &p->beta, d, ld, d, ld,
                              &found[pick].algo, workspace, space, NULL);
        cudaFree(workspace);
    }
    cublasLtMatmulPreferenceDestroy(pref);
    cublasLtMatrixLayoutDestroy(la);
    cublasLtMatrixLayoutDestroy(lb);
    cublasLtMatrixLayoutDestroy(ld);
    cublasLtMatmulDescDestroy(desc);
    cublasLtDestroy(lt);
    return code;
}

static double gelu64(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void cublaslt__products_and_epilogues_match_plain_loops(void **state)
{
    (void)state;
    static const cublasLtEpilogue_t epilogues[] = {
        CUBLASLT_EPILOGUE_DEFAULT,  CUBLASLT_EPILOGUE_BIAS,       CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DGELU,      CUBLASLT_EPILOGUE_BGRADA,
        CUBLASLT_EPILOGUE_BGRADB,   CUBLASLT_EPILOGUE_DGELU_BGRAD};
    enum { M = 37, N = 11, K = 50, LD = 56, MOST = LD * LD };
    static float a[MOST], b[MOST], d[MOST], d0[MOST], aux0[MOST], aux[MOST], bias[MOST];
    float *da = device_floats(MOST), *db = device_floats(MOST), *dd = device_floats(MOST);
    float *daux = device_floats(MOST), *dbias = device_floats(MOST);
    for (int i = 0; i < MOST; i++) {
        a[i] = sinf((float)i);
        b[i] = cosf(0.7f * (float)i);
        d0[i] = sinf(0.3f * (float)i);
        aux0[i] = cosf((float)i);
    }
    put(da, a, sizeof a);
    put(db, b, sizeof b);
    for (int form = 0; form < 64; form++) {
        const cublasLtEpilogue_t e = epilogues[form >> 3];
        const struct product p = {M,
                                  N,
                                  K,
                                  LD,
                                  LD,
                                  LD,
                                  (form & 1) != 0,
                                  (form & 2) != 0,
                                  false,
                                  false,
                                  e,
                                  form & 4 ? 0.5f : 0.0f,
                                  LD,
                                  16};
        put(dd, d0, sizeof d0);
        put(daux, aux0, sizeof aux0);
        put(dbias, aux0, sizeof aux0);
        assert_int_equal(multiply(&p, da, db, dd, dbias, daux, form % 2, NULL),
                         CUBLAS_STATUS_SUCCESS);
        get(d, dd, sizeof d);
        get(aux, daux, sizeof aux);
        get(bias, dbias, sizeof bias);
        double grad[M] = {0};
        for (int j = 0; j < N; j++)
            for (int i = 0; i < M; i++) {
                double sum = 0;
                for (int k = 0; k < K; k++)
                    sum += (double)a[p.ta ? k + i * LD : i + k * LD] *
                           b[p.tb ? j + k * LD : k + j * LD];
                sum += p.beta * d0[i + j * LD];
                if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
                    sum += aux0[i];
                if (e == CUBLASLT_EPILOGUE_GELU_AUX || e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                    assert_true(fabs(aux[i + j * LD] - sum) < 1e-5);
                    sum = gelu64(sum);
                }
                if (e == CUBLASLT_EPILOGUE_DGELU || e == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
                    const double x = aux0[i + j * LD], h = 1e-5;
                    sum *= (gelu64(x + h) - gelu64(x - h)) / (2 * h);
                    grad[i] += sum;
                }
                assert_true(fabs(d[i + j * LD] - sum) < 1e-5);
            }
        assert_true(d[M] == d0[M]); /* between columns nothing is written */
        for (int i = 0; i < M && e == CUBLASLT_EPILOGUE_DGELU_BGRAD; i++)
            assert_true(fabs(bias[i] - grad[i]) < 1e-4);
        for (int i = 0; i < M && e == CUBLASLT_EPILOGUE_BGRADA; i++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[p.ta ? k + i * LD : i + k * LD];
            assert_true(fabs(bias[i] - sum) < 1e-5);
        }
        for (int j = 0; j < N && e == CUBLASLT_EPILOGUE_BGRADB; j++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += b[p.tb ? j + k * LD : k + j * LD];
            assert_true(fabs(bias[j] - sum) < 1e-5);
        }
    }
    assert_no_fault();
    cudaFree(da);
    cudaFree(db);
    cudaFree(dd);
    cudaFree(daux);
    cudaFree(dbias);
}

static void cublaslt__refuses_what_the_library_refuses(void **state)
{
    (void)state;
    float *a = device_floats(4096), *b = device_floats(4096), *d = device_floats(4096);
    float *aux = device_floats(4096);
    const struct product good = {
        16, 16, 16, 16, 16, 16, false, false, true, true, CUBLASLT_EPILOGUE_GELU_AUX, 0, 16, 16};
    struct product p = good;
    int algos = 0;
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, &algos), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(algos, 3);
    p.aux_ld = 20;
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    p.aux_ld = 8;
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    p = good;
    assert_int_equal(multiply(&p, a, b, d, NULL, aux + 1, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    p.lda = 15;
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    p = good;
    p.low = false; /* fp32 operands, bf16 result */
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    p = good;
    assert_int_equal(multiply(&p, a + 1, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    p.align = 2;
    assert_int_equal(multiply(&p, a + 1, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_SUCCESS);
    p = good;
    p.epilogue = CUBLASLT_EPILOGUE_BIAS;
    assert_int_equal(multiply(&p, a, b, d, NULL, NULL, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply(&p, a, b, a, b, NULL, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(multiply(&p, a, b, d, aux, NULL, 0, NULL), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(multiply(&p, a, b, d, aux + 2, NULL, 0, NULL), CUBLAS_STATUS_INVALID_VALUE);
    p = good;
    p.m = p.lda = p.ldd = p.aux_ld = 2048; /* past the operands */
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, NULL), CUBLAS_STATUS_EXECUTION_FAILED);
    setenv("ELAPSE_CUDASIM_EPILOGUES", "0", 1);
    p = good;
    assert_int_equal(multiply(&p, a, b, d, NULL, aux, 0, &algos), CUBLAS_STATUS_NOT_SUPPORTED);
    unsetenv("ELAPSE_CUDASIM_EPILOGUES");
    cudasim_take_fault();
    cudaFree(a);
    cudaFree(b);
    cudaFree(d);
    cudaFree(aux);
}

/* --- faults on demand ------------------------------------------------------------------------ */

static void faults__come_when_asked_for(void **state)
{
    (void)state;
    void *at = NULL;
    int count = 0;
    setenv("ELAPSE_CUDASIM_FAULT", "no-device", 1);
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(cudaMalloc(&at, 16), cudaErrorNoDevice);
    setenv("ELAPSE_CUDASIM_FAULT", "old-driver", 1);
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    setenv("ELAPSE_CUDASIM_FAULT", "malloc", 1);
    assert_int_equal(cudaMalloc(&at, 16), cudaErrorMemoryAllocation);
    assert_null(at);
    setenv("ELAPSE_CUDASIM_FAULT_RANK", "1", 1); /* somebody else's */
    assert_int_equal(cudaMalloc(&at, 16), cudaSuccess);
    unsetenv("ELAPSE_CUDASIM_FAULT_RANK");
    setenv("ELAPSE_CUDASIM_FAULT", "ecc", 1);
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
    unsetenv("ELAPSE_CUDASIM_FAULT");
    assert_int_equal(cudaFree(at), cudaErrorECCUncorrectable); /* it sticks */
    cudasim_take_fault();
    setenv("ELAPSE_CUDASIM_FAULT", "launch", 1);
    CUDA_LAUNCH(nothing, 1, 32, 0, NULL);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    unsetenv("ELAPSE_CUDASIM_FAULT");
    cudasim_take_fault();
    assert_int_equal(cudaFree(at), cudaSuccess);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, quiet)
    const struct CMUnitTest tests[] = {
        TEST(blocks__sum_rows_in_any_order),
        TEST(warps__exchange_as_the_guide_says),
        TEST(atomics__lose_nothing),
        TEST(mma_bf16__multiplies_matrices),
        TEST(kernels__bugs_are_named),
        TEST(launches__limits_of_the_hardware),
        TEST(launches__are_told_apart_after_thousands),
        TEST(copies__wrong_memory_is_refused),
        TEST(streams__work_comes_late_but_in_order),
        TEST(hazards__between_streams_are_named),
        TEST(hazards__of_the_host_with_copies_are_named),
        TEST(cublaslt__products_and_epilogues_match_plain_loops),
        TEST(cublaslt__refuses_what_the_library_refuses),
        TEST(faults__come_when_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
