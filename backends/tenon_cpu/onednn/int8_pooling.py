"""``int8_max_pool`` by oneDNN, for uint8 images whose channels lie last, as ``int8_conv`` gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon.ops import int8_max_pool as _op
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.int8_static import channels_last
from tenon_cpu.onednn.primitives import Execution, Primitive

_cache = Cache("int8 pooling")


def pool(x: tuple[int, ...], y: tuple[int, ...], kernel: Any, stride: Any, padding: Any) -> Execution | None:
    """From ``x`` to ``y``, both with their channels last; None where oneDNN has only its reference."""
    after = [
        (n - 1) * t + k - s - p for n, t, k, s, p in zip(y[2:], stride, kernel, x[2:], padding, strict=True)
    ]
    made = Primitive(
        "pooling_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["pooling_max"], channels_last(x, np.uint8),
        channels_last(y, np.uint8), stride, kernel, (0,) * len(kernel), padding, tuple(after),
    )  # fmt: skip
    return None if made.reference else made.execution({c.SRC: None, c.DST: None})


def _ready(x: Any, named: Any) -> Any:
    """The pool, and the shape of what it writes."""
    shape = _op.infer(x, **named).shape
    made = pool(x.shape, shape, **named)
    return None if made is None else (made, (shape[0], *shape[2:], shape[1]))


def int8_max_pool(x: Any, *, kernel: Any, stride: Any, padding: Any) -> Any:
    """oneDNN, else the reference."""
    named = {"kernel": kernel, "stride": stride, "padding": padding}
    last = x.transpose(0, *range(2, x.ndim), 1) if x.ndim > 2 else x
    if x.size and x.ndim > 2 and last.flags.c_contiguous:
        found = _cache.get((x.shape, x.dtype, kernel, stride, padding), _ready, x, named)
        if found is not None:
            ready, shape = found
            out = np.empty(shape, np.uint8)
            ready.bind(c.SRC, last)
            ready.bind(c.DST, out)
            ready()
            return out.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    return _op.forward(np, x, **named)


KERNELS: dict[str, Kernel] = {"int8_max_pool": int8_max_pool}

__all__ = ["KERNELS"]
