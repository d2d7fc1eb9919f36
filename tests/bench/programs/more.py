"""Programs beside those of ``__init__.py``: a residual network, ``nn.LSTM``, an optimizer alone, parts of networks.

A part is a forward and a backward without an optimizer, so that it shows one thing.
"""

from programs import Program, classifier, optimizer


def resnet(T, batch=32, width=64, blocks=2, side=32):
    """ResNet-18 with the stem for CIFAR, 32 images of 32x32, SGD with momentum and weight decay."""
    T.manual_seed(0)
    nn = T.nn

    def conv(fan_in, fan_out, stride, kernel=3):
        return nn.Conv2d(fan_in, fan_out, kernel, stride=stride, padding=kernel // 2, bias=False)

    class Block(nn.Module):
        def __init__(self, fan_in, fan_out, stride):
            super().__init__()
            self.conv1, self.norm1 = conv(fan_in, fan_out, stride), nn.BatchNorm2d(fan_out)
            self.conv2, self.norm2 = conv(fan_out, fan_out, 1), nn.BatchNorm2d(fan_out)
            self.relu = nn.ReLU(inplace=True)
            self.short = (
                nn.Identity()
                if fan_in == fan_out
                else nn.Sequential(conv(fan_in, fan_out, stride, 1), nn.BatchNorm2d(fan_out))
            )

        def forward(self, x):
            y = self.relu(self.norm1(self.conv1(x)))
            return self.relu(self.norm2(self.conv2(y)) + self.short(x))

    widths = [width, 2 * width, 4 * width, 8 * width]
    stages = []
    for i, size in enumerate(widths):
        before = widths[max(i - 1, 0)]
        for j in range(blocks):
            stages.append(Block(before if j == 0 else size, size, 2 if i and j == 0 else 1))
    net = nn.Sequential(
        conv(3, width, 1),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * width, 10),
    )
    program = classifier(
        T, net, T.randn(batch, 3, side, side), name="SGD", lr=0.01, momentum=0.9, weight_decay=5e-4
    )
    program.tolerance = 2e-3  # 20 batch norms enlarge the last digit
    return program


def recurrent(T, width=256, length=64, batch=32):
    """``nn.LSTM`` of width 256 over 64 steps of 32 sequences, SGD with momentum."""
    T.manual_seed(0)
    nn = T.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.head = nn.LSTM(width, width), nn.Linear(width, 1)

        def forward(self, x):
            return self.head(self.cells(x)[0][-1])

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


class Update(Program):
    """A step of the optimizer on gradients that stay; the loss is a number of the parameters."""

    def step_on(self):
        self.optimizer.step()
        return self.loss()


def adamw(T, count=100, size=100_000):
    """AdamW alone over 100 parameters of 100,000 elements."""
    T.manual_seed(0)
    parameters = [T.nn.Parameter(T.randn(size)) for _ in range(count)]
    for p in parameters:
        p.grad = T.randn(size)
    net = T.nn.ParameterList(parameters)
    return Update(T, net, lambda: parameters[-1].detach()[:1], (), optimizer(T, "AdamW", parameters, lr=1e-2))


def part(T, net, *shape, **options):
    """The mean of the squares of what ``net`` makes of a normal ``x`` of ``shape``, and its gradients."""
    x = T.randn(*shape).requires_grad_()

    def loss(x):
        x.grad = None
        return net(x).square().mean()

    return Program(T, net, loss, (x,), **options)


def attention(T, batch=4, heads=8, length=512, width=64):
    """Causal ``scaled_dot_product_attention``: 4 x 8 heads of 64, 512 places."""
    T.manual_seed(0)

    class Net(T.nn.Module):
        def forward(self, x):
            q, k, v = x.unbind(0)
            return T.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return part(T, Net(), 3, batch, heads, length, width)


def depthwise(T, batch=16, channels=128, side=28):
    """A depthwise 3x3 convolution of 16 images, 128 channels of 28x28."""
    T.manual_seed(0)
    return part(
        T, T.nn.Conv2d(channels, channels, 3, padding=1, groups=channels), batch, channels, side, side
    )


def vocabulary(T, words=32_000, width=128, tokens=1024):
    """Embedding, a linear layer to 32,000 classes and their cross entropy, 1,024 tokens."""
    T.manual_seed(0)
    nn = T.nn
    net = nn.Sequential(nn.Embedding(words, width), nn.Linear(width, words))
    text, targets = T.randint(0, words, (tokens,)), T.randint(0, words, (tokens,))
    return Program(T, net, lambda x, y: nn.functional.cross_entropy(net(x), y), (text, targets))


def chain(T, rows=1024, width=512, layers=4):
    """Layer norm, GELU and dropout, four times, on 1,024 x 512."""
    T.manual_seed(0)
    nn = T.nn
    parts = [layer for _ in range(layers) for layer in (nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1))]
    # Which numbers are dropped differs between the libraries; the mean over half a million hardly does.
    return part(T, nn.Sequential(*parts), rows, width, tolerance=3e-2)


def overhead(operation, gradient):
    """A program of one op on 4 x 4 arrays."""

    def program(T):
        T.manual_seed(0)
        x, y = T.randn(4, 4), T.randn(4, 4).requires_grad_(gradient)
        function = {"add": T.add, "matmul": T.matmul}[operation]
        return Calls(T, None, lambda: function(x, y), ())

    program.__doc__ = f"`{operation}` of 4 x 4" + (", taped." if gradient else ".")
    return program


class Calls(Program):
    """A loss that is called a hundred times in a row."""

    COUNT = 100

    def step_on(self):
        for _ in range(self.COUNT):
            result = self.loss()
        return result.detach().sum()


MORE = {
    "resnet": resnet,
    "recurrent": recurrent,
    "adamw": adamw,
    "attention": attention,
    "depthwise": depthwise,
    "vocabulary": vocabulary,
    "chain": chain,
    "add": overhead("add", False),
    "add-taped": overhead("add", True),
    "matmul": overhead("matmul", False),
    "matmul-taped": overhead("matmul", True),
}

TINY_MORE = {
    "resnet": {"batch": 4, "width": 4, "blocks": 1, "side": 16},
    "recurrent": {"width": 4, "length": 3, "batch": 2},
    "adamw": {"count": 3, "size": 10},
    "attention": {"batch": 1, "heads": 2, "length": 8, "width": 4},
    "depthwise": {"batch": 2, "channels": 4, "side": 6},
    "vocabulary": {"words": 20, "width": 4, "tokens": 6},
    "chain": {"rows": 1024, "width": 32, "layers": 1},
}
