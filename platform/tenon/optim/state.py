"""Saving and loading an optimizer, in torch's layout, by parameter name where names are known."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

from tenon.core.create import full
from tenon.core.tensor import Tensor
from tenon.dtypes import float32

HOOK_KINDS = (
    "_step_pre_hooks",
    "_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


def to_dict(optimizer: Any) -> dict[str, Any]:
    """``{"state": {index: {...}}, "param_groups": [...]}`` with tensors shared, not copied."""
    for hook in list(optimizer._optimizer_state_dict_pre_hooks.values()):
        hook(optimizer)
    index: dict[int, int] = {}
    packed_groups = []
    for group in optimizer.param_groups:
        packed = {k: v for k, v in group.items() if k != "params"}
        for p in group["params"]:
            index.setdefault(id(p), len(index))
        packed["params"] = [index[id(p)] for p in group["params"]]
        packed_groups.append(packed)
    packed_state = {
        (index[id(k)] if isinstance(k, Tensor) else k): _packed(v) for k, v in optimizer.state.items() if v
    }
    result: dict[str, Any] = {"state": packed_state, "param_groups": packed_groups}
    for hook in list(optimizer._optimizer_state_dict_post_hooks.values()):
        changed = hook(optimizer, result)
        if changed is not None:
            result = changed
    return result


def _packed(entry: Any) -> Any:
    """torch keeps ``step`` as a float tensor; so do checkpoints."""
    if isinstance(entry, dict) and isinstance(entry.get("step"), int):
        entry = dict(entry)
        entry["step"] = full((), float(entry["step"]), float32, "cpu")
    return entry


def load(optimizer: Any, saved: dict[str, Any]) -> None:
    """Check everything, then replace state and groups."""
    saved = dict(saved)
    for hook in list(optimizer._optimizer_load_state_dict_pre_hooks.values()):
        changed = hook(optimizer, saved)
        if changed is not None:
            saved = changed
    own, theirs = optimizer.param_groups, copy.deepcopy(saved["param_groups"])
    if len(own) != len(theirs):
        raise ValueError(
            f"loaded state dict has a different number of parameter groups: {len(theirs)}, this optimizer has {len(own)}"
        )
    matched: dict[Any, Any] = {}
    for number, (group, loaded) in enumerate(zip(own, theirs, strict=True)):
        if len(group["params"]) != len(loaded["params"]):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group "
                f"(group {number}: {len(loaded['params'])} parameters saved, {len(group['params'])} here)"
            )
        for position, p in _pairs(number, group, loaded):
            matched[loaded["params"][position]] = p
    new_state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
    for key, entry in saved["state"].items():
        p = matched.get(key)
        if p is None:
            new_state[key] = copy.deepcopy(entry)
        else:
            new_state[p] = {name: _placed(value, p, name, key) for name, value in entry.items()}
    for group, loaded in zip(own, theirs, strict=True):
        loaded["params"] = group["params"]
        if "param_names" in group:
            loaded["param_names"] = group["param_names"]
        else:
            loaded.pop("param_names", None)
    optimizer.__setstate__({"state": new_state, "param_groups": theirs})
    for hook in list(optimizer._optimizer_load_state_dict_post_hooks.values()):
        hook(optimizer)


def _pairs(number: int, group: dict[str, Any], loaded: dict[str, Any]) -> list[tuple[int, Any]]:
    """``(position in the saved group, parameter)``, by name if both sides have names."""
    names, saved_names = group.get("param_names"), loaded.get("param_names")
    if names is None or saved_names is None:
        return list(enumerate(group["params"]))
    missing, extra = sorted(set(names) - set(saved_names)), sorted(set(saved_names) - set(names))
    if missing or extra:
        raise ValueError(
            f"loaded state dict does not match the parameter names of group {number}: missing {missing}, unexpected {extra}. "
            "Load it into an optimizer of the same parameters, or rename them in the state dict."
        )
    places = {n: i for i, n in enumerate(saved_names)}
    return [(places[n], p) for n, p in zip(names, group["params"], strict=True)]


def _placed(value: Any, p: Any, name: str, key: Any) -> Any:
    """A saved value copied to the parameter's device and dtype; ``step`` stays what it is."""
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if name == "step":
        return int(value.item()) if value.raw.size == 1 else value.clone()
    if value.raw.ndim and tuple(value.raw.shape) != tuple(p.raw.shape) and value.raw.size == p.raw.size:
        raise ValueError(
            f"state {name!r} of parameter {key} has shape {list(value.raw.shape)}, the parameter {list(p.raw.shape)}; nothing was loaded."
        )
    made = value.detach().to(p.device)
    if p.is_floating_point() and made.is_floating_point():
        made = made.to(p.dtype)
    return made.clone() if made.raw is value.raw else made
