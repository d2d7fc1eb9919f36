"""The structure of a quantized model, and how it is saved: what takes the place of which layer.

Structure is one buffer of the model, ``quantized_structure``: a JSON text as bytes. It lies in the state dict
like any other buffer, so every way of saving a model saves it, and ``load`` gives a freshly made model the
same layers before it loads. Nothing is pickled and no class is edited. Names in it are those of layers here
and of schemes that plugins declare; nothing else is looked up.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

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
from tenon_compress.structure_buffer import Structure, note, noted, read

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
    """Let the state dict of ``model`` say what its quantized layers and weights are."""
    found: Structure = {}
    for path, module in model.named_modules():
        if isinstance(module, QuantizedLayer):
            found[path] = {"layer": type(module).__name__, "numbers": module.numbers()}
        steps = [p.steps[0] for p in module.__dict__.get("_weights", {}).values() if _is_decoded(p)]
        if steps:
            found[path] = {"weights": [asdict(step) for step in steps]}
    note(model, KEY, found)


def _is_decoded(pipeline: object) -> bool:
    steps = getattr(pipeline, "steps", None)
    return isinstance(steps, list) and bool(steps) and isinstance(steps[0], Decoded)


def described(model: Module) -> Structure:
    """What is quantized in ``model``, by module path; empty if nothing is."""
    return noted(model, KEY)


def load(model: Module, state: Mapping[str, Any]) -> Module:
    """A quantized model from ``model``, as its class makes it, and the quantized one's state dict.

    ``state`` is ``state_dict()`` of the quantized model, or what ``tenon.load`` made of the file; ``model``
    itself stays as it is.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(8, 4), tenon.nn.ReLU())
    >>> small = tenon.quantization.quantize_dynamic(model)
    >>> tenon.quantization.load(model, small.state_dict())[0]
    DynamicLinear(in_features=8, out_features=4, bias=True)
    """
    if not isinstance(state, Mapping) or KEY not in state:
        raise ArgumentError(
            "load takes the state dict of a quantized model; this one holds no structure of one. Load it by"
            " model.load_state_dict."
        )
    made = copy.deepcopy(model)
    ties = tied_paths(made)
    modules = dict(made.named_modules())
    for path, described in read(state[KEY], KEY).items():
        module = modules.get(path)
        if module is None:
            raise CheckpointError(
                f"the structure saved is not one of this {type(model).__name__}: it has no '{path}'. Make the"
                " model that was quantized."
            )
        if "layer" in described:
            made = replace(made, path, _made(described).train(module.training))
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
    note_structure(made)
    made._buffers[KEY] = zeros_of(state[KEY])
    made.load_state_dict(state)
    restore_ties(made, ties)
    return made


def zeros_of(given: Tensor) -> Tensor:
    """A tensor as ``given``, to be loaded into."""
    return zeros(tuple(given.shape), dtype=given.dtype)


def _made(described: dict[str, Any]) -> QuantizedLayer:
    kind = _LAYERS.get(described["layer"])
    if kind is None:
        raise CheckpointError(
            f"this tenon has no quantized layer {described['layer']!r}; it has {', '.join(sorted(_LAYERS))}."
            " Load the model with a newer one."
        )
    try:
        made: QuantizedLayer = kind(**described["numbers"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{described} describes no {kind.__name__}: {error}") from error
    return made
