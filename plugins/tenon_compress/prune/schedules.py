"""``Pruner``: masks that grow while a model trains, by a schedule that says when and how much.

``OneShot`` masks everything at one step. ``Gradual`` masks more and more, fast at first (Zhu and Gupta,
2017). ``Lottery`` masks in rounds, and goes back to an early step with the weights that are left (Frankle and
Carbin, 2019): what is found is a smaller network that trains from there, so its optimizer and the schedule of
its learning rate are those of that step too (Renda et al., 2020).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tenon import no_grad
from tenon.errors import PruningError
from tenon.nn.masks import Criterion
from tenon.nn.module import Module
from tenon_compress.prune.masking import Scope, check_share, mask_channels, mask_weights

if TYPE_CHECKING:
    from tenon import Tensor


class Stateful(Protocol):
    """An optimizer or a scheduler of its learning rate."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Restore a state."""


class Schedule(Protocol):
    """When to mask how much."""

    @property
    def rewind(self) -> int | None:
        """The step whose weights come back after each masking; None for never."""

    def amount(self, step: int, final: float) -> float | None:
        """The share to have masked after ``step`` steps, of ``final`` at the end; None to leave it."""


@dataclass(frozen=True)
class OneShot:
    """All at once, after ``begin`` steps."""

    begin: int = 0
    rewind: int | None = None

    def __post_init__(self) -> None:
        if self.begin < 0:
            raise PruningError(f"a schedule begins at step 0 or later, got begin={self.begin}.")

    def amount(self, step: int, final: float) -> float | None:
        """``final``, once."""
        return final if step == self.begin else None


@dataclass(frozen=True)
class Gradual:
    """``final * (1 - (1 - t) ** 3)`` every ``every`` steps; ``t`` goes from 0 at ``begin`` to 1."""

    end: int
    begin: int = 0
    every: int = 1
    rewind: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.begin < self.end or self.every < 1:
            raise PruningError(
                "a gradual schedule goes from begin to a later end, every 1 or more steps; got"
                f" begin={self.begin}, end={self.end}, every={self.every}."
            )

    def amount(self, step: int, final: float) -> float | None:
        """The cubic share; ``final`` at the end."""
        if not self.begin <= step <= self.end or ((step - self.begin) % self.every and step != self.end):
            return None
        left = 1 - (step - self.begin) / (self.end - self.begin)
        return final * (1 - left**3)


@dataclass(frozen=True)
class Lottery:
    """The same share of what is left, in each of ``rounds`` of ``every`` steps; then back to ``rewind``."""

    every: int
    rounds: int = 1
    rewind: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or not 0 <= self.rewind < self.every:
            raise PruningError(
                "a lottery has 1 or more rounds, and goes back to a step before the end of the first; got"
                f" rounds={self.rounds}, every={self.every}, rewind={self.rewind}."
            )

    def amount(self, step: int, final: float) -> float | None:
        """``1 - (1 - final) ** (round / rounds)`` at the end of each round."""
        done, over = divmod(step, self.every)
        if over or not 1 <= done <= self.rounds:
            return None
        return 1.0 - float((1 - final) ** (done / self.rounds))


class Pruner:
    """Masks ``model`` as it trains: call ``step()`` after every step of the optimizer.

    Without ``example`` single weights are masked, with it channels, as by ``mask_weights`` and
    ``mask_channels``, whose arguments these are. Masks of ones are there from the beginning, so that the
    names of parameters, and what an optimizer holds, never change. Make it before the optimizer, and tell a
    ``Lottery`` of that by ``rewinds``.
    """

    def __init__(
        self,
        model: Module,
        amount: float,
        schedule: Schedule,
        *,
        example: Tensor | None = None,
        criterion: str | type[Criterion] = "Magnitude",
        scope: Scope = "global",
        keep: Sequence[str] = (),
    ) -> None:
        check_share(amount, scope)
        self.model, self.final, self.schedule = model, amount, schedule
        self.example, self.criterion, self.scope, self.keep = example, criterion, scope, keep
        self.steps = 0
        #: The weights of step ``schedule.rewind``, by name.
        self.early: dict[str, Tensor] = {}
        #: What goes back with them, and the states of that step.
        self._others: tuple[Stateful, ...] = ()
        self._states: list[dict[str, Any]] = []
        self._mask(0.0, "Magnitude")
        self._look()

    def rewinds(self, *others: Stateful) -> None:
        """Let ``others``, the optimizer and then the schedulers of its learning rate, go back to the early
        step with the weights. Call ``step()`` after theirs then; PruningError once that step is over."""
        late = self.schedule.rewind is not None and self.steps > self.schedule.rewind
        if late and len(self._states) != len(others):
            raise PruningError(
                f"step {self.schedule.rewind}, to which this schedule goes back, is over: {self.steps} steps"
                " are done. Call rewinds before training begins."
            )
        self._others = others
        if self.steps == self.schedule.rewind:
            self._states = [_state_of(other) for other in others]

    def step(self) -> float | None:
        """A step of training is done: mask if it is time; the share that is masked now, or None."""
        self.steps += 1
        return self._look()

    def _look(self) -> float | None:
        if self.steps == self.schedule.rewind:
            self.early = {name: p.detach().clone() for name, p in self.model.named_parameters()}
            self._states = [_state_of(other) for other in self._others]
        amount = self.schedule.amount(self.steps, self.final)
        if amount:
            self._mask(amount, self.criterion)
            with no_grad():
                for name, p in self.model.named_parameters() if self.early else ():
                    p.copy_(self.early[name])
            for other, state in zip(self._others, self._states, strict=False):
                other.load_state_dict(copy.deepcopy(state))
        return amount

    def _mask(self, amount: float, criterion: str | type[Criterion]) -> None:
        if self.example is None:
            mask_weights(self.model, amount, criterion, scope=self.scope, keep=self.keep)
        else:
            mask_channels(self.model, self.example, amount, criterion, scope=self.scope, keep=self.keep)

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, and what to go back to; masks are in the model's own."""
        return {"steps": self.steps, "early": self.early, "states": self._states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``; load the model's too, and what ``rewinds`` is told of."""
        missing = sorted({"steps", "early", "states"} - state.keys())
        if missing:
            raise PruningError(
                f"this state of a Pruner lacks {missing}; it has {sorted(state)}. Give what state_dict() of a"
                " Pruner returned; the model's own state is loaded by the model."
            )
        self.steps, self.early = int(state["steps"]), dict(state["early"])
        self._states = list(state["states"])


def _state_of(other: Any) -> Any:
    """A copy of its state dict, on all ranks where each has a part of it."""
    if not hasattr(other, "consolidate_state_dict"):
        return copy.deepcopy(other.state_dict())
    whole: Any = None
    for rank in range(other.world_size):
        other.consolidate_state_dict(to=rank)
        if rank == other.rank:
            whole = copy.deepcopy(other.state_dict())
    return whole
