"""Reopen finished runs, for commands that measure, modify or fine-tune a trained model.

``find`` reads the newest checkpoint of a run folder and ``reopen`` makes a session of it, with the run's own
model, data, loss and settings. ``train``, ``evaluate``, ``batches`` and ``mean_loss`` work on such a session,
and ``refuse`` exits the command with a one-line error.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tenon.data.collate import fetch
from tenon.data.dataset import Source
from tenon.distributed.processes.failure import AgreedExit
from tenon.distributed.processes.launch import launch
from tenon.distributed.processes.launcher import launched
from tenon.distributed.replicas.accumulation import sum_and_count
from tenon.engine.types import Nested
from tenon.nn.module import Module
from tenon.serialize.checkpoint import Sections
from tenon.tensors.tensor import Tensor
from tenon.training import checkpoint, command, loop, step
from tenon.training.command import refuse
from tenon.training.recipe import build_model
from tenon.training.session import Metrics, Session
from tenon.training.trust import Trust

_ORIGINAL, _MASK = "_orig", "_mask"
"""What ``tenon.nn.utils.prune`` appends to the name of a parameter."""

__all__ = [
    "batches",
    "classifies",
    "evaluate",
    "find",
    "is_launched",
    "masks_of",
    "mean_loss",
    "refuse",
    "reopen",
    "train",
]


def is_launched() -> bool:
    """Whether this process is one of several ranks, or was started by a launcher such as ``mpirun``."""
    return launched() is not None


def find(run: Path, *, trust: bool = False, replaced: Collection[str] = ()) -> checkpoint.Resumed:
    """The folder of ``run``, a run folder or a checkpoint file, and its newest checkpoint; CheckpointError if
    it has none.

    ConfigError if its configuration names code to import, and this account has not written it. ``replaced``:
    keys that ``reopen`` replaces. ``trust``: import whatever it names, the option ``--trust`` of commands.
    """
    return checkpoint.fetch(launch(), run, Trust(replaced=replaced, everything=trust), whole=True)


def reopen(
    folder: Path,
    saved: Sections,
    output: Path,
    *,
    settings: Mapping[str, object] | None = None,
    overrides: Sequence[str] = (),
) -> Session:
    """Open a new session that starts from the model of the checkpoint ``saved`` and writes to ``output``.

    Its configuration is that of the run, updated by ``settings``, then by ``overrides`` such as
    ``"epochs=3"``. The section ``[prune]`` has had its effect and does not count: weights that the run has
    masked are zero, and ``masks_of(saved)`` tells which.
    """
    merged = {**json.loads(saved["config"]), "profile": None, "prune": None, "parallel": {}}
    merged.update(settings or {})
    config, recipe = command.resolve(None, tuple(overrides), (folder, {"config": json.dumps(merged)}))
    model = build_model(config, recipe)
    with checkpoint.restoring("model", folder):
        own = model.state_dict().keys()  # which has masks if the model's class makes some
        masks = {name: mask for name, mask in masks_of(saved).items() if name + _ORIGINAL not in own}
        model.load_state_dict(_masked(saved["model"], masks))
    return loop.open_session(config, recipe, None, output, model)


def masks_of(saved: Sections) -> dict[str, Tensor]:
    """The masks in a checkpoint of a run with a section ``[prune]``, by the names of the parameters."""
    if json.loads(saved["config"]).get("prune") is None:
        return {}
    state: Mapping[str, Tensor] = saved["model"]
    names = [key.removesuffix(_MASK) for key in state if key.endswith(_MASK)]
    return {name: state[name + _MASK] for name in names if name + _ORIGINAL in state}


def _masked(state: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``state`` as of a model without ``masks``, whose zeros are in its weights."""
    found = {}
    for key, value in state.items():
        name = key.removesuffix(_MASK)
        if key.endswith(_MASK) and name in masks:
            continue
        name = key.removesuffix(_ORIGINAL)
        masked = key.endswith(_ORIGINAL) and name in masks
        found[name if masked else key] = value * masks[name] if masked else value
    return found


def train(session: Session) -> Metrics:
    """Train to the end and return the last metrics; AgreedExit if a signal interrupts it."""
    result = loop.run(session)
    if result.get("interrupted"):
        raise AgreedExit(result["status"])
    return result


def evaluate(session: Session, dataset: Source[object], model: Module | None = None) -> dict[str, float]:
    """The mean loss, and the accuracy of a classifier, of the session's model or another on ``dataset``."""
    return step.evaluate(session if model is None else dataclasses.replace(session, model=model), dataset)


def classifies(session: Session) -> bool:
    """Whether the session's loss is a classifier's, by the targets of its test data."""
    _, targets = next(batches(session, session.data.test, 32, 1))
    return step.classifies(session, targets)


def batches(
    session: Session, dataset: Source[object], size: int, count: int
) -> Iterator[tuple[Nested, Nested]]:
    """Inputs and targets of the first ``count`` batches of ``size`` samples, on the session's device."""
    for start in range(0, min(len(dataset), size * count), size):
        samples = range(start, min(start + size, len(dataset)))
        yield step.unpack(step.to_device(fetch(dataset, samples), session))


def mean_loss(session: Session, inputs: Nested, targets: Tensor) -> Tensor:
    """The session's loss of its model, a mean over the samples or unmasked targets of the batch."""
    total, count = sum_and_count(session.loss, session.model(inputs), targets)
    return total / count
