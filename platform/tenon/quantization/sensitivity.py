"""Which layers lose by being quantized, and what to keep: one layer at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tenon.compress import Receipt
from tenon.compress.receipt import NOISE, call_of, difference, evaluating
from tenon.core.grad_mode import no_grad
from tenon.errors import QuantizationError
from tenon.nn.module import Module
from tenon.quantization.api import Quantized, calibration_calls, check_skip, converted, quantize
from tenon.quantization.scheme import Scheme, scheme_of
from tenon.quantization.structure import described


def sensitivity(
    model: Module, spec: str | Scheme, calibration: Any = None, *, example: Any = None
) -> dict[str, float]:
    """How much the output on ``example`` changes if only the layer at a path is quantized, most first.

    ``example`` is the first of ``calibration`` if there is none.
    """
    scheme = scheme_of(spec)
    check_skip(model, ())
    calls = calibration_calls(model, scheme, calibration)
    args, kwargs = call_of(_example(calls, example))
    paths = _layers(converted(model, scheme, calls))
    found = {}
    with evaluating(model), no_grad():
        expected = model(*args, **kwargs)
        for path in paths:
            made = converted(model, scheme, calls, [each for each in paths if each != path])
            with evaluating(made):
                found[path] = difference(expected, made(*args, **kwargs))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def quantize_within(
    model: Module,
    spec: str | Scheme,
    calibration: Any = None,
    *,
    data: Any = None,
    most_lost: float | None = None,
    keep_slow: bool = False,
    example: Any = None,
    batch_sizes: Sequence[int] = (),
    skip: Collection[str] = (),
) -> Quantized:
    """As ``tenon.quantize``, but layers that lose stay as they were; the receipt's notes name them.

    A layer stays if it is slower than before at every batch size, unless ``keep_slow``; then the most
    sensitive ones stay, one after the other, until the accuracy on ``data`` is at most ``most_lost`` below the
    model's.
    """
    if most_lost is not None and data is None:
        raise QuantizationError("most_lost is a loss of accuracy, which takes data: give (inputs, labels).")
    calls = calibration_calls(model, scheme_of(spec), calibration)
    example, kept = _example(calls, example), set(skip)
    notes: list[str] = []

    def attempt() -> Quantized:
        if not _layers_left(model, spec, calls, kept):
            raise QuantizationError(
                f"no layer of this {type(model).__name__} gains by {scheme_of(spec).name}:"
                f" {'; '.join(notes)}."
            )
        return quantize(
            model, spec, calls or None, example=example, data=data, batch_sizes=batch_sizes, skip=kept
        )

    found = attempt()
    slow = [] if keep_slow else _slow(found)
    if slow:
        kept |= set(slow)
        notes += [f"'{path}' stays: it was slower after quantization" for path in slow]
        found = attempt()
    ranked: list[str] = []
    while most_lost is not None and _lost(found.receipt) > most_lost:
        if not ranked:
            report = sensitivity(model, spec, calls or None, example=example)
            ranked = [path for path in report if path not in kept]
        path = ranked.pop(0)
        kept.add(path)
        notes.append(f"'{path}' stays: the accuracy fell by {_lost(found.receipt):.4f} with it quantized")
        found = attempt()
    assert found.receipt is not None
    return Quantized(
        found.model, Receipt(**{**_fields(found.receipt), "notes": (*found.receipt.notes, *notes)})
    )


def _example(calls: Sequence[Any], example: Any) -> Any:
    if example is None and not calls:
        raise QuantizationError("an example of what the model is called with is needed: give example.")
    return calls[0] if example is None else example


def _layers(model: Module) -> list[str]:
    """Paths of quantized layers, without those that only pass steps on."""
    return [p for p, d in described(model).items() if d.get("layer") not in ("Folded", "StaticMaxPool")]


def _layers_left(model: Module, spec: Any, calls: Sequence[Any], kept: Collection[str]) -> bool:
    try:
        return bool(_layers(converted(model, scheme_of(spec), calls, kept)))
    except QuantizationError:
        if not kept:
            raise
        return False


def _slow(found: Quantized) -> list[str]:
    layers, receipt = set(_layers(found.model)), found.receipt
    assert receipt is not None
    rows = (receipt.total,) if "" in layers else receipt.rows
    return [
        row.path
        for row in rows
        if row.path in layers and row.seconds and all(c.ratio > 1 + NOISE for c in row.seconds.values())
    ]


def _lost(receipt: Receipt | None) -> float:
    assert receipt is not None and receipt.accuracy is not None
    return receipt.accuracy.before - receipt.accuracy.after


def _fields(receipt: Receipt) -> dict[str, Any]:
    return {name: getattr(receipt, name) for name in receipt.__dataclass_fields__}
