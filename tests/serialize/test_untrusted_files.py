"""Untrusted checkpoints: nothing in them is ever imported, called or trusted."""

import builtins
import io
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict

import numpy as np
import pytest

from tenon.dtypes import float32
from tenon.errors import CheckpointError, UnsafeCheckpointError
from tenon.serialize import load, save
from tenon.tensors.creation.create import from_numpy

pytestmark = pytest.mark.together


def archive(tree: bytes, **records: bytes) -> io.BytesIO:
    """A ``.pt`` file around a pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        target.writestr("archive/data.pkl", tree)
        for name, data in records.items():
            target.writestr(f"archive/data/{name}", data)
    buffer.seek(0)
    return buffer


class Calls:
    """Pickles as a call of ``function(*args)``."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


MARKER = "/nonexistent/tenon-was-here"

ATTACKS = {
    "os.system": (Calls(os.system, "touch " + MARKER), r"(posix|nt)\.system"),
    "eval": (Calls(eval, "1/0"), r"builtins\.eval|__builtin__\.eval"),
    "exec": (Calls(exec, "raise SystemExit"), r"builtins\.exec|__builtin__\.exec"),
    "open": (Calls(open, MARKER, "w"), r"(io|_io)\.open"),
    "subprocess": (Calls(subprocess.Popen, ["true"]), r"(subprocess|commands)\.Popen"),
    "getattr chain": (Calls(getattr, Calls(__import__, "os"), "system"), r"(builtins|__builtin__)\.getattr"),
    "import": (Calls(__import__, "os"), r"(builtins|__builtin__)\.__import__"),
    "nested in a dict": ({"model": {"layers": [1, {"w": Calls(os.system, "true")}]}}, r"(posix|nt)\.system"),
    "as a dict key": ({Calls(eval, "'k'"): 1}, "eval"),
    "compile": (Calls(compile, "1", "f", "eval"), "compile"),
    "pickle in pickle": (Calls(pickle.loads, b"."), r"_?pickle\.loads"),
    "type": (Calls(type, "X", (), {}), r"(builtins|__builtin__)\.type"),
    "exit": (Calls(sys.exit, 3), r"sys\.exit"),
    "map": (Calls(map, eval, ["1"]), r"(builtins|__builtin__|itertools)\.i?map"),
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_pickle_is_refused_by_name(attack, protocol):
    payload, name = ATTACKS[attack]

    with pytest.raises(UnsafeCheckpointError, match=name):
        load(archive(pickle.dumps(payload, protocol)))


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malicious_file_of_the_old_format_is_refused_by_name(attack):
    payload, name = ATTACKS[attack]
    parts = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, payload, []]

    with pytest.raises(UnsafeCheckpointError, match=name):
        load(io.BytesIO(b"".join(pickle.dumps(part, 2) for part in parts)))


def test_an_attack_in_the_header_of_the_old_format_is_refused():
    parts = [0x1950A86A20F9469CFC6C, 1001, Calls(os.system, "true"), {}, []]

    with pytest.raises(UnsafeCheckpointError, match="system"):
        load(io.BytesIO(b"".join(pickle.dumps(part, 2) for part in parts)))


def test_no_module_is_imported_for_a_name_in_a_file():
    assert "antigravity" not in sys.modules

    with pytest.raises(UnsafeCheckpointError, match=r"antigravity\.main"):
        load(archive(b"\x80\x02cantigravity\nmain\n."))

    assert "antigravity" not in sys.modules


ORDERED = b"ccollections\nOrderedDict\n)R"
GRAFTS = {
    "state of a list": b"\x80\x02]}b.",
    "state of a function": b"\x80\x02ccollections\nOrderedDict\n}X\x01\x00\x00\x00aNsb.",
    "a method of an OrderedDict": b"\x80\x02" + ORDERED + b"}X\x05\x00\x00\x00itemsNsb.",
    "the class of an OrderedDict": b"\x80\x02" + ORDERED + b"}X\x09\x00\x00\x00__class__Nsb.",
    "slots of an OrderedDict": b"\x80\x02" + ORDERED + b"N}X\x01\x00\x00\x00aNs\x86b.",
    "a call of a string": b"\x80\x02X\x04\x00\x00\x00eval)R.",
    "a call of a dtype": b"\x80\x02ctorch\nfloat32\n)R.",
    "a call of a storage class": b"\x80\x02ctorch\nFloatStorage\nK\x05\x85R.",
    "an item of a list": b"\x80\x02]K\x00K\x01s.",
    "appending to a constructor": b"\x80\x02ctorch\nSize\nK\x01a.",
    "a new object of a dtype": b"\x80\x02ctorch\nfloat32\n)\x81.",
    "adding to a list": b"\x80\x04](K\x01\x90.",
}


@pytest.mark.parametrize("graft", GRAFTS)
def test_tricks_with_state_calls_and_items_are_refused(graft):
    with pytest.raises(UnsafeCheckpointError, match="refused"):
        load(archive(GRAFTS[graft]))


NONSENSE = {
    "empty": b"",
    "no stop": b"\x80\x02N",
    "stack underflow": b"\x80\x02R.",
    "a mark as result": b"\x80\x02(.",
    "unknown opcode": b"\x80\x02\xff.",
    "protocol 0": b"I1\n.",
    "extension registry": b"\x80\x02\x82\x01.",
    "persistent id as text": b"P0\n.",
    "unknown memo": b"\x80\x02h\x07.",
    "endless string": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "endless bytes": b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b".",
    "odd dict": b"\x80\x02}(K\x01u.",
    "list as key": b"\x80\x02}]K\x01s.",
    "constructor with wrong arguments": b"\x80\x02ctorch\nSize\nK\x01K\x02K\x03\x87R.",
    "size of strings": b"\x80\x02ctorch\nSize\nX\x01\x00\x00\x00a\x85R.",
    "bytearray of a number": b"\x80\x02c__builtin__\nbytearray\nK\x05\x85R.",
    "persistent id of nothing": b"\x80\x02NQ.",
    "reference to a missing storage": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    b"X\x01\x00\x00\x009X\x03\x00\x00\x00cpuK\x01tQ.",
    "newer protocol": b"\x80\xfeN.",
}


@pytest.mark.parametrize("case", NONSENSE)
def test_nonsense_is_an_error_that_names_the_file(case, tmp_path):
    path = tmp_path / "bad.pt"
    path.write_bytes(archive(NONSENSE[case]).getvalue())

    with pytest.raises(CheckpointError, match=r"bad\.pt"):
        load(path)


def storage(count: int) -> bytes:
    head = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
    return head + b"K" + bytes([count]) + b"tQ"


def tensor(count: int, offset: bytes, size: bytes, stride: bytes) -> bytes:
    """``_rebuild_tensor_v2`` over a storage of ``count`` float32, with raw opcodes for the numbers."""
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage(count)
    return head + offset + size + stride + b"\x89" + ORDERED + b"tR."


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (b"K\x00", b"K\x05\x85", b"K\x01\x85"),
        (b"K\x01", b"K\x04\x85", b"K\x01\x85"),
        (b"K\x00", b"K\x02\x85", b"K\x04\x85"),
        (b"K\x00", b"J\xff\xff\xff\xff\x85", b"K\x01\x85"),
        (b"J\xff\xff\xff\xff", b"K\x01\x85", b"K\x01\x85"),
        (b"K\x00", b"K\x02\x85", b"J\xff\xff\xff\xff\x85"),
        (b"K\x00", b"K\x02K\x02\x86", b"K\x01\x85"),
        (b"K\x00", b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01\x85", b"K\x00\x85"),
        (b"K\x00", b"\x88\x85", b"K\x01\x85"),
        (b"K\x00", b"X\x01\x00\x00\x00a\x85", b"K\x01\x85"),
        (b"N", b"K\x01\x85", b"K\x01\x85"),
    ],
)
def test_a_tensor_cannot_reach_outside_its_storage(offset, size, stride):
    with pytest.raises(CheckpointError):
        load(archive(tensor(4, offset, size, stride), **{"0": bytes(16)}))


def test_the_tensor_of_those_attacks_is_otherwise_fine():
    found = load(archive(tensor(4, b"K\x01", b"K\x03\x85", b"K\x01\x85"), **{"0": bytes(16)}))

    assert found.raw.tolist() == [0, 0, 0]


def test_a_storage_that_claims_more_than_the_record_holds_takes_no_memory():
    with pytest.raises(CheckpointError, match="holds 16 bytes where the object tree states 800"):
        load(archive(tensor(200, b"K\x00", b"K\x04\x85", b"K\x01\x85"), **{"0": bytes(16)}))


def test_keys_whose_hash_would_take_forever_are_refused():
    doubled = b"\x80\x02}K\x01\x85" + b"2\x86" * 60 + b"K\x01s."

    with pytest.raises(CheckpointError, match="too many parts"):
        load(archive(doubled))


def test_whole_modules_are_refused_with_advice():
    class Model:
        pass

    Model.__module__, Model.__qualname__ = "builtins", "Model"
    builtins.Model = Model
    try:
        payload = pickle.dumps({"model": Model()}, 2)
    finally:
        del builtins.Model

    with pytest.raises(UnsafeCheckpointError, match=r"__builtin__\.Model.*state_dict"):
        load(archive(payload))


def test_an_ordinary_ordered_dict_with_metadata_is_not_an_attack():
    saved = OrderedDict(a=1)
    saved._metadata = OrderedDict({"": {"version": 1}})

    found = load(archive(pickle.dumps(saved, 2)))

    assert found == saved and found._metadata == saved._metadata


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x1f\x8b" + bytes(50), "gzip"),
        (pickle.dumps({"a": 1}), "bare pickle"),
        (b"#!/bin/sh\nrm -rf /\n", "neither a PyTorch"),
        (bytes(600), "neither a PyTorch"),
        (b"PK\x03\x04", "truncated or damaged"),
        (bytes(257) + b"ustar" + bytes(300), "tar format"),
    ],
)
def test_other_kinds_of_file_are_distinguished(content, words, tmp_path):
    path = tmp_path / "other.pt"
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=words) as caught:
        load(path)
    assert "other.pt" in str(caught.value)


def test_another_zip_archive_is_not_a_checkpoint(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as target:
        target.writestr("photo.txt", "hello")

    with pytest.raises(CheckpointError, match=r"no data\.pkl"):
        load(path)


def test_a_missing_file_is_pythons_own_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pt"):
        load(tmp_path / "nowhere.pt")


def test_something_that_is_not_a_file_is_a_type_error():
    with pytest.raises(TypeError, match="not a int"):
        load(3)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """``content`` with a few bytes changed, dropped, inserted or repeated."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place, kind = rng.randrange(len(changed)), rng.random()
        if kind < 0.5:
            changed[place] = rng.randrange(256)
        elif kind < 0.6:
            del changed[place : place + rng.randint(1, 4)]
        elif kind < 0.8:
            changed.insert(place, rng.choice(b".()]}ehjqrtuRsb\x81\x85\x86\x87KMXQcN02\x88"))
        else:
            source = rng.randrange(len(changed))
            changed[place:place] = changed[source : source + rng.randint(1, 30)]
    return bytes(changed)


def test_garbled_object_trees_raise_only_checkpoint_errors():
    state = OrderedDict(w=from_numpy(np.arange(6.0).reshape(2, 3).T))
    state._metadata = OrderedDict({"": {"version": 1}})
    original = io.BytesIO()
    save({"m": state, "n": [1, 2.5, (1j, "s")], "s": {1}, "b": b"xx", "d": float32}, original)
    source = zipfile.ZipFile(original)
    tree, data = source.read("archive/data.pkl"), source.read("archive/data/0")
    rng, refused = random.Random(3), 0

    for _ in range(1500):
        try:
            load(archive(mutated(tree, rng), **{"0": data}))
        except CheckpointError:
            refused += 1

    assert refused > 1000
