"""The samples of all ops, and their gradients, through the target c against tenon.

Many calls share a program, as each compilation costs more than they do.
"""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.plugins.target_c.programs import Quick, sanitized

import tenon as t
from tenon import ops
from tenon.errors import CaptureError, GraphError, LoweringError
from tenon.export import capture
from tenon.export.vectors import make_vectors
from tenon.testing import samples
from tenon_target_c.building import build
from tenon_target_c.target import CTarget

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[3] / "docs" / "export-ops.md"
NAMES = sorted({s.op for s in samples.everything()})
#: Ops that share programs.
GROUPS = [NAMES[i::12] for i in range(12)]
TOLERANCE = 2e-5


def bound(sample):
    """Return the call of a sample as a function of its arrays, those as tensors, and which are active."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        given = sample.arrays(np.float32)
    places = [i for i, a in enumerate(given) if isinstance(a, np.ndarray)]
    op = getattr(ops, sample.op)

    def function(*xs):
        args = list(given)
        for place, x in zip(places, xs, strict=True):
            args[place] = x
        result = op(*args, **sample.attrs)
        return [r for r in (result if isinstance(result, tuple | list) else (result,)) if r is not None]

    active = [i for i, place in enumerate(places) if place in sample.active]
    return function, [t.tensor(np.array(given[i], order="C")) for i in places], active


def gradients_of(function, active):
    """Return the gradients of the sum of squares of the results as a function."""

    def gradients(*given):
        tensors = [x.detach().requires_grad_() if i in active else x for i, x in enumerate(given)]
        total = sum((r * r).sum() for r in function(*tensors) if r.requires_grad)
        found = t.autograd.grad(total, [tensors[i] for i in active], allow_unused=True)
        return [g for g in found if g is not None]

    return gradients


def has_form(function, xs, train):
    try:
        build(capture(function, *xs, train=train))
    except (CaptureError, GraphError, LoweringError):
        return False
    return True


def calls_of(names, train):
    """Return name, function and tensors of all samples that have a form in C."""
    calls = []
    for sample in (s for name in names for s in samples.of(name)):
        function, xs, active = bound(sample)
        if train:
            scalars = any(isinstance(a, np.generic) for a in sample.arrays(np.float32))
            if not active or scalars:
                continue
            function = gradients_of(function, active)
        if has_form(function, xs, train):
            calls.append((str(sample), function, xs))
    return calls


def wrong_of(calls, folder, train):
    """Write the program of all ``calls`` and return the names of those whose results differ from tenon's."""
    lengths = []

    def all_of(*given):
        start, outputs = 0, []
        for _, call, xs in calls:
            outputs.append(call(*given[start : start + len(xs)]))
            start += len(xs)
        lengths[:] = map(len, outputs)
        return [o for each in outputs for o in each]

    arguments = [x for _, _, xs in calls for x in xs]
    graph = capture(all_of, *arguments, train=train)
    vectors = make_vectors(graph, [arguments], TOLERANCE)
    CTarget().write(graph, vectors, folder)
    (results,) = Quick().run(folder, [vectors.runs[0].inputs])
    names = [name for (name, _, _), length in zip(calls, lengths, strict=True) for _ in range(length)]
    return [
        name
        for name, own, other in zip(names, vectors.runs[0].outputs, results, strict=True)
        if own.dtype != other.dtype
        or own.shape != other.shape
        or not np.allclose(other, own, TOLERANCE, TOLERANCE, equal_nan=True)
    ]


@pytest.mark.parametrize("train", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("names", GROUPS, ids=range(len(GROUPS)))
def test_samples_and_gradients_equal_tenon(names, train, tmp_path):
    calls = calls_of(names, train)

    assert len(calls) > 20
    assert wrong_of(calls, tmp_path, train) == []
    assert "1 vectors, 0 failures" in sanitized(tmp_path)


def test_a_wrong_result_is_found(tmp_path, monkeypatch):
    calls = calls_of(["exp", "log"], False)
    monkeypatch.setattr(Quick, "run", lambda self, folder, runs: [[a + 1e-3 for a in outputs_of(calls)]])

    assert set(wrong_of(calls, tmp_path, False)) == {name for name, _, xs in calls if xs[0].numel()}


def outputs_of(calls):
    return [r.numpy() for _, call, xs in calls for r in call(*xs)]


#: Ops of which C does not support: linear algebra, complex numbers, and functions that few models use.
REFUSED = {
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "cholesky", "ctc_loss", "ctc_loss_grad", "det",
    "eig", "eigh", "erfcx", "fft_complex", "fft_half", "fft_real", "fractional_max_pool_indices", "frexp", "i0", "i0e",
    "i1", "i1e", "igamma", "igammac", "imag", "inv", "least_squares", "lu_parts", "mode_index", "modified_bessel_k0",
    "modified_bessel_k1", "nonzero", "pinv", "polygamma", "qr", "real", "rectangular", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "slogdet", "solve", "solve_adjoint", "solve_triangle", "svd_parts", "svdvals",
    "to_device", "view_as_complex", "view_as_real", "zeta",
}  # fmt: skip
#: Their samples pass weights as arguments, which have to be constants.
CONSTANT = {name for name in NAMES if name.startswith("int8_")} - {"int8_max_pool"}


def test_every_other_op_has_a_form():
    without = {name for name in NAMES if not any(has_form(*bound(s)[:2], False) for s in samples.of(name))}

    assert without == REFUSED | CONSTANT
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE.read_text("utf-8"), re.M)
    assert {name for name, cell in rows if not cell.strip()} == without
