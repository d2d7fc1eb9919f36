"""Post-local SGD: ranks train separately for some steps, then average their parameters; torch's names.

Averaging parameters every few steps sends less than averaging gradients in every step.
``PostLocalSGDOptimizer`` calls its averager after each step; ``post_localSGD_hook`` averages gradients only
in a group after the warm-up.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from tenon import Tensor
from tenon.errors import ArgumentError, TenonWarning
from tenon.extend import Communicator, Optimizer
from tenon.extend import distributed_parts as parts
from tenon.optim import step_hooks

GradBucket = parts.GradBucket
Future = parts.Future
#: Parameters, or an optimizer's parameter groups, whose options have different types.
Parameters = Iterable[Tensor] | Iterable[Mapping[str, Any]]


def average_parameters(
    params: Iterable[Tensor], process_group: Communicator | parts.NonMember | None
) -> None:
    """Overwrite the parameters by their mean over ``process_group``; do nothing on other ranks."""
    communicator = parts.find_group(process_group)
    by_dtype: dict[str, list[Tensor]] = {}
    for parameter in params if communicator is not None else ():
        by_dtype.setdefault(str(parameter.dtype), []).append(parameter)
    for name, tensors in by_dtype.items():
        assert communicator is not None
        flat = np.concatenate([parts.to_host(tensor).reshape(-1) for tensor in tensors])
        communicator.all_reduce(flat, "mean", out=flat, name=f"{name} parameters to average").wait()
        for tensor, part in zip(
            tensors, np.split(flat, np.cumsum([t.numel() for t in tensors])[:-1]), strict=True
        ):
            parts.write(tensor, part)


def get_params_to_average(params: Parameters) -> list[Tensor]:
    """Return the parameters with a gradient among ``params``, or in an optimizer's groups."""
    parameters: list[Tensor] = []
    for item in params:
        if not isinstance(item, Tensor | Mapping):
            raise ArgumentError(
                f"Parameter input of type {type(item)} is not supported. Give model.parameters()."
            )
        parameters += [item] if isinstance(item, Tensor) else item["params"]
    return [parameter for parameter in parameters if parameter.grad is not None]


def average_parameters_or_parameter_groups(
    params: Parameters, process_group: Communicator | parts.NonMember | None
) -> None:
    """Average the parameters that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)


class ModelAverager(ABC):
    """Base class of averagers of parameters; ``step`` counts the steps."""

    def __init__(self, process_group: Communicator | None = None) -> None:
        self.process_group = parts.find_group(process_group)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Parameters) -> None:
        """Average if the step requires it; called in every step, on all ranks."""


class PeriodicModelAverager(ModelAverager):
    """Averages in every ``period``-th step, from step ``warmup_steps`` on."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Communicator | None = None) -> None:
        super().__init__(process_group)
        self.warmup_steps = _checked_warmup(warmup_steps)
        if period < 1:
            raise ArgumentError(f"Arg ``period`` must be a positive value, not {period}.")
        self.period = period
        if period == 1:
            _warn_of_period_one("period")

    def average_parameters(self, params: Parameters) -> None:
        """Average in every ``period``-th step after the warm-up, and count the step."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1


class HierarchicalModelAverager(ModelAverager):
    """Averages in groups of ranks: ``period_group_size_dict`` has a group size for each period.

    In a step that several periods divide, the longest applies. The last group is all of ``process_group``.
    """

    def __init__(
        self,
        period_group_size_dict: Mapping[int, int] | None = None,
        warmup_steps: int = 0,
        process_group: Communicator | None = None,
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ArgumentError(
                "Arg ``period_group_size_dict`` must not be empty. Give {period: group size}."
            )
        self._periods = list(period_group_size_dict)
        sizes = list(period_group_size_dict.values())
        if self._periods[0] <= 0:
            raise ArgumentError(
                "The minimum period in arg ``period_group_size_dict`` must be a positive value, not"
                f" {self._periods[0]}."
            )
        if self._periods[-1] == 1:
            _warn_of_period_one("the maximum period in arg ``period_group_size_dict``")
        size = -1 if self.process_group is None else self.process_group.size
        if sizes[-1] != size:
            raise ArgumentError(
                f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to the size "
                f"of arg ``process_group`` {size}."
            )
        self.warmup_steps = _checked_warmup(warmup_steps)
        self.period_process_group_dict: OrderedDict[int, Communicator | None] = OrderedDict()
        for period, each in period_group_size_dict.items():
            group = self.process_group if each == size else parts.new_subgroups(each, self.process_group)[0]
            self.period_process_group_dict[period] = group

    def _find_process_group(self) -> Communicator | None:
        """Return the group of the longest period that divides this step."""
        periods = [period for period in self._periods if self.step % period == 0]
        return self.period_process_group_dict[periods[-1]] if periods else None

    def average_parameters(self, params: Parameters) -> None:
        """Average in the group of the step, if any, after the warm-up, and count the step."""
        group = self._find_process_group()
        if self.step >= self.warmup_steps and group is not None:
            average_parameters_or_parameter_groups(params, group)
        self.step += 1


class PostLocalSGDState:
    """The state of ``post_localSGD_hook``, which averages gradients over ``process_group`` at first.

    After ``start_localSGD_iter`` steps it averages over ``subgroup``, by default the ranks of a node, or with
    ``post_local_gradient_allreduce=False`` not at all.
    """

    def __init__(
        self,
        process_group: Communicator | None,
        subgroup: Communicator | None,
        start_localSGD_iter: int,
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: GradBucket) -> None:
        """Count a step at its last bucket."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Tensor]:
    """Average the bucket over all ranks at first, later over the state's subgroup."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return parts.allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        return parts.done(bucket.buffer())
    if state.subgroup is None:
        state.subgroup = parts.new_subgroups()[0]
    return parts.allreduce_hook(state.subgroup, bucket)


class PostLocalSGDOptimizer(Optimizer):
    """An optimizer that steps ``optim`` and then lets ``averager`` average the parameters."""

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        for name in step_hooks.KINDS:
            setattr(self, name, OrderedDict())
        self._share_state()

    def _share_state(self) -> None:
        """Share the parameter groups, the state and the defaults of ``optim``."""
        self.param_groups, self.state, self.defaults = (
            self.optim.param_groups, self.optim.state, self.optim.defaults,
        )  # fmt: skip

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, object]:
        """Return the state dict of ``optim`` with the averager's ``step``."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    # As ``state_dict`` returns it.
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the optimizer's state, and the averager's step, 0 if there is none."""
        self.optim.load_state_dict({key: value for key, value in state_dict.items() if key != "step"})
        self._share_state()
        if "step" not in state_dict:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. "
                "Setting step counter to 0.",
                TenonWarning,
                stacklevel=2,
            )
        self.averager.step = state_dict.get("step", 0)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # Any: what the closure returns
        """Step ``optim``, then average the parameters if the averager's schedule requires it."""
        result = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients as ``optim`` does."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, object]) -> None:
        """Add a parameter group to ``optim``."""
        self.optim.add_param_group(param_group)


def _checked_warmup(warmup_steps: int) -> int:
    if warmup_steps < 0:
        raise ArgumentError(f"Arg ``warmup_steps`` must be a non-negative number, not {warmup_steps}.")
    return warmup_steps


def _warn_of_period_one(argument: str) -> None:
    warnings.warn(
        f"When {argument} is 1, parameters are sent in every step, as gradients would be: no need to use"
        " model averaging. Use DistributedDataParallel alone.",
        TenonWarning,
        stacklevel=3,
    )
