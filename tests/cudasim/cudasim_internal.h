/* tests/cudasim/cudasim_internal.h - what the files of the emulation share. */
#ifndef ELAPSE_TESTS_CUDASIM_CUDASIM_INTERNAL_H
#define ELAPSE_TESTS_CUDASIM_CUDASIM_INTERNAL_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include <functional>

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
extern bool cudasim_running; /* in a fiber */
extern unsigned cudasim_order;
uint64_t cudasim_chance(void);

/* What checks know of the running kernel. Epochs grow at barriers of the block and of a warp. */
extern uint32_t cudasim_launch_count, cudasim_block_count;
extern uint32_t cudasim_block_epoch, cudasim_warp_epoch[32];
extern size_t cudasim_dynamic_bytes;
bool cudasim_on_stack(const void *address);

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
/* Puts work into the stream. Errors it returns stick. */
cudaError_t cudasim_enqueue(cudaStream_t stream, std::function<cudaError_t()> work);
/* Work that meets another process: called again while it returns cudaErrorNotReady, and nothing
 * behind it in the stream runs. It opens the device's memory itself. */
cudaError_t cudasim_enqueue_remote(cudaStream_t stream, std::function<cudaError_t()> poll);
/* Whether the Nth call of `what` is to fail now (ELAPSE_CUDASIM_FAULT). */
bool cudasim_fails(const char *what);
void cudasim_stick(cudaError_t code);

/* --- cudasim_check.cpp ----------------------------------------------------------------------- */
/* Accesses that the runner makes for a thread (ldmatrix, cp.async). */
void cudasim_check_read(const void *address, size_t bytes);
void cudasim_check_write(const void *address, size_t bytes);
extern bool cudasim_check_on;
#endif
