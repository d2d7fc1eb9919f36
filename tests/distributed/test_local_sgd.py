"""Post-local SGD: ranks train separately for some steps and average their parameters, under torch's names."""

import pytest

import tenon
from tenon import nn, optim
from tenon.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as post
from tenon.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager, utils
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.optim import PostLocalSGDOptimizer
from tenon.nn.parallel import DistributedDataParallel


def parameter(value, gradient=0.0):
    made = nn.Parameter(tenon.tensor([float(value)]))
    made.grad = None if gradient is None else tenon.tensor([float(gradient)])
    return made


def test_periods_say_when_parameters_with_gradients_are_averaged():
    def train(communicator):
        rank = communicator.rank
        mine, unused = parameter(rank), parameter(rank, None)
        averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1)
        seen = []
        for _ in range(4):
            averager.average_parameters([{"params": [mine, unused]}])
            seen.append(mine.item())
            mine.data += rank
        assert unused.item() == rank
        return seen

    assert run_ranks(2, train) == [[0, 1, 1, 2], [1, 1, 2, 2]]


def test_parameters_of_several_dtypes_are_averaged_in_their_own():
    def average(communicator):
        mine = [
            parameter(communicator.rank),
            nn.Parameter(tenon.full((2, 2), communicator.rank, dtype=tenon.float64)),
        ]
        utils.average_parameters(iter(mine), None)
        return [(p.dtype, p.detach().flatten()[0].item()) for p in mine]

    assert run_ranks(2, average) == [[(tenon.float32, 0.5), (tenon.float64, 0.5)]] * 2


def test_a_hierarchy_averages_in_the_group_of_the_longest_period():
    def train(communicator):
        mine = parameter(communicator.rank)
        averager = hierarchical_model_averager.HierarchicalModelAverager({1: 2, 2: 4})
        averager.step = 1
        averager.average_parameters([mine])
        in_pairs = mine.item()
        averager.average_parameters([mine])
        return in_pairs, mine.item()

    assert run_ranks(4, train) == [(0.5, 1.5), (0.5, 1.5), (2.5, 1.5), (2.5, 1.5)]


def test_the_optimizer_averages_after_its_steps_and_resumes():
    def train(communicator):
        mine = parameter(communicator.rank, 1)
        optimizer = PostLocalSGDOptimizer(
            optim.SGD([mine], lr=1.0), averagers.PeriodicModelAverager(period=2, warmup_steps=1)
        )
        optimizer.step()
        state = optimizer.state_dict()
        optimizer.step()
        optimizer.averager.step = 7
        optimizer.load_state_dict(state)
        optimizer.load_state_dict(optim.SGD([mine], lr=1.0).state_dict())
        return state["step"], mine.item(), optimizer.averager.step

    with pytest.warns(UserWarning, match="step counter"):
        assert run_ranks(2, train) == [(1, -1.5, 0)] * 2


def test_the_hook_averages_gradients_over_all_ranks_then_over_a_group():
    def train(communicator):
        model = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        group = tenon.distributed.new_subgroups(1)[0]
        model.register_comm_hook(post.PostLocalSGDState(None, group, 1), post.post_localSGD_hook)
        seen = []
        for _ in range(2):
            model.zero_grad()
            model(tenon.full((1, 1), float(communicator.rank))).sum().backward()
            seen.append(model.module.weight.grad.item())
        return seen

    assert run_ranks(2, train) == [[0.5, 0], [0.5, 1]]


def test_impossible_periods_are_refused():
    make = averagers.PeriodicModelAverager
    hierarchy = hierarchical_model_averager.HierarchicalModelAverager
    for call in (
        lambda: make(0),
        lambda: make(2, -1),
        lambda: hierarchy({}),
        lambda: hierarchy({0: 1}),
        lambda: hierarchy({2: 3}),
        lambda: utils.get_params_to_average([1]),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.warns(UserWarning, match="no need to use model averaging"):
        make(1)
