"""Memory formats determine strides; values and shapes do not change."""

import pickle

import pytest

import tenon
from tenon import nn
from tenon.nn import functional as F

pytestmark = pytest.mark.together


def image(*size):
    return tenon.arange(float(tenon.Size(size).numel())).reshape(*size)


def test_formats_print_and_pickle_as_torchs():
    assert repr(tenon.channels_last) == "torch.channels_last"
    assert pickle.loads(pickle.dumps(tenon.channels_last)) is tenon.channels_last
    assert isinstance(tenon.contiguous_format, tenon.memory_format)


def test_channels_last_changes_strides_only():
    x = image(2, 3, 4, 5)

    y = x.contiguous(memory_format=tenon.channels_last)

    assert y.stride() == (60, 1, 15, 3)
    assert tenon.equal(x, y)
    assert y.is_contiguous(memory_format=tenon.channels_last) and not y.is_contiguous()
    assert y.contiguous(memory_format=tenon.channels_last) is y
    assert x.to(memory_format=tenon.channels_last).stride() == y.stride()


def test_clone_keeps_or_changes_the_order():
    y = image(2, 3, 4, 5).contiguous(memory_format=tenon.channels_last)

    assert y.clone().stride() == y.stride()
    assert y.clone(memory_format=tenon.contiguous_format).is_contiguous()
    assert y.clone(memory_format=tenon.channels_last).data_ptr() != y.data_ptr()


def test_gradients_flow_through_a_change_of_format():
    x = image(1, 2, 2, 2).requires_grad_()

    (x.contiguous(memory_format=tenon.channels_last) * image(1, 2, 2, 2)).sum().backward()

    assert tenon.equal(x.grad, image(1, 2, 2, 2))


def test_new_tensors_take_a_format():
    assert tenon.empty(2, 3, 4, 5, memory_format=tenon.channels_last).stride() == (60, 1, 15, 3)
    made = tenon.zeros_like(image(2, 3, 4, 5), memory_format=tenon.channels_last)
    assert made.is_contiguous(memory_format=tenon.channels_last)
    assert tenon.empty(1, 2, 2, 2, 2, memory_format=tenon.channels_last_3d).stride() == (16, 1, 8, 4, 2)


def test_wrong_rank_and_wrong_kind_are_refused():
    with pytest.raises(RuntimeError, match=r"required rank 4 tensor to use torch.channels_last"):
        image(2, 3).contiguous(memory_format=tenon.channels_last)
    assert not image(2, 3).is_contiguous(memory_format=tenon.channels_last)
    with pytest.raises(TypeError, match=r"memory_format must be a torch.memory_format"):
        image(2, 3).contiguous(memory_format="nhwc")


def test_module_to_a_format_changes_its_images_only():
    conv = nn.Conv2d(3, 4, 2).to(memory_format=tenon.channels_last)

    assert conv.weight.is_contiguous(memory_format=tenon.channels_last)
    assert conv.bias.is_contiguous()
    assert conv(tenon.ones(1, 3, 4, 4)).shape == (1, 4, 3, 3)


def last(*size):
    return image(*size).contiguous(
        memory_format=tenon.channels_last if len(size) == 4 else tenon.channels_last_3d
    )


@pytest.mark.parametrize(
    "run",
    [
        nn.Conv2d(4, 2, 3),
        nn.Conv2d(4, 4, 3, groups=4, bias=False),
        nn.ConvTranspose2d(4, 2, 3),
        nn.GroupNorm(2, 4),
        nn.BatchNorm2d(4),
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        lambda x: F.avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool2d(x, 3),
        lambda x: F.adaptive_max_pool2d(x, 3),
        lambda x: F.pad(x, (1, 2)),
        lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"),
        lambda x: F.interpolate(x, 9, mode="bilinear"),
        lambda x: F.interpolate(x.to(tenon.uint8), 4, mode="bicubic", antialias=True),
        lambda x: F.pixel_shuffle(x, 2),
        lambda x: F.channel_shuffle(x, 2),
    ],
)
def test_what_works_on_images_keeps_their_format(run):
    x = last(2, 4, 6, 6)
    plain = run(x.contiguous())

    made = run(x)

    assert plain.is_contiguous()
    assert made.is_contiguous(memory_format=tenon.channels_last)
    tenon.testing.assert_close(made, plain)


def test_volumes_keep_their_format():
    x = last(1, 2, 4, 4, 4)

    for made in (nn.Conv3d(2, 3, 2)(x), F.max_pool3d(x, 2), F.interpolate(x, 3), nn.GroupNorm(2, 2)(x)):
        assert made.is_contiguous(memory_format=tenon.channels_last_3d)
    for made in F.max_pool3d(x[0], 2, return_indices=True):
        assert made.stride() == (1, 8, 4, 2)


def test_gaps_do_not_hide_a_format_and_an_outer_axis_of_its_own_does():
    x = last(2, 4, 8, 8)

    assert F.max_pool2d(x[:, :, 1:-1, 1:-1], 2).is_contiguous(memory_format=tenon.channels_last)
    assert F.max_pool2d(x[:, :, ::2, ::2], 2).is_contiguous(memory_format=tenon.channels_last)
    assert F.max_pool2d(x[0][None], 2).is_contiguous()


def test_a_weight_asks_for_a_format_even_with_one_channel():
    conv = nn.Conv2d(1, 8, 3).to(memory_format=tenon.channels_last)

    assert conv.weight.stride() == tenon.zeros_like(conv.weight).stride() == (9, 1, 3, 1)
    assert conv(image(2, 1, 5, 5)).is_contiguous(memory_format=tenon.channels_last)
    plain = nn.utils.convert_conv2d_weight_memory_format(nn.Sequential(conv), tenon.contiguous_format)
    assert plain(image(2, 1, 5, 5)).is_contiguous()
    assert nn.Conv2d(1, 8, 3)(image(2, 1, 5, 5)).is_contiguous()


@pytest.mark.parametrize("run", [F.relu, F.gelu, F.silu, lambda x: F.relu(x.bfloat16())])
def test_large_activations_and_their_gradients_keep_a_format(run):
    x = (last(2, 16, 32, 32) - 9000.0).div_(9000.0).requires_grad_()

    made = run(x)
    made.sum().backward()

    plain = x.detach().contiguous().requires_grad_()
    run(plain).sum().backward()
    assert made.is_contiguous(memory_format=tenon.channels_last)
    assert tenon.equal(x.grad, plain.grad)
    assert tenon.equal(made, run(plain))


@pytest.mark.parametrize(
    "run",
    [
        nn.Conv2d(4, 2, 3),
        nn.ConvTranspose2d(4, 2, 3),
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.LocalResponseNorm(2),
        nn.RMSNorm((4, 6, 6)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.AvgPool2d(2),
        nn.LPPool2d(2, 2),
        nn.AdaptiveAvgPool2d(3),
        nn.AdaptiveMaxPool2d(3),
        nn.ZeroPad2d(1),
        nn.ReflectionPad2d(1),
        nn.PixelShuffle(2),
        nn.PixelUnshuffle(2),
        nn.ChannelShuffle(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    ],
)
def test_gradients_of_images_keep_their_format(run):
    x = last(2, 4, 6, 6).requires_grad_()
    weights = [p for p in run.parameters() if p.dim() == 4] if isinstance(run, nn.Module) else []
    plain = x.detach().contiguous().requires_grad_()
    out = run(x)
    given = image(*out.shape).contiguous(memory_format=tenon.channels_last)

    grads = tenon.autograd.grad(out, [x, *weights], given)

    wanted = tenon.autograd.grad(run(plain), [plain, *weights], given.contiguous())
    assert wanted[0].is_contiguous()
    for grad, right in zip(grads, wanted, strict=True):
        assert grad.is_contiguous(memory_format=tenon.channels_last)
        tenon.testing.assert_close(grad, right)


def test_an_accumulated_gradient_has_the_memory_order_of_its_leaf():
    x = last(2, 4, 6, 6).requires_grad_()
    given = last(2, 4, 3, 3)

    for _ in range(2):
        F.max_pool2d(x, 2).backward(given)

    assert x.grad.stride() == x.stride()
    (y := last(2, 4, 6, 6).requires_grad_()).backward(x.grad)
    assert y.grad.stride() == y.stride()


def test_what_torch_computes_by_other_means_gives_up_the_format():
    x = last(2, 4, 6, 6).requires_grad_()

    assert F.pad(x, (1, 1, 1, 1), mode="circular").is_contiguous()
    out = F.adaptive_avg_pool2d(x, 1)
    assert tenon.autograd.grad(out, x, tenon.ones(2, 4, 1, 1))[0].is_contiguous()


def permuted(*axes):
    """An array of ones of shape 2, 3, 4, 5 with ``axes`` in this order in memory."""
    sizes = (2, 3, 4, 5)
    return tenon.ones(*(sizes[a] for a in axes)).permute(*(axes.index(a) for a in range(4)))


def test_the_first_operand_that_decides_orders_an_elementwise_result():
    x, y, plain = permuted(0, 2, 3, 1), permuted(3, 1, 0, 2), image(2, 3, 4, 5)

    assert (x + y).stride() == (x * plain).stride() == x.stride()
    assert (plain + x).stride() == plain.stride()
    assert (y < x).stride() == (y / x.double()).stride() == y.stride()
    assert (x + tenon.ones(5)).stride() == (tenon.ones(3, 1, 1) - x).stride() == x.stride()
    assert tenon.where(plain > 3, x, y).stride() == plain.stride()
    assert tenon.where(tenon.tensor(True), x, y).stride() == x.stride()
    assert tenon.addcmul(y, x, plain).stride() == tenon.lerp(y, plain, x).stride() == y.stride()
    assert tenon.equal(y * plain, y.contiguous() * plain)


def test_axes_of_one_element_get_strides_by_their_order_too():
    x = tenon.ones(1, 1, 4, 12)[..., ::2].permute(2, 0, 1, 3)

    assert (x + x).stride() == (x + tenon.ones(6)).stride() == (6, 24, 24, 1)
    assert (x.permute(3, 0, 1, 2) + x.permute(3, 0, 1, 2)).stride() == (1, 6, 24, 24)


def test_like_functions_keep_the_memory_order_even_with_gaps():
    x = permuted(0, 2, 3, 1)[..., ::2]

    dense = (36, 1, 9, 3)

    assert tenon.zeros_like(x).stride() == tenon.rand_like(x).stride() == (x * 2).stride() == dense
    assert tenon.randint_like(x, 9, memory_format=tenon.contiguous_format).is_contiguous()
    assert x.double(memory_format=tenon.contiguous_format).is_contiguous()
    assert x.double().stride() == x.int(memory_format=tenon.preserve_format).stride() == dense


def test_random_numbers_come_in_the_order_of_a_format_that_is_asked_for():
    tenon.manual_seed(0)
    expected = tenon.rand(2, 4, 5, 3).permute(0, 3, 1, 2)

    tenon.manual_seed(0)
    made = tenon.rand_like(image(2, 3, 4, 5), memory_format=tenon.channels_last)

    assert tenon.equal(made, expected) and made.stride() == expected.stride()


@pytest.mark.parametrize(
    "run",
    [
        *(
            getattr(tenon.Tensor, n)
            for n in ("sum", "mean", "prod", "amax", "any", "std", "logsumexp", "norm")
        ),
        *(getattr(tenon.Tensor, n) for n in ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp")),
        lambda x, dim: F.layer_norm(x, (5,)),
        lambda x, dim: x.half().sum(dim=dim),
        lambda x, dim: x.scatter(dim, tenon.zeros(2, 3, 4, 5, dtype=tenon.int64), x),
        lambda x, dim: x.triu(),
    ],
)
def test_what_goes_along_an_axis_gives_c_order_that_may_be_viewed(run):
    x = (image(5, 3, 2, 4) / 40).permute(2, 1, 3, 0)

    made = run(x, dim=1)

    assert made.is_contiguous() and made.view(-1).shape == (made.numel(),)
    tenon.testing.assert_close(made, run(x.contiguous(), dim=1))
