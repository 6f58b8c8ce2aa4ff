/* The keys of a job: for each its place in struct job, limits, default, help and other names; and the
 * names of the enums that job.h declares. Read struct member (partition/base/member.h) first. */
#include "partition/layout/model_shard.h"
#include "partition/model/attention.h"
#include "partition/plan/job.h"

const char *const data_kind_names[] = {"synthetic", "cifar10", "cifar100", "idx",   "images",
                                       "sst2",      "squad",   "text",     "table", NULL};
const char *const lower_case_names[] = {"auto", "true", "false", NULL};
const char *const optimizer_kind_names[] = {"sgd", "adamw", "lamb", NULL};
const char *const lr_kind_names[] = {"constant", "linear", "cosine", NULL};
static const char *const state_dtype_names[] = {"fp32", "bf16", NULL};
const char *const dtype_names[] = {"fp32", "bf16", "tf32", "fp16", "fp8", "mxfp8", "nvfp4", NULL};
const char *const device_kind_names[] = {"cpu", "cuda", NULL};
const char *const transport_names[] = {"mpi", "nccl", NULL};
const char *const on_slow_names[] = {"log", "replan", "ignore", NULL};
const char *const reduction_names[] = {"fast", "canonical", NULL};
const char *const offload_choice_names[] = {"none", "optimizer", "auto", "fit", NULL};
const char *const cache_policy_names[] = {"off", "on", "auto", NULL};
#define ENTRIES(names) (sizeof(names) / sizeof *(names)-1)
_Static_assert(ENTRIES(data_kind_names) == DATA_KIND_COUNT &&
                   ENTRIES(dtype_names) == DTYPE_NVFP4 + 1 &&
                   ENTRIES(offload_choice_names) == OFFLOAD_FIT + 1,
               "an entry for each value");

/* Names of the two values of a bool. */
static const char *const augment_names[] = {"none", "crop-flip", NULL};
static const char *const by_names[] = {"time", "params", NULL};
static const char *const compression_names[] = {"best", "halving", NULL};
static const char *const cache_dtype_names[] = {"fp32", "bf16", NULL};

static const char *const valid_words[] = {"auto", "test", NULL};
/* Published sizes: CIFAR (Krizhevsky 2009), MNIST (LeCun et al. 1998), SST-2 as in GLUE (Wang et
 * al. 2018), SQuAD 1.1 (Rajpurkar et al. 2016). The synthetic set is unlimited, so its numbers are
 * defaults. */
const struct data_set data_sets[DATA_KIND_COUNT] = {
    {"nothing: samples are computed from the seed",                   "all",                 10000, 2000 },
    {"data_batch_1.bin ... and test_batch.bin",                       "ViT",                 50000, 10000},
    {"train.bin and test.bin",                                        "ViT",                 50000, 10000},
    {"the four files of MNIST, plain or .gz",                         "ViT, channels=1",     60000, 10000},
    {"train/CLASS/FILE and val/CLASS/FILE (or test/), pictures",      "ViT",                 0,     0    },
    {"train.tsv and dev.tsv of a GLUE task",                          "BERT, task=classify", 67349, 872  },
    {"train-v1.1.json and dev-v1.1.json",                             "BERT, task=qa",       87599, 10570},
    {"a file, or a folder with train.txt and test.txt, or input.txt", "GPT, BERT task=mlm",  0,     0    },
    {"train.csv and test.csv, or one file; .tsv and .jsonl too",      "BERT, task=classify", 0,     0    },
};

/* clang-format off */
#define ROW(type, key, member, help, ...) MEMBER(job, key, type, member, help, __VA_ARGS__)
#define INT(...) ROW(INT, __VA_ARGS__, )
#define COUNT(...) ROW(COUNT, __VA_ARGS__, )
#define REAL(...) ROW(REAL, __VA_ARGS__, )
#define BOOL(...) ROW(BOOL, __VA_ARGS__, )
#define NAME(...) ROW(NAME, __VA_ARGS__, )
#define TEXT(...) ROW(TEXT, __VA_ARGS__, )
#define STRING(...) ROW(STRING, __VA_ARGS__, )
#define PATH(...) ROW(PATH, __VA_ARGS__, )
#define NS(...) ROW(NS, __VA_ARGS__, )
#define BYTES(...) ROW(BYTES, __VA_ARGS__, )
#define AUTO_IN(member) .auto_offset = offsetof(struct job, member)

static const struct member job_members[] = {
    TEXT("name", name, "name of the job, for people", .init = "job"),
    MEMBER_OWN("model", "MODEL text, file, or object: preset or family, and its dims"),
    NAME("data.kind", data.kind, "the data set", .names = data_kind_names, .init = "synthetic", .also = "dataset"),
    PATH("data.path", data.path, "file or folder of the data set", .also = "data_path",
        .needs = "data.kind"),
    PATH("data.vocab", data.vocab, "vocabulary: tokenizer.json, vocab.txt or GPT-2's vocab.json",
        .needs = "data.kind=sst2|squad|text|table"),
    PATH("data.merges", data.merges, "GPT-2's merges.txt [next to data.vocab]",
        .needs = "data.kind=sst2|squad|text|table"),
    STRING("data.text", data.text, "table: column of the text, a name, or a number from 1 without a header [text]"),
    STRING("data.text_pair", data.text_pair, "table: column of a second text [none]"),
    STRING("data.label", data.label, "table: column of the class, as a number or a name [label]"),
    NAME("data.lower_case", data.lower_case, "whether vocab.txt is uncased", .names = lower_case_names,
        .init = "auto: tokenizer_config.json next to it, else whether a piece has capitals",
        .needs = "data.kind=sst2|squad|text|table"),
    BOOL("data.special_tokens", data.special_tokens, "special tokens spelled out in texts, as [SEP], become those tokens", .init = "true",
        .needs = "data.kind=sst2|squad|text|table"),
    NAME("data.augment", data.augment, "augmentation of training images", .names = augment_names, .init = "none",
        .needs = "data.kind=synthetic|cifar10|cifar100|idx|images"),
    BOOL("data.resize", data.resize, "scale images to the model's size", .init = "false",
        .needs = "data.kind=cifar10|cifar100|idx|images"),
    INT("data.train_samples", data.train_samples, "train on n samples, drawn by train.seed", .init = "0: all"),
    INT("data.test_samples", data.test_samples, "test on n samples, drawn by train.seed", .init = "0: all"),
    REAL("data.length", data.length, "mean tokens of a document, where samples are rows that hold shorter documents "
        "(docs/data-rows.md); train takes it for its plans", .min = 1, .flags = MEMBER_UNSET,
        .init = "0: a sample is one document of model.seq tokens"),
    REAL("data.length_deviation", data.length_deviation,
        "standard deviation of data.length, of a lognormal distribution", .init = "0: all are equal"),
    INT("data.documents", data.documents,
        "documents of an epoch, in place of data.train_samples, which counts rows; for plan and sim", .init = "0",
        .instead = "train packs all documents of its JSON lines"),
    PATH("data.valid", data.valid, "samples that freezing is judged by: auto: held out of the training split; test: "
        "the test split; or a path [auto]", .names = valid_words,
        .needs = "freeze.policy=safe or freeze.record"),
    INT("data.workers", data.workers, "threads per rank that prepare samples", .max = 1024,
        .init = "0: one for each core of the rank that does not compute", .also = "num_workers"),
    INT("train.epochs", train.epochs, "epochs of the run; with 0 train writes the initial weights and sim refuses the "
        "job", .max = JOB_EPOCHS_MAX, .init = "1", .also = "epochs|num_epochs|num_train_epochs"),
    INT("train.max_steps", train.max_steps, "the run ends after n steps", .init = "0: after its epochs",
        .also = "steps|max_steps|train_iters"),
    INT("train.tokens", train.tokens, "tokens of the whole run, of synthetic data; in place of data.train_samples",
        .init = "0", .option = "tokens"),
    NAME("train.rows", train.rows, "what a row has with data.length; packed: as many documents as fit, masked from "
        "each other; context: one, padded to model.seq; longest: one, padded to the longest of train.batch, or of "
        "train.batch.micro where that is given; train packs", .names = fill_kind_names, .init = "packed",
        .instead = "train packs all documents of its JSON lines"),
    MEMBER_OWN("train.batch.per_pipeline", "samples per step of each pipeline [32]",
        .also = "batch or train.batch.global|batch_size or train.batch.global"),
    MEMBER_OWN("train.batch.global", "samples per step of all pipelines together", .also = "gbs|global_batch_size|train_batch_size"),
    COUNT("train.batch.micro", train.micro,
        "samples of a micro-batch, in place of pipeline.num_microbatches; divides the batch of a pipeline", .min = 1,
        .init = "auto", .also = "mbs|micro_batch_size"),
    NAME("train.optimizer.kind", train.optimizer.kind, "optimizer", .names = optimizer_kind_names,
        .init = "sgd; of a text model that plan has without a job, adamw", .also = "optimizer|optim"),
    REAL("train.optimizer.lr", train.optimizer.lr, "peak learning rate", .init = "0.03", .also = "lr|learning_rate"),
    REAL("train.optimizer.momentum", train.optimizer.momentum, "for sgd", .max = 1, .flags = MEMBER_BELOW,
        .init = "0.9", .also = "momentum",
        .needs = "train.optimizer.kind=sgd"),
    REAL("train.optimizer.beta1", train.optimizer.beta1, "for adamw, lamb", .max = 1, .flags = MEMBER_BELOW,
        .init = "0.9", .also = "adam_beta1",
        .needs = "train.optimizer.kind=adamw|lamb"),
    REAL("train.optimizer.beta2", train.optimizer.beta2, "for adamw, lamb", .max = 1, .flags = MEMBER_BELOW,
        .init = "0.999", .also = "adam_beta2",
        .needs = "train.optimizer.kind=adamw|lamb"),
    REAL("train.optimizer.eps", train.optimizer.eps, "for adamw, lamb", .flags = MEMBER_ABOVE, .init = "1e-8", .also = "adam_eps",
        .needs = "train.optimizer.kind=adamw|lamb"),
    REAL("train.optimizer.weight_decay", train.optimizer.weight_decay, "weight decay", .init = "0", .also = "weight_decay"),
    NAME("train.optimizer.state_dtype", train.optimizer.state_dtype,
        "data type of the optimizer's moments, for plan and sim", .names = state_dtype_names, .init = "fp32",
        .instead = "train keeps moments in fp32", .also = "state_dtype"),
    NAME("train.lr_schedule.kind", train.lr_schedule, "learning rate after the warm-up", .names = lr_kind_names,
        .init = "constant", .also = "lr_schedule|lr_scheduler|lr_scheduler_type|lr_decay_style"),
    INT("train.lr_schedule.warmup_steps", train.warmup_steps,
        "steps in which the learning rate rises linearly from 0", .init = "0", .also = "warmup|warmup_steps"),
    REAL("train.clip_norm", train.clip_norm, "largest global gradient norm; gradients are scaled down to it",
        .init = "0: off", .also = "clip_grad|grad_clip|max_grad_norm|gradient_clipping"),
    BOOL("train.post_validation", train.post_validation,
        "an update does not wait for the gradient norm, which is checked during the next step (Qi et al. 2023), so "
        "that steps follow one another after sim's period_ns; only for plan and sim", .init = "false",
        .instead = "train waits for the gradient norm"),
    REAL("train.dropout", train.dropout, "dropout probability", .max = 1, .flags = MEMBER_BELOW, .init = "0", .also = "dropout"),
    REAL("train.expert_load", train.expert_load,
        "most tokens on one device's experts over the mean of devices, for plan and sim [1: even]", .min = 1,
        .max = MODEL_EXPERTS_MAX, .flags = MEMBER_UNSET,
        .needs = "a model with experts"),
    REAL("train.label_smoothing", train.label_smoothing, "label smoothing", .max = 1, .flags = MEMBER_BELOW,
        .init = "0", .also = "label_smoothing"),
    NAME("train.dtype", train.dtype, "data type of activations", .names = dtype_names,
        .init = "fp32; of a text model that plan has without a job, bf16",
        .also = "dtype|precision|mixed_precision|bf16=bf16|fp16=fp16|loss_scale=bf16, which needs no loss scaling"),
    NAME("train.attention", train.attention,
        "whether stashes hold score matrices; eager: they do, softmax by operators; flash1: they do not, by kernels "
        "before FlashAttention-2; auto: not on GPUs that are not measured", .names = attention_kind_names, .init = "auto"),
    NAME("train.framework", train.framework,
        "what launches the kernels, for plan and sim: which operators are one kernel, and what they keep; @YEAR: as it "
        "was then; auto: fused operators", .names = framework_kind_names, .init = "auto"),
    NAME("train.norm", train.norm, "whether RMSNorm is one kernel, for plan and sim; auto: as the framework has it",
        .names = norm_kind_names, .init = "auto"),
    NAME("train.overlap", train.overlap, "which collectives overlap compute, for plan and sim: those of tensor "
        "parallelism, all-to-alls of experts with another micro-batch, all of both; auto: as the framework has it",
        .names = overlap_kind_names, .init = "auto"),
    NAME("train.dispatcher", train.dispatcher,
        "how tokens reach experts, for plan and sim: alltoall: a copy for each expert; flex: one for each device "
        "(DeepEP, HybridEP)", .names = dispatcher_kind_names, .init = "alltoall",
        .needs = "a model with experts"),
    NAME("train.cuda_graphs", train.cuda_graphs,
        "what the host launches as a whole, for plan and sim: mlp: MLPs and routers; layers: attention too, but no "
        "experts; step: all passes", .names = graph_parts_names, .init = "none"),
    BOOL("train.fp8_attention", train.fp8_attention,
        "fused attention computes in fp8 too, for plan and sim (Transformer Engine's fp8_dpa)", .init = "false",
        .needs = "train.dtype=fp8|mxfp8|nvfp4"),
    BOOL("train.fp8_activation", train.fp8_activation,
        "the SwiGLU of dense MLPs keeps its input in fp8 for the backward, for plan and sim (Megatron-LM's "
        "activation_func_fp8_input_store)", .init = "false",
        .needs = "train.dtype=fp8|mxfp8|nvfp4"),
    NAME("train.fp8_scaling", train.fp8_scaling,
        "where a scale of fp8 is from, for plan and sim: current: the tensor, in a pass of its own; delayed: earlier "
        "steps", .names = fp8_scaling_names, .init = "current",
        .needs = "train.dtype=fp8|mxfp8|nvfp4"),
    INT("train.gradient_bytes", train.gradient_bytes, "bytes of a parameter's gradient, for plan and sim", .max = 8,
        .init = "0: 2 with deepspeed and 2-byte activations, else 4"),
    BOOL("train.gradient_copy", train.gradient_copy,
        "the optimizer has an fp32 copy of narrower gradients, for plan and sim: Megatron-LM's fp16", .init = "false"),
    NAME("train.device", train.device, "device that each rank computes on", .names = device_kind_names, .init = "cpu", .also = "device"),
    NAME("train.transport", train.transport, "how activations and gradients travel; nccl: from GPU to GPU",
        .names = transport_names, .init = "mpi"),
    NAME("train.reduction", train.reduction, "canonical: bit-identical results with R = 1, 2, 4", .names = reduction_names, .init = "fast"),
    INT("train.seed", train.seed, "seed of all random numbers", .init = "1", .also = "seed"),
    INT("train.eval_every_epochs", train.eval_every_epochs, "evaluate after every n epochs", .init = "0: only at the end"),
    INT("train.lora.rank", train.lora.rank, "train adapters of this rank with a frozen base (LoRA)",
        .init = "0: none", .also = "lora|lora_rank|lora_r"),
    REAL("train.lora.alpha", train.lora.alpha, "adapters are multiplied by alpha / rank", .init = "0: as the rank, so by 1",
        .needs = "train.lora.rank"),
    TEXT("train.lora.targets", train.lora.targets,
        "products that have adapters: all, attention, qkv, mlp, or names as peft's target_modules has them (q_proj, "
        "c_attn, query, ...); a list, or joined by commas", .flags = MEMBER_LIST,
        .init = "all: all of attention and MLP", .also = "target_modules",
        .needs = "train.lora.rank"),
    REAL("train.lora.dropout", train.lora.dropout, "dropout of each adapter's input, for plan and sim", .max = 1,
        .flags = MEMBER_BELOW, .init = "0", .also = "lora_dropout", .instead = "train has no dropout in adapters",
        .needs = "train.lora.rank"),
    BOOL("train.lora.fused_qkv", train.lora.fused_qkv,
        "queries, keys and values are one module (c_attn, qkv_proj, query_key_value), so they share an adapter, for "
        "plan and sim", .init = "false", .instead = "train has an adapter for each",
        .needs = "train.lora.rank"),
    BOOL("train.lora.head", train.lora.head, "with adapters a head of classes or answers trains too", .init = "true",
        .also = "modules_to_save",
        .needs = "train.lora.rank"),
    NAME("train.lora.base", train.lora.base, "how the frozen base is kept; nf4, gptq: QLoRA",
        .names = lora_base_names, .init = "same: as kernels read it", .also = "load_in_4bit=nf4|qlora=nf4",
        .needs = "train.lora.rank"),
    INT("train.checkpoint_every_steps", train.checkpoint_every_steps, "write a checkpoint after every n steps",
        .init = "0: only at the end"),
    NAME("train.on_slow", train.on_slow, "a rank that is slower than the plan has it: name it, or also weigh it in "
        "the next turn's plan", .names = on_slow_names, .init = "log"),
    INT("train.checkpoint_memory_every_steps", train.memory_every_steps,
        "also copy the state into shared memory after every n steps, for a run that is killed", .init = "0: never"),
    INT("train.keep_checkpoints", train.keep_checkpoints,
        "remove a run's checkpoints but the newest n and the best evaluated one; 0: keep all", .init = "3"),
    MEMBER_OWN("cluster", "CLUSTER text, file, or object, for plan and sim [this-machine]"),
    NAME("cost.source", cost.source, "where times come from", .names = cost_choice_names,
        .init = "auto: a profile, else kernels, else the roofline"),
    REAL("cost.efficiency", cost.efficiency, "speed of kernels or roofline", .min = EFFICIENCY_MIN, .max = EFFICIENCY_MAX, .init = "1",
        .needs = "cost.source=auto|kernels|roofline"),
    TEXT("cost.calibration", cost.calibration, "name of a calibration of 'elapse calibrate', which scales kernels or roofline [none]",
        .needs = "cost.source=auto|kernels|roofline"),
    COUNT("pipeline.num_stages", pipeline.num_stages, "K, devices per pipeline", .min = 1, .init = "auto",
        .also = "pipeline_parallel|pipeline_parallel_size|pipeline_model_parallel_size|stages|pp|pp_size"),
    COUNT("pipeline.num_replicas", pipeline.num_replicas, "R, number of pipelines", .min = 1, .init = "auto",
        .also = "data_parallel|data_parallel_size|replicas|dp|dp_size"),
    COUNT("pipeline.num_microbatches", pipeline.num_microbatches,
        "M, micro-batches of train.batch as given, per pipeline or global", .min = 1, .init = "auto",
        .also = "microbatches|gradient_accumulation_steps"),
    INT("pipeline.chunks", pipeline.chunks, "v, stages per device", .min = 1, .max = 1024, .init = "1",
        .also = "vp|virtual_pipeline_model_parallel_size"),
    NAME("pipeline.schedule", pipeline.schedule,
        "order of forwards and backwards; a list restricts auto; search: op lists of its own where these are faster",
        .names = schedule_names, .max = SCHEDULE_SEARCH, .list_offset = offsetof(struct job, pipeline.schedules),
        AUTO_IN(pipeline.schedule_auto), .init = "auto", .also = "schedule"),
    NAME("pipeline.balancer", pipeline.balancer, "how the chain is cut", .names = balancer_kind_names, .init = "optimal"),
    NAME("pipeline.by", pipeline.by_params, "quantity that the cut balances", .names = by_names, .init = "time"),
    NAME("pipeline.recompute", pipeline.recompute,
        "what runs again before its backward; stage (or always): whole stages; except-last: but for the last "
        "micro-batch; stage-early: before the gradient arrives; selective: attention's core; norms: norms, "
        "activations and latent attention's heads; op: all but attention and every second product; layer: layers, "
        "inside the backward; fit: where the memory of a device is limited, what a plan needs to fit",
        .names = recompute_mode_names, AUTO_IN(pipeline.recompute_auto), .init = "fit; auto on GPUs, see tensor",
        .also = "activation_checkpointing|gradient_checkpointing|recompute_granularity"),
    COUNT("pipeline.recompute_layers", pipeline.recompute_layers,
        "layers of each stage that recompute layer runs again", .min = 1, .init = "auto: what the memory needs",
        .needs = "pipeline.recompute=layer|auto|fit"),
    REAL("pipeline.headroom", pipeline.headroom,
        "share of a device's memory that plans keep free, for the allocator's fragments and what a memory model "
        "lacks; a plan with less is called tight", .max = 1, .flags = MEMBER_BELOW, AUTO_IN(pipeline.headroom_auto),
        .init = "auto: 8 %, with train.framework 12 %, 6 % where a calibration has a measured peak", .also = "headroom"),
    COUNT("pipeline.tensor", pipeline.layout.at.tensor,
        "T, neighbouring devices that hold each item together; only for plan and sim", .min = 1, .max = 64,
        .init = "1; on GPUs auto, with shard, expert, sequence_parallel, recompute and schedule, for a job that names "
        "none of them", .also = "tensor_parallel|tensor_parallel_size|tensor_model_parallel_size|tensor|tp|tp_size"),
    BOOL("pipeline.sequence_parallel", pipeline.layout.at.sequence_parallel,
        "with tensor: divide norms and dropout by tokens", AUTO_IN(pipeline.layout.open[LAYOUT_SEQUENCE]),
        .init = "false; auto where tensor is auto",
        .needs = "pipeline.tensor"),
    COUNT("pipeline.expert", pipeline.layout.at.expert,
        "E, replicas that divide the experts of each layer; only for plan and sim", .min = 1,
        .max = MODEL_EXPERTS_MAX, .init = "1", .also = "expert_parallel|expert_model_parallel_size|ep"),
    COUNT("pipeline.expert_tensor", pipeline.layout.at.expert_tensor,
        "X, neighbours that divide each expert, of the T devices of a group; E x X divides T x R; below T it needs "
        "sequence_parallel; only for plan and sim", .min = 1, .max = 64, .init = "auto: the fastest divisor of T",
        .also = "expert_tensor_parallel_size|expert_tensor_parallel_degree|etp",
        .needs = "a model with experts"),
    COUNT("pipeline.context", pipeline.layout.at.context,
        "C, replicas that divide the tokens of each sample (context parallelism, CP); only for plan and sim",
        .min = 1, .max = CONTEXT_MAX, .init = "1; auto where tensor is", .also = "context_parallel|context_parallel_size|cp"),
    NAME("pipeline.context_comm", pipeline.layout.at.context_kind,
        "how attention meets the keys of other replicas: ring (p2p), all-gather, ulysses (a2a)",
        .names = context_kind_names, AUTO_IN(pipeline.layout.open[LAYOUT_CONTEXT_KIND]), .init = "ring", .also = "cp_comm_type",
        .needs = "pipeline.context"),
    NAME("pipeline.shard", pipeline.layout.at.shard, "what replicas divide among themselves; only for plan and sim",
        .names = shard_mode_names, AUTO_IN(pipeline.layout.open[LAYOUT_SHARD]), .init = "none",
        .also = "zero|zero_stage|zero_optimization|fsdp=weights|hsdp=weights, "
        "pipeline.shard_group|hybrid_shard=weights, pipeline.shard_group"),
    COUNT("pipeline.shard_group", pipeline.layout.at.shard_group,
        "G, replicas in a row that divide gradients or weights, of which other groups have copies (HSDP); only for "
        "plan and sim", .min = 2, .init = "auto: all; where shard is searched, also those of a node", .also = "data_parallel_shard_degree"),
    NAME("pipeline.offload", pipeline.offload,
        "optimizer: masters and optimizer state are in host memory, and the host updates; auto: where that is faster; "
        "fit: where no plan fits the devices without, or one with is 5 % faster; only for plan and sim",
        .names = offload_choice_names, .init = "none; fit where tensor is auto by default",
        .also = "offload_optimizer=optimizer|optimizer_cpu_offload=optimizer"),
    NAME("pipeline.frozen", pipeline.frozen, "where the frozen prefix runs if the cache is not read",
        .names = frozen_placement_names, AUTO_IN(pipeline.frozen_auto), .min = FROZEN_FIRST, .init = "auto"),
    BYTES("pipeline.bucket_bytes", pipeline.bucket_bytes, "gradients per all-reduce; 0: one all-reduce per stage",
        .init = "25MiB; as the framework has it, where one is named" /* FRAMEWORK_BUCKET_BYTES */),
    NAME("freeze.policy", freeze.policy, "how the frozen prefix grows", .names = freeze_policy_names,
        .init = "none; safe where freeze.alpha, max_loss, min_active, warmup or evidence is set, table where table is, timed where max_share is"),
    REAL("freeze.alpha", freeze.alpha, "share of the active layers that one decision may freeze", .max = 1,
        .flags = MEMBER_ABOVE | MEMBER_BELOW, .init = "1/3; safe: 1/2"),
    REAL("freeze.max_loss", freeze.max_loss,
        "what freezing may cost under policy safe: points of accuracy, or per cent of the loss; 0: nothing freezes", .init = "1"),
    INT("freeze.min_active", freeze.min_active, "layers that stay active", .init = "0"),
    INT("freeze.warmup", freeze.warmup, "epochs, or turns of every_steps, at the start in which nothing freezes", .init = "0"),
    INT("freeze.every_steps", freeze.every_steps, "decide after every n steps", .init = "0: after every epoch"),
    BOOL("freeze.record", freeze.record, "measure each turn what each prefix brings, into evidence.json", .init = "false"),
    INT("freeze.probe", freeze.probe, "samples of data.valid that evidence is measured on",
        .init = "0: 256; safe: as many as cost 2 % of the step time",
        .needs = "freeze.policy=safe or freeze.record"),
    BOOL("freeze.anneal", freeze.anneal, "layers that the next turn freezes train with a rate that falls to 0; "
        "closed-form and table", .init = "false",
        .needs = "freeze.policy=closed-form|table"),
    NAME("freeze.head", freeze.head, "a head that shares the token table of a frozen embedding; alone: it goes on "
        "with a table of its own", .names = freeze_head_names, .init = "frozen"),
    REAL("freeze.max_share", freeze.max_share,
        "mean share of a stage's weight-gradient time that the backwards of a step may leave out, where the pipeline "
        "waits for it, under any policy", .max = 1, .init = "0; timed: 1/2, or with freeze.max_loss what that allows"),
    NAME("freeze.choice", freeze.choice, "items that a backward leaves out; rotate: each item equally often; random: "
        "drawn (TimelyFreeze); norm: those that change least, first", .names = freeze_choice_names, .init = "rotate",
        .needs = "freeze.max_share or freeze.policy=timed"),
    BOOL("freeze.rescale", freeze.rescale,
        "an item's gradient is divided by the samples that were counted for it, so that it stays unbiased", .init = "true",
        .needs = "freeze.max_share or freeze.policy=timed"),
    INT("freeze.apf_every", freeze.apf.every, "policy apf: steps from one check of the weights to the next", .min = 1,
        .init = "50",
        .needs = "freeze.policy=apf"),
    REAL("freeze.apf_threshold", freeze.apf.threshold, "policy apf: effective perturbation, |mean move| / mean |move|, "
        "below which a weight is held", .max = 1, .flags = MEMBER_ABOVE, .init = "0.05",
        .needs = "freeze.policy=apf"),
    REAL("freeze.apf_decay", freeze.apf.decay, "policy apf: of the moving averages, from one check to the next",
        .max = 1, .flags = MEMBER_BELOW, .init = "0.99",
        .needs = "freeze.policy=apf"),
    MEMBER_OWN("freeze.table", "F per epoch: array, file, or mild|mild-early|by_epoch|linear"),
    MEMBER_OWN("freeze.norms", "recorded gradient norms: array of epochs, each an array of layers, or file"),
    MEMBER_OWN("freeze.evidence", "for sim, policy safe: evidence.json of a run, or its object"),
    BOOL("elastic.auto_pipe", elastic.auto_pipe, "re-cut when layers freeze", .init = "true"),
    BOOL("elastic.auto_dp", elastic.auto_dp, "use freed devices as replicas", .init = "true"),
    NAME("elastic.compression", elastic.halving, "halving: the paper's rule", .names = compression_names, .init = "best"),
    MEMBER_OWN("elastic.stages", "K per epoch, an array; its last entry holds for all later epochs [planned]"),
    NS("elastic.setup", elastic.setup_ns, "time of a change of K or R, without the transfers over links", .init = "0"),
    NAME("cache.policy", cache.policy, "whether plans read the frozen prefix's output from a cache",
        .names = cache_policy_names, .init = "auto"),
    BYTES("cache.limit_bytes", cache.limit_bytes, "memory for the cache per node",
        .init = "0: half of the free memory; sim assumes enough"),
    NAME("cache.dtype", cache.bf16, "data type of cached activations", .names = cache_dtype_names, .init = "fp32"),
    NS("cache.read", cache.read_ns, "host time to read a sample", .init = "0: from the cost source"),
    NS("cache.write", cache.write_ns, "host time to write a sample", .init = "0: from the cost source"),
    PATH("cache.dir", cache.dir, "folder of the cache's files [shared memory]"),
    PATH("cache.spill_dir", cache.spill_dir, "folder on a disk for entries that do not fit the memory [none]"),
    BYTES("cache.spill_bytes", cache.spill_bytes, "space on that disk per node", .init = "0: half of the free space"),
    INT("cache.views", cache.views, "augmented or masked views per sample", .max = 1000, .init = "0: unlimited, which rules out the cache"),
    MEMBER_OWN("baseline", "the job that speedup is measured against: overrides, as an object or as texts \"a.b=v\""),
};
/* clang-format on */
const struct member_table job_keys = {job_members, sizeof job_members / sizeof *job_members};
