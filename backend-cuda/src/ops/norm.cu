// Normalisation and its gradients: `softmax_T`, `layer_norm_T`, … and `softmax_grad_T`, …
//
// A row belongs to `lanes` threads: a warp for short rows (eight rows a block), the whole block otherwise. Rows of up to
// 32 elements a lane that are aligned runs are read once, into registers, 16 bytes at a time; others are read again in
// each pass, mostly from the caches. Sums go over a lane's elements, then over the lanes as a tree: the same order in
// every run, and no deeper than `summation_depth`. Rows that are not in registers carry the roundings of their sums
// along (Knuth's TwoSum).
//
// NaN needs no test: max skips it, but exp(NaN − max) is NaN, so the sum and every quotient are.

typedef Compute<T> C;

struct Normalize {
    Nest<4> kept;  // over rows; operands are the output, x (or y), the weight or the gradient, the bias or the weight
    Nest<4> row;   // over the elements of a row
    void* out;
    const void* inputs[3];  // null when absent
    f64 epsilon;
    u32 lanes;
    u32 packed;  // bit n: rows of operand n are aligned runs
    u32 cached;  // whether rows are held in registers
};

#if IS_FLOAT

#define SOFTMAX 0
#define LOG_SOFTMAX 1
#define LAYER_NORM 2
#define RMS_NORM 3
#define L2_NORMALIZE 4

DEVICE C least() { return -((C)1 / (C)0); }

// The place of an element in operand N, relative to its row.
template <int N> DEVICE i64 place(const Normalize& args, u64 index) {
    if (args.row.rank <= 1) return (i64)index * args.row.strides[N][0];
    if (args.row.mode == WIDE) {
        i64 at[4];
        locate(args.row, index, at);
        return at[N];
    }
    i32 at[4];
    locate(args.row, (u32)index, at);
    return at[N];
}

// ---- Reductions over the lanes of a row --------------------------------------------------------------------------

struct Add {
    DEVICE C of(C a, C b) { return a + b; }
};
struct Greater {
    DEVICE C of(C a, C b) { return b > a ? b : a; }
};

// Combines one value of each lane; every lane gets the result. All threads of the block call it together.
template <class F> DEVICE C combine(C value, u32 lanes) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = F::of(value, __shfl_xor_sync(0xffffffff, value, step));
    if (lanes == 32) return value;
    __shared__ C warps[THREADS / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    C pairs[THREADS / 64];
#pragma unroll
    for (int i = 0; i < THREADS / 64; i++) pairs[i] = F::of(warps[2 * i], warps[2 * i + 1]);
    return F::of(F::of(pairs[0], pairs[1]), F::of(pairs[2], pairs[3]));
}

// ---- Rows in registers -------------------------------------------------------------------------------------------

#define PER_LANE 32

// This thread's row: its memory and its lane.
struct Row {
    const T* inputs[3];
    T* out;
    u64 width;
    u32 lane, lanes;
};

// V neighbours from `index` on of input N.
template <int N, int V> DEVICE void load(const Normalize& args, const Row& row, u64 index, C (&to)[V]) {
    if ((args.packed >> (N + 1)) & 1) {
        Pack<T, V> pack = *(const Pack<T, V>*)(row.inputs[N] + index);
#pragma unroll
        for (int j = 0; j < V; j++) to[j] = widen(pack.lane[j]);
    } else {
#pragma unroll
        for (int j = 0; j < V; j++) to[j] = widen(row.inputs[N][(i64)(index + j) * args.row.strides[N + 1][0]]);
    }
}

// Calls f(slot, index) for the first slot of each group of V that lies inside the row.
template <int V, class F> DEVICE void each(const Row& row, F f) {
#pragma unroll
    for (int k = 0; k < PER_LANE / V; k++) {
        u64 index = ((u64)k * row.lanes + row.lane) * V;
        if (index < row.width) f(k * V, index);
    }
}

template <class F> DEVICE C total(const Row& row, F term) {
    C sum = 0;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) sum += term(i);
    return combine<Add>(sum, row.lanes);
}

// 1/√ and its argument are rounded one after the other.
DEVICE C inverse_root(C x) { return (C)1 / sqrt(x); }

// Turns x into x̂, 0 past the end of the row; returns the factor r, or for the L2 norm its divisor.
template <int OP, int V> DEVICE C unit(const Normalize& args, const Row& row, C (&x)[PER_LANE]) {
    C width = (C)row.width, epsilon = (C)args.epsilon;
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

template <int N, int V, class F> DEVICE void with_input(const Normalize& args, const Row& row, F f) {
    if (!args.inputs[N]) return;
    each<V>(row, [&](int slot, u64 index) {
        C other[V];
        load<N, V>(args, row, index, other);
#pragma unroll
        for (int j = 0; j < V; j++) f(slot + j, other[j]);
    });
}

template <int OP, bool GRADIENT, int V> DEVICE void cached_row(const Normalize& args, const Row& row) {
    C x[PER_LANE];
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) x[i] = !GRADIENT && OP <= LOG_SOFTMAX ? least() : (C)0;
    with_input<0, V>(args, row, [&](int i, C value) { x[i] = value; });
    if constexpr (GRADIENT) {
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
                if (factor <= (C)args.epsilon) along = 0;
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

template <int N> DEVICE C element(const Normalize& args, const Row& row, u64 index) {
    return widen(row.inputs[N][place<N + 1>(args, index)]);
}

DEVICE C two_sum(C a, C b, C& error) {
    C s = a + b, t = s - a;
    error += (a - (s - t)) + (b - t);
    return s;
}

template <class F> DEVICE C long_total(const Row& row, F term) {
    C sum = 0, error = 0;
    for (u64 i = row.lane; i < row.width; i += row.lanes) sum = two_sum(sum, term(i), error);
    // Once the sum is infinite or NaN, the error means nothing.
    return combine<Add>(error - error == 0 ? sum + error : sum, row.lanes);
}

template <class F> DEVICE void write(const Normalize& args, const Row& row, F value) {
    for (u64 i = row.lane; i < row.width; i += row.lanes) row.out[place<0>(args, i)] = narrow<T>(value(i));
}

template <int OP, bool GRADIENT> DEVICE void long_row(const Normalize& args, const Row& row) {
    auto x = [&](u64 i) { return element<0>(args, row, i); };
    C width = (C)row.width, epsilon = (C)args.epsilon;
    if constexpr (OP <= LOG_SOFTMAX) {
        if constexpr (GRADIENT) {
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
        if constexpr (GRADIENT) {
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

template <int OP, bool GRADIENT> DEVICE void normalize(const Normalize& args) {
    u32 rows = THREADS / args.lanes;
    u64 count = args.kept.count;
    // Rows past the last one have no elements; their threads stay for the reductions.
    for (u64 first = (u64)blockIdx.x * rows; first < count; first += (u64)gridDim.x * rows) {
        u64 index = first + threadIdx.x / args.lanes;
        Row row = {{nullptr, nullptr, nullptr}, nullptr, 0, threadIdx.x % args.lanes, args.lanes};
        if (index < count) {
            i64 at[4];
            if (args.kept.mode == WIDE) {
                locate(args.kept, index, at);
            } else {
                i32 narrow_at[4];
                locate(args.kept, (u32)index, narrow_at);
#pragma unroll
                for (int n = 0; n < 4; n++) at[n] = narrow_at[n];
            }
            row.width = args.row.count;
            row.out = (T*)args.out + at[0];
#pragma unroll
            for (int n = 0; n < 3; n++) row.inputs[n] = (const T*)args.inputs[n] + at[n + 1];
        }
        // In f64 a row would take all registers, and arithmetic is the limit anyway.
        if constexpr (sizeof(C) == 4) {
            if (args.cached) {
                cached_row<OP, GRADIENT, 16 / sizeof(T)>(args, row);
                continue;
            }
        }
        long_row<OP, GRADIENT>(args, row);
    }
}

#define NORMALIZE(op, OP)                                        \
    KERNEL(op, Normalize) { normalize<OP, false>(args); }        \
    KERNEL(op##_grad, Normalize) { normalize<OP, true>(args); }

NORMALIZE(softmax, SOFTMAX)
NORMALIZE(log_softmax, LOG_SOFTMAX)
NORMALIZE(layer_norm, LAYER_NORM)
NORMALIZE(rms_norm, RMS_NORM)
NORMALIZE(l2_normalize, L2_NORMALIZE)

#endif
