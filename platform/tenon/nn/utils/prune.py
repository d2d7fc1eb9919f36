"""PyTorch's ``nn.utils.prune``: zeroes elements or slices of a weight, and keeps them zero.

The pruning methods (``L1Unstructured``, ``RandomStructured``, ...) come from plugins; their base classes, and
how a mask joins the pipeline of a weight, are in ``nn/masks.py``.

>>> import tenon
>>> layer = l1_unstructured(tenon.nn.Linear(4, 2), "weight", amount=0.5)
>>> sorted(layer.state_dict())
['bias', 'weight_mask', 'weight_orig']
>>> int((layer.weight == 0).sum())
4
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tenon.engine.types import Forwarded
from tenon.errors import ModuleTypeError, ModuleValueError, ShapeError
from tenon.nn.masks import (
    BasePruningMethod,
    PruningContainer,
    check_amount,
    check_amount_of,
    check_axis,
    check_structured,
    count,
    flattened,
    is_pruned,
    method_of,
    slice_norms,
)
from tenon.nn.module import Module, ModuleT
from tenon.plugins.lazy import lazy_namespace
from tenon.plugins.registry import resolve
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import ones_like
from tenon.tensors.tensor import Tensor

__all__ = [
    "BasePruningMethod",
    "PruningContainer",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

__getattr__, __dir__ = lazy_namespace(__name__, kind="pruners")

# PyTorch's names of the checks, which third-party pruning methods call.
_validate_pruning_amount_init = check_amount
_validate_pruning_amount = check_amount_of
_validate_structured_pruning = check_structured
_validate_pruning_dim = check_axis
_compute_nparams_toprune = count
_compute_norm = slice_norms


def identity(module: ModuleT, name: str) -> ModuleT:
    """Add a mask of ones to ``module.<name>``; return ``module``."""
    resolve("pruners", "Identity").apply(module, name)
    return module


def random_unstructured(module: ModuleT, name: str, amount: float) -> ModuleT:
    """Zero a fraction (float) or number (int) of elements of ``module.<name>`` at random; return
    ``module``."""
    resolve("pruners", "RandomUnstructured").apply(module, name, amount)
    return module


def l1_unstructured(
    module: ModuleT, name: str, amount: float, importance_scores: Tensor | None = None
) -> ModuleT:
    """Zero the ``amount`` of elements with the smallest magnitude, or score; return ``module``."""
    method = resolve("pruners", "L1Unstructured")
    method.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: ModuleT, name: str, amount: float, dim: int) -> ModuleT:
    """Zero the ``amount`` of slices along ``dim`` at random; return ``module``."""
    resolve("pruners", "RandomStructured").apply(module, name, amount, dim)
    return module


def ln_structured(
    module: ModuleT,
    name: str,
    amount: float,
    n: float | str,
    dim: int,
    importance_scores: Tensor | None = None,
) -> ModuleT:
    """Zero the ``amount`` of slices along ``dim`` with the smallest ``n``-norm; return ``module``."""
    method = resolve("pruners", "LnStructured")
    method.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: ModuleT, name: str, mask: Tensor) -> ModuleT:
    """Zero ``module.<name>`` where ``mask``, of its shape, is zero; return ``module``."""
    resolve("pruners", "CustomFromMask").apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Callable[..., BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Forwarded,
) -> None:
    """Prune the ``(module, name)`` pairs of ``parameters`` together, as if they were one tensor.

    ``importance_scores`` maps pairs to scores; the scores of other tensors are their values. Keyword
    arguments are those of ``pruning_method``, whose ``PRUNING_TYPE`` must be ``"unstructured"``.
    """
    if not isinstance(parameters, Iterable):
        raise ModuleTypeError("global_unstructured(): parameters is not an Iterable")
    if importance_scores is not None and not isinstance(importance_scores, dict):
        raise ModuleTypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = [(module, name) for module, name in parameters]
    if not pairs:
        raise ModuleValueError("global_unstructured(): there are no parameters to prune.")
    scores_by_pair = importance_scores or {}
    tensors = [getattr(module, name) for module, name in pairs]
    scores = [scores_by_pair.get(pair, tensor) for pair, tensor in zip(pairs, tensors, strict=True)]
    for (module, name), score, tensor in zip(pairs, scores, tensors, strict=True):
        if score.shape != tensor.shape:
            raise ShapeError(
                f"global_unstructured(): the importance scores of '{name}' of {module} have shape "
                f"{tuple(score.shape)}, the tensor has {tuple(tensor.shape)}."
            )
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise ModuleTypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container = PruningContainer()
    container._tensor_name = method._tensor_name = "all parameters"
    container.add_pruning_method(method)
    with no_grad():
        defaults = [
            getattr(module, f"{name}_mask", ones_like(tensor))
            for (module, name), tensor in zip(pairs, tensors, strict=True)
        ]
        final = container.compute_mask(flattened(scores).detach(), flattened(defaults))
    start = 0
    for (module, name), tensor in zip(pairs, tensors, strict=True):
        custom_from_mask(module, name, final[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()


def remove(module: ModuleT, name: str) -> ModuleT:
    """Make the zeros of ``module.<name>`` permanent and remove the mask; return ``module``.

    Parametrizations before the mask are folded into the value, those after it stay.
    """
    method = method_of(module, name)
    if method is None:
        raise ModuleValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    method.remove(module)
    return module
