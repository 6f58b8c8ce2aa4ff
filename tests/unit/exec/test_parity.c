/* Loss, all gradients and ten optimizer steps against PyTorch (tests/reference/parity.py and decoders.py,
 * double precision). Weights and inputs come from the integer hash of exec/base/rng.h on both sides.
 *
 * In fp32 on the cpu, and with SGD on emulated CUDA where that was built (tests/cudasim/); with
 * ELAPSE_TEST_DEVICE=cuda on the GPU instead.
 * repeated: yes */
#include <unistd.h>

#include "exec/base/backend.h"
#include "exec/base/rng.h"
#include "exec/device/devices.h"
#include "exec/stage/arch.h"
#include "exec/stage/stage.h"
#include "partition/model/lora.h"
#include "tests/unit/test.h"

enum { SAMPLES = 6, MICROBATCH = 3, STEPS = 10, SEQ = 9, VOCAB = 40, MAX_SECTIONS = 8 };

struct golden {
    char name[MAX_SECTIONS][32];
    int64_t num[MAX_SECTIONS];
    float *data[MAX_SECTIONS];
    int count;
};

static void read_golden(const char *path, struct golden *g)
{
    char line[64];
    FILE *f = fopen(path, "rb");
    memset(g, 0, sizeof *g);
    assert_non_null(f);
    while (fgets(line, sizeof line, f) && line[0] != '\n') {
        long long num;
        assert_true(g->count < MAX_SECTIONS);
        assert_int_equal(sscanf(line, "%31s %lld", g->name[g->count], &num), 2);
        g->num[g->count++] = num;
    }
    for (int i = 0; i < g->count; i++) {
        g->data[i] = malloc((size_t)g->num[i] * sizeof(float));
        assert_int_equal(fread(g->data[i], sizeof(float), (size_t)g->num[i], f), g->num[i]);
    }
    fclose(f);
}

static const float *section(const struct golden *g, const char *name, int64_t num)
{
    for (int i = 0; i < g->count; i++)
        if (strcmp(g->name[i], name) == 0) {
            assert_int_equal(g->num[i], num);
            return g->data[i];
        }
    return NULL;
}

static void free_golden(struct golden *g)
{
    for (int i = 0; i < g->count; i++)
        free(g->data[i]);
}

static struct backend *be;
static int num_optimizers = 3;

/* A tensor of the device on the host; the caller frees it. */
static float *fetch(const float *at, int64_t num)
{
    struct err err = {0};
    float *host = malloc((size_t)num * sizeof *host);
    assert_non_null(host);
    be->copy_out(be, host, at, num * (int64_t)sizeof *host);
    assert_int_equal(be->sync(be, &err), OK);
    return host;
}

static float uniform(uint32_t key, int64_t i)
{
    return (float)((double)(rng_bits(key, (uint32_t)i) >> 8) * 0x1p-24 - 0.5);
}

struct inputs {
    float images[SAMPLES * 3 * 12 * 12];
    int32_t tokens[SAMPLES * SEQ], types[SAMPLES * SEQ], lengths[SAMPLES], labels[SAMPLES * SEQ];
    int64_t ids[SAMPLES];
};

static void make_inputs(struct inputs *in, const struct model *m)
{
    const uint32_t outputs = m->task == TASK_CLASSIFY ? (uint32_t)m->classes
                             : m->task == TASK_QA     ? SEQ
                                                      : VOCAB;
    for (int i = 0; i < SAMPLES * SEQ; i++) {
        in->labels[i] = (int32_t)(rng_bits(1, (uint32_t)i) % outputs);
        if (m->task == TASK_MLM && i % 10)
            in->labels[i] = -100;
        in->tokens[i] = (int32_t)(rng_bits(3, (uint32_t)i) % VOCAB);
        in->types[i] = (int32_t)(rng_bits(4, (uint32_t)i) % 2);
    }
    for (int i = 0; i < SAMPLES * 3 * 12 * 12; i++)
        in->images[i] = 4 * uniform(2, i);
    for (int i = 0; i < SAMPLES; i++) {
        in->lengths[i] = 1 + (int32_t)(rng_bits(5, (uint32_t)i) % SEQ);
        in->ids[i] = i;
    }
}

static struct sample_block block_of(const struct inputs *in, const struct model *m, int first)
{
    const int each = m->task == TASK_CLASSIFY ? 1 : m->task == TASK_QA ? 2 : SEQ;
    const bool bert = m->family == FAMILY_BERT;
    return (struct sample_block){.num_samples = MICROBATCH,
                                 .ids = in->ids + first,
                                 .images = in->images + (int64_t)first * 3 * 12 * 12,
                                 .tokens = in->tokens + (int64_t)first * SEQ,
                                 .token_types = bert ? in->types + (int64_t)first * SEQ : NULL,
                                 .lengths = bert ? in->lengths + first : NULL,
                                 .labels = in->labels + (int64_t)first * each};
}

/* Largest difference in units of tol * (1 + scale of the tensor). */
static void assert_close(const char *what, const char *tensor, const float *device_got,
                         const float *want, const float *grad, int64_t num, double tol)
{
    float *got = fetch(device_got, num);
    double scale = 0.0;
    for (int64_t i = 0; i < num; i++)
        scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < num; i++) {
        /* An Adam step divides by |gradient|: where the true one is zero (key biases), rounding
         * noise alone decides. */
        if (grad && fabsf(grad[i]) < 1e-5f)
            continue;
        if (!(fabs((double)got[i] - want[i]) <= tol * (scale + 1e-2)))
            fail_msg("%s of %s[%lld]: %.9g, PyTorch %.9g (scale %g)", what, tensor, (long long)i,
                     got[i], want[i], scale);
    }
    free(got);
}

/* Weights from the hash, those of norms around 1. */
static void set_weights(const struct param *p, uint32_t key)
{
    struct err err = {0};
    const float centre =
        p->ndim == 1 && strcmp(strrchr(p->name, '.'), ".weight") == 0 ? 1.0f : 0.0f;
    float *host = malloc((size_t)p->num_elems * sizeof *host);
    assert_non_null(host);
    for (int64_t i = 0; i < p->num_elems; i++)
        host[i] = centre + 0.5f * uniform(key, i);
    be->copy_in(be, p->weight, host, p->num_elems * (int64_t)sizeof *host);
    assert_int_equal(be->sync(be, &err), OK);
    free(host);
}

/* Adapters of train.lora. rank 0: none. */
struct adapters {
    int rank;
    float scale;
    const char *targets;
};

/* The products of adapters that plan counts are those of this executor. */
static void compare_flops(const struct model *model)
{
    struct arch arch;
    assert_int_equal(arch_init(model, &arch, NULL), OK);
    for (int i = 0; i < model->num_items; i++) {
        struct adapter list[LORA_PRODUCTS];
        const int num = adapters_of(model, i, list);
        const int64_t rows = model->items[i].kind == ITEM_POOLER ? 1 : arch.seq;
        int64_t flops = 0;
        for (int n = 0; n < num; n++)
            flops += 2 * rows * model->lora.rank * ((int64_t)list[n].in + list[n].out);
        assert_int_equal(model_adapter_flops(model, i), flops);
    }
}

static void compare(const struct model_spec *spec, const struct adapters *lora, const char *name)
{
    static const struct {
        enum optimizer_kind kind;
        const char *name;
        double lr, tol;
    } optimizers[] = {
        {OPTIMIZER_SGD,   "sgd",   0.05, 3e-5},
        {OPTIMIZER_ADAMW, "adamw", 0.01, 2e-3},
        {OPTIMIZER_LAMB,  "lamb",  0.01, 2e-3}
    };
    struct err err = {0};
    struct golden golden;
    struct job job;
    struct inputs *in = calloc(1, sizeof *in);
    char path[128], key[32];
    snprintf(path, sizeof path, "tests/golden/parity-%s.bin", name);
    read_golden(path, &golden);
    job_defaults(&job);
    model_clear(&job.model);
    assert_int_equal(model_build(spec, &job.model, &err), OK);
    if (lora) {
        struct lora_ask ask = {
            .rank = lora->rank, .alpha = lora->scale * (float)lora->rank, .head = true};
        snprintf(ask.targets, sizeof ask.targets, "%s", lora->targets);
        assert_int_equal(model_set_lora(&job.model, &ask, &err), OK);
        compare_flops(&job.model);
    }
    make_inputs(in, &job.model);
    for (int o = 0; o < num_optimizers; o++) {
        snprintf(key, sizeof key, "%s-losses", optimizers[o].name);
        const float *losses = section(&golden, key, STEPS);
        if (!losses)
            continue;
        job.train.optimizer.kind = optimizers[o].kind;
        job.train.optimizer.weight_decay = 0.01;
        const struct stage_spec stage_spec = {.model = &job.model,
                                              .job = &job,
                                              .backend = be,
                                              .end_item = job.model.num_items,
                                              .max_samples = MICROBATCH,
                                              .max_live = 1};
        struct stage *stage;
        int64_t total = 0, trains = 0;
        assert_int_equal(stage_new(&stage_spec, &stage, &err), OK);
        struct param *params = stage_params(stage);
        const int num_params = stage_num_params(stage);
        for (int t = 0; t < num_params; t++) {
            set_weights(&params[t], 1000 + (uint32_t)t);
            total += params[t].num_elems;
            trains += params[t].frozen ? 0 : params[t].num_elems;
        }
        stage_round_weights(stage);
        assert_int_equal(model_total_params(&job.model), trains); /* what plan counts */
        const float *grads = section(&golden, "grads", trains);
        for (int step = 0; step < STEPS; step++) {
            struct loss_sums sum = {0}, loss[SAMPLES / MICROBATCH];
            stage_begin_grad(stage);
            /* Two micro-batches; the real count is known before the first backward. */
            for (int pass = 0; pass < 2; pass++)
                for (int mb = 0; mb < SAMPLES / MICROBATCH; mb++) {
                    const struct sample_block b = block_of(in, &job.model, mb * MICROBATCH);
                    void *out, *none = NULL;
                    assert_int_equal(
                        stage_forward(stage,
                                      &(struct stage_batch){.block = &b, .step = (uint64_t)step},
                                      &none, &out, pass == 1, &err),
                        OK);
                    assert_int_equal(stage_loss(stage, 0, &loss[mb], &err), OK);
                    if (pass == 0) {
                        sum.loss += loss[mb].loss;
                        sum.count += loss[mb].count;
                        continue;
                    }
                    assert_int_equal(
                        stage_backward(stage,
                                       &(struct stage_batch){.block = &b,
                                                             .step = (uint64_t)step,
                                                             .grad_scale = 1.0f / (float)sum.count},
                                       BACKWARD_BOTH, NULL, NULL, &err),
                        OK);
                }
            stage_tied_add(stage);
            const double mean = sum.loss / (double)sum.count;
            if (!(fabs(mean - losses[step]) <= 5e-5 * losses[step] * (o ? 20 : 1)))
                fail_msg("%s %s, step %d: loss %.9g, PyTorch %.9g", name, optimizers[o].name, step,
                         mean, losses[step]);
            int64_t at = 0;
            if (step == 0)
                for (int t = 0; t < num_params; t++) {
                    assert_int_equal(!params[t].grad, params[t].frozen);
                    if (params[t].frozen)
                        continue;
                    assert_close("gradient", params[t].name, params[t].grad, grads + at, NULL,
                                 params[t].num_elems, 1e-5);
                    at += params[t].num_elems;
                }
            stage_update(stage, (uint64_t)step, optimizers[o].lr, 1.0f, false);
        }
        snprintf(key, sizeof key, "%s-weights", optimizers[o].name);
        const float *weights = section(&golden, key, total);
        int64_t at = 0;
        for (int t = 0; t < num_params; at += params[t++].num_elems)
            assert_close(optimizers[o].name, params[t].name, params[t].weight, weights + at,
                         o > 0 ? grads + at : NULL, params[t].num_elems, optimizers[o].tol);
        stage_free(stage);
    }
    job_clear(&job);
    free_golden(&golden);
    free(in);
}

static struct model_spec spec_of(enum model_family family, enum model_task task, int classes)
{
    return (struct model_spec){.family = family,
                               .task = task,
                               .name = "parity",
                               .num_layers = 2,
                               .hidden = 16,
                               .heads = 2,
                               .mlp = 32,
                               .image = family == FAMILY_VIT ? 12 : 0,
                               .patch = family == FAMILY_VIT ? 4 : 0,
                               .channels = family == FAMILY_VIT ? 3 : 0,
                               .classes = classes,
                               .seq = family == FAMILY_VIT ? 0 : SEQ,
                               .max_seq = family == FAMILY_VIT ? 0 : 12,
                               .vocab = family == FAMILY_VIT ? 0 : VOCAB,
                               .elem_bytes = 4};
}

static void stage__matches_pytorch_vit(void **state)
{
    (void)state;
    const struct model_spec spec = spec_of(FAMILY_VIT, TASK_CLASSIFY, 5);
    compare(&spec, NULL, "vit-classify");
}

static void stage__matches_pytorch_bert(void **state)
{
    (void)state;
    const struct model_spec classify = spec_of(FAMILY_BERT, TASK_CLASSIFY, 3);
    const struct model_spec qa = spec_of(FAMILY_BERT, TASK_QA, 0);
    const struct model_spec mlm = spec_of(FAMILY_BERT, TASK_MLM, 0);
    compare(&classify, NULL, "bert-classify");
    compare(&qa, NULL, "bert-qa");
    compare(&mlm, NULL, "bert-mlm");
}

static void stage__matches_pytorch_gpt(void **state)
{
    (void)state;
    const struct model_spec spec = spec_of(FAMILY_GPT, TASK_CAUSAL_LM, 0);
    compare(&spec, NULL, "gpt-lm");
}

/* As OTHERS and ADAPTERS of tests/reference/decoders.py: classifiers train beside their adapters. */
static void stage__matches_peft(void **state)
{
    static const struct {
        enum model_family family;
        enum model_task task;
        int classes;
        const char *golden;
        struct adapters lora;
    } rows[] = {
        {FAMILY_GPT,  TASK_CAUSAL_LM, 0, "lora-gpt",  {3, 2.0f, "c_attn,c_proj,c_fc"}      },
        {FAMILY_BERT, TASK_CLASSIFY,  3, "lora-bert", {3, 2.0f, "query,value,dense"}       },
        {FAMILY_VIT,  TASK_CLASSIFY,  5, "lora-vit",  {2, 1.5f, "query,k_proj,fc1,mlp.fc2"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct model_spec spec = spec_of(rows[i].family, rows[i].task, rows[i].classes);
        compare(&spec, &rows[i].lora, rows[i].golden);
    }
}

/* As MODELS and ADAPTERS of tests/reference/decoders.py. */
static void stage__matches_transformers_decoders(void **state)
{
    static const struct {
        const char *type;
        int kv_heads, head_dim, tied, window;
        struct rope turns;
        const char *golden;
        struct adapters lora;
    } rows[] = {
        {"llama",   2, 4, 0, 0, {ROPE_LLAMA3, 100, 4, 12, .low = 1, .high = 4}, NULL,         {0}             },
        {"qwen2",   2, 4, 1, 0, {ROPE_LINEAR, .factor = 2},                     NULL,         {0}             },
        {"qwen3",   1, 6, 0, 0, {ROPE_YARN, 50, 3, 64, .low = 0},               NULL,         {0}             },
        {"mistral", 4, 4, 0, 4, {.theta = 1000},                                NULL,         {0}             },
        {"gemma",   1, 8, 1, 0, {.theta = 1000},                                NULL,         {0}             },
        {"llama",
         2,            4,
         0,                  0,
         {ROPE_LLAMA3, 100, 4, 12, .low = 1, .high = 4},
         "lora-llama",                                                                        {3, 2.0f, "all"}},
        {"qwen2",   2, 4, 1, 0, {ROPE_LINEAR, .factor = 2},                     "lora-qwen2", {2, 2.5f, "qkv"}},
        {"qwen3",   1, 6, 0, 0, {ROPE_YARN, 50, 3, 64, .low = 0},               "lora-mlp",   {4, 0.5f, "mlp"}},
    };
    (void)state;
    if (!be->rmsnorm_forward)
        skip(); /* the backend has no kernels of decoders */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_spec spec = spec_of(FAMILY_LLAMA, TASK_CAUSAL_LM, 0);
        spec.heads = 4;
        spec.mlp = 24;
        spec.max_seq = 0;
        spec.norm_eps = 1e-5;
        spec.kv_heads = rows[i].kv_heads;
        spec.head_dim = rows[i].head_dim;
        spec.tied_head = rows[i].tied;
        spec.block.window = rows[i].window;
        spec.turns = rows[i].turns;
        model_type_apply(model_type_find(rows[i].type), &spec);
        compare(&spec, rows[i].golden ? &rows[i].lora : NULL,
                rows[i].golden ? rows[i].golden : rows[i].type);
    }
}

static int open_device(const char *device)
{
    struct err err = {0};
    be = backend_new(&(struct backend_spec){.device = device, .dtype = DTYPE_FP32, .threads = 2},
                     &err);
    if (!be)
        print_error("%s\n", err.msg);
    return be ? 0 : -1;
}
static int open_first(void **state)
{
    const char *device = getenv("ELAPSE_TEST_DEVICE");
    (void)state;
    return open_device(device ? device : "cpu");
}
static int open_emulated(void **state)
{
    (void)state;
    num_optimizers = 1; /* the others' kernels: tests/unit/exec/test_backend_cuda.c */
    return open_device("cuda");
}
static int close_device(void **state)
{
    (void)state;
    backend_free(be);
    be = NULL;
    return 0;
}

/* Unless the device was named: the path of the emulation beside this program, or false. */
static bool emulation(char *path, size_t size)
{
    ssize_t length = getenv("ELAPSE_TEST_DEVICE") ? 0 : readlink("/proc/self/exe", path, size - 64);
    if (length <= 0)
        return false;
    path[length] = '\0';
    snprintf(strrchr(path, '/'), 64, "/../cudasim/elapse-cuda-plain.so");
    return access(path, R_OK) == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage__matches_pytorch_vit),
        cmocka_unit_test(stage__matches_pytorch_bert),
        cmocka_unit_test(stage__matches_pytorch_gpt),
        cmocka_unit_test(stage__matches_transformers_decoders),
        cmocka_unit_test(stage__matches_peft),
    };
    char path[4096];
    int failed = cmocka_run_group_tests_name("parity", tests, open_first, close_device);
    if (test_all() && emulation(path, sizeof path)) {
        setenv("ELAPSE_CUDA_LIB", path, 1);
        failed += cmocka_run_group_tests_name("parity, emulated cuda", tests, open_emulated,
                                              close_device);
    }
    return failed;
}
