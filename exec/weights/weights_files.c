/* exec/weights/weights_files.c - finds the files that hold a model's weights and looks tensors up in
 * all of them. Read weights_open() at the end first.
 *
 * Sources: docs of transformers' save_pretrained() (names of files, "weight_map" of an index), and
 * the modules that put a part of their own into names: torch.compile, DataParallel and
 * DistributedDataParallel, FullyShardedDataParallel, checkpoint_wrapper. */
#include "exec/weights/weights_files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "partition/base/arrays.h"
#include "partition/base/units.h"
#include "profiles/json/json.h"
#include "profiles/base/whole_file.h"

#define ENDING ".safetensors"
#define INDEX_ENDING ".index.json"
enum { MAX_SHARDS = 100000, NEAR_NAMES = 4096 };

struct entry {
    char *plain; /* owned; the name without the parts of wrappers */
    const char *name;
    const struct safetensors *file;
};

struct weights {
    char *folder;
    struct safetensors **files; /* owned, num_files */
    int num_files;
    struct entry *entries; /* owned, sorted by plain */
    int num_entries;
};

static bool ends(const char *text, const char *tail)
{
    const size_t n = strlen(text), t = strlen(tail);
    return n >= t && strcmp(text + n - t, tail) == 0;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Copy a name without the parts that wrappers add. */
static void copy_plain(const char *name, char *plain)
{
    static const char *const wrappers[] = {"_orig_mod", "module", "_fsdp_wrapped_module",
                                           "_checkpoint_wrapped_module"};
    while (*name) {
        const size_t n = strcspn(name, ".");
        bool wrapper = false;
        for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++)
            wrapper = wrapper || (strlen(wrappers[w]) == n && strncmp(name, wrappers[w], n) == 0);
        if (!wrapper || name[n] == '\0') {
            memcpy(plain, name, n + (name[n] == '.'));
            plain += n + (name[n] == '.');
        }
        name += n + (name[n] == '.');
    }
    *plain = '\0';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->plain, ((const struct entry *)b)->plain);
}

/* Make the sorted list of all names. */
static enum status list_names(struct weights *weights, const char *path, struct err *err)
{
    int count = 0;
    for (int f = 0; f < weights->num_files; f++)
        count += safetensors_count(weights->files[f]);
    weights->entries = calloc((size_t)count + 1, sizeof *weights->entries);
    if (!weights->entries)
        return err_nomem(err);
    for (int f = 0; f < weights->num_files; f++)
        for (int i = 0; i < safetensors_count(weights->files[f]); i++) {
            const char *name = safetensors_name(weights->files[f], i);
            struct entry *entry = &weights->entries[weights->num_entries];
            if (strcmp(name, "__metadata__") == 0)
                continue;
            *entry = (struct entry){malloc(strlen(name) + 1), name, weights->files[f]};
            if (!entry->plain)
                return err_nomem(err);
            weights->num_entries++;
            copy_plain(name, entry->plain);
        }
    qsort(weights->entries, (size_t)weights->num_entries, sizeof *weights->entries, by_name);
    for (int i = 1; i < weights->num_entries; i++) {
        const struct entry *a = &weights->entries[i - 1], *b = &weights->entries[i];
        if (strcmp(a->plain, b->plain) == 0)
            return err_set(err, ERR_INPUT, "'%s' holds a tensor twice, as '%.100s' and '%.100s'",
                           path, a->name, b->name);
    }
    return OK;
}

bool weights_find(const struct weights *weights, const char *name, struct weights_tensor *tensor)
{
    const struct entry key = {.plain = (char *)name};
    const struct entry *found =
        bsearch(&key, weights->entries, (size_t)weights->num_entries, sizeof key, by_name);
    if (!found || !safetensors_find(found->file, found->name, &tensor->info))
        return false;
    tensor->file = found->file;
    tensor->name = found->name;
    return true;
}

/* The first number between dots, of "transformer.h.1.ln_1.weight" 1; -1: none. */
static int layer_number(const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
        if (isdigit((unsigned char)dot[1]) && dot[1 + strspn(dot + 1, "0123456789")] == '.')
            return atoi(dot + 1);
    return -1;
}

const char *weights_nearest(const struct weights *weights, const char *name, name_filter *is_used,
                            const void *ctx)
{
    const char *names[NEAR_NAMES];
    int n = 0;
    for (int i = 0; i < weights->num_entries; i++)
        if (ends(weights->entries[i].plain, name))
            return weights->entries[i].plain;
    for (int i = 0; i < weights->num_entries && n < NEAR_NAMES; i++)
        if (layer_number(weights->entries[i].plain) == layer_number(name) &&
            !is_used(ctx, weights->entries[i].plain))
            names[n++] = weights->entries[i].plain;
    return nearest_name(name, names, n);
}

const char *weights_folder(const struct weights *weights)
{
    return weights->folder;
}

/* --- files ------------------------------------------------------------------------------------ */

static enum status add_file(struct weights *weights, const char *path, struct err *err)
{
    if (!array_extend(&weights->files, weights->num_files, sizeof *weights->files))
        return err_nomem(err);
    enum status rc = safetensors_open(path, &weights->files[weights->num_files], err);
    weights->num_files += rc == OK;
    return rc;
}

/* Find an open file by its name in the folder, or open it. ERR_INPUT: not a safetensors file. */
static enum status open_shard(struct weights *weights, const char *index, const char *name,
                              const struct safetensors **shard, struct err *err)
{
    char *path = NULL;
    enum status rc = OK;
    if (strchr(name, '/') || !ends(name, ENDING))
        return err_set(err, ERR_INPUT, "'%s' lists '%.100s', which must be a name '*%s'", index,
                       name, ENDING);
    if (asprintf(&path, "%s/%s", weights->folder, name) < 0)
        return err_nomem(err);
    int f = 0;
    while (f < weights->num_files && strcmp(safetensors_path(weights->files[f]), path) != 0)
        f++;
    if (f == weights->num_files)
        rc = add_file(weights, path, err);
    if (rc == OK)
        *shard = weights->files[f];
    free(path);
    return rc;
}

/* Open the shards of an index, each once, and check that they hold what it promises. */
static enum status open_index(struct weights *weights, const char *path, struct err *err)
{
    struct json *root = NULL;
    enum status rc = json_read_file(path, &root, err);
    const struct json *map = rc == OK ? json_get(root, "weight_map") : NULL;
    if (rc == OK && json_type(map) != JSON_OBJECT)
        rc = err_set(err, ERR_INPUT, "'%s' is no index of shards: it has no weight_map", path);
    for (const struct json *m = rc == OK ? json_first(map) : NULL; m && rc == OK;
         m = json_next(m)) {
        const char *name = json_string(m);
        const struct safetensors *shard = NULL;
        struct tensor_info info;
        rc = open_shard(weights, path, name ? name : "?", &shard, err);
        if (rc == OK && !safetensors_find(shard, json_key(m), &info))
            rc = err_set(err, ERR_INPUT,
                         "'%s' says that '%.100s' holds tensor '%.100s', but it does not", path,
                         name, json_key(m));
    }
    json_free(root);
    return rc;
}

/* The number and count of a shard, from "NAME-00001-of-00002.safetensors". *stem gets the length of
 * NAME. */
static bool shard_of(const char *name, int *number, int *count, int *stem)
{
    static const char tail[] = "-00001-of-00002" ENDING;
    const size_t n = strlen(name), t = sizeof tail - 1;
    int used = 0;
    if (n <= t || sscanf(name + n - t, "-%5d-of-%5d" ENDING "%n", number, count, &used) != 2 ||
        used != (int)t)
        return false;
    *stem = (int)(n - t);
    return *number >= 1 && *count >= 1 && *number <= *count && *count < MAX_SHARDS;
}

/* Open all shards beside one. An index beside them is checked as well. */
static enum status open_shards(struct weights *weights, const char *path, const char *name,
                               int count, int stem, struct err *err)
{
    char *index = NULL, *shard = NULL;
    enum status rc = OK;
    if (asprintf(&index, "%s/%.*s" ENDING INDEX_ENDING, weights->folder, stem, name) < 0)
        return err_nomem(err);
    if (access(index, F_OK) == 0) {
        rc = open_index(weights, index, err);
        free(index);
        return rc;
    }
    free(index);
    for (int i = 1; i <= count && rc == OK; i++) {
        if (asprintf(&shard, "%s/%.*s-%05d-of-%05d" ENDING, weights->folder, stem, name, i, count) <
            0)
            return err_nomem(err);
        rc = add_file(weights, shard, err);
        if (rc == ERR_SYSTEM)
            err_hint(err, "'%s' is one file of %d; all must lie in one folder", path, count);
        free(shard);
    }
    return rc;
}

/* The weight files of a folder. */
struct listing {
    char index[256], one[256]; /* names; "": none. one: model.safetensors, else any other */
    int num_others;            /* files *.safetensors that are neither of these nor shards */
    bool torch;                /* weights that only PyTorch reads */
    bool ours;                 /* a checkpoint or a run's folder */
};

static void list_folder(const char *path, struct listing *list)
{
    struct dirent *entry;
    DIR *dir = opendir(path);
    int number, count, stem;
    bool shard_only = false;
    *list = (struct listing){0};
    while (dir && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        if (strcmp(name, "manifest.json") == 0 || strcmp(name, "metrics.jsonl") == 0 ||
            strncmp(name, "stage-", 6) == 0)
            list->ours = true;
        else if (ends(name, ENDING INDEX_ENDING))
            snprintf(list->index, sizeof list->index, "%s", name);
        else if (ends(name, ".bin") || ends(name, ".pt") || ends(name, ".pth"))
            list->torch = true;
        if (!ends(name, ENDING) || strcmp(list->one, "model" ENDING) == 0)
            continue;
        if (shard_of(name, &number, &count, &stem)) {
            if (!*list->one)
                snprintf(list->one, sizeof list->one, "%s", name);
            shard_only = shard_only || strcmp(list->one, name) == 0;
            continue;
        }
        list->num_others++;
        snprintf(list->one, sizeof list->one, "%s", name);
    }
    if (dir)
        closedir(dir);
    if (strcmp(list->one, "model" ENDING) == 0 || shard_only)
        list->num_others = 1;
}

bool weights_are_at(const char *path)
{
    struct listing list;
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    if (!S_ISDIR(st.st_mode))
        return true;
    list_folder(path, &list);
    return !list.ours && (*list.index || *list.one || list.torch);
}

/* Choose the file of a folder that stands for its model. */
static enum status choose_file(const char *path, char *name, size_t size, struct err *err)
{
    struct listing list;
    enum status rc;
    list_folder(path, &list);
    if (list.num_others > 1 && !*list.index) {
        rc = err_set(err, ERR_INPUT, "'%s' holds %d safetensors files and no index", path,
                     list.num_others);
        err_hint(err, "name one file, for example '%s/%.100s'", path, list.one);
        return rc;
    }
    if (!*list.index && !*list.one) {
        rc = err_set(err, ERR_INPUT, "no safetensors file in '%s'%s", path,
                     list.torch ? ", only files of PyTorch" : "");
        if (list.torch)
            err_hint(err,
                     "from_pretrained(DIR).save_pretrained(NEW) of transformers converts them");
        return rc;
    }
    const bool whole = strcmp(list.one, "model" ENDING) == 0 || !*list.index;
    snprintf(name, size, "%s", whole ? list.one : list.index);
    return OK;
}

static enum status open_named(struct weights *weights, const char *path, const char *name,
                              struct err *err)
{
    int number, count, stem;
    if (ends(name, INDEX_ENDING))
        return open_index(weights, path, err);
    if (shard_of(name, &number, &count, &stem))
        return open_shards(weights, path, name, count, stem, err);
    return add_file(weights, path, err);
}

enum status weights_open(const char *path, struct weights **weights, struct err *err)
{
    struct weights *got = calloc(1, sizeof *got);
    const char *slash = strrchr(path, '/');
    char name[256], *whole = NULL;
    struct stat st;
    enum status rc = OK;
    if (!got)
        return err_nomem(err);
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (folder) {
        rc = choose_file(path, name, sizeof name, err);
        got->folder = strdup(path);
    } else {
        snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
        got->folder =
            !slash ? strdup(".") : strndup(path, slash > path ? (size_t)(slash - path) : 1);
    }
    if (rc == OK && (!got->folder || (folder && asprintf(&whole, "%s/%s", path, name) < 0)))
        rc = err_nomem(err);
    THEN(open_named(got, folder ? whole : path, name, err));
    THEN(list_names(got, path, err));
    if (rc == OK) {
        *weights = got;
        got = NULL;
    }
    free(whole);
    weights_close(got);
    return rc;
}

void weights_close(struct weights *weights)
{
    if (!weights)
        return;
    for (int f = 0; f < weights->num_files; f++)
        safetensors_close(weights->files[f]);
    for (int i = 0; i < weights->num_entries; i++)
        free(weights->entries[i].plain);
    free(weights->entries);
    free(weights->files);
    free(weights->folder);
    free(weights);
}
