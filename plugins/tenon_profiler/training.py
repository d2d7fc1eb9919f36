"""The profile of a training run: every rank, one clock, files in the run's folder."""

from __future__ import annotations

from typing import Any

import click

from tenon.extend import observe
from tenon_profiler.handler import tensorboard_trace_handler
from tenon_profiler.merge import NAME, merge
from tenon_profiler.profile import profile
from tenon_profiler.recording import warn_of_disk
from tenon_profiler.schedule import schedule


def open_profile(session: Any, asked: Any) -> profile:
    """As the section ``[profile]`` says; all ranks call it together."""
    clock = observe.align(session.communicator) if session.size > 1 else observe.own_clock()
    return profile(
        schedule=schedule(
            wait=asked.wait,
            warmup=asked.warmup,
            active=asked.active,
            repeat=asked.repeat,
            skip_first=asked.skip_first,
        ),
        on_trace_ready=tensorboard_trace_handler(session.folder, use_gzip=True),
        record_shapes=asked.record_shapes,
        profile_memory=asked.memory,
        with_stack=asked.stack,
        with_flops=asked.record_shapes,
        with_modules=True,
        clock=clock,
        session=session,
    )


def close_profile(session: Any, found: profile, error: BaseException | None) -> None:
    """End it; rank 0 merges the ranks' files, if all came to the end and to a step that was recorded."""
    found.stop()
    if error is not None:
        return
    if session.size > 1:
        session.communicator.barrier()
        if session.is_main and found.recorded:
            try:
                merge(session.folder, session.folder / NAME)
            except OSError as failed:
                warn_of_disk(str(session.folder / NAME), failed)
    if session.is_main:
        click.echo(f"profile: {_where(session, found)}")


def _where(session: Any, found: profile) -> str:
    """How to look at it, or why there is nothing to see."""
    if found.recorded:
        return f"tensorboard --logdir {session.folder.parent}, tab tenon"
    asked = session.config.profile
    first = asked.skip_first + asked.wait + asked.warmup + 1
    return f"no step was recorded, because the run ended before its step {first}; lower profile.skip_first."
