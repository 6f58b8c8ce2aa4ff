/* The arithmetic of PTX instructions, all lanes of a warp at once. Operands are places in the warp's
 * registers: operand[0] is what is written. */
#include <cuda_runtime_api.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include <map>
#include <type_traits>

#include "tests/cudasim/cudasim_internal.h"
#include "tests/cudasim/cudasim_ptx.h"

namespace
{

const uint32_t ALL = 0xffffffffu;

/* Registers of up to 32 bits lie in 4 bytes a lane, others in 8. */
template <typename T>
using slot = typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type;

template <typename To, typename From> inline To bits(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "bits of one size");
    memcpy(&to, &from, sizeof to);
    return to;
}
template <typename T> inline T get(slot<T> s)
{
    if constexpr (std::is_floating_point<T>::value)
        return bits<T>(s);
    else
        return (T)s;
}
template <typename T> inline slot<T> put(T v)
{
    if constexpr (std::is_floating_point<T>::value)
        return bits<slot<T>>(v);
    else
        return (slot<T>)(typename std::make_unsigned<T>::type)v;
}

#define EACH_LANE(lanes, do_it)                                                                    \
    do {                                                                                           \
        if ((lanes) == ALL) {                                                                      \
            for (int l = 0; l < PTX_LANES; l++)                                                    \
                do_it;                                                                             \
        } else {                                                                                   \
            for (int l = 0; l < PTX_LANES; l++)                                                    \
                if ((lanes) >> l & 1)                                                              \
                    do_it;                                                                         \
        }                                                                                          \
    } while (0)

/* D of type R from one, two, three operands of their types. F is a type with `static R of(...)`. */
template <typename F, typename R, typename A>
void unary(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    slot<R> *d = ptx_lanes<slot<R>>(w, op->operand[0]);
    const slot<A> *a = ptx_lanes<slot<A>>(w, op->operand[1]);
    EACH_LANE(lanes, d[l] = put<R>(F::of(get<A>(a[l]))));
}
template <typename F, typename R, typename A, typename B>
void binary(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    slot<R> *d = ptx_lanes<slot<R>>(w, op->operand[0]);
    const slot<A> *a = ptx_lanes<slot<A>>(w, op->operand[1]);
    const slot<B> *b = ptx_lanes<slot<B>>(w, op->operand[2]);
    EACH_LANE(lanes, d[l] = put<R>(F::of(get<A>(a[l]), get<B>(b[l]))));
}
template <typename F, typename R, typename A, typename C>
void ternary(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    slot<R> *d = ptx_lanes<slot<R>>(w, op->operand[0]);
    const slot<A> *a = ptx_lanes<slot<A>>(w, op->operand[1]),
                  *b = ptx_lanes<slot<A>>(w, op->operand[2]);
    const slot<C> *c = ptx_lanes<slot<C>>(w, op->operand[3]);
    EACH_LANE(lanes, d[l] = put<R>(F::of(get<A>(a[l]), get<A>(b[l]), get<C>(c[l]))));
}
template <typename F, typename A>
void compare(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    uint32_t *d = ptx_lanes<uint32_t>(w, op->operand[0]), result = 0;
    const slot<A> *a = ptx_lanes<slot<A>>(w, op->operand[1]),
                  *b = ptx_lanes<slot<A>>(w, op->operand[2]);
    for (int l = 0; l < PTX_LANES; l++)
        result |= (uint32_t)(F::of(get<A>(a[l]), get<A>(b[l])) ? 1 : 0) << l;
    *d = (*d & ~lanes) | (result & lanes);
}

#define FUNCTION(name, operands, ...)                                                              \
    template <typename T> struct name {                                                            \
        static inline auto of operands                                                             \
        {                                                                                          \
            return __VA_ARGS__;                                                                    \
        }                                                                                          \
    }
FUNCTION(add, (T a, T b), (T)(a + b));
FUNCTION(subtract, (T a, T b), (T)(a - b));
FUNCTION(multiply, (T a, T b), (T)(a * b));
FUNCTION(least, (T a, T b), b < a ? b : a);
FUNCTION(most, (T a, T b), a < b ? b : a);
FUNCTION(fleast, (T a, T b), (T)fmin(a, b)); /* the other of a NaN */
FUNCTION(fmost, (T a, T b), (T)fmax(a, b));
/* PTX does not define the result of a division by zero, nor the values of lanes that take no part. */
FUNCTION(divide, (T a, T b),
         b == 0                       ? (T)-1
         : !((T)-1 > 0) && b == (T)-1 ? (T)(0 - (uint64_t)a)
                                      : (T)(a / b));
FUNCTION(remain, (T a, T b), b == 0 ? a : !((T)-1 > 0) && b == (T)-1 ? (T)0 : (T)(a % b));
FUNCTION(quotient, (T a, T b), a / b);
FUNCTION(negate, (T a), (T)(0 - a));
FUNCTION(fnegate, (T a), -a);
FUNCTION(absolute, (T a), a < 0 ? (T)(0 - (uint64_t)a) : a);
FUNCTION(fabsolute, (T a), (T)fabs(a));
FUNCTION(conjoin, (T a, T b), (T)(a & b));
FUNCTION(disjoin, (T a, T b), (T)(a | b));
FUNCTION(differ, (T a, T b), (T)(a ^ b));
FUNCTION(invert, (T a), (T)~a);
FUNCTION(left, (T a, uint32_t b), b >= 8 * sizeof(T) ? (T)0 : (T)(a << b));
FUNCTION(right, (T a, uint32_t b), b >= 8 * sizeof(T) ? (a < 0 ? (T)-1 : (T)0) : (T)(a >> b));
FUNCTION(fused, (T a, T b, T c),
         std::is_same<T, float>::value ? (T)__builtin_fmaf((float)a, (float)b, (float)c)
                                       : (T)__builtin_fma(a, b, c));
FUNCTION(root, (T a), std::is_same<T, float>::value ? (T)sqrtf((float)a) : (T)sqrt(a));
FUNCTION(reciprocal, (T a), 1 / a);
FUNCTION(same, (T a), a);
FUNCTION(multiply_add, (T a, T b, T c), (T)(a * b + c));
FUNCTION(is_eq, (T a, T b), a == b);
FUNCTION(is_ne, (T a, T b), a < b || a > b); /* false of a NaN */
FUNCTION(is_lt, (T a, T b), a < b);
FUNCTION(is_le, (T a, T b), a <= b);
FUNCTION(is_gt, (T a, T b), a > b);
FUNCTION(is_ge, (T a, T b), a >= b);
FUNCTION(is_equ, (T a, T b), !(a < b || a > b)); /* true of a NaN, as those below */
FUNCTION(is_neu, (T a, T b), a != b);
FUNCTION(is_ltu, (T a, T b), !(a >= b));
FUNCTION(is_leu, (T a, T b), !(a > b));
FUNCTION(is_gtu, (T a, T b), !(a <= b));
FUNCTION(is_geu, (T a, T b), !(a < b));
#undef FUNCTION

template <typename R, typename A> struct widened {
    static inline R of(A a, A b)
    {
        return (R)a * (R)b;
    }
};
template <typename T> struct upper_half {
    static inline T of(T a, T b)
    {
        return (T)((std::is_signed<T>::value ? (int64_t)a * b : (int64_t)((uint64_t)a * b)) >> 32);
    }
};
template <typename R, typename A> struct converted {
    static inline R of(A a)
    {
        return (R)a;
    }
};
struct saturated {
    static inline float of(float a)
    {
        return a > 0 ? a < 1 ? a : 1.0f : 0.0f;
    } /* of NaN 0 */
};
/* Results (ftz: and operands) that are denormal are zeros. */
inline float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
struct power_of_two {
    static inline float of(float a)
    {
        return flushed(exp2f(flushed(a)));
    }
};
struct reciprocal_near {
    static inline float of(float a)
    {
        return flushed(1 / flushed(a));
    }
};
struct reciprocal_upper { /* of doubles: the lower half of the mantissa is zero */
    static inline double of(double a)
    {
        return bits<double>(bits<uint64_t>(1 / a) & 0xffffffff00000000ull);
    }
};
struct with_sign { /* copysign d, a, b: b with a's sign */
    static inline float of(float a, float b)
    {
        return copysignf(b, a);
    }
};
inline uint32_t bf16_of(float x)
{
    const uint32_t u = bits<uint32_t>(x);
    return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
struct to_bf16 {
    static inline uint32_t of(float a)
    {
        return bf16_of(a);
    }
};
struct to_bf16x2 { /* the first operand becomes the upper half */
    static inline uint32_t of(float a, float b)
    {
        return bf16_of(a) << 16 | bf16_of(b);
    }
};
struct from_bf16 {
    static inline float of(uint32_t a)
    {
        return bits<float>(a << 16);
    }
};
struct ones {
    static inline uint32_t of(uint32_t a)
    {
        return (uint32_t)__builtin_popcount(a);
    }
};
struct reversed {
    static inline uint32_t of(uint32_t a)
    {
        uint32_t r = 0;
        for (int i = 0; i < 32; i++)
            r |= (a >> i & 1) << (31 - i);
        return r;
    }
};
struct zeros_above { /* bfind.shiftamt: how far the highest one is from the top; none: all ones */
    static inline uint32_t of(uint32_t a)
    {
        return a ? (uint32_t)__builtin_clz(a) : ALL;
    }
};
struct leading_zeros {
    static inline uint32_t of(uint32_t a)
    {
        return a ? (uint32_t)__builtin_clz(a) : 32;
    }
};

/* fma.rm: towards minus infinity. The mode is in force for what the loop loads and stores. */
void fused_down(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    fesetround(FE_DOWNWARD);
    ternary<fused<float>, float, float, float>(w, op, lanes);
    fesetround(FE_TONEAREST);
}

template <typename T> void insert_bits(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    slot<T> *d = ptx_lanes<slot<T>>(w, op->operand[0]);
    const slot<T> *a = ptx_lanes<slot<T>>(w, op->operand[1]),
                  *b = ptx_lanes<slot<T>>(w, op->operand[2]);
    const uint32_t *at = ptx_lanes<uint32_t>(w, op->operand[3]),
                   *len = ptx_lanes<uint32_t>(w, op->operand[4]);
    for (int l = 0; l < PTX_LANES; l++) {
        if (!(lanes >> l & 1))
            continue;
        const uint32_t pos = at[l] & 0xff, n = len[l] & 0xff, size = 8 * sizeof(T);
        const T ones_n = n >= size ? (T) ~(T)0 : (T)(((T)1 << n) - 1);
        const T mask = pos >= size ? (T)0 : (T)(ones_n << pos);
        d[l] = (slot<T>)((b[l] & ~mask) | ((pos >= size ? 0 : a[l] << pos) & mask));
    }
}

template <typename T> void select_by(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    slot<T> *d = ptx_lanes<slot<T>>(w, op->operand[0]);
    const slot<T> *a = ptx_lanes<slot<T>>(w, op->operand[1]),
                  *b = ptx_lanes<slot<T>>(w, op->operand[2]);
    const uint32_t p = *ptx_lanes<uint32_t>(w, op->operand[3]);
    EACH_LANE(lanes, d[l] = p >> l & 1 ? a[l] : b[l]);
}

/* --- predicates: a word, a bit for each lane ------------------------------------------------- */

template <typename F>
void of_predicates(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    uint32_t *d = ptx_lanes<uint32_t>(w, op->operand[0]);
    const uint32_t a = *ptx_lanes<uint32_t>(w, op->operand[1]);
    const uint32_t b = op->num_operands > 2 ? *ptx_lanes<uint32_t>(w, op->operand[2]) : 0;
    *d = (*d & ~lanes) | (F::of(a, b) & lanes);
}
struct first_of {
    static inline uint32_t of(uint32_t a, uint32_t)
    {
        return a;
    }
};
struct not_first {
    static inline uint32_t of(uint32_t a, uint32_t)
    {
        return ~a;
    }
};

/* --- parts of registers ---------------------------------------------------------------------- */

template <typename Whole, typename Part>
void split_into(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    const int n = sizeof(Whole) / sizeof(Part);
    const slot<Whole> *from = ptx_lanes<slot<Whole>>(w, op->operand[n]);
    slot<Whole> whole[PTX_LANES];
    memcpy(whole, from, sizeof whole);
    for (int i = 0; i < n; i++) {
        slot<Part> *d = ptx_lanes<slot<Part>>(w, op->operand[i]);
        EACH_LANE(lanes, d[l] = (Part)(whole[l] >> (8 * sizeof(Part) * (size_t)i)));
    }
}
template <typename Whole, typename Part>
void join_from(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    const int n = sizeof(Whole) / sizeof(Part);
    slot<Whole> whole[PTX_LANES] = {0}, *d = ptx_lanes<slot<Whole>>(w, op->operand[0]);
    for (int i = 0; i < n; i++) {
        const slot<Part> *part = ptx_lanes<slot<Part>>(w, op->operand[1 + i]);
        for (int l = 0; l < PTX_LANES; l++)
            whole[l] |= (slot<Whole>)(Part)part[l] << (8 * sizeof(Part) * (size_t)i);
    }
    EACH_LANE(lanes, d[l] = whole[l]);
}

/* --- between lanes --------------------------------------------------------------------------- */

enum shuffle { UP, DOWN, BUTTERFLY, INDEX };

/* PTX ISA, "shfl.sync": c holds the clamp in bits 0-4 and the segment's mask in bits 8-12. */
template <enum shuffle HOW>
void shuffled(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    uint32_t *d = ptx_lanes<uint32_t>(w, op->operand[0]),
             *p = ptx_lanes<uint32_t>(w, op->operand[1]), out[PTX_LANES], valid = 0;
    const uint32_t *a = ptx_lanes<uint32_t>(w, op->operand[2]),
                   *b = ptx_lanes<uint32_t>(w, op->operand[3]);
    const uint32_t *c = ptx_lanes<uint32_t>(w, op->operand[4]);
    for (int l = 0; l < PTX_LANES; l++) {
        if (!(lanes >> l & 1))
            continue;
        const int by = (int)(b[l] & 31), clamp = (int)(c[l] & 31), segment = (int)(c[l] >> 8 & 31);
        const int most_lane = (l & segment) | (clamp & ~segment), least_lane = l & segment;
        int from = 0;
        bool ok = false;
        switch (HOW) {
        case UP:
            from = l - by;
            ok = from >= most_lane;
            break;
        case DOWN:
            from = l + by;
            ok = from <= most_lane;
            break;
        case BUTTERFLY:
            from = l ^ by;
            ok = from <= most_lane;
            break;
        case INDEX:
            from = least_lane | (by & ~segment);
            ok = from <= most_lane;
            break;
        }
        if (!ok)
            from = l;
        if (!(lanes >> from & 1))
            cudasim_ptx_fault(w, op, l, cudaErrorLaunchFailure,
                              "reads from lane %d, which is not there (%08x)", from, lanes);
        out[l] = a[from];
        valid |= (uint32_t)ok << l;
    }
    EACH_LANE(lanes, d[l] = out[l]);
    *p = (*p & ~lanes) | (valid & lanes);
}

void ballot(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    uint32_t *d = ptx_lanes<uint32_t>(w, op->operand[0]);
    const uint32_t p = *ptx_lanes<uint32_t>(w, op->operand[1]) & lanes;
    EACH_LANE(lanes, d[l] = p);
}
template <bool ANY> void vote(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    uint32_t *d = ptx_lanes<uint32_t>(w, op->operand[0]);
    const uint32_t p = *ptx_lanes<uint32_t>(w, op->operand[1]) & lanes;
    *d = (*d & ~lanes) | ((ANY ? p != 0 : p == lanes) ? lanes : 0);
}
void nothing(struct ptx_warp *, const struct ptx_op *, uint32_t)
{
}

void multiply_matrices(struct ptx_warp *w, const struct ptx_op *op, uint32_t)
{
    float d[PTX_LANES][4];
    uint32_t a[PTX_LANES][4], b[PTX_LANES][2];
    for (int i = 0; i < 4; i++) {
        const uint32_t *from_a = ptx_lanes<uint32_t>(w, op->operand[4 + i]),
                       *c = ptx_lanes<uint32_t>(w, op->operand[10 + i]);
        const uint32_t *from_b = ptx_lanes<uint32_t>(w, op->operand[8 + i % 2]);
        for (int l = 0; l < PTX_LANES; l++) {
            a[l][i] = from_a[l];
            b[l][i % 2] = from_b[l];
            d[l][i] = bits<float>(c[l]);
        }
    }
    cudasim_mma_bf16_warp(d, a, b);
    for (int i = 0; i < 4; i++) {
        uint32_t *to = ptx_lanes<uint32_t>(w, op->operand[i]);
        for (int l = 0; l < PTX_LANES; l++)
            to[l] = bits<uint32_t>(d[l][i]);
    }
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Passes that shared memory needs: 32 banks of 4 bytes; lanes that want the same word share it.
 * Elements of 8 and 16 bytes are served by halves and quarters of the warp. */
uint64_t passes(const uint32_t *address, uint32_t lanes, int bytes)
{
    const int each = bytes <= 4 ? PTX_LANES : PTX_LANES * 4 / bytes;
    uint64_t sum = 0;
    for (int first = 0; first < PTX_LANES; first += each) {
        uint32_t words[32][PTX_LANES];
        int num[32] = {0}, worst = 0;
        for (int l = first; l < first + each; l++)
            for (uint32_t word = address[l] / 4;
                 lanes >> l & 1 && word <= (address[l] + (uint32_t)bytes - 1) / 4; word++) {
                const uint32_t bank = word % 32;
                int i = 0;
                while (i < num[bank] && words[bank][i] != word)
                    i++;
                if (i == num[bank])
                    words[bank][num[bank]++] = word;
                worst = num[bank] > worst ? num[bank] : worst;
            }
        sum += (uint64_t)worst;
    }
    return sum;
}

/* Sectors of 32 bytes that an access touches. */
uint64_t sectors(const uint64_t *address, uint32_t lanes, int bytes)
{
    uint64_t seen[2 * PTX_LANES], num = 0;
    for (int l = 0; l < PTX_LANES; l++)
        for (uint64_t s = address[l] / 32;
             lanes >> l & 1 && s <= (address[l] + (uint64_t)bytes - 1) / 32; s++) {
            uint64_t i = num;
            while (i > 0 && seen[i - 1] != s)
                i--;
            if (i == 0)
                seen[num++] = s;
        }
    return num;
}

void check_global(struct ptx_warp *w, const struct ptx_op *op, int lane, uint64_t address,
                  size_t bytes)
{
    const void *at = (const void *)address;
    if (address % bytes)
        cudasim_ptx_fault(w, op, lane, cudaErrorMisalignedAddress,
                          "device address %p is no multiple of %zu", at, bytes);
    if (!cudasim_in_device(at, bytes) && !cudasim_is_pinned(at, bytes))
        cudasim_ptx_fault(w, op, lane, cudaErrorIllegalAddress, "%zu bytes at %p: %s", bytes, at,
                          cudasim_describe(at));
}

/* The host's address of each lane's element; counts what the access costs. */
void reach(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes, unsigned char **at)
{
    const size_t bytes = (size_t)op->bytes * op->vector;
    uint64_t *cost = &((struct ptx_op *)op)->cost;
    const uint32_t base = op->operand[op->num_operands - 1];
    if (op->space == PTX_SPACE_SHARED) {
        const uint32_t *narrow = ptx_lanes<uint32_t>(w, base);
        const uint64_t *wide = ptx_lanes<uint64_t>(w, base);
        uint32_t address[PTX_LANES];
        for (int l = 0; l < PTX_LANES; l++) {
            address[l] = (op->wide_address ? (uint32_t)wide[l] : narrow[l]) + (uint32_t)op->offset;
            if (lanes >> l & 1)
                at[l] = cudasim_ptx_shared(address[l], bytes, w, op, l);
        }
        *cost += passes(address, lanes, (int)bytes);
        return;
    }
    const uint64_t *from = ptx_lanes<uint64_t>(w, base);
    uint64_t address[PTX_LANES], low = ~0ull, high = 0;
    for (int l = 0; l < PTX_LANES; l++) {
        address[l] = from[l] + (uint64_t)op->offset;
        if (!(lanes >> l & 1))
            continue;
        low = address[l] < low ? address[l] : low;
        high = address[l] > high ? address[l] : high;
        at[l] = (unsigned char *)address[l];
        if (op->space == PTX_SPACE_PARAM) {
            if (address[l] + bytes > w->kernel->param_bytes)
                cudasim_ptx_fault(w, op, l, cudaErrorIllegalAddress,
                                  "byte %llu of %u bytes of parameters",
                                  (unsigned long long)address[l], w->kernel->param_bytes);
            at[l] = (unsigned char *)w->params + address[l];
        } else if (address[l] % bytes) {
            check_global(w, op, l, address[l], bytes);
        }
    }
    if (op->space == PTX_SPACE_PARAM)
        return;
    if (!cudasim_in_device((const void *)low, high - low + bytes))
        for (int l = 0; l < PTX_LANES; l++)
            if (lanes >> l & 1)
                check_global(w, op, l, address[l], bytes);
    *cost += sectors(address, lanes, (int)bytes);
}

uint64_t element_at(const unsigned char *at, int bytes, bool is_signed)
{
    uint64_t v = 0;
    memcpy(&v, at, (size_t)bytes);
    const int shift = 64 - 8 * bytes;
    return is_signed ? (uint64_t)((int64_t)(v << shift) >> shift) : v;
}

void load_matrices(struct ptx_warp *w, const struct ptx_op *op, bool trans)
{
    const uint32_t *from = ptx_lanes<uint32_t>(w, op->operand[4]);
    const unsigned char *rows[PTX_LANES];
    uint32_t to[PTX_LANES][4];
    for (int l = 0; l < PTX_LANES; l++)
        rows[l] = cudasim_ptx_shared(from[l], 16, w, op, l);
    ((struct ptx_op *)op)->cost += passes(from, ALL, 16);
    cudasim_ldmatrix_warp(to, rows, 4, trans);
    for (int i = 0; i < 4; i++) {
        uint32_t *d = ptx_lanes<uint32_t>(w, op->operand[i]);
        for (int l = 0; l < PTX_LANES; l++)
            d[l] = to[l][i];
    }
}
void ldmatrix(struct ptx_warp *w, const struct ptx_op *op, uint32_t)
{
    load_matrices(w, op, false);
}
void ldmatrix_trans(struct ptx_warp *w, const struct ptx_op *op, uint32_t)
{
    load_matrices(w, op, true);
}

/* cp.async.cg [to], [from], 16, read: what is not read becomes zeros. Here at the wait. */
void copy_async(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    const uint32_t *to = ptx_lanes<uint32_t>(w, op->operand[0]),
                   *read = ptx_lanes<uint32_t>(w, op->operand[2]);
    const uint64_t *from = ptx_lanes<uint64_t>(w, op->operand[1]);
    uint32_t reading = 0;
    for (int l = 0; l < PTX_LANES; l++) {
        if (!(lanes >> l & 1))
            continue;
        cudasim_ptx_shared(to[l], 16, w, op, l);
        if (read[l] > 16)
            cudasim_ptx_fault(w, op, l, cudaErrorLaunchFailure, "%u bytes of 16 to read", read[l]);
        if (read[l] > 0) {
            check_global(w, op, l, from[l], 16);
            reading |= 1u << l;
        }
        w->copies.push_back(
            {l, w->copy_group[l], to[l], (const unsigned char *)from[l], (int)read[l]});
    }
    ((struct ptx_op *)op)->cost += sectors(from, reading, 16);
}
void copy_commit(struct ptx_warp *w, const struct ptx_op *, uint32_t lanes)
{
    EACH_LANE(lanes, w->copy_group[l]++);
}
void copy_wait(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    cudasim_ptx_copies(w, lanes, (int)op->offset);
}

/* --- names ----------------------------------------------------------------------------------- */

template <typename T> const char *letters(int operands)
{
    static const char *const narrow[] = {"", "i", "ii", "iii", "iiii"}, *const wide[] = {
                                                                            "", "l", "ll", "lll",
                                                                            "llll"};
    return sizeof(T) == 8 ? wide[operands] : narrow[operands];
}

typedef std::map<std::string, struct ptx_meaning> meanings;

void add_to(meanings *m, const std::string &name, ptx_work work, enum ptx_class counted,
            const char *operands, enum ptx_control control = PTX_NEXT, int mask_at = -1)
{
    (*m)[name] = {work, counted, operands, control, mask_at};
}

template <typename T> void integers(meanings *m, const std::string &type)
{
    typedef typename std::make_unsigned<T>::type U; /* sums wrap */
    const enum ptx_class c = PTX_INTEGER;
    add_to(m, "add." + type, binary<add<U>, U, U, U>, c, letters<T>(3));
    add_to(m, "sub." + type, binary<subtract<U>, U, U, U>, c, letters<T>(3));
    add_to(m, "mul.lo." + type, binary<multiply<U>, U, U, U>, c, letters<T>(3));
    add_to(m, "mad.lo." + type, ternary<multiply_add<U>, U, U, U>, c, letters<T>(4));
    add_to(m, "div." + type, binary<divide<T>, T, T, T>, PTX_DIVIDE, letters<T>(3));
    add_to(m, "rem." + type, binary<remain<T>, T, T, T>, PTX_DIVIDE, letters<T>(3));
    add_to(m, "min." + type, binary<least<T>, T, T, T>, c, letters<T>(3));
    add_to(m, "max." + type, binary<most<T>, T, T, T>, c, letters<T>(3));
    add_to(m, "neg." + type, unary<negate<U>, U, U>, c, letters<T>(2));
    add_to(m, "abs." + type, unary<absolute<T>, T, T>, c, letters<T>(2));
    add_to(m, "shr." + type, binary<right<T>, T, T, uint32_t>, c, sizeof(T) == 8 ? "lli" : "iii");
}

template <typename T> void comparisons(meanings *m, const std::string &type)
{
    const enum ptx_class c = std::is_same<T, float>::value    ? PTX_FLOAT
                             : std::is_same<T, double>::value ? PTX_DOUBLE
                                                              : PTX_INTEGER;
    const char *operands = sizeof(T) == 8 ? "pll" : "pii";
    add_to(m, "setp.eq." + type, compare<is_eq<T>, T>, c, operands);
    add_to(m, "setp.ne." + type, compare<is_ne<T>, T>, c, operands);
    add_to(m, "setp.lt." + type, compare<is_lt<T>, T>, c, operands);
    add_to(m, "setp.le." + type, compare<is_le<T>, T>, c, operands);
    add_to(m, "setp.gt." + type, compare<is_gt<T>, T>, c, operands);
    add_to(m, "setp.ge." + type, compare<is_ge<T>, T>, c, operands);
    if (!std::is_floating_point<T>::value)
        return;
    add_to(m, "setp.equ." + type, compare<is_equ<T>, T>, c, operands);
    add_to(m, "setp.neu." + type, compare<is_neu<T>, T>, c, operands);
    add_to(m, "setp.ltu." + type, compare<is_ltu<T>, T>, c, operands);
    add_to(m, "setp.leu." + type, compare<is_leu<T>, T>, c, operands);
    add_to(m, "setp.gtu." + type, compare<is_gtu<T>, T>, c, operands);
    add_to(m, "setp.geu." + type, compare<is_geu<T>, T>, c, operands);
}

template <typename T> void floats(meanings *m, const std::string &type)
{
    const enum ptx_class c = sizeof(T) == 8 ? PTX_DOUBLE : PTX_FLOAT;
    for (const char *rounding : {"", "rn."}) {
        add_to(m, std::string("add.") + rounding + type, binary<add<T>, T, T, T>, c, letters<T>(3));
        add_to(m, std::string("sub.") + rounding + type, binary<subtract<T>, T, T, T>, c,
               letters<T>(3));
        add_to(m, std::string("mul.") + rounding + type, binary<multiply<T>, T, T, T>, c,
               letters<T>(3));
    }
    add_to(m, "fma.rn." + type, ternary<fused<T>, T, T, T>, c, letters<T>(4));
    add_to(m, "min." + type, binary<fleast<T>, T, T, T>, c, letters<T>(3));
    add_to(m, "max." + type, binary<fmost<T>, T, T, T>, c, letters<T>(3));
    add_to(m, "neg." + type, unary<fnegate<T>, T, T>, c, letters<T>(2));
    add_to(m, "abs." + type, unary<fabsolute<T>, T, T>, c, letters<T>(2));
    add_to(m, "div.rn." + type, binary<quotient<T>, T, T, T>, PTX_SPECIAL, letters<T>(3));
    add_to(m, "rcp.rn." + type, unary<reciprocal<T>, T, T>, PTX_SPECIAL, letters<T>(2));
    add_to(m, "sqrt.rn." + type, unary<root<T>, T, T>, PTX_SPECIAL, letters<T>(2));
}

template <typename R, typename A> void conversion(meanings *m, const std::string &name)
{
    add_to(m, "cvt." + name, unary<converted<R, A>, R, A>, PTX_CONVERT,
           sizeof(R) == 8   ? sizeof(A) == 8 ? "ll" : "li"
           : sizeof(A) == 8 ? "il"
                            : "ii");
}

template <typename T> void of_bits(meanings *m, const std::string &type)
{
    add_to(m, "and." + type, binary<conjoin<T>, T, T, T>, PTX_INTEGER, letters<T>(3));
    add_to(m, "or." + type, binary<disjoin<T>, T, T, T>, PTX_INTEGER, letters<T>(3));
    add_to(m, "xor." + type, binary<differ<T>, T, T, T>, PTX_INTEGER, letters<T>(3));
    add_to(m, "not." + type, unary<invert<T>, T, T>, PTX_INTEGER, letters<T>(2));
    add_to(m, "shl." + type, binary<left<T>, T, T, uint32_t>, PTX_INTEGER,
           sizeof(T) == 8 ? "lli" : "iii");
    add_to(m, "shr." + type, binary<right<T>, T, T, uint32_t>, PTX_INTEGER,
           sizeof(T) == 8 ? "lli" : "iii");
}

meanings all_meanings(void)
{
    meanings all, *m = &all;
    integers<int16_t>(m, "s16");
    integers<uint16_t>(m, "u16");
    integers<int32_t>(m, "s32");
    integers<uint32_t>(m, "u32");
    integers<int64_t>(m, "s64");
    integers<uint64_t>(m, "u64");
    of_bits<uint16_t>(m, "b16");
    of_bits<uint32_t>(m, "b32");
    of_bits<uint64_t>(m, "b64");
    floats<float>(m, "f32");
    floats<double>(m, "f64");
    comparisons<int16_t>(m, "s16");
    comparisons<uint16_t>(m, "u16");
    comparisons<uint16_t>(m, "b16");
    comparisons<int32_t>(m, "s32");
    comparisons<uint32_t>(m, "u32");
    comparisons<uint32_t>(m, "b32");
    comparisons<int64_t>(m, "s64");
    comparisons<uint64_t>(m, "u64");
    comparisons<uint64_t>(m, "b64");
    comparisons<float>(m, "f32");
    comparisons<double>(m, "f64");
    for (const char *type : {"b16", "u16", "s16", "b32", "u32", "s32", "f32"}) {
        add_to(m, std::string("mov.") + type, unary<same<uint32_t>, uint32_t, uint32_t>, PTX_MOVE,
               "ii");
        add_to(m, std::string("selp.") + type, select_by<uint32_t>, PTX_INTEGER, "iiip");
    }
    for (const char *type : {"b64", "u64", "s64", "f64"}) {
        add_to(m, std::string("mov.") + type, unary<same<uint64_t>, uint64_t, uint64_t>, PTX_MOVE,
               "ll");
        add_to(m, std::string("selp.") + type, select_by<uint64_t>, PTX_INTEGER, "lllp");
    }
    add_to(m, "mov.b32.split2", split_into<uint32_t, uint16_t>, PTX_MOVE, "iii");
    add_to(m, "mov.b32.join2", join_from<uint32_t, uint16_t>, PTX_MOVE, "iii");
    add_to(m, "mov.b64.split2", split_into<uint64_t, uint32_t>, PTX_MOVE, "iil");
    add_to(m, "mov.b64.join2", join_from<uint64_t, uint32_t>, PTX_MOVE, "lii");
    add_to(m, "mov.b64.split4", split_into<uint64_t, uint16_t>, PTX_MOVE, "iiiil");
    add_to(m, "mov.b64.join4", join_from<uint64_t, uint16_t>, PTX_MOVE, "liiii");
    add_to(m, "mov.pred", of_predicates<first_of>, PTX_MOVE, "pp");
    add_to(m, "not.pred", of_predicates<not_first>, PTX_INTEGER, "pp");
    add_to(m, "and.pred", of_predicates<conjoin<uint32_t>>, PTX_INTEGER, "ppp");
    add_to(m, "or.pred", of_predicates<disjoin<uint32_t>>, PTX_INTEGER, "ppp");
    add_to(m, "xor.pred", of_predicates<differ<uint32_t>>, PTX_INTEGER, "ppp");

    add_to(m, "mul.wide.s32", binary<widened<int64_t, int32_t>, int64_t, int32_t, int32_t>,
           PTX_INTEGER, "lii");
    add_to(m, "mul.wide.u32", binary<widened<uint64_t, uint32_t>, uint64_t, uint32_t, uint32_t>,
           PTX_INTEGER, "lii");
    add_to(m, "mul.wide.s16", binary<widened<int32_t, int16_t>, int32_t, int16_t, int16_t>,
           PTX_INTEGER, "iii");
    add_to(m, "mul.wide.u16", binary<widened<uint32_t, uint16_t>, uint32_t, uint16_t, uint16_t>,
           PTX_INTEGER, "iii");
    add_to(m, "mul.hi.s32", binary<upper_half<int32_t>, int32_t, int32_t, int32_t>, PTX_INTEGER,
           "iii");
    add_to(m, "mul.hi.u32", binary<upper_half<uint32_t>, uint32_t, uint32_t, uint32_t>, PTX_INTEGER,
           "iii");
    add_to(m, "bfi.b32", insert_bits<uint32_t>, PTX_INTEGER, "iiiii");
    add_to(m, "bfi.b64", insert_bits<uint64_t>, PTX_INTEGER, "lllii");
    add_to(m, "popc.b32", unary<ones, uint32_t, uint32_t>, PTX_INTEGER, "ii");
    add_to(m, "brev.b32", unary<reversed, uint32_t, uint32_t>, PTX_INTEGER, "ii");
    add_to(m, "clz.b32", unary<leading_zeros, uint32_t, uint32_t>, PTX_INTEGER, "ii");
    add_to(m, "bfind.shiftamt.u32", unary<zeros_above, uint32_t, uint32_t>, PTX_INTEGER, "ii");
    add_to(m, "cvta.to.global.u64", unary<same<uint64_t>, uint64_t, uint64_t>, PTX_MOVE, "ll");
    add_to(m, "cvta.shared.u64", unary<same<uint64_t>, uint64_t, uint64_t>, PTX_MOVE, "ll");

    add_to(m, "fma.rm.f32", fused_down, PTX_FLOAT, "iiii");
    add_to(m, "copysign.f32", binary<with_sign, float, float, float>, PTX_FLOAT, "iii");
    add_to(m, "cvt.sat.f32.f32", unary<saturated, float, float>, PTX_FLOAT, "ii");
    add_to(m, "ex2.approx.ftz.f32", unary<power_of_two, float, float>, PTX_SPECIAL, "ii");
    add_to(m, "rcp.approx.ftz.f32", unary<reciprocal_near, float, float>, PTX_SPECIAL, "ii");
    add_to(m, "rcp.approx.ftz.f64", unary<reciprocal_upper, double, double>, PTX_SPECIAL, "ll");
    add_to(m, "cvt.rn.bf16.f32", unary<to_bf16, uint32_t, float>, PTX_CONVERT, "ii");
    add_to(m, "cvt.rn.bf16x2.f32", binary<to_bf16x2, uint32_t, float, float>, PTX_CONVERT, "iii");
    add_to(m, "cvt.f32.bf16", unary<from_bf16, float, uint32_t>, PTX_CONVERT, "ii");
    conversion<int64_t, int32_t>(m, "s64.s32");
    conversion<uint64_t, uint32_t>(m, "u64.u32");
    conversion<uint32_t, uint64_t>(m, "u32.u64");
    conversion<uint16_t, uint32_t>(m, "u16.u32");
    conversion<uint16_t, uint64_t>(m, "u16.u64");
    conversion<uint32_t, uint16_t>(m, "u32.u16");
    conversion<int32_t, int16_t>(m, "s32.s16");
    conversion<float, int32_t>(m, "rn.f32.s32");
    conversion<float, uint32_t>(m, "rn.f32.u32");
    conversion<float, int64_t>(m, "rn.f32.s64");
    conversion<double, int32_t>(m, "rn.f64.s32");
    conversion<double, uint32_t>(m, "rn.f64.u32");
    conversion<double, int64_t>(m, "rn.f64.s64");
    conversion<float, double>(m, "rn.f32.f64");
    conversion<double, float>(m, "f64.f32");

    add_to(m, "shfl.sync.up.b32", shuffled<UP>, PTX_EXCHANGE, "ipiiii", PTX_WARP, 5);
    add_to(m, "shfl.sync.down.b32", shuffled<DOWN>, PTX_EXCHANGE, "ipiiii", PTX_WARP, 5);
    add_to(m, "shfl.sync.bfly.b32", shuffled<BUTTERFLY>, PTX_EXCHANGE, "ipiiii", PTX_WARP, 5);
    add_to(m, "shfl.sync.idx.b32", shuffled<INDEX>, PTX_EXCHANGE, "ipiiii", PTX_WARP, 5);
    add_to(m, "vote.sync.ballot.b32", ballot, PTX_EXCHANGE, "ipi", PTX_WARP, 2);
    add_to(m, "vote.sync.any.pred", vote<true>, PTX_EXCHANGE, "ppi", PTX_WARP, 2);
    add_to(m, "vote.sync.all.pred", vote<false>, PTX_EXCHANGE, "ppi", PTX_WARP, 2);
    add_to(m, "bar.warp.sync", nothing, PTX_WAIT, "i", PTX_WARP, 0);
    add_to(m, "bar.sync", nothing, PTX_WAIT, "n", PTX_BLOCK);
    add_to(m, "ret", nothing, PTX_BRANCH, "", PTX_RETURN);
    add_to(m, "exit", nothing, PTX_BRANCH, "", PTX_RETURN);

    add_to(m, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_matrices, PTX_MATRIX,
           "iiiiiiiiiiiiii", PTX_WHOLE);
    add_to(m, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", ldmatrix, PTX_SHARED, "iiiis", PTX_WHOLE);
    add_to(m, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ldmatrix_trans, PTX_SHARED, "iiiis",
           PTX_WHOLE);
    add_to(m, "cp.async.cg.shared.global", copy_async, PTX_GLOBAL, "sgni");
    add_to(m, "cp.async.commit_group", copy_commit, PTX_WAIT, "");
    add_to(m, "cp.async.wait_group", copy_wait, PTX_WAIT, "n");
    return all;
}

} // namespace

void cudasim_ptx_load_lanes(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    unsigned char *at[PTX_LANES];
    reach(w, op, lanes, at);
    for (int v = 0; v < op->vector; v++) {
        const uint32_t place = op->operand[v];
        uint32_t *narrow = ptx_lanes<uint32_t>(w, place);
        uint64_t *wide = ptx_lanes<uint64_t>(w, place);
        for (int l = 0; l < PTX_LANES; l++)
            if (lanes >> l & 1) {
                const uint64_t e = element_at(at[l] + v * op->bytes, op->bytes, op->is_signed);
                if (op->wide)
                    wide[l] = e;
                else
                    narrow[l] = (uint32_t)e;
            }
    }
}

void cudasim_ptx_store_lanes(struct ptx_warp *w, const struct ptx_op *op, uint32_t lanes)
{
    unsigned char *at[PTX_LANES];
    reach(w, op, lanes, at);
    for (int v = 0; v < op->vector; v++) {
        const uint32_t place = op->operand[v];
        const uint32_t *narrow = ptx_lanes<uint32_t>(w, place);
        const uint64_t *wide = ptx_lanes<uint64_t>(w, place);
        for (int l = 0; l < PTX_LANES; l++)
            if (lanes >> l & 1) {
                const uint64_t e = op->wide ? wide[l] : narrow[l];
                memcpy(at[l] + v * op->bytes, &e, op->bytes);
            }
    }
}

const struct ptx_meaning *cudasim_ptx_meaning(const std::string &name)
{
    static const meanings all = all_meanings();
    const auto found = all.find(name);
    return found == all.end() ? NULL : &found->second;
}
