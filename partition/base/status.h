/* partition/base/status.h - how every function of the project reports failure.
 *
 * A function that can fail returns enum status and fills a caller-supplied struct err (which may be
 * NULL). The first error wins: err_set() never overwrites an error that is already there. Libraries
 * never print and never exit; a main turns the status into a line on stderr and an exit code. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ELAPSE_PRINTF(fmt_index, first) __attribute__((format(printf, fmt_index, first)))
#else
#define ELAPSE_PRINTF(fmt_index, first)
#endif

enum status {
    OK = 0,
    ERR_INPUT,      /* bad usage or malformed content; exit 2 */
    ERR_INFEASIBLE, /* well-formed input without a solution (K > items, out of memory); exit 1 */
    ERR_SYSTEM,     /* a missing or unreadable file, device, network, rank; exit 3 */
    ERR_NOMEM,      /* the host is out of memory; exit 3 */
    ERR_UNFINISHED, /* a search was ended before it had an answer; exit 4 */
};

struct err {
    enum status status;
    char msg[512];  /* one line, no full stop: what failed, the value, the limit */
    char hint[512]; /* empty, or the known remedy */
};

/* The next step of a function with `enum status rc`: call, unless a step before it failed. Code after
 * the steps runs in any case, so it can clean up. */
#define THEN(call)                                                                                 \
    do {                                                                                           \
        if (rc == OK)                                                                              \
            rc = (call);                                                                           \
    } while (0)

/* Record a failure and return code, so that `return err_set(err, ERR_INPUT, "...")` reads in one
 * line. Keeps the first error if err already holds one. Control characters become '?'. err may be
 * NULL. */
enum status err_set(struct err *err, enum status code, const char *fmt, ...) ELAPSE_PRINTF(3, 4);

/* Add the remedy to an error that err_set() recorded. Does nothing if err is NULL or has a hint. */
void err_hint(struct err *err, const char *fmt, ...) ELAPSE_PRINTF(2, 3);

/* Copy status, message and hint of `from` into err, unless err already holds an error. Returns
 * from's status. */
enum status err_copy(struct err *err, const struct err *from);

/* Record ERR_NOMEM with a fixed text. Every failed allocation reports through here. */
enum status err_nomem(struct err *err);

/* Process exit code of a status: OK 0, ERR_INFEASIBLE 1, ERR_INPUT 2, ERR_UNFINISHED 4, the rest
 * 3. */
int status_exit_code(enum status status);

#ifdef __cplusplus
}
#endif
