"""The images' recipes: what they copy, install and run is checked without building them."""

import os
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "docker"
RECIPES = sorted([*FOLDER.glob("*.Dockerfile"), *(ROOT / "deploy" / "k8s").glob("*.Dockerfile")])
IMAGES = [path for path in RECIPES if path.parent == FOLDER]
KNOWN = {"ARG", "CMD", "COPY", "ENV", "FROM", "RUN", "USER", "WORKDIR"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def steps(path):
    """The instructions of a recipe with their arguments, continued lines joined."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in joined]


def copies(path):
    """The sources and the target of each COPY."""
    words = [argument.split() for name, argument in steps(path) if name == "COPY"]
    return [(sources, target) for *sources, target in words]


def reaches_the_builder(name):
    """Whether ``.dockerignore`` lets ``name`` through: of the patterns that match, the last one counts."""
    passes = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!")
        parents = [name, *(str(parent) for parent in Path(name).parents)]
        if line and not line.startswith("#") and any(fnmatch(part, pattern) for part in parents):
            passes = line.startswith("!")
    return passes


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_has_instructions_that_docker_knows_and_copies_what_is_there(path):
    names = [name for name, _ in steps(path)]

    assert set(names) <= KNOWN
    assert names[0] in ("FROM", "ARG") and "FROM" in names[:2]
    for sources, target in copies(path):
        assert target.startswith(("/", "./")) or len(sources) == 1
        for source in sources:
            assert (ROOT / source).exists() and reaches_the_builder(source), source


def test_nothing_reaches_the_builder_but_what_is_copied():
    assert not any(map(reaches_the_builder, [".git", ".venv", "tests", "docs", "runs", "deploy/README.md"]))
    assert not reaches_the_builder("platform/tenon/__pycache__")


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_has_all_that_the_wheel_is_built_from_and_installs_extras_that_exist(path):
    copied = {source for sources, _ in copies(path) for source in sources}
    install = next(argument for name, argument in steps(path) if "pip install" in argument)
    extras = install.partition("[")[2].partition("]")[0].split(",")
    packages = {
        name.partition("/")[0] for name in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    }

    assert copied >= packages | {"pyproject.toml", PROJECT["project"]["readme"]}
    assert copied >= set(PROJECT["project"]["license-files"])
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
    assert {"mpich", "fast"} <= set(extras)
    assert ("cuda12" in extras) == (path.stem == "cuda")


def test_the_images_differ_only_in_cuda():
    cpu, cuda = (steps(FOLDER / f"{name}.Dockerfile") for name in ("cpu", "cuda"))

    others = [step for step in cuda if step[0] != "ENV"]
    assert [(name, text.replace(",cuda12", "")) for name, text in others] == cpu
    assert {step[1].partition("=")[0] for step in cuda if step[0] == "ENV"} == {
        "NVIDIA_VISIBLE_DEVICES",
        "NVIDIA_DRIVER_CAPABILITIES",
    }


@pytest.mark.manual
@pytest.mark.mpi
def test_the_steps_of_the_cpu_image_make_an_installation_that_trains(tmp_path):
    """As root in a container, but in a fresh environment; of the steps, what installs Debian's packages is left out."""
    target, environment = tmp_path / "opt", tmp_path / "environment"
    target.mkdir()
    subprocess.run(["python3", "-m", "venv", str(environment)], check=True)
    variables = {**os.environ, "PATH": f"{environment}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    ran = []
    for name, argument in steps(FOLDER / "cpu.Dockerfile"):
        if name == "COPY":
            *sources, place = argument.split()
            for source in sources:
                goal = target / source if place == "./" else target / place
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, goal, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(ROOT / source, goal)
        elif name == "RUN" and not argument.startswith("apt-get"):
            subprocess.run(argument, shell=True, check=True, cwd=target, env=variables, capture_output=True)
            ran.append(argument)
    shutil.rmtree(target)

    doctor = subprocess.run(["tenon", "doctor"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    command = ["mpirun", "-n", "2", "tenon", "train", "digits", "--set", "epochs=1"]
    trained = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)

    assert ran == ['pip install --no-cache-dir ".[mpich,fast]"']
    assert doctor.returncode == 0 and "MPICH Version" in doctor.stdout, doctor.stdout + doctor.stderr
    assert trained.returncode == 0 and "2 ranks on cpu" in trained.stdout, trained.stderr
