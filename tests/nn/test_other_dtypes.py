"""Layers and functions on integers: in the integers' own arithmetic, as in torch."""

import pytest

import tenon
import tenon.nn.functional as F
from tenon import nn
from tenon.errors import ArgumentError, DTypeError, ModuleTypeError, ModuleValueError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def _same(ours, theirs):
    assert str(ours.dtype) == str(theirs.dtype)
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("name", "args", "options"),
    [
        ("relu6", [[1, 9, 6]], {}),
        ("hardtanh", [[1, 9, 250]], {"min_val": 2.7, "max_val": 200.9}),
        ("softmin", [[1, 9, 0]], {"dim": 0, "dtype": "float64"}),
        ("margin_ranking_loss", [[3, 250], [1, 251], [1, 1]], {"reduction": "none"}),
        ("bilinear", [[1, 2], [3, 4], [[[5, 6], [7, 8]]]], {}),
    ],
)
def test_small_integers_keep_their_dtype_and_wrap(name, args, options):
    results = []
    for lib in (tenon, torch):
        given = {k: getattr(lib, v) if k == "dtype" else v for k, v in options.items()}
        call = getattr(lib.nn.functional, name)
        results.append(call(*[lib.tensor(a, dtype=lib.uint8) for a in args], **given))

    if results[1].dtype.is_floating_point:
        tenon.testing.assert_close(results[0], tenon.from_numpy(results[1].numpy()))
    else:
        _same(*results)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(9, 4), (3, 20)])
def test_images_of_bytes_are_resized_to_bytes(mode, align, size):
    pixels = [[[[(37 * i * j + 11 * j) % 256 for j in range(7)] for i in range(6)]]]
    ours, theirs = (
        lib.nn.functional.interpolate(
            lib.tensor(pixels, dtype=lib.uint8), size=size, mode=mode, align_corners=align
        )
        for lib in (tenon, torch)
    )

    assert str(ours.dtype) == str(theirs.dtype)
    assert abs(ours.numpy().astype(int) - theirs.numpy().astype(int)).max() <= 1


def test_limits_that_a_dtype_cannot_hold_are_refused():
    with pytest.raises(ArgumentError, match="unsigned"):
        F.hardtanh(tenon.tensor([1], dtype=tenon.uint8))
    with pytest.raises(ArgumentError, match="cannot hold"):
        F.hardtanh(tenon.tensor([1], dtype=tenon.int8), 0, 300)
    with pytest.raises(DTypeError, match="Bool"):
        F.hardtanh(tenon.tensor([True]))


def test_weights_of_classes_have_the_dtype_of_the_scores():
    with pytest.raises(DTypeError, match="Float but found Double"):
        F.nll_loss(tenon.zeros(2, 3), tenon.tensor([0, 1]), tenon.ones(3, dtype=tenon.float64))


def test_an_empty_batch_leaves_running_statistics_alone():
    norm = nn.BatchNorm1d(2)

    norm(tenon.ones(0, 2, 3))

    assert norm.running_mean.tolist() == [0, 0]
    assert norm.running_var.tolist() == [1, 1]
    assert norm.num_batches_tracked.item() == 1


def test_layers_refuse_what_they_are_not_made_for():
    with pytest.raises(ModuleTypeError, match="delta"):
        nn.HuberLoss(delta=1j)
    with pytest.raises(ModuleValueError, match="expected 2D or 3D input"):
        nn.CircularPad1d(1)(tenon.ones(1, 2, 3, 4))
