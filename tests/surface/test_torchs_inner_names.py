"""Names that PyTorch's own test files import: dtypes without support, ``_C``, ``nn.parallel``, ``_utils``."""

import copy
import pickle

import pytest

import tenon
from tenon import _C, _utils, nn
from tenon._subclasses.meta_utils import assert_metadata_eq
from tenon.errors import ArgumentError, DTypeError, GradError, ShapeError, UnsupportedDTypeError
from tenon.nn.parallel import _functions, gather, scatter
from tenon.utils._foreach_utils import _group_tensors_by_device_and_dtype


def test_a_dtype_that_no_tensor_has_can_be_named_and_not_be_had():
    half = tenon.complex32

    assert half is tenon.chalf
    assert repr(half) == "torch.complex32" and half.is_complex and half.itemsize == 4
    assert half.to_real() is tenon.float16
    assert pickle.loads(pickle.dumps(half)) is copy.deepcopy(half) is half
    assert tenon.float8_e4m3fn.is_floating_point and not tenon.quint4x2.is_floating_point
    for use in (
        lambda: tenon.zeros(2, dtype=half),
        lambda: tenon.ones(2).to(tenon.float8_e5m2),
        lambda: tenon.set_default_dtype(tenon.float8_e5m2),
    ):
        with pytest.raises((UnsupportedDTypeError, DTypeError), match=r"float8_e5m2|complex32"):
            use()
    with pytest.raises(DTypeError, match="do not exist here"):
        tenon.promote_types(half, tenon.float32)


def test_a_convolution_is_called_as_torch_calls_its_plain_loops():
    def kind(*shape, dilation=1, transposed=False):
        axes = len(shape) - 2
        weight = tenon.ones(shape[1], shape[1], *[2] * axes)
        return _C._select_conv_backend(
            tenon.ones(shape),
            weight,
            None,
            [1] * axes,
            [0] * axes,
            [dilation] * axes,
            transposed,
            [0] * axes,
            1,
        )

    assert kind(1, 2, 5) is kind(1, 2, 5, 5) is _C._ConvBackend.Slow2d
    assert kind(1, 2, 5, 5, 5) is _C._ConvBackend.Slow3d
    assert kind(1, 2, 5, 5, dilation=2) is _C._ConvBackend.SlowDilated2d
    assert kind(1, 2, 5, 5, 5, transposed=True) is _C._ConvBackend.SlowTranspose3d
    assert kind(0, 2, 5, 5) is _C._ConvBackend.Empty
    with pytest.raises(ShapeError, match="Only zero batch or zero channel"):
        kind(1, 2, 0, 5)


def test_the_arguments_of_to_are_read_in_torchs_order():
    assert _C._nn._parse_to("cpu", tenon.float64, True) == (tenon.device("cpu"), tenon.float64, True, None)
    assert repr(_C._nn._parse_to(memory_format=tenon.contiguous_format)[3]) == "torch.contiguous_format"


def test_data_parallel_without_a_gpu_calls_its_module():
    model = nn.DataParallel(nn.Linear(2, 3))
    x = tenon.ones(4, 2)

    assert list(model.state_dict()) == ["module.weight", "module.bias"]
    assert tenon.cuda.is_available() or model.device_ids == []
    assert tenon.cuda.is_available() or tenon.equal(model(x), model.module(x))


def test_nests_are_cut_for_devices_and_cpus_do_not_gather():
    pair = scatter({"x": tenon.arange(4), "rest": ["a", (tenon.ones(2, 1),)]}, ["cpu", "cpu"])

    assert [part["x"].tolist() for part in pair] == [[0, 1], [2, 3]]
    assert [part["rest"][0] for part in pair] == ["a", "a"]
    assert pair[1]["rest"][1][0].shape == (1, 1)
    for refused in (
        lambda: gather([tenon.ones(2)], "cpu"),
        lambda: _functions.Broadcast.apply(["cpu"], tenon.ones(2)),
    ):
        with pytest.raises(AssertionError, match="not implemented for CPU tensors"):
            refused()


def test_tensors_are_sorted_by_device_and_dtype():
    single, double = tenon.ones(1), tenon.ones(1).double()

    groups = _group_tensors_by_device_and_dtype(
        [[single, double, single], [1, None, 3], []], with_indices=True
    )

    cpu = tenon.device("cpu")
    assert groups[cpu, tenon.float32][0][1:] == [[1, 3], []]
    assert groups[cpu, tenon.float32][1] == [0, 2]
    assert groups[cpu, tenon.float64][0][0][0] is double


def test_a_tensor_is_rebuilt_on_a_storage():
    x = tenon.arange(6.0)

    assert tenon.equal(
        _utils._rebuild_tensor(x.storage(), 1, (2, 2), (2, 1)), tenon.tensor([[1.0, 2], [3, 4]])
    )


def test_metadata_are_compared_through_gradients_and_bases():
    def equal(first, second):
        assert first == second

    x = tenon.ones(2, 3)
    assert_metadata_eq(equal, x.T, tenon.zeros(2, 3).T)
    with pytest.raises(AssertionError):
        assert_metadata_eq(equal, x.T, tenon.ones(3, 2))


def test_switches_of_libraries_that_are_not_called_are_noted_only():
    assert not tenon._nnpack_available()
    with tenon.backends.nnpack.flags(enabled=False):
        assert tenon.backends.nnpack.set_flags(False) == (False,)
    assert tenon.backends.nnpack.set_flags(True) == (True,)
    before = _C._get_mkldnn_enabled()
    _C._set_mkldnn_enabled(not before)
    assert tenon.backends.mkldnn.enabled is not before
    _C._set_mkldnn_enabled(before)


def test_torchs_second_grid_sampler_is_the_first():
    image, grid = tenon.arange(16.0).reshape(1, 1, 4, 4), tenon.zeros(1, 2, 2, 2)

    assert tenon.equal(
        tenon._grid_sampler_2d_cpu_fallback(image, grid, 0, 0, False),
        nn.functional.grid_sample(image, grid, align_corners=False),
    )


def test_nodes_of_torchs_stop_gradients_with_an_error_or_with_nothing():
    x, y = tenon.ones(2, requires_grad=True), tenon.ones(2, requires_grad=True)
    functions = tenon._C._functions

    late = functions.DelayedError("too late", 2)(y, y)
    (nothing,) = tenon.autograd.grad((functions.UndefinedGrad()(x) * 2).sum(), x, allow_unused=True)
    view = x.clone().view(-1)
    view += late[1]

    assert nothing is None
    assert isinstance(late[0].grad_fn, functions.DelayedError) and late[0].grad_fn.name() == "Error"
    assert issubclass(functions.UndefinedGrad, tenon.autograd.graph.Node)
    assert tenon.autograd.grad(view.sum(), x)[0].tolist() == [1.0, 1.0]
    with pytest.raises(GradError, match="too late"):
        (x + late[1]).sum().backward()


def test_passes_have_numbers_and_versions_can_be_set():
    seen, inner = [], tenon._C
    x = tenon.ones(2, requires_grad=True).clone()
    x.register_hook(lambda grad: seen.append((inner._current_graph_task_id(), inner.is_grad_enabled())))

    x.sum().backward()
    x.sum().backward()
    inner._autograd._unsafe_set_version_counter((x,), (7,))

    assert seen[1] == (seen[0][0] + 1, False) and inner._current_graph_task_id() == -1
    assert x._version == 7
    with pytest.raises(ArgumentError, match="Cannot set"):
        inner._autograd._unsafe_set_version_counter((x,), (-1,))


def test_tensors_can_be_kept_as_nodes_keep_theirs():
    a = tenon.ones(2, requires_grad=True)
    inner = tenon._C._autograd

    with tenon.autograd.graph.saved_tensors_hooks(lambda x: x * 2, lambda x: x / 4):
        halved = inner._make_saved_tensor(a)
    output = a.exp()
    kept = inner._make_saved_tensor(output, is_output=True)

    assert halved.unpack().tolist() == [0.5, 0.5]
    assert kept.unpack().grad_fn is output.grad_fn and isinstance(kept, inner.SavedTensor)
    with tenon.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
        assert not inner._saved_tensors_hooks_is_enabled()
    assert inner._saved_tensors_hooks_is_enabled()
