"""What a trace keeps of a module and of a call, to trace a part later: a module of the same members, so that
later changes of the model have no effect, and small examples in place of activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.nn.module import Module
from tenon.nn.registration import Registration
from tenon.nn.registry import NAMES, set_registry
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor

#: The most elements of an activation that are kept.
_MOST_KEPT = 16384


class Example:
    """A tensor that a part was called with: its shape and dtype, and its first values, which repeat.

    Integers and booleans, by which Python may branch, are kept whole.
    """

    def __init__(self, tensor: Tensor) -> None:
        raw = tensor.raw
        self.shape, self.dtype = tuple(raw.shape), tensor.dtype
        self.values = raw.flat[:_MOST_KEPT] if tensor.is_floating_point() else raw.copy()

    def tensor(self) -> Tensor:
        """Return a tensor like it."""
        values = np.resize(self.values, self.shape) if self.values.size else np.zeros(self.shape)
        return wrap(values.astype(self.dtype.numpy, copy=False), device="cpu")


def kept(leaf: Any) -> Any:  # of any type
    """Return an argument for later: an ``Example`` in place of a tensor."""
    return Example(leaf) if isinstance(leaf, Tensor) else leaf


def snapshot(module: Module, made: dict[int, Module]) -> Module:
    """Return a module with the present members, hooks and modes of ``module``, and the same parameters.

    ``made`` are the copies of its submodules by id.
    """
    if id(module) in made:
        return made[id(module)]
    copied: Module = object.__new__(type(module))
    made[id(module)] = copied
    members = Registration.__getstate__(module)
    copied.__dict__.update(
        {name: value.copy() if isinstance(value, dict) else value for name, value in members.items()}
    )
    children = {
        name: None if child is None else snapshot(child, made) for name, child in module._modules.items()
    }
    for registry in NAMES:
        copied.__dict__[registry] = {}
        set_registry(copied, registry, children if registry == "_modules" else dict(members[registry]))
    return copied
