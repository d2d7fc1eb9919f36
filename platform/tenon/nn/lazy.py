"""``LazyModuleMixin``: modules that infer their sizes from the first input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from tenon.engine.types import Forwarded
from tenon.errors import MissingForwardError, ModuleError
from tenon.nn.parameter import is_lazy
from tenon.tensors.autograd.grad_mode import no_grad

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.tensors.tensor import Tensor


class LazyModuleMixin:
    """Mixin for lazy modules; precedes the module class: ``class LazyLinear(LazyModuleMixin, Linear)``.

    The subclass creates ``UninitializedParameter``s and defines ``initialize_parameters(*args)``, which
    materializes them for the first call's arguments. The module's class then becomes ``cls_to_become``.
    """

    cls_to_become: type[Module] | None = None

    def __init__(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        super().__init__(*args, **kwargs)
        module: Any = self  # a Module with this mixin
        module._load_hook = module._register_load_state_dict_pre_hook(self._lazy_load_hook)
        module._initialize_hook = module.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _members(self) -> Iterator[tuple[str, Tensor | None]]:
        """Yield names and values of the module's own parameters and buffers."""
        module: Any = self  # a Module with this mixin
        yield from list(module._parameters.items())
        yield from list(module._buffers.items())

    def _lazy_load_hook(
        self,
        state_dict: Mapping[str, Tensor],
        prefix: str,
        local_metadata: object,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Materialize the parameters that the state dict has values for."""
        for name, member in self._members():
            value = state_dict.get(prefix + name)
            if is_lazy(member) and value is not None and not is_lazy(value):
                with no_grad():
                    member.materialize(value.shape)

    def initialize_parameters(self, *args: Forwarded, **kwargs: Forwarded) -> None:
        """Materialize and initialise every parameter for these arguments of ``forward``."""
        raise MissingForwardError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer of this module has no shape yet."""
        return any(is_lazy(member) for _, member in self._members())

    def _infer_parameters(
        self,
        module: Any,  # a Module with this mixin
        args: tuple[object, ...],
        kwargs: dict[str, object] | None = None,
    ) -> None:
        """Forward pre-hook of the first call: initialise the parameters, then change the class."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise ModuleError(f"module {module._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise ModuleError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward "
            "pass to "
            "correctly initialize the modules"
        )
