"""Weight normalization: magnitude and direction of a weight as two parameters (Salimans, Kingma, 2016)."""

from __future__ import annotations

import functools

import tenon
from tenon import Tensor
from tenon.errors import ModuleValueError
from tenon.nn import Module
from tenon.nn.utils.parametrize import register_parametrization
from tenon.nn.utils.weight_norm import norm_except_dim


class WeightNorm(Module):
    """Compute ``g * v / |v|`` with one norm per slice along ``dim``; one for the whole tensor if None."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """Return the weight of these magnitudes and directions."""
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the norms of ``weight``, and ``weight`` itself as the directions."""
        return norm_except_dim(weight, 2, self.dim), weight


def _rename_old_keys(name: str, state_dict: dict[str, Tensor], prefix: str, *rest: object) -> None:
    """Accept the keys ``weight_g`` and ``weight_v`` of the older ``weight_norm`` on loading."""
    for old, new in (("g", 0), ("v", 1)):
        if f"{prefix}{name}_{old}" in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original{new}"] = state_dict.pop(
                f"{prefix}{name}_{old}"
            )


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split ``module.<name>`` into magnitudes and directions of its slices along ``dim``; return ``module``.

    With None the whole tensor has one magnitude. State dicts of ``nn.utils.weight_norm`` load too.
    """
    if not isinstance(getattr(module, name, None), tenon.Tensor):
        raise ModuleValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    register_parametrization(module, name, WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(functools.partial(_rename_old_keys, name))
    return module
