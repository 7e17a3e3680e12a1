// Statistics of rows: `var_T`, `std_T`, `logsumexp_T`, and `norm_T` of order 2. One read of rows that registers hold.
//
// How threads share rows is in rows.cuh; the parameter is what a variance is divided by. The formulas are those of the
// composition in `backend-api`; where that divides by the largest magnitude, so that no square overflows or underflows,
// here it is by a power of two near it, which rounds nothing.

#if IS_FLOAT

#define LOGSUMEXP 0
#define NORM 1
#define STD 2
#define VAR 3

// The power of two next below a magnitude, 1 for 0, ∞ and NaN; never so large or small that its reciprocal is not normal.
DEVICE f32 scale_of(f32 extreme) {
    u32 exponent = __float_as_uint(extreme) & 0x7f800000;
    if (extreme == 0 || exponent == 0x7f800000) return 1;
    return __uint_as_float(min(max(exponent, 1u << 23), 253u << 23));
}
DEVICE f64 scale_of(f64 extreme) {
    u64 exponent = __double_as_longlong(extreme) & 0x7ff0000000000000;
    if (extreme == 0 || exponent == 0x7ff0000000000000) return 1;
    return __longlong_as_double(min(max(exponent, 1ull << 52), 2045ull << 52));
}

DEVICE C finite_or_zero(C x) { return x - x == 0 ? x : (C)0; }

// What is left once the elements are reduced: √Σ for norm and std.
template <int OP> DEVICE C finish(const Rows& args, C squares, C scale) {
    if (OP == VAR) return squares / (C)args.parameter;
    C norm = sqrt(squares) * scale;
    return OP == STD ? norm / (C)sqrt(args.parameter) : norm;
}

template <int OP, int V> DEVICE C cached_row(const Rows& args, const Row& row) {
    C x[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) x[i] = OP == LOGSUMEXP ? least() : (C)0;
    with_input<0, V>(args, row, [&](int i, C value) { x[i] = value; });
    if (OP == LOGSUMEXP) {
        C max = x[0];
#pragma unroll
        for (int i = 1; i < PER_LANE; i++) max = Greater::of(max, x[i]);
        C shift = finite_or_zero(combine<Greater>(max, row.lanes));
        return log(total(row, [&](int i) { return exp(x[i] - shift); })) + shift;
    }
    if (OP == VAR || OP == STD) {
        C mean = total(row, [&](int i) { return x[i]; }) / (C)row.width;
        // Past the end of the row stays 0.
        each<V>(row, [&](int slot, u64) {
#pragma unroll
            for (int j = 0; j < V; j++) x[slot + j] -= mean;
        });
    }
    C scale = 1;
    if (OP != VAR) {
        C extreme = 0;
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) extreme = Greater::of(extreme, fabs(x[i]));
        scale = scale_of(combine<Greater>(extreme, row.lanes));
    }
    C inverse = 1 / scale;
    return finish<OP>(args, total(row, [&](int i) { C part = x[i] * inverse; return part * part; }), scale);
}

template <int OP> DEVICE C long_row(const Rows& args, const Row& row) {
    auto x = [&](u64 i) { return element<0>(args, row, i); };
    if (OP == LOGSUMEXP) {
        C max = least();
        for (u64 i = row.lane; i < row.width; i += row.lanes) max = Greater::of(max, x(i));
        C shift = finite_or_zero(combine<Greater>(max, row.lanes));
        return log(long_total(row, [&](u64 i) { return exp(x(i) - shift); })) + shift;
    }
    C mean = OP == NORM ? (C)0 : long_total(row, x) / (C)row.width;
    C scale = 1;
    if (OP != VAR) {
        C extreme = 0;
        for (u64 i = row.lane; i < row.width; i += row.lanes) extreme = Greater::of(extreme, fabs(x(i) - mean));
        scale = scale_of(combine<Greater>(extreme, row.lanes));
    }
    C inverse = 1 / scale;
    return finish<OP>(args, long_total(row, [&](u64 i) { C part = (x(i) - mean) * inverse; return part * part; }), scale);
}

template <int OP> DEVICE void statistic(const Rows& args) {
    each_row(args, [&](const Row& row) {
        C result;
        // In f64 a row would take all registers, and arithmetic is the limit anyway.
        if constexpr (sizeof(C) == 4) {
            result = args.cached ? cached_row<OP, 16 / sizeof(T)>(args, row) : long_row<OP>(args, row);
        } else {
            result = long_row<OP>(args, row);
        }
        if (row.out && row.lane == 0) *row.out = narrow<T>(result);
    });
}

#define STATISTIC(op, OP)                                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS, sizeof(C) < 8 ? 4 : 1)                                    \
        NAME(op, ELEMENT)(const __grid_constant__ Rows args) {                                                      \
        statistic<OP>(args);                                                                                        \
    }

STATISTIC(logsumexp, LOGSUMEXP)
STATISTIC(norm, NORM)
STATISTIC(std, STD)
STATISTIC(var, VAR)

#endif
