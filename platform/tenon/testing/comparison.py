"""``assert_close``: torch.testing's comparison, its tolerances and its words.

First the structure: sequences and mappings are taken apart and must match, then each pair must be of a
kind that can be compared. Only then are values compared, and the first pair that differs is reported.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.core.create import as_tensor
from tenon.core.tensor import Tensor

#: dtype -> (rtol, atol); all others must be equal.
DEFAULT_TOLERANCES: dict[Any, tuple[float, float]] = {
    dtypes.float16: (1e-3, 1e-5),
    dtypes.bfloat16: (1.6e-2, 1e-5),
    dtypes.float32: (1.3e-6, 1e-5),
    dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5),
    dtypes.complex128: (1e-7, 1e-7),
}
_NUMBERS = {int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}
Message = str | Callable[[str], str] | None


@dataclass(frozen=True, slots=True)
class Options:
    """What ``assert_close`` was asked for."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool

    def tolerances(self, *kinds: Any) -> tuple[float, float]:
        """The given tolerances, or the loosest default of the dtypes."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        if self.rtol is not None or self.atol is not None:
            missing = "rtol" if self.rtol is None else "atol"
            raise ValueError(
                f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
            )
        found = [DEFAULT_TOLERANCES.get(k, (0.0, 0.0)) for k in kinds]
        return max(r for r, _ in found), max(a for _, a in found)


def assert_close(
    actual: Any,
    expected: Any,
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
    message, or is called with it.
    """
    __tracebackhide__ = True
    options = Options(
        allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride
    )
    for path, a, e in _pairs(actual, expected, (), options, msg):
        problem = _compare(a, e, options)
        if problem:
            raise _failure(AssertionError, problem, path, msg)


def _failure(kind: type[Exception], text: str, path: tuple[Any, ...], msg: Message) -> Exception:
    if isinstance(msg, str):
        return kind(msg)
    if path:
        text += f"\n\nThe failure occurred for item {''.join(str([p]) for p in path)}"
    return kind(msg(text) if msg is not None else text)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _pairs(
    actual: Any, expected: Any, path: tuple[Any, ...], options: Options, msg: Message
) -> list[tuple[tuple[Any, ...], Any, Any]]:
    """All ``(path, actual, expected)`` leaves; an error where the structures or kinds differ."""
    if _is_list(actual) and _is_list(expected):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise _failure(AssertionError, text, path, msg)
        items = [(i, actual[i], expected[i]) for i in range(len(actual))]
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            missing, extra = (
                sorted(s, key=str) for s in (expected.keys() - actual, actual.keys() - expected)
            )
            text = (
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {missing}\n"
                f"Additional keys in the actual mapping: {extra}"
            )
            raise _failure(AssertionError, text, path, msg)
        items = [(k, actual[k], expected[k]) for k in sorted(actual, key=str)]
    else:
        return [(path, *_leaf(actual, expected, path, options, msg))]
    return [pair for key, a, e in items for pair in _pairs(a, e, (*path, key), options, msg)]


def _leaf(
    actual: Any, expected: Any, path: tuple[Any, ...], options: Options, msg: Message
) -> tuple[Any, Any]:
    """Both values as numbers, booleans, None, or tensors."""
    if actual is None or expected is None:
        return actual, expected
    for kinds in ((bool, np.bool_), (int, float, complex, np.number)):
        if isinstance(actual, kinds) and isinstance(expected, kinds):
            return _python(actual), _python(expected)
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    same = type(actual) is type(expected)
    if (same or (related and options.allow_subclasses)) and isinstance(
        actual, (Tensor, np.ndarray, np.generic)
    ):
        return as_tensor(actual), as_tensor(expected)
    text = f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
    raise _failure(TypeError, text, path, msg)


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _compare(actual: Any, expected: Any, options: Options) -> str:
    """What differs, in torch's words; empty if nothing does."""
    if actual is None or expected is None:
        return "" if actual is expected else f"None mismatch: {actual} is not {expected}"
    if isinstance(actual, bool):
        return "" if actual is expected else f"Booleans mismatch: {actual} is not {expected}"
    if isinstance(actual, Tensor):
        return _attributes(actual, expected, options) or _values(actual, expected, options)
    if options.check_dtype and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    rtol, atol = options.tolerances(_NUMBERS[type(actual)], _NUMBERS[type(expected)])
    gap = abs(actual - expected)
    if actual == expected or (cmath.isfinite(gap) and gap <= atol + rtol * abs(expected)):
        return ""
    if options.equal_nan and cmath.isnan(actual) and cmath.isnan(expected):
        return ""
    return _scalar_text(actual, expected, rtol, atol)


def _attributes(actual: Any, expected: Any, options: Options) -> str:
    checks = [("shape", True, actual.shape, expected.shape)]
    checks.append(("layout", options.check_layout, actual.layout, expected.layout))
    if options.check_stride:
        checks.append(("stride()", True, actual.stride(), expected.stride()))
    checks.append(("device", options.check_device, actual.device, expected.device))
    checks.append(("dtype", options.check_dtype, actual.dtype, expected.dtype))
    for name, wanted, a, e in checks:
        if wanted and a != e:
            return f"The values for attribute '{name}' do not match: {a} != {e}."
    return ""


def _values(actual: Any, expected: Any, options: Options) -> str:
    rtol, atol = options.tolerances(actual.dtype, expected.dtype)
    if "meta" in (actual.device.type, expected.device.type):
        return ""
    common = dtypes.promote_types(_signed(actual.dtype), _signed(expected.dtype))
    if actual.dtype == expected.dtype:
        common = actual.dtype
    a, e = (np.asarray(t.detach().cpu().to(common).numpy()) for t in (actual, expected))
    with np.errstate(all="ignore"):
        matches = _close(a, e, rtol, atol, options.equal_nan)
        if matches.all():
            return ""
        if a.ndim == 0:
            return _scalar_text(_number(a), _number(e), rtol, atol)
        return _tensor_text(a, e, matches, rtol, atol)


def _signed(kind: Any) -> Any:
    return dtypes.int64 if kind in (dtypes.uint16, dtypes.uint32, dtypes.uint64) else kind


def _number(array: Any) -> Any:
    return float(array) if array.dtype.kind == "V" else array.item()


def _close(a: Any, e: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    if a.dtype.kind in "biu":
        if rtol == 0 and atol == 0:
            return a == e
        a, e = a.astype(np.float64), e.astype(np.float64)
    elif a.dtype.kind != "c":
        a, e = a.astype(np.float64), e.astype(np.float64)
    gap = np.abs(a - e)
    close = (a == e) | (np.isfinite(gap) & (gap <= atol + np.abs(rtol * e)))
    return close | (np.isnan(a) & np.isnan(e)) if equal_nan else close


def _differences(absolute: str, relative: str, rtol: float, atol: float) -> str:
    if rtol == 0 and atol == 0:
        return f"{absolute}\n{relative}"
    return f"{absolute} (up to {atol} allowed)\n{relative} (up to {rtol} allowed)"


def _scalar_text(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    gap = abs(actual - expected)
    relative = float("inf") if expected == 0 else gap / abs(expected)
    word = "equal" if rtol == 0 and atol == 0 else "close"
    return f"Scalars are not {word}!\n\nExpected {expected} but got {actual}.\n" + _differences(
        f"Absolute difference: {gap}", f"Relative difference: {relative}", rtol, atol
    )


def _tensor_text(a: Any, e: Any, matches: Any, rtol: float, atol: float) -> str:
    wrong, total = int(matches.size - matches.sum()), matches.size
    wide = np.int64 if a.dtype.kind in "biu" else a.dtype
    gap = np.abs(a.astype(wide) - e.astype(wide))
    relative = gap / (np.abs(e.astype(wide)) if wide is not np.int64 else np.abs(e.astype(np.float32)))
    found = []
    for name, each in (("absolute", gap), ("relative", relative)):
        each = np.where(matches, each.dtype.type(0), each)
        place = np.unravel_index(int(np.argmax(each)), each.shape)
        index = tuple(int(i) for i in place)
        found.append(f"Greatest {name} difference: {_number(each[place])} at index {index}")
    word = "equal" if rtol == 0 and atol == 0 else "close"
    head = f"Tensor-likes are not {word}!\n\nMismatched elements: {wrong} / {total} ({wrong / total:.1%})\n"
    return head + _differences(found[0], found[1], rtol, atol)
