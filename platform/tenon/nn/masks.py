"""Pruning masks as steps of a weight's pipeline, and the base classes of pruning methods.

``method.apply(module, "weight", ...)`` computes a mask by ``method.compute_mask`` and appends it to the
pipeline of ``module.weight`` (``weights.py``): ``weight_mask`` becomes a buffer, and a parameter ``weight``
becomes ``weight_orig``. Pruning again combines the masks; after a parametrization a separate mask follows,
``weight_mask_2``.

The method is also registered as a forward pre-hook of the module, where PyTorch stores it and third-party
code looks for it. The hook does nothing: the weight is computed when it is read. Criteria come from plugins,
by the names of ``nn/utils/prune.py``.
"""

from __future__ import annotations

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tenon.engine.op import table
from tenon.engine.types import Forwarded
from tenon.errors import ModuleTypeError, ModuleValueError, OptionError, ShapeError
from tenon.nn.weights import (
    Pipeline,
    begin_pipeline,
    check_names_are_new,
    forget,
    pipeline_of,
    remove_hook,
    stored_tensor,
)
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import ones_like

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.tensors.tensor import Tensor


@dataclass
class Mask:
    """Pipeline step that multiplies by a buffer of zeros and ones."""

    buffer: str
    is_mask: ClassVar[bool] = True

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """Return the value where the mask is one, and 0 elsewhere."""
        (value,) = values
        return getattr(module, self.buffer).to(value.dtype) * value

    def right_inverse(self, module: Module, value: Tensor) -> Tensor:
        """Return the value itself; ShapeError if its shape differs from the mask's."""
        shape = getattr(module, self.buffer).shape
        if value.shape != shape:
            raise ShapeError(
                f"a tensor of shape {tuple(value.shape)} cannot be stored under the mask '{self.buffer}' of"
                f" shape {tuple(shape)}. Assign one of that shape, or remove the pruning first."
            )
        return value

    def discard(self, module: Module) -> None:
        """Delete the mask and its forward pre-hook."""
        delattr(module, self.buffer)
        remove_hook(module, _method_of_mask(module, self.buffer))


class BasePruningMethod(ABC):
    """Base class of pruning methods; a subclass defines ``compute_mask`` and ``PRUNING_TYPE``.

    ``PRUNING_TYPE`` selects the candidates in a tensor that was pruned before: ``"unstructured"`` the
    remaining elements, ``"structured"`` the slices along ``self.dim`` that are not all zero, ``"global"``
    everything.
    """

    PRUNING_TYPE: ClassVar[str]
    #: Axis of the slices, of structured methods.
    dim: int
    _tensor_name: str
    _mask_name: str
    #: Tells the compiler not to warn that this hook does not run in replays.
    hook_without_effect: ClassVar[bool] = True

    def __call__(self, module: Module, inputs: object) -> None:
        """Do nothing (forward pre-hook): the weight is computed when the module reads it."""
        return None

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return zeros and ones of ``t``'s shape, zero also where ``default_mask`` is; do not modify that."""

    def apply_mask(self, module: Module) -> Tensor:
        """Return the pruned tensor of ``module``: the original times the mask."""
        return getattr(module, self._tensor_name)

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Forwarded,
        importance_scores: Tensor | None = None,
        **kwargs: Forwarded,
    ) -> BasePruningMethod:
        """Prune ``module.<name>`` by ``cls(*args, **kwargs)``; return the method now registered for it.

        ``importance_scores``, of the tensor's shape, are used instead of its values. On any error the module
        is unchanged.
        """
        tensor = getattr(module, name)
        method: BasePruningMethod = cls(*args, **kwargs)
        method._tensor_name = name
        if tensor is None:
            raise ModuleTypeError(f"prune: '{name}' of {module} is None and cannot be pruned.")
        if importance_scores is not None and importance_scores.shape != tensor.shape:
            raise OptionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {tensor.shape}"
            )
        pipeline = pipeline_of(module, name)
        if pipeline is None and stored_tensor(module, name) is None:
            raise ModuleTypeError(
                f"prune: '{name}' of {module} is neither a parameter nor a buffer nor computed by steps. "
                "Register it with register_parameter first."
            )
        last = pipeline.steps[-1] if pipeline is not None else None
        with no_grad():
            scores = (tensor if importance_scores is None else importance_scores).detach()
            if isinstance(last, Mask):
                method = _joined(module, last.buffer, method)
                default = getattr(module, last.buffer).detach().clone()
            else:
                default = ones_like(tensor)
            mask = method.compute_mask(scores, default)
            if tuple(mask.shape) != tuple(tensor.shape):
                raise ShapeError(
                    f"{cls.__name__}.compute_mask returned a mask of shape {tuple(mask.shape)} for '{name}'"
                    f" of shape {tuple(tensor.shape)}"
                )
        if isinstance(last, Mask):
            module.register_buffer(last.buffer, mask)
            _replace_hook(module, method)
        else:
            _attach(module, name, pipeline, method, mask)
        forget()
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """Return ``t`` times the mask computed for it, or for ``importance_scores``."""
        if importance_scores is not None and importance_scores.shape != t.shape:
            raise OptionError(
                f"importance_scores should have the same shape as tensor t, got {importance_scores.shape} vs "
                f"{t.shape}"
            )
        scores = t if importance_scores is None else importance_scores
        default = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default).to(t.dtype)

    def remove(self, module: Module) -> None:
        """Make the pruning permanent: all steps up to the last mask are folded into the stored tensor."""
        pipeline = pipeline_of(module, self._tensor_name)
        masks = [] if pipeline is None else [i for i, step in enumerate(pipeline.steps) if step.is_mask]
        if pipeline is None or not masks:
            raise ModuleValueError(
                f"Module {module} has to be pruned before pruning can be removed: '{self._tensor_name}' has"
                " no mask."
            )
        pipeline.bake(module, masks[-1] + 1)


class PruningContainer(BasePruningMethod):
    """A sequence of pruning methods applied to one tensor."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Append ``method``; TypeError or ValueError if it is not one, or for another tensor."""
        if not isinstance(method, BasePruningMethod):
            raise ModuleTypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ModuleValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                f"PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return ``default_mask`` combined with the latest method's mask of its remaining candidates."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        candidates = _candidates(method, t, mask)
        part = method.compute_mask(t[candidates], default_mask=mask[candidates])
        mask = mask.clone()
        mask[candidates] = part.to(mask.dtype)
        return mask


def _candidates(method: BasePruningMethod, t: Tensor, mask: Tensor) -> Tensor | tuple[slice | Tensor, ...]:
    """Return the index of the candidates of ``method`` in ``t``, according to its ``PRUNING_TYPE``."""
    if method.PRUNING_TYPE == "unstructured":
        return mask == 1
    if method.PRUNING_TYPE == "structured":
        dim = method.dim % t.dim()
        others = [axis for axis in range(t.dim()) if axis != dim]
        return (*(slice(None),) * dim, mask.sum(others) != 0)
    if method.PRUNING_TYPE == "global":
        return (slice(None),) * t.dim()
    raise ModuleValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")


def _joined(module: Module, buffer: str, method: BasePruningMethod) -> PruningContainer:
    """Return a new container of the methods that computed the mask ``buffer``, and ``method``."""
    old = _method_of_mask(module, buffer)
    before = () if old is None else old if isinstance(old, PruningContainer) else (old,)
    container = PruningContainer(*before, method)
    container._mask_name = buffer
    return container


def _replace_hook(module: Module, method: BasePruningMethod) -> None:
    """Register ``method`` in place of the hook of the same mask."""
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._mask_name == method._mask_name:
            module._forward_pre_hooks[key] = method
            return
    module.register_forward_pre_hook(method)  # the previous one was removed by other code


def _attach(
    module: Module, name: str, pipeline: Pipeline | None, method: BasePruningMethod, mask: Tensor
) -> None:
    """Append ``mask`` to the pipeline of ``module.<name>``, and register ``method`` as its hook."""
    number = 1 + (0 if pipeline is None else sum(step.is_mask for step in pipeline.steps))
    method._mask_name = f"{name}_mask" if number == 1 else f"{name}_mask_{number}"
    check_names_are_new(module, method._mask_name)
    step = Mask(method._mask_name)
    if pipeline is None:
        begin_pipeline(module, name, step, {f"{name}_orig": getattr(module, name)})
    else:
        pipeline.steps.append(step)
        pipeline.alias(module)
    module.register_buffer(method._mask_name, mask)
    module.register_forward_pre_hook(method)


def _methods(module: Module) -> list[BasePruningMethod]:
    """Return the pruning methods registered as hooks of ``module``."""
    hooks = module.__dict__.get("_forward_pre_hooks") or {}
    return [hook for hook in hooks.values() if isinstance(hook, BasePruningMethod)]


def _method_of_mask(module: Module, buffer: str) -> BasePruningMethod | None:
    """Return the method whose mask is ``buffer``, or None."""
    return next((method for method in _methods(module) if method._mask_name == buffer), None)


def method_of(module: Module, name: str) -> BasePruningMethod | None:
    """Return the method that pruned ``name`` last, or None."""
    return next((m for m in reversed(_methods(module)) if m._tensor_name == name), None)


def is_pruned(module: Module) -> bool:
    """Whether any tensor of ``module`` or its descendants is pruned."""
    return any(_methods(child) for child in module.modules())


def check_amount(amount: object) -> None:
    """Raise TypeError or ValueError unless ``amount`` is a fraction in [0, 1] or a number of elements."""
    if not isinstance(amount, numbers.Real):
        raise ModuleTypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    largest = math.inf if isinstance(amount, numbers.Integral) else 1.0
    if not 0 <= float(amount) <= largest:
        raise ModuleValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer"
        )


def check_amount_of(amount: float, tensor_size: int) -> None:
    """Raise ValueError if ``amount`` is a number greater than ``tensor_size``."""
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ModuleValueError(
            f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}"
        )


def count(amount: float, tensor_size: int) -> int:
    """Return ``amount`` as a number of elements; a float is a fraction of ``tensor_size``, rounded."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def checked_count(amount: float, tensor_size: int) -> int:
    """Validate ``amount`` and return it as a number of elements."""
    check_amount_of(amount, tensor_size)
    return count(amount, tensor_size)


def check_structured(t: Tensor) -> None:
    """Raise ValueError unless ``t`` has at least two axes."""
    if t.dim() <= 1:
        raise ModuleValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {t.dim()} dims"
        )


def check_axis(t: Tensor, dim: int) -> None:
    """Raise IndexError unless ``t`` has the axis ``dim``."""
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def slice_norms(t: Tensor, n: float | str, dim: int) -> Tensor:
    """Return the ``n``-norm of each slice of ``t`` along ``dim``."""
    others = tuple(axis for axis in range(t.dim()) if axis != dim % t.dim())
    return t.norm(p=n, dim=others)


def flattened(tensors: list[Tensor]) -> Tensor:
    """Concatenate all elements of ``tensors`` into one vector."""
    return table.cat(*(t.reshape(-1) for t in tensors), axis=0)
