"""Names for the annotations of optimizers, their rules and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, TypeAlias

from tenon.engine.types import Operand
from tenon.tensors.tensor import Tensor

#: A parameter group: ``"params"``, the list of its parameters, and one entry per option of the optimizer, of
#: whatever type the option has.
ParamGroup: TypeAlias = dict[str, Any]
#: What an optimizer is constructed with: parameters, groups, or ``(name, parameter)`` pairs. PyTorch's name.
ParamsT: TypeAlias = Iterable[Tensor] | Iterable[ParamGroup] | Iterable[tuple[str, Tensor]]
#: The state of one parameter by name: tensors and numbers, as stored in ``optimizer.state[p]``; inside of a
#: rule, arrays in place of the tensors where the rule runs on arrays.
State: TypeAlias = dict[str, Any]
#: What a rule returns: the new value of the parameter, and its new state.
Update: TypeAlias = tuple[Operand, State]
#: The options of a group as attributes, and ``step``, the number of the current step from 1, where the rule
#: counts steps.
Hyperparameters: TypeAlias = SimpleNamespace
#: What a state dict maps from: ``"state"``, ``"param_groups"`` and entries that hooks add.
StateDict: TypeAlias = dict[str, Any]
#: A learning rate, momentum or other hyper-parameter that may be a one-element tensor.
Scalar: TypeAlias = float | Tensor
#: Computes the loss and its gradients; its result is returned by ``step``.
Closure: TypeAlias = Callable[[], Any]
#: One hyper-parameter for all groups of an optimizer, or a list or tuple with one for each.
PerGroup: TypeAlias = Scalar | list[Scalar] | list[float] | tuple[Scalar, ...]
