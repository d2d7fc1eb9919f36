"""The structure of a pruned model: the new sizes of its layers, and how they are saved.

The structure is one buffer of the model, ``pruned_structure``: JSON text as bytes, ``{"layer1.0.conv1":
{"out_channels": 32}, ...}``. It is in the state dict like any other buffer, so every way of saving a model
saves it, and ``load`` gives a new model the same structure before it loads the values. Nothing is pickled and
no class is edited (ADR 0030).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tenon import empty
from tenon.errors import ArgumentError, CheckpointError
from tenon.extend import release_parameters
from tenon.nn.layers.activation import PReLU
from tenon.nn.layers.attention import MultiheadAttention
from tenon.nn.layers.conv import _ConvNd
from tenon.nn.layers.embedding import Embedding, EmbeddingBag
from tenon.nn.layers.linear import Linear
from tenon.nn.layers.norm import GroupNorm, _NormBase
from tenon.nn.layers.recurrent import RNNBase
from tenon.nn.layers.recurrent_cells import RNNCellBase
from tenon.nn.module import Module
from tenon.nn.weights import pipeline_of
from tenon_compress.prune.packed_linear import PackedLinear
from tenon_compress.prune.shape_rules import NAMES, set_shape_rules, shape_rules_from
from tenon_compress.structure_buffer import (
    JsonValue,
    StateDict,
    Structure,
    parse_structure,
    read_buffer,
    write_structure,
)

#: The buffer that holds the structure.
KEY = "pruned_structure"


def _conv(layer: Module) -> dict[str, int]:
    rows, columns = layer.weight.shape[:2]
    old = (layer.in_channels, layer.out_channels)[:: 1 if layer.transposed else -1]
    groups = rows * layer.groups // old[0] if layer.groups > 1 else 1
    inputs, outputs = (rows, columns * groups) if layer.transposed else (columns * groups, rows)
    return {"in_channels": inputs, "out_channels": outputs, "groups": groups}


def _attention(layer: Module) -> dict[str, int]:
    weight = layer.q_proj_weight if layer.in_proj_weight is None else layer.in_proj_weight
    width = weight.shape[0] // (1 if layer.in_proj_weight is None else 3)
    return {"num_heads": width // layer.head_dim}


def _norm(layer: Module) -> dict[str, int]:
    own = layer.weight if layer.weight is not None else layer.running_mean
    return {} if own is None else {"num_features": own.shape[0]}


def _recurrent(layer: Module) -> dict[str, int]:
    inner, outer = layer.weight_ih_l0, layer.weight_hr_l0 if layer.proj_size else layer.weight_hh_l0
    numbers = {"input_size": inner.shape[1], "hidden_size": outer.shape[1]}
    return {**numbers, "proj_size": outer.shape[0]} if layer.proj_size else numbers


def _groups(layer: Module) -> dict[str, int] | None:
    if layer.weight is None:
        return None
    count = layer.weight.shape[0]
    return {"num_groups": count * layer.num_groups // layer.num_channels, "num_channels": count}


#: The sizes that the attributes of a layer have to state, computed from its weights.
_SIZES: tuple[tuple[type | tuple[type, ...], Callable[[Any], dict[str, int] | None]], ...] = (
    (Linear, lambda m: {"in_features": m.weight.shape[1], "out_features": m.weight.shape[0]}),
    (_ConvNd, _conv),
    (_NormBase, _norm),
    (GroupNorm, _groups),
    ((Embedding, EmbeddingBag), lambda m: {"embedding_dim": m.weight.shape[1]}),
    (MultiheadAttention, _attention),
    (RNNBase, _recurrent),
    (RNNCellBase, lambda m: {"input_size": m.weight_ih.shape[1], "hidden_size": m.weight_hh.shape[1]}),
    (PReLU, lambda m: {"num_parameters": m.weight.shape[0]}),
)


def sizes_of(module: Module) -> dict[str, int] | None:
    """Return the sizes that a layer's attributes have to state for its weights; None for unknown classes."""
    for kind, numbers in _SIZES:
        if isinstance(module, kind):
            return numbers(module)
    return None


def apply_structure(model: Module, structure: Mapping[str, Mapping[str, JsonValue]]) -> None:
    """Set the sizes of modules by their paths, and pack layers; on CheckpointError nothing is changed."""
    modules = dict(model.named_modules())
    rules = {}
    for path, entry in structure.items():
        module = modules.get(path)
        rules[path] = shape_rules_from(path, dict(entry))
        numbers = {name: value for name, value in entry.items() if name not in NAMES}
        if any(type(value) is not int or value < 0 for value in numbers.values()):
            raise CheckpointError(
                f"the structure saved for '{path}' has values that are not numbers: {numbers}."
            )
        if "packed" in numbers and isinstance(module, (Linear, PackedLinear)):
            if numbers.keys() >= {"in_features", "out_features"}:
                continue
            raise CheckpointError(f"the structure saved for '{path}' lacks sizes: {numbers}.")
        if module is None or any(not isinstance(vars(module).get(n), int) for n in numbers):
            raise CheckpointError(
                f"the structure saved is not one of this {type(model).__name__}: it sets {', '.join(entry)}"
                f" of '{path}', which has no such number. Make the model that was pruned."
            )
    for path, entry in structure.items():
        module = modules[path]
        if "packed" not in entry:
            for name, value in entry.items():
                if name not in NAMES:
                    setattr(module, name, value)
            set_shape_rules(module, rules[path])
        elif isinstance(module, Linear):
            inputs, outputs, count = (entry[n] for n in ("in_features", "out_features", "packed"))
            packed = PackedLinear(inputs, outputs, count, module.bias is not None)
            model.set_submodule(path, packed.to(module.weight.device))


def structure_of(model: Module) -> Structure:
    """Return how ``model`` differs from a new one of its class, by module path; empty if it does not.

    Sizes of layers, and rules for sizes that code computes (``shape_rules.py``).
    """
    return read_buffer(model, KEY)


def note_structure(model: Module, structure: Mapping[str, Mapping[str, JsonValue]]) -> None:
    """Record ``structure`` in the state dict of ``model``."""
    write_structure(model, KEY, structure)


def load(model: Module, state: StateDict) -> Module:
    """Load a pruned model's structure and values into a new ``model`` of its class; return ``model``.

    ``state`` is the pruned model's ``state_dict()``, or what ``tenon.load`` read from a file. A state dict
    without a structure is loaded without changes to the model. On any error the model is unchanged.

    >>> import tenon
    >>> from tenon import nn
    >>> def make():
    ...     return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> model = make()
    >>> _ = nn.utils.prune.ln_structured(model[0], "weight", 6, 2, 0)
    >>> _ = tenon.prune.compact(model, tenon.ones(1, 4))  # doctest: +SKIP
    >>> tenon.prune.load(make(), model.state_dict())[0]  # doctest: +SKIP
    Linear(in_features=4, out_features=2, bias=True)
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(
            f"load takes a state dict, got {type(state).__name__}. Read it by tenon.load first."
        )
    if KEY not in state:
        model.load_state_dict(state)
        return model
    _load(copy.deepcopy(model), state)  # so that an error leaves ``model`` unchanged
    _load(model, state)
    return model


def reshape(model: Module, state: StateDict) -> None:
    """Apply the structure in ``state`` to ``model``, and give its tensors the shapes of the saved ones."""
    structure = parse_structure(state[KEY], KEY)
    for path, module in model.named_modules():
        for name in list(vars(module).get("_weights", ())):
            pipeline = pipeline_of(module, name)
            if pipeline is not None and f"{path}.{name}".lstrip(".") in state:
                pipeline.bake(
                    module, len(pipeline.steps)
                )  # with the mask after it, as when the model was pruned
    apply_structure(model, structure)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        saved = state.get(name, tensor)
        if tensor.dim() == saved.dim() and tensor.shape != saved.shape:
            tensor.data = empty(saved.shape, dtype=tensor.dtype, device=tensor.device)
            tensor.grad = None
    release_parameters(model.parameters())
    note_structure(model, structure)


def _load(model: Module, state: StateDict) -> None:
    reshape(model, state)
    own = model.state_dict()
    missing = [name for name in own if name not in state]
    extra = [name for name in state if name not in own]
    ranks = {name: t.dim() for name, t in own.items() if hasattr(t, "dim")}
    odd = [n for n in ranks if n in state and n != KEY and ranks[n] != state[n].dim()]
    if missing or extra or odd:
        raise CheckpointError(
            f"the state dict is not one of this {type(model).__name__}: missing {missing[:5]}, unexpected"
            f" {extra[:5]}, of another rank {odd[:5]}. Make the model that was pruned."
        )
    model.load_state_dict(state)
