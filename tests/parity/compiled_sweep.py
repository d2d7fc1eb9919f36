"""Every function with operands of other dtypes and kinds, compiled: its program computes what the function does.

``python tests/parity/compiled_sweep.py --every 1`` makes all calls, which takes an hour: a call of the dtype sweep, or one
of the forms of ``forms`` (into ``out=``, with ``dtype=``, of empty tensors, of tensors that lie transposed in
memory), is made in eager mode, then four times by ``tenon.compile``, of which the fourth replays the program. A fifth has other
values. Results, gradients and second derivatives are compared: dtype, shape, values within rounding, and errors.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from parity.catalogue import Case, read
from parity.dtype_sweep import DTYPES, FLOATING, SEED, Operand, Varied, call_of, slots, values_of, variations
from parity.functions import emptied
from parity.sides import find, flat, loss, make, parts

import tenon
from tenon.errors import TenonError
from tenon.kernels.backend import backend_named

#: Units in the last place, of the largest element, that a program may be away from eager mode: it fuses ops, and so
# rounds less often.
UNITS = 16
#: Spacing of numbers around 1.
SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23}


@dataclass(frozen=True)
class Call:
    """A call of the sweep: ``form`` is how the case is changed."""

    case: Case
    operands: tuple[Operand | None, ...]
    form: str = "plain"

    def __str__(self) -> str:
        shown = ", ".join("its own" if o is None else str(o) for o in self.operands)
        return f"{self.case} of {shown}" + f" [{self.form}]" * (self.form != "plain")


class Operands(Varied):
    """The operands of a call in one of its forms; ``shift`` draws other values."""

    def __init__(self, call: Call, shift: int) -> None:
        super().__init__(tenon, call.operands)
        self.shift, self.strided = shift, call.form == "strided"

    def tensor(self, spec: str) -> Any:
        operand = self.operands[self.count] if self.count < len(self.operands) else None
        self.count += 1
        if operand is not None and operand.number is not None:
            return operand.number
        array = make(spec, self.count + self.shift)
        if operand is not None:
            array = values_of(array, spec[0], operand)
        if self.strided and array.ndim:
            array = np.repeat(array, 2, -1)
        tensor = tenon.from_numpy(array.copy())
        if self.strided and array.ndim:
            tensor = tensor[..., ::2]
        if operand is not None:
            tensor = tensor.to(getattr(tenon, operand.dtype))
        elif spec[0] not in "ikb":
            tensor = tensor.to(tenon.complex64 if spec[0] == "c" else tenon.float32)
        if self.strided and array.ndim > 1:
            tensor = tensor.transpose(0, -1).contiguous().transpose(0, -1)
        if spec[1] != "!" and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            tensor.requires_grad_()
            self.leaves.append(tensor)
        return tensor


class Made:
    """What a call needs: the function, its arguments and the leaves among them."""

    def __init__(self, call: Call, shift: int = 0) -> None:
        side = Operands(call, shift)
        content = call_of(call.case)
        args, kwargs = parts(emptied(content) if call.form == "empty" else content)
        self.args = list(side.build(list(args))) if args else []
        self.kwargs = side.build(kwargs)
        if call.form.startswith("dtype="):
            self.kwargs["dtype"] = getattr(tenon, call.form[6:])
        self.leaves = [x for x in side.leaves if x.requires_grad]


def function_of(call: Call, out: Callable[[], Any] | None = None) -> Callable[..., list[Any]]:
    """The call as a function of its arguments, which it does not change."""
    name = call.case.name
    short = name.rpartition(".")[2]
    method = name.startswith("Tensor.") or call.form == "inplace"
    writes = (short.endswith("_") and not short.endswith("__")) or call.form == "inplace"
    short = f"{short}_" if call.form == "inplace" else short

    def function(*args: Any, **kwargs: Any) -> list[Any]:
        into = writes or kwargs.get("inplace")
        if into and hasattr(args[0], "clone"):
            args = (args[0].clone(), *args[1:])
        if out is not None:
            kwargs["out"] = made = out()
            return [find(tenon, name)(*args, **kwargs), made]
        if method:
            found = getattr(args[0], short)
            result = found(*args[1:], **kwargs) if callable(found) else found
        else:
            result = find(tenon, name)(*args, **kwargs)
        return [result, args[0]] if into else [result]

    return function


class Result:
    """Results, gradients and second gradients, or an error."""

    def __init__(
        self, function: Callable[..., list[Any]], call: Call, shift: int = 0, inside: bool = False
    ) -> None:
        self.parts: list[list[Any]] = []
        self.error: Exception | None = None
        self.no_gradient: Exception | None = None
        made = Made(call, shift)
        tenon.manual_seed(SEED)
        try:
            results = flat(function(*made.args, **made.kwargs))
            self.parts.append([_read(r) for r in results])
        except Exception as error:
            self.error = error
            return
        if inside or shift:
            return
        try:
            # A program's backward pass has no graph of its own; ``inside`` has second derivatives in one program.
            for gradients in derivatives(results, made.leaves, 1):
                self.parts.append([_read(g) for g in gradients])
        except Exception as error:
            self.no_gradient = error


def derivatives(results: list[Any], leaves: list[Any], orders: int = 2) -> Iterator[list[Any]]:
    for _ in range(orders):
        total = loss(tenon, results)
        if total is None or not total.requires_grad:
            return
        gradients = tenon.autograd.grad(total, leaves, create_graph=orders > 1, allow_unused=True)
        yield gradients
        results = [g for g in gradients if g is not None]


def _read(value: Any) -> Any:
    if not isinstance(value, tenon.Tensor):
        return value
    name = str(value.dtype).partition(".")[2]
    tensor = value.detach()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    tensor = tensor.float() if name.startswith(("bfloat16", "float8")) else tensor
    return (
        name,
        tuple(tensor.shape),
        tensor.resolve_conj().resolve_neg().numpy(force=True).copy(),
        value.requires_grad,
    )


def with_gradients(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """``function`` that returns its derivatives as well, so that all are parts of one program."""

    def step(*args: Any, **kwargs: Any) -> list[Any]:
        results = flat(function(*args, **kwargs))
        leaves = [x for x in flat([*args, *kwargs.values()]) if getattr(x, "requires_grad", False)]
        return [*results, *(g for each in derivatives(results, leaves) for g in each)]

    return step


def problem(call: Call, inside: bool = False) -> str | None:
    """What is wrong with the program of a call; None if nothing is."""
    try:
        eager = function_of(call, _out(call))
    except Exception:  # without a result, or without the function, nothing can be written
        CASES.update(["eager mode raises"])
        return None
    if inside:
        eager = with_gradients(eager)
    names = ["float32" if o is None else o.dtype for o in call.operands if o is None or o.number is None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", np.exceptions.ComplexWarning)  # an imaginary part is lost
        expected = Result(eager, call, inside=inside)
        compiled = tenon.compile(eager)
        for number in range(4):
            found = Result(compiled, call, inside=inside or number < 3)
            wrong = _compared(found, expected, number < 3, names, inside)
            if wrong:
                return f"call {number}: {wrong}"
        others = Result(eager, call, 1000, inside)
        wrong = _compared(Result(compiled, call, 1000, inside), others, True, names, inside)
    if not wrong and any("please report" in reason for reason in compiled.reasons):
        return compiled.reasons[-1]
    if wrong:
        return f"other values: {wrong}"
    CASES.update([_state(compiled, expected)])
    return None


#: How many calls have a program, or why not.
CASES: collections.Counter[str] = collections.Counter()


def _state(compiled: Any, expected: Result) -> str:
    if expected.error is not None:
        return "eager mode raises"
    cases = list(compiled.cases.values())
    if any(case.replays for case in cases):
        return "has a program"
    reason = next((case.reason.splitlines()[0] for case in cases if case.reason), None)
    if reason is None:
        reason = (
            compiled.reasons[-1] if compiled.reasons else f"{[len(c.pending) for c in cases]} recordings wait"
        )
    return re.sub(r"at /\S+|of shape \[.*?\]", "", reason)[:150]


def _out(call: Call) -> Callable[[], Any] | None:
    """A maker of what ``out=`` is given: tensors like the result, of the dtype that the form names."""
    if not call.form.startswith("out"):
        return None
    made = Made(call)
    tenon.manual_seed(SEED)
    with tenon.no_grad():
        result = find(tenon, call.case.name)(*made.args, **made.kwargs)
    wanted = call.form[4:]

    def like(tensor: Any) -> Any:
        dtype = getattr(tenon, wanted) if wanted not in ("", "strided", "resized") else tensor.dtype
        shape = tuple(tensor.shape)
        if wanted == "strided" and len(shape) > 0:
            return tenon.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype)[..., ::2]
        return tenon.zeros(0 if wanted == "resized" else shape, dtype=dtype)

    several = isinstance(result, (tuple, list))
    return lambda: tuple(map(like, result)) if several else like(result)


def _compared(
    found: Result, expected: Result, only_results: bool, names: list[str], inside: bool
) -> str | None:
    # Which of several mistakes in a call is told may differ: recording finds the index before the offsets.
    told = isinstance(found.error, TenonError) and isinstance(expected.error, TenonError)
    if not told and type(found.error) is not type(expected.error):
        return f"raises {_text(found.error)}, eager {_text(expected.error)}"
    wanted = expected.parts[:1] if only_results else expected.parts
    if not only_results and type(found.no_gradient) is not type(expected.no_gradient):
        return f"gradients raise {_text(found.no_gradient)}, eager {_text(expected.no_gradient)}"
    if len(found.parts) < len(wanted):
        return f"{len(found.parts)} orders of derivatives, eager {len(wanted)}"
    spacing = UNITS * max(
        (SPACING.get(name, 2.0**-23) if name != "float64" else 2.0**-52 for name in names), default=2.0**-23
    )
    for what, a, b in zip(("result", "gradient", "second gradient"), found.parts, wanted, strict=False):
        if len(a) != len(b):
            return f"{what}: {len(a)} parts, eager {len(b)}"
        for x, y in zip(a, b, strict=True):
            wrong = _differ(x, y, spacing * (4 if inside or what != "result" else 1))
            if wrong:
                return f"{what}: {wrong}"
    return None


def _differ(x: Any, y: Any, away: float) -> str | None:
    if not isinstance(y, tuple) or len(y) != 4:
        same = x == y or str(x) == str(y)
        return None if same else f"{x!r}, eager {y!r}"
    if not isinstance(x, tuple) or len(x) != 4:
        return f"{x!r}, eager a tensor"
    for which, a, b in zip(("dtype", "shape"), x, y, strict=False):
        if a != b:
            return f"{which} {a}, eager {b}"
    if x[3] != y[3]:
        return f"requires_grad {x[3]}, eager {y[3]}"
    a, b = x[2], y[2]
    if np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
        return None
    if a.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            finite = np.abs(b[np.isfinite(b)])
            away = max(away, UNITS * SPACING.get(y[0], 2.0**-52))
            scale = float(finite.max()) if finite.size else 1.0
            if np.allclose(a, b, rtol=away, atol=away * min(max(scale, 1.0), 1e30), equal_nan=True):
                return None
    if a.dtype.kind in "fc":
        distance = np.asarray(np.nan_to_num(np.abs(a - b), nan=np.inf))
        distance[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
        at = np.unravel_index(int(np.argmax(distance)), a.shape)
    else:
        at = tuple(np.argwhere(a != b)[0])
    return f"{y[0]} {a[at]}, eager {b[at]} at {tuple(map(int, at))}"


def _text(error: BaseException | None) -> str:
    return (
        "nothing"
        if error is None
        else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    )


#: Dtypes for all operands of the forms.
OF_FORMS = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64")


def forms(case: Case) -> Iterator[Call]:
    """The further calls of a case."""
    kinds = [s[0] in FLOATING for s in slots(call_of(case))]
    if not kinds:
        return

    def all_of(dtype: str) -> tuple[Operand | None, ...]:
        return tuple(Operand(dtype) if f else None for f in kinds)

    short = case.name.rpartition(".")[2]
    top = case.name.startswith(("special.", "linalg.", "fft.")) or "." not in case.name
    empty = emptied(call_of(case)) is not None
    for dtype in OF_FORMS:
        operands = all_of(dtype)
        yield Call(case, operands, "strided")
        if empty:
            yield Call(case, operands, "empty")
        if case.number < 3 and top and not short.endswith("_"):
            for wanted in (
                "",
                ":strided",
                ":resized",
                ":float64",
                ":float16",
                ":int64",
                ":complex64",
                ":bool",
            ):
                yield Call(case, operands, f"out{wanted}")
        if case.number < 3 and case.name in REDUCTIONS:
            for wanted in DTYPES:
                yield Call(case, operands, f"dtype={wanted}")
        if case.number < 3 and hasattr(tenon.Tensor, f"{short}_") and not case.name.startswith("nn."):
            yield Call(case, operands, "inplace")
    if case.number == 0:
        for left, right in itertools.product(OF_FORMS, OF_FORMS):
            if hasattr(tenon.Tensor, f"{short}_") and len(kinds) > 1 and left != right:
                yield Call(case, (Operand(left), Operand(right)), "inplace")


REDUCTIONS = (
    "sum",
    "mean",
    "prod",
    "cumsum",
    "cumprod",
    "nansum",
    "nanmean",
    "softmax",
    "log_softmax",
    "linalg.norm",
    "linalg.vector_norm",
    "linalg.matrix_norm",
    "nn.functional.softmax",
    "nn.functional.log_softmax",
    "nn.functional.softmin",
    "norm",
    "special.softmax",
    "special.log_softmax",
)


def calls(part: int = 0, every: int = 1, only: str = "") -> Iterator[Call]:
    """Every ``every``-th call of the sweep, from number ``part`` on."""
    cases = [case for case in read() if case.kind == "function" and (not only or case.name == only)]
    everything = itertools.chain(
        (call for case in cases for call in forms(case)),
        (Call(case, operands) for case in cases for operands in variations(case)),
    )
    return itertools.islice(everything, part, None, every)


def described(call: Call, inside: bool, wrong: str) -> str:
    """A line on what is wrong; ``inside``: with the derivatives in the program."""
    return f"{call}{' with derivatives' * inside}: {wrong}"


def drawn(count: int, seed: int) -> Iterator[Call]:
    """``count`` random calls of the sweep, half of them in other forms."""
    draw = random.Random(seed)
    cases = [case for case in read() if case.kind == "function" and any(slots(call_of(case)))]
    for _ in range(count):
        case = draw.choice(cases)
        further = list(forms(case)) if draw.random() < 0.5 else [Call(case, o) for o in variations(case)]
        yield draw.choice(further)


@contextlib.contextmanager
def untrimmed() -> Iterator[None]:
    """Keep memory between programs: the collection of garbage would take most of the time."""
    backend = type(backend_named("cpu"))
    trim = backend.trim
    backend.trim = lambda self: None
    try:
        yield
    finally:
        backend.trim = trim


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--random", type=int, default=0, help="so many random calls instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    made, wrong = 0, 0
    some = calls(options.part, options.every, options.only)
    some = drawn(options.random, options.seed) if options.random else some
    with untrimmed():
        for call in some:
            made += 1
            for inside in (False, True):
                try:
                    found = problem(call, inside)
                except Exception as error:
                    found = f"SWEEP {_text(error)}"
                if found:
                    wrong += 1
                    print(described(call, inside, found), flush=True)
    print(f"{made} calls, {wrong} programs differ; {dict(CASES.most_common())}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
