// Pooling: `max_pool_T`, `argmax_pool_T`, `avg_pool_T` and the gradients.
//
// A thread makes an element of the output. Forward it walks the elements of its window; backward it walks the windows that
// hold its element of the input, and adds up what they give it. So no two threads write one element, and every sum has one
// order. What a window holds is decided along each axis alone.

typedef Compute<T> C;

// By what averages divide.
#define FIXED 0
#define ELEMENTS 1
#define PADDED 2

// The windows along an axis: window o has its k-th element at stride·o + dilation·k − before.
struct Windows {
    i64 size;
    i64 kernel;
    i64 stride;
    i64 dilation;
    i64 before;
    i64 after;
    i64 count;
};

struct Pool {
    Nest<3> nest;  // the output's axes, batch, channels and three of space; strides of the output, the input, the positions
    void* out;
    const void* input;
    const i64* positions;
    Windows windows[3];
    i64 divisor;
    u32 counted;
    u32 narrow;  // whether 32 bits hold every index, place and offset
};

// An element of the output: where it lies, where its plane of the other operands begins, and its place in space.
template <class I> struct Spot {
    I out;
    I input;
    I positions;
    I at[3];
};

template <class I> struct UnsignedOf { typedef u64 type; };
template <> struct UnsignedOf<i32> { typedef u32 type; };

template <class I> DEVICE Spot<I> find(const Pool& args, u64 index) {
    typedef typename UnsignedOf<I>::type U;
    const Nest<3>& nest = args.nest;
    U rest = (U)index;
    I at[5];
#pragma unroll
    for (int axis = 4; axis > 0; axis--) {
        U next = divide(nest, axis, rest);
        at[axis] = (I)(rest - next * (U)nest.sizes[axis]);
        rest = next;
    }
    at[0] = (I)rest;
    Spot<I> spot;
    spot.out = 0;
#pragma unroll
    for (int axis = 0; axis < 5; axis++) spot.out += at[axis] * (I)nest.strides[0][axis];
    spot.input = at[0] * (I)nest.strides[1][0] + at[1] * (I)nest.strides[1][1];
    spot.positions = at[0] * (I)nest.strides[2][0] + at[1] * (I)nest.strides[2][1];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) spot.at[axis] = at[axis + 2];
    return spot;
}

// ⌈a / b⌉ for a ≥ 0.
template <class I> DEVICE I divided_up(I a, I b) { return b == 1 ? a : (a + b - 1) / b; }

// Calls `visit` with the row-major position and the value of each element of the window at `spot`.
template <class I, class F> DEVICE void walk(const Pool& args, const Spot<I>& spot, F visit) {
    const T* input = (const T*)args.input;
    I start[3];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        start[axis] = spot.at[axis] * (I)args.windows[axis].stride - (I)args.windows[axis].before;
    }
    const I d0 = (I)args.windows[0].dilation, d1 = (I)args.windows[1].dilation, d2 = (I)args.windows[2].dilation;
    const I n0 = (I)args.windows[0].size, n1 = (I)args.windows[1].size, n2 = (I)args.windows[2].size;
    const I end0 = start[0] + (I)args.windows[0].kernel * d0, end1 = start[1] + (I)args.windows[1].kernel * d1;
    const I end2 = start[2] + (I)args.windows[2].kernel * d2;
    for (I a = start[0]; a < end0; a += d0) {
        if (a < 0 || a >= n0) continue;
        for (I b = start[1]; b < end1; b += d1) {
            if (b < 0 || b >= n1) continue;
            I row = spot.input + a * (I)args.nest.strides[1][2] + b * (I)args.nest.strides[1][3];
            for (I c = start[2]; c < end2; c += d2) {
                if (c < 0 || c >= n2) continue;
                visit((a * n1 + b) * n2 + c, widen(input[row + c * (I)args.nest.strides[1][4]]));
            }
        }
    }
}

DEVICE bool is_nan(C x) { return x != x; }

template <class I> struct MaxPool {
    DEVICE void one(const Pool& args, const Spot<I>& spot) {
#if IS_FLOAT
        C best = -infinity();
#else
        C best = Limits<T>::min;
#endif
        walk(args, spot, [&](I, C x) { best = maximum(best, x); });
        ((T*)args.out)[spot.out] = narrow<T>(best);
    }
};

template <class I> struct ArgmaxPool {
    DEVICE void one(const Pool& args, const Spot<I>& spot) {
        I first = -1;
        C best = 0;
        walk(args, spot, [&](I position, C x) {
            if (first < 0 || ((x > best || is_nan(x)) && !is_nan(best))) {
                first = position;
                best = x;
            }
        });
        ((i64*)args.out)[spot.out] = first;
    }
};

#if IS_FLOAT

// Of window `window` along an axis, the elements of the input, or the places in the padded input.
template <class I> DEVICE I counted(const Windows& axis, I window, bool places) {
    I start = window * (I)axis.stride - (I)axis.before, d = (I)axis.dilation, kernel = (I)axis.kernel;
    I end = (I)axis.size + (places ? (I)axis.after : 0) - start;
    I until = end < 0 ? 0 : divided_up(end, d);
    I skipped = places || start >= 0 ? 0 : divided_up(-start, d);
    return (until < kernel ? until : kernel) - skipped;
}

template <class I> DEVICE C divisor(const Pool& args, I a, I b, I c) {
    if (args.counted == FIXED) return (C)args.divisor;
    bool places = args.counted == PADDED;
    return (C)(counted(args.windows[0], a, places) * counted(args.windows[1], b, places) *
               counted(args.windows[2], c, places));
}

template <class I> struct AvgPool {
    DEVICE void one(const Pool& args, const Spot<I>& spot) {
        C sum = 0;
        walk(args, spot, [&](I, C x) { sum += x; });
        ((T*)args.out)[spot.out] = narrow<T>(sum / divisor<I>(args, spot.at[0], spot.at[1], spot.at[2]));
    }
};

// The windows along an axis that may hold element `at`: all from `low` to `high`, if the dilation is 1.
template <class I> struct Range {
    I low, high, place;
};
template <class I> DEVICE Range<I> holding(const Windows& axis, I at) {
    Range<I> range;
    range.place = at + (I)axis.before;
    I last = range.place / (I)axis.stride, least = range.place - (I)axis.dilation * ((I)axis.kernel - 1);
    range.high = last < (I)axis.count ? last : (I)axis.count - 1;
    range.low = least <= 0 ? 0 : divided_up(least, (I)axis.stride);
    return range;
}
template <class I> DEVICE bool holds(const Windows& axis, const Range<I>& range, I window) {
    return axis.dilation == 1 || (range.place - window * (I)axis.stride) % (I)axis.dilation == 0;
}

// The sum of what the windows that hold the element at `spot` give it.
template <class I, class F> DEVICE void gather(const Pool& args, const Spot<I>& spot, F given) {
    Range<I> range[3];
#pragma unroll
    for (int axis = 0; axis < 3; axis++) range[axis] = holding<I>(args.windows[axis], spot.at[axis]);
    C sum = 0;
    for (I a = range[0].low; a <= range[0].high; a++) {
        if (!holds<I>(args.windows[0], range[0], a)) continue;
        for (I b = range[1].low; b <= range[1].high; b++) {
            if (!holds<I>(args.windows[1], range[1], b)) continue;
            for (I c = range[2].low; c <= range[2].high; c++) {
                if (holds<I>(args.windows[2], range[2], c)) sum += given(a, b, c);
            }
        }
    }
    ((T*)args.out)[spot.out] = narrow<T>(sum);
}

// Where an operand has the value of a window.
template <class I> DEVICE I place_of(const Pool& args, int operand, I plane, I a, I b, I c) {
    const i64* strides = args.nest.strides[operand];
    return plane + a * (I)strides[2] + b * (I)strides[3] + c * (I)strides[4];
}

template <class I> struct AvgPoolGrad {
    DEVICE void one(const Pool& args, const Spot<I>& spot) {
        const T* grad = (const T*)args.input;
        gather(args, spot, [&](I a, I b, I c) {
            return (C)widen(grad[place_of(args, 1, spot.input, a, b, c)]) / divisor<I>(args, a, b, c);
        });
    }
};

template <class I> struct MaxPoolGrad {
    DEVICE void one(const Pool& args, const Spot<I>& spot) {
        const T* grad = (const T*)args.input;
        i64 own = ((i64)spot.at[0] * args.windows[1].size + spot.at[1]) * args.windows[2].size + spot.at[2];
        gather(args, spot, [&](I a, I b, I c) {
            bool chosen = args.positions[place_of(args, 2, spot.positions, a, b, c)] == own;
            return chosen ? (C)widen(grad[place_of(args, 1, spot.input, a, b, c)]) : (C)0;
        });
    }
};

#endif

template <class I, template <class> class F> DEVICE void loop(const Pool& args) {
    u64 step = (u64)gridDim.x * THREADS;
    for (u64 index = (u64)blockIdx.x * THREADS + threadIdx.x; index < args.nest.count; index += step) {
        F<I>::one(args, find<I>(args, index));
    }
}

#define POOL(op, F)                          \
    KERNEL(op, Pool) {                       \
        if (args.narrow) loop<i32, F>(args); \
        else loop<i64, F>(args);             \
    }

POOL(max_pool, MaxPool)
POOL(argmax_pool, ArgmaxPool)
#if IS_FLOAT
POOL(avg_pool, AvgPool)
POOL(max_pool_grad, MaxPoolGrad)
POOL(avg_pool_grad, AvgPoolGrad)
#endif
