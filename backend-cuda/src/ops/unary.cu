// Functions of one operand: `name_T` for each op of `UnaryOp` that accepts T. One thread takes one element, or 16 bytes
// of them; the loop is `elementwise` in elementwise.cuh.
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

// A CALL of f64; of the others, which compute in f32, a few instructions.
#define FAST(op, expression)                                                         \
    static __device__ __noinline__ C op##_of(C x) { return expression; }             \
    struct op##_op : Functor1<T, T> {                                                \
        DEVICE T apply(T element, Nothing, Nothing, const Context&) {                \
            C x = widen(element);                                                    \
            if constexpr (sizeof(C) == 8) return narrow<T>(op##_of(x));              \
            else return narrow<T>(expression);                                       \
        }                                                                            \
    };                                                                               \
    ELEMENTWISE(op, op##_op)

#define PREDICATE(op, expression)                                                                  \
    struct op##_op : Functor1<bool, T> {                                                           \
        DEVICE bool apply(T element, Nothing, Nothing, const Context&) { \
            C x = widen(element);                                                                  \
            return expression;                                                                     \
        }                                                                                          \
    };                                                                                             \
    ELEMENTWISE(op, op##_op)

#if IS_FLOAT

#if PART == 0

INLINE(abs, fabs(x))
INLINE(ceil, ceil(x))
INLINE(floor, floor(x))
INLINE(neg, -x)
INLINE(recip, (C)1 / x)
INLINE(relu, relu_of(x))
INLINE(round, rint(x))
INLINE(sign, x > 0 ? (C)1 : x < 0 ? (C)-1 : x)
INLINE(sqrt, sqrt(x))
INLINE(square, x * x)
INLINE(trunc, trunc(x))

PREDICATE(is_finite, x - x == 0)
PREDICATE(is_inf, fabs(x) == infinity())
PREDICATE(is_nan, x != x)

#elif PART == 1

FAST(gelu, gelu_stable(x))
FAST(gelu_tanh, gelu_tanh_stable(x))
FAST(sigmoid, sigmoid_stable(x))
FAST(silu, times_sigmoid(x, x))
CALL(softplus, (x > 0 ? x : (C)0) + log1p(exp(-fabs(x))))
FAST(tanh, tanh(x))

#elif PART == 2

CALL(erf, erf(x))
CALL(erfc, erfc(x))
FAST(exp, exp(x))
CALL(exp2, exp2(x))
CALL(expm1, expm1(x))
CALL(ln, log(x))
CALL(log10, log10(x))
CALL(log1p, log1p(x))
CALL(log2, log2(x))
CALL(rsqrt, rsqrt(x))

#else

CALL(acos, acos(x))
CALL(acosh, acosh(x))
CALL(asin, asin(x))
CALL(asinh, asinh(x))
CALL(atan, atan(x))
CALL(atanh, atanh(x))
CALL(cos, cos(x))
CALL(cosh, cosh(x))
CALL(sin, sin(x))
CALL(sinh, sinh(x))
CALL(tan, tan(x))

#endif

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
