/* From a text to a job: which file it names, what kind of text that is, and whose flags it has. */
#include "profiles/frameworks/command_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/base/whole_file.h"
#include "profiles/frameworks/settings_text.h"
#include "profiles/frameworks/shell_words.h"

/* clang-format off */
static const struct reader {
    const char *name, *program;
    const char *target; /* of target_find(); NULL: any layout may be the best */
    /* Flags that name a file of settings, and the section that it is: "flag=section ...". */
    const char *files;
    const struct flag_row *rows;
    const int *num_rows;
    command_rules *rules;
    bool last; /* of a setting's names only the last one counts */
    bool comments; /* its JSON may have comments, and commas at the end */
    const char *names; /* variables of run_train.sh for flags, "NAME=flag ..."; no flag: the processes */
} readers[] = {
    {"megatron", "Megatron-LM core 0.19.2", "megatron", "yaml-cfg= ", megatron_rows, &num_megatron_rows, megatron_rules, true, false, ""},
    {"torchtitan", "torchtitan 0.3.0", "torchtitan", "job.config_file= ", torchtitan_rows, &num_torchtitan_rows,
        torchtitan_rules, false, false, "MODULE=module CONFIG=config NGPU= "},
    {"deepspeed", "DeepSpeed 0.19.8", "deepspeed", "deepspeed_config= deepspeed= ", deepspeed_rows,
        &num_deepspeed_rows, deepspeed_rules, false, true, ""},
    {"hf", "transformers 5.24", NULL, "config_file= deepspeed=deepspeed. deepspeed_config=deepspeed. "
        "deepspeed_config_file=deepspeed. fsdp_config=fsdp_config. ", hf_rows, &num_hf_rows, hf_rules, false, false, ""},
    {"automodel", "NeMo AutoModel 0.7.0", "automodel", "config= c= ", automodel_rows, &num_automodel_rows,
        automodel_rules, false, false, ""},
};
/* clang-format on */

/* A text that names a file: assignments, the name, arguments. */
struct source {
    char *text;       /* owned */
    char *words;      /* owned: what the pointers below point into */
    const char *what; /* the file's name for messages */
    char *argument[16], *assigned[16];
    int num_arguments, num_assigned;
    bool settings; /* the text is a file of settings */
};

/* The value of a name: of the assignments before a file, or of a script's variables. */
static const char *value_of(const struct source *source, const struct json *names, const char *name,
                            size_t length)
{
    char key[64];
    for (int i = 0; i < source->num_assigned; i++)
        if (strncmp(source->assigned[i], name, length) == 0 && source->assigned[i][length] == '=')
            return source->assigned[i] + length + 1;
    snprintf(key, sizeof key, "%.*s", (int)length, name);
    return names ? json_string(json_get(names, key)) : NULL;
}

/* A text of settings with its $NAME and ${NAME} replaced, as far as they are known. */
static enum status fill_names(const struct source *source, const struct json *names,
                              const char *text, char **filled, struct err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t size;
    FILE *out = open_memstream(filled, &size);
    if (!out)
        return err_nomem(err);
    for (const char *at = text; *at; at++) {
        const bool brace = at[0] == '$' && at[1] == '{';
        const char *const name = at + 1 + brace;
        const size_t n = *at == '$' ? strspn(name, letters) : 0;
        const char *const value =
            n > 0 && (!brace || name[n] == '}') ? value_of(source, names, name, n) : NULL;
        fputs(value ? value : "", out);
        if (value)
            at = name + n - !brace;
        else
            fputc(*at, out);
    }
    return fclose(out) == 0 ? OK : err_nomem(err);
}

/* Take NAME=value in front of a command to `out`, and skip the shell that runs a script. Returns the word behind them;
 * NULL: none. *rest is strtok_r()'s. */
static char *take_assigned(struct source *source, FILE *out, char **rest)
{
    static const char blanks[] = " \t\n";
    char *word = strtok_r(source->words, blanks, rest);
    for (; word && strchr(word, '=') && word[0] != '-' && source->num_assigned < 16;
         word = strtok_r(NULL, blanks, rest)) {
        fprintf(out, "%s\n", word);
        source->assigned[source->num_assigned++] = word;
    }
    while (word &&
           (strcmp(word, "bash") == 0 || strcmp(word, "sh") == 0 || strcmp(word, "sbatch") == 0))
        word = strtok_r(NULL, blanks, rest);
    return word;
}

/* Read the file that a text names; a text of flags stays as it is. */
static enum status source_open(const char *text, struct source *source, struct err *err)
{
    char *rest = NULL, *assigned = NULL, *bytes = NULL;
    size_t size;
    *source = (struct source){.words = strdup(text), .what = "the command"};
    FILE *out = open_memstream(&assigned, &size);
    if (!out || !source->words)
        return err_nomem(err);
    char *word = take_assigned(source, out, &rest);
    const bool alone = word && !strchr(text, '\n') && !strstr(text, "--") && *text != '{';
    const bool file = alone && access(word, R_OK) == 0;
    enum status rc = OK;
    if (file) {
        source->what = word;
        source->settings = flags_settings_name(word);
        rc = file_read_text(word, &bytes, err);
        if (!source->settings)
            fputs(rc == OK ? bytes : "", out);
        while ((word = strtok_r(NULL, " \t\n", &rest)) && source->num_arguments < 16)
            source->argument[source->num_arguments++] = word;
    } else if (alone && !strtok_r(NULL, " \t\n", &rest)) {
        rc = err_set(err, ERR_SYSTEM, "cannot read the script '%.80s'", word);
    }
    if (fclose(out) != 0 && rc == OK)
        rc = err_nomem(err);
    if (rc == OK && source->settings)
        rc = fill_names(source, NULL, bytes, &source->text, err);
    else if (rc == OK && !(source->text = strdup(file ? assigned : text)))
        rc = err_nomem(err);
    source->settings = source->settings || *text == '{';
    free(assigned);
    free(bytes);
    return rc;
}

static void source_close(struct source *source)
{
    free(source->text);
    free(source->words);
}

static enum status take_file(struct command_flags *flags, const struct reader *reader,
                             const char *section, const char *path, struct err *err);

/* Take the files of settings that settings name. */
static enum status take_named(struct command_flags *flags, const struct reader *reader,
                              const struct json *object, struct err *err)
{
    enum status rc = OK;
    for (const char *at = reader->files; *at && rc == OK; at += strcspn(at, " ") + 1) {
        char flag[32], section[32];
        const size_t n = strcspn(at, "="), k = strcspn(at + n + 1, " ");
        snprintf(flag, sizeof flag, "%.*s", (int)n, at);
        snprintf(section, sizeof section, "%.*s", (int)k, at + n + 1);
        const char *const path = json_string(json_path(object, flag));
        if (*section && path && flags_settings_name(path))
            rc = take_file(flags, reader, section, path, err);
    }
    return rc;
}

static enum status take_settings(struct command_flags *flags, const struct reader *reader,
                                 const char *section, const char *text, const char *file,
                                 struct err *err)
{
    struct json *object = NULL;
    char *const copy = strdup(text);
    if (copy && reader->comments)
        settings_without_comments(copy);
    enum status rc = copy ? settings_read(copy, file, &object, err) : err_nomem(err);
    if (rc == OK && !*section)
        rc = take_named(flags, reader, object, err);
    THEN(flags_take_settings(flags, section, reader->last, object, err));
    json_free(object);
    free(copy);
    return rc;
}

/* Take the file of settings that a flag names. */
static enum status take_file(struct command_flags *flags, const struct reader *reader,
                             const char *section, const char *path, struct err *err)
{
    char *text = NULL;
    enum status rc = file_read_text(path, &text, err);
    THEN(take_settings(flags, reader, section, text, path, err));
    free(text);
    return rc;
}

/* Take the files of settings that the words name, by a flag or alone. Flags go before what they
 * say. */
static enum status take_files(struct command_flags *flags, const struct reader *reader,
                              const struct shell_words *words, struct err *err)
{
    enum status rc = OK;
    for (int i = 1; i < words->count && rc == OK; i++)
        if (flags_settings_name(words->word[i]) && words->word[i - 1][0] != '-' &&
            access(words->word[i], R_OK) == 0)
            rc = take_file(flags, reader, "", words->word[i], err);
    for (const char *at = reader->files; *at && rc == OK; at += strcspn(at, " ") + 1) {
        const size_t n = strcspn(at, "="), k = strcspn(at + n + 1, " ");
        char section[32];
        snprintf(section, sizeof section, "%.*s", (int)k, at + n + 1);
        for (int i = 0; i < words->count && rc == OK; i++) {
            const char *const word = words->word[i] + strspn(words->word[i], "-");
            const bool own = word != words->word[i] && strncmp(word, at, n) == 0;
            const char *const path = own && word[n] == '='                     ? word + n + 1
                                     : own && !word[n] && i + 1 < words->count ? words->word[i + 1]
                                                                               : NULL;
            if (path && flags_settings_name(path))
                rc = take_file(flags, reader, section, path, err);
        }
    }
    return rc;
}

/* Whether a text of settings has a setting that the framework reads. */
static bool has_row(const struct reader *reader, const char *text)
{
    for (int i = 0; i < *reader->num_rows; i++) {
        const char *const name = reader->rows[i].name;
        const char *const dot = strrchr(name, '.'), *const last = dot ? dot + 1 : name;
        char under[96];
        snprintf(under, sizeof under, "%.90s:", last);
        for (char *c = under; *c && reader->last; c++)
            *c = (char)(*c == '-' ? '_' : *c);
        if (reader->rows[i].kind < FLAG_FREE &&
            (strstr(text, under) || (reader->last && strstr(text, last))))
            return true;
    }
    return false;
}

/* Take the flags that a program of the framework makes of variables. */
static enum status take_environment(struct command_flags *flags, const struct reader *reader,
                                    const struct json *names, int num_devices, struct err *err)
{
    struct json *const object = json_object_new();
    for (const char *at = reader->names; *at; at += strcspn(at, " ") + 1) {
        char name[32], flag[32];
        const size_t n = strcspn(at, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        snprintf(flag, sizeof flag, "%.*s", (int)strcspn(at + n + 1, " "), at + n + 1);
        const char *const value = json_string(json_get(names, name));
        if (value && *flag)
            json_add_string(object, flag, value);
        else if (value && strtol(value, NULL, 10) != num_devices)
            flags_left_out(flags, "%s %.20s: the cluster's %d devices are counted", name, value,
                           num_devices);
    }
    enum status rc = json_check(object, err);
    THEN(flags_take_settings(flags, "", reader->last, object, err));
    json_free(object);
    return rc;
}

/* Take the flags of `accelerate launch` as the settings that they stand for. */
static enum status take_accelerate(struct command_flags *flags, const struct reader *reader,
                                   const struct shell_words *words, struct err *err)
{
    static const struct {
        const char *flag, *setting, *value; /* NULL: as given */
    } rows[] = {
        {"mixed_precision",               "mixed_precision",                              NULL       },
        {"use_deepspeed",                 "distributed_type",                             "DEEPSPEED"},
        {"use_fsdp",                      "distributed_type",                             "FSDP"     },
        {"zero_stage",                    "deepspeed_config.zero_stage",                  NULL       },
        {"offload_optimizer_device",      "deepspeed_config.offload_optimizer_device",    NULL       },
        {"offload_param_device",          "deepspeed_config.offload_param_device",        NULL       },
        {"gradient_accumulation_steps",   "deepspeed_config.gradient_accumulation_steps", NULL       },
        {"fsdp_sharding_strategy",        "fsdp_config.fsdp_sharding_strategy",           NULL       },
        {"fsdp_reshard_after_forward",    "fsdp_config.fsdp_reshard_after_forward",       NULL       },
        {"fsdp_offload_params",           "fsdp_config.fsdp_offload_params",              NULL       },
        {"fsdp_activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing",    NULL       },
    };
    struct json *const object = json_object_new();
    bool launch = false;
    for (int i = 1; i < words->count; i++) {
        const char *const word = words->word[i];
        const size_t length = strlen(word);
        launch = launch || strcmp(word, "launch") == 0;
        if (!launch || strncmp(word, "--", 2) != 0) {
            if (launch &&
                (strcmp(word, "-m") == 0 || (length > 3 && strcmp(word + length - 3, ".py") == 0)))
                break;
            continue;
        }
        const size_t n = strcspn(word + 2, "=");
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
            if (strlen(rows[k].flag) == n && strncmp(word + 2, rows[k].flag, n) == 0)
                json_add_string(object, rows[k].setting,
                                rows[k].value          ? rows[k].value
                                : word[2 + n]          ? word + 3 + n
                                : i + 1 < words->count ? words->word[i + 1]
                                                       : "");
    }
    enum status rc = json_check(object, err);
    THEN(flags_take_settings(flags, "", reader->last, object, err));
    json_free(object);
    return rc;
}

static enum status take_command(struct command_flags *flags, const struct reader *reader,
                                const struct source *source, int num_devices, struct err *err)
{
    struct shell_words words = {0};
    char *document = NULL;
    enum status rc = shell_words_read(source->text, source->what, source->argument,
                                      source->num_arguments, &words, err);
    const char *const config = rc == OK ? json_string(json_get(words.names, "CONFIG_FILE")) : NULL;
    if (config && flags_settings_name(config))
        rc = take_file(flags, reader, "", config, err);
    if (rc == OK && words.document && has_row(reader, words.document)) {
        rc = fill_names(source, words.names, words.document, &document, err);
        THEN(take_settings(flags, reader, "", document, "heredoc.yaml", err));
    }
    THEN(take_files(flags, reader, &words, err));
    if (rc == OK && words.count > 0 && strstr(words.word[0], "accelerate") &&
        strcmp(reader->name, "hf") == 0)
        rc = take_accelerate(flags, reader, &words, err);
    if (rc == OK && strstr(source->text, "run_train.sh"))
        rc = take_environment(flags, reader, words.names, num_devices, err);
    THEN(flags_take_words(flags, words.word, words.count, num_devices, err));
    for (const struct json *m = json_first(words.notes); m && rc == OK; m = json_next(m))
        json_add_copy(flags->not_counted, NULL, m);
    free(document);
    shell_words_clear(&words);
    return rc;
}

static enum status read_with(const struct reader *reader, const struct source *source,
                             int num_devices, int num_layers, struct command_job *made,
                             struct err *err)
{
    struct command_flags flags = {.program = reader->program,
                                  .dashes = "--",
                                  .rows = reader->rows,
                                  .num_rows = *reader->num_rows};
    struct command_job got = {
        .num_layers = num_layers, .job = json_object_new(), .target = reader->target};
    enum status rc = flags_begin(&flags, err);
    job_set(got.job, "name", reader->name);
    job_set(got.job, "data.kind", "synthetic");
    if (rc == OK && source->settings)
        rc = take_settings(&flags, reader, "", source->text, source->what, err);
    else
        THEN(take_command(&flags, reader, source, num_devices, err));
    THEN(reader->rules(&flags, num_devices, &got, err));
    THEN(json_check(got.job, err));
    THEN(json_check(flags.not_counted, err));
    got.not_counted = flags.not_counted;
    flags.not_counted = NULL;
    flags_clear(&flags);
    if (rc == OK)
        *made = got;
    else
        command_job_clear(&got);
    return rc;
}

enum status command_job_read(const char *framework, const char *text, int num_devices,
                             int num_layers, struct command_job *made, struct err *err)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        struct source source = {0};
        if (strcmp(readers[i].name, framework) != 0)
            continue;
        enum status rc = source_open(text, &source, err);
        THEN(read_with(&readers[i], &source, num_devices, num_layers, made, err));
        source_close(&source);
        return rc;
    }
    return err_set(err, ERR_INPUT, "--from must be one of %s, got '%s'", COMMAND_READERS,
                   framework);
}

void command_job_clear(struct command_job *made)
{
    json_free(made->job);
    json_free(made->not_counted);
    json_free(made->fixed);
    free(made->blocks);
    *made = (struct command_job){0};
}
