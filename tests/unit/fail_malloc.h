/* tests/unit/fail_malloc.h - make the Nth allocation of the tested code fail.
 *
 *   for (int n = 0;; n++) {
 *       fail_malloc_after(n);
 *       rc = code_under_test();
 *       if (fail_malloc_done()) break;       // n was beyond the last allocation
 *       assert_int_equal(rc, ERR_NOMEM);     // and everything is as before
 *   }
 * Replaces malloc, calloc, realloc and free of the test program (glibc). Under the address and the thread
 * sanitizer, which have their own, nothing fails, nothing is counted, and FAIL_MALLOC is 0. Include in one
 * file of a test only. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static int fail_malloc_left = -1; /* allocations until the one that fails; -1: none will */
/* Blocks that malloc, calloc and realloc gave, less those that were freed. */
static _Atomic long fail_malloc_live __attribute__((unused));

static inline void fail_malloc_after(int n)
{
    fail_malloc_left = n;
}

/* Switch off; true when the failure was not reached. */
static inline bool fail_malloc_done(void)
{
    bool reached = fail_malloc_left < 0;
    fail_malloc_left = -1;
    return !reached;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* gcc's */
#define FAIL_MALLOC 0
#elif defined(__has_feature) /* clang's */
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAIL_MALLOC 0
#endif
#endif

#if defined(__GLIBC__) && !defined(FAIL_MALLOC)
#define FAIL_MALLOC 1
/* Shared libraries must call them, too, also where the compiler is told to hide symbols. */
#define FAIL_MALLOC_EVERYWHERE __attribute__((visibility("default")))

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void __libc_free(void *old);

static inline bool fail_malloc_now(void)
{
    if (fail_malloc_left < 0 || fail_malloc_left-- > 0)
        return false;
    errno = ENOMEM;
    return true;
}

static inline void *fail_malloc_count(void *got)
{
    fail_malloc_live += got != NULL;
    return got;
}

FAIL_MALLOC_EVERYWHERE void *malloc(size_t size)
{
    return fail_malloc_now() ? NULL : fail_malloc_count(__libc_malloc(size));
}

FAIL_MALLOC_EVERYWHERE void *calloc(size_t count, size_t size)
{
    return fail_malloc_now() ? NULL : fail_malloc_count(__libc_calloc(count, size));
}

FAIL_MALLOC_EVERYWHERE void *realloc(void *old, size_t size)
{
    if (fail_malloc_now())
        return NULL;
    return old ? __libc_realloc(old, size) : fail_malloc_count(__libc_malloc(size));
}

FAIL_MALLOC_EVERYWHERE void free(void *old)
{
    fail_malloc_live -= old != NULL;
    __libc_free(old);
}
#elif !defined(FAIL_MALLOC)
#define FAIL_MALLOC 0
#endif
