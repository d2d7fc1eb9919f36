"""``torch.distributed.pipelining``: models split into stages, one or several on each rank.

Start reading at ``schedule.py`` (what a step does) and ``actions.py`` (what a schedule is); ``pipe.py``
splits models. The guide is docs/guide/pipeline-parallel.md.
"""

from tenon.distributed.pipelining.pipe import Pipe, build_stage, pipeline
from tenon.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from tenon.distributed.pipelining.split_points import SplitPoint, pipe_split
from tenon.distributed.pipelining.stage import PipelineStage

__all__ = [
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "SplitPoint",
    "build_stage",
    "pipe_split",
    "pipeline",
]
