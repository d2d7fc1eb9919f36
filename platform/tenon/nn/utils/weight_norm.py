"""PyTorch's older ``nn.utils.weight_norm``: magnitudes and directions as ``weight_g`` and ``weight_v``.

Deprecated for ``nn.utils.parametrizations.weight_norm``, which loads the state dicts that this one saves.
Both compute the weight when it is read, by the pipeline of ``nn/weights.py``.
"""

from __future__ import annotations

import warnings
from typing import ClassVar

from tenon.errors import ModuleError, ModuleValueError
from tenon.nn.module import Module, ModuleT
from tenon.nn.parameter import Parameter
from tenon.nn.weights import Step, begin_pipeline, pipeline_of, refuse_lazy, remove_hook, stored_tensor
from tenon.tensors.tensor import Tensor

__all__ = ["WeightNorm", "norm_except_dim", "remove_weight_norm", "weight_norm"]


def norm_except_dim(v: Tensor, pow: float = 2, dim: int | None = 0) -> Tensor:
    """Return the norm of each slice of ``v`` along ``dim``, with all axes; of the whole if -1 or None."""
    if dim is None or dim == -1:
        return v.norm(pow)
    others = tuple(axis for axis in range(v.ndim) if axis != dim % v.ndim)
    return v.norm(pow, dim=others, keepdim=True) if others else v.abs()


class WeightNorm:
    """The pipeline step ``g * v / |v|``, also registered as a forward pre-hook, where PyTorch has it."""

    is_mask: ClassVar[bool] = False
    hook_without_effect: ClassVar[bool] = True

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def __call__(self, module: Module, inputs: object) -> None:
        """Do nothing: the weight is computed when the module reads it."""

    def forward(self, module: Module, *values: Tensor) -> Tensor:
        """Return the weight from magnitudes and directions."""
        g, v = values
        return v * (g / norm_except_dim(v, 2, self.dim))

    def right_inverse(self, module: Module, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the magnitudes of ``value``, and itself as the directions."""
        return norm_except_dim(value, 2, self.dim), value

    def discard(self, module: Module) -> None:
        """Remove the hook."""
        remove_hook(module, self)

    def compute_weight(self, module: Module) -> Tensor:
        """Return the weight that ``module`` computes at present."""
        return getattr(module, self.name)

    def remove(self, module: Module) -> None:
        """Make the weight a parameter again."""
        pipeline = pipeline_of(module, self.name)
        if pipeline is not None:
            pipeline.bake(module, 1)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Put the step before all others of ``module.<name>``; ModuleError if there are others."""
        step = WeightNorm(name, dim)
        weight = stored_tensor(module, name)
        if pipeline_of(module, name) is not None or weight is None:
            raise ModuleError(
                f"Cannot register two weight_norm hooks on the same parameter {name}, nor one that is"
                f" computed by another step or does not exist. nn.utils.parametrizations.weight_norm"
                f" composes."
            )
        refuse_lazy(weight, "WeightNorm", "weight")
        g, v = step.right_inverse(module, weight.detach())
        needs_grad = weight.requires_grad
        stored = {f"{name}_g": Parameter(g, needs_grad), f"{name}_v": Parameter(v, needs_grad)}
        begin_pipeline(module, name, step, stored)
        module.register_forward_pre_hook(step)
        return step


def weight_norm(module: ModuleT, name: str = "weight", dim: int | None = 0) -> ModuleT:
    """Split ``module.<name>`` into ``<name>_g`` and ``<name>_v``; return ``module``. Deprecated."""
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of "
        "`torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: ModuleT, name: str = "weight") -> ModuleT:
    """Make ``module.<name>`` a parameter with its current value; return ``module``."""
    return remove_older(module, name, WeightNorm, "weight_norm")


def remove_older(module: ModuleT, name: str, kind: type[Step], label: str) -> ModuleT:
    """Fold the step of class ``kind`` into ``module.<name>``; raise ModuleValueError if there is none."""
    pipeline = pipeline_of(module, name) if isinstance(getattr(module, name, None), Tensor) else None
    if pipeline is None or not isinstance(pipeline.steps[0], kind):
        raise ModuleValueError(f"{label} of '{name}' not found in {module}")
    pipeline.bake(module, 1)
    return module
