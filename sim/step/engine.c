/* sim_step(): set the step up, run it in one pass (direct_run.c) or, where transfers share a link, event
 * by event (event_run.c), collect the answer.
 * Read sim_step() at the end first. */
#include "sim/step/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "partition/base/units.h"
#include "sim/step/step.h"

static int by_pair(const void *a, const void *b)
{
    const struct sim_traffic *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* Bytes on each edge of the ring of a stage's holders: 2(n-1)/n of every bucket. Returns how many edges
 * there are. */
static int ring_traffic(const struct step *step, int s, struct sim_traffic *out)
{
    const struct workload *w = step->workload;
    const unsigned n = (unsigned)w->num_pipelines;
    const int *device = step->plan->device + w->rank_of_stage[s], K = step->num_ranks;
    int64_t bytes = 0;
    for (int b = w->first_bucket[s]; b < w->first_bucket[s + 1]; b++) {
        const unsigned __int128 on_edge =
            (unsigned __int128)w->buckets[b].bytes * (w->scatter ? 1u : 2u) * (n - 1);
        bytes += (int64_t)((on_edge + n - 1) / n);
    }
    if (bytes == 0)
        return 0;
    for (int i = 0, end = (int)n; i < end; i++)
        out[i] = (struct sim_traffic){device[i * K], device[(i + 1) % end * K], bytes};
    return (int)n;
}

/* Sum the bytes from device to device: the messages of the lists, a tied table's gradient in both
 * directions, and 2(n-1)/n of every bucket on every edge of its ring. */
static enum status collect_traffic(const struct step *step, struct sim_result *result,
                                   struct err *err)
{
    const struct workload *w = step->workload;
    const int holders = w->num_pipelines, rings = holders > 1 ? w->num_stages : 0;
    size_t max = (size_t)step->num_pipelines * ((size_t)step->num_links + 2) +
                 (size_t)holders * (size_t)rings + 1;
    struct sim_traffic *all = malloc(max * sizeof *all);
    if (!all)
        return err_nomem(err);
    int num = 0;
    for (int r = 0; r < step->num_pipelines; r++) {
        const int *device = &step->plan->device[r * step->num_ranks];
        for (int l = 0; l < step->num_links; l++) {
            const struct link *link = &step->links[l];
            const struct stage_edge *edge = &w->edges[l / 2];
            int64_t bytes = 0;
            for (int mb = 0; mb < MB_SIZES; mb++) {
                int64_t part;
                if (!mul_ok(link->num_sent[mb], edge->bytes[mb], &part) ||
                    !add_ok(bytes, part, &bytes)) {
                    free(all);
                    return err_set(err, ERR_INPUT, "traffic: bytes of stage %d to %d overflow",
                                   edge->from, edge->to);
                }
            }
            if (bytes > 0)
                all[num++] =
                    (struct sim_traffic){device[link->from_rank], device[link->to_rank], bytes};
        }
        if (step->full->tied) {
            int ends[2];
            workload_tied_devices(w, step->plan, r, ends);
            all[num++] = (struct sim_traffic){ends[0], ends[1], w->tied_bytes};
            all[num++] = (struct sim_traffic){ends[1], ends[0], w->tied_bytes};
        }
    }
    for (int s = 0; s < rings; s++)
        num += ring_traffic(step, s, &all[num]);
    qsort(all, (size_t)num, sizeof *all, by_pair);
    int kept = 0;
    for (int i = 0; i < num; i++)
        if (kept > 0 && all[kept - 1].from == all[i].from && all[kept - 1].to == all[i].to)
            all[kept - 1].bytes += all[i].bytes;
        else
            all[kept++] = all[i];
    result->traffic = all;
    result->num_traffic = kept;
    return OK;
}

static int by_start(const void *a, const void *b)
{
    const struct sim_op *x = a, *y = b;
    if (x->start_ns != y->start_ns)
        return x->start_ns < y->start_ns ? -1 : 1;
    if (x->end_ns != y->end_ns)
        return x->end_ns < y->end_ns ? -1 : 1;
    if (x->replica != y->replica)
        return x->replica - y->replica;
    if (x->rank != y->rank)
        return x->rank - y->rank;
    if (x->op.stage != y->op.stage)
        return x->op.stage - y->op.stage;
    if (x->op.kind != y->op.kind)
        return x->op.kind - y->op.kind;
    if (x->op.microbatch != y->op.microbatch)
        return x->op.microbatch - y->op.microbatch;
    return x->op.arg - y->op.arg;
}

static void collect_reduction(const struct step *step, struct sim_result *result)
{
    const struct workload *w = step->workload;
    const int n = w->num_pipelines;
    if (n < 2)
        return;
    for (int s = 0; s < w->num_stages; s++) {
        int64_t sum = 0;
        for (int b = w->first_bucket[s]; b < w->first_bucket[s + 1]; b++) {
            const struct bucket_run *run = &step->buckets[b];
            sum += run->end_ns - run->start_ns;
            for (int i = 0; i < n; i++) {
                const struct proc *p = &step->procs[i * step->num_ranks + w->rank_of_stage[s]];
                if (run->end_ns - p->backward_end > result->allreduce_exposed_ns)
                    result->allreduce_exposed_ns = run->end_ns - p->backward_end;
            }
        }
        if (sum > result->allreduce_ns)
            result->allreduce_ns = sum;
    }
}

/* A step that begins everywhere `period` after the one before finds each device free, if no device is
 * at work for longer. */
static int64_t longest_span(const struct step *step)
{
    const struct workload *w = step->workload;
    int64_t longest = w->cache_read_ns; /* time-2b */
    for (int i = 0; i < step->num_procs; i++) {
        const struct proc *p = &step->procs[i];
        int64_t end = p->end;
        for (int s = 0; s < w->num_stages; s++) {
            const int bucket = w->first_bucket[s + 1] - 1; /* the stage's last one */
            if (w->rank_of_stage[s] == i % step->num_ranks && bucket >= w->first_bucket[s] &&
                step->buckets[bucket].end_ns > end)
                end = step->buckets[bucket].end_ns;
        }
        if (p->first >= 0 && end - p->first > longest)
            longest = end - p->first;
    }
    return longest;
}

static enum status collect(struct step *step, struct sim_result *result, struct err *err)
{
    const struct workload *w = step->workload;
    int64_t end = step->origin_ns + w->cache_read_ns; /* time-2b */
    for (int i = 0; i < step->num_procs; i++)
        if (step->procs[i].end > end)
            end = step->procs[i].end;
    for (int b = 0; b < w->num_buckets; b++)
        if (step->buckets[b].end_ns > end)
            end = step->buckets[b].end_ns;
    result->step_ns = end - step->origin_ns;
    result->num_devices = step->num_procs;
    result->devices = calloc((size_t)step->num_procs, sizeof *result->devices);
    if (!result->devices)
        return err_nomem(err);
    result->period_ns = longest_span(step);
    double idle = 0;
    for (int i = 0; i < step->num_procs; i++) {
        struct proc *p = &step->procs[i];
        struct sim_device *d = &result->devices[i];
        int class_index = w->class_of_replica[i / step->num_ranks];
        const struct rank_memory *memory =
            &step->memory[class_index * step->num_ranks + i % step->num_ranks];
        if (end > p->marked)
            p->idle[IDLE_DRAIN] += end - p->marked;
        d->device = step->plan->device[i];
        d->replica = i / step->num_ranks;
        d->rank = i % step->num_ranks;
        d->busy_ns = p->busy;
        d->idle_ns = result->step_ns - p->busy;
        d->first_ns = p->first < 0 ? 0 : p->first - step->origin_ns;
        d->last_ns = p->first < 0 ? 0 : p->last - step->origin_ns;
        d->peak_bytes = memory->peak_bytes;
        d->peak_live = memory->peak_live;
        for (int c = 0; c < IDLE_CAUSE_COUNT; c++)
            d->idle_cause_ns[c] = p->idle[c];
        idle += (double)d->idle_ns;
        result->events += 2 * step->surveys[d->rank].num_compute + step->surveys[d->rank].num_sends;
    }
    if (w->num_pipelines > 1)
        result->events += w->num_buckets;
    if (result->step_ns > 0)
        result->bubble_fraction = idle / ((double)result->step_ns * step->num_procs);
    collect_reduction(step, result);
    return collect_traffic(step, result, err);
}

enum status sim_check_size(const struct plan *plan, struct err *err)
{
    const int64_t most = (int64_t)1 << 27, most_in_all = (int64_t)1 << 30;
    int64_t pairs = (int64_t)plan->num_stages * plan->microbatches.count, all = 0;
    if (pairs > most || !mul_ok(pairs, plan->num_pipelines, &all) || all > most_in_all)
        return err_set(err, ERR_INFEASIBLE,
                       "step too large to simulate: %d stages x %d micro-batches x %d replicas, "
                       "limits %lld a pipeline, %lld in all",
                       plan->num_stages, plan->microbatches.count, plan->num_pipelines,
                       (long long)most, (long long)most_in_all);
    return OK;
}

/* Describe in words what fills a rank's memory when it overflows. */
static void explain_memory(const struct step *step, const struct rank_memory *memory, char *text,
                           size_t size)
{
    const int64_t weights = memory->parts.weights, grads = memory->parts.gradients,
                  optimizer = memory->parts.optimizer;
    const int64_t context = step->workload->context_bytes, buffers = memory->full_buffer_bytes;
    const int64_t stash = memory->full_bytes - buffers - weights - grads - optimizer - context;
    char part[7][32];
    snprintf(text, size,
             "weights %s, gradients %s, optimizer %s, stash %s (%d live micro-batches), buffers "
             "%s, context %s%s%s",
             format_bytes(weights, part[0], sizeof part[0]),
             format_bytes(grads, part[1], sizeof part[1]),
             format_bytes(optimizer, part[2], sizeof part[2]),
             format_bytes(stash, part[3], sizeof part[3]), memory->full_live,
             format_bytes(buffers, part[4], sizeof part[4]),
             format_bytes(context, part[5], sizeof part[5]),
             memory->parts.allocator > 0 ? ", allocator " : "",
             memory->parts.allocator > 0
                 ? format_bytes(memory->parts.allocator, part[6], sizeof part[6])
                 : "");
}

static enum status out_of_memory(const struct step *step, struct err *err)
{
    int proc = step->full_proc, rank = proc % step->num_ranks;
    int class_index = step->workload->class_of_replica[proc / step->num_ranks];
    const struct rank_memory *memory = &step->memory[class_index * step->num_ranks + rank];
    struct op op = step->full->ranks[rank].ops[memory->full_op];
    char text[256], need[32], have[32], when[32];
    explain_memory(step, memory, text, sizeof text);
    enum status rc = err_set(
        err, ERR_INFEASIBLE,
        "device %d (rank %d of replica %d) out of memory at %s, %s of micro-batch %d: "
        "peak would be %s, limit %s: %s",
        step->plan->device[proc], rank, proc / step->num_ranks,
        format_ns(step->full_ns - step->origin_ns, when, sizeof when),
        op_kind_name((enum op_kind)op.kind), op.microbatch,
        format_bytes(memory->peak_bytes, need, sizeof need),
        format_bytes(step->cluster->devices[step->plan->device[proc]].mem_bytes, have, sizeof have),
        text);
    err_hint(err, "more micro-batches, --recompute, 1f1b in place of gpipe, or more stages");
    return rc;
}

static enum status run_events(struct step *step, enum step_groups groups, bool *shared, bool *done,
                              struct err *err)
{
    const enum status rc = step_group(step, groups, err);
    if (rc != OK)
        return rc;
    step_rewind(step);
    return event_run(step, shared, done, err);
}

/* Run the step in the first way that can. */
static enum status run(struct step *step, bool *shared, struct err *err)
{
    bool done = false;
    enum status rc = OK;
    *shared = false;
    if (!step->options->every_event) {
        rc = step_group(step, GROUP_CLASSES, err);
        THEN(direct_run(step, &done, err));
        if (!done)
            THEN(run_events(step, GROUP_ALIKE, shared, &done, err));
    }
    if (!done)
        THEN(run_events(step, GROUP_NONE, shared, &done, err));
    if (rc == OK)
        step_share_accounts(step);
    return rc;
}

enum status sim_step(const struct schedule *full, const struct workload *workload,
                     const struct plan *plan, const struct sim_options *options,
                     struct sim_result *result, struct err *err)
{
    struct step step = {.full = full,
                        .workload = workload,
                        .cluster = workload->setting.cluster,
                        .cost = workload->setting.cost,
                        .plan = plan,
                        .options = options};
    struct sim_result got = {0};
    if (!(options->jitter >= 0 && options->jitter <= 1))
        return err_set(err, ERR_INPUT, "jitter must be 0..1, got %g", options->jitter);
    enum status rc = step_init(&step, err);
    if (rc != OK)
        goto out;
    bool shared = false;
    rc = run(&step, &shared, err);
    if (rc != OK)
        goto out;
    if (step.full_ns != INT64_MAX) {
        rc = out_of_memory(&step, err);
        goto out;
    }
    rc = collect(&step, &got, err);
    if (rc != OK)
        goto out;
    got.context_bytes = workload->context_bytes;
    got.shared = shared;
    if (step.ops) {
        qsort(step.ops, (size_t)step.num_ops, sizeof *step.ops, by_start);
        got.ops = step.ops;
        got.num_ops = step.num_ops;
        step.ops = NULL;
    }
    *result = got;
    got = (struct sim_result){0};
out:
    sim_result_clear(&got);
    step_clear(&step);
    return rc;
}

void sim_result_clear(struct sim_result *result)
{
    free(result->devices);
    free(result->traffic);
    free(result->ops);
    *result = (struct sim_result){0};
}
