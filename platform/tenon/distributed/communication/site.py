"""``Site``: a chain of calls that leads to a collective, and the name that its source suggests.

Where the source chooses the tensor at run time (the variable of a loop, an item, an ``if`` expression), the
name lists which other variables refer to that tensor. They are searched, unless the variable that held the
tensor of the last time's next call holds this one.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

from tenon.distributed.communication import references, source
from tenon.distributed.communication.calls import Implied
from tenon.distributed.communication.origin import Origin
from tenon.tensors.tensor import Tensor

CHOICES = 256
"""Size of a site's cache of names."""
FRUITLESS = 32
"""A site at which so many tensors in turn had no other variable is not searched again."""
#: The position of the tensor among the arguments of a call: its index, and its keyword.
Argument: TypeAlias = tuple[int, str]
FIRST: Argument = (0, "tensor")
INPUT: Argument = (1, "tensor")


class Step(NamedTuple):
    """The call of one frame: its code and instruction, and which variables to search for the tensor."""

    depth: int
    code: CodeType
    instruction: int
    variables: tuple[str, ...] = ()
    """Variables of loops that the call passes on."""
    items: frozenset[str] = frozenset()
    """Those of them that choose an item."""
    passed: frozenset[str] = frozenset()
    """All variables that the call passes on."""
    names: tuple[str, ...] = ()
    """Variables of the module that the code mentions."""
    loops: frozenset[str] = frozenset()
    """All variables of loops."""
    follows: bool = False
    """Whether the frame passes the tensor on, so that its variables are searched."""


class Holder:
    """A variable or item that held the tensor of a call, the name, and what came next the last time.

    ``loop`` is the variable of a loop that is looked for in place of the tensor, or empty.
    """

    __slots__ = ("depth", "key", "loop", "name", "next", "variable")

    def __init__(self, depth: int, variable: str, key: int | str | None, loop: str, name: Implied) -> None:
        self.depth, self.variable, self.key, self.loop, self.name = depth, variable, key, loop, name
        self.next = self

    def holds(self, tensor: Tensor, frame: FrameType) -> bool:
        """Whether the variable, ``depth`` frames above ``frame``, holds ``tensor`` now."""
        for _ in range(self.depth):
            frame = frame.f_back or frame
        values = frame.f_locals
        value, key, subject = values.get(self.variable), self.key, tensor
        if self.loop:
            subject = values.get(self.loop)  # type: ignore[assignment]
        if subject is None:
            return False
        if key is None:
            return value is subject
        kind = type(value)
        if kind is dict or ((kind is list or kind is tuple) and type(key) is int):
            try:
                return value[key] is subject  # type: ignore[index]
            except LookupError:
                return False
        return False


class Site:
    """A chain of calls; ``name`` is the tensor's name in the source, unless the source ``chooses`` one at run
    time."""

    __slots__ = (
        "_argument",
        "_choices",
        "_expression",
        "_fruitless",
        "_holders",
        "_internal",
        "_latest",
        "_loops",
        "_names",
        "_sends",
        "_steps",
        "_strict",
        "chooses",
        "name",
    )

    def __init__(self, frames: Sequence[FrameType], argument: Argument | None, strict: bool) -> None:
        self._strict, self._sends = strict, argument is not None
        self._expression: str | None = None
        self._argument: ast.expr | None = None
        self._loops = self.chooses = False
        chain: list[tuple[int, FrameType]] = list(enumerate(frames))
        own = [(depth, each) for depth, each in chain if not is_tenon(each)]
        self._internal = not own
        self._steps = list(self._read(own or chain[:1], argument))
        self._fruitless = 0
        self._names: dict[str, Implied] = {}
        self._choices: dict[tuple[object, ...], Implied] = {}
        self.name = self._implied(Origin(expression=self._expression))
        self._holders: dict[tuple[object, ...], Holder] = {}
        self._latest = Holder(0, "", None, "", self.name)

    def of_parameter(self, parameter: str) -> Implied:
        """The name of a parameter or a gradient at this site."""
        name = self._names.get(parameter)
        if name is None:
            name = self._names[parameter] = self._implied(Origin(parameter=parameter))
        return name

    def of_tensor(self, tensor: Tensor, frame: FrameType) -> Implied:
        """The name of ``tensor`` at this site, which ``frame`` is at."""
        if self._fruitless >= FRUITLESS:
            return self.name
        # Tensors in the same variables as the last time need no search, which takes five times as long.
        expected = self._latest.next
        if expected.holds(tensor, frame):
            self._latest = expected
            return expected.name
        return self._choice(tensor, frame, self._expression)

    def of_elements(self, tensors: Sequence[Tensor], frame: FrameType) -> list[Implied]:
        """The names of ``tensors``, which the call passes as a list."""
        self._loops = True
        names = []
        for number, part in enumerate(references.elements(self._argument, len(tensors))):
            expression = None if self._expression is None else f"{self._expression[:-1]}[{number}]`"
            if part is not None and references.named(part):
                expression = _shortened(part)
            names.append(self._choice(tensors[number], frame, expression))
        return names

    def _read(self, frames: Sequence[tuple[int, FrameType]], argument: Argument | None) -> Iterator[Step]:
        """Read the source of the call of each frame, the innermost first."""
        wanted: set[str] = set()
        inner: CodeType | None = None
        follows, closure = argument is not None, False
        for depth, frame in frames:
            code = frame.f_code
            expression = source.expression_at(code, frame.f_lasti) if follows else None
            if expression is None:
                passed: list[ast.expr] = []
            elif inner is None:
                passed = self._find_argument(expression, argument)
            else:
                passed = references.passed_to(inner, wanted, closure, expression)
            names, loops = frozenset(references.variables_in(passed)), frozenset(source.loop_variables(code))
            variables = names & loops
            self._loops = self._loops or bool(variables) or any(map(references.is_loop, passed))
            self.chooses = self.chooses or bool(variables) or any(map(references.is_choice, passed))
            items = variables & references.item_variables(passed)
            read = references.searched(source.module_variables(code), frame.f_globals) if passed else ()
            yield Step(depth, code, frame.f_lasti, tuple(variables), items, names, read, loops, bool(passed))
            wanted = {*names}.intersection(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
            closure = not names.isdisjoint(code.co_freevars)
            follows = bool(wanted) or closure or (bool(passed) and references.is_comprehension(code))
            inner = code

    def _find_argument(self, expression: ast.expr, argument: Argument | None) -> list[ast.expr]:
        """What the call passes as the tensor, in a list; without such an argument, the called variable."""
        if not isinstance(expression, ast.Call):
            return []
        index, keyword = argument or FIRST
        found = [each.value for each in expression.keywords if each.arg == keyword]
        found = [*found, *expression.args[index : index + 1]][:1]
        if not found:
            return [expression.func] if isinstance(expression.func, ast.Name) else []
        self._argument = found[0]
        if references.named(found[0]):
            self._expression = _shortened(found[0])
        return found

    def _choice(self, tensor: Tensor, frame: FrameType, expression: str | None) -> Implied:
        """Name ``tensor`` by the variables and items that refer to it in the frames of this site."""
        aliases: list[str] = []
        indices: list[tuple[str, int | str]] = []
        numbers: list[tuple[str, int | str]] = []
        subjects: list[tuple[str, object]] = [("", tensor)]
        holder: tuple[int, str, int | str | None, str] | None = None
        depth = 0
        for step in self._steps:
            if not step.follows:
                break
            while depth < step.depth:
                frame, depth = frame.f_back or frame, depth + 1
            values = frame.f_locals
            for variable in step.variables:
                value = values.get(variable)
                if value is tensor or value is None:
                    continue
                if type(value) is int or type(value) is str:
                    if variable in step.items:
                        numbers.append((f"{variable} =", value))
                else:
                    subjects.append((variable, value))
            variables: Iterable[tuple[str, object]] = values.items()
            if step.names or not step.code.co_flags & CO_OPTIMIZED:
                variables = references.in_frame(step.code, step.names, values, frame.f_globals)
            for loop, subject in subjects:
                references.search(variables, subject, step.loops, aliases, indices)
                if holder is None and (aliases or indices) and (not loop or loop in step.variables):
                    found = [*((each, None) for each in aliases), *indices]
                    held = [each for each in found if each[0] in values and each[0] not in step.passed]
                    holder = next(((step.depth, *each, loop) for each in held), None)
            if self._loops and not (aliases or indices):
                references.search_inside(variables, tensor, indices)
        if aliases and expression is not None:
            aliases = [each for each in aliases if each != expression[1:-1]]
        if not (aliases or indices):
            indices = numbers
        if not (aliases or indices):
            self._fruitless += 1
            if expression == self._expression:
                return self.name
        else:
            self._fruitless = 0
        facts = expression, *aliases, *indices
        name = self._choices.get(facts)
        if name is None:
            if len(self._choices) >= CHOICES:
                self._choices.clear()
                self._holders.clear()
            first = dict(reversed(indices))  # of a container that holds the tensor twice
            name = self._choices[facts] = self._implied(
                Origin(expression=expression, aliases=sorted({*aliases}), indices=first)
            )
        if holder is not None:
            following = self._holders.get((holder, name))
            if following is None:
                following = self._holders[holder, name] = Holder(*holder, name)
            self._latest.next = following
            self._latest = following
        return name

    def _implied(self, origin: Origin) -> Implied:
        """``origin`` at this site as a name: the text shown, and after a line break what else distinguishes
        calls."""
        origin = replace(origin, strict=self._strict, loops=self._loops)
        shown = origin.parameter or origin.expression or ("a tensor" if self._sends else "")
        if origin.aliases:
            shown += f" ({', '.join(origin.aliases)})"
        elif origin.indices:
            shown += f" ({', '.join(_item(*item) for item in sorted(origin.indices.items()))})"
        chain = [] if self._internal else self._steps
        lines = [_line(step) for step in chain]
        if lines:
            shown = f"{shown} at {', called at '.join(lines)}".lstrip()
        hidden = [f"{step.code.co_firstlineno}+{step.instruction}" for step in chain]
        facts = [sorted(origin.aliases), sorted(origin.indices.items(), key=repr), hidden]
        return Implied(f"{shown}\n{facts}", lambda: self._with_places(origin))

    def _with_places(self, origin: Origin) -> Origin:
        if self._internal:
            return origin
        places = [source.place_of(each.code, each.instruction) for each in self._steps]
        return replace(origin, places=places, within=self._within())

    def _within(self) -> str:
        """The numbers that the loops around the call are at, except those that choose the tensor."""
        choosing = {step.code: {*step.variables} for step in self._steps}
        found = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            groups = () if is_tenon(frame) else source.loop_groups(frame.f_code)
            chosen = choosing.get(frame.f_code, set())
            chosen = {each for group in groups if not chosen.isdisjoint(group) for each in group}
            others = dict.fromkeys(each for group in groups for each in group if each not in chosen)
            values = [frame.f_locals.get(each) for each in others]
            found += [value for value in values if type(value) is int]
            frame = frame.f_back
        return repr(found)


def is_tenon(frame: FrameType) -> bool:
    """Whether ``frame`` runs code of this library rather than of the program."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "tenon" or package.startswith("tenon_")


def _line(step: Step) -> str:
    span = source.span_of(step.code, step.instruction)
    line = step.code.co_firstlineno if span is None else span[0]
    return f"{os.path.basename(step.code.co_filename)}:{line}"


def _shortened(expression: ast.expr) -> str:
    """The source of ``expression``, as a name."""
    return f"`{ast.unparse(expression)[: source.LONGEST]}`"


def _item(label: str, index: int | str) -> str:
    """``values[0]``, or ``key = 'a'`` for the variable of a loop."""
    return f"{label} {index!r}" if label.endswith("=") else f"{label}[{index!r}]"
