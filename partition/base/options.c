#include "partition/base/options.h"

#include <stdio.h>
#include <string.h>

#include "partition/base/synonyms.h"
#include "partition/base/units.h"

#define OPTIONS_MAX 128 /* rows of one command's table; more is our own bug */
#define NAME_MAX_LEN 64

/* "--name", or "-n" for a single letter. */
static const char *dashed(const char *name, char buf[NAME_MAX_LEN])
{
    snprintf(buf, NAME_MAX_LEN, "%s%s", name[0] && !name[1] ? "-" : "--", name);
    return buf;
}

static const struct option *find_option(const struct option *options, int num_options,
                                        const char *name, size_t len)
{
    for (int i = 0; i < num_options; i++)
        if (strlen(options[i].name) == len && strncmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

/* Name the option that others write as `word`, or the key to override, if an option takes keys. */
static bool hint_synonym(const struct option *options, int num_options, const char *word,
                         struct err *err)
{
    const char *option = synonym_option(word);
    char shown[NAME_MAX_LEN], key[128];
    if (option && find_option(options, num_options, option, strlen(option))) {
        err_hint(err, "use %s", dashed(option, shown));
        return true;
    }
    for (int i = 0; i < num_options; i++) {
        if (!options[i].keys || !member_called(options[i].keys, word, key, sizeof key))
            continue;
        err_hint(err, "use %s %s%s", dashed(options[i].name, shown), key,
                 strpbrk(key, "= ") ? "" : "=VALUE");
        return true;
    }
    return false;
}

static enum status unknown_option(const struct option *options, int num_options, const char *arg,
                                  struct err *err)
{
    const char *names[OPTIONS_MAX + 1];
    char word[NAME_MAX_LEN], near[NAME_MAX_LEN];
    size_t len = strcspn(arg, "=");
    int n = 0;
    for (; n < num_options && n < OPTIONS_MAX; n++)
        names[n] = options[n].name;
    names[n++] = "help";
    enum status rc =
        err_set(err, ERR_INPUT, "unknown option '%.*s'", (int)(len < 64 ? len : 64), arg);
    snprintf(word, sizeof word, "%.*s", (int)(len < 60 ? len : 60), arg);
    const char *bare = word + strspn(word, "-");
    const char *found = nearest_name(bare, names, n);
    if (!hint_synonym(options, num_options, bare, err) && found)
        err_hint(err, "did you mean '%s'?", dashed(found, near));
    return rc;
}

static enum status set_value(const struct option *option, const char *shown, const char *text,
                             struct err *err)
{
    switch (option->type) {
    case OPTION_FLAG:
        *(bool *)option->value = true;
        return OK;
    case OPTION_STRING:
        *(const char **)option->value = text;
        return OK;
    case OPTION_LIST: {
        struct option_list *list = option->value;
        if (list->count >= OPTION_LIST_MAX)
            return err_set(err, ERR_INPUT, "%s given more than %d times", shown, OPTION_LIST_MAX);
        list->items[list->count++] = text;
        return OK;
    }
    default:
        break;
    }
    const struct member value = {.name = shown,
                                 .type = (enum member_type)option->type,
                                 .size = sizeof(int64_t),
                                 .min =
                                     option->type == OPTION_INT ? (double)option->min : -INFINITY,
                                 .max = (double)option->max};
    return member_parse(&value, shown, text, option->value, err);
}

/* The row of an argument that starts with a dash, and the value that follows within the argument; NULL:
 * none. */
static const struct option *option_of(const struct command_line *line, const char *arg,
                                      const char **value)
{
    const struct option *option;
    char shown[NAME_MAX_LEN];
    if (arg[1] == '-') {
        size_t len = strcspn(arg + 2, "=");
        option = len > 1 ? find_option(line->options, line->num_options, arg + 2, len) : NULL;
        snprintf(shown, sizeof shown, "%.*s", (int)(len < 16 ? len : 16), arg + 2);
        const char *ours = option ? NULL : synonym_short_option(shown);
        if (ours)
            option = find_option(line->options, line->num_options, ours, strlen(ours));
        if (arg[2 + len] == '=')
            *value = arg + 3 + len;
    } else {
        option = find_option(line->options, line->num_options, arg + 1, 1);
        /* "-np 4" is not "-n" with the value "p". */
        if (option && arg[2] && (option->type == OPTION_FLAG || synonym_option(arg + 1)))
            option = NULL;
        if (arg[2])
            *value = arg + 2 + (arg[2] == '=');
    }
    return option;
}

/* Parse the option at argv[*i], which starts with a dash. Moves *i onto the option's last word. */
static enum status parse_one(const struct command_line *line, int argc, char **argv, int *i,
                             bool *given, struct err *err)
{
    const char *arg = argv[*i], *value = NULL;
    const struct option *option = option_of(line, arg, &value);
    char shown[NAME_MAX_LEN];
    if (!option)
        return unknown_option(line->options, line->num_options, arg, err);
    dashed(option->name, shown);
    if (option->type == OPTION_FLAG) {
        if (value)
            return err_set(err, ERR_INPUT, "%s takes no value, got '%.64s'", shown, value);
    } else if (!value) {
        if (*i + 1 >= argc)
            return err_set(err, ERR_INPUT, "%s needs a value (%s)", shown,
                           option->arg ? option->arg : "VALUE");
        value = argv[++*i];
    }
    size_t index = (size_t)(option - line->options);
    if (given[index] && option->type != OPTION_LIST)
        return err_set(err, ERR_INPUT, "%s given twice", shown);
    given[index] = true;
    if (option->seen)
        *option->seen = true;
    return set_value(option, shown, value, err);
}

/* Whether an argument is a text that begins with a dash, as a command line in quotes does: no
 * option's name has a blank. */
static bool is_text(const char *arg)
{
    return arg[strcspn(arg, " \n=")] != '\0' && arg[strcspn(arg, " \n=")] != '=';
}

enum status options_parse(struct command_line *line, int argc, char **argv, struct err *err)
{
    bool given[OPTIONS_MAX] = {false};
    bool only_positional = false;
    if (line->num_options < 0 || line->num_options > OPTIONS_MAX)
        return err_set(err, ERR_INPUT, "option table has %d rows, at most %d", line->num_options,
                       OPTIONS_MAX);
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!only_positional && strcmp(arg, "--") == 0) {
            only_positional = true;
        } else if (!only_positional && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0 ||
                                        strcmp(arg, "--help=rows") == 0)) {
            line->help = true;
            line->rows = arg[1] == '-' && arg[6] != '\0';
            return OK;
        } else if (!only_positional && arg[0] == '-' && arg[1] && !is_text(arg)) {
            enum status rc = parse_one(line, argc, argv, &i, given, err);
            if (rc != OK)
                return rc;
        } else if (line->num_positional >= line->max_positional) {
            return err_set(err, ERR_INPUT, "unexpected argument '%.128s'", arg);
        } else {
            line->positional[line->num_positional++] = arg;
        }
    }
    return OK;
}

/* Whether another program's word for an option of the table is all that keeps it from being one. */
static bool means_ours(const struct command_line *line, const char *arg)
{
    char word[NAME_MAX_LEN];
    const char *bare = arg + strspn(arg, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(bare, "="), bare);
    const char *ours = synonym_option(word);
    return ours && find_option(line->options, line->num_options, ours, strlen(ours));
}

enum status options_take(struct command_line *line, int *argc, char **argv, bool front,
                         struct err *err)
{
    bool given[OPTIONS_MAX] = {false};
    int kept = 1, i = 1;
    enum status rc = OK;
    for (; i < *argc && rc == OK && strcmp(argv[i], "--") != 0; i++) {
        const char *arg = argv[i], *value = NULL;
        const int first = i;
        const bool dashed_word = arg[0] == '-' && arg[1] && !is_text(arg);
        const struct option *option = dashed_word ? option_of(line, arg, &value) : NULL;
        if (front && !option)
            break;
        line->rows |= strcmp(arg, "--help=rows") == 0;
        line->help |= line->rows || strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
        if (option || (dashed_word && means_ours(line, arg)))
            rc = parse_one(line, *argc, argv, &i, given, err);
        for (int at = first; (!option || option->leave) && at <= i; at++)
            argv[kept++] = argv[at];
    }
    while (i < *argc)
        argv[kept++] = argv[i++];
    argv[kept] = NULL;
    *argc = kept;
    return rc;
}

int options_add(struct option *options, int num_options, const struct option *rows, size_t num_rows)
{
    memcpy(options + num_options, rows, num_rows * sizeof *rows);
    return num_options + (int)num_rows;
}

enum status options_refuse(const struct refusal *refused, struct err *err)
{
    for (; refused->says; refused++)
        if (refused->wrong)
            return err_set(err, ERR_INPUT, "%s", refused->says);
    return OK;
}
