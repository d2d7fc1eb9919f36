"""Small programs over tensors, layers and losses that must come to the same on every device.

``PROGRAMS`` maps a name to a function of ``t``, which makes tensors on the device under test: ``t.normal(3,
4)``, ``t.leaf(3, 4)`` (wants a gradient), ``t.integers(0, 5, 3)``. What it returns is compared, and the
leaves' gradients where it returns a number that needs one.
"""

import numpy as np

import tenon
from tenon import nn
from tenon.nn import functional as F


class Maker:
    """Tensors with the same numbers on any device."""

    def __init__(self, device):
        self.device = device
        self.rng = np.random.default_rng(3)
        self.leaves = []

    def put(self, array):
        return tenon.tensor(array, device=self.device)

    def normal(self, *shape):
        return self.put(self.rng.standard_normal(shape).astype(np.float32))

    def uniform(self, *shape, low=0.1, high=0.9):
        return self.put((low + (high - low) * self.rng.random(shape)).astype(np.float32))

    def leaf(self, *shape):
        made = self.normal(*shape).requires_grad_()
        self.leaves.append(made)
        return made

    def integers(self, low, high, *shape):
        return self.put(self.rng.integers(low, high, shape))

    def module(self, module):
        """A module moved to the device; its parameters count as leaves."""
        for parameter in module.parameters():
            with tenon.no_grad():
                parameter.copy_(
                    tenon.tensor(self.rng.standard_normal(tuple(parameter.shape)).astype(np.float32) * 0.3)
                )
        module.to(self.device)
        self.leaves += list(module.parameters())
        return module


PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def _each(prefix, functions, shape=(3, 4)):
    for name, function in functions.items():
        PROGRAMS[f"{prefix}_{name}"] = lambda t, function=function: function(t.leaf(*shape)).sum()


_each(
    "activation",
    {
        name: getattr(F, name)
        for name in (
            "relu", "relu6", "gelu", "silu", "mish", "elu", "selu", "celu", "leaky_relu", "softplus", "softsign",
            "tanhshrink", "hardtanh", "hardswish", "hardsigmoid", "logsigmoid", "softshrink", "hardshrink", "sigmoid",
            "tanh",
        )
    } | {"softmax": lambda x: F.softmax(x, 1) ** 2, "log_softmax": lambda x: F.log_softmax(x, 0) ** 2,
         "glu": F.glu, "normalize": lambda x: F.normalize(x) ** 3, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")},
)  # fmt: skip
_each(
    "method",
    {
        "cumsum": lambda x: x.cumsum(1) ** 2,
        "cumprod": lambda x: x.cumprod(0),
        "cummax": lambda x: x.cummax(1).values,
        "logcumsumexp": lambda x: tenon.logcumsumexp(x, 1) if hasattr(tenon, "logcumsumexp") else x,
        "sort": lambda x: x.sort(1).values * x,
        "topk": lambda x: x.topk(2, 1).values ** 2,
        "kthvalue": lambda x: x.kthvalue(2, 1).values,
        "median": lambda x: x.median(1).values,
        "quantile": lambda x: x.quantile(0.3, 1) if hasattr(x, "quantile") else x,
        "max": lambda x: x.max(1).values ** 2,
        "amin": lambda x: x.amin((0, 1)),
        "var": lambda x: x.var(1),
        "std": lambda x: x.std(),
        "norm": lambda x: x.norm(),
        "logsumexp": lambda x: x.logsumexp(1),
        "prod": lambda x: x.prod(1),
        "flip": lambda x: x.flip(0) * x,
        "roll": lambda x: x.roll(1, 1) * x,
        "tril": lambda x: x.tril() * x,
        "diagonal": lambda x: x.diagonal() ** 2,
        "unfold": lambda x: x.unfold(1, 2, 1) ** 2,
        "repeat": lambda x: x.repeat(2, 3) ** 2,
        "repeat_interleave": lambda x: x.repeat_interleave(2, 0) ** 2,
        "expand": lambda x: x[:, :1].expand(3, 4) * x,
        "masked_fill": lambda x: x.masked_fill(x > 0, 2.0) * x,
        "masked_select": lambda x: x[x > 0] ** 2,
        "clamp": lambda x: x.clamp(-0.5, 0.5) * x,
        "pow": lambda x: (x.abs() + 1) ** 2.5,
        "split": lambda x: sum(p.sum() ** 2 for p in x.split(2, 1)),
        "chunk": lambda x: x.chunk(2, 0)[0] ** 2,
        "where": lambda x: tenon.where(x > 0, x, x * 0.1),
        "einsum": lambda x: tenon.einsum("ij,kj->ik", x, x),
        "matmul": lambda x: (x @ x.T) ** 2,
        "cat": lambda x: tenon.cat([x, x * 2], 1) ** 2,
        "stack": lambda x: tenon.stack([x, x * 2]) ** 2,
        "pad": lambda x: F.pad(x, (1, 2), value=1.0) ** 2,
        "erf": lambda x: x.erf(),
        "lgamma": lambda x: (x.abs() + 0.5).lgamma(),
        "xlogy": lambda x: tenon.xlogy(x.abs(), x.abs() + 1),
        "logaddexp": lambda x: tenon.logaddexp(x, x * 2),
        "remainder": lambda x: x.remainder(0.7),
        "lerp": lambda x: x.lerp(x * 2, 0.3),
        "double": lambda x: x.double().sum(),
        "half": lambda x: x.half().float().sum(),
        "bfloat16": lambda x: (x.bfloat16() * 2).relu().float().sum(),
    },
)  # fmt: skip


def _whole(prefix, functions):
    for name, function in functions.items():
        PROGRAMS[f"{prefix}_{name}"] = function


_whole("integers", {
    "bincount": lambda t: tenon.bincount(t.integers(0, 5, 20)),
    "unique": lambda t: tenon.unique(t.integers(0, 5, 20)),
    "argsort": lambda t: t.normal(4, 5).argsort(1),
    "argmax": lambda t: t.normal(4, 5).argmax(1),
    "nonzero": lambda t: t.integers(0, 2, 3, 4).nonzero(),
    "searchsorted": lambda t: tenon.searchsorted(t.put(np.arange(0.0, 5)), t.uniform(6, high=6.0).double()),
    "mode": lambda t: t.integers(0, 3, 4, 7).mode(1).values,
    "shift": lambda t: (t.integers(0, 9, 5) << 2) | 1,
    "floor_divide": lambda t: t.integers(-9, 9, 6) // 4,
    "sum": lambda t: t.integers(0, 9, 3, 4).sum(0),
    "one_hot": lambda t: F.one_hot(t.integers(0, 4, 6), 4),
    "any": lambda t: (t.integers(0, 2, 3, 4) > 0).any(1),
    "gcd": lambda t: tenon.gcd(t.integers(1, 40, 6), t.integers(1, 40, 6)),
    "isin": lambda t: t.integers(0, 9, 6) == t.integers(0, 9, 6),
})  # fmt: skip


def _loss(function, make):
    return lambda t: function(t.leaf(5, 3), make(t))


_whole("loss", {
    "cross_entropy": _loss(F.cross_entropy, lambda t: t.integers(0, 3, 5)),
    "cross_entropy_soft": _loss(F.cross_entropy, lambda t: t.normal(5, 3).softmax(1)),
    "cross_entropy_weighted": lambda t: F.cross_entropy(t.leaf(5, 3), t.integers(0, 3, 5), weight=t.uniform(3), label_smoothing=0.1),
    "nll": lambda t: F.nll_loss(F.log_softmax(t.leaf(5, 3), 1), t.integers(0, 3, 5), ignore_index=1),
    "mse": _loss(F.mse_loss, lambda t: t.normal(5, 3)),
    "l1": _loss(F.l1_loss, lambda t: t.normal(5, 3)),
    "smooth_l1": _loss(F.smooth_l1_loss, lambda t: t.normal(5, 3)),
    "huber": _loss(F.huber_loss, lambda t: t.normal(5, 3)),
    "bce_logits": _loss(F.binary_cross_entropy_with_logits, lambda t: t.uniform(5, 3)),
    "bce": lambda t: F.binary_cross_entropy(t.leaf(5, 3).sigmoid(), t.uniform(5, 3)),
    "kl_div": lambda t: F.kl_div(F.log_softmax(t.leaf(5, 3), 1), t.normal(5, 3).softmax(1), reduction="batchmean"),
})  # fmt: skip

_whole("layer", {
    "linear": lambda t: t.module(nn.Linear(4, 3))(t.leaf(2, 4)).tanh().sum(),
    "conv1d": lambda t: t.module(nn.Conv1d(3, 4, 3, padding=1))(t.leaf(2, 3, 6)).tanh().sum(),
    "conv2d": lambda t: t.module(nn.Conv2d(4, 6, 3, stride=2, groups=2))(t.leaf(2, 4, 7, 7)).tanh().sum(),
    "conv_transpose2d": lambda t: F.conv_transpose2d(t.leaf(2, 3, 4, 4), t.leaf(3, 4, 3, 3), stride=2).tanh().sum(),
    "batch_norm": lambda t: (t.module(nn.BatchNorm2d(3))(t.leaf(4, 3, 5, 5)) ** 3).sum(),
    "layer_norm": lambda t: (t.module(nn.LayerNorm(4))(t.leaf(3, 4)) ** 3).sum(),
    "group_norm": lambda t: (t.module(nn.GroupNorm(2, 4))(t.leaf(3, 4, 5)) ** 3).sum(),
    "max_pool2d": lambda t: (F.max_pool2d(t.leaf(2, 3, 6, 6), 2) ** 2).sum(),
    "max_pool2d_overlap": lambda t: (F.max_pool2d(t.leaf(2, 3, 7, 7), 3, 2, 1) ** 2).sum(),
    "max_pool2d_indices": lambda t: F.max_pool2d_with_indices(t.normal(2, 3, 6, 6), 2)[1],
    "avg_pool2d": lambda t: (F.avg_pool2d(t.leaf(2, 3, 7, 7), 3, 2, 1) ** 2).sum(),
    "adaptive_avg_pool2d": lambda t: (F.adaptive_avg_pool2d(t.leaf(2, 3, 7, 5), (2, 3)) ** 2).sum(),
    "embedding": lambda t: (t.module(nn.Embedding(6, 4, padding_idx=0))(t.integers(0, 6, 3, 5)) ** 2).sum(),
    "attention": lambda t: F.scaled_dot_product_attention(t.leaf(2, 2, 5, 4), t.leaf(2, 2, 5, 4), t.leaf(2, 2, 5, 4), is_causal=True).sum(),
    "flatten": lambda t: (nn.Flatten()(t.leaf(2, 3, 4)) ** 2).sum(),
})  # fmt: skip

_whole("linalg", {
    "inv": lambda t: tenon.linalg.inv(_regular(t)).sum(),
    "solve": lambda t: tenon.linalg.solve(_regular(t), t.leaf(4, 2)).sum(),
    "det": lambda t: tenon.linalg.det(_regular(t)),
    "slogdet": lambda t: tenon.linalg.slogdet(_regular(t))[1],
    "cholesky": lambda t: tenon.linalg.cholesky(_positive(t)).sum(),
    "qr": lambda t: tenon.linalg.qr(_regular(t))[1].abs().sum(),
    "svdvals": lambda t: tenon.linalg.svdvals(t.leaf(4, 3)).sum(),
    "eigh": lambda t: tenon.linalg.eigh(_positive(t))[0].sum(),
    "norm": lambda t: tenon.linalg.norm(t.leaf(4, 3)),
})  # fmt: skip


def _regular(t):
    return t.leaf(4, 4) + 5 * tenon.eye(4, device=t.device)


def _positive(t):
    x = t.leaf(4, 4)
    return x @ x.T + 4 * tenon.eye(4, device=t.device)


@program
def indexing_and_assignment(t):
    x, rows = t.leaf(6, 3), t.integers(0, 6, 9)
    y = x * 1
    y[0] = 2.0
    y[1:3, ::2] = x[3:5, ::2]
    y[rows[:2]] = t.normal(2, 3)
    return (y[rows] ** 2).sum() + (x[rows, t.integers(0, 3, 9)] * 3).sum() + x[t.integers(0, 2, 6) > 0].sum()


@program
def repeated_indices_add_up(t):
    x, rows, values = t.leaf(4, 3), t.integers(0, 4, 40), t.leaf(40, 3)
    one = x.index_add(0, rows, values)
    two = x.scatter_add(0, t.integers(0, 4, 8, 3), t.leaf(8, 3))
    return (one**2).sum() + (two**3).sum() + (x.index_put((rows,), values, accumulate=True) ** 2).sum()


@program
def repeated_indices_add_up_in_place(t):
    filled, rows, values = t.normal(4, 3).fill_(0.5), t.integers(0, 4, 40), t.normal(40, 3)
    return filled.index_add_(0, rows, values, alpha=2).index_add_(1, t.integers(0, 3, 2), t.normal(4, 2))


@program
def integers_add_up_too(t):
    return t.integers(0, 9, 4, 3).index_add(0, t.integers(0, 4, 40), t.integers(0, 9, 40, 3))


@program
def scatter_with_reductions(t):
    x, index, source = t.normal(4, 3), t.integers(0, 4, 9, 3), t.uniform(9, 3)
    return tenon.stack(
        [x.scatter_reduce(0, index, source, how) for how in ("sum", "prod", "mean", "amax", "amin")]
    )


@program
def in_place_methods(t):
    x = t.normal(3, 4)
    x.add_(1).mul_(2).clamp_(-3, 3).sub_(x.mean()).div_(2.0)
    x[:, 1].zero_()
    x.t_()
    x[0].copy_(t.normal(3))
    return x.relu_()


@program
def gather_and_sorting(t):
    x = t.leaf(4, 5)
    return (x.gather(1, x.argsort(1, descending=True)[:, :2]) ** 2).sum()


@program
def second_order_gradients(t):
    x = t.leaf(3, 4)
    (g,) = tenon.autograd.grad((x.tanh() ** 3).sum(), x, create_graph=True)
    return (g**2).sum()


@program
def random_numbers_are_those_of_the_host(t):
    tenon.manual_seed(7)
    parts = [
        tenon.randn(20, device=t.device),
        tenon.rand(20, device=t.device),
        tenon.zeros(20, device=t.device).normal_(),
    ]
    parts += [
        tenon.randint(0, 9, (20,), device=t.device),
        tenon.randperm(20, device=t.device),
        F.dropout(t.normal(20) + 5),
    ]
    return tenon.cat([p.float() for p in parts])


@program
def complex_numbers(t):
    z = tenon.tensor([[1 + 2j, 3 - 1j], [0.5j, 2.0]], device=t.device)
    return tenon.cat([(z @ z.conj().T).real.flatten(), (z * z).imag.flatten(), z.abs().flatten()])


@program
def half_width_products(t):
    x, y = t.normal(4, 5), t.normal(5, 3)
    wide = [
        ((x.to(d) @ y.to(d)).float(), (x.to(d).expand(2, 4, 5) @ y.to(d)).float())
        for d in (tenon.float16, tenon.bfloat16)
    ]
    return tenon.cat([w.flatten() for pair in wide for w in pair])
