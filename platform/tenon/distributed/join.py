"""``Join``: train on ranks that run out of data at different times.

A rank that reaches the end of the block takes part in the collectives of the others until all ranks have
reached it, by the hooks of its joinables (``DistributedDataParallel``, ``ZeroRedundancyOptimizer``, or a
class of the user's). torch's names and semantics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import NamedTuple

import numpy as np

from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator
from tenon.errors import CommunicatorError

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """The functions that a rank without data runs in place of an iteration, and at the end."""

    def main_hook(self) -> None:
        """Take part in the collectives of one iteration of the ranks that still have data."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called on every rank at the end; ``is_last_joiner`` is true on those that had data longest."""


class _JoinConfig(NamedTuple):
    enable: bool = False
    throw_on_early_termination: bool = False
    is_first_joinable: bool = False


class Joinable(ABC):
    """An object whose iterations communicate; it calls ``Join.notify_join_context(self)`` before they do."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig()

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


class Join:
    """A block of iterations over uneven inputs::

        with Join([model, optimizer]):
            for batch in batches:  # more on some ranks than on others
                ...

    ``throw_on_early_termination`` raises on all ranks as soon as one is out of data. Further keyword
    arguments are passed to the ``join_hook`` of every joinable.
    """

    def __init__(
        self,
        joinables: list[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: object,
    ) -> None:
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._enable = enable
        self._throws = throw_on_early_termination
        for joinable in joinables:
            if not hasattr(joinable, "_join_config"):
                raise CommunicatorError(
                    f"{type(joinable).__name__} cannot be joined before its constructor called that of"
                    " Joinable."
                )
        groups = {id(joinable.join_process_group) for joinable in joinables}
        if len(groups) > 1:
            raise ValueError("Using join context manager with multiple process groups")
        self._communicator = joinables[0].join_process_group
        self._hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        for number, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, number == 0)

    def __enter__(self) -> Join:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._enable and kind is None:
                self._run_hooks()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig()

    def _run_hooks(self) -> None:
        """Run the main hooks while any rank has data, then the post hooks."""
        last = True
        while _count(self._communicator, 0) > 0:
            if self._throws:
                _count(self._communicator, 1, "early end")
                raise RuntimeError(f"Rank {self._communicator.rank} exhausted all inputs.")
            for hook in self._hooks:
                hook.main_hook()
            last = False
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> None:
        """Announce to the ranks without data that this one has some; must be called once per iteration.

        Only the first joinable of a block communicates here. Raises ``RuntimeError`` if a rank is out of data
        and the block has ``throw_on_early_termination``.
        """
        config = joinable._join_config
        if not (config.enable and config.is_first_joinable):
            return
        communicator = joinable.join_process_group
        _count(communicator, 1)
        if config.throw_on_early_termination and _count(communicator, 0, "early end"):
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")


def _count(communicator: Communicator, own: int, name: str = "ranks with data") -> int:
    """The sum of ``own`` over the ranks."""
    return int(communicator.all_reduce(np.array([own], np.int32), name=name).wait()[0])
