/* profiles/cost/cost_internal.h - the types shared by the files that implement profile_cost.h.
 * kind_cost.c makes curves of a profile's rows, profile_cost.c answers from the curves, and
 * cost_choose.c chooses a profile. */
#pragma once

#include "profiles/cost/profile_cost.h"

/* Measured costs of one layer key. There are few kinds and keys, so lookups search them in order.
 */
struct item_cost {
    struct layer_key key;
    struct curve passes[PASS_COUNT]; /* n = 0: takes no time (an embedding's input gradient) */
    int64_t stash_bytes;             /* per sample; -1: not measured */
    bool rest_unknown; /* PASS_BWD_REST was not measured; its curve is that of PASS_BWD_INPUT */
};

struct group_cost {
    bool net; /* true: between nodes; false: inside a node */
    int ranks;
    struct curve bytes;
};

struct kind_cost {
    char kind[32], profile[64];
    struct item_cost *items; /* owned */
    int num_items;
    struct curve node_link, net_link; /* n = 0: not measured */
    struct group_cost *groups;        /* owned: all-reduces by place and number of ranks */
    int num_groups;
    int64_t op_overhead_ns, cache_read_ns, cache_write_ns;
    double input_ns_per_sample, norm_ns_per_byte, copy_in_ns_per_byte, copy_out_ns_per_byte;
    struct curve near[PASS_BWD_WEIGHT + 1]; /* -1 times the time saved per MiB of stash, by distance
                                               in bytes (negated, because a curve must not fall);
                                               n = 0: not measured */
    double spread;
    bool bits_independent_of_row_count;
    /* rows with (or without) dropout were asked for, but only the others exist */
    bool dropout_unknown;
};

struct profile_cost {
    struct kind_cost *kinds; /* owned */
    int num_kinds;
};

/* Build the costs of the cluster's devices of the profile's kind. Of the profile's ways of
 * measuring (backend, threads, busy ranks) that have every item of the model, it uses the nearest
 * to the query. What is said of the profile and of how it does not fit the query is added to note.
 * ERR_INFEASIBLE: the profile lacks an item. *kind is cleared on any failure. */
enum status kind_cost_build(const struct profile *profile, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct kind_cost *kind, char note[COST_NOTE_BYTES], struct err *err);
void kind_cost_clear(struct kind_cost *kind);

/* Append to a note, after what it says. */
void cost_note_add(char note[COST_NOTE_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct profile_cost *
profile_cost_new(int num_kinds);                  /* with space for num_kinds; NULL: no memory */
void profile_cost_free(struct profile_cost *ctx); /* ctx may be NULL */
/* Fill the rest of a handle from a complete ctx. The handle owns ctx from then on. */
void profile_cost_finish(struct cost_handle *handle, struct profile_cost *ctx, bool published);
