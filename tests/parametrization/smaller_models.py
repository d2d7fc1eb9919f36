"""Models that were pruned, quantized or both, to be trained further."""

from orders import trained

import tenon
from tenon import nn
from tenon.nn.parallel import DistributedDataParallel
from tenon.quantization import prepare_qat

F = nn.functional


class Attention(nn.Module):
    """Heads whose width follows from the model's."""

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


def images():
    """A small network of convolutions, and what it is called with."""
    tenon.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 4)
    )
    return model, tenon.randn(8, 1, 6, 6)


def compacted():
    """A model without some heads, with rules for sizes."""
    tenon.manual_seed(0)
    model, x = Attention(), tenon.randn(8, 5, 16)
    tenon.prune.mask_channels(model, x, 0.5)
    tenon.prune.compact(model, x, seconds=0)
    return model.double(), x.double()


def prepared():
    """A model without some channels, prepared for quantization-aware training."""
    model, x = images()
    tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    tenon.prune.compact(model, x, seconds=0)
    return prepare_qat(model), x


def quantized():
    """A model without some channels, whose last layer is int8 and whose other layers are trainable."""
    model, x = images()
    tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    tenon.prune.compact(model, x, seconds=0)
    return tenon.quantize(model, "int8-weights", skip=["0", "2"]).model.train(), x


def wrapped_before():
    """Channels go from a model that the ranks have trained, which is wrapped anew."""
    model, x = images()
    trained(DistributedDataParallel(model), x, 1)
    tenon.prune.mask_channels(model, x, 0.5, scope="layer")
    tenon.prune.compact(model, x, seconds=0)
    return model, x


MODELS = {
    "compacted": compacted,
    "wrapped before": wrapped_before,
    "prepared": prepared,
    "quantized": quantized,
}
