"""What scripts import and set before they do anything: ``backends``, ``multiprocessing``, ``cuda.amp``,
``nn.attention``; and ``testing.make_tensor``."""

import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import backends, multiprocessing
from tenon.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd
from tenon.nn.attention import SDPBackend, sdpa_kernel
from tenon.testing import make_tensor


def test_allowing_tf32_is_allowing_less_exact_products():
    before = tenon.get_float32_matmul_precision()
    try:
        backends.cuda.matmul.allow_tf32 = True
        assert tenon.get_float32_matmul_precision() == "high"
        backends.cuda.matmul.allow_tf32 = False
        assert tenon.get_float32_matmul_precision() == "highest"
        tenon.set_float32_matmul_precision("medium")
        assert backends.cuda.matmul.allow_tf32
    finally:
        tenon.set_float32_matmul_precision(before)


def test_the_deterministic_switch_keeps_both_of_its_parts():
    before = tenon.get_deterministic_debug_mode()
    try:
        tenon.use_deterministic_algorithms(False, warn_only=True)
        assert tenon.is_deterministic_algorithms_warn_only_enabled()
        assert tenon.get_deterministic_debug_mode() == 0
        with pytest.raises(TypeError, match=r"'mode' .* must be bool, not int"):
            tenon.use_deterministic_algorithms(1)
        with pytest.raises(TypeError, match="debug_mode must be str or int"):
            tenon.set_deterministic_debug_mode(1.0)
    finally:
        tenon.set_deterministic_debug_mode(before)


def test_an_installation_tells_what_it_computes_with():
    assert f"NumPy {np.__version__}" in tenon.__config__.show()
    assert f"get_num_threads() : {tenon.get_num_threads()}" in tenon.__config__.parallel_info()


def test_settings_of_cudnn_are_kept_and_a_block_gives_them_back():
    cudnn = tenon.backends.cudnn
    before = (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic, cudnn.allow_tf32)
    with cudnn.flags(enabled=False, benchmark=True, deterministic=True):
        assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (False, True, True)
        assert cudnn.benchmark_limit == 10
    now = (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic, cudnn.allow_tf32)

    assert now == before
    assert cudnn.version() is None
    assert not cudnn.is_acceptable(tenon.ones(2))


def test_asking_for_or_against_onednn_is_heard_inside_the_block():
    mkldnn = backends.mkldnn
    with mkldnn.flags(enabled=False, deterministic=True):
        assert (mkldnn.enabled, mkldnn.deterministic) == (False, True)

    assert (mkldnn.enabled, mkldnn.deterministic) == (True, False)


def test_libraries_that_are_not_called_are_not_available():
    assert not any(b.is_available() for b in (backends.cudnn, backends.mkl, backends.mkldnn, backends.mps))
    assert not backends.openmp.is_available()
    assert backends.quantized.engine in backends.quantized.supported_engines == ["none"]
    assert not backends.mps.is_built()
    assert backends.cuda.is_built() == tenon.cuda.is_available()
    assert tenon.cuda.is_available() or not tenon.cuda.is_tf32_supported()


def test_mixed_precision_at_its_older_path_is_cudas():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        region, scaler = autocast(enabled=True), GradScaler(enabled=False)

    assert isinstance(region, tenon.autocast)
    assert region.device == "cuda"
    assert region.fast_dtype == tenon.float16
    assert scaler.scale(3.0) == 3.0
    assert tenon.cuda.amp.autocast is autocast


@pytest.mark.parametrize("name", ["autocast", "GradScaler", "custom_fwd", "custom_bwd"])
def test_the_older_path_of_mixed_precision_warns_as_torchs(name):
    marked = [lambda: None] if name.startswith("custom") else []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        getattr(tenon.cuda.amp, name)(*marked)

    first = told[0]
    assert first.category is FutureWarning and first.filename == __file__
    assert str(first.message).startswith(f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use")


def test_a_function_may_be_marked_at_the_older_path():
    with pytest.warns(FutureWarning, match=r"device_type='cuda'"):

        class Double(tenon.autograd.Function):
            @staticmethod
            @custom_fwd(cast_inputs=tenon.float16)
            def forward(ctx, x):
                return x * 2

            @staticmethod
            @custom_bwd
            def backward(ctx, grad):
                return grad * 2

    x = tenon.ones(2, requires_grad=True)
    Double.apply(x).sum().backward()

    assert x.grad.tolist() == [2.0, 2.0]


def test_regions_of_attention_change_nothing_and_must_name_a_way():
    q = tenon.randn(1, 2, 3, 4)
    plain = tenon.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        inside = tenon.nn.functional.scaled_dot_product_attention(q, q, q)

    assert inside.tolist() == plain.tolist()
    with pytest.raises(RuntimeError, match="No viable backend"), sdpa_kernel([]):
        pass
    with pytest.raises(TypeError, match="got str"), sdpa_kernel("math"):
        pass


# --- processes ---


def _leave_a_note(index, folder):
    (folder / f"{index}").write_text(str(tenon.arange(index + 1).sum().item()))


def _fail_second(index, how):
    if index == 1:
        how()


def _raise():
    raise ArithmeticError("no such number")


def _leave():
    os._exit(5)


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_spawn_runs_a_function_in_processes(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])  # where they import this file from
    multiprocessing.spawn(_leave_a_note, args=(tmp_path,), nprocs=2)

    assert [(tmp_path / name).read_text() for name in "01"] == ["0", "1"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (_raise, "Process 1 terminated with the following error:\nTraceback.*no such number"),
        (_leave, "process 1 terminated with exit code 5"),
        (_die, "process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_process_that_fails_says_how(how, words):
    with pytest.raises(Exception, match=f"(?s){words}") as caught:
        multiprocessing.start_processes(_fail_second, args=(how,), nprocs=2, start_method="fork")

    assert caught.value.error_index == 1
    assert isinstance(
        caught.value,
        multiprocessing.ProcessRaisedException if how is _raise else multiprocessing.ProcessExitedException,
    )


def test_processes_can_be_joined_later():
    context = multiprocessing.start_processes(
        _fail_second, args=(_raise,), nprocs=1, join=False, start_method="fork"
    )
    assert len(context.pids()) == 1
    while not context.join(timeout=5):
        pass

    assert context.join()


def _say_and_sleep(index, queue):
    queue.put(os.getpid())
    time.sleep(60)


def _start_one(index, queue):
    multiprocessing.start_processes(_say_and_sleep, (queue,), start_method="fork")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_processes_end_with_the_one_that_started_them():
    queue = multiprocessing.get_context("fork").SimpleQueue()
    context = multiprocessing.start_processes(_start_one, (queue,), join=False, start_method="fork")
    child = queue.get()

    os.kill(context.pids()[0], signal.SIGKILL)
    with pytest.raises(multiprocessing.ProcessExitedException, match="SIGKILL"):
        context.join()

    until = time.monotonic() + 30
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_multiprocessing_is_the_standard_librarys():
    assert multiprocessing.get_context("spawn").get_start_method() == "spawn"
    multiprocessing.set_sharing_strategy("file_system")
    assert multiprocessing.get_sharing_strategy() in multiprocessing.get_all_sharing_strategies()
    multiprocessing.set_sharing_strategy("file_descriptor")
    with pytest.raises(ValueError, match="not one of"):
        multiprocessing.set_sharing_strategy("pigeon")


# --- make_tensor ---


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("bool", 0, 2), ("uint8", 0, 10), ("int8", -9, 10), ("int64", -9, 10), ("float16", -9, 9),
        ("bfloat16", -9, 9), ("float32", -9, 9), ("float64", -9, 9),
    ],
)  # fmt: skip
def test_random_tensors_keep_the_bounds_of_their_dtype(dtype, low, high):
    made = make_tensor((20, 30), dtype=getattr(tenon, dtype), device="cpu")
    values = made.double()

    assert made.dtype == getattr(tenon, dtype)
    assert low <= values.min()
    assert values.max() <= high
    assert values.max() - values.min() > (0 if dtype == "bool" else 7)


def test_random_tensors_as_wished():
    sparse = make_tensor(4, 6, dtype=tenon.int32, device="cpu", low=0, high=2, exclude_zero=True)
    strided = make_tensor([3, 4], dtype=tenon.complex64, device="cpu", noncontiguous=True, requires_grad=True)
    last = make_tensor((2, 3, 4, 5), dtype=tenon.float32, device="cpu", memory_format=tenon.channels_last)

    assert sparse.eq(1).all()
    assert strided.shape == (3, 4)
    assert not strided.is_contiguous()
    assert strided.requires_grad
    assert strided.is_leaf
    assert last.is_contiguous(memory_format=tenon.channels_last)
    assert make_tensor((), dtype=tenon.float32, device="cpu", low=2.5).item() >= 2.5
    assert make_tensor(0, dtype=tenon.int8, device="cpu", low=-1000, high=1000).shape == (0,)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"low": 2, "high": 2}, "low must be below high"),
        ({"low": float("nan")}, "must be numbers"),
        ({"noncontiguous": True, "memory_format": tenon.contiguous_format}, "exclude each other"),
    ],
)
def test_random_tensors_refuse_what_does_not_fit(options, words):
    with pytest.raises(ValueError, match=words):
        make_tensor(3, dtype=tenon.float32, device="cpu", **options)


def test_integers_have_no_gradients():
    with pytest.raises(ValueError, match="requires_grad must be False"):
        make_tensor(3, dtype=tenon.int64, device="cpu", requires_grad=True)
