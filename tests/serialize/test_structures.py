"""Nested containers, numbers and tensors are restored equal, in both formats."""

import io
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenon import dtypes
from tenon.device import Device
from tenon.errors import UnsavableError
from tenon.nn.parameter import UninitializedParameter
from tenon.serialize import load, save
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

FORMATS = ("pt", "safetensors")
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
EVERY = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW)


@pytest.fixture(params=FORMATS)
def through(request, tmp_path):
    """Save to a file of one format and load it again."""

    def go(obj):
        path = tmp_path / f"file.{request.param}"
        save(obj, path)
        return load(path)

    return go


keys = st.one_of(
    st.text(max_size=5),
    st.integers(),
    st.booleans(),
    st.none(),
    st.binary(max_size=4),
    st.floats(allow_nan=False),
    st.tuples(st.integers(), st.text(max_size=3)),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**60, max_value=2**2000),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.text(alphabet="\ud800\udfffa\x00\n\\\"'"),
    st.binary(),
    st.binary().map(bytearray),
    st.sampled_from(dtypes.ALL),
    st.sampled_from([Device("cpu"), Device("cuda", 3), Device("cuda")]),
    st.lists(st.integers(0, 9), max_size=3).map(Size),
    st.sets(keys, max_size=3),
)
arrays = hnp.arrays(
    st.sampled_from(["f4", "f8", "f2", "i8", "i4", "u1", "?", "c8", "c16"]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
views = st.sampled_from([lambda a: a, lambda a: a.T, lambda a: a[..., None], lambda a: a.reshape(-1)[::2]])
tensors = st.builds(lambda a, view: from_numpy(view(a)), arrays, views)
objects = st.recursive(
    scalars | tensors,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4).map(OrderedDict),
    ),
    max_leaves=12,
)


def same(a, b) -> bool:
    """Equal in type and value, where NaN equals NaN and -0.0 does not equal 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype is b.dtype and a.raw.shape == b.raw.shape and a.raw.tobytes() == b.raw.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return len(a) == len(b) and all(same(k, m) and same(v, w) for (k, v), (m, w) in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("suffix", FORMATS)
@settings(EVERY)
@given(obj=objects)
def test_any_object_comes_back_equal(suffix, obj, tmp_path):
    path = tmp_path / f"file.{suffix}"
    save(obj, path)

    assert same(load(path), obj)


@pytest.mark.slow
@pytest.mark.oracle
@settings(EVERY)
@given(obj=objects)
def test_any_object_is_read_by_torch_and_comes_back_from_it(obj):
    torch = pytest.importorskip("torch")
    ours, theirs = io.BytesIO(), io.BytesIO()
    save(obj, ours)
    ours.seek(0)

    torch.save(torch.load(ours, weights_only=True), theirs)
    theirs.seek(0)

    assert same(load(theirs), obj)


def test_counters_and_metadata_come_back(through):
    state = OrderedDict(w=from_numpy(np.ones(2)))
    state._metadata = OrderedDict({"": {"version": 2}, "layer": {"version": 1, "nested": [1, (2,)]}})

    found = through({"state": state, "counter": Counter("abca")})

    assert type(found["state"]) is OrderedDict and found["state"]._metadata == state._metadata
    assert type(found["state"]._metadata) is OrderedDict
    assert type(found["counter"]) is Counter and found["counter"] == {"a": 2, "b": 1, "c": 1}


def test_numpy_scalars_come_back_as_python_numbers(through):
    found = through(
        {"loss": np.float32(0.5), "n": np.int64(3), "ok": np.bool_(True), np.int32(4): np.str_("s")}
    )

    assert found == {"loss": 0.5, "n": 3, "ok": True, 4: "s"}
    assert [type(v) for v in found.values()] == [float, int, bool, str]


def test_a_list_that_is_held_twice_is_one_list_again_in_a_pt_file(tmp_path):
    shared = [1]
    save({"a": shared, "b": shared}, tmp_path / "m.pt")

    found = load(tmp_path / "m.pt")

    assert found["a"] is found["b"]


def test_a_list_that_holds_itself_comes_back_from_a_pt_file(tmp_path):
    endless = [1]
    endless.append(endless)
    save(endless, tmp_path / "m.pt")

    found = load(tmp_path / "m.pt")

    assert found[1] is found


def test_a_list_that_holds_itself_is_refused_by_safetensors(tmp_path):
    endless = [1]
    endless.append(endless)

    with pytest.raises(UnsavableError, match="contain themselves"):
        save(endless, tmp_path / "m.safetensors")


class Colour(IntEnum):
    RED = 1


class Module:
    def state_dict(self):
        return {}


Point = namedtuple("Point", "x y")
ATTRIBUTED = OrderedDict(a=1)
ATTRIBUTED.note = "lost otherwise"

REFUSED = {
    "function": ({"f": print}, r"obj\['f'\].*builtin_function"),
    "class": ([int], r"obj\[0\].*type"),
    "object": ({"a": [0, {"b": object()}]}, r"obj\['a'\]\[1\]\['b'\]"),
    "module": ({"model": Module()}, r"obj\['model'\]\.state_dict\(\)"),
    "array": ({"a": np.ones(3)}, r"tenon\.from_numpy"),
    "named tuple": ((Point(1, 2),), "_asdict"),
    "enum": ([Colour.RED], r"Save int\(value\)"),
    "defaultdict": ({"d": defaultdict(list)}, r"Save dict\(value\)"),
    "frozenset": ([frozenset({1})], r"Save set\(value\)"),
    "path": ({"path": Path("x")}, r"obj\['path'\]"),
    "range": ([range(3)], "range"),
    "tensor as key": ({from_numpy(np.ones(1)): 1}, "cannot be a key"),
    "object in a set": ([{object()}], r"obj\[0\]\{member\}"),
    "object in a key": ([{(1, object()): 1}], r"\{key\}"),
    "huge integer": ({"n": 2**3000}, "3001 bits"),
    "attribute of an OrderedDict": ([ATTRIBUTED], "note"),
    "uninitialised parameter": ({"w": UninitializedParameter()}, r"obj\['w'\].*uninitialised"),
    "datetime scalar": ([np.datetime64("2020-01-01")], "datetime64"),
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("case", REFUSED)
def test_what_a_file_cannot_carry_is_refused_with_its_key_path(case, suffix, tmp_path):
    obj, words = REFUSED[case]

    with pytest.raises(UnsavableError, match=words):
        save(obj, tmp_path / f"m.{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", FORMATS)
def test_containers_may_be_nested_deep_but_not_endlessly(suffix, tmp_path):
    def nested(depth):
        obj = []
        for _ in range(depth):
            obj = [obj]
        return obj

    save(nested(150), tmp_path / f"m.{suffix}")
    assert load(tmp_path / f"m.{suffix}") == nested(150)
    with pytest.raises(UnsavableError, match="nested deeper than 200"):
        save(nested(100_000), tmp_path / f"m.{suffix}")
