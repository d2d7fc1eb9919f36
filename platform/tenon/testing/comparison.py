"""``assert_close``: torch.testing's comparison.

Sequences and mappings must have the same structure; each pair of values in them must be supported by a class
of pairs (``pairs.py``). Only then are values compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tenon import dtypes
from tenon.engine.types import Nested
from tenon.tensors.creation.create import tensor
from tenon.tensors.tensor import Tensor
from tenon.testing.mismatches import default_tolerances
from tenon.testing.pairs import (
    BooleanPair,
    ErrorMeta,
    Message,
    NonePair,
    NumberPair,
    ObjectPair,
    Option,
    Pair,
    Path,
    TensorLikePair,
    UnsupportedInputs,
)

_KINDS = (NonePair, BooleanPair, NumberPair, TensorLikePair)


def assert_close(
    actual: object,
    expected: object,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: Message = None,
) -> None:
    """Raise AssertionError unless ``|actual - expected| <= atol + rtol * |expected|`` for all elements.

    Takes tensors, arrays, numbers, None, and (nested) sequences and mappings of them. ``msg`` replaces the
    message of numbers that differ, or is called with it. The first pair that differs is reported.
    """
    __tracebackhide__ = True
    differences = not_close_error_metas(
        actual,
        expected,
        pair_types=_KINDS,
        allow_subclasses=allow_subclasses,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=check_device,
        check_dtype=check_dtype,
        check_layout=check_layout,
        check_stride=check_stride,
    )
    if differences:
        error = differences[0].to_error(msg)
        del differences  # its tracebacks hold this frame: a reference cycle
        raise error


#: ``rtol`` and ``atol`` of ``assert_allclose``; other dtypes must be equal.
_LOOSER = {dtypes.float16: (1e-3, 1e-3), dtypes.float32: (1e-4, 1e-5), dtypes.float64: (1e-5, 1e-8)}


def assert_allclose(
    actual: object,
    expected: object,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """Compare as PyTorch's former function: with larger tolerances, and tensors of different dtypes too."""
    warnings.warn(
        "`torch.testing.assert_allclose()` is deprecated since 1.12 and will be removed in a future release. "
        "Please use `torch.testing.assert_close()` instead, with check_dtype=False where dtypes differ.",
        FutureWarning,
        stacklevel=2,
    )
    actual = actual if isinstance(actual, Tensor) else tensor(actual)
    expected = expected if isinstance(expected, Tensor) else tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(actual, expected, dtype_precisions=_LOOSER)
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None
    )


def not_close_error_metas(
    actual: object,
    expected: object,
    *,
    pair_types: Sequence[type[Pair]] = (ObjectPair,),
    sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,),
    **options: Option,
) -> list[ErrorMeta]:
    """Return the differences of all pairs; raise if the structures differ or values are not supported."""
    __tracebackhide__ = True
    try:
        pairs = originate_pairs(
            actual,
            expected,
            pair_types=pair_types,
            sequence_types=sequence_types,
            mapping_types=mapping_types,
            **options,
        )
    except ErrorMeta as meta:
        raise meta.to_error() from None
    return [difference for pair in pairs if (difference := _difference(pair)) is not None]


def _difference(pair: Pair) -> ErrorMeta | None:
    """Return the difference between the values of ``pair``; None if they are close."""
    try:
        pair.compare()
    except ErrorMeta as meta:
        return meta.with_traceback(None)
    except Exception as error:
        raise RuntimeError(f"Comparing\n\n{pair}\n\nresulted in the unexpected exception above.") from error
    return None


def originate_pairs(
    actual: Nested,
    expected: Nested,
    *,
    pair_types: Sequence[type[Pair]],
    sequence_types: tuple[type, ...] = (Sequence,),
    mapping_types: tuple[type, ...] = (Mapping,),
    id: Path = (),
    **options: Option,
) -> list[Pair]:
    """Return the pairs of values in two (nested) containers of equal structure, at the position ``id``."""
    a, e = actual, expected
    if all(isinstance(each, sequence_types) and not isinstance(each, str) for each in (a, e)):
        if len(a) != len(e):
            text = f"The length of the sequences mismatch: {len(a)} != {len(e)}"
            raise ErrorMeta(AssertionError, text, id=id)
        keys: Sequence[object] = range(len(a))
    elif all(isinstance(each, mapping_types) for each in (a, e)):
        keys = _common_keys(a, e, id)
    else:
        return [_pair(a, e, pair_types, id, options)]
    pairs = []
    for key in keys:
        pairs += originate_pairs(
            a[key],
            e[key],
            pair_types=pair_types,
            sequence_types=sequence_types,
            mapping_types=mapping_types,
            id=(*id, key),
            **options,
        )
    return pairs


# Keys that can be sorted, or any others.
def _common_keys(actual: Mapping[object, object], expected: Mapping[object, object], id: Path) -> list[Any]:
    """Return the keys of both mappings in order; ErrorMeta if they differ."""
    actual_keys, expected_keys = set(actual.keys()), set(expected.keys())
    if actual_keys != expected_keys:
        text = (
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {sorted(expected_keys - actual_keys, key=str)}\n"
            f"Additional keys in the actual mapping: {sorted(actual_keys - expected_keys, key=str)}"
        )
        raise ErrorMeta(AssertionError, text, id=id)
    try:
        return sorted(actual_keys)
    except TypeError:  # keys without an order keep that of the mapping
        return list(actual.keys())


def _pair(
    actual: object, expected: object, kinds: Sequence[type[Pair]], id: Path, options: dict[str, Option]
) -> Pair:
    """Return the pair of the first of ``kinds`` that supports both values."""
    for kind in kinds:
        try:
            return kind(actual, expected, id=id, **options)
        except UnsupportedInputs:
            continue
        except ErrorMeta:
            raise
        except Exception as error:
            where = "".join(str([item]) for item in id)
            raise RuntimeError(
                f"Originating a {kind.__name__}() at item {where} with\n\n{type(actual).__name__}(): {actual}"
                f"\n\nand\n\n{type(expected).__name__}(): {expected}\n\n"
                "resulted in the unexpected exception above."
            ) from error
    text = f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
    raise ErrorMeta(TypeError, text, id=id)
