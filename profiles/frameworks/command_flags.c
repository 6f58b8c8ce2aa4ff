/* The reader of flags. take() finds the row of a flag and checks its value; the values are kept
 * as texts, one a row. */
#include "profiles/frameworks/command_flags.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

enum status flags_begin(struct command_flags *flags, struct err *err)
{
    flags->value = calloc((size_t)flags->num_rows, sizeof *flags->value);
    flags->not_counted = json_array_new();
    return flags->value ? json_check(flags->not_counted, err) : err_nomem(err);
}

void flags_clear(struct command_flags *flags)
{
    for (int i = 0; i < flags->num_rows && flags->value; i++)
        free(flags->value[i]);
    free(flags->value);
    free(flags->script);
    free(flags->policy);
    json_free(flags->not_counted);
    flags->value = NULL;
    flags->script = flags->policy = NULL;
    flags->not_counted = NULL;
}

void flags_left_out(struct command_flags *flags, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_add_string(flags->not_counted, NULL, text);
}

/* --- one flag ------------------------------------------------------------------------------------ */

/* Whether two names are equal, where - and _ are one letter; a star of the row ends both. */
static bool names(const char *row, const char *name, bool *exact)
{
    *exact = true;
    for (; *row && *row != '*'; row++, name++)
        if (*row != *name && !(strchr("-_", *row) && strchr("-_", *name) && *name))
            return false;
    *exact = *row != '*';
    return !*exact || !*name;
}

/* The row of a flag: an exact name before one with a star, and of these the longest. -1: none. */
static int row_of(const struct command_flags *flags, const char *name)
{
    int found = -1;
    for (int i = 0; i < flags->num_rows; i++) {
        bool exact;
        if (!names(flags->rows[i].name, name, &exact))
            continue;
        if (exact)
            return i;
        if (found < 0 || strlen(flags->rows[i].name) > strlen(flags->rows[found].name))
            found = i;
    }
    return found;
}

static bool is_false(const char *value)
{
    return value && (strcmp(value, "false") == 0 || strcmp(value, "False") == 0 ||
                     strcmp(value, "0") == 0 || strcmp(value, "no") == 0);
}

/* Whether a value is one of "theirs=ours ..."; ours are copied to out unless it is NULL. */
static bool translate(const char *pairs, const char *value, char *out, size_t size)
{
    const size_t n = strlen(value);
    for (const char *at = pairs; *at; at += strspn(at, " ")) {
        const size_t pair = strcspn(at, " "), theirs = strcspn(at, "=");
        if (theirs == n && strncmp(at, value, n) == 0) {
            if (out)
                snprintf(out, size, "%.*s", (int)(pair - theirs - 1), at + theirs + 1);
            return true;
        }
        at += pair;
    }
    return false;
}

/* The words before "=" of "theirs=ours ...". */
static const char *theirs_of(const char *pairs, char *out, size_t size)
{
    *out = '\0';
    for (const char *at = pairs; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        const size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%.*s", used > 0 ? " " : "", (int)strcspn(at, "="), at);
    }
    return out;
}

static enum status check_value(const struct command_flags *flags, const struct flag_row *row,
                               const char *name, const char *value, struct err *err)
{
    char what[96], names[256];
    int64_t number;
    double real;
    snprintf(what, sizeof what, "%s%.80s", flags->dashes, name);
    if (value && strchr(value, '$')) {
        err_set(err, ERR_INPUT, "%s: the script leaves '%.60s' open", what, value);
        return err_hint(err, "give it before the script, as in \"NAME=8 train.sh\", or hand over "
                             "the flags as they are after the shell's expansion (put echo before "
                             "the launcher)"),
               ERR_INPUT;
    }
    switch (row->kind) {
    case FLAG_COUNT:
    case FLAG_NUMBER:
        return parse_int(value ? value : "", what, row->kind == FLAG_COUNT ? 1 : -1, INT32_MAX,
                         &number, err);
    case FLAG_REAL:
        return parse_ratio(value ? value : "", what, &real, err);
    case FLAG_WORD:
    case FLAG_LIST:
        if (!value || !*value)
            return err_set(err, ERR_INPUT, "%s needs a value", what);
        if (row->key && row->says && !translate(row->says, value, NULL, 0))
            return err_set(err, ERR_INPUT, "%s must be one of %s, got '%.60s'", what,
                           theirs_of(row->says, names, sizeof names), value);
        return OK;
    default:
        return OK;
    }
}

/* Take one flag. value: NULL without one. ERR_INPUT: a bad value, a value that the script leaves
 * open, or a flag that is refused. */
static enum status take(struct command_flags *flags, const char *name, const char *value,
                        struct err *err)
{
    const int i = row_of(flags, name);
    const struct flag_row *const row = i >= 0 ? &flags->rows[i] : NULL;
    const char *const space = value && *value ? " " : "", *const text = value ? value : "";
    if (!row) {
        flags_left_out(flags, "%s%.60s%s%.60s: %s has no such flag", flags->dashes, name, space,
                       text, flags->program);
        return OK;
    }
    const bool value_counts = row->kind == FLAG_WORD || row->kind == FLAG_LIST;
    if (row->kind == FLAG_FREE || (row->kind >= FLAG_ON && !value_counts && is_false(value)))
        return OK;
    if (row->kind == FLAG_LEFT_OUT) {
        flags_left_out(flags, "%s%.60s%s%.60s: %s", flags->dashes, name, space, text, row->says);
        return OK;
    }
    if (row->kind == FLAG_REFUSED)
        return err_set(err, ERR_INPUT, "%s%.60s%s%.60s: %s", flags->dashes, name, space, text,
                       row->says);
    const enum status rc = check_value(flags, row, name, value, err);
    char *const copy = rc == OK ? strdup(row->kind == FLAG_TRUTH && !*text ? "true" : text) : NULL;
    if (rc != OK)
        return rc;
    if (!copy)
        return err_nomem(err);
    free(flags->value[i]);
    flags->value[i] = copy;
    return OK;
}

/* --- the words of a command ---------------------------------------------------------------------- */

bool flags_settings_name(const char *path)
{
    static const char *const ends[] = {".json", ".yaml", ".yml", ".toml"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (text_ends(path, ends[i]))
            return true;
    return false;
}

/* The index of the program: the last .py file that does not follow a flag, else the first one, else a
 * module after -m; -1: none. A module that launches processes is not the program. */
static int program_at(char *const *words, int count)
{
    int last = -1, first = -1, module = -1;
    for (int i = 0; i < count; i++) {
        const bool plain = i == 0 || words[i - 1][0] != '-' || strcmp(words[i - 1], "--") == 0;
        if (text_ends(words[i], ".py") || text_ends(words[i], "run_train.sh")) {
            first = first < 0 ? i : first;
            last = plain ? i : last;
        }
        if (module < 0 && strcmp(words[i], "-m") == 0 && i + 1 < count &&
            !strstr(words[i + 1], "launch") && !text_ends(words[i + 1], ".run"))
            module = i + 1;
    }
    return last >= 0 ? last : first >= 0 ? first : module;
}

/* Launchers, with the names of their flags: processes of a node, nodes, and processes in all. */
static const struct launcher {
    const char *name, *per_node, *nodes, *all;
    int nodes_without; /* the number of nodes where none is given; 0: not known */
} launchers[] = {
    {"torchrun",                 " nproc-per-node ",  " nnodes ",    " ",               1},
    {"torch.distributed.launch", " nproc-per-node ",  " nnodes ",    " ",               1},
    {"torch.distributed.run",    " nproc-per-node ",  " nnodes ",    " ",               1},
    {"accelerate",               " ",                 " ",           " num-processes ", 0},
    {"deepspeed",                " num-gpus ",        " num-nodes ", " ",               1},
    {"mpirun",                   " ",                 " ",           " np n ",          0},
    {"mpiexec",                  " ",                 " ",           " np n ",          0},
    {"srun",                     " ntasks-per-node ", " nodes N ",   " ntasks n ",      0},
};

/* The value of a flag of the launcher that a list has; 0: none, -1: it is not a number. */
static int64_t launch_value(char *const *words, int from, int to, const char *list)
{
    for (int i = from; i < to; i++) {
        char name[64];
        const char *const start = words[i] + strspn(words[i], "-");
        const size_t n = strcspn(start, "=");
        int64_t value;
        if (start == words[i] || n + 3 > sizeof name)
            continue;
        snprintf(name, sizeof name, " %.*s ", (int)n, start);
        for (char *c = name; *c; c++)
            *c = (char)(*c == '_' ? '-' : *c);
        if (!strstr(list, name))
            continue;
        const char *const text = start[n] ? start + n + 1 : i + 1 < to ? words[i + 1] : "";
        return parse_int(text, name, 1, INT32_MAX, &value, NULL) == OK ? value : -1;
    }
    return 0;
}

/* Devices of --include or -i of deepspeed, "node-1:0,1@node-2:0,1"; 0: not known. */
static int64_t included(char *const *words, int from, int to)
{
    int64_t n = 0;
    for (int i = from; i < to; i++) {
        const bool joined = strncmp(words[i], "--include=", 10) == 0;
        if (!joined && strcmp(words[i], "--include") != 0 && strcmp(words[i], "-i") != 0)
            continue;
        const char *at = joined ? words[i] + 10 : i + 1 < to ? words[i + 1] : "";
        for (; *at; at += strcspn(at, "@") + (at[strcspn(at, "@")] == '@')) {
            const size_t end = strcspn(at, "@");
            const char *const colon = memchr(at, ':', end);
            if (!colon)
                return 0;
            n++;
            for (const char *c = colon; c < at + end; c++)
                n += *c == ',';
        }
    }
    return n;
}

/* Name a launcher whose number of processes is another than that of the devices. */
static void check_launcher(struct command_flags *flags, char *const *words, int count,
                           int num_devices)
{
    for (int i = count - 1; i >= 0; i--) {
        const char *const slash = strrchr(words[i], '/'), *const base =
                                                              slash ? slash + 1 : words[i];
        for (size_t k = 0; k < sizeof launchers / sizeof *launchers; k++) {
            const struct launcher *const l = &launchers[k];
            if (strcmp(base, l->name) != 0)
                continue;
            const int64_t each = launch_value(words, i + 1, count, l->per_node);
            const int64_t nodes = launch_value(words, i + 1, count, l->nodes);
            const int64_t all = launch_value(words, i + 1, count, l->all);
            const int64_t many = nodes ? nodes : l->nodes_without;
            const int64_t named =
                strcmp(l->name, "deepspeed") == 0 ? included(words, i + 1, count) : 0;
            const int64_t processes = named > 0              ? named
                                      : all > 0              ? all
                                      : each > 0 && many > 0 ? each * many
                                                             : 0;
            if (processes > 0 && processes != num_devices)
                flags_left_out(flags,
                               "%s starts %lld processes: the cluster's %d devices are counted",
                               l->name, (long long)processes, num_devices);
            return;
        }
    }
}

static const char policy[] = "activation-checkpoint:";

/* Take the words that follow a flag, from *i on, as its values. */
static enum status take_values(struct command_flags *flags, const char *name, char *const *words,
                               int count, int *i, struct err *err)
{
    enum status rc = OK;
    char *values = NULL;
    size_t size;
    FILE *out = open_memstream(&values, &size);
    const int row = row_of(flags, name);
    const enum flag_kind kind = row < 0 ? FLAG_FREE : flags->rows[row].kind;
    const int first = *i, most = kind == FLAG_ON ? 0 : kind < FLAG_LIST ? 1 : count;
    if (!out)
        return err_nomem(err);
    for (; *i < count && *i - first < most && strncmp(words[*i], "--", 2) != 0 &&
           strncmp(words[*i], policy, sizeof policy - 1) != 0;
         ++*i)
        fprintf(out, "%s%s", *i > first ? " " : "", words[*i]);
    if (fclose(out) != 0)
        rc = err_nomem(err);
    THEN(take(flags, name, *i > first ? values : NULL, err));
    free(values);
    return rc;
}

enum status flags_take_words(struct command_flags *flags, char *const *words, int count,
                             int num_devices, struct err *err)
{
    const int program = program_at(words, count);
    enum status rc = OK;
    if (program >= 0 && !(flags->script = strdup(words[program])))
        return err_nomem(err);
    check_launcher(flags, words, program < 0 ? 0 : program, num_devices);
    for (int i = program + 1; i < count && rc == OK;) {
        char name[128];
        const char *const word = words[i++];
        if (strncmp(word, policy, sizeof policy - 1) == 0) {
            free(flags->policy);
            if (!(flags->policy = strdup(word + sizeof policy - 1)))
                return err_nomem(err);
            continue;
        }
        if (strncmp(word, "--", 2) != 0) {
            if (word[0] == '$')
                flags_left_out(flags, "%.60s: the script leaves it open", word);
            else if (program >= 0 && !flags_settings_name(word))
                rc = err_set(err, ERR_INPUT, "'%.60s' belongs to no flag", word);
            continue;
        }
        const size_t n = strcspn(word + 2, "=");
        snprintf(name, sizeof name, "%.*s", (int)n, word + 2);
        if (word[2 + n]) {
            rc = take(flags, name, word + 3 + n, err);
            continue;
        }
        rc = take_values(flags, name, words, count, &i, err);
    }
    return rc;
}

/* --- settings of a file -------------------------------------------------------------------------- */

static bool is_environment(const char *name)
{
    return *name && !strpbrk(name, "abcdefghijklmnopqrstuvwxyz-");
}

static enum status take_member(struct command_flags *flags, const char *path, bool last,
                               const struct json *value, struct err *err)
{
    enum status rc = OK;
    char *text = NULL;
    const char *const word = json_string(value);
    if (json_type(value) == JSON_OBJECT) {
        for (const struct json *m = json_first(value); m && rc == OK; m = json_next(m)) {
            char name[192];
            const char *const key = json_key(m);
            if (last) {
                snprintf(name, sizeof name, "%.90s", key + (strncmp(key, "--", 2) == 0 ? 2 : 0));
            } else {
                const bool dot = *path && path[strlen(path) - 1] != '.';
                snprintf(name, sizeof name, "%s%s%.90s", path, dot ? "." : "", key);
            }
            rc = take_member(flags, name, last, m, err);
        }
        return rc;
    }
    if (json_type(value) == JSON_NULL || (word && strcmp(word, "auto") == 0) ||
        (last && is_environment(path)))
        return OK;
    if (!word)
        rc = json_text(value, false, &text, err);
    THEN(take(flags, path, word ? word : text, err));
    free(text);
    return rc;
}

enum status flags_take_settings(struct command_flags *flags, const char *section, bool last,
                                const struct json *object, struct err *err)
{
    const char *const dashes = flags->dashes;
    flags->dashes = last ? dashes : "";
    const enum status rc = take_member(flags, section, last, object, err);
    flags->dashes = dashes;
    return rc;
}

/* --- values -------------------------------------------------------------------------------------- */

static const char *value_of(const struct command_flags *flags, const char *name)
{
    for (int i = 0; i < flags->num_rows; i++)
        if (strcmp(flags->rows[i].name, name) == 0)
            return flags->value[i];
    assert(!"a flag without a row");
    return NULL;
}

bool flag_given(const struct command_flags *flags, const char *name)
{
    return value_of(flags, name) != NULL;
}

int64_t flag_int(const struct command_flags *flags, const char *name, int64_t otherwise)
{
    const char *const text = value_of(flags, name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

double flag_real(const struct command_flags *flags, const char *name, double otherwise)
{
    const char *const text = value_of(flags, name);
    double value = otherwise;
    if (text)
        parse_ratio(text, name, &value, NULL);
    return value;
}

bool flag_on(const struct command_flags *flags, const char *name)
{
    return flag_given(flags, name);
}

const char *flag_word(const struct command_flags *flags, const char *name, const char *otherwise)
{
    const char *const text = value_of(flags, name);
    return text ? text : otherwise;
}

bool flag_is(const struct command_flags *flags, const char *name, const char *value)
{
    return strcmp(flag_word(flags, name, ""), value) == 0;
}

/* --- the job ------------------------------------------------------------------------------------- */

/* The object of a path, and the last name of it. */
static struct json *object_of(struct json *job, const char *path, const char **last)
{
    char name[64];
    for (size_t n = strcspn(path, "."); path[n]; n = strcspn(path, ".")) {
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        struct json *const inner = json_get(job, name);
        job = inner ? inner : json_add_object(job, name);
        path += n + 1;
    }
    *last = path;
    return job;
}

void job_set(struct json *job, const char *path, const char *text)
{
    const char *last;
    struct json *const object = object_of(job, path, &last);
    struct json *value = NULL;
    json_remove(object, last);
    if (json_parse(text, path, &value, NULL) == OK)
        json_add_copy(object, last, value);
    else
        json_add_string(object, last, text);
    json_free(value);
}

void job_set_int(struct json *job, const char *path, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    job_set(job, path, text);
}

enum status flags_write(const struct command_flags *flags, struct json *job, struct err *err)
{
    for (int i = 0; i < flags->num_rows; i++) {
        const struct flag_row *const row = &flags->rows[i];
        const char *const value = flags->value[i];
        char ours[64];
        if (!row->key || !value)
            continue;
        if (row->kind == FLAG_ON)
            job_set(job, row->key, row->says ? row->says : "true");
        else if (row->says && translate(row->says, value, ours, sizeof ours))
            job_set(job, row->key, ours);
        else
            job_set(job, row->key, value);
    }
    return json_check(job, err);
}
