"""``round`` of integers, in eager mode and in programs, which pass ``out=`` to the kernel."""

import pytest

import tenon
from tenon.errors import UnsupportedDTypeError, UnsupportedError


@pytest.mark.parametrize("kind", ["int8", "int32", "int64"])
@pytest.mark.parametrize("decimals", [-2, -1, 0, 1])
def test_programs_round_integers_as_eager_mode(kind, decimals):
    x = tenon.tensor([15, 25, -104, 7], dtype=getattr(tenon, kind))
    expected = tenon.round(x, decimals=decimals)
    compiled = tenon.compile(lambda a: tenon.round(a, decimals=decimals))

    for _ in range(4):
        found = compiled(x)

    assert compiled.programs or decimals == 0
    assert found.dtype is expected.dtype is x.dtype
    assert found.tolist() == expected.tolist() == [round(n, decimals) for n in (15, 25, -104, 7)]


@pytest.mark.parametrize(
    "work",
    [
        lambda x: True % x,
        lambda x: x % True,
        lambda x: True // x,
        lambda x: tenon.pow(True, x),
        lambda x: tenon.fmod(x, True),
        lambda x: x % x,
    ],
)
def test_bools_are_not_divided_or_raised_to_bools(work):
    with pytest.raises((UnsupportedDTypeError, UnsupportedError), match="not implemented for 'Bool'"):
        work(tenon.tensor([True, True]))
    assert (2 % tenon.tensor([True])).dtype is tenon.int64
