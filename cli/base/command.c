#include "cli/base/command.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/base/whole_file.h"
#include "profiles/json/fields.h"

#define HELP_MAX 16384 /* bytes; the longest help has a few KB */

void command_heading(const struct command *command, bool rows)
{
    if (rows)
        printf("command\t%s\t%s\t%s\t%s\n", command->name, command->args, command->summary,
               command->takes);
    else
        printf("usage: elapse %s %s\n%s\n\n", command->name, command->args, command->summary);
}

enum status command_parse(const struct command *command, struct command_line *line, int argc,
                          char **argv, struct err *err)
{
    enum status rc = options_parse(line, argc, argv, err);
    if (rc != OK) {
        err_hint(err, "'elapse %s --help' lists the options", command->name);
        return rc;
    }
    if (line->help) {
        char *text = malloc(HELP_MAX);
        if (!text)
            return err_nomem(err);
        if (line->rows)
            options_rows(line->options, line->num_options, text, HELP_MAX);
        else
            options_help(line->options, line->num_options, true, text, HELP_MAX);
        command_heading(command, line->rows);
        fputs(text, stdout);
        free(text);
    }
    return OK;
}

enum status command_check_way(const struct command *command, const struct command_line *line,
                              const char *const *ways, const char *way, struct err *err)
{
    for (int i = 0; i < line->num_options; i++)
        if (ways[i] && strcmp(ways[i], way) != 0 && *line->options[i].seen)
            return err_set(err, ERR_INPUT, "%s %s takes no %s%s: it belongs to %s", command->name,
                           way, line->options[i].name[1] ? "--" : "-", line->options[i].name,
                           ways[i]);
    return OK;
}

enum status command_check_page(const char *path, struct err *err)
{
    if (file_is_stream(path) || path_ends(path, ".html") || path_ends(path, ".htm"))
        return OK;
    return err_set(err, ERR_INPUT, "-o must end in .html, got '%.200s'", path);
}

enum ticker_mode command_progress(bool quiet)
{
    return quiet ? TICKER_QUIET : isatty(STDERR_FILENO) ? TICKER_TERMINAL : TICKER_LINES;
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
