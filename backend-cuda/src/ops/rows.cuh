// Rows of a tensor and the threads that share them; prepended to `norm.cu` and `statistic.cu`.
//
// A row belongs to `lanes` threads: a warp for short rows (eight rows a block), the whole block otherwise. Rows of up to
// 32 elements a lane that are aligned runs are read once, into registers, 16 bytes at a time; others are read again in
// each pass, mostly from the caches. Sums go over a lane's elements, then over the lanes as a tree: the same order in
// every run, and no deeper than `summation_depth`. Rows that are not in registers carry the roundings of their sums
// along (Knuth's TwoSum).

typedef Compute<T> C;

struct Rows {
    Nest<4> kept;  // over rows; operand 0 is the output, the others are the inputs
    Nest<4> row;   // over the elements of a row
    void* out;
    const void* inputs[3];  // null when absent
    f64 parameter;
    u32 lanes;
    u32 packed;  // bit n: rows of operand n are aligned runs
    u32 cached;  // whether rows are held in registers
};

#if IS_FLOAT

DEVICE C least() { return -infinity(); }

// The place of an element in operand N, relative to its row.
template <int N> DEVICE i64 place(const Rows& args, u64 index) {
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

// Takes in input N: f(slot, value) for each element of this lane. Lanes of half types are taken out of their words only
// when all loads are on their way.
template <int N, int V, class F> DEVICE void with_input(const Rows& args, const Row& row, F f) {
    if (!args.inputs[N]) return;
    bool packed = (args.packed >> (N + 1)) & 1;
    if (packed && sizeof(T) == 2) {
        Words<sizeof(T) * V> packs[PER_LANE / V];
        each<V>(row, [&](int slot, u64 index) { packs[slot / V] = *(const Words<sizeof(T) * V>*)(row.inputs[N] + index); });
        each<V>(row, [&](int slot, u64) {
#pragma unroll
            for (int j = 0; j < V; j++) f(slot + j, widen(lane_of<T>(packs[slot / V], j)));
        });
    } else if (packed) {
        each<V>(row, [&](int slot, u64 index) {
            Words<sizeof(T) * V> pack = *(const Words<sizeof(T) * V>*)(row.inputs[N] + index);
#pragma unroll
            for (int j = 0; j < V; j++) f(slot + j, widen(lane_of<T>(pack, j)));
        });
    } else {
        each<V>(row, [&](int slot, u64 index) {
#pragma unroll
            for (int j = 0; j < V; j++) f(slot + j, widen(row.inputs[N][(i64)(index + j) * args.row.strides[N + 1][0]]));
        });
    }
}

// ---- Rows that are read again ------------------------------------------------------------------------------------------------

template <int N> DEVICE C element(const Rows& args, const Row& row, u64 index) {
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

// Calls f(row) for each of this thread's rows. Rows past the last one have no elements; their threads stay for the
// reductions, and `row.out` is null.
template <class F> DEVICE void each_row(const Rows& args, F f) {
    u32 rows = THREADS / args.lanes;
    u64 count = args.kept.count;
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
        f(row);
    }
}

#endif
