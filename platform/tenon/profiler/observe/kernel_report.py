"""The kernels of a backend, and which one computes a call: what ``tenon doctor kernels`` prints."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from tenon import dtypes
from tenon.engine.op import Composite, Op, table
from tenon.engine.types import Array, Attrs, Operand
from tenon.errors import ArgumentError
from tenon.kernels.backend import Backend
from tenon.kernels.kernel_table import Kernel, KernelRow
from tenon.kernels.rounding import as_one
from tenon.kernels.short_kernels import ShortKernel, passed_on

Row = tuple[str, str]


def kernel_counts(backend: Backend) -> list[Row]:
    """Return each op with kernels other than the reference, and the names of its rows in order."""
    return [(name, ", ".join(row.name for row in backend.table.rows[name])) for name in sorted(backend.table)]


def kernel_rows(backend: Backend, name: str) -> list[Row]:
    """Return the rows of an op in order: the kernel's name, and the calls it accepts."""
    op = _op_named(name)
    listed = backend.table.rows.get(name, ())
    rows = [(short.name, f"16-bit floats: {short.accepts}") for short in _short_kernels(backend, op)]
    rows += [(row.name, _acceptance(row)) for row in listed]
    usable = list(backend.choice(op).rows)
    return rows + [(row.name, _acceptance(row)) for row in usable if row not in listed]


def _acceptance(row: KernelRow) -> str:
    """Describe the calls that ``row`` accepts, and whether this machine can run it."""
    parts = [condition.says for condition in row.accepts] or ["every call"]
    if row.declines:
        parts.append(f"declines {row.declines}")
    available = row.usable()
    if not available:
        parts.append(f"NOT AVAILABLE: {getattr(available, 'reason', 'this machine lacks what it needs')}")
    return "; ".join(parts)


def chosen(
    backend: Backend, name: str, shapes: Sequence[str], dtype: str, attrs: Iterable[str] = ()
) -> list[Row]:
    """Return each row up to the one that computes the call, with the reason why a row does not.

    ``shapes`` describe the op's inputs in order: ``64x128``, ``64:int64``, ``128x64.T`` for a transposed
    array, ``=0.5`` for a number, ``none``; the last one also serves all inputs that follow. ArgumentError if
    a shape, a dtype or the op's name cannot be read.
    """
    op = _op_named(name)
    args, attributes = call_of(backend, op, shapes, dtype, attrs)
    try:
        explained = list(explain(backend, op, args, attributes))
    except TypeError as error:
        raise ArgumentError(
            f"{name}: {error}. It takes {', '.join(op.inputs)} as --shape, and the rest as --attr name=value."
        ) from error
    return [(kernel, why or "TAKES the call") for kernel, why in explained]


def call_of(
    backend: Backend, op: Op, shapes: Sequence[str], dtype: str, attrs: Iterable[str]
) -> tuple[list[Operand], Attrs]:
    """Return arguments and attrs of a call of ``op`` from texts in the form that ``chosen`` documents."""
    count = max(len(op.inputs), len(shapes))
    texts = [*shapes, *[shapes[-1]] * (count - len(shapes))]
    return [_argument(backend, text, dtype) for text in texts], dict(_attribute(text) for text in attrs)


def explain(backend: Backend, op: Op, args: Sequence[Operand], attrs: Mapping[str, object]) -> Iterator[Row]:
    """Yield the name of each kernel up to the one that computes this call, with the reason why it does not.

    The reason is empty for the last. A kernel that converts the arguments is followed by those that receive
    the converted ones. TypeError if the arguments are not those of the op.
    """
    choice = backend.choice(op)
    choice.bind(args, attrs)
    kernels = _short_kernels(backend, op) if backend.holds_short(args) else []
    if isinstance(op, Composite) and not op.widens:
        rounded = ShortKernel("in float32", lambda next_, *a, **k: as_one(op, next_)(*a, **k), "")
        kernels.append(rounded)
    for short in kernels:
        passed = passed_on(short.kernel, args, attrs)
        if passed is None:
            yield short.name, ""
            return
        if any(new is not old for new, old in zip(passed[0], args, strict=True)):
            yield short.name, "converts the arguments for the rows below, and their result"
        elif short.accepts:
            yield short.name, f"requires: {short.accepts}"
        args, attrs = passed
    for row, why in choice.explain(args, attrs):
        yield row.name, why


def _short_kernels(backend: Backend, op: Op) -> list[ShortKernel]:
    """Return the 16-bit kernels of ``op`` in order; a single one if the backend overrides ``for_short``."""
    if type(backend).for_short is Backend.for_short:
        return list(backend.kernels_for_short(op))
    kernel = backend.for_short

    def called(following: Kernel, *args: Array, **attrs: object) -> Array:
        return kernel(op, following)(*args, **attrs)

    return [ShortKernel("for_short", called, "calls that this backend's for_short computes itself")]


def _op_named(name: str) -> Op:
    """Return the op ``name``; ArgumentError with similar names if there is none."""
    if name not in table.by_name:
        import difflib

        near = difflib.get_close_matches(name, table.by_name, 3)
        hint = f"Near: {', '.join(near)}." if near else "See tenon.ops."
        raise ArgumentError(f"no op named {name!r}. {hint}")
    return table[name]


def _argument(backend: Backend, text: str, dtype: str) -> Operand:
    """Return the argument that ``text`` describes; ArgumentError unless it has a form of ``chosen``."""
    if text.lower() == "none":
        return None
    shape, _, own = text.partition(":")
    transposed = shape.endswith(".T")
    try:
        if text.startswith("="):
            return ast.literal_eval(text[1:])
        sizes = tuple(int(s) for s in shape.removesuffix(".T").split("x") if s)
    except (SyntaxError, ValueError) as error:
        raise ArgumentError(
            f"cannot read --shape {text!r}. Write the sizes as 64x256, with a dtype as 64x256:int64,"
            " transposed as 64x256.T, a number as =0.5, or none."
        ) from error
    if (own or dtype) not in dtypes.BY_NAME:
        raise ArgumentError(f"no dtype named {own or dtype!r}, such as float32 or int64.")
    kind = dtypes.BY_NAME[own or dtype].numpy
    fill = np.zeros if kind.kind in "iu" else np.ones
    try:
        filled = fill(sizes, kind)
    except (MemoryError, ValueError) as error:  # too large; negative
        raise ArgumentError(f"cannot make an array for --shape {text!r}: {error}.") from error
    array = backend.from_host(filled, backend.devices()[0])
    return array.T if transposed else array


def _attribute(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


__all__ = ["call_of", "chosen", "explain", "kernel_counts", "kernel_rows"]
