"""Readers of saved attributes of nodes that torch has under other names or in another form.

An op class maps torch's name to a reader in ``Op.saved_names``.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.tensors.index_parsing import INDEX

if TYPE_CHECKING:
    from tenon.engine.tape import Node
    from tenon.engine.types import Attr
    from tenon.tensors.tensor import Tensor

#: Reads a saved attribute of a node.
Read: TypeAlias = Callable[["Node"], Any]
_REDUCTIONS = ("none", "mean", "sum")


def attr(name: str, form: Callable[[Attr], object] = lambda value: value) -> Read:
    """Return a reader of the attr ``name``, converted by ``form``."""
    return lambda node: form(node.attrs[name])


def part_of(name: str, index: int) -> Read:
    """Return a reader of one item of the attr ``name``."""
    return attr(name, itemgetter(index))


def always(value: object) -> Read:
    """Return a reader that returns ``value`` for every node."""
    return lambda node: value


def _cut(node: Node) -> tuple[int, Any]:  # an integer or a slice, as the op says
    """Return the axis that a ``select`` or slice indexes, and its key."""
    key = node.attrs["key"]
    return next(((i, k) for i, k in enumerate(key) if k not in (slice(None), Ellipsis)), (0, slice(None)))


def _indices(node: Node) -> tuple[Tensor | None, ...]:
    """Return the index tensor of each axis, None for an axis without one."""
    tensors = iter(node.values()[0][1:])
    return tuple(next(tensors) if k is INDEX else None for k in node.attrs["layout"])


def second(node: Node) -> Tensor:
    """Return the second input."""
    return node.values()[0][1]


def trunc_mode(node: Node) -> str:
    """Return the rounding mode of a ``trunc`` that ends a division; AttributeError for any other
    ``trunc``."""
    if not node.name().startswith("Div"):
        raise AttributeError
    return "trunc"


#: Of resampling ops: the output size and scales of the spatial axes.
RESAMPLED: dict[str, Read] = {
    "output_size": lambda node: tuple(part[1] for part in node.attrs["plan"]),
    "align_corners": lambda node: node.attrs["plan"][0][2],
    "scales": lambda node: node.attrs["plan"][0][3],
    "scales_d": lambda node: node.attrs["plan"][-3][3],
    "scales_h": lambda node: node.attrs["plan"][-2][3],
    "scales_w": lambda node: node.attrs["plan"][-1][3],
}
CONVOLUTION: dict[str, Read] = {
    "transposed": always(False),
    "output_padding": lambda node: (0,) * len(node.attrs["stride"]),
}
TRIANGLE: dict[str, Read] = {"diagonal": attr("k")}
REDUCED: dict[str, Read] = {"reduction": attr("reduction", _REDUCTIONS.index)}
#: Of a ``select`` and of a slice.
CUT: dict[str, Read] = {
    "dim": lambda node: _cut(node)[0],
    "index": lambda node: _cut(node)[1],
    "start": lambda node: _cut(node)[1].start,
    "end": lambda node: _cut(node)[1].stop,
    "step": lambda node: _cut(node)[1].step or 1,
}
TAKEN: dict[str, Read] = {
    "indices": _indices,
    "index": second,
    "dim": lambda node: node.attrs["layout"].index(INDEX),
}


def number(node: Node, name: str) -> tuple[object] | None:
    """Return the attribute of ``node`` that torch calls ``name``, in a tuple; None if there is none."""
    read = getattr(node.op, "saved_names", {}).get(name)
    try:
        return None if read is None else (read(node),)
    except (AttributeError, IndexError):  # as a slice has no ``index``, and two axes no ``scales_d``
        return None
