// Functions of one operand: `name_T` for each op of `UnaryOp` that accepts T. One thread takes one element, or 16 bytes
// of them; the loop is `elementwise` in common.cuh.
//
// INLINE ops cost an instruction or a few and are expanded in the vector loop. A CALL op is compiled once and called
// for each element: memory stays the limit, and compiling a family takes a second instead of many.

typedef Compute<T> C;

#define INLINE(op, expression)                                                                  \
    struct op##_op : Functor1<T, T> {                                                           \
        DEVICE T apply(T element, Nothing, Nothing, const Context&) { \
            C x = widen(element);                                                               \
            return narrow<T>(expression);                                                       \
        }                                                                                       \
    };                                                                                          \
    ELEMENTWISE(op, op##_op)

#define CALL(op, expression)                                              \
    static __device__ __noinline__ C op##_of(C x) { return expression; } \
    INLINE(op, op##_of(x))

#define PREDICATE(op, expression)                                                                  \
    struct op##_op : Functor1<bool, T> {                                                           \
        DEVICE bool apply(T element, Nothing, Nothing, const Context&) { \
            C x = widen(element);                                                                  \
            return expression;                                                                     \
        }                                                                                          \
    };                                                                                             \
    ELEMENTWISE(op, op##_op)

#if IS_FLOAT

DEVICE C infinity() { return (C)1 / (C)0; }
DEVICE f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
DEVICE f64 fused(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }

// 1/√2 in two parts whose sum has twice the precision.
template <class R> struct Constants;
template <> struct Constants<f32> {
    static __device__ f32 half_root() { return 0.70710676908493042f; }
    static __device__ f32 half_root_rest() { return 1.2101617154e-8f; }
    // Below this eˣ loses bits to underflow.
    static __device__ f32 underflow() { return -80.0f; }
};
template <> struct Constants<f64> {
    static __device__ f64 half_root() { return 0.70710678118654757; }
    static __device__ f64 half_root_rest() { return -4.8336466567264567e-17; }
    static __device__ f64 underflow() { return -700.0; }
};

// Split by sign, so that the exponential never overflows and the result is 0 only when it underflows.
DEVICE C sigmoid_stable(C x) {
    C e = exp(x < 0 ? x : -x);
    return (x < 0 ? e : (C)1) / ((C)1 + e);
}

// x · sigmoid(t), −0 in the limit at −∞. Where eᵗ is subnormal it is applied as two factors that are not.
DEVICE C times_sigmoid(C x, C t) {
    if (x == -infinity()) return -(C)0;
    if (t < Constants<C>::underflow()) {
        C half = exp(t / 2);
        return x * half * half;
    }
    C e = exp(t < 0 ? t : -t);
    return (t < 0 ? x * e : x) / ((C)1 + e);
}

// x/2 · erfc(t), t = −x/√2. The error r of the rounded t enters through erfc'(t)/erfc(t) ≈ −2t for t > 1.
DEVICE C gelu_stable(C x) {
    if (x == -infinity()) return -(C)0;
    C t = -x * Constants<C>::half_root();
    C y = x / 2 * erfc(t);
    if (t > (C)1 && t < (C)50) {
        C r = fused(-x, Constants<C>::half_root(), -t) - x * Constants<C>::half_root_rest();
        // A product keeps the sign of a result that underflows.
        y *= (C)1 - 2 * t * r;
    }
    return y;
}

// x · sigmoid(2√(2/π)·(x + 0.044715·x³)).
DEVICE C gelu_tanh_stable(C x) {
    C t = (C)1.5957691216057307 * fused((C)0.044715 * x * x, x, x);
    return times_sigmoid(x, t);
}

INLINE(abs, fabs(x))
INLINE(ceil, ceil(x))
INLINE(floor, floor(x))
INLINE(neg, -x)
INLINE(recip, (C)1 / x)
INLINE(relu, x > 0 || x != x ? x : (C)0)
INLINE(round, rint(x))
INLINE(sign, x > 0 ? (C)1 : x < 0 ? (C)-1 : x)
INLINE(sqrt, sqrt(x))
INLINE(square, x * x)
INLINE(trunc, trunc(x))

CALL(acos, acos(x))
CALL(acosh, acosh(x))
CALL(asin, asin(x))
CALL(asinh, asinh(x))
CALL(atan, atan(x))
CALL(atanh, atanh(x))
CALL(cos, cos(x))
CALL(cosh, cosh(x))
CALL(erf, erf(x))
CALL(erfc, erfc(x))
CALL(exp, exp(x))
CALL(exp2, exp2(x))
CALL(expm1, expm1(x))
CALL(gelu, gelu_stable(x))
CALL(gelu_tanh, gelu_tanh_stable(x))
CALL(ln, log(x))
CALL(log10, log10(x))
CALL(log1p, log1p(x))
CALL(log2, log2(x))
CALL(rsqrt, rsqrt(x))
CALL(sigmoid, sigmoid_stable(x))
CALL(silu, times_sigmoid(x, x))
CALL(sin, sin(x))
CALL(sinh, sinh(x))
CALL(softplus, (x > 0 ? x : (C)0) + log1p(exp(-fabs(x))))
CALL(tan, tan(x))
CALL(tanh, tanh(x))

PREDICATE(is_finite, x - x == 0)
PREDICATE(is_inf, fabs(x) == infinity())
PREDICATE(is_nan, x != x)

#elif IS_INT

#if IS_SIGNED
INLINE(abs, x < 0 ? wrapping_sub((C)0, x) : x)
INLINE(sign, (C)((x > 0) - (x < 0)))
INLINE(relu, x > 0 ? x : (C)0)
#else
INLINE(abs, x)
INLINE(sign, (C)(x > 0))
INLINE(relu, x)
#endif
INLINE(bitwise_not, (C)~x)
INLINE(neg, wrapping_sub((C)0, x))
INLINE(square, wrapping_mul(x, x))

#else

INLINE(bitwise_not, !x)
INLINE(logical_not, !x)

#endif
