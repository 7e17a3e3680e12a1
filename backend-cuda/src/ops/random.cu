// Random numbers: `philox_u32`, `uniform_T`, `normal_T`, `randint_T`, `bernoulli_bool`, `randperm_i64`. The stream convention
// is that of `random.rs` in backend-api: element i takes `words` words from `offset + i·words` on.
//
// Into one run of memory each thread makes 16 bytes of elements, whose words are whole blocks of Philox where the offset is a
// multiple of four, else a window over one block more.

struct Random {
    Nest<2> nest;  // operand 0 is the output, operand 1 the number of the element
    void* out;
    u64 offset;
    u64 first;     // the number of the first element that the nest visits
    i64 low;
    u64 span;      // or the threshold of `bernoulli`, or n of `randperm`
    u32 keys[24];  // of Philox's rounds, two each, as operands in constant memory; or of the rounds of `randperm`
    u32 bits;
    u32 vector;
};

DEVICE void philox(const Random& args, u64 block, u32 (&c)[4]) {
    c[0] = (u32)block;
    c[1] = (u32)(block >> 32);
    c[2] = 0;
    c[3] = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 first = (u64)0xd2511f53u * c[0], second = (u64)0xcd9e8d57u * c[2];
        c[0] = (u32)(second >> 32) ^ c[1] ^ args.keys[2 * round];
        c[1] = (u32)second;
        c[2] = (u32)(first >> 32) ^ c[3] ^ args.keys[2 * round + 1];
        c[3] = (u32)first;
    }
}

DEVICE u32 word(const Random& args, u64 at) {
    u32 c[4];
    philox(args, at / 4, c);
    u32 lane = at % 4;
    return lane == 0 ? c[0] : lane == 1 ? c[1] : lane == 2 ? c[2] : c[3];
}

// Words at .. at + N; N is a multiple of four.
template <int N> DEVICE void words_from(const Random& args, u64 at, u32 (&words)[N]) {
    u32 skipped = at % 4;
    u64 block = at / 4;
    const u64 last = ~0ull >> 2;
    if (skipped == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            u32 c[4];
            philox(args, (block + i / 4) & last, c);
#pragma unroll
            for (int j = 0; j < 4; j++) words[i + j] = c[j];
        }
        return;
    }
    u32 c[4], next[4];
    philox(args, block, c);
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        philox(args, (block + i / 4 + 1) & last, next);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            u32 one = j + 1 < 4 ? c[(j + 1) % 4] : next[(j + 1) % 4];
            u32 two = j + 2 < 4 ? c[(j + 2) % 4] : next[(j + 2) % 4];
            u32 three = j + 3 < 4 ? c[(j + 3) % 4] : next[(j + 3) % 4];
            words[i + j] = skipped == 1 ? one : skipped == 2 ? two : three;
        }
#pragma unroll
        for (int j = 0; j < 4; j++) c[j] = next[j];
    }
}

DEVICE u64 both(const u32* words) { return words[0] | (u64)words[1] << 32; }

// ---- Distributions: how many words an element takes, and what it makes of them -----------------------------------

#if IS_FLOAT
#if IS_F64
// Φ⁻¹(p) by Wichura's algorithm AS 241, to about 1e-16.
DEVICE f64 polynomial(const f64 (&c)[8], f64 r) {
    f64 sum = c[0];
#pragma unroll
    for (int i = 1; i < 8; i++) sum = sum * r + c[i];
    return sum;
}
static __constant__ const f64 CENTRE[2][8] = {
    {2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0},
    {5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0}};
static __constant__ const f64 MIDDLE[2][8] = {
    {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0},
    {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0}};
static __constant__ const f64 FAR[2][8] = {
    {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0},
    {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0}};
DEVICE f64 quantile(f64 p) {
    f64 q = p - 0.5;
    if (fabs(q) <= 0.425) {
        f64 r = 0.180625 - q * q;
        return q * polynomial(CENTRE[0], r) / polynomial(CENTRE[1], r);
    }
    f64 r = sqrt(-log(q < 0 ? p : 1 - p));
    f64 z = r <= 5 ? polynomial(MIDDLE[0], r - 1.6) / polynomial(MIDDLE[1], r - 1.6)
                   : polynomial(FAR[0], r - 5) / polynomial(FAR[1], r - 5);
    return q < 0 ? -z : z;
}
DEVICE f64 normal(const u32* words) { return quantile(((f64)(both(words) >> 12) + 0.5) * 2.220446049250313e-16); }
#else
// Φ⁻¹((w + ½)·2⁻³²) within 3 units in the last place (all words were compared on an H200: 2.74), by the variable of Giles ("Approximating the erfinv function", 2010):
// with x = 2p − 1 and t = −log₂(1 − x²), it is x·√(π/2)·(1 + O(t)) in the centre and √(2 ln 2)·√t + O(1) in the tails. What
// the leading terms leave are minimax polynomials. x, and 2p of the nearer tail, are taken from the word, where small
// values of both are exact.
template <int N> DEVICE f32 polynomial(const f32 (&c)[N], f32 r) {
    f32 sum = c[0];
#pragma unroll
    for (int i = 1; i < N; i++) sum = fused(sum, r, c[i]);
    return sum;
}
DEVICE T normal(const u32* words) {
    constexpr f32 CENTRE[] = {-4.57635235e-10f, 7.46340856e-09f, -3.78883636e-09f, -8.13679605e-07f, 5.60180933e-06f,
                              5.13839514e-05f,  -0.0010306125f,  0.00222228467f,   0.239941195f};
    constexpr f32 TAIL[] = {-2.98564555e-06f, 4.9891928e-06f,  1.84134187e-05f, -0.000111861016f, 0.000451306463f,
                            -0.00153652753f,  0.00339360046f, 0.00823087338f,  -0.233339667f};
    const u32 w = words[0];
    const f32 x = fused((f32)(i32)(w ^ 0x80000000u), 4.656612873077393e-10f, 2.3283064365386963e-10f);
    const f32 p = fused((f32)(w >> 31 ? ~w : w), 4.656612873077393e-10f, 2.3283064365386963e-10f);
    const u32 bits = __float_as_uint(p * (2.0f - p));
    // The approximation is best for a number from 1 to 2.
    const f32 t = -((f32)((i32)(bits >> 23) - 127) + __log2f(__uint_as_float((bits & 0x7fffff) | 0x3f800000)));
    f32 z;
    if (t < 7.25f) {
        z = x * fused(t, polynomial(CENTRE, t - 2.5f), 1.2533141374588013f);
    } else {
        const f32 root = __fsqrt_rn(t);
        z = copysignf(fused(root, 1.1774100065231323f, polynomial(TAIL, root - 4.125f)), x);
    }
    return narrow<T>(z);
}
#endif

// Each result is exact in the type: 53, 24, 11 and 8 bits.
DEVICE f64 fraction(const u32* words, f64) { return (f64)(both(words) >> 11) * 1.1102230246251565e-16; }
DEVICE f32 fraction(const u32* words, f32) { return (f32)(words[0] >> 8) * 5.9604644775390625e-8f; }
DEVICE f16 fraction(const u32* words, f16) { return narrow<f16>((f32)(words[0] >> 21) * 4.8828125e-4f); }
DEVICE bf16 fraction(const u32* words, bf16) { return narrow<bf16>((f32)(words[0] >> 24) * 3.90625e-3f); }

struct uniform_op {
    static const int words = sizeof(T) == 8 ? 2 : 1;
    DEVICE T element(const u32* words, const Random&) { return fraction(words, T()); }
};
struct normal_op {
    static const int words = sizeof(T) == 8 ? 2 : 1;
    DEVICE T element(const u32* words, const Random&) { return normal(words); }
};
#elif IS_INT
struct randint_op {
    static const int words = 2;
    DEVICE T element(const u32* words, const Random& args) {
        return (T)((u64)args.low + __umul64hi(both(words), args.span));
    }
};
struct philox_op {
    static const int words = 1;
    DEVICE T element(const u32* words, const Random&) { return (T)words[0]; }
};
#else
struct bernoulli_op {
    static const int words = 1;
    DEVICE T element(const u32* words, const Random& args) { return words[0] < args.span; }
};
#endif

// ---- The loop ----------------------------------------------------------------------------------------------------

DEVICE void place(const Nest<2>& nest, u64 index, i64 (&at)[2]) {
    if (nest.mode == WIDE) {
        locate(nest, index, at);
        return;
    }
    i32 narrow_at[2];
    locate(nest, (u32)index, narrow_at);
    at[0] = narrow_at[0];
    at[1] = narrow_at[1];
}

template <class D> DEVICE void draw(const Random& args) {
    const int V = 16 / sizeof(T), N = V * D::words;
    T* out = (T*)args.out;
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x;
    u64 count = args.nest.count, packs = args.vector ? count / V : 0;
    for (u64 pack = first; pack < packs; pack += threads) {
        u32 words[N];
        words_from<N>(args, args.offset + pack * N, words);
        Pack<T, V> y;
#pragma unroll
        for (int i = 0; i < V; i++) y.lane[i] = D::element(words + i * D::words, args);
        ((Pack<T, V>*)out)[pack] = y;
    }
    for (u64 index = packs * V + first; index < count; index += threads) {
        i64 at[2];
        place(args.nest, index, at);
        u64 start = args.offset + (args.first + (u64)at[1]) * D::words;
        u32 words[D::words];
#pragma unroll
        for (int i = 0; i < D::words; i++) words[i] = word(args, start + i);
        out[at[0]] = D::element(words, args);
    }
}

#define RANDOM(op) KERNEL(op, Random) { draw<op##_op>(args); }

#if IS_FLOAT
RANDOM(normal)
RANDOM(uniform)
#elif IS_INT
RANDOM(randint)
#if !IS_SIGNED
RANDOM(philox)
#endif
#else
RANDOM(bernoulli)
#endif

#if IS_SIGNED
// A Feistel network over 2^bits, walked until the index is below n.
KERNEL(randperm, Random) {
    u32 low_bits = args.bits / 2, low_mask = (u32)((1ull << low_bits) - 1);
    u32 high_mask = (u32)((1ull << (args.bits - low_bits)) - 1);
    u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x; index < args.nest.count; index += threads) {
        i64 at[2];
        place(args.nest, index, at);
        u64 image = args.first + (u64)at[1];
        do {
            u32 low = (u32)image & low_mask, high = (u32)(image >> low_bits);
#pragma unroll
            for (int round = 0; round < 24; round += 2) {
                u64 product = (u64)0xd2511f53u * (low ^ args.keys[round]);
                high ^= ((u32)product ^ (u32)(product >> 32)) & high_mask;
                product = (u64)0xd2511f53u * (high ^ args.keys[round + 1]);
                low ^= ((u32)product ^ (u32)(product >> 32)) & low_mask;
            }
            image = (u64)high << low_bits | low;
        } while (image >= args.span);
        ((T*)args.out)[at[0]] = (T)image;
    }
}
#endif
