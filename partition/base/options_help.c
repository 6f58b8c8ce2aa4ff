/* An option table as text: options_help() for people, options_rows() for programs. */
#include <stdio.h>
#include <string.h>

#include "partition/base/options.h"
#include "partition/base/units.h"

#define NAME_MAX_LEN 64
#define LEFT_MAX 32 /* a longer option has its help on the next line */
#define HELP_LINE_MAX 512

/* Print after the text in buf. `used` counts the bytes needed, even beyond the buffer's end. */
#define APPEND(...)                                                                                \
    do {                                                                                           \
        int wanted_ =                                                                              \
            snprintf(used < size ? buf + used : NULL, used < size ? size - used : 0, __VA_ARGS__); \
        used += wanted_ > 0 ? (size_t)wanted_ : 0;                                                 \
    } while (0)

/* "--name", or "-n" for a single letter, and if `arg` its placeholder. */
static const char *left_side(const struct option *option, bool arg, char buf[2 * NAME_MAX_LEN])
{
    const char *dashes = option->name[0] && !option->name[1] ? "-" : "--";
    const bool shown = arg && option->arg;
    snprintf(buf, 2 * NAME_MAX_LEN, "%s%s%s%s", dashes, option->name, shown ? " " : "",
             shown ? option->arg : "");
    return buf;
}

/* The words that the option takes, "optimal released paper"; "": not a fixed set. */
static const char *words_of(const struct option *option, char buf[HELP_LINE_MAX])
{
    int n = 0;
    while (option->names && option->names[n])
        n++;
    if (n == 0)
        return option->values ? option->values : "";
    return join_names(option->names, n, buf, HELP_LINE_MAX);
}

/* The option's help with its words, "optimal, released, paper", in place of %s. */
static const char *help_of(const struct option *option, char buf[HELP_LINE_MAX])
{
    char words[HELP_LINE_MAX];
    const char *place = option->names || option->values ? strstr(option->help, "%s") : NULL;
    const size_t size = HELP_LINE_MAX;
    size_t used = 0;
    if (!place)
        return option->help;
    APPEND("%.*s", (int)(place - option->help), option->help);
    for (const char *at = words_of(option, words); *at;) {
        const size_t length = strcspn(at, " ");
        APPEND("%.*s%s", (int)length, at, at[length] ? ", " : "");
        at += length + (at[length] == ' ');
    }
    APPEND("%s", place + 2);
    return buf;
}

size_t options_help(const struct option *options, int num_options, bool last, char *buf,
                    size_t size)
{
    size_t used = 0, width = strlen("--help");
    bool grouped = false;
    char left[2 * NAME_MAX_LEN], help[HELP_LINE_MAX];
    if (size > 0)
        buf[0] = '\0';
    for (int i = 0; i < num_options; i++) {
        const size_t wanted = strlen(left_side(&options[i], true, left));
        if (wanted > width && wanted <= LEFT_MAX)
            width = wanted;
        grouped = grouped || options[i].group;
    }
    for (int i = 0; i < num_options; i++) {
        if (options[i].group)
            APPEND("\n%s:\n", options[i].group);
        left_side(&options[i], true, left);
        if (strlen(left) > width)
            APPEND("  %s\n  %*s  %s\n", left, (int)width, "", help_of(&options[i], help));
        else
            APPEND("  %-*s  %s\n", (int)width, left, help_of(&options[i], help));
    }
    if (last)
        APPEND("%s  %-*s  %s\n", grouped ? "\n" : "", (int)width, "--help", "this text");
    return used;
}

size_t options_rows(const struct option *options, int num_options, char *buf, size_t size)
{
    size_t used = 0;
    char left[2 * NAME_MAX_LEN], help[HELP_LINE_MAX], words[HELP_LINE_MAX];
    const char *group = "";
    if (size > 0)
        buf[0] = '\0';
    for (int i = 0; i < num_options; i++) {
        const struct option *option = &options[i];
        group = option->group ? option->group : group;
        APPEND("option\t%s\t%s\t%s\t%s\t%s\t%s\n", left_side(option, false, left),
               option->arg ? option->arg : "", words_of(option, words),
               option->type == OPTION_LIST ? "repeat" : "", group, help_of(option, help));
    }
    return used;
}
