"""How Tensor takes part in ``__torch_function__``: subclasses keep their class, unless they say otherwise."""

from __future__ import annotations

from typing import Any

from tenon.compat.overriding import DisableTorchFunctionSubclass, converted, disabled, wants
from tenon.compat.rerouting import ask_for_good

#: Getters of tensors that stay what they are.
_AS_THEY_ARE = ("_base", "grad")


class Overriding:
    """``__torch_function__``, and what notices the first class that has it called."""

    __slots__ = ()

    def __init_subclass__(cls, plain: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "__torch_dispatch__" in own and "__torch_function__" not in own:
            cls.__torch_function__ = staticmethod(disabled)  # type: ignore[assignment]  # torch: asked of ops only
        if not plain and wants(cls):
            ask_for_good()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called in place of ``func`` when a subclass is among its arguments: the results become of that
        class."""
        if not all(issubclass(cls, each) for each in types):
            return NotImplemented
        with DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        getter = getattr(func, "__self__", None)
        if isinstance(getter, property) and getattr(getter.fget, "__name__", "") in _AS_THEY_ARE:
            return result
        return converted(result, cls)
