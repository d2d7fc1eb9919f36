"""The parts of a traced module are called alone, before and after the way through a file."""

import copy
import io
import json
import zipfile

import pytest

import tenon
from tenon import jit, nn
from tenon.errors import BundleError, ShapeError, UnsupportedError


class Scaled(nn.Module):
    """A part with an argument that is no tensor, an optional one, and a result that is none."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.offset = tenon.full((4,), 2.0)

    def forward(self, x, factor=1.0, *, shift=None, first=None):
        return self.linear(x) * factor + self.offset + (0 if shift is None else shift), first


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.scaled = Scaled()
        self.again = self.first
        self.unused = nn.Linear(2, 2)
        self.inplace = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.block(self.first(x))
        return self.inplace(self.scaled(y, 3.0, shift=y.sin())[0])


def reread(traced):
    return jit.load(io.BytesIO(traced.save_to_buffer()))


@pytest.fixture(scope="module")
def nets():
    tenon.manual_seed(0)
    net = Net().eval()
    traced = jit.trace(net, tenon.randn(2, 3))
    return net, traced, reread(traced)


@pytest.mark.parametrize("number", [1, 2])
def test_a_part_is_called_alone(nets, number):
    net, traced = nets[0], nets[number]
    x, y = tenon.randn(5, 3), tenon.randn(7, 4)

    assert tenon.equal(traced.first(x), net.first(x))
    assert tenon.equal(traced.block(y), net.block(y))
    assert tenon.equal(traced.block.get_submodule("1")(y[:, :1]), y[:, :1].tanh())
    result, none = traced.scaled(y, shift=y + 1)
    assert tenon.equal(result, net.scaled(y, 3.0, shift=y + 1)[0]) and none is None
    assert tenon.equal(traced.scaled.linear(y), net.scaled.linear(y))
    assert traced.first.code.splitlines()[0] == "def forward(self, input):"
    assert traced.scaled.code.splitlines()[0] == "def forward(self, x, shift):"
    assert traced.again is traced.first and "linear" in str(traced.first.graph)
    traced.first(x).sum().backward()
    assert traced.first.weight.grad is not None


@pytest.mark.parametrize("number", [1, 2])
def test_a_part_that_cannot_be_called_says_why(nets, number):
    traced = nets[number]
    with pytest.raises(UnsupportedError, match=r"Linear is part of a trace.* alone: it was not called while"):
        traced.unused(tenon.ones(1, 2))
    with pytest.raises(
        UnsupportedError, match=r"alone: the traced function changes an argument in place.*\. Trace"
    ):
        traced.inplace(tenon.ones(1, 2))
    with pytest.raises(ShapeError, match=r"dimension 1 is fixed \(it did not change while the whole was"):
        traced.first(tenon.ones(1, 2))


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Pair()

    def forward(self, x):
        return self.part([x, 2.0])


class Pair(nn.Module):
    def forward(self, pair):
        return pair[0] + pair[1]


def test_the_reason_is_a_sentence_of_its_own():
    traced = tenon.jit.trace(Mixed(), tenon.ones(2))
    with pytest.raises(
        UnsupportedError, match=r"alone: it is called with a container .* other values\. Trace"
    ):
        traced.part([tenon.ones(2), 2.0])


@pytest.mark.parametrize("left_out", ["methods/forward.json", "parts/1/forward.json"])
def test_a_missing_graph_is_named(nets, left_out):
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(nets[1].save_to_buffer())) as source,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as target,
    ):
        for name in source.namelist():
            if name != left_out:
                target.writestr(name, source.read(name))
    file.seek(0)
    with pytest.raises(RuntimeError, match=f"{left_out} is missing"):
        jit.load(file)


def test_parts_share_memory_with_the_whole_and_are_copied_and_converted_with_it(nets):
    traced = copy.deepcopy(nets[1])
    y = tenon.randn(2, 4)
    with tenon.no_grad():
        traced.first.weight.zero_()
        traced.scaled.CONSTANTS.t0.zero_()
    assert tenon.equal(traced.first(tenon.ones(1, 3))[0], traced.first.bias)
    assert not tenon.equal(traced.scaled(y, y)[0], nets[1].scaled(y, y)[0])
    doubled = reread(traced.double())
    assert doubled.block(y.double()).dtype is tenon.float64
    assert reread(doubled.block)(y.double()).equal(traced.block(y.double()))


def test_a_shared_part_takes_the_sizes_of_all_its_calls():
    class Pyramid(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv1d(2, 2, 3)

        def forward(self, x, y):
            return self.head(x).sum(), self.head(y).sum()

    net = Pyramid()
    traced = jit.trace(net, (tenon.ones(1, 2, 5), tenon.ones(1, 2, 9)), dynamic={}, check_trace=False)
    x = tenon.randn(1, 2, 12)
    assert tenon.equal(traced.head(x), net.head(x))


def test_parts_of_a_trace_inside_another_model_stay_callable(nets):
    net, traced, _ = nets
    outer = reread(jit.trace(nn.Sequential(traced, nn.Tanh()), tenon.randn(2, 3), dynamic={}))
    y = tenon.randn(7, 4)
    assert tenon.equal(outer.get_submodule("0.block")(y), net.block(y))


def test_containers_with_other_values_and_numbers_of_sizes_are_refused():
    class Inner(nn.Module):
        def forward(self, pair, length=0):
            return pair[0] * 2 + length

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed, self.sized = Inner(), Inner()

        def forward(self, x):
            return self.mixed((x, None)) + self.sized((x,), x.shape[0])

    traced = jit.trace(Outer(), tenon.ones(2, 3))
    with pytest.raises(UnsupportedError, match="a container of tensors and other values"):
        traced.mixed((tenon.ones(2, 3), None))
    with pytest.raises(UnsupportedError, match="numbers that follow from the sizes of tensors"):
        traced.sized((tenon.ones(2, 3),))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["root"]["children"]["first"]["methods"].update(forward={}),
        lambda d: d["root"]["children"]["first"]["methods"].update(other={}),
        lambda d: d["root"]["children"]["first"].update(methods=3),
        lambda d: d["root"]["children"]["unused"].update({"not alone": 3}),
        lambda d: d["root"]["children"]["unused"].update(methods=d["methods"]),
        lambda d: d["root"]["children"]["first"]["methods"]["forward"].update(paths={"weight": "bias"}),
    ],
)
def test_a_hostile_description_of_a_part_is_refused(nets, change):
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(nets[1].save_to_buffer())) as source,
        zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target,
    ):
        for name in source.namelist():
            data = source.read(name)
            if name == "module.json":
                document = json.loads(data)
                change(document)
                data = json.dumps(document).encode()
            target.writestr(name, data)
    with pytest.raises(BundleError, match="the file"):
        jit.load(io.BytesIO(out.getvalue()))


def test_parts_are_traced_as_they_were_when_the_whole_was_traced():
    net = Net().eval()
    with tenon.amp.autocast("cpu", dtype=tenon.bfloat16):
        cast = jit.trace(net, tenon.randn(2, 3))
    traced = jit.trace(net, tenon.randn(2, 3))
    y = tenon.randn(5, 4)
    expected = net.block(y)
    net.block.add_module("1", nn.ReLU())
    net.block.append(nn.Dropout())
    net.block.train()
    net.block.register_forward_hook(lambda module, args, output: output + 1)
    net.scaled.offset = None

    assert tenon.equal(traced.block(y), expected)
    assert traced.scaled(y, y)[0].shape == y.shape
    assert cast.block(y.bfloat16()).dtype is tenon.bfloat16
    with tenon.no_grad():
        net.block[0].weight.zero_()
    assert tenon.equal(traced.block(y)[0], net.block[0].bias.tanh())


def test_parts_follow_conversions_of_the_model_before_their_trace():
    net = Net().eval()
    traced, read = (jit.trace(net, tenon.randn(2, 3)) for _ in range(2))
    other = copy.deepcopy(read)
    traced.double()
    y = tenon.randn(5, 4).double()

    assert tenon.equal(traced.block(y), net.block(y))
    assert traced.scaled(y, y)[0].dtype is tenon.float64
    assert tenon.equal(reread(read).block(y), net.block(y))
    assert other.block(y.float()).dtype is tenon.float32


def test_a_pending_part_keeps_a_small_example_of_its_activations():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.act, self.pick = nn.ReLU(), nn.Embedding(9, 2)

        def forward(self, x, indices):
            return self.act(x.expand(400, 400)).sum() + self.pick(indices).sum()

    net = Wide()
    traced = jit.trace(net, (tenon.randn(1), tenon.arange(9)), dynamic={}, check_trace=False)
    example = traced.act.__dict__["_pending"].part.call[0][0]

    assert example.values.size < 20_000 and example.tensor().shape == (400, 400)
    x = tenon.randn(400, 400)
    assert tenon.equal(traced.act(x), x.relu())
    assert tenon.equal(traced.pick(tenon.arange(9)), net.pick.weight)
