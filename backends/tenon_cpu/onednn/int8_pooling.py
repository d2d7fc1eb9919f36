"""``int8_max_pool`` by oneDNN, for channels-last uint8 images, the layout that ``int8_conv`` returns."""

from __future__ import annotations

import numpy as np

from tenon.extend import Attrs
from tenon.ops import int8_max_pool as _op
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.int8_static import channels_last
from tenon_cpu.onednn.primitives import Execution, Primitive

Sizes = tuple[int, ...]
_cache = Cache("int8 pooling")


def pool(x: Sizes, y: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes) -> Execution | None:
    """Return the pooling from shape ``x`` to ``y``, both channels-last; None where oneDNN has only its
    reference kernel."""
    after = [
        (n - 1) * t + k - s - p for n, t, k, s, p in zip(y[2:], stride, kernel, x[2:], padding, strict=True)
    ]
    primitive = Primitive(
        "pooling_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["pooling_max"], channels_last(x, np.uint8),
        channels_last(y, np.uint8), stride, kernel, (0,) * len(kernel), padding, tuple(after),
    )  # fmt: skip
    return None if primitive.reference else primitive.execution({c.SRC: None, c.DST: None})


def _prepare(x: np.ndarray, attrs: Attrs) -> tuple[Execution, tuple[int, ...]] | None:
    """Return the pooling and the channels-last shape of its result."""
    shape = _op.infer(x, **attrs).shape
    execution = pool(x.shape, shape, **attrs)
    return None if execution is None else (execution, (shape[0], *shape[2:], shape[1]))


def channels_lie_last(x: np.ndarray) -> bool:
    """Whether ``x``, indexed ``[N, C, *S]``, is a view of a contiguous array ``[N, *S, C]``."""
    return bool(x.ndim > 2 and x.size and x.transpose(0, *range(2, x.ndim), 1).flags.c_contiguous)


def int8_max_pool(x: np.ndarray, *, kernel: Sizes, stride: Sizes, padding: Sizes) -> np.ndarray:
    """Compute ``int8_max_pool`` of a channels-last ``x``; decline where oneDNN has only its reference
    kernel."""
    attrs = {"kernel": kernel, "stride": stride, "padding": padding}
    prepared = _cache.get((x.shape, x.dtype, kernel, stride, padding), _prepare, x, attrs)
    if prepared is None:
        return NotImplemented
    ready, shape = prepared
    out = np.empty(shape, np.uint8)
    ready.bind(c.SRC, x)
    ready.bind(c.DST, out)
    ready()
    return out.transpose(0, x.ndim - 1, *range(1, x.ndim - 1))


__all__ = ["channels_lie_last", "int8_max_pool", "pool"]
