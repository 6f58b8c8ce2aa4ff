/* Sampler: permutation and sharding, against marking every sample. */
#include "exec/data/sampler.h"
#include "exec/data/counter.h"
#include "tests/unit/test.h"

static void sampler_id__is_a_bijection_for_every_size_and_epoch(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 257, 1000, 4097, 15000};
    static unsigned char seen[15000];
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            struct sampler sampler;
            assert_int_equal(
                sampler_init(&sampler, &(struct sampler_spec){sizes[i], 7, true, 1, 1, 1}, NULL),
                OK);
            memset(seen, 0, sizeof seen);
            for (int64_t p = 0; p < sizes[i]; p++) {
                int64_t id = sampler_id(&sampler, epoch, p);
                assert_in_range(id, 0, sizes[i] - 1);
                assert_int_equal(seen[id]++, 0);
            }
        }
}

static void sampler_id__differs_between_epochs_and_seeds(void **state)
{
    struct sampler a, b;
    int same_epoch = 0, same_seed = 0, fixed = 0;
    (void)state;
    sampler_init(&a, &(struct sampler_spec){1000, 1, true, 1, 1, 1}, NULL);
    sampler_init(&b, &(struct sampler_spec){1000, 2, true, 1, 1, 1}, NULL);
    for (int64_t p = 0; p < 1000; p++) {
        same_epoch += sampler_id(&a, 0, p) == sampler_id(&a, 1, p);
        same_seed += sampler_id(&a, 0, p) == sampler_id(&b, 0, p);
        fixed += sampler_id(&a, 0, p) == p;
    }
    /* One coincidence is expected of two random permutations. */
    assert_true(same_epoch < 10 && same_seed < 10 && fixed < 10);
    a.spec.shuffle = false;
    assert_int_equal(sampler_id(&a, 5, 123), 123);
}

static void sampler_microbatch__gives_every_sample_once_an_epoch_at_any_r_and_m(void **state)
{
    static unsigned char seen[1000];
    (void)state;
    for (int64_t n = 1; n <= 1000; n = n * 3 + 1)
        for (int r = 1; r <= 4; r++)
            for (int64_t batch = 1; batch <= 37; batch += 9)
                for (int m = 1; m <= 5; m++) {
                    struct sampler sampler;
                    int64_t total = 0;
                    assert_int_equal(sampler_init(&sampler,
                                                  &(struct sampler_spec){n, 3, true, r, batch, m},
                                                  NULL),
                                     OK);
                    memset(seen, 0, sizeof seen);
                    for (int64_t s = 0; s < sampler_steps_per_epoch(&sampler); s++) {
                        int64_t of_step = 0;
                        for (int i = 0; i < r; i++)
                            for (int j = 0; j < sampler.microbatches.count; j++) {
                                int64_t first;
                                int64_t count = sampler_microbatch(&sampler, s, i, j, &first);
                                assert_in_range(count, 0, sampler.microbatches.size);
                                for (int64_t p = first; p < first + count; p++)
                                    assert_int_equal(seen[sampler_id(&sampler, 2, p)]++, 0);
                                of_step += count;
                            }
                        assert_true(of_step > 0);
                        assert_int_equal(of_step, sampler_step_samples(&sampler, s));
                        total += of_step;
                    }
                    assert_int_equal(total, n);
                }
}

static void sampler_microbatch__holds_the_same_samples_at_every_r_when_batches_divide(void **state)
{
    struct sampler one, four;
    (void)state;
    sampler_init(&one, &(struct sampler_spec){500, 3, true, 1, 64, 16}, NULL);
    sampler_init(&four, &(struct sampler_spec){500, 3, true, 4, 16, 4}, NULL);
    for (int64_t s = 0; s < sampler_steps_per_epoch(&one); s++)
        for (int g = 0; g < 16; g++) {
            int64_t a, b;
            int64_t count = sampler_microbatch(&one, s, 0, g, &a);
            assert_int_equal(count, sampler_microbatch(&four, s, g / 4, g % 4, &b));
            if (count > 0)
                assert_int_equal(a, b);
        }
}

/* R and M change at random in mid-epoch: still every sample once. */
static void sampler_go_on__loses_and_doubles_nothing(void **state)
{
    (void)state;
    for (uint64_t run = 0; run < 200; run++) {
        const int64_t n = 1 + (int64_t)(counter_bits(5, run) % 300);
        int seen[300] = {0};
        int64_t position = 0;
        for (uint64_t change = 0; position < n; change++) {
            const uint64_t draw = counter_bits(6, run * 100 + change);
            const int r = 1 + (int)(draw % 4), m = 1 + (int)((draw >> 8) % 3);
            struct sampler sampler;
            assert_int_equal(sampler_init(&sampler,
                                          &(struct sampler_spec){n, 3, true, r,
                                                                 3 + (int64_t)(draw >> 16) % 9, m},
                                          NULL),
                             OK);
            const int64_t global = sampler.spec.batch * r;
            int64_t s = sampler_go_on(&sampler, position);
            assert_int_equal(sampler_position(&sampler, s), position);
            assert_true(position % global != 0 || sampler.origin == 0);
            assert_int_equal(sampler_steps_per_whole_epoch(&sampler), (n - 1) / global + 1);
            for (int64_t steps = 1 + (int64_t)(draw >> 32) % 3;
                 steps > 0 && s < sampler_steps_per_epoch(&sampler); steps--, s++) {
                int64_t count = 0;
                for (int i = 0; i < r; i++)
                    for (int j = 0; j < sampler.microbatches.count; j++) {
                        int64_t first, c = sampler_microbatch(&sampler, s, i, j, &first);
                        for (int64_t p = first; p < first + c; p++)
                            assert_int_equal(seen[sampler_id(&sampler, 2, p)]++, 0);
                        count += c;
                    }
                assert_int_equal(count, sampler_step_samples(&sampler, s));
                assert_true(count > 0);
            }
            position = sampler_position(&sampler, s);
        }
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(seen[i], 1);
    }
}

static void sampler_init__refuses_what_cannot_be(void **state)
{
    struct sampler sampler;
    struct err err = {0};
    (void)state;
    assert_int_equal(sampler_init(&sampler, &(struct sampler_spec){0, 1, true, 1, 1, 1}, &err),
                     ERR_INPUT);
    assert_string_equal(err.msg, "cannot sample from 0 samples, need at least 1");
    assert_int_equal(sampler_init(&sampler, &(struct sampler_spec){10, 1, true, 0, 1, 1}, NULL),
                     ERR_INPUT);
    assert_int_equal(sampler_init(&sampler,
                                  &(struct sampler_spec){10, 1, true, 1 << 20, INT64_MAX / 2, 1},
                                  NULL),
                     ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampler_id__is_a_bijection_for_every_size_and_epoch),
        cmocka_unit_test(sampler_id__differs_between_epochs_and_seeds),
        cmocka_unit_test(sampler_microbatch__gives_every_sample_once_an_epoch_at_any_r_and_m),
        cmocka_unit_test(sampler_microbatch__holds_the_same_samples_at_every_r_when_batches_divide),
        cmocka_unit_test(sampler_go_on__loses_and_doubles_nothing),
        cmocka_unit_test(sampler_init__refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
