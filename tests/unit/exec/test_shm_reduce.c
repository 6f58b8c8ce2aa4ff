/* Sums through shared memory. ranks: 2
 *
 * Judge: the sum formed in a loop on one rank, bit by bit. Run it on 3 or 4 ranks too. */
#include "exec/base/rng.h"
#include "exec/comm/shm_reduce.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

static struct shm_reduce *reduce;
static int rank, size;

static float value_of(int r, int64_t i)
{
    return (float)rng_normal(rng_key(7, (uint64_t)r, 0, 0), (uint64_t)i);
}

static float expected(int first, int width, bool pairwise, int64_t i)
{
    if (pairwise && width > 1)
        return expected(first, width / 2, true, i) +
               expected(first + width / 2, width / 2, true, i);
    float sum = value_of(first, i);
    for (int r = 1; r < width; r++)
        sum += value_of(first + r, i);
    return sum;
}

static void add_up(int64_t first, int64_t count, bool pairwise)
{
    shm_reduce_start(reduce, first, count, pairwise);
    shm_reduce_wait(reduce);
}

static void check_sums(bool pairwise)
{
    /* Less than a lane, a segment to the element and one more, twice in a row; behind an offset. */
    static const int64_t counts[] = {0, 1, 2, 15, 16, 17, 512, 1000, 1023, 1024, 1025, 40000, 1, 7};
    float *values = shm_reduce_buffer(reduce);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        const int64_t n = counts[c], first = 1 + (int64_t)c * 3;
        for (int64_t i = 0; i < n; i++)
            values[first + i] = value_of(rank, i);
        values[first - 1] = values[first + n] = 42.0f;
        add_up(first, n, pairwise);
        for (int64_t i = 0; i < n; i++) {
            const float want = expected(0, size, pairwise, i);
            assert_memory_equal(&values[first + i], &want, sizeof want);
        }
        assert_true(values[first - 1] == 42.0f && values[first + n] == 42.0f);
    }
}

static void shm_reduce_buffer__is_aligned(void **state)
{
    (void)state;
    assert_int_equal((uintptr_t)shm_reduce_buffer(reduce) % 64, 0);
}

static void shm_reduce__adds_in_rank_order_bit_by_bit(void **state)
{
    (void)state;
    check_sums(false);
}

static void shm_reduce__adds_pairwise_bit_by_bit(void **state)
{
    (void)state;
    if ((size & (size - 1)) == 0)
        check_sums(true);
}

static void shm_reduce__is_right_when_ranks_come_at_different_times(void **state)
{
    enum { COUNT = 40000, ROUNDS = 200 };
    float *values = shm_reduce_buffer(reduce);
    (void)state;
    for (int k = 0; k < ROUNDS; k++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)(rank + 1) * (float)(k + i);
        volatile double wasted = 0;
        for (uint32_t w = rng_bits((uint64_t)rank, (uint32_t)k) % 100000; w > 0; w--)
            wasted = wasted + 1;
        add_up(0, COUNT - k, false);
        for (int i = 0; i < COUNT; i++) {
            float sum = (float)(k + i);
            for (int r = 1; r < size; r++)
                sum += (float)(r + 1) * (float)(k + i);
            assert_true(values[i] == (i < COUNT - k ? sum : (float)(rank + 1) * (float)(k + i)));
        }
    }
}

static void shm_reduce__lets_messages_move_while_it_waits(void **state)
{
    /* Too large to be sent at once: the peer that waits for it must be served by a sender that
     * already waits in the sum. */
    enum { BYTES = 8 << 20 };
    char *data = calloc(BYTES, 1);
    float *value = shm_reduce_buffer(reduce), sum = 0.0f;
    (void)state;
    *value = (float)(rank + 1);
    for (int r = 0; r < size; r++)
        sum += (float)(r + 1);
    if (rank == 0 && size > 1) {
        MPI_Request request;
        memset(data, 7, BYTES);
        MPI_Isend(data, BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD, &request);
        add_up(0, 1, false);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        if (rank == 1)
            MPI_Recv(data, BYTES, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        add_up(0, 1, false);
        if (rank == 1)
            assert_int_equal(data[BYTES - 1], 7);
    }
    assert_true(*value == sum);
    free(data);
}

static void shm_reduce_new__refuses_what_shared_memory_cannot_hold(void **state)
{
    struct shm_reduce *other = NULL;
    struct err err = {0};
    (void)state;
    assert_int_equal(shm_reduce_new(MPI_COMM_WORLD, INT64_MAX / 8, &other, &err), ERR_NOMEM);
    assert_non_null(strstr(err.msg, "no room"));
    assert_null(other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shm_reduce_buffer__is_aligned),
        cmocka_unit_test(shm_reduce__adds_in_rank_order_bit_by_bit),
        cmocka_unit_test(shm_reduce__adds_pairwise_bit_by_bit),
        cmocka_unit_test(shm_reduce__is_right_when_ranks_come_at_different_times),
        cmocka_unit_test(shm_reduce__lets_messages_move_while_it_waits),
        cmocka_unit_test(shm_reduce_new__refuses_what_shared_memory_cannot_hold),
    };
    struct comm comm;
    struct err err = {0};
    int failed = 1;
    on_ranks_begin(&argc, &argv, 0, &comm);
    rank = comm.rank;
    size = comm.size;
    if (shm_reduce_new(MPI_COMM_WORLD, 50000, &reduce, &err) == OK)
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    else
        fprintf(stderr, "%s\n", err.msg);
    shm_reduce_free(reduce);
    return on_ranks_end(&comm, failed);
}
