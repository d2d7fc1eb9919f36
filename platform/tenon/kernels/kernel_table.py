"""The kernels of a backend as one table: for each op, rows in order, each with the conditions of the calls
that it accepts.

The first row that accepts a call computes it; the reference of the op is the last row. A row is a kernel, a
name, and conditions. A condition has a description and an expression over the op's arguments, from which
``select`` generates one function that tests the rows of an op: it costs no more than handwritten ``if``
statements, and the same expressions explain the selection (``Choice.explain``).

A row's requirements on the machine (a library, a processor) are checked by ``installed``, once, when the op
is first used. Next: ``backend.py`` binds the selection of an op, ``tenon doctor kernels`` prints it.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tenon.engine.op import Composite, Op, table
from tenon.engine.types import ArrayNamespace, Operand, OpNamespace
from tenon.errors import BackendError
from tenon.kernels.rounding import Kernel as Kernel
from tenon.kernels.rounding import as_one, computes_in_float32, is_short

#: What a kernel receives if its first parameter has the name ``f`` or ``xp``.
Namespaces = Mapping[str, OpNamespace | ArrayNamespace]
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_VAR_POSITIONAL, _VAR_KEYWORD = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the arguments of a call, which has to be true for a kernel to compute it.

    ``code`` is a Python expression over the op's arguments, ``says`` its description in words. ``names`` maps
    further names in ``code`` to values; ``shown`` is an expression whose value is reported if the condition
    is false. Create one by the functions below, or by ``requires`` from a predicate of your own.
    """

    code: str
    says: str
    names: Mapping[str, object] = field(default_factory=dict)
    shown: str = ""

    def __or__(self, other: Condition) -> Condition:
        """Return the condition that is true if either is."""
        names = {**self.names, **other.names}
        shown = ", ".join(filter(None, dict.fromkeys((self.shown, other.shown))))
        return Condition(f"({self.code} or {other.code})", f"{self.says}, or {other.says}", names, shown)


def size_at_least(argument: str, count: int) -> Condition:
    """Return the condition that the array ``argument`` has ``count`` elements or more."""
    return Condition(
        f"{argument}.size >= {count}", f"{argument} has {count:,} elements or more", {}, f"{argument}.size"
    )


def dtype_is(dtype: npt.DTypeLike, *arguments: str) -> Condition:
    """Return the condition that the arrays have ``dtype``; one whose name ends with ``?`` may be None."""
    dtype = np.dtype(dtype)
    code, names = [], [a.rstrip("?") for a in arguments]
    for name, argument in zip(names, arguments, strict=True):
        test = f"{name}.dtype is {dtype.name}"
        code.append(f"({name} is None or {test})" if argument.endswith("?") else test)
    dtypes = ", ".join(f"getattr({name}, 'dtype', None)" for name in names)
    return Condition(" and ".join(code), f"{_listed(names)} of {dtype.name}", {dtype.name: dtype}, dtypes)


def itself(x: Operand) -> Operand:
    """The identity kernel: returns its first argument. Generated code inlines it."""
    return x


def requires(question: Callable[..., object], says: str) -> Condition:
    """Return the condition that the predicate ``question`` is true; ``says`` describes it in words.

    It is called with the arguments of the op that its parameters name.
    """
    name = f"{getattr(question, '__name__', 'question').strip('_<>')}_{id(question):x}"
    return Condition(f"{name}({', '.join(_parameters(question))})", says, {name: question})


def _parameters(function: Kernel) -> list[str]:
    return list(inspect.signature(function).parameters)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel of an op, and the calls that it accepts.

    The kernel receives the op's arguments, preceded by the namespace of raw ops if its first parameter is
    called ``f``, by the array namespace if it is ``xp``. With ``declines``, which describes when, it may
    return NotImplemented to fall through to the next row. ``installed`` checks the machine's requirements.
    """

    name: str
    kernel: Kernel
    accepts: tuple[Condition, ...] = ()
    declines: str = ""
    installed: Callable[[], object] | None = None

    def usable(self) -> object:
        """Whether the kernel can run on this machine; a false result may have a ``reason``."""
        return True if self.installed is None else self.installed()


class KernelTable:
    """``op -> rows`` of a backend, in order of precedence.

    ``table.add("softmax", KernelRow(...), KernelRow(...))``; an op is added only once, so that the precedence
    of its rows is written in one place.
    """

    def __init__(self, kernels: Mapping[str, Kernel] | None = None) -> None:
        self.rows: dict[str, tuple[KernelRow, ...]] = {}
        for name, kernel in (kernels or {}).items():
            self.add(name, KernelRow("the backend's own", kernel))

    def add(self, op: str, *rows: KernelRow) -> None:
        """Add the rows of ``op``, in order of precedence; BackendError if it has rows."""
        if op in self.rows:
            raise BackendError(
                f"the kernels of {op!r} are listed twice. Put all rows of an op in one place, in order."
            )
        self.rows[op] = rows

    def update(self, other: KernelTable) -> None:
        """Add the rows of another table, whose ops must differ."""
        for op, rows in other.rows.items():
            self.add(op, *rows)

    def __contains__(self, op: object) -> bool:
        return op in self.rows

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def check(self, backend: str) -> None:
        """Raise BackendError if the table names an unknown op."""
        unknown = [name for name in self.rows if name not in table.by_name]
        if unknown:
            raise BackendError(
                f"backend {backend!r} overrides unknown ops {unknown}. Check their names in tenon.ops."
            )

    def usable(self, op: str) -> tuple[KernelRow, ...]:
        """The rows of ``op`` whose kernels can run on this machine."""
        return tuple(row for row in self.rows.get(op, ()) if row.usable())


class Choice:
    """The selection among the rows of one op: its signature, the generated function, the reasons."""

    def __init__(self, op: Op, rows: Iterable[KernelRow], namespaces: Namespaces) -> None:
        self.op, self.rows, self.namespaces = op, _reachable(rows), namespaces
        self._signatures = [_KernelSignature(row.kernel, len(op.inputs), namespaces) for row in self.rows]
        self.parameters = self._arguments()
        self.names: dict[str, object] = {"NotImplemented": NotImplemented, **namespaces}
        for i, row in enumerate(self.rows):
            self.names[f"kernel{i}"] = row.kernel
            for condition in row.accepts:
                self.names |= condition.names

    def _arguments(self) -> list[inspect.Parameter]:
        """The op's inputs, its attrs, and the keywords that only kernels take, such as ``out``."""
        keywords: dict[str, inspect.Parameter] = {}
        body = self.op.decompose if isinstance(self.op, Composite) else self.op.infer
        op_signature = _KernelSignature(body, len(self.op.inputs), {"f": None})
        for signature in (op_signature, *reversed(self._signatures)):
            for p in signature.keywords.values():
                keywords.setdefault(p.name, p.replace(kind=_KEYWORD, annotation=p.empty))
        codes = (c.code for row in self.rows for c in row.accepts)
        if "out" not in self.op.inputs and any(re.search(r"\bout\b", code) for code in codes):
            keywords.setdefault("out", inspect.Parameter("out", _KEYWORD, default=None))
        inputs = []
        for i, name in enumerate(self.op.inputs):
            if name.startswith("*"):
                inputs.append(inspect.Parameter(name.lstrip("*"), _VAR_POSITIONAL))
                break
            default = next((t.defaults[i] for t in reversed(self._signatures) if i in t.defaults), _EMPTY)
            inputs.append(inspect.Parameter(name, _POSITIONAL, default=default))
        variable = (bool(op_signature.keywords) and op_signature.variable) or (
            not keywords and any(t.variable for t in self._signatures)
        )
        attrs = [inspect.Parameter("attrs", _VAR_KEYWORD)] if variable else []
        return [*inputs, *keywords.values(), *attrs]

    def _call_arguments(self, signature: _KernelSignature) -> str:
        """The argument list of a kernel's call, as source text."""
        arguments = [signature.lead] if signature.lead else []
        for p in self.parameters:
            if p.kind is _VAR_POSITIONAL:
                arguments.append(f"*{p.name}")
            elif p.kind is _VAR_KEYWORD:
                arguments.append(f"**{p.name}")
            elif p.kind is _POSITIONAL:
                arguments.append(p.name)
            elif signature.variable or p.name in signature.keywords:
                arguments.append(f"{p.name}={p.name}")
        return ", ".join(arguments)

    def source(self, guard: str = "") -> str:
        """The source text of the selecting function."""
        parameters = []
        for p in self.parameters:
            if p.default is not p.empty and p.default is not None:
                self.names[f"default_{p.name}"] = p.default
                p = p.replace(default=_Name(f"default_{p.name}"))
            parameters.append(p)
        if all(p.kind is _KEYWORD or (p.kind is _POSITIONAL and p.default is _EMPTY) for p in parameters):
            # Calls that leave out defaults of positional parameters are cheaper than of keyword-only ones.
            parameters = [p.replace(kind=_POSITIONAL) for p in parameters]
            parameters.sort(key=lambda p: p.default is not _EMPTY)
        lines = [f"def {self.op.name}{inspect.Signature(parameters)}:"]
        if guard:
            lines += [f"    if {guard}:", f"        return rounded({self._forwarded()})"]
        body = len(lines)
        for i, (row, signature) in enumerate(zip(self.rows, self._signatures, strict=True)):
            call, indent = f"kernel{i}({self._call_arguments(signature)})", "    "
            if row.kernel is itself:
                call = self.parameters[0].name
            if row.accepts:
                lines.append(f"    if {' and '.join(c.code for c in row.accepts)}:")
                indent = "        "
            if row.declines:
                lines += [
                    f"{indent}result = {call}",
                    f"{indent}if result is not NotImplemented:",
                    f"{indent}    return result",
                ]
            else:
                lines.append(f"{indent}return {call}")
        return "\n".join(_size_read_once(lines, body)) + "\n"

    def _forwarded(self) -> str:
        """The argument list that forwards all parameters, as source text."""
        prefixes: dict[object, str] = {_VAR_POSITIONAL: "*", _VAR_KEYWORD: "**"}
        return ", ".join(
            f"{p.name}={p.name}" if p.kind is _KEYWORD else f"{prefixes.get(p.kind, '')}{p.name}"
            for p in self.parameters
        )

    def function(self, guard: str = "", **extra_names: object) -> Kernel:
        """The function that selects and calls a kernel; the kernel itself if there is only one."""
        if not guard and len(self.rows) == 1:
            kernel, lead = self.rows[0].kernel, self._signatures[0].lead
            return functools.partial(kernel, self.namespaces[lead]) if lead else kernel
        source = self.source(guard)
        names: dict[str, Any] = {**self.names, **extra_names}  # kernels, predicates and namespaces
        exec(compile(source, f"<kernels of {self.op.name}>", "exec"), names)
        result: Kernel = names[self.op.name]
        return result

    def bind(self, args: Sequence[Operand], attrs: Mapping[str, object]) -> Mapping[str, Operand]:
        """The arguments of a call by name, defaults included; TypeError if they are not those of the op."""
        bound = inspect.Signature(self.parameters).bind(*args, **attrs)
        bound.apply_defaults()
        return bound.arguments

    def explain(
        self, args: Sequence[Operand], attrs: Mapping[str, object]
    ) -> Iterator[tuple[KernelRow, str]]:
        """Yield each row up to the one that computes this call, with the reason why it is skipped."""
        arguments = self.bind(args, attrs)
        for i, (row, signature) in enumerate(zip(self.rows, self._signatures, strict=True)):
            failed = next((c for c in row.accepts if not self._holds(c, arguments)), None)
            if failed is not None:
                yield row, f"requires: {failed.says}{self._actual_value(failed, arguments)}"
                continue
            if row.declines:
                call = f"kernel{i}({self._call_arguments(signature)})"
                if eval(call, {**self.names, **arguments}) is NotImplemented:
                    yield row, f"declines: {row.declines}"
                    continue
            yield row, ""
            return

    def _holds(self, condition: Condition, arguments: Mapping[str, Operand]) -> bool:
        return bool(eval(condition.code, {**self.names, **arguments}))

    def _actual_value(self, condition: Condition, arguments: Mapping[str, Operand]) -> str:
        if not condition.shown:
            return ""
        value = eval(condition.shown, {**self.names, **arguments})
        return f" (here {', '.join(map(str, value)) if isinstance(value, tuple) else value})"


def _size_read_once(lines: list[str], body: int) -> list[str]:
    """Hoist the size that the first condition reads into a local variable of the generated lines.

    Several rows compare it, and reading it from an array costs as much as a comparison.
    """
    first = re.match(r"    if (\w+)\.size\b", lines[body])
    if first is None:
        return lines
    name = first[1]
    pattern = re.compile(rf"(?<![.\w]){name}\.size\b")
    if len(pattern.findall("\n".join(lines))) < 2:
        return lines
    body_lines = [pattern.sub(f"size_of_{name}", line) for line in lines[body:]]
    return [*lines[:body], f"    size_of_{name} = {name}.size", *body_lines]


class _Name:
    """A default value that a generated signature refers to by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


class _KernelSignature:
    """The parameters of a kernel: ``f`` or ``xp`` (``lead``), then the op's inputs, then keywords."""

    def __init__(self, kernel: Kernel, inputs: int, namespaces: Namespaces) -> None:
        try:
            parameters = (
                [] if isinstance(kernel, np.ufunc) else list(inspect.signature(kernel).parameters.values())
            )
            self.variable = not parameters or any(p.kind is _VAR_KEYWORD for p in parameters)
        except (TypeError, ValueError):  # a function of C has no signature
            parameters, self.variable = [], True
        self.lead = parameters.pop(0).name if parameters and parameters[0].name in namespaces else ""
        named = [p for p in parameters if p.kind in (_POSITIONAL, _KEYWORD)]
        positional = [p for p in named if p.kind is _POSITIONAL][:inputs]
        self.defaults = {i: p.default for i, p in enumerate(positional)}
        self.keywords = {p.name: p for p in named if p not in positional}


def _reachable(rows: Iterable[KernelRow]) -> list[KernelRow]:
    """The rows up to the first that accepts every call."""
    reachable = []
    for row in rows:
        reachable.append(row)
        if not row.accepts and not row.declines:
            break
    return reachable


#: Guards that the first argument needs the rounding of ``as_one``: if computed in float32, and if not.
_GUARDS = {
    True: "getattr({0}, 'dtype', whole).itemsize == 2 and is_short({0}.dtype)",
    False: "getattr({0}, 'dtype', whole).kind == 'V'",
}


def select(op: Op, rows: Iterable[KernelRow], namespaces: Namespaces) -> Kernel:
    """Generate the function that computes ``op`` by the first of ``rows`` that accepts its arguments.

    ``namespaces`` holds ``f`` and ``xp``. Composites round 16-bit floats as ``as_one`` describes.
    """
    choice = Choice(op, rows, namespaces)
    if not isinstance(op, Composite) or op.widens:
        return choice.function()
    guard = _GUARDS[computes_in_float32(op)].format(choice.parameters[0].name)
    rounded = as_one(op, choice.function())
    return choice.function(guard, rounded=rounded, is_short=is_short, whole=np.dtype(bool))


__all__ = [
    "Choice",
    "Condition",
    "KernelRow",
    "KernelTable",
    "dtype_is",
    "itself",
    "requires",
    "select",
    "size_at_least",
]
