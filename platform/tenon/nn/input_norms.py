"""The norms of what modules get as input, recorded for pruning criteria that weigh weights by them.

``with record_inputs(model):`` adds up the squares of every input feature of linear and convolutional layers,
in float64, over all calls. ``criterion.py`` gives criteria their roots, as ``Criterion.input_norms``.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tenon.nn.layers.conv import Conv1d, Conv2d, Conv3d
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor

_LAYERS = (Linear, Conv1d, Conv2d, Conv3d)
_squares: weakref.WeakKeyDictionary[Module, np.ndarray] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def record_inputs(model: Module) -> Iterator[None]:
    """Record the norms of the inputs of ``model``'s linear and convolutional layers in all calls inside.

    What was recorded before is forgotten. Criteria with ``needs_inputs``, as ``Wanda``, take the norms.
    Nothing is communicated: ranks that call the model on other inputs record other norms, and would mask
    other elements. Call it on the same inputs on all ranks.

    >>> import tenon
    >>> layer = tenon.nn.Linear(2, 1)
    >>> with record_inputs(layer):
    ...     output = layer(tenon.tensor([[3.0, 1.0], [4.0, 1.0]]))
    >>> input_norms(layer, layer.weight)
    tensor([[5.0000, 1.4142]])
    """
    layers = [module for module in model.modules() if isinstance(module, _LAYERS)]
    handles: list[RemovableHandle] = []
    for layer in layers:
        _squares.pop(layer, None)
        handles.append(layer.register_forward_pre_hook(_add, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _add(layer: Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> None:  # of a call of the layer
    """Add the squares of a call's input features."""
    x = (inputs[0] if inputs else named["input"]).detach().cpu().double().numpy()
    axis = -1 if isinstance(layer, Linear) else 1 - layer.get_parameter("weight").ndim
    others = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    squares = np.square(x).sum(axis=others)
    _squares[layer] = _squares.get(layer, 0.0) + squares


def input_norms(layer: Module, weight: Tensor) -> Tensor | None:
    """The norm of the input feature that each element of ``weight`` multiplies, in a shape that broadcasts
    against it; None if none were recorded, or ``weight`` is not the layer's own."""
    squares, groups = _squares.get(layer), getattr(layer, "groups", 1)
    if squares is None or squares.size != groups * weight.shape[1]:
        return None
    norms = np.sqrt(squares).reshape(groups, weight.shape[1])
    if groups > 1:
        norms = norms.repeat(weight.shape[0] // groups, axis=0)
    shaped = norms.reshape(*norms.shape, *(1,) * (weight.dim() - 2))
    return from_numpy(shaped).to(device=weight.device, dtype=weight.dtype)
