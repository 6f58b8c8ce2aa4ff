/* The recipes of NeMo AutoModel 0.7.0: recipes/llm/train_ft.py, recipes/_dist_utils.py,
 * components/distributed/pipelining/config.py. */
#include "profiles/frameworks/command_job.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "partition/model/model.h"
#include "profiles/frameworks/pytorch_pipeline.h"
#include "profiles/frameworks/flag_rows.h"

/* clang-format off */
const struct flag_row automodel_rows[] = {
    COUNT("step_scheduler.global_batch_size", NULL), COUNT("step_scheduler.local_batch_size", NULL),
    COUNT("step_scheduler.max_steps", NULL),
    WORD("distributed.strategy"), WORD("distributed.dp_size"),
    WORD("distributed.dp_replicate_size"), COUNT("distributed.tp_size", NULL),
    COUNT("distributed.cp_size", NULL), COUNT("distributed.pp_size", NULL), COUNT("distributed.ep_size", NULL),
    ON("distributed.sequence_parallel"), WORD("distributed.activation_checkpointing"),
    WORD("distributed.reshard_after_forward"),
    WORD("distributed.pipeline.pp_schedule"), COUNT("distributed.pipeline.pp_microbatch_size", NULL),
    COUNT("distributed.pipeline.layers_per_stage", NULL), LIST("distributed.pipeline.module_fqns_per_model_part"),
    WORD("model.pretrained_model_name_or_path"), WORD("model.attn_implementation"),
    NUMBER("packed_sequence.packed_sequence_size", NULL), COUNT("dataset.seq_length", NULL),
    COUNT("dataset.seq_len", NULL), REAL("clip_grad_norm.max_norm", "train.clip_norm"),
    ON("fp8.enabled"), COUNT("peft.dim", "train.lora.rank"), WORD("optimizer._target_"),
    WORD("distributed.pipeline.pp_schedule_csv"), LEFT("distributed.defer_fsdp_grad_sync", "it is not counted"),
    LEFT("compile.*", "kernels are not compiled (today is faster)"),
        LEFT("quantization.*", "the base has the weights' format (today needs less memory)"),
    LEFT("qat.*", "the base has the weights' format"), LEFT("model.backend.*", "PyTorch's kernels are counted (today may be faster)"),
    LEFT("distributed.moe.*", "experts have FSDP's shards"), LEFT("model.use_liger_kernel",
        "PyTorch's kernels are counted (today is faster, with less memory)"),
    FREE("distributed.pipeline.*"), FREE("distributed.backend"), FREE("distributed.timeout*"), FREE("dist_env.*"),
        FREE("rng.*"), FREE("seed"), FREE("recipe"),
    FREE("model.*"), FREE("checkpoint.*"), FREE("loss_fn.*"), FREE("dataset.*"), FREE("validation_*"),
        FREE("dataloader.*"), FREE("optimizer.*"),
    FREE("lr_scheduler.*"), FREE("step_scheduler.*"), FREE("wandb.*"), FREE("mlflow.*"), FREE("logger.*"),
        FREE("packed_sequence.*"), FREE("peft.*"), FREE("fp8.*"),
    FREE("tokenizer.*"), FREE("clip_grad_norm.*"), FREE("ci.*"), FREE("slurm.*"), FREE("benchmark.*"),
        FREE("profiling.*"), FREE("nproc*"), FREE("nnodes*"),
};
/* clang-format on */
const int num_automodel_rows = sizeof automodel_rows / sizeof *automodel_rows;

/* A degree that may be "none" or "auto". */
static int64_t degree(const struct command_flags *f, const char *name)
{
    const int64_t value = flag_int(f, name, 0);
    return value > 0 ? value : 0;
}

static enum status add_cut(struct command_flags *f, int64_t pp, int64_t microbatches,
                           struct command_job *made, struct err *err)
{
    const char *const preset = json_string(json_path(made->job, "model.preset"));
    struct model model = {.num_layers = made->num_layers};
    struct pytorch_pipeline pipeline = {
        .schedule = flag_word(f, "distributed.pipeline.pp_schedule", "1F1B"),
        .parts = flag_word(f, "distributed.pipeline.module_fqns_per_model_part", NULL),
        .csv = flag_word(f, "distributed.pipeline.pp_schedule_csv", NULL),
        .ranks = pp,
        .layers_a_stage = flag_int(f, "distributed.pipeline.layers_per_stage", 0),
        .microbatches = microbatches};
    enum status rc = OK;
    job_set_int(made->job, "pipeline.num_stages", pp);
    if (pp == 1)
        return OK;
    if (preset)
        rc = model_parse(preset, &model, err);
    else if (!pipeline.parts && made->num_layers == 0)
        rc = err_set(err, ERR_INPUT,
                     "a pipeline's cut needs model.pretrained_model_name_or_path, or --model");
    pipeline.num_layers = model.num_layers;
    THEN(pytorch_pipeline_add(f, &pipeline, made, err));
    model_clear(&model);
    return rc;
}

/* Read which activations are recomputed, and what is sharded over the `replicas` devices. */
static void add_memory(struct command_flags *f, struct json *job, int64_t replicas, int64_t pp)
{
    const char *const again = flag_word(f, "distributed.activation_checkpointing", "false");
    const bool part = strcasecmp(again, "selective") == 0;
    if (part)
        flags_left_out(f,
                       "distributed.activation_checkpointing selective: none is counted (today is "
                       "slower, with less memory)");
    job_set(job, "pipeline.recompute",
            part || strstr(" false off none disabled no ", again) ? "never" : "layer");
    const char *const strategy = flag_word(f, "distributed.strategy", "fsdp2");
    const char *const reshard =
        flag_word(f, "distributed.reshard_after_forward", pp > 1 ? "false" : "true");
    job_set(job, "pipeline.shard",
            replicas == 1 || strcmp(strategy, "ddp") == 0 ? "none"
            : strcmp(reshard, "false") == 0               ? "gradients"
                                                          : "weights");
}

enum status automodel_rules(struct command_flags *f, int num_devices, struct command_job *made,
                            struct err *err)
{
    struct json *const job = made->job;
    const int64_t tp = flag_int(f, "distributed.tp_size", 1),
                  pp = flag_int(f, "distributed.pp_size", 1);
    const int64_t cp = flag_int(f, "distributed.cp_size", 1);
    const int64_t copies = degree(f, "distributed.dp_replicate_size") > 1
                               ? degree(f, "distributed.dp_replicate_size")
                               : 1;
    const int64_t dp = num_devices / (tp * pp * cp), given = degree(f, "distributed.dp_size");
    const int64_t local = flag_int(f, "step_scheduler.local_batch_size", 1);
    const int64_t global =
        flag_int(f, "step_scheduler.global_batch_size", local * (dp > 0 ? dp : 1));
    const int64_t micro =
        pp > 1 ? flag_int(f, "distributed.pipeline.pp_microbatch_size", 1) : local;
    const int64_t seq = flag_int(f, "packed_sequence.packed_sequence_size", 0) > 0
                            ? flag_int(f, "packed_sequence.packed_sequence_size", 0)
                            : flag_int(f, "dataset.seq_length", flag_int(f, "dataset.seq_len", 0));
    if (dp < 1 || dp * tp * pp * cp != num_devices || (given > 0 && given != dp) ||
        dp % copies != 0)
        return err_set(err, ERR_INPUT,
                       "DP %" PRId64 " x TP %" PRId64 " x PP %" PRId64 " x CP %" PRId64
                       " are not the cluster's %d devices",
                       given > 0 ? given : dp, tp, pp, cp, num_devices);
    if (global % (local * dp) != 0 || local % micro != 0)
        return err_set(err, ERR_INPUT,
                       "global_batch_size %" PRId64
                       " is not a multiple of local_batch_size %" PRId64 " x DP %" PRId64
                       ", or that one not a multiple of %" PRId64,
                       global, local, dp, micro);
    if (flag_given(f, "model.pretrained_model_name_or_path"))
        job_set(job, "model.preset", flag_word(f, "model.pretrained_model_name_or_path", ""));
    if (seq > 0)
        job_set_int(job, "model.seq", seq);
    job_set_int(job, "pipeline.tensor", tp);
    job_set_int(job, "pipeline.num_replicas", dp);
    job_set_int(job, "pipeline.context", cp);
    job_set(job, "pipeline.context_comm", "all-gather");
    job_set_int(job, "pipeline.expert", flag_int(f, "distributed.ep_size", 1));
    job_set(job, "pipeline.sequence_parallel",
            tp > 1 && flag_on(f, "distributed.sequence_parallel") ? "true" : "false");
    add_memory(f, job, dp * cp, pp);
    if (copies > 1 && copies < dp)
        job_set_int(job, "pipeline.shard_group", dp * cp / copies);
    job_set_int(job, "train.batch.global", global);
    job_set_int(job, "train.batch.micro", micro);
    job_set_int(job, "data.train_samples", global * flag_int(f, "step_scheduler.max_steps", 1000));
    job_set(job, "train.dtype", flag_on(f, "fp8.enabled") ? "fp8" : "bf16");
    job_set(job, "train.framework", "fsdp");
    job_set(job, "train.clip_norm", "1.0");
    job_set(job, "train.optimizer.kind", "adamw");
    if (pp > 1 && global > local * dp)
        flags_left_out(f, "gradient accumulation over several runs of the pipeline: one is counted "
                          "(today is slower)");
    enum status rc = add_cut(f, pp, local / micro, made, err);
    THEN(flags_write(f, job, err));
    return rc;
}
