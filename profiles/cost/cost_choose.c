/* Choose a cost source: constants, the best profile of every device kind, or the roofline. The
 * profiles come from the store. Read cost_choose() in profile_cost.h first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"
#include "partition/model/framework.h"
#include "profiles/cost/cost_internal.h"
#include "profiles/store/store_calibration.h"

enum { MAX_KINDS = 32 }; /* device kinds of a cluster */

/* Whether the query asks for factors, which only computed costs have. */
static bool wants_factors(const struct cost_query *query)
{
    return *query->calibration || query->factors;
}

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
                             enum dtype dtype, char note[COST_NOTE_BYTES])
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
    if (*list)
        cost_note_add(note, "profile '%s' was measured with another %s", then->name, list);
}

/* Add to the handle what is said of the profile that was chosen. fit: what its times lack. */
static void note_profile(const struct profile_info *info, const struct cluster *cluster,
                         const struct cost_query *query, const char *host,
                         char fit[COST_NOTE_BYTES], struct cost_handle *handle)
{
    const bool of_others = strcmp(info->source, "published") == 0;
    const bool here = strcmp(info->host, host) == 0;
    handle->measured_here = handle->measured_here && here;
    if (query->present)
        note_differences(info, query->present, query->dtype, fit);
    else if (strcmp(cluster->name, "this-machine") == 0 && !here)
        cost_note_add(fit, "profile '%s' was measured on another machine, '%s'", info->name,
                      info->host);
    if (query->present && !of_others && strcmp(info->host, query->present->host) != 0)
        handle->other_host = true;
    if (*fit)
        cost_note_add(handle->note, "%s", fit);
}

/* Choose the best profile of a device kind that has every item of the model, and add to the handle what
 * is said of it. ERR_INFEASIBLE if there is none; err names the item that the best profile lacks. */
static enum status choose_kind(struct store *store, const char *device_kind,
                               const struct model *model, const struct cluster *cluster,
                               const struct cost_query *query, struct kind_cost *kind,
                               bool *published, struct cost_handle *handle, struct err *err)
{
    struct profile_info *infos = NULL;
    char host[64] = "";
    struct err first = {0};
    int count = 0;
    enum status rc = store_list_profiles(store, device_kind, &infos, &count, err);
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
        char fit[COST_NOTE_BYTES] = "";
        rc = store_get_profile(store, infos[i].name, &profile, &inner);
        THEN(kind_cost_build(&profile, model, cluster, query, kind, fit, &inner));
        profile_clear(&profile);
        if (rc == OK) {
            *published = *published || strcmp(infos[i].source, "published") == 0;
            note_profile(&infos[i], cluster, query, host, fit, handle);
            break;
        }
        if (rc != ERR_INFEASIBLE) {
            err_copy(err, &inner);
            break;
        }
        if (i == 0)
            first = inner;
    }
    /* Unless a profile is asked for, "there is none" is no news, and err stays empty. */
    if (rc == ERR_INFEASIBLE && count == 0 && query->choice == COST_BY_PROFILE) {
        err_set(err, rc, "cost.source profile: no profile of device kind '%s'", device_kind);
        err_hint(err, "'elapse profiles list' shows what there is");
    } else if (rc == ERR_INFEASIBLE) {
        err_set(err, rc, "%s", first.msg);
    }
    free(infos);
    return rc;
}

/* The first device of each kind. */
static int list_kinds(const struct cluster *cluster, const struct device *kinds[MAX_KINDS])
{
    int n = 0;
    for (int i = 0; i < cluster->num_devices; i++) {
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = strcmp(kinds[k]->kind, cluster->devices[i].kind) == 0;
        if (!known && n == MAX_KINDS)
            return -1;
        if (!known)
            kinds[n++] = &cluster->devices[i];
    }
    return n;
}

static bool is_opaque(const struct model *model)
{
    return model->family == FAMILY_COMPOSED || !model_family_traits(model->family)->first_preset;
}

/* --- computed costs --------------------------------------------------------------------------- */

/* Say whose curve stands for a kind that nobody measured. */
static void note_nearest(const struct device *const *kinds, int num_kinds,
                         struct cost_handle *handle)
{
    for (int k = 0; k < num_kinds; k++) {
        const struct device_curve *curve = device_curve_of(kinds[k]);
        char text[96];
        if (!curve || strcmp(curve->fitted_on, kinds[k]->kind) == 0)
            continue;
        snprintf(text, sizeof text, "%s has the kernel curve of %s at its own peak", kinds[k]->kind,
                 curve->fitted_on);
        cost_note_add(handle->note, "%s", text);
    }
}

/* Say what a job gives away that multiplies in fp32 although its devices are faster in bf16. */
static void note_narrow(const struct model *model, const struct cost_options *options,
                        const struct device *const *kinds, int num_kinds,
                        struct cost_handle *handle)
{
    const struct cost_options bf16 = {.efficiency = 1};
    struct model narrow = *model; /* borrows everything */
    narrow.elem_bytes = 2;
    for (int k = 0; k < num_kinds && model->elem_bytes == 2 && !options->fp16; k++) {
        char text[128];
        if (!roofline_lacks_bf16(device_roofline(kinds[k])))
            continue;
        snprintf(text, sizeof text,
                 "%s has no bf16 units: products run at its fp32 rate; fp16 does not",
                 kinds[k]->kind);
        cost_note_add(handle->note, "%s", text);
        return;
    }
    for (int k = 0; k < num_kinds && model->elem_bytes == 4; k++) {
        const struct roofline *roof = device_roofline(kinds[k]);
        const double gain =
            roofline_peak(roof, &narrow, &bf16) / roofline_peak(roof, model, options);
        char text[128];
        if (gain < 1.5)
            continue;
        snprintf(text, sizeof text,
                 "dtype is %s: matrix products on %s have %.0f times the peak with bf16",
                 options->tf32 ? "tf32" : "fp32", kinds[k]->kind, gain);
        cost_note_add(handle->note, "%s", text);
        handle->bf16_is_faster = true;
        return;
    }
}

/* Warn where a calibration was fitted on another device, data type or framework. */
static void note_calibration(const struct model *model, const struct cost_query *query,
                             const struct device *const *kinds, int num_kinds,
                             struct cost_handle *handle)
{
    const struct calibration *c = &handle->calibration;
    const char *launcher = framework_name(model->framework);
    const char *dtype = dtype_text((int)query->dtype);
    char then[96], text[352];
    for (int k = 0; k < num_kinds && *c->name; k++) {
        if (!*calibration_differs(c, kinds[k]->kind, dtype, launcher, then, sizeof then))
            continue;
        snprintf(text, sizeof text,
                 "calibration '%.63s' was fitted on %s; its factors may not hold for %.32s, %s, %s",
                 c->name, then, kinds[k]->kind, dtype, launcher);
        cost_note_add(handle->note, "%s", text);
        return;
    }
}

/* Say where a device has more memory than any published one of its kind. */
static void note_memory(const struct cluster *cluster, struct cost_handle *handle)
{
    const char *last = "";
    for (int d = 0; d < cluster->num_devices; d++) {
        const struct device *device = &cluster->devices[d];
        const struct roofline *roof = device_roofline(device);
        char text[128], has[32], published[32];
        if (!roof || device->mem_bytes <= roof->mem_bytes || strcmp(last, device->kind) == 0)
            continue;
        last = device->kind;
        snprintf(text, sizeof text, "device %d has %s of memory, a published %s has %s", d,
                 device->mem_bytes == INT64_MAX ? "unlimited bytes"
                                                : format_bytes(device->mem_bytes, has, sizeof has),
                 device->kind, format_bytes(roof->mem_bytes, published, sizeof published));
        cost_note_add(handle->note, "%s", text);
    }
}

/* Ask for a time on a device of each kind, so that an unknown kind or item is refused now. */
static enum status try_kinds(const struct cost *cost, const struct model *model,
                             const struct cluster *cluster, struct err *err)
{
    for (int d = 0; d < cluster->num_devices; d++) {
        const struct device *device = &cluster->devices[d];
        if (d > 0 && strcmp(device->kind, device[-1].kind) == 0)
            continue;
        for (int i = 0; i < model->num_items; i++) {
            int64_t ns;
            bool beyond = false;
            const enum status rc =
                cost->item_ns(cost->ctx, model, i, PASS_FWD, 1, device, &ns, &beyond, err);
            if (rc != OK)
                return rc;
        }
    }
    return OK;
}

static bool all_have_curves(const struct device *const *kinds, int num_kinds)
{
    for (int k = 0; k < num_kinds; k++)
        if (!device_curve_of(kinds[k]))
            return false;
    return true;
}

static enum narrow_format narrow_of(enum dtype dtype)
{
    return dtype == DTYPE_FP8     ? NARROW_FP8
           : dtype == DTYPE_MXFP8 ? NARROW_MXFP8
           : dtype == DTYPE_NVFP4 ? NARROW_NVFP4
                                  : NARROW_NONE;
}

/* The overhead of an op on a host, which a roofline leaves out: each item's pass has a part that
 * does not shrink with the micro-batch (10 us for the smallest layers of the shipped profile of
 * a 2-core Zen 4, of which a stage has about ten), and ranks that exchange messages wait for
 * each other. Without it a plan for hosts that nobody measured has as many micro-batches of one
 * sample as there are. */
#define HOST_OP_NS 100000

/* Charge HOST_OP_NS where all devices are hosts and the user did not ask for the ideal. */
static void add_host_costs(const struct cluster *cluster, const struct cost_query *query,
                           struct cost_handle *handle)
{
    for (int d = 0; d < cluster->num_devices; d++)
        if (!device_is_host(&cluster->devices[d]))
            return;
    if (query->choice == COST_BY_ROOFLINE)
        return;
    handle->cost.op_overhead_ns = HOST_OP_NS;
    snprintf(handle->cost.label, sizeof handle->cost.label,
             "not measured here: roofline of published data and %d us an op", HOST_OP_NS / 1000);
}

/* Kernels, or the roofline where a kind has no curve or the user wants it. */
static enum status choose_computed(const struct model *model, const struct cluster *cluster,
                                   const struct cost_query *query,
                                   const struct device *const *kinds, int num_kinds,
                                   struct cost_handle *handle, struct err *err)
{
    const double *factor = query->factors ? query->factors : handle->calibration.factor;
    const struct cost_options options = {.efficiency =
                                             query->efficiency > 0 ? query->efficiency : 1,
                                         .compute = factor[FACTOR_COMPUTE],
                                         .launch = factor[FACTOR_LAUNCH],
                                         .tf32 = query->dtype == DTYPE_TF32,
                                         .fp16 = query->dtype == DTYPE_FP16,
                                         .dropout = query->dropout,
                                         .graphs = query->graphs,
                                         .fp8_attention = query->fp8_attention,
                                         .delayed_scaling = query->delayed_scaling,
                                         .narrow = narrow_of(query->dtype)};
    handle->kernels = kernel_costs_new(&options);
    if (!handle->kernels)
        return err_nomem(err);
    if (query->choice == COST_BY_KERNELS ||
        (query->choice != COST_BY_ROOFLINE && all_have_curves(kinds, num_kinds))) {
        cost_kernels(&handle->cost, handle->kernels);
        note_nearest(kinds, num_kinds, handle);
    } else {
        cost_roofline(&handle->cost, kernel_costs_options(handle->kernels));
        add_host_costs(cluster, query, handle);
    }
    handle->cost.inside_factor = factor[FACTOR_INSIDE];
    handle->cost.between_factor = factor[FACTOR_BETWEEN];
    handle->cost.memory_factor = factor[FACTOR_MEMORY];
    if (*handle->calibration.name) {
        const size_t used = strlen(handle->cost.label);
        snprintf(handle->cost.label + used, sizeof handle->cost.label - used,
                 ", calibrated by '%.24s'", handle->calibration.name);
    }
    const enum status rc = try_kinds(&handle->cost, model, cluster, err);
    if (rc == OK) {
        note_narrow(model, &options, kinds, num_kinds, handle);
        note_calibration(model, query, kinds, num_kinds, handle);
    } else {
        cost_handle_clear(handle);
    }
    return rc;
}

/* --- the choice ------------------------------------------------------------------------------- */

/* Whether items of an explicit model have times, and flops without times. */
static void find_times(const struct model *model, const struct item **timed,
                       const struct item **untimed)
{
    *timed = *untimed = NULL;
    for (int i = 0; i < model->num_items; i++) {
        const struct item *it = &model->items[i];
        const bool has =
            it->num_times > 0 || it->fwd_ns > 0 || it->bwd_input_ns > 0 || it->bwd_weight_ns > 0;
        if (has)
            *timed = it;
        else if (it->fwd_flops > 0)
            *untimed = it;
    }
}

/* Whether a profile may have the items of the model by name: an explicit model without times. */
static bool named_items(const struct model *model)
{
    const struct item *timed, *untimed;
    find_times(model, &timed, &untimed);
    return model->family == FAMILY_EXPLICIT && !timed;
}

/* Constants where a model has them. *done is false if its times must be computed from flops. */
static enum status choose_opaque(const struct model *model, const struct cost_query *query,
                                 struct cost_handle *handle, bool *done, struct err *err)
{
    const struct item *timed, *untimed;
    find_times(model, &timed, &untimed);
    *done = query->choice == COST_AUTO && !untimed;
    if (query->choice == COST_AUTO && timed && untimed)
        return err_set(err, ERR_INPUT,
                       "model '%s': item '%s' has fwd_flops and no times, but item '%s' has times",
                       model->name, untimed->name, timed->name);
    if (*done) {
        cost_constant(&handle->cost);
        handle->cost.op_overhead_ns = model->op_overhead_ns;
    }
    return OK;
}

static enum status check_query(const struct cost_query *query, bool computed, struct err *err)
{
    const enum status rc =
        query->efficiency != 0 ? cost_efficiency_check(query->efficiency, err) : OK;
    if (rc != OK)
        return rc;
    if (!computed && query->efficiency != 0 && query->efficiency != 1)
        return err_set(err, ERR_INPUT,
                       "efficiency %g scales kernels or a roofline, not the times of a model or a "
                       "profile",
                       query->efficiency);
    if (!computed && wants_factors(query))
        return err_set(err, ERR_INPUT,
                       "calibration '%s' scales kernels or a roofline, not the times of a model or "
                       "a profile",
                       query->calibration);
    return OK;
}

/* Read the calibration that the query names; without one every factor is 0, which stands for 1. */
static enum status read_calibration(const char *db_path, const struct cost_query *query,
                                    struct calibration *calibration, struct err *err)
{
    struct store *store = NULL;
    *calibration = (struct calibration){0};
    if (!*query->calibration)
        return OK;
    enum status rc = store_open(db_path, STORE_READ, &store, err);
    THEN(store_get_calibration(store, query->calibration, calibration, err));
    store_close(store);
    return rc;
}

/* The best profile of each kind. ERR_INFEASIBLE and the reason in *inner if a kind has none. */
static enum status choose_profiles(const char *db_path, const struct model *model,
                                   const struct cluster *cluster, const struct cost_query *query,
                                   const struct device *const *kinds, int num_kinds,
                                   struct cost_handle *handle, struct err *err)
{
    struct store *store = NULL;
    struct profile_cost *ctx = NULL;
    bool published = false;
    enum status rc = store_open(db_path, STORE_READ, &store, err);
    if (rc != OK)
        return rc;
    ctx = profile_cost_new(num_kinds);
    if (!ctx)
        rc = err_nomem(err);
    handle->measured_here = true;
    for (int k = 0; k < num_kinds && rc == OK; k++) {
        rc = choose_kind(store, kinds[k]->kind, model, cluster, query, &ctx->kinds[k], &published,
                         handle, err);
        ctx->num_kinds += rc == OK;
    }
    if (rc == OK) {
        profile_cost_finish(handle, ctx, published);
        ctx = NULL;
    } else {
        *handle = (struct cost_handle){0};
    }
    profile_cost_free(ctx);
    store_close(store);
    return rc;
}

enum status cost_choose_for(const char *db_path, const struct model *model,
                            const struct cluster *cluster, const struct cost_query *query,
                            struct cost_handle *handle, struct err *err)
{
    const struct cost_query own = cost_query_of_model(model);
    const struct device *kinds[MAX_KINDS];
    struct cost_handle got = {0};
    struct err inner = {0};
    bool done = false;
    enum status rc = OK;
    const int n = list_kinds(cluster, kinds);
    if (!query)
        query = &own;
    if (n < 0)
        return err_set(err, ERR_INPUT, "cluster '%s' has more than %d kinds of device",
                       cluster->name, MAX_KINDS);
    const bool profiled = !is_opaque(model) || named_items(model);
    if (!profiled)
        rc = choose_opaque(model, query, &got, &done, err);
    if (rc == OK && !done && query->choice != COST_BY_KERNELS &&
        query->choice != COST_BY_ROOFLINE && profiled &&
        !(query->choice == COST_AUTO && wants_factors(query))) {
        rc = choose_profiles(db_path, model, cluster, query, kinds, n, &got, &inner);
        done = rc == OK;
        if (rc == ERR_INFEASIBLE && query->choice != COST_BY_PROFILE) {
            snprintf(got.note, sizeof got.note, "%s", inner.msg);
            rc = OK;
        } else if (rc != OK) {
            return err_copy(err, &inner);
        }
    }
    if (rc == OK && !done && is_opaque(model) && profiled) {
        got.note[0] = '\0';
        rc = choose_opaque(model, query, &got, &done, err);
    }
    if (rc == OK && !profiled && query->choice == COST_BY_PROFILE)
        rc = err_set(err, ERR_INFEASIBLE, "model '%s' is %s, so no profile can have its items",
                     model->name, model_family_name(model->family));
    THEN(check_query(query, !done, err));
    if (rc == OK && !done)
        rc = read_calibration(db_path, query, &got.calibration, err);
    if (rc == OK && !done)
        rc = choose_computed(model, cluster, query, kinds, n, &got, err);
    if (rc == OK) {
        note_memory(cluster, &got);
        *handle = got;
    } else {
        cost_handle_clear(&got);
    }
    return rc;
}

enum status cost_choose(const char *db_path, const struct job *job, struct cost_handle *handle,
                        struct err *err)
{
    const struct cost_query query = cost_query_of(job);
    return cost_choose_for(db_path, &job->model, &job->cluster, &query, handle, err);
}
