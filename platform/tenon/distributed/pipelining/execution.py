"""Run the actions of a rank: compute its stages, and move tensors between them and to other ranks.

One loop runs every schedule. A computation waits for the tensors it needs, which were posted to be received
before; sends never wait (``messages.py`` says why this cannot deadlock). What a rank has sent is released as
soon as it has left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tenon.distributed.pipelining.actions import COMPUTES, Action, Kind
from tenon.distributed.pipelining.stage import PipelineStage
from tenon.distributed.pipelining.transfers import Receiver, Reception, Sender
from tenon.engine.types import Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import ModuleError
from tenon.tensors.autograd.grad_mode import is_grad_enabled
from tenon.tensors.tensor import Tensor

#: The tensors that cross from one stage to another; None for a gradient that does not exist.
Crossing: TypeAlias = "Sequence[Tensor | None]"
PHASES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.BACKWARD_INPUT: "backward",
    Kind.BACKWARD_WEIGHT: "backward",
}


@dataclass(slots=True)
class Batch:
    """What a step computes: arguments and targets of each microbatch, and the loss function."""

    args: Sequence[tuple[Nested, ...]]
    kwargs: Sequence[dict[str, Nested]]
    targets: Sequence[Nested]
    loss: Callable[[Nested, Nested], Tensor] | None
    scale: float
    save_outputs: bool
    losses: dict[int, Tensor] = field(default_factory=dict)


class Execution:
    """One step of the ``stages`` of this rank; ``title`` names it, in messages."""

    def __init__(
        self, stages: dict[int, PipelineStage], rank_of: Sequence[int], batch: Batch, title: str
    ) -> None:
        self._stages, self._rank_of, self._batch, self._title = stages, rank_of, batch, title
        group = next(iter(stages.values())).group
        self._rank = group.rank
        self._sender, self._receiver = Sender(group), Receiver(group)
        self._posted: dict[Action, Reception] = {}
        self._forward: dict[tuple[int, int], Crossing] = {}
        """What a stage of this rank passes on, by stage and microbatch."""
        self._backward: dict[tuple[int, int], Crossing] = {}
        """The gradients of the inputs of a stage of this rank, by stage and microbatch."""

    def run(self, actions: Sequence[Action]) -> None:
        """Run ``actions`` to the end."""
        for action in actions:
            if action.kind in COMPUTES:
                self._sender.progress()
                self._receiver.progress()
                with WATCHERS.spanning(f"pipeline {action}", PHASES[action.kind]):
                    self._compute(action)
            elif action.microbatch is None:
                self._stages[action.stage].replicas.reduce()
            else:
                self._communicate(action, action.microbatch)
        self._sender.finish()

    # --- messages ---

    def _communicate(self, action: Action, number: int) -> None:
        stage, kind = action.stage, action.kind
        if kind is Kind.RECV_F:
            name = self._activations(stage, number)
            self._post(action, stage - 1, name)
        elif kind is Kind.RECV_B:
            self._post(action, stage + 1, self._gradients(stage + 1, number))
        elif kind is Kind.SEND_F:
            name = self._activations(stage + 1, number)
            self._sender.send(self._forward.pop((stage, number)), self._rank_of[stage + 1], name)
        else:
            name = self._gradients(stage, number)
            self._sender.send(self._backward.pop((stage, number)), self._rank_of[stage - 1], name)

    def _activations(self, stage: int, number: int) -> str:
        return f"inputs of stage {stage}, microbatch {number}, {self._title}"

    def _gradients(self, stage: int, number: int) -> str:
        return f"gradients of inputs of stage {stage}, microbatch {number}, {self._title}"

    def _post(self, action: Action, source: int, name: str) -> None:
        device = self._stages[action.stage].device
        self._posted[action] = self._receiver.post(self._rank_of[source], name, device)

    def _received(self, action: Action) -> list[Tensor | None]:
        with WATCHERS.spanning(f"wait for {action}", "wait"):
            return self._receiver.wait(self._posted.pop(action))

    # --- computations ---

    def _compute(self, action: Action) -> None:
        stage, number = self._stages[action.stage], action.microbatch
        assert number is not None  # of every computation
        if action.kind is Kind.FORWARD:
            self._compute_forward(stage, number)
        elif action.kind is Kind.BACKWARD_WEIGHT:
            stage.backward_weight_one_chunk(number)
        else:
            self._compute_backward(stage, number, action.kind is Kind.BACKWARD)

    def _compute_forward(self, stage: PipelineStage, number: int) -> None:
        batch, index = self._batch, stage.stage_index
        args: Sequence[Nested] = batch.args[number] if stage.is_first else self._inputs_of(stage, number)
        output = stage.forward_one_chunk(number, args, batch.kwargs[number], batch.save_outputs)
        if not stage.is_last:
            self._forward[index, number] = output
        elif batch.loss is not None:
            loss = batch.loss(output, batch.targets[number])
            if not isinstance(loss, Tensor) or loss.numel() != 1:
                shown = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
                raise ModuleError(
                    f"loss_fn returned {shown} for microbatch {number}. Return a tensor of one element, such"
                    " as the mean over the microbatch."
                )
            batch.losses[number] = loss

    def _inputs_of(self, stage: PipelineStage, number: int) -> list[Tensor]:
        """The outputs of the previous stage, as leaves of this one's graph."""
        index, trains = stage.stage_index, stage.has_backward and is_grad_enabled()
        if self._rank_of[index - 1] == self._rank:
            previous: Sequence[Any] = self._forward.pop((index - 1, number))  # outputs are no None
            return [t.detach().requires_grad_(trains and t.requires_grad) for t in previous]
        reception = self._posted[Action(index, Kind.RECV_F, number)]
        # Activations are tensors: None stands for gradients that do not exist.
        tensors: Sequence[Any] = self._received(Action(index, Kind.RECV_F, number))
        announced: Sequence[Any] = reception.announced or ()  # the same
        return [
            t.requires_grad_(trains and each.requires_grad)
            for t, each in zip(tensors, announced, strict=True)
        ]

    def _gradients_of_outputs(self, stage: PipelineStage, number: int) -> Crossing:
        if stage.is_last:
            return ()
        if self._rank_of[stage.stage_index + 1] == self._rank:
            return self._backward.pop((stage.stage_index + 1, number))
        return self._received(Action(stage.stage_index, Kind.RECV_B, number))

    def _compute_backward(self, stage: PipelineStage, number: int, full: bool) -> None:
        grads = self._gradients_of_outputs(stage, number)
        loss = self._batch.losses.get(number) if stage.is_last else None
        found = stage.backward_one_chunk(number, loss, grads, self._batch.scale, full)
        if loss is not None:
            self._batch.losses[number] = loss.detach()
        if not stage.is_first:
            self._backward[stage.stage_index, number] = found
