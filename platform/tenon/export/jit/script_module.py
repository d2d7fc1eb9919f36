"""``ScriptModule``: a module whose methods are traces; ``trace`` and ``load`` make them.

A traced module has a class of its own, as its methods are generated. Its parameters and buffers are those of
the module that was traced, its children ``TracedModule`` objects of the same names.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, BinaryIO, ClassVar, Protocol, Self

from tenon.errors import ArgumentError, UnsavableError, UnsupportedError
from tenon.export.captured import CapturedGraph
from tenon.export.jit import content
from tenon.export.jit.program import REASON, STORE, Program, bound
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor

#: Where a part of a trace holds what it will be traced from when it is needed.
PENDING = "_pending"


class _Pending(Protocol):
    """A part that has not been traced yet."""

    def complete(self, module: ScriptModule) -> None:
        """Trace it, and give ``module`` the method, or the reason why there is none."""


class ScriptModule(Module):
    """A module that runs recorded programs; a subclass that is written in Python runs as Python.

    ``trace``, ``trace_module`` and ``load`` return such modules, with the traced methods. ``train`` and
    ``eval`` set the flag ``training`` and nothing else: a trace does what was recorded.
    """

    #: The traced methods by name.
    _programs: ClassVar[Mapping[str, Program]] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # methods of traces and subclasses replace it
        """Raise an error: traced modules have their own ``forward``, and so have parts that were called."""
        if "_original_name" not in self.__dict__:
            return Module.forward(self, *args, **kwargs)
        if self._complete()._programs:
            return self.forward(*args, **kwargs)
        why = self.__dict__.get(REASON, "it was not called while the whole was traced.")
        raise UnsupportedError(
            f"{self.original_name} is part of a trace and cannot be called alone: {why} Trace this part by "
            "itself, tenon.jit.trace(module.part, example_inputs), or call the whole."
        )

    def _complete(self) -> Self:
        """Trace the part now, if it was called while the whole was traced and was not needed so far."""
        pending: _Pending | None = self.__dict__.get(PENDING)
        if pending is not None:
            pending.complete(self)
        return self

    def _program(self, what: str) -> Program:
        programs = self._complete()._programs
        if not programs:
            raise UnsupportedError(
                f"{self.original_name} has no {what}: it was not traced. tenon.jit.trace(module, "
                "example_inputs) returns a module that has."
            )
        return programs.get("forward") or next(iter(programs.values()))

    @property
    def original_name(self) -> str:
        """The name of the class that was traced."""
        return str(self.__dict__.get("_original_name", type(self).__name__))

    @property
    def code(self) -> str:
        """``forward`` as Python."""
        return self._program("code").code

    @property
    def graph(self) -> CapturedGraph:
        """The graph of ``forward``, with the present parameters and buffers."""
        return bound(self._program("graph"), self._at)

    @property
    def inlined_graph(self) -> CapturedGraph:
        """The same as ``graph``, which has no calls of other modules in it."""
        return self.graph

    @property
    def code_with_constants(self) -> tuple[str, SimpleNamespace]:
        """``code``, and the tensors in it that are neither parameters nor buffers."""
        code = self._program("code").code
        return code, copy.copy(self.__dict__.get(STORE, SimpleNamespace()))

    def _at(self, path: str) -> Any:  # a tensor, or a function that draws random numbers
        member: Any = self  # then what is at each name of the path
        for name in path.split("."):
            member = getattr(member, name)
        return member

    def save(
        self, f: str | os.PathLike[str] | BinaryIO, _extra_files: Mapping[str, str | bytes] | None = None
    ) -> None:
        """Write the module to a file that ``tenon.jit.load`` reads, without the class that was traced.

        A path is replaced atomically. ``_extra_files`` are texts or bytes that go along, by name.
        """
        self._program("program to save")
        content.write(f, content.module_entry(self), _extra_files)

    def save_to_buffer(self, _extra_files: Mapping[str, str | bytes] | None = None) -> bytes:
        """Return the bytes that ``save`` writes."""
        file = io.BytesIO()
        self.save(file, _extra_files)
        return file.getvalue()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for module in self.modules():
            if isinstance(module, ScriptModule):
                module._complete()
        super()._apply(fn, recurse)
        move_stored(self.__dict__.get(STORE), fn)
        return self

    def _get_name(self) -> str:
        return self.original_name if isinstance(self, TracedModule) else super()._get_name()

    def extra_repr(self) -> str:
        """The name of the class that was traced."""
        return f"original_name={self.original_name}" if "_original_name" in self.__dict__ else ""

    def __copy__(self) -> Self:
        copied = type(self._complete()).__new__(type(self))
        copied.__setstate__(copy.copy(self.__getstate__()))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:  # copies by id
        copied = type(self._complete()).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:  # as of object
        if "_original_name" in self.__dict__:
            raise UnsavableError(
                f"A traced module ({self.original_name}) cannot be pickled, or saved by tenon.save. Write it "
                "by traced.save(path) or tenon.jit.save(traced, path); its weights alone are in "
                "traced.state_dict()."
            )
        return super().__reduce_ex__(protocol)


class TracedModule(ScriptModule):
    """A part of a traced module, with the parameters and buffers that it has there."""


class TopLevelTracedModule(TracedModule):
    """What ``trace`` returns for a module."""


class RecursiveScriptModule(ScriptModule):
    """What ``load`` returns."""


def with_programs(
    base: type[ScriptModule], module: ScriptModule, programs: Mapping[str, Program], stored: SimpleNamespace
) -> ScriptModule:
    """Give ``module``, an instance of ``base``, the methods ``programs``; return it."""
    for name in programs:
        if name != "forward" and (name in module.__dict__ or hasattr(base, name)):
            raise ArgumentError(
                f"a traced method cannot be called {name!r}, a name that every traced module has already. "
                "Give it another name."
            )
    members: dict[str, Any] = {name: program.function for name, program in programs.items()}  # methods
    own = type(base.__name__, (base,), {"__module__": base.__module__, "_programs": programs, **members})
    module.__class__ = own
    module.__dict__[STORE] = stored
    return module


def move_stored(stored: SimpleNamespace | None, fn: Callable[[Tensor], Tensor]) -> None:
    """Apply ``fn`` to the tensors in ``stored``."""
    for name, value in vars(stored).items() if stored is not None else ():
        if isinstance(value, Tensor):
            setattr(stored, name, fn(value))


def mirrored(module: Module, base: type[ScriptModule], memo: dict[int, ScriptModule]) -> ScriptModule:
    """Return a tree of traced modules with the parameters, buffers and children of ``module``."""
    if id(module) in memo:
        return memo[id(module)]
    own = base()
    memo[id(module)] = own
    for name in (*module._parameters, *module._buffers, *module._modules):
        if name in vars(ScriptModule):
            raise ArgumentError(
                f"{type(module).__name__} has a member {name!r}, which traced modules use as a name of their "
                "own. Rename it, then trace."
            )
    own.__dict__["_original_name"] = getattr(module, "original_name", None) or type(module).__name__
    own.training = module.training
    for name, parameter in module._parameters.items():
        own.register_parameter(name, parameter)
    for name, buffer in module._buffers.items():
        own.register_buffer(name, buffer, persistent=name not in module._non_persistent_buffers_set)
    for name, child in module._modules.items():
        part: Any = None if child is None else mirrored(child, TracedModule, memo)  # None reserves the name
        own.add_module(name, part)
    if base is TracedModule and isinstance(module, ScriptModule) and module._complete()._programs:
        stored = SimpleNamespace(**vars(module.__dict__.get(STORE, SimpleNamespace())))
        with_programs(TracedModule, own, module._programs, stored)
    return own
