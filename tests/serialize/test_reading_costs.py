"""What reading a file costs is bounded by its size: nothing is visited 2^n times, copied over and over, or inflated."""

import io
import json
import struct
import tracemalloc
import zipfile

import pytest

import tenon
from tenon.errors import BundleError, CheckpointError
from tenon.export import bundle
from tenon.fx import saved_graphs
from tenon.serialize import limits, load, unsafe_globals, verify
from tenon.serialize.checkpoint import read_checkpoint
from tenon.serialize.limits import Allowance, short


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(limits, "FREE", 1 << 20)  # 64 MB take longer to make than to refuse


def archive(tree: bytes, compression=zipfile.ZIP_STORED, **records: bytes) -> io.BytesIO:
    """A ``.pt`` file around a pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as target:
        target.writestr("archive/data.pkl", tree)
        for name, data in records.items():
            target.writestr(f"archive/data/{name}", data)
    buffer.seek(0)
    return buffer


DOUBLED = b")" + b"2\x86" * 200  # a tuple of 2^200 members
STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"


def test_tuples_that_share_their_members_are_visited_once():
    found = load(archive(b"\x80\x02" + DOUBLED + b"."))

    for _ in range(200):
        assert found[0] is found[1]
        found = found[0]
    assert found == ()


def test_storages_in_such_tuples_are_converted():
    tree = b"\x80\x02" + STORAGE + b"\x85" + b"2\x86" * 60 + b"."

    found = load(archive(tree, **{"0": b"\0\0\x80?"}))

    for _ in range(60):
        assert found[0] is found[1]
        found = found[0]
    assert found[0].tolist() == [1.0]


def test_tuples_may_be_nested_deeper_than_python_recurses():
    found, depth = load(archive(b"\x80\x02)" + b"\x85" * 5000 + b".")), 0

    while found:
        (found,), depth = found, depth + 1
    assert depth == 5000


@pytest.mark.parametrize(
    "tree",
    [
        DOUBLED + b"Q.",
        b"ctorch\nSize\n" + DOUBLED + b"\x85R.",
        b"ctorch\ndevice\n" + DOUBLED + b"\x85R.",
        b"ctorch.serialization\n_get_layout\n" + DOUBLED + b"\x85R.",
        b"ctorch._utils\n_rebuild_tensor\n(" + STORAGE + DOUBLED + b"))tR.",
        b"ctorch._utils\n_rebuild_tensor\n(" + STORAGE + b"K\x00" + DOUBLED + b"\x85)tR.",
        b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat32\n" + DOUBLED + b")\x89tR.",
    ],
)
def test_messages_about_such_tuples_are_short(tree):
    with pytest.raises(CheckpointError) as caught:
        load(archive(b"\x80\x02" + tree, **{"0": bytes(4)}))

    assert len(str(caught.value)) < 600


def test_a_schema_version_of_such_tuples_is_an_error():
    tree = b"\x80\x02}X\x10\x00\x00\x00tenon.checkpoint}X\x06\x00\x00\x00schema" + DOUBLED + b"ss."

    with pytest.raises(CheckpointError, match="impossible schema version"):
        read_checkpoint(archive(tree))


@pytest.mark.parametrize(
    "copied",
    [
        b"c__builtin__\nset\nq\x01h\x00\x85q\x02",
        b"c__builtin__\nbytearray\nq\x01X\x20\x4e\x00\x00" + b"x" * 20000 + b"\x85q\x02",
        b"c_codecs\nencode\nq\x01X\x20\x4e\x00\x00" + b"x" * 20000 + b"X\x06\x00\x00\x00latin1\x86q\x02",
        b"ccollections\nCounter\nq\x01}(" + b"".join(b"M" + struct.pack("<H", n) + b"N" for n in range(9000))
        + b"u\x85q\x02",
    ],
    ids=["set", "bytearray", "bytes", "Counter"],
)  # fmt: skip
def test_copies_of_one_part_are_limited(copied):
    numbers = b"](" + b"".join(b"M" + struct.pack("<H", n) for n in range(9000)) + b"eq\x000"
    tree = b"\x80\x02" + numbers + copied + b"h\x01h\x02R" * 2_000 + b"."

    with pytest.raises(CheckpointError, match=r"more than 100 times the file's [\d,]+ bytes of memory"):
        load(archive(tree))


def test_one_long_tuple_as_the_key_of_many_dicts_is_limited():
    key = b"(" + b"N" * 9000 + b"tq\x000"

    with pytest.raises(CheckpointError, match="more than 100 times"):
        load(archive(b"\x80\x02" + key + b"}h\x00Ns" * 2_000 + b"."))


def test_a_tensor_that_repeats_one_number_is_not_a_shape():
    whole = (
        b"ctorch._utils\n_rebuild_tensor\n("
        + STORAGE
        + b"K\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x85K\x00\x85tR"
    )
    tree = b"\x80\x02ctorch._utils\n_rebuild_tensor\n(" + STORAGE + b"K\x00" + whole + b")tR."

    with pytest.raises(CheckpointError, match="a Tensor where a shape"):
        load(archive(tree, **{"0": bytes(4)}))


def test_conjugating_a_tensor_that_repeats_one_number_takes_no_memory():
    shape = b"\x8a\x06\x00\x00\x00\x00\x00\x01\x85K\x00\x85"
    flags = b"N}X\x04\x00\x00\x00conj\x88s"
    tree = (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("
        + STORAGE
        + b"K\x00"
        + shape
        + b"\x89"
        + flags
        + b"tR."
    )

    with pytest.raises(CheckpointError, match="more than 100 times"):
        load(archive(tree, **{"0": bytes(4)}))


@pytest.mark.parametrize("read", [load, verify, unsafe_globals])
def test_a_deflated_record_that_states_too_much_is_refused(read):
    bomb = archive(b"\x80\x02N.", zipfile.ZIP_DEFLATED, **{"0": bytes(1 << 22)})

    with pytest.raises(CheckpointError, match=r"compressed records state.*zip -0"):
        read(bomb)


def test_deflated_checkpoints_of_ordinary_size_are_read():
    original = io.BytesIO()
    tenon.save({"w": tenon.zeros(100_000)}, original)
    packed = io.BytesIO()
    with zipfile.ZipFile(original) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    packed.seek(0)

    assert load(packed)["w"].shape == (100_000,)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compression_is_refused(method):
    with pytest.raises(CheckpointError, match="other than deflate"):
        load(archive(b"\x80\x02N.", method))


def test_records_that_share_bytes_are_refused():
    whole = archive(b"\x80\x02N.", **{"0": bytes(1000)}).getvalue()
    directory = whole.index(b"PK\x01\x02")
    entry = whole[whole.rindex(b"PK\x01\x02") : whole.index(b"PK\x05\x06")]
    end = bytearray(whole[whole.index(b"PK\x05\x06") :])
    second = entry.replace(b"data/0", b"data/1")
    struct.pack_into("<HHI", end, 8, 3, 3, struct.unpack_from("<I", end, 12)[0] + len(second))
    forged = whole[: whole.index(b"PK\x05\x06")] + second + bytes(end)
    assert directory and len(zipfile.ZipFile(io.BytesIO(forged)).namelist()) == 3

    with pytest.raises(CheckpointError, match="overlaps"):
        load(io.BytesIO(forged))


def test_a_record_larger_than_its_file_takes_no_memory():
    whole = bytearray(archive(b"\x80\x02N.").getvalue())
    entry = whole.index(b"PK\x01\x02")
    struct.pack_into("<II", whole, entry + 20, 0xFFFFFFF0, 0xFFFFFFF0)

    with pytest.raises(CheckpointError, match="overlaps"):
        load(io.BytesIO(bytes(whole)))


def test_shapes_of_many_axes_are_refused_before_they_are_multiplied():
    header = json.dumps({"a": {"dtype": "F32", "shape": [1 << 62] * 40_000, "data_offsets": [0, 4]}}).encode()

    with pytest.raises(CheckpointError, match="is described by"):
        load(io.BytesIO(struct.pack("<Q", len(header)) + header + bytes(4)))


def test_a_json_object_with_many_keys_and_one_twice_is_refused_at_once():
    text = ", ".join(f'"k{n}": 1' for n in range(20_000))

    with pytest.raises(BundleError, match="'k7' occurs twice"):
        tenon.export.schema.parse(f'{{{text}, "k7": 2}}'.encode(), "g")


@pytest.mark.parametrize("read", [tenon.export.load, tenon.jit.load])
def test_programs_and_traces_are_checked_alike(read):
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("extra/x", bytes(1 << 22))
    bomb.seek(0)

    with pytest.raises(BundleError, match="compressed records state"):
        read(bomb)


def test_a_graph_of_lists_that_share_members_is_refused():
    shared = []
    for _ in range(60):
        shared = ["tuple", [shared, shared]]
    rows = [["output", "output", "output", ["tuple", [shared]], ["dict", []]]]

    with pytest.raises(CheckpointError, match="in two places"):
        saved_graphs.restore(None, {"_nodes": rows, "_class_name": "Net"}, "a file")


def test_what_a_message_shows_is_short():
    assert short([1, "a" * 1000, (2,)]) == f"[1, '{'a' * 80}', a tuple]"
    assert len(short(tuple(range(10**6)))) < 80


LONG = "x" * 5000
NAME = b"X\x88\x13\0\0" + LONG.encode()


def foreign(entry: object, name: str = "a") -> io.BytesIO:
    """A safetensors file with one array of four bytes."""
    header = json.dumps({name: entry}).encode()
    return io.BytesIO(struct.pack("<Q", len(header)) + header + bytes(4))


@pytest.mark.parametrize(
    "file",
    [
        archive(f"cos\n{LONG}\n.".encode()),
        archive(b"\x80\x02ccollections\nOrderedDict\n)R}" + NAME + b"\x85" + NAME + b"sb."),
        archive(b"\x80\x02}" + NAME + b"\x81."),
        archive(b"\x80\x02" + STORAGE.replace(b"X\x01\0\0\x000", NAME) + b"."),
        archive(b"\x80\x02" + STORAGE.replace(b"X\x03\0\0\0cpu", NAME) + b".", **{"0": bytes(4)}),
        foreign({"dtype": LONG, "shape": [1], "data_offsets": [0, 4]}),
        foreign({"dtype": "F32", "shape": [1 << 62] * 64, "data_offsets": [0, 4]}),
        foreign({"dtype": "F32", "shape": [1], "data_offsets": [1, 4]}, LONG),
    ],
    ids=["global", "attribute", "near", "storage", "device", "dtype", "shape", "array"],
)
def test_errors_quote_little_of_long_names(file):
    with pytest.raises(CheckpointError) as raised:
        load(file)

    assert 30 < len(str(raised.value)) < 1000


def test_a_small_bundle_takes_little_memory(tmp_path):
    for name, content in (("manifest.json", "{}"), ("graph.json", "{}")):
        (tmp_path / name).write_text(content)

    tracemalloc.start()
    try:
        for name in ("manifest.json", "graph.json"):
            bundle._content(tmp_path / name, 1 << 28)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def test_a_file_of_a_bundle_that_is_too_large_is_not_read(tmp_path):
    (tmp_path / "graph.json").write_bytes(bytes(101))

    with pytest.raises(BundleError, match="has 101 bytes; at most 100 are read"):
        bundle._content(tmp_path / "graph.json", 100)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_many_equal_bytes_of_a_user_are_written_so_that_they_can_be_read(kind):
    values = [kind(b"x" * 10_000) for _ in range(500)]
    saved = io.BytesIO()
    tenon.save(values, saved)
    saved.seek(0)

    assert load(saved) == values


def test_an_allowance_grows_with_the_file():
    allowance = Allowance(10)
    allowance.take((1 << 20) + 1000)

    with pytest.raises(CheckpointError, match="10 bytes"):
        allowance.take(1)
