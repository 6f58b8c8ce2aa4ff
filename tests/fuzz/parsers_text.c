/* Text that is no JSON: values with units, options, schedules, profiles in CSV, files of hosts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launch/members.h"
#include "partition/base/options.h"
#include "partition/schedule/schedule.h"
#include "partition/base/units.h"
#include "profiles/store/profile_file.h"
#include "tests/fuzz/fuzz.h"

void fuzz_units(const uint8_t *data, size_t size)
{
    struct err errs[6] = {0};
    char *text = fuzz_text(data, size);
    int64_t value, *values = NULL;
    double real;
    int count;
    fuzz_judge(parse_ns(text, "x", &value, &errs[0]), &errs[0]);
    fuzz_judge(parse_bytes(text, "x", &value, &errs[1]), &errs[1]);
    fuzz_judge(parse_rate(text, "x", &real, &errs[2]), &errs[2]);
    fuzz_judge(parse_ratio(text, "x", &real, &errs[3]), &errs[3]);
    fuzz_judge(parse_int(text, "x", INT64_MIN, INT64_MAX, &value, &errs[4]), &errs[4]);
    if (fuzz_judge(parse_int_list(text, "x", -5, 5, &values, &count, &errs[5]), &errs[5]))
        free(values);
    free(text);
}

/* Each line is a word of a command line. */
void fuzz_options(const uint8_t *data, size_t size)
{
    enum { MAX_WORDS = 90 };
    bool flag = false;
    const char *string = NULL;
    struct option_list list = {0};
    int64_t whole = 0, ns = 0, bytes = 0;
    double rate = 0, ratio = 0;
    const struct option options[] = {
        OPTION("flag", FLAG, &flag, NULL, "a flag"),
        OPTION("string", STRING, &string, "TEXT", "one of %s", .values = "one two"),
        OPTION("list", LIST, &list, "TEXT", "again and again"),
        OPTION("n", INT, &whole, "N", "a count", .min = -3, .max = 12),
        OPTION("time", NS, &ns, "TIME", "a time"),
        OPTION("mem", BYTES, &bytes, "BYTES", "a size"),
        OPTION("link", RATE, &rate, "RATE", "a rate"),
        OPTION("alpha", RATIO, &ratio, "RATIO", "a ratio"),
    };
    struct command_line line = COMMAND_LINE(options, 3);
    struct err err = {0};
    char *text = fuzz_text(data, size), *words[MAX_WORDS + 1] = {"command"}, *save = NULL;
    int num = 1;
    for (char *word = strtok_r(text, "\n", &save); word && num < MAX_WORDS;
         word = strtok_r(NULL, "\n", &save))
        words[num++] = word;
    if (fuzz_judge(options_parse(&line, num, words, &err), &err) && !line.help &&
        (whole < -3 || whole > 12))
        fuzz_wrong("a count is out of its limits");
    free(text);
}

/* An accepted schedule is written and read again, with the same text. */
void fuzz_schedule(const uint8_t *data, size_t size)
{
    struct schedule schedule = {0}, again = {0};
    struct err err = {0}, checked = {0}, second = {0};
    char *text = fuzz_text(data, size), *csv = NULL, *twice = NULL;
    if (fuzz_judge(schedule_from_csv(text, "input", &schedule, &err), &err)) {
        fuzz_judge(schedule_check(&schedule, 2, &checked), &checked);
        if (schedule_to_csv(&schedule, &csv, NULL) != OK)
            fuzz_wrong("a schedule cannot be written");
        if (!fuzz_judge(schedule_from_csv(csv, "again", &again, &second), &second))
            fuzz_wrong(second.msg);
        if (schedule_to_csv(&again, &twice, NULL) != OK || strcmp(csv, twice) != 0)
            fuzz_wrong("a schedule, read again, is another one");
    }
    schedule_clear(&schedule);
    schedule_clear(&again);
    free(text);
    free(csv);
    free(twice);
}

static void differs(void *ctx, const struct row_table *table, const void *a, const void *b)
{
    (void)ctx;
    (void)a;
    (void)b;
    fuzz_wrong(table->name);
}

/* A profile as JSON, CSV or item times. An accepted one is written as CSV and read again. */
void fuzz_profile(const uint8_t *data, size_t size)
{
    struct profile profile = {0}, again = {0};
    struct err err = {0}, second = {0};
    fuzz_put("profile", data, size);
    if (fuzz_judge(profile_read_file(fuzz_path("profile"), &profile, &err), &err)) {
        char *csv = NULL;
        size_t bytes;
        FILE *out = open_memstream(&csv, &bytes);
        if (!out)
            fuzz_wrong("no memory");
        profile_to_csv(&profile, out);
        fclose(out);
        if (!fuzz_judge(profile_from_csv(csv, "again", &again, &second), &second))
            fuzz_wrong(second.msg);
        profile_diff(&profile, &again, differs, NULL);
        free(csv);
    }
    profile_clear(&profile);
    profile_clear(&again);
}

/* A file of hosts, and behind it words of the launcher. */
void fuzz_hosts(const uint8_t *data, size_t size)
{
    struct members members = {0};
    struct err err = {0};
    char *words = NULL, lost[64];
    size_t length, rest;
    const uint8_t *file = fuzz_part(data, size, 0, &length),
                  *more = fuzz_part(data, size, 1, &rest);
    char *text = fuzz_text(more, rest);
    fuzz_put("hosts", file, length);
    if (asprintf(&words, "mpirun --hostfile %s %s", fuzz_path("hosts"), text) < 0)
        fuzz_wrong("no memory");
    if (fuzz_judge(members_init(words, 4, &members, &err), &err)) {
        char *again = members_words(&members);
        if (members_ranks(&members) < 0 || !again)
            fuzz_wrong("a negative number of ranks");
        members_lost(&members, lost, sizeof lost);
        free(again);
    }
    members_clear(&members);
    free(words);
    free(text);
}
