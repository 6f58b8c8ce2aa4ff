/* tests/unit/profiles/test_whole_file.c - what is read whole, and how much of it. */
#include "profiles/base/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/test.h"

static long resident_kib(void)
{
    struct rusage used;
    assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
    return used.ru_maxrss;
}

static void output_check__refuses_what_was_read_by_any_name(void **state)
{
    (void)state;
    char path[] = "/tmp/elapse-whole-XXXXXX", other[sizeof path + 8];
    char *bytes = NULL;
    size_t length = 0;
    struct err err = {0};
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    snprintf(other, sizeof other, "%s.link", path);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(output_check(path, &err), OK);
    assert_int_equal(file_read(path, &bytes, &length, &err), OK);
    assert_int_equal(output_check(path, &err), ERR_INPUT);
    assert_int_equal(output_check(other, &err), ERR_INPUT);
    free(bytes);
    close(fd);
    unlink(path);
    unlink(other);
}

/* Neither a pipe without a writer nor a device without an end holds the reader. What the process was
 * given open is read, whatever it is. */
static void input_open__refuses_pipes_and_devices_at_once(void **state)
{
    char folder[] = "/tmp/elapse-whole-XXXXXX", pipe_path[64], path[64];
    char *bytes = NULL;
    size_t length = 0;
    struct err err = {0};
    int ends[2];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    alarm(20);
    assert_int_equal(file_read(pipe_path, &bytes, &length, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, "it is a named pipe, not a file"));
    err = (struct err){0};
    assert_int_equal(file_read("/dev/zero", &bytes, &length, &err), ERR_INPUT);
    assert_string_equal(err.msg, "cannot read '/dev/zero': it is a device, not a file");
    err = (struct err){0};
    assert_int_equal(file_read(folder, &bytes, &length, &err), ERR_SYSTEM);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "given", 5), 5);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(file_read(path, &bytes, &length, &err), OK);
    assert_string_equal(bytes, "given");
    alarm(0);
    free(bytes);
    close(ends[0]);
    unlink(pipe_path);
    rmdir(folder);
}

static void file_read__refuses_a_file_without_an_end_early(void **state)
{
    (void)state;
    char *bytes = NULL;
    size_t length = 0;
    struct err err = {0};
    const long before = resident_kib();
    const int zero = open("/dev/zero", O_RDONLY);
    char path[40];
    snprintf(path, sizeof path, "/dev/fd/%d", zero);
    assert_int_equal(file_read(path, &bytes, &length, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, ": larger than 64 MiB"));
    close(zero);
    assert_null(bytes);
    assert_true(resident_kib() - before < 200 * 1024);
}

static void file_read__does_not_read_what_is_too_large(void **state)
{
    (void)state;
    char path[] = "/tmp/elapse-whole-XXXXXX";
    char *bytes = NULL;
    size_t length = 0;
    struct err err = {0};
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, ((off_t)1 << 30) + 1), 0); /* takes no space */
    const long before = resident_kib();
    assert_int_equal(file_read(path, &bytes, &length, &err), ERR_INPUT);
    assert_non_null(strstr(err.msg, ": larger than 1024 MiB"));
    assert_true(resident_kib() - before < 1024);
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_check__refuses_what_was_read_by_any_name),
        cmocka_unit_test(input_open__refuses_pipes_and_devices_at_once),
        cmocka_unit_test(file_read__refuses_a_file_without_an_end_early),
        cmocka_unit_test(file_read__does_not_read_what_is_too_large),
    };
    return cmocka_run_group_tests_name("whole_file", tests, NULL, NULL);
}
