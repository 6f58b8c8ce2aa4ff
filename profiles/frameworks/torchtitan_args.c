/* The flags and the rules of torchtitan 0.3.0: config/configs.py, models/<module>/config_registry.py
 * and distributed/pipeline_parallel.py. Files of settings are those of 0.2 (config/job_config.py),
 * whose sections have the same names. */
#include "profiles/frameworks/command_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/model/model.h"
#include "profiles/frameworks/pytorch_pipeline.h"
#include "profiles/frameworks/flag_rows.h"

/* clang-format off */
const struct flag_row torchtitan_rows[] = {
    WORD("module"), WORD("config"),
    WORD("model.name"), WORD("model.flavor"),
    LIST("model.converters"), {"quantize.linear.*", FLAG_FREE, NULL, NULL},
    COUNT("training.local_batch_size", NULL), COUNT("training.batch_size", NULL),
    NUMBER("training.global_batch_size", NULL), COUNT("training.seq_len", NULL),
    COUNT("training.steps", NULL), REAL("training.max_norm", "train.clip_norm"),
    WORD("training.mixed_precision_param"), ON("training.enable_cpu_offload"),
    ON("training.compile"),
    COUNT("parallelism.data_parallel_replicate_degree", NULL),
    NUMBER("parallelism.data_parallel_shard_degree", NULL),
    WORD("parallelism.fsdp_reshard_after_forward"),
    COUNT("parallelism.tensor_parallel_degree", NULL),
    ON("parallelism.enable_sequence_parallel"),
    ON("parallelism.no_enable_sequence_parallel"),
    {"parallelism.disable_loss_parallel", FLAG_LEFT_OUT, NULL, "the loss is divided (today needs more memory)"},
    ON("parallelism.enable_async_tensor_parallel"),
    ON("compile.enable_async_tensor_parallel"),
    COUNT("parallelism.pipeline_parallel_degree", NULL),
    LIST("parallelism.module_fqns_per_model_part"),
    NUMBER("parallelism.pipeline_parallel_first_stage_less_layers", NULL),
    NUMBER("parallelism.pipeline_parallel_last_stage_less_layers", NULL),
    COUNT("parallelism.pipeline_parallel_layers_per_stage", NULL),
    WORD("parallelism.pipeline_parallel_schedule"),
    WORD("parallelism.pipeline_parallel_schedule_csv"),
    COUNT("parallelism.pipeline_parallel_microbatch_size", NULL),
    COUNT("parallelism.context_parallel_degree", NULL),
    {"parallelism.context_parallel_rotate_method", FLAG_WORD, "pipeline.context_comm", "allgather=all-gather alltoall=ring"},
    COUNT("parallelism.expert_parallel_degree", NULL),
    COUNT("parallelism.expert_tensor_parallel_degree", NULL),
    ON("compile.enable"), {"compile.no_enable", FLAG_FREE, NULL, NULL},
    WORD("activation_checkpoint.mode"), WORD("activation_checkpoint.selective_ac_option"),
    WORD("optimizer.name"),
    {"job.config_file", FLAG_FREE, NULL, NULL}, /* command_job.c reads it */
    REFUSED("job.custom_config_module", "the settings are code"),
    LEFT("parallelism.enable_fsdp_symm_mem", "NCCL's copies are counted (today is faster by little)"),
    LEFT("parallelism.context_parallel_load_balancer", "balanced tokens are counted"),
    LEFT("parallelism.context_parallel_ptrr_mask_key", "balanced tokens are counted"),
    LEFT("training.dtype", "parameters have 4 bytes (today needs less memory)"),
    LEFT("training.mixed_precision_reduce", "gradients are reduced in fp32"),
    LEFT("optimizer.early_step_in_backward", "the update follows the backward (today needs less memory)"),
    LEFT("activation_checkpoint.*", "full recompute is counted"),
    LEFT("float8.*", "the default recipe is counted"), LEFT("mx.*", "the default recipe is counted"),
    LEFT("quantize.*", "the default recipe is counted"),
    LEFT("fault_tolerance.*", "a run without faults is counted"), LEFT("memory_estimation.*", "a step is timed"),
    REFUSED("experimental.pipeline_parallel_*", "it stands in [parallelism] since 2025"),
    REFUSED("experimental.context_parallel_*", "it stands in [parallelism] since 2025"),
    LEFT("experimental.*", "it is not read"), LEFT("debug.deterministic*", "the fast kernels are counted (today is slower)"),
    LEFT("debug.detect_anomaly", "it is not counted (today is slower)"), LEFT("override.*", "torchtitan's own modules are counted"),
    LEFT("loss.*", "the plain loss is counted"),
    FREE("checkpoint.*"), FREE("metrics.*"), FREE("profiler.*"), FREE("profiling.*"), FREE("dataloader.*"), FREE("validator.*"),
    FREE("validation.*"), FREE("lr_scheduler.*"), FREE("optimizer.*"), FREE("comm.*"), FREE("debug.*"), FREE("tokenizer.*"),
    FREE("hf_assets_path"), FREE("dump_folder"), FREE("job.*"), FREE("model.*"), FREE("compile.components"), FREE("compile.backend"),
    FREE("training.dataset*"), FREE("training.gc_*"), FREE("training.disable_cuda_graphs"), FREE("training.seed"),
    FREE("training.deterministic"), FREE("training.warmup_steps"), FREE("training.data_parallel_type"),
    FREE("parallelism.spmd_backend"), FREE("nproc*"), FREE("nnodes*"), FREE("rdzv*"), FREE("local-ranks-filter"), FREE("role"), FREE("tee"),
};
/* clang-format on */
const int num_torchtitan_rows = sizeof torchtitan_rows / sizeof *torchtitan_rows;

/* Config functions, and files' names and flavors: their model here and their defaults. */
static const struct config {
    const char *name, *flavor, *preset;
    int local, seq, tp, ep;
    bool full, two_chunks; /* FullAC; a schedule with two stages a rank */
} configs[] = {
    {"llama3_8b",        "llama3 8B",        "llama3.1-8b",   1, 8192, 1, 1, false, false},
    {"llama3_70b",       "llama3 70B",       "llama3-70b",    8, 8192, 8, 1, true,  false},
    {"llama3_405b",      "llama3 405B",      "llama3-405b",   2, 8192, 8, 1, true,  false},
    {"qwen3_0_6b",       "qwen3 0.6B",       "qwen3-0.6b",    4, 4096, 1, 1, false, false},
    {"qwen3_1_7b",       "qwen3 1.7B",       "qwen3-1.7b",    4, 4096, 1, 1, false, false},
    {"qwen3_14b",        "qwen3 14B",        "qwen3-14b",     4, 4096, 1, 1, true,  false},
    {"qwen3_32b",        "qwen3 32B",        "qwen3-32b",     2, 4096, 1, 1, true,  false},
    {"qwen3_30b_a3b",    "qwen3 30B-A3B",    "qwen3-30b-a3b", 2, 4096, 1, 1, true,  false},
    {"deepseek_v3_671b", "deepseek_v3 671B", "deepseek-v3",   4, 4096, 1, 2, false, true },
    {"gpt_oss_20b",      "gpt_oss 20b",      "gpt-oss-20b",   1, 8192, 1, 1, true,  false},
    {"gpt_oss_120b",     "gpt_oss 120b",     "gpt-oss-120b",  1, 8192, 1, 1, true,  false},
};

static const struct config *config_of(const struct command_flags *f, struct err *err)
{
    char known[512] = "", flavor[96];
    const char *const name = flag_word(f, "config", "");
    snprintf(flavor, sizeof flavor, "%.40s %.40s", flag_word(f, "model.name", ""),
             flag_word(f, "model.flavor", ""));
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        if (strcmp(configs[i].name, name) == 0 || strcmp(configs[i].flavor, flavor) == 0)
            return &configs[i];
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", configs[i].name);
    }
    if (flag_given(f, "model.name"))
        err_set(err, ERR_INPUT, "torchtitan's model '%.80s' is not read; --config has%s", flavor,
                known);
    else
        err_set(err, ERR_INPUT, "--config must be one of%s, got '%.60s'", known, name);
    return NULL;
}

bool torchtitan_names(const struct model *model, char *module, size_t size, const char **config)
{
    bool found = false;
    for (size_t i = 0; i < sizeof configs / sizeof *configs && !found; i++) {
        struct model its = {0};
        found = model_parse(configs[i].preset, &its, NULL) == OK &&
                strcmp(its.name, model->name) == 0 && its.heads == model->heads &&
                its.kv_heads == model->kv_heads &&
                model_total_params(&its) == model_total_params(model);
        model_clear(&its);
        if (found) {
            snprintf(module, size, "%.*s", (int)strcspn(configs[i].flavor, " "), configs[i].flavor);
            *config = configs[i].name;
        }
    }
    return found;
}

static enum status add_batch(struct command_flags *f, const struct config *config, int64_t dp,
                             int64_t pp, int64_t *microbatches, struct json *job, struct err *err)
{
    const int64_t old = flag_int(f, "training.batch_size", config->local);
    const int64_t local = flag_int(f, "training.local_batch_size", old);
    const int64_t given = flag_int(f, "training.global_batch_size", -1);
    const int64_t global = given > 0 ? given : local * dp;
    const int64_t micro =
        pp > 1 ? flag_int(f, "parallelism.pipeline_parallel_microbatch_size", 1) : local;
    if (global % (local * dp) != 0 || local % micro != 0)
        return err_set(err, ERR_INPUT,
                       "--training.global_batch_size %" PRId64
                       " is not a multiple of local_batch_size %" PRId64 " x DP %" PRId64
                       ", or that one not a multiple of %" PRId64,
                       global, local, dp, micro);
    if (pp > 1 && global > local * dp)
        flags_left_out(f, "gradient accumulation over several runs of the pipeline: one is counted "
                          "(today is slower)");
    *microbatches = local / micro;
    job_set_int(job, "train.batch.global", global);
    job_set_int(job, "train.batch.micro", micro);
    return OK;
}

static void add_recompute(struct command_flags *f, const struct config *config, struct json *job)
{
    const char *const policy = f->policy ? f->policy : config->full ? "full" : "selective";
    const char *const mode = flag_word(f, "activation_checkpoint.mode", policy);
    const bool selective = strcmp(mode, "selective") == 0;
    const char *const option = flag_word(f, "activation_checkpoint.selective_ac_option", "op");
    job_set(job, "pipeline.recompute",
            strcmp(mode, "full") == 0 ? "layer"
            : selective               ? "op"
                                      : "never");
    if (selective && strcmp(option, "op") != 0)
        flags_left_out(f, "selective_ac_option %.40s: every layer by op is counted", option);
    else if (!selective && strcmp(mode, "full") != 0 && strcmp(mode, "none") != 0)
        flags_left_out(f,
                       "activation-checkpoint:%.40s: none is counted (today is slower, with less "
                       "memory)",
                       mode);
}

static enum status add_layout(struct command_flags *f, const struct config *config, int num_devices,
                              int num_layers, struct command_job *made, struct err *err)
{
    struct json *const job = made->job;
    const int64_t tp = flag_int(f, "parallelism.tensor_parallel_degree", config->tp);
    const int64_t pp = flag_int(f, "parallelism.pipeline_parallel_degree", 1);
    const int64_t cp = flag_int(f, "parallelism.context_parallel_degree", 1);
    const int64_t ep = flag_int(f, "parallelism.expert_parallel_degree", config->ep);
    const int64_t copies = flag_int(f, "parallelism.data_parallel_replicate_degree", 1);
    const int64_t group = tp * pp * cp * copies;
    int64_t shard = flag_int(f, "parallelism.data_parallel_shard_degree", -1);
    int64_t microbatches = 1;
    if (shard == 0)
        return err_set(err, ERR_INPUT, "--parallelism: degrees must be 1 or more");
    if (shard < 0)
        shard = num_devices / group;
    if (shard < 1 || shard * group != num_devices)
        return err_set(err, ERR_INPUT,
                       "PP %" PRId64 " x replicate %" PRId64 " x shard %" PRId64 " x CP %" PRId64
                       " x TP %" PRId64 " are not the cluster's %d devices",
                       pp, copies, shard, cp, tp, num_devices);
    if (copies > 1 && shard * cp > 1)
        job_set_int(job, "pipeline.shard_group", shard * cp);
    job_set_int(job, "pipeline.tensor", tp);
    job_set_int(job, "pipeline.num_replicas", copies * shard);
    job_set(job, "pipeline.sequence_parallel",
            tp > 1 && !flag_on(f, "parallelism.no_enable_sequence_parallel") ? "true" : "false");
    job_set_int(job, "pipeline.expert", ep);
    job_set_int(job, "pipeline.context", cp);
    job_set(job, "pipeline.context_comm", "all-gather");
    const char *const reshard = flag_word(f, "parallelism.fsdp_reshard_after_forward", "default");
    const bool kept = strcmp(reshard, "never") == 0 || (strcmp(reshard, "default") == 0 && pp > 1);
    job_set(job, "pipeline.shard", shard * cp == 1 ? "none" : kept ? "gradients" : "weights");
    if (flag_on(f, "training.enable_cpu_offload"))
        flags_left_out(f,
                       "--training.enable_cpu_offload: all stays on the device (today is slower, "
                       "with less memory)");
    add_recompute(f, config, job);
    enum status rc = add_batch(f, config, copies * shard, pp, &microbatches, job, err);
    const struct pytorch_pipeline pipeline = {
        .csv = flag_word(f, "parallelism.pipeline_parallel_schedule_csv", NULL),
        .schedule = flag_word(f, "parallelism.pipeline_parallel_schedule",
                              config->two_chunks ? "Interleaved1F1B" : "1F1B"),
        .parts = flag_word(f, "parallelism.module_fqns_per_model_part", NULL),
        .ranks = pp,
        .layers_a_stage = flag_int(f, "parallelism.pipeline_parallel_layers_per_stage", 0),
        .first_less = flag_int(f, "parallelism.pipeline_parallel_first_stage_less_layers", 1),
        .last_less = flag_int(f, "parallelism.pipeline_parallel_last_stage_less_layers", 1),
        .microbatches = microbatches,
        .num_layers = num_layers};
    THEN(pytorch_pipeline_add(f, &pipeline, made, err));
    return rc;
}

/* Layers of the presets in the table above. */
static int layers_of(const struct config *config, struct err *err)
{
    struct model model = {0};
    const int n = model_parse(config->preset, &model, err) == OK ? model.num_layers : 0;
    model_clear(&model);
    return n;
}

enum status torchtitan_rules(struct command_flags *flags, int num_devices, struct command_job *made,
                             struct err *err)
{
    struct json *const job = made->job;
    const struct config *const named = config_of(flags, err);
    struct config config = named ? *named : (struct config){0};
    const int num_layers = named ? layers_of(named, err) : 0;
    if (num_layers == 0)
        return err->status;
    if (flag_given(flags, "model.name")) { /* a file has its own defaults */
        config.local = 8, config.seq = 2048, config.tp = config.ep = 1;
        config.full = config.two_chunks = false;
    }
    job_set(job, "model.preset", config.preset);
    job_set_int(job, "model.seq", flag_int(flags, "training.seq_len", config.seq));
    job_set(job, "train.dtype",
            strstr(flag_word(flags, "model.converters", ""), "float8")    ? "fp8"
            : flag_is(flags, "training.mixed_precision_param", "float32") ? "fp32"
                                                                          : "bf16");
    const bool compiled = flag_on(flags, "compile.enable") || flag_on(flags, "training.compile");
    const bool overlap = flag_on(flags, "parallelism.enable_async_tensor_parallel") ||
                         flag_on(flags, "compile.enable_async_tensor_parallel");
    job_set(job, "train.framework", compiled ? "fsdp-compiled" : "fsdp");
    if (overlap)
        job_set(job, "train.overlap", "tensor");
    job_set(job, "train.clip_norm", "1.0");
    job_set(job, "train.optimizer.kind", "adamw");
    if (flag_given(flags, "optimizer.name") &&
        !strstr(flag_word(flags, "optimizer.name", ""), "Adam"))
        flags_left_out(flags, "optimizer.name %.40s: AdamW is counted",
                       flag_word(flags, "optimizer.name", ""));
    enum status rc = add_layout(flags, &config, num_devices, num_layers, made, err);
    THEN(flags_write(flags, job, err));
    if (rc == OK) {
        const int64_t batch = (int64_t)json_number(json_path(job, "train.batch.global"));
        job_set_int(job, "data.train_samples", batch * flag_int(flags, "training.steps", 1000));
    }
    return rc;
}
