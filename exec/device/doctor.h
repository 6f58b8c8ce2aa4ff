/* exec/device/doctor.h - what `elapse doctor` asks a rank: libraries, GPUs, the way between two
 * ranks. */
#pragma once

#include "exec/comm/comm.h"
#include "profiles/json/json.h"

/* Add what the libraries say of themselves: blas, blas_core, blas_threads, fp32_kernel,
 * bf16_kernel, mpi, crypto, zlib; gpus[] (name, memory_bytes, driver, runtime, cublaslt), else
 * gpu_reason; the versions nccl and cudnn, "" where the library cannot be loaded. Needs no
 * MPI_Init(). */
void doctor_facts(struct json *object);

/* Messages between ranks 0 and 1 and back: add latency_ns (half of the median round trip of 8
 * bytes) and bytes_per_s (of 4 MiB). Collective; other ranks only wait. ERR_INPUT: one rank. */
enum status doctor_ping(const struct comm *comm, struct json *object, struct err *err);
