/* cuBLASLt on the CPU: fp32 and bf16 products accumulated in fp32, with the epilogues of its
 * documentation. Strict: what the library rejects is rejected here (types, leading dimensions,
 * alignments promised to the heuristic, bias, aux of the GELU epilogues, workspace), with a line on
 * stderr. Three algorithms whose bits differ, so that one not pinned shows; operands that
 * are not aligned to 16 bytes get another first choice, as there.
 *
 * ELAPSE_CUDASIM_EPILOGUES=0: no epilogue is available, as for shapes that the library refuses.
 * ELAPSE_CUDASIM_IN_PLACE=0: a product whose aux is its output finds the aux overwritten.
 * ELAPSE_CUDASIM_SLOW=01: these algorithms take their time, so that they are not the fastest. */
#include "tests/cudasim/cudasim_internal.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace
{

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t trans[2];
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
    int32_t bias_type, aux_type; /* -1: as D */
    int32_t pointer_mode;
};
struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch, order;
    int64_t batch_stride;
};
struct preference {
    uint64_t workspace;
    uint32_t reductions, align[4], search;
};
/* The problem that an algorithm was proposed for; it lies in cublasLtMatmulAlgo_t. */
struct chosen {
    uint32_t magic, id;
    uint32_t align[4];
    uint64_t shape; /* checksum of the problem */
    uint64_t workspace;
};
static_assert(sizeof(chosen) <= sizeof(cublasLtMatmulAlgo_t), "an algorithm's place is too small");
const uint32_t MAGIC = 0x454c5453;

int64_t matmuls;

int bytes_of(int type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 0;
}

#define REFUSE(code, ...) return cudasim_say("cublasLt: " __VA_ARGS__), code

bool has(uint32_t epilogue, uint32_t bit)
{
    return (epilogue & bit) == bit;
}
/* Bit 2 is BIAS, 4 a bias's gradient, 7 an aux; DGELU is 64, GELU 32. */
bool takes_bias(uint32_t e)
{
    return e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_GELU_BIAS ||
           e == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}
bool gives_bias(uint32_t e)
{
    return e == CUBLASLT_EPILOGUE_BGRADA || e == CUBLASLT_EPILOGUE_BGRADB ||
           e == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}
bool takes_aux(uint32_t e)
{
    return has(e, 128);
}
bool is_gelu(uint32_t e)
{
    return has(e, 32);
}
bool is_dgelu(uint32_t e)
{
    return has(e, 64);
}

struct problem {
    desc d;
    layout a, b, c, out;
    uint64_t m, n, k;
    int bias_type, aux_type;
};

uint64_t checksum(const problem &p)
{
    const uint64_t parts[] = {p.m,
                              p.n,
                              p.k,
                              (uint64_t)p.a.ld,
                              (uint64_t)p.b.ld,
                              (uint64_t)p.c.ld,
                              (uint64_t)p.out.ld,
                              (uint64_t)p.a.type,
                              (uint64_t)p.out.type,
                              p.d.epilogue,
                              (uint64_t)p.d.compute,
                              (uint64_t)(p.d.trans[0] * 4 + p.d.trans[1]),
                              (uint64_t)p.out.batch};
    uint64_t sum = 1469598103934665603ull;
    for (uint64_t part : parts)
        sum = (sum ^ part) * 1099511628211ull, sum ^= sum >> 29;
    return sum;
}

/* The rules that hold for a heuristic and for a product alike. */
cublasStatus_t check(cublasLtMatmulDesc_t desc_in, cublasLtMatrixLayout_t a_in,
                     cublasLtMatrixLayout_t b_in, cublasLtMatrixLayout_t c_in,
                     cublasLtMatrixLayout_t d_in, problem *p)
{
    if (!desc_in || !a_in || !b_in || !c_in || !d_in)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "a descriptor is NULL");
    p->d = *(const desc *)(const void *)desc_in;
    p->a = *(const layout *)(const void *)a_in;
    p->b = *(const layout *)(const void *)b_in;
    p->c = *(const layout *)(const void *)c_in;
    p->out = *(const layout *)(const void *)d_in;
    const bool ta = p->d.trans[0] != CUBLAS_OP_N, tb = p->d.trans[1] != CUBLAS_OP_N;
    p->m = ta ? p->a.cols : p->a.rows;
    p->k = ta ? p->a.rows : p->a.cols;
    p->n = tb ? p->b.rows : p->b.cols;
    if ((tb ? p->b.cols : p->b.rows) != p->k || p->out.rows != p->m || p->out.cols != p->n ||
        p->c.rows != p->m || p->c.cols != p->n)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE,
               "shapes do not fit: op(A) %llu x %llu, op(B) %llu x %llu, D %llu x %llu",
               (unsigned long long)p->m, (unsigned long long)p->k,
               (unsigned long long)(tb ? p->b.cols : p->b.rows), (unsigned long long)p->n,
               (unsigned long long)p->out.rows, (unsigned long long)p->out.cols);
    if (p->m == 0 || p->n == 0 || p->k == 0)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "an empty product");
    const layout *all[] = {&p->a, &p->b, &p->c, &p->out};
    for (const layout *l : all) {
        if (l->ld < (int64_t)l->rows)
            REFUSE(CUBLAS_STATUS_INVALID_VALUE, "leading dimension %lld below %llu rows",
                   (long long)l->ld, (unsigned long long)l->rows);
        if (l->order != CUBLASLT_ORDER_COL)
            REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "order %d", l->order);
        if (l->batch != p->a.batch)
            REFUSE(CUBLAS_STATUS_INVALID_VALUE, "batch counts differ");
        if (!bytes_of(l->type))
            REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "type %d", (int)l->type);
    }
    if (p->a.type != p->b.type || p->c.type != p->out.type ||
        (p->a.type == CUDA_R_32F && p->out.type != CUDA_R_32F))
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "types A %d, B %d, C %d, D %d", (int)p->a.type,
               (int)p->b.type, (int)p->c.type, (int)p->out.type);
    if (p->d.scale != CUDA_R_32F ||
        (p->d.compute != CUBLAS_COMPUTE_32F && p->d.compute != CUBLAS_COMPUTE_32F_FAST_TF32 &&
         p->d.compute != CUBLAS_COMPUTE_32F_PEDANTIC) ||
        (p->d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p->a.type != CUDA_R_32F))
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d with A of type %d", (int)p->d.compute,
               (int)p->a.type);
    const uint32_t e = p->d.epilogue;
    if (e != CUBLASLT_EPILOGUE_DEFAULT && !takes_bias(e) && !gives_bias(e) && !is_gelu(e) &&
        !is_dgelu(e))
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "epilogue %u", e);
    p->bias_type = p->d.bias_type < 0 ? (int)p->out.type : p->d.bias_type;
    p->aux_type = p->d.aux_type < 0 ? (int)p->out.type : p->d.aux_type;
    if ((takes_bias(e) || gives_bias(e)) && p->bias_type != (int)p->out.type)
        REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "bias of type %d with D of type %d", p->bias_type,
               (int)p->out.type);
    if (takes_aux(e)) {
        if (p->aux_type != (int)p->out.type)
            REFUSE(CUBLAS_STATUS_NOT_SUPPORTED, "aux of type %d with D of type %d", p->aux_type,
                   (int)p->out.type);
        if (p->d.aux_ld < (int64_t)p->m || p->d.aux_ld % 8)
            REFUSE(CUBLAS_STATUS_INVALID_VALUE,
                   "aux leading dimension %lld, must be a multiple of 8 and at least %llu",
                   (long long)p->d.aux_ld, (unsigned long long)p->m);
        if ((uintptr_t)p->d.aux % 16)
            REFUSE(CUBLAS_STATUS_INVALID_VALUE, "aux at %p is not 16-byte aligned", p->d.aux);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* --- arithmetic ------------------------------------------------------------------------------ */

float load(const void *at, int64_t i, int type)
{
    if (type == CUDA_R_32F)
        return ((const float *)at)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
void store(void *at, int64_t i, int type, float x)
{
    if (type == CUDA_R_32F) {
        ((float *)at)[i] = x;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x)
        bits |= 0x400000; /* stays a NaN */
    else
        bits += 0x7fff + (bits >> 16 & 1); /* to nearest even */
    ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
}
float to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x1000) & 0xffffe000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x)
{
    const double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

enum { TILE_M = 32, TILE_N = 4 };

/* Panels of op(X): [panels][k][width], zero-padded. along: op(X)'s dimension other than k. */
void pack(std::vector<float> *to, const void *x, const layout &l, bool k_first, uint64_t along,
          uint64_t k, int width, bool tf32)
{
    const uint64_t panels = (along + (uint64_t)width - 1) / (uint64_t)width;
    to->assign(panels * k * (uint64_t)width, 0.0f);
    for (uint64_t i = 0; i < along; i++) {
        float *panel = to->data() + i / (uint64_t)width * k * (uint64_t)width + i % (uint64_t)width;
        for (uint64_t kk = 0; kk < k; kk++) {
            const int64_t at =
                k_first ? (int64_t)kk + (int64_t)i * l.ld : (int64_t)i + (int64_t)kk * l.ld;
            const float v = load(x, at, l.type);
            panel[kk * (uint64_t)width] = tf32 ? to_tf32(v) : v;
        }
    }
}

void tile(const float *a, const float *b, uint64_t from, uint64_t to, float acc[TILE_N][TILE_M])
{
    float sum[TILE_N][TILE_M] = {{0}};
    for (uint64_t k = from; k < to; k++)
        for (int j = 0; j < TILE_N; j++)
            for (int i = 0; i < TILE_M; i++)
                sum[j][i] += a[k * TILE_M + i] * b[k * TILE_N + j];
    for (int j = 0; j < TILE_N; j++)
        for (int i = 0; i < TILE_M; i++)
            acc[j][i] += sum[j][i];
}

struct operands {
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    uint32_t id;
};

bool set_to(const char *variable, const char *value)
{
    const char *text = getenv(variable);
    return text && strcmp(text, value) == 0;
}

void multiply(const problem &p, const operands &o)
{
    const char *slow = getenv("ELAPSE_CUDASIM_SLOW");
    if (slow && strchr(slow, (int)('0' + o.id)))
        usleep(20000);
    if (is_dgelu(p.d.epilogue) && p.d.aux == o.d && set_to("ELAPSE_CUDASIM_IN_PLACE", "0"))
        for (uint64_t i = 0; i < p.m; i++)
            store(o.d, (int64_t)i, (int)p.out.type, 1.0f);
    const bool ta = p.d.trans[0] != CUBLAS_OP_N, tb = p.d.trans[1] != CUBLAS_OP_N;
    const bool tf32 = p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const bool by_place = set_to("ELAPSE_CUDASIM_PLACES", "1");
    const uint32_t e = p.d.epilogue;
    std::vector<float> a, b;
    pack(&a, o.a, p.a, ta, p.m, p.k, TILE_M, tf32);
    pack(&b, o.b, p.b, !tb, p.n, p.k, TILE_N, tf32);
    std::vector<double> bias_grad(e == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m, 0.0);
    if (e == CUBLASLT_EPILOGUE_BGRADA)
        for (uint64_t i = 0; i < p.m; i++)
            for (uint64_t k = 0; k < p.k; k++)
                bias_grad[i] += a[(i / TILE_M * p.k + k) * TILE_M + i % TILE_M];
    if (e == CUBLASLT_EPILOGUE_BGRADB)
        for (uint64_t j = 0; j < p.n; j++)
            for (uint64_t k = 0; k < p.k; k++)
                bias_grad[j] += b[(j / TILE_N * p.k + k) * TILE_N + j % TILE_N];
    for (uint64_t j0 = 0; j0 < p.n; j0 += TILE_N)
        for (uint64_t i0 = 0; i0 < p.m; i0 += TILE_M) {
            float acc[TILE_N][TILE_M] = {{0}};
            const float *pa = a.data() + i0 * p.k, *pb = b.data() + j0 * p.k;
            uint64_t middle = o.id == 1 ? p.k / 2 : o.id == 2 ? p.k / 3 : p.k; /* of k */
            if (by_place && j0 / TILE_N % 2 == 1)
                middle = p.k / 4;
            tile(pa, pb, 0, middle, acc);
            if (middle < p.k)
                tile(pa, pb, middle, p.k, acc);
            for (uint64_t j = j0; j < j0 + TILE_N && j < p.n; j++)
                for (uint64_t i = i0; i < i0 + TILE_M && i < p.m; i++) {
                    float v = o.alpha * acc[j - j0][i - i0];
                    if (o.beta != 0.0f)
                        v += o.beta * load(o.c, (int64_t)(i + j * (uint64_t)p.c.ld), p.c.type);
                    if (takes_bias(e))
                        v += load(p.d.bias, (int64_t)i, p.bias_type);
                    const int64_t at_aux = (int64_t)i + (int64_t)j * p.d.aux_ld;
                    if (is_dgelu(e)) {
                        v *= (float)gelu_slope(load(p.d.aux, at_aux, p.aux_type));
                    } else if (is_gelu(e)) {
                        if (takes_aux(e))
                            store(p.d.aux, at_aux, p.aux_type, v);
                        v = (float)gelu(v);
                    }
                    if (e == CUBLASLT_EPILOGUE_DGELU_BGRAD)
                        bias_grad[i] += v;
                    store(o.d, (int64_t)i + (int64_t)j * p.out.ld, p.out.type, v);
                }
        }
    if (gives_bias(e))
        for (size_t i = 0; i < bias_grad.size(); i++)
            store(p.d.bias, (int64_t)i, p.bias_type, (float)bias_grad[i]);
}

/* All elements of a matrix lie in device memory. */
bool inside(const void *at, const layout &l, const char *name)
{
    const uint64_t elems =
        (uint64_t)l.ld * (l.cols - 1) + l.rows + (uint64_t)(l.batch - 1) * (uint64_t)l.batch_stride;
    if (cudasim_in_device(at, elems * (uint64_t)bytes_of(l.type)))
        return true;
    cudasim_say("cublasLt: %s of %llu x %llu, ld %lld, at %p: %s", name, (unsigned long long)l.rows,
                (unsigned long long)l.cols, (long long)l.ld, at, cudasim_describe(at));
    return false;
}

bool overlap(const void *x, const layout &lx, const void *y, const layout &ly)
{
    const char *a = (const char *)x, *b = (const char *)y;
    const int64_t bytes_a = (lx.ld * (int64_t)(lx.cols - 1) + (int64_t)lx.rows) * bytes_of(lx.type);
    const int64_t bytes_b = (ly.ld * (int64_t)(ly.cols - 1) + (int64_t)ly.rows) * bytes_of(ly.type);
    return a < b + bytes_b && b < a + bytes_a;
}

void touch(const void *at, const layout &l, bool writes)
{
    for (int64_t i = 0; i < l.batch; i++)
        cudasim_touches_matrix((const char *)at + i * l.batch_stride * bytes_of(l.type), l.rows,
                               l.cols, l.ld, bytes_of(l.type), writes);
}
void touch_all(const problem &p, const operands &o)
{
    const uint32_t e = p.d.epilogue;
    layout aux = p.out;
    touch(o.a, p.a, false);
    touch(o.b, p.b, false);
    if (o.beta != 0.0f)
        touch(o.c, p.c, false);
    touch(o.d, p.out, true);
    if (takes_bias(e) || gives_bias(e))
        cudasim_touches(p.d.bias,
                        (e == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m) *
                            (uint64_t)bytes_of(p.bias_type),
                        gives_bias(e));
    aux.ld = p.d.aux_ld;
    if (takes_aux(e))
        touch(p.d.aux, aux, !is_dgelu(e));
}

uint32_t alignment(const void *at)
{
    return (uint32_t)(1u << __builtin_ctzll((uintptr_t)at | 256));
}

} // namespace

extern "C" int64_t cudasim_num_matmuls(void)
{
    return matmuls;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = (cublasLtHandle_t)calloc(1, 64);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}
size_t cublasLtGetCudartVersion(void)
{
    return CUDART_VERSION;
}
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an invalid numerical value was used as an argument";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality is not supported";
    default:
        return "unknown status";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *to, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    desc *d = new desc();
    d->compute = compute;
    d->scale = scale;
    d->trans[0] = d->trans[1] = CUBLAS_OP_N;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    d->bias_type = d->aux_type = -1;
    *to = (cublasLtMatmulDesc_t)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete (desc *)(void *)d;
    return CUBLAS_STATUS_SUCCESS;
}

#define FIELD(place)                                                                               \
    do {                                                                                           \
        if (bytes != sizeof(place))                                                                \
            REFUSE(CUBLAS_STATUS_INVALID_VALUE, "attribute %d takes %zu bytes, got %zu",           \
                   (int)attribute, sizeof(place), bytes);                                          \
        memcpy(&(place), value, sizeof(place));                                                    \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    } while (0)

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t to,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    desc *d = (desc *)(void *)to;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        FIELD(d->trans[0]);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        FIELD(d->trans[1]);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        FIELD(d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        FIELD(d->bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        FIELD(d->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        FIELD(d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        FIELD(d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        FIELD(d->aux_type);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        FIELD(d->pointer_mode);
    default:
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a product", (int)attribute);
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *to, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    layout *l = new layout{type, rows, cols, ld, 1, CUBLASLT_ORDER_COL, 0};
    *to = (cublasLtMatrixLayout_t)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete (layout *)(void *)l;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t to,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes)
{
    layout *l = (layout *)(void *)to;
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        FIELD(l->order);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        FIELD(l->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        FIELD(l->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        FIELD(l->batch_stride);
    default:
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a layout", (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *to)
{
    preference *p = new preference{
        0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256},
          0
    };
    *to = (cublasLtMatmulPreference_t)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete (preference *)(void *)p;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    preference *p = (preference *)(void *)to;
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        FIELD(p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        FIELD(p->reductions);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        FIELD(p->search);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        FIELD(p->align[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        FIELD(p->align[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        FIELD(p->align[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        FIELD(p->align[3]);
    default:
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a preference", (int)attribute);
    }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t pref, int most,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    problem p;
    const preference *want = (const preference *)(const void *)pref;
    *count = 0;
    if (!handle || !want || most < 1)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "heuristic: an argument is NULL");
    const cublasStatus_t bad = check(d, a, b, c, out, &p);
    if (bad != CUBLAS_STATUS_SUCCESS)
        return bad;
    if (p.d.epilogue != CUBLASLT_EPILOGUE_DEFAULT && set_to("ELAPSE_CUDASIM_EPILOGUES", "0"))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    bool aligned = true;
    for (uint32_t align : want->align)
        aligned = aligned && align >= 16;
    for (uint32_t id = 0; id < 3 && *count < most; id++) {
        chosen mine = {MAGIC, id, {0}, checksum(p), id == 1 ? 1u << 20 : 0};
        if (id == 0 && !aligned)
            continue;
        if (id == 1 && (!(want->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) ||
                        want->workspace < mine.workspace || p.k < 2))
            continue;
        memcpy(mine.align, want->align, sizeof mine.align);
        cublasLtMatmulHeuristicResult_t *r = &results[(*count)++];
        memset(r, 0, sizeof *r);
        memcpy(&r->algo, &mine, sizeof mine);
        r->workspaceSize = mine.workspace;
        r->state = CUBLAS_STATUS_SUCCESS;
        r->wavesCount = 1.0f;
    }
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t d,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    problem p;
    chosen mine;
    if (!handle || !algo || !result)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "check: an argument is NULL");
    const cublasStatus_t bad = check(d, a, b, c, out, &p);
    if (bad != CUBLAS_STATUS_SUCCESS)
        return bad;
    memcpy(&mine, algo, sizeof mine);
    if (mine.magic != MAGIC || mine.shape != checksum(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->workspaceSize = mine.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    problem p;
    chosen mine = {
        MAGIC, 0, {1, 1, 1, 1},
          0, 0
    };
    if (!handle || !alpha || !beta)
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "product: an argument is NULL");
    const cublasStatus_t bad = check(d, a_layout, b_layout, c_layout, d_layout, &p);
    if (bad != CUBLAS_STATUS_SUCCESS)
        return bad;
    if (cudasim_fails("matmul"))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (algo) {
        memcpy(&mine, algo, sizeof mine);
        if (mine.magic != MAGIC || mine.shape != checksum(p))
            REFUSE(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was proposed for another problem");
    }
    operands o = {a, b, c, out, *(const float *)alpha, *(const float *)beta, mine.id};
    const void *at[4] = {a, b, o.beta != 0.0f ? c : out, out};
    for (int i = 0; i < 4; i++)
        if (alignment(at[i]) < mine.align[i] && mine.align[i] <= 256)
            REFUSE(CUBLAS_STATUS_INVALID_VALUE,
                   "operand %c at %p is aligned to %u bytes, the algorithm needs %u", "ABCD"[i],
                   at[i], alignment(at[i]), mine.align[i]);
    if (!inside(a, p.a, "A") || !inside(b, p.b, "B") || !inside(out, p.out, "D") ||
        (o.beta != 0.0f && !inside(c, p.c, "C")))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    if (overlap(out, p.out, a, p.a) || overlap(out, p.out, b, p.b) ||
        (o.beta != 0.0f && c != out && overlap(out, p.out, c, p.c)))
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "D overlaps an operand");
    if (workspace_bytes < mine.workspace ||
        (mine.workspace > 0 &&
         (!cudasim_in_device(workspace, mine.workspace) || (uintptr_t)workspace % 256)))
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "workspace of %zu bytes at %p, needed %llu",
               workspace_bytes, workspace, (unsigned long long)mine.workspace);
    const uint32_t e = p.d.epilogue;
    const uint64_t bias_elems = e == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
    if ((takes_bias(e) || gives_bias(e)) &&
        (!p.d.bias || (uintptr_t)p.d.bias % 16 ||
         !cudasim_in_device(p.d.bias, bias_elems * (uint64_t)bytes_of(p.bias_type))))
        REFUSE(CUBLAS_STATUS_INVALID_VALUE, "bias at %p: %s", p.d.bias, cudasim_describe(p.d.bias));
    if (takes_aux(e)) {
        layout aux = p.out;
        aux.ld = p.d.aux_ld;
        if (!inside(p.d.aux, aux, "aux"))
            return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    matmuls++;
    cudasim_loads((const char *)handle + mine.id, checksum(p));
    const cudaError_t code = cudasim_enqueue(stream, "cublasLtMatmul", [p, o, mine, workspace] {
        touch_all(p, o);
        cudasim_touches(workspace, mine.workspace, true);
        problem one = p;
        operands at_batch = o;
        for (int i = 0; i < p.a.batch; i++) {
            const int64_t n = i;
            at_batch.a = (const char *)o.a + n * p.a.batch_stride * bytes_of(p.a.type);
            at_batch.b = (const char *)o.b + n * p.b.batch_stride * bytes_of(p.b.type);
            at_batch.c = (const char *)o.c + n * p.c.batch_stride * bytes_of(p.c.type);
            at_batch.d = (char *)o.d + n * p.out.batch_stride * bytes_of(p.out.type);
            multiply(one, at_batch);
        }
        return cudaSuccess;
    });
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
