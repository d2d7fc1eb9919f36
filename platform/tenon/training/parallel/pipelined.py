"""``PipelinedModel``: a rank has a stage of the model, consecutive layers, and passes activations on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from tenon.distributed.pipelining.schedule import PipelineSchedule
from tenon.distributed.tensor import DTensor
from tenon.dtypes import float32
from tenon.engine.types import Nested
from tenon.nn.module import Module
from tenon.nn.utils.clip_grad import clip_grads_with_norm_
from tenon.random.keys import keyed
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import tensor
from tenon.tensors.pytree import tree_map
from tenon.tensors.tensor import Tensor
from tenon.training.parallel.division import Division, norm_of
from tenon.training.parallel.feed import restored_generators
from tenon.training.parallel.mesh import Mesh
from tenon.training.session import Session
from tenon.training.step import autocasting

#: Microbatches for each stage, unless the configuration has their number.
MICROBATCHES = 4
SCHEDULES = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}


class _Stage(PipelineStage):
    """A stage that draws random numbers by sample, as a run without a pipeline does."""

    session: Session
    parts: Sequence[Sequence[int]] = ()
    """The samples of each microbatch of a training step; none in evaluations."""
    first = 0
    """The number of the first random operation of this stage in the whole model."""
    drawn = 0
    """How many random operations it has."""

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: Sequence[Nested],
        kwargs: dict[str, Nested] | None = None,
        save_forward_output: bool = True,
    ) -> Nested:
        """See ``PipelineStage``."""
        session = self.session
        with autocasting(session):
            if not self.parts:
                return super().forward_one_chunk(fwd_chunk_id, args, kwargs, save_forward_output)
            samples = np.asarray(self.parts[fwd_chunk_id], np.int64)
            with keyed(
                seed=session.config.seed, step=session.step, samples=samples, first=self.first
            ) as keys:
                output = super().forward_one_chunk(fwd_chunk_id, args, kwargs, save_forward_output)
        self.drawn = keys.drawn - self.first
        return output


class PipelinedModel(Division):
    """``module`` is stage number ``mesh.stage`` of the model."""

    def __init__(self, mesh: Mesh, module: Module, parameters: int) -> None:
        super().__init__(mesh, module, parameters)
        self._stage: _Stage | None = None
        self._schedules: dict[tuple[int, bool], PipelineSchedule] = {}
        self._losses: _Losses | None = None

    def accumulate(self, session: Session, indices: Sequence[int]) -> tuple[float, float]:
        """See ``Division``."""
        stage = self._stage_of(session)
        most = session.config.parallel.microbatches or MICROBATCHES * self.mesh.sizes.pipeline
        own = self.passes(indices, most)
        parts = own if len(own[0]) else [indices[:1]]
        inputs, targets = self.batch(session, session.data.train, [n for part in parts for n in part])
        stage.parts = parts
        self._losses = losses = _Losses(self, session, (1.0 if len(own[0]) else 0.0) / self.divisor(indices))
        try:
            self._schedule(session, len(parts), trains=True).step(
                inputs, target=targets, return_outputs=False
            )
        finally:
            stage.parts, self._losses = (), None
        total, count = (losses.total, losses.count) if len(own[0]) else (0.0, 0.0)
        self.rescale(session, count, len(indices))
        return (total, count) if self.mesh.reports else (0.0, 0.0)

    def clip(self, max_norm: float) -> None:
        """See ``Division``."""
        parameters = [p for p in self.module.parameters() if p.grad is not None]
        norm = tensor(
            self.gradient_norm(), dtype=float32, device=parameters[0].device if parameters else None
        )
        clip_grads_with_norm_(parameters, max_norm, norm)

    def gradient_norm(self) -> float:
        """See ``Division``."""
        squares = np.array([norm_of(self.module) ** 2])
        group = self.mesh.devices.get_group("pipeline")
        return float(group.all_reduce(squares, "sum", name="norm of gradients").wait()[0]) ** 0.5

    def outputs(self, session: Session, inputs: Nested, least: int) -> Nested:
        """See ``Division``."""
        most = session.config.parallel.microbatches or MICROBATCHES * self.mesh.sizes.pipeline
        stage = self._stage_of(session)
        found = self._schedule(session, min(most, least), trains=False).eval(inputs)
        if not stage.is_last:
            return None
        return tree_map(lambda t: t.full_tensor() if isinstance(t, DTensor) else t, found)

    def _stage_of(self, session: Session) -> _Stage:
        """The stage of this rank; the first call counts the random operations of all stages. Collective."""
        if self._stage is None:
            group = self.mesh.devices.get_group("pipeline")
            count = self.mesh.sizes.pipeline
            self._stage = _Stage(self.module, self.mesh.stage, count, session.device, group=group)
            self._stage.session = session
            self._count_random_operations(session, self._stage)
        return self._stage

    def _count_random_operations(self, session: Session, stage: _Stage) -> None:
        """Compute a sample in training mode, so that each stage knows how many operations precede its own."""
        samples = [0, 0]  # two: batch norm refuses one
        with restored_generators(session.communicator):
            inputs, _ = self.batch(session, session.data.train, samples)
        was_training = self.module.training
        buffers = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        self.module.train()
        stage.parts = [samples]
        try:
            self._schedule(session, 1, trains=False).eval(inputs)
        finally:
            stage.parts = ()
            self.module.train(was_training)
            with no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
        counts = [
            decode(c) for c in stage.group.all_gather_bytes(encode(stage.drawn), name="random operations")
        ]
        stage.first = sum(counts[: stage.stage_index])

    def _schedule(self, session: Session, microbatches: int, trains: bool) -> PipelineSchedule:
        """The schedule of a step of so many microbatches."""
        assert self._stage is not None
        key = microbatches, trains
        if key not in self._schedules:
            make = SCHEDULES[session.config.parallel.schedule]
            loss = self._loss if trains else None
            self._schedules[key] = make(self._stage, microbatches, loss_fn=loss, scale_grads=False)
        return self._schedules[key]

    def _loss(self, output: Nested, target: Nested) -> Tensor:
        assert self._losses is not None
        return self._losses.add(output, target)


class _Losses:
    """The losses of the microbatches of a step, on the rank of the last stage."""

    def __init__(self, division: Division, session: Session, factor: float) -> None:
        self.division, self.session, self.factor = division, session, factor
        self.total = self.count = 0.0

    def add(self, output: Nested, target: Nested) -> Tensor:
        """The loss of a microbatch, of which gradients are computed."""
        with autocasting(self.session):
            loss_sum, counted = self.division.loss_of(self.session, output, target)
        self.total += float(loss_sum.item())
        self.count += counted
        loss = loss_sum * self.factor
        scaler = self.session.scaler
        return loss if scaler is None else scaler.scale(loss)
