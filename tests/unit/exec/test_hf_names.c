/* Weights in the names of Hugging Face, both ways; files that lie. The real thing is test_minilm.c.
 */
#include "exec/cpu/backend_cpu.h"
#include "exec/weights/hf_config.h"
#include "exec/weights/hf_names.h"
#include "exec/stage/arch.h"
#include "profiles/job/job_json.h"
#include "profiles/job/model_config.h"
#include "tests/unit/data_case.h"
#include "tests/unit/test.h"

static const char *const models[] = {
    "vit-tiny:image=8,patch=4,layers=2,hidden=8,heads=2,mlp=12,classes=3",
    "bert-base:task=classify,classes=3,layers=2,hidden=8,heads=2,mlp=12,vocab=20,seq=6",
    "bert-base:task=qa,layers=2,hidden=8,heads=2,mlp=12,vocab=20,seq=6",
    "bert-base:task=mlm,layers=2,hidden=8,heads=2,mlp=12,vocab=20,seq=6",
    "gpt2:layers=2,hidden=8,heads=2,mlp=12,vocab=20,seq=6",
    "llama:layers=2,hidden=8,heads=2,kv_heads=1,mlp=12,vocab=20,seq=6,tied_head=1",
    "llama:layers=2,hidden=8,heads=2,mlp=12,vocab=20,seq=6,qkv_bias=1"};
enum {
    NUM_MODELS = sizeof models / sizeof *models,
    VIT = 0,
    BERT = 1,
    MLM = 3,
    GPT = 4,
    TIED,
    UNTIED
};

/* A file with the model's tensors, renamed and bent as a case says. Value e of tensor t is
 * t + e / 1024. */
struct bend {
    const char *strip;     /* prefix to leave out */
    const char *from, *to; /* part of a name to replace */
    const char *drop;      /* names with this part are left out */
    const char *widen;     /* names with this part get one more row */
    const char *extra;     /* one more tensor [2] */
    const char *wrap;      /* part to put in front of every name */
    int shard;             /* 1, 2: only every other tensor; 0: all */
    bool turned;           /* 2-d weights of GPT-2's linears as [out, in] */
    const char *untie;     /* one more tensor of the table's shape; its values differ by 1 */
    float untie_by;
};

struct made {
    char name[128];
    int64_t shape[4];
    int tensor; /* -1: extra */
    bool turn;
};

static enum status fetch(void *ctx, const void *source, int64_t num_elems, float *values,
                         struct err *err)
{
    const struct made *made = source;
    const float *add = ctx;
    (void)err;
    for (int64_t e = 0; e < num_elems; e++) {
        int64_t at = e;
        if (made->turn) /* element (r, c) of what is written is (c, r) of ours */
            at = e % made->shape[1] * made->shape[0] + e / made->shape[1];
        values[e] = (float)(made->tensor < 0 ? 0 : made->tensor) + (float)at / 1024 +
                    (made->tensor < 0 ? *add : 0);
    }
    return OK;
}

static void put_weights(const char *file, const struct model *model, struct bend bend)
{
    static struct made made[64];
    struct tensor_out outs[64];
    struct arch arch;
    int n = 0, number = 0;
    assert_int_equal(arch_init(model, &arch, NULL), OK);
    for (int i = 0; i < model->num_items; i++) {
        struct item_spec spec;
        arch_item(model, &arch, i, &spec);
        for (int t = 0; t < spec.num_tensors; t++) {
            const struct tensor_spec *tensor = &spec.tensors[t];
            struct made *m = &made[n];
            const char *name = tensor->name, *hit;
            if (spec.tied && tensor->block == HEAD_TABLE)
                continue;
            *m = (struct made){.tensor = number++};
            if ((bend.drop && strstr(name, bend.drop)) ||
                (bend.shard && m->tensor % 2 != bend.shard - 1))
                continue;
            if (bend.strip && strncmp(name, bend.strip, strlen(bend.strip)) == 0)
                name += strlen(bend.strip);
            hit = bend.from ? strstr(name, bend.from) : NULL;
            const char *wrap = bend.wrap ? bend.wrap : "";
            if (hit)
                snprintf(m->name, sizeof m->name, "%s%.*s%s%s", wrap, (int)(hit - name), name,
                         bend.to, hit + strlen(bend.from));
            else
                snprintf(m->name, sizeof m->name, "%s%s", wrap, name);
            memcpy(m->shape, tensor->shape, sizeof m->shape);
            m->turn = bend.turned && strstr(name, ".c_") && tensor->ndim == 2;
            if (m->turn) {
                m->shape[0] = tensor->shape[1];
                m->shape[1] = tensor->shape[0];
            }
            if (bend.widen && strstr(name, bend.widen))
                m->shape[0]++;
            outs[n] = (struct tensor_out){.name = m->name,
                                          .ndim = tensor->ndim,
                                          .shape = m->shape,
                                          .num_elems = 1,
                                          .source = m};
            for (int d = 0; d < tensor->ndim; d++)
                outs[n].num_elems *= m->shape[d];
            n++;
        }
    }
    if (bend.extra || bend.untie) {
        struct made *m = &made[n];
        *m = (struct made){.tensor = -1};
        snprintf(m->name, sizeof m->name, "%s", bend.extra ? bend.extra : bend.untie);
        m->shape[0] = bend.extra ? 2 : model->vocab;
        m->shape[1] = model->hidden;
        outs[n] = (struct tensor_out){.name = m->name,
                                      .ndim = bend.extra ? 1 : 2,
                                      .shape = m->shape,
                                      .num_elems = bend.extra ? 2 : m->shape[0] * m->shape[1],
                                      .source = m};
        n++;
    }
    assert_int_equal(safetensors_write(in_folder(file),
                                       &(struct tensor_source){outs, n, fetch, &bend.untie_by},
                                       NULL, NULL),
                     OK);
}

/* Load into stages of two items each and see the values of put_weights(); fresh tensors by name. */
static void expect_loaded(const char *file, const struct model *model, bool fresh_head,
                          const char *fresh_part, int num_fresh)
{
    struct job job = {0};
    struct err err = {0};
    struct hf_import import = {0};
    struct stage *stages[16] = {NULL};
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    int n = 0, number = 0, skipped = 0;
    job_defaults(&job);
    for (int first = 0; first < model->num_items; first += 2, n++) {
        const struct stage_spec spec = {.model = model,
                                        .job = &job,
                                        .backend = be,
                                        .first_item = first,
                                        .end_item = first + 2 < model->num_items ? first + 2
                                                                                 : model->num_items,
                                        .max_samples = 1,
                                        .max_live = 1};
        assert_int_equal(stage_new(&spec, &stages[n], &err), OK);
        assert_int_equal(stage_init_weights(stages[n], 1, &err), OK);
    }
    const struct stage_list list = {stages, n, be};
    if (hf_load(in_folder(file), model, NULL, &list, fresh_head, &import, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(import.num_fresh, num_fresh);
    assert_int_equal(import.note[0] != '\0', num_fresh > 0);
    for (int s = 0; s < n; s++)
        for (int i = 0; i < stage_num_params(stages[s]); i++) {
            const struct param *param = &stage_params(stages[s])[i];
            int tensor = param->tied_copy ? 0 : number++;
            if (fresh_part && strstr(param->name, fresh_part)) {
                skipped++;
                continue;
            }
            for (int64_t e = 0; e < param->num_elems; e++)
                if (param->weight[e] != (float)tensor + (float)e / 1024)
                    fail_msg("%s[%d] is %g, wanted %g", param->name, (int)e,
                             (double)param->weight[e], (double)tensor + (double)e / 1024);
        }
    assert_int_equal(skipped, num_fresh);
    for (int s = 0; s < n; s++)
        stage_free(stages[s]);
    backend_free(be);
    job_clear(&job);
}

static void expect_refused(const char *file, const struct model *model, bool fresh_head,
                           const char *words)
{
    struct weights *open = NULL;
    struct err err = {0};
    enum status rc = weights_open(in_folder(file), &open, &err);
    if (rc == OK)
        rc = hf_check(open, file, model, fresh_head, NULL, &err);
    weights_close(open);
    if (rc != ERR_INPUT || !strstr(err.msg, words))
        fail_msg("status %d '%s', wanted '%s'", rc, err.msg, words);
}

static void hf_load__takes_the_names_that_files_use(void **state)
{
    static const char *const prefixes[] = {"vit.",         "bert.",  "bert.", "bert.",
                                           "transformer.", "model.", "model."};
    (void)state;
    for (int i = 0; i < NUM_MODELS; i++) {
        struct model model = {0};
        assert_int_equal(model_parse(models[i], &model, NULL), OK);
        put_weights("w", &model, (struct bend){0});
        expect_loaded("w", &model, false, NULL, 0);
        put_weights("w", &model, (struct bend){.strip = prefixes[i]});
        expect_loaded("w", &model, false, NULL, 0);
        put_weights("w", &model,
                    (struct bend){.strip = prefixes[i],
                                  .from = "LayerNorm.weight",
                                  .to = "LayerNorm.gamma",
                                  .extra = "embeddings.position_ids"});
        expect_loaded("w", &model, false, NULL, 0);
        put_weights("w", &model, (struct bend){.from = "LayerNorm.bias", .to = "LayerNorm.beta"});
        expect_loaded("w", &model, false, NULL, 0);
        model_clear(&model);
    }
}

/* Tied tensors are written once, under the name of either module. */
static void hf_load__takes_tied_tensors_under_either_name(void **state)
{
    struct model model = {0};
    (void)state;
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    put_weights("w", &model,
                (struct bend){.from = "transformer.wte.weight", .to = "lm_head.weight"});
    expect_loaded("w", &model, false, NULL, 0);
    model_clear(&model);
    const struct bend other = {.from = "model.embed_tokens.weight", .to = "lm_head.weight"};
    assert_int_equal(model_parse(models[TIED], &model, NULL), OK);
    put_weights("w", &model, other);
    expect_loaded("w", &model, false, NULL, 0);
    model_clear(&model);
    assert_int_equal(model_parse(models[UNTIED], &model, NULL), OK);
    put_weights("w", &model, (struct bend){.drop = "embed_tokens"});
    expect_refused("w", &model, false, "has no tensor 'model.embed_tokens.weight'");
    put_weights("w", &model, (struct bend){.drop = "lm_head"});
    expect_refused("w", &model, false, "has no tensor 'lm_head.weight'");
    model_clear(&model);
    assert_int_equal(model_parse(models[MLM], &model, NULL), OK);
    put_weights("w", &model,
                (struct bend){.from = "bert.embeddings.word_embeddings.weight",
                              .to = "cls.predictions.decoder.weight"});
    expect_loaded("w", &model, false, NULL, 0);
    put_weights(
        "w", &model,
        (struct bend){.from = "cls.predictions.bias", .to = "cls.predictions.decoder.bias"});
    expect_loaded("w", &model, false, NULL, 0);
    /* With a table of its own the bias beside the table counts, and the other one only without it. */
    model_untie(&model);
    put_weights("w", &model, (struct bend){0});
    expect_loaded("w", &model, false, NULL, 0);
    put_weights(
        "w", &model,
        (struct bend){.from = "cls.predictions.bias", .to = "cls.predictions.decoder.bias"});
    expect_loaded("w", &model, false, NULL, 0);
    put_weights("w", &model, (struct bend){.extra = "cls.predictions.decoder.bias"});
    expect_refused("w", &model, false, "tensor 'cls.predictions.decoder.bias' has shape [2]");
    model_clear(&model);
}

static void hf_load__looks_through_wrappers(void **state)
{
    static const char *const wraps[] = {"module.", "_orig_mod.", "module._orig_mod.",
                                        "_fsdp_wrapped_module._orig_mod."};
    struct model model = {0};
    (void)state;
    for (int i = 0; i < NUM_MODELS; i++) {
        assert_int_equal(model_parse(models[i], &model, NULL), OK);
        for (size_t w = 0; w < sizeof wraps / sizeof *wraps; w++) {
            put_weights("w", &model, (struct bend){.wrap = wraps[w]});
            expect_loaded("w", &model, false, NULL, 0);
        }
        /* torch.compile of each layer */
        put_weights("w", &model, (struct bend){.from = ".1.", .to = ".1._orig_mod."});
        expect_loaded("w", &model, false, NULL, 0);
        model_clear(&model);
    }
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    put_weights("w", &model, (struct bend){.extra = "module.transformer.wte.weight"});
    expect_refused("w", &model, false, "holds a tensor twice, as");
    model_clear(&model);
}

static void hf_check__hints_at_the_nearest_name(void **state)
{
    static const struct {
        struct bend bend;
        const char *hint;
    } cases[] = {
        {{.wrap = "model."},                                "'model.transformer.wte.weight'"        },
        {{.from = "h.1.attn.c_attn", .to = "h.1.attn.qkv"}, "'transformer.h.1.attn.qkv.weight'"     },
        {{.wrap = "base_model.model."},                     "'base_model.model.transformer.wte.weig"},
    };
    struct model model = {0};
    (void)state;
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weights *weights = NULL;
        struct err err = {0};
        put_weights("w", &model, cases[i].bend);
        assert_int_equal(weights_open(in_folder("w"), &weights, &err), OK);
        assert_int_equal(hf_check(weights, "w", &model, false, NULL, &err), ERR_INPUT);
        weights_close(weights);
        if (!strstr(err.hint, cases[i].hint))
            fail_msg("'%s' hints '%s', wanted %s", err.msg, err.hint, cases[i].hint);
    }
    model_clear(&model);
}

/* Write two shards and their index into a folder. */
static void put_shards(const char *name, const struct model *model, bool index)
{
    char path[100], list[6000];
    struct safetensors *file = NULL;
    size_t used = 0;
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
    used += (size_t)snprintf(list, sizeof list, "{\"metadata\":{},\"weight_map\":{");
    for (int i = 1; i <= 2; i++) {
        snprintf(path, sizeof path, "%s/model-%05d-of-00002.safetensors", name, i);
        put_weights(path, model, (struct bend){.shard = i});
        assert_int_equal(safetensors_open(in_folder(path), &file, NULL), OK);
        for (int t = 0; t < safetensors_count(file); t++)
            if (strcmp(safetensors_name(file, t), "__metadata__") != 0)
                used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\":\"%s\"",
                                         list[used - 1] == '{' ? "" : ",",
                                         safetensors_name(file, t), strrchr(path, '/') + 1);
        safetensors_close(file);
    }
    snprintf(list + used, sizeof list - used, "}}");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", name);
    if (index)
        put_text(path, list);
}

static void hf_load__reads_shards_and_folders(void **state)
{
    struct model model = {0};
    (void)state;
    for (int i = 0; i < NUM_MODELS; i++) {
        char name[32], path[100];
        assert_int_equal(model_parse(models[i], &model, NULL), OK);
        for (int index = 0; index < 2; index++) {
            snprintf(name, sizeof name, "hub%d%d", i, index);
            put_shards(name, &model, index == 1);
            expect_loaded(name, &model, false, NULL, 0);
            snprintf(path, sizeof path, "%s/model-00002-of-00002.safetensors", name);
            expect_loaded(path, &model, false, NULL, 0);
        }
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", name);
        expect_loaded(path, &model, false, NULL, 0);
        model_clear(&model);
    }
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    assert_int_equal(mkdir(in_folder("one"), 0777), 0);
    put_weights("one/any.safetensors", &model, (struct bend){0});
    expect_loaded("one", &model, false, NULL, 0);
    put_text("one/more.safetensors", "");
    expect_refused("one", &model, false, "holds 2 safetensors files and no index");
    put_weights("one/model.safetensors", &model, (struct bend){0});
    expect_loaded("one", &model, false, NULL, 0);
    model_clear(&model);
}

static void weights_open__says_what_a_folder_lacks(void **state)
{
    struct model model = {0};
    struct weights *weights = NULL;
    struct err err = {0};
    (void)state;
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    put_shards("half", &model, false);
    assert_int_equal(unlink(in_folder("half/model-00002-of-00002.safetensors")), 0);
    assert_int_equal(weights_open(in_folder("half"), &weights, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "model-00002-of-00002.safetensors"));
    assert_non_null(strstr(err.hint, "one file of 2"));
    put_text("half/model.safetensors.index.json",
             "{\"weight_map\":{\"x\":\"model-00001-of-00002.safetensors\"}}");
    expect_refused("half", &model, false, "holds tensor 'x', but it does not");
    put_text("half/model.safetensors.index.json", "{\"weight_map\":{\"x\":\"../w.safetensors\"}}");
    expect_refused("half", &model, false, "lists '../w.safetensors', which must be a name");
    put_text("half/model.safetensors.index.json", "{}");
    expect_refused("half", &model, false, "is no index of shards");
    assert_int_equal(mkdir(in_folder("torch"), 0777), 0);
    assert_true(!weights_are_at(in_folder("torch")));
    put_text("torch/pytorch_model.bin", "");
    assert_true(weights_are_at(in_folder("torch")));
    expect_refused("torch", &model, false, "only files of PyTorch");
    put_text("torch/manifest.json", "{}");
    assert_true(!weights_are_at(in_folder("torch")));
    put_text("zip", "PK\003\004 and what follows");
    err = (struct err){0};
    assert_int_equal(weights_open(in_folder("zip"), &weights, &err), ERR_INPUT);
    assert_non_null(strstr(err.hint, "a file of PyTorch"));
    model_clear(&model);
}

/* Weights whose config.json says that they were made for another computation. */
static void hf_load__refuses_weights_of_another_computation(void **state)
{
    static const struct {
        const char *text, *named; /* named NULL: it fits */
    } cases[] = {
        {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":1e-5,\"tie_word_embeddings\":false}",
         NULL                                                                                       },
        {"{\"model_type\":\"bert\",\"position_embedding_type\":\"relative_key\"}",              NULL},
        {"{\"model_type\":\"gpt2\",\"scale_attn_by_inverse_layer_idx\":true}",
         "config.json: scale_attn_by_inverse_layer_idx must be false"                               },
        {"{\"model_type\":\"gpt2\",\"layer_norm_epsilon\":1e-6}",
         "layer_norm_epsilon is 1e-06, but model 'gpt2' has 1e-05"                                  },
        {"{\"model_type\":\"gpt2\",\"activation_function\":\"relu\"}",
         "activation_function must be gelu_new"                                                     },
    };
    struct model model = {0};
    (void)state;
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    assert_int_equal(mkdir(in_folder("other"), 0777), 0);
    put_weights("other/model.safetensors", &model, (struct bend){0});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct stage_list none = {NULL, 0, NULL};
        struct err err = {0};
        put_text("other/config.json", cases[i].text);
        enum status rc = hf_load(in_folder("other"), &model, NULL, &none, false, NULL, &err);
        if (rc != (cases[i].named ? ERR_INPUT : OK) ||
            (cases[i].named && !strstr(err.msg, cases[i].named)))
            fail_msg("%s: status %d '%s'", cases[i].text, rc, err.msg);
    }
    model_clear(&model);
}

static void hf_load__turns_linears_that_lie_the_other_way(void **state)
{
    struct model model = {0};
    (void)state;
    assert_int_equal(model_parse(models[GPT], &model, NULL), OK);
    put_weights("w", &model, (struct bend){.turned = true});
    expect_loaded("w", &model, false, NULL, 0);
    model_clear(&model);
}

static void hf_load__starts_a_fresh_head_only_when_allowed(void **state)
{
    struct model model = {0};
    (void)state;
    assert_int_equal(model_parse(models[BERT], &model, NULL), OK);
    put_weights("w", &model, (struct bend){.drop = "classifier"});
    expect_loaded("w", &model, true, "classifier", 2);
    expect_refused("w", &model, false, "'w' has no tensor 'classifier.weight'");
    put_weights("w", &model, (struct bend){.widen = "classifier"});
    expect_loaded("w", &model, true, "classifier", 2);
    expect_refused("w", &model, false,
                   "tensor 'classifier.weight' has shape [4,8], the model wants [3,8]");
    put_weights("w", &model, (struct bend){.drop = "pooler"});
    expect_loaded("w", &model, true, "pooler", 2);
    put_weights("w", &model, (struct bend){.drop = "layer.1.output.dense.bias"});
    expect_refused("w", &model, true, "has no tensor 'bert.encoder.layer.1.output.dense.bias'");
    put_weights("w", &model, (struct bend){.widen = "word_embeddings"});
    expect_refused("w", &model, true,
                   "'bert.embeddings.word_embeddings.weight' has shape [21,8], "
                   "the model wants [20,8]");
    model_clear(&model);
}

static void hf_check__refuses_other_models(void **state)
{
    struct model model = {0}, deeper = {0};
    (void)state;
    for (int i = 0; i < NUM_MODELS; i++) {
        char text[200];
        assert_int_equal(model_parse(models[i], &model, NULL), OK);
        snprintf(text, sizeof text, "%s", models[i]);
        *(strstr(text, "layers=") + strlen("layers=")) = '3';
        assert_int_equal(model_parse(text, &deeper, NULL), OK);
        put_weights("w", &deeper, (struct bend){0});
        expect_refused("w", &model, true, "holds more than the 2 layers of model");
        put_weights("w", &model, (struct bend){0});
        expect_refused("w", &deeper, true, "has no tensor '");
        model_clear(&model);
        model_clear(&deeper);
    }
    assert_int_equal(model_parse(models[VIT], &model, NULL), OK);
    expect_refused("w", &model, true, "has no tensor 'vit.embeddings.cls_token'");
    model_clear(&model);
}

static void hf_check__refuses_an_output_table_of_its_own(void **state)
{
    static const char *const names[] = {"cls.predictions.decoder.weight", "lm_head.weight",
                                        "lm_head.weight"};
    struct model model = {0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(model_parse(models[MLM + i], &model, NULL), OK);
        put_weights("w", &model, (struct bend){.untie = names[i]});
        expect_loaded("w", &model, false, NULL, 0);
        put_weights("w", &model, (struct bend){.untie = names[i], .untie_by = 1});
        expect_refused("w", &model, false, "they must be tied");
        model_clear(&model);
    }
}

/* Every prefix of a small file, and every byte of its length and header changed: an error or a
 * file that still holds the model, never more. */
static void hf_check__survives_files_that_lie_about_themselves(void **state)
{
    struct model model = {0};
    unsigned char bytes[40000];
    uint64_t draw = 1;
    int opened = 0;
    (void)state;
    assert_int_equal(model_parse(models[BERT], &model, NULL), OK);
    put_weights("w", &model, (struct bend){0});
    FILE *in = fopen(in_folder("w"), "rb");
    size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    assert_true(n > 1000 && n < sizeof bytes);
    size_t header = (size_t)bytes[0] | (size_t)bytes[1] << 8;
    for (int round = 0; round < 1500; round++) {
        struct weights *file = NULL;
        struct hf_import import = {0};
        struct err err = {0};
        size_t size = n, at = 0;
        unsigned char old = 0;
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        if (round < 300) {
            size = round < 20 ? (size_t)round : (size_t)(draw >> 33) % n;
        } else {
            at = round < 500 ? (size_t)(draw >> 33) % 8 : (size_t)(draw >> 33) % (header + 8);
            old = bytes[at];
            bytes[at] = round % 3 ? (unsigned char)(draw >> 20)
                                  : (unsigned char)"0123456789\"{}[],:-"[(draw >> 20) % 18];
        }
        put_bytes("x", bytes, size);
        enum status rc = weights_open(in_folder("x"), &file, &err);
        if (rc == OK) {
            opened++;
            rc = hf_check(file, "x", &model, true, &import, &err);
        }
        if (rc != OK && (rc != ERR_INPUT || !err.msg[0]))
            fail_msg("round %d: status %d '%s'", round, rc, err.msg);
        if (size < n && rc == OK)
            fail_msg("a file cut to %zu of %zu bytes is accepted", size, n);
        weights_close(file);
        if (round >= 300)
            bytes[at] = old;
    }
    assert_true(opened > 0);
    /* Lengths that overflow. */
    for (int i = 0; i < 8; i++) {
        struct safetensors *file = NULL;
        memset(bytes, 0xff, 8);
        bytes[i] = 0x7f;
        put_bytes("x", bytes, n);
        assert_int_equal(safetensors_open(in_folder("x"), &file, NULL), ERR_INPUT);
    }
    model_clear(&model);
}

static void hf_config__is_a_model_again(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_MODELS; i++) {
        struct model model = {0}, again = {0};
        struct err err = {0};
        char path[300];
        assert_int_equal(model_parse(models[i], &model, NULL), OK);
        model.norm_eps = 1e-6;
        struct json *config = hf_config(&model, NULL);
        assert_non_null(config);
        snprintf(path, sizeof path, "%s/config.json", folder);
        assert_int_equal(json_write_file(config, path, NULL), OK);
        json_free(config);
        if (model_load(path, &again, &err) != OK)
            fail_msg("%s", err.msg);
        assert_true(again.norm_eps == model.norm_eps);
        assert_string_equal(again.note, "");
        assert_int_equal(again.family, model.family);
        assert_int_equal(again.task, model.task);
        assert_int_equal(again.num_layers, model.num_layers);
        assert_int_equal(again.hidden, model.hidden);
        assert_int_equal(again.heads, model.heads);
        assert_int_equal(again.mlp, model.mlp);
        assert_int_equal(again.image, model.image);
        assert_int_equal(again.patch, model.patch);
        assert_int_equal(again.vocab, model.vocab);
        assert_int_equal(again.max_seq, model.max_seq);
        if (model.task == TASK_CLASSIFY)
            assert_int_equal(again.classes, model.classes);
        assert_int_equal(model_total_params(&again), model_total_params(&model));
        model_clear(&model);
        model_clear(&again);
    }
    struct model model = {0};
    assert_int_equal(model_parse("vit-tiny:unet_skips=1", &model, NULL), OK);
    assert_null(hf_config(&model, NULL));
    model_clear(&model);
}

static void hf_config__is_a_decoder_again(void **state)
{
    static const char *const texts[] = {
        "llama3.2-1b:layers=2,hidden=32,heads=4,kv_heads=2,head_dim=8,mlp=48,vocab=50,seq=16",
        "qwen3-0.6b:layers=2,hidden=32,heads=4,kv_heads=2,head_dim=12,mlp=48,vocab=50,seq=16",
        "qwen2.5-0.5b:layers=2,hidden=32,heads=4,kv_heads=2,mlp=48,vocab=50,seq=16",
        "mistral-7b:layers=2,hidden=32,heads=4,kv_heads=2,mlp=48,vocab=50,seq=16,window=4",
        "gemma-2b:layers=2,hidden=32,heads=4,kv_heads=1,head_dim=10,mlp=48,vocab=50,seq=16"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int kind = ROPE_PLAIN; kind <= ROPE_YARN; kind++) {
            struct model model = {0}, again = {0};
            struct err err = {0};
            char path[300];
            if (model_parse(texts[i], &model, &err) != OK)
                fail_msg("%s", err.msg);
            model.norm_eps = 1e-5;
            model.turns = (struct rope){.kind = (enum rope_kind)kind, .theta = 5e5};
            if (kind != ROPE_PLAIN) {
                model.turns.factor = 4;
                model.turns.original = 64;
            }
            if (kind == ROPE_LLAMA3) {
                model.turns.low = 1;
                model.turns.high = 4;
            }
            struct json *config = hf_config(&model, NULL);
            assert_non_null(config);
            snprintf(path, sizeof path, "%s/config.json", folder);
            assert_int_equal(json_write_file(config, path, NULL), OK);
            if (model_load(path, &again, &err) != OK ||
                model_config_check(config, path, &model, model.norm_eps, &err) != OK)
                fail_msg("%s", err.msg);
            json_free(config);
            assert_string_equal(again.note, "");
            assert_int_equal(model_total_params(&again), model_total_params(&model));
            assert_true((float)again.norm_eps == (float)model.norm_eps);
            assert_int_equal(again.kv_heads, model.kv_heads);
            assert_int_equal(again.head_dim, model.head_dim);
            assert_int_equal(again.block.window, model.block.window);
            assert_int_equal(again.block.qk_norm, model.block.qk_norm);
            assert_int_equal(again.turns.kind, kind);
            assert_true(again.turns.theta == 5e5 && again.turns.factor == model.turns.factor);
            if (kind != ROPE_LINEAR)
                assert_int_equal(again.turns.original, model.turns.original);
            model.turns.theta = 1e4; /* weights of another rotation */
            config = hf_config(&again, NULL);
            assert_int_equal(model_config_check(config, path, &model, 1e-5, &err), ERR_INPUT);
            json_free(config);
            model_clear(&model);
            model_clear(&again);
        }
}

/* Names of three classes of the data, and what id2label of a config.json makes of them. */
static void hf_class_order__matches_names_whatever_their_case(void **state)
{
    static const struct {
        const char *config, *words; /* of the note */
        int order[3];
        bool moved, fails;
    } cases[] = {
        {"{\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"}}",                   NULL,          {0},       false, false},
        {"{\"id2label\":{\"0\":\"C\",\"1\":\"a\",\"2\":\"B\"}}",
         "matched by name",                                                                       {1, 2, 0},
         true,                                                                                                      false},
        {"{\"id2label\":{\"2\":\"a\",\"0\":\"b\",\"1\":\"c\"}}",
         "matched by name",                                                                       {2, 0, 1},
         true,                                                                                                      false},
        {"{\"id2label\":{\"0\":\"x\",\"1\":\"a\",\"2\":\"b\"}}",
         "names other classes",                                                                   {0},
         false,                                                                                                     false},
        {"{\"id2label\":{\"0\":\"LABEL_0\",\"1\":\"LABEL_1\",\"2\":\"LABEL_2\"}}",
         NULL,                                                                                    {0},
         false,                                                                                                     false},
        {"{\"id2label\":{\"0\":\"b\",\"1\":\"a\"}}",                               NULL,          {0},       false, false},
        {"{\"id2label\":{\"0\":\"a\",\"1\":\"A\",\"2\":\"b\"}}",
         "two classes 'A'",                                                                       {0},
         false,                                                                                                     true },
        {"{}",                                                                     NULL,          {0},       false, false},
        {"[",                                                                      "config.json", {0},       false, true },
    };
    char *names[] = {"a", "b", "c"};
    const struct class_names data = {names, 3};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        char note[240] = "x";
        int *order = NULL;
        put_text("config.json", cases[i].config);
        const bool fails =
            hf_class_order(in_folder("."), &data, &order, note, sizeof note, &err) != OK;
        const char *said = fails ? err.msg : note;
        if (fails != cases[i].fails || (order != NULL) != cases[i].moved ||
            (cases[i].words ? !strstr(said, cases[i].words) : *said != '\0'))
            fail_msg("case %zu: '%s'", i, said);
        for (int c = 0; order && c < 3; c++)
            assert_int_equal(order[c], cases[i].order[c]);
        free(order);
    }
    unlink(in_folder("config.json"));
}

/* The head's rows come in the order of the data's classes, every other tensor as it is. */
static void hf_load__puts_outputs_to_classes_by_name(void **state)
{
    char *names[] = {"bad", "fair", "good"};
    const struct class_names data = {names, 3};
    static const int order[] = {2, 0, 1};
    struct model model = {0};
    struct job job = {0};
    struct err err = {0};
    struct hf_import import = {0};
    struct stage *stage = NULL;
    int heads = 0;
    (void)state;
    assert_int_equal(
        model_parse("bert-base:task=classify,classes=3,layers=1,hidden=8,heads=1,mlp=8,"
                    "seq=4,vocab=16",
                    &model, NULL),
        OK);
    put_weights("model.safetensors", &model, (struct bend){0});
    put_text("config.json", "{\"id2label\":{\"0\":\"FAIR\",\"1\":\"GOOD\",\"2\":\"BAD\"}}");
    job_defaults(&job);
    struct backend *be = backend_cpu_new(DTYPE_FP32, 1, &err);
    const struct stage_spec spec = {.model = &model,
                                    .job = &job,
                                    .backend = be,
                                    .end_item = model.num_items,
                                    .max_samples = 1,
                                    .max_live = 1};
    assert_int_equal(stage_new(&spec, &stage, &err), OK);
    const struct stage_list list = {&stage, 1, be};
    if (hf_load(in_folder("model.safetensors"), &model, &data, &list, false, &import, &err) != OK)
        fail_msg("%s", err.msg);
    assert_non_null(strstr(import.classes, "matched by name"));
    for (int i = 0; i < stage_num_params(stage); i++) {
        const struct param *param = &stage_params(stage)[i];
        const bool head = strncmp(param->name, "classifier.", 11) == 0;
        const int64_t row = param->num_elems / 3;
        heads += head;
        for (int64_t e = 0; e < param->num_elems; e++) {
            const int64_t from = head ? order[e / row] * row + e % row : e;
            assert_true(param->weight[e] == (float)i + (float)from / 1024);
        }
    }
    assert_int_equal(heads, 2);
    stage_free(stage);
    backend_free(be);
    job_clear(&job);
    model_clear(&model);
    unlink(in_folder("config.json"));
}

static void safetensors_read__names_a_tensor_that_is_not_finite(void **state)
{
    static const int64_t shape[] = {3};
    float values[][3] = {
        {1, 2,   3       },
        {1, NAN, 3       },
        {1, 2,   INFINITY}
    };
    static const char *const words[] = {
        "", "tensor 'w' holds a value that is not finite (nan, element 1)",
        "tensor 'w' holds a value that is not finite (inf, element 2)"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct tensor_out out = {"w", 1, shape, 3, values[i]};
        struct safetensors *file = NULL;
        struct tensor_info info;
        struct err err = {0};
        float got[3];
        assert_int_equal(safetensors_write(
                             in_folder("w.safetensors"),
                             &(struct tensor_source){&out, 1, tensor_fetch_host, NULL}, NULL, NULL),
                         OK);
        assert_int_equal(safetensors_open(in_folder("w.safetensors"), &file, NULL), OK);
        assert_true(safetensors_find(file, "w", &info));
        assert_int_equal(safetensors_read(file, "w", &info, got, &err), i ? ERR_INPUT : OK);
        assert_non_null(strstr(err.msg, words[i]));
        safetensors_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hf_load__takes_the_names_that_files_use, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__takes_tied_tensors_under_either_name, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__looks_through_wrappers, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_check__hints_at_the_nearest_name, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__reads_shards_and_folders, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(weights_open__says_what_a_folder_lacks, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__refuses_weights_of_another_computation,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__turns_linears_that_lie_the_other_way, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__starts_a_fresh_head_only_when_allowed, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_check__refuses_other_models, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hf_check__refuses_an_output_table_of_its_own, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(hf_check__survives_files_that_lie_about_themselves,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hf_config__is_a_model_again, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hf_config__is_a_decoder_again, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hf_class_order__matches_names_whatever_their_case,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(hf_load__puts_outputs_to_classes_by_name, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(safetensors_read__names_a_tensor_that_is_not_finite,
                                        make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
