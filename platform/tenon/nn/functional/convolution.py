"""Convolution, its transpose, padding and patches."""

from __future__ import annotations

import math
from typing import Any

import tenon.ops  # noqa: F401 - a table without ops finds nothing
from tenon.core.op import table as f
from tenon.core.precision import runs_in
from tenon.errors import ModuleValueError, ShapeError, UnsupportedError
from tenon.nn.functional.arguments import batched, per_axis
from tenon.ops.convolution import check_bias, extent


def _conv(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int, rank: int
) -> Any:
    name = f"conv{rank}d"
    x, added = batched(x, rank, name)
    stride, dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    if isinstance(padding, str):
        x, padding = _named_padding(x, weight, stride, dilation, padding, name)
    attrs = {
        "stride": stride,
        "padding": per_axis(padding, rank, "padding"),
        "dilation": dilation,
        "groups": int(groups),
    }
    made = f.conv(x, weight, **attrs) if bias is None else f.convolution(x, weight, bias, **attrs)
    return made.squeeze(0) if added else made


def _named_padding(
    x: Any, weight: Any, stride: Any, dilation: Any, padding: str, name: str
) -> tuple[Any, Any]:
    """``x`` padded where the two sides differ, and the padding that remains for both sides."""
    if padding == "valid":
        return x, 0
    if padding != "same":
        raise ModuleValueError(f"Invalid padding string: {padding!r} ({name}); use 'same' or 'valid'.")
    if any(s != 1 for s in stride):
        raise ModuleValueError("padding='same' is not supported for strided convolutions")
    totals = [extent(k, d) - 1 for k, d in zip(weight.raw.shape[2:], dilation, strict=True)]
    if any(t % 2 for t in totals):
        widths = ((0, 0), (0, 0), *((0, t % 2) for t in totals))
        x = f.pad(x, widths=widths, value=0)
    return x, tuple(t // 2 for t in totals)


def conv1d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of ``input[N, C, L]`` with ``weight[O, C / groups, K]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of ``input[N, C, H, W]`` with ``weight[O, C / groups, KH, KW]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """Cross-correlation of ``input[N, C, D, H, W]`` with ``weight[O, C / groups, KD, KH, KW]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 3)


@runs_in("lower")
def _transposed(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    extra: Any,
    groups: int,
    dilation: Any,
    rank: int,
) -> Any:
    x, added = batched(x, rank, f"conv_transpose{rank}d")
    stride, dilation = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    padding, extra = per_axis(padding, rank, "padding"), per_axis(extra, rank, "output_padding")
    for e, s, d in zip(extra, stride, dilation, strict=True):
        if e and e >= max(s, d):
            raise ShapeError(
                "output padding must be smaller than either stride or dilation, but got output_padding:"
                f" {list(extra)} stride: {list(stride)} dilation: {list(dilation)}"
            )
    sizes = tuple(
        (n - 1) * s - 2 * p + extent(k, d) + e
        for n, s, p, k, d, e in zip(
            x.raw.shape[2:], stride, padding, weight.raw.shape[2:], dilation, extra, strict=True
        )
    )
    made = f.conv_input_grad(
        x, weight, sizes=sizes, stride=stride, padding=padding, dilation=dilation, groups=int(groups)
    )
    if bias is not None:
        check_bias(weight.raw, bias.raw, made.raw.shape[1])
        made = made + bias.reshape((-1, *(1,) * rank))
    return made.squeeze(0) if added else made


def conv_transpose1d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The transpose of ``conv1d``: ``weight[C, O / groups, K]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


def conv_transpose2d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The transpose of ``conv2d``: ``weight[C, O / groups, KH, KW]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


def conv_transpose3d(
    input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
    groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The transpose of ``conv3d``: ``weight[C, O / groups, KD, KH, KW]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)


def pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """``input`` with ``pad = (before, after)`` per axis, **last axis first**.

    ``mode`` is "constant" (filled with ``value``), "reflect", "replicate" or "circular".
    """
    widths = [int(p) for p in pad]
    rank = input.raw.ndim
    if len(widths) % 2 or len(widths) > 2 * rank:
        raise ShapeError(
            f"Padding length should be an even number of at most twice the input's dimensions: got {widths}"
            f" for {rank} axes"
        )
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if mode == "constant":
        whole = [(0, 0)] * (rank - len(pairs)) + pairs[::-1]
        return f.pad(input, widths=tuple(whole), value=0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise UnsupportedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise ModuleValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if rank - len(pairs) not in (1, 2):
        raise UnsupportedError(
            f"Padding size {len(widths)} is not supported for {rank}D input tensor.\nSupported combinations"
            " for non-constant padding:\n  - 2D or 3D input: padding size = 2 (pads last dimension)\n  - 3D"
            " or 4D input: padding size = 4 (pads last 2 dimensions)\n  - 4D or 5D input: padding size = 6"
            " (pads last 3 dimensions)"
        )
    exact = mode == "replicate" or (mode == "reflect" and len(pairs) < 3)
    return (_pad_in_float32 if exact else _pad_axes)(input, pairs[::-1], mode)


def _pad_axes(x: Any, pairs: list[tuple[int, int]], mode: str) -> Any:
    """The last axes of ``x`` padded."""
    for axis, (before, after) in enumerate(pairs, x.raw.ndim - len(pairs)):
        x = _pad_axis(x, axis, before, after, mode)
    return x if any(p > 0 for pair in pairs for p in pair) else x.clone()  # never a view, as in torch


#: What torch's autocast computes in float32.
_pad_in_float32 = runs_in("float32", cuda="given")(_pad_axes)


def _pad_axis(x: Any, axis: int, before: int, after: int, mode: str) -> Any:
    if x.raw.shape[axis] + before + after < 0:
        raise ShapeError(
            f"Negative padding ({before}, {after}) takes away more than there is at dimension {axis} of "
            f"input {list(x.raw.shape)}."
        )
    if before < 0 or after < 0:
        keep = slice(max(-before, 0), x.raw.shape[axis] - max(-after, 0))
        x = f.slice_axis(x, axis=axis, start=keep.start, stop=keep.stop)
        before, after = max(before, 0), max(after, 0)
    size = x.raw.shape[axis]
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    if limit is not None and max(before, after) > limit:
        if mode == "circular":
            raise ShapeError(
                f"Padding value causes wrapping around more than once. ({before}, {after}) at size {size}"
            )
        raise ShapeError(
            "Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(x.raw.shape)}"
        )
    if before == after == 0:
        return x
    parts = [x]
    if before:
        parts.insert(0, _edge(x, axis, before, mode, True))
    if after:
        parts.append(_edge(x, axis, after, mode, False))
    return f.cat(*parts, axis=axis)


def _edge(x: Any, axis: int, width: int, mode: str, first: bool) -> Any:
    size = x.raw.shape[axis]
    if mode == "replicate":
        start = 0 if first else size - 1
        one = f.slice_axis(x, axis=axis, start=start, stop=start + 1)
        return f.expand(one, shape=(*x.raw.shape[:axis], width, *x.raw.shape[axis + 1 :]))
    if mode == "circular":
        start = size - width if first else 0
        return f.slice_axis(x, axis=axis, start=start, stop=start + width)
    start = 1 if first else size - 1 - width
    return f.flip(f.slice_axis(x, axis=axis, start=start, stop=start + width), axes=(axis,))


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Patches of ``input[N, C, H, W]`` as columns ``[N, C * KH * KW, places]``."""
    x, added = batched(input, 2, "unfold")
    kernel, dilation = per_axis(kernel_size, 2, "kernel_size"), per_axis(dilation, 2, "dilation")
    pads, stride = per_axis(padding, 2, "padding"), per_axis(stride, 2, "stride")
    x = f.pad(x, widths=((0, 0), (0, 0), *((p, p) for p in pads)), value=0)
    for axis, (k, d, s) in enumerate(zip(kernel, dilation, stride, strict=True), 2):
        windows = f.unfold_axis(x, axis=axis, size=extent(k, d), step=s)
        x = windows[..., ::d] if d > 1 else windows
    rows, columns = x.raw.shape[2:4]
    made = x.permute(0, 1, 4, 5, 2, 3).reshape(
        x.raw.shape[0], x.raw.shape[1] * math.prod(kernel), rows * columns
    )
    return made.squeeze(0) if added else made
