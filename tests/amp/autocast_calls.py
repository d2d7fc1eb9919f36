"""Calls of ops under autocast, written once for torch and tenon: ``CALLS[name](T, F, x)``.

``x(*shape)`` gives a tensor of the dtype under test, ``x.full(*shape)`` always one of float32, the dtype of
parameters; both positive and below 1.
"""

from __future__ import annotations

#: name -> function(T, F, x): T is the package, F its nn.functional.
CALLS = {}


def _matrices():
    yield "linear", lambda T, F, x: F.linear(x(3, 4), x.full(5, 4), x.full(5))
    yield "linear without bias", lambda T, F, x: F.linear(x(2, 3, 4), x.full(5, 4))
    yield "mm", lambda T, F, x: T.mm(x(3, 4), x.full(4, 5))
    yield "matmul", lambda T, F, x: x(2, 3, 4) @ x.full(4, 5)
    yield "matmul of a vector", lambda T, F, x: T.matmul(x(3, 4), x.full(4))
    yield "bmm", lambda T, F, x: T.bmm(x(2, 3, 4), x.full(2, 4, 5))
    yield "mv", lambda T, F, x: T.mv(x(3, 4), x(4))
    yield "dot", lambda T, F, x: T.dot(x(4), x(4))
    yield "vdot", lambda T, F, x: T.vdot(x(4), x(4))
    yield "inner", lambda T, F, x: T.inner(x(3, 4), x(5, 4))
    yield "outer", lambda T, F, x: T.outer(x(3), x.full(4))
    yield "tensordot", lambda T, F, x: T.tensordot(x(3, 4), x(4, 5), 1)
    yield "multi_dot", lambda T, F, x: T.linalg.multi_dot([x(3, 4), x(4, 5), x(5, 2)])
    yield "addmm", lambda T, F, x: T.addmm(x.full(3, 5), x(3, 4), x.full(4, 5))
    yield "addmm by keyword", lambda T, F, x: T.addmm(x.full(3, 5), mat1=x(3, 4), mat2=x(4, 5), beta=0.5)
    yield "addmv", lambda T, F, x: T.addmv(x(3), x(3, 4), x(4))
    yield "addr", lambda T, F, x: T.addr(x(3, 4), x(3), x(4))
    yield "addbmm", lambda T, F, x: T.addbmm(x.full(3, 5), x(2, 3, 4), x.full(2, 4, 5))
    yield "baddbmm", lambda T, F, x: T.baddbmm(x.full(2, 3, 5), x(2, 3, 4), x.full(2, 4, 5))
    yield "einsum", lambda T, F, x: T.einsum("ij,jk->ik", x(3, 4), x.full(4, 5))
    yield "einsum elementwise", lambda T, F, x: T.einsum("ij,ij->ij", x(3, 4), x(3, 4))
    yield "kron", lambda T, F, x: T.kron(x(2, 2), x.full(2, 2))
    yield "matrix_power", lambda T, F, x: T.matrix_power(x(3, 3), 2)
    yield "vecdot", lambda T, F, x: T.linalg.vecdot(x(2, 3), x.full(2, 3))
    yield "prelu", lambda T, F, x: F.prelu(x(2, 3) - 0.5, x.full(3))
    yield (
        "attention",
        lambda T, F, x: F.scaled_dot_product_attention(x(1, 2, 3, 4), x.full(1, 2, 3, 4), x(1, 2, 3, 4)),
    )
    yield (
        "causal attention",
        lambda T, F, x: F.scaled_dot_product_attention(*[x(1, 2, 3, 4) for _ in "qkv"], is_causal=True),
    )
    yield "float64 stays", lambda T, F, x: T.mm(x(3, 4).double(), x(4, 5).double())
    yield "integers stay", lambda T, F, x: T.mm(T.ones(3, 4, dtype=T.int64), T.ones(4, 2, dtype=T.int64))


def _convolutions():
    yield "conv1d", lambda T, F, x: F.conv1d(x(1, 2, 8), x.full(3, 2, 3), x.full(3))
    yield "conv2d", lambda T, F, x: F.conv2d(x(1, 2, 8, 8), x.full(3, 2, 3, 3), x.full(3))
    yield "conv2d without bias", lambda T, F, x: F.conv2d(x(2, 8, 8), x.full(3, 2, 3, 3))
    yield "conv2d same", lambda T, F, x: F.conv2d(x(1, 2, 8, 8), x.full(3, 2, 3, 3), padding="same")
    yield "conv3d", lambda T, F, x: F.conv3d(x(1, 2, 5, 5, 5), x.full(3, 2, 3, 3, 3), x.full(3))
    yield "conv_transpose1d", lambda T, F, x: F.conv_transpose1d(x(1, 2, 8), x.full(2, 3, 3), x.full(3))
    yield "conv_transpose2d", lambda T, F, x: F.conv_transpose2d(x(1, 2, 8, 8), x.full(2, 3, 3, 3), x.full(3))
    yield (
        "conv_transpose3d",
        lambda T, F, x: F.conv_transpose3d(x(1, 2, 4, 4, 4), x.full(2, 3, 3, 3, 3)),
    )
    for d in (1, 2, 3):
        yield f"max_pool{d}d", lambda T, F, x, d=d: getattr(F, f"max_pool{d}d")(x(1, 2, *(4,) * d), 2)
        yield f"avg_pool{d}d", lambda T, F, x, d=d: getattr(F, f"avg_pool{d}d")(x(1, 2, *(4,) * d), 2)
        yield (
            f"adaptive_avg_pool{d}d",
            lambda T, F, x, d=d: getattr(F, f"adaptive_avg_pool{d}d")(x(1, 2, *(4,) * d), 2),
        )
        for mode in ("reflect", "replicate", "circular", "constant"):
            yield (
                f"pad {mode} {d}",
                lambda T, F, x, d=d, mode=mode: F.pad(x(1, 2, *(4,) * d), (1, 1) * d, mode=mode),
            )


def _losses():
    label = [1, 0, 2]
    yield "cross_entropy", lambda T, F, x: F.cross_entropy(x(3, 4), T.tensor(label))
    yield "cross_entropy weighted", lambda T, F, x: F.cross_entropy(x(3, 4), T.tensor(label), x(4))
    yield "cross_entropy soft", lambda T, F, x: F.cross_entropy(x(3, 4), x(3, 4))
    yield (
        "cross_entropy smoothed",
        lambda T, F, x: F.cross_entropy(x(3, 4), T.tensor(label), label_smoothing=0.1),
    )
    yield "nll_loss", lambda T, F, x: F.nll_loss(x(3, 4), T.tensor(label))
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        yield name, lambda T, F, x, name=name: getattr(F, name)(x(3, 4), x(3, 4))
        yield f"{name} each", lambda T, F, x, name=name: getattr(F, name)(x(3, 4), x(3, 4), reduction="none")
    yield "bce", lambda T, F, x: F.binary_cross_entropy(x(3, 4), x(3, 4))
    yield "bce with logits", lambda T, F, x: F.binary_cross_entropy_with_logits(x(3, 4), x(3, 4))
    yield (
        "bce with logits weighted",
        lambda T, F, x: F.binary_cross_entropy_with_logits(x(3, 4), x(3, 4), x(4), pos_weight=x(4)),
    )
    yield "kl_div", lambda T, F, x: F.kl_div(x(3, 4), x(3, 4), reduction="sum")
    yield "kl_div log", lambda T, F, x: F.kl_div(x(3, 4), x(3, 4), reduction="batchmean", log_target=True)


def _rest():
    yield "softmax", lambda T, F, x: F.softmax(x(3, 4), 1)
    yield "log_softmax", lambda T, F, x: F.log_softmax(x(3, 4), 1)
    yield "layer_norm", lambda T, F, x: F.layer_norm(x(3, 4), (4,), x.full(4), x.full(4))
    yield "layer_norm plain", lambda T, F, x: F.layer_norm(x(3, 4), (4,))
    yield "rms_norm", lambda T, F, x: F.rms_norm(x(3, 4), (4,))
    yield (
        "batch_norm",
        lambda T, F, x: F.batch_norm(x(5, 4), T.zeros(4), T.ones(4), x.full(4), x.full(4), True),
    )
    yield (
        "batch_norm inference",
        lambda T, F, x: F.batch_norm(x(5, 4), T.zeros(4), T.ones(4), x.full(4), x.full(4), False),
    )
    yield "group_norm", lambda T, F, x: F.group_norm(x(3, 4, 5), 2, x.full(4), x.full(4))
    yield "embedding", lambda T, F, x: F.embedding(T.tensor([1, 0, 2]), x(4, 5))
    for name in ("relu", "gelu", "silu", "mish", "elu", "softplus", "hardtanh", "logsigmoid"):
        yield name, lambda T, F, x, name=name: getattr(F, name)(x(3, 4) - 0.5)
    yield "gelu tanh", lambda T, F, x: F.gelu(x(3, 4) - 0.5, approximate="tanh")
    for name in ("tanh", "exp", "log", "rsqrt", "sigmoid", "sin", "erfinv", "sqrt", "erf", "square"):
        yield name, lambda T, F, x, name=name: getattr(T, name)(x(3, 4))
    for name in ("sum", "mean", "prod", "std", "var", "norm", "median", "amax", "nansum"):
        yield name, lambda T, F, x, name=name: getattr(x(3, 4), name)()
    for name in ("sum", "mean", "prod", "cumsum", "cumprod", "logsumexp", "amax"):
        yield f"{name} of an axis", lambda T, F, x, name=name: getattr(x(3, 4), name)(0)
    yield "power", lambda T, F, x: x(3, 4) ** 2.0
    yield "quantile", lambda T, F, x: x(3, 4).quantile(0.5)
    yield "nanquantile", lambda T, F, x: x(3, 4).nanquantile(0.25, 1)
    yield "trace", lambda T, F, x: x(3, 3).trace()
    yield "cdist", lambda T, F, x: T.cdist(x(3, 2), x(4, 2))
    yield "dist", lambda T, F, x: T.dist(x(3, 2), x(3, 2))
    yield "cosine_similarity", lambda T, F, x: F.cosine_similarity(x(3, 4), x(3, 4))
    yield "normalize", lambda T, F, x: F.normalize(x(3, 4))
    yield "cat", lambda T, F, x: T.cat([x(3), x.full(3)])
    yield "stack", lambda T, F, x: T.stack([x(3), x.full(3)])
    yield "hstack", lambda T, F, x: T.hstack([x(3), x.full(3)])
    yield "index_copy", lambda T, F, x: T.index_copy(x(3, 2), 0, T.tensor([0, 2]), x.full(2, 2))
    yield "index_add", lambda T, F, x: T.index_add(x(3, 2), 0, T.tensor([0, 2]), x(2, 2))
    yield "add", lambda T, F, x: x(3) + x.full(3)
    yield "add a number", lambda T, F, x: x(3) + 1.5
    yield "where", lambda T, F, x: T.where(T.tensor([True, False, True]), x(3), x.full(3))
    yield "addcmul", lambda T, F, x: T.addcmul(x(3), x(3), x.full(3))
    yield "addition in place", lambda T, F, x: x(3).add_(x.full(3))
    yield "unfold", lambda T, F, x: F.unfold(x(1, 2, 4, 4), 2)
    yield "scatter_add", lambda T, F, x: T.scatter_add(x(3), 0, T.tensor([0, 1]), x(2))
    yield "dropout", lambda T, F, x: F.dropout(x(3, 4), 0.5, False)


def _solvers():
    spd = lambda T, x: (lambda m: m @ m.mT + 2 * T.eye(3))(x.full(3, 3)).to(x.dtype)  # noqa: E731
    yield "inverse", lambda T, F, x: T.inverse(spd(T, x))
    yield "linalg.inv", lambda T, F, x: T.linalg.inv(spd(T, x))
    yield "cholesky", lambda T, F, x: T.linalg.cholesky(spd(T, x))
    yield "solve", lambda T, F, x: T.linalg.solve(spd(T, x), x(3, 2))
    yield "cholesky_solve", lambda T, F, x: T.cholesky_solve(x(3, 2), spd(T, x))
    yield "svdvals", lambda T, F, x: T.linalg.svdvals(spd(T, x))
    yield "eigvalsh", lambda T, F, x: T.linalg.eigvalsh(spd(T, x))
    yield "pinverse", lambda T, F, x: T.pinverse(spd(T, x))


for _made in (_matrices, _convolutions, _losses, _rest, _solvers):
    for _name, _call in _made():
        assert _name not in CALLS, _name
        CALLS[_name] = _call
