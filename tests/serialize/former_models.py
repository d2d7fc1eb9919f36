"""Models that were pruned, quantized or both, and the files of them in ``data/``.

``python tests/serialize/former_models.py FOLDER`` writes the files anew; those in ``data/`` were written by
version 0.1.0 and stay, since every later version has to read them. Each holds the state dict, an input and
the output for it.
"""

import sys
from pathlib import Path

import tenon
from tenon import nn
from tenon.nn.utils import parametrizations, prune
from tenon.quantization import prepare_qat

F = nn.functional


class Attention(nn.Module):
    """The size of a head is computed from the model's width, so pruning must handle sizes that code computes."""

    def __init__(self):
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(16), 4
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Words(nn.Module):
    """An embedding, a bag of embeddings, a recurrent layer and a cell."""

    def __init__(self):
        super().__init__()
        self.embedding, self.bag = nn.Embedding(10, 8), nn.EmbeddingBag(10, 8, mode="sum")
        self.lstm, self.cell, self.out = nn.LSTM(8, 8, batch_first=True), nn.GRUCell(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        y, _ = self.lstm(self.embedding(x))
        return self.out(self.cell(y[:, -1], self.bag(x)))


def convolutions():
    """Convolutions, one in groups, with batch norms and a pool."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


def products():
    """Three linear layers."""
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def masked(model, x):
    """Masks on a parametrized weight, and on plain ones by three methods."""
    parametrizations.spectral_norm(model[0])
    prune.l1_unstructured(model[0], "weight", 0.3)
    prune.ln_structured(model[2], "weight", 0.25, 2, 0)
    prune.random_unstructured(model[2], "weight", 0.25)
    return model


def compacted(model, x):
    """A model from which masked channels, heads and units were removed."""
    tenon.prune.mask_channels(model, x, 0.5)
    tenon.prune.compact(model, x, seconds=0)
    return model


def packed(model, x):
    """Sparse layers that hold the nonzero elements only, whether or not that is faster here."""
    tenon.prune.mask_weights(model, 0.95, keep=["4"])
    packing = sys.modules[tenon.prune.pack.__module__]
    packing._slow_at = lambda *given: None
    tenon.prune.pack(model, x, seconds=0)
    return model


def quantized(scheme):
    """Return the function that makes a model quantized by one scheme."""
    return lambda model, x: tenon.quantize(model, scheme, [x]).model


def trained_for_int8(model, x):
    """Fake-quantized weights and observed inputs."""
    made = prepare_qat(model)
    made(x)
    return made


def both(model, x):
    """A model with channels removed and the remaining weights in int8."""
    return quantized("int8")(compacted(model, x), x)


SCHEMES = ("int8", "int8-dynamic", "int8-weights", "int4-weights", "bfloat16", "bfloat16-weights")
#: By the name of the file: what makes the model as its class does, its input, and what makes it smaller.
MODELS = {
    "masked": (products, lambda: tenon.randn(4, 16), masked),
    "compacted": (convolutions, lambda: tenon.randn(4, 1, 6, 6), compacted),
    "compacted-heads": (Attention, lambda: tenon.randn(2, 5, 16), compacted),
    "packed": (products, lambda: tenon.randn(4, 16), packed),
    "qat": (convolutions, lambda: tenon.randn(4, 1, 6, 6), trained_for_int8),
    "compacted-int8": (convolutions, lambda: tenon.randn(4, 1, 6, 6), both),
    "int8-dynamic-words": (Words, lambda: tenon.randint(10, (4, 5)), quantized("int8-dynamic")),
    **{scheme: (convolutions, lambda: tenon.randn(4, 1, 6, 6), quantized(scheme)) for scheme in SCHEMES},
}


def write(folder):
    """Write all files."""
    for name, (make, given, shrink) in MODELS.items():
        tenon.manual_seed(0)
        model, x = make(), given()
        model = shrink(model, x).eval()
        with tenon.no_grad():
            saved = {"state": dict(model.state_dict()), "input": x, "output": model(x)}
        tenon.save(saved, Path(folder) / f"{name}.pt")


if __name__ == "__main__":
    write(sys.argv[1])
