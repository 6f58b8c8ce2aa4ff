/* Compute lists as CSV: one line for each rank, one cell for each op, such as "0F5".
 *
 * The format is that of PyTorch's pipeline schedules, whose files can be read too.
 * schedule_from_csv() walks over the text twice: first it counts the ops, then it fills the lists.
 * Read walk() and read_ops() first. */
#include "partition/schedule/schedule.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define OVERLAP_SUFFIX ")OVERLAP_F_B"

static bool is_compute(struct op op)
{
    return op.kind <= OP_W || (op.kind == OP_Z && op.microbatch >= 0);
}

static char *write_int(char *at, int value)
{
    char digits[12];
    int n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

static int num_digits(int value)
{
    int n = 1;
    for (; value >= 10; value /= 10)
        n++;
    return n;
}

enum status schedule_to_csv(const struct schedule *schedule, char **csv, struct err *err)
{
    /* Each op needs stage, kind, micro-batch and a separator. Each rank needs a line end. */
    const size_t cell = (size_t)num_digits(schedule->num_stages) +
                        (size_t)num_digits(schedule->num_microbatches) + 2;
    size_t room = (size_t)schedule->num_ranks + 1;
    for (int k = 0; k < schedule->num_ranks; k++)
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++)
            room += cell + (schedule->ranks[k].ops[i].arg ? sizeof OVERLAP_SUFFIX : 0);
    char *text = malloc(room);
    if (!text)
        return err_nomem(err);
    char *at = text;
    for (int k = 0; k < schedule->num_ranks; k++) {
        const struct rank_ops *rank = &schedule->ranks[k];
        const char *row = at;
        for (int64_t i = 0; i < rank->num_ops; i++) {
            const struct op op = rank->ops[i];
            if (!is_compute(op))
                continue;
            const bool first = op_overlapped(op, OP_F), second = op_overlapped(op, OP_B);
            if (at > row)
                *at++ = second ? ';' : ',';
            if (first)
                *at++ = '(';
            at = write_int(at, op.stage);
            *at++ = op_kind_name(op.kind)[0];
            at = write_int(at, op.microbatch);
            if (second) {
                memcpy(at, OVERLAP_SUFFIX, sizeof OVERLAP_SUFFIX - 1);
                at += sizeof OVERLAP_SUFFIX - 1;
            }
        }
        *at++ = '\n';
    }
    *at = '\0';
    *csv = text;
    return OK;
}

/* Read a decimal number from *at and move *at past it. -1 if there is none or it exceeds max. */
static int64_t read_int(const char **at, const char *end, int64_t max)
{
    int64_t value = 0;
    const char *p = *at;
    while (p < end && isdigit((unsigned char)*p)) {
        value = 10 * value + (*p++ - '0');
        if (value > max)
            return -1;
    }
    const bool any = p > *at;
    *at = p;
    return any ? value : -1;
}

/* Whether a cell is one of the ops that PyTorch's _dump_csv() adds to the computing ones: messages and
 * FSDP, "0SEND_F0", "2UNSHARD". Lowering decides about ours, so they are read as bubbles. */
static bool is_added(const char *at, const char *end)
{
    static const char *const names[] = {"SEND_F",      "RECV_F",          "SEND_B",  "RECV_B",
                                        "WAIT_SEND_F", "WAIT_SEND_B",     "UNSHARD", "RESHARD",
                                        "REDUCE_GRAD", "WAIT_REDUCE_GRAD"};
    if (read_int(&at, end, SCHEDULE_MAX_STAGES - 1) < 0)
        return false;
    const char *name = at;
    while (at < end && (isupper((unsigned char)*at) || *at == '_'))
        at++;
    const size_t length = (size_t)(at - name);
    while (at < end && isdigit((unsigned char)*at))
        at++;
    bool known = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known |= strlen(names[i]) == length && memcmp(name, names[i], length) == 0;
    return known && at == end;
}

/* Read the op of one cell, given without blanks around it. Returns false if it is not an op. */
static bool read_cell(const char *at, const char *end, struct op *op)
{
    static const char kinds[] = {'F', 'B', 'I', 'W', 'Z'};
    static const enum op_kind values[] = {OP_F, OP_B, OP_I, OP_W, OP_Z};
    const int64_t stage = read_int(&at, end, SCHEDULE_MAX_STAGES - 1);
    const char *kind = stage >= 0 && at < end ? memchr(kinds, *at, sizeof kinds) : NULL;
    if (!kind)
        return false;
    at++;
    const int64_t microbatch = read_int(&at, end, INT32_MAX - 1);
    *op = (struct op){.microbatch = (int32_t)microbatch,
                      .stage = (uint16_t)stage,
                      .kind = (uint8_t)values[kind - kinds]};
    return microbatch >= 0 && at == end;
}

/* Read the ops of a cell: one op, or two that overlap, "(0F5;7B0)OVERLAP_F_B": the F, then the B.
 * Returns the number of ops, 0 if the cell is malformed. */
static int read_ops(const char *at, const char *end, struct op ops[2])
{
    const size_t tail = sizeof OVERLAP_SUFFIX - 1, length = (size_t)(end - at);
    if (*at != '(' || length <= tail || memcmp(end - tail, OVERLAP_SUFFIX, tail) != 0)
        return read_cell(at, end, &ops[0]);
    const char *middle = memchr(at, ';', length), *inner_end = end - tail;
    if (!middle || middle >= inner_end || !read_cell(at + 1, middle, &ops[0]) ||
        !read_cell(middle + 1, inner_end, &ops[1]))
        return 0;
    if (ops[0].kind == OP_F && ops[1].kind == OP_B)
        ops[0].arg = ops[1].arg = OP_OVERLAPPED;
    return 2;
}

/* Go over all cells and count the ops of each rank. With `fill`, also store them in the lists.
 * *num_rows is the number of lines; a line end at the end of the text starts no further line. */
static enum status walk(const char *csv, const char *what, bool fill, struct rank_ops *ranks,
                        int64_t *counts, int *num_rows, struct err *err)
{
    int row = 0;
    for (const char *line = csv; *line; row++) {
        const char *line_end = line + strcspn(line, "\n");
        if (row >= SCHEDULE_MAX_STAGES)
            return err_set(err, ERR_INPUT, "%s: more than %d rows", what, SCHEDULE_MAX_STAGES);
        int64_t cell = 1;
        for (const char *at = line; at <= line_end; cell++) {
            const char *cell_end = memchr(at, ',', (size_t)(line_end - at));
            cell_end = cell_end ? cell_end : line_end;
            const char *next = cell_end + 1;
            while (at < cell_end && isspace((unsigned char)*at))
                at++;
            while (cell_end > at && isspace((unsigned char)cell_end[-1]))
                cell_end--;
            struct op ops[2];
            const int num_ops = at < cell_end ? read_ops(at, cell_end, ops) : 0;
            if (at < cell_end && num_ops == 0 && !is_added(at, cell_end)) {
                const int shown = cell_end - at > 24 ? 24 : (int)(cell_end - at);
                enum status rc = err_set(err, ERR_INPUT, "%s: row %d, cell %lld: '%.*s' is no op",
                                         what, row + 1, (long long)cell, shown, at);
                err_hint(err, "an op is STAGE KIND MICROBATCH, such as 0F0; kinds are F B I W Z");
                return rc;
            }
            for (int i = 0; i < num_ops && fill; i++)
                ranks[row].ops[ranks[row].num_ops++] = ops[i];
            if (counts)
                counts[row] += num_ops;
            at = next;
        }
        line = *line_end ? line_end + 1 : line_end;
    }
    *num_rows = row;
    return OK;
}

/* Find the rank of each stage, and which stages are frozen. */
static void describe(struct schedule *schedule)
{
    const int S = schedule->num_stages;
    for (int s = 0; s < S; s++)
        schedule->rank_of_stage[s] = -1;
    for (int k = 0; k < schedule->num_ranks; k++) {
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++) {
            const struct op op = schedule->ranks[k].ops[i];
            if (schedule->rank_of_stage[op.stage] < 0)
                schedule->rank_of_stage[op.stage] = k;
            if (op.kind == OP_Z && op.stage >= schedule->num_frozen_stages)
                schedule->num_frozen_stages = op.stage + 1;
        }
    }
    bool input = false, weight = false;
    for (int s = 0; s < S; s++) {
        schedule->rank_of_stage[s] =
            schedule->rank_of_stage[s] < 0 ? 0 : schedule->rank_of_stage[s];
    }
    if (schedule->num_frozen_stages >= S)
        return; /* schedule_check() refuses it */
    const int first = schedule->num_frozen_stages;
    const struct rank_ops *rank = &schedule->ranks[schedule->rank_of_stage[first]];
    for (int64_t i = 0; i < rank->num_ops; i++) {
        const struct op op = rank->ops[i];
        input = input || (op.stage == first && op.kind == OP_I);
        weight = weight || (op.stage == first && op.kind == OP_W);
    }
    schedule->drop_first_input = weight && !input;
}

static bool is_backward(struct op op) /* or its half for the input */
{
    return op.kind == OP_B || op.kind == OP_I;
}

/* The micro-batches of a stage's forwards and backwards, and whether its backwards descend. */
struct seen {
    int32_t first_forward, last_forward, last_backward, previous, forwards, backwards;
    bool descends;
};

static void see(struct seen *at, struct op op)
{
    const int32_t m = op.microbatch;
    if (op.kind == OP_F) {
        at->first_forward = m < at->first_forward ? m : at->first_forward;
        at->last_forward = m > at->last_forward ? m : at->last_forward;
        at->forwards++;
    } else if (is_backward(op)) {
        at->descends &= m < at->previous;
        at->previous = m;
        at->last_backward = m > at->last_backward ? m : at->last_backward;
        at->backwards++;
    }
}

/* PyTorch 2.15's Schedule1F1B numbers the forwards of its last rank 1..M, although it runs 0..M-1
 * there. Its LoopedBFS runs the backwards of a stage from the last micro-batch to the first: that is
 * our order with micro-batches counted from the other end, and all rules hold for it alike. Only
 * whole lists are renumbered, so that a list that was read once is read again as it is. */
static enum status renumber(struct schedule *schedule, struct err *err)
{
    const int S = schedule->num_stages;
    int32_t last = 0;
    struct seen *seen = malloc((size_t)S * sizeof *seen);
    if (!seen)
        return err_nomem(err);
    for (int s = 0; s < S; s++)
        seen[s] = (struct seen){INT32_MAX, -1, -1, INT32_MAX, 0, 0, true};
    for (int k = 0; k < schedule->num_ranks; k++)
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++)
            see(&seen[schedule->ranks[k].ops[i].stage], schedule->ranks[k].ops[i]);
    for (int k = 0; k < schedule->num_ranks; k++)
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++) {
            struct op *op = &schedule->ranks[k].ops[i];
            const struct seen *at = &seen[op->stage];
            op->microbatch -= op->kind == OP_F && at->first_forward == 1 &&
                              at->last_forward == at->forwards && at->backwards == at->forwards &&
                              at->last_backward == at->forwards - 1;
            last = op->microbatch > last ? op->microbatch : last;
        }
    schedule->num_microbatches = last + 1;
    bool descends = last > 0;
    for (int s = 0; s < S; s++)
        descends &= seen[s].descends && seen[s].backwards == last + 1 &&
                    seen[s].forwards == last + 1 && seen[s].last_backward == last;
    for (int k = 0; k < schedule->num_ranks && descends; k++)
        for (int64_t i = 0; i < schedule->ranks[k].num_ops; i++)
            schedule->ranks[k].ops[i].microbatch = last - schedule->ranks[k].ops[i].microbatch;
    free(seen);
    return OK;
}

enum status schedule_from_csv(const char *csv, const char *what, struct schedule *schedule,
                              struct err *err)
{
    struct schedule got = {0};
    int num_rows = 0;
    int64_t total = 0, *counts = NULL;
    enum status rc = walk(csv, what, false, NULL, NULL, &num_rows, err);
    if (rc != OK)
        return rc;
    counts = calloc((size_t)num_rows + 1, sizeof *counts);
    if (!counts)
        return err_nomem(err);
    rc = walk(csv, what, false, NULL, counts, &num_rows, err);
    for (int k = 0; k < num_rows; k++)
        total += counts[k];
    if (total == 0) {
        rc = err_set(err, ERR_INPUT, "%s: no ops", what);
        goto out;
    }
    rc = schedule_alloc(SCHEDULE_CUSTOM, num_rows, SCHEDULE_MAX_STAGES, 1, counts, &got, err);
    if (rc != OK)
        goto out;
    rc = walk(csv, what, true, got.ranks, NULL, &num_rows, err);
    got.num_stages = 0;
    for (int k = 0; k < num_rows; k++) {
        for (int64_t i = 0; i < got.ranks[k].num_ops; i++) {
            const struct op op = got.ranks[k].ops[i];
            got.num_stages = op.stage >= got.num_stages ? op.stage + 1 : got.num_stages;
        }
    }
    if (num_rows > got.num_stages) {
        rc = err_set(err, ERR_INPUT,
                     "%s: %d rows, but stages 0..%d: every row must have a stage of its own", what,
                     num_rows, got.num_stages - 1);
        goto out;
    }
    rc = renumber(&got, err);
    if (rc != OK)
        goto out;
    if (got.num_microbatches > total || got.num_stages > total) {
        rc = err_set(err, ERR_INPUT,
                     "%s: %lld ops cannot be all of stages 0..%d and microbatches 0..%d", what,
                     (long long)total, got.num_stages - 1, got.num_microbatches - 1);
        goto out;
    }
    describe(&got);
    *schedule = got;
    got = (struct schedule){0};
out:
    schedule_clear(&got);
    free(counts);
    return rc;
}
