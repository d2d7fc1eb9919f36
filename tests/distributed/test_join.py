"""Uneven inputs: ranks that run out of data take part in collectives until all are done."""

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tenon
from tenon.config import process_environment
from tenon.distributed.algorithms import Join, Joinable, JoinHook
from tenon.distributed.communication.threaded import run_ranks
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel


class Line(Module):
    def __init__(self, seed=0):
        super().__init__()
        self.weight = Parameter(tenon.from_numpy(np.random.default_rng(seed).standard_normal(3)))
        self.register_buffer("calls", tenon.zeros(1))

    def forward(self, x):
        with tenon.no_grad():
            self.calls += 1
        return x @ self.weight


def batch(rank, number):
    return tenon.from_numpy(np.random.default_rng((rank, number)).standard_normal((4, 3)))


def step(model, x):
    model.zero_grad()
    model(x).square().mean().backward()
    with tenon.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


def one_process(counts, divide_by_all):
    """The same training in one process: each iteration over the ranks that have a batch."""
    model = Line()
    for number in range(max(counts)):
        active = [rank for rank, count in enumerate(counts) if number < count]
        model.zero_grad()
        divisor = len(counts) if divide_by_all else len(active)
        sum(model(batch(rank, number)).square().mean() for rank in active).backward()
        with tenon.no_grad():
            model.weight -= 0.1 * model.weight.grad / divisor
    return model.weight.detach().numpy()


@pytest.mark.parametrize("counts", [(3, 5), (5, 3), (4, 4), (0, 2), (1, 3, 2)])
@pytest.mark.parametrize("divide_by_all", [True, False])
def test_uneven_ranks_train_like_one_process(counts, divide_by_all):
    def work(communicator):
        model = DistributedDataParallel(Line(seed=communicator.rank))
        with model.join(divide_by_initial_world_size=divide_by_all):
            for number in range(counts[communicator.rank]):
                step(model, batch(communicator.rank, number))
        return model.module.weight.detach().numpy().copy(), model.module.calls.item()

    results = run_ranks(len(counts), work)

    for weight, calls in results:
        np.testing.assert_allclose(weight, one_process(counts, divide_by_all), rtol=1e-12)
        assert calls == max(counts)


def test_training_goes_on_after_the_block():
    def work(communicator):
        model = DistributedDataParallel(Line())
        with model.join(divide_by_initial_world_size=False):
            for number in range(1 + communicator.rank):
                step(model, batch(communicator.rank, number))
        before = model.module.weight.detach().numpy().copy()
        model.zero_grad()
        model(batch(communicator.rank, 9)).square().mean().backward()
        return before, model.module.weight.grad.numpy().copy()

    (before, first), (_, second) = run_ranks(2, work)

    alone = Line()
    with tenon.no_grad():
        alone.weight.copy_(tenon.from_numpy(before))
    ((alone(batch(0, 9)).square().mean() + alone(batch(1, 9)).square().mean()) / 2).backward()
    np.testing.assert_allclose(first, alone.weight.grad.numpy(), rtol=1e-12)
    assert (first == second).all()


def test_no_sync_works_inside_a_block():
    def work(communicator):
        model = DistributedDataParallel(Line())
        model.zero_grad()
        with model.join():
            for number in range(2 + communicator.rank):
                if number == 0:
                    with model.no_sync():
                        model(batch(communicator.rank, number)).sum().backward()
                else:
                    model(batch(communicator.rank, number)).sum().backward()
        return model.module.weight.grad.numpy().copy()

    sums = [[batch(rank, number).numpy().sum(0) for number in range(3)] for rank in (0, 1)]
    after_two = (sums[0][0] + sums[0][1] + sums[1][0] + sums[1][1]) / 2
    np.testing.assert_allclose(run_ranks(2, work)[1], (after_two + sums[1][2]) / 2, rtol=1e-12)


def test_evaluation_inside_a_block_sends_no_gradients():
    def work(communicator):
        model = DistributedDataParallel(Line())
        with model.join(), tenon.no_grad():
            return [model(batch(communicator.rank, n)).shape[0] for n in range(1 + communicator.rank)]

    assert run_ranks(2, work) == [[4], [4, 4]]


def test_an_early_end_can_raise_on_all_ranks():
    messages = {}

    def work(communicator):
        model = DistributedDataParallel(Line())
        try:
            with model.join(throw_on_early_termination=True):
                for number in range(1 + 2 * communicator.rank):
                    step(model, batch(communicator.rank, number))
        except RuntimeError as error:
            messages[communicator.rank] = str(error)
        step(model, batch(communicator.rank, 9))  # both go on as before

    run_ranks(2, work)

    assert messages == {
        0: "Rank 0 exhausted all inputs.",
        1: "Detected at least one rank that exhausted inputs. Throwing across all ranks.",
    }


def test_a_disabled_block_changes_nothing():
    def work(communicator):
        model = DistributedDataParallel(Line())
        with model.join(enable=False):
            step(model, batch(communicator.rank, 0))
        return communicator.rank

    assert run_ranks(2, work) == [0, 1]


class Counter(Joinable):
    """torch's tutorial class: how many inputs all ranks saw."""

    def __init__(self, communicator):
        super().__init__()
        self.communicator = communicator
        self.count = 0

    def __call__(self):
        Join.notify_join_context(self)
        self.count += int(self.communicator.all_reduce(np.ones(1)).wait()[0])

    def join_hook(self, **kwargs):
        return CounterHook(self, **kwargs)

    @property
    def join_device(self):
        return tenon.device("cpu")

    @property
    def join_process_group(self):
        return self.communicator


class CounterHook(JoinHook):
    def __init__(self, counter, say=None):
        self.counter, self.say = counter, say

    def main_hook(self):
        self.counter.communicator.all_reduce(np.zeros(1))

    def post_hook(self, is_last_joiner):
        if self.say is not None:
            self.say.append((self.counter.communicator.rank, is_last_joiner))


def test_classes_of_ones_own_join():
    said = []

    def work(communicator):
        counter = Counter(communicator)
        with Join([counter], say=said):
            for _ in range(2 + communicator.rank):
                counter()
        return counter.count

    assert run_ranks(3, work) == [6, 8, 9]
    assert sorted(said) == [(0, False), (1, False), (2, True)]


def test_impossible_blocks_are_refused():
    with pytest.raises(ValueError, match="at least one joinable"):
        Join([])

    def work(communicator):
        half = communicator.split(0)
        with pytest.raises(ValueError, match="multiple process groups"):
            Join([Counter(communicator), Counter(half)])

    run_ranks(2, work)


def test_ranks_that_have_taken_fewer_steps_have_no_other_options():
    def work(communicator):
        model = DistributedDataParallel(Line())
        optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

        def train(number, lr):
            optimizer.zero_grad()
            model(batch(communicator.rank, number)).square().mean().backward()
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()

        train(0, 0.1)
        with model.join():
            for number in range((0, 2)[communicator.rank]):
                train(number, 0.1 / (number + 2))
        train(5, 0.01)
        train(6, 0.01)
        return model.module.weight.detach().numpy().copy()

    first, second = run_ranks(2, work)

    assert (first == second).all()


def test_a_rank_that_was_done_keeps_its_own_gradients_and_buffers():
    def work(communicator):
        model = DistributedDataParallel(Line(), forward_sync_buffers=False)
        seen = []
        for left in (None, 7.0):
            with model.join(divide_by_initial_world_size=False):
                for _ in range(1 + communicator.rank):
                    model.zero_grad()
                    model(tenon.ones(1, 3, dtype=tenon.float64)).sum().backward()
                    seen.append(model.module.weight.grad[0].item())
                model.module.weight.grad = (
                    None if left is None else tenon.full((3,), left, dtype=tenon.float64)
                )
            kept = model.module.weight.grad
            assert kept is None if left is None else kept.tolist() == [7, 7, 7]
        return seen, model.module.calls.item()

    assert run_ranks(2, work) == [([1, 1], 2), ([1, 1, 1, 1], 4)]


def test_names_of_the_block_that_pickles_and_programs_have_stay_importable():
    from tenon.distributed.algorithms import join

    model = DistributedDataParallel(Line())

    config = pickle.loads(b"ctenon.distributed.join\n_JoinConfig\n(I01\nI00\nI01\ntR.")

    assert config == (True, False, True) and type(config) is type(model._join_config)
    assert (join.Join, join.Joinable, join.JoinHook) == (Join, Joinable, JoinHook)
    assert Join.__module__ == "tenon.distributed.join"
    assert pickle.loads(pickle.dumps(Join)) is Join


@pytest.mark.slow
def test_data_parallel_needs_the_plugin_for_join_alone():
    code = """
        import tenon
        from tenon.errors import PluginModuleError
        model = tenon.nn.parallel.DistributedDataParallel(tenon.nn.Linear(2, 2))
        model(tenon.ones(1, 2)).sum().backward()
        try:
            model.join()
        except PluginModuleError as error:
            assert "tenon.distributed.join comes from a plugin" in str(error), error
        else:
            raise AssertionError("no error")
        """
    environment = {**process_environment(), "TENON_PLUGINS": "tenon_cpu"}

    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, check=True)
