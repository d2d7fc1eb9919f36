"""Numbers of a node under torch's names, where the op here keeps them under others or in another form."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tenon.tensors.keys import INDEX

_Read = Callable[[Any], Any]
_REDUCTIONS = ("none", "mean", "sum")


def _attr(name: str, form: Callable[[Any], Any] = lambda value: value) -> _Read:
    return lambda node: form(node.attrs[name])


def _always(value: Any) -> _Read:
    return lambda node: value


def _cut(node: Any) -> tuple[int, Any]:
    """Where the one cut of a ``select`` or of a slice is, and what."""
    key = node.attrs["key"]
    return next(((i, k) for i, k in enumerate(key) if k not in (slice(None), Ellipsis)), (0, slice(None)))


def _indices(node: Any) -> tuple[Any, ...]:
    found = iter(node.values()[0][1:])
    return tuple(next(found) if k is INDEX else None for k in node.attrs["layout"])


def _second(node: Any) -> Any:
    return node.values()[0][1]


def _trunc(node: Any) -> str:
    if not node.name().startswith("Div"):
        raise AttributeError
    return "trunc"


_CONVOLUTION: dict[str, _Read] = {
    "transposed": _always(False),
    "output_padding": lambda node: (0,) * len(node.attrs["stride"]),
}
_TRIANGLE: dict[str, _Read] = {"diagonal": _attr("k")}
_REDUCED: dict[str, _Read] = {"reduction": _attr("reduction", _REDUCTIONS.index)}
#: op -> torch's name -> how to read it off a node.
_OWN: dict[str, dict[str, _Read]] = {
    "as_strided": {
        name: _attr("window", itemgetter(i)) for i, name in enumerate(("size", "stride", "storage_offset"))
    },
    "avg_pool": {
        "kernel_size": _attr("kernel"),
        "count_include_pad": _attr("include_pad"),
        "divisor_override": _attr("divisor"),
    },
    "conv": _CONVOLUTION | {"bias_sym_sizes_opt": _always((0,))},  # (0,) is torch's word for None here
    "convolution": _CONVOLUTION,
    "diagonal": {"dim1": _attr("axis0"), "dim2": _attr("axis1")},
    "elu": {"scale": _always(1), "input_scale": _always(1)},
    "embedding": {"scale_grad_by_freq": _attr("by_frequency"), "sparse": _always(False)},
    "flip": {"dims": _attr("axes")},
    "gather": {"indices": _second},
    "floor_divide": {"rounding_mode": _always("floor")},
    "hardtanh": {"min_val": _attr("low"), "max_val": _attr("high")},
    "index": {
        "dim": lambda node: _cut(node)[0],
        "index": lambda node: _cut(node)[1],
        "start": lambda node: _cut(node)[1].start,
        "end": lambda node: _cut(node)[1].stop,
        "step": lambda node: _cut(node)[1].step or 1,
    },
    "leaky_relu": {"negative_slope": _attr("slope")},
    "mse_loss": _REDUCED,
    "nll_loss": _REDUCED,
    "permute": {"dims": _attr("axes")},
    "resample": {
        "output_size": lambda node: tuple(part[1] for part in node.attrs["plan"]),
        "align_corners": lambda node: node.attrs["plan"][0][2],
        "scales": lambda node: node.attrs["plan"][0][3],
        "scales_d": lambda node: node.attrs["plan"][-3][3],
        "scales_h": lambda node: node.attrs["plan"][-2][3],
        "scales_w": lambda node: node.attrs["plan"][-1][3],
    },
    "roll": {"dims": _attr("axes")},
    "square": {"exponent": _always(2)},
    "take": {"indices": _indices, "index": _second, "dim": lambda node: node.attrs["layout"].index(INDEX)},
    "transpose": {"dim0": _attr("axis0"), "dim1": _attr("axis1")},
    "tril": _TRIANGLE,
    "triu": _TRIANGLE,
    "trunc": {"rounding_mode": _trunc},
    "unfold_axis": {"dimension": _attr("axis")},
    "vector_norm": {"ord": _attr("order"), "p": _attr("order")},
}


def number(node: Any, wanted: str) -> tuple[Any] | None:
    """The number of ``node`` that torch calls ``wanted``, in a tuple; None if there is none here."""
    read = _OWN.get(node.op.name, {}).get(wanted)
    try:
        return None if read is None else (read(node),)
    except (AttributeError, IndexError):  # a slice has no index, two axes have no depth
        return None
