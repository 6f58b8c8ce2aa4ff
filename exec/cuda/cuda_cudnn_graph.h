/* exec/cuda/cuda_cudnn_graph.h - attention, and products with GELU behind them, as the operation
 * graphs that cuDNN's fused kernels know; private to exec/cuda/, for builds with cuDNN's headers (9
 * or later).
 *
 * cuDNN recognises attention by its shape as a graph: two products with a softmax between them
 * forward, five products backward. The tensors between are virtual: the fused kernel never writes
 * them. Layouts are those of exec/base/backend.h, by strides: q, k and v lie in one tensor
 * [n, seq, 3, heads, head_dim], ctx in [n, seq, heads, head_dim], lse in [n, heads, seq]. A product
 * is [1, rows, in] times [1, in, out], with elementwise operations behind it. Tensors with memory
 * behind them, and numbers, have the uids of cuda_cudnn.h; virtual ones those from FIRST_VIRTUAL.
 */
#ifndef ELAPSE_EXEC_CUDA_CUDA_CUDNN_GRAPH_H
#define ELAPSE_EXEC_CUDA_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/cuda/cuda_cudnn.h"

/* The library's functions, of a library loaded at run time. */
#define CUDNN_FUNCTIONS(DO)                                                                        \
    DO(cudnnGetVersion)                                                                            \
    DO(cudnnGetErrorString)                                                                        \
    DO(cudnnGetLastErrorString)                                                                    \
    DO(cudnnCreate)                                                                                \
    DO(cudnnDestroy)                                                                               \
    DO(cudnnSetStream)                                                                             \
    DO(cudnnBackendCreateDescriptor)                                                               \
    DO(cudnnBackendDestroyDescriptor)                                                              \
    DO(cudnnBackendFinalize)                                                                       \
    DO(cudnnBackendSetAttribute)                                                                   \
    DO(cudnnBackendGetAttribute)                                                                   \
    DO(cudnnBackendExecute)
struct cudnn_api {
#define CUDNN_FIELD(name) __typeof__(&(name)) name;
    CUDNN_FUNCTIONS(CUDNN_FIELD)
#undef CUDNN_FIELD
};

enum { FIRST_VIRTUAL = 0x100 };

/* A finalized operation graph and what it is made of. Zeroed, but for `cudnn`, before it is built.
 */
struct cudnn_graph {
    const struct cudnn_api *cudnn; /* borrowed */
    cudnnBackendDescriptor_t made[192], ops[48], graph;
    int num_made, num_ops;
    int64_t num_virtual;
    int64_t uids[CUDNN_NUM_UIDS];   /* of what an execution names: memory, and numbers */
    float numbers[CUDNN_NUM_UIDS];  /* by uid; read by cuDNN at each execution */
    bool is_number[CUDNN_NUM_UIDS]; /* by uid */
    int num_uids;
    cudnnStatus_t failed;  /* the first failure, and of what call */
    const char *failed_at; /* text of the call, static */
};
/* handle: of the device; NULL where plans are made for a device that is described only. False:
 * failed and failed_at say why; clear it all the same. */
bool cudnn_graph_sdpa(struct cudnn_graph *g, cudnnHandle_t handle, const struct sdpa_shape *shape);
bool cudnn_graph_gelu(struct cudnn_graph *g, cudnnHandle_t handle, const struct gelu_shape *shape);
void cudnn_graph_clear(struct cudnn_graph *g);

#endif
