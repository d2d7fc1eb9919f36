"""Damaged and hostile files: each ends in a value or in one error that reports it, at a cost that the file's size bounds.

Inputs are made from a seed: files of every kind that tenon reads, with bytes changed, cut or repeated, before or
after their checksums are made, and pickles of random opcodes. A failure names the kind and the number of its
input, which ``made(KIND, GOOD, NUMBER)`` gives again, where ``KINDS[KIND][0](FOLDER)`` makes the good file. 130,000
inputs: ``pytest -n 0 -m manual tests/attack/test_files.py``, others with ``ATTACK_SEED=7``.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import signal
import struct
import sys
import time
import tracemalloc
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.data.streaming import ShardWriter, StreamingDataset
from tenon.data.streaming.byte_ranges import MemoryReader
from tenon.data.streaming.decoding import decoded
from tenon.data.streaming.indexing import scan
from tenon.distributed import checkpoint
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.tensor import Shard, distribute_tensor
from tenon.errors import TenonError
from tenon.export.bundle import sealed
from tenon.serialize import limits
from tenon.serialize.checkpoint import read_latest, write_checkpoint

#: The most seconds of processor time, and of them for each byte of the file.
SECONDS, SECONDS_A_BYTE = 2.0, 2e-5
#: Bytes of memory for each byte of the file, beside ``limits.FREE``.
BYTES_A_BYTE = 1000
#: The number of the first input: other seeds give other files.
FIRST = 100_000 * int(os.environ.get("ATTACK_SEED", "0"))
#: The most characters of an error.
LONGEST = 1000
#: Events of Python's audit that reading a file never causes.
FORBIDDEN = (
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "subprocess.Popen",
    "pty.spawn", "socket.", "ctypes.", "pickle.find_class", "shutil.", "os.remove", "os.rename", "os.mkdir", "urllib.",
    "os.putenv", "os.chmod",
)  # fmt: skip
#: Packages whose modules may be imported while a file is read: those that a table names, never the file.
IMPORTED = ("tenon", "numpy", "ml_dtypes", "encodings")

watching = []


def _audit(event, arguments):
    if not watching:
        return
    if event.startswith(FORBIDDEN):
        watching.append(f"{event}{arguments!r:.200}")
    elif event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        watching.append(f"open{arguments!r:.200}")
    elif (
        event == "import"
        and not arguments[0].startswith(IMPORTED)
        and arguments[0] not in sys.stdlib_module_names
    ):
        watching.append(f"import {arguments[0]}")


@pytest.fixture(scope="module", autouse=True)
def audited():
    sys.addaudithook(_audit)  # for the rest of the process, in which it looks at one list
    yield
    watching.clear()


# Files.


def state():
    weight = tenon.arange(24.0).reshape(4, 6)
    found = OrderedDict(weight=weight, tied=weight.t(), bias=nn.Parameter(tenon.ones(3)), half=weight.half())
    found._metadata = OrderedDict({"": {"version": 1}})
    rest = {
        "step": 3,
        "lr": 0.1,
        "names": ("a", b"b", None, 1j),
        "set": {1, 2},
        "size": weight.shape,
        "e": weight.dtype,
    }
    return {
        "model": found,
        "rest": rest,
        "list": [1, [2, [3.5, True]]],
        "big": 1 << 80,
        "array": bytearray(b"xyz"),
    }


def saved(save, *args, **attrs):
    buffer = io.BytesIO()
    save(*args, buffer, **attrs)
    return buffer.getvalue()


def safetensors(tmp_path, value):
    tenon.save(value, tmp_path / "x.safetensors")
    return (tmp_path / "x.safetensors").read_bytes()


def foreign(tmp_path):
    header = {
        "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "__metadata__": {"format": "pt"},
    }
    header["b"] = {"dtype": "I64", "shape": [], "data_offsets": [24, 32]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(32)


def module():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.LSTM(4, 2))


def program(tmp_path):
    exported = tenon.export.export(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (tenon.ones(2, 3),))
    tenon.export.save(exported, tmp_path / "x.pt2")
    return (tmp_path / "x.pt2").read_bytes()


def trace(tmp_path):
    tenon.jit.trace(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), (tenon.ones(2, 3),)).save(tmp_path / "x.trace")
    return (tmp_path / "x.trace").read_bytes()


def bundle(tmp_path):
    """The files of a bundle, one after another, with their names and sizes in front."""
    place = tenon.export.bundle.save(
        nn.Sequential(nn.Linear(3, 2), nn.ReLU()), tmp_path / "bundle", (tenon.ones(1, 3),)
    )
    return {path.name: path.read_bytes() for path in place.iterdir()}


def run(tmp_path):
    for step in (1, 2):
        write_checkpoint(tmp_path / f"step-{step}.safetensors", {"model": {"w": tenon.ones(3)}, "step": step})
    write_checkpoint(tmp_path / "step-3.pt", {"model": {"w": tenon.ones(3)}, "step": 3})
    return {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith("step-")}


def sharded(tmp_path):
    def save(communicator):
        mesh = tenon.distributed.init_device_mesh("cpu", (2,))
        weight = distribute_tensor(tenon.arange(24.0).reshape(4, 6), mesh, [Shard(0)])
        checkpoint.save(
            {"model": {"weight": weight, "b": [tenon.ones(2), 1]}, "step": 3}, checkpoint_id=tmp_path
        )

    run_ranks(2, save)
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def samples(tmp_path, name="x-%d.tar"):
    """Shards of four samples, each with its index."""
    with ShardWriter(str(tmp_path / name), maxcount=2) as shards:
        for i in range(4):
            fields = {"npy": np.arange(3), "cls": np.int64(i)}
            if name.endswith(".tar"):
                long = "k" * 120 if i == 2 else ""
                fields |= {
                    "__key__": f"{long}/{i}",
                    "json": {"i": i},
                    "pth": {"t": tenon.ones(2)},
                    "txt": "x" * 600,
                }
            shards.write(fields)
    return {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def read_shard(suffix):
    def read(file):
        reader = MemoryReader(file)
        index = scan(reader, suffix)
        found = []
        for row in range(len(index)):
            (sample,) = index.read(reader, [row], None)
            found.append({k: decoded(k, v, None) if isinstance(v, bytes) else v for k, v in sample.items()})
        return found

    return read


def read_samples(place):
    return list(StreamingDataset(place))


def read_sharded(place):
    return checkpoint.load_whole(checkpoint_id=place)


def read_whole(file):
    return tenon.load(file, weights_only=False)


#: Kind -> what makes a good file (or the files of a folder), and what reads one.
KINDS = {
    "pt": (lambda place: saved(tenon.save, state()), tenon.load),
    "module": (lambda place: saved(tenon.save, module()), read_whole),
    "graph": (lambda place: saved(tenon.save, tenon.fx.symbolic_trace(nn.Sequential(nn.ReLU()))), read_whole),
    "legacy": (lambda place: saved(tenon.save, state(), _use_new_zipfile_serialization=False), tenon.load),
    "safetensors": (lambda place: safetensors(place, state()), tenon.load),
    "foreign": (foreign, tenon.load),
    "program": (program, tenon.export.load),
    "trace": (trace, tenon.jit.load),
    "opcodes": (lambda place: saved(tenon.save, state()), tenon.load),
    "bundle": (bundle, tenon.export.bundle.load),
    "run": (run, read_latest),
    "sharded": (sharded, read_sharded),
    "tar": (lambda place: samples(place)["x-1.tar"], read_shard(".tar")),
    "rows": (lambda place: samples(place, "x-%d.safetensors")["x-1.safetensors"], read_shard(".safetensors")),
    "shards": (samples, read_samples),
    "shards of rows": (lambda place: samples(place, "x-%d.safetensors"), read_samples),
}

# Damage.

#: Opcodes with arguments that build containers, refer to them again, call and set.
PIECES = [
    b")", b"]", b"}", b"\x8f", b"(", b"0", b"2", b"N", b"\x88", b"K\x01", b"J\xff\xff\xff\x7f", b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
    b"X\x01\x00\x00\x00a", b"X\x07\x00\x00\x00storage", b"\x85", b"\x86", b"\x87", b"t", b"l", b"e", b"a", b"s", b"u",
    b"\x90", b"\x91", b"R", b"\x81", b"b", b"Q", b"1", b"q\x00", b"h\x00", b"q\x01", b"h\x01", b"\x94", b"X\x03\x00\x00\x00cpu",
    b"ctorch\nFloatStorage\n", b"ctorch.storage\nUntypedStorage\n", b"ctorch\nSize\n", b"ctorch\ndevice\n", b"ctorch\nfloat32\n",
    b"ccollections\nOrderedDict\n", b"ccollections\nCounter\n", b"c__builtin__\nset\n", b"c__builtin__\nbytearray\n",
    b"c_codecs\nencode\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch._utils\n_rebuild_tensor_v3\n",
    b"ctorch._utils\n_rebuild_parameter\n", b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"2\x86" * 30, b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
    b"X\x03\x00\x00\x00cpuK\x01tQ", b"cos\nsystem\n", b"X\x04\x00\x00\x00true",
]  # fmt: skip
#: What JSON and numbers in files are replaced by.
WORDS = [
    b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b"[]", b"{}", b'""', b"9" * 30, b"9" * 5000, b"[" * 2000, b'{"tuple":' * 90,
    b"4611686018427387904", b"\xff\xff\xff\xff", b"\xff" * 8, b"\0\0\0\x80", b"PK\x01\x02", b"PK\x03\x04", b"../../x", b'"float64"',
]  # fmt: skip


def damaged(content, rng):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        place, kind = rng.randrange(len(changed) or 1), rng.random()
        if kind < 0.35 and changed:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind < 0.5 and changed:
            changed[place] = rng.randrange(256)
        elif kind < 0.6:
            del changed[place : place + rng.randint(1, 40)]
        elif kind < 0.65:
            del changed[place:]
        elif kind < 0.75:
            changed[place:place] = rng.choice(PIECES) * rng.choice((1, 1, 2, 50))
        elif kind < 0.9:
            word = rng.choice(WORDS)
            changed[place : place + rng.choice((0, len(word)))] = word
        else:
            source = rng.randrange(len(changed) or 1)
            changed[place:place] = changed[source : source + rng.randint(1, 60)]
    return bytes(changed)


def repacked(content, rng, change):
    """An archive with one record changed by ``change``, and checksums that are right."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        names = source.namelist()
        heavy = [n for n in names if n.endswith((".pkl", ".json", "safetensors"))]
        chosen = rng.choice(heavy if rng.random() < 0.9 else names)
        method = zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED
        with zipfile.ZipFile(out, "w", method) as target:
            for name in names:
                data = source.read(name)
                target.writestr(name, change(data, rng) if name == chosen else data)
    return out.getvalue()


def soup(data, rng):
    return b"\x80\x02" + b"".join(rng.choices(PIECES, k=rng.choice((3, 10, 30, 100)))) + b"."


def resigned(content, rng):
    """A safetensors file of tenon's with a damaged manifest whose SHA-256 is right."""
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    text = damaged(header["__metadata__"]["tenon"].encode(), rng).decode("latin1")
    header["__metadata__"] = {"tenon": text, "tenon.sha256": hashlib.sha256(text.encode()).hexdigest()}
    encoded = json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + content[8 + length :]


def in_folder(files, rng, kind):
    name = rng.choice(sorted(files))
    changed = {**files, name: damaged(files[name], rng)}
    if name.endswith(".index") and rng.random() < 0.8:
        changed[name] = repacked(files[name], rng, damaged)
    if kind == "bundle" and rng.random() < 0.8:
        manifest = json.loads(files["manifest.json"])
        del manifest["sha256"]
        if name == "manifest.json":
            text = damaged(json.dumps(manifest).encode(), rng).decode("latin1")
        else:
            digest = hashlib.sha256(changed[name]).hexdigest()
            manifest["files"][name] = {"sha256": digest, "bytes": len(changed[name])}
            text = json.dumps(manifest)
        changed["manifest.json"] = sealed(text if "}" in text else text + "}")
    if kind == "sharded" and rng.random() < 0.8:
        changed["manifest.json"] = resealed(files, changed, name, rng)
    return changed


def resealed(files, changed, name, rng):
    """The manifest of a distributed checkpoint, of which the manifest or the file ``name`` is damaged, with checksums that
    are right."""
    document = json.loads(files["manifest.json"])["checkpoint"]
    text = json.dumps(document, separators=(",", ":"))
    if name == "manifest.json":
        text = damaged(text.encode(), rng).decode("latin1")
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), separators=(",", ":"))
    else:
        changed[name] = resigned(files[name], rng)
        length = struct.unpack("<Q", changed[name][:8])[0]
        digest = json.loads(changed[name][8 : 8 + length])["__metadata__"]["tenon.sha256"]
        document["files"] = [
            [each, len(changed[name]), digest] if each == name else [each, size, was]
            for each, size, was in document["files"]
        ]
        text = json.dumps(document, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return f'{{"sha256":"{digest}","checkpoint":{text}}}'.encode("utf-8", "replace")


def made(kind, good, number):
    """Return the input of that number."""
    rng = random.Random(f"{kind} {number}")
    if isinstance(good, dict):
        return in_folder(good, rng, kind)
    if kind == "opcodes":
        return repacked(good, rng, soup)
    if good.startswith(b"PK") and rng.random() < 0.7:
        return repacked(good, rng, damaged)
    if kind == "safetensors" and rng.random() < 0.5:
        return resigned(good, rng)
    return damaged(good, rng)


# Verdict.


class TooLong(BaseException):
    pass


def _too_long(signum, frame):
    raise TooLong


def written(files, place):
    """The folder ``place`` with these files alone."""
    for old in place.iterdir():
        old.unlink()
    for name, data in files.items():
        (place / name).write_bytes(data)
    return place


def attempt(kind, number, good, place):
    """Read one input; return "value", the name of the error, or raise an AssertionError that says what is wrong."""
    content, read = made(kind, good, number), KINDS[kind][1]
    if isinstance(content, dict):
        size, opened = sum(map(len, content.values())), written(content, place)
    else:
        size, opened = len(content), io.BytesIO(content)
    what = f"{kind} {number} ({size} bytes)"
    seconds = SECONDS + SECONDS_A_BYTE * size
    former = signal.signal(signal.SIGPROF, _too_long)
    base = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, 2 * seconds)
    watching[:] = ["watching"]
    try:
        read(opened)
        result = "value"
    except TenonError as error:
        result = type(error).__name__
        assert len(str(error)) < LONGEST, f"{what}: an error of {len(str(error))} characters"
    except TooLong:
        result = "too long"
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error!s:.300}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        seen, watching[:] = watching[1:], []
        signal.signal(signal.SIGPROF, former)
    spent, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1] - base
    assert spent < seconds, f"{what}: took {spent:.1f} s of processor time"
    assert peak < limits.FREE + BYTES_A_BYTE * size, f"{what}: took {peak:,} bytes"
    assert not seen, f"{what}: {seen}"
    return result


def attack(kinds, count, tmp_path):
    """Read ``count`` inputs of each of ``kinds``; return how they ended."""
    ends = {}
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # skipped checkpoints
            for kind in kinds:
                (tmp_path / kind).mkdir()
                good = KINDS[kind][0](tmp_path / kind)
                place = tmp_path / f"{kind}-read"
                place.mkdir()
                assert KINDS[kind][1](
                    io.BytesIO(good) if isinstance(good, bytes) else written(good, place)
                ), kind
                for number in range(FIRST, FIRST + count):
                    end = attempt(kind, number, good, place)
                    ends[kind, end] = ends.get((kind, end), 0) + 1
    finally:
        tracemalloc.stop()
    return ends


def test_a_few_damaged_files_of_each_kind_end_in_a_value_or_an_error(tmp_path):
    ends = attack(("pt", "legacy", "safetensors", "foreign", "opcodes", "tar", "shards"), 12, tmp_path)

    assert sum(ends.values()) == 84
    assert sum(n for (_, end), n in ends.items() if "Checkpoint" in end) > 30
    assert sum(n for (_, end), n in ends.items() if "Data" in end) > 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files_end_in_a_value_or_an_error(kind, tmp_path):
    ends = attack((kind,), 417, tmp_path)  # 6,672 in all

    assert sum(ends.values()) == 417


@pytest.mark.manual
@pytest.mark.parametrize("kind", KINDS)
def test_very_many_damaged_files_end_in_a_value_or_an_error(kind, tmp_path):
    attack((kind,), 8334, tmp_path)  # 133,000 in all


def test_the_attack_notices_code_time_memory_and_other_errors(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "FREE", 1 << 20)
    monkeypatch.setitem(globals(), "SECONDS", 0.05)

    def allocates(file):
        return bytearray(limits.FREE + BYTES_A_BYTE * 1000)

    def fails(file):
        raise KeyError("x")

    def turns(file):
        while True:
            pass

    for read, words in (
        (lambda file: os.putenv("A", "b"), "putenv"),
        (allocates, "took [0-9,]+ bytes"),
        (turns, "s of processor time"),
        (fails, "KeyError"),
    ):
        monkeypatch.setitem(KINDS, "foreign", (foreign, read))
        tracemalloc.start()
        try:
            with pytest.raises(AssertionError, match=words):
                attempt("foreign", 0, foreign(None), tmp_path)
        finally:
            tracemalloc.stop()
