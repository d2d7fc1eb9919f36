"""Collectives of plain values return equal values; other objects are refused."""

import json

import ml_dtypes
import numpy as np
import pytest

import tenon
from tenon.distributed.communication.objects import decode, encode
from tenon.errors import CommunicatorError


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(10**30),
        1.5,
        float("inf"),
        "ünï ☃",
        b"\x00\xff",
        [],
        (1, (2, [3])),
        ["tuple", [1]],
        {"a": 1, 2: "b", (1, "x"): None, None: 0, True: 1.0},
        {},
        {(2, "x")},  # of one item: every process has to show it alike
        frozenset("a"),
        1 - 2j,
    ],
    ids=repr,
)
def test_plain_values_come_back_equal_and_of_the_same_type(value):
    back = decode(encode(value))

    assert back == value
    assert type(back) is type(value)


def test_nan_comes_back():
    assert np.isnan(decode(encode(float("nan"))))


@pytest.mark.together
@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", ">f8", "complex64", ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3)])
def test_arrays_come_back(dtype, shape):
    array = np.ones(shape, dtype)

    back = decode(encode([array]))[0]

    assert back.dtype == array.dtype.newbyteorder("=")
    assert back.shape == shape
    assert (back == array).all()


def test_numpy_numbers_stay_numbers():
    back = decode(encode(np.float32(0.1)))

    assert type(back) is np.float32
    assert back == np.float32(0.1)


def test_tensors_come_back_with_dtype_shape_and_kind():
    given = [tenon.arange(6.0).view(2, 3).t(), tenon.tensor(True), tenon.zeros(0, dtype=tenon.bfloat16)]
    parameter = tenon.nn.Parameter(tenon.ones(2, requires_grad=True) * 2)
    *back, again = decode(encode([*given, parameter]))

    assert all(a.dtype == b.dtype and tenon.equal(a, b) for a, b in zip(given, back, strict=True))
    assert type(again) is tenon.nn.Parameter and again.requires_grad and again.is_leaf
    assert again.tolist() == [2, 2]


class Payload:
    def __reduce__(self):
        return (pytest.fail, ("code ran",))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Payload(), "object is a .*Payload"),
        ({"model": [1, range(3)]}, r"object\['model'\]\[1\] is a builtins.range"),
        ({b"key": 1}, "has a key of type bytes"),
        (lambda: 0, "function"),
    ],
    ids=["class", "range", "key", "function"],
)
def test_everything_else_is_refused_by_its_place(value, words):
    with pytest.raises(CommunicatorError, match=words):
        encode(value)


def test_endless_nesting_is_refused():
    value = []
    value.append(value)
    with pytest.raises(CommunicatorError, match="nested more than"):
        encode(value)


def test_the_wire_format_is_json():
    json.loads(encode({"a": (1, b"x", np.ones(2))}))
