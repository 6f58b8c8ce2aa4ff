/* `elapse sim JOB --faults`, or of a job with cluster.faults: when is the run done on a cluster
 * that loses nodes?
 *
 * elastic_run() gives the turns of the run, once for each number of nodes; fault_run() loses nodes in
 * them, once for each seed. Read sim_faults() at the end first. */
#include "cli/faults/sim_faults.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/fault_trace.h"
#include "cli/base/threads.h"
#include "cli/faults/restart_times.h"
#include "cli/plans/band_show.h"
#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/base/whole_file.h"
#include "profiles/json/fields.h"
#include "sim/faults/fault_run.h"

enum { AUTO_SEEDS = 200 };

/* The keys of --faults. */
struct faults_text {
    struct fault_setting set;
    int min_nodes; /* the smallest number of nodes that shrink plans for */
    int policy;
    int64_t checkpoint_bytes;
    double storage;
    char *trace, *trace_steps, *run; /* owned */
};

static const char *const policies[] = {"restart", "shrink", "spare", NULL};
/* clang-format off */
#define RATE(key, help) MEMBER(faults_text, #key, REAL, set.key, help, .max = 1000000)
#define TIME(key, member, help) MEMBER(faults_text, key, NS, set.member, help)
#define COUNT(key, member, least, help) \
    MEMBER(faults_text, key, INT, member, help, .min = (least), .max = 1 << 20)
static const struct member faults_fields[] = {
    MEMBER(faults_text, "policy", NAME, policy, "after a loss [restart]", .names = policies),
    RATE(device_per_hour, "losses of a device"),
    RATE(node_per_hour, "losses of a node"),
    RATE(link_per_hour, "losses of a node's link"),
    RATE(rack_per_hour, "losses of a rack"),
    RATE(slow_per_hour, "devices that become slow, per device"),
    MEMBER(faults_text, "slow_speed", REAL, set.slow_speed, "of a slow device", .max = 1),
    COUNT("nodes_per_rack", set.nodes_per_rack, 0, "[0: no racks]"),
    COUNT("spare_nodes", set.spare_nodes, 0, "in addition to those of the cluster"),
    COUNT("min_nodes", min_nodes, 1, "that shrink plans for"),
    TIME("detect", detect_ns, "until a loss is noticed"),
    TIME("restart", restart_ns, "from there to the first step"),
    TIME("memory_restart", memory_restart_ns, "the same from copies in memory"),
    TIME("repair", repair_ns, "until a lost node is back"),
    TIME("found", found_ns, "until a slow device is found"),
    TIME("join", join_ns, "until a run that takes nodes back has stopped"),
    TIME("interval", interval_ns, "work between checkpoints"),
    MEMBER(faults_text, "interval_steps", INT, set.interval_steps, "in place of interval [train.checkpoint_every_steps]"),
    TIME("stall", stall_ns, "of the run, for a checkpoint"),
    TIME("write", write_ns, "of a checkpoint"),
    MEMBER(faults_text, "async", BOOL, set.async, "write during the next steps"),
    MEMBER(faults_text, "checkpoint_bytes", BYTES, checkpoint_bytes, "with storage [weights and optimizer states in fp32]"),
    MEMBER(faults_text, "storage", RATE, storage, "gives the time to write"),
    TIME("memory_interval", memory_interval_ns, "work between copies in memory"),
    TIME("memory_stall", memory_stall_ns, "of the run, for a copy"),
    TIME("limit", limit_ns, "the run ends here [100 times its time]"),
    MEMBER(faults_text, "trace_steps", PATH, trace_steps, "CSV of step,node,lost|back, as train --plan-losses"),
    MEMBER(faults_text, "run", PATH, run, "folder of a run: its times to detect, restart, join, stall and write"),
    MEMBER(faults_text, "trace", PATH, trace, "CSV of seconds,node,lost|back"),
};
/* clang-format on */
enum { NUM_FAULTS_FIELDS = sizeof faults_fields / sizeof *faults_fields };

/* "key=value,..." as an object. */
static enum status faults_pairs(const char *text, struct json **object, struct err *err)
{
    char *copy = strdup(text), *rest = NULL;
    *object = json_object_new();
    enum status rc = copy ? OK : err_nomem(err);
    for (char *pair = copy ? strtok_r(copy, ",", &rest) : NULL; pair && rc == OK;
         pair = strtok_r(NULL, ",", &rest)) {
        struct json *value = NULL;
        char *equals = strchr(pair, '=');
        if (!equals) {
            rc = err_set(err, ERR_INPUT, "--faults: expected key=value, got '%.100s'", pair);
            break;
        }
        *equals = '\0';
        if (json_get(*object, pair)) {
            rc = err_set(err, ERR_INPUT, "--faults: '%.100s' is given twice", pair);
            break;
        }
        if (json_parse(equals + 1, "--faults", &value, NULL) == OK)
            json_add_copy(*object, pair, value);
        else
            json_add_string(*object, pair, equals + 1);
        json_free(value);
    }
    free(copy);
    return rc == OK ? json_check(*object, err) : rc;
}

/* Read the keys of the job's cluster.faults, and over them those of --faults: a JSON file or pairs.
 * Either text may be NULL. */
static enum status read_faults(const char *of_cluster, const char *text, struct faults_text *faults,
                               struct fault_event **events, struct err *err)
{
    struct json *own = NULL, *object = NULL;
    const bool is_file = text && path_is_json(text);
    const struct fields_source in_job = {"the job", "cluster.faults", NULL},
                               source = {is_file ? text : "--faults", "", NULL};
    enum status rc = of_cluster ? json_parse(of_cluster, "cluster.faults", &own, err) : OK;
    if (rc == OK && text)
        rc = is_file ? json_read_file(text, &object, err) : faults_pairs(text, &object, err);
    for (int pass = 0; pass < 2; pass++) { /* keys that are given go over those of a run */
        if (rc == OK && own)
            rc = fields_read(faults_fields, NUM_FAULTS_FIELDS, own, &in_job, faults, err);
        if (rc == OK && object)
            rc = fields_read(faults_fields, NUM_FAULTS_FIELDS, object, &source, faults, err);
        if (rc == OK && faults->run && pass == 0)
            rc = restart_times_read(faults->run, &faults->set, err);
    }
    json_free(own);
    faults->set.policy = (enum fault_policy)faults->policy;
    const bool steps = faults->trace_steps != NULL;
    faults->set.trace_steps = steps;
    if (rc == OK && faults->trace && steps)
        rc = err_set(err, ERR_INPUT, "faults: trace and trace_steps exclude each other");
    if (rc == OK && (faults->trace || steps))
        rc = fault_trace_read(steps ? faults->trace_steps : faults->trace, steps, events,
                              &faults->set.num_trace, err);
    faults->set.trace = *events;
    json_free(object);
    return rc;
}

static void faults_text_clear(struct faults_text *faults)
{
    free(faults->trace);
    free(faults->trace_steps);
    free(faults->run);
    *faults = (struct faults_text){0};
}

enum status sim_faults_check(const char *of_cluster, const char *text, struct err *err)
{
    struct faults_text faults = {0};
    struct fault_event *events = NULL;
    enum status rc = read_faults(of_cluster, text, &faults, &events, err);
    free(events);
    faults_text_clear(&faults);
    return rc;
}

/* The time to write a checkpoint: weights and optimizer states in fp32, as `elapse train` writes
 * them, unless the keys say more or less. */
static int64_t time_to_write(const struct faults_text *faults, const struct job *job)
{
    const double bytes = faults->checkpoint_bytes > 0 ? (double)faults->checkpoint_bytes
                                                      : (double)model_total_params(&job->model) *
                                                            (4 + job_optim_bytes_per_param(job));
    return faults->storage > 0 ? (int64_t)fmin(bytes / faults->storage * 1e9, 9e18)
                               : faults->set.write_ns;
}

/* Simulate the run on `nodes` nodes and keep its turns. No plan for so few: no turns. */
static enum status turns_on(const struct sim_args *args, struct job *job, const struct cost *cost,
                            int nodes, struct fault_plan *plan, struct err *err)
{
    struct elastic_run run = {0};
    struct err why = {0};
    const bool full = nodes == job->cluster.num_nodes;
    enum status rc = full ? OK : cluster_set_nodes(&job->cluster, nodes, err);
    if (rc != OK)
        return rc;
    rc = simulate_job(&args->request, job, cost, NULL, &run, &why);
    if (rc == ERR_INFEASIBLE && !full)
        return OK;
    if (rc != OK) {
        err_copy(err, &why);
        return rc;
    }
    struct fault_turn *turns = calloc((size_t)run.num_epochs, sizeof *turns);
    int n = 0;
    for (int e = 0; turns && e < run.num_epochs; e++) {
        const struct elastic_epoch *x = &run.epochs[e];
        const int64_t before = x->steps > 0 ? (x->steps - 1) * x->step_ns : 0;
        if (x->steps == 0)
            continue;
        /* A mean step is rounded, so the last step takes what is left. */
        turns[n++] = (struct fault_turn){
            x->steps, before <= x->epoch_ns ? x->step_ns : x->epoch_ns / x->steps,
            before <= x->epoch_ns ? x->epoch_ns - before
                                  : x->epoch_ns - (x->steps - 1) * (x->epoch_ns / x->steps),
            x->transition_ns};
    }
    elastic_run_clear(&run);
    *plan = (struct fault_plan){n, turns};
    return turns ? OK : err_nomem(err);
}

/* ---- many seeds ---- */

struct seeds {
    const struct fault_setting *set;
    const struct fault_plan *plans;
    uint64_t first;
    int count;
    struct fault_run *runs; /* owned by the caller; one for each seed */
    atomic_int next;
    atomic_bool failed;
};

static void *run_seeds(void *ctx)
{
    struct seeds *s = ctx;
    for (int i; (i = atomic_fetch_add(&s->next, 1)) < s->count;)
        if (fault_run(s->set, s->plans, s->first + (uint64_t)i, NULL, NULL, &s->runs[i], NULL) !=
            OK)
            atomic_store(&s->failed, true);
    return NULL;
}

/* Simulate the seeds. threads 0: one a core. Which thread runs a seed does not change its run. */
static enum status run_all(const struct fault_setting *set, const struct fault_plan *plans,
                           uint64_t first, int count, int64_t threads, struct fault_run *runs,
                           struct err *err)
{
    struct seeds s = {.set = set, .plans = plans, .first = first, .count = count, .runs = runs};
    struct threads workers;
    threads_start(&workers, threads, count, run_seeds, &s);
    threads_join(&workers);
    return atomic_load(&s.failed) ? err_nomem(err) : OK;
}

static double mean_total(const struct fault_run *runs, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)runs[i].total_ns;
    return sum / count;
}

/* Intervals between checkpoints that were tried, ascending. */
enum { TRIED_MAX = 11 };
struct tried {
    int num;
    int64_t interval_ns[TRIED_MAX];
    double goodput[TRIED_MAX];
};

static double mean_goodput(const struct fault_run *runs, int count)
{
    double useful = 0, all = 0;
    for (int i = 0; i < count; i++) {
        useful += (double)runs[i].part_ns[FAULT_USEFUL];
        all += (double)runs[i].total_ns;
    }
    return all > 0 ? useful / all : 0;
}

/* Choose the interval with the least mean time, around Daly's, by the same seeds for all. */
static enum status choose_interval(struct fault_setting *set, const struct fault_plan *plans,
                                   uint64_t first, int count, int64_t threads,
                                   struct fault_run *runs, double daly, struct tried *tried,
                                   struct err *err)
{
    static const double factors[TRIED_MAX] = {0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.2, 1.4, 2, 2.8, 4};
    int64_t best = 0;
    double least = 0;
    enum status rc = OK;
    for (size_t i = 0; i < sizeof factors / sizeof *factors && rc == OK; i++) {
        set->interval_ns = (int64_t)(factors[i] * daly);
        if (set->interval_ns < 1 || (set->async && set->interval_ns < set->write_ns))
            continue;
        rc = run_all(set, plans, first, count, threads, runs, err);
        const double mean = mean_total(runs, count);
        tried->interval_ns[tried->num] = set->interval_ns;
        tried->goodput[tried->num++] = mean_goodput(runs, count);
        if (rc == OK && (best == 0 || mean < least)) {
            best = set->interval_ns;
            least = mean;
        }
    }
    set->interval_ns = best;
    return rc == OK && best == 0
               ? err_set(err, ERR_INFEASIBLE, "no checkpoint is complete before the next is due")
               : rc;
}

/* Refuse rates at which the first seed's run meets far more losses than months on the largest machines do.
 * Such a run may never end, and thousands of them take minutes. */
enum { MOST_LOSSES = 100000 };
static enum status check_losses(struct fault_setting *set, const struct fault_plan *plans,
                                uint64_t seed, double daly, struct err *err)
{
    const int64_t interval = set->interval_ns;
    struct fault_run run;
    set->most_losses = MOST_LOSSES;
    if (interval == 0 && set->interval_steps == 0 && daly >= 1)
        set->interval_ns = daly < 9e18 ? (int64_t)daly : INT64_MAX;
    const enum status rc = fault_run(set, plans, seed, NULL, NULL, &run, err);
    set->interval_ns = interval;
    if (rc != OK || run.end != FAULT_MANY)
        return rc;
    err_set(
        err, ERR_INFEASIBLE,
        "--faults: a run meets %d losses in its first %.3g h, one every %.3g s, and is not done",
        MOST_LOSSES, (double)run.total_ns / 3.6e12, (double)run.total_ns / 1e9 / MOST_LOSSES);
    err_hint(
        err,
        "rates are per hour, of each device, node, link or rack; limit=TIME ends runs earlier");
    return ERR_INFEASIBLE;
}

/* ---- the answer ---- */

struct faults_answer {
    struct tried tried;
    int seeds, done;
    int64_t ideal_ns, mean_ns, p10_ns, p90_ns, interval_ns, wall_ns;
    double goodput, part_share[FAULT_PART_COUNT], losses[FAULT_CAUSE_COUNT],
        lost_hours[FAULT_CAUSE_COUNT], node_hours;
    double young_ns, daly_ns; /* 0: nothing is lost, or a checkpoint costs nothing */
};

static const char *const part_names[] = {"useful", "lost",    "slower", "checkpoints",
                                         "detect", "waiting", "restart"};
static const char *const cause_names[] = {"device", "node", "link", "rack", "trace", "slow"};

static void summarise(const struct fault_run *runs, int count, struct faults_answer *a,
                      int64_t *totals)
{
    double part[FAULT_PART_COUNT] = {0}, all = 0;
    for (int i = 0; i < count; i++) {
        totals[i] = runs[i].total_ns;
        all += (double)runs[i].total_ns;
        a->done += runs[i].end == FAULT_DONE;
        a->node_hours += runs[i].node_hours / count;
        for (int p = 0; p < FAULT_PART_COUNT; p++)
            part[p] += (double)runs[i].part_ns[p];
        for (int c = 0; c < FAULT_CAUSE_COUNT; c++) {
            a->losses[c] += (double)runs[i].losses[c] / count;
            a->lost_hours[c] += (double)runs[i].lost_ns[c] / 3.6e12 / count;
        }
    }
    qsort(totals, (size_t)count, sizeof *totals, compare_int64);
    a->seeds = count;
    a->mean_ns = (int64_t)(all / count + 0.5);
    a->p10_ns = totals[(count - 1) / 10];
    a->p90_ns = totals[(count - 1) - (count - 1) / 10];
    for (int p = 0; p < FAULT_PART_COUNT; p++)
        a->part_share[p] = all > 0 ? part[p] / all : 0;
    a->goodput = a->part_share[FAULT_USEFUL];
}

static void answer_json(struct json *json, const struct faults_answer *a,
                        const struct fault_setting *set, double price, bool no_wall)
{
    json_add_int(json, "seeds", a->seeds);
    json_add_int(json, "seeds_done", a->done);
    json_add_int(json, "ideal_ns", a->ideal_ns);
    json_add_int(json, "mean_ns", a->mean_ns);
    json_add_int(json, "p10_ns", a->p10_ns);
    json_add_int(json, "p90_ns", a->p90_ns);
    json_add_double(json, "goodput", a->goodput);
    json_add_double(json, "device_hours", a->node_hours * set->devices_per_node);
    json_add_double(json, "cost", a->node_hours * set->devices_per_node * price);
    json_add_string(json, "policy", policies[set->policy]);
    json_add_double(json, "losses_per_hour", fault_rate(set));
    json_add_int(json, "interval_ns", set->interval_ns);
    json_add_int(json, "interval_steps", set->interval_steps);
    json_add_double(json, "young_ns", a->young_ns);
    json_add_double(json, "daly_ns", a->daly_ns);
    struct json *tried = json_add_array(json, "intervals");
    for (int i = 0; i < a->tried.num; i++) {
        struct json *one = json_add_object(tried, NULL);
        json_add_int(one, "interval_ns", a->tried.interval_ns[i]);
        json_add_double(one, "goodput", a->tried.goodput[i]);
    }
    struct json *parts = json_add_object(json, "time_shares");
    for (int p = 0; p < FAULT_PART_COUNT; p++)
        json_add_double(parts, part_names[p], a->part_share[p]);
    struct json *causes = json_add_object(json, "causes");
    for (int c = 0; c < FAULT_CAUSE_COUNT; c++) {
        struct json *cause = json_add_object(causes, cause_names[c]);
        json_add_double(cause, "losses", a->losses[c]);
        json_add_double(cause, "lost_hours", a->lost_hours[c]);
    }
    if (!no_wall)
        json_add_int(json, "wall_ns", a->wall_ns);
}

static void answer_print(const struct faults_answer *a, const struct fault_setting *set,
                         double price, bool no_wall)
{
    printf("%d nodes and %d spare, policy %s, %.4g losses per hour, %d seeds\n", set->num_nodes,
           set->spare_nodes, policies[set->policy], fault_rate(set), a->seeds);
    printf("without losses %.2f h; done after %.2f h (p10 %.2f h, p90 %.2f h)\n",
           (double)a->ideal_ns / 3.6e12, (double)a->mean_ns / 3.6e12, (double)a->p10_ns / 3.6e12,
           (double)a->p90_ns / 3.6e12);
    if (a->done < a->seeds)
        printf("%d of %d runs did not finish\n", a->seeds - a->done, a->seeds);
    printf("goodput %.2f %%, %.1f device hours", 100 * a->goodput,
           a->node_hours * set->devices_per_node);
    if (price > 0)
        printf(", cost %.2f", a->node_hours * set->devices_per_node * price);
    printf("\n");
    for (int p = 0; p < FAULT_PART_COUNT; p++)
        printf("  %-12s %6.2f %%\n", part_names[p], 100 * a->part_share[p]);
    for (int c = 0; c < FAULT_CAUSE_COUNT; c++)
        if (a->losses[c] > 0)
            printf("losses by %-6s %8.2f, work lost %.2f h\n", cause_names[c], a->losses[c],
                   a->lost_hours[c]);
    if (set->interval_steps > 0)
        printf("checkpoint every %" PRId64 " steps\n", set->interval_steps);
    else if (set->interval_ns > 0)
        printf("checkpoint every %.1f s", (double)set->interval_ns / 1e9);
    if (set->interval_ns > 0 && a->daly_ns > 0)
        printf(" (Young %.1f s, Daly %.1f s)", a->young_ns / 1e9, a->daly_ns / 1e9);
    if (set->interval_steps == 0)
        printf("%s", set->interval_ns > 0 ? "\n" : "no checkpoints\n");
    if (!no_wall)
        printf("simulated in %.2f s\n", (double)a->wall_ns / 1e9);
}

/* ---- the timeline ---- */

struct interval {
    int64_t from_ns, to_ns;
    enum fault_part part;
    int nodes;
};
struct timeline {
    struct interval *list; /* owned */
    int num;
    int64_t room;
    bool failed; /* no memory */
};

static void timeline_add(struct timeline *line, struct interval interval)
{
    if (array_grow(&line->list, line->num + 1, &line->room, sizeof *line->list))
        line->list[line->num++] = interval;
    else
        line->failed = true;
}

/* A fault_watch. What is thrown away afterwards splits the interval in which it began. */
static void timeline_note(void *ctx, int64_t from_ns, int64_t to_ns, enum fault_part part,
                          int nodes)
{
    struct timeline *line = ctx;
    if (part != FAULT_LOST) {
        timeline_add(line, (struct interval){from_ns, to_ns, part, nodes});
        return;
    }
    for (int i = line->num - 1; i >= 0 && line->list[i].to_ns > from_ns; i--) {
        struct interval *at = &line->list[i];
        if (at->part != FAULT_USEFUL)
            continue;
        if (at->from_ns >= from_ns) {
            at->part = FAULT_LOST;
            continue;
        }
        const struct interval lost = {from_ns, at->to_ns, FAULT_LOST, at->nodes};
        at->to_ns = from_ns;
        timeline_add(line, lost);
        if (line->failed)
            return;
        memmove(line->list + i + 2, line->list + i + 1,
                (size_t)(line->num - i - 2) * sizeof *line->list);
        line->list[i + 1] = lost;
    }
}

/* Write the intervals of the first seed's run as CSV. */
static enum status timeline_write(const char *path, const struct fault_setting *set,
                                  const struct fault_plan *plans, uint64_t seed, struct err *err)
{
    struct timeline line = {0};
    struct fault_run run;
    struct atomic_file file = {0};
    enum status rc = fault_run(set, plans, seed, timeline_note, &line, &run, err);
    if (rc == OK && line.failed)
        rc = err_nomem(err);
    THEN(output_open(&file, path, err));
    if (rc == OK) {
        fprintf(file.out, "from_ns,to_ns,part,nodes\n");
        for (int i = 0; i < line.num; i++)
            fprintf(file.out, "%" PRId64 ",%" PRId64 ",%s,%d\n", line.list[i].from_ns,
                    line.list[i].to_ns, part_names[line.list[i].part], line.list[i].nodes);
        rc = atomic_close(&file, rc, err);
    }
    free(line.list);
    return rc;
}

/* Whether every node is like the first, so that any of them can be the one that is lost. */
static bool nodes_equal(const struct cluster *cluster)
{
    const int per_node = cluster->num_devices / cluster->num_nodes;
    for (int d = 0; d < cluster->num_devices; d++) {
        const struct device *x = &cluster->devices[d], *y = &cluster->devices[d % per_node];
        if (x->node != d / per_node || strcmp(x->kind, y->kind) != 0 ||
            x->mem_bytes != y->mem_bytes || x->speed != y->speed ||
            x->link_bytes_per_s != y->link_bytes_per_s || x->nic_bytes_per_s != y->nic_bytes_per_s)
            return false;
    }
    for (int n = 1; n < cluster->num_nodes; n++)
        if (cluster->uplink_bytes_per_s[n] != cluster->uplink_bytes_per_s[0])
            return false;
    return true;
}

/* A question of `sim --faults`, with what answers it. */
struct question {
    const struct sim_args *args;
    struct job *job;
    struct faults_text faults;  /* owned */
    struct fault_event *events; /* owned: of the trace */
    struct cost_handle cost;    /* owned */
    struct fault_plan *plans;   /* owned, with its turns: on 0 .. set.num_nodes nodes */
};

static void question_clear(struct question *q)
{
    for (int n = 0; q->plans && n <= q->faults.set.num_nodes; n++)
        free((void *)q->plans[n].turns);
    free(q->plans);
    faults_text_clear(&q->faults);
    free(q->events);
    cost_handle_clear(&q->cost);
}

/* Read the setting, and make the plans on as few nodes as the policy may come to. */
static enum status question_read(struct question *q, struct err *err)
{
    const struct sim_args *args = q->args;
    struct fault_setting *set = &q->faults.set;
    enum status rc = read_faults(q->job->cluster.faults, args->faults, &q->faults, &q->events, err);
    THEN(cost_choose(args->request.db_path, q->job, &q->cost, err));
    if (rc != OK)
        return rc;
    set->write_ns = time_to_write(&q->faults, q->job);
    set->num_nodes = q->job->cluster.num_nodes;
    set->devices_per_node = q->job->cluster.num_devices / q->job->cluster.num_nodes;
    if (q->faults.min_nodes == 0 || q->faults.min_nodes > set->num_nodes)
        q->faults.min_nodes = set->num_nodes > 4 ? set->num_nodes - 4 : 1;
    if (set->memory_restart_ns == 0)
        set->memory_restart_ns = set->restart_ns;
    rc = fault_setting_check(set, err);
    q->plans = calloc((size_t)set->num_nodes + 1, sizeof *q->plans);
    if (rc == OK && !q->plans)
        rc = err_nomem(err);
    const int least = set->policy == FAULT_SHRINK ? q->faults.min_nodes : set->num_nodes;
    if (rc == OK && least < set->num_nodes && !nodes_equal(&q->job->cluster))
        rc = err_set(err, ERR_INPUT,
                     "--faults: policy shrink needs equal nodes, and those of cluster '%s' differ",
                     q->job->cluster.name);
    for (int n = set->num_nodes; n >= least && rc == OK; n--)
        rc = turns_on(args, q->job, &q->cost.cost, n, &q->plans[n], err);
    return rc;
}

/* Run all seeds. An interval that nobody gave is chosen before. */
static enum status question_run(struct question *q, struct fault_run *runs, int count,
                                struct faults_answer *answer, struct err *err)
{
    const struct sim_args *args = q->args;
    struct fault_setting *set = &q->faults.set;
    const bool limited = set->limit_ns > 0;
    answer->ideal_ns = fault_plan_ns(&q->plans[set->num_nodes]);
    if (!limited)
        set->limit_ns = mul_saturated(100, answer->ideal_ns);
    const double rate = fault_rate(set);
    const double stall = (double)set->stall_ns + (set->async ? 0 : (double)set->write_ns);
    if (rate > 0 && stall > 0) {
        answer->young_ns = fault_young_ns(stall, 3.6e12 / rate);
        answer->daly_ns = fault_daly_ns(stall, 3.6e12 / rate);
    }
    /* Runs count on from here: hashed, so that --seed 1 and --seed 2 share none of them. */
    const uint64_t seed = mix64((uint64_t)args->request.options.seed);
    if (set->interval_ns == 0 && set->interval_steps == 0)
        set->interval_steps = q->job->train.checkpoint_every_steps;
    enum status rc = limited ? OK : check_losses(set, q->plans, seed, answer->daly_ns, err);
    if (set->interval_ns == 0 && set->interval_steps == 0 && answer->daly_ns > 0)
        THEN(choose_interval(set, q->plans, seed, count < AUTO_SEEDS ? count : AUTO_SEEDS,
                             args->threads, runs, answer->daly_ns, &answer->tried, err));
    THEN(run_all(set, q->plans, seed, count, args->threads, runs, err));
    if (args->timeline_path)
        THEN(timeline_write(args->timeline_path, set, q->plans, seed, err));
    return rc;
}

enum status sim_faults(const struct command *command, const struct sim_args *args, struct job *job,
                       struct err *err)
{
    const int64_t start = clock_now_ns();
    const int count = args->seeds ? (int)args->seeds : 1000;
    struct question q = {.args = args, .job = job, .faults.set.slow_speed = 0.5};
    const struct fault_setting *set = &q.faults.set;
    struct faults_answer answer = {0};
    struct fault_run *runs = calloc((size_t)count, sizeof *runs);
    int64_t *totals = calloc((size_t)count, sizeof *totals);
    enum status rc = runs && totals ? question_read(&q, err) : err_nomem(err);
    THEN(question_run(&q, runs, count, &answer, err));
    if (rc != OK)
        goto out;
    summarise(runs, count, &answer, totals);
    answer.wall_ns = clock_now_ns() - start;
    const struct setting setting = {&job->model, &job->cluster, &q.cost.cost};
    if (args->json) {
        struct json *json = command_json(command);
        if (q.cost.note[0])
            json_add_string(json, "cost_note", q.cost.note);
        answer_json(json, &answer, set, job->cluster.price_per_hour, args->no_wall);
        band_add(&setting, &q.cost, 0, json);
        rc = command_answer(json, err);
    } else {
        if (q.cost.note[0])
            printf("note: %s\n", q.cost.note);
        answer_print(&answer, set, job->cluster.price_per_hour, args->no_wall);
        band_print(&setting, &q.cost, 0);
    }
    if (rc == OK && answer.done == 0)
        rc = err_set(err, ERR_INFEASIBLE, "the run never ends: %s",
                     runs[0].end == FAULT_TOO_FEW
                         ? "fewer nodes are left than any plan needs, and none returns"
                         : "it reaches faults.limit");
out:
    question_clear(&q);
    free(runs);
    free(totals);
    return rc;
}
