"""``F.linear_cross_entropy`` in pieces: the same loss, smaller scores."""

import pytest

import tenon
import tenon.nn.functional as F
from tenon.errors import DTypeError, ModuleValueError, TenonWarning
from tenon.nn import LinearCrossEntropyOptions


def _setting():
    tenon.manual_seed(0)
    x = tenon.randn(7, 3, requires_grad=True)
    weight = tenon.randn(5, 3, requires_grad=True)
    return x, weight, tenon.tensor([0, 4, -100, 2, 1, 1, 3])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_pieces_give_the_loss_and_gradients_of_the_whole(reduction):
    x, weight, target = _setting()
    whole = F.linear_cross_entropy(x, weight, target, reduction=reduction)
    wanted = tenon.autograd.grad(whole, [x, weight])

    options = LinearCrossEntropyOptions(batch_chunk_size=2)
    pieces = F.linear_cross_entropy(x, weight, target, reduction=reduction, options=options)
    found = tenon.autograd.grad(pieces, [x, weight])

    tenon.testing.assert_close(pieces, whole)
    tenon.testing.assert_close(list(found), list(wanted))


def test_scores_of_a_piece_are_not_kept_for_backward():
    x, weight, target = _setting()
    kept = []

    def pack(tensor):
        kept.append(tuple(tensor.shape))
        return tensor

    with tenon.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        options = LinearCrossEntropyOptions(batch_chunk_size=2)
        F.linear_cross_entropy(x, weight, target, options=options)

    assert not [shape for shape in kept if shape[-1:] == (5,)]


@pytest.mark.parametrize(
    ("batch", "features", "classes", "method", "rows"),
    [
        (64, 8, 64, "aspect_ratio", 8),
        (64, 8, 64, "aspect_ratio:2", 4),
        (5, 3, 4, "auto", 2),
        (3, 8, 2, None, 3),
    ],
)
def test_rows_of_a_piece_follow_the_ratio_of_scores_to_input(batch, features, classes, method, rows):
    options = LinearCrossEntropyOptions(chunking_method=method)

    assert options.rows(batch, features, classes) == rows


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_chunk_size": 0},
        {"chunking_method": "rows"},
        {"acc_policy": "best"},
        {"acc_dtype": tenon.int64},
    ],
)
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ModuleValueError):
        LinearCrossEntropyOptions(**wrong)


def test_two_sizes_of_a_piece_are_refused():
    options = LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio")

    with pytest.raises(ModuleValueError, match="pass only one"):
        options.rows(64, 8, 64)


def test_sums_wider_than_the_input_are_for_short_floats_only():
    x, weight, target = _setting()

    with pytest.raises(DTypeError, match="acc_dtype"):
        F.linear_cross_entropy(x, weight, target, options=LinearCrossEntropyOptions(acc_dtype=tenon.float64))


def test_a_loss_that_cannot_be_cut_says_so_and_is_computed_at_once():
    x, weight, target = _setting()
    wanted = F.linear_cross_entropy(x, weight, target, label_smoothing=0.1)

    with pytest.warns(TenonWarning, match="options are ignored"):
        found = F.linear_cross_entropy(
            x, weight, target, label_smoothing=0.1, options=LinearCrossEntropyOptions()
        )

    assert found.item() == wanted.item()


def test_scores_of_one_row_are_in_float32_as_those_of_several_are():
    x, weight = tenon.tensor([300.0, 2.0]).half(), tenon.tensor([[250.0, 1.0], [1.0, 1.0]]).half()
    options = LinearCrossEntropyOptions()

    for reduction in ("none", "mean", "sum"):
        loss = F.linear_cross_entropy(x, weight, tenon.tensor(0), reduction=reduction, options=options)
        assert loss.shape == () and loss.item() == 0.0
