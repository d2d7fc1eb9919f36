"""``Division``: a run whose ranks have parts of the model; how it computes steps and evaluations.

``ShardedModel`` computes the model on each rank with what it gathers; ``pipelined.py`` has the stages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from tenon.data.collate import fetch
from tenon.data.dataset import Source
from tenon.distributed.communication.clock import reading
from tenon.distributed.replicas.accumulation import sum_and_count
from tenon.distributed.tensor import DTensor, Replicate
from tenon.engine.types import Nested
from tenon.errors import TrainingError
from tenon.nn.module import Module
from tenon.nn.utils.clip_grad import clip_grad_norm_, get_total_norm
from tenon.random.keys import keyed
from tenon.tensors.pytree import tree_map
from tenon.tensors.tensor import Tensor
from tenon.training.parallel.feed import send_batch
from tenon.training.parallel.mesh import Mesh
from tenon.training.session import Session
from tenon.training.step import (
    accumulate_shards,
    autocasting,
    run_without_samples,
    share,
    tally,
    to_device,
    unpack,
)


class Division(ABC):
    """The model of a run, divided among the ranks of ``mesh``.

    ``module`` is what this rank has of it; ``parameters`` counts those of the whole model.
    """

    def __init__(self, mesh: Mesh, module: Module, parameters: int) -> None:
        self.mesh, self.module, self.parameters = mesh, module, parameters

    @abstractmethod
    def accumulate(self, session: Session, indices: Sequence[int]) -> tuple[float, float]:
        """Compute the gradients of the mean loss over the global batch ``indices``; return the sum and the
        count of the losses that this rank reports. Collective."""

    @abstractmethod
    def clip(self, max_norm: float) -> None:
        """Scale the gradients so that the norm of all ranks' together is at most ``max_norm``. Collective."""

    @abstractmethod
    def gradient_norm(self) -> float:
        """The norm of the gradients of all ranks together. Collective."""

    @abstractmethod
    def outputs(self, session: Session, inputs: Nested, least: int) -> Nested:
        """The model's outputs, on the ranks that have them; None on the others. Collective; every share of
        the samples has at ``least`` so many."""

    def totals(self, session: Session, dataset: Source[object]) -> list[float]:
        """Sum and count of the losses of this rank's share of ``dataset``, and the numbers of correct
        predictions and of targets; zeros on ranks whose share another one reports. Collective."""
        shards, indices = session.shards, range(len(dataset))
        if shards is None:
            own = share(indices, self.mesh.share, self.mesh.shares)
            return self._totals_of(session, dataset, own, self.mesh.shares)
        whole = shards.sum_parts(
            indices, lambda part: self._totals_of(session, dataset, part, shards.shards), step=session.step
        )
        return whole if session.is_main else [0.0] * len(whole)

    def _totals_of(
        self, session: Session, dataset: Source[object], own: Sequence[int], parts: int
    ) -> list[float]:
        """The totals of ``own``, one of ``parts`` even parts of ``dataset``."""
        mesh, size, count = self.mesh, session.config.eval_batch_size, len(dataset)
        largest, least = -(-count // parts), count // parts
        sums = np.zeros(4)
        for start in range(0, largest, size):
            # A rank whose share has ended computes a sample that does not count: gathers need all ranks.
            samples = own[start : start + size]
            inputs, targets = self.batch(session, dataset, samples or [0])
            with autocasting(session):
                outputs = self.outputs(session, inputs, max(1, min(size, least - start)))
            if samples and mesh.reports:
                sums += tally(session, outputs, targets)
        return [float(value) for value in sums]

    def batch(
        self, session: Session, dataset: Source[object], samples: Sequence[int]
    ) -> tuple[Nested, Nested]:
        """Inputs and targets of ``samples``, the same on all ranks that compute them. Collective."""
        found = None
        with reading("fetch"):
            if self.mesh.team.rank == 0:
                found = fetch(dataset, samples)
            return unpack(to_device(send_batch(self.mesh.team, found), session))

    def passes(self, indices: Sequence[int], most: int) -> list[Sequence[int]]:
        """This rank's share of ``indices`` in as many parts as on every other rank, at ``most`` so many.

        Of a batch with fewer samples than shares some ranks get one empty part.
        """
        own = share(indices, self.mesh.share, self.mesh.shares)
        count = max(1, min(most, len(indices) // self.mesh.shares))
        return [part.tolist() for part in np.array_split(np.asarray(own, np.int64), count)]

    def divisor(self, indices: Sequence[int]) -> float:
        """What sums of losses are divided by, so that a mean over shares becomes one over samples."""
        return len(indices) / self.mesh.shares

    def rescale(self, session: Session, counted: float, samples: int) -> None:
        """Make gradients of a mean over ``samples`` those of the mean over what counts: unmasked targets."""
        sums = np.array([counted if self.mesh.reports else 0.0])
        total = float(session.communicator.all_reduce(sums, "sum", name="targets that count").wait()[0])
        if not total:
            raise TrainingError(
                f"no target counts at step {session.step}: the mean over them is undefined. Check which"
                " targets the loss ignores, or increase batch_size."
            )
        if total != samples:
            for parameter in self.module.parameters():
                if parameter.grad is not None:
                    local = (
                        parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
                    )
                    local.mul_(samples / total)

    def loss_of(self, session: Session, outputs: Nested, targets: Nested) -> tuple[Tensor, float]:
        """Sum and count of the losses. Of outputs that are split by classes no rank gathers the whole."""
        if not isinstance(outputs, DTensor):
            return sum_and_count(session.loss, outputs, targets)
        mesh = outputs.device_mesh
        placed = tree_map(
            lambda t: DTensor.from_local(t, mesh, [Replicate()] * mesh.ndim) if isinstance(t, Tensor) else t,
            targets,
        )
        loss_sum, counted = sum_and_count(session.loss, outputs, placed)
        return (loss_sum.full_tensor() if isinstance(loss_sum, DTensor) else loss_sum), counted


class ShardedModel(Division):
    """A model of which each rank computes every layer: by gathering it, or by a part of each."""

    def accumulate(self, session: Session, indices: Sequence[int]) -> tuple[float, float]:
        """See ``Division``."""
        if session.shards is not None:
            return accumulate_shards(session, session.shards, indices)
        total, count, divisor = 0.0, 0.0, self.divisor(indices)
        for samples in self.passes(indices, session.config.accumulate):
            inputs, targets = self.batch(session, session.data.train, samples or indices[:1])
            if not samples and session.config.data_parallel.sync_batch_norm:
                run_without_samples(session, inputs)
                continue
            keys = keyed(seed=session.config.seed, step=session.step, samples=samples or indices[:1])
            with keys, autocasting(session):
                loss_sum, weight = self.loss_of(session, session.model(inputs), targets)
            loss = loss_sum * ((1.0 if samples else 0.0) / divisor)
            (loss if session.scaler is None else session.scaler.scale(loss)).backward()
            if samples:
                total, count = total + float(loss_sum.item()), count + weight
        self.rescale(session, count, len(indices))
        return (total, count) if self.mesh.reports else (0.0, 0.0)

    def clip(self, max_norm: float) -> None:
        """See ``Division``."""
        clip_grad_norm_(self.module.parameters(), max_norm)

    def gradient_norm(self) -> float:
        """See ``Division``."""
        return norm_of(self.module)

    def outputs(self, session: Session, inputs: Nested, least: int) -> Nested:
        """See ``Division``."""
        return tree_map(lambda t: t.full_tensor() if isinstance(t, DTensor) else t, session.model(inputs))


def norm_of(module: Module) -> float:
    """The norm of the gradients of ``module``, which is sharded. Collective."""
    norm = get_total_norm([p.grad for p in module.parameters() if p.grad is not None])
    return float((norm.full_tensor() if isinstance(norm, DTensor) else norm).item())
