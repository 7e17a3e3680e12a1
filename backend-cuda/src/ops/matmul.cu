// `matmul_T`: out = alpha · a @ b + beta · out for any strides. Integers run here; floats do when there is nothing to
// multiply (k or alpha is 0), bf16 also on devices for which cuBLAS has none (before 8.0), and all floats where cuBLAS
// cannot be loaded.
//
// A block of 16 × 16 threads owns a 16 × 16 tile of the result, one element per thread. It walks k in steps of 16: the
// block loads a tile of a and one of b to shared memory, each element once, and every thread reads it 16 times there.

typedef Compute<T> C;

#define TILE 16

struct Matrix {
    i64 row;
    i64 col;
};

struct Matmul {
    Nest<3> batch;
    void* out;
    const void* a;
    const void* b;
    Matrix out_strides, a_strides, b_strides;
    u64 m, n, k;
    u64 alpha, beta;  // the bits of C
    u64 wide;         // whether `out` holds C instead of T
};

#if IS_INT
DEVICE C multiply_add(C a, C b, C c) { return wrapping_add(wrapping_mul(a, b), c); }
DEVICE C multiply(C a, C b) { return wrapping_mul(a, b); }
#else
DEVICE C multiply_add(C a, C b, C c) { return a * b + c; }
DEVICE C multiply(C a, C b) { return a * b; }
#endif

KERNEL(matmul, Matmul) {
    __shared__ C a_tile[TILE][TILE], b_tile[TILE][TILE];
    u32 row = threadIdx.x / TILE, col = threadIdx.x % TILE;
    u64 rows = (args.m + TILE - 1) / TILE, cols = (args.n + TILE - 1) / TILE;
    C alpha = from_bits<C>(args.alpha), beta = from_bits<C>(args.beta);
    for (u64 work = blockIdx.x; work < args.batch.count * rows * cols; work += gridDim.x) {
        u64 tile = work % (rows * cols);
        u64 i = tile / cols * TILE + row, j = tile % cols * TILE + col;
        i64 at[3];
        locate(args.batch, work / (rows * cols), at);
        const T* a = (const T*)args.a + at[1] + (i64)i * args.a_strides.row;
        const T* b = (const T*)args.b + at[2] + (i64)j * args.b_strides.col;
        C sum = 0;
        for (u64 start = 0; start < args.k; start += TILE) {
            // This thread loads a[i, start + col] and b[start + row, j].
            bool a_inside = i < args.m && start + col < args.k, b_inside = j < args.n && start + row < args.k;
            a_tile[row][col] = a_inside ? widen(a[(i64)(start + col) * args.a_strides.col]) : (C)0;
            b_tile[row][col] = b_inside ? widen(b[(i64)(start + row) * args.b_strides.row]) : (C)0;
            __syncthreads();
#pragma unroll
            for (u32 step = 0; step < TILE; step++) sum = multiply_add(a_tile[row][step], b_tile[step][col], sum);
            // Nobody may load the next tiles while another thread still reads these.
            __syncthreads();
        }
        if (i < args.m && j < args.n) {
            i64 target = at[0] + (i64)i * args.out_strides.row + (i64)j * args.out_strides.col;
            C product = args.k == 0 ? (C)0 : multiply(alpha, sum);
            if (args.wide) {
                ((C*)args.out)[target] = product;
            } else {
                T* out = (T*)args.out + target;
                *out = narrow<T>(beta == (C)0 ? product : multiply_add(beta, widen(*out), product));
            }
        }
    }
}

// `linear_T`: out = activation(sums + factor · addend), where the sums are a product's, in C, and the addend is a bias
// (factor 1) or the old output (factor beta). All is computed in C and rounded once.
#if IS_FLOAT

static __device__ __noinline__ C gelu_of(C x) { return gelu_stable(x); }
static __device__ __noinline__ C gelu_tanh_of(C x) { return gelu_tanh_stable(x); }

struct linear_op : Functor<T, C, T, C, 2> {
    // The sums of a convolution may have their channels last.
    static const bool tiles = true;
    DEVICE T apply(C sum, T addend, C factor, const Context& context) {
        C x = sum + factor * widen(addend);
        switch (context.options) {  // `activation` in linear.rs
            case 1: x = relu_of(x); break;
            case 2: x = gelu_of(x); break;
            case 3: x = gelu_tanh_of(x); break;
        }
        return narrow<T>(x);
    }
};
ELEMENTWISE(linear, linear_op)

#endif
