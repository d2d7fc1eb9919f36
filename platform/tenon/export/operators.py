"""PyTorch's names for the ops of a graph: ``aten.conv2d`` for a convolution over two axes.

They make the nodes of ``ExportedProgram.graph`` equal to PyTorch's operators, and are what passes look for.
"""

from __future__ import annotations

from tenon.fx.experimental.operator_calls import OpTarget
from tenon.graph.graph import Node
from tenon.ops.aten_calls import exported_name


def operator_name(node: Node) -> str:
    """Return the name of PyTorch's operator for a call; the op's own where PyTorch has none.

    >>> import tenon
    >>> layer = tenon.nn.Conv1d(2, 3, 1)
    >>> [operator_name(node) for node in tenon.export.capture(layer, tenon.ones(1, 2, 5)).calls]
    ['conv1d']
    """
    return exported_name(node.op.name, len(node.avals[0].shape), node.attrs)


def target_of(node: Node) -> OpTarget:
    """Return the op of a call as the target of an ``fx.Node``."""
    return OpTarget(node.op.name, operator_name(node))
