"""Safetensors and Parquet shards, and what writes shards."""

import json
import os
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tenon
from tenon.data import DataLoader
from tenon.data.streaming import ShardSampler, ShardWriter, StreamingDataset, write_index
from tenon.errors import DataError


def foreign(path, tensors):
    """A safetensors file of another writer: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_rows_of_all_tensors_are_a_sample_with_dtype_and_shape(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    half = np.arange(4).astype(ml_dtypes.bfloat16)
    path = foreign(
        tmp_path / "x.safetensors",
        {
            "x": ("F32", [4, 2, 3], x.tobytes()),
            "half": ("BF16", [4], half.tobytes()),
            "b": ("BOOL", [4, 0], b""),
        },
    )

    dataset = StreamingDataset(path)

    assert len(dataset) == 4 and list(dataset[2]) == ["x", "half", "b"]
    np.testing.assert_array_equal(dataset[2]["x"], x[2])
    assert dataset[2]["half"] == 2 and dataset[2]["half"].dtype == ml_dtypes.bfloat16
    assert dataset[3]["b"].shape == (0,)
    ((batch,),) = DataLoader(StreamingDataset(path, fields=("half",)), 4)
    assert batch.dtype == tenon.bfloat16 and batch.tolist() == [0, 1, 2, 3]


def test_the_package_safetensors_writes_shards_too(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    numpy_files.save_file({"x": np.arange(6.0).reshape(3, 2)}, tmp_path / "x.safetensors")

    assert StreamingDataset(tmp_path)[2]["x"].tolist() == [4, 5]


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (
            {"a": ("F32", [2], bytes(8)), "b": ("F32", [1], bytes(4))},
            "rows of tensors that have equally many",
        ),
        ({"a": ("F32", [], bytes(4))}, "rows of tensors that have equally many"),
        ({}, "rows of tensors that have equally many"),
        ({"a": ("F32", [0, 3], b"")}, "it has no samples"),
        ({"a": ("F32", [1 << 40, 0], b"")}, "it has no samples"),
        ({"a": ("F8_E4M3", [2], bytes(2))}, "dtype 'F8_E4M3', which tenon does not support"),
        ({"a": ("F32", [2], bytes(9))}, "damaged"),
    ],
)
def test_a_file_whose_rows_are_no_samples_is_refused(tmp_path, tensors, words):
    with pytest.raises(DataError, match=rf"x\.safetensors: .*{words}"):
        StreamingDataset(foreign(tmp_path / "x.safetensors", tensors))


def test_a_damaged_row_is_named(tmp_path):
    with ShardWriter(str(tmp_path / "r-%d.safetensors")) as shards:
        for i in range(5):
            shards.write({"x": np.full(4, i, np.int64), "y": i})
    (path,) = shards.paths
    content = bytearray(Path(path).read_bytes())
    content[content.rindex(np.full(4, 3).tobytes())] ^= 1
    Path(path).write_bytes(content)

    dataset = StreamingDataset(path)

    assert dataset[2]["x"].tolist() == [2] * 4
    with pytest.raises(
        DataError, match=r"r-0\.safetensors: sample 'row 3': the content of 'x' does not have its"
    ):
        dataset[3]
    assert StreamingDataset(path, fields=("y",))[3][0] == 3
    os.truncate(path, len(content) - 8)
    with pytest.raises(DataError, match=r"r-0\.safetensors: it has changed since the data set was opened"):
        dataset[0]


@pytest.fixture
def parquet():
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")


def test_rows_of_parquet_are_samples_whatever_their_row_group(tmp_path, parquet):
    import pyarrow

    table = pyarrow.table(
        {
            "x": [[float(i), 1.0] for i in range(20)],
            "label": list(range(20)),
            "name": [f"n{i}" for i in range(20)],
            "json": [json.dumps({"i": i}).encode() for i in range(20)],
            "kind": pyarrow.array([["a", "b"][i % 2] for i in range(20)]).dictionary_encode(),
            "maybe": [None if i == 3 else i for i in range(20)],
        }
    )
    parquet.write_table(
        table.slice(0, 12), tmp_path / "a.parquet", row_group_size=5, write_page_checksum=True
    )
    parquet.write_table(table.slice(12), tmp_path / "b.parquet", row_group_size=5)

    dataset = StreamingDataset(tmp_path, cache_dir=tmp_path / "cache")
    again = StreamingDataset(tmp_path, fields=("x", "label"), cache_dir=tmp_path / "cache")

    for i in (0, 3, 11, 12, 19):
        sample = dataset[i]
        assert sample["x"].tolist() == [i, 1] and (sample["label"], sample["name"]) == (i, f"n{i}")
        assert (
            sample["json"] == {"i": i}
            and sample["kind"] == "ab"[i % 2]
            and sample["maybe"] == (None if i == 3 else i)
        )
    x, labels = next(iter(DataLoader(again, 20, sampler=ShardSampler(again, 1, 0))))
    assert sorted(labels.tolist()) == list(range(20)) and x[:, 0].tolist() == labels.tolist()
    assert dataset.locate(13) == (f"{tmp_path}/b.parquet", "row 1")


def test_parquet_is_read_at_urls_too(server, tmp_path, parquet):
    import pyarrow

    parquet.write_table(pyarrow.table({"i": list(range(20))}), server.folder / "a.parquet", row_group_size=4)

    for fetch in ("sample", "shard"):
        dataset = StreamingDataset(
            f"{server.url}/a.parquet", fields=("i",), cache_dir=tmp_path / fetch, fetch=fetch
        )
        assert dataset.__getitems__([17, 2]) == [(17,), (2,)]


def test_decoded_row_groups_are_bounded(tmp_path, parquet, monkeypatch):
    import pyarrow

    monkeypatch.setattr("tenon.data.streaming.parquet._KEPT", 300)
    parquet.write_table(pyarrow.table({"i": list(range(100))}), tmp_path / "a.parquet", row_group_size=10)
    dataset = StreamingDataset(tmp_path)

    assert [s["i"] for s in dataset.__getitems__(range(0, 100, 9))] == list(range(0, 100, 9))
    assert 1 < len(dataset._shards[0].index._groups._tables) <= 3


@pytest.mark.parametrize("damage", ["cut off", "no footer", "bits"])
def test_a_damaged_parquet_shard_is_an_error_with_its_name(tmp_path, parquet, damage):
    import pyarrow

    path = tmp_path / "a.parquet"
    parquet.write_table(
        pyarrow.table({"i": list(range(1000))}), path, write_page_checksum=True, compression="none"
    )
    content = bytearray(path.read_bytes())
    content[60] ^= 16
    path.write_bytes({"cut off": content[:-20], "no footer": b"PAR1", "bits": content}[damage])

    with pytest.raises(DataError, match=r"a\.parquet: (it is not a Parquet file|row group 0 cannot be read)"):
        StreamingDataset(path)[0]


def test_shards_have_bounded_counts_and_sizes_and_an_index_with_checksums(tmp_path):
    with ShardWriter(str(tmp_path / "t-%02d.tar"), maxcount=4, maxsize=6000) as shards:
        for i in range(11):
            shards.write({"__key__": f"{i:02}", "bin": bytes(100 if i < 6 else 3000)})

    assert [os.path.basename(path) for path in shards.paths] == [f"t-{i:02}.tar" for i in range(7)]
    assert StreamingDataset(tmp_path).shard_lengths == [4, 2, 1, 1, 1, 1, 1]
    assert all(os.path.getsize(path) <= 6000 for path in shards.paths)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        name for i in range(7) for name in (f"t-{i:02}.tar", f"t-{i:02}.tar.index")
    )
    assert StreamingDataset(tmp_path)._shards[0].index.checksums is not None
    with tarfile.open(shards.paths[0]) as archive:
        assert archive.getnames() == ["00.bin", "01.bin", "02.bin", "03.bin"]


def test_rows_are_bounded_too(tmp_path):
    with ShardWriter(str(tmp_path / "t-%02d.safetensors"), maxsize=40_000) as shards:
        for i in range(10):
            shards.write({"x": np.full(1000, i, np.float64)})

    assert StreamingDataset(tmp_path).shard_lengths == [4, 4, 2]
    assert all(os.path.getsize(path) <= 40_000 for path in shards.paths)


def test_equal_samples_give_equal_shards(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with ShardWriter(str(tmp_path / folder / "%d.tar")) as shards:
            shards.write({"__key__": "ü" * 120 + "/1", "npy": tenon.ones(3), "cls": np.int64(3)})

    assert (tmp_path / "a" / "0.tar").read_bytes() == (tmp_path / "b" / "0.tar").read_bytes()
    assert StreamingDataset(tmp_path / "a")[0]["__key__"] == "ü" * 120 + "/1"


GOOD = {"__key__": "good", "txt": "x"}


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({"txt": ""}, "the key None"),
        ({"__key__": "a.b", "txt": ""}, "the key 'a.b'"),
        ({"__key__": "a/", "txt": ""}, "the key 'a/'"),
        ({"__key__": "x"}, "sample 'x' has no fields"),
        ({"__key__": "x", "a/b": ""}, "the field 'a/b'"),
        ({"__key__": "x", "JPG": b""}, "the field 'JPG'"),
        ({"__key__": "x", "bin": [1]}, "field 'bin' is a list"),
        ({"__key__": "x", "npy": np.array([{}])}, "field 'npy' is a ndarray"),
        ({"__key__": "x", "json": {1, 2}}, "field 'json' is not JSON"),
        ({"__key__": "x", "bin": bytes(20_000)}, "takes 22,016 bytes, and a shard has at most 20,000"),
        ({"__key__": "good", "txt": ""}, "two samples of .* have the key 'good'"),
    ],
)
def test_a_sample_that_cannot_be_written_changes_nothing(tmp_path, sample, words):
    with ShardWriter(str(tmp_path / "%d.tar"), maxsize=20_000) as shards:
        shards.write(GOOD)
        with pytest.raises(DataError, match=words):
            shards.write(sample)
        shards.write({"__key__": "later", "txt": "y"})

    assert [s["__key__"] for s in StreamingDataset(tmp_path)] == ["good", "later"]


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ({}, "no fields"),
        ({"x": "text"}, "field 'x' is a str"),
        ({"x": 1}, "and the first has"),
        ({"y": np.ones(2)}, "the first"),
    ],
)
def test_rows_that_are_unlike_are_refused(tmp_path, sample, words):
    with ShardWriter(str(tmp_path / "%d.safetensors")) as shards:
        shards.write({"x": np.ones(2)})
        with pytest.raises(DataError, match=words):
            shards.write(sample)

    assert len(StreamingDataset(tmp_path)) == 1


@pytest.mark.parametrize(
    ("pattern", "options", "words"),
    [
        ("x.tar", {}, "needs one number"),
        ("x-%d-%d.tar", {}, "needs one number"),
        ("x-%d.zip", {}, "ends in neither"),
        ("s3://b/x-%d.tar", {}, "is a URL"),
        ("x-%d.tar", {"maxcount": 0}, "have to be positive"),
    ],
)
def test_a_writer_that_is_asked_wrongly_tells_so(pattern, options, words):
    with pytest.raises(DataError, match=words):
        ShardWriter(pattern, **options)


def test_a_shard_that_exists_is_never_replaced(tmp_path):
    pattern = str(tmp_path / "%d.tar")
    with ShardWriter(pattern) as shards:
        shards.write(GOOD)

    with ShardWriter(pattern) as again, pytest.raises(DataError, match=r"0\.tar exists"):
        again.write(GOOD)
    with ShardWriter(pattern, start_shard=1) as more:
        more.write(GOOD)

    assert len(StreamingDataset(tmp_path)) == 2


@pytest.mark.parametrize("suffix", ["tar", "safetensors"])
def test_a_shard_that_was_not_finished_is_not_there(tmp_path, suffix):
    sample = {"__key__": "1", "npy": np.ones(2)}
    with pytest.raises(KeyError), ShardWriter(str(tmp_path / f"%d.{suffix}"), maxcount=1) as shards:
        shards.write(sample)
        shards.write({**sample, "__key__": "2"})
        raise KeyError

    assert sorted(p.name for p in tmp_path.iterdir()) == [f"0.{suffix}", f"0.{suffix}.index"]


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_complete_shards_only(tmp_path):
    code = (
        "import sys, os, signal; from tenon.data.streaming import ShardWriter\n"
        "shards = ShardWriter(sys.argv[1], maxcount=2)\n"
        "for i in range(5): shards.write({'__key__': str(i), 'bin': bytes(10_000)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "%d.tar")])

    assert done.returncode == -9
    assert sorted(p.name for p in tmp_path.glob("[!.]*.tar")) == ["0.tar", "1.tar"]
    assert len(StreamingDataset(tmp_path)) == 4


def test_the_index_of_each_format_is_written_on_demand(tmp_path):
    path = foreign(tmp_path / "x.safetensors", {"x": ("F32", [2], bytes(8))})

    assert write_index(path) == f"{path}.index"
    assert StreamingDataset(path)._shards[0].index.checksums.tolist() != [0, 0]
    (tmp_path / "y.tar").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"y\.tar: it is not a tar file"):
        write_index(tmp_path / "y.tar")
