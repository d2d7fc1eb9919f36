"""The source line of a node and the shape of its value, as comments of readable code."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.fx.node import Node

_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$')
#: dtype -> its short name.
SHORT = {
    "bool": "b8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "int8": "i8",
    "int16": "i16",
    "int32": "i32", "int64": "i64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def innermost(trace: str) -> tuple[str, str, str, str] | None:
    """Return file, line, function and source line of the last frame of a stack trace that names one."""
    lines = trace.strip().split("\n")
    for k in range(len(lines) - 1, -1, -1):
        match = _FRAME.match(lines[k])
        if match:
            source = lines[k + 1].strip() if k + 1 < len(lines) else ""
            return match[1], match[2], match[3], source
    return None


def where_comment(node: Node) -> str:
    """Return a comment with the source line at which a node was traced."""
    frame = innermost(node.stack_trace) if node.stack_trace else None
    if frame is None:
        return "# No stacktrace found for following nodes"
    file, line, function, source = frame
    return f"# File: {file}:{line} in {function}, code: {source}"


def shape_comment(node: Node, stride: bool, device: bool) -> str:
    """Return ``'"f32[3, 4]"'`` for a node whose value is known; else an empty string."""
    # of any type
    value: Any = node.meta.get(
        "val", node.meta.get("example_value", node.meta.get("tensor_meta"))
    )  # of any type
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return ""
    kind = str(value.dtype).rpartition(".")[2]
    text = f"{SHORT.get(kind, kind)}{list(value.shape)}"
    if stride:
        text += str(list(value.stride() if isinstance(value, Tensor) else value.stride))
    if device and hasattr(value, "device"):
        text += str(value.device)
    return f'"{text}"'
