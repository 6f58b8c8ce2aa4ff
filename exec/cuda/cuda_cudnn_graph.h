/* exec/cuda/cuda_cudnn_graph.h - attention as the operation graphs that cuDNN's fused kernels know;
 * private to exec/cuda/, for builds with cuDNN's headers (9 or later).
 *
 * cuDNN recognises attention by its shape as a graph: two products with a softmax between them
 * forward, five products backward. The tensors between are virtual: the fused kernel never writes
 * them. Layouts are those of exec/backend.h, by strides: q, k and v lie in one tensor
 * [n, seq, 3, heads, head_dim], ctx in [n, seq, heads, head_dim], lse in [n, heads, seq]. Tensors
 * with memory behind them are numbered by enum sdpa_uid, virtual ones from SDPA_VIRTUAL. */
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

enum { SDPA_VIRTUAL = 0x100 };

/* A finalized operation graph and what it is made of. Zeroed before sdpa_graph_build(). */
struct sdpa_graph {
    const struct cudnn_api *cudnn; /* borrowed */
    cudnnBackendDescriptor_t made[192], ops[48], graph;
    int num_made, num_ops;
    int64_t num_virtual;
    cudnnStatus_t failed;  /* the first failure, and of what call */
    const char *failed_at; /* text of the call, static */
};
/* handle: of the device; NULL where plans are made for a device that is described only. False:
 * failed and failed_at say why; clear it all the same. */
bool sdpa_graph_build(struct sdpa_graph *g, const struct cudnn_api *cudnn, cudnnHandle_t handle,
                      const struct sdpa_shape *shape);
void sdpa_graph_clear(struct sdpa_graph *g);

#endif
