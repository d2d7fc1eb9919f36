"""Every function with operands of other dtypes and kinds, compiled: its program computes what the function does.

``python tests/parity/compiled_sweep.py --jobs 2`` makes all calls: those of the dtype sweep, and those of ``forms`` (into
``out=``, with ``dtype=``, of empty tensors, of tensors that lie transposed in memory). A call is recorded once, with first and
second derivatives of its results; its program is run on other values, and compared with eager mode: dtype, shape, values
within rounding, and errors. Programs that equal an earlier one are not compiled again, and LLVM compiles without
optimising, which takes a tenth of the time. What differs is called again as users would: see ``problem``. It is done in parts,
each a process of its own; ``--part 3 4`` does these only, and is
a random sample of the whole.

``--thorough --random 500`` calls in eager mode, then four times by ``tenon.compile``, of which the fourth replays the program, and a
fifth time with other values, with optimised code; once with gradients computed by the program, once by a program of their own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import gc
import itertools
import multiprocessing
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
from tenon.graph import recording as recordings
from tenon.graph.call_keys import flattened
from tenon.graph.compare import fingerprint
from tenon.graph.compile import Compiled
from tenon.graph.entry import MISS
from tenon.graph.frames import Frames
from tenon.kernels.backend import backend_named

#: Units in the last place, of the largest element, that a program may be away from eager mode: it fuses ops, and so
# rounds less often.
UNITS = 16
#: Spacing of numbers around 1.
SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "complex64": 2.0**-23}


Change = Callable[[Any], Any]


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
    """The operands of a call in one of its forms; ``shift`` draws other values.

    ``change`` is applied to each float tensor.
    """

    def __init__(self, call: Call, shift: int, change: Change | None = None) -> None:
        super().__init__(tenon, call.operands)
        self.shift, self.strided, self.change = shift, call.form == "strided", change

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
        if self.change is not None and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            tensor = self.change(tensor)
        if spec[1] != "!" and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            tensor.requires_grad_()
            self.leaves.append(tensor)
        return tensor


class Made:
    """What a call needs: the function, its arguments and the leaves among them."""

    def __init__(self, call: Call, shift: int = 0, change: Change | None = None) -> None:
        side = Operands(call, shift, change)
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
        self,
        function: Callable[..., list[Any]],
        call: Call,
        shift: int = 0,
        inside: bool = False,
        change: Change | None = None,
    ) -> None:
        self.parts: list[list[Any]] = []
        self.error: Exception | None = None
        self.no_gradient: Exception | None = None
        made = Made(call, shift, change)
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
    names = names_of(call)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", np.exceptions.ComplexWarning)  # an imaginary part is lost
        expected = Result(eager, call, inside=inside)
        compiled = tenon.compile(eager)
        for number in range(4):
            found = Result(compiled, call, inside=inside or number < 3)
            wrong = _compared(found, expected, number < 3, names, inside)
            if wrong and not explained(call, 0, eager, found, expected, inside):
                return f"call {number}: {wrong}"
        others = Result(eager, call, 1000, inside)
        found = Result(compiled, call, 1000, inside)
        wrong = _compared(found, others, True, names, inside)
        if wrong and explained(call, 1000, eager, found, others, inside):
            wrong = None
    if not wrong and any("please report" in reason for reason in compiled.reasons):
        return compiled.reasons[-1]
    if wrong:
        return f"other values: {wrong}"
    CASES.update([_state(compiled, expected)])
    return None


class Programs:
    """The programs of the calls of one part of the sweep, of which each is compiled and compared once."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        #: What the programs refer to by address.
        self.kept: list[Any] = []

    def problem(self, call: Call) -> str | None:
        """What is wrong with the program of a call, of which derivatives are a part; None if nothing is."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            wrong = self._wrong(call)
        if wrong is None:
            return None
        CASES.update(["called as by users"])
        return problem(call, True) or f"run at once: {wrong}"

    def _wrong(self, call: Call) -> str | None:
        try:
            step = detached(with_gradients(function_of(call, _out(call))))
        except Exception:  # without a result, or without the function, nothing can be written
            CASES.update(["eager mode raises"])
            return None
        expected = Result(step, call, 1000, inside=True)
        made = Made(call, 0 if expected.error is None else 1000)
        tenon.manual_seed(SEED)
        try:
            _, recording = recordings.record(step, tuple(made.args), made.kwargs)
        except Exception as error:
            eager = expected.error or Result(step, call, inside=True).error
            told = isinstance(error, TenonError) and isinstance(eager, TenonError)
            if not told and type(error) is not type(eager):
                return f"recording raises {_text(error)}, eager {_text(eager)}"
            CASES.update(["eager mode raises"])
            return None
        if expected.error is not None:
            if str(expected.error).startswith(OF_VALUES):
                CASES.update(["eager mode checks values"])
                return None
            return f"recording raises nothing, eager {_text(expected.error)}"
        if not isinstance(recording, recordings.Recording):
            reason = str(recording).splitlines()[0]
            CASES.update([_shortened(reason)])
            return reason if "please report" in reason else None
        text = fingerprint(recording)
        if text in self.seen:
            CASES.update(["has the program of an earlier call"])
            return None
        replay = Compiled(step, False, False)._build(recording, text)
        found = Result(functools.partial(_replayed, replay), call, 1000, inside=True)
        wrong = _compared(found, expected, True, names_of(call), True)
        if wrong and explained(call, 1000, step, found, expected, True):
            wrong = None
        if wrong is None:
            CASES.update(["has a program"])
            self.seen.add(text)
            self.kept.append([outside.tensor for outside in recording.outside])
        return wrong


def _replayed(replay: Any, *args: Any, **kwargs: Any) -> Any:
    result = replay.attempt(flattened(args, kwargs)[0])
    assert result is not MISS, "a guard fails"
    return result


def detached(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """``function`` with results apart from the tape, which one program computes, and whether they were part of it."""

    def step(*args: Any, **kwargs: Any) -> list[Any]:
        results = function(*args, **kwargs)
        tensors = [r for r in results if isinstance(r, tenon.Tensor)]
        return [
            *(r.detach() if isinstance(r, tenon.Tensor) else r for r in results),
            *(t.requires_grad for t in tensors),
        ]

    return step


def names_of(call: Call) -> list[str]:
    """The dtypes in which a call computes: of the operands that are tensors, and those that it or its form names."""
    of_operands = [
        "float32" if o is None else o.dtype for o in call.operands if o is None or o.number is None
    ]
    converted = {"half": "float16", "bfloat16": "bfloat16"}.get(call.case.name.rpartition(".")[2])
    named = call.form[6:] if call.form.startswith("dtype=") else converted
    args, kwargs = parts(call_of(call.case))
    own = [a[6:] for a in (*args, *kwargs.values()) if isinstance(a, str) and a.startswith("dtype:")]
    return [*of_operands, *own, *([named] if named else [])]


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
    return _shortened(reason)


def _shortened(reason: str) -> str:
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
    if found.error is None and str(expected.error).startswith(OF_VALUES):
        return None
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
        if isinstance(x, memoryview) and isinstance(y, memoryview):  # of a NumPy number
            x, y = x.tobytes(), y.tobytes()
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


#: Functions whose results hang on the last bit of their operands.
ILL_CONDITIONED = {"pca_lowrank": "singular vectors of products with random numbers"}


def explained(
    call: Call, shift: int, step: Callable[..., list[Any]], found: Result, expected: Result, inside: bool
) -> bool:
    """Whether a difference is eager mode's, which rounds to 16 bits after each op, or stands for any of the results near."""
    if call.form not in ("plain", "strided", "empty") or found.error or expected.error:
        return False
    if call.case.name in ILL_CONDITIONED:
        return _within_last_bits(call, shift, step, found, expected, inside)
    short = [name for name in names_of(call) if name in ("float16", "bfloat16")]
    if not short:
        return False

    def widened(x: Any) -> Any:
        return x.double() if str(x.dtype).endswith(("float16", "bfloat16")) else x

    exact = Result(step, call, shift, inside, widened)
    if [len(p) for p in exact.parts] != [len(p) for p in expected.parts]:
        return False
    for p, (own, wide) in enumerate(zip(expected.parts, exact.parts, strict=True)):
        for k, (y, z) in enumerate(zip(own, wide, strict=True)):
            if isinstance(y, tuple) and len(y) == 4 and y[0] in short:
                own[k] = (*y[:2], _nearest(found.parts[p][k][2], y[2], z[2], y[0]), y[3])
    return not _compared(found, expected, shift > 0 or inside, names_of(call), inside)


def _nearest(found: np.ndarray, eager: np.ndarray, exact: np.ndarray, name: str) -> np.ndarray:
    """What a program may compute: what eager mode does; numbers no further from ``exact``, which was computed in float64;
    and where eager mode has an infinity or NaN, ``exact`` in the dtype ``name``."""
    rounded = tenon.from_numpy(exact).to(getattr(tenon, name)).float().numpy()
    if found.shape != eager.shape:
        return eager
    with np.errstate(all="ignore"):
        allowed = np.where(np.abs(found - exact) <= np.abs(eager - exact), found, eager)
    return np.where(np.isfinite(eager), allowed, rounded).astype(eager.dtype)


def _within_last_bits(
    call: Call, shift: int, step: Callable[..., list[Any]], found: Result, expected: Result, inside: bool
) -> bool:
    """Whether eager mode's results move as far when operands change by a unit in the last place."""
    draw = np.random.default_rng(0)

    def moved(x: Any) -> Any:
        signs = tenon.from_numpy(draw.choice((-1.0, 1.0), tuple(x.shape)))
        return x + (x.double() * signs * tenon.finfo(x.dtype).eps).to(x.dtype)

    others = [Result(step, call, shift, inside, moved) for _ in range(4)]
    for p, part in enumerate(found.parts):
        for k, x in enumerate(part):
            y = expected.parts[p][k]
            if not (isinstance(y, tuple) and len(y) == 4 and y[2].dtype.kind == "f"):
                continue
            away = np.max([np.abs(o.parts[p][k][2] - y[2]) for o in others], axis=0)
            if x[:2] != y[:2] or not np.all(np.abs(x[2] - y[2]) <= 4 * np.max(away, initial=0)):
                return False
    return True


def _text(error: BaseException | None) -> str:
    return (
        "nothing"
        if error is None
        else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    )


#: The beginnings of errors for values, which programs do not check: there they compute NaN, or empty bags.
OF_VALUES = (
    "var has negative entry",
    "all elements of input should be between 0 and 1",
    "offsets[-1] can not be greater than input's length",
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
    # Drawn in the order of memory, as in PyTorch, which in a program is another one.
    random_numbers = "dropout" in short or short == "bernoulli_"
    top = case.name.startswith(("special.", "linalg.", "fft.")) or "." not in case.name
    empty = emptied(call_of(case)) is not None
    for dtype in OF_FORMS:
        operands = all_of(dtype)
        if not random_numbers:
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


def calls(part: int = 0, parts: int = 1, only: str = "") -> Iterator[Call]:
    """The calls of one of ``parts`` parts of the sweep; the calls of a case are in two of them, drawn by a fixed seed."""
    cases = [case for case in read() if case.kind == "function" and (not only or case.name == only)]
    halves = [(case, further) for case in cases for further in (True, False)]
    if parts > 1:
        random.Random(parts).shuffle(halves)
    for case, further in halves[part::parts]:
        if further:
            yield from forms(case)
        else:
            yield from (Call(case, operands) for operands in variations(case))


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


class Unguarded(Frames):
    """Finds no variables of the functions that are recorded: none change between a recording and its one run."""

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def functions(self, first: Any) -> list[Any]:
        return []


@contextlib.contextmanager
def hasty() -> Iterator[None]:
    """Record without guards, and compile with LLVM at its lowest level."""
    from tenon_cpu.jit.compiler import llvm

    compiler = llvm.compiler()
    machine, store, frames = compiler.machine, compiler.store, recordings.Frames
    compiler.machine = compiler.target.create_target_machine(
        cpu=compiler.cpu, features=compiler.features, opt=0, jit=True
    )
    compiler.store = NoStore()
    compiler.optimised = functools.partial(_verified, compiler)
    recordings.Frames = Unguarded
    try:
        yield
    finally:
        del compiler.optimised
        compiler.machine, compiler.store, recordings.Frames = machine, store, frames


class NoStore:
    """In place of the machine code on disk, which is optimised."""

    def read(self, key: str) -> None:
        """Nothing is found."""

    def write(self, key: str, body: bytes) -> None:
        """Nothing is kept."""


def _verified(compiler: Any, text: str) -> Any:
    module = compiler.llvm.parse_assembly(text)
    module.verify()
    module.triple = compiler.target.triple
    return module


def differences(some: Iterator[Call]) -> tuple[int, list[str], collections.Counter[str]]:
    """The number of calls, what differs, and the numbers of calls with and without programs."""
    CASES.clear()
    made, lines, programs = 0, [], Programs()
    with untrimmed(), hasty():
        gc.collect()
        gc.freeze()
        for call in some:
            made += 1
            try:
                wrong = programs.problem(call)
            except Exception as error:
                wrong = f"SWEEP {_text(error)}"
            if wrong:
                lines.append(described(call, True, wrong))
                print(lines[-1], flush=True)
    return made, lines, collections.Counter(CASES)


def of_part(numbers: tuple[int, int]) -> tuple[int, int, list[str], collections.Counter[str]]:
    part, parts = numbers
    return part, *differences(calls(part, parts))


def in_parts(parts: int, some: list[int], jobs: int) -> tuple[int, int]:
    """Make the calls of ``some`` of the ``parts`` parts; return the numbers of calls and of differences."""
    made, wrong, states = 0, 0, collections.Counter[str]()
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        done = pool.imap_unordered(of_part, [(part, parts) for part in some], chunksize=1)
        for part, count, lines, cases in done:
            made, wrong = made + count, wrong + len(lines)
            states.update(cases)
            print(f"part {part} of {parts}: {count} calls, {len(lines)} differ; {made} in all", flush=True)
    print(dict(states.most_common()))
    return made, wrong


def thorough(some: Iterator[Call]) -> tuple[int, int]:
    """Make each call as a user would, with optimised code, with and without derivatives in the program."""
    made, wrong = 0, 0
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
    print(dict(CASES.most_common()))
    return made, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--parts", type=int, default=96)
    parser.add_argument("--part", type=int, nargs="*", help="these parts only")
    parser.add_argument("--random", type=int, default=0, help="so many random calls instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="calls of this function only")
    parser.add_argument("--thorough", action="store_true", help="call as users would, with optimised code")
    options = parser.parse_args()
    some = drawn(options.random, options.seed) if options.random else calls(only=options.only)
    if options.thorough:
        made, wrong = thorough(some)
    elif options.random or options.only:
        made, lines, cases = differences(some)
        wrong = len(lines)
        print(dict(cases.most_common()))
    else:
        chosen = range(options.parts) if options.part is None else options.part
        made, wrong = in_parts(options.parts, list(chosen), options.jobs)
    print(f"{made} calls, {wrong} programs differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
