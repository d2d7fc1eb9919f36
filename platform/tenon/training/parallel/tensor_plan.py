"""The plan of tensor parallelism: which layers of the model are split how, from names in the configuration.

The plan is ``parallel.tensor_plan``, or what the model says of itself: its ``tensor_parallel_plan``, a dict
of paths and styles, or a method that returns one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tenon.distributed.tensor import Replicate
from tenon.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel
from tenon.distributed.tensor.parallel.api import matches
from tenon.errors import ConfigError
from tenon.nn.module import Module
from tenon.training.config import closest
from tenon.training.parallel.modules import nearest

ATTRIBUTE = "tensor_parallel_plan"

#: Styles by the names that a configuration has for them. Between layers tensors stay DTensors, so that ops
#: there know the whole shape: code may reshape by it, and dropout draws what it would draw on one rank.
STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": lambda: ColwiseParallel(use_local_output=False),
    "rowwise": RowwiseParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
}


def plan_of(model: Module, named: Mapping[str, str]) -> dict[str, ParallelStyle]:
    """The styles by path; ConfigError if there is no plan, or a name of a style is unknown.

    >>> from tenon import nn
    >>> list(plan_of(nn.Sequential(nn.Linear(2, 2)), {"0": "colwise_rep"}))
    ['0']
    """
    found: object = named or getattr(model, ATTRIBUTE, None)
    if callable(found):
        found = found()
    if not isinstance(found, Mapping) or not found:
        raise ConfigError(
            f"parallel.tensor > 1 needs a plan of which layers are split: set parallel.tensor_plan, such as"
            f' {{"layers.*.up" = "colwise", "layers.*.down" = "rowwise"}}, or give {type(model).__name__} the'
            f" attribute {ATTRIBUTE}, a dict of paths and styles."
        )
    plan = {path: _style(path, style) for path, style in found.items()}
    for path in plan:
        if not matches(model, path):
            raise ConfigError(
                f"parallel.tensor_plan: {path!r} matches no module of {type(model).__name__}."
                f" {nearest(path, model)}"
            )
    return plan


def _style(path: str, style: object) -> ParallelStyle:
    if isinstance(style, ParallelStyle):
        return style
    if style not in STYLES:
        raise ConfigError(
            f"parallel.tensor_plan: {path!r} = {style!r} is no style. {closest(str(style), STYLES)}"
        )
    return STYLES[str(style)]()
