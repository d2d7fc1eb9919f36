"""int8 recurrent layers and cells: kernels are the reference, and err less than PyTorch's."""

import copy
import warnings

import numpy as np
import pytest

import tenon
from tenon import nn, ops
from tenon.kernels.backend import backend_named
from tenon.quantization import DYNAMIC
from tenon.tensors.pytree import tree_leaves
from tenon_cpu.onednn import available
from tenon_cpu.onednn.int8 import generated

pytestmark = pytest.mark.together

op = ops.int8_lstm_sequence
CELLS = (nn.LSTMCell, nn.GRUCell, nn.RNNCell)
F = backend_named("cpu").raw
needs_onednn = pytest.mark.skipif(not available(), reason="oneDNN is not available")
needs_exact = pytest.mark.skipif(not generated(), reason="exact 8-bit products are generated for AVX2")


def arguments(inner, width, sizes, biased=True, gates=4):
    rng = np.random.default_rng(0)
    x, *states = (
        rng.normal(size=s).astype(np.float32)
        for s in ((sum(sizes), inner), *((sizes[0], width),) * (1 + (gates == 4)))
    )
    weights = []
    for columns in (inner, width):
        weights.append(rng.integers(-127, 128, (gates * width, columns)).astype(np.int8))
        weights.append(rng.uniform(0.001, 0.005, gates * width).astype(np.float32))
    biases = [rng.normal(size=gates * width).astype(np.float32) if biased else None for _ in range(2)]
    return [x, *states, *weights, *biases]


@needs_exact
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(
    ("inner", "width", "sizes", "biased"),
    [
        (5, 16, (3, 3), True),
        (40, 33, (17, 16, 9, 9, 1), True),
        (8, 1, (1,), False),
        (16, 64, (40,) * 7, False),
    ],
)
@pytest.mark.parametrize(
    ("name", "gates", "attrs"),
    [
        pytest.param("lstm", 4, {}, id="lstm"),
        pytest.param("gru", 3, {}, id="gru", marks=pytest.mark.slow),
        pytest.param("rnn", 1, {}, id="tanh", marks=pytest.mark.slow),
        pytest.param("rnn", 1, {"nonlinearity": "relu"}, id="relu", marks=pytest.mark.slow),
    ],
)
def test_the_kernel_gives_what_the_reference_gives(name, gates, attrs, inner, width, sizes, biased, reverse):
    given = arguments(inner, width, sizes, biased, gates)
    attrs = {**attrs, "sizes": sizes, "reverse": reverse}
    called = getattr(ops, f"int8_{name}_sequence")
    expected = called.forward(np, *given, **attrs)
    kernel = backend_named("cpu").kernels[called]
    taken = [row.name for row, why in backend_named("cpu").choice(called).explain(given, attrs) if not why]
    assert "reference" not in taken

    made = kernel(*given, **attrs)

    for found, wanted in zip(made, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=5e-3)  # a tie may round the other way
        assert np.abs(found - wanted).mean() < 1e-5


@needs_onednn
@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_states_that_are_not_finite_make_their_own_row_nan_and_no_other(odd):
    given = arguments(5, 16, (4, 4))
    given[1][2, 3] = odd

    for made in (
        F.int8_lstm_sequence(*given, sizes=(4, 4)), op.forward(np, *given, sizes=(4, 4)),
    ):  # fmt: skip
        assert np.isnan(made[1][2]).all() and np.isfinite(made[1][[0, 1, 3]]).all()


def test_scales_of_another_dtype_are_taken_as_numbers():
    given = arguments(5, 16, (4, 4))
    wide = [a.astype(np.float64) if place in (4, 6) else a for place, a in enumerate(given)]

    for found, expected in zip(
        F.int8_lstm_sequence(*wide, sizes=(4, 4)), op.forward(np, *given, sizes=(4, 4)), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-3)


def test_the_kernel_does_not_write_its_arguments():
    given = arguments(5, 16, (4, 4))
    before = copy.deepcopy(given)

    F.int8_lstm_sequence(*given, sizes=(4, 4))

    for old, new in zip(before, given, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("LSTM", {}),
        ("LSTM", {"num_layers": 2, "bidirectional": True}),
        ("LSTM", {"batch_first": True}),
        ("GRU", {"num_layers": 2, "bidirectional": True}),
        ("LSTMCell", {}),
        ("GRUCell", {}),
        ("RNNCell", {"nonlinearity": "relu"}),
    ],
    ids=str,
)
def test_a_layer_errs_less_than_that_of_torch(kind, options):
    torch = pytest.importorskip("torch")
    tenon.manual_seed(0)
    mine, theirs = getattr(nn, kind), getattr(torch.nn, kind)
    layer, x = mine(24, 40, **options).eval(), tenon.randn(*([6] if mine in CELLS else [6, 5]), 24)
    peer = torch.nn.Sequential(theirs(24, 40, **options))
    peer[0].load_state_dict({k: torch.from_numpy(v.numpy()) for k, v in layer.state_dict().items()})
    with warnings.catch_warnings(action="ignore"):
        peer = torch.ao.quantization.quantize_dynamic(peer, {theirs}, dtype=torch.qint8)
        their = [t.detach().numpy() for t in tree_leaves(peer(torch.from_numpy(x.numpy())))]

    small = tenon.quantize(layer, "int8-dynamic").model

    assert type(small) is DYNAMIC[mine]
    for made, other, exact in zip(tree_leaves(small(x)), their, tree_leaves(layer(x)), strict=True):
        exact = exact.detach().numpy()
        assert made.shape == exact.shape
        assert np.abs(made.numpy() - exact).max() < np.abs(other - exact).max()


def test_sequences_of_different_lengths_and_single_ones_are_taken():
    tenon.manual_seed(0)
    layer, x = nn.LSTM(8, 16, bidirectional=True).eval(), tenon.randn(5, 3, 8)
    small = tenon.quantize(layer, "int8-dynamic").model
    packed = nn.utils.rnn.pack_padded_sequence(x, tenon.tensor([5, 3, 2]))

    for given in (packed, x[:, 0]):
        (made, _), (expected, _) = small(given), layer(given)
        made, expected = (m.data if given is packed else m for m in (made, expected))
        np.testing.assert_allclose(made.numpy(), expected.detach().numpy(), atol=0.02)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.RNN(8, 16, nonlinearity="relu", batch_first=True), (3, 5, 8)),
        (lambda: nn.GRU(8, 16, bidirectional=True), (5, 3, 8)),
        (lambda: nn.GRUCell(8, 16), (3, 8)),
        (lambda: nn.RNNCell(8, 16, bias=False), (8,)),
        (lambda: nn.LSTMCell(8, 16), (3, 8)),
    ],
    ids=["rnn", "gru", "gru cell", "rnn cell", "lstm cell"],
)
def test_every_kind_stays_near_counts_its_parameters_and_comes_back_from_a_file(make, shape, tmp_path):
    tenon.manual_seed(0)
    model, x = nn.ModuleDict({"memory": make()}).eval(), tenon.randn(*shape)

    small, receipt = tenon.quantize(model, "int8-dynamic", example=None)
    tenon.save(small.state_dict(), tmp_path / "small.safetensors")
    loaded = tenon.compress.load(
        nn.ModuleDict({"memory": make()}), tenon.load(tmp_path / "small.safetensors")
    )

    expected, made = tree_leaves(model["memory"](x)), tree_leaves(small["memory"](x))
    again = tree_leaves(loaded["memory"](x))
    copied = tree_leaves(copy.deepcopy(small)["memory"](x))
    for e, m, *others in zip(expected, made, again, copied, strict=True):
        np.testing.assert_allclose(m.numpy(), e.detach().numpy(), atol=0.03)
        assert all(tenon.equal(m, other) for other in others)
    assert receipt["memory"].parameters.ratio == 1


def test_a_layer_comes_back_from_a_file_and_draws_no_random_numbers(tmp_path):
    layer, x = nn.LSTM(8, 16, 2, batch_first=True).eval(), tenon.randn(3, 5, 8)
    small = tenon.quantize(layer, "int8-dynamic").model
    tenon.save(small.state_dict(), tmp_path / "small.safetensors")
    state = tenon.get_rng_state()

    loaded = tenon.compress.load(layer, tenon.load(tmp_path / "small.safetensors"))

    assert tenon.equal(tenon.get_rng_state(), state)
    np.testing.assert_array_equal(loaded(x)[0].numpy(), small(x)[0].numpy())
    np.testing.assert_array_equal(copy.deepcopy(small)(x)[0].numpy(), small(x)[0].numpy())
    with tenon.no_grad():
        np.testing.assert_allclose(tenon.compile(small)(x)[0].numpy(), small(x)[0].numpy(), atol=1e-5)
    assert set(loaded.state_dict()) == {
        f"{kind}_{part}_l{n}{end}" for n in range(2) for part in ("ih", "hh") for kind, end in (
            ("weight", ""), ("weight", "_scale"), ("bias", ""),
        )
    } | {"quantized_structure"}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({0: np.zeros((8, 5))}, "must be float32 of 2 axes"),
        ({3: np.zeros((64, 4), np.int8)}, "has 5 features"),
        ({1: np.zeros((3, 16), np.float32)}, "do not fit steps"),
    ],
    ids=["dtype", "width", "states"],
)
def test_what_does_not_fit_is_named(change, words):
    given = arguments(5, 16, (4, 4))
    for place, value in change.items():
        given[place] = value

    with pytest.raises((tenon.errors.ShapeError, tenon.errors.DTypeError), match=words):
        tenon.ops.int8_lstm_sequence(
            *(None if a is None else tenon.from_numpy(a) for a in given), sizes=(4, 4)
        )
