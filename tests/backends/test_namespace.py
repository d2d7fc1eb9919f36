"""The CUDA backend's array namespace against NumPy's, over arrays as strict as CuPy's."""

import importlib.util

import cupy_surface
import ml_dtypes
import numpy as np
import pytest
import strict_arrays
from strict_arrays import Array

from tenon_cuda.namespace import Namespace

pytestmark = pytest.mark.together

xp = Namespace(strict_arrays.xp)


def put(array):
    return xp.asarray(np.asarray(array))


def test_the_list_of_names_is_that_of_the_installed_cupy():
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    import cupy

    version, _, _ = cupy_surface.read()
    if version != f"cupy {cupy.__version__}":
        pytest.skip(f"the list is of {version}, installed is {cupy.__version__}")

    assert cupy_surface.survey(cupy) == cupy_surface.TEXT.read_text().splitlines()


def test_a_name_that_cupy_lacks_is_missing_here_too():
    with pytest.raises(AttributeError, match="no attribute 'busday_count'"):
        xp.busday_count([])
    with pytest.raises(TypeError, match="takes no stable"):
        strict_arrays.xp.argsort(put([1.0]), stable=True)


def test_arrays_of_the_host_are_refused():
    for wrong in (
        lambda: put([1.0]) + np.ones(1),
        lambda: xp.add(put([1.0]), np.ones(1)),
        lambda: np.asarray(put([1.0])),
        lambda: put([1.0])[np.array([0])],
        lambda: put([1.0]).__setitem__(slice(None), np.ones(1)),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["maximum", "minimum", "logaddexp", "add", "multiply"])
def test_accumulating_is_numpys(name, axis):
    array = np.random.default_rng(1).standard_normal((5, 7))

    assert_close = np.testing.assert_allclose
    assert_close(
        getattr(xp, name).accumulate(put(array), axis=axis).get(),
        getattr(np, name).accumulate(array, axis),
        rtol=1e-12,
    )


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("axis", [(), (0,), (0, 2), (0, 1, 2)])
def test_reducing_is_numpys(name, axis):
    array = np.random.default_rng(1).standard_normal((2, 3, 4))

    for keepdims in (False, True):
        expected = getattr(np, name).reduce(array, axis, keepdims=keepdims)
        actual = getattr(xp, name).reduce(put(array), axis=axis, keepdims=keepdims)
        np.testing.assert_allclose(actual.get(), expected, rtol=1e-12)


CASES = {
    "rows": ((4, 3), lambda r: (r.integers(0, 4, 30),), (30, 3)),
    "columns": ((4, 3), lambda r: (slice(None), r.integers(0, 3, 20)), (4, 20)),
    "pairs": ((4, 3, 2), lambda r: (r.integers(0, 4, 30), r.integers(0, 3, 30)), (30, 2)),
    "apart": ((4, 3, 2), lambda r: (r.integers(0, 4, 30), slice(None), r.integers(0, 2, 30)), (30, 3)),
    "middle": ((4, 3, 2), lambda r: (slice(None), r.integers(0, 3, 9), slice(None)), (4, 9, 2)),
    "broadcast": ((4, 3), lambda r: (r.integers(0, 4, (5, 1)), r.integers(0, 3, (1, 6))), (5, 6)),
    "negative": ((4, 3), lambda r: (r.integers(-4, 4, 30),), (30, 3)),
    "one value": ((4, 3), lambda r: (r.integers(0, 4, 30),), ()),
    "none": ((4, 3), lambda r: (r.integers(0, 4, 0),), (0, 3)),
    "all equal": ((4,), lambda r: (np.full(1000, 2),), (1000,)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int8"])
def test_repeated_places_count_every_time(case, name, dtype):
    shape, indices, values_shape = CASES[case]
    rng = np.random.default_rng(2)
    target = (
        rng.uniform(0.5, 1.5, shape).astype(dtype)
        if dtype[0] == "f"
        else rng.integers(-3, 4, shape).astype(dtype)
    )
    values = rng.uniform(0.9, 1.1, values_shape) if dtype[0] == "f" else rng.integers(-3, 4, values_shape)
    values = np.asarray(values).astype(dtype)
    key = indices(rng)
    there = put(target.copy())

    getattr(xp, name).at(there, tuple(put(k) if isinstance(k, np.ndarray) else k for k in key), put(values))

    getattr(np, name).at(target, key, values)
    np.testing.assert_allclose(there.get(), target, rtol=1e-4 if dtype == "float32" else 1e-9)


def test_sums_at_one_place_do_not_spoil_their_neighbours():
    there = put(np.zeros(4))

    xp.add.at(there, put([0, 1, 1, 2]), put([np.inf, 1.0, 2.0, np.nan]))

    np.testing.assert_array_equal(there.get(), [np.inf, 3, np.nan, 0])


def test_bfloat16_stays_bfloat16():
    narrow = np.dtype(ml_dtypes.bfloat16)
    x, mask = (
        put(np.array([[1.5, -2.0], [0.25, 3.0]]).astype(narrow)),
        put(np.array([[True, False], [False, True]])),
    )
    out = put(np.zeros((2, 2), narrow))

    made = {
        "where": xp.where(mask, x, x * 2),
        "where number": xp.where(mask, 0, x),
        "round": xp.round(x, 0),
        "matmul": xp.matmul(x.reshape(1, 2, 2), x.reshape(1, 2, 2)),
        "cumsum": xp.cumsum(x, axis=1),
        "cumprod": xp.cumprod(x, axis=1),
        "accumulate": xp.maximum.accumulate(x, axis=0),
        "into": xp.round(x, 0, out=out),
    }

    assert {name: a.dtype for name, a in made.items()} == dict.fromkeys(made, narrow)
    assert made["where"].get().astype(float).tolist() == [[1.5, -4], [0.5, 3]]
    assert made["where number"].get().astype(float).tolist() == [[0, -2], [0.25, 0]]
    assert made["cumsum"].get().astype(float).tolist() == [[1.5, -0.5], [0.25, 3.25]]
    assert xp.where(mask, x, put(np.ones((2, 2), np.float32))).dtype == np.float32
    assert xp.argsort(x, axis=1).get().tolist() == [[1, 0], [0, 1]]
    assert xp.argmax(x, axis=1).get().tolist() == [0, 1]
    assert bool(xp.any(x)) and bool(xp.all(x))
    assert xp.searchsorted(put(np.array([0.0, 1, 2]).astype(narrow)), x).get().tolist() == [[2, 0], [1, 3]]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (3, 1)])
def test_empty_and_single_axes_sort_and_scan(shape):
    x = put(np.zeros(shape))

    for axis in range(len(shape)):
        assert isinstance(xp.argsort(x, axis=axis), Array)
        assert xp.argsort(x, axis=axis).shape == xp.cumsum(x, axis=axis).shape == shape
