/* exec/data/image_file.h - decodes one JPEG, PNG, BMP or WebP file to RGB bytes, and scales it. */
#pragma once

#include "exec/data/pixels.h"

/* Suffixes of the formats that are read. */
#define IMAGE_SUFFIXES ".jpg", ".jpeg", ".png", ".bmp", ".webp"
#define IMAGE_FORMATS "JPEG, PNG, BMP and WebP"
#define IMAGE_SUFFIX_TEXT IMAGE_FORMATS " (.jpg .jpeg .png .bmp .webp)"

/* Decode a file. The first bytes decide the format, not its name. The bytes are those of Pillow's
 * convert("RGB"): grey becomes RGB, of 16 bits the upper 8 count, alpha is left out, and so are
 * gamma, colour profiles and the orientation that Exif gives. (Pillow clips grey of 16 bits
 * instead.) ERR_SYSTEM: missing. ERR_INPUT: none of these formats, cut off, damaged, or too large;
 * the message names the file. The caller frees pixels->rgb. */
enum status image_read(const char *path, struct pixels *pixels, struct err *err);

/* Scale the central square of the picture to side x side; planes receives red, green and blue
 * planes of values 0..255. Shrinking uses a triangle filter as wide as the scale, which prevents
 * aliasing; enlarging is bilinear. ERR_NOMEM. O(side * (side + height) * scale). */
enum status image_square(const struct pixels *pixels, int side, float *planes, struct err *err);
