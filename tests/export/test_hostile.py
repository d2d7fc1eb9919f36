"""Bundles that somebody has tampered with: each loads or is refused, in bounded memory, and executes nothing.

Checksums are made right after each change, as somebody would who means harm.
"""

import copy
import hashlib
import json
import random
import resource
import struct

import pytest

import tenon
from tenon import nn
from tenon.errors import BundleError
from tenon.export import capture, load, save, schema, verify
from tenon.export.bundle import sealed
from tenon.testing.suites.target_models import MODELS


def step_of(model):
    optimizer = tenon.optim.Adam(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def movements(x):
    return (
        x[tenon.tensor([0, 1])], x.repeat(2, 3), nn.functional.pad(x, (1, 2)), x.unfold(1, 2, 1), x.sort(1),
        tenon.einsum("ij,kj->ik", x, x), x.cumsum(0), x[:, 1:3], x.reshape(2, -1),
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Bundles of several kinds."""
    place = tmp_path_factory.mktemp("bundles")
    tenon.manual_seed(0)
    made = []
    for name in ("net", "digits", "gpt", "lstm_tagger"):
        example = MODELS[name]()
        made.append(save(example.model, place / name, example.args))
    batch = (tenon.randn(4, 3), tenon.tensor([0, 1, 1, 0]))
    made.append(save(step_of(nn.Linear(3, 2)), place / "step", batch, train=True, calls=[batch] * 2))
    images = tenon.randn(2, 1, 8, 8)
    flexible = capture(nn.Conv2d(1, 2, 3), images, dynamic={"input": {0: "batch"}})
    made.append(save(flexible, place / "dynamic", calls=[(images,)]))
    made.append(save(movements, place / "movements", (tenon.randn(4, 4),)))
    return {path: {p.name: p.read_bytes() for p in path.iterdir()} for path in made}


def nest(depth):
    value = 1
    for _ in range(depth):
        value = {"tuple": [value]}
    return value


#: What is put in the place of anything.
ODD = [
    None, True, 0, 1, -1, 3, -2, 64, 1 << 31, 1 << 40, 1 << 62, 1 << 64, 10**400, 0.5, 1e308, "", "a", "\0", "\x1b[2J",
    "input", "call", "scalar", "relu", "take", "float32", "bool", "../x", "x" * 1000, [], {}, [[]], [0, 0], [-1, 0],
    [10**9, 0], [1 << 20] * 20, [1] * 70, {"ref": [0, 0]}, {"ref": [3, 0]}, {"tuple": []}, {"slice": [0, None, 0]},
    {"slice": [0, 1 << 62, 1]}, {"index": True}, {"ellipsis": True}, {"float": "nan"}, {"float": "inf"},
    {"complex": [1, 2]}, {"size": "batch"}, {"size": "9" * 150}, {"size": "(" * 90 + "1" + ")" * 90},
    {"size": "batch*batch*batch*batch*99999999"}, {"dict": [[[], 1]]}, {"dtype": "int8"}, {"a": 1, "b": 2}, nest(64),
    nest(65), nest(200),
]  # fmt: skip


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


def tampered(document, draw):
    """Return ``document`` with a few entries replaced, dropped, repeated or exchanged."""
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        every = list(places(document))[1:]
        *path, key = draw.choice(every)
        owner = document
        for each in path:
            owner = owner[each]
        what = draw.randrange(6)
        if what == 0:
            del owner[key]
        elif what == 1 and isinstance(owner, list):
            owner.insert(key, copy.deepcopy(owner[key]))
        elif what == 2 and isinstance(owner[key], int):
            owner[key] += draw.choice([-1, 1, 100, -100, 1 << 33])
        elif what == 3:
            value = document
            for each in draw.choice(every):
                value = value[each]
            owner[key] = copy.deepcopy(value)
        else:
            owner[key] = copy.deepcopy(draw.choice(ODD))
        if not document:
            return document
    return document


def put(folder, files):
    """Write files into a bundle, with checksums in the manifest that fit."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    if "manifest.json" in files:
        return
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"]
    for name in manifest["files"]:
        content = (folder / name).read_bytes()
        manifest["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "manifest.json").write_bytes(sealed(json.dumps(manifest)))


def tamper_json(content, draw):
    return json.dumps(tampered(json.loads(content), draw)).encode()


def tamper_manifest(content, draw):
    """Change the manifest, with a checksum of its own that fits."""
    document = json.loads(content)
    del document["sha256"]
    return sealed(json.dumps(tampered(document, draw)))


def tamper_header(content, draw):
    """Change the header of a safetensors file: offsets, shapes, dtypes."""
    (length,) = struct.unpack("<Q", content[:8])
    header = json.dumps(tampered(json.loads(content[8 : 8 + length]), draw)).encode()
    stated = len(header) if draw.random() < 0.95 else draw.choice([0, 1, 1 << 20, 1 << 62])
    return struct.pack("<Q", stated) + header + content[8 + length :]


def tamper_bytes(content, draw):
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 3])):
        place = draw.randrange(min(len(data), draw.choice([8, 200, len(data)])))
        if draw.random() < 0.7:
            data[place] = draw.randrange(256)
        else:
            data[place : place + draw.choice([0, 1, 10])] = draw.randbytes(draw.choice([0, 1, 8]))
    return bytes(data)


KINDS = {
    "graph": (["graph.json"], tamper_json),
    "manifest": (["manifest.json"], tamper_manifest),
    "header": (["weights.safetensors", "vectors.safetensors"], tamper_header),
    "bytes": (["graph.json", "weights.safetensors", "vectors.safetensors"], tamper_bytes),
}
MANY = [pytest.param(seed, 400, marks=pytest.mark.slow) for seed in (1, 2)]


@pytest.mark.parametrize(("seed", "cases"), [(0, 25), *MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tampered_bundle_loads_or_is_refused(bundles, kind, seed, cases):
    draw = random.Random(f"{kind} {seed}")
    names, tamper = KINDS[kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(cases):
        folder, files = draw.choice(list(bundles.items()))
        name = draw.choice(names)
        try:
            put(folder, {name: tamper(files[name], draw)})
            loaded = load(folder)
        except BundleError as error:
            refused += 1
            assert str(error).isprintable() and len(str(error)) < 3000
        else:
            verify(loaded.folder, targets=())  # runs or not, but ends
        finally:
            put(folder, files)

    assert refused > cases / 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


NUMBERS = [
    (b'"example": 2', b'"example": NaN', "NaN is not a number"),
    (b'"least": 0', b'"least": -Infinity', "-Infinity is not a number"),
    (b'"symbols"', b'"version": 1, "symbols"', "the key 'version' occurs twice"),
]


@pytest.mark.parametrize(("old", "new", "match"), NUMBERS)
def test_text_that_readers_take_differently_is_refused(bundles, old, new, match):
    folder, files = next((f, c) for f, c in bundles.items() if f.name == "dynamic")
    content = files["graph.json"].replace(old, new)
    assert content != files["graph.json"]

    put(folder, {"graph.json": content})
    try:
        with pytest.raises(BundleError, match=match):
            load(folder)
    finally:
        put(folder, files)


def test_powers_of_integers_end():
    nodes = [
        {"kind": "input", "name": "x", "role": "argument", "dtype": "float32", "shape": [2]},
        {"kind": "scalar", "function": "pow", "args": [10, 10**9]},
        {
            "kind": "call", "op": "mul", "args": [{"ref": [0, 0]}, {"ref": [1, 0]}], "attrs": {},
            "outputs": [{"dtype": "float32", "shape": [2]}],
        },
    ]  # fmt: skip
    signature = {
        "in": {"tuple": [{"tuple": [None]}, {"dict": []}]}, "arguments": [{"tensor": "x"}], "out": None,
        "returned": [{"output": 0}],
    }  # fmt: skip
    document = {
        "schema": "tenon.graph", "version": 1, "symbols": {}, "nodes": nodes, "outputs": [[2, 0]], "writes": [],
        "guards": [], "signature": signature,
    }  # fmt: skip

    graph = schema.from_document(document, {}, "graph.json")

    with pytest.raises(OverflowError):
        graph.run(tenon.ones(2))


def test_a_file_that_is_longer_than_it_may_be_is_not_read(bundles, monkeypatch):
    folder, files = next((f, c) for f, c in bundles.items() if f.name == "net")
    monkeypatch.setattr(schema, "MAX_FILE", 1000)

    put(folder, {"graph.json": files["graph.json"] + b" " * 2000})
    try:
        with pytest.raises(BundleError, match=r"graph\.json has .* bytes; at most 1,000 are read"):
            load(folder)
    finally:
        put(folder, files)


VECTORS = [
    ({"runs": 0}, "0 runs"),
    ({"runs": -1}, "-1 runs"),
    ({"runs": 2}, "2 arrays for 2 runs"),
    ({"absolute": 1e999}, "a tolerance of inf"),
    ({"relative": -1}, "-1.0 x"),
    ({"absolute": 10**400}, "too large"),
]


@pytest.mark.parametrize(("change", "match"), VECTORS)
def test_vectors_by_which_everything_would_pass_are_refused(bundles, change, match):
    folder, files = next((f, c) for f, c in bundles.items() if f.name == "net")
    manifest = json.loads(files["manifest.json"])
    del manifest["sha256"]
    manifest["vectors"] |= change

    put(folder, {"manifest.json": sealed(json.dumps(manifest).replace("Infinity", "1e999"))})
    try:
        with pytest.raises(BundleError, match=match):
            load(folder)
    finally:
        put(folder, files)


def test_a_bundle_without_test_vectors_is_not_written(tmp_path):
    with pytest.raises(BundleError, match="a bundle needs test vectors"):
        save(nn.Linear(2, 1), tmp_path / "out", (tenon.ones(1, 2),), calls=[])

    assert not (tmp_path / "out").exists()


def test_the_error_of_an_unknown_entry_is_short_however_long_its_name():
    document = {"schema": schema.SCHEMA, "version": schema.VERSION, "[" * 5000: 1}

    with pytest.raises(BundleError, match="unknown entries") as caught:
        schema.from_document(document, {}, "the file")

    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '{"a":' + "9" * 5000 + "}", "5", "{}x", '{"a":NaN}']
)
def test_documents_that_are_no_json_objects_are_refused(text):
    with pytest.raises(BundleError, match=r"^graph\.json (is not JSON|holds a)"):
        schema.parse(text.encode(), "graph.json")
