"""Convolution and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.node_names import titled
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn.functional.arguments import PerAxis, batched, check_kernel, per_axis
from tenon.ops.convolution_checks import check_bias, extent
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.engine.types import Attrs
    from tenon.tensors.tensor import Tensor


def _conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis | str,
    dilation: PerAxis,
    groups: int,
    rank: int,
) -> Tensor:
    """Return the convolution of ``x`` over its last ``rank`` axes."""
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
        "groups": index(groups),
    }
    result = f.conv(x, weight, **attrs) if bias is None else f.convolution(x, weight, bias, **attrs)
    if not weight.raw.shape[1]:
        result = result[:, :0]  # PyTorch's output has no channels either, so the bias gets no gradient
    return result.squeeze(0) if added else result


def _named_padding(
    x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], padding: str, name: str
) -> tuple[Tensor, PerAxis]:
    """Pad ``x`` where its two sides need different widths; return it and the padding left for both sides."""
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
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerAxis = 1,
    padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of ``input[N, C, L]`` with ``weight[O, C / groups, K]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 1)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerAxis = 1,
    padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of ``input[N, C, H, W]`` with ``weight[O, C / groups, KH, KW]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 2)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerAxis = 1,
    padding: PerAxis | str = 0, dilation: PerAxis = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of ``input[N, C, D, H, W]`` with ``weight[O, C / groups, KD, KH, KW]``."""
    return _conv(input, weight, bias, stride, padding, dilation, groups, 3)


@runs_in("lower")
def _transposed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: PerAxis,
    padding: PerAxis,
    extra: PerAxis,
    groups: int,
    dilation: PerAxis,
    rank: int,
) -> Tensor:
    """Return the transposed convolution of ``x``; ``extra`` is the output padding."""
    if weight.raw.ndim != rank + 2:
        raise ShapeError(
            f"conv_transpose{rank}d: weight should have {rank + 2} dimensions, got {list(weight.raw.shape)}"
        )
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
    attrs = {"stride": stride, "dilation": dilation, "groups": index(groups)}
    if all(e < s for e, s in zip(extra, stride, strict=True)):
        result = f.conv_input_grad(x, weight, sizes=sizes, padding=padding, **attrs)
    else:
        result = _with_large_output_padding(x, weight, sizes, padding, extra, attrs)
    if bias is not None:
        check_bias(weight.raw, bias.raw, result.raw.shape[1])
        result = result + bias.reshape((-1, *(1,) * rank))
    return result.squeeze(0) if added else result


def _with_large_output_padding(
    x: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    padding: Sequence[int],
    extra: Sequence[int],
    attrs: Attrs,
) -> Tensor:
    """Return a transposed convolution whose output padding is at least the stride.

    The ops do not accept this, as no convolution has an input gradient of such sizes: one more window would
    fit. So compute the part that the windows cover, without padding, then crop it and append zeros.
    """
    covered = tuple(n + 2 * p - e for n, p, e in zip(sizes, padding, extra, strict=True))
    result = f.conv_input_grad(x, weight, sizes=covered, padding=(0,) * len(covered), **attrs)
    result = result[(..., *(slice(p, p + n) for p, n in zip(padding, sizes, strict=True)))]
    missing = [(0, max(e - p, 0)) for p, e in zip(padding, extra, strict=True)]
    if any(after for _, after in missing):
        result = f.pad(result, widths=((0, 0), (0, 0), *missing), value=0)
    return result


@titled("Convolution0")
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerAxis = 1, padding: PerAxis = 0,
    output_padding: PerAxis = 0, groups: int = 1, dilation: PerAxis = 1,
) -> Tensor:  # fmt: skip
    """The transpose of ``conv1d``: ``weight[C, O / groups, K]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


@titled("Convolution0")
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerAxis = 1, padding: PerAxis = 0,
    output_padding: PerAxis = 0, groups: int = 1, dilation: PerAxis = 1,
) -> Tensor:  # fmt: skip
    """The transpose of ``conv2d``: ``weight[C, O / groups, KH, KW]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


@titled("Convolution0")
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: PerAxis = 1, padding: PerAxis = 0,
    output_padding: PerAxis = 0, groups: int = 1, dilation: PerAxis = 1,
) -> Tensor:  # fmt: skip
    """The transpose of ``conv3d``: ``weight[C, O / groups, KD, KH, KW]``."""
    return _transposed(input, weight, bias, stride, padding, output_padding, groups, dilation, 3)
