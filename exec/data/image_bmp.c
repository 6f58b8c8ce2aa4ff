/* exec/data/image_bmp.c - BMP without compression: 24 or 32 bits a pixel, or 8 bits with a palette.
 *
 * A file header of 14 bytes, whose last four say where the rows begin; an info header of 40 bytes or
 * more; a palette of 4 bytes a colour; rows from the bottom up (from the top where the height is
 * negative), each padded to 4 bytes. Numbers are little-endian; colours are blue, green, red. Source:
 * Microsoft's documentation of BITMAPINFOHEADER. The fourth byte of 32 bits is ignored, as by most
 * readers, because many writers leave it 0. Other kinds are refused by name. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "exec/data/image_decoders.h"

enum { FILE_HEADER = 14, INFO_HEADER = 40, RGB = 0, BITFIELDS = 3, COLOURS = 256 };

static int64_t number(const unsigned char *at, int bytes)
{
    uint32_t got = 0;
    for (int i = bytes - 1; i >= 0; i--)
        got = got << 8 | at[i];
    return bytes == 4 ? (int32_t)got : (int64_t)got;
}

struct bmp {
    int64_t rows_at, info_bytes, width, height, bits, compression, num_colours;
    bool from_top;
    unsigned char palette[COLOURS][4];
};

static enum status read_header(FILE *in, const char *path, struct bmp *bmp, struct err *err)
{
    unsigned char head[FILE_HEADER + INFO_HEADER];
    if (fread(head, 1, sizeof head, in) != sizeof head)
        return err_set(err, ERR_INPUT, "'%s': the BMP is cut off in its header", path);
    const unsigned char *info = head + FILE_HEADER;
    const int64_t height = number(info + 8, 4);
    *bmp = (struct bmp){.rows_at = number(head + 10, 4),
                        .info_bytes = number(info, 4),
                        .width = number(info + 4, 4),
                        .height = height < 0 ? -height : height,
                        .from_top = height < 0,
                        .bits = number(info + 14, 2),
                        .compression = number(info + 16, 4),
                        .num_colours = number(info + 32, 4)};
    const enum status rc = pixels_check_size(path, bmp->width, bmp->height, err);
    if (rc != OK)
        return rc;
    if (bmp->bits == 8 && bmp->num_colours == 0)
        bmp->num_colours = COLOURS;
    if (bmp->info_bytes < INFO_HEADER || (bmp->bits != 8 && bmp->bits != 24 && bmp->bits != 32) ||
        !(bmp->compression == RGB || (bmp->compression == BITFIELDS && bmp->bits == 32)) ||
        (bmp->bits == 8 && (bmp->num_colours < 1 || bmp->num_colours > COLOURS))) {
        err_set(err, ERR_INPUT, "'%s': a BMP of %lld bits a pixel with compression %lld", path,
                (long long)bmp->bits, (long long)bmp->compression);
        err_hint(err,
                 "only uncompressed BMP of 24 or 32 bits, or of 8 bits with a palette, is read; "
                 "convert the picture to PNG");
        return ERR_INPUT;
    }
    if (bmp->bits == 8 &&
        (fseek(in, (long)(FILE_HEADER + bmp->info_bytes), SEEK_SET) != 0 ||
         fread(bmp->palette, 4, (size_t)bmp->num_colours, in) != (size_t)bmp->num_colours))
        return err_set(err, ERR_INPUT, "'%s': the BMP is cut off in its palette", path);
    if (bmp->compression == BITFIELDS) { /* after the 40 bytes, in any version of the header */
        unsigned char masks[12];
        static const unsigned char usual[12] = {0, 0, 255, 0, 0, 255, 0, 0, 255};
        if (fread(masks, 1, sizeof masks, in) != sizeof masks || memcmp(masks, usual, 12) != 0)
            return err_set(err, ERR_INPUT, "'%s': a BMP of 32 bits in an unusual order", path);
    }
    return OK;
}

enum status image_read_bmp(FILE *in, const char *path, struct pixels *pixels, struct err *err)
{
    struct bmp bmp;
    unsigned char *row = NULL, *rgb = NULL;
    enum status rc = read_header(in, path, &bmp, err);
    if (rc != OK)
        return rc;
    const size_t width = (size_t)bmp.width, height = (size_t)bmp.height;
    const size_t row_bytes = (width * (size_t)bmp.bits / 8 + 3) / 4 * 4;
    row = malloc(row_bytes);
    rgb = malloc(width * height * 3);
    if (!row || !rgb)
        rc = err_nomem(err);
    if (rc == OK && fseek(in, (long)bmp.rows_at, SEEK_SET) != 0)
        rc = err_set(err, ERR_INPUT, "'%s': the BMP says that its rows are at %lld", path,
                     (long long)bmp.rows_at);
    for (size_t y = 0; rc == OK && y < height; y++) {
        unsigned char *to = rgb + (bmp.from_top ? y : height - 1 - y) * width * 3;
        if (fread(row, 1, row_bytes, in) != row_bytes) {
            rc = err_set(err, ERR_INPUT, "'%s': the BMP is cut off in row %zu of %zu", path, y + 1,
                         height);
            break;
        }
        for (size_t x = 0; x < width; x++, to += 3) {
            const unsigned char *from =
                bmp.bits == 8 ? bmp.palette[row[x]] : row + x * (size_t)bmp.bits / 8;
            to[0] = from[2];
            to[1] = from[1];
            to[2] = from[0];
        }
    }
    free(row);
    if (rc == OK)
        *pixels = (struct pixels){(int)bmp.width, (int)bmp.height, rgb};
    else
        free(rgb);
    return rc;
}
