"""Times PyTorch for `congruent-benches report`, which starts it: `python3 torch_worker.py cpu` or `… cuda:0`.

One JSON line for each that is read; `src/worker.rs` describes them. An op is a function of the inputs, which are made
before the clock starts, and of the case's arguments; it returns the call that is timed.
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

DEVICE = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
CUDA = DEVICE.type == "cuda"
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}
torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
torch.set_grad_enabled(False)


def make(spec, dtype):
    shape = spec["shape"]
    if spec["kind"] == "index":
        return torch.randint(spec["below"], shape, device=DEVICE)
    if spec["kind"] == "mask":
        return torch.rand(shape, device=DEVICE) < 0.5
    if spec["kind"] in ("uniform", "sorted"):
        x = torch.rand(shape, dtype=dtype, device=DEVICE)
        return x.sort(-1)[0] if spec["kind"] == "sorted" else x
    if not dtype.is_floating_point:
        return torch.randint(1, 100, shape, dtype=dtype, device=DEVICE)
    magnitude = torch.rand(shape, device=DEVICE) * 0.9 + 0.1
    return torch.where(torch.rand(shape, device=DEVICE) < 0.5, magnitude, -magnitude).to(dtype)


def new(function, **options):
    """A call that makes a tensor out of nothing."""
    return lambda x, a, d: lambda: function(a["count"], device=DEVICE, **options)


def conv(call):
    def op(x, a, d):
        options = {"stride": a["stride"], "padding": a["padding"], "groups": a["groups"]}
        return lambda: call(x[0], x[1], options)

    return op


def conv_nhwc(x, a, d):
    """Image and weight lie with their channels last."""
    image, weight = (t.permute(0, 3, 1, 2) for t in x)
    return lambda: F.conv2d(image, weight, stride=a["stride"], padding=a["padding"], groups=a["groups"])


def pool(call):
    return lambda x, a, d: lambda: call(x, a["kernel"], a["stride"], a["padding"])


def max_pool_grad(x, a, d):
    grad, image = x
    _, positions = F.max_pool2d(image, a["kernel"], a["stride"], a["padding"], return_indices=True)
    sizes = [[a["kernel"]] * 2, [a["stride"]] * 2, [a["padding"]] * 2, [1, 1], False]
    return lambda: torch.ops.aten.max_pool2d_with_indices_backward(grad, image, *sizes, positions)


def avg_pool_grad(x, a, d):
    image = torch.empty((*x[0].shape[:2], *(2 * n for n in x[0].shape[2:])), dtype=d, device=DEVICE)
    sizes = [[a["kernel"]] * 2, [a["stride"]] * 2, [a["padding"]] * 2, False, True, None]
    return lambda: torch.ops.aten.avg_pool2d_backward(x[0], image, *sizes)


def into(function):
    return lambda x, a, d: lambda: function(*x[:-1], out=x[-1])


def of(function):
    """An op of all inputs."""
    return lambda x, a, d: lambda: function(*x)


def first(function):
    """An op of the first input."""
    return lambda x, a, d: lambda: function(x[0])


def cast(dtype):
    return first(lambda x: x.to(dtype))


def linear(activation):
    """The weight is square, and lies as PyTorch keeps it: outputs by inputs."""
    return of(lambda x, w, b: activation(F.linear(x, w, b)))


def embedding_grad(x, a, d):
    rows, index = x
    shape = (a["rows"], rows.shape[1])
    return lambda: torch.zeros(shape, dtype=d, device=DEVICE).index_add_(0, index, rows)


def attention(x, a, d):
    return lambda: F.scaled_dot_product_attention(*x, is_causal=bool(a["causal"]))


OPS = {
    "copy_into": lambda x, a, d: lambda: x[1].copy_(x[0]),
    # unary
    "exp": first(torch.exp),
    "tanh": first(torch.tanh),
    "gelu": first(F.gelu),
    "gelu_tanh": first(lambda x: F.gelu(x, approximate="tanh")),
    "relu": first(torch.relu),
    "silu": first(F.silu),
    "sigmoid": first(torch.sigmoid),
    "abs": first(torch.abs),
    "sqrt": first(torch.sqrt),
    "ln": first(torch.log),
    "sin": first(torch.sin),
    "cos": first(torch.cos),
    "erf": first(torch.erf),
    "expm1": first(torch.expm1),
    "softplus": first(F.softplus),
    "round": first(torch.round),
    # binary, compare
    "add": of(torch.add),
    "add_into": into(torch.add),
    "mul_scalar": first(lambda x: x * 2.0),
    "add_row": of(torch.add),
    "add_col": of(torch.add),
    "add_t": first(lambda x: x + x.T),
    "add_bt": of(lambda x, y: x + y.T),
    "gt": of(torch.gt),
    "where": of(lambda x, y, mask: torch.where(mask, x, y)),
    # copy
    "copy": first(torch.clone),
    **{f"cast_{name}": cast(dtype) for name, dtype in DTYPES.items()},
    "fill": lambda x, a, d: lambda: torch.full((a["count"],), 1.0, dtype=d, device=DEVICE),
    "cat": lambda x, a, d: lambda: torch.cat(x),
    "strided": first(lambda x: x[::2].contiguous()),
    "transpose_copy": first(lambda x: x.T.contiguous()),
    "permute_copy": first(lambda x: x.permute(0, 2, 1, 3).contiguous()),
    # reduce, scan
    "sum": first(torch.sum),
    "max": first(torch.amax),
    "sum_first": first(lambda x: x.sum(0)),
    "sum_last": first(lambda x: x.sum(1)),
    "sum_last_128": first(lambda x: x.sum(1)),
    "sum_middle": first(lambda x: x.sum(1)),
    "max_last": first(lambda x: x.amax(1)),
    "argmax_last": first(lambda x: x.argmax(1)),
    "argmax_first": first(lambda x: x.argmax(0)),
    "mean_outer": first(lambda x: x.mean((0, 2))),
    "var_last": first(lambda x: x.var(1)),
    "logsumexp_last": first(lambda x: x.logsumexp(1)),
    "cumsum_first": lambda x, a, d: lambda: torch.cumsum(x[0], 0, out=x[1]),
    "cumsum_last": lambda x, a, d: lambda: torch.cumsum(x[0], 1, out=x[1]),
    # norm
    "softmax": first(lambda x: F.softmax(x, 1)),
    "log_softmax": first(lambda x: F.log_softmax(x, 1)),
    "layer_norm": of(lambda x, weight, bias: F.layer_norm(x, weight.shape, weight, bias, 1e-5)),
    "rms_norm": of(lambda x, weight, _: F.rms_norm(x, weight.shape, weight, 1e-5)),
    # sort, index
    "sort": first(lambda x: x.sort(-1)),
    "argsort": first(lambda x: x.argsort(-1)),
    "topk50": first(lambda x: x.topk(50, -1)),
    "searchsorted": of(torch.searchsorted),
    "embedding": of(lambda table, index: F.embedding(index, table)),
    "embedding_grad": embedding_grad,
    "take": of(torch.take),
    "scatter": of(lambda src, index, out: out.scatter_(0, index, src)),
    "scatter_add": of(lambda src, index, out: out.scatter_add_(0, index, src)),
    "bincount": first(lambda x: torch.bincount(x, minlength=256)),
    "masked_select": of(torch.masked_select),
    # random
    "rand": lambda x, a, d: lambda: torch.rand(a["count"], dtype=d, device=DEVICE),
    "randn": lambda x, a, d: lambda: torch.randn(a["count"], dtype=d, device=DEVICE),
    "randint": lambda x, a, d: lambda: torch.randint(1000, (a["count"],), dtype=d, device=DEVICE),
    "bernoulli": lambda x, a, d: lambda: torch.empty(a["count"], dtype=d, device=DEVICE).bernoulli_(0.5),
    "randperm": new(torch.randperm),
    # matmul, linear
    "matmul": of(torch.matmul),
    "bmm": of(torch.matmul),
    "matmul_at": of(lambda x, y: x.T @ y),
    "matmul_bt": of(lambda x, y: x @ y.T),
    "matmul_atbt": of(lambda x, y: x.T @ y.T),
    "linear_identity": linear(lambda x: x),
    "linear_relu": linear(torch.relu),
    "linear_gelu": linear(F.gelu),
    "linear_gelu_tanh": linear(lambda x: F.gelu(x, approximate="tanh")),
    # conv
    **{f"conv{name}": conv(lambda x, w, o: F.conv2d(x, w, **o)) for name in ("3x3", "7x7s2", "1x1", "3x3_depthwise")},
    "conv_relu3x3": conv(lambda x, w, o: F.relu(F.conv2d(x, w, w[:, 0, 0, 0], **o))),
    "conv_nhwc3x3": conv_nhwc,
    **{
        f"conv_grad_input{name}": conv(lambda y, w, o: torch.nn.grad.conv2d_input(y.shape, w, y, **o))
        for name in ("3x3", "3x3_depthwise")
    },
    "conv_grad_weight3x3": conv(lambda x, w, o: torch.nn.grad.conv2d_weight(x, w.shape, x, **o)),
    # pool
    **{
        f"{op}{name}": function
        for name in ("2x2s2", "3x3s2")
        for op, function in {
            "max_pool": pool(lambda x, k, s, p: F.max_pool2d(x[0], k, s, p)),
            "argmax_pool": pool(lambda x, k, s, p: F.max_pool2d(x[0], k, s, p, return_indices=True)),
            "avg_pool": pool(lambda x, k, s, p: F.avg_pool2d(x[0], k, s, p)),
            "max_pool_grad": max_pool_grad,
            "avg_pool_grad": avg_pool_grad,
        }.items()
    },
    "attention": attention,
    "attention_causal": attention,
}


def wait():
    if CUDA:
        torch.cuda.synchronize(DEVICE)


def run(call, calls):
    wait()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    returned = time.perf_counter() - start
    wait()
    return {"seconds": time.perf_counter() - start, "returned": returned}


def prepare(case):
    """The call of a case, or why there is none."""
    dtype = DTYPES.get(case["dtype"])
    op = OPS.get(case["op"])
    if dtype is None or op is None:
        return None, {"unsupported": f"no {case['op']} of {case['dtype']}"}
    return op([make(spec, dtype) for spec in case["inputs"]], case["args"], dtype), {"ready": True}


def main():
    build = f"CUDA {torch.version.cuda}, TF32 off" if CUDA else f"{torch.get_num_threads()} threads"
    if CUDA:
        torch.zeros(1, device=DEVICE)
    who = {"library": "torch", "device": str(DEVICE), "version": torch.__version__, "note": build}
    print(json.dumps(who), flush=True)
    call = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "prepare" in question:
                call = None
                call, answer = prepare(question["prepare"])
            elif "run" in question:
                answer = run(call, question["run"])
            else:
                call, answer = None, {"released": True}
        except NotImplementedError as error:
            answer = {"unsupported": str(error).splitlines()[0]}
        except Exception as error:  # any failure of a case is an answer, and the next case is another matter
            answer = {"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        print(json.dumps(answer), flush=True)


main()
