/* How long the ops of a step take, with jitter and spread, and when they start on their device. Both
 * ways to run a step (direct_run.c, event_run.c) start their ops here. Read step_start_op() first. */
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
    step_computed(step, proc, op, cost, start, start + ns);
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
    step_copied(step, proc, op, start, start + ns);
}
