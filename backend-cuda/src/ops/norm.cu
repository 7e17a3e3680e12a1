// Normalisation and its gradients: `softmax_T`, `layer_norm_T`, … and `softmax_grad_T`, …
//
// How threads share rows is in rows.cuh. Operands are the output, x (or y), the weight or the gradient, and the bias or the
// weight; the parameter is ε.
//
// NaN needs no test: max skips it, but exp(NaN − max) is NaN, so the sum and every quotient are.

#if IS_FLOAT

#define SOFTMAX 0
#define LOG_SOFTMAX 1
#define LAYER_NORM 2
#define RMS_NORM 3
#define L2_NORMALIZE 4

// ---- Rows in registers -------------------------------------------------------------------------------------------

// 1/√ and its argument are rounded one after the other.
DEVICE C inverse_root(C x) { return (C)1 / sqrt(x); }

// Turns x into x̂, 0 past the end of the row; returns the factor r, or for the L2 norm its divisor.
template <int OP, int V> DEVICE C unit(const Rows& args, const Row& row, C (&x)[PER_LANE]) {
    C width = (C)row.width, epsilon = (C)args.parameter;
    if (OP == LAYER_NORM) {
        C mean = total(row, [&](int i) { return x[i]; }) / width;
        each<V>(row, [&](int slot, u64) {
#pragma unroll
            for (int j = 0; j < V; j++) x[slot + j] -= mean;
        });
    }
    C squares = total(row, [&](int i) { return x[i] * x[i]; });
    if (OP == L2_NORMALIZE) {
        C norm = maximum(sqrt(squares), epsilon);
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) x[i] = x[i] / norm;
        return norm;
    }
    C factor = inverse_root(squares / width + epsilon);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) x[i] *= factor;
    return factor;
}

template <int V> DEVICE void store(const Row& row, const C (&y)[PER_LANE]) {
    each<V>(row, [&](int slot, u64 index) {
        Pack<T, V> pack;
#pragma unroll
        for (int j = 0; j < V; j++) pack.lane[j] = narrow<T>(y[slot + j]);
        *(Pack<T, V>*)(row.out + index) = pack;
    });
}

template <int OP, bool BACKWARD, int V> DEVICE void cached_row(const Rows& args, const Row& row) {
    C x[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) x[i] = !BACKWARD && OP <= LOG_SOFTMAX ? least() : (C)0;
    with_input<0, V>(args, row, [&](int i, C value) { x[i] = value; });
    if constexpr (BACKWARD) {
        C g[PER_LANE];
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) g[i] = 0;
        with_input<1, V>(args, row, [&](int i, C value) { g[i] = value; });
        if (OP == SOFTMAX) {
            C sum = total(row, [&](int i) { return x[i] * g[i]; });
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) x[i] = (g[i] - sum) * x[i];
        } else if (OP == LOG_SOFTMAX) {
            C sum = total(row, [&](int i) { return g[i]; });
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) x[i] = g[i] - exp(x[i]) * sum;
        } else {
            C factor = unit<OP, V>(args, row, x);
            with_input<2, V>(args, row, [&](int i, C weight) { g[i] *= weight; });
            C along = total(row, [&](int i) { return g[i] * x[i]; });
            if (OP == L2_NORMALIZE) {
                // At or below ε the divisor is constant.
                if (factor <= (C)args.parameter) along = 0;
#pragma unroll
                for (int i = 0; i < PER_LANE; i++) x[i] = (g[i] - x[i] * along) / factor;
            } else {
                C width = (C)row.width;
                along = along / width;
                C mean = OP == LAYER_NORM ? total(row, [&](int i) { return g[i]; }) / width : (C)0;
#pragma unroll
                for (int i = 0; i < PER_LANE; i++) x[i] = ((g[i] - mean) - x[i] * along) * factor;
            }
        }
    } else if (OP <= LOG_SOFTMAX) {
        C max = x[0];
#pragma unroll
        for (int i = 1; i < PER_LANE; i++) max = Greater::of(max, x[i]);
        max = combine<Greater>(max, row.lanes);
        if (OP == SOFTMAX) {
            // Past the end of the row exp(−∞ − max) is 0.
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) x[i] = exp(x[i] - max);
            C sum = total(row, [&](int i) { return x[i]; });
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) x[i] = x[i] / sum;
        } else {
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) x[i] -= max;
            C log_sum = log(total(row, [&](int i) { return exp(x[i]); }));
#pragma unroll
            for (int i = 0; i < PER_LANE; i++) x[i] -= log_sum;
        }
    } else {
        unit<OP, V>(args, row, x);
        with_input<1, V>(args, row, [&](int i, C weight) { x[i] *= weight; });
        with_input<2, V>(args, row, [&](int i, C bias) { x[i] += bias; });
    }
    store<V>(row, x);
}

// ---- Other rows --------------------------------------------------------------------------------------------------

template <class F> DEVICE void write(const Rows& args, const Row& row, F value) {
    for (u64 i = row.lane; i < row.width; i += row.lanes) row.out[place<0>(args, i)] = narrow<T>(value(i));
}

template <int OP, bool BACKWARD> DEVICE void long_row(const Rows& args, const Row& row) {
    auto x = [&](u64 i) { return element<0>(args, row, i); };
    C width = (C)row.width, epsilon = (C)args.parameter;
    if constexpr (OP <= LOG_SOFTMAX) {
        if constexpr (BACKWARD) {
            auto g = [&](u64 i) { return element<1>(args, row, i); };
            C sum = long_total(row, [&](u64 i) { return OP == SOFTMAX ? x(i) * g(i) : g(i); });
            write(args, row, [&](u64 i) { return OP == SOFTMAX ? (g(i) - sum) * x(i) : g(i) - exp(x(i)) * sum; });
        } else {
            C max = least();
            for (u64 i = row.lane; i < row.width; i += row.lanes) max = Greater::of(max, x(i));
            max = combine<Greater>(max, row.lanes);
            C sum = long_total(row, [&](u64 i) { return exp(x(i) - max); });
            C log_sum = log(sum);
            write(args, row, [&](u64 i) { return OP == SOFTMAX ? exp(x(i) - max) / sum : (x(i) - max) - log_sum; });
        }
    } else {
        C mean = OP == LAYER_NORM ? long_total(row, x) / width : (C)0;
        auto centred = [&](u64 i) { return OP == LAYER_NORM ? x(i) - mean : x(i); };
        C squares = long_total(row, [&](u64 i) { C c = centred(i); return c * c; });
        C factor = OP == L2_NORMALIZE ? maximum(sqrt(squares), epsilon) : inverse_root(squares / width + epsilon);
        auto unit = [&](u64 i) { return OP == L2_NORMALIZE ? centred(i) / factor : centred(i) * factor; };
        if constexpr (BACKWARD) {
            auto g = [&](u64 i) {
                C own = element<1>(args, row, i);
                return args.inputs[2] ? own * element<2>(args, row, i) : own;
            };
            C along = long_total(row, [&](u64 i) { return g(i) * unit(i); });
            if (OP == L2_NORMALIZE) {
                if (factor <= epsilon) along = 0;
                write(args, row, [&](u64 i) { return (g(i) - unit(i) * along) / factor; });
            } else {
                along = along / width;
                C shift = OP == LAYER_NORM ? long_total(row, g) / width : (C)0;
                write(args, row, [&](u64 i) { return ((g(i) - shift) - unit(i) * along) * factor; });
            }
        } else {
            write(args, row, [&](u64 i) {
                C y = unit(i);
                if (args.inputs[1]) y *= element<1>(args, row, i);
                return args.inputs[2] ? y + element<2>(args, row, i) : y;
            });
        }
    }
}

// ---- The kernels -------------------------------------------------------------------------------------------------

template <int OP, bool BACKWARD> DEVICE void normalize(const Rows& args) {
    each_row(args, [&](const Row& row) {
        // In f64 a row would take all registers, and arithmetic is the limit anyway.
        if constexpr (sizeof(C) == 4) {
            if (args.cached) return cached_row<OP, BACKWARD, 16 / sizeof(T)>(args, row);
        }
        long_row<OP, BACKWARD>(args, row);
    });
}

// Three blocks of a multiprocessor where a row is all that there is to hold.
#define NORMALIZE(op, OP)                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, sizeof(C) < 8 ? 3 : 1)       \
        NAME(op, ELEMENT)(const __grid_constant__ Rows args) {                         \
        normalize<OP, false>(args);                                                    \
    }
#define GRADIENT(op, OP) KERNEL(op##_grad, Rows) { normalize<OP, true>(args); }

#if PART == 0
NORMALIZE(softmax, SOFTMAX)
NORMALIZE(log_softmax, LOG_SOFTMAX)
#elif PART == 1
NORMALIZE(layer_norm, LAYER_NORM)
NORMALIZE(rms_norm, RMS_NORM)
NORMALIZE(l2_normalize, L2_NORMALIZE)
#elif PART == 2
GRADIENT(softmax, SOFTMAX)
GRADIENT(log_softmax, LOG_SOFTMAX)
#else
GRADIENT(layer_norm, LAYER_NORM)
GRADIENT(rms_norm, RMS_NORM)
GRADIENT(l2_normalize, L2_NORMALIZE)
#endif

#endif
