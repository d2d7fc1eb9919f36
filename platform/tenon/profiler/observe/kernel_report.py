"""Which kernels a backend has, and which one a call takes: the rows that ``tenon doctor kernels`` prints."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.engine.op import Op, table
from tenon.errors import ArgumentError
from tenon.kernels.backend import Backend
from tenon.kernels.kernel_table import KernelRow

Row = tuple[str, str]


def kernel_counts(backend: Backend) -> list[Row]:
    """Each op that has more than the reference, and the names of its rows in order."""
    return [(name, ", ".join(row.name for row in backend.table.rows[name])) for name in sorted(backend.table)]


def kernel_rows(backend: Backend, name: str) -> list[Row]:
    """The rows of an op in order: name, and what it accepts."""
    op = _op(name)
    known = backend.table.rows.get(name, ())
    rows = [(row.name, _accepted(row)) for row in known]
    usable = list(backend.choice(op).rows)
    return rows + [(row.name, _accepted(row)) for row in usable if row not in known]


def _accepted(row: KernelRow) -> str:
    parts = [condition.says for condition in row.accepts] or ["every call"]
    if row.declines:
        parts.append(f"declines {row.declines}")
    available = row.usable()
    if not available:
        parts.append(f"NOT HERE: {getattr(available, 'reason', 'this machine lacks what it needs')}")
    return "; ".join(parts)


def chosen(
    backend: Backend, name: str, shapes: Sequence[str], dtype: str, attrs: Iterable[str] = ()
) -> list[Row]:
    """Each row up to the one that a call takes, and why it refused: the last is the one.

    ``shapes`` are of the op's inputs in order, such as ``64x128``, ``64:int64``, ``128x64.T`` for one that
    lies transposed, ``=0.5`` for a number, ``none``; the last serves all inputs that follow.
    """
    op = _op(name)
    choice = backend.choice(op)
    count = max(len(op.inputs), len(shapes))
    texts = [*shapes, *[shapes[-1]] * (count - len(shapes))]
    args = [_argument(backend, text, dtype) for text in texts]
    named = dict(_attribute(text) for text in attrs)
    try:
        found = list(choice.explain(args, named))
    except TypeError as error:
        raise ArgumentError(
            f"{name}: {error}. It takes {', '.join(op.inputs)} as --shape, and the rest as --attr name=value."
        ) from error
    return [(row.name, why or "TAKES the call") for row, why in found]


def _op(name: str) -> Op:
    if name not in table.by_name:
        import difflib

        near = difflib.get_close_matches(name, table.by_name, 3)
        hint = f"Near: {', '.join(near)}." if near else "See tenon.ops."
        raise ArgumentError(f"no op named {name!r}. {hint}")
    return table[name]


def _argument(backend: Backend, text: str, dtype: str) -> Any:
    if text.lower() == "none":
        return None
    if text.startswith("="):
        return ast.literal_eval(text[1:])
    shape, _, own = text.partition(":")
    turned = shape.endswith(".T")
    sizes = tuple(int(s) for s in shape.removesuffix(".T").split("x") if s)
    kind = dtypes.BY_NAME[own or dtype].numpy
    fill = np.zeros if kind.kind in "iu" else np.ones
    array = backend.from_host(fill(sizes, kind), backend.devices()[0])
    return array.T if turned else array


def _attribute(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


__all__ = ["chosen", "kernel_counts", "kernel_rows"]
