#include "exec/change/slow_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every LOOK_STEPS steps the last SEEN_STEPS of them are looked at; on a device, where the times of
 * the ops have to be read back, the last one only. A rank is slow if SLOW_LOOKS times in a row its
 * passes take SLOW_RATIO times as long as its peers', and at least SLOW_NS a step more: the costs of
 * tiny layers and the jitter of short steps stay below both. It is no longer slow after as many
 * looks below. */
enum { LOOK_STEPS = 8, SEEN_STEPS = 4, SLOW_LOOKS = 2, SLOW_NS = 5000000 };
#define SLOW_RATIO 1.5

/* The passes of one rank in the steps of a look. */
struct look {
    int rank;
    int64_t took_ns, planned_ns;
};

/* Add the passes of the last step. */
static void look_at(const struct trainer *t, struct look *look)
{
    const struct train_plan *plan = &t->deployment.plan;
    const struct rank_ops *ops = &plan->full->ranks[t->deployment.place.rank];
    const struct op_time *times = runtime_times(t->deployment.runtime);
    const int class_index = plan->workload->class_of_replica[t->deployment.place.replica];
    for (int i = 0; i < ops->num_ops; i++) {
        const struct op op = ops->ops[i];
        if (op.kind != OP_F && op.kind != OP_B && op.kind != OP_I && op.kind != OP_W)
            continue;
        look->took_ns += times[i].end_ns - times[i].start_ns;
        look->planned_ns += workload_op_ns(plan->workload, class_index, op);
    }
}

static double quotient(const struct look *look)
{
    return look->planned_ns > 0 ? (double)look->took_ns / (double)look->planned_ns : 0;
}

static int by_quotient(const void *a, const void *b)
{
    const double x = quotient(a), y = quotient(b);
    return (x > y) - (x < y);
}

/* Rank 0: count how often in a row each rank was slow or was not, and say what has changed. The looks
 * are of num_steps steps. */
static void judge(struct trainer *t, struct look *looks, int num, int64_t num_steps)
{
    struct slow_ranks *slow = &t->slow;
    char text[200];
    qsort(looks, (size_t)num, sizeof *looks, by_quotient);
    const double usual = quotient(&looks[(num - 1) / 2]); /* the lower median */
    for (int i = 0; i < num && usual > 0; i++) {
        const struct look *look = &looks[i];
        const double ratio = quotient(look) / usual;
        const bool is = ratio >= SLOW_RATIO &&
                        (double)look->took_ns * (1 - 1 / ratio) >= (double)(SLOW_NS * num_steps);
        const bool was = slow->speeds[look->rank] < 1;
        slow->looks[look->rank] = is != was ? slow->looks[look->rank] + 1 : 0;
        slow->ratios[look->rank] =
            slow->looks[look->rank] == 1 ? ratio : (slow->ratios[look->rank] + ratio) / 2;
        if (slow->looks[look->rank] < SLOW_LOOKS)
            continue;
        slow->looks[look->rank] = 0;
        slow->speeds[look->rank] = is ? 1 / slow->ratios[look->rank] : 1;
        if (is)
            snprintf(
                text, sizeof text,
                "rank %d is slow: against the plan its passes take %.1f times as long as those "
                "of the others%s",
                look->rank, slow->ratios[look->rank],
                t->job->train.on_slow == ON_SLOW_REPLAN ? "; the next turn's plan weighs it" : "");
        else
            snprintf(text, sizeof text, "rank %d is as fast as the others again", look->rank);
        run_log_note(&t->log, text, stderr);
    }
}

static enum status make_room(struct slow_ranks *slow, int num_ranks, struct err *err)
{
    if (slow->speeds)
        return OK;
    slow->speeds = calloc((size_t)num_ranks, sizeof *slow->speeds);
    slow->ratios = calloc((size_t)num_ranks, sizeof *slow->ratios);
    slow->weighed = calloc((size_t)num_ranks, sizeof *slow->weighed);
    slow->looks = calloc((size_t)num_ranks, sizeof *slow->looks);
    if (!slow->speeds || !slow->ratios || !slow->weighed || !slow->looks) {
        slow_ranks_clear(slow);
        return err_nomem(err);
    }
    for (int r = 0; r < num_ranks; r++)
        slow->speeds[r] = slow->weighed[r] = 1;
    slow->num = num_ranks;
    return OK;
}

enum status slow_ranks_look(struct trainer *t, struct err *err)
{
    const struct plan *plan = &t->deployment.plan.plan;
    void *all = NULL;
    int64_t *sizes = NULL;
    const int64_t at = t->progress.step % LOOK_STEPS;
    const int64_t seen = t->backend->host_memory ? SEEN_STEPS : 1;
    if (t->job->train.on_slow == ON_SLOW_IGNORE || plan->num_ranks * plan->num_pipelines < 2 ||
        (at != 0 && at <= LOOK_STEPS - seen))
        return OK;
    struct look look = {t->comm->rank, t->slow.took_ns, t->slow.planned_ns};
    look_at(t, &look);
    t->slow.took_ns = at == 0 ? 0 : look.took_ns;
    t->slow.planned_ns = at == 0 ? 0 : look.planned_ns;
    if (at != 0)
        return OK;
    enum status rc = comm_gather(t->deployment.place.active, &look, sizeof look, &all, &sizes, err);
    if (rc == OK && t->comm->rank == 0) {
        rc = make_room(&t->slow, t->comm->size, err);
        if (rc == OK)
            judge(t, all, plan->num_ranks * plan->num_pipelines, seen);
    }
    free(all);
    free(sizes);
    return rc;
}

bool slow_ranks_replan(const struct trainer *t)
{
    const struct slow_ranks *slow = &t->slow;
    return t->job->train.on_slow == ON_SLOW_REPLAN && slow->num > 0 &&
           memcmp(slow->speeds, slow->weighed, (size_t)slow->num * sizeof *slow->speeds) != 0;
}

void slow_ranks_weighed(struct trainer *t)
{
    if (t->slow.num > 0)
        memcpy(t->slow.weighed, t->slow.speeds, (size_t)t->slow.num * sizeof *t->slow.speeds);
}

void slow_ranks_clear(struct slow_ranks *slow)
{
    free(slow->speeds);
    free(slow->ratios);
    free(slow->weighed);
    free(slow->looks);
    *slow = (struct slow_ranks){0};
}
