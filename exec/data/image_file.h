/* exec/data/image_file.h - decodes one JPEG or PNG file to RGB bytes, and scales it. */
#ifndef ELAPSE_EXEC_DATA_IMAGE_FILE_H
#define ELAPSE_EXEC_DATA_IMAGE_FILE_H

#include <stdint.h>

#include "partition/base/status.h"

/* Limits. Width and height are 1..IMAGE_MAX_SIDE. Decoding one image takes at most IMAGE_MAX_BYTES:
 * the pixels, and for a progressive JPEG also its coefficients. So a header of a few bytes cannot
 * make us allocate more. */
enum { IMAGE_MAX_SIDE = 16384, IMAGE_MAX_BYTES = 3 * IMAGE_MAX_SIDE * IMAGE_MAX_SIDE };

/* Suffixes of the formats that are read. */
#define IMAGE_SUFFIXES ".jpg", ".jpeg", ".png"
#define IMAGE_SUFFIX_TEXT "JPEG and PNG (.jpg .jpeg .png)"

struct pixels {
    int width, height;
    unsigned char *rgb; /* owned; height rows of width x (red, green, blue) */
};

/* Decode a file. The first bytes decide the format, not its name. Grey becomes RGB; transparent
 * pixels are drawn on white. ERR_SYSTEM: missing. ERR_INPUT: neither JPEG nor PNG, cut off, damaged,
 * or too large; the message names the file. The caller frees pixels->rgb. */
enum status image_read(const char *path, struct pixels *pixels, struct err *err);

/* Scale the central square of the picture to side x side; planes receives red, green and blue
 * planes of values 0..255. Shrinking uses a triangle filter as wide as the scale, which prevents
 * aliasing; enlarging is bilinear. ERR_NOMEM. O(side * (side + height) * scale). */
enum status image_square(const struct pixels *pixels, int side, float *planes, struct err *err);

#endif
