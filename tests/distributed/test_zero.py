"""ZeroRedundancyOptimizer: the weights of the unsharded optimizer, with a part of its state on each rank."""

import copy
import warnings

import numpy as np
import pytest

import tenon
from tenon.distributed.algorithms import Join
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.optim import ZeroRedundancyOptimizer
from tenon.errors import CollectiveMismatchError, OptimizerStateError, UnsupportedError
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel
from tenon.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from tenon.optim.lr_scheduler import OneCycleLR, StepLR

SHAPES = {"a": (40, 30), "b": (30,), "c": (30, 50), "d": (50,), "e": (7, 3, 2)}
OPTIMIZERS = {
    "sgd": (SGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (Adam, {"lr": 0.01}),
    "adamw": (AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "adagrad": (Adagrad, {"lr": 0.1}),
    "rmsprop": (RMSprop, {"lr": 0.01, "momentum": 0.5}),
}


def model():
    made = Module()
    rng = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        made.register_parameter(
            name, Parameter(tenon.from_numpy(rng.standard_normal(shape).astype("float32")))
        )
    return made


def give_gradients(made, step):
    rng = np.random.default_rng(100 + step)
    for parameter in made.parameters():
        parameter.grad = tenon.from_numpy(rng.standard_normal(parameter.shape).astype("float32"))


def weights(made):
    return {name: p.detach().numpy().copy() for name, p in made.named_parameters()}


def groups_of(made):
    named = list(made.named_parameters())
    return [{"params": named[:2]}, {"params": named[2:], "lr": 0.05}]


def train(made, optimizer, steps, first=0, schedule=None):
    scheduler = schedule(optimizer) if schedule else StepLR(optimizer, 2, 0.5)
    for step in range(first, first + steps):
        give_gradients(made, step)
        optimizer.step()
        scheduler.step()
    return weights(made)


def assert_same(ours, expected):
    for name, value in expected.items():
        assert (ours[name] == value).all(), name


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_weights_are_those_of_the_unsharded_optimizer_bit_for_bit(kind, size):
    cls, options = OPTIMIZERS[kind]

    def work(communicator):
        made = model()
        return train(made, ZeroRedundancyOptimizer(made.parameters(), cls, **options), 5)

    alone = model()
    expected = train(alone, cls(alone.parameters(), **options), 5)
    for result in run_ranks(size, work):
        assert_same(result, expected)


@pytest.mark.parametrize("size", [2, 7])
def test_groups_keep_their_options_also_where_ranks_outnumber_parameters(size):
    def work(communicator):
        made = model()
        optimizer = ZeroRedundancyOptimizer(groups_of(made), AdamW, lr=0.01)
        return train(made, optimizer, 5), [g["lr"] for g in optimizer.param_groups]

    alone = model()
    plain = AdamW(groups_of(alone), lr=0.01)
    expected = train(alone, plain, 5)
    for result, rates in run_ranks(size, work):
        assert_same(result, expected)
        assert rates == [g["lr"] for g in plain.param_groups]


def test_a_schedule_moves_rate_and_betas():
    def schedule(optimizer):
        return OneCycleLR(optimizer, max_lr=0.1, total_steps=6)

    def work(communicator):
        made = model()
        return train(made, ZeroRedundancyOptimizer(made.parameters(), AdamW), 5, schedule=schedule)

    alone = model()
    expected = train(alone, AdamW(alone.parameters()), 5, schedule=schedule)
    for result in run_ranks(2, work):
        assert_same(result, expected)


def test_a_group_can_be_added_later():
    def work(communicator):
        made = model()
        named = list(made.parameters())
        optimizer = ZeroRedundancyOptimizer(named[:2], Adam, lr=0.01)
        train(made, optimizer, 2)
        optimizer.add_param_group({"params": named[2:], "lr": 0.5})
        return train(made, optimizer, 2)

    alone = model()
    plain = Adam(list(alone.parameters())[:2], lr=0.01)
    train(alone, plain, 2)
    plain.add_param_group({"params": list(alone.parameters())[2:], "lr": 0.5})
    expected = train(alone, plain, 2)
    for result in run_ranks(3, work):
        assert_same(result, expected)


def state_bytes(optimizer):
    return sum(value.nbytes for entry in optimizer.state.values() for value in entry.values())


def test_each_rank_holds_its_part_of_the_state():
    def work(communicator):
        made = Module()
        for number in range(32):
            made.register_parameter(f"p{number}", Parameter(tenon.zeros(8, 100 + number)))
        optimizer = ZeroRedundancyOptimizer(made.parameters(), AdamW)
        give_gradients(made, 0)
        optimizer.step()
        return state_bytes(optimizer)

    (whole,) = run_ranks(1, work)
    for size in (2, 4):
        parts = run_ranks(size, work)
        assert sum(parts) == whole
        assert max(parts) < 1.02 * whole / size


@pytest.mark.parametrize("named", [True, False])
def test_a_consolidated_state_loads_anywhere(named):
    def parameters(made):
        return made.named_parameters() if named else made.parameters()

    def save(communicator):
        made = model()
        optimizer = ZeroRedundancyOptimizer(parameters(made), AdamW, lr=0.01)
        train(made, optimizer, 3)
        optimizer.consolidate_state_dict(to=1)
        return optimizer.state_dict() if communicator.rank == 1 else None

    state = run_ranks(3, save)[1]
    alone = model()
    plain = AdamW(parameters(alone), lr=0.01)
    halfway = train(alone, plain, 3)
    theirs = plain.state_dict()
    assert state["param_groups"] == theirs["param_groups"]
    assert list(state["state"]) == list(theirs["state"])
    for number, entry in theirs["state"].items():
        assert all((state["state"][number][name] == value).all() for name, value in entry.items())

    def go_on(communicator):
        made = model()
        optimizer = ZeroRedundancyOptimizer(parameters(made), AdamW, lr=0.5)
        optimizer.load_state_dict(state)
        with tenon.no_grad():
            for name, parameter in made.named_parameters():
                parameter.copy_(tenon.from_numpy(halfway[name]))
        return train(made, optimizer, 2, first=3)

    plain.load_state_dict(state)
    expected = train(alone, plain, 2, first=3)
    for size in (1, 2):
        for result in run_ranks(size, go_on):
            assert_same(result, expected)


def test_a_state_that_was_not_consolidated_since_the_last_step_is_refused():
    optimizer = ZeroRedundancyOptimizer(model().parameters(), Adam)

    with pytest.raises(OptimizerStateError, match=r"consolidate_state_dict\(to=0\)"):
        optimizer.state_dict()
    optimizer.consolidate_state_dict()
    optimizer.state_dict()
    optimizer.step()
    with pytest.raises(OptimizerStateError, match="has not been consolidated on this rank"):
        optimizer.state_dict()


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing():
    made = model()
    optimizer = ZeroRedundancyOptimizer(made.named_parameters(), Adam, lr=0.01)
    train(made, optimizer, 1)
    optimizer.consolidate_state_dict()
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["param_names"][0] = "other"
    before = state_bytes(optimizer)

    with pytest.raises(OptimizerStateError, match="'other'"):
        optimizer.load_state_dict(state)
    assert state_bytes(optimizer) == before and optimizer.param_groups[0]["param_names"][0] == "a"


class Net(Module):
    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(3)
        self.first = Parameter(tenon.from_numpy(rng.standard_normal((3, 4))))
        self.second = Parameter(tenon.from_numpy(rng.standard_normal(4)))

    def forward(self, x):
        return (x @ self.first).sin() @ self.second


def batch(rank, number):
    return tenon.from_numpy(np.random.default_rng((rank, number)).standard_normal((4, 3)))


def test_with_data_parallel_and_uneven_inputs_it_trains_like_one_process():
    counts = (2, 4, 3)

    def work(communicator):
        wrapped = DistributedDataParallel(Net())
        optimizer = ZeroRedundancyOptimizer(wrapped.parameters(), AdamW, lr=0.1)
        with Join([wrapped, optimizer], divide_by_initial_world_size=False):
            for number in range(counts[communicator.rank]):
                optimizer.zero_grad()
                wrapped(batch(communicator.rank, number)).square().mean().backward()
                optimizer.step()
        return weights(wrapped.module)

    alone = Net()
    plain = AdamW(alone.parameters(), lr=0.1)
    for number in range(max(counts)):
        active = [rank for rank, count in enumerate(counts) if number < count]
        plain.zero_grad()
        (sum(alone(batch(rank, number)).square().mean() for rank in active) / len(active)).backward()
        plain.step()
    for result in run_ranks(3, work):
        for name, value in weights(alone).items():
            np.testing.assert_allclose(result[name], value, rtol=1e-10)


def test_closures_run_on_every_rank():
    def work(communicator):
        net = Net()
        optimizer = ZeroRedundancyOptimizer(net.parameters(), SGD, lr=0.1)

        def closure():
            optimizer.zero_grad()
            loss = net(batch(0, 0)).square().mean()
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(3)]

    first, second = run_ranks(2, work)
    assert first == second and first[2] < first[0]


def test_ranks_with_different_parameters_are_told():
    def work(communicator):
        made = [Parameter(tenon.zeros(3 + communicator.rank))]
        ZeroRedundancyOptimizer(made, SGD, lr=0.1)

    with pytest.raises(CollectiveMismatchError, match=r"parameter 0: torch.float32\[4\]"):
        run_ranks(2, work)


def test_overlap_with_ddp_is_refused():
    with pytest.raises(UnsupportedError, match="overlap_with_ddp"):
        ZeroRedundancyOptimizer(model().parameters(), SGD, overlap_with_ddp=True, lr=0.1)


@pytest.mark.slow
@pytest.mark.oracle
def test_the_signature_is_torchs_and_plain_torch_state_loads():
    import inspect

    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.distributed.optim import ZeroRedundancyOptimizer as Theirs

    ours = list(inspect.signature(ZeroRedundancyOptimizer.__init__).parameters)
    assert ours == list(inspect.signature(Theirs.__init__).parameters)
    made = model()
    theirs = [torch.nn.Parameter(torch.from_numpy(p.detach().numpy().copy())) for p in made.parameters()]
    plain = torch.optim.AdamW(theirs, lr=0.01)
    optimizer = ZeroRedundancyOptimizer(made.parameters(), AdamW, lr=0.01)
    for step in range(3):
        give_gradients(made, step)
        for parameter, own in zip(theirs, made.parameters(), strict=True):
            parameter.grad = torch.from_numpy(own.grad.numpy().copy())
        plain.step()
        optimizer.step()
    optimizer.consolidate_state_dict()
    for number, entry in plain.state_dict()["state"].items():
        for name, value in entry.items():
            own = optimizer.state_dict()["state"][number][name]
            np.testing.assert_allclose(own.numpy(), value.numpy(), rtol=1e-5, atol=1e-7)
