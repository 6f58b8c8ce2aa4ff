#include "partition/base/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "partition/base/safe_text.h"

/* A name from a file or a user must not break the line or send control codes to a terminal. */
static void one_line(char *text)
{
    for (char before = 0; *text; before = *text++)
        *text = *text == '\n' || *text == '\t' ? '?' : safe_byte(before, *text);
}

enum status err_set(struct err *err, enum status code, const char *fmt, ...)
{
    if (err && err->status == OK) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->msg, sizeof err->msg, fmt, args);
        va_end(args);
        one_line(err->msg);
        err->status = code;
        err->hint[0] = '\0';
    }
    return code;
}

void err_hint(struct err *err, const char *fmt, ...)
{
    if (err && err->status != OK && err->hint[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->hint, sizeof err->hint, fmt, args);
        va_end(args);
        one_line(err->hint);
    }
}

enum status err_copy(struct err *err, const struct err *from)
{
    if (err && err->status == OK)
        *err = *from;
    return from->status;
}

enum status err_nomem(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of host memory");
}

int status_exit_code(enum status status)
{
    switch (status) {
    case OK:
        return 0;
    case ERR_INFEASIBLE:
        return 1;
    case ERR_INPUT:
        return 2;
    case ERR_UNFINISHED:
        return 4;
    case ERR_SYSTEM:
    case ERR_NOMEM:
        break;
    }
    return 3;
}
