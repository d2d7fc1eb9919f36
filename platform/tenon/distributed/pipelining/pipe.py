"""``pipeline``: split a model into stages; ``Pipe`` has their modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenon.device import Device
from tenon.distributed.messages.process_group import Group
from tenon.distributed.pipelining.split_points import SplitPoint, check_spec, even_split
from tenon.distributed.pipelining.splitting import Cut
from tenon.distributed.pipelining.stage import PipelineStage
from tenon.distributed.pipelining.tracing import Capture, capture
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, IndexRangeError, TenonWarning
from tenon.fx import Graph, GraphModule
from tenon.nn.module import Module
from tenon.tensors.tensor import Tensor


@dataclass
class PipeInfo:
    """The calls of the stages as a ``graph``, and the number of stages."""

    graph: Graph
    num_stages: int
    has_loss_and_backward: bool = False


class Pipe(Module):
    """A model that ``pipeline`` has split: ``split_gm`` calls the stages, ``submod_0``, ``submod_1`` ...

    Calling it runs all stages in this process, to compare the result with the model's. Stages share
    parameters and buffers with the model, under its names: the state_dicts of the stages together are that of
    the model. ``replicated_params`` lists parameters that several stages use: for each the names by stage.

    Source: torch.distributed.pipelining.Pipe.
    """

    def __init__(self, split_gm: GraphModule, num_stages: int) -> None:
        super().__init__()
        self.split_gm = split_gm
        self.num_stages = num_stages
        self.has_loss_and_backward = False
        self.replicated_params = _replicated(self._stages())

    def _stages(self) -> list[Module]:
        return [self.split_gm.get_submodule(f"submod_{number}") for number in range(self.num_stages)]

    def forward(self, *args: Nested, **kwargs: Nested) -> Nested:
        """The model's outputs; a single tensor is in a tuple, as PyTorch returns it."""
        result: Nested = self._stages()[0](*args, **kwargs)
        for stage in self._stages()[1:]:
            result = stage(*result) if isinstance(result, tuple) else stage(result)
        return (result,) if isinstance(result, Tensor) else result

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage; IndexRangeError if there is none."""
        if not 0 <= stage_idx < self.num_stages:
            raise _StageIndexError(f"Invalid stage index {stage_idx}! There are {self.num_stages} stages.")
        return self._stages()[stage_idx]

    def build_stage(self, stage_index: int, device: Device | str, group: Group = None) -> PipelineStage:
        """The ``PipelineStage`` of a stage, on this rank of ``group``."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)

    def info(self) -> PipeInfo:
        """The graph of the calls of the stages."""
        return PipeInfo(self.split_gm.graph, self.num_stages, self.has_loss_and_backward)

    def print_readable(self) -> None:
        """Print the code of the stages."""
        self.split_gm.print_readable()
        for stage in self._stages():
            if isinstance(stage, GraphModule):
                stage.print_readable()

    def __str__(self) -> str:
        return str(self.split_gm)

    __repr__ = __str__


class _StageIndexError(IndexRangeError, ValueError):
    """Also a ValueError, which PyTorch raises here."""


def build_stage(
    stage_module: Module, stage_index: int, pipe_info: PipeInfo, device: Device | str, group: Group = None
) -> PipelineStage:
    """The ``PipelineStage`` of a module of a ``Pipe``, whose ``info()`` is ``pipe_info``.

    Source: torch.distributed.pipelining.build_stage.
    """
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],  # of any types
    mb_kwargs: dict[str, Any] | None = None,  # of any types
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[GraphModule], GraphModule] | None = None,
    *,
    num_stages: int | None = None,
) -> Pipe:
    """Split ``module`` into stages, for example arguments of a microbatch.

    The split points are ``pipe_split()`` in the model's code, or ``split_spec``, such as
    ``{"layers.4": SplitPoint.BEGINNING}``; ``num_stages`` chooses them at members of the model's lists, for
    similar numbers of parameters. ``split_policy`` gets the model as a graph of layers, and returns it with
    calls of ``pipe_split`` inserted.

    Only code between split points is captured, and everything else stays as it is: modules inside of a stage
    are called as modules. Captured code may branch on shapes of the example arguments, and on arguments that
    are not tensors, whose values it keeps.

    Raises ``CaptureError`` if it branches on values of tensors; ``ArgumentError`` for names of modules that
    do not exist or are not called, stages without computations, and modules that are data parallel already.
    Warns if several stages use a parameter, as tied weights do: each then has its own copy on its rank.

    Source: torch.distributed.pipelining.pipeline.

    >>> import tenon
    >>> from tenon import nn
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> pipe = pipeline(model, (tenon.ones(2, 4),), split_spec={"1": SplitPoint.END})
    >>> [list(pipe.get_stage_module(i).state_dict()) for i in range(pipe.num_stages)]
    [['0.weight', '0.bias'], ['2.weight', '2.bias']]
    """
    given = [name for name, value in _named(split_spec, split_policy, num_stages) if value is not None]
    if len(given) > 1:
        raise ArgumentError(
            f"Cannot specify both `{given[0]}` and `{given[1]}`. Please use only one of them."
        )
    if num_stages is not None:
        split_spec = even_split(module, num_stages)
    if split_spec is not None:
        check_spec(module, split_spec)
    args = tuple(mb_args)
    captured = capture(module, args, mb_kwargs or {}, split_spec, to_layers=split_policy is not None)
    if split_policy is not None:
        captured = _with_policy(module, captured, split_policy)
    stages = Cut(module, captured).modules()
    pipe = Pipe(_joined(stages), len(stages))
    if pipe.replicated_params:
        _warn_of_copies(pipe.replicated_params)
    return pipe


def _named(
    split_spec: object, split_policy: object, num_stages: object
) -> tuple[tuple[str, object], tuple[str, object], tuple[str, object]]:
    return ("split_spec", split_spec), ("split_policy", split_policy), ("num_stages", num_stages)


def _with_policy(module: Module, captured: Capture, policy: Callable[[GraphModule], GraphModule]) -> Capture:
    whole = GraphModule(module, captured.graph, type(module).__name__)
    changed = policy(whole)
    if not isinstance(changed, GraphModule):
        raise ArgumentError(
            f"split_policy returned a {type(changed).__name__}. Return the GraphModule, with calls of"
            " pipe_split in its graph."
        )
    changed.graph.lint()
    return Capture(changed.graph, captured.values, captured.constants)


def _joined(stages: list[GraphModule]) -> GraphModule:
    """A module that calls the stages one after another."""
    graph = Graph()
    arguments = [node for node in stages[0].graph.nodes if node.op == "placeholder"]
    values = [graph.placeholder(str(node.target)) for node in arguments]
    for number, stage in enumerate(stages):
        result = graph.call_module(f"submod_{number}", tuple(values))
        following = stages[number + 1 : number + 2]
        count = sum(node.op == "placeholder" for node in following[0].graph.nodes) if following else 1
        values = [result] if count == 1 else [graph.call_function(_item, (result, i)) for i in range(count)]
        del stage
    graph.output(values[0])
    return GraphModule({f"submod_{i}": stage for i, stage in enumerate(stages)}, graph, "SplitModel")


def _item(values: tuple[Nested, ...], index: int) -> Nested:
    return values[index]


def _replicated(stages: list[Module]) -> list[dict[str, str]]:
    users: dict[int, dict[str, str]] = {}
    for number, stage in enumerate(stages):
        for name, parameter in stage.named_parameters():
            users.setdefault(id(parameter), {}).setdefault(f"submod_{number}", name)
    return [names for names in users.values() if len(names) > 1]


def _warn_of_copies(replicated: list[dict[str, str]]) -> None:
    shown = "; ".join(
        ", ".join(f"{name} in {stage}" for stage, name in names.items()) for names in replicated
    )
    warnings.warn(
        f"pipeline: several stages use the same parameters ({shown}). On different ranks each has a copy,"
        " whose gradient is only the part of its own stage: after each step, add the gradients up over these"
        " ranks (dist.all_reduce(parameter.grad, group=...)) before the optimizer's, or put the modules that"
        " share it into one stage.",
        TenonWarning,
        stacklevel=3,
    )
