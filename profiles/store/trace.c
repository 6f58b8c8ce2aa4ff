/* The Trace Event Format ("Chrome trace"): an array of complete events ("ph": "X") with times in
 * microseconds, arrows ("s", "f"), counters ("C") and metadata that names processes and threads.
 * Perfetto and chrome://tracing read it. Times are written as decimal microseconds with three
 * digits: nanoseconds exactly. An arrow binds to the slice that is open on its thread, so each end
 * is written directly after its slice.
 *
 * Read finish_step() first. */
#include "profiles/store/trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"

enum {
    GROUP_PROCESSES = 1000, /* numbers of processes that a group may use */
    MAX_LANES = 16          /* of a track; more ops at once share the last one */
};

/* Threads of a rank. */
enum track { TRACK_PASSES, TRACK_SENDS, TRACK_RECEIVES, TRACK_REDUCES, TRACK_COPIES, TRACK_COUNT };
static const char *const track_names[TRACK_COUNT] = {"", " sends", " receives", " all-reduces",
                                                     " cache"};

/* A process or thread whose name was written. */
struct lane {
    int64_t process, thread; /* thread -1: the process */
};

struct trace {
    FILE *out; /* the caller's */
    char title[64];
    int group;
    struct lane *lanes; /* owned; few per rank, so a linear search from the end is fast */
    int num_lanes;
    int64_t room;
    /* The step that is being gathered. finish_step() writes it. */
    struct op_row *rows; /* owned; their times are those of the trace */
    int64_t num_rows, rows_room;
    int64_t begin_ns;
    bool any, no_memory;
};

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    fputc('"', out);
}

static void comma(struct trace *trace)
{
    fputs(trace->any ? ",\n" : "\n", trace->out);
    trace->any = true;
}

/* Name a process or thread once. */
static void announce(struct trace *trace, int64_t process, int64_t thread, const char *name)
{
    for (int i = trace->num_lanes - 1; i >= 0; i--)
        if (trace->lanes[i].process == process && trace->lanes[i].thread == thread)
            return;
    if (!array_grow(&trace->lanes, trace->num_lanes + 1, &trace->room, sizeof *trace->lanes)) {
        trace->no_memory = true;
        return;
    }
    trace->lanes[trace->num_lanes++] = (struct lane){process, thread};
    comma(trace);
    fprintf(trace->out,
            "{\"ph\":\"M\",\"pid\":%" PRId64 ",\"tid\":%" PRId64
            ",\"name\":\"%s\",\"args\":{\"name\":",
            process, thread < 0 ? 0 : thread, thread < 0 ? "process_name" : "thread_name");
    write_text(trace->out, name);
    fputs("}}", trace->out);
    if (thread >= 0) { /* sort ranks by number, not by name */
        comma(trace);
        fprintf(trace->out,
                "{\"ph\":\"M\",\"pid\":%" PRId64 ",\"tid\":%" PRId64
                ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%" PRId64 "}}",
                process, thread, thread);
    }
}

static void write_us(FILE *out, int64_t ns)
{
    fprintf(out, "%s%" PRId64 ".%03d", ns < 0 ? "-" : "", (ns < 0 ? -ns : ns) / 1000,
            (int)((ns < 0 ? -ns : ns) % 1000));
}

static void write_times(FILE *out, int64_t process, int64_t thread, int64_t start_ns,
                        int64_t end_ns)
{
    fprintf(out, "{\"ph\":\"X\",\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"ts\":", process, thread);
    write_us(out, start_ns);
    fputs(",\"dur\":", out);
    write_us(out, end_ns - start_ns);
}

static enum track track_of(int kind)
{
    switch (kind) {
    case OP_SEND_ACT:
    case OP_SEND_GRAD:
        return TRACK_SENDS;
    case OP_RECV_ACT:
    case OP_RECV_GRAD:
        return TRACK_RECEIVES;
    case OP_ALLREDUCE:
    case OP_TIED:
        return TRACK_REDUCES;
    case OP_C:
    case OP_P:
        return TRACK_COPIES;
    default:
        return TRACK_PASSES;
    }
}

/* Category of an op, by which a viewer filters and colours: a pass, or a message. */
static const char *category(int kind)
{
    const enum track track = track_of(kind);
    if (track == TRACK_PASSES)
        return kind == OP_NORM || kind == OP_UPDATE ? "optimizer" : "compute";
    return track == TRACK_COPIES ? "cache" : "communication";
}

static int64_t process_of(const struct trace *trace, int64_t replica)
{
    return 1 + trace->group * GROUP_PROCESSES + replica;
}

/* Name a pipeline's process once. */
static void announce_process(struct trace *trace, int64_t replica)
{
    char name[96];
    snprintf(name, sizeof name, "%s pipeline %" PRId64, trace->title, replica);
    announce(trace, process_of(trace, replica), -1, name);
}

/* The number of the message that an op sends, receives or consumes: step, replica, the lower of the
 * two stages, micro-batch and direction, as many low bits of each as fit a double. -1: none. Only
 * messages between neighbouring stages (arg 0) have one. */
static int64_t message_of(const struct op_row *row)
{
    const struct op op = row->op;
    const bool backward =
        op.kind == OP_SEND_GRAD || op.kind == OP_RECV_GRAD || op.kind == OP_B || op.kind == OP_I;
    const bool pass = op.kind == OP_F || op.kind == OP_Z || op.kind == OP_B || op.kind == OP_I;
    const bool message = op.kind >= OP_SEND_ACT && op.kind <= OP_RECV_GRAD && op.arg == 0;
    /* An activation that enters a stage, and a gradient that leaves it, cross the boundary
     * below. */
    const bool below = op.kind == OP_RECV_ACT || op.kind == OP_SEND_GRAD || (pass && !backward);
    const int64_t lower = op.stage - below;
    if ((!pass && !message) || op.microbatch < 0 || lower < 0)
        return -1;
    return ((((row->step & 4095) << 8 | (row->replica & 255)) << 10 | (lower & 1023)) << 14 |
            (op.microbatch & 16383))
               << 1 |
           backward;
}

/* Write one end of the arrow of a message. */
static void write_flow(struct trace *trace, int64_t process, int64_t thread, int64_t id, bool start,
                       int64_t at_ns)
{
    comma(trace);
    fprintf(trace->out,
            "{\"ph\":\"%s\",%s\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"id\":%" PRId64
            ",\"cat\":\"message\",\"name\":\"%s\",\"ts\":",
            start ? "s" : "f", start ? "" : "\"bp\":\"e\",", process, thread,
            id * TRACE_GROUPS_MAX + trace->group, id & 1 ? "gradient" : "activation");
    write_us(trace->out, at_ns);
    fputc('}', trace->out);
}

/* A message that the step sends, and when. */
struct sent {
    int64_t id, start_ns;
};

static int compare_sent(const void *a, const void *b)
{
    return compare_int64(&((const struct sent *)a)->id, &((const struct sent *)b)->id);
}

/* Facts that all rows of a step share. */
struct step_seen {
    struct sent *sends; /* owned; by id */
    int64_t num_sends, end_ns;
    bool receives; /* a simulator records none */
};

/* The send of the message that a row receives or consumes; NULL: there is none. */
static const struct sent *send_of(const struct step_seen *seen, const struct op_row *row)
{
    const struct sent key = {.id = message_of(row)};
    return key.id < 0
               ? NULL
               : bsearch(&key, seen->sends, (size_t)seen->num_sends, sizeof key, compare_sent);
}

/* Copies to the cache may outlast the step, so they do not end it. */
static bool see_step(const struct trace *trace, struct step_seen *seen)
{
    seen->sends = calloc((size_t)trace->num_rows + 1, sizeof *seen->sends);
    if (!seen->sends)
        return false;
    seen->end_ns = trace->begin_ns;
    for (int64_t i = 0; i < trace->num_rows; i++) {
        const struct op_row *row = &trace->rows[i];
        const enum track track = track_of(row->op.kind);
        if (track == TRACK_SENDS && message_of(row) >= 0)
            seen->sends[seen->num_sends++] = (struct sent){message_of(row), row->start_ns};
        seen->receives = seen->receives || track == TRACK_RECEIVES;
        if (track != TRACK_COPIES && row->end_ns > seen->end_ns)
            seen->end_ns = row->end_ns;
    }
    qsort(seen->sends, (size_t)seen->num_sends, sizeof *seen->sends, compare_sent);
    return true;
}

/* Write the end of an arrow that belongs to a slice. A receive's arrow ends in the last nanosecond
 * of its slice. Without recorded receives, an arrow ends where a pass consumes what was sent. */
static void write_arrow(struct trace *trace, const struct step_seen *seen, const struct op_row *row,
                        int64_t thread)
{
    const int64_t process = process_of(trace, row->replica), id = message_of(row);
    const enum track track = track_of(row->op.kind);
    if (id < 0)
        return;
    if (track == TRACK_SENDS)
        write_flow(trace, process, thread, id, true, row->start_ns);
    else if (track == TRACK_RECEIVES)
        write_flow(trace, process, thread, id, false,
                   row->end_ns > row->start_ns ? row->end_ns - 1 : row->start_ns);
    else if (!seen->receives && send_of(seen, row))
        write_flow(trace, process, thread, id, false, row->start_ns);
}

static void write_slice(struct trace *trace, const struct op_row *row, int64_t thread, bool wait)
{
    char name[96];
    const char *word = wait ? "wait " : "";
    if (row->op.microbatch == OP_WHOLE_BATCH)
        snprintf(name, sizeof name, "%s%s s%d", word, op_kind_name(row->op.kind), row->op.stage);
    else
        snprintf(name, sizeof name, "%s%s%d s%d", word, op_kind_name(row->op.kind),
                 row->op.microbatch, row->op.stage);
    comma(trace);
    write_times(trace->out, process_of(trace, row->replica), thread, row->start_ns, row->end_ns);
    fprintf(trace->out,
            ",\"cat\":\"%s\",\"name\":\"%s\",\"args\":{\"op\":\"%s\",\"stage\":%d,"
            "\"microbatch\":%d,\"step\":%" PRId64 "}}",
            wait ? "wait" : category(row->op.kind), name, op_kind_name(row->op.kind), row->op.stage,
            row->op.microbatch, row->step);
}

/* Write a row's slice and its end of an arrow. A receive that waits for its send is two slices:
 * Perfetto turns an arrow round if its receive begins before its send. */
static void write_row(struct trace *trace, const struct step_seen *seen, const struct op_row *row,
                      int64_t thread)
{
    struct op_row part = *row;
    const struct sent *sent = track_of(row->op.kind) == TRACK_RECEIVES ? send_of(seen, row) : NULL;
    if (sent && sent->start_ns > row->start_ns && sent->start_ns < row->end_ns) {
        part.end_ns = sent->start_ns;
        write_slice(trace, &part, thread, true);
        part = *row;
        part.start_ns = sent->start_ns;
    }
    write_slice(trace, &part, thread, false);
    write_arrow(trace, seen, &part, thread);
}

/* --- idle ranks ------------------------------------------------------------------------------- */

/* A change of how many ranks of a process are idle. */
struct change {
    int64_t process, at_ns;
    int64_t idle; /* -1: a rank starts to work */
};

static int compare_changes(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->at_ns < y->at_ns ? -1 : x->at_ns > y->at_ns;
}

static void write_counter(struct trace *trace, int64_t process, const char *name, const char *unit,
                          int64_t at_ns, int64_t value)
{
    comma(trace);
    fprintf(trace->out, "{\"ph\":\"C\",\"pid\":%" PRId64 ",\"name\":\"%s\",\"ts\":", process, name);
    write_us(trace->out, at_ns);
    fprintf(trace->out, ",\"args\":{\"%s\":%" PRId64 "}}", unit, value);
}

/* Write how many ranks of each pipeline are idle over the step, and 0 after its end: the time
 * between recorded steps is no bubble. Each rank has a change at the step's start. */
static void write_idle(struct trace *trace, struct change *c, int64_t n, int64_t end_ns)
{
    qsort(c, (size_t)n, sizeof *c, compare_changes);
    for (int64_t i = 0, idle = 0; i < n; i++) {
        idle += c[i].idle;
        const bool last = i + 1 == n || c[i + 1].process != c[i].process;
        if (last ? c[i].at_ns < end_ns : c[i + 1].at_ns > c[i].at_ns)
            write_counter(trace, c[i].process, "bubble", "idle ranks", c[i].at_ns, idle);
        if (last) {
            write_counter(trace, c[i].process, "bubble", "idle ranks", end_ns, 0);
            idle = 0;
        }
    }
}

/* --- a step ----------------------------------------------------------------------------------- */

/* By pipeline, rank, thread and time, so that lanes can be given out in one pass. */
static int compare_rows(const void *a, const void *b)
{
    const struct op_row *x = *(const struct op_row *const *)a;
    const struct op_row *y = *(const struct op_row *const *)b;
    const int64_t keys[][2] = {
        {x->replica,           y->replica          },
        {x->rank,              y->rank             },
        {track_of(x->op.kind), track_of(y->op.kind)},
        {x->start_ns,          y->start_ns         },
        {x->end_ns,            y->end_ns           },
        {x < y ? 0 : 1,        x < y ? 1 : 0       }
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* The thread of a row: the first lane of its track that is free at its start. Passes keep one lane,
 * because a device computes one at a time; its clock may round their ends. */
static int64_t take_lane(struct trace *trace, const struct op_row *row, int64_t ends[MAX_LANES])
{
    char name[96], number[16] = "";
    const enum track track = track_of(row->op.kind);
    int lane = 0;
    while (track != TRACK_PASSES && lane + 1 < MAX_LANES && ends[lane] > row->start_ns)
        lane++;
    ends[lane] = row->end_ns;
    const int64_t thread = (row->rank * TRACK_COUNT + track) * MAX_LANES + lane;
    if (lane > 0)
        snprintf(number, sizeof number, " %d", lane + 1);
    snprintf(name, sizeof name, "rank %" PRId64 "%s%s", row->rank, track_names[track], number);
    announce(trace, process_of(trace, row->replica), thread, name);
    return thread;
}

/* Write sorted rows, and fill changes, which has room for 3 a row. Returns how many there are. */
static int64_t write_rows(struct trace *trace, const struct op_row *const *sorted,
                          const struct step_seen *seen, struct change *changes)
{
    int64_t ends[MAX_LANES], n = 0;
    for (int64_t i = 0; i < trace->num_rows; i++) {
        const struct op_row *row = sorted[i], *before = i > 0 ? sorted[i - 1] : NULL;
        const int64_t process = process_of(trace, row->replica);
        const bool new_rank =
            !before || before->replica != row->replica || before->rank != row->rank;
        if (new_rank || track_of(before->op.kind) != track_of(row->op.kind))
            for (int lane = 0; lane < MAX_LANES; lane++)
                ends[lane] = INT64_MIN;
        announce_process(trace, row->replica);
        if (new_rank)
            changes[n++] = (struct change){process, trace->begin_ns, 1};
        if (track_of(row->op.kind) == TRACK_PASSES && row->end_ns > row->start_ns) {
            changes[n++] = (struct change){process, row->start_ns, -1};
            changes[n++] = (struct change){process, row->end_ns, 1};
        }
        write_row(trace, seen, row, take_lane(trace, row, ends));
    }
    return n;
}

static void finish_step(struct trace *trace)
{
    struct step_seen seen = {0};
    const struct op_row **sorted = calloc((size_t)trace->num_rows + 1, sizeof *sorted);
    struct change *changes = calloc((size_t)trace->num_rows * 3 + 1, sizeof *changes);
    if (!sorted || !changes || !see_step(trace, &seen)) {
        trace->no_memory = true;
        goto out;
    }
    for (int64_t i = 0; i < trace->num_rows; i++)
        sorted[i] = &trace->rows[i];
    qsort(sorted, (size_t)trace->num_rows, sizeof *sorted, compare_rows);
    write_idle(trace, changes, write_rows(trace, sorted, &seen, changes), seen.end_ns);
    trace->num_rows = 0;
out:
    free(sorted);
    free(changes);
    free(seen.sends);
}

void trace_ops(struct trace *trace, const struct op_row *rows, int64_t n, int64_t base_ns)
{
    if (trace->num_rows > 0 && n > 0 &&
        (trace->rows[0].step != rows[0].step || trace->begin_ns != base_ns))
        finish_step(trace);
    if (!array_grow(&trace->rows, trace->num_rows + n, &trace->rows_room, sizeof *trace->rows)) {
        trace->no_memory = true;
        return;
    }
    trace->begin_ns = base_ns;
    for (int64_t i = 0; i < n; i++) {
        struct op_row *row = &trace->rows[trace->num_rows++];
        *row = rows[i];
        row->start_ns += base_ns;
        row->end_ns += base_ns;
    }
}

void trace_bytes(struct trace *trace, const char *name, int64_t replica, int64_t rank,
                 int64_t at_ns, int64_t bytes)
{
    char of_rank[96];
    announce_process(trace, replica);
    snprintf(of_rank, sizeof of_rank, "%.60s of rank %" PRId64, name, rank);
    write_counter(trace, process_of(trace, replica), of_rank, "bytes", at_ns, bytes);
}

enum status trace_begin(FILE *out, const char *title, struct trace **trace, struct err *err)
{
    struct trace *got = calloc(1, sizeof *got);
    if (!got)
        return err_nomem(err);
    got->out = out;
    snprintf(got->title, sizeof got->title, "%s", title);
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
    *trace = got;
    return OK;
}

void trace_group(struct trace *trace, const char *title)
{
    finish_step(trace);
    trace->group++;
    snprintf(trace->title, sizeof trace->title, "%s", title);
}

enum status trace_end(struct trace *trace, struct err *err)
{
    finish_step(trace);
    fputs("\n]}\n", trace->out);
    enum status rc = trace->no_memory ? err_nomem(err) : OK;
    free(trace->rows);
    free(trace->lanes);
    free(trace);
    return rc;
}

static void write_csv(FILE *out, const struct op_row *rows, int64_t n)
{
    fputs("step,replica,rank,op,stage,microbatch,arg,start_ns,end_ns\n", out);
    for (int64_t i = 0; i < n; i++)
        fprintf(out, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%d,%d,%d,%" PRId64 ",%" PRId64 "\n",
                rows[i].step, rows[i].replica, rows[i].rank, op_kind_name(rows[i].op.kind),
                rows[i].op.stage, rows[i].op.microbatch, rows[i].op.arg, rows[i].start_ns,
                rows[i].end_ns);
}

/* --- whole files ------------------------------------------------------------------------------ */

enum status ops_csv_write_file(const char *path, const struct op_row *rows, int64_t n,
                               struct err *err)
{
    struct atomic_file file = {0};
    enum status rc = output_open(&file, path, err);
    if (rc != OK)
        return rc;
    write_csv(file.out, rows, n);
    return atomic_close(&file, OK, err);
}
