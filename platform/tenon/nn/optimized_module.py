"""``OptimizedModule``: what ``tenon.compile(module)`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.engine.types import Nested
    from tenon.graph.compile import Compiled
    from tenon.graph.program import Program


class OptimizedModule(Module):
    """A wrapper around a module whose call is compiled (PyTorch's class of this name).

    The original module is the child ``_orig_mod``: all other attributes are read from it, and state-dict keys
    carry that prefix, as in PyTorch.
    """

    def __init__(self, module: Module, compiled: Compiled) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled"] = compiled
        self.__dict__["training"] = module.training

    def forward(self, *args: object, **kwargs: object) -> Nested:
        """Call the original module, by replaying a recorded program if there is one."""
        return self._compiled(*args, **kwargs)

    def __setattr__(self, name: str, value: object) -> None:
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        own = name in type(self).__dict__ or name in ("__class__", "_orig_mod", "training")
        if original is None or own:
            super().__setattr__(name, value)
        else:
            setattr(original, name, value)

    @property
    def programs(self) -> list[Program]:
        """The compiled programs so far."""
        return list(self._compiled.programs)

    @property
    def reasons(self) -> list[str]:
        """A log of all recordings, and of reasons not to compile, as text."""
        return list(self._compiled.reasons)

    def __getattr__(self, name: str) -> Any:  # of the original module
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["_orig_mod"], name)
