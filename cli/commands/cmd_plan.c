/* cli/commands/cmd_plan.c - `elapse plan`: the best plan for a job, the plans that it was chosen over, and
 * the plan of the release for comparison.
 *
 * solve() makes a plan by plan_for(). plan_show.c prints it, plan_change.c the transition from
 * another F (--from-frozen), and run_all_frozen() a table over F. Read run_one() at the end first.
 */
#include "cli/plans/band_show.h"
#include "cli/plans/calibrated.h"
#include "cli/base/command.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* wall: cli/frameworks */
#include "cli/frameworks/plan_from.h"
#include "cli/frameworks/target_answer.h"
#include "profiles/frameworks/command_job.h"
/* wall end */
#include "cli/plans/plan_change.h"
#include "cli/plans/plan_search.h"
#include "cli/plans/plan_show.h"
#include "cli/simulate/sim_command.h"
#include "partition/plan/autodp.h"
#include "partition/search/plan_for.h"
#include "partition/search/turn.h"
#include "partition/base/units.h"
#include "profiles/base/clock.h"
#include "profiles/base/whole_file.h"
#include "profiles/job/job_json.h"
#include "profiles/cost/profile_cost.h"
#include "sim/run/plan_judge.h"

struct request {
    const char *from; /* the framework of --from */
    /* Short for --set model=... and so on; NULL: not given. */
    const char *model, *cluster, *seq, *batch, *tokens, *dtype, *optimizer, *price, *framework,
        *headroom;
    const char *target; /* of --for */
    const char *job_path, *db_path, *out_path;
    const char *cost, *efficiency, *calibration; /* short for --set cost.source=... and so on */
    struct option_list overrides, sweeps;
    int64_t frozen_layers;
    int64_t from_frozen; /* -1: print no transition */
    struct plan_time time;
    bool cached, all_frozen, explain, as_json, quiet, simulate, no_simulate;
    bool csv, table; /* of a sweep */
    bool stages;     /* print all of them */
};

enum { MOST_SHORTS = 13 }; /* options that are short for --set */

/* --- solving ------------------------------------------------------------------------------- */

/* Plan a job with F layers frozen. */
static void solve(const struct request *q, const struct job *job, const struct cost *cost,
                  int num_frozen, bool cached, struct plan_answer *answer)
{
    const struct plan_search search = {.num_frozen_layers = num_frozen,
                                       .cached = cached,
                                       .unshared = q->no_simulate,
                                       .explain = q->explain,
                                       .quiet = q->quiet,
                                       .advise = !q->all_frozen && q->sweeps.count == 0,
                                       .time = q->time};
    const int64_t begin = clock_now_ns();
    enum status rc = plan_search(job, cost, &search, &answer->result, &answer->err);
    THEN(plan_answer_finish(job, cost, answer));
    if (rc != OK && answer->err.status == OK)
        err_set(&answer->err, ERR_INFEASIBLE, "no plan");
    if (rc == OK) {
        const int64_t samples =
            rates_run_samples(job, &answer->result.plan, job_num_samples(job, true));
        answer->run =
            run_cost_of(&job->cluster, rates_run_ns(samples, answer->result.samples_per_s));
    }
    answer->solve_ns = clock_now_ns() - begin;
}

/* --- the change from another F ------------------------------------------------------------- */

/* Find the transfers of a change from the job's best plan with q->from_frozen layers to the plan of
 * *answer. Devices of that plan are renamed, so that stages keep their devices where possible. *old
 * gets the first plan, and the caller owns it. */
static enum status plan_change_find(const struct request *q, const struct job *job,
                                    const struct cost *cost, struct plan_answer *answer,
                                    struct plan_answer *old, struct transition *transition,
                                    struct err *err)
{
    solve(q, job, cost, (int)q->from_frozen, false, old);
    if (old->err.status != OK)
        return err_set(err, old->err.status, "with %lld frozen layers: %s",
                       (long long)q->from_frozen, old->err.msg);
    enum status rc = autodp_keep_devices(&job->model, &job->cluster, &old->result.plan, false,
                                         &answer->result.plan, err);
    THEN(transition_build(&job->model, &job->cluster, &old->result.plan, &answer->result.plan,
                          transition, err));
    return rc;
}

/* --- the table over F ---------------------------------------------------------------------- */

/* Seconds per 1,000 samples. They are comparable if R, and so the samples of a step, differ. */
static double per_thousand(const struct plan_answer *answer)
{
    return answer->err.status == OK ? 1000 / answer->result.samples_per_s : 0;
}

static void print_frozen_head(const struct request *q, const struct job *job,
                              const struct cost_handle *cost)
{
    char training[160];
    printf("%s: %s on %s, costs: %s%s\n", job->name, job->model.name, job->cluster.name,
           cost->cost.label, q->cached ? "; cache filled" : "");
    printf("%s\n", plan_training_text(job, training, sizeof training));
    if (cost->note[0])
        printf("note: %s\n", cost->note);
    printf("\n%2s | %3s %4s %4s %-11s %-7s %10s %10s | %3s %4s %4s %10s %10s | %s\n", "F", "K", "R",
           "M", "schedule", "frozen", "step", "s/1000", "K", "R", "M", "released", "s/1000",
           "faster");
}

/* A row of the table over F: our plan, and that of PipeTransformer's released code. */
static void print_frozen_row(int f, const struct plan_answer *ours,
                             const struct plan_answer *theirs)
{
    const struct plan *p = &ours->result.plan, *t = &theirs->result.plan;
    char a[32], b[32];
    if (ours->err.status != OK) {
        printf("%2d | %s\n", f, ours->err.msg);
        return;
    }
    printf("%2d | %3d %4d %4d %-11s %-7s %10s %10.3f | ", f, p->num_ranks, plan_width(p),
           p->microbatches.count, schedule_kind_name(p->schedule), frozen_placement_name(p->frozen),
           format_ns(p->step_ns, a, sizeof a), per_thousand(ours));
    if (theirs->err.status == OK)
        printf("%3d %4d %4d %10s %10.3f | %.2fx\n", t->num_ranks, plan_width(t),
               t->microbatches.count, format_ns(t->step_ns, b, sizeof b), per_thousand(theirs),
               per_thousand(theirs) / per_thousand(ours));
    else
        printf("%s\n", theirs->err.msg);
}

/* Print the table over F. A row without a plan says why. If no row has a plan, the command fails.
 */
static enum status run_all_frozen(const struct command *command, const struct request *q,
                                  const struct job *job, const struct cost_handle *cost,
                                  struct err *err)
{
    struct json *json = q->as_json ? plan_show_begin(command, job, cost) : NULL;
    struct json *rows = q->as_json ? json_add_array(json, "by_frozen") : NULL;
    if (!q->as_json)
        print_frozen_head(q, job, cost);
    const struct job release = job_as_released(job);
    bool extrapolated = false, any = false;
    enum status rc = OK;
    for (int f = 0; f <= job->model.num_layers && rc == OK; f++) {
        struct plan_answer ours = {0}, theirs = {0};
        solve(q, job, &cost->cost, f, q->cached, &ours);
        solve(q, &release, &cost->cost, f, q->cached, &theirs);
        any = any || ours.err.status == OK;
        extrapolated = extrapolated || ours.result.extrapolated || theirs.result.extrapolated;
        const enum status got = ours.err.status;
        const bool answer = got == OK || got == ERR_INFEASIBLE || got == ERR_UNFINISHED;
        if (!answer || (f == job->model.num_layers && !any)) {
            rc = err_copy(err, &ours.err);
        } else if (q->as_json) {
            struct json *row = json_add_object(rows, NULL);
            json_add_int(row, "frozen_layers", f);
            plan_show_add(json_add_object(row, "plan"), &ours, &job->cluster);
            plan_show_add(json_add_object(row, "released"), &theirs, &job->cluster);
        } else {
            print_frozen_row(f, &ours, &theirs);
        }
        plan_answer_clear(&ours);
        plan_answer_clear(&theirs);
    }
    if (extrapolated && !json)
        printf("\nsome costs are extrapolated\n");
    if (json)
        json_add_bool(json, "extrapolated", extrapolated);
    if (rc == OK && json)
        return command_answer(json, err);
    json_free(json);
    return rc;
}

/* --- the command --------------------------------------------------------------------------- */

/* The job with its overrides. */
static enum status load_job(const struct request *q, const char *path, struct job *job,
                            struct err *err)
{
    return (q->sweeps.count > 0 ? job_open : job_load)(path, q->overrides.items, q->overrides.count,
                                                       job, err);
}

/* Samples per second of a plan in bf16; 0 if they cannot be told. */
static double rate_in_bf16(const struct request *q, const struct job *wide, const struct plan *plan)
{
    static const char *const dtype[] = {"train.dtype=bf16"};
    struct job job = {0};
    struct cost_handle cost = {0};
    struct plan narrow = *plan; /* borrows everything */
    double rate = 0;
    enum status rc = job_changed(wide, dtype, 1, &job, NULL);
    THEN(cost_choose(q->db_path, &job, &cost, NULL));
    if (rc == OK) {
        struct planner_problem problem;
        struct planner_options options;
        const struct sim_options plain = {.seed = 1};
        const struct cost all = turn_cost(&job, &cost.cost);
        const struct plan_judge judge = {
            .setting = {&job.model, &job.cluster, &all}
        };
        int64_t step_ns;
        double bubble;
        planner_from_job(&job, &judge.setting, plan->num_frozen_layers, &problem, &options);
        narrow.optim_bytes_per_param = problem.optim_bytes_per_param;
        if (plan_simulate(&judge, &narrow, &plain, &step_ns, &bubble, NULL) == OK)
            rate = plan_samples_per_s(plan, step_ns);
    }
    cost_handle_clear(&cost);
    job_clear(&job);
    return rate;
}

/* One plan, and what is printed with it. */
struct one_plan {
    struct plan_answer answer, released, old; /* old: of --from-frozen */
    struct transition transition;
    struct setting setting;
    struct cost_query query;
    struct calibrated on;
    int64_t interval_ns[2];
    bool elastic; /* the released code's plan is shown */
};

static void one_plan_clear(struct one_plan *one)
{
    transition_clear(&one->transition);
    plan_answer_clear(&one->old);
    plan_answer_clear(&one->answer);
    plan_answer_clear(&one->released);
}

/* Find the plan and all that is printed with it. *one is zeroed; the caller clears it. */
static enum status find_one(const struct request *q, const struct job *job,
                            const struct cost_handle *cost, struct one_plan *one, struct err *err)
{
    struct plan_answer *answer = &one->answer;
    const struct job release = job_as_released(job);
    enum status rc = OK;
    one->elastic = job->freeze.policy != FREEZE_NONE || q->frozen_layers > 0;
    one->setting = (struct setting){&job->model, &job->cluster, &cost->cost};
    one->query = cost_query_of(job);
    one->on =
        (struct calibrated){q->db_path, &one->setting, &one->query, cost, &answer->result.plan};
    solve(q, job, &cost->cost, (int)q->frozen_layers, q->cached, answer);
    if (answer->err.status != OK)
        return err_copy(err, &answer->err);
    if (cost->bf16_is_faster && !q->no_simulate)
        answer->bf16_samples_per_s = rate_in_bf16(q, job, &answer->result.plan);
    if (q->from_frozen >= 0)
        rc = plan_change_find(q, job, &cost->cost, answer, &one->old, &one->transition, err);
    THEN(calibrated_interval(&one->on, answer->result.plan.step_ns, one->interval_ns, err));
    THEN(framework_range_find(&one->setting, &answer->result.plan, answer->result.plan.step_ns,
                              &answer->range, err));
    if (rc == OK && (one->elastic || q->as_json || q->out_path))
        solve(q, &release, &cost->cost, (int)q->frozen_layers, q->cached, &one->released);
    return rc;
}

/* The object of --json and of -o. The caller owns it. */
static struct json *one_to_json(const struct command *command, const struct request *q,
                                const struct job *job, const struct cost_handle *cost,
                                const struct one_plan *one)
{
    const struct plan_answer *answer = &one->answer;
    struct json *json = plan_show_begin(command, job, cost);
    json_add_bool(json, "extrapolated", answer->result.extrapolated);
    plan_show_add(json, answer, &job->cluster);
    calibrated_add(&one->on, one->interval_ns, json);
    band_add(&one->setting, cost, answer->result.plan.step_ns, json);
    framework_show_add(&answer->range, json);
    plan_show_add(json_add_object(json, "released"), &one->released, &job->cluster);
    if (q->explain)
        plan_show_add_others(json, &answer->result);
    if (q->from_frozen >= 0)
        plan_change_add(json, job, &one->old.result.plan, &one->transition);
    return json;
}

static enum status print_one(const struct request *q, const struct job *job,
                             const struct cost_handle *cost, const struct one_plan *one,
                             struct err *err)
{
    plan_show_print(job, cost, &one->answer, one->elastic ? &one->released : NULL, q->stages);
    calibrated_print(&one->on, one->interval_ns);
    if (q->explain)
        plan_show_print_others(job, &one->answer);
    return q->from_frozen >= 0
               ? plan_change_print(job, &one->old.result.plan, &one->transition, err)
               : OK;
}

static enum status run_one(const struct command *command, const struct request *q,
                           const struct job *job, const struct cost_handle *cost, struct err *err)
{
    struct one_plan one = {0};
    /* wall: cli/frameworks */
    struct target_answer target = {0};
    /* wall end */
    struct json *json = NULL;
    enum status rc = find_one(q, job, cost, &one, err);
    if (rc == OK && (q->as_json || q->out_path))
        json = one_to_json(command, q, job, cost, &one);
    /* wall: cli/frameworks */
    if (q->target)
        THEN(target_answer_make(job, &one.answer.result.plan, q->out_path, q->as_json ? json : NULL,
                                &target, err));
    /* wall end */
    if (q->out_path && !q->target)
        THEN(json_write_output(json, q->out_path, err));
    if (rc == OK && q->as_json) {
        rc = command_answer(json, err);
        json = NULL;
    } else {
        THEN(print_one(q, job, cost, &one, err));
        /* wall: cli/frameworks */
        if (rc == OK && q->target)
            target_answer_print(job, &target, q->out_path);
        /* wall end */
    }
    /* wall: cli/frameworks */
    target_answer_clear(&target);
    /* wall end */
    json_free(json);
    one_plan_clear(&one);
    return rc;
}

/* A table of plans: each point is planned, and its step is simulated as `sim JOB --step` does. */
static enum status run_sweep(const struct command *command, const struct request *q,
                             const char *job_path, struct err *err)
{
    struct step_request request;
    struct job job = {0};
    const struct sweep_ask ask = {.job = &job,
                                  .request = &request,
                                  .overrides = &q->overrides,
                                  .axes = &q->sweeps,
                                  .step = true,
                                  .json = q->as_json,
                                  .csv = q->csv,
                                  .table = q->table,
                                  .quiet = q->quiet};
    if (q->all_frozen || q->from_frozen >= 0 || q->explain || q->simulate || q->no_simulate ||
        q->out_path || q->target)
        return err_set(err, ERR_INPUT,
                       "--sweep excludes --all-frozen, --from-frozen, --explain, --simulate, "
                       "--no-simulate, --for, -o");
    if (q->csv + q->table + q->as_json > 1)
        return err_set(err, ERR_INPUT, "--csv, --table and --json exclude each other");
    step_request_init(&request);
    request.db_path = q->db_path;
    request.num_frozen = q->frozen_layers;
    request.time = q->time;
    if (q->cached)
        request.frozen = FROZEN_CACHED;
    enum status rc = load_job(q, job_path, &job, err);
    THEN(sim_sweep(command, &ask, err));
    job_clear(&job);
    return rc;
}

/* Restrict a job to what the framework of --for runs. Its kernels are the framework's own, unless the job
 * names others. */
static enum status set_target(const char *name, struct job *job, struct err *err)
{
    const struct plan_target *target = NULL;
    enum status rc = target_find(name, &target, err);
    if (rc == OK && target->framework != FRAMEWORK_AUTO && job->train.framework == FRAMEWORK_AUTO) {
        struct job before = *job;
        char text[64];
        const char *const list[] = {text};
        snprintf(text, sizeof text, "train.framework=%s", framework_kind_names[target->framework]);
        *job = (struct job){0};
        rc = job_changed(&before, list, 1, job, err);
        job_clear(&before);
    }
    job->pipeline.target = target;
    return rc;
}

/* Refuse options of one plan that exclude each other. */
static enum status refuse_options(const struct request *q, struct err *err)
{
    const bool other_plan = q->frozen_layers > 0 || q->from_frozen >= 0;
    return OPTIONS_REFUSE(
        err, {q->csv, "--csv needs --sweep"}, {q->table, "--table needs --sweep"},
        {q->all_frozen && (other_plan || q->explain || q->out_path),
         "--all-frozen excludes --frozen, --from-frozen, --explain, -o"},
        {q->simulate && q->no_simulate, "--simulate and --no-simulate exclude each other"},
        {q->target && (other_plan || q->all_frozen || q->cached),
         "--for excludes --all-frozen, --frozen, --from-frozen, --cached"});
}

/* Plan a job: one plan, or a table over F. */
static enum status run_plan(const struct command *command, const struct request *q,
                            const char *job_path, struct err *err)
{
    struct job job = {0};
    struct cost_handle cost = {0};
    enum status rc = refuse_options(q, err);
    THEN(load_job(q, job_path, &job, err));
    if (rc != OK)
        return rc;
    if (q->target)
        rc = set_target(q->target, &job, err);
    THEN(model_check_frozen(&job.model, q->frozen_layers, err));
    if (rc == OK && q->out_path)
        rc = output_check(q->out_path, err);
    if (rc == OK && q->from_frozen > q->frozen_layers)
        rc = err_set(err, ERR_INPUT, "--from-frozen must be 0..%lld (layers never thaw), got %lld",
                     (long long)q->frozen_layers, (long long)q->from_frozen);
    THEN(cost_choose(q->db_path, &job, &cost, err));
    if (rc == OK) {
        cost.cost = turn_cost(&job, &cost.cost);
        rc = q->all_frozen ? run_all_frozen(command, q, &job, &cost, err)
                           : run_one(command, q, &job, &cost, err);
    }
    cost_handle_clear(&cost);
    job_clear(&job);
    return rc;
}

/* wall: cli/frameworks */
/* Predict the layout of a command that runs today. */
static enum status run_from(const struct command *command, const struct request *q,
                            const char *text, struct err *err)
{
    const struct plan_from ask = {.framework = q->from,
                                  .cluster = q->cluster,
                                  .model = q->model,
                                  .db_path = q->db_path,
                                  .overrides = &q->overrides,
                                  .time = q->time,
                                  .as_json = q->as_json,
                                  .quiet = q->quiet,
                                  .stages = q->stages,
                                  .unshared = q->no_simulate};
    if (!q->cluster)
        return err_set(err, ERR_INPUT, "--from needs --cluster CLUSTER");
    if (q->all_frozen || q->frozen_layers > 0 || q->from_frozen >= 0 || q->cached || q->out_path ||
        q->explain || q->sweeps.count > 0 || q->target)
        return err_set(err, ERR_INPUT,
                       "--from excludes --all-frozen, --frozen, --from-frozen, "
                       "--cached, --explain, --sweep, --for, -o");
    return plan_from(command, &ask, text, err);
}
/* wall end */

/* Put an option that is short for an override of the job before the overrides, so that --set has the
 * last word. *text is the caller's to free. */
static enum status set_shortly(struct option_list *list, const char *path, const char *value,
                               char **text, struct err *err)
{
    if (!value)
        return OK;
    if (list->count == OPTION_LIST_MAX)
        return err_set(err, ERR_INPUT, "--set given more than %d times",
                       OPTION_LIST_MAX - MOST_SHORTS);
    if (asprintf(text, "%s=%s", path, value) < 0) {
        *text = NULL;
        return err_nomem(err);
    }
    memmove(list->items + 1, list->items, (size_t)list->count * sizeof *list->items);
    list->items[0] = *text;
    list->count++;
    return OK;
}

/* Put the options that stand for keys of the job before the overrides, and refuse those that exclude
 * each other. texts: what to free after the command. */
static enum status take_shorts(struct request *q, const char *job, char *texts[MOST_SHORTS],
                               struct err *err)
{
    if (!job && (q->from || !q->model || !q->cluster)) {
        err_set(err, ERR_INPUT, "plan: JOB is missing");
        err_hint(err, "elapse plan JOB, or elapse plan --model MODEL --cluster CLUSTER");
        return ERR_INPUT;
    }
    if (q->from && (q->seq || q->batch || q->tokens || q->dtype || q->optimizer || q->framework))
        return err_set(
            err, ERR_INPUT,
            "--from excludes --seq, --batch, --tokens, --dtype, --optimizer and --framework");
    const struct {
        const char *path, *value;
    } shorts[MOST_SHORTS] = {
  /* applied from the last to the first */
        {"cluster.price",        q->price                   },
        {"pipeline.headroom",    q->headroom                },
        {"model.seq",            q->seq                     },
        {"model",                q->from ? NULL : q->model  },
        {"cluster",              q->from ? NULL : q->cluster},
        {"train.batch.global",   q->batch                   },
        {"train.tokens",         q->tokens                  },
        {"train.dtype",          q->dtype                   },
        {"train.optimizer.kind", q->optimizer               },
        {"train.framework",      q->framework               },
        {"cost.source",          q->cost                    },
        {"cost.efficiency",      q->efficiency              },
        {"cost.calibration",     q->calibration             },
    };
    enum status rc = OK;
    for (int i = 0; i < MOST_SHORTS && rc == OK; i++)
        rc = set_shortly(&q->overrides, shorts[i].path, shorts[i].value, &texts[i], err);
    return rc;
}

enum { OPTIONS_ROOM = 48 };

/* List the options of the plan and its table. Returns how many there are. */
static int list_own(struct request *q, struct option options[OPTIONS_ROOM])
{
    const struct option rows[] = {
        OPTION("set", LIST, &q->overrides, "a.b=v", "override a value of the job (repeatable)",
               .keys = &job_keys),
        OPTION("frozen", INT, &q->frozen_layers, "F",
               "plan with F transformer layers frozen (default 0)", .max = 1000000),
        OPTION("from-frozen", INT, &q->from_frozen, "F",
               "also print the transfers of a change from the plan with F frozen layers",
               .max = 1000000),
        OPTION("cached", FLAG, &q->cached, NULL,
               "the frozen layers' output is in the cache already"),
        OPTION("all-frozen", FLAG, &q->all_frozen, NULL,
               "a table over F = 0..L, next to the plans of PipeTransformer's released code"),
        OPTION("explain", FLAG, &q->explain, NULL,
               "the next best plans, and why each other pipeline length was rejected"),
        OPTION("simulate", FLAG, &q->simulate, NULL,
               "choose by the event engine, where transfers share links (default; train needs -o)"),
        OPTION("no-simulate", FLAG, &q->no_simulate, NULL,
               "choose by step times without shared links, as train does, and print them"),
        OPTION("budget", NS, &q->time.budget_ns, "TIME",
               "processor time of the search; the best plan found by then, with its bound (default "
               "10s; 0: to "
               "its end, but at most 5min)"),
        OPTION(
            "work", INT, &q->time.max_looks, "N",
            "in place of --budget: end the search after N looks at its state, on any machine with "
            "the same plan",
            .min = 1, .max = INT64_MAX / 16),
        OPTION("deadline", NS, &q->time.deadline_ns, "TIME",
               "time of the clock for the search, as well (default: none)"),
        OPTION("sweep", LIST, &q->sweeps, "path=v1,v2,...",
               "a table over a job key (repeatable: cross product)"),
        OPTION("csv", FLAG, &q->csv, NULL, "that table as CSV"),
        OPTION("table", FLAG, &q->table, NULL,
               "print that table even if stdout is not a terminal (default there: JSON lines)"),
        OPTION("o", STRING, &q->out_path, "FILE",
               "write the plan, for 'elapse sim' and 'elapse train' with --plan FILE"),
        /* wall: cli/frameworks */
        OPTION("from", STRING, &q->from, "FRAMEWORK",
               "JOB is a command or a script of %s: predict its layout, find a faster one",
               .values = COMMAND_READERS),
        OPTION("for", STRING, &q->target, "FRAMEWORK",
               "only plans that it runs, and its configuration in -o FILE: %s",
               .values = TARGET_NAMES),
        /* wall end */
    };
    return options_add(options, 0, rows, sizeof rows / sizeof *rows);
}

/* List the options that stand for keys of the job, and those of all commands. Returns the new n. */
static int list_shorts(struct request *q, struct option options[OPTIONS_ROOM], int n)
{
    const struct option rows[] = {
        OPTION("model", STRING, &q->model, "MODEL",
               "a model in place of the job's; with --cluster no JOB is needed"),
        OPTION("cluster", STRING, &q->cluster, "CLUSTER",
               "a cluster in place of the job's; with --from, the one it runs on"),
        OPTION("seq", STRING, &q->seq, "N", "tokens of a sample (model.seq)"),
        OPTION("batch", STRING, &q->batch, "SAMPLES",
               "samples of a step in all (train.batch.global)"),
        OPTION("tokens", STRING, &q->tokens, "N",
               "of the whole run, of synthetic data (train.tokens)"),
        OPTION("dtype", STRING, &q->dtype, "NAME", "data type (train.dtype)", .names = dtype_names),
        OPTION("optimizer", STRING, &q->optimizer, "NAME", "optimizer (train.optimizer.kind)",
               .names = optimizer_kind_names),
        OPTION("price", STRING, &q->price, "X", "of a device and hour (cluster.price)"),
        OPTION("headroom", STRING, &q->headroom, "X",
               "share of a device's memory to keep free (pipeline.headroom; default 8%, with a "
               "framework 12%)"),
        OPTION("framework", STRING, &q->framework, "NAME",
               "what launches the kernels (train.framework)"),
        OPTION("cost", STRING, &q->cost, "NAME",
               "source of times: %s (default: the job's cost.source; roofline is ideal)",
               .names = cost_choice_names),
        OPTION("efficiency", STRING, &q->efficiency, "X",
               "speed of kernels or roofline, more than 0 to 10 (default: the job's, 1)"),
        OPTION("calibration", STRING, &q->calibration, "NAME",
               "a calibration of 'elapse calibrate' (default: the job's cost.calibration)"),
        OPTION("stages", FLAG, &q->stages, NULL, "print every stage, not the first few alone"),
        OPTION_QUIET(&q->quiet),
        OPTION_DB(&q->db_path),
        OPTION_JSON(&q->as_json),
    };
    return options_add(options, n, rows, sizeof rows / sizeof *rows);
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    struct request q = {.from_frozen = -1, .time = PLAN_TIME};
    char *texts[MOST_SHORTS] = {NULL};
    struct option options[OPTIONS_ROOM];
    struct command_line line = {.options = options, .max_positional = 1};
    line.num_options = list_shorts(&q, options, list_own(&q, options));
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    const char *job = line.num_positional > 0 ? line.positional[0] : NULL;
    rc = take_shorts(&q, job, texts, err);
    enum status (*way)(const struct command *, const struct request *, const char *, struct err *) =
        q.sweeps.count > 0 ? run_sweep : run_plan;
    /* wall: cli/frameworks */
    if (q.from)
        way = run_from;
    /* wall end */
    THEN(way(command, &q, job, err));
    for (int i = 0; i < MOST_SHORTS; i++)
        free(texts[i]);
    return rc;
}

const struct command command_plan = {
    .name = "plan",
    .args = "JOB [--set a.b=v] [--explain] | --model MODEL --cluster CLUSTER [--batch SAMPLES]",
    .summary = "the best plan for a job: pipeline length, replicas, cut, schedule, micro-batches",
    .takes = "JOB",
    .run = run,
};
