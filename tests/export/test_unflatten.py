"""``unflatten``: a captured graph as a module with its layers, and all that can be done with such a module."""

import copy

import pytest

import tenon
from tenon import fx, nn
from tenon.errors import ArgumentError
from tenon.export import capture, export, load, save, unflatten, verify
from tenon.quantization import DynamicLSTM, StaticConv, StaticLinear
from tenon.testing.suites.target_models import MODELS

pytestmark = pytest.mark.together


class Net(nn.Module):
    """Convolutions with a norm, a residual sum, and a linear layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.twice, self.head = nn.Linear(128, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = self.features(x)
        x = (x + self.inner(x).relu()).flatten(1)
        return self.head(self.twice(self.twice(x).relu()).relu())


@pytest.fixture
def net():
    tenon.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x():
    tenon.manual_seed(1)
    return tenon.randn(4, 1, 8, 8)


def loaded(model, x, folder):
    save(export(model, (x,)), folder / "net.pt2")
    return unflatten(load(folder / "net.pt2"))


#: The forms in which a program travels, each a module again.
FORMS = {
    "fx": lambda model, x, folder: fx.symbolic_trace(model),
    "graph": lambda model, x, folder: unflatten(capture(model, x)),
    "program": lambda model, x, folder: unflatten(export(model, (x,))),
    "file": loaded,
}


@pytest.fixture(
    params=[pytest.param(form, marks=() if form == "file" else pytest.mark.slow) for form in FORMS]
)
def traveller(request, net, x, tmp_path):
    return FORMS[request.param](net, x, tmp_path)


def test_layers_are_those_of_the_model_again(net, x):
    graph = capture(net, x)

    made = unflatten(graph)

    kinds = {path: type(layer) for path, layer in made.named_modules() if path and not layer._modules}
    assert kinds == {
        "features.0": nn.Conv2d, "features.1": nn.BatchNorm2d, "inner": nn.Conv2d, "twice": nn.Linear, "head": nn.Linear,
    }  # fmt: skip
    assert {k: tuple(v.shape) for k, v in made.state_dict().items()} == {
        k: tuple(v.shape) for k, v in net.state_dict().items()
    }
    assert sum(node.op == "call_module" and node.target == "twice" for node in made.graph.nodes) == 2
    assert repr(made.inner) == repr(net.inner) and not made.training
    assert made.head.weight is not net.head.weight, "it has copies"
    assert tenon.equal(made(x), net(x))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_computes_the_same_as_a_module_with_layers(name):
    example = MODELS[name]()
    with tenon.no_grad():
        expected = example.model(*example.args)

    made = unflatten(capture(example.model, *example.args))

    with tenon.no_grad():
        result = made(*example.args)
    for mine, own in zip(
        tenon.utils._pytree.tree_leaves(result), tenon.utils._pytree.tree_leaves(expected), strict=True
    ):
        assert tenon.equal(mine, own)


class Holder(nn.Module):
    """Calls a layer, so that it has a path."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args, **kwargs):
        return self.layer(*args, **kwargs)


MASK = {"attn_mask": tenon.ones(5, 5).triu(1).bool(), "need_weights": False}
#: Layers of several ops; which arguments, in which shapes, they are called with.
COMPOSITE = {
    "lstm": (lambda: nn.LSTM(3, 4, batch_first=True), [(2, 5, 3)], {}),
    "lstm unbatched, projected": (lambda: nn.LSTM(3, 4, proj_size=2), [(5, 3)], {}),
    "gru, two layers, both ways": (lambda: nn.GRU(3, 4, 2, bidirectional=True), [(5, 2, 3)], {}),
    "rnn with a first state": (lambda: nn.RNN(3, 4, nonlinearity="relu"), [(5, 2, 3), (1, 2, 4)], {}),
    "lstm cell": (lambda: nn.LSTMCell(3, 4), [(2, 3)], {}),
    "gru cell": (lambda: nn.GRUCell(3, 4, bias=False), [(2, 3), (2, 4)], {}),
    "convolution 1d": (lambda: nn.ConvTranspose1d(3, 6, 3, groups=3, dilation=2, bias=False), [(1, 3, 5)], {}),
    "convolution 2d": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, output_padding=1), [(1, 3, 5, 5)], {}),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), [(2, 5, 8), (2, 6, 8), (2, 6, 8)], {}),
    "attention of widths": (lambda: nn.MultiheadAttention(8, 4, kdim=6, vdim=4), [(5, 2, 8), (3, 2, 6), (3, 2, 4)], {}),
    "masked attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), [(2, 5, 8)] * 3, MASK),
    "learned key": (lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), [(5, 2, 8)] * 3, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITE)
def test_layers_of_several_ops_are_layers_again(name):
    make, shapes, kwargs = COMPOSITE[name]
    tenon.manual_seed(0)
    holder, args = Holder(make()).eval(), [tenon.randn(*shape) for shape in shapes]

    made = unflatten(capture(holder, *args, kwargs=kwargs))

    layer = made.layer
    assert type(layer) is type(holder.layer) and repr(layer) == repr(holder.layer)
    assert {node.name.partition("_")[0] for node in made.graph.nodes if node.op == "call_function"} <= {
        "getitem"
    }
    assert {k: v.shape for k, v in made.state_dict().items()} == {
        k: v.shape for k, v in holder.state_dict().items()
    }
    given = [tenon.randn(*shape) for shape in shapes]
    leaves = tenon.utils._pytree.tree_leaves
    for mine, own in zip(leaves(made(*given, **kwargs)), leaves(holder(*given, **kwargs)), strict=True):
        assert mine is own is None or tenon.equal(mine, own)


class Coder(nn.Module):
    """Self-attention, cross-attention whose keys are computed once, and a GRU that runs twice."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True) for _ in range(2))
        self.gru = nn.GRU(8, 8, batch_first=True)

    def forward(self, x, memory):
        for layer in self.layers:
            x = layer(x, memory)
        first, state = self.gru(x)
        return self.gru(first.relu(), state)[0]


DROPPING = {
    "lstm": lambda: (nn.LSTM(3, 4, 2, dropout=0.5), (tenon.randn(5, 2, 3),)),
    "gru": lambda: (nn.GRU(3, 4, 2, dropout=0.3, bidirectional=True), (tenon.randn(5, 2, 3),)),
    "attention": lambda: (nn.MultiheadAttention(8, 2, dropout=0.2), (tenon.randn(5, 2, 8),) * 3),
}


@pytest.mark.parametrize("name", ["lstm", "attention", pytest.param("gru", marks=pytest.mark.slow)])
def test_dropout_inside_of_layers_is_theirs_again(name):
    tenon.manual_seed(0)
    layer, args = DROPPING[name]()
    model = Holder(layer).train()

    made = unflatten(capture(model, *args))

    assert type(made.layer) is type(layer) and made.layer.training and not made.training
    assert made.layer.dropout == layer.dropout
    results = []
    for each in (model, made):
        tenon.manual_seed(1)
        results.append(each(*args)[0])
    assert tenon.equal(*results) and not tenon.equal(made(*args)[0], results[0])
    assert tenon.equal(made.eval()(*args)[0], model.eval()(*args)[0])


@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences_are_captured_for_their_lengths(batch_first):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(3, 4, bidirectional=True, batch_first=batch_first)

        def forward(self, x):
            packed = nn.utils.rnn.pack_padded_sequence(
                x, tenon.tensor([3, 5]), batch_first=batch_first, enforce_sorted=False
            )
            return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=batch_first)[0]

    model, x = Tagger().eval(), tenon.randn(*((2, 5) if batch_first else (5, 2)), 3)
    made = unflatten(capture(model, tenon.randn(x.shape)))
    assert tenon.equal(made(x), model(x)) and set(made.state_dict()) == set(model.state_dict())


def test_layers_that_share_moved_arguments_or_run_twice_are_found():
    model = Coder().eval()
    x, memory = tenon.randn(2, 5, 8), tenon.randn(2, 6, 8)

    made = unflatten(capture(model, x, memory, dynamic={"x": {0: "n"}, "memory": {0: "n"}}))

    calls = [node.target for node in made.graph.nodes if node.op == "call_module"]
    assert calls.count("gru") == 2 and sum("attn" in target for target in calls) == 4
    for count in (1, 2, 7):
        x, memory = tenon.randn(count, 5, 8), tenon.randn(count, 6, 8)
        tenon.testing.assert_close(made(x, memory), model(x, memory))


def test_what_only_looks_like_a_layer_of_several_ops_stays_ops():
    class Other(Holder):
        def forward(self, x):
            y, state = self.layer(x)
            return y, state, self.layer.weight_hh_l0.sum()

    class Scaled(Holder):
        def forward(self, x):
            y = nn.functional.conv_transpose2d(x, self.layer.weight, None, 2)
            return y * 2 + self.layer.bias[:, None, None]

    for model, x in (
        (Other(nn.GRU(3, 4)), tenon.randn(5, 2, 3)),
        (Scaled(nn.ConvTranspose2d(3, 4, 2, 2)), tenon.randn(1, 3, 4, 4)),
    ):
        made = unflatten(capture(model.eval(), x))

        assert not any(node.op == "call_module" for node in made.graph.nodes)
        leaves = tenon.utils._pytree.tree_leaves
        assert all(tenon.equal(a, b) for a, b in zip(leaves(made(x)), leaves(model(x)), strict=True))


def test_recurrent_and_attention_layers_of_a_graph_are_quantized_and_pruned():
    lstm, x = Holder(nn.LSTM(16, 32, batch_first=True)).eval(), tenon.randn(4, 5, 16)
    small = tenon.quantize(unflatten(capture(lstm, x)), "int8-dynamic").model
    assert isinstance(small.layer, DynamicLSTM)
    assert (small(x)[0] - lstm(x)[0]).abs().max() < 0.05

    encoder = Holder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)).eval()
    made = unflatten(capture(encoder, x))
    tenon.prune.mask_channels(made, x, 0.5)
    masked = made(x)
    tenon.prune.compact(made, x, seconds=0)
    assert sum(p.numel() for p in made.parameters()) < 0.8 * sum(p.numel() for p in encoder.parameters())
    tenon.testing.assert_close(made(x), masked, rtol=1e-4, atol=1e-5)


def test_weights_that_are_used_in_another_way_stay_ops():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.free = nn.Embedding(7, 4), nn.Linear(4, 4)
            self.bare = nn.Parameter(tenon.randn(4, 4))

        def forward(self, i):
            y = self.free(self.table(i)) @ self.bare
            return nn.functional.linear(y, self.table.weight), self.free.weight.sum()

    model, i = Tied().eval(), tenon.tensor([1, 5])

    made = unflatten(capture(model, i))

    assert not any(node.op == "call_module" for node in made.graph.nodes)
    assert made.state_dict().keys() == {"table.weight", "free.weight", "free.bias", "bare"}
    assert all(tenon.equal(mine, own) for mine, own in zip(made(i), model(i), strict=True))


def test_sizes_that_change_still_do(net, x):
    made = unflatten(capture(net, x, dynamic={"x": {0: "batch"}}))

    for count in (1, 4, 9):
        given = tenon.randn(count, 1, 8, 8)
        tenon.testing.assert_close(made(given), net(given))


def test_an_adapter_of_arguments_is_refused(net, x):
    with pytest.raises(ArgumentError, match="flat_args_adapter"):
        unflatten(export(net, (x,)), flat_args_adapter=object())


def test_what_travelled_is_compiled(net, x, traveller):
    step = tenon.compile(traveller, fullgraph=True)

    for _ in range(3):
        result = step(x)

    assert step.programs
    tenon.testing.assert_close(result, net(x))


def test_what_travelled_is_quantized_and_exported(net, x, traveller, tmp_path):
    small = tenon.quantize(traveller, "int8", [x]).model

    assert (type(small.inner), type(small.head)) == (StaticConv, StaticLinear)
    expected = net(x)
    assert (small(x) - expected).abs().max() < 0.05 * expected.abs().max()
    save(small.eval(), tmp_path / "bundle", (x,), targets=["numpy"])
    assert verify(tmp_path / "bundle").passed


def test_what_travelled_is_pruned_and_exported(net, x, traveller, tmp_path):
    again = copy.deepcopy(traveller)
    tenon.prune.mask_channels(traveller, x, 0.5)
    masked = traveller(x)

    tenon.prune.compact(traveller, x, seconds=0)

    assert traveller.head.weight.shape[1] < 128 and traveller.inner.weight.shape[0] < 8
    tenon.testing.assert_close(traveller(x), masked, rtol=1e-4, atol=1e-5)
    tenon.prune.load(again, traveller.state_dict())
    tenon.testing.assert_close(again(x), masked, rtol=1e-4, atol=1e-5)
    save(again, tmp_path / "bundle", (x,), targets=["numpy"])
    assert verify(tmp_path / "bundle").passed


def test_quantize_takes_a_graph_or_a_program_itself(net, x):
    for given in (capture(net, x), export(net, (x,))):
        small = tenon.quantize(given, "int8", [x]).model
        assert type(small.head) is StaticLinear


@pytest.mark.slow
def test_a_graph_of_the_pruned_and_quantized_model_is_what_targets_export(net, x, tmp_path):
    made = unflatten(capture(net, x))
    tenon.prune.mask_channels(made, x, 0.5)
    tenon.prune.compact(made, x, seconds=0)
    small = tenon.quantize(capture(made, x), "int8", [x]).model

    graph = capture(small, x)
    save(graph, tmp_path / "bundle", targets=["numpy", "c"])

    assert {"int8_conv", "int8_linear"} <= {node.name for node in graph.calls}
    assert verify(tmp_path / "bundle").passed
