"""``mask_channels`` and ``mask_weights``: mask the channels or elements of a model with the smallest scores.

A channel consists of all elements that can only be removed together: a row of a weight, its bias, its
elements in norms, and a column of each weight that reads it (``dependencies.py``). Its score is the sum of
the scores of these elements, which come from criteria: plugins of the kind ``pruners`` that derive from
``nn.masks.Criterion``.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np

from tenon import from_numpy, no_grad
from tenon.errors import ModuleTypeError, PruningError
from tenon.extend import resolve
from tenon.nn.criterion import Criterion, scores_by
from tenon.nn.masks import Mask, check_amount
from tenon.nn.module import Module
from tenon.nn.utils.prune import custom_from_mask
from tenon.nn.weights import forget, pipeline_of
from tenon_compress.prune.channel_groups import axes_of_channels, group_by_axes
from tenon_compress.prune.compaction import analyse, bake_all, check_model, shared_names
from tenon_compress.prune.removal import couple_rectangles, equalize_groups, prunable
from tenon_compress.quantize.layers import QuantizedLayer
from tenon_compress.receipt import Example, call_of, evaluating

Scope = Literal["global", "layer"]


def mask_channels(
    model: Module,
    example: Example,
    amount: float,
    criterion: str | type[Criterion] = "Magnitude",
    *,
    scope: Scope = "global",
    keep: Sequence[str] = (),
) -> int:
    """Mask the share ``amount`` of channels, heads and units, the lowest scored; return their number.

    ``example`` is what the model is called with, as for ``compact``, which removes what is masked here. With
    the scope ``"global"`` all channels compete, by scores relative to the mean of those in the same weights;
    with ``"layer"`` each set of weights loses the same share. At least one channel of each remains. ``keep``
    names modules, by paths or patterns such as ``"blocks.*.attn"``, of which no channel is masked; parameters
    that several modules share are not masked either. What is masked already counts as part of ``amount``, so
    that a growing amount prunes in steps; 0.0 registers masks of ones. On any error the model is unchanged.
    """
    criterion_class = _criterion(criterion)
    check_share(amount, scope)
    check_model(model, "mask_channels")
    baked = copy.deepcopy(model)
    bake_all(baked)
    with evaluating(baked), no_grad():
        analysis, names = analyse(baked, *call_of(example), keep_scales=True)
        couple_rectangles(analysis)
    shared = {name for several in shared_names(baked).values() for name in several}
    for node, axes in analysis.stored.items():
        if _matches(names[node], keep) or names[node] in shared:
            for channels in axes:
                analysis.channels.keep(channels, "keep names them")
    representatives, can = prunable(analysis)
    learned = {name for name, _ in baked.named_parameters()}
    stored = {n: axes for n, axes in analysis.stored.items() if names[n] in learned}
    scores = {node: _scores(criterion_class, model, names[node]) for node in stored}
    totals = np.zeros(len(representatives))
    for node, axes in stored.items():
        for axis, channels in enumerate(axes):
            others = tuple(i for i in range(len(axes)) if i != axis)
            np.add.at(totals, representatives[channels], scores[node].sum(others))
    for node, groups in analysis.groups.items():
        if node in stored:
            by_group = scores[node].reshape(*groups.columns.shape[:1], -1, *scores[node].shape[1:])
            np.add.at(totals, representatives[groups.columns], by_group.sum((1, *range(3, by_group.ndim))))
    peers = group_by_axes(analysis, representatives, axes_of_channels(stored, representatives, can))
    if not peers:
        quantized = [path for path, m in model.named_modules() if isinstance(m, QuantizedLayer)]
        raise PruningError(
            "mask_channels: the model has no channels, heads or units that could be removed."
            + (f" '{quantized[0]}' is quantized: prune first, then quantize." if quantized else "")
        )
    is_removed = np.zeros(len(representatives), bool)
    is_removed[_choose([np.array(group) for group in peers], totals, amount, scope)] = True
    while equalize_groups(analysis, representatives, is_removed, totals):
        pass
    is_removed = is_removed[representatives]
    for node, axes in stored.items():
        columns = analysis.groups[node].columns if node in analysis.groups else axes[0][:0]
        if any((is_removed if amount else can)[channels].any() for channels in (*axes, columns)):
            mask = np.ones([len(channels) for channels in axes], np.float32)
            for axis, channels in enumerate(axes):
                mask[(slice(None),) * axis + (is_removed[channels],)] = 0
            for part, channels in zip(np.split(mask, max(len(columns), 1)), columns, strict=False):
                part[:, is_removed[channels]] = 0
            _mask(model, names[node], mask)
    return int(is_removed[[representative for group in peers for representative in group]].sum())


def mask_weights(
    model: Module,
    amount: float,
    criterion: str | type[Criterion] = "Magnitude",
    *,
    scope: Scope | Literal["row"] = "global",
    keep: Sequence[str] = (),
) -> int:
    """Mask the share ``amount`` of all weights' elements, the lowest scored; return how many are masked.

    Weights are parameters of two axes and more, outside of the modules that ``keep`` names. With the scope
    ``"global"`` all elements compete, with ``"layer"`` each weight loses the same share, and with ``"row"``
    each row of a weight: what one output feature or channel is computed from. What is masked already counts
    as part of ``amount``; 0.0 registers masks of ones. On any error the model is unchanged.
    """
    criterion_class = _criterion(criterion)
    check_share(amount, scope, ("global", "layer", "row"))
    check_model(model, "mask_weights")
    baked = copy.deepcopy(model)
    bake_all(baked)
    weights = {n: p for n, p in baked.named_parameters() if p.dim() > 1 and not _matches(n, keep)}
    if not weights:
        raise PruningError("mask_weights: the model has no parameter of two axes or more.")
    for parameter in weights.values():
        if id(parameter) in shared_names(baked):
            raise PruningError(
                f"mask_weights: {' and '.join(shared_names(baked)[id(parameter)])} are one parameter, and a"
                " mask of one module would not be the other's. Mask other weights one by one, or untie it."
            )
    scores = {name: _scores(criterion_class, model, name) for name in weights}
    for name, weight in weights.items():
        scores[name][weight.detach().cpu().numpy() == 0] = -1  # masked already
    if scope == "global":
        flat = np.concatenate([s.reshape(-1) for s in scores.values()])
        is_removed = _smallest(flat, round(amount * flat.size))
        parts = np.split(is_removed, np.cumsum([s.size for s in scores.values()])[:-1])
    elif scope == "row":
        rows = [s.reshape(len(s), -1) for s in scores.values()]
        parts = [np.array([_smallest(row, round(amount * row.size)) for row in each]) for each in rows]
    else:
        parts = [_smallest(s.reshape(-1), round(amount * s.size)) for s in scores.values()]
    for (name, score), part in zip(scores.items(), parts, strict=True):
        if part.any() or not amount:
            _mask(model, name, (~part).astype(np.float32).reshape(score.shape))
    return int(sum(part.sum() for part in parts))


def _criterion(criterion: str | type[Criterion]) -> type[Criterion]:
    cls = resolve("pruners", criterion) if isinstance(criterion, str) else criterion
    if not (isinstance(cls, type) and issubclass(cls, Criterion)):
        raise ModuleTypeError(
            f"{criterion!r} is not a criterion that scores each element. Name a subclass of"
            " tenon.extend.Criterion, such as Magnitude or Taylor."
        )
    return cls


def check_share(amount: float, scope: str, scopes: Sequence[str] = ("global", "layer")) -> None:
    """Raise an error unless ``amount`` is a share below 1 and ``scope`` is one of ``scopes``."""
    check_amount(amount)
    if not isinstance(amount, float) or amount >= 1:
        raise PruningError(f"amount={amount} of a model should be a share below 1, such as 0.5.")
    if scope not in scopes:
        raise PruningError(f"scope is {' or '.join(map(repr, scopes))}, got {scope!r}.")


def _matches(name: str, keep: Sequence[str]) -> bool:
    return any(fnmatchcase(f"{name}.", f"{pattern}.*") for pattern in keep)


def _module_and_name(model: Module, name: str) -> tuple[Module, str]:
    path, _, own = name.rpartition(".")
    return model.get_submodule(path), own


def _scores(criterion: type[Criterion], model: Module, name: str) -> np.ndarray:
    try:
        scores = scores_by(criterion, *_module_and_name(model, name)).cpu().double().numpy()
    except PruningError as error:
        raise PruningError(f"'{name}': {error}") from error
    if not np.isfinite(scores).all():
        raise PruningError(f"{criterion.__name__} returns scores of '{name}' that are not finite.")
    return scores.copy()


def _smallest(scores: np.ndarray, number: int) -> np.ndarray:
    """Return a boolean array that is true at the ``number`` smallest of ``scores``."""
    smallest = np.zeros(scores.size, bool)
    smallest[np.argsort(scores, kind="stable")[:number]] = True
    return smallest


def _choose(groups: list[np.ndarray], totals: np.ndarray, amount: float, scope: str) -> np.ndarray:
    """Return the representatives to mask: of each group, or of all by scores over their group's mean."""
    ordered = [group[np.argsort(totals[group], kind="stable")] for group in groups]
    if scope == "layer":
        lowest = [group[: min(round(amount * len(group)), len(group) - 1)] for group in ordered]
        return np.concatenate(lowest)
    candidates = np.concatenate([group[:-1] for group in ordered])
    relative = np.concatenate([totals[g[:-1]] / max(totals[g].mean(), 1e-30) for g in ordered])
    number = round(amount * sum(map(len, groups)))
    return candidates[np.argsort(relative, kind="stable")[:number]]


def _mask(model: Module, name: str, mask: np.ndarray) -> None:
    """Mask the parameter where ``mask`` is zero: in its present mask if it has one, else by a new one."""
    module, own = _module_and_name(model, name)
    pipeline = pipeline_of(module, own)
    last = pipeline.steps[-1] if pipeline is not None else None
    if not isinstance(last, Mask):
        weight = getattr(module, own)
        custom_from_mask(module, own, from_numpy(mask).to(device=weight.device, dtype=weight.dtype))
        return
    with no_grad():
        buffer = module.get_buffer(last.buffer)
        buffer.mul_(from_numpy(mask).to(device=buffer.device, dtype=buffer.dtype))
    forget()
