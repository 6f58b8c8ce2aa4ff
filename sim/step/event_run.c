/* The event engine: every message is a transfer on the shared network.
 *
 * A device is in the queue only while an op runs on it; otherwise it waits for a message, a bucket,
 * TIED or NORM, and whoever brings that calls advance(), which runs the device's list until an op
 * takes time or something is missing. The queue's other entries are, for each channel, its first
 * transfer that finishes and its first transfer whose latency ends (the latency of a channel is
 * constant, so transfers leave it in the order in which they came), and each bucket that gets
 * ready.
 *
 * Channels: link l of replica r is r * num_links + l. Behind these come the rings of the stages,
 * then those of the two ranks that run TIED, by replica.
 *
 * The rules of partition/step/step_rules.h are followed here on their own, without the recurrence of
 * partition/step/schedule_time.c, so that each can judge the other. Read advance() and event_run()
 * first.
 */
#include <stdlib.h>

#include "partition/step/schedule_time.h"
#include "sim/step/network.h"
#include "sim/step/step.h"

struct events {
    struct step *step;
    struct event_queue queue;
    struct network network;
    int num_channels, first_ring, first_tied;
    int32_t first_end, first_start, first_bucket; /* entries */
    uint8_t *arrived;                             /* owned; by channel, then micro-batch */
    int64_t *latency;                             /* owned; by channel, ns */
    int *running;        /* owned, by stage of the plan: bucket that is on its ring, -1 none */
    int64_t *reduced_ns; /* owned, by rank: when a bucket of it has last ended */
    int *devices;        /* owned; scratch: the holders of a stage */
    bool no_memory;      /* of the host: the transfer pool could not grow */
};

static void add_channels(struct events *e)
{
    const struct step *step = e->step;
    const struct workload *w = step->workload;
    for (int channel = 0; channel < e->first_ring; channel++) {
        const struct replica_run *run = &step->runs[channel / step->num_links];
        const int l = channel % step->num_links;
        for (int i = 0; i < run->num_members; i++) {
            const int *device =
                &step->plan->device[step->members[run->first_member + i] * step->num_ranks];
            network_add_pair(&e->network, channel, device[step->links[l].from_rank],
                             device[step->links[l].to_rank]);
        }
        e->latency[channel] = step_latency_ns(step, run->replica, l);
    }
    for (int s = 0; s < w->num_stages && step_has_rings(step); s++) {
        workload_holders(w, step->plan, s, e->devices);
        network_add_ring(&e->network, e->first_ring + s, e->devices, w->num_pipelines);
        e->latency[e->first_ring + s] = step->ring_latency_ns[s];
    }
    for (int i = 0; i < step->num_runs && step->full->tied; i++) {
        const struct replica_run *run = &step->runs[i];
        for (int j = 0; j < run->num_members; j++) {
            int ends[2];
            workload_tied_devices(w, step->plan, step->members[run->first_member + j], ends);
            network_add_ring(&e->network, e->first_tied + i, ends, 2);
        }
        e->latency[e->first_tied + i] = step_tied_latency_ns(step, run->replica);
    }
    network_ready(&e->network);
}

static enum status events_init(struct events *e, struct step *step, struct err *err)
{
    *e = (struct events){.step = step};
    const int holders = step->workload->num_pipelines;
    int stages = step_has_rings(step) ? step->workload->num_stages : 0;
    int64_t pairs = (int64_t)step->num_runs * step->num_links;
    int64_t ties = step->full->tied ? step->num_runs : 0;
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
    e->running = malloc(((size_t)step->workload->num_stages + 1) * sizeof *e->running);
    e->reduced_ns = calloc((size_t)step->num_ranks, sizeof *e->reduced_ns);
    e->devices = calloc((size_t)holders, sizeof *e->devices);
    if (!e->arrived || !e->latency || !e->running || !e->reduced_ns || !e->devices)
        return err_nomem(err);
    for (int s = 0; s < step->workload->num_stages; s++)
        e->running[s] = -1;
    enum status rc = event_queue_init(&e->queue, (int32_t)entries, err);
    THEN(network_init(&e->network, step->cluster, e->num_channels,
                      PATH_MAX_HOPS * (pairs + (int64_t)stages * holders + 2 * ties), step->alike,
                      &e->queue, e->first_end, err));
    if (rc == OK)
        add_channels(e);
    return rc;
}

static void events_clear(struct events *e)
{
    event_queue_clear(&e->queue);
    network_clear(&e->network);
    free(e->arrived);
    free(e->latency);
    free(e->running);
    free(e->reduced_ns);
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

/* The first bucket of a stage that is ready and has not run goes onto the ring (time-4). */
static void start_ring(struct events *e, int stage, int64_t now_ns)
{
    struct step *step = e->step;
    const struct workload *w = step->workload;
    int b = w->first_bucket[stage] + step->stage_done[stage];
    if (e->running[stage] >= 0 || b == w->first_bucket[stage + 1])
        return;
    struct bucket_run *run = &step->buckets[b];
    if (run->num_ready < step->num_runs || run->ready_ns > now_ns)
        return;
    e->running[stage] = b;
    run->start_ns = now_ns;
    if (step_has_rings(step)) {
        send(e, e->first_ring + stage, b, NULL, now_ns);
    } else { /* one replica: nothing to add up */
        e->running[stage] = -1;
        run->end_ns = now_ns;
        step->stage_done[stage]++;
    }
}

/* All buckets of a stage have ended. */
static bool stage_reduced(const struct step *step, int stage)
{
    const int *first = step->workload->first_bucket;
    return step->stage_done[stage] == first[stage + 1] - first[stage];
}

/* All buckets of a rank's stages have ended. */
static bool rank_reduced(const struct step *step, int rank)
{
    for (int s = 0; s < step->full->num_stages; s++)
        if (step->full->rank_of_stage[s] == rank && !stage_reduced(step, s))
            return false;
    return true;
}

static void advance(struct events *e, int proc, int64_t now_ns);

/* TIED starts when both ends of the replica have reached it (time-8). */
static void reach_tied(struct events *e, int proc, int64_t now_ns)
{
    struct step *step = e->step;
    const int index = step->run_of[proc / step->num_ranks];
    struct tied_run *run = &step->tied[index];
    step->procs[proc].state = PROC_TIED;
    if (++run->num_ready < 2)
        return;
    run->start_ns = now_ns;
    send(e, e->first_tied + index, 0, NULL, now_ns);
}

/* NORM starts when the last proc has reached it (time-5). */
static void reach_norm(struct events *e, int proc, int64_t now_ns)
{
    struct step *step = e->step;
    step->procs[proc].state = PROC_NORM;
    if (++step->num_norm < step->num_runs * step->num_ranks)
        return;
    step->norm_from_ns = now_ns;
    for (int i = 0; i < step->num_procs; i++)
        if (step_runs(step, i / step->num_ranks))
            event_queue_push(&e->queue, i, EVENT_DEVICE, now_ns + step->workload->norm_ns);
}

/* The last backward of a stage runs on one of its holders from start_ns to end_ns. That makes its
 * buckets ready there (time-4); they are once they are ready on all holders. */
static void last_backward(struct events *e, struct op op, int64_t start_ns, int64_t end_ns)
{
    struct step *step = e->step;
    const struct workload *w = step->workload;
    const int s = op.stage;
    for (int b = w->first_bucket[s]; b < w->first_bucket[s + 1]; b++) {
        struct bucket_run *run = &step->buckets[b];
        int64_t ready =
            end_ns - (op.kind == OP_W ? w->buckets[b].lead_w_ns : w->buckets[b].lead_ns);
        if (ready < start_ns)
            ready = start_ns;
        if (ready > run->ready_ns)
            run->ready_ns = ready;
        if (++run->num_ready == step->num_runs)
            event_queue_push(&e->queue, e->first_bucket + b, EVENT_BUCKET, run->ready_ns);
    }
}

/* Whether a RECV's message is missing; the proc then waits for it. */
static bool message_missing(struct events *e, int proc, struct op op)
{
    struct step *step = e->step;
    struct proc *p = &step->procs[proc];
    const int channel = step->run_of[p->replica] * step->num_links + step_link(step, op);
    const int64_t message = (int64_t)channel * step->num_microbatches + op.microbatch;
    if (e->arrived[message])
        return false;
    p->wait_message = message;
    p->state = PROC_MESSAGE;
    return true;
}

/* TIED or NORM: the proc waits for the buckets of its stages, then for the others. */
static void reach_meeting(struct events *e, int proc, struct op op, int64_t now_ns)
{
    if (!rank_reduced(e->step, proc % e->step->num_ranks))
        e->step->procs[proc].state = PROC_BUCKET;
    else if (op.kind == OP_TIED)
        reach_tied(e, proc, now_ns);
    else
        reach_norm(e, proc, now_ns);
}

/* Start an op of the compute stream, unless an UPDATE misses a bucket or the proc's blocking sends
 * (time-3b) are on their way; the proc then waits for these. */
static void reach_compute(struct events *e, int proc, struct op op, int64_t now_ns)
{
    struct step *step = e->step;
    struct proc *p = &step->procs[proc];
    if (op.kind == OP_UPDATE && !stage_reduced(step, op.stage)) {
        p->state = PROC_BUCKET;
        return;
    }
    if (p->sending > 0) {
        p->state = PROC_SEND;
        return;
    }
    int64_t start, end, at = p->pc;
    step_start_op(step, proc, op, now_ns, &start, &end);
    if (at == step->last_backward[op.stage] && op.kind <= OP_W && op.kind != OP_F)
        last_backward(e, op, start, end);
    event_queue_push(&e->queue, proc, EVENT_DEVICE, end);
}

/* Run a proc from now_ns until an op takes time or something is missing. */
static void advance(struct events *e, int proc, int64_t now_ns)
{
    struct step *step = e->step;
    struct proc *p = &step->procs[proc];
    const struct rank_ops *list = &step->full->ranks[p->rank];
    p->state = PROC_RUN;
    for (; p->pc < list->num_ops; p->pc++) {
        const struct op op = list->ops[p->pc];
        switch (op.kind) {
        case OP_SEND_ACT:
        case OP_SEND_GRAD:
            send(e, step->run_of[p->replica] * step->num_links + step_link(step, op), op.microbatch,
                 p, now_ns);
            p->sending += step->workload->sends_blocking;
            continue;
        case OP_RECV_ACT:
        case OP_RECV_GRAD:
            if (message_missing(e, proc, op))
                return;
            continue;
        case OP_ALLREDUCE:
            continue; /* ready since the stage's last backward started */
        case OP_TIED:
        case OP_NORM:
            reach_meeting(e, proc, op, now_ns);
            return;
        case OP_C:
        case OP_P:
            if (!step->workload->host_blocking) {
                step_start_copy(step, proc, op, now_ns);
                continue;
            }
            break;
        default:
            break;
        }
        reach_compute(e, proc, op, now_ns);
        return;
    }
    p->state = PROC_DONE;
}

/* A blocking send of the proc has ended: it continues if that was the last one. */
static void release_sender(struct events *e, int proc, int64_t now_ns)
{
    struct proc *p = &e->step->procs[proc];
    p->held = now_ns;
    if (--p->sending == 0 && p->state == PROC_SEND)
        advance(e, proc, now_ns);
}

/* A message has arrived: its receiver continues if it waits for it, and so does a sender that it
 * holds. */
static void deliver_message(struct events *e, int channel, const struct transfer *t, int64_t now_ns)
{
    struct step *step = e->step;
    const int replica = step->runs[channel / step->num_links].replica;
    const int link = channel % step->num_links;
    if (step->ops)
        step_record_send(step, replica, link, t->message, t->sent_ns, now_ns);
    const int64_t message = (int64_t)channel * step->num_microbatches + t->message;
    e->arrived[message] = 1;
    const int proc = replica * step->num_ranks + step->links[link].to_rank;
    struct proc *p = &step->procs[proc];
    if (p->state == PROC_MESSAGE && p->wait_message == message) {
        const struct arrival arrival = {.grad = link & 1,
                                        .cause = t->cause,
                                        .sent_ns = t->sent_ns,
                                        .made_ns = t->made_ns,
                                        .excess_ns = t->excess_ns};
        step_woken(p, &arrival, now_ns);
        advance(e, proc, now_ns);
    }
    if (step->workload->sends_blocking)
        release_sender(e, replica * step->num_ranks + step->links[link].from_rank, now_ns);
}

/* TIED of a run's replica has ended on both its ranks. */
static void deliver_tied(struct events *e, int run, int64_t now_ns)
{
    struct step *step = e->step;
    const int replica = step->runs[run].replica;
    const struct schedule *full = step->full;
    for (int end = 0; end < 2; end++) {
        const int rank = full->rank_of_stage[end * (full->num_stages - 1)];
        const int proc = replica * step->num_ranks + rank;
        struct proc *p = &step->procs[proc];
        step_together(step, proc, full->ranks[rank].ops[p->pc++], step->tied[run].start_ns, now_ns);
        advance(e, proc, now_ns);
    }
}

/* A bucket has been reduced: the next one starts, and ranks that wait for it continue. */
static void deliver_bucket(struct events *e, int stage, int bucket, int64_t now_ns)
{
    struct step *step = e->step;
    const int64_t start_ns = step->buckets[bucket].start_ns;
    step_bucket_done(step, bucket, start_ns, now_ns);
    step->stage_done[stage]++;
    e->running[stage] = -1;
    start_ring(e, stage, now_ns);
    const int rank = step->workload->rank_of_stage[stage];
    /* Of buckets that end together, the first decides what their rank's wait is counted as. */
    e->network.unsure |= step->alike && e->reduced_ns[rank] == now_ns;
    e->reduced_ns[rank] = now_ns;
    for (int i = 0; i < step->num_runs; i++) {
        const int proc = step->runs[i].replica * step->num_ranks + rank;
        struct proc *p = &step->procs[proc];
        if (p->state != PROC_BUCKET)
            continue;
        const struct op op = step->full->ranks[rank].ops[p->pc];
        if (op.kind == OP_UPDATE && op.stage != stage)
            continue;
        step_reduced(p, start_ns, now_ns);
        advance(e, proc, now_ns);
    }
}

static void deliver(struct events *e, int channel, int32_t index, int64_t now_ns)
{
    const struct transfer t = e->network.transfers[index];
    network_give(&e->network, index);
    if (channel < e->first_ring)
        deliver_message(e, channel, &t, now_ns);
    else if (channel < e->first_tied)
        deliver_bucket(e, channel - e->first_ring, t.message, now_ns);
    else
        deliver_tied(e, channel - e->first_tied, now_ns);
}

/* The time of a transfer on the wire, without its latency, if it has the links for itself. */
static int64_t wire_ns(const struct events *e, int channel, int32_t message)
{
    const struct step *step = e->step;
    const struct workload *w = step->workload;
    if (channel < e->first_ring) {
        const int class_index = step_class(step, channel / step->num_links);
        const int link = channel % step->num_links;
        return workload_edge_ns(w, class_index, link / 2, link & 1, mb_size(step, message)) -
               e->latency[channel];
    }
    if (channel < e->first_tied)
        return step->ring_ns[message];
    return workload_tied_ns(w, step_class(step, channel - e->first_tied)) - e->latency[channel];
}

static void start_transfer(struct events *e, int channel, int64_t now_ns)
{
    struct network *net = &e->network;
    struct channel *c = &net->channels[channel];
    int32_t index = c->wait_head;
    struct transfer *t = &net->transfers[index];
    c->wait_head = t->next;
    if (c->wait_head >= 0)
        event_queue_push(&e->queue, e->first_start + channel, EVENT_FLOW_START,
                         net->transfers[c->wait_head].sent_ns + e->latency[channel]);
    const int64_t ns = wire_ns(e, channel, t->message);
    if (ns > 0)
        network_start(net, channel, index, ns, now_ns);
    else
        deliver(e, channel, index, now_ns);
}

/* Name where the first unfinished device waits. */
static enum status deadlock(const struct step *step, struct err *err)
{
    for (int i = 0; i < step->num_procs; i++) {
        if (step_runs(step, i / step->num_ranks) && step->procs[i].state != PROC_DONE)
            return schedule_deadlock(step->full, i / step->num_ranks, i % step->num_ranks,
                                     step->procs[i].pc, err);
    }
    return OK;
}

/* Handle one event of the queue. */
static void handle(struct events *e, enum event_kind kind, int32_t entry, int64_t now_ns)
{
    struct step *step = e->step;
    switch (kind) {
    case EVENT_DEVICE: {
        struct proc *p = &step->procs[entry];
        if (p->state == PROC_NORM)
            step_together(step, entry, step->full->ranks[entry % step->num_ranks].ops[p->pc++],
                          step->norm_from_ns, now_ns);
        advance(e, entry, now_ns);
        break;
    }
    case EVENT_FLOW_START:
        start_transfer(e, entry - e->first_start, now_ns);
        break;
    case EVENT_FLOW_END:
        for (int channel = entry - e->first_end;;) {
            const int32_t index = network_finished(&e->network, channel, now_ns);
            if (index < 0)
                break;
            deliver(e, channel, index, now_ns);
        }
        break;
    case EVENT_BUCKET:
        for (int s = step->workload->buckets[entry - e->first_bucket].stage, done = -1;
             done != step->stage_done[s];) {
            done = step->stage_done[s];
            start_ring(e, s, now_ns);
        }
        break;
    default:
        break;
    }
}

/* Fetch what handle() will read for the next event of the same kind and time: in a step of many
 * replicas the tables are larger than the caches, and most events of a time are alike. */
static void prefetch_next(const struct events *e, enum event_kind kind)
{
    const int32_t next = e->queue.now[kind].head, after = next < 0 ? -1 : e->queue.nodes[next].next;
    if (next < 0)
        return;
    if (kind == EVENT_DEVICE) {
        const char *proc = (const char *)&e->step->procs[next];
        for (size_t at = 0; at < sizeof(struct proc); at += 64)
            __builtin_prefetch(proc + at);
    } else if (kind == EVENT_FLOW_START || kind == EVENT_FLOW_END) {
        const int32_t first = kind == EVENT_FLOW_START ? e->first_start : e->first_end;
        const struct channel *c = &e->network.channels[next - first];
        __builtin_prefetch(&e->network.hops[c->first_hop]);
        __builtin_prefetch(
            &e->network.transfers[kind == EVENT_FLOW_START ? c->wait_head : c->head]);
        if (after >= 0) {
            const char *channel = (const char *)&e->network.channels[after - first];
            __builtin_prefetch(channel);
            __builtin_prefetch(channel + 64);
        }
    }
}

enum status event_run(struct step *step, bool *shared, bool *done, struct err *err)
{
    struct events e;
    enum status rc = events_init(&e, step, err);
    if (rc != OK)
        goto out;
    for (int proc = 0; proc < step->num_procs; proc++)
        if (step_runs(step, proc / step->num_ranks))
            advance(&e, proc, step->origin_ns);
    int64_t now = step->origin_ns, popped = 0;
    for (;;) {
        if (step->options->progress && (++popped & 0xfffff) == 0)
            step->options->progress(step->options->progress_ctx, popped);
        if (network_unsettled(&e.network) && !event_queue_any_now(&e.queue))
            network_settle(&e.network, now);
        enum event_kind kind;
        int64_t time;
        const int32_t entry = event_queue_pop(&e.queue, &kind, &time);
        if (entry < 0 || time > step->full_ns || e.no_memory || e.network.unsure)
            break;
        now = time;
        prefetch_next(&e, kind);
        handle(&e, kind, entry, now);
    }
    *done = !e.network.unsure;
    if (e.no_memory)
        rc = err_nomem(err);
    else if (*done && step->full_ns == INT64_MAX)
        rc = deadlock(step, err);
    *shared = e.network.met;
out:
    events_clear(&e);
    return rc;
}
