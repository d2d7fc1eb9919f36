"""Every op that the target writes, on the samples of all ops, against tenon."""

import inspect
import warnings

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.errors import LoweringError
from tenon.export import capture
from tenon.extend import Composite
from tenon.testing import samples
from tenon_target_numpy import library
from tenon_target_numpy.lowering import ops_in_numpy

pytestmark = pytest.mark.slow

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3}
#: Ops that cannot be captured: the shape of the result depends on the data, or a device is left.
UNCAPTURED = {"nonzero", "to_device"}
WRITTEN = sorted(ops_in_numpy() - UNCAPTURED)


def bound(sample, arrays):
    """Return the sample's call as a function of its arrays, and those as tensors."""
    op = getattr(ops, sample.op)
    places = [i for i, a in enumerate(arrays) if isinstance(a, np.ndarray)]

    def function(*xs):
        args = list(arrays)
        for place, x in zip(places, xs, strict=True):
            args[place] = x
        return op(*args, **sample.attrs)

    return function, places, [tenon.tensor(np.array(arrays[i], order="C")) for i in places]


def leaves_of(result):
    return [r.numpy() for r in (result if isinstance(result, tuple | list) else (result,)) if r is not None]


def check(outputs, expected, tolerance):
    assert [(out.dtype, out.shape) for out in outputs] == [(right.dtype, right.shape) for right in expected]
    for out, right in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(out, right, rtol=tolerance, atol=tolerance)


def check_values(compute, name, dtype):
    for sample in samples.of(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # numbers too large for float16
            arrays = sample.arrays(dtype)
        if any(isinstance(a, np.ndarray) and a.dtype.kind == "c" for a in arrays):
            continue  # refused: weights and vectors are safetensors, which have no complex numbers
        function, places, xs = bound(sample, arrays)
        graph = capture(function, *xs)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Mean of empty slice")
            outputs = compute(graph, [arrays[i] for i in places])
        check(outputs, leaves_of(graph.run(*xs)), TOLERANCE[dtype])


def test_every_written_op_has_samples():
    assert samples.without(WRITTEN) == []


@pytest.mark.parametrize("name", WRITTEN)
def test_values(name, compute):
    check_values(compute, name, "float32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("name", WRITTEN)
def test_values_in_other_dtypes(name, dtype, compute):
    check_values(compute, name, dtype)


def check_gradients(compute, name):
    """Compare gradients; return how many samples could be written."""
    written = 0
    for sample in samples.of(name):
        arrays = sample.arrays("float64")
        if not sample.active or any(
            isinstance(a, np.generic) or np.ndim(a) == 0 for a in arrays if a is not None
        ):
            continue
        function, places, xs = bound(sample, arrays)

        def gradients(*given):
            tensors = [
                x.detach().requires_grad_() if place in sample.active else x
                for place, x in zip(places, given, strict=True)
            ]
            result = function(*tensors)
            results = result if isinstance(result, tuple | list) else (result,)
            total = sum((r * r).sum() for r in results if r.requires_grad)
            leaves = [x for place, x in zip(places, tensors, strict=True) if place in sample.active]
            return tenon.autograd.grad(total, leaves, allow_unused=True)

        graph = capture(gradients, *xs, train=True)
        try:
            outputs = compute(graph, [arrays[i] for i in places])
        except LoweringError:
            continue
        check(outputs, leaves_of(graph.run(*xs)), 1e-8)
        written += 1
    return written


#: Ops with functions of their own for the gradient.
GRADED = (
    "attention", "batch_norm", "channel_affine", "convolution", "cross_entropy", "embedding", "gelu",
    "gru_sequence", "layer_norm", "linear", "lstm_sequence", "max_pool", "mish", "rnn_sequence", "silu",
)  # fmt: skip


@pytest.mark.parametrize("name", GRADED)
def test_gradients(name, compute):
    assert check_gradients(compute, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in GRADED])
def test_gradients_of_other_ops(name, compute):
    check_gradients(compute, name)


def attributes_of(op):
    """Return the keyword-only parameters of the methods that compute and infer ``op``."""
    methods = (op.infer, op.decompose if isinstance(op, Composite) else op.forward)
    parameters = [p for method in methods for p in inspect.signature(method).parameters.values()]
    return {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_functions_have_the_parameters_of_their_ops():
    assert {"conv", "softmax", "lstm_sequence"} <= library.functions()
    for name in sorted(library.functions()):
        op = getattr(ops, name.removesuffix("_saved"), None)
        if op is None or name == "put":  # its key has the indices
            continue
        parameters = library.definitions()[name].parameters
        operands = parameters[: len(op.inputs)]
        assert operands == tuple(op.inputs), name
        assert set(parameters[len(op.inputs) :]) <= attributes_of(op) | set(op.defaults), name
        for attr, default in op.defaults.items():
            assert library.definitions()[name].defaults.get(attr) == default, (name, attr)


def test_numbers_beside_float16_have_the_digits_of_eager_ops(compute):
    def function(x):
        return x * 0.3, x / 0.3, x // 0.3, x * tenon.tensor(0.3), 0.3 / x, x + 0.3, 0.3 - x, x * 2049

    x = tenon.linspace(0.1, 8, 200).half()

    outputs = compute(capture(function, x), [x.numpy()])

    for out, expected in zip(outputs, function(x), strict=True):
        np.testing.assert_array_equal(out, expected.numpy())
