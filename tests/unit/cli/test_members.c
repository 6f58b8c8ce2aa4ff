/* The machines of a run: the launcher's words against lists by hand; probes are `test -e NAME` in a
 * folder, so a file stands for a machine that answers. */
#include "cli/launch/members.h"

#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static struct members read_words(const char *launcher, int64_t num_ranks)
{
    struct members members = {0};
    struct err err = {0};
    if (members_init(launcher, num_ranks, &members, &err) != OK)
        fail_msg("%s: %s", launcher, err.msg);
    return members;
}

/* The words with `lost` (-1: none) left out. */
static void expect_words(const char *launcher, int lost, const char *want)
{
    struct members members = read_words(launcher, 4);
    if (lost >= 0)
        members.hosts[lost].lost = true;
    char *words = members_words(&members);
    assert_string_equal(words, want);
    free(words);
    members_clear(&members);
}

static void members_init__reads_every_spelling_of_hosts(void **state)
{
    (void)state;
    char text[200];
    const char *open_mpi = file_with("open", "# nodes\na slots=2\n\nb slots=3 max_slots=9\n");
    char long_text[800];
    snprintf(long_text, sizeof long_text, "a slots=2 #%600s said of a\nb\n", "");
    const char *long_line = file_with("long", long_text);
    const char *hydra = file_with("hydra", "a:2\nb:3 # behind the switch\n");
    expect_words("mpirun", -1, "mpirun");
    expect_words("mpirun --mca a b", -1, "mpirun --mca a b");
    expect_words("mpirun -x A --host a:2,b:3 -x B", -1, "mpirun -x A -x B --host a:2,b:3");
    expect_words("mpirun -H a,b", -1, "mpirun --host a,b");
    expect_words("mpirun --host a,b,a,a", -1, "mpirun --host a:3,b");
    expect_words("mpiexec -hosts a,b", -1, "mpiexec -hosts a,b");
    snprintf(text, sizeof text, "mpirun --hostfile %s", open_mpi);
    expect_words(text, -1, "mpirun --host a:2,b:3");
    snprintf(text, sizeof text, "mpiexec -f %s", hydra);
    expect_words(text, -1, "mpiexec -hosts a:2,b:3");
    snprintf(text, sizeof text, "mpirun --hostfile %s", long_line);
    expect_words(text, -1, "mpirun --host a:2,b");
    expect_words("mpirun --host a:2,b:3,c:1", 0, "mpirun --host b:3,c:1");
    expect_words("mpirun --host a:2,b:3,c:1", 1, "mpirun --host a:2,c:1");
}

static void members_init__says_what_is_wrong(void **state)
{
    (void)state;
    struct members members = {0};
    struct err err = {0};
    assert_int_equal(members_init("mpirun --hostfile /no/such/file", 2, &members, &err),
                     ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "cannot open '/no/such/file'"));
    err = (struct err){0};
    assert_int_equal(members_init("mpirun --host ,", 2, &members, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "name no host"));
}

static void members_ranks__are_the_slots_or_shares_of_what_is_left(void **state)
{
    static const struct {
        const char *hosts;
        int64_t num_ranks, given_up;
        unsigned lost; /* a bit for each host */
        int64_t want;
    } cases[] = {
        {"a:2,b:2",     4,  0, 0, 4 },
        {"a:2,b:2",     4,  0, 1, 2 },
        {"a:2,b:2",     4,  1, 0, 3 },
        {"a:2,b:2",     4,  1, 2, 1 },
        {"a:2,b:2",     4,  9, 0, 0 }, /* at least none */
        {"a:2,b:2",     4,  0, 3, 0 },
        {"a:8,b:8",     4,  0, 1, 4 }, /* the other has slots for all */
        {"a:1,b:3",     8,  0, 1, 6 }, /* more ranks than slots: shares */
        {"a,b,c",       6,  0, 2, 4 }, /* no slots: equal shares */
        {"a:2,b",       4,  0, 2, 2 },
        {"a,b,c,d,e,f", 2,  0, 1, 1 },
        {"a,b,c,d",     2,  0, 7, 1 }, /* a machine that is left has a rank */
        {"a,b",         12, 0, 0, 12},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "mpirun --host %s", cases[i].hosts);
        struct members members = read_words(text, cases[i].num_ranks);
        members.given_up = cases[i].given_up;
        for (int h = 0; h < members.num_hosts; h++)
            members.hosts[h].lost = cases[i].lost >> h & 1;
        if (members_ranks(&members) != cases[i].want)
            fail_msg("%s of %d: %d ranks, not %d", text, (int)cases[i].num_ranks,
                     (int)members_ranks(&members), (int)cases[i].want);
        members_clear(&members);
    }
    struct members alone = read_words("mpirun", 5);
    assert_int_equal(members_ranks(&alone), 5);
    alone.given_up = 1;
    assert_int_equal(members_ranks(&alone), 4);
    members_clear(&alone);
}

static void members_ask__takes_for_lost_what_does_not_answer(void **state)
{
    (void)state;
    char names[64], was[512];
    assert_non_null(getcwd(was, sizeof was));
    assert_int_equal(chdir(scratch), 0);
    setenv("ELAPSE_PROBE", "test -e", 1);
    file_with("there", "");
    struct members members = read_words("mpirun --host localhost:1,there:1,gone:1,away:1", 4);
    members_ask(&members);
    assert_false(members.hosts[0].lost); /* this machine is not asked */
    assert_false(members.hosts[1].lost);
    assert_true(members_lost(&members, names, sizeof names));
    assert_string_equal(names, "gone, away");
    assert_int_equal(members_ranks(&members), 2);
    assert_false(members_ask_lost(&members));
    file_with("gone", "");
    members_ask(&members);
    assert_true(members_lost(&members, names, sizeof names));
    assert_string_equal(names, "away");
    file_with("away", "");
    members_ask(&members);
    assert_false(members_lost(&members, names, sizeof names));
    members_clear(&members);
    unsetenv("ELAPSE_PROBE");
    assert_int_equal(chdir(was), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_init__reads_every_spelling_of_hosts),
        cmocka_unit_test(members_init__says_what_is_wrong),
        cmocka_unit_test(members_ranks__are_the_slots_or_shares_of_what_is_left),
        cmocka_unit_test(members_ask__takes_for_lost_what_does_not_answer),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
