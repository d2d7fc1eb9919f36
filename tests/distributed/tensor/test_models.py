"""Models of DTensors: forward, backward and optimizers give what plain tensors give, on meshes of several shapes."""

import copy
import warnings

import pytest

import tenon as torch
from tenon import nn
from tenon.distributed import init_device_mesh
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
from tenon.errors import TenonWarning

pytestmark = pytest.mark.together


class Tagger(nn.Module):
    """Embeddings, a transformer layer and a linear head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.place = nn.Parameter(torch.randn(6, 8) * 0.1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, x):
        return self.head(self.layer(self.embed(x) + self.place)).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


def cnn():
    features = [nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(16, 3))


MODELS = {
    "mlp": (mlp, lambda: torch.randn(6, 5), 6, 3),
    "cnn": (cnn, lambda: torch.randn(6, 1, 4, 4), 6, 3),
    "tagger": (Tagger, lambda: torch.randint(0, 11, (4, 6)), 24, 11),
}


def train(model, optimizer, x, y):
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def shard_parameters(placements):
    """A partition function: parameters are placed by ``placements``, as far as they have the axes."""

    def partition(name, module, mesh):
        for key, parameter in list(module._parameters.items()):
            if parameter is not None:
                own = [p if p.is_replicate() or p.dim < parameter.ndim else Replicate() for p in placements]
                module.register_parameter(key, nn.Parameter(distribute_tensor(parameter.data, mesh, own)))

    return partition


#: Mesh, placements of the data, placements of the parameters.
LAYOUTS = {
    "data": ((2,), [Shard(0)], [Replicate()]),
    "data and parameters": ((2,), [Shard(0)], [Shard(0)]),
    "columns": ((2,), [Replicate()], [Shard(1)]),
    "uneven": ((4,), [Shard(0)], [Shard(0)]),
    "grid": ((2, 2), [Shard(0), Replicate()], [Shard(0), Shard(0)]),
    "one row": ((1, 2), [Shard(0), Replicate()], [Shard(0), Shard(0)]),
    "cube": ((2, 1, 2), [Shard(0), Replicate(), Shard(0)], [Replicate(), Shard(0), Shard(1)]),
}


#: Layouts that each model is trained in by default; the others differ in the mesh's shape alone.
USUAL = {"grid"}
CASES = [
    pytest.param(
        kind, layout, marks=[] if layout in USUAL or kind == next(iter(MODELS)) else [pytest.mark.slow]
    )
    for kind in MODELS
    for layout in LAYOUTS
]


@pytest.mark.parametrize(("kind", "layout"), CASES)
def test_training_is_that_of_plain_tensors(kind, layout):
    create, draw, count, classes = MODELS[kind]
    sizes, data, parameters = LAYOUTS[layout]
    torch.manual_seed(1)
    base, x, y = create(), draw(), torch.arange(count) % classes
    plain = copy.deepcopy(base)
    expected = train(plain, torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9), x, y)

    def work(communicator):
        mesh = init_device_mesh("cpu", sizes)
        model = distribute_module(copy.deepcopy(base), mesh, shard_parameters(parameters))
        given = distribute_tensor(x, mesh, data), distribute_tensor(y, mesh, data)
        loss = train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), *given)
        return loss, {n: t.full_tensor() for n, t in model.state_dict().items()}

    with warnings.catch_warnings():
        warnings.simplefilter("error", TenonWarning)  # all ops of these models have rules
        results = run_ranks(communicator_count(sizes), work)
    for loss, state in results:
        assert loss == pytest.approx(expected, rel=1e-5)
        for name, value in plain.state_dict().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-6)


def communicator_count(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


OPTIMIZERS = [
    "SGD",
    "Adam",
    "AdamW",
    "Adagrad",
    "RMSprop",
    "Adadelta",
    "Adamax",
    "NAdam",
    "RAdam",
    "ASGD",
    "Rprop",
]
OPTIMIZERS += ["Adafactor", "LBFGS", "Muon"]
#: Iterations of a step, 20 by default.
OPTIONS = {"LBFGS": {"max_iter": 4}}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_update_parts_as_they_update_the_whole(name):
    torch.manual_seed(0)
    start, target = torch.randn(5, 4), torch.randn(5, 4)

    def steps(p, t):
        optimizer = getattr(torch.optim, name)([p], lr=0.01, **OPTIONS.get(name, {}))

        def closure():
            optimizer.zero_grad()
            loss = ((p - t) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return p

    expected = steps(nn.Parameter(start.clone()), target)

    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        results = []
        for placements in ([Shard(0)], [Shard(1)], [Replicate()]):
            p = nn.Parameter(distribute_tensor(start, mesh, placements))
            results.append(steps(p, distribute_tensor(target, mesh, [Shard(0)])).full_tensor())
        return results

    for results in run_ranks(2, work):
        for result in results:
            torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-6)


def test_state_of_an_optimizer_is_sharded_as_its_parameter_and_loads_whole_state():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        p = nn.Parameter(distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]))
        optimizer = torch.optim.Adam([p], lr=0.1)
        (p * p).sum().backward()
        optimizer.step()
        state = optimizer.state_dict()
        average = state["state"][0]["exp_avg"]
        state["state"][0]["exp_avg"] = average.full_tensor()
        again = torch.optim.Adam([p], lr=0.1)
        again.load_state_dict(state)
        loaded = again.state[p]["exp_avg"]
        return average.placements, loaded.placements, torch.equal(loaded.to_local(), average.to_local())

    assert run_ranks(2, work) == [((Shard(0),), (Shard(0),), True)] * 2


def test_state_follows_a_parameter_that_was_redistributed():
    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        results = []
        for placements in ([Shard(0)], [Shard(1)]):
            p = nn.Parameter(distribute_tensor(torch.arange(6.0).reshape(2, 3), mesh, [Shard(0)]))
            optimizer = torch.optim.Adam([p], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                (p * p).sum().backward()
                optimizer.step()
                p.data = p.data.redistribute(placements=placements)
            results.append(p.full_tensor().tolist())
        return results

    one, other = run_ranks(2, work)[0]
    assert one == other


@pytest.mark.parametrize("axis", [0, 1])
def test_attention_over_sharded_samples_or_heads(axis):
    torch.manual_seed(0)
    x = torch.randn(4, 2, 5, 8)
    plain = x.clone().requires_grad_()
    expected = nn.functional.scaled_dot_product_attention(plain, plain, plain, is_causal=True)
    expected.square().sum().backward()

    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        d = distribute_tensor(x, mesh, [Shard(axis)]).requires_grad_()
        out = nn.functional.scaled_dot_product_attention(d, d, d, is_causal=True)
        out.square().sum().backward()
        return out.placements, out.full_tensor(), d.grad.placements, d.grad.full_tensor()

    for placements, out, grad_placements, grad in run_ranks(2, work):
        assert placements == grad_placements == (Shard(axis),)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(grad, plain.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_take_sharded_batches(layer):
    torch.manual_seed(0)
    base, x = layer(3, 4, batch_first=True), torch.randn(4, 5, 3)
    expected = base(x)[0]

    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        model = distribute_module(copy.deepcopy(base), mesh)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TenonWarning)
            return model(distribute_tensor(x, mesh, [Shard(0)]))[0].full_tensor()

    for out in run_ranks(2, work):
        torch.testing.assert_close(out, expected)


def test_distribute_module_converts_inputs_and_outputs():
    base, x = mlp(), torch.randn(4, 5)

    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        model = distribute_module(
            copy.deepcopy(base),
            mesh,
            input_fn=lambda module, inputs, mesh: (distribute_tensor(inputs[0], mesh, [Shard(0)]),),
            output_fn=lambda module, out, mesh: out.full_tensor(),
        )
        with pytest.raises(ValueError, match="only be called once"):
            distribute_module(model, mesh)
        return model(x)

    for out in run_ranks(2, work):
        torch.testing.assert_close(out, base(x))


def test_functions_for_inputs_may_omit_the_module():
    def work(communicator):
        mesh = init_device_mesh("cpu", (1,))
        with pytest.warns(FutureWarning, match="Deprecating input_fn"):
            model = distribute_module(
                nn.Linear(5, 2), mesh, input_fn=lambda inputs, mesh: (distribute_tensor(inputs[0], mesh),)
            )
        return model(torch.ones(4, 5)).placements

    assert run_ranks(1, work) == [(Replicate(),)]


def test_checkpointed_and_autocast_forwards():
    torch.manual_seed(0)
    base, x = mlp(), torch.randn(4, 5)

    def forward(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).float().sum()

    plain = copy.deepcopy(base)
    forward(plain, x).backward()

    def work(communicator):
        mesh = init_device_mesh("cpu", (2,))
        model = distribute_module(copy.deepcopy(base), mesh)
        forward(model, distribute_tensor(x, mesh, [Shard(0)])).backward()
        return [p.grad.full_tensor() for p in model.parameters()]

    for grads in run_ranks(2, work):
        for grad, p in zip(grads, plain.parameters(), strict=True):
            torch.testing.assert_close(grad, p.grad, rtol=0.05, atol=0.02)
