# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from collections.abc import Callable as Callable
from collections.abc import Iterable as Iterable
from tenon.engine.types import Forwarded as Forwarded
from tenon.errors import ModuleTypeError as ModuleTypeError
from tenon.errors import ModuleValueError as ModuleValueError
from tenon.errors import ShapeError as ShapeError
from tenon.nn.masks import BasePruningMethod as BasePruningMethod
from tenon.nn.masks import PruningContainer as PruningContainer
from tenon.nn.masks import check_amount as check_amount
from tenon.nn.masks import check_amount_of as check_amount_of
from tenon.nn.masks import check_axis as check_axis
from tenon.nn.masks import check_structured as check_structured
from tenon.nn.masks import count as count
from tenon.nn.masks import flattened as flattened
from tenon.nn.masks import is_pruned as is_pruned
from tenon.nn.masks import method_of as method_of
from tenon.nn.masks import slice_norms as slice_norms
from tenon.nn.module import Module as Module
from tenon.nn.module import ModuleT as ModuleT
from tenon.plugins.registry import resolve as resolve
from tenon.tensors.autograd.grad_mode import no_grad as no_grad
from tenon.tensors.creation.factories import ones_like as ones_like
from tenon.tensors.tensor import Tensor as Tensor
from tenon_compress.prune.criteria import Gradient as Gradient
from tenon_compress.prune.criteria import Magnitude as Magnitude
from tenon_compress.prune.criteria import Random as Random
from tenon_compress.prune.criteria import Taylor as Taylor
from tenon_compress.prune.criteria import Wanda as Wanda
from tenon_compress.prune.structured import LnStructured as LnStructured
from tenon_compress.prune.structured import NOfM as NOfM
from tenon_compress.prune.structured import RandomStructured as RandomStructured
from tenon_compress.prune.unstructured import CustomFromMask as CustomFromMask
from tenon_compress.prune.unstructured import Identity as Identity
from tenon_compress.prune.unstructured import L1Unstructured as L1Unstructured
from tenon_compress.prune.unstructured import RandomUnstructured as RandomUnstructured
__all__ = ['BasePruningMethod', 'PruningContainer', 'custom_from_mask', 'global_unstructured', 'identity', 'is_pruned', 'l1_unstructured', 'ln_structured', 'random_structured', 'random_unstructured', 'remove']
def identity(module: ModuleT, name: str) -> ModuleT:
    ...
def random_unstructured(module: ModuleT, name: str, amount: float) -> ModuleT:
    ...
def l1_unstructured(module: ModuleT, name: str, amount: float, importance_scores: Tensor | None=None) -> ModuleT:
    ...
def random_structured(module: ModuleT, name: str, amount: float, dim: int) -> ModuleT:
    ...
def ln_structured(module: ModuleT, name: str, amount: float, n: float | str, dim: int, importance_scores: Tensor | None=None) -> ModuleT:
    ...
def custom_from_mask(module: ModuleT, name: str, mask: Tensor) -> ModuleT:
    ...
def global_unstructured(parameters: Iterable[tuple[Module, str]], pruning_method: Callable[..., BasePruningMethod], importance_scores: dict[tuple[Module, str], Tensor] | None=None, **kwargs: Forwarded) -> None:
    ...
def remove(module: ModuleT, name: str) -> ModuleT:
    ...
