"""Matrix products, linear layers and Cholesky factors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.extend import Node
from tenon_target_stablehlo.builder import Builder, Value
from tenon_target_stablehlo.families.elementwise import wide
from tenon_target_stablehlo.forms import alone, form, is_float
from tenon_target_stablehlo.sizes import broadcast_shapes
from tenon_target_stablehlo.texts import list_text, type_text


def dot(
    b: Builder,
    x: Value,
    y: Value,
    contracting: tuple[Sequence[int], Sequence[int]],
    batching: tuple[Sequence[int], Sequence[int]] = ((), ()),
    dtype: np.dtype | None = None,
) -> Value:
    """Write ``dot_general``: batch axes, then the other axes of ``x``, then those of ``y``."""
    dtype = x.dtype if dtype is None else dtype
    rest = [
        [s for a, s in enumerate(v.shape) if a not in contracting[i] and a not in batching[i]]
        for i, v in enumerate((x, y))
    ]
    shape = (*(x.shape[a] for a in batching[0]), *rest[0], *rest[1])
    batch = f"batching_dims = {list_text(batching[0])} x {list_text(batching[1])}, " if batching[0] else ""
    text = (
        f"stablehlo.dot_general {x.name}, {y.name}, {batch}contracting_dims = {list_text(contracting[0])} x "
        f"{list_text(contracting[1])} : ({x.type}, {y.type}) -> {type_text(dtype, shape)}"
    )
    return b.write(text, dtype, shape)


def _supports_matmul(node: Node) -> bool:
    return node.avals[0].dtype.name != "bool" and all(r.aval.shape for r in node.refs)


@form("matmul", when=_supports_matmul)
def write_matmul(b: Builder, node: Node) -> Value:
    """Write ``dot_general``, with batch axes broadcast."""
    own = node.avals[0].dtype
    x, y = (b.value(a, wide(own)) for a in node.args)
    if x.rank == 1:
        x = b.reshape(x, (1, x.shape[0]))
    if y.rank == 1:
        y = b.reshape(y, (y.shape[0], 1))
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if not y.shape[:-2]:  # one matrix for all
        result = dot(b, x, y, ([x.rank - 1], [0]))
    else:
        x, y = (b.broadcast(v, (*batch, *v.shape[-2:])) for v in (x, y))
        lead = range(len(batch))
        result = dot(b, x, y, ([x.rank - 1], [y.rank - 2]), (lead, lead))
    return b.convert(b.reshape(result, node.avals[0].shape), own)


def _supports_linear(node: Node) -> bool:
    dtypes = {r.aval.dtype for r in node.refs}
    return is_float(node) and alone(node) and len(dtypes) == 1 and len(node.args[1].aval.shape) == 2


@form("linear", when=_supports_linear)
def write_linear(b: Builder, node: Node) -> Value:
    """Contract the last axes: the weight has the layout of the state dict."""
    own = node.avals[0].dtype
    x, weight, *bias = (b.value(a, wide(own)) for a in node.args if a is not None)
    result = dot(b, x, weight, ([x.rank - 1], [1]))
    if bias:
        result = b.binary("add", result, b.broadcast(bias[0], result.shape))
    return b.convert(result, own)


def _is_matrix(node: Node) -> bool:
    return node.avals[0].dtype.name in ("float32", "float64") and alone(node)


@form("cholesky", when=lambda node: _is_matrix(node) and not node.attrs)
def write_cholesky(b: Builder, node: Node) -> Value:
    """Write ``cholesky``, and zeros above the diagonal."""
    x = b.value(node.args[0])
    factor = b.write(f"stablehlo.cholesky {x.name}, lower = true : {x.type}", x.dtype, x.shape)
    rows, columns = (b.iota(np.dtype(np.int64), x.shape, x.rank - i) for i in (2, 1))
    return b.select(b.compare("LE", columns, rows), factor, b.full(0, x.dtype, x.shape))
