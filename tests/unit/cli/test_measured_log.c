/* Logs as the programs print them; the numbers were put in by hand. */
#include "cli/commands/measured_log.h"
#include "tests/unit/scratch.h"

/* clang-format off */
static void logs__give_the_median_step(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        struct measured_log want;
    } cases[] = {
        {" [2025-01-01 00:00:01] iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | throughput per GPU (TFLOP/s/GPU): 1.0 |\n"
         " [2025-01-01 00:00:02] iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 1200.0 | learning rate: 1E-5 |\n"
         " [2025-01-01 00:00:03] iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 1000.0 |\n"
         "[after dataloaders are built] datetime: 2025\n"
         " [2025-01-01 00:00:04] iteration        4/     100 | consumed samples:          256 | elapsed time per iteration (ms): 1100.0 |\n",
         {.step_ns = 1.1e9}},
        {"[titan] 2025-01-01 - root - INFO - \033[31mstep:  1  \033[32mloss:  8.1  \033[33mmemory: 40.0GiB(50.00%)  \033[34mtps: 1,000  \033[36mtflops: 50.00  \033[35mmfu: 5.00%\n"
         "[titan] 2025-01-01 - root - INFO - \033[31mstep: 10  \033[32mloss:  7.1  \033[33mmemory: 40.0GiB(50.00%)  \033[34mtps: 7,200  \033[36mtflops: 390.00  \033[35mmfu: 39.00%\n",
         {.tokens_per_s_per_device = 4100}},
        {"[2025-01-01 00:00:00,000] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=31.5, CurrSamplesPerSec=32.5, MemAllocated=10.1GB\n",
         {.samples_per_s = 32.5}},
        {"Training epoch 0, iteration 0/99 | lr: 9.8e-08 | global_batch_size: 4 | global_step: 0 | reduced_train_loss: 14.6 | train_step_timing in s: 5.276\n"
         "0: Training epoch 0, iteration 1/99 | lr: 1.9e-07 | reduced_train_loss: 14.2 | train_step_timing in s: 2.5 | consumed_samples: 8 | val_loss: 2.8\n"
         "[NeMo I 2025-03-04 02:58:29 perf_metrics_utils:56] train_step_timing in s: [11.85, 6.98]\n"
         "Training epoch 0, iteration 2/99 | lr: 1.9e-07 | reduced_train_loss: 14.1 | train_step_timing in s: 1.5\n",
         {.step_ns = 2e9}},
        {" iteration       10/  100 | consumed samples:  640 | elapsed time per iteration (s): 3.50 | learning rate: 1E-5 |\n", {.step_ns = 3.5e9}},
        {"steps: 10 loss: 7.1 iter time (s): 2.500 samples/sec: 12.8\n", {.step_ns = 2.5e9}},
        {"{'loss': 2.1, 'epoch': 0.1}\n{'train_runtime': 100.0, 'train_samples_per_second': 64.0, 'train_steps_per_second': 0.5, 'epoch': 1.0}\n",
         {.steps_per_s = 0.5}},
        {"step    1/19560 | loss 11.009 (+nanz)| norm 15.1 (+nanz)| lr 8.57e-07 | 4000.50 ms | 28.1% bf16 MFU | 131060 tok/s\n"
         "step    2/19560 | loss 10.962 (+nanz)| norm 14.9 (+nanz)| lr 1.71e-06 | 300.50 ms | 54.6% bf16 MFU | 174500 tok/s\n"
         "step    3/19560 | loss 10.9 (+nanz)| norm 14.9 (+nanz)| lr 1.71e-06 | 302.50 ms | 54.6% bf16 MFU | 174500 tok/s\n",
         {.step_ns = 301.5e6}},
        {"iter 0: loss 10.9, time 9123.00ms, mfu -100.00%\niter 10: loss 8.4, time 130.00ms, mfu 12.30%\niter 20: loss 8.4, time 132.00ms, mfu 12.30%\n",
         {.step_ns = 131e6}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct measured_log log = {0};
        struct err err = {0};
        if (measured_log_read(file_with("log.txt", cases[i].text), &log, &err) != OK)
            fail_msg("%s", err.msg);
        if (log.step_ns != cases[i].want.step_ns || log.steps_per_s != cases[i].want.steps_per_s ||
            log.samples_per_s != cases[i].want.samples_per_s ||
            log.tokens_per_s_per_device != cases[i].want.tokens_per_s_per_device)
            fail_msg("case %zu: %g ns, %g steps/s, %g samples/s, %g tokens/s", i, log.step_ns,
                     log.steps_per_s, log.samples_per_s, log.tokens_per_s_per_device);
    }
}

/* clang-format on */
static void a_log_without_steps__is_refused(void **state)
{
    (void)state;
    struct measured_log log = {0};
    struct err err = {0};
    assert_int_equal(measured_log_read(file_with("log.txt", "hello\nstep 1 done\n"), &log, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.msg, "no line has the time of a step"));
    assert_int_equal(measured_log_read(at("none"), &log, &err), ERR_SYSTEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logs__give_the_median_step),
        cmocka_unit_test(a_log_without_steps__is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
