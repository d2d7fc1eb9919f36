"""``quantize``: the resulting layers, saving, and errors."""

import copy
import pickle

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import ArgumentError, CheckpointError, QuantizationError
from tenon.quantization import (
    DynamicLinear,
    DynamicLSTM,
    QuantizedEmbedding,
    from_int4,
    from_int8,
    to_int4,
    to_int8,
)
from tenon.tensors.pytree import tree_leaves

pytestmark = pytest.mark.together

SPECS = ("int8-dynamic", "int8-weights", "int4-weights", "bfloat16-weights", "bfloat16")


class Reader(nn.Module):
    """A text classifier: an embedding, an LSTM, linear layers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 24)
        self.memory = nn.LSTM(24, 32, batch_first=True)
        self.head = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 3, bias=False))

    def forward(self, x):
        return self.head(self.memory(self.words(x))[0][:, -1])


@pytest.fixture
def reader():
    tenon.manual_seed(0)
    return Reader().eval()


WORDS = tenon.tensor(np.random.default_rng(0).integers(0, 50, (4, 7)))


def result(model, x=WORDS):
    with tenon.no_grad():
        return model(x).numpy()


@pytest.mark.parametrize(("spec", "most"), [*zip(SPECS, (0.02, 0.02, 0.2, 0.01, 0.02), strict=True)])
def test_outputs_stay_near_and_the_model_as_it_was(reader, spec, most):
    before = copy.deepcopy(reader.state_dict())
    expected = result(reader)

    small, receipt = tenon.quantize(reader, spec, example=WORDS, batch_sizes=(2,))

    assert 0 < np.abs(result(small) - expected).max() < most
    assert receipt.total.bytes.ratio < 0.7 and list(receipt.total.seconds) == [2]
    assert receipt.output_change == pytest.approx(np.abs(result(small) - expected).max(), rel=1e-5)
    assert all(tenon.equal(before[k], v) for k, v in reader.state_dict().items())


def test_without_an_example_a_receipt_has_sizes_alone(reader, capsys):
    _, receipt = tenon.quantize(reader, "int8-dynamic")

    said = capsys.readouterr().out
    assert "Nothing was run. Give an example" in said and "head.0: Linear -> DynamicLinear" in said
    assert receipt.total.bytes.ratio < 0.5 and receipt.total.seconds == {} and np.isnan(receipt.output_change)
    tenon.quantization.quantize_dynamic(reader)
    assert not capsys.readouterr().out


def test_dynamic_int8_takes_the_place_of_products_and_tables(reader):
    small = tenon.quantize(reader, "int8-dynamic").model

    assert [type(small.words), type(small.head[0]), type(small.head[2])] == [
        QuantizedEmbedding, DynamicLinear, DynamicLinear,
    ]  # fmt: skip
    receipt = tenon.quantize(
        nn.Sequential(*(nn.Linear(2, 2) for _ in range(7))), "int4-weights", tenon.ones(1, 2)
    ).receipt
    assert receipt.notes == (
        "stored as few bits and computed as floats, which is no faster: 0, 1, 2, 3, 4 and 2 more",
    )
    assert type(small.memory) is DynamicLSTM and small.memory.state_dict()["weight_hh_l0"].dtype is tenon.int8
    assert not small.training


@pytest.mark.parametrize(
    ("spec", "share"), [("int8-dynamic", 0.27), ("int8-weights", 0.27), ("int4-weights", 0.16)]
)
def test_files_are_as_small_as_they_should(spec, share, tmp_path):
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    small = tenon.quantize(model, spec).model
    for name, saved in (("small", small), ("large", model)):
        tenon.save(saved.state_dict(), tmp_path / f"{name}.safetensors")

    small, large = ((tmp_path / f"{name}.safetensors").stat().st_size for name in ("small", "large"))

    assert small <= share * large


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("suffix", [pytest.param("pt", marks=pytest.mark.slow), "safetensors"])
def test_a_file_gives_the_same_model_back(reader, spec, suffix, tmp_path):
    small = tenon.quantize(reader, spec).model
    tenon.save(small.state_dict(), tmp_path / f"model.{suffix}")

    loaded = tenon.quantization.load(Reader().eval(), tenon.load(tmp_path / f"model.{suffix}"))

    np.testing.assert_array_equal(result(loaded), result(small))
    assert loaded.state_dict().keys() == small.state_dict().keys()


@pytest.mark.parametrize("spec", SPECS)
def test_copies_pickles_and_compiled_functions_give_the_same(reader, spec):
    small = tenon.quantize(reader, spec).model
    expected = result(small)

    np.testing.assert_array_equal(result(copy.deepcopy(small)), expected)
    np.testing.assert_allclose(result(pickle.loads(pickle.dumps(small))), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result(tenon.compile(small)), expected, rtol=1e-5, atol=1e-6)
    small.load_state_dict(copy.deepcopy(small.state_dict()))
    np.testing.assert_array_equal(result(small), expected)


def test_weights_stay_read_only_through_copies_loads_and_casts():
    layer = tenon.quantize(nn.Linear(8, 4), "int8-dynamic").model
    state = copy.deepcopy(layer.state_dict())
    layer.load_state_dict(state)

    for made in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), layer.double().float()):
        assert not any(held.raw.flags.writeable for held in (made._buffers["weight"], made.scale))
    assert state["weight"].raw.flags.writeable


def test_a_layer_that_is_shared_stays_shared():
    layer = nn.Linear(6, 6)
    model = tenon.quantize(nn.Sequential(layer, nn.ReLU(), layer), "int8-dynamic").model

    assert model[0] is model[2] and type(model[0]) is DynamicLinear


class Tied(nn.Module):
    """An output layer whose weight is that of the embedding."""

    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(50, 24), nn.Linear(24, 50, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(self.words(x))


@pytest.mark.parametrize("spec", SPECS)
def test_a_weight_that_layers_share_is_stored_once(spec, tmp_path):
    model = Tied()

    small, receipt = tenon.quantize(model, spec)

    file = tmp_path / "small.safetensors"
    tenon.save(small.state_dict(), file)
    loaded = tenon.compress.load(model, tenon.load(file))
    for each in (small, loaded):
        held = [{id(t) for t in layer.buffers() if t.numel()} for layer in (each.words, each.out)]
        assert held[0] & held[1] and tenon.equal(each(WORDS), small(WORDS))
    assert receipt.total.parameters.after == 1200
    structure_of_both = 2400  # bytes at most, names and JSON
    assert file.stat().st_size < sum(t.nbytes for t in small.words.buffers()) + structure_of_both


def test_masks_and_parametrizations_are_baked_in():
    tenon.manual_seed(0)
    layer = nn.Linear(16, 8)
    nn.utils.prune.l1_unstructured(layer, "weight", 0.5)
    nn.utils.parametrizations.weight_norm(layer)
    x = tenon.randn(3, 16)

    small = tenon.quantize(layer, "int8-dynamic", example=x).model

    assert (small.weight == 0).sum() >= 64
    np.testing.assert_allclose(result(small, x), result(layer, x), atol=0.05)


@pytest.mark.parametrize("shape", [(5, 64), (3, 7), (4, 3, 3, 3), (2, 65)], ids=str)
def test_int4_is_within_half_a_step_of_each_weight(shape):
    weight = tenon.randn(*shape)

    packed, scale = to_int4(weight, 32)
    back = from_int4(packed, scale, shape)

    width = int(np.prod(shape[1:]))
    steps = np.repeat(scale.float().numpy(), 32, 1)[:, :width].reshape(shape)
    assert packed.dtype is tenon.uint8 and packed.shape == (shape[0], -(-width // 32) * 16)
    assert (np.abs(back.numpy() - weight.numpy()) <= steps * 0.51).all()


def test_int8_is_the_nearest_step_of_each_row_and_zeros_stay_zeros():
    weight = tenon.randn(6, 20)
    weight[2] = 0

    values, scale = to_int8(weight)

    error = (from_int8(values, scale) - weight).abs().amax(1)
    assert (error <= scale * 0.501).all() and (values[2] == 0).all() and values.abs().amax() == 127


def test_a_tensor_is_one_call_to_calibrate_with():
    tenon.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), tenon.randn(8, 4)

    one, several = (tenon.quantize(model, "int8", calls).model for calls in (x, [x]))

    assert tenon.equal(one(x), several(x))


def test_layers_that_are_skipped_stay():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))

    small = tenon.quantize(model, "int8-dynamic", skip=["1", "2"]).model

    assert type(small[0]) is DynamicLinear and type(small[1]) is nn.Linear and type(small[2][0]) is nn.Linear
    with pytest.raises(QuantizationError, match=r"pass \['head'\]"):
        tenon.quantize(model, "int8-dynamic", skip="head")


@pytest.mark.parametrize("spec", SPECS)
def test_a_model_of_other_floats_takes_and_gives_them(spec):
    model, x = Reader().double().eval(), WORDS
    model.memory = nn.Identity()
    model.memory.forward = lambda rows: (rows.new_ones(4, 7, 32) * rows.sum(),)

    small = tenon.quantize(model, spec).model

    assert small.words(x).dtype is small(x).dtype is tenon.float64
    assert tenon.compress.load(model, small.state_dict())(x).dtype is tenon.float64


@pytest.mark.parametrize("spec", ["int8-dynamic", "int4-weights"])
def test_a_layer_without_numbers_is_named(spec):
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].weight = nn.Parameter(tenon.ones(4, 0))

    with pytest.raises(QuantizationError, match=r"'0': a weight of shape \[4, 0\] has no numbers"):
        tenon.quantize(model, spec)


def _with(change):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    change(model)
    return model


def _infinite(model):
    with tenon.no_grad():
        model[2].weight[1, 1] = float("inf")


@pytest.mark.parametrize(
    ("model", "spec", "options", "words"),
    [
        (_with(_infinite), "int8-dynamic", {}, r"'2\.weight' holds 1 number\(s\) that are not finite"),
        (
            nn.Sequential(nn.Linear(4, 4, dtype=tenon.complex64)),
            "int8-dynamic",
            {},
            r"'0\.weight' has dtype .*complex64",
        ),
        (nn.Sequential(nn.ReLU()), "int8-dynamic", {}, "no layer that int8-dynamic quantizes"),
        (_with(lambda m: None), "int8-dynamic", {"skip": ["7"]}, r"skip names \['7'\]"),
        (_with(lambda m: None), 8, {}, "8 is not a scheme"),
        (nn.LSTM(4, 4).double(), "int8-dynamic", {}, "^this LSTM has dtype torch.float64"),
        (
            nn.Sequential(nn.LSTM(4, 4).double()),
            "int8-dynamic",
            {},
            "^'0': this LSTM has dtype torch.float64",
        ),
        (
            _with(lambda m: m.half()),
            "int8",
            {"calibration": [tenon.ones(2, 4).half()]},
            r"'0\.weight' has dtype torch.float16",
        ),
        (_with(lambda m: None), "int8", {"calibration": {"x": tenon.ones(2, 4)}}, "not a dict: pass"),
        (_with(lambda m: None), "int8", {"calibration": 3}, "not a int: pass"),
        (tenon.quantize(nn.Linear(2, 2), "int8-dynamic").model, "int8-dynamic", {}, "quantized already"),
    ],
    ids=[
        "infinite",
        "complex",
        "nothing",
        "skip",
        "spec",
        "double",
        "double inside",
        "half",
        "mapping",
        "number",
        "twice",
    ],
)
def test_what_cannot_be_quantized_is_named(model, spec, options, words):
    before = copy.deepcopy(model.state_dict())

    with pytest.raises(QuantizationError, match=words):
        tenon.quantize(model, spec, **options)

    after = model.state_dict()
    assert all(np.array_equal(before[k].numpy(), after[k].numpy(), equal_nan=True) for k in before)


def test_what_is_not_a_model_and_what_is_quantized_already_is_named():
    ddp, lazy = nn.parallel.DistributedDataParallel(nn.Linear(2, 2)), nn.Sequential(nn.LazyLinear(2))
    for call in (
        lambda m: tenon.quantize(m, "int8-dynamic"), tenon.quantization.prepare, tenon.quantization.prepare_qat,
    ):  # fmt: skip
        with pytest.raises(tenon.errors.ModuleTypeError, match="takes a module, got int"):
            call(3)
        with pytest.raises(tenon.errors.ModuleTypeError, match=r"Give it model\.module"):
            call(ddp)
        with pytest.raises(QuantizationError, match=r"'0\.weight' has no shape yet"):
            call(lazy)

    small = tenon.quantize(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "int8-dynamic").model
    keys = list(small.state_dict())
    with pytest.raises(tenon.errors.ModuleTypeError, match="this DynamicLinear can be neither pruned"):
        nn.utils.prune.l1_unstructured(small[0], "weight", 0.5)
    with pytest.raises(tenon.errors.ModuleTypeError, match="Prune and parametrize first"):
        nn.utils.parametrizations.weight_norm(small[0])
    with pytest.raises(tenon.errors.PruningError, match="'0' is quantized: prune first"):
        tenon.prune.mask_channels(small, tenon.ones(1, 4), 0.5)
    assert list(small.state_dict()) == keys and not small[0]._forward_pre_hooks


def test_an_unknown_scheme_names_those_that_there_are():
    with pytest.raises(tenon.errors.PluginNotFoundError, match="int8-dynamic"):
        tenon.quantize(nn.Linear(2, 2), "int8-dynamc")


def test_a_state_dict_of_another_model_is_refused():
    state = tenon.quantize(nn.Sequential(nn.Linear(4, 4)), "int8-dynamic").model.state_dict()

    with pytest.raises(CheckpointError, match="it has no '0'"):
        tenon.quantization.load(nn.Linear(4, 4), state)
    with pytest.raises(ArgumentError, match="does not describe quantized layers"):
        tenon.quantization.load(nn.Linear(4, 4), nn.Linear(4, 4).state_dict())


@pytest.mark.parametrize("dtype", [tenon.float64, tenon.bfloat16], ids=str)
@pytest.mark.parametrize("spec", ["int8", *SPECS])
def test_a_model_that_moves_to_another_dtype_goes_on(spec, dtype):
    tenon.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3), nn.LayerNorm(3)
    ).eval()
    x = tenon.randn(2, 2, 6)
    small = tenon.quantize(model, spec, [x]).model
    expected = small(x)

    small.to(dtype)
    made = copy.deepcopy(small)(x.to(dtype))

    assert made.dtype is dtype
    np.testing.assert_allclose(made.float().detach().numpy(), expected.detach().numpy(), atol=0.05)
    np.testing.assert_allclose(small.float()(x).detach().numpy(), expected.detach().numpy(), atol=0.02)


@pytest.mark.slow
def test_recurrent_layers_of_int8_take_other_floats():
    for layer in (nn.LSTM(4, 8), nn.GRU(4, 8), nn.LSTMCell(4, 8), nn.RNNCell(4, 8)):
        small, x = tenon.quantize(layer, "int8-dynamic").model.double(), tenon.randn(3, 2, 4)
        x = x[0] if "Cell" in type(layer).__name__ else x

        for made, wide in zip(
            tree_leaves(small.float()(x)), tree_leaves(small.double()(x.double())), strict=True
        ):
            assert wide.dtype is tenon.float64 and tenon.allclose(made, wide.float(), atol=1e-5)


@pytest.mark.parametrize("spec", ["int8", *SPECS])
def test_code_that_reads_a_weight_itself_gets_floats(spec):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.inner = nn.Embedding(7, 4), nn.Linear(4, 4)

        def forward(self, x):
            y = self.inner(self.words(x)) @ self.inner.weight
            return y @ self.words.weight.T

    tenon.manual_seed(0)
    model, x = Tied(), tenon.tensor([[1, 5, 3]])
    small = tenon.quantize(model, spec, [(x,)]).model

    assert small.inner.weight.dtype is tenon.float32 and small.double().inner.weight.dtype is tenon.float64
    np.testing.assert_allclose(small.float()(x).detach().numpy(), model(x).detach().numpy(), atol=1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_int8_rows_are_those_of_floats(mode, tmp_path):
    tenon.manual_seed(0)
    words, starts = tenon.tensor([1, 3, 3, 0, 6, 3, 2]), tenon.tensor([0, 2, 2, 6])
    shares = tenon.rand(7) if mode == "sum" else None
    for padding in (None, 3):
        bag = nn.EmbeddingBag(8, 6, mode=mode, padding_idx=padding)
        small = tenon.quantize(nn.Sequential(bag), "int8-dynamic").model
        tenon.save(small.state_dict(), tmp_path / "small.pt")
        loaded = tenon.compress.load(nn.Sequential(bag), tenon.load(tmp_path / "small.pt"))

        for args in ((words, starts, shares), (words[:6].reshape(2, 3), None)):
            expected = bag(*args)
            np.testing.assert_allclose(small[0](*args).numpy(), expected.detach().numpy(), atol=0.05)
            assert tenon.equal(loaded[0](*args), small[0](*args))
        assert small[0].state_dict()["weight"].dtype is tenon.int8
