/* exec/device/cuda_load.h - the cuda backend, from a shared object of its own (elapse-cuda.so
 * beside the program), loaded when a device is asked for: the program starts, and trains on the
 * CPU, on machines without CUDA's libraries, and pays nothing for them where they are. */
#ifndef ELAPSE_EXEC_DEVICE_CUDA_LOAD_H
#define ELAPSE_EXEC_DEVICE_CUDA_LOAD_H

#include "exec/cuda/cuda.h"

/* As the functions of exec/cuda/cuda.h of the same names. ERR_INFEASIBLE where the shared object is
 * not there (a build without nvcc), ERR_SYSTEM where it cannot be loaded (a library it needs is
 * missing). ELAPSE_CUDA_LIB in the environment names another one. */
struct backend *cuda_load_backend(const struct cuda_spec *spec, struct err *err);
enum status cuda_load_device_info(int device, struct cuda_device *info, struct err *err);
int cuda_load_num_devices(void); /* 0 also where nothing can be loaded */

/* A function or object of a shared object: the backend's, or elapse-nccl.so beside it (for
 * exec/comm/comm_nccl.c; ELAPSE_NCCL_LIB names another). NULL after filling err. */
enum cuda_load_library { CUDA_LOAD_BACKEND, CUDA_LOAD_NCCL };
void *cuda_load_symbol(enum cuda_load_library library, const char *name, struct err *err);

#endif
