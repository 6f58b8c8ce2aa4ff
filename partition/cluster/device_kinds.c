#include "partition/cluster/device_kinds.h"

#include <string.h>

#define TERA 1e12
#define GB 1e9

/* Dense peaks as the vendors print them, without structured sparsity. link is one direction of the
 * port (half of the "bidirectional" NVLink figure). Volta and Turing have no bf16 units, so bf16
 * runs at the fp32 rate there. A CPU's fp32 peak is cores x base clock x flops per cycle of the
 * vector units (32 for two 256-bit FMA, 64 for two 512-bit FMA); without AMX or AVX512-BF16, bf16
 * runs at the fp32 rate. "cpu" stands for a small machine: 2 cores of a 2.5 GHz server with AVX2
 * and two DDR4-3200 channels. */
static const struct roofline rooflines[] = {
    {"v100",      15.7 * TERA, 15.7 * TERA,  15.7 * TERA,  125 * TERA,   900 * GB,   32LL << 30,     150 * GB,
     "NVIDIA V100 data sheet (SXM2, 32 GB), 2020"                                                                                                                                              },
    {"rtx5000",   11.2 * TERA, 11.2 * TERA,  11.2 * TERA,  89.2 * TERA,  448 * GB,   16LL << 30,
     15.754 * GB,                                                                                              "NVIDIA Quadro RTX 5000 data sheet, 2018; link: PCIe 3.0 x16"                   },
    {"a100",      19.5 * TERA, 156 * TERA,   312 * TERA,   312 * TERA,   2039 * GB,  80LL << 30,     300 * GB,
     "NVIDIA A100 data sheet (SXM, 80 GB), 2021"                                                                                                                                               },
    {"a100-pcie", 19.5 * TERA, 156 * TERA,   312 * TERA,   312 * TERA,   1600 * GB,  40LL << 30,
     31.508 * GB,                                                                                              "NVIDIA A100 data sheet (PCIe, 40 GB), 2021; memory as in SimuMax's description"},
    {"h100",      67 * TERA,   494.7 * TERA, 989.4 * TERA, 989.4 * TERA, 3350 * GB,  80LL << 30,     450 * GB,
     "NVIDIA H100 data sheet (SXM), 2023"                                                                                                                                                      },
    {"h200",      67 * TERA,   494.7 * TERA, 989.4 * TERA, 989.4 * TERA, 4800 * GB,  141000000000LL,
     450 * GB,                                                                                                 "NVIDIA H200 data sheet (SXM), 2024"                                            },
    {"b200",      80 * TERA,   1125 * TERA,  2250 * TERA,  2250 * TERA,  8000 * GB,  180000000000LL, 900 * GB,
     "NVIDIA Blackwell architecture brief (HGX B200, 1000 W), 2024"                                                                                                                            },
    {"epyc-7763", 5.02 * TERA, 5.02 * TERA,  5.02 * TERA,  5.02 * TERA,  204.8 * GB, INT64_MAX,
     16 * GB,                                                                                                  "AMD EPYC 7763 product page: 64 cores, 2.45 GHz, AVX2, 8 x DDR4-3200"           },
    {"epyc-9654", 7.37 * TERA, 7.37 * TERA,  14.7 * TERA,  7.37 * TERA,  460.8 * GB, INT64_MAX,
     16 * GB,
     "AMD EPYC 9654 product page: 96 cores, 2.4 GHz, AVX-512 at half rate, 12 x DDR5-4800"                                                                                                     },
    {"xeon-8480", 7.17 * TERA, 7.17 * TERA,  229 * TERA,   7.17 * TERA,  307.2 * GB, INT64_MAX,      16 * GB,
     "Intel Xeon Platinum 8480+ product page: 56 cores, 2.0 GHz, AVX-512, AMX, 8 x DDR5-4800"                                                                                                  },
    {"cpu",       0.16 * TERA, 0.16 * TERA,  0.16 * TERA,  0.16 * TERA,  51.2 * GB,  INT64_MAX,      4 * GB,
     "2 cores x 2.5 GHz x 32 flops a cycle, 2 x DDR4-3200; a guess at a small machine"                                                                                                         },
};
enum { NUM_ROOFLINES = sizeof rooflines / sizeof *rooflines };

static const char *const roofline_kinds[] = {"v100",      "rtx5000",   "a100", "a100-pcie",
                                             "h100",      "h200",      "b200", "epyc-7763",
                                             "epyc-9654", "xeon-8480", "cpu",  NULL};
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
