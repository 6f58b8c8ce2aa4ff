/* Serves attention by our own kernels or by cuDNN, shape by shape (cuda_attention_pick.h).
 *
 * attend() is what the table calls. entry_of() finds or makes the entry of the shape; make_plan()
 * decides for cuDNN or not. first_use() compares both results, and cudnn_is_faster() times both if
 * the backend tunes. Read attend() and first_use() first. */
#include "exec/cuda/cuda_attention_pick.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_choice.h"
#include "exec/cuda/cuda_cudnn.h"
#include "exec/cuda/cuda_scratch.h"

/* A shape. Compared byte by byte, so it must be zeroed first. Whether dqkv overwrites qkv is not
 * part of it, because the two halves of a backward must give the same bits whether they run
 * together or apart. */
struct key {
    int64_t samples;
    int32_t seq, heads, head_dim;
    bool causal, lengths, backward;
};

struct entry {
    struct key key;
    struct cudnn_plan *plan; /* NULL: our own kernels serve the shape */
    int32_t *full;           /* [samples], each seq, in device memory; if cuDNN needs lengths */
    bool compared;
    bool timed;   /* time both at the first use */
    bool for_own; /* our own from the beginning: the answer of sums_dqkv() must not change later */
};

struct cuda_pick {
    struct backend own;       /* only the functions of attention are set */
    bool wherever;            /* ELAPSE_ATTENTION=cudnn; false: auto */
    struct cuda_arena *arena; /* borrowed */
    struct entry *entries;
    int num, room;
};

/* The arguments of one call, forward or backward. */
struct call {
    const struct attention *a;
    const struct dropout *drop;
    const void *qkv, *ctx_in, *dctx;
    const float *lse_in;
    bool backward;
    int64_t elems;        /* elements of ctx */
    void *out;            /* forward: ctx; backward: dqkv */
    float *lse;           /* forward only, written */
    int64_t out_elems;    /* elements of out: elems, or 3 * elems */
    int64_t lse_elems;    /* elements of lse; backward: 0 */
    int64_t padded_delta; /* bytes of SDPA_DELTA, a multiple of 256 */
};

static int64_t align256(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static struct call call_of(const struct attention *a, const struct dropout *drop, bool backward)
{
    struct call c = {.a = a, .drop = drop, .backward = backward};
    const int64_t stats = a->num_samples * a->heads * a->seq;
    c.elems = stats * a->head_dim;
    c.out_elems = backward ? 3 * c.elems : c.elems;
    c.lse_elems = backward ? 0 : stats;
    c.padded_delta = backward ? align256(stats * (int64_t)sizeof(float)) : 0;
    return c;
}

static void log_fallback(const struct call *c, const char *why)
{
    fprintf(
        stderr, "elapse: attention %s of %lld x %d x %d x %d%s%s stays with our own kernels: %s\n",
        c->backward ? "backward" : "forward", (long long)c->a->num_samples, c->a->seq, c->a->heads,
        c->a->head_dim, c->a->causal ? ", causal" : "", c->a->lengths ? ", padded" : "", why);
}

/* Give a shape to our own kernels. */
static void leave(struct entry *e)
{
    cuda_cudnn_plan_free(e->plan);
    e->plan = NULL;
}

static void refuse(struct entry *e, const struct call *c, const char *why)
{
    log_fallback(c, why);
    leave(e);
}

/* --- problems of cuda_choice.h ---------------------------------------------------------------- */

#define ATTENTION "attention " /* every problem starts with it */
#define BY_OWN "own"
#define BY_CUDNN "cudnn"

/* The problem text except the number of samples, which comes last. cuDNN must be available. */
static void name_kind(struct backend *be, const struct key *k, char problem[CHOICE_BYTES])
{
    snprintf(problem, CHOICE_BYTES,
             ATTENTION "%s bf16 seq %d heads %d x %d%s%s, cudnn %d, samples ",
             k->backward ? "backward" : "forward", k->seq, k->heads, k->head_dim,
             k->causal ? " causal" : "", k->lengths ? " padded" : "",
             cuda_cudnn_version(cuda_cudnn_of(be)));
}
static void name_problem(struct backend *be, const struct key *k, char problem[CHOICE_BYTES])
{
    name_kind(be, k, problem);
    const size_t length = strlen(problem);
    snprintf(problem + length, CHOICE_BYTES - length, "%lld", (long long)k->samples);
}

/* --- both ways of one call -------------------------------------------------------------------- */

static void by_own(struct backend *be, const struct call *c, void *out, float *lse)
{
    const struct backend *own = &cuda_of(be)->pick->own;
    if (c->backward)
        own->attention_backward(be, c->a, c->qkv, c->drop, c->ctx_in, c->lse_in, c->dctx, out);
    else
        own->attention_forward(be, c->a, c->qkv, c->drop, out, lse);
}

/* Computes by cuDNN. Its outputs must not be its inputs, so in place the output goes to scratch
 * first. */
static enum status by_cudnn(struct backend *be, const struct entry *e, const struct call *c,
                            struct err *err)
{
    enum status rc;
    const int64_t width = (int64_t)c->a->heads * c->a->head_dim;
    const int64_t out_bytes = c->out_elems * be->elem_bytes;
    const int64_t workspace = align256(cuda_cudnn_workspace(e->plan));
    const bool in_place = c->out == c->qkv;
    char *delta =
        cuda_scratch_or(be, c->padded_delta + workspace + (in_place ? out_bytes : 0), err);
    if (!delta)
        return err->status;
    char *work = delta + c->padded_delta;
    uint16_t *qkv = (uint16_t *)(uintptr_t)c->qkv;
    uint16_t *out = in_place ? (void *)(work + workspace) : c->out;
    void *at[SDPA_NUM_UIDS] = {
        [SDPA_Q] = qkv,
        [SDPA_K] = qkv + width,
        [SDPA_V] = qkv + 2 * width,
        [SDPA_CTX] = c->backward ? (void *)(uintptr_t)c->ctx_in : out,
        [SDPA_LSE] = c->backward ? (void *)(uintptr_t)c->lse_in : c->lse,
        [SDPA_LEN_Q] = e->full,
        [SDPA_LEN_KV] = c->a->lengths ? (void *)(uintptr_t)c->a->lengths : e->full,
        [SDPA_DCTX] = (void *)(uintptr_t)c->dctx,
        [SDPA_DQ] = out,
        [SDPA_DK] = out + width,
        [SDPA_DV] = out + 2 * width,
        [SDPA_DELTA] = delta,
    };
    if (c->backward && c->a->lengths)
        be->zero(be, out, out_bytes); /* cuDNN may leave the gradients of padding keys unwritten */
    rc = cuda_cudnn_run(cuda_cudnn_of(be), e->plan, at, work, err);
    if (rc == OK)
        cuda_launched("attention by cuDNN", __FILE__, __LINE__);
    if (rc == OK && in_place)
        be->copy(be, c->out, out, out_bytes);
    return rc;
}

/* --- the first use of a shape ----------------------------------------------------------------- */

/* Compares two outputs on the host. why stays empty if they agree; otherwise it says how they
 * differ. The gradients of q, k and v have different sizes, so each is compared relative to its own
 * norm. */
static void compare(const struct call *c, const char *got, const char *want, char *why, size_t size)
{
    const int parts = c->backward ? 3 : 1;
    const int64_t width = (int64_t)c->a->heads * c->a->head_dim, rows = c->elems / width;
    const float *lse = (const float *)(const void *)(got + c->out_elems * 2);
    const float *lse_want = (const float *)(const void *)(want + c->out_elems * 2);
    uint16_t *x = malloc((size_t)c->elems * 2), *y = malloc((size_t)c->elems * 2);
    if (!x || !y)
        snprintf(why, size, "no host memory to compare");
    for (int part = 0; part < parts && !why[0]; part++) {
        for (int64_t r = 0; r < rows; r++) {
            memcpy(x + r * width, got + (r * parts + part) * width * 2, (size_t)width * 2);
            memcpy(y + r * width, want + (r * parts + part) * width * 2, (size_t)width * 2);
        }
        const double apart = cuda_choices_distance(x, y, c->elems);
        if (!(apart <= CHOICE_TOLERANCE))
            snprintf(why, size, "cuDNN's %s differs by %.2g of its norm (limit %.2g)",
                     parts == 1 ? "output" : (const char *[]){"dq", "dk", "dv"}[part], apart,
                     CHOICE_TOLERANCE);
    }
    for (int64_t i = 0; i < c->lse_elems && !why[0]; i++)
        if (!(fabs((double)lse[i] - lse_want[i]) <= PICK_LSE * (1.0 + fabs((double)lse_want[i]))))
            snprintf(why, size, "cuDNN's log-sum-exp is %g where it is %g", (double)lse[i],
                     (double)lse_want[i]);
    free(x);
    free(y);
}

struct timed_call {
    struct backend *be;
    const struct entry *e; /* NULL: time our own kernels */
    struct call call;
    const void *qkv; /* in place: the contents to restore before each run */
};
static bool run_timed(const void *ctx)
{
    const struct timed_call *t = ctx;
    const struct call *c = &t->call;
    struct err err = {0};
    if (c->qkv == c->out)
        t->be->copy(t->be, c->out, t->qkv, c->out_elems * t->be->elem_bytes);
    if (t->e)
        return by_cudnn(t->be, t->e, c, &err) == OK;
    by_own(t->be, c, c->out, c->lse);
    return true;
}

/* Times both, with outputs in other memory, and notes the answer. false: our own kernels are
 * faster, or no memory. */
static bool cudnn_is_faster(struct backend *be, const struct entry *e, const struct call *c)
{
    const struct cuda_backend *cuda = cuda_of(be);
    const int64_t out_bytes = align256(c->out_elems * be->elem_bytes);
    struct timed_call own = {.be = be, .call = *c, .qkv = c->qkv}, cudnn;
    char problem[CHOICE_BYTES];
    void *aside = NULL;
    if (be->alloc(be, out_bytes + c->lse_elems * (int64_t)sizeof(float), &aside, NULL) != OK)
        return false;
    if (c->qkv == c->out)
        own.call.qkv = aside;
    own.call.out = aside;
    own.call.lse = (float *)(void *)((char *)aside + out_bytes);
    cudnn = own;
    cudnn.e = e;
    struct way ways[2] = {
        {.once = run_timed, .ctx = &own  },
        {.once = run_timed, .ctx = &cudnn}
    };
    const bool faster = cuda_choices_race(be, ways, 2) == 1;
    be->free(be, aside);
    name_problem(be, &e->key, problem);
    cuda_choices_note(cuda->choices, problem, faster ? BY_CUDNN : BY_OWN);
    return faster;
}

/* Computes by both. c's outputs are cuDNN's if they agree and it is not slower, otherwise our own.
 */
static void first_use(struct backend *be, struct entry *e, const struct call *c)
{
    const int64_t out_bytes = c->out_elems * be->elem_bytes;
    const int64_t lse_bytes = c->lse_elems * (int64_t)sizeof(float);
    struct err err = {0};
    char why[600] = "";
    void *aside = NULL;
    char *host = malloc((size_t)(out_bytes + lse_bytes) * 2);
    e->compared = true;
    if (!host || be->alloc(be, align256(out_bytes) + lse_bytes, &aside, &err) != OK) {
        refuse(e, c, "no memory to compare cuDNN with them");
        free(host);
        by_own(be, c, c->out, c->lse);
        return;
    }
    float *aside_lse = (float *)(void *)((char *)aside + align256(out_bytes));
    char *want = host + out_bytes + lse_bytes;
    by_own(be, c, aside, aside_lse);
    be->copy_out(be, want, aside, out_bytes);
    be->copy_out(be, want + out_bytes, aside_lse, lse_bytes);
    enum status rc = by_cudnn(be, e, c, &err);
    be->copy_out(be, host, c->out, out_bytes);
    if (!c->backward)
        be->copy_out(be, host + out_bytes, c->lse, lse_bytes);
    struct err broken = {0};
    if (be->sync(be, &broken) != OK) { /* the failure concerns more than this comparison: leave it
                                          for the next sync() to report */
        cuda_note_text(broken.status, "%s", broken.msg);
        snprintf(why, sizeof why, "%s", broken.msg);
    } else if (rc != OK) {
        snprintf(why, sizeof why, "%s", err.msg);
    } else {
        compare(c, host, want, why, sizeof why);
    }
    if (why[0])
        refuse(e, c, why);
    else if (e->timed && !cudnn_is_faster(be, e, c))
        leave(e);
    if (!e->plan) {
        be->copy(be, c->out, aside, out_bytes);
        if (!c->backward)
            be->copy(be, c->lse, aside_lse, lse_bytes);
    }
    be->free(be, aside);
    free(host);
}

/* --- entries ---------------------------------------------------------------------------------- */

static struct key key_of(const struct call *c)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.samples = c->a->num_samples;
    key.seq = c->a->seq;
    key.heads = c->a->heads;
    key.head_dim = c->a->head_dim;
    key.causal = c->a->causal;
    key.lengths = c->a->lengths != NULL;
    key.backward = c->backward;
    return key;
}

static struct sdpa_shape shape_of(struct backend *be, const struct key *k)
{
    struct sdpa_shape s;
    memset(&s, 0, sizeof s);
    s.samples = k->samples;
    s.seq = k->seq;
    s.heads = k->heads;
    s.head_dim = k->head_dim;
    s.causal = k->causal;
    s.padded = k->lengths || cuda_cudnn_wants_lengths(cuda_cudnn_of(be), k->seq);
    s.backward = k->backward;
    return s;
}

static enum status fill_full(struct backend *be, struct entry *e, struct err *err)
{
    enum status rc;
    const int64_t bytes = e->key.samples * (int64_t)sizeof(int32_t);
    int32_t *host = malloc((size_t)bytes);
    void *full = NULL;
    if (!host)
        return err_nomem(err);
    for (int64_t i = 0; i < e->key.samples; i++)
        host[i] = e->key.seq;
    rc = be->alloc(be, bytes, &full, err);
    if (rc == OK)
        be->copy_in(be, full, host, bytes);
    e->full = full;
    free(host);
    return rc;
}

/* Whether a new shape tries cuDNN. *timed: time both at the first use. */
static bool wants_cudnn(struct backend *be, const struct key *key, bool *timed)
{
    const struct cuda_pick *pick = cuda_of(be)->pick;
    const struct cuda_choices *choices = cuda_of(be)->choices;
    char problem[CHOICE_BYTES];
    const bool tune = cuda_choices_tune(choices);
    *timed = false;
    if (!pick->wherever && !tune && !cuda_choices_mention(choices, ATTENTION))
        return false; /* cuDNN is not even loaded */
    if (!cuda_cudnn_of(be) || pick->wherever)
        return cuda_cudnn_of(be) != NULL;
    name_problem(be, key, problem);
    const char *given = cuda_choices_given(choices, problem);
    *timed = !given && tune;
    if (!given && !tune) {
        name_kind(be, key, problem);
        given = cuda_choices_nearest(choices, problem, key->samples);
    }
    return *timed || (given && strcmp(given, BY_CUDNN) == 0);
}

/* Make cuDNN's plan for a new shape, if it is to try cuDNN. */
static void make_plan(struct backend *be, struct entry *e, const struct call *c)
{
    struct err err = {0};
    if (!wants_cudnn(be, &e->key, &e->timed))
        return;
    const struct sdpa_shape shape = shape_of(be, &e->key);
    if (cuda_cudnn_sdpa(cuda_cudnn_of(be), &shape, &e->plan, &err) != OK) {
        if (!e->timed)
            log_fallback(c, err.msg);
    } else if (shape.padded && fill_full(be, e, &err) != OK) {
        refuse(e, c, err.msg);
    }
}

/* Finds or makes the entry of a shape, by linear search, because there are few. NULL after
 * recording that memory ran out. */
static struct entry *entry_of(struct backend *be, const struct call *c)
{
    struct cuda_pick *pick = cuda_of(be)->pick;
    const struct key key = key_of(c);
    for (int i = 0; i < pick->num; i++)
        if (memcmp(&pick->entries[i].key, &key, sizeof key) == 0)
            return &pick->entries[i];
    if (pick->num == pick->room) {
        const int room = pick->room ? pick->room * 2 : 16;
        struct entry *more = realloc(pick->entries, (size_t)room * sizeof *more);
        if (!more) {
            cuda_note_text(ERR_NOMEM, "cuda: no memory for problems of attention");
            return NULL;
        }
        pick->entries = more;
        pick->room = room;
    }
    struct entry *e = &pick->entries[pick->num++];
    *e = (struct entry){.key = key};
    make_plan(be, e, c);
    e->for_own = !e->plan;
    return e;
}

/* --- the table -------------------------------------------------------------------------------- */

static bool aligned(const void *at)
{
    return (uintptr_t)at % 16 == 0;
}

/* Whether cuDNN can serve a call. We build no graph of windows for it. With seq 1 there is nothing
 * to attend to, and cuDNN has no backward for it. */
static bool may_serve(const struct call *c)
{
    const bool all = !c->a->starts && (c->a->window == 0 || c->a->window >= c->a->seq);
    return c->elems > 0 && c->a->seq > 1 && all && !(c->drop && c->drop->p > 0.0f) &&
           aligned(c->qkv) && aligned(c->ctx_in) && aligned(c->dctx) && aligned(c->out);
}

static void attend(struct backend *be, struct call *c)
{
    struct entry *e = may_serve(c) ? entry_of(be, c) : NULL;
    struct err err = {0};
    if (!e || !e->plan) {
        by_own(be, c, c->out, c->lse);
        return;
    }
    /* The column sums are taken of the final dqkv, whoever computed it. */
    struct attention bare = *c->a;
    float *sums = bare.dqkv_sums;
    bare.dqkv_sums = NULL;
    c->a = &bare;
    if (!e->compared) {
        first_use(be, e, c);
    } else if (by_cudnn(be, e, c, &err) != OK) {
        refuse(e, c, err.msg);
        by_own(be, c, c->out, c->lse);
    }
    const int64_t width = 3 * (int64_t)bare.heads * bare.head_dim;
    if (sums)
        cuda_column_sums(be, bare.num_samples * bare.seq, width, width, c->out, 1.0f, false, sums);
}

/* Our own kernels' answer, if they have served the shape from the beginning. */
static bool sums_dqkv(struct backend *be, const struct attention *a, const struct dropout *drop)
{
    const struct call c = call_of(a, drop, true);
    const struct entry *e = may_serve(&c) ? entry_of(be, &c) : NULL;
    return (!e || e->for_own) && cuda_of(be)->pick->own.sums_dqkv(be, a, drop);
}

static void forward(struct backend *be, const struct attention *a, const void *qkv,
                    const struct dropout *drop, void *ctx, float *lse)
{
    struct call c = call_of(a, drop, false);
    c.qkv = qkv;
    c.out = ctx;
    c.lse = lse;
    attend(be, &c);
}

static void backward(struct backend *be, const struct attention *a, const void *qkv,
                     const struct dropout *drop, const void *ctx, const float *lse,
                     const void *dctx, void *dqkv)
{
    struct call c = call_of(a, drop, true);
    c.qkv = qkv;
    c.ctx_in = ctx;
    c.lse_in = lse;
    c.dctx = dctx;
    c.out = dqkv;
    attend(be, &c);
}

enum status cuda_pick_new(struct backend *be, struct cuda_pick **out, struct err *err)
{
    const char *named = getenv("ELAPSE_ATTENTION");
    const bool given = named && *named, wherever = given && strcmp(named, "cudnn") == 0;
    if (given && strcmp(named, "own") == 0)
        return OK;
    if (given && !wherever && strcmp(named, "auto") != 0)
        return err_set(err, ERR_INPUT, "ELAPSE_ATTENTION must be own, cudnn or auto, got '%.40s'",
                       named);
    if (be->elem_bytes != 2)
        return OK;
    struct cuda_pick *pick = calloc(1, sizeof *pick);
    if (!pick)
        return err_nomem(err);
    pick->wherever = wherever;
    if (wherever)
        cuda_cudnn_need(be, "attention stays with our own kernels");
    pick->arena = cuda_of(be)->arena;
    pick->own.attention_forward = be->attention_forward;
    pick->own.attention_backward = be->attention_backward;
    pick->own.sums_dqkv = be->sums_dqkv;
    be->sums_dqkv = sums_dqkv;
    be->attention_forward = forward;
    be->attention_backward = backward;
    *out = pick;
    return OK;
}

void cuda_pick_free(struct cuda_pick *pick)
{
    if (!pick)
        return;
    for (int i = 0; i < pick->num; i++) {
        cuda_cudnn_plan_free(pick->entries[i].plan);
        cuda_arena_release(pick->arena, pick->entries[i].full);
    }
    free(pick->entries);
    free(pick);
}

int cuda_pick_served(struct backend *be, bool backward)
{
    const struct cuda_pick *pick = cuda_of(be)->pick;
    int served = 0;
    for (int i = 0; pick && i < pick->num; i++)
        served += pick->entries[i].plan && pick->entries[i].compared &&
                  pick->entries[i].key.backward == backward;
    return served;
}
