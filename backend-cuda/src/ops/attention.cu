// Attention and its gradients: `attention_T`, `attention_logsumexp_T`, `attention_grad_query_T` …, for up to 128 features of
// keys and of values.
//
// Rows are queries where the result has theirs, keys for the gradients by keys and values; columns are the others. A block
// takes 32 rows of a head at a time and passes over the columns that they see, 32 at a time: products with them, weights
// (of the output by a running maximum and sum of the exponentials, so that the softmax is never whole; of gradients by the
// log-sum-exp), then the weighted sums. Eight neighbouring threads share a row: each has every eighth column of the products,
// and every eighth feature of the result, which stays in registers. The columns' features pass through the same shared
// memory. Nothing is kept in global memory, and every sum has one order.

typedef Compute<T> C;

#define ROWS 32
#define COLUMNS 32
#define LANES 8
#define FEATURES 128

#define OUTPUT 0
#define LOG_SUM_EXP 1
#define GRAD_QUERY 2
#define GRAD_KEY 3
#define GRAD_VALUE 4

// Operands by their numbers in the plan.
#define Q 1
#define K 2
#define V 3
#define MASK 4
#define SLOPES 5
#define LENGTHS 6
#define GRAD 7
#define LOGSUMEXP 8
#define DELTA 9

struct Attention {
    void* out;
    const void* inputs[9];  // null when absent
    i64 strides[10][4];
    u64 batch;
    u64 heads;
    u64 kv_heads;
    u64 group;  // heads of q that share a head of k
    u64 queries;
    u64 keys;
    i64 window;
    f64 scale;
    f64 soft_cap;   // 0 without
    f64 kept;       // what dropout multiplies weights with
    u64 threshold;  // below which a word leaves a weight out; 0 without dropout
    u64 seed;
    u64 offset;
    u32 depth;
    u32 width;
    u32 columns;  // the larger of both, rounded up to LANES
    u32 causal;
    u32 first;    // whether the first query stands at the first key
    u32 boolean;  // whether the mask is bool
    u64 splits;   // of the keys, each with a sum of its own in `partial`
    f32* partial;
};

#if IS_FLOAT

DEVICE C least() { return -infinity(); }

// An operand of [batch, heads, positions, features] at a head.
struct Rows {
    const T* from;
    i64 row, feature;
    u64 count;  // of positions
    u32 size;   // of features
};

DEVICE Rows rows_of(const Attention& args, int operand, u64 batch, u64 head) {
    const i64* strides = args.strides[operand];
    Rows rows;
    rows.from = (const T*)args.inputs[operand - 1] + (i64)batch * strides[0] + (i64)head * strides[1];
    rows.row = strides[2];
    rows.feature = strides[3];
    rows.count = operand == K || operand == V ? args.keys : args.queries;
    rows.size = operand == Q || operand == K ? args.depth : args.width;
    return rows;
}

// Copies ROWS rows to shared memory; what lies outside is zero.
DEVICE void load(C* tile, const Rows& rows, u64 first, u32 columns) {
    for (u32 index = threadIdx.x; index < ROWS * columns; index += THREADS) {
        u32 row = index / columns, column = index - row * columns;
        bool inside = first + row < rows.count && column < rows.size;
        tile[row * (columns + 1) + column] =
            inside ? (C)widen(rows.from[(i64)(first + row) * rows.row + (i64)column * rows.feature]) : (C)0;
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

// A thread's products of its row with its columns of a tile.
DEVICE void products(C (&sums)[COLUMNS / LANES], const C* own, const C* tile, u32 size, u32 stride) {
    const u32 lane = threadIdx.x % LANES;
#pragma unroll
    for (int i = 0; i < COLUMNS / LANES; i++) sums[i] = 0;
#pragma unroll 2
    for (u32 feature = 0; feature < size; feature++) {
        C x = own[feature];
#pragma unroll
        for (int i = 0; i < COLUMNS / LANES; i++) sums[i] = fused(x, tile[(lane + i * LANES) * stride + feature], sums[i]);
    }
}

// What dropout makes of a weight is its product with this.
DEVICE C kept(const Attention& args, u64 head, u64 query, u64 key) {
    if (args.threshold == 0) return (C)1;
    u64 word = args.offset + (head * args.queries + query) * args.keys + key;
    u32 c[4] = {(u32)(word / 4), (u32)(word / 4 >> 32), 0, 0}, key0 = (u32)args.seed, key1 = (u32)(args.seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 first = (u64)0xd2511f53u * c[0], second = (u64)0xcd9e8d57u * c[2];
        c[0] = (u32)(second >> 32) ^ c[1] ^ key0;
        c[1] = (u32)second;
        c[2] = (u32)(first >> 32) ^ c[3] ^ key1;
        c[3] = (u32)first;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    u32 lane = word % 4, bits = lane == 0 ? c[0] : lane == 1 ? c[1] : lane == 2 ? c[2] : c[3];
    return bits < args.threshold ? (C)0 : (C)args.kept;
}

// Which columns a row sees, but for the mask: low .. high.
struct Band {
    i64 low, high;
};
DEVICE i64 within(i64 x, i64 most) { return x < 0 ? 0 : x > most ? most : x; }
DEVICE Band band(const Attention& args, bool by_query, i64 row, i64 keys, i64 shift) {
    Band band;
    if (by_query) {
        i64 place = row + shift;
        band.high = within(place + (args.causal ? 1 : args.window), keys);
        band.low = within(place - args.window + 1, band.high);
    } else if (row >= keys) {
        band.low = band.high = 0;
    } else {
        i64 place = row - shift;
        band.high = within(place + args.window, (i64)args.queries);
        band.low = within(place - (args.causal ? 0 : args.window - 1), band.high);
    }
    return band;
}

// The score of a product; `slope` is the derivative of the soft cap. −∞ where the mask hides the key.
DEVICE C score(const Attention& args, C product, i64 at_mask, C bias, C* slope) {
    C score = product * (C)args.scale;
    *slope = 1;
    if (args.soft_cap != 0) {
        C bent = tanh(score / (C)args.soft_cap);
        score = bent * (C)args.soft_cap;
        *slope = (C)1 - bent * bent;
    }
    score -= bias;
    const void* mask = args.inputs[MASK - 1];
    if (mask && args.boolean) return ((const u8*)mask)[at_mask] != 0 ? score : least();
    return mask ? score + (C)widen(((const T*)mask)[at_mask]) : score;
}

template <int OP> DEVICE void attend(const Attention& args, C* own, u64 head, u64 first) {
    const bool by_query = OP == OUTPUT || OP == LOG_SUM_EXP || OP == GRAD_QUERY;
    const bool second = OP == GRAD_QUERY || OP == GRAD_KEY;
    const bool gradient = second || OP == GRAD_VALUE;
    const int summed = OP == OUTPUT ? V : OP == GRAD_QUERY ? K : OP == GRAD_KEY ? Q : GRAD;
    const u32 stride = args.columns + 1;
    C* own_second = own + ROWS * stride;
    C* tile = own_second + (second ? ROWS * stride : 0);
    C* weights = tile + COLUMNS * stride;
    const u64 row_heads = by_query ? args.heads : args.kv_heads;
    const u64 batch = head / row_heads, h = head % row_heads;
    const u64 count = by_query ? args.queries : args.keys;
    const u32 row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const u64 position = first + row;
    const bool inside = position < count;
    i64 keys = (i64)args.keys;
    if (args.inputs[LENGTHS - 1]) {
        keys = within(((const i64*)args.inputs[LENGTHS - 1])[(i64)batch * args.strides[LENGTHS][0]], keys);
    }
    const i64 shift = args.first ? 0 : keys - (i64)args.queries;
    // Rows further on see columns further on, up to the last that there is in the batch item.
    const i64 present = by_query ? (i64)count : keys;
    const i64 last = (i64)first + ROWS < present ? (i64)first + ROWS - 1 : present - 1;
    const i64 low = band(args, by_query, first, keys, shift).low;
    const i64 high = (i64)first < present ? band(args, by_query, last, keys, shift).high : 0;
    const Band seen = band(args, by_query, position, keys, shift);

    load(own, rows_of(args, by_query ? Q : K, batch, h), first, args.columns);
    if (second) load(own_second, rows_of(args, by_query ? GRAD : V, batch, h), first, args.columns);
    C sums[FEATURES / LANES];
#pragma unroll
    for (int i = 0; i < FEATURES / LANES; i++) sums[i] = 0;
    C max = least(), total = 0;
    const u64 heads = by_query ? 1 : args.group;
#pragma unroll 1
    for (u64 member = 0; member < heads; member++) {
        const u64 query_head = by_query ? h : h * args.group + member;
        const u64 other = by_query ? h / args.group : query_head;
        const u64 whole_head = batch * args.heads + query_head;
        C steepness = 0;
        if (args.inputs[SLOPES - 1]) {
            const i64* strides = args.strides[SLOPES];
            steepness = ((const C*)args.inputs[SLOPES - 1])[(i64)batch * strides[0] + (i64)query_head * strides[1]];
        }
        const i64 at_mask = (i64)batch * args.strides[MASK][0] + (i64)query_head * args.strides[MASK][1];
        const C* statistics[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const i64* strides = args.strides[LOGSUMEXP + i];
            statistics[i] = (const C*)args.inputs[LOGSUMEXP - 1 + i] + (i64)batch * strides[0] + (i64)query_head * strides[1];
        }
#pragma unroll 1
        for (i64 start = low / COLUMNS * COLUMNS; start < high; start += COLUMNS) {
            C scores[COLUMNS / LANES], changes[COLUMNS / LANES];
            __syncthreads();
            load(tile, rows_of(args, by_query ? K : Q, batch, other), start, args.columns);
            __syncthreads();
            products(scores, own + row * stride, tile, args.depth, stride);
            if (second) {
                __syncthreads();
                load(tile, rows_of(args, by_query ? V : GRAD, batch, other), start, args.columns);
                __syncthreads();
                products(changes, own_second + row * stride, tile, args.width, stride);
            }
            C greatest = max;
#pragma unroll
            for (int i = 0; i < COLUMNS / LANES; i++) {
                const i64 column = start + lane + i * LANES;
                const i64 query = by_query ? (i64)position : column, key = by_query ? column : (i64)position;
                C weight = gradient ? (C)0 : least();
                if (inside && column >= seen.low && column < seen.high) {
                    const i64 distance = query + shift - key;
                    const C bias = steepness * (C)(distance < 0 ? -distance : distance);
                    C slope;
                    weight = score(args, scores[i], at_mask + query * args.strides[MASK][2] + key * args.strides[MASK][3], bias,
                                   &slope);
                    if (gradient) {
                        const C sum = statistics[0][query * args.strides[LOGSUMEXP][2]];
                        weight = sum == least() ? (C)0 : exp(weight - sum);
                        const C factor = kept(args, whole_head, query, key);
                        if (second) {
                            const C delta = statistics[1][query * args.strides[DELTA][2]];
                            weight *= changes[i] * factor - delta;
                            if (args.soft_cap != 0) weight *= slope;
                        } else {
                            weight *= factor;
                        }
                    }
                }
                scores[i] = weight;
                // NaN is skipped here, but its exponential is NaN.
                greatest = weight > greatest ? weight : greatest;
            }
            if (!gradient) {
                greatest = greatest_of_row(greatest);
                const C base = greatest == least() ? (C)0 : greatest;
                const C factor = exp(max - base);
                max = greatest;
                C part = 0;
#pragma unroll
                for (int i = 0; i < COLUMNS / LANES; i++) {
                    scores[i] = exp(scores[i] - base);
                    part += scores[i];
                    if (OP == OUTPUT) scores[i] *= kept(args, whole_head, position, start + lane + i * LANES);
                }
                total = total * factor + sum_of_row(part);
#pragma unroll
                for (int i = 0; i < FEATURES / LANES; i++) sums[i] *= factor;
            }
            if (OP == LOG_SUM_EXP) continue;
#pragma unroll
            for (int i = 0; i < COLUMNS / LANES; i++) weights[row * (COLUMNS + 1) + lane + i * LANES] = scores[i];
            __syncthreads();
            load(tile, rows_of(args, summed, batch, other), start, args.columns);
            __syncthreads();
#pragma unroll 2
            for (u32 column = 0; column < COLUMNS; column++) {
                C weight = weights[row * (COLUMNS + 1) + column];
#pragma unroll
                for (int i = 0; i < FEATURES / LANES; i++) {
                    if (i * LANES < args.columns) sums[i] = fused(weight, tile[column * stride + lane + i * LANES], sums[i]);
                }
            }
        }
    }
    if (!inside) return;
    const i64* strides = args.strides[0];
    const i64 at = (i64)batch * strides[0] + (i64)h * strides[1] + (i64)position * strides[2];
    if (OP == LOG_SUM_EXP) {
        if (lane == 0) ((C*)args.out)[at] = log(total) + (max == least() ? (C)0 : max);
        return;
    }
    const u32 width = OP == GRAD_QUERY || OP == GRAD_KEY ? args.depth : args.width;
#pragma unroll
    for (int i = 0; i < FEATURES / LANES; i++) {
        u32 feature = lane + i * LANES;
        C result = sums[i];
        // Of no keys the total is 0.
        if (OP == OUTPUT) result = total == (C)0 ? (C)0 : result / total;
        if (OP == GRAD_QUERY || OP == GRAD_KEY) result *= (C)args.scale;
        if (feature < width) ((T*)args.out)[at + (i64)feature * strides[3]] = narrow<T>(result);
    }
}

template <int OP> DEVICE void attend_all(const Attention& args) {
    extern __shared__ f64 memory[];
    const bool by_query = OP == OUTPUT || OP == LOG_SUM_EXP || OP == GRAD_QUERY;
    u64 tiles = ((by_query ? args.queries : args.keys) + ROWS - 1) / ROWS;
    u64 heads = args.batch * (by_query ? args.heads : args.kv_heads);
    for (u64 work = blockIdx.x; work < heads * tiles; work += gridDim.x) {
        // The rows of the last tile are still read.
        __syncthreads();
        attend<OP>(args, (C*)memory, work / tiles, work % tiles * ROWS);
    }
}

KERNEL(attention, Attention) { attend_all<OUTPUT>(args); }
KERNEL(attention_logsumexp, Attention) { attend_all<LOG_SUM_EXP>(args); }
KERNEL(attention_grad_query, Attention) { attend_all<GRAD_QUERY>(args); }
KERNEL(attention_grad_key, Attention) { attend_all<GRAD_KEY>(args); }
KERNEL(attention_grad_value, Attention) { attend_all<GRAD_VALUE>(args); }

#endif
