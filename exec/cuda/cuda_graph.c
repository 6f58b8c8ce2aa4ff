/* A table of runs, each with its key and, once captured, its graph (cuda_graph.h).
 *
 * begin() finds the run by its key. The first occurrence is issued normally: it allocates memory
 * and chooses algorithms. Later occurrences are timed (auto, the second one), captured, or launched
 * as a graph; end() finishes what begin() started. Read cuda_graphs_begin() and cuda_graphs_end()
 * first. */
#include "exec/cuda/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

#include "profiles/base/clock.h"

enum { MOST_RUNS = 512 };

struct run {
    void *key; /* owned */
    int64_t bytes, seen;
    cudaGraphExec_t graph; /* NULL: not captured yet */
    bool never;            /* a graph does not pay, or the run cannot be captured */
    cudaEvent_t from, to;  /* around the second occurrence, if it is timed */
    int64_t host_ns;       /* time the host took to issue it */
};

struct cuda_graphs {
    cudaStream_t stream;
    enum { GRAPHS_AUTO, GRAPHS_ON, GRAPHS_OFF } mode;
    struct run runs[MOST_RUNS];
    int num;
    struct run *open; /* the run between begin and end; NULL: end has nothing to do */
    bool capturing;
    bool stale; /* memory was released during the capture, so the graph must be dropped */
    int64_t began_ns;
    struct err failed; /* the first failure before the capture, to restore it */
};

enum status cuda_graphs_new(cudaStream_t stream, struct cuda_graphs **out, struct err *err)
{
    static const char *const modes[] = {
        [GRAPHS_AUTO] = "auto", [GRAPHS_ON] = "on", [GRAPHS_OFF] = "off"};
    const char *named = getenv("ELAPSE_GRAPHS");
    int mode = GRAPHS_AUTO;
    while (named && *named && mode <= GRAPHS_OFF && strcmp(named, modes[mode]) != 0)
        mode++;
    if (mode > GRAPHS_OFF)
        return err_set(err, ERR_INPUT, "ELAPSE_GRAPHS must be auto, on or off, got '%.40s'", named);
    struct cuda_graphs *graphs = calloc(1, sizeof *graphs);
    if (!graphs)
        return err_nomem(err);
    graphs->stream = stream;
    graphs->mode = mode;
    *out = graphs;
    return OK;
}

void cuda_graphs_forget(struct cuda_graphs *graphs)
{
    if (graphs && graphs->capturing) { /* the end of the capture drops them */
        graphs->stale = true;
        return;
    }
    for (int i = 0; graphs && i < graphs->num; i++) {
        struct run *run = &graphs->runs[i];
        if (run->graph) /* a graph in flight still completes */
            CUDA_NOTE(cudaGraphExecDestroy(run->graph));
        if (run->from)
            CUDA_NOTE(cudaEventDestroy(run->from));
        if (run->to)
            CUDA_NOTE(cudaEventDestroy(run->to));
        free(run->key);
    }
    if (graphs) {
        graphs->num = 0;
        graphs->open = NULL;
    }
}

void cuda_graphs_free(struct cuda_graphs *graphs)
{
    cuda_graphs_forget(graphs);
    free(graphs);
}

/* The run of this key, entered if it is new. NULL: the table is full, or no memory. */
static struct run *run_of(struct cuda_graphs *graphs, const void *key, int64_t bytes)
{
    for (int i = 0; i < graphs->num; i++)
        if (graphs->runs[i].bytes == bytes && memcmp(graphs->runs[i].key, key, (size_t)bytes) == 0)
            return &graphs->runs[i];
    if (graphs->num == MOST_RUNS)
        return NULL;
    void *copy = malloc((size_t)bytes);
    if (!copy)
        return NULL;
    struct run *run = &graphs->runs[graphs->num++];
    *run = (struct run){.key = memcpy(copy, key, (size_t)bytes), .bytes = bytes};
    return run;
}

static void start_timing(struct cuda_graphs *graphs, struct run *run)
{
    if (cudaEventCreate(&run->from) != cudaSuccess || cudaEventCreate(&run->to) != cudaSuccess) {
        (void)cudaGetLastError();
        run->never = true;
        return;
    }
    graphs->open = run;
    CUDA_NOTE(cudaEventRecord(run->from, graphs->stream));
    graphs->began_ns = clock_now_ns();
}

bool cuda_graph_pays(int64_t host_ns, int64_t device_ns)
{
    return host_ns >= device_ns - host_ns;
}

/* Whether a graph pays for this run. False until the device has finished the timed occurrence. */
static bool known_to_pay(struct run *run)
{
    float ms = 0.0f;
    const cudaError_t code = cudaEventQuery(run->to);
    if (code == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    CUDA_NOTE(code);
    CUDA_NOTE(cudaEventElapsedTime(&ms, run->from, run->to));
    run->never = !cuda_graph_pays(run->host_ns, (int64_t)((double)ms * 1e6));
    return !run->never;
}

bool cuda_graphs_begin(struct cuda_graphs *graphs, const void *key, int64_t bytes)
{
    graphs->open = NULL;
    if (graphs->mode == GRAPHS_OFF || cuda_waits())
        return false;
    struct run *run = run_of(graphs, key, bytes);
    if (!run || run->never)
        return false;
    if (run->graph) {
        CUDA_NOTE(cudaGraphLaunch(run->graph, graphs->stream));
        return true;
    }
    run->seen++; /* the first occurrence allocates memory and chooses algorithms, so it cannot be
                    captured */
    if (graphs->mode == GRAPHS_AUTO && run->seen == 2)
        start_timing(graphs, run);
    else if (run->seen >= 2 && (graphs->mode == GRAPHS_ON || known_to_pay(run))) {
        graphs->failed = cuda_failures();
        graphs->capturing =
            cudaStreamBeginCapture(graphs->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
        run->never = !graphs->capturing;
        graphs->open = graphs->capturing ? run : NULL;
    }
    return false;
}

/* Turns the calls since begin into a graph. false: they cannot be captured. */
static bool captured(struct cuda_graphs *graphs, struct run *run)
{
    cudaGraph_t graph = NULL;
    bool good = cudaStreamEndCapture(graphs->stream, &graph) == cudaSuccess && graph &&
                !graphs->stale && cuda_failures().status == graphs->failed.status;
    good = good && cudaGraphInstantiate(&run->graph, graph, 0) == cudaSuccess;
    if (graph)
        cudaGraphDestroy(graph);
    if (!good) {
        run->graph = NULL;
        (void)cudaGetLastError();
        cuda_set_failures(&graphs->failed); /* calls in a capture were not executed, so their
                                               failures do not count */
    }
    return good;
}

bool cuda_graphs_end(struct cuda_graphs *graphs)
{
    struct run *run = graphs->open;
    graphs->open = NULL;
    if (!run)
        return true;
    if (!graphs->capturing) {
        run->host_ns = clock_now_ns() - graphs->began_ns;
        CUDA_NOTE(cudaEventRecord(run->to, graphs->stream));
        return true;
    }
    graphs->capturing = false;
    const bool good = captured(graphs, run);
    run->never = !good && !graphs->stale;
    if (good)
        CUDA_NOTE(cudaGraphLaunch(run->graph, graphs->stream));
    if (graphs->stale) {
        graphs->stale = false;
        cuda_graphs_forget(graphs);
    }
    return good;
}
