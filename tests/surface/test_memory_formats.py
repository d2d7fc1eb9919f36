"""Memory formats order strides; values and shapes do not change."""

import pickle

import pytest

import tenon
from tenon import nn


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
