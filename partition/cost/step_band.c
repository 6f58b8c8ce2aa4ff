#include "partition/cost/step_band.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "partition/model/framework.h"

/* Fewer runs than that say little of the next one, so a wider kind stands for them. */
enum { ENOUGH = 5 };

const char *const band_class_names[] = {"none", "dense", "experts", "adapters", "state", NULL};

static enum band_class class_of(const struct model *model)
{
    if (model->lora.rank > 0)
        return BAND_ADAPTERS;
    for (int i = 0; i < model->num_items; i++)
        if (model->items[i].kind == ITEM_STATE)
            return BAND_STATE;
    if (model->experts > 0)
        return BAND_EXPERTS;
    return model->family == FAMILY_LLAMA || model->family == FAMILY_GPT ? BAND_DENSE : BAND_NONE;
}

/* The kind of all devices; NULL: they differ. */
static const char *kind_of(const struct cluster *cluster)
{
    for (int d = 1; d < cluster->num_devices; d++)
        if (strcmp(cluster->devices[d].kind, cluster->devices[0].kind) != 0)
            return NULL;
    return cluster->devices[0].kind;
}

/* Whether a row is of the wanted name; NULL: of any. */
static bool takes(const char *wanted, const char *name)
{
    return !wanted || strcmp(wanted, name) == 0;
}

/* The rows that a framework and a kind select, as one. */
static struct step_band join(enum band_class models, const char *framework, const char *kind)
{
    struct step_band band = {
        .models = models, .framework = framework, .kind = kind, .low = INFINITY, .high = -INFINITY};
    for (const struct published_steps *row = published_steps; row->framework; row++) {
        if (row->models != models || !takes(framework, row->framework) || !takes(kind, row->kind))
            continue;
        band.runs += row->runs;
        band.low = fmin(band.low, row->low);
        band.high = fmax(band.high, row->high);
    }
    return band;
}

struct step_band step_band_of(const struct model *model, const struct cluster *cluster)
{
    const enum band_class models = class_of(model);
    const char *framework = model->framework ? framework_family(model->framework) : NULL;
    const char *kind = kind_of(cluster);
    const char *const tries[][2] = {
        {framework, kind},
        {NULL,      kind},
        {framework, NULL},
        {NULL,      NULL}
    };
    struct step_band band = {0};
    for (size_t i = 0; i < sizeof tries / sizeof *tries && band.runs < ENOUGH; i++)
        band = join(models, tries[i][0], tries[i][1]);
    return band;
}

void step_band_ns(const struct step_band *band, int64_t step_ns, int64_t ns[2])
{
    ns[0] = (int64_t)((double)step_ns / (1 + band->high));
    ns[1] = (int64_t)ceil((double)step_ns / (1 + band->low));
}

/* "18 % fast", without the word where the other end has it too. */
static const char *end_text(double error, bool word, char *text, size_t size)
{
    snprintf(text, size, "%.0f%s", fabs(100 * error),
             !word       ? ""
             : error < 0 ? " % fast"
                         : " % slow");
    return text;
}

const char *step_band_text(const struct step_band *band, char *text, size_t size)
{
    char low[32], high[32];
    static const char *const words[] = {"none", "dense models", "models with experts",
                                        "models with adapters", "models with a state"};
    const bool both = (band->low < 0) != (band->high < 0);
    const bool slow = band->low >= 0; /* the smaller number stands first */
    snprintf(text, size, "%d published runs of its kind (%s%s%s%s%s) read %s to %s", band->runs,
             words[band->models], band->framework ? ", " : "",
             band->framework ? band->framework : "", band->kind ? " on " : "",
             band->kind ? band->kind : "",
             end_text(slow || both ? band->low : band->high, both, low, sizeof low),
             end_text(slow || both ? band->high : band->low, true, high, sizeof high));
    return text;
}
