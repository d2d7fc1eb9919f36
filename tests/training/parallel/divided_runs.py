"""A project whose model has blocks of layers, and what runs with a section [parallel] leave behind."""

from pathlib import Path

import tenon
from tenon.distributed.checkpoint.state_dict_loader import load_whole
from tenon.serialize.checkpoint import read_checkpoint
from tenon.training import checkpoint

MODEL = """
import numpy as np

import tenon
from tenon import nn
from tenon.data import Splits, TensorDataset


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.drop, self.down = nn.Dropout(dropout), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(self.drop(nn.functional.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    tensor_parallel_plan = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}

    def __init__(self, depth=4, dropout=0.1, normalised=False):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16) if normalised else nn.Identity()
        self.blocks = nn.ModuleList(Block(16, dropout) for _ in range(depth))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = self.norm(self.first(x))
        for block in self.blocks:
            x = block(x)
        return self.last(x)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        heads = (p(x).view(batch, length, width // 8, 8).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return x + self.o(y.transpose(1, 2).reshape(batch, length, width))


class Words(nn.Module):
    # Scores of 12 words at each position, of shape [N, 12, L].

    tensor_parallel_plan = {
        "embed": "rowwise_rep", "blocks.*.[qkv]": "colwise", "blocks.*.o": "rowwise",
        "blocks.*.up": "colwise", "blocks.*.down": "rowwise", "head": "colwise",
    }

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.blocks = nn.ModuleList([Attention(16), Block(16, 0.1), Attention(16), Block(16, 0.1)])
        self.head = nn.Linear(16, 12, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).transpose(1, 2)


def load_words() -> Splits:
    random = np.random.default_rng(0)
    words = (random.integers(0, 12, (51, 1)) + np.arange(8) * random.integers(1, 3, (51, 1))) % 12
    x, y = words[:, :-1], words[:, 1:].copy()
    y[random.random(y.shape) < 0.2] = -100
    x, y = tenon.from_numpy(x), tenon.from_numpy(y)
    return Splits(TensorDataset(x[:40], y[:40]), TensorDataset(x[40:], y[40:]))


def load(train=70, test=31, masked=False) -> Splits:
    random = np.random.default_rng(0)
    x = random.normal(size=(train + test, 6)).astype(np.float32)
    y = (x[:, :3] + x[:, 3:]).argmax(1)
    if masked:
        y[random.random(train + test) < 0.4] = -100
    x, y = tenon.from_numpy(x), tenon.from_numpy(y)
    return Splits(TensorDataset(x[:train], y[:train]), TensorDataset(x[train:], y[train:]))
"""

CONFIG = """
model = "blocky:Net"
data = "blocky:load"
epochs = 2
batch_size = 20
clip_grad_norm = 1.0
parallel.modules = ["blocks.*"]

[optimizer]
name = "SGD"
lr = 0.1
momentum = 0.9

[log]
tensorboard = false
"""


def write_project(folder):
    """Write the model, its data and its configuration, ``my.toml``."""
    (folder / "blocky.py").write_text(MODEL)
    (folder / "my.toml").write_text(CONFIG)


def sections(run_folder):
    """The newest checkpoint of a run, as one rank would have written it: whole tensors."""
    newest = checkpoint.newest_valid(Path(run_folder))
    return load_whole(checkpoint_id=newest) if newest.is_dir() else read_checkpoint(newest)


def weights(run):
    assert run.code == 0, run.err
    model = sections(run.folder)["model"]
    return tenon.cat([model[name].reshape(-1).double() for name in sorted(model)]).numpy()


def settings(**values):
    """``settings(shard=2)``: the options of the command that set keys of the section [parallel]."""
    return [text for key, value in values.items() for text in ("--set", f"parallel.{key}={value}")]
