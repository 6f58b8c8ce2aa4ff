/* `elapse sim --step --explain` and `--monte-carlo`: the parts of a step's time, how much each
 * resource changes it, and how far it varies. Sensitivities come from simulating the step again
 * with one thing changed. */
#include <stdlib.h>

#include "cli/simulate/sim_command.h"
#include "partition/step/lower.h"
#include "partition/base/units.h"
#include "sim/step/critical.h"

/* Simulate the answer's plan on another cluster or with a changed workload. Sets only *step_ns. */
static enum status step_on(const struct step_answer *a, const struct cluster *cluster, int stage,
                           double factor, const struct sim_options *options, int64_t *step_ns,
                           struct err *err)
{
    struct workload workload = {0};
    struct schedule full = {0};
    struct sim_result result = {0};
    struct sim_options quiet = *options;
    quiet.record_ops = false;
    const struct setting setting = {&a->model, cluster, &a->cost.cost};
    enum status rc = plan_lower_to_simulate(&setting, &a->plan, &workload, &full, err);
    const int64_t num_costs = (int64_t)workload.num_classes * workload.num_stages;
    for (int64_t i = stage; rc == OK && stage >= 0 && i < num_costs;
         i += workload.num_stages) { /* in all classes */
        struct stage_cost *cost = &workload.stages[i];
        for (int kind = 0; kind <= OP_Z; kind++)
            for (int mb = 0; mb < MB_SIZES; mb++)
                cost->op_ns[kind][mb] = (int64_t)((double)cost->op_ns[kind][mb] * factor + 0.5);
        for (int back = 0; back < 2; back++)
            for (int mb = 0; mb < MB_SIZES; mb++)
                cost->hidden_ns[back][mb] =
                    (int64_t)((double)cost->hidden_ns[back][mb] * factor + 0.5);
        cost->whole_batch_ns[0] = (int64_t)((double)cost->whole_batch_ns[0] * factor + 0.5);
    }
    THEN(sim_step(&full, &workload, &a->plan, &quiet, &result, err));
    if (rc == OK)
        *step_ns = result.step_ns;
    workload_clear(&workload);
    schedule_clear(&full);
    sim_result_clear(&result);
    return rc;
}

/* By how many percent the step gets shorter for each percent that a resource grows. */
static double per_percent(int64_t before, int64_t after, double percent)
{
    return before > 0 ? 100.0 * (double)(before - after) / (double)before / percent : 0;
}

#define NUDGE_PERCENT 1.0

enum part { PART_LINK, PART_UPLINK, PART_LATENCY, PART_HOST_OP, NUM_PARTS };

static void shorten(int64_t *ns)
{
    *ns = (int64_t)((double)*ns * (1 - NUDGE_PERCENT / 100));
}

/* Make one part of the cluster faster by NUDGE_PERCENT. */
static void improve(struct cluster *cluster, enum part part)
{
    const double more = 1 + NUDGE_PERCENT / 100;
    switch (part) {
    case PART_LINK:
        for (int d = 0; d < cluster->num_devices; d++)
            cluster->devices[d].link_bytes_per_s *= more;
        break;
    case PART_UPLINK:
        for (int n = 0; n < cluster->num_nodes; n++)
            cluster->uplink_bytes_per_s[n] *= more;
        cluster->pod_uplink_bytes_per_s *= more;
        break;
    case PART_LATENCY:
        shorten(&cluster->link_latency_ns);
        shorten(&cluster->uplink_latency_ns);
        shorten(&cluster->pod_latency_ns);
        break;
    case PART_HOST_OP:
        shorten(&cluster->host_op_ns);
        break;
    case NUM_PARTS:
        break;
    }
}

static enum status sensitivity(const struct sim_args *args, const struct step_answer *a,
                               struct json *json, struct err *err)
{
    const struct sim_options *options = &args->request.options;
    struct cluster changed = {0};
    int64_t before = a->result.step_ns, after = before;
    struct json *object = json ? json_add_object(json, "sensitivity") : NULL;
    enum status rc = cluster_copy(&a->cluster, &changed, err);
    static const char *const names[NUM_PARTS] = {"link", "uplink", "latency", "host_op"};
    if (!json)
        printf("sensitivity: step time saved per 1 %% faster\n");
    for (int what = 0; what < NUM_PARTS && rc == OK; what++) {
        cluster_clear(&changed);
        rc = cluster_copy(&a->cluster, &changed, err);
        improve(&changed, (enum part)what);
        THEN(step_on(a, &changed, -1, 1, options, &after, err));
        if (rc != OK)
            break;
        double gain = per_percent(before, after, NUDGE_PERCENT);
        if (json)
            json_add_double(object, names[what], gain);
        else
            printf("  %-8s %7.4f %%\n", names[what], gain);
    }
    struct json *stages = json && rc == OK ? json_add_array(object, "stages") : NULL;
    for (int s = 0; s < a->plan.num_stages && s < 256 && rc == OK; s++) {
        rc = step_on(a, &a->cluster, s, 1 - NUDGE_PERCENT / 100, options, &after, err);
        if (rc != OK)
            break;
        double gain = per_percent(before, after, NUDGE_PERCENT);
        if (json)
            json_add_double(stages, NULL, gain);
        else
            printf("  stage %-2d %7.4f %%\n", s, gain);
    }
    cluster_clear(&changed);
    return rc;
}

static enum status critical(const struct step_answer *a, struct json *json, struct err *err)
{
    struct critical_path path = {0};
    enum status rc = critical_path_find(&a->result, &a->full, &a->workload, &path, err);
    if (rc != OK)
        return rc;
    char text[32];
    if (json) {
        struct json *object = json_add_object(json, "critical_path");
        json_add_int(object, "transfer_ns", path.transfer_ns);
        json_add_int(object, "allreduce_ns", path.allreduce_ns);
        json_add_int(object, "host_ns", path.host_ns);
        json_add_int64s(object, "stage_ns", path.stage_ns, path.num_stages);
        struct json *ops = json_add_array(object, "ops");
        for (int64_t i = 0; i < path.num_ops; i++) {
            const struct sim_op *x = &a->result.ops[path.ops[i]];
            struct json *op = json_add_object(ops, NULL);
            json_add_string(op, "op", op_kind_name((enum op_kind)x->op.kind));
            json_add_int(op, "stage", x->op.stage);
            json_add_int(op, "microbatch", x->op.microbatch);
            json_add_int(op, "replica", x->replica);
            json_add_int(op, "rank", x->rank);
            json_add_int(op, "start_ns", x->start_ns);
            json_add_int(op, "end_ns", x->end_ns);
        }
    } else {
        printf("critical path, %s: ", COUNT_TEXT(path.num_ops, "op"));
        for (int s = 0; s < path.num_stages; s++)
            if (path.stage_ns[s] > 0)
                printf("stage %d %s, ", s, format_ns(path.stage_ns[s], text, sizeof text));
        printf("transfers %s, ", format_ns(path.transfer_ns, text, sizeof text));
        printf("all-reduce %s, ", format_ns(path.allreduce_ns, text, sizeof text));
        printf("host %s\n", format_ns(path.host_ns, text, sizeof text));
    }
    critical_path_clear(&path);
    return OK;
}

/* The q-quantile of n sorted values by the nearest-rank method. */
static int64_t quantile(const int64_t *sorted, int64_t n, double q)
{
    int64_t at = (int64_t)(q * (double)(n - 1) + 0.5);
    return sorted[at];
}

/* Build the plan's workloads from the 10th and the 90th percentile of the profile's times. */
static enum status spread_workloads(const struct sim_args *args, const struct step_answer *a,
                                    struct workload side[2], struct err *err)
{
    enum status rc = OK;
    for (int i = 0; i < 2 && rc == OK; i++) {
        struct cost_handle handle = {0};
        struct cost_query query = a->query;
        query.spread = i ? 1 : -1;
        rc = cost_choose_for(args->request.db_path, &a->model, &a->cluster, &query, &handle, err);
        handle.cost.cache_read_ns = a->cost.cost.cache_read_ns;
        handle.cost.cache_write_ns = a->cost.cost.cache_write_ns;
        const struct setting setting = {&a->model, &a->cluster, &handle.cost};
        THEN(workload_build(&setting, &a->plan, a->full.rank_of_stage, &side[i], err));
        THEN(workload_near(&a->plan, &a->full, &side[i], err));
        cost_handle_clear(&handle);
    }
    return rc;
}

enum status sim_monte_carlo(const struct sim_args *args, const struct step_answer *a,
                            struct step_spread *found, struct err *err)
{
    int64_t n = args->monte_carlo;
    bool spread = cost_is_measured(&a->cost.cost) && a->cost.spread > 0;
    struct workload side[2] = {{0}};
    if (args->request.options.jitter <= 0 && !spread) {
        err_set(err, ERR_INPUT, "costs (%s) have no spread: --monte-carlo needs --jitter above 0",
                a->cost.cost.label);
        err_hint(err, "'elapse profile' measures spreads");
        return ERR_INPUT;
    }
    int64_t *steps = malloc((size_t)n * sizeof *steps);
    if (!steps)
        return err_nomem(err);
    enum status rc = spread ? spread_workloads(args, a, side, err) : OK;
    struct sim_options options = args->request.options;
    options.record_ops = false;
    if (spread) {
        options.low = &side[0];
        options.high = &side[1];
    }
    for (int64_t i = 0; i < n && rc == OK; i++) {
        struct sim_result result = {0};
        options.seed = args->request.options.seed + (uint64_t)i;
        rc = sim_step(&a->full, &a->workload, &a->plan, &options, &result, err);
        steps[i] = result.step_ns;
        sim_result_clear(&result);
    }
    if (rc == OK) {
        qsort(steps, (size_t)n, sizeof *steps, compare_int64);
        *found = (struct step_spread){.median_ns = quantile(steps, n, 0.5),
                                      .p05_ns = quantile(steps, n, 0.05),
                                      .p95_ns = quantile(steps, n, 0.95),
                                      .profile = spread};
    }
    workload_clear(&side[0]);
    workload_clear(&side[1]);
    free(steps);
    return rc;
}

static void put_spread(const struct sim_args *args, const struct step_answer *a,
                       const struct step_spread *spread, struct json *json)
{
    const double jitter = args->request.options.jitter;
    if (json) {
        struct json *object = json_add_object(json, "monte_carlo");
        json_add_int(object, "steps", args->monte_carlo);
        json_add_string(object, "spread", spread->profile ? "profile" : "none");
        json_add_double(object, "jitter", jitter);
        json_add_int(object, "median_ns", spread->median_ns);
        json_add_int(object, "p05_ns", spread->p05_ns);
        json_add_int(object, "p95_ns", spread->p95_ns);
        return;
    }
    char median[32], low[32], high[32];
    printf("%s with", COUNT_TEXT(args->monte_carlo, "step"));
    if (spread->profile)
        printf(" the profile's spread (p90 - p10 is %.1f %% of the median)%s", 100 * a->cost.spread,
               jitter > 0 ? " and" : "");
    if (jitter > 0)
        printf(" jitter %g", jitter);
    printf(": median %s, 5..95 %%: %s .. %s\n", format_ns(spread->median_ns, median, sizeof median),
           format_ns(spread->p05_ns, low, sizeof low),
           format_ns(spread->p95_ns, high, sizeof high));
}

enum status sim_explain(const struct sim_args *args, struct step_answer *answer,
                        const struct step_spread *spread, struct json *json, struct err *err)
{
    enum status rc = OK;
    if (args->explain) {
        rc = critical(answer, json, err);
        THEN(sensitivity(args, answer, json, err));
    }
    if (rc == OK && args->monte_carlo > 0)
        put_spread(args, answer, spread, json);
    return rc;
}
