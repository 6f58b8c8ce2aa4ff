/* exec/cuda/cuda_cudnn_graph.h - attention as the operation graphs that cuDNN's fused kernels
 * recognise; private to exec/cuda/, for builds with cuDNN's headers (9 or later).
 *
 * cuDNN recognises attention by the structure of its graph: two products with a softmax between
 * them in the forward, five products in the backward. Tensors in between are virtual: the fused
 * kernel never writes them. Layouts are those of exec/base/backend.h, expressed by strides: q, k
 * and v lie in one tensor [n, seq, 3, heads, head_dim], ctx in [n, seq, heads, head_dim], lse in
 * [n, heads, seq]. Tensors in memory and scalars have the uids of cudnn_shape.h; virtual tensors
 * have uids from FIRST_VIRTUAL on. */
#pragma once

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

#include "exec/cuda/cudnn_shape.h"

/* The functions of the library, which is loaded at run time. */
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

/* A finalized operation graph and its parts. Before it is built it must be zeroed, except for
 * `cudnn`. */
struct cudnn_graph {
    const struct cudnn_api *cudnn; /* borrowed */
    cudnnBackendDescriptor_t made[192], ops[48], graph;
    int num_made, num_ops;
    int64_t num_virtual;
    int64_t uids[SDPA_NUM_UIDS];   /* uids that an execution must pass: memory and scalars */
    float numbers[SDPA_NUM_UIDS];  /* scalars by uid; cuDNN reads them at each execution */
    bool is_number[SDPA_NUM_UIDS]; /* by uid */
    int num_uids;
    cudnnStatus_t failed;  /* the first failure */
    const char *failed_at; /* static text: the call that failed */
};
/* Build the graph of a shape. handle: the device's; NULL if the device is only described. false:
 * failed and failed_at say why. Clear the graph in either case. */
bool cudnn_graph_sdpa(struct cudnn_graph *g, cudnnHandle_t handle, const struct sdpa_shape *shape);
void cudnn_graph_clear(struct cudnn_graph *g);
