/* exec/data/resample.h - scales a picture with the filters of Pillow, to the same bytes. */
#pragma once

#include "exec/data/pixels.h"

/* Pillow's numbers of its filters. */
enum resample {
    RESAMPLE_NEAREST,
    RESAMPLE_LANCZOS,
    RESAMPLE_BILINEAR,
    RESAMPLE_BICUBIC,
    RESAMPLE_BOX,
    RESAMPLE_HAMMING,
    RESAMPLE_COUNT
};

/* Scale to width x height in two passes, columns then rows, each rounded to bytes. to->rgb is the
 * caller's to free. */
enum status resample(const struct pixels *from, int width, int height, enum resample filter,
                     struct pixels *to, struct err *err);
