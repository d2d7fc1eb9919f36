"""A tensor as text, character for character as PyTorch prints it.

``Formatter`` chooses one notation for all printed values (integers with a point, fixed or scientific) and one
width. The other functions arrange them in nested brackets, without the middle of large tensors, and append
dtype, device and history where they are not the default.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.errors import ArgumentError, ViewError
from tenon.tensors.extensions import EXTENSIONS

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


@dataclasses.dataclass
class PrintOptions:
    """The settings of ``set_printoptions``."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


OPTIONS = PrintOptions()
_PROFILES: dict[str, dict[str, float]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; None leaves a setting as it is (torch.set_printoptions).

    ``precision`` is the number of digits after the point, ``threshold`` the number of elements above which
    only ``edgeitems`` at both ends of each axis are printed, ``linewidth`` the number of characters per line.
    ``profile`` ("default", "short" or "full") sets all of these. ``sci_mode`` turns scientific notation on or
    off; None, also by default, chooses automatically. ArgumentError for another profile.
    """
    chosen: dict[str, object] = {}
    if profile is not None:
        if profile not in _PROFILES:
            raise ArgumentError(
                f"set_printoptions: unknown profile {profile!r}. Choose one of {', '.join(_PROFILES)}."
            )
        chosen |= _PROFILES[profile]
    options = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    chosen |= {name: value for name, value in options.items() if value is not None}
    for name, value in chosen.items():
        setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:  # integers, floats, booleans and None
    """Return the current options as a dictionary of keywords for ``set_printoptions``."""
    return dataclasses.asdict(OPTIONS)


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:  # each as ``set_printoptions`` declares it
    """Set print options as ``set_printoptions`` does, and restore the previous ones after the block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


class Formatter:
    """Notation and width shared by all ``values`` (a host array) of one tensor."""

    def __init__(self, values: np.ndarray) -> None:
        self.floating = values.dtype.kind == "f"
        self.integral = True
        self.scientific = False
        self.width = 1
        flat = values.reshape(-1)
        if self.floating:
            self._choose(flat[np.isfinite(flat) & (flat != 0)].astype(np.float64))
        else:
            self.width = max([1, *(len(str(v)) for v in flat.tolist())])

    def _choose(self, values: np.ndarray) -> None:
        """Set notation and width for finite ``values`` other than 0."""
        if not values.size:
            return
        sizes = np.abs(values)
        low, high = float(sizes.min()), float(sizes.max())
        self.integral = bool((values == np.ceil(values)).all())
        if OPTIONS.sci_mode is None:
            self.scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        else:
            self.scientific = OPTIONS.sci_mode
        pattern = self._pattern()
        extra = 1 if self.integral and not self.scientific else 0  # the point
        self.width = max([1, *(len(format(v, pattern)) + extra for v in values.tolist())])

    def _pattern(self) -> str:
        if self.scientific:
            return f".{OPTIONS.precision}e"
        return ".0f" if self.integral else f".{OPTIONS.precision}f"

    def format(self, value: float) -> str:
        """``value`` (a Python number) padded to the common width."""
        if not self.floating:
            return str(value).rjust(self.width)
        text = format(value, self._pattern())
        if self.integral and not self.scientific and math.isfinite(value):
            text += "."
        return text.rjust(self.width)


class ComplexFormatter:
    """Notation and width of the real parts, and of the imaginary parts."""

    def __init__(self, values: np.ndarray) -> None:
        self.real = Formatter(values.real)
        self.imag = Formatter(values.imag)
        self.width = self.real.width + self.imag.width + 1

    def format(self, value: complex) -> str:
        """``value`` as ``real+imagj``."""
        imag = f"{self.imag.format(value.imag)}j".lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return self.real.format(value.real) + sign + imag


def _host_edges(tensor: Tensor, elided: Sequence[bool]) -> np.ndarray:
    """Return the elements that are printed, as a host array of a dtype that NumPy formats."""
    raw, backend, edge = tensor.raw, tensor._backend, OPTIONS.edgeitems
    for axis, cut in enumerate(elided):
        if cut:
            lead = (slice(None),) * axis
            raw = backend.xp.concatenate([raw[(*lead, slice(edge))], raw[(*lead, slice(-edge, None))]], axis)
    host: np.ndarray = backend.to_host(raw)
    return host.astype(np.float32) if host.dtype.kind == "V" else host


def _body(
    values: np.ndarray, elided: Sequence[bool], indent: int, formatter: Formatter | ComplexFormatter
) -> str:
    if values.ndim == 0:
        return str(formatter.format(values.item()))
    edge = OPTIONS.edgeitems
    if values.ndim == 1:
        items = [formatter.format(v) for v in values.tolist()]
        if elided[0]:
            items[edge:edge] = [" ..."]
        per_line = max(1, math.floor((OPTIONS.linewidth - indent) / (formatter.width + 2)))
        lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_body(v, elided[1:], indent + 1, formatter) for v in values]
    if elided[0]:
        rows[edge:edge] = ["..."]
    return "[" + ("," + "\n" * (values.ndim - 1) + " " * (indent + 1)).join(rows) + "]"


def tensor_body(tensor: Tensor, indent: int) -> str:
    """Return the values in brackets; lines after the first are indented to align with the first value."""
    shape = tuple(tensor.raw.shape)
    if 0 in shape:
        return "[]"
    summarize = math.prod(shape) > OPTIONS.threshold
    if summarize and shape and not OPTIONS.edgeitems:
        return "[...]"
    elided = [summarize and s > 2 * OPTIONS.edgeitems for s in shape]
    values = _host_edges(tensor, elided)
    formatter = ComplexFormatter(values) if values.dtype.kind == "c" else Formatter(values)
    return _body(values, elided, indent, formatter)


def _suffixes(tensor: Tensor, kind: dtypes.dtype) -> list[str]:
    default = dtypes.get_default_dtype()
    usual = (default, default.to_complex(), dtypes.int64, dtypes.bool)
    shape = tuple(tensor.raw.shape)
    device = tensor.device
    suffixes = []
    if device.type != "cpu":
        index = ":0" if device.index is None and device.type != "meta" else ""
        suffixes.append(f"device='{device}{index}'")
    if device.type == "meta":
        suffixes.append(f"size={shape}")
    elif 0 in shape:
        if len(shape) != 1:
            suffixes.append(f"size={shape}")
    else:
        if not OPTIONS.edgeitems:
            suffixes.append(f"size={shape}")
        if kind in usual:
            return suffixes
    return suffixes if kind is default else [*suffixes, f"dtype={kind}"]


def _joined(text: str, suffixes: list[str], indent: int) -> str:
    parts = [text]
    width = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if width + len(suffix) + 2 > OPTIONS.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            width = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            width += len(suffix) + 2
    return "".join(parts) + ")"


def tensor_repr(tensor: Tensor, tensor_contents: str | None = None) -> str:
    """Return the text of a tensor as PyTorch prints it: ``tensor([1., 2.], requires_grad=True)``.

    A subclass has its own name in the text; tenon's own subclasses (parameters) appear as tensors.
    ``tensor_contents`` replaces the values.
    """
    cls = type(tensor)
    prefix = "tensor(" if cls.__module__.startswith("tenon.") else f"{cls.__name__}("
    kind = tensor.dtype
    suffixes = _suffixes(tensor, kind)
    try:
        node = tensor.grad_fn
    except ViewError:  # an invalid view can still be printed
        suffixes.append("grad_fn=<Invalid>")
    else:
        if node is not None:
            suffixes.append(f"grad_fn=<{node.name().rsplit('::', 1)[-1]}>")
        elif tensor.requires_grad:
            suffixes.append("requires_grad=True")
        tangent = EXTENSIONS.tangent_of(tensor)
        if tangent is not None:
            suffixes.append(f"tangent={tangent}")
    if tensor_contents is None:
        tensor_contents = "..." if tensor.device.type == "meta" else tensor_body(tensor, len(prefix))
    return _joined(prefix + tensor_contents, suffixes, len(prefix))
