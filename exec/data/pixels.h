/* exec/data/pixels.h - a decoded picture, and the largest size that is read. */
#pragma once

#include <stdint.h>

#include "partition/base/status.h"

/* Limits. Width and height are 1..IMAGE_MAX_SIDE. Decoding one image takes at most IMAGE_MAX_BYTES:
 * the pixels, and for a progressive JPEG also its coefficients. So a header of a few bytes cannot
 * make us allocate more. */
enum { IMAGE_MAX_SIDE = 16384, IMAGE_MAX_BYTES = 3 * IMAGE_MAX_SIDE * IMAGE_MAX_SIDE };

struct pixels {
    int width, height;
    unsigned char *rgb; /* owned; height rows of width x (red, green, blue) */
};

/* Refuse sides that are not 1..IMAGE_MAX_SIDE. */
static inline enum status pixels_check_size(const char *path, int64_t width, int64_t height,
                                            struct err *err)
{
    if (width < 1 || height < 1 || width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE)
        return err_set(err, ERR_INPUT, "'%s': sides must be 1..%d, got %lld x %lld", path,
                       IMAGE_MAX_SIDE, (long long)width, (long long)height);
    return OK;
}
