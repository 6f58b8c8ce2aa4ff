#include "exec/step/runtime_state.h"

#include <stdlib.h>

#include "partition/base/units.h"

void *runtime_new_zeroed(struct runtime *rt, int64_t count, size_t size)
{
    int64_t bytes;
    if (mul_ok(count, (int64_t)size, &bytes))
        rt->bytes += bytes;
    return arrays_new(&rt->arrays, (size_t)count, size);
}

bool runtime_not_finite(const struct runtime *rt)
{
    return rt->not_finite;
}

void runtime_on_eval(struct runtime *rt, runtime_eval_hook hook, void *ctx)
{
    rt->on_eval = hook;
    rt->on_eval_ctx = ctx;
}

const double *runtime_item_sumsq(const struct runtime *rt)
{
    return rt->have_norm ? rt->item_sumsq : NULL;
}

int64_t runtime_bytes(const struct runtime *rt)
{
    return rt->bytes;
}
