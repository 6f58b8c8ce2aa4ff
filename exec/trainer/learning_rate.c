#include "exec/trainer/learning_rate.h"

#include <math.h>

double learning_rate(const struct job *job, int64_t step, int64_t total_steps)
{
    double lr = job->train.optimizer.lr, warmup = (double)job->train.warmup_steps, done;
    if (step < job->train.warmup_steps)
        return lr * (double)(step + 1) / warmup;
    if (job->train.lr_schedule == LR_CONSTANT || total_steps <= job->train.warmup_steps)
        return lr;
    done = ((double)step - warmup) / ((double)total_steps - warmup);
    if (job->train.lr_schedule == LR_LINEAR)
        return lr * (1 - done);
    return lr * .5 * (1 + cos(done * 3.14159265358979323846));
}
