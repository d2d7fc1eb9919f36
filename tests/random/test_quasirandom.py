"""Sobol sequences: PyTorch's points, bit for bit."""

import pytest

import tenon
from tenon.quasirandom import SobolEngine


@pytest.mark.oracle
@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 3, 200])
def test_points_and_steps_are_torchs(dimension, scramble):
    torch = pytest.importorskip("torch")
    both = [make(dimension, scramble, seed=4) for make in (SobolEngine, torch.quasirandom.SobolEngine)]

    def drawn(n, **options):
        mine, theirs = (engine.draw(n).tolist() for engine in both)
        assert mine == theirs

    for n in (1, 4, 11):
        drawn(n)
    for engine in both:
        engine.fast_forward(100)
    drawn(3)
    for engine in both:
        engine.reset().fast_forward(1)
    drawn(2)
    assert both[0].num_generated == both[1].num_generated and repr(both[0]) == repr(both[1])


@pytest.mark.oracle
def test_the_table_is_torchs_to_its_last_dimension():
    torch = pytest.importorskip("torch")
    mine, theirs = SobolEngine(SobolEngine.MAXDIM), torch.quasirandom.SobolEngine(SobolEngine.MAXDIM)

    assert (mine.sobolstate.numpy() == theirs.sobolstate.numpy()).all()


@pytest.mark.parametrize("scramble", [False, True])
def test_every_part_of_the_cube_gets_as_many_points(scramble):
    points = SobolEngine(2, scramble, seed=1).draw_base2(6, dtype=tenon.float64)

    for rows in (1, 2, 4, 8):  # 64 boxes of each shape, one point in each
        columns = 64 // rows
        places = (points[:, 0] * rows).floor() * columns + (points[:, 1] * columns).floor()
        assert places.unique().numel() == 64


def test_an_engine_goes_on_where_it_was():
    engine, other, out = SobolEngine(5), SobolEngine(5), tenon.empty(0)
    whole = engine.draw(16)

    assert tenon.equal(tenon.cat([other.draw(), other.draw(8), other.draw(7)]), whole)
    assert tenon.equal(engine.reset().fast_forward(9).draw(7, out=out), whole[9:]) and out.shape == (7, 5)
    assert other.draw(0).shape == (0, 5) and whole.dtype is tenon.float32


def test_what_an_engine_cannot_do():
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match="Supported range of dimensionality"):
            SobolEngine(dimension)
    with pytest.raises(ValueError, match="require n to be a power of 2"):
        SobolEngine(2).fast_forward(3).draw_base2(2)
    with pytest.raises(ValueError, match="cannot be drawn"):
        SobolEngine(2).fast_forward(2**30).draw()
