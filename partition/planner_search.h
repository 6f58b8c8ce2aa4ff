/* partition/planner_search.h - the state of a search, shared by the planner's files and nobody
 * else. */
#ifndef ELAPSE_PARTITION_PLANNER_SEARCH_H
#define ELAPSE_PARTITION_PLANNER_SEARCH_H

#include "partition/planner.h"
#include "partition/planner_bound.h"
#include "partition/autodp.h"

#ifdef __cplusplus
extern "C" {
#endif

enum level { LEVEL_FAMILY, LEVEL_CHEAP, LEVEL_AVERAGE, LEVEL_TIGHT };

struct node {
    double key; /* samples per second that the bound allows */
    int64_t order;
    enum level level;
    int num_ranks, num_replicas, chunks;
    enum rank_map map;
    int64_t batch;
    struct microbatches microbatches;
    enum schedule_kind schedule;
    enum recompute_mode recompute;
    enum frozen_placement frozen;
    double fill_ns; /* of a step, besides: what filling the cache takes on average */
    int64_t bound_ns;
    int *first_item; /* owned; LEVEL_TIGHT */
};

struct judged {
    struct node node;    /* owns first_item: the best cut so far */
    int64_t step_ns;     /* as of planner.h; 0: does not fit the memory, or was not timed */
    int64_t unshared_ns; /* schedule_time()'s: what counts among equal steps */
    int64_t asked_ns;    /* the judge's word on that cut; 0: not asked, -1: it does not fit */
};

/* What bound_family_init() found, kept while the search goes from family to family and back. */
#define FAMILY_SLOTS 1024
struct family_slot {
    int num_ranks, num_replicas;
    enum rank_map map;
    struct bound_family family; /* owned */
};

struct search {
    const struct planner_problem *problem;
    const struct planner_options *options;
    struct bound_table table;
    struct node *heap; /* owned; nodes own their cuts */
    int64_t heap_size, heap_room, order;
    struct judged *judged; /* owned */
    int num_judged, judged_room;
    struct planner_length *lengths; /* owned, by K - 1 */
    int num_lengths;
    int best;    /* index into judged; -1: none */
    bool asking; /* the judge's word counts: best is the best of those asked */
    int64_t asked_ops;
    int64_t until; /* while asking, no more than these ops are timed in all */
    int64_t candidates, evaluated;
    int64_t ops;                    /* in the lists of those evaluated */
    int *cut;                       /* owned: scratch, num_items + 1 */
    int64_t *over;                  /* owned: by rank, of the last cut judged */
    int64_t need_bytes, have_bytes; /* of the cut that is least too large: a rank's peak, or bound
                                       of it, and the rank's memory; 0: none was */
    struct family_slot *families;   /* owned, FAMILY_SLOTS: a direct-mapped cache */
    struct microbatches *counts;    /* owned: planner_microbatches() of the last (batch, K) */
    int num_counts, counts_ranks;
    int64_t counts_batch;
    struct err refused; /* of the first candidate whose schedule does not exist, why */
    struct err *err;
};

/* Allocate what a search needs; search_clear() in any case. */
enum status search_init(struct search *search, const struct planner_problem *problem,
                        const struct planner_options *options, struct err *err);
void search_clear(struct search *search);

/* Put every family (K, R, rank map) on the heap, counting candidates (planner_candidates.c); then
 * search best first. */
enum status search_seed(struct search *search);
enum status search_run(struct search *search);

/* A node onto the heap, which takes over first_item, also on failure. */
enum status search_push(struct search *search, struct node node);

/* Every candidate of a family, with its cheap bound; with count_only they are only counted
 * (planner_candidates.c). */
enum status search_open(struct search *search, const struct node *family, bool count_only);

/* The fate of the node's pipeline length. */
static inline struct planner_length *search_length(struct search *search, const struct node *node)
{
    return &search->lengths[node->num_ranks - 1];
}

/* Better cuts for the candidates that could still win (planner_cuts.c). */
enum status search_improve(struct search *search);
/* The same for one that the judge is to be asked about: cuts that could not win beside a plan that
 * the judge has found slower since. */
enum status search_recut(struct search *search, int index);

/* The one candidate of the published greedy rules, judged (planner_greedy.c). */
enum status search_greedy(struct search *search);

/* Samples per second of a node whose step takes step_ns, and fill_ns. */
double node_rate(const struct node *node, int64_t step_ns);

/* The best plan's rate; 0: there is none yet. */
double search_beat(const struct search *search);

/* The longest step with which node is faster than that, at least 0; INT64_MAX / 4 when there is
 * none. */
int64_t search_limit(const struct search *search, const struct node *node);

/* A plan without its cut; device is the caller's storage and may be NULL. */
struct plan search_bare_plan(const struct search *search, const struct node *node, int *device);

/* Lower one plan, weigh it, time it; what bound_cut_fits() rules out is not lowered. *step_ns is 0
 * when it does not fit; search->over[k] is by how many bytes rank k is too large. */
enum status search_judge_cut(struct search *search, const struct node *node,
                             const struct bound_shape *shape, const int *first_item,
                             int64_t *step_ns, int64_t *unshared_ns);

/* Time of a judged candidate's step, as far as it is known. */
static inline int64_t judged_ns(const struct judged *judged)
{
    return judged->asked_ns > 0 ? judged->asked_ns : judged->step_ns;
}

/* Put the judged candidates in order, the fastest first, those that do not fit last. */
void search_sort(struct search *search);

/* A judged candidate that fits: the best so far? */
void search_note_best(struct search *search, int index);

/* The node's bounds; bound_shape_clear() them. */
enum status search_shape(struct search *search, const struct node *node, struct bound_shape *shape);

bool search_allows(const struct planner_options *options, enum schedule_kind kind);
int search_items_in_cut(const struct search *search, enum frozen_placement placement);
/* The count that is asked for of a pipeline with this batch; AUTO; INT_MAX: none that will do. */
int search_microbatches(const struct search *search, int64_t batch);

/* node->fill_ns of a node that reads a cache; *exists: it can be filled. device is its map. */
enum status search_fill(const struct search *search, const int *device, struct node *node,
                        bool *exists);

#ifdef __cplusplus
}
#endif
#endif
