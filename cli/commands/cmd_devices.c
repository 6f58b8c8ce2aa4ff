/* cli/commands/cmd_devices.c - `elapse devices`: the published figures of device kinds, with their
 * source. */
#include "cli/base/command.h"

#include <math.h>
#include <stdio.h>

#include "cli/base/sourced.h"
#include "partition/base/units.h"
#include "partition/cluster/device_kinds.h"
#include "profiles/job/kind_json.h"
#include "profiles/json/columns.h"

/* Every figure of a kind, a line each. */
static void print_kind(const struct kind *kind)
{
    const struct sourced lines = {NULL, NULL};
    printf("%s%s%s\n", kind->name, kind->like ? ", like " : "", kind->like ? kind->like : "");
    for (int f = 0; f < NUM_KIND_FIGURES; f++) {
        const struct kind_figure *figure = &kind_figures[f];
        const double value = kind_figure_value(kind, f);
        const char *source = kind->sources[f];
        if (!source)
            continue;
        switch (figure->unit) {
        case FIGURE_FLOPS:
            sourced_flops(&lines, NULL, figure->words, value, source);
            break;
        case FIGURE_RATE:
            sourced_rate(&lines, NULL, figure->words, value, source);
            break;
        case FIGURE_BYTES:
            sourced_bytes(&lines, NULL, figure->words, value < 9e18 ? (int64_t)value : INT64_MAX,
                          source);
            break;
        case FIGURE_NS:
        case FIGURE_US:
            sourced_ns(&lines, NULL, figure->words,
                       llround(figure->unit == FIGURE_US ? value * 1e3 : value), source);
            break;
        case FIGURE_NUMBER:
            sourced_number(&lines, NULL, figure->words, value, source);
            break;
        }
    }
    if (kind->curve.sms > 0)
        sourced_text(&lines, NULL, "kernels measured on", kind->curve.fitted_on, "");
}

/* A peak in TFLOP/s; "-" if none is published, "none" for bf16 where the kind has no units for it. */
static const char *peak_text(double peak, bool lacks, char *text, size_t size)
{
    snprintf(text, size, "%.4g", peak / 1e12);
    return lacks ? "none" : peak > 0 ? text : "-";
}

static const char *text_name(const void *row, char *buf, size_t size)
{
    (void)buf;
    (void)size;
    return ((const struct kind *)row)->roof.kind;
}

static const char *text_fp32(const void *row, char *buf, size_t size)
{
    return peak_text(((const struct kind *)row)->roof.fp32_flops_per_s, false, buf, size);
}

static const char *text_bf16(const void *row, char *buf, size_t size)
{
    const struct roofline *roof = &((const struct kind *)row)->roof;
    return peak_text(roof->bf16_flops_per_s, roofline_lacks_bf16(roof), buf, size);
}

static const char *text_fp16(const void *row, char *buf, size_t size)
{
    return peak_text(((const struct kind *)row)->roof.fp16_flops_per_s, false, buf, size);
}

static const char *text_fp8(const void *row, char *buf, size_t size)
{
    return peak_text(((const struct kind *)row)->roof.fp8_flops_per_s, false, buf, size);
}

static const char *text_memory(const void *row, char *buf, size_t size)
{
    const struct roofline *roof = &((const struct kind *)row)->roof;
    return roof->mem_bytes == INT64_MAX ? "host's" : format_bytes(roof->mem_bytes, buf, size);
}

static const char *text_source(const void *row, char *buf, size_t size)
{
    (void)buf;
    (void)size;
    return ((const struct kind *)row)->roof.source;
}

/* A figure that is printed as `text` says. */
#define FIGURE(text_, head_, width_, ...)                                                          \
    {                                                                                              \
        .type = MEMBER_OTHER, .text = (text_), .head = (head_), .width = (width_), __VA_ARGS__     \
    }

static const struct row_table device_rows =
    ROW_TABLE(kind, FIGURE(text_name, "TFLOP/s", -10, ), FIGURE(text_fp32, " fp32", 8, ),
              FIGURE(text_bf16, " bf16", 8, ), FIGURE(text_fp16, " fp16", 8, .leaves = 4),
              FIGURE(text_fp8, " fp8", 8, .leaves = 5), FIGURE(text_memory, " memory", 10, ),
              COLUMN(kind, NULL, REAL, roof.mem_bytes_per_s, SHOWN(" GB/s", 8), .leaves = 3,
                     .scale = 1e-9, .format = "%.4g"),
              COLUMN(kind, NULL, REAL, roof.link_bytes_per_s, SHOWN(" port GB/s", 10), .leaves = 2,
                     .scale = 1e-9, .format = "%.4g"),
              FIGURE(text_source, "  source", 0, .max = 60, .leaves = 1));

static enum status list_line(const struct kind *kind, void *ctx, struct err *err)
{
    (void)ctx;
    (void)err;
    row_print(stdout, &device_rows, kind);
    putchar('\n');
    return OK;
}

static enum status list_object(const struct kind *kind, void *ctx, struct err *err)
{
    (void)err;
    kind_to_json(kind, json_add_object(ctx, NULL));
    return OK;
}

/* Visits each kind, the shipped ones first, then the user's. */
struct listing {
    enum status (*each)(const struct kind *kind, void *ctx, struct err *err);
    void *ctx;
};

static enum status list_own(const char *name, void *ctx, struct err *err)
{
    const struct listing *listing = ctx;
    struct kind *kind = NULL;
    enum status rc = kind_find_own(name, &kind, err);
    if (rc == OK && kind)
        rc = listing->each(kind, listing->ctx, err);
    kind_release(kind);
    return rc;
}

static enum status list_kinds(struct listing listing, struct err *err)
{
    enum status rc = OK;
    for (int i = 0; i < num_shipped_kinds && rc == OK; i++)
        rc = listing.each(&shipped_kinds[i], listing.ctx, err);
    return rc == OK ? kind_own_names(list_own, &listing, err) : rc;
}

static enum status list_devices(struct err *err)
{
    row_print_head(stdout, &device_rows);
    putchar('\n');
    const enum status rc = list_kinds((struct listing){list_line, NULL}, err);
    if (rc == OK)
        printf("bf16 none: no such units, so bf16 runs at the fp32 rate; -: not published\n");
    return rc;
}

static enum status list_json(const struct command *command, struct err *err)
{
    struct json *answer = command_json(command);
    struct json *list = json_add_array(answer, "devices");
    const enum status rc = list_kinds((struct listing){list_object, list}, err);
    if (rc == OK)
        return command_answer(answer, err);
    json_free(answer);
    return rc;
}

static enum status show(const struct command *command, const char *name, bool as_json,
                        struct err *err)
{
    struct kind *own = NULL;
    enum status rc = kind_find_own(name, &own, err);
    const struct kind *kind = own ? own : kind_find_typed(name);
    if (rc == OK && !kind)
        rc = kind_unknown("unknown device", name, err);
    if (rc == OK && !as_json)
        print_kind(kind);
    if (rc == OK && as_json) {
        struct json *answer = command_json(command);
        kind_to_json(kind, answer);
        rc = command_answer(answer, err);
    }
    kind_release(own);
    return rc;
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    bool as_json = false;
    const struct option options[] = {
        OPTION_JSON(&as_json),
    };
    struct command_line line = COMMAND_LINE(options, 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional == 1)
        return show(command, line.positional[0], as_json, err);
    if (as_json)
        return list_json(command, err);
    return list_devices(err);
}

const struct command command_devices = {.name = "devices",
                                        .args = "[KIND]",
                                        .summary =
                                            "published figures of device kinds, with their source",
                                        .takes = "DEVICE",
                                        .run = run};
