/* partition/cluster/device_kinds.h - the published figures of device kinds. Pure. */
#ifndef ELAPSE_PARTITION_DEVICE_KINDS_H
#define ELAPSE_PARTITION_DEVICE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Published figures of one device kind. The roofline is max(flops / peak, bytes / bandwidth). */
struct roofline {
    const char *kind;
    /* Dense tensor-core or FMA peaks, as published. */
    double fp32_flops_per_s, tf32_flops_per_s, bf16_flops_per_s, fp16_flops_per_s;
    double fp8_flops_per_s, fp4_flops_per_s; /* 0, as above: none is published, or no such units */
    double mem_bytes_per_s;
    int64_t mem_bytes;
    double link_bytes_per_s;
    const char *source; /* the vendor's data sheet */
};
const struct roofline *roofline_find(const char *kind); /* NULL when unknown */
const char *const *roofline_names(void);
/* Formats of the products of a layer's weights that are narrower than its activations. */
enum narrow_format { NARROW_NONE, NARROW_FP8, NARROW_MXFP8, NARROW_NVFP4 };
/* The kind's peak in a narrow format; 0 without units for it. */
double roofline_narrow_peak(const struct roofline *roof, enum narrow_format format);
const char *narrow_format_name(enum narrow_format format); /* "fp8"; NULL for NARROW_NONE */
/* Whether the kind has fp16 units but none for bf16, which runs at its fp32 rate. */
bool roofline_lacks_bf16(const struct roofline *roof);

#ifdef __cplusplus
}
#endif
#endif
