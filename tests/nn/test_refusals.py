"""Errors of layers and functionals, and their exception classes, which programs written for torch catch."""

from __future__ import annotations

import pytest

import tenon
from tenon import nn
from tenon.nn import functional as F

pytestmark = pytest.mark.together

ONES = tenon.ones


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Embedding(3, 2, padding_idx=3),
        lambda: nn.Embedding(3, 2, padding_idx=-4),
        lambda: nn.Embedding(3, 2, _weight=ONES(2, 2)),
        lambda: F.embedding(tenon.arange(2), ONES(3, 2), padding_idx=-4),
        lambda: nn.Embedding.from_pretrained(ONES(3)),
        lambda: nn.EmbeddingBag(3, 2, _weight=ONES(2, 2)),
        lambda: nn.Hardtanh(2, 1),
        lambda: nn.utils.rnn.PackedSequence(ONES(3)),
    ],
)
def test_what_torch_asserts_is_an_assertion_error_and_a_value_error(make):
    with pytest.raises(AssertionError) as raised:
        make()
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: F.embedding([1], ONES(3, 2)), "'input' .position 1. must be Tensor, not list"),
        (lambda: F.embedding_bag(tenon.arange(2), ONES(3, 2), ONES(1)), "'offsets' to have .* Long, Int"),
        (lambda: F.dropout(tenon.arange(3)), "result type Float can't be cast"),
    ],
)
def test_tensors_of_no_use_are_type_errors(call, what):
    with pytest.raises(TypeError, match=what):
        call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: F.pad(ONES(1, 1, 4), (1.5, 1)), "pad"),
        (lambda: F.interpolate(ONES(1, 1, 4, 4), size=(2.0, 2.0)), "size"),
        (lambda: F.interpolate(ONES(1, 1, 4, 4), size=tenon.tensor(2.0)), "size"),
        (lambda: F.conv2d(ONES(1, 2, 4, 4), ONES(2, 2, 2, 2), stride=(1.5, 1)), "stride"),
        (lambda: F.max_pool2d(ONES(1, 2, 4, 4), 2.5), "kernel_size"),
        (lambda: F.unfold(ONES(1, 2, 4, 4), 2, dilation=1.5), "dilation"),
    ],
)
def test_a_fraction_as_a_size_is_refused_and_not_cut(call, name):
    with pytest.raises(
        TypeError, match=f"expected {name} to be (an int or a tuple of ints|one of int or Tuple)"
    ):
        call()


def test_sizes_may_be_any_kind_of_integer(rng):
    x = tenon.from_numpy(rng.standard_normal((1, 1, 4, 4)))
    two = tenon.tensor(2)

    assert tenon.equal(F.interpolate(x, size=two), F.interpolate(x, size=2))
    assert tenon.equal(F.max_pool2d(x, (two, True)), F.max_pool2d(x, (2, 1)))
    assert tenon.equal(F.pad(x, (two, 1)), F.pad(x, (2, 1)))


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.fold(ONES(1, 4, 12), (4, 5), (0, 2)),
        lambda: F.unfold(ONES(1, 4, 5, 5), (2, -1)),
        lambda: F.conv1d(ONES(1, 2, 4), ONES(2, 2, 0)),
        lambda: F.conv3d(ONES(1, 2, 4, 4, 4), ONES(2, 2, 1, 0, 1)),
        lambda: F.conv_transpose2d(ONES(1, 2, 4, 4), ONES(2, 2, 0, 1)),
    ],
)
def test_a_window_without_a_place_is_refused(call):
    with pytest.raises(RuntimeError, match="kernel size should be greater than zero"):
        call()


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_padding_from_inside_needs_channels_but_no_samples(mode, axes):
    empty = [4] * axes

    with pytest.raises(RuntimeError, match=f"Expected {axes + 1}D or {axes + 2}D"):
        F.pad(ONES(3, 0, *empty), (1, 1) * axes, mode=mode)
    with pytest.raises(RuntimeError, match=f"Expected {axes + 1}D or {axes + 2}D"):
        F.pad(ONES(0, *empty), (1, 1) * axes, mode=mode)
    assert F.pad(ONES(0, 3, *empty), (1, 1) * axes, mode=mode).shape == (0, 3, *[6] * axes)


def test_patches_need_channels_but_no_samples():
    with pytest.raises(RuntimeError, match="other non-zero dimensions for input"):
        F.unfold(ONES(1, 0, 3, 3), 2)
    assert F.unfold(ONES(0, 2, 3, 3), 2).shape == (0, 8, 4)


def test_a_grid_along_one_place_with_corners_aligned_warns():
    theta = ONES(1, 2, 3)

    with pytest.warns(UserWarning, match="unit-size axis"):
        F.affine_grid(theta, (1, 1, 2, 1), align_corners=True)
    F.affine_grid(theta, (1, 1, 2, 1), align_corners=False)
    F.affine_grid(theta, (1, 1, 2, 2), align_corners=True)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("first", "second"), [("int8", "float32"), ("float64", "int64"), ("float16", "float32")]
)
def test_cosine_similarity_of_two_dtypes_is_computed_in_their_common_one(first, second):
    torch = pytest.importorskip("torch")

    def found(t):
        x, y = t.tensor([[3.0, 4.0]]).to(getattr(t, first)), t.tensor([[1.0, 2.0]]).to(getattr(t, second))
        return t.nn.functional.cosine_similarity(x, y)

    ours, theirs = found(tenon), found(torch)

    assert str(ours.dtype) == str(theirs.dtype)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-3)


@pytest.mark.parametrize("size", [(1, 0, 5, 5), (1, 2, 0, 5), (2, 0, 5)])
def test_random_windows_need_an_image(size):
    with pytest.raises(RuntimeError, match="non-zero size for non-batch dimensions"):
        F.fractional_max_pool2d(ONES(size), 2, output_size=2)

    assert F.fractional_max_pool2d(ONES(0, 2, 5, 5), 2, output_size=2).shape == (0, 2, 2, 2)


def test_an_instance_norm_that_keeps_statistics_takes_an_epsilon_of_zero_where_a_batch_norm_refuses_it(rng):
    x = tenon.from_numpy(rng.standard_normal((2, 3, 7)).astype("float32"))
    tracking = nn.InstanceNorm1d(3, eps=0, track_running_stats=True)

    assert tenon.allclose(tracking(x), nn.InstanceNorm1d(3, eps=0)(x), atol=1e-6)
    with pytest.raises(ValueError, match="eps must be positive"):
        nn.BatchNorm1d(3, eps=0)(x)


@pytest.mark.parametrize("layer", [nn.Conv1d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.ConvTranspose3d(3, 3, 3)])
def test_a_layer_given_none_says_what_it_wants(layer):
    with pytest.raises(TypeError, match=r"argument 'input' .position 1. must be Tensor, not NoneType"):
        layer(None)


def test_convolutions_of_any_rank_name_the_axes_they_want():
    with pytest.raises(RuntimeError, match="weight must have 3 to 5 axes"):
        tenon.convolution(ONES(2, 3), ONES(2, 3), None, [1], [0], [1], False, [0], 1)
    with pytest.raises(RuntimeError, match="conv_tbc: input must be"):
        F.conv_tbc(ONES(2, 3), ONES(2, 3, 3), ONES(3))


@pytest.mark.parametrize("pool", [F.max_pool2d, F.max_pool3d, F.avg_pool2d, F.avg_pool3d])
def test_pooling_wants_something_in_every_plane(pool):
    with pytest.raises(RuntimeError, match=r"Expected .* tensor with optional 0 dim batch size"):
        pool(ONES(1, 0, 5, 5, 5) if "3d" in pool.__name__ else ONES(1, 0, 5, 5), 2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_averages_of_no_planes_are_empty(rank):
    x = ONES(0, *(10,) * rank, requires_grad=True)
    made = getattr(F, f"adaptive_avg_pool{rank}d")(x, 5)
    made.sum().backward()

    assert made.shape == (0, *(5,) * rank)
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_over_no_place_have_no_gradient(rank, kind):
    x = ONES(1, 2, *(4,) * rank, requires_grad=True)
    made = getattr(F, f"adaptive_{kind}_pool{rank}d")(x, 0)

    with pytest.raises(RuntimeError, match="Expected grad_output to have non-zero size for non-batch"):
        made.sum().backward()


@pytest.mark.parametrize("rank", [2, 3])
def test_random_windows_may_be_none(rank):
    x = ONES(16, 50, *(32,) * rank) if rank == 2 else ONES(4, 10, 32, 32, 32)
    made = getattr(F, f"fractional_max_pool{rank}d")(x, 2, output_size=(0, *(1,) * (rank - 1)))

    assert made.shape == (*x.shape[:2], 0, *(1,) * (rank - 1))


@pytest.mark.parametrize(
    ("image", "grid", "said"),
    [
        ((2, 4, 4), (2, 1, 1, 2), "size 1 in last dimension"),
        ((2, 1, 4, 4), (2, 1, 1, 1, 3), "size 2 in last dimension"),
        ((2, 1, 4, 4), (3, 1, 1, 1, 3), "same batch size"),
        ((2, 1, 4, 0, 4, 4), (2, 1, 4), "dimension 3 being empty"),
        ((2, 1, 4, 4), (2, 3, 2), "expected 4D input"),
        ((2, 1, 4), (2, 3, 1), "expected 5D input"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused_for_its_batch_then_its_last_axis_then_its_rank(
    image, grid, said
):
    with pytest.raises(RuntimeError, match=said):
        F.grid_sample(ONES(image), ONES(grid), align_corners=False)


def test_statistics_of_no_elements_are_refused():
    running = ONES(2)

    with pytest.raises(RuntimeError, match=r"input_sizes = \[0, 2\]"):
        tenon.batch_norm_update_stats(ONES(0, 2), running, running, 0.5)

    assert running.tolist() == [1, 1]


def test_a_padding_mask_of_other_sizes_is_an_assertion_error_and_no_runtime_error():
    layer, x = nn.MultiheadAttention(4, 2), ONES(5, 3, 4)

    for sizes, said in (
        ((2, 5), r"shape\[0\] to be 3, but got 2"),
        ((3, 4), r"shape\[1\] to be 5, but got 4"),
    ):
        with pytest.raises(AssertionError, match=said) as raised:
            layer(x, x, x, key_padding_mask=tenon.zeros(sizes, dtype=tenon.bool))
        assert not isinstance(raised.value, RuntimeError)


def test_evaluating_batch_norms_refuse_forward_gradients_of_statistics_only_with_one_of_the_input():
    make_dual = tenon.autograd.forward_ad.make_dual
    x, mean, variance = ONES(3, 2), ONES(2), ONES(2)

    with tenon.autograd.forward_ad.dual_level():
        F.batch_norm(x, make_dual(mean, mean), variance)
        F.batch_norm(make_dual(x, x), mean, variance)
        with pytest.raises(RuntimeError, match="not differentiable wrt running_mean"):
            F.batch_norm(make_dual(x, x), mean, make_dual(variance, variance))


def test_normalisations_refuse_integers_whose_results_would_be_truncated():
    means, scales = tenon.zeros(2), ONES(2)

    for dtype, name in ((tenon.int8, "Char"), (tenon.bool, "Bool"), (tenon.complex64, "ComplexFloat")):
        for training in (False, True):
            with pytest.raises(NotImplementedError, match=f"\"batch_norm\" not implemented for '{name}'"):
                F.batch_norm(ONES(3, 2).to(dtype), means, scales, training=training)
        for function, options in ((F.instance_norm, ()), (F.layer_norm, (4,)), (F.group_norm, (1,))):
            words = f"\"{function.__name__}\" not implemented for '{name}'"
            with pytest.raises(NotImplementedError, match=words):
                function(ONES(3, 2, 4).to(dtype), *options)
    with pytest.raises(
        RuntimeError, match=r"running_var should be of a float dtype, as the input is; got torch\.i"
    ):
        F.batch_norm(ONES(3, 2), means, scales.long(), training=True)
    with pytest.raises(RuntimeError, match="weight should be of a float dtype"):
        F.batch_norm(ONES(3, 2), means, scales, scales.long())


#: Calls whose sums, differences or quotients of integers would wrap around, or lose their fractions.
OF_INTEGERS = {
    "mse_loss": lambda x: F.mse_loss(x, x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x),
    "huber_loss": lambda x: F.huber_loss(x, x),
    "kl_div": lambda x: F.kl_div(x, x, reduction="sum"),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, tenon.tensor([0, 1])),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, tenon.tensor([[0, 1], [0, -1]])),
    "prelu": lambda x: F.prelu(x, x[0, :1]),
    "native_dropout": lambda x: tenon.native_dropout(x, 0.5, True),
    "lerp": lambda x: tenon.lerp(x, x, 0.5),
    "householder_product": lambda x: tenon.linalg.householder_product(x, x[0]),
    "cdist": lambda x: tenon.cdist(x, x),
    "gradient": lambda x: tenon.gradient(x),
    "avg_pool": lambda x: F.avg_pool1d(x, 2),
    "lp_pool": lambda x: F.lp_pool1d(x, 2, 2),
    "local_response_norm": lambda x: F.local_response_norm(x.reshape(1, 2, 2), 2),
    "embedding_bag": lambda x: F.embedding_bag(tenon.tensor([[0, 1]]), x),
}


@pytest.mark.parametrize("words", OF_INTEGERS)
def test_functions_refuse_integers_that_would_wrap_around_as_torch_does(words):
    for dtype in (tenon.uint8, tenon.bool):
        with pytest.raises(
            RuntimeError, match=rf"{words.strip()}.*not (implemented|support)|cdist only supports"
        ):
            OF_INTEGERS[words](ONES(2, 2).to(dtype))


def test_means_of_int64_are_computed_and_of_booleans_are_not():
    assert F.avg_pool1d(tenon.tensor([[200, 3, 5, 0]]), 2).tolist() == [[101, 2]]
    for name in ("scatter_reduce", "index_reduce"):
        with pytest.raises(NotImplementedError, match=r"means_cpu. not implemented for 'Bool'"):
            getattr(ONES(2) > 0, name)(0, tenon.tensor([0, 0]), ONES(2) > 0, "mean")
