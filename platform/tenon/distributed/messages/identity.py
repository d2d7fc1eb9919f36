"""Infer a name for the tensor of a collective, so that ranks that pass different tensors raise.

torch's functions take no name. A parameter or its gradient is named as in the model; any other tensor by the
expression in the caller's source code, and each by the calls that led there (``call_sites.py``). Such names
are ``Implied``: ranks raise if two contradict each other, but not if one is missing. ``named`` sets an
explicit name.
"""

from __future__ import annotations

import contextlib
import contextvars
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from tenon.distributed.communication import call_sites
from tenon.distributed.communication.callers import ReadCallers
from tenon.distributed.communication.calls import Implied
from tenon.distributed.communication.site import Site
from tenon.distributed.communication.steps import FIRST, INPUT, Argument, is_tenon
from tenon.distributed.processes.recent_modules import RECENT_MODULES
from tenon.engine.interceptor import SLOT
from tenon.nn.parameter import Parameter, is_lazy
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.nn.traversal import Traversal

__all__ = [
    "FIRST",
    "INPUT",
    "PARAMETERS",
    "explicit_name",
    "name_of",
    "named",
    "names_of",
    "place_name",
    "structure",
]

_getframe, _gettrace = sys._getframe, sys.gettrace
DEPTH, END, LATEST = call_sites.DEPTH, call_sites.END, call_sites.LATEST

_explicit: contextvars.ContextVar[str | None] = contextvars.ContextVar("name of collectives", default=None)


@contextlib.contextmanager
def named(name: str) -> Iterator[None]:
    """Name the tensors of all collectives inside: ranks compare ``name`` in place of inferred names.

    ::

        with dist.named("loss"):
            dist.all_reduce(loss if loss is not None else torch.zeros(()))
    """
    token = _explicit.set(name)
    try:
        yield
    finally:
        _explicit.reset(token)


def explicit_name() -> str | None:
    """The name that ``named`` sets at the moment."""
    return _explicit.get()


def name_of(tensor: Tensor, argument: Argument = FIRST, *, strict: bool = True) -> str:
    """The name of ``tensor`` that ranks compare, in a collective that the program has called directly.

    ``argument`` is where the call has the tensor. ``strict`` states that all ranks call it the same, which
    need not be so where some receive into a variable of their own.
    """
    explicit = _explicit.get()
    if explicit is not None:
        return explicit
    frame = _getframe(2)
    # Programs make the same calls in turn. To compare with the chain that came next last time takes half as
    # long as a lookup, and to ask the second frame for its callers takes half as long as that. Unrolled and
    # written out here: a loop, or a function, takes 0.1 us more.
    second = frame.f_back or END
    callers = second.f_trace
    expected = LATEST.chain.next
    if (
        (
            callers is expected.callers
            or (type(callers) is ReadCallers and callers.callers is expected.callers)
        )
        and frame.f_lasti == expected.at_1
        and frame.f_code is expected.code_1
        and second.f_lasti == expected.at_2
    ):
        LATEST.chain = expected
        site = expected.site
    else:
        third = second.f_back or END
        fourth = third.f_back or END
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
            LATEST.chain = expected
            site = expected.site
            if not callers and expected.is_kept and _gettrace() is None:
                second.f_trace = callers = expected.callers
        else:
            site = call_sites.find(frame, argument, strict)
    parameter = None
    size = tensor.raw.size
    if size != RECENT_MODULES.other:
        if size in RECENT_MODULES.sizes:
            parameter = PARAMETERS.find(tensor)
        else:
            RECENT_MODULES.other = size
    if parameter is not None:
        name = site.of_parameter(parameter)
    elif site.chooses:
        holder = site.latest.next
        if holder.depth < DEPTH and holder.holds(tensor, frame, callers):
            site.latest = holder
            name = holder.name
        else:
            name = site.of_tensor(tensor, frame)
    else:
        name = site.name
    if SLOT.top is not None:
        return name.recorded()
    return called_back(site, name, frame, tensor) if site.is_callback else name


def names_of(tensors: Sequence[Tensor], argument: Argument, *, strict: bool = True) -> list[str]:
    """The names of ``tensors``, which the program passes in one list to a collective that it has called."""
    explicit = _explicit.get()
    if explicit is not None:
        return [explicit] * len(tensors)
    frame = sys._getframe(2)
    site = call_sites.find(frame, argument, strict)
    names: list[Implied] = site.of_elements(tensors, frame)
    for number, tensor in enumerate(tensors):
        parameter = PARAMETERS.find(tensor)
        if parameter is not None:
            names[number] = site.of_parameter(parameter)
    return [name if SLOT.top is None else name.recorded() for name in names]


def called_back(site: Site, name: Implied, frame: FrameType, tensor: Tensor) -> Implied:
    """``name`` of a call in a hook or another callback, with the place from which this library came to it."""
    each: FrameType | None = frame
    while each is not None and not is_tenon(each):
        each = each.f_back
    if each is None:
        return name
    # A hook of a leaf has its gradient, which is in no variable: the leaf may be in one.
    caller: FrameType | None = each
    while caller is not None and is_tenon(caller) and caller.f_code.co_name != call_sites.AT_LEAF:
        caller = caller.f_back
    if caller is not None and caller.f_code.co_name == call_sites.AT_LEAF:
        tensor = caller.f_locals[call_sites.LEAF]
        parameter = PARAMETERS.find(tensor)
        if parameter is not None:
            name = site.of_parameter(f"the gradient of {parameter.removeprefix('the parameter ')}")
    return call_sites.called_from(name, each, tensor, "called")


def place_name(value: object = None, argument: Argument | None = None) -> str:
    """The name of a collective of no tensor, a barrier or one of objects: where it was called.

    ``value`` is the object, which the call has at ``argument``.
    """
    explicit = _explicit.get()
    if explicit is not None:
        return explicit
    frame = sys._getframe(2)
    site = call_sites.find(frame, argument, False)
    if not site.chooses:
        return site.name
    # Numbers and texts are one object in many variables.
    return site.of_tensor(value if isinstance(value, list | dict) else None, frame)


class Registered:
    """A parameter, its name and that of its gradient, and which one came next the last time."""

    __slots__ = ("gradient_name", "name", "next", "reference")

    def __init__(self, reference: Callable[[], Tensor | None], name: str, gradient_name: str) -> None:
        self.reference, self.name, self.gradient_name = reference, name, gradient_name
        self.next = self

    def name_of(self, raw: object) -> str | None:
        """Its name if ``raw`` is its array, or that of its gradient; else None."""
        parameter = self.reference()
        if parameter is None:
            return None
        if parameter.raw is raw:
            return self.name
        gradient = parameter._grad
        return self.gradient_name if gradient is not None and gradient.raw is raw else None


def _nothing() -> None:
    """The reference to no parameter."""


@dataclass(slots=True)
class SameShape:
    """Parameters of one shape, and where the search begins."""

    registered: list[Registered]
    start: int = 0


class Parameters:
    """A registry of the parameters of modules whose ``parameters()`` were iterated, by name."""

    def __init__(self) -> None:
        self._roots: weakref.WeakSet[Traversal] = weakref.WeakSet()
        self._known: dict[tuple[int, ...], SameShape] = {}
        self._latest = Registered(_nothing, "", "")

    def find(self, tensor: Tensor) -> str | None:
        """The name of the parameter that ``tensor`` is, or is the gradient of; None if it is neither.

        Loops visit parameters in order: that which came next the last time is tried first, and then those of
        the shape of ``tensor``, after the last match.
        """
        if RECENT_MODULES.pending:
            recent = RECENT_MODULES.taken()
            if any(module not in self._roots for module in recent):
                self._refresh(recent)
        raw = tensor.raw
        expected = self._latest.next
        name = expected.name_of(raw)
        if name is not None:
            self._latest = expected
            return name
        candidates = self._known.get(raw.shape)
        if candidates is None:
            return None
        registered, index = candidates.registered, candidates.start
        for _ in registered:
            each = registered[index]
            index = index + 1 if index + 1 < len(registered) else 0
            name = each.name_of(raw)
            if name is not None:
                candidates.start = index
                self._latest.next = each
                self._latest = each
                return name
        return None

    def _refresh(self, modules: Iterable[Traversal]) -> None:
        """Rebuild the registry; a parameter is named by its longest path, from the outermost module."""
        self._roots.update(modules)
        names: dict[int, tuple[Parameter, str]] = {}
        for root in list(self._roots):
            for name, parameter in root.named_parameters():
                if is_lazy(parameter):
                    self._roots.discard(root)  # Registered again once its parameters have shapes.
                    continue
                other = names[id(parameter)][1] if id(parameter) in names else ""
                if (name.count("."), name) > (other.count("."), other):
                    names[id(parameter)] = parameter, name
        self._known = {}
        self._latest = Registered(_nothing, "", "")
        for parameter, name in names.values():
            candidates = self._known.setdefault(tuple(parameter.raw.shape), SameShape([]))
            reference: weakref.ref[Tensor] = weakref.ref(parameter)
            each = Registered(reference, f"the parameter {name}", f"the gradient of {name}")
            candidates.registered.append(each)
        RECENT_MODULES.know({parameter.raw.size for parameter, _ in names.values()})


PARAMETERS = Parameters()


def structure(module: Module, parameters: Iterable[Tensor] | None = None) -> list[str]:
    """Describe each module in a line, with the options of tenon's own layers, for ranks to compare.

    With ``parameters``, layers that have only other parameters are skipped: they are not communicated.

    >>> from tenon import nn
    >>> structure(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.1)))[2:]
    ['1 is ReLU()', '2 is Dropout(p=0.1, inplace=False)']
    """
    lines = []
    known = None if parameters is None else {id(parameter) for parameter in parameters}
    for path, part in module.named_modules():
        has = [id(parameter) for parameter in part.parameters(recurse=False)]
        if known is not None and has and known.isdisjoint(has):
            continue
        own = type(part).__module__.startswith("tenon.nn.")
        options = re.sub(r"0x[0-9a-f]+|cuda:\d+", "", part.extra_repr()) if own else ""
        lines.append(f"{path or 'the model'} is {type(part).__qualname__}({options})")
    return lines
