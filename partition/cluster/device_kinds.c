#include "partition/cluster/device_kinds.h"

#include <string.h>

#define TERA 1e12
#define GB 1e9

/* Dense peaks as the vendors print them, without structured sparsity. link is one direction of the
 * port (half of the "bidirectional" NVLink figure). Volta and Turing have no bf16 units, so bf16
 * runs at the fp32 rate there, and tf32 runs at the fp32 rate where a kind lacks it. 0: no figure is
 * published, and a job in that format is refused. A source that ends in "not checked here" names the
 * document where the figures should stand, which nobody looked up for this table. A CPU's fp32 peak is cores x base clock x flops per cycle of the
 * vector units (32 for two 256-bit FMA, 64 for two 512-bit FMA); without AMX or AVX512-BF16, bf16
 * runs at the fp32 rate. "cpu" stands for a small machine: 2 cores of a 2.5 GHz server with AVX2
 * and two DDR4-3200 channels. */
#define KIND(name, fp32, tf32, bf16, fp16, fp8, fp4, memory_rate, memory, link, from)              \
    {                                                                                              \
        .kind = name, .fp32_flops_per_s = (fp32)*TERA, .tf32_flops_per_s = (tf32)*TERA,            \
        .bf16_flops_per_s = (bf16)*TERA, .fp16_flops_per_s = (fp16)*TERA,                          \
        .fp8_flops_per_s = (fp8)*TERA, .fp4_flops_per_s = (fp4)*TERA,                              \
        .mem_bytes_per_s = (memory_rate)*GB, .mem_bytes = memory, .link_bytes_per_s = (link)*GB,   \
        .source = from                                                                             \
    }

/* clang-format off */
static const struct roofline rooflines[] = {
    KIND("v100", 15.7, 15.7, 15.7, 125, 0, 0, 900, 32LL << 30, 150,
         "NVIDIA V100 data sheet (SXM2, 32 GB), 2020"),
    KIND("v100-16gb", 15.7, 15.7, 15.7, 125, 0, 0, 900, 16LL << 30, 150,
         "NVIDIA V100 data sheet (SXM2, 16 GB), 2020"),
    KIND("t4", 8.1, 8.1, 8.1, 65, 0, 0, 320, 16LL << 30, 15.754,
         "NVIDIA T4 data sheet, 2019; link: PCIe 3.0 x16"),
    KIND("rtx5000", 11.2, 11.2, 11.2, 89.2, 0, 0, 448, 16LL << 30, 15.754,
         "NVIDIA Quadro RTX 5000 data sheet, 2018; link: PCIe 3.0 x16"),
    KIND("rtx2080ti", 13.4, 13.4, 13.4, 53.8, 0, 0, 616, 11LL << 30, 15.754,
         "NVIDIA Turing architecture white paper, 2018: fp16 with fp32 sums; link: PCIe 3.0 x16; not checked here"),
    KIND("a100", 19.5, 156, 312, 312, 0, 0, 2039, 80LL << 30, 300,
         "NVIDIA A100 data sheet (SXM, 80 GB), 2021"),
    KIND("a100-40gb", 19.5, 156, 312, 312, 0, 0, 1555, 40LL << 30, 300,
         "NVIDIA A100 data sheet (SXM, 40 GB), 2021"),
    KIND("a100-pcie", 19.5, 156, 312, 312, 0, 0, 1600, 40LL << 30, 31.508,
         "NVIDIA A100 data sheet (PCIe, 40 GB), 2021; memory as in SimuMax's description"),
    KIND("a800", 19.5, 156, 312, 312, 0, 0, 2039, 80LL << 30, 200,
         "as the A100 (SXM, 80 GB) with NVLink of 400 GB/s in both directions: NVIDIA A800 data sheet, 2022; not checked here"),
    KIND("a10", 31.2, 62.5, 125, 125, 0, 0, 600, 24LL << 30, 31.508,
         "NVIDIA A10 data sheet, 2021; link: PCIe 4.0 x16"),
    KIND("a30", 10.3, 82, 165, 165, 0, 0, 933, 24LL << 30, 31.508,
         "NVIDIA A30 data sheet, 2021; link: PCIe 4.0 x16; not checked here"),
    KIND("a40", 37.4, 74.8, 149.7, 149.7, 0, 0, 696, 48LL << 30, 31.508,
         "NVIDIA A40 data sheet, 2020, as resellers print it; link: PCIe 4.0 x16"),
    KIND("a6000", 38.7, 77.4, 154.8, 154.8, 0, 0, 768, 48LL << 30, 31.508,
         "NVIDIA RTX A6000 data sheet, 2020; bf16 and tf32: GA102 white paper; link: PCIe 4.0 x16; peaks of bf16 and tf32 not checked here"),
    KIND("rtx3090", 35.6, 35.6, 71, 71, 0, 0, 936, 24LL << 30, 31.508,
         "NVIDIA Ampere GA102 white paper, 2020: with fp32 sums; link: PCIe 4.0 x16"),
    KIND("l4", 30.3, 60, 121, 121, 242, 0, 300, 24LL << 30, 31.508,
         "NVIDIA L4 data sheet, 2023; link: PCIe 4.0 x16"),
    KIND("l40s", 91.6, 183, 362, 362, 733, 0, 864, 48LL << 30, 31.508,
         "NVIDIA L40S data sheet, 2023; link: PCIe 4.0 x16"),
    KIND("rtx4090", 82.6, 82.6, 165.2, 165.2, 330.3, 0, 1008, 24LL << 30, 31.508,
         "NVIDIA Ada architecture white paper, 2022: with fp32 sums; link: PCIe 4.0 x16"),
    KIND("rtx6000ada", 91.1, 182.1, 364.2, 364.2, 728.5, 0, 960, 48LL << 30, 31.508,
         "NVIDIA Ada architecture white paper, 2022; link: PCIe 4.0 x16; not checked here"),
    KIND("h100", 67, 494.7, 989.4, 989.4, 1978.9, 0, 3350, 80LL << 30, 450,
         "NVIDIA H100 data sheet (SXM), 2023"),
    KIND("h100-pcie", 51.2, 378, 756, 756, 1513, 0, 2000, 80LL << 30, 63.015,
         "NVIDIA H100 data sheet (PCIe), 2023; link: PCIe 5.0 x16; peaks not checked here"),
    KIND("h100-nvl", 60, 417.5, 835.5, 835.5, 1670.5, 0, 3900, 94000000000LL, 300,
         "NVIDIA H100 data sheet (NVL), 2024; pairs have NVLink, more cards PCIe; not checked here"),
    KIND("h20", 44, 74, 148, 148, 296, 0, 4000, 96LL << 30, 450,
         "NVIDIA's H20 sheet as reported by the press, 2023; no public data sheet"),
    KIND("h800", 67, 494.7, 989.4, 989.4, 1978.9, 0, 3350, 80LL << 30, 200,
         "as the H100 (SXM) with NVLink of 400 GB/s in both directions: DeepSeek-V3 report (2024) and the press; not checked here"),
    KIND("h200", 67, 494.7, 989.4, 989.4, 1978.9, 0, 4800, 141000000000LL, 450,
         "NVIDIA H200 data sheet (SXM), 2024"),
    KIND("gh200", 67, 494.7, 989.4, 989.4, 1978.9, 0, 4000, 96LL << 30, 450,
         "NVIDIA GH200 data sheet (96 GB HBM3), 2023; not checked here"),
    KIND("b200", 80, 1125, 2250, 2250, 4500, 9000, 8000, 180000000000LL, 900,
         "NVIDIA Blackwell architecture brief (HGX B200, 1000 W), 2024"),
    KIND("gb200", 90, 1250, 2500, 2500, 5000, 10000, 8000, 186000000000LL, 900,
         "NVIDIA Blackwell architecture brief (GB200, 1200 W), 2024; memory: GB200 NVL72 page, 13.4 TB of 72"),
    KIND("b300", 75, 1125, 2250, 2250, 4500, 13125, 8000, 270000000000LL, 900,
         "NVIDIA HGX B300 figures, 2025, collected by G. Lockwood; memory: Verda's table, 270 GB"),
    KIND("gb300", 80, 1250, 2500, 2500, 5000, 15000, 8000, 279000000000LL, 900,
         "NVIDIA GB300 NVL72 figures, 2025, collected by Verda"),
    KIND("rtx5090", 104.8, 104.8, 209.5, 209.5, 419, 1676, 1792, 32LL << 30, 63.015,
         "NVIDIA RTX Blackwell architecture white paper, 2025: with fp32 sums; link: PCIe 5.0 x16; peaks of tf32, bf16, fp16 and fp8 not checked here"),
    KIND("rtxpro6000", 125, 251.9, 503.8, 503.8, 1007.6, 2015, 1792, 96LL << 30, 63.015,
         "NVIDIA RTX PRO 6000 Blackwell white paper, 2025; link: PCIe 5.0 x16; not checked here"),
    KIND("mi250x", 95.7, 95.7, 383, 383, 0, 0, 3277, 128LL << 30, 100,
         "AMD Instinct MI250X data sheet, 2021: a card of two dies; link: one Infinity Fabric link; a guess at its share; not checked here"),
    KIND("mi300x", 163.4, 653.7, 1307.4, 1307.4, 2614.9, 0, 5300, 192LL << 30, 448,
         "AMD Instinct MI300X data sheet, 2023; link: 7 of 64 GB/s each direction; peaks not checked here"),
    KIND("mi325x", 163.4, 653.7, 1307.4, 1307.4, 2614.9, 0, 6000, 256LL << 30, 448,
         "AMD Instinct MI325X data sheet, 2024; link: 7 of 64 GB/s each direction; peaks not checked here"),
    KIND("mi355x", 157.3, 157.3, 2516.6, 2516.6, 5033.2, 10066, 8000, 288LL << 30, 537.6,
         "AMD Instinct MI355X data sheet, 2025; link: 7 of 76.8 GB/s each direction; peaks but fp8's not checked here"),
    KIND("gaudi2", 0, 0, 432, 0, 865, 0, 2460, 96LL << 30, 262.5,
         "Intel Gaudi 3 at Hot Chips 2024 (table of generations); fp8: Gaudi 2 white paper; link: 21 ports of 100 Gb/s; peak of fp8 not checked here"),
    KIND("gaudi3", 0, 0, 1835, 0, 1835, 0, 3670, 128LL << 30, 525,
         "Intel Gaudi 3 at Hot Chips 2024; link: 21 ports of 200 Gb/s"),
    KIND("tpu-v4", 0, 0, 275, 0, 0, 0, 1200, 32LL << 30, 150,
         "Google Cloud TPU v4 page; link, not checked here: 6 of 50 GB/s, half of it each direction"),
    KIND("tpu-v5e", 0, 0, 197, 0, 0, 0, 819, 16LL << 30, 200,
         "Google Cloud TPU v5e page: 400 GB/s of links in both directions"),
    KIND("tpu-v5p", 0, 0, 459, 0, 459, 0, 2765, 95000000000LL, 600,
         "Google Cloud TPU v5p page: 1200 GB/s of links in both directions"),
    KIND("epyc-7763", 5.02, 5.02, 5.02, 5.02, 0, 0, 204.8, INT64_MAX, 16,
         "AMD EPYC 7763 product page: 64 cores, 2.45 GHz, AVX2, 8 x DDR4-3200"),
    KIND("epyc-9654", 7.37, 7.37, 14.7, 7.37, 0, 0, 460.8, INT64_MAX, 16,
         "AMD EPYC 9654 product page: 96 cores, 2.4 GHz, AVX-512 at half rate, 12 x DDR5-4800"),
    KIND("xeon-8480", 7.17, 7.17, 229, 7.17, 0, 0, 307.2, INT64_MAX, 16,
         "Intel Xeon Platinum 8480+ product page: 56 cores, 2.0 GHz, AVX-512, AMX, 8 x DDR5-4800"),
    KIND("cpu", 0.16, 0.16, 0.16, 0.16, 0, 0, 51.2, INT64_MAX, 4,
         "2 cores x 2.5 GHz x 32 flops a cycle, 2 x DDR4-3200; a guess at a small machine"),
};
enum { NUM_ROOFLINES = sizeof rooflines / sizeof *rooflines };

static const char *const roofline_kinds[] = {
    "v100", "v100-16gb", "t4", "rtx5000", "rtx2080ti", "a100", "a100-40gb", "a100-pcie", "a800",
    "a10", "a30", "a40", "a6000", "rtx3090", "l4", "l40s", "rtx4090", "rtx6000ada", "h100",
    "h100-pcie", "h100-nvl", "h20", "h800", "h200", "gh200", "b200", "gb200", "b300", "gb300",
    "rtx5090", "rtxpro6000", "mi250x", "mi300x", "mi325x", "mi355x", "gaudi2", "gaudi3", "tpu-v4",
    "tpu-v5e", "tpu-v5p", "epyc-7763", "epyc-9654", "xeon-8480", "cpu", NULL};
/* clang-format on */
_Static_assert(sizeof roofline_kinds / sizeof *roofline_kinds == NUM_ROOFLINES + 1,
               "one name a roofline");

const struct roofline *roofline_find(const char *kind)
{
    for (int i = 0; i < NUM_ROOFLINES; i++)
        if (strcmp(rooflines[i].kind, kind) == 0)
            return &rooflines[i];
    return NULL;
}

const char *const *roofline_names(void)
{
    return roofline_kinds;
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
