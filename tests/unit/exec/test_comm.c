/* Messages. ranks: 3
 *
 * Judge: sums formed in a loop on one rank. */
#include <sys/resource.h>
#include <unistd.h>

#include "exec/base/rng.h"
#include "exec/comm/comm.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

static struct comm world;

static float value_of(int rank, int64_t i)
{
    return (float)rng_normal(rng_key(7, (uint64_t)rank, 0, 0), (uint64_t)i);
}

static void comm_allreduce_f32__sums_in_rank_order_bit_by_bit(void **state)
{
    /* Then buckets of 1, 16 and 256 KiB and 16 MiB, at which MPI's own sums change their order. */
    static const int64_t counts[] = {0, 1, 2, 3, 7, 1000, 65537, 256, 4096, 65536, 4194304};
    (void)state;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        float *values = malloc((size_t)counts[c] * sizeof *values + 1);
        for (int64_t i = 0; i < counts[c]; i++)
            values[i] = value_of(world.rank, i);
        assert_int_equal(comm_allreduce_f32(world.all, values, counts[c], NULL), OK);
        for (int64_t i = 0; i < counts[c]; i++) {
            float sum = value_of(0, i);
            for (int r = 1; r < world.size; r++)
                sum += value_of(r, i);
            assert_memory_equal(&values[i], &sum, sizeof sum);
        }
        free(values);
    }
}

static void comm_allreduce_f32__gives_the_same_bits_in_a_sum_buffer(void **state)
{
    float *values = NULL;
    (void)state;
    for (int64_t count = 1; count < 100000; count *= 37) { /* grows */
        assert_int_equal(comm_sum_buffer(world.all, count, &values, NULL), OK);
        for (int64_t i = 0; i < count; i++)
            values[i] = value_of(world.rank, i);
        assert_int_equal(comm_allreduce_f32(world.all, values, count, NULL), OK);
        for (int64_t i = 0; i < count; i++) {
            float sum = value_of(0, i);
            for (int r = 1; r < world.size; r++)
                sum += value_of(r, i);
            assert_memory_equal(&values[i], &sum, sizeof sum);
        }
    }
}

/* Sums under way, in a sum buffer and outside, one after another in differing time. */
static void comm_allreduce_start__never_waits_and_gives_the_same_bits(void **state)
{
    enum { COUNT = 30011, ROUNDS = 40 };
    float *shared = NULL, *own = malloc(COUNT * sizeof *own);
    struct comm_group *other; /* a group under a sum has no other collective */
    (void)state;
    assert_int_equal(comm_split(&world, 0, world.rank, &other, NULL), OK);
    assert_int_equal(comm_sum_buffer(world.all, COUNT, &shared, NULL), OK);
    for (int round = 0; round < ROUNDS; round++) {
        float *values = round % 2 ? own : shared;
        struct comm_reduce reduce = {0};
        bool done = false;
        int tests = 0;
        for (int64_t i = 0; i < COUNT; i++)
            values[i] = value_of(world.rank + 10 * round, i);
        if (round < 2) { /* nobody gets a sum before the last has started */
            if (world.rank > 0)
                assert_int_equal(
                    comm_allreduce_start(world.all, values, COUNT, false, &reduce, NULL), OK);
            for (int k = 0; k < 100 && world.rank > 0; k++) {
                assert_int_equal(comm_allreduce_test(&reduce, &done, NULL), OK);
                assert_false(done);
            }
            assert_int_equal(comm_barrier(other, NULL), OK);
        }
        if (round >= 2 || world.rank == 0)
            assert_int_equal(comm_allreduce_start(world.all, values, COUNT, false, &reduce, NULL),
                             OK);
        for (volatile int wasted = world.rank * round * 1000; wasted > 0;)
            wasted = wasted - 1;
        while (!done && tests++ < (round % 5 ? INT32_MAX : 3))
            assert_int_equal(comm_allreduce_test(&reduce, &done, NULL), OK);
        assert_int_equal(comm_allreduce_wait(&reduce, NULL), OK);
        assert_int_equal(comm_allreduce_test(&reduce, &done, NULL), OK);
        assert_true(done && !reduce.active);
        for (int64_t i = 0; i < COUNT; i++) {
            float sum = value_of(10 * round, i);
            for (int r = 1; r < world.size; r++)
                sum += value_of(r + 10 * round, i);
            assert_memory_equal(&values[i], &sum, sizeof sum);
        }
    }
    comm_group_free(other);
    free(own);
}

static void comm_sum_f64__sums_in_rank_order(void **state)
{
    double values[5];
    (void)state;
    for (int i = 0; i < 5; i++)
        values[i] = value_of(world.rank, i) * 1e10;
    assert_int_equal(comm_sum_f64(world.all, values, 5, NULL), OK);
    for (int i = 0; i < 5; i++) {
        double sum = value_of(0, i) * 1e10;
        for (int r = 1; r < world.size; r++)
            sum += value_of(r, i) * 1e10;
        assert_true(values[i] == sum);
    }
}

static void comm_agree__tells_everyone_the_error_of_the_lowest_rank(void **state)
{
    struct err err = {0};
    enum status mine = OK;
    (void)state;
    assert_int_equal(comm_agree(&world, OK, &err), OK);
    if (world.rank > 0)
        mine =
            err_set(&err, world.rank == 1 ? ERR_INPUT : ERR_SYSTEM, "rank %d failed", world.rank);
    if (world.rank == 1)
        err_hint(&err, "a hint");
    assert_int_equal(comm_agree(&world, mine, &err), ERR_INPUT);
    assert_string_equal(err.msg, "rank 1 failed");
    assert_string_equal(err.hint, "a hint");
}

static void comm_split__orders_by_key_and_leaves_out_negative_colors(void **state)
{
    struct comm_group *group;
    (void)state;
    assert_int_equal(comm_split(&world, world.rank == 1 ? -1 : 4, -world.rank, &group, NULL), OK);
    if (world.rank == 1) {
        assert_null(group);
    } else {
        assert_int_equal(comm_group_size(group), 2);
        assert_int_equal(comm_group_rank(group), world.rank == 0 ? 1 : 0);
    }
    comm_group_free(group);
}

/* Memory in use that other processes may have, too. */
static int64_t shared_bytes(void)
{
    FILE *in = fopen("/proc/self/statm", "r");
    long long pages = 0;
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%*d %*d %lld", &pages), 1);
    fclose(in);
    return pages * sysconf(_SC_PAGESIZE);
}

static void comm_split__gives_back_what_freed_groups_have_shared(void **state)
{
    enum { GROUPS = 24, COUNT = 1 << 18 };
    const int64_t before = shared_bytes();
    (void)state;
    for (int i = 0; i < GROUPS; i++) {
        struct comm_group *group;
        float *buffer;
        assert_int_equal(comm_split(&world, 0, world.rank, &group, NULL), OK);
        assert_int_equal(comm_sum_buffer(group, COUNT, &buffer, NULL), OK);
        memset(buffer, 0, COUNT * sizeof *buffer);
        comm_group_free(group);
    }
    assert_true(shared_bytes() - before < GROUPS / 3 * COUNT * (int64_t)sizeof(float));
}

static void comm_isend__delivers_by_tag_and_in_order(void **state)
{
    enum { N = 50000 };
    static int data[2][N], got[2][N];
    struct comm_request send[2] = {{.bytes = 0}}, recv[2] = {{.bytes = 0}};
    int next = (world.rank + 1) % world.size, last = (world.rank + world.size - 1) % world.size;
    (void)state;
    for (int t = 0; t < 2; t++)
        for (int i = 0; i < N; i++)
            data[t][i] = world.rank * 1000000 + t * 100000 + i;
    for (int t = 1; t >= 0; t--)
        assert_int_equal(comm_irecv(world.all, got[t], sizeof got[t], last, t, &recv[t], NULL), OK);
    for (int t = 0; t < 2; t++)
        assert_int_equal(comm_isend(world.all, data[t], sizeof data[t], next, t, &send[t], NULL),
                         OK);
    for (int t = 0; t < 2; t++) {
        assert_int_equal(comm_wait(&recv[t], NULL), OK);
        assert_int_equal(comm_wait(&send[t], NULL), OK);
        assert_int_equal(got[t][N - 1], last * 1000000 + t * 100000 + N - 1);
    }
    bool done = false;
    assert_int_equal(comm_test(&recv[0], &done, NULL), OK);
    assert_true(done);
}

static void comm_wait__refuses_a_message_that_is_too_short(void **state)
{
    struct comm_request send = {.bytes = 0}, recv = {.bytes = 0};
    struct err err = {0};
    char data[8] = {0}, got[16];
    (void)state;
    if (world.rank == 0)
        assert_int_equal(comm_isend(world.all, data, 8, 1, 5, &send, NULL), OK);
    if (world.rank == 1) {
        assert_int_equal(comm_irecv(world.all, got, 16, 0, 5, &recv, NULL), OK);
        assert_int_equal(comm_wait(&recv, &err), ERR_SYSTEM);
        assert_string_equal(err.msg, "a message of 8 bytes came where 16 were expected");
    }
    assert_int_equal(comm_wait(&send, NULL), OK);
}

/* Else the others would wait in the next collective for a rank that has given up. */
static void comm_split__fails_on_all_ranks_where_one_has_no_memory(void **state)
{
    struct comm_group *group = NULL;
    struct err err = {0};
    (void)state;
    if (!FAIL_MALLOC)
        skip();
    if (world.rank == 1)
        fail_malloc_after(0);
    assert_int_equal(comm_split(&world, 0, world.rank, &group, &err), ERR_NOMEM);
    assert_string_equal(err.msg, "out of host memory");
    assert_null(group);
    assert_int_equal(comm_split(&world, 0, world.rank, &group, NULL), OK);
    assert_int_equal(comm_group_size(group), world.size);
    comm_group_free(group);
}

static void comm_cancel__leaves_messages_to_later_receives(void **state)
{
    const int to = (world.rank + 1) % world.size;
    const int from = (world.rank + world.size - 1) % world.size;
    int gone = -1, got[2] = {-1, -1};
    struct comm_request first = {0}, receive = {0}, send = {0};
    (void)state;
    assert_int_equal(comm_irecv(world.all, &gone, sizeof gone, from, 4, &first, NULL), OK);
    comm_cancel(&first);
    assert_false(first.active);
    comm_cancel(&first); /* nothing is left to take back */
    assert_int_equal(comm_barrier(world.all, NULL), OK);
    for (int i = 0; i < 2; i++) {
        const int value = 10 * i + world.rank;
        assert_int_equal(comm_isend(world.all, &value, sizeof value, to, 4, &send, NULL), OK);
        assert_int_equal(comm_wait(&send, NULL), OK);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(comm_irecv(world.all, &got[i], sizeof *got, from, 4, &receive, NULL), OK);
        assert_int_equal(comm_wait(&receive, NULL), OK);
        assert_int_equal(got[i], 10 * i + from);
    }
    assert_int_equal(gone, -1);
}

static void comm_gather__keeps_the_order_of_ranks_with_unequal_sizes(void **state)
{
    char data[4] = {'a', 'b', 'c', 'd'};
    void *all;
    int64_t *sizes;
    (void)state;
    assert_int_equal(comm_gather(world.all, data + world.rank, world.rank, &all, &sizes, NULL), OK);
    if (world.rank == 0) {
        assert_int_equal(sizes[0], 0);
        assert_int_equal(sizes[2], 2);
        assert_memory_equal(all, "bcd", 3);
    } else {
        assert_null(all);
    }
    free(all);
    free(sizes);
}

/* Rank 0 may allocate PART bytes more, and is to gather three times as many. */
static void comm_gather__fails_on_all_ranks_where_one_has_no_memory(void **state)
{
    enum { PART = 64 << 20 };
    char *part = calloc(1, PART);
    struct rlimit limit;
    struct err err = {0};
    long pages = 0;
    void *all;
    int64_t *sizes;
    (void)state;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!FAIL_MALLOC || !file || fscanf(file, "%ld", &pages) != 1)
        skip(); /* a sanitizer's address space is far larger */
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    const struct rlimit less = {(rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + PART,
                                limit.rlim_max};
    if (world.rank == 0)
        assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    const enum status rc = comm_gather(world.all, part, PART, &all, &sizes, &err);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_int_equal(rc, ERR_NOMEM);
    assert_string_equal(err.msg, "out of host memory");
    assert_null(all);
    assert_null(sizes);
    free(part);
}

/* More values than are summed in one call of MPI. */
static void comm_sum_f64__sums_any_count(void **state)
{
    enum { COUNT = 1000 };
    double values[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++)
        values[i] = i + world.rank;
    assert_int_equal(comm_sum_f64(world.all, values, COUNT, NULL), OK);
    for (int i = 0; i < COUNT; i++)
        assert_true(values[i] == world.size * i + world.size * (world.size - 1) / 2);
}

static void comm_isend__refuses_messages_beyond_what_mpi_counts(void **state)
{
    struct comm_request send = {.bytes = 0};
    char data = 0;
    (void)state;
    assert_int_equal(comm_isend(world.all, &data, INT64_C(1) << 40, 0, 1, &send, NULL), ERR_INPUT);
    assert_int_equal(comm_isend(world.all, &data, -1, 0, 1, &send, NULL), ERR_INPUT);
}

static void comm_isend__takes_the_largest_tag_beside_progress(void **state)
{
    struct comm_request send = {0}, recv = {0};
    const int next = (world.rank + 1) % world.size;
    const int last = (world.rank + world.size - 1) % world.size;
    int mine = world.rank, got = -1;
    bool done = false;
    (void)state;
    assert_true(world.max_tag >= 32766);
    assert_int_equal(comm_irecv(world.all, &got, sizeof got, last, world.max_tag, &recv, NULL), OK);
    assert_int_equal(comm_isend(world.all, &mine, sizeof mine, next, world.max_tag, &send, NULL),
                     OK);
    while (!done) {
        comm_progress(world.all);
        assert_int_equal(comm_test(&recv, &done, NULL), OK);
    }
    assert_int_equal(got, last);
    assert_int_equal(comm_wait(&send, NULL), OK);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comm_allreduce_f32__sums_in_rank_order_bit_by_bit),
        cmocka_unit_test(comm_allreduce_f32__gives_the_same_bits_in_a_sum_buffer),
        cmocka_unit_test(comm_allreduce_start__never_waits_and_gives_the_same_bits),
        cmocka_unit_test(comm_sum_f64__sums_in_rank_order),
        cmocka_unit_test(comm_agree__tells_everyone_the_error_of_the_lowest_rank),
        cmocka_unit_test(comm_split__orders_by_key_and_leaves_out_negative_colors),
        cmocka_unit_test(comm_split__gives_back_what_freed_groups_have_shared),
        cmocka_unit_test(comm_isend__delivers_by_tag_and_in_order),
        cmocka_unit_test(comm_wait__refuses_a_message_that_is_too_short),
        cmocka_unit_test(comm_split__fails_on_all_ranks_where_one_has_no_memory),
        cmocka_unit_test(comm_cancel__leaves_messages_to_later_receives),
        cmocka_unit_test(comm_gather__keeps_the_order_of_ranks_with_unequal_sizes),
        cmocka_unit_test(comm_gather__fails_on_all_ranks_where_one_has_no_memory),
        cmocka_unit_test(comm_sum_f64__sums_any_count),
        cmocka_unit_test(comm_isend__refuses_messages_beyond_what_mpi_counts),
        cmocka_unit_test(comm_isend__takes_the_largest_tag_beside_progress),
    };
    on_ranks_begin(&argc, &argv, 3, &world);
    return on_ranks_end(&world, cmocka_run_group_tests(tests, NULL, NULL));
}
