#include "exec/cuda/cuda_choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/bf16.h"

enum { TIMED_RUNS = 5 };

struct cuda_choices {
    struct library_choice *given, *made; /* owned */
    int num_given, num_made;
    bool tune;
    cudaEvent_t start, stop;
};

enum status cuda_choices_new(bool tune, struct cuda_choices **out, struct err *err)
{
    enum status rc;
    struct cuda_choices *choices = calloc(1, sizeof *choices);
    if (!choices)
        return err_nomem(err);
    choices->tune = tune;
    CUDA_TRY(cudaEventCreateWithFlags(&choices->start, cudaEventDefault));
    CUDA_TRY(cudaEventCreateWithFlags(&choices->stop, cudaEventDefault));
    *out = choices;
    choices = NULL;
    rc = OK;
out:
    cuda_choices_free(choices);
    return rc;
}

void cuda_choices_free(struct cuda_choices *choices)
{
    if (!choices)
        return;
    if (choices->start)
        cudaEventDestroy(choices->start);
    if (choices->stop)
        cudaEventDestroy(choices->stop);
    free(choices->given);
    free(choices->made);
    free(choices);
}

bool cuda_choices_tune(const struct cuda_choices *choices)
{
    return choices->tune;
}

int cuda_choices_made(const struct cuda_choices *choices, const struct library_choice **list)
{
    *list = choices->made;
    return choices->num_made;
}

enum status cuda_choices_give(struct cuda_choices *choices, const struct library_choice *list,
                              int num, struct err *err)
{
    struct library_choice *copy = calloc((size_t)num + 1, sizeof *copy);
    if (!copy)
        return err_nomem(err);
    if (num > 0)
        memcpy(copy, list, (size_t)num * sizeof *copy);
    free(choices->given);
    choices->given = copy;
    choices->num_given = num;
    return OK;
}

static struct library_choice *find(struct library_choice *list, int num, const char *problem)
{
    for (int i = 0; i < num; i++)
        if (strcmp(list[i].problem, problem) == 0)
            return &list[i];
    return NULL;
}

const char *cuda_choices_given(const struct cuda_choices *choices, const char *problem)
{
    const struct library_choice *found = find(choices->given, choices->num_given, problem);
    return found ? found->answer : NULL;
}

bool cuda_choices_mention(const struct cuda_choices *choices, const char *begin)
{
    for (int i = 0; i < choices->num_given; i++)
        if (strncmp(choices->given[i].problem, begin, strlen(begin)) == 0)
            return true;
    return false;
}

const char *cuda_choices_nearest(const struct cuda_choices *choices, const char *problem,
                                 int64_t number)
{
    const size_t length = strlen(problem);
    const char *answer = NULL;
    int64_t nearest = 0;
    for (int i = 0; i < choices->num_given; i++) {
        const struct library_choice *one = &choices->given[i];
        char *end;
        if (strncmp(one->problem, problem, length) != 0)
            continue;
        const int64_t at = strtoll(one->problem + length, &end, 10);
        if (end == one->problem + length || *end)
            continue;
        const int64_t away = llabs(at - number), best = llabs(nearest - number);
        if (!answer || away < best || (away == best && at < nearest)) {
            nearest = at;
            answer = one->answer;
        }
    }
    return answer;
}

void cuda_choices_note(struct cuda_choices *choices, const char *problem, const char *answer)
{
    struct library_choice *one = find(choices->made, choices->num_made, problem);
    if (!one) {
        struct library_choice *more =
            realloc(choices->made, ((size_t)choices->num_made + 1) * sizeof *more);
        if (!more) {
            cuda_note_text(ERR_NOMEM, "cuda: no memory for what timing chose");
            return;
        }
        choices->made = more;
        one = &choices->made[choices->num_made++];
    }
    memset(one, 0, sizeof *one);
    snprintf(one->problem, sizeof one->problem, "%s", problem);
    snprintf(one->answer, sizeof one->answer, "%s", answer);
}

double cuda_choices_distance(const uint16_t *got, const uint16_t *want, int64_t num)
{
    double apart = 0.0, norm = 0.0;
    for (int64_t i = 0; i < num; i++) {
        const double y = bf16_to(want[i]), d = bf16_to(got[i]) - y;
        apart += d * d;
        norm += y * y;
    }
    if (!isfinite(apart))
        return INFINITY;
    return apart == 0.0 ? 0.0 : sqrt(apart / norm);
}

float cuda_choices_time(const struct cuda_choices *choices, cudaStream_t stream,
                        bool (*once)(const void *ctx), const void *ctx)
{
    float ms = 0.0f;
    bool ok = true;
    for (int run = -1; run < TIMED_RUNS && ok; run++) {
        if (run == 0)
            CUDA_NOTE(cudaEventRecord(choices->start, stream));
        ok = once(ctx);
    }
    CUDA_NOTE(cudaEventRecord(choices->stop, stream));
    CUDA_NOTE(cudaEventSynchronize(choices->stop));
    if (ok)
        CUDA_NOTE(cudaEventElapsedTime(&ms, choices->start, choices->stop));
    else
        (void)cudaGetLastError(); /* or the next launch would be blamed for it */
    return ok ? ms / TIMED_RUNS : 0.0f;
}
