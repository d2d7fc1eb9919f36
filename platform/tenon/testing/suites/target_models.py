"""Small models that every export target must write, with examples; see ``TargetSuite``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tenon import dtypes, nn
from tenon.functions.joining import cat
from tenon.nn import functional as F
from tenon.nn.module import Module
from tenon.tensors.creation.factories import ones, ones_like, zeros_like
from tenon.tensors.creation.random_factories import randint, randn
from tenon.tensors.creation.ranges import arange
from tenon.tensors.tensor import Tensor


@dataclass(frozen=True)
class Example:
    """A model in eval mode, and example arguments."""

    model: Module
    args: tuple[Tensor, ...]

    @property
    def calls(self) -> list[tuple[Tensor, ...]]:
        """Arguments of several runs: the example, all zeros, and others that are larger."""
        return [
            self.args,
            tuple(ones_like(x) if x.dtype is dtypes.bool else zeros_like(x) for x in self.args),
            tuple(3 * randn(*x.shape) if x.is_floating_point() else x.flip(-1) for x in self.args),
        ]


#: Makes a model with random weights and an example; the caller has seeded the generator.
Make: TypeAlias = Callable[[], Example]


class Digits(Module):
    """Convolutions, batch norm, pooling and dropout: the model of the recipe "digits", narrower."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.25), nn.Linear(2 * width * 16, 10))

    def forward(self, images: Tensor) -> Tensor:
        """Map ``[N, 1, 8, 8]`` to ``[N, 10]``."""
        return self.classifier(self.features(images))


class Net(Module):
    """The first net of PyTorch's Modules note."""

    def __init__(self) -> None:
        super().__init__()
        self.l0 = nn.Linear(4, 3)
        self.l1 = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, 4]`` to ``[N, 1]``."""
        return self.l1(F.relu(self.l0(x)))


class DynamicNet(Module):
    """The net of the same note whose layers and activation are chosen by Python in ``forward``."""

    def __init__(self, num_layers: int = 3) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(4, 4) for _ in range(num_layers)])
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU()})
        self.final = nn.Linear(4, 1)

    def forward(self, x: Tensor, act: str = "lrelu") -> Tensor:
        """Map ``[N, 4]`` to ``[N, 1]``."""
        for linear in self.linears:
            x = linear(x)
        x = self.activations[act](x)
        return self.final(x)


class _Residual(Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet(Module):
    """ResNet-18, eight times as narrow."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )  # fmt: skip
        sizes = [width * factor for factor in (1, 1, 2, 4, 8)]
        blocks = [
            _Residual(i if first else o, o, 2 if first and i != o else 1)
            for i, o in itertools.pairwise(sizes)
            for first in (True, False)
        ]
        self.layers = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(sizes[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, 3, H, W]`` to ``[N, 10]``."""
        return self.fc(self.pool(self.layers(self.stem(x))).flatten(1))


class MobileNet(Module):
    """Depthwise and pointwise convolutions with ReLU6 and hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU6(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(),
            nn.Conv2d(8, 16, 1), nn.Hardswish(),
            nn.Conv2d(16, 16, 5, stride=2, padding=2, groups=16), nn.Hardswish(), nn.Conv2d(16, 8, 1),
        )  # fmt: skip
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, 3, H, W]`` to ``[N, 5]``."""
        return self.fc(self.layers(x).mean((2, 3)))


class ViT(Module):
    """A vision transformer: patches, a class token, positions, two encoder layers."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, stride=4)
        self.token = nn.Parameter(randn(1, 1, 16))
        self.positions = nn.Parameter(randn(1, 17, 16))
        layer = nn.TransformerEncoderLayer(
            16, 2, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, 3, 16, 16]`` to ``[N, 10]``."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.encoder(x)[:, 0]))


class _Block(Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = (
            p.view(n, t, self.heads, c // self.heads).transpose(1, 2)
            for p in self.qkv(self.ln_1(x)).split(c, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT(Module):
    """A decoder with a causal mask; the head is tied to the token embedding."""

    def __init__(self, vocabulary: int = 40, width: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList([_Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Map ``[N, T]`` token ids to ``[N, T, vocabulary]``."""
        x = self.wte(tokens) + self.wpe(arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class BERT(Module):
    """An encoder with a padding mask, written with explicit products and softmax."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.embedding, self.positions = nn.Embedding(30, width), nn.Embedding(32, width)
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.fc, self.fc2 = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.pooler = nn.Linear(width, width)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Map ``[N, T]`` ids and their mask (true: a token) to ``[N, width]``."""
        n, t = tokens.shape
        x = self.norm(self.embedding(tokens) + self.positions(arange(t)))
        q, k, v = (
            layer(x).view(n, t, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(~mask[:, None, None, :], -1e9)
        y = (F.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.out(y))
        x = self.norm2(x + self.fc2(F.gelu(self.fc(x))))
        return self.pooler(x[:, 0]).tanh()


class UNet(Module):
    """One level down and up: strided pooling, a transposed convolution, a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.smooth = nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 8, 1))
        self.last = nn.Conv2d(24, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, 1, H, W]`` to ``[N, 2, H, W]``."""
        skip = self.down(x)
        middle = self.middle(F.max_pool2d(skip, 2))
        return self.last(cat([skip, self.up(middle), self.smooth(middle)], 1))


class Tagger(Module):
    """Embedding, a bidirectional LSTM of two layers, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(12, 5)

    def forward(self, words: Tensor) -> Tensor:
        """Map ``[N, T]`` word ids to ``[N, T, 5]`` log probabilities."""
        hidden, _ = self.lstm(self.embedding(words))
        return F.log_softmax(self.tags(hidden), -1)


class Counter(Module):
    """A GRU over a sequence, and its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map ``[T, N, 4]`` to outputs and the last state."""
        steps, last = self.gru(x)
        return self.out(steps).sigmoid(), last[0]


def _example(model: Module, *args: Tensor) -> Example:
    return Example(model.eval(), args)


def _warm(model: Module, *args: Tensor) -> Example:
    """An example whose batch norms have seen data, so that their statistics are not the initial ones."""
    model.train()
    for _ in range(3):
        model(*args)
    return _example(model, *args)


def _bert() -> Example:
    mask = ones(2, 7) > 0
    mask[1, 4:] = False
    return _example(BERT(), randint(0, 30, (2, 7)), mask)


#: Name of a model -> what makes it.
MODELS: Mapping[str, Make] = {
    "net": lambda: _example(Net(), randn(5, 4)),
    "dynamic_net": lambda: _example(DynamicNet(), randn(5, 4)),
    "digits": lambda: _warm(Digits(), randn(3, 1, 8, 8)),
    "resnet": lambda: _warm(ResNet(), randn(2, 3, 32, 32)),
    "mobilenet": lambda: _warm(MobileNet(), randn(2, 3, 16, 16)),
    "vit": lambda: _example(ViT(), randn(2, 3, 16, 16)),
    "gpt": lambda: _example(GPT(), randint(0, 40, (2, 9))),
    "bert": _bert,
    "unet": lambda: _example(UNet(), randn(2, 1, 8, 8)),
    "lstm_tagger": lambda: _example(Tagger(), randint(0, 20, (2, 7))),
    "gru": lambda: _example(Counter(), randn(5, 2, 4)),
}
