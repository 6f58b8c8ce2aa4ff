/* A step whose transfers share no link, in one pass over its lists.
 *
 * Every message then takes its own time, so an op starts at the latest of a few ends. A rank runs
 * until a message is missing, and continues when that message has been sent. Replicas of one class
 * have equal times, so one of them runs for all, unless times are drawn. After the passes come the
 * all-reduces, then the tails of the lists (TIED, NORM, UPDATE), where ranks and replicas meet.
 *
 * The times are right if no two transfers are on one port or uplink at one time: up to the first
 * moment at which two met, event_run() would give the same times. So check_links() looks at each
 * resource and the transfers over it. Where two meet, event_run() has to run the step.
 *
 * Read run_proc() first, then direct_run() at the end. */
#include <stdlib.h>

#include "sim/step/step.h"

/* A message of a replica that runs. */
struct mail {
    int64_t arrive_ns;
    uint64_t made_ns : 60; /* of the op that made it: its usual time */
    uint64_t cause : 3;    /* why that op started late, enum idle_cause */
    uint64_t sent : 1;
};

/* The transfers of one link, ring or TIED in the order of their starts: messages, or runs. */
struct stream {
    struct mail *mail; /* by micro-batch */
    const struct bucket_run *runs;
    int count;                 /* 0: they take no time on the wire */
    int64_t wire_ns[MB_SIZES]; /* of a message, without the latency */
    int64_t latency_ns;
};

struct direct {
    struct step *step;
    struct arrays arrays; /* all of these */
    struct mail *mail;    /* [run][link][micro-batch] */
    int64_t *excess;      /* the same: time that slowness added; NULL: nothing is slow */
    int64_t *now;         /* by proc: how far its list has run */
    int *stack, num_stacked;
    struct bucket_run *tied;         /* by replica */
    int *devices;                    /* scratch: the holders of a stage */
    const struct bucket_run **order; /* scratch: the buckets of a rank */
    struct stream *streams;          /* [run][link], then [stage], then by replica */
    int num_streams;
    int *first_user, *users; /* by resource: the streams over it, first_user[r] .. */
    int *seen;               /* scratch, by resource */
};

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The stream of a message that a proc sends or receives. */
static inline struct stream *stream_of(const struct direct *d, const struct proc *p, int link)
{
    return &d->streams[d->step->run_of[p->replica] * d->step->num_links + link];
}

/* --- the lists up to their tails --------------------------------------------------------------- */

/* The time of a message from leaving to arrival. */
static inline int64_t way_ns(const struct step *step, const struct stream *stream, struct op op)
{
    return stream->latency_ns + stream->wire_ns[mb_size(step, op.microbatch)];
}

static inline void send(struct direct *d, int proc, struct op op, int64_t now_ns)
{
    struct step *step = d->step;
    struct proc *p = &step->procs[proc];
    const int link = step_link(step, op);
    const struct stream *stream = stream_of(d, p, link);
    struct mail *mail = &stream->mail[op.microbatch];
    const int64_t index = mail - d->mail;
    *mail = (struct mail){.arrive_ns = now_ns + way_ns(step, stream, op),
                          .made_ns = (uint64_t)p->made_ns,
                          .cause = p->cause,
                          .sent = 1};
    if (d->excess)
        d->excess[index] = step_take_excess(p, link & 1);
    if (step->ops)
        step_record_send(step, p->replica, link, op.microbatch, now_ns, mail->arrive_ns);
    if (step->workload->sends_blocking)
        p->held = later(p->held, mail->arrive_ns);
    const int to = proc - p->rank + step->links[link].to_rank;
    if (step->procs[to].state == PROC_MESSAGE && step->procs[to].wait_message == index) {
        step->procs[to].state = PROC_RUN;
        d->stack[d->num_stacked++] = to;
    }
}

/* Receive a message at now_ns. Returns when it is there; -1: it has not been sent. */
static inline int64_t receive(struct direct *d, int proc, struct op op, int64_t now_ns)
{
    struct step *step = d->step;
    struct proc *p = &step->procs[proc];
    const int link = step_link(step, op);
    const struct stream *stream = stream_of(d, p, link);
    const struct mail *mail = &stream->mail[op.microbatch];
    const int64_t index = mail - d->mail;
    if (!mail->sent) {
        p->state = PROC_MESSAGE;
        p->wait_message = index;
        return -1;
    }
    if (mail->arrive_ns <= now_ns)
        return now_ns;
    const struct arrival arrival = {.grad = link & 1,
                                    .cause = (uint8_t)mail->cause,
                                    .sent_ns = mail->arrive_ns - way_ns(step, stream, op),
                                    .made_ns = (int64_t)mail->made_ns,
                                    .excess_ns = d->excess ? d->excess[index] : 0};
    step_woken(p, &arrival, mail->arrive_ns);
    return mail->arrive_ns;
}

/* The last backward of a stage makes its buckets ready (time-4). */
static void last_backward(struct step *step, struct op op, int64_t start_ns, int64_t end_ns)
{
    const struct workload *w = step->workload;
    for (int b = w->first_bucket[op.stage]; b < w->first_bucket[op.stage + 1]; b++) {
        const struct bucket *bucket = &w->buckets[b];
        const int64_t lead = op.kind == OP_W ? bucket->lead_w_ns : bucket->lead_ns;
        step->buckets[b].ready_ns =
            later(step->buckets[b].ready_ns, later(end_ns - lead, start_ns));
    }
}

/* Run the op at a proc's pc, which is a compute op, once its blocking sends have ended (time-3b). */
static void run_op(struct direct *d, int proc, struct op op)
{
    struct step *step = d->step;
    struct proc *p = &step->procs[proc];
    const int64_t at = p->pc;
    int64_t start;
    step_start_op(step, proc, op, later(d->now[proc], p->held), &start, &d->now[proc]);
    if (at == step->last_backward[op.stage] && op.kind <= OP_W && op.kind != OP_F)
        last_backward(step, op, start, d->now[proc]);
}

/* Run a proc until a message is missing or its tail begins. */
static void run_proc(struct direct *d, int proc)
{
    struct step *step = d->step;
    struct proc *p = &step->procs[proc];
    const struct rank_ops *list = &step->full->ranks[p->rank];
    const bool host_blocking = step->workload->host_blocking;
    for (; p->pc < list->num_ops;) {
        const struct op op = list->ops[p->pc];
        int64_t now;
        switch (op.kind) {
        case OP_SEND_ACT:
        case OP_SEND_GRAD:
            send(d, proc, op, d->now[proc]);
            p->pc++;
            break;
        case OP_RECV_ACT:
        case OP_RECV_GRAD:
            now = receive(d, proc, op, d->now[proc]);
            if (now < 0)
                return;
            d->now[proc] = now;
            p->pc++;
            break;
        case OP_ALLREDUCE: /* ready since the stage's last backward started */
            p->pc++;
            break;
        case OP_TIED:
        case OP_NORM:
        case OP_UPDATE:
            return;
        case OP_C:
        case OP_P:
            if (!host_blocking) {
                step_start_copy(step, proc, op, d->now[proc]);
                p->pc++;
                break;
            }
            run_op(d, proc, op);
            break;
        default:
            run_op(d, proc, op);
            break;
        }
    }
}

/* Run the lists of a replica up to their tails. Returns false if they deadlock. */
static bool run_replica(struct direct *d, int replica)
{
    struct step *step = d->step;
    const int first = replica * step->num_ranks;
    for (int k = 0; k < step->num_ranks; k++) {
        d->now[first + k] = step->origin_ns;
        d->stack[d->num_stacked++] = first + step->num_ranks - 1 - k;
    }
    while (d->num_stacked > 0)
        run_proc(d, d->stack[--d->num_stacked]);
    for (int k = 0; k < step->num_ranks; k++)
        if (step->procs[first + k].state == PROC_MESSAGE)
            return false;
    return true;
}

/* --- all-reduces and tails --------------------------------------------------------------------- */

/* Run the buckets of each stage one after another (time-4). */
static void run_rings(struct step *step)
{
    const struct workload *w = step->workload;
    for (int s = 0; s < w->num_stages; s++) {
        int64_t end = 0;
        for (int b = w->first_bucket[s]; b < w->first_bucket[s + 1]; b++) {
            const int64_t start = later(end, step->buckets[b].ready_ns);
            end = start;
            if (step_has_rings(step)) {
                end += step->ring_latency_ns[s] + step->ring_ns[b];
                step_bucket_done(step, b, start, end);
            }
            step->buckets[b].start_ns = start;
            step->buckets[b].end_ns = end;
        }
    }
}

static void wait_bucket(struct direct *d, int proc, const struct bucket_run *run)
{
    if (!step_has_rings(d->step) || run->end_ns <= d->now[proc])
        return;
    step_reduced(&d->step->procs[proc], run->start_ns, run->end_ns);
    d->now[proc] = run->end_ns;
}

static int by_end(const void *a, const void *b)
{
    const struct bucket_run *x = *(const struct bucket_run *const *)a,
                            *y = *(const struct bucket_run *const *)b;
    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* Wait for all buckets of a proc's stages, in the order of their ends. Returns false if two that it
 * waits for end at once: the order of events decides what the wait is counted as. */
static bool wait_rank(struct direct *d, int proc)
{
    const struct step *step = d->step;
    const struct workload *w = step->workload;
    const int rank = proc % step->num_ranks;
    int n = 0;
    for (int s = 0; s < w->num_stages && step_has_rings(step); s++)
        for (int b = w->first_bucket[s]; w->rank_of_stage[s] == rank && b < w->first_bucket[s + 1];
             b++)
            d->order[n++] = &step->buckets[b];
    if (n > 0)
        qsort(d->order, (size_t)n, sizeof *d->order, by_end);
    for (int i = 0; i < n; i++) {
        if (i > 0 && d->order[i]->end_ns == d->order[i - 1]->end_ns &&
            d->order[i]->end_ns >= d->now[proc])
            return false;
        wait_bucket(d, proc, d->order[i]);
    }
    return true;
}

/* The next op of a proc, if it is of this kind. */
static const struct op *next_op(const struct step *step, int proc, enum op_kind kind)
{
    const struct rank_ops *list = &step->full->ranks[proc % step->num_ranks];
    const int64_t pc = step->procs[proc].pc;
    return pc < list->num_ops && list->ops[pc].kind == kind ? &list->ops[pc] : NULL;
}

static void run_together(struct direct *d, int proc, enum op_kind kind, int64_t from_ns,
                         int64_t end_ns)
{
    struct step *step = d->step;
    step_together(step, proc, *next_op(step, proc, kind), from_ns, end_ns);
    step->procs[proc].pc++;
    d->now[proc] = end_ns;
}

/* TIED of a replica (time-8). Returns false if its ranks do not reach it next. */
static bool run_tied(struct direct *d, int replica)
{
    const struct step *step = d->step;
    const struct workload *w = step->workload;
    struct bucket_run *run = &d->tied[replica];
    int procs[2];
    run->start_ns = 0;
    for (int end = 0; end < 2; end++) {
        procs[end] =
            replica * step->num_ranks + w->rank_of_stage[end * (step->full->num_stages - 1)];
        if (!next_op(step, procs[end], OP_TIED) || !wait_rank(d, procs[end]))
            return false;
        run->start_ns = later(run->start_ns, d->now[procs[end]]);
    }
    run->end_ns = run->start_ns + later(workload_tied_ns(w, w->class_of_replica[replica]),
                                        step_tied_latency_ns(step, replica));
    for (int end = 0; end < 2; end++)
        run_together(d, procs[end], OP_TIED, run->start_ns, run->end_ns);
    return true;
}

static bool runs_itself(const struct direct *d, int proc)
{
    return step_runs(d->step, proc / d->step->num_ranks);
}

/* NORM of all procs (time-5). Returns false if some do not reach it next. */
static bool run_norm(struct direct *d)
{
    struct step *step = d->step;
    int64_t from = 0;
    for (int i = 0; i < step->num_procs; i++)
        if (runs_itself(d, i)) {
            if (!next_op(step, i, OP_NORM) || !wait_rank(d, i))
                return false;
            from = later(from, d->now[i]);
        }
    for (int i = 0; i < step->num_procs; i++)
        if (runs_itself(d, i))
            run_together(d, i, OP_NORM, from, from + step->workload->norm_ns);
    return true;
}

/* The updates of a proc (time-6). Returns false if another op is left in its list. */
static bool run_updates(struct direct *d, int proc)
{
    struct step *step = d->step;
    const struct workload *w = step->workload;
    const struct op *op;
    while ((op = next_op(step, proc, OP_UPDATE))) {
        for (int b = w->first_bucket[op->stage]; b < w->first_bucket[op->stage + 1]; b++)
            wait_bucket(d, proc, &step->buckets[b]);
        run_op(d, proc, *op);
    }
    return step->procs[proc].pc == step->full->ranks[proc % step->num_ranks].num_ops;
}

/* Returns false if the lists end in another order than TIED, NORM, updates. */
static bool run_tails(struct direct *d)
{
    struct step *step = d->step;
    for (int r = 0; r < step->num_pipelines && step->full->tied; r++)
        if (step_runs(step, r) && !run_tied(d, r))
            return false;
    if (step->full->norm && !run_norm(d))
        return false;
    for (int i = 0; i < step->num_procs; i++)
        if (runs_itself(d, i) && !run_updates(d, i))
            return false;
    return true;
}

/* --- whether transfers meet -------------------------------------------------------------------- */

/* The time that a transfer of a stream is on the wire; empty if that takes no time. */
static inline void wire_time(const struct stream *stream, int i, int64_t *start_ns, int64_t *end_ns)
{
    if (stream->mail) {
        *end_ns = stream->mail[i].arrive_ns;
        *start_ns = *end_ns - stream->wire_ns[i == stream->count - 1 ? MB_LAST : MB_FULL];
    } else {
        *end_ns = stream->runs[i].end_ns;
        *start_ns = stream->runs[i].start_ns + stream->latency_ns;
    }
}

/* Whether the transfers of a stream follow one another. */
static bool in_turn(const struct stream *stream)
{
    int64_t start, end, last = INT64_MIN;
    for (int i = 0; i < stream->count; i++) {
        wire_time(stream, i, &start, &end);
        if (start < last)
            return false;
        last = end;
    }
    return true;
}

enum { MOST_USERS = 64 }; /* of a resource; more of them surely meet */

/* all_in_turn() of two streams, as most resources have. */
static bool both_in_turn(const struct stream *a, const struct stream *b)
{
    int64_t start[2], end[2], last = INT64_MIN;
    int i = 0, j = 0;
    wire_time(a, 0, &start[0], &end[0]);
    wire_time(b, 0, &start[1], &end[1]);
    while (i < a->count && j < b->count) {
        const int first = start[1] < start[0];
        if (end[first] > start[first]) {
            if (start[first] < last)
                return false;
            last = end[first];
        }
        if (first == 0 && ++i < a->count)
            wire_time(a, i, &start[0], &end[0]);
        else if (first == 1 && ++j < b->count)
            wire_time(b, j, &start[1], &end[1]);
    }
    /* What is left of one stream is in turn, so its first transfer decides, unless it takes no time. */
    const int left = i < a->count ? 0 : 1;
    return end[left] > start[left] && start[left] >= last;
}

/* Whether the transfers of n streams, each in turn, follow one another: merge them by their starts. */
static bool all_in_turn(const struct direct *d, const int *users, int n)
{
    int at[MOST_USERS] = {0};
    int64_t start[MOST_USERS] = {INT64_MAX}, end[MOST_USERS], last = INT64_MIN;
    for (int u = 0; u < n; u++)
        wire_time(&d->streams[users[u]], 0, &start[u], &end[u]);
    for (;;) {
        int first = 0;
        for (int u = 1; u < n; u++)
            first = start[u] < start[first] ? u : first;
        if (start[first] == INT64_MAX)
            return true;
        if (end[first] > start[first]) {
            if (start[first] < last)
                return false;
            last = end[first];
        }
        const struct stream *stream = &d->streams[users[first]];
        if (++at[first] < stream->count)
            wire_time(stream, at[first], &start[first], &end[first]);
        else
            start[first] = INT64_MAX;
    }
}

/* Add a stream to the users of the resources on the way from a device to another one, or with
 * `count` only count them. A ring uses a resource once, however often it crosses it. */
static void use_path(struct direct *d, int stream, int from, int to, bool ring, bool count)
{
    int32_t path[PATH_MAX_HOPS];
    const int hops = cluster_path(d->step->cluster, from, to, path);
    for (int i = 0; i < hops; i++) {
        if (ring && d->seen[path[i]] == stream)
            continue;
        d->seen[path[i]] = stream;
        if (count)
            d->first_user[path[i] + 2]++;
        else
            d->users[d->first_user[path[i] + 1]++] = stream;
    }
}

/* Replicas of one class share a stream. Where two of them use a resource it is there twice, so that
 * their transfers meet. */
static void use_paths(struct direct *d, bool count)
{
    const struct step *step = d->step;
    const struct workload *w = step->workload;
    const int L = step->num_links, n = step->num_pipelines;
    for (int i = 0; i < cluster_num_resources(step->cluster); i++)
        d->seen[i] = -1;
    for (int r = 0; r < n; r++)
        for (int l = 0; l < L; l++) {
            const int *device = &step->plan->device[r * step->num_ranks];
            const struct link *link = &step->links[l];
            const int stream = step->run_of[r] * L + l;
            if (d->streams[stream].count > 0)
                use_path(d, stream, device[link->from_rank], device[link->to_rank], false, count);
        }
    for (int s = 0; s < w->num_stages && step_has_rings(step); s++) {
        workload_holders(w, step->plan, s, d->devices);
        for (int i = 0; i < n; i++)
            use_path(d, step->num_runs * L + s, d->devices[i], d->devices[(i + 1) % n], true,
                     count);
    }
    for (int r = 0; r < n && step->full->tied; r++) {
        int ends[2];
        workload_tied_devices(w, step->plan, r, ends);
        for (int i = 0; i < 2; i++)
            use_path(d, step->num_runs * L + w->num_stages + r, ends[i], ends[1 - i], true, count);
    }
}

/* Set up the streams of messages, which send() and receive() read. */
static void find_ways(struct direct *d)
{
    const struct step *step = d->step;
    for (int i = 0; i < step->num_runs * step->num_links; i++) {
        const int run = i / step->num_links, l = i % step->num_links;
        struct stream *stream = &d->streams[i];
        stream->mail = d->mail + (ptrdiff_t)i * step->num_microbatches;
        stream->latency_ns = step_latency_ns(step, step->runs[run].replica, l);
        for (int mb = 0; mb < MB_SIZES; mb++)
            stream->wire_ns[mb] =
                later(0, workload_edge_ns(step->workload, step_class(step, run), l / 2, l & 1, mb) -
                             stream->latency_ns);
    }
}

/* Count the transfers of each stream. Returns false if a link does not carry every micro-batch. */
static bool find_streams(struct direct *d)
{
    const struct step *step = d->step;
    const struct workload *w = step->workload;
    const int L = step->num_links, M = step->num_microbatches;
    for (int i = 0; i < step->num_runs * L; i++) {
        const int64_t *num = step->links[i % L].num_sent, sent = num[MB_FULL] + num[MB_LAST];
        struct stream *stream = &d->streams[i];
        if (sent > 0 && sent < M)
            return false;
        if (sent > 0 && stream->wire_ns[MB_FULL] + stream->wire_ns[MB_LAST] > 0)
            stream->count = M;
    }
    struct stream *at = &d->streams[step->num_runs * L];
    for (int s = 0; s < w->num_stages; s++)
        *at++ = (struct stream){.runs = &step->buckets[w->first_bucket[s]],
                                .count = w->first_bucket[s + 1] - w->first_bucket[s],
                                .latency_ns = step->ring_latency_ns[s]};
    for (int r = 0; r < step->num_pipelines && step->full->tied; r++)
        *at++ = (struct stream){.runs = &d->tied[step->runs[step->run_of[r]].replica],
                                .count = 1,
                                .latency_ns = step_tied_latency_ns(step, r)};
    return true;
}

/* Set *apart: no two transfers are on one resource at one time. */
static enum status check_links(struct direct *d, bool *apart, struct err *err)
{
    const int num = cluster_num_resources(d->step->cluster);
    d->first_user = arrays_new(&d->arrays, (size_t)num + 2, sizeof *d->first_user);
    d->seen = arrays_new(&d->arrays, (size_t)num + 1, sizeof *d->seen);
    if (d->arrays.failed)
        return err_nomem(err);
    *apart = find_streams(d);
    for (int i = 0; i < d->num_streams && *apart; i++)
        *apart = in_turn(&d->streams[i]);
    if (!*apart)
        return OK;
    use_paths(d, true);
    for (int i = 2; i < num + 2; i++) /* one entry further on, so that the starts are in place */
        d->first_user[i] += d->first_user[i - 1];
    d->users = arrays_new(&d->arrays, (size_t)d->first_user[num + 1] + 1, sizeof *d->users);
    if (d->arrays.failed)
        return err_nomem(err);
    use_paths(d, false);
    for (int i = 0; i < num && *apart; i++) {
        const int n = d->first_user[i + 1] - d->first_user[i];
        const int *users = &d->users[d->first_user[i]];
        if (n == 2)
            *apart = both_in_turn(&d->streams[users[0]], &d->streams[users[1]]);
        else
            *apart = n < 2 || (n <= MOST_USERS && all_in_turn(d, users, n));
    }
    return OK;
}

/* --- the step ---------------------------------------------------------------------------------- */

static enum status direct_init(struct direct *d, struct err *err)
{
    const struct step *step = d->step;
    const struct workload *w = step->workload;
    const bool drawn = step->options->jitter > 0 || step->options->low;
    const size_t n = (size_t)step->num_pipelines, L = (size_t)step->num_links;
    const size_t links = (size_t)step->num_runs * L + 1;
    d->num_streams = step->num_runs * step->num_links + w->num_stages +
                     (step->full->tied ? step->num_pipelines : 0);
    d->mail = arrays_new(&d->arrays, links, (size_t)step->num_microbatches * sizeof *d->mail);
    if (drawn || step->slow)
        d->excess =
            arrays_new(&d->arrays, links, (size_t)step->num_microbatches * sizeof *d->excess);
    d->now = arrays_new(&d->arrays, (size_t)step->num_procs, sizeof *d->now);
    d->stack = arrays_new(&d->arrays, (size_t)step->num_ranks, sizeof *d->stack);
    d->tied = arrays_new(&d->arrays, n, sizeof *d->tied);
    d->order = arrays_new(&d->arrays, (size_t)w->num_buckets + 1, sizeof *d->order);
    d->devices = arrays_new(&d->arrays, n, sizeof *d->devices);
    d->streams = arrays_new(&d->arrays, (size_t)d->num_streams + 1, sizeof *d->streams);
    if (d->arrays.failed)
        return err_nomem(err);
    find_ways(d);
    return OK;
}

enum status direct_run(struct step *step, bool *done, struct err *err)
{
    struct direct d = {.step = step};
    enum status rc = direct_init(&d, err);
    *done = rc == OK;
    for (int r = 0; r < step->num_pipelines && *done; r++)
        *done = !step_runs(step, r) || run_replica(&d, r);
    if (*done) {
        run_rings(step);
        *done = run_tails(&d);
    }
    if (*done)
        rc = check_links(&d, done, err);
    arrays_clear(&d.arrays);
    return rc;
}
