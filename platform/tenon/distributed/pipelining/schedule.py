"""The step of a pipeline: split a batch into microbatches, run the schedule's actions, merge the outputs.

Schedules of one stage on each rank derive from ``PipelineScheduleSingle``, those of several from
``PipelineScheduleMulti``. ``schedules.py`` has them, ``execution.py`` runs the actions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tenon.distributed.communication.clock import clock_of
from tenon.distributed.messages.process_group import Group
from tenon.distributed.pipelining import orders
from tenon.distributed.pipelining.actions import Order
from tenon.distributed.pipelining.agreement import agree
from tenon.distributed.pipelining.execution import Batch, Execution
from tenon.distributed.pipelining.messages import with_messages
from tenon.distributed.pipelining.microbatch import (
    merge_chunks,
    split_args_kwargs_into_chunks,
    split_target,
)
from tenon.distributed.pipelining.stage import PipelineStage
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, ArgumentTypeError, GradError, ShapeError
from tenon.tensors.autograd.grad_mode import is_grad_enabled, no_grad
from tenon.tensors.tensor import Tensor

#: ``loss_fn(output, target)`` of a microbatch.
LossFunction: TypeAlias = Callable[..., Tensor]


class PipelineSchedule(ABC):
    """What all schedules have in common: ``step`` and ``eval``.

    ``loss_fn(output, target)`` of the last stage's output and a part of the target is the loss of a
    microbatch; without it, steps only compute forward. With ``scale_grads`` gradients are those of the mean
    of these losses, as it suits a loss that is a mean over samples; without it those of their sum.
    ``args_chunk_spec`` and ``kwargs_chunk_spec`` say how arguments are split (``TensorChunkSpec``), the first
    axis by default, and ``output_merge_spec`` how outputs are merged.

    ``pipeline_order`` has the actions of every rank, and ``n_microbatches`` how many parts a batch is split
    into.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: LossFunction | None,
        args_chunk_spec: Sequence[Nested] | None,
        kwargs_chunk_spec: Mapping[str, Nested] | None,
        output_merge_spec: Nested,
        scale_grads: bool,
    ) -> None:
        if isinstance(n_microbatches, bool) or not isinstance(n_microbatches, int) or n_microbatches < 1:
            raise ArgumentError(
                f"{type(self).__name__}: n_microbatches={n_microbatches!r} has to be a positive number."
            )
        self._stages = {stage.stage_index: stage for stage in stages}
        first = stages[0]
        self._group: Group = first.group
        self._ranks, self._rank, self._count = first.group_size, first.group_rank, first.num_stages
        if (clock := clock_of(first.group)) is not None:
            clock.stage = 1 + self._rank  # Ranks of other stages wait for this one by nature.
        self.n_microbatches = n_microbatches
        self.loss_fn = loss_fn
        self.scale_grads = scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._rank_of = self._placement()
        self._check_stages(stages)
        self.pipeline_order: Order = with_messages(self._order(), self._rank_of)
        forwards = orders.forward_order(self._rank_of, n_microbatches)
        self._forward_order = with_messages(forwards, self._rank_of)
        self._steps = 0
        self._agreed = False

    # --- what a class of schedules defines ---

    def _placement(self) -> list[int]:
        """The rank of each stage."""
        return orders.placed_in_turn(self._count, self._ranks)

    @abstractmethod
    def _order(self) -> Order:
        """The computations of every rank in a step with backward passes."""

    def _check_stages(self, stages: Sequence[PipelineStage]) -> None:
        name = type(self).__name__
        if any(s.num_stages != self._count or s.group is not stages[0].group for s in stages):
            raise ArgumentError(f"{name}: the stages have different num_stages or groups: {list(stages)}.")
        own = [stage for stage, rank in enumerate(self._rank_of) if rank == self._rank]
        found = [stage.stage_index for stage in stages]
        if sorted(found) != own:
            raise ArgumentError(
                f"{name}: rank {self._rank} of {self._ranks} got stages {found}, but with {self._count}"
                f" stages it computes {own}. Pass these to each rank's schedule."
            )

    # --- steps ---

    def step(
        self,
        *args: Nested,
        target: Nested = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,  # of any types
        **kwargs: Nested,
    ) -> Nested:
        """Compute a whole batch; every rank of the pipeline calls it.

        The rank of the first stage passes the model's arguments, that of the last stage ``target``, and gets
        the outputs, None elsewhere; ``kwargs`` go to the stages of the rank that passes them. Gradients are
        added to ``.grad`` of the parameters. ``losses`` is filled with the losses of the microbatches on the
        rank of the last stage; ``loss_kwargs`` are further arguments of ``loss_fn``. Without
        ``return_outputs`` outputs are not kept.

        Raises ``ShapeError`` for a batch of fewer rows than microbatches, ``GradError`` if gradients are
        disabled, ``CollectiveMismatchError`` if the ranks have different schedules.
        """
        if self.loss_fn is not None and not is_grad_enabled():
            raise GradError(
                "step() requires gradients to be enabled for backward computation; it should not be used"
                " under torch.no_grad() context. Please call eval() instead."
            )
        trains = self.loss_fn is not None
        return self._run(args, kwargs, target, losses, return_outputs, loss_kwargs, trains)

    def eval(
        self,
        *args: Nested,
        target: Nested = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: dict[str, Any] | None = None,  # of any types
        **kwargs: Nested,
    ) -> Nested:
        """``step`` without backward passes and without gradients; ``target`` may be left out, and losses with
        it.

        It does not change ``module.training``: call ``module.eval()`` for dropout and batch normalization.
        """
        with no_grad():
            return self._run(args, kwargs, target, losses, return_outputs, loss_kwargs, False)

    def _run(
        self,
        args: tuple[Nested, ...],
        kwargs: dict[str, Nested],
        target: Nested,
        losses: list[Tensor] | None,
        return_outputs: bool,
        loss_kwargs: dict[str, Any] | None,  # of any types
        trains: bool,
    ) -> Nested:
        batch = self._batch(args, kwargs, target, losses, return_outputs, loss_kwargs, trains)
        if not self._agreed:
            agree(next(iter(self._stages.values())).group, self._description())
            self._agreed = True
        self._steps += 1
        for stage in self._stages.values():
            stage.has_backward = trains
            stage.clear_runtime_states()
        title = f"{'training' if trains else 'forward'} step {self._steps}"
        order = self.pipeline_order if trains else self._forward_order
        Execution(self._stages, self._rank_of, batch, title).run(order[self._rank])
        last = self._stages.get(self._count - 1)
        if losses is not None and last is not None:
            losses[:] = [batch.losses[number] for number in sorted(batch.losses)]
        if last is None or not return_outputs:
            return None
        outputs = [last.outputs.pop(number) for number in range(self.n_microbatches)]
        return merge_chunks(outputs, self._output_merge_spec)

    def _description(self) -> str:
        return (
            f"{type(self).__name__} of {self._count} stages and {self.n_microbatches} microbatches,"
            f" {'without' if self.loss_fn is None else 'with'} loss_fn, scale_grads={self.scale_grads}"
        )

    # --- microbatches ---

    def _batch(
        self,
        args: tuple[Nested, ...],
        kwargs: dict[str, Nested],
        target: Nested,
        losses: list[Tensor] | None,
        return_outputs: bool,
        loss_kwargs: dict[str, Any] | None,  # of any types
        trains: bool,
    ) -> Batch:
        count = self.n_microbatches
        if losses is not None and not isinstance(losses, list):
            raise ArgumentTypeError(f"losses must be a list but got a {type(losses)}")
        if 0 not in self._stages:
            args = ()
        spec = self._args_chunk_spec if args else None
        args_mbs, kwargs_mbs = split_args_kwargs_into_chunks(
            args, kwargs, count, spec, self._kwargs_chunk_spec if kwargs else None
        )
        self._check_count(len(args_mbs), "arguments")
        targets: list[Nested] = []
        loss: LossFunction | None = None
        if self.loss_fn is not None and self._count - 1 in self._stages:
            if target is not None:
                targets = split_target(target, count)
                self._check_count(len(targets), "target")
            elif trains or losses is not None:
                raise ArgumentError(
                    f"{type(self).__name__}: loss_fn needs a target. Pass step(target=...) on the rank of the"
                    " last stage."
                )
            loss = _with_options(self.loss_fn, loss_kwargs or {}) if targets else None
        scale = 1 / count if self.scale_grads else 1.0
        return Batch(args_mbs, kwargs_mbs, targets, loss, scale, return_outputs)

    def _check_count(self, found: int, what: str) -> None:
        if found != self.n_microbatches:
            raise ShapeError(
                f"{type(self).__name__}: Expecting {self.n_microbatches} microbatches of the {what} but got"
                f" {found}: a batch needs as many rows as there are microbatches. Pass larger batches, or"
                f" build a schedule with n_microbatches={found}."
            )


def _with_options(function: LossFunction, options: dict[str, Any]) -> LossFunction:  # of any types
    return (lambda output, target: function(output, target, **options)) if options else function


class PipelineScheduleSingle(PipelineSchedule):
    """A schedule of one ``stage`` on each rank; see ``PipelineSchedule`` for the arguments."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: LossFunction | None = None,
        args_chunk_spec: Sequence[Nested] | None = None,
        kwargs_chunk_spec: Mapping[str, Nested] | None = None,
        output_merge_spec: Nested = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__(
            [stage],
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )


class PipelineScheduleMulti(PipelineSchedule):
    """A schedule of several ``stages`` on each rank; see ``PipelineSchedule`` for the arguments.

    Stages are placed on the ranks in turn: with 2 ranks and 4 stages, rank 0 has stages 0 and 2.
    ``use_full_backward``, ``backward_requires_autograd`` and ``defer_pp_recv`` have no effect: receives are
    posted early, and wait for nothing.
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: LossFunction | None = None,
        args_chunk_spec: Sequence[Nested] | None = None,
        kwargs_chunk_spec: Mapping[str, Nested] | None = None,
        output_merge_spec: Nested = None,
        use_full_backward: bool | None = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
    ) -> None:
        if isinstance(stages, PipelineStage) or not stages:
            raise ArgumentError(f"{type(self).__name__}: stages has to be a list of the rank's stages.")
        super().__init__(
            stages,
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )

    def _check_stages(self, stages: Sequence[PipelineStage]) -> None:
        if self._count % self._ranks:
            raise ArgumentError(
                f"{type(self).__name__}: {self._count} stages cannot be divided evenly among {self._ranks}"
                f" ranks. Split the model into a multiple of {self._ranks} stages."
            )
        super()._check_stages(stages)

    @property
    def _local(self) -> int:
        return self._count // self._ranks
