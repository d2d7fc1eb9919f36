"""Every op against its reference, its shape rule and its differences, from one table of samples."""

import numpy as np
import pytest

import tenon
from tenon import ops
from tenon.engine import tape
from tenon.engine.aval import aval_of
from tenon.engine.op import NotInferable, table
from tenon.tensors.creation.create import wrap
from tenon.testing import samples
from tenon.testing.assertions import as_tuple, assert_same
from tenon.testing.gradcheck import check_gradients

pytestmark = pytest.mark.together

EVERYTHING = samples.everything()
WITH_REFERENCE = [s for s in EVERYTHING if s.reference is not None]
NARROW = [s for s in WITH_REFERENCE if s.narrow and not s.tags & {"integer", "extreme", "large"} and any(
    isinstance(d, samples.Draw) and d.floating for d in s.inputs)]  # fmt: skip
#: Ops that draw random numbers; their owners test their distribution.
RANDOM = {"dropout_mask", "rrelu_noise"}


def tensors(arrays, device="cpu"):
    return [wrap(a, device) if isinstance(a, np.ndarray) else a for a in arrays]


def call(sample, arrays):
    return as_tuple(getattr(ops, sample.op)(*tensors(arrays), **sample.attrs))


def test_every_op_has_samples():
    # Ops that only graphs hold are tested in tests/graph, collectives in tests/distributed.
    elsewhere = ("tenon.graph.", "tenon.distributed.")
    public = [op.name for op in table if not type(op).__module__.startswith(elsewhere)]
    missing = samples.without(name for name in public if name not in RANDOM)

    assert not missing, f"add samples in platform/tenon/testing/samples for {missing}"


@pytest.mark.parametrize("sample", WITH_REFERENCE, ids=str)
def test_values_are_those_of_the_reference(sample):
    for dtype in (np.dtype(np.float64), np.dtype(np.float32)):
        arrays = sample.arrays(dtype)
        expected = as_tuple(sample.expected(arrays))

        for actual, wanted in zip(call(sample, arrays), expected, strict=True):
            assert_same(actual, wanted, loose=sample.loose, where=f"{sample} of {dtype}")


@pytest.mark.parametrize("sample", NARROW, ids=str)
def test_narrow_floats_are_near_the_reference(sample):
    for dtype in (tenon.float16.numpy, tenon.bfloat16.numpy):
        narrow = [_turned(a, np.float32, dtype) for a in sample.arrays(np.float32)]
        expected = as_tuple(sample.expected([_turned(a, dtype, np.float32) for a in narrow]))

        for actual, wanted in zip(call(sample, narrow), expected, strict=True):
            wanted = np.asarray(wanted)
            if "dtype" not in sample.attrs:
                wanted = _turned(wanted, np.float32, dtype)
            assert_same(actual, wanted, loose=2 * sample.loose, where=f"{sample} of {dtype}")


def _turned(value, old, new):
    """An array of dtype ``old`` converted to ``new``; anything else unchanged."""
    return value.astype(new) if isinstance(value, np.ndarray) and value.dtype == old else value


@pytest.mark.parametrize("sample", EVERYTHING, ids=str)
def test_inputs_stay_only_views_share_their_memory_and_the_shape_rule_tells_the_result(sample):
    arrays, op = sample.arrays(), table[sample.op]
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]

    real = call(sample, arrays)

    for a, b in zip(arrays, before, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
    for out in real:
        shared = [isinstance(a, np.ndarray) and np.may_share_memory(out.raw, a) for a in arrays]
        assert not any(shared) or op.view, f"{sample.op} returns its input's memory but declares no view"
        assert not any(shared) or out._version_counter is not None
    if op.crosses:
        return  # between devices
    try:
        meta = as_tuple(op(*tensors(arrays, "meta"), **sample.attrs))
    except NotInferable:
        return  # its shape depends on its values
    assert [(tuple(m.shape), m.dtype, m.device.type) for m in meta] == [
        (tuple(r.shape), r.dtype, "meta") for r in real
    ]


@pytest.fixture
def nothing_kept():
    """Save no arrays where a rule may read shapes only: a rule that reads more fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tape, "_SMALL", 0)
        yield


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("sample", [s for s in EVERYTHING if s.active], ids=str)
def test_gradients_fit_the_differences(sample):
    check_gradients(
        table[sample.op],
        sample.arrays(),
        sample.attrs,
        active=sample.active,
        order=sample.order,
        outputs=sample.graded,
    )


@pytest.mark.parametrize("sample", [s for s in EVERYTHING if s.active], ids=str)
def test_every_taped_output_has_grad_and_meta_takes_gradients(sample):
    arrays = sample.arrays()
    inputs = tensors(arrays)
    for i in sample.active:
        inputs[i].requires_grad_()
    outputs = [o for o in as_tuple(table[sample.op](*inputs, **sample.attrs)) if o.dtype.is_floating_point]

    assert all(o.requires_grad for o in outputs)
    tenon.autograd.backward(outputs, [tenon.ones_like(o) for o in outputs])
    for i in sample.active:
        if inputs[i].grad is not None:
            assert inputs[i].grad.shape == inputs[i].shape
            assert inputs[i].grad.dtype == inputs[i].dtype


def test_avals_read_like_the_arrays_they_represent():
    array = np.zeros((2, 3), np.float32)
    aval = aval_of(array)

    assert (aval.shape, aval.dtype, aval.ndim, aval.size, aval.nbytes, aval.strides) == (
        array.shape, array.dtype, array.ndim, array.size, array.nbytes, array.strides,
    )  # fmt: skip


@pytest.mark.parametrize("sample", [s for s in EVERYTHING if s.active and s.op != "batch_norm"], ids=str)
def test_gradients_on_meta_have_the_inputs_shapes(sample):
    inputs = tensors(sample.arrays(), "meta")
    for i in sample.active:
        inputs[i].requires_grad_()
    try:
        outputs = as_tuple(table[sample.op](*inputs, **sample.attrs))
    except NotInferable:
        pytest.skip("its shape depends on its values")
    outputs = [o for o in outputs if o.requires_grad][: sample.graded or None]

    tenon.autograd.backward(outputs, [tenon.ones_like(o) for o in outputs])

    for i in sample.active:
        assert inputs[i].grad is None or inputs[i].grad.shape == inputs[i].shape
