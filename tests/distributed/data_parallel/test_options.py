"""The options of DistributedDataParallel, and the order of its buckets."""

import warnings

import numpy as np
import pytest

import tenon
from tenon.distributed.communication.threaded import run_ranks
from tenon.errors import CommunicatorError, ModuleError
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel
from tenon.tensors import alerts


class Chain(Module):
    """Parameters used in another order than that of registration, some only if asked for."""

    def __init__(self, rank=0):
        super().__init__()
        for name in ("last", "first", "middle", "spare"):
            self.register_parameter(name, Parameter(tenon.full((4,), 1.0 + rank)))
        self.register_buffer("seen", tenon.full((1,), float(rank)))
        self.register_buffer("own", tenon.full((1,), float(rank)))

    def forward(self, x, use_spare=False):
        y = ((x * self.first).sin() * self.middle).sin() * self.last
        return y * self.spare if use_spare else y


def data(rank):
    return tenon.from_numpy(np.random.default_rng(rank).standard_normal(4).astype("float32"))


def bucket_names(model):
    return [[slot.name for slot in bucket.slots] for bucket in model.synchronizer.buckets]


@pytest.mark.parametrize("cap,expected", [(None, [["last", "middle", "first", "spare"]]), (1e-6, 4)])
def test_buckets_are_in_reverse_order_of_use(cap, expected):
    def work(communicator):
        model = DistributedDataParallel(Chain(), bucket_cap_mb=cap, find_unused_parameters=True)
        for _ in range(2):
            model(data(communicator.rank)).sum().backward()
        return bucket_names(model)

    for names in run_ranks(2, work):
        wanted = expected if cap is None else [["last"], ["middle"], ["first"], ["spare"]]
        assert names == wanted


def test_rank_0_decides_the_order_where_ranks_differ():
    def work(communicator):
        model = DistributedDataParallel(Chain(), find_unused_parameters=True)
        with tenon.no_grad():
            x = data(communicator.rank)
        out = model(x, use_spare=communicator.rank == 1)
        out.sum().backward()
        return bucket_names(model), model.module.spare.grad.tolist()

    (first, gradient), (second, other) = run_ranks(2, work)

    assert first == second == [["last", "middle", "first", "spare"]]
    assert gradient == other


@pytest.mark.parametrize("as_view", [False, True])
def test_gradients_are_views_of_their_bucket_and_add_up_there(as_view):
    def work(communicator):
        model = DistributedDataParallel(Chain(), gradient_as_bucket_view=as_view, find_unused_parameters=True)
        totals = []
        for _ in range(3):
            model(data(communicator.rank)).sum().backward()
            totals.append(model.module.last.grad.numpy().copy())
        flat = model.synchronizer.buckets[0].flat
        assert np.shares_memory(model.module.last.grad.numpy(), flat)
        model.zero_grad(set_to_none=False)
        assert not flat[:4].any()
        return totals

    first, second = run_ranks(2, work)
    for step in range(3):
        np.testing.assert_allclose(first[step], (step + 1) * first[0], rtol=1e-6)
        assert (first[step] == second[step]).all()


def test_ignored_parameters_and_buffers_are_left_alone():
    def work(communicator):
        chain = Chain(communicator.rank)
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(chain, ["middle", "own"])
        model = DistributedDataParallel(chain, find_unused_parameters=True)
        model(data(communicator.rank)).sum().backward()
        values = {name: value[0].item() for name, value in model.state_dict().items()}
        return values, chain.middle.grad.tolist(), bucket_names(model)

    (first, gradient, names), (second, other, _) = run_ranks(2, work)

    assert names == [["last", "first", "spare"]]
    assert {name for name in first if first[name] != second[name]} == {"middle", "own"}
    assert gradient != other


def test_a_model_whose_parameters_are_all_ignored_is_refused():
    chain = Chain()
    names = ["last", "first", "middle", "spare"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(chain, names)

    with pytest.raises(ModuleError, match="is not needed when a module doesn't have any parameter that"):
        DistributedDataParallel(chain)


def test_find_unused_parameters_says_that_they_are_meant():
    def work(communicator):
        model = DistributedDataParallel(Chain(), find_unused_parameters=True)
        for _ in range(2):
            model(data(communicator.rank)).sum().backward()
        return model.module.spare.grad

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_ranks(2, work) == [None, None]


@pytest.mark.parametrize("overlaps", [False, True])
def test_static_graph_asks_at_most_once_and_notices_a_change(overlaps):
    calls = []

    def work(communicator):
        communicator.overlaps = overlaps
        model = DistributedDataParallel(Chain(), static_graph=True, find_unused_parameters=True)
        if communicator.rank == 0:
            plain = communicator.agree
            communicator.agree = lambda call: (calls.append(call.name), plain(call))
        for _ in range(3):
            model.zero_grad()
            model(data(communicator.rank)).sum().backward()
        with pytest.raises(CommunicatorError, match=r"static_graph=True, but spare had a gradient in one"):
            model(data(communicator.rank), use_spare=True).sum().backward()

    run_ranks(2, work)

    assert calls.count("parameters with gradients of model 1") == overlaps
    # Between nodes the last backward's bucket is on its way before the change is seen.
    assert sum(str(name).startswith("gradients of") for name in calls) == 3 + overlaps


def test_groups_train_apart_and_ranks_outside_are_told():
    def work(communicator):
        group = tenon.distributed.new_group([0, 2])
        if communicator.rank == 1:
            with pytest.raises(CommunicatorError, match=r"GroupMember\.NON_GROUP_MEMBER"):
                DistributedDataParallel(Chain(), process_group=group)
            return None
        model = DistributedDataParallel(Chain(), process_group=group, find_unused_parameters=True)
        model(data(communicator.rank)).sum().backward()
        return model.module.first.grad.numpy().copy()

    first, outside, third = run_ranks(3, work)

    expected = []
    for rank in (0, 2):
        alone = Chain()
        alone(data(rank)).sum().backward()
        expected.append(alone.first.grad.numpy())
    assert outside is None and (first == third).all()
    np.testing.assert_allclose(first, np.mean(expected, axis=0), rtol=1e-6)


@pytest.mark.parametrize(
    "name,value",
    [
        ("device_ids", [3]),
        ("output_device", "cuda:1"),
        ("dim", 1),
        ("check_reduction", True),
        ("skip_all_reduce_unused_params", True),
        ("batched_grad_copy", True),
    ],
)
def test_an_option_without_effect_says_so(name, value, monkeypatch):
    monkeypatch.setattr(alerts, "_ISSUED", set())
    with pytest.warns(UserWarning, match=f"DistributedDataParallel: {name} has no effect in tenon"):
        DistributedDataParallel(Chain(), **{name: value})


def test_the_device_a_module_is_on_already_asks_for_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DistributedDataParallel(Chain(), device_ids=[], output_device="cpu")
