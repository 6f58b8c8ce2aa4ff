/* partition/cluster/device_kinds.h - the published figures of device kinds. Pure. */
#ifndef ELAPSE_PARTITION_DEVICE_KINDS_H
#define ELAPSE_PARTITION_DEVICE_KINDS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Published figures of one device kind. The roofline is max(flops / peak, bytes / bandwidth). */
struct roofline {
    const char *kind;
    /* Dense tensor-core or FMA peaks, as published. */
    double fp32_flops_per_s, tf32_flops_per_s, bf16_flops_per_s, fp16_flops_per_s;
    double mem_bytes_per_s;
    int64_t mem_bytes;
    double link_bytes_per_s;
    const char *source; /* the vendor's data sheet */
};
const struct roofline *roofline_find(const char *kind); /* NULL when unknown */
const char *const *roofline_names(void);

#ifdef __cplusplus
}
#endif
#endif
