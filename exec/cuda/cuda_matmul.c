#include "exec/cuda/cuda_matmul.h"

#include <cublasLt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/cuda/cuda_arena.h"
#include "exec/cuda/cuda_choice.h"
#include "exec/cuda/cuda_cudnn.h"

/* Twice what cuBLAS asks for on Hopper. Gradients of weights have few tiles and long sums, which
 * are cut into parts, in fp32: 2304 x 768 fills 132 multiprocessors with 54 tiles of 128 x 256 in 7
 * parts (50 MB), 3072 x 768 with 72 in 5 (47 MB); in 32 MiB there are 4 and 3. */
#define WORKSPACE_BYTES ((int64_t)64 << 20)
#define APART "apart" /* in place of an algorithm: the work in pieces is faster */
#define CUDNN                                                                                      \
    "cudnn %d %d" /* the same: cuDNN of this version is, by its proposal of this number            \
                   */
enum { MAX_PROPOSALS = 24, MAX_CUDNN_PROPOSALS = 4, FIRST_TABLE = 64 };

/* What a plan depends on; compared byte by byte, so zeroed first. */
struct key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t trans_a, trans_b, fp32_out, epilogue, grad_of_a, erf, scaled, sums;
    int32_t has_bias, has_aux, adds, in_place, aux_in_place;
    int32_t align_a, align_b, align_c, align_d, align_extra; /* extra: of bias and aux */
};

struct plan_entry {
    struct key key;
    bool made, works, tuned, compared; /* compared: with the work in pieces */
    float ms;                          /* of the pick, where tuned */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    struct cudnn_plan *cudnn; /* in place of the algorithm; NULL: none */
    int cudnn_proposal;
};

struct cuda_matmul {
    cublasLtHandle_t handle;
    enum cudnn_use gelu;
    struct cuda_arena *arena;     /* borrowed */
    struct cuda_choices *choices; /* borrowed */
    struct cuda_cudnn *cudnn;     /* borrowed; NULL: not asked for yet, or not there */
    bool said;                    /* that it is not there */
    struct err refused;           /* its reason, the last time */
    void *workspace;
    struct plan_entry *table; /* open addressing, a power of two */
    int size, count;
};

static bool lt_ok(cublasStatus_t code, const char *call)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return true;
    cuda_note_text(ERR_SYSTEM, "cuda: %s failed: %s", call, cublasLtGetStatusString(code));
    return false;
}
#define LT(call) lt_ok((call), #call)

enum status cuda_matmul_new(struct backend *be, struct cuda_matmul **out, struct err *err)
{
    enum status rc;
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_matmul *mm = calloc(1, sizeof *mm);
    cublasStatus_t code;
    if (!mm)
        return err_nomem(err);
    rc = cuda_cudnn_use("ELAPSE_GELU", &mm->gelu, err);
    if (rc != OK)
        goto out;
    mm->arena = cuda->arena;
    mm->choices = cuda->choices;
    mm->size = FIRST_TABLE;
    mm->table = calloc((size_t)mm->size, sizeof *mm->table);
    if (!mm->table) {
        rc = err_nomem(err);
        goto out;
    }
    code = cublasLtCreate(&mm->handle);
    if (code != CUBLAS_STATUS_SUCCESS) {
        mm->handle = NULL;
        rc = err_set(err, ERR_SYSTEM, "cuda: cublasLtCreate failed: %s",
                     cublasLtGetStatusString(code));
        goto out;
    }
    *out = mm;
    mm = NULL;
    rc = OK;
out:
    cuda_matmul_free(mm);
    return rc;
}

int64_t cuda_matmul_wants(const struct cuda_matmul *mm)
{
    return mm->workspace ? 0 : WORKSPACE_BYTES;
}

enum status cuda_matmul_take(struct cuda_matmul *mm, struct err *err)
{
    return mm->workspace ? OK : cuda_arena_alloc(mm->arena, WORKSPACE_BYTES, &mm->workspace, err);
}

static void entry_clear(struct plan_entry *e)
{
    cuda_cudnn_plan_free(e->cudnn);
    if (e->desc)
        cublasLtMatmulDescDestroy(e->desc);
    if (e->a)
        cublasLtMatrixLayoutDestroy(e->a);
    if (e->b)
        cublasLtMatrixLayoutDestroy(e->b);
    if (e->d)
        cublasLtMatrixLayoutDestroy(e->d);
}

void cuda_matmul_free(struct cuda_matmul *mm)
{
    if (!mm)
        return;
    for (int i = 0; mm->table && i < mm->size; i++)
        if (mm->table[i].made)
            entry_clear(&mm->table[i]);
    cuda_arena_release(mm->arena, mm->workspace);
    if (mm->handle)
        cublasLtDestroy(mm->handle);
    free(mm->table);
    free(mm);
}

/* Kernels want 16 bytes and take less at a price. */
static int32_t alignment_of(const void *at)
{
    int32_t align = 16;
    while ((uintptr_t)at % (uintptr_t)align)
        align /= 2;
    return align;
}

static struct key key_of(const struct matmul *p)
{
    struct key key;
    memset(&key, 0, sizeof key);
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.lda = p->lda;
    key.ldb = p->ldb;
    key.ldd = p->ldd;
    key.trans_a = p->trans_a;
    key.trans_b = p->trans_b;
    key.fp32_out = p->fp32_out;
    key.epilogue = p->epilogue;
    key.grad_of_a = p->grad_of_a;
    key.erf = p->erf;
    key.scaled = p->alpha != 1.0f && (p->epilogue == MATMUL_GELU || p->epilogue == MATMUL_DGELU);
    key.sums = p->d_sums != NULL;
    key.has_bias = p->bias != NULL;
    key.has_aux = p->aux != NULL;
    key.adds = p->c != NULL;
    key.in_place = p->c == p->d || !p->c;
    key.aux_in_place = p->aux != NULL && p->aux == p->d;
    key.align_a = alignment_of(p->a);
    key.align_b = alignment_of(p->b);
    key.align_d = alignment_of(p->d);
    key.align_c = p->c ? alignment_of(p->c) : key.align_d;
    key.align_extra = 16;
    if (p->bias)
        key.align_extra = alignment_of(p->bias);
    if (p->aux && alignment_of(p->aux) < key.align_extra)
        key.align_extra = alignment_of(p->aux);
    return key;
}

/* FNV-1a. */
static uint64_t hash_of(const struct key *key)
{
    const unsigned char *byte = (const unsigned char *)key;
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ byte[i]) * 0x100000001b3ULL;
    return hash ^ hash >> 32;
}

static struct plan_entry *place_of(struct plan_entry *table, int size, const struct key *key)
{
    uint64_t at = hash_of(key) & (uint64_t)(size - 1);
    while (table[at].made && memcmp(&table[at].key, key, sizeof *key) != 0)
        at = (at + 1) & (uint64_t)(size - 1);
    return &table[at];
}

static struct plan_entry *find_entry(struct cuda_matmul *mm, const struct key *key)
{
    if (mm->count * 2 >= mm->size) {
        struct plan_entry *larger = calloc((size_t)mm->size * 2, sizeof *larger);
        if (larger) {
            for (int i = 0; i < mm->size; i++)
                if (mm->table[i].made)
                    *place_of(larger, mm->size * 2, &mm->table[i].key) = mm->table[i];
            free(mm->table);
            mm->table = larger;
            mm->size *= 2;
        } else if (mm->count + 1 >= mm->size) {
            cuda_note_text(ERR_NOMEM, "cuda: no memory for plans of matrix products");
            return NULL;
        }
    }
    return place_of(mm->table, mm->size, key);
}

static cublasLtEpilogue_t epilogue_of(const struct key *key)
{
    switch ((enum matmul_epilogue)key->epilogue) {
    case MATMUL_GELU:
        if (key->has_aux)
            return key->has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
        return key->has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case MATMUL_DGELU:
        return CUBLASLT_EPILOGUE_DGELU;
    case MATMUL_BIAS_GRAD:
        return key->grad_of_a ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BGRADB;
    case MATMUL_PLAIN:
        break;
    }
    return key->has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

#define SET(desc, name, value)                                                                     \
    LT(cublasLtMatmulDescSetAttribute(desc, name, &(value), sizeof(value)))

/* The pointers of one call. */
static bool set_pointers(const struct plan_entry *e, const struct matmul *p)
{
    const void *bias = p->epilogue == MATMUL_BIAS_GRAD ? p->bias_grad : p->bias;
    if (bias && !SET(e->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias))
        return false;
    return !p->aux || SET(e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->aux);
}

static bool describe(struct plan_entry *e, const struct backend *be, const struct matmul *p)
{
    const struct key *k = &e->key;
    const cudaDataType_t low = be->elem_bytes == 2 ? CUDA_R_16BF : CUDA_R_32F;
    const cudaDataType_t out = k->fp32_out ? CUDA_R_32F : low;
    const cublasComputeType_t compute =
        be->dtype == DTYPE_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t ta = k->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t tb = k->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = epilogue_of(k);
    const int64_t ld_aux = k->ldd;
    if (!LT(cublasLtMatmulDescCreate(&e->desc, compute, CUDA_R_32F)) ||
        !SET(e->desc, CUBLASLT_MATMUL_DESC_TRANSA, ta) ||
        !SET(e->desc, CUBLASLT_MATMUL_DESC_TRANSB, tb) ||
        !SET(e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) ||
        (k->has_aux && !SET(e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld_aux)) ||
        !set_pointers(e, p))
        return false;
    return LT(cublasLtMatrixLayoutCreate(&e->a, low, (uint64_t)(k->trans_a ? k->k : k->m),
                                         (uint64_t)(k->trans_a ? k->m : k->k), k->lda)) &&
           LT(cublasLtMatrixLayoutCreate(&e->b, low, (uint64_t)(k->trans_b ? k->n : k->k),
                                         (uint64_t)(k->trans_b ? k->k : k->n), k->ldb)) &&
           LT(cublasLtMatrixLayoutCreate(&e->d, out, (uint64_t)k->m, (uint64_t)k->n, k->ldd));
}

/* The library's proposals, best first by its own guess; 0: it cannot. */
static int propose(struct cuda_matmul *mm, const struct plan_entry *e,
                   cublasLtMatmulHeuristicResult_t *proposals, int most)
{
    const uint64_t workspace = WORKSPACE_BYTES;
    /* Partial sums through the workspace in fp32, or none: both in a fixed order. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t align[4] = {(uint32_t)e->key.align_a, (uint32_t)e->key.align_b,
                               (uint32_t)e->key.align_c, (uint32_t)e->key.align_d};
    const cublasLtMatmulPreferenceAttributes_t names[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t preference = NULL;
    int count = 0;
    if (!LT(cublasLtMatmulPreferenceCreate(&preference)))
        return 0;
    bool ok =
        LT(cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace)) &&
        LT(cublasLtMatmulPreferenceSetAttribute(preference,
                                                CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                &reductions, sizeof reductions));
    for (int i = 0; i < 4 && ok; i++)
        ok = LT(
            cublasLtMatmulPreferenceSetAttribute(preference, names[i], &align[i], sizeof align[i]));
    if (ok &&
        cublasLtMatmulAlgoGetHeuristic(mm->handle, e->desc, e->a, e->b, e->d, e->d, preference,
                                       most, proposals, &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (proposals[i].state == CUBLAS_STATUS_SUCCESS)
            proposals[kept++] = proposals[i];
    return kept;
}

/* --- choices ---------------------------------------------------------------------------------- */

/* All of a key. */
static void name_problem(const struct backend *be, const struct key *k, char problem[CHOICE_BYTES])
{
    static const char *const dtypes[] = {"fp32", "bf16", "tf32"};
    static const char *const epilogues[] = {"plain", "gelu", "dgelu", "bias_grad"};
    snprintf(problem, CHOICE_BYTES,
             "%s%s %c%c %lldx%lldx%lld ld %lld %lld %lld %s%s%s%s%s%s%s%s%s%s align %d %d %d %d",
             dtypes[be->dtype], k->fp32_out ? "-fp32" : "", k->trans_a ? 't' : 'n',
             k->trans_b ? 't' : 'n', (long long)k->m, (long long)k->n, (long long)k->k,
             (long long)k->lda, (long long)k->ldb, (long long)k->ldd, epilogues[k->epilogue],
             k->erf ? " erf" : "", k->scaled ? " scaled" : "", k->sums ? " sums" : "",
             k->grad_of_a ? " of a" : "", k->has_bias ? " bias" : "", k->has_aux ? " aux" : "",
             k->aux_in_place ? " in place" : "", k->adds ? " adds" : "",
             k->in_place ? "" : " aside", k->align_a, k->align_b, k->align_c, k->align_d);
}

/* The library's description of an algorithm is plain data, as its documentation says. */
static void write_algo(const cublasLtMatmulAlgo_t *algo, char answer[CHOICE_BYTES])
{
    const unsigned char *byte = (const unsigned char *)algo;
    for (size_t i = 0; i < sizeof *algo; i++)
        snprintf(answer + 2 * i, 3, "%02x", byte[i]);
}

static bool read_algo(const char *answer, cublasLtMatmulAlgo_t *algo)
{
    unsigned char *byte = (unsigned char *)algo;
    unsigned value;
    if (strspn(answer, "0123456789abcdef") != 2 * sizeof *algo || answer[2 * sizeof *algo])
        return false;
    for (size_t i = 0; i < sizeof *algo && sscanf(answer + 2 * i, "%2x", &value) == 1; i++)
        byte[i] = (unsigned char)value;
    return true;
}

/* The algorithm that was named. false: the library does not take it. */
static bool use_given(struct cuda_matmul *mm, struct plan_entry *e, const char *given)
{
    cublasLtMatmulHeuristicResult_t found;
    if (!read_algo(given, &e->algo) ||
        cublasLtMatmulAlgoCheck(mm->handle, e->desc, e->a, e->b, e->d, e->d, &e->algo, &found) !=
            CUBLAS_STATUS_SUCCESS ||
        found.state != CUBLAS_STATUS_SUCCESS || found.workspaceSize > WORKSPACE_BYTES)
        return false;
    e->workspace = found.workspaceSize;
    return true;
}

static void note_choice(struct cuda_matmul *mm, const struct plan_entry *e, const char *problem)
{
    char answer[CHOICE_BYTES];
    if (e->cudnn)
        snprintf(answer, sizeof answer, CUDNN, cuda_cudnn_version(mm->cudnn), e->cudnn_proposal);
    else
        write_algo(&e->algo, answer);
    cuda_choices_note(mm->choices, problem, answer);
}

/* In place of the algorithm that was noted. */
static void note_apart(struct cuda_matmul *mm, const struct backend *be, const struct plan_entry *e)
{
    char problem[CHOICE_BYTES];
    name_problem(be, &e->key, problem);
    cuda_choices_note(mm->choices, problem, APART);
}

/* --- by cuBLASLt ------------------------------------------------------------------------------ */

static cublasStatus_t issue(struct cuda_matmul *mm, const struct plan_entry *e,
                            const struct matmul *p, const cublasLtMatmulAlgo_t *algo,
                            size_t workspace, cudaStream_t stream)
{
    const void *c = p->beta == 0.0f ? p->d : p->c;
    return cublasLtMatmul(mm->handle, e->desc, &p->alpha, p->a, e->a, p->b, e->b, &p->beta, c, e->d,
                          p->d, e->d, algo, mm->workspace, workspace, stream);
}

/* --- by cuDNN --------------------------------------------------------------------------------- */

/* cuDNN, where it is there; said once where it was asked for. */
static struct cuda_cudnn *cudnn_of(struct cuda_matmul *mm, struct backend *be)
{
    struct err why = {0};
    mm->cudnn = cuda_cudnn_of(be, &why);
    if (!mm->cudnn && !mm->said && mm->gelu == CUDNN_WHEREVER)
        fprintf(stderr, "elapse: GELU stays apart from its products: %s\n", why.msg);
    mm->said = true;
    return mm->cudnn;
}

/* Its plan of the product; false: none. The library's rows are our columns: x is B, w is A. */
static bool plan_by_cudnn(struct cuda_matmul *mm, struct backend *be, struct plan_entry *e,
                          int proposal)
{
    const struct key *k = &e->key;
    const bool backward = k->epilogue == MATMUL_DGELU;
    struct gelu_shape shape;
    struct err err = {0};
    if (be->dtype != DTYPE_BF16 || (!backward && k->epilogue != MATMUL_GELU) || k->scaled ||
        k->adds || k->trans_b || k->has_bias == backward || (backward && !k->has_aux) || k->m % 8 ||
        k->k % 8 || k->lda % 8 || k->ldb % 8 || k->ldd % 8 || k->align_a < 16 || k->align_b < 16 ||
        k->align_d < 16 || !cudnn_of(mm, be))
        return false;
    memset(&shape, 0, sizeof shape);
    shape.rows = k->n;
    shape.in = k->k;
    shape.out = k->m;
    shape.ld_x = k->ldb;
    shape.ld_w = k->lda;
    shape.ld_y = k->ldd;
    shape.out_in = k->trans_a;
    shape.erf = k->erf;
    shape.pre = k->has_aux;
    shape.backward = backward;
    if (cuda_cudnn_gelu(mm->cudnn, &shape, proposal, &e->cudnn, &err) == OK &&
        cuda_cudnn_workspace(e->cudnn) <= WORKSPACE_BYTES) {
        e->cudnn_proposal = proposal;
        return true;
    }
    cuda_cudnn_plan_free(e->cudnn);
    e->cudnn = NULL;
    return false;
}

/* What was given, where it is cuDNN's answer in the version that is there. */
static bool use_given_cudnn(struct cuda_matmul *mm, struct backend *be, struct plan_entry *e,
                            const char *given)
{
    int version = 0, proposal = 0;
    return sscanf(given, CUDNN, &version, &proposal) == 2 && mm->gelu != CUDNN_NEVER &&
           cudnn_of(mm, be) && version == cuda_cudnn_version(mm->cudnn) &&
           plan_by_cudnn(mm, be, e, proposal);
}

/* false: refused says why. */
static bool issue_cudnn(struct cuda_matmul *mm, const struct plan_entry *e, const struct matmul *p)
{
    void *const at[CUDNN_NUM_UIDS] = {
        [GELU_X] = (void *)(uintptr_t)p->b,
        [GELU_W] = (void *)(uintptr_t)p->a,
        [GELU_BIAS] = (void *)(uintptr_t)p->bias,
        [GELU_PRE] = p->aux,
        [GELU_Y] = p->d,
    };
    if (cuda_cudnn_run(mm->cudnn, e->cudnn, at, mm->workspace, &mm->refused) != OK)
        return false;
    cuda_launched("a product by cuDNN", __FILE__, __LINE__);
    return true;
}

/* --- the plan's way --------------------------------------------------------------------------- */

/* Issued, or why not. */
static const char *issue_plan(struct cuda_matmul *mm, struct backend *be,
                              const struct plan_entry *e, const struct matmul *p)
{
    if (e->cudnn) {
        if (!issue_cudnn(mm, e, p))
            return mm->refused.msg;
    } else if (set_pointers(e, p)) { /* else noted */
        const cublasStatus_t code = issue(mm, e, p, &e->algo, e->workspace, cuda_of(be)->stream);
        if (code != CUBLAS_STATUS_SUCCESS)
            return cublasLtGetStatusString(code);
    }
    if (p->d_sums)
        cuda_column_sums(be, p->n, p->m, p->ldd, p->d, 1.0f, false, p->d_sums);
    return NULL;
}

/* --- tuning ----------------------------------------------------------------------------------- */

/* Where a product's outputs go while it is timed: d, and behind it the bias's gradient. */
static void *take_aside(struct cuda_matmul *mm, const struct backend *be, const struct matmul *p,
                        cudaStream_t stream, float **bias_grad)
{
    const int64_t d_bytes = (p->ldd * p->n * (p->fp32_out ? 4 : be->elem_bytes) + 255) / 256 * 256;
    const int64_t bytes = d_bytes + (p->m > p->n ? p->m : p->n) * (int64_t)sizeof **bias_grad;
    void *aside = NULL;
    if (cuda_arena_alloc(mm->arena, bytes, &aside, NULL) != OK)
        return NULL;
    CUDA_NOTE(cudaMemsetAsync(aside, 0, (size_t)bytes, stream));
    *bias_grad = (float *)(void *)((char *)aside + d_bytes);
    return aside;
}

struct plan_call {
    struct cuda_matmul *mm;
    struct backend *be;
    const struct plan_entry *e;
    const struct matmul *p;
};
static bool run_plan(const void *ctx)
{
    const struct plan_call *c = ctx;
    return issue_plan(c->mm, c->be, c->e, c->p) == NULL;
}

/* Milliseconds of cuDNN's plan, outputs aside; 0: it cannot, or there is no room. */
static float time_cudnn(struct cuda_matmul *mm, struct backend *be, const struct plan_entry *e,
                        const struct matmul *p)
{
    struct matmul timed = *p;
    struct plan_call call = {mm, be, e, &timed};
    float *sums = NULL, ms = 0.0f;
    timed.d = take_aside(mm, be, p, cuda_of(be)->stream, &sums);
    if (p->d_sums)
        timed.d_sums = sums;
    if (timed.d)
        ms = cuda_choices_time(mm->choices, cuda_of(be)->stream, run_plan, &call);
    cuda_arena_release(mm->arena, timed.d);
    return ms;
}

/* cuDNN's fastest proposal in place of the algorithm, where it is faster. */
static void tune_cudnn(struct cuda_matmul *mm, struct backend *be, struct plan_entry *e,
                       const struct matmul *p)
{
    for (int proposal = 0; proposal < MAX_CUDNN_PROPOSALS; proposal++) {
        struct plan_entry tried = {.key = e->key};
        const float ms =
            plan_by_cudnn(mm, be, &tried, proposal) ? time_cudnn(mm, be, &tried, p) : 0.0f;
        if (ms > 0.0f && (e->ms == 0.0f || ms < e->ms)) {
            cuda_cudnn_plan_free(e->cudnn);
            e->cudnn = tried.cudnn;
            e->cudnn_proposal = proposal;
            e->ms = ms;
        } else {
            cuda_cudnn_plan_free(tried.cudnn);
        }
    }
}

struct proposal_call {
    struct cuda_matmul *mm;
    const struct plan_entry *e;
    const struct matmul *p;
    const cublasLtMatmulHeuristicResult_t *proposal;
    cudaStream_t stream;
};
static bool run_proposal(const void *ctx)
{
    const struct proposal_call *c = ctx;
    return issue(c->mm, c->e, c->p, &c->proposal->algo, c->proposal->workspaceSize, c->stream) ==
           CUBLAS_STATUS_SUCCESS;
}

/* The fastest proposal on the real operands, outputs aside, but for an aux that is written: that
 * comes out the same each time, up to its last bits. Where there is no room the first stands. */
static int tune(struct cuda_matmul *mm, const struct backend *be, struct plan_entry *e,
                const struct matmul *p, const cublasLtMatmulHeuristicResult_t *proposals, int count,
                cudaStream_t stream)
{
    struct matmul timed = *p;
    int best = 0;
    timed.d = take_aside(mm, be, p, stream, &timed.bias_grad);
    if (p->c == p->d)
        timed.c = timed.d;
    if (timed.d && set_pointers(e, &timed))
        for (int i = 0; i < count; i++) {
            const struct proposal_call call = {mm, e, &timed, &proposals[i], stream};
            const float ms = cuda_choices_time(mm->choices, stream, run_proposal, &call);
            if (ms > 0.0f && (e->ms == 0.0f || ms < e->ms)) {
                e->ms = ms;
                best = i;
            }
        }
    cuda_arena_release(mm->arena, timed.d);
    return best;
}

/* Whether the plan gives the same bits where its aux is its output: tried on a copy. */
static bool works_in_place(struct cuda_matmul *mm, struct backend *be, const struct plan_entry *e,
                           const struct matmul *p)
{
    const size_t bytes = (size_t)(e->key.ldd * e->key.n * be->elem_bytes);
    const size_t room = (bytes + 255) / 256 * 256;
    cudaStream_t stream = cuda_of(be)->stream;
    char *aside = cuda_scratch(be, 2 * (int64_t)room), *host = malloc(2 * bytes);
    struct matmul apart = *p, twin = *p;
    bool same = false;
    apart.d_sums = twin.d_sums = NULL;
    if (aside && host) {
        apart.d = aside;
        twin.aux = twin.d = aside + room;
        /* Rows longer than the output keep what they have. */
        CUDA_NOTE(cudaMemcpyAsync(apart.d, p->aux, bytes, cudaMemcpyDeviceToDevice, stream));
        CUDA_NOTE(cudaMemcpyAsync(twin.d, p->aux, bytes, cudaMemcpyDeviceToDevice, stream));
        same = !issue_plan(mm, be, e, &apart) && !issue_plan(mm, be, e, &twin);
        CUDA_NOTE(cudaMemcpyAsync(host, aside, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA_NOTE(cudaMemcpyAsync(host + bytes, twin.d, bytes, cudaMemcpyDeviceToHost, stream));
        CUDA_NOTE(cudaStreamSynchronize(stream));
        same = same && memcmp(host, host + bytes, bytes) == 0;
    }
    free(host);
    return same;
}

/* --- plans ------------------------------------------------------------------------------------ */

/* Whether the caller can do it otherwise. */
static bool in_pieces(const struct matmul *p)
{
    return p->epilogue != MATMUL_PLAIN || p->bias;
}

/* Whether cuBLASLt could have the product at all. */
static bool is_for_lt(const struct key *k)
{
    return !k->erf && !k->sums;
}

/* The fastest way by tuning, else the library's first. false: there is none. */
static bool find_way(struct cuda_matmul *mm, struct backend *be, struct plan_entry *e,
                     const struct matmul *p)
{
    cublasLtMatmulHeuristicResult_t proposals[MAX_PROPOSALS];
    const bool tunes = cuda_choices_tune(mm->choices);
    const int count = is_for_lt(&e->key) ? propose(mm, e, proposals, tunes ? MAX_PROPOSALS : 1) : 0;
    if (count > 0) {
        const int pick = tunes ? tune(mm, be, e, p, proposals, count, cuda_of(be)->stream) : 0;
        e->algo = proposals[pick].algo;
        e->workspace = proposals[pick].workspaceSize;
    }
    if (tunes && mm->gelu == CUDNN_WHERE_FASTER)
        tune_cudnn(mm, be, e, p);
    e->tuned = tunes;
    return count > 0 || e->cudnn;
}

/* A way for the plan; false: there is none. */
static bool choose(struct cuda_matmul *mm, struct backend *be, struct plan_entry *e,
                   const struct matmul *p)
{
    char problem[CHOICE_BYTES];
    name_problem(be, &e->key, problem);
    if (mm->gelu == CUDNN_WHEREVER && plan_by_cudnn(mm, be, e, CUDNN_FIRST))
        return true;
    const char *given = cuda_choices_given(mm->choices, problem);
    if (given && in_pieces(p) && strcmp(given, APART) == 0)
        return false;
    if (given && (use_given(mm, e, given) || use_given_cudnn(mm, be, e, given)))
        return true;
    if (!find_way(mm, be, e, p))
        return false;
    if (e->tuned)
        note_choice(mm, e, problem);
    return true;
}

static void make_plan(struct cuda_matmul *mm, struct backend *be, struct plan_entry *e,
                      const struct matmul *p)
{
    /* The library reads a bias and an aux 16 bytes at a time, and reports it no better than as a
     * failure where it cannot. */
    const bool fits = e->key.align_extra == 16 && (!p->aux || p->ldd % 8 == 0);
    e->made = true;
    mm->count++;
    if (cuda_matmul_take(mm, &cuda_of(be)->failed) != OK)
        return;
    e->works = fits && (!is_for_lt(&e->key) || describe(e, be, p)) && choose(mm, be, e, p) &&
               (!e->key.aux_in_place || works_in_place(mm, be, e, p));
}

/* The plan of p's shape, made at its first call; NULL after recording why there is none. */
static struct plan_entry *plan_of(struct backend *be, const struct matmul *p)
{
    struct cuda_matmul *mm = cuda_of(be)->matmul;
    const struct key key = key_of(p);
    struct plan_entry *e = find_entry(mm, &key);
    if (e && !e->made) {
        e->key = key;
        make_plan(mm, be, e, p);
    }
    return e;
}

/* --- against the work in pieces --------------------------------------------------------------- */

struct apart_call {
    struct backend *be;
    matmul_apart *apart;
    const void *call;
    void *d;
    float *bias_grad;
};
static bool run_apart(const void *ctx)
{
    const struct apart_call *c = ctx;
    c->apart(c->be, c->call, c->d, c->bias_grad);
    return true;
}

/* Whether cuDNN's outputs are those of the pieces, up to roundings; d aside, and aux, where it is
 * written, twice. */
static bool agrees(struct cuda_matmul *mm, struct backend *be, const struct plan_entry *e,
                   const struct matmul *p, struct apart_call pieces)
{
    const int64_t num = p->ldd * (p->n - 1) + p->m, bytes = num * be->elem_bytes;
    const bool aux = p->epilogue == MATMUL_GELU && p->aux;
    const int num_outputs = aux ? 2 : 1;
    struct matmul fused = *p;
    struct err broken = {0};
    char why[sizeof mm->refused.msg] = "";
    uint16_t *host = malloc((size_t)bytes * 4);
    fused.d = take_aside(mm, be, p, cuda_of(be)->stream, &pieces.bias_grad);
    fused.d_sums = NULL;
    pieces.d = fused.d;
    if (!host || !fused.d) {
        snprintf(why, sizeof why, "no memory to compare cuDNN with the pieces");
    } else if (issue_plan(mm, be, e, &fused)) {
        (void)cudaGetLastError();
        snprintf(why, sizeof why, "%s", mm->refused.msg);
    } else {
        be->copy_out(be, host, fused.d, bytes);
        if (aux)
            be->copy_out(be, host + num, p->aux, bytes);
        run_apart(&pieces);
        be->copy_out(be, host + 2 * num, pieces.d, bytes);
        if (aux)
            be->copy_out(be, host + 3 * num, p->aux, bytes);
        if (be->sync(be, &broken) != OK) { /* let the next sync say it */
            cuda_note_text(broken.status, "%s", broken.msg);
            snprintf(why, sizeof why, "the device failed");
        }
        for (int i = 0; i < num_outputs && !why[0]; i++) {
            const double apart = cuda_choices_distance(host + i * num, host + (2 + i) * num, num);
            if (!(apart <= CHOICE_TOLERANCE))
                snprintf(why, sizeof why, "cuDNN's %s differs by %.2g of its norm (limit %.2g)",
                         i ? "aux" : "output", apart, CHOICE_TOLERANCE);
        }
    }
    if (why[0])
        fprintf(stderr, "elapse: GELU stays apart from its product of %lld x %lld x %lld: %s\n",
                (long long)p->n, (long long)p->k, (long long)p->m, why);
    cuda_arena_release(mm->arena, fused.d);
    free(host);
    return !why[0];
}

bool cuda_matmul_pays(struct backend *be, const struct matmul *p, matmul_apart *apart,
                      const void *call)
{
    struct cuda_matmul *mm = cuda_of(be)->matmul;
    struct plan_entry *e = plan_of(be, p);
    if (!e || !e->works || e->compared || (!e->tuned && !e->cudnn))
        return e && e->works;
    const struct plan_entry was = *e; /* the pieces have plans too, and may move this one */
    struct apart_call pieces = {be, apart, call, NULL, NULL};
    bool pays = !was.cudnn || agrees(mm, be, &was, p, pieces);
    if (pays && was.tuned) {
        float apart_ms = 0.0f;
        pieces.d = take_aside(mm, be, p, cuda_of(be)->stream, &pieces.bias_grad);
        if (pieces.d)
            apart_ms = cuda_choices_time(mm->choices, cuda_of(be)->stream, run_apart, &pieces);
        cuda_arena_release(mm->arena, pieces.d);
        pays = apart_ms == 0.0f || was.ms <= apart_ms;
    }
    e = plan_of(be, p);
    if (e) {
        e->compared = true;
        e->works = pays;
        if (!pays && was.tuned)
            note_apart(mm, be, e);
    }
    return e && e->works;
}

/* --- products --------------------------------------------------------------------------------- */

bool cuda_matmul_run(struct backend *be, const struct matmul *p)
{
    struct cuda_matmul *mm = cuda_of(be)->matmul;
    struct plan_entry *e = plan_of(be, p);
    if (!e)
        return true; /* noted */
    if (!e->works) {
        if (!in_pieces(p))
            cuda_note_text(
                ERR_SYSTEM,
                "cuda: cuBLASLt has no product of %lld x %lld x %lld (ld %lld, %lld, %lld)",
                (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->lda,
                (long long)p->ldb, (long long)p->ldd);
        return false;
    }
    const char *why = issue_plan(mm, be, e, p);
    if (!why)
        return true;
    if (in_pieces(p)) { /* proposed, and refused nevertheless */
        (void)cudaGetLastError();
        e->works = false;
        return false;
    }
    cuda_note_text(ERR_SYSTEM, "cuda: cublasLtMatmul of %lld x %lld x %lld failed: %s",
                   (long long)p->m, (long long)p->n, (long long)p->k, why);
    return true;
}

int cuda_matmul_served(struct backend *be)
{
    const struct cuda_matmul *mm = cuda_of(be)->matmul;
    int served = 0;
    for (int i = 0; i < mm->size; i++)
        served += mm->table[i].made && mm->table[i].works && mm->table[i].cudnn;
    return served;
}
