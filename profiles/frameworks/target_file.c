/* Plans as configurations of frameworks: one function each, from write_torchtitan() on. Names are
 * those of torchtitan 0.3.0 (config/configs.py), NeMo AutoModel 0.7.0 (recipes/_dist_utils.py,
 * pipelining/config.py), Megatron-LM (training/arguments.py at 000c4ac2, core 0.16.1), DeepSpeed
 * 0.19.8 (runtime/config.py) and nanotron (config/parallelism_config.py at 19f88fb). */
#include "profiles/frameworks/target_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/schedule/schedule.h"
#include "profiles/frameworks/command_job.h"

struct writer {
    FILE *out;
    const struct job *job;
    const struct model *model;
    const struct plan *plan;
    const char *csv_path;
    struct json *missing;
};

static void lacks(const struct writer *w, const char *what)
{
    json_add_string(w->missing, NULL, what);
}

/* The samples that a data-parallel rank gets at once: all micro-batches of a pipeline, or one
 * without a pipeline. */
static int64_t local_batch(const struct plan *plan)
{
    return plan->num_ranks > 1 ? plan->batch : plan->microbatches.size;
}

static bool narrow(const struct job *job)
{
    return job->train.dtype >= DTYPE_FP8;
}

static bool packed(const struct job *job)
{
    return job->data.length > 0 && job->train.rows == FILL_PACKED;
}

static bool again_by_layer(const struct plan *plan)
{
    return plan->recompute == RECOMPUTE_LAYER;
}

/* Write the names of the modules of a stage, with `between` between two. */
static void write_modules(const struct writer *w, int stage, const char *embedding,
                          const char *layers, const char *last, const char *between)
{
    const char *before = "";
    const struct model *m = w->model;
    for (int i = w->plan->first_item[stage], seen = -2; i < w->plan->first_item[stage + 1]; i++) {
        const int layer = m->items[i].layer;
        if (layer == seen)
            continue;
        seen = layer;
        if (layer < 0)
            fprintf(w->out, "%s%s", before, embedding);
        else if (layer < m->num_layers)
            fprintf(w->out, "%s%s%d", before, layers, layer);
        else
            fprintf(w->out, "%s%s", before, last);
        before = between;
    }
}

/* The name by which PyTorch's stage builders find the ranks of the stages; the op list itself is in
 * the CSV. */
static const char *pytorch_builder(const struct plan *plan)
{
    const int K = plan->num_ranks;
    return plan->num_stages == 2 * K && plan_rank_of_stage(plan, K) == K - 1 ? "ZBVZeroBubble"
                                                                             : "Interleaved1F1B";
}

static const char *no_model =
    "the model: its config function or its section names it (sizes are the user's)";

/* --- torchtitan ---------------------------------------------------------------------------- */

static void write_torchtitan_pipeline(const struct writer *w)
{
    const struct plan *p = w->plan;
    FILE *out = w->out;
    fprintf(out, "--training.disable_cuda_graphs\n");
    fprintf(out, "--parallelism.pipeline_parallel_schedule %s\n", pytorch_builder(p));
    fprintf(out, "--parallelism.pipeline_parallel_schedule_csv %s\n", w->csv_path);
    fprintf(out, "--parallelism.pipeline_parallel_microbatch_size %" PRId64 "\n",
            p->microbatches.size);
    fprintf(out, "--parallelism.module_fqns_per_model_part");
    for (int s = 0; s < p->num_stages; s++) {
        fprintf(out, " ");
        write_modules(w, s, "tok_embeddings", "layers.", "norm,lm_head", ",");
    }
    fprintf(out, "\n");
}

static void write_torchtitan(const struct writer *w)
{
    const struct plan *p = w->plan;
    const bool sharded = p->layout.shard != SHARD_NONE;
    FILE *out = w->out;
    char module[32];
    const char *config;
    if (torchtitan_names(w->model, module, sizeof module, &config))
        fprintf(out, "--module %s\n--config %s\n", module, config);
    else
        lacks(w, no_model);
    fprintf(out, "--training.local_batch_size %" PRId64 "\n", local_batch(p));
    fprintf(out, "--training.global_batch_size %" PRId64 "\n", plan_samples(p));
    if (w->model->seq > 0)
        fprintf(out, "--training.seq_len %d\n", w->model->seq);
    fprintf(out, "--training.mixed_precision_param %s\n",
            w->job->train.dtype == DTYPE_FP32 || w->job->train.dtype == DTYPE_TF32 ? "float32"
                                                                                   : "bfloat16");
    if (w->job->train.clip_norm > 0)
        fprintf(out, "--training.max_norm %g\n", w->job->train.clip_norm);
    fprintf(out, "--parallelism.data_parallel_replicate_degree %d\n", sharded ? 1 : plan_width(p));
    fprintf(out, "--parallelism.data_parallel_shard_degree %d\n", sharded ? plan_width(p) : 1);
    if (layout_context(&p->layout) > 1)
        fprintf(out, "--parallelism.context_parallel_degree %d\n", layout_context(&p->layout));
    if (sharded)
        fprintf(out, "--parallelism.fsdp_reshard_after_forward %s\n",
                p->layout.shard == SHARD_WEIGHTS ? "always" : "never");
    fprintf(out, "--parallelism.tensor_parallel_degree %d\n", layout_tensor(&p->layout));
    if (layout_tensor(&p->layout) > 1)
        fprintf(out, "--parallelism.%senable_sequence_parallel\n",
                p->layout.sequence_parallel ? "" : "no-");
    fprintf(out, "--parallelism.expert_parallel_degree %d\n", layout_expert(&p->layout));
    fprintf(out, "--parallelism.pipeline_parallel_degree %d\n", p->num_ranks);
    if (w->model->overlaps_tensor && layout_tensor(&p->layout) > 1)
        fprintf(out, "--parallelism.enable_async_tensor_parallel\n");
    if (p->num_ranks > 1)
        write_torchtitan_pipeline(w);
    /* A subcommand of the parser, and so the last word. */
    fprintf(out, "activation-checkpoint:%s\n",
            again_by_layer(p)              ? "full"
            : p->recompute == RECOMPUTE_OP ? "selective"
                                           : "none");
    if (narrow(w->job))
        lacks(w, "train.dtype: the converters of the model's config function set it");
    if (w->job->train.dtype == DTYPE_FP16)
        lacks(w, "train.dtype fp16: bfloat16 is written");
    if (layout_expert(&p->layout) > 1 && layout_expert_tensor(&p->layout) > 1)
        lacks(w, "pipeline.tensor of experts: expert parallelism takes the tensor ranks there");
}

/* --- NeMo AutoModel ------------------------------------------------------------------------ */

static void write_automodel(const struct writer *w)
{
    const struct plan *p = w->plan;
    FILE *out = w->out;
    fprintf(out,
            "step_scheduler:\n  global_batch_size: %" PRId64 "\n  local_batch_size: %" PRId64 "\n",
            plan_samples(p), local_batch(p));
    fprintf(out, "distributed:\n  strategy: fsdp2\n  dp_size: %d\n  tp_size: %d\n",
            p->num_pipelines, layout_tensor(&p->layout));
    fprintf(out, "  pp_size: %d\n  cp_size: 1\n  ep_size: %d\n", p->num_ranks,
            layout_expert(&p->layout));
    fprintf(out, "  sequence_parallel: %s\n", p->layout.sequence_parallel ? "true" : "false");
    fprintf(out, "  activation_checkpointing: %s\n", again_by_layer(p) ? "true" : "false");
    if (p->layout.shard != SHARD_NONE)
        fprintf(out, "  reshard_after_forward: %s\n",
                p->layout.shard == SHARD_WEIGHTS ? "true" : "false");
    if (p->num_ranks > 1) {
        fprintf(out, "  pipeline:\n    pp_schedule: %s\n    pp_schedule_csv: %s\n",
                pytorch_builder(p), w->csv_path);
        fprintf(out, "    pp_microbatch_size: %" PRId64 "\n    module_fqns_per_model_part:\n",
                p->microbatches.size);
        for (int s = 0; s < p->num_stages; s++) {
            fprintf(out, "      - [");
            write_modules(w, s, "model.embed_tokens", "model.layers.", "model.norm, lm_head", ", ");
            fprintf(out, ", model.rotary_emb]\n");
        }
    }
    if (packed(w->job)) /* its packer begins a new row too where a document does not fit */
        fprintf(out, "packed_sequence:\n  packed_sequence_size: %d\n", w->model->seq);
    lacks(w, no_model);
    if (narrow(w->job))
        lacks(w, "train.dtype: the section fp8 sets it");
    if (layout_expert(&p->layout) > 1 && layout_expert_tensor(&p->layout) > 1)
        lacks(w, "pipeline.tensor of experts: expert parallelism takes the tensor ranks there");
}

/* --- Megatron-LM --------------------------------------------------------------------------- */

/* Whether every stage has equally many layers, the first the embedding too, and the last the head. */
static bool even(const struct plan *plan, const struct model *model)
{
    for (int s = 1; s < plan->num_stages; s++)
        if (model->num_layers % plan->num_stages != 0 ||
            model->items[plan->first_item[s]].layer != s * (model->num_layers / plan->num_stages))
            return false;
    return true;
}

/* A layout: E is the embedding, t a layer, L the loss, | ends a stage (core/transformer/
 * pipeline_parallel_layer_layout.py). */
static void write_layout(const struct writer *w)
{
    const struct model *m = w->model;
    fprintf(w->out, "--pipeline-model-parallel-layout ");
    for (int s = 0; s < w->plan->num_stages; s++) {
        int layers = 0;
        bool head = false;
        if (s > 0)
            fputc('|', w->out);
        for (int i = w->plan->first_item[s]; i < w->plan->first_item[s + 1]; i++) {
            const int layer = m->items[i].layer;
            if (layer < 0)
                fputc('E', w->out);
            else if (layer == m->num_layers)
                head = true;
            else
                layers += i == w->plan->first_item[s] || m->items[i - 1].layer != layer;
        }
        if (layers > 0)
            fprintf(w->out, "t*%d", layers);
        if (head)
            fputc('L', w->out);
    }
    fputc('\n', w->out);
}

/* Whether the flags below say all of the model. */
static bool megatron_has(const struct model *m)
{
    const struct block *b = &m->block;
    return m->family == FAMILY_GPT || (m->family == FAMILY_BERT && m->task == TASK_MLM) ||
           (m->family == FAMILY_LLAMA && b->norm <= NORM_FORM_LAYER && b->places == NORMS_BEFORE &&
            b->qk_norm != QK_NORM_FULL && b->positions == POSITIONS_ROTARY && !b->embedding_norm &&
            !b->softcap && !b->sinks && b->out_bias == b->mlp_bias &&
            (m->qkv_bias || !b->out_bias || m->kv_rank > 0) && b->window == 0 &&
            b->moe_every <= 1 && !b->shared_gate && m->state.kind == MIXER_NONE);
}

static void write_megatron_model(const struct writer *w)
{
    const struct model *m = w->model;
    FILE *out = w->out;
    fprintf(out, "--num-layers %d\n--hidden-size %d\n--ffn-hidden-size %d\n", m->num_layers,
            m->hidden, m->mlp);
    fprintf(out, "--num-attention-heads %d\n--seq-length %d\n--max-position-embeddings %d\n",
            m->heads, m->seq, m->max_seq > m->seq ? m->max_seq : m->seq);
    fprintf(out, "--vocab-size %d\n--make-vocab-size-divisible-by 1\n", m->vocab);
    if (m->family == FAMILY_BERT)
        lacks(w, "the program: pretrain_bert.py, which has a head for sentences too");
    if (m->family != FAMILY_LLAMA)
        return;
    fprintf(out, "--position-embedding-type rope\n--normalization %s\n%s%s",
            m->rms_norm ? "RMSNorm" : "LayerNorm", m->block.plain_mlp ? "" : "--swiglu\n",
            m->block.mlp_bias ? "" : "--disable-bias-linear\n");
    if (m->kv_rank == 0)
        fprintf(out, "--kv-channels %d\n", m->head_dim);
    else
        fprintf(out,
                "--multi-latent-attention\n--kv-lora-rank %d\n--qk-head-dim %d\n"
                "--qk-pos-emb-head-dim %d\n--v-head-dim %d\n--qk-layernorm\n",
                m->kv_rank, m->head_dim, m->rope_dim, m->v_dim);
    if (m->kv_rank > 0 && m->q_rank > 0)
        fprintf(out, "--q-lora-rank %d\n", m->q_rank);
    if (m->kv_heads != m->heads)
        fprintf(out, "--group-query-attention\n--num-query-groups %d\n", m->kv_heads);
    if (!m->tied_head)
        fprintf(out, "--untie-embeddings-and-output-weights\n");
    if (m->qkv_bias && !m->block.mlp_bias)
        fprintf(out, "--add-qkv-bias\n");
    if (m->block.qk_norm == QK_NORM_HEAD)
        fprintf(out, "--qk-layernorm\n");
    if (m->experts > 0) {
        fprintf(out, "--num-experts %d\n--moe-router-topk %d\n--moe-ffn-hidden-size %d\n",
                m->experts, m->experts_active, m->expert_mlp);
        fprintf(out, "--moe-token-dispatcher-type %s\n",
                w->job->train.dispatcher == DISPATCHER_FLEX ? "flex" : "alltoall");
        if (m->expert_groups > 1)
            fprintf(out, "--moe-router-num-groups %d\n--moe-router-group-topk %d\n",
                    m->expert_groups, m->groups_active);
        if (m->expert_bias)
            fprintf(out, "--moe-router-enable-expert-bias\n");
        if (m->shared_experts > 0)
            fprintf(out, "--moe-shared-expert-intermediate-size %d\n",
                    m->shared_experts * m->expert_mlp);
        if (m->dense_layers > 0)
            fprintf(out, "--moe-layer-freq ([0]*%d+[1]*%d)\n", m->dense_layers,
                    m->num_layers - m->dense_layers);
    }
}

static void write_megatron_format(const struct writer *w)
{
    switch (w->job->train.dtype) {
    case DTYPE_FP16:
        fprintf(w->out, "--fp16\n%s",
                model_grad_bytes(w->model) > 2 ? "--accumulate-allreduce-grads-in-fp32\n" : "");
        break;
    case DTYPE_BF16:
        fprintf(w->out, "--bf16\n");
        break;
    case DTYPE_FP8:
        fprintf(w->out, "--bf16\n--fp8-format hybrid\n--fp8-recipe %s\n",
                w->job->train.fp8_scaling == SCALING_DELAYED ? "delayed" : "tensorwise");
        break;
    case DTYPE_MXFP8:
        fprintf(w->out, "--bf16\n--fp8-format e4m3\n--fp8-recipe mxfp8\n");
        break;
    case DTYPE_NVFP4:
        fprintf(w->out, "--bf16\n--fp4-format e2m1\n");
        break;
    default:
        break;
    }
    if (w->job->train.dtype != DTYPE_FP32 && w->job->train.dtype != DTYPE_FP16 &&
        model_grad_bytes(w->model) == 2)
        fprintf(w->out, "--grad-reduce-in-bf16\n");
}

static void write_megatron_recompute(const struct writer *w)
{
    const struct plan *p = w->plan;
    FILE *out = w->out;
    if (p->recompute == RECOMPUTE_SELECTIVE)
        fprintf(out, "--recompute-granularity selective\n");
    if (p->recompute == RECOMPUTE_NORMS)
        fprintf(out, "--recompute-granularity selective\n--recompute-modules layernorm%s%s\n",
                w->model->experts > 0 ? " moe_act" : "",
                w->model->kv_rank > 0 ? " mla_up_proj" : "");
    int again = 0;
    for (int s = 0; s < p->num_stages && again_by_layer(p); s++)
        again = p->recompute_layers[s] > again ? p->recompute_layers[s] : again;
    if (again > 0)
        fprintf(out,
                "--recompute-granularity full\n--recompute-method block\n"
                "--recompute-num-layers %d\n",
                again);
}

static void write_megatron_layout(const struct writer *w)
{
    const struct plan *p = w->plan;
    const int chunks = p->num_stages / p->num_ranks;
    FILE *out = w->out;
    fprintf(out, "--tensor-model-parallel-size %d\n--pipeline-model-parallel-size %d\n",
            layout_tensor(&p->layout), p->num_ranks);
    if (!even(p, w->model))
        write_layout(w);
    else if (chunks > 1)
        fprintf(out, "--num-virtual-stages-per-pipeline-rank %d\n", chunks);
    if (p->layout.sequence_parallel)
        fprintf(out, "--sequence-parallel\n");
    if (p->layout.sequence_parallel && w->model->overlaps_tensor)
        fprintf(out, "--tp-comm-overlap\n");
    static const char *const kinds[CONTEXT_KIND_COUNT] = {"p2p", "all_gather", "a2a"};
    if (layout_context(&p->layout) > 1)
        fprintf(out, "--context-parallel-size %d\n--cp-comm-type %s\n", layout_context(&p->layout),
                kinds[p->layout.context_kind]);
    if (w->model->experts > 0)
        fprintf(out, "--expert-model-parallel-size %d\n--expert-tensor-parallel-size %d\n",
                layout_expert(&p->layout), layout_expert_tensor(&p->layout));
    if (w->model->experts > 0 && w->model->overlaps_experts)
        fprintf(out, "--overlap-moe-expert-parallel-comm\n");
    if (p->layout.shard == SHARD_OPTIMIZER || p->layout.offload)
        fprintf(out, "--use-distributed-optimizer\n");
    if (p->layout.offload)
        fprintf(out, "--optimizer-cpu-offload\n--optimizer-offload-fraction 1.0\n"
                     "--use-precision-aware-optimizer\n");
    if (p->layout.offload && p->layout.shard == SHARD_NONE && p->num_pipelines > 1)
        lacks(w, "pipeline.offload with pipeline.shard none: its optimizer there is divided");
    if (p->bucket_bytes > 0)
        fprintf(out, "--overlap-grad-reduce\n--ddp-bucket-size %" PRId64 "\n", p->bucket_bytes / 4);
}

static void write_megatron(const struct writer *w)
{
    const struct plan *p = w->plan;
    FILE *out = w->out;
    if (megatron_has(w->model))
        write_megatron_model(w);
    else
        lacks(w, w->model->family == FAMILY_BERT
                     ? "the model: pretrain_bert.py has heads for masked tokens and sentences alone"
                 : w->model->family == FAMILY_VIT
                     ? "the model: Megatron-LM's programs for images are not written"
                     : "the model: only GPT's, BERT's and Llama's kin are written");
    fprintf(out, "--micro-batch-size %" PRId64 "\n--global-batch-size %" PRId64 "\n",
            p->microbatches.size, plan_samples(p));
    write_megatron_layout(w);
    write_megatron_recompute(w);
    write_megatron_format(w);
    fprintf(out, "--optimizer %s\n",
            w->job->train.optimizer.kind == OPTIMIZER_SGD ? "sgd" : "adam");
    if (w->job->train.optimizer.state_dtype == DTYPE_BF16)
        fprintf(out, "%s--exp-avg-dtype bf16\n--exp-avg-sq-dtype bf16\n",
                p->layout.offload ? "" : "--use-precision-aware-optimizer\n");
    fprintf(out, "--hidden-dropout %g\n--attention-dropout %g\n", w->job->train.dropout,
            w->job->train.dropout);
    fprintf(out, "--clip-grad %g\n", w->job->train.clip_norm);
    if (w->job->train.optimizer.kind == OPTIMIZER_LAMB)
        lacks(w, "train.optimizer lamb: adam is written");
}

/* --- DeepSpeed ----------------------------------------------------------------------------- */

static void write_deepspeed(const struct writer *w)
{
    const struct plan *p = w->plan;
    struct json *json = json_object_new();
    char *text = NULL, code[200];
    json_add_int(json, "train_batch_size", plan_samples(p));
    json_add_int(json, "train_micro_batch_size_per_gpu", p->microbatches.size);
    json_add_int(json, "gradient_accumulation_steps", p->microbatches.count);
    struct json *zero = json_add_object(json, "zero_optimization");
    json_add_int(zero, "stage",
                 p->layout.offload && p->layout.shard == SHARD_NONE ? 1 : (int)p->layout.shard);
    if (p->layout.offload)
        json_add_string(json_add_object(zero, "offload_optimizer"), "device", "cpu");
    json_add_bool(zero, "overlap_comm", p->bucket_bytes > 0);
    if (p->bucket_bytes > 0)
        json_add_int(zero, "reduce_bucket_size", p->bucket_bytes / 4);
    if (w->job->train.dtype == DTYPE_BF16 || narrow(w->job))
        json_add_bool(json_add_object(json, "bf16"), "enabled", true);
    if (w->job->train.dtype == DTYPE_FP16)
        json_add_bool(json_add_object(json, "fp16"), "enabled", true);
    if (w->job->train.clip_norm > 0)
        json_add_double(json, "gradient_clipping", w->job->train.clip_norm);
    if (layout_tensor(&p->layout) > 1)
        json_add_int(json_add_object(json, "tensor_parallel"), "autotp_size",
                     layout_tensor(&p->layout));
    if (json_text(json, true, &text, NULL) == OK)
        fprintf(w->out, "%s\n", text);
    free(text);
    json_free(json);
    lacks(w, no_model);
    if (p->num_ranks > 1) {
        snprintf(code, sizeof code,
                 "the pipeline: PipelineModule(layers=..., num_stages=%d, "
                 "partition_method=\"uniform\"%s) in the program",
                 p->num_ranks, again_by_layer(p) ? ", activation_checkpoint_interval=1" : "");
        lacks(w, code);
    } else if (again_by_layer(p)) {
        lacks(w, "pipeline.recompute: the program checkpoints each layer");
    }
    if (layout_expert(&p->layout) > 1) {
        snprintf(code, sizeof code, "pipeline.expert: MoE(ep_size=%d) in the program",
                 layout_expert(&p->layout));
        lacks(w, code);
    }
    if (narrow(w->job))
        lacks(w, "train.dtype: the program converts its linears; bf16 is written");
}

/* --- nanotron ------------------------------------------------------------------------------ */

static void write_nanotron(const struct writer *w)
{
    const struct plan *p = w->plan;
    const struct model *m = w->model;
    FILE *out = w->out;
    fprintf(out, "parallelism:\n  dp: %d\n  pp: %d\n  tp: %d\n  expert_parallel_size: %d\n",
            p->num_pipelines, p->num_ranks, layout_tensor(&p->layout), layout_expert(&p->layout));
    fprintf(out, "  pp_engine: %s\n  tp_mode: %s\n  tp_linear_async_communication: %s\n",
            p->schedule == SCHEDULE_GPIPE ? "afab" : "1f1b",
            p->layout.sequence_parallel ? "REDUCE_SCATTER" : "ALL_REDUCE",
            p->layout.sequence_parallel ? "true" : "false");
    fprintf(out, "  recompute_layer: %s\n", again_by_layer(p) ? "true" : "false");
    fprintf(out,
            "tokens:\n  sequence_length: %d\n  micro_batch_size: %" PRId64
            "\n  batch_accumulation_per_replica: %d\n",
            m->seq, p->microbatches.size, p->microbatches.count);
    fprintf(out, "optimizer:\n  zero_stage: %d\n  accumulate_grad_in_fp32: true\n",
            p->layout.shard == SHARD_OPTIMIZER);
    if (w->job->train.clip_norm > 0)
        fprintf(out, "  clip_grad: %g\n", w->job->train.clip_norm);
    fprintf(out, "model:\n  dtype: %s\n",
            w->job->train.dtype == DTYPE_FP32 || w->job->train.dtype == DTYPE_TF32 ? "float32"
            : w->job->train.dtype == DTYPE_FP16                                    ? "float16"
                                                                                   : "bfloat16");
    if (m->family == FAMILY_LLAMA && m->experts == 0 && m->kv_rank == 0 &&
        m->state.kind == MIXER_NONE) {
        fprintf(out,
                "  model_config:\n    is_llama_config: true\n    hidden_size: %d\n"
                "    intermediate_size: %d\n    num_hidden_layers: %d\n",
                m->hidden, m->mlp, m->num_layers);
        fprintf(out,
                "    num_attention_heads: %d\n    num_key_value_heads: %d\n"
                "    vocab_size: %d\n    max_position_embeddings: %d\n"
                "    tie_word_embeddings: %s\n",
                m->heads, m->kv_heads, m->vocab, m->seq, m->tied_head ? "true" : "false");
        static const struct block plain;
        if (memcmp(&m->block, &plain, sizeof plain) != 0 || m->qkv_bias)
            lacks(w, "the model: its layers are written as Llama's");
    } else {
        lacks(w, no_model);
    }
    if (narrow(w->job))
        lacks(w, "train.dtype: bfloat16 is written");
}

/* ------------------------------------------------------------------------------------------- */

enum status target_file_make(const struct job *job, const struct plan *plan, const char *csv_path,
                             struct target_file *file, struct err *err)
{
    static void (*const write[TARGET_KIND_COUNT])(const struct writer *) = {
        write_torchtitan, write_automodel, write_megatron, write_deepspeed, write_nanotron};
    const enum target_kind kind = job->pipeline.target->kind;
    struct target_file got = {.missing = json_array_new()};
    struct schedule schedule = {0};
    size_t size;
    struct writer w = {.job = job,
                       .model = &job->model,
                       .plan = plan,
                       .csv_path = csv_path,
                       .missing = got.missing,
                       .out = open_memstream(&got.text, &size)};
    enum status rc = w.out ? OK : err_nomem(err);
    if (rc == OK) {
        write[kind](&w);
        if (job->train.lora.rank > 0)
            lacks(&w, "train.lora: the adapters are the program's");
        if (job->data.length > 0 && (kind != TARGET_AUTOMODEL || !packed(job)))
            lacks(&w, "train.rows: the data loader packs or pads documents");
        if (fclose(w.out) != 0)
            rc = err_nomem(err);
    }
    if (rc == OK && plan->num_ranks > 1 && kind <= TARGET_AUTOMODEL) {
        if (!plan->order)
            rc = schedule_generate(plan->schedule, plan->num_ranks, plan->microbatches.count,
                                   plan->num_stages / plan->num_ranks, &schedule, err);
        THEN(schedule_to_csv(plan->order ? plan->order : &schedule, &got.csv, err));
    }
    THEN(json_check(got.missing, err));
    if (rc == OK) {
        *file = got;
        got = (struct target_file){0};
    }
    schedule_clear(&schedule);
    target_file_clear(&got);
    return rc;
}

void target_file_clear(struct target_file *file)
{
    free(file->text);
    free(file->csv);
    json_free(file->missing);
    *file = (struct target_file){0};
}
