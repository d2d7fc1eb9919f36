"""Pipeline schedules: in what order the ranks compute stages and microbatches.

A class differs from the others only by the generator of its order (``orders.py``, ``zero_bubble.py``), and
where stages are placed; ``schedule.py`` has the step.
"""

from __future__ import annotations

from tenon.distributed.pipelining import dual_pipe, orders, zero_bubble
from tenon.distributed.pipelining.actions import Order
from tenon.distributed.pipelining.schedule import (
    PipelineSchedule,
    PipelineScheduleMulti,
    PipelineScheduleSingle,
)
from tenon.errors import ArgumentError

__all__ = [
    "PipelineSchedule",
    "PipelineScheduleMulti",
    "PipelineScheduleSingle",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "get_schedule_class",
]


class ScheduleGPipe(PipelineScheduleSingle):
    """GPipe: all forward passes, then all backward passes.

    A rank holds the activations of all microbatches. Of ``p`` ranks' time, ``(p - 1) / (m + p - 1)`` is idle
    with ``m`` microbatches.

    Source: torch.distributed.pipelining.ScheduleGPipe; Huang et al. 2019.
    """

    def _order(self) -> Order:
        return orders.gpipe(self._count, self.n_microbatches)


class Schedule1F1B(PipelineScheduleSingle):
    """One forward, one backward: a microbatch's backward pass comes as early as possible.

    The rank of stage ``s`` of ``p`` holds the activations of at most ``p - s`` microbatches. The idle time is
    that of GPipe.

    Source: torch.distributed.pipelining.Schedule1F1B; Narayanan et al. 2019.
    """

    def _order(self) -> Order:
        return orders.one_forward_one_backward(self._count, self.n_microbatches)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """Breadth first: a rank runs all microbatches on its first stage, then on its next.

    It holds the activations of all microbatches of all its stages; idle time is smaller than GPipe's by the
    number of its stages.

    Source: torch.distributed.pipelining.ScheduleLoopedBFS; Lamy-Poirier 2022.
    """

    def _order(self) -> Order:
        return orders.looped_bfs(self._ranks, self._local, self.n_microbatches)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B with several stages on each rank, depth first: idle time is divided by their number.

    The microbatches have to be divisible into equal rounds of as many as there are ranks, or more.

    Source: torch.distributed.pipelining.ScheduleInterleaved1F1B; Narayanan et al. 2021.
    """

    def _order(self) -> Order:
        return orders.interleaved_1f1b(self._ranks, self._local, self.n_microbatches)


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """Interleaved 1F1B whose backward passes are split: gradients of weights fill the idle time (ZB1P).

    Gradients of inputs go to the previous stage before those of weights are computed. A rank holds about as
    many activations as with 1F1B. The microbatches have to be divisible into equal rounds, as for
    ``ScheduleInterleaved1F1B``.

    Source: torch.distributed.pipelining.ScheduleInterleavedZeroBubble; Qi et al. 2023.
    """

    def _order(self) -> Order:
        return zero_bubble.interleaved_zero_bubble(self._ranks, self._local, self.n_microbatches)


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages on each rank, placed as a V: of ``p`` ranks, rank r has stages r and 2p - 1 - r (ZB-V).

    The rank of the first stage has the last one too. No rank idles if the passes forward, backward for inputs
    and backward for weights take equal times.

    Source: torch.distributed.pipelining.ScheduleZBVZeroBubble; Qi et al. 2023.
    """

    def _placement(self) -> list[int]:
        if self._count != 2 * self._ranks:
            raise ArgumentError(
                f"ZBV requires exactly 2 stages per rank, but got {self._count} stages on {self._ranks}"
                f" ranks. Split the model into {2 * self._ranks} stages."
            )
        return zero_bubble.placed_as_v(self._ranks)

    def _order(self) -> Order:
        return zero_bubble.zero_bubble_v(self._ranks, self.n_microbatches)


class ScheduleDualPipeV(ScheduleZBVZeroBubble):
    """Two stages on each rank, placed as a V, where forward passes of one alternate with backward passes of
    the other.

    While a rank computes, the messages of its other stage are under way. It takes as many microbatches as
    stages, or more; a rank holds the activations of about as many as there are stages.

    Source: torch.distributed.pipelining.ScheduleDualPipeV; DeepSeek-AI 2024.
    """

    def _order(self) -> Order:
        return dual_pipe.dual_pipe_v(self._ranks, self.n_microbatches)


_CLASSES = (
    ScheduleGPipe,
    Schedule1F1B,
    ScheduleLoopedBFS,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
    ScheduleDualPipeV,
)


def get_schedule_class(schedule_name: str) -> type[PipelineSchedule]:
    """The class of a schedule by its name, ``"1F1B"`` or ``"Schedule1F1B"``, in upper or lower case.

    ``"PipelineScheduleSingle"`` and ``"PipelineScheduleMulti"`` are those for schedules of one's own.
    Raises ``ArgumentError`` for others. Source: torch.distributed.pipelining.schedules.get_schedule_class.
    """
    classes = (*_CLASSES, PipelineScheduleSingle, PipelineScheduleMulti)
    known = {cls.__name__.removeprefix("Schedule").lower(): cls for cls in classes}
    found: type[PipelineSchedule] | None = known.get(schedule_name.lower().removeprefix("schedule"))
    if found is None:
        names = ", ".join(cls.__name__.removeprefix("Schedule") for cls in _CLASSES)
        raise ArgumentError(f"Unknown schedule name {schedule_name!r}: there are {names}.")
    return found
