/* Decodes JPEG by libjpeg and PNG by libpng (BMP and WebP: image_bmp.c, image_webp.c), and scales
 * pictures (image_file.h).
 *
 * image_read() chooses the decoder by the first bytes of the file. image_square() scales in two
 * passes, columns then rows, with weights from filter(). */
#include "exec/data/image_file.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>

#include "exec/data/image_decoders.h"

/* --- JPEG ------------------------------------------------------------------------------------- */

/* libjpeg reports errors by callbacks that must not return, so they leave by longjmp(). */
struct jpeg_failure {
    struct jpeg_error_mgr base;
    jmp_buf out;
    char text[JMSG_LENGTH_MAX];
};

static void jpeg_fail(j_common_ptr jpeg)
{
    struct jpeg_failure *failure = (struct jpeg_failure *)jpeg->err;
    failure->base.format_message(jpeg, failure->text);
    longjmp(failure->out, 1);
}

/* Level -1 is a warning about damaged data, and is treated as an error: libjpeg would fill the
 * missing pixels with grey. Extra bytes after the pixels, which some cameras write, are accepted.
 */
static void jpeg_message(j_common_ptr jpeg, int level)
{
    if (level < 0 && jpeg->err->msg_code != JWRN_EXTRANEOUS_DATA)
        jpeg_fail(jpeg);
}

/* Limit of scans, because a JPEG of a few KB can hold thousands, and each is a pass over the whole
 * image. */
enum { JPEG_MAX_SCANS = 500 };
static void jpeg_progress(j_common_ptr jpeg)
{
    struct jpeg_failure *failure = (struct jpeg_failure *)jpeg->err;
    if (jpeg->is_decompressor && ((j_decompress_ptr)jpeg)->input_scan_number > JPEG_MAX_SCANS) {
        snprintf(failure->text, sizeof failure->text, "more than %d scans", JPEG_MAX_SCANS);
        longjmp(failure->out, 1);
    }
}

/* Checks the memory of decoding: the pixels, and for an image with several scans also every
 * coefficient, which libjpeg keeps (64 of 2 bytes in a block). */
static enum status check_jpeg_memory(const char *path, j_decompress_ptr jpeg, struct err *err)
{
    const int64_t width = jpeg->image_width, height = jpeg->image_height;
    int64_t bytes = 3 * width * height;
    for (int c = 0; jpeg_has_multiple_scans(jpeg) && c < jpeg->num_components; c++) {
        const jpeg_component_info *part = &jpeg->comp_info[c];
        bytes += (int64_t)part->width_in_blocks * part->height_in_blocks * DCTSIZE2 * 2;
    }
    if (bytes > IMAGE_MAX_BYTES)
        return err_set(err, ERR_INPUT, "'%s': decoding %lld x %lld takes %lld MiB, the limit is %d",
                       path, (long long)width, (long long)height, (long long)(bytes >> 20),
                       IMAGE_MAX_BYTES >> 20);
    /* A limit for libjpeg's own memory, which is not counted above. */
    jpeg->mem->max_memory_to_use = IMAGE_MAX_BYTES;
    return OK;
}

static enum status read_jpeg(FILE *in, const char *path, struct pixels *pixels, struct err *err)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_failure failure;
    struct jpeg_progress_mgr progress = {.progress_monitor = jpeg_progress};
    unsigned char *volatile rgb = NULL, *volatile line = NULL;
    volatile enum status rc = OK;
    jpeg.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = jpeg_fail;
    failure.base.emit_message = jpeg_message;
    if (setjmp(failure.out)) {
        rc = err_set(err, ERR_INPUT, "'%s': %.200s", path, failure.text);
        goto out;
    }
    jpeg_create_decompress(&jpeg);
    jpeg.progress = &progress;
    jpeg_stdio_src(&jpeg, in);
    jpeg_read_header(&jpeg, TRUE);
    rc = pixels_check_size(path, jpeg.image_width, jpeg.image_height, err);
    if (rc != OK)
        goto out;
    pixels->width = (int)jpeg.image_width;
    pixels->height = (int)jpeg.image_height;
    rc = check_jpeg_memory(path, &jpeg, err);
    if (rc != OK)
        goto out;
    const bool inks = jpeg.num_components == 4;
    rgb = malloc((size_t)pixels->width * (size_t)pixels->height * 3);
    line = malloc((size_t)pixels->width * 4);
    if (!rgb || !line) {
        rc = err_nomem(err);
        goto out;
    }
    jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    /* The integer method gives the same pixels on every machine. */
    jpeg.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
        unsigned char *to = rgb + (size_t)jpeg.output_scanline * (size_t)pixels->width * 3;
        JSAMPROW row = inks ? line : to;
        jpeg_read_scanlines(&jpeg, &row, 1);
        /* CMYK values are stored inverted, as by Adobe. */
        for (int x = 0; inks && x < pixels->width; x++)
            for (int c = 0; c < 3; c++)
                to[3 * x + c] = (unsigned char)((line[4 * x + c] * line[4 * x + 3] + 127) / 255);
    }
    jpeg_finish_decompress(&jpeg);
    pixels->rgb = rgb;
    rgb = NULL;
out:
    free(rgb);
    free(line);
    jpeg_destroy_decompress(&jpeg);
    return rc;
}

/* --- PNG -------------------------------------------------------------------------------------- */

static enum status read_png(FILE *in, const char *path, struct pixels *pixels, struct err *err)
{
    static const png_color white = {255, 255, 255};
    png_image png = {.version = PNG_IMAGE_VERSION};
    unsigned char *rgb = NULL;
    enum status rc = OK;
    if (!png_image_begin_read_from_stdio(&png, in)) {
        rc = err_set(err, ERR_INPUT, "'%s': %s", path, png.message);
        goto out;
    }
    rc = pixels_check_size(path, png.width, png.height, err);
    if (rc != OK)
        goto out;
    pixels->width = (int)png.width;
    pixels->height = (int)png.height;
    png.format = PNG_FORMAT_RGB;
    rgb = malloc((size_t)png.width * (size_t)png.height * 3);
    if (!rgb) {
        rc = err_nomem(err);
        goto out;
    }
    if (!png_image_finish_read(&png, &white, rgb, 0, NULL)) {
        rc = err_set(err, ERR_INPUT, "'%s': %s", path, png.message);
        goto out;
    }
    pixels->rgb = rgb;
    rgb = NULL;
out:
    free(rgb);
    png_image_free(&png);
    return rc;
}

enum status image_read(const char *path, struct pixels *pixels, struct err *err)
{
    unsigned char magic[12] = {0};
    struct pixels got = {0};
    enum status rc;
    FILE *in = fopen(path, "rb");
    if (!in)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", path, strerror(errno));
    size_t n = fread(magic, 1, sizeof magic, in);
    rewind(in);
    if (n >= 3 && magic[0] == 0xff && magic[1] == 0xd8 && magic[2] == 0xff)
        rc = read_jpeg(in, path, &got, err);
    else if (n >= 8 && memcmp(magic, "\x89PNG\r\n\x1a\n", 8) == 0)
        rc = read_png(in, path, &got, err);
    else if (n >= 2 && memcmp(magic, "BM", 2) == 0)
        rc = image_read_bmp(in, path, &got, err);
    else if (n == 12 && memcmp(magic, "RIFF", 4) == 0 && memcmp(magic + 8, "WEBP", 4) == 0)
        rc = image_read_webp(in, path, &got, err);
    else
        rc = err_set(err, ERR_INPUT, "'%s' is none of " IMAGE_FORMATS, path);
    fclose(in);
    if (rc == OK)
        *pixels = got;
    return rc;
}

/* --- scaling ---------------------------------------------------------------------------------- */

/* Weights of output i over the n inputs of one axis. Returns their number; *first is the first
 * input. */
static int filter(int i, int n, int side, int *first, float *weights)
{
    double scale = (double)n / side, reach = scale > 1 ? scale : 1;
    double centre = (i + .5) * scale, sum = 0;
    int from = (int)floor(centre - reach), to = (int)ceil(centre + reach), count;
    from = from < 0 ? 0 : from;
    to = to > n ? n : to;
    count = to - from;
    for (int j = 0; j < count; j++) {
        double w = 1 - fabs(from + j + .5 - centre) / reach;
        weights[j] = (float)(w > 0 ? w : 0);
        sum += weights[j];
    }
    for (int j = 0; j < count; j++)
        weights[j] = (float)(weights[j] / sum);
    *first = from;
    return count;
}

enum status image_square(const struct pixels *pixels, int side, float *planes, struct err *err)
{
    int w = pixels->width, h = pixels->height, n = w < h ? w : h;
    int left = (w - n) / 2, top = (h - n) / 2, first;
    /* The first pass scales the width into half [n, side, 3]; the second scales the height. */
    float *half = malloc((size_t)n * (size_t)side * 3 * sizeof *half);
    float *weights = malloc(((size_t)2 * ((size_t)n / (size_t)side + 2) + 2) * sizeof *weights);
    enum status rc = OK;
    if (!half || !weights) {
        rc = err_nomem(err);
        goto out;
    }
    for (int x = 0; x < side; x++) {
        int count = filter(x, n, side, &first, weights);
        for (int y = 0; y < n; y++) {
            const unsigned char *from =
                pixels->rgb + ((size_t)(top + y) * (size_t)w + (size_t)(left + first)) * 3;
            float *to = half + ((size_t)y * (size_t)side + (size_t)x) * 3, sum[3] = {0};
            for (int j = 0; j < count; j++)
                for (int c = 0; c < 3; c++)
                    sum[c] += weights[j] * (float)from[3 * j + c];
            memcpy(to, sum, sizeof sum);
        }
    }
    for (int y = 0; y < side; y++) {
        int count = filter(y, n, side, &first, weights);
        for (int x = 0; x < side; x++)
            for (int c = 0; c < 3; c++) {
                float sum = 0;
                for (int j = 0; j < count; j++)
                    sum += weights[j] *
                           half[((size_t)(first + j) * (size_t)side + (size_t)x) * 3 + (size_t)c];
                planes[((size_t)c * (size_t)side + (size_t)y) * (size_t)side + (size_t)x] = sum;
            }
    }
out:
    free(weights);
    free(half);
    return rc;
}
