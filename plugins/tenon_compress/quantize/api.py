"""``tenon.quantize``: quantize a model in one call, and measure what that costs and gains."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tenon import Tensor
from tenon.errors import QuantizationError
from tenon.extend import CapturedGraph, ExportedProgram, unflatten
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
    """The result of ``quantize``."""

    model: Module
    #: What quantization costs and gains; sizes alone if there was no example.
    receipt: Receipt


def quantize(
    model: Module | CapturedGraph | ExportedProgram,
    spec: str | Scheme,
    calibration: Tensor | Iterable[Example] | None = None,
    *,
    example: Example = None,
    data: Data | None = None,
    batch_sizes: Sequence[int] = (),
    skip: Collection[str] = (),
) -> Quantized:
    """Return a quantized copy of ``model`` and its receipt, which is printed; ``model`` is not changed.

    Of a captured graph, or an exported program, the layers are quantized that ``tenon.export.unflatten``
    finds in it.
    ``spec`` is a scheme or the name of one: "int8-dynamic", "int8", "bfloat16", "int8-weights",
    "int4-weights" and "bfloat16-weights" come with tenon. ``calibration`` is an iterable of what the model is
    called with, which static int8 needs. ``example`` is one such call, for the receipt; the default is the
    first of ``calibration``, and without either the receipt has sizes alone. ``data`` and ``batch_sizes`` are
    those of ``tenon.compress.receipt_of``. Layers whose path is in ``skip``, and all below them, are not
    quantized.

    QuantizationError if a weight is not floating or not finite, if calibration data are missing or do not
    fit, or if there is nothing to quantize.
    """
    scheme = scheme_of(spec)
    if isinstance(model, CapturedGraph | ExportedProgram):
        model = unflatten(model)
    calls = calibration_calls(model, scheme, calibration)
    quantized = converted(model, scheme, calls, skipped(model, skip, "quantize"))
    example = next(iter(calls), None) if example is None else example
    notes = notes_on(quantized)
    receipt = receipt_of(model, quantized, example, data=data, batch_sizes=batch_sizes, notes=notes)
    receipt.show()
    return Quantized(quantized, receipt)


def notes_on(model: Module) -> list[str]:
    """Return notes on the layers of a quantized ``model`` that compute as before, and why."""
    modules = [(path or type(model).__name__, module) for path, module in model.named_modules()]
    decoded = [path for path, module in modules if decodes(module)]
    unmultiplied = [
        path for path, m in modules if isinstance(m, BFloat16Layer) and not m.computes_in_bfloat16
    ]
    notes = {
        "stored as few bits and computed as floats, which is no faster": decoded,
        "stored in bfloat16 and computed as floats, which is no faster, as nothing here multiplies"
        " bfloat16 faster (a CPU needs oneDNN and AVX-512 BF16 or AMX)": unmultiplied,
    }
    return [f"{note}: {_first(paths)}" for note, paths in notes.items() if paths]


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")


def converted(model: Module, scheme: Scheme, calls: Sequence[Example], skip: Collection[str] = ()) -> Module:
    """Return a copy of ``model`` quantized by ``scheme``, except for the paths in ``skip``."""
    check_model(model, "quantize")
    check_unprepared(model, "quantize")
    if KEY in model._buffers:
        raise QuantizationError(f"this {type(model).__name__} is quantized already. Quantize the original.")
    result = copy.deepcopy(model)
    for path, module in result.named_modules():
        if path not in skip:
            check_weights(path, module)
            bake(module)
    ties = tied_paths(result)
    if isinstance(scheme, StaticScheme):
        result, count = convert(result, calls, skip, scheme)
    else:
        result, count = _by_layer(result, scheme, skip)
    if not count:
        raise QuantizationError(
            f"this {type(model).__name__} has no layer that {scheme.name} quantizes"
            f"{' beside what is skipped' if skip else ''}."
        )
    restore_ties(result, ties)
    note_structure(result)
    return result


def _by_layer(model: Module, scheme: Scheme, skip: Collection[str]) -> tuple[Module, int]:
    """Replace the layers of ``model`` one by one; return the model and the number of quantized layers."""
    count = 0
    for path, module in list(model.named_modules()):
        try:
            new = None if path in skip else scheme.layer(module)
        except QuantizationError as error:
            raise QuantizationError(f"'{path}': {error}" if path else str(error)) from error
        count += new is not None
        if new is not None and new is not module:
            model = replace(model, path, new)
    return model, count


def calibration_calls(
    model: Module, scheme: Scheme, calibration: Tensor | Iterable[Example] | None
) -> list[Example]:
    """Return ``calibration`` as a list of calls, of which a tensor is one; QuantizationError if missing."""
    iterable = (
        () if calibration is None else (calibration,) if isinstance(calibration, Tensor) else calibration
    )
    if isinstance(iterable, (str, Mapping)) or not isinstance(iterable, Iterable):
        raise QuantizationError(
            f"calibration is a sequence of what this {type(model).__name__} is called with, not a"
            f" {type(calibration).__name__}: pass [example, ...]."
        )
    calls = list(iterable)
    if scheme.calibrates and not calls:
        raise QuantizationError(
            f"{scheme.name} needs calibration data, and there is none: give a sequence of inputs that this"
            f" {type(model).__name__} is called with, some hundred examples in all."
        )
    return calls
