"""``load``: load a model that was pruned, quantized or both from a new model and a state dict."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon_compress.prune import structure as pruned
from tenon_compress.quantize import structure as quantized
from tenon_compress.structure_buffer import StateDict


def load(model: Module, state: StateDict) -> Module:
    """Return the compressed model whose state dict is ``state``, built from a new ``model``.

    ``state`` contains what was removed and which layers were replaced; ``tenon.load`` reads it from a file.
    ``model`` is not changed. CheckpointError if ``state`` is not that of a model of this class.

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
    copied = copy.deepcopy(model)
    if quantized.KEY not in state:
        return pruned.load(copied, state)
    if pruned.KEY in state:
        pruned.reshape(copied, state)
    return quantized.load(copied, state)
