"""``tenon.prune.compact``: smaller models whose outputs equal the masked ones, saved with their structure."""

import copy
import importlib.util
from pathlib import Path

import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.errors import PruningError
from tenon.nn.utils import prune
from tenon.nn.utils.parametrizations import weight_norm

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.fixture(autouse=True)
def seed():
    tenon.manual_seed(0)


def example_model(name):
    spec = importlib.util.spec_from_file_location(name, MODELS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def zero(module, name, places, axis=0):
    mask = tenon.ones_like(getattr(module, name))
    mask[(slice(None),) * axis + (places,)] = 0
    prune.custom_from_mask(module, name, mask)


def zero_channels(convolution, norm, places):
    zero(convolution, "weight", places)
    for name in ("weight", "bias"):
        zero(norm, name, places)


def unsettle(model):
    """Norms as after training, with means and biases of any size."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model.eval()


def outputs(model, args, kwargs=None):
    with tenon.no_grad():
        return model.eval()(*args, **(kwargs or {}))


def check(make, model, *args, at_most=0.99, **kwargs):
    """Compact ``model``, compare it with what it was, and reload it from a file's worth of state."""
    wanted = outputs(model, args, kwargs)
    example = {**kwargs} if not args else args if not kwargs else None
    receipt = tenon.prune.compact(model, example, seconds=0)
    assert difference(outputs(model, args, kwargs), wanted) < 1e-5
    assert receipt[""].parameters.ratio <= at_most
    assert not any(prune.is_pruned(m) for m in model.modules())
    fresh = tenon.prune.load(make(), copy.deepcopy(model.state_dict()))
    assert difference(outputs(fresh, args, kwargs), wanted) < 1e-5
    return receipt


def test_resnet_loses_channels_inside_blocks_and_across_residuals(tmp_path):
    resnet = example_model("resnet")
    model = unsettle(resnet.make())
    zero_channels(model.layer1[0].conv1, model.layer1[0].bn1, [0, 2, 5])
    last = model.layer4
    tail = [(last[0].conv2, last[0].bn2), (last[0].downsample[0], last[0].downsample[1])]
    stem = [(model.conv1, model.bn1), (model.layer1[0].conv2, model.layer1[0].bn2)]
    for pair in (*stem, (model.layer1[1].conv2, model.layer1[1].bn2)):
        zero_channels(*pair, [1, 4])
    for pair in (*tail, (last[1].conv2, last[1].bn2)):
        zero_channels(*pair, list(range(0, 64, 2)))

    check(resnet.make, model, tenon.randn(2, 3, 64, 64), at_most=0.75)

    assert model.layer1[0].conv1.weight.shape == (5, 6, 3, 3) and model.fc.in_features == 32
    assert model.layer2[0].downsample[0].in_channels == 6 and model.bn1.num_features == 6
    tenon.save(model.state_dict(), tmp_path / "small.safetensors")
    fresh = tenon.prune.load(resnet.make(), tenon.load(tmp_path / "small.safetensors"))
    assert fresh.layer1[0].conv1.out_channels == 5


@pytest.mark.slow
def test_unet_loses_channels_through_concatenation_and_transposed_convolution():
    unet = example_model("unet")
    model = unsettle(unet.make())
    for module in model.modules():
        if isinstance(module, unet.DoubleConv):
            zero_channels(module[0], module[1], [0])
            zero_channels(module[3], module[4], [1, 2])
        if isinstance(module, nn.ConvTranspose2d):
            zero(module, "weight", [0], axis=1)
            zero(module, "bias", [0])

    check(unet.make, model, unet.batch(0)[0])

    assert model.ups[2].conv[0].in_channels == 2 + 3


@pytest.mark.slow
def test_vision_transformer_loses_neurons_and_keeps_what_their_biases_gave():
    vit = example_model("vit")
    model = vit.make()
    for block in model.blocks:
        nn.init.normal_(block.mlp[0].bias)
        zero(block.mlp[0], "weight", list(range(0, 192, 2)))

    check(vit.make, model, vit.batch(0)[0], at_most=0.85)

    assert model.blocks[0].mlp[2].in_features == 96


def test_lstm_loses_units_in_every_layer_and_direction():
    tagger = example_model("lstm_tagger")
    model = tagger.make()
    rows = [2 * 16 + unit for unit in (1, 3, 7)]  # of the candidate, the third of four gates
    for name, _ in list(model.lstm.named_parameters()):
        zero(model.lstm, name, rows)
    zero(model.embedding, "weight", [2, 5], axis=1)

    receipt = check(tagger.make, model, *tagger.batch(0)[:2], at_most=0.8)

    assert model.lstm.hidden_size == 13 and model.lstm.input_size == 10 and model.out.in_features == 26
    assert receipt.notes == ()


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)


def test_attention_loses_heads_by_their_outputs():
    model = encoder()
    for layer in model.layers:
        nn.init.normal_(layer.self_attn.in_proj_bias)
        zero(layer.self_attn.out_proj, "weight", [4, 5, 6, 7], axis=1)

    check(encoder, model, tenon.randn(2, 5, 16))

    assert model.layers[0].self_attn.num_heads == 3 and model.layers[1].self_attn.in_proj_weight.shape == (
        36,
        16,
    )


def test_attention_loses_heads_by_their_values_and_only_whole_ones():
    def make():
        return nn.MultiheadAttention(16, 4, kdim=6, vdim=7)

    model = make()
    zero(model, "v_proj_weight", [0, 1, 2, 3, 8, 9])

    check(make, model, tenon.randn(2, 5, 16), tenon.randn(3, 5, 6), tenon.randn(3, 5, 7), None, False)

    assert model.num_heads == 3 and model.k_proj_weight.shape == (12, 6)


class Attention(nn.Module):
    """Heads of a number that the class keeps, and of a width that follows."""

    def __init__(self):
        super().__init__()
        self.heads = 4
        self.qkv = nn.Linear(16, 48)
        self.proj = nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.proj(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_a_number_of_heads_in_a_class_of_ones_own_is_found_and_saved():
    model = Attention()
    zero(model.proj, "weight", [0, 1, 2, 3], axis=1)

    check(Attention, model, tenon.randn(2, 5, 16))

    assert model.heads == 3 and tenon.prune.structure_of(model)[""] == {"heads": 3}


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_other_recurrent_layers_lose_units(kind):
    def make():
        return getattr(nn, kind)(4, 6, 2, bidirectional=True)

    model = make()
    rows = [12 + 2, 12 + 5] if kind == "GRU" else [2, 5]
    for name, _ in list(model.named_parameters()):
        zero(model, name, rows)

    class Head(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(12, 3)

        def forward(self, x):
            return self.out(self.layer(x)[0])

    check(lambda: Head(make()), Head(model), tenon.randn(5, 2, 4))

    assert model.hidden_size == 4


def mobile():
    return nn.Sequential(
        nn.Conv2d(3, 12, 1),
        nn.BatchNorm2d(12),
        nn.ReLU6(),
        nn.Conv2d(12, 24, 3, padding=1, groups=12, bias=False),
        nn.Hardswish(),
        nn.Conv2d(24, 6, 3, groups=2),
        nn.PReLU(6),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 5),
    )


def test_depthwise_and_grouped_convolutions_and_flattened_linear_layers_shrink():
    model = mobile().eval()
    zero_channels(model[0], model[1], [0, 1, 7])
    zero(model[0], "bias", [0, 1, 7])
    zero(model[5], "weight", [3, 4, 5])
    zero(model[5], "bias", [3, 4, 5])

    check(mobile, model, tenon.randn(2, 3, 6, 6))

    assert (model[5].groups, model[5].out_channels, model[9].in_features) == (1, 3, 12)
    assert model[3].groups == model[0].out_channels == 4  # the second half fed a group that is gone


def test_what_a_norm_makes_of_zero_channels_goes_only_where_it_can_be_kept():
    def make():
        return nn.Sequential(
            nn.Conv2d(2, 4, 3, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 2, 3),
        )

    model = make().eval()
    with tenon.no_grad():
        model[1].bias.copy_(tenon.tensor([1.0, -1.0, 1.0, 1.0]))  # after the ReLU: a constant, and zero
        model[3].bias.fill_(0.5)
    zero(model[0], "weight", [0, 1])
    zero(model[3], "weight", [2])

    receipt = check(make, model, tenon.randn(2, 2, 9, 9))

    assert model[0].out_channels == 3 and model[3].out_channels == 3
    assert receipt.notes == ("1 zero rows of 0.weight stay: '3' reads values other than zero from them",)


def test_a_norm_without_running_offsets_takes_constants_of_zero_channels():
    def make():
        norm = nn.BatchNorm2d(3, affine=False)
        return nn.Sequential(nn.Conv2d(2, 3, 1), norm, nn.ReLU(), nn.Conv2d(3, 2, 1))

    model = make().eval()
    zero(model[0], "weight", [1])
    zero(model[0], "bias", [1])

    check(make, model, tenon.randn(2, 2, 4, 4))

    assert model[1].num_features == 2


def test_inputs_that_nobody_reads_go_with_what_makes_them():
    def make():
        return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))

    model = make()
    zero(model[4], "weight", [0, 6], axis=1)
    zero(model[2], "weight", [3], axis=1)

    receipt = check(make, model, tenon.randn(2, 4))

    assert model[2].weight.shape == (6, 8) and model[0].out_features == 8
    assert receipt["4"].parameters.after == 21


def test_tied_weights_shrink_together():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(7, 6)
            self.out = nn.Linear(6, 7, bias=False)
            self.out.weight = self.embedding.weight

        def forward(self, words):
            return self.out(nn.functional.relu(self.embedding(words)))

    model = Tied()
    with tenon.no_grad():
        model.embedding.weight[:, [1, 4]] = 0
    words = tenon.tensor([[1, 2, 6]])
    wanted = outputs(model, (words,))

    tenon.prune.compact(model, words, seconds=0)

    assert model.out.weight is model.embedding.weight and model.out.weight.shape == (7, 4)
    assert difference(outputs(model, (words,)), wanted) < 1e-5


def test_masks_over_parametrizations_are_baked_and_other_parametrizations_shrink():
    def make():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    model = make()
    weight_norm(model[0])
    zero(model[0], "weight", [0, 3])
    zero(model[0], "bias", [0, 3])

    check(make, model, tenon.randn(2, 4))


def test_a_compacted_model_trains_compiles_and_copies():
    model = mobile()
    zero_channels(model[0], model[1], list(range(6)))  # a whole group of what follows
    zero(model[0], "bias", list(range(6)))
    x = tenon.randn(4, 3, 6, 6)
    tenon.prune.compact(model, x, seconds=0)
    twin = copy.deepcopy(model)

    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)
    before = float(model(x).square().mean())
    for _ in range(5):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    assert float(model(x).square().mean()) < before
    compiled = tenon.compile(twin.eval())
    for _ in range(3):
        assert difference(compiled(x), outputs(twin, (x,))) < 1e-5


def test_pruning_again_joins_the_structures():
    def make():
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))

    model = make()
    for layer in (0, 2):
        zero(model[layer], "weight", [0, 3])
        check(make, model, tenon.randn(2, 4))

    assert model[4].in_features == 6 and model[0].out_features == 6


def test_buffers_that_are_not_saved_are_not_asked_for_and_do_not_shrink():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
            self.register_buffer("offsets", tenon.arange(4.0), persistent=False)
            self.register_buffer("factors", tenon.ones(6), persistent=False)

        def forward(self, x, factors=False):
            y = self.first(x + self.offsets).relu()
            return self.last(y * self.factors if factors else y)

    model, x = Counted(), tenon.randn(2, 4)
    zero(model.first, "weight", [0, 3])
    zero(model.first, "bias", [0, 3])
    with pytest.raises(
        PruningError, match=r"zero rows of first\.weight stay: the buffer factors is not saved"
    ):
        tenon.prune.compact(model, (x, True), seconds=0)
    check(Counted, model, x)
