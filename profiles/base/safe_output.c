#include "profiles/base/safe_output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "partition/base/safe_text.h"

struct output {
    int fd;
    bool progress; /* lines of progress are passed */
    char before;   /* the last byte */
};

static bool put(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t put = write(fd, bytes, n);
        if (put < 0 && errno != EINTR)
            return false;
        bytes += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* Length of the terminal sequence that begins or ends a line of progress at this place; else 0. */
static size_t progress_at(const struct output *output, const char *at, size_t n)
{
    static const char erase[] = "\033[K";
    if (!output->progress)
        return 0;
    if (*at == '\r')
        return 1;
    return n >= strlen(erase) && memcmp(at, erase, strlen(erase)) == 0 ? strlen(erase) : 0;
}

static ssize_t put_safe(void *cookie, const char *bytes, size_t n)
{
    struct output *output = cookie;
    char part[4096];
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        const size_t ours = progress_at(output, bytes + i, n - i);
        if (used + 4 > sizeof part) {
            if (!put(output->fd, part, used))
                return 0;
            used = 0;
        }
        if (ours > 0)
            memcpy(part + used, bytes + i, ours);
        else
            part[used] = safe_byte(output->before, bytes[i]);
        used += ours > 0 ? ours : 1;
        i += ours > 0 ? ours : 1;
        output->before = bytes[i - 1];
    }
    return put(output->fd, part, used) ? (ssize_t)n : 0;
}

void safe_output_begin(bool progress)
{
    static struct output out = {.fd = STDOUT_FILENO}, err = {.fd = STDERR_FILENO};
    const cookie_io_functions_t functions = {.write = put_safe};
    FILE *safe = fopencookie(&out, "w", functions);
    if (safe) {
        setvbuf(safe, NULL, isatty(out.fd) ? _IOLBF : _IOFBF, BUFSIZ);
        stdout = safe;
    }
    safe = fopencookie(&err, "w", functions);
    if (safe) {
        setvbuf(safe, NULL, _IONBF, 0);
        stderr = safe;
    }
    err.progress = progress;
}
