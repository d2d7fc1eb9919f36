"""``tenon train --profile``: a profile of a run, written to its folder. Nothing heavy is imported before."""

from __future__ import annotations

from typing import Any

from tenon.extend import hookimpl


class _State:
    """The profile of the run in progress."""

    profile: Any = None
    begun = False


@hookimpl
def tenon_session_start(session: Any) -> None:
    """Agree on a clock, where the configuration asks for a profile."""
    asked = session.config.profile
    if asked is None:
        return
    from tenon_profiler.training import open_profile

    _State.profile, _State.begun = open_profile(session, asked), False


@hookimpl
def tenon_step_begin(session: Any, step: int) -> None:
    """The first step of this process starts the profile."""
    if _State.profile is not None and not _State.begun:
        _State.begun = True
        _State.profile.start()


@hookimpl
def tenon_step_end(session: Any, step: int, metrics: Any) -> None:
    """A step of the run is a step of the profile."""
    if _State.profile is not None:
        _State.profile.step()


@hookimpl
def tenon_session_finish(session: Any, error: BaseException | None) -> None:
    """Complete the files; where all ranks are well, rank 0 merges them."""
    found, _State.profile = _State.profile, None
    if found is not None and _State.begun:
        from tenon_profiler.training import close_profile

        close_profile(session, found, error)
