"""Pooling in one, two and three spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import tenon.ops  # noqa: F401 - fills the op table
from tenon.dtypes import uint8
from tenon.engine.op import table as f
from tenon.errors import ModuleValueError, ShapeError
from tenon.nn.functional.arguments import per_axis, refuse_integers
from tenon.tensors.formats import channels_last_3d, contiguous, entering, is_contiguous, like
from tenon.tensors.methods.titles import titled

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


def _with_batch(x: Tensor, rank: int) -> tuple[Any, bool]:
    if x.raw.ndim == rank + 2:
        return x, False
    if x.raw.ndim == rank + 1:
        return x.unsqueeze(0), True
    raise ShapeError(
        f"non-empty {rank + 1}D or {rank + 2}D (batch mode) tensor expected for input, got"
        f" {list(x.raw.shape)}"
    )


def _values(value: Any, rank: int, name: str, kind: str) -> tuple[int, ...]:
    """``value`` per axis; a wrong number of them is refused in torch's words, which every function has its
    own of."""
    if not isinstance(value, (tuple, list)) or len(value) in (1, rank):
        return per_axis(value, rank, name)
    optional, count = name == "stride", ("one", "two", "three")[rank - 1]
    if rank > 1:
        either = ("", "either ")[kind == "max" or rank == 2]
        said = f"be {either}" if name == "dilation" else f"{either}be "
        text = f"{kind}_pool{rank}d: {name} must {said}{'omitted, ' * optional}a single int, or a tuple of"
        text = f"{text} {count} ints, but got {list(value)}"
    elif kind == "max":
        comma = "," if name in ("stride", "padding") else ""
        text = f"max_pool1d() {name} must be {'None, ' * optional}an int, list of ints{comma} or tuple of"
        text = f"{text} ints of size 1 but got size {len(value)}"
    else:
        text = f"avg_pool1d() argument '{name}' should contain one int (got {len(value)})"
    raise ShapeError(text)


def _layout(
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    rank: int,
    kind: str,
) -> dict[str, Any]:
    kernel = _values(kernel_size, rank, "kernel_size", kind)
    given = stride is not None and not (isinstance(stride, (list, tuple)) and not stride)
    return {
        "kernel": kernel,
        "stride": _values(stride, rank, "stride", kind) if given else kernel,
        "padding": _values(padding, rank, "padding", kind),
    }


def refuse_sizes(kind: str, rank: int, sizes: Any) -> NoReturn:
    """Raise ShapeError for a wrong number of ``sizes`` of an adaptive pool, with PyTorch's messages."""
    name = f"adaptive_{kind}_pool{rank}d"
    if rank == 1:
        raise ShapeError(f"{name}() argument 'output_size' should contain one int (got {len(sizes)})")
    if kind == "max":
        raise ShapeError(f"{name}(): internal error: output_size.size() must be {rank}, got {list(sizes)}")
    raise ShapeError(f"{name}: output_size must be {rank}, got {list(sizes)}")


def picked(x: Any, places: Any) -> Any:
    """Gather the elements of ``x[N, C, *S]`` at flat spatial indices ``places[N, C, *S']``."""
    lead, shape = x.raw.shape[:2], tuple(places.raw.shape)
    cells = f.reshape(x, shape=(*lead, math.prod(x.raw.shape[2:])))
    flat = f.reshape(places, shape=(*lead, math.prod(shape[2:])))
    return f.reshape(f.gather(cells, flat, axis=2), shape=shape)


def _max_pool(
    x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, indices: bool, rank: int
) -> Any:
    x, added = _with_batch(x, rank)
    attrs = _layout(kernel, stride, padding, rank, "max")
    steps = _values(dilation, rank, "dilation", "max")
    if x.dtype is uint8 and not (ceil or indices) and set(steps) == {1}:
        made = f.int8_max_pool(x, **attrs)  # steps of int8 layers; beyond the edge 0 is the least too
        return made.squeeze(0) if added else made
    attrs |= {"dilation": steps, "ceil_mode": bool(ceil)}
    places = f.max_pool_indices(x.detach(), **attrs) if indices else None
    # A window of padding alone, which only dilation has, has no place. Else the places give the values too,
    # and changing them makes the gradient refuse, as torch's does.
    sure = places is not None and set(steps) == {1}
    made = like(picked(entering(x), places), places) if sure else f.max_pool(x, **attrs)
    if not added:
        return (made, places) if indices else made
    if rank == 3 and not is_contiguous(x.raw) and is_contiguous(x.raw, channels_last_3d):
        # torch keeps the order of one volume without a batch, but not of one image.
        made = contiguous(made, channels_last_3d)
        places = None if places is None else contiguous(places, channels_last_3d)
    return made.squeeze(0) if places is None or not indices else (made.squeeze(0), places.squeeze(0))


@titled("Squeeze1")
def max_pool1d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Largest element of each window of ``input[N, C, L]``."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, 1)


@titled("MaxPool2DWithIndices0")
def max_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Largest element of each window of ``input[N, C, H, W]``."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, 2)


@titled("MaxPool3DWithIndices0")
def max_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """Largest element of each window of ``input[N, C, D, H, W]``."""
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices, 3)


@titled("Squeeze1")
def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """``max_pool1d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, True, 1)


@titled("MaxPool2DWithIndices0")
def max_pool2d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """``max_pool2d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, True, 2)


@titled("MaxPool3DWithIndices0")
def max_pool3d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    """``max_pool3d`` and where each largest element was.

    ``return_indices`` has no effect, as in PyTorch.
    """
    return _max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, True, 3)


def _avg_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None,
    padding: int | Sequence[int],
    ceil: bool,
    include: bool,
    divisor: int | None,
    rank: int,
) -> Tensor:
    if divisor == 0:
        raise ModuleValueError("divisor must be not zero")
    x, added = _with_batch(x, rank)
    made = f.avg_pool(
        x,
        **_layout(kernel, stride, padding, rank, "avg"),
        ceil_mode=bool(ceil),
        include_pad=bool(include),
        divisor=divisor,
    )
    return made.squeeze(0) if added else made


@titled("Squeeze1")
def avg_pool1d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Mean of each window of ``input[N, C, L]``."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, None, 1)


@titled("AvgPool2D0")
def avg_pool2d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of ``input[N, C, H, W]``."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 2)


@titled("AvgPool3D0")
def avg_pool3d(
    input: Tensor,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of ``input[N, C, D, H, W]``."""
    return _avg_pool(input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, 3)


def _adaptive(x: Tensor, output_size: int | Sequence[int | None], rank: int) -> Tensor:
    refuse_integers(x, f"adaptive_avg_pool{rank}d")
    x, added = _with_batch(x, rank)
    sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * rank
    if len(sizes) != rank:
        refuse_sizes("avg", rank, sizes)
    filled = tuple(own if s is None else int(s) for s, own in zip(sizes, x.raw.shape[2:], strict=True))
    whole = all(size == 1 for size in filled)  # torch takes a mean then, whose gradient is plain
    made = f.adaptive_avg_pool(x if whole else entering(x), sizes=filled)
    return made.squeeze(0) if added else made


def _means(rank: int) -> Any:
    """torch's name of the gradient of one sample's means, whose last op here is another."""

    def title(input: Tensor, output_size: int | Sequence[int | None]) -> str:
        sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,) * rank
        return f"AdaptiveAvgPool{rank}D0" if any(s != 1 for s in sizes) else "Mean1"

    return title


@titled("Squeeze1")
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over windows laid out for ``output_size`` places."""
    return _adaptive(input, output_size, 1)


@titled(_means(2))
def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Means over windows laid out for ``output_size`` rows and columns (None keeps a size)."""
    return _adaptive(input, output_size, 2)


@titled(_means(3))
def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Means over windows laid out for ``output_size`` (None keeps a size)."""
    return _adaptive(input, output_size, 3)
