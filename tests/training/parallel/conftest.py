"""A project whose model has blocks of layers, which meshes of several dimensions divide."""

import functools
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from divided_runs import weights, write_project


@pytest.fixture
def blocky(project):
    write_project(project.folder)
    return project


@pytest.fixture(scope="session")
def whole(tmp_path_factory, make_project):
    """``whole(*options)``: the weights after a run on one rank."""
    made = make_project(tmp_path_factory.mktemp("whole"))
    write_project(made.folder)
    return functools.cache(lambda *options: weights(made.train("my.toml", *options)))
