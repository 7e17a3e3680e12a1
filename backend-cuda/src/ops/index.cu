// Gather, scatter and the positions of true elements: `gather_T`, `scatter_T` …; the passes are listed in kernels.rs.
//
// The axes besides the indexed one are split: `outer` ones, along which the index differs (a "lane" is one of its
// visits), and `inner` ones, whose elements share an index: a row of a table. An index out of range reads 0, or writes
// nothing, and sets the flag.

// ---- Indices -----------------------------------------------------------------------------------------------------

#define INDEX_I64 0
#define INDEX_I32 1
#define INDEX_U32 2
#define INDEX_U8 3

DEVICE i64 load_index(const void* index, u32 type, i64 at) {
    switch (type) {
        case INDEX_I64: return ((const i64*)index)[at];
        case INDEX_I32: return ((const i32*)index)[at];
        case INDEX_U32: return ((const u32*)index)[at];
        default: return ((const u8*)index)[at];
    }
}

template <int N> DEVICE void visit(const Nest<N>& nest, u64 index, i64 (&at)[N]) {
    if (nest.mode == WIDE) {
        locate(nest, index, at);
        return;
    }
    i32 narrow_at[N];
    locate(nest, (u32)index, narrow_at);
#pragma unroll
    for (int n = 0; n < N; n++) at[n] = narrow_at[n];
}

// index / size, with the remainder; 64-bit division is several times as slow.
DEVICE u64 divide(u64 index, u64 size, u64& rest) {
    if (size == 1) {
        rest = 0;
        return index;
    }
    u64 quotient = (index | size) >> 32 ? index / size : (u32)index / (u32)size;
    rest = index - quotient * size;
    return quotient;
}

DEVICE u64 first_thread() { return (u64)blockIdx.x * THREADS + threadIdx.x; }
DEVICE u64 all_threads() { return (u64)gridDim.x * THREADS; }

// ---- Gather ------------------------------------------------------------------------------------------------------

struct Gather {
    Nest<3> outer;  // output, index, input at position 0
    const void* x;
    const void* index;
    void* out;
    u32* flag;
    u64 len;
    i64 stride;
    u64 width;     // elements, or with `vector` 16-byte packs, that share an index
    i64 steps[2];  // of output and input from one of them to the next
    u32 type;
    u32 vector;
};

// The result is not read again soon: packs leave the cache first.
template <class E> DEVICE void store(E* to, const E& value) {
    if constexpr (sizeof(E) == 16) {
        union { E value; u32 words[4]; } pun = {value};
        asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(pun.words[0]), "r"(pun.words[1]),
                     "r"(pun.words[2]), "r"(pun.words[3]) : "memory");
    } else {
        *to = value;
    }
}

// A block moves neighbouring elements or packs, each thread two of them at once.
template <class E> DEVICE void gather(const Gather& args) {
    const int AHEAD = 2, SCALE = sizeof(E) / sizeof(T);
    u64 total = args.outer.count * args.width;
    bool outside = false;
    for (u64 first = blockIdx.x * (u64)THREADS * AHEAD + threadIdx.x; first < total; first += AHEAD * all_threads()) {
        E value[AHEAD];
        i64 to[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u64 work = first + i * THREADS, column;
            if (work >= total) continue;
            u64 row = divide(work, args.width, column);
            i64 at[3];
            visit(args.outer, row, at);
            i64 index = load_index(args.index, args.type, at[1]);
            to[i] = at[0] / SCALE + (i64)column * args.steps[0];
            if ((u64)index < args.len) {
                value[i] = ((const E*)args.x)[(at[2] + index * args.stride) / SCALE + (i64)column * args.steps[1]];
            } else {
                outside = true;
                value[i] = E();
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (first + i * THREADS < total) store((E*)args.out + to[i], value[i]);
        }
    }
    if (outside) *args.flag = 1;
}

#if PART == 0
KERNEL(gather, Gather) {
    if (args.vector) gather<Pack<T, 16 / sizeof(T)>>(args);
    else gather<T>(args);
}
#endif

// ---- Scatter -----------------------------------------------------------------------------------------------------

struct Scatter {
    Nest<3> outer;  // output, index, source, each at position 0
    Nest<3> inner;
    void* out;
    const void* index;
    const void* src;
    u32* flag;
    u64* items;     // a key and a position for each index
    u64* spare;
    u64* counts;    // of digits; or the last position that hit an element, plus one
    void* heads;    // sums of what continues a run of an earlier chunk
    void* tails;    // sums of what a later chunk continues
    u64 count;      // positions of index and source
    u64 len;        // positions of the output
    i64 strides[3];
    u64 chunk;
    u64 chunks;
    u32 position_bits;
    u32 shift;
    u32 type;
    u32 vector;
};

// An index as the number of the output's row that it names: lane · len + index.
DEVICE bool find_row(const Scatter& args, u64 lane, u64 position, u64& row) {
    i64 at[3];
    visit(args.outer, lane, at);
    i64 index = load_index(args.index, args.type, at[1] + (i64)position * args.strides[1]);
    row = lane * args.len + (u64)index;
    return (u64)index < args.len;
}

// Where a row of the output starts, and where the source at a position does.
DEVICE void locate_row(const Scatter& args, u64 row, u64 position, i64& out, i64& src) {
    u64 index;
    u64 lane = divide(row, args.len, index);
    i64 at[3] = {0, 0, 0};
    if (args.outer.count > 1) visit(args.outer, lane, at);
    out = at[0] + (i64)index * args.strides[0];
    src = at[2] + (i64)position * args.strides[2];
}

#if PART == 0
// The last of several sources wins: `scatter_claim_T` finds the last position that hits each row, `scatter_T` writes.
KERNEL(scatter_claim, Scatter) {
    bool outside = false;
    u64 total = args.outer.count * args.count;
    for (u64 work = first_thread(); work < total; work += all_threads()) {
        u64 position, row;
        u64 lane = divide(work, args.count, position);
        if (find_row(args, lane, position, row)) atomicMax(&args.counts[row], position + 1);
        else outside = true;
    }
    if (outside) *args.flag = 1;
}

template <class E> DEVICE void write_winners(const Scatter& args) {
    const int SCALE = sizeof(E) / sizeof(T);
    u64 width = args.inner.count / SCALE, total = args.outer.count * args.count * width;
    for (u64 work = first_thread(); work < total; work += all_threads()) {
        u64 column, position, row;
        u64 lane = divide(divide(work, width, column), args.count, position);
        if (!find_row(args, lane, position, row) || args.counts[row] != position + 1) continue;
        i64 out, src, at[3];
        locate_row(args, row, position, out, src);
        visit(args.inner, column * SCALE, at);
        ((E*)args.out)[(out + at[0]) / SCALE] = ((const E*)args.src)[(src + at[2]) / SCALE];
    }
}

KERNEL(scatter, Scatter) {
    if (args.vector) write_winners<Pack<T, 16 / sizeof(T)>>(args);
    else write_winners<T>(args);
}
#endif

#if !IS_BOOL
typedef Compute<T> C;

// ---- What is made of several sources -----------------------------------------------------------------------------

#if IS_FLOAT
// A sum and the error of its roundings (Knuth's TwoSum): nearly the correctly rounded sum in any order.
struct add_op {
    struct Acc { C sum, error; };
    DEVICE Acc identity() { return {0, 0}; }
    DEVICE Acc two_sum(C a, C b, C error) {
        C s = a + b, t = s - a;
        return {s, error + ((a - (s - t)) + (b - t))};
    }
    DEVICE Acc add(Acc acc, T x) { return two_sum(acc.sum, widen(x), acc.error); }
    DEVICE Acc merge(Acc a, Acc b) { return two_sum(a.sum, b.sum, a.error + b.error); }
    // Once the sum is infinite or NaN, the error means nothing.
    DEVICE T finish(Acc acc) { return narrow<T>(acc.error - acc.error == 0 ? acc.sum + acc.error : acc.sum); }
};
#define LEAST (-infinity())
#define GREATEST infinity()
#else
struct add_op {
    typedef Limits<T>::Unsigned Acc;
    DEVICE Acc identity() { return 0; }
    DEVICE Acc add(Acc acc, T x) { return acc + (Acc)x; }
    DEVICE Acc merge(Acc a, Acc b) { return a + b; }
    DEVICE T finish(Acc acc) { return (T)acc; }
};
#define LEAST Limits<C>::min
#define GREATEST Limits<C>::max
#endif
struct max_op {
    typedef C Acc;
    DEVICE Acc identity() { return LEAST; }
    DEVICE Acc add(Acc acc, T x) { return maximum(acc, widen(x)); }
    DEVICE Acc merge(Acc a, Acc b) { return maximum(a, b); }
    DEVICE T finish(Acc acc) { return narrow<T>(acc); }
};
struct min_op {
    typedef C Acc;
    DEVICE Acc identity() { return GREATEST; }
    DEVICE Acc add(Acc acc, T x) { return minimum(acc, widen(x)); }
    DEVICE Acc merge(Acc a, Acc b) { return minimum(a, b); }
    DEVICE T finish(Acc acc) { return narrow<T>(acc); }
};

// ---- Atomics: where the order has no influence, or none is asked for ---------------------------------------------

DEVICE void atomic_add(f32* to, f32 x) { atomicAdd(to, x); }
DEVICE void atomic_add(f64* to, f64 x) { atomicAdd(to, x); }
DEVICE void atomic_add(i32* to, i32 x) { atomicAdd(to, x); }
DEVICE void atomic_add(u32* to, u32 x) { atomicAdd(to, x); }
DEVICE void atomic_add(i64* to, i64 x) { atomicAdd((u64*)to, (u64)x); }

template <class F> DEVICE void scatter_each(const Scatter& args, F apply) {
    bool outside = false;
    u64 width = args.inner.count, total = args.outer.count * args.count * width;
    for (u64 work = first_thread(); work < total; work += all_threads()) {
        u64 column, position, row;
        u64 lane = divide(divide(work, width, column), args.count, position);
        if (!find_row(args, lane, position, row)) {
            outside = true;
            continue;
        }
        i64 out, src, at[3];
        locate_row(args, row, position, out, src);
        visit(args.inner, column, at);
        apply((T*)args.out + out + at[0], ((const T*)args.src)[src + at[2]]);
    }
    if (outside) *args.flag = 1;
}

template <int OP, class E> DEVICE void atomic_apply(E* to, E x) {
    if constexpr (OP == 0) atomic_add(to, x);
    else if constexpr (OP == 1) atomicMax(to, x);
    else atomicMin(to, x);
}
#define ATOMIC(op, number) \
    KERNEL(op##_atomic, Scatter) { scatter_each(args, [](T* to, T x) { atomic_apply<number>(to, x); }); }

// ---- Runs of sources of one row, in order: no atomics, so the same bits in every run -----------------------------

// Sources are sorted by row and cut into chunks. A chunk finishes the rows whose sources it has all of; of the others
// it leaves a part, which the second pass merges in order.
template <class R, int V> struct Run {
    typedef typename R::Acc Acc;

    DEVICE void write(const Scatter& args, u64 row, i64 column, const Acc (&acc)[V]) {
        i64 out, src;
        locate_row(args, row, 0, out, src);
        Pack<T, V>* to = (Pack<T, V>*)((T*)args.out + out + column);
        Pack<T, V> pack = *to;
#pragma unroll
        for (int i = 0; i < V; i++) {
            pack.lane[i] = R::finish(R::merge(R::add(R::identity(), pack.lane[i]), acc[i]));
        }
        *to = pack;
    }

    DEVICE void keep(void* parts, const Scatter& args, u64 chunk, u64 column, const Acc (&acc)[V]) {
#pragma unroll
        for (int i = 0; i < V; i++) ((Acc*)parts)[chunk * args.inner.count + column + i] = acc[i];
    }

    DEVICE void chunks(const Scatter& args) {
        const int AHEAD = 4;
        u64 width = args.inner.count / V, items = args.outer.count * args.count;
        u64 none = args.outer.count * args.len, mask = ((u64)1 << args.position_bits) - 1;
        for (u64 work = first_thread(); work < args.chunks * width; work += all_threads()) {
            u64 column;
            u64 chunk = divide(work, width, column);
            u64 begin = chunk * args.chunk, end = min(begin + args.chunk, items);
            u64 current = args.items[begin] >> args.position_bits;
            bool open = begin > 0 && args.items[begin - 1] >> args.position_bits == current;
            i64 at[3];
            visit(args.inner, column * V, at);
            Acc acc[V];
#pragma unroll
            for (int i = 0; i < V; i++) acc[i] = R::identity();
            for (u64 first = begin; first < end && current != none; first += AHEAD) {
                u64 row[AHEAD];
                Pack<T, V> ahead[AHEAD];
#pragma unroll
                for (int i = 0; i < AHEAD; i++) {
                    u64 item = first + i < end ? args.items[first + i] : ~(u64)0;
                    row[i] = first + i < end ? item >> args.position_bits : none;
                    i64 out, src;
                    if (row[i] < none) {
                        locate_row(args, row[i], item & mask, out, src);
                        ahead[i] = *(const Pack<T, V>*)((const T*)args.src + src + at[2]);
                    }
                }
#pragma unroll
                for (int i = 0; i < AHEAD; i++) {
                    if (first + i < end && row[i] != current) {
                        if (open) keep(args.heads, args, chunk, column * V, acc);
                        else write(args, current, at[0], acc);
                        open = false;
                        current = row[i];
#pragma unroll
                        for (int j = 0; j < V; j++) acc[j] = R::identity();
                        // What is out of range comes last.
                        if (current == none) break;
                    }
                    if (row[i] < none) {
#pragma unroll
                        for (int j = 0; j < V; j++) acc[j] = R::add(acc[j], ahead[i].lane[j]);
                    }
                }
            }
            if (current == none) continue;
            bool continued = end < items && args.items[end] >> args.position_bits == current;
            if (open) keep(args.heads, args, chunk, column * V, acc);
            else if (continued) keep(args.tails, args, chunk, column * V, acc);
            else write(args, current, at[0], acc);
        }
    }

    DEVICE void merge(const Scatter& args) {
        u64 width = args.inner.count / V, items = args.outer.count * args.count;
        u64 none = args.outer.count * args.len;
        for (u64 work = first_thread(); work < args.chunks * width; work += all_threads()) {
            u64 column;
            u64 chunk = divide(work, width, column);
            u64 begin = chunk * args.chunk, end = begin + args.chunk;
            if (end >= items) continue;
            u64 row = args.items[end - 1] >> args.position_bits;
            bool continued = args.items[end] >> args.position_bits == row;
            bool open = begin > 0 && args.items[begin - 1] >> args.position_bits == row;
            if (row == none || !continued || open) continue;
            Acc acc[V];
#pragma unroll
            for (int i = 0; i < V; i++) acc[i] = ((const Acc*)args.tails)[chunk * args.inner.count + column * V + i];
            for (u64 next = chunk + 1; next < args.chunks; next++) {
                if (args.items[next * args.chunk] >> args.position_bits != row) break;
#pragma unroll
                for (int i = 0; i < V; i++) {
                    acc[i] = R::merge(acc[i], ((const Acc*)args.heads)[next * args.inner.count + column * V + i]);
                }
            }
            i64 at[3];
            visit(args.inner, column * V, at);
            write(args, row, at[0], acc);
        }
    }
};

#define RUNS(op, R)                                                        \
    KERNEL(op, Scatter) {                                                  \
        if (args.vector) Run<R, 16 / sizeof(T)>().chunks(args);            \
        else Run<R, 1>().chunks(args);                                     \
    }                                                                      \
    KERNEL(op##_merge, Scatter) {                                          \
        if (args.vector) Run<R, 16 / sizeof(T)>().merge(args);             \
        else Run<R, 1>().merge(args);                                      \
    }

#if PART == 1
#if IS_FLOAT || (IS_INT && !HAS_ATOMICS)
RUNS(scatter_add, add_op)
RUNS(scatter_max, max_op)
RUNS(scatter_min, min_op)
#endif
#if HAS_ATOMICS
ATOMIC(scatter_add, 0)
#if IS_INT
ATOMIC(scatter_max, 1)
ATOMIC(scatter_min, 2)
#endif
#endif
#endif
#endif

