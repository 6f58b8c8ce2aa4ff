/* profiles/cost_internal.h - what the files behind profile_cost.h share: kind_cost.c makes curves
 * of a profile's rows, profile_cost.c answers from them, cost_choose.c chooses among profiles. */
#ifndef ELAPSE_PROFILES_COST_INTERNAL_H
#define ELAPSE_PROFILES_COST_INTERNAL_H

#include "profiles/profile_cost.h"

/* A measured cost is looked up by (device kind, layer key): a handful of each, searched in order.
 */
struct item_cost {
    struct layer_key key;
    struct curve passes[PASS_COUNT]; /* n = 0: costs nothing (an embedding's input gradient) */
    int64_t stash_bytes;             /* of one sample; -1: not measured */
    bool rest_unknown; /* PASS_BWD_REST was not measured: PASS_BWD_INPUT stands for it */
};

struct group_cost {
    bool net; /* between nodes */
    int ranks;
    struct curve bytes;
};

struct kind_cost {
    char kind[32], profile[64];
    struct item_cost *items; /* owned */
    int num_items;
    struct curve node_link, net_link; /* n = 0: not measured */
    struct group_cost *groups;        /* owned: all-reduce, by place and ranks */
    int num_groups;
    int64_t op_overhead_ns, cache_read_ns, cache_write_ns;
    double input_ns_per_sample, norm_ns_per_byte;
    struct curve near[PASS_BWD_WEIGHT + 1]; /* by distance in bytes: -1 times what a MiB of stash
                                               saves (curves rise); n = 0: not measured */
    double spread;
    bool bits_independent_of_row_count;
    bool
        dropout_unknown; /* measured with dropout only where it was asked for without, or without */
};

struct profile_cost {
    struct kind_cost *kinds; /* owned */
    int num_kinds;
};

/* What a profile says of the cluster's devices of its kind: by the way of measuring (threads, busy
 * ranks) nearest to the query that knows the whole model. note: "", or what does not quite fit.
 * ERR_INFEASIBLE: it lacks an item; *kind is cleared on any failure. */
enum status kind_cost_build(const struct profile *profile, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct kind_cost *kind, char note[256], struct err *err);
void kind_cost_clear(struct kind_cost *kind);

struct profile_cost *profile_cost_new(int num_kinds); /* room for them; NULL: no memory */
void profile_cost_free(struct profile_cost *ctx);     /* NULL: nothing */
/* Fill the rest of a handle from a complete ctx, which it owns from now on. */
void profile_cost_finish(struct cost_handle *handle, struct profile_cost *ctx, bool published);

#endif
