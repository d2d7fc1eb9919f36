"""Matrix products and linear layers."""

from __future__ import annotations

from tenon.extend import Node
from tenon_target_onnx.builder import Builder
from tenon_target_onnx.forms import alone, form, is_float


@form(
    "matmul",
    when=lambda node: node.avals[0].dtype.name in ("float16", "float32", "float64", "int32", "int64"),
)
def write_matmul(b: Builder, node: Node) -> str:
    """Write ``MatMul``."""
    return b.call("MatMul", b.value(node.args[0]), b.value(node.args[1]))


def _supports_linear(node: Node) -> bool:
    dtypes = {r.aval.dtype for r in node.refs}
    return is_float(node) and alone(node) and len(dtypes) == 1 and len(node.args[1].aval.shape) == 2


@form("linear", when=_supports_linear)
def write_linear(b: Builder, node: Node) -> str:
    """Write ``Gemm`` for a matrix, else ``MatMul`` with the weight transposed."""
    x, weight, bias = node.args
    return linear(b, b.value(x), len(x.aval.shape), b.value(weight), None if bias is None else b.value(bias))


def linear(b: Builder, x: str, rank: int, weight: str, bias: str | None) -> str:
    """Return ``x @ weight.T + bias``; the weight is stored as in the state dict."""
    if rank == 2:
        return b.call("Gemm", x, weight, *([] if bias is None else [bias]), transB=1)
    product = b.call("MatMul", x, b.permuted(weight, [1, 0]))
    return product if bias is None else b.call("Add", product, bias)


@form("det", when=lambda node: node.avals[0].dtype.name == "float32")
def write_det(b: Builder, node: Node) -> str:
    """Write ``Det``."""
    return b.call("Det", b.value(node.args[0]))
