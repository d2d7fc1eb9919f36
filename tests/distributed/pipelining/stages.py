"""Models, and steps of training in a pipeline of threads, that the tests of pipelining share."""

import copy

import tenon as torch
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from tenon.distributed.pipelining.schedules import PipelineScheduleSingle

SINGLE = [ScheduleGPipe, Schedule1F1B]
MULTI = [ScheduleLoopedBFS, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble]
mse = nn.functional.mse_loss


def layers(count=4, width=5, seed=0):
    """A list of ``count`` stages."""
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(count)]


def batch(rows=8, width=5, seed=1):
    """Inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator), torch.randn(rows, width, generator=generator)


def plain(stages, args, target, loss=mse):
    """Output, loss and gradients by name of stage and parameter of one step of the stages in turn."""
    stages = copy.deepcopy(stages)
    output = args
    for stage in stages:
        output = stage(*output) if isinstance(output, tuple) else stage(output)
    value = loss(output, target)
    value.backward()
    return output, value.detach(), gradients(stages)


def gradients(stages):
    return {
        f"{number}.{name}": p.grad
        for number, stage in enumerate(stages)
        for name, p in (stage.named_parameters() if stage is not None else ())
    }


class Result:
    """What the ranks of a pipeline have: output and losses of the last, gradients and stages of all."""

    def __init__(self, ranks):
        self.stages = dict(sorted((s.stage_index, s) for rank in ranks for s in rank[2]))
        last = next(i for i, rank in enumerate(ranks) if any(stage.is_last for stage in rank[2]))
        self.output, self.losses = ranks[last][:2]
        self.others = [rank[0] for i, rank in enumerate(ranks) if i != last]
        self.gradients = gradients([s.submod for s in self.stages.values()])
        self.peaks = [stage.peak for stage in self.stages.values()]


def indices(cls, rank, stages, ranks):
    """The stages of a rank."""
    if cls is not None and issubclass(cls, ScheduleZBVZeroBubble):
        return [rank, stages - 1 - rank]
    return range(rank, stages, ranks)


def local_stages(communicator, modules, size, group=None, cls=None):
    return [
        PipelineStage(copy.deepcopy(modules[i]), i, len(modules), "cpu", group=group)
        for i in indices(cls, communicator.rank, len(modules), size)
    ]


def run(cls, modules, ranks, microbatches, args, target, loss=mse, evaluate=False, kwargs=None, **options):
    """One step on ``ranks`` threads."""

    def work(communicator):
        stages = local_stages(communicator, modules, ranks, cls=cls)
        single = issubclass(cls, PipelineScheduleSingle)
        schedule = cls(stages[0] if single else stages, microbatches, loss_fn=loss, **options)
        losses = []
        step = schedule.eval if evaluate else schedule.step
        last = any(stage.is_last for stage in stages)
        output = step(
            *(args if communicator.rank == 0 else ()),
            target=target if last else None,
            losses=losses,
            **(kwargs or {}),
        )
        return output, losses, stages

    return Result(run_ranks(ranks, work))


def assert_equal(found, wanted):
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        if value is None:
            assert found[name] is None, name
        else:
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-7, msg=name)
