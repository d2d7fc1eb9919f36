"""``Join``: train on ranks that run out of data at different times.

A rank that reaches the end of the block takes part in the collectives of the others until all ranks have
reached it, by the hooks of its joinables (``DistributedDataParallel``, ``ZeroRedundancyOptimizer``, or a
class of the user's). torch's names and semantics.
"""

from __future__ import annotations

from types import TracebackType

from tenon.errors import CommunicatorError
from tenon.extend import distributed_parts as parts

Joinable = parts.Joinable
JoinHook = parts.JoinHook
#: The class of the attribute ``_join_config`` of joinables, under torch's name, which pickles of models have.
_JoinConfig = parts.JoinConfig


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
        while parts.count_ranks(self._communicator, False) > 0:
            if self._throws:
                parts.count_ranks(self._communicator, True, "early end")
                raise RuntimeError(f"Rank {self._communicator.rank} exhausted all inputs.")
            for hook in self._hooks:
                hook.main_hook()
            last = False
        for hook in self._hooks:
            hook.post_hook(last)

    notify_join_context = staticmethod(parts.notify_join_context)
