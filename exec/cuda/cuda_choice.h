/* exec/cuda/cuda_choice.h - choices between alternatives of a library (algorithms, or another
 * library).
 *
 * A problem is a text that contains everything the choice may depend on; an answer is a text that
 * only the caller interprets. A given answer is followed: choose() of exec/base/backend.h passes
 * answers from the profile store. If the backend tunes (a profiler runs), a problem without an
 * answer, or with one that the installed library does not accept, is timed at its first call and
 * the result is noted; choices() returns it. */
#pragma once

#include "exec/cuda/cuda_internal.h"

struct cuda_choices;

/* keep_busy lets the device work for at least `ns` ns and waits for it. */
typedef void choice_warm_up(struct backend *be, int64_t ns);
enum status cuda_choices_new(bool tune, choice_warm_up *keep_busy, struct cuda_choices **choices,
                             struct err *err);
void cuda_choices_free(struct cuda_choices *choices); /* NULL is fine */
bool cuda_choices_tune(const struct cuda_choices *choices);

/* choices() and choose() of exec/base/backend.h. */
int cuda_choices_made(const struct cuda_choices *choices, const struct library_choice **list);
enum status cuda_choices_give(struct cuda_choices *choices, const struct library_choice *list,
                              int num, struct err *err);

/* The given answer for a problem; NULL: none. Borrowed until the next cuda_choices_give(); so are
 * the answers below. */
const char *cuda_choices_given(const struct cuda_choices *choices, const char *problem);
/* Whether an answer was given for a problem that starts with `begin`. */
bool cuda_choices_mention(const struct cuda_choices *choices, const char *begin);
/* Among the given problems that consist of `problem` and a number, the answer of the one nearest to
 * `number`; of two equally near ones the smaller. NULL: there is none. */
const char *cuda_choices_nearest(const struct cuda_choices *choices, const char *problem,
                                 int64_t number);

/* Note an answer found by timing; it replaces an earlier one. Running out of memory is a failure
 * that sync() reports. */
void cuda_choices_note(struct cuda_choices *choices, const char *problem, const char *answer);

/* Distance of two bf16 tensors in host memory: the norm of the difference divided by the norm of
 * `want`. Infinite if `got` is not finite. CHOICE_TOLERANCE allows for a few consecutive roundings
 * of 2^-9 of a value each. A wrong mask or tensor is off by tens of percent. The two forms of GELU
 * (erf and tanh) differ by less than the tolerance. */
double cuda_choices_distance(const uint16_t *got, const uint16_t *want, int64_t num);
#define CHOICE_TOLERANCE 2e-2

/* One of several ways to do the same work. once() issues it to the backend's stream; false: it
 * cannot. Its first call may tune the calls that it consists of. */
struct way {
    bool (*once)(const void *ctx);
    const void *ctx;
    float ms; /* result: median of its runs; 0: it cannot */
};
/* Time the ways. Returns the index of the fastest, of equal ones the first; -1: none can. The ways
 * run in turn, in rounds, so that a change of the device's clocks affects all of them. Before the
 * first race of the process the device multiplies for WARM_UP_NS, because an idle device takes that
 * long to raise its clocks. Waits for the device. */
int cuda_choices_race(struct backend *be, struct way *ways, int num);
#define WARM_UP_NS ((int64_t)200000000)
