// Arithmetic of two operands: `name_T` for each op of `BinaryOp` that accepts T. The loop is `elementwise` in
// elementwise.cuh, and INLINE and CALL mean what they mean in unary.cu.

typedef Compute<T> C;

#define INLINE(op, expression)                                                                      \
    struct op##_op : Functor2<T, T, T> {                                                            \
        static const bool tiles = true;                                                              \
        DEVICE T apply(T left, T right, Nothing, const Context& context) { \
            C a = widen(left), b = widen(right);                                                    \
            return narrow<T>(expression);                                                           \
        }                                                                                           \
    };                                                                                              \
    ELEMENTWISE(op, op##_op)

#define CALL(op, expression)                                                   \
    static __device__ __noinline__ C op##_of(C a, C b) { return expression; } \
    INLINE(op, op##_of(a, b))

#if IS_FLOAT

// The remainder r of the truncated quotient is exact; where its sign differs from b's, r + b rounds once.
DEVICE C modulo_of_signs(C a, C b) {
    C r = fmod(a, b);
    if (r == 0) return copysign((C)0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

#if PART == 0
INLINE(add, a + b)
INLINE(sub, a - b)
INLINE(mul, a * b)
INLINE(div, a / b)
#else
INLINE(maximum, maximum(a, b))
INLINE(minimum, minimum(a, b))
CALL(atan2, atan2(a, b))
CALL(modulo, modulo_of_signs(a, b))
CALL(pow, pow(a, b))
CALL(rem, fmod(a, b))
#endif

#elif IS_INT

// Division is defined where C++ leaves it undefined: by zero it gives 0 and marks the context, MIN / −1 is MIN.
DEVICE C divide(C a, C b, const Context& context) {
    if (b == 0) {
        context.divided_by_zero = true;
        return 0;
    }
#if IS_SIGNED
    if (b == -1) return wrapping_sub((C)0, a);
#endif
    return a / b;
}

DEVICE C remainder_of(C a, C b, const Context& context) {
    if (b == 0) {
        context.divided_by_zero = true;
        return 0;
    }
#if IS_SIGNED
    if (b == -1) return 0;
#endif
    return a % b;
}

DEVICE C modulo_of(C a, C b, const Context& context) {
    C r = remainder_of(a, b, context);
#if IS_SIGNED
    if (r != 0 && (r < 0) != (b < 0)) r += b;
#endif
    return r;
}

// By squaring, modulo 2ʷ. A negative exponent truncates: only powers of ±1 stay.
DEVICE C power(C a, C b, const Context& context) {
#if IS_SIGNED
    if (b < 0) {
        if (a == 0) context.divided_by_zero = true;
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    }
#endif
    typedef Limits<C>::Unsigned U;
    U result = 1, square = (U)a;
#pragma unroll 1
    for (U rest = (U)b; rest != 0; rest >>= 1) {
        if (rest & 1) result *= square;
        square *= square;
    }
    return (C)result;
}

#define WIDTH ((C)(8 * sizeof(C)))
#if IS_SIGNED
#define INSIDE(b) ((b) >= 0 && (b) < WIDTH)
#define FILL (a < 0 ? (C)-1 : (C)0)
#else
#define INSIDE(b) ((b) < WIDTH)
#define FILL ((C)0)
#endif

#if PART == 0
INLINE(add, wrapping_add(a, b))
INLINE(sub, wrapping_sub(a, b))
INLINE(mul, wrapping_mul(a, b))
INLINE(div, divide(a, b, context))
#else
INLINE(rem, remainder_of(a, b, context))
INLINE(modulo, modulo_of(a, b, context))
INLINE(pow, power(a, b, context))
INLINE(maximum, maximum(a, b))
INLINE(minimum, minimum(a, b))
INLINE(bitwise_and, (C)(a & b))
INLINE(bitwise_or, (C)(a | b))
INLINE(bitwise_xor, (C)(a ^ b))
INLINE(shl, INSIDE(b) ? (C)((Limits<C>::Unsigned)a << b) : (C)0)
INLINE(shr, INSIDE(b) ? (C)(a >> b) : FILL)
#endif

#else

#if PART == 1
INLINE(bitwise_and, a && b)
INLINE(bitwise_or, a || b)
INLINE(bitwise_xor, a != b)
#endif

#endif
