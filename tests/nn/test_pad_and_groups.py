"""Padding never shares memory with its input and never removes more than there is; groups need values."""

import pytest

import tenon
from tenon.nn import functional as F


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(0, 0, 0, 0), (0, 0, -1, -1), (-1, 0, 0, 0)])
def test_padding_by_nothing_or_less_makes_a_copy(mode, widths):
    x = tenon.ones(1, 3, 4, 4)

    F.pad(x, widths, mode=mode).fill_(4)

    assert float(x.max()) == 1


def test_negative_circular_padding_cannot_take_away_more_than_there_is():
    with pytest.raises(RuntimeError, match="removes more elements than there are in dimension 2"):
        F.pad(tenon.ones(1, 1, 4), (-3, -2), mode="circular")
    assert F.pad(tenon.ones(1, 1, 4), (-3, -1), mode="circular").shape == (1, 1, 0)


def test_a_group_of_one_value_is_refused():
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        F.group_norm(tenon.ones(1, 10, 1), 10)
    assert F.group_norm(tenon.ones(2, 10, 1), 10).shape == (2, 10, 1)
