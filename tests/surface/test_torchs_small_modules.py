"""Small modules of torch that test suites and packages import: their answers are true of tenon."""

import copy
import gc
import importlib
import os
import pickle

import pytest

import tenon
from tenon import _C, _logging, onnx, serialization
from tenon._logging import scribe
from tenon._subclasses.fake_tensor import is_fake
from tenon._utils_internal import get_writable_path
from tenon.distributed.elastic.multiprocessing.errors import record
from tenon.distributed.tensor import DTensor
from tenon.errors import UnsupportedError
from tenon.fx.experimental.proxy_tensor import get_proxy_mode
from tenon.nn import common_types
from tenon.overrides import TorchFunctionMode
from tenon.testing import _utils
from tenon.utils import _import_utils, cpp_extension, weak
from tenon.utils._dtype_abbrs import dtype_abbrs


def test_a_weak_dictionary_tells_tensors_apart_by_identity_and_forgets_them():
    first, second = tenon.ones(2), tenon.ones(2)
    known = weak.WeakTensorKeyDictionary({first: [1]})
    known[second] = [2]

    deep, shallow = copy.deepcopy(known), known.copy()
    deep[first].append(3)
    assert known[first] == [1] and deep[first] == [1, 3] and shallow == known != deep
    assert first in known and tenon.ones(2) not in known and 3 not in known
    assert {id(key) for key in known} == {id(first), id(second)}
    assert len(known | {second: 0}) == 2 and known.pop(second) == [2]
    held = weak.TensorWeakRef(first)
    assert held() is first
    del first, deep, shallow
    gc.collect()
    assert held() is None and len(known) == 0 and list(known) == []


def test_references_by_identity_equal_those_to_the_same_object_only():
    x, y = tenon.ones(2), tenon.ones(2)

    assert weak.WeakIdRef(x) == weak.WeakIdRef(x) != weak.WeakIdRef(y)
    assert len({weak.WeakIdRef(x), weak.WeakIdRef(x), weak.WeakIdRef(y)}) == 2


def test_what_is_not_here_says_so_when_it_is_used_and_not_when_it_is_imported():
    for use in (
        lambda: onnx.register_custom_op_symbolic("a::b", print, 9),
        lambda: cpp_extension.load(name="fast", sources=["fast.cpp"]),
        lambda: cpp_extension.CUDAExtension("fast", []),
        lambda: _C.ScriptList([1]),
    ):
        with pytest.raises(UnsupportedError):
            use()
    assert not onnx.is_in_onnx_export() and not tenon.backends.xnnpack.enabled
    assert cpp_extension.CUDA_HOME is None and cpp_extension.include_paths() == []
    assert cpp_extension.get_default_build_root().endswith("torch_extensions")
    assert scribe.open_source_signpost(name="anything") is None and _logging.__doc__


def test_the_processor_is_described_by_torchs_names():
    found = tenon.cpu.get_capabilities()

    assert found["architecture"]
    assert tenon.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    assert _C._get_cpu_capability() == tenon.backends.cpu.get_cpu_capability()
    if found["architecture"] == "x86_64":
        assert found["sse4_1"] and {"avx2", "avx512_f", "avx512_vnni"} <= set(found)
    assert tenon.cpu._is_avx2_supported() == found.get("avx2", False)


def test_modes_and_who_is_asked_can_be_seen_and_set_from_below():
    class Quiet(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return -1 if func is tenon.exp else func(*args, **(kwargs or {}))

    x, mode = tenon.zeros(2), Quiet()
    _C._push_on_torch_function_stack(mode)
    assert _C._len_torch_function_stack() == 1 and _C._get_function_stack_at(0) is mode
    assert tenon.exp(x) == -1
    assert _C._pop_torch_function_stack() is mode and _C._len_torch_function_stack() == 0
    assert tenon.equal(tenon.exp(x), tenon.ones(2))
    before = _C._get_torch_function_state()
    with _C.DisableTorchFunction():
        assert _C._get_torch_function_state() is _C._TorchFunctionState.ALL_DISABLED
    _C._set_torch_function_state(_C._TorchFunctionState.SUBCLASSES_DISABLED)
    assert _C._get_torch_function_state().value == 1
    _C._set_torch_function_state(before)


def test_limits_of_dtypes_that_are_names_only_are_known():
    torch = pytest.importorskip("torch")

    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e8m0fnu", "complex32"):
        assert repr(tenon.finfo(getattr(tenon, name))) == repr(torch.finfo(getattr(torch, name)))
    with pytest.raises(UnsupportedError, match="two fill a byte"):
        tenon.finfo(tenon.float4_e2m1fn_x2)


def test_schemes_and_dtypes_have_torchs_names():
    scheme = tenon.per_channel_affine

    assert isinstance(scheme, tenon.qscheme) and repr(scheme) == "torch.per_channel_affine"
    assert pickle.loads(pickle.dumps(scheme)) is scheme
    assert (dtype_abbrs[tenon.bfloat16], dtype_abbrs[tenon.bool], dtype_abbrs[tenon.uint16]) == (
        "bf16",
        "b8",
        "u16",
    )
    assert dtype_abbrs[tenon.float8_e4m3fn] == "f8e4m3fn"


def test_paths_that_cannot_be_written_to_are_replaced(tmp_path):
    other = get_writable_path(str(tmp_path / "gone" / "data"))

    assert get_writable_path(str(tmp_path)) == str(tmp_path)
    assert other.endswith("data") and os.path.isdir(other)
    os.rmdir(other)
    assert not _import_utils._check_module_exists("no_such_one.inside")


def test_random_numbers_are_set_back_after_a_seeded_call():
    before = tenon.get_rng_state()

    assert tenon.equal(_utils.wrapper_set_seed(tenon.rand, 3), _utils.wrapper_set_seed(tenon.rand, 3))
    assert tenon.equal(tenon.get_rng_state(), before)
    assert tenon.ao.nn.quantized.MaxPool2d is tenon.nn.MaxPool2d and tenon.ao.nn.qat.modules.__all__ == []


def test_flags_are_noted_as_frozen():
    before = tenon.backends.flags_frozen()

    tenon.backends.disable_global_flags()
    assert tenon.backends.flags_frozen()
    tenon.backends._frozen = before


def test_types_of_gpus_are_named():
    assert "cuda" in importlib.import_module("tenon._inductor.utils").GPU_TYPES


def test_marks_and_settings_of_scripts_are_there():
    @record
    def main(x):
        """Main."""
        return x + 1

    assert main(1) == 2 and main.__doc__ == "Main."
    assert tenon.GradScaler is tenon.amp.GradScaler
    tenon.set_num_interop_threads(4)
    assert tenon.get_num_interop_threads() == 1
    with pytest.raises(RuntimeError, match="positive integer, got 0"):
        tenon.set_num_interop_threads(0)
    assert common_types._size_2_t == int | tuple[int, int]


def test_batch_norms_can_be_functions_of_the_batch_alone():
    model = tenon.nn.Sequential(tenon.nn.Linear(2, 3), tenon.nn.BatchNorm1d(3))

    assert tenon.func.replace_all_batch_norm_modules_(model) is model
    assert list(model.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert tenon.allclose(model.eval()(tenon.randn(50, 2)).mean(0), tenon.zeros(3), atol=1e-5)


def test_questions_of_libraries_are_answered():
    x = tenon.ones(1)

    assert not isinstance(x, DTensor) and not is_fake(x) and get_proxy_mode() is None
    assert isinstance(DTensor.from_local(x), DTensor)
    assert not tenon.is_autocast_enabled("mps") and isinstance(tenon.Future(), tenon.futures.Future)
    assert tenon.torch is tenon and "str" in str(serialization.MAP_LOCATION)
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'nope'"):
        tenon.is_autocast_enabled("nope")


def test_an_optimizer_may_wrap_another_without_its_constructor():
    class Around(tenon.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            self.inner.step(closure)

    x = tenon.ones(1, requires_grad=True)
    x.sum().backward()
    Around(tenon.optim.SGD([x], 1.0)).step()
    assert x.item() == 0.0
