/* partition/layout/layout.h - how the devices of a plan divide items, samples and state.
 *
 * A layout is everything by which the ranks of a plan share work apart from the pipeline (K, chunks)
 * and the number of pipelines. layout_members has a row for each dimension: its key, its place and its
 * words. JSON, printed lines and the search walk the rows, so a dimension is a member here, a row in
 * layout.c, a job key and the values that the search tries (partition/search/planner_layouts.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition/base/status.h"
#include "partition/model/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The state that the R replicas of a stage divide among themselves (ZeRO; Rajbhandari et al., SC
 * 2020). Each mode divides what the modes before it divide, too. docs/layouts.md has traffic and
 * times. */
enum shard_mode {
    SHARD_NONE,      /* every replica holds all of it */
    SHARD_OPTIMIZER, /* optimizer state and fp32 master weights (ZeRO-1) */
    SHARD_GRADIENTS, /* and gradients (ZeRO-2) */
    SHARD_WEIGHTS,   /* and weights (ZeRO-3, FSDP) */
    SHARD_MODE_COUNT
};

/* A zeroed layout divides nothing. */
struct layout {
    /* T, neighbouring devices that hold each item together; 0 and 1: one. */
    int tensor;
    /* With T > 1: norms and dropouts are divided by tokens. */
    bool sequence_parallel;
    /* E, replicas that divide the experts of each layer: replicas [i E, (i + 1) E); 0 and 1: each
     * replica has all. */
    int expert;
    /* X, neighbours that divide each expert, a divisor of T; 0: T. With X < T, E X / T replicas divide
     * the experts, and E is divided by their devices. */
    int expert_tensor;
    /* C, replicas that divide the tokens of each sample: replicas [i C, (i + 1) C); 0 and 1: each has
     * samples of its own. */
    int context;
    enum context_kind context_kind; /* with C > 1 */
    enum shard_mode shard;
    /* G, replicas in a row that divide what SHARD_GRADIENTS and SHARD_WEIGHTS say, of which the others
     * have copies (HSDP); 0: all replicas. */
    int shard_group;
    /* Masters and optimizer state are in host memory, whose processor updates (ZeRO-Offload). */
    bool offload;
};

/* The dimensions, in the order in which the search turns them: the last one fastest. */
enum layout_dim {
    LAYOUT_TENSOR,
    LAYOUT_SEQUENCE,
    LAYOUT_EXPERT,
    LAYOUT_EXPERT_TENSOR,
    LAYOUT_CONTEXT,
    LAYOUT_CONTEXT_KIND,
    LAYOUT_SHARD,
    LAYOUT_SHARD_GROUP,
    LAYOUT_OFFLOAD,
    LAYOUT_DIM_COUNT
};

/* A request for layouts: those with the dimensions of `at`, but for the dimensions that are open, of
 * which every value may be chosen. */
struct layout_ask {
    struct layout at;
    bool open[LAYOUT_DIM_COUNT];
};

/* T: at least 1. */
static inline int layout_tensor(const struct layout *layout)
{
    return layout->tensor > 1 ? layout->tensor : 1;
}

/* E: at least 1. */
static inline int layout_expert(const struct layout *layout)
{
    return layout->expert > 1 ? layout->expert : 1;
}

/* X: T unless the layout says another. */
static inline int layout_expert_tensor(const struct layout *layout)
{
    return layout->expert_tensor > 0 ? layout->expert_tensor : layout_tensor(layout);
}

/* How many replicas in a row have all experts of a layer together: E X / T, at least 1. */
static inline int layout_expert_span(const struct layout *layout)
{
    const int span = layout_expert(layout) * layout_expert_tensor(layout) / layout_tensor(layout);
    return span > 1 ? span : 1;
}

/* C: at least 1. */
static inline int layout_context(const struct layout *layout)
{
    return layout->context > 1 ? layout->context : 1;
}

/* Check G of a number of replicas (R C); 0: there are no groups. ERR_INFEASIBLE: the shard is none
 * that groups divide; replicas divide experts; or G leaves not at least two groups. */
enum status shard_group_check(int group, enum shard_mode shard, int replicas, int expert,
                              struct err *err);

const char *shard_mode_name(enum shard_mode mode);
extern const char *const shard_mode_names[]; /* by mode, NULL-terminated */

/* A row of layout_members. */
struct layout_member {
    const char *key; /* in the JSON of plans, and of jobs after "pipeline." */
    enum { LAYOUT_COUNT, LAYOUT_FLAG, LAYOUT_NAME } type;
    size_t offset;            /* in struct layout: an int, a bool or an enum */
    int least;                /* of a COUNT; a layout that has it is not divided by it */
    const char *const *names; /* of a NAME's values, NULL-terminated */
    const char *word;         /* printed before a COUNT's value; a FLAG as it is printed */
    const char *const *words; /* printed of a NAME's values */
    /* Where layout_text() prints it: in the product of the devices (and there also where it divides
     * nothing), in brackets after the row before it, or in the list after the product. */
    enum { LAYOUT_PRODUCT, LAYOUT_ALWAYS, LAYOUT_BRACKETS, LAYOUT_LIST } place;
    bool core;  /* the JSON of a layout that divides anything has it */
    bool opens; /* on GPUs it is open for a job that names none of these dimensions */
};
extern const struct layout_member layout_members[LAYOUT_DIM_COUNT];

/* The value of a dimension: T, E and C at least 1, X of an open one T. */
int layout_get(const struct layout *layout, enum layout_dim dim);
void layout_set(struct layout *layout, enum layout_dim dim, int value);

/* The ask for a layout that divides nothing, which is the default of a job. */
struct layout_ask layout_ask_whole(void);

/* Whether the ask of a job leaves a dimension open: by its flag, or because T, E or C is AUTO, 0. */
bool layout_ask_opens(const struct layout_ask *ask, enum layout_dim dim);

/* Whether a layout divides anything by a dimension. */
bool layout_uses(const struct layout *layout, enum layout_dim dim);
bool layout_equal(const struct layout *a, const struct layout *b);

/* Write a layout in the words of the field: "PP 2 x DP 4 x TP 2 (SP), VP 2, ZeRO-1". ranks 0: without
 * the pipeline and its replicas, "TP 2 (SP), ZeRO-1". Returns text, cut to size. */
const char *layout_text(const struct layout *layout, int ranks, int replicas, int chunks,
                        char *text, size_t size);

#ifdef __cplusplus
}
#endif
