"""Random numbers whose shape or range follows from sizes that may change."""

import io

import pytest

import tenon as torch
from tenon.errors import BundleError
from tenon.export import CompiledRunner, Dim, Runner, capture, export, load, save, unflatten
from tenon.export.schema import from_document, to_document
from tenon.nn import functional as F

ANY = {"x": {0: "n"}}

FUNCTIONS = {
    "rand": lambda x: torch.rand(x.shape[0], 3),
    "randn of a quotient": lambda x: torch.randn(x.shape[0] // 2 + 1),
    "randn_like": lambda x: torch.randn_like(x) + x,
    "like a transposed tensor": lambda x: torch.rand_like(x.t()),
    "randint to a size": lambda x: torch.randint(0, x.shape[0], (x.shape[0],)),
    "randperm": lambda x: x[torch.randperm(x.shape[0])],
    "poisson": lambda x: torch.poisson(x.abs()),
    "multinomial": lambda x: torch.multinomial(x.abs() + 1, 2),
    "dropout": lambda x: F.dropout(x, 0.5),
}


@pytest.mark.together
@pytest.mark.parametrize("name", FUNCTIONS)
def test_draws_are_those_of_the_function(name):
    function = FUNCTIONS[name]

    graph = capture(function, torch.randn(6, 4), dynamic=ANY)

    for run in (graph.run, Runner(graph), CompiledRunner(graph), unflatten(graph)):
        for size in (1, 5, 9):
            x = torch.randn(size, 4)
            torch.manual_seed(size)
            expected = function(x)
            torch.manual_seed(size)
            assert torch.equal(run(x), expected)


class Noise(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return torch.randn(n, 3), torch.randint(0, n, (n // 2,)), torch.poisson(x.abs())


def test_files_hold_draws_of_free_sizes(tmp_path):
    program = export(Noise(), (torch.ones(6, 4),), dynamic_shapes={"x": {0: Dim("n")}})
    save(program, tmp_path / "noise.pt2")

    x = torch.ones(9, 4)
    torch.manual_seed(0)
    expected = Noise()(x)
    torch.manual_seed(0)
    for drawn, own in zip(load(tmp_path / "noise.pt2").module()(x), expected, strict=True):
        assert torch.equal(drawn, own)


@pytest.mark.parametrize(
    ("position", "damaged", "match"),
    [
        (1, [{"size": "n + 1"}, 3], "draws .*n \\+ 1"),
        (1, [{"size": "batch"}, 3], "a size is written 'batch'"),
        (1, [1.5, 3], "parameters of a random draw"),
        (3, [["low", {"size": "n"}], ["replacement", {"size": "n"}]], "parameters of a random draw"),
    ],
)
def test_damaged_draws_are_refused(position, damaged, match):
    graph = capture(lambda x: torch.rand(x.shape[0], 3), torch.ones(6, 4), dynamic=ANY)
    document, arrays = to_document(graph)
    (call,) = (node for node in document["nodes"] if node["kind"] == "call")
    call["attrs"]["make"]["draw"][position] = damaged

    with pytest.raises(BundleError, match=match):
        from_document(document, arrays, "graph.json")


@pytest.mark.filterwarnings("ignore:Trace had nondeterministic nodes")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.rand_like(x),
        lambda x: F.dropout(x, 0.5, True) + torch.randn(x.shape[0], 1),
        lambda x: x[torch.randperm(x.shape[0])],
    ],
)
def test_traces_draw_for_the_sizes_of_each_call(function):
    traced = torch.jit.trace(function, torch.rand(4, 3), check_trace=False)
    loaded = torch.jit.load(io.BytesIO(traced.save_to_buffer()))

    for size in (4, 2, 7):
        results = []
        for each in (function, traced, loaded):
            torch.manual_seed(size)
            results.append(each(torch.ones(size, 3)))
        assert all(torch.equal(result, results[0]) for result in results)
