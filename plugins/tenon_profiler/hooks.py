"""``tenon train --profile``: profile a run into its folder. The profiler is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.extend import hookimpl

if TYPE_CHECKING:
    from tenon.extend import Session
    from tenon_profiler.profile import profile


class _State:
    """The profile of the run in progress."""

    profile: profile | None = None
    begun = False


@hookimpl
def tenon_session_start(session: Session) -> None:
    """Open a profile, on a common clock, if the configuration has one."""
    config = session.config.profile
    if config is None:
        return
    from tenon_profiler.training import open_profile

    _State.profile, _State.begun = open_profile(session, config), False


@hookimpl
def tenon_step_begin(session: Session, step: int) -> None:
    """Start the profile at the first step of this process."""
    if _State.profile is not None and not _State.begun:
        _State.begun = True
        _State.profile.start()


@hookimpl
def tenon_step_end(session: Session, step: int, metrics: object) -> None:
    """Count a step of the profile."""
    if _State.profile is not None:
        _State.profile.step()


@hookimpl
def tenon_session_finish(session: Session, error: BaseException | None) -> None:
    """Complete the files; if no rank failed, rank 0 merges them."""
    profile, _State.profile = _State.profile, None
    if profile is not None and _State.begun:
        from tenon_profiler.training import close_profile

        close_profile(session, profile, error)
