// Sorting, the first k, and searches in sorted rows.
//
// Elements are compared by keys: unsigned integers whose order is the contract's (NaN greatest, zeros equal), flipped for
// a descending order. A row is sorted together with the positions of its elements, and the elements are fetched by
// position at the end, so that their bits are those of the input. By length of the row:
//
// - short: every thread counts how many elements of the row come before its own;
// - up to what shared memory holds: one block sorts a row by 8-bit digits, the least significant first (`sort_finish`);
// - longer: the same digit by digit in global memory. Tiles of a row are counted, the counts are summed along each digit,
//   and each tile moves its elements to where its digits begin.
//
// All of them are stable, and no result depends on the order in which blocks or threads run. `topk` sorts only candidates:
// the k-th least of the threads' least keys bounds the k-th least of all. Where too many elements are not above it, the
// k-th least key is found digit by digit from the top.

typedef unsigned short u16;

template <int SIZE> struct KeyOf;
template <> struct KeyOf<1> { typedef u8 type; };
template <> struct KeyOf<2> { typedef u16 type; };
template <> struct KeyOf<4> { typedef u32 type; };
template <> struct KeyOf<8> { typedef u64 type; };
typedef KeyOf<sizeof(T)>::type Key;

// The bits of +∞.
template <class E> constexpr u64 infinity_bits = 0;
template <> constexpr u64 infinity_bits<f64> = 0x7ff0000000000000;
template <> constexpr u64 infinity_bits<f32> = 0x7f800000;
template <> constexpr u64 infinity_bits<f16> = 0x7c00;
template <> constexpr u64 infinity_bits<bf16> = 0x7f80;

#define DIGITS 256
#define TILE 4096       // elements of a tile of a long row
#define ROW_THREADS 512 // threads that sort one row in shared memory
#define SELECTED 1024   // the most elements that `topk` selects
#define COLLECTED 64    // the most for which its candidates are likely to be few
#define PASSES (int)sizeof(Key)
#define AHEAD 8         // loads of `topk` that run ahead of what waits for them

#define RANK 0
#define COUNT 1
#define SUM 2
#define MOVE 3

struct Sort {
    Nest<2> rows;  // operand 0 is the output, operand 1 the input, each at the first element of a row
    const void* x;
    void* out;
    void* keys[2];       // of long rows between two passes
    void* positions[2];  // likewise, u64 if `wide`, else u32
    u64* counts;         // for each row, digit and tile
    u64* totals;         // for each row and digit
    u64 len;
    u64 taken;
    u64 tiles;
    i64 out_stride;
    i64 x_stride;
    u32 phase;
    u32 pass;
    u32 descending;
    u32 elements;  // whether elements are written, or positions
    u32 wide;
    u32 unused;
};

struct Search {
    Nest<3> nest;  // operand 0 is the output, 1 the value, 2 the first element of its row
    const void* sorted;
    const void* values;
    i64* out;
    u64 len;
    i64 stride;
    u64 right;
};

DEVICE Key key_of(T x) {
    const Key sign = (Key)((Key)1 << (8 * sizeof(Key) - 1));
#if IS_FLOAT
    union { T x; Key bits; } pun;
    pun.x = x;
    Key magnitude = pun.bits & (Key)~sign;
    if (magnitude > (Key)infinity_bits<T>) return (Key)~(Key)0;
    if (magnitude == 0) return sign;
    return pun.bits & sign ? (Key)~pun.bits : (Key)(pun.bits | sign);
#elif IS_SIGNED
    return (Key)x ^ sign;
#else
    return (Key)x;
#endif
}

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

// A row of the input and of the output.
struct Row {
    const T* x;
    T* elements;
    i64* positions;
    i64 x_stride, out_stride;
    Key flip;

    DEVICE Row of(const Sort& args, u64 index) {
        i64 out = offset(args.rows, 0, index);
        return {(const T*)args.x + offset(args.rows, 1, index),
                args.elements ? (T*)args.out + out : (T*)0,
                args.elements ? (i64*)0 : (i64*)args.out + out,
                args.x_stride,
                args.out_stride,
                args.descending ? (Key)~(Key)0 : (Key)0};
    }
    __device__ __forceinline__ Key key(u64 at) const { return (Key)(key_of(x[(i64)at * x_stride]) ^ flip); }
    // Puts the element from position `from` at `place`.
    __device__ __forceinline__ void put(u64 place, u64 from) const {
        if (elements) elements[(i64)place * out_stride] = x[(i64)from * x_stride];
        else positions[(i64)place * out_stride] = (i64)from;
    }
};

// ---- Short rows --------------------------------------------------------------------------------------------------

// A block owns as many rows as a tile holds; the place of an element is the number of those that come before it.
DEVICE void rank_rows(const Sort& args, Key* keys) {
    u32 len = (u32)args.len, rows = TILE / len;
    u64 groups = (args.rows.count + rows - 1) / rows;
    for (u64 group = blockIdx.x; group < groups; group += gridDim.x) {
        u64 first = group * rows;
        u32 held = (u32)min((u64)rows, args.rows.count - first) * len;
        for (u32 at = threadIdx.x; at < held; at += THREADS) keys[at] = Row::of(args, first + at / len).key(at % len);
        __syncthreads();
        for (u32 at = threadIdx.x; at < held; at += THREADS) {
            const Key* row = keys + at / len * len;
            u32 own = at % len, place = 0;
            Key key = row[own];
            for (u32 other = 0; other < own; other++) place += row[other] <= key;
            for (u32 other = own + 1; other < len; other++) place += row[other] < key;
            if (place < args.taken) Row::of(args, first + at / len).put(place, own);
        }
        __syncthreads();
    }
}

// ---- Digits ------------------------------------------------------------------------------------------------------

DEVICE u32 digit_of(Key key, u32 pass) { return (u32)(key >> (8 * pass)) & 255; }
DEVICE u32 lanes_below() { return (1u << (threadIdx.x % 32)) - 1; }

// The lanes of this warp that are live and have this lane's digit. All lanes call it.
DEVICE u32 peers(u32 digit, bool live) {
    u32 same = __ballot_sync(~0u, live);
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        u32 vote = __ballot_sync(~0u, digit >> bit & 1);
        same &= digit >> bit & 1 ? vote : ~vote;
    }
    return same;
}

// The sum over the threads before this one; `total` is that over all. `sums` has a word for each warp.
template <class S> DEVICE S sum_before(S value, S* sums, S& total) {
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    S sum = value;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        S below = __shfl_up_sync(~0u, sum, step);
        if (lane >= step) sum += below;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    S before = 0;
    total = 0;
    for (u32 other = 0; other < warps; other++) {
        if (other < warp) before += sums[other];
        total += sums[other];
    }
    return before + sum - value;
}

// Where the elements of each warp with each digit go when `count` elements are sorted stably by one digit. A warp owns a
// run of elements, `share` long and a multiple of 32, and walks it in order.
struct Places {
    u16* starts;  // for each warp and digit
    u32* sums;
    u32 count, share;

    __device__ __forceinline__ u32 begin() const { return threadIdx.x / 32 * share; }
    __device__ __forceinline__ u16* own() const { return starts + threadIdx.x / 32 * DIGITS; }

    // Counts the digits and sums the counts. The result is false when all elements have one digit and may stay.
    template <class Digit> __device__ __forceinline__ bool find(Digit digit) const {
        u32 lane = threadIdx.x % 32, thread = threadIdx.x, warps = blockDim.x / 32;
        for (u32 at = lane; at < DIGITS; at += 32) own()[at] = 0;
        __syncwarp();
        for (u32 step = 0; step < share; step += 32) {
            u32 at = begin() + step + lane;
            bool live = at < count;
            u32 value = live ? digit(at) : 0, same = peers(value, live);
            if (live && !(same & lanes_below())) own()[value] += (u16)__popc(same);
            __syncwarp();
        }
        __syncthreads();
        u32 mine = 0, total;
        if (thread < DIGITS) {
            for (u32 warp = 0; warp < warps; warp++) {
                u16 warp_count = starts[warp * DIGITS + thread];
                starts[warp * DIGITS + thread] = (u16)mine;
                mine += warp_count;
            }
        }
        bool moves = !__syncthreads_or(mine == count);
        u32 start = sum_before(mine, sums, total);
        if (thread < DIGITS) {
            for (u32 warp = 0; warp < warps; warp++) starts[warp * DIGITS + thread] += (u16)start;
        }
        __syncthreads();
        return moves;
    }

    // Calls `move(element, place)` for every element, after `find`.
    template <class Digit, class Move> __device__ __forceinline__ void each(Digit digit, Move move) const {
        u32 lane = threadIdx.x % 32;
        for (u32 step = 0; step < share; step += 32) {
            u32 at = begin() + step + lane;
            bool live = at < count;
            u32 value = live ? digit(at) : 0, same = peers(value, live);
            u32 start = own()[value];
            __syncwarp();
            if (live && !(same & lanes_below())) own()[value] = (u16)(start + __popc(same));
            __syncwarp();
            if (live) move(at, start + __popc(same & lanes_below()));
        }
    }
};

DEVICE u32 share_of(u32 count, u32 warps) { return (count + 32 * warps - 1) / (32 * warps) * 32; }

// ---- A row in shared memory --------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    NAME(sort_finish, ELEMENT)(const __grid_constant__ Sort args) {
    extern __shared__ u64 memory[];
    __shared__ u32 sums[ROW_THREADS / 32];
    u32 len = (u32)args.len, room = (len + 7) / 8 * 8;
    Key *from = (Key*)memory, *to = from + room;
    u16 *from_position = (u16*)(to + room), *to_position = from_position + room;
    Places places = {to_position + room, sums, len, share_of(len, ROW_THREADS / 32)};
    for (u64 index = blockIdx.x; index < args.rows.count; index += gridDim.x) {
        Row row = Row::of(args, index);
        for (u32 at = threadIdx.x; at < len; at += ROW_THREADS) {
            from[at] = row.key(at);
            from_position[at] = (u16)at;
        }
        __syncthreads();
        for (u32 pass = 0; pass < PASSES; pass++) {
            auto digit = [=](u32 at) { return digit_of(from[at], pass); };
            if (!places.find(digit)) continue;
            places.each(digit, [=](u32 at, u32 place) {
                to[place] = from[at];
                to_position[place] = from_position[at];
            });
            __syncthreads();
            Key* keys = from;
            u16* positions = from_position;
            from = to, from_position = to_position;
            to = keys, to_position = positions;
        }
        for (u32 at = threadIdx.x; at < args.taken; at += ROW_THREADS) row.put(at, from_position[at]);
        __syncthreads();
    }
}

// ---- Long rows, digit by digit -----------------------------------------------------------------------------------

// The elements of one tile before a pass.
struct Tile {
    Row row;
    const Key* keys;
    u64 begin;
    u32 count, pass;

    DEVICE Tile of(const Sort& args, u64 index, u64 tile) {
        u64 begin = tile * TILE;
        const Key* keys = args.pass ? (const Key*)args.keys[(args.pass + 1) % 2] + index * args.len + begin : 0;
        return {Row::of(args, index), keys, begin, (u32)min((u64)TILE, args.len - begin), args.pass};
    }
    __device__ __forceinline__ Key key(u32 at) const { return pass ? keys[at] : row.key(begin + at); }
};

DEVICE void count_tiles(const Sort& args, u32* counts) {
    for (u64 work = blockIdx.x; work < args.rows.count * args.tiles; work += gridDim.x) {
        u64 index = work / args.tiles, tile = work % args.tiles;
        Tile elements = Tile::of(args, index, tile);
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (u32 start = 0; start < elements.count; start += THREADS) {
            u32 at = start + threadIdx.x;
            bool live = at < elements.count;
            u32 digit = live ? digit_of(elements.key(at), args.pass) : 0, same = peers(digit, live);
            if (live && !(same & lanes_below())) atomicAdd(&counts[digit], __popc(same));
        }
        __syncthreads();
        args.counts[(index * DIGITS + threadIdx.x) * args.tiles + tile] = counts[threadIdx.x];
        __syncthreads();
    }
}

// A block sums the counts of one digit along a row.
DEVICE void sum_counts(const Sort& args, u64* sums) {
    for (u64 work = blockIdx.x; work < args.rows.count * DIGITS; work += gridDim.x) {
        u64* counts = args.counts + work * args.tiles;
        u64 before = 0;
        for (u64 start = 0; start < args.tiles; start += THREADS) {
            u64 at = start + threadIdx.x, total;
            u64 sum = sum_before(at < args.tiles ? counts[at] : 0, sums, total);
            if (at < args.tiles) counts[at] = before + sum;
            before += total;
        }
        if (threadIdx.x == 0) args.totals[work] = before;
        __syncthreads();
    }
}

template <class Position> DEVICE void move_tiles(const Sort& args, Key* keys, u16* sources, u16* starts, u64* bases) {
    __shared__ u64 wide_sums[THREADS / 32];
    __shared__ u32 sums[THREADS / 32];
    bool last = args.pass + 1 == PASSES;
    for (u64 work = blockIdx.x; work < args.rows.count * args.tiles; work += gridDim.x) {
        u64 index = work / args.tiles, tile = work % args.tiles, total;
        Tile elements = Tile::of(args, index, tile);
        Places places = {starts, sums, elements.count, share_of(elements.count, THREADS / 32)};
        auto digit = [&](u32 at) { return digit_of(elements.key(at), elements.pass); };
        places.find(digit);
        u64 digits_before = sum_before(args.totals[index * DIGITS + threadIdx.x], wide_sums, total);
        // From an element's place in the tile to that in the row; warp 0 comes first in each digit.
        bases[threadIdx.x] = digits_before + args.counts[(index * DIGITS + threadIdx.x) * args.tiles + tile] -
                             starts[threadIdx.x];
        __syncthreads();
        places.each(digit, [&](u32 at, u32 place) {
            keys[place] = elements.key(at);
            sources[place] = (u16)at;
        });
        __syncthreads();
        const Position* from = args.pass ? (const Position*)args.positions[(args.pass + 1) % 2] + index * args.len : 0;
        for (u32 at = threadIdx.x; at < elements.count; at += THREADS) {
            u64 place = bases[digit_of(keys[at], args.pass)] + at, source = elements.begin + sources[at];
            u64 position = from ? (u64)from[source] : source;
            if (last) {
                if (place < args.taken) elements.row.put(place, position);
            } else {
                ((Key*)args.keys[args.pass % 2])[index * args.len + place] = keys[at];
                ((Position*)args.positions[args.pass % 2])[index * args.len + place] = (Position)position;
            }
        }
        __syncthreads();
    }
}

#if PART == 0
KERNEL(sort, Sort) {
    __shared__ Key keys[TILE];
    __shared__ u16 sources[TILE];
    __shared__ u16 starts[THREADS / 32 * DIGITS];
    __shared__ u64 bases[DIGITS];
    if (args.phase == RANK) rank_rows(args, keys);
    else if (args.phase == COUNT) count_tiles(args, (u32*)bases);
    else if (args.phase == SUM) sum_counts(args, bases);
    else if (args.wide) move_tiles<u64>(args, keys, sources, starts, bases);
    else move_tiles<u32>(args, keys, sources, starts, bases);
}

#else

// ---- Searches ----------------------------------------------------------------------------------------------------

KERNEL(searchsorted, Search) {
    u64 first = (u64)blockIdx.x * THREADS + threadIdx.x, threads = (u64)gridDim.x * THREADS;
    for (u64 index = first; index < args.nest.count; index += threads) {
        Key key = key_of(((const T*)args.values)[offset(args.nest, 1, index)]);
        const T* row = (const T*)args.sorted + offset(args.nest, 2, index);
        u64 low = 0, high = args.len;
        while (low < high) {
            u64 middle = low + (high - low) / 2;
            Key other = key_of(row[(i64)middle * args.stride]);
            if (other < key || (args.right && other == key)) low = middle + 1;
            else high = middle;
        }
        args.out[offset(args.nest, 0, index)] = (i64)low;
    }
}

#endif
