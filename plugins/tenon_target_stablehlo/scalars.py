"""Numbers that are computed for every run in float64: learning rates, step counts, bias corrections."""

from __future__ import annotations

from tenon.extend import Node, errors
from tenon_target_stablehlo.builder import FLOAT64, Builder, Value

_OPERATIONS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power", "min": "minimum",
    "max": "maximum", "neg": "negate", "abs": "abs", "sqrt": "sqrt",
}  # fmt: skip


def write_number(b: Builder, node: Node) -> Value:
    """Add the operations of a function of numbers."""
    args = [b.value(a, FLOAT64) for a in node.args]
    if node.function in ("floordiv", "mod"):
        quotient = b.unary("floor", b.binary("divide", args[0], args[1]))
        if node.function == "floordiv":
            return quotient
        return b.binary("subtract", args[0], b.binary("multiply", quotient, args[1]))
    operation = _OPERATIONS.get(node.function)
    if operation is None:
        raise errors.LoweringError(
            f"the target stablehlo does not support the function {node.function!r} of numbers."
        )
    return b.unary(operation, args[0]) if len(args) == 1 else b.binary(operation, args[0], args[1])
