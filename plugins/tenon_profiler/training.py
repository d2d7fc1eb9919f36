"""The profile of a training run: all ranks on one clock, files in the run's folder."""

from __future__ import annotations

from typing import Any

import click

from tenon.extend import Session, observe
from tenon_profiler.handler import tensorboard_trace_handler
from tenon_profiler.merge import NAME, merge
from tenon_profiler.profile import profile
from tenon_profiler.recording import warn_of_disk
from tenon_profiler.schedule import schedule


def open_profile(session: Session, config: Any) -> profile:  # Any: the section ``[profile]``
    """Return a profile as configured in the section ``[profile]``; all ranks have to call it together."""
    clock = observe.align(session.communicator) if session.size > 1 else observe.own_clock()
    return profile(
        schedule=schedule(
            wait=config.wait,
            warmup=config.warmup,
            active=config.active,
            repeat=config.repeat,
            skip_first=config.skip_first,
        ),
        on_trace_ready=tensorboard_trace_handler(session.folder, use_gzip=True),
        record_shapes=config.record_shapes,
        profile_memory=config.memory,
        with_stack=config.stack,
        with_flops=config.record_shapes,
        with_modules=True,
        clock=clock,
        session=session,
    )


def close_profile(session: Session, prof: profile, error: BaseException | None) -> None:
    """Stop the profile; if no rank failed and a step was recorded, rank 0 merges the ranks' files."""
    prof.stop()
    if error is not None:
        return
    if session.size > 1:
        session.communicator.barrier()
        if session.is_main and prof.recorded:
            try:
                merge(session.folder, session.folder / NAME)
            except OSError as failed:
                warn_of_disk(str(session.folder / NAME), failed)
    if session.is_main:
        click.echo(f"profile: {_where(session, prof)}")


def _where(session: Session, prof: profile) -> str:
    """Return how to view the profile, or why there is none."""
    if prof.recorded:
        return f"tensorboard --logdir {session.folder.parent}, tab tenon"
    config: Any = session.config.profile  # the section ``[profile]``
    first = config.skip_first + config.wait + config.warmup + 1
    return f"no step was recorded, because the run ended before its step {first}; lower profile.skip_first."
