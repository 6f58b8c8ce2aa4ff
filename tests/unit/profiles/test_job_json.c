#include "profiles/cost/profile_cost.h"
#include "profiles/job/job_json.h"

#include <ctype.h>
#include <unistd.h>

#include "profiles/job/job_parts.h"
#include "tests/unit/fail_malloc.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static const char design_job[] =
    "{ \"name\": \"vit-cifar10\",\n"
    "  \"model\": {\"family\": \"vit\", \"preset\": \"vit-b16\", \"image\": 224, \"classes\": "
    "10},\n"
    "  \"data\": {\"kind\": \"cifar10\", \"path\": \"data/cifar10\", \"augment\": \"none\"},\n"
    "  \"train\": {\"epochs\": 10, \"batch\": {\"per_pipeline\": 320},\n"
    "    \"optimizer\": {\"kind\": \"sgd\", \"lr\": 0.03, \"momentum\": 0.9},\n"
    "    \"lr_schedule\": {\"kind\": \"cosine\", \"warmup_steps\": 100}, \"clip_norm\": 1.0,\n"
    "    \"dtype\": \"fp32\", \"seed\": 1},\n"
    "  \"cluster\": \"rtx5000-2x8\",\n"
    "  \"pipeline\": {\"num_stages\": \"auto\", \"num_replicas\": \"auto\",\n"
    "    \"num_microbatches\": \"auto\", \"schedule\": \"auto\", \"balancer\": \"optimal\"},\n"
    "  \"freeze\": {\"policy\": \"gradient-norm\", \"alpha\": \"1/3\"},\n"
    "  \"elastic\": {\"auto_pipe\": true, \"auto_dp\": true},\n"
    "  \"cache\": {\"policy\": \"auto\"} }\n";

/* A job from text. */
static enum status parse(const char *text, const char *what, const char *folder,
                         const char *const *overrides, int n, struct job *job, struct err *err)
{
    struct json *root = NULL;
    enum status rc = json_parse(text, what, &root, err);
    if (rc == OK)
        rc = job_from_json(root, what, folder, overrides, n, job, err);
    json_free(root);
    return rc;
}

static void load(const char *path, const char *const *overrides, int n, struct job *job)
{
    struct err err = {0};
    if (job_load(path, overrides, n, job, &err) != OK)
        fail_msg("%s", err.msg);
}

static void job_load__reads_job_of_design(void **state)
{
    (void)state;
    struct job job = {0};
    char expected[128];
    load(file_with("job.json", design_job), NULL, 0, &job);
    assert_string_equal(job.name, "vit-cifar10");
    assert_int_equal(job.model.num_items, 27);
    assert_int_equal(job.model.classes, 10);
    assert_int_equal(job.data.kind, DATA_CIFAR10);
    snprintf(expected, sizeof expected, "%s/data/cifar10", scratch);
    assert_string_equal(job.data.path, expected);
    assert_false(job.data.augment);
    assert_int_equal(job.train.epochs, 10);
    assert_int_equal(job.train.batch, 320);
    assert_int_equal(job.train.batch_mode, BATCH_PER_PIPELINE);
    assert_true(job.train.optimizer.lr == 0.03);
    assert_int_equal(job.train.lr_schedule, LR_COSINE);
    assert_int_equal(job.train.warmup_steps, 100);
    assert_int_equal(job.cluster.num_devices, 16);
    assert_int_equal(job.pipeline.num_stages, AUTO);
    assert_true(job.pipeline.schedule_auto);
    assert_int_equal(job.freeze.policy, FREEZE_GRADIENT_NORM);
    assert_true(job.freeze.alpha == 1.0 / 3);
    assert_int_equal(job_num_samples(&job, true), 50000);
    job_clear(&job);
}

static const char plain[] = "{\"model\": \"vit-b16\", \"data\": {\"train_samples\": 1000}}";

static void job_load__freezes_safely_where_no_policy_is_named(void **state)
{
    static const struct {
        const char *set;
        enum freeze_policy policy;
        double alpha;
    } cases[] = {
        {"name=x",                    FREEZE_NONE,        1.0 / 3},
        {"freeze.record=true",        FREEZE_NONE,        1.0 / 3},
        {"freeze.max_loss=2",         FREEZE_SAFE,        0.5    },
        {"freeze.min_active=1",       FREEZE_SAFE,        0.5    },
        {"freeze.alpha=1/5",          FREEZE_SAFE,        0.2    },
        {"freeze.policy=safe",        FREEZE_SAFE,        0.5    },
        {"freeze.policy=closed-form", FREEZE_CLOSED_FORM, 1.0 / 3},
        {"freeze.max_share=0.2",      FREEZE_TIMED,       1.0 / 3},
        {"freeze.policy=timed",       FREEZE_TIMED,       1.0 / 3},
        {"freeze.table=[0,1]",        FREEZE_TABLE,       1.0 / 3},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = {0};
        load(file_with("job.json", plain), &cases[i].set, 1, &job);
        assert_int_equal(job.freeze.policy, cases[i].policy);
        assert_true(job.freeze.alpha == cases[i].alpha);
        assert_int_equal(job.freeze.max_share > 0, job.freeze.policy == FREEZE_TIMED);
        job_clear(&job);
    }
}

static void job_load__notes_keys_without_effect(void **state)
{
    static const struct {
        const char *sets[2], *note;
    } cases[] = {
        {{"name=x"},                                                  ""                                                            },
        {{"data.path=/data/cifar10"},                                 "data.path has no effect without data.kind"                   },
        {{"train.optimizer.beta1=0.5", "train.optimizer.kind=sgd"},
         "train.optimizer.beta1 has no effect without train.optimizer.kind=adamw|lamb"                                              },
        {{"train.optimizer.beta1=0.5", "train.optimizer.kind=adamw"}, ""                                                            },
        {{"train.lora.alpha=16"},                                     "train.lora.alpha has no effect without train.lora.rank"      },
        {{"train.lora.alpha=16", "train.lora.rank=4"},                ""                                                            },
        {{"freeze.choice=random"},
         "freeze.choice has no effect without freeze.max_share or freeze.policy=timed"                                              },
        {{"freeze.choice=random", "freeze.max_share=0.2"},            ""                                                            },
        {{"freeze.choice=random", "freeze.policy=timed"},             ""                                                            },
        {{"pipeline.sequence_parallel=true"},
         "pipeline.sequence_parallel has no effect without pipeline.tensor"                                                         },
        {{"pipeline.sequence_parallel=true", "pipeline.tensor=auto"}, ""                                                            },
        {{"train.expert_load=2"},                                     "train.expert_load has no effect without a model with experts"},
        {{"train.expert_load=2", "model=mixtral-8x7b"},               ""                                                            },
        {{"pipeline.recompute_layers=1", "pipeline.recompute=never"},
         "pipeline.recompute_layers has no effect without pipeline.recompute=layer|auto|fit"                                        },
        {{"pipeline.recompute_layers=1", "pipeline.recompute=layer"}, ""                                                            },
        {{"train.lora.alpha=16", "train.fp8_attention=true"},
         "train.fp8_attention has no effect without train.dtype=fp8|mxfp8|nvfp4; "
         "train.lora.alpha has no effect without train.lora.rank"                                                                   },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = {0};
        load(file_with("job.json", plain), cases[i].sets, cases[i].sets[1] ? 2 : 1, &job);
        assert_string_equal(job.model.note, cases[i].note);
        job_clear(&job);
    }
    /* Each condition names a key, and values that it has. */
    for (int i = 0; i < job_keys.num; i++) {
        const char *needs = job_keys.rows[i].needs;
        for (const char *at = needs; at; at = strstr(at, " or ") ? strstr(at, " or ") + 4 : NULL) {
            char key[64], takes[512], word[64];
            const size_t n = strcspn(at, "= ");
            if (strncmp(at, "a model", 7) == 0)
                continue;
            snprintf(key, sizeof key, "%.*s", (int)n, at);
            const struct member *row = fields_find(job_keys.rows, job_keys.num, key, NULL);
            assert_non_null(row);
            for (const char *w = at + n; *w == '=' || *w == '|'; w += strcspn(w + 1, "| ") + 1) {
                snprintf(word, sizeof word, "%.*s", (int)strcspn(w + 1, "| "), w + 1);
                assert_non_null(strstr(member_takes(row, takes, sizeof takes), word));
            }
        }
    }
}

/* With a budget and no max_share, timed lets the budget of safe set the shares, and no prefix. */
static void job_load__gives_timed_the_budget(void **state)
{
    (void)state;
    static const char *const sets[] = {"freeze.policy=timed", "freeze.max_loss=2",
                                       "freeze.max_share=0.3"};
    struct job job = {0};
    load(file_with("job.json", plain), sets, 2, &job);
    assert_int_equal(job.freeze.policy, FREEZE_SAFE);
    assert_true(job.freeze.max_share == 1 && job.model.num_layers > 0);
    assert_int_equal(job.freeze.min_active, job.model.num_layers);
    job_clear(&job);
    load(file_with("job.json", plain), sets, 3, &job);
    assert_int_equal(job.freeze.policy, FREEZE_TIMED);
    assert_true(job.freeze.max_share == 0.3);
    job_clear(&job);
}

/* A model's text knows no dropout and has its masks; a job without it takes them out. */
static void job_load__counts_dropout_where_there_is_some(void **state)
{
    (void)state;
    static const char *const none[] = {"model=gpt2:layers=1"}, *const some[] = {
                                                                   "model=gpt2:layers=1",
                                                                   "train.dropout=0.1"};
    struct job job = {0}, drops = {0};
    load(file_with("job.json", plain), none, 1, &job);
    load(file_with("job.json", plain), some, 2, &drops);
    assert_int_equal(drops.model.items[2].stash_bytes - job.model.items[2].stash_bytes,
                     (int64_t)job.model.seq * job.model.hidden);
    job_clear(&job);
    job_clear(&drops);
}

static void job_load__applies_overrides_in_order(void **state)
{
    (void)state;
    static const char *const overrides[] = {"freeze.alpha=1/5",        "pipeline.num_stages=4",
                                            "pipeline.schedule=zb-h1", "train.batch.global=64",
                                            "train.batch.global=96",   "name=7",
                                            "model.classes=100",       "cluster=2x4",
                                            "cluster.link=25GBps",     "cluster.mem=16GiB",
                                            "freeze.table=[0,0,6,8]",  "freeze.policy=table",
                                            "cache.limit_bytes=1GiB",  "data.train_samples=1000",
                                            "pipeline.recompute=auto"};
    struct job job = {0};
    load(file_with("job.json", design_job), overrides, 15, &job);
    assert_true(job.freeze.alpha == 0.2);
    assert_int_equal(job.pipeline.num_stages, 4);
    assert_false(job.pipeline.schedule_auto);
    assert_int_equal(job.pipeline.schedule, SCHEDULE_ZB_H1);
    assert_int_equal(job.train.batch_mode, BATCH_GLOBAL);
    assert_int_equal(job.train.batch, 96);
    assert_string_equal(job.name, "7");
    assert_int_equal(job.model.classes, 100);
    assert_int_equal(job.cluster.num_devices, 8);
    assert_true(job.cluster.devices[7].link_bytes_per_s == 25e9);
    assert_true(job.cluster.devices[7].mem_bytes == 16LL << 30);
    assert_int_equal(job.freeze.num_table, 4);
    assert_int_equal(job.freeze.table[2], 6);
    assert_true(job.cache.limit_bytes == 1LL << 30);
    assert_int_equal(job_num_samples(&job, true), 1000);
    assert_true(job.pipeline.recompute_auto);
    job_clear(&job);
}

static void job_changed__equals_a_job_loaded_with_all_overrides(void **state)
{
    (void)state;
    const char *const overrides[] = {"train.batch.global=64", "model.classes=100",
                                     "freeze.alpha=1/5", "data.path=x"};
    static const char text[] = "{\"model\": \"vit-b16\", \"cluster\": \"1x2\"}";
    const char *path = file_with("job.json", text);
    for (int first = 0; first <= 4; first++)
        for (int open = 0; open < 2; open++) {
            struct job job = {0}, changed = {0}, whole = {0}, point = {0};
            struct err err = {0};
            load(path, overrides, 4, &whole);
            assert_int_equal((open ? job_open : job_load)(path, overrides, first, &job, &err), OK);
            assert_int_equal(job_changed(&job, overrides + first, 4 - first, &changed, &err), OK);
            assert_string_equal(changed.json, whole.json);
            assert_int_equal(changed.freeze.policy, FREEZE_SAFE);
            assert_int_equal(job_point(&job, overrides + first, 4 - first, &point, &err), OK);
            assert_null(point.json);
            assert_string_equal(point.text, changed.text);
            assert_int_equal(point.freeze.policy, FREEZE_SAFE);
            assert_int_equal(point.train.batch, 64);
            assert_int_equal(point.model.classes, 100);
            job_clear(&point);
            job_clear(&job);
            job_clear(&changed);
            job_clear(&whole);
        }
}

/* The resolved text is a job file again, with the same resolved text. */
static void job_json__gives_the_same_job_when_loaded_again(void **state)
{
    (void)state;
    static const char *const overrides[] = {"freeze.table=mild",
                                            "freeze.policy=table",
                                            "pipeline.frozen=first",
                                            "freeze.norms=[[1,2,3,4,5,6,7,8,9,10,11,12.25]]",
                                            "baseline.pipeline.num_stages=8",
                                            "baseline.freeze.policy=none",
                                            "cache.dir=spill"};
    struct job job = {0}, again = {0};
    struct err err = {0};
    load(file_with("job.json", design_job), overrides, 7, &job);
    assert_int_equal(job.num_baseline, 2);
    assert_string_equal(job.baseline[0], "pipeline.num_stages=8");
    assert_string_equal(job.baseline[1], "freeze.policy=none");
    if (parse(job.json, "again", "/elsewhere", NULL, 0, &again, &err) != OK)
        fail_msg("%s", err.msg);
    assert_string_equal(again.json, job.json);
    assert_string_equal(again.cache.dir, job.cache.dir);
    assert_int_equal(again.norm_epochs, 1);
    assert_true(again.norms[11] == 12.25);
    assert_memory_equal(again.freeze.table, job.freeze.table,
                        (size_t)job.freeze.num_table * sizeof(int));
    job_clear(&job);
    job_clear(&again);
}

static void refuses(const char *override, enum status status, const char *message, const char *hint)
{
    struct job job = {0};
    struct err err = {0};
    const char *path = file_with("job.json", design_job);
    char expected[400];
    assert_int_equal(job_load(path, &override, 1, &job, &err), status);
    bool in_file = strncmp(message, "FILE", 4) == 0;
    snprintf(expected, sizeof expected, "%s%s", in_file ? path : "",
             in_file ? message + 4 : message);
    assert_string_equal(err.msg, expected);
    if (hint)
        assert_string_equal(err.hint, hint);
    assert_null(job.json);
    assert_null(job.model.items);
}

static void job_load__takes_the_short_words_of_the_field(void **state)
{
    (void)state;
    const char *const overrides[] = {"tp=2", "pp=3", "pipeline.dp=2", "GBS=60", "vp=2"};
    struct job job = {0};
    load(file_with("job.json", design_job), overrides, 5, &job);
    assert_int_equal(job.pipeline.layout.at.tensor, 2);
    assert_int_equal(job.pipeline.num_stages, 3);
    assert_int_equal(job.pipeline.num_replicas, 2);
    assert_int_equal(job.pipeline.chunks, 2);
    assert_int_equal(job.train.batch, 60);
    assert_int_equal(job.train.batch_mode, BATCH_GLOBAL);
    job_clear(&job);
}

static void job_load__counts_tokens_as_samples_of_synthetic_data(void **state)
{
    (void)state;
    const char *const overrides[] = {"model=gpt2", "data.kind=synthetic", "train.tokens=10241",
                                     "gbs=2", "train.epochs=1"};
    struct job job = {0};
    load(file_with("job.json", "{\"model\": \"vit-b16\"}"), overrides, 5, &job);
    assert_int_equal(job_num_samples(&job, true), 11); /* of 1024 tokens each, rounded up */
    job_clear(&job);
    refuses("train.tokens=5", ERR_INPUT,
            "FILE: train.tokens needs synthetic data without train_samples", NULL);
}

static void job_load__lays_documents_into_rows(void **state)
{
    (void)state;
    const char *const overrides[] = {"model=gpt2", "data.kind=synthetic", "data.length=250",
                                     "data.documents=1001", "gbs=2"};
    struct job job = {0};
    load(file_with("job.json", "{\"model\": \"vit-b16\"}"), overrides, 5, &job);
    assert_int_equal(job_num_samples(&job, true), 251); /* four in a row of 1,024 tokens */
    assert_non_null(strstr(job.json, "\"length\":250"));
    job_clear(&job);
    refuses("data.documents=5", ERR_INPUT, "FILE: data.documents needs data.length", NULL);
    refuses("train.rows=longest", ERR_INPUT, "FILE: train.rows needs data.length", NULL);
}

static void job_load__names_our_word_for_that_of_another_tool(void **state)
{
    (void)state;
    static const struct {
        const char *key, *ours;
    } keys[] = {
        {"pipeline.tensor_parallel",            "use pipeline.tensor"       },
        {"pipeline.tensor-model-parallel-size", "use pipeline.tensor"       },
        {"tp_size",                             "use pipeline.tensor"       },
        {"train.zero",                          "use pipeline.shard"        },
        {"train.fsdp",                          "use pipeline.shard=weights"},
        {"train.lr",                            "use train.optimizer.lr"    },
        {"Learning_Rate",                       "use train.optimizer.lr"    },
        {"device",                              "use train.device"          },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char override[96], message[96];
        snprintf(override, sizeof override, "%s=1", keys[i].key);
        snprintf(message, sizeof message, "--set: unknown key '%s'", keys[i].key);
        refuses(override, ERR_INPUT, message, keys[i].ours);
    }
    refuses("train.batch=64", ERR_INPUT, "FILE: train.batch must be an object, got 64",
            "use train.batch.per_pipeline or train.batch.global");
    refuses("train.optimizer.kind=adam", ERR_INPUT,
            "FILE: train.optimizer.kind must be sgd|adamw|lamb, got \"adam\"", "use adamw");
    refuses("train.dtype=bfloat16", ERR_INPUT,
            "FILE: train.dtype must be fp32|bf16|tf32|fp16|fp8|mxfp8|nvfp4, got \"bfloat16\"",
            "use bf16");
    refuses("train.dtype=float16", ERR_INPUT,
            "FILE: train.dtype must be fp32|bf16|tf32|fp16|fp8|mxfp8|nvfp4, got \"float16\"",
            "use fp16");
    refuses("train.device=gpu", ERR_INPUT, "FILE: train.device must be cpu|cuda, got \"gpu\"",
            "use cuda");
    refuses("pipeline.shard=ZeRO-3", ERR_INPUT,
            "FILE: pipeline.shard must be none|optimizer|gradients|weights|auto, got \"ZeRO-3\"",
            "use weights");
    refuses("cluster.tp=1", ERR_INPUT, "FILE: unknown key 'cluster.tp'", NULL); /* no key of it */
}

static void job_load__names_file_key_value_and_limit_when_refusing(void **state)
{
    (void)state;
    refuses(
        "freeze.alfa=1", ERR_INPUT, "--set: unknown key 'freeze.alfa', nearest is 'freeze.alpha'",
        "valid keys of freeze: policy alpha max_loss min_active warmup every_steps record probe "
        "anneal head max_share choice rescale apf_every apf_threshold apf_decay table norms "
        "evidence");
    refuses("pipelin.num_stages=1", ERR_INPUT,
            "--set: unknown key 'pipelin.num_stages', nearest is 'pipeline.num_stages'", NULL);
    refuses("pipeline.num_stages=0", ERR_INPUT,
            "FILE: pipeline.num_stages must be \"auto\" or 1..2147483647, got 0", NULL);
    refuses("pipeline.num_stages=many", ERR_INPUT,
            "FILE: pipeline.num_stages must be \"auto\" or an integer 1..2147483647, got \"many\"",
            NULL);
    refuses("train.epochs=1.5", ERR_INPUT, "FILE: train.epochs must be 0..1000000, got 1.5", NULL);
    refuses("train.epochs=true", ERR_INPUT,
            "FILE: train.epochs must be an integer 0..1000000, got true", NULL);
    refuses("data.train_samples=319", ERR_INPUT,
            "FILE: train.batch of 320 exceeds the 319 training samples (data.train_samples)", NULL);
    refuses("train.batch.global=50001", ERR_INPUT, /* the published size of the set */
            "FILE: train.batch of 50001 exceeds the 50000 training samples (data.train_samples)",
            NULL);
    refuses("train.loss_scale=1", ERR_INPUT, "--set: unknown key 'train.loss_scale'",
            "use train.dtype=bf16, which needs no loss scaling");
    refuses("cost.source=ideal", ERR_INPUT,
            "FILE: cost.source must be auto|kernels|roofline|profile, got \"ideal\"", NULL);
    refuses("cost.efficiency=0", ERR_INPUT, "FILE: cost.efficiency must be 1e-6..10, got 0", NULL);
    refuses("pipeline.expert=some", ERR_INPUT,
            "FILE: pipeline.expert must be \"auto\" or an integer 1..65536, got \"some\"", NULL);
    refuses("pipeline.sequence_parallel=some", ERR_INPUT,
            "FILE: pipeline.sequence_parallel must be true, false or auto, got \"some\"", NULL);
    refuses("pipeline.expert=2", ERR_INFEASIBLE,
            "FILE: pipeline.expert 2: model 'vit-b16' has no experts", NULL);
    refuses("pipeline.schedule=pipedream", ERR_INPUT,
            "FILE: pipeline.schedule must be "
            "gpipe|1f1b|interleaved|zb-h1|zb-h2|zb-v|dualpipe-v|"
            "eager-1f1b|breadth-first|v-half|v-min|looped-bfs|search|auto|[...], got \"pipedream\"",
            NULL);
    refuses("freeze.alpha=2", ERR_INPUT, "FILE: freeze.alpha must be in (0, 1), got 2", NULL);
    refuses("freeze.max_loss=-1", ERR_INPUT, "FILE: freeze.max_loss must be at least 0, got -1",
            NULL);
    refuses("freeze.alpha=x", ERR_INPUT, "FILE: freeze.alpha must be a number in (0, 1), got \"x\"",
            NULL);
    refuses("train=3", ERR_INPUT, "FILE: train must be an object, got 3", NULL);
    refuses("train.batch.per_pipeline=0", ERR_INPUT,
            "FILE: train.batch.per_pipeline must be an integer 1..2147483647, got 0", NULL);
    refuses("cluster.link=0Bps", ERR_INPUT,
            "FILE: cluster.link must be a bandwidth like \"5GBps\" or bytes per second 1..10^18, "
            "or [[bytes, rate], ...], got \"0Bps\"",
            NULL);
    refuses("model.clases=3", ERR_INPUT,
            "FILE: model: model 'vit-b16' has no key 'clases'; did you mean 'classes'?", NULL);
    refuses("freeze.table=[0,13]", ERR_INPUT,
            "FILE: freeze.table[1] must be 0..12 (layers), got 13", NULL);
    refuses("freeze.norms=[1,2]", ERR_INPUT,
            "FILE: freeze.norms[0] must be an array of 12 norms (layers), got a number", NULL);
    refuses("freeze.norms=[[1,2]]", ERR_INPUT,
            "FILE: freeze.norms[0] must be an array of 12 norms (layers), got an array of 2", NULL);
    refuses("baseline.freeze.polcy=none", ERR_INPUT,
            "FILE: unknown key 'baseline.freeze.polcy', nearest is 'freeze.policy'", NULL);
    refuses("name=a\n\x1b[2J", ERR_INPUT,
            "FILE: name must be a text of at most 63 characters, no control characters, got "
            "\"a\\n\\u001b[2J\"",
            NULL);
    refuses("novalue", ERR_INPUT, "--set 'novalue': must be key=value", NULL);
    char table[96], none[128];
    snprintf(table, sizeof table, "freeze.table=%s", at("none/t.json"));
    snprintf(none, sizeof none, "cannot read '%s': No such file or directory", at("none/t.json"));
    refuses(table, ERR_SYSTEM, none, NULL);
}

/* The range of a key as its help prints it. */
struct range {
    double min, max;
    bool number, above, below, zero; /* a real number; min or max is no value; 0 is one */
};

static bool range_of_help(const char *takes, struct range *range)
{
    char open, close;
    *range = (struct range){.max = INFINITY};
    if (strncmp(takes, "number ", 7) == 0) {
        range->number = true;
        takes += 7;
    }
    if (strncmp(takes, "auto|", 5) == 0)
        takes += 5;
    if (strncmp(takes, "0 or ", 5) == 0) {
        range->zero = true;
        takes += 5;
    }
    if (sscanf(takes, "in %c%lf, %lf%c", &open, &range->min, &range->max, &close) == 4) {
        range->above = open == '(';
        range->below = close == ')';
        return true;
    }
    if (sscanf(takes, "above %lf", &range->min) == 1)
        return range->above = true;
    const char *dots = strstr(takes, "..");
    if (dots && dots > takes && isdigit((unsigned char)dots[-1])) {
        range->min = strtod(takes, NULL); /* reads "0." of "0..9" */
        if (dots[2])
            range->max = strtod(dots + 2, NULL);
        return true;
    }
    return sscanf(takes, "at least %lf", &range->min) == 1;
}

/* Check that reader and job_check() take or refuse a value of a key, as they should. */
static void judge_value(const struct member *key, double value, bool real, bool good)
{
    struct job job = {0};
    struct err err = {0};
    char text[128], limit[160], must[256];
    const char *override = text;
    snprintf(must, sizeof must, "%s must be %s", key->name,
             member_limit(key, true, limit, sizeof limit));
    snprintf(text, sizeof text, real ? "%s=%.17g" : "%s=%.0f", key->name, value);
    parse(design_job, "job", ".", &override, 1, &job, &err);
    if (!strstr(err.msg, must) != good)
        fail_msg("%s is %s: '%s'", text, good ? "within" : "outside", err.msg);
    job_clear(&job);
    load(file_with("job.json", design_job), NULL, 0, &job);
    char *at = (char *)&job + key->offset;
    if (real)
        memcpy(at, &value, sizeof value);
    else if (key->size == sizeof(int))
        memcpy(at, &(int){(int)value}, sizeof(int));
    else
        memcpy(at, &(int64_t){(int64_t)value}, sizeof(int64_t));
    err = (struct err){0};
    if (key->size == 8 || fabs(value) <= INT32_MAX) {
        job_check(&job, &err);
        if (!strstr(err.msg, must) != good && !(key->type == MEMBER_COUNT && value == 0))
            fail_msg("%s is %s: '%s'", text, good ? "within" : "outside", err.msg);
    }
    job_clear(&job);
}

static void job_check__has_the_limits_that_help_prints(void **state)
{
    int judged = 0;
    (void)state;
    for (int i = 0; i < job_keys.num; i++) {
        const struct member *key = &job_keys.rows[i];
        struct range range;
        char takes[256];
        if (!range_of_help(member_takes(key, takes, sizeof takes), &range))
            continue;
        const double step = range.number ? 1e-9 : 1;
        judged++;
        judge_value(key, range.min - step, range.number, false);
        judge_value(key, range.min, range.number, !range.above);
        judge_value(key, range.min + step, range.number, true);
        if (range.zero)
            judge_value(key, 0, range.number, true);
        if (isfinite(range.max)) {
            judge_value(key, range.max - step, range.number, true);
            judge_value(key, range.max, range.number, !range.below);
            judge_value(key, range.max + step, range.number, false);
        } else if (!range.number && key->size == sizeof(int)) {
            judge_value(key, INT32_MAX, false, true);
            judge_value(key, INT32_MAX + 1.0, false, false);
        }
    }
    assert_true(judged > 45);
}

static void job_defaults__are_these(void **state)
{
    static const char *const wanted[][2] = {
        {"name",                     "job"               },
        {"data.kind",                "synthetic"         },
        {"data.special_tokens",      "true"              },
        {"train.epochs",             "1"                 },
        {"train.optimizer.kind",     "sgd"               },
        {"train.optimizer.lr",       "0.03"              },
        {"train.optimizer.momentum", "0.9"               },
        {"train.optimizer.beta1",    "0.9"               },
        {"train.optimizer.beta2",    "0.999"             },
        {"train.optimizer.eps",      "1e-8"              },
        {"train.seed",               "1"                 },
        {"train.keep_checkpoints",   "3"                 },
        {"train.lora.targets",       "all"               },
        {"train.lora.head",          "true"              },
        {"cost.efficiency",          "1"                 },
        {"pipeline.num_stages",      "auto"              },
        {"pipeline.chunks",          "1"                 },
        {"pipeline.tensor",          "1"                 },
        {"pipeline.schedule",        "auto"              },
        {"pipeline.recompute",       "fit"               },
        {"pipeline.frozen",          "auto"              },
        {"pipeline.bucket_bytes",    "26214400"          },
        {"freeze.policy",            "none"              },
        {"freeze.alpha",             "0.3333333333333333"},
        {"freeze.max_loss",          "1"                 },
        {"elastic.auto_dp",          "true"              },
        {"cache.policy",             "auto"              },
        {"cache.limit_bytes",        "0"                 },
    };
    struct job job;
    char text[64];
    (void)state;
    job_defaults(&job);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        const struct member *key = fields_find(job_keys.rows, job_keys.num, wanted[i][0], NULL);
        assert_non_null(key);
        assert_string_equal(member_text(key, &job, text, sizeof text), wanted[i][1]);
    }
    job_clear(&job);
}

static void job_load__takes_one_kind_of_batch(void **state)
{
    struct job job = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(parse("{\"model\": \"vit-b16\", \"train\": {\"batch\": {\"per_pipeline\": 8, "
                           "\"global\": 8}}}",
                           "job", ".", NULL, 0, &job, &err),
                     ERR_INPUT);
    assert_string_equal(err.msg,
                        "job: train.batch must have one of per_pipeline, global, got both");
}

static void job_load__tells_missing_from_truncated(void **state)
{
    (void)state;
    struct job job = {0};
    struct err err = {0};
    assert_int_equal(job_load(at("none/job.json"), NULL, 0, &job, &err), ERR_SYSTEM);
    /* Every prefix of a good file is malformed, and says where. */
    for (size_t n = 0; n + 2 < sizeof design_job; n += 7) {
        char text[sizeof design_job];
        memcpy(text, design_job, n);
        text[n] = '\0';
        err = (struct err){0};
        assert_int_equal(job_load(file_with("cut.json", text), NULL, 0, &job, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "/cut.json:"));
    }
}

static void job_load__reads_minimal_job_with_texts(void **state)
{
    (void)state;
    struct job job = {0};
    static const char *const overrides[] = {"model.classes=7"};
    load(file_with("m.json", "{\"model\":\"vit-tiny:image=32\"}"), overrides, 1, &job);
    assert_int_equal(job.model.classes, 7);
    assert_int_equal(job.model.image, 32);
    assert_int_equal(job.train.batch, 32);
    assert_string_equal(job.cluster.devices[0].kind, "cpu");
    job_clear(&job);
    load(file_with("m.json", "{\"model\":\"uniform:layers=4,fwd=1ms\",\"cluster\":\"1x4\"}"), NULL,
         0, &job);
    assert_int_equal(job.model.num_items, 4);
    job_clear(&job);
    load(file_with("m.json", "{\"model\":{\"family\":\"uniform\",\"layers\":3,\"fwd\":\"2ms\"}}"),
         NULL, 0, &job);
    assert_int_equal(job.model.items[0].fwd_ns, 2000000);
    job_clear(&job);
}

static void cluster_load__resolves_the_files_that_losses_name(void **state)
{
    (void)state;
    struct cluster cluster = {0};
    struct err err = {0};
    char want[32];
    static const char *const names[] = {"a.csv", "b.csv", "runs/c"};
    const char *path =
        file_with("lossy.json", "{\"preset\":\"2x2\",\"faults\":{\"trace\":\"a.csv\","
                                "\"trace_steps\":\"b.csv\",\"run\":\"runs/c\"}}");
    if (cluster_load(path, &cluster, &err) != OK)
        fail_msg("%s", err.msg);
    for (int i = 0; i < 3; i++) {
        snprintf(want, sizeof want, "/%s\"", names[i]);
        if (!strstr(cluster.faults, want))
            fail_msg("no %s in %s", want, cluster.faults);
    }
    cluster_clear(&cluster);
}

static void model_load__reads_explicit_chain_with_skips(void **state)
{
    (void)state;
    struct model model = {0};
    struct err err = {0};
    const char *path =
        file_with("chain.json",
                  "{\"name\":\"unet\",\"per_microbatch\":true,\"items\":["
                  "{\"name\":\"a\",\"fwd_ns\":10,\"bwd_input_ns\":\"1us\",\"act_bytes\":\"1KiB\"},"
                  "{\"name\":\"b\",\"layer\":0,\"params\":9223372036854},{}],"
                  "\"skips\":[{\"from\":0,\"to\":2,\"bytes\":64}]}");
    file_with("model-job.json", "{\"model\":\"chain.json\",\"cluster\":\"1x2\"}");
    path = file_with("chain.json",
                     "{\"name\":\"unet\",\"per_microbatch\":true,\"items\":["
                     "{\"name\":\"a\",\"fwd_ns\":10,\"bwd_input_ns\":\"1us\",\"act_bytes\":"
                     "\"1KiB\"},{\"name\":\"b\",\"layer\":0,\"params\":9223372036854},{}],"
                     "\"skips\":[{\"from\":0,\"to\":2,\"bytes\":64}]}");
    if (model_load(path, &model, &err) != OK)
        fail_msg("%s", err.msg);
    assert_int_equal(model.num_items, 3);
    assert_int_equal(model.items[0].bwd_input_ns, 1000);
    assert_int_equal(model.items[0].stash_bytes, 1024);
    assert_true(model.items[1].params == 9223372036854);
    assert_int_equal(model.items[1].layer, 0);
    assert_int_equal(model.num_skips, 1);
    assert_true(model.per_microbatch);
    model_clear(&model);
    /* A job names it relative to itself. */
    struct job job = {0};
    char job_path[128];
    snprintf(job_path, sizeof job_path, "%s/model-job.json", scratch);
    load(job_path, NULL, 0, &job);
    assert_int_equal(job.model.num_skips, 1);
    /* The resolved text names it whole: it loads from anywhere. */
    struct job again = {0};
    assert_int_equal(parse(job.json, "again", "/elsewhere", NULL, 0, &again, &err), OK);
    assert_string_equal(again.json, job.json);
    job_clear(&again);
    job_clear(&job);
    /* Backward edges, unknown keys and negative sizes name the place. */
    assert_int_equal(model_load(file_with("chain.json", "{\"items\":[{},{}],\"skips\":[{\"from\":1,"
                                                        "\"to\":0,\"bytes\":1}]}"),
                                &model, &err),
                     ERR_INPUT);
    err = (struct err){0};
    assert_int_equal(
        model_load(file_with("chain.json", "{\"items\":[{\"fwd_us\":1}]}"), &model, &err),
        ERR_INPUT);
    assert_non_null(strstr(err.msg, "unknown key 'items[0].fwd_us', nearest is 'fwd_ns'"));
    err = (struct err){0};
    assert_int_equal(
        model_load(file_with("chain.json", "{\"items\":[{\"fwd_ns\":-1}]}"), &model, &err),
        ERR_INPUT);
    assert_non_null(strstr(err.msg, "items[0].fwd_ns must be a time"));
    err = (struct err){0};
    assert_int_equal(model_load(file_with("chain.json", "[]"), &model, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "chain.json: must be an object, got an array"));
}

static void model_load__reads_hugging_face_configs(void **state)
{
    (void)state;
    struct model model = {0};
    struct err err = {0};
    assert_int_equal(
        model_load(
            file_with("config.json",
                      "{\"model_type\":\"vit\",\"hidden_size\":192,\"num_hidden_layers\":12,"
                      "\"num_attention_heads\":3,\"intermediate_size\":768,\"image_size\":32,"
                      "\"patch_size\":4,\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},"
                      "\"torch_dtype\":\"float32\"}"),
            &model, &err),
        OK);
    assert_int_equal(model.family, FAMILY_VIT);
    assert_int_equal(model.hidden, 192);
    assert_int_equal(model.seq, 65);
    assert_int_equal(model.classes, 3);
    model_clear(&model);
    assert_int_equal(
        model_load(
            file_with("config.json",
                      "{\"model_type\":\"bert\",\"architectures\":[\"BertForQuestionAnswering\"],"
                      "\"num_hidden_layers\":6,\"hidden_size\":384,\"intermediate_size\":1536}"),
            &model, &err),
        OK);
    assert_int_equal(model.task, TASK_QA);
    assert_int_equal(model.num_layers, 6);
    assert_int_equal(model.vocab, 30522);
    model_clear(&model);
    assert_int_equal(
        model_load(file_with("config.json", "{\"model_type\":\"gpt2\",\"n_inner\":null}"), &model,
                   &err),
        OK);
    assert_int_equal(model.mlp, 3072);
    assert_int_equal(model_total_params(&model), 124439808); /* GPT-2 small as published */
    model_clear(&model);
    assert_int_equal(model_load(file_with("config.json", "{\"model_type\":\"ptt\"}"), &model, &err),
                     ERR_INPUT);
    assert_non_null(strstr(err.msg, "model_type must be one of vit bert gpt2 llama"));
    assert_non_null(strstr(err.msg, "got 'ptt'"));
    err = (struct err){0};
    assert_int_equal(
        model_load(file_with("config.json", "{\"model_type\":\"vit\",\"hidden_size\":-5}"), &model,
                   &err),
        ERR_INPUT);
}

static void model_load__takes_the_length_of_a_sample_beside_a_config(void **state)
{
    (void)state;
    static const struct {
        const char *config, *tail;
        int seq;
        const char *error;
    } cases[] = {
        {"{\"model_type\":\"llama\"}",                                 "",          4096, NULL                },
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":512}", "",          512,  NULL                },
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":512}", ":seq=64",   64,   NULL                },
        {"{\"model_type\":\"gpt2\"}",                                  ":seq=64",   64,   NULL                },
        {"{\"model_type\":\"gpt2\"}",                                  ":seq=1025", 0,    "seq"               },
        {"{\"model_type\":\"gpt2\"}",                                  ":seq=x",    0,    "a number of tokens"},
        {"{\"model_type\":\"vit\"}",                                   ":seq=64",   0,    "models of texts"   },
        {"{\"items\":[{}]}",                                           ":seq=64",   0,    "config.json only"  },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model model = {0};
        struct err err = {0};
        char name[300];
        snprintf(name, sizeof name, "%s%s", file_with("config.json", cases[i].config),
                 cases[i].tail);
        const enum status rc = model_load(name, &model, &err);
        assert_int_equal(rc, cases[i].error ? ERR_INPUT : OK);
        if (cases[i].error)
            assert_non_null(strstr(err.msg, cases[i].error));
        else
            assert_int_equal(model.seq, cases[i].seq);
        model_clear(&model);
    }
    struct job job = {0};
    file_with("config.json", "{\"model_type\":\"gpt2\"}");
    load(file_with("job.json", "{\"name\":\"j\",\"model\":{\"preset\":\"config.json\",\"seq\":8},"
                               "\"data\":{\"kind\":\"synthetic\"}}"),
         NULL, 0, &job);
    assert_int_equal(job.model.seq, 8);
    job_clear(&job);
}

/* Keys that change parameters or mathematics: each is refused by its name unless it says what we
 * compute. */
static void model_load__refuses_keys_of_another_computation(void **state)
{
    static const struct {
        const char *type, *extra, *named;
    } cases[] = {
        {"gpt2",        "\"scale_attn_weights\":false",                           "scale_attn_weights must be true"            },
        {"gpt2",        "\"scale_attn_by_inverse_layer_idx\":true",
         "scale_attn_by_inverse_layer_idx must be false"                                                                       },
        {"gpt2",        "\"add_cross_attention\":true",                           "add_cross_attention must be false"          },
        {"gpt2",        "\"activation_function\":\"relu\"",                       "activation_function must be gelu_new"       },
        {"gpt2",        "\"architectures\":[\"GPT2ForSequenceClassification\"]",
         "architectures must be one of GPT2LMHeadModel"                                                                        },
        {"gpt2",        "\"architectures\":[\"GPT2DoubleHeadsModel\"]",           "got 'GPT2DoubleHeadsModel'"                 },
        {"gpt2",        "\"layer_norm_epsilon\":0",                               "layer_norm_epsilon must be a number above 0"},
        {"bert",        "\"type_vocab_size\":16",                                 "type_vocab_size must be 2, got 16"          },
        {"bert",        "\"position_embedding_type\":\"relative_key\"",
         "position_embedding_type must be \"absolute\""                                                                        },
        {"bert",        "\"is_decoder\":true",                                    "is_decoder must be false"                   },
        {"bert",        "\"architectures\":[\"BertForTokenClassification\"]",
         "got 'BertForTokenClassification'"                                                                                    },
        {"bert",        "\"architectures\":[\"BertLMHeadModel\"]",                "got 'BertLMHeadModel'"                      },
        {"bert",        "\"problem_type\":\"regression\"",                        "problem_type must be"                       },
        {"bert",        "\"pruned_heads\":{\"0\":[1]}",                           "pruned_heads must be {}"                    },
        {"vit",         "\"qkv_bias\":false",                                     "qkv_bias must be true, got false"           },
        {"vit",         "\"architectures\":[\"ViTForMaskedImageModeling\"]",
         "got 'ViTForMaskedImageModeling'"                                                                                     },
        {"llama",       "\"mlp_bias\":true",                                      "mlp_bias must be false, got true"           },
        {"llama",       "\"attention_bias\":true",                                "attention_bias must be false, got true"     },
        {"llama",       "\"architectures\":[\"LlamaForSequenceClassification\"]",
         "architectures must be a ...ForCausalLM"                                                                              },
        {"deepseek_v3", "\"moe_layer_freq\":2",                                   "moe_layer_freq must be 1, got 2"            },
    };
    char text[256];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model model = {0};
        struct err err = {0};
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s}", cases[i].type, cases[i].extra);
        if (model_load(file_with("config.json", text), &model, &err) != ERR_INPUT ||
            !strstr(err.msg, cases[i].named))
            fail_msg("%s: '%s', not '%s'", text, err.msg, cases[i].named);
    }
}

static void model_load__reads_a_head_with_a_table_of_its_own(void **state)
{
    static const char *const types[] = {"gpt2", "bert"};
    static const int64_t tables[] = {50257 * 768, 30522 * 768};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct model model[2] = {0};
        for (int own = 0; own < 2; own++) {
            char text[160];
            snprintf(text, sizeof text, "{\"model_type\":\"%s\"%s%s}", types[i],
                     i ? ",\"architectures\":[\"BertForMaskedLM\"]" : "",
                     own ? ",\"tie_word_embeddings\":false" : "");
            assert_int_equal(model_load(file_with("config.json", text), &model[own], NULL), OK);
        }
        assert_true(model[0].tied_head && !model[1].tied_head);
        assert_false(
            model[1].was_tied); /* by its file it never was: its head has an update of its own */
        assert_int_equal(model_total_params(&model[1]), model_total_params(&model[0]) + tables[i]);
        model_clear(&model[0]);
        model_clear(&model[1]);
    }
}

/* A head that goes on alone does not go back, and is no part of the evidence. */
static void job_load__refuses_a_head_alone_that_might_go_back(void **state)
{
    static const struct {
        const char *freeze, *named;
    } cases[] = {
        {"\"policy\":\"table\",\"table\":[0,2,2]", NULL                                         },
        {"\"policy\":\"table\",\"table\":[0,2,1]", "a freeze.table that goes down"              },
        {"\"policy\":\"safe\"",                    "freeze.policy safe, which may undo a freeze"},
        {"\"policy\":\"plateau\",\"record\":true", "freeze.record"                              },
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const bool tied = i % 2 == 0;
        const char *named = tied ? cases[i / 2].named : NULL; /* without a shared table no effect */
        struct job job = {0};
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text,
                 "{\"name\":\"j\",\"model\":\"%s\",\"freeze\":{\"head\":\"alone\",%s}}",
                 tied ? "gpt2" : "vit-b16", cases[i / 2].freeze);
        const enum status rc = job_load(file_with("job.json", text), NULL, 0, &job, &err);
        if (rc != (named ? ERR_INPUT : OK) || (named && !strstr(err.msg, named)))
            fail_msg("%s: %s", text, err.msg);
        if (!named)
            assert_int_equal(model_at(&job.model, 1) != &job.model, tied);
        job_clear(&job);
    }
}

static void model_load__honours_or_notes_the_other_keys(void **state)
{
    struct model model = {0};
    struct err err = {0};
    (void)state;
    /* The keys of bert-base-uncased as released: nothing to say about them. */
    assert_int_equal(
        model_load(
            file_with("config.json",
                      "{\"architectures\":[\"BertForMaskedLM\"],"
                      "\"attention_probs_dropout_prob\":0.1,\"gradient_checkpointing\":false,"
                      "\"hidden_act\":\"gelu\",\"hidden_dropout_prob\":0.1,"
                      "\"hidden_size\":768,\"initializer_range\":0.02,"
                      "\"intermediate_size\":3072,\"layer_norm_eps\":1e-06,"
                      "\"max_position_embeddings\":512,\"model_type\":\"bert\","
                      "\"num_attention_heads\":12,\"num_hidden_layers\":12,"
                      "\"pad_token_id\":0,\"position_embedding_type\":\"absolute\","
                      "\"transformers_version\":\"4.6.0.dev0\",\"type_vocab_size\":2,"
                      "\"use_cache\":true,\"vocab_size\":30522}"),
            &model, &err),
        OK);
    assert_string_equal(model.note, "");
    assert_true(model.norm_eps == 1e-6);
    model_clear(&model);
    assert_int_equal(
        model_load(file_with("config.json", "{\"model_type\":\"mistral\",\"sliding_window\":4096,"
                                            "\"rope_theta\":10000.0,\"frobnicate\":1}"),
                   &model, &err),
        OK);
    assert_int_equal(model.block.window, 4096);
    assert_null(strstr(model.note, "sliding_window"));
    assert_non_null(strstr(model.note, "unknown keys, not used: frobnicate"));
    assert_null(strstr(model.note, "rope_theta"));
    model_clear(&model);
    /* A key longer than the list behind one of a letter is left out. */
    assert_int_equal(
        model_load(
            file_with("config.json",
                      "{\"model_type\":\"mistral\",\"b\":2,\"a_key_that_is_longer_than_the_list_"
                      "of_unknown_keys_has_room_for_in_all_its_bytes\":1}"),
            &model, &err),
        OK);
    assert_non_null(strstr(model.note, "unknown keys, not used: b, ..."));
    model_clear(&model);
    /* A first key longer than the list is cut. */
    assert_int_equal(
        model_load(file_with("config.json",
                             "{\"model_type\":\"mistral\",\"a_key_that_is_longer_than_the_list_"
                             "of_unknown_keys_has_room_for_in_all_its_bytes\":1,\"b\":2}"),
                   &model, &err),
        OK);
    assert_non_null(strstr(model.note, "unknown keys, not used: a_key_that_is_longer_than"));
    assert_non_null(strstr(model.note, "..."));
    model_clear(&model);
    /* Qwen2's window is off unless use_sliding_window says otherwise. */
    assert_int_equal(
        model_load(file_with("config.json", "{\"model_type\":\"qwen2\",\"sliding_window\":4096,"
                                            "\"use_sliding_window\":false}"),
                   &model, &err),
        OK);
    assert_string_equal(model.note, "");
    model_clear(&model);
}

static void job_load__gives_a_config_the_dtype_of_the_job(void **state)
{
    struct job job = {0};
    (void)state;
    file_with("config.json", "{\"model_type\":\"gpt2\"}");
    load(file_with("job.json", "{\"name\":\"j\",\"model\":\"config.json\","
                               "\"train\":{\"dtype\":\"bf16\",\"batch\":{\"global\":8}}}"),
         NULL, 0, &job);
    assert_int_equal(job.model.elem_bytes, 2);
    job_clear(&job);
}

static void job_load__has_one_dtype_for_model_and_job(void **state)
{
    static const struct {
        const char *model, *dtype; /* NULL: the job names none */
        enum dtype want;
    } cases[] = {
        {"gpt2:dtype=bf16",  NULL,   DTYPE_BF16 },
        {"gpt2:dtype=bf16",  "fp32", DTYPE_FP32 },
        {"gpt2:dtype=fp32",  "bf16", DTYPE_BF16 },
        {"gpt2:dtype=bf16",  "fp8",  DTYPE_FP8  },
        {"gpt2:dtype=fp8",   NULL,   DTYPE_FP8  },
        {"gpt2:dtype=nvfp4", NULL,   DTYPE_NVFP4},
        {"gpt2:dtype=tf32",  NULL,   DTYPE_TF32 },
        {"gpt2:dtype=fp8",   "bf16", DTYPE_BF16 },
        {"gpt2",             NULL,   DTYPE_FP32 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = {0};
        char text[256], dtype[64] = "";
        if (cases[i].dtype)
            snprintf(dtype, sizeof dtype, "\"dtype\":\"%s\",", cases[i].dtype);
        snprintf(text, sizeof text,
                 "{\"name\":\"j\",\"model\":\"%s\",\"train\":{%s\"batch\":{\"global\":8}}}",
                 cases[i].model, dtype);
        load(file_with("job.json", text), NULL, 0, &job);
        assert_int_equal(job.train.dtype, cases[i].want);
        const bool wide = cases[i].want == DTYPE_FP32 || cases[i].want == DTYPE_TF32;
        assert_int_equal(job.model.elem_bytes, wide ? 4 : 2);
        job_clear(&job);
    }
}

/* The keys of the released config.json files. */
static void model_load__reads_the_configs_of_llama_and_its_kin(void **state)
{
    static const struct {
        const char *text;
        int64_t params;
    } cases[] = {
        {"{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
         "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
         "\"head_dim\":64,\"vocab_size\":128256,\"tie_word_embeddings\":true}",     1235814400 },
        {"{\"model_type\":\"mistral\",\"intermediate_size\":14336,\"head_dim\":null}",       7241732096 },
        {"{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"intermediate_size\":18944,"
         "\"num_hidden_layers\":28,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
         "\"vocab_size\":152064,\"tie_word_embeddings\":false}",                    7615616512 },
        {"{\"model_type\":\"qwen2\",\"hidden_size\":1024,\"intermediate_size\":3072,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
         "\"vocab_size\":1000,\"head_dim\":128}",                                   33518592   },
        {"{\"model_type\":\"mixtral\",\"intermediate_size\":14336,\"num_local_experts\":8}",
         46702792704                                                                                    },
        {"{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,\"intermediate_size\":10944,"
         "\"num_hidden_layers\":27,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
         "\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"n_shared_experts\":2,"
         "\"moe_intermediate_size\":1408,\"first_k_dense_replace\":1,\"q_lora_rank\":null,"
         "\"vocab_size\":102400}",                                                  15706484224},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model model = {0};
        struct err err = {0};
        if (model_load(file_with("config.json", cases[i].text), &model, &err) != OK)
            fail_msg("%s: %s", cases[i].text, err.msg);
        assert_int_equal(model_total_params(&model), cases[i].params);
        model_clear(&model);
    }
}

static void cluster_load__reads_objects_lists_texts_of_objects_and_this_machine(void **state)
{
    (void)state;
    struct cluster cluster = {0};
    struct err err = {0};
    assert_int_equal(
        cluster_load(file_with("c.json",
                               "{\"name\":\"mixed\",\"mem\":\"8GiB\",\"devices\":["
                               "{\"kind\":\"h100\"},{\"kind\":\"a100\",\"speed\":\"1/2\"},"
                               "{\"node\":1,\"mem\":\"4GiB\"}],\"uplinks\":[\"1GBps\",2e9],"
                               "\"latency\":\"7us\",\"host_blocking\":true}"),
                     &cluster, &err),
        OK);
    assert_int_equal(cluster.num_devices, 3);
    assert_int_equal(cluster.num_nodes, 2);
    assert_string_equal(cluster.devices[0].kind, "h100");
    assert_true(cluster.devices[1].speed == 0.5);
    assert_true(cluster.devices[1].mem_bytes == 8LL << 30);
    assert_true(cluster.devices[2].mem_bytes == 4LL << 30);
    assert_true(cluster.uplink_bytes_per_s[1] == 2e9);
    assert_int_equal(cluster.link_latency_ns, 7000);
    assert_true(cluster.host_blocking);
    cluster_clear(&cluster);
    assert_int_equal(
        cluster_load(file_with("c.json", "{\"nodes\":2,\"devices_per_node\":4,\"kind\":\"a100\"}"),
                     &cluster, &err),
        OK);
    assert_int_equal(cluster.num_devices, 8);
    assert_true(cluster.devices[0].mem_bytes == 80LL << 30);
    cluster_clear(&cluster);
    assert_int_equal(
        cluster_load(file_with("c.json", "{\"preset\":\"a100-2x8\",\"nodes\":4,\"uplink\":2e9}"),
                     &cluster, &err),
        OK);
    assert_int_equal(cluster.num_devices, 32);
    assert_true(cluster.uplink_bytes_per_s[3] == 2e9);
    cluster_clear(&cluster);
    assert_int_equal(
        cluster_load(" {\"preset\":\"a100-2x8\",\"nodes\":3,\"uplink\":2e9}", &cluster, &err), OK);
    assert_int_equal(cluster.num_devices, 24);
    assert_true(cluster.uplink_bytes_per_s[2] == 2e9);
    cluster_clear(&cluster);
    assert_int_equal(cluster_load("{\"nodes\":2", &cluster, &err), ERR_INPUT);
    assert_int_equal(strncmp(err.msg, "CLUSTER:", 8), 0);
    err = (struct err){0};
    assert_int_equal(cluster_load("{\"nodez\":2}", &cluster, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "nodez"));
    err = (struct err){0};
    assert_int_equal(cluster_load("{\"preset\":\"{}\"}", &cluster, &err), ERR_INPUT);
    err = (struct err){0};
    assert_int_equal(cluster_load("this-machine", &cluster, &err), OK);
    assert_int_equal(cluster.num_devices, sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(cluster.devices[0].mem_bytes > 0 && cluster.devices[0].mem_bytes < INT64_MAX);
    cluster_clear(&cluster);
    static const char *const bad[] = {"{\"devices_per_node\":2,\"preset\":\"2x4\"}",
                                      "{}",
                                      "{\"preset\":\"c.json\"}",
                                      "[]",
                                      "\"2x4\"",
                                      "{\"devices\":[]}",
                                      "{\"devices\":[{\"node\":1}]}",
                                      "{\"devices\":[{},{\"node\":2}]}",
                                      "{\"nodes\":1000000,\"devices_per_node\":1000000}",
                                      "{\"preset\":\"2x4\",\"mem\":-1}",
                                      "{\"preset\":\"2x4\",\"speed\":0}",
                                      "{\"preset\":\"9z9\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct err){0};
        assert_int_equal(cluster_load(file_with("c.json", bad[i]), &cluster, &err), ERR_INPUT);
        assert_true(*err.msg);
        assert_null(cluster.devices);
    }
}

static void load_cluster(const char *text, struct cluster *cluster)
{
    struct err err = {0};
    if (cluster_load(file_with("c.json", text), cluster, &err) != OK)
        fail_msg("%s: %s", text, err.msg);
}

/* The machine of a kind is one thing, whether a text or a file names it. */
static void cluster_load__gives_a_known_kind_its_usual_machine(void **state)
{
    (void)state;
    struct cluster named = {0}, filed = {0};
    assert_int_equal(cluster_parse("h100-2x4", &named, NULL), OK);
    load_cluster("{\"kind\":\"h100\",\"nodes\":2,\"devices_per_node\":4}", &filed);
    assert_string_equal(filed.name, "h100-2x4");
    assert_memory_equal(filed.devices, named.devices, 8 * sizeof *named.devices);
    assert_memory_equal(filed.uplink_bytes_per_s, named.uplink_bytes_per_s, 2 * sizeof(double));
    assert_memory_equal(filed.collectives, named.collectives, sizeof named.collectives);
    assert_int_equal(filed.uplink_latency_ns, named.uplink_latency_ns);
    assert_int_equal(filed.context_bytes, named.context_bytes);
    cluster_clear(&named);
    cluster_clear(&filed);
    /* A list: each device as its kind, each uplink as its node's, the slower ring. */
    load_cluster(
        "{\"devices\":[{\"kind\":\"h100\"},{\"kind\":\"a100\",\"node\":1,\"nic\":\"1GBps\"},"
        "{\"kind\":\"other\",\"node\":2}]}",
        &filed);
    assert_true(filed.devices[0].mem_bytes == 80LL << 30 &&
                filed.devices[2].mem_bytes == INT64_MAX);
    assert_true(filed.devices[0].link_bytes_per_s == 450e9 &&
                filed.devices[1].link_bytes_per_s == 300e9 &&
                filed.devices[2].link_bytes_per_s == 16e9);
    assert_true(filed.devices[0].nic_bytes_per_s == 50e9 &&
                filed.devices[1].nic_bytes_per_s == 1e9 && filed.devices[2].nic_bytes_per_s == 0);
    assert_true(filed.uplink_bytes_per_s[0] == 400e9 && filed.uplink_bytes_per_s[1] == 200e9 &&
                filed.uplink_bytes_per_s[2] == 16e9);
    assert_int_equal(filed.uplink_latency_ns, 10000);
    assert_null(cluster_collectives_kind(&filed));
    cluster_clear(&filed);
    load_cluster("{\"devices\":[{\"kind\":\"h100\"},{\"kind\":\"a100\"}]}", &filed);
    assert_string_equal(cluster_collectives_kind(&filed)->name, "a100");
    assert_int_equal(filed.collectives[0].fixed_ns, 14000);
    cluster_clear(&filed);
    /* Other devices in a named machine's network. */
    load_cluster("{\"preset\":\"p4d.24xlarge-2\",\"kind\":\"h200\"}", &filed);
    assert_true(filed.devices[0].mem_bytes == (int64_t)(139.8 * (1 << 30)) &&
                filed.uplink_bytes_per_s[0] == 50e9);
    assert_true(filed.devices[0].nic_bytes_per_s == 12.5e9 && filed.uplink_latency_ns == 20000);
    cluster_clear(&filed);
}

/* A list of schedules and the size of micro-batches, read and written back. */
static void job_load__reads_lists_of_schedules_and_sizes_of_micro_batches(void **state)
{
    (void)state;
    static const char *const sets[] = {"pipeline.schedule=[\"1f1b\", \"interleaved\"]", "gbs=64",
                                       "pipeline.num_microbatches=auto", "mbs=4"};
    static const char *const bad[] = {"pipeline.schedule=[]", "pipeline.schedule=[\"auto\"]",
                                      "pipeline.schedule=[\"1f1b\", 3]"};
    const unsigned two = 1u << SCHEDULE_1F1B | 1u << SCHEDULE_INTERLEAVED;
    struct job job = {0}, again = {0};
    struct err err = {0};
    load(file_with("job.json", design_job), sets, 4, &job);
    assert_int_equal(job.train.micro, 4);
    assert_int_equal(job.train.batch, 64);
    assert_true(job.pipeline.schedule_auto);
    assert_int_equal(job.pipeline.schedules, two);
    load(file_with("again.json", job.json), NULL, 0, &again);
    assert_int_equal(again.train.micro, 4);
    assert_int_equal(again.pipeline.schedules, two);
    job_clear(&job);
    job_clear(&again);
    for (int i = 0; i < 3; i++)
        assert_int_equal(job_load(file_with("job.json", design_job), &bad[i], 1, &job, &err),
                         ERR_INPUT);
}

/* Nothing that was asked for is left out in silence. */
static void job_from_json__says_so_when_memory_ends_anywhere(void **state)
{
    (void)state;
    static const char text[] = "{\"model\": \"vit-b16:classes=5,image=32\", \"cluster\": \"1x2\","
                               " \"baseline\": {\"freeze.policy\": \"none\"}}";
    static const char *const overrides[] = {"name=n",
                                            "model.patch=8",
                                            "cluster.mem=1GiB",
                                            "train.batch.global=64",
                                            "data.path=/x",
                                            "freeze.policy=closed-form",
                                            "elastic.stages=[2,1]"};
    const int num = sizeof overrides / sizeof *overrides;
    struct job want = {0}, got = {0};
    assert_int_equal(parse(text, "job", "/d", overrides, num, &want, NULL), OK);
    for (int n = 0; FAIL_MALLOC; n++) {
        struct err err = {0};
        fail_malloc_after(n);
        enum status rc = parse(text, "job", "/d", overrides, num, &got, &err);
        if (fail_malloc_done())
            break;
        if (rc != ERR_NOMEM)
            fail_msg("allocation %d: %d, %s", n, (int)rc, err.msg);
    }
    if (FAIL_MALLOC)
        assert_string_equal(got.json, want.json);
    job_clear(&got);
    job_clear(&want);
}

/* Counts how often a table names the keys below, and refuses an empty meaning. */
static void count_key(const struct key_help *key, void *ctx)
{
    static const char *const keys[] = {"model", "train.batch.per_pipeline", "freeze.norms",
                                       "cache.limit_bytes", "baseline"};
    for (int i = 0; i < 5; i++)
        ((int *)ctx)[i] += strcmp(key->key, keys[i]) == 0;
    assert_true(*key->meaning);
}

static void keys_each__names_every_key_once_with_its_meaning(void **state)
{
    (void)state;
    int seen[5] = {0}, ignored[5];
    keys_each(KEYS_JOB, count_key, seen);
    for (int i = 0; i < 5; i++)
        assert_int_equal(seen[i], 1);
    for (int table = 0; table <= KEYS_COLLECTIVE; table++)
        keys_each((enum key_table)table, count_key, ignored);
}

static void frameworks__have_the_names_of_their_kinds(void **state)
{
    (void)state;
    char text[64];
    const char *overrides[] = {text};
    for (int k = 0; k < FRAMEWORK_KIND_COUNT + NORM_KIND_COUNT; k++) {
        struct job job = {0};
        const bool framework = k < FRAMEWORK_KIND_COUNT;
        const int kind = framework ? k : k - FRAMEWORK_KIND_COUNT;
        snprintf(text, sizeof text, "train.%s=%s", framework ? "framework" : "norm",
                 framework ? framework_kind_names[kind] : norm_kind_names[kind]);
        load(file_with("job.json", design_job), overrides, 1, &job);
        assert_int_equal(framework ? (int)job.train.framework : (int)job.train.norm, kind);
        assert_ptr_equal(job.model.framework, framework_of(job.train.framework));
        job_clear(&job);
    }
}

static void overlap__reaches_the_model_and_the_costs(void **state)
{
    (void)state;
    const char *overrides[] = {"train.framework=megatron-te", "train.overlap=experts",
                               "train.dispatcher=flex", "train.cuda_graphs=layers"};
    for (int n = 1; n <= 4; n++) {
        struct job job = {0};
        load(file_with("job.json", design_job), overrides, n, &job);
        assert_int_equal(job.model.overlaps_tensor, n < 2);
        assert_int_equal(job.model.overlaps_experts, n >= 2);
        assert_int_equal(job.model.sends_once, n >= 3);
        assert_int_equal(cost_query_of(&job).graphs, n >= 4 ? GRAPHS_LAYERS : GRAPHS_NONE);
        job_clear(&job);
    }
}

static void gradients__have_the_bytes_that_the_job_says(void **state)
{
    (void)state;
    const char *overrides[] = {"train.dtype=bf16", "train.framework=deepspeed",
                               "train.gradient_bytes=4"};
    for (int n = 2; n <= 3; n++) {
        struct job job = {0};
        load(file_with("job.json", design_job), overrides, n, &job);
        assert_int_equal(model_grad_bytes(&job.model), n == 2 ? 2 : 4);
        job_clear(&job);
    }
}

static void data_sets__have_the_names_of_data_kind_in_its_order(void **state)
{
    (void)state;
    for (int i = 0; i < DATA_KIND_COUNT; i++) {
        char text[160];
        struct json *root = NULL;
        struct job job = {0};
        snprintf(text, sizeof text, "{\"model\": \"vit-tiny\", \"data\": {\"kind\": \"%s\"}}",
                 data_kind_names[i]);
        assert_int_equal(json_parse(text, "job", &root, NULL), OK);
        assert_int_equal(job_from_json(root, "job", NULL, NULL, 0, &job, NULL), OK);
        assert_int_equal(job.data.kind, i);
        job_clear(&job);
        json_free(root);
    }
}

/* Older versions recorded whole ns where a time has its unit now. */
static void job_from_record__reads_times_without_a_unit_as_ns(void **state)
{
    static const char text[] =
        "{\"model\": \"vit-tiny\", \"elastic\": {\"setup\": 5000}, \"cache\": {\"read\": 70}, "
        "\"cluster\": {\"nodes\": 2, \"devices_per_node\": 1, \"latency\": 1500, "
        "\"collective\": {\"fixed\": 9, \"all-gather\": {\"fixed\": 4000}}}}";
    struct json *root = NULL;
    struct job job = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(json_parse(text, "record", &root, &err), OK);
    assert_int_equal(job_from_json(root, "record", NULL, NULL, 0, &job, &err), ERR_INPUT);
    assert_int_equal(job_from_record(root, "record", NULL, 0, &job, &err), OK);
    assert_int_equal(job.elastic.setup_ns, 5000);
    assert_int_equal(job.cache.read_ns, 70);
    assert_int_equal(job.cluster.link_latency_ns, 1500);
    assert_non_null(strstr(job.json, "\"fixed\":\"9ns\""));
    assert_non_null(strstr(job.json, "\"fixed\":\"4us\""));
    job_clear(&job);
    json_free(root);
}

/* Buckets are the framework's where one is named and the job says none, also in the resolved job. */
static void job_load__leaves_buckets_to_the_framework(void **state)
{
    static const char *const sets[] = {"train.framework=megatron-te@2024",
                                       "pipeline.bucket_bytes=0"};
    const char *path = file_with("job.json", "{\"model\": \"vit-tiny\", \"cluster\": \"1x4\"}");
    (void)state;
    for (int first = 0; first < 2; first++) {
        for (int n = 0; n <= 2 - first; n++) {
            struct job job = {0}, again = {0};
            struct json *root = NULL;
            struct err err = {0};
            assert_int_equal(job_load(path, sets + first, n, &job, &err), OK);
            assert_int_equal(json_parse(job.json, "job", &root, &err), OK);
            assert_int_equal(job_from_record(root, "record", NULL, 0, &again, &err), OK);
            assert_int_equal(job.pipeline.bucket_auto, first == 0 && n == 1);
            assert_int_equal(again.pipeline.bucket_auto, first == 0 && n == 1);
            assert_int_equal(again.pipeline.bucket_bytes, first + n > 1 ? 0 : 25 << 20);
            job_clear(&again);
            job_clear(&job);
            json_free(root);
        }
    }
}

/* Only what restricts the layout closes the search over layouts, and a resolved job keeps that. */
static void job_load__leaves_the_layout_open_to_any_schedule(void **state)
{
    (void)state;
    static const struct {
        const char *set;
        bool open;
    } cases[] = {
        {"pipeline.schedule=search",     true },
        {"pipeline.schedule=auto",       true },
        {"pipeline.schedule=1f1b",       false},
        {"pipeline.schedule=[\"1f1b\"]", false},
        {"pipeline.tensor=auto",         false},
        {"train.seed=2",                 true },
    };
    const char *path = file_with("job.json", "{\"model\": \"vit-tiny\", \"cluster\": \"1x4\"}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = {0}, again = {0};
        struct json *root = NULL;
        struct err err = {0};
        assert_int_equal(job_load(path, (const char *[]){cases[i].set}, 1, &job, &err), OK);
        assert_int_equal(json_parse(job.json, "job", &root, &err), OK);
        assert_int_equal(job_from_record(root, "record", NULL, 0, &again, &err), OK);
        assert_int_equal(job.pipeline.layout_open, cases[i].open);
        assert_int_equal(again.pipeline.layout_open, cases[i].open);
        assert_int_equal(job_searches(&job), i == 0);
        assert_int_equal(job_searches(&again), i == 0);
        job_clear(&again);
        job_clear(&job);
        json_free(root);
    }
}

static void job_load__wants_a_unit_with_every_time(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "elastic.setup",           "cache.read",      "cache.write",
        "cluster.latency",         "cluster.host_op", "cluster.uplink_latency",
        "cluster.collective.fixed"};
    const char *path =
        file_with("job.json", "{\"model\": \"vit-tiny\", \"cluster\": {\"nodes\": 2, "
                              "\"devices_per_node\": 1, \"collective\": {\"latency\": \"1us\"}}}");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char bare[64], zero[64], unit[64], message[300];
        struct job job = {0};
        struct err err = {0};
        snprintf(bare, sizeof bare, "%s=5000", keys[i]);
        snprintf(zero, sizeof zero, "%s=0", keys[i]);
        snprintf(unit, sizeof unit, "%s=1500us", keys[i]);
        snprintf(message, sizeof message,
                 "%s: %s must be a time with a unit, like \"20us\" or \"1.5ms\", got 5000", path,
                 keys[i]);
        assert_int_equal(job_load(path, (const char *[]){bare}, 1, &job, &err), ERR_INPUT);
        assert_string_equal(err.msg, message);
        assert_int_equal(job_load(path, (const char *[]){zero}, 1, &job, &err), OK);
        job_clear(&job);
        assert_int_equal(job_load(path, (const char *[]){unit}, 1, &job, &err), OK);
        assert_non_null(strstr(job.json, "\"1500us\""));
        job_clear(&job);
    }
    /* A key that names its unit takes a number: an item's fwd_ns. */
    struct model model = {0};
    assert_int_equal(
        model_load(file_with("m.json", "{\"items\": [{\"fwd_ns\": 7}]}"), &model, NULL), OK);
    assert_int_equal(model.items[0].fwd_ns, 7);
    model_clear(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cluster_load__resolves_the_files_that_losses_name),
        cmocka_unit_test(job_load__reads_job_of_design),
        cmocka_unit_test(job_load__freezes_safely_where_no_policy_is_named),
        cmocka_unit_test(job_load__notes_keys_without_effect),
        cmocka_unit_test(job_load__gives_timed_the_budget),
        cmocka_unit_test(job_load__counts_dropout_where_there_is_some),
        cmocka_unit_test(job_load__applies_overrides_in_order),
        cmocka_unit_test(job_changed__equals_a_job_loaded_with_all_overrides),
        cmocka_unit_test(job_json__gives_the_same_job_when_loaded_again),
        cmocka_unit_test(job_load__takes_the_short_words_of_the_field),
        cmocka_unit_test(job_load__counts_tokens_as_samples_of_synthetic_data),
        cmocka_unit_test(job_load__lays_documents_into_rows),
        cmocka_unit_test(job_load__names_our_word_for_that_of_another_tool),
        cmocka_unit_test(job_load__names_file_key_value_and_limit_when_refusing),
        cmocka_unit_test(job_check__has_the_limits_that_help_prints),
        cmocka_unit_test(job_defaults__are_these),
        cmocka_unit_test(job_load__takes_one_kind_of_batch),
        cmocka_unit_test(job_load__tells_missing_from_truncated),
        cmocka_unit_test(job_load__reads_minimal_job_with_texts),
        cmocka_unit_test(model_load__reads_explicit_chain_with_skips),
        cmocka_unit_test(model_load__reads_hugging_face_configs),
        cmocka_unit_test(model_load__takes_the_length_of_a_sample_beside_a_config),
        cmocka_unit_test(model_load__refuses_keys_of_another_computation),
        cmocka_unit_test(model_load__reads_a_head_with_a_table_of_its_own),
        cmocka_unit_test(job_load__refuses_a_head_alone_that_might_go_back),
        cmocka_unit_test(model_load__honours_or_notes_the_other_keys),
        cmocka_unit_test(job_load__gives_a_config_the_dtype_of_the_job),
        cmocka_unit_test(job_load__has_one_dtype_for_model_and_job),
        cmocka_unit_test(model_load__reads_the_configs_of_llama_and_its_kin),
        cmocka_unit_test(cluster_load__reads_objects_lists_texts_of_objects_and_this_machine),
        cmocka_unit_test(cluster_load__gives_a_known_kind_its_usual_machine),
        cmocka_unit_test(job_load__reads_lists_of_schedules_and_sizes_of_micro_batches),
        cmocka_unit_test(job_from_json__says_so_when_memory_ends_anywhere),
        cmocka_unit_test(keys_each__names_every_key_once_with_its_meaning),
        cmocka_unit_test(job_from_record__reads_times_without_a_unit_as_ns),
        cmocka_unit_test(job_load__leaves_buckets_to_the_framework),
        cmocka_unit_test(job_load__leaves_the_layout_open_to_any_schedule),
        cmocka_unit_test(job_load__wants_a_unit_with_every_time),
        cmocka_unit_test(frameworks__have_the_names_of_their_kinds),
        cmocka_unit_test(overlap__reaches_the_model_and_the_costs),
        cmocka_unit_test(gradients__have_the_bytes_that_the_job_says),
        cmocka_unit_test(data_sets__have_the_names_of_data_kind_in_its_order),
    };
    return cmocka_run_group_tests_name("job_json", tests, scratch_make, scratch_remove);
}
