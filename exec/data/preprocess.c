/* exec/data/preprocess.c - reads preprocessor_config.json and prepares pictures by it (preprocess.h).
 *
 * `kinds` has the processors that are known and what they do where the file is silent; `keys` says which
 * other keys change nothing. Everything else is refused by name, because a processor's own steps are
 * code of transformers, not in the file. Read read_rules() first, then preprocess_apply(). */
#include "exec/data/preprocess.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "profiles/json/json.h"

#define CONFIG_FILE "preprocessor_config.json"

enum { MOST_PIXELS = 8192 };

struct kind {
    const char *name; /* the processor's, without a suffix such as Fast */
    int size, crop;   /* crop 0: the middle is not cut out */
    bool shortest;    /* a plain number in size is the shorter side */
    enum resample resample;
    float mean[3], deviation[3];
};
static const struct kind kinds[] = {
    {"ViT",  224, 0,   false, RESAMPLE_BILINEAR, {.5f, .5f, .5f}, {.5f, .5f, .5f}},
    {"DeiT", 256, 224, false, RESAMPLE_BICUBIC,  {.5f, .5f, .5f}, {.5f, .5f, .5f}},
    {"CLIP",
     224,         224,
     true,                    RESAMPLE_BICUBIC,
     {.48145466f, .4578275f, .40821073f},
     {.26862954f, .26130258f, .27577711f}                                        },
};
static const char *const suffixes[] = {"ImageProcessor", "ImageProcessorFast", "ImageProcessorPil",
                                       "FeatureExtractor"};

/* Keys that are read, and those that change nothing. A key with null is absent. */
static const char *const keys[] = {"do_resize",
                                   "size",
                                   "resample",
                                   "do_center_crop",
                                   "crop_size",
                                   "do_rescale",
                                   "rescale_factor",
                                   "do_normalize",
                                   "image_mean",
                                   "image_std",
                                   "image_processor_type",
                                   "feature_extractor_type",
                                   "processor_class",
                                   "do_convert_rgb",
                                   "data_format",
                                   "input_data_format",
                                   "default_to_square",
                                   "return_tensors",
                                   "device",
                                   "disable_grouping",
                                   "_valid_processor_keys",
                                   "auto_map"};

void preprocess_clear(struct preprocess *rules)
{
    free(rules->text);
    *rules = (struct preprocess){0};
}

static bool is_absent(const struct json *value)
{
    return !value || json_type(value) == JSON_NULL;
}

static enum status refuse(const char *path, const char *key, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "'%s': %s %s", path, key, what);
}

static enum status find_kind(const struct json *root, const char *path, const struct kind **kind,
                             struct err *err)
{
    const struct json *value = json_get(root, "image_processor_type");
    const char *name = json_string(value ? value : json_get(root, "feature_extractor_type"));
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
        const size_t n = strlen(kinds[i].name);
        for (size_t s = 0; s < sizeof suffixes / sizeof *suffixes; s++)
            if (strncmp(name, kinds[i].name, n) == 0 && strcmp(name + n, suffixes[s]) == 0) {
                *kind = &kinds[i];
                return OK;
            }
    }
    return err_set(err, ERR_INPUT,
                   "'%s': image_processor_type must be a processor of ViT, DeiT or CLIP, got '%s'",
                   path, name ? name : "none");
}

static enum status read_bool(const struct json *root, const char *path, const char *key, bool *to,
                             struct err *err)
{
    const struct json *value = json_get(root, key);
    if (is_absent(value))
        return OK;
    *to = json_true(value);
    return json_type(value) == JSON_BOOL ? OK : refuse(path, key, "must be true or false", err);
}

static enum status read_pixels(const struct json *value, const char *path, const char *key, int *to,
                               struct err *err)
{
    int64_t got = 0;
    if (!json_int64(value, &got) || got < 1 || got > MOST_PIXELS)
        return err_set(err, ERR_INPUT, "'%s': %s must be 1..%d pixels", path, key, MOST_PIXELS);
    *to = (int)got;
    return OK;
}

/* A size: a number, {"height", "width"} or {"shortest_edge"}. shortest NULL: that form is refused. */
static enum status read_size(const struct json *root, const char *path, const char *key,
                             bool number_is_shortest, int *height, int *width, int *shortest,
                             struct err *err)
{
    const struct json *value = json_get(root, key);
    enum status rc = OK;
    if (is_absent(value))
        return OK;
    *height = *width = 0;
    if (shortest)
        *shortest = 0;
    if (json_type(value) == JSON_NUMBER) {
        rc = read_pixels(value, path, key, number_is_shortest && shortest ? shortest : height, err);
        *width = *height;
        return rc;
    }
    if (json_type(value) == JSON_OBJECT && json_count(value) == 2 && json_get(value, "height") &&
        json_get(value, "width")) {
        rc = read_pixels(json_get(value, "height"), path, key, height, err);
        THEN(read_pixels(json_get(value, "width"), path, key, width, err));
        return rc;
    }
    if (shortest && json_type(value) == JSON_OBJECT && json_count(value) == 1 &&
        json_get(value, "shortest_edge"))
        return read_pixels(json_get(value, "shortest_edge"), path, key, shortest, err);
    return refuse(path, key, "must be a number, a height and a width, or a shortest_edge", err);
}

/* One number for all channels, or three. */
static enum status read_channels(const struct json *root, const char *path, const char *key,
                                 float to[3], struct err *err)
{
    const struct json *value = json_get(root, key);
    const bool list = !is_absent(value) && json_type(value) == JSON_ARRAY;
    if (is_absent(value))
        return OK;
    if (list && json_count(value) != 3)
        return refuse(path, key, "must have 3 numbers", err);
    for (int c = 0; c < 3; c++) {
        to[c] = (float)json_number(list ? json_at(value, c) : value);
        if (!isfinite(to[c]))
            return refuse(path, key, "must have 3 numbers", err);
    }
    return OK;
}

static enum status check_keys(const struct json *root, const char *path, struct err *err)
{
    if (json_type(root) != JSON_OBJECT)
        return err_set(err, ERR_INPUT, "'%s' is not an object", path);
    for (const struct json *m = json_first(root); m; m = json_next(m)) {
        bool known = is_absent(m);
        for (size_t i = 0; !known && i < sizeof keys / sizeof *keys; i++)
            known = strcmp(json_key(m), keys[i]) == 0;
        if (!known)
            return err_set(err, ERR_INPUT, "'%s': key '%s' is not known", path, json_key(m));
    }
    return OK;
}

/* The mean and deviation of p / 255 for a model that gets (p * factor - mean) / deviation. */
static enum status read_levels(const struct json *root, const char *path, struct preprocess *rules,
                               struct err *err)
{
    const struct json *given = json_get(root, "rescale_factor");
    double factor = is_absent(given) ? 1. / 255 : json_number(given);
    bool rescales = true, normalizes = true;
    enum status rc = read_bool(root, path, "do_rescale", &rescales, err);
    THEN(read_bool(root, path, "do_normalize", &normalizes, err));
    THEN(read_channels(root, path, "image_mean", rules->mean, err));
    THEN(read_channels(root, path, "image_std", rules->deviation, err));
    if (rc == OK && !(factor > 0 && isfinite(factor)))
        rc = refuse(path, "rescale_factor", "must be above 0", err);
    for (int c = 0; rc == OK && c < 3; c++) {
        const double scale = 255 * (rescales ? factor : 1);
        if (!(rules->deviation[c] > 0))
            return refuse(path, "image_std", "must be above 0", err);
        rules->mean[c] = normalizes ? (float)(rules->mean[c] / scale) : 0;
        rules->deviation[c] = (float)((normalizes ? rules->deviation[c] : 1) / scale);
    }
    return rc;
}

static enum status read_rules(const struct json *root, const char *path, struct preprocess *rules,
                              struct err *err)
{
    const struct kind *kind = NULL;
    struct preprocess got = {0};
    enum status rc = check_keys(root, path, err);
    THEN(find_kind(root, path, &kind, err));
    if (rc != OK)
        return rc;
    got.resizes = true;
    got.crops = kind->crop > 0;
    got.crop_height = got.crop_width = kind->crop;
    got.resample = kind->resample;
    *(kind->shortest ? &got.shortest_edge : &got.height) = kind->size;
    got.width = got.height;
    memcpy(got.mean, kind->mean, sizeof got.mean);
    memcpy(got.deviation, kind->deviation, sizeof got.deviation);
    rc = read_bool(root, path, "do_resize", &got.resizes, err);
    THEN(read_bool(root, path, "do_center_crop", &got.crops, err));
    THEN(read_size(root, path, "size", kind->shortest, &got.height, &got.width, &got.shortest_edge,
                   err));
    THEN(read_size(root, path, "crop_size", false, &got.crop_height, &got.crop_width, NULL, err));
    if (rc == OK && got.crops && got.crop_height == 0)
        rc = refuse(path, "crop_size", "is missing", err);
    if (rc == OK && !is_absent(json_get(root, "resample"))) {
        int64_t number = -1;
        if (!json_int64(json_get(root, "resample"), &number) || number < 0 ||
            number >= RESAMPLE_COUNT)
            rc = refuse(path, "resample", "must be 0 to 5, a filter of Pillow", err);
        else
            got.resample = (enum resample)number;
    }
    THEN(read_levels(root, path, &got, err));
    THEN(json_text(root, false, &got.text, err));
    if (rc == OK)
        *rules = got;
    return rc;
}

/* The manifest of a checkpoint of ours names the processor that its run read. */
static enum status read_manifest(const char *path, struct preprocess *rules, struct err *err)
{
    struct json *manifest = NULL;
    enum status rc = json_read_file(path, &manifest, err);
    if (rc == OK && json_true(json_get(manifest, "preprocessor_read")) &&
        json_get(manifest, "preprocessor"))
        rc = read_rules(json_get(manifest, "preprocessor"), path, rules, err);
    json_free(manifest);
    return rc;
}

enum status preprocess_read(const char *weights, struct preprocess *rules, struct err *err)
{
    char *folder = NULL, *config = NULL, *manifest = NULL;
    struct json *root = NULL;
    struct stat st;
    enum status rc = OK;
    *rules = (struct preprocess){0};
    if (!weights || stat(weights, &st) != 0)
        return OK; /* whoever opens the weights says so */
    const char *slash = strrchr(weights, '/');
    folder = S_ISDIR(st.st_mode) ? strdup(weights)
             : !slash            ? strdup(".")
                                 : strndup(weights, (size_t)(slash - weights) + 1);
    if (!folder || asprintf(&config, "%s/" CONFIG_FILE, folder) < 0 ||
        asprintf(&manifest, "%s/manifest.json", folder) < 0) {
        rc = err_nomem(err);
        goto out;
    }
    if (S_ISDIR(st.st_mode) && stat(manifest, &st) == 0)
        rc = read_manifest(manifest, rules, err);
    else if (stat(config, &st) == 0) {
        rc = json_read_file(config, &root, err);
        THEN(read_rules(root, config, rules, err));
    }
out:
    json_free(root);
    free(folder);
    free(config);
    free(manifest);
    return rc;
}

enum status preprocess_check_side(const struct preprocess *rules, int side, struct err *err)
{
    const int height = rules->crops ? rules->crop_height : rules->height;
    const int width = rules->crops ? rules->crop_width : rules->width;
    if (!rules->crops && (!rules->resizes || rules->shortest_edge))
        return OK; /* as each picture has it */
    if (height == side && width == side)
        return OK;
    err_set(err, ERR_INPUT,
            CONFIG_FILE " gives pictures of %d x %d pixels, the model takes %d x %d", width, height,
            side, side);
    err_hint(err, "set model.image, or correct size or crop_size in the file");
    return ERR_INPUT;
}

/* Sides after scaling: with shortest_edge the longer one is rounded down. */
static void scaled_sides(const struct preprocess *rules, const struct pixels *p, int64_t *width,
                         int64_t *height)
{
    const int64_t edge = rules->shortest_edge, w = p->width, h = p->height;
    *width = !rules->resizes ? w : !edge ? rules->width : w > h ? edge * w / h : edge;
    *height = !rules->resizes ? h : !edge ? rules->height : w > h ? edge : edge * h / w;
}

enum status preprocess_check(const struct preprocess *rules, const char *path,
                             const struct pixels *pixels, int side, struct err *err)
{
    int64_t width, height;
    scaled_sides(rules, pixels, &width, &height);
    const bool fits = rules->crops ? rules->crop_width == side && rules->crop_height == side
                                   : width == side && height == side;
    if (fits && width <= IMAGE_MAX_SIDE && height <= IMAGE_MAX_SIDE)
        return OK;
    return err_set(
        err, ERR_INPUT,
        "'%s': %d x %d pixels become %lld x %lld by " CONFIG_FILE ", the model takes %d x %d", path,
        pixels->width, pixels->height, (long long)width, (long long)height, side, side);
}

enum status preprocess_apply(const struct preprocess *rules, const struct pixels *pixels, int side,
                             float *planes, struct err *err)
{
    struct pixels scaled = *pixels;
    int64_t wide, high;
    enum status rc = OK;
    scaled_sides(rules, pixels, &wide, &high);
    const int width = (int)wide, height = (int)high;
    const bool scales = width != pixels->width || height != pixels->height;
    if (scales)
        rc = resample(pixels, width, height, rules->resample, &scaled, err);
    if (rc != OK)
        return rc;
    /* A picture that is smaller than what is cut out has a black border. */
    const int top = height < side ? -((side - height) / 2) : (height - side) / 2;
    const int left = width < side ? -((side - width) / 2) : (width - side) / 2;
    for (int c = 0; c < 3; c++) {
        const float scale = 1.0f / (255.0f * rules->deviation[c]);
        const float shift = rules->mean[c] / rules->deviation[c];
        for (int y = 0; y < side; y++)
            for (int x = 0; x < side; x++) {
                const int sy = y + top, sx = x + left;
                const bool in = sy >= 0 && sy < height && sx >= 0 && sx < width;
                const size_t at = ((size_t)sy * (size_t)width + (size_t)sx) * 3 + (size_t)c;
                *planes++ = (in ? (float)scaled.rgb[at] : 0) * scale - shift;
            }
    }
    if (scales)
        free(scaled.rgb);
    return rc;
}
