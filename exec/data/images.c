/* exec/data/images.c - a folder of pictures, one folder a class.
 *
 * data.path holds train/CLASS/FILE and val/CLASS/FILE (or test/CLASS/FILE), the layout of
 * torchvision's ImageFolder: a class is a folder of train, its pictures lie in it or in folders
 * inside, and the suffix of a name, in any case of letters, says whether it is a picture. Classes
 * are numbered by their sorted names; samples are ordered by class, then by folder and name. A
 * class without a picture is refused. Opening reads the folders; files are read by images_check(),
 * and when a sample is asked for. With data.resize the central square of a picture is scaled to the
 * model's side; otherwise its size must match. Pixels become (p / 255 - 0.5) / 0.5, as in ViT's own
 * preprocessing. Weights with a preprocessor_config.json say all of that themselves (preprocess.h).
 * Read images_open() first, then read_split() and images_sample(). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "exec/data/dataset.h"
#include "exec/data/image_file.h"
#include "partition/base/arrays.h"
#include "partition/base/units.h"

struct name_list {
    char **at; /* owned, like each name */
    int64_t count, room;
};
struct picture_list {
    char **path; /* owned, like each path */
    int32_t *label;
    int64_t count, room;
};
struct images {
    bool resize;
    struct picture_list splits[SPLIT_COUNT];
};

static void name_list_clear(struct name_list *list)
{
    for (int64_t i = 0; i < list->count; i++)
        free(list->at[i]);
    free(list->at);
    *list = (struct name_list){0};
}

static void images_clear(struct dataset *dataset)
{
    struct images *images = dataset->ctx;
    for (int split = 0; images && split < SPLIT_COUNT; split++) {
        struct picture_list *list = &images->splits[split];
        for (int64_t i = 0; i < list->count; i++)
            free(list->path[i]);
        free(list->path);
        free(list->label);
    }
    free(images);
    dataset->ctx = NULL;
}

/* The suffixes that are read, in any case of letters. */
static const char *const suffixes[] = {IMAGE_SUFFIXES};
enum { NUM_SUFFIXES = sizeof suffixes / sizeof *suffixes, MAX_DEPTH = 32, NAMED_CLASSES = 5 };

/* The images found in a split's folders. */
struct tally {
    int64_t of_suffix[NUM_SUFFIXES];
    int64_t left_out; /* files that are no pictures by their name, or hidden */
    char *first;      /* owned: the first of them */
};

/* The place of a name's suffix in `suffixes`; -1: it is no picture. */
static int suffix_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && i < NUM_SUFFIXES; i++)
        if (strcasecmp(dot, suffixes[i]) == 0)
            return i;
    return -1;
}

static enum status add_name(struct name_list *list, const char *name, struct err *err)
{
    if (!array_grow(&list->at, list->count + 1, &list->room, sizeof *list->at))
        return err_nomem(err);
    list->at[list->count] = strdup(name);
    if (!list->at[list->count])
        return err_nomem(err);
    list->count++;
    return OK;
}

static enum status leave_out(struct tally *tally, const char *dir, const char *name,
                             struct err *err)
{
    if (tally->left_out++ == 0 && asprintf(&tally->first, "%s/%s", dir, name) < 0) {
        tally->first = NULL;
        return err_nomem(err);
    }
    return OK;
}

/* Add a name to one of the lists, or count it as left out. pictures may be NULL. */
static enum status list_name(const char *dir, int folder, const char *name,
                             struct name_list *folders, struct name_list *pictures,
                             struct tally *tally, struct err *err)
{
    const bool hidden = name[0] == '.';
    const int suffix = suffix_of(name);
    struct stat st;
    if (fstatat(folder, name, &st, 0) != 0) {
        if (errno == ENOENT || errno == ELOOP) /* a link to nothing */
            return hidden ? OK : leave_out(tally, dir, name, err);
        return err_set(err, ERR_SYSTEM, "cannot open '%s/%s': %s", dir, name, strerror(errno));
    }
    if (S_ISDIR(st.st_mode))
        return hidden ? OK : add_name(folders, name, err);
    if (suffix >= 0 && !hidden && pictures && S_ISREG(st.st_mode)) {
        tally->of_suffix[suffix]++;
        return add_name(pictures, name, err);
    }
    return suffix >= 0 || (!hidden && pictures) ? leave_out(tally, dir, name, err) : OK;
}

static void sort_names(struct name_list *list)
{
    if (list->count > 1)
        qsort(list->at, (size_t)list->count, sizeof *list->at, compare_texts);
}

/* The sorted names of a folder's folders and of its pictures. Hidden folders, and hidden files that
 * are no pictures, are passed over in silence. pictures NULL: pictures are left out, too. */
static enum status list_names(const char *dir, struct name_list *folders,
                              struct name_list *pictures, struct tally *tally, struct err *err)
{
    enum status rc = OK;
    struct dirent *entry;
    DIR *folder = opendir(dir);
    if (!folder)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", dir, strerror(errno));
    while (rc == OK && (errno = 0, entry = readdir(folder)))
        rc = list_name(dir, dirfd(folder), entry->d_name, folders, pictures, tally, err);
    if (rc == OK && errno != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", dir, strerror(errno));
    closedir(folder);
    sort_names(folders);
    if (pictures)
        sort_names(pictures);
    return rc;
}

static enum status add_picture(struct picture_list *list, char *path, int32_t label,
                               struct err *err)
{
    int64_t room = list->room;
    if (!array_grow(&list->path, list->count + 1, &room, sizeof *list->path) ||
        !array_grow(&list->label, list->count + 1, &list->room, sizeof *list->label))
        return err_nomem(err);
    list->path[list->count] = path;
    list->label[list->count++] = label;
    return OK;
}

/* The pictures of one class: those of its folder, then those of the folders in it. */
static enum status read_class(const char *dir, int32_t label, int depth, struct picture_list *list,
                              struct tally *tally, struct err *err)
{
    struct name_list folders = {0}, files = {0};
    enum status rc = list_names(dir, &folders, &files, tally, err);
    if (rc == OK && folders.count > 0 && depth == MAX_DEPTH)
        rc = err_set(err, ERR_INPUT, "'%s' is more than %d folders deep", dir, MAX_DEPTH);
    for (int64_t i = 0; rc == OK && i < files.count; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", dir, files.at[i]) < 0) {
            rc = err_nomem(err);
            break;
        }
        rc = add_picture(list, path, label, err);
        if (rc != OK)
            free(path);
    }
    for (int64_t i = 0; rc == OK && i < folders.count; i++) {
        char *inner = NULL;
        if (asprintf(&inner, "%s/%s", dir, folders.at[i]) < 0)
            inner = NULL;
        rc = inner ? read_class(inner, label, depth + 1, list, tally, err) : err_nomem(err);
        free(inner);
    }
    name_list_clear(&folders);
    name_list_clear(&files);
    return rc;
}

/* Refuses a split with classes that have a folder but no picture, by their names. */
static enum status refuse_empty(const char *dir, const struct name_list *empty,
                                const struct tally *tally, struct err *err)
{
    char names[300] = "";
    for (int64_t i = 0; i < empty->count && i < NAMED_CLASSES; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.40s'", i ? ", " : "",
                 empty->at[i]);
    err_set(err, ERR_INPUT, "'%s': no picture of class %s%s", dir, names,
            empty->count > NAMED_CLASSES ? " and others" : "");
    if (tally->left_out > 0)
        err_hint(err, "%lld files are left out, such as '%.200s'; elapse reads " IMAGE_SUFFIX_TEXT,
                 (long long)tally->left_out, tally->first);
    else
        err_hint(err, "elapse reads " IMAGE_SUFFIX_TEXT);
    return ERR_INPUT;
}

/* Says what a split holds, and what was left out. */
static enum status describe_split(struct dataset *dataset, enum split split, const char *dir,
                                  int64_t classes, const struct tally *tally, struct err *err)
{
    char found[200] = "";
    for (int i = 0; i < NUM_SUFFIXES; i++)
        if (tally->of_suffix[i] > 0)
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s%lld %s",
                     *found ? ", " : "", (long long)tally->of_suffix[i], suffixes[i]);
    enum status rc = dataset_note(dataset, err, "%s pictures of %lld classes: %s",
                                  dataset_split_name(split), (long long)classes, found);
    if (rc == OK && tally->left_out > 0)
        rc = dataset_note(dataset, err, "'%s': %lld files are left out, such as '%s'", dir,
                          (long long)tally->left_out, tally->first);
    return rc;
}

static enum status read_split(struct dataset *dataset, enum split split, const char *dir,
                              const struct name_list *classes, struct err *err)
{
    struct images *images = dataset->ctx;
    struct picture_list *list = &images->splits[split];
    struct name_list found = {0}, empty = {0};
    struct tally tally = {0};
    enum status rc = list_names(dir, &found, NULL, &tally, err);
    for (int64_t i = 0; rc == OK && i < found.count; i++) {
        char **same = bsearch(&found.at[i], classes->at, (size_t)classes->count,
                              sizeof *classes->at, compare_texts);
        const int64_t before = list->count;
        char *folder = NULL;
        if (!same) {
            rc = err_set(err, ERR_INPUT, "'%s/%s': class '%s' is not among the training classes",
                         dir, found.at[i], found.at[i]);
            break;
        }
        if (asprintf(&folder, "%s/%s", dir, found.at[i]) < 0)
            folder = NULL;
        rc = folder ? read_class(folder, (int32_t)(same - classes->at), 1, list, &tally, err)
                    : err_nomem(err);
        if (rc == OK && list->count == before)
            rc = add_name(&empty, found.at[i], err);
        free(folder);
    }
    if (rc == OK && empty.count > 0)
        rc = refuse_empty(dir, &empty, &tally, err);
    if (rc == OK && list->count == 0)
        rc = err_set(err, ERR_INPUT, "'%s' holds no folder of a class", dir);
    if (rc == OK && found.count < classes->count)
        rc = dataset_note(dataset, err, "'%s' has folders of %lld of %lld classes", dir,
                          (long long)found.count, (long long)classes->count);
    THEN(describe_split(dataset, split, dir, found.count, &tally, err));
    dataset->num_samples[split] = list->count;
    free(tally.first);
    name_list_clear(&found);
    name_list_clear(&empty);
    return rc;
}

/* Decodes a picture and checks its size. The caller frees pixels->rgb. */
static enum status read_picture(const struct dataset *dataset, const char *path,
                                struct pixels *pixels, struct err *err)
{
    const struct images *images = dataset->ctx;
    const int side = dataset->image;
    const enum status rc = image_read(path, pixels, err);
    if (rc == OK && dataset->rules)
        return preprocess_check(dataset->rules, path, pixels, side, err);
    if (rc != OK || images->resize || (pixels->width == side && pixels->height == side))
        return rc;
    err_set(err, ERR_INPUT, "'%s' has %d x %d pixels, the model takes %d x %d", path, pixels->width,
            pixels->height, side, side);
    err_hint(err, "set data.resize to true");
    return ERR_INPUT;
}

static const char *images_file(const struct dataset *dataset, enum split split, int64_t id)
{
    return ((const struct images *)dataset->ctx)->splits[split].path[id];
}

static enum status images_check(const struct dataset *dataset, enum split split, int64_t id,
                                struct err *err)
{
    struct pixels pixels = {0};
    const enum status rc = read_picture(dataset, images_file(dataset, split, id), &pixels, err);
    free(pixels.rgb);
    return rc;
}

static enum status images_sample(const struct dataset *dataset, enum split split, int64_t id,
                                 const struct sample_out *out, struct err *err)
{
    const struct images *images = dataset->ctx;
    const struct picture_list *list = &images->splits[split];
    struct pixels pixels = {0};
    int side = dataset->image;
    size_t n = (size_t)side * (size_t)side * 3;
    enum status rc = OK;
    if (out->labels)
        out->labels[0] = list->label[id];
    if (!out->image)
        return OK;
    rc = read_picture(dataset, list->path[id], &pixels, err);
    if (rc == OK && dataset->rules) {
        rc = preprocess_apply(dataset->rules, &pixels, side, out->image, err);
    } else if (rc == OK) {
        rc = image_square(&pixels, side, out->image, err);
        for (size_t i = 0; rc == OK && i < n; i++)
            out->image[i] = out->image[i] / 127.5f - 1.0f;
    }
    free(pixels.rgb);
    return rc;
}

/* A picture of inputs_open(), normalised as the training data: a byte p is (p / 255 - mean) / std.
 * A model of one channel sees the mean of red, green and blue. */
static enum status pictures_sample(const struct dataset *dataset, enum split split, int64_t id,
                                   const struct sample_out *out, struct err *err)
{
    const struct images *images = dataset->ctx;
    const size_t n = (size_t)dataset->image * (size_t)dataset->image;
    struct pixels pixels = {0};
    float *planes = NULL;
    if (out->labels)
        out->labels[0] = 0;
    if (!out->image)
        return OK;
    enum status rc = read_picture(dataset, images->splits[split].path[id], &pixels, err);
    if (rc == OK && !(planes = malloc(3 * n * sizeof *planes)))
        rc = err_nomem(err);
    THEN(image_square(&pixels, dataset->image, planes, err));
    for (int c = 0; rc == OK && c < dataset->channels; c++) {
        const float scale = 1.0f / (255.0f * dataset->pixel_std[c]);
        const float shift = dataset->pixel_mean[c] / dataset->pixel_std[c];
        for (size_t p = 0; p < n; p++) {
            const float byte = dataset->channels == 3
                                   ? planes[(size_t)c * n + p]
                                   : (planes[p] + planes[n + p] + planes[2 * n + p]) / 3;
            out->image[(size_t)c * n + p] = byte * scale - shift;
        }
    }
    free(planes);
    free(pixels.rgb);
    return rc;
}

enum status pictures_open(struct dataset *like, int side, const char *const *paths, int num_paths,
                          struct dataset *dataset, struct err *err)
{
    struct dataset got = {.kind = like->kind,
                          .channels = like->channels,
                          .image = side,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .classes = like->classes,
                          .sample = like->kind == DATA_IMAGES || like->rules ? images_sample
                                                                             : pictures_sample,
                          .file = images_file,
                          .check = images_check,
                          .clear = images_clear};
    struct images *images = calloc(1, sizeof *images);
    struct tally tally = {0};
    enum status rc = OK;
    if (!images)
        return err_nomem(err);
    got.ctx = images;
    images->resize = true;
    memcpy(got.pixel_mean, like->pixel_mean, sizeof got.pixel_mean);
    memcpy(got.pixel_std, like->pixel_std, sizeof got.pixel_std);
    if (like->pixel_std[0] == 0)
        rc = err_set(err, ERR_INPUT,
                     "the training data are no pictures of bytes, so none can be shown");
    for (int i = 0; i < num_paths && rc == OK; i++) {
        struct picture_list *list = &images->splits[SPLIT_TEST];
        const int64_t before = list->count;
        struct stat st;
        char *path = NULL;
        if (stat(paths[i], &st) != 0)
            rc = err_set(err, ERR_SYSTEM, "cannot open '%s': %s", paths[i], strerror(errno));
        else if (S_ISDIR(st.st_mode))
            rc = read_class(paths[i], 0, 0, list, &tally, err);
        else if (!(path = strdup(paths[i])))
            rc = err_nomem(err);
        else if ((rc = add_picture(list, path, 0, err)) != OK)
            free(path);
        if (rc == OK && list->count == before) {
            rc = err_set(err, ERR_INPUT, "'%s' holds no picture", paths[i]);
            err_hint(err, "elapse reads " IMAGE_SUFFIX_TEXT);
        }
    }
    got.num_samples[SPLIT_TEST] = images->splits[SPLIT_TEST].count;
    got.rules = like->rules;
    like->rules = NULL;
    free(tally.first);
    return dataset_hand_over(rc, &got, dataset);
}

/* The folder of a split: data.path/train; data.path/val, or test if there is no val; data.valid. */
static enum status split_folder(const struct job *job, enum split split, char **dir,
                                struct err *err)
{
    struct stat st;
    int got = -1;
    if (split == SPLIT_VALID)
        got = asprintf(dir, "%s", job->data.valid);
    else
        got = asprintf(dir, "%s/%s", job->data.path, split == SPLIT_TRAIN ? "train" : "val");
    if (got >= 0 && split == SPLIT_TEST && stat(*dir, &st) != 0) {
        free(*dir);
        got = asprintf(dir, "%s/test", job->data.path);
    }
    if (got >= 0)
        return OK;
    *dir = NULL;
    return err_nomem(err);
}

/* The classes: the folders of the training split. */
static enum status read_classes(const struct job *job, const char *train, struct name_list *classes,
                                struct err *err)
{
    struct tally tally = {0};
    enum status rc = list_names(train, classes, NULL, &tally, err);
    free(tally.first);
    if (rc == OK && classes->count < 1)
        return err_set(err, ERR_INPUT, "'%s' holds no folder of a class", train);
    if (rc == OK && classes->count != job->model.classes) {
        err_set(err, ERR_INPUT, "model '%s' has %d classes, '%s' holds %lld folders, a class each",
                job->model.name, job->model.classes, train, (long long)classes->count);
        err_hint(err, "set model.classes to %lld", (long long)classes->count);
        return ERR_INPUT;
    }
    return rc;
}

enum status images_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    struct dataset got = {.channels = 3,
                          .image = job->model.image,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .sample = images_sample,
                          .file = images_file,
                          .check = images_check,
                          .clear = images_clear};
    struct images *images = calloc(1, sizeof *images);
    struct name_list classes = {0};
    enum status rc = OK;
    if (!images)
        return err_nomem(err);
    got.ctx = images;
    images->resize = job->data.resize;
    if (job->model.family != FAMILY_VIT)
        rc = err_set(err, ERR_INPUT, "%s: model '%s' takes text, the data are images",
                     dataset_job_name(job), job->model.name);
    for (int split = 0; rc == OK && split < SPLIT_COUNT; split++) {
        char *dir = NULL;
        if (!dataset_reads(job, split))
            continue;
        rc = split_folder(job, split, &dir, err);
        if (rc == OK && split == SPLIT_TRAIN)
            rc = read_classes(job, dir, &classes, err);
        THEN(read_split(&got, split, dir, &classes, err));
        free(dir);
    }
    got.class_names = classes.at;
    got.classes = (int)classes.count;
    for (int c = 0; c < 3; c++)
        got.pixel_mean[c] = got.pixel_std[c] = 0.5f;
    return dataset_hand_over(rc, &got, dataset);
}
