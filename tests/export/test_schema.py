"""``graph.json``: what is written is read back; what is hostile is refused in bounded memory."""

import copy
import json
import tracemalloc

import numpy as np
import pytest

import tenon
from tenon import nn, ops
from tenon.engine.op import table
from tenon.errors import BundleError
from tenon.export import capture, schema, values
from tenon.ops.indexing import INDEX
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import tree_flatten
from tenon.testing import samples
from tenon.testing.suites.target_models import MODELS


def written(graph):
    document, arrays = schema.to_document(graph)
    tensors = {name: wrap(np.array(array, order="C"), device="cpu") for name, array in arrays.items()}
    return json.loads(json.dumps(document, allow_nan=False)), tensors


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_read_back(name):
    tenon.manual_seed(0)
    example = MODELS[name]()
    graph = capture(example.model, *example.args)

    read = schema.from_document(*written(graph), "graph.json")

    assert [str(node) for node in read.nodes] == [str(node) for node in graph.nodes]
    expected, result = graph.run(*example.args), read.run(*example.args)
    pairs = zip(expected, result, strict=True) if isinstance(expected, tuple) else [(expected, result)]
    assert all(tenon.equal(a, b) for a, b in pairs)


#: Ops that no graph has: the shape of the result depends on the data, or a device is left.
UNCAPTURED = {"nonzero", "to_device"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(table.by_name) - UNCAPTURED))
def test_every_op_is_read_back_with_its_gradient(name):
    for sample in samples.of(name):
        arrays = sample.arrays("float64")
        places = [i for i, a in enumerate(arrays) if isinstance(a, np.ndarray)]
        xs = [tenon.tensor(np.array(arrays[i], order="C")) for i in places]

        def function(*given):
            args = list(arrays)
            for place, x in zip(places, given, strict=True):
                args[place] = x
            return tree_flatten(getattr(ops, name)(*args, **sample.attrs))[0]

        def gradients(*given):
            leaves = [
                x.detach().requires_grad_() if place in sample.active else x
                for place, x in zip(places, given, strict=True)
            ]
            total = sum((y.abs() ** 2).sum() for y in function(*leaves) if y is not None and y.requires_grad)
            wanted = [x for place, x in zip(places, leaves, strict=True) if place in sample.active]
            return tenon.autograd.grad(total, wanted, allow_unused=True)

        for each, train in ((function, False), (gradients, True)) if sample.active else ((function, False),):
            graph = capture(each, *xs, train=train)
            read = schema.from_document(*written(graph), "graph.json")
            for own, other in zip(graph.run(*xs), read.run(*xs), strict=True):
                assert own is other is None or np.array_equal(own.numpy(), other.numpy(), equal_nan=True)


VALUES = [
    1, -3, INDEX, (slice(None), INDEX), 2.5, True, None, "text", 1 + 2j, float("inf"), float("-inf"), (1, (2, None)), [1, 2], {"a": (1,)},
    slice(1, None, 2), Ellipsis, np.dtype("float32"), {1: 2},
    tenon.bfloat16.numpy.type(1.5), tenon.bfloat16.numpy.type("inf"),
]  # fmt: skip


@pytest.mark.together
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_read_back(value):
    text = json.dumps(values.encode(value), allow_nan=False)

    result = values.decode(json.loads(text))

    assert result == value and type(result) is type(value)


def test_numbers_of_bfloat16_ops_are_read_back():
    def function(x):
        y = x.bfloat16()
        return (y * 2 + 1.5).float(), tenon.where(y > 0, y, 0.1), 2.0 - y, y.masked_fill(y > 0, float("-inf"))

    x = tenon.randn(3, 4)

    graph = schema.from_document(*written(capture(function, x)), "graph.json")

    assert all(tenon.equal(own, other) for own, other in zip(graph.run(x), function(x), strict=True))


@pytest.fixture
def document():
    tenon.manual_seed(0)
    graph = capture(nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval(), tenon.ones(2, 4))
    return written(graph)


def refused(document, change, match):
    data, arrays = copy.deepcopy(document[0]), dict(document[1])
    change(data, arrays)
    with pytest.raises(BundleError, match=match):
        schema.from_document(data, arrays, "graph.json")


def position(data, kind):
    return next(i for i, node in enumerate(data["nodes"]) if node["kind"] == kind)


HOSTILE = {
    "cycle": (
        lambda d, a: d["nodes"][position(d, "call")].update(args=[{"ref": [len(d["nodes"]) - 1, 0]}] * 3),
        "come before",
    ),
    "itself": (
        lambda d, a: d["nodes"][position(d, "call")].update(args=[{"ref": [position(d, "call"), 0]}] * 3),
        "come before",
    ),
    "negative reference": (lambda d, a: d.update(outputs=[[-1, 0]]), "reference to -1"),
    "boolean reference": (lambda d, a: d.update(outputs=[[True, 0]]), "reference to True"),
    "no such output": (lambda d, a: d.update(outputs=[[0, 3]]), "reference to 3"),
    "huge shape": (lambda d, a: d["nodes"][0].update(shape=[1 << 40, 1 << 40]), "more than .* bytes"),
    "negative size": (lambda d, a: d["nodes"][0].update(shape=[-1, 4]), "size of -1"),
    "size that is not an integer": (lambda d, a: d["nodes"][0].update(shape=[2.5, 4]), "size of 2.5"),
    "many axes": (lambda d, a: d["nodes"][0].update(shape=[1] * 100), "100 axes"),
    "unknown dtype": (lambda d, a: d["nodes"][0].update(dtype="float99"), "unknown dtype 'float99'"),
    "unknown op": (lambda d, a: d["nodes"][position(d, "call")].update(op="rm_rf"), "unknown op 'rm_rf'"),
    "op of Python functions": (
        lambda d, a: d["nodes"][position(d, "call")].update(op="host_call"),
        "is not allowed in a file",
    ),
    "path as an op": (
        lambda d, a: d["nodes"][position(d, "call")].update(op="../../etc/passwd"),
        "unknown op",
    ),
    "unknown kind": (lambda d, a: d["nodes"][0].update(kind="exec"), "unknown kind"),
    "unknown entry of a node": (lambda d, a: d["nodes"][0].update(code="1"), "no 'code'"),
    "unknown entry": (lambda d, a: d.update(code="1"), "unknown entries"),
    "unknown role": (lambda d, a: d["nodes"][0].update(role="root"), "unknown role"),
    "other shape than inferred": (
        lambda d, a: d["nodes"][position(d, "call")]["outputs"][0].update(shape=[9, 9]),
        "float32",
    ),
    "unknown attr": (lambda d, a: d["nodes"][-1].update(attrs={"evil": 1}), "graph.json"),
    "a text as an argument of an op": (
        lambda d, a: d["nodes"][position(d, "call")]["args"].__setitem__(-1, "relu"),
        "is 'relu', no value, number or null",
    ),
    "value with two keys": (
        lambda d, a: d["nodes"][-1].update(attrs={"x": {"tuple": [], "float": "inf"}}),
        "where one belongs",
    ),
    "unknown value": (lambda d, a: d["nodes"][-1].update(attrs={"x": {"pickle": "gASV"}}), "unknown value"),
    "missing tensor": (lambda d, a: a.pop("0.weight"), "no tensor '0.weight' is stored"),
    "tensor of another shape": (
        lambda d, a: a.update({"0.weight": tenon.ones(1)}),
        "'0.weight' is float32\\[1\\]",
    ),
    "tensor that nothing names": (lambda d, a: a.update(other=tenon.ones(1)), "stored tensor 'other'"),
    "the same name twice": (lambda d, a: d["nodes"].insert(1, d["nodes"][0]), "a second input"),
    "write to a call": (
        lambda d, a: d.update(writes=[{"target": len(d["nodes"]) - 1, "value": d["outputs"][0]}]),
        "not an input",
    ),
    "other arguments": (
        lambda d, a: d["signature"].update(arguments=[{"tensor": "y"}]),
        "the signature takes",
    ),
    "nest of another size": (lambda d, a: d["signature"].update(out={"tuple": [None, None]}), "leaves"),
    "no nodes": (lambda d, a: d.pop("nodes"), "malformed"),
    "nodes that are not a list": (lambda d, a: d.update(nodes={"a": 1}), "expected a list"),
    "other schema": (lambda d, a: d.update(schema="onnx"), "schema 'onnx'"),
    "later version": (lambda d, a: d.update(version=2), "version 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_are_refused(document, name):
    refused(document, *HOSTILE[name])


def test_deep_values_are_refused(document):
    deep = 1
    for _ in range(500):
        deep = [deep]

    refused(document, lambda d, a: d["nodes"][-1].update(attrs={"x": deep}), "nested deeper")


def test_what_is_not_json_is_refused():
    for data in (b"", b"{", b"[1]", b"\xff\xfe", b"[" * 200_000, b'{"a": ' * 100_000):
        with pytest.raises(BundleError, match=r"graph\.json"):
            schema.parse(data, "graph.json")


def test_hostile_documents_take_little_memory(document):
    tracemalloc.start()
    for name in ("huge shape", "many axes", "cycle"):
        refused(document, *HOSTILE[name])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 20e6


def test_random_changes_of_the_text_never_do_anything_but_fail_cleanly(document):
    text = json.dumps(document[0])
    random = np.random.default_rng(0)
    for _ in range(300):
        data = bytearray(text.encode())
        for _ in range(random.integers(1, 4)):
            data[random.integers(len(data))] = random.choice(list(b'0123456789{}[]",:-aetrux'))
        try:
            read = schema.parse(bytes(data), "graph.json")
            schema.from_document(read, document[1], "graph.json")
        except BundleError:
            pass
