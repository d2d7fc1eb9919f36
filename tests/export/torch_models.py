"""Modules with their arguments, for tenon and for PyTorch alike: what ``torch.export`` has to tell of each."""

import collections

Point = collections.namedtuple("Point", ["x", "y"])


def models(t):
    """Name -> (module, args, kwargs), of the library ``t``."""
    nn, relu = t.nn, t.nn.functional.relu
    t.manual_seed(0)

    class Perceptron(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.b(relu(self.a(x)))

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", t.zeros(2))
            self.register_buffer("k", t.ones(2), persistent=False)

        def forward(self, x):
            self.n.add_(1)
            return x + self.n * self.k

    class Constants(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = t.arange(3.0)

        def forward(self, x):
            return x + self.c + t.tensor([1.0, 2.0, 3.0])

    class Structures(nn.Module):
        def forward(self, x, y=None, *, scale=2):
            return {"sum": x + y, "list": [x * scale, (y, None, 3)]}

    class Nested(nn.Module):
        def forward(self, inputs, points):
            return inputs["a"] + inputs["b"][0] * points[1].x, points[0].y

    class Mutating(nn.Module):
        def forward(self, x, y):
            x.add_(1)
            return x * y

    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, tokens):
            return self.head(self.layer(self.table(tokens)))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x):
            return self.cells(x)[0]

    class Through(nn.Module):
        def forward(self, x):
            return x, x + 1

    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x, y):
            return self.a(x)

    class Any(nn.Module):
        def forward(self, *xs, **more):
            return sum(xs) + more["z"]

    image = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    points = [Point(t.randn(2), t.randn(2)), Point(t.randn(2), t.randn(2))]
    return {
        "perceptron": (Perceptron().eval(), (t.randn(3, 4),), {}),
        "image": (image.eval(), (t.randn(2, 3, 8, 8),), {}),
        "training norm": (nn.BatchNorm2d(4), (t.randn(2, 4, 8, 8),), {}),
        "counter": (Counter(), (t.randn(2),), {}),
        "constants": (Constants(), (t.randn(3),), {}),
        "structures": (Structures(), (t.randn(3),), {"y": t.randn(3), "scale": 2}),
        "nested": (Nested(), ({"a": t.randn(2), "b": (t.randn(2),)}, points), {}),
        "mutating": (Mutating(), (t.randn(3), t.randn(3)), {}),
        "language": (Language().eval(), (t.randint(0, 11, (2, 5)),), {}),
        "recurrent": (Recurrent().eval(), (t.randn(2, 5, 3),), {}),
        "through": (Through(), (t.randn(2),), {}),
        "unused": (Unused(), (t.randn(1, 2), t.randn(3)), {}),
        "any": (Any(), (t.randn(2), t.randn(2)), {"z": t.randn(2)}),
    }
