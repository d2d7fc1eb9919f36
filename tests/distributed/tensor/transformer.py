"""A small language model, plans that make it parallel, and steps of training that tests share."""

import copy

import tenon as torch
from tenon import nn
from tenon.distributed.tensor import Replicate, Shard
from tenon.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
)

functional = nn.functional
WORDS, WIDTH, LENGTH = 10, 8, 4


class Attention(nn.Module):
    """Causal attention of heads of 4 features, as many as the projections have."""

    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, length = x.shape[:2]
        heads = (p(x).view(batch, length, -1, 4).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """Two linear layers."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    """Attention and two linear layers, each behind a normalization, with dropout."""

    def __init__(self, width, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.ffn = Attention(width), FeedForward(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.ffn(self.dropout(self.norm2(x)))


class Transformer(nn.Module):
    """Words to scores of the next word."""

    def __init__(self, blocks=2, dropout=0.0, tied=False):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def tensor_plan():
    """Heads, hidden features and words are split; what is between them every rank has."""
    return {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        **{f"blocks.*.attention.{name}": ColwiseParallel() for name in "qkv"},
        "blocks.*.ffn.up": ColwiseParallel(),
        "blocks.*.attention.o": RowwiseParallel(),
        "blocks.*.ffn.down": RowwiseParallel(),
        "head": ColwiseParallel(use_local_output=False),
    }


def sequence_plan(local=True):
    """As ``tensor_plan``, and between them positions are split."""
    back = {"output_layouts": Shard(1), "use_local_output": local}
    whole = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}
    return {
        "embed": RowwiseParallel(input_layouts=Replicate(), **back),
        "blocks.*.norm?": SequenceParallel(),
        "blocks.*.dropout": SequenceParallel(),
        "blocks.*.attention": PrepareModuleInput(**whole),
        "blocks.*.ffn": PrepareModuleInput(**whole),
        **{f"blocks.*.attention.{name}": ColwiseParallel() for name in "qkv"},
        "blocks.*.ffn.up": ColwiseParallel(),
        "blocks.*.attention.o": RowwiseParallel(**back),
        "blocks.*.ffn.down": RowwiseParallel(**back),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }


def transformer(**options):
    """The model, with the same numbers each time."""
    torch.manual_seed(3)
    return Transformer(**options)


def batch(rows=4, length=LENGTH, seed=5):
    """Words and the words after them."""
    torch.manual_seed(seed)
    words = torch.randint(0, WORDS, (rows, length + 1))
    return words[:, :-1], words[:, 1:]


def train(model, x, y, steps=2, clip=1.0):
    """Losses of steps of SGD with momentum and clipping by the global norm."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with loss_parallel():
            loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(model):
    """The state dict with whole tensors."""
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value.detach()
        for name, value in model.state_dict().items()
    }


def trained(base, x, y, steps=2):
    """The losses of plain training, and the state afterwards."""
    model = copy.deepcopy(base)
    torch.manual_seed(7)
    losses = train(model, x, y, steps)
    return losses, whole(model)


def assert_equal_states(found, expected, rtol=1e-4, atol=1e-6):
    """The same tensors within rounding."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )
