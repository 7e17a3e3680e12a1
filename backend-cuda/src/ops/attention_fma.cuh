// Attention in f32 where features lie side by side: `attention_64_f32`, `attention_128_f32`, and `attention_64_few_f32` and so
// on for up to 16 queries.
//
// 16 · 16 threads take 128 queries, or 16, and 64 keys at a time. A thread has the scores of every sixteenth query with every
// sixteenth key, and the sums of its queries for every sixteenth group of four features, all in registers. The threads of a
// query are half a warp. What they read of shared memory at once lies in different banks: rows are four elements longer.

#if IS_F32

#define LINES 16

#if __CUDA_ARCH__ >= 800

DEVICE float4 four(const f32* from) { return *(const float4*)from; }
DEVICE f32 dot(float4 a, float4 b, f32 sum) {
    return fused(a.w, b.w, fused(a.z, b.z, fused(a.y, b.y, fused(a.x, b.x, sum))));
}
DEVICE void scale_and_add(float4& sum, f32 factor, float4 x) {
    sum.x = fused(factor, x.x, sum.x);
    sum.y = fused(factor, x.y, sum.y);
    sum.z = fused(factor, x.z, sum.z);
    sum.w = fused(factor, x.w, sum.w);
}

// R queries for each thread.
template <int D, int R> DEVICE void attend_fma(const Attention& args, f32* memory, const Share& share) {
    constexpr int QUERIES = R * LINES, ROW = D + 4, WEIGHTS = TILE_KEYS + 4, J = TILE_KEYS / LINES, G = D / 64;
    const u32 line = threadIdx.x / LINES, lane = threadIdx.x % LINES;
    const i64 first = share.first, high = share.high, keys = share.keys;
    const i64 queries = (i64)args.queries;
    const u64 other = share.head / args.group;
    f32 *q_tile = memory, *k_tile = q_tile + QUERIES * ROW, *v_tile = k_tile + TILE_KEYS * ROW;
    f32* weights = v_tile + TILE_KEYS * ROW;
    const i64 *qs = args.strides[Q], *ks = args.strides[K], *vs = args.strides[V];
    const f32* q = (const f32*)args.inputs[Q - 1] + (i64)share.batch * qs[0] + (i64)share.head * qs[1];
    const f32* k = (const f32*)args.inputs[K - 1] + (i64)share.batch * ks[0] + (i64)other * ks[1];
    const f32* v = (const f32*)args.inputs[V - 1] + (i64)share.batch * vs[0] + (i64)other * vs[1];
    auto place = [](u32 row, u32 column) { return (row * ROW + column * 4) * 4; };
    start_copy<D, QUERIES, THREADS>(shared_address(q_tile), q, qs[2], first, queries, args.depth, place);
    start_copy<D, TILE_KEYS, THREADS>(shared_address(k_tile), k, ks[2], share.low, keys, args.depth, place);
    commit();

    float4 sums[R][G];
    f32 max[R], total[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int g = 0; g < G; g++) sums[r][g] = make_float4(0, 0, 0, 0);
        max[r] = -infinity();
        total[r] = 0;
    }
    const f32 scale = (f32)(args.scale * 1.4426950408889634);  // log₂ e
#pragma unroll 1
    for (i64 start = share.low; start < high; start += TILE_KEYS) {
        wait_for_all();
        __syncthreads();
        start_copy<D, TILE_KEYS, THREADS>(shared_address(v_tile), v, vs[2], start, keys, args.width, place);
        commit();
        f32 scores[R][J];
#pragma unroll
        for (int r = 0; r < R; r++) {
#pragma unroll
            for (int j = 0; j < J; j++) scores[r][j] = 0;
        }
#pragma unroll 4
        for (int feature = 0; feature < D; feature += 4) {
            float4 b[J];
#pragma unroll
            for (int j = 0; j < J; j++) b[j] = four(k_tile + (lane + j * LINES) * ROW + feature);
#pragma unroll
            for (int r = 0; r < R; r++) {
                const float4 a = four(q_tile + (line + r * LINES) * ROW + feature);
#pragma unroll
                for (int j = 0; j < J; j++) scores[r][j] = dot(a, b[j], scores[r][j]);
            }
        }
        const bool whole = is_whole(share, start);
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (!whole) {
                const Band seen = band(args, true, first + line + r * LINES, keys, share.shift);
#pragma unroll
                for (int j = 0; j < J; j++) {
                    const i64 key = start + lane + j * LINES;
                    if (key < seen.low || key >= seen.high) scores[r][j] = -infinity();
                }
            }
            f32 greatest = max[r];
#pragma unroll
            for (int j = 0; j < J; j++) greatest = fmaxf(greatest, scores[r][j]);
#pragma unroll
            for (int step = LINES / 2; step > 0; step /= 2) {
                greatest = fmaxf(greatest, __shfl_xor_sync(~0u, greatest, step));
            }
            // The row's weights and their sum share this, so that its rounding does not matter.
            const f32 base = greatest == -infinity() ? 0.0f : greatest * scale;
            const f32 factor = approximate_exp2(max[r] * scale - base);
            max[r] = greatest;
            total[r] *= factor;
#pragma unroll
            for (int g = 0; g < G; g++) {
                sums[r][g].x *= factor;
                sums[r][g].y *= factor;
                sums[r][g].z *= factor;
                sums[r][g].w *= factor;
            }
#pragma unroll
            for (int j = 0; j < J; j++) {
                const f32 weight = approximate_exp2(fused(scores[r][j], scale, -base));
                total[r] += weight;
                weights[(line + r * LINES) * WEIGHTS + lane + j * LINES] = weight;
            }
        }
        wait_for_all();
        // The weights of a query are this warp's own; the values are the block's.
        __syncthreads();
        if (start + TILE_KEYS < high) {
            start_copy<D, TILE_KEYS, THREADS>(shared_address(k_tile), k, ks[2], start + TILE_KEYS, keys, args.depth, place);
            commit();
        }
#pragma unroll 2
        for (int key = 0; key < TILE_KEYS; key += 4) {
            float4 w[R];
#pragma unroll
            for (int r = 0; r < R; r++) w[r] = four(weights + (line + r * LINES) * WEIGHTS + key);
#pragma unroll
            for (int i = 0; i < 4; i++) {
#pragma unroll
                for (int g = 0; g < G; g++) {
                    const float4 x = four(v_tile + (key + i) * ROW + g * 64 + lane * 4);
#pragma unroll
                    for (int r = 0; r < R; r++) {
                        const f32 factor = i == 0 ? w[r].x : i == 1 ? w[r].y : i == 2 ? w[r].z : w[r].w;
                        scale_and_add(sums[r][g], factor, x);
                    }
                }
            }
        }
    }
    wait_for_all();
    f32* out = (f32*)args.out + (i64)share.batch * args.strides[0][0] + (i64)share.head * args.strides[0][1];
#pragma unroll
    for (int r = 0; r < R; r++) {
        f32 all = total[r];
#pragma unroll
        for (int step = LINES / 2; step > 0; step /= 2) all += __shfl_xor_sync(~0u, all, step);
        const i64 query = first + line + r * LINES;
        if (query >= queries) continue;
        if (args.splits > 1) {
            const Partial to = partial<D>(args, share, query);
#pragma unroll
            for (int g = 0; g < G; g++) *(float4*)(to.sums + g * 64 + lane * 4) = sums[r][g];
            if (lane == 0) *(float2*)to.scale = make_float2(max[r] * scale, all);
            continue;
        }
        const bool none = all == 0.0f;
#pragma unroll
        for (int g = 0; g < G; g++) {
            const float4 x = sums[r][g];
            const float4 result = make_float4(x.x / all, x.y / all, x.z / all, x.w / all);
            if (g * 64 + lane * 4 >= args.width) continue;
            *(float4*)(out + query * args.strides[0][2] + g * 64 + lane * 4) = none ? make_float4(0, 0, 0, 0) : result;
        }
    }
}

#endif

template <int D, int R> DEVICE void attend_all_fma(const Attention& args) {
#if __CUDA_ARCH__ >= 800
    constexpr i64 QUERIES = R * LINES;
    extern __shared__ f64 memory[];
    const u64 tiles = (args.queries + QUERIES - 1) / QUERIES, works = args.batch * args.heads * tiles * args.splits;
    for (u64 work = blockIdx.x; work < works; work += gridDim.x) {
        __syncthreads();
        attend_fma<D, R>(args, (f32*)memory, share(args, work, tiles, QUERIES));
    }
#endif
}

KERNEL(attention_64, Attention) { attend_all_fma<64, 8>(args); }
KERNEL(attention_128, Attention) { attend_all_fma<128, 8>(args); }
KERNEL(attention_64_few, Attention) { attend_all_fma<64, 1>(args); }
KERNEL(attention_128_few, Attention) { attend_all_fma<128, 1>(args); }

#endif
