/* The time of the digest of a model's weights, which ends every run: the best of five, on one
 * thread and on two, whole weights in host memory. ranks: 1 mpirun -n 1 bench_digest [MODEL] */
#include <stdio.h>
#include <stdlib.h>

#include "exec/cpu/backend_cpu.h"
#include "exec/checkpoint/weights_digest.h"

/* Nanoseconds of the fastest of five calls; -1 where one fails. */
static int64_t best_ns(const struct comm *comm, const struct stage_list *list, char *hex,
                       struct err *err)
{
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5; i++) {
        int64_t start = comm_now_ns(comm), took;
        if (weights_digest(comm->all, list, hex, err) != OK)
            return -1;
        took = comm_now_ns(comm) - start;
        best = took < best ? took : best;
    }
    return best;
}

static enum status measure(const struct comm *comm, const struct job *job, int threads,
                           struct err *err)
{
    struct stage_spec spec = {.model = &job->model,
                              .job = job,
                              .end_item = job->model.num_items,
                              .max_samples = 1,
                              .max_live = 1};
    struct stage *stage = NULL;
    char hex[2 * SHA256_BYTES + 1];
    int64_t bytes = 0, ns = -1;
    spec.backend = backend_cpu_new(DTYPE_FP32, threads, err);
    if (spec.backend && stage_new(&spec, &stage, err) == OK &&
        stage_init_weights(stage, 1, err) == OK) {
        struct stage_list list = {.stages = &stage, .num_stages = 1, .backend = spec.backend};
        for (int i = 0; i < stage_num_params(stage); i++)
            bytes += stage_params(stage)[i].num_elems * (int64_t)sizeof(float);
        ns = best_ns(comm, &list, hex, err);
    }
    if (ns > 0)
        printf("%d thread%s: %lld bytes in %.0f ms, %.2f GB/s, sha256 %.16s...\n", threads,
               threads > 1 ? "s" : "", (long long)bytes, (double)ns / 1e6,
               (double)bytes / (double)ns, hex);
    stage_free(stage);
    backend_free(spec.backend);
    return err->status;
}

int main(int argc, char **argv)
{
    struct comm comm;
    struct job job;
    struct err err = {0};
    job_defaults(&job);
    if (comm_init(&argc, &argv, &comm, &err) == OK &&
        model_parse(argc > 1 ? argv[1] : "gpt2", &job.model, &err) == OK)
        for (int threads = 1; threads <= 2 && err.status == OK; threads++)
            measure(&comm, &job, threads, &err);
    if (err.status != OK)
        fprintf(stderr, "bench_digest: %s\n", err.msg);
    job_clear(&job);
    comm_finalize(&comm);
    return err.status != OK;
}
