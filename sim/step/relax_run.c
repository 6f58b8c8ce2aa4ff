/* The direct engine: as long as no two transfers meet, the planner's recurrence gives every time.
 *
 * schedule_watch() reports each op; watch_op() books it into the accounts of a device (sim/step/step.h).
 * Replicas of one class are run once, by the first replica of each, and copied by spread().
 * Afterwards ports_meet() and uplinks_meet() look at all transfers: if two of them used a port or
 * an uplink at once, the times do not hold and the caller asks the event engine. */
#include <stdlib.h>
#include <string.h>

#include "partition/step/schedule_time.h"
#include "sim/step/step.h"

struct relax {
    struct step *step;
    int num_links;
    int64_t *arrival;   /* owned; [class][link][micro-batch], -1 not sent */
    int *class_replica; /* owned; first replica of each class */
    uint8_t *causes;    /* owned; by message: why its maker was late + 8 * kind of the maker */
    int64_t *made;      /* owned; [message]: the usual time of the op that made it; NULL: no ops
                           overlap, and it is that of causes[] */
    int64_t *excess;    /* owned; [message]: time added by slowness; NULL: no device is slow */
};

static int64_t message_index(const struct relax *x, int class_index, int link, int mb)
{
    return ((int64_t)class_index * x->num_links + link) * x->step->num_microbatches + mb;
}

/* A message is there; whether the rank waited for it shows here. */
static void received(const struct relax *x, int class_index, int proc, struct op op, int64_t now_ns)
{
    const struct step *step = x->step;
    const struct workload *w = step->workload;
    struct proc *p = &step->procs[proc];
    if (now_ns <= p->marked)
        return;
    const int link = step_link(step, op);
    const int64_t message = message_index(x, class_index, link, op.microbatch);
    const struct stage_edge *edge = &w->edges[link / 2];
    const struct op maker = {.microbatch = op.microbatch,
                             .stage = (uint16_t)(link & 1 ? edge->to : edge->from),
                             .kind = x->causes[message] / 8};
    int64_t made = x->made ? x->made[message] : workload_op_ns(w, class_index, maker);
    if (step->slow && !x->made) {
        const int from = proc - proc % step->num_ranks + step->links[link].from_rank;
        const double speed = step->cluster->devices[step->plan->device[from]].speed;
        made = speed < 1 ? (int64_t)((double)made * speed) : made;
    }
    const int mb = mb_size(step, op.microbatch);
    const struct arrival arrival = {
        .grad = link & 1,
        .cause = x->causes[message] % 8,
        .sent_ns = now_ns - workload_edge_ns(w, class_index, link / 2, link & 1, mb),
        .made_ns = made,
        .excess_ns = x->excess ? x->excess[message] : 0};
    step_woken(p, &arrival, now_ns);
}

static void sent(struct relax *x, int class_index, int proc, struct op op, int64_t end_ns)
{
    struct proc *p = &x->step->procs[proc];
    if (x->step->workload->sends_blocking && end_ns > p->held)
        p->held = end_ns;
    const int link = step_link(x->step, op);
    const int64_t message = message_index(x, class_index, link, op.microbatch);
    x->causes[message] = (uint8_t)(p->cause + 8 * p->made_kind);
    if (x->made)
        x->made[message] = p->made_ns;
    if (x->excess)
        x->excess[message] = step_take_excess(p, link & 1);
}

/* A rank that has reached TIED or NORM waits for the buckets of its stages, as they end. */
static void wait_for_buckets(const struct step *step, struct proc *p, int rank)
{
    const struct workload *w = step->workload;
    for (;;) {
        const struct bucket_run *next = NULL;
        for (int b = 0; b < w->num_buckets; b++) {
            const struct bucket_run *run = &step->buckets[b];
            if (w->rank_of_stage[w->buckets[b].stage] == rank && run->end_ns > p->marked &&
                (!next || run->end_ns < next->end_ns))
                next = run;
        }
        if (!next)
            return;
        step_reduced(p, next->start_ns, next->end_ns);
    }
}

/* An UPDATE waits for the buckets of its stage. */
static void wait_for_stage(const struct step *step, struct proc *p, int stage)
{
    const int *first = step->workload->first_bucket;
    for (int b = first[stage]; b < first[stage + 1]; b++) {
        const struct bucket_run *run = &step->buckets[b];
        if (run->end_ns > p->marked)
            step_reduced(p, run->start_ns, run->end_ns);
    }
}

static void watch_op(void *ctx, int class_index, int rank, struct op op, int64_t start_ns,
                     int64_t end_ns)
{
    struct relax *x = ctx;
    struct step *step = x->step;
    const struct workload *w = step->workload;
    const int proc = x->class_replica[class_index] * step->num_ranks + rank;
    struct proc *p = &step->procs[proc];
    switch (op.kind) {
    case OP_SEND_ACT:
    case OP_SEND_GRAD:
        sent(x, class_index, proc, op, end_ns);
        if (step->ops)
            step_record(step, proc, op, start_ns, end_ns);
        return;
    case OP_RECV_ACT:
    case OP_RECV_GRAD:
        received(x, class_index, proc, op, end_ns);
        return;
    case OP_ALLREDUCE:
        step_bucket_done(step, w->first_bucket[op.stage] + op.arg, start_ns, end_ns);
        return; /* told once, with the stage of the model */
    case OP_TIED:
    case OP_NORM:
        wait_for_buckets(step, p, rank);
        step_together(step, proc, op, start_ns, end_ns);
        return;
    case OP_UPDATE:
        wait_for_stage(step, p, op.stage);
        break;
    case OP_C:
    case OP_P:
        if (!w->host_blocking) {
            step_copied(step, proc, op, start_ns, end_ns);
            return;
        }
        break;
    default:
        break;
    }
    step_computed(step, proc, op, end_ns - start_ns, start_ns, end_ns);
}

/* ---- Did two transfers meet? ---- */

struct span {
    int64_t start, end;
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

enum { MERGED_MAX = 8 }; /* streams of a resource that are merged; more are sorted */

/* A stream of transfers over one resource: a link of a class, ascending unless the list is odd. */
struct stream {
    const int64_t *arrival;
    int64_t latency_free_ns[MB_SIZES]; /* time on the wire */
    int m, num;
};

static bool stream_next(struct stream *s, struct span *span)
{
    while (s->m < s->num && s->arrival[s->m] < 0)
        s->m++;
    if (s->m == s->num)
        return false;
    int64_t wire = s->latency_free_ns[s->m == s->num - 1];
    *span = (struct span){s->arrival[s->m] - wire, s->arrival[s->m]};
    s->m++;
    return true;
}

/* Merge ascending streams; true when two spans overlap or a stream descends. */
static bool streams_meet(struct stream *streams, int n)
{
    struct span head[MERGED_MAX];
    bool have[MERGED_MAX];
    for (int i = 0; i < n; i++)
        have[i] = stream_next(&streams[i], &head[i]);
    int64_t busy_until = INT64_MIN;
    for (;;) {
        int first = -1;
        for (int i = 0; i < n; i++)
            if (have[i] && (first < 0 || head[i].start < head[first].start))
                first = i;
        if (first < 0)
            return false;
        if (head[first].end > head[first].start) {
            if (head[first].start < busy_until)
                return true;
            busy_until = head[first].end;
        }
        int64_t before = head[first].start;
        have[first] = stream_next(&streams[first], &head[first]);
        if (have[first] && head[first].start < before)
            return true;
    }
}

static bool spans_meet(struct span *spans, int64_t n)
{
    qsort(spans, (size_t)n, sizeof *spans, by_start);
    for (int64_t i = 1; i < n; i++)
        if (spans[i].start < spans[i - 1].end)
            return true;
    return false;
}

/* Whether two transfers of a resource's streams use it at once. */
static enum status resource_meets(struct stream *streams, int n, int num_microbatches, bool *meets,
                                  struct err *err)
{
    if (n <= MERGED_MAX) {
        *meets = streams_meet(streams, n);
        return OK;
    }
    struct span *spans = malloc((size_t)n * (size_t)num_microbatches * sizeof *spans);
    if (!spans)
        return err_nomem(err);
    int64_t num = 0;
    for (int i = 0; i < n; i++)
        while (stream_next(&streams[i], &spans[num]))
            num += spans[num].end > spans[num].start;
    *meets = spans_meet(spans, num);
    free(spans);
    return OK;
}

static struct stream stream_of(const struct relax *x, int replica, int link)
{
    const struct step *step = x->step;
    const struct workload *w = step->workload;
    int c = w->class_of_replica[replica];
    const int *device = &step->plan->device[replica * step->num_ranks];
    int64_t latency =
        cost_transfer_ns(step->cost, step->cluster, device[step->links[link].from_rank],
                         device[step->links[link].to_rank], 0);
    struct stream s = {.arrival = &x->arrival[message_index(x, c, link, 0)],
                       .num = step->num_microbatches};
    for (int mb = 0; mb < MB_SIZES; mb++)
        s.latency_free_ns[mb] = workload_edge_ns(w, c, link / 2, link & 1, mb) - latency;
    return s;
}

static bool link_used(const struct step *step, int link)
{
    const struct link *l = &step->links[link];
    return l->from_rank != l->to_rank && l->num_sent[MB_FULL] + l->num_sent[MB_LAST] > 0 &&
           step->workload->edges[link / 2].bytes[MB_FULL] > 0;
}

/* Ports: per rank the links that leave it, those that enter it (all of them in half duplex). */
static enum status ports_meet(const struct relax *x, bool *shared, struct err *err)
{
    const struct step *step = x->step;
    int K = step->num_ranks, n = step->num_links;
    bool half = step->cluster->half_duplex;
    int *first = calloc(2 * (size_t)K + 2, sizeof *first);
    int *of = malloc((2 * (size_t)n + 1) * sizeof *of);
    struct stream *streams = malloc((2 * (size_t)n + 1) * sizeof *streams);
    enum status rc = OK;
    if (!first || !of || !streams) {
        rc = err_nomem(err);
        goto out;
    }
    for (int l = 0; l < n; l++) {
        if (!link_used(step, l))
            continue;
        first[2 * step->links[l].from_rank + 1]++;
        first[2 * step->links[l].to_rank + !half + 1]++;
    }
    for (int i = 0; i < 2 * K; i++)
        first[i + 1] += first[i];
    first[2 * K + 1] = first[2 * K];
    for (int l = n - 1; l >= 0; l--) { /* fill from the back: first[i + 1] falls to its start */
        if (!link_used(step, l))
            continue;
        of[--first[2 * step->links[l].from_rank + 1]] = l;
        of[--first[2 * step->links[l].to_rank + !half + 1]] = l;
    }
    /* now first[i + 1] is the start of port i, first[i + 2] its end */
    for (int c = 0; c < step->workload->num_classes; c++) {
        for (int i = 0; i < 2 * K && rc == OK && !*shared; i++) {
            int from = first[i + 1], to = first[i + 2];
            for (int j = from; j < to; j++)
                streams[j - from] = stream_of(x, x->class_replica[c], of[j]);
            rc = resource_meets(streams, to - from, step->num_microbatches, shared, err);
        }
    }
out:
    free(first);
    free(of);
    free(streams);
    return rc;
}

/* Uplinks: every link of every replica that crosses a node's border. */
static enum status uplinks_meet(const struct relax *x, bool *shared, struct err *err)
{
    const struct step *step = x->step;
    const struct cluster *cluster = step->cluster;
    enum status rc = OK;
    int resources = 2 * cluster->num_nodes;
    struct stream *streams = NULL;
    int *count = calloc((size_t)resources + 1, sizeof *count);
    int *next = calloc((size_t)resources + 1, sizeof *next);
    if (!count || !next) {
        rc = err_nomem(err);
        goto out;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < step->num_replicas; r++) {
            const int *device = &step->plan->device[r * step->num_ranks];
            for (int l = 0; l < step->num_links; l++) {
                int from = cluster->devices[device[step->links[l].from_rank]].node;
                int to = cluster->devices[device[step->links[l].to_rank]].node;
                if (from == to || !link_used(step, l))
                    continue;
                int used[2] = {2 * from, 2 * to + !cluster->half_duplex};
                for (int j = 0; j < 2; j++)
                    if (pass == 0)
                        count[used[j]]++;
                    else
                        streams[next[used[j]]++] = stream_of(x, r, l);
            }
        }
        if (pass == 0) {
            int64_t total = 0;
            for (int i = 0; i < resources; i++) {
                next[i] = (int)total;
                total += count[i];
            }
            if (total == 0)
                goto out;
            streams = malloc((size_t)total * sizeof *streams);
            if (!streams) {
                rc = err_nomem(err);
                goto out;
            }
        }
    }
    for (int i = 0; i < resources && rc == OK && !*shared; i++)
        rc = resource_meets(&streams[next[i] - count[i]], count[i], step->num_microbatches, shared,
                            err);
out:
    free(count);
    free(next);
    free(streams);
    return rc;
}

/* Copy the procs of each class's first replica to the others, and their recorded ops. */
static void spread(const struct relax *x)
{
    struct step *step = x->step;
    int64_t recorded = step->num_ops;
    for (int r = 0; r < step->num_replicas; r++) {
        int first = x->class_replica[step->workload->class_of_replica[r]];
        if (first == r)
            continue;
        memcpy(&step->procs[r * step->num_ranks], &step->procs[first * step->num_ranks],
               (size_t)step->num_ranks * sizeof *step->procs);
        for (int64_t i = 0; step->ops && i < recorded; i++) {
            struct sim_op op = step->ops[i];
            if (op.replica == first && op.op.kind != OP_ALLREDUCE) {
                op.replica = r;
                step->ops[step->num_ops++] = op;
            }
        }
    }
}

enum status relax_run(struct step *step, bool *shared, struct err *err)
{
    enum status rc = OK;
    const struct workload *w = step->workload;
    struct relax x = {.step = step, .num_links = step->num_links};
    const size_t classes = (size_t)w->num_classes, links = (size_t)step->num_links;
    const size_t messages = classes * links * (size_t)step->num_microbatches;
    x.arrival = malloc((messages + 1) * sizeof *x.arrival);
    x.class_replica = malloc(classes * sizeof *x.class_replica);
    x.causes = malloc(messages + 1);
    *shared = false;
    if (step->slow)
        x.excess = malloc((messages + 1) * sizeof *x.excess);
    if (step->overlaps)
        x.made = malloc((messages + 1) * sizeof *x.made);
    if ((step->slow && !x.excess) || (step->overlaps && !x.made) || !x.arrival ||
        !x.class_replica || !x.causes) {
        rc = err_nomem(err);
        goto out;
    }
    for (int r = w->num_replicas - 1; r >= 0; r--)
        x.class_replica[w->class_of_replica[r]] = r;
    const struct step_watch watch = {
        .op = watch_op, .ctx = &x, .allreduce = step->options->allreduce, .arrival_ns = x.arrival};
    const struct setting setting = {.cluster = step->cluster, .cost = step->cost};
    rc = schedule_watch(step->full, w, &setting, step->plan, &watch, err);
    if (rc != OK)
        goto out;
    spread(&x);
    rc = ports_meet(&x, shared, err);
    if (rc == OK && !*shared)
        rc = uplinks_meet(&x, shared, err);
out:
    free(x.arrival);
    free(x.class_replica);
    free(x.causes);
    free(x.made);
    free(x.excess);
    return rc;
}
