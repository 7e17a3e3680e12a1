// What the tiled kernels of attention share. They are for rows of up to 64 or 128 features that lie side by side, in which
// keys are hidden by position only: `attention_tensor.cuh` for half types, `attention_fma.cuh` for f32.
//
// The tiling is that of FlashAttention-2 (Dao, 2023): a block has a tile of queries and passes over tiles of keys, with an
// online softmax to the base 2. Where queries are few, the keys of a tile are split between blocks (Flash-Decoding, Dao and
// others, 2023): each leaves its sums, with their scale and the sum of its weights, and `attention_combine_T` adds them in
// the order of the splits.

#if IS_HALF || IS_F32

#define TILE_KEYS 64

// The queries of a block, and the keys it takes.
struct Share {
    u64 batch, head, split;
    i64 first, keys, shift;
    i64 low, high;            // of this split
    i64 full_low, full_high;  // what every query of the tile sees
};

DEVICE Share share(const Attention& args, u64 work, u64 tiles, i64 rows) {
    const u64 heads = args.batch * args.heads * args.splits;
    // The last tiles have the most keys where attention is causal: they go first.
    const u64 tile = tiles - 1 - work / heads, rest = work % heads, whole = rest / args.splits;
    const i64 queries = (i64)args.queries;
    Share share;
    share.split = rest % args.splits;
    share.batch = whole / args.heads;
    share.head = whole % args.heads;
    share.first = (i64)tile * rows;
    share.keys = (i64)args.keys;
    if (args.inputs[LENGTHS - 1]) {
        const i64* lengths = (const i64*)args.inputs[LENGTHS - 1];
        share.keys = within(lengths[(i64)share.batch * args.strides[LENGTHS][0]], share.keys);
    }
    share.shift = args.first ? 0 : share.keys - queries;
    const i64 last = share.first + rows < queries ? share.first + rows - 1 : queries - 1;
    const Band top = band(args, true, share.first, share.keys, share.shift);
    const Band bottom = band(args, true, last, share.keys, share.shift);
    share.full_low = bottom.low;
    share.full_high = top.high;
    share.low = top.low / TILE_KEYS * TILE_KEYS;
    share.high = bottom.high;
    const i64 span = share.high > share.low ? share.high - share.low : 0, splits = (i64)args.splits;
    const i64 count = (span + TILE_KEYS - 1) / TILE_KEYS;
    const i64 part = (count + splits - 1) / splits * TILE_KEYS;
    share.low += (i64)share.split * part;
    if (share.high > share.low + part) share.high = share.low + part;
    return share;
}

DEVICE bool is_whole(const Share& share, i64 start) {
    return start >= share.full_low && start + TILE_KEYS <= share.full_high;
}

// Where a split leaves a row: its sums, then those of all rows' scale and total.
struct Partial {
    f32* sums;
    f32* scale;
};
template <int D> DEVICE Partial partial(const Attention& args, const Share& share, i64 query) {
    const u64 rows = args.batch * args.heads * args.queries;
    const u64 row = (share.batch * args.heads + share.head) * args.queries + (u64)query;
    const u64 place = row * args.splits + share.split;
    return {args.partial + place * D, args.partial + rows * args.splits * D + place * 2};
}

#if __CUDA_ARCH__ >= 800

DEVICE u32 shared_address(const void* pointer) { return (u32)__cvta_generic_to_shared(pointer); }
DEVICE void copy_piece(u32 to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}
DEVICE void commit() { asm volatile("cp.async.commit_group;"); }
DEVICE void wait_for_all() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// Starts copies of `ROWS_` rows of at most D features, in pieces of 16 bytes that lie where `place(row, column)` says; what
// there is not is zeros.
template <int D, int ROWS_, int LANES_, class Place>
DEVICE void start_copy(u32 to, const T* from, i64 stride, i64 first, i64 count, u32 features, Place place) {
    constexpr u32 WIDTH = 16 / sizeof(T), COLUMNS_ = D / WIDTH;
#pragma unroll
    for (u32 index = threadIdx.x; index < ROWS_ * COLUMNS_; index += LANES_) {
        const u32 row = index / COLUMNS_, column = index % COLUMNS_;
        const bool inside = first + row < count && column * WIDTH < features;
        copy_piece(to + place(row, column), inside ? from + (first + row) * stride + column * WIDTH : from, inside);
    }
}

// 2ˣ, of which 2 units in the last place may be wrong.
DEVICE f32 approximate_exp2(f32 x) {
    f32 y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

// A warp for each row: 2^scale is what a split's sums and total are multiplied with.
template <int D> DEVICE void combine(const Attention& args) {
#if __CUDA_ARCH__ >= 800
    const u64 rows = args.batch * args.heads * args.queries;
    const u32 lane = threadIdx.x % 32;
    const f32* statistics = args.partial + rows * args.splits * D;
    for (u64 row = (blockIdx.x * (u64)THREADS + threadIdx.x) / 32; row < rows; row += gridDim.x * (u64)THREADS / 32) {
        f32 most = -infinity();
        for (u64 split = lane; split < args.splits; split += 32) {
            most = fmaxf(most, statistics[(row * args.splits + split) * 2]);
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        const f32 base = most == -infinity() ? 0.0f : most;
        f32 total = 0, sums[D / 32];
#pragma unroll
        for (int i = 0; i < D / 32; i++) sums[i] = 0;
        for (u64 split = 0; split < args.splits; split++) {
            const u64 place = row * args.splits + split;
            const f32 factor = approximate_exp2(statistics[place * 2] - base);
            total += statistics[place * 2 + 1] * factor;
#pragma unroll
            for (int i = 0; i < D / 32; i++) sums[i] += args.partial[place * D + i * 32 + lane] * factor;
        }
        const u64 query = row % args.queries, whole = row / args.queries;
        T* out = (T*)args.out + (i64)(whole / args.heads) * args.strides[0][0] +
                 (i64)(whole % args.heads) * args.strides[0][1] + (i64)query * args.strides[0][2];
#pragma unroll
        for (int i = 0; i < D / 32; i++) {
            const u32 feature = i * 32 + lane;
            if (feature < args.width) out[feature] = narrow<T>(total == 0 ? 0.0f : sums[i] / total);
        }
    }
#endif
}

KERNEL(attention_64_combine, Attention) { combine<64>(args); }
KERNEL(attention_128_combine, Attention) { combine<128>(args); }

#endif
