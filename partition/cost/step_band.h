/* partition/cost/step_band.h - how far computed steps are off published ones of their kind.
 *
 * One table, published_steps.c, which tests/truth/truth_bands.py makes of the published runs; a kind
 * is a class of models, a framework and a kind of device. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "partition/cost/cost.h"

/* Classes of models, by what sets their errors apart. */
enum band_class {
    BAND_NONE, /* nothing published judges it: images, lists of pieces, encoders */
    BAND_DENSE,
    BAND_EXPERTS,
    BAND_ADAPTERS, /* adapters train, the base is frozen */
    BAND_STATE,    /* layers that carry a state */
};
extern const char *const band_class_names[]; /* by value, NULL-terminated */

/* Runs of one framework, kind of device and class: computed / published - 1. The last row has no
 * framework. */
struct published_steps {
    const char *framework, *kind;
    enum band_class models;
    int runs;
    double low, high;
};
extern const struct published_steps published_steps[];

/* The band of a step. Where its framework and kind of device have fewer than five runs, it is that of
 * all frameworks on the kind, else of the framework on all kinds, else of the class. */
struct step_band {
    enum band_class models;
    const char *framework, *kind; /* borrowed; NULL: any */
    int runs;                     /* 0: none */
    double low, high;             /* computed / published - 1, above -1 */
};
struct step_band step_band_of(const struct model *model, const struct cluster *cluster);
/* The times between which a step of this computed time is then expected. */
void step_band_ns(const struct step_band *band, int64_t step_ns, int64_t ns[2]);
/* "12 published runs of its kind (dense models, fsdp on h100) read 18 % fast to 4 % slow". */
const char *step_band_text(const struct step_band *band, char *text, size_t size);
