"""The guide to devices: its code runs, its backend passes the suite, and the reasons that it lists exist."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tenon
from tenon.extend import cluster
from tenon.kernels import backend as backends
from tenon.plugins import manager
from tenon.testing.suites.backend import BackendSuite
from tenon_cuda import library

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "devices.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Everything that the guide's code defines, its backend registered as ``mine``."""
    found = {"__name__": "guide"}
    package = ModuleType("my_package")
    package.backend = ModuleType("my_package.backend")
    patch = pytest.MonkeyPatch()
    patch.setitem(sys.modules, "torch", tenon)
    patch.setitem(sys.modules, "my_package", package)
    patch.setitem(sys.modules, "my_package.backend", package.backend)
    for block in BLOCKS:
        exec(compile(block, "devices.md", "exec"), found)
    package.backend.MyBackend = found["MyBackend"]
    plugin = ModuleType("mine_plugin")
    plugin.tenon_backends = found["tenon_backends"]
    manager.register(plugin, "mine")
    yield found
    manager.unregister("mine")
    backends._INSTANCES.pop("mine", None)
    backends._CHECKED.discard("mine")
    patch.undo()


def test_the_code_of_the_guide_runs(names):
    assert len(BLOCKS) == 7
    assert issubclass(names["TestMyBackend"], BackendSuite) and names["TestMyBackend"].backend == "mine"


def test_the_rows_of_the_guide_are_chosen(names):
    backend = names["MyQuickBackend"]()
    softmax = tenon.ops.softmax
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    for given, axis, row in ((x, 1, "rows at once"), (x, 0, "reference"), (x[0], 0, "reference")):
        *_, (taken, why) = backend.choice(softmax).explain([given], {"axis": axis})

        assert (taken.name, why) == (row, "")
        np.testing.assert_allclose(backend.kernels[softmax](given, axis=axis).sum(axis), 1, rtol=1e-5)


def test_the_compiler_of_the_guide_fuses_what_it_takes(names):
    backend = names["MyCompiledBackend"]()
    builder = cluster.Builder()
    x = builder.input((2, 3), np.float32)
    exp = cluster.Namespace(builder).exp(x)
    out = np.empty((2, 3), np.float32)

    backend.compiler.fuse(builder.build([exp]))(np.zeros((2, 3), np.float32), out)

    assert (out == 1).all()
    assert backend.compiler.fuse(builder.build([exp * 2.0])) is None
    assert names["MyBackend"]().compiler is None


@pytest.mark.parametrize("op", ["add", "matmul", "softmax", "conv", "take", "nll_loss", "sum", "permute"])
def test_the_backend_of_the_guide_passes_its_suite(names, op):
    suite = names["TestMyBackend"]()
    suite.setup_class()

    suite.test_availability_is_answered_with_a_reason()
    suite.test_shared_memory_is_detected()
    suite.test_values(op)
    if op != "take":
        suite.test_gradients(op)


def test_the_reasons_in_the_table_are_those_given():
    source = Path(library.__file__).read_text()

    for words in re.findall(
        r"^\| (CuPy is not|cannot be imported|no NVIDIA|built for CUDA|no device is visible)",
        GUIDE.read_text(),
        re.M,
    ):
        assert words in source
