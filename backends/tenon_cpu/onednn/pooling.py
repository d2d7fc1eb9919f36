"""Pooling with oneDNN: all kinds in compiled programs, max pooling with overlapping windows in eager mode.

oneDNN's maximum drops NaN and cannot return minus infinity. tenon propagates NaN, so the arrays are searched
for NaN (a twentieth of PyTorch's time) and the NumPy kernel computes where there is any.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from tenon.extend import Attr, Attrs, Operand, Thunk
from tenon.ops import max_pool as _max_pool
from tenon.ops import max_pool_grad as _max_pool_grad
from tenon_cpu.onednn import blocked_pooling
from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.chain import Chain, shared
from tenon_cpu.onednn.descriptors import representable
from tenon_cpu.onednn.layouts import PLAIN, Assigned, Layout, reorder
from tenon_cpu.onednn.primitives import Execution, Memory, Primitive
from tenon_cpu.onednn.runtime import ALIGNMENT, Buffer

_FLOAT = np.dtype(np.float32)
_LOWEST = np.finfo(np.float32).min


class Windows:
    """The geometry of a pooling from shape ``x`` to shape ``y``, and its primitives."""

    def __init__(
        self, x: tuple[int, ...], y: tuple[int, ...], attrs: Attrs, layouts: tuple[Layout, Layout]
    ) -> None:
        kernel, stride, before = (tuple(attrs[name]) for name in ("kernel", "stride", "padding"))
        dilation = tuple(attrs.get("dilation") or (1,) * len(kernel))
        self.after = tuple(
            (n - 1) * t + d * (k - 1) + 1 - s - p
            for n, t, d, k, s, p in zip(y[2:], stride, dilation, kernel, x[2:], before, strict=True)
        )
        self.before = before
        self.geometry = (stride, kernel, tuple(d - 1 for d in dilation), before, self.after)
        self.x, self.y = layouts[0].descriptor(x, _FLOAT), layouts[1].descriptor(y, _FLOAT)

    def forward(self, algorithm: str, *, training: bool) -> Primitive | None:
        """Return the primitive ``SRC`` -> ``DST``, and ``WORKSPACE`` if ``training`` by maximum."""
        kind = c.FORWARD_TRAINING if training else c.FORWARD_INFERENCE
        return _usable(
            Primitive("pooling_forward", kind, c.ALGORITHMS[algorithm], self.x, self.y, *self.geometry)
        )

    def backward(self, algorithm: str, hint: Primitive) -> Primitive | None:
        """Return the primitive ``DIFF_DST``, ``WORKSPACE`` -> ``DIFF_SRC``."""
        return _usable(
            Primitive("pooling_backward", c.ALGORITHMS[algorithm], self.x, self.y, *self.geometry, hint)
        )


def _usable(primitive: Primitive) -> Primitive | None:
    return None if primitive.reference else primitive


def _unvectorized(primitive: Primitive) -> bool:
    """Whether the implementation is plain C++, as for plain arrays without AVX-512; tenon's compiled loops
    are eight times as fast."""
    return "simple" in primitive.implementation


def _takes(*arrays: np.ndarray) -> bool:
    return all(a.dtype == _FLOAT and representable(a) and a.flags.c_contiguous for a in arrays)


_cache = Cache("pooling")


def _key(kind: str, x: np.ndarray, attrs: Attrs) -> tuple[Hashable, ...]:
    return kind, x.shape, *((name, attrs[name]) for name in sorted(attrs))


def _is_2x2(attrs: Attrs) -> bool:
    """Whether windows are 2 by 2 with stride 2, for which compiled loops and NumPy are as fast on plain
    arrays."""
    return attrs["kernel"] == attrs["stride"] == (2, 2) and not any(attrs["padding"])


def overlapping(x: np.ndarray, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> bool:
    """Whether windows have two or three axes and are not those of ``_is_2x2``, and oneDNN can read
    ``x``."""
    quarters = _is_2x2({"kernel": kernel, "stride": stride, "padding": padding})
    return x.ndim > 3 and not quarters and _takes(x)


def overlapping_grad(
    g: np.ndarray,
    x: np.ndarray,
    out: np.ndarray,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
) -> bool:
    """Whether ``overlapping`` is true and oneDNN can read ``g`` and ``out`` too."""
    return g.shape == out.shape and overlapping(x, kernel, stride, padding) and _takes(g, out)


def max_pool(x: np.ndarray, **attrs: Attr) -> np.ndarray:
    """Compute ``max_pool`` with overlapping windows; 3.6 times as fast as NumPy (3 by 3, stride 2)."""
    ready = _cache.get(_key("max", x, attrs), _forward_chain, x, attrs)
    if ready is None:
        return NotImplemented
    chain, shape = ready
    out = np.empty(shape, _FLOAT)
    chain(x, out)
    return _max_pool.forward(np, x, **attrs) if _may_be_wrong(x, out) else out


def _forward_chain(x: np.ndarray, attrs: Attrs) -> tuple[Chain, tuple[int, ...]] | None:
    shape = _max_pool.infer(x, **attrs).shape
    windows = Windows(x.shape, shape, attrs, (PLAIN, PLAIN))
    primitive = windows.forward("pooling_max", training=False)
    return (
        None
        if primitive is None or _unvectorized(primitive)
        else (Chain(primitive, {c.SRC: windows.x}, {c.DST: windows.y}), shape)
    )


def _may_be_wrong(x: np.ndarray, out: np.ndarray) -> bool:
    """Whether oneDNN's maximum may be wrong: NaN in the input, or the lowest finite number in the result."""
    return bool(np.isnan(x.max()) or out.min() == _LOWEST)


def max_pool_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray, **attrs: Attr) -> np.ndarray:
    """Compute ``max_pool_grad`` with overlapping windows; 11 times as fast as NumPy."""
    ready = _cache.get(_key("max grad", x, attrs), _backward_pair, x, g, attrs)
    if ready is None or np.isnan(out.max()) or out.min() <= _LOWEST:
        return NotImplemented
    forward, backward, size = ready
    dx, recomputed, workspace = np.empty(x.shape, _FLOAT), np.empty(g.shape, _FLOAT), Buffer(size)
    bound: tuple[tuple[Execution, dict[int, Memory]], ...] = (
        (forward, {c.SRC: x, c.DST: recomputed, c.WORKSPACE: workspace}),
        (backward, {c.DIFF_DST: g, c.WORKSPACE: workspace, c.DIFF_SRC: dx}),
    )
    for execution, arrays in bound:
        for position, array in arrays.items():
            execution.bind(position, array)
        execution()
        execution.release()
    return dx


def _backward_pair(x: np.ndarray, g: np.ndarray, attrs: Attrs) -> tuple[Execution, Execution, int] | None:
    windows = Windows(x.shape, g.shape, attrs, (PLAIN, PLAIN))
    hint = windows.forward("pooling_max", training=True)
    gradient = None if hint is None else windows.backward("pooling_max", hint)
    if hint is None or gradient is None or _unvectorized(gradient):
        return None
    forward = hint.execution(dict.fromkeys((c.SRC, c.DST, c.WORKSPACE)))
    backward = gradient.execution(dict.fromkeys((c.DIFF_DST, c.WORKSPACE, c.DIFF_SRC)))
    return forward, backward, hint.layout(c.WORKSPACE).size


def prepare_max_pool(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``max_pool``."""
    (x,), (out,) = ins, outs
    if not _takes(x, out) or (layouts.all_plain and _is_2x2(attrs)):
        return None
    pair = (layouts.inputs[0], layouts.outputs[0])
    if blocked_pooling.takes(x, out, attrs, *pair):
        return blocked_pooling.max_pool(x, out, pair[0].block)
    windows = Windows(x.shape, out.shape, attrs, pair)
    primitive = windows.forward("pooling_max", training=False)
    if primitive is None:
        return None
    compute = Chain(primitive, {c.SRC: windows.x}, {c.DST: windows.y}).bound(x, out)
    plain = _OnPlainCopies([(x, layouts.inputs[0])], (out, layouts.outputs[0]))

    def run() -> None:
        compute()
        if _may_be_wrong(x, out):
            plain(lambda copy: _max_pool.forward(np, copy, **attrs))

    return run


def prepare_max_pool_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``max_pool_grad``; it repeats the forward pass, which fills oneDNN's workspace."""
    (g, x, out), (dx,) = ins, outs
    if not _takes(g, x, out, dx) or layouts.inputs[0] != layouts.inputs[2]:
        return None
    if layouts.all_plain and _is_2x2(attrs):
        return None
    if blocked_pooling.takes(x, out, attrs, *layouts.inputs, *layouts.outputs):
        return blocked_pooling.max_pool_grad(g, x, out, dx, layouts.inputs[0].block)
    windows = Windows(x.shape, out.shape, attrs, (layouts.inputs[1], layouts.inputs[0]))
    hint = windows.forward("pooling_max", training=True)
    gradient = None if hint is None else windows.backward("pooling_max", hint)
    if hint is None or gradient is None or layouts.outputs[0] != layouts.inputs[1]:
        return None
    compute = _MaxGradient(hint, gradient, x, g, dx)
    plain = _OnPlainCopies(list(zip(ins, layouts.inputs, strict=True)), (dx, layouts.outputs[0]))

    def run() -> None:
        if np.isnan(out.max()) or out.min() <= _LOWEST:
            plain(lambda *arrays: _max_pool_grad.forward(np, *arrays, **attrs))
            return
        compute()

    return run


class _MaxGradient:
    """The gradient of max pooling: ``hint`` fills the workspace, ``gradient`` scatters the gradient by it.

    The workspace and the recomputed maximum are in the memory that a thread's chains share. ``dx`` may share
    the memory of ``x``, which is not read any more when ``dx`` is written.
    """

    def __init__(
        self, hint: Primitive, gradient: Primitive, x: np.ndarray, g: np.ndarray, dx: np.ndarray
    ) -> None:
        offset, notes = hint.layout(c.DST).size, hint.layout(c.WORKSPACE).size
        offset += -offset % ALIGNMENT
        self.size, self._base = offset + notes, 0
        self._note = hint.execution({c.SRC: x, c.DST: None, c.WORKSPACE: None}, own_scratch=True)
        self._send = gradient.execution({c.DIFF_DST: g, c.WORKSPACE: None, c.DIFF_SRC: dx}, own_scratch=True)
        self._arguments = [
            (self._note, c.DST, 0),
            (self._note, c.WORKSPACE, offset),
            (self._send, c.WORKSPACE, offset),
        ]

    def __call__(self) -> None:
        memory = shared.at_least(self.size)
        if memory.address != self._base:
            for execution, position, offset in self._arguments:
                execution.point(position, memory.address + offset)
            self._base = memory.address if memory is shared.buffer else 0
        self._note()
        self._send()


class _OnPlainCopies:
    """Runs a computation on plain copies of arrays, for the rare case in which the fast kernel is wrong."""

    def __init__(self, ins: list[tuple[np.ndarray, Layout]], out: tuple[np.ndarray, Layout]) -> None:
        self.ins, self.out = ins, out

    def __call__(self, compute: Callable[..., np.ndarray]) -> None:
        copies = []
        for array, layout in self.ins:
            copy = np.empty(array.shape, array.dtype)
            reorder(array, layout, copy, PLAIN)()
            copies.append(copy)
        result = np.ascontiguousarray(compute(*copies))
        reorder(result, PLAIN, *self.out)()


def _average(attrs: Attrs, windows: Windows) -> str | None:
    """Return the algorithm of an average; None where oneDNN's divisor differs, as for windows that extend
    beyond the padding."""
    beyond = any(a > b for a, b in zip(windows.after, windows.before, strict=True))
    if attrs.get("divisor") is not None:
        return None
    if not attrs.get("include_pad", True):
        return "pooling_avg_exclude_padding"
    return None if beyond else "pooling_avg_include_padding"


def prepare_avg_pool(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``avg_pool``."""
    (x,), (out,) = ins, outs
    if not _takes(x, out):
        return None
    windows = Windows(x.shape, out.shape, attrs, (layouts.inputs[0], layouts.outputs[0]))
    algorithm = _average(attrs, windows)
    primitive = None if algorithm is None else windows.forward(algorithm, training=False)
    return (
        None if primitive is None else Chain(primitive, {c.SRC: windows.x}, {c.DST: windows.y}).bound(x, out)
    )


def prepare_avg_pool_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``avg_pool_grad``."""
    (g,), (dx,) = ins, outs
    if not _takes(g, dx):
        return None
    windows = Windows(dx.shape, g.shape, attrs, (layouts.outputs[0], layouts.inputs[0]))
    algorithm = _average(attrs, windows)
    hint = None if algorithm is None else windows.forward(algorithm, training=True)
    gradient = None if hint is None or algorithm is None else windows.backward(algorithm, hint)
    if gradient is None:
        return None
    return Chain(gradient, {c.DIFF_DST: windows.y}, {c.DIFF_SRC: windows.x}).bound(g, dx)


def _equal_windows(sizes: Sequence[int], shape: Sequence[int]) -> Attrs | None:
    """Return the attributes of a plain pooling that equals the adaptive one; None if its windows differ in
    size."""
    if not all(sizes) or any(s % n for s, n in zip(shape, sizes, strict=True)):
        return None
    kernel = tuple(s // n for s, n in zip(shape, sizes, strict=True))
    return {"kernel": kernel, "stride": kernel, "padding": (0,) * len(kernel)}


def prepare_adaptive(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``adaptive_avg_pool``."""
    windows = _equal_windows(attrs["sizes"], ins[0].shape[2:])
    return None if windows is None else prepare_avg_pool(ins, windows, outs, layouts)


def prepare_adaptive_grad(
    ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray], layouts: Assigned
) -> Thunk | None:
    """Prepare ``adaptive_avg_pool_grad``."""
    windows = _equal_windows(ins[0].shape[2:], outs[0].shape[2:])
    return None if windows is None else prepare_avg_pool_grad(ins, windows, outs, layouts)


PREPARE = {
    "max_pool": prepare_max_pool,
    "max_pool_grad": prepare_max_pool_grad,
    "avg_pool": prepare_avg_pool,
    "avg_pool_grad": prepare_avg_pool_grad,
    "adaptive_avg_pool": prepare_adaptive,
    "adaptive_avg_pool_grad": prepare_adaptive_grad,
}
