"""The scheme ``bfloat16`` where the processor multiplies it, and where weights are only stored so."""

import copy

import pytest

import tenon
from tenon import nn
from tenon.kernels.backend import backend_named

pytestmark = pytest.mark.together

CPU = type(backend_named("cpu"))
LAYERS = {
    "Linear": (nn.Linear(16, 8), (2, 5, 16)),
    "one vector": (nn.Linear(16, 8, bias=False), (16,)),
    "Conv1d": (nn.Conv1d(4, 6, 3, padding="same", padding_mode="replicate"), (2, 4, 9)),
    "Conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (2, 4, 9, 9)),
    "circular": (nn.Conv2d(4, 6, (3, 2), padding=(2, 1), padding_mode="circular"), (4, 5, 6)),
    "reflect": (nn.Conv2d(4, 4, 3, padding=1, groups=4, bias=False, padding_mode="reflect"), (2, 4, 5, 6)),
    "even": (nn.Conv1d(4, 6, 4, padding="same", dilation=3), (2, 4, 9)),
    "Conv3d": (nn.Conv3d(2, 4, 3, dilation=2), (1, 2, 6, 7, 5)),
    "ConvTranspose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (2, 4, 9)),
    "ConvTranspose2d": (
        nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2, dilation=2), (2, 4, 5, 5)
    ),
    "ConvTranspose3d": (nn.ConvTranspose3d(2, 4, 2, bias=False), (1, 2, 3, 4, 5)),
}  # fmt: skip


@pytest.fixture(params=[False, True], ids=["stored", "multiplied"])
def multiplied(request, monkeypatch):
    monkeypatch.setattr(CPU, "prefers_bfloat16", lambda backend, op: request.param)
    return request.param


@pytest.mark.parametrize("case", LAYERS)
def test_products_and_convolutions_round_as_bfloat16_does_or_not_at_all(case, multiplied):
    layer, shape = LAYERS[case]
    x = tenon.randn(*shape, generator=tenon.Generator().manual_seed(0))
    short = copy.deepcopy(layer).bfloat16()

    small = tenon.quantize(layer, "bfloat16").model

    made = small(x)
    expected = short(x.bfloat16()).float() if multiplied else short.float()(x)
    assert made.dtype is tenon.float32 and tenon.equal(made, expected)
    assert small.state_dict()["weight"].dtype is tenon.bfloat16
    assert tenon.equal(tenon.compress.load(layer, small.state_dict())(x), made)
    assert small.double()(x.double()).dtype is tenon.float64


def test_a_transposed_convolution_still_takes_the_size_of_its_result(multiplied):
    small = tenon.quantize(nn.ConvTranspose2d(2, 3, 3, stride=2), "bfloat16").model

    assert small(tenon.ones(1, 2, 4, 4), output_size=(10, 10)).shape == (1, 3, 10, 10)
    assert tenon.compile(small)(tenon.ones(1, 2, 4, 4), [9, 10]).shape == (1, 3, 9, 10)


def test_receipts_say_which_layers_are_only_stored(multiplied):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.LSTM(4, 4))

    receipt = tenon.quantize(model, "bfloat16").receipt

    stored = "" if multiplied else ", only stored"
    assert receipt["0"].kind == f"Conv2d -> BFloat16Conv2d{stored}"
    assert receipt["2"].kind == f"Linear -> BFloat16Linear{stored}"
    assert receipt["4"].kind == "LSTM, only stored"
    assert receipt.notes[0].endswith("which is no faster: 4")
    assert [note[:41] for note in receipt.notes[1:]] == ["stored in bfloat16 and computed as floats"] * (
        not multiplied
    )


def test_a_model_that_is_a_layer_has_one_row(multiplied):
    receipt = tenon.quantize(nn.Linear(8, 4), "bfloat16").receipt

    (row,) = receipt.rows
    assert row.parameters.before == row.parameters.after == receipt.total.parameters.after == 36
    assert row.kind.startswith("Linear -> BFloat16Linear")


def test_what_loses_channels_afterwards_is_read_back():
    def make():
        return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 3)).eval()

    tenon.manual_seed(0)
    x, small = tenon.randn(2, 2, 6, 6), tenon.quantize(make(), "bfloat16").model
    assert tenon.prune.mask_channels(small, x, 0.5) == 2
    masked = small(x)

    tenon.prune.compact(small, x, seconds=0)

    assert small[0].out_channels == 2 and (small(x) - masked).abs().max() < 1e-5
    assert tenon.equal(tenon.compress.load(make(), small.state_dict())(x), small(x))
