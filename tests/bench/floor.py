"""What the hardware asks of a program at least: products over the measured rate of products, bytes over that of memory.

``work`` counts, on PyTorch's side, floating-point operations of products and convolutions, and the bytes that move
if no array stays in a cache: parameters (read forward and backward, gradient written, what the optimizer reads and
writes), and values kept for the backward (written and read). Networks that fit into the cache can beat the latter.
"""

import math

#: Arrays of a parameter's size that one step of the optimizer reads and writes: gradient, parameter, state.
TRAFFIC = {"SGD": 5, "Adam": 7, "AdamW": 7}
BYTES = 4


def work(T, builders, name, mode, sizes):
    """``{"flops": ..., "bytes": ...}`` of one step; ``T`` is torch."""
    from torch.utils.flop_counter import FlopCounterMode

    program = builders[name](T, **sizes)
    parameters = sum(p.numel() for p in program.net.parameters()) * BYTES if program.net is not None else 0
    counter = FlopCounterMode(display=False, custom_mapping=attention_flops(T))
    if mode == "infer":
        program.net.eval()
        with counter, T.no_grad():
            out = program.net(*program.inputs)
        moved = parameters + sum(x.nbytes for x in (*program.inputs, out))
        return {"flops": counter.get_total_flops() + lstm_flops(T, program.net, sizes, 1), "bytes": moved}
    kept = {}
    own = (
        {p.untyped_storage().data_ptr() for p in program.net.parameters()}
        if program.net is not None
        else set()
    )

    def pack(value):
        storage = value.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    with counter, T.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        program.step()
    arrays = 3 if kept else 0
    if program.optimizer is not None:
        arrays += TRAFFIC[type(program.optimizer).__name__]
    return {
        "flops": counter.get_total_flops() + lstm_flops(T, program.net, sizes, 3),
        "bytes": arrays * parameters + 2 * sum(kept.values()),
    }


def lstm_flops(T, net, sizes, passes):
    """The products of ``nn.LSTM``, which PyTorch's counter does not see. The input needs no gradient."""
    cells = [m for m in net.modules() if isinstance(m, T.nn.LSTM)] if net is not None else []
    steps = sizes.get("length", 64) * sizes.get("batch", 32)
    return sum(
        2 * p.numel() * steps * (min(passes, 2) if name.startswith("weight_ih_l0") else passes)
        for m in cells
        for name, p in m.named_parameters()
        if p.dim() == 2
    )


def attention_flops(T):
    """Formulas for PyTorch's attention on a CPU, which its counter lacks: 2 products forward, 5 backward."""

    def forward(query, key, value, *rest, **options):
        return 2 * product(query, key)

    def backward(gradient, query, key, *rest, **options):
        return 5 * product(query, key)

    def product(query, key):
        return 2 * math.prod(query) * key[-2]

    ops = T.ops.aten
    return {
        ops._scaled_dot_product_flash_attention_for_cpu: forward,
        ops._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }


def rates(T, clock):
    """This library's best products (f32, and bfloat16 where it is offered) and copies, per second."""
    found = {"gemm": gemm(T, clock, "float32"), "copy": copy(T, clock)}
    if hasattr(T, "autocast"):
        found["gemm_bf16"] = gemm(T, clock, "bfloat16")
    if T.__name__ == "tenon":
        import numpy

        found["gemm"] = max(found["gemm"], gemm(numpy, clock, "float32"))
    return found


def gemm(T, clock, kind):
    """Floating-point operations a second of the fastest of a few products."""
    fastest = 0.0
    for m, k, n in ((128, 784, 512), (1024, 512, 512), (1024, 1024, 1024)):
        a, b = (T.ones(shape, dtype=getattr(T, kind)) for shape in ((m, k), (k, n)))
        fastest = max(fastest, 2 * m * k * n / best(lambda a=a, b=b: a @ b, clock))
    return fastest


def copy(T, clock):
    """Bytes read and written a second, of 64 MB: copied, or scaled in place.

    A processor reads what a copy is going to overwrite, too; what an optimizer changes in place moves without that.
    """
    source, target = T.ones(1 << 24), T.zeros(1 << 24)
    ways = (lambda: target.copy_(source), lambda: target.mul_(1.0))
    return max(2 * BYTES * (1 << 24) / best(way, clock) for way in ways)


def best(call, clock, rounds=15):
    """Seconds of the fastest call."""
    call()
    fastest = math.inf
    for _ in range(rounds):
        begin = clock()
        call()
        fastest = min(fastest, clock() - begin)
    return fastest
