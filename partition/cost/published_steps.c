/* Published steps beside computed ones, made by `python3 tests/truth/truth_bands.py FOLDER` from the sources of
 * docs/costs-published.md: computed / published - 1, from the 10th to the 90th percentile, with fewer than ten runs
 * from the least to the largest. Do not edit. */
#include "partition/cost/step_band.h"

/* clang-format off */
const struct published_steps published_steps[] = {
    /* Qwen, lora; Qwen, qlora */
    {"hf-eager", "a100", BAND_ADAPTERS, 24, -0.121, 0.079},
    /* MLPerf LoRA, NVIDIA */
    {"megatron-te", "b200", BAND_ADAPTERS, 1, -0.040, -0.040},
    /* MLPerf LoRA, NVIDIA */
    {"megatron-te", "b300", BAND_ADAPTERS, 1, 0.136, 0.136},
    /* LLAMA3_70B LoRA, gb200, fp8; LLAMA3_70B LoRA, gb200, mxfp8; MLPerf LoRA, NVIDIA */
    {"megatron-te", "gb200", BAND_ADAPTERS, 3, 0.022, 0.048},
    /* LLAMA3_70B LoRA, gb300, fp8; LLAMA3_70B LoRA, gb300, mxfp8; MLPerf LoRA, NVIDIA */
    {"megatron-te", "gb300", BAND_ADAPTERS, 3, 0.127, 0.180},
    /* LLAMA3_70B LoRA, h100, fp8; MLPerf LoRA, NVIDIA */
    {"megatron-te", "h100", BAND_ADAPTERS, 2, -0.085, 0.010},
    /* MLPerf LoRA, NVIDIA */
    {"megatron-te", "h200", BAND_ADAPTERS, 1, -0.039, -0.039},
    /* MLPerf LoRA, AMD */
    {"megatron-te", "mi300x", BAND_ADAPTERS, 2, -0.090, -0.072},
    /* MLPerf LoRA, AMD */
    {"megatron-te", "mi325x", BAND_ADAPTERS, 1, -0.086, -0.086},
    /* MLPerf LoRA, AMD */
    {"megatron-te", "mi355x", BAND_ADAPTERS, 1, -0.099, -0.099},
    /* layouts, flash2 + norm kernel; layouts, flash2; layouts, pytorch; layouts, megatron-softmax; layouts, flash1 */
    {"aa-scaling", "a100", BAND_DENSE, 235, -0.099, 0.055},
    /* vTrain, one node; vTrain, 64 GPUs; Qwen, full */
    {"deepspeed", "a100", BAND_DENSE, 363, -0.118, 0.127},
    /* fms-fsdp, Llama 2 on A100 */
    {"fsdp", "a100", BAND_DENSE, 2, 0.015, 0.020},
    /* Megatron-LM, SC'21 table 1; Korthikanti et al., table 5 */
    {"megatron-2021", "a100", BAND_DENSE, 18, -0.092, 0.028},
    /* LLAMA3_70B, gb200, fp8; LLAMA3_70B, gb200, mxfp8; LLAMA3_70B, gb200, nvfp4 */
    {"megatron-te", "gb200", BAND_DENSE, 15, -0.113, 0.040},
    /* LLAMA3_70B, gb300, fp8; LLAMA3_70B, gb300, mxfp8; LLAMA3_70B, gb300, nvfp4 */
    {"megatron-te", "gb300", BAND_DENSE, 15, -0.048, 0.142},
    /* llm-foundry, MPT on H100 */
    {"composer", "h100", BAND_DENSE, 20, -0.170, -0.070},
    /* torchtitan, Llama 3.1 8B on H100 */
    {"fsdp", "h100", BAND_DENSE, 2, -0.160, -0.136},
    /* torchtitan, Llama 3.1 8B on H100 */
    {"fsdp-compiled", "h100", BAND_DENSE, 2, -0.194, -0.174},
    /* NeMo, GPT-3 175B on H100; LLAMA3_70B, h100, fp8 */
    {"megatron-te", "h100", BAND_DENSE, 12, -0.061, 0.002},
    /* Qwen3_30B_a3B, b200, mxfp8; GPT OSS 120B, b200 */
    {"megatron-te", "b200", BAND_EXPERTS, 9, -0.119, 0.003},
    /* Qwen3_30B_a3B, b300, mxfp8; GPT OSS 120B, b300 */
    {"megatron-te", "b300", BAND_EXPERTS, 9, -0.128, 0.001},
    /* Qwen3_30B_a3B, gb200, mxfp8; GPT OSS 120B, gb200 */
    {"megatron-te", "gb200", BAND_EXPERTS, 12, -0.074, -0.027},
    /* Qwen3_30B_a3B, gb300, mxfp8; GPT OSS 120B, gb300 */
    {"megatron-te", "gb300", BAND_EXPERTS, 12, -0.148, 0.094},
    /* hybrids and Qwen3 235B; Qwen3_30B_a3B, h100, fp8; GPT OSS 120B, h100 */
    {"megatron-te", "h100", BAND_EXPERTS, 15, -0.580, 0.049},
    /* hybrids and Qwen3 235B */
    {"megatron-te", "gb200", BAND_STATE, 1, 0.034, 0.034},
    /* hybrids and Qwen3 235B */
    {"megatron-te", "h100", BAND_STATE, 3, -0.290, 0.099},
    {NULL, NULL, 0, 0, 0, 0},
};
