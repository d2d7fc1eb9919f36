"""Removing heads from attention whose code computes one size from another: ``width // heads``, ``batch * heads``."""

import copy
import importlib.util
import pickle
from pathlib import Path

import pytest

import tenon
from tenon import nn
from tenon.compress.receipt import difference
from tenon.errors import CheckpointError, PruningError
from tenon.nn.utils import prune
from tenon.prune.shape_rules import ShapeRules

F = nn.functional
VIT = Path(__file__).resolve().parents[2] / "examples" / "models" / "vit.py"


class Attention(nn.Module):
    """Four heads in a width of 16; how they are cut out and put together again is up to the classes below."""

    def __init__(self):
        super().__init__()
        self.width, self.heads = 16, 4
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)


class Reshaped(Attention):
    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Cut(Attention):
    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(self.width, dim=2)
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).contiguous().view(batch, length, width))


class Inferred(Attention):
    def forward(self, x):
        batch, _, width = x.shape
        q, k, v = self.qkv(x).split([width, width, width], dim=-1)
        q, k, v = (t.view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        y = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(batch, -1, width))


class Merged(Attention):
    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (
            t.reshape(batch, length, self.heads, width // self.heads)
            .transpose(1, 2)
            .reshape(batch * self.heads, length, width // self.heads)
            for t in (q, k, v)
        )
        y = tenon.bmm((tenon.bmm(q, k.transpose(1, 2)) / 2.0).softmax(-1), v)
        y = y.view(batch, self.heads, length, width // self.heads).transpose(1, 2)
        return self.proj(y.reshape(batch, length, width))


class Unflattened(Attention):
    def forward(self, x):
        width = x.shape[-1]
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, width // self.heads))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Following(Attention):
    """Takes every size from a tensor; the number of heads has another purpose."""

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, 4)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Looped(Attention):
    """One head after the other, at places that are computed from a size of an input."""

    def forward(self, x):
        width = x.shape[-1] // self.heads
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        parts = []
        for head in range(self.heads):
            i = slice(head * width, (head + 1) * width)
            parts.append(F.scaled_dot_product_attention(q[..., i], k[..., i], v[..., i]))
        return self.proj(tenon.cat(parts, -1))


class Narrowed(Attention):
    """The same at places that are computed from a size that shrinks."""

    def forward(self, x):
        qkv = self.qkv(x)
        width = qkv.size(-1) // 3 // self.heads
        parts = []
        for head in range(self.heads):
            q, k, v = (qkv.narrow(-1, (i * self.heads + head) * width, width) for i in range(3))
            parts.append((q @ k.mT / 2).softmax(-1) @ v)
        return self.proj(tenon.cat(parts, -1))


class Written(Looped):
    """Every head writes into its place of what will be all of them."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        out = tenon.zeros_like(v)
        for head in range(self.heads):
            i = slice(head * 4, head * 4 + 4)
            out[..., i] = F.scaled_dot_product_attention(q[..., i], k[..., i], v[..., i])
        out[:, 0] = 0.5
        return self.proj(out)


def without_heads(model, *heads):
    mask = tenon.ones_like(model.proj.weight)
    for head in heads:
        mask[:, 4 * head : 4 * head + 4] = 0
    prune.custom_from_mask(model.proj, "weight", mask)
    return model


@pytest.fixture(autouse=True)
def seed():
    tenon.manual_seed(0)


@pytest.mark.parametrize(
    "kind", [Reshaped, Cut, Inferred, Merged, Unflattened, Following, Looped, Narrowed, Written]
)
def test_heads_go_and_inputs_of_other_sizes_follow(kind):
    model = nn.Sequential(nn.Linear(5, 16), without_heads(kind(), 1)).eval()
    batches = [tenon.randn(2, 7, 5), tenon.randn(5, 3, 5), tenon.randn(1, 8, 5)]
    wanted = [model(x) for x in batches]

    tenon.prune.compact(model, batches[0], seconds=0)

    assert model[1].qkv.weight.shape == (36, 16) and model[1].proj.weight.shape == (16, 12)
    fresh = tenon.prune.load(nn.Sequential(nn.Linear(5, 16), kind()), model.state_dict()).eval()
    compiled = tenon.compile(fresh)
    for each in (model, fresh, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), compiled, compiled):
        assert all(difference(each(x), y) < 1e-5 for x, y in zip(batches, wanted, strict=True))

    assert model[1].heads == 4  # no attribute is another number because it happens to be as large
    model(batches[0]).square().sum().backward()
    assert model[1].qkv.weight.grad.shape == (36, 16)


@pytest.mark.parametrize("kind", [Reshaped, Cut, Merged, Looped, Narrowed])
def test_a_second_removal_joins_the_first(kind):
    model, x = without_heads(kind(), 1), tenon.randn(3, 7, 16)
    tenon.prune.compact(model, x, seconds=0)
    if kind is Cut:
        model = tenon.prune.load(kind(), model.state_dict())
    without_heads(model, 2)
    wanted = model.eval()(x)

    tenon.prune.compact(model, x, seconds=0)

    assert model.qkv.weight.shape == (24, 16)
    assert sum(isinstance(hook, ShapeRules) for hook in model._forward_pre_hooks.values()) == 1
    for each in (model, tenon.prune.load(kind(), model.state_dict()).eval()):
        assert difference(each(x), wanted) < 1e-5


@pytest.mark.slow
def test_half_of_the_heads_and_neurons_of_a_vision_transformer_go():
    spec = importlib.util.spec_from_file_location("vit", VIT)
    vit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vit)
    model, images = vit.make(), vit.batch(0)[0]
    for block in model.blocks:
        nn.init.normal_(block.attn.qkv.bias)
        nn.init.normal_(block.mlp[0].bias)
    tenon.prune.mask_channels(model, images, 0.4, scope="layer")
    wanted = model.eval()(images)

    receipt = tenon.prune.compact(model, images, seconds=0)

    assert all(block.attn.qkv.weight.shape == (96, 48) for block in model.blocks)
    assert all(block.mlp[0].out_features == 115 for block in model.blocks)
    assert receipt[""].parameters.ratio < 0.67 and receipt.output_change < 1e-5
    for each in (model, tenon.prune.load(vit.make(), model.state_dict()).eval()):
        assert difference(each(images), wanted) < 1e-5 and each(images[:1]).shape == (1, 10)
    vit.train(model.train(), 2)


class Halves(nn.Module):
    """Splits into two chunks, twice."""

    def __init__(self):
        super().__init__()
        self.first, self.a, self.b = nn.Linear(5, 8), nn.Linear(4, 4), nn.Linear(4, 4)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        for _ in range(2):
            a, b = self.first(x).relu().chunk(2, -1)
            a, b = tenon.cat([self.b(b), self.a(a)], -1).chunk(2, -1)
        return self.out(tenon.cat([a, b], -1))


def test_chunks_become_as_long_as_what_is_left_of_them():
    model, x = Halves(), tenon.randn(3, 5)
    for layer, rows in ((model.first, [0, 1, 5]), (model.b, [2])):
        mask = tenon.ones_like(layer.weight)
        mask[rows] = 0
        prune.custom_from_mask(layer, "weight", mask)
        layer.bias.data[rows] = 0
    wanted = model.eval()(x)

    tenon.prune.compact(model, x, seconds=0)

    assert (model.a.in_features, model.b.in_features, model.b.out_features) == (2, 3, 3)
    for each in (model, tenon.prune.load(Halves(), model.state_dict()).eval(), copy.deepcopy(model)):
        assert difference(each(x), wanted) < 1e-6 and each(x[:1]).shape == (1, 2)
    mask = tenon.ones_like(model.first.weight)
    mask[1] = 0
    prune.custom_from_mask(model.first, "weight", mask)  # the second of what was 2, 3
    model.first.bias.data[1] = 0
    wanted = model(x)
    tenon.prune.compact(model, x, seconds=0)
    assert model.a.in_features == 1 and difference(model(x), wanted) < 1e-6


class Products(nn.Module):
    """Queries and keys, whose product is or is not divided by a number computed from their width."""

    def __init__(self, scaled):
        super().__init__()
        self.scaled, self.q, self.k = scaled, nn.Linear(5, 4, bias=False), nn.Linear(5, 4, bias=False)
        self.v, self.out = nn.Linear(5, 4, bias=False), nn.Linear(4, 2)

    def forward(self, x):
        q, k = self.q(x), self.k(x)
        y = (q @ k.mT / (q.shape[-1] if self.scaled else 4)).softmax(-1)
        return self.out(y @ self.v(x))


@pytest.mark.parametrize("scaled", [False, True])
def test_what_a_product_is_divided_by_is_not_changed(scaled):
    model, x = Products(scaled).eval(), tenon.randn(2, 3, 5)
    for layer in (model.q, model.v):
        prune.ln_structured(layer, "weight", 2, 2, 0)
    wanted = model(x)

    receipt = tenon.prune.compact(model, x, seconds=0)

    assert difference(model(x), wanted) < 1e-6 and model.v.out_features == 2
    assert model.k.out_features == (4 if scaled else 2)
    assert receipt.notes == (
        ("2 zero rows of q.weight stay: 'Products' may divide by their number",) if scaled else ()
    )


class Counted(Attention):
    """One head after the other, selected by index: indices shift if an earlier head is removed."""

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).unbind(2)
        parts = [F.scaled_dot_product_attention(*(t[:, :, i] for t in (q, k, v))) for i in range(4)]
        return self.proj(tenon.cat(parts, -1))


def test_numbers_that_nobody_asks_for_are_an_error_that_names_the_module():
    model, x = nn.Sequential(nn.Linear(5, 16), without_heads(Counted(), 1)), tenon.randn(2, 7, 5)
    state = {name: t.clone() for name, t in model.state_dict().items()}

    with pytest.raises(PruningError, match="'1'"):
        tenon.prune.compact(model, x, seconds=0)

    assert all(tenon.equal(state[name], t) for name, t in model.state_dict().items())
    assert model[1].heads == 4 and not any(hasattr(h, "cuts") for h in model[1]._forward_pre_hooks.values())


class Crops(Attention):
    """Takes the same slice of the channels and of the time axis."""

    def forward(self, x):
        y = self.proj(x).relu()
        return self.qkv.weight[:1, :4] @ y[..., 4:8].mT + y.mT[..., 4:8].sum()


def test_a_slice_that_could_be_one_of_time_is_refused():
    model, x = Crops().eval(), tenon.randn(2, 9, 16)
    for name in ("weight", "bias"):
        mask = tenon.ones_like(getattr(model.proj, name))
        mask[[0, 1]] = 0
        prune.custom_from_mask(model.proj, name, mask)

    with pytest.raises(PruningError, match="written into 'Crops'"):
        tenon.prune.compact(model, x, seconds=0)  # of 14 channels, as of 14 steps, 4:8 would be 2:6


@pytest.mark.parametrize(
    "said",
    [
        '{"chunks":[[0,[1,3]]]}',
        '{"shapes":3}',
        '{"shapes":[[[0,1]]]}',
        '{"cuts":[[[3,3]]]}',
        '{"shapes":[[null,[4,"3"]]]}',
        '{"slices":[[[8,2,3],[0,4,null],[[0,"4",1]]]]}',
    ],
)
def test_rules_that_were_tampered_with_are_refused(said):
    model = Reshaped()
    text = f'{{"version":1,"modules":{{"":{said}}}}}'
    state = {**model.state_dict(), "pruned_structure": tenon.tensor(list(text.encode()), dtype=tenon.uint8)}

    with pytest.raises(CheckpointError, match="sizes saved for ''"):
        tenon.prune.load(model, state)
    assert not model._forward_pre_hooks
