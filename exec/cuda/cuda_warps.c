#include "exec/cuda/cuda_warps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_choice.h"

/* A shape. Compared byte by byte, so it must be zeroed first. */
struct key {
    int64_t samples;
    int32_t seq, heads, head_dim;
    bool causal, padded, drops, sums;
};

struct cuda_warps {
    int forced; /* set by the environment; 0: auto */
    struct entry {
        struct key key;
        int warps;
    } * entries;
    int num, room;
};

enum status cuda_warps_new(struct cuda_warps **out, struct err *err)
{
    const char *named = getenv("ELAPSE_ATTENTION_WARPS");
    int forced = 0;
    if (named && (strcmp(named, "7") == 0 || strcmp(named, "8") == 0))
        forced = named[0] - '0';
    else if (named && *named && strcmp(named, "auto") != 0)
        return err_set(err, ERR_INPUT, "ELAPSE_ATTENTION_WARPS must be 7, 8 or auto, got '%.40s'",
                       named);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_nomem(err);
    (*out)->forced = forced;
    return OK;
}

void cuda_warps_free(struct cuda_warps *warps)
{
    if (warps)
        free(warps->entries);
    free(warps);
}

static struct key key_of(const struct warps_call *c)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.samples = c->a->num_samples;
    key.seq = c->a->seq;
    key.heads = c->a->heads;
    key.head_dim = c->a->head_dim;
    key.causal = c->a->causal;
    key.padded = c->a->lengths != NULL;
    key.drops = c->drops;
    key.sums = c->a->dqkv_sums != NULL;
    return key;
}

/* The problem text except the number of samples, which comes last. */
static void name_kind(const struct key *k, char problem[CHOICE_BYTES])
{
    snprintf(problem, CHOICE_BYTES,
             "warps of attention backward bf16 seq %d heads %d x %d%s%s%s%s, samples ", k->seq,
             k->heads, k->head_dim, k->causal ? " causal" : "", k->padded ? " padded" : "",
             k->drops ? " dropout" : "", k->sums ? " sums" : "");
}

/* The number that an answer names, if the call can use it; otherwise 0. */
static int among(const struct warps_call *c, const char *answer)
{
    for (int i = 0; answer && i < c->num; i++)
        if (atoi(answer) == c->warps[i])
            return c->warps[i];
    return 0;
}

struct timed_call {
    struct backend *be;
    const struct warps_call *c;
    int warps;
    void *out;
};
static bool run_timed(const void *ctx)
{
    const struct timed_call *t = ctx;
    t->c->issue(t->be, t->c->call, t->warps, t->out);
    return true;
}

/* Finds the fastest number by timing, and notes it. 0: no memory for the outputs. */
static int fastest(struct backend *be, const struct warps_call *c, const char *problem)
{
    struct timed_call calls[MOST_WARPS];
    struct way ways[MOST_WARPS];
    char answer[CHOICE_BYTES];
    void *aside = NULL;
    if (cuda_arena_alloc(cuda_of(be)->arena, c->out_bytes, &aside, NULL) != OK)
        return 0;
    for (int i = 0; i < c->num; i++) {
        calls[i] = (struct timed_call){be, c, c->warps[i], aside};
        ways[i] = (struct way){.once = run_timed, .ctx = &calls[i]};
    }
    const int best = cuda_choices_race(be, ways, c->num);
    cuda_arena_release(cuda_of(be)->arena, aside);
    if (best < 0)
        return 0;
    snprintf(answer, sizeof answer, "%d", c->warps[best]);
    cuda_choices_note(cuda_of(be)->choices, problem, answer);
    return c->warps[best];
}

static int find(struct backend *be, const struct warps_call *c, const struct key *key)
{
    const struct cuda_choices *choices = cuda_of(be)->choices;
    char kind[CHOICE_BYTES], problem[2 * CHOICE_BYTES];
    name_kind(key, kind);
    snprintf(problem, sizeof problem, "%s%lld", kind, (long long)key->samples);
    problem[CHOICE_BYTES - 1] = '\0';
    int warps = among(c, cuda_choices_given(choices, problem));
    if (!warps && cuda_choices_tune(choices))
        warps = fastest(be, c, problem);
    else if (!warps)
        warps = among(c, cuda_choices_nearest(choices, kind, key->samples));
    return warps ? warps : c->warps[0];
}

int cuda_warps_for(struct backend *be, const struct warps_call *c)
{
    struct cuda_warps *w = cuda_of(be)->warps;
    if (c->num == 1)
        return c->warps[0];
    for (int i = 0; i < c->num; i++)
        if (c->warps[i] == w->forced)
            return w->forced;
    const struct key key = key_of(c);
    for (int i = 0; i < w->num; i++)
        if (memcmp(&w->entries[i].key, &key, sizeof key) == 0)
            return w->entries[i].warps;
    const int warps = find(be, c, &key);
    if (w->num == w->room) {
        const int room = w->room ? w->room * 2 : 16;
        struct entry *more = realloc(w->entries, (size_t)room * sizeof *more);
        if (!more)
            return warps; /* no memory to store it; it is looked for again at the next call */
        w->entries = more;
        w->room = room;
    }
    w->entries[w->num++] = (struct entry){key, warps};
    return warps;
}
