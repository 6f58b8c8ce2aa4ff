/* exec/cuda/cuda_choice.h - where a library has several ways: what was given, what timing found.
 *
 * A problem is a text that says all of a call that its way may depend on; so is the answer, in the
 * terms of who asks. What was given (backend.h's choose(), from the profile store) is followed.
 * Where a profiler tunes, a problem without one, or with one that the library there does not take,
 * is timed at its first call and noted, for choices(). */
#ifndef ELAPSE_EXEC_CUDA_CUDA_CHOICE_H
#define ELAPSE_EXEC_CUDA_CUDA_CHOICE_H

#include "exec/cuda/cuda_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_choices;

enum status cuda_choices_new(bool tune, struct cuda_choices **choices, struct err *err);
void cuda_choices_free(struct cuda_choices *choices); /* NULL is fine */
bool cuda_choices_tune(const struct cuda_choices *choices);

/* backend.h's choices() and choose(). */
int cuda_choices_made(const struct cuda_choices *choices, const struct library_choice **list);
enum status cuda_choices_give(struct cuda_choices *choices, const struct library_choice *list,
                              int num, struct err *err);

/* What was given for the problem; NULL: nothing. Borrowed until the next _give(), as below. */
const char *cuda_choices_given(const struct cuda_choices *choices, const char *problem);
/* Whether a problem that begins so was given. */
bool cuda_choices_mention(const struct cuda_choices *choices, const char *begin);
/* Of the given problems that are `problem` and a number behind it, the answer of the one nearest to
 * `number`, of two the smaller; NULL: there is none. */
const char *cuda_choices_nearest(const struct cuda_choices *choices, const char *problem,
                                 int64_t number);

/* What timing found, in place of what was noted for the problem before. Want of memory is a failure
 * that sync() reports. */
void cuda_choices_note(struct cuda_choices *choices, const char *problem, const char *answer);

/* How far one way's tensor lies from another's: norm of the difference over that of `want`, host
 * memory, bf16; infinite where `got` is not finite. CHOICE_TOLERANCE: a few roundings behind one
 * another, 2^-9 of a value each; a wrong mask or tensor is off by tens of percent. GELU by erf and
 * by tanh differ by less. */
double cuda_choices_distance(const uint16_t *got, const uint16_t *want, int64_t num);
#define CHOICE_TOLERANCE 2e-2

/* One of several ways to do the same work. once() issues it to the backend's stream; false: it
 * cannot. May tune what it consists of, at its first call. */
struct way {
    bool (*once)(const void *ctx);
    const void *ctx;
    float ms; /* filled in: median of its runs; 0: it cannot */
};
/* Time the ways and return the number of the fastest, of equal ones the first; -1: none can. Runs
 * alternate in rounds, so that a change of the device's clocks meets every way. Before the first
 * race of the process the device multiplies for WARM_UP_NS: an idle one takes so long to raise its
 * clocks. Waits for the device. */
int cuda_choices_race(struct backend *be, struct way *ways, int num);
#define WARM_UP_NS ((int64_t)200000000)

#ifdef __cplusplus
}
#endif
#endif
