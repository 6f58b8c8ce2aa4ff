/* The event engine: every message is a transfer on the shared network.
 *
 * E1  Queue entries: a device; a channel's first finished transfer; a channel's first transfer
 *     whose latency is over (constant a channel, so first in, first out); a bucket that is ready.
 * E2  A device is in the queue only while an op runs; else it waits for a message, a bucket, TIED,
 *     NORM.
 * E3  Channels: link l of replica r is r * num_links + l; behind them the rings of the stages, then
 *     those of two that run TIED, by replica. */
#include <stdlib.h>

#include "sim/network.h"
#include "sim/step.h"

struct events {
    struct step *step;
    struct event_queue queue;
    struct network network;
    int num_channels, first_ring, first_tied;
    int32_t first_end, first_start, first_bucket; /* entries */
    uint8_t *arrived;                             /* owned; by channel, then micro-batch */
    int64_t *latency;                             /* owned; by channel, ns */
    int *running;     /* owned; bucket of the stage that is on its ring, -1 none */
    int64_t *ring_ns; /* owned; by bucket: bandwidth part of its all-reduce */
    int *devices;     /* owned; scratch: a stage's devices over the replicas */
    bool no_memory;   /* of the host: the transfer pool could not grow */
};

static bool has_rings(const struct step *step)
{
    return step->num_replicas > 1 && step->workload->num_buckets > 0;
}

static void stage_devices(const struct events *e, int stage)
{
    const struct step *step = e->step;
    int rank = step->full->rank_of_stage[stage];
    for (int r = 0; r < step->num_replicas; r++)
        e->devices[r] = step->plan->device[r * step->num_ranks + rank];
}

static enum status add_channels(struct events *e, struct err *err)
{
    const struct step *step = e->step;
    const struct cluster *cluster = step->cluster;
    const struct workload *w = step->workload;
    for (int r = 0; r < step->num_replicas; r++) {
        const int *device = &step->plan->device[r * step->num_ranks];
        for (int l = 0; l < step->num_links; l++) {
            int channel = r * step->num_links + l;
            int from = device[step->links[l].from_rank], to = device[step->links[l].to_rank];
            network_add_pair(&e->network, channel, from, to);
            e->latency[channel] = cost_transfer_ns(step->cost, cluster, from, to, 0);
        }
    }
    int64_t all = 0;
    for (int s = 0; s < step->full->num_stages && has_rings(step); s++) {
        int channel = e->first_ring + s;
        stage_devices(e, s);
        network_add_ring(&e->network, channel, e->devices, step->num_replicas);
        int64_t latency = collective_ns(step->options->allreduce, step->cost, cluster, e->devices,
                                        step->num_replicas, 0);
        e->latency[channel] = latency;
        for (int b = w->first_bucket[s]; b < w->first_bucket[s + 1]; b++) {
            int64_t ns = collective_ns(step->options->allreduce, step->cost, cluster, e->devices,
                                       step->num_replicas, w->buckets[b].bytes);
            e->ring_ns[b] = ns > latency ? ns - latency : 0;
            enum status rc = step_add_ns(&all, ns > latency ? ns : latency, "all-reduces", err);
            if (rc != OK)
                return rc;
        }
    }
    for (int r = 0; r < step->num_replicas && step->full->tied; r++) {
        int ends[2];
        workload_tied_devices(w, step->plan, r, ends);
        network_add_ring(&e->network, e->first_tied + r, ends, 2);
        e->latency[e->first_tied + r] = cost_allreduce_ns(step->cost, cluster, ends, 2, 0);
    }
    network_ready(&e->network);
    return OK;
}

static enum status events_init(struct events *e, struct step *step, struct err *err)
{
    *e = (struct events){.step = step};
    int stages = has_rings(step) ? step->full->num_stages : 0;
    int64_t pairs = (int64_t)step->num_replicas * step->num_links;
    int64_t ties = step->full->tied ? step->num_replicas : 0;
    int64_t channels = pairs + stages + ties;
    int64_t entries = step->num_procs + 2 * channels + step->workload->num_buckets;
    if (entries > INT32_MAX / 4)
        return err_set(err, ERR_INFEASIBLE, "step too large to simulate: %lld channels",
                       (long long)channels);
    e->num_channels = (int)channels;
    e->first_ring = (int)pairs;
    e->first_tied = e->first_ring + stages;
    e->first_end = step->num_procs;
    e->first_start = e->first_end + (int32_t)channels;
    e->first_bucket = e->first_start + (int32_t)channels;
    e->arrived = calloc((size_t)(pairs * step->num_microbatches) + 1, 1);
    e->latency = calloc((size_t)channels + 1, sizeof *e->latency);
    e->running = malloc(((size_t)step->full->num_stages + 1) * sizeof *e->running);
    e->ring_ns = calloc((size_t)step->workload->num_buckets + 1, sizeof *e->ring_ns);
    e->devices = calloc((size_t)step->num_replicas, sizeof *e->devices);
    if (!e->arrived || !e->latency || !e->running || !e->ring_ns || !e->devices)
        return err_nomem(err);
    for (int s = 0; s < step->full->num_stages; s++)
        e->running[s] = -1;
    enum status rc = event_queue_init(&e->queue, (int32_t)entries, err);
    if (rc == OK)
        rc = network_init(&e->network, step->cluster, e->num_channels,
                          4 * pairs + 4 * (int64_t)stages * step->num_replicas + 8 * ties,
                          &e->queue, e->first_end, err);
    if (rc == OK)
        rc = add_channels(e, err);
    return rc;
}

static void events_clear(struct events *e)
{
    event_queue_clear(&e->queue);
    network_clear(&e->network);
    free(e->arrived);
    free(e->latency);
    free(e->running);
    free(e->ring_ns);
    free(e->devices);
}

/* A transfer leaves: its latency runs. */
static void send(struct events *e, int channel, int32_t message, struct proc *maker, int64_t now_ns)
{
    struct network *net = &e->network;
    int32_t index = network_take(net);
    if (index < 0) {
        e->no_memory = true;
        return;
    }
    struct transfer *t = &net->transfers[index];
    t->message = message;
    t->sent_ns = now_ns;
    t->next = -1;
    t->made_ns = maker ? maker->made_ns : 0;
    t->excess_ns = maker ? step_take_excess(maker, channel % e->step->num_links & 1) : 0;
    t->cause = maker ? maker->cause : IDLE_ALLREDUCE;
    struct channel *c = &net->channels[channel];
    if (c->wait_head < 0) {
        c->wait_head = index;
        event_queue_push(&e->queue, e->first_start + channel, EVENT_FLOW_START,
                         now_ns + e->latency[channel]);
    } else {
        net->transfers[c->wait_tail].next = index;
    }
    c->wait_tail = index;
}

/* The first bucket of a stage that is ready and not run goes onto the ring; T4. */
static void start_ring(struct events *e, int stage, int64_t now_ns)
{
    struct step *step = e->step;
    const struct workload *w = step->workload;
    int b = w->first_bucket[stage] + step->stage_done[stage];
    if (e->running[stage] >= 0 || b == w->first_bucket[stage + 1])
        return;
    struct bucket_run *run = &step->buckets[b];
    if (run->num_ready < step->num_replicas || run->ready_ns > now_ns)
        return;
    e->running[stage] = b;
    run->start_ns = now_ns;
    if (has_rings(step)) {
        send(e, e->first_ring + stage, b, NULL, now_ns);
    } else { /* one replica: nothing to add up */
        e->running[stage] = -1;
        run->end_ns = now_ns;
        step->stage_done[stage]++;
    }
}

static void advance(struct events *e, int proc, int64_t now_ns);

/* TIED starts when both ends of the replica have reached it (T8). */
static void reach_tied(struct events *e, int proc, int64_t now_ns)
{
    struct step *step = e->step;
    const int replica = proc / step->num_ranks;
    struct tied_run *run = &step->tied[replica];
    step->procs[proc].state = PROC_TIED;
    if (++run->num_ready < 2)
        return;
    run->start_ns = now_ns;
    send(e, e->first_tied + replica, 0, NULL, now_ns);
}

/* NORM starts when the last proc has reached it (T5). */
static void reach_norm(struct events *e, int proc, int64_t now_ns)
{
    struct step *step = e->step;
    step->procs[proc].state = PROC_NORM;
    if (++step->num_norm < step->num_procs)
        return;
    step->norm_from_ns = now_ns;
    for (int i = 0; i < step->num_procs; i++)
        event_queue_push(&e->queue, i, EVENT_DEVICE, now_ns + step->workload->norm_ns);
}

/* Run a proc from now_ns until an op takes time or something is missing. */
static void advance(struct events *e, int proc, int64_t now_ns)
{
    struct step *step = e->step;
    struct proc *p = &step->procs[proc];
    int replica = proc / step->num_ranks, rank = proc % step->num_ranks;
    const struct rank_ops *list = &step->full->ranks[rank];
    p->state = PROC_RUN;
    for (; p->pc < list->num_ops; p->pc++) {
        struct op op = list->ops[p->pc];
        switch (op.kind) {
        case OP_SEND_ACT:
        case OP_SEND_GRAD:
            send(e, replica * step->num_links + step_link(step, op), op.microbatch, p, now_ns);
            continue;
        case OP_RECV_ACT:
        case OP_RECV_GRAD: {
            int channel = replica * step->num_links + step_link(step, op);
            int64_t message = (int64_t)channel * step->num_microbatches + op.microbatch;
            if (e->arrived[message])
                continue;
            p->wait_message = message;
            p->state = PROC_MESSAGE;
            return;
        }
        case OP_ALLREDUCE:
            continue; /* ready since the stage's last backward started */
        case OP_TIED:
        case OP_NORM:
            if (!rank_reduced(step, rank))
                p->state = PROC_BUCKET;
            else if (op.kind == OP_TIED)
                reach_tied(e, proc, now_ns);
            else
                reach_norm(e, proc, now_ns);
            return;
        case OP_UPDATE:
            if (!stage_reduced(step, op.stage)) {
                p->state = PROC_BUCKET;
                return;
            }
            break;
        case OP_C:
        case OP_P:
            if (!step->workload->host_blocking) {
                step_copy(step, proc, op, now_ns);
                p->pc--; /* step_copy() moved on, and so does the loop */
                continue;
            }
            break;
        default:
            break;
        }
        int64_t end, at = p->pc;
        int64_t start = step_start_op(step, proc, op, now_ns, &end);
        if (at == step->last_backward[op.stage] && op.kind <= OP_W && op.kind != OP_F &&
            step_last_backward(step, op, start, end)) {
            const struct workload *w = step->workload;
            for (int b = w->first_bucket[op.stage]; b < w->first_bucket[op.stage + 1]; b++)
                event_queue_push(&e->queue, e->first_bucket + b, EVENT_BUCKET,
                                 step->buckets[b].ready_ns);
        }
        event_queue_push(&e->queue, proc, EVENT_DEVICE, end);
        return;
    }
    p->state = PROC_DONE;
}

static void deliver(struct events *e, int channel, int32_t index, int64_t now_ns)
{
    struct step *step = e->step;
    struct transfer t = e->network.transfers[index];
    network_give(&e->network, index);
    if (channel < e->first_ring) {
        if (step->ops)
            step_record_send(step, channel / step->num_links, channel % step->num_links, t.message,
                             t.sent_ns, now_ns);
        int64_t message = (int64_t)channel * step->num_microbatches + t.message;
        e->arrived[message] = 1;
        int link = channel % step->num_links;
        int proc = channel / step->num_links * step->num_ranks + step->links[link].to_rank;
        struct proc *p = &step->procs[proc];
        if (p->state == PROC_MESSAGE && p->wait_message == message) {
            step_woken(p, link & 1, t.sent_ns, t.made_ns, t.excess_ns, t.cause, now_ns);
            advance(e, proc, now_ns);
        }
        return;
    }
    if (channel >= e->first_tied) {
        const int replica = channel - e->first_tied;
        for (int end = 0; end < 2; end++) {
            const int proc = step_tied_proc(step, replica, end);
            step_together(step, proc, step->tied[replica].start_ns, now_ns);
            advance(e, proc, now_ns);
        }
        return;
    }
    int stage = channel - e->first_ring;
    struct bucket_run *run = &step->buckets[t.message];
    run->end_ns = now_ns;
    if (step->ops)
        step_record(step, step->full->rank_of_stage[stage],
                    (struct op){.microbatch = OP_WHOLE_BATCH,
                                .stage = (uint16_t)stage,
                                .kind = OP_ALLREDUCE,
                                .arg = (uint8_t)(t.message - step->workload->first_bucket[stage])},
                    run->start_ns, now_ns);
    step->stage_done[stage]++;
    e->running[stage] = -1;
    start_ring(e, stage, now_ns);
    int rank = step->full->rank_of_stage[stage];
    for (int r = 0; r < step->num_replicas; r++) {
        int proc = r * step->num_ranks + rank;
        struct proc *p = &step->procs[proc];
        if (p->state != PROC_BUCKET)
            continue;
        struct op op = step->full->ranks[rank].ops[p->pc];
        if (op.kind == OP_UPDATE && op.stage != stage)
            continue;
        step_reduced(p, run->start_ns, now_ns);
        advance(e, proc, now_ns);
    }
}

static void start_transfer(struct events *e, int channel, int64_t now_ns)
{
    struct step *step = e->step;
    struct network *net = &e->network;
    struct channel *c = &net->channels[channel];
    int32_t index = c->wait_head;
    struct transfer *t = &net->transfers[index];
    c->wait_head = t->next;
    if (c->wait_head >= 0)
        event_queue_push(&e->queue, e->first_start + channel, EVENT_FLOW_START,
                         net->transfers[c->wait_head].sent_ns + e->latency[channel]);
    int64_t ns;
    if (channel < e->first_ring) {
        int class_index = step->workload->class_of_replica[channel / step->num_links];
        int link = channel % step->num_links;
        ns = workload_edge_ns(step->workload, class_index, link / 2, link & 1,
                              mb_size(step, t->message)) -
             e->latency[channel];
    } else if (channel < e->first_tied) {
        ns = e->ring_ns[t->message];
    } else {
        const int replica = channel - e->first_tied;
        ns = workload_tied_ns(step->workload, step->workload->class_of_replica[replica]) -
             e->latency[channel];
    }
    if (ns > 0)
        network_start(net, channel, index, ns, now_ns);
    else
        deliver(e, channel, index, now_ns);
}

enum status event_run(struct step *step, bool *shared, struct err *err)
{
    struct events e;
    enum status rc = events_init(&e, step, err);
    if (rc != OK)
        goto out;
    for (int proc = 0; proc < step->num_procs; proc++)
        advance(&e, proc, step->origin_ns);
    int64_t now = step->origin_ns, popped = 0;
    for (;;) {
        if (step->options->progress && (++popped & 0xfffff) == 0)
            step->options->progress(step->options->progress_ctx, popped);
        if (network_unsettled(&e.network) && !event_queue_any_now(&e.queue))
            network_settle(&e.network, now);
        enum event_kind kind;
        int64_t time;
        int32_t entry = event_queue_pop(&e.queue, &kind, &time);
        if (entry < 0 || time > step->full_ns || e.no_memory)
            break;
        now = time;
        switch (kind) {
        case EVENT_DEVICE: {
            struct proc *p = &step->procs[entry];
            if (p->state == PROC_NORM)
                step_together(step, entry, step->norm_from_ns, now);
            advance(&e, entry, now);
            break;
        }
        case EVENT_FLOW_START:
            start_transfer(&e, entry - e.first_start, now);
            break;
        case EVENT_FLOW_END:
            for (int channel = entry - e.first_end;;) {
                int32_t index = network_finished(&e.network, channel, now);
                if (index < 0)
                    break;
                deliver(&e, channel, index, now);
            }
            break;
        case EVENT_BUCKET:
            for (int s = step->workload->buckets[entry - e.first_bucket].stage, done = -1;
                 done != step->stage_done[s];) {
                done = step->stage_done[s];
                start_ring(&e, s, now);
            }
            break;
        default:
            break;
        }
    }
    if (e.no_memory)
        rc = err_nomem(err);
    else if (step->full_ns == INT64_MAX)
        rc = step_deadlock(step, err);
    *shared = e.network.met;
out:
    events_clear(&e);
    return rc;
}
