"""Weight normalization: length and direction of a weight as two parameters (Salimans and Kingma, 2016)."""

from __future__ import annotations

import functools
from typing import Any

import tenon
from tenon.errors import ModuleValueError
from tenon.nn import Module
from tenon.nn.utils.parametrize import register_parametrization
from tenon.nn.utils.weight_norm import norm_except_dim


class WeightNorm(Module):
    """``g * v / |v|`` with a length per slice along ``dim``; one length in all if it is None."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """The weight of these lengths and directions."""
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Any) -> Any:
        """Its lengths, and itself as the directions."""
        return norm_except_dim(weight, 2, self.dim), weight


def _rename_old_keys(name: str, state_dict: Any, prefix: str, *rest: Any) -> None:
    """Take ``weight_g`` and ``weight_v``, as the older ``weight_norm`` saves them."""
    for old, new in (("g", 0), ("v", 1)):
        if f"{prefix}{name}_{old}" in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original{new}"] = state_dict.pop(
                f"{prefix}{name}_{old}"
            )


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Split ``module.<name>`` into lengths and directions of its slices along ``dim``; return ``module``.

    None gives the whole tensor one length. State dicts of the older ``nn.utils.weight_norm`` load too.
    """
    if not isinstance(getattr(module, name, None), tenon.Tensor):
        raise ModuleValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    register_parametrization(module, name, WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(functools.partial(_rename_old_keys, name))
    return module
