/* cli/commands/cmd_sim.c - `elapse sim`: one step, a table of variants, or a whole elastic run.
 *
 * This file reads and checks the options and prints a step. sim_job.c runs jobs, sim_sweep.c tables,
 * sim_explain.c --explain and --monte-carlo. sim_request.c makes a job of the settings of a step.
 * Read run_sim() at the end first. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/plans/band_show.h"
#include "cli/plans/framework_show.h"
#include "cli/plans/plan_memory.h"
#include "cli/plans/calibrated.h"
#include "cli/plans/plan_show.h"
#include "cli/base/command.h"
/* wall: sim/faults */
#include "cli/faults/sim_faults.h"
/* wall end */
#include "cli/simulate/chakra_file.h"
#include "cli/runs/replay.h"
#include "cli/simulate/snapshot_file.h"
#include "cli/simulate/sim_command.h"
#include "cli/simulate/subject.h"
#include "cli/simulate/trace_file.h"
#include "partition/base/units.h"
#include "profiles/json/columns.h"
#include "profiles/job/plan_json.h"
#include "profiles/store/trace.h"
#include "profiles/base/whole_file.h"

static const char *const idle_names[IDLE_CAUSE_COUNT] = {
    "fill_ns", "drain_ns", "imbalance_ns", "transfer_ns", "allreduce_ns", "host_ns", "straggler_ns",
};

/* Write the files of --trace, --memory-snapshot, --chakra and --ops. */
static enum status write_ops(const struct sim_args *args, const struct step_answer *a,
                             struct err *err)
{
    const struct traced_step step = {&a->result, &a->full, &a->workload};
    enum status rc = args->trace_path ? trace_step_file(args->trace_path, &step, err) : OK;
    if (rc == OK && args->snapshot_path)
        rc = snapshot_file(args->snapshot_path, &step, err);
    if (rc == OK && args->chakra_path)
        rc = chakra_files(args->chakra_path, &step, err);
    if (rc != OK || !args->ops_path)
        return rc;
    struct op_row *rows = sim_op_rows(&a->result);
    if (!rows)
        return err_nomem(err);
    rc = ops_csv_write_file(args->ops_path, rows, a->result.num_ops, err);
    free(rows);
    return rc;
}

static void add_shares(struct json *json, const struct plan *plan)
{
    if (!plan->shares.share)
        return;
    json_add_double(json, "share_mean", shares_mean_of_all(&plan->shares));
    struct json *shares = json_add_array(json, "shares");
    for (int s = 0; s < plan->num_stages; s++)
        for (int m = 0; m < plan->microbatches.count; m++) {
            struct json *one = json_add_object(shares, NULL);
            json_add_int(one, "stage", s);
            json_add_int(one, "microbatch", m);
            json_add_double(one, "share", shares_at(&plan->shares, s, m));
        }
}

static void add_plan(struct json *json, const struct step_answer *a)
{
    json_add_string(json, "model", a->model.name);
    json_add_string(json, "cluster", a->cluster.name);
    plan_json_add_shape(json, &a->plan);
    json_add_string(json, "dtype", dtype_text((int)a->query.dtype));
    json_add_string(json, "optimizer", a->optimizer);
    json_add_string(json, "cost_source", cost_source_name(a->cost.cost.source));
    json_add_string(json, "cost_label", a->cost.cost.label);
    if (a->cost.note[0])
        json_add_string(json, "cost_note", a->cost.note);
    if (a->model.note[0])
        json_add_string(json, "note", a->model.note);
    if (*a->cost.calibration.name)
        json_add_string(json, "calibration", a->cost.calibration.name);
    json_add_bool(json, "extrapolated", a->workload.extrapolated);
    add_shares(json, &a->plan);
}

static void add_inputs(struct json *json, const struct step_answer *a,
                       const struct sim_options *options)
{
    const struct cluster *c = &a->cluster;
    struct json *inputs = json_add_object(json, "inputs");
    json_add_int(inputs, "nodes", c->num_nodes);
    json_add_int(inputs, "devices", c->num_devices);
    json_add_double(inputs, "link_bytes_per_s", c->devices[0].link_bytes_per_s);
    json_add_double(inputs, "uplink_bytes_per_s", c->uplink_bytes_per_s[0]);
    json_add_int(inputs, "latency_ns", c->link_latency_ns);
    json_add_int(inputs, "uplink_latency_ns", c->uplink_latency_ns);
    if (c->pod_nodes > 0) {
        json_add_int(inputs, "pod_nodes", c->pod_nodes);
        json_add_double(inputs, "pod_uplink_bytes_per_s", c->pod_uplink_bytes_per_s);
        json_add_int(inputs, "pod_latency_ns", c->pod_latency_ns);
    }
    json_add_bool(inputs, "half_duplex", c->half_duplex);
    if (c->devices[0].mem_bytes == INT64_MAX)
        json_add_null(inputs, "mem_bytes");
    else
        json_add_int(inputs, "mem_bytes", c->devices[0].mem_bytes);
    json_add_int(inputs, "host_op_ns", c->host_op_ns);
    json_add_bool(inputs, "host_blocking", c->host_blocking);
    const struct setting setting = {&a->model, c, &a->cost.cost};
    json_add_string(inputs, "sends",
                    workload_sends_block(&setting, &a->plan) ? "blocking" : "eager");
    json_add_int(inputs, "bucket_bytes", a->plan.bucket_bytes);
    json_add_bool(inputs, "clip", a->plan.clip);
    layout_json_add(inputs, &a->plan.layout, LAYOUT_JSON_CORE);
    json_add_int(inputs, "optimizer_bytes_per_param", a->plan.optim_bytes_per_param);
    json_add_string(inputs, "allreduce", allreduce_kind_name(options->allreduce));
    json_add_double(inputs, "jitter", options->jitter);
    json_add_int(inputs, "seed", (int64_t)options->seed);
}

#define DEVICE(type, member, ...) COLUMN(sim_device, #member, type, member, __VA_ARGS__)
static const char *causes_text(const void *row, char *buf, size_t size)
{
    const struct sim_device *d = row;
    size_t used = 0;
    *buf = '\0';
    for (int c = 0; c < IDLE_CAUSE_COUNT && used < size; c++)
        if (d->idle_cause_ns[c] > 0)
            used += (size_t)snprintf(buf + used, size - used, "%s%.*s %.1f%%", used ? " " : "",
                                     (int)strlen(idle_names[c]) - 3, idle_names[c],
                                     100.0 * (double)d->idle_cause_ns[c] /
                                         (double)(d->busy_ns + d->idle_ns));
    return buf;
}

static const struct row_table device_table =
    ROW_TABLE(sim_device, DEVICE(INT, device, SHOWN("device", 6)),
              COLUMN(sim_device, NULL, INT, rank, SHOWN(" rank", 4)),
              DEVICE(INT, replica, SHOWN(" replica", 7), .leaves = 3), DEVICE(INT, rank),
              DEVICE(INT, busy_ns, SHOWN(" busy", 12), .leaves = 2),
              DEVICE(INT, idle_ns, SHOWN(" idle", 12), .leaves = 4), DEVICE(INT, first_ns),
              DEVICE(INT, last_ns), DEVICE(INT, peak_bytes, SHOWN(" peak", 12)),
              COLUMN(sim_device, NULL, INT, peak_live, SHOWN(" live", 5), .leaves = 1),
              COLUMN(sim_device, NULL, OTHER, idle_cause_ns, SHOWN("  idle by cause", 0), .max = 51,
                     .leaves = 5, .text = causes_text));
#define TRAFFIC(member) COLUMN(sim_traffic, #member, INT, member)
static const struct row_table traffic_table =
    ROW_TABLE(sim_traffic, TRAFFIC(from), TRAFFIC(to), TRAFFIC(bytes));

static int64_t limit_of(const struct step_answer *a, int i)
{
    return a->cluster.devices[a->result.devices[i].device].mem_bytes;
}

/* Bytes that a simulated device has left. */
static int64_t left_of(const struct step_answer *a, int i)
{
    return limit_of(a, i) - a->result.devices[i].peak_bytes;
}

static double margin_of(const struct step_answer *a)
{
    return plan_margin_of(a->headroom, &a->model, &a->cost.cost).memory;
}

/* Add the answer to the JSON. pool_bytes[k] is the memory that the executor's kernels keep on rank
 * k. NULL: the profile does not say. */
static void add_result(struct json *json, const struct step_answer *a, const int64_t *pool_bytes,
                       bool no_wall)
{
    const struct sim_result *result = &a->result;
    json_add_int(json, "step_ns", result->step_ns);
    json_add_int(json, "period_ns", result->period_ns);
    json_add_double(json, "bubble_fraction", result->bubble_fraction);
    const struct step_rates rates = step_answer_rates(a);
    json_add_double(json, "samples_per_s", rates.samples_per_s);
    rates_add(json, &rates);
    struct json *devices = json_add_array(json, "devices");
    for (int i = 0; i < result->num_devices; i++) {
        const struct sim_device *d = &result->devices[i];
        struct json *device = json_add_object(devices, NULL);
        row_to_json(device, &device_table, d);
        if (pool_bytes)
            json_add_int(device, "pool_bytes", pool_bytes[d->rank]);
        else
            json_add_null(device, "pool_bytes");
        json_add_int(device, "peak_live", d->peak_live);
        struct json *idle = json_add_object(device, "idle");
        for (int c = 0; c < IDLE_CAUSE_COUNT; c++)
            json_add_int(idle, idle_names[c], d->idle_cause_ns[c]);
    }
    rows_to_json(json, "traffic", &traffic_table, result->traffic, result->num_traffic);
    json_add_int(json, "allreduce_ns", result->allreduce_ns);
    json_add_int(json, "allreduce_exposed_ns", result->allreduce_exposed_ns);
    bool limited = false, tight = false;
    for (int i = 0; i < result->num_devices; i++) {
        limited = limited || limit_of(a, i) != INT64_MAX;
        tight =
            tight || plan_memory_tight(result->devices[i].peak_bytes, limit_of(a, i), margin_of(a));
    }
    if (limited) {
        json_add_double(json, "memory_headroom", margin_of(a));
        json_add_bool(json, "memory_tight", tight);
    }
    json_add_bool(json, "links_shared", result->shared);
    if (a->searched.judged > 0)
        searched_add(json_add_object(json, "searched"), &a->searched, !no_wall);
    json_add_int(json, "events", result->events);
    if (!no_wall)
        json_add_int(json, "wall_ns", a->wall_ns);
}

static void print_head(const struct step_answer *a, const struct framework_range *range)
{
    const struct sim_result *result = &a->result;
    const struct plan *plan = &a->plan;
    char one[32], two[32], three[32], text[256];
    printf("%s on %s: %s, %s, %s, cut", a->model.name, a->cluster.name,
           schedule_kind_name(plan->schedule), plan_layout_text(plan, text, sizeof text),
           COUNT_TEXT(plan->microbatches.count, "micro-batch"));
    for (int s = 0; s < plan->num_stages && s < MOST_OF_CUT; s++)
        printf("%c%d", s ? ',' : ' ', plan->first_item[s + 1] - plan->first_item[s]);
    printf("%s (costs: %s%s)\n", plan->num_stages > MOST_OF_CUT ? ",..." : "", a->cost.cost.label,
           a->workload.extrapolated ? ", extrapolated" : "");
    if (a->cost.cost.source != COST_CONSTANT)
        printf("dtype %s, optimizer %s, recompute %s\n", dtype_text((int)a->query.dtype),
               a->optimizer, recompute_mode_name(plan->recompute));
    if (a->cost.note[0])
        printf("note: %s\n", a->cost.note);
    if (a->model.note[0])
        printf("note: %s\n", a->model.note);
    if (*rows_text(&a->model, text, sizeof text))
        printf("%s\n", text);
    printf("step %s, bubble %.2f %%", format_ns(result->step_ns, one, sizeof one),
           100 * result->bubble_fraction);
    if (result->allreduce_ns > 0)
        printf(", all-reduce %s (%s exposed)", format_ns(result->allreduce_ns, two, sizeof two),
               format_ns(result->allreduce_exposed_ns, three, sizeof three));
    printf("\n");
    if (plan->shares.share)
        printf("without %.0f %% of the weight gradients\n",
               100 * shares_mean_of_all(&plan->shares));
    if ((double)result->period_ns < 0.995 * (double)result->step_ns)
        printf("period %s: the next step begins before this one has ended on all devices\n",
               format_ns(result->period_ns, one, sizeof one));
    const struct step_rates rates = step_answer_rates(a);
    printf("%s\n", rates_text(&rates, &a->cost.cost, text, sizeof text));
    const struct setting setting = {&a->model, &a->cluster, &a->cost.cost};
    band_print(&setting, &a->cost, result->step_ns);
    framework_show_print(range);
}

/* A row for each device, and whether the fullest one has its headroom. */
static void print_devices(const struct step_answer *a, const int64_t *pool_bytes)
{
    const struct sim_result *result = &a->result;
    char text[32];
    row_print_head(stdout, &device_table);
    putchar('\n');
    for (int i = 0; i < result->num_devices; i++) {
        const struct sim_device *d = &result->devices[i];
        if (i == 32 && result->num_devices > 40) {
            printf("   ... %d more devices (--json has them all)\n", result->num_devices - i);
            break;
        }
        row_print(stdout, &device_table, d);
        putchar('\n');
    }
    int fullest = 0;
    for (int i = 1; i < result->num_devices; i++)
        fullest = left_of(a, i) < left_of(a, fullest) ? i : fullest;
    if (plan_memory_print_tight(result->devices[fullest].peak_bytes, limit_of(a, fullest),
                                margin_of(a)))
        printf(" (device %d)\n", result->devices[fullest].device);
    if (pool_bytes) {
        int64_t most = 0;
        for (int k = 0; k < a->plan.num_ranks; k++)
            most = pool_bytes[k] > most ? pool_bytes[k] : most;
        printf("peak: memory in use at one time; a real run preallocates up to %s per rank\n",
               format_bytes(most, text, sizeof text));
    }
}

static void print_step(const struct step_answer *a, const struct framework_range *range,
                       const int64_t *pool_bytes, bool no_wall)
{
    char one[32];
    print_head(a, range);
    print_devices(a, pool_bytes);
    if (a->searched.judged > 0 && !a->searched.complete)
        printf("the search for its plan was stopped by its budget\n");
    printf("%" PRId64 " events", a->result.events);
    if (!no_wall)
        printf(" in %s", format_ns(a->wall_ns, one, sizeof one));
    printf(" (%s)\n", a->result.shared ? "links shared" : "no links shared");
}

static enum status answer_step(const struct command *command, const struct sim_args *args,
                               struct step_answer *answer, struct err *err)
{
    const struct setting setting = {&answer->model, &answer->cluster, &answer->cost.cost};
    const struct lowered_plan lowered = {&answer->plan, &answer->full, &answer->workload};
    int64_t *pools = NULL; /* NULL: not known */
    int64_t interval_ns[2] = {0};
    const struct calibrated on = {args->request.db_path, &setting, &answer->query, &answer->cost,
                                  &answer->plan};
    struct json *json = NULL;
    struct step_spread spread = {0};
    struct framework_range range;
    enum status rc =
        framework_range_find(&setting, &answer->plan, answer->result.step_ns, &range, err);
    if (rc == OK && args->monte_carlo > 0) /* it may be refused, so run it before printing */
        rc = sim_monte_carlo(args, answer, &spread, err);
    THEN(write_ops(args, answer, err));
    THEN(executor_memory(&answer->cost, &setting, &lowered, &pools, err));
    THEN(calibrated_interval(&on, answer->result.step_ns, interval_ns, err));
    if (rc == OK && !args->json) {
        print_step(answer, &range, pools, args->no_wall);
        calibrated_print(&on, interval_ns);
    } else if (rc == OK) {
        json = command_json(command);
        add_plan(json, answer);
        add_inputs(json, answer, &args->request.options);
        add_result(json, answer, pools, args->no_wall);
        calibrated_add(&on, interval_ns, json);
        band_add(&setting, &answer->cost, answer->result.step_ns, json);
        framework_show_add(&range, json);
    }
    THEN(sim_explain(args, answer, &spread, json, err));
    free(pools);
    if (rc != OK || !args->json) {
        json_free(json);
        return rc;
    }
    return command_answer(json, err);
}

/* Read op lists that replace a generated schedule. The lists determine K, v and M, and options for
 * these must agree. */
static enum status read_schedule(struct sim_args *args, struct schedule *schedule, struct err *err)
{
    char *text = NULL;
    enum status rc = file_read_text(args->schedule_csv, &text, err);
    THEN(schedule_from_csv(text, args->schedule_csv, schedule, err));
    free(text);
    if (rc != OK)
        return rc;
    static const char *const names[] = {"stages", "chunks", "microbatches"};
    const int chunks = schedule->num_stages / schedule->num_ranks;
    const int has[] = {schedule->num_ranks, chunks, schedule->num_microbatches};
    struct step_setting *kind = step_setting_find(args->settings, args->num_settings, "schedule");
    if (kind->text)
        return err_set(err, ERR_INPUT, "--schedule and --schedule-csv exclude each other");
    kind->text = chunks > 1 ? "interleaved" : "1f1b";
    for (int c = 0; c < 3; c++) {
        struct step_setting *s = step_setting_find(args->settings, args->num_settings, names[c]);
        if (s->text && atoi(s->text) != has[c])
            return err_set(err, ERR_INPUT, "--%s is %s, schedule '%s' has %d", names[c], s->text,
                           args->schedule_csv, has[c]);
        snprintf(args->counts[c], sizeof args->counts[c], "%d", has[c]);
        s->text = args->counts[c];
    }
    return OK;
}

/* Tell how far a long step is. */
static void tick(void *ctx, int64_t events)
{
    char text[64];
    struct ticker *progress = ctx;
    if (!ticker_due(progress))
        return;
    snprintf(text, sizeof text, "sim: %" PRId64 " million events", events >> 20);
    ticker_say(progress, stderr, text);
}

/* What was given. ONE_STEP: an option of a single step alone. */
enum given {
    GIVEN_JOB = 1 << 0,
    GIVEN_STEP = 1 << 1,
    GIVEN_SWEEP = 1 << 2,
    GIVEN_PLAN = 1 << 3,
    GIVEN_SETTING = 1 << 4, /* of the cut, the frozen layers or the cache */
    GIVEN_ONE_STEP = 1 << 5,
    GIVEN_RECORD = 1 << 6,
    GIVEN_FAULTS = 1 << 7,
    GIVEN_SLOW = 1 << 8,
    GIVEN_CSV = 1 << 9,
    GIVEN_JSON = 1 << 10,
    GIVEN_TABLE = 1 << 11,
};

/* What is refused, the first one that applies: all of `with` is given and one of `any`, where there
 * is one, or all of `with` and not all of `needs`. */
static const struct option_rule {
    unsigned with, any, needs;
    const char *name, *says; /* name NULL: the SETTING's, or that of ONE_STEP */
} option_rules[] = {
  /* clang-format off */
    {GIVEN_PLAN, 0, GIVEN_JOB, "plan", "needs the job of the plan"},
    {GIVEN_PLAN | GIVEN_SWEEP, 0, 0, "plan", "and --sweep exclude each other"},
    {GIVEN_PLAN | GIVEN_SETTING, 0, 0, NULL, "and --plan exclude each other"},
    {GIVEN_ONE_STEP | GIVEN_SWEEP, 0, 0, NULL, "and --sweep exclude each other"},
    {GIVEN_ONE_STEP | GIVEN_JOB, 0, GIVEN_STEP, NULL, "needs a single step: add --step"},
    {GIVEN_SETTING | GIVEN_JOB, 0, GIVEN_STEP, NULL, "needs a single step: add --step"},
    {GIVEN_RECORD, GIVEN_STEP | GIVEN_SWEEP, 0, "record", "needs a whole run, without --step or --sweep"},
    /* wall: sim/faults */
    {GIVEN_FAULTS, GIVEN_STEP | GIVEN_SWEEP | GIVEN_RECORD | GIVEN_PLAN, GIVEN_JOB, "faults",
     "needs a whole run of a job, without --sweep, --plan or --record"},
    {GIVEN_FAULTS | GIVEN_SLOW, 0, 0, "faults",
     "takes no --stragglers or --slow-links; its slow_per_hour slows devices"},
    /* wall end */
    {GIVEN_CSV, 0, GIVEN_SWEEP, "csv", "needs --sweep"},
    {GIVEN_CSV | GIVEN_JSON, 0, 0, "csv", "and --json exclude each other"},
    {GIVEN_TABLE | GIVEN_CSV, 0, 0, "table", "and --csv exclude each other"},
    {GIVEN_TABLE | GIVEN_JSON, 0, 0, "table", "and --json exclude each other"},
    {GIVEN_TABLE, 0, GIVEN_SWEEP, "table", "needs --sweep"},
  /* clang-format on */
};

static bool applies(const struct option_rule *rule, unsigned given)
{
    if ((given & rule->with) != rule->with)
        return false;
    const bool met = (given & rule->needs) == rule->needs;
    return (given & rule->any) || !met || (!rule->any && !rule->needs);
}

/* The given one of the options that take a setting of a single step; NULL: none. */
static const char *step_setting_given(const struct sim_args *args)
{
    const char *name = NULL;
    for (int i = 0; i < args->num_settings; i++) {
        const struct step_setting *s = &args->settings[i];
        if (s->text && (strncmp(s->name, "frozen", 6) == 0 || strcmp(s->name, "cut") == 0 ||
                        strcmp(s->name, "cache-write") == 0))
            name = s->name;
    }
    return name;
}

/* The given one of the options of a single step that are no settings; NULL: none. */
static const char *one_step_given(const struct sim_args *args)
{
    const struct {
        bool given;
        const char *name;
    } rows[] = {
        {args->schedule_csv,    "schedule-csv"   },
        {args->trace_path,      "trace"          },
        {args->ops_path,        "ops"            },
        {args->snapshot_path,   "memory-snapshot"},
        {args->chakra_path,     "chakra"         },
        {args->explain,         "explain"        },
        {args->monte_carlo > 0, "monte-carlo"    },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return rows[i].name;
    return NULL;
}

/* Refuse options that exclude each other or do not apply to a step or a whole run. */
static enum status check_options(const struct sim_args *args, struct err *err)
{
    const char *const setting = step_setting_given(args);
    const char *const one_step = one_step_given(args);
    const char *const files[] = {args->trace_path, args->ops_path, args->snapshot_path,
                                 args->chakra_path, args->timeline_path};
    const int num_files = sizeof files / sizeof *files;
    for (int i = 0; i < num_files; i++)
        for (int j = i + 1; j < num_files; j++)
            if (files[i] && files[j] && strcmp(files[i], files[j]) == 0 &&
                !file_is_stream(files[i]))
                return err_set(err, ERR_INPUT, "two options write '%s'", files[i]);
    const struct {
        bool given;
        unsigned bit;
    } rows[] = {
        {args->job_path,                                                 GIVEN_JOB     },
        {args->step,                                                     GIVEN_STEP    },
        {args->sweeps.count > 0,                                         GIVEN_SWEEP   },
        {args->plan_path,                                                GIVEN_PLAN    },
        {setting,                                                        GIVEN_SETTING },
        {one_step,                                                       GIVEN_ONE_STEP},
        {args->record_path,                                              GIVEN_RECORD  },
        {args->faults,                                                   GIVEN_FAULTS  },
        {args->csv,                                                      GIVEN_CSV     },
        {args->request.stragglers_text || args->request.slow_links_text, GIVEN_SLOW    },
        {args->json,                                                     GIVEN_JSON    },
        {args->table,                                                    GIVEN_TABLE   },
    };
    unsigned given = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        given |= rows[i].given ? rows[i].bit : 0;
    for (size_t i = 0; i < sizeof option_rules / sizeof *option_rules; i++) {
        const struct option_rule *rule = &option_rules[i];
        if (applies(rule, given))
            return err_set(err, ERR_INPUT, "--%s %s",
                           rule->name                    ? rule->name
                           : rule->with & GIVEN_ONE_STEP ? one_step
                                                         : setting,
                           rule->says);
    }
    if (given & (GIVEN_JOB | GIVEN_STEP))
        return OK;
    err_set(err, ERR_INPUT, "sim needs a job, or --step with --model");
    err_hint(err, "'elapse sim --help' lists the options");
    return ERR_INPUT;
}

enum { OPTIONS_ROOM = STEP_SETTINGS_MAX + 32 };

/* The options in groups: of the step alone, of costs, devices and links, of the layout. */
enum group { GROUP_STEP, GROUP_DEVICES, GROUP_LAYOUT };

static enum group group_of(const struct step_setting *setting)
{
    if (!setting->key)
        return GROUP_STEP;
    return strncmp(setting->key, "c", 1) == 0 ? GROUP_DEVICES : GROUP_LAYOUT;
}

/* Append the settings of a group, whose options set settings[i].text or flag. Returns the new n. */
static int add_settings(struct step_setting *settings, int num_settings, enum group group,
                        struct option *options, int n)
{
    for (int i = 0; i < num_settings; i++) {
        struct step_setting *s = &settings[i];
        if (group_of(s) != group)
            continue;
        options[n] = s->arg ? (struct option)OPTION(s->name, STRING, &s->text, s->arg, s->help,
                                                    .values = *s->values ? s->values : NULL)
                            : (struct option)OPTION(s->name, FLAG, &s->flag, NULL, s->help);
        n++;
    }
    return n;
}

/* List the options of a whole run, its tables and its faults. Returns how many there are. */
static int list_run(struct sim_args *args, struct option options[OPTIONS_ROOM])
{
    struct step_request *request = &args->request;
    const struct option rows[] = {
        OPTION("set", LIST, &args->overrides, "a.b=v", "override a value of the job",
               .keys = &job_keys),
        OPTION("plan", STRING, &args->plan_path, "FILE",
               "the plan to simulate, a file of 'elapse plan -o'"),
        OPTION("record", STRING, &args->record_path, "FILE",
               "add the run to a record store ('elapse runs', 'elapse plot')"),
        /* wall: sim/faults */
        OPTION("faults", STRING, &args->faults, "FILE|key=value,...",
               "lose nodes: rates, policy and checkpoints (docs/faults.md), over those of "
               "cluster.faults; none: lose none"),
        OPTION("timeline", STRING, &args->timeline_path, "FILE",
               "CSV of the first run of --faults: from_ns,to_ns,part,nodes"),
        OPTION("seeds", INT, &args->seeds, "N", "runs of --faults (default 1000)", .max = 1000000),
        /* wall end */
        OPTION("sweep", LIST, &args->sweeps, "path=v1,v2,...",
               "a table over a setting or job key (repeatable: cross product)"),
        OPTION("csv", FLAG, &args->csv, NULL, "the table as CSV"),
        OPTION("table", FLAG, &args->table, NULL,
               "print the table even if stdout is not a terminal (default there: JSON lines)"),
        OPTION("threads", INT, &args->threads, "N",
               "threads of a sweep or of --faults (default: all cores)", .max = 1024),
        OPTION("budget", NS, &request->time.budget_ns, "TIME",
               "processor time of the search for the plan (default 10s; 0: to its end, but at most "
               "5min)"),
        OPTION("deadline", NS, &request->time.deadline_ns, "TIME",
               "time of the clock for that search, as well (default: none)"),
        OPTION_DB(&request->db_path),
        OPTION_QUIET(&args->quiet),
        OPTION("no-wall", FLAG, &args->no_wall, NULL,
               "leave out values that differ from run to run"),
        OPTION_JSON(&args->json),
    };
    return options_add(options, 0, rows, sizeof rows / sizeof *rows);
}

/* List the options of one step, after the n of the run. Returns the new n. */
static int list_step(struct sim_args *args, struct option options[OPTIONS_ROOM], int n)
{
    const struct option rows[] = {
        OPTION("step", FLAG, &args->step, NULL, "one step instead of the whole run",
               .group = "one step, of a job or without one"),
        OPTION("trace", STRING, &args->trace_path, "FILE", "trace of the step for Perfetto"),
        OPTION("memory-snapshot", STRING, &args->snapshot_path, "FILE",
               "memory of each rank for PyTorch's viewer (pytorch.org/memory_viz)"),
        OPTION("chakra", STRING, &args->chakra_path, "DIR",
               "Chakra execution traces, one a rank, for ASTRA-sim"),
        OPTION("ops", STRING, &args->ops_path, "FILE", "CSV of ops with start and end"),
        OPTION("explain", FLAG, &args->explain, NULL,
               "the critical path, and how much each resource would shorten the step"),
        OPTION("monte-carlo", INT, &args->monte_carlo, "N",
               "N steps over the profile's spread and --jitter: median, 5..95 %", .max = 1000000),
        OPTION("schedule-csv", STRING, &args->schedule_csv, "FILE",
               "op lists instead of --schedule"),
    };
    return options_add(options, n, rows, sizeof rows / sizeof *rows);
}

/* List all options. Returns how many there are. */
static int list_options(struct sim_args *args, struct step_setting *settings, int num_settings,
                        struct option options[OPTIONS_ROOM])
{
    int n = list_step(args, options, list_run(args, options));
    n = add_settings(settings, num_settings, GROUP_STEP, options, n);
    const int devices = n;
    n = add_settings(settings, num_settings, GROUP_DEVICES, options, n);
    options[devices].group = "costs, devices and links";
    const int layout = n;
    n = add_settings(settings, num_settings, GROUP_LAYOUT, options, n);
    options[layout].group = "the layout: short for keys of the job, in place of one with --step";
    return n;
}

enum status sim_args_read(const struct command *command, int argc, char **argv,
                          struct sim_args *args, bool *help, struct err *err)
{
    struct option options[OPTIONS_ROOM];
    struct command_line line = {.options = options, .max_positional = 1};
    *args = (struct sim_args){0};
    step_request_init(&args->request);
    args->num_settings = step_settings(args->settings);
    line.num_options = list_options(args, args->settings, args->num_settings, options);
    enum status rc = command_parse(command, &line, argc, argv, err);
    *help = line.help;
    if (rc != OK || line.help)
        return rc;
    args->job_path = line.positional[0];
    for (int i = 0; i < args->num_settings; i++)
        if (args->settings[i].flag)
            args->settings[i].text = "true";
    rc = step_request_read(args->settings, args->num_settings, &args->request, err);
    return rc == OK ? check_options(args, err) : rc;
}

/* Whether the run loses nodes. ERR_INPUT: it does not, and an option of such runs is given. */
static enum status faults_asked(const struct sim_args *args, const struct job *job, bool *faults,
                                struct err *err)
{
    const bool sweep = args->sweeps.count > 0;
    *faults = args->faults ? strcmp(args->faults, "none") != 0
                           : job->cluster.faults && !args->step && !sweep && !args->record_path &&
                                 !args->plan_path;
    const char *const name = args->seeds > 0               ? "seeds"
                             : args->timeline_path         ? "timeline"
                             : args->threads > 0 && !sweep ? "threads"
                                                           : NULL;
    if (*faults || !name)
        return OK;
    return err_set(err, ERR_INPUT, "--%s needs --faults%s", name,
                   strcmp(name, "threads") == 0 ? " or --sweep" : "");
}

static enum status no_faults(const struct command *command, const struct sim_args *args,
                             struct job *job, struct err *err)
{
    (void)command;
    (void)args;
    err_set(err, ERR_INPUT, "%s: cluster.faults: this build simulates no run that loses nodes",
            job->name);
    err_hint(err, "--step and --sweep take such a job");
    return ERR_INPUT;
}

/* A run that loses nodes, unless this build lacks them. */
static enum status lose_nodes(const struct command *command, const struct sim_args *args,
                              struct job *job, struct err *err)
{
    enum status (*run)(const struct command *, const struct sim_args *, struct job *,
                       struct err *) = no_faults;
    /* wall: sim/faults */
    run = sim_faults;
    /* wall end */
    return run(command, args, job, err);
}

static enum status sweep(const struct command *command, const struct sim_args *args,
                         const struct job *job, struct err *err)
{
    const struct sweep_ask ask = {.job = args->job_path ? job : NULL,
                                  .request = &args->request,
                                  .settings = args->settings,
                                  .num_settings = args->num_settings,
                                  .overrides = &args->overrides,
                                  .axes = &args->sweeps,
                                  .step = args->step,
                                  .json = args->json,
                                  .csv = args->csv,
                                  .table = args->table,
                                  .quiet = args->quiet,
                                  .no_wall = args->no_wall,
                                  .threads = args->threads};
    return sim_sweep(command, &ask, err);
}

static enum status one_step(const struct command *command, const struct sim_args *args,
                            const struct job *job, struct err *err)
{
    struct step_answer answer = {0};
    enum status rc = sim_job_step(args, job, &answer, err);
    THEN(answer_step(command, args, &answer, err));
    step_answer_clear(&answer);
    return rc;
}

static enum status run_sim(const struct command *command, int argc, char **argv, struct err *err)
{
    struct sim_args args;
    struct step_request *request = &args.request;
    bool help;
    enum status rc = sim_args_read(command, argc, argv, &args, &help, err);
    if (rc != OK || help)
        return rc;
    const bool sweeps = args.sweeps.count > 0;
    struct ticker progress;
    ticker_begin(&progress, command_progress(args.quiet));
    if (!sweeps) {
        request->options.record_ops = args.trace_path || args.snapshot_path || args.chakra_path ||
                                      args.ops_path || args.explain;
        request->options.progress = tick;
        request->options.progress_ctx = &progress;
    }
    struct schedule order = {0};
    struct job job = {0};
    if (args.schedule_csv)
        rc = read_schedule(&args, &order, err);
    request->order = args.schedule_csv ? &order : NULL;
    if (args.job_path || !sweeps)
        THEN(sim_job_load(&args, &job, err));
    bool faults = false;
    THEN(faults_asked(&args, &job, &faults, err));
    if (rc != OK)
        goto out;
    if (sweeps)
        rc = sweep(command, &args, &job, err);
    else if (faults)
        rc = lose_nodes(command, &args, &job, err);
    else if (args.step)
        rc = one_step(command, &args, &job, err);
    else
        rc = sim_run(command, &args, &job, err);
out:
    job_clear(&job);
    schedule_clear(&order);
    ticker_clear(&progress, stderr);
    return rc;
}

const struct command command_sim = {
    .name = "sim",
    .args =
        "JOB [--set a.b=v] | JOB --step | --step --model MODEL --cluster CLUSTER --stages K ...",
    .summary = "simulate a whole elastic run, or one step, in virtual time",
    .takes = "JOB",
    .run = run_sim,
};
