// Comparisons `name_T` of two operands to bool, `where_T` and `clamp_T`. The loop is `elementwise` in elementwise.cuh.

typedef Compute<T> C;

#define COMPARE(op, expression)                                                                     \
    struct op##_op : Functor2<bool, T, T> {                                                         \
        DEVICE bool apply(T left, T right, Nothing, const Context&) {    \
            C a = widen(left), b = widen(right);                                                    \
            return expression;                                                                      \
        }                                                                                           \
    };                                                                                              \
    ELEMENTWISE(op, op##_op)

COMPARE(eq, a == b)
COMPARE(ge, a >= b)
COMPARE(gt, a > b)
COMPARE(le, a <= b)
COMPARE(lt, a < b)
COMPARE(ne, a != b)

#if IS_BOOL
COMPARE(logical_and, a && b)
COMPARE(logical_or, a || b)
COMPARE(logical_xor, a != b)
#else

// minimum(maximum(x, low), high). The bounds are scalars after the plan's one operand; bits 0 and 1 of the options say
// which there are.
struct clamp_op : Functor<T, T, T, T, 1> {
    DEVICE T apply(T element, T low, T high, const Context& context) {
        C x = widen(element);
        if (context.options & 1) x = maximum(x, widen(low));
        if (context.options & 2) x = minimum(x, widen(high));
        return narrow<T>(x);
    }
};
ELEMENTWISE(clamp, clamp_op)

#endif

// Moves elements as they are.
struct where_op : Functor3<T, bool, T, T> {
    static const bool tiles = true;
    DEVICE T apply(bool condition, T a, T b, const Context&) { return condition ? a : b; }
};
ELEMENTWISE(where, where_op)
