// Convolutions without a library, `conv_T` and `conv_transpose_T`: those in which a channel of the result meets few channels,
// depthwise ones above all. Each element is summed by one thread, tap after tap, in one order.
//
// Square kernels of 3 and 5 taps have kernels of their own, `conv_three_T`, `conv_five_T` and so for the transpose: a thread has
// a column of ROWS elements, so that each element of the input is loaded K times rather than K·K times, always beside those
// of its neighbours. What is left is the memory.
//
// `conv_transpose_check_T` tells whether a weight is infinite or NaN: libraries meet it with zeros where there are no taps,
// and the sums are then made again here. `conv_grad_weight_check_T` does so for both operands, and `conv_grad_weight_T` then
// sums an element by a warp.

#define ROWS 8

struct Conv {
    Nest<1> places;  // of the output: batch, group, channel of the group, space; ROWS rows are one where columns are summed
    void* out;
    const void* in;
    const void* weight;
    const void* bias;        // null when absent
    u32* flag;               // null, or what says whether there is anything to do
    u64 group_in;            // input channels of a group
    i64 out_strides[5];      // batch, channel, space
    i64 in_strides[5];
    i64 weight_strides[6];   // group, output and input channel, taps
    i64 bias_stride;
    i64 out_size[3];
    i64 in_size[3];
    i64 kernel[3];
    i64 stride[3];
    i64 dilation[3];
    i64 before[3];
    u64 activation;
};

struct ConvCheck {
    u32* flag;
    const void* starts[2];  // aligned to 16 bytes
    u64 counts[2];
};

#if IS_FLOAT

// Where an item lies, and its operands begin.
struct Place {
    i64 at[3];
    T* out;
    const T* in;
    const T* weight;
    C bias;
};

template <class U> DEVICE Place place(const Conv& args, U rest) {
    i64 at[6];
#pragma unroll
    for (int axis = 5; axis > 0; axis--) {
        U next = divide(args.places, axis, rest);
        at[axis] = rest - next * (U)args.places.sizes[axis];
        rest = next;
    }
    const i64 batch = rest, group = at[1], own = at[2];
    const i64 channel = group * (i64)args.places.sizes[2] + own;
    Place place = {{at[3], at[4], at[5]}};
    place.out = (T*)args.out + batch * args.out_strides[0] + channel * args.out_strides[1];
    place.in = (const T*)args.in + batch * args.in_strides[0] + group * (i64)args.group_in * args.in_strides[1];
    place.weight = (const T*)args.weight + group * args.weight_strides[0] + own * args.weight_strides[1];
    place.bias = args.bias ? widen(((const T*)args.bias)[channel * args.bias_stride]) : (C)0;
    return place;
}

// One copy of them, not one for each row of a strip.
static __device__ __noinline__ C gelu_of(C x, bool by_tanh) { return by_tanh ? gelu_tanh_stable(x) : gelu_stable(x); }

DEVICE T finish(const Conv& args, const Place& place, C sum) {
    sum += place.bias;
    if (args.activation == 1) sum = relu_of(sum);
    if (args.activation > 1) sum = gelu_of(sum, args.activation == 3);
    return narrow<T>(sum);
}

// The input element that a tap of an axis meets, or one outside.
template <bool BACK> DEVICE i64 meet(const Conv& args, int axis, i64 at, i64 tap) {
    if (!BACK) return at * args.stride[axis] + tap * args.dilation[axis] - args.before[axis];
    i64 ahead = at + args.before[axis] - tap * args.dilation[axis];
    i64 position = ahead / args.stride[axis];
    return ahead >= 0 && position * args.stride[axis] == ahead ? position : -1;
}

// One element. Outside of the input of a convolution lie zeros, which are terms; a transpose has no terms there.
template <bool BACK> DEVICE void element(const Conv& args, const Place& place) {
    const T* weight = place.weight;
    const T* in = place.in;
    const i64* steps = args.in_strides + 2;
    const i64* taps = args.weight_strides + 3;
    C sum = 0;
    for (u64 channel = 0; channel < args.group_in; channel++) {
        for (i64 a = 0; a < args.kernel[0]; a++) {
            i64 x = meet<BACK>(args, 0, place.at[0], a);
            for (i64 b = 0; b < args.kernel[1]; b++) {
                i64 y = meet<BACK>(args, 1, place.at[1], b);
                for (i64 c = 0; c < args.kernel[2]; c++) {
                    i64 z = meet<BACK>(args, 2, place.at[2], c);
                    bool inside = (u64)x < (u64)args.in_size[0] && (u64)y < (u64)args.in_size[1] &&
                                  (u64)z < (u64)args.in_size[2];
                    if (BACK && !inside) continue;
                    C value = inside ? (C)widen(in[x * steps[0] + y * steps[1] + z * steps[2]]) : (C)0;
                    sum = fused(value, widen(weight[a * taps[0] + b * taps[1] + c * taps[2]]), sum);
                }
            }
        }
        in += args.in_strides[1];
        weight += args.weight_strides[2];
    }
    const i64* to = args.out_strides + 2;
    place.out[place.at[0] * to[0] + place.at[1] * to[1] + place.at[2] * to[2]] = finish(args, place, sum);
}

// ROWS elements of a column, of one input channel whose rows are runs, in a plane whose sizes fit in 32 bits with ease. A
// transpose with stride 1 is a convolution with the kernel turned around.
template <int K, int S, bool BACK> DEVICE void column(const Conv& args, const Place& place) {
    C taps[K][K];
#pragma unroll
    for (int a = 0; a < K; a++) {
#pragma unroll
        for (int b = 0; b < K; b++) {
            int from = BACK ? K - 1 - a : a, at = BACK ? K - 1 - b : b;
            taps[a][b] = widen(place.weight[from * args.weight_strides[4] + at * args.weight_strides[5]]);
        }
    }
    const i32 height = (i32)args.in_size[1], width = (i32)args.in_size[2];
    const i32 first = (i32)place.at[1] * ROWS;
    const i32 top = first * S - (i32)(BACK ? K - 1 - args.before[1] : args.before[1]);
    const i32 left = (i32)place.at[2] * S - (i32)(BACK ? K - 1 - args.before[2] : args.before[2]);
    bool inside[K];
#pragma unroll
    for (int b = 0; b < K; b++) inside[b] = (u32)(left + b) < (u32)width;
    const T* line = place.in + (i64)top * args.in_strides[3] + left;
    C sums[ROWS];
#pragma unroll
    for (int row = 0; row < ROWS; row++) sums[row] = 0;
#pragma unroll
    for (int i = 0; i < S * (ROWS - 1) + K; i++) {
        const bool within = (u32)(top + i) < (u32)height;
#pragma unroll
        for (int b = 0; b < K; b++) {
            const bool met = within && inside[b];
            const C value = met ? (C)widen(line[b]) : (C)0;
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                const int a = i - S * row;
                if (a < 0 || a >= K) continue;
                if (!BACK || met) sums[row] = fused(value, taps[a][b], sums[row]);
            }
        }
        line += args.in_strides[3];
    }
    T* out = place.out + (i64)first * args.out_strides[3] + place.at[2] * args.out_strides[4];
    const i32 rows = (i32)args.out_size[1] - first;
#pragma unroll
    for (int row = 0; row < ROWS; row++) {
        if (row < rows) *out = finish(args, place, sums[row]);
        out += args.out_strides[3];
    }
}

template <class F> DEVICE void each(const Conv& args, F run) {
    for (u64 index = blockIdx.x * (u64)THREADS + threadIdx.x; index < args.places.count;
         index += gridDim.x * (u64)THREADS) {
        run(args.places.mode == NARROW ? place(args, (u32)index) : place(args, index));
    }
}

template <int K> DEVICE void columns(const Conv& args) {
    if (args.stride[1] == 1) {
        each(args, [&](const Place& place) { column<K, 1, false>(args, place); });
    } else {
        each(args, [&](const Place& place) { column<K, 2, false>(args, place); });
    }
}

KERNEL(conv, Conv) {
    each(args, [&](const Place& place) { element<false>(args, place); });
}

KERNEL(conv_three, Conv) { columns<3>(args); }

KERNEL(conv_five, Conv) { columns<5>(args); }

KERNEL(conv_transpose, Conv) {
    if (args.flag && *args.flag == 0) return;
    each(args, [&](const Place& place) { element<true>(args, place); });
}

KERNEL(conv_transpose_three, Conv) {
    each(args, [&](const Place& place) { column<3, 1, true>(args, place); });
}

KERNEL(conv_transpose_five, Conv) {
    each(args, [&](const Place& place) { column<5, 1, true>(args, place); });
}

KERNEL(conv_transpose_check, Conv) {
    const u64 space = args.kernel[0] * args.kernel[1] * args.kernel[2];
    const u64 own = args.places.sizes[2], count = args.places.sizes[1] * own * args.group_in * space;
    for (u64 index = blockIdx.x * (u64)THREADS + threadIdx.x; index < count; index += gridDim.x * (u64)THREADS) {
        u64 rest = index;
        i64 at = 0;
        const u64 sizes[6] = {0, own, args.group_in, (u64)args.kernel[0], (u64)args.kernel[1],
                              (u64)args.kernel[2]};
#pragma unroll
        for (int axis = 5; axis > 0; axis--) {
            u64 next = rest / sizes[axis];
            at += (i64)(rest - next * sizes[axis]) * args.weight_strides[axis];
            rest = next;
        }
        C value = widen(((const T*)args.weight)[at + (i64)rest * args.weight_strides[0]]);
        if (!(value - value == 0)) *args.flag = 1;
    }
}

KERNEL(conv_grad_weight_check, ConvCheck) {
    const u64 lanes = gridDim.x * (u64)THREADS, lane = blockIdx.x * (u64)THREADS + threadIdx.x;
    constexpr u64 WIDTH = 16 / sizeof(T);
    bool finite = true;
    for (int operand = 0; operand < 2; operand++) {
        const T* values = (const T*)args.starts[operand];
        const u64 count = args.counts[operand], vectors = count / WIDTH;
        for (u64 index = lane; index < vectors; index += lanes) {
            union {
                uint4 bits;
                T values[WIDTH];
            } vector;
            vector.bits = ((const uint4*)values)[index];
#pragma unroll
            for (int i = 0; i < WIDTH; i++) {
                const C value = widen(vector.values[i]);
                finite &= value - value == 0;
            }
        }
        for (u64 index = vectors * WIDTH + lane; index < count; index += lanes) {
            const C value = widen(values[index]);
            finite &= value - value == 0;
        }
    }
    if (!finite) *args.flag = 1;
}

// The sum over batches and positions of y, which has the place of the weight, in an order that depends on the sizes alone.
KERNEL(conv_grad_weight, Conv) {
    if (*args.flag == 0) return;
    const u64 space = args.kernel[0] * args.kernel[1] * args.kernel[2], terms = args.group_in * space;
    const u32 lane = threadIdx.x % 32;
    for (u64 index = (blockIdx.x * (u64)THREADS + threadIdx.x) / 32; index < args.places.count;
         index += gridDim.x * (u64)THREADS / 32) {
        u64 rest = index;
        i64 at[6];
#pragma unroll
        for (int axis = 5; axis > 0; axis--) {
            u64 next = divide(args.places, axis, rest);
            at[axis] = rest - next * args.places.sizes[axis];
            rest = next;
        }
        const i64 group = rest, channel = group * (i64)args.places.sizes[1] + at[1];
        const T* y = (const T*)args.weight + channel * args.weight_strides[1];
        const T* x = (const T*)args.in + (group * (i64)args.places.sizes[2] + at[2]) * args.in_strides[1];
        C sum = 0;
        for (u64 term = lane; term < terms; term += 32) {
            const u64 batch = term / space;
            u64 place = term - batch * space;
            i64 from = batch * args.in_strides[0], to = batch * args.weight_strides[2];
            bool inside = true;
#pragma unroll
            for (int axis = 2; axis >= 0; axis--) {
                const u64 next = place / args.kernel[axis];
                const i64 position = place - next * args.kernel[axis];
                const i64 met = meet<false>(args, axis, position, at[3 + axis]);
                inside &= (u64)met < (u64)args.in_size[axis];
                from += met * args.in_strides[2 + axis];
                to += position * args.weight_strides[3 + axis];
                place = next;
            }
            sum = fused(inside ? (C)widen(x[from]) : (C)0, (C)widen(y[to]), sum);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        const i64* steps = args.out_strides;
        const i64 out = channel * steps[0] + at[2] * steps[1] + at[3] * steps[2] + at[4] * steps[3] + at[5] * steps[4];
        if (lane == 0) ((T*)args.out)[out] = narrow<T>(sum);
    }
}

#endif
