"""PyTorch's ``torch._dynamo``: the names that eager code uses; the compiler is ``tenon.compiler``."""

from tenon.compat._dynamo import config, eval_frame
from tenon.nn.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    reset,
)
from tenon.nn.optimized_module import OptimizedModule

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "eval_frame",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "reset",
]


def mark_dynamic(t: object, index: object, **options: object) -> None:
    """Do nothing: every shape gets a program of its own."""


maybe_mark_dynamic = mark_static = mark_static_address = mark_dynamic
