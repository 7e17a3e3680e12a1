#line 1 "grouping.cuh"
// The end of index.cu for bool: positions of true elements, and the grouping of a scatter's sources by destination, whose
// passes handle no elements and so are compiled once.

#if IS_BOOL && PART == 0

// ---- Sums over the threads of a block ----------------------------------------------------------------------------

// The sum of `value` over the threads before this one, and over all of the block's.
DEVICE u64 block_scan(u64 value, u64& total) {
    __shared__ u64 warps[THREADS / 32];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        u64 before = __shfl_up_sync(0xffffffff, sum, step);
        if (lane >= step) sum += before;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u64 offset = 0;
    total = 0;
#pragma unroll
    for (int other = 0; other < THREADS / 32; other++) {
        if (other < warp) offset += warps[other];
        total += warps[other];
    }
    // The next call overwrites the sums.
    __syncthreads();
    return offset + sum - value;
}

struct Scan {
    u64* values;
    u64 count;
};

// Replaces each value by the sum of those before it; the sum of all follows the last. One block.
KERNEL(nonzero_scan, Scan) {
    const int EACH = 8;
    u64 base = 0;
    for (u64 first = 0; first < args.count; first += THREADS * EACH) {
        u64 own = first + threadIdx.x * EACH, values[EACH], sum = 0, total;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            values[i] = own + i < args.count ? args.values[own + i] : 0;
            sum += values[i];
        }
        u64 before = base + block_scan(sum, total);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (own + i < args.count) args.values[own + i] = before;
            before += values[i];
        }
        base += total;
    }
    if (threadIdx.x == 0) args.values[args.count] = base;
}

// ---- Positions of true elements ----------------------------------------------------------------------------------

struct Mask {
    Nest<2> nest;  // the row-major number, the mask
    const bool* mask;
    i64* out;
    u64* counts;
    i64 stride;
    u64 room;
    u64 share;  // elements of a block, a multiple of a tile: 16 for each thread
    u32 vector;
};

// Bit i says whether element first + i is true.
DEVICE u32 sixteen(const Mask& args, u64 first) {
    u32 bits = 0;
    if (first >= args.nest.count) return 0;
    if (args.vector && first + 16 <= args.nest.count) {
        Pack<u8, 16> pack = *(const Pack<u8, 16>*)(args.mask + first);
#pragma unroll
        for (int i = 0; i < 16; i++) bits |= (u32)(pack.lane[i] != 0) << i;
        return bits;
    }
    for (int i = 0; i < 16 && first + i < args.nest.count; i++) {
        i64 at[2];
        visit(args.nest, first + i, at);
        bits |= (u32)args.mask[at[1]] << i;
    }
    return bits;
}

KERNEL(nonzero_count, Mask) {
    u64 begin = blockIdx.x * args.share, end = min(begin + args.share, args.nest.count), count = 0, total;
#pragma unroll 4
    for (u64 first = begin + threadIdx.x * 16; first < end; first += THREADS * 16) count += __popc(sixteen(args, first));
    block_scan(count, total);
    if (threadIdx.x == 0) args.counts[blockIdx.x] = total;
}

// The positions of a tile are gathered in shared memory, so that neighbouring threads write neighbouring ones.
KERNEL(nonzero, Mask) {
    __shared__ unsigned short found[THREADS * 16];
    u64 begin = blockIdx.x * args.share, end = min(begin + args.share, args.nest.count);
    u64 base = args.counts[blockIdx.x];
    u32 ahead = begin < end ? sixteen(args, begin + threadIdx.x * 16) : 0;
    for (u64 tile = begin; tile < end; tile += THREADS * 16) {
        u32 bits = ahead, first = threadIdx.x * 16;
        u64 total, next = tile + THREADS * 16;
        ahead = next < end ? sixteen(args, next + first) : 0;
        u32 place = (u32)block_scan(__popc(bits), total);
        for (; bits; bits &= bits - 1) found[place++] = (unsigned short)(first + __ffs(bits) - 1);
        __syncthreads();
        u64 held = base < args.room ? min(total, args.room - base) : 0;
        for (u32 i = threadIdx.x; i < held; i += THREADS) args.out[(i64)(base + i) * args.stride] = (i64)(tile + found[i]);
        base += total;
        // block_scan's barriers keep the next tile from overwriting what is still read.
    }
    for (u64 slot = args.counts[gridDim.x] + first_thread(); slot < args.room; slot += all_threads()) {
        args.out[(i64)slot * args.stride] = -1;
    }
}

// ---- Sorting sources by row: a stable radix sort of (row, position), 8 bits of the row a pass ----------------------

KERNEL(nonzero_keys, Scatter) {
    bool outside = false;
    u64 total = args.outer.count * args.count, none = args.outer.count * args.len;
    for (u64 work = first_thread(); work < total; work += all_threads()) {
        u64 position, row;
        u64 lane = divide(work, args.count, position);
        if (!find_row(args, lane, position, row)) {
            outside = true;
            row = none;
        }
        args.items[work] = row << args.position_bits | position;
    }
    if (outside) *args.flag = 1;
}

// How often each digit comes in each block's share; block b's count of digit d is counts[d · blocks + b].
KERNEL(nonzero_histogram, Scatter) {
    __shared__ u32 counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();
    u64 total = args.outer.count * args.count;
    u64 begin = blockIdx.x * args.chunk, end = min(begin + args.chunk, total);
    for (u64 at = begin + threadIdx.x; at < end; at += THREADS) atomicAdd(&counts[args.items[at] >> args.shift & 255], 1);
    __syncthreads();
    args.counts[(u64)threadIdx.x * gridDim.x + blockIdx.x] = counts[threadIdx.x];
}

// Moves each item behind all that have a smaller digit, or the same one and come before it.
KERNEL(nonzero_move, Scatter) {
    __shared__ u64 base[256];
    __shared__ u32 counts[THREADS / 32][256];
    u32 thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    base[thread] = args.counts[(u64)thread * gridDim.x + blockIdx.x];
    u64 total = args.outer.count * args.count;
    u64 begin = blockIdx.x * args.chunk, end = min(begin + args.chunk, total);
    for (u64 tile = begin; tile < end; tile += THREADS) {
        for (int other = 0; other < THREADS / 32; other++) counts[other][thread] = 0;
        __syncthreads();
        bool active = tile + thread < end;
        u64 item = active ? args.items[tile + thread] : 0;
        // Threads without an item have a digit of their own.
        u32 digit = active ? (u32)(item >> args.shift) & 255 : 256;
        u32 peers = __match_any_sync(0xffffffff, digit);
        u32 rank = __popc(peers & ((1u << lane) - 1));
        if (active && rank == 0) counts[warp][digit] = __popc(peers);
        __syncthreads();
        u32 sum = 0;
        for (int other = 0; other < THREADS / 32; other++) {
            u32 count = counts[other][thread];
            counts[other][thread] = sum;
            sum += count;
        }
        __syncthreads();
        if (active) args.spare[base[digit] + counts[warp][digit] + rank] = item;
        __syncthreads();
        base[thread] += sum;
    }
}
#endif
