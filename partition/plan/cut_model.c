#include "partition/plan/cut_model.h"

#include "partition/plan/autodp.h"

enum status cut_times(const struct setting *setting, const struct cut_device *on, int first_item,
                      struct cut_time *times, bool *extrapolated, struct err *err)
{
    const struct cost *cost = setting->cost;
    const bool updates = on->optim_states >= 0;
    for (int i = first_item; i < setting->model->num_items; i++) {
        int64_t ns[PASS_COUNT] = {0};
        for (int pass = 0; pass < (updates ? PASS_COUNT : PASS_FWD_NOGRAD); pass++) {
            const int64_t samples = pass == PASS_UPDATE ? on->optim_states : on->samples;
            enum status rc = cost->item_ns(cost->ctx, setting->model, i, (enum pass)pass, samples,
                                           on->device, &ns[pass], extrapolated, err);
            if (rc != OK)
                return rc;
            ns[pass] = device_ns(on->device, ns[pass]);
        }
        times[i - first_item] = (struct cut_time){.fwd_ns = ns[PASS_FWD],
                                                  .bwd_input_ns = ns[PASS_BWD_INPUT],
                                                  .bwd_weight_ns = ns[PASS_BWD_WEIGHT],
                                                  .update_ns = ns[PASS_UPDATE],
                                                  .bwd_rest_ns = ns[PASS_BWD_REST],
                                                  .fwd_nograd_ns = ns[PASS_FWD_NOGRAD]};
    }
    return OK;
}
