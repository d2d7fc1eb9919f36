"""``import tenon`` stays light: no third-party packages before the first tensor, then NumPy's backend only."""

import json
import os
import subprocess
import sys

import pytest

#: Ours: these are found through entry points and hold only hooks.
FIRST_PARTY = {
    "tenon",
    "tenon_cpu",
    "tenon_compress",
    "tenon_cuda",
    "tenon_distributed_extras",
    "tenon_distributions",
    "tenon_early_stopping",
    "tenon_mpi",
    "tenon_optimizers",
    "tenon_parametrizations",
    "tenon_plan",
    "tenon_profiler",
    "tenon_recipes",
    "tenon_special",
    "tenon_target_numpy",
    "tenon_tensorboard",
    "tenon_target_c",
    "tenon_target_onnx",
    "tenon_target_stablehlo",
}
CORE = {"numpy", "ml_dtypes"}
#: What start-up files of an environment (``*.pth``) load in every interpreter, with and without tenon.
LIST = "import json, sys; print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"


def loaded_after(statement):
    run = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{LIST}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(run.stdout))


@pytest.fixture(scope="module")
def always_there():
    return loaded_after("pass") | set(sys.stdlib_module_names)


def test_importing_tenon_loads_no_plugin_and_no_heavy_library(always_there):
    assert loaded_after("import tenon") - always_there <= CORE | {"tenon"}


def test_importing_every_public_face_loads_no_plugin(always_there):
    loaded = loaded_after("import tenon\nfrom tenon import Tensor, cat, float32, linalg, einsum, device")

    assert loaded - always_there <= CORE | {"tenon"}


def test_the_first_tensor_loads_the_plugin_host_and_the_cpu_backend_only(always_there):
    loaded = loaded_after("import tenon\nassert (tenon.ones(2) + 1).tolist() == [2, 2]")

    assert loaded - always_there <= CORE | {"pluggy"} | FIRST_PARTY


def test_event_files_are_written_without_the_torch_that_may_be_installed(tmp_path):
    folder = str(tmp_path / "run")
    loaded = loaded_after(f"from tenon_tensorboard.writer import RunWriter\nRunWriter({folder!r}).close()")

    assert "tensorboardX" in loaded and "torch" not in loaded
    assert os.listdir(folder)


def test_importing_tenon_takes_less_than_a_quarter_of_a_second():
    def seconds(statement):
        start = sum(os.times()[2:4])  # what ended children used: a busy machine makes them wait, not work
        subprocess.run([sys.executable, "-c", statement], check=True)
        return sum(os.times()[2:4]) - start

    gained = min(seconds("import tenon") for _ in range(3)) - min(seconds("pass") for _ in range(3))

    assert gained < 0.25
