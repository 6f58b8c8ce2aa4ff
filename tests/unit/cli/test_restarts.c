/* Runs that are started again. The launcher is a script of the test: it notes its words, and does
 * what the test says about this start. The program is copied beside a file elapse-exec, where it
 * looks for one. seconds: 3 */
#include "cli/launch/restarts.h"

#include <sys/stat.h>

#include "profiles/base/whole_file.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static void shell(const char *command)
{
    char text[400];
    snprintf(text, sizeof text, "cd %s && %s", scratch, command);
    if (system(text) != 0)
        fail_msg("%s", text);
}

static const char *replayed; /* --plan-losses of run(); NULL: none */

/* Run `train job.json --out OUT --steps 9` with the launcher's further words. does: a line of shell
 * for each start, in the scratch folder, where out/ is the run's folder. *starts: a line for each
 * start, the launcher's words; free it. */
static enum status run(const char *words, int64_t num_ranks, int64_t max_restarts,
                       int64_t min_ranks, const char *does, char **starts, struct err *err)
{
    char launcher[200], out[64],
        *argv[] = {"train", "job.json", "--out", out, "--steps", "9", NULL};
    shell("rm -rf out && mkdir out && : >starts");
    file_with("does", does);
    snprintf(launcher, sizeof launcher, "%s/launcher%s", scratch, words);
    setenv("ELAPSE_MPIRUN", launcher, 1);
    snprintf(out, sizeof out, "%s", at("out"));
    const struct restarts asked = {num_ranks, max_restarts, min_ranks, out, replayed};
    *err = (struct err){0};
    const enum status rc = restarts_run(&asked, 6, argv, err);
    *starts = NULL;
    assert_int_equal(file_read_text(at("starts"), starts, NULL), OK);
    return rc;
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Line n (from 0) of the starts, behind the launcher's name. */
static const char *line(const char *starts, int n)
{
    static char text[512];
    while (n-- > 0)
        starts = strchr(starts, '\n') + 1;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(starts, "\n"), starts);
    return text;
}

static void expect_starts(char *starts, int n)
{
    if (count_lines(starts) != n)
        fail_msg("%d starts, not %d:\n%s", count_lines(starts), n, starts);
}

static void expect_start(const char *starts, int n, const char *ranks, const char *why)
{
    const char *is = strstr(line(starts, n), ranks);
    if (!is || !strstr(is, why))
        fail_msg("start %d lacks '%s...%s':\n%s", n, ranks, why, starts);
}

static void restarts_run__starts_once_what_does_not_fail(void **state)
{
    (void)state;
    struct err err;
    char *starts;
    assert_int_equal(run("", 3, 5, 1, "exit 0", &starts, &err), OK);
    expect_starts(starts, 1);
    assert_non_null(strstr(starts, "-n 3 --call "));
    assert_non_null(strstr(starts, " train job.json --out "));
    free(starts);
}

/* Only a loss is met by another start: not bad input, and not a run without a checkpoint. */
static void restarts_run__starts_again_only_after_a_loss(void **state)
{
    static const struct {
        const char *does;
        enum status want;
    } cases[] = {
        {"mkdir out/checkpoint-4; exit 2",     ERR_INPUT },
        {"exit 137",                           ERR_SYSTEM},
        {"mkdir out/checkpoint-4.tmp; exit 9", ERR_SYSTEM},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err;
        char *starts;
        assert_int_equal(run("", 2, 5, 1, cases[i].does, &starts, &err), cases[i].want);
        assert_null(strstr(err.hint, "--resume"));
        expect_starts(starts, 1);
        free(starts);
    }
}

static void restarts_run__goes_on_from_the_checkpoint(void **state)
{
    (void)state;
    struct err err;
    char *starts, want[200], first[48] = "", second[48] = "-";
    assert_int_equal(run("", 2, 5, 1, "mkdir out/checkpoint-4; exit 137\nexit 0", &starts, &err),
                     OK);
    expect_starts(starts, 2);
    snprintf(want, sizeof want,
             " --restarted lost: a rank was lost train --resume %s job.json "
             "--steps 9",
             at("out"));
    if (!strstr(line(starts, 1), want))
        fail_msg("%s\n%s", line(starts, 1), want);
    /* Both starts carry the name of one call, by which its steps are counted once. */
    sscanf(strstr(line(starts, 0), " --call "), " --call %47s", first);
    sscanf(strstr(line(starts, 1), " --call "), " --call %47s", second);
    assert_string_equal(first, second);
    free(starts);
}

static void restarts_run__gives_up_after_max_restarts(void **state)
{
    (void)state;
    struct err err;
    char *starts;
    assert_int_equal(run("", 2, 2, 1,
                         "mkdir out/checkpoint-4; exit 137\nmkdir out/checkpoint-8; exit 137\n"
                         "mkdir out/checkpoint-12; exit 137\nexit 0",
                         &starts, &err),
                     ERR_SYSTEM);
    expect_starts(starts, 3);
    free(starts);
    for (int restarts = 0; restarts < 2; restarts++) { /* how to go on, where one can */
        char want[200];
        assert_int_equal(run("", 2, restarts, 1,
                             "mkdir out/checkpoint-4; exit 137\nmkdir out/checkpoint-8; exit 137",
                             &starts, &err),
                         ERR_SYSTEM);
        snprintf(want, sizeof want, "continue with: elapse train --resume %s -n 2", at("out"));
        assert_string_equal(err.hint, want);
        free(starts);
    }
}

static void restarts_run__leaves_out_a_machine_that_does_not_answer(void **state)
{
    (void)state;
    struct err err;
    char *starts;
    const char *hosts = " --host localhost:2,gone:2";
    assert_int_equal(run(hosts, 4, 3, 2, "mkdir out/checkpoint-4; exit 137\nexit 0", &starts, &err),
                     OK);
    expect_starts(starts, 2);
    assert_non_null(strstr(line(starts, 0), "--host localhost:2,gone:2 -n 4 "));
    assert_non_null(strstr(line(starts, 1), "--host localhost:2 -n 2 "));
    assert_non_null(strstr(line(starts, 1), "node gone does not answer"));
    free(starts);
    assert_int_equal(run(hosts, 4, 3, 3, "mkdir out/checkpoint-4; exit 137\nexit 0", &starts, &err),
                     ERR_SYSTEM);
    expect_starts(starts, 1);
    assert_non_null(strstr(err.msg, "2 ranks are left, --min-ranks is 3"));
    free(starts);
}

/* Lost twice at one checkpoint: without one rank. As soon as the run trains, it is asked to yield,
 * and goes on with all. */
static void restarts_run__gives_up_a_rank_and_tries_it_again(void **state)
{
    (void)state;
    struct err err;
    char *starts;
    assert_int_equal(run("", 4, 3, 1,
                         "mkdir out/checkpoint-4; exit 137\nexit 137\n"
                         "trap 'echo \"{\\\"yielded\\\":true}\" >out/summary.json; exit 0' USR2; "
                         "echo x >>out/metrics.jsonl; while :; do sleep 0.05; done\nexit 0",
                         &starts, &err),
                     OK);
    expect_starts(starts, 4);
    expect_start(starts, 1, "-n 4 --call ", " --restarted lost: ");
    expect_start(starts, 2, "-n 3 --call ", " --restarted lost: lost twice without");
    expect_start(starts, 3, "-n 4 --call ", " --restarted returned: ");
    free(starts);
}

/* A signal that nobody here has sent is no end of the run, and takes no restart. */
static void restarts_run__goes_on_after_a_signal_of_others(void **state)
{
    (void)state;
    struct err err;
    char *starts;
    assert_int_equal(run("", 4, 1, 1,
                         "mkdir out/checkpoint-4; echo x >>out/metrics.jsonl; "
                         "echo '{\"yielded\":true}' >out/summary.json; exit 0\n"
                         "exit 137\nexit 0",
                         &starts, &err),
                     OK);
    expect_starts(starts, 3);
    expect_start(starts, 1, "-n 4 --call ", " --restarted returned: a signal asked it to stop");
    expect_start(starts, 2, "-n 4 --call ", " --restarted lost: ");
    free(starts);
}

/* A trace is replayed: the rank's number is that among those left, a rank that returns joins when the
 * run yields, and a loss that the trace does not have takes no rank. */
static void restarts_run__replays_planned_losses(void **state)
{
    (void)state;
    struct err err;
    char *starts;
    replayed = file_with("losses", "step,rank,event\n20,0,lost\n30,2,lost\n50,0,back\n60,1,lost\n");
#define LINE(step) "echo '{\"step\":" #step ",\"loss\":1}' >>out/metrics.jsonl; "
    const enum status rc =
        run("", 3, 9, 1,
            "mkdir out/checkpoint-4; " LINE(10) "exit 139\n" /* not the trace's */
            LINE(20) "exit 137\n" LINE(29) "exit 137\n"      /* a line short */
            LINE(56) "echo '{\"yielded\":true}' >out/summary.json; exit 0\n" LINE(
                60) "exit 137\nrm out/summary.json; exit 0",
            &starts, &err);
    assert_int_equal(rc, OK);
    expect_starts(starts, 6);
    expect_start(starts, 0, "-n 3 --call ", " --losses 20:0:-1 ");
    expect_start(starts, 1, "-n 3 --call ", " --losses 20:0:-1 ");
    expect_start(starts, 2, "-n 2 --call ", " --losses 30:1:-1 ");
    expect_start(starts, 3, "-n 1 --call ", " --losses 60:0:50 ");
    expect_start(starts, 4, "-n 2 --call ", " --losses 60:1:-1 ");
    expect_start(starts, 5, "-n 1 --call ", " --losses -1:-1:-1 ");
    free(starts);
    replayed = file_with("losses", "20,0,lost\n30,1,back\n");
    assert_int_equal(run("", 2, 9, 1, "exit 0", &starts, &err), ERR_INPUT);
    assert_string_equal(err.msg, "event 2 of the trace: node 1 returns, but is not lost");
    expect_starts(starts, 0);
    free(starts);
    replayed = NULL;
}

/* Copy the program into the scratch folder, and become that copy. */
static int move_in(char **argv)
{
    char command[600], self[400] = "";
    if (scratch_make(NULL) != 0 || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    snprintf(command, sizeof command, "cp '%s' %s/program", self, scratch);
    if (system(command) != 0)
        return 1;
    execl(at("program"), argv[0], scratch, (char *)NULL);
    return 1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarts_run__starts_once_what_does_not_fail),
        cmocka_unit_test(restarts_run__starts_again_only_after_a_loss),
        cmocka_unit_test(restarts_run__goes_on_from_the_checkpoint),
        cmocka_unit_test(restarts_run__gives_up_after_max_restarts),
        cmocka_unit_test(restarts_run__leaves_out_a_machine_that_does_not_answer),
        cmocka_unit_test(restarts_run__gives_up_a_rank_and_tries_it_again),
        cmocka_unit_test(restarts_run__goes_on_after_a_signal_of_others),
        cmocka_unit_test(restarts_run__replays_planned_losses),
    };
    char text[400];
    if (argc < 2)
        return move_in(argv);
    snprintf(scratch, sizeof scratch, "%s", argv[1]);
    /* A shell cannot trap what was ignored at its start, as SIGUSR2 is for a launcher. */
    snprintf(text, sizeof text,
             "#!/bin/sh\ncd %s\necho \"$*\" >>starts\nsed -n \"$(wc -l <starts)p\" does >now\n"
             "exec env --default-signal=USR2 sh ./now\n",
             scratch);
    chmod(file_with("launcher", text), 0755);
    chmod(file_with("elapse-exec", "#!/bin/sh\n"), 0755);
    setenv("ELAPSE_PROBE", "test -e", 1);
    return cmocka_run_group_tests(tests, NULL, scratch_remove);
}
