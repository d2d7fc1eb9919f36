"""Shards at URLs: by ranges or through the cache; servers that fail, files that change, processes that are killed."""

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

from tenon.data import DataLoader
from tenon.data.streaming import ShardSampler, StreamingDataset, write_index
from tenon.data.streaming.cache import Cache
from tenon.errors import DataError, TenonWarning

pytest.importorskip("fsspec", reason="fsspec is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def values(samples):
    return [int(s["cls"]) for s in samples]


def shards_in(cache):
    return sorted(path.name for path in (Path(cache) / "shards").iterdir())


@pytest.fixture
def memory(tmp_path, numbered):
    """URLs of four shards in fsspec's memory."""
    import fsspec

    system = fsspec.filesystem("memory")
    for path in numbered(tmp_path / "source"):
        system.pipe(f"/bucket/{os.path.basename(path)}", Path(path).read_bytes())
    yield "memory://bucket/s-*.tar"
    for name in [name for name in system.store if name.startswith("/bucket/")]:
        del system.store[name]


@pytest.mark.parametrize("fetch", ["sample", "shard"])
@pytest.mark.parametrize("suffix", ["tar", "safetensors"])
def test_samples_are_read_over_http_by_ranges_and_from_copies(server, tmp_path, numbered, fetch, suffix):
    numbered(server.folder, name=f"s-%03d.{suffix}")
    url = f"{server.url}/s-{{000..003}}.{suffix}"

    dataset = StreamingDataset(url, cache_dir=tmp_path / "cache", fetch=fetch)
    order = [13, 2, 7, 19, 0, 13]

    assert len(dataset) == 20 and dataset.fetch == fetch
    assert values(dataset.__getitems__(order)) == order
    assert dataset[5]["npy"].tolist() == [5] * 8
    assert len(shards_in(tmp_path / "cache")) == (4 if fetch == "shard" else 0)
    asked = [name for name, range_ in server.requests if not name.endswith(".index")]
    server.requests.clear()
    again = StreamingDataset(url, cache_dir=tmp_path / "cache", fetch=fetch)
    assert values(again.__getitems__(order)) == order
    assert len(asked) >= 4 and [n for n, _ in server.requests] == (
        [] if fetch == "shard" else server_order(order, suffix)
    )


def server_order(order, suffix):
    """One request for each sample, or of a safetensors shard for each tensor of a sample."""
    names = [f"s-{i // 6:03}.{suffix}" for i in order for _ in range(1 if suffix == "tar" else 2)]
    return SortedNames(names)


class SortedNames(list):
    """Equal to a list of the same names in any order: shards are read at once."""

    def __eq__(self, other):
        return sorted(self) == sorted(other)

    __hash__ = None


def test_the_index_beside_a_shard_is_downloaded_and_nothing_is_scanned(server, tmp_path, numbered):
    for path in numbered(server.folder):
        write_index(path)

    dataset = StreamingDataset(f"{server.url}/s-{{000..003}}.tar")

    assert {name for name, _ in server.requests} == {f"s-{i:03}.tar.index" for i in range(4)}
    assert values(dataset.__getitems__([19, 3])) == [19, 3]


def test_whether_shards_are_copied_depends_on_whether_all_fit(memory, tmp_path):
    assert StreamingDataset(memory).fetch == "sample"
    assert StreamingDataset(memory, cache_dir=tmp_path / "a").fetch == "shard"
    assert StreamingDataset(memory, cache_dir=tmp_path / "b", cache_size=20_000).fetch == "sample"


def test_addresses_of_file_systems_are_listed_and_options_are_passed(memory, tmp_path):
    assert values(StreamingDataset(memory)) == list(range(20))
    url = f"file://{tmp_path}/source/s-*.tar"
    assert values(
        StreamingDataset(url, storage_options={"auto_mkdir": False}, cache_dir=tmp_path / "c")
    ) == list(range(20))
    assert len(shards_in(tmp_path / "c")) == 4


@pytest.mark.parametrize("workers", [0, 2, "thread", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_read_every_sample_once_whatever_their_kind(server, tmp_path, numbered, workers):
    numbered(server.folder)
    context = workers if isinstance(workers, str) else None
    dataset = StreamingDataset(
        f"{server.url}/s-{{000..003}}.tar",
        fields=("cls",),
        cache_dir=tmp_path / "cache",
        cache_size=30_000,
        fetch="shard",
    )
    sampler = ShardSampler(dataset, 1, 0, shards_at_once=2)
    count = 2 if context else workers

    loader = DataLoader(dataset, 4, sampler=sampler, num_workers=count, multiprocessing_context=context)
    found = [int(n) for (batch,) in loader for n in batch]

    assert found == list(sampler.order()) and sorted(found) == list(range(20))


def test_a_request_that_fails_is_made_again_and_an_error_that_stays_names_the_shard(
    server, tmp_path, numbered
):
    numbered(server.folder)
    dataset = StreamingDataset(f"{server.url}/s-{{000..003}}.tar")
    server.failing, server.failures = "002.tar", 2

    assert values([dataset[13]]) == [13]
    server.failures = 1000
    with pytest.raises(DataError, match=r"/s-002\.tar: reading failed 3 times, the last time with .*503"):
        dataset[13]
    server.failures = 0
    (server.folder / "s-002.tar").unlink()
    with pytest.raises(DataError, match=r"/s-002\.tar: reading failed: FileNotFoundError"):
        dataset[13]


@pytest.mark.parametrize("fetch", ["sample", "shard"])
def test_a_file_that_changes_on_the_server_is_an_error_until_the_data_set_is_opened_again(
    server, tmp_path, numbered, fetch
):
    numbered(server.folder)
    for path in numbered(tmp_path / "new", width=9):
        write_index(path)
    url, cache = f"{server.url}/s-000.tar", tmp_path / "cache"
    dataset = StreamingDataset(url, cache_dir=cache, fetch=fetch)
    if fetch == "shard":
        Cache(str(cache), 1 << 30).discard(shards_in(cache)[0])

    os.replace(tmp_path / "new" / "s-000.tar", server.folder / "s-000.tar")
    with pytest.raises(
        DataError, match=r"s-000\.tar: (it has changed since|sample '0001': the header of 'npy' is not)"
    ):
        dataset[1]

    assert StreamingDataset(url, cache_dir=cache, fetch=fetch)[1]["npy"].tolist() == [1] * 9


@pytest.mark.parametrize("damage", ["bits", "cut off", "empty"])
def test_a_damaged_copy_is_made_again(memory, tmp_path, damage):
    cache = tmp_path / "cache"
    dataset = StreamingDataset(memory, cache_dir=cache)
    for name in shards_in(cache):
        path = cache / "shards" / name
        content = bytearray(path.read_bytes())
        place = content.index(b"NUMPY") + 130  # among the numbers
        content[place] ^= 1
        path.write_bytes({"bits": content, "cut off": content[:700], "empty": b""}[damage])

    assert [s["npy"].tolist() for s in dataset] == [[i] * 8 for i in range(20)]


def test_a_shard_that_is_damaged_at_its_source_is_an_error_that_names_shard_and_sample(
    server, tmp_path, numbered
):
    (path, *_) = numbered(server.folder)
    write_index(path)
    content = bytearray(Path(path).read_bytes())
    content[content.index(b"NUMPY", 4000) + 130] ^= 1
    Path(path).write_bytes(content)

    for fetch in ("sample", "shard"):
        dataset = StreamingDataset(f"{server.url}/s-000.tar", cache_dir=tmp_path / fetch, fetch=fetch)
        assert dataset[5]["cls"] == 5
        with pytest.raises(
            DataError, match=r"/s-000\.tar: sample '0002': the content of 'npy' does not have its checks"
        ):
            dataset.__getitems__([1, 2])


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_downloads_leaves_room_and_no_copy(
    server, tmp_path, numbered, until
):
    (path, *_) = numbered(server.folder)
    write_index(path)
    cache, size = tmp_path / "cache", os.path.getsize(path)
    code = (
        "import sys; from tenon.data.streaming import StreamingDataset\n"
        f"StreamingDataset(sys.argv[1], cache_dir=sys.argv[2], cache_size={size})[1]"
    )
    server.stalled = "s-000.tar"
    child = subprocess.Popen([sys.executable, "-c", code, f"{server.url}/s-000.tar", cache])
    assert server.stalling.wait(30)
    (part,) = shards_in(cache)
    assert part.endswith(".part") and Cache(str(cache), size).used() == size

    waiting = []
    server.stalled = "none"
    dataset = StreamingDataset(f"{server.url}/s-000.tar", cache_dir=cache, cache_size=size)
    thread = threading.Thread(target=lambda: waiting.append(dataset[1]))
    thread.start()  # it waits for the other process
    child.send_signal(signal.SIGKILL)
    child.wait()
    thread.join(30)

    assert values(waiting) == [1]
    assert shards_in(cache) == [part.removesuffix(".part")] and Cache(str(cache), size).used() == size


def test_parts_of_killed_processes_are_deleted_when_their_room_is_needed(memory, tmp_path):
    shards = tmp_path / "cache" / "shards"
    shards.mkdir(parents=True)
    (shards / ("a" * 40 + ".tar.part")).write_bytes(bytes(25_000))

    dataset = StreamingDataset(memory, cache_dir=tmp_path / "cache", cache_size=32_000, fetch="shard")

    assert values(dataset) == list(range(20))
    assert not [name for name in shards_in(tmp_path / "cache") if name.endswith(".part")]


PRESSED = """
import sys, random
from tenon.data.streaming import StreamingDataset
seed, url, cache, limit = sys.argv[1:]
dataset = StreamingDataset(url, cache_dir=cache, cache_size=int(limit), fetch="shard", fields=("cls", "npy"))
draw = random.Random(seed)
for _ in range(2):
    order = draw.sample(range(len(dataset)), len(dataset))
    for k in range(0, len(order), 5):
        for i, (number, array) in zip(order[k:k + 5], dataset.__getitems__(order[k:k + 5])):
            assert number == i and (array == i).all(), (number, i)
print("all read")
"""


@pytest.mark.slow
def test_the_bound_holds_while_processes_share_a_cache_that_is_too_small(tmp_path, numbered):
    paths = numbered(tmp_path / "source", count=40, per_shard=5)
    limit, cache = 3 * os.path.getsize(paths[0]) + 100, tmp_path / "cache"
    arguments = [f"file://{tmp_path}/source/*.tar", str(cache), str(limit)]
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", PRESSED, str(seed), *arguments], stdout=-1, stderr=-1, text=True
        )
        for seed in range(2)
    ]

    most, looks = 0, 0
    watched = Cache(str(cache), limit)
    while any(reader.poll() is None for reader in readers):
        with watched._locked():
            most, looks = max(most, watched.used()), looks + 1
        time.sleep(0.005)

    for reader in readers:
        out, err = reader.communicate()
        assert out == "all read\n", err
    assert 0 < most <= limit and looks > 10
    assert not [name for name in shards_in(cache) if name.endswith(".part")]


def test_a_shard_that_does_not_fit_is_read_over_the_network_with_one_warning(memory, tmp_path):
    with pytest.warns(TenonWarning, match=r"the cache .* has no room for .*: its bound is 5,000 bytes"):
        dataset = StreamingDataset(memory, cache_dir=tmp_path / "c", cache_size=5_000, fetch="shard")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert values(dataset) == list(range(20))
    assert shards_in(tmp_path / "c") == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 48 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tenon", folder], capture_output=True)
    if done.returncode:
        pytest.skip("only root may mount a file system of a few bytes")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_makes_the_cache_smaller_and_is_told(memory, small_disk):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an index that may have found no room
        dataset = StreamingDataset(memory, cache_dir=small_disk / "cache", cache_size=1 << 20, fetch="shard")
        assert values(dataset) == list(range(20))  # copies made room for others
    assert 0 < len(shards_in(small_disk / "cache")) < 4

    for path in [*(small_disk / "cache" / "shards").iterdir(), *(small_disk / "cache" / "index").iterdir()]:
        path.unlink()
    (small_disk / "other").write_bytes(
        bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize)
    )
    with pytest.warns(TenonWarning, match=r"has no room for .* 0 are free on its disk"):
        assert values(dataset) == list(range(20))
    with pytest.warns(TenonWarning, match=r"indices are not kept: .*No space left"):
        again = StreamingDataset(memory, cache_dir=small_disk / "cache", cache_size=1 << 20, fetch="sample")
    assert values(again) == list(range(20))


def test_copies_are_deleted_in_the_order_of_their_last_use_and_not_while_they_are_read(tmp_path):
    cache = Cache(str(tmp_path), 30)

    def fill(file):
        file.write(bytes(10))

    for age, name in enumerate(("a", "b", "c")):
        with cache.reader(name, 10, fill) as copy:
            assert copy.read([(0, 10)]) == [bytes(10)]
        os.utime(tmp_path / "shards" / name, (age, age))
    with cache.reader("a", 10, fill):  # now b is the oldest
        pass
    with cache.reader("d", 10, fill):
        assert shards_in(tmp_path) == ["a", "c", "d"]
    os.utime(tmp_path / "shards" / "a", (0, 0))

    with cache.reader("a", 10, fill) as held:
        os.utime(tmp_path / "shards" / "a", (0, 0))
        with cache.reader("e", 10, fill):
            assert shards_in(tmp_path) == ["a", "d", "e"]
        assert held.read([(3, 5)]) == [bytes(2)]
    assert cache.used() == 30


@pytest.mark.parametrize("error", [DataError("no"), KeyboardInterrupt(), OSError(5, "Input/output error")])
def test_a_download_that_fails_leaves_nothing(tmp_path, error):
    cache = Cache(str(tmp_path), 100)

    def fill(file):
        file.write(b"12345")
        raise error

    with pytest.raises(DataError if isinstance(error, OSError) else type(error)), cache.reader("a", 10, fill):
        pass

    assert shards_in(tmp_path) == []


def test_a_download_that_is_shorter_than_stated_is_no_copy(tmp_path):
    with (
        pytest.raises(DataError, match="5 bytes came instead of 10"),
        Cache(str(tmp_path), 100).reader("a", 10, lambda file: file.write(b"12345")),
    ):
        pass

    assert shards_in(tmp_path) == []


def test_a_server_without_ranges_or_sizes_is_told(memory, monkeypatch):
    import fsspec

    system = type(fsspec.filesystem("memory"))
    dataset = StreamingDataset(memory)
    whole = system.cat_file
    monkeypatch.setattr(system, "cat_file", lambda self, path, start=None, end=None: whole(self, path))
    with pytest.raises(DataError, match=r"s-000\.tar: the server sent .* does not support ranges"):
        dataset[3]
    monkeypatch.setattr(
        system, "info", lambda self, path, **options: {"name": path, "size": None, "type": "file"}
    )
    with pytest.raises(DataError, match=r"the server does not state its size"):
        StreamingDataset("memory://bucket/s-000.tar")


def test_data_sets_are_sent_to_other_processes_by_pickle(memory, tmp_path):
    import pickle

    dataset = pickle.loads(pickle.dumps(StreamingDataset(memory, cache_dir=tmp_path / "c")))

    np.testing.assert_array_equal(dataset[19]["npy"], [19] * 8)
