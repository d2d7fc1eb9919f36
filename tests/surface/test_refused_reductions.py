"""Errors and warnings of reductions, counts and searches, with PyTorch's messages."""

import io
import warnings

import pytest

import tenon

T = tenon.tensor
COMPLEX = tenon.ones(2, dtype=tenon.complex64)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: COMPLEX.amax(), NotImplementedError, "not implemented for 'ComplexFloat'"),
        (lambda: COMPLEX.argmax(), RuntimeError, "does not support complex input"),
        (lambda: T([1]).std(), RuntimeError, "std and var only support floating point and complex"),
        (lambda: tenon.var_mean(T([1])), RuntimeError, "var_mean only support floating point and complex"),
        (lambda: tenon.ones(2, 3).prod(dim=[0, 1]), TypeError, "argument 'dim' must be int, not list"),
        (lambda: T([1.0]).bincount(), NotImplementedError, "not implemented for 'Float'"),
        (lambda: T([1]).bincount(minlength=-1), RuntimeError, "minlength should be >= 0"),
        (lambda: T([1.0, float("inf")]).histc(), RuntimeError, "is not finite"),
        (lambda: tenon.searchsorted(T([1, 2]), 1, sorter=T([0])), RuntimeError, "must have the same size"),
        (lambda: tenon.searchsorted(T([1, 2]), 1, sorter=T([0.0, 1.0])), RuntimeError, "of long dtype"),
        (lambda: tenon.searchsorted(T([1, 2]), 1, sorter=T([0, 2])), RuntimeError, "sorter index out of range"),
        (lambda: tenon.searchsorted(T([[1, 2]]), 1), RuntimeError, "only when boundaries tensor dimension is 1"),
        (lambda: tenon.searchsorted(T([1]), T([1]), out=T([1.0])), RuntimeError, "output tensor's dtype is wrong"),
        (lambda: tenon.mode(T([1]), out=(T([1.0]), T([0]))), RuntimeError, "expected .* got 'Float' for values"),
        (lambda: tenon.sum(T([1]), 0, dtype=tenon.int32, out=T(0)), RuntimeError, "Expected out tensor to have"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_work_says_why(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_a_variance_without_degrees_of_freedom_is_nan_and_warns():
    for call in (tenon.std, tenon.var, lambda x: tenon.var_mean(x)[0], lambda x: x.std(0, correction=1)):
        with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
            assert call(tenon.ones(1)).isnan()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tenon.ones(1).var(unbiased=False) == 0


def test_what_is_not_a_file_is_named_when_saving():
    for kind in (AttributeError, TypeError):
        with pytest.raises(kind, match="'f' to be string, path, or a file-like object with a 'write'"):
            tenon.save([1], tenon.ones(2))
    file = io.BytesIO()
    tenon.save(tenon.ones(2), file)
    assert tenon.load(io.BytesIO(file.getvalue())).tolist() == [1.0, 1.0]
