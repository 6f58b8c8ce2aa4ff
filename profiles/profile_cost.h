/* profiles/profile_cost.h - struct cost from measured profiles, and the choice of a cost source.
 *
 * Between measured micro-batch or message sizes a time is interpolated: piecewise linear over the
 * medians, made monotone by pooling neighbours that fall (isotonic regression), so that noise never
 * makes a larger micro-batch faster. Outside it goes on with the last slope and is flagged. What
 * near stash saves (cost.h) falls with distance in the same manner; beyond both ends it is what it
 * is there. What a profile of an older version lacks is taken from the nearest that it has:
 * PASS_BWD_REST from PASS_BWD_INPUT, which is said, PASS_FWD_NOGRAD from PASS_FWD, a few per cent
 * more; near stash saves nothing. */
#ifndef ELAPSE_PROFILES_PROFILE_COST_H
#define ELAPSE_PROFILES_PROFILE_COST_H

#include "partition/cost.h"
#include "partition/job.h"
#include "profiles/profile.h"
#include "profiles/store.h"

/* A cost source together with what it stands on. Zero it before use. */
struct cost_handle {
    struct cost cost;         /* hand out &handle.cost; valid until cost_handle_clear() */
    char note[256];           /* "" or one line for people: a profile that does not quite fit */
    double spread;            /* of the layers' rows, as profile_noise() has it; 0: unknown */
    struct profile_cost *ctx; /* owned; NULL for constants and roofline */
};
void cost_handle_clear(struct cost_handle *handle);

/* What to look for in the profiles. 0 or NULL: whatever is there, nearest first. */
struct cost_query {
    const char *backend; /* "cpu", "cuda"; NULL: any */
    enum dtype dtype;
    int threads; /* per rank; 0: 1 where ranks share a node, else the most measured */
    int ranks;   /* ranks busy on a node; 0: as many as the cluster has devices a node */
    int spread;  /* 0: medians; -1: the 10th, 1: the 90th percentile of every time, for intervals */
    bool dropout; /* layers that train drop: as measured so, where they were */
    bool input;   /* the job reads the built-in set: count what preparing its samples takes */
    const struct profile_info *present; /* this machine as a profiler describes it: what differs is
                                           noted; NULL: of this-machine, the host is compared */
};

/* What a job asks for, and a model without one; the rest open. */
struct cost_query cost_query_of(const struct job *job);
struct cost_query cost_query_of_model(const struct model *model);

/* The cost source for a job, never a mixture: constants for uniform and explicit models; measured,
 * when every device kind of the cluster has a profile that knows every item of the model; else the
 * roofline, marked as such. db_path NULL: the default store (see store_open()). ERR_INFEASIBLE when
 * nobody knows the device kind; errors of the store pass through. */
enum status cost_choose(const char *db_path, const struct job *job, struct cost_handle *handle,
                        struct err *err);

/* The same without a job. query may be NULL: the model's own. */
enum status cost_choose_for(const char *db_path, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct cost_handle *handle, struct err *err);

/* What the backend keeps of one sample of an item until its backward, beside the output: as
 * measured, or the model's formula where it was not (false). The handle's first device kind. */
bool cost_item_stash(const struct cost_handle *handle, const struct model *model, int item,
                     int64_t *bytes);

/* Measured costs of one profile for all device kinds of the cluster equal to its own, or fail:
 * ERR_INFEASIBLE "no layers for model 'x' in profile 'y'" names the first item missing. profile is
 * copied from; it may go afterwards. */
enum status profile_cost(const struct profile *profile, const struct model *model,
                         const struct cluster *cluster, const struct cost_query *query,
                         struct cost_handle *handle, struct err *err);

/* Monotone piecewise-linear curve over sizes; exposed for tests and reports. */
struct curve {
    double *x, *y; /* owned; n ascending sizes, non-decreasing times */
    int n;
};
/* points need not be sorted; equal sizes are averaged by weight. ERR_NOMEM. n > 0. */
enum status curve_build(const double *x, const double *y, const double *weight, int n,
                        struct curve *curve, struct err *err);
double curve_at(const struct curve *curve, double x, bool *extrapolated); /* flag only ever set */
void curve_clear(struct curve *curve);

#endif
