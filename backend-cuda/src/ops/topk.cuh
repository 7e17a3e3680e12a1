#line 1 "topk.cuh"
// The end of sort.cu: the first k elements of rows, a row for each block.

#if PART == 1

// The keys of this thread at `start` and, each THREADS further on, after it.
DEVICE void load_ahead(const Row& row, u64 start, u64 len, Key (&ahead)[AHEAD]) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        u64 at = start + i * THREADS + threadIdx.x;
        ahead[i] = at < len ? row.key(at) : 0;
    }
}

// What a block selects from a row.
struct Selection {
    Key keys[SELECTED];
    u64 positions[SELECTED];
    Key limit;
    u32 held;
};

// Collects the elements not above the `taken`-th least of the threads' least keys, of which there are `taken` or more.
// The result is false when they are more than there is room for.
DEVICE bool collect(const Row& row, u64 len, u32 taken, Selection& out) {
    u32 thread = threadIdx.x, place = 0;
    Key least = (Key)~(Key)0, ahead[AHEAD];
    for (u64 start = 0; start < len; start += AHEAD * THREADS) {
        load_ahead(row, start, len, ahead);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (start + i * THREADS + thread < len) least = min(least, ahead[i]);
        }
    }
    out.keys[thread] = least;
    if (thread == 0) out.held = 0;
    __syncthreads();
    for (u32 other = 0; other < THREADS; other++) {
        place += out.keys[other] < least || (out.keys[other] == least && other < thread);
    }
    if (place + 1 == taken) out.limit = least;
    __syncthreads();
    Key limit = out.limit;
    for (u64 start = 0; start < len; start += AHEAD * THREADS) {
        load_ahead(row, start, len, ahead);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u64 at = start + i * THREADS + thread;
            if (at >= len || ahead[i] > limit) continue;
            u32 slot = atomicAdd(&out.held, 1);
            if (slot >= SELECTED) continue;
            out.keys[slot] = ahead[i];
            out.positions[slot] = at;
        }
    }
    __syncthreads();
    return out.held <= SELECTED;
}

// Selects exactly the first `taken`.
DEVICE void select(const Row& row, u64 len, u32 taken, Selection& out, u32* counts, u32* sums) {
    __shared__ u64 found[2];
    u32 thread = threadIdx.x;
    // Digit by digit, the bucket in which the k-th least key lies, and how many of the bucket are taken.
    Key limit = 0;
    u32 rest = taken;
    for (int pass = PASSES - 1; pass >= 0; pass--) {
        counts[thread] = 0;
        __syncthreads();
        for (u64 start = 0; start < len; start += AHEAD * THREADS) {
            Key ahead[AHEAD];
            load_ahead(row, start, len, ahead);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                Key key = ahead[i];
                // The digits above are shifted in two steps: one by the whole width is undefined.
                bool live = start + i * THREADS + thread < len &&
                            (Key)((Key)(key ^ limit) >> (8 * pass) >> 7 >> 1) == 0;
                u32 digit = digit_of(key, pass);
                if (!__ballot_sync(~0u, live)) continue;
                u32 same = peers(digit, live);
                if (live && !(same & lanes_below())) atomicAdd(&counts[digit], __popc(same));
            }
        }
        __syncthreads();
        u32 own = counts[thread], total;
        // Saturated, since no more than k matter.
        u32 before = sum_before(min(own, taken), sums, total);
        if (before < rest && rest <= before + min(own, taken)) {
            found[0] = thread;
            found[1] = before;
        }
        __syncthreads();
        limit |= (Key)((Key)found[0] << (8 * pass));
        rest -= (u32)found[1];
        __syncthreads();
    }
    // All that are less, and the first ones that are equal, in the order of their positions.
    u32 less_before = 0, equal_before = 0, less_all = taken - rest;
    for (u64 start = 0; start < len; start += AHEAD * THREADS) {
        Key ahead[AHEAD];
        load_ahead(row, start, len, ahead);
#pragma unroll 1
        for (int i = 0; i < AHEAD; i++) {
            u64 at = start + i * THREADS + thread;
            Key key = ahead[0];
#pragma unroll
            for (int j = 1; j < AHEAD; j++) ahead[j - 1] = ahead[j];
            bool less = at < len && key < limit, equal = at < len && key == limit && equal_before < rest;
            if (!__syncthreads_or(less || equal)) continue;
            u32 total, before = sum_before((u32)less << 16 | (u32)equal, sums, total);
            u32 less_place = less_before + (before >> 16), equal_place = equal_before + (before & 0xffff);
            if (less || (equal && equal_place < rest)) {
                u32 place = less ? less_place : less_all + equal_place;
                out.keys[place] = key;
                out.positions[place] = at;
            }
            less_before += total >> 16;
            equal_before += total & 0xffff;
        }
    }
    if (thread == 0) out.held = taken;
    __syncthreads();
}

// A block owns a row.
KERNEL(topk, Sort) {
    __shared__ Selection selection;
    __shared__ u32 counts[DIGITS];
    __shared__ u32 sums[THREADS / 32];
    u32 taken = (u32)args.taken;
    for (u64 index = blockIdx.x; index < args.rows.count; index += gridDim.x) {
        Row row = Row::of(args, index);
        if (taken > COLLECTED || !collect(row, args.len, taken, selection)) {
            select(row, args.len, taken, selection, counts, sums);
        }
        for (u32 own = threadIdx.x; own < selection.held; own += THREADS) {
            Key key = selection.keys[own];
            u64 position = selection.positions[own];
            u32 place = 0;
            for (u32 other = 0; other < selection.held; other++) {
                Key one = selection.keys[other];
                place += one < key || (one == key && selection.positions[other] < position);
            }
            if (place < taken) row.put(place, position);
        }
        __syncthreads();
    }
}

#endif
