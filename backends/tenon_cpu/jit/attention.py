"""Attention by generated code (``attention_code.py``): which arrays it serves, its calls, and bound ones."""

from __future__ import annotations

import array
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.extend import Kernel
from tenon_cpu.jit import attention_code as code
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.eager_ops.calls import FLOAT, WORTH
from tenon_cpu.jit.fusion.chains import bound
from tenon_cpu.onednn.primitives import address_of

#: The widest head, and the fewest queries: a tile of rows.
_WIDEST, _FEWEST = 256, 8
#: Multiplications that a second thread is worth being woken for.
_SHARED = 1 << 19
_FORWARD = ("query", "key", "value", "bias", "out")
_BACKWARD = ("g", "out", "query", "key", "value", "bias", "dquery", "dkey", "dvalue")


@functools.cache
def _lanes() -> int:
    """Floats of a vector."""
    return 16 if "+avx512f" in llvm.compiler().features else 8


def attends(query: Any, key: Any, value: Any) -> bool:
    """Whether the code below serves these, and is worth being compiled for them."""
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
        and math.prod(shape[:-1]) * other[-2] >= WORTH
        and llvm.available()
        and shape[-1] % _lanes() == 0
    )


def _four(x: Any) -> Any:
    """``x`` as batch, heads, rows and columns; the columns side by side."""
    if x.strides[-1] != 4 or any(s % 4 for s in x.strides):
        x = np.ascontiguousarray(x)
    return x if x.ndim == 4 else x[None]


class _Call:
    """One call's table, which holds its arrays."""

    def __init__(
        self, names: Sequence[str], arrays: Sequence[Any], scale: float, peak: Any, share: Any
    ) -> None:
        given = dict(zip(names, arrays, strict=True))
        query, key = given["query"], given["key"]
        self.flag = array.array("q", [0])
        words = [query.shape[0] * query.shape[1], self.flag.buffer_info()[0], query.shape[1]]
        words += [query.shape[2], key.shape[2], int(np.float32(scale).view(np.uint32))]
        words += [address_of(peak), address_of(share)]
        used = [given.get(name) for name in code.ARRAYS]
        words += [0 if a is None else address_of(a) for a in used]
        for a in used:
            if a is None:
                words += (0, 0, 0)
            else:
                batch, head, row, _ = a.strides
                words += (batch >> 2, head >> 2, row >> 2)
        self.table = array.array("q", words)
        self.held = (arrays, peak, share)
        self.work = math.prod(query.shape) * key.shape[2]

    @property
    def threads(self) -> int:
        """How many can use it."""
        return llvm.ALL if self.work >= _SHARED else 1

    def run(self, entry: llvm.Entry) -> bool:
        """Compute; whether all numbers are finite."""
        entry(self.table.buffer_info()[0], self.threads)
        return not self.flag[0]


def _bias(bias: Any, query: Any, key: Any, causal: bool) -> Any:
    """What is read of it, as rows for each head; None for what is known without it."""
    if bias is None or causal:
        return None
    wide = np.broadcast_to(bias, (*query.shape[:3], key.shape[2]))
    return wide if wide.strides[3] == 4 and bias.dtype is FLOAT else np.ascontiguousarray(wide, np.float32)


def _forward(
    query: Any, key: Any, value: Any, bias: Any, scale: float, causal: bool, outs: Sequence[Any]
) -> tuple[_Call, llvm.Entry]:
    query, key, value = _four(query), _four(key), _four(value)
    bias = _bias(bias, query, key, causal)
    out, peak, share = outs
    entry = llvm.load(code.forward(query.shape[3], _lanes(), causal, bias is not None))
    return _Call(_FORWARD, (query, key, value, bias, _four(out)), scale, peak, share), entry


def _backward(
    ins: Sequence[Any], scale: float, causal: bool, outs: Sequence[Any]
) -> tuple[_Call, llvm.Entry]:
    *arrays, bias, peak, share = ins
    g, out, query, key, value = (_four(a) for a in arrays)
    bias = _bias(bias, query, key, causal)
    entry = llvm.load(code.backward(query.shape[3], _lanes(), causal, bias is not None))
    arrays = [g, out, query, key, value, bias, *(_four(a) for a in outs)]
    return _Call(_BACKWARD, arrays, scale, peak, share), entry


def attention(query: Any, key: Any, value: Any, bias: Any, *, scale: float, causal: bool = False) -> Any:
    """A block of queries at a time; numbers that are not finite, by the parts."""
    outs = np.empty(query.shape, FLOAT), *(np.empty(query.shape[:-1], FLOAT) for _ in range(2))
    call, entry = _forward(query, key, value, bias, scale, causal, outs)
    return outs if call.run(entry) else NotImplemented


def attention_grad(
    g: Any, out: Any, query: Any, key: Any, value: Any, bias: Any, peak: Any, share: Any,
    *, scale: float, causal: bool = False,
) -> Any:  # fmt: skip
    """All three gradients, whichever are needed."""
    outs = tuple(np.empty(x.shape, FLOAT) for x in (query, key, value))
    call, entry = _backward((g, out, query, key, value, bias, peak, share), scale, causal, outs)
    return outs if call.run(entry) else NotImplemented


def prepare(
    kernel: Kernel, name: str, ins: Sequence[Any], attrs: Mapping[str, Any], outs: Sequence[Any]
) -> Callable[[], None] | None:
    """A call bound to its arrays; None for other ops, and for arrays that the code does not serve."""
    if name not in ("attention", "attention_grad") or not all(o.flags.c_contiguous for o in outs):
        return None
    query, key, value = ins[:3] if name == "attention" else ins[2:5]
    read = [a for a in ins if a is not None and a.ndim > 2]
    if not attends(query, key, value) or any(a.strides[-1] != 4 or a.dtype is not FLOAT for a in read):
        return None
    scale, causal = attrs["scale"], attrs.get("causal", False)
    if name == "attention":
        room = [np.empty(query.shape[:-1], FLOAT) for _ in range(3 - len(outs))]
        call, entry = _forward(*ins, scale, causal, (*outs, *room))  # type: ignore[misc]
    else:
        call, entry = _backward(ins, scale, causal, outs)
    walk = bound(entry, np.frombuffer(call.table, np.int64), call.threads, call)
    flag = call.flag

    def run() -> None:
        walk()
        if flag[0]:
            flag[0] = 0
            for made, target in zip(kernel(*ins, **attrs), outs, strict=False):
                np.copyto(target, made)

    return run


__all__ = ["attends", "attention", "attention_grad", "prepare"]
