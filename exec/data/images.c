/* exec/data/images.c - a folder of JPEG and PNG files, one folder a class.
 *
 * data.path holds train/CLASS/FILE and val/CLASS/FILE (or test/CLASS/FILE), the layout of
 * torchvision's ImageFolder. Classes are numbered by the sorted names of train's folders; samples
 * are ordered by class, then by name. Opening reads the header of every file; pixels are decoded
 * when a sample is asked for. With data.resize the central square of a picture is scaled to the
 * model's side; otherwise its size must match. Pixels become (p / 255 - 0.5) / 0.5, as in ViT's own
 * preprocessing. Read images_open() first, then read_split() and images_sample(). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "exec/data/dataset.h"
#include "exec/data/image_file.h"

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

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_picture(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot &&
           (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

/* The sorted names of a folder's folders, or of its pictures. Hidden names are skipped. */
static enum status list_names(const char *dir, bool folders, struct name_list *list,
                              struct err *err)
{
    enum status rc = OK;
    struct dirent *entry;
    DIR *folder = opendir(dir);
    if (!folder)
        return err_set(err, ERR_SYSTEM, "cannot open '%s': %s", dir, strerror(errno));
    while (rc == OK && (errno = 0, entry = readdir(folder))) {
        struct stat st;
        if (entry->d_name[0] == '.' || fstatat(dirfd(folder), entry->d_name, &st, 0) != 0)
            continue;
        if (folders ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode) || !is_picture(entry->d_name))
            continue;
        if (list->count == list->room) {
            int64_t room = list->room ? 2 * list->room : 64;
            char **at = realloc(list->at, (size_t)room * sizeof *at);
            if (!at) {
                rc = err_nomem(err);
                break;
            }
            list->at = at;
            list->room = room;
        }
        list->at[list->count] = strdup(entry->d_name);
        if (list->at[list->count])
            list->count++;
        else
            rc = err_nomem(err);
    }
    if (rc == OK && errno != 0)
        rc = err_set(err, ERR_SYSTEM, "cannot read '%s': %s", dir, strerror(errno));
    closedir(folder);
    if (rc == OK && list->count > 1)
        qsort(list->at, (size_t)list->count, sizeof *list->at, by_name);
    return rc;
}

static enum status add_picture(struct picture_list *list, char *path, int32_t label,
                               struct err *err)
{
    if (list->count == list->room) {
        int64_t room = list->room ? 2 * list->room : 256;
        char **paths = realloc(list->path, (size_t)room * sizeof *paths);
        if (paths)
            list->path = paths;
        int32_t *labels = realloc(list->label, (size_t)room * sizeof *labels);
        if (labels)
            list->label = labels;
        if (!paths || !labels)
            return err_nomem(err);
        list->room = room;
    }
    list->path[list->count] = path;
    list->label[list->count++] = label;
    return OK;
}

static enum status check_picture(const char *path, const struct job *job, struct err *err)
{
    struct pixels pixels;
    enum status rc = image_peek(path, &pixels, err);
    int side = job->model.image;
    if (rc == OK && !job->data.resize && (pixels.width != side || pixels.height != side)) {
        rc = err_set(err, ERR_INPUT, "'%s' has %d x %d pixels, model '%s' takes %d x %d", path,
                     pixels.width, pixels.height, job->model.name, side, side);
        err_hint(err, "set data.resize to true");
    }
    return rc;
}

static enum status read_split(struct images *images, const struct job *job, enum split split,
                              const char *dir, const struct name_list *classes, struct err *err)
{
    struct name_list found = {0};
    enum status rc = list_names(dir, true, &found, err);
    for (int64_t i = 0; rc == OK && i < found.count; i++) {
        char **same = bsearch(&found.at[i], classes->at, (size_t)classes->count,
                              sizeof *classes->at, by_name);
        struct name_list files = {0};
        char *folder = NULL;
        if (!same) {
            rc = err_set(err, ERR_INPUT, "'%s/%s': class '%s' is not among the training classes",
                         dir, found.at[i], found.at[i]);
            break;
        }
        if (asprintf(&folder, "%s/%s", dir, found.at[i]) < 0) {
            rc = err_nomem(err);
            break;
        }
        rc = list_names(folder, false, &files, err);
        for (int64_t j = 0; rc == OK && j < files.count; j++) {
            char *path = NULL;
            if (asprintf(&path, "%s/%s", folder, files.at[j]) < 0) {
                rc = err_nomem(err);
                break;
            }
            rc = check_picture(path, job, err);
            if (rc == OK)
                rc = add_picture(&images->splits[split], path, (int32_t)(same - classes->at), err);
            if (rc != OK)
                free(path);
        }
        name_list_clear(&files);
        free(folder);
    }
    if (rc == OK && images->splits[split].count == 0)
        rc = err_set(err, ERR_INPUT, "'%s' holds no CLASS/*.jpg, .jpeg or .png", dir);
    name_list_clear(&found);
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
    rc = image_read(list->path[id], &pixels, err);
    if (rc == OK && !images->resize && (pixels.width != side || pixels.height != side))
        rc = err_set(err, ERR_SYSTEM, "'%s' changed its size to %d x %d", list->path[id],
                     pixels.width, pixels.height);
    if (rc == OK)
        rc = image_square(&pixels, side, out->image, err);
    for (size_t i = 0; rc == OK && i < n; i++)
        out->image[i] = out->image[i] / 127.5f - 1.0f;
    free(pixels.rgb);
    return rc;
}

enum status images_open(const struct job *job, struct dataset *dataset, struct err *err)
{
    struct dataset got = {.channels = 3,
                          .image = job->model.image,
                          .labels_per_sample = 1,
                          .targets_per_sample = 1,
                          .sample = images_sample,
                          .clear = images_clear};
    struct images *images = calloc(1, sizeof *images);
    struct name_list classes = {0};
    char *train = NULL, *test = NULL;
    struct stat st;
    enum status rc = OK;
    if (!images)
        return err_nomem(err);
    got.ctx = images;
    images->resize = job->data.resize;
    if (asprintf(&train, "%s/train", job->data.path) < 0)
        train = NULL;
    if (asprintf(&test, "%s/val", job->data.path) < 0)
        test = NULL;
    if (test && stat(test, &st) != 0) {
        free(test);
        if (asprintf(&test, "%s/test", job->data.path) < 0)
            test = NULL;
    }
    if (!train || !test)
        rc = err_nomem(err);
    if (rc == OK && job->model.family != FAMILY_VIT)
        rc = err_set(err, ERR_INPUT, "%s: model '%s' takes text, the data are images",
                     dataset_job_name(job), job->model.name);
    if (rc == OK)
        rc = list_names(train, true, &classes, err);
    if (rc == OK && (classes.count < 1 || classes.count > job->model.classes))
        rc = err_set(err, ERR_INPUT, "'%s' must hold 1..%d folders, a class each, got %lld", train,
                     job->model.classes, (long long)classes.count);
    got.classes = (int)classes.count;
    if (rc == OK)
        rc = read_split(images, job, SPLIT_TRAIN, train, &classes, err);
    if (rc == OK)
        rc = read_split(images, job, SPLIT_TEST, test, &classes, err);
    for (int split = 0; split < SPLIT_COUNT; split++)
        got.num_samples[split] = images->splits[split].count;
    for (int c = 0; c < 3; c++)
        got.pixel_mean[c] = got.pixel_std[c] = 0.5f;
    if (rc == OK)
        *dataset = got;
    else
        images_clear(&got);
    name_list_clear(&classes);
    free(train);
    free(test);
    return rc;
}
