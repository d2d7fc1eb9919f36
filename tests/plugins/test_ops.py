"""Ops and functions of ``tenon.special`` that plugins offer."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.config import process_environment
from tenon.engine.op import table
from tenon.extend import hookimpl
from tenon.testing import samples
from tenon.testing.gradcheck import check_gradients

PLUGIN = """
from tenon.extend import hookimpl

@hookimpl
def tenon_ops():
    return {"softcap": "tenon_softcap.op:softcap"}

@hookimpl
def tenon_special_functions():
    return {"softcap": "tenon_softcap.op:of_special"}

@hookimpl
def tenon_samples():
    return {"softcap": "tenon_softcap.samples"}
"""
OP = '''
from tenon.ops.elementwise import FloatUnary

class Softcap(FloatUnary):
    """``tanh(x)``, for a test."""

    saves = ("out",)

    def forward(self, xp, x, *, out=None):
        return xp.tanh(x)

    def vjp_x(self, f, g, out, x):
        return f.mul(g, f.sub(1.0, f.mul(out, out)))

softcap = Softcap()

def of_special(input):
    """The same as a function."""
    return softcap(input)
'''
SAMPLES = """
import numpy as np
from tenon.testing.samples import add, values

add("softcap", "both sides", values(-1.0, 0.5), reference=np.tanh)
"""


@pytest.fixture
def softcap(install, fresh_host):
    files = {"plugin": PLUGIN, "op": OP, "samples": SAMPLES, "__init__": ""}
    install(
        "tenon-softcap",
        {"softcap": "tenon_softcap.plugin"},
        {f"tenon_softcap/{name}.py": text for name, text in files.items()},
    )
    fresh_host()
    yield
    if "softcap" in table.by_name:
        del table.by_name["softcap"], table.softcap


def test_op_is_imported_at_its_first_use(softcap):
    assert "softcap" not in table.by_name and "tenon_softcap.op" not in sys.modules

    assert ops.softcap(tenon.tensor([0.0])).tolist() == [0.0]
    assert table["softcap"] is ops.softcap is sys.modules["tenon_softcap.op"].softcap


def test_op_of_a_plugin_has_a_gradient_and_runs_on_bare_arrays(softcap):
    check_gradients(lambda x: ops.softcap(x), tenon.tensor([0.3, -1.0], dtype=tenon.float64))

    x = tenon.ones(2)
    assert np.allclose(x._backend.raw.softcap(x.raw), np.tanh(1))


def test_op_is_found_by_the_name_that_a_pickle_has(softcap):
    stored = pickle.dumps(ops.softcap)
    del table.by_name["softcap"], table.softcap
    del sys.modules["tenon_softcap.op"]

    assert pickle.loads(stored) is table["softcap"]


def test_function_appears_in_special_under_its_name(softcap):
    assert tenon.special.softcap(tenon.zeros(1)).tolist() == [0.0]
    assert tenon.special.softcap.__module__ == "tenon.special"
    assert "softcap" in dir(tenon.special)


def test_op_that_nobody_offers_is_an_error_that_names_it(empty_host):
    with pytest.raises(AttributeError, match="no op named 'softcup'"):
        _ = ops.softcup
    with pytest.raises(KeyError, match="softcup"):
        _ = table["softcup"]


def test_samples_of_a_plugin_are_among_all(softcap, monkeypatch):
    monkeypatch.setattr("tenon.testing.samples.table._TABLE", {})
    samples.table._load.cache_clear()
    try:
        assert [str(sample) for sample in samples.of("softcap")] == ["softcap-both sides"]
    finally:
        monkeypatch.undo()
        samples.table._load.cache_clear()


def test_classes_that_take_over_functions_are_asked_about_those_of_plugins(empty_host):
    class Offers:
        @hookimpl
        def tenon_special_functions(self):
            return {"twice": twice}

    def twice(input):
        return input * 2

    class Asked(tenon.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    empty_host.register(Offers(), "offers")

    assert tenon.special.twice(tenon.ones(1).as_subclass(Asked)) == "twice"


@pytest.mark.slow
def test_missing_function_names_the_plugins_that_are_disabled():
    code = """
        import tenon
        assert tenon.special.erf(tenon.zeros(1)).item() == 0
        try:
            tenon.special.airy_ai
        except AttributeError as error:
            assert "Disabled plugins: tenon_special" in str(error), error
        else:
            raise AssertionError
        """
    environment = {**process_environment(), "TENON_DISABLE_PLUGINS": "tenon_special"}

    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, check=True)


@pytest.mark.slow
def test_functions_of_plugins_can_be_overridden_before_their_first_use():
    code = """
        import tenon, tenon.special
        from tenon.overrides import get_overridable_functions
        assert tenon.special.airy_ai in get_overridable_functions()[tenon.special]
        """

    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
