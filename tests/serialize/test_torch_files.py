"""Files can be exchanged with real PyTorch in both directions."""

import io
import zipfile
from collections import Counter, OrderedDict

import ml_dtypes
import numpy as np
import pytest

from tenon import dtypes
from tenon.device import Device
from tenon.errors import CheckpointError, UnsupportedError
from tenon.nn.parameter import Parameter
from tenon.serialize import load, save
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]

DTYPES = [kind.name for kind in dtypes.ALL]
LAYOUTS = {
    "matrix": lambda a: a,
    "scalar": lambda a: a[1, 2],
    "no rows": lambda a: a[:0],
    "transposed": lambda a: a.T,
    "every second column": lambda a: a[:, ::2],
    "last row": lambda a: a[2],
    "middle": lambda a: a[1:, 1:3],
}


def values(kind: str) -> np.ndarray:
    numbers = np.arange(12).reshape(3, 4)
    if kind.startswith("complex"):
        numbers = numbers + 1j * numbers[::-1]
    return numbers.astype(dtypes.BY_NAME[kind].numpy)


def to_tenon(array: np.ndarray) -> Tensor:
    return from_numpy(np.asarray(array))


def around(array: np.ndarray) -> Tensor:
    """A tensor around an array that ``from_numpy`` would not take."""
    return Tensor._of(array, to_tenon(np.ones(1))._backend)


def to_torch(kind: str):
    numbers = values(kind)
    if kind == "bfloat16":
        return torch.from_numpy(numbers.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(numbers)


def from_torch(tensor) -> np.ndarray:
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.detach().resolve_conj().numpy()


def written_by_torch(obj, **options) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(obj, buffer, **options)
    buffer.seek(0)
    return buffer


def written_by_tenon(obj) -> io.BytesIO:
    buffer = io.BytesIO()
    save(obj, buffer)
    buffer.seek(0)
    return buffer


def read_by_torch(obj, **options):
    return torch.load(written_by_tenon(obj), weights_only=True, **options)


def elements(tensor: Tensor) -> tuple[int, ...]:
    return tuple(s // tensor.raw.itemsize for s in tensor.raw.strides)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", DTYPES)
def test_torch_reads_every_dtype_and_layout_of_ours(kind, layout):
    array = LAYOUTS[layout](values(kind))

    found = read_by_torch({"t": to_tenon(array)})["t"]

    assert str(found.dtype) == f"torch.{kind}"
    assert tuple(found.shape) == array.shape
    np.testing.assert_array_equal(from_torch(found), array)
    if array.size:
        assert found.stride() == tuple(s // array.itemsize for s in np.asarray(array).strides)
    assert not found.requires_grad


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", DTYPES)
def test_we_read_every_dtype_and_layout_of_torch(kind, layout):
    tensor = LAYOUTS[layout](to_torch(kind))

    found = load(written_by_torch({"t": tensor}))["t"]

    assert found.dtype is dtypes.BY_NAME[kind]
    assert tuple(found.shape) == tuple(tensor.shape)
    np.testing.assert_array_equal(found.raw, from_torch(tensor))
    if tensor.numel():
        assert elements(found) == tensor.stride()


@pytest.mark.parametrize("kind", [k for k in DTYPES if k not in ("uint16", "uint32", "uint64")])
def test_we_read_the_format_before_1_6(kind):
    tensor = to_torch(kind)
    saved = {
        "whole": tensor,
        "part": tensor[1:, ::2],
        "tied": tensor,
        "names": ["a", None],
        "no rows": tensor[:0],
    }

    found = load(written_by_torch(saved, _use_new_zipfile_serialization=False))

    np.testing.assert_array_equal(found["whole"].raw, from_torch(tensor))
    np.testing.assert_array_equal(found["part"].raw, from_torch(tensor[1:, ::2]))
    assert np.shares_memory(found["whole"].raw, found["part"].raw)
    assert found["tied"] is found["whole"]
    assert found["names"] == ["a", None]


STRUCTURE = {
    "ordered": OrderedDict([("b", 1), ("a", [1, 2.5, -(2**31) - 1, 2**70, -1, 256, 65536])]),
    "tuple": (None, True, False, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
    "text": ["", "über", "\ud800", "x" * 300],
    "bytes": [b"", b"\x00\xff", bytearray(b"ab"), bytearray()],
    "numbers": [1j, complex(-0.0, float("inf")), float("-inf"), 0.1, -0.0],
    "sets": [set(), {1, 2}, {("a", 1)}],
    "counter": Counter({"a": 2}),
    (1, "key"): {3: "three", 2.5: "float", None: "none", True: "true", b"b": "bytes"},
}


def test_torch_reads_our_containers_and_numbers():
    found = read_by_torch(STRUCTURE)

    assert found == STRUCTURE
    assert [type(v) for v in found.values()] == [type(v) for v in STRUCTURE.values()]


def test_we_read_torchs_containers_and_numbers():
    found = load(written_by_torch(STRUCTURE))

    assert found == STRUCTURE
    assert [type(v) for v in found.values()] == [type(v) for v in STRUCTURE.values()]


def test_sizes_dtypes_and_devices_travel_both_ways():
    ours = {"size": Size((2, 3)), "dtype": dtypes.bfloat16, "device": Device("cuda", 1), "cpu": Device("cpu")}
    theirs = {"size": torch.Size((2, 3)), "dtype": torch.bfloat16, "device": torch.device("cuda", 1)}
    theirs["cpu"] = torch.device("cpu")

    assert read_by_torch(ours) == theirs
    found = load(written_by_torch(theirs))
    assert found == ours
    assert type(found["size"]) is Size


def test_shared_memory_is_stored_once_and_shared_again_in_torch():
    weight = values("float32")
    file = written_by_tenon(
        {"tied": to_tenon(weight), "again": to_tenon(weight), "part": to_tenon(weight.T[1:])}
    )

    names = zipfile.ZipFile(file).namelist()
    file.seek(0)
    found = torch.load(file, weights_only=True)

    assert [n for n in names if "/data/" in n] == ["archive/data/0"]
    assert found["tied"].data_ptr() == found["again"].data_ptr()
    found["tied"][0, 1] = 99
    assert found["part"][0, 0] == 99


def test_memory_shared_in_torch_is_shared_here():
    weight = to_torch("float32")

    found = load(written_by_torch({"tied": weight, "part": weight.t()[1:], "row": weight[2]}))
    found["tied"].raw[0, 1] = 99
    found["tied"].raw[2, 3] = -1

    assert found["part"].raw[0, 0] == 99
    assert found["row"].raw[3] == -1


def test_one_tensor_under_two_names_is_one_tensor_again():
    weight = to_tenon(values("float32"))

    found = load(written_by_tenon({"a": weight, "b": [weight]}))
    theirs = read_by_torch({"a": weight, "b": [weight]})

    assert found["a"] is found["b"][0]
    assert theirs["a"] is theirs["b"][0]


def test_parameters_and_requires_grad_travel_both_ways():
    ours = {
        "p": Parameter(to_tenon(np.ones(3, np.float32))),
        "frozen": Parameter(to_tenon(np.ones(2)), False),
    }
    ours["leaf"] = to_tenon(np.zeros(2)).requires_grad_()

    theirs = read_by_torch(ours)
    back = load(written_by_torch(theirs))

    assert type(theirs["p"]) is torch.nn.Parameter and theirs["p"].requires_grad
    assert type(theirs["frozen"]) is torch.nn.Parameter and not theirs["frozen"].requires_grad
    assert type(theirs["leaf"]) is torch.Tensor and theirs["leaf"].requires_grad
    assert [(type(t), t.requires_grad) for t in back.values()] == [
        (type(t), t.requires_grad) for t in ours.values()
    ]


def test_state_dict_metadata_travels_both_ways():
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).state_dict()

    found = load(written_by_torch(theirs))
    back = read_by_torch(found)

    assert type(found) is OrderedDict
    assert found._metadata == theirs._metadata
    assert list(back) == list(theirs)
    assert back._metadata == theirs._metadata
    assert all(torch.equal(back[name], theirs[name]) for name in theirs)


def test_state_of_a_torch_optimizer_travels_both_ways():
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()

    back = read_by_torch(load(written_by_torch(optimizer.state_dict())))
    optimizer.load_state_dict(back)

    assert back["param_groups"] == optimizer.state_dict()["param_groups"]
    assert torch.equal(back["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def test_views_of_one_memory_with_different_dtypes_are_read_by_torch():
    bits = np.arange(4, dtype=np.float32)
    ours = {
        "floats": to_tenon(bits),
        "bits": to_tenon(bits.view(np.int32)),
        "half": to_tenon(bits.view(np.uint8)[4:8]),
    }

    theirs = read_by_torch(ours)
    found = load(written_by_tenon(ours))

    assert torch.equal(theirs["floats"].view(torch.int32), theirs["bits"])
    theirs["floats"][1] = 0
    assert theirs["half"].tolist() == [0, 0, 0, 0]
    assert np.shares_memory(found["floats"].raw, found["half"].raw)
    np.testing.assert_array_equal(found["bits"].raw, bits.view(np.int32))


def test_expanded_and_reversed_arrays_keep_their_values():
    row = np.arange(3, dtype=np.float32)
    ours = {
        "expanded": to_tenon(np.broadcast_to(row, (4, 3))),
        "reversed": around(row[::-1]),
        "row": to_tenon(row),
    }

    theirs = read_by_torch(ours)

    assert theirs["expanded"].stride() == (0, 1)
    assert theirs["expanded"].data_ptr() == theirs["row"].data_ptr()
    assert theirs["reversed"].tolist() == [2, 1, 0]


def test_unaligned_and_foreign_endian_arrays_keep_their_values():
    record = np.zeros(3, dtype=[("flag", "u1"), ("value", "<f4")])
    record["value"] = [1, 2, 3]
    ours = {"field": around(record["value"]), "big": around(np.arange(3, dtype=">i4"))}

    theirs = read_by_torch(ours)

    assert theirs["field"].tolist() == [1, 2, 3]
    assert theirs["big"].tolist() == [0, 1, 2]


def test_views_found_through_as_strided_and_buffers_share_one_storage():
    base = np.arange(10, dtype=np.float64)
    windows = np.lib.stride_tricks.as_strided(base[1:], (4, 3), (16, 8))
    buffer = np.frombuffer(memoryview(base), np.float64)

    theirs = read_by_torch([to_tenon(windows), to_tenon(buffer), to_tenon(base)])

    assert len({t.untyped_storage().data_ptr() for t in theirs}) == 1
    assert theirs[0].tolist() == windows.tolist()


def test_conjugate_views_of_torch_are_resolved():
    tensor = torch.tensor([1 + 2j, 3 - 4j])

    assert load(written_by_torch(tensor.conj())).raw.tolist() == [1 - 2j, 3 + 4j]
    assert load(written_by_torch(tensor.conj().imag)).raw.tolist() == [-2, 4]


def test_meta_tensors_travel_both_ways():
    found = load(written_by_torch({"t": torch.empty(2, 3, device="meta", dtype=torch.float16)}))["t"]
    back = read_by_torch(found)

    assert found.device.type == "meta" and tuple(found.shape) == (2, 3) and found.dtype is dtypes.float16
    assert back.is_meta and back.shape == (2, 3) and back.dtype == torch.float16


def test_a_bare_storage_is_read_as_one():
    found = load(written_by_torch([torch.ones(2, 2).untyped_storage()]))

    assert bytes(found[0]) == np.ones(4, np.float32).tobytes()


def test_attributes_of_a_torch_tensor_are_kept():
    tensor = torch.ones(2)
    tensor.note = "mine"

    assert load(written_by_torch(tensor)).note == "mine"


def test_big_endian_files_are_turned(tmp_path):
    path = tmp_path / "big.pt"
    source = zipfile.ZipFile(written_by_torch(torch.arange(4, dtype=torch.int32)))
    with zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            data = np.arange(4, dtype=">i4").tobytes() if name.endswith("data/0") else data
            target.writestr(name, b"big" if name.endswith("byteorder") else data)

    assert load(path).raw.tolist() == [0, 1, 2, 3]


def test_recompressed_archives_are_read(tmp_path):
    path = tmp_path / "small.pt"
    source = zipfile.ZipFile(written_by_torch({"zeros": torch.zeros(1000)}))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))

    assert load(path)["zeros"].raw.tolist() == [0.0] * 1000


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(2).to_sparse(), "no sparse tensors"),
        (lambda: torch.ones(2).to(torch.float8_e4m3fn), "torch.float8_e4m3fn"),
    ],
)
def test_what_we_do_not_have_is_refused_with_advice(make, words):
    with pytest.raises(CheckpointError, match=words):
        load(written_by_torch({"t": make()}))


def test_torch_maps_our_files_into_memory(tmp_path):
    path = tmp_path / "mapped.pt"
    arrays = {"a": np.arange(5, dtype=np.float32), "long name to shift what follows": np.ones(3, np.int8)}
    arrays["b"] = np.arange(7, dtype=np.float64)
    save({name: to_tenon(array) for name, array in arrays.items()}, path)

    found = torch.load(path, mmap=True, weights_only=True)

    assert {name: t.tolist() for name, t in found.items()} == {name: a.tolist() for name, a in arrays.items()}
    assert all(t.data_ptr() % 64 == 0 for t in found.values())


def test_the_archive_is_laid_out_as_torchs(tmp_path):
    save({"t": to_tenon(np.ones(2))}, tmp_path / "ours.pt")
    torch.save({"t": torch.ones(2)}, tmp_path / "theirs.pt")

    ours = zipfile.ZipFile(tmp_path / "ours.pt")
    theirs = zipfile.ZipFile(tmp_path / "theirs.pt")

    assert ours.namelist() == [n.replace("theirs", "ours") for n in theirs.namelist()]
    for record in (".format_version", ".storage_alignment"):
        assert ours.read(f"ours/{record}") == theirs.read(f"theirs/{record}")
    assert ours.read("ours/version") == theirs.read("theirs/version")
    assert len(ours.read("ours/.data/serialization_id")) == 40
    assert ours.testzip() is None


def test_equal_objects_give_equal_files():
    make = lambda: {"a": to_tenon(np.arange(3)), "b": [1, "x"]}  # noqa: E731

    assert written_by_tenon(make()).getvalue() == written_by_tenon(make()).getvalue()


@pytest.mark.parametrize(
    "wanted", ["cpu", Device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage]
)
def test_map_location_brings_cuda_tensors_home(wanted):
    file = io.BytesIO(written_by_torch(torch.arange(3.0)).getvalue())
    moved = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(moved, "w") as target:
        for name in source.namelist():
            data = source.read(name).replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            target.writestr(name, data)
    moved.seek(0)

    found = load(moved, map_location=wanted)

    assert str(found.device) == "cpu"
    assert found.raw.tolist() == [0, 1, 2]


def test_a_map_location_function_sees_storage_and_location():
    seen = []

    def place(storage, location):
        seen.append((storage.raw.tolist(), location))

    load(
        written_by_torch({"a": torch.arange(2.0), "b": torch.ones(1, dtype=torch.int64)}), map_location=place
    )

    assert seen == [([0.0, 1.0], "cpu"), ([1], "cpu")]


def test_map_location_meta_reads_shapes_only():
    found = load(written_by_torch({"a": torch.ones(2, 3)}), map_location="meta")["a"]

    assert found.device.type == "meta" and tuple(found.shape) == (2, 3)


def test_an_absent_device_is_named_with_the_remedy():
    with pytest.raises(CheckpointError, match="map_location='cpu'"):
        load(written_by_torch(torch.ones(1)), map_location="nonesuch:0")


def test_a_storage_mapped_to_something_else_is_an_error():
    with pytest.raises(TypeError, match="map_location returned a str"):
        load(written_by_torch(torch.ones(1)), map_location=lambda storage, location: "cpu")


def test_weights_only_false_still_executes_nothing():
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    with pytest.raises(CheckpointError, match=r"builtins\.print|__builtin__\.print"):
        load(written_by_torch({"e": Evil()}), weights_only=False)
    assert load(written_by_torch({"t": 1}), weights_only=False) == {"t": 1}


def test_torchscript_archives_are_refused(tmp_path):
    path = tmp_path / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "version"):
            archive.writestr(f"script/{name}", b"\x80\x02N.")

    with pytest.raises(CheckpointError, match="TorchScript"):
        load(path)


def test_arguments_that_would_need_a_pickler_are_refused():
    class Dill:
        __name__ = "dill"

    with pytest.raises(UnsupportedError, match="dill"):
        save({}, io.BytesIO(), pickle_module=Dill())
    with pytest.raises(UnsupportedError, match="dill"):
        load(written_by_tenon({}), pickle_module=Dill())
    with pytest.raises(TypeError, match="fix_imports"):
        load(written_by_tenon({}), fix_imports=True)
    with pytest.raises(ValueError, match="pickle_protocol"):
        save({}, io.BytesIO(), pickle_protocol=1)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_of_torch_is_read(protocol):
    saved = {"t": torch.arange(3), "s": {1, 2}, "b": b"abc", "text": "x" * 300, "f": frozenset({1})}

    found = load(written_by_torch(saved, pickle_protocol=protocol)) if protocol > 3 else None
    plain = load(written_by_torch({k: v for k, v in saved.items() if k != "f"}, pickle_protocol=protocol))

    assert plain["t"].raw.tolist() == [0, 1, 2] and plain["s"] == {1, 2} and plain["b"] == b"abc"
    if found is not None:
        assert found["f"] == {1}
