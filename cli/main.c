/* cli/main.c - `elapse`: finds the subcommand in the table, runs it, and turns its error into one
 * line on stderr (and a hint) and an exit code. No other file of the program chooses exit codes. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command.h"
#include "cli/commands/help.h"
#include "cli/launch/launch.h"
#include "profiles/base/safe_output.h"
#include "partition/base/units.h"
#include "profiles/json/build_facts.h"

#define ENTRY(name) &command_##name,
static const struct command *const table[] = {COMMANDS(ENTRY)};
enum { TABLE_LEN = sizeof table / sizeof table[0] };

static void print_usage(FILE *out)
{
    fprintf(out, "usage: elapse COMMAND [arguments]\n"
                 "Elastic pipeline training of transformers: plan it, simulate it, run it.\n\n");
    for (int i = 0; i < TABLE_LEN; i++)
        fprintf(out, "  %-10s %s\n", table[i]->name, table[i]->summary);
    fprintf(out, "\n'elapse COMMAND --help' lists the options of a command, 'elapse help TOPIC' "
                 "explains\n");
    for (int i = 0; topic_at(i); i++)
        fprintf(out, "    %-8s %s\n", topic_at(i)->name, topic_at(i)->summary);
    fprintf(out, "\nexit codes: 0 ok; 1 the answer is no; 2 bad usage or malformed content; "
                 "3 missing file, device, network or rank; 4 no answer yet: the search ran out of "
                 "time; 130 and 143 a run that Ctrl-C or SIGTERM "
                 "stopped\n");
}

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < TABLE_LEN; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

static void hint_command(const char *word, struct err *err)
{
    const char *names[TABLE_LEN];
    for (int i = 0; i < TABLE_LEN; i++)
        names[i] = table[i]->name;
    const char *near = nearest_name(word, names, TABLE_LEN);
    if (near)
        err_hint(err, "did you mean 'elapse %s'?", near);
    else
        err_hint(err, "'elapse --help' lists the commands");
}

/* All tables for programs: commands with their options, topics, words and job keys. */
static enum status print_rows(struct err *err)
{
    for (int i = 0; i < TABLE_LEN; i++) {
        char name[32], *asked[] = {name, "--help=rows", NULL};
        snprintf(name, sizeof name, "%s", table[i]->name);
        struct err ignored = {0};
        /* Without elapse-exec there are no options of the commands that it runs. */
        const enum status rc = table[i]->run(table[i], 2, asked, &ignored);
        if (rc != OK && rc != ERR_SYSTEM)
            return err_copy(err, &ignored), rc;
    }
    help_rows();
    return OK;
}

static void print_topic(const struct topic *topic)
{
    topic->print();
    if (find_command(topic->name))
        printf("\n'elapse %s --help' lists the options of the command\n", topic->name);
}

/* After the help of a command: the topic that explains its arguments. */
static void print_topic_of(const struct command *command)
{
    const struct topic *topic = topic_find(command->name);
    if (!topic && strncmp(command->args, "JOB", 3) == 0)
        topic = topic_find("job");
    if (topic)
        printf("\nsee also 'elapse help %s': %s\n", topic->name, topic->summary);
}

static enum status print_version(bool as_json, struct err *err)
{
    if (as_json) {
        const struct command self = {.name = "version"};
        struct json *json = command_json(&self);
        build_facts_to_json(json);
        return command_answer(json, err);
    }
    build_facts_print("elapse");
    return OK;
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

/* Run the command that argv names, or print its help. */
static enum status run_command(bool help, int argc, char **argv, struct err *err)
{
    char *name = argv[1 + help], *asked[] = {name, "--help", NULL};
    const struct command *command = find_command(name);
    if (!command) {
        enum status rc =
            err_set(err, ERR_INPUT, "no command%s '%.64s'", help ? " or topic" : "", name);
        hint_command(name, err);
        return rc;
    }
    const enum status rc = help ? command->run(command, 2, asked, err)
                                : command->run(command, argc - 1, argv + 1, err);
    if (rc == OK && (help || asks_help(argv[argc - 1])))
        print_topic_of(command);
    return rc;
}

static enum status run(int argc, char **argv, struct err *err)
{
    if (argc < 2) {
        enum status rc = err_set(err, ERR_INPUT, "no command given");
        err_hint(err, "'elapse --help' lists the commands");
        return rc;
    }
    if (argc == 2 && strcmp(argv[1], "--help=rows") == 0)
        return print_rows(err);
    const bool version = strcmp(argv[1], "--version") == 0;
    const bool help = strcmp(argv[1], "help") == 0 || asks_help(argv[1]);
    const bool as_json = version && argc > 2 && strcmp(argv[2], "--json") == 0;
    const int most = version ? 2 + as_json : help ? 3 : argc;
    if (argc > most) {
        enum status rc = err_set(err, ERR_INPUT, "unexpected argument '%.128s'", argv[most]);
        err_hint(err, "'elapse --help' lists the commands");
        return rc;
    }
    if (version)
        return print_version(as_json, err);
    if (help && argc == 2) {
        print_usage(stdout);
        return OK;
    }
    if (help && topic_find(argv[2])) {
        print_topic(topic_find(argv[2]));
        return OK;
    }
    return run_command(help, argc, argv, err);
}

/* Whether whoever read our output has seen enough: `elapse model gpt2 | head`. */
static bool reader_has_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    safe_output_begin(isatty(STDERR_FILENO));
    safe_output_wrap();
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is reported as a failed write, too */
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end a command that writes files, too */
    enum status rc = run(argc, argv, &err);
    /* fflush() succeeds if an earlier write failed, so ask ferror() too. */
    const bool failed = fflush(stdout) != 0 || ferror(stdout);
    /* Files named /dev/stdout end so, too. */
    const bool pipe_closed = rc == ERR_SYSTEM && strstr(err.msg, strerror(EPIPE)) != NULL;
    if ((failed || pipe_closed) && (rc == OK || rc == ERR_SYSTEM) && reader_has_gone())
        return EXIT_SUCCESS;
    if (failed && rc == OK)
        rc = err_set(&err, ERR_SYSTEM, "cannot write to standard output");
    if (rc != OK && err.msg[0]) {
        fprintf(stderr, "elapse: %s\n", err.msg);
        if (err.hint[0])
            fprintf(stderr, "hint: %s\n", err.hint);
    }
    return launch_stop_signal() ? EXIT_SIGNALLED + launch_stop_signal() : status_exit_code(rc);
}
