/* exec/cpu/backend_cpu.h - the cpu backend: OpenBLAS and C kernels over OpenMP threads.
 * This is all that other wings see of exec/cpu/, but for the names of the matrix kernels
 * (exec/cpu/gemm.h). */
#pragma once

#include "exec/base/backend.h"

/* threads >= 1 OpenMP threads per kernel; a BLAS call runs on one thread. dtype: fp32 or bf16. NULL
 * on failure: ERR_INPUT (threads outside 1..1024, or ELAPSE_GEMM names no kernel), ERR_INFEASIBLE
 * (tf32), ERR_NOMEM. Released with backend_free(). */
struct backend *backend_cpu_new(enum dtype dtype, int threads, struct err *err);
