/* exec/data/image_decoders.h - decoders of single formats, for image_file.c only. */
#pragma once

#include <stdio.h>

#include "exec/data/pixels.h"

/* Each decodes a file from its first byte, as image_read() does. */
enum status image_read_bmp(FILE *in, const char *path, struct pixels *pixels, struct err *err);
/* ERR_INPUT if the program was built without libwebp, too. */
enum status image_read_webp(FILE *in, const char *path, struct pixels *pixels, struct err *err);
