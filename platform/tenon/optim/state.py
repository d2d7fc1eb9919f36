"""Saving and loading an optimizer, in PyTorch's layout, by parameter name where names are known.

Loading validates everything before it changes anything: groups, names, the state entries of each parameter,
the shape of every tensor. A mismatch raises an error that names it, and leaves the optimizer unchanged.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tenon.engine.aval import Aval
from tenon.engine.types import Nested
from tenon.errors import OptimizerStateError
from tenon.kernels.whole_arrays import beside
from tenon.optim.types import ParamGroup, State, StateDict
from tenon.optim.update import initial, step_tensor
from tenon.tensors.creation.factories import empty_like
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.dtypes import dtype
    from tenon.optim.optimizer import Optimizer


def to_dict(optimizer: Optimizer) -> StateDict:
    """Return ``{"state": {index: {...}}, "param_groups": [...]}``; tensors are shared, not copied."""
    for hook in list(optimizer._optimizer_state_dict_pre_hooks.values()):
        hook(optimizer)
    index: dict[int, int] = {}
    packed_groups = []
    begin = 0
    for group in optimizer.param_groups:
        packed = {k: v for k, v in group.items() if k != "params"}
        for position, p in enumerate(group["params"], begin):
            index.setdefault(id(p), position)
        packed["params"] = [index[id(p)] for p in group["params"]]
        begin += len(group["params"])
        packed_groups.append(packed)
    packed_state = {(index[id(k)] if isinstance(k, Tensor) else k): v for k, v in optimizer.state.items()}
    result: StateDict = {"state": packed_state, "param_groups": packed_groups}
    for hook in list(optimizer._optimizer_state_dict_post_hooks.values()):
        changed = hook(optimizer, result)
        if changed is not None:
            result = changed
    return result


def load(optimizer: Optimizer, state_dict: StateDict) -> None:
    """Validate the state dict, then replace state and groups."""
    saved: StateDict = dict(state_dict)
    for hook in list(optimizer._optimizer_load_state_dict_pre_hooks.values()):
        changed = hook(optimizer, saved)
        if changed is not None:
            saved = changed
    missing = [key for key in ("state", "param_groups") if key not in saved]
    if missing:
        raise OptimizerStateError(
            f"this is not an optimizer's state dict: it lacks {' and '.join(map(repr, missing))}, and has "
            f"{sorted(map(str, saved))}. Pass what optimizer.state_dict() returned."
        )
    own, saved_groups = optimizer.param_groups, copy.deepcopy(saved["param_groups"])
    matched = match(own, saved_groups)
    new_state: defaultdict[object, State] = defaultdict(dict)
    for key, entry in saved["state"].items():
        if key in matched:
            p, label = matched[key]
            new_state[p] = _entry(optimizer, p, label, entry)
        else:
            new_state[key] = copy.deepcopy(entry)
    for group, loaded in zip(own, saved_groups, strict=True):
        loaded["params"] = group["params"]
        if "param_names" in group:
            loaded["param_names"] = group["param_names"]
    before = {"state": optimizer.state, "param_groups": optimizer.param_groups}
    try:
        optimizer.__setstate__({"state": new_state, "param_groups": saved_groups})
    except BaseException:  # a subclass's own __setstate__ refused
        optimizer.__dict__.update(before)
        raise
    for hook in list(optimizer._optimizer_load_state_dict_post_hooks.values()):
        hook(optimizer)


def match(own: list[ParamGroup], saved_groups: list[ParamGroup]) -> dict[int, tuple[Tensor, str]]:
    """Map each saved index to ``(parameter, label)``; the label names it in error messages."""
    if len(own) != len(saved_groups):
        raise OptimizerStateError(
            f"loaded state dict has a different number of parameter groups: {len(saved_groups)}, this"
            f" optimizer has {len(own)}. Make the optimizer with the groups it was saved with."
        )
    matched: dict[int, tuple[Tensor, str]] = {}
    for number, (group, loaded) in enumerate(zip(own, saved_groups, strict=True)):
        _check_names(number, own, saved_groups)
        if len(group["params"]) != len(loaded["params"]):
            raise OptimizerStateError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                f"group (group {number}: {len(loaded['params'])} saved, here {len(group['params'])})"
            )
        names, saved_names = group.get("param_names"), loaded.get("param_names")
        positions: Sequence[int] = range(len(group["params"]))
        if names is not None and saved_names is not None:
            saved_position = {n: i for i, n in enumerate(saved_names)}
            positions = [saved_position[n] for n in names]
        for i, (position, p) in enumerate(zip(positions, group["params"], strict=True)):
            key = loaded["params"][position]
            matched[key] = (p, str(key) if names is None else repr(names[i]))
    return matched


def _check_names(number: int, own: list[ParamGroup], saved_groups: list[ParamGroup]) -> None:
    """Raise OptimizerStateError if the names of group ``number`` differ from the saved ones."""
    names, saved = own[number].get("param_names"), saved_groups[number].get("param_names")
    if names is None or saved is None or set(names) == set(saved):
        return
    moved = {n: i for i, g in enumerate(saved_groups) if i != number for n in g.get("param_names") or ()}
    missing = [
        f"{n!r} (saved in group {moved[n]})" if n in moved else repr(n) for n in names if n not in set(saved)
    ]
    extra = [repr(n) for n in saved if n not in set(names)]
    raise OptimizerStateError(
        f"loaded state dict does not match the parameter names of group {number}: "
        f"missing {', '.join(missing) or 'none'}; unexpected {', '.join(extra) or 'none'}. Nothing was "
        "loaded. Load it into an optimizer of the same parameters, or rename them in the state dict."
    )


def _entry(optimizer: Optimizer, p: Tensor, label: str, entry: object) -> Nested:
    """Return the saved state of one parameter, validated and copied to its device and dtype."""
    if not isinstance(entry, Mapping):
        return _placed(entry, p)
    has_rule = optimizer._has_rule()
    known = _known(optimizer, p) if has_rule and entry else {}
    if known:
        _check_kind(optimizer, p, label, entry, known)
    loaded = {}
    for name, value in entry.items():
        if name == "step" and has_rule and optimizer.counts_steps:
            loaded[name] = _step(value, label)
        elif name == "step" and isinstance(value, Tensor):
            loaded[name] = value.detach().clone()
        else:
            own = known.get(name)
            loaded[name] = _placed(value, p, p.dtype if own is None else own.dtype)
    return loaded


def _check_kind(
    optimizer: Optimizer,
    p: Tensor,
    label: str,
    entry: Mapping[str, object],
    known: Mapping[str, Tensor | None],
) -> None:
    """Raise OptimizerStateError if ``entry`` lacks state of the rule, or a tensor has the wrong shape."""
    lacking = [n for n in known if n not in entry]
    if lacking:
        raise OptimizerStateError(
            f"loaded state of parameter {label} lacks {', '.join(map(repr, lacking))} and has "
            f"{', '.join(map(repr, entry))}: another optimizer than {type(optimizer).__name__} saved it. "
            "Nothing was loaded."
        )
    for name, value in entry.items():
        if not isinstance(value, Tensor) or (name == "step" and optimizer.counts_steps):
            continue
        shape = tuple(value.raw.shape)
        own = known.get(name)
        expected = None if own is None else tuple(own.raw.shape)
        if expected is None and optimizer.elementwise and shape:
            expected = tuple(p.raw.shape)
        if expected is not None and shape != expected:
            raise OptimizerStateError(
                f"loaded state {name!r} of parameter {label} has shape {list(shape)}, but {list(expected)} "
                f"is needed for a parameter of shape {list(p.raw.shape)}. Nothing was loaded."
            )


def _known(optimizer: Optimizer, p: Tensor) -> dict[str, Tensor | None]:
    """Map each required state name to a tensor of the expected shape and dtype, or None for non-tensors."""
    names: dict[str, Tensor | None] = {"step": None} if optimizer.counts_steps else {}
    if not isinstance(p.raw, Aval):
        for name, value in initial(optimizer, p).items():
            names[name] = value if isinstance(value, Tensor) else None
    return names


def _step(value: object, label: str) -> Tensor:
    """Return a saved step count as a 0-d tensor, PyTorch's form."""
    number = value.item() if isinstance(value, Tensor) and value.raw.size == 1 else value
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise OptimizerStateError(
            f"loaded state 'step' of parameter {label} is {value!r}, not a number. Nothing was loaded."
        )
    return step_tensor(float(number))


def _placed(value: object, p: Tensor, dtype: dtype | None = None) -> Nested:
    """Copy a saved value to the parameter's device and ``dtype`` (default: its own), also in containers."""
    if isinstance(value, Tensor):
        detached = value.detach()
        moved = detached.to(p.device, dtype or p.dtype) if p.is_floating_point() else detached.to(p.device)
        if moved._backend is not p._backend and moved.shape == p.shape:  # whole state of a sharded parameter
            return empty_like(p, dtype=moved.dtype).copy_(beside(p, moved))
        return moved.clone() if moved.raw is value.raw else moved
    if isinstance(value, Mapping):
        return {k: _placed(v, p) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)) and not hasattr(value, "_fields"):
        return type(value)(_placed(v, p) for v in value)
    return copy.deepcopy(value)
