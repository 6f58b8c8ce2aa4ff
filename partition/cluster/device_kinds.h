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
/* Whether the kind has fp16 units but none for bf16, which runs at its fp32 rate. */
bool roofline_lacks_bf16(const struct roofline *roof);

#ifdef __cplusplus
}
#endif
#endif
