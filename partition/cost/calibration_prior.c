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
/* What a name adds to JUDGED, and (frameworks only) how far the rows of a source lie apart after one factor.
 * The last row of a table, without a name, is of all others. */
struct known {
    const char *name;
    double spread, rows;
};

/* Kinds without runs of their own, whose curves are another's: L40S reads +26 %, GH200 -17 to -23,
 * V100 -34 to -46. AMD: MLPerf's adapters read 9 % fast. GB300, B300: NeMo's Llama and Qwen3. */
static const struct known kinds[] = {
    {"a100",      0,    0},
    {"a100-pcie", 0,    0},
    {"a100-40gb", 0,    0},
    {"a800",      0,    0},
    {"h100",      0,    0},
    {"gb200",     0,    0},
    {"h200",      0.05, 0},
    {"h800",      0.05, 0},
    {"b200",      0.07, 0},
    {"b300",      0.07, 0},
    {"gb300",     0.07, 0},
    {"mi300x",    0.1,  0},
    {"mi325x",    0.1,  0},
    {"mi355x",    0.1,  0},
    {NULL,        0.3,  0},
};

/* FSDP's sources on H100 read 13 and 16 % fast. Rows of a source, standard deviations of ln: NeMo's eight
 * dense sources 0.01 to 0.07, of
 * which the largest counts so that one row spoils none; SC'21 and table 5 0.04 and 0.03, FSDP's three 0.00 to
 * 0.04, Hagemann's five kernels 0.04 to 0.10, vTrain 0.09 and 0.15, Qwen 0.08 to 0.11. */
static const struct known frameworks_known[] = {
    {"megatron-te",   0,    0.07},
    {"megatron-2021", 0,    0.04},
    {"aa-scaling",    0,    0.07},
    {"deepspeed",     0,    0.1 },
    {"fsdp",          0.12, 0.04},
    {"fsdp-compiled", 0.12, 0.04},
    {"composer",      0.12, 0.04},
    {"hf-eager",      0.05, 0.07},
    {NULL,            0.1,  0.1 },
};

static const struct known dtypes[] = {
    {"bf16",  0,    0},
    {"fp16",  0,    0},
    {"fp8",   0,    0},
    {"mxfp8", 0,    0},
    {"nvfp4", 0.05, 0},
    {NULL,    0.15, 0},
};

static double both(double a, double b)
{
    return sqrt(a * a + b * b);
}

static const struct known *known_of(const struct known *table, const char *name)
{
    while (table->name && strcmp(table->name, name) != 0)
        table++;
    return table;
}

/* Operators. Experts: Qwen3 on five kinds, means of 0.05 to 0.36, rows 0.03 to 0.09 (H100 0.48). Their biases and
 * clamps: GPT OSS on five, 0.06 to 0.2, of which the largest counts. Adapters: MLPerf's, NeMo's and Qwen's, means of 0 to
 * 0.17, rows 0.07 to 0.14. No source judges latent attention, samples of more than 16,384 tokens, or lists of pieces. */
static struct known operators_of(const struct model *m)
{
    const struct {
        bool has;
        double spread, rows;
    } parts[] = {
        {m->experts > 0,                                       0.06, 0.09},
        {m->block.expert_mlp_bias || m->block.expert_clamp,    0.2,  0   },
        {m->lora.rank > 0,                                     0.08, 0.08},
        {m->kv_rank > 0 || m->seq > 16384,                     0.15, 0   },
        {m->family != FAMILY_LLAMA && m->family != FAMILY_GPT, 0.15, 0.1 },
    };
    struct known sum = {NULL, 0, 0};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        sum.spread = parts[i].has ? both(sum.spread, parts[i].spread) : sum.spread;
        sum.rows = parts[i].has ? both(sum.rows, parts[i].rows) : sum.rows;
    }
    return sum;
}

/* How far rows of a source lie apart, for intervals, by the widest family of the model's operators: 70 per cent of the
 * sources of a family have rows as near (21 dense, 10 with experts, 4 with adapters; a list of pieces has none). Such a width
 * from the other sources alone holds 86 per cent of the rows of one (tests/truth/truth_widths.py). */
static double held_of(const struct model *m)
{
    const bool pieces = m->family != FAMILY_LLAMA && m->family != FAMILY_GPT;
    return pieces ? 0.1 : m->lora.rank > 0 ? 0.083 : m->experts > 0 ? 0.057 : 0.07;
}

struct calibration_prior calibration_prior_of(const struct model *model, const char *kind,
                                              const char *dtype, bool ideal)
{
    const struct known *framework = known_of(frameworks_known, framework_family(model->framework));
    const struct known operators = operators_of(model);
    const double machine = both(known_of(kinds, kind)->spread, known_of(dtypes, dtype)->spread);
    const double compute = both(both(JUDGED, machine), both(framework->spread, operators.spread));
    return (struct calibration_prior){.compute = ideal ? IDEAL : compute,
                                      .spread = both(framework->rows, operators.rows),
                                      .held = held_of(model)};
}
