/* cli/cmd_plan.c - `elapse plan`: the best plan for a job, the plans that it was chosen over, and
 * the plan of the release for comparison.
 *
 * solve() makes a plan by plan_for(). The file then prints it as JSON or text, the transition from
 * another F (--from-frozen), or a table over F (--all-frozen). Read run_one() at the end first. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

#include "cli/sim_request.h"
#include "partition/autodp.h"
#include "partition/plan_for.h"
#include "partition/turn.h"
#include "partition/units.h"
#include "profiles/clock.h"
#include "profiles/job_json.h"
#include "profiles/plan_json.h"
#include "profiles/profile_cost.h"
#include "sim/elastic_run.h"

struct request {
    const char *job_path, *db_path, *out_path;
    struct option_list overrides;
    int64_t frozen_layers;
    int64_t from_frozen; /* -1: print no transition */
    bool cached, all_frozen, explain, as_json, simulate, no_simulate;
};

/* A plan and how it was found, or the reason why there is none. */
struct answer {
    struct planner_result result;
    struct err err;
    int64_t solve_ns;
};

static void answer_clear(struct answer *answer)
{
    planner_result_clear(&answer->result);
    *answer = (struct answer){0};
}

/* --- solving ------------------------------------------------------------------------------- */

/* The job with the settings of PipeTransformer's release. Its members are borrowed from job. */
static struct job as_released(const struct job *job)
{
    struct job released = *job;
    released.pipeline.balancer = BALANCER_RELEASED;
    released.pipeline.schedule_auto = false;
    released.pipeline.schedule = SCHEDULE_GPIPE;
    released.pipeline.recompute_auto = false;
    released.pipeline.recompute = RECOMPUTE_NEVER;
    released.pipeline.frozen_auto = true;
    return released;
}

/* Replace the step time of the chosen plan by the one of the event engine. */
static enum status judge_chosen(const struct planner_judge *judge, struct planner_result *result,
                                struct err *err)
{
    struct plan *plan = &result->plan;
    struct err why = {0};
    int64_t step_ns;
    const enum status rc = judge->step_ns(judge->ctx, plan, &step_ns, &why);
    if (rc == ERR_INFEASIBLE) /* too large to simulate */
        return OK;
    if (rc != OK)
        return err_copy(err, &why);
    if (step_ns > plan->step_ns)
        plan->step_ns = step_ns;
    result->samples_per_s =
        (double)plan->num_replicas * (double)plan->batch / (double)plan->step_ns * 1e9;
    result->gap = (double)plan->step_ns / (double)result->lower_bound_ns - 1;
    result->best[0].judged_ns = plan->step_ns;
    result->best[0].samples_per_s = result->samples_per_s;
    return OK;
}

/* Plan a job with F layers frozen. */
static void solve(const struct request *q, const struct job *job, const struct cost *cost,
                  int num_frozen, bool cached, struct answer *answer)
{
    const struct run_state state = {.num_frozen_layers = num_frozen,
                                    .num_samples = job_num_samples(job, true),
                                    .cache_room = cached,
                                    .cache_filled = cached};
    const struct setting setting = {&job->model, &job->cluster, cost};
    struct plan_judge engine = {.setting = setting};
    const struct planner_judge judge = {plan_judge_step, &engine, q->explain};
    const int64_t start = clock_now_ns();
    enum status rc =
        plan_for(job, &setting, &state, q->simulate ? &judge : NULL, &answer->result, &answer->err);
    if (rc == OK && !q->simulate && !q->no_simulate)
        rc = judge_chosen(&judge, &answer->result, &answer->err);
    if (rc != OK && answer->err.status == OK)
        err_set(&answer->err, ERR_INFEASIBLE, "no plan");
    answer->solve_ns = clock_now_ns() - start;
}

static const char *cache_text(const struct plan *plan)
{
    return plan->frozen == FROZEN_CACHED ? "read" : "off";
}

/* --- JSON ---------------------------------------------------------------------------------- */

static void add_ints(struct json *parent, const char *key, const int64_t *values, int n)
{
    struct json *array = json_add_array(parent, key);
    for (int i = 0; i < n; i++)
        json_add_int(array, NULL, values[i]);
}

static void add_choice(struct json *json, const struct plan *plan)
{
    plan_json_add(json, plan);
    json_add_string(json, "cache", cache_text(plan));
}

static void add_answer(struct json *json, const struct answer *answer)
{
    const struct planner_result *result = &answer->result;
    if (answer->err.status != OK) {
        json_add_string(json, "error", answer->err.msg);
        return;
    }
    const struct plan *plan = &result->plan;
    add_choice(json, plan);
    add_ints(json, "stage_ns", result->stage_ns, plan->num_stages);
    json_add_double(json, "samples_per_s", result->samples_per_s);
    json_add_int(json, "lower_bound_ns", result->lower_bound_ns);
    json_add_double(json, "gap", result->gap);
    json_add_int(json, "candidates", result->candidates);
    json_add_int(json, "evaluated", result->evaluated);
    json_add_int(json, "solve_ns", answer->solve_ns);
}

static const char *verdict_name(enum planner_verdict verdict)
{
    static const char *const names[] = {"chosen", "slower", "bound", "memory", "none"};
    return names[verdict];
}

static void add_explanation(struct json *json, const struct planner_result *result)
{
    struct json *best = json_add_array(json, "best");
    for (int i = 0; i < result->num_best; i++) {
        const struct planner_candidate *candidate = &result->best[i];
        struct json *one = json_add_object(best, NULL);
        struct plan plan = candidate->plan;
        if (candidate->judged_ns > 0)
            plan.step_ns = candidate->judged_ns;
        add_choice(one, &plan);
        json_add_int(one, "unshared_step_ns", candidate->unshared_ns);
        json_add_int(one, "lower_bound_ns", candidate->lower_bound_ns);
        json_add_double(one, "samples_per_s", candidate->samples_per_s);
    }
    struct json *lengths = json_add_array(json, "lengths");
    for (int i = 0; i < result->num_lengths; i++) {
        const struct planner_length *length = &result->lengths[i];
        struct json *one = json_add_object(lengths, NULL);
        json_add_int(one, "pipeline_length", length->num_ranks);
        json_add_string(one, "verdict", verdict_name(length->verdict));
        json_add_double(one, "samples_per_s", length->samples_per_s);
        json_add_double(one, "bound_samples_per_s", length->bound_per_s);
        json_add_int(one, "need_bytes", length->need_bytes);
    }
}

static struct json *start_json(const struct command *command, const struct job *job,
                               const struct cost_handle *cost)
{
    struct json *json = command_json(command);
    json_add_parsed(json, "job", job->json);
    json_add_string(json, "cost_source", cost_source_name(cost->cost.source));
    json_add_string(json, "cost", cost->cost.label);
    if (cost->note[0])
        json_add_string(json, "cost_note", cost->note);
    return json;
}

/* --- text ---------------------------------------------------------------------------------- */

/* Print the devices of the first pipeline; the text is shortened to fit. */
static const char *devices_text(const struct plan *plan, char *text, size_t size)
{
    size_t at = 0;
    for (int k = 0; k < plan->num_ranks && k < 8; k++)
        at += (size_t)snprintf(text + at, size - at, "%s%d", k ? "," : "", plan->device[k]);
    snprintf(text + at, size - at, "%s", plan->num_ranks > 8 ? ",..." : "");
    return text;
}

static void print_row(const char *label, const struct answer *answer)
{
    char step[32];
    if (answer->err.status != OK) {
        printf("%-9s %s\n", label, answer->err.msg);
        return;
    }
    const struct plan *plan = &answer->result.plan;
    printf("%-9s %3d %4d %4d x %-5lld %-11s %-7s %10s %11.1f  ", label, plan->num_ranks,
           plan->num_replicas, plan->microbatches.count, (long long)plan->microbatches.size,
           schedule_kind_name(plan->schedule), frozen_placement_name(plan->frozen),
           format_ns(plan->step_ns, step, sizeof step), answer->result.samples_per_s);
    for (int s = 0; s < plan->num_stages && s < 24; s++)
        printf("%s%d", s ? "," : "", plan->first_item[s + 1] - plan->first_item[s]);
    printf("%s\n", plan->num_stages > 24 ? ",..." : "");
}

static void print_row_head(const char *label)
{
    printf("%-9s %3s %4s %4s   %-5s %-11s %-7s %10s %11s  %s\n", label, "K", "R", "M", "size",
           "schedule", "frozen", "step", "samples/s", "cut (items a stage)");
}

/* A gap beyond 1000 % is not printed. It occurs only if the work costs almost nothing. */
#define MAX_GAP 10

static void print_plan(const struct job *job, const struct cost_handle *cost,
                       const struct answer *answer, const struct answer *released)
{
    const struct planner_result *result = &answer->result;
    const struct plan *plan = &result->plan;
    char a[32], b[32], c[32], bound[96], devices[128];
    if (result->gap <= MAX_GAP)
        snprintf(bound, sizeof bound, "proven lower bound %s, gap %.2f %%",
                 format_ns(result->lower_bound_ns, b, sizeof b), 100 * result->gap);
    else
        snprintf(bound, sizeof bound, "the lower bound, %s, says nothing here",
                 format_ns(result->lower_bound_ns, b, sizeof b));
    printf("%s: %s on %s (%d device%s), costs: %s%s\n", job->name, job->model.name,
           job->cluster.name, job->cluster.num_devices, job->cluster.num_devices == 1 ? "" : "s",
           cost->cost.label, result->extrapolated ? ", extrapolated" : "");
    if (cost->note[0])
        printf("note: %s\n", cost->note);
    printf("\npipeline length %d, replicas %d (the first on %s), "
           "micro-batches %d of %lld (batch %lld each)\n"
           "schedule %s%s, recompute %s, frozen layers %d (%s), cache %s\n"
           "step %s, %.1f samples/s; %s\n\n",
           plan->num_ranks, plan->num_replicas, devices_text(plan, devices, sizeof devices),
           plan->microbatches.count, (long long)plan->microbatches.size, (long long)plan->batch,
           schedule_kind_name(plan->schedule), plan->chunks > 1 ? " (several chunks a rank)" : "",
           recompute_mode_name(plan->recompute), plan->num_frozen_layers,
           frozen_placement_name(plan->frozen), cache_text(plan),
           format_ns(plan->step_ns, a, sizeof a), result->samples_per_s, bound);
    printf("%5s %5s %6s %11s %16s %12s\n", "stage", "rank", "items", "range", "a micro-batch",
           "rank peak");
    for (int s = 0; s < plan->num_stages; s++) {
        int rank = plan_rank_of_stage(plan->schedule, plan->num_ranks, s);
        char range[32];
        snprintf(range, sizeof range, "%d..%d", plan->first_item[s], plan->first_item[s + 1] - 1);
        printf("%5d %5d %6d %11s %16s %12s\n", s, rank,
               plan->first_item[s + 1] - plan->first_item[s], range,
               format_ns(result->stage_ns[s], a, sizeof a),
               format_bytes(plan->memory_bytes[rank], b, sizeof b));
    }
    printf("\n");
    print_row_head("");
    print_row("this", answer);
    print_row("released", released);
    printf("\n%lld candidates, %lld judged in %s\n", (long long)result->candidates,
           (long long)result->evaluated, format_ns(answer->solve_ns, c, sizeof c));
}

static void print_explanation(const struct planner_result *result)
{
    char step[32], bound[32], devices[128];
    printf("\nbest judged\n");
    printf("%4s %3s %4s %2s %5s %-11s %-11s %-7s %10s %10s %11s  %s\n", "", "K", "R", "v", "M",
           "schedule", "recompute", "frozen", "step", "bound", "samples/s",
           "first pipeline's devices");
    for (int i = 0; i < result->num_best; i++) {
        const struct planner_candidate *one = &result->best[i];
        const struct plan *plan = &one->plan;
        int64_t step_ns = one->judged_ns > 0 ? one->judged_ns : plan->step_ns;
        printf("%4d %3d %4d %2d %5d %-11s %-11s %-7s %10s %10s %11.1f  %s\n", i + 1,
               plan->num_ranks, plan->num_replicas, plan->chunks, plan->microbatches.count,
               schedule_kind_name(plan->schedule), recompute_mode_name(plan->recompute),
               frozen_placement_name(plan->frozen), format_ns(step_ns, step, sizeof step),
               format_ns(one->lower_bound_ns, bound, sizeof bound), one->samples_per_s,
               devices_text(plan, devices, sizeof devices));
    }
    printf("\npipeline lengths\n");
    for (int i = 0; i < result->num_lengths; i++) {
        const struct planner_length *length = &result->lengths[i];
        printf("%4d ", length->num_ranks);
        switch (length->verdict) {
        case PLANNER_CHOSEN:
            printf("chosen: %.1f samples/s", length->samples_per_s);
            break;
        case PLANNER_SLOWER:
            printf("slower: its best has %.1f samples/s", length->samples_per_s);
            break;
        case PLANNER_BOUND:
            printf("slower: cannot exceed %.1f samples/s",
                   length->bound_per_s < result->samples_per_s ? length->bound_per_s
                                                               : result->samples_per_s);
            break;
        case PLANNER_MEMORY:
            printf("does not fit the memory");
            if (length->need_bytes > 0)
                printf(": needs %s on a device at least",
                       format_bytes(length->need_bytes, step, sizeof step));
            break;
        case PLANNER_NONE:
            printf("no such plan");
            break;
        }
        printf("\n");
    }
}

/* --- the change from another F ------------------------------------------------------------- */

/* Find the transfers of a change from the job's best plan with q->from_frozen layers to the plan of
 * *answer. Devices of that plan are renamed, so that stages keep their devices where possible. *old
 * gets the first plan, and the caller owns it. */
static enum status find_transition(const struct request *q, const struct job *job,
                                   const struct cost *cost, struct answer *answer,
                                   struct answer *old, struct transition *transition,
                                   struct err *err)
{
    solve(q, job, cost, (int)q->from_frozen, false, old);
    if (old->err.status != OK)
        return err_set(err, old->err.status, "with %lld frozen layers: %s",
                       (long long)q->from_frozen, old->err.msg);
    enum status rc = autodp_keep_devices(&job->model, &job->cluster, &old->result.plan,
                                         &answer->result.plan, err);
    if (rc == OK)
        rc = transition_build(&job->model, &job->cluster, &old->result.plan, &answer->result.plan,
                              transition, err);
    return rc;
}

static const char *transfer_kind_name(enum transfer_kind kind)
{
    static const char *const names[] = {"weights", "optimizer", "frozen"};
    return names[kind];
}

static void add_transition(struct json *json, const struct request *q, const struct job *job,
                           const struct plan *old, const struct transition *transition)
{
    struct json *one = json_add_object(json, "transition");
    json_add_int(one, "from_frozen_layers", q->from_frozen);
    add_choice(json_add_object(one, "from"), old);
    json_add_int(one, "transition_ns", transition->ns);
    json_add_int(one, "moved_devices", transition->moved_devices);
    json_add_int(one, "total_bytes", transition->bytes);
    json_add_int(one, "inside_nodes_bytes", transition->bytes_inside);
    json_add_int(one, "between_nodes_bytes", transition->bytes_between);
    struct json *list = json_add_array(one, "transfers");
    for (int64_t i = 0; i < transition->num_transfers; i++) {
        const struct transfer *transfer = &transition->transfers[i];
        struct json *row = json_add_object(list, NULL);
        json_add_int(row, "item", transfer->item);
        json_add_string(row, "name", job->model.items[transfer->item].name);
        json_add_bool(row, "tied", transfer->tied);
        json_add_string(row, "kind", transfer_kind_name(transfer->kind));
        json_add_int(row, "from", transfer->from);
        json_add_int(row, "to", transfer->to);
        json_add_int(row, "bytes", transfer->bytes);
    }
}

/* Print the transfers. Neighbouring items with equal sender, receiver and kind share one row. */
static enum status print_transition(const struct request *q, const struct job *job,
                                    const struct plan *old, const struct transition *transition,
                                    struct err *err)
{
    char total[32], inside[32], between[32], time[32];
    printf(
        "\nfrom %lld frozen layers (K %d, R %d): %s to %d devices (%s inside nodes, %s between), "
        "%s\n",
        (long long)q->from_frozen, old->num_ranks, old->num_replicas,
        format_bytes(transition->bytes, total, sizeof total), transition->moved_devices,
        format_bytes(transition->bytes_inside, inside, sizeof inside),
        format_bytes(transition->bytes_between, between, sizeof between),
        format_ns(transition->ns, time, sizeof time));
    if (transition->num_transfers > 0)
        printf("%5s %5s %-9s %11s %12s  %s\n", "from", "to", "kind", "bytes", "node to node",
               "items");
    bool *done = calloc((size_t)transition->num_transfers + 1, sizeof *done);
    if (!done)
        return err_nomem(err);
    for (int64_t i = 0; i < transition->num_transfers; i++) {
        const struct transfer *a = &transition->transfers[i];
        if (done[i])
            continue;
        int64_t bytes = 0;
        for (int64_t j = i; j < transition->num_transfers && transition->transfers[j].to == a->to;
             j++) {
            const struct transfer *b = &transition->transfers[j];
            if (b->from == a->from && b->kind == a->kind)
                bytes += b->bytes;
        }
        printf("%5d %5d %-9s %11s %5d to %-4d ", a->from, a->to, transfer_kind_name(a->kind),
               format_bytes(bytes, total, sizeof total), job->cluster.devices[a->from].node,
               job->cluster.devices[a->to].node);
        for (int64_t j = i; j < transition->num_transfers && transition->transfers[j].to == a->to;
             j++) {
            const struct transfer *b = &transition->transfers[j];
            if (b->from == a->from && b->kind == a->kind) {
                printf(" %s%s", job->model.items[b->item].name, b->tied ? " (tied copy)" : "");
                done[j] = true;
            }
        }
        printf("\n");
    }
    free(done);
    return OK;
}

/* --- the table over F ---------------------------------------------------------------------- */

/* Seconds per 1,000 samples. They are comparable if R, and so the samples of a step, differ. */
static double per_thousand(const struct answer *answer)
{
    return answer->err.status == OK ? 1000 / answer->result.samples_per_s : 0;
}

/* Print the table over F. A row without a plan says why. If no row has a plan, the command fails.
 */
static enum status run_all_frozen(const struct command *command, const struct request *q,
                                  const struct job *job, const struct cost_handle *cost,
                                  struct err *err)
{
    struct json *json = q->as_json ? start_json(command, job, cost) : NULL;
    struct json *rows = q->as_json ? json_add_array(json, "by_frozen") : NULL;
    if (!q->as_json) {
        printf("%s: %s on %s, costs: %s%s\n\n", job->name, job->model.name, job->cluster.name,
               cost->cost.label, q->cached ? "; cache filled" : "");
        printf("%2s | %3s %4s %4s %-11s %-7s %10s %10s | %3s %4s %4s %10s %10s | %s\n", "F", "K",
               "R", "M", "schedule", "frozen", "step", "s/1000", "K", "R", "M", "released",
               "s/1000", "faster");
    }
    const struct job release = as_released(job);
    bool extrapolated = false, any = false;
    enum status rc = OK;
    for (int f = 0; f <= job->model.num_layers && rc == OK; f++) {
        struct answer ours = {0}, theirs = {0};
        char a[32], b[32];
        solve(q, job, &cost->cost, f, q->cached, &ours);
        solve(q, &release, &cost->cost, f, q->cached, &theirs);
        const struct plan *p = &ours.result.plan, *t = &theirs.result.plan;
        any = any || ours.err.status == OK;
        extrapolated = extrapolated || ours.result.extrapolated || theirs.result.extrapolated;
        if ((ours.err.status != OK && ours.err.status != ERR_INFEASIBLE) ||
            (f == job->model.num_layers && !any)) {
            rc = err_copy(err, &ours.err);
        } else if (q->as_json) {
            struct json *row = json_add_object(rows, NULL);
            json_add_int(row, "frozen_layers", f);
            add_answer(json_add_object(row, "plan"), &ours);
            add_answer(json_add_object(row, "released"), &theirs);
        } else if (ours.err.status != OK) {
            printf("%2d | %s\n", f, ours.err.msg);
        } else {
            printf("%2d | %3d %4d %4d %-11s %-7s %10s %10.3f | ", f, p->num_ranks, p->num_replicas,
                   p->microbatches.count, schedule_kind_name(p->schedule),
                   frozen_placement_name(p->frozen), format_ns(p->step_ns, a, sizeof a),
                   per_thousand(&ours));
            if (theirs.err.status == OK)
                printf("%3d %4d %4d %10s %10.3f | %.2fx\n", t->num_ranks, t->num_replicas,
                       t->microbatches.count, format_ns(t->step_ns, b, sizeof b),
                       per_thousand(&theirs), per_thousand(&theirs) / per_thousand(&ours));
            else
                printf("%s\n", theirs.err.msg);
        }
        answer_clear(&ours);
        answer_clear(&theirs);
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

static enum status run_one(const struct command *command, const struct request *q,
                           const struct job *job, const struct cost_handle *cost, struct err *err)
{
    struct answer answer = {0}, released = {0}, old = {0};
    struct transition transition = {0};
    struct json *json = NULL;
    enum status rc = OK;
    const struct job release = as_released(job);
    solve(q, job, &cost->cost, (int)q->frozen_layers, q->cached, &answer);
    if (answer.err.status != OK) {
        rc = err_copy(err, &answer.err);
        goto out;
    }
    if (q->from_frozen >= 0)
        rc = find_transition(q, job, &cost->cost, &answer, &old, &transition, err);
    if (rc != OK)
        goto out;
    solve(q, &release, &cost->cost, (int)q->frozen_layers, q->cached, &released);
    if (q->as_json || q->out_path) {
        json = start_json(command, job, cost);
        json_add_bool(json, "extrapolated", answer.result.extrapolated);
        add_answer(json, &answer);
        add_answer(json_add_object(json, "released"), &released);
        if (q->explain)
            add_explanation(json, &answer.result);
        if (q->from_frozen >= 0)
            add_transition(json, q, job, &old.result.plan, &transition);
    }
    if (q->out_path)
        rc = json_write_file(json, q->out_path, err);
    if (rc == OK && q->as_json) {
        rc = command_answer(json, err);
        json = NULL;
    } else if (rc == OK) {
        print_plan(job, cost, &answer, &released);
        if (q->explain)
            print_explanation(&answer.result);
        if (q->from_frozen >= 0)
            rc = print_transition(q, job, &old.result.plan, &transition, err);
    }
out:
    json_free(json);
    transition_clear(&transition);
    answer_clear(&old);
    answer_clear(&answer);
    answer_clear(&released);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    struct request q = {.from_frozen = -1};
    const struct option options[] = {
        OPTION("set", LIST, &q.overrides, "KEY=VALUE", "override a value of the job (repeatable)"),
        OPTION("frozen", INT, &q.frozen_layers, "F",
               "plan with F transformer layers frozen (default 0)", .max = 1000000),
        OPTION("from-frozen", INT, &q.from_frozen, "F",
               "also print the transfers of a change from the plan with F frozen layers",
               .max = 1000000),
        OPTION("cached", FLAG, &q.cached, NULL,
               "the frozen layers' output is in the cache already"),
        OPTION("all-frozen", FLAG, &q.all_frozen, NULL,
               "a table over F = 0..L, our plan beside the release's"),
        OPTION("explain", FLAG, &q.explain, NULL,
               "the next best plans, and why each other pipeline length was rejected"),
        OPTION("simulate", FLAG, &q.simulate, NULL,
               "choose by the event engine, where transfers share links; train needs -o to use it"),
        OPTION("no-simulate", FLAG, &q.no_simulate, NULL,
               "print the step time without shared links, by which the plan was chosen"),
        OPTION("o", STRING, &q.out_path, "FILE",
               "write the plan, for 'elapse sim' and 'elapse train' with --plan FILE"),
        OPTION("db", STRING, &q.db_path, "FILE", "profile store (default: the user's own)"),
        OPTION("json", FLAG, &q.as_json, NULL, "one JSON object"),
    };
    struct command_line line = COMMAND_LINE(options, 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional < 1) {
        rc = err_set(err, ERR_INPUT, "plan: JOB is missing");
        err_hint(err, "elapse plan JOB [--set KEY=VALUE] [--json]");
        return rc;
    }
    if (q.all_frozen && (q.frozen_layers > 0 || q.from_frozen >= 0 || q.explain || q.out_path))
        return err_set(err, ERR_INPUT,
                       "--all-frozen excludes --frozen, --from-frozen, --explain, -o");
    if (q.simulate && q.no_simulate)
        return err_set(err, ERR_INPUT, "--simulate and --no-simulate exclude each other");
    struct job job = {0};
    struct cost_handle cost = {0};
    rc = job_load(line.positional[0], q.overrides.items, q.overrides.count, &job, err);
    if (rc != OK)
        return rc;
    rc = model_check_frozen(&job.model, q.frozen_layers, err);
    if (rc == OK && q.from_frozen > q.frozen_layers)
        rc = err_set(err, ERR_INPUT, "--from-frozen must be 0..%lld (layers never thaw), got %lld",
                     (long long)q.frozen_layers, (long long)q.from_frozen);
    if (rc == OK && !job.pipeline.schedule_auto && job.pipeline.schedule == SCHEDULE_CUSTOM)
        rc = err_set(err, ERR_INPUT, "%s: a custom schedule cannot be planned, only simulated",
                     line.positional[0]);
    if (rc == OK)
        rc = cost_choose(q.db_path, &job, &cost, err);
    if (rc == OK) {
        cost.cost = turn_cost(&job, &cost.cost);
        rc = q.all_frozen ? run_all_frozen(command, &q, &job, &cost, err)
                          : run_one(command, &q, &job, &cost, err);
    }
    cost_handle_clear(&cost);
    job_clear(&job);
    return rc;
}

const struct command command_plan = {
    .name = "plan",
    .args = "JOB [--frozen F] [--explain]",
    .summary = "the best plan for a job: pipeline length, replicas, cut, schedule, micro-batches",
    .run = run,
};
