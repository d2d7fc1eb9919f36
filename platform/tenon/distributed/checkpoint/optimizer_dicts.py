"""State dicts of optimizers under names of parameters, and back to the numbers that optimizers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from tenon.distributed.checkpoint.model_names import canonical
from tenon.distributed.checkpoint.optimizer_states import initialize
from tenon.distributed.fsdp.state_dicts import names_of
from tenon.distributed.fsdp.whole_parameters import sharded_like
from tenon.distributed.zero import ZeroRedundancyOptimizer
from tenon.errors import StateDictError
from tenon.nn.module import Module
from tenon.optim.optimizer import Optimizer
from tenon.tensors.tensor import Tensor

#: ``{"state": {name: entry}, "param_groups": [...]}``.
Values: TypeAlias = dict[str, Any]


def names(model: Module, optimizer: Optimizer) -> list[str]:
    """The plain names of the optimizer's parameters, in their order."""
    return [canonical(model, name) for name in names_of(model, optimizer)]


def named(model: Module, optimizer: Optimizer, whole: bool) -> Values:
    """The state dict of ``optimizer`` under names of parameters.

    Of a ``ZeroRedundancyOptimizer`` it has the states of this rank, or with ``whole`` those of all ranks, for
    which it is collective.
    """
    known = names(model, optimizer)
    state = _state_dict(optimizer, whole)
    groups = [
        {**group, "params": [known[number] for number in group["params"]]} for group in state["param_groups"]
    ]
    for group in groups:
        group.pop("param_names", None)  # those of one rank: ranks may have different layers
    return {
        "state": {known[number]: dict(entry) for number, entry in state["state"].items()},
        "param_groups": groups,
    }


def _state_dict(optimizer: Optimizer, whole: bool) -> Values:
    if not isinstance(optimizer, ZeroRedundancyOptimizer):
        state: Values = optimizer.state_dict()
        return state
    if whole:
        optimizer.consolidate_state_dict(to=optimizer.rank)
        return optimizer.state_dict()
    numbers = {id(p): n for n, p in enumerate(p for g in optimizer.param_groups for p in g["params"])}
    position, groups = 0, []
    for group in optimizer.param_groups:
        count = len(group["params"])
        groups.append({**group, "params": list(range(position, position + count))})
        position += count
    own = {numbers[id(p)]: entry for p, entry in optimizer.state.items() if isinstance(p, Tensor)}
    return {"state": own, "param_groups": groups}


def numbered(model: Module, optimizer: Optimizer, given: Values, strict: bool) -> Values:
    """What ``optimizer.load_state_dict`` takes, of a state dict under names that may have other parameters
    too.

    Whole tensors become DTensors like their parameters. StateDictError if the state of a parameter is
    missing.
    """
    if given["state"] and all(isinstance(key, int) for key in given["state"]):
        return dict(given)  # of PyTorch's and tenon's optimizers, under numbers
    known = names(model, optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    initialize(optimizer)
    own = _state_dict(optimizer, whole=False)["state"]
    state = {}
    for number, (name, parameter) in enumerate(zip(known, parameters, strict=True)):
        entry = given["state"].get(name)
        if entry is not None:
            state[number] = sharded_like(entry, dict.fromkeys(entry, parameter))
        elif strict and number in own:
            raise StateDictError(
                f"Missing optimizer state for parameter {name!r}: the state dict has states of"
                f" {', '.join(map(repr, list(given['state'])[:5])) or 'none'}. Load the state of an optimizer"
                " of the same model, or use StateDictOptions(strict=False)."
            )
    return {"state": state, "param_groups": _groups(optimizer, known, given["param_groups"])}


def _groups(optimizer: Optimizer, known: list[str], saved: list[Values]) -> list[Values]:
    """The optimizer's groups with the options of the saved groups that have the same parameters."""
    groups, position = [], 0
    for group in optimizer.param_groups:
        numbers = list(range(position, position + len(group["params"])))
        position += len(numbers)
        wanted = {known[number] for number in numbers}
        like = [g for g in saved if wanted & set(g["params"]) or not (wanted or g["params"])]
        if not like:
            raise StateDictError(
                f"no saved group has one of the parameters {', '.join(sorted(wanted)[:5])}. Load the state of"
                " an optimizer of the same model."
            )
        names = {"param_names": group["param_names"]} if "param_names" in group else {}
        groups.append({**like[0], "params": numbers, **names})
    return groups


def flattened(values: Values) -> Values:
    """``{"state.<name>.<key>": value, "param_groups.<name>.<key>": option}``."""
    flat: Values = {}
    for name, entry in values["state"].items():
        _flatten(f"state.{name}", entry, flat)
    for group in values["param_groups"]:
        for name in group["params"]:
            for key, option in group.items():
                if key != "params":
                    flat[f"param_groups.{name}.{key}"] = option
    return flat


def _flatten(prefix: str, value: object, flat: Values) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _flatten(f"{prefix}.{key}", item, flat)
    else:
        flat[prefix] = value


def unflattened(values: Mapping[str, object], known: list[str]) -> Values:
    """What ``flattened`` was called with, for the parameters ``known``; each in a group of its own."""
    state: Values = {}
    groups = []
    for name in known:
        for key, value in values.items():
            if key.startswith(f"state.{name}."):
                place = state.setdefault(name, {})
                *outer, last = key.removeprefix(f"state.{name}.").split(".")
                for part in outer:
                    place = place.setdefault(part, {})
                place[last] = value
        prefix = f"param_groups.{name}."
        options = {key.removeprefix(prefix): v for key, v in values.items() if key.startswith(prefix)}
        if options:
            groups.append({**options, "params": [name]})
    return {"state": state, "param_groups": groups}
