/* The tables of a step and the accounts of its devices.
 *
 * step_init() counts what the lists hold and walks their memory. The engine then reports ops, waits
 * and messages, and step_mark_idle() splits a device's idle time by cause: a device has one mark, up to
 * which its time is accounted for. */
#include "sim/step/step.h"

#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* Cap of anything counted per message or per op here; above it the answer is "too large". */
#define STEP_MAX_CELLS ((int64_t)1 << 33)

static enum status too_large(const char *what, int64_t count, struct err *err)
{
    return err_set(err, ERR_INFEASIBLE, "step too large to simulate: %lld %s, limit %lld",
                   (long long)count, what, (long long)STEP_MAX_CELLS);
}

/* Each class of replicas on its smallest devices. */
static enum status find_memory(struct step *step, struct err *err)
{
    enum status rc = OK;
    int64_t *limits = malloc((size_t)step->num_ranks * sizeof *limits);
    if (!limits)
        return err_nomem(err);
    for (int c = 0; c < step->workload->num_classes && rc == OK; c++) {
        for (int k = 0; k < step->num_ranks; k++) {
            limits[k] = INT64_MAX;
            for (int r = 0; r < step->num_pipelines; r++) {
                const int device = step->plan->device[r * step->num_ranks + k];
                const int64_t bytes = step->cluster->devices[device].mem_bytes;
                if (step->workload->class_of_replica[r] == c && bytes < limits[k])
                    limits[k] = bytes;
            }
        }
        rc = schedule_memory_limited(step->full, step->workload, limits,
                                     &step->memory[c * step->num_ranks], err);
    }
    free(limits);
    return rc;
}

/* Count what the lists hold: ops, last backwards, messages per link. */
static void survey_lists(struct step *step)
{
    const struct schedule *full = step->full;
    const struct workload *w = step->workload;
    for (int e = 0; e < w->num_edges; e++) {
        int from = full->rank_of_stage[w->edges[e].from], to = full->rank_of_stage[w->edges[e].to];
        step->links[2 * e] = (struct link){.from_rank = from, .to_rank = to};
        step->links[2 * e + 1] = (struct link){.from_rank = to, .to_rank = from};
    }
    for (int s = 0; s < full->num_stages; s++)
        step->last_backward[s] = -1;
    for (int k = 0; k < full->num_ranks; k++) {
        struct rank_survey *survey = &step->surveys[k];
        const struct rank_ops *list = &full->ranks[k];
        for (int64_t i = 0; i < list->num_ops; i++) {
            struct op op = list->ops[i];
            switch (op.kind) {
            case OP_SEND_ACT:
            case OP_SEND_GRAD:
                survey->num_sends++;
                step->links[step_link(step, op)].num_sent[mb_size(step, op.microbatch)]++;
                break;
            case OP_B:
            case OP_I:
            case OP_W:
                step->last_backward[op.stage] = i;
                survey->num_compute++;
                break;
            case OP_F:
            case OP_Z:
                survey->num_forward += op.microbatch != OP_WHOLE_BATCH;
                survey->num_compute++;
                break;
            case OP_R:
            case OP_C:
            case OP_P:
            case OP_TIED:
            case OP_NORM:
            case OP_UPDATE:
                survey->num_compute++;
                break;
            default:
                break;
            }
        }
    }
}

/* The times of the all-reduces (time-4). */
static enum status find_rings(struct step *step, struct err *err)
{
    const struct workload *w = step->workload;
    const enum allreduce_kind kind = step->options->allreduce;
    const int holders = w->num_pipelines;
    int64_t all = 0;
    enum status rc = OK;
    if (!step_has_rings(step))
        return OK;
    int *devices = malloc((size_t)holders * sizeof *devices);
    if (!devices)
        return err_nomem(err);
    for (int s = 0; s < w->num_stages; s++) {
        workload_holders(w, step->plan, s, devices);
        const int64_t latency =
            collective_bucket_ns(w->scatter, kind, &w->setting, devices, holders, 0);
        step->ring_latency_ns[s] = latency;
        for (int b = w->first_bucket[s]; rc == OK && b < w->first_bucket[s + 1]; b++) {
            const int64_t ns = collective_bucket_ns(w->scatter, kind, &w->setting, devices, holders,
                                                    w->buckets[b].bytes);
            step->ring_ns[b] = ns > latency ? ns - latency : 0;
            rc = step_add_ns(&all, ns > latency ? ns : latency, "all-reduces", err);
        }
    }
    free(devices);
    return rc;
}

int64_t step_latency_ns(const struct step *step, int replica, int link)
{
    const int *device = &step->plan->device[replica * step->num_ranks];
    return cost_transfer_ns(step->cost, step->cluster, device[step->links[link].from_rank],
                            device[step->links[link].to_rank], 0);
}

int64_t step_tied_latency_ns(const struct step *step, int replica)
{
    int ends[2];
    workload_tied_devices(step->workload, step->plan, replica, ends);
    return cost_allreduce_ns(step->cost, step->cluster, ends, 2, 0);
}

void step_rewind(struct step *step)
{
    const struct workload *w = step->workload;
    memset(step->buckets, 0, ((size_t)w->num_buckets + 1) * sizeof *step->buckets);
    memset(step->stage_done, 0, (size_t)w->num_stages * sizeof *step->stage_done);
    memset(step->tied, 0, (size_t)step->num_pipelines * sizeof *step->tied);
    step->num_ops = 0;
    step->num_norm = 0;
    step->full_ns = INT64_MAX;
    step->full_proc = -1;
    for (int i = 0; i < step->num_procs; i++) {
        const int rank = i % step->num_ranks;
        const int class_index = step->workload->class_of_replica[i / step->num_ranks];
        const int64_t full = step->memory[class_index * step->num_ranks + rank].full_op;
        const struct op none = {.kind = OP_KIND_COUNT};
        step->procs[i] = (struct proc){
            .replica = i / step->num_ranks,
            .rank = rank,
            .marked = step->origin_ns,
            .first = -1,
            .full = full < 0 ? none : step->full->ranks[rank].ops[full],
            .wait_message = -1,
            .forward_left = step->surveys[rank].num_forward,
            .cause = IDLE_IMBALANCE,
        };
    }
}

void step_share_accounts(struct step *step)
{
    for (int i = 0; i < step->num_procs; i++) {
        const int replica = i / step->num_ranks;
        const int from = step->runs[step->run_of[replica]].replica;
        step->procs[i] = step->procs[from * step->num_ranks + i % step->num_ranks];
        step->procs[i].replica = replica;
    }
}

enum status step_init(struct step *step, struct err *err)
{
    const struct schedule *full = step->full;
    const struct workload *workload = step->workload;
    step->num_ranks = full->num_ranks;
    step->num_pipelines = workload->num_pipelines;
    step->num_procs = step->num_ranks * step->num_pipelines;
    step->num_links = 2 * workload->num_edges;
    step->num_microbatches = full->num_microbatches;
    step->async_host = step->cluster->host_op_ns > 0 && !step->cluster->host_blocking;
    step->origin_ns = step->async_host ? step->cluster->host_op_ns : 0;
    int64_t cells;
    if (!mul_ok(step->num_pipelines, step->num_links, &cells) ||
        !mul_ok(cells, step->num_microbatches, &cells) || cells > STEP_MAX_CELLS)
        return too_large("messages", cells, err);

    const size_t replicas = (size_t)step->num_pipelines;
    step->runs = arrays_new(&step->arrays, replicas, sizeof *step->runs);
    step->run_of = arrays_new(&step->arrays, replicas, sizeof *step->run_of);
    step->members = arrays_new(&step->arrays, replicas, sizeof *step->members);
    step->links = arrays_new(&step->arrays, (size_t)step->num_links + 1, sizeof *step->links);
    step->surveys = arrays_new(&step->arrays, (size_t)step->num_ranks, sizeof *step->surveys);
    step->last_backward =
        arrays_new(&step->arrays, (size_t)full->num_stages, sizeof *step->last_backward);
    step->memory =
        arrays_new(&step->arrays, (size_t)workload->num_classes * (size_t)step->num_ranks,
                   sizeof *step->memory);
    step->procs = arrays_new(&step->arrays, (size_t)step->num_procs, sizeof *step->procs);
    step->buckets =
        arrays_new(&step->arrays, (size_t)workload->num_buckets + 1, sizeof *step->buckets);
    step->ring_latency_ns =
        arrays_new(&step->arrays, (size_t)workload->num_stages, sizeof *step->ring_latency_ns);
    step->ring_ns =
        arrays_new(&step->arrays, (size_t)workload->num_buckets + 1, sizeof *step->ring_ns);
    step->stage_done =
        arrays_new(&step->arrays, (size_t)workload->num_stages, sizeof *step->stage_done);
    step->tied = arrays_new(&step->arrays, (size_t)step->num_pipelines, sizeof *step->tied);
    if (step->arrays.failed)
        return err_nomem(err);
    survey_lists(step);
    for (int i = 0; i < step->num_procs; i++)
        step->slow = step->slow || step->cluster->devices[step->plan->device[i]].speed < 1;
    if (step->options->record_ops) {
        for (int k = 0; k < step->num_ranks; k++)
            step->max_ops += step->surveys[k].num_compute + step->surveys[k].num_sends;
        if (!mul_ok(step->max_ops, step->num_pipelines, &step->max_ops) ||
            !add_ok(step->max_ops, workload->num_buckets, &step->max_ops) ||
            step->max_ops > STEP_MAX_CELLS)
            return too_large("ops to record", step->max_ops, err);
        step->ops = malloc(((size_t)step->max_ops + 1) * sizeof *step->ops);
        if (!step->ops)
            return err_nomem(err);
    }
    enum status rc = find_memory(step, err);
    THEN(find_rings(step, err));
    if (rc == OK)
        step_rewind(step);
    return rc;
}

void step_clear(struct step *step)
{
    arrays_clear(&step->arrays);
    free(step->ops);
    *step = (struct step){0};
}

void step_record(struct step *step, int proc, struct op op, int64_t start_ns, int64_t end_ns)
{
    step->ops[step->num_ops++] = (struct sim_op){.op = op,
                                                 .replica = proc / step->num_ranks,
                                                 .rank = proc % step->num_ranks,
                                                 .start_ns = start_ns - step->origin_ns,
                                                 .end_ns = end_ns - step->origin_ns};
}

void step_record_send(struct step *step, int replica, int link, int microbatch, int64_t start_ns,
                      int64_t end_ns)
{
    const struct workload *w = step->workload;
    const struct stage_edge *edge = &w->edges[link / 2];
    bool grad = link & 1;
    int stage = grad ? edge->to : edge->from;
    const int *first = grad ? w->in_first : w->out_first, *list = grad ? w->in_edge : w->out_edge;
    int arg = 0;
    while (list[first[stage] + arg] != link / 2)
        arg++;
    struct op op = {.microbatch = microbatch,
                    .stage = (uint16_t)stage,
                    .kind = grad ? OP_SEND_GRAD : OP_SEND_ACT,
                    .arg = (uint8_t)arg};
    step_record(step, replica * step->num_ranks + step->links[link].from_rank, op, start_ns,
                end_ns);
}

void step_woken(struct proc *p, const struct arrival *arrival, int64_t now_ns)
{
    /* The maker was late up to here; the rest of the wait is the message's way. */
    const int64_t made = arrival->sent_ns < now_ns ? arrival->sent_ns : now_ns;
    if (made > p->marked) {
        if (p->first < 0 || (arrival->grad && !p->backward_seen)) {
            step_mark_idle(p, IDLE_FILL, made);
        } else {
            int64_t wait = made - p->marked;
            step_mark_idle(p, IDLE_STRAGGLER,
                           p->marked + (arrival->excess_ns < wait ? arrival->excess_ns : wait));
            const int64_t longer = arrival->made_ns - (arrival->grad ? p->backward_ns : p->made_ns);
            wait = made - p->marked;
            if (longer > 0)
                step_mark_idle(p, IDLE_IMBALANCE, p->marked + (longer < wait ? longer : wait));
            step_mark_idle(p,
                           arrival->grad && p->forward_left == 0 ? IDLE_DRAIN
                                                                 : (enum idle_cause)arrival->cause,
                           made);
        }
    }
    step_mark_idle(p, IDLE_TRANSFER, now_ns);
}

void step_reduced(struct proc *p, int64_t from_ns, int64_t now_ns)
{
    step_mark_idle(p, IDLE_DRAIN, from_ns < now_ns ? from_ns : now_ns);
    step_mark_idle(p, IDLE_ALLREDUCE, now_ns);
}

void step_together(struct step *step, int proc, struct op op, int64_t from_ns, int64_t now_ns)
{
    if (step->ops)
        step_record(step, proc, op, from_ns, now_ns);
    step_reduced(&step->procs[proc], from_ns, now_ns);
    step->procs[proc].end = now_ns;
}

void step_bucket_done(struct step *step, int bucket, int64_t start_ns, int64_t end_ns)
{
    const struct workload *w = step->workload;
    const int stage = w->buckets[bucket].stage;
    step->buckets[bucket].start_ns = start_ns;
    step->buckets[bucket].end_ns = end_ns;
    if (step->ops)
        step_record(step, step->full->rank_of_stage[stage],
                    (struct op){.microbatch = OP_WHOLE_BATCH,
                                .stage = (uint16_t)stage,
                                .kind = OP_ALLREDUCE,
                                .arg = (uint8_t)(bucket - w->first_bucket[stage])},
                    start_ns, end_ns);
}
