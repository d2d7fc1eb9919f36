"""Losses agree with torch: values, gradients, second order, every reduction, and what each refuses."""

from __future__ import annotations

import numpy as np
import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]

REDUCTIONS = ["none", "mean", "sum"]


@pytest.fixture
def scores(rng):
    return rng.standard_normal((5, 4)) * 3


@pytest.fixture
def labels(rng):
    return rng.integers(0, 4, 5)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy_of_indices_agrees(agree, scores, labels, reduction, dtype):
    agree(lambda t, F, x, y: F.cross_entropy(x, y, reduction=reduction), scores.astype(dtype), labels)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy_with_ignored_targets_agrees(agree, scores, labels, reduction, weighted):
    labels[1] = labels[3] = 2
    weight = np.array([0.5, 1.0, 0.1, 2.0])

    def loss(t, F, x, y):
        return F.cross_entropy(
            x,
            y,
            weight=t.from_numpy(weight.copy()) if weighted else None,
            ignore_index=2,
            reduction=reduction,
        )

    agree(loss, scores, labels, order=2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_label_smoothing_agrees(agree, scores, labels, reduction, weighted):
    labels[0] = -100
    weight = np.array([0.5, 1.0, 0.1, 2.0])

    def loss(t, F, x, y):
        w = t.from_numpy(weight.copy()) if weighted else None
        return F.cross_entropy(x, y, weight=w, reduction=reduction, label_smoothing=0.2)

    agree(loss, scores, labels, order=2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_of_probabilities_agrees(agree, rng, scores, reduction, smoothing):
    target = rng.dirichlet(np.ones(4), 5)
    weight = np.array([0.5, 1.0, 0.1, 2.0])

    def loss(t, F, x, y):
        w = t.from_numpy(weight.copy())
        return F.cross_entropy(x, y, weight=w, reduction=reduction, label_smoothing=smoothing)

    agree(loss, scores, target, order=2)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 5), (3,), (1, 1), (2, 3, 0), (0, 3)])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_over_any_axes_agrees(agree, rng, shape, reduction):
    x = rng.standard_normal(shape)
    classes = shape[1] if len(shape) > 1 else shape[0]
    y = rng.integers(0, classes, shape[:1] + shape[2:] if len(shape) > 1 else ())

    agree(lambda t, F, x, y: F.cross_entropy(x, y, reduction=reduction), x, np.asarray(y))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_cross_entropy_of_16_bits_is_rounded_once(rng, name):
    narrow = tenon.tensor(rng.standard_normal((64, 50)) * 4).to(getattr(tenon, name)).requires_grad_()
    wide = narrow.detach().float().requires_grad_()
    labels = tenon.tensor(rng.integers(0, 50, 64))
    for x in (narrow, wide):
        tenon.nn.functional.cross_entropy(x, labels, reduction="none").sum().backward()

    assert narrow.grad.dtype is narrow.dtype
    step = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[name]
    np.testing.assert_allclose(narrow.grad.float().numpy(), wide.grad.numpy(), rtol=step, atol=1e-7)


def test_cross_entropy_of_whole_numbers_in_the_scores_shape_asks_for_probabilities(scores):
    x = tenon.tensor(scores)

    with pytest.raises(
        RuntimeError, match=r"Expected floating point type for target with class prob.*got Long"
    ):
        tenon.nn.functional.cross_entropy(x, tenon.zeros(x.shape, dtype=tenon.int64))


def test_cross_entropy_with_every_target_ignored_is_nan(agree, scores):
    agree(lambda t, F, x, y: F.cross_entropy(x, y), scores, np.full(5, -100))


def test_cross_entropy_of_infinite_scores_agrees(agree):
    x = np.array([[-np.inf, 0.0, 1.0], [1e4, -1e4, 0.0]], np.float32)

    agree(lambda t, F, x, y: F.cross_entropy(x, y), x, np.array([1, 0]))


def test_nan_scores_give_a_nan_loss():
    x = tenon.tensor([[float("nan"), 1.0]])

    assert tenon.nn.functional.cross_entropy(x, tenon.tensor([1])).isnan().item()


def test_nan_targets_give_a_nan_loss_without_error(agree, scores):
    target = np.full((5, 4), 0.25)
    target[2, 1] = np.nan

    agree(lambda t, F, x, y: F.cross_entropy(x, y), scores, target)
    agree(lambda t, F, x, y: F.mse_loss(x, y), scores, target)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss_agrees(agree, scores, labels, reduction):
    labels[2] = -1
    weight = np.array([0.5, 1.0, 0.1, 2.0])

    def loss(t, F, x, y):
        return F.nll_loss(x, y, t.from_numpy(weight.copy()), ignore_index=-1, reduction=reduction)

    agree(loss, scores, labels)
    agree(lambda t, F, x, y: F.nll_loss(F.log_softmax(x, 1), y, ignore_index=-1), scores, labels, order=2)


PAIRS = {
    "mse_loss": {},
    "l1_loss": {},
    "smooth_l1_loss": {"beta": 0.7},
    "smooth_l1_loss ": {"beta": 0.0},
    "huber_loss": {"delta": 0.6},
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_losses_of_differences_agree(agree, rng, name, reduction):
    x, y = rng.standard_normal((2, 3, 4))

    agree(
        lambda t, F, x, y: getattr(F, name.strip())(x, y, reduction=reduction, **PAIRS[name]), x, y, order=2
    )


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss"])
def test_losses_of_empty_inputs_agree(agree, name):
    x = np.zeros((0, 3), np.float32)

    agree(lambda t, F, x, y: (getattr(F, name)(x, y), getattr(F, name)(x, y, reduction="sum")), x, x)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weighted_losses_agree(agree, rng, reduction):
    x, y, w = rng.random((3, 3, 4))

    agree(lambda t, F, x, y, w: F.mse_loss(x, y, weight=w, reduction=reduction), x, y, w)
    agree(lambda t, F, x, y, w: F.l1_loss(x, y, weight=w, reduction=reduction), x, y, w)
    agree(lambda t, F, x, y, w: F.huber_loss(x, y, weight=w, reduction=reduction), x, y, w)


def test_different_sizes_warn_and_broadcast(rng):
    x, y = tenon.randn(3, 4), tenon.randn(4)

    with pytest.warns(UserWarning, match="different to the input size"):
        loss = tenon.nn.functional.mse_loss(x, y)

    assert loss.shape == ()


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_cross_entropy_with_logits_agrees(agree, rng, reduction, weighted):
    x, y = rng.standard_normal((3, 4)) * 4, rng.random((3, 4))
    weight, positive = rng.random((3, 4)), rng.random(4) * 3

    def loss(t, F, x, y):
        extra = (
            {"weight": t.from_numpy(weight.copy()), "pos_weight": t.from_numpy(positive.copy())}
            if weighted
            else {}
        )
        return F.binary_cross_entropy_with_logits(x, y, reduction=reduction, **extra)

    agree(loss, x, y, order=2)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy_agrees(agree, rng, reduction):
    x, y, w = rng.random((3, 3, 4))
    x[0, :2] = [0.0, 1.0]

    # torch has the slope's smallest divisor, 1e-12, in float32.
    agree(lambda t, F, x, y: F.binary_cross_entropy(x, y, reduction=reduction), x, y, tolerance=1e-8)
    agree(
        lambda t, F, x, y, w: F.binary_cross_entropy(x, y, w.detach(), reduction=reduction),
        x,
        y,
        w,
        tolerance=1e-8,
    )


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
@pytest.mark.filterwarnings("ignore:reduction")
def test_kl_div_agrees(agree, rng, reduction):
    x, y = np.log(rng.dirichlet(np.ones(4), 3)), rng.dirichlet(np.ones(4), 3)
    y[0, 1] = 0.0

    agree(lambda t, F, x, y: F.kl_div(x, y.detach(), reduction=reduction), x, y)
    agree(lambda t, F, x, y: F.kl_div(x, y, reduction=reduction, log_target=True), x, x - 0.1)


REFUSED = {
    "label above": lambda t, F, x: F.cross_entropy(x, t.full((4,), 7)),
    "label below": lambda t, F, x: F.cross_entropy(x, t.full((4,), -7)),
    "batch sizes": lambda t, F, x: F.cross_entropy(x, t.zeros(5, dtype=t.long)),
    "int32 labels": lambda t, F, x: F.cross_entropy(x, t.zeros(4, dtype=t.int32)),
    "float labels": lambda t, F, x: F.cross_entropy(x, t.zeros(4)),
    "ignored probabilities": lambda t, F, x: F.cross_entropy(x, x.detach(), ignore_index=1),
    "reduction": lambda t, F, x: F.mse_loss(x, x.detach(), reduction="foo"),
    "class weights": lambda t, F, x: F.nll_loss(x, t.zeros(4, dtype=t.long), weight=t.ones(5)),
    "logit sizes": lambda t, F, x: F.binary_cross_entropy_with_logits(x, x[:2].detach()),
    "not probabilities": lambda t, F, x: F.binary_cross_entropy(x * 100, x.detach()),
    "smoothing": lambda t, F, x: F.cross_entropy(x, t.zeros(4, dtype=t.long), label_smoothing=1.5),
    "mismatched": lambda t, F, x: F.mse_loss(x, x[:, :3].detach()),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:Using a target size")
def test_bad_input_is_refused_in_torchs_words(refuse, rng, name):
    refuse(REFUSED[name], rng.standard_normal((4, 6)).astype(np.float32))


def test_a_label_out_of_range_names_label_and_classes():
    with pytest.raises(IndexError, match=r"Target 7 is out of bounds\. There are 3 classes"):
        tenon.nn.functional.cross_entropy(tenon.zeros(2, 3), tenon.tensor([0, 7]))


def test_grad_fn_prints_as_in_torch(rng):
    torch = pytest.importorskip("torch")
    names = []
    for t in (tenon, torch):
        F = t.nn.functional
        x, y = t.ones(3, 4, requires_grad=True), t.ones(3, 4)
        labels = t.zeros(3, dtype=t.long)
        deep = t.ones(2, 3, 4, requires_grad=True)
        losses = [
            F.cross_entropy(x, labels),
            F.cross_entropy(deep, t.zeros(2, 4, dtype=t.long)),
            F.nll_loss(x, labels),
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.huber_loss(x, y),
            F.binary_cross_entropy_with_logits(x, y),
            F.binary_cross_entropy(x, y),
        ]
        names.append([loss.grad_fn.name() for loss in losses])

    assert names[0] == names[1]


def test_programs_return_nan_for_values_that_eager_mode_refuses():
    calls = {
        tenon.nn.functional.gaussian_nll_loss: lambda x, v: (x, x, v),
        tenon.nn.functional.binary_cross_entropy: lambda x, v: (v, x),
    }
    for function, arguments in calls.items():
        compiled = tenon.compile(function)
        x, right, wrong = tenon.zeros(2), tenon.tensor([0.5, 1.0]), tenon.tensor([0.5, -1.0])
        for _ in range(4):
            expected = function(*arguments(x, right))
            assert tenon.allclose(compiled(*arguments(x, right)), expected)

        assert compiled.programs
        with pytest.raises(RuntimeError):
            function(*arguments(x, wrong))
        assert compiled(*arguments(x, wrong)).isnan()
