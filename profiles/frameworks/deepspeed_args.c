/* DeepSpeed's JSON (0.19.8: runtime/config.py, runtime/zero/config.py, offload_config.py) and the
 * TrainingArguments of transformers 5.24 (training_args.py) with FSDP and DeepSpeed under them. A
 * setting of DeepSpeed that is "auto" is the Trainer's. Neither names the model's layout in a
 * pipeline: the program does. */
#include "profiles/frameworks/command_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiles/frameworks/flag_rows.h"

/* clang-format off */
#define DEEPSPEED_ROWS(in) \
    COUNT(in "train_batch_size", NULL), COUNT(in "train_micro_batch_size_per_gpu", NULL), \
    COUNT(in "gradient_accumulation_steps", NULL), REAL(in "gradient_clipping", "train.clip_norm"), \
    ON(in "bf16.enabled"), ON(in "fp16.enabled"), \
    NUMBER(in "zero_optimization.stage", NULL), WORD(in "zero_optimization.overlap_comm"), \
    REAL(in "zero_optimization.reduce_bucket_size", NULL), \
    WORD(in "zero_optimization.offload_optimizer.device"), \
    ON(in "zero_optimization.cpu_offload"), \
    WORD(in "zero_optimization.offload_param.device"), \
    NUMBER(in "tensor_parallel.autotp_size", NULL), WORD(in "optimizer.type"), \
    LEFT(in "zero_optimization.zero_hpz_partition_size", "one group of shards is counted (today is faster, with more memory)"), \
    LEFT(in "zero_optimization.zero_quantized_*", "shards travel in 2 bytes (today is faster)"), \
    LEFT(in "zero_optimization.mics_*", "one group of shards is counted (today is faster, with more memory)"), \
    LEFT(in "zero_optimization.offload_optimizer.ratio", "1 is counted"), \
    LEFT(in "zero_optimization.zenflow.*", "the plain optimizer on the host is counted (today is faster)"), \
    LEFT(in "zero_optimization.round_robin_gradients", "gradients move bucket by bucket"), \
    FREE(in "zero_optimization.*"), \
    LEFT(in "activation_checkpointing.*", \
        "whether layers run again is the program's to say: none does here (--set pipeline.recompute=layer)"), \
    LEFT(in "sequence_parallel_size", "no context parallelism is counted"), \
        LEFT(in "torch_autocast.*", "weights have the format of bf16 and fp16"), \
    LEFT(in "communication_data_type", "gradients travel as they are held"), LEFT(in "data_types.*", "gradients have 2 bytes"), \
    LEFT(in "compile.*", "kernels are not compiled (today is faster)"), \
        LEFT(in "sparse_attention.*", "full attention is counted (today is faster)"), \
    LEFT(in "compression_training.*", "nothing is compressed"), LEFT(in "data_efficiency.*", "all tokens are counted (today is faster)"), \
    LEFT(in "curriculum_learning.*", "full samples are counted (today is faster)"), \
        LEFT(in "progressive_layer_drop.*", "no layer is dropped (today is faster)"), \
    LEFT(in "eigenvalue.*", "it is not counted (today is slower)"), \
        LEFT(in "flops_profiler.*", "it is not counted (today is slower in that step)"), \
    LEFT(in "wall_clock_breakdown", "it is not counted (today is slower by its waits)"), \
        LEFT(in "use_data_before_expert_parallelism", "ranks in the order of data and experts are counted"), \
    LEFT(in "amp.*", "bf16 or fp16 of DeepSpeed are counted"), LEFT(in "zero_force_ds_cpu_optimizer", "DeepSpeed's optimizer is counted"), \
    REFUSED(in "elasticity.*", "the batch is found at the start of the run; write train_batch_size"), \
    REFUSED(in "pipeline.*", "the program makes the pipeline; use --for deepspeed with a job"), \
    FREE(in "optimizer.*"), FREE(in "scheduler.*"), FREE(in "fp16.*"), FREE(in "bf16.*"), FREE(in "bfloat16.*"), \
        FREE(in "steps_per_print"), \
    FREE(in "dump_state"), FREE(in "prescale_gradients"), FREE(in "gradient_predivide_factor"), \
        FREE(in "gradient_allreduce_op"), FREE(in "sparse_gradients"), \
    FREE(in "disable_allgather"), FREE(in "disable_python_gc"), FREE(in "checkpoint.*"), \
        FREE(in "dataloader_drop_last"), FREE(in "log_level"), \
    FREE(in "memory_breakdown"), FREE(in "zero_allow_untested_optimizer"), FREE(in "managed_gradient_accumulation"), \
        FREE(in "check_overflow"), \
    FREE(in "comms_logger.*"), FREE(in "tensorboard.*"), FREE(in "wandb.*"), FREE(in "csv_monitor.*"), \
        FREE(in "comet.*"), FREE(in "aio.*"), \
    FREE(in "autotuning.*"), FREE(in "nebula.*"), FREE(in "hybrid_engine.*"), FREE(in "tensor_parallel.*"), \
        FREE(in "weight_quantization.*"), \
    FREE(in "seq_parallel_communication_data_type"), FREE(in "graph_harvesting"), FREE(in "data_parallel_group"), FREE(in "global_rank")

const struct flag_row deepspeed_rows[] = {
    DEEPSPEED_ROWS(""), WORD("model_name_or_path"),
};
const struct flag_row hf_rows[] = {
    DEEPSPEED_ROWS("deepspeed."),
    {"deepspeed", FLAG_TRUTH, NULL, NULL}, {"config_file", FLAG_FREE, NULL, NULL},
        {"fsdp_config", FLAG_FREE, NULL, NULL}, /* command_job.c reads the files */
    COUNT("per_device_train_batch_size", NULL), COUNT("per_gpu_train_batch_size", NULL),
    COUNT("gradient_accumulation_steps", NULL), REAL("max_grad_norm", "train.clip_norm"),
    NUMBER("max_steps", NULL), {"bf16", FLAG_TRUTH, NULL, NULL}, {"fp16", FLAG_TRUTH, NULL, NULL}, {"tf32", FLAG_TRUTH, NULL, NULL},
    WORD("mixed_precision"),
    {"gradient_checkpointing", FLAG_TRUTH, NULL, NULL}, {"activation_checkpointing", FLAG_TRUTH, NULL, NULL},
    {"torch_compile", FLAG_TRUTH, NULL, NULL}, WORD("optim"), LIST("fsdp"),
    WORD("fsdp_config.fsdp_sharding_strategy"), WORD("fsdp_config.sharding_strategy"),
    WORD("fsdp_config.fsdp_reshard_after_forward"), WORD("fsdp_config.reshard_after_forward"),
    ON("fsdp_config.fsdp_offload_params"), ON("fsdp_config.activation_checkpointing"),
    ON("fsdp_config.fsdp_activation_checkpointing"),
    {"fsdp_config.*", FLAG_FREE, NULL, NULL}, WORD("distributed_type"),
    WORD("model_name_or_path"), WORD("model_name"), WORD("model"), WORD("config_name"),
    WORD("attn_implementation"), WORD("flash_attn"),
    COUNT("max_seq_length", NULL), COUNT("max_length", NULL), COUNT("cutoff_len", NULL),
    COUNT("block_size", NULL), COUNT("model_max_length", NULL),
    {"use_peft", FLAG_TRUTH, NULL, NULL}, COUNT("lora_r", "train.lora.rank"), COUNT("lora_rank", "train.lora.rank"),
    LEFT("ddp_bucket_cap_mb", "buckets of 25 MB are counted"),
        LEFT("use_liger_kernel", "PyTorch's kernels are counted (today is faster, with less memory)"),
    LEFT("neftune_noise_alpha", "its noise is not counted"), LEFT("torch_empty_cache_steps",
        "the cache of memory is kept (today is slower)"),
    LEFT("auto_find_batch_size", "the batch as given is counted"),
        LEFT("full_determinism", "the fast kernels are counted (today is slower)"),
    LEFT("label_smoothing_factor", "the plain loss is counted"), LEFT("parallelism_config*", "replicas alone are counted"),
    LEFT("average_tokens_across_devices", "the sum of the tokens' number is not counted"),
        LEFT("load_in_8bit", "weights as given are counted (today needs less memory)"),
    LEFT("load_in_4bit", "weights as given are counted (today needs less memory)"), LEFT("packing", "samples of full length are counted"),
    LEFT("train_sampling_strategy", "samples of full length are counted (today is faster)"),
        LEFT("group_by_length", "samples of full length are counted (today is faster)"),
    LEFT("ddp_find_unused_parameters", "its search is not counted (today is slower by little)"),
    REFUSED("use_cpu", "nothing runs on a GPU"), REFUSED("no_cuda", "nothing runs on a GPU"),
        REFUSED("deepspeed_elasticity", "the batch is found at the start of the run"),
    FREE("output_dir"), FREE("overwrite_output_dir"), FREE("num_train_epochs"), FREE("learning_rate"),
        FREE("lr_scheduler*"), FREE("warmup_*"), FREE("optim_*"),
    FREE("weight_decay"), FREE("adam_*"), FREE("bf16_full_eval"), FREE("fp16_full_eval"), FREE("fp16_*"), FREE("half_precision_backend"),
    FREE("activation_checkpointing_kwargs*"), FREE("gradient_checkpointing_kwargs*"), FREE("torch_compile_*"),
        FREE("liger_kernel_config"), FREE("use_cache"),
    FREE("logging_*"), FREE("log_*"), FREE("include_*"), FREE("disable_tqdm"), FREE("report_to"), FREE("run_name"),
        FREE("project"), FREE("trackio_*"),
    FREE("eval_*"), FREE("evaluation_strategy"), FREE("per_device_eval_batch_size"), FREE("prediction_loss_only"),
        FREE("batch_eval_metrics"),
    FREE("save_*"), FREE("enable_jit_checkpoint"), FREE("push_to_hub*"), FREE("hub_*"),
        FREE("load_best_model_at_end"), FREE("metric_for_best_model"),
    FREE("greater_is_better"), FREE("ignore_data_skip"), FREE("restore_callback_states_from_checkpoint"), FREE("seed"), FREE("data_seed"),
    FREE("accelerator_config*"), FREE("dataloader_*"), FREE("remove_unused_columns"), FREE("label_names"),
        FREE("length_column_name"), FREE("ddp_*"),
    FREE("debug"), FREE("skip_memory_metrics"), FREE("do_*"), FREE("resume_from_checkpoint"), FREE("local_rank"),
        FREE("past_index"), FREE("tokenizer_name*"),
    FREE("dataset*"), FREE("data_*"), FREE("train_file"), FREE("validation_*"), FREE("template"), FREE("stage"),
        FREE("finetuning_type"), FREE("lora_*"),
    FREE("trust_remote_code"), FREE("torch_dtype"), FREE("dtype"), FREE("streaming"),
        FREE("preprocessing_num_workers"), FREE("fsdp_*"), FREE("compute_environment"),
    FREE("main_training_function"), FREE("machine_rank"), FREE("num_machines"), COUNT("num_processes", NULL),
        FREE("rdzv_backend"), FREE("same_network"),
    FREE("tpu_*"), FREE("downcast_bf16"), NUMBER("deepspeed_config.zero_stage", NULL),
        COUNT("deepspeed_config.gradient_accumulation_steps", NULL),
        WORD("deepspeed_config.offload_optimizer_device"), WORD("deepspeed_config.offload_param_device"),
        FREE("deepspeed_config.*"), FREE("deepspeed_config"), FREE("cache_dir"), FREE("low_cpu_mem_usage"), FREE("plot_loss"),
};
/* clang-format on */
const int num_deepspeed_rows = sizeof deepspeed_rows / sizeof *deepspeed_rows;
const int num_hf_rows = sizeof hf_rows / sizeof *hf_rows;

/* The name of a setting of DeepSpeed, which stands in a section of the Trainer's or alone. */
static const char *in(const char *section, const char *name, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s", section, name);
    return buf;
}
#define IN(name) in(section, name, (char[96]){0}, 96)

/* ZeRO, offload and the buckets. */
static enum status add_zero(struct command_flags *f, const char *section, int64_t width,
                            struct json *job, struct err *err)
{
    static const char *const shards[] = {"none", "optimizer", "gradients", "weights"};
    const int64_t none = *section ? flag_int(f, "deepspeed_config.zero_stage", 0) : 0;
    const int64_t stage = flag_int(f, IN("zero_optimization.stage"), none);
    const char *const optimizer = flag_word(
        f, IN("zero_optimization.offload_optimizer.device"),
        *section ? flag_word(f, "deepspeed_config.offload_optimizer_device", "none") : "none");
    const char *const param = flag_word(
        f, IN("zero_optimization.offload_param.device"),
        *section ? flag_word(f, "deepspeed_config.offload_param_device", "none") : "none");
    const char *const overlap =
        flag_word(f, IN("zero_optimization.overlap_comm"), stage == 3 ? "true" : "false");
    if (stage < 0 || stage > 3)
        return err_set(err, ERR_INPUT, "zero_optimization.stage must be 0..3, got %lld",
                       (long long)stage);
    job_set(job, "pipeline.shard", width > 1 ? shards[stage] : "none");
    if (strcmp(param, "none") != 0) {
        if (stage < 3)
            return err_set(err, ERR_INPUT,
                           "zero_optimization.offload_param needs stage 3, got %lld",
                           (long long)stage);
        flags_left_out(f, "zero_optimization.offload_param: weights stay on the devices (today is "
                          "slower, with less memory)");
    }
    if (strcmp(optimizer, "none") != 0 || flag_on(f, IN("zero_optimization.cpu_offload"))) {
        if (stage < 1)
            return err_set(err, ERR_INPUT,
                           "zero_optimization.offload_optimizer needs a stage of 1 or "
                           "more");
        job_set(job, "pipeline.offload", "optimizer");
        if (strcmp(optimizer, "nvme") == 0)
            flags_left_out(f, "zero_optimization.offload_optimizer.device nvme: host memory is "
                              "counted (today is slower)");
    }
    const double bucket = flag_real(f, IN("zero_optimization.reduce_bucket_size"), 5e8);
    const bool beside = strcmp(overlap, "true") == 0;
    job_set_int(job, "pipeline.bucket_bytes", beside && bucket < 1e15 ? (int64_t)(4 * bucket) : 0);
    return OK;
}

static void fix_replicas(struct command_job *made, int64_t tensor)
{
    made->fixed = json_object_new();
    job_set_int(made->fixed, "num_stages", 1);
    job_set_int(made->fixed, "tensor", tensor);
    job_set(made->fixed, "shard", "auto");
    job_set(made->fixed, "recompute", "auto");
    job_set_int(made->job, "pipeline.num_stages", 1);
    job_set_int(made->job, "pipeline.tensor", tensor);
    job_set_int(made->job, "pipeline.expert", 1);
    job_set_int(made->job, "pipeline.context", 1);
    job_set(made->job, "pipeline.recompute", "never");
}

/* Two of a step's samples, a micro-batch's and the number of these give the third. */
static enum status add_batch(int64_t global, int64_t micro, int64_t steps, int64_t width,
                             struct json *job, struct err *err)
{
    if (global < 1 && micro < 1)
        return err_set(err, ERR_INPUT,
                       "train_batch_size and train_micro_batch_size_per_gpu are "
                       "missing (\"auto\" is the Trainer's: --from hf)");
    if (micro < 1)
        micro = steps > 0 ? global / width / steps : global / width;
    if (steps < 1)
        steps = global > 0 && micro > 0 ? global / (micro * width) : 1;
    if (global < 1)
        global = micro * steps * width;
    if (micro < 1 || steps < 1 || global != micro * steps * width)
        return err_set(err, ERR_INPUT,
                       "train_batch_size %lld is not train_micro_batch_size_per_gpu %lld x "
                       "gradient_accumulation_steps %lld x DP %lld",
                       (long long)global, (long long)micro, (long long)steps, (long long)width);
    job_set_int(job, "train.batch.global", global);
    job_set_int(job, "train.batch.micro", micro);
    job_set_int(job, "data.train_samples", 1000 * global);
    return OK;
}

static void add_optimizer(struct command_flags *f, const char *name, struct json *job)
{
    const bool adam = strcasestr(name, "adam") || strcasestr(name, "lamb");
    job_set(job, "train.optimizer.kind", strcasestr(name, "sgd") ? "sgd" : "adamw");
    if (strcasestr(name, "8bit") || strcasestr(name, "4bit") || strcasestr(name, "adafactor") ||
        strcasestr(name, "lion") || strcasestr(name, "galore") || strcasestr(name, "muon") ||
        strcasestr(name, "onebit"))
        flags_left_out(f, "optimizer %.40s: AdamW is counted (today needs less memory)", name);
    else if (!adam && !strcasestr(name, "sgd"))
        flags_left_out(f, "optimizer %.40s: AdamW is counted", name);
}

/* The model of a name, or of a folder with its config.json. */
static void add_named_model(const char *name, int64_t seq, struct json *job)
{
    char path[600];
    snprintf(path, sizeof path, "%.500s/config.json", name);
    job_set(job, "model.preset", access(path, R_OK) == 0 ? path : name);
    if (seq > 0)
        job_set_int(job, "model.seq", seq);
}

enum status deepspeed_rules(struct command_flags *f, int num_devices, struct command_job *made,
                            struct err *err)
{
    struct json *const job = made->job;
    const int64_t tp = flag_int(f, "tensor_parallel.autotp_size", 0) > 1
                           ? flag_int(f, "tensor_parallel.autotp_size", 1)
                           : 1;
    const int64_t width = num_devices / tp;
    if (num_devices % tp != 0)
        return err_set(err, ERR_INPUT,
                       "the cluster's %d devices are not a multiple of "
                       "tensor_parallel.autotp_size %lld",
                       num_devices, (long long)tp);
    if (flag_on(f, "bf16.enabled") && flag_on(f, "fp16.enabled"))
        return err_set(err, ERR_INPUT, "bf16.enabled excludes fp16.enabled");
    fix_replicas(made, tp);
    job_set_int(job, "pipeline.num_replicas", width);
    job_set(job, "train.framework", "deepspeed");
    job_set(job, "train.attention", "fused");
    job_set(job, "train.dtype",
            flag_on(f, "bf16.enabled")   ? "bf16"
            : flag_on(f, "fp16.enabled") ? "fp16"
                                         : "fp32");
    add_optimizer(f, flag_word(f, "optimizer.type", "AdamW"), job);
    if (flag_given(f, "model_name_or_path"))
        add_named_model(flag_word(f, "model_name_or_path", ""), 0, job);
    enum status rc = add_batch(flag_int(f, "train_batch_size", 0),
                               flag_int(f, "train_micro_batch_size_per_gpu", 0),
                               flag_int(f, "gradient_accumulation_steps", 0), width, job, err);
    THEN(add_zero(f, "", width, job, err));
    THEN(flags_write(f, job, err));
    return rc;
}

static bool is_true(const struct command_flags *f, const char *name)
{
    const char *const text = flag_word(f, name, "false");
    return strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0 || strcmp(text, "yes") == 0;
}

/* The first of several flags that is given; otherwise 0. */
static int64_t first_of(const struct command_flags *f, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (flag_given(f, names[i]))
            return flag_int(f, names[i], 0);
    return 0;
}

/* FSDP by TrainingArguments or by accelerate's file. */
static void add_fsdp(struct command_flags *f, int64_t width, struct json *job)
{
    const char *const given = flag_word(f, "fsdp", "full_shard");
    const char *strategy = flag_word(f, "fsdp_config.fsdp_sharding_strategy",
                                     flag_word(f, "fsdp_config.sharding_strategy", given));
    const char *const reshard = flag_word(f, "fsdp_config.fsdp_reshard_after_forward",
                                          flag_word(f, "fsdp_config.reshard_after_forward", ""));
    if (strcasecmp(reshard, "false") == 0)
        strategy = "shard_grad_op";
    else if (*reshard && strcasecmp(reshard, "true") != 0)
        strategy = reshard;
    const bool none = strcasestr(strategy, "no_shard") || strcmp(strategy, "3") == 0;
    const bool kept = strcasestr(strategy, "shard_grad_op") || strcmp(strategy, "2") == 0;
    if (strcasestr(strategy, "hybrid_shard"))
        flags_left_out(f,
                       "fsdp hybrid_shard: one group of shards is counted (today is faster, with "
                       "more memory)");
    if (strcasestr(given, "offload") || flag_on(f, "fsdp_config.fsdp_offload_params"))
        flags_left_out(
            f, "fsdp offload: all stays on the devices (today is slower, with less memory)");
    job_set(job, "train.framework", "fsdp");
    job_set(job, "pipeline.shard", width < 2 || none ? "none" : kept ? "gradients" : "weights");
}

static bool recomputes(const struct command_flags *f)
{
    return is_true(f, "gradient_checkpointing") || is_true(f, "activation_checkpointing") ||
           flag_on(f, "fsdp_config.activation_checkpointing") ||
           flag_on(f, "fsdp_config.fsdp_activation_checkpointing");
}

static const char *hf_dtype(const struct command_flags *f)
{
    const char *const mixed = flag_word(f, "mixed_precision", "no");
    if (is_true(f, "bf16") || strcmp(mixed, "bf16") == 0 || flag_on(f, "deepspeed.bf16.enabled"))
        return "bf16";
    if (is_true(f, "fp16") || strcmp(mixed, "fp16") == 0 || flag_on(f, "deepspeed.fp16.enabled"))
        return "fp16";
    return is_true(f, "tf32") ? "tf32" : "fp32";
}

enum status hf_rules(struct command_flags *f, int num_devices, struct command_job *made,
                     struct err *err)
{
    static const char *const lengths[] = {"max_seq_length", "max_length", "cutoff_len",
                                          "block_size", "model_max_length"};
    static const char *const models[] = {"model_name_or_path", "model_name", "model",
                                         "config_name"};
    struct json *const job = made->job;
    const bool zero = flag_given(f, "deepspeed") ||
                      flag_given(f, "deepspeed.zero_optimization.stage") ||
                      strcasestr(flag_word(f, "distributed_type", ""), "deepspeed");
    const bool fsdp = !zero && (flag_given(f, "fsdp") ||
                                strcasestr(flag_word(f, "distributed_type", ""), "fsdp"));
    const int64_t old = flag_int(f, "per_gpu_train_batch_size", 8);
    const int64_t micro = flag_int(f, "per_device_train_batch_size",
                                   flag_int(f, "deepspeed.train_micro_batch_size_per_gpu", old));
    const int64_t steps = flag_int(f, "gradient_accumulation_steps",
                                   flag_int(f, "deepspeed.gradient_accumulation_steps", 1));
    const char *const attention = flag_word(f, "attn_implementation", "sdpa");
    const char *name = NULL;
    for (int i = 0; i < 4 && !name; i++)
        name = flag_word(f, models[i], NULL);
    const int64_t apart = flag_int(f, "deepspeed_config.gradient_accumulation_steps", steps);
    if (flag_given(f, "num_processes") && flag_int(f, "num_processes", 0) != num_devices)
        flags_left_out(f, "num_processes %" PRId64 ": the cluster's %d devices are counted",
                       flag_int(f, "num_processes", 0), num_devices);
    if (zero && apart != steps)
        return err_set(err, ERR_INPUT,
                       "deepspeed_config.gradient_accumulation_steps %" PRId64
                       " must be gradient_accumulation_steps, got %" PRId64,
                       apart, steps);
    if (is_true(f, "bf16") && is_true(f, "fp16"))
        return err_set(err, ERR_INPUT, "bf16 excludes fp16");
    if (name)
        add_named_model(name, first_of(f, lengths, 5), job);
    fix_replicas(made, 1);
    job_set_int(job, "pipeline.num_replicas", num_devices);
    job_set(job, "train.dtype", hf_dtype(f));
    job_set(job, "train.clip_norm", "1.0");
    job_set(job, "train.framework", zero ? "deepspeed" : "hf-eager");
    job_set(job, "train.attention", strcmp(attention, "eager") == 0 ? "eager" : "fused");
    job_set(job, "pipeline.shard", "none");
    if (recomputes(f))
        job_set(job, "pipeline.recompute", "layer");
    add_optimizer(f, flag_word(f, "optim", "adamw_torch_fused"), job);
    if (fsdp)
        add_fsdp(f, num_devices, job);
    if (is_true(f, "torch_compile") && fsdp)
        job_set(job, "train.framework", "fsdp-compiled");
    else if (is_true(f, "torch_compile"))
        flags_left_out(f, "torch_compile: kernels are not compiled (today is faster)");
    enum status rc = add_batch(0, micro, steps, num_devices, job, err);
    if (rc == OK && zero)
        rc = add_zero(f, "deepspeed.", num_devices, job, err);
    if (rc == OK && flag_int(f, "max_steps", -1) > 0)
        job_set_int(job, "data.train_samples",
                    flag_int(f, "max_steps", 1) * micro * steps * num_devices);
    THEN(flags_write(f, job, err));
    return rc;
}
