"""The section ``[prune]`` of a run's configuration: masks before the optimizer is created and after steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from tenon.extend import hookimpl

if TYPE_CHECKING:
    from tenon.extend import Module, Session
    from tenon_compress.prune.schedules import Schedule

_PRUNER = "_tenon_prune"


@hookimpl
def tenon_prepare_model(model: Module, session: Session) -> None:
    """Register masks of ones wherever elements may be masked later."""
    config = session.config.prune
    if config is None:
        return
    import tenon
    from tenon.extend import errors, resolve

    criterion = resolve("pruners", config.criterion)
    if getattr(criterion, "needs_inputs", False):
        raise errors.ConfigError(
            f"prune.criterion = {config.criterion!r} needs the norms of inputs, which runs do not record."
            " Take another criterion, or use `tenon.prune.mask_weights` after the run."
        )
    example = None
    if config.what == "channels":
        example = tenon.as_tensor(session.data.train[0][0]).unsqueeze(0).to(session.device)
    pruner = tenon.prune.Pruner(
        model,
        config.amount,
        _schedule(config, session),
        example=example,
        criterion=config.criterion,
        scope=config.scope,
        keep=config.keep,
    )
    setattr(session, _PRUNER, pruner)


def _schedule(config: Any, session: Session) -> Schedule:  # Any: its section ``[prune]``
    import tenon

    if config.schedule == "one-shot":
        return tenon.prune.OneShot(config.begin)
    if config.schedule == "lottery":
        return tenon.prune.Lottery(config.every, config.rounds, config.rewind)
    steps = math.ceil(len(session.data.train) / session.config.batch_size) * session.config.epochs
    return tenon.prune.Gradual(config.end or max(steps // 2, config.begin + 1), config.begin, config.every)


@hookimpl
def tenon_session_start(session: Session) -> None:
    """Register the optimizer and its scheduler with the pruner, as a lottery rewinds them too."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is not None:
        pruner.rewinds(*(part for part in (session.optimizer, session.scheduler) if part is not None))


@hookimpl
def tenon_step_end(session: Session, step: int, metrics: Mapping[str, object]) -> None:
    """Mask if the schedule requires it: the same on all ranks, as their weights and gradients are equal."""
    pruner, config = getattr(session, _PRUNER, None), session.config.prune
    if pruner is None or config is None:
        return
    if config.criterion != "Random":
        pruner.step()
        return
    import tenon

    with tenon.random.fork_rng():
        tenon.manual_seed(session.config.seed + step)
        pruner.step()


@hookimpl
def tenon_checkpoint_save(section: MutableMapping[str, object], session: Session) -> None:
    """Save the pruner's step count and the state that it rewinds to."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is not None:
        section.update(pruner.state_dict())


@hookimpl
def tenon_checkpoint_load(
    section: Mapping[str, Any],  # what the hook above saved
    session: Session,
) -> None:
    """Restore the pruner's state."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is not None and section:
        pruner.load_state_dict(section)
