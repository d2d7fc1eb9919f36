"""Models, and steps of training, that the tests of ``fully_shard`` share."""

import copy
import threading

import tenon as torch
from tenon import nn
from tenon.distributed.fsdp import fully_shard
from tenon.utils.checkpoint import checkpoint

_ONE_AT_A_TIME = threading.Lock()


class Block(nn.Module):
    """A residual block with a normalization and two linear layers; sizes that 4 ranks split unevenly."""

    def __init__(self, width=6, wide=10):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, wide)
        self.down = nn.Linear(wide, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """An input layer, blocks, an output layer; ``recompute`` checkpoints the blocks."""

    def __init__(self, blocks=3, width=6, recompute=False):
        super().__init__()
        self.first = nn.Linear(5, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.last = nn.Linear(width, 3)
        self.recompute = recompute

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.last(x)


def net(seed=0, device="cpu", **options):
    """The same ``Net`` on every rank; these are threads, which share a generator and the default device."""
    with _ONE_AT_A_TIME, torch.device(device):
        torch.manual_seed(seed)
        return Net(**options)


def batch(seed=1, rows=8):
    """Inputs and classes of a whole batch."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 5, generator=generator), torch.arange(rows) % 3


def part(tensors, communicator):
    """This rank's rows of each tensor."""
    size = len(tensors[0]) // communicator.size
    return [t[communicator.rank * size :][:size] for t in tensors]


def shard(model, **options):
    """``fully_shard`` on each block, then on the model."""
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def step(model, optimizer, x, y):
    """One step of training; return the loss."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def sgd(model):
    """An optimizer with state, in which rounding does not grow as in Adam's quotients."""
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def expected(model, steps=3, rows=8):
    """The losses and weights of plain training on whole batches."""
    model = copy.deepcopy(model)
    optimizer = sgd(model)
    losses = [step(model, optimizer, *batch(i, rows)) for i in range(steps)]
    return losses, model.state_dict()


def whole(model):
    """The state_dict with whole tensors."""
    return {
        name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in model.state_dict().items()
    }


def assert_equal_states(found, wanted):
    """The same names, and values within rounding."""
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)
