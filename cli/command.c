#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

#define HELP_MAX 16384 /* bytes; the longest help has a few KB */

enum status command_parse(const struct command *command, const struct option *options,
                          int num_options, int argc, char **argv, const char **positional,
                          int max_positional, int *num_positional, bool *help, struct err *err)
{
    int num = 0;
    enum status rc = options_parse(options, num_options, argc, argv, positional, max_positional,
                                   &num, help, err);
    if (num_positional)
        *num_positional = num;
    if (rc != OK) {
        err_hint(err, "'elapse %s --help' lists the options", command->name);
        return rc;
    }
    if (*help) {
        char *text = malloc(HELP_MAX);
        if (!text)
            return err_nomem(err);
        options_help(options, num_options, text, HELP_MAX);
        printf("usage: elapse %s %s\n%s\n\n%s", command->name, command->args, command->summary,
               text);
        free(text);
    }
    return OK;
}

enum status command_check_way(const struct command *command, const struct option *options,
                              const char *const *ways, int num_options, const char *way,
                              struct err *err)
{
    for (int i = 0; i < num_options; i++)
        if (ways[i] && strcmp(ways[i], way) != 0 && *options[i].seen)
            return err_set(err, ERR_INPUT, "%s %s takes no %s%s: it belongs to %s", command->name,
                           way, options[i].name[1] ? "--" : "-", options[i].name, ways[i]);
    return OK;
}

struct json *command_json(const struct command *command)
{
    struct json *json = json_object_new();
    json_add_int(json, "schema", 1);
    json_add_string(json, "version", ELAPSE_VERSION);
    json_add_string(json, "command", command->name);
    return json;
}

enum status command_answer(struct json *json, struct err *err)
{
    enum status rc = json_write(json, false, stdout, err);
    json_free(json);
    return rc;
}
