"""Storages in files, and the format before PyTorch 1.6, in which they can be parts of others."""

import io
import pickle
import struct

import pytest

import tenon
from tenon import serialization
from tenon.errors import ArgumentError, CheckpointError, UnsavableError

torch = pytest.importorskip("torch")


def written(obj, new):
    tenon.save(obj, file := io.BytesIO(), _use_new_zipfile_serialization=new)
    return file.getvalue()


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_share_memory_with_tensors_again(new):
    base = tenon.arange(6.0).reshape(2, 3)
    saved = [base, base.storage(), base[1].storage(), tenon.IntStorage([1, 2]), tenon.FloatStorage()]
    apart = (saved[1], (saved[3],))

    data = written([*saved, tenon.UntypedStorage([3, 4]), apart], new)

    for library in (tenon, torch):
        found = library.load(io.BytesIO(data))
        assert all(isinstance(each, library.TypedStorage) for each in found[1:-1])
        assert found[1].data_ptr() == found[2].data_ptr() == found[0].data_ptr()
        assert found[1].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        assert found[3].tolist() == [1, 2] and found[3].dtype == library.int32 and len(found[4]) == 0
        assert found[5].tolist() == [3, 4] and found[5].dtype == library.uint8
        found[0][0, 0] = 9
        assert found[1][0] == 9.0
    ours = tenon.load(io.BytesIO(data))
    assert ours[1] is ours[2] is ours[-1][0] and ours[3] is ours[-1][1][0]


def test_a_storage_of_another_type_than_its_tensors_is_refused():
    t = tenon.ones(4)
    bytes_of_it = tenon.TypedStorage(wrap_storage=t.untyped_storage(), dtype=tenon.uint8)

    with pytest.raises(UnsavableError, match="view the same data as different types"):
        tenon.save([t, bytes_of_it], io.BytesIO())
    with pytest.raises(UnsavableError, match="storage"):
        tenon.save({"s": t.storage()}, "state.safetensors")


def test_torch_reads_what_is_written_in_the_old_format():
    layer = tenon.nn.Linear(3, 2)
    state = {"layer": layer.state_dict(), "wide": tenon.arange(3, dtype=tenon.uint16), "n": [1, "x"]}
    data = written(state, new=False)

    theirs, ours = torch.load(io.BytesIO(data)), tenon.load(io.BytesIO(data))
    whole = tenon.load(io.BytesIO(written(layer, new=False)), weights_only=False)

    assert data[:2] == b"\x80\x02" and theirs["n"] == ours["n"] == [1, "x"]
    assert theirs["layer"]["weight"].tolist() == ours["layer"]["weight"].tolist() == layer.weight.tolist()
    assert theirs["wide"].tolist() == ours["wide"].tolist() == [0, 1, 2]
    assert whole.weight.tolist() == layer.weight.tolist()
    with serialization.skip_data(), pytest.raises(ArgumentError, match="Cannot use skip_data=True"):
        written(state, new=False)


def _old_file(*parts):
    """A file of PyTorch 0.3 with views (key, offset, length) of one storage of three floats."""

    class Part:
        def __init__(self, *place):
            self.place = place

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return ("storage", torch.FloatStorage, "7", "cpu", 3, obj.place) if type(obj) is Part else None

    file = io.BytesIO()
    for plain in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
        pickle.dump(plain, file, 2)
    Pickler(file, 2).dump([Part(*place) for place in parts])
    pickle.dump(["7"], file, 2)
    file.write(struct.pack("<qfff", 3, 1.0, 2.0, 3.0))
    return io.BytesIO(file.getvalue())


def test_parts_of_storages_share_memory():
    first, last, again = tenon.load(_old_file(("a", 0, 1), ("b", 1, 2), ("b", 1, 2)))

    assert first.tolist() == [1.0] and last.tolist() == [2.0, 3.0] and last is again
    assert first.data_ptr() + 4 == last.data_ptr()
    with pytest.raises(CheckpointError, match="has no part"):
        tenon.load(_old_file(("a", 2, 2)))
