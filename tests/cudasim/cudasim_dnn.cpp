/* cuDNN's graph API on the CPU, as far as attention needs it. Strict: each attribute's type and count,
 * what a descriptor must have before it is finalized, shapes and types of operations, that
 * every virtual tensor is made once and used, that the operations are those of the documented
 * attention patterns in their order, and that memory is where and as long as the tensors say. A
 * line on stderr says what is wrong. The result is computed operation by operation from the graph,
 * so that a graph that means something else gives something else. Rows beyond a product's extents
 * are left unwritten, as the library may leave them.
 *
 * ELAPSE_CUDNN_LIB names the shared object of the emulated backend, which this is linked into.
 * ELAPSE_CUDASIM_CUDNN=refuse (no engine), wrong (outputs 5 % too large), old (9.9), odd (up to
 * 9.15.0), slow (each execution takes 20 ms more); ELAPSE_CUDASIM_FAULT=cudnn@N: the Nth execution
 * fails. The engine proposed first is one whose bits differ from run to run, and says so. */
#if __has_include(<cudnn.h>)
#include "tests/cudasim/cudasim_internal.h"

#include <cudnn.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <array>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "exec/base/bf16.h"

namespace
{

typedef std::array<int64_t, 4> four;

struct tensor {
    int64_t uid;
    cudnnDataType_t type;
    four dims, strides;
    bool is_virtual, by_value;
    int64_t elems() const
    {
        return dims[0] * dims[1] * dims[2] * dims[3];
    }
    int64_t bytes() const
    {
        return type == CUDNN_DATA_BFLOAT16 ? 2 : type == CUDNN_DATA_BOOLEAN ? 1 : 4;
    }
    int64_t offset(const four &at) const
    {
        return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
    }
    int64_t span() const /* bytes from the first element to behind the last */
    {
        return (offset({dims[0] - 1, dims[1] - 1, dims[2] - 1, dims[3] - 1}) + 1) * bytes();
    }
};
struct operation {
    char what;                      /* M product, t transpose, m s reductions, else elementwise */
    int64_t axis;                   /* of an index */
    std::vector<tensor> in, extent; /* extent: m, n, k of a product; uid 0: all */
    tensor out;
};
/* A graph, by value: descriptors may go. */
struct program {
    std::vector<operation> ops;
    std::map<int64_t, tensor> memory; /* not virtual, by uid */
    bool backward;
};

struct value {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::string bytes;
};
struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool final;
    std::map<int, value> set;
    std::shared_ptr<program> graph; /* of a graph, and what is made from it */
    int engine;                     /* of an engine, its configuration and plan; 0: differs */
};
struct context {
    cudaStream_t stream;
};

std::set<descriptor *> alive;
std::set<context *> contexts;
std::string last_error;
int64_t runs;

cudnnStatus_t refuse(cudnnStatus_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
cudnnStatus_t refuse(cudnnStatus_t code, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    last_error = text;
    cudasim_say("cudnn: %s", text);
    return code;
}

bool mode_is(const char *mode)
{
    const char *got = getenv("ELAPSE_CUDASIM_CUDNN");
    return got && strcmp(got, mode) == 0;
}

/* --- what descriptors have -------------------------------------------------------------------- */

struct rule {
    int descriptor, name, type;
    int64_t count; /* 0: any */
    bool required;
    int part; /* type of the descriptor it names, -1: none */
};
#define RULE(of, name, type, count, required)                                                      \
    {                                                                                              \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, count, required, -1 \
    }
#define PART(of, name, count, required, part)                                                      \
    {                                                                                              \
        CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,  \
            required, CUDNN_BACKEND_##part##_DESCRIPTOR                                            \
    }
const rule rules[] = {
    RULE(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
    RULE(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
    RULE(TENSOR, TENSOR_DIMENSIONS, INT64, 4, true),
    RULE(TENSOR, TENSOR_STRIDES, INT64, 4, true),
    RULE(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
    RULE(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    RULE(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    RULE(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, true),
    RULE(MATMUL, MATMUL_PADDING_VALUE, DOUBLE, 1, false),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, 1, true, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, 1, true, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, 1, true, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_DESC, 1, true, MATMUL),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, 1, false, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, 1, false, TENSOR),
    PART(OPERATION_MATMUL, OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, 1, false, TENSOR),
    RULE(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, true),
    RULE(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, true),
    RULE(POINTWISE, POINTWISE_AXIS, INT64, 1, false),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, 1, true, POINTWISE),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, 1, true, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, 1, false, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, 1, false, TENSOR),
    PART(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, 1, true, TENSOR),
    RULE(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, true),
    RULE(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, true),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, 1, true, TENSOR),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, 1, true, TENSOR),
    PART(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, 1, true, REDUCTION),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, 1, true, TENSOR),
    PART(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, 1, true, TENSOR),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 0, true),
    RULE(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, true),
    PART(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, 1, true, OPERATIONGRAPH),
    RULE(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
    PART(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, 1, true, ENGINECFG),
    RULE(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, true),
    RULE(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 0, true),
    RULE(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 0, true),
    RULE(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, true),
};

size_t bytes_of(int type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default: /* enumerations */
        return 4;
    }
}

descriptor *of(cudnnBackendDescriptor_t handle)
{
    descriptor *d = (descriptor *)handle;
    return alive.count(d) ? d : NULL;
}
bool has(const descriptor *d, int name)
{
    return d->set.count(name) > 0;
}
template <typename T> T get(const descriptor *d, int name, int64_t i = 0)
{
    T got = {};
    const auto at = d->set.find(name);
    if (at != d->set.end())
        memcpy(&got, at->second.bytes.data() + (size_t)i * sizeof got, sizeof got);
    return got;
}
/* NULL where not set; finalized and of its type, or it would not have been taken. */
descriptor *part(const descriptor *d, int name, int64_t i = 0)
{
    return (descriptor *)get<void *>(d, name, i);
}

tensor tensor_of(const descriptor *d)
{
    tensor t = {};
    if (!d)
        return t;
    t.uid = get<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = get<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    for (int i = 0; i < 4; i++) {
        t.dims[(size_t)i] = get<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        t.strides[(size_t)i] = get<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    t.is_virtual = get<bool>(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t.by_value = get<bool>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    return t;
}

#define BAD(...) return refuse(CUDNN_STATUS_BAD_PARAM, __VA_ARGS__)
#define UNSUPPORTED(...) return refuse(CUDNN_STATUS_NOT_SUPPORTED, __VA_ARGS__)

cudnnStatus_t check_tensor(const descriptor *d)
{
    const tensor t = tensor_of(d);
    for (size_t i = 0; i < 4; i++)
        if (t.dims[i] < 1 || t.strides[i] < 1)
            BAD("tensor %lld: dimension %zu is %lld, stride %lld", (long long)t.uid, i,
                (long long)t.dims[i], (long long)t.strides[i]);
    if (t.is_virtual && t.by_value)
        BAD("tensor %lld is virtual and by value", (long long)t.uid);
    if (t.type != CUDNN_DATA_FLOAT && t.type != CUDNN_DATA_BFLOAT16 && t.type != CUDNN_DATA_INT32 &&
        !(t.type == CUDNN_DATA_BOOLEAN && t.is_virtual))
        UNSUPPORTED("tensor %lld of type %d", (long long)t.uid, (int)t.type);
    if (get<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) != 16)
        UNSUPPORTED("tensor %lld: alignment is not 16", (long long)t.uid);
    return CUDNN_STATUS_SUCCESS;
}

/* --- operations: from descriptors, checked ---------------------------------------------------- */

struct form {
    cudnnPointwiseMode_t mode;
    char what;
    int inputs;
    cudnnDataType_t math, in, out; /* in: of the first */
};
const form forms[] = {
    {CUDNN_POINTWISE_MUL,           '*', 2, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
    {CUDNN_POINTWISE_SUB,           '-', 2, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
    {CUDNN_POINTWISE_ADD,           '+', 2, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
    {CUDNN_POINTWISE_DIV,           '/', 2, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
    {CUDNN_POINTWISE_EXP,           'e', 1, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
    {CUDNN_POINTWISE_LOG,           'l', 1, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
    {CUDNN_POINTWISE_GEN_INDEX,     'i', 1, CUDNN_DATA_INT32,   CUDNN_DATA_FLOAT,   CUDNN_DATA_INT32  },
    {CUDNN_POINTWISE_CMP_LT,        '<', 2, CUDNN_DATA_BOOLEAN, CUDNN_DATA_INT32,   CUDNN_DATA_BOOLEAN},
    {CUDNN_POINTWISE_CMP_GE,        'g', 2, CUDNN_DATA_BOOLEAN, CUDNN_DATA_INT32,   CUDNN_DATA_BOOLEAN},
    {CUDNN_POINTWISE_LOGICAL_AND,   '&', 2, CUDNN_DATA_BOOLEAN, CUDNN_DATA_BOOLEAN,
     CUDNN_DATA_BOOLEAN                                                                               },
    {CUDNN_POINTWISE_BINARY_SELECT, '?', 3, CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT,   CUDNN_DATA_FLOAT  },
};
/* fp32 arithmetic takes and gives bf16 too. */
bool fits(cudnnDataType_t got, cudnnDataType_t want)
{
    return got == want || (want == CUDNN_DATA_FLOAT && got == CUDNN_DATA_BFLOAT16);
}

cudnnStatus_t pointwise_of(const descriptor *d, operation *op)
{
    const descriptor *how = part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const form *f = NULL;
    for (const form &each : forms)
        if (each.mode == get<cudnnPointwiseMode_t>(how, CUDNN_ATTR_POINTWISE_MODE))
            f = &each;
    if (!f)
        UNSUPPORTED("elementwise mode %d", get<int>(how, CUDNN_ATTR_POINTWISE_MODE));
    op->what = f->what;
    op->axis =
        has(how, CUDNN_ATTR_POINTWISE_AXIS) ? get<int64_t>(how, CUDNN_ATTR_POINTWISE_AXIS) : -1;
    if ((f->what == 'i') != (op->axis == 2 || op->axis == 3))
        BAD("axis %lld of '%c'", (long long)op->axis, f->what);
    if (get<cudnnDataType_t>(how, CUDNN_ATTR_POINTWISE_MATH_PREC) != f->math)
        UNSUPPORTED("'%c' computed in type %d", f->what,
                    get<int>(how, CUDNN_ATTR_POINTWISE_MATH_PREC));
    const int names[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                         CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                         CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (int i = 0; i < 3; i++) {
        if (has(d, names[i]) != (i < f->inputs))
            BAD("'%c' takes %d tensors", f->what, f->inputs);
        if (i < f->inputs)
            op->in.push_back(tensor_of(part(d, names[i])));
    }
    op->out = tensor_of(part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    for (size_t i = 0; i < op->in.size(); i++) {
        const cudnnDataType_t want = i == 2 ? CUDNN_DATA_BOOLEAN : f->in;
        if (!fits(op->in[i].type, want) || !fits(op->out.type, f->out))
            UNSUPPORTED("'%c': tensor %zu of type %d, output of type %d", f->what, i,
                        (int)op->in[i].type, (int)op->out.type);
        for (size_t k = 0; k < 4; k++)
            if (op->in[i].dims[k] != op->out.dims[k] && (op->in[i].dims[k] != 1 || i == 0))
                BAD("'%c': dimension %zu of tensor %zu is %lld, of the output %lld", f->what, k, i,
                    (long long)op->in[i].dims[k], (long long)op->out.dims[k]);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t product_of(const descriptor *d, operation *op)
{
    const int extents[] = {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
                           CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
                           CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC};
    const tensor a = tensor_of(part(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const tensor b = tensor_of(part(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    const tensor c = tensor_of(part(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    if (get<cudnnDataType_t>(part(d, CUDNN_ATTR_OPERATION_MATMUL_DESC),
                             CUDNN_ATTR_MATMUL_COMP_TYPE) != CUDNN_DATA_FLOAT)
        UNSUPPORTED("a product that is not computed in fp32");
    for (size_t i = 0; i < 2; i++)
        if (a.dims[i] != b.dims[i] || a.dims[i] != c.dims[i])
            BAD("a product: batches differ");
    if (a.dims[3] != b.dims[2] || a.dims[2] != c.dims[2] || b.dims[3] != c.dims[3])
        BAD("a product: %lld x %lld times %lld x %lld to %lld x %lld", (long long)a.dims[2],
            (long long)a.dims[3], (long long)b.dims[2], (long long)b.dims[3], (long long)c.dims[2],
            (long long)c.dims[3]);
    op->what = 'M';
    op->in = {a, b};
    op->out = c;
    for (int i = 0; i < 3; i++) {
        op->extent.push_back(tensor_of(part(d, extents[i])));
        const tensor &e = op->extent.back();
        if (e.uid && (e.type != CUDNN_DATA_INT32 || e.is_virtual || e.by_value ||
                      e.dims != four{a.dims[0], 1, 1, 1}))
            BAD("a product: extent %d is no int32 [n, 1, 1, 1] in memory", i);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t reduction_of(const descriptor *d, operation *op)
{
    const descriptor *how = part(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const cudnnReduceTensorOp_t kind =
        get<cudnnReduceTensorOp_t>(how, CUDNN_ATTR_REDUCTION_OPERATOR);
    if (kind != CUDNN_REDUCE_TENSOR_MAX && kind != CUDNN_REDUCE_TENSOR_ADD)
        UNSUPPORTED("reduction %d", (int)kind);
    if (get<cudnnDataType_t>(how, CUDNN_ATTR_REDUCTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
        UNSUPPORTED("a reduction that is not computed in fp32");
    op->what = kind == CUDNN_REDUCE_TENSOR_MAX ? 'm' : 's';
    op->in = {tensor_of(part(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC))};
    op->out = tensor_of(part(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    four want = op->in[0].dims;
    want[3] = 1;
    if (op->out.dims != want)
        BAD("a reduction over something else than the columns");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t transpose_of(const descriptor *d, operation *op)
{
    op->what = 't';
    op->in = {tensor_of(part(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC))};
    op->out = tensor_of(part(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    if (op->in[0].elems() != op->out.elems() ||
        op->in[0].span() / op->in[0].bytes() != op->out.span() / op->out.bytes())
        BAD("a reshape of %lld elements to %lld", (long long)op->in[0].elems(),
            (long long)op->out.elems());
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t operation_of(const descriptor *d, operation *op)
{
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise_of(d, op);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return product_of(d, op);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduction_of(d, op);
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return transpose_of(d, op);
    default:
        BAD("a descriptor of type %d is no operation", (int)d->type);
    }
}

/* --- graphs ----------------------------------------------------------------------------------- */

bool same(const tensor &a, const tensor &b)
{
    return a.type == b.type && a.dims == b.dims && a.strides == b.strides &&
           a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}

cudnnStatus_t build(descriptor *d)
{
    auto p = std::make_shared<program>();
    std::map<int64_t, tensor> known;
    std::set<int64_t> made, used;
    std::string order;
    const int64_t count = d->set[CUDNN_ATTR_OPERATIONGRAPH_OPS].count;
    for (int64_t i = 0; i < count; i++) {
        descriptor *from = of(part(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
        operation op = {};
        if (!from || !from->final)
            BAD("operation %lld of the graph is not finalized", (long long)i);
        const cudnnStatus_t code = operation_of(from, &op);
        if (code != CUDNN_STATUS_SUCCESS)
            return code;
        std::vector<tensor> all = op.in;
        all.insert(all.end(), op.extent.begin(), op.extent.end());
        for (const tensor &t : all) {
            if (t.is_virtual && !made.count(t.uid))
                BAD("'%c' uses virtual tensor %lld before it is made", op.what, (long long)t.uid);
            used.insert(t.uid);
        }
        if (op.out.by_value || !made.insert(op.out.uid).second)
            BAD("'%c' makes tensor %lld, by value or made before", op.what, (long long)op.out.uid);
        all.push_back(op.out);
        for (const tensor &t : all) {
            if (t.uid == 0) /* no extent */
                continue;
            if (known.count(t.uid) && !same(known[t.uid], t))
                BAD("two tensors are called %lld", (long long)t.uid);
            known[t.uid] = t;
            if (!t.is_virtual)
                p->memory[t.uid] = t;
        }
        order += op.what;
        p->ops.push_back(op);
    }
    for (const auto &t : known)
        if (t.second.is_virtual && !used.count(t.first))
            BAD("nothing uses virtual tensor %lld", (long long)t.first);
    const std::regex forward("M\\*(ii<<&\\?)?(iig\\?)?m-esl\\+/M");
    const std::regex backward("\\*s\\*M\\*(ii<<&\\?)?-(iig\\?)?etMM-\\*\\*tMtM");
    p->backward = std::regex_match(order, backward);
    if (!p->backward && !std::regex_match(order, forward))
        UNSUPPORTED("no pattern of attention: %s", order.c_str());
    const bool padded = order.find('&') != std::string::npos;
    for (const operation &op : p->ops) {
        const size_t extents = !op.extent.empty() * ((op.extent.size() && op.extent[0].uid) +
                                                     (op.extent.size() && op.extent[1].uid) +
                                                     (op.extent.size() && op.extent[2].uid));
        if (op.what == 'M' && extents != (padded ? 2u : 0u))
            UNSUPPORTED("a product with %zu extents in a graph %s padding", extents,
                        padded ? "with" : "without");
    }
    d->graph = p;
    return CUDNN_STATUS_SUCCESS;
}

/* --- arithmetic ------------------------------------------------------------------------------- */

typedef std::vector<float> values; /* of all elements, the last dimension fastest */

template <typename F> void each(const four &dims, F what)
{
    int64_t i = 0;
    for (int64_t a = 0; a < dims[0]; a++)
        for (int64_t b = 0; b < dims[1]; b++)
            for (int64_t r = 0; r < dims[2]; r++)
                for (int64_t c = 0; c < dims[3]; c++)
                    what(four{a, b, r, c}, i++);
}
int64_t index_in(const tensor &t, const four &at) /* broadcast */
{
    int64_t i = 0;
    for (size_t k = 0; k < 4; k++)
        i = i * t.dims[k] + (t.dims[k] == 1 ? 0 : at[k]);
    return i;
}
float rounded(const tensor &t, float x)
{
    return t.type == CUDNN_DATA_BFLOAT16 ? bf16_to(bf16_from(x)) : x;
}

struct machine {
    const program *p;
    std::map<int64_t, void *> at;
    std::map<int64_t, float> numbers;
    std::map<int64_t, values> made;

    values load(const tensor &t)
    {
        if (t.is_virtual)
            return made[t.uid];
        values x((size_t)t.elems());
        if (t.by_value) {
            x[0] = numbers[t.uid];
            return x;
        }
        const char *from = (const char *)at[t.uid];
        each(t.dims, [&](const four &where, int64_t i) {
            const int64_t off = t.offset(where);
            x[(size_t)i] = t.type == CUDNN_DATA_BFLOAT16 ? bf16_to(((const uint16_t *)from)[off])
                           : t.type == CUDNN_DATA_INT32  ? (float)((const int32_t *)from)[off]
                                                         : ((const float *)from)[off];
        });
        return x;
    }
    /* Rows from `rows` of a sample on, and columns from `cols` on, are left in memory as they are.
     */
    void store(const tensor &t, const values &y, const std::vector<int64_t> &rows = {},
               const std::vector<int64_t> &cols = {}, float factor = 1.0f)
    {
        if (t.is_virtual) {
            values &to = made[t.uid] = y;
            for (float &x : to)
                x = rounded(t, x);
            return;
        }
        char *to = (char *)at[t.uid];
        each(t.dims, [&](const four &where, int64_t i) {
            if ((!rows.empty() && where[2] >= rows[(size_t)where[0]]) ||
                (!cols.empty() && where[3] >= cols[(size_t)where[0]]))
                return;
            const int64_t off = t.offset(where);
            if (t.type == CUDNN_DATA_BFLOAT16)
                ((uint16_t *)to)[off] = bf16_from(y[(size_t)i] * factor);
            else
                ((float *)to)[off] = y[(size_t)i];
        });
    }
    std::vector<int64_t> extent(const operation &op, size_t which, int64_t most)
    {
        std::vector<int64_t> counts((size_t)op.out.dims[0], most);
        const tensor &e = op.extent[which];
        for (size_t i = 0; e.uid && i < counts.size(); i++)
            counts[i] = ((const int32_t *)at[e.uid])[i];
        return counts;
    }
    void product(const operation &op, float factor)
    {
        const tensor &ta = op.in[0], &tb = op.in[1];
        const values a = load(ta), b = load(tb);
        values c((size_t)op.out.elems(), 0.0f);
        const auto m = extent(op, 0, ta.dims[2]), n = extent(op, 1, tb.dims[3]),
                   k = extent(op, 2, ta.dims[3]);
        each(op.out.dims, [&](const four &w, int64_t i) {
            const size_t s = (size_t)w[0];
            if (w[2] >= m[s] || w[3] >= n[s])
                return;
            double sum = 0.0;
            for (int64_t x = 0; x < k[s]; x++)
                sum += (double)a[(size_t)index_in(ta, {w[0], w[1], w[2], x})] *
                       b[(size_t)index_in(tb, {w[0], w[1], x, w[3]})];
            c[(size_t)i] = (float)sum;
        });
        store(op.out, c, m, n, factor);
    }
    void reduction(const operation &op)
    {
        const values x = load(op.in[0]);
        const int64_t cols = op.in[0].dims[3];
        values y((size_t)op.out.elems());
        for (size_t r = 0; r < y.size(); r++) {
            double got = op.what == 'm' ? -INFINITY : 0.0;
            for (int64_t c = 0; c < cols; c++) {
                const double each_x = x[r * (size_t)cols + (size_t)c];
                got = op.what == 'm' ? fmax(got, each_x) : got + each_x;
            }
            y[r] = (float)got;
        }
        store(op.out, y);
    }
    /* The place of an element identifies it. */
    void transpose(const operation &op)
    {
        const values x = load(op.in[0]);
        std::map<int64_t, float> where;
        each(op.in[0].dims,
             [&](const four &w, int64_t i) { where[op.in[0].offset(w)] = x[(size_t)i]; });
        values y((size_t)op.out.elems());
        each(op.out.dims,
             [&](const four &w, int64_t i) { y[(size_t)i] = where.at(op.out.offset(w)); });
        store(op.out, y);
    }
    void elementwise(const operation &op)
    {
        std::vector<values> in;
        for (const tensor &t : op.in)
            in.push_back(op.what == 'i' ? values() : load(t));
        values y((size_t)op.out.elems());
        each(op.out.dims, [&](const four &w, int64_t i) {
            float x[3] = {0.0f, 0.0f, 0.0f};
            for (size_t k = 0; k < in.size() && op.what != 'i'; k++)
                x[k] = in[k][(size_t)index_in(op.in[k], w)];
            float &to = y[(size_t)i];
            switch (op.what) {
            case '*':
                to = x[0] * x[1];
                break;
            case '-':
                to = x[0] - x[1];
                break;
            case '+':
                to = x[0] + x[1];
                break;
            case '/':
                to = x[0] / x[1];
                break;
            case 'e':
                to = expf(x[0]);
                break;
            case 'l':
                to = logf(x[0]);
                break;
            case 'i':
                to = (float)w[(size_t)op.axis];
                break;
            case '<':
                to = x[0] < x[1];
                break;
            case 'g':
                to = x[0] >= x[1];
                break;
            case '&':
                to = x[0] != 0.0f && x[1] != 0.0f;
                break;
            default:
                to = x[2] != 0.0f ? x[0] : x[1];
                break;
            }
        });
        store(op.out, y);
    }
    void run(float factor)
    {
        for (const operation &op : p->ops)
            switch (op.what) {
            case 'M':
                product(op, factor);
                break;
            case 'm':
            case 's':
                reduction(op);
                break;
            case 't':
                transpose(op);
                break;
            default:
                elementwise(op);
                break;
            }
    }
};

int64_t workspace_of(const program &p)
{
    const four &lse = p.memory.at(5).dims; /* scores in bf16, rows and columns to multiples of 64 */
    const int64_t side = (lse[2] + 63) / 64 * 64;
    return p.backward ? lse[0] * lse[1] * side * side * 2 + 256 : 256;
}

cudnnStatus_t execute(const context *handle, const descriptor *plan, const descriptor *pack)
{
    const std::shared_ptr<program> p = plan->graph;
    const int64_t count = pack->set.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count;
    auto m = std::make_shared<machine>();
    m->p = p.get();
    if (pack->set.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count != count)
        BAD("a pack of %lld names and another number of tensors", (long long)count);
    std::map<int64_t, char *> bound;
    for (int64_t i = 0; i < count; i++)
        bound[get<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] =
            get<char *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    if ((int64_t)bound.size() != count || bound.size() != p->memory.size())
        BAD("a pack of %zu tensors, the graph has %zu", bound.size(), p->memory.size());
    std::set<int64_t> written;
    for (const operation &op : p->ops)
        written.insert(op.out.uid);
    for (const auto &t : p->memory) {
        const int64_t uid = t.first;
        char *at = bound.count(uid) ? bound[uid] : NULL;
        if (!at || (uintptr_t)at % (t.second.by_value ? 4 : 16))
            BAD("tensor %lld at %p: missing or misaligned", (long long)uid, (void *)at);
        if (t.second.by_value) {
            if (cudasim_is_device(at))
                BAD("tensor %lld by value lies on the device", (long long)uid);
            memcpy(&m->numbers[uid], at, sizeof(float));
            continue;
        }
        if (!cudasim_in_device(at, (size_t)t.second.span()))
            BAD("tensor %lld of %lld bytes at %p: %s", (long long)uid, (long long)t.second.span(),
                (void *)at, cudasim_describe(at));
        m->at[uid] = at;
    }
    for (const auto &out : m->at)
        for (const auto &other : m->at) {
            const tensor &x = p->memory[out.first], &y = p->memory[other.first];
            const char *a = (const char *)out.second, *b = (const char *)other.second;
            if (written.count(out.first) && !written.count(other.first) && a < b + y.span() &&
                b < a + x.span())
                BAD("output %lld overlaps input %lld", (long long)out.first,
                    (long long)other.first);
        }
    char *workspace = get<char *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!cudasim_in_device(workspace, (size_t)workspace_of(*p)) || (uintptr_t)workspace % 16)
        BAD("workspace at %p: %s", (void *)workspace, cudasim_describe(workspace));
    if (cudasim_fails("cudnn"))
        return refuse(CUDNN_STATUS_EXECUTION_FAILED, "execution failed, as asked for");
    runs++;
    cudasim_loads(plan);
    float factor = mode_is("wrong") ? 1.05f : 1.0f;
    if (plan->engine == 0)
        factor += 0.01f * (float)(runs % 3);
    const bool slow = mode_is("slow");
    const int64_t bytes = workspace_of(*p);
    const cudaError_t code =
        cudasim_enqueue(handle->stream, "cudnnBackendExecute",
                        [p, m, factor, workspace, bytes, slow, written] {
                            if (slow)
                                usleep(20000);
                            cudasim_touches(workspace, (size_t)bytes, true);
                            for (const auto &t : m->at)
                                cudasim_touches(t.second, (size_t)p->memory.at(t.first).span(),
                                                written.count(t.first) > 0);
                            memset(workspace, 0xff, (size_t)bytes);
                            m->run(factor);
                            return cudaSuccess;
                        });
    return code == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

} // namespace

/* --- the library's functions ------------------------------------------------------------------ */

size_t cudnnGetVersion(void)
{
    return mode_is("old") ? 90900 : mode_is("odd") ? 91500 : CUDNN_VERSION;
}
const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    default:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    }
}
void cudnnGetLastErrorString(char *message, size_t size)
{
    snprintf(message, size, "%s\nand what called it", last_error.c_str());
    last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        return refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
    context *c = new context();
    contexts.insert(c);
    *handle = (cudnnHandle_t)(void *)c;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    context *c = (context *)(void *)handle;
    if (!contexts.erase(c))
        BAD("destroy: no handle");
    delete c;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    context *c = (context *)(void *)handle;
    if (!contexts.count(c))
        BAD("set stream: no handle");
    c->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    bool known =
        type == CUDNN_BACKEND_ENGINE_DESCRIPTOR || type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
    for (const rule &r : rules)
        known = known || r.descriptor == (int)type;
    if (!known || !out)
        UNSUPPORTED("descriptors of type %d", (int)type);
    descriptor *d = new descriptor();
    d->type = type;
    alive.insert(d);
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle)
{
    descriptor *d = of(handle);
    if (!d)
        BAD("destroy: no descriptor, or destroyed before");
    alive.erase(d);
    delete d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values_in)
{
    descriptor *d = of(handle);
    const rule *found = NULL;
    if (!d || d->final)
        BAD("attribute %d of %s", (int)name, d ? "a finalized descriptor" : "no descriptor");
    for (const rule &r : rules)
        if (r.descriptor == (int)d->type && r.name == (int)name)
            found = &r;
    if (!found)
        UNSUPPORTED("attribute %d of a descriptor of type %d", (int)name, (int)d->type);
    if (found->type != (int)type || (found->count ? found->count != count : count < 1) ||
        !values_in)
        BAD("attribute %d takes %lld of type %d, got %lld of type %d", (int)name,
            (long long)found->count, found->type, (long long)count, (int)type);
    if (found->part >= 0) {
        const descriptor *named = of(*(void *const *)values_in);
        if (!named || !named->final || (int)named->type != found->part)
            BAD("attribute %d names no finalized descriptor of type %d", (int)name, found->part);
    }
    if (type == CUDNN_TYPE_HANDLE && !contexts.count(*(context *const *)values_in))
        BAD("attribute %d names no handle", (int)name);
    d->set[name] = {type, count,
                    std::string((const char *)values_in, (size_t)count * bytes_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle)
{
    descriptor *d = of(handle);
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (!d || d->final)
        BAD("finalize of %s", d ? "a finalized descriptor" : "no descriptor");
    for (const rule &r : rules)
        if (r.descriptor == (int)d->type && r.required && !has(d, r.name))
            BAD("a descriptor of type %d lacks attribute %d", (int)d->type, r.name);
    operation ignored = {};
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        code = check_tensor(d);
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        code = operation_of(d, &ignored);
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        code = build(d);
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        d->graph = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->graph;
        if (get<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE) != CUDNN_HEUR_MODE_A)
            UNSUPPORTED("a heuristic of another mode than A");
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        d->graph = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
        d->engine = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
        if (d->engine == 1) { /* the second proposal ends here, as one whose kernels do not build */
            last_error = "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: no such kernels";
            code = CUDNN_STATUS_NOT_SUPPORTED;
        }
        break;
    default:
        break;
    }
    d->final = code == CUDNN_STATUS_SUCCESS;
    return code;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const handle,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t *count, void *out)
{
    descriptor *d = of(handle);
    const cudnnBackendAttributeType_t want =
        name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE ? CUDNN_TYPE_INT64
        : name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE       ? CUDNN_TYPE_NUMERICAL_NOTE
                                                         : CUDNN_TYPE_BACKEND_DESCRIPTOR;
    if (!d || !d->final || type != want || most < 1 || !count || !out)
        BAD("asking for attribute %d", (int)name);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
        for (*count = 0; *count < most && *count < (mode_is("refuse") ? 0 : 3); ++*count) {
            descriptor *to = of(((void **)out)[*count]);
            if (!to || to->final || to->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
                BAD("no place for proposal %lld", (long long)*count);
            to->graph = d->graph;
            to->engine = (int)*count;
            to->final = true;
        }
        return CUDNN_STATUS_SUCCESS;
    }
    *count = 1;
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE && d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
        descriptor *to = of(*(void **)out);
        if (!to || to->final || to->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR)
            BAD("no place for an engine");
        to->engine = d->engine;
        to->final = true;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
               d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
        *(cudnnBackendNumericalNote_t *)out = d->engine == 0 ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                             : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
               d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        *(int64_t *)out = workspace_of(*d->graph);
    } else {
        BAD("attribute %d of a descriptor of type %d", (int)name, (int)d->type);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    context *c = (context *)(void *)handle;
    descriptor *p = of(plan), *v = of(pack);
    if (!contexts.count(c) || !p || !p->final ||
        p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !v || !v->final ||
        v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        BAD("execute: a handle, a plan or a pack is missing");
    return execute(c, p, v);
}
#endif
