"""PyTorch's names for the ops of a graph: ``aten.conv2d`` for a convolution over two axes.

They make the nodes of ``ExportedProgram.graph`` equal to PyTorch's operators, and are what passes look for.
"""

from __future__ import annotations

from tenon.fx.experimental.operator_calls import OpTarget
from tenon.graph.graph import Node

#: Ops over one to three axes.
_RANKED = {
    "conv": "conv{}d",
    "convolution": "conv{}d",
    "conv_input_grad": "conv_transpose{}d",
    "max_pool": "max_pool{}d",
    "avg_pool": "avg_pool{}d",
    "adaptive_avg_pool": "adaptive_avg_pool{}d",
    "lp_pool": "lp_pool{}d",
}
_NAMES = {
    "attention": "scaled_dot_product_attention",
    "batch_norm_inference": "batch_norm",
    "cast": "to",
    "cross_entropy": "cross_entropy_loss",
    "gru_sequence": "gru",
    "inv": "linalg_inv",
    "lstm_sequence": "lstm",
    "rnn_sequence": "rnn_tanh",
    "slice_axis": "slice",
    "solve": "linalg_solve",
    "sum_to": "sum",
    "take": "index",
    "vector_norm": "linalg_vector_norm",
}


def operator_name(node: Node) -> str:
    """Return the name of PyTorch's operator for a call; the op's own where PyTorch has none.

    >>> import tenon
    >>> layer = tenon.nn.Conv1d(2, 3, 1)
    >>> [operator_name(node) for node in tenon.export.capture(layer, tenon.ones(1, 2, 5)).calls]
    ['conv1d']
    """
    name = str(node.op.name)
    if name in _RANKED:
        return _RANKED[name].format(max(len(node.avals[0].shape) - 2, 1))
    if name == "index":
        return _indexing(node)
    return _NAMES.get(name, name)


def _indexing(node: Node) -> str:
    """Return the first of the operators as which PyTorch runs ``x[key]``."""
    for part in node.attrs["key"]:
        if isinstance(part, int):
            return "select"
        if part is None:
            return "unsqueeze"
        if isinstance(part, slice) and part != slice(None):
            return "slice"
    return "alias"


def target_of(node: Node) -> OpTarget:
    """Return the op of a call as the target of an ``fx.Node``."""
    return OpTarget(node.op.name, operator_name(node))
