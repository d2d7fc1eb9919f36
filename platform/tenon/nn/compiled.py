"""``OptimizedModule``: what ``tenon.compile(module)`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


class OptimizedModule(Module):
    """A module whose call is compiled; everything else is the original's (torch's class of this name).

    The original is the child ``_orig_mod`` and shares its parameters: state-dict keys carry that prefix, as
    in torch.
    """

    def __init__(self, module: Module, compiled: Any) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_compiled"] = compiled
        self.__dict__["training"] = module.training

    def forward(self, *args: Tensor, **kwargs: Any) -> Tensor:
        """The original's call, replayed where it is recorded."""
        return self._compiled(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        original = self.__dict__.get("_modules", {}).get("_orig_mod")
        if original is None or name in type(self).__dict__ or name in ("_orig_mod", "training"):
            super().__setattr__(name, value)
        else:
            setattr(original, name, value)

    @property
    def programs(self) -> list[Any]:
        """The programs made so far."""
        return list(self._compiled.programs)

    @property
    def reasons(self) -> list[str]:
        """Every recording and refusal, in words."""
        return list(self._compiled.reasons)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules["_orig_mod"], name)
