/* The buckets of gradients that replicas sum, and the gradient norm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/framework.h"
#include "partition/step/stage_memo.h"
#include "partition/step/workload_build.h"

/* The last backward over an item, in parts, on the current device; all-to-alls take `exchanged`. */
static enum status backward_ns(struct builder *b, int item, int64_t exchanged, int64_t *input,
                               int64_t *weight)
{
    const int64_t samples = b->plan->microbatches.last_size;
    enum status rc = builder_item_ns(b, item, builder_input_pass(b, item), samples, input);
    int64_t ns[2] = {0, 0};
    THEN(builder_exchanges(b, item, samples, exchanged, ns));
    *input = add_saturated(*input, ns[1]);
    return rc == OK ? builder_item_ns(b, item, PASS_BWD_WEIGHT, samples, weight) : rc;
}

/* Cut the gradients of a stage into buckets, in the order in which its last backward completes
 * them: from its last item down. A bucket closes when it holds bucket_bytes; items are not divided.
 * Megatron-LM divides those of the first stage only, because the sums of the others are not the last to end
 * (distributed_data_parallel.py). */
static enum status stage_buckets(struct builder *b, int s)
{
    struct workload *w = &b->got;
    const bool one = s > 0 && b->model->framework && b->model->framework->bucket_params > 0;
    const int64_t limit = one ? 0 : b->plan->bucket_bytes;
    const int end = b->plan->first_item[s + 1], active = builder_first_active(b, s);
    const int before = w->num_buckets;
    int64_t held = 0, done = 0, done_weight = 0, total = 0, total_weight = 0;
    b->rank = w->rank_of_stage[s];
    b->device = builder_device(b, 0, b->rank);
    b->distance = w->distances ? w->distances[s] : STASH_FAR;
    int64_t exchanged;
    enum status rc = builder_experts_ns(b, b->plan->microbatches.last_size, &exchanged);
    if (rc != OK)
        return rc;
    for (int i = end - 1; i >= active; i--) {
        const bool head = i == b->model->num_items - 1;
        const bool once = builder_one_table(b) && w->rank_of_stage[0] == b->rank;
        const int64_t tied = head && !once ? builder_tied_params(b) : 0;
        int64_t input = 0, weight = 0, bytes = 0, table = 0;
        /* Without a limit there is one bucket, and on a host's processor there are no leads. */
        if (limit > 0 && !device_is_host(b->device)) {
            rc = backward_ns(b, i, exchanged, &input, &weight);
            if (rc != OK)
                return rc;
        }
        total += input + weight;
        total_weight += weight;
        if (!mul_ok(tied, model_grad_bytes(b->model), &table) ||
            !builder_reduced_bytes(b, i, &bytes) || !add_to(&bytes, table) || !add_to(&held, bytes))
            return builder_overflow(b, "parameters");
        if (bytes > 0) {
            done = total;
            done_weight = total_weight;
        }
        const bool closes = limit > 0 && held >= limit && w->num_buckets - before < UINT8_MAX;
        if (held > 0 && (closes || i == active)) {
            /* For now the leads are how long after the start the bucket is complete. */
            w->buckets[w->num_buckets++] = (struct bucket){.stage = s,
                                                           .first_item = i,
                                                           .bytes = held,
                                                           .lead_ns = done,
                                                           .lead_w_ns = done_weight};
            held = 0;
        }
    }
    for (int i = before; i < w->num_buckets; i++) {
        w->buckets[i].lead_ns = total - w->buckets[i].lead_ns;
        w->buckets[i].lead_w_ns = total_weight - w->buckets[i].lead_w_ns;
    }
    return OK;
}

/* The buckets of a stage, from an earlier cut of the plan if there is one. */
static enum status find_buckets(struct builder *b, int s)
{
    struct workload *w = &b->got;
    if (!w->memo || w->distances)
        return stage_buckets(b, s);
    struct stage_memo_entry *entry = stage_memo_find(w->memo, b->plan, s, 0);
    if (entry->buckets_known) {
        memcpy(w->buckets + w->num_buckets, entry->buckets,
               (size_t)entry->num_buckets * sizeof *entry->buckets);
        w->num_buckets += entry->num_buckets;
        return OK;
    }
    const int before = w->num_buckets;
    const enum status rc = stage_buckets(b, s);
    return rc == OK && !stage_memo_keep_buckets(entry, w->buckets + before, w->num_buckets - before)
               ? err_nomem(b->err)
               : rc;
}

/* What the last backward of a stage leaves out, it leaves out of all items alike (time-9), so
 * gradients are complete in proportion earlier before its end. */
static void shorten_leads(struct workload *w)
{
    for (int i = 0; i < w->num_buckets && w->shares.share; i++) {
        struct bucket *bucket = &w->buckets[i];
        const int64_t out =
            workload_left_out(w, bucket->stage, w->num_microbatches - 1, bucket->lead_w_ns);
        bucket->lead_ns -= out;
        bucket->lead_w_ns -= out;
    }
}

/* Flag all-reduces of sizes that were not measured. Those inside a node were. */
static void flag_buckets(struct builder *b)
{
    struct workload *w = &b->got;
    for (int i = 0; i < w->num_buckets; i++) {
        const int rank = w->rank_of_stage[w->buckets[i].stage];
        if (w->sites->ranks[rank].together &&
            builder_outside(b->cost->allreduce_bytes, w->buckets[i].bytes))
            w->extrapolated = true;
    }
}

enum status workload_build_buckets(struct builder *b)
{
    struct workload *w = &b->got;
    w->first_bucket = calloc((size_t)w->num_stages + 1, sizeof(int));
    w->buckets = calloc((size_t)b->model->num_items + 1, sizeof *w->buckets);
    if (!w->first_bucket || !w->buckets)
        return err_nomem(b->err);
    for (int s = 0; s < w->num_stages; s++) {
        w->first_bucket[s] = w->num_buckets;
        /* Divided gradients are reduced within each backward (workload_layout.c). */
        if (w->num_pipelines > 1 && w->stages[s].weight_bytes > 0 &&
            b->plan->layout.shard < SHARD_GRADIENTS) {
            enum status rc = find_buckets(b, s);
            if (rc != OK)
                return rc;
        }
    }
    w->first_bucket[w->num_stages] = w->num_buckets;
    flag_buckets(b);
    shorten_leads(w);
    return OK;
}

/* The longest time that a rank takes for the squares of its gradients. */
static enum status squares_ns(struct builder *b, double *ns)
{
    const struct plan *plan = b->plan;
    double most = 0, *bytes = calloc((size_t)plan->num_ranks, sizeof *bytes);
    if (!bytes)
        return err_nomem(b->err);
    for (int s = 0; s < plan->num_stages; s++) {
        for (int i = builder_first_active(b, s); i < plan->first_item[s + 1]; i++) {
            bytes[b->got.rank_of_stage[s]] +=
                (double)b->model->items[i].params * b->model->param_bytes;
        }
    }
    for (int k = 0; k < plan->num_ranks; k++)
        most = fmax(most, bytes[k] / b->got.sites->ranks[k].least_speed);
    free(bytes);
    *ns = most * b->cost->norm_ns_per_byte;
    return OK;
}

enum status workload_build_norm(struct builder *b)
{
    const struct plan *plan = b->plan;
    const int64_t n = (int64_t)plan->num_ranks * plan->num_pipelines;
    const int64_t latency = b->got.sites->one_node  ? b->cluster->link_latency_ns
                            : b->got.sites->one_pod ? b->cluster->uplink_latency_ns
                                                    : b->cluster->pod_latency_ns;
    int64_t tree = 0;
    double squares = 0;
    int depth = 0;
    while (((int64_t)1 << depth) < n)
        depth++;
    const enum status rc = squares_ns(b, &squares);
    if (rc != OK)
        return rc;
    if (!mul_ok(2 * depth, latency, &tree) || tree > STEP_NS_MAX || squares > (double)STEP_NS_MAX)
        return builder_overflow(b, "times of the gradient norm");
    b->got.norm_ns = tree + llround(squares);
    return OK;
}
