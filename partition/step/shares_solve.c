/* A step as a project.
 *
 * The lists are walked as schedule_time() walks them, but with points in place of times: a point is an
 * event plus a fixed time, less a share of one work. An op that waits for more than one point, or for
 * one that a work shortens, makes an event of its start. Read walk_rank() first. */
#include "partition/step/shares_solve.h"

#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "partition/step/lower.h"
#include "partition/step/schedule_memory.h"
#include "partition/step/schedule_time.h"

struct point {
    int event, work; /* work -1: none */
    double ns, cut_ns;
};

static const struct point beginning = {0, -1, 0, 0};

/* The points that the next op of a rank waits for. */
enum { MOST_WAITS = 64 };
struct waits {
    struct point points[MOST_WAITS];
    int num;
};

struct rank_walk {
    int64_t next, launched;
    struct point now, copy_out;
    struct waits ready;
    double copy_in_ns;
    int64_t missing; /* the message that it waits for; -1: none */
};

struct project_walk {
    const struct schedule *full;
    const struct workload *workload;
    double host_op_ns;
    struct crash_project *project;
    int *work_of;
    int class_index;
    int64_t arcs_room;
    struct arrays arrays;
    struct rank_walk *ranks; /* [class][rank] */
    struct point *arrival;   /* [edge][grad][microbatch] of a class; event -1: not sent */
    struct point *ready;     /* [class][bucket][2] */
    struct point *started;   /* [stage], of its last backward in the class */
    struct op *backward;     /* [stage] */
    struct point *reduced;   /* [stage] */
    int *stack, num_stacked;
    double first_ns; /* the first start of an op */
    bool no_memory;
};

static void add_wait(struct project_walk *w, struct waits *waits, struct point point);

/* A point at which all of these have come. */
static struct point join(struct project_walk *w, struct waits *waits)
{
    struct crash_project *p = w->project;
    if (waits->num == 0)
        return beginning;
    if (waits->num == 1 && waits->points[0].work < 0)
        return waits->points[0];
    if (!array_grow(&p->arcs, p->num_arcs + waits->num, &w->arcs_room, sizeof *p->arcs)) {
        w->no_memory = true;
        return beginning;
    }
    for (int i = 0; i < waits->num; i++) {
        const struct point at = waits->points[i];
        p->arcs[p->num_arcs++] =
            (struct crash_arc){at.event, p->num_events, at.work, at.ns, at.cut_ns};
    }
    return (struct point){p->num_events++, -1, 0, 0};
}

static void add_wait(struct project_walk *w, struct waits *waits, struct point point)
{
    for (int i = 0; i < waits->num;
         i++) { /* of two fixed times after one event the later one counts */
        struct point *at = &waits->points[i];
        if (at->event == point.event && at->work < 0 && point.work < 0) {
            at->ns = point.ns > at->ns ? point.ns : at->ns;
            return;
        }
    }
    if (waits->num == MOST_WAITS) {
        const struct point all = join(w, waits);
        waits->points[0] = all;
        waits->num = 1;
    }
    waits->points[waits->num++] = point;
}

static struct point after(struct point point, double ns)
{
    point.ns += ns;
    return point;
}

static void add_launch(struct project_walk *w, struct rank_walk *rank, struct waits *waits)
{
    if (w->host_op_ns > 0)
        add_wait(w, waits, after(beginning, w->host_op_ns * (double)++rank->launched));
}

static int size_of(const struct workload *w, struct op op)
{
    return op.microbatch == w->num_microbatches - 1 ? MB_LAST : MB_FULL;
}

/* Start the next compute op of a rank; the point of its start. */
static struct point start_compute(struct project_walk *w, struct rank_walk *rank)
{
    struct waits *waits = &rank->ready;
    add_wait(w, waits, rank->now);
    add_launch(w, rank, waits);
    const struct point start = join(w, waits);
    waits->num = 0;
    if (start.event == 0 && (w->first_ns < 0 || start.ns < w->first_ns))
        w->first_ns = start.ns;
    return start;
}

/* Run a compute op that takes ns, of which the weight gradients of `weights` (NULL: none) take weight_ns. */
static void run_compute(struct project_walk *w, struct rank_walk *rank, double ns,
                        const struct op *weights, double weight_ns)
{
    const struct point start = start_compute(w, rank);
    rank->now = after(start, ns);
    if (!weights)
        return;
    w->started[weights->stage] = start;
    w->backward[weights->stage] = *weights;
    rank->now.work = w->work_of[weights->stage * w->full->num_microbatches + weights->microbatch];
    rank->now.cut_ns = rank->now.work < 0 ? 0 : weight_ns;
}

/* F and B that run as one op (time-1b): hidden all-to-alls may last longer than the compute beside
 * them, which no share shortens. */
static void run_pair(struct project_walk *w, struct rank_walk *rank, const struct op *f)
{
    const struct workload *load = w->workload;
    const int64_t at = (int64_t)w->class_index * load->num_stages;
    const struct stage_cost *back = &load->stages[at + f[1].stage];
    const int64_t hidden = load->stages[at + f->stage].hidden_ns[0][size_of(load, f[0])] +
                           back->hidden_ns[1][size_of(load, f[1])];
    int64_t forward_ns;
    const int64_t ns = workload_pair_ns(load, w->class_index, f[0], f[1], &forward_ns);
    run_compute(w, rank, (double)ns, &f[1], (double)back->weight_ns[size_of(load, f[1])]);
    if (hidden > 0)
        add_wait(w, &rank->ready, after(w->started[f[1].stage], (double)hidden));
}

static void run_copy(struct project_walk *w, struct rank_walk *rank, struct op op)
{
    const double ns = (double)workload_op_ns(w->workload, w->class_index, op);
    struct waits waits = {.num = 0};
    if (w->workload->host_blocking) {
        run_compute(w, rank, ns, NULL, 0);
        return;
    }
    add_launch(w, rank, &waits);
    if (op.kind == OP_C) { /* depends on launches alone */
        const double launched = waits.num > 0 ? waits.points[0].ns : 0;
        const double start = launched > rank->copy_in_ns ? launched : rank->copy_in_ns;
        if (w->first_ns < 0 || start < w->first_ns)
            w->first_ns = start;
        rank->copy_in_ns = start + ns;
        add_wait(w, &rank->ready, after(beginning, rank->copy_in_ns));
    } else {
        add_wait(w, &waits, rank->copy_out);
        add_wait(w, &waits, rank->now);
        rank->copy_out = after(join(w, &waits), ns);
    }
}

static int64_t message_of(const struct project_walk *w, struct op op, bool leaving, bool grad)
{
    const struct workload *load = w->workload;
    const int edge = leaving ? load->out_edge[load->out_first[op.stage] + op.arg]
                             : load->in_edge[load->in_first[op.stage] + op.arg];
    return ((int64_t)edge * 2 + grad) * load->num_microbatches + op.microbatch;
}

static void send(struct project_walk *w, struct rank_walk *rank, struct op op)
{
    const struct workload *load = w->workload;
    const bool grad = op.kind == OP_SEND_GRAD;
    const int64_t message = message_of(w, op, !grad, grad);
    const int edge = (int)(message / (2 * load->num_microbatches));
    const int to = w->full->rank_of_stage[grad ? load->edges[edge].from : load->edges[edge].to];
    struct rank_walk *receiver = rank - w->full->rank_of_stage[op.stage] + to;
    w->arrival[message] = after(
        rank->now, (double)workload_edge_ns(load, w->class_index, edge, grad, size_of(load, op)));
    if (load->sends_blocking)
        add_wait(w, &rank->ready, w->arrival[message]);
    if (receiver->missing == message) {
        receiver->missing = -1;
        w->stack[w->num_stacked++] = to;
    }
}

/* When a class of replicas has a bucket ready (time-4). */
static void reach_bucket(struct project_walk *w, struct op op)
{
    const struct workload *load = w->workload;
    const int b = load->first_bucket[op.stage] + op.arg;
    const struct op back = w->backward[op.stage];
    const struct stage_cost *cost =
        &load->stages[(int64_t)w->class_index * load->num_stages + op.stage];
    const int mb = size_of(load, back);
    const struct bucket *bucket = &load->buckets[b];
    const int64_t lead = back.kind == OP_W ? bucket->lead_w_ns : bucket->lead_ns;
    struct point *ready = &w->ready[((int64_t)w->class_index * load->num_buckets + b) * 2];
    ready[0] = w->started[op.stage];
    ready[1] = after(ready[0], (double)(cost->op_ns[back.kind][mb] - lead));
    ready[1].work = w->work_of[back.stage * load->num_microbatches + back.microbatch];
    ready[1].cut_ns = ready[1].work < 0 ? 0 : (double)(cost->weight_ns[mb] - bucket->lead_w_ns);
}

/* Walk a rank until it misses a message or reaches its tail. */
static void walk_rank(struct project_walk *w, int k)
{
    const struct rank_ops *list = &w->full->ranks[k];
    const struct workload *load = w->workload;
    struct rank_walk *rank = &w->ranks[(int64_t)w->class_index * w->full->num_ranks + k];
    for (; rank->next < list->num_ops; rank->next++) {
        const struct op *at = &list->ops[rank->next];
        const struct stage_cost *stage =
            &load->stages[(int64_t)w->class_index * load->num_stages + at->stage];
        const double ns = at->kind <= OP_P || at->kind == OP_UPDATE
                              ? (double)workload_op_ns(load, w->class_index, *at)
                              : 0;
        int64_t message;
        switch (at->kind) {
        case OP_F:
            if (op_overlapped(*at, OP_F)) {
                run_pair(w, rank, at);
                rank->next++;
                break;
            }
            run_compute(w, rank, ns, NULL, 0);
            break;
        case OP_I:
        case OP_R:
        case OP_Z:
            run_compute(w, rank, ns, NULL, 0);
            break;
        case OP_B:
        case OP_W:
            run_compute(w, rank, ns, at, (double)stage->weight_ns[size_of(load, *at)]);
            break;
        case OP_C:
        case OP_P:
            run_copy(w, rank, *at);
            break;
        case OP_SEND_ACT:
        case OP_SEND_GRAD:
            send(w, rank, *at);
            break;
        case OP_RECV_ACT:
        case OP_RECV_GRAD:
            message = message_of(w, *at, at->kind == OP_RECV_GRAD, at->kind == OP_RECV_GRAD);
            if (w->arrival[message].event < 0) {
                rank->missing = message;
                return;
            }
            add_wait(w, &rank->ready, w->arrival[message]);
            break;
        case OP_ALLREDUCE:
            reach_bucket(w, *at);
            break;
        default: /* the tail */
            return;
        }
    }
}

static enum status walk_class(struct project_walk *w, struct err *err)
{
    const struct schedule *full = w->full;
    const int64_t messages = (int64_t)w->workload->num_edges * 2 * full->num_microbatches;
    struct rank_walk *ranks = &w->ranks[(int64_t)w->class_index * full->num_ranks];
    for (int64_t i = 0; i < messages; i++)
        w->arrival[i].event = -1;
    for (int k = full->num_ranks - 1; k >= 0; k--) {
        ranks[k] = (struct rank_walk){.now = beginning, .copy_out = beginning, .missing = -1};
        w->stack[w->num_stacked++] = k;
    }
    while (w->num_stacked > 0)
        walk_rank(w, w->stack[--w->num_stacked]);
    for (int k = 0; k < full->num_ranks; k++)
        if (ranks[k].missing >= 0)
            return schedule_deadlock(full, 0, k, ranks[k].next, err);
    return OK;
}

/* All-reduces of each stage, one after another. */
static enum status walk_allreduces(struct project_walk *w, const struct plan *plan, struct err *err)
{
    const struct workload *load = w->workload;
    int *devices = calloc((size_t)load->num_pipelines, sizeof *devices);
    if (!devices)
        return err_nomem(err);
    for (int s = 0; s < load->num_stages; s++) {
        w->reduced[s] = beginning;
        if (load->setting.cost->allreduce_ns && load->num_buckets > 0)
            workload_holders(load, plan, s, devices);
        for (int b = load->first_bucket[s]; b < load->first_bucket[s + 1]; b++) {
            struct waits waits = {.num = 0};
            add_wait(w, &waits, w->reduced[s]);
            for (int i = 0; i < 2 * load->num_classes; i++)
                add_wait(w, &waits,
                         w->ready[((int64_t)(i / 2) * load->num_buckets + b) * 2 + i % 2]);
            w->reduced[s] =
                after(join(w, &waits),
                      (double)workload_bucket_ns(load, s, devices, load->buckets[b].bytes));
        }
    }
    free(devices);
    return OK;
}

/* Wait for a rank of a class, and for the all-reduces of its stages. */
static void add_rank(struct project_walk *w, struct waits *waits, int class_index, int k)
{
    add_wait(w, waits, w->ranks[(int64_t)class_index * w->full->num_ranks + k].now);
    for (int s = 0; s < w->full->num_stages; s++)
        if (w->full->rank_of_stage[s] == k)
            add_wait(w, waits, w->reduced[s]);
}

/* TIED, NORM and UPDATE, and the end of the step as the last event. */
static void walk_tails(struct project_walk *w)
{
    const struct schedule *full = w->full;
    const struct workload *load = w->workload;
    const int K = full->num_ranks, classes = load->num_classes;
    struct point norm = beginning;
    struct waits end = {.num = 0}, meeting = {.num = 0};
    for (int c = 0; c < classes && full->tied; c++) {
        struct waits waits = {.num = 0};
        for (int side = 0; side < 2; side++)
            add_rank(w, &waits, c, full->rank_of_stage[side * (full->num_stages - 1)]);
        const struct point tied = after(join(w, &waits), (double)workload_tied_ns(load, c));
        for (int side = 0; side < 2; side++) /* also where no UPDATE follows */
            add_wait(w,
                     &w->ranks[(int64_t)c * K + full->rank_of_stage[side * (full->num_stages - 1)]]
                          .ready,
                     tied);
        add_wait(w, &meeting, tied);
    }
    for (int i = 0; i < classes * K && full->norm; i++)
        add_rank(w, &meeting, i / K, i % K);
    if (full->norm)
        norm = after(join(w, &meeting), (double)load->norm_ns);
    for (int i = 0; i < classes * K; i++) {
        struct rank_walk *rank = &w->ranks[i];
        const struct rank_ops *list = &full->ranks[i % K];
        w->class_index = i / K;
        for (; rank->next < list->num_ops; rank->next++) {
            const struct op op = list->ops[rank->next];
            if (op.kind != OP_UPDATE)
                continue;
            if (full->norm)
                add_wait(w, &rank->ready, norm);
            add_wait(w, &rank->ready, w->reduced[op.stage]);
            run_compute(w, rank, (double)workload_op_ns(load, w->class_index, op), NULL, 0);
        }
        add_rank(w, &end, i / K, i % K);
        add_wait(w, &end, rank->copy_out);
    }
    if (full->norm)
        add_wait(w, &end, norm);
    add_wait(w, &end,
             after(beginning, (double)load->cache_read_ns + (w->first_ns > 0 ? w->first_ns : 0)));
    struct point last = join(w, &end);
    if (last.event != w->project->num_events - 1 || last.ns != 0 || last.event == 0) {
        struct waits only = {.num = 0};
        last.work = -1;
        add_wait(w, &only, last);
        only.points[only.num++] = beginning;
        join(w, &only);
    }
}

/* Number the works: weight gradients that take time. */
static void number_works(struct project_walk *w, double max_share)
{
    struct crash_project *p = w->project;
    const struct workload *load = w->workload;
    const int M = load->num_microbatches;
    for (int s = 0; s < load->num_stages; s++) {
        const int first = p->num_works;
        for (int m = 0; m < M; m++) {
            const int mb = m == M - 1 ? MB_LAST : MB_FULL;
            const bool any = s >= load->num_frozen_stages && load->stages[s].weight_ns[mb] > 0;
            w->work_of[s * M + m] = any ? p->num_works : -1;
            if (any)
                p->group[p->num_works++] = s;
        }
        p->budget[s] = p->num_works > first ? max_share * (p->num_works - first) : 1;
    }
}

void crash_project_clear(struct crash_project *project)
{
    free(project->arcs);
    free(project->group);
    free(project->budget);
    *project = (struct crash_project){0};
}

enum status step_project(const struct schedule *full, const struct workload *workload,
                         const struct plan *plan, double max_share, struct crash_project *project,
                         int **work_of, struct err *err)
{
    const size_t S = (size_t)full->num_stages, M = (size_t)full->num_microbatches;
    const size_t classes = (size_t)workload->num_classes, K = (size_t)full->num_ranks;
    struct crash_project got = {.num_events = 1, .num_groups = (int)S};
    struct project_walk w = {.full = full, .workload = workload, .project = &got, .first_ns = -1};
    w.host_op_ns = workload->host_blocking ? 0 : (double)workload->setting.cluster->host_op_ns;
    got.group = calloc(S * M + 1, sizeof *got.group);
    got.budget = calloc(S + 1, sizeof *got.budget);
    w.work_of = calloc(S * M + 1, sizeof *w.work_of);
    w.ranks = arrays_new(&w.arrays, classes * K, sizeof *w.ranks);
    w.arrival = arrays_new(&w.arrays, (size_t)workload->num_edges * 2 * M + 1, sizeof *w.arrival);
    w.ready =
        arrays_new(&w.arrays, classes * ((size_t)workload->num_buckets + 1) * 2, sizeof *w.ready);
    w.started = arrays_new(&w.arrays, S, sizeof *w.started);
    w.backward = arrays_new(&w.arrays, S, sizeof *w.backward);
    w.reduced = arrays_new(&w.arrays, S, sizeof *w.reduced);
    w.stack = arrays_new(&w.arrays, K, sizeof *w.stack);
    enum status rc = got.group && got.budget && w.work_of && !w.arrays.failed ? OK : err_nomem(err);
    if (rc == OK)
        number_works(&w, max_share);
    for (int c = 0; c < workload->num_classes && rc == OK; c++) {
        w.class_index = c;
        rc = walk_class(&w, err);
    }
    THEN(walk_allreduces(&w, plan, err));
    if (rc == OK)
        walk_tails(&w);
    if (rc == OK && w.no_memory)
        rc = err_nomem(err);
    arrays_clear(&w.arrays);
    if (rc == OK) {
        *project = got;
        *work_of = w.work_of;
        return OK;
    }
    free(w.work_of);
    crash_project_clear(&got);
    return rc;
}

enum status shares_solve(const struct schedule *full, const struct workload *workload,
                         const struct plan *plan, double max_share, struct freeze_shares *shares,
                         struct err *err)
{
    const int S = full->num_stages, M = full->num_microbatches;
    struct crash_project project = {0};
    struct freeze_shares got = {0};
    int *work_of = NULL;
    double *share = NULL;
    if (!(max_share >= 0 && max_share <= 1))
        return err_set(err, ERR_INPUT, "freeze.max_share must be 0..1, got %g", max_share);
    enum status rc = shares_init(S, M, &got, err);
    if (rc == OK && max_share > 0)
        rc = step_project(full, workload, plan, max_share, &project, &work_of, err);
    if (rc == OK && project.num_works > 0) {
        share = calloc((size_t)project.num_works, sizeof *share);
        rc = share ? crash_solve(&project, share, err) : err_nomem(err);
        for (int i = 0; i < S * M && rc == OK; i++)
            got.share[i] = work_of[i] < 0 ? 0 : share[work_of[i]];
    } else {
        shares_free(&got);
    }
    if (rc == OK) {
        *shares = got;
        got = (struct freeze_shares){0};
    }
    shares_free(&got);
    crash_project_clear(&project);
    free(work_of);
    free(share);
    return rc;
}

enum status plan_set_shares(const struct setting *setting, double max_share, struct plan *plan,
                            struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    struct freeze_shares shares = {0}, before = plan->shares;
    plan->shares = (struct freeze_shares){0};
    enum status rc = plan_lower(setting, plan, &workload, &full, err);
    if (rc == OK && max_share > 0)
        rc = shares_solve(&full, &workload, plan, max_share, &shares, err);
    if (rc == OK && max_share > 0) {
        workload_clear(&workload);
        schedule_clear(&full);
        plan->shares = shares;
        rc = plan_lower(setting, plan, &workload, &full, err);
        THEN(schedule_time(&full, &workload, plan, &time, err));
        if (rc == OK && plan->memory_bytes)
            rc = schedule_memory(&full, &workload, plan->memory_bytes, err);
    }
    if (rc == OK) {
        plan->step_ns = max_share > 0 ? time.step_ns : plan->step_ns;
        shares_free(&before);
    } else {
        shares_free(&shares);
        plan->shares = before;
    }
    step_time_clear(&time);
    workload_clear(&workload);
    schedule_clear(&full);
    return rc;
}

enum status plan_leave_out(const struct setting *setting, double max_share, struct plan *plan,
                           struct err *err)
{
    const enum status rc = plan_set_shares(setting, max_share, plan, err);
    return rc == OK && !plan->shares.share && plan->num_frozen_layers == 0
               ? err_set(err, ERR_INPUT,
                         "freeze.max_share %g: the backwards of model '%s' have no weight "
                         "gradients to leave out",
                         max_share, setting->model->name)
               : rc;
}
