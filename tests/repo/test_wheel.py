"""The wheel: small, complete, and with all modules that entry points name."""

import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="building the wheel needs hatchling")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
ENTRY_POINTS = PROJECT["project"]["entry-points"]["tenon"]
TENSORBOARD = PROJECT["project"]["entry-points"]["tensorboard_plugins"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (path,) = out.glob("*.whl")
    return path


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_is_small(wheel):
    # 0.4 MB of it are docstrings and comments, 0.4 MB Sobol's direction numbers, which do not compress. The
    # bound was 2,000,000 before there were distributions, 2,500,000 before those numbers, 2,900,000 before tenon.fx
    # and the export targets, 3,300,000 before traces and StableHLO, 3,450,000 before guards of sizes, 3,650,000
    # before DTensor and fully_shard, 3,800,000 before pipelines, streamed data and the section [parallel], and
    # 3,950,000 before sections of plugins and the suites for every kind of plugin.
    assert wheel.stat().st_size < 4_050_000


def test_the_wheel_has_data_licence_and_type_marker(wheel):
    inside = set(names(wheel))

    assert {"tenon_recipes/data/digits.csv.gz", "tenon_recipes/data/README.md", "tenon/py.typed"} <= inside
    assert {f"tenon_distributions/quasirandom/{name}" for name in ("joe_kuo_6.npz", "README.md")} <= inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in inside)
    assert {"tenon_dashboard/static/index.js", "tenon_dashboard/static/style.css"} <= inside
    assert {"tenon_target_c/kernels/gemm.c", "tenon_target_c/kernels/axes/amax.c"} <= inside
    stubs = {str(p.relative_to(ROOT / "platform")) for p in (ROOT / "platform").rglob("*.pyi")}
    assert stubs and stubs <= inside


def test_the_wheel_has_every_source_file_and_nothing_else(wheel):
    sources = {
        str(path.relative_to((ROOT / package).parent))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    inside = {name for name in names(wheel) if ".dist-info/" not in name}

    assert sources <= inside
    assert {name.partition("/")[0] for name in inside} == {Path(package).name for package in PACKAGES}
    assert not any("__pycache__" in name or "/tests/" in name for name in inside)


@pytest.mark.slow
def test_the_wheel_alone_runs(wheel, tmp_path):
    program = (
        "import tenon\n"
        "assert '.whl' in tenon.__file__, tenon.__file__\n"
        "from tenon import nn\n"
        "print(nn.Linear(2, 1)(tenon.ones(3, 2)).shape)\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(wheel)!r})\n{program}"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)

    assert done.stdout == "torch.Size([3, 1])\n", done.stderr


def test_every_package_with_a_plugin_is_in_the_wheel_and_has_an_entry_point():
    found = {
        str(path.parent.relative_to(ROOT))
        for top in ("plugins", "backends")
        for path in (ROOT / top).glob("*/plugin.py")
    }

    assert found == set(PACKAGES) - {"platform/tenon", "platform/tenon-stubs", "plugins/tenon_dashboard"}
    assert {Path(p).name: f"{Path(p).name}.plugin" for p in found} == ENTRY_POINTS


def test_entry_points_can_be_imported():
    for target in ENTRY_POINTS.values():
        importlib.import_module(target)
    for target in (PROJECT["project"]["scripts"]["tenon"], *TENSORBOARD.values()):
        module, _, attribute = target.partition(":")
        assert callable(getattr(importlib.import_module(module), attribute))


def test_the_installed_entry_points_are_those_of_the_project():
    installed = importlib.metadata.distribution("tenon-platform").entry_points

    assert {e.name: e.value for e in installed if e.group == "tenon"} == ENTRY_POINTS
    assert {e.name: e.value for e in installed if e.group == "tensorboard_plugins"} == TENSORBOARD


def test_first_party_targets_are_all_there():
    from tenon.config import Config
    from tenon.plugins.diagnose import broken_targets
    from tenon.plugins.manager import Host

    host = Host(Config(plugins=("tenon-platform",)))
    host.load()

    assert host.failures == ()
    assert [str(error) for error in broken_targets(host)] == []


def test_extras_are_those_that_the_guides_name():
    extras = PROJECT["project"]["optional-dependencies"]
    guide = (ROOT / "docs" / "guide" / "getting-started.md").read_text()

    assert [name for name in extras if f"`{name}`" not in guide] == []
