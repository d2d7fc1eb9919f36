"""The programs that the benches run, each written once for a library ``T``, which is tenon or torch.

``PROGRAMS[name](T)`` builds a ``Program``: net, loss, batch and optimizer from a fixed seed. Both libraries draw the
same numbers for a seed, so both run the very same training: the benches refuse to time programs whose losses
differ. Programs of layers that tenon does not have yet are in ``ROWS`` of ``cpu.py`` only.
"""

from dataclasses import dataclass
from typing import Any


@dataclass
class Program:
    """What there is to run: a training step, or with ``optimizer=None`` a forward and a backward."""

    T: Any
    net: Any
    #: ``loss(*batch)``: the forward pass up to the loss.
    loss: Any
    batch: tuple[Any, ...]
    optimizer: Any = None
    #: Called before every step for the batch, where it is drawn anew each time.
    draw: Any = None
    #: What ``net`` takes, for inference.
    inputs: tuple[Any, ...] = ()
    #: Relative difference allowed between the losses of two libraries.
    tolerance: float = 1e-4

    def step(self):
        """One training step; returns its loss."""
        return self.step_on(*(self.draw() if self.draw else self.batch))

    def step_on(self, *batch):
        """The same on a given batch."""
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        else:
            self.net.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        if self.optimizer is not None:
            self.optimizer.step()
        return loss


#: Whether PyTorch's optimizers are fused: their fastest form in eager mode on a CPU (see ``docs/benchmarks.md``).
FUSED = True


def optimizer(T, name, parameters, **options):
    """An optimizer of either library."""
    if T.__name__ == "torch" and FUSED:
        options["fused"] = True
    return getattr(T.optim, name)(parameters, **options)


def note(T):
    """The Modules note's network: 4-3-1, one unbatched sample, SGD with momentum and weight decay."""
    T.manual_seed(0)

    class MyLinear(T.nn.Module):
        def __init__(self, fan_in, fan_out):
            super().__init__()
            self.weight = T.nn.Parameter(T.randn(fan_in, fan_out))
            self.bias = T.nn.Parameter(T.randn(fan_out))

        def forward(self, x):
            return (x @ self.weight) + self.bias

    class Net(T.nn.Module):
        def __init__(self):
            super().__init__()
            self.l0 = MyLinear(4, 3)
            self.l1 = MyLinear(3, 1)

        def forward(self, x):
            x = self.l0(x)
            x = x.relu()
            return self.l1(x)

    net = Net()
    return Program(
        T,
        net,
        lambda x: net(x).abs(),
        (),
        optimizer(T, "SGD", net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9),
        draw=lambda: (T.randn(4),),
    )


def classifier(T, net, inputs, classes=10, **options):
    """The cross entropy of ``net`` on one fixed batch; Adam unless told otherwise."""
    targets = T.randint(0, classes, (len(inputs),))
    name = options.pop("name", "Adam")
    return Program(
        T,
        net,
        lambda x, y: T.nn.functional.cross_entropy(net(x), y),
        (inputs, targets),
        optimizer(T, name, net.parameters(), **({"lr": 1e-3} | options)),
        inputs=(inputs,),
    )


def mlp(T, batch=128, width=512):
    """784-512-512-10 on a batch of 128, Adam."""
    T.manual_seed(0)
    nn = T.nn
    net = nn.Sequential(
        nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
    return classifier(T, net, T.randn(batch, 784))


def cnn(T, batch=64, channels=32):
    """Convolutions 1-32-64, 3x3, max-pool, two linear layers, on 64 images of 28x28, Adam."""
    T.manual_seed(0)
    nn = T.nn
    net = nn.Sequential(
        nn.Conv2d(1, channels, 3),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * channels * 144, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return classifier(T, net, T.randn(batch, 1, 28, 28))


def gpt(T, layers=4, width=128, heads=4, length=128, batch=8, words=256, sdpa=False):
    """A GPT of 4 blocks: width 128, 4 heads, 8 sequences of 128 bytes, AdamW.

    Attention is written out, or the library's ``scaled_dot_product_attention``.
    """
    T.manual_seed(0)
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, mask):
            each = (batch, length, heads, width // heads)
            q, k, v = (p.view(each).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(width, dim=2))
            seen = self.attend(q, k, v, mask).transpose(1, 2).contiguous().view(batch, length, width)
            x = x + self.out(seen)
            return x + self.down(F.gelu(self.up(self.norm2(x))))

        def attend(self, q, k, v, mask):
            if sdpa:
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)
            scores = (q @ k.transpose(-2, -1)) * (width // heads) ** -0.5
            return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, text, places, mask):
            x = self.words(text) + self.places(places)
            for block in self.blocks:
                x = block(x, mask)
            return self.head(self.norm(x))

    net = Model()
    text, targets = T.randint(0, words, (batch, length)), T.randint(0, words, (batch, length))
    places, mask = T.arange(length), T.triu(T.ones(length, length), diagonal=1).bool()

    def loss(text, targets):
        scores = net(text, places, mask)
        return F.cross_entropy(scores.view(-1, words), targets.view(-1))

    return Program(
        T,
        net,
        loss,
        (text, targets),
        optimizer(T, "AdamW", net.parameters(), lr=1e-3),
        inputs=(text, places, mask),
    )


def lstm(T, length=32, batch=16, width=64):
    """An LSTM cell written out in Python, 32 steps long, width 64, batch 16, SGD: many small ops."""
    T.manual_seed(0)
    nn = T.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
            self.head = nn.Linear(width, 1)

        def forward(self, x):
            h = c = T.zeros(batch, width)
            for t in range(length):
                i, f, g, o = (self.inner(x[t]) + self.outer(h)).chunk(4, 1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            return self.head(h)

    net = Net()
    x, y = T.randn(length, batch, width), T.randn(batch, 1)
    return Program(
        T,
        net,
        lambda x, y: T.nn.functional.mse_loss(net(x), y),
        (x, y),
        optimizer(T, "SGD", net.parameters(), lr=1e-2, momentum=0.9),
        inputs=(x,),
    )


PROGRAMS = {"note": note, "mlp": mlp, "cnn": cnn, "gpt": gpt, "lstm": lstm}

#: Sizes that run in no time, for the test that the benches run at all.
TINY = {
    "mlp": {"batch": 4, "width": 8},
    "cnn": {"batch": 2, "channels": 2},
    "gpt": {"layers": 1, "width": 8, "heads": 2, "length": 4, "batch": 2, "words": 16},
    "lstm": {"length": 2, "batch": 2, "width": 4},
}
