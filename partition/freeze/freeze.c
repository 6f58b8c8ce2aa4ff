/* Freeze policies: the paper's, the release's, tables, and `plateau`, which is ours. `safe` is in
 * freeze_safe.c.
 *
 * freeze_decide() asks the policy, and three rules hold around every answer, in this order:
 *   - nothing freezes in the first `warmup` epochs; the policy is asked after them and counts its
 *     epochs from there;
 *   - at most num_layers - min_active layers freeze, unless more are frozen already;
 *   - a decision is never below the one before it, except by a table or by safe: nothing else unfreezes.
 * F = l freezes layers 0..l-1, and the embedding when l >= 1. Policies of more than a line are
 * decide_*() functions; read freeze_decide() first, then the policy of interest.
 *
 * Why plateau exists. The paper's argmin reads a small gradient as a sign that a layer has
 * converged, but depth and width also set the size of a gradient. The median test of the release
 * compares the layers' changes with one another, so half of the layers pass it always, converged or
 * not. Neither asks whether a layer is still moving in one direction. A rule with an absolute
 * threshold on the change also depends on the learning rate: at half the rate every change halves,
 * so a cosine schedule or a warm-up looks like convergence. Plateau uses two ratios in which a
 * learning rate or a loss scale cancels:
 *   - The log norm of a layer minus the mean log norm of the active layers. Scaling the loss, the
 *     batch or all gradients does not change it, and neither does a fall of all gradients.
 *   - |moving mean of d| / moving mean of |d|, where d is the change of that figure. The ratio is 1
 *     while the figure drifts in one direction, however slowly, and near 0 while it varies around
 *     one level. A smaller learning rate shrinks numerator and denominator by the same factor.
 * A layer has settled when the second ratio was below one half at two decisions in a row. The
 * prefix of settled layers freezes, at most ceil(alpha * active) layers at a time.
 *
 * Recorded runs (tests/golden/norms-*.json: one small ViT, one start, four learning-rate schedules,
 * far from converged after 14 epochs) show the difference. gradient-norm freezes 5 of 6 layers by
 * epoch 3 under each schedule. relative-change freezes all 6: by epoch 6 at the full rate, and by
 * epoch 4 at a tenth of it, because it takes slow for converged. plateau freezes nothing before
 * epoch 8. At a tenth of the rate its first layer freezes at epoch 14, and a thirtyfold drop of the
 * rate in mid-run freezes no more layers. The price: plateau needs four epochs of norms before it
 * may freeze anything. */
#include "partition/freeze/freeze.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

#define PLATEAU_DECAY 0.5 /* of the moving means: the last three epochs carry 7/8 of the weight */
#define PLATEAU_SETTLED 0.5
#define PLATEAU_PATIENCE 2

/* Plateau's memory of one layer. */
struct track {
    double log_norm, drift, path, streak;
};

const char *const freeze_head_names[] = {"frozen", "alone", NULL};
const char *const freeze_policy_names[] = {
    "none",    "closed-form", "gradient-norm", "relative-change", "table",
    "plateau", "safe",        "timed",         "autofreeze",      "apf",
    NULL};

static const char *const policy_about[FREEZE_POLICY_COUNT] = {
    [FREEZE_NONE] = "no layer freezes",
    [FREEZE_CLOSED_FORM] = "by alpha and the epoch alone (PipeTransformer's released code)",
    [FREEZE_GRADIENT_NORM] = "up to the layer with the smallest gradient norm, at most alpha of "
                             "the active layers (the paper)",
    [FREEZE_RELATIVE_CHANGE] = "layers whose gradient norm changed less than the median",
    [FREEZE_TABLE] = "F per epoch from freeze.table; F may fall there",
    [FREEZE_PLATEAU] = "layers whose gradient norm has no drift, at any learning rate",
    [FREEZE_SAFE] = "what costs at most freeze.max_loss, by what the run itself has measured",
    [FREEZE_TIMED] = "no prefix: backwards leave out weight gradients where the pipeline waits for "
                     "them, freeze.max_share of each stage (after TimelyFreeze)",
    [FREEZE_AUTOFREEZE] = "first layers whose gradient norm changed less than the median of the "
                          "active ones (AutoFreeze)",
    [FREEZE_APF] = "no prefix: single weights that move to and fro, each for a time of its own "
                   "(Adaptive Parameter Freezing); saves no time",
};

const char *freeze_policy_about(enum freeze_policy policy)
{
    return (unsigned)policy < FREEZE_POLICY_COUNT && policy_about[policy] ? policy_about[policy]
                                                                          : "";
}

const char *freeze_policy_name(enum freeze_policy policy)
{
    return (unsigned)policy < FREEZE_POLICY_COUNT ? freeze_policy_names[policy] : "?";
}

enum status freeze_policy_parse(const char *name, enum freeze_policy *policy, struct err *err)
{
    const char *near;
    char list[128];
    enum status rc;
    for (int i = 0; i < FREEZE_POLICY_COUNT; i++) {
        if (strcmp(freeze_policy_names[i], name) == 0) {
            *policy = (enum freeze_policy)i;
            return OK;
        }
    }
    near = nearest_name(name, freeze_policy_names, FREEZE_POLICY_COUNT);
    rc = err_set(err, ERR_INPUT, "unknown freeze policy '%s'%s%s%s", name,
                 near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    err_hint(err, "policies: %s",
             join_names(freeze_policy_names, FREEZE_POLICY_COUNT, list, sizeof list));
    return rc;
}

bool freeze_uses_norms(enum freeze_policy policy)
{
    return policy == FREEZE_GRADIENT_NORM || policy == FREEZE_RELATIVE_CHANGE ||
           policy == FREEZE_PLATEAU || policy == FREEZE_AUTOFREEZE;
}

/* Whether each decision of the policy is known a turn ahead, which annealing needs. */
static bool known_ahead(enum freeze_policy policy)
{
    return policy == FREEZE_CLOSED_FORM || policy == FREEZE_TABLE;
}

static bool uses_alpha(enum freeze_policy policy)
{
    return policy == FREEZE_CLOSED_FORM || policy == FREEZE_GRADIENT_NORM ||
           policy == FREEZE_PLATEAU || policy == FREEZE_SAFE;
}

/* Whether F may fall. */
static bool may_thaw(enum freeze_policy policy)
{
    return policy == FREEZE_TABLE || policy == FREEZE_SAFE;
}

static enum status check_spec(const struct freeze_spec *spec, int num_layers, struct err *err)
{
    if ((unsigned)spec->policy >= FREEZE_POLICY_COUNT)
        return err_set(err, ERR_INPUT, "unknown freeze policy %d", (int)spec->policy);
    if (num_layers < 1)
        return err_set(err, ERR_INPUT, "freeze: layers must be at least 1, got %d", num_layers);
    if (uses_alpha(spec->policy) && !(spec->alpha > 0 && spec->alpha < 1))
        return err_set(err, ERR_INPUT, "freeze: alpha must lie between 0 and 1, got %g",
                       spec->alpha);
    if (spec->min_active < 0 || spec->min_active > num_layers)
        return err_set(err, ERR_INPUT, "freeze: min_active must be 0..%d, got %d", num_layers,
                       spec->min_active);
    if (spec->policy == FREEZE_TABLE && spec->num_table < 1)
        return err_set(err, ERR_INPUT, "freeze: the table is empty");
    if (spec->policy == FREEZE_SAFE && !(spec->max_loss >= 0 && isfinite(spec->max_loss)))
        return err_set(err, ERR_INPUT, "freeze: max_loss must be at least 0, got %g",
                       spec->max_loss);
    if (spec->anneal && !known_ahead(spec->policy))
        return err_set(
            err, ERR_INPUT,
            "freeze.anneal needs freeze.policy closed-form or table, whose next decision "
            "is known, got '%s'",
            freeze_policy_name(spec->policy));
    if (spec->warmup < 0)
        return err_set(err, ERR_INPUT, "freeze: warmup must not be negative, got %d", spec->warmup);
    for (int i = 0; spec->policy == FREEZE_TABLE && i < spec->num_table; i++)
        if (spec->table[i] < 0 || spec->table[i] > num_layers)
            return err_set(err, ERR_INPUT, "freeze: table entry %d must be 0..%d, got %d", i,
                           num_layers, spec->table[i]);
    return OK;
}

enum status freeze_init(struct freeze *freeze, const struct freeze_spec *spec, int num_layers,
                        struct err *err)
{
    const enum status rc = check_spec(spec, num_layers, err);
    if (rc != OK)
        return rc;
    const size_t per_layer =
        spec->policy == FREEZE_PLATEAU ? sizeof(struct track) / sizeof(double) : 1;
    double *prev = calloc((size_t)num_layers, per_layer * sizeof *prev);
    if (!prev)
        return err_nomem(err);
    *freeze = (struct freeze){.spec = spec, .num_layers = num_layers, .prev = prev};
    return OK;
}

void freeze_clear(struct freeze *freeze)
{
    free(freeze->prev);
    *freeze = (struct freeze){0};
}

void freeze_spec_clear(struct freeze_spec *spec)
{
    free(spec->table);
    *spec = (struct freeze_spec){0};
}

int freeze_closed_form(int num_layers, double alpha, int epoch)
{
    double active = 1 - alpha, sum, frozen;
    if (epoch <= 0)
        return 0;
    sum = alpha * num_layers / active;
    for (int t = 2; t <= epoch && isfinite(sum); t++)
        sum += alpha * num_layers / pow(active, t);
    frozen = ceil(pow(active, epoch) * sum);
    /* 0 * inf: epochs enough have passed that everything is frozen */
    return frozen >= 0 && frozen <= num_layers ? (int)frozen : num_layers;
}

static int table_at(const struct freeze_spec *spec, int epoch)
{
    return spec->table[epoch < spec->num_table ? epoch : spec->num_table - 1];
}

/* F plus the paper's cap, ceil(alpha * active). Rounding must not add a layer: 9/14 of 42 is 27,
 * but in doubles it comes out above 27. A ratio p/q as a double, times active, is off by less than
 * share * 2^-51, and a share that is not whole is at least 1/q away from a whole number. So a share
 * within that error of a whole number is taken as whole, which is exact for q up to 10^10. */
static int cap_of(const struct freeze *freeze)
{
    const int active = freeze->num_layers - freeze->num_frozen;
    const double share = freeze->spec->alpha * active, whole = floor(share);
    const double most = share - whole <= share * 0x1p-51 ? whole : whole + 1;
    return freeze->num_frozen + (most < active ? (int)most : active);
}

int freeze_cap(const struct freeze *freeze)
{
    const int cap = cap_of(freeze), limit = freeze->num_layers - freeze->spec->min_active;
    return cap < limit ? cap : limit;
}

static int decide_gradient_norm(const struct freeze *freeze, int epoch, const double *norms,
                                char reason[160])
{
    int first = freeze->num_frozen, cap = cap_of(freeze), smallest = first;
    if (epoch == 0) {
        snprintf(reason, 160, "nothing freezes in the first epoch");
        return 0;
    }
    if (!norms) {
        snprintf(reason, 160, "no gradient norms recorded: the cap alone, %d of %d layers", cap,
                 freeze->num_layers);
        return cap;
    }
    if (first == freeze->num_layers) {
        snprintf(reason, 160, "all %d layers are frozen", first);
        return first;
    }
    for (int l = first + 1; l < freeze->num_layers; l++)
        if (norms[l] < norms[smallest])
            smallest = l;
    snprintf(reason, 160, "smallest gradient norm %.3g at layer %d of %d..%d, cap %d: %s",
             norms[smallest], smallest, first, freeze->num_layers - 1, cap,
             smallest > cap     ? "the cap decides"
             : smallest > first ? "the norm decides"
                                : "the lowest active layer, rest");
    return smallest < cap ? smallest : cap;
}

/* Median, interpolated as numpy.percentile(values, 50) does; infinity counts as larger than any
 * number. Sorts values. */
static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    double low = values[(n - 1) / 2], high = values[n / 2];
    return low == high || isinf(high) ? high : high - (high - low) * 0.5;
}

/* Two readings of one test. PipeTransformer's released code freezes the layer that stops the walk
 * too. AutoFreeze (Liu et al., 2021, arXiv 2102.01386) freezes the layers before it; 50 is its
 * default percentile. It takes the norm of the gradients summed between two decisions, this the
 * root mean square of the norms of the steps. */
static enum status decide_relative_change(const struct freeze *freeze, const double *norms,
                                          int *decision, char reason[160], struct err *err)
{
    int first = freeze->num_frozen, active = freeze->num_layers - first, l;
    double *change, threshold;
    *decision = first;
    if (!norms) {
        snprintf(reason, 160, "no gradient norms: stay");
        return OK;
    }
    if (freeze->num_seen == 0) {
        snprintf(reason, 160, "first gradient norms: only stored");
        return OK;
    }
    if (active == 0) {
        snprintf(reason, 160, "all %d layers are frozen", first);
        return OK;
    }
    change = malloc(2 * (size_t)active * sizeof *change);
    if (!change)
        return err_nomem(err);
    for (int i = 0; i < active; i++) {
        double prev = freeze->prev[first + i], now = norms[first + i];
        change[i] = prev > 0 ? fabs(prev - now) / prev : now > 0 ? INFINITY : 0;
    }
    memcpy(change + active, change, (size_t)active * sizeof *change);
    threshold = median(change + active, active);
    for (l = 0; l < active - 1 && change[l] < threshold; l++)
        ;
    *decision = first + l + (freeze->spec->policy == FREEZE_RELATIVE_CHANGE);
    snprintf(reason, 160, "layer %d is the first whose norm changed by at least the median %.3g",
             first + l, threshold);
    free(change);
    return OK;
}

/* Advance plateau's memory by one epoch's norms; returns the end of the settled prefix. */
static int track_layers(const struct freeze *freeze, const double *norms, struct track *tracks)
{
    int first = freeze->num_frozen, settled = first, counted = 0;
    double mean = 0;
    for (int l = first; freeze->num_seen > 0 && l < freeze->num_layers; l++) {
        if (norms[l] > 0 && tracks[l].log_norm > -DBL_MAX) {
            mean += log(norms[l]) - tracks[l].log_norm;
            counted++;
        }
    }
    mean = counted ? mean / counted : 0;
    for (int l = first; l < freeze->num_layers; l++) {
        struct track *track = &tracks[l];
        double now = norms[l] > 0 ? log(norms[l]) : -DBL_MAX; /* no gradient at all: at rest */
        if (freeze->num_seen > 0) {
            bool both = norms[l] > 0 && track->log_norm > -DBL_MAX;
            double change = both ? now - track->log_norm - mean : 0;
            track->drift = PLATEAU_DECAY * track->drift + (1 - PLATEAU_DECAY) * change;
            track->path = PLATEAU_DECAY * track->path + (1 - PLATEAU_DECAY) * fabs(change);
            if (freeze->num_seen > 1) /* one change alone is always a drift */
                track->streak =
                    fabs(track->drift) <= PLATEAU_SETTLED * track->path ? track->streak + 1 : 0;
        }
        track->log_norm = now;
        if (settled == l && track->streak >= PLATEAU_PATIENCE)
            settled = l + 1;
    }
    return settled;
}

static int decide_plateau(const struct freeze *freeze, const double *norms, char reason[160])
{
    int first = freeze->num_frozen, cap = cap_of(freeze), settled;
    if (!norms) {
        snprintf(reason, 160, "no gradient norms: stay");
        return first;
    }
    settled = track_layers(freeze, norms, (struct track *)freeze->prev);
    if (settled == first && first < freeze->num_layers)
        snprintf(reason, 160, "layer %d still drifts, or is too young to tell", first);
    else
        snprintf(reason, 160, "layers below %d wander without drift, cap %d", settled, cap);
    return settled < cap ? settled : cap;
}

static enum status check_norms(const struct freeze *freeze, int epoch, const double *norms,
                               struct err *err)
{
    for (int l = 0; norms && l < freeze->num_layers; l++)
        if (!(norms[l] >= 0 && isfinite(norms[l])))
            return err_set(err, ERR_INPUT,
                           "gradient norm of layer %d before epoch %d must be finite and not "
                           "negative, got %g",
                           l, epoch, norms[l]);
    return OK;
}

/* Ask the policy, `epoch` epochs after the warm-up: *decision gets the number of layers to freeze, `why` the
 * reason. */
static enum status decide(struct freeze *freeze, int epoch, const double *norms, int *decision,
                          char why[160], struct err *err)
{
    const struct freeze_spec *spec = freeze->spec;
    enum status rc;
    switch (spec->policy) {
    case FREEZE_NONE:
    case FREEZE_TIMED:
    case FREEZE_APF:
        snprintf(why, 160, spec->policy == FREEZE_NONE ? "nothing freezes" : "no prefix freezes");
        break;
    case FREEZE_CLOSED_FORM:
        *decision = freeze_closed_form(freeze->num_layers, spec->alpha, epoch);
        snprintf(why, 160, "closed form, alpha %.4g: %d of %d layers after %s", spec->alpha,
                 *decision, freeze->num_layers, COUNT_TEXT(epoch, "epoch"));
        break;
    case FREEZE_GRADIENT_NORM:
        *decision = decide_gradient_norm(freeze, epoch, norms, why);
        break;
    case FREEZE_RELATIVE_CHANGE:
    case FREEZE_AUTOFREEZE:
        rc = decide_relative_change(freeze, norms, decision, why, err);
        if (rc != OK)
            return rc;
        if (norms)
            memcpy(freeze->prev, norms, (size_t)freeze->num_layers * sizeof *norms);
        break;
    case FREEZE_TABLE:
        *decision = table_at(spec, epoch);
        snprintf(why, 160, "table: %d", *decision);
        break;
    case FREEZE_PLATEAU:
        *decision = decide_plateau(freeze, norms, why);
        break;
    case FREEZE_SAFE:
        *decision = freeze_safe_decide(freeze, freeze->history, freeze->row, freeze_cap(freeze),
                                       &freeze->verdict);
        memcpy(why, freeze->verdict.reason, 160);
        break;
    case FREEZE_POLICY_COUNT:
        break;
    }
    return OK;
}

enum status freeze_decide(struct freeze *freeze, int epoch, const double *norms, int *num_frozen,
                          char reason[160], struct err *err)
{
    const struct freeze_spec *spec = freeze->spec;
    int decision = 0, limit = freeze->num_layers - spec->min_active;
    char why[160] = "";
    enum status rc;
    if (epoch < 0)
        return err_set(err, ERR_INPUT, "freeze: epoch must not be negative, got %d", epoch);
    rc = check_norms(freeze, epoch, norms, err);
    if (rc != OK)
        return rc;
    if (epoch < spec->warmup) {
        *num_frozen = 0;
        if (reason)
            snprintf(reason, 160, "warm-up: nothing freezes before epoch %d", spec->warmup);
        return OK;
    }
    rc = decide(freeze, epoch - spec->warmup, norms, &decision, why, err);
    if (rc != OK)
        return rc;
    if (norms)
        freeze->num_seen++;
    freeze->held = decision > limit;
    if (freeze->held) {
        size_t used = strlen(why);
        snprintf(why + used, sizeof why - used, "; held at %d, %d must stay active",
                 limit > freeze->num_frozen ? limit : freeze->num_frozen, spec->min_active);
        decision = limit;
    }
    if (decision < freeze->num_frozen && !may_thaw(spec->policy)) {
        size_t used = strlen(why);
        snprintf(why + used, sizeof why - used, "; stays at %d, nothing unfreezes",
                 freeze->num_frozen);
        decision = freeze->num_frozen;
    }
    freeze->num_frozen = decision;
    *num_frozen = decision;
    if (reason)
        memcpy(reason, why, sizeof why);
    return OK;
}

void freeze_bounds(const struct freeze *freeze, int epoch, int *least, int *most)
{
    const struct freeze_spec *spec = freeze->spec;
    const int now = freeze->num_frozen, limit = freeze->num_layers - spec->min_active;
    int low = now, high = now;
    if (epoch < spec->warmup) {
        *least = *most = 0;
        return;
    }
    epoch -= spec->warmup;
    switch (spec->policy) {
    case FREEZE_CLOSED_FORM:
        low = high = freeze_closed_form(freeze->num_layers, spec->alpha, epoch);
        break;
    case FREEZE_TABLE:
        low = high = table_at(spec, epoch);
        break;
    case FREEZE_GRADIENT_NORM:
        high = epoch > 0 ? cap_of(freeze) : now;
        break;
    case FREEZE_PLATEAU:
        high = cap_of(freeze);
        break;
    case FREEZE_RELATIVE_CHANGE:
    case FREEZE_AUTOFREEZE:
        high = freeze->num_seen > 0 ? freeze->num_layers : now;
        break;
    case FREEZE_SAFE:
        low = freeze->safe.pending ? freeze->safe.undo_to : now;
        high = spec->max_loss > 0 ? cap_of(freeze) : now;
        break;
    case FREEZE_NONE:
    case FREEZE_TIMED:
    case FREEZE_APF:
    case FREEZE_POLICY_COUNT:
        break;
    }
    low = low < limit ? low : limit;
    high = high < limit ? high : limit;
    const int floor = may_thaw(spec->policy) ? 0 : now; /* elsewhere nothing unfreezes */
    *least = low > floor ? low : floor;
    *most = high > floor ? high : floor;
}

int freeze_lowest(const struct freeze *freeze, int epoch)
{
    const struct freeze_spec *spec = freeze->spec;
    const int limit = freeze->num_layers - spec->min_active;
    int lowest = freeze->num_frozen, at = epoch > spec->warmup ? epoch - spec->warmup : 0;
    if (spec->policy == FREEZE_SAFE && freeze->safe.pending)
        return freeze->safe.undo_to;
    if (spec->policy != FREEZE_TABLE)
        return lowest;
    do {
        const int f = table_at(spec, at) < limit ? table_at(spec, at) : limit;
        lowest = f < lowest ? f : lowest;
    } while (++at < spec->num_table);
    return lowest;
}

enum status freeze_named_table(const char *name, int num_layers, int num_epochs,
                               struct freeze_spec *spec, struct err *err)
{
    static const char *const names[] = {"mild", "mild-early", "by_epoch", "linear"};
    enum { MILD, MILD_EARLY, BY_EPOCH, LINEAR, NUM_NAMES, NUM_MILD = 10 };
    static const int mild[NUM_MILD] = {0, 0, 6, 8, 8, 8, 10, 10, 12, 12};
    int which = 0, *table;
    while (which < NUM_NAMES && strcmp(names[which], name) != 0)
        which++;
    if (which == NUM_NAMES) {
        const char *near = nearest_name(name, names, NUM_NAMES);
        char list[64];
        enum status rc =
            err_set(err, ERR_INPUT, "unknown freeze table '%s'%s%s%s", name,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        err_hint(err, "tables: %s, or a JSON file",
                 join_names(names, NUM_NAMES, list, sizeof list));
        return rc;
    }
    if (num_layers < 1 || num_epochs < 1 || num_epochs > JOB_EPOCHS_MAX)
        return err_set(err, ERR_INPUT, "freeze table '%s' needs layers >= 1 and epochs 1..%d", name,
                       JOB_EPOCHS_MAX);
    table = malloc((size_t)num_epochs * sizeof *table);
    if (!table)
        return err_nomem(err);
    for (int e = 0; e < num_epochs; e++) {
        double frozen = which == BY_EPOCH               ? e
                        : which == LINEAR               ? ceil((e + 1) / 10.0 * num_layers)
                        : which == MILD_EARLY && e == 1 ? 6
                                                        : mild[e < NUM_MILD ? e : NUM_MILD - 1];
        table[e] = frozen < num_layers ? (int)frozen : num_layers;
    }
    free(spec->table);
    spec->policy = FREEZE_TABLE;
    spec->table = table;
    spec->num_table = num_epochs;
    return OK;
}
