"""Handlers added to compiled functions: they see every exception that leaves, and change nothing else."""

import shutil
import subprocess
import sys
import traceback

import pytest

from tenon.tensors.exception_table import SUPPORTED, encoded, entries, with_handler
from tenon.tensors.wrong_arguments import guard

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="exception tables are CPython's")
SEEN = []


def look():
    """The handler that the tests add: it records the exception, raises for "text", and repeats for "again"."""
    SEEN.append(sys.exception())
    if "text" in str(SEEN[-1]):
        raise TypeError("refused") from None
    return "again" in str(SEEN[-1])


def retried():
    """What a function returns instead, if ``look`` is True."""
    return "retried", sys._getframe(1).f_locals["x"]


def handled(function):
    function.__code__ = with_handler(function.__code__, "look", "retried")
    return function


@pytest.fixture(autouse=True)
def seen():
    SEEN.clear()
    return SEEN


def plain(x):
    """A name without attributes of its own."""
    return x.missing


def blocks(x):
    log = []
    for k in range(3):
        try:
            with memoryview(b"ab") as view:
                log.append([view[i] for i in (lambda k=k: x[k])()])
        except KeyError:
            log.append("caught")
        finally:
            log.append("finally")
    if x == [[], [], []]:
        raise ValueError("after the blocks")
    return log


def cells(x):
    return lambda: x


def test_an_exception_that_leaves_is_seen_and_goes_on(seen):
    with pytest.raises(AttributeError, match="missing") as raised:
        handled(plain)(3)

    assert seen == [raised.value]
    assert [line.lineno for line in traceback.extract_tb(raised.tb)][-1] == plain.__code__.co_firstlineno + 2
    assert sys.exception() is None


def test_the_handlers_own_exception_takes_its_place():
    def of_text(x):
        return int(x)

    with pytest.raises(TypeError, match="refused") as raised:
        handled(of_text)("text")

    assert sys.exception() is None and raised.value.__suppress_context__
    frames = traceback.extract_tb(raised.tb)
    assert [frame.name for frame in frames[-2:]] == ["of_text", "look"]
    assert frames[-2].lineno == of_text.__code__.co_firstlineno


def test_a_handler_can_return_a_result_in_place_of_the_exception(seen):
    def number(x):
        with memoryview(b"ab"):
            return int(x)

    results = [handled(number)("again")] + [
        number("again") for _ in range(20)
    ]  # specialized by the interpreter

    assert results == [("retried", "again")] * 21
    assert [type(e) for e in seen] == [ValueError] * 21 and sys.exception() is None


@pytest.mark.parametrize(
    ("x", "error", "result"),
    [
        ([[0], [1], [0]], None, [[97], "finally", [98], "finally", [97], "finally"]),
        ([{}, {}], IndexError, None),
        ([[0], None], TypeError, None),
        ({0: [1]}, None, [[98], "finally", "caught", "finally", "caught", "finally"]),
        ([[], [], []], ValueError, None),
    ],
    ids=["returns", "in a lambda", "in a with", "caught inside", "after a try"],
)
def test_blocks_inside_keep_their_own_handlers(x, error, result, seen):
    function = handled(blocks) if "look" not in blocks.__code__.co_names else blocks

    if error is None:
        assert function(x) == result and not seen
    else:
        with pytest.raises(error):
            function(x)
        assert [type(e) for e in seen] == [error]


def test_instructions_of_a_call_stay_as_they_are():
    for function in (encoded, cells, test_instructions_of_a_call_stay_as_they_are):
        code = function.__code__
        more = with_handler(code, "look", "retried")

        assert more.co_code.startswith(code.co_code) and more.co_consts == code.co_consts
        assert more.co_varnames == code.co_varnames and more.co_freevars == code.co_freevars
        assert list(more.co_lines())[: len(list(code.co_lines()))] == list(code.co_lines())


def test_tables_are_encoded_as_pythons_are():
    members = [*vars(shutil).values(), *vars(subprocess.Popen).values()]
    codes = [each.__code__ for each in members if hasattr(each, "__code__")]

    assert sum(bool(code.co_exceptiontable) for code in codes) > 10
    for code in codes:
        assert encoded(entries(code)) == code.co_exceptiontable


def test_generators_and_functions_of_many_names_are_left_as_they_are():
    space = {}
    exec("def many(x):\n return " + " + ".join(f"x.a{k}" for k in range(130)), space)

    assert with_handler(traceback.walk_tb.__code__, "look", "retried") is None
    assert with_handler(space["many"].__code__, "look", "retried") is None


def test_a_copy_of_guarded_code_raises_what_it_raises():
    def absolute(input):
        return input.raw

    absolute.__annotations__ = {"input": "Tensor"}
    guard([absolute])
    with pytest.raises(TypeError, match="argument 'input' \\(position 1\\) must be Tensor, not int"):
        absolute(3)

    absolute.__code__ = absolute.__code__.replace(co_firstlineno=1)  # as a debugger or a tracer does
    with pytest.raises(AttributeError, match="raw"):
        absolute(3)
