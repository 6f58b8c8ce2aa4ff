/* cli/commands/cmd_devices.c - `elapse devices`: the published figures of device kinds, with their
 * source. */
#include "cli/base/command.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/sourced.h"
#include "partition/cluster/cluster.h"
#include "partition/cost/cost.h"
#include "partition/cost/device_curves.h"
#include "partition/base/units.h"

static void show_collectives(const struct sourced *out, const struct roofline *roof)
{
    const struct collective_source *source = collective_source_find(roof->kind);
    for (int kind = 0; source && kind < COLLECTIVE_COUNT; kind++) {
        const char *name = collective_name((enum collective)kind);
        const char *text = collective_source_text(source, (enum collective)kind);
        char words[48];
        struct sourced one = *out;
        if (out->values) {
            one.values = json_add_object(out->values, name);
            one.sources = json_add_object(out->sources, name);
        }
        snprintf(words, sizeof words, "%s, rate of a port", name);
        sourced_rate(&one, "link_bytes_per_s", words, source->link[kind] * roof->link_bytes_per_s,
                     text);
        snprintf(words, sizeof words, "%s, once", name);
        sourced_ns(&one, "fixed_ns", words, source->fixed_ns[kind], text);
    }
}

static int64_t ns_of_us(double us)
{
    return (int64_t)(us * 1e3 + 0.5);
}

static void show_kernels(const struct sourced *out, const char *kind)
{
    const struct device_curve *curve = device_curve_find(kind);
    if (!curve)
        return;
    sourced_text(out, "kernels", "kernels measured on", curve->fitted_on, curve->source);
    sourced_ns(out, "launch_ns", "host launches a kernel", ns_of_us(curve->host_us),
               "A100: vTrain's measurements (MICRO 2024); others: SimuMax (2025)");
    sourced_ns(out, "memory_start_ns", "memory-bound kernel starts",
               ns_of_us(curve->memory_start_us), curve->source);
    sourced_number(out, "bandwidth_share", "share of memory bandwidth", curve->bandwidth,
                   curve->source);
    sourced_number(out, "matmul_share", "share of peak, large matmul", curve->matmul.peak,
                   curve->source);
    sourced_number(out, "attention_fwd_share", "share of peak, attention", curve->attention.forward,
                   curve->source);
    sourced_number(out, "attention_bwd_share", "the same, backward", curve->attention.backward,
                   curve->source);
}

static void show_device(const struct sourced *out, const struct roofline *roof)
{
    const struct machine *machine = machine_of_kind(roof->kind);
    struct sourced peaks = *out;
    if (out->values) {
        peaks.values = json_add_object(out->values, "peak_flops_per_s");
        peaks.sources = json_add_object(out->sources, "peak_flops_per_s");
    }
    sourced_flops(&peaks, "fp32", "peak fp32", roof->fp32_flops_per_s, roof->source);
    sourced_flops(&peaks, "tf32", "peak tf32", roof->tf32_flops_per_s, roof->source);
    sourced_flops(&peaks, "fp16", "peak fp16", roof->fp16_flops_per_s, roof->source);
    sourced_flops(&peaks, "bf16", "peak bf16", roof->bf16_flops_per_s, roof->source);
    if (roof->fp8_flops_per_s > 0)
        sourced_flops(&peaks, "fp8", "peak fp8", roof->fp8_flops_per_s, roof->source);
    if (roof->fp4_flops_per_s > 0)
        sourced_flops(&peaks, "fp4", "peak fp4", roof->fp4_flops_per_s, roof->source);
    sourced_bytes(out, "mem_bytes", "memory", roof->mem_bytes, roof->source);
    sourced_rate(out, "mem_bytes_per_s", "memory bandwidth", roof->mem_bytes_per_s, roof->source);
    sourced_rate(out, "link_bytes_per_s", "port, each direction", roof->link_bytes_per_s,
                 roof->source);
    if (machine) {
        sourced_rate(out, "nic_bytes_per_s", "port to the network", machine->nic_bytes_per_s,
                     machine->source);
        sourced_rate(out, "uplink_bytes_per_s", "uplink of a node", machine->uplink_bytes_per_s,
                     machine->source);
        sourced_rate(out, "copy_bytes_per_s", "host to device", machine->copy_bytes_per_s,
                     machine->copy_source);
        sourced_bytes(out, "context_bytes", "memory taken beforehand", machine->context_bytes,
                      machine_context_source(roof->kind));
    }
    show_kernels(out, roof->kind);
    show_collectives(out, roof);
}

/* A peak in TFLOP/s; "-" if none is published, "none" for bf16 where the kind has no units for it. */
static const char *peak_text(double peak, bool lacks, char *text, size_t size)
{
    snprintf(text, size, "%.4g", peak / 1e12);
    return lacks ? "none" : peak > 0 ? text : "-";
}

static void list_devices(void)
{
    char text[4][32];
    printf("%-10s %8s %8s %8s %8s %10s %8s %10s  %s\n", "TFLOP/s", "fp32", "bf16", "fp16", "fp8",
           "memory", "GB/s", "port GB/s", "source");
    for (const char *const *name = roofline_names(); *name; name++) {
        const struct roofline *roof = roofline_find(*name);
        char memory[32] = "host's";
        if (roof->mem_bytes != INT64_MAX)
            format_bytes(roof->mem_bytes, memory, sizeof memory);
        printf(
            "%-10s %8s %8s %8s %8s %10s %8.4g %10.4g  %s\n", roof->kind,
            peak_text(roof->fp32_flops_per_s, false, text[0], sizeof text[0]),
            peak_text(roof->bf16_flops_per_s, roofline_lacks_bf16(roof), text[1], sizeof text[1]),
            peak_text(roof->fp16_flops_per_s, false, text[2], sizeof text[2]),
            peak_text(roof->fp8_flops_per_s, false, text[3], sizeof text[3]), memory,
            roof->mem_bytes_per_s / 1e9, roof->link_bytes_per_s / 1e9, roof->source);
    }
    printf("bf16 none: no such units, so bf16 runs at the fp32 rate; -: not published\n");
}

static enum status list_json(const struct command *command, struct err *err)
{
    struct json *answer = command_json(command);
    struct json *list = json_add_array(answer, "devices");
    for (const char *const *name = roofline_names(); *name; name++) {
        struct json *one = json_add_object(list, NULL);
        json_add_string(one, "kind", *name);
        const struct sourced out = {one, json_add_object(one, "sources")};
        show_device(&out, roofline_find(*name));
    }
    return command_answer(answer, err);
}

static enum status show(const struct command *command, const char *kind, bool as_json,
                        struct err *err)
{
    const struct roofline *roof = roofline_find(kind);
    if (!roof) {
        const char *const *names = roofline_names();
        char list[200];
        int n = 0;
        while (names[n])
            n++;
        const char *near = nearest_name(kind, names, n);
        enum status rc = err_set(err, ERR_INPUT, "unknown device '%.64s'%s%s%s", kind,
                                 near ? ", nearest is '" : "", near ? near : "", near ? "'" : "");
        err_hint(err, "devices: %s", join_names(names, n, list, sizeof list));
        return rc;
    }
    if (!as_json) {
        const struct sourced out = {NULL, NULL};
        printf("%s\n", roof->kind);
        show_device(&out, roof);
        return OK;
    }
    struct json *answer = command_json(command);
    json_add_string(answer, "kind", roof->kind);
    const struct sourced out = {answer, json_add_object(answer, "sources")};
    show_device(&out, roof);
    return command_answer(answer, err);
}

static enum status run(const struct command *command, int argc, char **argv, struct err *err)
{
    bool as_json = false;
    const struct option options[] = {
        OPTION("json", FLAG, &as_json, NULL, "one JSON object on standard output"),
    };
    struct command_line line = COMMAND_LINE(options, 1);
    enum status rc = command_parse(command, &line, argc, argv, err);
    if (rc != OK || line.help)
        return rc;
    if (line.num_positional == 1)
        return show(command, line.positional[0], as_json, err);
    if (as_json)
        return list_json(command, err);
    list_devices();
    return OK;
}

const struct command command_devices = {.name = "devices",
                                        .args = "[KIND]",
                                        .summary =
                                            "published figures of device kinds, with their source",
                                        .takes = "DEVICE",
                                        .run = run};
