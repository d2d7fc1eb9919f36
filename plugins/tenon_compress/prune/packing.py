"""``pack``: store only the nonzero elements of sparse linear layers where that is measured to be faster."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tenon import Tensor, no_grad
from tenon.errors import PruningError
from tenon.extend import release_parameters
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon_compress.prune.compaction import bake_masks, check_model
from tenon_compress.prune.packed_linear import WIDEST, PackedLinear
from tenon_compress.prune.structure import note_structure, structure_of
from tenon_compress.receipt import Data, Example, Receipt, call_of, evaluating, receipt_of


def pack(
    model: Module,
    example: Example,
    *,
    batch_sizes: Sequence[int] = (),
    data: Data | None = None,
    at_least: float = 0.9,
    seconds: float = 0.2,
) -> Receipt:
    """Pack linear layers with a share of zeros of ``at_least`` where that is faster; return the receipt.

    A packed layer stores its nonzero elements only. Each is timed with its input for the example, repeated or
    cut to each of ``batch_sizes``, and stays dense unless it is faster packed at all of them; the receipt
    names those that stay dense and is printed. Masks become part of the weights. A packed layer trains its
    stored elements, and ``tenon.prune.load`` loads it. Other arguments are those of ``compact``.

    PruningError if no layer is sparse enough. On any error the model is unchanged.
    """
    check_model(model, "pack")
    args, kwargs = call_of(example)
    masked = copy.deepcopy(model)
    bake_masks(masked)
    layers = {
        p: m for p, m in masked.named_modules() if p and type(m) is Linear and _zero_fraction(m) >= at_least
    }
    layers = {p: m for p, m in layers.items() if m.in_features <= WIDEST and m.weight.raw.dtype == np.float32}
    if not layers:
        shares = [f"{p}: {_zero_fraction(m):.0%}" for p, m in masked.named_modules() if type(m) is Linear]
        raise PruningError(
            f"pack: no linear layer of float32 is {at_least:.0%} zeros ({', '.join(shares[:5]) or 'none'})."
            " Mask more of it first, as mask_weights does."
        )
    inputs_of = _inputs(masked, layers, args, kwargs)
    packed = {path: PackedLinear.of(layer) for path, layer in layers.items()}
    faster, notes = {}, []
    with no_grad():
        for path, layer in layers.items():
            slow = _batch_not_faster(layer, packed[path], inputs_of.get(path), batch_sizes, seconds)
            if slow is None:
                faster[path] = packed[path]
            else:
                notes.append(f"{path} stays dense: it is not faster when packed, at batch {slow}")
    smaller = copy.deepcopy(masked)
    _replace_layers(smaller, faster)
    receipt = receipt_of(
        masked, smaller, example, batch_sizes=batch_sizes, data=data, notes=notes, seconds=seconds
    )
    if faster:
        bake_masks(model)
        _replace_layers(model, faster)
        release_parameters(model.parameters())
    receipt.show()
    return receipt


def _zero_fraction(layer: Linear) -> float:
    """Return the fraction of zeros in the weight."""
    weight = layer.weight.detach().cpu().numpy()
    return float((weight == 0).mean()) if weight.size else 0.0


def _inputs(
    model: Module, layers: dict[str, Linear], args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, Tensor]:
    """Return the input of each layer in a run with the example."""
    inputs_of: dict[str, Tensor] = {}
    handles = [
        layer.register_forward_pre_hook(
            lambda module, inputs, path=path: inputs_of.update((path, x) for x in inputs)
        )
        for path, layer in layers.items()
    ]
    try:
        with evaluating(model), no_grad():
            model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return inputs_of


def _batch_not_faster(
    dense: Linear, packed: PackedLinear, example: Tensor | None, sizes: Sequence[int], seconds: float
) -> int | str | None:
    """Return the batch size at which ``packed`` is no faster (or a reason), None if it is always faster."""
    if example is None:
        return "any: the example does not reach it"
    for size in sizes or (example.shape[0],):
        x = example[[i % example.shape[0] for i in range(size)]]
        best, end = [float("inf")] * 2, time.perf_counter() + seconds / 2
        runs = 0
        while runs < 6 or time.perf_counter() < end:
            for i, layer in enumerate((dense, packed)):
                start = time.perf_counter()
                layer(x)
                best[i] = min(best[i], time.perf_counter() - start)
            runs += 1
        if best[1] >= best[0]:
            return size
    return None


def _replace_layers(model: Module, layers: dict[str, PackedLinear]) -> None:
    """Replace layers of ``model`` by copies of packed ones, and record that in its structure."""
    for path, layer in layers.items():
        model.set_submodule(path, copy.deepcopy(layer))
    structure = structure_of(model)
    for path, layer in layers.items():
        sizes = {"in_features": layer.in_features, "out_features": layer.out_features}
        structure[path] = {**sizes, "packed": layer.values.numel()}
    note_structure(model, structure)
