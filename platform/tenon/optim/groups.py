"""Parameter groups: reading them from what the user passed, and checking them."""

from __future__ import annotations

import difflib
import warnings
from typing import Any

from tenon.core.tensor import Tensor
from tenon.errors import ConfigError


def check_options(cls: type, defaults: dict[str, Any], options: dict[str, Any]) -> None:
    """TypeError naming the nearest option for one that the optimizer does not have."""
    for name in options:
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(
                f"{cls.__name__}() got an unexpected option {name!r}; it has {', '.join(sorted(defaults))}.{hint}"
            )


def listed(params: Any) -> list[dict[str, Any]]:
    """``params`` as a list of group dicts."""
    if isinstance(params, Tensor):
        raise TypeError(
            "params argument given to the optimizer should be an iterable of Tensors or dicts, but got torch.FloatTensor. Put it in a list."
        )
    if isinstance(params, dict):
        raise TypeError(
            "params argument given to the optimizer should be an iterable of Tensors or dicts, but got dict. Use named_parameters()."
        )
    found = list(params)
    if not found:
        raise ValueError("optimizer got an empty parameter list")
    if isinstance(found[0], dict):
        return [dict(g) for g in found]
    return [{"params": found}]


def add(optimizer: Any, group: Any, required: Any) -> None:
    """Check ``group``, complete it from the defaults, append it."""
    if not isinstance(group, dict):
        raise TypeError(f"param_group must be a dict, but got {type(group)}")
    group = dict(group)
    params, names = _split_names(group["params"])
    group["params"] = params
    if names:
        group["param_names"] = names
    _check_params(params)
    for name, default in optimizer.defaults.items():
        if default is required and name not in group:
            raise ValueError(
                f"parameter group didn't specify a value of required optimization parameter {name}"
            )
        group.setdefault(name, default)
    if len(set(map(id, params))) != len(params):
        warnings.warn(
            "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
            "see github.com/pytorch/pytorch/issues/40967 for more information",
            stacklevel=4,
        )
    taken = {id(p) for g in optimizer.param_groups for p in g["params"]}
    if any(id(p) in taken for p in params):
        raise ValueError("some parameters appear in more than one parameter group")
    if optimizer.param_groups and ("param_names" in optimizer.param_groups[0]) != ("param_names" in group):
        raise ValueError(
            "all optimizer param groups should be with/without names. "
            f"cannot add param group {'with' if names else 'without'} names to the optimizer"
        )
    optimizer.param_groups.append(group)


def _split_names(params: Any) -> tuple[list[Any], list[str]]:
    if isinstance(params, Tensor):
        return [params], []
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change "
            "between runs. Please use a list instead."
        )
    tensors: list[Any] = []
    names: list[str] = []
    for item in params:
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            names.append(item[0])
            tensors.append(item[1])
        else:
            tensors.append(item)
    if names and len(names) != len(tensors):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    if len(set(names)) != len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise ConfigError(f"two parameters of one group have the name {twice!r}; names must be unique.")
    return tensors, names


def _check_params(params: list[Any]) -> None:
    for p in params:
        if not isinstance(p, Tensor):
            raise TypeError(
                f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}"
            )
        if not (p.is_leaf or getattr(p, "retains_grad", False)):
            raise ValueError("can't optimize a non-leaf Tensor")
