"""Deprecated forms of calls, which warn once, and errors where results must be deterministic."""

import importlib
import pickle
import warnings

import pytest

import tenon
from tenon.nn import functional as F


@pytest.fixture
def always():
    tenon.set_warn_always(True)
    yield
    tenon.set_warn_always(False)


@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_the_factor_may_precede_the_tensors(name, always):
    x, y, z = tenon.tensor([1.0, 2.0]), tenon.tensor([3.0, 4.0]), tenon.tensor([5.0, 8.0])
    expected = getattr(tenon, name)(x, y, z, value=2)

    with pytest.warns(UserWarning, match=f"This overload of {name} is deprecated"):
        assert tenon.equal(getattr(tenon, name)(x, 2, y, z), expected)
    with pytest.warns(UserWarning, match=f"This overload of {name} is deprecated"):
        assert tenon.equal(getattr(x, f"{name}_")(2, y, z), expected)
    with pytest.raises(TypeError):
        getattr(tenon, name)(x, 2, y, z, value=3)


def test_such_a_warning_comes_once_unless_all_are_asked_for():
    ones = tenon.ones(2)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        tenon.addcmul(ones, 2, ones, ones)
        first = len(told)
        tenon.addcmul(ones, 2, ones, ones)

    assert first <= 1 and len(told) == first


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("put_", lambda: tenon.ones(3).put(tenon.tensor([0]), tenon.ones(1))),
        ("max_unpooling2d_forward_out", lambda: F.max_unpool1d(tenon.ones(1, 1), tenon.tensor([[0]]), 2)),
        ("max_unpooling3d_forward_out", lambda: F.max_unpool3d(*[tenon.ones(1, 1, 1, 1).long()] * 2, 2)),
    ],
)
def test_what_torch_calls_not_deterministic_is_refused_where_that_is_asked_for(name, run):
    tenon.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match=f"^{name} does not have a deterministic implementation"):
            run()
        tenon.ones(3).put_(tenon.tensor([0]), tenon.ones(1), accumulate=True)
        tenon.use_deterministic_algorithms(True, warn_only=True)
        with pytest.warns(UserWarning, match=f"^{name} does not have a deterministic implementation"):
            run()
    finally:
        tenon.use_deterministic_algorithms(False)


def test_mixed_precisions_older_path_has_its_modules_and_pickles():
    older = importlib.import_module("tenon.cuda.amp.grad_scaler")
    common = importlib.import_module("tenon.cuda.amp.common")
    with pytest.warns(FutureWarning):
        scaler = older.GradScaler(init_scale=3.0, enabled=False)

    assert tenon.cuda.amp.autocast_mode.autocast is tenon.cuda.amp.autocast
    assert common.amp_definitely_not_available() is not tenon.cuda.is_available()
    assert pickle.loads(pickle.dumps(scaler)).is_enabled() == scaler.is_enabled()


def test_an_index_of_no_places_may_have_any_rank():
    x, nowhere = tenon.arange(4.0), tenon.zeros(0, 4, dtype=tenon.int64)

    assert tenon.equal(x.scatter(0, nowhere, tenon.zeros(0, 4)), x)
    assert tenon.equal(x.scatter_add(0, nowhere, tenon.zeros(0, 4)), x)
    assert x.gather(0, nowhere).shape == (0, 4)


@pytest.mark.parametrize(
    ("run", "match"),
    [
        (lambda x: tenon.diff(x, prepend=tenon.ones(3)), "diff expects prepend or append to be the same"),
        (
            lambda x: tenon.diff(x, append=tenon.ones(3, 3)),
            r"input.size\(0\) = 2, but got tensor.size\(0\) = 3",
        ),
        (lambda x: tenon.logcumsumexp(x, 0, out=x.double()), "expected scalar_type Float but found Double"),
        (lambda x: tenon.cummax(x, 0, out=(x, x.int())), "expected scalar_type Long but found Int"),
        (
            lambda x: tenon.grid_sampler_2d(tenon.ones(2, 1, 3, 3), tenon.ones(1, 1, 1, 2), 0, 0, True),
            "same batch",
        ),
    ],
)
def test_refusals_are_torchs(run, match):
    with pytest.raises(RuntimeError, match=match):
        run(tenon.ones(2, 3))
