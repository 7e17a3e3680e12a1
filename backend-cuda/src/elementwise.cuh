// The loops of elementwise kernels; what one element becomes is a functor of the family's file.
//
// Three ways, of which the host takes the first that the operands allow:
//
// - PACKS: along the last axis every operand is a run of memory or stays where it is, and every run starts at a whole
//   pack. The nest counts packs of V elements, 16 bytes of the widest operand; a thread takes PACKS_AHEAD of them.
// - TILES: some operands run along another axis than the output. A block takes a square of the two axes (the nest's
//   last two). It reads those operands along their own axis into shared memory, a row per element of the last axis, and
//   takes them from there along the output's. The rows are one element longer than the square, so that neither way two
//   threads of a warp meet in a bank.
// - ELEMENTS: one element after another; a thread has ELEMENTS_AHEAD of them in flight.

#define PACKS 0
#define ELEMENTS 1
#define TILES 2

#define METHOD __device__ __forceinline__

// `flag` is a word of host memory that a kernel sets to report a division by zero.
template <int N> struct Elementwise {
    void* out;
    u32* flag;
    Source sources[3];
    u32 path;
    u32 options;
    u32 constant;  // bit n: operand n stays where it is along the last axis
    u32 staged;    // bit n: operand n goes through shared memory
    u32 packed;    // whether a whole tile may be moved in packs
    u32 rest;      // the elements after the last whole pack of a nest of one axis
    Nest<N> nest;
};

// A value that a functor doesn't take.
struct Nothing {};
template <class E> constexpr bool is_nothing = false;
template <> constexpr bool is_nothing<Nothing> = true;

struct Context {
    u32 options;
    mutable bool divided_by_zero;
};

// What an op's functor derives from: the types of its result and of the values it takes, and how many of these are
// operands of the plan (scalars in `sources` follow). It defines `Out apply(First, Second, Third, const Context&)`.
// `tiles` says whether the kernel has that way: it doubles what there is to compile, so families of many ops do without.
template <class O, class X = Nothing, class Y = Nothing, class Z = Nothing, int N = 0> struct Functor {
    typedef O Out;
    typedef X First;
    typedef Y Second;
    typedef Z Third;
    static const int inputs = N;
    static const bool tiles = false;
};
template <class O, class X> using Functor1 = Functor<O, X, Nothing, Nothing, 1>;
template <class O, class X, class Y> using Functor2 = Functor<O, X, Y, Nothing, 2>;
template <class O, class X, class Y, class Z> using Functor3 = Functor<O, X, Y, Z, 3>;

template <class E> DEVICE E fetch(const Source& source, i64 at) {
    if constexpr (is_nothing<E>) return Nothing();
    else return source.memory ? ((const E*)source.memory)[at] : from_bits<E>(source.bits);
}

// What one access moves, as words. Lanes are taken out of them only when all loads are on their way: to take one is to wait.
template <int BYTES> struct alignas(BYTES) Words { u32 word[BYTES / 4]; };
template <> struct Words<2> { unsigned short word[1]; };
template <> struct Words<1> { u8 word[1]; };

template <class E> DEVICE u64 to_bits(E value) {
    union { E value; u64 bits; } pun;
    pun.bits = 0;
    pun.value = value;
    return pun.bits;
}

template <class E, int BYTES> DEVICE E lane_of(const Words<BYTES>& words, int lane) {
    const int size = sizeof(E), per_word = 4 / size;
    if constexpr (size == 8) return from_bits<E>((u64)words.word[2 * lane + 1] << 32 | words.word[2 * lane]);
    else return from_bits<E>((u32)words.word[lane / per_word] >> lane % per_word * 8 * size);
}

template <class E, int V> DEVICE Words<sizeof(E) * V> words_of(const E (&lanes)[V]) {
    const int size = sizeof(E), per_word = 4 / size;
    Words<size * V> words;
    if constexpr (size == 8) {
#pragma unroll
        for (int i = 0; i < 2 * V; i++) words.word[i] = (u32)(to_bits(lanes[i / 2]) >> i % 2 * 32);
    } else {
#pragma unroll
        for (int i = 0; i < V; i += per_word) {
            u32 word = 0;
#pragma unroll
            for (int j = 0; j < per_word && i + j < V; j++) word |= (u32)to_bits(lanes[i + j]) << j * 8 * size;
            words.word[i / per_word] = word;
        }
    }
    return words;
}

// The offsets at M visits of the first `rank` axes: first, first + step, …, none after `last`. The host splits nests of
// several axes until 32 bits hold their offsets.
template <int N, int M>
DEVICE void place(const Nest<N>& nest, int rank, u64 first, u32 step, u64 last, i64 (&at)[M][N]) {
    if (rank <= 1) {
#pragma unroll
        for (int m = 0; m < M; m++) {
            i64 visit = (i64)min(first + m * step, last);
#pragma unroll
            for (int n = 0; n < N; n++) at[m][n] = visit * nest.strides[n][0];
        }
        return;
    }
    u32 index[M];
    i32 narrow[M][N];
#pragma unroll
    for (int m = 0; m < M; m++) {
        index[m] = min((u32)first + m * step, (u32)last);
#pragma unroll
        for (int n = 0; n < N; n++) narrow[m][n] = 0;
    }
#pragma unroll 1
    for (int axis = rank - 1; axis >= 0; axis--) {
        u32 size = (u32)nest.sizes[axis];
#pragma unroll
        for (int m = 0; m < M; m++) {
            u32 next = divide(nest, axis, index[m]);
            i32 at_axis = (i32)(index[m] - next * size);
            index[m] = next;
#pragma unroll
            for (int n = 0; n < N; n++) narrow[m][n] += at_axis * (i32)nest.strides[n][axis];
        }
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < N; n++) at[m][n] = narrow[m][n];
    }
}

template <class A, class B> constexpr int larger = sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B);

// One launch of a functor.
template <class F> struct Walk {
    typedef typename F::Out Out;
    typedef typename F::First A;
    typedef typename F::Second B;
    typedef typename F::Third C;
    static const int N = F::inputs + 1;
    static const int V = 16 / (larger<Out, A> > larger<B, C> ? larger<Out, A> : larger<B, C>);
    static const int PACKS_AHEAD = 2;
    static const int ELEMENTS_AHEAD = F::tiles ? 4 : 2;
    // The side of a tile; eight threads read 8 · V elements of a row, the block 32 rows at once.
    static const int SIDE = V < 4 ? 32 : V < 16 ? 64 : 128;
    static const int PITCH = SIDE + 1;

    const Elementwise<N>& args;
    Context context;
    // Of a tile: the offsets of its first element, the strides along its rows and columns, and how much of it there is.
    i64 base[N];
    i64 row_strides[N], column_strides[N];
    u32 rows, columns;

    // Where in shared memory the tile of an operand lies.
    template <class E> METHOD E* stage(int operand) const {
        extern __shared__ __align__(16) unsigned char staging[];
        u32 at = 0;
        if (operand > 1 && (args.staged & 2)) at += (PITCH * SIDE * sizeof(A) + 15) / 16 * 16;
        if (operand > 2 && (args.staged & 4)) at += (PITCH * SIDE * sizeof(B) + 15) / 16 * 16;
        return (E*)(staging + at);
    }

    METHOD void find_tile() {
        int rank = args.nest.rank;
        u32 height = (u32)args.nest.sizes[rank - 2], width = (u32)args.nest.sizes[rank - 1];
        u32 across = (width + SIDE - 1) / SIDE, down = (height + SIDE - 1) / SIDE;
        u32 column = blockIdx.x % across, row = blockIdx.x / across % down;
        rows = min((u32)SIDE, height - row * SIDE);
        columns = min((u32)SIDE, width - column * SIDE);
        i64 others[1][N] = {};
        if (rank > 2) place(args.nest, rank - 2, blockIdx.x / across / down, 0, ~0ull, others);
#pragma unroll
        for (int n = 0; n < N; n++) {
            row_strides[n] = args.nest.strides[n][rank - 2];
            column_strides[n] = args.nest.strides[n][rank - 1];
            base[n] = others[0][n] + (i64)row * SIDE * row_strides[n] + (i64)column * SIDE * column_strides[n];
        }
    }

    // Moves a tile of an operand to shared memory, transposed; neighbouring threads read along its rows' axis.
    template <class E, int OPERAND> METHOD void load_tile(bool packed) {
        if constexpr (OPERAND < N && !is_nothing<E>) {
            if (!(args.staged >> OPERAND & 1)) return;
            E* tile = stage<E>(OPERAND);
            const E* x = (const E*)args.sources[OPERAND - 1].memory + base[OPERAND];
            if (packed) {
                u32 row = threadIdx.x % 8 * V, column = threadIdx.x / 8;
#pragma unroll
                for (int i = 0; i < SIDE; i += 8 * V) {
#pragma unroll
                    for (int j = 0; j < SIDE; j += 32) {
                        Pack<E, V> pack = *(const Pack<E, V>*)(x + row + i + (column + j) * column_strides[OPERAND]);
#pragma unroll
                        for (int lane = 0; lane < V; lane++) tile[(column + j) * PITCH + row + i + lane] = pack.lane[lane];
                    }
                }
            } else {
#pragma unroll 4
                for (u32 at = threadIdx.x; at < SIDE * SIDE; at += THREADS) {
                    u32 row = at % SIDE, column = at / SIDE;
                    if (row < rows && column < columns) {
                        tile[column * PITCH + row] = x[row * row_strides[OPERAND] + column * column_strides[OPERAND]];
                    }
                }
            }
        }
    }

    // V elements of an operand, at an offset in memory, or at a row and the columns from one on in a tile.
    template <class E, int OPERAND> METHOD Words<sizeof(E) * V> pack_of(const i64 (&at)[N], u32 row, u32 column) {
        if constexpr (is_nothing<E>) {
            return Words<sizeof(E) * V>();
        } else {
            const Source& source = args.sources[OPERAND - 1];
            bool constant = OPERAND >= N || !source.memory || args.constant >> OPERAND & 1;
            E lanes[V];
            if constexpr (OPERAND < N) {
                if (F::tiles && args.staged >> OPERAND & 1) {
                    const E* tile = stage<E>(OPERAND) + column * PITCH + row;
#pragma unroll
                    for (int lane = 0; lane < V; lane++) lanes[lane] = tile[lane * PITCH];
                    return words_of<E, V>(lanes);
                }
                if (!constant) return *(const Words<sizeof(E) * V>*)((const E*)source.memory + at[OPERAND]);
            }
            E value = fetch<E>(source, OPERAND < N ? at[OPERAND < N ? OPERAND : 0] : 0);
#pragma unroll
            for (int lane = 0; lane < V; lane++) lanes[lane] = value;
            return words_of<E, V>(lanes);
        }
    }
    template <class E> METHOD E lane(const Words<sizeof(E) * V>& words, int lane) {
        if constexpr (is_nothing<E>) return Nothing();
        else return lane_of<E>(words, lane);
    }
    template <class E, int OPERAND> METHOD E element_of(i64 at, u32 row, u32 column) {
        if constexpr (OPERAND < N && !is_nothing<E>) {
            if (args.staged >> OPERAND & 1) return stage<E>(OPERAND)[column * PITCH + row];
        }
        return fetch<E>(args.sources[OPERAND - 1], at);
    }

    METHOD void packs(bool tile) {
        const int M = PACKS_AHEAD;
        u64 first = (u64)blockIdx.x * (THREADS * M) + threadIdx.x;
        if (!tile && first >= args.nest.count) return;
        const int across = SIDE / (8 * V), total = SIDE * SIDE / (V * THREADS);
#pragma unroll 1
        for (int round = 0; round < (tile ? total : M); round += M) {
            i64 at[M][N];
            u32 row[M], column[M];
            if (!tile) {
                place(args.nest, args.nest.rank, first, THREADS, args.nest.count - 1, at);
            } else {
#pragma unroll
                for (int m = 0; m < M; m++) {
                    column[m] = threadIdx.x % 8 * V + (round + m) % across * (8 * V);
                    row[m] = threadIdx.x / 8 + (round + m) / across * 32;
#pragma unroll
                    for (int n = 0; n < N; n++) at[m][n] = base[n] + row[m] * row_strides[n] + column[m] * column_strides[n];
                }
            }
            Words<sizeof(A) * V> a[M];
            Words<sizeof(B) * V> b[M];
            Words<sizeof(C) * V> c[M];
#pragma unroll
            for (int m = 0; m < M; m++) a[m] = pack_of<A, 1>(at[m], row[m], column[m]);
#pragma unroll
            for (int m = 0; m < M; m++) b[m] = pack_of<B, 2>(at[m], row[m], column[m]);
#pragma unroll
            for (int m = 0; m < M; m++) c[m] = pack_of<C, 3>(at[m], row[m], column[m]);
#pragma unroll
            for (int m = 0; m < M; m++) {
                Out y[V];
#pragma unroll
                for (int i = 0; i < V; i++) y[i] = F::apply(lane<A>(a[m], i), lane<B>(b[m], i), lane<C>(c[m], i), context);
                if (tile || first + m * THREADS < args.nest.count) {
                    *(Words<sizeof(Out) * V>*)((Out*)args.out + at[m][0]) = words_of<Out, V>(y);
                }
            }
        }
    }

    // Of a tile, of a whole nest, or of what is left after the last pack.
    METHOD void elements(bool tile) {
        const int M = ELEMENTS_AHEAD;
        bool rest = args.path == PACKS;
        u64 first = (rest ? 0 : (u64)blockIdx.x * (THREADS * M)) + threadIdx.x;
        u64 end = rest ? args.rest : args.nest.count;
#pragma unroll 1
        for (int round = 0; round < (tile ? SIDE * SIDE / THREADS : M); round += M) {
            i64 at[M][N];
            u32 row[M], column[M];
            bool inside[M];
            if (!tile && !rest) place(args.nest, args.nest.rank, first, THREADS, ~0ull, at);
#pragma unroll
            for (int m = 0; m < M; m++) {
                inside[m] = first + m * THREADS < end;
                if (tile) {
                    u32 index = threadIdx.x + (round + m) * THREADS;
                    column[m] = index % SIDE, row[m] = index / SIDE;
                    inside[m] = row[m] < rows && column[m] < columns;
#pragma unroll
                    for (int n = 0; n < N; n++) at[m][n] = base[n] + row[m] * row_strides[n] + column[m] * column_strides[n];
                } else if (rest) {
                    i64 index = (i64)(args.nest.count * V + first + m * THREADS);
#pragma unroll
                    for (int n = 0; n < N; n++) at[m][n] = args.constant >> n & 1 ? 0 : index;
                }
            }
            A a[M];
            B b[M];
            C c[M];
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (inside[m]) {
                    a[m] = element_of<A, 1>(N > 1 ? at[m][N > 1 ? 1 : 0] : 0, row[m], column[m]);
                    b[m] = element_of<B, 2>(N > 2 ? at[m][N > 2 ? 2 : 0] : 0, row[m], column[m]);
                    c[m] = element_of<C, 3>(N > 3 ? at[m][N > 3 ? 3 : 0] : 0, row[m], column[m]);
                }
            }
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (inside[m]) ((Out*)args.out)[at[m][0]] = F::apply(a[m], b[m], c[m], context);
            }
        }
    }

    METHOD void run() {
        bool tile = F::tiles && args.path == TILES, packed = args.path == PACKS;
        if (tile) {
            find_tile();
            packed = args.packed && rows == SIDE && columns == SIDE;
            load_tile<A, 1>(packed);
            load_tile<B, 2>(packed);
            load_tile<C, 3>(packed);
            __syncthreads();
        }
        if (packed) packs(tile);
        if (!packed || (!tile && blockIdx.x == 0 && args.rest)) elements(tile);
        if (context.divided_by_zero) *args.flag = 1;
    }
};

template <class F> DEVICE void elementwise(const Elementwise<F::inputs + 1>& args) {
    Walk<F> walk = {args, {args.options, false}};
    walk.run();
}

// Six blocks of a multiprocessor keep enough loads in flight, unless f64 arithmetic needs more registers than that leaves.
#define ELEMENTWISE(op, F)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, sizeof(Compute<T>) < 8 ? 6 : 1)         \
        NAME(op, ELEMENT)(const __grid_constant__ Elementwise<F::inputs + 1> args) {              \
        elementwise<F>(args);                                                                     \
    }

// Six blocks of a multiprocessor keep enough loads in flight, unless f64 arithmetic needs more registers than that leaves.
#define ELEMENTWISE(op, F)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, sizeof(Compute<T>) < 8 ? 6 : 1)         \
        NAME(op, ELEMENT)(const __grid_constant__ Elementwise<F::inputs + 1> args) {              \
        elementwise<F>(args);                                                                     \
    }
