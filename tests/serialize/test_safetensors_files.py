"""``.safetensors`` files: plain ones for other readers, with structure and checksums for tenon."""

import io
import json
import struct

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from tenon import dtypes
from tenon.errors import CheckpointError
from tenon.nn.parameter import Parameter
from tenon.serialize import load, save
from tenon.serialize.migrate import MANIFEST
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor

PLAIN = [kind.name for kind in dtypes.ALL if kind is not dtypes.complex128]


def around(array: np.ndarray) -> Tensor:
    return Tensor._of(array, from_numpy(np.ones(1))._backend)


def values(kind: str) -> np.ndarray:
    return np.arange(12).reshape(3, 4).astype(dtypes.BY_NAME[kind].numpy)


def saved(obj, tmp_path):
    path = tmp_path / "m.safetensors"
    save(obj, path)
    return path


def header(path) -> dict:
    whole = path.read_bytes()
    return json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])


@pytest.mark.parametrize("kind", [k for k in PLAIN if k != "bfloat16"])
def test_the_safetensors_package_reads_our_flat_dicts(kind, tmp_path):
    ours = {"layer.weight": values(kind), "layer.bias": values(kind)[0, :2], "scalar": values(kind)[1, 1]}
    ours["none"] = values(kind)[:0]

    path = saved({name: from_numpy(np.asarray(array)) for name, array in ours.items()}, tmp_path)
    theirs = safetensors.numpy.load_file(path)

    assert set(theirs) == set(ours)
    for name, array in ours.items():
        assert theirs[name].dtype == np.asarray(array).dtype and theirs[name].shape == np.shape(array)
        np.testing.assert_array_equal(theirs[name], array)


def test_the_safetensors_package_reads_our_bfloat16_and_its_checks_pass(tmp_path):
    path = saved({"b": from_numpy(values("bfloat16")), "u": from_numpy(values("uint8")[0])}, tmp_path)

    found = dict(safetensors.deserialize(path.read_bytes()))

    assert found["b"]["dtype"] == "BF16"
    assert bytes(found["b"]["data"]) == values("bfloat16").tobytes()


@pytest.mark.oracle
@pytest.mark.parametrize("kind", PLAIN)
def test_torch_reads_our_safetensors(kind, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    found = load_file(saved({"t": from_numpy(values(kind))}, tmp_path))["t"]

    assert str(found.dtype) == f"torch.{kind}"
    plain = found.float() if kind == "bfloat16" else found
    np.testing.assert_array_equal(plain.numpy(), values(kind).astype(plain.numpy().dtype))
    assert torch.is_tensor(found)


@pytest.mark.parametrize("kind", [k for k in PLAIN if k != "bfloat16"])
def test_files_of_the_safetensors_package_load_as_flat_dicts(kind, tmp_path):
    path = tmp_path / "theirs.safetensors"
    safetensors.numpy.save_file({"b": values(kind), "a": values(kind)[0]}, path, metadata={"format": "np"})

    found = load(path)

    assert set(found) == {"a", "b"} and type(found) is dict
    assert found["b"].dtype is dtypes.BY_NAME[kind]
    np.testing.assert_array_equal(found["b"].raw, values(kind))


def test_a_safetensors_file_is_known_by_its_content(tmp_path):
    path = saved({"a": from_numpy(np.arange(3))}, tmp_path)

    assert load(path.rename(tmp_path / "renamed.bin"))["a"].raw.tolist() == [0, 1, 2]
    assert load(io.BytesIO((tmp_path / "renamed.bin").read_bytes()))["a"].raw.tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [kind.name for kind in dtypes.ALL])
def test_every_dtype_comes_back(kind, tmp_path):
    found = load(saved([from_numpy(values(kind)), from_numpy(values(kind).T[1:])], tmp_path))

    assert found[0].dtype is dtypes.BY_NAME[kind]
    np.testing.assert_array_equal(found[0].raw, values(kind))
    np.testing.assert_array_equal(found[1].raw, values(kind).T[1:])


def test_complex128_is_pairs_of_floats_to_others(tmp_path):
    path = saved({"z": from_numpy(np.array([1 + 2j, 3 - 4j]))}, tmp_path)

    assert safetensors.numpy.load_file(path)["z"].tolist() == [[1, 2], [3, -4]]
    assert load(path)["z"].raw.tolist() == [1 + 2j, 3 - 4j]


def test_tied_weights_are_stored_once_and_tied_again(tmp_path):
    weight = np.arange(12.0).reshape(3, 4)
    path = saved({"a": from_numpy(weight), "b": from_numpy(weight), "t": from_numpy(weight.T)}, tmp_path)

    found = load(path)
    found["a"].raw[0, 1] = 99

    assert set(header(path)) == {"__metadata__", "a"}
    assert found["b"].raw[0, 1] == 99 and found["t"].raw[1, 0] == 99
    assert found["b"].raw.base is not None


def test_one_tensor_under_two_names_is_one_tensor_again(tmp_path):
    weight = from_numpy(np.ones(3))

    found = load(saved({"a": weight, "b": {"c": weight}}, tmp_path))

    assert found["a"] is found["b"]["c"]


def test_a_lone_strided_view_is_packed_without_the_rest_of_its_memory(tmp_path):
    big = np.arange(10_000.0)
    path = saved({"w": from_numpy(big[:100:10])}, tmp_path)

    assert path.stat().st_size < 2000
    np.testing.assert_array_equal(safetensors.numpy.load_file(path)["w"], big[:100:10])
    np.testing.assert_array_equal(load(path)["w"].raw, big[:100:10])


def test_tied_strided_views_are_packed_once_and_tied_again(tmp_path):
    column = np.arange(12.0).reshape(3, 4)[:, 1]
    path = saved({"a": from_numpy(column), "b": from_numpy(column)}, tmp_path)

    found = load(path)
    found["a"].raw[0] = -1

    assert header(path)["a"]["shape"] == [3]
    assert found["b"].raw.tolist() == [-1, 5, 9]


def test_columns_of_one_matrix_are_plain_arrays_as_they_share_nothing(tmp_path):
    matrix = np.arange(12.0).reshape(3, 4)
    path = saved({"left": from_numpy(matrix[:, :2]), "right": from_numpy(matrix[:, 2:])}, tmp_path)

    theirs = safetensors.numpy.load_file(path)

    np.testing.assert_array_equal(theirs["left"], matrix[:, :2])
    np.testing.assert_array_equal(theirs["right"], matrix[:, 2:])
    np.testing.assert_array_equal(load(path)["right"].raw, matrix[:, 2:])


def test_overlapping_views_that_nothing_spans_share_memory_again(tmp_path):
    line = np.arange(10.0)
    path = saved({"head": from_numpy(line[:6]), "tail": from_numpy(line[4:])}, tmp_path)

    found = load(path)
    found["head"].raw[5] = 99

    assert found["tail"].raw.tolist() == [4, 99, 6, 7, 8, 9]
    assert "head#memory" in header(path)


def test_views_with_other_dtypes_share_memory_again(tmp_path):
    floats = np.arange(4, dtype=np.float32)

    found = load(saved({"f": from_numpy(floats), "i": from_numpy(floats.view(np.int32)[1:])}, tmp_path))
    found["i"].raw[0] = 0

    assert found["f"].raw.tolist() == [0, 0, 2, 3]


def test_expanded_and_reversed_arrays_keep_their_values(tmp_path):
    row = np.arange(3.0)
    ours = [around(np.broadcast_to(row, (4, 3))), around(row[::-1]), around(np.arange(3, dtype=">i4"))]

    found = load(saved(ours, tmp_path))

    assert found[0].raw.tolist() == [[0, 1, 2]] * 4
    assert found[1].raw.tolist() == [2, 1, 0]
    assert found[2].raw.tolist() == [0, 1, 2]


def test_parameters_and_requires_grad_come_back(tmp_path):
    ours = [Parameter(from_numpy(np.ones(2))), Parameter(from_numpy(np.ones(2)), False)]
    ours.append(from_numpy(np.ones(2)).requires_grad_())

    found = load(saved(ours, tmp_path))

    assert [(type(t), t.requires_grad) for t in found] == [
        (Parameter, True),
        (Parameter, False),
        (Tensor, True),
    ]


def test_names_come_from_key_paths_and_never_clash(tmp_path):
    array = lambda: from_numpy(np.ones(1))  # noqa: E731
    ours = {
        "a.b": array(),
        "a": {"b": array(), 3: [array(), array()]},
        "__metadata__": array(),
        "\ud800": array(),
    }

    path = saved(ours, tmp_path)

    assert set(header(path)) == {"__metadata__", "a.b", "a.b#2", "a.3.0", "a.3.1", "__metadata__#2", "?"}
    assert list(load(path)) == list(ours)


def test_a_lone_tensor_or_number_is_saved_too(tmp_path):
    assert load(saved(from_numpy(np.arange(2)), tmp_path)).raw.tolist() == [0, 1]
    assert load(saved(7, tmp_path)) == 7


def test_map_location_meta_reads_shapes_only(tmp_path):
    found = load(saved({"a": from_numpy(np.ones((2, 3)))}, tmp_path), map_location="meta")["a"]

    assert found.device.type == "meta" and tuple(found.shape) == (2, 3)


def test_meta_tensors_come_back_without_data(tmp_path):
    meta = load(saved([from_numpy(np.ones((2, 3)))], tmp_path), map_location="meta")

    found = load(saved(meta, tmp_path))[0]

    assert found.device.type == "meta" and tuple(found.shape) == (2, 3) and found.dtype is dtypes.float64


def test_equal_objects_give_equal_files(tmp_path):
    make = lambda: {"b": from_numpy(np.arange(3)), "a": from_numpy(np.ones(2)), "c": {"x": 1}}  # noqa: E731

    assert saved(make(), tmp_path).read_bytes() == saved(make(), tmp_path).read_bytes()


def rewritten(path, change) -> None:
    """Change the manifest and sign it again, as a newer or hostile writer could."""
    import hashlib

    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    head = json.loads(whole[8 : 8 + length])
    document = json.loads(head["__metadata__"]["tenon"])
    change(document)
    text = json.dumps(document)
    head["__metadata__"] = {"tenon": text, "tenon.sha256": hashlib.sha256(text.encode()).hexdigest()}
    encoded = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + whole[8 + length :])


def test_a_manifest_from_the_future_is_refused_with_its_version(tmp_path):
    path = saved({"a": from_numpy(np.ones(2))}, tmp_path)
    rewritten(path, lambda document: document.update(schema=MANIFEST.current + 1))

    with pytest.raises(CheckpointError, match=f"schema version {MANIFEST.current + 1}.*Upgrade tenon"):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["tensors"][0].update(offset=8),
        lambda d: d["tensors"][0].update(offset=-8),
        lambda d: d["tensors"][0].update(shape=[3]),
        lambda d: d["tensors"][0].update(shape=["2"]),
        lambda d: d["tensors"][0].update(stride=[2]),
        lambda d: d["tensors"][0].update(dtype="float99"),
        lambda d: d["tensors"][0].update(array="b"),
        lambda d: d["tensors"][0].pop("device"),
        lambda d: d.update(structure={"tensor": 1}),
        lambda d: d.update(structure={"tensor": True}),
        lambda d: d.update(structure={"module": "os"}),
        lambda d: d.update(structure={"dict": {}, "tuple": []}),
        lambda d: d.update(structure={"dict": [[[], 1]]}),
        lambda d: d.update(structure={"float": "0.1"}),
        lambda d: d.update(structure={"bytes": "?"}),
        lambda d: d.update(structure={"size": ["a"]}),
        lambda d: d.update(structure={"dtype": "float99"}),
        lambda d: d.update(structure={"device": "??"}),
        lambda d: d.update(structure={"tuple": [], "metadata": {}}),
        lambda d: d.update(tensors=None),
        lambda d: d.update(schema="1"),
        lambda d: d.pop("schema"),
    ],
)
def test_a_malformed_manifest_is_an_error_that_names_the_file(change, tmp_path):
    path = saved({"a": from_numpy(np.ones(2))}, tmp_path)
    rewritten(path, change)

    with pytest.raises(CheckpointError, match=r"m\.safetensors"):
        load(path)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "entries",
    [
        {"a": {**ENTRY, "data_offsets": [0, 4]}},
        {"a": {**ENTRY, "data_offsets": [4, 12]}},
        {"a": {**ENTRY, "data_offsets": [8, 0]}},
        {"a": {**ENTRY, "shape": [3]}},
        {"a": {**ENTRY, "shape": [-2]}},
        {"a": {**ENTRY, "shape": 2}},
        {"a": {**ENTRY, "more": 1}},
        {"a": {"dtype": "F32"}},
        {"a": [1]},
        {"a": ENTRY, "b": ENTRY},
        {"a": {**ENTRY, "dtype": "F8_E4M3", "shape": [8]}},
    ],
)
def test_a_malformed_header_is_an_error_that_names_the_file(entries, tmp_path):
    path = tmp_path / "m.safetensors"
    encoded = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(8))

    with pytest.raises(CheckpointError, match=r"m\.safetensors"):
        load(path)


def test_a_name_used_twice_in_the_header_is_an_error(tmp_path):
    path = tmp_path / "m.safetensors"
    encoded = f'{{"a":{json.dumps(ENTRY)},"a":{json.dumps(ENTRY)}}}'.encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(8))

    with pytest.raises(CheckpointError, match="a name is used twice"):
        load(path)


def test_bfloat16_arrays_survive_bit_for_bit(tmp_path):
    bits = np.arange(0, 65536, 7, dtype=np.uint16).view(ml_dtypes.bfloat16)

    assert load(saved([from_numpy(bits)], tmp_path))[0].raw.tobytes() == bits.tobytes()
