// Reductions: `name_T` for each op of `ReduceOp` and `ArgReduceOp` that accepts T; `name_finish_T` is the second pass.
//
// A block owns a tile of `outputs` results and gives each of them `lanes` threads (outputs · lanes = 256). Where the
// reduced elements lie closer together than neighbouring results, the lanes of a result are neighbouring threads
// ("rows"); else neighbouring threads belong to neighbouring results ("columns"): either way a warp reads one run of
// memory. With few results, each is cut into `splits` runs that different blocks reduce; their accumulators go to
// `partial`, and the second pass merges them in order. No atomics: the same shape always adds in the same order.
//
// A float sum is compensated: an accumulator is a sum and the error of its roundings (Knuth's TwoSum), so it is nearly
// the correctly rounded sum whatever the order, well inside `summation_depth`.

typedef Compute<T> C;

struct Reduce {
    Nest<2> kept;     // operand 0 is the output, operand 1 the input at its first reduced element
    Nest<1> reduced;  // of the input, relative to it
    const void* x;
    void* out;
    void* partial;
    u64 splits;
    u32 lanes;
    u32 outputs;
    u32 columns;
};

#if IS_FLOAT
DEVICE bool is_finite(C x) { return x - x == 0; }
#endif

// ---- Accumulators: each has Acc, Out, identity, add an element, merge two, finish --------------------------------

#if IS_FLOAT
struct sum_op {
    struct Acc { C sum, error; };
    typedef T Out;
    DEVICE Acc identity() { return {0, 0}; }
    DEVICE Acc two_sum(C a, C b, C error) {
        C s = a + b, t = s - a;
        return {s, error + ((a - (s - t)) + (b - t))};
    }
    DEVICE Acc add(Acc acc, T x, u64) { return two_sum(acc.sum, widen(x), acc.error); }
    DEVICE Acc merge(Acc a, Acc b) { return two_sum(a.sum, b.sum, a.error + b.error); }
    // Once the sum is infinite or NaN, the error means nothing.
    DEVICE C total(Acc acc) { return is_finite(acc.error) ? acc.sum + acc.error : acc.sum; }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(total(acc)); }
};
struct mean_op : sum_op {
    DEVICE Out finish(Acc acc, u64 count) { return narrow<T>(total(acc) / (C)count); }
};
struct prod_op {
    typedef C Acc;
    typedef T Out;
    DEVICE Acc identity() { return 1; }
    DEVICE Acc add(Acc acc, T x, u64) { return acc * widen(x); }
    DEVICE Acc merge(Acc a, Acc b) { return a * b; }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(acc); }
};
#elif IS_INT
struct sum_op {
    typedef Limits<T>::Unsigned Acc;
    typedef T Out;
    DEVICE Acc identity() { return 0; }
    DEVICE Acc add(Acc acc, T x, u64) { return acc + (Acc)x; }
    DEVICE Acc merge(Acc a, Acc b) { return a + b; }
    DEVICE Out finish(Acc acc, u64) { return (T)acc; }
};
// 128 bits hold any sum of 2⁶³ elements; the quotient truncates towards zero.
struct mean_op {
    typedef __int128 Acc;
    typedef T Out;
    DEVICE Acc identity() { return 0; }
    DEVICE Acc add(Acc acc, T x, u64) { return acc + x; }
    DEVICE Acc merge(Acc a, Acc b) { return a + b; }
    DEVICE Out finish(Acc acc, u64 count) { return (T)(acc / (Acc)count); }
};
struct prod_op {
    typedef Limits<T>::Unsigned Acc;
    typedef T Out;
    DEVICE Acc identity() { return 1; }
    DEVICE Acc add(Acc acc, T x, u64) { return acc * (Acc)x; }
    DEVICE Acc merge(Acc a, Acc b) { return a * b; }
    DEVICE Out finish(Acc acc, u64) { return (T)acc; }
};
#endif

struct all_op {
    typedef u32 Acc;
    typedef bool Out;
    DEVICE Acc identity() { return 1; }
    DEVICE Acc add(Acc acc, T x, u64) { return acc & (widen(x) != (C)0); }
    DEVICE Acc merge(Acc a, Acc b) { return a & b; }
    DEVICE Out finish(Acc acc, u64) { return acc; }
};
struct any_op {
    typedef u32 Acc;
    typedef bool Out;
    DEVICE Acc identity() { return 0; }
    DEVICE Acc add(Acc acc, T x, u64) { return acc | (widen(x) != (C)0); }
    DEVICE Acc merge(Acc a, Acc b) { return a | b; }
    DEVICE Out finish(Acc acc, u64) { return acc; }
};

#if !IS_BOOL
#if IS_FLOAT
#define LEAST (-infinity())
#define GREATEST infinity()
#else
#define LEAST Limits<C>::min
#define GREATEST Limits<C>::max
#endif
struct max_op {
    typedef C Acc;
    typedef T Out;
    DEVICE Acc identity() { return LEAST; }
    DEVICE Acc add(Acc acc, T x, u64) { return maximum(acc, widen(x)); }
    DEVICE Acc merge(Acc a, Acc b) { return maximum(a, b); }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(acc); }
};
struct min_op {
    typedef C Acc;
    typedef T Out;
    DEVICE Acc identity() { return GREATEST; }
    DEVICE Acc add(Acc acc, T x, u64) { return minimum(acc, widen(x)); }
    DEVICE Acc merge(Acc a, Acc b) { return minimum(a, b); }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(acc); }
};

// The first NaN, else the first extreme. Merging compares positions, so any order gives the first.
template <bool GREATER> struct Arg {
    struct Acc { C value; u64 at; };
    typedef i64 Out;
    DEVICE Acc identity() { return {0, ~0ull}; }
    DEVICE Acc merge(Acc a, Acc b) {
        if (a.at == ~0ull) return b;
        if (b.at == ~0ull) return a;
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        bool beats = a_nan || b_nan ? a_nan && !b_nan : GREATER ? a.value > b.value : a.value < b.value;
        bool ties = a_nan || b_nan ? a_nan && b_nan : a.value == b.value;
        return beats || (ties && a.at < b.at) ? a : b;
    }
    DEVICE Acc add(Acc acc, T x, u64 at) { return merge(acc, {widen(x), at}); }
    DEVICE Out finish(Acc acc, u64) { return (i64)acc.at; }
};
typedef Arg<true> argmax_op;
typedef Arg<false> argmin_op;
#endif

// ---- The two passes ----------------------------------------------------------------------------------------------

template <int N> DEVICE i64 offset(const Nest<N>& nest, int operand, u64 index) {
    if (nest.mode == WIDE) {
        i64 at[N];
        locate(nest, index, at);
        return at[operand];
    }
    i32 at[N];
    locate(nest, (u32)index, at);
    return at[operand];
}

// Merges the accumulators of a result's lanes, which are `step` threads apart, into lane 0.
template <class R> DEVICE typename R::Acc merge_lanes(typename R::Acc acc, u32 lane, u32 lanes, u32 step) {
    __shared__ alignas(16) unsigned char memory[THREADS * sizeof(typename R::Acc)];
    typename R::Acc* shared = (typename R::Acc*)memory;
    u32 thread = threadIdx.x;
    shared[thread] = acc;
    for (u32 half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[thread] = acc = R::merge(acc, shared[thread + half * step]);
    }
    // The next tile overwrites the memory.
    __syncthreads();
    return acc;
}

// Adds elements start, start + step, … before end. Eight loads run ahead of the additions, which wait for one another.
template <class R>
DEVICE typename R::Acc accumulate(typename R::Acc acc, const T* x, i64 stride, u64 start, u64 end, u64 step) {
    const int AHEAD = 8;
    u64 at = start;
    for (; at + (AHEAD - 1) * step < end; at += AHEAD * step) {
        T ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) ahead[i] = x[(i64)(at + i * step) * stride];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) acc = R::add(acc, ahead[i], at + i * step);
    }
    for (; at < end; at += step) acc = R::add(acc, x[(i64)at * stride], at);
    return acc;
}

// This lane's share of elements begin .. end of a row that is one run of memory: whole 16-byte packs from the first
// aligned address on, then the elements before and after them.
template <class R>
DEVICE typename R::Acc accumulate_row(typename R::Acc acc, const T* x, u64 begin, u64 end, u64 lane, u64 lanes) {
    const int V = 16 / sizeof(T), AHEAD = V < 8 ? 8 / V : 1;
    u64 head = min(end - begin, (16 - (u64)(x + begin) % 16) % 16 / sizeof(T));
    u64 packs = (end - begin - head) / V / (AHEAD * lanes) * (AHEAD * lanes);
    const Pack<T, V>* run = (const Pack<T, V>*)(x + begin + head);
    for (u64 pack = lane; pack < packs; pack += AHEAD * lanes) {
        Pack<T, V> ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) ahead[i] = run[pack + i * lanes];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
#pragma unroll
            for (int j = 0; j < V; j++) acc = R::add(acc, ahead[i].lane[j], begin + head + (pack + i * lanes) * V + j);
        }
    }
    u64 rest = begin + head + packs * V;
#pragma unroll 1
    for (int part = 0; part < 2; part++) {
        acc = accumulate<R>(acc, x, 1, (part ? rest : begin) + lane, part ? end : begin + head, lanes);
    }
    return acc;
}

template <class R> DEVICE void first_pass(const Reduce& args) {
    typedef typename R::Acc Acc;
    u32 thread = threadIdx.x;
    u32 lane = args.columns ? thread / args.outputs : thread % args.lanes;
    u32 slot = args.columns ? thread % args.outputs : thread / args.lanes;
    u32 step = args.columns ? args.outputs : 1;
    u64 count = args.reduced.count, run = (count + args.splits - 1) / args.splits;
    u64 tiles = (args.kept.count + args.outputs - 1) / args.outputs;
    bool even = args.reduced.rank <= 1;
    i64 stride = args.reduced.strides[0][0];
    for (u64 work = blockIdx.x; work < tiles * args.splits; work += gridDim.x) {
        u64 split = work % args.splits, output = work / args.splits * args.outputs + slot;
        u64 begin = split * run, end = min(count, begin + run);
        Acc acc = R::identity();
        if (output < args.kept.count && begin < end) {
            const T* x = (const T*)args.x + offset(args.kept, 1, output);
            if (even && stride == 1) {
                acc = accumulate_row<R>(acc, x, begin, end, lane, args.lanes);
            } else if (even) {
                acc = accumulate<R>(acc, x, stride, begin + lane, end, args.lanes);
            } else {
                for (u64 at = begin + lane; at < end; at += args.lanes) {
                    acc = R::add(acc, x[offset(args.reduced, 0, at)], at);
                }
            }
        }
        acc = merge_lanes<R>(acc, lane, args.lanes, step);
        if (lane == 0 && output < args.kept.count) {
            if (args.splits == 1) {
                ((typename R::Out*)args.out)[offset(args.kept, 0, output)] = R::finish(acc, count);
            } else {
                ((Acc*)args.partial)[output * args.splits + split] = acc;
            }
        }
    }
}

// One block per result.
template <class R> DEVICE void second_pass(const Reduce& args) {
    typedef typename R::Acc Acc;
    for (u64 output = blockIdx.x; output < args.kept.count; output += gridDim.x) {
        const Acc* partial = (const Acc*)args.partial + output * args.splits;
        Acc acc = R::identity();
        for (u64 split = threadIdx.x; split < args.splits; split += THREADS) acc = R::merge(acc, partial[split]);
        acc = merge_lanes<R>(acc, threadIdx.x, THREADS, 1);
        if (threadIdx.x == 0) {
            ((typename R::Out*)args.out)[offset(args.kept, 0, output)] = R::finish(acc, args.reduced.count);
        }
    }
}

#define REDUCE(op)                                          \
    KERNEL(op, Reduce) { first_pass<op##_op>(args); }      \
    KERNEL(op##_finish, Reduce) { second_pass<op##_op>(args); }

REDUCE(all)
REDUCE(any)
#if !IS_BOOL
REDUCE(max)
REDUCE(mean)
REDUCE(min)
REDUCE(prod)
REDUCE(sum)
REDUCE(argmax)
REDUCE(argmin)
#endif
