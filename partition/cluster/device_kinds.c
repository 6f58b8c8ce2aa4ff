/* The figures of a kind, as keys and places, and the search by name. The values are data: the build
 * makes shipped_kinds of the files in profiles/devices. Read struct kind first. */
#include "partition/cluster/device_kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* The values of one row are those of struct kind_figure. */
#define FIGURE(key, short_key, words, unit, above_zero, member)                                    \
    {                                                                                              \
        key, short_key, words, FIGURE_##unit, above_zero, offsetof(struct kind, member), #member   \
    }
#define MATMUL(key, words, above_zero, member)                                                     \
    FIGURE("matmul_" key, NULL, "matmul: " words, NUMBER, above_zero, curve.matmul.member)
#define ATTENTION(key, words, member)                                                              \
    FIGURE("attention_" key, NULL, "attention: " words, NUMBER, true, curve.attention.member)
#define COLLECTIVE(value, name, passes)                                                            \
    FIGURE(name ".link_share", NULL, name ", share of a port", NUMBER, true,                       \
           collectives.link[value]),                                                               \
        FIGURE(name ".fixed_ns", NULL, name ", once", NS, false, collectives.fixed_ns[value]),

/* clang-format off */
const struct kind_figure kind_figures[NUM_KIND_FIGURES] = {
    FIGURE("peak_flops_per_s.fp32", "peak_fp32", "peak fp32", FLOPS, false, roof.fp32_flops_per_s),
    FIGURE("peak_flops_per_s.tf32", "peak_tf32", "peak tf32", FLOPS, false, roof.tf32_flops_per_s),
    FIGURE("peak_flops_per_s.fp16", "peak_fp16", "peak fp16", FLOPS, false, roof.fp16_flops_per_s),
    FIGURE("peak_flops_per_s.bf16", "peak_bf16", "peak bf16", FLOPS, false, roof.bf16_flops_per_s),
    FIGURE("peak_flops_per_s.fp8", "peak_fp8", "peak fp8", FLOPS, false, roof.fp8_flops_per_s),
    FIGURE("peak_flops_per_s.fp4", "peak_fp4", "peak fp4", FLOPS, false, roof.fp4_flops_per_s),
    FIGURE("mem_bytes", "mem", "memory", BYTES, true, roof.mem_bytes),
    FIGURE("mem_bytes_per_s", "mem_bandwidth", "memory bandwidth", RATE, true, roof.mem_bytes_per_s),
    FIGURE("link_bytes_per_s", "link", "port, each direction", RATE, true, roof.link_bytes_per_s),
    FIGURE("nic_bytes_per_s", "nic", "port to the network", RATE, false, node.nic_bytes_per_s),
    FIGURE("uplink_bytes_per_s", "uplink", "uplink of a node", RATE, true, node.uplink_bytes_per_s),
    FIGURE("copy_bytes_per_s", "copy", "host to device", RATE, true, node.copy_bytes_per_s),
    FIGURE("latency_ns", "latency", "latency in a node", NS, false, node.link_latency_ns),
    FIGURE("uplink_latency_ns", "uplink_latency", "latency between nodes", NS, false, node.uplink_latency_ns),
    FIGURE("message_share", NULL, "share of a port for one message; 0: all", NUMBER, false, node.message_share),
    FIGURE("context_bytes", "context", "memory taken beforehand", BYTES, false, node.context_bytes),
    FIGURE("sms", NULL, "multiprocessors", NUMBER, true, curve.sms),
    FIGURE("launch_ns", "launch", "host launches a kernel", US, false, curve.host_us),
    FIGURE("memory_start_ns", "memory_start", "memory-bound kernel starts", US, false, curve.memory_start_us),
    FIGURE("bandwidth_share", NULL, "share of memory bandwidth", NUMBER, true, curve.bandwidth),
    MATMUL("share", "share of peak, large", true, peak),
    MATMUL("tile", "loss of small tiles", false, tile),
    MATMUL("tail", "loss of a last wave", false, tail),
    MATMUL("part", "loss of the only wave", false, part),
    MATMUL("depth", "depth of half the speed", false, depth),
    MATMUL("nn", "speed of NN", true, nn),
    MATMUL("nt", "speed of NT", true, nt),
    FIGURE("matmul_start_ns", NULL, "matmul: start", US, false, curve.matmul.start_us),
    MATMUL("hot", "share of peak, hot", true, hot),
    MATMUL("narrow", "narrow share over wide", true, narrow),
    FIGURE("matmul_warm_ns", NULL, "matmul: half hot after", US, false, curve.matmul.warm_us),
    MATMUL("memory", "share of memory bandwidth", true, memory),
    MATMUL("blend", "blend of work and bytes", false, blend),
    ATTENTION("fwd_share", "share of peak", forward),
    ATTENTION("bwd_share", "the same, backward", backward),
    ATTENTION("fwd_half_blocks", "half speed at blocks", half_blocks[0]),
    ATTENTION("bwd_half_blocks", "the same, backward", half_blocks[1]),
    ATTENTION("half_seq", "loss of short sequences", half_seq),
    COLLECTIVES(COLLECTIVE)
    FIGURE("collective.uplink_share", NULL, "collective, share of an uplink", NUMBER, true, collectives.uplink),
    FIGURE("collective.latency_ns", NULL, "collective, a step in a node", NS, false, collectives.link_latency_ns),
    FIGURE("collective.uplink_latency_ns", NULL, "collective, a step between nodes", NS, false, collectives.uplink_latency_ns),
};
/* clang-format on */

static const void *place(const struct kind *kind, int figure)
{
    return (const char *)kind + kind_figures[figure].offset;
}

static bool is_whole(int figure)
{
    const enum figure_unit unit = kind_figures[figure].unit;
    return unit == FIGURE_BYTES || unit == FIGURE_NS;
}

double kind_figure_value(const struct kind *kind, int figure)
{
    return is_whole(figure) ? (double)*(const int64_t *)place(kind, figure)
                            : *(const double *)place(kind, figure);
}

void kind_figure_set(struct kind *kind, int figure, double value)
{
    void *at = (char *)kind + kind_figures[figure].offset;
    if (is_whole(figure))
        *(int64_t *)at = value < 9e18 ? (int64_t)value : INT64_MAX;
    else
        *(double *)at = value;
}

const char *kind_source(const struct kind *kind, size_t offset)
{
    for (int f = 0; f < NUM_KIND_FIGURES; f++)
        if (kind_figures[f].offset == offset)
            return kind->sources[f] ? kind->sources[f] : "";
    return "";
}

void kind_finish(struct kind *kind)
{
    const char *network = kind_source(kind, offsetof(struct kind, node.uplink_bytes_per_s));
    kind->roof.kind = kind->node.kind = kind->collectives.kind = kind->name;
    kind->roof.source = kind->source;
    kind->node.source = network;
    kind->node.copy_source = kind_source(kind, offsetof(struct kind, node.copy_bytes_per_s));
    kind->collectives.source = kind_source(kind, offsetof(struct kind, collectives.link[0]));
    kind->collectives.others = kind_source(kind, offsetof(struct kind, collectives.link[1]));
}

const struct kind *kind_find(const char *name)
{
    for (int i = 0; i < num_shipped_kinds; i++)
        if (strcmp(shipped_kinds[i].name, name) == 0)
            return &shipped_kinds[i];
    return NULL;
}

static const char *without_prefix(const char *text, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 && text[n] ? text + n : text;
}

/* Cut "80gb" off the end of a folded name, if a kind has that memory. */
static void cut_memory(char *folded, const struct kind *kind)
{
    char memory[24];
    snprintf(memory, sizeof memory, "%lldgb", (long long)(kind->roof.mem_bytes >> 30));
    const size_t n = strlen(folded), tail = strlen(memory);
    if (n > tail && strcmp(folded + n - tail, memory) == 0)
        folded[n - tail] = 0;
}

static void cut_socket(char *folded)
{
    char *sxm = strstr(folded, "sxm");
    if (sxm && sxm > folded && strlen(sxm) <= strlen("sxm5"))
        *sxm = 0;
}

const struct kind *kind_find_typed(const char *name)
{
    static const char *const makers[] = {"nvidia",   "geforce", "quadro", "tesla", "amd",
                                         "instinct", "intel",   "google", "rtx"};
    char folded[64], own[64];
    const struct kind *kind = kind_find(name);
    if (kind || !name_fold(name, folded, sizeof folded))
        return kind;
    char *const memory = strstr(folded, "hbm"); /* "NVIDIA H100 80GB HBM3" */
    if (memory && memory > folded)
        *memory = 0;
    const char *typed = folded;
    for (size_t m = 0; m < sizeof makers / sizeof makers[0]; m++)
        typed = without_prefix(typed, makers[m]);
    for (int i = 0; i < num_shipped_kinds; i++) {
        char text[64];
        kind = &shipped_kinds[i];
        if (!name_fold(kind->name, own, sizeof own))
            continue;
        const char *plain = without_prefix(own, "rtx");
        memcpy(text, typed, strlen(typed) + 1);
        if (strcmp(text, plain) == 0)
            return kind;
        cut_memory(text, kind);
        cut_socket(text);
        if (strcmp(text, plain) == 0)
            return kind;
    }
    return NULL;
}

const struct kind *kind_of_device(const struct device *device)
{
    return device->own ? device->own : kind_find(device->kind);
}

/* Copies of a cluster may be used and freed by different threads. */
struct kind *kind_hold(struct kind *kind)
{
    if (kind)
        __atomic_fetch_add(&kind->references, 1, __ATOMIC_RELAXED);
    return kind;
}

void kind_release(struct kind *kind)
{
    if (!kind || __atomic_sub_fetch(&kind->references, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    kind_release(kind->base);
    for (int i = 0; i < kind->num_strings; i++)
        free(kind->strings[i]);
    free(kind->strings);
    free(kind);
}

static const struct roofline *roof_of(const struct kind *kind)
{
    return kind ? &kind->roof : NULL;
}

const struct roofline *roofline_find(const char *kind)
{
    return roof_of(kind_find(kind));
}

const struct roofline *device_roofline(const struct device *device)
{
    return roof_of(kind_of_device(device));
}

static const struct device_curve *curve_of(const struct kind *kind)
{
    return kind && kind->curve.sms > 0 ? &kind->curve : NULL;
}

const struct device_curve *device_curve_find(const char *kind)
{
    return curve_of(kind_find(kind));
}

const struct device_curve *device_curve_of(const struct device *device)
{
    return curve_of(kind_of_device(device));
}

/* Every kind with fp4 units has units for MX's scaled fp8, and no other kind has. AMD's fp4 is MXFP4,
 * whose scales are not NVFP4's. */
double roofline_narrow_peak(const struct roofline *roof, enum narrow_format format)
{
    switch (format) {
    case NARROW_FP8:
        return roof->fp8_flops_per_s;
    case NARROW_MXFP8:
        return roof->fp4_flops_per_s > 0 ? roof->fp8_flops_per_s : 0;
    case NARROW_NVFP4:
        return strncmp(roof->kind, "mi", 2) == 0 ? 0 : roof->fp4_flops_per_s;
    case NARROW_NONE:
        break;
    }
    return 0;
}

const char *narrow_format_name(enum narrow_format format)
{
    static const char *const names[] = {NULL, "fp8", "mxfp8", "nvfp4"};
    return names[format];
}

bool roofline_lacks_bf16(const struct roofline *roof)
{
    return roof->bf16_flops_per_s <= roof->fp32_flops_per_s &&
           roof->fp16_flops_per_s > roof->fp32_flops_per_s;
}
