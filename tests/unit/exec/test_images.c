/* Folders of pictures that the test writes with libjpeg and libpng; no real set is at hand. */
#include <stdio.h> /* jpeglib.h uses FILE */

#include <jpeglib.h>
#include <png.h>
#ifdef ELAPSE_WEBP
#include <webp/encode.h>
#endif

#include "exec/data/dataset_open.h"
#include "exec/data/dataset.h"
#include "exec/data/image_file.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

/* A smooth picture: red rises to the right, green downwards, blue is flat. */
static unsigned char *picture(int width, int height)
{
    unsigned char *rgb = malloc((size_t)width * (size_t)height * 3);
    assert_non_null(rgb);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            unsigned char *p = rgb + ((size_t)y * (size_t)width + (size_t)x) * 3;
            p[0] = (unsigned char)(255 * x / width);
            p[1] = (unsigned char)(255 * y / height);
            p[2] = 77;
        }
    return rgb;
}

static void put_png(const char *name, int width, int height)
{
    unsigned char *rgb = picture(width, height);
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = PNG_FORMAT_RGB};
    assert_true(png_image_write_to_file(&png, in_folder(name), 0, rgb, 0, NULL));
    free(rgb);
}

/* channels: 1 grey, 3 colours, 4 inks in Adobe's way, of which the last is `black`. */
enum scans { BASELINE, PROGRESSIVE, SCAN_EACH /* of the colours, one after the other */ };
static void put_scans(const char *name, int width, int height, int channels, int black,
                      enum scans scans)
{
    static const jpeg_scan_info one_each[] = {
        {1, {0}, 0, 63, 0, 0},
        {1, {1}, 0, 63, 0, 0},
        {1, {2}, 0, 63, 0, 0}
    };
    static const J_COLOR_SPACE spaces[] = {0, JCS_GRAYSCALE, 0, JCS_RGB, JCS_CMYK};
    unsigned char *rgb = picture(width, height), *row = malloc((size_t)width * 4);
    assert_non_null(row);
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *out = fopen(in_folder(name), "wb");
    assert_non_null(out);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, out);
    jpeg.image_width = (JDIMENSION)width;
    jpeg.image_height = (JDIMENSION)height;
    jpeg.input_components = channels;
    jpeg.in_color_space = spaces[channels];
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 98, TRUE);
    jpeg.comp_info[0].h_samp_factor = jpeg.comp_info[0].v_samp_factor = 1; /* full colour */
    if (scans == PROGRESSIVE)
        jpeg_simple_progression(&jpeg);
    if (scans == SCAN_EACH) {
        jpeg.scan_info = one_each;
        jpeg.num_scans = 3;
    }
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        const unsigned char *from = rgb + (size_t)jpeg.next_scanline * (size_t)width * 3;
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                row[x * channels + c] = c < 3 ? from[3 * x + c] : (unsigned char)black;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(out);
    free(rgb);
    free(row);
}

static void put_jpeg(const char *name, int width, int height, int channels, int black)
{
    put_scans(name, width, height, channels, black, BASELINE);
}

static void make_tree(void)
{
    static const char *const dirs[] = {"train", "train/cat", "train/dog",
                                       "val",   "val/dog",   "train/.hidden"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        assert_int_equal(mkdir(in_folder(dirs[i]), 0777), 0);
    put_png("train/cat/b.png", 16, 16);
    put_jpeg("train/cat/a.JPG", 16, 16, 3, 0);
    put_jpeg("train/dog/c.jpeg", 16, 16, 1, 0);
    put_text("train/dog/notes.txt", "no picture");
    put_png("val/dog/d.png", 16, 16);
}

/* The job's pictures open, and the check of one of them fails with a status and these words. */
static void refuse_check(const struct job *job, enum status status, const char *words)
{
    struct dataset data = {0};
    struct err err = {0};
    enum status rc = dataset_open(job, &data, &err);
    if (rc != OK)
        fail_msg("%s", err.msg);
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (int64_t id = 0; rc == OK && id < data.num_samples[split]; id++)
            rc = data.check(&data, (enum split)split, id, &err);
    if (rc != status || !strstr(err.msg, words))
        fail_msg("status %d '%s', wanted %d '%s'", rc, err.msg, status, words);
    dataset_clear(&data);
}

static const char *const model = "vit-tiny:image=16,patch=8,classes=2,layers=1";

static void images_open__numbers_classes_by_name_and_decodes_both_kinds(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    float image[3 * 256];
    int32_t label;
    const struct sample_out out = {.image = image, .labels = &label};
    (void)state;
    make_tree();
    make_job(&job, model, DATA_IMAGES, "", NULL);
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.classes, 2);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 3);
    assert_int_equal(data.num_samples[SPLIT_TEST], 1);
    for (int i = 0; i < 2; i++) { /* the JPEG, then the PNG, of the same picture */
        float tolerance = i == 0 ? .04f : 1e-5f;
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, i, &out, &err), OK);
        assert_int_equal(label, 0);
        for (int y = 0; y < 16; y++)
            for (int x = 0; x < 16; x++) {
                float red = (float)(255 * x / 16) / 127.5f - 1;
                float green = (float)(255 * y / 16) / 127.5f - 1;
                assert_true(fabsf(image[y * 16 + x] - red) < tolerance);
                assert_true(fabsf(image[256 + y * 16 + x] - green) < tolerance);
                assert_true(fabsf(image[512 + y * 16 + x] - (77 / 127.5f - 1)) < tolerance);
            }
    }
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 2, &out, &err), OK);
    assert_int_equal(label, 1);
    assert_memory_equal(image, image + 256, 256 * sizeof *image); /* grey: three equal planes */
    assert_int_equal(data.sample(&data, SPLIT_TEST, 0, &out, &err), OK);
    assert_int_equal(label, 1);
    dataset_clear(&data);
    job_clear(&job);
}

static void image_read__makes_colours_of_four_inks(void **state)
{
    enum { SIDE = 16 };
    (void)state;
    for (int black = 255; black > 0; black -= 100) {
        struct pixels pixels = {0};
        struct err err = {0};
        unsigned char *want = picture(SIDE, SIDE);
        put_jpeg("inks.jpg", SIDE, SIDE, 4, black);
        if (image_read(in_folder("inks.jpg"), &pixels, &err) != OK)
            fail_msg("%s", err.msg);
        for (int i = 0; i < SIDE * SIDE * 3; i++)
            assert_true(abs(pixels.rgb[i] - want[i] * black / 255) <= 6);
        free(pixels.rgb);
        free(want);
    }
}

/* The sides in the header of a JPEG: behind ff c0 or ff c2, two bytes of length and one of depth.
 */
static void claim_sides(const char *name, int side)
{
    unsigned char bytes[65536];
    FILE *file = fopen(in_folder(name), "r+b");
    assert_non_null(file);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    size_t at = 2;
    while (at + 9 < n && bytes[at + 1] != 0xc0 && bytes[at + 1] != 0xc2)
        at += 2 + (size_t)(bytes[at + 2] << 8 | bytes[at + 3]);
    assert_true(at + 9 < n);
    for (size_t i = at + 5; i < at + 9; i += 2) {
        bytes[i] = (unsigned char)(side >> 8);
        bytes[i + 1] = (unsigned char)side;
    }
    rewind(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* A progressive image keeps all coefficients: 9 bytes a pixel here. What a header claims is refused
 * before it is allocated (the data behind it would be called cut). */
static void image_read__refuses_progressive_images_above_its_limit_of_memory(void **state)
{
    struct pixels pixels = {0};
    struct err err = {0};
    (void)state;
    put_scans("scans.jpg", 64, 64, 3, 0, PROGRESSIVE);
    assert_int_equal(image_read(in_folder("scans.jpg"), &pixels, &err), OK);
    assert_int_equal(pixels.width, 64);
    free(pixels.rgb);
    claim_sides("scans.jpg", 9460); /* 9 bytes x 9460^2: 768.1 MiB */
    assert_int_equal(image_read(in_folder("scans.jpg"), &pixels, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "decoding 9460 x 9460 takes"));
    assert_non_null(strstr(err.msg, "the limit is 768"));
    err = (struct err){0};
    claim_sides("scans.jpg", 9440);
    assert_int_equal(image_read(in_folder("scans.jpg"), &pixels, &err), ERR_INPUT);
    assert_null(strstr(err.msg, "the limit")); /* of its 768 MiB; the data is too short */
}

/* Copies of the last scan, until there are more than 500. */
static void image_read__refuses_images_of_too_many_scans(void **state)
{
    static unsigned char bytes[65536];
    struct pixels pixels = {0};
    struct err err = {0};
    (void)state;
    put_scans("scans.jpg", 16, 16, 3, 0, SCAN_EACH);
    FILE *file = fopen(in_folder("scans.jpg"), "rb");
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    size_t first = 2;
    while (bytes[first + 1] != 0xda) /* start of scan */
        first += 2 + (size_t)(bytes[first + 2] << 8 | bytes[first + 3]);
    size_t end = first + 2;
    while (bytes[end] != 0xff || bytes[end + 1] == 0 || bytes[end + 1] == 0xff)
        end++;
    file = fopen(in_folder("bomb.jpg"), "wb");
    fwrite(bytes, 1, first, file);
    for (int scan = 0; scan < 2000; scan++)
        fwrite(bytes + first, 1, end - first, file);
    fwrite(bytes + end, 1, n - end, file);
    fclose(file);
    assert_int_equal(image_read(in_folder("bomb.jpg"), &pixels, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "more than 500 scans"));
}

static void image_read__passes_over_bytes_behind_the_pixels(void **state)
{
    static const unsigned char spare[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0xff, JPEG_EOI};
    struct pixels pixels[2] = {{0}};
    struct err err = {0};
    (void)state;
    put_jpeg("a.jpg", 16, 16, 3, 0);
    for (int i = 0; i < 2; i++) {
        if (image_read(in_folder("a.jpg"), &pixels[i], &err) != OK)
            fail_msg("%s", err.msg);
        FILE *file = fopen(in_folder("a.jpg"), "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, -2, SEEK_END), 0); /* over the end's marker */
        assert_int_equal(fwrite(spare, 1, sizeof spare, file), sizeof spare);
        fclose(file);
    }
    assert_memory_equal(pixels[0].rgb, pixels[1].rgb, 16 * 16 * 3);
    free(pixels[0].rgb);
    free(pixels[1].rgb);
}

static void put_number(unsigned char *at, int bytes, int32_t value)
{
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)((uint32_t)value >> 8 * i);
}

/* A BMP of picture(5, 4), written by its description; at: where the rows begin. */
static size_t make_bmp(unsigned char *bytes, int bits, bool from_top, int at)
{
    enum { W = 5, H = 4 };
    unsigned char *rgb = picture(W, H);
    const size_t row = ((size_t)W * (size_t)bits / 8 + 3) / 4 * 4;
    memset(bytes, 0, 2048);
    memcpy(bytes, "BM", 2);
    put_number(bytes + 10, 4, at);
    put_number(bytes + 14, 4, 40);
    put_number(bytes + 18, 4, W);
    put_number(bytes + 22, 4, from_top ? -H : H);
    put_number(bytes + 26, 2, 1);
    put_number(bytes + 28, 2, bits);
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++) {
            const unsigned char *p = rgb + 3 * (y * W + x);
            const int place = y * W + x;
            unsigned char *to = bytes + at + (size_t)(from_top ? y : H - 1 - y) * row;
            unsigned char *colour = bits == 8 ? bytes + 54 + 4 * place : to + x * bits / 8;
            if (bits == 8)
                to[x] = (unsigned char)place;
            colour[0] = p[2];
            colour[1] = p[1];
            colour[2] = p[0];
        }
    free(rgb);
    return (size_t)at + H * row;
}

static void image_read__reads_bmp_of_each_kind(void **state)
{
    static const struct {
        int bits, at;
        bool from_top;
    } kinds[] = {
        {24, 54,   false},
        {24, 60,   true },
        {32, 54,   false},
        {32, 54,   true },
        {8,  1078, false}
    };
    static unsigned char bytes[2048];
    unsigned char *want = picture(5, 4);
    struct pixels pixels = {0};
    struct err err = {0};
    size_t size = 0;
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size = make_bmp(bytes, kinds[i].bits, kinds[i].from_top, kinds[i].at);
        put_bytes("a.bmp", bytes, size);
        if (image_read(in_folder("a.bmp"), &pixels, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(pixels.width, 5);
        assert_int_equal(pixels.height, 4);
        assert_memory_equal(pixels.rgb, want, 60);
        free(pixels.rgb);
    }
    free(want);
    for (size_t cut = 2; cut < size; cut += 7) {
        put_bytes("a.bmp", bytes, cut);
        err = (struct err){0};
        assert_int_equal(image_read(in_folder("a.bmp"), &pixels, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "a.bmp'"));
    }
    put_number(bytes + 30, 4, 1); /* run lengths */
    put_bytes("a.bmp", bytes, size);
    err = (struct err){0};
    assert_int_equal(image_read(in_folder("a.bmp"), &pixels, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "a BMP of 8 bits a pixel with compression 1"));
    put_number(bytes + 30, 4, 0);
    put_number(bytes + 18, 4, 1 << 20);
    put_bytes("a.bmp", bytes, size);
    err = (struct err){0};
    assert_int_equal(image_read(in_folder("a.bmp"), &pixels, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "sides must be 1..16384, got 1048576 x 4"));
}

/* One kind of PNG file: random samples, and the bytes that Pillow's convert("RGB") makes of them. */
static void put_png_of(const char *name, int colour, int bits, int interlace, unsigned char *want,
                       int width, int height)
{
    static const int channels_of[] = {1, 0, 3, 1, 2, 0, 4};
    const int channels = channels_of[colour], top = (1 << bits) - 1;
    png_color palette[256];
    png_byte alphas[256], row[64 * 8], *rows[64];
    FILE *out = fopen(in_folder(name), "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    assert_non_null(out);
    for (int i = 0; i < 256; i++) {
        palette[i] = (png_color){(png_byte)(7 * i), (png_byte)(255 - i), (png_byte)(i * i)};
        alphas[i] = (png_byte)(3 * i);
    }
    png_init_io(png, out);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, bits, colour, interlace,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (colour == PNG_COLOR_TYPE_PALETTE) {
        png_set_PLTE(png, info, palette, top + 1);
        png_set_tRNS(png, info, alphas, top + 1, NULL);
    } else if (!(colour & PNG_COLOR_MASK_ALPHA)) {
        png_color_16 one = {.gray = 1, .red = 1, .green = 1, .blue = 1};
        png_set_tRNS(png, info, NULL, 0, &one);
    }
    png_set_gAMA(png, info, 0.25); /* not applied */
    png_write_info(png, info);
    for (int y = 0; y < height; y++) {
        rows[y] = calloc(1, sizeof row);
        for (int x = 0; x < width; x++) {
            int value[4] = {0};
            for (int c = 0; c < channels; c++) {
                const int at = x * channels + c, v = rand() & top;
                value[c] = v;
                if (bits == 16) {
                    rows[y][2 * at] = (png_byte)(v >> 8);
                    rows[y][2 * at + 1] = (png_byte)v;
                } else {
                    rows[y][at * bits / 8] |= (png_byte)(v << (8 - bits - at * bits % 8));
                }
            }
            for (int c = 0; c < 3; c++, want++) {
                const int v = value[channels > 2 ? c : 0];
                *want = bits == 16 ? v >> 8 : 255 / top * v;
                if (colour == PNG_COLOR_TYPE_PALETTE)
                    *want = c == 0 ? palette[v].red : c == 1 ? palette[v].green : palette[v].blue;
            }
        }
    }
    png_write_image(png, rows);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    for (int y = 0; y < height; y++)
        free(rows[y]);
    fclose(out);
}

static void image_read__reads_every_kind_of_png_as_pillow_does(void **state)
{
    enum { W = 19, H = 11 };
    static const int kinds[][2] = {
        {0, 1 },
        {0, 2 },
        {0, 4 },
        {0, 8 },
        {0, 16},
        {2, 8 },
        {2, 16},
        {3, 1 },
        {3, 2 },
        {3, 4 },
        {3, 8 },
        {4, 8 },
        {4, 16},
        {6, 8 },
        {6, 16}
    };
    unsigned char want[W * H * 3];
    (void)state;
    srand(5);
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds; i++) {
        const int *kind = kinds[i / 2];
        struct pixels pixels = {0};
        struct err err = {0};
        put_png_of("kind.png", kind[0], kind[1], i % 2 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                   want, W, H);
        if (image_read(in_folder("kind.png"), &pixels, &err) != OK)
            fail_msg("%s", err.msg);
        assert_int_equal(pixels.width, W);
        assert_int_equal(pixels.height, H);
        for (int at = 0; at < W * H * 3; at++)
            if (pixels.rgb[at] != want[at])
                fail_msg("colour type %d, %d bits: byte %d is %d, not %d", kind[0], kind[1], at,
                         pixels.rgb[at], want[at]);
        free(pixels.rgb);
    }
}

#ifdef ELAPSE_WEBP
static void image_read__reads_webp_without_its_alpha(void **state)
{
    enum { W = 20, H = 12 };
    unsigned char *want = picture(W, H), rgba[W * H * 4], *bytes = NULL;
    struct pixels pixels = {0};
    struct err err = {0};
    size_t size = 0;
    (void)state;
    size = WebPEncodeLosslessRGB(want, W, H, 3 * W, &bytes);
    put_bytes("a.webp", bytes, size);
    assert_int_equal(image_read(in_folder("a.webp"), &pixels, &err), OK);
    assert_int_equal(pixels.width, W);
    assert_int_equal(pixels.height, H);
    assert_memory_equal(pixels.rgb, want, W * H * 3);
    free(pixels.rgb);
    for (size_t cut = 0; cut < size; cut += 3) {
        put_bytes("a.webp", bytes, cut);
        err = (struct err){0};
        assert_int_equal(image_read(in_folder("a.webp"), &pixels, &err), ERR_INPUT);
    }
    WebPFree(bytes);
    for (int i = 0; i < W * H; i++) {
        memcpy(rgba + 4 * i, want + 3 * i, 3);
        rgba[4 * i + 3] = i % 2 ? 255 : 51; /* a fifth */
    }
    size = WebPEncodeLosslessRGBA(rgba, W, H, 4 * W, &bytes);
    put_bytes("a.webp", bytes, size);
    WebPFree(bytes);
    err = (struct err){0};
    assert_int_equal(image_read(in_folder("a.webp"), &pixels, &err), OK);
    for (int i = 0; i < W * H * 3; i++)
        assert_int_equal(pixels.rgb[i], want[i]);
    free(pixels.rgb);
    free(want);
}
#endif

static void image_square__keeps_ramps_and_takes_the_middle(void **state)
{
    (void)state;
    static const int shapes[][3] = {
        {64, 32, 8 },
        {30, 50, 10},
        {16, 16, 16},
        {4,  4,  12},
        {9,  7,  3 }
    };
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int w = shapes[s][0], h = shapes[s][1], side = shapes[s][2], n = w < h ? w : h;
        struct pixels pixels = {w, h, picture(w, h)};
        float *planes = malloc((size_t)side * (size_t)side * 3 * sizeof *planes);
        assert_int_equal(image_square(&pixels, side, planes, NULL), OK);
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++) {
                /* A ramp keeps its values; at the border the filter is cut. */
                double reach = n > side ? (double)n / side : 1;
                double cx = (w - n) / 2 + (x + .5) * n / side - .5;
                double cy = (h - n) / 2 + (y + .5) * n / side - .5;
                double slack =
                    255. / n * (x == 0 || y == 0 || x + 1 == side || y + 1 == side ? reach : .1) +
                    1.01;
                if (fabs(planes[y * side + x] - 255 * cx / w) > slack ||
                    fabs(planes[side * side + y * side + x] - 255 * cy / h) > slack)
                    fail_msg("%d x %d to %d: pixel %d, %d is %g, %g", w, h, side, x, y,
                             (double)planes[y * side + x],
                             (double)planes[side * side + y * side + x]);
                assert_true(fabsf(planes[2 * side * side + y * side + x] - 77) < 1e-3f);
            }
        free(planes);
        free(pixels.rgb);
    }
}

static void images_open__scales_only_when_asked(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    float image[3 * 256];
    const struct sample_out out = {.image = image};
    (void)state;
    make_tree();
    put_png("train/cat/wide.png", 40, 24);
    make_job(&job, model, DATA_IMAGES, "", NULL);
    refuse_check(&job, ERR_INPUT, "wide.png' has 40 x 24 pixels, the model takes 16 x 16");
    job.data.resize = true;
    refuse_check(&job, OK, "");
    assert_int_equal(dataset_open(&job, &data, &err), OK);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 4);
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 2, &out, &err), OK);
    assert_true(fabsf(image[8 * 16 + 8] + .0f) < .1f); /* the middle stays in the middle */
    dataset_clear(&data);
    job_clear(&job);
}

/* Pictures of a folder, and those of a question, by the rules that lie beside the weights. */
static void dataset_open_for__prepares_pictures_as_the_weights_say(void **state)
{
    struct job job;
    struct dataset data = {0}, asked = {0};
    struct preprocess rules;
    struct pixels pixels = {0};
    struct err err = {0};
    float image[3 * 256], want[3 * 256];
    const struct sample_out out = {.image = image};
    const char *paths[] = {in_folder("train/cat/wide.png")};
    char wide[256], weights[256];
    (void)state;
    make_tree();
    put_png("train/cat/wide.png", 40, 24);
    snprintf(wide, sizeof wide, "%s", in_folder("train/cat/wide.png"));
    snprintf(weights, sizeof weights, "%s", in_folder("."));
    paths[0] = wide;
    make_job(&job, model, DATA_IMAGES, "", NULL);
    put_text("preprocessor_config.json",
             "{\"image_processor_type\": \"ViTImageProcessor\", \"size\": 16, \"resample\": 3, "
             "\"image_mean\": [0.4, 0.3, 0.2], \"image_std\": [0.2, 0.3, 0.4]}");
    if (dataset_open_for(&job, weights, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_true(data.pixel_mean[2] == .2f && data.pixel_std[0] == .2f);
    assert_non_null(strstr(data.notes, "preprocessor_config.json"));
    assert_int_equal(preprocess_read(weights, &rules, &err), OK);
    assert_int_equal(image_read(wide, &pixels, &err), OK);
    assert_int_equal(preprocess_apply(&rules, &pixels, 16, want, &err), OK);
    assert_int_equal(data.check(&data, SPLIT_TRAIN, 2, &err), OK);
    assert_int_equal(data.sample(&data, SPLIT_TRAIN, 2, &out, &err), OK);
    assert_memory_equal(image, want, sizeof want);
    assert_int_equal(pictures_open(&data, 16, paths, 1, &asked, &err), OK);
    memset(image, 0, sizeof image);
    assert_int_equal(asked.sample(&asked, SPLIT_TEST, 0, &out, &err), OK);
    assert_memory_equal(image, want, sizeof want);
    free(pixels.rgb);
    preprocess_clear(&rules);
    dataset_clear(&asked);
    dataset_clear(&data);
    put_text("preprocessor_config.json",
             "{\"image_processor_type\": \"ViTImageProcessor\", \"size\": 8}");
    assert_int_equal(dataset_open_for(&job, weights, &data, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "gives pictures of 8 x 8 pixels, the model takes 16 x 16"));
    job_clear(&job);
}

static void images_open__names_the_file_of_bad_input(void **state)
{
    static const unsigned char huge_png[] = {
        0x89, 'P',  'N',  'G',  '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0x7f,
        0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 8,    2, 0, 0, 0,  0,   0,   0,   0};
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    float image[3 * 256];
    const struct sample_out out = {.image = image};
    (void)state;
    make_tree();
    make_job(&job, model, DATA_IMAGES, "", NULL);
    put_text("train/cat/x.png", "GIF89a, really");
    refuse_check(&job, ERR_INPUT, "x.png' is none of JPEG, PNG, BMP and WebP");
    put_text("train/cat/x.png", "");
    refuse_check(&job, ERR_INPUT, "x.png' is none of JPEG, PNG, BMP and WebP");
    put_bytes("train/cat/x.png", huge_png, sizeof huge_png);
    refuse_check(&job, ERR_INPUT, "x.png'");
    put_bytes("train/cat/x.png", "\xff\xd8\xff\xe0", 4);
    refuse_check(&job, ERR_INPUT, "x.png'");
    unlink(in_folder("train/cat/x.png"));
    /* Damage behind the header is found by the check, and when the sample is asked for. */
    for (int kind = 0; kind < 2; kind++) {
        const char *name = kind ? "train/cat/a.JPG" : "train/cat/b.png";
        struct stat st;
        assert_int_equal(stat(in_folder(name), &st), 0);
        assert_int_equal(truncate(in_folder(name), st.st_size - 20), 0);
        refuse_check(&job, ERR_INPUT, kind ? "a.JPG'" : "b.png'");
        assert_int_equal(dataset_open(&job, &data, &err), OK);
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, kind ? 0 : 1, &out, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, kind ? "a.JPG" : "b.png"));
        err = (struct err){0};
        dataset_clear(&data);
    }
    assert_int_equal(mkdir(in_folder("val/bird"), 0777), 0);
    refuse_open(&job, ERR_INPUT, "class 'bird' is not among the training classes");
    rmdir(in_folder("val/bird"));
    assert_int_equal(mkdir(in_folder("train/eel"), 0777), 0);
    refuse_open(&job, ERR_INPUT, "holds 3 folders, a class each");
    rmdir(in_folder("train/eel"));
    unlink(in_folder("val/dog/d.png"));
    refuse_open(&job, ERR_INPUT, "/val': no picture of class 'dog'");
    job_clear(&job);
    make_job(&job, model, DATA_IMAGES, "nowhere", NULL);
    refuse_open(&job, ERR_SYSTEM, "nowhere/train': No such file");
    job_clear(&job);
}

/* As torchvision's ImageFolder: pictures may lie deeper, suffixes may be capitals. */
static void images_open__reads_nested_folders_and_says_what_it_leaves_out(void **state)
{
    struct job job;
    struct dataset data = {0};
    struct err err = {0};
    int32_t label;
    const struct sample_out out = {.labels = &label};
    (void)state;
    make_tree();
    assert_int_equal(mkdir(in_folder("train/cat/more"), 0777), 0);
    assert_int_equal(mkdir(in_folder("train/cat/more/deep"), 0777), 0);
    put_png("train/cat/more/deep/e.PNG", 16, 16);
    put_png("train/cat/._b.png", 16, 16); /* hidden */
    put_png("train/f.png", 16, 16);       /* in no class */
    make_job(&job, model, DATA_IMAGES, "", NULL);
    if (dataset_open(&job, &data, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(data.num_samples[SPLIT_TRAIN], 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(data.sample(&data, SPLIT_TRAIN, i, &out, &err), OK);
        assert_int_equal(label, i == 3);
    }
    assert_string_equal(data.class_names[0], "cat");
    assert_string_equal(data.class_names[1], "dog");
    assert_non_null(strstr(data.notes, "training pictures of 2 classes: 1 .jpg, 1 .jpeg, 2 .png"));
    assert_non_null(strstr(data.notes, "/train': 3 files are left out, such as '"));
    assert_non_null(strstr(data.notes, "/val' has folders of 1 of 2 classes"));
    dataset_clear(&data);
    assert_int_equal(symlink("..", in_folder("train/cat/more/loop")), 0);
    refuse_open(&job, ERR_INPUT, "is more than 32 folders deep");
    job_clear(&job);
}

static void images_open__refuses_a_class_without_pictures_by_name(void **state)
{
    struct job job;
    (void)state;
    make_tree();
    assert_int_equal(mkdir(in_folder("train/cow"), 0777), 0);
    put_text("train/cow/a.gif", "GIF89a");
    make_job(&job, "vit-tiny:image=16,patch=8,classes=3,layers=1", DATA_IMAGES, "", NULL);
    refuse_open(&job, ERR_INPUT, "/train': no picture of class 'cow'");
    unlink(in_folder("train/cow/a.gif"));
    rmdir(in_folder("train/cow"));
    refuse_open(&job, ERR_INPUT, "has 3 classes, '");
    job_clear(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            images_open__reads_nested_folders_and_says_what_it_leaves_out, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(images_open__refuses_a_class_without_pictures_by_name,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(images_open__numbers_classes_by_name_and_decodes_both_kinds,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(image_read__reads_every_kind_of_png_as_pillow_does,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(image_read__makes_colours_of_four_inks, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(
            image_read__refuses_progressive_images_above_its_limit_of_memory, make_folder,
            remove_folder),
        cmocka_unit_test_setup_teardown(image_read__refuses_images_of_too_many_scans, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(image_read__passes_over_bytes_behind_the_pixels,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(image_read__reads_bmp_of_each_kind, make_folder,
                                        remove_folder),
#ifdef ELAPSE_WEBP
        cmocka_unit_test_setup_teardown(image_read__reads_webp_without_its_alpha, make_folder,
                                        remove_folder),
#endif
        cmocka_unit_test(image_square__keeps_ramps_and_takes_the_middle),
        cmocka_unit_test_setup_teardown(images_open__scales_only_when_asked, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(dataset_open_for__prepares_pictures_as_the_weights_say,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(images_open__names_the_file_of_bad_input, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
