/* Waits inside MPI beside other work. ranks: 2 */
#include "exec/comm/patience.h"

#include <time.h>

#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

enum { US = 1000, MS = 1000 * US };

static struct comm comm;

static void it_yields_while_yields_are_fast(void **state)
{
    (void)state;
    struct patience p = {0};
    for (int64_t now = MS; now < 100 * MS; now += 5 * US) {
        assert_int_equal(patience_sleep_ns(&p, now), 0);
        patience_end(&p, now + US, US);
    }
}

/* A node with more ranks than cores: a rank that yields waits for a slice of another one. */
static void it_goes_on_yielding_where_others_take_one_slice(void **state)
{
    (void)state;
    struct patience p = {0};
    patience_end(&p, 4 * MS, 3 * MS);
    assert_int_equal(patience_sleep_ns(&p, 4 * MS + US), 0);
}

static void it_sleeps_for_4_s_after_a_slow_yield(void **state)
{
    (void)state;
    struct patience p = {0};
    const int64_t slow = 12 * MS, end = MS + slow;
    assert_int_equal(patience_sleep_ns(&p, MS), 0);
    patience_end(&p, end, slow);
    assert_true(patience_sleep_ns(&p, end + 3999 * (int64_t)MS) > 0);
    assert_int_equal(patience_sleep_ns(&p, end + 4000 * (int64_t)MS), 0);
}

/* Sleeps grow with the wait, so that a long one costs little, and begin anew with the next. */
static void a_sleep_is_an_eighth_of_the_wait(void **state)
{
    (void)state;
    struct patience p = {.sleeps_until = INT64_MAX};
    int64_t now = MS, slept = 0, calls = 0;
    while (slept < 20 * MS) {
        const int64_t ns = patience_sleep_ns(&p, now), eighth = (now - MS) / 8;
        assert_int_equal(ns, eighth < 20 * US ? 20 * US : eighth > 500 * US ? 500 * US : eighth);
        slept += ns;
        calls++;
        patience_end(&p, now += ns, 0);
        now += US;
    }
    assert_in_range(calls, 40, 80);
    assert_int_equal(patience_sleep_ns(&p, now + 100 * US), 20 * US);
}

/* Rank 0 waits for a rank that comes late. Of MPI libraries, Open MPI yields, where it is asked to. */
static void mpi_waits_by_it(void **state)
{
    (void)state;
    struct err err = {0};
    const int64_t before = patience_calls();
    if (!getenv("OMPI_COMM_WORLD_SIZE") || !getenv("OMPI_MCA_mpi_yield_when_idle"))
        skip();
    if (comm.rank == 1)
        nanosleep(&(struct timespec){.tv_nsec = 50 * MS}, NULL);
    assert_int_equal(comm_barrier(comm.all, &err), OK);
    if (comm.rank == 0)
        assert_true(patience_calls() > before);
}

int main(int argc, char **argv)
{
    on_ranks_begin(&argc, &argv, 2, &comm);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_yields_while_yields_are_fast),
        cmocka_unit_test(it_goes_on_yielding_where_others_take_one_slice),
        cmocka_unit_test(it_sleeps_for_4_s_after_a_slow_yield),
        cmocka_unit_test(a_sleep_is_an_eighth_of_the_wait),
        cmocka_unit_test(mpi_waits_by_it),
    };
    return on_ranks_end(&comm, cmocka_run_group_tests(tests, NULL, NULL));
}
