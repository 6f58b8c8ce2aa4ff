#include "partition/schedule_auto.h"

enum status schedule_auto_search(const struct workload *workload, const struct cluster *cluster,
                                 const struct cost *cost, const struct plan *plan,
                                 struct schedule *schedule, struct err *err)
{
    (void)cluster;
    (void)cost;
    (void)workload;
    return schedule_generate(plan->chunks == 1 ? SCHEDULE_1F1B : SCHEDULE_INTERLEAVED,
                             plan->num_ranks, plan->microbatches.count, plan->chunks, schedule,
                             err);
}

enum status schedule_auto_uniform(int num_ranks, int num_microbatches, int chunks,
                                  struct schedule *schedule, struct err *err)
{
    return schedule_generate(chunks == 1 ? SCHEDULE_1F1B : SCHEDULE_INTERLEAVED, num_ranks,
                             num_microbatches, chunks, schedule, err);
}
