/* The digest over all weights against one made tensor by tensor, in the order of names. ranks: 2 */
#include "exec/cpu/backend_cpu.h"
#include "exec/checkpoint/weights_digest.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/test.h"

static struct comm world;

struct rig {
    struct job job;
    struct backend *backend;
    struct stage *stages[2];
};

static void ok(enum status rc, const struct err *err)
{
    if (rc != OK)
        fail_msg("rank %d: %s", world.rank, err->msg);
}

/* A value that names its place: two tensors of one size, or two places of one tensor, differ. */
static float value_of(const char *name, int64_t element)
{
    unsigned sum = 0;
    for (; *name; name++)
        sum = sum * 31 + (unsigned char)*name;
    return (float)(sum % 8191) + (float)(element % 65521) / 65536;
}

static void new_stage(struct rig *rig, int s, int first_item, int end_item)
{
    struct err err = {0};
    struct stage_spec spec = {.model = &rig->job.model,
                              .job = &rig->job,
                              .backend = rig->backend,
                              .first_item = first_item,
                              .end_item = end_item,
                              .max_samples = 1,
                              .max_live = 1};
    ok(stage_new(&spec, &rig->stages[s], &err), &err);
    for (int i = 0; i < stage_num_params(rig->stages[s]); i++) {
        struct param *param = &stage_params(rig->stages[s])[i];
        for (int64_t e = 0; e < param->num_elems; e++)
            param->weight[e] = param->tied_copy ? -1 : value_of(param->name, e);
    }
}

static void rig_init(struct rig *rig, const char *model, int threads)
{
    struct err err = {0};
    memset(rig, 0, sizeof *rig);
    job_defaults(&rig->job);
    ok(model_parse(model, &rig->job.model, &err), &err);
    rig->backend = backend_cpu_new(DTYPE_FP32, threads, &err);
    assert_non_null(rig->backend);
}

static void rig_clear(struct rig *rig)
{
    for (int s = 0; s < 2; s++)
        stage_free(rig->stages[s]);
    backend_free(rig->backend);
    job_clear(&rig->job);
}

static void digest_of(const void *data, size_t size, unsigned char digest[SHA256_BYTES])
{
    struct err err = {0};
    ok(sha256_digest(data, size, digest, &err), &err);
}

/* The slow answer: the whole model in one stage, always the smallest name that is left. */
static void by_hand(const char *model, char hex[65])
{
    static char text[1 << 16];
    unsigned char digest[SHA256_BYTES];
    bool taken[256] = {false};
    size_t size = 0;
    struct rig rig;
    rig_init(&rig, model, 1);
    new_stage(&rig, 0, 0, rig.job.model.num_items);
    const struct param *params = stage_params(rig.stages[0]);
    int count = stage_num_params(rig.stages[0]);
    assert_in_range(count, 10, 256);
    for (int n = 0; n < count; n++) {
        int least = -1;
        for (int i = 0; i < count; i++)
            if (!taken[i] && (least < 0 || strcmp(params[i].name, params[least].name) < 0))
                least = i;
        taken[least] = true;
        digest_of(params[least].weight, (size_t)params[least].num_elems * sizeof(float), digest);
        memcpy(text + size, params[least].name, strlen(params[least].name) + 1);
        size += strlen(params[least].name) + 1;
        memcpy(text + size, digest, sizeof digest);
        size += sizeof digest;
    }
    digest_of(text, size, digest);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    rig_clear(&rig);
}

/* Two ranks, the first of which holds the model's end, or all of it. */
static void on_two_ranks(const char *model, int threads, bool host_memory, bool whole, char *hex)
{
    struct err err = {0};
    struct rig rig;
    rig_init(&rig, model, threads);
    int items = rig.job.model.num_items;
    if (world.rank == 0 && whole)
        new_stage(&rig, 0, 0, 2);
    if (world.rank == 0)
        new_stage(&rig, 1, 2, items);
    else if (!whole)
        new_stage(&rig, 0, 0, 2);
    rig.backend->host_memory = host_memory; /* false: fetched by copies, as from a device */
    struct stage_list list = {.stages = rig.stages, .num_stages = 2, .backend = rig.backend};
    ok(weights_digest(world.all, &list, hex, &err), &err);
    rig.backend->host_memory = true;
    rig_clear(&rig);
}

static void same_by_hand(const char *model)
{
    char want[65] = "", got[65] = "";
    if (world.rank == 0)
        by_hand(model, want);
    for (int way = 0; way < 8; way++) {
        on_two_ranks(model, 1 + (way & 1) * 2, way & 2, way & 4, got);
        if (world.rank == 0)
            assert_string_equal(got, want);
    }
}

static void weights_digest__is_that_of_each_tensor_in_the_order_of_names(void **state)
{
    (void)state;
    same_by_hand("vit-tiny:image=16,patch=8,classes=10,hidden=32,heads=2,mlp=64,layers=12");
}

static void weights_digest__leaves_out_the_copy_of_a_tied_table(void **state)
{
    (void)state;
    same_by_hand("gpt2:seq=16,vocab=70,hidden=32,heads=2,mlp=64,layers=2");
}

static void weights_digest__fetches_more_than_it_holds_at_a_time(void **state)
{
    /* 64 MiB are fetched at once. The table and the MLP's two matrices take 36 MB each. */
    const char *model = "gpt2:seq=8,vocab=70001,hidden=128,heads=2,mlp=70000,layers=1";
    char want[65] = "", got[65] = "";
    (void)state;
    if (world.rank == 0)
        by_hand(model, want);
    on_two_ranks(model, 2, false, true, got);
    if (world.rank == 0)
        assert_string_equal(got, want);
}

static void weights_digest__sees_a_single_bit(void **state)
{
    const char *model = "vit-tiny:image=16,patch=8,classes=10,hidden=32,heads=2,mlp=64,layers=2";
    char hex[2][65] = {"", ""};
    struct err err = {0};
    struct rig rig;
    (void)state;
    rig_init(&rig, model, 2);
    new_stage(&rig, 0, 0, rig.job.model.num_items);
    struct stage_list list = {.stages = rig.stages, .num_stages = 2, .backend = rig.backend};
    struct param *last = &stage_params(rig.stages[0])[stage_num_params(rig.stages[0]) - 1];
    for (int i = 0; i < 2; i++) {
        ok(weights_digest(world.all, &list, hex[i], &err), &err);
        ((unsigned char *)&last->weight[last->num_elems - 1])[0] ^= 1;
    }
    if (world.rank == 0)
        assert_string_not_equal(hex[0], hex[1]);
    rig_clear(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_digest__is_that_of_each_tensor_in_the_order_of_names),
        cmocka_unit_test(weights_digest__leaves_out_the_copy_of_a_tied_table),
        cmocka_unit_test(weights_digest__fetches_more_than_it_holds_at_a_time),
        cmocka_unit_test(weights_digest__sees_a_single_bit),
    };
    on_ranks_begin(&argc, &argv, 2, &world);
    return on_ranks_end(&world, cmocka_run_group_tests(tests, NULL, NULL));
}
