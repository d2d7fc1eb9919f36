"""Parameter groups: parse the ``params`` argument of optimizers, and check it."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tenon.errors import ConfigError
from tenon.optim.types import ParamGroup, ParamsT
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer


class Required:
    """Sentinel: the default of an option that every group must define."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = Required()


def check_options(cls: type, defaults: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Raise TypeError for an option that the optimizer does not have, with the closest match."""
    for name in options:
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            has = ", ".join(sorted(defaults)) or "none"
            raise TypeError(f"{cls.__name__}() got an unexpected option {name!r}; its options: {has}.{hint}")


def listed(params: ParamsT) -> list[ParamGroup]:
    """Return ``params`` as a list of groups."""
    if isinstance(params, Tensor):
        raise TypeError(
            "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
            f"{_typename(params)}. Put it in a list."
        )
    if isinstance(params, dict):
        raise TypeError(
            "params argument given to the optimizer should be an iterable of Tensors or dicts, but got dict. "
            "Pass a list of group dicts, or model.named_parameters()."
        )
    items: list[Any] = list(params)  # all of one of the kinds in ParamsT
    if not items:
        raise ValueError("optimizer got an empty parameter list")
    return items if isinstance(items[0], dict) else [{"params": items}]


def add(optimizer: Optimizer, param_group: ParamGroup) -> None:
    """Check the group and append a copy, completed from the defaults. On any error nothing is changed."""
    if not isinstance(param_group, dict):
        raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
    if "params" not in param_group:
        raise KeyError(f"params: a parameter group needs this key, but got only {sorted(param_group)}")
    group = dict(param_group)
    params, names = _split_names(group["params"])
    group["params"] = params
    if names:
        group["param_names"] = names
    _check_params(params, bool(optimizer.defaults.get("differentiable")))
    for p in params:
        optimizer.check_parameter(p)
    for name, default in optimizer.defaults.items():
        if default is required and name not in group:
            raise ValueError(
                f"parameter group didn't specify a value of required optimization parameter {name}"
            )
        group.setdefault(name, default)
    if len(set(map(id, params))) != len(params):
        warnings.warn(
            "optimizer contains a parameter group with duplicate parameters; in future, this will cause an "
            "error; see github.com/pytorch/pytorch/issues/40967 for more information",
            stacklevel=4,
        )
    _check_against_others(optimizer.param_groups, group)
    optimizer.param_groups.append(group)


def _check_against_others(groups: list[ParamGroup], group: ParamGroup) -> None:
    named = "param_names" in group
    others = [g for g in groups if g["params"]]
    if others and group["params"] and ("param_names" in others[0]) != named:
        raise ValueError(
            "all optimizer param groups should be with/without names. "
            f"cannot add param group {'with' if named else 'without'} names to the optimizer"
        )
    taken = {id(p) for g in groups for p in g["params"]}
    if any(id(p) in taken for p in group["params"]):
        raise ValueError("some parameters appear in more than one parameter group")


# Items that are neither tensors nor pairs are refused by ``_check_params``.
def _split_names(params: Tensor | Iterable[Any]) -> tuple[list[Tensor], list[str]]:
    """Return the parameters, which ``_check_params`` checks, and their names, if they are pairs."""
    if isinstance(params, Tensor):
        return [params], []
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors "
            "in sets will change between runs. Please use a list instead."
        )
    tensors: list[Tensor] = []
    names: list[str] = []
    for item in params:
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
            names.append(item[0])
            tensors.append(item[1])
        else:
            tensors.append(item)
    if names and len(names) != len(tensors):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    owners: dict[str, Tensor] = {}
    for name, tensor in zip(names, tensors, strict=False):
        if owners.setdefault(name, tensor) is not tensor:
            raise ConfigError(f"two parameters of one group have the name {name!r}; names must be unique.")
    return tensors, names


def _check_params(params: list[Tensor], differentiable: bool) -> None:
    for p in params:
        if not isinstance(p, Tensor):
            raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {_typename(p)}")
        if not (differentiable or p.is_leaf or p.retains_grad):
            raise ValueError("can't optimize a non-leaf Tensor")


def _typename(value: object) -> str:
    if isinstance(value, Tensor):
        return str(value.type())
    cls = type(value)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
