"""Times the cases of `cuda_table` in PyTorch: one JSON line each, on stdout. `cuda_table` runs it."""

import json
import time

import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
N = 64 << 20


def report(**line):
    print(json.dumps(line), flush=True)


def case(op, dtype, shape, call):
    """The median of five batches of about ten milliseconds, each closed by one synchronisation."""

    def batch(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / calls

    batch(2)
    calls = int(min(max(10 / batch(2), 3), 100))
    report(op=op, dtype=dtype, shape=shape, ms=sorted(batch(calls) for _ in range(5))[2])


def random(dtype, *shape):
    return torch.randn(*shape, device="cuda").to(DTYPES[dtype])


def elementwise(d):
    a, b = random(d, N), random(d, N)
    mask = a > 0
    case("add", d, "64M", lambda: a + b)
    case("mul_scalar", d, "64M", lambda: a * 2.0)
    case("exp", d, "64M", lambda: torch.exp(a))
    case("tanh", d, "64M", lambda: torch.tanh(a))
    case("gelu", d, "64M", lambda: F.gelu(a))
    case("gelu_tanh", d, "64M", lambda: F.gelu(a, approximate="tanh"))
    case("relu", d, "64M", lambda: torch.relu(a))
    case("silu", d, "64M", lambda: F.silu(a))
    case("gt", d, "64M", lambda: a > b)
    case("copy", d, "64M", lambda: a.clone())
    case("cast_f32", d, "64M", lambda: a.to(torch.float32, copy=True))
    case("cast_bf16", d, "64M", lambda: a.to(torch.bfloat16, copy=True))
    case("fill", d, "64M", lambda: torch.full((N,), 1.0, dtype=DTYPES[d], device="cuda"))
    case("where", d, "64M", lambda: torch.where(mask, a, b))
    case("cat", d, "2x32M", lambda: torch.cat([a[: N // 2], b[: N // 2]]))
    case("strided", d, "64M::2", lambda: a[::2].contiguous())


def broadcast(d):
    a, b, row, column = random(d, 8192, 8192), random(d, 8192, 8192), random(d, 8192), random(d, 8192, 1)
    case("add_row", d, "8192", lambda: a + row)
    case("add_col", d, "8192", lambda: a + column)
    case("add_t", d, "8192", lambda: a + a.T)
    case("add_bt", d, "8192", lambda: a + b.T)
    case("transpose_copy", d, "8192", lambda: a.T.contiguous())
    case("permute_copy", d, "8192", lambda: a.view(64, 128, 64, 128).permute(0, 2, 1, 3).contiguous())


def reductions(d):
    flat = random(d, N)
    a, b, c = flat.view(8192, 8192), flat.view(64, 1024, 1024), flat.view(-1, 128)
    case("sum_all", d, "64M", lambda: flat.sum())
    case("sum0", d, "8192", lambda: a.sum(0))
    case("sum1", d, "8192", lambda: a.sum(1))
    case("max1", d, "8192", lambda: a.amax(1))
    case("max_all", d, "64M", lambda: flat.amax())
    case("argmax1", d, "8192", lambda: a.argmax(1))
    case("argmax0", d, "8192", lambda: a.argmax(0))
    case("mean02", d, "64x1024x1024", lambda: b.mean((0, 2)))
    case("sum1", d, "64x1024x1024", lambda: b.sum(1))
    case("sum1", d, "524288x128", lambda: c.sum(1))
    case("var1", d, "8192", lambda: a.var(1))
    case("logsumexp1", d, "8192", lambda: a.logsumexp(1))


def norms(d):
    a, w = random(d, 8192, 8192), random(d, 8192)
    case("softmax", d, "8192", lambda: F.softmax(a, 1))
    case("log_softmax", d, "8192", lambda: F.log_softmax(a, 1))
    case("layer_norm", d, "8192", lambda: F.layer_norm(a, (8192,), w, w, 1e-5))
    case("rms_norm", d, "8192", lambda: F.rms_norm(a, (8192,), w, 1e-5))


def indices():
    table, flat = random("f32", 1 << 16, 1 << 10), random("f32", N)
    numbers = torch.randint(1 << 16, (1 << 16,), device="cuda")
    case("embedding", "f32", "65536x1024", lambda: F.embedding(numbers, table))
    case("embedding_grad", "f32", "65536x1024", lambda: torch.zeros_like(table).index_add_(0, numbers, table))
    case("masked_select", "f32", "64M", lambda: flat.masked_select(flat > 0))


def sorts():
    a = random("f32", 8192, 8192)
    case("cumsum0", "f32", "8192", lambda: a.cumsum(0))
    case("cumsum1", "f32", "8192", lambda: a.cumsum(1))
    rows, long = torch.rand(1024, 8192, device="cuda"), torch.rand(1 << 24, device="cuda")
    case("sort", "f32", "1024x8192", lambda: rows.sort(1))
    case("argsort", "f32", "1024x8192", lambda: rows.argsort(1))
    case("topk50", "f32", "1024x8192", lambda: rows.topk(50, 1))
    case("sort", "f32", "16M", lambda: long.sort())
    short = long[: 1 << 20]
    case("topk50", "f32", "1M", lambda: short.topk(50))


def random_numbers():
    for d in ("f32", "bf16"):
        case("rand", d, "64M", lambda: torch.rand(N, dtype=DTYPES[d], device="cuda"))
    case("randn", "f32", "64M", lambda: torch.randn(N, device="cuda"))
    case("randint", "i64", "64M", lambda: torch.randint(1000, (N,), device="cuda"))
    case("randperm", "i64", "64M", lambda: torch.randperm(N, device="cuda"))


def product(op, d, shape, a, b):
    x, y = random(d, *a), random(d, *b)
    case(op, d, shape, lambda: x @ y)


def convolutions(d):
    x, w, b = random(d, 32, 64, 56, 56), random(d, 64, 64, 3, 3), random(d, 64)
    last, w_last = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
    case("conv3x3", d, "32x64x56", lambda: F.conv2d(x, w, padding=1))
    case("conv3x3_relu", d, "32x64x56", lambda: F.relu(F.conv2d(x, w, b, padding=1)))
    case("conv3x3_nhwc", d, "32x64x56", lambda: F.conv2d(last, w_last, padding=1))
    case("conv3x3_grad_input", d, "32x64x56", lambda: torch.nn.grad.conv2d_input(x.shape, w, x, padding=1))
    case("conv3x3_grad_weight", d, "32x64x56", lambda: torch.nn.grad.conv2d_weight(x, w.shape, x, padding=1))
    image, w7, w1 = random(d, 32, 3, 224, 224), random(d, 64, 3, 7, 7), random(d, 256, 64, 1, 1)
    case("conv7x7s2", d, "32x3x224", lambda: F.conv2d(image, w7, stride=2, padding=3))
    case("conv1x1", d, "32x64x56", lambda: F.conv2d(x, w1))
    x, w = random(d, 32, 256, 56, 56), random(d, 256, 1, 3, 3)
    case("dwconv3x3", d, "32x256x56", lambda: F.conv2d(x, w, padding=1, groups=256))
    grad = lambda: torch.nn.grad.conv2d_input(x.shape, w, x, padding=1, groups=256)
    case("dwconv3x3_grad_input", d, "32x256x56", grad)


def overhead():
    x, y = torch.zeros(4, device="cuda"), torch.ones(4, device="cuda")
    for name, call in (("add", lambda z: z + y), ("add_assign", lambda z: z.add_(y))):
        times = []
        for _ in range(5):
            z = x + y
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(1000):
                z = call(z)
            host = time.perf_counter()
            torch.cuda.synchronize()
            times.append(((host - start) * 1e3, (time.perf_counter() - start) * 1e3))
        for at, what in enumerate(("until the call returns", "with the device")):
            report(op=f"{name} of 4 elements, {what}", dtype="f32", shape="4", ms=sorted(t[at] for t in times)[2])


report(op="version", dtype="", shape="", note=f"PyTorch {torch.__version__}, its CUDA {torch.version.cuda}, TF32 off")
overhead()
for dtype in ("f32", "bf16", "f16"):
    elementwise(dtype)
    broadcast(dtype)
    reductions(dtype)
    norms(dtype)
indices()
sorts()
random_numbers()
product("matmul", "f32", "1024", (1024, 1024), (1024, 1024))
product("matmul", "f32", "4096", (4096, 4096), (4096, 4096))
product("matmul", "f64", "4096", (4096, 4096), (4096, 4096))
product("matmul", "bf16", "8192", (8192, 8192), (8192, 8192))
product("matmul", "f16", "8192", (8192, 8192), (8192, 8192))
for dtype in ("f32", "bf16"):
    product("bmm", dtype, "64x512x64x512", (64, 512, 64), (64, 64, 512))
for dtype in ("f32", "bf16"):
    convolutions(dtype)
