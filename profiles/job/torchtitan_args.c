/* The flags of torchtitan as a job.
 *
 * split() sorts the words by the tables below, and torchtitan_job() computes torchtitan's defaults.
 * Names and defaults are those of torchtitan 0.3.0: config/configs.py,
 * models/<module>/config_registry.py and distributed/pipeline_parallel.py. */
#include "profiles/job/command_job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/units.h"
#include "partition/model/model.h"

enum {
    LOCAL,
    GLOBAL,
    SEQ,
    STEPS,
    REPLICATE,
    SHARD,
    TP,
    PP,
    CP,
    EP,
    MBS,
    LAYERS_PER_STAGE,
    FIRST_LESS,
    LAST_LESS,
    NUM_NUMBERS
};
static const char *const numbers[NUM_NUMBERS] = {
    "training.local_batch_size",
    "training.global_batch_size",
    "training.seq_len",
    "training.steps",
    "parallelism.data_parallel_replicate_degree",
    "parallelism.data_parallel_shard_degree",
    "parallelism.tensor_parallel_degree",
    "parallelism.pipeline_parallel_degree",
    "parallelism.context_parallel_degree",
    "parallelism.expert_parallel_degree",
    "parallelism.pipeline_parallel_microbatch_size",
    "parallelism.pipeline_parallel_layers_per_stage",
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers"};
enum { MODULE, CONFIG, RESHARD, SCHEDULE, CSV, PARAM, NUM_WORDS };
static const char *const words[NUM_WORDS] = {"module",
                                             "config",
                                             "parallelism.fsdp_reshard_after_forward",
                                             "parallelism.pipeline_parallel_schedule",
                                             "parallelism.pipeline_parallel_schedule_csv",
                                             "training.mixed_precision_param"};
/* Flags that change no cost of a step that we count, by their beginnings. */
static const char *const ignored[] = {"checkpoint.",
                                      "metrics.",
                                      "profiler.",
                                      "dataloader.",
                                      "validator.",
                                      "lr_scheduler.",
                                      "optimizer.",
                                      "comm.",
                                      "debug.",
                                      "hf_assets_path",
                                      "training.max_norm",
                                      "training.gc_freq",
                                      "training.disable_cuda_graphs",
                                      "dump_folder",
                                      "nproc",
                                      "nnodes",
                                      "rdzv",
                                      "local-ranks-filter",
                                      "role",
                                      "tee",
                                      "parallelism.spmd_backend"};

/* Config functions: their model here and their defaults. */
static const struct config {
    const char *name, *preset;
    int local, seq, tp, ep;
    bool full, two_chunks; /* FullAC; a schedule with two stages a rank */
} configs[] = {
    {"llama3_8b",        "llama3.1-8b",   1, 8192, 1, 1, false, false},
    {"llama3_70b",       "llama3-70b",    8, 8192, 8, 1, true,  false},
    {"llama3_405b",      "llama3-405b",   2, 8192, 8, 1, true,  false},
    {"qwen3_0_6b",       "qwen3-0.6b",    4, 4096, 1, 1, false, false},
    {"qwen3_1_7b",       "qwen3-1.7b",    4, 4096, 1, 1, false, false},
    {"qwen3_14b",        "qwen3-14b",     4, 4096, 1, 1, true,  false},
    {"qwen3_32b",        "qwen3-32b",     2, 4096, 1, 1, true,  false},
    {"qwen3_30b_a3b",    "qwen3-30b-a3b", 2, 4096, 1, 1, true,  false},
    {"deepseek_v3_671b", "deepseek-v3",   4, 4096, 1, 2, false, true },
    {"gpt_oss_20b",      "gpt-oss-20b",   1, 8192, 1, 1, true,  false},
    {"gpt_oss_120b",     "gpt-oss-120b",  1, 8192, 1, 1, true,  false},
};

static const struct schedule_row {
    const char *theirs, *ours;
    int chunks;
} schedules[] = {
    {"1F1B",            "1f1b",          1},
    {"GPipe",           "gpipe",         1},
    {"Interleaved1F1B", "interleaved",   2},
    {"LoopedBFS",       "breadth-first", 2},
    {"ZBVZeroBubble",   "zb-v",          2},
    {"DualPipeV",       "dualpipe-v",    2},
};

struct flags {
    int64_t number[NUM_NUMBERS]; /* -2: not given */
    const char *word[NUM_WORDS]; /* NULL: not given */
    const char *checkpoint;      /* after "activation-checkpoint:"; NULL: not given */
    bool whole_tokens, compiled; /* no sequence parallelism; torch.compile */
    int num_stages;              /* of module_fqns_per_model_part */
    int *blocks;                 /* owned, num_stages entries */
    struct json *not_counted;
};

static int find(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void uncounted(struct flags *flags, const char *name, const char *value)
{
    char text[160];
    snprintf(text, sizeof text, "--%.60s%s%.60s", name, value ? " " : "", value ? value : "");
    json_add_string(flags->not_counted, NULL, text);
}

/* Append a stage, a list of modules with commas: norm and lm_head are one block. */
static enum status add_stage(struct flags *flags, const char *modules, struct err *err)
{
    int *grown = realloc(flags->blocks, ((size_t)flags->num_stages + 1) * sizeof *grown);
    int count = 0;
    bool head = false;
    if (!grown)
        return err_nomem(err);
    flags->blocks = grown;
    for (const char *at = modules; *at;) {
        const size_t n = strcspn(at, ",");
        const bool last = (n == 4 && strncmp(at, "norm", n) == 0) ||
                          (n == 7 && strncmp(at, "lm_head", n) == 0) ||
                          (n == 6 && strncmp(at, "output", n) == 0);
        count += last ? !head : 1;
        head = head || last;
        at += n + (at[n] == ',');
    }
    flags->blocks[flags->num_stages++] = count;
    return OK;
}

static enum status sort_flag(struct flags *flags, const char *name, const char *value,
                             struct err *err)
{
    int i = find(numbers, NUM_NUMBERS, name);
    if (i >= 0) {
        char what[80];
        snprintf(what, sizeof what, "--%.70s", name);
        return parse_int(value ? value : "", what, -1, INT32_MAX, &flags->number[i], err);
    }
    if ((i = find(words, NUM_WORDS, name)) >= 0) {
        if (!value)
            return err_set(err, ERR_INPUT, "--%s needs a value", name);
        flags->word[i] = value;
        return OK;
    }
    if (strcmp(name, "parallelism.no_enable_sequence_parallel") == 0)
        flags->whole_tokens = true;
    else if (strcmp(name, "compile.enable") == 0)
        flags->compiled = true;
    else if (strcmp(name, "parallelism.enable_sequence_parallel") != 0) {
        for (size_t k = 0; k < sizeof ignored / sizeof *ignored; k++)
            if (strncmp(name, ignored[k], strlen(ignored[k])) == 0)
                return OK;
        uncounted(flags, name, value);
    }
    return OK;
}

/* Take each flag of the text, which this function cuts into words. */
static enum status split(char *text, struct flags *flags, struct err *err)
{
    static const char blanks[] = " \t\r\n\\\"'", fqns[] = "parallelism.module_fqns_per_model_part";
    static const char policy[] = "activation-checkpoint:";
    char *rest = NULL, *word = strtok_r(text, blanks, &rest);
    enum status rc = OK;
    while (word && rc == OK) {
        char *const name = word;
        word = strtok_r(NULL, blanks, &rest);
        if (strncmp(name, policy, sizeof policy - 1) == 0)
            flags->checkpoint = name + sizeof policy - 1;
        if (strncmp(name, "--", 2) != 0)
            continue;
        char *value = strchr(name, '=');
        if (value)
            *value++ = '\0';
        else if (word && strncmp(word, "--", 2) != 0 && !strchr(word, ':'))
            value = word;
        for (char *c = name + 2; *c; c++) /* the parser takes both */
            *c = (char)(*c == '-' ? '_' : *c);
        if (strcmp(name + 2, fqns) != 0) {
            rc = sort_flag(flags, name + 2, value, err);
            continue;
        }
        for (; value && rc == OK && strncmp(value, "--", 2) != 0 && !strchr(value, ':');
             value = word) {
            rc = add_stage(flags, value, err);
            if (value == word)
                word = strtok_r(NULL, blanks, &rest);
        }
    }
    return rc;
}

static int64_t or_else(const struct flags *flags, int i, int64_t otherwise)
{
    return flags->number[i] < -1 ? otherwise : flags->number[i];
}

static const struct config *config_of(const struct flags *f, struct err *err)
{
    char known[512] = "";
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        if (f->word[CONFIG] && strcmp(configs[i].name, f->word[CONFIG]) == 0)
            return &configs[i];
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", configs[i].name);
    }
    err_set(err, ERR_INPUT, "--config must be one of%s, got '%.60s'", known,
            f->word[CONFIG] ? f->word[CONFIG] : "");
    return NULL;
}

/* Cut as torchtitan does without module names: the embedding and the head count as so many layers. */
static enum status cut_by_default(struct flags *f, int num_layers, int num_stages, struct err *err)
{
    const int first = (int)or_else(f, FIRST_LESS, 1), last = (int)or_else(f, LAST_LESS, 1);
    const int all = num_layers + first + last, each = all / num_stages, more = all % num_stages;
    f->blocks = calloc((size_t)num_stages, sizeof *f->blocks);
    if (!f->blocks)
        return err_nomem(err);
    f->num_stages = num_stages;
    for (int s = 0; s < num_stages; s++) {
        const int ends = (s == 0) + (s == num_stages - 1);
        const int taken = (s == 0 ? first : 0) + (s == num_stages - 1 ? last : 0);
        f->blocks[s] = num_stages == 1 ? num_layers + 2 : each + (s < more) - taken + ends;
        if (f->blocks[s] < 1)
            return err_set(err, ERR_INPUT, "%d layers leave a stage of %d empty", num_layers,
                           num_stages);
    }
    return OK;
}

static enum status add_layout(struct flags *f, const struct config *config, int num_devices,
                              int num_layers, struct json *job, struct err *err)
{
    const int64_t tp = or_else(f, TP, config->tp), pp = or_else(f, PP, 1), cp = or_else(f, CP, 1);
    const int64_t copies = or_else(f, REPLICATE, 1), ep = or_else(f, EP, config->ep);
    int64_t shard = or_else(f, SHARD, -1);
    if (tp < 1 || pp < 1 || cp < 1 || copies < 1 || ep < 1 || shard == 0)
        return err_set(err, ERR_INPUT, "--parallelism: degrees must be 1 or more");
    const int64_t group = tp * pp * cp * copies;
    if (shard < 0)
        shard = num_devices / group;
    if (shard < 1 || shard * group != num_devices)
        return err_set(err, ERR_INPUT,
                       "PP %" PRId64 " x replicate %" PRId64 " x shard %" PRId64 " x CP %" PRId64
                       " x TP %" PRId64 " are not the cluster's %d devices",
                       pp, copies, shard, cp, tp, num_devices);
    const char *const named = f->word[SCHEDULE]    ? f->word[SCHEDULE]
                              : config->two_chunks ? "Interleaved1F1B"
                                                   : "1F1B";
    const struct schedule_row *row = NULL;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        if (strcmp(schedules[i].theirs, named) == 0)
            row = &schedules[i];
    if (!row && pp > 1)
        return err_set(err, ERR_INPUT, "--%s %s is not read", words[SCHEDULE], named);
    int num_stages = pp > 1 ? (int)pp * row->chunks : 1;
    enum status rc = OK;
    if (f->num_stages > 0)
        num_stages = f->num_stages;
    else if (pp > 1 && or_else(f, LAYERS_PER_STAGE, 0) > 0)
        num_stages = (int)((num_layers + or_else(f, FIRST_LESS, 1) + or_else(f, LAST_LESS, 1) +
                            f->number[LAYERS_PER_STAGE] - 1) /
                           f->number[LAYERS_PER_STAGE]);
    if (num_stages % pp != 0)
        return err_set(err, ERR_INPUT, "%d stages are no multiple of PP %" PRId64, num_stages, pp);
    if (f->num_stages == 0)
        rc = cut_by_default(f, num_layers, num_stages, err);
    if (rc != OK)
        return rc;
    const int64_t local = or_else(f, LOCAL, config->local), dp = copies * shard;
    const int64_t given = or_else(f, GLOBAL, -1), global = given > 0 ? given : local * dp;
    const int64_t micro = pp > 1 ? or_else(f, MBS, 1) : local;
    if (local < 1 || micro < 1 || global % (local * dp) != 0 || local % micro != 0)
        return err_set(err, ERR_INPUT,
                       "--%s %" PRId64 " is no multiple of local_batch_size %" PRId64
                       " x DP %" PRId64 ", or that one no multiple of %" PRId64,
                       numbers[GLOBAL], global, local, dp, micro);
    if (pp > 1 && global > local * dp)
        json_add_string(f->not_counted, NULL,
                        "gradient accumulation over several runs of the pipeline (one is counted)");
    if (copies > 1 && shard > 1)
        json_add_string(f->not_counted, NULL,
                        "--parallelism.data_parallel_replicate_degree beside a shard (all "
                        "replicas share one)");
    if (f->word[CSV] && f->word[CSV][0])
        uncounted(f, words[CSV], f->word[CSV]);
    struct json *train = json_get(job, "train"), *batch = json_add_object(train, "batch");
    json_add_int(batch, "global", global);
    json_add_int(batch, "micro", micro);
    struct json *p = json_add_object(job, "pipeline");
    json_add_int(p, "tensor", tp);
    json_add_int(p, "num_stages", pp);
    json_add_int(p, "num_replicas", dp);
    json_add_int(p, "chunks", num_stages / pp);
    json_add_string(p, "schedule", pp > 1 ? row->ours : "1f1b");
    json_add_bool(p, "sequence_parallel", tp > 1 && !f->whole_tokens);
    json_add_int(p, "expert", ep);
    json_add_int(p, "context", cp);
    json_add_string(p, "context_comm", "all-gather");
    const char *const reshard = f->word[RESHARD] ? f->word[RESHARD] : "default";
    const bool kept = strcmp(reshard, "never") == 0 || (strcmp(reshard, "default") == 0 && pp > 1);
    json_add_string(p, "shard", shard * cp == 1 ? "none" : kept ? "gradients" : "weights");
    const char *const again = f->checkpoint ? f->checkpoint : config->full ? "full" : "selective";
    json_add_string(p, "recompute", strcmp(again, "full") == 0 ? "layer" : "never");
    if (strcmp(again, "full") != 0 && strcmp(again, "none") != 0) {
        char text[96];
        snprintf(text, sizeof text, "activation-checkpoint:%.40s (none is counted)", again);
        json_add_string(f->not_counted, NULL, text);
    }
    return OK;
}

/* Layers of the presets in the table above. */
static int layers_of(const struct config *config, struct err *err)
{
    struct model model = {0};
    const int n = model_parse(config->preset, &model, err) == OK ? model.num_layers : 0;
    model_clear(&model);
    return n;
}

enum status torchtitan_job(const char *text, int num_devices, struct command_job *made,
                           struct err *err)
{
    struct flags flags = {.not_counted = json_array_new()};
    struct json *job = json_object_new();
    char *copy = strdup(text);
    for (int i = 0; i < NUM_NUMBERS; i++)
        flags.number[i] = -2;
    enum status rc = copy ? split(copy, &flags, err) : err_nomem(err);
    const struct config *config = rc == OK ? config_of(&flags, err) : NULL;
    const int num_layers = config ? layers_of(config, err) : 0;
    if (rc == OK && num_layers == 0)
        rc = err->status;
    if (rc == OK) {
        json_add_string(job, "name", "torchtitan");
        struct json *model = json_add_object(job, "model");
        json_add_string(model, "preset", config->preset);
        json_add_int(model, "seq", or_else(&flags, SEQ, config->seq));
        json_add_string(json_add_object(job, "data"), "kind", "synthetic");
        struct json *train = json_add_object(job, "train");
        const char *const param = flags.word[PARAM];
        json_add_string(train, "dtype", param && strcmp(param, "float32") == 0 ? "fp32" : "bf16");
        json_add_string(train, "framework", flags.compiled ? "fsdp-compiled" : "fsdp");
        json_add_string(json_add_object(train, "optimizer"), "kind", "adamw");
        rc = add_layout(&flags, config, num_devices, num_layers, job, err);
    }
    if (rc == OK) {
        const int64_t batch = (int64_t)json_number(json_path(job, "train.batch.global"));
        json_add_int(json_get(job, "data"), "train_samples", batch * or_else(&flags, STEPS, 1000));
        rc = json_check(job, err);
    }
    THEN(json_check(flags.not_counted, err));
    struct command_job got = {job, flags.not_counted, flags.num_stages, flags.blocks};
    free(copy);
    if (rc == OK)
        *made = got;
    else
        command_job_clear(&got);
    return rc;
}

void command_job_clear(struct command_job *made)
{
    json_free(made->job);
    json_free(made->not_counted);
    free(made->blocks);
    *made = (struct command_job){0};
}
