#include "cli/plans/plan_show.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plans/band_show.h"
#include "cli/plans/plan_search.h"
#include "partition/base/units.h"
#include "partition/plan/plausible.h"
#include "profiles/base/safe_output.h"
#include "profiles/job/plan_json.h"

void plan_answer_clear(struct plan_answer *answer)
{
    planner_result_clear(&answer->result);
    plan_memory_clear(&answer->memory);
    *answer = (struct plan_answer){0};
}

enum status plan_answer_finish(const struct job *job, const struct cost *cost,
                               struct plan_answer *answer)
{
    const struct setting setting = {&job->model, &job->cluster, cost};
    const struct plan *plan = &answer->result.plan;
    const struct cost_query query = cost_query_of(job);
    enum status rc = plan_memory_find(&setting, plan, &answer->memory, &answer->err);
    answer->memory.margin = plan_margin_of(job_headroom(job), &job->model, cost);
    answer->rates = rates_of_step(&job->model, &job->cluster, plan, job->train.dtype,
                                  answer->result.samples_per_s);
    const struct step_claim claim = {.setting = &setting,
                                     .plan = plan,
                                     .step_ns = plan->step_ns,
                                     .rates = answer->rates,
                                     .bubble = NAN,
                                     .memory_bytes = plan->memory_bytes,
                                     .fits = true,
                                     .speed = rates_allowed_speed(&query)};
    THEN(plausible_step(&claim, &answer->err));
    return rc;
}

static const char *cache_text(const struct plan *plan)
{
    return plan->frozen == FROZEN_CACHED ? "read" : "off";
}

/* --- JSON ---------------------------------------------------------------------------------- */

void plan_show_add_plan(struct json *json, const struct plan *plan)
{
    plan_json_add(json, plan);
    json_add_string(json, "cache", cache_text(plan));
    if (!plan->shares.share)
        return;
    struct json *timed = json_add_object(json, "timed");
    json_add_int(timed, "step_ns", plan->step_ns);
    json_add_double(timed, "mean_share", shares_mean_of_all(&plan->shares));
    struct json *stages = json_add_array(timed, "stages");
    for (int s = 0; s < plan->num_stages; s++) {
        struct json *stage = json_add_object(stages, NULL);
        json_add_int(stage, "stage", s);
        json_add_double(stage, "share", shares_mean(&plan->shares, s));
    }
}

/* Say what timed freezing brings, and how much of each stage it leaves out. */
static void print_timed(const struct planner_result *result)
{
    const struct plan *plan = &result->plan;
    char whole[32];
    printf(
        "timed freezing: step %.1f %% below %s, without %.0f %% of the weight gradients; by stage",
        100 * (1 - (double)plan->step_ns / (double)result->whole_ns),
        format_ns(result->whole_ns, whole, sizeof whole), 100 * shares_mean_of_all(&plan->shares));
    for (int s = 0; s < plan->num_stages; s++)
        printf(" %.0f", 100 * shares_mean(&plan->shares, s));
    printf(" %%\n");
}

static int num_idle(const struct plan *plan, const struct cluster *cluster)
{
    return cluster->num_devices - (int)plan_num_devices(plan);
}

void plan_show_add(struct json *json, const struct plan_answer *answer,
                   const struct cluster *cluster)
{
    const struct planner_result *result = &answer->result;
    if (answer->err.status != OK) {
        json_add_string(json, "error", answer->err.msg);
        return;
    }
    const struct plan *plan = &result->plan;
    plan_show_add_plan(json, plan);
    json_add_int64s(json, "stage_ns", result->stage_ns, plan->num_stages);
    json_add_int(json, "idle_devices", num_idle(plan, cluster));
    json_add_double(json, "samples_per_s", result->samples_per_s);
    if (answer->bf16_samples_per_s > 0)
        json_add_double(json, "bf16_samples_per_s", answer->bf16_samples_per_s);
    rates_add(json, &answer->rates);
    if (answer->run.run_ns > 0)
        run_cost_add(json, &answer->run);
    json_add_int(json, "lower_bound_ns", result->lower_bound_ns);
    json_add_double(json, "gap", result->gap);
    json_add_int(json, "candidates", result->candidates);
    json_add_int(json, "evaluated", result->searched.judged);
    struct json *searched = json_add_object(json, "searched");
    json_add_int(searched, "layouts", result->num_layouts);
    json_add_int(searched, "candidates", result->candidates);
    searched_add(searched, &result->searched, true);
    json_add_int(json, "solve_ns", answer->solve_ns);
    plan_memory_add(json, &answer->memory);
}

static const char *verdict_name(enum planner_verdict verdict)
{
    static const char *const names[] = {"chosen", "slower", "bound", "memory", "none"};
    return names[verdict];
}

void plan_show_add_others(struct json *json, const struct planner_result *result)
{
    struct json *best = json_add_array(json, "best");
    for (int i = 0; i < result->num_best; i++) {
        const struct planner_candidate *candidate = &result->best[i];
        struct json *one = json_add_object(best, NULL);
        struct plan plan = candidate->plan;
        if (candidate->judged_ns > 0)
            plan.step_ns = candidate->judged_ns;
        plan_show_add_plan(one, &plan);
        json_add_int(one, "unshared_step_ns", candidate->unshared_ns);
        json_add_int(one, "lower_bound_ns", candidate->lower_bound_ns);
        json_add_double(one, "samples_per_s", candidate->samples_per_s);
    }
    struct json *layouts = json_add_array(json, "layouts");
    for (int i = 0; i < result->num_layouts; i++) {
        const struct planner_layout_fate *fate = &result->layouts[i];
        struct json *one = json_add_object(layouts, NULL);
        layout_json_add(one, &fate->layout, LAYOUT_JSON_WHOLE);
        json_add_string(one, "verdict", verdict_name(fate->verdict));
        json_add_double(one, "samples_per_s", fate->samples_per_s);
        json_add_double(one, "bound_samples_per_s", fate->bound_per_s);
        json_add_int(one, "need_bytes", fate->need_bytes);
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

/* --- text ----------------------------------------------------------------------------------- */

/* Print the devices of the first pipeline; the text is shortened to fit. */
static const char *devices_text(const struct plan *plan, char *text, size_t size)
{
    size_t at = 0;
    for (int k = 0; k < plan->num_ranks && k < 8; k++)
        at += (size_t)snprintf(text + at, size - at, "%s%d", k ? "," : "", plan->device[k]);
    snprintf(text + at, size - at, "%s", plan->num_ranks > 8 ? ",..." : "");
    return text;
}

/* Whether a larger number of replicas would fit the idle devices and divide the global batch. */
static bool more_replicas(const struct plan *plan, const struct cluster *cluster)
{
    const int each = plan->num_ranks * layout_tensor(&plan->layout) * layout_context(&plan->layout);
    for (int R = plan_width(plan) + 1; R * each <= cluster->num_devices; R++)
        if (plan_samples(plan) % R == 0)
            return true;
    return false;
}

/* Why devices are idle; "" if that is not known. */
static const char *idle_reason(const struct job *job, const struct planner_result *result,
                               const bool *used, char *text, size_t size)
{
    const struct plan *plan = &result->plan;
    const struct cluster *cluster = &job->cluster;
    const int first = cluster->devices[plan->device[0]].node;
    text[0] = 0;
    for (int i = 0; i < result->num_best; i++) /* it was left out for its memory */
        if (result->best[i].samples_per_s > result->samples_per_s)
            return text;
    bool one_node = cluster->num_nodes > 1, whole = true;
    for (int d = 0; d < cluster->num_devices; d++) {
        one_node = one_node && (!used[d] || cluster->devices[d].node == first);
        whole = whole && (used[d] || cluster->devices[d].node != first);
    }
    if (job->pipeline.num_stages != AUTO && job->pipeline.num_replicas != AUTO)
        snprintf(text, size, ": the job gives stages and replicas");
    else if (one_node && whole && result->searched.complete)
        snprintf(text, size, ": plans that send over the uplinks of %.3g Gb/s are slower",
                 cluster->uplink_bytes_per_s[first] * 8 / 1e9);
    else if (job->train.batch_mode == BATCH_GLOBAL && !more_replicas(plan, cluster))
        snprintf(text, size,
                 ": no larger number of such replicas fits and divides the batch of %lld",
                 (long long)plan_samples(plan));
    else if (result->searched.complete)
        snprintf(text, size, ": plans that use more are slower or do not fit");
    return text;
}

/* Print how many devices are idle, the first of them, and why. */
static void print_idle(const struct job *job, const struct planner_result *result)
{
    enum { MOST_NAMED = 8 };
    const struct plan *plan = &result->plan;
    const struct cluster *cluster = &job->cluster;
    const int num = num_idle(plan, cluster);
    char reason[128];
    if (num == 0)
        return;
    printf("idle: %d of %s", num, COUNT_TEXT(cluster->num_devices, "device"));
    bool *used = calloc((size_t)cluster->num_devices, sizeof *used);
    for (int64_t i = 0; used && i < (int64_t)plan->num_ranks * plan->num_pipelines; i++)
        for (int t = 0; t < layout_tensor(&plan->layout); t++)
            used[plan->device[i] + t] = true;
    int named = 0;
    for (int d = 0; used && d < cluster->num_devices && named < MOST_NAMED; d++)
        if (!used[d])
            printf("%s%d", named++ ? "," : " (", d);
    printf("%s%s\n",
           named == 0    ? ""
           : named < num ? ",...)"
                         : ")",
           used ? idle_reason(job, result, used, reason, sizeof reason) : "");
    free(used);
}

/* A plan in a table of plans. */
struct plan_row {
    const char *label;
    const struct plan *plan;
    int64_t step_ns;
    double samples_per_s;
    char layout[128]; /* of plan_layout_text() */
};

static void set_row(struct plan_row *row, const char *label, const struct plan *plan,
                    int64_t step_ns, double samples_per_s)
{
    *row = (struct plan_row){
        .label = label, .plan = plan, .step_ns = step_ns, .samples_per_s = samples_per_s};
    plan_layout_text(plan, row->layout, sizeof row->layout);
}

/* Print the plans; a terminal that is too narrow loses columns, the least needed first. */
static void print_rows(const struct plan_row *rows, int n, bool frozen)
{
    enum { RECOMPUTE = 12, SAMPLES = 12, SIZE = 8, CUT = 20, OTHERS = 10 + 5 + 12 + 11 };
    int width = 6, cut = CUT;
    for (int i = 0; i < n; i++)
        width = (int)strlen(rows[i].layout) > width ? (int)strlen(rows[i].layout) : width;
    for (int i = 0; i < n; i++)
        cut = 3 * rows[i].plan->num_stages > cut ? 3 * rows[i].plan->num_stages : cut;
    const int columns = terminal_columns();
    int room = columns == 0 ? 0 : columns - OTHERS - width - (frozen ? 8 : 0);
    room -= columns == 0 ? 0 : RECOMPUTE + SAMPLES + SIZE + cut;
    const bool all = room >= 0, with_samples = all || (room += RECOMPUTE) >= 0,
               with_cut = with_samples || (room += SAMPLES) >= 0,
               with_size = with_cut || room + cut >= 0;
    printf("%-9s %-*s %4s", "", width, "layout", "M");
    if (with_size)
        printf("   %-5s", "size");
    printf(" %-11s ", "schedule");
    if (all)
        printf("%-11s ", "recompute");
    if (frozen)
        printf("%-7s ", "frozen");
    printf("%10s", "step");
    if (with_samples)
        printf(" %11s", "samples/s");
    printf("%s\n", with_cut ? "  cut (items a stage)" : "");
    for (int i = 0; i < n; i++) {
        const struct plan *plan = rows[i].plan;
        char step[32];
        printf("%-9s %-*s %4d", rows[i].label, width, rows[i].layout, plan->microbatches.count);
        if (with_size)
            printf(" x %-5lld", (long long)plan->microbatches.size);
        printf(" %-11s ", schedule_kind_name(plan->schedule));
        if (all)
            printf("%-11s ", recompute_mode_name(plan->recompute));
        if (frozen)
            printf("%-7s ", frozen_placement_name(plan->frozen));
        printf("%10s", format_ns(rows[i].step_ns, step, sizeof step));
        if (with_samples)
            printf(" %11.1f", rows[i].samples_per_s);
        for (int s = 0; with_cut && s < plan->num_stages && s < MOST_OF_CUT; s++)
            printf("%s%d", s ? "," : "  ", plan->first_item[s + 1] - plan->first_item[s]);
        printf("%s\n", with_cut && plan->num_stages > MOST_OF_CUT ? ",..." : "");
    }
}

/* Whether rows of the two plans would read alike: their devices alone differ. */
static bool rows_alike(const struct plan *a, const struct plan *b)
{
    return a->num_ranks == b->num_ranks && a->num_pipelines == b->num_pipelines &&
           layout_equal(&a->layout, &b->layout) && a->microbatches.count == b->microbatches.count &&
           a->schedule == b->schedule && a->recompute == b->recompute && a->frozen == b->frozen &&
           a->num_stages == b->num_stages &&
           memcmp(a->first_item, b->first_item,
                  ((size_t)a->num_stages + 1) * sizeof *a->first_item) == 0;
}

/* Print the plan, the next best plans and the one of PipeTransformer's code, a line each. Of plans
 * that differ by their devices alone the first is printed. */
static void print_beaten(const struct plan_answer *answer, const struct plan_answer *released)
{
    enum { MOST_OTHERS = 4 };
    const struct planner_result *result = &answer->result;
    struct plan_row rows[MOST_OTHERS + 2];
    int n = 0;
    if (!released && result->num_best < 2)
        return;
    bool faster = false;
    set_row(&rows[n++], "this", &result->plan, result->plan.step_ns, result->samples_per_s);
    for (int i = 1; i < result->num_best && n <= MOST_OTHERS; i++) {
        const struct planner_candidate *one = &result->best[i];
        bool known = false;
        for (int j = 0; j < i && !known; j++)
            known = rows_alike(&one->plan, &result->best[j].plan);
        if (known)
            continue;
        set_row(&rows[n], n == 1 ? "next best" : "", &one->plan,
                one->judged_ns > 0 ? one->judged_ns : one->plan.step_ns, one->samples_per_s);
        n++;
        faster = faster || one->samples_per_s > result->samples_per_s;
    }
    if (released && released->err.status == OK)
        set_row(&rows[n++], "released", &released->result.plan, released->result.plan.step_ns,
                released->result.samples_per_s);
    print_rows(rows, n, result->plan.num_frozen_layers > 0);
    if (released && released->err.status != OK)
        printf("%-9s %s\n", "released", released->err.msg);
    if (faster)
        printf("a plan that leaves %.0f %% of every memory is preferred to one that is faster by "
               "less than %.0f %%\n",
               100 * answer->memory.margin.memory, 100 * answer->memory.margin.nearly);
    printf("\n");
}

static void print_stages(const struct plan_answer *answer, bool all)
{
    enum { MOST_STAGES = 8 };
    const struct plan *plan = &answer->result.plan;
    char time[32], bytes[32], range[32];
    const int num = all || plan->num_stages <= MOST_STAGES ? plan->num_stages : MOST_STAGES - 1;
    printf("%5s %5s %6s %11s %16s %12s\n", "stage", "rank", "items", "range", "a micro-batch",
           "rank peak");
    for (int s = 0; s < num; s++) {
        const int rank = plan_rank_of_stage(plan, s);
        snprintf(range, sizeof range, "%d..%d", plan->first_item[s], plan->first_item[s + 1] - 1);
        printf("%5d %5d %6d %11s %16s %12s\n", s, rank,
               plan->first_item[s + 1] - plan->first_item[s], range,
               format_ns(answer->result.stage_ns[s], time, sizeof time),
               format_bytes(plan->memory_bytes[rank], bytes, sizeof bytes));
    }
    if (num < plan->num_stages)
        printf("  ... %d more: --stages\n", plan->num_stages - num);
    printf("\n");
}

/* A gap beyond 1000 % is not printed. It occurs only if the work costs almost nothing. */
#define MAX_GAP 10

/* "stage", or "layer (2 to 3 layers a stage)". */
static const char *recompute_text(const struct plan *plan, char *text, size_t size)
{
    int least = INT_MAX, most = 0;
    for (int s = 0; plan->recompute_layers && s < plan->num_stages; s++) {
        const int n = plan->recompute_layers[s];
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    if (plan->recompute_layers)
        snprintf(text, size, "%s (%d to %d layers a stage)", recompute_mode_name(plan->recompute),
                 least, most);
    else
        snprintf(text, size, "%s", recompute_mode_name(plan->recompute));
    return text;
}

/* Print what is known of plans that were not chosen: the best that was timed, and a bound of all. A
 * faster one was rejected for its memory; nearly: the most that a plan with room may be slower. */
static void print_slower(double samples_per_s, double bound_per_s, double chosen_per_s,
                         double nearly)
{
    if (samples_per_s > chosen_per_s)
        printf("%.1f samples/s, rejected: less than %.0f %% faster and almost out of memory",
               samples_per_s, 100 * nearly);
    else if (bound_per_s <= samples_per_s * 1.0005)
        printf("slower: its best has %.1f samples/s", samples_per_s);
    else
        printf("slower: the best one timed has %.1f samples/s, none exceeds %.1f", samples_per_s,
               bound_per_s);
}

/* Print the fate of a layout or of a pipeline length. */
static void print_verdict(const struct planner_result *result, enum planner_verdict verdict,
                          double samples_per_s, double bound_per_s, double nearly)
{
    switch (verdict) {
    case PLANNER_CHOSEN:
        printf("chosen: %.1f samples/s", result->samples_per_s);
        break;
    case PLANNER_SLOWER:
        print_slower(samples_per_s, bound_per_s, result->samples_per_s, nearly);
        break;
    case PLANNER_BOUND:
        printf("not searched further: cannot exceed %.1f samples/s", bound_per_s);
        break;
    case PLANNER_MEMORY:
        printf("does not fit the memory");
        break;
    case PLANNER_NONE:
        printf("no such plan");
        break;
    }
}

static void print_layouts(const struct planner_result *result, double nearly)
{
    char need[32], have[32], text[128];
    int width = 0;
    for (int i = 0; i < result->num_layouts; i++) {
        layout_text(&result->layouts[i].layout, 0, 0, 0, text, sizeof text);
        width = (int)strlen(text) > width ? (int)strlen(text) : width;
    }
    printf("\nlayouts\n");
    for (int i = 0; i < result->num_layouts; i++) {
        const struct planner_layout_fate *fate = &result->layouts[i];
        printf("  %-*s  ", width, layout_text(&fate->layout, 0, 0, 0, text, sizeof text));
        print_verdict(result, fate->verdict, fate->samples_per_s, fate->bound_per_s, nearly);
        if (fate->verdict == PLANNER_MEMORY && fate->need_bytes > 0)
            printf(": needs %s on a device of %s at least",
                   format_bytes(fate->need_bytes, need, sizeof need),
                   format_bytes(fate->have_bytes, have, sizeof have));
        printf("\n");
    }
}

/* Print the layout and the batch. */
static void print_counts(const struct job *job, const struct plan *plan)
{
    char devices[128], text[128];
    const bool elastic = plan->num_frozen_layers > 0 || job->freeze.policy != FREEZE_NONE;
    printf("%s; M %s of %lld (MBS), batch %lld a pipeline, %lld in all (GBS); first pipeline on "
           "%s\n",
           plan_layout_text(plan, text, sizeof text),
           COUNT_TEXT(plan->microbatches.count, "micro-batch"), (long long)plan->microbatches.size,
           (long long)plan->batch, (long long)plan_samples(plan),
           devices_text(plan, devices, sizeof devices));
    if (job->train.batch_mode == BATCH_GLOBAL && plan_width(plan) > 1 &&
        job->pipeline.num_microbatches != AUTO)
        printf("pipeline.num_microbatches %d counts those of all %d pipelines\n",
               job->pipeline.num_microbatches, plan_width(plan));
    printf("schedule %s, recompute %s", schedule_kind_name(plan->schedule),
           recompute_text(plan, text, sizeof text));
    if (elastic)
        printf(", frozen layers %d (%s), cache %s", plan->num_frozen_layers,
               frozen_placement_name(plan->frozen), cache_text(plan));
    printf("\n");
}

const char *plan_training_text(const struct job *job, char *text, size_t size)
{
    const bool dtype = job->assumed.dtype, optimizer = job->assumed.optimizer;
    snprintf(text, size, "dtype %s, optimizer %s%s%s%s", dtype_text((int)job->train.dtype),
             job_optimizer_name(job),
             dtype && optimizer ? ":"
             : dtype            ? ": the dtype is"
             : optimizer        ? ": the optimizer is"
                                : "",
             dtype || optimizer ? " assumed for a text model" : "",
             dtype && optimizer ? " (--dtype, --optimizer)"
             : dtype            ? " (--dtype)"
             : optimizer        ? " (--optimizer)"
                                : "");
    return text;
}

/* Print what a whole run takes. */
static void print_run(const struct run_cost *run)
{
    char time[32], rest[96];
    if (run->run_ns > 0)
        printf("whole run %s, %.*f device hours%s\n", format_ns(run->run_ns, time, sizeof time),
               run->device_hours < 99.5 ? 2 : 0, run->device_hours,
               run_cost_text(run, rest, sizeof rest));
}

static void print_notes(const struct job *job, const struct cost_handle *cost,
                        const struct plan_answer *answer)
{
    if (cost->note[0])
        printf("note: %s\n", cost->note);
    if (answer->bf16_samples_per_s > 1.05 * answer->result.samples_per_s)
        printf("note: with train.dtype bf16 this plan reaches %.1f samples/s, %.2g times as many\n",
               answer->bf16_samples_per_s,
               answer->bf16_samples_per_s / answer->result.samples_per_s);
    if (job->model.note[0])
        printf("note: %s\n", job->model.note);
    if (framework_loops_in_python(&job->model))
        printf("note: experts are counted as grouped products; the loop over experts of "
               "transformers' models, which ZeRO-3 gathers one by one, took 44 times as long in a "
               "published run\n");
}

/* Where the plan almost fills the memory: what plans with more room lose. */
static void print_tight(const struct plan_answer *answer)
{
    const struct planner_result *result = &answer->result;
    const bool judged = result->best[0].judged_ns > 0;
    const struct plan_margin margin = answer->memory.margin;
    if (plan_memory_print_tight(answer->memory.peak_bytes, answer->memory.limit_bytes,
                                margin.memory)) {
        if (judged && result->searched.complete)
            printf(": plans with more room are slower by more than %.0f %%", 100 * margin.nearly);
        else if (judged)
            printf(": no plan with more room was found within %.0f %% of this speed",
                   100 * margin.nearly);
        printf("\n");
    }
}

void plan_show_print(const struct job *job, const struct cost_handle *cost,
                     const struct plan_answer *answer, const struct plan_answer *released,
                     bool all_stages)
{
    const struct planner_result *result = &answer->result;
    const struct plan *plan = &result->plan;
    const struct setting setting = {&job->model, &job->cluster, &cost->cost};
    char a[32], b[32], rates[256];
    printf("%s: %s on %s (%s), costs: %s%s\n", job->name, job->model.name, job->cluster.name,
           COUNT_TEXT(job->cluster.num_devices, "device"), cost->cost.label,
           result->extrapolated ? ", extrapolated" : "");
    printf("%s\n", plan_training_text(job, rates, sizeof rates));
    print_notes(job, cost, answer);
    if (*rows_text(&job->model, rates, sizeof rates))
        printf("%s\n", rates);
    printf("\nstep %s: %s\n", format_ns(plan->step_ns, a, sizeof a),
           rates_text(&answer->rates, &cost->cost, rates, sizeof rates));
    band_print(&setting, cost, plan->step_ns);
    framework_show_print(&answer->range);
    print_run(&answer->run);
    print_counts(job, plan);
    if (result->whole_ns > 0)
        print_timed(result);
    else if (result->gap <= MAX_GAP)
        printf("proven lower bound %s, gap %.2f %%\n",
               format_ns(result->lower_bound_ns, b, sizeof b), 100 * result->gap);
    else
        printf("lower bound %s (not useful: the step costs almost nothing)\n",
               format_ns(result->lower_bound_ns, b, sizeof b));
    print_idle(job, result);
    printf("\n");
    print_beaten(answer, released);
    plan_memory_print(&answer->memory);
    print_stages(answer, all_stages);
    print_tight(answer);
    if (result->judge_decided)
        printf("`train` ranks plans without shared links and would choose another; pass it this "
               "one: -o FILE, then train --plan FILE\n");
    printf("%lld candidates, %lld cuts of them judged in %s\n", (long long)result->candidates,
           (long long)result->searched.judged, format_ns(answer->solve_ns, b, sizeof b));
    if (!result->searched.complete)
        printf("search stopped by its budget; --budget raises it\n");
}

/* The share of each backward; equal neighbours as one. */
static void print_shares(const struct plan *plan)
{
    const int M = plan->microbatches.count;
    printf("\n%% of the weight gradients left out, by micro-batch\n");
    for (int s = 0; s < plan->num_stages; s++) {
        printf("stage %3d ", s);
        for (int m = 0, equal; m < M; m += equal) {
            const double percent = rint(100 * shares_at(&plan->shares, s, m));
            for (equal = 1; m + equal < M; equal++)
                if (rint(100 * shares_at(&plan->shares, s, m + equal)) != percent)
                    break;
            printf(" %.0f", percent);
            if (equal > 1)
                printf(" (x%d)", equal);
        }
        printf("\n");
    }
}

void plan_show_print_others(const struct job *job, const struct plan_answer *answer)
{
    const struct planner_result *result = &answer->result;
    if (result->plan.shares.share)
        print_shares(&result->plan);
    const double nearly = answer->memory.margin.nearly;
    char step[32], bound[32], devices[128], layout[128];
    int width = 6;
    for (int i = 0; i < result->num_best; i++) {
        plan_layout_text(&result->best[i].plan, layout, sizeof layout);
        width = (int)strlen(layout) > width ? (int)strlen(layout) : width;
    }
    printf("\nbest judged\n");
    printf("%4s %-*s %5s %-11s %-11s %-7s %10s %10s %11s  %s\n", "", width, "layout", "M",
           "schedule", "recompute", "frozen", "step", "bound", "samples/s",
           "first pipeline's devices");
    for (int i = 0; i < result->num_best; i++) {
        const struct planner_candidate *one = &result->best[i];
        const struct plan *plan = &one->plan;
        int64_t step_ns = one->judged_ns > 0 ? one->judged_ns : plan->step_ns;
        printf("%4d %-*s %5d %-11s %-11s %-7s %10s %10s %11.1f  %s\n", i + 1, width,
               plan_layout_text(plan, layout, sizeof layout), plan->microbatches.count,
               schedule_kind_name(plan->schedule), recompute_mode_name(plan->recompute),
               frozen_placement_name(plan->frozen), format_ns(step_ns, step, sizeof step),
               format_ns(one->lower_bound_ns, bound, sizeof bound), one->samples_per_s,
               devices_text(plan, devices, sizeof devices));
    }
    if (result->num_layouts > 1)
        print_layouts(result, nearly);
    if (result->num_lengths > 0)
        printf("\npipeline lengths%s\n", result->num_layouts > 1 ? " of the chosen layout" : "");
    for (int i = 0; i < result->num_lengths; i++) {
        const struct planner_length *length = &result->lengths[i];
        printf("%4d ", length->num_ranks);
        if (length->verdict == PLANNER_NONE && job->pipeline.num_stages != AUTO)
            printf("excluded by pipeline.num_stages");
        else
            print_verdict(result, length->verdict, length->samples_per_s, length->bound_per_s,
                          nearly);
        if (length->verdict == PLANNER_MEMORY && length->need_bytes > 0)
            printf(": needs %s on a device at least",
                   format_bytes(length->need_bytes, step, sizeof step));
        printf("\n");
    }
}

void plan_assumed_add(struct json *json, struct job_assumed assumed)
{
    struct json *keys = json_add_array(json, "assumed");
    if (assumed.dtype)
        json_add_string(keys, NULL, "train.dtype");
    if (assumed.optimizer)
        json_add_string(keys, NULL, "train.optimizer.kind");
}

struct json *plan_show_begin(const struct command *command, const struct job *job,
                             const struct cost_handle *cost)
{
    struct json *json = command_json(command);
    json_add_parsed(json, "job", job->json);
    json_add_string(json, "dtype", dtype_text((int)job->train.dtype));
    json_add_string(json, "optimizer", job_optimizer_name(job));
    plan_assumed_add(json, job->assumed);
    json_add_string(json, "cost_source", cost_source_name(cost->cost.source));
    json_add_string(json, "cost_label", cost->cost.label);
    if (cost->note[0])
        json_add_string(json, "cost_note", cost->note);
    if (job->model.note[0])
        json_add_string(json, "note", job->model.note);
    if (*cost->calibration.name)
        json_add_string(json, "calibration", cost->calibration.name);
    return json;
}
