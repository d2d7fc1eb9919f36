"""Values and memory of ``fully_shard`` modules between steps: loading, meta device, release, errors."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

import tenon as torch
from tenon import nn
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.fsdp import (
    CPUOffloadPolicy,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from tenon.distributed.fsdp.buffers import BufferPool
from tenon.distributed.fsdp.gradient_windows import GradientWindows
from tenon.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from tenon.errors import (
    ArgumentError,
    CollectiveMismatchError,
    NoDataError,
    TenonWarning,
    UnsupportedError,
)

sys.path.insert(0, str(Path(__file__).parent))

from models import assert_equal_states, batch, net, part, sgd, shard, step, whole


def test_state_dict_loads_into_another_sharded_module():
    def work(communicator):
        source, target = shard(net(0)), shard(net(1))
        step(source, sgd(source), *part(batch(), communicator))
        target.load_state_dict(source.state_dict())
        again = shard(net(2))
        again.load_state_dict(source.state_dict(), assign=True)
        return whole(source), whole(target), whole(again), again(batch()[0]), source(batch()[0])

    for source, target, again, found, wanted in run_ranks(2, work):
        assert_equal_states(target, source)
        assert_equal_states(again, source)
        torch.testing.assert_close(found, wanted)


def test_whole_state_dict_is_distributed_into_the_shards():
    plain = net(3).state_dict()

    def work(communicator):
        model = shard(net(0))
        own = model.state_dict()
        model.load_state_dict(
            {
                name: distribute_tensor(t, own[name].device_mesh, own[name].placements)
                for name, t in plain.items()
            }
        )
        return whole(model)

    for found in run_ranks(4, work):
        assert_equal_states(found, plain)


def test_model_on_the_meta_device_never_is_whole():
    def work(communicator):
        model = shard(net(device="meta"))
        assert all(p.to_local().device.type == "meta" for p in model.parameters())
        with pytest.raises(NoDataError, match="still on meta device"):
            model(batch()[0])
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.1)
        step(model, sgd(model), *part(batch(), communicator))
        return whole(model)

    first, second = run_ranks(2, work)
    assert_equal_states(first, second)


def test_parameters_are_released_between_forward_and_backward():
    def work(communicator):
        model = shard(net(blocks=6, width=64), reshard_after_forward=True)
        pool = communicator.kept["fully_shard"]
        x, y = part(batch(), communicator)
        loss = nn.functional.cross_entropy(model(x), y)
        between = pool.used_bytes
        loss.backward()
        assert isinstance(model.last.weight, DTensor)
        model.zero_grad()  # the gradients of the shards are in buffers too
        return (
            between,
            pool.used_bytes,
            pool.free_bytes,
            sum(p.nbytes for p in net(blocks=6, width=64).parameters()),
        )

    for between, after, free, total in run_ranks(2, work):
        assert between == after == 0
        assert free < total  # one block's parameters and gradients, of six


def test_views_of_weights_are_released_too():
    class Transposed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)))

        def forward(self, x):
            first, second = self.weight.chunk(2)
            return (
                (x @ self.weight.t()[:, :3]).sum() + (x @ second.t().contiguous()).pow(2).sum() + first.sum()
            )

    x = torch.arange(8.0).reshape(2, 4)
    plain = Transposed()
    plain(x).backward()

    def work(communicator):
        model = fully_shard(Transposed(), reshard_after_forward=True)
        loss = model(x)
        used = communicator.kept["fully_shard"].used_bytes
        loss.backward()
        return used, model.weight.grad.full_tensor()

    for used, grad in run_ranks(2, work):
        assert used == 0
        torch.testing.assert_close(grad, plain.weight.grad)


def test_a_kept_view_of_a_weight_is_never_overwritten():
    def work(communicator):
        model = shard(net(blocks=3, width=64), reshard_after_forward=True)
        kept = []
        model.blocks[0].up.register_forward_hook(lambda m, args, out: kept.append(m.weight.detach()))
        x, y = part(batch(), communicator)
        before = model.blocks[0].up.weight.full_tensor().clone()
        for _ in range(2):
            nn.functional.cross_entropy(model(x), y).backward()
        return before, kept

    for before, kept in run_ranks(2, work):
        for view in kept:
            assert torch.equal(view, before)


def test_use_of_a_released_parameter_names_it():
    def work(communicator):
        model = shard(net(), reshard_after_forward=True)
        kept = []
        model.blocks[0].up.register_forward_hook(lambda m, args, out: kept.append(m.weight))
        model(batch()[0])
        with pytest.raises(UnsupportedError, match=r"parameter 'blocks.0.up.weight' .* is not gathered"):
            kept[0] + 1
        return tuple(kept[0].shape), kept[0].dtype

    assert run_ranks(2, work) == [((10, 6), torch.float32)] * 2


def test_gathering_by_hand():
    def work(communicator):
        model = shard(net())
        model.unshard()
        first = type(model.first.weight), type(model.blocks[0].up.weight)
        model.reshard()
        handle = model.blocks[0].unshard(async_op=True)
        handle.wait()
        handle.wait()
        second = type(model.first.weight), type(model.blocks[0].up.weight)
        model.blocks[0].reshard()
        return [issubclass(kind, DTensor) for kind in (*first, *second)]

    assert run_ranks(2, work) == [[False, True, True, False]] * 2


def test_forward_passes_without_backward_leave_nothing_behind():
    model = shard(net())
    x, _ = batch()
    for _ in range(5):
        model(x)
    gc.collect()
    model(x)

    groups = [state.group for state in model._states(True)]
    assert all(len(group.saved._places) <= 2 * len(group.parameters) for group in groups)
    assert not any(group.positions for group in groups)


def test_other_methods_gather_when_they_are_registered():
    class Model(nn.Linear):
        def twice(self, x):
            return 2 * self.forward(x)

    def work(communicator):
        model, plain = Model(3, 3), Model(3, 3)
        for each in (model, plain):
            nn.init.constant_(each.weight, 0.5)
            nn.init.constant_(each.bias, 0.5)
        fully_shard(model)
        register_fsdp_forward_method(model, "twice")
        register_fsdp_forward_method(plain, "twice")  # no effect
        found, wanted = model.twice(torch.ones(1, 3)), plain.twice(torch.ones(1, 3))
        with pytest.raises(ArgumentError, match="does not have a method 'thrice'"):
            register_fsdp_forward_method(model, "thrice")
        return torch.equal(found, wanted)

    assert run_ranks(2, work) == [True, True]


def test_error_in_forward_leaves_the_module_usable():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fails = fully_shard(nn.Linear(3, 3)), True

        def forward(self, x):
            if self.fails:
                raise ValueError("as asked")
            return self.inner(x)

    def work(communicator):
        model = fully_shard(Fails())
        with pytest.raises(ValueError, match="as asked"):
            model(torch.ones(1, 3))
        model.fails = False
        model(torch.ones(1, 3)).sum().backward()
        return model.inner.weight.grad.full_tensor()

    for found in run_ranks(2, work):
        torch.testing.assert_close(found, torch.ones(3, 3))


def test_error_in_backward_leaves_the_module_usable():
    def work(communicator):
        model = shard(net())
        x, y = batch()

        def fail(gradient):
            raise ValueError("as asked")

        hidden = []
        handle = model.blocks[0].norm.register_forward_hook(
            lambda m, args, out: hidden.append(out.register_hook(fail))
        )
        with pytest.raises(ValueError, match="as asked"):
            nn.functional.cross_entropy(model(x), y).backward()
        handle.remove()
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        return {name: p.grad.full_tensor() for name, p in model.named_parameters()}

    plain = net()
    nn.functional.cross_entropy(plain(batch()[0]), batch()[1]).backward()
    for found in run_ranks(2, work):
        assert_equal_states(found, {n: p.grad for n, p in plain.named_parameters()})


def test_all_reduce_hook_and_divide_factor():
    def work(communicator):
        model = fully_shard(nn.Linear(4, 2))
        model.set_gradient_divide_factor(1.0)
        seen = []
        model.set_all_reduce_hook(lambda gradients: seen.append(gradients.shape) or gradients.mul_(3))
        model(torch.ones(1, 4)).sum().backward()
        return model.weight.grad.full_tensor(), seen

    for gradient, seen in run_ranks(2, work):
        torch.testing.assert_close(gradient, torch.full((2, 4), 6.0))
        assert seen == [(5,)]


def test_hook_of_a_sharded_parameter_runs_when_its_gradient_is_complete():
    def work(communicator):
        model = shard(net())
        seen = []
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p, name=name: seen.append((name, p.grad is not None))
            )
        nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
        return sorted(seen), sorted((name, True) for name, _ in model.named_parameters())

    for seen, wanted in run_ranks(2, work):
        assert seen == wanted


def test_half_precision_of_the_whole_module():
    def work(communicator):
        model = shard(net()).to(torch.bfloat16)
        x, y = batch()
        loss = nn.functional.cross_entropy(model(x.to(torch.bfloat16)).float(), y)
        loss.backward()
        return {p.dtype for p in model.parameters()} | {p.grad.dtype for p in model.parameters()}

    assert run_ranks(2, work) == [{torch.bfloat16}] * 2


def test_freezing_later():
    def work(communicator):
        model = shard(net())
        model.blocks[0].requires_grad_(False)
        nn.functional.cross_entropy(model(batch()[0]), batch()[1]).backward()
        return [p.grad is None for p in model.blocks[0].parameters()], model.blocks[1].up.weight.grad is None

    assert run_ranks(2, work) == [([True] * 6, False)] * 2


def test_offload_policy_changes_nothing_on_the_cpu():
    def work(communicator):
        model = shard(net(), offload_policy=CPUOffloadPolicy())
        step(model, sgd(model), *part(batch(), communicator))
        return whole(model)

    def plainly(communicator):
        model = shard(net())
        step(model, sgd(model), *part(batch(), communicator))
        return whole(model)

    assert_equal_states(run_ranks(2, work)[0], run_ranks(2, plainly)[0])


def test_ignored_parameters_stay_as_they_are():
    model = net()
    fully_shard(model, ignored_params={model.first.weight})

    assert not isinstance(model.first.weight, DTensor)
    assert isinstance(model.first.bias, DTensor)


WRONG = {
    "twice": (lambda: fully_shard(fully_shard(nn.Linear(2, 2))), "has already been applied"),
    "list": (lambda: fully_shard(nn.ModuleList([nn.Linear(2, 2)])), "do not implement forward"),
    "not a module": (lambda: fully_shard([3]), "int is not a Module"),
    "mesh": (lambda: fully_shard(nn.Linear(2, 2), mesh=[0]), "mesh is a list"),
    "factor": (lambda: fully_shard(nn.Linear(2, 2), reshard_after_forward=3), "should be a factor of 1"),
    "placement": (
        lambda: fully_shard(nn.Linear(2, 2), shard_placement_fn=lambda p: Replicate()),
        "has to return Shard",
    ),
    "axis": (lambda: fully_shard(nn.Linear(2, 2), shard_placement_fn=lambda p: Shard(1)), "for 'bias' of"),
    "policy": (lambda: MixedPrecisionPolicy(torch.int32), "pass a floating dtype"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case):
    function, message = WRONG[case]
    with pytest.raises(ArgumentError, match=message):
        function()


def test_scalar_parameters_are_refused():
    module = nn.Module()
    module.scale = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(
        ArgumentError, match=r"doesn't support scalar parameters\. Change scale to a 1D tensor"
    ):
        fully_shard(module)


def test_sharing_across_calls_is_refused():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    fully_shard(model[0])
    with pytest.raises(ArgumentError, match=r"'1\.weight' is shared with 'weight'"):
        fully_shard(model)


def test_ranks_with_different_modules():
    def work(communicator):
        fully_shard(nn.Linear(2, 2 + communicator.rank))

    with pytest.raises(CollectiveMismatchError, match="ranks have different models"):
        run_ranks(2, work)


def test_replaced_parameter_is_refused():
    model = fully_shard(nn.Linear(2, 2))
    model.weight = nn.Parameter(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match="'weight' has been replaced by a Parameter"):
        model(torch.ones(1, 2))


def test_compile_runs_the_module_eagerly():
    model = fully_shard(nn.Linear(3, 2))
    compiled = torch.compile(lambda x: model(x).sum())
    with pytest.warns(TenonWarning, match="runs eagerly: a fully_shard module, whose parameters"):
        for _ in range(4):
            compiled(torch.ones(2, 3)).backward()
    torch.testing.assert_close(model.weight.grad.full_tensor(), torch.full((2, 3), 8.0))


def test_pool_reuses_a_buffer_only_when_nothing_refers_to_it():
    pool = BufferPool()
    first = pool.take(1000)
    address, view = first.ctypes.data, first[10:20].view(np.uint8)
    assert address % 64 == 0
    del first
    second = pool.take(1000)
    assert second.ctypes.data != address
    view[:] = 1
    del view
    gc.collect()
    assert pool.take(900).ctypes.data == address
    del second
    assert pool.used_bytes == 0 and pool.free_bytes == 2000


class Chain(nn.ModuleList):
    """A container with a forward."""

    def forward(self, x):
        for layer in self:
            x = layer(x)
        return x


def test_container_with_a_forward_is_sharded():
    model = fully_shard(Chain([nn.Linear(2, 2), nn.Linear(2, 1)]))

    model(torch.ones(1, 2)).sum().backward()

    assert model[1].bias.grad.full_tensor().item() == 1


def test_part_of_a_sharded_sequence_is_a_plain_sequence():
    model = fully_shard(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)))
    assert type(model[:2]) is nn.Sequential and len(model[:2]) == 2


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (2.5, TypeError), (True, TypeError)])
def test_number_of_buffers_is_checked(value, error):
    model = fully_shard(nn.Linear(2, 2))
    model.set_reduce_scatter_max_input_buffers(2)
    with pytest.raises(error, match="max_input_buffers must be a"):
        model.set_reduce_scatter_max_input_buffers(value)


def test_settings_for_graphics_cards_change_nothing():
    model = fully_shard(nn.Linear(2, 2))
    model.set_allocate_memory_from_process_group_for_comm(True)
    model.set_symm_mem_for_comm()
    model.set_separate_reduce_scatter_group()
    model.set_post_optim_event(None)
    model(torch.ones(1, 2)).sum().backward()
    assert model.bias.grad.to_local().tolist() == [1, 1]


class Readable(LocalCommunicator):
    """Has memory that other ranks could read."""

    def readable_memory(self, size, *, name=None):
        return np.zeros(size, np.uint8)


def test_gradients_that_others_read_are_not_written_to_while_those_of_a_module_around_wait():
    windows = GradientWindows(Readable())
    windows.next(64, None)
    around, first = windows.take(64)
    inner, second = windows.take(64)
    assert {first, second} == {0, 1} and windows.take(64) is None

    del inner
    windows.next(64, second)
    assert (
        windows.take(64) is None
    )  # other ranks read the second piece, and the first has gradients that wait

    windows.next(64, None)  # a reduction of private memory is over, so that of the second piece is
    assert windows.take(64)[1] == second

    del around
    windows.next(64, first)
    assert windows.take(64)[1] == second  # others read the first
