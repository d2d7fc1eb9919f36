"""The plugin of early stopping. Nothing is imported, and nothing done, in runs without its section."""

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from tenon.extend import hookimpl

if TYPE_CHECKING:
    from tenon.extend import Module, Session


@hookimpl
def tenon_sections() -> Mapping[str, str]:
    """Provide ``[plugins.early_stopping]``."""
    return {"early_stopping": "tenon_early_stopping.section:EarlyStopping"}


@hookimpl
def tenon_prepare_model(model: "Module", session: "Session") -> None:
    """Refuse settings that do not fit the run."""
    if session.section("early_stopping") is not None:
        from tenon_early_stopping import progress

        progress.check(session)


@hookimpl
def tenon_epoch_end(session: "Session", epoch: int, metrics: Mapping[str, float]) -> None:
    """Compare the epoch with the best one, keep the weights of a better one, or stop the run."""
    if session.section("early_stopping") is not None:
        from tenon_early_stopping import progress

        progress.of(session).update(session, epoch, metrics)


@hookimpl
def tenon_checkpoint_save(section: MutableMapping[str, object], session: "Session") -> None:
    """Save what the best epoch was."""
    if session.section("early_stopping") is not None:
        from tenon_early_stopping import progress

        section.update(progress.of(session).state())


@hookimpl
def tenon_checkpoint_load(section: Mapping[str, Any], session: "Session") -> None:  # as it was saved
    """Restore it."""
    if section and session.section("early_stopping") is not None:
        from tenon_early_stopping import progress

        progress.of(session).restore(section)
