/* Nothing damaged is accepted, nothing foreign is touched, nothing is lost: checkpoints whose files
 * were changed, swapped or put there by others, and the order of syncs and renames. ranks: 2 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/checkpoint/checkpoint_check.h"
#include "exec/checkpoint/owned_folder.h"
#include "profiles/base/whole_file.h"
#include "tests/unit/checkpoint_case.h"
#include "tests/unit/on_ranks.h"
#include "tests/unit/scratch.h"
#include "tests/unit/test.h"

static struct comm world;
static const struct turn_norms no_norms;

/* --- what the system was asked for, in front of the C library's functions --------------------- */

static struct {
    bool sync; /* else a rename of `path` to `to` */
    char path[256], to[256];
} events[256];
static int num_events;

static void note(bool sync, const char *path, const char *to)
{
    if (num_events == 256)
        return;
    events[num_events].sync = sync;
    snprintf(events[num_events].path, sizeof events[0].path, "%s", path);
    snprintf(events[num_events++].to, sizeof events[0].to, "%s", to);
}

int fsync(int fd)
{
    char link[40], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    note(true, path, "");
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    note(false, from, to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    note(false, from, to);
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

static int last_sync(const char *path, int before)
{
    for (int i = before - 1; i >= 0; i--)
        if (events[i].sync && strcmp(events[i].path, path) == 0)
            return i;
    return -1;
}

/* --- making and damaging ---------------------------------------------------------------------- */

/* "SCRATCH/checkpoint-STEP/NAME" or, without name, the folder. Good for seven more calls. */
static const char *in_step(int step, const char *name)
{
    static char paths[8][160];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/checkpoint-%d%s%s", scratch, step, name ? "/" : "",
             name ? name : "");
    return path;
}

/* Save a checkpoint of this step, whose weights differ from those of any other. Collective. */
static enum status save_step(int step, double eval_loss, struct err *err)
{
    const struct progress progress = {.step = step};
    struct rig rig;
    rig_init(&rig, 3, 1u << world.rank, (uint64_t)step, 10);
    const struct stage_list list = list_of(&rig);
    const struct checkpoint_state what = {.job = &rig.job,
                                          .list = &list,
                                          .write = true,
                                          .run_id = own_run,
                                          .progress = &progress,
                                          .norms = &no_norms,
                                          .eval_loss = eval_loss};
    enum status rc = checkpoint_save(&world, in_step(step, NULL), &what, err);
    rig_clear(&rig);
    return rc;
}

static void saved(int step)
{
    struct err err = {0};
    ok(save_step(step, NAN, &err), &err);
}

/* Remove everything in the scratch folder. Collective. */
static void clean(void)
{
    char command[96];
    ok(comm_barrier(world.all, NULL), &(struct err){.msg = "barrier"});
    snprintf(command, sizeof command, "rm -rf %s/*", scratch);
    if (world.rank == 0)
        assert_int_equal(system(command), 0);
    ok(comm_barrier(world.all, NULL), &(struct err){.msg = "barrier"});
}

static void write_bytes(const char *path, const char *bytes, size_t length)
{
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, length, out), length);
    assert_int_equal(fclose(out), 0);
}

static bool refused(int step)
{
    struct err err = {0};
    enum status rc = checkpoint_check(in_step(step, NULL), 0, 1, &err);
    if (rc != OK && !strstr(err.msg, "checkpoint-"))
        fail_msg("'%s' names no file", err.msg);
    return rc == ERR_INPUT;
}

static const char *const names[] = {"manifest.json", "stage-00000.safetensors",
                                    "stage-00001.safetensors"};
enum { NUM_NAMES = 3, PLACES = 41, PAGE = 4096 };

/* --- damage ----------------------------------------------------------------------------------- */

static void checkpoint_check__refuses_any_flipped_bit_and_any_zeroed_page(void **state)
{
    (void)state;
    saved(12);
    for (int f = 0; f < NUM_NAMES && world.rank == 0; f++) {
        char path[160], *bytes = NULL, kept[PAGE];
        size_t length = 0;
        struct err err = {0};
        snprintf(path, sizeof path, "%s", in_step(12, names[f]));
        ok(file_read(path, &bytes, &length, &err), &err);
        ok(checkpoint_check(in_step(12, NULL), 0, 1, &err), &err);
        for (size_t i = 0; i < PLACES; i++) { /* the first byte, the last, and between */
            const size_t at = i * (length - 1) / (PLACES - 1);
            bytes[at] = (char)(bytes[at] ^ 1 << i % 8);
            write_bytes(path, bytes, length);
            if (!refused(12))
                fail_msg("%s: bit %zu of byte %zu may be flipped", names[f], i % 8, at);
            bytes[at] = (char)(bytes[at] ^ 1 << i % 8);
        }
        for (size_t at = 0; at + 16 < length && at < 8 * PAGE; at += PAGE) {
            const size_t size = length - at < PAGE ? length - at : PAGE;
            memcpy(kept, bytes + at, size);
            memset(bytes + at, 0, size);
            write_bytes(path, bytes, length);
            if (memcmp(kept, bytes + at, size) != 0 && !refused(12))
                fail_msg("%s: page at %zu may be zero", names[f], at);
            memcpy(bytes + at, kept, size);
        }
        write_bytes(path, bytes, length - 1);
        assert_true(refused(12));
        write_bytes(path, bytes, length + 1); /* file_read() ends in a NUL */
        assert_true(refused(12));
        write_bytes(path, bytes, length);
        ok(checkpoint_check(in_step(12, NULL), 0, 1, &err), &err);
        free(bytes);
    }
    clean();
}

static void checkpoint_check__refuses_files_of_another_step(void **state)
{
    (void)state;
    saved(12);
    saved(13);
    for (int f = 0; f < NUM_NAMES && world.rank == 0; f++) {
        struct err err = {0};
        assert_int_equal(rename(in_step(12, names[f]), at("aside")), 0);
        assert_int_equal(link(in_step(13, names[f]), in_step(12, names[f])), 0);
        if (!refused(12))
            fail_msg("%s of step 13 passes for that of step 12", names[f]);
        assert_int_equal(rename(at("aside"), in_step(12, names[f])), 0);
        ok(checkpoint_check(in_step(12, NULL), 0, 1, &err), &err);
    }
    if (world.rank == 0) {
        struct err err = {0};
        assert_int_equal(rename(in_step(13, NULL), in_step(14, NULL)), 0);
        assert_int_equal(checkpoint_check(in_step(14, NULL), 0, 1, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, "holds another step than its name says"));
    }
    clean();
}

/* Each rank of a node checks its share, so a damage that one rank finds stops all. */
static void checkpoint_choose__finds_damage_on_any_rank(void **state)
{
    (void)state;
    saved(12);
    for (int f = 1; f < NUM_NAMES; f++) {
        struct checkpoint_choice choice;
        struct err err = {0};
        char kept = 0;
        int fd = -1;
        if (world.rank == 0) {
            fd = open(in_step(12, names[f]), O_RDWR);
            assert_int_equal(pread(fd, &kept, 1, 3000), 1);
            assert_int_equal(pwrite(fd, &(char){(char)(kept ^ 4)}, 1, 3000), 1);
        }
        ok(comm_barrier(world.all, &err), &err);
        assert_int_equal(checkpoint_choose(&world, in_step(12, NULL), &choice, &err), ERR_INPUT);
        assert_non_null(strstr(err.msg, names[f]));
        assert_null(choice.dir);
        if (world.rank == 0) {
            assert_int_equal(pwrite(fd, &kept, 1, 3000), 1);
            close(fd);
        }
        ok(comm_barrier(world.all, NULL), &err);
    }
    clean();
}

/* --- the choice ------------------------------------------------------------------------------- */

static void choose(const char *want_dir, const char *want_note)
{
    struct checkpoint_choice choice;
    struct err err = {0};
    ok(comm_barrier(world.all, &err), &err);
    ok(checkpoint_choose(&world, scratch, &choice, &err), &err);
    assert_string_equal(choice.dir, want_dir);
    if (!strstr(choice.note, want_note) || (!*want_note && *choice.note))
        fail_msg("note '%s' is not '%s'", choice.note, want_note);
    choice.run = strdup(choice.dir);
    checkpoint_choice_clear(&choice);
    assert_null(choice.dir);
    assert_null(choice.run);
    ok(comm_barrier(world.all, &err), &err);
}

static void checkpoint_choose__falls_back_to_the_newest_good_one(void **state)
{
    const char *strangers = "fedcba9876543210fedcba9876543210";
    struct checkpoint_choice choice;
    struct err err = {0};
    (void)state;
    for (int step = 10; step <= 12; step++)
        saved(step);
    if (world.rank == 0) {
        char name[160];
        ok(run_id_write(scratch, own_run, &err), &err);
        snprintf(name, sizeof name, "%s.tmp", in_step(99, NULL));
        assert_int_equal(mkdir(name, 0777), 0);
        snprintf(name, sizeof name, "%s.old-1", in_step(99, NULL));
        assert_int_equal(mkdir(name, 0777), 0);
    }
    choose(in_step(12, NULL), "");
    if (world.rank == 0)
        assert_int_equal(truncate(in_step(12, names[2]), 900), 0);
    choose(in_step(11, NULL), "it has 900 bytes");
    if (world.rank == 0)
        assert_int_equal(unlink(in_step(11, names[0])), 0);
    choose(in_step(10, NULL), "; continuing from checkpoint-10");
    if (world.rank == 0)
        ok(run_id_write(scratch, strangers, &err), &err);
    ok(comm_barrier(world.all, &err), &err);
    assert_int_equal(checkpoint_choose(&world, scratch, &choice, &err), ERR_INPUT);
    assert_non_null(
        strstr(err.msg, "it has 900 bytes") ? err.msg : strstr(err.msg, "belongs to another run"));
    clean();
}

/* A complete checkpoint of another run, copied into this run's folder. */
static void checkpoint_choose__passes_over_another_run(void **state)
{
    struct err err = {0};
    (void)state;
    saved(30);
    if (world.rank == 0) {
        ok(run_id_write(scratch, "00000000000000000000000000000000", &err), &err);
        assert_int_equal(checkpoint_check(in_step(30, NULL), 0, 1, &err), OK);
    }
    struct checkpoint_choice choice;
    ok(comm_barrier(world.all, &err), &err);
    assert_int_equal(checkpoint_choose(&world, scratch, &choice, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "checkpoint-30' belongs to another run"));
    clean();
}

/* As versions before digests wrote it. */
static void checkpoint_choose__takes_an_older_version_and_says_so(void **state)
{
    static const char text[] = "{\"format\": \"elapse-checkpoint\", \"schema\": 1, \"step\": 4, "
                               "\"files\": [\"stage-00000.safetensors\"]}\n";
    (void)state;
    if (world.rank == 0) {
        assert_int_equal(mkdir(in_step(4, NULL), 0777), 0);
        write_bytes(in_step(4, "manifest.json"), text, sizeof text - 1);
    }
    choose(in_step(4, NULL), "comes from an older version and has no digests");
    if (world.rank == 0) {
        struct json *answer = json_object_new();
        struct err err = {0};
        ok(checkpoint_verify(in_step(4, NULL), answer, &err), &err);
        assert_false(json_true(json_get(answer, "ok")));
        json_free(answer);
    }
    clean();
}

static void checkpoint_verify__lists_every_damaged_file(void **state)
{
    (void)state;
    saved(12);
    if (world.rank == 0) {
        struct json *answer = json_object_new();
        struct err err = {0};
        assert_int_equal(unlink(in_step(12, names[1])), 0);
        assert_int_equal(truncate(in_step(12, names[2]), 5), 0);
        ok(checkpoint_verify(in_step(12, NULL), answer, &err), &err);
        assert_false(json_true(json_get(answer, "ok")));
        assert_true(json_true(json_path(answer, "files.0.ok")));
        assert_non_null(strstr(json_string(json_path(answer, "files.1.reason")), "cannot open"));
        assert_non_null(strstr(json_string(json_path(answer, "files.2.reason")), "it has 5 bytes"));
        json_free(answer);
    }
    clean();
}

/* --- what is not ours ------------------------------------------------------------------------- */

static void checkpoint_save__touches_nothing_that_others_made(void **state)
{
    char temp[160];
    struct err err = {0};
    (void)state;
    if (world.rank == 0) { /* where its temporary folder would be: a link to a full folder */
        assert_int_equal(mkdir(at("precious"), 0777), 0);
        write_bytes(at("precious/manifest.json"), "mine", 4);
        snprintf(temp, sizeof temp, "%s.tmp", in_step(20, NULL));
        assert_int_equal(symlink(at("precious"), temp), 0);
        snprintf(temp, sizeof temp, "%s.tmp-2", in_step(20, NULL));
        assert_int_equal(mkdir(temp, 0777), 0);
        assert_int_equal(mkdir(in_step(21, NULL), 0777), 0);
        write_bytes(in_step(21, "manifest.json"), "mine", 4);
        assert_int_equal(symlink(at("precious"), in_step(22, NULL)), 0);
    }
    ok(comm_barrier(world.all, &err), &err);
    saved(20);
    for (int step = 21; step <= 22; step++) {
        err = (struct err){0};
        assert_int_equal(save_step(step, NAN, &err), ERR_SYSTEM);
        assert_non_null(strstr(err.msg, "it exists and belongs to another run"));
        snprintf(temp, sizeof temp, "%s.tmp", in_step(step, NULL));
        assert_int_not_equal(access(temp, F_OK), 0);
    }
    if (world.rank == 0) {
        struct stat st;
        assert_int_equal(access(at("precious/manifest.json"), F_OK), 0);
        assert_int_equal(access(in_step(21, "manifest.json"), F_OK), 0);
        assert_int_equal(lstat(in_step(22, NULL), &st), 0);
        assert_true(S_ISLNK(st.st_mode));
        snprintf(temp, sizeof temp, "%s.tmp-2", in_step(20, NULL));
        assert_int_equal(access(temp, F_OK), 0);
        assert_false(refused(20));
    }
    clean();
}

/* A link in the place of its temporary folder that leads to a checkpoint of its own. */
static void checkpoint_save__follows_no_link_to_its_own_checkpoint(void **state)
{
    char temp[160];
    (void)state;
    saved(20);
    snprintf(temp, sizeof temp, "%s.tmp", in_step(21, NULL));
    if (world.rank == 0)
        assert_int_equal(symlink(in_step(20, NULL), temp), 0);
    saved(21);
    if (world.rank == 0) {
        struct err err = {0};
        ok(checkpoint_check(in_step(20, NULL), 0, 1, &err), &err);
        ok(checkpoint_check(in_step(21, NULL), 0, 1, &err), &err);
        assert_int_equal(unlink(temp), 0);
    }
    clean();
}

/* A run that was killed while it saved leaves a folder with its mark. */
static void checkpoint_save__takes_over_what_its_own_run_left(void **state)
{
    char temp[160], file[200];
    struct err err = {0};
    (void)state;
    snprintf(temp, sizeof temp, "%s.tmp", in_step(20, NULL));
    if (world.rank == 0) {
        ok(owned_folder_make(temp, own_run, &err), &err);
        snprintf(file, sizeof file, "%s/stage-00000.safetensors.tmp.aB3xYz", temp);
        write_bytes(file, "torn", 4);
    }
    ok(comm_barrier(world.all, &err), &err);
    saved(20);
    if (world.rank == 0) {
        assert_int_not_equal(access(temp, F_OK), 0);
        assert_int_not_equal(access(in_step(20, "stage-00000.safetensors.tmp.aB3xYz"), F_OK), 0);
    }
    clean();
}

static void owned_folder_remove__leaves_what_no_checkpoint_has(void **state)
{
    struct err err = {0};
    (void)state;
    if (world.rank != 0)
        return;
    ok(owned_folder_make(in_step(5, NULL), own_run, &err), &err);
    write_bytes(in_step(5, "manifest.json"), "x", 1);
    write_bytes(in_step(5, "notes.txt"), "x", 1);
    assert_false(owned_folder_remove(in_step(5, NULL), "fedcba9876543210fedcba9876543210"));
    assert_int_equal(access(in_step(5, "manifest.json"), F_OK), 0);
    assert_false(owned_folder_remove(in_step(5, NULL), own_run));
    assert_int_not_equal(access(in_step(5, "manifest.json"), F_OK), 0);
    assert_int_equal(access(in_step(5, "notes.txt"), F_OK), 0);
    assert_int_equal(unlink(in_step(5, "notes.txt")), 0);
    assert_true(owned_folder_remove(in_step(5, NULL), own_run));
    assert_int_not_equal(access(in_step(5, NULL), F_OK), 0);
}

/* On a full disk the folder is made and its mark is not. Left behind, nobody could remove it. */
static void owned_folder_make__leaves_no_folder_without_a_mark(void **state)
{
    struct rlimit none = {0}, was;
    struct err err = {0};
    char path[200];
    (void)state;
    if (world.rank != 0)
        return;
    snprintf(path, sizeof path, "%s/unmarked", scratch);
    getrlimit(RLIMIT_FSIZE, &was);
    none.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    const enum status rc = owned_folder_make(path, own_run, &err);
    setrlimit(RLIMIT_FSIZE, &was);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(rc, ERR_SYSTEM);
    assert_int_equal(access(path, F_OK), -1);
}

static void checkpoint_prune__keeps_the_newest_and_the_best(void **state)
{
    static const double losses[] = {NAN, 0.9, 0.3, 0.5, NAN, 0.4};
    struct err err = {0};
    (void)state;
    for (int step = 0; step < 6; step++)
        ok(save_step(step, losses[step], &err), &err);
    if (world.rank == 0) {
        assert_int_equal(mkdir(in_step(1000, NULL), 0777), 0); /* not of this run: does not count */
        write_bytes(in_step(1000, "manifest.json"), "mine", 4);
        checkpoint_prune(scratch, own_run, 0);
        assert_int_equal(access(in_step(0, NULL), F_OK), 0);
        checkpoint_prune(scratch, own_run, 2);
        for (int step = 0; step < 6; step++)
            assert_int_equal(access(in_step(step, NULL), F_OK) == 0, step == 2 || step >= 4);
        assert_int_equal(access(in_step(1000, "manifest.json"), F_OK), 0);
        assert_true(checkpoint_best_loss(scratch, own_run) == 0.3);
    }
    clean();
}

/* --- order of syncs --------------------------------------------------------------------------- */

static void checkpoint_save__syncs_each_file_before_its_name_and_the_folder_last(void **state)
{
    char temp[160];
    int placed = -1, last_file = -1;
    (void)state;
    num_events = 0;
    saved(12);
    snprintf(temp, sizeof temp, "%s.tmp", in_step(12, NULL));
    for (int i = 0; i < num_events; i++) {
        if (events[i].sync)
            continue;
        if (strcmp(events[i].path, temp) == 0) {
            placed = i;
            continue;
        }
        last_file = i;
        if (last_sync(events[i].path, i) < 0)
            fail_msg("'%s' was renamed before it was synced", events[i].path);
    }
    assert_true(last_file >= 0); /* each rank has a stage */
    if (last_sync(temp, num_events) < last_file)
        fail_msg("the names in '%s' were not synced", temp);
    if (world.rank == 0) {
        assert_true(placed > last_file);
        assert_true(last_sync(temp, placed) > last_file);
        assert_true(last_sync(scratch, num_events) > placed);
    }
    clean();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_check__refuses_any_flipped_bit_and_any_zeroed_page),
        cmocka_unit_test(checkpoint_check__refuses_files_of_another_step),
        cmocka_unit_test(checkpoint_choose__finds_damage_on_any_rank),
        cmocka_unit_test(checkpoint_choose__falls_back_to_the_newest_good_one),
        cmocka_unit_test(checkpoint_choose__passes_over_another_run),
        cmocka_unit_test(checkpoint_choose__takes_an_older_version_and_says_so),
        cmocka_unit_test(checkpoint_verify__lists_every_damaged_file),
        cmocka_unit_test(checkpoint_save__touches_nothing_that_others_made),
        cmocka_unit_test(checkpoint_save__follows_no_link_to_its_own_checkpoint),
        cmocka_unit_test(checkpoint_save__takes_over_what_its_own_run_left),
        cmocka_unit_test(owned_folder_remove__leaves_what_no_checkpoint_has),
        cmocka_unit_test(owned_folder_make__leaves_no_folder_without_a_mark),
        cmocka_unit_test(checkpoint_prune__keeps_the_newest_and_the_best),
        cmocka_unit_test(checkpoint_save__syncs_each_file_before_its_name_and_the_folder_last),
    };
    on_ranks_begin(&argc, &argv, 2, &world);
    alarm(60); /* where a test fails on one rank, the other waits for it */
    if (world.rank == 0 && scratch_make(NULL) != 0)
        comm_abort(&world, 3);
    comm_bcast(world.all, scratch, sizeof scratch, 0, NULL);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (world.rank == 0)
        scratch_remove(NULL);
    return on_ranks_end(&world, failed);
}
