"""Every function of the catalogue with operands of other dtypes and kinds, in both libraries.

Run ``python tests/parity/dtype_sweep.py --help`` for the whole sweep. A variation of a case says, per operand, which
dtype it has, that it is 0-d, or which Python number or NumPy scalar stands in its place.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from parity.catalogue import Case
from parity.functions import FAMILIES, SEED
from parity.sides import TOLERANCE, Side, find, flat, is_spec, loss, make, parts

import tenon

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
)
FEW = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "complex64")
NUMBERS = (
    True,
    2,
    -1,
    2.5,
    1 + 2j,
    np.bool_(True),
    np.uint8(2),
    np.int64(2),
    np.float16(2.5),
    np.float32(2.5),
    np.float64(2.5),
    np.complex64(1 + 2j),
)
FLOATING = "fpuqsczd"


@dataclass(frozen=True)
class Operand:
    """What an operand is in a variation."""

    dtype: str
    scalar: bool = False  # 0-d
    large: bool = False  # beyond what squares of the dtype hold
    number: Any = None  # stands for the tensor

    def __str__(self) -> str:
        if self.number is not None:
            kind = type(self.number).__name__
            return f"{kind}({self.number})" if isinstance(self.number, np.generic) else repr(self.number)
        return f"{'large ' * self.large}{self.dtype}{' 0-d' * self.scalar}"


class Varied(Side):
    """A side whose operand ``i`` is ``operands[i]`` where that is not None."""

    def __init__(self, lib: Any, operands: tuple[Operand | None, ...]) -> None:
        super().__init__(lib, "float32")
        self.operands = operands

    def tensor(self, spec: str) -> Any:
        operand = self.operands[self.count] if self.count < len(self.operands) else None
        if operand is None:
            return super().tensor(spec)
        self.count += 1
        if operand.number is not None:
            return operand.number
        array = values_of(make(spec, self.count), spec[0], operand)
        tensor = self.lib.from_numpy(array.copy()).to(getattr(self.lib, operand.dtype))
        if spec[1] != "!" and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            tensor.requires_grad_()
            self.leaves.append(tensor)
        return tensor


def values_of(x: np.ndarray, kind: str, operand: Operand) -> np.ndarray:
    """``x`` drawn for ``kind`` as numbers that ``operand.dtype`` holds exactly, large ones if it asks for them."""
    if operand.scalar:
        x = np.asarray(x.reshape(-1)[0] if x.size else np.asarray(1, x.dtype))
    dtype = operand.dtype
    if kind not in FLOATING:
        if dtype == "bool":
            return np.asarray(x % 2 == 1)
        if dtype == "uint8":
            return np.asarray(np.abs(x.astype(np.int64)), np.uint8)
        whole = dtype[0] in "iu" and not (x < 0).any()
        return np.asarray(x, dtype if whole or dtype[0] == "c" else "float32")
    if dtype == "complex64":
        if kind == "d" and x.ndim > 1:
            return np.asarray(x + 0.5j * (np.triu(x, 1) - np.swapaxes(np.triu(x, 1), -1, -2))).astype(dtype)
        return np.asarray(x + 0.5j * x[::-1] if x.ndim else x + 0.25j).astype(dtype)
    x = x.real if np.iscomplexobj(x) else x
    if dtype == "bool":
        return np.asarray(np.nan_to_num(x) > 0)
    if dtype[0] in "iu":
        x = np.nan_to_num(x, nan=3, posinf=4, neginf=-4)
        top = np.iinfo(dtype).max if dtype in ("uint8", "int8") else 30_000
        whole = np.rint(x * (top / 3 if operand.large else 3)).clip(-top, top)
        if kind in "pqd":
            whole = np.where(whole == 0, 1, whole)
        whole = np.abs(whole) if dtype == "uint8" else whole
        return np.asarray(np.sort(whole) if kind == "s" and whole.ndim else whole).astype(dtype)
    if operand.large:
        x = x * 200
    return np.asarray(x).astype({"float16": "float16", "float64": "float64"}.get(dtype, "float32"))


def slots(value: Any) -> Iterator[str]:
    """The operands of a call, in the order in which a side builds them."""
    if is_spec(value):
        yield value
    elif isinstance(value, str) and value.partition(":")[0] in ("constant", "dense"):
        yield from slots(value.partition(":")[2])
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from slots(v)
    elif isinstance(value, dict) and "layer" not in value:
        for v in value.values():
            yield from slots(v)


def call_of(case: Case) -> Any:
    return case.content["call"] if isinstance(case.content, dict) and "call" in case.content else case.content


def variations(case: Case) -> Iterator[tuple[Operand | None, ...]]:
    """The checks of a case: all for the first case of a name, and the dtypes that all share for the others."""
    kinds = [s[0] for s in slots(call_of(case))]
    if not kinds:
        return
    floating = [k in FLOATING for k in kinds]

    def all_of(operand: Operand) -> tuple[Operand | None, ...]:
        return tuple(operand if f else None for f in floating)

    if any(floating):
        for dtype in DTYPES:
            yield all_of(Operand(dtype))
        for dtype in ("uint8", "int8", "int16", "float16", "bfloat16"):
            yield all_of(Operand(dtype, large=True))
    for index, f in enumerate(floating[:4]):
        if not f:
            for dtype in DTYPES:
                yield (None,) * index + (Operand(dtype),)
    if case.number:
        return
    pairs = next(
        (
            (i, j)
            for i, j in itertools.combinations(range(min(len(kinds), 4)), 2)
            if floating[i] == floating[j] and kinds[i] != "k" and kinds[j] != "k"
        ),
        None,
    )
    if pairs:
        i, j = pairs
        for left, right in itertools.product(DTYPES, DTYPES):
            for zero in ((), (j,), (i,)):
                found: list[Operand | None] = [None] * len(kinds)
                found[i], found[j] = Operand(left, i in zero), Operand(right, j in zero)
                if left != right or zero:
                    yield tuple(found)
    for index in range(min(len(kinds), 3)):
        for number, dtype in itertools.product(NUMBERS, FEW):
            found = [Operand(dtype) if f == floating[index] else None for f in floating]
            found[index] = Operand(dtype, number=number)
            yield tuple(found)


class Outcome:
    """The outcome of a call in one library: parts of the result, gradients, second gradients, or an error."""

    def __init__(
        self,
        lib: Any,
        case: Case,
        operands: tuple[Operand | None, ...],
        compiled: bool = False,
        side: type[Varied] = Varied,
    ) -> None:
        side = side(lib, operands)
        self.error: Exception | None = None
        self.no_gradient: Exception | None = None
        self.parts: dict[str, list[Any]] = {}
        lib.manual_seed(SEED)
        try:
            results = flat(_called(side, case.name, *parts(call_of(case)), compiled))
        except Exception as error:
            self.error = error
            return
        if isinstance(case.content, dict) and case.content.get("up_to") == "sign":
            results = [r.abs() for r in results]
        self.parts["result"] = [_read(r) for r in results]
        if isinstance(case.content, dict) and case.content.get("gradients") is False:
            return
        try:
            leaves = [x for x in side.leaves if x.requires_grad]
            # A program's backward pass has no graph of its own.
            for what in ("gradient",) if compiled else ("gradient", "second gradient"):
                total = loss(lib, results)
                if total is None or not total.requires_grad:
                    return
                results = lib.autograd.grad(total, leaves, create_graph=not compiled, allow_unused=True)
                self.parts[what] = [_read(g) for g in results]
                results = [g for g in results if g is not None]
        except Exception as error:
            self.no_gradient = error


def _called(side: Side, name: str, args: list[Any], kwargs: dict[str, Any], compiled: bool) -> list[Any]:
    """As in ``parity.functions``; ``compiled`` by ``tenon.compile``, whose fourth call replays the program."""
    short = name.rpartition(".")[2]
    args, kwargs = list(side.build(list(args))) if args else [], side.build(kwargs)
    writes = (short.endswith("_") and not short.endswith("__")) or kwargs.get("inplace")
    method = name.startswith("Tensor.")

    def call(*args: Any, **kwargs: Any) -> Any:
        if writes and hasattr(args[0], "clone"):
            args = (args[0].clone(), *args[1:])
        if method:
            found = getattr(args[0], short)
            result = found(*args[1:], **kwargs) if callable(found) else found
        else:
            result = find(side.lib, name)(*args, **kwargs)
        return [result, args[0]] if writes else [result]

    if compiled:
        call = tenon.compile(call)
        for _ in range(4):
            side.lib.manual_seed(SEED)
            result = call(*args, **kwargs)
        return result
    return call(*args, **kwargs)


def _read(value: Any) -> Any:
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach()
    if tensor.is_sparse if hasattr(tensor, "is_sparse") else False:
        tensor = tensor.to_dense()
    name = str(tensor.dtype).partition(".")[2]
    if name in ("bfloat16", "complex32"):
        tensor = tensor.float() if name == "bfloat16" else tensor.cfloat()
    if hasattr(tensor, "resolve_conj"):
        tensor = tensor.resolve_conj().resolve_neg()
    return name, tuple(tensor.shape), tensor.numpy(force=True)


def compare(
    torch: Any, case: Case, operands: tuple[Operand | None, ...], compiled: bool = False
) -> tuple[str, str] | None:
    """What differs, as (kind, words); None if nothing does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Outcome(torch, case, operands)
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        ours = Outcome(tenon, case, operands, compiled)
    if isinstance(ours.error or ours.no_gradient, np.exceptions.ComplexWarning):
        return "drops imaginary parts", _text(ours.error or ours.no_gradient)
    if theirs.error is not None:
        if ours.error is None:
            return "computes", f"{type(theirs.error).__name__}: {_first(theirs.error)}"
        family = next((f for f in FAMILIES if isinstance(theirs.error, f)), Exception)
        if not isinstance(ours.error, family):
            return "error", f"{_text(ours.error)} | torch {_text(theirs.error)}"
        return None
    if ours.error is not None:
        return "refuses", _text(ours.error)
    names = [str(o.dtype) for o in operands if o is not None and o.number is None]
    for what, expected in theirs.parts.items():
        if compiled and what == "second gradient":
            break
        found = ours.parts.get(what)
        if found is None:
            if ours.no_gradient is not None:
                return f"refuses {what}", _text(ours.no_gradient)
            return f"no {what}", ""
        difference = _difference(found, expected, names, 1 if what == "result" else 10)
        if difference:
            return f"{difference[0]} of {what}", difference[1]
    more = set(ours.parts) - set(theirs.parts)
    return (
        (f"computes {min(more)}", _text(theirs.no_gradient) if theirs.no_gradient else "") if more else None
    )


def _difference(
    found: list[Any], expected: list[Any], names: list[str], factor: int
) -> tuple[str, str] | None:
    if len(found) != len(expected):
        return "shape", f"{len(found)} parts, torch has {len(expected)}"
    for a, b in zip(found, expected, strict=True):
        if not isinstance(b, tuple) or not isinstance(a, tuple) or len(b) != 3:
            if not (
                a == b
                or str(a) == str(b)
                or (isinstance(b, float) and np.allclose(a, b, 1e-2, equal_nan=True))
            ):
                return "values", f"{str(a)[:60]}, torch {str(b)[:60]}"
            continue
        if a[0] != b[0]:
            return "dtype", f"{a[0]}, torch {b[0]}"
        if a[1] != b[1]:
            return "shape", f"{a[1]}, torch {b[1]}"
        tolerance = (
            max((TOLERANCE.get(n, 0) for n in [*names, "float32", a[0]] if n != "float64"), default=0)
            * factor
        )
        x, y = a[2], b[2]
        if x.dtype.kind in "biu":
            if np.array_equal(x, y):
                continue
        else:
            finite = y[np.isfinite(y)]
            scale = float(np.abs(finite).max()) if finite.size else 1.0
            with np.errstate(all="ignore"):
                if np.allclose(
                    x,
                    y,
                    rtol=2 * tolerance,
                    atol=2 * tolerance * min(scale, 1e30) + 2e-6 * factor,
                    equal_nan=True,
                ):
                    continue
        wrong = (
            np.argwhere(~np.isclose(x, y, rtol=tolerance, equal_nan=True))
            if x.dtype.kind != "b"
            else np.argwhere(x != y)
        )
        at = tuple(wrong[0]) if len(wrong) else ()
        return "values", f"{x[at]}, torch {y[at]} at {at}"
    return None


def _first(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:160]


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {_first(error)}"
