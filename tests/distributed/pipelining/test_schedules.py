"""Steps of pipelines of threads: losses, gradients and outputs of the plain model, and what can go wrong."""

import copy
import sys
from pathlib import Path

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from tenon.distributed.pipelining.microbatch import Replicate, TensorChunkSpec
from tenon.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from tenon.errors import (
    ArgumentError,
    ArgumentTypeError,
    CollectiveMismatchError,
    GradError,
    ModuleError,
    ShapeError,
)
from tenon.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))

from stages import MULTI, SINGLE, assert_equal, batch, gradients, layers, local_stages, mse, plain, run

SHAPES = [
    *[(cls, n, n, m) for cls in SINGLE for n, m in ((1, 3), (2, 2), (4, 8), (3, 1))],
    *[(cls, r, n, m) for cls in MULTI[:3] for r, n, m in ((1, 2, 3), (2, 4, 4), (2, 6, 6), (4, 4, 4))],
    *[(ScheduleZBVZeroBubble, r, 2 * r, m) for r, m in ((1, 3), (2, 4), (2, 2), (3, 6))],
    *[(ScheduleDualPipeV, r, 2 * r, m) for r, m in ((1, 3), (2, 6), (3, 6))],
]
QUICK = {
    (Schedule1F1B, 4, 4, 8),
    (ScheduleGPipe, 2, 2, 2),
    (ScheduleDualPipeV, 2, 4, 6),
    *[(cls, 2, 4, 4) for cls in MULTI],
}


@pytest.mark.parametrize(
    ("cls", "ranks", "stages", "microbatches"),
    [pytest.param(*s, marks=[] if s in QUICK else [pytest.mark.slow]) for s in SHAPES],
)
def test_step_is_that_of_the_plain_model(cls, ranks, stages, microbatches):
    modules = layers(stages)
    x, y = batch(24)
    output, loss, wanted = plain(modules, x, y)

    found = run(cls, modules, ranks, microbatches, (x,), y)

    assert_equal(found.gradients, wanted)
    torch.testing.assert_close(found.output, output.detach())
    assert not any(stage.fwd_cache or stage._late for stage in found.stages.values())
    assert len(found.losses) == microbatches and found.others == [None] * (ranks - 1)
    torch.testing.assert_close(torch.stack(found.losses).mean(), loss)
    if cls is ScheduleGPipe:
        assert found.peaks == [microbatches] * stages
    if cls is Schedule1F1B:
        assert found.peaks == [min(microbatches, stages - stage) for stage in range(stages)]


def test_gradients_are_summed_without_scale_grads_and_over_steps():
    modules = layers(2)
    x, y = batch()
    wanted = {name: value * 4 for name, value in plain(modules, x, y)[2].items()}

    assert_equal(run(Schedule1F1B, modules, 2, 4, (x,), y, scale_grads=False).gradients, wanted)

    def work(communicator):
        (stage,) = local_stages(communicator, modules, 2)
        schedule = Schedule1F1B(stage, 2, loss_fn=mse)
        for _ in range(4):
            schedule.step(x, target=y, return_outputs=False)
        return {f"{stage.stage_index}.{name}": p.grad for name, p in stage.submod.named_parameters()}

    found = run_ranks(2, work)
    assert_equal(found[0] | found[1], wanted)


@pytest.mark.parametrize("cls", [ScheduleGPipe, ScheduleInterleaved1F1B])
def test_eval_computes_outputs_and_losses_without_gradients(cls):
    modules = layers(4)
    x, y = batch()
    output, loss, _ = plain(modules, x, y)

    found = run(cls, modules, 4 if cls is ScheduleGPipe else 2, 4, (x,), y, evaluate=True)
    torch.testing.assert_close(found.output, output.detach())
    torch.testing.assert_close(torch.stack(found.losses).mean(), loss)
    assert set(found.gradients.values()) == {None} and not found.output.requires_grad

    unused = run(ScheduleLoopedBFS, modules, 2, 4, (x,), y, loss=None)
    torch.testing.assert_close(unused.output.detach(), output.detach())
    assert unused.losses == []


class Several(nn.Module):
    """Two inputs and two outputs, with a keyword argument and outputs that nobody uses."""

    def __init__(self, unused):
        super().__init__()
        self.a, self.b, self.idle = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.unused = unused

    def forward(self, x, y, *rest, scale=1.0, shift=0.0):
        u, v = self.a(x) * scale + shift, self.b(y)
        return (u, v, self.idle(v)) if self.unused else (u, v)


def test_several_inputs_and_outputs_keyword_arguments_and_unused_outputs():
    torch.manual_seed(0)
    modules = [Several(True), Several(True), Several(False)]
    (x, y), scale = batch(), torch.linspace(0.5, 1, 8).reshape(8, 1)
    expected = copy.deepcopy(modules)
    values = expected[0](x, y, scale=scale, shift=0.5)
    values = expected[1](*values, scale=scale, shift=0.5)
    u, v = expected[2](*values, scale=scale, shift=0.5)
    ((u - y).square().mean() + v.mean()).backward()

    def loss(output, target):
        return (output[0] - target).square().mean() + output[1].mean()

    found = run(ScheduleGPipe, modules, 3, 4, (x, y), y, loss, kwargs={"scale": scale, "shift": 0.5})

    wanted = {f"{i}.{name}": p.grad for i, m in enumerate(expected) for name, p in m.named_parameters()}
    assert wanted["0.idle.weight"] is None and wanted["2.idle.weight"] is None
    assert_equal(found.gradients, wanted)
    torch.testing.assert_close(found.output[1], v.detach())


class Text(nn.Module):
    """Token ids in, activations and the ids out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 5)

    def forward(self, ids):
        return self.embed(ids), ids


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 10)

    def forward(self, hidden, ids):
        return {"logits": self.out(hidden), "ids": ids}


def cross_entropy(output, target):
    return nn.functional.cross_entropy(output["logits"], target)


SPLIT = pytest.param(ScheduleInterleavedZeroBubble, marks=pytest.mark.slow)


@pytest.mark.parametrize("cls", [Schedule1F1B, SPLIT])
@pytest.mark.parametrize("frozen", [None, 0, 1])
def test_token_ids_frozen_stages_and_outputs_of_any_containers(frozen, cls):
    torch.manual_seed(0)
    modules = [Text(), Head()]
    if frozen is not None:
        modules[frozen].requires_grad_(False)
    ids, target = torch.arange(8) % 10, torch.arange(8) % 3
    _output, loss, wanted = plain(modules, ids, target, cross_entropy)

    found = run(cls, modules, 2, 4, (ids,), target, cross_entropy)

    assert_equal(found.gradients, wanted)
    torch.testing.assert_close(torch.stack(found.losses).mean(), loss)
    assert torch.equal(found.output["ids"], ids)


class Tripled(nn.Module):
    """No parameters."""

    def forward(self, x):
        return x * 3


@pytest.mark.parametrize(
    ("kind", "cls"),
    [("float16", Schedule1F1B), ("bfloat16", ScheduleInterleavedZeroBubble), ("float64", Schedule1F1B)],
)
def test_other_dtypes_and_a_stage_without_parameters(kind, cls):
    dtype = getattr(torch, kind)
    one, two = layers(2)
    modules = [one.to(dtype), Tripled(), two.to(dtype)]
    x, y = (t.to(dtype) for t in batch(9))
    _output, _, wanted = plain(modules, x, y)

    found = run(cls, modules, 3, 3, (x,), y)

    assert found.output.dtype is dtype
    for name, value in wanted.items():
        torch.testing.assert_close(found.gradients[name], value, rtol=2e-2, atol=2e-3)


class Checkpointed(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)


@pytest.mark.parametrize("cls", [Schedule1F1B, SPLIT])
def test_autocast_and_checkpointing_inside_of_stages(cls):
    modules = [Checkpointed(layer) for layer in layers(2)]
    x, y = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _, wanted = plain(modules, x, y, lambda o, t: mse(o.float(), t))

    def work(communicator):
        (stage,) = local_stages(communicator, modules, 2)
        schedule = cls(stage if cls is Schedule1F1B else [stage], 2, loss_fn=lambda o, t: mse(o.float(), t))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = schedule.step(x, target=y)
        return found, {f"{stage.stage_index}.{n}": p.grad for n, p in stage.submod.named_parameters()}

    (_, first), (found, second) = run_ranks(2, work)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, output.detach())
    for name, value in wanted.items():
        torch.testing.assert_close((first | second)[name], value, rtol=2e-2, atol=1e-3)


def test_batch_normalization_and_dropout_see_microbatches():
    """As gradient accumulation has it: statistics and masks are each microbatch's own, in order."""
    torch.manual_seed(0)
    modules = [
        nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5)),
        nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 5)),
    ]
    expected = copy.deepcopy(modules)
    x, y = batch()

    torch.manual_seed(3)
    # On one rank the forward passes of both stages alternate, so that one generator gives the same masks.
    for part, target in zip(x.chunk(4), y.chunk(4), strict=True):
        (mse(expected[1](expected[0](part)), target) / 4).backward()
    torch.manual_seed(3)
    found = run(ScheduleLoopedBFS, modules, 1, 4, (x,), y)

    assert_equal(found.gradients, {
        f"{i}.{name}": p.grad for i, m in enumerate(expected) for name, p in m.named_parameters()
    })  # fmt: skip
    normalized = found.stages[0].submod[1]
    torch.testing.assert_close(normalized.running_mean, expected[0][1].running_mean)
    assert normalized.num_batches_tracked.item() == 4
    for stage in found.stages.values():
        stage.submod.eval()


def test_uneven_batches_are_split_as_tensor_split_does():
    modules = layers(2)
    x, y = batch(7)
    expected = copy.deepcopy(modules)
    for part, target in zip(torch.tensor_split(x, 3), torch.tensor_split(y, 3), strict=True):
        (mse(expected[1](expected[0](part)), target) / 3).backward()

    found = run(ScheduleGPipe, modules, 2, 3, (x,), y)

    assert_equal(found.gradients, {
        f"{i}.{name}": p.grad for i, m in enumerate(expected) for name, p in m.named_parameters()
    })  # fmt: skip
    assert tuple(found.output.shape) == (7, 5)


def test_shapes_may_change_from_step_to_step():
    modules = layers(2)

    def work(communicator):
        (stage,) = local_stages(communicator, modules, 2)
        schedule = Schedule1F1B(stage, 2, loss_fn=mse)
        shapes = []
        for rows in (4, 6, 2):
            x, y = batch(rows)
            if communicator.rank:
                shapes.append(tuple(schedule.step(target=y).shape))
                shapes.append(tuple(schedule.eval(target=y).shape))
            else:
                schedule.step(x)
                schedule.eval(x)
        return shapes

    assert run_ranks(2, work)[1] == [(4, 5), (4, 5), (6, 5), (6, 5), (2, 5), (2, 5)]


def test_inputs_that_require_grad_get_the_gradient_of_the_mean():
    modules = layers(2)
    x, y = batch()
    wanted = x.clone().requires_grad_(True)
    plain(modules, wanted, y)
    given = x.clone().requires_grad_(True)

    run(Schedule1F1B, modules, 2, 4, (given,), y)

    torch.testing.assert_close(given.grad, wanted.grad)


def test_specs_of_arguments_and_outputs():
    """The batch is the second axis; a mask is the same for all microbatches."""

    class Columns(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5, 1))

        def forward(self, x, *, mask=1.0):
            return self.weight * x * mask

    modules = [Columns(), Columns()]
    x, _ = batch(5, 6)
    mask = torch.arange(5.0).reshape(5, 1)
    found = run(
        ScheduleGPipe, modules, 2, 3, (x,), None, loss=None, kwargs={"mask": mask},
        args_chunk_spec=(TensorChunkSpec(1),), kwargs_chunk_spec={"mask": Replicate()},
        output_merge_spec=TensorChunkSpec(1),
    )  # fmt: skip

    torch.testing.assert_close(found.output.detach(), x * mask * mask)


def test_a_stage_may_pass_on_what_it_got():
    class Passing(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 5)

        def forward(self, x, skip=None):
            skip = x if skip is None else skip
            return self.body(x), skip

    class Adding(Passing):
        def forward(self, x, skip):
            return self.body(x) + skip

    torch.manual_seed(0)
    modules = [nn.Linear(5, 5), Passing(), Passing(), Adding()]
    x, y = batch()
    _, _, wanted = plain(modules, x, y)

    assert_equal(run(Schedule1F1B, modules, 4, 4, (x,), y).gradients, wanted)


def test_outputs_of_any_layout_and_scalars_cross_stages():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 5)

        def forward(self, x, total=0.0, row=None):
            x = self.body(x)
            return x.t().contiguous().t(), x.square().mean() + total, x[:1].expand(3, 5)

    class End(Odd):
        def forward(self, x, total, row):
            return self.body(x) + total + row.mean()

    torch.manual_seed(0)
    modules = [Odd(), Odd(), End()]
    x, y = batch()
    _, _, wanted = plain(modules, x, y)

    assert_equal(run(Schedule1F1B, modules, 3, 1, (x,), y).gradients, wanted)


def test_loss_arguments_and_targets_in_containers():
    modules = layers(2)
    x, y = batch()

    def loss(output, target, weight):
        return (output - target["y"]).square().mean() * weight

    wanted = {name: value * 3 for name, value in plain(modules, x, y)[2].items()}

    def work(communicator):
        (stage,) = local_stages(communicator, modules, 2)
        Schedule1F1B(stage, 2, loss_fn=loss).step(x, target={"y": y}, loss_kwargs={"weight": 3})
        return {f"{stage.stage_index}.{n}": p.grad for n, p in stage.submod.named_parameters()}

    first, second = run_ranks(2, work)
    assert_equal(first | second, wanted)


def test_gradients_of_weights_that_modules_leave_for_later():
    made, called = [], []

    def builder():
        made.append(number := len(made) + 1)
        return lambda: called.append(number)

    stage = PipelineStage(nn.Linear(5, 5), 0, 1, "cpu", dw_builder=builder)
    schedule = ScheduleGPipe(stage, 4, loss_fn=mse)

    schedule.step(batch()[0], target=batch()[1])
    schedule.eval(batch()[0])

    assert called == [1, 2, 3, 4]
    with pytest.raises(
        AssertionError, match="backward_weight_one_chunk for chunk 0 without first calling `backw"
    ):
        stage.backward_weight_one_chunk(0)
    stage.has_backward = True
    output = stage.forward_one_chunk(0, batch()[:1])
    stage.backward_one_chunk(0, loss=output.sum(), full_backward=False)
    assert len(made) == 5 and len(called) == 4
    stage.backward_weight_one_chunk(0)
    assert called == [1, 2, 3, 4, 5]


# --- mistakes ---


def one_stage(cls=ScheduleGPipe, module=None, microbatches=2, loss=mse, **options):
    stage = PipelineStage(module or nn.Linear(5, 5), 0, 1, "cpu", **options)
    single = issubclass(cls, PipelineScheduleSingle)
    return cls(stage if single else [stage], microbatches, loss_fn=loss)


def test_arguments_that_do_not_fit_are_named():
    x, y = batch()
    with pytest.raises(ShapeError, match="Expecting 2 microbatches of the arguments but got 1"):
        one_stage().step(x[:1], target=y)
    with pytest.raises(ShapeError, match="Expecting 2 microbatches of the target but got 1"):
        one_stage().step(x, target=y[:1])
    with pytest.raises(ShapeError, match="a batch of 0 samples cannot be split into 2 microbatches"):
        one_stage().step(x[:0], target=y)
    with pytest.raises(ArgumentError, match="loss_fn needs a target"):
        one_stage().step(x)
    with pytest.raises(ArgumentTypeError, match="losses must be a list but got a <class 'tuple'>"):
        one_stage().step(x, target=y, losses=())
    with pytest.raises(GradError, match="Please call eval\\(\\) instead"), torch.no_grad():
        one_stage().step(x, target=y)
    with pytest.raises(ModuleError, match=r"loss_fn returned a tensor of shape \[4, 5\] for microbatch 0"):
        one_stage(loss=lambda o, t: o - t).step(x, target=y)
    with pytest.raises(GradError, match="the loss of microbatch 0 does not require grad"):
        one_stage(module=nn.Linear(5, 5).requires_grad_(False)).step(x, target=y)
    for wrong in (0, True, 2.0):
        with pytest.raises(ArgumentError, match=r"n_microbatches=.* has to be a positive number"):
            one_stage(microbatches=wrong)


def test_stages_that_do_not_fit_are_named():
    with pytest.raises(ArgumentError, match="Stage index 2 is out of range of 2"):
        PipelineStage(nn.Linear(5, 5), 2, 2, "cpu")
    with pytest.raises(ArgumentError, match="submodule is a function"):
        PipelineStage(lambda x: x, 0, 1, "cpu")
    stage = PipelineStage(nn.Linear(5, 5), 0, 2, "cpu")
    with pytest.raises(ArgumentError, match=r"rank 0 of 1 got stages \[0\], but with 2 stages"):
        ScheduleGPipe(stage, 2)
    with pytest.raises(
        ArgumentError, match="ZBV requires exactly 2 stages per rank, but got 3 stages on 1 ranks"
    ):
        ScheduleZBVZeroBubble([PipelineStage(nn.Linear(5, 5), i, 3, "cpu") for i in range(3)], 2)
    with pytest.raises(ArgumentError, match="stages has to be a list"):
        ScheduleLoopedBFS(stage, 2)
    with pytest.raises(ArgumentError, match="different num_stages or groups"):
        ScheduleLoopedBFS([stage, PipelineStage(nn.Linear(5, 5), 1, 3, "cpu")], 2)

    def too_many(communicator):
        PipelineStage(nn.Linear(5, 5), 0, 1, "cpu")

    with pytest.raises(ArgumentError, match="Pipeline group size 2 cannot be larger than number of stages 1"):
        run_ranks(2, too_many)


def test_examples_are_compared_with_what_comes():
    x, y = batch()
    schedule = one_stage(input_args=torch.zeros(4, 5), output_args=(torch.zeros(4, 5),))
    schedule.step(x, target=y)

    with pytest.raises(
        ShapeError, match=r"inputs of stage 0 for microbatch 0 are .*\[2, 5\], but .*\[4, 5\]"
    ):
        schedule.step(x[:4], target=y[:4])


def test_outputs_that_no_stage_can_be_given():
    class Counting(nn.Linear):
        def forward(self, x):
            return super().forward(x), 3

    def work(communicator):
        stages = [PipelineStage(Counting(5, 5), 0, 2, "cpu"), PipelineStage(nn.Linear(5, 5), 1, 2, "cpu")]
        ScheduleLoopedBFS(stages, 2, loss_fn=mse).step(*batch()[:1], target=batch()[1])

    with pytest.raises(ModuleError, match="output 1 of stage 0, Counting, is a int"):
        run_ranks(1, work)


def test_a_stage_that_raises_ends_the_others_and_says_where():
    class Failing(nn.Linear):
        def forward(self, x):
            raise ValueError("boom")

    waiting = []

    def work(communicator):
        module = Failing(5, 5) if communicator.rank == 1 else nn.Linear(5, 5)
        stage = PipelineStage(module, communicator.rank, 3, "cpu")
        try:
            Schedule1F1B(stage, 2, loss_fn=mse).step(batch()[0], target=batch()[1])
        except Exception as error:
            waiting.append((communicator.rank, str(error)))
            raise

    with pytest.raises(ValueError, match="boom") as caught:
        run_ranks(3, work)
    place = "in the forward pass of stage 1 of 3, Failing, for microbatch 0"
    assert f"{place}, with arguments torch.float32 [4, 5]" in caught.value.__notes__
    assert {rank for rank, text in waiting if "rank 1 failed with ValueError: boom" in text} == {0, 2}


def test_an_error_in_backward_says_where():
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no gradient")

    class Module(nn.Linear):
        def forward(self, x):
            return Bad.apply(super().forward(x))

    with pytest.raises(ValueError, match="no gradient") as caught:
        one_stage(module=Module(5, 5)).step(*batch()[:1], target=batch()[1])
    assert "in the backward pass of stage 0 of 1, Module, for microbatch 0" in caught.value.__notes__[-1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda rank, stage: ScheduleGPipe(stage, 2 + rank, loss_fn=mse),
            "2 microbatches.*\n.*3 microbatches",
        ),
        (
            lambda rank, stage: SINGLE[rank](stage, 2, loss_fn=mse),
            "rank 0 has ScheduleGPipe.*\n.*rank 1 has Sched",
        ),
        (
            lambda rank, stage: ScheduleGPipe(stage, 2, loss_fn=[None, mse][rank]),
            "without loss_fn.*\n.* with loss",
        ),
    ],
)
def test_ranks_of_different_schedules_are_told(make, message):
    def work(communicator):
        stage = PipelineStage(nn.Linear(5, 5), communicator.rank, 2, "cpu")
        make(communicator.rank, stage).step(batch()[0], target=batch()[1])

    with pytest.raises(CollectiveMismatchError, match=message):
        run_ranks(2, work)


def test_a_rank_that_evaluates_while_another_one_trains_is_told():
    def work(communicator):
        stage = PipelineStage(nn.Linear(5, 5), communicator.rank, 2, "cpu")
        schedule = ScheduleGPipe(stage, 2, loss_fn=mse)
        (schedule.eval if communicator.rank else schedule.step)(batch()[0], target=batch()[1])

    with pytest.raises(CollectiveMismatchError, match=r"inputs of stage 1, microbatch 0, forward step 1"):
        run_ranks(2, work)


def test_options_of_pytorch_that_change_nothing():
    modules = layers(2)
    x, y = batch()
    wanted = plain(modules, x, y)[2]

    stages = [PipelineStage(copy.deepcopy(modules[i]), i, 2, "cpu") for i in range(2)]
    schedule = ScheduleLoopedBFS(
        stages, 2, mse, use_full_backward=True, backward_requires_autograd=False, defer_pp_recv=True
    )
    schedule.step(x, target=y)

    assert_equal(gradients([stage.submod for stage in stages]), wanted)


def test_schedules_by_name():
    assert get_schedule_class("1f1b") is Schedule1F1B
    assert get_schedule_class("zbvzerobubble") is ScheduleZBVZeroBubble
    assert get_schedule_class("DualPipeV") is ScheduleDualPipeV
    assert get_schedule_class("PipelineScheduleSingle") is PipelineScheduleSingle
    assert get_schedule_class("ScheduleInterleaved1F1B") is ScheduleInterleaved1F1B
    with pytest.raises(ArgumentError, match="Unknown schedule name 'x': there are GPipe, 1F1B"):
        get_schedule_class("x")
