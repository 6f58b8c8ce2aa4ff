#include "partition/step/framework_range.h"

#include <math.h>
#include <stddef.h>

#include "partition/model/framework.h"
#include "partition/step/lower.h"
#include "partition/step/schedule_time.h"

const char framework_range_taken[] = "megatron-te's kernels, without its overlap and memory";

static bool is_opaque(const struct model *model)
{
    return model->family == FAMILY_COMPOSED || !model_family_traits(model->family)->first_preset;
}

/* transformers' Trainer has replicas only. */
static bool runs(enum framework_kind kind, const struct plan *plan)
{
    const struct layout *layout = &plan->layout;
    return framework_of(kind) && framework_of(kind)->likely &&
           (kind != FRAMEWORK_HF_EAGER ||
            (plan->num_ranks == 1 && layout->tensor <= 1 && layout_expert(layout) < 2 &&
             layout_context(layout) < 2));
}

static enum status time_of(const struct setting *setting, const struct plan *plan, int64_t *ns,
                           struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct step_time time = {0};
    enum status rc = plan_lower_to_simulate(setting, plan, &workload, &full, err);
    if (rc == OK)
        rc = schedule_time(&full, &workload, plan, &time, err);
    *ns = time.step_ns;
    step_time_clear(&time);
    schedule_clear(&full);
    workload_clear(&workload);
    return rc;
}

static void insert(struct framework_range *range, const char *name, int64_t step_ns)
{
    int at = range->count++;
    for (; at > 0 && range->likely[at - 1].step_ns > step_ns; at--)
        range->likely[at] = range->likely[at - 1];
    range->likely[at].name = name;
    range->likely[at].step_ns = step_ns;
}

struct framework_range framework_range_of_none(const struct setting *setting)
{
    return (struct framework_range){.unnamed = !setting->model->framework &&
                                               !is_opaque(setting->model) &&
                                               setting->cost->source == COST_KERNELS};
}

enum status framework_range_find(const struct setting *setting, const struct plan *plan,
                                 int64_t step_ns, struct framework_range *range, struct err *err)
{
    const struct model *model = setting->model;
    int64_t own;
    *range = framework_range_of_none(setting);
    if (!range->unnamed || step_ns <= 0)
        return OK;
    enum status rc = time_of(setting, plan, &own, err);
    for (int k = 0; k < FRAMEWORK_KIND_COUNT && rc == OK && own > 0; k++) {
        const struct model other = model_launched_by(model, (enum framework_kind)k);
        const struct setting asked = {&other, setting->cluster, setting->cost};
        int64_t ns;
        if (!runs((enum framework_kind)k, plan) || range->count == FRAMEWORK_RANGE_MAX)
            continue;
        rc = time_of(&asked, plan, &ns, err);
        if (rc == OK)
            insert(range, framework_kind_names[k],
                   (int64_t)llround((double)step_ns * ((double)ns / (double)own)));
        rc = rc == ERR_INFEASIBLE ? OK : rc;
    }
    return rc;
}
