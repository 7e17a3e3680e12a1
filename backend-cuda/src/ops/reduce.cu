// Reductions: `name_T` for each op of `ReduceOp` and `ArgReduceOp` that accepts T; `name_finish_T` is the second pass.
//
// A block owns a tile of results and gives each of them `lanes` threads. Where the reduced elements lie closer together
// than neighbouring results ("rows"), the lanes of a result are neighbouring threads, which read packs of 16 bytes along
// the row; else ("columns") neighbouring threads belong to neighbouring results, and read packs of a few results each:
// either way a warp reads one run of memory. With few results, each is cut into `splits` that different blocks reduce;
// their accumulators go to `partial`, and the second pass merges them. No atomics: the same shape always adds in the
// same order.
//
// What a thread loads at once is added as a tree, and a float sum of these is compensated: an accumulator is a sum and the
// error of its roundings (Knuth's TwoSum). So an element passes through log₂(WIDTH · AHEAD) roundings and one more, whatever
// the count: well inside `summation_depth`.

typedef Compute<T> C;

// The results that a thread of columns takes at most: 16 bytes of them, 8 of bytes.
#define WIDTH (sizeof(T) == 1 ? 8 : 16 / (int)sizeof(T))

struct Reduce {
    const void* x;
    void* out;
    void* partial;  // an accumulator for each split and result
    u64 count;      // elements of a result
    u64 results;
    u64 splits;
    u64 run;           // visits of a split
    i64 out_step;      // from a result of a group to the next
    u32 lanes;         // threads of a result
    u32 slots;         // results, or groups of them, of a block: lanes · slots is the number of threads
    u32 columns;       // 0 for rows, else the results of a thread: 1 or WIDTH
    u32 packed;        // whether rows are read in packs; a nest of several axes then counts packs along the last
    u32 finish_lanes;  // threads of a result in the second pass
    Nest<2> kept;      // operand 0 is the output, operand 1 the input at its first reduced element; groups of columns
    Nest<1> reduced;   // of the input, relative to it
};

#if IS_FLOAT
DEVICE bool is_finite(C x) { return x - x == 0; }
#endif

// ---- Accumulators ------------------------------------------------------------------------------------------------
//
// Each has Acc and Out, the identity, merging two, finishing. Those that ask for positions add an element and its position;
// the others make a Term of an element, which is an accumulator too, or what a compensated sum adds.

template <class A, class B> struct Fold {
    typedef A Acc;
    typedef A Term;
    typedef B Out;
    static const bool positions = false, compensated = false;
};

#if IS_FLOAT
struct Sums { C sum, error; };
struct sum_op {
    typedef Sums Acc;
    typedef C Term;
    typedef T Out;
    static const bool positions = false, compensated = true;
    DEVICE Acc identity() { return {0, 0}; }
    DEVICE Term term(T x) { return widen(x); }
    DEVICE Acc two_sum(C a, C b, C error) {
        C s = a + b, t = s - a;
        return {s, error + ((a - (s - t)) + (b - t))};
    }
    DEVICE Acc add(Acc acc, Term x) { return two_sum(acc.sum, x, acc.error); }
    DEVICE Acc merge(Acc a, Acc b) { return two_sum(a.sum, b.sum, a.error + b.error); }
    // Once the sum is infinite or NaN, the error means nothing.
    DEVICE C total(Acc acc) { return is_finite(acc.error) ? acc.sum + acc.error : acc.sum; }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(total(acc)); }
};
struct mean_op : sum_op {
    DEVICE Out finish(Acc acc, u64 count) { return narrow<T>(total(acc) / (C)count); }
};
struct prod_op : Fold<C, T> {
    DEVICE Acc identity() { return 1; }
    DEVICE Term term(T x) { return widen(x); }
    DEVICE Acc merge(Acc a, Acc b) { return a * b; }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(acc); }
};
#elif IS_INT
struct sum_op : Fold<Limits<T>::Unsigned, T> {
    DEVICE Acc identity() { return 0; }
    DEVICE Term term(T x) { return (Acc)x; }
    DEVICE Acc merge(Acc a, Acc b) { return a + b; }
    DEVICE Out finish(Acc acc, u64) { return (T)acc; }
};
// 128 bits hold any sum of 2⁶³ elements; the quotient truncates towards zero.
struct mean_op : Fold<__int128, T> {
    DEVICE Acc identity() { return 0; }
    DEVICE Term term(T x) { return x; }
    DEVICE Acc merge(Acc a, Acc b) { return a + b; }
    DEVICE Out finish(Acc acc, u64 count) { return (T)(acc / (Acc)count); }
};
struct prod_op : Fold<Limits<T>::Unsigned, T> {
    DEVICE Acc identity() { return 1; }
    DEVICE Term term(T x) { return (Acc)x; }
    DEVICE Acc merge(Acc a, Acc b) { return a * b; }
    DEVICE Out finish(Acc acc, u64) { return (T)acc; }
};
#endif

struct all_op : Fold<u32, bool> {
    DEVICE Acc identity() { return 1; }
    DEVICE Term term(T x) { return widen(x) != (C)0; }
    DEVICE Acc merge(Acc a, Acc b) { return a & b; }
    DEVICE Out finish(Acc acc, u64) { return acc; }
};
struct any_op : Fold<u32, bool> {
    DEVICE Acc identity() { return 0; }
    DEVICE Term term(T x) { return widen(x) != (C)0; }
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
struct max_op : Fold<C, T> {
    DEVICE Acc identity() { return LEAST; }
    DEVICE Term term(T x) { return widen(x); }
    DEVICE Acc merge(Acc a, Acc b) { return maximum(a, b); }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(acc); }
};
struct min_op : Fold<C, T> {
    DEVICE Acc identity() { return GREATEST; }
    DEVICE Term term(T x) { return widen(x); }
    DEVICE Acc merge(Acc a, Acc b) { return minimum(a, b); }
    DEVICE Out finish(Acc acc, u64) { return narrow<T>(acc); }
};

// The first NaN, else the first extreme. Merging compares positions, so any order gives the first.
template <bool GREATER> struct Arg {
    struct Acc { C value; u64 at; };
    typedef i64 Out;
    static const bool positions = true, compensated = false;
    DEVICE Acc identity() { return {GREATER ? LEAST : GREATEST, ~0ull}; }
    DEVICE Acc merge(Acc a, Acc b) {
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        bool beats = a_nan || b_nan ? a_nan && !b_nan : GREATER ? a.value > b.value : a.value < b.value;
        bool ties = a_nan || b_nan ? a_nan && b_nan : a.value == b.value;
        return beats || (ties && a.at < b.at) ? a : b;
    }
    // A thread meets positions in rising order, so only what is greater (less) or the first NaN moves the extreme. A
    // result whose elements all equal the identity has not moved: its first position is 0.
    DEVICE Acc add(Acc acc, T x, u64 at) {
        C value = widen(x);
        bool beats = GREATER ? !(value <= acc.value) : !(value >= acc.value);
        return beats && acc.value == acc.value ? Acc{value, at} : acc;
    }
    DEVICE Out finish(Acc acc, u64) { return acc.at == ~0ull ? 0 : (i64)acc.at; }
};
typedef Arg<true> argmax_op;
typedef Arg<false> argmin_op;
#endif

// ---- The two passes ----------------------------------------------------------------------------------------------

// The offset of an operand at a visit of a nest of several axes: a call, since it is long.
template <int N> static __device__ __noinline__ i64 far_offset(const Nest<N>& nest, int operand, u64 index) {
    if (nest.mode == WIDE) {
        i64 at[N];
        locate(nest, index, at);
        return at[operand];
    }
    i32 at[N];
    locate(nest, (u32)index, at);
    return at[operand];
}
template <int N> DEVICE i64 offset(const Nest<N>& nest, int operand, u64 index) {
    return nest.rank <= 1 ? (i64)index * nest.strides[operand][0] : far_offset(nest, operand, index);
}

// The offsets at visits first, first + step, …, none after `last`; where FAR, of several axes.
template <bool FAR, int M> DEVICE void offsets(const Nest<1>& nest, i64 stride, u64 first, u64 step, u64 last, i64 (&at)[M]) {
    if (FAR && nest.mode != WIDE) {
        i64 all[M][1];
        place(nest, nest.rank, first, (u32)step, last, all);
#pragma unroll
        for (int m = 0; m < M; m++) at[m] = all[m][0];
    } else {
#pragma unroll
        for (int m = 0; m < M; m++) {
            u64 visit = min(first + m * step, last);
            at[m] = FAR ? far_offset(nest, 0, visit) : (i64)visit * stride;
        }
    }
}

// Where a result is written: the kept nest counts groups of `width` of them.
DEVICE i64 result_at(const Reduce& args, u64 result, u32 width) {
    return width == 1 ? offset(args.kept, 0, result)
                      : offset(args.kept, 0, result / width) + (i64)(result % width) * args.out_step;
}

template <class E> DEVICE E shuffle_down(E x, u32 by) {
    const int words = (sizeof(E) + 3) / 4;
    union { E value; u32 word[words]; } pun;
    pun.word[words - 1] = 0;
    pun.value = x;
#pragma unroll
    for (int i = 0; i < words; i++) pun.word[i] = __shfl_down_sync(~0u, pun.word[i], by);
    return pun.value;
}

// Merges the accumulators of `lanes` neighbouring threads, a power of two, into the first of them.
template <class R> DEVICE typename R::Acc merge_row(typename R::Acc acc, u32 lanes) {
    __shared__ alignas(16) unsigned char memory[THREADS / 32 * sizeof(typename R::Acc)];
    typename R::Acc* warps = (typename R::Acc*)memory;
    for (u32 half = min(lanes, 32) / 2; half > 0; half /= 2) acc = R::merge(acc, shuffle_down(acc, half));
    if (lanes > 32) {
        u32 warp = threadIdx.x / 32, count = lanes / 32, lane = threadIdx.x % 32;
        if (lane == 0) warps[warp] = acc;
        __syncthreads();
        if (warp % count == 0) {
            acc = warps[warp + lane % count];
            for (u32 half = count / 2; half > 0; half /= 2) acc = R::merge(acc, shuffle_down(acc, half));
        }
    }
    return acc;
}

// Merges the accumulators of `lanes` threads, a power of two, that are `step` apart, for W results each. Lane 0 finds
// the merged ones of result j at [j · THREADS].
template <class R, int W>
DEVICE const typename R::Acc* merge_columns(typename R::Acc (&acc)[W], u32 lane, u32 lanes, u32 step) {
    __shared__ alignas(16) unsigned char memory[W * THREADS * sizeof(typename R::Acc)];
    typename R::Acc* mine = (typename R::Acc*)memory + threadIdx.x;
#pragma unroll
    for (int j = 0; j < W; j++) mine[j * THREADS] = acc[j];
    for (u32 half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) {
#pragma unroll 1
            for (int j = 0; j < W * THREADS; j += THREADS) mine[j] = R::merge(mine[j], mine[j + half * step]);
        }
    }
    return mine;
}

// The results of a first pass: final, or this split's share.
template <class R> DEVICE void deliver(const Reduce& args, typename R::Acc acc, u64 result, u64 split, u32 width) {
    if (args.splits == 1) {
        ((typename R::Out*)args.out)[result_at(args, result, width)] = R::finish(acc, args.count);
    } else {
        ((typename R::Acc*)args.partial)[split * args.results + result] = acc;
    }
}

template <class R> DEVICE typename R::Term join(typename R::Term a, typename R::Term b) {
    if constexpr (R::compensated) return a + b;
    else return R::merge(a, b);
}

// The terms as a tree.
template <class R, int K> DEVICE typename R::Term tree(const typename R::Term* terms) {
    if constexpr (K == 1) return terms[0];
    else return join<R>(tree<R, K / 2>(terms), tree<R, K / 2>(terms + K / 2));
}
template <class R, int K> DEVICE typename R::Acc add_terms(typename R::Acc acc, const typename R::Term (&terms)[K]) {
    if constexpr (R::compensated) return R::add(acc, tree<R, K>(terms));
    else return R::merge(acc, tree<R, K>(terms));
}

// What leaves a sum or another fold as it is.
template <class R> DEVICE typename R::Term nothing() {
    if constexpr (R::compensated) return 0;
    else return R::identity();
}

// The loads that run ahead of the additions, which wait for one another; twice as many for f32 sums of columns,
// which have the registers.
#define AHEAD 4

// Adds W neighbouring results' elements at visits start, start + step, … before end. FAR visits are of several axes.
template <class R, int W, bool FAR>
DEVICE void accumulate(typename R::Acc (&acc)[W], const Reduce& args, const T* x, u64 start, u64 end, u64 step) {
    const int N = W > 1 && !FAR && R::compensated && sizeof(T) == 4 ? 2 * AHEAD : AHEAD;
    i64 stride = args.reduced.strides[0][0];
    for (u64 at = start; at < end; at += N * step) {
        // Past the end the last one is read again, and left out below.
        i64 places[N];
        offsets<FAR>(args.reduced, stride, at, step, end - 1, places);
        Words<sizeof(T) * W> ahead[N];
#pragma unroll
        for (int i = 0; i < N; i++) ahead[i] = *(const Words<sizeof(T) * W>*)(x + places[i]);
#pragma unroll
        for (int j = 0; j < W; j++) {
            if constexpr (R::positions) {
#pragma unroll
                for (int i = 0; i < N; i++) {
                    if (at + i * step < end) acc[j] = R::add(acc[j], lane_of<T>(ahead[i], j), at + i * step);
                }
            } else {
                typename R::Term terms[N];
#pragma unroll
                for (int i = 0; i < N; i++) {
                    terms[i] = at + i * step < end ? R::term(lane_of<T>(ahead[i], j)) : nothing<R>();
                }
                acc[j] = add_terms<R>(acc[j], terms);
            }
        }
    }
}

// Adds packs start, start + step, … before end, along the row; `first` is the position of the first pack's elements.
template <class R, bool FAR>
DEVICE void accumulate_packs(typename R::Acc (&acc)[1], const Reduce& args, const T* x, u64 first, u64 start, u64 end,
                             u64 step) {
    const int V = 16 / sizeof(T);
    for (u64 at = start; at < end; at += AHEAD * step) {
        i64 places[AHEAD];
        offsets<FAR>(args.reduced, V, at, step, end - 1, places);
        Words<16> ahead[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) ahead[i] = *(const Words<16>*)(x + places[i]);
        if constexpr (R::positions) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (at + i * step < end) {
#pragma unroll
                    for (int j = 0; j < V; j++) acc[0] = R::add(acc[0], lane_of<T>(ahead[i], j), first + (at + i * step) * V + j);
                }
            }
        } else {
            typename R::Term terms[AHEAD * V];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                bool inside = at + i * step < end;
#pragma unroll
                for (int j = 0; j < V; j++) terms[i * V + j] = inside ? R::term(lane_of<T>(ahead[i], j)) : nothing<R>();
            }
            acc[0] = add_terms<R>(acc[0], terms);
        }
    }
}

// Visits begin .. end of the results of a tile whose reduced elements lie closest together.
template <class R, bool FAR> DEVICE void reduce_rows(const Reduce& args, u64 tile, u64 split, u64 begin, u64 end) {
    const int V = 16 / sizeof(T);
    u32 lane = threadIdx.x % args.lanes;
    u64 result = tile * args.slots + threadIdx.x / args.lanes;
    typename R::Acc acc[1] = {R::identity()};
    if (result < args.results && begin < end) {
        const T* x = (const T*)args.x + offset(args.kept, 1, result);
        if constexpr (FAR) {
            if (args.packed) accumulate_packs<R, true>(acc, args, x, 0, begin + lane, end, args.lanes);
            else accumulate<R, 1, true>(acc, args, x, begin + lane, end, args.lanes);
        } else {
            // The elements before the first aligned address, whole packs, the elements after them.
            u64 head = end - begin, packs = 0;
            if (args.packed) {
                head = min(head, (16 - (u64)(x + begin) % 16) % 16 / sizeof(T));
                packs = (end - begin - head) / V;
            }
            u64 middle = begin + head;
#pragma unroll 1
            for (int part = 0; part < 2; part++) {
                if (part) accumulate_packs<R, false>(acc, args, x + middle, middle, lane, packs, args.lanes);
                accumulate<R, 1, false>(acc, args, x, (part ? middle + packs * V : begin) + lane, part ? end : middle, args.lanes);
            }
        }
    }
    acc[0] = merge_row<R>(acc[0], args.lanes);
    if (lane == 0 && result < args.results) deliver<R>(args, acc[0], result, split, 1);
}

// The same where neighbouring results lie closest together; a thread takes W of them.
template <class R, int W, bool FAR>
DEVICE void reduce_columns(const Reduce& args, u64 tile, u64 split, u64 begin, u64 end) {
    u32 lane = threadIdx.x / args.slots;
    u64 group = tile * args.slots + threadIdx.x % args.slots;
    bool inside = group * W < args.results;
    typename R::Acc acc[W];
#pragma unroll
    for (int j = 0; j < W; j++) acc[j] = R::identity();
    if (inside && begin < end) {
        const T* x = (const T*)args.x + offset(args.kept, 1, group);
        accumulate<R, W, FAR>(acc, args, x, begin + lane, end, args.lanes);
    }
    const typename R::Acc* merged = merge_columns<R, W>(acc, lane, args.lanes, args.slots);
    if (lane == 0 && inside) {
#pragma unroll 1
        for (int j = 0; j < W; j++) deliver<R>(args, merged[j * THREADS], group * W + j, split, W);
    }
}

template <class R, bool FAR> DEVICE void first_pass(const Reduce& args) {
    u64 visits = FAR ? args.reduced.count : args.count;
    u32 tile = blockIdx.x / (u32)args.splits, split = blockIdx.x - tile * (u32)args.splits;
    u64 begin = split * args.run, end = min(visits, begin + args.run);
    if (!args.columns) reduce_rows<R, FAR>(args, tile, split, begin, end);
    else if (args.columns == 1) reduce_columns<R, 1, FAR>(args, tile, split, begin, end);
    else reduce_columns<R, WIDTH, FAR>(args, tile, split, begin, end);
}

// Neighbouring threads merge the splits of neighbouring results.
template <class R> DEVICE void second_pass(const Reduce& args) {
    typedef typename R::Acc Acc;
    u32 slots = THREADS / args.finish_lanes, lane = threadIdx.x / slots;
    u64 result = (u64)blockIdx.x * slots + threadIdx.x % slots;
    Acc acc[1] = {R::identity()};
    if (result < args.results) {
#pragma unroll 4
        for (u64 split = lane; split < args.splits; split += args.finish_lanes) {
            acc[0] = R::merge(acc[0], ((const Acc*)args.partial)[split * args.results + result]);
        }
    }
    const Acc* merged = merge_columns<R, 1>(acc, lane, args.finish_lanes, slots);
    if (lane == 0 && result < args.results) {
        ((typename R::Out*)args.out)[result_at(args, result, max(args.columns, 1))] = R::finish(*merged, args.count);
    }
}

// Enough blocks of a multiprocessor to hide what each waits for, as far as the registers for wider arithmetic allow.
#define BLOCKS (sizeof(C) < 8 ? 4 : 2)
#define REDUCE(op)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(op, ELEMENT)(const __grid_constant__ Reduce args) { \
        if (args.reduced.rank <= 1) first_pass<op##_op, false>(args);                                                 \
        else first_pass<op##_op, true>(args);                                                                         \
    }                                                                                                                 \
    KERNEL(op##_finish, Reduce) { second_pass<op##_op>(args); }

#if PART == 0 && !IS_BOOL
REDUCE(mean)
REDUCE(sum)
#elif PART == 1 && !IS_BOOL
REDUCE(max)
REDUCE(min)
#elif PART == 2
REDUCE(all)
REDUCE(any)
#if !IS_BOOL
REDUCE(prod)
#endif
#elif PART == 3 && !IS_BOOL
REDUCE(argmax)
REDUCE(argmin)
#endif
