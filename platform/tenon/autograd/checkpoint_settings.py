"""Settings of checkpoints for all calls in a block, and the state that a recomputation restores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tenon.amp.autocast_mode import autocast
from tenon.amp.state import STATE
from tenon.random import default_generator, fork_rng


class EarlyStop:
    """Whether recomputation stops once all holders are filled; None: each call's ``early_stop`` decides."""

    forced: bool | None = None


class Debug:
    """Whether errors list where tensors were saved; None: each call's ``debug`` decides."""

    forced: bool | None = None


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Override the ``debug`` argument of checkpoints called in the block; None restores the argument."""
    before, Debug.forced = Debug.forced, enabled
    try:
        yield
    finally:
        Debug.forced = before


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Override the ``early_stop`` argument of checkpoints called in the block: whether recomputation stops as
    soon as the last needed tensor has been saved."""
    before, EarlyStop.forced = EarlyStop.forced, enable
    try:
        yield
    finally:
        EarlyStop.forced = before


class RunState:
    """The random generator's state and the autocast regions at the time of the forward run."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self._random = default_generator.get_state() if preserve_rng_state else None
        self._regions = [(d, STATE.dtypes[d], on) for d, on in STATE.enabled.items()]
        self._cache = STATE.cache_enabled

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Restore that state for the recomputation; on exit, restore the caller's."""
        with contextlib.ExitStack() as stack:
            if self._random is not None:
                stack.enter_context(fork_rng())
                default_generator.set_state(self._random)
            for device, dtype, enabled in self._regions:
                stack.enter_context(autocast(device, dtype, enabled, self._cache))
            yield
