"""Attention by generated code (``attention_code.py``): which arrays it supports, eager calls, bound
kernels."""

from __future__ import annotations

import array
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon.extend import Attr, Kernel
from tenon_cpu.jit import attention_code as code
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, MIN_ELEMENTS
from tenon_cpu.jit.fusion.chains import Input, bound
from tenon_cpu.onednn.primitives import address_of

#: The widest head, and the fewest queries: a tile of rows.
_WIDEST, _FEWEST = 256, 8
#: Multiplications from which a second thread pays.
_SHARED = 1 << 19
_FORWARD = ("query", "key", "value", "bias", "out")
_BACKWARD = ("g", "out", "query", "key", "value", "bias", "dquery", "dkey", "dvalue")


@functools.cache
def _lanes() -> int:
    """The number of floats of a vector."""
    return 16 if "+avx512f" in llvm.compiler().features else 8


def is_supported(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> bool:
    """Whether the generated code supports these arrays, and they are large enough to compile it."""
    shape, other = query.shape, key.shape
    return bool(
        query.dtype is FLOAT
        and key.dtype is FLOAT
        and value.dtype is FLOAT
        and 2 < len(shape) < 5
        and shape[:-2] == other[:-2]
        and other == value.shape
        and shape[-1] == other[-1]
        and shape[-2] >= _FEWEST
        and shape[-1] <= _WIDEST
        and math.prod(shape[:-1]) * other[-2] >= MIN_ELEMENTS
        and llvm.available()
        and shape[-1] % _lanes() == 0
    )


def _four(x: np.ndarray) -> np.ndarray:
    """``x`` with the axes batch, heads, rows and columns, rows without gaps."""
    if x.strides[-1] != 4 or any(s % 4 for s in x.strides):
        x = np.ascontiguousarray(x)
    return x if x.ndim == 4 else x[None]


class _Call:
    """One call's table, which keeps its arrays alive."""

    def __init__(
        self, arrays: Mapping[str, np.ndarray | None], scale: float, peak: np.ndarray, share: np.ndarray
    ) -> None:
        query, key = arrays["query"], arrays["key"]
        assert query is not None and key is not None
        self.flag = array.array("q", [0])
        words = [query.shape[0] * query.shape[1], self.flag.buffer_info()[0], query.shape[1]]
        words += [query.shape[2], key.shape[2], int(np.float32(scale).view(np.uint32))]
        words += [address_of(peak), address_of(share)]
        used = [arrays.get(name) for name in code.ARRAYS]
        words += [0 if a is None else address_of(a) for a in used]
        for a in used:
            if a is None:
                words += (0, 0, 0)
            else:
                batch, head, row, _ = a.strides
                words += (batch >> 2, head >> 2, row >> 2)
        self.table = array.array("q", words)
        self.references = (arrays, peak, share)
        self.work = math.prod(query.shape) * key.shape[2]

    @property
    def threads(self) -> int:
        """The number of threads to use."""
        return llvm.ALL if self.work >= _SHARED else 1

    def run(self, entry: llvm.Entry) -> bool:
        """Compute; return whether all numbers are finite."""
        entry(self.table.buffer_info()[0], self.threads)
        return not self.flag[0]


def _bias(bias: np.ndarray | None, query: np.ndarray, key: np.ndarray, causal: bool) -> np.ndarray | None:
    """The bias of float32, broadcast to all heads; None if the code is causal and needs none."""
    if bias is None or causal:
        return None
    wide = np.broadcast_to(bias, (*query.shape[:3], key.shape[2]))
    return wide if wide.strides[3] == 4 and bias.dtype is FLOAT else np.ascontiguousarray(wide, np.float32)


def _forward(
    ins: Sequence[np.ndarray | None], scale: float, causal: bool, outs: Sequence[np.ndarray]
) -> tuple[_Call, llvm.Entry]:
    """The call for ``query, key, value, bias`` and ``out, peak, share``, and its entry."""
    query, key, value = (_four(a) for a in ins[:3] if a is not None)
    bias = _bias(ins[3], query, key, causal)
    out, peak, share = outs
    entry = llvm.load(code.forward(query.shape[3], _lanes(), causal, bias is not None))
    arrays = dict(zip(_FORWARD, (query, key, value, bias, _four(out)), strict=True))
    return _Call(arrays, scale, peak, share), entry


def _backward(
    ins: Sequence[np.ndarray | None], scale: float, causal: bool, outs: Sequence[np.ndarray]
) -> tuple[_Call, llvm.Entry]:
    """The call for ``g, out, query, key, value, bias, peak, share`` and the gradients, and its entry."""
    g, out, query, key, value = (_four(a) for a in ins[:5] if a is not None)
    bias, (peak, share) = _bias(ins[5], query, key, causal), (a for a in ins[6:] if a is not None)
    entry = llvm.load(code.backward(query.shape[3], _lanes(), causal, bias is not None))
    gradients = (_four(a) for a in outs)
    arrays = dict(zip(_BACKWARD, (g, out, query, key, value, bias, *gradients), strict=True))
    return _Call(arrays, scale, peak, share), entry


def attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, bias: np.ndarray | None,
    *, scale: float, causal: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Result, row maxima and reciprocals of row sums; declines if a number is not finite."""
    outs = np.empty(query.shape, FLOAT), *(np.empty(query.shape[:-1], FLOAT) for _ in range(2))
    call, entry = _forward((query, key, value, bias), scale, causal, outs)
    if not call.run(entry):
        return NotImplemented
    return outs


def attention_grad(
    g: np.ndarray, out: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray,
    bias: np.ndarray | None, peak: np.ndarray, share: np.ndarray, *, scale: float, causal: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """The gradients of query, key and value, all three; declines if a number is not finite."""
    outs = tuple(np.empty(x.shape, FLOAT) for x in (query, key, value))
    call, entry = _backward((g, out, query, key, value, bias, peak, share), scale, causal, outs)
    if not call.run(entry):
        return NotImplemented
    return outs


def prepare(
    kernel: Kernel, name: str, ins: Sequence[Input], attrs: Mapping[str, Attr], outs: Sequence[np.ndarray]
) -> Callable[[], None] | None:
    """A kernel bound to its arrays; None for other ops, and for arrays that the code does not support."""
    if name not in ("attention", "attention_grad") or not all(o.flags.c_contiguous for o in outs):
        return None
    arrays = [a if isinstance(a, np.ndarray) else None for a in ins]
    query, key, value = arrays[:3] if name == "attention" else arrays[2:5]
    if query is None or key is None or value is None or not is_supported(query, key, value):
        return None
    if any(a.strides[-1] != 4 or a.dtype is not FLOAT for a in arrays if a is not None and a.ndim > 2):
        return None
    scale, causal = attrs["scale"], attrs.get("causal", False)
    if name == "attention":
        room = [np.empty(query.shape[:-1], FLOAT) for _ in range(3 - len(outs))]
        call, entry = _forward(arrays, scale, causal, (*outs, *room))
    else:
        call, entry = _backward(arrays, scale, causal, outs)
    walk = bound(entry, np.frombuffer(call.table, np.int64), call.threads, call)
    flag = call.flag

    def run() -> None:
        walk()
        if flag[0]:
            flag[0] = 0
            for result, target in zip(kernel(*ins, **attrs), outs, strict=False):
                np.copyto(target, result)

    return run


__all__ = ["attention", "attention_grad", "is_supported", "prepare"]
