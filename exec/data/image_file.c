/* Decodes JPEG by libjpeg and PNG by libpng (BMP and WebP: image_bmp.c, image_webp.c), and scales
 * pictures (image_file.h).
 *
 * image_read() chooses the decoder by the first bytes of the file. image_square() scales in two
 * passes, columns then rows, with weights from filter(). */
#include "exec/data/image_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>

#include "profiles/base/whole_file.h"
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

/* A colour as Pillow makes it from two inks, whose values are stored inverted, as by Adobe. */
static unsigned char without_ink(int colour, int black)
{
    const int dark = (255 - colour) * black + 128;
    const int left = black - (((dark >> 8) + dark) >> 8);
    return (unsigned char)(left < 0 ? 0 : left);
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
        for (int x = 0; inks && x < pixels->width; x++)
            for (int c = 0; c < 3; c++)
                to[3 * x + c] = without_ink(line[4 * x + c], line[4 * x + 3]);
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

/* libpng reports errors by callbacks that must not return, so they leave by longjmp(). */
struct png_failure {
    jmp_buf out;
    char text[200];
};

static void png_fail(png_structp png, png_const_charp text)
{
    struct png_failure *failure = png_get_error_ptr(png);
    snprintf(failure->text, sizeof failure->text, "%s", text);
    longjmp(failure->out, 1);
}

static void png_pass_over(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

/* Makes rows of red, green and blue bytes of whatever the file has, as Pillow's convert("RGB") does: of
 * 16 bits the upper 8, no gamma, and without alpha, whose pixels keep their colours. */
static void png_to_rgb(png_structp png, png_infop info)
{
    const int colour = png_get_color_type(png, info), bits = png_get_bit_depth(png, info);
    if (bits == 16)
        png_set_strip_16(png);
    if (colour == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    else if (bits < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (!(colour & PNG_COLOR_MASK_COLOR))
        png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

static enum status read_png(FILE *in, const char *path, struct pixels *pixels, struct err *err)
{
    struct png_failure failure;
    unsigned char *volatile rgb = NULL;
    png_bytep *volatile rows = NULL;
    volatile enum status rc = OK;
    png_infop info = NULL;
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure, png_fail, png_pass_over);
    if (!png || !(info = png_create_info_struct(png))) {
        png_destroy_read_struct(&png, NULL, NULL);
        return err_nomem(err);
    }
    if (setjmp(failure.out)) {
        rc = err_set(err, ERR_INPUT, "'%s': %s", path, failure.text);
        goto out;
    }
    png_init_io(png, in);
    png_set_user_limits(png, IMAGE_MAX_SIDE, IMAGE_MAX_SIDE);
    png_read_info(png, info);
    const size_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    rc = pixels_check_size(path, (int64_t)width, (int64_t)height, err);
    if (rc != OK)
        goto out;
    png_to_rgb(png, info);
    if (png_get_rowbytes(png, info) != 3 * width) {
        rc = err_set(err, ERR_INPUT, "'%s': a row has %zu bytes, not %zu", path,
                     (size_t)png_get_rowbytes(png, info), 3 * width);
        goto out;
    }
    rgb = malloc(3 * width * height);
    rows = malloc(height * sizeof *rows);
    if (!rgb || !rows) {
        rc = err_nomem(err);
        goto out;
    }
    for (size_t y = 0; y < height; y++)
        rows[y] = rgb + y * 3 * width;
    png_read_image(png, rows);
    *pixels = (struct pixels){(int)width, (int)height, rgb};
    rgb = NULL;
out:
    free(rgb);
    free(rows);
    png_destroy_read_struct(&png, &info, NULL);
    return rc;
}

enum status image_read(const char *path, struct pixels *pixels, struct err *err)
{
    unsigned char magic[12] = {0};
    struct pixels got = {0};
    FILE *in = NULL;
    enum status rc = input_file(path, &in, err);
    if (rc != OK)
        return rc;
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
