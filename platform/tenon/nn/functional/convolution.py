"""Convolution and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon.ops  # noqa: F401 - fills the op table
from tenon.engine.op import table as f
from tenon.engine.precision import runs_in
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn.functional.arguments import batched, check_kernel, per_axis
from tenon.ops.convolution import check_bias, extent
from tenon.tensors.methods.titles import titled

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: int | str | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    rank: int,
) -> Tensor:
    name = f"conv{rank}d"
    x, added = batched(x, rank, name)
    check_kernel(weight.raw.shape[2:])
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
    if not weight.raw.shape[1]:
        made = made[:, :0]  # torch's convolution of no channels has none either, so its bias no slope
    return made.squeeze(0) if added else made


def _named_padding(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], padding: str, name: str
) -> tuple[Any, Any]:
    """``x`` padded where the two sides differ, and the padding that remains for both sides."""
    if padding == "valid":
        return x, 0
    if padding != "same":
        raise ModuleValueError(f"Invalid padding string: {padding!r} ({name}); use 'same' or 'valid'.")
    if any(s != 1 for s in stride):
        raise ModuleValueError("padding='same' is not supported for strided convolutions")
    if x.raw.ndim != weight.raw.ndim:
        raise ShapeError(
            f"Expected {weight.raw.ndim}-dimensional input for {weight.raw.ndim}-dimensional weight"
            f" {list(weight.raw.shape)}, but got {x.raw.ndim}-dimensional input of size {list(x.raw.shape)}"
            f" instead ({name})"
        )
    totals = [extent(k, d) - 1 for k, d in zip(weight.raw.shape[2:], dilation, strict=True)]
    if any(t % 2 for t in totals):
        widths = ((0, 0), (0, 0), *((0, t % 2) for t in totals))
        x = f.pad(x, widths=widths, value=0)
    return x, tuple(t // 2 for t in totals)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of ``input[N, C, L]`` with ``weight[O, C / groups, K]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of ``input[N, C, H, W]`` with ``weight[O, C / groups, KH, KW]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of ``input[N, C, D, H, W]`` with ``weight[O, C / groups, KD, KH, KW]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 3)


@runs_in("lower")
def _transposed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    extra: int | Sequence[int],
    groups: int,
    dilation: int | Sequence[int],
    rank: int,
) -> Tensor:
    x, added = batched(x, rank, f"conv_transpose{rank}d")
    check_kernel(weight.raw.shape[2:])
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
    attrs = {"stride": stride, "dilation": dilation, "groups": int(groups)}
    if all(e < s for e, s in zip(extra, stride, strict=True)):
        made = f.conv_input_grad(x, weight, sizes=sizes, padding=padding, **attrs)
    else:
        made = _far_padded(x, weight, sizes, padding, extra, attrs)
    if bias is not None:
        check_bias(weight.raw, bias.raw, made.raw.shape[1])
        made = made + bias.reshape((-1, *(1,) * rank))
    return made.squeeze(0) if added else made


def _far_padded(
    x: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
    attrs: dict[str, Any],
) -> Tensor:
    """Transposed convolution whose output reaches as far as another window would: no plain convolution has
    this input's gradient, so all that windows reach is made, then cut and padded with zeros."""
    whole = tuple(n + 2 * p - e for n, p, e in zip(sizes, padding, extra, strict=True))
    made = f.conv_input_grad(x, weight, sizes=whole, padding=(0,) * len(whole), **attrs)
    made = made[(..., *(slice(p, p + n) for p, n in zip(padding, sizes, strict=True)))]
    missing = [(0, max(e - p, 0)) for p, e in zip(padding, extra, strict=True)]
    return f.pad(made, widths=((0, 0), (0, 0), *missing), value=0) if any(b for _, b in missing) else made


@titled("Convolution0")
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of ``conv1d``: ``weight[C, O / groups, K]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


@titled("Convolution0")
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of ``conv2d``: ``weight[C, O / groups, KH, KW]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


@titled("Convolution0")
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """The transpose of ``conv3d``: ``weight[C, O / groups, KD, KH, KW]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)
