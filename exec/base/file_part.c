#include "exec/base/file_part.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static bool move_all(int fd, char *at, int64_t bytes, int64_t offset, bool writes)
{
    while (bytes > 0) {
        const ssize_t n = writes ? pwrite(fd, at, (size_t)bytes, (off_t)offset)
                                 : pread(fd, at, (size_t)bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n < 0 ? errno : 0;
            return false;
        }
        at += n;
        offset += n;
        bytes -= n;
    }
    return true;
}

bool file_read_at(int fd, void *to, int64_t bytes, int64_t offset)
{
    return move_all(fd, to, bytes, offset, false);
}

bool file_write_at(int fd, const void *from, int64_t bytes, int64_t offset)
{
    return move_all(fd, (char *)from, bytes, offset, true);
}

const char *file_read_why(void)
{
    return errno ? strerror(errno) : "it shrank";
}
