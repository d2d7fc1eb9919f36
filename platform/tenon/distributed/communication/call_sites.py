"""``Site``: the chain of calls that leads to a collective, and the name that its source suggests.

Sites are cached by the code and the instruction of each frame, so that a call costs a walk over a few frames.
Where the source chooses the tensor at run time (the variable of a loop, an item, an ``if`` expression), the
name lists which other variables refer to that tensor; they are looked up once per tensor.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

from tenon.distributed.communication import source
from tenon.distributed.communication.calls import Implied, Recorded
from tenon.distributed.communication.origin import Origin
from tenon.tensors.tensor import Tensor

DEPTH = 4
"""Number of frames that identify a site: wrappers around a collective, and their callers. Each takes 0.2
us."""
SITES = 4096
"""Size of the cache of call sites: parsing one takes as long as a thousand sums."""
TENSORS = 256
"""Size of a site's cache of tensors."""
LARGEST = 64
"""Containers of more items are not searched for a tensor."""
PROGRAM = "<tenon program"
"""Prefix of the file name of a compiled program."""
#: The position of the tensor among the arguments of a call: its index, and its keyword.
Argument: TypeAlias = tuple[int, str]
FIRST: Argument = (0, "tensor")
INPUT: Argument = (1, "tensor")


class Step(NamedTuple):
    """The call of one frame: its code and instruction, and variables of loops that the call reads."""

    depth: int
    code: CodeType
    instruction: int
    variables: tuple[str, ...]
    names: tuple[str, ...]
    """Variables in the code that no loop assigns; empty where the frame does not pass the tensor on."""


class Site:
    """A chain of calls; ``name`` is the tensor's name in the source, unless the source ``chooses`` one at run
    time."""

    __slots__ = (
        "_choices",
        "_expression",
        "_internal",
        "_loops",
        "_names",
        "_steps",
        "_strict",
        "_tensors",
        "chooses",
        "name",
    )

    def __init__(self, frames: Sequence[FrameType], argument: Argument | None, strict: bool) -> None:
        self._steps: list[Step] = []
        self._strict = strict
        self._expression: str | None = None
        self._loops = self.chooses = False
        chain: list[tuple[int, FrameType]] = list(enumerate(frames))
        own = [(depth, each) for depth, each in chain if not _is_tenon(each)]
        self._internal = not own
        follows = argument is not None
        for index, (depth, each) in enumerate(own or chain[:1]):
            variables: set[str] = set()
            call = source.call_at(each.f_code, each.f_lasti) if follows else None
            passed = [] if call is None else _passed(call) if index else self._find_argument(call, argument)
            names = {node.id for part in passed for node in ast.walk(part) if isinstance(node, ast.Name)}
            loops = source.loop_variables(each.f_code) if names else set()
            if names:
                variables = names & loops
                self._loops = self._loops or bool(variables)
                self.chooses = self.chooses or bool(variables) or any(_is_choice(part) for part in passed)
                self._loops = self._loops or any(_is_order(part) for part in passed)
            follows = not names.isdisjoint(each.f_code.co_varnames[: each.f_code.co_argcount])
            code = each.f_code
            mentioned = (*code.co_varnames, *code.co_cellvars, *code.co_freevars, *code.co_names)
            others = tuple(name for name in dict.fromkeys(mentioned) if name not in loops) if names else ()
            self._steps.append(Step(depth, code, each.f_lasti, tuple(variables), others))
        self._names: dict[str, Implied] = {}
        self._choices: dict[tuple[object, ...], Implied] = {}
        self._tensors: dict[int, tuple[weakref.ref[Tensor], Implied]] = {}
        self.name = self._implied(Origin(expression=self._expression))

    def of_parameter(self, parameter: str) -> Implied:
        """The name of a parameter or a gradient at this site."""
        name = self._names.get(parameter)
        if name is None:
            name = self._names[parameter] = self._implied(Origin(parameter=parameter))
        return name

    def of_tensor(self, tensor: Tensor, frame: FrameType) -> Implied:
        """The name of ``tensor`` at this site, which ``frame`` is at."""
        known = self._tensors.get(id(tensor))
        if known is not None and known[0]() is tensor:
            return known[1]
        if len(self._tensors) >= TENSORS:
            self._tensors.clear()
        name = self._choice(tensor, frame)
        self._tensors[id(tensor)] = weakref.ref(tensor), name
        return name

    def _find_argument(self, call: ast.Call, argument: Argument | None) -> list[ast.expr]:
        """Return the expression that ``call`` passes as the tensor, in a list; an empty list if there is
        none."""
        index, keyword = argument or FIRST
        found = [each.value for each in call.keywords if each.arg == keyword] + call.args[index : index + 1]
        if found and isinstance(found[0], ast.Name | ast.Attribute | ast.Subscript):
            self._expression = f"`{ast.unparse(found[0])[: source.LONGEST]}`"
        return found[:1]

    def _choice(self, tensor: Tensor, frame: FrameType) -> Implied:
        """Name ``tensor`` by the variables and items that refer to it in the frames of this site."""
        aliases: set[str] = set()
        indices: dict[str, int | str] = {}
        depth = 0
        for step in self._steps:
            if not step.names:
                break
            while depth < step.depth:
                frame, depth = frame.f_back or frame, depth + 1
            values, others = frame.f_locals, frame.f_globals
            for variable in step.variables:
                value = values.get(variable)
                if type(value) is int or type(value) is str:
                    indices[f"{variable} ="] = value
                elif value is not None and not isinstance(value, Tensor) and not callable(value):
                    _search(values, others, step.names, value, aliases, indices)
            _search(values, others, step.names, tensor, aliases, indices)
        aliases.discard((self._expression or "").strip("`"))
        if not aliases and not indices:
            return self.name
        facts = (*sorted(aliases), *sorted(indices.items()))
        name = self._choices.get(facts)
        if name is None:
            if len(self._choices) >= TENSORS:
                self._choices.clear()
            origin = Origin(expression=self._expression, aliases=sorted(aliases), indices=indices)
            name = self._choices[facts] = self._implied(origin)
        return name

    def _implied(self, origin: Origin) -> Implied:
        """``origin`` at this site as a name: the text shown, and after a line break what else distinguishes
        calls."""
        origin = replace(origin, strict=self._strict, loops=self._loops)
        shown = origin.parameter or origin.expression or "a tensor"
        if origin.aliases:
            shown += f" ({', '.join(origin.aliases)})"
        elif origin.indices:
            shown += f" ({', '.join(_item(*item) for item in sorted(origin.indices.items()))})"
        chain = [] if self._internal else self._steps
        lines = [_line(step) for step in chain]
        if lines:
            shown += f" at {', called at '.join(lines)}"
        hidden = [f"{step.code.co_firstlineno}+{step.instruction}" for step in chain]
        facts = [sorted(origin.aliases), sorted(origin.indices.items(), key=repr), hidden]
        return Implied(f"{shown}\n{facts}", lambda: self._with_places(origin))

    def _with_places(self, origin: Origin) -> Origin:
        if self._internal:
            return origin
        return replace(origin, places=[source.place_of(each.code, each.instruction) for each in self._steps])


class _End:
    """In place of the frames beyond the outermost one."""

    f_code: CodeType | None = None
    f_lasti = -1

    @property
    def f_back(self) -> _End:
        return self


_END = _End()


class Chain:
    """The code and instruction of each of ``DEPTH`` frames, their site, and the chain that last came next."""

    __slots__ = ("at_1", "at_2", "at_3", "at_4", "code_1", "code_2", "code_3", "code_4", "next", "site")

    def __init__(self, frames: Sequence[FrameType | _End], site: Site | None) -> None:
        self.code_1, self.code_2, self.code_3, self.code_4 = (each.f_code for each in frames)
        self.at_1, self.at_2, self.at_3, self.at_4 = (each.f_lasti for each in frames)
        self.site = site
        self.next = self


class _Latest:
    """``chain`` is that of the last call. Threads may mix up what came next: it is compared before use."""

    __slots__ = ("chain",)

    def __init__(self) -> None:
        self.chain = Chain([_END] * DEPTH, None)


_LATEST = _Latest()
_chains: dict[tuple[int, ...], Chain] = {}


def find(frame: FrameType, argument: Argument | None, strict: bool) -> Site:
    """The site of a collective that the code of ``frame`` has called."""
    # Programs make the same calls in turn. To compare with the chain that came next last time takes half as
    # long as a lookup; it is unrolled, as a loop takes 0.1 us more.
    second = frame.f_back or _END
    third = second.f_back or _END
    fourth = third.f_back or _END
    expected = _LATEST.chain.next
    if (
        frame.f_lasti == expected.at_1
        and frame.f_code is expected.code_1
        and second.f_lasti == expected.at_2
        and second.f_code is expected.code_2
        and third.f_lasti == expected.at_3
        and third.f_code is expected.code_3
        and fourth.f_lasti == expected.at_4
        and fourth.f_code is expected.code_4
    ):
        _LATEST.chain = expected
        return expected.site  # type: ignore[return-value]
    chain = _look_up((frame, second, third, fourth), argument, strict)
    _LATEST.chain.next = chain
    _LATEST.chain = chain
    return chain.site  # type: ignore[return-value]


def _look_up(frames: Sequence[FrameType | _End], argument: Argument | None, strict: bool) -> Chain:
    """The chain of ``frames``, from the cache or new."""
    first, second, third, fourth = frames
    key = (
        id(first.f_code), first.f_lasti, id(second.f_code), second.f_lasti,
        id(third.f_code), third.f_lasti, id(fourth.f_code), fourth.f_lasti,
    )  # fmt: skip
    chain = _chains.get(key)
    if chain is None:
        if len(_chains) >= SITES:
            _chains.clear()
        known = [each for each in frames if not isinstance(each, _End)]
        chain = _chains[key] = Chain(frames, Site(known, argument, strict))
    return chain


def at_run(name: str | None) -> str | None:
    """Return ``name``, that of an op which the caller runs; in a compiled program, with the caller's place
    added.

    ``name`` was inferred when the program was recorded.
    """
    if type(name) is not Recorded:
        return name
    each: FrameType | None = sys._getframe(2)
    if each is None or not each.f_code.co_filename.startswith(PROGRAM):
        return name
    while each is not None and (each.f_code.co_filename.startswith("<tenon") or _is_tenon(each)):
        each = each.f_back
    return name if each is None else _within(name, find(each, None, False).name)


@functools.lru_cache(maxsize=SITES)
def _within(name: Implied, outer: Implied) -> Implied:
    """``name``, inferred in a compiled function that was called at the place of ``outer``."""

    def origin() -> Origin:
        inner = name.origin
        return replace(inner, places=[*inner.places, *outer.origin.places])

    place = outer.shown.removeprefix("a tensor at ")
    return Implied(f"{name.shown}, compiled and called at {place}\n{name.hidden}{outer.hidden}", origin)


def _is_tenon(frame: FrameType) -> bool:
    """Whether ``frame`` runs code of this library rather than of the program."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "tenon" or package.startswith("tenon_")


def _line(step: Step) -> str:
    span = source.span_of(step.code, step.instruction)
    line = step.code.co_firstlineno if span is None else span[0]
    return f"{os.path.basename(step.code.co_filename)}:{line}"


def _passed(call: ast.Call) -> list[ast.expr]:
    """The arguments of ``call``, and the object whose method it is."""
    receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*receiver, *call.args, *(keyword.value for keyword in call.keywords)]


def _is_choice(expression: ast.expr) -> bool:
    """Whether ``expression`` may be any of several existing tensors: an item, a conditional or a list."""
    return any(
        isinstance(node, ast.IfExp | ast.BoolOp | ast.List | ast.Tuple)
        or (isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant | ast.Slice))
        for node in ast.walk(expression)
    )


def _is_order(expression: ast.expr) -> bool:
    """Whether ``expression`` is one list or another, as of the same tensors in two orders."""
    arms = (expression.body, expression.orelse) if isinstance(expression, ast.IfExp) else ()
    return bool(arms) and all(isinstance(arm, ast.List | ast.Tuple) for arm in arms)


def _item(label: str, index: int | str) -> str:
    """``values[0]``, or ``key = 'a'`` for the variable of a loop."""
    return f"{label} {index!r}" if label.endswith("=") else f"{label}[{index!r}]"


def _search(
    values: Mapping[str, object],
    others: Mapping[str, object],
    names: Iterable[str],
    subject: object,
    aliases: set[str],
    indices: dict[str, int | str],
) -> None:
    """Add the variables of ``names`` that refer to ``subject``, and the small containers that hold it.

    ``values`` and ``others`` are the variables of a function and of its module.
    """
    for name in names:
        value = values[name] if name in values else others.get(name)
        kind = type(value)
        if value is subject:
            aliases.add(name)
        elif (kind is list or kind is tuple) and len(value) <= LARGEST:  # type: ignore[arg-type]
            for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
                if item is subject:
                    indices.setdefault(name, index)
        elif kind is dict and len(value) <= LARGEST:  # type: ignore[arg-type]
            for key, item in value.items():  # type: ignore[attr-defined]
                if item is subject and isinstance(key, int | str):
                    indices.setdefault(name, key)
