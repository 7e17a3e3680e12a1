// Scans: `name_T` for each op of `ScanOp` that accepts T; `name_finish_T` is the second pass.
//
// A block owns `outputs` rows and gives each of them `lanes` threads (outputs · lanes = 256). Where a row's elements lie
// closer together than neighbouring rows, the lanes of a row are neighbouring threads ("rows"); else neighbouring threads
// belong to neighbouring rows ("columns"): either way a warp reads whole sectors. The block walks along its rows in steps
// of K · lanes elements: each thread scans K of them, the threads' totals are scanned across the lanes, and the carry
// that came before is added. The next step's elements are loaded before this step is computed.
//
// With few rows, each is cut into `splits` runs for different blocks. The first pass then only adds up the runs, each thread
// its own elements, and writes the totals to `partial`; the second pass scans, starting from the totals before its run. No atomics and no waiting for other
// blocks: the same shape always combines in the same order.
//
// Within a step floats are added as they are, through at most K + 6 + 16 additions; the carry keeps the error of its
// additions (Knuth's TwoSum). That is well inside `summation_depth`: a tree over k terms is never deeper than k − 1.

typedef Compute<T> C;

struct Scan {
    Nest<2> rows;  // operand 0 is the output, operand 1 the input, both at the first position
    const void* x;
    void* out;
    void* partial;
    u64 len;
    u64 run;
    u64 splits;
    i64 out_stride;
    i64 x_stride;
    u32 lanes;
    u32 outputs;
    u32 columns;
    u32 exclusive;
};

// ---- Ops: Item is what is scanned within a step, Acc the carry ----------------------------------------------------

#if IS_FLOAT
DEVICE bool is_finite(C x) { return x - x == 0; }
DEVICE f32 natural_exp(f32 x) { return expf(x); }
DEVICE f64 natural_exp(f64 x) { return exp(x); }
DEVICE f32 natural_log(f32 x) { return logf(x); }
DEVICE f64 natural_log(f64 x) { return log(x); }

struct Compensated { C sum, error; };
DEVICE Compensated two_sum(Compensated a, C b) {
    C s = a.sum + b, t = s - a.sum;
    return {s, a.error + ((a.sum - (s - t)) + (b - t))};
}
// Once the sum is infinite or NaN, the error means nothing.
DEVICE C total(C sum, C error) { return is_finite(error) ? sum + error : sum; }

struct cumsum_op {
    typedef C Item;
    typedef Compensated Acc;
    DEVICE Item none() { return 0; }
    DEVICE Item of(T x) { return widen(x); }
    DEVICE Item merge(Item a, Item b) { return a + b; }
    DEVICE Acc start() { return {0, 0}; }
    DEVICE Acc append(Acc acc, Item x) { return two_sum(acc, x); }
    DEVICE Acc append_all(Acc acc, Acc later) {
        acc = two_sum(acc, later.sum);
        acc.error += later.error;
        return acc;
    }
    DEVICE T finish(Acc acc, Item x) { return narrow<T>(total(acc.sum + x, acc.error)); }
};

// Σ e^(x − max). NaN stays the maximum.
struct logcumsumexp_op {
    struct Item { C max, sum; };
    struct Acc { C max; Compensated sum; };
    DEVICE Item none() { return {-infinity(), 0}; }
    DEVICE Item of(T x) {
        C max = widen(x);
        return {max, max == -infinity() ? (C)0 : (C)1};
    }
    // The factor of what lies at `max` where `greatest` is not less; equal infinities have no difference.
    DEVICE C factor(C max, C greatest) { return max == greatest ? (C)1 : natural_exp(max - greatest); }
    DEVICE Item merge(Item a, Item b) {
        C max = maximum(a.max, b.max);
        return {max, a.sum * factor(a.max, max) + b.sum * factor(b.max, max)};
    }
    DEVICE Acc start() { return {-infinity(), {0, 0}}; }
    DEVICE Acc append_all(Acc acc, Acc later) {
        C max = maximum(acc.max, later.max), f = factor(acc.max, max), g = factor(later.max, max);
        Compensated sum = two_sum({acc.sum.sum * f, acc.sum.error * f}, later.sum.sum * g);
        sum.error += later.sum.error * g;
        return {max, sum};
    }
    DEVICE Acc append(Acc acc, Item x) { return append_all(acc, {x.max, {x.sum, 0}}); }
    DEVICE T finish(Acc acc, Item x) {
        acc = append(acc, x);
        C log = natural_log(total(acc.sum.sum, acc.sum.error));
        return narrow<T>(acc.max == -infinity() ? acc.max : acc.max + log);
    }
};

struct cumprod_op {
    typedef C Item;
    typedef C Acc;
    DEVICE Item none() { return 1; }
    DEVICE Item of(T x) { return widen(x); }
    DEVICE Item merge(Item a, Item b) { return a * b; }
    DEVICE Acc start() { return 1; }
    DEVICE Acc append(Acc acc, Item x) { return acc * x; }
    DEVICE Acc append_all(Acc acc, Acc later) { return acc * later; }
    DEVICE T finish(Acc acc, Item x) { return narrow<T>(acc * x); }
};
#define LEAST (-infinity())
#define GREATEST infinity()
#else
typedef Limits<T>::Unsigned U;
struct cumsum_op {
    typedef U Item;
    typedef U Acc;
    DEVICE Item none() { return 0; }
    DEVICE Item of(T x) { return (U)x; }
    DEVICE Item merge(Item a, Item b) { return a + b; }
    DEVICE Acc start() { return 0; }
    DEVICE Acc append(Acc acc, Item x) { return acc + x; }
    DEVICE Acc append_all(Acc acc, Acc later) { return acc + later; }
    DEVICE T finish(Acc acc, Item x) { return (T)(acc + x); }
};
struct cumprod_op {
    typedef U Item;
    typedef U Acc;
    DEVICE Item none() { return 1; }
    DEVICE Item of(T x) { return (U)x; }
    DEVICE Item merge(Item a, Item b) { return a * b; }
    DEVICE Acc start() { return 1; }
    DEVICE Acc append(Acc acc, Item x) { return acc * x; }
    DEVICE Acc append_all(Acc acc, Acc later) { return acc * later; }
    DEVICE T finish(Acc acc, Item x) { return (T)(acc * x); }
};
#define LEAST Limits<C>::min
#define GREATEST Limits<C>::max
#endif

template <bool GREATER> struct Extreme {
    typedef C Item;
    typedef C Acc;
    DEVICE Item none() { return GREATER ? LEAST : GREATEST; }
    DEVICE Item of(T x) { return widen(x); }
    DEVICE Item merge(Item a, Item b) { return GREATER ? maximum(a, b) : minimum(a, b); }
    DEVICE Acc start() { return none(); }
    DEVICE Acc append(Acc acc, Item x) { return merge(acc, x); }
    DEVICE Acc append_all(Acc acc, Acc later) { return merge(acc, later); }
    DEVICE T finish(Acc acc, Item x) { return narrow<T>(merge(acc, x)); }
};
typedef Extreme<true> cummax_op;
typedef Extreme<false> cummin_op;

// ---- The passes ----------------------------------------------------------------------------------------------------

const int K = (sizeof(T) < 4 ? 16 : 32) / sizeof(T);
const u32 WARP = 32;

template <class E> DEVICE E shuffle_up(E value, u32 distance, u32 width) {
    const int words = (sizeof(E) + 3) / 4;
    union { E value; u32 word[words]; } pun;
    pun.word[words - 1] = 0;
    pun.value = value;
#pragma unroll
    for (int i = 0; i < words; i++) pun.word[i] = __shfl_up_sync(~0u, pun.word[i], distance, width);
    return pun.value;
}

// The elements first .. first + K of a run that ends at `end`; nothing is read past it.
DEVICE void load(T (&items)[K], const T* x, i64 stride, bool vector, u64 first, u64 end) {
    if (vector && first + K <= end) {
        Pack<T, K> pack = *(const Pack<T, K>*)(x + first);
#pragma unroll
        for (int i = 0; i < K; i++) items[i] = pack.lane[i];
    } else {
#pragma unroll
        for (int i = 0; i < K; i++) {
            if (first + i < end) items[i] = x[(i64)(first + i) * stride];
        }
    }
}

DEVICE void store(const T (&items)[K], T* out, i64 stride, bool vector, u64 first, u64 end) {
    if (vector && first + K <= end) {
        Pack<T, K> pack;
#pragma unroll
        for (int i = 0; i < K; i++) pack.lane[i] = items[i];
        *(Pack<T, K>*)(out + first) = pack;
    } else {
#pragma unroll
        for (int i = 0; i < K; i++) {
            if (first + i < end) out[(i64)(first + i) * stride] = items[i];
        }
    }
}

// What the lanes before this one add up to, and what all of them do. `buffer` alternates, so that one barrier a step is
// enough: a thread that writes a buffer again has passed the barrier of the step between.
template <class R>
DEVICE typename R::Item across_lanes(typename R::Item mine, typename R::Item& all, const Scan& args, u32 slot, u32 lane,
                                     u32 buffer) {
    typedef typename R::Item Item;
    __shared__ alignas(16) unsigned char memory[2 * THREADS * sizeof(Item)];
    Item* shared = (Item*)memory + buffer * THREADS;
    if (args.columns) {
        shared[threadIdx.x] = mine;
        __syncthreads();
        Item before = R::none();
        all = R::none();
        for (u32 other = 0; other < args.lanes; other++) {
            if (other == lane) before = all;
            all = R::merge(all, shared[other * args.outputs + slot]);
        }
        return before;
    }
    u32 width = min(args.lanes, WARP), place = lane % WARP;
    Item sum = mine;
    for (u32 distance = 1; distance < width; distance *= 2) {
        Item below = shuffle_up(sum, distance, width);
        if (place >= distance) sum = R::merge(below, sum);
    }
    Item before = shuffle_up(sum, 1, width);
    if (place == 0) before = R::none();
    // Each warp, or each row within a warp, leaves its total.
    if (place == width - 1) shared[threadIdx.x / width] = sum;
    if (args.lanes <= WARP) {
        __syncwarp();
        all = shared[threadIdx.x / width];
        return before;
    }
    __syncthreads();
    u32 warps = args.lanes / WARP;
    Item ahead = R::none();
    all = R::none();
    for (u32 warp = 0; warp < warps; warp++) {
        if (warp == lane / WARP) ahead = all;
        all = R::merge(all, shared[slot * warps + warp]);
    }
    return R::merge(ahead, before);
}

// What the accumulators of a row's lanes add up to, for each of them.
template <class R> DEVICE typename R::Acc merge_lanes(typename R::Acc acc, u32 lane, const Scan& args) {
    typedef typename R::Acc Acc;
    __shared__ alignas(16) unsigned char memory[THREADS * sizeof(Acc)];
    Acc* shared = (Acc*)memory;
    u32 thread = threadIdx.x, step = args.columns ? args.outputs : 1;
    shared[thread] = acc;
    for (u32 half = args.lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[thread] = acc = R::append_all(acc, shared[thread + half * step]);
    }
    __syncthreads();
    acc = shared[thread - lane * step];
    // The next call overwrites the memory.
    __syncthreads();
    return acc;
}

template <class R> DEVICE void pass(const Scan& args, bool write) {
    typedef typename R::Item Item;
    typedef typename R::Acc Acc;
    u32 thread = threadIdx.x;
    u32 lane = args.columns ? thread / args.outputs : thread % args.lanes;
    u32 slot = args.columns ? thread % args.outputs : thread / args.lanes;
    u64 tiles = (args.rows.count + args.outputs - 1) / args.outputs, step = (u64)K * args.lanes;
    u32 buffer = 0;
    for (u64 work = blockIdx.x; work < tiles * args.splits; work += gridDim.x) {
        u64 split = work % args.splits, row = work / args.splits * args.outputs + slot;
        u64 begin = split * args.run, stop = min(args.len, begin + args.run);
        // A row that is not there has no elements, but its threads take part in every barrier.
        bool there = row < args.rows.count;
        u64 end = there ? stop : begin;
        i64 at[2] = {0, 0};
        if (there && args.rows.mode == WIDE) {
            locate(args.rows, row, at);
        } else if (there) {
            i32 narrow_at[2];
            locate(args.rows, (u32)row, narrow_at);
            at[0] = narrow_at[0];
            at[1] = narrow_at[1];
        }
        T* out = (T*)args.out + at[0];
        const T* x = (const T*)args.x + at[1];
        // `begin` is a multiple of K.
        bool vector_x = args.x_stride == 1 && (u64)x % sizeof(Pack<T, K>) == 0;
        bool vector_out = args.out_stride == 1 && (u64)out % sizeof(Pack<T, K>) == 0;
        Acc carry = R::start();
        if (write && args.splits > 1) {
            const Acc* totals = (const Acc*)args.partial + row * args.splits;
            for (u64 earlier = lane; there && earlier < split; earlier += args.lanes) {
                carry = R::append_all(carry, totals[earlier]);
            }
            carry = merge_lanes<R>(carry, lane, args);
        }
        T ahead[K];
        load(ahead, x, args.x_stride, vector_x, begin + (u64)lane * K, end);
        for (u64 base = begin; base < stop; base += step) {
            u64 first = base + (u64)lane * K;
            Item sums[K];
            Item sum = R::none();
#pragma unroll
            for (int i = 0; i < K; i++) {
                if (first + i < end) sum = i == 0 ? R::of(ahead[i]) : R::merge(sum, R::of(ahead[i]));
                sums[i] = sum;
            }
            load(ahead, x, args.x_stride, vector_x, first + step, end);
            if (!write) {
                carry = R::append(carry, sum);
                continue;
            }
            Item all, before = across_lanes<R>(sum, all, args, slot, lane, buffer);
            buffer ^= 1;
            T results[K];
#pragma unroll
            for (int i = 0; i < K; i++) {
                if (args.exclusive) {
                    results[i] = R::finish(carry, i == 0 ? before : R::merge(before, sums[i == 0 ? 0 : i - 1]));
                } else {
                    results[i] = R::finish(carry, R::merge(before, sums[i]));
                }
            }
            store(results, out, args.out_stride, vector_out, first, end);
            carry = R::append(carry, all);
        }
        if (!write) {
            carry = merge_lanes<R>(carry, lane, args);
            if (there && lane == 0) ((Acc*)args.partial)[row * args.splits + split] = carry;
        }
    }
}

#define SCAN(op)                                                         \
    KERNEL(op, Scan) { pass<op##_op>(args, args.splits == 1); }          \
    KERNEL(op##_finish, Scan) { pass<op##_op>(args, true); }

#if PART == 0
SCAN(cumprod)
SCAN(cumsum)
#elif PART == 1
SCAN(cummax)
SCAN(cummin)
#elif IS_FLOAT
SCAN(logcumsumexp)
#endif
