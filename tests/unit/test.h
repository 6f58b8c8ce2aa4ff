/* tests/unit/test.h - what every C test includes: cmocka with the headers that it needs, the usual
 * headers of C, and repeatable random numbers. */
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Whether to run what repeats a claim over more cases: in make test-rest and test-all (tests/run.sh). */
static inline bool test_all(void)
{
    return getenv("ELAPSE_TEST_ALL") != NULL;
}

/* In make test-rest, behind a make test that has run the quick ones. */
static inline bool test_rest(void)
{
    return test_all() && strcmp(getenv("ELAPSE_TEST_ALL"), "rest") == 0;
}

/* The generator is Knuth's MMIX (a linear congruence); its high bits are used. A test sets the seed
 * where its numbers are not to depend on the tests before it. */
static uint64_t random_state __attribute__((unused)) = 1;

static inline uint64_t random_bits(void) /* 31 of them */
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return random_state >> 33;
}

/* low..high, both included; at most 2^31 numbers. */
static inline int64_t random_between(int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits() % (uint64_t)(high - low + 1));
}

/* 0..n-1. */
static inline int64_t random_below(int64_t n)
{
    return random_between(0, n - 1);
}

/* Random trials to make, from *first on up to the one returned: the first `quick` ones in make test,
 * `all` in make test-all, those behind the quick ones in make test-rest. */
static inline int test_trials(int quick, int all, int *first)
{
    *first = test_rest() ? quick : 0;
    return test_all() ? all : quick;
}

/* 0 <= x < 1. */
static inline double random_unit(void)
{
    return (double)random_bits() * 0x1p-31;
}
