/* The layout of the cache: huggingface.co/docs/huggingface_hub/guides/manage-cache. A model's folder is
 * models--ORG--NAME; its refs/main holds a commit, and snapshots/COMMIT the files of that commit. */
#include "profiles/job/hub_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "partition/model/model.h"
#include "profiles/base/whole_file.h"

enum { ID_MAX = 192, COMMIT_MAX = 64, PATH_MAX_BYTES = 4096 };

static const char id_letters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

bool hub_is_id(const char *text, size_t length)
{
    char id[ID_MAX];
    struct model_spec spec;
    const size_t org = strspn(text, id_letters);
    if (length >= sizeof id || org == 0 || org + 1 >= length || text[org] != '/' || *text == '.')
        return false;
    if (text[org + 1] == '.' || org + 1 + strspn(text + org + 1, id_letters) < length)
        return false;
    memcpy(id, text, length);
    id[length] = 0;
    return model_preset(id, &spec, NULL) != OK;
}

/* The folder of all models. */
static void cache_folder(char folder[PATH_MAX_BYTES])
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"HF_HUB_CACHE",   ""                       },
        {"HF_HOME",        "/hub"                   },
        {"XDG_CACHE_HOME", "/huggingface/hub"       },
        {"HOME",           "/.cache/huggingface/hub"}
    };
    snprintf(folder, PATH_MAX_BYTES, "/.cache/huggingface/hub");
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value) {
            snprintf(folder, PATH_MAX_BYTES, "%.3500s%s", value, places[i].below);
            return;
        }
    }
}

/* Read the commit of a model's refs/main; "" if there is none. */
static void read_commit(const char *model_folder, char commit[COMMIT_MAX])
{
    char path[PATH_MAX_BYTES + 16];
    *commit = 0;
    snprintf(path, sizeof path, "%s/refs/main", model_folder);
    FILE *file = NULL;
    if (input_file(path, &file, NULL) != OK)
        return;
    commit[fread(commit, 1, COMMIT_MAX - 1, file)] = 0;
    commit[strspn(commit, "0123456789abcdef")] = 0;
    fclose(file);
}

enum status hub_config_path(const char *id, char **path, struct err *err)
{
    char folder[PATH_MAX_BYTES], model_folder[PATH_MAX_BYTES], commit[COMMIT_MAX];
    const char *slash = strchr(id, '/');
    cache_folder(folder);
    snprintf(model_folder, sizeof model_folder, "%.3600s/models--%.*s--%s", folder,
             (int)(slash - id), id, slash + 1);
    read_commit(model_folder, commit);
    char *found = NULL;
    if (asprintf(&found, "%s/snapshots/%s/config.json", model_folder, commit) < 0)
        return err_nomem(err);
    if (!*commit || access(found, R_OK) != 0) {
        free(found);
        const enum status rc =
            err_set(err, ERR_INPUT, "model '%s' is no preset, and its config.json is not in '%s'",
                    id, folder);
        err_hint(err, "hf download %s config.json", id);
        return rc;
    }
    *path = found;
    return OK;
}
