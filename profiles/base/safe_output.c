#include "profiles/base/safe_output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

int terminal_columns(void)
{
    struct winsize window;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

/* --- long lines ------------------------------------------------------------------------------- */

enum { WRAP_LABEL = 54, WRAP_LEAST = 20 };

/* Columns of a text of n bytes: continuation bytes of UTF-8 take none. */
static int columns_of(const char *text, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += ((unsigned char)text[i] & 0xc0) != 0x80;
    return columns;
}

/* The column below which the rest of a line goes on; -1: it is not to be broken. */
static int wrap_indent(const char *line, size_t n, int width)
{
    int indent = 0;
    if (n == 0 || *line == '{' || *line == '[' || columns_of(line, n) <= width)
        return -1;
    while ((size_t)indent < n && line[indent] == ' ')
        indent++;
    for (size_t i = (size_t)indent; i + 2 < n; i++)
        if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ')
            indent = (int)i + 2;
    return indent <= WRAP_LABEL && indent + WRAP_LEAST <= width ? indent : -1;
}

/* Write a line of n bytes without its end, in lines of `width` columns. */
static void wrap_line(const char *line, size_t n, int width, FILE *out)
{
    const int indent = wrap_indent(line, n, width);
    int room = width;
    while (indent >= 0 && columns_of(line, n) > room) {
        size_t at = 0, cut = 0;
        for (int columns = 0; at < n && columns <= room; at++) {
            columns += ((unsigned char)line[at] & 0xc0) != 0x80;
            const bool first = room == width && at < (size_t)indent;
            if (line[at] == ' ' && at > 0 && !first)
                cut = at;
        }
        if (cut == 0)
            break;
        fprintf(out, "%.*s\n%*s", (int)cut, line, indent, "");
        line += cut + 1;
        n -= cut + 1;
        room = width - indent;
    }
    fwrite(line, 1, n, out);
}

static ssize_t put_wrapped(void *cookie, const char *bytes, size_t n)
{
    static bool inside; /* the last write ended inside a line */
    const int width = terminal_columns();
    char *text = NULL;
    size_t length = 0;
    FILE *out = width > 0 ? open_memstream(&text, &length) : NULL;
    if (!out)
        return put_safe(cookie, bytes, n);
    for (size_t i = 0; i < n;) {
        const char *end = memchr(bytes + i, '\n', n - i);
        const size_t line = end ? (size_t)(end - bytes) - i : n - i;
        if (end && !inside)
            wrap_line(bytes + i, line, width, out);
        else
            fwrite(bytes + i, 1, line, out);
        if (end)
            putc('\n', out);
        inside = !end;
        i += line + (end != NULL);
    }
    const bool failed = fclose(out) != 0;
    const ssize_t put = failed ? put_safe(cookie, bytes, n) : put_safe(cookie, text, length);
    free(text);
    return put == 0 ? 0 : (ssize_t)n;
}

void safe_output_wrap(void)
{
    static struct output out = {.fd = STDOUT_FILENO};
    const cookie_io_functions_t functions = {.write = put_wrapped};
    FILE *wrapped = isatty(out.fd) ? fopencookie(&out, "w", functions) : NULL;
    if (!wrapped)
        return;
    setvbuf(wrapped, NULL, _IOLBF, BUFSIZ);
    stdout = wrapped;
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
