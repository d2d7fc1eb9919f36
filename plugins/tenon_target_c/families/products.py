"""Matrix products: ``linear``, ``addmm`` and ``matmul``.

Constant right sides are packed when the program is written, others at each run (``kernels/gemm.c``).
"""

from __future__ import annotations

import math

import numpy as np

from tenon.extend import Node, Ref
from tenon_target_c.emitters import emits
from tenon_target_c.families.elementwise import collapse, fill
from tenon_target_c.program import Program, out, shape_text
from tenon_target_c.values import SUFFIXES, View

#: Columns of a packed panel, and rows of another: see ``kernels/gemm.c``.
COLUMNS, ROWS, DEPTH = 16, 6, 320
#: The dtypes of sums and products: those of templates of kernels, without booleans.
FLOATS = ("float32", "float64")
NUMBERS = (*FLOATS, "int32", "int64", "int16", "int8", "uint8")


def rounded(count: int, multiple: int = COLUMNS) -> int:
    """Return ``count`` rounded up to a multiple."""
    return -(-count // multiple) * multiple


def pack_columns(matrix: np.ndarray) -> np.ndarray:
    """Return ``matrix[k, n]`` as panels of 16 columns ``[n / 16, k, 16]``, padded with zeros."""
    k, n = matrix.shape
    wide = np.zeros((k, rounded(n)), matrix.dtype)
    wide[:, :n] = matrix
    return np.ascontiguousarray(wide.reshape(k, -1, COLUMNS).transpose(1, 0, 2))


def pack_rows(matrix: np.ndarray) -> np.ndarray:
    """Return ``matrix[m, k]`` as panels of 6 rows ``[k, 6]``, the last one of the remaining rows, as a
    vector."""
    panels = [np.ascontiguousarray(matrix[i : i + ROWS].T).reshape(-1) for i in range(0, len(matrix), ROWS)]
    return np.concatenate(panels) if panels else np.zeros(0, matrix.dtype)


def is_float32(node: Node) -> bool:
    """Whether all arrays that a call reads are float32."""
    return all(r.aval.dtype == np.float32 for r in node.refs if not r.scalar)


def has_one_dtype(node: Node, *dtypes: str) -> bool:
    """Whether all arrays that a call reads, and its first result, have the same dtype, one of ``dtypes``."""
    found = {node.avals[0].dtype.name, *(r.aval.dtype.name for r in node.refs if not r.scalar)}
    return len(found) == 1 and found <= set(dtypes)


def _supports_matmul(node: Node) -> bool:
    return has_one_dtype(node, *NUMBERS)


def _supports_linear(node: Node) -> bool:
    return is_float32(node) and len(node.args[1].aval.shape) == 2 and _has_supported_bias(node)


def _has_supported_bias(node: Node) -> bool:
    bias = node.args[2]
    return bias is None or tuple(bias.aval.shape) == (node.args[1].aval.shape[0],)


@emits("linear", when=_supports_linear)
def emit_linear(program: Program, node: Node) -> None:
    """Add ``x @ weight.T + bias``."""
    x, weight, bias = node.args
    target = program.result(node)
    k = weight.aval.shape[1]
    rows = math.prod(x.aval.shape[:-1])
    if not target.size:
        return
    columns = program.view(weight).array.T
    product(program, program.view(x), (rows, k), weight, columns.shape, True, bias, target, node)


def product(
    program: Program,
    x: View,
    x_shape: tuple[int, int],
    right: Ref,
    right_shape: tuple[int, ...],
    transposed: bool,
    bias: Ref | None,
    target: View,
    node: Node,
) -> None:
    """Add ``x @ right`` (``right.T`` if ``transposed``) ``+ bias`` into ``target``."""
    rows, k = x_shape
    n = right_shape[1]
    matrix = _as_matrix(program, x, rows, k)
    view = program.view(right)
    array = view.array.T if transposed else view.array
    known = program.known(right)
    if known is not None:
        panels = program.weight(pack_columns(known.T if transposed else known))
    else:
        panels = program.scratch(k * rounded(n))
        row, column = (s // array.itemsize for s in array.strides)
        program.step("k_pack_columns", k, n, view, row, column, out(panels))
    row, column = matrix.strides if rows and k else (0, 0)
    scratch = program.scratch(rows * min(k, DEPTH))
    addend, relu = program.epilogue(node)
    program.step(
        "k_gemm", rows, n, k, matrix, row, column, panels, out(target), n,
        program.dense(bias) if bias is not None else "NULL", addend, relu, out(scratch),
    )  # fmt: skip


def _as_matrix(program: Program, x: View, rows: int, k: int) -> View:
    """Return ``x`` as a matrix, without a copy if its leading axes merge."""
    try:
        return x.moved(x.array.reshape((rows, k), copy=False))
    except ValueError:
        return program.dense(x).reshaped(rows, k)


@emits("matmul", when=_supports_matmul)
def emit_matmul(program: Program, node: Node) -> None:
    """Add ``x @ y`` with broadcast leading axes and, as in PyTorch, vectors on either side."""
    x, y = (program.view(a) for a in node.args)
    target = program.result(node)
    k = x.shape[-1]
    if not target.size:
        return
    if not k:
        fill(program, target, 0)
        return
    left = x.moved(x.array[None, :]) if x.array.ndim == 1 else x
    right = y.moved(y.array[:, None]) if y.array.ndim == 1 else y
    m, n = left.shape[-2], right.shape[-1]
    if target.dtype == np.float32 and right.array.ndim == 2 and (left.array.ndim > 1):
        rows = target.size // n
        if program.known(node.args[1]) is not None and y.array.ndim == 2:
            product(program, left, (rows, k), node.args[1], right.shape, False, None, target, node)
            return
        merged = _merged(left, rows, k)
        if merged is not None:
            left, m = merged, rows
    lead = target.array.reshape(-1)[: target.size]
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    result = target.moved(lead.reshape(*batch, m, n))
    batched(program, left, right, result, batch)


def _merged(x: View, rows: int, k: int) -> View | None:
    try:
        return x.moved(x.array.reshape((rows, k), copy=False))
    except ValueError:
        return None


def batch_strides(
    views: tuple[View, ...], batch: tuple[int, ...]
) -> tuple[list[int], list[list[int]]] | None:
    """Return two batch sizes, and for each view its strides along them; None if two are not enough."""
    strides = []
    for v in views:
        array = np.broadcast_to(v.array, (*batch, *v.shape[-2:]))
        steps = [s // array.itemsize for s in array.strides[: len(batch)]]
        strides.append([0 if size == 1 else step for size, step in zip(batch, steps, strict=True)])
    sizes, collapsed = collapse(batch, strides)
    if len(sizes) > 2:
        return None
    while len(sizes) < 2:
        sizes = [1, *sizes]
        collapsed = [[0, *s] for s in collapsed]
    return sizes, collapsed


def batched(program: Program, x: View, y: View, target: View, batch: tuple[int, ...]) -> None:
    """Add the products of arrays of matrices, broadcast to the leading axes ``batch``."""
    strides = batch_strides((x, y, target), batch)
    if strides is None:
        x, y = (program.dense(v.moved(np.broadcast_to(v.array, (*batch, *v.shape[-2:])))) for v in (x, y))
        strides = batch_strides((x, y, target), batch)
        assert strides is not None
    sizes, (sx, sy, st) = strides
    (m, k), n = x.shape[-2:], y.shape[-1]
    numbers = [*sizes, m, n, k, *sx, *x.strides[-2:], *sy, *y.strides[-2:], *st, *target.strides[-2:]]
    text = f"(const long[]){shape_text(numbers)}"
    if target.dtype != np.float32:
        program.step(f"k_plain_matmul_{SUFFIXES[target.dtype.name]}", text, x, y, out(target))
        return
    scratch = program.scratch(rounded(n) * k + m * min(k, DEPTH))
    program.step("k_matmul", text, x, y, out(target), out(scratch))
