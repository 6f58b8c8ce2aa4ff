#include "cli/simulate/snapshot_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/arrays.h"
#include "profiles/base/whole_file.h"

/* --- pickle, protocol 2 ------------------------------------------------------------------------ */

static void put_text(FILE *out, const char *text)
{
    const size_t n = strlen(text);
    const unsigned char head[] = {'X', (unsigned char)n, (unsigned char)(n >> 8), 0, 0};
    fwrite(head, 1, sizeof head, out);
    fwrite(text, 1, n, out);
}

/* LONG1: 8 bytes in little-endian order. */
static void put_int(FILE *out, int64_t value)
{
    fputc(0x8a, out);
    fputc(8, out);
    for (int i = 0; i < 8; i++)
        fputc((int)((uint64_t)value >> (8 * i) & 0xff), out);
}

static void begin_dict(FILE *out)
{
    fputs("}(", out);
}

static void end_dict(FILE *out)
{
    fputc('u', out);
}

static void begin_list(FILE *out, const char *key)
{
    if (key)
        put_text(out, key);
    fputs("](", out);
}

static void end_list(FILE *out)
{
    fputc('e', out);
}

static void add_int(FILE *out, const char *key, int64_t value)
{
    put_text(out, key);
    put_int(out, value);
}

static void add_text(FILE *out, const char *key, const char *value)
{
    put_text(out, key);
    put_text(out, value);
}

/* --- allocations ------------------------------------------------------------------------------- */

struct allocation {
    int64_t address, bytes;
    int64_t op; /* index in sim->ops; -1: held during the whole step */
};

/* A rank's live blocks, and the trace that they are written to. */
struct heap {
    FILE *out;
    const struct sim_result *sim;
    struct allocation *blocks; /* owned; oldest first */
    int64_t num, capacity, next, level;
    bool nomem;
};
enum { ALIGNMENT = 512 }; /* of an address, as PyTorch's allocator has it */

static void add_frames(const struct heap *heap, int64_t op)
{
    char name[64] = "weights, gradients, optimizer, context";
    if (op >= 0)
        snprintf(name, sizeof name, "%s micro-batch %d, stage %d",
                 op_kind_name(heap->sim->ops[op].op.kind), heap->sim->ops[op].op.microbatch,
                 heap->sim->ops[op].op.stage);
    begin_list(heap->out, "frames");
    begin_dict(heap->out);
    add_text(heap->out, "name", name);
    add_text(heap->out, "filename", "elapse");
    add_int(heap->out, "line", 0);
    end_dict(heap->out);
    end_list(heap->out);
}

static void tell(const struct heap *heap, const char *action, const struct allocation *block,
                 int64_t at_ns)
{
    begin_dict(heap->out);
    add_text(heap->out, "action", action);
    add_int(heap->out, "addr", block->address);
    add_int(heap->out, "size", block->bytes);
    add_int(heap->out, "stream", 0);
    add_int(heap->out, "time_us", at_ns / 1000);
    add_frames(heap, block->op);
    end_dict(heap->out);
}

static void allocate(struct heap *heap, int64_t bytes, int64_t op, int64_t at_ns)
{
    if (!array_grow(&heap->blocks, heap->num + 1, &heap->capacity, sizeof *heap->blocks)) {
        heap->nomem = true;
        return;
    }
    struct allocation *block = &heap->blocks[heap->num++];
    *block = (struct allocation){heap->next, bytes, op};
    heap->next += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    tell(heap, "alloc", block, at_ns);
}

static void release(struct heap *heap, int64_t i, int64_t at_ns)
{
    tell(heap, "free_requested", &heap->blocks[i], at_ns);
    tell(heap, "free_completed", &heap->blocks[i], at_ns);
    memmove(heap->blocks + i, heap->blocks + i + 1,
            (size_t)(heap->num - i - 1) * sizeof *heap->blocks);
    heap->num--;
}

/* How near a block is to the op that releases: 0 its own, 1 of its stage and micro-batch, 2 any. */
static int distance(const struct heap *heap, const struct allocation *block, int64_t op)
{
    const struct op *a = &heap->sim->ops[block->op < 0 ? op : block->op].op,
                    *b = &heap->sim->ops[op].op;
    return block->op == op                                                            ? 0
           : block->op >= 0 && a->stage == b->stage && a->microbatch == b->microbatch ? 1
                                                                                      : 2;
}

/* The rank holds `bytes` from here on. A block that is released in part is allocated anew, smaller. */
static void set_level(struct heap *heap, int64_t bytes, int64_t op, int64_t at_ns)
{
    if (bytes > heap->level)
        allocate(heap, bytes - heap->level, op, at_ns);
    int64_t left = heap->level - bytes;
    heap->level = bytes;
    for (int far = 0; far <= 2; far++)
        for (int64_t i = heap->num - 1; i > 0 && left > 0; i--) {
            const struct allocation block = heap->blocks[i];
            if (distance(heap, &block, op) != far)
                continue;
            release(heap, i, at_ns);
            left -= block.bytes;
            if (left < 0)
                allocate(heap, -left, block.op, at_ns);
        }
}

/* The trace of a rank. The heap then has what is live at the step's end. */
static enum status trace_rank(struct heap *heap, const struct traced_step *step, int rank,
                              struct err *err)
{
    struct memory_point *points = NULL;
    int64_t n = 0, least = INT64_MAX;
    const enum status rc = rank_memory(step, 0, rank, &points, &n, err);
    for (int64_t i = 0; i < n; i++)
        least = points[i].bytes < least ? points[i].bytes : least;
    begin_list(heap->out, NULL);
    if (rc == OK && n > 0) {
        heap->level = least;
        allocate(heap, least, -1, 0);
    }
    for (int64_t i = 0; rc == OK && i < n && !heap->nomem; i++)
        set_level(heap, points[i].bytes, points[i].op, points[i].at_ns);
    end_list(heap->out);
    free(points);
    return rc == OK && heap->nomem ? err_nomem(err) : rc;
}

/* A segment for each block that is live at the end. */
static void add_segments(const struct heap *heap, int rank)
{
    for (int64_t i = 0; i < heap->num; i++) {
        const struct allocation *block = &heap->blocks[i];
        begin_dict(heap->out);
        add_int(heap->out, "device", rank);
        add_int(heap->out, "address", block->address);
        for (int k = 0; k < 4; k++)
            add_int(heap->out,
                    (const char *[]){"total_size", "allocated_size", "active_size",
                                     "requested_size"}[k],
                    block->bytes);
        add_int(heap->out, "stream", 0);
        add_text(heap->out, "segment_type", "large");
        begin_list(heap->out, "blocks");
        begin_dict(heap->out);
        add_int(heap->out, "address", block->address);
        add_int(heap->out, "size", block->bytes);
        add_int(heap->out, "requested_size", block->bytes);
        add_text(heap->out, "state", "active_allocated");
        add_frames(heap, block->op);
        end_dict(heap->out);
        end_list(heap->out);
        end_dict(heap->out);
    }
}

enum status snapshot_file(const char *path, const struct traced_step *step, struct err *err)
{
    const int ranks = step->workload->num_ranks;
    struct atomic_file file = {0};
    struct heap *heaps = calloc((size_t)ranks, sizeof *heaps);
    enum status rc = heaps ? output_open(&file, path, err) : err_nomem(err);
    if (rc == OK) {
        fputs("\x80\x02", file.out);
        begin_dict(file.out);
        begin_list(file.out, "device_traces");
        for (int k = 0; k < ranks && rc == OK; k++) {
            heaps[k] =
                (struct heap){.out = file.out, .sim = step->sim, .next = (int64_t)(k + 1) << 44};
            rc = trace_rank(&heaps[k], step, k, err);
        }
        end_list(file.out);
        begin_list(file.out, "segments");
        for (int k = 0; k < ranks && rc == OK; k++)
            add_segments(&heaps[k], k);
        end_list(file.out);
        end_dict(file.out);
        fputc('.', file.out);
        rc = atomic_close(&file, rc, err);
    }
    for (int k = 0; heaps && k < ranks; k++)
        free(heaps[k].blocks);
    free(heaps);
    return rc;
}
