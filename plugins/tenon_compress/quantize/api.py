"""``tenon.quantize``: one call from a model to a smaller one, and what that costs and gains."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tenon import Tensor
from tenon.errors import QuantizationError
from tenon.nn.module import Module
from tenon_compress.quantize.bfloat16_layers import BFloat16Layer
from tenon_compress.quantize.scheme import (
    Scheme,
    bake,
    check_model,
    check_unprepared,
    check_weights,
    decodes,
    replace,
    restore_ties,
    scheme_of,
    skipped,
    tied_paths,
)
from tenon_compress.quantize.static import StaticScheme, convert
from tenon_compress.quantize.structure import KEY, note_structure
from tenon_compress.receipt import Data, Example, Receipt, receipt_of


class Quantized(NamedTuple):
    """What ``quantize`` returns."""

    model: Module
    #: What it costs and gains; nothing was run where there was no example.
    receipt: Receipt


def quantize(
    model: Module,
    spec: str | Scheme,
    calibration: Tensor | Iterable[Example] | None = None,
    *,
    example: Example = None,
    data: Data | None = None,
    batch_sizes: Sequence[int] = (),
    skip: Collection[str] = (),
) -> Quantized:
    """A quantized copy of ``model`` and its receipt, which is printed; ``model`` stays as it is.

    ``spec`` names a scheme ("int8-dynamic", "int8", "bfloat16", "int8-weights", "int4-weights",
    "bfloat16-weights" come with tenon) or is one. ``calibration`` is a sequence of what the model is called
    with, as static int8 needs it. ``example`` is one such call, for the receipt; without it the first of
    ``calibration``, and without either the receipt has sizes alone. ``data`` and ``batch_sizes`` are the
    receipt's: see ``tenon.compress.receipt_of``. Layers whose path is in ``skip``, or begins with one, stay.

    QuantizationError where a weight has no floats or numbers that are not finite, where calibration is
    missing or does not fit, where there is nothing to quantize.
    """
    scheme = scheme_of(spec)
    calls = calibration_calls(model, scheme, calibration)
    made = converted(model, scheme, calls, skipped(model, skip, "quantize"))
    example = next(iter(calls), None) if example is None else example
    notes = notes_on(made)
    receipt = receipt_of(model, made, example, data=data, batch_sizes=batch_sizes, notes=notes)
    receipt.show()
    return Quantized(made, receipt)


def notes_on(model: Module) -> list[str]:
    """Which layers of a quantized ``model`` are smaller and compute as before, and why."""
    modules = [(path or type(model).__name__, module) for path, module in model.named_modules()]
    decoded = [path for path, module in modules if decodes(module)]
    unmultiplied = [path for path, m in modules if isinstance(m, BFloat16Layer) and not m.multiplies]
    said = {
        "stored as few bits and computed as floats, so smaller but no faster": decoded,
        "stored in bfloat16 and computed as floats, so smaller but no faster, as nothing here multiplies"
        " bfloat16 faster (a CPU needs oneDNN and AVX-512 BF16 or AMX)": unmultiplied,
    }
    return [f"{what}: {_first(paths)}" for what, paths in said.items() if paths]


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


def converted(model: Module, scheme: Scheme, calls: Sequence[Example], skip: Collection[str] = ()) -> Module:
    """A quantized copy of ``model``."""
    check_model(model, "quantize")
    check_unprepared(model, "quantize")
    if KEY in model._buffers:
        raise QuantizationError(f"this {type(model).__name__} is quantized already. Quantize the original.")
    made = copy.deepcopy(model)
    for path, module in made.named_modules():
        if path not in skip:
            check_weights(path, module)
            bake(module)
    ties = tied_paths(made)
    if isinstance(scheme, StaticScheme):
        made, found = convert(made, calls, skip, scheme)
    else:
        made, found = _by_layer(made, scheme, skip)
    if not found:
        raise QuantizationError(
            f"there is nothing in this {type(model).__name__} that {scheme.name} quantizes"
            f"{' beside what is skipped' if skip else ''}."
        )
    restore_ties(made, ties)
    note_structure(made)
    return made


def _by_layer(model: Module, scheme: Scheme, skip: Collection[str]) -> tuple[Module, int]:
    found = 0
    for path, module in list(model.named_modules()):
        try:
            new = None if path in skip else scheme.layer(module)
        except QuantizationError as error:
            raise QuantizationError(f"'{path}': {error}" if path else str(error)) from error
        found += new is not None
        if new is not None and new is not module:
            model = replace(model, path, new)
    return model, found


def calibration_calls(
    model: Module, scheme: Scheme, calibration: Tensor | Iterable[Example] | None
) -> list[Example]:
    """``calibration`` as a list, a tensor being one call; QuantizationError where it is none or missing."""
    given = () if calibration is None else (calibration,) if isinstance(calibration, Tensor) else calibration
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise QuantizationError(
            f"calibration is a sequence of what this {type(model).__name__} is called with, not a"
            f" {type(calibration).__name__}: give [example, ...]."
        )
    calls = list(given)
    if scheme.calibrates and not calls:
        raise QuantizationError(
            f"{scheme.name} needs calibration data, and there is none: give a sequence of inputs that this"
            f" {type(model).__name__} is called with, some hundred examples in all."
        )
    return calls
