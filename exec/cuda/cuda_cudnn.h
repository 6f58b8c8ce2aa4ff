/* exec/cuda/cuda_cudnn.h - attention as fused kernels of cuDNN. Optional.
 *
 * libcudnn.so.9 is loaded at run time (ELAPSE_CUDNN_LIB in the environment names another file), so
 * nothing depends on it. A plan is cuDNN's graph of one shape (cuda_cudnn_graph.h) and the first
 * engine that cuDNN proposes for it, can compile, and that gives the same bits every time. The
 * choice depends on shape, device and library version; nothing is timed. Elements are bf16. The
 * head_dim must be a multiple of 8, up to 128, and there is no dropout, because cuDNN's masks are
 * not those of exec/base/rng.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "exec/base/backend.h"
#include "exec/cuda/cudnn_shape.h"

struct CUstream_st; /* a cudaStream_t points to one */
struct cuda_cudnn;
struct cudnn_plan;

/* Load cuDNN; all its work is issued to `stream`. ERR_INFEASIBLE: built without cuDNN's headers,
 * the library is not installed, or it is older than 9.10.2. ERR_SYSTEM: it fails to start.
 * ERR_NOMEM. */
enum status cuda_cudnn_new(struct CUstream_st *stream, struct cuda_cudnn **cudnn, struct err *err);
void cuda_cudnn_free(struct cuda_cudnn *cudnn); /* free its plans first; NULL is fine */
/* The backend's cuDNN, loaded at the first call. NULL: not available. */
struct cuda_cudnn *cuda_cudnn_of(struct backend *be);
/* Load cuDNN because the user asked for it. If it is not available, print `elapse: WITHOUT: reason`
 * on stderr. */
void cuda_cudnn_need(struct backend *be, const char *without);

int cuda_cudnn_version(const struct cuda_cudnn *cudnn); /* 91002 is 9.10.2 */

/* Whether a batch without lengths must still pass SDPA_LEN_*: up to version 9.15.0 the backward is
 * wrong without them if seq is not a multiple of 128. */
bool cuda_cudnn_wants_lengths(const struct cuda_cudnn *cudnn, int seq);

/* Make a plan; cuDNN compiles kernels, which takes seconds. The caller owns *plan. ERR_INFEASIBLE,
 * with cuDNN's reason: it has no engine for the shape that gives the same bits every time.
 * ERR_NOMEM. */
enum status cuda_cudnn_sdpa(struct cuda_cudnn *cudnn, const struct sdpa_shape *shape,
                            struct cudnn_plan **plan, struct err *err);
void cuda_cudnn_plan_free(struct cudnn_plan *plan);          /* NULL is fine */
int64_t cuda_cudnn_workspace(const struct cudnn_plan *plan); /* bytes */

/* Issue a plan. at[uid]: each tensor of the shape, device memory aligned to 16 bytes. Outputs must
 * not be inputs. ERR_SYSTEM: with cuDNN's reason. */
enum status cuda_cudnn_run(struct cuda_cudnn *cudnn, const struct cudnn_plan *plan,
                           void *const at[SDPA_NUM_UIDS], void *workspace, struct err *err);

/* For tests: try to make a plan for a device that need not be installed. `device` describes it as
 * JSON, in the form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. cuDNN matches the graph and
 * compiles its kernels; errors are those of making a plan. */
enum status cuda_cudnn_try(const char *device, const struct sdpa_shape *shape,
                           int64_t *workspace_bytes, struct err *err);
