"""``verifying``: mark code that reads tensors only to raise errors for invalid arguments."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from tenon.engine.watchers import WATCHERS

_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


def verifying() -> AbstractContextManager[None]:
    """Inside, Python reads values only to raise an error for invalid ones, as ``torch.distributions`` does.

    A capture or trace permits these reads: its examples are checked, and its graph repeats no check.
    """
    recorder = WATCHERS.recorder
    return _NOTHING if recorder is None else recorder.verifying()
