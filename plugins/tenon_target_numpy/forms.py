"""Write calls of ops in a runner: one line of NumPy, or the call of a function of ``templates/``.

``FORMS`` has the ops that are one line; elementwise ops follow from their expressions, and every function
with the name of an op is the form of that op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tenon.extend import Node
from tenon_target_numpy import library
from tenon_target_numpy.elementwise import elementwise_text, expression_of
from tenon_target_numpy.texts import dtype_text, key_text, key_tuple_text, value_text

#: ``form(node, operands)``: the text of a call, given that of its operands.
Form: TypeAlias = Callable[[Node, Sequence[str]], str]


def _attr(node: Node, name: str) -> Any:  # attrs have different types
    return {**node.op.defaults, **node.attrs}[name]


def _text(node: Node, name: str) -> str:
    return value_text(_attr(node, name))


def _shape(node: Node) -> str:
    return value_text(tuple(node.avals[0].shape))


def _dtype(node: Node) -> str:
    return dtype_text(node.avals[0].dtype)


def _reshape(node: Node, a: Sequence[str]) -> str:
    return f"{a[0]}.reshape({_text(node, 'shape')})"


def _slice(node: Node, a: Sequence[str]) -> str:
    key = (*[slice(None)] * node.attrs["axis"], slice(node.attrs["start"], node.attrs["stop"]))
    return f"{a[0]}[{key_text(key)}]"


def _index(node: Node, a: Sequence[str]) -> str:
    return f"{a[0]}[{key_text(node.attrs['key']) or '...'}]"


def _joined(function: str) -> Form:
    def form(node: Node, a: Sequence[str]) -> str:
        dtype = node.avals[0].dtype
        same = all(r.aval.dtype == dtype for r in node.refs)
        suffix = "" if same else f", dtype={dtype_text(dtype)}"
        return f"np.{function}([{', '.join(a)}], {_text(node, 'axis')}{suffix})"

    return form


def _reduced(method: str, sums: bool = False) -> Form:
    def form(node: Node, a: Sequence[str]) -> str:
        keep = ", keepdims=True" if _attr(node, "keepdims") else ""
        dtype = node.avals[0].dtype
        kind = f", dtype={dtype_text(dtype)}" if sums and dtype.kind in "iub" else ""
        return f"{a[0]}.{method}({_text(node, 'axes')}{kind}{keep})"

    return form


def _arg(method: str) -> Form:
    def form(node: Node, a: Sequence[str]) -> str:
        axis = node.attrs["axis"] if node.refs[0].aval.shape else None
        keep = ", keepdims=True" if _attr(node, "keepdims") else ""
        return f"np.{method}({a[0]}, {value_text(axis)}{keep})"

    return form


def _cumulative(method: str) -> Form:
    def form(node: Node, a: Sequence[str]) -> str:
        if not node.avals[0].shape:
            return a[0]
        return f"{a[0]}.{method}({_text(node, 'axis')}, dtype={_dtype(node)})"

    return form


def _round(node: Node, a: Sequence[str]) -> str:
    return f"np.round({a[0]}, {_text(node, 'decimals')})"


def _full(node: Node, a: Sequence[str]) -> str:
    return f"np.full({_shape(node)}, {_text(node, 'value')}, {_dtype(node)})"


def _put(node: Node, a: Sequence[str]) -> str:
    key = key_tuple_text(node.attrs["layout"], a[2:])
    return f"put({a[0]}, {a[1]}, {key}, {_text(node, 'accumulate')})"


def _diagonal(node: Node, a: Sequence[str]) -> str:
    return f"{a[0]}.diagonal({', '.join(_text(node, name) for name in ('offset', 'axis0', 'axis1'))})"


#: Ops that are one line of NumPy.
FORMS: Mapping[str, Form] = {
    "alias": lambda node, a: a[0],
    "contiguous": lambda node, a: a[0],
    "clone": lambda node, a: a[0],
    "ordered": lambda node, a: a[0],
    "reshape": _reshape,
    "view": _reshape,
    "unsqueeze": _reshape,
    "squeeze": _reshape,
    "permute": lambda node, a: f"{a[0]}.transpose({_text(node, 'axes')})",
    "transpose": lambda node, a: f"{a[0]}.swapaxes({_text(node, 'axis0')}, {_text(node, 'axis1')})",
    "expand": lambda node, a: f"np.broadcast_to({a[0]}, {_shape(node)})",
    "slice_axis": _slice,
    "index": _index,
    "take": lambda node, a: f"{a[0]}[{key_text(node.attrs['layout'], a[1:])}]",
    "put": _put,
    "cat": _joined("concatenate"),
    "stack": _joined("stack"),
    "flip": lambda node, a: f"np.flip({a[0]}, {_text(node, 'axes')})",
    "roll": lambda node, a: f"np.roll({a[0]}, {_text(node, 'shifts')}, {_text(node, 'axes')})",
    "tril": lambda node, a: f"np.tril({a[0]}, {_text(node, 'k')})",
    "triu": lambda node, a: f"np.triu({a[0]}, {_text(node, 'k')})",
    "diagonal": _diagonal,
    "copy": lambda node, a: f"np.full({_shape(node)}, {a[1]}, {_dtype(node)})",
    "new_full": _full,
    "zeros_like": lambda node, a: f"np.zeros_like({a[0]})",
    "matmul": lambda node, a: f"{a[0]} @ {a[1]}",
    "outer": lambda node, a: f"{a[0]}[:, None] * {a[1]}",
    "sum": _reduced("sum", sums=True),
    "mean": _reduced("mean"),
    "prod": _reduced("prod", sums=True),
    "amax": _reduced("max"),
    "amin": _reduced("min"),
    "any": _reduced("any"),
    "all": _reduced("all"),
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "cumsum": _cumulative("cumsum"),
    "cumprod": _cumulative("cumprod"),
    "round": _round,
}
#: Ops that only move elements, in any dtype.
MOVES = frozenset({
    "alias", "contiguous", "clone", "ordered", "reshape", "view", "unsqueeze", "squeeze", "permute",
    "transpose", "expand", "slice_axis", "index", "take", "put", "cat", "stack", "flip", "roll", "tril",
    "triu", "diagonal", "copy", "new_full", "zeros_like", "split", "unbind", "embed", "place", "gather",
    "pad", "window_of", "diagonal_embed", "unfold_axis", "argmax", "argmin", "argsort", "searchsorted",
    "one_hot",
})  # fmt: skip


def function_of(node: Node, hidden: bool) -> str | None:
    """Return the name of the function in ``templates/`` that computes a call, or None.

    ``hidden``: whether the residuals of the op, for its gradient, are used.
    """
    name = f"{node.name}_saved" if hidden else node.name
    return name if name in library.functions() else None


def has_form(node: Node, hidden: bool) -> bool:
    """Whether a call can be written."""
    if hidden:
        return function_of(node, True) is not None
    return node.name in FORMS or function_of(node, False) is not None or expression_of(node) is not None


def call_text(node: Node, operands: Sequence[str], hidden: bool, functions: set[str]) -> str:
    """Return a call as text; the names of the functions that it needs are added to ``functions``."""
    name = function_of(node, hidden)
    if node.name in FORMS and not hidden and not (node.name == "round" and not _attr(node, "decimals")):
        if node.name == "put":
            functions.add("put")
        return FORMS[node.name](node, operands)
    if name is None:
        text = elementwise_text(node, dict(enumerate(operands)), functions)
        assert text is not None
        return text
    functions.add(name)
    attrs = [
        f"{key}={key_tuple_text(node.attrs[key]) if key == 'key' else value_text(value)}"
        for key, value in library.attributes(name, node.attrs).items()
    ]
    return f"{name}({', '.join([*operands, *attrs])})"
