#include "partition/search/turn.h"

#include <math.h>
#include <stddef.h>

bool turn_elastic(const struct job *job)
{
    return job->freeze.policy != FREEZE_NONE || job->elastic.num_stages > 0 ||
           job->train.on_slow == ON_SLOW_REPLAN;
}

int64_t turn_at(const struct job *job, int64_t step, int64_t epoch)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? step / every : epoch;
}

bool turn_begins(const struct job *job, int64_t step, int64_t position)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? step % every == 0 : position == 0;
}

int64_t turn_steps_left(const struct job *job, int64_t step)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? every - step % every : INT64_MAX;
}

/* The part of the present turn that is over. */
static double turn_done(const struct job *job, int64_t step, int64_t position, int64_t num_samples)
{
    const int64_t every = job->freeze.every_steps;
    return every > 0 ? (double)(step % every) / (double)every
                     : (double)position / (double)num_samples;
}

/* FreezeOut (Brock et al., 2017) lets the rate of each layer fall to 0 by this cosine over the
 * steps up to its freezing. Here these are the steps of one turn. */
double turn_anneal(const struct job *job, int64_t step, int64_t position, int64_t num_samples)
{
    const double done = turn_done(job, step, position, num_samples);
    return .5 * (1 + cos(done * 3.14159265358979323846));
}

double turn_ramp(const struct job *job, int64_t step, int64_t epoch, int64_t position,
                 int64_t num_samples)
{
    const double turns = (double)(turn_at(job, step, epoch) - job->freeze.warmup) +
                         turn_done(job, step, position, num_samples);
    return turns <= 0 ? 0 : turns >= RAMP_TURNS ? 1 : turns / RAMP_TURNS;
}

int turn_next_frozen(const struct job *job, const struct freeze *freeze, int64_t turn,
                     int64_t total_steps)
{
    const int64_t every = job->freeze.every_steps;
    int least, most;
    if (every > 0 ? (turn + 1) * every >= total_steps : turn + 1 >= job->train.epochs)
        return 0;
    freeze_bounds(freeze, (int)turn + 1, &least, &most);
    return least;
}

enum status turn_decide(struct freeze *freeze, const struct turn_facts *facts, int64_t turn,
                        int *num_frozen, char reason[160], struct err *err)
{
    static const struct freeze_history none = {0};
    const int64_t before = turn - 1;
    const bool known = facts->norms && turn > 0 && before < facts->num_norms;
    freeze->history = facts->history ? facts->history : &none;
    freeze->row = freeze_history_at(facts->history, before);
    return freeze_decide(freeze, (int)turn,
                         known ? facts->norms + before * freeze->num_layers : NULL, num_frozen,
                         reason, err);
}

int turn_stages(const struct job *job, int64_t turn)
{
    const int64_t last = job->elastic.num_stages - 1;
    return last < 0 ? 0 : job->elastic.stages[turn < last ? turn : last];
}

bool turn_changes(const struct job *job, int64_t turn, int num_frozen, const struct plan *plan)
{
    const int stages = turn_stages(job, turn);
    return num_frozen != plan->num_frozen_layers || (stages > 0 && stages != plan->num_ranks);
}

struct cost turn_cost(const struct job *job, const struct cost *cost)
{
    struct cost own = *cost;
    if (job->cache.read_ns > 0)
        own.cache_read_ns = job->cache.read_ns;
    if (job->cache.write_ns > 0)
        own.cache_write_ns = job->cache.write_ns;
    return own;
}
