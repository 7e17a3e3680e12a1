// Attention: `attention_T`, for up to 128 features of keys and of values.
//
// A block takes 32 query rows of a head at a time and passes over the keys that they see, 32 at a time: products with the
// keys, the running maximum and sum of the exponentials (the softmax is never whole), then the weighted values. Eight
// neighbouring threads share a row: each has every eighth key of the products, and every eighth feature of the result,
// which stays in registers. Keys and values pass through the same shared memory. Nothing is kept in global memory, and
// every sum has one order.

typedef Compute<T> C;

#define ROWS 32
#define KEYS 32
#define LANES 8
#define FEATURES 128

struct Attention {
    void* out;
    const void* q;
    const void* k;
    const void* v;
    const void* mask;  // null when absent
    i64 strides[5][4];  // of the output, q, k, v and the mask
    u64 batch;
    u64 heads;
    u64 group;  // heads of q that share a head of k
    u64 queries;
    u64 keys;
    f64 scale;
    u32 depth;
    u32 width;
    u32 columns;  // the larger of both, rounded up to LANES
    u32 causal;
    u32 boolean;  // whether the mask is bool
    u32 unused;
};

#if IS_FLOAT

DEVICE C least() { return -infinity(); }

// Copies rows of a matrix to shared memory; what lies outside is zero.
DEVICE void load(C* tile, const T* from, const i64* strides, u64 first, u64 rows, u32 size, u32 columns) {
    for (u32 index = threadIdx.x; index < ROWS * columns; index += THREADS) {
        u32 row = index / columns, column = index - row * columns;
        bool inside = first + row < rows && column < size;
        tile[row * (columns + 1) + column] =
            inside ? (C)widen(from[(i64)(first + row) * strides[2] + (i64)column * strides[3]]) : (C)0;
    }
}

// The same value in each of the threads that share a row.
DEVICE C greatest_of_row(C x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) {
        C other = __shfl_xor_sync(0xffffffff, x, step);
        x = other > x ? other : x;
    }
    return x;
}
DEVICE C sum_of_row(C x) {
#pragma unroll
    for (int step = LANES / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
    return x;
}

DEVICE void attend(const Attention& args, C* queries, u64 head, u64 first) {
    const u32 stride = args.columns + 1;
    C* keys = queries + ROWS * stride;
    C* weights = keys + KEYS * stride;
    const u64 batch = head / args.heads, h = head % args.heads, shared = h / args.group;
    const T* q = (const T*)args.q + (i64)batch * args.strides[1][0] + (i64)h * args.strides[1][1];
    const T* k = (const T*)args.k + (i64)batch * args.strides[2][0] + (i64)shared * args.strides[2][1];
    const T* v = (const T*)args.v + (i64)batch * args.strides[3][0] + (i64)shared * args.strides[3][1];
    const u32 row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const u64 query = first + row;
    const bool inside = query < args.queries;
    // How many keys, from the first on, a query sees.
    const u64 last = first + ROWS < args.queries ? first + ROWS : args.queries;
    i64 reach = (i64)args.keys, most = reach;
    if (args.causal) {
        reach = (i64)query + 1 + (i64)args.keys - (i64)args.queries;
        most = (i64)last + (i64)args.keys - (i64)args.queries;
        if (reach > (i64)args.keys) reach = (i64)args.keys;
    }
    if (!inside) reach = 0;
    const i64 mask_row = (i64)batch * args.strides[4][0] + (i64)h * args.strides[4][1] + (i64)query * args.strides[4][2];

    load(queries, q, args.strides[1], first, args.queries, args.depth, args.columns);
    C sums[FEATURES / LANES];
#pragma unroll
    for (int i = 0; i < FEATURES / LANES; i++) sums[i] = 0;
    C max = least(), total = 0;
#pragma unroll 1
    for (i64 start = 0; start < most; start += KEYS) {
        __syncthreads();
        load(keys, k, args.strides[2], start, args.keys, args.depth, args.columns);
        __syncthreads();
        C scores[KEYS / LANES];
#pragma unroll
        for (int i = 0; i < KEYS / LANES; i++) scores[i] = 0;
#pragma unroll 2
        for (u32 feature = 0; feature < args.depth; feature++) {
            C x = queries[row * stride + feature];
#pragma unroll
            for (int i = 0; i < KEYS / LANES; i++) {
                scores[i] = fused(x, keys[(lane + i * LANES) * stride + feature], scores[i]);
            }
        }
        C greatest = max;
#pragma unroll
        for (int i = 0; i < KEYS / LANES; i++) {
            i64 key = start + lane + i * LANES;
            bool seen = key < reach;
            scores[i] *= (C)args.scale;
            if (seen && args.mask) {
                i64 place = mask_row + key * args.strides[4][3];
                if (args.boolean) seen = ((const u8*)args.mask)[place] != 0;
                else scores[i] += (C)widen(((const T*)args.mask)[place]);
            }
            if (!seen) scores[i] = least();
            // NaN is skipped here, but its exponential is NaN.
            greatest = scores[i] > greatest ? scores[i] : greatest;
        }
        greatest = greatest_of_row(greatest);
        const C shift = greatest == least() ? (C)0 : greatest;
        const C factor = exp(max - shift);
        max = greatest;
        C part = 0;
#pragma unroll
        for (int i = 0; i < KEYS / LANES; i++) {
            C weight = exp(scores[i] - shift);
            weights[row * (KEYS + 1) + lane + i * LANES] = weight;
            part += weight;
        }
        total = total * factor + sum_of_row(part);
#pragma unroll
        for (int i = 0; i < FEATURES / LANES; i++) sums[i] *= factor;
        __syncthreads();
        load(keys, v, args.strides[3], start, args.keys, args.width, args.columns);
        __syncthreads();
#pragma unroll 2
        for (u32 key = 0; key < KEYS; key++) {
            C weight = weights[row * (KEYS + 1) + key];
#pragma unroll
            for (int i = 0; i < FEATURES / LANES; i++) {
                if (i * LANES < args.columns) sums[i] = fused(weight, keys[key * stride + lane + i * LANES], sums[i]);
            }
        }
    }
    if (inside) {
        T* out = (T*)args.out + (i64)batch * args.strides[0][0] + (i64)h * args.strides[0][1] +
                 (i64)query * args.strides[0][2];
#pragma unroll
        for (int i = 0; i < FEATURES / LANES; i++) {
            u32 feature = lane + i * LANES;
            // Of no keys the total is 0.
            if (feature < args.width) {
                out[(i64)feature * args.strides[0][3]] = narrow<T>(total == (C)0 ? (C)0 : sums[i] / total);
            }
        }
    }
}

KERNEL(attention, Attention) {
    extern __shared__ f64 memory[];
    u64 tiles = (args.queries + ROWS - 1) / ROWS;
    for (u64 work = blockIdx.x; work < args.batch * args.heads * tiles; work += gridDim.x) {
        // The queries of the last tile are still read.
        __syncthreads();
        attend(args, (C*)memory, work / tiles, work % tiles * ROWS);
    }
}

#endif
