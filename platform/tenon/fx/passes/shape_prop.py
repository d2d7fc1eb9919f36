"""``ShapeProp``: run a graph on examples and store the shape and dtype of every node in
``meta["tensor_meta"]``."""

from __future__ import annotations

import traceback
from typing import Any, NamedTuple

from tenon.dtypes import dtype as Dtype
from tenon.fx.graph_module import GraphModule
from tenon.fx.interpreter import Interpreter
from tenon.fx.node import Node, map_aggregate
from tenon.tensors.memory_formats import channels_last, channels_last_3d, contiguous_format, memory_format
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

__all__ = ["ShapeProp", "TensorMetadata"]

#: The memory formats that are distinguished, in the order in which they are checked.
_FORMATS = (contiguous_format, channels_last, channels_last_3d)


class TensorMetadata(NamedTuple):
    """The metadata of a tensor: everything but its elements."""

    shape: Size
    dtype: Dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]  # scales and zero points, of one number or of one a channel


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    """Return the metadata of a tensor; without ``include_contiguity`` its memory format is left out."""
    memory_format = None
    if include_contiguity:
        memory_format = next((f for f in _FORMATS if result.is_contiguous(memory_format=f)), None)
    return TensorMetadata(
        result.shape,
        result.dtype,
        result.requires_grad,
        result.stride(),
        memory_format,
        *_quantization(result),
    )


def _quantization(tensor: Tensor) -> tuple[bool, dict[str, Any]]:  # parameters of any type
    if not tensor.is_quantized:
        return False, {}
    scheme = tensor.qscheme()
    parameters: dict[str, Any] = {"qscheme": scheme}  # of any type
    if "channel" in str(scheme):
        parameters["scale"] = tensor.q_per_channel_scales().tolist()
        parameters["zero_point"] = tensor.q_per_channel_zero_points().tolist()
        parameters["axis"] = tensor.q_per_channel_axis()
    else:
        parameters["scale"], parameters["zero_point"] = tensor.q_scale(), tensor.q_zero_point()
    return True, parameters


class ShapeProp(Interpreter):
    """Executes a graph node by node; stores ``meta["tensor_meta"]`` and ``meta["type"]`` of each node's
    result.

    For a tuple or a dictionary, ``tensor_meta`` has the same structure, with a ``TensorMetadata`` for each
    tensor.

    >>> import tenon
    >>> traced = tenon.fx.symbolic_trace(lambda x: x.sum(0))
    >>> out = ShapeProp(traced).propagate(tenon.ones(4, 3))
    >>> [tuple(node.meta["tensor_meta"].shape) for node in traced.graph.nodes]
    [(4, 3), (3,), (3,)]
    """

    def __init__(self, gm: GraphModule, fake_mode: Any = None) -> None:  # a mode of tensors without elements
        super().__init__(gm)
        self.fake_mode = fake_mode

    def run_node(self, n: Node) -> Any:  # of any type
        """Execute one node and store the metadata of its result."""
        try:
            if self.fake_mode is None:
                result = super().run_node(n)
            else:
                with self.fake_mode:
                    result = super().run_node(n)
        except Exception as error:
            traceback.print_exc()
            raise RuntimeError(
                f"ShapeProp error for: node={n.format_node()} with meta={n.meta}:"
                f" {type(error).__name__}: {error}"
            ) from error
        has_tensor = False

        def metadata(value: Any) -> Any:  # a leaf of any type
            nonlocal has_tensor
            if not isinstance(value, Tensor):
                return value
            has_tensor = True
            return _extract_tensor_metadata(value)

        described = map_aggregate(result, metadata)
        if has_tensor:
            n.meta["tensor_meta"] = described
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:  # arguments of any types
        """Execute the whole graph on ``args`` and return its result."""
        if self.fake_mode is not None:
            args = tuple(self.fake_mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args)
        return super().run(*args)
