/* The keys of a job file: for each key its type, place in struct job, limits and help. */
#include "profiles/job/job_parts.h"

#include <limits.h>

static const char *const data_names[] = {"synthetic", "cifar10", "cifar100", "idx",   "images",
                                         "sst2",      "squad",   "text",     "table", NULL};
/* Published sizes: CIFAR (Krizhevsky 2009), MNIST (LeCun et al. 1998), SST-2 as in GLUE (Wang et
 * al. 2018), SQuAD 1.1 (Rajpurkar et al. 2016). The synthetic set is unlimited, so its numbers are
 * defaults. */
const struct data_set data_sets[DATA_KIND_COUNT] = {
    {"synthetic", "nothing: samples are computed from the seed",                   "all",                 10000, 2000 },
    {"cifar10",   "data_batch_1.bin ... and test_batch.bin",                       "ViT",                 50000, 10000},
    {"cifar100",  "train.bin and test.bin",                                        "ViT",                 50000, 10000},
    {"idx",       "the four files of MNIST, plain or .gz",                         "ViT, channels=1",     60000, 10000},
    {"images",    "train/CLASS/FILE and val/CLASS/FILE (or test/), pictures",      "ViT",                 0,     0    },
    {"sst2",      "train.tsv and dev.tsv of a GLUE task",                          "BERT, task=classify", 67349, 872  },
    {"squad",     "train-v1.1.json and dev-v1.1.json",                             "BERT, task=qa",       87599, 10570},
    {"text",      "a file, or a folder with train.txt and test.txt, or input.txt", "GPT, BERT task=mlm",
     0,                                                                                                          0    },
    {"table",     "train.csv and test.csv, or one file; .tsv and .jsonl too",      "BERT, task=classify", 0,
     0                                                                                                                },
};

static const char *const valid_words[] = {"auto", "test", NULL};
static const char *const lower_names[] = {"auto", "true", "false", NULL};
static const char *const augment_names[] = {"none", "crop-flip", NULL};
static const char *const optimizer_names[] = {"sgd", "adamw", "lamb", NULL};
static const char *const lr_names[] = {"constant", "linear", "cosine", NULL};
static const char *const dtype_names[] = {"fp32", "bf16",  "tf32",  "fp16",
                                          "fp8",  "mxfp8", "nvfp4", NULL};
static const char *const cost_names[] = {"auto", "kernels", "roofline", "profile", NULL};
static const char *const device_names[] = {"cpu", "cuda", NULL};
static const char *const transport_names[] = {"mpi", "nccl", NULL};
static const char *const on_slow_names[] = {"log", "replan", "ignore", NULL};
static const char *const reduction_names[] = {"fast", "canonical", NULL};
static const char *const balancer_names[] = {"optimal", "released", "paper", NULL};
static const char *const by_names[] = {"time", "params", NULL};
static const char *const recompute_names[] = {"never", "stage",       "except-last", "selective",
                                              "layer", "stage-early", "fit",         NULL};
static const char *const offload_names[] = {"none", "optimizer", "auto", "fit", NULL};
static const char *const lora_base_names[] = {"same", "int8", "nf4", NULL};
static const char *const attention_names[] = {"auto", "fused", "unfused", "eager", "flash1", NULL};
static const char *const framework_names[] = {
    "auto",     "megatron-te", "megatron-2021", "deepspeed", "fsdp", "fsdp-compiled",
    "hf-eager", "composer",    "aa-scaling",    "ours",      NULL};
static const char *const rows_names[] = {"packed", "context", "longest", NULL};
static const char *const norm_names[] = {"auto", "fused", "eager", NULL};
static const char *const overlap_names[] = {"auto", "none", "tensor", "experts", "all", NULL};
static const char *const dispatcher_names[] = {"alltoall", "flex", NULL};
static const char *const graph_names[] = {"none", "mlp", "layers", "step", NULL};
static const char *const frozen_names[] = {"", "first", "spread", "cached", NULL};
static const char *const policy_names[] = {
    "none", "closed-form", "gradient-norm", "relative-change", "table", "plateau", "safe", NULL};
static const char *const compression_names[] = {"best", "halving", NULL};
static const char *const cache_names[] = {"off", "on", "auto", NULL};
static const char *const cache_dtype_names[] = {"fp32", "bf16", NULL};

_Static_assert(DATA_KIND_COUNT == 9 && DEVICE_CUDA == 1 && FREEZE_POLICY_COUNT == 7 &&
                   RECOMPUTE_MODE_COUNT == 6 && LORA_BASE_COUNT == 3 && FILL_KIND_COUNT == 3 &&
                   ATTENTION_KIND_COUNT == 5 && FROZEN_PLACEMENT_COUNT == 4,
               "the lists of names follow the enums");

/* clang-format off */
#define PLAIN(key, type, member, help) MEMBER(job, key, type, member, help)
#define INT(key, member, min_, max_, help) MEMBER(job, key, INT, member, help, .min = (min_), .max = (max_))
#define COUNT(key, member, help) MEMBER(job, key, COUNT, member, help, .min = 1)
#define REAL(key, member, help) MEMBER(job, key, REAL, member, help, .min = -INFINITY)
#define BOOL(key, member, help) MEMBER(job, key, BOOL, member, help)
#define BOOL_AUTO(key, member, automatic, help) \
    MEMBER(job, key, BOOL, member, help, .auto_offset = offsetof(struct job, automatic))
#define CHOICE(key, member, names_, help) MEMBER(job, key, NAME, member, help, .names = (names_))
#define CHOICE_AUTO(key, member, names_, automatic, help) \
    MEMBER(job, key, NAME, member, help, .names = (names_), .auto_offset = offsetof(struct job, automatic))
#define OTHER(key, help) MEMBER_OWN(key, help)

const struct member job_fields[] = {
    PLAIN("name", TEXT, name, "name of the job, for people"),
    OTHER("model", "MODEL text, file, or object: preset or family, and its dims"),
    CHOICE("data.kind", data.kind, data_names, "the data set [synthetic]"),
    PLAIN("data.path", PATH, data.path, "file or folder of the data set"),
    PLAIN("data.vocab", PATH, data.vocab, "vocabulary: tokenizer.json, vocab.txt or GPT-2's vocab.json"),
    PLAIN("data.merges", PATH, data.merges, "GPT-2's merges.txt [next to data.vocab]"),
    PLAIN("data.text", STRING, data.text, "table: column of the text, a name, or a number from 1 without a header [text]"),
    PLAIN("data.text_pair", STRING, data.text_pair, "table: column of a second text [none]"),
    PLAIN("data.label", STRING, data.label, "table: column of the class, as a number or a name [label]"),
    CHOICE("data.lower_case", data.lower_case, lower_names, "whether vocab.txt is uncased [auto: tokenizer_config.json next to it, else whether a piece has capitals]"),
    BOOL("data.special_tokens", data.special_tokens, "special tokens spelled out in texts, as [SEP], become those tokens [true]"),
    CHOICE("data.augment", data.augment, augment_names, "augmentation of training images [none]"),
    BOOL("data.resize", data.resize, "scale images to the model's size [false]"),
    INT("data.train_samples", data.train_samples, 0, 0, "train on n samples, drawn by train.seed [0: all]"),
    INT("data.test_samples", data.test_samples, 0, 0, "test on n samples, drawn by train.seed [0: all]"),
    REAL("data.length", data.length, "mean tokens of a document, where samples are rows that hold shorter documents (docs/data.md#rows); train takes it for its plans [0: a sample is one document of model.seq tokens]"),
    REAL("data.length_deviation", data.length_deviation, "standard deviation of data.length, of a lognormal distribution [0: all are equal]"),
    INT("data.documents", data.documents, 0, 0, "documents of an epoch, in place of data.train_samples, which counts rows; for plan and sim [0]"),
    MEMBER(job, "data.valid", PATH, data.valid, "samples that freezing is judged by: auto: held out of the training split; test: the test split; or a path [auto]", .names = valid_words),
    INT("data.workers", data.workers, 0, 1024, "threads per rank that prepare samples [0: one for each core of the rank that does not compute]"),
    INT("train.epochs", train.epochs, 0, JOB_EPOCHS_MAX, "epochs of the run; with 0 train writes the initial weights and sim refuses the job [1]"),
    INT("train.max_steps", train.max_steps, 0, 0, "the run ends after n steps [0: after its epochs]"),
    INT("train.tokens", train.tokens, 0, 0, "tokens of the whole run, of synthetic data; in place of data.train_samples [0]"),
    CHOICE("train.rows", train.rows, rows_names, "what a row has with data.length; packed: as many documents as fit, masked from each other; context: one, padded to model.seq; longest: one, padded to the longest of train.batch, or of train.batch.micro where that is given; train packs [packed]"),
    OTHER("train.batch.per_pipeline", "samples per step of each pipeline [32]"),
    OTHER("train.batch.global", "samples per step of all pipelines together"),
    COUNT("train.batch.micro", train.micro, "samples of a micro-batch, in place of pipeline.num_microbatches; divides the batch of a pipeline [auto]"),
    CHOICE("train.optimizer.kind", train.optimizer.kind, optimizer_names, "optimizer [sgd]"),
    REAL("train.optimizer.lr", train.optimizer.lr, "peak learning rate [0.03]"),
    REAL("train.optimizer.momentum", train.optimizer.momentum, "for sgd [0.9]"),
    REAL("train.optimizer.beta1", train.optimizer.beta1, "for adamw, lamb [0.9]"),
    REAL("train.optimizer.beta2", train.optimizer.beta2, "for adamw, lamb [0.999]"),
    REAL("train.optimizer.eps", train.optimizer.eps, "for adamw, lamb [1e-8]"),
    REAL("train.optimizer.weight_decay", train.optimizer.weight_decay, "weight decay [0]"),
    CHOICE("train.lr_schedule.kind", train.lr_schedule, lr_names, "learning rate after the warm-up [constant]"),
    INT("train.lr_schedule.warmup_steps", train.warmup_steps, 0, 0, "steps in which the learning rate rises linearly from 0 [0]"),
    REAL("train.clip_norm", train.clip_norm, "largest global gradient norm; gradients are scaled down to it [0: off]"),
    BOOL("train.post_validation", train.post_validation, "an update does not wait for the gradient norm, which is checked during the next step (Qi et al. 2023), so that steps follow one another after sim's period_ns; only for plan and sim [false]"),
    REAL("train.dropout", train.dropout, "dropout probability [0]"),
    REAL("train.expert_load", train.expert_load, "most tokens on one device's experts over the mean of devices, for plan and sim [1: even]"),
    REAL("train.label_smoothing", train.label_smoothing, "label smoothing [0]"),
    CHOICE("train.dtype", train.dtype, dtype_names, "data type of activations [fp32]"),
    CHOICE("train.attention", train.attention, attention_names, "whether stashes hold score matrices; eager: they do, softmax by operators; flash1: they do not, by kernels before FlashAttention-2; auto: not on GPUs that are not measured [auto]"),
    CHOICE("train.framework", train.framework, framework_names, "what launches the kernels, for plan and sim: which operators are one kernel, and what they keep; auto: fused operators [auto]"),
    CHOICE("train.norm", train.norm, norm_names, "whether RMSNorm is one kernel, for plan and sim; auto: as the framework has it [auto]"),
    CHOICE("train.overlap", train.overlap, overlap_names, "which collectives run beside compute, for plan and sim: those of tensor parallelism, all-to-alls of experts beside another micro-batch, all of both; auto: as the framework has it [auto]"),
    CHOICE("train.dispatcher", train.dispatcher, dispatcher_names, "how tokens reach experts, for plan and sim: alltoall: a copy for each expert; flex: one for each device (DeepEP, HybridEP) [alltoall]"),
    CHOICE("train.cuda_graphs", train.cuda_graphs, graph_names, "what the host launches as a whole, for plan and sim: mlp: MLPs and routers; layers: attention too, but no experts; step: all passes [none]"),
    INT("train.gradient_bytes", train.gradient_bytes, 0, 8, "bytes of a parameter's gradient, for plan and sim [0: 2 with deepspeed and 2-byte activations, else 4]"),
    BOOL("train.gradient_copy", train.gradient_copy, "the optimizer has an fp32 copy of narrower gradients, for plan and sim: Megatron-LM's fp16 [false]"),
    CHOICE("train.device", train.device, device_names, "device that each rank computes on [cpu]"),
    CHOICE("train.transport", train.transport, transport_names, "how activations and gradients travel; nccl: from GPU to GPU [mpi]"),
    CHOICE("train.reduction", train.reduction, reduction_names, "canonical: bit-identical results with R = 1, 2, 4 [fast]"),
    INT("train.seed", train.seed, 0, 0, "seed of all random numbers [1]"),
    INT("train.eval_every_epochs", train.eval_every_epochs, 0, 0, "evaluate after every n epochs [0: only at the end]"),
    INT("train.lora.rank", train.lora.rank, 0, 0, "train adapters of this rank beside a frozen base (LoRA) [0: none]"),
    REAL("train.lora.alpha", train.lora.alpha, "adapters are multiplied by alpha / rank [0: as the rank, so by 1]"),
    MEMBER(job, "train.lora.targets", TEXT, train.lora.targets, "products that have adapters: all, attention, qkv, mlp, or names as peft's target_modules has them (q_proj, c_attn, query, ...); a list, or joined by commas [all: all of attention and MLP]", .flags = MEMBER_LIST),
    BOOL("train.lora.head", train.lora.head, "beside adapters a head of classes or answers trains too [true]"),
    CHOICE("train.lora.base", train.lora.base, lora_base_names, "how the frozen base is kept; nf4: QLoRA [same: as kernels read it]"),
    INT("train.checkpoint_every_steps", train.checkpoint_every_steps, 0, 0, "write a checkpoint after every n steps [0: only at the end]"),
    CHOICE("train.on_slow", train.on_slow, on_slow_names, "a rank that is slower than the plan has it: name it, or also weigh it in the next turn's plan [log]"),
    INT("train.checkpoint_memory_every_steps", train.memory_every_steps, 0, 0, "also copy the state into shared memory after every n steps, for a run that is killed [0: never]"),
    INT("train.keep_checkpoints", train.keep_checkpoints, 0, 0, "remove a run's checkpoints but the newest n and the best evaluated one; 0: keep all [3]"),
    OTHER("cluster", "CLUSTER text, file, or object, for plan and sim [this-machine]"),
    CHOICE("cost.source", cost.source, cost_names, "where times come from [auto: a profile, else kernels, else the roofline]"),
    REAL("cost.efficiency", cost.efficiency, "speed of kernels or roofline, 1e-6..10 [1]"),
    PLAIN("cost.calibration", TEXT, cost.calibration, "name of a calibration of 'elapse calibrate', which scales kernels or roofline [none]"),
    COUNT("pipeline.num_stages", pipeline.num_stages, "K, devices per pipeline [auto]"),
    COUNT("pipeline.num_replicas", pipeline.num_replicas, "R, number of pipelines [auto]"),
    COUNT("pipeline.num_microbatches", pipeline.num_microbatches, "M, micro-batches of train.batch as given, per pipeline or global [auto]"),
    INT("pipeline.chunks", pipeline.chunks, 1, 1024, "v, stages per device [1]"),
    MEMBER(job, "pipeline.schedule", NAME, pipeline.schedule, "order of forwards and backwards; a list restricts auto; search: op lists of its own where these are faster [auto]", .list_offset = offsetof(struct job, pipeline.schedules), .names = schedule_names, .auto_offset = offsetof(struct job, pipeline.schedule_auto)),
    CHOICE("pipeline.balancer", pipeline.balancer, balancer_names, "how the chain is cut [optimal]"),
    CHOICE("pipeline.by", pipeline.by_params, by_names, "quantity that the cut balances [time]"),
    CHOICE_AUTO("pipeline.recompute", pipeline.recompute, recompute_names, pipeline.recompute_auto, "what runs again before its backward; stage (or always): whole stages; except-last: but for the last micro-batch; stage-early: before the gradient arrives; selective: attention's core; layer: layers, inside the backward; fit: where the memory of a device is limited, what a plan needs to fit [fit; auto on GPUs, see tensor]"),
    COUNT("pipeline.recompute_layers", pipeline.recompute_layers, "layers of each stage that recompute layer runs again [auto: what the memory needs]"),
    COUNT("pipeline.tensor", pipeline.layout.at.tensor, "T, neighbouring devices that hold each item together; only for plan and sim [1; on GPUs auto, with shard, expert, sequence_parallel, recompute and schedule, for a job that names none of them]"),
    BOOL_AUTO("pipeline.sequence_parallel", pipeline.layout.at.sequence_parallel, pipeline.layout.open[LAYOUT_SEQUENCE], "with tensor: divide norms and dropout by tokens [false; auto where tensor is auto]"),
    MEMBER(job, "pipeline.expert", COUNT, pipeline.layout.at.expert, "E, replicas that divide the experts of each layer; only for plan and sim [1]", .min = 1, .max = MODEL_EXPERTS_MAX),
    MEMBER(job, "pipeline.expert_tensor", COUNT, pipeline.layout.at.expert_tensor, "X, neighbours that divide each expert, of the T devices of a group; E x X divides T x R; below T it needs sequence_parallel; only for plan and sim [auto: T, or 1 where that is faster]", .min = 1, .max = 64),
    MEMBER(job, "pipeline.context", COUNT, pipeline.layout.at.context, "C, replicas that divide the tokens of each sample (context parallelism, CP); only for plan and sim [1; auto where tensor is]", .min = 1, .max = CONTEXT_MAX),
    CHOICE_AUTO("pipeline.context_comm", pipeline.layout.at.context_kind, context_kind_names, pipeline.layout.open[LAYOUT_CONTEXT_KIND], "how attention meets the keys of other replicas: ring (p2p), all-gather, ulysses (a2a) [ring]"),
    CHOICE_AUTO("pipeline.shard", pipeline.layout.at.shard, shard_mode_names, pipeline.layout.open[LAYOUT_SHARD], "what replicas divide among themselves; only for plan and sim [none]"),
    MEMBER(job, "pipeline.shard_group", COUNT, pipeline.layout.at.shard_group, "G, replicas in a row that divide gradients or weights, of which other groups have copies (HSDP); only for plan and sim [auto: all; where shard is searched, also those of a node]", .min = 2),
    CHOICE("pipeline.offload", pipeline.offload, offload_names, "optimizer: masters and optimizer state are in host memory, and the host updates; auto: where that is faster; fit: where no plan fits the devices without, or one with is 5 % faster; only for plan and sim [none; fit where tensor is auto by default]"),
    CHOICE_AUTO("pipeline.frozen", pipeline.frozen, frozen_names, pipeline.frozen_auto, "where the frozen prefix runs if the cache is not read [auto]"),
    PLAIN("pipeline.bucket_bytes", BYTES, pipeline.bucket_bytes, "gradients per all-reduce; 0: one all-reduce per stage [25MiB]"),
    CHOICE("freeze.policy", freeze.policy, policy_names, "how the frozen prefix grows [none; safe where freeze.alpha, max_loss, min_active, warmup or evidence is set]"),
    REAL("freeze.alpha", freeze.alpha, "share of the active layers that one decision may freeze [1/3; safe: 1/2]"),
    REAL("freeze.max_loss", freeze.max_loss, "what freezing may cost under policy safe: points of accuracy, or per cent of the loss; 0: nothing freezes [1]"),
    INT("freeze.min_active", freeze.min_active, 0, 0, "layers that stay active [0]"),
    INT("freeze.warmup", freeze.warmup, 0, 0, "epochs, or turns of every_steps, at the start in which nothing freezes [0]"),
    INT("freeze.every_steps", freeze.every_steps, 0, 0, "decide after every n steps [0: after every epoch]"),
    BOOL("freeze.record", freeze.record, "measure each turn what each prefix brings, into evidence.json [false]"),
    INT("freeze.probe", freeze.probe, 0, 0, "samples of data.valid that evidence is measured on [0: 256; safe: as many as cost 2 % of the step time]"),
    BOOL("freeze.anneal", freeze.anneal, "layers that the next turn freezes train with a rate that falls to 0; closed-form and table [false]"),
    OTHER("freeze.table", "F per epoch: array, file, or mild|mild-early|by_epoch|linear"),
    OTHER("freeze.norms", "recorded gradient norms: array of epochs, each an array of layers, or file"),
    OTHER("freeze.evidence", "for sim, policy safe: evidence.json of a run, or its object"),
    BOOL("elastic.auto_pipe", elastic.auto_pipe, "re-cut when layers freeze [true]"),
    BOOL("elastic.auto_dp", elastic.auto_dp, "use freed devices as replicas [true]"),
    CHOICE("elastic.compression", elastic.halving, compression_names, "halving: the paper's rule [best]"),
    OTHER("elastic.stages", "K per epoch, an array; its last entry holds for all later epochs [planned]"),
    PLAIN("elastic.setup", NS, elastic.setup_ns, "time of a change of K or R, without the transfers over links [0]"),
    CHOICE("cache.policy", cache.policy, cache_names, "whether plans read the frozen prefix's output from a cache [auto]"),
    PLAIN("cache.limit_bytes", BYTES, cache.limit_bytes, "memory for the cache per node [0: half of the free memory; sim assumes enough]"),
    CHOICE("cache.dtype", cache.bf16, cache_dtype_names, "data type of cached activations [fp32]"),
    PLAIN("cache.read", NS, cache.read_ns, "host time to read a sample [0: from the cost source]"),
    PLAIN("cache.write", NS, cache.write_ns, "host time to write a sample [0: from the cost source]"),
    PLAIN("cache.dir", PATH, cache.dir, "folder of the cache's files [shared memory]"),
    PLAIN("cache.spill_dir", PATH, cache.spill_dir, "folder on a disk for entries that do not fit the memory [none]"),
    PLAIN("cache.spill_bytes", BYTES, cache.spill_bytes, "space on that disk per node [0: half of the free space]"),
    INT("cache.views", cache.views, 0, 1000, "augmented or masked views per sample [0: unlimited, which rules out the cache]"),
    OTHER("baseline", "the job that speedup is measured against: overrides, as an object or as texts \"a.b=v\""),
};
/* clang-format on */
const int num_job_fields = sizeof job_fields / sizeof *job_fields;
