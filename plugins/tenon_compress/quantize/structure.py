"""The structure of a quantized model, that is what replaces which layer, and how it is saved.

The structure is one buffer of the model, ``quantized_structure``: JSON text as bytes. It is in the state dict
like any other buffer, so every way of saving a model saves it, and ``load`` gives a new model the same layers
before it loads the values. Nothing is pickled and no class is edited. Names in it are those of layers here
and of schemes that plugins declare; nothing else is looked up.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from tenon import zeros
from tenon.errors import ArgumentError, CheckpointError
from tenon.nn.module import Module
from tenon_compress.quantize.bfloat16_layers import BFLOAT16
from tenon_compress.quantize.layers import (
    DynamicLinear,
    QuantizedEmbedding,
    QuantizedEmbeddingBag,
    QuantizedLayer,
)
from tenon_compress.quantize.recurrent_layers import DYNAMIC
from tenon_compress.quantize.scheme import Decoded, bake, replace, restore_ties, tied_paths
from tenon_compress.quantize.static_layers import Folded, StaticConv, StaticLinear, StaticMaxPool
from tenon_compress.structure_buffer import (
    JsonValue,
    StateDict,
    Structure,
    parse_structure,
    read_buffer,
    write_structure,
)

if TYPE_CHECKING:
    from tenon import Tensor

#: The buffer that holds the structure.
KEY = "quantized_structure"
_LAYERS: dict[str, type[QuantizedLayer]] = {
    c.__name__: c
    for c in (
        *BFLOAT16.values(), DynamicLinear, QuantizedEmbedding, QuantizedEmbeddingBag, *DYNAMIC.values(),
        Folded, StaticConv, StaticLinear, StaticMaxPool,
    )
}  # fmt: skip


def note_structure(model: Module) -> None:
    """Record the quantized layers and weights of ``model`` in its state dict."""
    structure: Structure = {}
    for path, module in model.named_modules():
        if isinstance(module, QuantizedLayer):
            structure[path] = {"layer": type(module).__name__, "numbers": module.numbers()}
        steps = [p.steps[0] for p in module.__dict__.get("_weights", {}).values() if _is_decoded(p)]
        if steps:
            structure[path] = {"weights": [asdict(step) for step in steps]}
    write_structure(model, KEY, structure)


def _is_decoded(pipeline: object) -> bool:
    steps = getattr(pipeline, "steps", None)
    return isinstance(steps, list) and bool(steps) and isinstance(steps[0], Decoded)


def described(model: Module) -> Structure:
    """Return the quantized layers and weights of ``model``, by module path; empty if there are none."""
    return read_buffer(model, KEY)


def load(model: Module, state: StateDict) -> Module:
    """Return a quantized model built from a new ``model`` of the class and the quantized one's state dict.

    ``state`` is ``state_dict()`` of the quantized model, or what ``tenon.load`` read from a file; ``model``
    itself is not changed.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(8, 4), tenon.nn.ReLU())
    >>> small = tenon.quantization.quantize_dynamic(model)
    >>> tenon.quantization.load(model, small.state_dict())[0]
    DynamicLinear(in_features=8, out_features=4, bias=True)
    """
    if not isinstance(state, Mapping) or KEY not in state:
        raise ArgumentError(
            "load takes the state dict of a quantized model; this one does not describe quantized layers."
            " Load it by model.load_state_dict."
        )
    result = copy.deepcopy(model)
    ties = tied_paths(result)
    modules = dict(result.named_modules())
    for path, described in parse_structure(state[KEY], KEY).items():
        module = modules.get(path)
        if module is None:
            raise CheckpointError(
                f"the structure saved is not one of this {type(model).__name__}: it has no '{path}'. Make the"
                " model that was quantized."
            )
        if "layer" in described:
            result = replace(result, path, _construct(described).train(module.training))
            continue
        bake(module)
        for step in described["weights"]:
            lists = {key: tuple(value) for key, value in step.items() if isinstance(value, list)}
            known = {field.name for field in fields(Decoded)}
            step = Decoded(**{key: value for key, value in {**step, **lists}.items() if key in known})
            names = {part: f"{path}.{step.name}_{part}".lstrip(".") for part in step.parts}
            missing = [name for name in names.values() if name not in state]
            if missing or step.name not in module._parameters:
                raise CheckpointError(f"'{path}' cannot be loaded: {missing or step.name} is missing.")
            step.begin(module, {part: zeros_of(state[name]) for part, name in names.items()})
    note_structure(result)
    result._buffers[KEY] = zeros_of(state[KEY])
    result.load_state_dict(state)
    restore_ties(result, ties)
    return result


def zeros_of(tensor: Tensor) -> Tensor:
    """Return zeros of the shape and dtype of ``tensor``."""
    return zeros(tuple(tensor.shape), dtype=tensor.dtype)


def _construct(described: dict[str, JsonValue]) -> QuantizedLayer:
    kind = _LAYERS.get(described["layer"])
    if kind is None:
        raise CheckpointError(
            f"this version of tenon has no quantized layer {described['layer']!r}; it has"
            f" {', '.join(sorted(_LAYERS))}."
            " Load the model with a newer one."
        )
    try:
        layer: QuantizedLayer = kind(**described["numbers"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{described} does not describe a {kind.__name__}: {error}") from error
    return layer
