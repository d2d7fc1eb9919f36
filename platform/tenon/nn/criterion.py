"""``Criterion``: pruning methods that score each element of a weight, by its value, gradient and inputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from tenon.errors import PruningError
from tenon.nn.input_norms import input_norms
from tenon.nn.masks import BasePruningMethod, check_amount, checked_count
from tenon.nn.registration import typename
from tenon.nn.weights import pipeline_of
from tenon.tensors.autograd.grad_mode import no_grad

if TYPE_CHECKING:
    from tenon.nn.module import Module
    from tenon.tensors.tensor import Tensor


class Criterion(BasePruningMethod):
    """Base class of pruning methods that zero the elements with the smallest scores, defined by ``score``.

    ``tenon.prune.mask_channels`` and ``mask_weights`` take one by its name, and add up its scores.
    """

    PRUNING_TYPE = "unstructured"
    #: Whether ``score`` needs the gradient of the weight.
    needs_gradient: ClassVar[bool] = False
    #: Whether ``score`` needs ``input_norms``: those that ``tenon.prune.record_inputs`` has recorded.
    needs_inputs: ClassVar[bool] = False
    #: The L2 norm of the input feature that each element multiplies; broadcasts against the weight.
    input_norms: Tensor

    def __init__(self, amount: float) -> None:
        check_amount(amount)
        self.amount = amount

    @abstractmethod
    # Any, as a subclass knows by its ``needs_gradient`` which of the two it gets.
    def score(self, weight: Tensor, gradient: Any) -> Tensor:
        """Return the non-negative importance of each element.

        ``gradient`` is a tensor of the same shape if ``needs_gradient``, else None.
        """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Return a mask with zeros at the smallest of the scores ``t``."""
        number = checked_count(self.amount, t.numel())
        mask = default_mask.clone().contiguous()
        if number:
            mask.view(-1)[t.reshape(-1).topk(number, largest=False).indices] = 0
        return mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune ``amount`` of ``module.<name>`` by its scores, or by ``importance_scores``."""
        if importance_scores is None:
            importance_scores = scores_by(cls, module, name)
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


def scores_by(criterion: type[Criterion], module: Module, name: str) -> Tensor:
    """Return the scores of ``module.<name>``.

    PruningError if it needs a gradient, or norms of inputs, that are missing.
    """
    weight, gradient = getattr(module, name), None
    if criterion.needs_gradient:
        pipeline = pipeline_of(module, name)
        stored = [weight] if pipeline is None else pipeline.originals(module)
        gradient = stored[0].grad if len(stored) == 1 and stored[0].shape == weight.shape else None
        if gradient is None:
            raise PruningError(
                f"{criterion.__name__} needs gradients, and '{name}' of {typename(module)} has none of its"
                " shape. Call backward() of a loss first, or take a criterion that needs none."
            )
        gradient = gradient.detach()
    scoring = criterion(0)
    with no_grad():
        if criterion.needs_inputs:
            scoring.input_norms = _recorded_norms(criterion, module, name, weight)
        return scoring.score(weight.detach(), gradient)


def _recorded_norms(criterion: type[Criterion], module: Module, name: str, weight: Tensor) -> Tensor:
    """The norms of what ``module.<name>`` multiplies; PruningError if none were recorded."""
    norms = input_norms(module, weight) if name == "weight" and weight.dim() > 1 else None
    if norms is None:
        raise PruningError(
            f"{criterion.__name__} needs the norms of inputs, and none were recorded for '{name}' of"
            f" {typename(module)}. Call the model inside `with tenon.prune.record_inputs(model):` first."
            " Weights of linear and convolutional layers have inputs: mask these, by mask_weights, and keep"
            " other modules out."
        )
    return norms
