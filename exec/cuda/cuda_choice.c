/* Lists of given and of noted answers, and races between ways, timed by events (cuda_choice.h). */
#include "exec/cuda/cuda_choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/base/bf16.h"

enum { ROUNDS = 2, RUNS = 5, ALL_RUNS = ROUNDS * RUNS };

struct cuda_choices {
    struct library_choice *given, *made; /* owned */
    int num_given, num_made;
    bool tune;
    choice_warm_up *keep_busy;
    cudaEvent_t marks[RUNS + 1]; /* before the runs of a round, and after each of them */
};

enum status cuda_choices_new(bool tune, choice_warm_up *keep_busy, struct cuda_choices **out,
                             struct err *err)
{
    enum status rc;
    struct cuda_choices *choices = calloc(1, sizeof *choices);
    if (!choices)
        return err_nomem(err);
    choices->tune = tune;
    choices->keep_busy = keep_busy;
    for (int i = 0; i <= RUNS; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&choices->marks[i], cudaEventDefault));
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
    for (int i = 0; i <= RUNS; i++)
        if (choices->marks[i])
            cudaEventDestroy(choices->marks[i]);
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

/* --- races ------------------------------------------------------------------------------------ */

static int by_time(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median(float times[ALL_RUNS])
{
    qsort(times, ALL_RUNS, sizeof *times, by_time);
    return (times[ALL_RUNS / 2 - 1] + times[ALL_RUNS / 2]) / 2;
}

/* Times one round of a way, after a run that warms its caches. false: it cannot. */
static bool time_round(struct backend *be, const struct way *way, float times[RUNS])
{
    const cudaEvent_t *marks = cuda_of(be)->choices->marks;
    cudaStream_t stream = cuda_of(be)->stream;
    bool ok = way->once(way->ctx);
    CUDA_NOTE(cudaEventRecord(marks[0], stream));
    for (int run = 0; run < RUNS && ok; run++) {
        ok = way->once(way->ctx);
        CUDA_NOTE(cudaEventRecord(marks[run + 1], stream));
    }
    if (!ok)
        (void)cudaGetLastError(); /* clear the error, or the next launch would report it */
    CUDA_NOTE(cudaStreamSynchronize(stream));
    for (int run = 0; run < RUNS && ok; run++)
        CUDA_NOTE(cudaEventElapsedTime(&times[run], marks[run], marks[run + 1]));
    return ok;
}

int cuda_choices_race(struct backend *be, struct way *ways, int num)
{
    /* Static, because a process drives one device from one thread. */
    static bool warm;
    float(*times)[ALL_RUNS] = calloc((size_t)num + 1, sizeof *times);
    bool *out = calloc((size_t)num + 1, sizeof *out);
    int best = -1;
    if (!warm)
        cuda_of(be)->choices->keep_busy(be, WARM_UP_NS);
    warm = true;
    for (int round = 0; times && out && round < ROUNDS; round++)
        for (int i = 0; i < num; i++)
            out[i] = out[i] || !time_round(be, &ways[i], times[i] + (ptrdiff_t)round * RUNS);
    for (int i = 0; times && out && i < num; i++) {
        ways[i].ms = out[i] ? 0.0f : median(times[i]);
        if (!out[i] && (best < 0 || ways[i].ms < ways[best].ms))
            best = i;
    }
    free(times);
    free(out);
    return best;
}
