"""Whole models through the target c, within 1e-5; integers of 8 bits within one step."""

import subprocess

import numpy as np
import pytest
from tests.plugins.target_c.programs import Quick, check, sanitized, write

import tenon as t
from tenon import nn
from tenon.export import capture
from tenon.export.vectors import make_vectors
from tenon.testing.suites.target_models import MODELS
from tenon_target_c.target import CTarget

pytestmark = pytest.mark.slow

FEW = ("gpt", "lstm_tagger")


def test_a_model_equals_tenon_as_the_makefile_compiles_it(tmp_path):
    t.manual_seed(0)
    example = MODELS["digits"]()
    write(tmp_path, example.model, *example.args)

    done = subprocess.run(
        ["make", "-s", "-C", str(tmp_path), "test"], capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 vectors, 0 failures" in done.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in MODELS]
)
def test_models_equal_tenon(name, tmp_path):
    t.manual_seed(0)
    example = MODELS[name]()

    check(tmp_path, example.model, *example.args)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_models_on_sanitizers(name, tmp_path):
    t.manual_seed(0)
    example = MODELS[name]()
    write(tmp_path, example.model, *example.args)

    assert "0 failures" in sanitized(tmp_path)


MORE = ("int8-dynamic", "int8-weights")


def perceptron():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 61), nn.ReLU(), nn.Linear(61, 5)).eval()


def convolutional():
    layers = (nn.Conv2d(4, 8, 3, groups=2, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    more = (
        nn.Conv2d(8, 8, 3, groups=8, dilation=2, padding=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )
    return nn.Sequential(*layers, *more).eval()


@pytest.mark.parametrize("scheme", ["int8", *(pytest.param(s, marks=pytest.mark.slow) for s in MORE)])
@pytest.mark.parametrize(("make", "shape"), [(perceptron, (8, 20)), (convolutional, (3, 4, 13, 17))])
def test_quantized_models_equal_tenon_within_a_step(scheme, make, shape, tmp_path):
    t.manual_seed(0)
    x = t.randn(shape)
    quantized = t.quantize(make(), scheme, calibration=[x] if scheme == "int8" else None).model

    vectors = write(tmp_path, quantized, x)
    result = Quick().run(tmp_path, [run.inputs for run in vectors.runs])

    assert vectors.excess(result) <= 1


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("bias", [True, False])
def test_quantized_recurrent_layers_equal_tenon(kind, bias, tmp_path):
    t.manual_seed(0)
    layer = kind(16, 29, num_layers=2, bidirectional=True, bias=bias)
    model = t.quantize(nn.Sequential(nn.Embedding(20, 16), layer).eval(), "int8-dynamic").model

    check(tmp_path, model, t.randint(0, 20, (5, 3)), tolerance=1e-5)
    assert "0 failures" in sanitized(tmp_path)


def step_of(model, optimizer, loss):
    def step(x, y):
        optimizer.zero_grad()
        result = loss(model(x), y)
        result.backward()
        optimizer.step()
        return result

    return step


def adam():
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
    batches = [(t.randn(16, 20), t.randint(0, 5, (16,))) for _ in range(10)]
    return step_of(model, t.optim.Adam(model.parameters(), lr=1e-2), nn.functional.cross_entropy), batches


def momentum():
    layers = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    more = (
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )
    model = nn.Sequential(*layers, *more)
    optimizer = t.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    batches = [(t.randn(8, 1, 8, 8), t.randint(0, 10, (8,))) for _ in range(10)]
    return step_of(model, optimizer, nn.functional.cross_entropy), batches


def decayed():
    model = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))
    batches = [(t.randn(16, 20), t.randn(16, 5)) for _ in range(10)]
    return step_of(model, t.optim.AdamW(model.parameters(), lr=1e-2), nn.functional.mse_loss), batches


def smoothed():
    model = nn.Linear(6, 10)
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)  # its gradient divides a scalar constant
    batches = [(t.randn(4, 6), t.randint(0, 10, (4,))) for _ in range(10)]
    return step_of(model, t.optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.9), loss), batches


class Sequences(nn.Module):
    """Layers of all kinds, on sequences of several lengths."""

    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(11, 6), nn.Linear(9, 3)
        self.lstm, self.gru = nn.LSTM(6, 5, bidirectional=True, proj_size=3), nn.GRU(6, 4, bidirectional=True)
        self.rnn = nn.RNN(14, 9, nonlinearity="relu")

    def forward(self, words):
        packed = nn.utils.rnn.PackedSequence(self.table(words), t.tensor([4, 3, 3, 3, 1, 1]))
        one, other = self.lstm(packed)[0], self.gru(packed)[0]
        joined = nn.utils.rnn.PackedSequence(t.cat([one.data, other.data], 1), packed.batch_sizes)
        return self.out(self.rnn(joined)[1][0])


def recurrent():
    model = Sequences()
    batches = [(t.randint(0, 11, (15,)), t.randint(0, 3, (4,))) for _ in range(10)]
    return step_of(model, t.optim.Adam(model.parameters(), lr=1e-2), nn.functional.cross_entropy), batches


def wide_images():
    layers = (
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 3, 5, stride=2),
        nn.Flatten(),
        nn.Linear(300, 3),
    )
    model = nn.Sequential(*layers)
    batches = [(t.randn(2, 2, 24, 24), t.randint(0, 3, (2,))) for _ in range(10)]
    return step_of(model, t.optim.SGD(model.parameters(), lr=0.05), nn.functional.cross_entropy), batches


@pytest.mark.parametrize(
    "make",
    [
        adam,
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in (momentum, decayed, smoothed, recurrent, wide_images)
        ),
    ],
)
def test_ten_training_steps_have_the_losses_of_tenon(make, tmp_path):
    t.manual_seed(0)
    step, batches = make()
    graph = capture(step, *batches[0], train=True)
    vectors = make_vectors(graph, batches, 1e-4)
    CTarget().write(graph, vectors, tmp_path)

    results = Quick().run(tmp_path, [run.inputs for run in vectors.runs])

    losses = [float(step(*batch)) for batch in batches]
    np.testing.assert_allclose([float(r[0]) for r in results], losses, rtol=1e-4, atol=1e-4)
    assert losses[0] != losses[-1]


@pytest.mark.slow
@pytest.mark.parametrize("make", [momentum, recurrent])
def test_training_steps_on_sanitizers(make, tmp_path):
    t.manual_seed(0)
    step, batches = make()
    graph = capture(step, *batches[0], train=True)
    CTarget().write(graph, make_vectors(graph, batches, 1e-4), tmp_path)

    assert "10 vectors, 0 failures" in sanitized(tmp_path)
