"""Functions whose bodies are inlined into others when a module is loaded."""

import dis

import pytest

from tenon.engine import dispatch
from tenon.engine.inlining import inlined


def halved(value, of, note):
    """The function that is inlined."""
    out = value / 2
    if of:
        out = note() + out
    return out


@inlined(halved)
def plain(x):
    x = x + 1
    out = halved(x, False, lambda: x * 100)
    return out


@inlined(halved)
def noted(x, *, by: int = 10):
    out = halved(x, x > 0, lambda: x * by)
    return -out


def names(function):
    return {each.argval for each in dis.get_instructions(function)}


def test_the_statements_replace_the_call():
    assert plain(3) == 2 and noted(4) == -42 and noted(4, by=1) == -6 and noted(-4) == 2
    assert "halved" not in names(plain) | names(noted)
    assert noted.__kwdefaults__ == {"by": 10} and noted.__annotations__ == {"by": int}


def test_a_traceback_shows_the_lines_of_the_source():
    with pytest.raises(TypeError) as caught:
        noted("text")

    assert str(caught.traceback[-1].statement).strip() == "out = value / 2"


def test_without_its_source_a_function_calls_instead():
    space = {"inlined": inlined, "__name__": "nowhere"}
    exec("def tail(x):\n    y = x + 1\n    return y\n", space)
    exec("@inlined(tail)\ndef host(x):\n    y = tail(x)\n    return y\n", space)

    assert space["host"](1) == 2


@pytest.mark.parametrize("name", ["run", "pair", "single", "_view"])
def test_every_way_to_run_an_op_contains_the_common_end(name):
    assert "finish" not in names(getattr(dispatch, name))
    assert "_version_counter" in names(getattr(dispatch, name))
