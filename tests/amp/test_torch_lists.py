"""PyTorch's own lists of ops under autocast (``torch.testing._internal.autocast_test_lists``), run by tenon.

The lists of the CPU are run beside torch. Those of CUDA say what dtype must come out, and run on a device that
this process makes up: the arrays of ``tests/backends``, on a backend that goes by the name "cuda".
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon.errors import UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]
sys.path.insert(0, str(Path(__file__).parents[1] / "backends"))


def lists(name):
    """torch's lists; what their module imports besides needs packages that only torch's own tests have."""
    stub = types.ModuleType("torch.testing._internal.common_utils")
    stub.TEST_WITH_ROCM, stub.TestCase = False, object
    before = sys.modules.get(stub.__name__)
    sys.modules[stub.__name__] = stub
    try:
        module = importlib.import_module("torch.testing._internal.autocast_test_lists")
    finally:
        del sys.modules[stub.__name__]
        if before is not None:
            sys.modules[stub.__name__] = before
    torch.manual_seed(0)
    return getattr(module, name)("cpu")


CPU, CUDA = lists("AutocastCPUTestLists"), lists("AutocastTestLists")


def cases(found, names):
    """``(list, op, args, kwargs)`` of several lists."""
    made = []
    for name in names:
        for op, *rest in getattr(found, name):
            args = rest[0] if isinstance(rest[0], tuple) else (rest[0], rest[1])
            kwargs = next((r for r in rest[1:] if isinstance(r, dict)), {})
            made.append(pytest.param(name, op, args, kwargs, id=f"{name}-{op}-{len(made)}"))
    return made


def where(package, op):
    """The function called ``op``: torch keeps them in several places."""
    for place in (package.nn.functional, package, package.Tensor):
        if hasattr(place, op):
            return getattr(place, op)
    if op.startswith("linalg_"):
        return getattr(package.linalg, op.removeprefix("linalg_"))
    if package is torch and hasattr(torch._C._nn, op):
        return getattr(torch._C._nn, op)
    return None


def ours(value, device):
    """A torch value as tenon's, on ``device``."""
    if isinstance(value, torch.Tensor):
        wide = value.double() if value.is_floating_point() else value
        dtype = getattr(tenon, str(value.dtype).removeprefix("torch."))
        return tenon.tensor(wide.numpy()).to(dtype).to(device)
    if isinstance(value, (tuple, list)):
        return type(value)(ours(v, device) for v in value)
    return value


def first(made):
    return made[0] if isinstance(made, (tuple, list)) else made


ALL_CPU = [
    "torch_expect_builtin_promote",
    "torch_16",
    "torch_fp32",
    "nn_16",
    "nn_fp32",
    "torch_need_autocast_promote",
]


@pytest.mark.filterwarnings("ignore:size_average")  # the lists give poisson_nll_loss its older arguments
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("name", "op", "args", "kwargs"), cases(CPU, ALL_CPU))
def test_on_the_cpu_dtype_and_value_are_torchs(name, op, args, kwargs, dtype):
    function, theirs = where(tenon, op), where(torch, op)
    if function is None or theirs is None:
        pytest.skip(f"there is no {op}")
    with torch.autocast("cpu", dtype=getattr(torch, dtype)):
        try:
            expected = first(theirs(*args, **kwargs))
        except (RuntimeError, TypeError) as refused:
            pytest.skip(f"torch refuses: {str(refused).splitlines()[0]}")
    mine = ours(args, "cpu")

    with tenon.autocast("cpu", dtype=getattr(tenon, dtype)):
        made = first(function(*mine, **kwargs))

    assert str(made.dtype) == str(expected.dtype)
    right = expected.double().numpy()
    np.testing.assert_allclose(made.double().numpy(), right, rtol=0.05, atol=0.05 * np.abs(right).max())


@pytest.fixture
def gpu(monkeypatch):
    """A device whose backend goes by the name "cuda"; torch has none here."""
    import fake_device

    from tenon.kernels import backend as backends
    from tenon.plugins import manager

    manager.register(fake_device, "fake_device")
    monkeypatch.setattr(tenon.cuda, "is_available", lambda: True)
    monkeypatch.setattr(fake_device.FakeBackend, "name", "cuda")
    yield "fake"
    manager.unregister("fake_device")
    backends._INSTANCES.pop("fake", None)
    backends._CHECKED.discard("fake")


#: An einsum whose operands do not fit it, torch's own convolution of many arguments, and shapes that
#: nn.functional refuses in torch too.
CALLED_OTHERWISE = ("einsum", "convolution", "margin_ranking_loss")
LOWER = ["torch_fp16", "nn_fp16", "linalg_fp16", "methods_fp16"]
FULL = ["torch_fp32", "nn_fp32", "methods_fp32", "torch_need_autocast_promote"]


@pytest.mark.parametrize(("name", "op", "args", "kwargs"), cases(CUDA, LOWER + FULL))
def test_on_a_gpu_the_dtype_is_that_of_torchs_lists(gpu, name, op, args, kwargs):
    function = where(tenon, op)
    if function is None:
        pytest.skip(f"there is no {op}")
    mine = ours(args, gpu)
    if op in CALLED_OTHERWISE:
        pytest.skip(f"{op} takes other arguments than in torch's list")
    with tenon.autocast("cuda"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kl_div, whose default reduction is not the mean
        made = first(function(*mine, **kwargs))

    assert made.device.type == "fake"
    assert made.dtype is (tenon.float16 if name in LOWER else tenon.float32)


@pytest.mark.parametrize(("name", "op", "args", "kwargs"), cases(CUDA, ["torch_expect_builtin_promote"]))
def test_on_a_gpu_mixed_operands_are_promoted_as_ever(gpu, name, op, args, kwargs):
    with tenon.autocast("cuda"):
        made = where(tenon, op)(*ours(args, gpu))

    if op != "equal":
        assert made.dtype in (tenon.float32, tenon.bool)


def test_on_a_gpu_binary_cross_entropy_is_refused(gpu):
    x = tenon.rand(3).to(gpu)

    with tenon.autocast("cuda"), pytest.raises(UnsupportedError, match="unsafe to autocast"):
        tenon.nn.functional.binary_cross_entropy(x, x)


def test_each_type_of_device_has_its_own_region_and_dtype(gpu):
    here, there = tenon.ones(3, 3), tenon.ones(3, 3).to(gpu)

    with tenon.autocast("cuda"):
        assert ((there @ there).dtype, (here @ here).dtype) == (tenon.float16, tenon.float32)
        with tenon.autocast("cpu"):
            assert ((there @ there).dtype, (here @ here).dtype) == (tenon.float16, tenon.bfloat16)
            with tenon.autocast("cuda", enabled=False):
                assert ((there @ there).dtype, (here @ here).dtype) == (tenon.float32, tenon.bfloat16)
        assert tenon.is_autocast_enabled("cuda") and not tenon.is_autocast_enabled("cpu")
    assert (there @ there).dtype is tenon.float32


def test_a_model_on_a_gpu_trains_with_scaled_losses(gpu):
    tenon.manual_seed(0)
    model = tenon.nn.Sequential(
        tenon.nn.Linear(4, 8), tenon.nn.LayerNorm(8), tenon.nn.ReLU(), tenon.nn.Linear(8, 1)
    )
    model.to(gpu)
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.05)
    scaler = tenon.amp.GradScaler("cuda", init_scale=128.0)
    x, losses = tenon.randn(16, 4).to(gpu), []

    for _ in range(20):
        optimizer.zero_grad()
        with tenon.autocast("cuda"):
            loss = tenon.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())

    assert losses[-1] < 0.5 * losses[0]
    assert all(p.dtype is p.grad.dtype is tenon.float32 for p in model.parameters())
