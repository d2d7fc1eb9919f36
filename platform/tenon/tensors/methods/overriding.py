"""Tensor's default ``__torch_function__``: results of functions of a subclass are of that subclass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tenon.compat.overriding import DisableTorchFunctionSubclass, can_override, converted, disabled
from tenon.compat.rerouting import reroute_permanently
from tenon.tensors.methods.family import Family

if TYPE_CHECKING:
    pass

#: Properties whose tensors are not converted to the subclass.
_UNCONVERTED = ("_base", "grad")


class Overriding(Family):
    """``__torch_function__``, and the hook that turns its lookup on when the first subclass is defined."""

    __slots__ = ()

    def __init_subclass__(cls, plain: bool = False, **kwargs: Any) -> None:  # of the subclass's other bases
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "__torch_dispatch__" in own and "__torch_function__" not in own:
            cls.__torch_function__ = staticmethod(disabled)  # type: ignore[assignment]  # PyTorch calls it for ops only
        if not plain and can_override(cls):
            reroute_permanently()

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., object],
        types: Iterable[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:  # what ``func`` returns
        """Call ``func`` for arguments of which one is of a subclass; tensors of the result become ``cls``."""
        if not all(issubclass(cls, each) for each in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        getter = getattr(func, "__self__", None)
        if isinstance(getter, property) and getattr(getter.fget, "__name__", "") in _UNCONVERTED:
            return result
        return converted(result, cls)
