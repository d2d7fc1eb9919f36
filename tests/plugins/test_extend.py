"""What a plugin author imports."""

from __future__ import annotations

import ast
import inspect

import pytest

from tenon import extend

pytestmark = pytest.mark.together


@pytest.mark.parametrize("name", sorted(extend.__all__))
def test_every_offered_name_resolves(name):
    assert getattr(extend, name) is not None


def test_editors_see_the_names_that_exist_at_run_time():
    tree = ast.parse(inspect.getsource(extend))
    block = next(node for node in tree.body if isinstance(node, ast.If))

    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname for node in imports for alias in node.names if alias.asname}
    assigned = [node for node in block.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    seen |= {ast.unparse(getattr(node, "target", None) or node.targets[0]) for node in assigned}

    assert seen | {"hookimpl"} == set(extend.__all__)


def test_unknown_name_lists_what_there_is():
    with pytest.raises(AttributeError, match=r"no 'Optimiser'; it offers .*Optimizer"):
        _ = extend.Optimiser


def test_dir_lists_every_name():
    assert set(extend.__all__) <= set(dir(extend))
