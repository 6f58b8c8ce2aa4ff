/* Choose a cost source: constants, the best profile of every device kind, or the roofline. The
 * profiles come from the store. Read cost_choose() in profile_cost.h first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/cost_internal.h"

enum { MAX_KINDS = 32 }; /* device kinds of a cluster */

/* Whether profile a is better than b: measured beats published, this host beats others, later beats
 * earlier. */
static bool better(const struct profile_info *a, const struct profile_info *b, const char *host)
{
    bool a_measured = strcmp(a->source, "measured") == 0;
    bool b_measured = strcmp(b->source, "measured") == 0;
    bool a_here = strcmp(a->host, host) == 0, b_here = strcmp(b->host, host) == 0;
    if (a_measured != b_measured)
        return a_measured;
    if (a_here != b_here)
        return a_here;
    return strcmp(a->measured_at, b->measured_at) > 0;
}

/* Append to the note how this machine differs from the one that the profile was measured on, as in
 * "driver, libraries". */
static void note_differences(const struct profile_info *then, const struct profile_info *now,
                             enum dtype dtype, char note[256])
{
    /* A kernel matters only for its dtype. Older profiles do not name their kernels. */
    const bool bf16 = dtype == DTYPE_BF16 && *then->bf16_kernel,
               fp32 = dtype == DTYPE_FP32 && *then->fp32_kernel;
    const struct {
        const char *name, *then, *now;
    } texts[] = {
        {"host",        then->host,        now->host                   },
        {"device",      then->device_name, now->device_name            },
        {"driver",      then->driver,      now->driver                 },
        {"libraries",   then->libraries,   now->libraries              },
        {"bf16 kernel", then->bf16_kernel, bf16 ? now->bf16_kernel : ""},
        {"fp32 kernel", then->fp32_kernel, fp32 ? now->fp32_kernel : ""},
    };
    char list[64] = "";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i].now && strcmp(texts[i].then, texts[i].now) != 0)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                     texts[i].name);
    /* A frequency governor moves the clock a little, so differences up to 5 % do not count. */
    if (now->clock_mhz && llabs(then->clock_mhz - now->clock_mhz) * 20 > now->clock_mhz)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%sclock", *list ? ", " : "");
    const size_t used = strlen(note);
    if (*list && used)
        snprintf(note + used, 256 - used, "; it was measured with another %s", list);
    else if (*list)
        snprintf(note, 256, "profile '%s' was measured with another %s", then->name, list);
}

/* Choose the best profile of a device kind that has every item of the model. ERR_INFEASIBLE if
 * there is none; err names the item that the best profile lacks. */
static enum status choose_kind(struct store *store, const char *device_kind,
                               const struct model *model, const struct cluster *cluster,
                               const struct cost_query *query, struct kind_cost *kind,
                               bool *published, char note[256], struct err *err)
{
    struct profile_info *infos = NULL;
    char host[64] = "";
    struct err first = {0};
    int count = 0;
    enum status rc = store_list_profiles(store, device_kind, &infos, NULL, &count, err);
    if (rc != OK)
        return rc;
    gethostname(host, sizeof host - 1);
    rc = ERR_INFEASIBLE;
    for (int i = 0; i < count; i++) { /* selection sort, one choice at a time */
        int best = i;
        for (int j = i + 1; j < count; j++)
            if (better(&infos[j], &infos[best], host))
                best = j;
        struct profile_info swap = infos[i];
        infos[i] = infos[best];
        infos[best] = swap;
        struct profile profile = {0};
        struct err inner = {0};
        char here[256] = "";
        rc = store_get_profile(store, infos[i].name, &profile, &inner);
        if (rc == OK)
            rc = kind_cost_build(&profile, model, cluster, query, kind, here, &inner);
        profile_clear(&profile);
        if (rc == OK) {
            *published = strcmp(infos[i].source, "published") == 0;
            if (query->present)
                note_differences(&infos[i], query->present, query->dtype, here);
            else if (!*here && strcmp(cluster->name, "this-machine") == 0 &&
                     strcmp(infos[i].host, host) != 0)
                snprintf(here, sizeof here, "profile '%s' was measured on another machine, '%s'",
                         infos[i].name, infos[i].host);
            if (*here)
                memcpy(note, here, sizeof here);
            break;
        }
        if (rc != ERR_INFEASIBLE) {
            err_copy(err, &inner);
            break;
        }
        if (i == 0)
            first = inner;
    }
    if (rc == ERR_INFEASIBLE)
        err_set(err, rc, "%s", *first.msg ? first.msg : "");
    free(infos);
    return rc;
}

static int list_kinds(const struct cluster *cluster, const char *kinds[MAX_KINDS])
{
    int n = 0;
    for (int i = 0; i < cluster->num_devices; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = strcmp(kinds[k], cluster->devices[i].kind) == 0;
        if (!known && n == MAX_KINDS)
            return -1;
        if (!known)
            kinds[n++] = cluster->devices[i].kind;
    }
    return n;
}

static bool is_opaque(const struct model *model)
{
    return !model_family_traits(model->family)->first_preset;
}

/* Choose the roofline, if it has figures for every device kind of the cluster. */
static enum status choose_roofline(const struct model *model, const struct cluster *cluster,
                                   const char *const *kinds, int num_kinds,
                                   struct cost_handle *handle, struct err *err)
{
    cost_roofline(&handle->cost);
    for (int k = 0; k < num_kinds; k++) {
        for (int i = 0; i < cluster->num_devices; i++) {
            int64_t ns;
            bool beyond = false;
            if (strcmp(cluster->devices[i].kind, kinds[k]) != 0)
                continue;
            enum status rc = handle->cost.item_ns(handle->cost.ctx, model, 0, PASS_FWD, 1,
                                                  &cluster->devices[i], &ns, &beyond, err);
            if (rc != OK) {
                *handle = (struct cost_handle){0};
                return rc;
            }
            break;
        }
    }
    return OK;
}

enum status cost_choose_for(const char *db_path, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct cost_handle *handle, struct err *err)
{
    const struct cost_query own = cost_query_of_model(model);
    const char *kinds[MAX_KINDS];
    struct store *store = NULL;
    struct profile_cost *ctx = NULL;
    struct cost_handle got = {0};
    bool published = false;
    enum status rc = OK;
    int n = list_kinds(cluster, kinds);
    if (is_opaque(model)) {
        cost_constant(&got.cost);
        *handle = got;
        return OK;
    }
    if (n < 0)
        return err_set(err, ERR_INPUT, "cluster '%s' has more than %d kinds of device",
                       cluster->name, MAX_KINDS);
    if (!query)
        query = &own;
    rc = store_open(db_path, STORE_READ, &store, err);
    if (rc != OK)
        return rc;
    ctx = profile_cost_new(n);
    if (!ctx) {
        rc = err_nomem(err);
        goto out;
    }
    struct err inner = {0};
    for (int k = 0; k < n && rc == OK; k++) {
        bool from_paper = false;
        rc = choose_kind(store, kinds[k], model, cluster, query, &ctx->kinds[k], &from_paper,
                         got.note, &inner);
        ctx->num_kinds += rc == OK;
        published = published || from_paper;
    }
    if (rc == OK) {
        profile_cost_finish(&got, ctx, published);
        ctx = NULL;
    } else if (rc == ERR_INFEASIBLE) {
        snprintf(got.note, sizeof got.note, "%.255s", inner.msg);
        rc = choose_roofline(model, cluster, kinds, n, &got, err);
    } else {
        err_copy(err, &inner);
    }
    if (rc == OK)
        *handle = got;
out:
    profile_cost_free(ctx);
    store_close(store);
    return rc;
}

enum status cost_choose(const char *db_path, const struct job *job, struct cost_handle *handle,
                        struct err *err)
{
    const struct cost_query query = cost_query_of(job);
    return cost_choose_for(db_path, &job->model, &job->cluster, &query, handle, err);
}
