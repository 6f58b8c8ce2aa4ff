#include "sim/step.h"

#include <stdlib.h>
#include <string.h>

#include "partition/units.h"

/* Cap of anything counted per message or per op here; above it the answer is "too large". */
#define STEP_MAX_CELLS ((int64_t)1 << 33)

static enum status too_large(const char *what, int64_t count, struct err *err)
{
    return err_set(err, ERR_INFEASIBLE, "step too large to simulate: %lld %s, limit %lld",
                   (long long)count, what, (long long)STEP_MAX_CELLS);
}

enum status step_init(struct step *step, const struct schedule *full,
                      const struct workload *workload, const struct cluster *cluster,
                      const struct cost *cost, const struct plan *plan,
                      const struct sim_options *options, struct err *err)
{
    enum status rc = OK;
    struct step got = {0};
    got.full = full;
    got.workload = workload;
    got.cluster = cluster;
    got.cost = cost;
    got.plan = plan;
    got.options = options;
    got.num_ranks = full->num_ranks;
    got.num_replicas = workload->num_replicas;
    got.num_procs = got.num_ranks * got.num_replicas;
    got.num_links = 2 * workload->num_edges;
    got.num_microbatches = full->num_microbatches;
    got.async_host = cluster->host_op_ns > 0 && !cluster->host_blocking;
    got.origin_ns = got.async_host ? cluster->host_op_ns : 0;
    int64_t cells;
    if (!mul_ok(got.num_replicas, got.num_links, &cells) ||
        !mul_ok(cells, got.num_microbatches, &cells) || cells > STEP_MAX_CELLS)
        return too_large("messages", cells, err);

    got.links = calloc((size_t)got.num_links + 1, sizeof *got.links);
    got.surveys = calloc((size_t)got.num_ranks, sizeof *got.surveys);
    got.last_backward = calloc((size_t)full->num_stages, sizeof *got.last_backward);
    got.memory = calloc((size_t)workload->num_classes * (size_t)got.num_ranks, sizeof *got.memory);
    got.procs = calloc((size_t)got.num_procs, sizeof *got.procs);
    got.buckets = calloc((size_t)workload->num_buckets + 1, sizeof *got.buckets);
    got.stage_done = calloc((size_t)full->num_stages, sizeof *got.stage_done);
    got.tied = calloc((size_t)got.num_replicas, sizeof *got.tied);
    if (!got.tied || !got.links || !got.surveys || !got.last_backward || !got.memory ||
        !got.procs || !got.buckets || !got.stage_done) {
        rc = err_nomem(err);
        goto out;
    }
    step_survey(&got);
    if (options->record_ops) {
        for (int k = 0; k < got.num_ranks; k++)
            got.max_ops += got.surveys[k].num_compute + got.surveys[k].num_sends;
        if (!mul_ok(got.max_ops, got.num_replicas, &got.max_ops) ||
            !add_ok(got.max_ops, workload->num_buckets, &got.max_ops) ||
            got.max_ops > STEP_MAX_CELLS) {
            rc = too_large("ops to record", got.max_ops, err);
            goto out;
        }
        got.ops = malloc(((size_t)got.max_ops + 1) * sizeof *got.ops);
        if (!got.ops) {
            rc = err_nomem(err);
            goto out;
        }
    }
    for (int c = 0; c < workload->num_classes; c++) {
        for (int k = 0; k < got.num_ranks; k++) {
            int64_t limit = INT64_MAX;
            for (int r = 0; r < got.num_replicas; r++) {
                int device = plan->device[r * got.num_ranks + k];
                if (workload->class_of_replica[r] == c &&
                    cluster->devices[device].mem_bytes < limit)
                    limit = cluster->devices[device].mem_bytes;
            }
            rc = memory_walk(&got, c, k, limit, &got.memory[c * got.num_ranks + k], err);
            if (rc != OK)
                goto out;
        }
    }
    step_reset(&got);
    *step = got;
    got = (struct step){0};
out:
    step_clear(&got);
    return rc;
}

void step_clear(struct step *step)
{
    free(step->links);
    free(step->surveys);
    free(step->last_backward);
    free(step->memory);
    free(step->procs);
    free(step->buckets);
    free(step->stage_done);
    free(step->tied);
    free(step->ops);
    *step = (struct step){0};
}

void step_reset(struct step *step)
{
    memset(step->buckets, 0, (size_t)step->workload->num_buckets * sizeof *step->buckets);
    memset(step->stage_done, 0, (size_t)step->full->num_stages * sizeof *step->stage_done);
    memset(step->tied, 0, (size_t)step->num_replicas * sizeof *step->tied);
    step->num_norm = 0;
    step->norm_from_ns = 0;
    step->full_ns = INT64_MAX;
    step->full_proc = -1;
    step->num_ops = 0;
    for (int i = 0; i < step->num_procs; i++) {
        step->procs[i] = (struct proc){
            .clock = step->origin_ns,
            .marked = step->origin_ns,
            .first = -1,
            .wait_message = -1,
            .forward_left = step->surveys[i % step->num_ranks].num_forward,
            .cause = IDLE_IMBALANCE,
        };
    }
}

void step_survey(struct step *step)
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

bool rank_reduced(const struct step *step, int rank)
{
    for (int s = 0; s < step->full->num_stages; s++) {
        if (step->full->rank_of_stage[s] == rank && !stage_reduced(step, s))
            return false;
    }
    return true;
}

static void mark_idle(struct proc *p, enum idle_cause cause, int64_t until_ns)
{
    if (until_ns > p->marked) {
        p->idle[cause] += until_ns - p->marked;
        p->marked = until_ns;
        p->cause = (uint8_t)cause;
    }
}

/* Standard normal x 65536 from the sum of twelve 16-bit uniforms (Irwin-Hall), of the op's own
 * counter, so that neither the order of events nor the machine's libm matters. */
static int64_t normal_draw(const struct step *step, int proc, int64_t pc)
{
    uint64_t key =
        mix64(step->options->seed ^ mix64(((uint64_t)(uint32_t)proc << 32) ^ mix64((uint64_t)pc)));
    int64_t sum = 0;
    for (int word = 0; word < 3; word++) {
        uint64_t bits = mix64(key + (uint64_t)word);
        for (int part = 0; part < 4; part++)
            sum += (int64_t)((bits >> (16 * part)) & 0xffff);
    }
    /* mean 12 * 32767.5, standard deviation 65536 to a part in 10^9 */
    return sum - 393210;
}

static int64_t jittered(const struct step *step, int proc, int64_t pc, int64_t ns)
{
    double factor = 1.0 + step->options->jitter * (double)normal_draw(step, proc, pc) / 65536.0;
    return factor > 0 ? (int64_t)((double)ns * factor + 0.5) : 0;
}

#define NORMAL_P90 1.2815515655446004 /* 90th percentile of the standard normal law */

/* A draw from the spread of the costs around the median ns. */
static int64_t spread_draw(const struct step *step, int proc, int64_t pc, int class_index,
                           struct op op, int64_t ns)
{
    int64_t draw = normal_draw(step, proc, pc);
    const struct workload *side = draw < 0 ? step->options->low : step->options->high;
    int64_t away = workload_op_ns(side, class_index, op) - ns;
    if ((draw < 0) != (away < 0))
        return ns; /* percentiles on the wrong side of the median: no spread there */
    double got =
        (double)ns + (double)away * (double)(draw < 0 ? -draw : draw) / (65536.0 * NORMAL_P90);
    return got > 0 ? (int64_t)(got + 0.5) : 0;
}

static int64_t launch_ns(const struct step *step, struct proc *p)
{
    return step->async_host ? ++p->launches * step->cluster->host_op_ns : 0;
}

int64_t step_start_op(struct step *step, int proc, struct op op, int64_t now_ns, int64_t *end_ns)
{
    struct proc *p = &step->procs[proc];
    int rank = proc % step->num_ranks;
    int class_index = step->workload->class_of_replica[proc / step->num_ranks];
    int64_t start = now_ns;
    if (p->gate > start) {
        start = p->gate;
        mark_idle(p, IDLE_TRANSFER, start);
    }
    p->gate = 0;
    int64_t launched = launch_ns(step, p);
    if (launched > start) {
        start = launched;
        mark_idle(p, IDLE_HOST, start);
    }
    int64_t ns = workload_op_ns(step->workload, class_index, op);
    int64_t usual = ns;
    const struct device *device = &step->cluster->devices[step->plan->device[proc]];
    if (device->speed < 1)
        usual = (int64_t)((double)ns * device->speed);
    if (step->options->low)
        ns = spread_draw(step, proc, p->pc, class_index, op, ns);
    if (step->options->jitter > 0) /* another draw than the spread's */
        ns = jittered(step, proc, p->pc + ((int64_t)1 << 40) * (step->options->low != NULL), ns);
    if (step->memory[class_index * step->num_ranks + rank].full_op == p->pc &&
        (start < step->full_ns || (start == step->full_ns && proc < step->full_proc))) {
        step->full_ns = start;
        step->full_proc = proc;
    }
    p->made_ns = usual;
    p->made_kind = op.kind;
    if (ns > usual) {
        p->excess_ns[0] += ns - usual;
        p->excess_ns[1] += ns - usual;
    }
    p->busy += ns;
    if (ns > 0) {
        if (p->first < 0)
            p->first = start;
        p->last = start + ns;
    }
    if (op.kind == OP_B || op.kind == OP_I || op.kind == OP_W) {
        p->backward_seen = true;
        p->backward_end = start + ns;
        if (op.kind != OP_W)
            p->backward_ns = usual;
    } else if ((op.kind == OP_F || op.kind == OP_Z) && op.microbatch != OP_WHOLE_BATCH) {
        p->forward_left--;
    }
    p->pc++;
    p->clock = p->marked = start + ns;
    if (p->clock > p->end)
        p->end = p->clock;
    *end_ns = p->clock;
    if (step->ops)
        step_record(step, proc, op, start, *end_ns);
    return start;
}

void step_copy(struct step *step, int proc, struct op op, int64_t now_ns)
{
    struct proc *p = &step->procs[proc];
    int class_index = step->workload->class_of_replica[proc / step->num_ranks];
    int64_t ns = workload_op_ns(step->workload, class_index, op);
    int64_t launched = launch_ns(step, p);
    int64_t start = op.kind == OP_C ? p->copy_in : p->copy_out;
    if (start < launched)
        start = launched;
    if (op.kind == OP_C) {
        p->gate = p->copy_in = start + ns;
    } else {
        if (start < now_ns)
            start = now_ns;
        p->copy_out = start + ns;
    }
    if (start + ns > p->end)
        p->end = start + ns;
    p->pc++;
    if (step->ops)
        step_record(step, proc, op, start, start + ns);
}

void step_woken(struct proc *p, bool grad, int64_t sent_ns, int64_t made_ns, int64_t excess_ns,
                uint8_t cause, int64_t now_ns)
{
    int64_t made = sent_ns < now_ns ? sent_ns : now_ns; /* waiting for the maker up to here */
    if (made > p->marked) {
        if (p->first < 0 || (grad && !p->backward_seen)) {
            mark_idle(p, IDLE_FILL, made);
        } else {
            int64_t wait = made - p->marked;
            int64_t slow = excess_ns < wait ? excess_ns : wait;
            mark_idle(p, IDLE_STRAGGLER, p->marked + slow);
            int64_t own = grad ? p->backward_ns : p->made_ns;
            int64_t longer = made_ns - own;
            wait = made - p->marked;
            if (longer > 0)
                mark_idle(p, IDLE_IMBALANCE, p->marked + (longer < wait ? longer : wait));
            mark_idle(p, grad && p->forward_left == 0 ? IDLE_DRAIN : (enum idle_cause)cause, made);
        }
    }
    mark_idle(p, IDLE_TRANSFER, now_ns);
    p->clock = now_ns;
}

void step_reduced(struct proc *p, int64_t from_ns, int64_t now_ns)
{
    mark_idle(p, IDLE_DRAIN, from_ns < now_ns ? from_ns : now_ns);
    mark_idle(p, IDLE_ALLREDUCE, now_ns);
    p->clock = now_ns;
}

void step_together(struct step *step, int proc, int64_t from_ns, int64_t now_ns)
{
    struct proc *p = &step->procs[proc];
    if (step->ops)
        step_record(step, proc, step->full->ranks[proc % step->num_ranks].ops[p->pc], from_ns,
                    now_ns);
    step_reduced(p, from_ns, now_ns);
    p->end = now_ns;
    p->pc++;
}

int step_tied_proc(const struct step *step, int replica, int end)
{
    const struct schedule *full = step->full;
    return replica * step->num_ranks + full->rank_of_stage[end * (full->num_stages - 1)];
}

bool step_last_backward(struct step *step, struct op op, int64_t start_ns, int64_t end_ns)
{
    const struct workload *w = step->workload;
    bool last = false;
    for (int b = w->first_bucket[op.stage]; b < w->first_bucket[op.stage + 1]; b++) {
        struct bucket_run *run = &step->buckets[b];
        int64_t ready =
            end_ns - (op.kind == OP_W ? w->buckets[b].lead_w_ns : w->buckets[b].lead_ns);
        if (ready < start_ns)
            ready = start_ns;
        if (ready > run->ready_ns)
            run->ready_ns = ready;
        last = ++run->num_ready == step->num_replicas;
    }
    return last;
}

enum status step_deadlock(const struct step *step, struct err *err)
{
    for (int i = 0; i < step->num_procs; i++) {
        const struct proc *p = &step->procs[i];
        if (p->state == PROC_DONE)
            continue;
        struct op op = step->full->ranks[i % step->num_ranks].ops[p->pc];
        enum status rc = err_set(err, ERR_INFEASIBLE,
                                 "deadlock: rank %d of replica %d waits for ever at op %lld, "
                                 "%s of stage %d, micro-batch %d",
                                 i % step->num_ranks, i / step->num_ranks, (long long)p->pc,
                                 op_kind_name((enum op_kind)op.kind), op.stage, op.microbatch);
        err_hint(err, "'elapse schedule --check FILE' names the order that cannot work");
        return rc;
    }
    return OK;
}
