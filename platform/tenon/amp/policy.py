"""Which ops run in autocast's dtype and which in float32: torch 2.13's lists in tenon's ops.

What is not listed runs in the dtypes it gets, and mixed ones are promoted as outside autocast: so do softmax,
norms, activations, additions, ``cat`` and ``stack`` on the CPU. float16, the GPU's usual choice, overflows
where bfloat16 does not, so that there softmax, norms, sums, powers and exponentials run in float32.

Functions made of several ops name their own policy, see ``engine/precision.py``. ``tests/amp/test_parity.py``
and ``test_torch_lists.py`` hold all of it to torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tenon.errors import UnsupportedError

#: Products, where 16 bits are faster.
LOWER = ("linear", "matmul", "addmm", "conv", "convolution", "conv_input_grad")
#: Losses, products of many numbers, and what LAPACK computes.
FLOAT32 = (
    "nll_loss", "cross_entropy", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "prod", "inv", "solve", "det", "slogdet",
    "cholesky", "qr", "svdvals", "svd_parts", "eigh",
)  # fmt: skip
#: Ops that run in float32 over three spatial axes only.
FLOAT32_IN_SPACE = ("max_pool", "max_pool_indices", "avg_pool", "adaptive_avg_pool")

#: Policy of an op: its name, or a function of the op's arguments that gives it, or None.
Rule = str | Callable[[tuple[Any, ...]], str | None]


def _in_space(args: tuple[Any, ...]) -> str | None:
    return "float32" if args[0].raw.ndim == 5 else None


def _unsafe(args: tuple[Any, ...]) -> str | None:
    raise UnsupportedError(
        "binary_cross_entropy and BCELoss are unsafe to autocast on a GPU: their input must be a float16"
        " sigmoid's result. Use binary_cross_entropy_with_logits or BCEWithLogitsLoss, or compute the loss in"
        " a region with enabled=False, in float32."
    )


#: Ops that a GPU runs in float32 besides.
_CUDA_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow", "softmax", "log_softmax", "layer_norm", "softplus", "cumprod", "cumsum", "sum",
    "logsumexp", "vector_norm",
)  # fmt: skip

CPU: Mapping[str, Rule] = {
    **dict.fromkeys(LOWER, "lower"),
    **dict.fromkeys(FLOAT32, "float32"),
    **dict.fromkeys(FLOAT32_IN_SPACE, _in_space),
}
CUDA: Mapping[str, Rule] = {
    **dict.fromkeys(LOWER, "lower"),
    **dict.fromkeys((*FLOAT32, *_CUDA_FLOAT32), "float32"),
    **dict.fromkeys(("atan2", "scatter"), "widest"),
    "binary_cross_entropy": _unsafe,
}
#: By name of the backend.
POLICIES: Mapping[str, Mapping[str, Rule]] = {"cpu": CPU, "cuda": CUDA}
