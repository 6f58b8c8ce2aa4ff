/* exec/cuda/cuda_graph.h - CUDA graphs: launch a repeated run of calls as a whole.
 *
 * ELAPSE_GRAPHS in the environment. auto (the default): a run becomes a graph if that pays; its
 * second occurrence is timed to find out. on: every run becomes a graph at its second occurrence.
 * off: none.
 *
 * A graph holds the kernels and arguments of the calls themselves, so results do not depend on this
 * setting. A run that cannot be captured (it allocates or waits) is always issued call by call. */
#ifndef ELAPSE_EXEC_CUDA_CUDA_GRAPH_H
#define ELAPSE_EXEC_CUDA_CUDA_GRAPH_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_graphs;

/* Graphs of runs on `stream`. ERR_INPUT: ELAPSE_GRAPHS has another value. ERR_NOMEM. */
enum status cuda_graphs_new(cudaStream_t stream, struct cuda_graphs **graphs, struct err *err);
void cuda_graphs_free(struct cuda_graphs *graphs); /* NULL is fine */

/* The rule of auto: a graph pays if issuing the calls takes the host at least half of the time that
 * the device needs for them. */
bool cuda_graph_pays(int64_t host_ns, int64_t device_ns);

/* graph_begin() and graph_end() of exec/base/backend.h. */
bool cuda_graphs_begin(struct cuda_graphs *graphs, const void *key, int64_t bytes);
bool cuda_graphs_end(struct cuda_graphs *graphs);

/* Drop all graphs, because memory whose address they hold is about to be released. NULL is fine. */
void cuda_graphs_forget(struct cuda_graphs *graphs);

#ifdef __cplusplus
}
#endif
#endif
