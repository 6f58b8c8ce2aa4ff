/* Tests of exec/device/device_info.c: names of GPUs, and the machine as it is described. */
#include "exec/cpu/gemm.h"
#include "exec/device/cuda_load.h"
#include "exec/device/device_info.h"
#include "tests/unit/test.h"

static void device_gpu_kind__finds_the_published_data(void **state)
{
    (void)state;
    assert_string_equal(device_gpu_kind("NVIDIA H200", 9), "h200");
    assert_string_equal(device_gpu_kind("NVIDIA H100 80GB HBM3", 9), "h100");
    assert_string_equal(device_gpu_kind("NVIDIA A100-SXM4-80GB", 8), "a100");
    assert_string_equal(device_gpu_kind("Tesla V100-SXM2-32GB", 7), "v100");
    assert_string_equal(device_gpu_kind("Quadro RTX 5000", 7), "rtx5000");
    assert_string_equal(device_gpu_kind("NVIDIA B200", 10), "b200");
    /* The longest name counts: an A100 is no A10, an H200 no H20, a GH200 no H200. */
    assert_string_equal(device_gpu_kind("NVIDIA A10", 8), "a10");
    assert_string_equal(device_gpu_kind("NVIDIA H20", 9), "h20");
    assert_string_equal(device_gpu_kind("NVIDIA L40S", 8), "l40s");
    assert_string_equal(device_gpu_kind("NVIDIA GH200 480GB", 9), "gh200");
    assert_string_equal(device_gpu_kind("NVIDIA GeForce RTX 4090", 8), "rtx4090");
    assert_string_equal(device_gpu_kind("NVIDIA RTX 6000 Ada Generation", 8), "rtx6000ada");
}

static void device_gpu_kind__takes_the_generation_of_others(void **state)
{
    (void)state;
    assert_string_equal(device_gpu_kind("NVIDIA GeForce RTX 4070", 8), "a100");
    assert_string_equal(device_gpu_kind("NVIDIA H99", 9), "h100");
    assert_string_equal(device_gpu_kind("", 12), "b200");
}

static void device_describe__is_the_host_on_the_cpu(void **state)
{
    struct cores cores = {.at_hand = 2, .threads = 1};
    struct profile_info info = {0};
    (void)state;
    assert_int_equal(device_describe(DEVICE_CPU, &cores, &info, NULL), OK);
    assert_string_equal(info.device_kind, "cpu");
    assert_string_equal(info.bf16_kernel, gemm_name(2));
    assert_string_equal(info.fp32_kernel, gemm_name(4));
}

static void cuda_load__says_what_is_missing(void **state)
{
    struct err err = {0};
    struct cuda_device gpu;
    (void)state;
    setenv("ELAPSE_CUDA_LIB", "/nowhere/elapse-cuda.so", 1);
    assert_int_equal(cuda_load_device_info(0, &gpu, &err), ERR_INFEASIBLE);
    assert_non_null(strstr(err.msg, "/nowhere/elapse-cuda.so"));
    assert_int_equal(cuda_load_num_devices(), 0);
    err = (struct err){0};
    setenv("ELAPSE_CUDA_LIB", "/proc/self/status", 1); /* readable, but no library */
    assert_null(cuda_load_backend(&(struct cuda_spec){.threads = 1}, &err));
    assert_int_equal(err.status, ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "cannot load"));
    unsetenv("ELAPSE_CUDA_LIB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_gpu_kind__finds_the_published_data),
        cmocka_unit_test(device_gpu_kind__takes_the_generation_of_others),
        cmocka_unit_test(device_describe__is_the_host_on_the_cpu),
        cmocka_unit_test(cuda_load__says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
