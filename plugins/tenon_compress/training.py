"""``[prune]`` of a run's configuration: masks before the optimizer is made, and after steps of training."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping
from typing import Any

from tenon.extend import hookimpl

_PRUNER = "_tenon_prune"


@hookimpl
def tenon_prepare_model(model: Any, session: Any) -> None:
    """Masks of ones wherever something may be masked later."""
    found = session.config.prune
    if found is None:
        return
    import tenon

    example = None
    if found.what == "channels":
        example = tenon.as_tensor(session.data.train[0][0]).unsqueeze(0).to(session.device)
    pruner = tenon.prune.Pruner(
        model,
        found.amount,
        _schedule(found, session),
        example=example,
        criterion=found.criterion,
        scope=found.scope,
        keep=found.keep,
    )
    setattr(session, _PRUNER, pruner)


def _schedule(found: Any, session: Any) -> Any:
    import tenon

    if found.schedule == "one-shot":
        return tenon.prune.OneShot(found.begin)
    if found.schedule == "lottery":
        return tenon.prune.Lottery(found.every, found.rounds, found.rewind)
    steps = math.ceil(len(session.data.train) / session.config.batch_size) * session.config.epochs
    return tenon.prune.Gradual(found.end or max(steps // 2, found.begin + 1), found.begin, found.every)


@hookimpl
def tenon_session_start(session: Any) -> None:
    """A lottery goes back with the optimizer and its schedule."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is not None:
        pruner.rewinds(*(each for each in (session.optimizer, session.scheduler) if each is not None))


@hookimpl
def tenon_step_end(session: Any, step: int, metrics: Mapping[str, Any]) -> None:
    """Mask if it is time; the same on all ranks, as their weights and gradients are."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is None:
        return
    if session.config.prune.criterion != "Random":
        pruner.step()
        return
    import tenon

    with tenon.random.fork_rng():
        tenon.manual_seed(session.config.seed + step)
        pruner.step()


@hookimpl
def tenon_checkpoint_save(section: MutableMapping[str, Any], session: Any) -> None:
    """Steps, and what to go back to."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is not None:
        section.update(pruner.state_dict())


@hookimpl
def tenon_checkpoint_load(section: Mapping[str, Any], session: Any) -> None:
    """Go on where the run was."""
    pruner = getattr(session, _PRUNER, None)
    if pruner is not None and section:
        pruner.load_state_dict(section)
