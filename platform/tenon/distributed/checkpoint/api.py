"""``CheckpointException``: which ranks failed in saving or loading, and how."""

from __future__ import annotations

import traceback
from typing import TypeAlias

from tenon.errors import CheckpointError

__all__ = ["CheckpointException"]

#: An exception, and the lines of code it passed through.
WRAPPED_EXCEPTION: TypeAlias = tuple[BaseException, traceback.StackSummary]


class CheckpointException(CheckpointError):
    """Raised on all ranks if ``save`` or ``load`` failed on some; ``failures`` has their exceptions.

    In PyTorch it is no ``Exception``, but a ``BaseException``.
    """

    def __init__(self, msg: str, failures: dict[int, WRAPPED_EXCEPTION]) -> None:
        super().__init__(msg, failures)
        self.step = msg
        self._failures = failures

    @property
    def failures(self) -> dict[int, WRAPPED_EXCEPTION]:
        """Rank -> its exception and its traceback."""
        return self._failures

    def __str__(self) -> str:
        """What failed on which ranks; ranks that failed alike are reported once."""
        alike: dict[str, list[int]] = {}
        for rank, (error, _) in self._failures.items():
            alike.setdefault(f"{type(error).__name__}: {error}", []).append(rank)
        lines = [f"the step {self.step!r} of a checkpoint failed on {_ranks([*self._failures])}."]
        for text, ranks in alike.items():
            trace = self._failures[ranks[0]][1]
            place = f" ({trace[-1].filename}:{trace[-1].lineno})" if trace else ""
            lines.append(f"{_ranks(ranks)}: {text}{place}")
        return "\n".join(lines)


def _ranks(ranks: list[int]) -> str:
    names = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {names}"


def wrap_exception(error: BaseException) -> WRAPPED_EXCEPTION:
    """``error`` with its traceback as text."""
    return error, traceback.extract_tb(error.__traceback__)
