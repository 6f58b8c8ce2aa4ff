/* exec/cuda/cuda_graph.h - CUDA graphs: a run of calls that comes again, launched as a whole.
 *
 * ELAPSE_GRAPHS in the environment: auto (the default), a run becomes a graph where that pays, for
 * which it is measured the second time that it comes; on, every run does, the second time; off,
 * none.
 *
 * The kernels and their arguments are those of the calls, so no bit depends on it. What cannot be
 * captured (an allocation, a wait) is issued as it is, for good. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_GRAPH_H
#define ELAPSE_EXEC_CUDA_CUDA_GRAPH_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_graphs;

/* On `stream`. ERR_INPUT: the environment's value is none of these; ERR_NOMEM. */
enum status cuda_graphs_new(cudaStream_t stream, struct cuda_graphs **graphs, struct err *err);
void cuda_graphs_free(struct cuda_graphs *graphs); /* NULL is fine */

/* auto's rule: issuing the calls keeps the host busy for at least half of the time that the device
 * takes for them. */
bool cuda_graph_pays(int64_t host_ns, int64_t device_ns);

/* backend.h's graph_begin() and graph_end(). */
bool cuda_graphs_begin(struct cuda_graphs *graphs, const void *key, int64_t bytes);
bool cuda_graphs_end(struct cuda_graphs *graphs);

/* Memory that graphs may know by its address goes back: none of them stays. NULL is fine. */
void cuda_graphs_forget(struct cuda_graphs *graphs);

#ifdef __cplusplus
}
#endif
#endif
