/* cli/commands/cmd_balance.c - `elapse balance`: one cut of a model or of a list of sizes, exactly
 * or by the paper's greedy balancers or those of other frameworks. With --compress it also applies
 * the halving rule as layers freeze. Parts of the file: solving, input, output. Read run() at the
 * end first. */
#include "cli/base/command.h"

#include <stdlib.h>
#include <string.h>

#include "partition/plan/balance.h"
#include "partition/plan/balance_frameworks.h"
#include "partition/plan/cut_model.h"
#include "partition/base/units.h"
#include "profiles/job/job_json.h"
#include "profiles/cost/profile_cost.h"

/* Those of balance.h, then those of balance_frameworks.h. */
enum { NUM_OWN = 3, NUM_BALANCERS = NUM_OWN + NUM_FRAMEWORK_BALANCERS };
static const char *balancer_name(int which)
{
    return which < NUM_OWN ? balancer_kind_names[which] : framework_balancers[which - NUM_OWN].name;
}

struct request {
    const char *model_text, *sizes_text, *balancer_text, *by_text, *device_kind, *db_path;
    const char *cost_text;
    double efficiency;
    int64_t stages, frozen_layers, samples;
    bool compress, as_json;
    enum balancer_kind balancer;
    const struct framework_balancer *framework; /* in place of `balancer`; NULL: none */
    bool by_time;
};

/* The chain to cut: forward and backward time or parameters of each item, including frozen ones. */
struct chain {
    struct model model; /* owned; empty with --sizes */
    int num_items, num_layers;
    int64_t *sizes;     /* owned: parameters, ns, or as given */
    int64_t *truncated; /* owned: times of items that need no input gradient; NULL: not --by time */
    struct cut_time *times;  /* owned: times by pass; NULL: not --by time */
    double *greedy;          /* owned: sizes in millions, or as given */
    const char *unit;        /* "parameters", "ns" or "" */
    const char *cost_source; /* NULL without --by time */
    char cost_label[96], cost_note[COST_NOTE_BYTES];
    bool extrapolated;
};

static void chain_clear(struct chain *chain)
{
    model_clear(&chain->model);
    free(chain->sizes);
    free(chain->truncated);
    free(chain->times);
    free(chain->greedy);
    *chain = (struct chain){0};
}

static int frozen_items(const struct chain *chain, int frozen_layers)
{
    return chain->model.num_items ? model_frozen_items(&chain->model, frozen_layers)
                                  : frozen_layers;
}

/* One answer: a cut, its stages and the largest of them. */
struct answer {
    int stages, first_item; /* items [0, first_item) are outside the cut */
    int *count;             /* owned, stages */
    int64_t *size;          /* owned, stages */
    int64_t max;
    double discounted_max; /* the largest stage as the halving rule counts it */
};

static void answer_clear(struct answer *answer)
{
    free(answer->count);
    free(answer->size);
    *answer = (struct answer){0};
}

/* Sum the items of each stage in the chain's unit. The first active item has no backward-input. */
static void measure(const struct chain *chain, int frozen, struct answer *answer)
{
    int at = answer->first_item;
    for (int k = 0; k < answer->stages; k++) {
        answer->size[k] = 0;
        for (int i = 0; i < answer->count[k]; i++, at++)
            answer->size[k] += chain->truncated && frozen > 0 && at == frozen ? chain->truncated[at]
                                                                              : chain->sizes[at];
        if (k == 0 || answer->size[k] > answer->max)
            answer->max = answer->size[k];
    }
}

static enum status solve_optimal(const struct chain *chain, int frozen, struct answer *answer,
                                 struct err *err)
{
    struct cut cut = {0};
    int64_t *active = NULL;
    int n = chain->num_items - frozen;
    enum status rc;
    if (n < 1)
        return err_set(err, ERR_INFEASIBLE, "cannot cut 0 items into %d stages: all are frozen",
                       answer->stages);
    active = malloc((size_t)n * sizeof *active);
    if (!active)
        return err_nomem(err);
    memcpy(active, chain->sizes + frozen, (size_t)n * sizeof *active);
    if (chain->truncated && frozen > 0)
        active[0] = chain->truncated[frozen];
    rc = cut_sizes(active, n, answer->stages, &cut, err);
    for (int k = 0; rc == OK && k < answer->stages; k++)
        answer->count[k] = cut.first_item[k + 1] - cut.first_item[k];
    free(active);
    cut_clear(&cut);
    return rc;
}

static enum status solve_greedy(const struct chain *chain, enum balancer_kind balancer, int frozen,
                                struct answer *answer, struct err *err)
{
    double *load = malloc((size_t)answer->stages * sizeof *load);
    enum status rc;
    if (!load)
        return err_nomem(err);
    rc = balance_greedy(balancer, chain->greedy, chain->num_items, frozen, answer->stages,
                        answer->count, load, err);
    if (rc == OK)
        answer->discounted_max = balance_max(balancer, chain->greedy, frozen, answer->stages, load);
    free(load);
    return rc;
}

/* What a framework cuts: an item of --sizes; of a model a layer, what comes before the layers and what
 * comes after them. */
static int unit_end(const struct chain *chain, int first)
{
    const struct item *items = chain->model.items;
    int end = first + 1;
    while (items && end < chain->num_items && items[end].layer == items[first].layer)
        end++;
    return end;
}

static enum status solve_framework(const struct chain *chain, const struct framework_balancer *by,
                                   struct answer *answer, struct err *err)
{
    const struct item *items = by->only_layers ? chain->model.items : NULL;
    const int K = answer->stages;
    int n = 0, at = 0;
    double *sizes = calloc((size_t)chain->num_items, sizeof *sizes);
    int *length = calloc((size_t)chain->num_items, sizeof *length); /* items of a unit */
    enum status rc = sizes && length ? OK : err_nomem(err);
    for (int i = 0; rc == OK && i < chain->num_items;) {
        const int end = unit_end(chain, i);
        const bool apart = items && (items[i].layer < 0 || items[i].layer >= chain->num_layers);
        for (; i < end; i++, length[n]++)
            sizes[n] += (double)chain->sizes[i];
        if (!apart)
            n++;
        else if (n > 0) /* the head goes with the last layer */
            length[n - 1] += length[n];
    } /* the embedding has stayed in the first unit */
    THEN(by->cut(sizes, n, K, answer->count, err));
    for (int k = 0; rc == OK && k < K; k++) {
        int count = 0;
        for (int i = 0; i < answer->count[k]; i++)
            count += length[at++];
        answer->count[k] = count;
    }
    free(sizes);
    free(length);
    return rc;
}

/* Cut the chain with its first `frozen` items frozen into `stages`. */
static enum status solve(const struct request *q, const struct chain *chain, int frozen, int stages,
                         struct answer *answer, struct err *err)
{
    struct answer got = {.stages = stages,
                         .first_item = q->balancer == BALANCER_PAPER ? 0 : frozen};
    enum status rc;
    if (stages > chain->num_items - got.first_item)
        return err_set(err, ERR_INFEASIBLE, "cannot cut %s into %s",
                       COUNT_TEXT(chain->num_items - got.first_item, "item"),
                       COUNT_TEXT(stages, "stage"));
    got.count = malloc((size_t)stages * sizeof *got.count);
    got.size = malloc((size_t)stages * sizeof *got.size);
    if (!got.count || !got.size) {
        rc = err_nomem(err);
        goto out;
    }
    rc = q->framework                      ? solve_framework(chain, q->framework, &got, err)
         : q->balancer == BALANCER_OPTIMAL ? solve_optimal(chain, frozen, &got, err)
                                           : solve_greedy(chain, q->balancer, frozen, &got, err);
    if (rc != OK)
        goto out;
    measure(chain, frozen, &got);
    if (q->balancer == BALANCER_OPTIMAL)
        got.discounted_max = (double)got.max;
    *answer = got;
    got = (struct answer){0};
out:
    answer_clear(&got);
    return rc;
}

/* The halving rule for any balancer: halve K while half as many stages stay within the budget. */
static enum status halve(const struct request *q, const struct chain *chain, int frozen,
                         double budget, int *stages, struct err *err)
{
    if (q->balancer != BALANCER_OPTIMAL)
        return balance_compress(q->balancer, chain->greedy, chain->num_items, frozen, budget,
                                stages, err);
    for (; *stages >= 2; *stages /= 2) {
        struct answer half = {0};
        bool within;
        enum status rc;
        if (*stages / 2 > chain->num_items - frozen)
            continue; /* there are more stages than items */
        rc = solve(q, chain, frozen, *stages / 2, &half, err);
        if (rc != OK)
            return rc;
        within = half.discounted_max <= budget;
        answer_clear(&half);
        if (!within)
            break;
    }
    return OK;
}

/* --- input ------------------------------------------------------------------------------------ */

static enum status load_sizes(const struct request *q, struct chain *chain, struct err *err)
{
    enum status rc = parse_int_list(q->sizes_text, "--sizes", 0, INT64_MAX, &chain->sizes,
                                    &chain->num_items, err);
    if (rc != OK)
        return rc;
    chain->num_layers = chain->num_items;
    chain->unit = "";
    chain->greedy = malloc((size_t)chain->num_items * sizeof *chain->greedy);
    if (!chain->greedy)
        return err_nomem(err);
    for (int i = 0; i < chain->num_items; i++)
        chain->greedy[i] = (double)chain->sizes[i];
    return OK;
}

static enum status time_items(const struct request *q, struct chain *chain, struct err *err)
{
    struct cluster cluster = {0};
    struct cost_handle handle = {0};
    char text[64];
    bool extrapolated = false;
    enum status rc;
    snprintf(text, sizeof text, "%.40s-1x1", q->device_kind);
    if (cluster_load(text, &cluster, NULL) != OK) {
        char kinds[160];
        const char *const *names = shipped_kind_names;
        int n = 0;
        while (names[n])
            n++;
        rc = err_set(err, ERR_INPUT, "--device-kind: unknown kind '%.40s'", q->device_kind);
        err_hint(err, "kinds: %s", join_names(names, n, kinds, sizeof kinds));
        return rc;
    }
    struct cost_query query = cost_query_of_model(&chain->model);
    query.efficiency = q->efficiency;
    rc = cost_efficiency_check(q->efficiency, err);
    if (rc == OK && q->cost_text)
        rc = cost_choice_parse(q->cost_text, &query.choice, err);
    THEN(cost_choose_for(q->db_path, &chain->model, &cluster, &query, &handle, err));
    const struct setting setting = {&chain->model, &cluster, &handle.cost};
    const struct cut_device on = {&cluster.devices[0], q->samples, -1};
    THEN(cut_times(&setting, &on, 0, chain->times, &extrapolated, err));
    for (int i = 0; rc == OK && i < chain->num_items; i++) {
        const struct cut_time *time = &chain->times[i];
        int64_t sum;
        if (!add_ok(time->fwd_ns, time->bwd_weight_ns, &sum) ||
            !add_ok(sum, time->bwd_input_ns, &chain->sizes[i]) ||
            !add_ok(sum, time->bwd_rest_ns, &chain->truncated[i]))
            rc = err_set(err, ERR_INPUT, "the time of item %d overflows", i);
    }
    chain->cost_source = cost_source_name(handle.cost.source);
    chain->extrapolated = extrapolated;
    memcpy(chain->cost_label, handle.cost.label, sizeof chain->cost_label);
    memcpy(chain->cost_note, handle.note, sizeof chain->cost_note);
    cost_handle_clear(&handle);
    cluster_clear(&cluster);
    return rc;
}

static enum status load_model(const struct request *q, struct chain *chain, struct err *err)
{
    enum status rc = model_load(q->model_text, &chain->model, err);
    if (rc != OK)
        return rc;
    chain->num_items = chain->model.num_items;
    chain->num_layers = chain->model.num_layers;
    chain->unit = q->by_time ? "ns" : "parameters";
    chain->sizes = calloc((size_t)chain->num_items, sizeof *chain->sizes);
    chain->greedy = calloc((size_t)chain->num_items, sizeof *chain->greedy);
    chain->truncated =
        q->by_time ? calloc((size_t)chain->num_items, sizeof *chain->truncated) : NULL;
    chain->times = q->by_time ? calloc((size_t)chain->num_items, sizeof *chain->times) : NULL;
    if (!chain->sizes || !chain->greedy || (q->by_time && (!chain->truncated || !chain->times)))
        return err_nomem(err);
    for (int i = 0; i < chain->num_items; i++)
        chain->sizes[i] = chain->model.items[i].params;
    if (q->by_time && (rc = time_items(q, chain, err)) != OK)
        return rc;
    for (int i = 0; i < chain->num_items; i++)
        chain->greedy[i] = (double)chain->sizes[i] / 1e6;
    return OK;
}

static enum status check_total(const struct chain *chain, struct err *err)
{
    int64_t total = 0;
    for (int i = 0; i < chain->num_items; i++)
        if (!add_ok(total, chain->sizes[i], &total))
            return err_set(err, ERR_INPUT, "the sum of the sizes overflows at item %d", i);
    return OK;
}

static enum status pick(const char *option, const char *text, const char *const *names, int n,
                        int *which, struct err *err)
{
    const char *near;
    for (int i = 0; i < n; i++) {
        if (strcmp(text, names[i]) == 0) {
            *which = i;
            return OK;
        }
    }
    near = nearest_name(text, names, n);
    return err_set(err, ERR_INPUT, "%s must be %s%s%s or %s, got '%s'%s%s%s", option,
                   n > 2 ? names[0] : "", n > 2 ? ", " : "", names[n - 2], names[n - 1], text,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static enum status pick_balancer(struct request *q, struct err *err)
{
    const char *names[NUM_BALANCERS];
    int which = 0;
    for (int i = 0; i < NUM_BALANCERS; i++)
        names[i] = balancer_name(i);
    enum status rc = pick("--balancer", q->balancer_text, names, NUM_BALANCERS, &which, err);
    if (rc != OK)
        return rc;
    if (which < NUM_OWN)
        q->balancer = (enum balancer_kind)which;
    else
        q->framework = &framework_balancers[which - NUM_OWN];
    if (q->framework && (q->frozen_layers > 0 || q->compress))
        return err_set(err, ERR_INPUT,
                       "balancer '%s' knows no frozen layers: no --frozen, no --compress",
                       q->framework->name);
    return OK;
}

/* --- output ----------------------------------------------------------------------------------- */

static void add_cut(struct json *json, const struct answer *answer)
{
    struct json *cut = json_add_array(json, "cut"), *sizes;
    for (int k = 0; k < answer->stages; k++)
        json_add_int(cut, NULL, answer->count[k]);
    sizes = json_add_array(json, "sizes");
    for (int k = 0; k < answer->stages; k++)
        json_add_int(sizes, NULL, answer->size[k]);
    json_add_int(json, "max", answer->max);
}

static void print_cut(const struct answer *answer)
{
    for (int k = 0; k < answer->stages; k++)
        printf("%s%d", k ? "," : "", answer->count[k]);
}

static void print_text(const struct request *q, const struct chain *chain,
                       const struct answer *answer, int64_t budget, int64_t exact)
{
    int at = answer->first_item;
    printf("%s cut of %s into %s", q->balancer_text,
           COUNT_TEXT(chain->num_items - answer->first_item, "item"),
           COUNT_TEXT(answer->stages, "stage"));
    if (q->by_time)
        printf(" by time (%s%s)", chain->cost_source, chain->extrapolated ? ", extrapolated" : "");
    printf("\n\n");
    printf("%5s  %5s  %11s  %18s\n", "stage", "items", "range",
           chain->unit[0] ? chain->unit : "size");
    for (int k = 0; k < answer->stages; k++) {
        char range[32] = "empty";
        if (answer->count[k])
            snprintf(range, sizeof range, "%d..%d", at, at + answer->count[k] - 1);
        at += answer->count[k];
        printf("%5d  %5d  %11s  %18lld%s\n", k, answer->count[k], range, (long long)answer->size[k],
               answer->size[k] == answer->max ? "  <- largest" : "");
    }
    if (q->compress)
        printf("\nbudget (largest stage at %s, nothing frozen): %lld\n",
               COUNT_TEXT(q->stages, "stage"), (long long)budget);
    if (q->framework)
        printf("\nas %s; the exact cut's largest stage: %lld (%.1f %% less)\n",
               q->framework->source, (long long)exact,
               answer->max > 0 ? 100 - 100.0 * (double)exact / (double)answer->max : 0);
}

/* The keys of an answer that say what was asked. */
static struct json *start_json(const struct command *command, const struct request *q,
                               const struct chain *chain)
{
    struct json *json = command_json(command);
    json_add_string(json, "model", q->sizes_text ? "" : chain->model.name);
    json_add_string(json, "balancer", q->balancer_text);
    if (q->framework)
        json_add_string(json, "balancer_source", q->framework->source);
    json_add_string(json, "by", q->by_time ? "time" : q->sizes_text ? "sizes" : "params");
    if (q->by_time) {
        json_add_string(json, "cost_source", chain->cost_source);
        json_add_string(json, "cost_label", chain->cost_label);
        json_add_bool(json, "extrapolated", chain->extrapolated);
        json_add_string(json, "cost_note", chain->cost_note);
    }
    json_add_int(json, "frozen_layers", q->frozen_layers);
    if (q->compress)
        json_add_int(json, "initial_stages", q->stages);
    return json;
}

/* --compress: halve *stages for F = 1, 2, ... as far as the budget allows. Each step is printed, or
 * added to json with --json. */
static enum status compress(const struct request *q, const struct chain *chain, double budget,
                            int *stages, struct json *json, struct err *err)
{
    struct json *steps = q->as_json ? json_add_array(json, "steps") : NULL;
    enum status rc = OK;
    if (!q->as_json)
        printf("%6s  %6s  %s\n", "frozen", "stages", "items a stage");
    for (int f = 1; rc == OK && f <= q->frozen_layers; f++) {
        struct answer answer = {0};
        int now = frozen_items(chain, f);
        rc = halve(q, chain, now, budget, stages, err);
        THEN(solve(q, chain, now, *stages, &answer, err));
        if (rc == OK && q->as_json) {
            struct json *step = json_add_object(steps, NULL);
            json_add_int(step, "frozen_layers", f);
            json_add_int(step, "stages", *stages);
            add_cut(step, &answer);
        } else if (rc == OK) {
            printf("%6d  %6d  ", f, *stages);
            print_cut(&answer);
            putchar('\n');
        }
        answer_clear(&answer);
    }
    if (rc == OK && !q->as_json)
        putchar('\n');
    return rc;
}

static enum status run_request(const struct command *command, const struct request *q,
                               const struct chain *chain, struct err *err)
{
    /* Greedy balancers count a model's parameters in millions, but --sizes as given. */
    const double scale = q->balancer == BALANCER_OPTIMAL || q->sizes_text ? 1 : 1e6;
    struct answer answer = {0}, start = {0}, exact = {0};
    const struct request optimal = {.balancer = BALANCER_OPTIMAL};
    int stages = (int)q->stages, frozen = frozen_items(chain, (int)q->frozen_layers);
    enum status rc = solve(q, chain, 0, stages, &start, err);
    if (rc != OK)
        return rc;
    struct json *json = q->as_json ? start_json(command, q, chain) : NULL;
    if (q->compress)
        rc = compress(q, chain, start.discounted_max, &stages, json, err);
    THEN(solve(q, chain, frozen, stages, &answer, err));
    if (q->framework)
        THEN(solve(&optimal, chain, 0, stages, &exact, err));
    if (rc == OK && q->as_json) {
        json_add_int(json, "stages", stages);
        json_add_int(json, "first_item", answer.first_item);
        add_cut(json, &answer);
        if (q->balancer == BALANCER_PAPER)
            json_add_double(json, "discounted_max", answer.discounted_max * scale);
        json_add_int(json, "budget", start.max);
        if (q->framework)
            json_add_int(json, "optimal_max", exact.max);
        rc = command_answer(json, err);
        json = NULL;
    } else if (rc == OK)
        print_text(q, chain, &answer, start.max, exact.max);
    json_free(json);
    answer_clear(&start);
    answer_clear(&answer);
    answer_clear(&exact);
    return rc;
}

/* Options that need other options. */
struct seen {
    bool device, samples, db;
};

static enum status check_options(const struct request *q, const struct seen *seen, struct err *err)
{
    const struct {
        const char *name, *wanted;
        bool given, fits;
    } rules[] = {
        {"--device-kind", "--by time", seen->device,  q->by_time},
        {"--microbatch",  "--by time", seen->samples, q->by_time},
        {"--db",          "--by time", seen->db,      q->by_time},
    };
    if (q->by_time && q->sizes_text)
        return err_set(err, ERR_INPUT, "balance: --by time needs a MODEL, not --sizes");
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].given && !rules[i].fits)
            return err_set(err, ERR_INPUT, "balance: %s goes with %s", rules[i].name,
                           rules[i].wanted);
    return OK;
}

static enum status balance(const struct command *command, struct request *q,
                           const struct seen *seen, struct err *err)
{
    static const char *const by_names[] = {"params", "time"};
    struct chain chain = {0};
    int which = 0;
    enum status rc = pick_balancer(q, err);
    THEN(pick("--by", q->by_text, by_names, 2, &which, err));
    q->by_time = rc == OK && which == 1;
    THEN(check_options(q, seen, err));
    THEN(q->sizes_text ? load_sizes(q, &chain, err) : load_model(q, &chain, err));
    THEN(check_total(&chain, err));
    if (rc == OK && q->frozen_layers > chain.num_layers)
        rc = err_set(err, ERR_INFEASIBLE, "--frozen must be 0..%d, got %lld", chain.num_layers,
                     (long long)q->frozen_layers);
    if (rc == OK && chain.cost_note[0] && !q->as_json)
        fprintf(stderr, "elapse: note: %s\n", chain.cost_note);
    THEN(run_request(command, q, &chain, err));
    chain_clear(&chain);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    bool stages_seen = false;
    struct request q = {.balancer_text = "optimal",
                        .by_text = "params",
                        .device_kind = "rtx5000",
                        .samples = 16,
                        .efficiency = 1};
    struct seen seen = {0};
    const struct option options[] = {
        OPTION("stages", INT, &q.stages, "K", "stages to cut into", .min = 1, .max = INT32_MAX,
               .seen = &stages_seen), /* more stages than items are refused before allocating */
        OPTION("frozen", INT, &q.frozen_layers, "F",
               "frozen transformer layers (default 0); left out of the cut by optimal and "
               "released, pinned to stage 0 by paper. With --sizes: leading sizes",
               .max = INT32_MAX),
        OPTION("balancer", STRING, &q.balancer_text, "NAME", "%s (default optimal)",
               .values = "optimal released paper deepspeed torchgpipe pytorch megatron"),
        OPTION("by", STRING, &q.by_text, "WHAT",
               "what to balance: %s (default params; time: forward and backward of a micro-batch)",
               .values = "params time"),
        OPTION("compress", FLAG, &q.compress, NULL,
               "K is the initial length: halve it stepwise for F = 1, 2, ... up to --frozen"),
        OPTION("sizes", STRING, &q.sizes_text, "S,S,...", "cut these sizes instead of a model"),
        OPTION("device-kind", STRING, &q.device_kind, "DEVICE",
               "with --by time: the device (default rtx5000)", .seen = &seen.device),
        OPTION("microbatch", INT, &q.samples, "N",
               "with --by time: samples of a micro-batch (default 16)", .min = 1, .max = INT32_MAX,
               .seen = &seen.samples),
        OPTION("cost", STRING, &q.cost_text, "NAME",
               "with --by time: source of times, %s (default auto; roofline is ideal)",
               .names = cost_choice_names),
        OPTION("efficiency", RATIO, &q.efficiency, "X",
               "with --by time: speed of kernels or roofline, more than 0 to 10 (default 1)"),
        OPTION("db", STRING, &q.db_path, "FILE", "with --by time: the profile store",
               .seen = &seen.db),
        OPTION_JSON(&q.as_json),
    };
    struct command_line line = COMMAND_LINE(options, 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    q.model_text = line.positional[0];
    if (!stages_seen || (line.num_positional == 0) == !q.sizes_text) {
        rc = err_set(err, ERR_INPUT, "balance: %s",
                     !stages_seen               ? "--stages is missing"
                     : line.num_positional == 0 ? "MODEL or --sizes is missing"
                                                : "MODEL and --sizes exclude each other");
        err_hint(err, "for example: elapse balance vit-b16 --stages 8");
        return rc;
    }
    return balance(command, &q, &seen, err);
}

const struct command command_balance = {.name = "balance",
                                        .args = "MODEL --stages K [options]",
                                        .summary = "cut a model, or a list of sizes, into stages",
                                        .takes = "MODEL",
                                        .run = run};
