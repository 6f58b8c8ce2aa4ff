/* Parts of files, where the system gives them in pieces: pread() and pwrite() of this program do
 * one to three bytes a call, and every third is interrupted. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/base/file_part.h"
#include "tests/unit/test.h"

static int calls;

static bool interrupted(size_t *bytes)
{
    const size_t most = 1 + (size_t)calls % 3;
    *bytes = *bytes < most ? *bytes : most;
    errno = EINTR;
    return ++calls % 3 == 0;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    return interrupted(&bytes) ? -1 : (ssize_t)syscall(SYS_pread64, fd, to, bytes, offset);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    return interrupted(&bytes) ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, from, bytes, offset);
}

static void file_read_at__gives_what_file_write_at_wrote_in_pieces(void **state)
{
    char path[] = "/tmp/elapse-part.XXXXXX", wrote[100], read[100] = "";
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof wrote; i++)
        wrote[i] = (char)(3 * i + 1);
    calls = 0;
    assert_true(file_write_at(fd, wrote, sizeof wrote, 7));
    assert_true(calls > 50);
    assert_true(file_read_at(fd, read, sizeof read, 7));
    assert_memory_equal(read, wrote, sizeof read);
    assert_true(file_read_at(fd, read, 0, 1 << 20));
    errno = EIO;
    assert_false(file_read_at(fd, read, 5, 7 + (int64_t)sizeof wrote - 4));
    assert_int_equal(errno, 0);
    assert_string_equal(file_read_why(), "it shrank");
    close(fd);
    assert_false(file_read_at(fd, read, 1, 0));
    assert_int_equal(errno, EBADF);
    assert_false(file_write_at(fd, read, 1, 0));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_read_at__gives_what_file_write_at_wrote_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
