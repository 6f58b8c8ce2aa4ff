/* The flags of Megatron-LM as a job.
 *
 * split() makes words of the text, sort_flag() sorts each flag by the tables below, and
 * megatron_job() computes Megatron's defaults and writes the job. Names and defaults are those of
 * megatron/training/arguments.py of Megatron-LM at 000c4ac2, which was not read whole; layouts are
 * those of megatron/core/transformer/pipeline_parallel_layer_layout.py (core 0.16.1). */
#include "profiles/job/command_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"

/* Flags with a whole number, and flags without a value. */
enum {
    LAYERS,
    HIDDEN,
    HEADS,
    GROUPS,
    HEAD_DIM,
    FFN,
    SEQ,
    POSITIONS,
    VOCAB,
    PADDED_VOCAB,
    VOCAB_MULTIPLE,
    TP,
    PP,
    VP_LAYERS,
    VP,
    CP,
    EP,
    ETP,
    MBS,
    GBS,
    EXPERTS,
    TOPK,
    EXPERT_FFN,
    SHARED_FFN,
    RECOMPUTE_LAYERS,
    ITERS,
    SAMPLES,
    NUM_NUMBERS
};
enum {
    SWIGLU,
    UNTIED,
    SP,
    DIST_OPT,
    BF16,
    FP16,
    GQA,
    RECOMPUTE_ACT,
    OVERLAP,
    QKV_BIAS,
    FLASH,
    NO_BIAS,
    HOST_OPTIMIZER,
    NUM_SWITCHES
};

static const char *const numbers[NUM_NUMBERS] = {"num-layers",
                                                 "hidden-size",
                                                 "num-attention-heads",
                                                 "num-query-groups",
                                                 "kv-channels",
                                                 "ffn-hidden-size",
                                                 "seq-length",
                                                 "max-position-embeddings",
                                                 "vocab-size",
                                                 "padded-vocab-size",
                                                 "make-vocab-size-divisible-by",
                                                 "tensor-model-parallel-size",
                                                 "pipeline-model-parallel-size",
                                                 "num-layers-per-virtual-pipeline-stage",
                                                 "num-virtual-stages-per-pipeline-rank",
                                                 "context-parallel-size",
                                                 "expert-model-parallel-size",
                                                 "expert-tensor-parallel-size",
                                                 "micro-batch-size",
                                                 "global-batch-size",
                                                 "num-experts",
                                                 "moe-router-topk",
                                                 "moe-ffn-hidden-size",
                                                 "moe-shared-expert-intermediate-size",
                                                 "recompute-num-layers",
                                                 "train-iters",
                                                 "train-samples"};
static const char *const switches[NUM_SWITCHES] = {"swiglu",
                                                   "untie-embeddings-and-output-weights",
                                                   "sequence-parallel",
                                                   "use-distributed-optimizer",
                                                   "bf16",
                                                   "fp16",
                                                   "group-query-attention",
                                                   "recompute-activations",
                                                   "overlap-grad-reduce",
                                                   "add-qkv-bias",
                                                   "use-flash-attn",
                                                   "disable-bias-linear",
                                                   "optimizer-cpu-offload"};
enum {
    GRANULARITY,
    METHOD,
    TOKENIZER,
    POSITION,
    NORM,
    OPTIMIZER,
    IMPL,
    BACKEND,
    DISPATCHER,
    CP_COMM,
    DROPOUT,
    FP8,
    FP8_RECIPE,
    FP4,
    LAYOUT,
    MOE_FREQ,
    HOST_SHARE,
    NUM_WORDS
};
static const char *const words[NUM_WORDS] = {"recompute-granularity",
                                             "recompute-method",
                                             "tokenizer-type",
                                             "position-embedding-type",
                                             "normalization",
                                             "optimizer",
                                             "transformer-impl",
                                             "attention-backend",
                                             "moe-token-dispatcher-type",
                                             "cp-comm-type",
                                             "hidden-dropout",
                                             "fp8-format",
                                             "fp8-recipe",
                                             "fp4-format",
                                             "pipeline-model-parallel-layout",
                                             "moe-layer-freq",
                                             "optimizer-offload-fraction"};

/* Flags that change no cost of a step that we count; a star stands for any end. */
static const char *const ignored[] = {"nproc*",
                                      "nnodes*",
                                      "node-rank",
                                      "node_rank",
                                      "master-*",
                                      "master_*",
                                      "rdzv*",
                                      "local-rank",
                                      "log-*",
                                      "save*",
                                      "load*",
                                      "eval-*",
                                      "exit-*",
                                      "tensorboard-*",
                                      "wandb-*",
                                      "lr*",
                                      "min-lr",
                                      "weight-decay*",
                                      "start-weight-decay",
                                      "end-weight-decay",
                                      "adam-*",
                                      "sgd-momentum",
                                      "clip-grad",
                                      "init-method-*",
                                      "seed",
                                      "data-path",
                                      "data-cache-path",
                                      "split",
                                      "tokenizer-*",
                                      "vocab-file",
                                      "merge-file",
                                      "train-tokens",
                                      "norm-epsilon",
                                      "layernorm-epsilon",
                                      "attention-dropout",
                                      "rotary-*",
                                      "use-rotary-position-embeddings",
                                      "no-load-*",
                                      "no-save-*",
                                      "distributed-*",
                                      "timing-*",
                                      "num-workers",
                                      "use-mcore-models",
                                      "ckpt-*",
                                      "use-checkpoint-*",
                                      "attention-softmax-in-fp32",
                                      "moe-router-load-balancing-type",
                                      "moe-aux-loss-coeff",
                                      "moe-z-loss-coeff",
                                      "moe-router-dtype",
                                      "moe-router-pre-softmax",
                                      "moe-router-score-function",
                                      "moe-router-topk-scaling-factor",
                                      "moe-router-enable-expert-bias",
                                      "moe-router-bias-update-rate",
                                      "moe-grouped-gemm",
                                      "initial-loss-scale",
                                      "loss-scale*",
                                      "manual-gc*",
                                      "profile*",
                                      "async-save",
                                      "override-opt_param-scheduler",
                                      "use-dist-ckpt",
                                      "dist-ckpt-*",
                                      "mock-data",
                                      "no-create-attention-mask-in-dataloader",
                                      "accumulate-allreduce-grads-in-fp32",
                                      "dataloader-type",
                                      "use-precision-aware-optimizer",
                                      "null-tokenizer-*",
                                      "no-one-logger",
                                      "eod-mask-loss",
                                      "logging-level",
                                      "test-mode",
                                      "override-opt-param-scheduler"};

struct flags {
    int64_t number[NUM_NUMBERS]; /* -1: not given */
    bool on[NUM_SWITCHES];
    const char *word[NUM_WORDS]; /* NULL: not given */
    struct json *not_counted;
};

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        const size_t stem = strcspn(names[i], "*");
        if (names[i][stem] ? strncmp(names[i], name, stem) == 0 : strcmp(names[i], name) == 0)
            return i;
    }
    return -1;
}

static enum status sort_flag(struct flags *flags, const char *name, const char *value,
                             struct err *err)
{
    int i = find(numbers, NUM_NUMBERS, name);
    if (i >= 0) {
        char what[80];
        snprintf(what, sizeof what, "--%.70s", name);
        return parse_int(value ? value : "", what, 1, INT32_MAX, &flags->number[i], err);
    }
    if ((i = find(switches, NUM_SWITCHES, name)) >= 0) {
        flags->on[i] = true;
        return OK;
    }
    if ((i = find(words, NUM_WORDS, name)) >= 0) {
        if (!value)
            return err_set(err, ERR_INPUT, "--%s needs a value", name);
        flags->word[i] = value;
        return OK;
    }
    if (find(ignored, sizeof ignored / sizeof *ignored, name) < 0) {
        char text[160];
        snprintf(text, sizeof text, "--%.60s%s%.60s", name, value ? " " : "", value ? value : "");
        json_add_string(flags->not_counted, NULL, text);
    }
    return OK;
}

/* Take each flag of the text, which this function cuts into words. The words before the first flag
 * are the launcher. */
static enum status split(char *text, struct flags *flags, struct err *err)
{
    static const char blanks[] = " \t\r\n\\\"'";
    char *rest = NULL, *word = strtok_r(text, blanks, &rest);
    enum status rc = OK;
    while (word && rc == OK) {
        char *const name = word;
        word = strtok_r(NULL, blanks, &rest);
        if (strncmp(name, "--", 2) != 0)
            continue;
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        else if (word && strncmp(word, "--", 2) != 0)
            value = word;
        rc = sort_flag(flags, name + 2, value, err);
    }
    return rc;
}

static int64_t or_else(const struct flags *flags, int i, int64_t otherwise)
{
    return flags->number[i] < 0 ? otherwise : flags->number[i];
}

static bool is(const struct flags *flags, int i, const char *value)
{
    return flags->word[i] && strcmp(flags->word[i], value) == 0;
}

static void name_uncounted(const struct flags *f)
{
    const bool rotary = f->word[POSITION] && !is(f, POSITION, "learned_absolute");
    if (!f->on[SWIGLU] && rotary)
        json_add_string(
            f->not_counted, NULL,
            "--position-embedding-type without --swiglu (a learned position table is counted)");
    if (!f->on[SWIGLU] && f->on[NO_BIAS])
        json_add_string(f->not_counted, NULL, "--disable-bias-linear without --swiglu");
    if (f->on[SWIGLU] && !is(f, NORM, "RMSNorm"))
        json_add_string(f->not_counted, NULL,
                        "--normalization LayerNorm with --swiglu (RMSNorm is counted)");
    if (f->word[DISPATCHER] && !is(f, DISPATCHER, "alltoall"))
        json_add_string(f->not_counted, NULL, "--moe-token-dispatcher-type (alltoall is counted)");
    if (f->on[HOST_OPTIMIZER] && f->word[HOST_SHARE] && strtod(f->word[HOST_SHARE], NULL) != 1)
        json_add_string(f->not_counted, NULL, "--optimizer-offload-fraction (1 is counted)");
    if (is(f, GRANULARITY, "full") && is(f, METHOD, "uniform") &&
        or_else(f, RECOMPUTE_LAYERS, 1) > 1)
        json_add_string(f->not_counted, NULL,
                        "--recompute-num-layers of method uniform (1 is counted)");
}

static enum status add_model(const struct flags *f, struct json *job, struct err *err)
{
    static const int needed[] = {LAYERS, HIDDEN, HEADS, SEQ, MBS};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (f->number[needed[i]] < 0)
            return err_set(err, ERR_INPUT, "--%s is missing", numbers[needed[i]]);
    const int64_t hidden = f->number[HIDDEN], heads = f->number[HEADS];
    const int64_t groups = f->on[GQA] ? or_else(f, GROUPS, 1) : heads;
    const int64_t ffn = or_else(f, FFN, f->on[SWIGLU] ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden);
    const int64_t multiple = or_else(f, VOCAB_MULTIPLE, 128) * or_else(f, TP, 1);
    int64_t vocab = or_else(f, VOCAB, is(f, TOKENIZER, "GPT2BPETokenizer") ? 50257 : -1);
    if (f->number[PADDED_VOCAB] > 0)
        vocab = f->number[PADDED_VOCAB];
    else if (vocab < 0)
        return err_set(err, ERR_INPUT,
                       "--vocab-size is missing, and the tokenizer does not say it");
    else
        vocab = (vocab + multiple - 1) / multiple * multiple;
    if (!f->on[SWIGLU] && (groups != heads || f->number[EXPERTS] > 0))
        return err_set(err, ERR_INPUT, "%s needs --swiglu here",
                       groups != heads ? "--group-query-attention" : "--num-experts");
    if (hidden % heads != 0 && f->number[HEAD_DIM] < 0)
        return err_set(err, ERR_INPUT,
                       "--hidden-size %lld is no multiple of --num-attention-heads %lld",
                       (long long)hidden, (long long)heads);
    if (!f->on[SWIGLU] && f->number[HEAD_DIM] > 0 && f->number[HEAD_DIM] != hidden / heads)
        return err_set(err, ERR_INPUT, "--kv-channels needs --swiglu here");
    struct json *m = json_add_object(job, "model");
    json_add_string(m, "family", f->on[SWIGLU] ? "llama" : "gpt");
    json_add_string(m, "name", "megatron");
    json_add_int(m, "layers", f->number[LAYERS]);
    json_add_int(m, "hidden", hidden);
    json_add_int(m, "heads", heads);
    json_add_int(m, "mlp", ffn);
    json_add_int(m, "seq", f->number[SEQ]);
    json_add_int(m, "vocab", vocab);
    if (!f->on[SWIGLU]) {
        json_add_int(m, "max_seq", or_else(f, POSITIONS, f->number[SEQ]));
        if (f->on[UNTIED])
            json_add_string(f->not_counted, NULL,
                            "--untie-embeddings-and-output-weights without --swiglu");
        return OK;
    }
    json_add_int(m, "kv_heads", groups);
    json_add_int(m, "head_dim", or_else(f, HEAD_DIM, hidden / heads));
    json_add_int(m, "qkv_bias", f->on[QKV_BIAS]);
    json_add_int(m, "tied_head", !f->on[UNTIED]);
    if (f->number[EXPERTS] > 0) {
        const int64_t width = or_else(f, EXPERT_FFN, ffn), shared = or_else(f, SHARED_FFN, 0);
        if (shared % width != 0)
            return err_set(
                err, ERR_INPUT,
                "--moe-shared-expert-intermediate-size must be a multiple of %lld, got %lld",
                (long long)width, (long long)shared);
        json_add_int(m, "experts", f->number[EXPERTS]);
        json_add_int(m, "experts_active", or_else(f, TOPK, 2));
        json_add_int(m, "expert_mlp", width);
        json_add_int(m, "shared_experts", shared / width);
        int dense = 0, sparse = 0, end = 0;
        const char *const freq = f->word[MOE_FREQ];
        if (freq && sscanf(freq, "([0]*%d+[1]*%d)%n", &dense, &sparse, &end) == 2 &&
            end == (int)strlen(freq) && dense >= 0 && dense + sparse == f->number[LAYERS])
            json_add_int(m, "dense_layers", dense);
        else if (freq && strcmp(freq, "1") != 0)
            json_add_string(f->not_counted, NULL, "--moe-layer-freq (all layers have experts)");
    }
    return OK;
}

/* The stages of a layout: "E|t*3|(t|)*2tL" is E, ttt, t, t and tL. Parentheses are not nested, and
 * are multiplied first. */
static enum status read_layout(const char *text, int64_t layers, struct command_job *made,
                               struct err *err)
{
    char *once = NULL, *whole = NULL;
    size_t size;
    bool good = true;
    int64_t found = 0, most = 0;
    FILE *out = open_memstream(&once, &size);
    for (const char *at = text; out && *at && good; at++) {
        const char *end = *at == '(' ? strchr(at, ')') : NULL;
        char *after = NULL;
        if (*at == ',')
            continue;
        if (*at != '(') {
            fputc(*at, out);
            continue;
        }
        const long times = end && end[1] == '*' ? strtol(end + 2, &after, 10) : 0;
        good = times > 0 && times <= layers && (most += times * (end - at)) < 1 << 20;
        for (long n = 0; good && n < times; n++)
            fwrite(at + 1, 1, (size_t)(end - at - 1), out);
        at = good ? after - 1 : at;
    }
    if (!out || fclose(out) != 0 || !(out = open_memstream(&whole, &size))) {
        free(once);
        return err_nomem(err);
    }
    for (const char *at = once; *at && good; at++) {
        char *after = NULL;
        const long times = at[1] == '*' ? strtol(at + 2, &after, 10) : 1;
        good = times > 0 && times <= layers && (most += times) < 1 << 20;
        for (long n = 0; good && n < times; n++)
            fputc(*at, out);
        at = good && after ? after - 1 : at;
    }
    free(once);
    if (fclose(out) != 0)
        return err_nomem(err);
    made->blocks = calloc(strlen(whole) + 1, sizeof *made->blocks);
    made->num_stages = 1;
    for (const char *at = whole; *at && made->blocks; at++) {
        if (*at == '|')
            made->num_stages++;
        else
            made->blocks[made->num_stages - 1]++;
        found += *at == 't';
        good = good && (*at == 'E' ? at == whole : *at == 'L' ? !at[1] : strchr("t|", *at) != NULL);
    }
    good = good && found == layers && whole[0] == 'E' && whole[strlen(whole) - 1] == 'L';
    for (int s = 0; s < made->num_stages && made->blocks; s++)
        good = good && made->blocks[s] > 0;
    free(whole);
    if (!made->blocks)
        return err_nomem(err);
    return good ? OK
                : err_set(err, ERR_INPUT,
                          "--pipeline-model-parallel-layout must have E, %lld t and L in stages "
                          "that are not empty, got '%.60s'",
                          (long long)layers, text);
}

/* Equally many layers a stage; the first has the embedding too, the last the head. */
static enum status cut_evenly(int64_t layers, int64_t num_stages, struct command_job *made,
                              struct err *err)
{
    made->blocks = calloc((size_t)num_stages, sizeof *made->blocks);
    if (!made->blocks)
        return err_nomem(err);
    made->num_stages = (int)num_stages;
    for (int64_t s = 0; s < num_stages; s++)
        made->blocks[s] = (int)(layers / num_stages + (s == 0) + (s == num_stages - 1));
    return OK;
}

static enum status add_layout(const struct flags *f, int num_devices, struct command_job *made,
                              struct err *err)
{
    struct json *const job = made->job;
    const int64_t tp = or_else(f, TP, 1), pp = or_else(f, PP, 1), layers = f->number[LAYERS];
    const int64_t mbs = f->number[MBS];
    const int64_t cp = or_else(f, CP, 1);
    if (tp > num_devices || pp > num_devices || cp > num_devices ||
        num_devices % (tp * pp * cp) != 0)
        return err_set(err, ERR_INPUT,
                       "the cluster's %d devices are no multiple of TP %lld x PP %lld x CP %lld",
                       num_devices, (long long)tp, (long long)pp, (long long)cp);
    const int64_t dp = num_devices / (tp * pp * cp), gbs = or_else(f, GBS, mbs * dp);
    if (gbs % (mbs * dp) != 0)
        return err_set(
            err, ERR_INPUT,
            "--global-batch-size %lld is no multiple of --micro-batch-size %lld x DP %lld",
            (long long)gbs, (long long)mbs, (long long)dp);
    enum status rc = OK;
    if (f->word[LAYOUT])
        rc = read_layout(f->word[LAYOUT], layers, made, err);
    if (rc != OK)
        return rc;
    if (made->num_stages % pp != 0 || (!f->word[LAYOUT] && layers % pp != 0))
        return err_set(err, ERR_INPUT, "%s %lld is no multiple of PP %lld",
                       f->word[LAYOUT] ? "a layout's number of stages" : "--num-layers",
                       f->word[LAYOUT] ? (long long)made->num_stages : (long long)layers,
                       (long long)pp);
    int64_t chunks = f->word[LAYOUT] ? made->num_stages / pp : or_else(f, VP, 1);
    if (!f->word[LAYOUT] && f->number[VP_LAYERS] > 0) {
        if (layers / pp % f->number[VP_LAYERS] != 0)
            return err_set(err, ERR_INPUT,
                           "--num-layers-per-virtual-pipeline-stage must divide %lld, got %lld",
                           (long long)(layers / pp), (long long)f->number[VP_LAYERS]);
        chunks = layers / pp / f->number[VP_LAYERS];
    }
    if (pp == 1)
        chunks = 1;
    if (f->word[LAYOUT] && pp == 1 && made->num_stages > 1)
        return err_set(err, ERR_INPUT, "a layout of %d stages needs PP", made->num_stages);
    if (!f->word[LAYOUT] && layers / pp % chunks != 0)
        return err_set(err, ERR_INPUT,
                       "--num-virtual-stages-per-pipeline-rank must divide %lld, got %lld",
                       (long long)(layers / pp), (long long)chunks);
    if (!f->word[LAYOUT])
        rc = cut_evenly(layers, pp * chunks, made, err);
    if (rc != OK)
        return rc;
    struct json *train = json_add_object(job, "train"), *batch = json_add_object(train, "batch");
    json_add_int(batch, "global", gbs);
    json_add_int(batch, "micro", mbs);
    const char *const wide = f->on[BF16] ? "bf16" : f->on[FP16] ? "fp16" : "fp32";
    const char *const fp8 = is(f, FP8_RECIPE, "mxfp8") ? "mxfp8" : "fp8";
    json_add_string(train, "dtype", f->word[FP4] ? "nvfp4" : f->word[FP8] ? fp8 : wide);
    json_add_string(train, "framework", "megatron-te");
    const bool unfused = is(f, BACKEND, "unfused") || is(f, BACKEND, "local") ||
                         (is(f, IMPL, "local") && !f->on[FLASH]);
    json_add_string(train, "attention", unfused ? "unfused" : "fused");
    json_add_double(train, "dropout", f->word[DROPOUT] ? strtod(f->word[DROPOUT], NULL) : 0.1);
    json_add_string(json_add_object(train, "optimizer"), "kind",
                    is(f, OPTIMIZER, "sgd") ? "sgd" : "adamw");
    struct json *p = json_add_object(job, "pipeline");
    json_add_int(p, "tensor", tp);
    json_add_int(p, "num_stages", pp);
    json_add_int(p, "num_replicas", dp);
    json_add_int(p, "chunks", chunks);
    json_add_string(p, "schedule", chunks > 1 ? "interleaved" : "1f1b");
    json_add_bool(p, "sequence_parallel", f->on[SP] && tp > 1);
    json_add_int(p, "expert", or_else(f, EP, 1));
    json_add_int(p, "expert_tensor", or_else(f, ETP, tp));
    json_add_int(p, "context", cp);
    json_add_string(p, "context_comm",
                    is(f, CP_COMM, "a2a")                                         ? "ulysses"
                    : is(f, CP_COMM, "all_gather") || is(f, CP_COMM, "allgather") ? "all-gather"
                                                                                  : "ring");
    json_add_string(p, "shard", f->on[DIST_OPT] && dp * cp > 1 ? "optimizer" : "none");
    if (f->on[HOST_OPTIMIZER])
        json_add_string(p, "offload", "optimizer");
    const int64_t bucket = 4 * (dp > 40 ? dp * 1000000 : 40000000);
    json_add_int(p, "bucket_bytes", f->on[OVERLAP] ? bucket : 0);
    const bool full = is(f, GRANULARITY, "full");
    const bool selective = f->on[RECOMPUTE_ACT] || is(f, GRANULARITY, "selective");
    json_add_string(p, "recompute", full ? "layer" : selective ? "selective" : "never");
    if (full) {
        const int64_t each = f->word[LAYOUT] ? layers : layers / pp / chunks,
                      some = or_else(f, RECOMPUTE_LAYERS, each);
        json_add_int(p, "recompute_layers", is(f, METHOD, "block") && some < each ? some : each);
    }
    return OK;
}

enum status megatron_job(const char *text, int num_devices, struct command_job *made,
                         struct err *err)
{
    struct flags flags = {.not_counted = json_array_new()};
    struct command_job got = {.job = json_object_new(), .not_counted = flags.not_counted};
    struct json *const job = got.job;
    char *copy = strdup(text);
    for (int i = 0; i < NUM_NUMBERS; i++)
        flags.number[i] = -1;
    enum status rc = copy ? split(copy, &flags, err) : err_nomem(err);
    json_add_string(job, "name", "megatron");
    json_add_string(json_add_object(job, "data"), "kind", "synthetic");
    THEN(add_model(&flags, job, err));
    THEN(add_layout(&flags, num_devices, &got, err));
    if (rc == OK) {
        const int64_t batch = (int64_t)json_number(json_path(job, "train.batch.global"));
        const int64_t samples = or_else(&flags, SAMPLES, batch * or_else(&flags, ITERS, 1000));
        json_add_int(json_get(job, "data"), "train_samples", samples);
        name_uncounted(&flags);
        rc = json_check(job, err);
    }
    THEN(json_check(flags.not_counted, err));
    free(copy);
    if (rc == OK)
        *made = got;
    else
        command_job_clear(&got);
    return rc;
}
