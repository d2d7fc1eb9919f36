"""``Joinable``: what may take part in a ``Join`` block, in which ranks run out of data at different times.

``DistributedDataParallel`` and ``ZeroRedundancyOptimizer`` are joinables, and so is a class of the user's
that derives from ``Joinable``. Each calls ``notify_join_context`` before an iteration communicates. The block
itself, ``tenon.distributed.algorithms.Join``, comes from the plugin ``tenon_distributed_extras``. torch's
names and semantics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator

__all__ = ["JoinConfig", "JoinHook", "Joinable", "count_ranks", "notify_join_context"]


class JoinHook:
    """The functions that a rank without data runs in place of an iteration, and at the end."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the ranks that still have data."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called on every rank at the end; ``is_last_joiner`` is true on those that had data longest."""


class JoinConfig(NamedTuple):
    """The ``Join`` block that a joinable is in, as it sees it; outside of blocks, the defaults."""

    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class Joinable(ABC):
    """An object whose iterations communicate; it calls ``Join.notify_join_context(self)`` before they do."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = JoinConfig()

    @abstractmethod
    def join_hook(self, **kwargs: object) -> JoinHook:
        """The hook for one ``Join`` block, whose keyword arguments all joinables receive."""

    @property
    @abstractmethod
    def join_device(self) -> Device:
        """The device of the joinable's collectives."""

    @property
    @abstractmethod
    def join_process_group(self) -> Communicator:
        """The ranks of the joinable's collectives."""


def notify_join_context(joinable: Joinable) -> None:
    """Announce to the ranks without data that this one has some; must be called once per iteration.

    Only the first joinable of a block communicates here. Raises ``RuntimeError`` if a rank is out of data
    and the block has ``throw_on_early_termination``.
    """
    config = joinable._join_config
    if not (config.enable and config.is_first_joinable):
        return
    communicator = joinable.join_process_group
    count_ranks(communicator, True)
    if config.throw_on_early_termination and count_ranks(communicator, False, "early end"):
        raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")


def count_ranks(communicator: Communicator, own: bool, name: str = "ranks with data") -> int:
    """Return on how many ranks ``own`` is true; collective, ``name`` is that of the message."""
    return int(communicator.all_reduce(np.array([own], np.int32), name=name).wait()[0])
