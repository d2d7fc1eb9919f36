"""Moving between backends: values, gradients and the meta device."""

from __future__ import annotations

import pytest

import tenon


def test_moving_to_the_same_device_gives_the_tensor_itself():
    x = tenon.ones(2)

    assert x.to("cpu") is x
    assert x.cpu() is x


def test_the_meta_device_drops_the_data_and_keeps_shape_and_dtype():
    x = tenon.ones(2, 3, dtype=tenon.float64).to("meta")

    assert (x.device.type, tuple(x.shape), x.dtype) == ("meta", (2, 3), tenon.float64)


def test_there_is_no_way_back_from_meta():
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        tenon.ones(2, device="meta").to("cpu")


def test_the_move_is_taped_with_torchs_name():
    x = tenon.ones(2, requires_grad=True)

    assert x.to("meta").grad_fn.name() == "ToCopyBackward0"
    assert not x.detach().to("meta").requires_grad
