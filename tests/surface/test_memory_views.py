"""Views of memory: ``as_strided``, ``resize_``, ``set_``, storages, complex pairs, DLPack."""

from __future__ import annotations

import pytest

import tenon
from tenon.errors import CaptureError, GradError, ShapeError
from tenon.utils.dlpack import from_dlpack, to_dlpack


def test_a_strided_view_shows_its_base_and_changes_with_it():
    x = tenon.arange(24.0).reshape(2, 3, 4).clone()

    view = x[1].as_strided((2, 2), (1, 2), 3)
    view[0, 0] = -1

    assert view.tolist() == [[-1, 5], [4, 6]]
    assert x[0, 0, 3] == -1
    assert (x[1].storage_offset(), view.storage_offset(), view.stride()) == (12, 3, (1, 2))


def test_a_strided_view_of_a_new_axis_is_a_view_too():
    x = tenon.zeros(3)

    x[None].as_strided((2,), (2,))[1] = 4

    assert x.tolist() == [0, 0, 4]


def test_changing_a_strided_view_in_place_reaches_the_gradient_of_its_base():
    x = tenon.ones(2, 3, requires_grad=True)
    base = (x * 2).T

    base.as_strided((3,), (2,), 1).mul_(5)
    base.sum().backward()

    assert x.grad.tolist() == [[2, 10, 2], [10, 2, 10]]


def test_elements_that_several_windows_show_sum_their_gradients():
    x = tenon.arange(5.0).requires_grad_()

    x.as_strided((3, 3), (1, 1)).sum().backward()

    assert x.grad.tolist() == [1, 2, 3, 2, 1]


def test_a_compiled_function_refuses_to_look_at_memory():
    def diagonal(x):
        return (x * 2).as_strided((3,), (4,))

    compiled = tenon.compile(diagonal, fullgraph=True)

    with pytest.raises(CaptureError, match="depends on the memory layout"):
        for _ in range(5):
            compiled(tenon.ones(3, 3))


def test_resizing_keeps_what_memory_holds_and_takes_more_only_when_it_must():
    x = tenon.arange(6.0)
    place = x.data_ptr()

    assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
    assert x.resize_(3, 2).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert x.data_ptr() == place
    assert x.resize_(4, 2)[:3].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert x.resize_as_(tenon.ones(1, 3)).tolist() == [[0, 1, 2]]


def test_what_requires_grad_is_not_resized():
    x = tenon.ones(3, requires_grad=True)

    with pytest.raises(GradError, match="cannot resize variables that require grad"):
        x.resize_(2)


def test_a_tensor_set_to_another_or_to_a_storage_shares_its_memory():
    x, y, z = tenon.arange(6.0), tenon.empty(0), tenon.empty(0)

    y.set_(x)
    z.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    y[2] = 9

    assert z.tolist() == [[1, 9], [3, 4]]
    assert y.is_set_to(x)
    assert x.untyped_storage().data_ptr() == z.untyped_storage().data_ptr()
    assert x.clone().untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    with pytest.raises(ShapeError, match="out of bounds for storage of 6"):
        z.set_(x.storage(), 4, (3,), (1,))


def test_a_leaf_that_requires_grad_is_set_without_grad_mode_only():
    layer, other = tenon.nn.Linear(3, 2, bias=False), tenon.ones(2, 3)
    made = tenon.ones(3, requires_grad=True) * 2

    with pytest.raises(GradError, match="set a leaf inside no_grad"):
        layer.weight.set_(other)
    with tenon.no_grad():
        layer.weight.set_(other * 2)
        with pytest.raises(GradError, match="would lose its history"):
            made.set_(other)
    layer(other).sum().backward()

    assert layer.weight.requires_grad and layer.weight.tolist() == [[2.0] * 3] * 2
    assert layer.weight.grad.tolist() == [[2.0] * 3] * 2


def test_storages_are_the_bytes_and_the_numbers_of_which_a_view_shows_some():
    x = tenon.tensor([[1, 2], [3, 4]], dtype=tenon.int16)

    column = x[:, 1]

    assert column.untyped_storage().nbytes() == len(column.untyped_storage()) == 8
    assert column.storage().tolist() == [1, 2, 3, 4]
    assert column.untyped_storage()[2:4].tolist() == [2, 0]
    column.storage()[0] = 7
    assert x[0, 0] == 7
    assert tenon.is_storage(x.storage()) and not tenon.is_storage(x)


def test_empty_strided_tensors_have_the_strides_asked_for():
    assert tenon.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert tenon.ones(1).new_empty_strided((2, 3), (1, 2), dtype=tenon.int8).dtype == tenon.int8
    assert tenon.empty_permuted((2, 3, 4), (0, 2, 1)).stride() == (12, 1, 3)


def test_complex_numbers_and_their_pairs_share_memory():
    z, pairs = tenon.zeros(3, 2, dtype=tenon.complex64), tenon.zeros(3, 2)

    tenon.view_as_real(z)[0, 1, 1] = 5
    tenon.view_as_complex(pairs)[1] = 2 + 3j
    z.real = tenon.ones(3, 2)

    assert z[0].tolist() == [1, 1 + 5j]
    assert pairs.tolist() == [[0, 0], [2, 3], [0, 0]]
    with pytest.raises(ShapeError, match="stride 1"):
        tenon.view_as_complex(tenon.ones(2, 2).T)


def test_new_axes_have_the_strides_that_torch_gives_them():
    x = tenon.ones(2, 3, 4)

    assert x[None].stride() == (24, 12, 4, 1)
    assert x[:, None].stride() == (12, 12, 4, 1)
    assert x[..., None].stride() == (12, 4, 1, 1)


def test_like_functions_keep_the_memory_order_of_a_permuted_tensor():
    x = tenon.ones(2, 3).T

    assert tenon.zeros_like(x).stride() == tenon.empty_like(x).stride() == (1, 3)
    assert tenon.ones_like(tenon.ones(4, 4)[:, ::2]).stride() == (2, 1)
    assert tenon.zeros_like(x, memory_format=tenon.contiguous_format).stride() == (2, 1)


def test_dlpack_lends_the_memory_of_tensors_of_any_dtype():
    x = tenon.arange(3.0)

    from_dlpack(x)[0] = 9
    from_dlpack(to_dlpack(x))[1] = 8

    assert x.tolist() == [9, 8, 2]
    assert from_dlpack(tenon.tensor([True])).dtype == tenon.bool
    assert from_dlpack(tenon.ones(1, dtype=tenon.bfloat16)).dtype == tenon.bfloat16
    with pytest.raises(BufferError, match="detach"):
        from_dlpack(tenon.ones(1, requires_grad=True))
    with pytest.raises(RuntimeError, match="not a DLPack capsule"):
        from_dlpack(3)


@pytest.mark.parametrize(
    ("size", "steps"),
    [((0, 3, 4), (12, 4, 1)), ((3, 0, 4), (4, 4, 1)), ((2, 1, 0), (1, 1, 1)), ((0,), (1,))],
)
def test_an_empty_tensor_has_the_steps_of_a_contiguous_one(size, steps):
    assert tenon.zeros(size).stride() == steps == tuple(tenon.zeros(size).stride(i) for i in range(len(size)))
