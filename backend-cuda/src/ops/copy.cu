// `fill_T`, `copy_T`, and `cast_U_T`, which casts from T to U. The loop is `elementwise` in elementwise.cuh.

struct copy_op : Functor1<T, T> {
    static const bool tiles = true;
    DEVICE T apply(T x, Nothing, Nothing, const Context&) { return x; }
};

#if PART == 0

// The value is a scalar after the plan's operands, of which a fill has none.
struct fill_op : Functor<T, T> {
    DEVICE T apply(T value, Nothing, Nothing, const Context&) { return value; }
};
ELEMENTWISE(fill, fill_op)

ELEMENTWISE(copy, copy_op)

#else

// To a float, rounded once: the hardware conversion does, except to a half type from what f32 may not hold.
template <class To, class From> struct Cast {
    DEVICE To cast(From x) { return (To)x; }
};
template <class From> struct Cast<f16, From> {
    DEVICE f16 cast(From x) { return narrow<f16>(odd_f32(x)); }
};
template <class From> struct Cast<bf16, From> {
    DEVICE bf16 cast(From x) { return narrow<bf16>(odd_f32(x)); }
};
template <class From> struct Cast<bool, From> {
    DEVICE bool cast(From x) { return x != (From)0; }
};

// From a float to an integer: truncated and saturated, NaN to 0. `above` is the first value past the range, exact in
// every float type (PTX's own conversion saturates only some pairs of types).
template <class To, class From> DEVICE To saturate(From x, From above) {
    if (x != x) return 0;
    if (x <= (From)Limits<To>::min) return Limits<To>::min;
    return x >= above ? Limits<To>::max : (To)x;
}
#define FLOAT_TO_INT(To, From, above)                                                                       \
    template <> struct Cast<To, From> {                                                                     \
        DEVICE To cast(From x) { return saturate<To, From>(x, (From)above); } \
    };
FLOAT_TO_INT(i64, f32, 9223372036854775808.0)
FLOAT_TO_INT(i64, f64, 9223372036854775808.0)
FLOAT_TO_INT(i32, f32, 2147483648.0)
FLOAT_TO_INT(i32, f64, 2147483648.0)
FLOAT_TO_INT(u32, f32, 4294967296.0)
FLOAT_TO_INT(u32, f64, 4294967296.0)
FLOAT_TO_INT(u8, f32, 256.0)
FLOAT_TO_INT(u8, f64, 256.0)

template <class To> struct cast_op : Functor1<To, T> {
    static const bool tiles = true;
    DEVICE To apply(T x, Nothing, Nothing, const Context&) {
        return Cast<To, Compute<T>>::cast(widen(x));
    }
};
// Between equal types bits are copied, NaN payloads too.
template <> struct cast_op<T> : copy_op {};

#define CAST(To) ELEMENTWISE(cast_##To, cast_op<To>)
CAST(f64)
CAST(f32)
CAST(f16)
CAST(bf16)
CAST(i64)
CAST(i32)
CAST(u32)
CAST(u8)
CAST(bool)

#endif
