// Attention on tensor cores: `attention_64_T`, `attention_128_T`, and `attention_64_few_T` and so on for up to 16 queries.
//
// Four warps take 128 queries, 32 each, or one takes 16. The products are `mma.m16n8k16` with sums in f32; the accumulators of
// the scores, turned into weights and rounded to the half type, are just what the second product takes as its left operand, so
// that they never leave registers. Keys and values come in by `cp.async`: values while the scores are computed, the next keys
// while the values are summed. Rows lie in shared memory in pieces of 16 bytes, whose places are exchanged by the low bits of
// the row, so that the eight rows that `ldmatrix` reads at once fall in different banks.

#if IS_HALF

#if __CUDA_ARCH__ >= 800

template <class E> struct Tensor;
template <> struct Tensor<f16> {
    DEVICE void multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    DEVICE u32 both(f32 low, f32 high) {
        u32 y;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
        return y;
    }
};
template <> struct Tensor<bf16> {
    DEVICE void multiply(f32 (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
    DEVICE u32 both(f32 low, f32 high) {
        u32 y;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
        return y;
    }
};

DEVICE void read_matrices(u32 (&x)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}
DEVICE void read_transposed(u32 (&x)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}
// As `approximate_exp2`, and 0 for what is not a normal number, which saves the instructions around the approximation.
DEVICE f32 flushed_exp2(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Where a piece of 16 bytes of a row lies, in bytes from the tile's first.
template <int D> DEVICE u32 piece(u32 row, u32 column) { return row * (D * 2) + ((column ^ (row & 7)) << 4); }

template <int D, int WARPS, int M> DEVICE void attend_tensor(const Attention& args, u32 memory, const Share& share) {
    constexpr int QUERIES = WARPS * M * 16, LANES_ = WARPS * 32;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4, pair = lane % 4;
    const i64 first = share.first, low = share.low, high = share.high;
    const i64 queries = (i64)args.queries, keys = share.keys;
    const u64 other = share.head / args.group;
    const u32 q_tile = memory, k_tile = q_tile + QUERIES * D * 2, v_tile = k_tile + TILE_KEYS * D * 2;
    const i64 *qs = args.strides[Q], *ks = args.strides[K], *vs = args.strides[V];
    const T* q = (const T*)args.inputs[Q - 1] + (i64)share.batch * qs[0] + (i64)share.head * qs[1];
    const T* k = (const T*)args.inputs[K - 1] + (i64)share.batch * ks[0] + (i64)other * ks[1];
    const T* v = (const T*)args.inputs[V - 1] + (i64)share.batch * vs[0] + (i64)other * vs[1];
    start_copy<D, QUERIES, LANES_>(q_tile, q, qs[2], first, queries, args.depth, piece<D>);
    start_copy<D, TILE_KEYS, LANES_>(k_tile, k, ks[2], low, keys, args.depth, piece<D>);
    commit();

    f32 sums[M][D / 8][4];
    f32 max[M][2], total[M][2];
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) sums[m][n][i] = 0;
        }
        max[m][0] = max[m][1] = -infinity();
        total[m][0] = total[m][1] = 0;
    }
    const f32 scale = (f32)(args.scale * 1.4426950408889634);  // log₂ e
#pragma unroll 1
    for (i64 start = low; start < high; start += TILE_KEYS) {
        wait_for_all();
        __syncthreads();
        start_copy<D, TILE_KEYS, LANES_>(v_tile, v, vs[2], start, keys, args.width, piece<D>);
        commit();
        f32 scores[M][8][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int n = 0; n < 8; n++) {
#pragma unroll
                for (int i = 0; i < 4; i++) scores[m][n][i] = 0;
            }
        }
#pragma unroll
        for (u32 step = 0; step < D / 16; step++) {
            u32 a[M][4];
#pragma unroll
            for (u32 m = 0; m < M; m++) {
                read_matrices(a[m], q_tile + piece<D>((warp * M + m) * 16 + lane % 16, step * 2 + lane / 16));
            }
#pragma unroll
            for (u32 n = 0; n < 4; n++) {
                u32 b[4];
                read_matrices(b, k_tile + piece<D>(n * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
#pragma unroll
                for (int m = 0; m < M; m++) {
                    Tensor<T>::multiply(scores[m][2 * n], a[m], b[0], b[1]);
                    Tensor<T>::multiply(scores[m][2 * n + 1], a[m], b[2], b[3]);
                }
            }
        }
        const bool whole = is_whole(share, start);
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                f32 greatest = max[m][half];
                if (!whole) {
                    const Band seen = band(args, true, first + (warp * M + m) * 16 + half * 8 + group, keys, share.shift);
#pragma unroll
                    for (int n = 0; n < 8; n++) {
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                            const i64 key = start + n * 8 + pair * 2 + i;
                            if (key < seen.low || key >= seen.high) scores[m][n][2 * half + i] = -infinity();
                        }
                    }
                }
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    greatest = fmaxf(greatest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                }
                greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffff, greatest, 1));
                greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffff, greatest, 2));
                // The row's weights and their sum share this, so that its rounding does not matter.
                const f32 base = greatest == -infinity() ? 0.0f : greatest * scale;
                const f32 factor = flushed_exp2(max[m][half] * scale - base);
                max[m][half] = greatest;
                f32 part = 0;
#pragma unroll
                for (int n = 0; n < 8; n++) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        f32& score = scores[m][n][2 * half + i];
                        score = flushed_exp2(fused(score, scale, -base));
                        part += score;
                    }
                }
                total[m][half] = total[m][half] * factor + part;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    sums[m][n][2 * half] *= factor;
                    sums[m][n][2 * half + 1] *= factor;
                }
            }
        }
        u32 weights[M][4][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int step = 0; step < 4; step++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const f32(&score)[4] = scores[m][2 * step + i / 2];
                    weights[m][step][i] = Tensor<T>::both(score[i % 2 * 2], score[i % 2 * 2 + 1]);
                }
            }
        }
        wait_for_all();
        __syncthreads();
        if (start + TILE_KEYS < high) {
            start_copy<D, TILE_KEYS, LANES_>(k_tile, k, ks[2], start + TILE_KEYS, keys, args.depth, piece<D>);
            commit();
        }
#pragma unroll
        for (u32 step = 0; step < 4; step++) {
#pragma unroll
            for (u32 n = 0; n < D / 16; n++) {
                u32 b[4];
                read_transposed(b, v_tile + piece<D>(step * 16 + lane % 16, n * 2 + lane / 16));
#pragma unroll
                for (int m = 0; m < M; m++) {
                    Tensor<T>::multiply(sums[m][2 * n], weights[m][step], b[0], b[1]);
                    Tensor<T>::multiply(sums[m][2 * n + 1], weights[m][step], b[2], b[3]);
                }
            }
        }
    }
    wait_for_all();
    T* out = (T*)args.out + (i64)share.batch * args.strides[0][0] + (i64)share.head * args.strides[0][1];
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            f32 all = total[m][half];
            all += __shfl_xor_sync(0xffffffff, all, 1);
            all += __shfl_xor_sync(0xffffffff, all, 2);
            const i64 query = first + (warp * M + m) * 16 + half * 8 + group;
            if (query >= queries) continue;
            if (args.splits > 1) {
                const Partial to = partial<D>(args, share, query);
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    *(float2*)(to.sums + n * 8 + pair * 2) = make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
                }
                if (pair == 0) *(float2*)to.scale = make_float2(max[m][half] * scale, all);
                continue;
            }
            T* row = out + query * args.strides[0][2];
            const bool none = all == 0.0f;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                const f32 x = sums[m][n][2 * half], y = sums[m][n][2 * half + 1];
                if (n * 8 >= args.width) continue;
                *(u32*)(row + n * 8 + pair * 2) = Tensor<T>::both(none ? 0.0f : x / all, none ? 0.0f : y / all);
            }
        }
    }
}

#endif

template <int D, int WARPS, int M> DEVICE void attend_all_tensor(const Attention& args) {
#if __CUDA_ARCH__ >= 800
    constexpr i64 QUERIES = WARPS * M * 16;
    extern __shared__ f64 memory[];
    const u64 tiles = (args.queries + QUERIES - 1) / QUERIES, works = args.batch * args.heads * tiles * args.splits;
    for (u64 work = blockIdx.x; work < works; work += gridDim.x) {
        __syncthreads();
        attend_tensor<D, WARPS, M>(args, shared_address(memory), share(args, work, tiles, QUERIES));
    }
#endif
}

#define TENSOR_KERNEL(name, D, WARPS, M, blocks)                                    \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, blocks)                \
        NAME(name, ELEMENT)(const __grid_constant__ Attention args) {              \
        attend_all_tensor<D, WARPS, M>(args);                                      \
    }
TENSOR_KERNEL(attention_64, 64, 4, 2, 3)
TENSOR_KERNEL(attention_128, 128, 4, 2, 2)
TENSOR_KERNEL(attention_64_few, 64, 1, 1, 12)
TENSOR_KERNEL(attention_128_few, 128, 1, 1, 6)

#endif
