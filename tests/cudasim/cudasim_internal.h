/* tests/cudasim/cudasim_internal.h - what the files of the emulation share. */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <vector>

#include "tests/cudasim/cudasim_control.h"

enum {
    CUDASIM_SHARED_MOST = 227 * 1024, /* bytes a block may ask for, sm_90 */
    CUDASIM_SHARED_PLAIN = 48 * 1024, /* without the kernel's attribute */
    CUDASIM_THREADS_MOST = 1024,
};

/* --- cudasim_run.cpp ------------------------------------------------------------------------- */
struct cudasim_grid {
    const char *name;
    dim3 grid, block;
    size_t shared;
    void (*run)(void *args);
    void *args;
    size_t args_bytes;
};
/* Runs all blocks; each thread calls run(args). cudaSuccess, or the fault's error. */
cudaError_t cudasim_run(const struct cudasim_grid *g);
bool cudasim_is_argument(const void *address, size_t bytes); /* of the running kernel */
/* Ends the running kernel from within a fiber. */
[[noreturn]] void cudasim_fault(cudaError_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cudasim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *cudasim_fault_text(void);
void cudasim_clear_fault(void);
extern bool cudasim_running;  /* in a fiber */
bool cudasim_runs_here(void); /* on this thread of the host */
extern unsigned cudasim_order;
uint64_t cudasim_chance(void);

/* The state of the checks for the running kernel. Epochs grow at barriers of the block and of a warp. */
extern uint32_t cudasim_launch_count, cudasim_block_count;
extern uint32_t cudasim_block_epoch, cudasim_warp_epoch[32];
extern size_t cudasim_dynamic_bytes;
extern unsigned char *cudasim_stacks, *cudasim_stacks_end; /* of fibers */
static inline bool cudasim_on_stack(const void *address)
{
    const unsigned char *at = (const unsigned char *)address;
    return at >= cudasim_stacks && at < cudasim_stacks_end;
}

/* --- cudasim_rt.cpp -------------------------------------------------------------------------- */
/* Whole of [address, address + bytes) in one live allocation of the device. */
bool cudasim_in_device(const void *address, size_t bytes);
bool cudasim_is_device(const void *address); /* in the device's address range at all */
bool cudasim_is_pinned(const void *address, size_t bytes);
const unsigned char *cudasim_device_origin(void);
/* "in 4096 bytes at 0x..., 16 past the end" for messages. */
const char *cudasim_describe(const void *address);
/* Host code may not touch device memory: it is mapped only between these two (they nest). */
void cudasim_device_open(void);
void cudasim_device_close(void);
/* Puts work into the stream; name is static. Errors it returns stick. */
cudaError_t cudasim_enqueue(cudaStream_t stream, const char *name,
                            std::function<cudaError_t()> work);
/* Work that meets another process: called again while it returns cudaErrorNotReady, and nothing
 * behind it in the stream runs. It opens the device's memory itself. */
cudaError_t cudasim_enqueue_remote(cudaStream_t stream, const char *name,
                                   std::function<cudaError_t()> poll);
/* `what` is to run, on a problem of this shape where the library picks a kernel for each: its first
 * time may wait for all work of the device (ELAPSE_CUDASIM_LOADS). */
void cudasim_loads(const void *what, uint64_t shape = 0);
/* Whether the Nth call of `what` is to fail now (ELAPSE_CUDASIM_FAULT). */
bool cudasim_fails(const char *what);
void cudasim_stick(cudaError_t code);
/* Says so, and fails the kernel that runs, or sticks. */
void cudasim_hazard(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As cudasim_flight_fault(), from any thread. */
bool cudasim_host_fault(const void *address);

/* --- cudasim_hazard.cpp ---------------------------------------------------------------------- */
/* By stream: how many of its works. */
typedef std::vector<uint32_t> cudasim_clock;
/* A work: its number in its stream, from 1 on, and what happened before it, itself included. */
struct cudasim_when {
    uint32_t stream;
    uint64_t number;
    const char *name; /* static */
    cudasim_clock before;
};
void cudasim_clock_join(cudasim_clock *to, const cudasim_clock &other);
/* One more work of a stream, behind all that the host knows. */
void cudasim_issued(cudasim_clock *of_stream, uint32_t stream, const char *name,
                    struct cudasim_when *when);
void cudasim_host_learns(const cudasim_clock &what);
/* Every touch from here on is by this work (borrowed; NULL: by nobody). */
void cudasim_work_begins(const struct cudasim_when *when);
void cudasim_touches(const void *address, size_t bytes, bool writes);
void cudasim_touches_matrix(const void *at, uint64_t rows, uint64_t cols, int64_t ld,
                            int elem_bytes, bool writes);
/* A copy from (writes: to) pinned memory is issued; runs between open and close. */
void cudasim_flight(const void *pinned, size_t bytes, const struct cudasim_when &when, bool writes);
void cudasim_flight_open(const void *pinned, size_t bytes);
void cudasim_flight_close(const void *pinned, size_t bytes);
void cudasim_pinned_goes(const void *pinned, size_t bytes);
/* A fault of the host there was because of that, and will not come again. */
bool cudasim_flight_fault(const void *address);

/* --- cudasim_check.cpp ----------------------------------------------------------------------- */
/* Accesses that the runner makes for a thread (ldmatrix, cp.async). */
void cudasim_check_read(const void *address, size_t bytes);
void cudasim_check_write(const void *address, size_t bytes);
extern bool cudasim_check_on;
