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


def _ready(
    x: tuple[int, ...], y: tuple[int, ...], kernel: Any, stride: Any, padding: Any
) -> Execution | None:
    after = [
        (n - 1) * t + k - s - p for n, t, k, s, p in zip(y[2:], stride, kernel, x[2:], padding, strict=True)
    ]
    made = Primitive(
        "pooling_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["pooling_max"], channels_last(x, np.uint8),
        channels_last(y, np.uint8), stride, kernel, (0,) * len(kernel), padding, tuple(after),
    )  # fmt: skip
    return None if made.reference else made.execution({c.SRC: None, c.DST: None})


def int8_max_pool(x: Any, *, kernel: Any, stride: Any, padding: Any) -> Any:
    """oneDNN, else the reference."""
    shape = _op.infer(x, kernel=kernel, stride=stride, padding=padding).shape
    last = np.moveaxis(x, 1, -1)
    if x.size and last.flags.c_contiguous:
        ready = _cache.get(
            (x.shape, kernel, stride, padding), _ready, x.shape, shape, kernel, stride, padding
        )
        if ready is not None:
            out = np.empty((shape[0], *shape[2:], shape[1]), np.uint8)
            ready.bind(c.SRC, last)
            ready.bind(c.DST, out)
            ready()
            return np.moveaxis(out, -1, 1)
    return _op.forward(np, x, kernel=kernel, stride=stride, padding=padding)


KERNELS: dict[str, Kernel] = {"int8_max_pool": int8_max_pool}

__all__ = ["KERNELS"]
