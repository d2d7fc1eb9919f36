"""Names beside tensors that published model code imports and calls: checks, marks for compilers, downloads."""

import importlib

import pytest

import tenon
from tenon import fx, hub, onnx
from tenon.backends import cuda as kernels
from tenon.nn.modules.instancenorm import _InstanceNorm
from tenon.utils import checkpoint, model_zoo


@fx.wrap
def double(x):
    return 2 * x


def test_checks_raise_their_kind_of_error_with_the_message_that_is_made_for_it():
    tenon._check(True, lambda: pytest.fail("a message was made for nothing"))
    tenon._check_is_size(3, max=3)
    tenon._check_tensor_all(tenon.ones(2) > 0)
    tenon._assert_async(tenon.tensor(1))
    for raises, call in (
        (RuntimeError, lambda: tenon._check(False, lambda: "three")),
        (ValueError, lambda: tenon._check_value(False, lambda: "three")),
        (IndexError, lambda: tenon._check_index(False, lambda: "three")),
        (TypeError, lambda: tenon._check_type(False, lambda: "three")),
        (NotImplementedError, lambda: tenon._check_not_implemented(False, lambda: "three")),
        (RuntimeError, lambda: tenon._check_tensor_all(tenon.arange(2) > 0, lambda: "three")),
        (AssertionError, lambda: tenon._assert(False, "three")),
        (RuntimeError, lambda: tenon._assert_async(tenon.tensor(0), "three")),
        (RuntimeError, lambda: tenon._check_is_size(-1, lambda: "three")),
    ):
        with pytest.raises(raises, match=r"^three$"):
            call()
    with pytest.raises(TypeError, match="must be a bool"):
        tenon._check(tenon.tensor(True))
    with pytest.raises(TypeError, match="callable"):
        tenon._check(False, "three")


def test_numbers_that_a_compiler_may_read_as_symbols_are_numbers():
    shape = tenon._shape_as_tensor(tenon.ones(2, 3))

    assert shape.tolist() == [2, 3] and shape.dtype is tenon.int64
    assert (tenon.sym_max(1, 2.0), tenon.sym_min(1, 2.0), tenon.sym_max(1, 2)) == (2.0, 1.0, 2)
    assert type(tenon.sym_min(1, 2.0)) is float and tenon.sym_int(2.7) == 2 and tenon.sym_not(0)
    assert tenon.sym_ite(True, 1, 2) == 1 and tenon.sym_sum([1, 2]) == 3 and tenon.sym_sqrt(4) == 2.0


def test_what_tells_a_tracer_something_changes_nothing():
    assert double(3) == 6 and not onnx.is_in_onnx_export() and not tenon.compiler.is_exporting()


@pytest.mark.parametrize("name", ["_dynamo", "_inductor"])
def test_settings_of_torchs_compiler_are_kept(name, monkeypatch):
    config = importlib.import_module(f"tenon.{name}.config")

    assert getattr(tenon, name).config is config
    monkeypatch.setattr(config, "suppress_errors", True, raising=False)
    assert tenon.compile(lambda x: x + 1)(tenon.ones(1)).item() == 2
    assert isinstance(tenon.compile(tenon.nn.ReLU()), tenon._dynamo.OptimizedModule)
    tenon._dynamo.reset()


def test_downloads_are_found_under_their_older_path():
    assert model_zoo.load_url is hub.load_state_dict_from_url
    with model_zoo.tqdm(range(3), total=3) as bar:
        bar.update(1)
        assert list(bar) == [0, 1, 2]
    assert hub.HASH_REGEX.search("resnet18-5c106cde.pth").group(1) == "5c106cde"


def test_bases_of_layers_can_be_asked_for():
    assert isinstance(tenon.nn.InstanceNorm2d(3), _InstanceNorm)
    assert tenon._C._get_tracing_state() is None and tenon._C._get_accelerator().type in ("cpu", "cuda")
    assert tenon.OutOfMemoryError is tenon.cuda.OutOfMemoryError


def test_switches_of_attention_and_states_of_devices_without_any():
    with kernels.sdp_kernel(enable_math=False, enable_mem_efficient=False):
        assert kernels.flash_sdp_enabled() and not kernels.math_sdp_enabled()
    assert kernels.math_sdp_enabled() and kernels.mem_efficient_sdp_enabled()
    assert len(tenon.cuda.get_rng_state_all()) == tenon.cuda.device_count()
    assert tenon.cuda._initialized == tenon.cuda.is_initialized()
    tenon.cuda.set_rng_state_all(tenon.cuda.random.get_rng_state_all())
    checkpoint.set_device_states(*checkpoint.get_device_states(tenon.ones(1)))
    with tenon.autocast("cpu", dtype=tenon.bfloat16):
        assert tenon.is_autocast_cpu_enabled() and tenon.get_autocast_cpu_dtype() is tenon.bfloat16
    assert tenon.get_autocast_gpu_dtype() is tenon.float16
