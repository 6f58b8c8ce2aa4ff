/* The product of a plan, by cuBLASLt; and the texts of problems and answers (cuda_matmul_plan.h).
 *
 * matmul_describe() and matmul_propose() set it up, matmul_issue() runs it. The last part converts
 * plans to and from answers of cuda_choice.h. */
#include "exec/cuda/cuda_matmul_plan.h"

#include <stdio.h>
#include <string.h>

#define APART "apart" /* the answer that the separate kernels are faster; others are algorithms */

static bool lt_ok(cublasStatus_t code, const char *call)
{
    if (code == CUBLAS_STATUS_SUCCESS)
        return true;
    cuda_note_text(ERR_SYSTEM, "cuda: %s failed: %s", call, cublasLtGetStatusString(code));
    return false;
}
#define LT(call) lt_ok((call), #call)

static cublasLtEpilogue_t epilogue_of(const struct matmul_key *key)
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

/* Set the pointers of one call in the descriptor. */
static bool set_pointers(const struct matmul_plan *e, const struct matmul *p)
{
    const void *bias = p->epilogue == MATMUL_BIAS_GRAD ? p->bias_grad : p->bias;
    if (bias && !SET(e->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias))
        return false;
    return !p->aux || SET(e->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->aux);
}

bool matmul_describe(const struct backend *be, struct matmul_plan *e, const struct matmul *p)
{
    const struct matmul_key *k = &e->key;
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

int matmul_propose(struct backend *be, const struct matmul_plan *e,
                   cublasLtMatmulHeuristicResult_t *proposals, int most)
{
    const uint64_t workspace = MATMUL_WORKSPACE_BYTES;
    /* Partial sums either go through the workspace in fp32 or do not exist; both are added in a
     * fixed order. */
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
    if (ok && cublasLtMatmulAlgoGetHeuristic(cuda_of(be)->matmul->handle, e->desc, e->a, e->b, e->d,
                                             e->d, preference, most, proposals,
                                             &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    cublasLtMatmulPreferenceDestroy(preference);
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (proposals[i].state == CUBLAS_STATUS_SUCCESS)
            proposals[kept++] = proposals[i];
    return kept;
}

void matmul_take_proposal(struct matmul_plan *e, const cublasLtMatmulHeuristicResult_t *proposal)
{
    e->algo = proposal->algo;
    e->workspace = proposal->workspaceSize;
}

cublasStatus_t matmul_issue(struct backend *be, const struct matmul_plan *e, const struct matmul *p)
{
    const struct cuda_matmul *mm = cuda_of(be)->matmul;
    const void *c = p->beta == 0.0f ? p->d : p->c;
    if (!set_pointers(e, p))
        return CUBLAS_STATUS_SUCCESS; /* the failure is recorded */
    return cublasLtMatmul(mm->handle, e->desc, &p->alpha, p->a, e->a, p->b, e->b, &p->beta, c, e->d,
                          p->d, e->d, &e->algo, mm->workspace, e->workspace, cuda_of(be)->stream);
}

void matmul_plan_clear(struct matmul_plan *e)
{
    if (e->desc)
        cublasLtMatmulDescDestroy(e->desc);
    if (e->a)
        cublasLtMatrixLayoutDestroy(e->a);
    if (e->b)
        cublasLtMatrixLayoutDestroy(e->b);
    if (e->d)
        cublasLtMatrixLayoutDestroy(e->d);
}

/* --- choices ---------------------------------------------------------------------------------- */

void matmul_name(const struct backend *be, const struct matmul_key *k, char problem[CHOICE_BYTES])
{
    static const char *const dtypes[] = {"fp32", "bf16", "tf32"};
    static const char *const epilogues[] = {"plain", "gelu", "dgelu", "bias_grad"};
    snprintf(problem, CHOICE_BYTES,
             "%s%s %c%c %lldx%lldx%lld ld %lld %lld %lld %s%s%s%s%s%s%s align %d %d %d %d",
             dtypes[be->dtype], k->fp32_out ? "-fp32" : "", k->trans_a ? 't' : 'n',
             k->trans_b ? 't' : 'n', (long long)k->m, (long long)k->n, (long long)k->k,
             (long long)k->lda, (long long)k->ldb, (long long)k->ldd, epilogues[k->epilogue],
             k->grad_of_a ? " of a" : "", k->has_bias ? " bias" : "", k->has_aux ? " aux" : "",
             k->aux_in_place ? " in place" : "", k->adds ? " adds" : "",
             k->in_place ? "" : " aside", k->align_a, k->align_b, k->align_c, k->align_d);
}

/* An algorithm is written as the bytes of the library's struct, which is plain data according to
 * its documentation. */
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

bool matmul_follow(struct backend *be, struct matmul_plan *e, const char *answer)
{
    cublasLtMatmulHeuristicResult_t found;
    if (!read_algo(answer, &e->algo) ||
        cublasLtMatmulAlgoCheck(cuda_of(be)->matmul->handle, e->desc, e->a, e->b, e->d, e->d,
                                &e->algo, &found) != CUBLAS_STATUS_SUCCESS ||
        found.state != CUBLAS_STATUS_SUCCESS || found.workspaceSize > MATMUL_WORKSPACE_BYTES)
        return false;
    e->workspace = found.workspaceSize;
    return true;
}

bool matmul_is_apart(const char *answer)
{
    return strcmp(answer, APART) == 0;
}

static void note(struct backend *be, const struct matmul_plan *e, const char *answer)
{
    char problem[CHOICE_BYTES];
    matmul_name(be, &e->key, problem);
    cuda_choices_note(cuda_of(be)->choices, problem, answer);
}

void matmul_note(struct backend *be, const struct matmul_plan *e)
{
    char answer[CHOICE_BYTES];
    write_algo(&e->algo, answer);
    note(be, e, answer);
}

void matmul_note_apart(struct backend *be, const struct matmul_plan *e)
{
    note(be, e, APART);
}
