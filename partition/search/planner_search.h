/* partition/search/planner_search.h - the state of a search. Only the planner's own files include
 * it. */
#pragma once

#include "partition/search/planner.h"
#include "partition/search/planner_bound.h"
#include "partition/search/rank_places.h"
#include "partition/step/schedule_time.h"
#include "partition/step/workload.h"

/* The state of a node: a family, or a candidate with a bound of this kind. */
enum level { LEVEL_FAMILY, LEVEL_CHEAP, LEVEL_AVERAGE, LEVEL_TIGHT };

/* An entry of the heap. LEVEL_FAMILY uses only key, order, K, R, place and batch. */
struct node {
    double key; /* samples per second that the bound allows */
    int64_t order;
    enum level level;
    int num_ranks, num_pipelines, chunks;
    int width; /* pipelines with samples of their own: num_pipelines / C */
    int place; /* rank_places_map() */
    int64_t batch;
    struct microbatches microbatches;
    enum schedule_kind schedule;
    /* schedules (1 << kind) that the node stands for as well, see planner_candidates.c; 0 with
     * LEVEL_TIGHT */
    unsigned others;
    enum recompute_mode recompute;
    enum frozen_placement frozen;
    double fill_ns;   /* cost of filling the cache, per step on average; not in bound_ns */
    int64_t bound_ns; /* no cut of the node has a shorter step */
    int *first_item;  /* owned; the cut, with LEVEL_TIGHT; otherwise NULL */
};

/* A candidate that was taken from the heap at LEVEL_TIGHT. */
struct judged {
    struct node node;    /* owns first_item: the best cut so far */
    int64_t step_ns;     /* as in planner.h; 0: it does not fit the memory, or was not timed */
    int64_t unshared_ns; /* schedule_time(); decides between equal step_ns */
    double share;        /* as memory_share in struct planner_progress */
    int64_t asked_ns;    /* the judge's step time of that cut; 0: not asked, -1: it does not fit */
    bool recut;          /* the judge chose the cut */
    bool varied;         /* search_vary() has begun with it */
};

/* A cached result of bound_family_init(). The search returns to a family many times. */
#define FAMILY_SLOTS 1024
struct family_slot {
    int num_ranks, num_pipelines;
    int place;
    struct bound_family family; /* owned */
};

/* The family whose cut was judged last: cuts of one family mostly follow each other. */
struct judged_family {
    int num_ranks, num_pipelines, place;
    int *device;         /* owned: search_map() */
    double uplink_share; /* traffic_uplink_share() */
    struct sites *sites; /* owned; NULL: no family yet */
};

/* State shared by the searches of all layouts. */
struct search_common {
    int64_t candidates, evaluated; /* of all layouts but the current one */
    double rest_rate;              /* no plan of those makes more samples per second */
    double floor_share;            /* memory_share of the best plan of those */
    bool stopped;                  /* the watch has ended the search */
    bool improved_enough;          /* the watch has ended the search for better cuts */
    bool judged_enough;            /* the watch has ended the timing by the judge */
    bool explained;                /* one layout has had more candidates judged than can win */
};

static inline bool search_is_over(const struct search_common *common)
{
    return common->stopped || common->improved_enough || common->judged_enough;
}

/* With a judge, candidates whose bound is below this share of the best rate are dropped: links that
 * are shared rarely cost the best plan more. Where they do, the layout is searched once more. */
#define KEEP_SHARE 0.75

struct search {
    struct search_common *common; /* borrowed */
    const struct planner_problem *problem;
    const struct planner_options *options;
    struct bound_table table;
    struct rank_places *places; /* owned */
    struct mixed *mixed;        /* owned; NULL until search_mix() */
    struct node *heap;          /* owned; nodes own their cuts */
    int64_t heap_size, heap_room, order;
    struct judged *judged; /* owned */
    int num_judged;
    int64_t judged_room;
    struct planner_length *lengths; /* owned, by K - 1 */
    int num_lengths;
    int num_groups;      /* groups of devices, or devices, that ranks may be placed on */
    bool limited;        /* some device has a memory limit */
    int64_t most_bytes;  /* the largest memory of a device */
    double floor_rate;   /* samples per second of the best plan of another layout; 0: none */
    double keep_rate;    /* with a judge: keep candidates that may exceed this; 0: see KEEP_SHARE */
    double dropped_rate; /* with a judge: no candidate that was dropped exceeds this */
    double unseen_rate;  /* the watch ended search_seed(): search_ceiling(); else 0 */
    int best;            /* index into judged; -1: none */
    bool improving;      /* search_improve() is at work */
    bool asking;         /* ask_judge() has begun: `best` is the best by the judge's times */
    int64_t plain_best;  /* order of the best node without the judge; -1: none */
    int64_t asked_ops;   /* ops in the plans that the judge was asked about */
    int64_t until;       /* while asking, search_run() stops when `ops` exceeds this */
    int64_t candidates, evaluated; /* see struct planner_result */
    int64_t ops;                   /* ops in the lists of all cuts evaluated */
    int *cut;                      /* owned scratch, num_items + 1 entries */
    /* Owned: stages begin at block[0 .. num_blocks - 1]; block[num_blocks] is num_items, and
     * block_of[i] is the block of item i, num_items included. A block is an item, or with
     * options->target the items of a layer. */
    int *block, *block_of, num_blocks;
    int64_t *over; /* owned; by how many bytes each rank exceeded its memory in the last cut */
    double share;  /* memory_share of the last cut that was judged */
    /* The peak (or a bound of it) of the worst rank, and that rank's memory, for the cut that
     * exceeds the memory least. 0: no cut exceeded it. */
    int64_t need_bytes, have_bytes;
    struct judged_family judged_family;
    struct stage_memo *memo;      /* owned */
    struct search_chains *chains; /* owned */
    int64_t memo_order;           /* memo and chains are of cuts of the node of this order */
    struct family_slot
        *families; /* owned, FAMILY_SLOTS: a direct-mapped cache; NULL: no family yet */
    struct microbatches *counts; /* owned: planner_microbatches() of the last (batch, K) */
    int num_counts, counts_ranks;
    int64_t counts_batch;
    struct err refused; /* why the first schedule that could not be made was refused */
    struct err *err;
};

/* Allocate what a search needs. Call search_clear() afterwards, also on failure. ERR_NOMEM, or an
 * error of bound_table_init(). */
enum status search_init(struct search *search, struct search_common *common,
                        const struct planner_problem *problem,
                        const struct planner_options *options, struct err *err);
void search_clear(struct search *search);

/* planner_mixed.c. search_mix() makes search->mixed describe the replicas of a family.
 * search_mixed_bound() then bounds a step of the family's candidates with these micro-batches,
 * whatever their schedule and cut: items from `from` on run under `again`, and in the last
 * micro-batch under `again_last`. 0, which is no bound, if all devices are of one type or the family
 * is large. */
struct mixed;
enum status search_mix(struct search *search, const struct node *family);
enum status search_mixed_bound(struct search *search, const struct microbatches *microbatches,
                               enum bound_again again, enum bound_again again_last, int from,
                               double *bound_ns);
void search_mixed_free(struct mixed *mixed);

/* Begin the search of the problem's layout: check it and push its families. Call search_clear()
 * afterwards, also on failure. problem and options are borrowed until then. */
enum status search_begin(struct search *search, struct search_common *common,
                         const struct planner_problem *problem,
                         const struct planner_options *options, struct err *err);
/* Search for a plan that makes more than search->floor_rate samples per second. *result must be
 * zeroed; the caller clears it, also on failure. Without a plan, result->lengths say why, and
 * ERR_INFEASIBLE is returned. */
enum status search_end(struct search *search, struct planner_result *result,
                       struct planner_layout_fate *fate);

/* Whether the search, or the questions to the judge while search->asking, may go on. */
bool search_goes_on(struct search *search);

/* No plan of this search makes more samples per second, whether it has ended or not. */
double search_bound_rate(const struct search *search);

/* A way to divide a model that people configure by hand (planner_textbook.c). */
struct textbook {
    const char *name;
    int tensor;   /* T is the devices of a node over this; 0: one */
    bool experts; /* E: as many of a node's devices as divide the experts */
    bool context; /* C: the most that the search tries */
    enum shard_mode shard;
    bool group; /* G: the devices of a node */
};
const struct textbook *textbook_list(int *num);
/* Time the plans of the problem's layout that are in the textbook, and keep the fastest. The search
 * has passed search_open_bare(). */
enum status search_textbook(struct search *search);
/* Then vary the fastest one, as long as a variation is faster: other schedules, places and micro-batches, and
 * lengths and replicas next to its own. */
enum status search_vary(struct search *search);
enum status search_vary_one(struct search *search, int index);
static inline bool search_is_varied(const struct search *search)
{
    return search->best < 0 || search->judged[search->best].varied;
}
/* Time the best plan of another layout, which has one, with its place and cut. The groups of devices and the
 * items of both are alike. */
enum status search_adopt(struct search *search, const struct search *other);
/* Check the problem of a layout and prepare its search without any family. */
enum status search_open_bare(struct search *search, struct search_common *common,
                             const struct planner_problem *problem,
                             const struct planner_options *options, struct err *err);
/* Ask the judge about the fastest plan that search_textbook() kept, and if it refuses that one, about the
 * next. */
enum status search_ask_one(struct search *search);
/* Then look for a plan that the judge finds faster: about the fastest of them, variations of the best, and
 * other cuts, for as many ops as take it some tenths of a second. The judge has passed a plan. */
enum status search_ask_more(struct search *search);
/* The answer from what search_textbook() kept, of which the judge has passed a plan if there is a judge.
 * Like search_end() otherwise, but the bound says nothing of other plans. */
enum status search_answer(struct search *search, struct planner_result *result);
/* Keep a candidate that was timed at a cut, which is copied. ERR_NOMEM. */
enum status search_keep(struct search *search, struct node node, const int *first_item,
                        int64_t step_ns, int64_t unshared_ns);

/* Rules of the candidates (planner_candidates.c). search_counts() sets search->counts to the
 * micro-batch counts of a pipeline with this batch; they are kept until the next call. The others tell
 * whether a node may have its recompute mode, its micro-batches, or this many replicas: then *family
 * is set, but for its place. search_weights_fit(): weights and training state fit K devices. */
enum status search_counts(struct search *search, int64_t batch, int num_ranks);
bool search_allows_mode(const struct search *search, const struct node *node);
bool search_allows_count(const struct search *search, const struct node *node);
bool search_allows_replicas(const struct search *search, int num_ranks, int num_pipelines,
                            struct node *family);
bool search_weights_fit(const struct search *search, int num_ranks);
/* Schedules with equal chunks and places of stages and an equal form of backward. Their bounds
 * differ only in schedule_live(), and one of a group holds least on every stage. So a bound of that
 * one is a bound of them all, and only it is looked at until it may win. */
struct kind_group {
    enum schedule_kind kind;
    unsigned others; /* the rest of the group: 1 << kind */
    int chunks;
};
enum { KIND_GROUPS = 2 * (1 + 3 + 1) };
/* List the schedules for a pipeline of num_ranks with these blocks to cut, at most KIND_GROUPS groups; returns
 * how many they are. On one device all one-chunk schedules run the same ops, so only one of them is listed. */
int search_kinds(const struct search *search, int num_ranks, int blocks, struct kind_group *groups);
/* Set *rate to what no plan of the layout exceeds: the least work of a sample on all its devices. It costs
 * less than search_seed(), and says less. */
enum status search_ceiling(struct search *search, double *rate);
/* Where the frozen forward may run, the first choice. */
enum frozen_placement search_first_placement(const struct search *search);

/* search_seed() pushes every family (K, R, place) and counts all candidates
 * (planner_candidates.c). search_run() then searches best first. */
enum status search_seed(struct search *search);
enum status search_run(struct search *search);

/* The search has ended: enter the bounds of the nodes left on the heap into their lengths. */
void search_note_rest(struct search *search);

/* Before search_run(): whether the search holds one candidate. *only then becomes it, not timed, with
 * equally many blocks a stage as its cut; the caller frees its node.first_item. *one_cut: no other cut
 * exists. */
enum status search_only(struct search *search, struct judged *only, bool *one_cut, bool *found);

/* Make the plan of a judged candidate, without memory_bytes. */
enum status search_make_plan(const struct search *search, const struct judged *judged,
                             struct plan *out);

/* Push a node onto the heap. It takes over node.first_item, also on failure. ERR_NOMEM. */
enum status search_push(struct search *search, struct node node);

/* Push every candidate of a family with its cheap bound. With count_only candidates are counted and
 * not pushed (planner_candidates.c). */
enum status search_open(struct search *search, const struct node *family, bool count_only);

/* The entry of the node's pipeline length. */
static inline struct planner_length *search_length(struct search *search, const struct node *node)
{
    return &search->lengths[node->num_ranks - 1];
}

/* Whether a rule determines the cut, so that the search must not change it. */
static inline bool search_cut_given(const struct planner_options *options)
{
    return options->by_params || options->balancer != BALANCER_OPTIMAL ||
           (options->target && options->target->own_cut);
}

/* Move the stages of search->cut, which leaves no stage empty, to the nearest blocks. */
void search_snap(struct search *search, int num_stages);
/* Find better cuts for all candidates that could still win (planner_cuts.c). */
enum status search_improve(struct search *search);
/* Find better cuts for one candidate before the judge is asked about it. Some of its cuts may have
 * been left out because of a plan that the judge has since found slower. */
enum status search_recut(struct search *search, int index);

/* Find a better cut by the judge for a candidate that it was asked about, because links are shared:
 * plain ones, then all cuts if they are few, otherwise local moves, until the judge has seen `until` ops in all. */
enum status search_recut_shared(struct search *search, int index, int64_t until);
/* Try the cut of the best candidate on another one with as many stages: by the judge if it was asked
 * about that one. *better: the candidate has taken the cut. */
enum status search_take_cut(struct search *search, int index, bool *better);

/* Ask the judge about a candidate (planner.c), and take it for the best if the judge finds it so. */
enum status search_ask(struct search *search, struct judged *judged);
void search_note_asked(struct search *search, int index);

/* Judge the candidates of the greedy rules (planner_greedy.c). */
enum status search_greedy(struct search *search);

/* Write the devices of a node's family to device, num_ranks * num_pipelines entries. */
enum status search_map(const struct search *search, const struct node *node, int *device,
                       struct err *err);

/* Lower a plan of the search, whose devices have these sites; memo holds costs of its other cuts, or
 * is NULL. With RECOMPUTE_LAYER plan->recompute_layers, which the caller owns, is set to what the
 * options ask or the memory of the plan's devices needs. */
enum status search_lower(const struct search *search, struct plan *plan, const struct sites *sites,
                         struct stage_memo *memo, struct workload *workload, struct schedule *full,
                         struct err *err);

/* Make search->judged_family that of a node. */
enum status search_judged_family(struct search *search, const struct node *node);

/* Samples per second of a node whose step takes step_ns. node->fill_ns is added. */
double node_rate(const struct node *node, int64_t step_ns);

/* Samples per second of the best plan so far; 0 if there is none. */
double search_beat(const struct search *search);

/* The longest step_ns, at least 0, with which the node is faster than search_beat(). INT64_MAX / 4
 * if there is no best plan yet. */
int64_t search_limit(const struct search *search, const struct node *node);

/* A plan without its cut; device is the caller's storage and may be NULL. */
struct plan search_bare_plan(const struct search *search, const struct node *node, int *device);

/* Lower the node's plan with this cut, compute its memory and its step time. A cut that
 * bound_cut_fits() rules out is not lowered. If the plan does not fit, *step_ns is 0 and
 * search->over[k] is the number of bytes by which rank k exceeds its memory. *step_ns is also 0 if
 * the step takes limit_ns or longer, which chains of the node's other cuts may show. 0: any step
 * counts, and no chains are kept. */
enum status search_judge_cut(struct search *search, const struct node *node,
                             const struct bound_shape *shape, const int *first_item,
                             int64_t limit_ns, int64_t *step_ns, int64_t *unshared_ns);

/* planner_chains.c: the critical chains of cuts of the current node. */
struct search_chains *search_chains_new(int num_items); /* NULL: no memory */
void search_chains_free(struct search_chains *chains);
/* What follows is about another node. */
void search_chains_forget(struct search_chains *chains);
/* Whether a chain of one cut of the node, whose devices have these sites, bounds its other cuts. */
bool search_chains_hold(const struct search *search, const struct node *node,
                        const struct sites *sites);
/* Set *bound_ns to the most that the chains show about a plan of the node, at most until that is
 * limit_ns: its step is no shorter. ERR_NOMEM. */
enum status search_chain_bound(struct search *search, const struct bound_shape *shape,
                               const struct plan *plan, int64_t limit_ns, int64_t *bound_ns);
/* The class of replicas that is likely to take longest. */
int search_chain_class(const struct search *search);
/* Keep the chain of a plan that was timed. Takes over the chain and the workload if there is a chain. */
enum status search_note_chain(struct search *search, struct plan *plan, struct workload *workload,
                              struct step_chain *chain);

/* Step time of a judged candidate: the judge's if it was asked, otherwise the planner's. */
static inline int64_t judged_ns(const struct judged *judged)
{
    return judged->asked_ns > 0 ? judged->asked_ns : judged->step_ns;
}

/* Sort the judged candidates: the fastest first, those that do not fit last. */
void search_sort(struct search *search);

/* Note the result of a judged candidate that fits, as the best of its length or of all. */
void search_note_best(struct search *search, int index);

/* Make the node's bound_shape. The caller releases it with bound_shape_clear(). */
enum status search_shape(struct search *search, const struct node *node, struct bound_shape *shape);

bool search_allows(const struct planner_options *options, enum schedule_kind kind);
int search_blocks_in_cut(const struct search *search, enum frozen_placement placement);
/* The micro-batch count that the job asks of a pipeline with this batch: a count, AUTO, or INT_MAX
 * if no count satisfies the job. */
int search_microbatches(const struct search *search, int64_t batch);

/* Set node->fill_ns of a node that reads the cache. device is the device map of its family. *exists
 * tells whether the cache can be filled. */
enum status search_fill(const struct search *search, const int *device, struct node *node,
                        bool *exists);
