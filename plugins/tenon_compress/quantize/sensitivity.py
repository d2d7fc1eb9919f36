"""The sensitivity of each layer to quantization, and quantization within a loss of accuracy."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from tenon import no_grad
from tenon.errors import QuantizationError
from tenon.nn.module import Module
from tenon_compress.quantize.api import Quantized, calibration_calls, converted, notes_on
from tenon_compress.quantize.scheme import Scheme, scheme_of, skipped
from tenon_compress.quantize.structure import described
from tenon_compress.receipt import NOISE, Data, Example, Receipt, call_of, difference, evaluating, receipt_of

if TYPE_CHECKING:
    from tenon import Tensor


def sensitivity(
    model: Module,
    spec: str | Scheme,
    calibration: Tensor | Iterable[Example] | None = None,
    *,
    example: Example = None,
) -> dict[str, float]:
    """Return how much the output on ``example`` changes if only the layer at a path is quantized, most first.

    The default of ``example`` is the first of ``calibration``.
    """
    scheme = scheme_of(spec)
    calls = calibration_calls(model, scheme, calibration)
    args, kwargs = call_of(_example(calls, example))
    paths = _layers(converted(model, scheme, calls))
    changes = {}
    with evaluating(model), no_grad():
        expected = model(*args, **kwargs)
        for path in paths:
            quantized = converted(model, scheme, calls, [each for each in paths if each != path])
            with evaluating(quantized):
                changes[path] = difference(expected, quantized(*args, **kwargs))
    return dict(sorted(changes.items(), key=lambda item: -item[1]))


def quantize_within(
    model: Module,
    spec: str | Scheme,
    calibration: Tensor | Iterable[Example] | None = None,
    *,
    data: Data | None = None,
    most_lost: float | None = None,
    keep_slow: bool = False,
    example: Example = None,
    batch_sizes: Sequence[int] = (),
    skip: Collection[str] = (),
) -> Quantized:
    """Quantize as ``tenon.quantize``, except for layers that lose by it, which the receipt's notes name.

    A layer is left unquantized if it is slower than before at every batch size, unless ``keep_slow``, or
    unless the model is slower without it, as neighbouring layers then have to convert. Then the most
    sensitive layers are left, one after the other, until the accuracy on ``data`` is at most ``most_lost``
    below the model's.
    """
    if most_lost is not None and not most_lost >= 0:
        raise QuantizationError(f"most_lost is a loss of accuracy, 0 or more, got {most_lost}.")
    if most_lost is not None and data is None:
        raise QuantizationError("most_lost is a loss of accuracy, which takes data: give (inputs, labels).")
    scheme = scheme_of(spec)
    calls = calibration_calls(model, scheme, calibration)
    skip = skipped(model, skip, "quantize_within")
    example, unquantized = _example(calls, example), set(skip)
    notes: list[str] = []

    def attempt() -> tuple[Module, Receipt]:
        if notes and not unquantized < _quantizable(model, scheme, calls, skip):
            raise QuantizationError(f"no layer of this {type(model).__name__} gains: {'; '.join(notes)}.")
        quantized = converted(model, scheme, calls, unquantized)
        all_notes = [*notes, *notes_on(quantized)]
        return quantized, receipt_of(
            model, quantized, example, data=data, batch_sizes=batch_sizes, notes=all_notes
        )

    quantized, receipt = attempt()
    slow = [] if keep_slow else _slow(quantized, receipt)
    if slow:
        first, before = (quantized, receipt), set(unquantized)
        unquantized |= set(slow)
        notes += [f"'{path}' stays: it was slower after quantization" for path in slow]
        quantized, receipt = attempt()
        if _seconds(receipt) > _seconds(first[1]):
            unquantized = before
            notes[:] = [f"'{path}' is slower by itself, but the model is not" for path in slow]
            quantized, all_notes = first[0], (*notes, *notes_on(first[0]))
            receipt = dataclasses.replace(first[1], notes=all_notes)
    ranked: list[str] = []
    while most_lost is not None and _lost(receipt) > most_lost:
        if not ranked:
            report = sensitivity(model, scheme, calls or None, example=example)
            ranked = [path for path in report if path not in unquantized]
        path = ranked.pop(0)
        unquantized.add(path)
        notes.append(f"'{path}' stays: the accuracy fell by {_lost(receipt):.4f} with it quantized")
        quantized, receipt = attempt()
    receipt.show()
    return Quantized(quantized, receipt)


def _example(calls: Sequence[Example], example: Example) -> Example:
    if example is None and not calls:
        raise QuantizationError("an example of what the model is called with is needed: give example.")
    return calls[0] if example is None else example


def _layers(model: Module) -> list[str]:
    """Return the paths of quantized layers, without those that only pass quantized values on."""
    return [p for p, d in described(model).items() if d.get("layer") not in ("Folded", "StaticMaxPool")]


def _quantizable(model: Module, scheme: Scheme, calls: Sequence[Example], skip: Collection[str]) -> set[str]:
    return {*_layers(converted(model, scheme, calls, skip)), *skip}


def _slow(model: Module, receipt: Receipt) -> list[str]:
    """Return the paths of quantized layers that are slower than before at every batch size."""
    layers = set(_layers(model))
    rows = (receipt.total,) if "" in layers else receipt.rows
    return [
        row.path
        for row in rows
        if row.path in layers and row.seconds and all(c.ratio > 1 + NOISE for c in row.seconds.values())
    ]


def _seconds(receipt: Receipt) -> float:
    return sum(change.after for change in receipt.total.seconds.values())


def _lost(receipt: Receipt) -> float:
    assert receipt.accuracy is not None
    return receipt.accuracy.before - receipt.accuracy.after
