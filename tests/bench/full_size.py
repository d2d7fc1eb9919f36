"""Models at the size that people use, for measurements of export targets.

ResNet-18 and GPT-2 small are in ``export.py``; here are ViT-B/16, a U-Net of width 64 and BERT-base.
"""

import tenon
from tenon import nn
from tenon.nn import functional as F


class VisionTransformer(nn.Module):
    """ViT-B/16: 224 x 224 pixels, 1000 classes."""

    def __init__(self, width=768, heads=12, layers=12, patch=16, size=224):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(tenon.randn(1, 1, width) * 0.02)
        self.positions = nn.Parameter(tenon.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = tenon.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.positions
        return self.head(self.encoder(y)[:, 0])


def twice(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Four levels down and up."""

    def __init__(self, width=64):
        super().__init__()
        widths = [width * 2**i for i in range(5)]
        self.downs = nn.ModuleList(twice(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, 2) for c in widths[-2::-1])
        self.joins = nn.ModuleList(twice(2 * c, c) for c in widths[-2::-1])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        skips = []
        for level, down in enumerate(self.downs):
            x = down(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for up, join, skip in zip(self.ups, self.joins, skips[-2::-1], strict=True):
            x = join(tenon.cat([skip, up(x)], 1))
        return self.last(x)


class Bert(nn.Module):
    """BERT-base with its pooler."""

    def __init__(self, vocabulary=30522, width=768, heads=12, layers=12, positions=512):
        super().__init__()
        self.words, self.kinds = nn.Embedding(vocabulary, width), nn.Embedding(2, width)
        self.positions, self.norm = nn.Embedding(positions, width), nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder, self.pooler = nn.TransformerEncoder(layer, layers), nn.Linear(width, width)

    def forward(self, tokens, kinds):
        x = self.words(tokens) + self.positions(tenon.arange(tokens.shape[1])) + self.kinds(kinds)
        x = self.encoder(self.norm(x))
        return x, self.pooler(x[:, 0]).tanh()


def vit():
    return VisionTransformer(), (tenon.randn(1, 3, 224, 224),)


def unet():
    return UNet(), (tenon.randn(1, 3, 256, 256),)


def bert():
    return Bert(), (tenon.randint(0, 30522, (1, 128)), tenon.randint(0, 2, (1, 128)))
