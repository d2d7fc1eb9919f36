"""``Site``: a chain of calls that leads to a collective, and the name that its source suggests.

Where the source chooses the tensor at run time (the variable of a loop, an item, an ``if`` expression), the
name lists which other variables refer to that tensor. They are searched, unless the variable that held the
tensor of the last time's next call holds this one.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import TypeAlias

from tenon.distributed.communication import references, source
from tenon.distributed.communication.calls import Implied
from tenon.distributed.communication.holders import NOWHERE, Holder, Label, Labels, above, holder_of
from tenon.distributed.communication.origin import Origin
from tenon.distributed.communication.steps import Argument, Followed, Reading, Step, is_tenon, shortened
from tenon.tensors.tensor import Tensor

CHOICES = 256
"""Size of a site's cache of names."""
SEARCHES = 64
"""Searches at a site whose tensor a function returns."""
FRUITLESS = 32
"""A site at which so many tensors in turn had no other variable is not searched again."""
OBJECTS: Sequence[Argument] = ((0, "obj"), (1, "obj"), (0, "object_list"), (1, "scatter_object_input_list"))


#: Depth of a frame, variable, key of an item of it, and the variable of a loop that is looked for.
_Held: TypeAlias = tuple[int, str, int | str | None, str]


@dataclass(slots=True)
class _Found:
    """What refers to a tensor; ``subjects`` are it and the variables of loops that it comes from."""

    subjects: list[tuple[str, object]]
    aliases: list[str] = field(default_factory=list)
    indices: list[tuple[str, int | str]] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    holders: dict[str, _Held] = field(default_factory=dict)
    """Where the subjects are, by their variables; empty for the tensor itself."""
    outside: set[str] = field(default_factory=set)
    """Those of which the holder is outside of all frames that were searched."""

    @property
    def holder(self) -> _Held | None:
        """What determines everything else that was found."""
        return self.holders.get("") or (next(iter(self.holders.values())) if len(self.holders) == 1 else None)


class Site:
    """A chain of calls, as frames and their depths; ``name`` is the tensor's name in the source, unless the
    source ``chooses`` one at run time."""

    __slots__ = (
        "_argument",
        "_choices",
        "_computed",
        "_expression",
        "_followed",
        "_fruitless",
        "_holders",
        "_internal",
        "_labelled_names",
        "_labels",
        "_loops",
        "_names",
        "_searches",
        "_steps",
        "_strict",
        "_subject",
        "chooses",
        "is_callback",
        "latest",
        "name",
    )

    def __init__(
        self, chain: Sequence[tuple[int, FrameType]], argument: Argument | Followed | None, strict: bool
    ) -> None:
        self._strict = strict
        self._subject = ""
        if argument is not None and not isinstance(argument, Followed):
            self._subject = "an object" if argument in OBJECTS else "a tensor"
        own = [(depth, each) for depth, each in chain if not is_tenon(each)]
        self._internal = not own
        self.is_callback = bool(own) and own[-1][0] < chain[-1][0]
        """Whether this library has called the outermost frame that is known."""
        reading = Reading(own or chain[:1], argument, self.is_callback, strict)
        self._expression, self._argument = reading.expression, reading.argument
        self._loops, self.chooses, self._computed = reading.loops, reading.chooses, reading.computed
        self._steps, self._followed = reading.steps, reading.followed
        if reading.returned and not self.chooses:
            # New tensors in other variables each time would take a search each time.
            self._loops = self.chooses = True
            self._searches = SEARCHES
        else:
            self._searches = sys.maxsize
        followed = itertools.takewhile(lambda step: step.follows, self._steps)
        self._labels = [(step.depth, each) for step in followed for each in sorted(step.labels)]
        self._labelled_names: dict[tuple[object, ...], Labels] = {}
        self._fruitless = 0
        self._names: dict[str, Implied] = {}
        self._choices: dict[tuple[object, ...], Implied] = {}
        self.name = self._implied(Origin(expression=self._expression))
        self._holders: dict[tuple[object, ...], Holder] = {}
        self.latest = Holder(NOWHERE, "", None, "", self.name)

    def of_parameter(self, parameter: str) -> Implied:
        """The name of a parameter or a gradient at this site."""
        name = self._names.get(parameter)
        if name is None:
            name = self._names[parameter] = self._implied(Origin(parameter=parameter))
        return name

    def of_tensor(self, tensor: object, frame: FrameType) -> Implied:
        """The name of ``tensor`` at this site, which ``frame`` is at."""
        if self._fruitless >= FRUITLESS:
            return self._labelled(frame) if self._labels else self.name
        # Tensors in the same variables as the last time need no search, which takes five times as long.
        expected = self.latest.next
        if expected.depth < NOWHERE and expected.holds(tensor, frame):
            self.latest = expected
            return expected.name
        self._searches -= 1
        if self._searches < 0:
            return self.name
        name = self._choice(tensor, frame, self._expression)
        if self._fruitless >= FRUITLESS:
            self.chooses = bool(self._labels)
            self.latest = Holder(NOWHERE, "", None, "", self.name)
        return name

    def _labelled(self, frame: FrameType) -> Implied:
        """The name by the keys that choose the tensor, where it is in no variable."""
        values: list[object] = []
        plain = True
        for depth, variable in self._labels:
            value = (above(frame, depth) if depth else frame).f_locals.get(variable)
            values.append(value)
            plain = plain and (type(value) is str or type(value) is int)  # True would be taken for 1
        known = tuple(values)
        holder = self._labelled_names.get(known) if plain else None
        if holder is None:
            keys = map(references.as_key, values)
            labels = [Label(*of, key) for of, key in zip(self._labels, keys, strict=True) if key is not None]
            numbers = [(f"{each.variable} =", each.key) for each in labels]
            holder = Labels(self._chosen(self._expression, (), numbers, {}), labels)
            if plain:
                self._labelled_names[known] = holder
        if plain:
            self.latest.next = holder
            self.latest = holder
        return holder.name

    def of_elements(self, tensors: Sequence[Tensor], frame: FrameType) -> list[Implied]:
        """The names of ``tensors``, which the call passes as a list."""
        self._loops = True
        names = []
        for number, part in enumerate(references.elements(self._argument, len(tensors))):
            expression = None if self._expression is None else f"{self._expression[:-1]}[{number}]`"
            if part is not None and references.named(part):
                expression = shortened(part)
            names.append(self._choice(tensors[number], frame, expression))
        return names

    def _choice(self, tensor: object, frame: FrameType, expression: str | None) -> Implied:
        """Name ``tensor`` by the variables and items that refer to it in the frames of this site."""
        found = _Found([("", tensor)] if tensor is not None else [])
        depth = 0
        for step in self._steps:
            if not step.follows:
                break
            while depth < step.depth:
                frame, depth = frame.f_back or frame, depth + 1
            self._search(step, frame, tensor, found)
        aliases, indices = found.aliases, found.indices
        numbers: list[tuple[str, int | str]] = [(f"{each.variable} =", each.key) for each in found.labels]
        if aliases and expression is not None:
            aliases = [each for each in aliases if each != expression[1:-1]]
        if self._computed and not self._strict:
            aliases, indices = [], []  # Each rank may compute which one it passes.
        holder = found.holder
        if not (aliases or indices):
            self._fruitless += 1
            holder = None
            if not numbers and expression == self._expression:
                return self.name
        else:
            self._fruitless = 0
        name = self._chosen(expression, aliases, [*indices, *numbers], found.owners)
        if holder is not None:
            following = self._holders.get((holder, name))
            if following is None:
                step = next(each for each in self._steps if each.depth == holder[0])
                following = holder_of(step.code, *holder, name, found.labels)
                self._holders[holder, name] = following
            self.latest.next = following
            self.latest = following
        return name

    def _search(self, step: Step, frame: FrameType, tensor: object, found: _Found) -> None:
        """Add what refers to ``tensor``, or to the variable of a loop that it comes from, in one frame."""
        values = frame.f_locals
        for variable in step.variables:
            value = values.get(variable)
            if value is tensor or value is None or isinstance(value, bool):
                continue
            key = references.as_key(value)
            if key is not None and variable in step.labels:
                found.labels.append(Label(step.depth, variable, key))
                owner = step.owner_of_container(values)
                if owner:
                    found.owners[f"{variable} ="] = owner
            elif key is None and variable in step.loops:
                found.subjects.append((variable, value))
        variables: Iterable[tuple[str, object]] = values.items()
        if step.names or not step.code.co_flags & CO_OPTIMIZED:
            variables = references.in_frame(step.code, step.names, values, frame.f_globals)
        for loop, subject in found.subjects:
            if loop and "" in found.holders:
                break  # The tensor itself says more.
            aliases: list[str] = []
            indices: list[tuple[str, int | str]] = []
            references.search(variables, subject, step.loops, aliases, indices)
            if self._loops and not (aliases or indices):
                references.search_attributes(variables, subject, step.loops, aliases, indices)
            if self._loops and not (loop or aliases or indices or found.aliases or found.indices):
                references.search_inside(variables, tensor, indices)
            for each in (*aliases, *(label for label, _ in indices)):
                found.owners.setdefault(each.partition(".")[0], step.owner_of(each, values))
            places = [*((each, None) for each in aliases if f"`{each}`" != self._expression), *indices]
            held = next((each for each in places if step.may_hold(*each, values)), None)
            if held is not None and not loop:
                found.labels.clear()
                if found.holders.keys() - {""}:
                    found.holders.clear()
                    found.aliases, found.indices = [], []
            found.aliases += aliases
            found.indices += indices
            # The outermost frame decides what those below were given, except what is outside of all.
            if held is not None and loop not in found.outside and (not loop or loop in step.variables):
                found.holders[loop] = (step.depth, *held, loop)
                if step.is_outside(held[0]):
                    found.outside.add(loop)
        if found.holders and step.labels:
            found.labels = [each for each in found.labels if each.variable not in step.labels]

    def _chosen(
        self,
        expression: str | None,
        aliases: Sequence[str],
        indices: Sequence[tuple[str, int | str]],
        owners: Mapping[str, str],
    ) -> Implied:
        """The name of a tensor that the variables ``aliases`` and the items ``indices`` are."""
        facts = expression, *aliases, *indices
        name = self._choices.get(facts)
        if name is None:
            if len(self._choices) >= CHOICES:
                self._choices.clear()
                self._holders.clear()
                self._labelled_names.clear()
            first = dict(reversed(indices))  # of a container that holds the tensor twice
            name = self._choices[facts] = self._implied(
                Origin(expression=expression, aliases=sorted({*aliases}), indices=first, owners=owners)
            )
        return name

    def _implied(self, origin: Origin) -> Implied:
        """``origin`` at this site as a name: the text shown, and after a line break what else distinguishes
        calls."""
        origin = replace(origin, strict=self._strict, loops=self._loops)
        shown = origin.parameter or origin.expression or self._subject
        others = [*origin.aliases, *(_item(*item) for item in sorted(origin.indices.items()))]
        if others:
            shown += f" ({', '.join(others)})"
        chain = [] if self._internal else self._steps
        lines = [_line(step) for step in chain]
        if lines:
            shown = f"{shown} at {', called at '.join(lines)}".lstrip()
        hidden = [f"{step.code.co_firstlineno}+{step.instruction}" for step in chain]
        facts = [sorted(origin.aliases), sorted(origin.indices.items(), key=repr), hidden]
        name = Implied(f"{shown}\n{facts}", lambda: self._with_places(origin))
        name.followed, name.passes = self._followed, self._within
        return name

    def _with_places(self, origin: Origin) -> Origin:
        if self._internal:
            return origin
        places = [source.place_of(each.code, each.instruction) for each in self._steps]
        return replace(origin, places=places, within=self._within())

    def _within(self) -> int:
        """A hash of the numbers that the loops around the call are at, not those that choose the tensor."""
        choosing = {step.code: {*step.choosing} for step in self._steps}
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
        return int.from_bytes(hashlib.blake2b(repr(found).encode(), digest_size=8).digest(), "big") >> 1


def _line(step: Step) -> str:
    span = source.span_of(step.code, step.instruction)
    line = step.code.co_firstlineno if span is None else span[0]
    return f"{os.path.basename(step.code.co_filename)}:{line}"


def _item(label: str, index: int | str) -> str:
    """``values[0]``, or ``key = 'a'`` for the variable of a loop."""
    return f"{label} {index!r}" if label.endswith("=") else f"{label}[{index!r}]"
