/* tests/cudasim/cudasim_control.h - the switches of the emulated device, for tests in C. The
 * environment sets the same before the first call:
 *
 *   ELAPSE_CUDASIM_ORDER=N     order of warps and lanes between barriers: 0 ascending, 1
 * descending, more: shuffled by N. cp.async then copies early or late by chance
 *   ELAPSE_CUDASIM_STREAMS=N   0: work runs as it is issued; 1: not before something waits for it;
 *                              more: some of it, by chance of N
 *   ELAPSE_CUDASIM_LOADS=1     what runs for the first time (products: with operands of this shape)
 *                              waits for all work of the device, as for a kernel that is loaded then
 *   ELAPSE_CUDASIM_MEMORY=N    bytes of device memory (4 GiB)
 *   ELAPSE_CUDASIM_SMS=N, ELAPSE_CUDASIM_SHARED=N  multiprocessors (8), and the bytes of shared
 *                              memory that a block may ask for (227 KiB)
 *   ELAPSE_CUDASIM_FAULT=WHAT  no-device, old-driver, malloc@N, host-alloc@N, launch@N, stream@N, ecc@N
 *                              (at the Nth wait), copy@N (likewise, at the Nth that a lane gets), room@N
 *                              (a launch for which the device has no memory), matmul@N, cudnn@N: the Nth
 *                              call of its kind fails
 *   ELAPSE_CUDASIM_CUDNN=WHAT  refuse, wrong, old, odd, slow: see cudasim_dnn.cpp
 *   ELAPSE_CUDASIM_PLACES=1    products round a column by its place
 *   ELAPSE_CUDASIM_LOG=FILE    a line at the end of the process: "mallocs N launches N"
 *   ELAPSE_CUDASIM_FAULT_RANK=R  only in the process of rank R (OMPI_COMM_WORLD_RANK) */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void cudasim_set_order(unsigned order);
void cudasim_set_streams(unsigned mode);
void cudasim_set_quiet(bool quiet); /* no line on stderr for a fault */
/* Text of the last fault, "" for none; forgets it and the error that stuck, as a new process
 * would. Valid until the next fault. */
const char *cudasim_take_fault(void);
/* Kernels and matrix products that ran so far, and allocations of device memory. */
int64_t cudasim_num_launches(void);
int64_t cudasim_num_matmuls(void);
int64_t cudasim_num_mallocs(void);
void cudasim_pass_time(void);     /* all work ends, which the host does not know */
/* Whether kernels are compiled with the checks of cudasim_check.cpp. */
bool cudasim_checks(void);

#ifdef __cplusplus
}
#endif
