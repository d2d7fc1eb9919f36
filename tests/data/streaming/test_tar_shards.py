"""Tar shards: what WebDataset writes and reads, grouped alike; decoding; what is refused, and how damage is reported."""

import gc
import io
import json
import os
import pickle
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon.data.streaming import ShardWriter, StreamingDataset, write_index
from tenon.errors import DataError, TenonWarning


def tar(path, members, format=tarfile.GNU_FORMAT):
    with tarfile.open(path, "w", format=format) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def raw(field, data):
    return data


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_grouped_as_webdataset_groups_them(tmp_path, format):
    long = "n" * 60 + "/" + "ü" * 20 if format == tarfile.USTAR_FORMAT else "n" * 150 + "/" + "ü" * 60
    members = [
        ("a/1.jpg", b"j"),
        ("a/1.CLS", b"3"),
        ("a/1.seg.png", b"p"),
        ("a/b.c/2.jpg", b"k"),
        ("no extension", b"x"),
        ("__meta__/x.json", b"{}"),
        ("a/.hidden", b"x"),
        (long + ".txt", b"long"),
        ("./3.txt", b""),
    ]
    tar(tmp_path / "x.tar", members, format)

    found = list(StreamingDataset(tmp_path / "x.tar", decode=raw))

    assert found == [
        {"__key__": "a/1", "jpg": b"j", "cls": b"3", "seg.png": b"p"},
        {"__key__": "a/b.c/2", "jpg": b"k"},
        {"__key__": long, "txt": b"long"},
        {"__key__": "./3", "txt": b""},
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # its files
def test_webdataset_reads_the_same_samples_from_what_is_written(tmp_path):
    webdataset = pytest.importorskip("webdataset", reason="webdataset is not installed")
    with ShardWriter(str(tmp_path / "x-%d.tar"), maxcount=3) as shards:
        for i in range(7):
            shards.write({"__key__": f"a/{i:03}", "txt": "é" * i, "seg.npy": np.arange(i), "json": {"i": i}})

    theirs = list(webdataset.WebDataset(shards.paths, shardshuffle=False))
    gc.collect()
    ours = StreamingDataset(shards.paths, decode=raw)

    fields = ("__key__", "txt", "seg.npy", "json")
    assert [[s[f] for f in fields] for s in theirs] == [[s[f] for f in fields] for s in ours]


def test_members_that_are_not_adjacent_are_one_sample(tmp_path):
    tar(tmp_path / "x.tar", [("1.a", b"1"), ("2.a", b"2"), ("pad.z", bytes(50_000)), ("1.b", b"3")])

    dataset = StreamingDataset(tmp_path / "x.tar")

    assert dataset[0] == {"__key__": "1", "a": b"1", "b": b"3"}
    assert len(dataset) == 3 and dataset[-2]["a"] == b"2"


def test_fields_are_decoded_by_their_ending(tmp_path):
    path = str(tmp_path / "x-%d.tar")
    tensor = tenon.arange(3.0)
    with ShardWriter(path) as shards:
        shards.write(
            {
                "__key__": "1", "txt": "é", "cls": 7, "json": {"a": [1]}, "npy": np.eye(2), "seg.npy": np.array(5),
                "safetensors": {"t": tensor}, "pth": {"t": tensor}, "bin": b"\x00",
            }
        )  # fmt: skip

    sample = StreamingDataset(shards.paths)[0]

    assert (sample["txt"], sample["cls"], sample["json"], sample["bin"]) == ("é", 7, {"a": [1]}, b"\x00")
    np.testing.assert_array_equal(sample["npy"], np.eye(2))
    assert sample["seg.npy"] == 5
    assert tenon.equal(sample["safetensors"]["t"], tensor) and tenon.equal(sample["pth"]["t"], tensor)


def test_arrays_of_a_sample_can_be_written_to(tmp_path, numbered):
    sample = StreamingDataset(numbered(tmp_path)[0])[0]

    sample["npy"] += 1

    assert StreamingDataset(tmp_path)[0]["npy"].tolist() == [0] * 8 and sample["npy"].tolist() == [1] * 8


def test_images_are_decoded_as_image_folder_does(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    stream = io.BytesIO()
    image.new("RGB", (4, 3), (255, 0, 51)).save(stream, "PNG")
    tar(tmp_path / "x.tar", [("1.png", stream.getvalue()), ("2.png", b"no image")])
    dataset = StreamingDataset(tmp_path / "x.tar")

    assert dataset[0]["png"].shape == (3, 3, 4)
    assert dataset[0]["png"][:, 0, 0].tolist() == pytest.approx([1, 0, 0.2])
    with pytest.raises(DataError, match=r"x\.tar, sample '2' \(number 1\): 'png' cannot be decoded: .*image"):
        dataset[1]


def objects():
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("field", "content", "words"),
    [
        ("pkl", pickle.dumps(1), "it is a pickle, which can run any code"),
        ("x.pickle", pickle.dumps(1), "it is a pickle"),
        ("pyd", pickle.dumps(1), "it is a pickle"),
        ("npy", objects(), "it has objects"),
        ("npy", b"\x93NUMPY", "cannot be decoded"),
        ("npz", b"PK", "cannot be decoded"),
        ("pth", pickle.dumps(print), "cannot be decoded"),
        ("safetensors", b"x", "cannot be decoded"),
        ("json", b"[" * 100_000, "cannot be decoded"),
        ("json", b"{", "cannot be decoded"),
        ("cls", b"three", "cannot be decoded: invalid literal for int"),
        ("txt", b"\xff", "cannot be decoded"),
    ],
)
def test_a_field_that_cannot_be_decoded_is_named_with_its_sample_and_shard(tmp_path, field, content, words):
    tar(tmp_path / "x.tar", [("0.txt", b"good"), (f"1.{field}", content)])
    dataset = StreamingDataset(tmp_path / "x.tar")

    assert dataset[0]["txt"] == "good"
    with pytest.raises(DataError) as caught:
        dataset[1]

    assert f"x.tar, sample '1' (number 1): '{field}'" in str(caught.value) and words in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_own_decoders_come_first_and_see_bytes(tmp_path):
    tar(
        tmp_path / "x.tar",
        [("1.seg.png", b"p"), ("1.txt", b"t"), ("1.json", b"[1]"), ("1.pkl", pickle.dumps(2))],
    )
    path = tmp_path / "x.tar"

    some = StreamingDataset(path, decode={"png": len, "txt": None, "pkl": pickle.loads})[0]
    all_ = StreamingDataset(path, decode=lambda field, data: (field, len(data)))[0]

    assert some == {"__key__": "1", "seg.png": 1, "txt": b"t", "json": [1], "pkl": 2}
    assert all_["json"] == ("json", 3) and all_["seg.png"] == ("seg.png", 1)


def test_chosen_fields_are_a_tuple_and_others_are_not_read(tmp_path):
    tar(
        tmp_path / "x.tar",
        [("1.png", b"p"), ("1.pkl", b"never read"), ("1.cls", b"3"), ("2.jpg", b"j"), ("2.txt", b"")],
    )
    dataset = StreamingDataset(
        tmp_path / "x.tar",
        fields=("jpg;png", "cls"),
        decode={"jpg": None, "png": None},
        transform=lambda pair: pair[::-1],
    )

    assert dataset[0] == (3, b"p")
    with pytest.raises(DataError, match=r"x\.tar, sample '2' \(number 1\) has no field 'cls'"):
        dataset[1]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("1.a", b""), ("1.A", b"")], "sample '1' has two fields 'A'"),
        ([("a", b"")], "it has no samples"),
        ([], "it has no samples"),
    ],
)
def test_an_archive_without_clear_samples_is_refused(tmp_path, members, words):
    with pytest.raises(DataError, match=rf"x\.tar: .*{words}"):
        StreamingDataset(tar(tmp_path / "x.tar", members))


@pytest.mark.parametrize("kind", ["SYMTYPE", "LNKTYPE", "FIFOTYPE", "CHRTYPE", "GNUTYPE_SPARSE", "CONTTYPE"])
def test_members_that_are_no_files_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("1.txt"))
        info = tarfile.TarInfo("2.txt")
        info.type, info.linkname = getattr(tarfile, kind), "1.txt"
        archive.addfile(info)

    if kind == "CONTTYPE":  # an ordinary file by another name
        assert len(StreamingDataset(tmp_path / "x.tar")) == 2
        return
    with pytest.raises(DataError, match=r"x\.tar: member '2\.txt' is .*Pack"):
        StreamingDataset(tmp_path / "x.tar")


def test_a_shard_that_was_cut_off_anywhere_is_noticed_when_it_is_opened(tmp_path, numbered):
    (path,) = numbered(tmp_path, 3)
    size = os.path.getsize(path)

    for left in sorted({0, 1, 511, 512, 513, 1024, size // 2, size - 1025, size - 1024}):
        with open(path, "rb") as file, open(tmp_path / "cut.tar", "wb") as cut:
            cut.write(file.read(left))
        with pytest.raises(DataError, match=r"cut\.tar: it is not a tar file, or truncated or damaged"):
            StreamingDataset(tmp_path / "cut.tar")


def test_archives_joined_by_cat_do_not_lose_samples_silently(tmp_path, numbered):
    first, second, *_ = numbered(tmp_path / "s")
    with open(tmp_path / "joined.tar", "wb") as file:
        for path in (first, second):
            with open(path, "rb") as part:
                file.write(part.read())

    with pytest.raises(DataError, match="joined by cat"):
        StreamingDataset(tmp_path / "joined.tar")


@pytest.mark.parametrize("place", [100, 120, 124, 148, 150, 156, 345])
def test_a_damaged_header_is_noticed(tmp_path, numbered, place):
    (path,) = numbered(tmp_path, 3)
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(b"\x07")

    with pytest.raises(DataError, match="damaged"):
        StreamingDataset(path)


@pytest.mark.parametrize(
    "number", [b"\x80" + b"\xff" * 11, b"\xff" * 12, b"7" * 12, b"-0000000001 ", b"not a number"]
)
def test_sizes_in_headers_are_bounded_by_the_file(tmp_path, number):
    info = tarfile.TarInfo("1.txt")
    block = bytearray(info.tobuf())
    block[124:136] = number
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    (tmp_path / "x.tar").write_bytes(bytes(block) + bytes(10_000))
    tracemalloc.start()

    with pytest.raises(DataError, match=r"x\.tar: it is not a tar file, or truncated or damaged"):
        StreamingDataset(tmp_path / "x.tar")

    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_shard_that_is_replaced_while_it_is_used_is_an_error_that_names_shard_and_sample(
    tmp_path, numbered
):
    first, *_ = numbered(tmp_path / "a", 3)
    other, *_ = numbered(tmp_path / "b", 3, name="o-%d.tar")
    again, *_ = numbered(tmp_path / "c", 3, name="p-%d.tar", width=1000)
    dataset = StreamingDataset(first)
    with open(other, "r+b") as file:  # another key, as long as before
        content = file.read().replace(b"0001.npy", b"0009.npy")
        head = bytearray(content[2048:2560])
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        file.seek(0)
        file.write(content[:2048] + head + content[2560:])

    os.replace(other, first)
    assert dataset[0]["cls"] == 0
    with pytest.raises(
        DataError, match=r"s-000\.tar: sample '0001': the header of 'npy' is not the one that was"
    ):
        dataset[1]
    os.replace(again, first)
    with pytest.raises(
        DataError, match=r"s-000\.tar: it has changed since the data set was opened, from .* bytes"
    ):
        dataset[2]
    os.unlink(first)
    with pytest.raises(DataError, match=r"cannot read .*s-000\.tar: No such file"):
        dataset[2]


def test_an_index_beside_a_shard_saves_the_scan_and_finds_damaged_contents(tmp_path, numbered):
    (path,) = numbered(tmp_path, 3)
    assert write_index(path) == path + ".index"
    content = bytearray(Path(path).read_bytes())
    place = content.index(np.full(8, 1, np.int32).tobytes())
    content[place] ^= 4
    Path(path).write_bytes(content)

    dataset = StreamingDataset(path)

    assert dataset[0]["cls"] == 0 and dataset[2]["npy"].tolist() == [2] * 8
    with pytest.raises(
        DataError, match=r"s-000\.tar: sample '0001': the content of 'npy' does not have its checksum"
    ):
        dataset[1]


def test_an_index_of_another_shard_is_not_used(tmp_path, numbered):
    (path,) = numbered(tmp_path / "a", 3)
    (other,) = numbered(tmp_path / "b", 5)
    write_index(other)
    os.replace(other + ".index", path + ".index")

    assert [s["cls"] for s in StreamingDataset(path)] == [0, 1, 2]


def test_an_index_that_is_written_again_is_used_at_once(tmp_path, numbered):
    """The one before, of a shard as long as this one, is not kept as if it were of this version."""
    (path,) = numbered(tmp_path, 3)
    write_index(path)
    with ShardWriter(str(tmp_path / "o-%d.tar")) as shards:
        for key in ("0000", "0009", "0002"):
            shards.write({"__key__": key, "npy": np.zeros(8, np.int32), "cls": 1})
    os.replace(shards.paths[0], path)
    dataset = StreamingDataset(path, cache_dir=tmp_path / "cache")
    with pytest.raises(DataError, match="write that again, too"):
        dataset[1]

    write_index(path)

    assert StreamingDataset(path, cache_dir=tmp_path / "cache")[1]["__key__"] == "0009"


def test_a_damaged_index_beside_a_shard_is_left_aside_with_a_warning(tmp_path, numbered):
    (path,) = numbered(tmp_path, 3)
    write_index(path)
    with open(path + ".index", "r+b") as file:
        file.truncate(300)

    with pytest.warns(
        TenonWarning, match=r"s-000\.tar\.index is not used: it is not an index, or is damaged"
    ):
        dataset = StreamingDataset(path)

    assert [s["cls"] for s in dataset] == [0, 1, 2]


def test_the_index_of_files_is_kept_in_the_cache_and_made_again_when_damaged(tmp_path, numbered, monkeypatch):
    paths = numbered(tmp_path / "s")
    cache = tmp_path / "cache"
    StreamingDataset(paths, cache_dir=cache)
    kept = sorted((cache / "index").iterdir())
    assert len(kept) == len(paths) and not list((cache / "shards").iterdir())

    scans = []
    scan = StreamingDataset._scan
    monkeypatch.setattr(StreamingDataset, "_scan", lambda self, *a: scans.append(a[0]) or scan(self, *a))
    StreamingDataset(paths, cache_dir=cache)
    assert scans == []
    kept[0].write_bytes(b"damaged")
    os.utime(paths[1])
    dataset = StreamingDataset(paths, cache_dir=cache)

    assert len(set(scans)) >= 1 and paths[1] in scans
    assert [s["cls"] for s in dataset] == list(range(20))


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", ["s-000.tar", "s-001.tar", "s-002.tar", "s-003.tar"]),
        ("/*2.tar", ["s-002.tar"]),
        ("/s-{001..003}.tar", ["s-001.tar", "s-002.tar", "s-003.tar"]),
        ("/s-00{3,1}.tar", ["s-003.tar", "s-001.tar"]),
        ("/s-000.tar", ["s-000.tar"]),
    ],
)
def test_shards_are_given_by_path_folder_or_pattern(tmp_path, numbered, pattern, names):
    numbered(tmp_path / "s")

    dataset = StreamingDataset(f"{tmp_path}/s{pattern}")

    assert [
        os.path.basename(dataset.locate(int(end) - 1)[0]) for end in np.cumsum(dataset.shard_lengths)
    ] == names


@pytest.mark.parametrize(
    ("urls", "options", "words"),
    [
        ([], {}, "no shards were given"),
        ("EMPTY", {}, "has no shards"),
        ("EMPTY/x-{0..99999999999}.tar", {}, "more than 1,000,000 shards"),
        ("EMPTY/*.tar", {}, "has no shards"),
        ("EMPTY/x.tar.gz", {}, "decompress it"),
        ("EMPTY/x.zip", {}, r"shards end in \.tar, \.safetensors, \.parquet"),
        ("EMPTY/x.tar", {}, "No such file"),
        ("nothing://x.tar", {}, "cannot be read by fsspec"),
        ("EMPTY/x.tar", {"fields": "jpg"}, "Pass a sequence of names"),
        ("EMPTY/x.tar", {"fields": ("a", "a")}, "'a' twice"),
        ("EMPTY/x.tar", {"decode": 3}, "decode is a int"),
        ("EMPTY/x.tar", {"fetch": "all"}, "fetch='all'"),
        ("EMPTY/x.tar", {"fetch": "shard"}, "cache_dir, which is None"),
        ("EMPTY/x.tar", {"cache_size": -1}, "cache_size=-1"),
        ("EMPTY/x.tar", {"cache_dir": "/dev/null/x"}, "cannot be made"),
    ],
)
def test_what_is_asked_wrongly_is_told(tmp_path, urls, options, words):
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    urls = urls.replace("EMPTY", str(tmp_path)) if urls else urls

    with pytest.raises(DataError, match=words):
        StreamingDataset(urls, **options)


def test_indices_are_those_of_a_sequence(tmp_path, numbered):
    dataset = StreamingDataset(numbered(tmp_path))

    assert dataset[-1]["cls"] == 19 and dataset[np.int64(7)]["cls"] == 7
    assert [s["cls"] for s in dataset.__getitems__([19, 0, 7, 7])] == [19, 0, 7, 7]
    for wrong in (20, -21):
        with pytest.raises(IndexError, match=f"sample {wrong} is out of range: there are 20"):
            dataset[wrong]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_a_shards_place_is_refused(tmp_path):
    os.mkfifo(tmp_path / "x.tar")

    with pytest.raises(DataError, match="not a regular file"):
        StreamingDataset(tmp_path / "x.tar")


def test_indices_with_impossible_places_are_refused(tmp_path, numbered):
    from tenon.data.streaming.byte_ranges import MemoryReader
    from tenon.data.streaming.indexing import packed, scan, unpacked
    from tenon.data.streaming.locations import Stat

    (path,) = numbered(tmp_path, 3)
    with open(path, "rb") as file:
        index = scan(MemoryReader(file), ".tar")
    stat = Stat(index.size, "")
    good = index.table()
    assert unpacked(packed(index, "tar", ""), "tar", stat, None).keys[2] == "0002"

    for name, value in (
        ("offsets", good["offsets"] + index.size),
        ("offsets", good["offsets"] - 600),
        ("offsets", good["offsets"][:-1]),
        ("sizes", -good["sizes"]),
        ("sizes", good["sizes"] + index.size),
        ("ends", good["ends"][::-1].copy()),
        ("ends", good["ends"] * 2),
        ("ends", np.zeros(0, np.int64)),
        ("kinds", good["kinds"] + 2),
        ("key_ends", good["key_ends"] + 1),
        ("keys", good["keys"].astype(np.float32)),
        ("fields", [1, 2]),
        ("fields", None),
        ("checksums", "none"),
        ("headers", None),
    ):
        index.table = lambda name=name, value=value: {**good, name: value}
        with pytest.raises(DataError, match="not an index, or is damaged"):
            unpacked(packed(index, "tar", ""), "tar", stat, None)
    assert json.dumps(good["fields"]) == '["npy", "cls"]'
