/* exec/data/image_file.h - one JPEG or PNG file as RGB bytes, and scaling. */
#ifndef ELAPSE_EXEC_DATA_IMAGE_FILE_H
#define ELAPSE_EXEC_DATA_IMAGE_FILE_H

#include <stdint.h>

#include "partition/status.h"

/* Sides are 1..IMAGE_MAX_SIDE, and decoding one image takes at most IMAGE_MAX_BYTES: the pixels,
 * and of a progressive JPEG all coefficients as well. A few bytes of a header can ask for no more.
 */
enum { IMAGE_MAX_SIDE = 16384, IMAGE_MAX_BYTES = 3 * IMAGE_MAX_SIDE * IMAGE_MAX_SIDE };

struct pixels {
    int width, height;
    unsigned char *rgb; /* owned: height rows of width x (red, green, blue); NULL after peek */
};

/* Only the header: width and height. The kind is told by the first bytes, not by the name.
 * ERR_SYSTEM: missing; ERR_INPUT: neither JPEG nor PNG, malformed, too large; the file is named. */
enum status image_peek(const char *path, struct pixels *pixels, struct err *err);

/* Decode. Grey becomes RGB, transparency goes onto white; a cut or damaged file is ERR_INPUT. The
 * caller frees pixels->rgb. */
enum status image_read(const char *path, struct pixels *pixels, struct err *err);

/* The central square of the picture, scaled to side x side: planes red, green, blue of values
 * 0..255. A triangle filter as wide as the scale where it shrinks (no aliasing), bilinear where it
 * grows. ERR_NOMEM. O(side * (side + height) * scale). */
enum status image_square(const struct pixels *pixels, int side, float *planes, struct err *err);

#endif
