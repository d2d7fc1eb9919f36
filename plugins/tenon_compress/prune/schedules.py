"""``Pruner``: masks that grow while a model trains, by a schedule of when to mask how much.

``OneShot`` masks everything at one step. ``Gradual`` masks more and more, fast at first (Zhu and Gupta,
2017). ``Lottery`` masks in rounds and rewinds the remaining weights to an early step after each (Frankle and
Carbin, 2019): the result is a smaller network that trains from that step on, so its optimizer and learning
rate schedule are rewound too (Renda et al., 2020).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tenon import no_grad
from tenon.errors import PruningError
from tenon.extend import settings
from tenon.nn.criterion import Criterion
from tenon.nn.module import Module
from tenon_compress.prune.masking import Scope, check_share, mask_channels, mask_weights

if TYPE_CHECKING:
    from tenon import Tensor


#: A state dict, whose entries the class states that returns it.
State: TypeAlias = dict[str, Any]


class Stateful(Protocol):
    """An optimizer or a scheduler of its learning rate."""

    def state_dict(self) -> State:
        """Return its state."""

    def load_state_dict(self, state_dict: State, /) -> object:
        """Restore a state."""


class Schedule(Protocol):
    """A schedule of when to mask how much."""

    @property
    def rewind(self) -> int | None:
        """The step to which weights are rewound after each masking; None for never."""

    def amount(self, step: int, final: float) -> float | None:
        """Return the share to have masked after ``step`` steps, finally ``final``; None to change nothing."""


def _check_steps(schedule: object, **steps: int | None) -> None:
    """Refuse numbers of steps that are no whole numbers; ``rewind`` may be None."""
    for name, value in steps.items():
        if value is not None or name != "rewind":
            least = 0 if name == "rewind" else -settings.LARGEST
            settings.whole(type(schedule).__name__, name, value, least=least)


@dataclass(frozen=True)
class OneShot:
    """Mask all at once, after ``begin`` steps."""

    begin: int = 0
    rewind: int | None = None

    def __post_init__(self) -> None:
        _check_steps(self, begin=self.begin, rewind=self.rewind)
        if self.begin < 0:
            raise PruningError(f"a schedule begins at step 0 or later, got begin={self.begin}.")

    def amount(self, step: int, final: float) -> float | None:
        """Return ``final`` at the step ``begin``."""
        return final if step == self.begin else None


@dataclass(frozen=True)
class Gradual:
    """Mask ``final * (1 - (1 - t) ** 3)`` every ``every`` steps; ``t`` is 0 at ``begin`` and 1 at ``end``."""

    end: int
    begin: int = 0
    every: int = 1
    rewind: int | None = None

    def __post_init__(self) -> None:
        _check_steps(self, end=self.end, begin=self.begin, every=self.every, rewind=self.rewind)
        if not 0 <= self.begin < self.end or self.every < 1:
            raise PruningError(
                "a gradual schedule runs from begin to a later end, every 1 or more steps; got"
                f" begin={self.begin}, end={self.end}, every={self.every}."
            )

    def amount(self, step: int, final: float) -> float | None:
        """Return the cubic share; ``final`` at the end."""
        if not self.begin <= step <= self.end or ((step - self.begin) % self.every and step != self.end):
            return None
        left = 1 - (step - self.begin) / (self.end - self.begin)
        return final * (1 - left**3)


@dataclass(frozen=True)
class Lottery:
    """Mask the same share of what is left in each of ``rounds``, and rewind to step ``rewind`` after it.

    A round has ``every`` steps.
    """

    every: int
    rounds: int = 1
    rewind: int = 0

    def __post_init__(self) -> None:
        _check_steps(self, every=self.every, rounds=self.rounds, rewind=self.rewind)
        if self.rounds < 1 or not 0 <= self.rewind < self.every:
            raise PruningError(
                "a lottery has 1 or more rounds, and rewinds to a step before the end of the first; got"
                f" rounds={self.rounds}, every={self.every}, rewind={self.rewind}."
            )

    def amount(self, step: int, final: float) -> float | None:
        """Return ``1 - (1 - final) ** (round / rounds)`` at the end of each round."""
        done, remainder = divmod(step, self.every)
        if remainder or not 1 <= done <= self.rounds:
            return None
        return 1.0 - float((1 - final) ** (done / self.rounds))


class Pruner:
    """Masks ``model`` as it trains: call ``step()`` after every step of the optimizer.

    Without ``example`` single elements of weights are masked, with it channels, as by ``mask_weights`` and
    ``mask_channels``, whose arguments these are. Masks of ones are registered at the beginning, so that the
    names of parameters, and those that an optimizer holds, never change. Create it before the optimizer, and
    with a ``Lottery`` pass the optimizer to ``rewinds``.
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
        settings.instance("Pruner", "model", model, Module, "a module")
        check_share(amount, scope)
        if not callable(getattr(schedule, "amount", None)):
            settings.instance("Pruner", "schedule", schedule, (), "a schedule, such as OneShot()")
        settings.names("Pruner", "keep", keep)
        self.model, self.final, self.schedule = model, amount, schedule
        self.example, self.criterion, self.scope, self.keep = example, criterion, scope, keep
        self.steps = 0
        #: The weights of step ``schedule.rewind``, by name.
        self.early: dict[str, Tensor] = {}
        #: Optimizer and schedulers that are rewound with them, and their states at that step.
        self._rewound: tuple[Stateful, ...] = ()
        self._rewound_states: list[State] = []
        self._mask(0.0, "Magnitude")
        self._apply_schedule()

    def rewinds(self, *others: Stateful) -> None:
        """Rewind ``others``, the optimizer and then its learning rate schedulers, together with the weights.

        Call ``step()`` after theirs then. PruningError if the step to rewind to is over.
        """
        late = self.schedule.rewind is not None and self.steps > self.schedule.rewind
        if late and len(self._rewound_states) != len(others):
            raise PruningError(
                f"step {self.schedule.rewind}, to which this schedule rewinds, is over: {self.steps} steps"
                " are done. Call rewinds before training begins."
            )
        self._rewound = others
        if self.steps == self.schedule.rewind:
            self._rewound_states = [_state_of(other) for other in others]

    def step(self) -> float | None:
        """Count a training step and mask as the schedule requires; return the share masked now, or None."""
        self.steps += 1
        return self._apply_schedule()

    def _apply_schedule(self) -> float | None:
        if self.steps == self.schedule.rewind:
            self.early = {name: p.detach().clone() for name, p in self.model.named_parameters()}
            self._rewound_states = [_state_of(other) for other in self._rewound]
        amount = self.schedule.amount(self.steps, self.final)
        if amount:
            self._mask(amount, self.criterion)
            with no_grad():
                for name, p in self.model.named_parameters() if self.early else ():
                    p.copy_(self.early[name])
            for other, state in zip(self._rewound, self._rewound_states, strict=False):
                other.load_state_dict(copy.deepcopy(state))
        return amount

    def _mask(self, amount: float, criterion: str | type[Criterion]) -> None:
        if self.example is None:
            mask_weights(self.model, amount, criterion, scope=self.scope, keep=self.keep)
        else:
            mask_channels(self.model, self.example, amount, criterion, scope=self.scope, keep=self.keep)

    def state_dict(self) -> State:
        """Return the number of steps and the states to rewind to; masks are in the model's own state dict."""
        return {"steps": self.steps, "early": self.early, "states": self._rewound_states}

    def load_state_dict(self, state: State) -> None:
        """Restore ``state``; load the states of the model and of what ``rewinds`` was given, too."""
        missing = sorted({"steps", "early", "states"} - state.keys())
        if missing:
            raise PruningError(
                f"this state of a Pruner lacks {missing}; it has {sorted(state)}. Give what state_dict() of a"
                " Pruner returned; the model's own state is loaded by the model."
            )
        self.steps, self.early = int(state["steps"]), dict(state["early"])
        self._rewound_states = list(state["states"])


def _state_of(stateful: Any) -> State:  # Any: Stateful, or sharded with more methods
    """Return a copy of the state dict; if ranks have parts of it, the whole one on all ranks."""
    if not hasattr(stateful, "consolidate_state_dict"):
        return copy.deepcopy(stateful.state_dict())
    state: State = {}
    for rank in range(stateful.world_size):
        stateful.consolidate_state_dict(to=rank)
        if rank == stateful.rank:
            state = copy.deepcopy(stateful.state_dict())
    return state
