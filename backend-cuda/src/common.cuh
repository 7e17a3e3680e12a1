// Prepended to every kernel file: number types, conversions, loop nests, arithmetic that families share.
//
// NVRTC compiles one module per op family and element type: the command line defines ELEMENT (f64 f32 f16 bf16 i64 i32
// u32 u8 bool) and IS_FLOAT, IS_F64, IS_F32, IS_HALF, IS_INT, IS_BOOL, IS_SIGNED. A kernel is named after its op and element
// type, as in `exp_f32`, and takes one structure by value; the Rust side of each is in launch.rs. No CUDA header is included.

typedef unsigned char u8;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
struct f16 { unsigned short bits; };
struct bf16 { unsigned short bits; };
typedef ELEMENT T;

#define PASTE(a, b) a##_##b
#define NAME(op, type) PASTE(op, type)
#define DEVICE static __device__ __forceinline__
#define THREADS 256
#define KERNEL(op, Args) \
    extern "C" __global__ void __launch_bounds__(THREADS) NAME(op, ELEMENT)(const __grid_constant__ Args args)

// ---- Conversions -------------------------------------------------------------------------------------------------

// The type in which elements are computed: f32 for the half types, else the type itself.
template <class E> struct ComputeOf { typedef E type; };
template <> struct ComputeOf<f16> { typedef f32 type; };
template <> struct ComputeOf<bf16> { typedef f32 type; };
template <class E> using Compute = typename ComputeOf<E>::type;

template <class E> DEVICE Compute<E> widen(E x) { return x; }
DEVICE f32 widen(f16 x) {
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
DEVICE f32 widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }

// To nearest, ties to even, in one rounding.
template <class E> struct Narrow {
    DEVICE E of(Compute<E> x) { return x; }
};
template <> struct Narrow<f16> {
    DEVICE f16 of(f32 x) {
        f16 y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
        return y;
    }
};
template <> struct Narrow<bf16> {
    DEVICE bf16 of(f32 x) {
        bf16 y;
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
        u32 bits = __float_as_uint(x);
        // Adding half of the last kept place, less one when it is even, carries exactly when nearest-even rounds up.
        u32 rounded = bits + 0x7fff + ((bits >> 16) & 1);
        y.bits = (unsigned short)((x != x ? bits | 0x400000 : rounded) >> 16);
#endif
        return y;
    }
};
template <class E> DEVICE E narrow(Compute<E> x) { return Narrow<E>::of(x); }

// Rounded to odd: truncated, and the last bit set when that was inexact. Rounding this to a half type afterwards
// equals one rounding of x (see convert.rs in backend-api).
DEVICE f32 to_odd(f32 truncated, bool exact) {
    return exact ? truncated : __uint_as_float(__float_as_uint(truncated) | 1);
}
DEVICE f32 odd_f32(f64 x) {
    f32 y = __double2float_rz(x);
    return to_odd(y, (f64)y == x);
}
DEVICE f32 odd_f32(i64 x) {
    f32 y = __ll2float_rz(x);
    return to_odd(y, (i64)y == x);
}
DEVICE f32 odd_f32(u32 x) {
    f32 y = __uint2float_rz(x);
    return to_odd(y, (u32)y == x);
}
DEVICE f32 odd_f32(i32 x) {
    f32 y = __int2float_rz(x);
    return to_odd(y, (i32)y == x);
}
DEVICE f32 odd_f32(u8 x) { return x; }
DEVICE f32 odd_f32(bool x) { return x; }
DEVICE f32 odd_f32(f32 x) { return x; }

// ---- Operands and loop nests -------------------------------------------------------------------------------------

#define MAX_RANK 8

// How wide the indices and offsets of a nest are.
#define NARROW 1  // 32 bits hold them
#define WIDE 2    // 64 bits

// Strides are in elements, relative to each operand's first element. `magics` and `shifts` divide by the sizes where
// 32 bits suffice: n / size is (high word of n · magic + n) >> shift for n < 2³¹.
template <int N> struct Nest {
    u64 count;
    u32 rank;
    u32 mode;
    u32 magics[MAX_RANK];
    u8 shifts[MAX_RANK];
    u64 sizes[MAX_RANK];
    i64 strides[N][MAX_RANK];
};

// An input: memory, or one value in `bits` when there is no memory.
struct Source {
    const void* memory;
    u64 bits;
};

template <class E> DEVICE E from_bits(u64 bits) {
    union { u64 bits; E value; } pun;
    pun.bits = bits;
    return pun.value;
}

template <int N> DEVICE u32 divide(const Nest<N>& nest, int axis, u32 index) {
    return (__umulhi(index, nest.magics[axis]) + index) >> nest.shifts[axis];
}
template <int N> DEVICE u64 divide(const Nest<N>& nest, int axis, u64 index) { return index / nest.sizes[axis]; }

// The offsets of the N operands at visit `index` of the first `rank` axes of the nest.
template <class U, class I, int N> DEVICE void locate(const Nest<N>& nest, int rank, U index, I (&at)[N]) {
#pragma unroll
    for (int n = 0; n < N; n++) at[n] = 0;
#pragma unroll 1
    for (int axis = rank - 1; axis > 0; axis--) {
        U next = divide(nest, axis, index);
        I step = (I)(index - next * (U)nest.sizes[axis]);
        index = next;
#pragma unroll
        for (int n = 0; n < N; n++) at[n] += step * (I)nest.strides[n][axis];
    }
    // The outermost index needs no division; without axes its stride is 0.
#pragma unroll
    for (int n = 0; n < N; n++) at[n] += (I)index * (I)nest.strides[n][0];
}
template <class U, class I, int N> DEVICE void locate(const Nest<N>& nest, U index, I (&at)[N]) {
    locate(nest, nest.rank, index, at);
}

// Some elements that one access moves.
template <class E, int V> struct alignas(sizeof(E) * V) Pack { E lane[V]; };

// ---- Arithmetic shared by families -------------------------------------------------------------------------------

template <class E> struct Limits;
template <> struct Limits<i64> {
    static const i64 max = 0x7fffffffffffffff, min = -max - 1;
    typedef u64 Unsigned;
};
template <> struct Limits<i32> {
    static const i32 max = 0x7fffffff, min = -max - 1;
    typedef u32 Unsigned;
};
template <> struct Limits<u32> {
    static const u32 max = 0xffffffff, min = 0;
    typedef u32 Unsigned;
};
template <> struct Limits<u8> {
    static const u8 max = 255, min = 0;
    typedef u32 Unsigned;
};

// Signed overflow is undefined in C++, so wrapping goes through the unsigned type.
template <class E> DEVICE E wrapping_add(E a, E b) { typedef typename Limits<E>::Unsigned U; return (E)((U)a + (U)b); }
template <class E> DEVICE E wrapping_sub(E a, E b) { typedef typename Limits<E>::Unsigned U; return (E)((U)a - (U)b); }
template <class E> DEVICE E wrapping_mul(E a, E b) { typedef typename Limits<E>::Unsigned U; return (E)((U)a * (U)b); }

DEVICE bool is_negative(f32 x) { return __float_as_int(x) < 0; }
DEVICE bool is_negative(f64 x) { return __double_as_longlong(x) < 0; }

// NaN if an operand is; −0 < +0. (fmax drops NaN and may return either zero.)
DEVICE f64 maximum(f64 a, f64 b) { return a != a ? a : b != b ? b : a == b ? (is_negative(a) ? b : a) : a > b ? a : b; }
DEVICE f64 minimum(f64 a, f64 b) { return a != a ? a : b != b ? b : a == b ? (is_negative(a) ? a : b) : a < b ? a : b; }
// From compute capability 8.0 on there are instructions for f32, which order the zeros too.
DEVICE f32 maximum(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
    f32 y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a != a ? a : b != b ? b : a == b ? (is_negative(a) ? b : a) : a > b ? a : b;
#endif
}
DEVICE f32 minimum(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
    f32 y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
#else
    return a != a ? a : b != b ? b : a == b ? (is_negative(a) ? a : b) : a < b ? a : b;
#endif
}
template <class E> DEVICE E maximum(E a, E b) { return a > b ? a : b; }
template <class E> DEVICE E minimum(E a, E b) { return a < b ? a : b; }

// ---- Activations -------------------------------------------------------------------------------------------------

#if IS_FLOAT

typedef Compute<T> C;

// Not 1/0, which would be divided by when the kernel runs.
template <class F> DEVICE F infinite();
template <> __device__ __forceinline__ f32 infinite() { return __int_as_float(0x7f800000); }
template <> __device__ __forceinline__ f64 infinite() { return __longlong_as_double(0x7ff0000000000000); }
DEVICE C infinity() { return infinite<C>(); }
DEVICE f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
DEVICE f64 fused(f64 a, f64 b, f64 c) { return __fma_rn(a, b, c); }

// 1 / x within 1 ULP for x in [1, 16], where the instruction needs no care.
DEVICE f32 reciprocal(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE f64 reciprocal(f64 x) { return 1 / x; }

// 2ˣ within 2 ULP, subnormal results too.
DEVICE f32 power_of_two(f32 x) {
    f32 y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Split by sign, so that the exponential never overflows and the result is 0 only when it underflows.
DEVICE C sigmoid_stable(C x) {
    C e = exp(-fabs(x));
    return (x < 0 ? e : (C)1) * reciprocal((C)1 + e);
}

// x · sigmoid(t), −0 in the limit at −∞. e^−|t| enters as a square, so that nothing but the result underflows; where t is
// negative and x below −10⁴ the result is −0 anyway.
DEVICE C times_sigmoid(C x, C t) {
    C root = exp(fabs(t) * (C)-0.5);
    return (t < 0 ? fmax(x, (C)-1e4) * root * root : x) * reciprocal((C)1 + root * root);
}

// x · Φ(x). With h = Φ(−|x|) that is x·h for negative x, else x − x·h.
//
// h = e^(−x²/2)·r(|x|), and r(a) = erfcx(a/√2)/2 is t·p(t), t = 1/(1 + 0.35·a), with p of degree 8 fitted to relative
// error 2⁻²⁵ on a ≤ 15, past which h is 0. The rounding of x²/2 moves h by x² ULP at most.
DEVICE f32 gelu_stable(f32 x) {
    // minimum and maximum keep NaN.
    f32 b = maximum(minimum(x, 16.0f), -16.0f);
    f32 t = reciprocal(fused(0.35f, fabsf(b), 1.0f));
    f32 p = -0.0291639331f;
    p = fused(p, t, 0.144060837f);
    p = fused(p, t, -0.255901933f);
    p = fused(p, t, 0.159392989f);
    p = fused(p, t, -0.0232638863f);
    p = fused(p, t, 0.105574822f);
    p = fused(p, t, 0.119815493f);
    p = fused(p, t, 0.139864337f);
    p = fused(p, t, 0.139621258f);
    f32 share = b * (p * t * power_of_two(b * -0.72134752f * b));
    return x > 0 ? x - share : share;
}

// x/2 · erfc(t), t = −x/√2. The error r of the rounded t enters through erfc'(t)/erfc(t) ≈ −2t for t > 1.
DEVICE f64 gelu_stable(f64 x) {
    // 1/√2 in two parts whose sum has twice the precision.
    const f64 half_root = 0.70710678118654757, rest = -4.8336466567264567e-17;
    if (x == -infinite<f64>()) return -0.0;
    f64 t = -x * half_root;
    f64 y = x / 2 * erfc(t);
    if (t > 1 && t < 50) {
        f64 r = fused(-x, half_root, -t) - x * rest;
        // A product keeps the sign of a result that underflows.
        y *= 1 - 2 * t * r;
    }
    return y;
}

// x · sigmoid(2√(2/π)·(x + 0.044715·x³)).
DEVICE C gelu_tanh_stable(C x) {
    C t = (C)1.5957691216057307 * fused((C)0.044715 * x * x, x, x);
    return times_sigmoid(x, t);
}

DEVICE C relu_of(C x) { return x > 0 || x != x ? x : (C)0; }

#endif
