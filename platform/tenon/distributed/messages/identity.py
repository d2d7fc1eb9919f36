"""Infer a name for the tensor of a collective, so that ranks that pass different tensors raise.

torch's functions take no name. A parameter or its gradient is named as in the model; any other tensor by the
expression in the caller's source code. Such names are ``Implied``: ranks raise if two contradict each other,
but not if one is missing. ``named`` sets an explicit name.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import dis
import linecache
import re
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING, NamedTuple

from tenon.distributed.communication.calls import Implied
from tenon.distributed.processes.recent_modules import RECENT_MODULES
from tenon.nn.parameter import Parameter, is_lazy
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.nn.traversal import Traversal

LONGEST = 80
"""Maximal length of an expression that is used as a name."""
SITES = 4096
"""Size of the cache of call sites: parsing one takes as long as a thousand sums."""
_explicit: contextvars.ContextVar[str | None] = contextvars.ContextVar("name of collectives", default=None)


class Site(NamedTuple):
    """A call site: the expression that it passes as the tensor, and whether that is a loop variable."""

    code: CodeType
    text: Implied | None
    loops: bool


_sites: dict[tuple[int, int], Site] = {}


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


def name_of(tensor: Tensor, written: bool) -> str | None:
    """The name of ``tensor`` that ranks compare; None if there is none.

    With ``written``, a tensor that is no parameter is named by the expression in the source of the function
    that called the collective, which must be the caller of this function.
    """
    explicit = _explicit.get()
    if explicit is not None:
        return explicit
    name = PARAMETERS.find(tensor)
    if name is None and written:
        name = _expression(sys._getframe(2), tensor)
    return name


@dataclass
class SameShape:
    """Named parameters of one shape, and the index at which the search begins."""

    named: list[tuple[weakref.ref[Tensor], str]]
    start: int = 0


class Parameters:
    """A registry of the parameters of modules whose ``parameters()`` were iterated, by name."""

    def __init__(self) -> None:
        self._roots: weakref.WeakSet[Traversal] = weakref.WeakSet()
        self._known: dict[tuple[int, ...], SameShape] = {}

    def find(self, tensor: Tensor) -> Implied | None:
        """The name of the parameter that ``tensor`` is, or is the gradient of; None if it is neither.

        Loops visit parameters in order, so the search begins after the last match of that shape.
        """
        if RECENT_MODULES.modules:
            recent = list(RECENT_MODULES.modules)
            RECENT_MODULES.modules.clear()
            if any(module not in self._roots for module in recent):
                self._refresh(recent)
        raw = tensor.raw
        candidates = self._known.get(raw.shape)
        if candidates is None:
            return None
        count = len(candidates.named)
        for index in range(candidates.start, candidates.start + count):
            reference, name = candidates.named[index % count]
            parameter = reference()
            if parameter is None:
                continue
            gradient = parameter._grad
            if gradient is not None and gradient.raw is raw:
                candidates.start = (index + 1) % count
                return Implied(f"the gradient of {name}")
            if parameter.raw is raw:
                candidates.start = (index + 1) % count
                return Implied(f"the parameter {name}")
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
            candidates.named.append((weakref.ref(parameter), name))


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


def _expression(frame: FrameType, tensor: Tensor) -> Implied | None:
    """The source of the first argument of the call running in ``frame``; None if it is no variable.

    The name of a loop variable includes another variable bound to the same tensor, as ranks may iterate in
    different orders.
    """
    code = frame.f_code
    key = id(code), frame.f_lasti
    site = _sites.get(key)
    if site is None:
        if len(_sites) >= SITES:
            _sites.clear()
        site = _sites[key] = Site(code, *_read(code, frame.f_lasti))
    if site.loops and site.text is not None:
        for values in (frame.f_locals, frame.f_globals):
            others = [n for n, v in values.items() if v is tensor and f"`{n}`" != site.text]
            if others:
                return Implied(f"{site.text} ({min(others)})")
    return site.text


def _read(code: CodeType, instruction: int) -> tuple[Implied | None, bool]:
    """The ``text`` and ``loops`` of the ``Site`` at byte ``instruction`` of ``code``, from its source."""
    first, last, start, stop = list(code.co_positions())[instruction // 2]
    if first is None or last is None or start is None or stop is None:
        return None, False
    lines = [line.encode() for line in _lines(code.co_filename)[first - 1 : last]]
    if len(lines) != last - first + 1:
        return None, False
    lines[-1] = lines[-1][:stop]
    lines[0] = lines[0][start:]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None, False  # The file has changed since it was imported.
    if not isinstance(call, ast.Call):
        return None, False
    arguments = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "tensor")]
    if not arguments or not isinstance(arguments[0], (ast.Name, ast.Attribute, ast.Subscript)):
        return None, False
    loops = isinstance(arguments[0], ast.Name) and arguments[0].id in _loop_variables(code)
    return Implied(f"`{ast.unparse(arguments[0])[:LONGEST]}`"), loops


def _loop_variables(code: CodeType) -> set[str]:
    """The variables that ``for`` loops in ``code`` assign: the stores right after ``FOR_ITER``."""
    variables: set[str] = set()
    assigns = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "FOR_ITER":
            assigns = True
        elif assigns and instruction.opname.startswith("STORE_"):
            names = instruction.argval
            variables.update(names if isinstance(names, tuple) else (names,))
        elif instruction.opname != "UNPACK_SEQUENCE":
            assigns = False
    return variables


def _lines(file: str) -> list[str]:
    """The lines of a source file, or of the program passed by ``python -c``."""
    if file == "<string>" and "-c" in sys.orig_argv[:-1]:
        return sys.orig_argv[sys.orig_argv.index("-c") + 1].splitlines(keepends=True)
    return linecache.getlines(file)
