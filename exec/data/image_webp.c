/* exec/data/image_webp.c - WebP by libwebp, where the program was built with it. */
#include <stdlib.h>

#include "exec/data/image_decoders.h"

#ifdef ELAPSE_WEBP
#include <webp/decode.h>

enum { MAX_FILE = 1 << 28 };

/* The whole file in fresh memory. */
static enum status read_whole(FILE *in, const char *path, unsigned char **bytes, size_t *size,
                              struct err *err)
{
    const long length = fseek(in, 0, SEEK_END) == 0 ? ftell(in) : -1;
    if (length < 1 || length > MAX_FILE)
        return err_set(err, ERR_INPUT, "'%s': a WebP has 1 to %d bytes, got %ld", path, MAX_FILE,
                       length);
    rewind(in);
    *size = (size_t)length;
    *bytes = malloc(*size);
    if (!*bytes)
        return err_nomem(err);
    return fread(*bytes, 1, *size, in) == *size
               ? OK
               : err_set(err, ERR_SYSTEM, "cannot read '%s'", path);
}

enum status image_read_webp(FILE *in, const char *path, struct pixels *pixels, struct err *err)
{
    unsigned char *bytes = NULL, *got = NULL;
    WebPBitstreamFeatures head;
    size_t size = 0;
    enum status rc = read_whole(in, path, &bytes, &size, err);
    if (rc == OK && WebPGetFeatures(bytes, size, &head) != VP8_STATUS_OK)
        rc = err_set(err, ERR_INPUT, "'%s': the WebP is cut off or damaged", path);
    if (rc == OK && head.has_animation)
        rc = err_set(err, ERR_INPUT, "'%s' is an animated WebP", path);
    THEN(pixels_check_size(path, head.width, head.height, err));
    if (rc == OK) {
        const size_t count = (size_t)head.width * (size_t)head.height;
        got = malloc(count * 3);
        if (!got)
            rc = err_nomem(err);
        else if (!WebPDecodeRGBInto(bytes, size, got, count * 3, head.width * 3))
            rc = err_set(err, ERR_INPUT, "'%s': the WebP is cut off or damaged", path);
    }
    free(bytes);
    if (rc == OK)
        *pixels = (struct pixels){head.width, head.height, got};
    else
        free(got);
    return rc;
}

#else

enum status image_read_webp(FILE *in, const char *path, struct pixels *pixels, struct err *err)
{
    (void)in;
    (void)pixels;
    err_set(err, ERR_INPUT, "'%s' is WebP, and this program was built without libwebp", path);
    err_hint(err, "install libwebp-dev and build again, or convert the pictures to PNG");
    return ERR_INPUT;
}

#endif
