#include "exec/weights/hf_classes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "profiles/json/json.h"

void hf_class_names_free(char **names, int num)
{
    for (int i = 0; names && i < num; i++)
        free(names[i]);
    free(names);
}

/* The name of class `i` in id2label; NULL: none, or the one that transformers gives by number. */
static const char *name_of(const struct json *labels, int i)
{
    char key[16], made[32];
    snprintf(key, sizeof key, "%d", i);
    snprintf(made, sizeof made, "LABEL_%d", i);
    const char *name = json_string(json_get(labels, key));
    return name && strcasecmp(name, made) != 0 ? name : NULL;
}

static int find(char *const *names, int num, const char *name)
{
    for (int i = 0; i < num; i++)
        if (strcasecmp(names[i], name) == 0)
            return i;
    return -1;
}

/* Copy the names of all classes; *got stays NULL if one has none. */
static enum status copy_names(const struct json *labels, const char *path, int num, char ***got,
                              struct err *err)
{
    char **names = calloc((size_t)num + 1, sizeof *names);
    enum status rc = names ? OK : err_nomem(err);
    int i = 0;
    for (; rc == OK && i < num; i++) {
        const char *name = name_of(labels, i);
        if (!name)
            break;
        if (find(names, i, name) >= 0)
            rc = err_set(err, ERR_INPUT, "'%s': id2label has two classes '%.60s'", path, name);
        else if (!(names[i] = strdup(name)))
            rc = err_nomem(err);
    }
    if (rc == OK && i == num)
        *got = names;
    else
        hf_class_names_free(names, num);
    return rc;
}

enum status hf_class_names(const char *weights, int num, char ***names, struct err *err)
{
    const char *slash = strrchr(weights, '/');
    struct json *config = NULL;
    struct stat st;
    char *path = NULL;
    enum status rc = OK;
    const int n =
        stat(weights, &st) == 0 && S_ISDIR(st.st_mode)
            ? asprintf(&path, "%s/config.json", weights)
            : asprintf(&path, "%.*sconfig.json", slash ? (int)(slash + 1 - weights) : 0, weights);
    if (n < 0)
        return err_nomem(err);
    if (access(path, F_OK) == 0)
        rc = json_read_file(path, &config, err);
    const struct json *labels = rc == OK && config ? json_get(config, "id2label") : NULL;
    if (labels && json_type(labels) == JSON_OBJECT && json_count(labels) == num)
        rc = copy_names(labels, path, num, names, err);
    json_free(config);
    free(path);
    return rc;
}

enum status hf_class_order(const char *weights, const struct class_names *data, int **order,
                           char *note, size_t size, struct err *err)
{
    char **names = NULL;
    int found = 0, moved = 0;
    note[0] = '\0';
    if (!data || !data->names || data->num < 1)
        return OK;
    int *got = calloc((size_t)data->num, sizeof *got);
    enum status rc = got ? hf_class_names(weights, data->num, &names, err) : err_nomem(err);
    for (int c = 0; rc == OK && names && c < data->num; c++) {
        got[c] = find(names, data->num, data->names[c]);
        found += got[c] >= 0;
        moved += got[c] != c;
    }
    if (names && found == data->num && moved > 0) {
        snprintf(note, size,
                 "id2label of the weights has the classes in another order than the data; they are "
                 "matched by name");
        *order = got;
        got = NULL;
    } else if (names && found < data->num) {
        snprintf(note, size,
                 "id2label of the weights names other classes than the data: '%.40s' first, not "
                 "'%.40s'; outputs are taken in the data's order",
                 names[0], data->names[0]);
    }
    hf_class_names_free(names, data->num);
    free(got);
    return rc;
}

bool hf_is_of_classes(const struct model *model, const char *name)
{
    return model->task == TASK_CLASSIFY && strncmp(name, "classifier.", 11) == 0;
}

void hf_order_rows(const float *from, float *to, int classes, int64_t row, const int *order)
{
    for (int c = 0; c < classes; c++)
        memcpy(to + c * row, from + order[c] * row, (size_t)row * sizeof *to);
}
