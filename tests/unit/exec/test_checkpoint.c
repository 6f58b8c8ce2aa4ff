/* Checkpoints and safetensors files: round trips bit by bit, and files that lie. ranks: 2 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/base/rng.h"
#include "exec/cpu/backend_cpu.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/export.h"
#include "exec/weights/hf_names.h"
#include "exec/weights/safetensors.h"
#include "exec/checkpoint/weights_digest.h"
#include "profiles/base/whole_file.h"
#include "tests/unit/checkpoint_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static struct comm world;
static void path_of(const char *name, char path[160])
{
    snprintf(path, 160, "%s/%s", scratch, name);
}

/* --- safetensors ------------------------------------------------------------------------------ */

static enum status fetch(void *ctx, const void *source, int64_t num_elems, float *values,
                         struct err *err)
{
    (void)ctx;
    (void)err;
    memcpy(values, source, (size_t)num_elems * sizeof *values);
    return OK;
}

static void write_raw(const char *name, uint64_t header_bytes, const char *header, int data_bytes)
{
    char path[160];
    unsigned char length[8];
    path_of(name, path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(header_bytes >> (8 * i));
    fwrite(length, 1, 8, out);
    fputs(header, out);
    for (int i = 0; i < data_bytes; i++)
        fputc(i, out);
    assert_int_equal(fclose(out), 0);
}

static void safetensors_write__is_read_back_bit_by_bit_and_padded(void **state)
{
    float a[6], b[1] = {-0.0f}, got[6];
    const int64_t shape_a[2] = {2, 3};
    const struct tensor_out tensors[2] = {
        {.name = "layer.0.weight", .ndim = 2, .shape = shape_a, .num_elems = 6, .source = a},
        {.name = "scalar",         .ndim = 0, .shape = NULL,    .num_elems = 1, .source = b},
    };
    struct safetensors *file;
    struct tensor_info info;
    struct err err = {0};
    char path[160], *whole = NULL;
    size_t length;
    struct stat st;
    (void)state;
    if (world.rank != 0)
        return;
    path_of("good.safetensors", path);
    for (int i = 0; i < 6; i++)
        a[i] = (float)rng_normal(1, (uint64_t)i);
    assert_int_equal(
        safetensors_write(path, &(struct tensor_source){tensors, 2, fetch, NULL}, NULL, &err), OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal((st.st_size - 28) % 8, 0); /* the data begin aligned */
    assert_int_equal(safetensors_open(path, &file, &err), OK);
    assert_int_equal(file_read(path, &whole, &length, &err), OK);
    assert_non_null(strstr(whole + 8, "\"__metadata__\":{\"format\":\"pt\"}"));
    free(whole);
    assert_int_equal(safetensors_count(file), 3);
    assert_true(safetensors_find(file, "layer.0.weight", &info));
    assert_int_equal(info.ndim, 2);
    assert_int_equal(info.shape[1], 3);
    assert_int_equal(safetensors_read(file, "layer.0.weight", &info, got, &err), OK);
    assert_memory_equal(a, got, sizeof a);
    assert_true(safetensors_find(file, "scalar", &info));
    assert_int_equal(safetensors_read(file, "scalar", &info, got, &err), OK);
    assert_memory_equal(b, got, sizeof b);
    assert_false(safetensors_find(file, "none", &info));
    assert_false(safetensors_find(file, "__metadata__", &info));
    safetensors_close(file);
    unlink(path);
}

static void safetensors_write__into_a_pipe_leaves_the_pipe(void **state)
{
    const float value = 1.5f;
    const struct tensor_out one = {.name = "a", .num_elems = 1, .source = &value};
    struct err err = {0};
    char path[160], got[256];
    struct stat st;
    (void)state;
    if (world.rank != 0)
        return;
    path_of("pipe", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK); /* a reader that takes nothing yet */
    assert_true(fd >= 0);
    assert_int_equal(
        safetensors_write(path, &(struct tensor_source){&one, 1, fetch, NULL}, NULL, &err), OK);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    const int64_t bytes = (int64_t)read(fd, got, sizeof got);
    assert_true(bytes > 8 + (int64_t)sizeof value);
    assert_memory_equal(got + bytes - sizeof value, &value, sizeof value);
    close(fd);
    unlink(path);
}

static void safetensors_read__converts_half_bfloat_and_double(void **state)
{
    struct safetensors *file;
    struct tensor_info info;
    struct err err = {0};
    char path[160];
    float got[4];
    const char *header = "{\"h\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[8,12]},"
                         "\"d\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[12,20]}}";
    /* 1.5, -2^-24 (the smallest), 65504 (the largest), inf */
    const uint16_t half[4] = {0x3e00, 0x8001, 0x7bff, 0x7c00}, bfloat[2] = {0x3fc0, 0xc000};
    const double real = 0.1;
    (void)state;
    if (world.rank != 0)
        return;
    write_raw("types.safetensors", strlen(header), header, 0);
    path_of("types.safetensors", path);
    FILE *out = fopen(path, "ab");
    assert_non_null(out);
    fwrite(half, sizeof half, 1, out);
    fwrite(bfloat, sizeof bfloat, 1, out);
    fwrite(&real, sizeof real, 1, out);
    fclose(out);
    assert_int_equal(safetensors_open(path, &file, &err), OK);
    assert_true(safetensors_find(file, "h", &info));
    assert_int_equal(safetensors_read(file, "h", &info, got, &err), ERR_INPUT);
    assert_non_null(
        strstr(err.msg, "tensor 'h' holds a value that is not finite (inf, element 3)"));
    assert_true(got[0] == 1.5f && got[1] == -0x1p-24f && got[2] == 65504.0f && got[3] > 1e38f);
    err = (struct err){0};
    assert_true(safetensors_find(file, "b", &info));
    assert_int_equal(safetensors_read(file, "b", &info, got, &err), OK);
    assert_true(got[0] == 1.5f && got[1] == -2.0f);
    assert_true(safetensors_find(file, "d", &info));
    assert_int_equal(safetensors_read(file, "d", &info, got, &err), OK);
    assert_true(got[0] == 0.1f);
    safetensors_close(file);
    unlink(path);
}

static void safetensors_open__refuses_headers_that_lie(void **state)
{
    static const struct {
        uint64_t header_bytes; /* 0: the true one */
        const char *header, *message;
        int data_bytes;
    } files[] = {
        {UINT64_MAX, "{}",                                                                                   "header length 18446744073709551615",                  0},
        {1u << 30,   "{}",                                                                                   "header length 1073741824",                            0},
        {3,          "{}",                                                                                   "header length 3",                                     0},
        {0,          "[]",                                                                                   "the header is not an object",                         0},
        {0,          "{\"a\":{}}",                                                                           "tensor 'a': dtype, shape or data_offsets is missing", 0},
        {0,          "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
         "data_offsets lie outside the file",                                                                                                                       4},
        {0,          "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,0]}}",
         "data_offsets lie outside the file",                                                                                                                       8},
        {0,          "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "shape and data_offsets disagree",                                                                                                                         4},
        {0,          "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905,4],\"data_offsets\":[0,4]}}",
         "shape is not made of sizes",                                                                                                                              4},
        {0,          "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
         "shape is not made of sizes",                                                                                                                              4},
        {0,          "{\"a\":",                                                                              "",                                                    0},
    };
    (void)state;
    if (world.rank != 0)
        return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct safetensors *file = NULL;
        struct err err = {0};
        char path[160];
        write_raw("bad.safetensors",
                  files[i].header_bytes ? files[i].header_bytes : strlen(files[i].header),
                  files[i].header, files[i].data_bytes);
        path_of("bad.safetensors", path);
        assert_int_equal(safetensors_open(path, &file, &err), ERR_INPUT);
        if (!strstr(err.msg, files[i].message) || !strstr(err.msg, "bad.safetensors"))
            fail_msg("file %zu: '%s' has no '%s'", i, err.msg, files[i].message);
        assert_null(file);
        unlink(path);
    }
}

/* Tensors that nobody asks for may be of any kind. */
static void safetensors_open__passes_tensors_of_any_dtype_and_rank(void **state)
{
    const char *header = "{\"a\":{\"dtype\":\"F99\",\"shape\":[3],\"data_offsets\":[0,4]},"
                         "\"b\":{\"dtype\":\"U32\",\"shape\":[1],\"data_offsets\":[4,8]},"
                         "\"c\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],"
                         "\"data_offsets\":[8,12]}}";
    struct safetensors *file = NULL;
    struct tensor_info info;
    struct err err = {0};
    char path[160], text[64];
    float value;
    (void)state;
    if (world.rank != 0)
        return;
    write_raw("any.safetensors", strlen(header), header, 12);
    path_of("any.safetensors", path);
    ok(safetensors_open(path, &file, &err), &err);
    assert_true(safetensors_find(file, "a", &info));
    assert_int_equal(safetensors_read(file, "a", &info, &value, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "tensor 'a' has dtype F99"));
    assert_true(safetensors_find(file, "c", &info));
    assert_int_equal(info.ndim, 9);
    tensor_shape_text(info.ndim, info.shape, text, sizeof text);
    assert_string_equal(text, "1,1,1,1,1,1,1,1,...");
    safetensors_close(file);
    unlink(path);
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static void checkpoint_load__gives_weights_and_state_back_at_another_cut(void **state)
{
    const struct progress progress = {.step = 12, .epoch = 1, .position = 96};
    double sumsq[2] = {1.0 / 3, 1e-30}, seen[2] = {1, 1};
    double rows[4] = {0.1, 1e300, 0, 2.0 / 3};
    struct turn_norms norms = {.rows = rows, .num_turns = 2, .sumsq = sumsq, .steps = 3},
                      read = {.sumsq = seen};
    struct rig saved, loaded;
    struct stage_list list;
    struct progress got = {0};
    struct err err = {0};
    char dir[160], file[160], hex[2][65] = {"", ""};
    struct hf_import import;
    (void)state;
    path_of("checkpoint-12", dir);
    rig_init(&saved, 3, 1u << world.rank, 5, 10);
    list = list_of(&saved);
    ok(case_save(&world, dir, &saved, &progress, &norms, &err), &err);
    ok(checkpoint_norms(dir, saved.job.model.num_layers, &read, &err), &err);
    assert_int_equal(read.steps, 3);
    assert_memory_equal(read.sumsq, sumsq, sizeof sumsq); /* to the last bit */
    assert_int_equal(read.num_turns, 2);
    assert_memory_equal(read.rows, rows, sizeof rows);
    norms.steps = norms.num_turns = 0;
    ok(case_save(&world, dir, &saved, &progress, &norms, &err), &err); /* again */
    ok(checkpoint_norms(dir, saved.job.model.num_layers, &read, &err), &err);
    assert_int_equal(read.steps, 0);
    assert_true(read.sumsq[0] == 0 && read.sumsq[1] == 0);
    assert_int_equal(read.num_turns, 0);
    free(read.rows);
    ok(weights_digest(world.all, &list, hex[0], &err), &err);
    rig_init(&loaded, 6, 2u >> world.rank, 9, 10);
    ok(checkpoint_peek(dir, &loaded.job, true, &got, &err), &err);
    assert_memory_equal(&got, &progress, sizeof got);
    list = list_of(&loaded);
    ok(checkpoint_load(dir, &list, true, &err), &err);
    ok(weights_digest(world.all, &list, hex[1], &err), &err);
    if (world.rank == 0) {
        assert_int_equal(strlen(hex[0]), 64);
        assert_string_equal(hex[0], hex[1]);
    }
    for (int s = 0; s < 2; s++)
        for (int i = 0; loaded.stages[s] && i < stage_num_params(loaded.stages[s]); i++) {
            const struct param *param = &stage_params(loaded.stages[s])[i];
            for (int64_t e = 0; e < param->num_elems; e++) {
                assert_true(param->state[0][e] == param->weight[e] * 3 + 5);
                assert_true(param->state[1][e] == param->weight[e] * 5 - 5);
            }
        }
    rig_clear(&saved);
    rig_clear(&loaded);
    ok(comm_barrier(world.all, &err), &err);
    if (world.rank != 0)
        return;
    /* The export holds every weight and nothing else. */
    path_of("weights.safetensors", file);
    struct export_answer answer = {0};
    ok(checkpoint_export(dir, file, EXPORT_AS_TRAINED, &answer, &err), &err);
    rig_init(&loaded, 4, 3, 1, 10);
    assert_int_equal(answer.num_tensors,
                     stage_num_params(loaded.stages[0]) + stage_num_params(loaded.stages[1]));
    list = list_of(&loaded);
    ok(hf_load(file, &loaded.job.model, NULL, &list, false, &import, &err), &err);
    rig_clear(&loaded);
    export_answer_clear(&answer);
    unlink(file);
}

static void checkpoint_find__takes_the_newest(void **state)
{
    char dir[160], *path = NULL;
    struct err err = {0};
    (void)state;
    if (world.rank != 0)
        return;
    path_of("checkpoint-9", dir);
    assert_int_equal(mkdir(dir, 0777), 0);
    ok(checkpoint_find(scratch, &path, &err), &err);
    assert_non_null(strstr(path, "/checkpoint-12"));
    free(path);
    assert_int_equal(rmdir(dir), 0);
    path = NULL;
    assert_int_equal(checkpoint_find("/dev", &path, &err), ERR_SYSTEM);
    assert_string_equal(err.msg, "no checkpoint in '/dev'");
}

static void checkpoint_load__refuses_what_does_not_fit(void **state)
{
    struct rig other;
    struct stage_list list;
    struct progress progress;
    struct err err = {0};
    char dir[160], file[200];
    (void)state;
    if (world.rank != 0)
        return;
    path_of("checkpoint-12", dir);
    rig_init(&other, 3, 3, 1, 7);
    list = list_of(&other);
    assert_int_equal(checkpoint_peek(dir, &other.job, false, &progress, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "holds another model: model.params is"));
    err = (struct err){0};
    assert_int_equal(checkpoint_load(dir, &list, false, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "the model wants [7,32]"));
    rig_clear(&other);
    rig_init(&other, 3, 3, 1, 10);
    list = list_of(&other);
    err = (struct err){0};
    other.job.train.seed++;
    assert_int_equal(checkpoint_peek(dir, &other.job, true, &progress, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "belongs to a run with train.seed"));
    assert_string_equal(err.hint, "--init takes its weights alone");
    err = (struct err){0};
    other.job.train.optimizer.kind = OPTIMIZER_LAMB;
    assert_int_equal(checkpoint_peek(dir, &other.job, true, &progress, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "the job has lamb"));
    err = (struct err){0};
    ok(checkpoint_peek(dir, &other.job, false, &progress, &err), &err);
    snprintf(file, sizeof file, "%s/stage-00001.safetensors", dir);
    assert_int_equal(truncate(file, 500), 0);
    err = (struct err){0};
    assert_int_equal(checkpoint_load(dir, &list, true, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "stage-00001.safetensors"));
    unlink(file);
    err = (struct err){0};
    assert_int_equal(checkpoint_load(dir, &list, true, &err), ERR_SYSTEM);
    rig_clear(&other);
}

static void checkpoint_save__leaves_the_old_one_when_it_cannot_write(void **state)
{
    const struct progress progress = {.step = 1};
    const struct turn_norms none = {0};
    struct rig rig;
    struct err err = {0};
    (void)state;
    rig_init(&rig, 3, 1u << world.rank, 5, 10);
    assert_int_equal(case_save(&world, "/proc/none/checkpoint-1", &rig, &progress, &none, &err),
                     ERR_SYSTEM);
    assert_non_null(strstr(err.msg, "cannot create '/proc/none/checkpoint-1.tmp'"));
    rig_clear(&rig);
}

/* The bytes of a file of the folder; fresh. */
static char *bytes_of(const char *dir, const char *name, size_t *length)
{
    char path[200];
    char *bytes = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_read(path, &bytes, length, NULL), OK);
    return bytes;
}

static void checkpoint_begin__keeps_the_state_of_its_call(void **state)
{
    const struct progress progress = {.step = 9};
    const struct turn_norms none = {0};
    struct checkpoint_write *write = NULL;
    struct checkpoint_cost cost = {0};
    struct rig rig;
    struct err err = {0};
    char at_once[160], beside[160], name[32], command[400];
    (void)state;
    path_of("at-once", at_once);
    path_of("beside", beside);
    rig_init(&rig, 3, 1u << world.rank, 5, 10);
    ok(case_save(&world, at_once, &rig, &progress, &none, &err), &err);
    const struct stage_list list = list_of(&rig);
    const struct checkpoint_state what = {.job = &rig.job,
                                          .list = &list,
                                          .write = true,
                                          .run_id = own_run,
                                          .progress = &progress,
                                          .norms = &none,
                                          .eval_loss = NAN};
    ok(checkpoint_begin(&world, beside, &what, true, &write, &err), &err);
    struct stage *stage = rig.stages[world.rank];
    for (int i = 0; i < stage_num_params(stage); i++) /* the next step */
        for (int64_t e = 0; e < stage_params(stage)[i].num_elems; e++)
            stage_params(stage)[i].weight[e] = stage_params(stage)[i].state[0][e] = 7;
    assert_int_not_equal(access(beside, F_OK), 0);
    ok(checkpoint_end(&world, write, &cost, &err), &err);
    for (int f = 0; world.rank == 0 && f < 3; f++) {
        size_t length[2];
        snprintf(name, sizeof name, f < 2 ? "stage-%05d.safetensors" : "manifest.json", f);
        char *one = bytes_of(at_once, name, &length[0]), *two = bytes_of(beside, name, &length[1]);
        assert_int_equal(length[0], length[1]);
        assert_memory_equal(one, two, length[0]);
        free(one);
        free(two);
    }
    assert_true(world.rank != 0 || cost.copy_bytes > 0);
    snprintf(command, sizeof command, "rm -r %s %s", at_once, beside);
    assert_true(world.rank != 0 || system(command) == 0);
    rig_clear(&rig);
}

static void tensor_copy_make__takes_no_more_than_it_may(void **state)
{
    const int64_t shape[] = {2, 3};
    const float values[] = {1, 2, 3, 4, 5, 6};
    const struct tensor_out tensor = {
        .name = "a", .ndim = 2, .shape = shape, .num_elems = 6, .source = values};
    const struct tensor_source from = {&tensor, 1, tensor_fetch_host, NULL};
    struct tensor_copy copy = {0};
    (void)state;
    assert_int_equal(tensor_copy_make(&from, INT64_MAX, &copy, NULL), OK);
    const int64_t bytes = copy.bytes;
    assert_memory_equal(copy.source.tensors[0].source, values, sizeof values);
    tensor_copy_clear(&copy);
    assert_int_equal(tensor_copy_make(&from, bytes - 1, &copy, NULL), ERR_NOMEM);
    assert_null(copy.block);
    assert_int_equal(tensor_copy_make(&from, bytes, &copy, NULL), OK);
    tensor_copy_clear(&copy);
    tensor_copy_clear(&copy);
}

/* Else a resumed run would decide for epochs without end. */
static void checkpoint_peek__refuses_an_epoch_that_no_job_has(void **state)
{
    struct progress progress;
    struct rig rig;
    char path[160];
    (void)state;
    if (world.rank != 0)
        return;
    rig_init(&rig, 3, 0, 1, 10);
    path_of("manifest.json", path);
    for (int over = 0; over < 2; over++) {
        const struct model *model = &rig.job.model;
        struct err err = {0};
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fprintf(out,
                "{\"format\": \"elapse-checkpoint\", \"schema\": 1, \"files\": [\"a\"],"
                " \"step\": 7, \"epoch\": %d, \"position\": 0, \"frozen_layers\": 0,"
                " \"model\": {\"layers\": %d, \"hidden\": %d, \"mlp\": %d, \"heads\": %d,"
                " \"params\": %lld}}",
                JOB_EPOCHS_MAX + over, model->num_layers, model->hidden, model->mlp, model->heads,
                (long long)model_total_params(model));
        assert_int_equal(fclose(out), 0);
        assert_int_equal(checkpoint_peek(scratch, &rig.job, false, &progress, &err),
                         over ? ERR_INPUT : OK);
        assert_true(over ? strstr(err.msg, "epoch must be 0..1000000") != NULL
                         : progress.epoch == JOB_EPOCHS_MAX);
    }
    unlink(path);
    rig_clear(&rig);
}

static void checkpoint_norms__refuses_sums_that_are_no_squares(void **state)
{
    static const char *const sums[] = {"1, 2", "1, -2", "1, null", "1", "1, \"2\""};
    double sumsq[2];
    struct turn_norms turn = {.sumsq = sumsq};
    char path[160];
    (void)state;
    if (world.rank != 0)
        return;
    path_of("manifest.json", path);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        struct err err = {0};
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fprintf(out,
                "{\"format\": \"elapse-checkpoint\", \"schema\": 1, \"files\": [\"a\"],"
                " \"turn\": {\"steps\": 3, \"sumsq\": [%s]}}",
                sums[i]);
        assert_int_equal(fclose(out), 0);
        assert_int_equal(checkpoint_norms(scratch, 2, &turn, &err), i == 0 ? OK : ERR_INPUT);
        assert_true(i == 0 || strstr(err.msg, "turn.sumsq"));
        assert_true(i > 0 || (turn.steps == 3 && sumsq[0] == 1 && sumsq[1] == 2));
    }
    unlink(path);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors_write__is_read_back_bit_by_bit_and_padded),
        cmocka_unit_test(safetensors_write__into_a_pipe_leaves_the_pipe),
        cmocka_unit_test(safetensors_read__converts_half_bfloat_and_double),
        cmocka_unit_test(safetensors_open__refuses_headers_that_lie),
        cmocka_unit_test(safetensors_open__passes_tensors_of_any_dtype_and_rank),
        cmocka_unit_test(checkpoint_load__gives_weights_and_state_back_at_another_cut),
        cmocka_unit_test(checkpoint_find__takes_the_newest),
        cmocka_unit_test(checkpoint_load__refuses_what_does_not_fit),
        cmocka_unit_test(checkpoint_save__leaves_the_old_one_when_it_cannot_write),
        cmocka_unit_test(checkpoint_begin__keeps_the_state_of_its_call),
        cmocka_unit_test(tensor_copy_make__takes_no_more_than_it_may),
        cmocka_unit_test(checkpoint_peek__refuses_an_epoch_that_no_job_has),
        cmocka_unit_test(checkpoint_norms__refuses_sums_that_are_no_squares),
    };
    on_ranks_begin(&argc, &argv, 2, &world);
    if (world.rank == 0 && scratch_make(NULL) != 0)
        comm_abort(&world, 3);
    comm_bcast(world.all, scratch, sizeof scratch, 0, NULL);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (world.rank == 0)
        scratch_remove(NULL);
    return on_ranks_end(&world, failed);
}
