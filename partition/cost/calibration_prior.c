/* The table of what published runs have judged. docs/costs-published.md has the sources' errors. */
#include "partition/cost/calibration_prior.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "partition/model/framework.h"

/* Nothing real reaches a roofline: e^1 is 2.7 times as long. */
static const double IDEAL = 1;
/* Means of ln (measured / predicted) of 15 sources whose kind, framework, data type and operators others
 * judge too (vTrain, SC'21, table 5, Hagemann's kernels, fms-fsdp, NeMo's GPT-3 and Llama on H100 and
 * GB200): root of the mean square. */
static const double JUDGED = 0.05;
/* How far layouts of a source lie apart after one factor (standard deviations): NeMo 0.01, SC'21 and
 * table 5 0.04, vTrain 0.07 and 0.12, Hagemann's kernels 0.04 to 0.12; GPT OSS, Qwen3 and MLPerf's
 * adapters more. */
static const double SPREAD_JUDGED = 0.08, SPREAD_OTHERS = 0.12;
/* Up to this standard deviation a step counts as judged. */
static const double WELL_KNOWN = 0.08;

/* What a name adds to JUDGED. The last row of a table, without a name, is of all others. */
struct known {
    const char *name;
    double spread;
};

/* Kinds without runs of their own, whose curves are another's: L40S reads +26 %, GH200 -17 to -23,
 * V100 -34 to -46. AMD: MLPerf's adapters. GB300, B300: NeMo's Llama and Qwen3. */
static const struct known kinds[] = {
    {"a100",      0   },
    {"a100-pcie", 0   },
    {"a100-40gb", 0   },
    {"a800",      0   },
    {"h100",      0   },
    {"gb200",     0   },
    {"h200",      0.05},
    {"h800",      0.05},
    {"b200",      0.1 },
    {"b300",      0.1 },
    {"gb300",     0.1 },
    {"mi300x",    0.12},
    {"mi325x",    0.12},
    {"mi355x",    0.12},
    {NULL,        0.3 },
};

/* FSDP's sources on H100 read 13 and 16 % fast. Qwen's LoRA: short and long samples apart. */
static const struct known frameworks_known[] = {
    {"fsdp",          0.12},
    {"fsdp-compiled", 0.12},
    {"composer",      0.12},
    {"hf-eager",      0.1 },
    {"ours",          0.1 },
    {NULL,            0   },
};

static const struct known dtypes[] = {
    {"bf16",  0   },
    {"fp16",  0   },
    {"fp8",   0   },
    {"mxfp8", 0   },
    {"nvfp4", 0.1 },
    {NULL,    0.15},
};

static double spread_of(const struct known *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table->spread;
}

/* Operators. Experts: Qwen3 on five kinds, 0.15. Their biases and clamps: GPT OSS on five, 0.27.
 * Adapters: MLPerf's and Qwen's, 0.12 to 0.16. No source judges latent attention, samples of more than
 * 16,384 tokens, or lists of pieces. */
static double operators_variance(const struct model *m)
{
    const struct {
        bool has;
        double spread;
    } parts[] = {
        {m->experts > 0,                                       0.15},
        {m->block.expert_mlp_bias || m->block.expert_clamp,    0.25},
        {m->lora.rank > 0,                                     0.12},
        {m->kv_rank > 0 || m->seq > 16384,                     0.15},
        {m->family != FAMILY_LLAMA && m->family != FAMILY_GPT, 0.15},
    };
    double variance = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        variance += parts[i].has ? parts[i].spread * parts[i].spread : 0;
    return variance;
}

struct calibration_prior calibration_prior_of(const struct model *model, const char *kind,
                                              const char *dtype, bool ideal)
{
    const double by_kind = spread_of(kinds, kind), by_dtype = spread_of(dtypes, dtype),
                 by_framework = spread_of(frameworks_known, framework_name(model->framework));
    const double compute = sqrt(JUDGED * JUDGED + by_kind * by_kind + by_dtype * by_dtype +
                                by_framework * by_framework + operators_variance(model));
    return (struct calibration_prior){.compute = ideal ? IDEAL : compute,
                                      .spread = !ideal && compute <= WELL_KNOWN ? SPREAD_JUDGED
                                                                                : SPREAD_OTHERS};
}
