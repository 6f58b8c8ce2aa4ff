/* The Trace Event Format ("Chrome trace"): an array of complete events ("ph": "X") with times in
 * microseconds, and metadata events that name processes and threads. Perfetto and chrome://tracing
 * read it. Times are written as decimal microseconds with three digits: nanoseconds exactly. */
#include "profiles/trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "partition/units.h"
#include "profiles/json.h"

/* A process or thread whose name was written. */
struct lane {
    int64_t process, thread; /* thread -1: the process */
};

struct trace {
    FILE *out; /* the caller's */
    char title[64];
    struct lane *lanes; /* owned; few per rank, so a linear search from the end is fast */
    int num_lanes, room;
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
    if (trace->num_lanes == trace->room) {
        int room = trace->room ? 2 * trace->room : 32;
        struct lane *more = realloc(trace->lanes, (size_t)room * sizeof *more);
        if (!more) {
            trace->no_memory = true;
            return;
        }
        trace->lanes = more;
        trace->room = room;
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

static bool is_message(int kind)
{
    return kind >= OP_SEND_ACT && kind <= OP_TIED;
}

/* Category of an op, by which a viewer filters and colours: a pass, or a message. */
static const char *category(int kind)
{
    if (is_message(kind))
        return "communication";
    if (kind == OP_C || kind == OP_P)
        return "cache";
    return kind == OP_NORM || kind == OP_UPDATE ? "optimizer" : "compute";
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
    /* An activation that enters a stage, and a gradient that leaves it, cross the boundary below. */
    const bool below = op.kind == OP_RECV_ACT || op.kind == OP_SEND_GRAD || (pass && !backward);
    const int64_t lower = op.stage - below;
    if ((!pass && !message) || op.microbatch < 0 || lower < 0)
        return -1;
    return ((((row->step & 4095) << 8 | (row->replica & 255)) << 10 | (lower & 1023)) << 14 |
            (op.microbatch & 16383))
               << 1 |
           backward;
}

/* Write one end of the arrow of a message. A viewer binds it to the slice in which its time lies. */
static void write_flow(struct trace *trace, const struct op_row *row, bool start, int64_t at_ns)
{
    const int64_t id = message_of(row);
    comma(trace);
    fprintf(trace->out,
            "{\"ph\":\"%s\",%s\"pid\":%" PRId64 ",\"tid\":%" PRId64 ",\"id\":%" PRId64
            ",\"cat\":\"message\",\"name\":\"%s\",\"ts\":",
            start ? "s" : "f", start ? "" : "\"bp\":\"e\",", 1 + row->replica,
            2 * row->rank + is_message(row->op.kind), id, id & 1 ? "gradient" : "activation");
    write_us(trace->out, at_ns);
    fputc('}', trace->out);
}

/* The messages that rows send, ascending, in a fresh array; *n is their count. */
static int64_t *find_sends(const struct op_row *rows, int64_t num_rows, int64_t *n)
{
    int64_t *ids = calloc((size_t)num_rows + 1, sizeof *ids);
    *n = 0;
    for (int64_t i = 0; ids && i < num_rows; i++)
        if ((rows[i].op.kind == OP_SEND_ACT || rows[i].op.kind == OP_SEND_GRAD) &&
            message_of(&rows[i]) >= 0)
            ids[(*n)++] = message_of(&rows[i]);
    if (ids)
        qsort(ids, (size_t)*n, sizeof *ids, compare_int64);
    return ids;
}

/* Write the arrows from sends to receives. A receive's end lies before its slice's last nanosecond.
 * A simulator records no receives: its arrows end where a pass consumes what was sent. */
static void write_flows(struct trace *trace, const struct op_row *rows, int64_t n, int64_t base_ns)
{
    bool receives = false;
    int64_t num_sends;
    int64_t *sends = find_sends(rows, n, &num_sends);
    if (!sends) {
        trace->no_memory = true;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        receives = receives || rows[i].op.kind == OP_RECV_ACT || rows[i].op.kind == OP_RECV_GRAD;
    for (int64_t i = 0; i < n; i++) {
        const struct op_row *row = &rows[i];
        const int kind = row->op.kind;
        const int64_t id = message_of(row), start = base_ns + row->start_ns;
        if (id < 0)
            continue;
        if (kind == OP_SEND_ACT || kind == OP_SEND_GRAD)
            write_flow(trace, row, true, start);
        else if (kind == OP_RECV_ACT || kind == OP_RECV_GRAD)
            write_flow(trace, row, false,
                       row->end_ns > row->start_ns ? base_ns + row->end_ns - 1 : start);
        else if (!receives && bsearch(&id, sends, (size_t)num_sends, sizeof id, compare_int64))
            write_flow(trace, row, false, start);
    }
    free(sends);
}

void trace_ops(struct trace *trace, const struct op_row *rows, int64_t n, int64_t base_ns)
{
    for (int64_t i = 0; i < n; i++) {
        const struct op_row *row = &rows[i];
        int64_t process = 1 + row->replica, thread = 2 * row->rank + is_message(row->op.kind);
        char name[96];
        snprintf(name, sizeof name, "%s replica %" PRId64, trace->title, row->replica);
        announce(trace, process, -1, name);
        snprintf(name, sizeof name, "rank %" PRId64 "%s", row->rank, thread % 2 ? " messages" : "");
        announce(trace, process, thread, name);
        if (row->op.microbatch == OP_WHOLE_BATCH)
            snprintf(name, sizeof name, "%s s%d", op_kind_name(row->op.kind), row->op.stage);
        else
            snprintf(name, sizeof name, "%s%d s%d", op_kind_name(row->op.kind), row->op.microbatch,
                     row->op.stage);
        comma(trace);
        write_times(trace->out, process, thread, base_ns + row->start_ns, base_ns + row->end_ns);
        fprintf(trace->out,
                ",\"cat\":\"%s\",\"name\":\"%s\",\"args\":{\"op\":\"%s\",\"stage\":%d,"
                "\"microbatch\":%d,\"step\":%" PRId64 "}}",
                category(row->op.kind), name, op_kind_name(row->op.kind), row->op.stage,
                row->op.microbatch, row->step);
    }
    write_flows(trace, rows, n, base_ns);
}

enum status trace_end(struct trace *trace, struct err *err)
{
    enum status rc = trace->no_memory ? err_nomem(err) : OK;
    fputs("\n]}\n", trace->out);
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

enum status trace_write_file(const char *path, const char *title, const struct op_row *rows,
                             int64_t n, struct err *err)
{
    struct atomic_file file = {0};
    struct trace *trace = NULL;
    enum status rc = atomic_open(&file, path, err);
    if (rc != OK)
        return rc;
    rc = trace_begin(file.out, title, &trace, err);
    if (rc == OK) {
        trace_ops(trace, rows, n, 0);
        rc = trace_end(trace, err);
    }
    return atomic_close(&file, rc, err);
}

enum status ops_csv_write_file(const char *path, const struct op_row *rows, int64_t n,
                               struct err *err)
{
    struct atomic_file file = {0};
    enum status rc = atomic_open(&file, path, err);
    if (rc != OK)
        return rc;
    write_csv(file.out, rows, n);
    return atomic_close(&file, OK, err);
}
