/* exec/cuda/ptx.cuh - instructions of sm_80 and later that CUDA C does not offer. No other file
 * holds inline PTX. The emulation (tests/cudasim/) defines the same functions.
 *
 * All lanes of a warp must call mma_* and ldmatrix_* together. With g = lane / 4 and t = lane % 4,
 * and the lower column (or row k) in the lower half of a register of two bf16:
 *
 *   mma_bf16_16816   D[16, 8] += A[16, 16] B[16, 8]
 *     a[0] A[g][2t, 2t+1]   a[1] A[g+8][2t, 2t+1]   a[2] A[g][2t+8, +9]   a[3] A[g+8][2t+8, +9]
 *     b0   B[2t, 2t+1][g]   b1   B[2t+8, 2t+9][g]
 *     d[0] D[g][2t]   d[1] D[g][2t+1]   d[2] D[g+8][2t]   d[3] D[g+8][2t+1]
 *   ldmatrix_x4      four 8 x 8 matrices of 16-bit elements, rows of 16 bytes in shared memory:
 *     lane 8 m + r passes the address of row r of matrix m; to[m] = elements [g][2t, 2t+1] of
 *     matrix m. ldmatrix_x4_trans: elements [2t, 2t+1][g].
 * (PTX ISA, "Matrix Fragments for mma.m16n8k16", "ldmatrix".) */
#pragma once

#ifndef ELAPSE_CUDASIM

#include <stdint.h>

static __device__ __forceinline__ void mma_bf16_16816(float *d, const uint32_t *a, uint32_t b0,
                                                      uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void ldmatrix_x4(uint32_t *to, const void *shared_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared_row))
                 : "memory");
}

static __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t *to, const void *shared_row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared_row))
                 : "memory");
}

/* Starts an asynchronous copy of 16 bytes from device to shared memory (both addresses multiples of
 * 16). If !valid it writes zeros and does not read `global`. The data are visible to this thread
 * after cp_async_wait(), and to the block after the next barrier. */
static __device__ __forceinline__ void cp_async_16(void *shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

/* Closes a group: the copies that this thread has started since the last group. */
static __device__ __forceinline__ void cp_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits until at most PENDING of this thread's groups, the newest, are in flight. */
template <int PENDING> static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Stores 16 bytes to device memory in one access. */
static __device__ __forceinline__ void store_global_16(void *global, uint4 x)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)),
                 "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
                 : "memory");
}

/* 2^x with a relative error below 2^-22. Denormal results become 0; -infinity gives 0. */
static __device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x with an error below one ulp; infinity gives 0. */
static __device__ __forceinline__ float rcp_approx(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif /* ELAPSE_CUDASIM */
