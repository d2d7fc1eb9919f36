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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from tenon.distributed.communication import call_sites
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
    frame = sys._getframe(2)
    site = call_sites.find(frame, argument, strict)
    parameter = None
    if RECENT_MODULES.pending or tensor.raw.size in PARAMETERS.sizes:
        parameter = PARAMETERS.find(tensor)
    if parameter is not None:
        name = site.of_parameter(parameter)
    else:
        name = site.of_tensor(tensor, frame) if site.chooses else site.name
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


@dataclass(slots=True)
class SameShape:
    """Parameters of one shape with their names and those of their gradients, and where the search begins."""

    named: list[tuple[weakref.ref[Tensor], str, str]]
    start: int = 0


class Parameters:
    """A registry of the parameters of modules whose ``parameters()`` were iterated, by name."""

    def __init__(self) -> None:
        self._roots: weakref.WeakSet[Traversal] = weakref.WeakSet()
        self._known: dict[tuple[int, ...], SameShape] = {}
        self.sizes: set[int] = set()
        """The numbers of elements of the parameters: a tensor of another is none of them."""

    def find(self, tensor: Tensor) -> str | None:
        """The name of the parameter that ``tensor`` is, or is the gradient of; None if it is neither.

        Loops visit parameters in order, so the search begins after the last match of that shape.
        """
        if RECENT_MODULES.pending:
            recent = RECENT_MODULES.taken()
            if any(module not in self._roots for module in recent):
                self._refresh(recent)
        raw = tensor.raw
        candidates = self._known.get(raw.shape)
        if candidates is None:
            return None
        named, index = candidates.named, candidates.start
        for _ in named:
            reference, name, gradient_name = named[index]
            index = index + 1 if index + 1 < len(named) else 0
            parameter = reference()
            if parameter is None:
                continue
            if parameter.raw is raw:
                candidates.start = index
                return name
            gradient = parameter._grad
            if gradient is not None and gradient.raw is raw:
                candidates.start = index
                return gradient_name
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
        for parameter, name in names.values():
            candidates = self._known.setdefault(tuple(parameter.raw.shape), SameShape([]))
            reference: weakref.ref[Tensor] = weakref.ref(parameter)
            candidates.named.append((reference, f"the parameter {name}", f"the gradient of {name}"))
        self.sizes = {parameter.raw.size for parameter, _ in names.values()}


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
