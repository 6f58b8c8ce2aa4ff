#include "exec/checkpoint/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/weights/adapter_files.h"
#include "exec/checkpoint/checkpoint_files.h"
#include "exec/stage/adapters.h"
#include "profiles/json/fields.h"
#include "profiles/base/whole_file.h"

enum { NAME_BYTES = ADAPTER_NAME_BYTES };

/* A tensor of the checkpoint. */
struct part {
    const struct safetensors *file; /* NULL: it is not there */
    char name[NAME_BYTES];
    struct tensor_info info;
};

struct export_source {
    struct part weight, a, b; /* a, b: of the adapter that is merged into it */
    float scale;
    bool in_out;           /* the weight is [in, out] */
    char name[NAME_BYTES]; /* under which it is written */
};

static enum status read_part(const struct part *part, float *values, struct err *err)
{
    return safetensors_read(part->file, part->name, &part->info, values, err);
}

static enum status fetch_export(void *ctx, const void *source, int64_t num_elems, float *values,
                                struct err *err)
{
    const struct export_source *from = source;
    (void)ctx;
    (void)num_elems;
    enum status rc = read_part(&from->weight, values, err);
    if (rc != OK || !from->a.file)
        return rc;
    float *a = malloc((size_t)(from->a.info.num_elems + from->b.info.num_elems + 1) * sizeof *a);
    float *b = a ? a + from->a.info.num_elems : NULL;
    rc = a ? read_part(&from->a, a, err) : err_nomem(err);
    THEN(read_part(&from->b, b, err));
    if (rc == OK)
        adapter_merge(from->b.info.shape[0], from->a.info.shape[1], from->in_out,
                      (int)from->a.info.shape[0], from->scale, a, b, values);
    free(a);
    return rc;
}

/* --- what lies beside the weights ------------------------------------------------------------- */

static void add_written(struct export_answer *answer, const char *path)
{
    json_add_string(answer->files, NULL, path);
}

/* Write an object of the manifest as a file of the folder; none: nothing to write. */
static enum status write_object(const struct json *manifest, const char *key, const char *dir,
                                const char *name, struct export_answer *answer, struct err *err)
{
    const struct json *object = json_get(manifest, key);
    char *path = NULL;
    if (!object)
        return OK;
    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return err_nomem(err);
    enum status rc = json_write_file(object, path, err);
    if (rc == OK)
        add_written(answer, path);
    free(path);
    return rc;
}

/* Copy a file of the tokenizer into the folder. One that is gone is named in the note, because the
 * weights are worth having without it. */
static enum status copy_file(const char *from, const char *dir, const char *name,
                             struct export_answer *answer, struct err *err)
{
    char *bytes = NULL, *path = NULL;
    size_t length = 0;
    struct atomic_file file = {0};
    struct err why = {0};
    enum status rc = file_read(from, &bytes, &length, &why);
    if (rc != OK) {
        snprintf(answer->note, sizeof answer->note, "no tokenizer: %.400s", why.msg);
        return rc == ERR_NOMEM ? err_nomem(err) : OK;
    }
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        free(bytes);
        return err_nomem(err);
    }
    rc = atomic_open(&file, path, err);
    if (rc == OK) {
        fwrite(bytes, 1, length, file.out);
        rc = atomic_close(&file, OK, err);
    }
    if (rc == OK)
        add_written(answer, path);
    free(bytes);
    free(path);
    return rc;
}

/* The path of a file beside another. The caller frees it. */
static enum status path_beside(const char *path, const char *name, char **beside, struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (asprintf(beside, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name) < 0)
        return *beside = NULL, err_nomem(err);
    return OK;
}

/* Write tokenizer_config.json: what the manifest says, and the chat template and special tokens of the
 * one beside the vocabulary. A template in a file of its own is copied. */
static enum status write_config(const struct json *manifest, const char *vocab, const char *dir,
                                struct export_answer *answer, struct err *err)
{
    static const char *const own[] = {"chat_template.jinja", "chat_template.json"};
    struct json *box = json_object_new(), *there = NULL;
    char *path = NULL;
    json_add_copy(box, "tokenizer", json_get(manifest, "tokenizer"));
    struct json *config = json_get(box, "tokenizer");
    enum status rc = path_beside(vocab, "tokenizer_config.json", &path, err);
    if (rc == OK && access(path, F_OK) == 0)
        rc = json_read_file(path, &there, err);
    for (const struct json *m = there ? json_first(there) : NULL; rc == OK && m; m = json_next(m))
        if ((strcmp(json_key(m), "chat_template") == 0 || path_ends(json_key(m), "_token")) &&
            !json_get(config, json_key(m)))
            json_add_copy(config, json_key(m), m);
    THEN(json_check(box, err));
    THEN(write_object(box, "tokenizer", dir, "tokenizer_config.json", answer, err));
    for (int i = 0; rc == OK && i < 2; i++) {
        free(path);
        rc = path_beside(vocab, own[i], &path, err);
        if (rc == OK && access(path, F_OK) == 0)
            rc = copy_file(path, dir, own[i], answer, err);
    }
    free(path);
    json_free(there);
    json_free(box);
    return rc;
}

/* The tokenizer's files, as the job that is in the manifest names them. */
static enum status write_tokenizer(const struct json *manifest, const char *dir,
                                   struct export_answer *answer, struct err *err)
{
    const char *vocab = json_string(json_path(manifest, "job.data.vocab"));
    const char *merges = json_string(json_path(manifest, "job.data.merges"));
    char *beside = NULL;
    if (!json_get(manifest, "tokenizer") || !vocab)
        return OK;
    const bool whole = path_ends(vocab, "tokenizer.json"),
               byte_level = !whole && path_is_json(vocab);
    enum status rc = copy_file(vocab, dir,
                               whole        ? "tokenizer.json"
                               : byte_level ? "vocab.json"
                                            : "vocab.txt",
                               answer, err);
    if (rc == OK && byte_level) {
        rc = merges ? OK : path_beside(vocab, "merges.txt", &beside, err);
        THEN(copy_file(merges ? merges : beside, dir, "merges.txt", answer, err));
        free(beside);
    }
    if (rc == OK && !answer->note[0])
        rc = write_config(manifest, vocab, dir, answer, err);
    return rc;
}

/* Refuse a config.json beside a file of weights that says something else. In a folder of its own,
 * which the user has named, it is replaced. */
static enum status check_beside(const struct json *config, const char *dir, struct err *err)
{
    struct json *there = NULL;
    char *path = NULL, *want = NULL, *got = NULL;
    if (asprintf(&path, "%s/config.json", dir) < 0)
        return err_nomem(err);
    enum status rc = json_text(config, false, &want, err);
    if (rc == OK && access(path, F_OK) == 0) {
        if (json_read_file(path, &there, NULL) == OK)
            rc = json_text(there, false, &got, err);
        if (rc == OK && (!got || strcmp(got, want) != 0)) {
            rc = err_set(err, ERR_INPUT, "'%s' exists and describes something else", path);
            err_hint(err, "'-o DIR' replaces it, or export into a folder of its own");
        }
    }
    json_free(there);
    free(path);
    free(want);
    free(got);
    return rc;
}

/* --- the weights ------------------------------------------------------------------------------ */

/* Find the tensor that is called like the first `length` characters of `name` and then `end`. */
static bool find_part(struct safetensors *const *files, int num_files, const char *name, int length,
                      const char *end, struct part *part)
{
    snprintf(part->name, sizeof part->name, "%.*s%s", length, name, end);
    for (int f = 0; f < num_files; f++)
        if (safetensors_find(files[f], part->name, &part->info)) {
            part->file = files[f];
            return true;
        }
    return false;
}

/* Whether a tensor is state of the optimizer or an older copy of weights. */
static bool is_state(const char *name)
{
    return strncmp(name, "optimizer.", 10) == 0 || strncmp(name, "lagged.", 7) == 0;
}

/* The adapters of a checkpoint. */
struct adapted {
    double rank, alpha;
    float scale;             /* 0: it has none */
    bool in_out;             /* products are [in, out] */
    const char *task, *head; /* of peft; NULL: none. head: the module that trains beside them */
    struct json *modules;    /* owned; names of the products, as peft matches them */
};

static struct adapted adapted_of(const struct json *manifest)
{
    const struct json *lora = json_path(manifest, "job.train.lora");
    const struct json *rank = json_get(lora, "rank"), *alpha = json_get(lora, "alpha");
    const char *family = json_string(json_path(manifest, "model.family"));
    const char *class = json_string(json_at(json_path(manifest, "config.architectures"), 0));
    struct adapted got = {.rank = rank ? json_number(rank) : 0,
                          .alpha = alpha ? json_number(alpha) : 0,
                          .in_out = family && strcmp(family, "gpt") == 0,
                          .modules = json_array_new()};
    const bool head = json_true(json_get(lora, "head"));
    if (got.alpha <= 0)
        got.alpha = got.rank;
    got.scale = got.rank > 0 ? (float)(got.alpha / got.rank) : 0.0f;
    if (class && strstr(class, "LM") && !strstr(class, "MaskedLM"))
        got.task = "CAUSAL_LM";
    else if (class && head && strstr(class, "QuestionAnswering"))
        got.task = "QUESTION_ANS", got.head = "qa_outputs";
    else if (class && head && strstr(class, "SequenceClassification"))
        got.task = "SEQ_CLS", got.head = "classifier";
    else if (head && class && strstr(class, "ImageClassification"))
        got.head = "classifier";
    return got;
}

/* adapter_config.json of peft. */
static enum status write_adapter_config(const struct adapted *adapted, const char *dir,
                                        struct export_answer *answer, struct err *err)
{
    struct json *root = json_object_new();
    struct json *config = json_add_object(root, "config");
    json_add_string(config, "peft_type", "LORA");
    if (adapted->task)
        json_add_string(config, "task_type", adapted->task);
    else
        json_add_null(config, "task_type");
    json_add_null(config, "base_model_name_or_path");
    json_add_int(config, "r", (int64_t)adapted->rank);
    json_add_double(config, "lora_alpha", adapted->alpha);
    json_add_double(config, "lora_dropout", 0.0);
    json_add_copy(config, "target_modules", adapted->modules);
    if (adapted->head)
        json_add_string(json_add_array(config, "modules_to_save"), NULL, adapted->head);
    json_add_string(config, "bias", "none");
    json_add_bool(config, "fan_in_fan_out", adapted->in_out);
    json_add_bool(config, "inference_mode", true);
    const enum status rc = write_object(root, "config", dir, "adapter_config.json", answer, err);
    json_free(root);
    return rc;
}

/* The end of a module's name, as peft has it, that matches this product alone: the last part, but of the
 * several "dense" and "c_proj" all after the number of the layer, of the pooler two. */
static const char *module_name(const char *module)
{
    const char *last = strrchr(module, '.') + 1;
    if (strcmp(last, "dense") != 0 && strcmp(last, "c_proj") != 0)
        return last;
    for (const char *dot = strchr(module, '.'); dot; dot = strchr(dot + 1, '.')) {
        const size_t digits = strspn(dot + 1, "0123456789");
        if (digits > 0 && dot[1 + digits] == '.')
            return dot + digits + 2;
    }
    return last - strlen("pooler.");
}

/* Add the module of an adapter's tensor to the list, once. */
static void note_module(const struct adapted *adapted, const char *tensor)
{
    char module[NAME_BYTES];
    bool there = false;
    snprintf(module, sizeof module, "%.*s", (int)(strstr(tensor, ".lora_") - tensor), tensor);
    const char *last = module_name(module);
    for (const struct json *m = json_first(adapted->modules); m; m = json_next(m))
        there = there || strcmp(json_string(m), last) == 0;
    if (!there)
        json_add_string(adapted->modules, NULL, last);
}

/* Choose the tensors to write, and the modules that have adapters. Returns the number of tensors. */
static int choose_tensors(struct safetensors *const *files, int num_files,
                          const struct adapted *adapted, enum export_form form,
                          struct export_source *sources)
{
    static const char end[] = ".lora_A.weight";
    const size_t head = adapted->head ? strlen(adapted->head) : 0;
    int count = 0;
    for (int f = 0; f < num_files; f++)
        for (int i = 0; i < safetensors_count(files[f]); i++) {
            struct export_source *to = &sources[count];
            const char *name = safetensors_name(files[f], i), *lora = strstr(name, ".lora_");
            const int length = (int)strlen(name) - (int)strlen(".weight");
            if (is_state(name) || !safetensors_find(files[f], name, &to->weight.info))
                continue;
            const bool trained = lora || (head > 0 && strncmp(name, adapted->head, head) == 0);
            if (adapted->scale > 0.0f && (form == EXPORT_MERGED ? lora != NULL : !trained))
                continue;
            const bool alone = adapted->scale > 0.0f && form == EXPORT_AS_TRAINED;
            to->weight.file = files[f];
            to->scale = adapted->scale;
            to->in_out = adapted->in_out;
            snprintf(to->weight.name, NAME_BYTES, "%s", name);
            if (alone)
                adapter_file_name(name, true, to->name);
            else
                snprintf(to->name, NAME_BYTES, "%s", name);
            if (!alone && adapted->scale > 0.0f && length > 0 &&
                find_part(files, num_files, name, length, end, &to->a) &&
                !find_part(files, num_files, name, length, ".lora_B.weight", &to->b))
                to->a.file = NULL;
            if (alone && lora && strcmp(lora, end) == 0)
                note_module(adapted, to->name);
            count++;
        }
    /* Since transformers 5 a masked model's head with a table of its own adds a bias of its own, too. */
    struct part bias = {0};
    struct export_source *const last = &sources[count];
    if (find_part(files, num_files, "cls.predictions.decoder.weight", NAME_BYTES, "", &bias) &&
        find_part(files, num_files, "cls.predictions.bias", NAME_BYTES, "", &bias)) {
        *last = (struct export_source){.weight = bias, .name = "cls.predictions.decoder.bias"};
        count++;
    }
    return count;
}

static enum status write_weights(const char *dir, const char *path, const struct adapted *adapted,
                                 enum export_form form, int *tensors, struct err *err)
{
    struct safetensors **files = NULL;
    int num_files = 0, most = 0, count = 0;
    struct export_source *sources = NULL;
    struct tensor_out *outs = NULL;
    enum status rc = checkpoint_files_open(dir, &files, &num_files, err);
    if (rc != OK)
        goto out;
    for (int f = 0; f < num_files; f++)
        most += safetensors_count(files[f]);
    sources = calloc((size_t)most + 1, sizeof *sources);
    outs = calloc((size_t)most + 1, sizeof *outs);
    if (!sources || !outs) {
        rc = err_nomem(err);
        goto out;
    }
    count = choose_tensors(files, num_files, adapted, form, sources);
    for (int i = 0; i < count; i++)
        outs[i] = (struct tensor_out){.name = sources[i].name,
                                      .ndim = sources[i].weight.info.ndim,
                                      .shape = sources[i].weight.info.shape,
                                      .num_elems = sources[i].weight.info.num_elems,
                                      .source = &sources[i]};
    rc = safetensors_write(path, &(struct tensor_source){outs, count, fetch_export, NULL}, NULL,
                           err);
    if (rc == OK)
        *tensors = count;
out:
    free(sources);
    free(outs);
    checkpoint_files_close(files, num_files);
    return rc;
}

/* Whether a path is for a folder: one that is there, or a name without a suffix. */
static bool is_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    struct stat st;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode);
    return !strchr(name, '.');
}

/* The folder of the output and the file of its weights; the caller frees both, also after a failure. */
static enum status name_outputs(const char *path, bool folder, bool adapter, char **into,
                                char **weights, struct err *err)
{
    const char *slash = strrchr(path, '/');
    if (folder) {
        const char *const name = adapter ? "adapter_model" : "model";
        *into = strdup(path);
        if (!*into || asprintf(weights, "%s/%s.safetensors", path, name) < 0)
            return err_nomem(err);
        return folders_make(path, true, err);
    }
    *into = !slash ? strdup(".") : strndup(path, slash > path ? (size_t)(slash - path) : 1);
    *weights = strdup(path);
    if (!*into || !*weights)
        return err_nomem(err);
    if (strcmp(slash ? slash + 1 : path, "config.json") != 0)
        return OK;
    err_set(err, ERR_INPUT, "'%s' would overwrite the weights' description", path);
    err_hint(err, "give the weights another name");
    return ERR_INPUT;
}

enum status checkpoint_export(const char *dir, const char *path, enum export_form form,
                              struct export_answer *answer, struct err *err)
{
    const bool folder = is_folder(path), stream = !folder && file_is_stream(path);
    struct json *manifest = NULL;
    struct adapted adapted = {0};
    char *into = NULL, *weights = NULL;
    *answer = (struct export_answer){.files = json_array_new()};
    enum status rc = checkpoint_manifest(dir, &manifest, err);
    if (rc != OK)
        goto out;
    adapted = adapted_of(manifest);
    const bool alone = adapted.scale > 0.0f && form == EXPORT_AS_TRAINED;
    if (form == EXPORT_MERGED && adapted.scale == 0.0f)
        rc = err_set(err, ERR_INPUT, "'%s' has no adapters to merge", dir);
    else if (alone && !folder)
        rc = err_set(err, ERR_INPUT, "'%s' has adapters: -o must be a folder, or give --merged",
                     dir);
    if (rc != OK)
        goto out;
    rc = name_outputs(path, folder, alone, &into, &weights, err);
    if (!folder && !stream && json_get(manifest, "config"))
        THEN(check_beside(json_get(manifest, "config"), into, err));
    if (rc == OK && !stream)
        rc = output_check(weights, err);
    THEN(write_weights(dir, weights, &adapted, form, &answer->num_tensors, err));
    if (rc == OK)
        add_written(answer, weights);
    if (rc == OK && alone)
        rc = write_adapter_config(&adapted, into, answer, err);
    else if (rc == OK && !stream)
        rc = write_object(manifest, "config", into, "config.json", answer, err);
    if (rc == OK && folder)
        rc = write_object(manifest, "preprocessor", into, "preprocessor_config.json", answer, err);
    if (rc == OK && folder)
        rc = write_tokenizer(manifest, into, answer, err);
    THEN(json_check(answer->files, err));
out:
    json_free(manifest);
    json_free(adapted.modules);
    free(into);
    free(weights);
    return rc;
}

void export_answer_clear(struct export_answer *answer)
{
    json_free(answer->files);
    *answer = (struct export_answer){0};
}
