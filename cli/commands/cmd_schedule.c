/* cli/commands/cmd_schedule.c - `elapse schedule`: print a schedule, or check one from a CSV file. A
 * schedule is printed as a grid of time slots, as CSV or as JSON. Read run() at the end first. */
#include <stdlib.h>

#include "cli/base/command.h"
#include "partition/schedule/schedule.h"
#include "partition/step/schedule_auto.h"
#include "partition/base/units.h"
#include "profiles/base/safe_output.h"
#include "profiles/base/whole_file.h"

#define JSON_MAX_OPS ((int64_t)1 << 21) /* an op takes about 350 bytes of memory */
#define GRID_MAX_SLOTS 240              /* columns of the picture */
#define GRID_MAX_RANKS 64

struct request {
    const char *kind, *check;
    int64_t stages, microbatches, chunks, buffers;
    bool csv, json;
};

static int64_t count_ops(const struct schedule *schedule)
{
    int64_t ops = 0;
    for (int k = 0; k < schedule->num_ranks; k++)
        ops += schedule->ranks[k].num_ops;
    return ops;
}

static void add_counts(struct json *json, const struct schedule *schedule)
{
    json_add_int(json, "num_ranks", schedule->num_ranks);
    json_add_int(json, "num_stages", schedule->num_stages);
    json_add_int(json, "num_microbatches", schedule->num_microbatches);
    json_add_int(json, "num_ops", count_ops(schedule));
}

static void add_peaks(struct json *json, const struct schedule *schedule, const int *peak)
{
    struct json *list = json_add_array(json, "peak_live");
    for (int k = 0; k < schedule->num_ranks; k++)
        json_add_int(list, NULL, peak[k]);
}

static enum status print_json(const struct command *command, const struct request *request,
                              const struct schedule *schedule, const int *peak, struct err *err)
{
    if (count_ops(schedule) > JSON_MAX_OPS) {
        enum status rc =
            err_set(err, ERR_INFEASIBLE, "schedule of %lld ops is too long for --json, limit %lld",
                    (long long)count_ops(schedule), (long long)JSON_MAX_OPS);
        err_hint(err, "--csv has no limit");
        return rc;
    }
    struct json *json = command_json(command);
    json_add_string(json, "kind", request->kind);
    json_add_int(json, "chunks", request->chunks);
    add_counts(json, schedule);
    struct json *ranks = json_add_array(json, "ranks");
    for (int k = 0; k < schedule->num_ranks; k++) {
        struct json *list = json_add_array(ranks, NULL);
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++) {
            const struct op op = schedule->ranks[k].ops[i];
            struct json *entry = json_add_object(list, NULL);
            json_add_string(entry, "op", op_kind_name(op.kind));
            json_add_int(entry, "stage", op.stage);
            json_add_int(entry, "microbatch", op.microbatch);
            if (op.arg == OP_OVERLAPPED)
                json_add_bool(entry, "overlapped", true);
        }
    }
    add_peaks(json, schedule, peak);
    return command_answer(json, err);
}

/* Number of time slots of an op: F, I and W take one, B two. */
static int op_slots(struct op op)
{
    return op.kind == OP_B ? 2 : 1;
}

/* Ends of the forward and of the input half of each (stage, micro-batch). They count from 1, so 0
 * is "not yet". */
struct slot_ends {
    int64_t *forward, *input;
};

static size_t pair_index(const struct schedule *schedule, struct op op)
{
    return (size_t)op.stage * (size_t)schedule->num_microbatches + (size_t)op.microbatch;
}

/* The end that an op of another stage must have reached before this one; NULL: it needs none. */
static const int64_t *slot_need(const struct schedule *schedule, const struct slot_ends *ends,
                                struct op op)
{
    const size_t at = pair_index(schedule, op), M = (size_t)schedule->num_microbatches;
    if (op.kind == OP_F)
        return op.stage == 0 ? NULL : &ends->forward[at - M];
    if (op.kind == OP_W || op.stage == schedule->num_stages - 1)
        return NULL;
    return &ends->input[at + M];
}

/* Move a clock to the end of the ops that n ops need. False: one of these has not ended yet. */
static bool wait_for_needs(const struct schedule *schedule, const struct slot_ends *ends,
                           const struct op *op, int n, int64_t *clock)
{
    for (int i = 0; i < n; i++) {
        const int64_t *need = slot_need(schedule, ends, op[i]);
        if (need && *need == 0)
            return false;
        *clock = need && *need > *clock ? *need : *clock;
    }
    return true;
}

/* Set starts[i] to the start slot of each op, rank by rank. starts has one entry for each op.
 * Returns the end of the last op, or -1 if out of memory. The schedule must have passed
 * schedule_check(). */
static int64_t slot_times(const struct schedule *schedule, int64_t *starts)
{
    const int S = schedule->num_stages, M = schedule->num_microbatches, K = schedule->num_ranks;
    const size_t pairs = (size_t)S * (size_t)M;
    struct slot_ends ends = {calloc(pairs, sizeof *ends.forward),
                             calloc(pairs, sizeof *ends.input)};
    int64_t *next = calloc((size_t)K, sizeof *next), *clock = calloc((size_t)K, sizeof *clock);
    int64_t end = ends.forward && ends.input && next && clock ? 0 : -1;
    for (bool moved = end == 0; moved;) {
        moved = false;
        int64_t base = 0;
        for (int k = 0; k < K; base += schedule->ranks[k++].num_ops) {
            while (next[k] < schedule->ranks[k].num_ops) {
                const struct op *op = &schedule->ranks[k].ops[next[k]];
                const int n = op_overlapped(*op, OP_F) ? 2 : 1; /* a pair is one op */
                if (!wait_for_needs(schedule, &ends, op, n, &clock[k]))
                    break;
                for (int i = 0; i < n; i++) {
                    starts[base + next[k]++] = clock[k];
                    clock[k] += op_slots(op[i]);
                }
                end = clock[k] > end ? clock[k] : end;
                for (int i = 0; i < n; i++)
                    if (op[i].kind != OP_W)
                        (op[i].kind == OP_F ? ends.forward
                                            : ends.input)[pair_index(schedule, op[i])] = clock[k];
                moved = true;
            }
        }
    }
    free(ends.forward);
    free(ends.input);
    free(next);
    free(clock);
    return end;
}

struct slots {
    int64_t from, to; /* to is the first one behind them */
};

static void print_cell(const struct slots *shown, int64_t slot, int width, const char *cell)
{
    if (slot >= shown->from && slot < shown->to)
        printf(" %*s", width, cell);
}

/* Print one row for each rank and one column for each of these slots. "." is idle, "-" the second half
 * of a B. */
static void print_slots(const struct schedule *schedule, const int64_t *starts, int width,
                        const struct slots *shown)
{
    char cell[32];
    int64_t at = 0;
    for (int k = 0; k < schedule->num_ranks; k++) {
        int64_t slot = 0;
        printf("rank %-3d", k);
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++, at++) {
            const struct op op = schedule->ranks[k].ops[i];
            for (; slot < starts[at]; slot++)
                print_cell(shown, slot, width, ".");
            snprintf(cell, sizeof cell, "%d%s%d", op.stage, op_kind_name(op.kind), op.microbatch);
            print_cell(shown, slot++, width, cell);
            if (op_slots(op) == 2)
                print_cell(shown, slot++, width, "-");
        }
        for (; slot < shown->to; slot++)
            print_cell(shown, slot, width, ".");
        putchar('\n');
    }
}

/* Print the slots, in a terminal as many in a row as it has room for. */
static void print_grid(const struct schedule *schedule, const int64_t *starts, int64_t end)
{
    enum { LABEL = 8 }; /* "rank 0  " */
    const int width =
        snprintf(NULL, 0, "%dF%d", schedule->num_stages - 1, schedule->num_microbatches - 1);
    const int columns = terminal_columns(), fit = (columns - LABEL) / (width + 1);
    const int64_t step = columns == 0 ? end : fit > 1 ? fit : 1;
    for (int64_t from = 0; from < end; from += step) {
        const struct slots shown = {from, from + step < end ? from + step : end};
        if (step < end)
            printf("%sslots %lld to %lld\n", from ? "\n" : "", (long long)from,
                   (long long)shown.to - 1);
        print_slots(schedule, starts, width, &shown);
    }
}

static void print_counts(const char *what, const struct schedule *schedule)
{
    char ranks[32], stages[32], microbatches[32], ops[32];
    printf(
        "%s: %s, %s, %s, %s\n", what,
        format_count(schedule->num_ranks, "rank", ranks, sizeof ranks),
        format_count(schedule->num_stages, "stage", stages, sizeof stages),
        format_count(schedule->num_microbatches, "microbatch", microbatches, sizeof microbatches),
        format_count(count_ops(schedule), "op", ops, sizeof ops));
}

static enum status print_text(const struct request *request, const struct schedule *schedule,
                              const int *peak, struct err *err)
{
    print_counts(request->kind, schedule);
    const int64_t slots =
        3 * (int64_t)schedule->num_microbatches * (schedule->num_stages / schedule->num_ranks);
    if (slots <= GRID_MAX_SLOTS && schedule->num_ranks <= GRID_MAX_RANKS) {
        int64_t *starts = calloc((size_t)count_ops(schedule) + 1, sizeof *starts);
        const int64_t end = starts ? slot_times(schedule, starts) : -1;
        if (end < 0) {
            free(starts);
            return err_nomem(err);
        }
        printf(
            "slots of equal length; F, I and W take one, B two; the step takes %lld slots, a rank "
            "works in %lld of them\n\n",
            (long long)end, (long long)slots);
        print_grid(schedule, starts, end);
        free(starts);
    } else {
        printf("too wide for a picture; --csv prints the lists\n");
    }
    printf("\npeak of live activations (stage, microbatch):");
    for (int k = 0; k < schedule->num_ranks; k++)
        printf(" %d", peak[k]);
    putchar('\n');
    return fflush(stdout) == 0 ? OK : err_set(err, ERR_SYSTEM, "cannot write to standard output");
}

static enum status print_csv(const struct schedule *schedule, struct err *err)
{
    char *csv = NULL;
    enum status rc = schedule_to_csv(schedule, &csv, err);
    if (rc == OK && (fputs(csv, stdout) == EOF || fflush(stdout) != 0))
        rc = err_set(err, ERR_SYSTEM, "cannot write to standard output");
    free(csv);
    return rc;
}

static enum status run_check(const struct command *command, const struct request *request,
                             struct err *err)
{
    struct schedule schedule = {0};
    struct err why = {0};
    char *text = NULL;
    int *peak = NULL;
    enum status rc = file_read_text(request->check, &text, err);
    THEN(schedule_from_csv(text, request->check, &schedule, err));
    if (rc != OK)
        goto out;
    enum status verdict = schedule_check(&schedule, (int)request->buffers, &why);
    if (verdict != OK && verdict != ERR_INFEASIBLE) {
        rc = err_set(err, verdict, "%s: %s", request->check, why.msg);
        goto out;
    }
    peak = calloc((size_t)schedule.num_ranks, sizeof *peak);
    if (!peak) {
        rc = err_nomem(err);
        goto out;
    }
    schedule_peak_live(&schedule, peak);
    if (request->json) {
        struct json *json = command_json(command);
        json_add_string(json, "file", request->check);
        json_add_int(json, "buffers", request->buffers);
        add_counts(json, &schedule);
        json_add_bool(json, "ok", verdict == OK);
        json_add_string(json, "reason", why.msg);
        if (verdict == OK)
            add_peaks(json, &schedule, peak);
        rc = command_answer(json, err);
    } else if (verdict == OK) {
        print_counts("ok", &schedule);
    } else {
        printf("rejected: %s\n", why.msg);
    }
    if (rc == OK && verdict != OK)
        rc = err_set(err, verdict, "schedule '%s' rejected: %s", request->check, why.msg);
out:
    free(text);
    free(peak);
    schedule_clear(&schedule);
    return rc;
}

static enum status run_print(const struct command *command, struct request *request,
                             struct err *err)
{
    struct schedule schedule = {0};
    enum schedule_kind kind;
    int *peak = NULL;
    enum status rc = schedule_kind_parse(request->kind, &kind, err);
    if (rc != OK)
        return rc;
    if (request->chunks == 0)
        request->chunks = schedule_default_chunks(kind);
    const int K = (int)request->stages, M = (int)request->microbatches;
    rc = kind == SCHEDULE_SEARCH
             ? schedule_auto_uniform(K, M, (int)request->chunks, &schedule, err)
             : schedule_generate(kind, K, M, (int)request->chunks, &schedule, err);
    if (rc != OK)
        goto out;
    peak = calloc((size_t)K, sizeof *peak);
    if (!peak) {
        rc = err_nomem(err);
        goto out;
    }
    schedule_peak_live(&schedule, peak);
    rc = request->csv    ? print_csv(&schedule, err)
         : request->json ? print_json(command, request, &schedule, peak, err)
                         : print_text(request, &schedule, peak, err);
out:
    free(peak);
    schedule_clear(&schedule);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    struct request request = {0};
    bool kind_seen = false, stages_seen = false, microbatches_seen = false;
    bool buffers_seen = false;
    const struct option options[] = {
        OPTION("kind", STRING, &request.kind, "KIND", "%s; search: for equal stages with F = I = W",
               .seen = &kind_seen, .values = SCHEDULE_NAMES),
        OPTION("stages", INT, &request.stages, "K", "devices per pipeline", .min = 1,
               .max = SCHEDULE_MAX_STAGES, .seen = &stages_seen),
        OPTION("microbatches", INT, &request.microbatches, "M", "micro-batches of a mini-batch",
               .min = 1, .max = SCHEDULE_MAX_OPS, .seen = &microbatches_seen),
        OPTION("chunks", INT, &request.chunks, "V",
               "stages per device (default 2 for schedules with several chunks, else 1)", .min = 1,
               .max = SCHEDULE_MAX_STAGES),
        OPTION("csv", FLAG, &request.csv, NULL, "print CSV, one row per rank: 0F0,1F0,0I0,0W0"),
        OPTION("check", STRING, &request.check, "FILE", "check a schedule from a CSV file instead"),
        OPTION(
            "buffers", INT, &request.buffers, "N",
            "with --check: most messages sent and not yet received per edge (default 0: no limit)",
            .max = INT32_MAX, .seen = &buffers_seen),
        OPTION_JSON(&request.json),
    };
    struct command_line line = COMMAND_LINE(options, 0);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    const bool any = kind_seen || stages_seen || microbatches_seen || request.csv || request.chunks;
    rc = OPTIONS_REFUSE(err, {request.check && any, "--check takes --buffers and --json only"},
                        {!request.check && buffers_seen, "--buffers goes with --check"},
                        {request.csv && request.json, "--csv and --json exclude each other"});
    if (rc != OK)
        return rc;
    if (request.check)
        return run_check(command, &request, err);
    if (!kind_seen || !stages_seen || !microbatches_seen) {
        rc = err_set(err, ERR_INPUT, "schedule: --%s is missing",
                     !kind_seen     ? "kind"
                     : !stages_seen ? "stages"
                                    : "microbatches");
        err_hint(err, "elapse schedule --kind 1f1b --stages 4 --microbatches 8");
        return rc;
    }
    return run_print(command, &request, err);
}

const struct command command_schedule = {
    .name = "schedule",
    .args = "--kind KIND --stages K --microbatches M [--chunks V] | --check FILE",
    .summary = "print a pipeline schedule, or check one",
    .takes = "",
    .run = run,
};
