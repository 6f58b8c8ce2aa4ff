/* The rules of Megatron-LM: its defaults and its refusals, as validate_args() of
 * megatron/training/arguments.py, core/transformer/transformer_config.py and
 * core/pipeline_parallel/schedules.py have them (core 0.19.2). megatron_rows.c has the flags. */
#include "profiles/frameworks/command_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "partition/base/options.h"
#include "partition/base/units.h"
#include "partition/model/model.h"

static int64_t count(const struct command_flags *f, const char *name)
{
    return flag_int(f, name, 1);
}

static bool has_bias(const struct command_flags *f)
{
    return !flag_on(f, "disable-bias-linear") && !flag_on(f, "disable-add-bias-linear") &&
           !flag_on(f, "no-add-bias-linear");
}

static int64_t layers_of(const struct command_flags *f)
{
    return flag_int(f, "num-layers", flag_int(f, "encoder-num-layers", 0));
}

/* Layers of multi-token prediction, after the others. */
static int64_t mtp_of(const struct command_flags *f)
{
    const int64_t n = flag_int(f, "mtp-num-layers", 0);
    return n > 0 ? n : 0;
}

/* --- experts ------------------------------------------------------------------------------------- */

/* A list of Python as --moe-layer-freq has it: "([0]*3+[1]*58)", "[0,1]*16". One character a layer,
 * '0' or '1', is written to out; false: it is none, or longer than `most`. */
static bool read_pattern(const char **at, char *out, int64_t most)
{
    size_t used = strlen(out);
    for (;;) {
        const size_t start = used;
        *at += strspn(*at, " ");
        if (**at == '(') {
            ++*at;
            if (!read_pattern(at, out, most) || **at != ')')
                return false;
            ++*at;
            used = strlen(out);
        } else if (**at == '[') {
            for (++*at; **at && **at != ']'; ++*at)
                if (strchr("01", **at) && (int64_t)used < most)
                    out[used++] = **at;
                else if (!strchr(" ,", **at))
                    return false;
            *at += **at == ']';
            out[used] = '\0';
        } else {
            return false;
        }
        *at += strspn(*at, " ");
        if (**at == '*') {
            char *after;
            const long times = strtol(*at + 1, &after, 10);
            const size_t n = used - start;
            if (times < 0 || times > most || (int64_t)(start + n * (size_t)times) > most)
                return false;
            for (long i = 1; i < times; i++)
                memcpy(out + start + (size_t)i * n, out + start, n);
            used = start + n * (size_t)times;
            out[used] = '\0';
            *at = after + strspn(after, " ");
        }
        if (**at != '+')
            return true;
        ++*at;
    }
}

/* A 1 for each layer that has experts. */
static enum status read_frequency(const char *text, int64_t layers, char *pattern, struct err *err)
{
    const char *at = text;
    int64_t every = 0;
    if (parse_int(text, "--moe-layer-freq", 1, layers, &every, NULL) == OK) {
        for (int64_t i = 0; i < layers; i++)
            pattern[i] = i % every == 0 ? '1' : '0';
    } else if ((!read_pattern(&at, pattern, layers) || *at || (int64_t)strlen(pattern) != layers)) {
        return err_set(err, ERR_INPUT,
                       "--moe-layer-freq must be a number or a list of %lld layers as "
                       "([0]*3+[1]*58), got '%.60s'",
                       (long long)layers, text);
    }
    return OK;
}

/* The layers that have experts: dense ones first, then each n-th. Another order is named. */
static enum status add_frequency(struct command_flags *f, struct json *job, struct err *err)
{
    const char *const text = flag_word(f, "moe-layer-freq", "1");
    const int64_t layers = layers_of(f);
    char *pattern = calloc((size_t)layers + 1, 1);
    enum status rc = pattern ? OK : err_nomem(err);
    THEN(read_frequency(text, layers, pattern, err));
    int64_t dense = 0, sparse = 0, each = 1;
    for (int64_t i = 0; rc == OK && i < layers; i++)
        sparse += pattern[i] == '1';
    while (rc == OK && dense < layers && pattern[dense] == '0')
        dense++;
    if (rc == OK && sparse == 0)
        rc = err_set(err, ERR_INPUT, "--moe-layer-freq leaves --num-experts no layer");
    if (rc == OK && dense + sparse < layers) { /* one of `each` layers */
        each = layers / sparse;
        dense = 0;
        bool same = true;
        for (int64_t i = 0; i < layers; i++)
            same = same && (pattern[i] == '1') == ((i + 1) % each == 0);
        if (!same)
            flags_left_out(f,
                           "--moe-layer-freq %.60s: each %lld-th layer has experts, %lld of the "
                           "%lld that have",
                           text, (long long)each, (long long)(layers / each), (long long)sparse);
    }
    if (rc == OK && dense > 0)
        job_set_int(job, "model.dense_layers", dense);
    if (rc == OK && each > 1)
        job_set_int(job, "model.moe_every", each);
    free(pattern);
    return rc;
}

static enum status add_experts(struct command_flags *f, int64_t ffn, struct json *job,
                               struct err *err)
{
    const int64_t experts = flag_int(f, "num-experts", 0),
                  ep = count(f, "expert-model-parallel-size");
    const int64_t width = flag_int(f, "moe-ffn-hidden-size", ffn);
    const int64_t shared = flag_int(f, "moe-shared-expert-intermediate-size", 0);
    const int64_t topk = flag_int(f, "moe-router-topk", 2);
    if (experts < 1)
        return ep > 1
                   ? err_set(err, ERR_INPUT,
                             "--expert-model-parallel-size %lld needs --num-experts", (long long)ep)
                   : OK;
    if (experts % ep != 0)
        return err_set(err, ERR_INPUT, "--num-experts %lld is not a multiple of EP %lld",
                       (long long)experts, (long long)ep);
    if (topk > experts)
        return err_set(err, ERR_INPUT, "--moe-router-topk %lld is more than --num-experts %lld",
                       (long long)topk, (long long)experts);
    if (shared % width != 0)
        return err_set(err, ERR_INPUT,
                       "--moe-shared-expert-intermediate-size must be a multiple of %lld, got %lld",
                       (long long)width, (long long)shared);
    job_set_int(job, "model.experts", experts);
    job_set_int(job, "model.experts_active", topk);
    job_set_int(job, "model.expert_mlp", width);
    job_set_int(job, "model.shared_experts", shared / width);
    if (flag_given(f, "moe-router-num-groups")) {
        job_set_int(job, "model.expert_groups", flag_int(f, "moe-router-num-groups", 1));
        job_set_int(job, "model.groups_active", flag_int(f, "moe-router-group-topk", 1));
    }
    if (flag_on(f, "moe-router-enable-expert-bias"))
        job_set(job, "model.expert_bias", "1");
    const char *const dispatcher = flag_word(f, "moe-token-dispatcher-type", "allgather");
    if (strcmp(dispatcher, "flex") == 0 || flag_on(f, "moe-enable-deepep"))
        job_set(job, "train.dispatcher", "flex");
    else if (strcmp(dispatcher, "allgather") == 0 && ep > 1)
        flags_left_out(f,
                       "--moe-token-dispatcher-type allgather%s: alltoall is counted (today is "
                       "slower)",
                       flag_given(f, "moe-token-dispatcher-type") ? "" : ", its default");
    return add_frequency(f, job, err);
}

/* --- the model ----------------------------------------------------------------------------------- */

/* The tokens of a tokenizer; -1: its files say it. megatron/core/tokenizers, and the vocabularies that
 * the models' own files have. */
static int64_t tokens_of(const struct command_flags *f)
{
    static const struct {
        const char *type;
        int64_t tokens;
    } known[] = {
        {"GPT2BPETokenizer",       50257},
        {"Llama2Tokenizer",        32000},
        {"BertWordPieceLowerCase", 30522},
        {"BertWordPieceCase",      28996},
    };
    const char *const type = flag_word(f, "tokenizer-type", "");
    const char *const name = flag_word(f, "tokenizer-model", "");
    struct model model = {0};
    int64_t tokens = -1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].type, type) == 0)
            return known[i].tokens;
    if (*name && model_parse(name, &model, NULL) == OK && model.vocab > 0)
        tokens = model.vocab;
    model_clear(&model);
    return tokens;
}

/* Rows of the token table: Megatron-LM rounds the vocabulary up. */
static enum status vocabulary(const struct command_flags *f, int64_t *rows, struct err *err)
{
    const int64_t vocab = flag_int(f, "vocab-size", tokens_of(f));
    const int64_t multiple =
        flag_int(f, "make-vocab-size-divisible-by", 128) * count(f, "tensor-model-parallel-size");
    *rows = flag_int(f, "padded-vocab-size", vocab);
    if (*rows < 1)
        return err_set(err, ERR_INPUT,
                       "--vocab-size is missing, and the tokenizer does not say it");
    if (!flag_given(f, "padded-vocab-size") && !flag_on(f, "no-pad-vocab-size") &&
        !flag_on(f, "disable-pad-vocab-size"))
        *rows = (vocab + multiple - 1) / multiple * multiple;
    return OK;
}

static void add_latent(const struct command_flags *f, struct json *job)
{
    job_set_int(job, "model.kv_rank", flag_int(f, "kv-lora-rank", 32));
    job_set_int(job, "model.q_rank", flag_int(f, "q-lora-rank", 0));
    job_set_int(job, "model.head_dim", flag_int(f, "qk-head-dim", 128));
    job_set_int(job, "model.rope_dim", flag_int(f, "qk-pos-emb-head-dim", 64));
    job_set_int(job, "model.v_dim", flag_int(f, "v-head-dim", 128));
}

/* Whether the model is GPT-2's: a position table, LayerNorm, biases, GELU, a tied head. */
static bool is_gpt(const struct command_flags *f)
{
    const int64_t hidden = count(f, "hidden-size"), heads = count(f, "num-attention-heads");
    const char *const positions = flag_word(f, "position-embedding-type", "learned_absolute");
    return !flag_on(f, "swiglu") && !flag_on(f, "group-query-attention") &&
           flag_int(f, "num-experts", 0) < 1 && !flag_on(f, "multi-latent-attention") &&
           strcmp(positions, "learned_absolute") == 0 &&
           !flag_on(f, "use-rotary-position-embeddings") && has_bias(f) &&
           !flag_is(f, "normalization", "RMSNorm") &&
           !flag_on(f, "untie-embeddings-and-output-weights") && !flag_on(f, "qk-layernorm") &&
           !flag_on(f, "quick-geglu") &&
           flag_int(f, "kv-channels", hidden / heads) == hidden / heads;
}

static enum status add_decoder(struct command_flags *f, int64_t ffn, struct json *job,
                               struct err *err)
{
    const int64_t hidden = count(f, "hidden-size"), heads = count(f, "num-attention-heads");
    const bool gated = flag_on(f, "swiglu") || flag_on(f, "quick-geglu"), bias = has_bias(f);
    const bool grouped = flag_on(f, "group-query-attention");
    const bool latent = flag_on(f, "multi-latent-attention");
    const int64_t groups = grouped ? flag_int(f, "num-query-groups", 1) : heads;
    const char *const positions = flag_word(f, "position-embedding-type", "learned_absolute");
    if (heads % groups != 0)
        return err_set(err, ERR_INPUT,
                       "--num-attention-heads %lld is not a multiple of --num-query-groups %lld",
                       (long long)heads, (long long)groups);
    if (!grouped && flag_given(f, "num-query-groups"))
        flags_left_out(f, "--num-query-groups without --group-query-attention: Megatron-LM does "
                          "not use it");
    job_set_int(job, "model.kv_heads", groups);
    if (latent)
        add_latent(f, job);
    else
        job_set_int(job, "model.head_dim", flag_int(f, "kv-channels", hidden / heads));
    job_set(job, "model.tied_head", flag_on(f, "untie-embeddings-and-output-weights") ? "0" : "1");
    job_set(job, "model.plain_mlp", gated ? "0" : "1");
    job_set(job, "model.norm", flag_is(f, "normalization", "RMSNorm") ? "rms" : "layer");
    job_set(job, "model.qkv_bias", !latent && (bias || flag_on(f, "add-qkv-bias")) ? "1" : "0");
    job_set(job, "model.out_bias", bias ? "1" : "0");
    job_set(job, "model.mlp_bias", bias ? "1" : "0");
    if (flag_on(f, "qk-layernorm") && !latent)
        job_set(job, "model.qk_norm", "head");
    const bool table = strcmp(positions, "learned_absolute") == 0 &&
                       !flag_on(f, "use-rotary-position-embeddings") && !latent;
    const int64_t rows = flag_int(f, "max-position-embeddings", 0);
    if (table && rows > 0 && flag_given(f, "position-embedding-type"))
        flags_left_out(f,
                       "--position-embedding-type learned_absolute: rotary positions are counted, "
                       "and not the table's %lld parameters",
                       (long long)(rows * hidden));
    const char *const window = flag_word(f, "window-size", NULL);
    if (window)
        job_set_int(job, "model.window", strtoll(window + strspn(window, "( "), NULL, 10) + 1);
    return add_experts(f, ffn, job, err);
}

/* Whether the flags that a model needs are there. */
static enum status check_given(const struct command_flags *f, struct err *err)
{
    static const char *const needed[] = {"hidden-size", "num-attention-heads", "micro-batch-size"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!flag_given(f, needed[i]))
            return err_set(err, ERR_INPUT, "--%s is missing", needed[i]);
    if (layers_of(f) < 1)
        return err_set(err, ERR_INPUT, "--num-layers is missing");
    if (!flag_given(f, "seq-length") && !flag_given(f, "encoder-seq-length"))
        return err_set(err, ERR_INPUT, "--seq-length is missing");
    return OK;
}

static enum status add_model(struct command_flags *f, struct json *job, struct err *err)
{
    enum status rc = check_given(f, err);
    if (rc != OK)
        return rc;
    const int64_t hidden = count(f, "hidden-size"), heads = count(f, "num-attention-heads");
    const bool gated = flag_on(f, "swiglu") || flag_on(f, "quick-geglu");
    const int64_t ffn = flag_int(f, "ffn-hidden-size",
                                 flag_on(f, "swiglu") ? 4 * hidden * 2 / 3 / 64 * 64 : 4 * hidden);
    const int64_t seq = flag_int(f, "seq-length", flag_int(f, "encoder-seq-length", 0));
    const int64_t positions = flag_int(f, "max-position-embeddings", seq);
    const int64_t cp = count(f, "context-parallel-size"),
                  tp = count(f, "tensor-model-parallel-size");
    int64_t vocab = 0;
    if (flag_on(f, "squared-relu") && gated)
        return err_set(err, ERR_INPUT, "--squared-relu excludes --%s",
                       flag_on(f, "swiglu") ? "swiglu" : "quick-geglu");
    if (hidden % heads != 0 && !flag_given(f, "kv-channels") &&
        !flag_on(f, "multi-latent-attention"))
        return err_set(err, ERR_INPUT,
                       "--hidden-size %lld is not a multiple of --num-attention-heads %lld",
                       (long long)hidden, (long long)heads);
    if (heads % tp != 0)
        return err_set(err, ERR_INPUT, "--num-attention-heads %lld is not a multiple of TP %lld",
                       (long long)heads, (long long)tp);
    if (positions < seq)
        return err_set(err, ERR_INPUT,
                       "--max-position-embeddings %lld is less than --seq-length %lld",
                       (long long)positions, (long long)seq);
    if (cp > 1 && seq % (2 * cp) != 0)
        return err_set(err, ERR_INPUT, "--seq-length %lld is not a multiple of 2 x CP %lld",
                       (long long)seq, (long long)cp);
    const bool gpt = is_gpt(f);
    rc = vocabulary(f, &vocab, err);
    job_set(job, "model.family", gpt ? "gpt" : "llama");
    job_set(job, "model.name", "megatron");
    job_set_int(job, "model.layers", layers_of(f) + mtp_of(f));
    job_set_int(job, "model.mlp", ffn);
    job_set_int(job, "model.vocab", vocab);
    if (gpt)
        job_set_int(job, "model.max_seq", positions);
    if (rc == OK && !gpt)
        rc = add_decoder(f, ffn, job, err);
    return rc;
}

/* --- the cut ------------------------------------------------------------------------------------- */

/* Multiply one form of a layout: parentheses ("(t|)*2"), or single letters ("t*3"). */
static char *layout_multiplied(const char *text, bool parentheses, int64_t most, bool *good)
{
    char *made = NULL;
    size_t size;
    FILE *out = open_memstream(&made, &size);
    int64_t written = 0;
    for (const char *at = text; out && *at && *good; at++) {
        const char *const end = parentheses ? (*at == '(' ? strchr(at, ')') : NULL) : at;
        if (*at == ',' || (parentheses && *at != '(')) {
            if (*at != ',')
                fputc(*at, out);
            continue;
        }
        char *after = NULL;
        const long times = end && end[1] == '*' ? strtol(end + 2, &after, 10) : !parentheses;
        const size_t n = parentheses && end ? (size_t)(end - at - 1) : 1;
        *good = times > 0 && times <= most && (written += times * (int64_t)n) < 1 << 20;
        for (long i = 0; *good && i < times; i++)
            fwrite(at + parentheses, 1, n, out);
        at = *good && after ? after - 1 : at;
    }
    if (out && fclose(out) != 0) {
        free(made);
        made = NULL;
    }
    return made;
}

/* Count the blocks of each stage of a layout without repetitions. False: it is none. */
static bool cut_blocks(const char *layout, int64_t layers, int64_t mtp, struct command_job *made)
{
    int64_t found = 0, more = 0;
    bool good = layout[0] == 'E' && layout[strlen(layout) - 1] == 'L';
    for (const char *at = layout; *at; at++) {
        if (*at == '|')
            made->num_stages++;
        else
            made->blocks[made->num_stages - 1]++;
        found += *at == 't';
        more += *at == 'm';
        good = good && (*at == 'E'   ? at == layout
                        : *at == 'L' ? !at[1]
                                     : strchr("tm|", *at) != NULL);
    }
    for (int s = 0; s < made->num_stages; s++)
        good = good && made->blocks[s] > 0;
    return good && found == layers && more == mtp;
}

/* The stages of a layout: "E|t*3|(t|)*2tmL" is E, ttt, t, t and tmL (core/transformer/
 * pipeline_parallel_layer_layout.py). m is a layer of multi-token prediction. Parentheses are not
 * nested, and are multiplied first. */
static enum status cut_by_layout(const struct command_flags *f, struct command_job *made,
                                 struct err *err)
{
    const char *const text = flag_word(f, "pipeline-model-parallel-layout", "");
    const int64_t layers = layers_of(f), mtp = mtp_of(f);
    bool good = true;
    char *once = layout_multiplied(text, true, layers, &good);
    char *whole = once ? layout_multiplied(once, false, layers, &good) : NULL;
    const size_t length = whole ? strlen(whole) : 0;
    made->blocks = calloc(length + 1, sizeof *made->blocks);
    made->num_stages = 1;
    good = good && length > 0 && made->blocks && cut_blocks(whole, layers, mtp, made);
    free(once);
    free(whole);
    if (!once || !whole || !made->blocks)
        return err_nomem(err);
    if (good)
        return OK;
    return err_set(err, ERR_INPUT,
                   "--pipeline-model-parallel-layout must have E, %lld t, %lld m and L in stages "
                   "that are not empty, got '%.60s'",
                   (long long)layers, (long long)mtp, text);
}

/* The layers of each rank of the pipeline: given for the first and the last, equal between them. */
static enum status rank_layers(const struct command_flags *f, int64_t pp, int64_t *ranks,
                               struct err *err)
{
    const int64_t first = flag_int(f, "decoder-first-pipeline-num-layers", 0);
    const int64_t last = flag_int(f, "decoder-last-pipeline-num-layers", 0);
    const int64_t embedding = flag_on(f, "account-for-embedding-in-pipeline-split");
    const int64_t loss = flag_on(f, "account-for-loss-in-pipeline-split");
    const int64_t all = layers_of(f) + embedding + loss, between = pp - (first > 0) - (last > 0);
    const int64_t rest = all - first - last;
    if ((first || last) && (embedding || loss))
        return err_set(err, ERR_INPUT,
                       "--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers "
                       "exclude --account-for-*-in-pipeline-split");
    if (rest < 0 || between < 0 || (between == 0) != (rest == 0) ||
        (between > 0 && rest % between != 0)) {
        if (first || last)
            return err_set(err, ERR_INPUT,
                           "--num-layers %lld less %lld of the first and %lld of the last stage "
                           "leaves %lld layers for %lld stages: not a multiple",
                           (long long)all, (long long)first, (long long)last, (long long)rest,
                           (long long)between);
        return err_set(err, ERR_INPUT, "--num-layers %lld%s is not a multiple of PP %lld",
                       (long long)layers_of(f),
                       embedding + loss == 2 ? " and embedding and loss"
                       : embedding           ? " and the embedding"
                       : loss                ? " and the loss"
                                             : "",
                       (long long)pp);
    }
    for (int64_t p = 0; p < pp; p++)
        ranks[p] = p == 0 && first > 0 ? first : p == pp - 1 && last > 0 ? last : rest / between;
    return OK;
}

/* The stages of flags without a layout, chunk by chunk. */
static enum status cut_by_ranks(const struct command_flags *f, int64_t pp, int64_t *chunks,
                                struct command_job *made, struct err *err)
{
    const int64_t each = flag_int(f, "num-layers-per-virtual-pipeline-stage", 0);
    const int64_t given = flag_int(f, "num-virtual-stages-per-pipeline-rank", 0);
    const int64_t embedding = flag_on(f, "account-for-embedding-in-pipeline-split");
    const int64_t loss = flag_on(f, "account-for-loss-in-pipeline-split");
    int64_t *const ranks = calloc((size_t)pp, sizeof *ranks);
    enum status rc = ranks ? rank_layers(f, pp, ranks, err) : err_nomem(err);
    if (rc == OK && each && given)
        rc = err_set(err, ERR_INPUT,
                     "--num-layers-per-virtual-pipeline-stage excludes "
                     "--num-virtual-stages-per-pipeline-rank");
    if (rc == OK && each &&
        (flag_given(f, "decoder-first-pipeline-num-layers") ||
         flag_given(f, "decoder-last-pipeline-num-layers")))
        rc = err_set(err, ERR_INPUT,
                     "an uneven pipeline needs --num-virtual-stages-per-pipeline-rank in place of "
                     "--num-layers-per-virtual-pipeline-stage");
    if (rc == OK && each && ranks[0] % each != 0)
        rc = err_set(err, ERR_INPUT,
                     "--num-layers-per-virtual-pipeline-stage must divide %lld, got %lld",
                     (long long)ranks[0], (long long)each);
    *chunks = rc != OK || pp == 1 ? 1 : each ? ranks[0] / each : given ? given : 1;
    for (int64_t p = 0; p < pp && rc == OK; p++)
        if (ranks[p] % *chunks != 0)
            rc = err_set(err, ERR_INPUT,
                         "--num-virtual-stages-per-pipeline-rank must divide %lld, got %lld",
                         (long long)ranks[p], (long long)*chunks);
    made->num_stages = (int)(pp * *chunks);
    if (rc == OK && !(made->blocks = calloc((size_t)made->num_stages, sizeof *made->blocks)))
        rc = err_nomem(err);
    for (int s = 0; s < made->num_stages && rc == OK; s++) {
        const bool first = s == 0, last = s == made->num_stages - 1;
        const int64_t layers = ranks[s % pp] / *chunks - first * embedding - last * loss;
        made->blocks[s] = (int)(layers + first + last * (1 + mtp_of(f)));
        if (layers < 0 || made->blocks[s] < 1)
            rc = err_set(err, ERR_INPUT, "%lld layers leave a stage of %d empty",
                         (long long)layers_of(f), made->num_stages);
    }
    free(ranks);
    return rc;
}

/* Whether Megatron-LM runs its interleaved schedule with these counts. */
static enum status check_interleaved(const struct command_flags *f, int64_t pp,
                                     int64_t microbatches, int num_stages, struct err *err)
{
    if (pp == 1)
        return err_set(err, ERR_INPUT, "%d stages need PP above 1", num_stages);
    if (pp == 2 && flag_on(f, "no-overlap-p2p-communication"))
        return err_set(err, ERR_INPUT,
                       "the interleaved schedule needs PP above 2 with "
                       "--no-overlap-p2p-communication, got 2");
    const int64_t group = flag_int(f, "microbatch-group-size-per-vp-stage", pp);
    if ((group > microbatches || group < pp))
        return err_set(err, ERR_INPUT,
                       "the interleaved schedule needs PP %lld <= group of micro-batches %lld <= "
                       "micro-batches %lld",
                       (long long)pp, (long long)group, (long long)microbatches);
    if (microbatches % group > 0 && microbatches % group < pp)
        return err_set(err, ERR_INPUT,
                       "the interleaved schedule: %lld micro-batches leave a remainder of %lld for "
                       "groups of %lld, which must be 0 or at least PP %lld",
                       (long long)microbatches, (long long)(microbatches % group), (long long)group,
                       (long long)pp);
    return OK;
}

static enum status add_cut(const struct command_flags *f, int64_t pp, int64_t microbatches,
                           struct command_job *made, struct err *err)
{
    static const char *const others[] = {
        "decoder-first-pipeline-num-layers",       "decoder-last-pipeline-num-layers",
        "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split",
        "num-layers-per-virtual-pipeline-stage",   "num-virtual-stages-per-pipeline-rank"};
    const bool layout = flag_given(f, "pipeline-model-parallel-layout");
    int64_t chunks = 1;
    enum status rc = OK;
    for (size_t i = 0; i < sizeof others / sizeof *others && layout && rc == OK; i++)
        if (flag_given(f, others[i]))
            rc = err_set(err, ERR_INPUT, "--pipeline-model-parallel-layout excludes --%s",
                         others[i]);
    if (rc == OK && !layout)
        rc = cut_by_ranks(f, pp, &chunks, made, err);
    else if (rc == OK)
        rc = cut_by_layout(f, made, err);
    if (rc == OK && layout && made->num_stages % pp != 0)
        rc = err_set(err, ERR_INPUT, "a layout's number of stages %d is not a multiple of PP %lld",
                     made->num_stages, (long long)pp);
    if (rc != OK)
        return rc;
    chunks = made->num_stages / pp;
    if (chunks > 1)
        rc = check_interleaved(f, pp, microbatches, made->num_stages, err);
    if (rc != OK)
        return rc;
    job_set_int(made->job, "pipeline.chunks", chunks);
    job_set(made->job, "pipeline.schedule", chunks > 1 ? "interleaved" : "1f1b");
    return OK;
}

/* --- the rest of the layout ---------------------------------------------------------------------- */

static enum status add_shard(struct command_flags *f, int64_t width, struct json *job,
                             struct err *err)
{
    static const char *const strategies[][2] = {
        {"no_shard",           "none"     },
        {"optim",              "optimizer"},
        {"optim_grads",        "gradients"},
        {"optim_grads_params", "weights"  },
    };
    const bool fsdp = flag_on(f, "use-megatron-fsdp") || flag_on(f, "use-custom-fsdp");
    const bool torch = flag_on(f, "use-torch-fsdp2"),
               divided = flag_on(f, "use-distributed-optimizer");
    const char *const strategy = flag_word(f, "data-parallel-sharding-strategy", "no_shard");
    const char *by_fsdp = NULL; /* the shard that Megatron-FSDP makes */
    for (int i = 0; fsdp && i < 4; i++)
        if (strcmp(strategies[i][0], strategy) == 0)
            by_fsdp = strategies[i][1];
    const bool gather = flag_on(f, "overlap-param-gather");
    const int64_t instances = count(f, "num-distributed-optimizer-instances");
    const char *shard = divided ? "optimizer" : "none";
    const enum status rc = OPTIONS_REFUSE(
        err, {torch && divided, "--use-torch-fsdp2 excludes --use-distributed-optimizer"},
        {torch && count(f, "pipeline-model-parallel-size") > 1,
         "--use-torch-fsdp2 excludes PP above 1"},
        {gather && !flag_on(f, "overlap-grad-reduce"),
         "--overlap-param-gather needs --overlap-grad-reduce"},
        {gather && !divided && !by_fsdp,
         "--overlap-param-gather needs --use-distributed-optimizer"});
    if (rc != OK)
        return rc;
    if (width % instances != 0)
        return err_set(err, ERR_INPUT,
                       "--num-distributed-optimizer-instances must divide DP x CP %lld, got %lld",
                       (long long)width, (long long)instances);
    if (torch)
        shard = flag_on(f, "torch-fsdp2-no-reshard-after-forward") ? "gradients" : "weights";
    if (by_fsdp)
        shard = by_fsdp;
    job_set(job, "pipeline.shard", width > 1 ? shard : "none");
    if (instances > 1 && instances < width && strcmp(shard, "none") != 0)
        job_set_int(job, "pipeline.shard_group", width / instances);
    return OK;
}

static void add_recompute(struct command_flags *f, int64_t layers, struct json *job)
{
    const bool full = flag_is(f, "recompute-granularity", "full");
    const bool selective =
        flag_on(f, "recompute-activations") || flag_is(f, "recompute-granularity", "selective");
    const char *const modules = flag_word(f, "recompute-modules", "core_attn");
    const bool core = strstr(modules, "core_attn") != NULL;
    const int64_t some = flag_int(f, "recompute-num-layers", layers);
    const bool norms = strstr(modules, "layernorm") || strstr(modules, "moe_act") ||
                       strstr(modules, "mla_up_proj");
    const char *const counted = norms ? "norms" : core ? "selective" : "never";
    job_set(job, "pipeline.recompute", full ? "layer" : selective ? counted : "never");
    if (selective && strcmp(modules, "core_attn") != 0)
        flags_left_out(f, "--recompute-modules %.60s: recompute %s is counted (%s)", modules,
                       counted,
                       norms ? "layernorm, moe_act, mla_up_proj and activations"
                             : "today is slower, with less memory");
    if (!full)
        return;
    job_set_int(job, "pipeline.recompute_layers",
                flag_is(f, "recompute-method", "block") && some < layers ? some : layers);
    if (flag_is(f, "recompute-method", "uniform") && flag_int(f, "recompute-num-layers", 1) > 1)
        flags_left_out(f,
                       "--recompute-num-layers of method uniform: 1 is counted (today needs less "
                       "memory)");
}

static enum status add_layout(struct command_flags *f, int num_devices, struct command_job *made,
                              struct err *err)
{
    struct json *const job = made->job;
    const int64_t tp = count(f, "tensor-model-parallel-size"),
                  pp = count(f, "pipeline-model-parallel-size");
    const int64_t cp = count(f, "context-parallel-size"), mbs = count(f, "micro-batch-size");
    const int64_t ep = count(f, "expert-model-parallel-size");
    const int64_t etp = flag_int(f, "expert-tensor-parallel-size", tp);
    if (tp > num_devices || pp > num_devices || cp > num_devices ||
        num_devices % (tp * pp * cp) != 0)
        return err_set(err, ERR_INPUT,
                       "the cluster's %d devices are not a multiple of TP %lld x PP %lld x CP %lld",
                       num_devices, (long long)tp, (long long)pp, (long long)cp);
    if (ep > num_devices || etp > num_devices || num_devices % (etp * ep * pp) != 0)
        return err_set(
            err, ERR_INPUT,
            "the cluster's %d devices are not a multiple of ETP %lld x EP %lld x PP %lld",
            num_devices, (long long)etp, (long long)ep, (long long)pp);
    const int64_t dp = num_devices / (tp * pp * cp),
                  gbs = flag_int(f, "global-batch-size", mbs * dp);
    if (gbs % (mbs * dp) != 0)
        return err_set(
            err, ERR_INPUT,
            "--global-batch-size %lld is not a multiple of --micro-batch-size %lld x DP %lld",
            (long long)gbs, (long long)mbs, (long long)dp);
    if (flag_on(f, "tp-comm-overlap") && !flag_on(f, "sequence-parallel"))
        return err_set(err, ERR_INPUT, "--tp-comm-overlap needs --sequence-parallel");
    if (flag_int(f, "num-experts", 0) > 0 && tp > 1 && !flag_on(f, "sequence-parallel"))
        flags_left_out(f,
                       "--num-experts with TP %lld: Megatron-LM trains it with "
                       "--sequence-parallel only",
                       (long long)tp);
    job_set_int(job, "train.batch.global", gbs);
    job_set_int(job, "pipeline.num_replicas", dp);
    job_set(job, "pipeline.sequence_parallel",
            flag_on(f, "sequence-parallel") && tp > 1 ? "true" : "false");
    enum status rc = add_cut(f, pp, gbs / (mbs * dp), made, err);
    THEN(add_shard(f, dp * cp, job, err));
    const int64_t bucket = flag_int(f, "ddp-bucket-size", dp > 40 ? dp * 1000000 : 40000000);
    job_set_int(job, "pipeline.bucket_bytes", flag_on(f, "overlap-grad-reduce") ? 4 * bucket : 0);
    if (flag_on(f, "optimizer-cpu-offload"))
        job_set(job, "pipeline.offload", "optimizer");
    if (flag_on(f, "optimizer-cpu-offload") && flag_real(f, "optimizer-offload-fraction", 1) != 1)
        flags_left_out(f, "--optimizer-offload-fraction: 1 is counted");
    int64_t most = 0;
    for (int s = 0; s < made->num_stages && rc == OK; s++)
        most = made->blocks[s] > most ? made->blocks[s] : most;
    add_recompute(f, most, job);
    return rc;
}

/* --- training ------------------------------------------------------------------------------------ */

static void add_formats(const struct command_flags *f, struct json *job)
{
    const bool fp8 = flag_given(f, "fp8-format") || flag_given(f, "fp8");
    const bool fp4 = flag_given(f, "fp4-format") || flag_given(f, "fp4");
    const bool fp16 = flag_on(f, "fp16");
    const char *const narrow = flag_is(f, "fp8-recipe", "mxfp8") ? "mxfp8" : "fp8";
    job_set(job, "train.dtype",
            fp4                  ? "nvfp4"
            : fp8                ? narrow
            : flag_on(f, "bf16") ? "bf16"
            : fp16               ? "fp16"
                                 : "fp32");
    if (fp8 && !fp4) /* the recipe is delayed unless it is given */
        job_set(job, "train.fp8_scaling",
                !flag_given(f, "fp8-recipe") || flag_is(f, "fp8-recipe", "delayed") ? "delayed"
                                                                                    : "current");
    /* The optimizer's gradients are fp32. Narrower ones are copied, unless it takes them as they are. */
    if (flag_on(f, "grad-reduce-in-bf16") ||
        (fp16 && !flag_on(f, "accumulate-allreduce-grads-in-fp32"))) {
        job_set(job, "train.gradient_bytes", "2");
        job_set(job, "train.gradient_copy",
                flag_on(f, "use-precision-aware-optimizer") ? "false" : "true");
    }
}

static void add_optimizer(struct command_flags *f, struct json *job)
{
    const char *const moment = flag_word(f, "exp-avg-dtype", "fp32"), *const square = flag_word(
                                                                          f, "exp-avg-sq-dtype",
                                                                          "fp32");
    const char *const optimizer = flag_word(f, "optimizer", "adam");
    const bool muon = strstr(optimizer, "muon") != NULL, lion = strcmp(optimizer, "lion") == 0;
    if (strcmp(moment, "bf16") == 0 && strcmp(square, "bf16") == 0)
        job_set(job, "train.optimizer.state_dtype", "bf16");
    else if (strcmp(moment, "fp32") != 0 || strcmp(square, "fp32") != 0)
        flags_left_out(f,
                       "--exp-avg-dtype %.20s, --exp-avg-sq-dtype %.20s: moments have 4 bytes "
                       "(today needs less memory)",
                       moment, square);
    job_set(job, "train.optimizer.kind",
            strcmp(optimizer, "sgd") == 0 || muon || lion ? "sgd" : "adamw");
    if (muon)
        flags_left_out(f,
                       "--optimizer %.40s: one moment is counted, without Newton-Schulz's products "
                       "(today is slower)",
                       optimizer);
    else if (strcmp(optimizer, "soap") == 0)
        flags_left_out(f, "--optimizer soap: adamw is counted (today is slower, with more memory)");
}

static void add_real(const struct command_flags *f, const char *flag, double fallback,
                     const char *key, struct json *job)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", flag_real(f, flag, fallback));
    job_set(job, key, text);
}

static void add_train(struct command_flags *f, struct json *job)
{
    const bool tensor = flag_on(f, "tp-comm-overlap");
    const bool experts = flag_on(f, "overlap-moe-expert-parallel-comm");
    const bool unfused = flag_is(f, "attention-backend", "unfused") ||
                         flag_is(f, "attention-backend", "local") ||
                         (flag_is(f, "transformer-impl", "local") && !flag_on(f, "use-flash-attn"));
    add_formats(f, job);
    job_set(job, "train.framework", "megatron-te");
    job_set(job, "train.overlap",
            tensor && experts ? "all"
            : tensor          ? "tensor"
            : experts         ? "experts"
                              : "none");
    job_set(job, "train.attention", unfused ? "unfused" : "fused");
    add_real(f, "hidden-dropout", 0.1, "train.dropout", job);
    add_real(f, "clip-grad", 1.0, "train.clip_norm", job);
    add_optimizer(f, job);
    const char *const graphs = flag_word(f, "cuda-graph-impl", "none");
    if (strcmp(graphs, "full_iteration") == 0)
        job_set(job, "train.cuda_graphs", "step");
    else if (strcmp(graphs, "none") != 0 || flag_on(f, "enable-cuda-graph"))
        job_set(job, "train.cuda_graphs", "layers");
}

/* BERT of pretrain_bert.py as ours: its model flags have the same meaning. */
static void make_bert(struct command_flags *f, struct json *job)
{
    job_set(job, "model.family", "bert");
    job_set(job, "model.task", "mlm");
    job_set_int(job, "model.max_seq",
                flag_int(f, "max-position-embeddings", flag_int(f, "seq-length", 512)));
    flags_left_out(f, "pretrain_bert.py: BERT's layers with a norm after each part and a head for "
                      "masked tokens are counted, without the head for sentences");
}

enum status megatron_rules(struct command_flags *flags, int num_devices, struct command_job *made,
                           struct err *err)
{
    struct json *const job = made->job;
    const char *const program = flags->script;
    if (program && (strstr(program, "pretrain_t5") || strstr(program, "pretrain_retro") ||
                    strstr(program, "pretrain_mamba") || strstr(program, "pretrain_hybrid") ||
                    strstr(program, "pretrain_vision") || strstr(program, "pretrain_ict") ||
                    strstr(program, "pretrain_vlm")))
        return err_set(err, ERR_INPUT,
                       "%.80s is not read: of Megatron-LM's programs pretrain_gpt.py and "
                       "pretrain_bert.py are",
                       program);
    enum status rc = add_model(flags, job, err);
    if (rc == OK && program && strstr(program, "pretrain_bert")) {
        if (!is_gpt(flags))
            return err_set(err, ERR_INPUT, "%.80s: only BERT's own layers are read", program);
        make_bert(flags, job);
    }
    static const char *const ones[] = {"tensor", "num_stages", "context", "expert"};
    char path[64];
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        snprintf(path, sizeof path, "pipeline.%s", ones[i]);
        job_set_int(job, path, 1);
    }
    job_set_int(job, "pipeline.expert_tensor", count(flags, "tensor-model-parallel-size"));
    job_set(job, "pipeline.context_comm", "ring");
    THEN(flags_write(flags, job, err));
    THEN(add_layout(flags, num_devices, made, err));
    if (rc != OK)
        return rc;
    add_train(flags, job);
    if (mtp_of(flags) > 0)
        flags_left_out(flags,
                       "--mtp-num-layers %lld: counted as layers, without their projection and "
                       "their loss over the vocabulary (today is slower)",
                       (long long)mtp_of(flags));
    const int64_t batch = (int64_t)json_number(json_path(job, "train.batch.global"));
    job_set_int(job, "data.train_samples",
                flag_int(flags, "train-samples", batch * flag_int(flags, "train-iters", 1000)));
    return json_check(job, err);
}
