/* How long the ops of a step take, with jitter and spread, when they start on their device, and the
 * account of it. Both ways to run a step (direct_run.c, event_run.c) start their ops here. Read
 * step_start_op() first. */
#include "sim/step/step.h"

#include "partition/base/units.h"

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

/* The time of the op at pc of a proc, by a workload of the step. */
static int64_t usual_ns(const struct step *step, const struct workload *w, int proc, int64_t pc)
{
    const struct proc *p = &step->procs[proc];
    const int class_index = step->workload->class_of_replica[p->replica];
    const struct op *op = &step->full->ranks[p->rank].ops[pc];
    if (op->kind <= OP_B && (op->arg & OP_OVERLAPPED)) {
        const struct op *f = op->kind == OP_F ? op : op - 1;
        int64_t forward_ns, ns = workload_pair_ns(w, class_index, f[0], f[1], &forward_ns);
        return op == f ? forward_ns : ns - forward_ns;
    }
    return workload_op_ns(w, class_index, *op);
}

/* A draw from the spread of the costs around the median ns. */
static int64_t spread_draw(const struct step *step, int proc, int64_t pc, int64_t ns)
{
    int64_t draw = normal_draw(step, proc, pc);
    const struct workload *side = draw < 0 ? step->options->low : step->options->high;
    int64_t away = usual_ns(step, side, proc, pc) - ns;
    if ((draw < 0) != (away < 0))
        return ns; /* percentiles on the wrong side of the median: no spread there */
    double got =
        (double)ns + (double)away * (double)(draw < 0 ? -draw : draw) / (65536.0 * NORMAL_P90);
    return got > 0 ? (int64_t)(got + 0.5) : 0;
}

/* The host launches the next op of a device: when that has ended. */
static int64_t launch_ns(const struct step *step, struct proc *p)
{
    return step->async_host ? ++p->launches * step->cluster->host_op_ns : 0;
}

static bool same_op(struct op a, struct op b)
{
    return a.kind == b.kind && a.microbatch == b.microbatch && a.stage == b.stage;
}

/* Account for a compute op that runs from start_ns to end_ns. cost_ns is its time in the workload.
 * The wait before it is counted as transfer while a cache read or a blocking send lasts, and then as
 * host time. */
static inline void computed(struct step *step, int proc, struct op op, int64_t cost_ns,
                            int64_t start_ns, int64_t end_ns)
{
    struct proc *p = &step->procs[proc];
    int64_t ns = end_ns - start_ns, usual = cost_ns;
    step_mark_idle(p, IDLE_TRANSFER, p->gate > p->held ? p->gate : p->held);
    p->gate = p->held = 0;
    step_mark_idle(p, IDLE_HOST, start_ns);
    if (step->slow) {
        const struct device *device = &step->cluster->devices[step->plan->device[proc]];
        if (device->speed < 1)
            usual = (int64_t)((double)cost_ns * device->speed);
    }
    if (same_op(op, p->full) &&
        (start_ns < step->full_ns || (start_ns == step->full_ns && proc < step->full_proc))) {
        step->full_ns = start_ns;
        step->full_proc = proc;
    }
    p->made_ns = usual;
    if (ns > usual) {
        p->excess_ns[0] += ns - usual;
        p->excess_ns[1] += ns - usual;
    }
    p->busy += ns;
    if (ns > 0) {
        if (p->first < 0)
            p->first = start_ns;
        p->last = end_ns;
    }
    if (op.kind == OP_B || op.kind == OP_I || op.kind == OP_W) {
        p->backward_seen = true;
        p->backward_end = end_ns;
        if (op.kind != OP_W)
            p->backward_ns = usual;
    } else if ((op.kind == OP_F || op.kind == OP_Z) && op.microbatch != OP_WHOLE_BATCH) {
        p->forward_left--;
    }
    p->marked = end_ns;
    if (end_ns > p->end)
        p->end = end_ns;
    if (step->ops)
        step_record(step, proc, op, start_ns, end_ns);
}

/* Account for a C or P on its copy engine. */
static void copied(struct step *step, int proc, struct op op, int64_t start_ns, int64_t end_ns)
{
    struct proc *p = &step->procs[proc];
    if (op.kind == OP_C)
        p->gate = end_ns;
    if (end_ns > p->end)
        p->end = end_ns;
    if (step->ops)
        step_record(step, proc, op, start_ns, end_ns);
}

void step_start_op(struct step *step, int proc, struct op op, int64_t now_ns, int64_t *start_ns,
                   int64_t *end_ns)
{
    struct proc *p = &step->procs[proc];
    const int64_t launched = launch_ns(step, p);
    const int64_t cost = usual_ns(step, step->workload, proc, p->pc);
    int64_t start = now_ns > p->gate ? now_ns : p->gate, ns = cost;
    start = start > launched ? start : launched;
    if (step->options->low)
        ns = spread_draw(step, proc, p->pc, ns);
    if (step->options->jitter > 0) /* another draw than the spread's */
        ns = jittered(step, proc, p->pc + ((int64_t)1 << 40) * (step->options->low != NULL), ns);
    computed(step, proc, op, cost, start, start + ns);
    p->pc++;
    *start_ns = start;
    *end_ns = start + ns;
}

void step_start_copy(struct step *step, int proc, struct op op, int64_t now_ns)
{
    struct proc *p = &step->procs[proc];
    const int class_index = step->workload->class_of_replica[p->replica];
    const int64_t ns = workload_op_ns(step->workload, class_index, op);
    int64_t start = launch_ns(step, p);
    int64_t *engine = op.kind == OP_C ? &p->copy_in : &p->copy_out;
    start = start > *engine ? start : *engine;
    if (op.kind == OP_P && start < now_ns)
        start = now_ns;
    *engine = start + ns;
    copied(step, proc, op, start, start + ns);
}
