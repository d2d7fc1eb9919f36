"""``load``: a model that was pruned, quantized or both, from its class and its state dict."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon_compress.prune import structure as pruned
from tenon_compress.quantize import structure as quantized


def load(model: Module, state: Mapping[str, Any]) -> Module:
    """The smaller model whose ``state_dict()`` is ``state``, made of ``model`` as its class makes it.

    ``state`` says itself what was removed and what takes the place of which layer; ``tenon.load`` reads it
    from a file. ``model`` stays as it is. CheckpointError where ``state`` is not of a model of this class.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(8, 4), tenon.nn.ReLU())
    >>> small = tenon.quantization.quantize_dynamic(model)
    >>> tenon.compress.load(model, small.state_dict())[0]
    DynamicLinear(in_features=8, out_features=4, bias=True)
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"load takes a state dict, got {type(state).__name__}. Read it by tenon.load first."
        )
    made = copy.deepcopy(model)
    if quantized.KEY not in state:
        return pruned.load(made, state)
    if pruned.KEY in state:
        pruned.reshape(made, state)
    return quantized.load(made, state)
