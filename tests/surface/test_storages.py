"""``FloatStorage`` and the other typed storages, and tensors over them."""

import copy

import pytest

import tenon
from tenon.errors import ArgumentError


def test_a_named_storage_is_memory_of_its_dtype():
    made = tenon.FloatStorage([1, 2, 3])
    shown = tenon.ones(2, dtype=tenon.int64).storage()

    assert made.tolist() == [1.0, 2.0, 3.0] and made.dtype is tenon.float32
    assert isinstance(made, tenon.FloatStorage) and isinstance(shown, tenon.LongStorage)
    assert not isinstance(shown, tenon.FloatStorage)
    assert tenon.FloatStorage(2).fill_(3).tolist() == [3.0, 3.0] and len(tenon.BoolStorage()) == 0
    assert (shown.pickle_storage_type(), made.type()) == ("LongStorage", "torch.FloatStorage")
    assert tenon.UntypedStorage([1, 2]).tolist() == [1, 2]
    with pytest.raises(ArgumentError, match="slices are only supported in UntypedStorage"):
        made[0:2]
    with pytest.raises(IndexError, match="out of range"):
        made[3]
    with pytest.raises(ArgumentError, match="wrap_storage"):
        tenon.TypedStorage(2, wrap_storage=made.untyped(), dtype=tenon.float32)


def test_storages_are_shared_by_tensors_over_them_and_equal_by_memory():
    base = tenon.tensor([1.0, 2.0, 3.0])
    storage = base[1:].storage()

    over, legacy = tenon.FloatTensor().set_(storage, 1, (2,), (1,)), tenon.FloatTensor(storage)
    copied = copy.deepcopy(storage)
    base[1] = 7

    assert over.tolist() == [7.0, 3.0] and legacy.tolist() == storage.tolist() == [1.0, 7.0, 3.0]
    assert copied.tolist() == [1.0, 2.0, 3.0] and copied._cdata != storage._cdata == base.storage()._cdata
    assert base.untyped_storage() == legacy.untyped_storage() != copied.untyped()
    assert hash(base.untyped_storage()) == hash(legacy.untyped_storage())
    assert tenon.tensor(storage).tolist() == [1.0, 7.0, 3.0]
    assert tenon.tensor(base.untyped_storage(), dtype=tenon.float32).tolist() == [1.0, 7.0, 3.0]
    for wrong in (tenon.LongTensor, tenon.LongTensor().set_, lambda s: tenon.tensor(s, dtype=tenon.int64)):
        with pytest.raises(RuntimeError, match="Expected a Storage of type Long"):
            wrong(storage)


def test_a_deep_copy_keeps_what_tensors_and_storages_share():
    base = tenon.arange(6.0)
    column = base.view(2, 3)[:, 1]

    a, s, c, other, wide = copy.deepcopy([base, base.storage(), column, tenon.zeros(2), base[:1].expand(4)])
    a[1] = 9

    assert s[1] == c[0] == 9 and base[1] == 1 and other.tolist() == [0, 0]
    assert (c.stride(), c.storage_offset(), wide.stride()) == ((3,), 1, (0,))
    assert a.untyped_storage() == c.untyped_storage() != other.untyped_storage()


def test_a_deep_copy_of_a_window_into_a_file_copies_the_window(tmp_path):
    whole = tenon.from_file(tmp_path / "numbers", shared=True, size=1000)

    assert copy.deepcopy(whole[10:12]).untyped_storage().nbytes() == 8


def test_numbers_of_a_storage_are_cast():
    numbers = tenon.IntStorage([-1, 0, 3])

    assert numbers.float().tolist() == [-1.0, 0.0, 3.0] and numbers.float().type() == "torch.FloatStorage"
    assert numbers.byte().tolist() == [255, 0, 3] and numbers.bool().tolist() == [True, False, True]
    assert numbers.complex_double().dtype is tenon.complex128
    assert numbers.int() is not numbers and numbers.int()._cdata != numbers._cdata
    assert numbers.untyped().short().tolist()[:4] == [255] * 4
    assert tenon.zeros(3, dtype=tenon.int8).storage_type() is tenon.CharStorage


def test_storages_read_buffers_and_files(tmp_path):
    path = tmp_path / "ä"
    first = tenon.FloatStorage.from_file(path, shared=True, size=3)
    tenon.FloatTensor(first)[1] = 5
    own = tenon.from_file(path, size=3)
    own += 1

    assert own.tolist() == [1, 6, 1] and tenon.from_file(path, size=2).tolist() == [0, 5]
    assert first.filename == str(path) and first.is_shared() and own.untyped_storage().filename is None
    assert tenon.ShortStorage.from_buffer(b"\1\2\3\4", "big").tolist() == [258, 772]
    assert tenon.ShortStorage.from_buffer(b"\1\2\3\4", "little", 1, 2).tolist() == [1027]
    assert tenon.BoolStorage.from_buffer(b"\0\7", "native").tolist() == [False, True]
    with pytest.raises(ValueError, match="must be a multiple of element size"):
        tenon.IntStorage.from_buffer(b"123", "big")
    with pytest.raises(ArgumentError, match="'byte_order'"):
        tenon.IntStorage.from_buffer(b"1234")
    with pytest.raises(ArgumentError, match="smaller than the required mapping size"):
        tenon.from_file(path, size=30)
    with pytest.raises(ArgumentError, match="No such file"):
        tenon.from_file(tmp_path / "none", size=1)


def test_storages_on_meta_have_a_size_and_no_data():
    shown = tenon.zeros(2, 3, device="meta", dtype=tenon.int16).storage()
    made = tenon.TypedStorage([1, 2], dtype=tenon.float64, device="meta")

    assert (shown.nbytes(), len(shown), shown.data_ptr(), shown.device.type) == (12, 6, 0, "meta")
    assert made.fill_(3).nbytes() == 16 and repr(made).startswith("...")
    assert tenon.zeros(2, 3, device="meta").resize_(5).shape == (5,)
    for look in (made.tolist, made.cpu, lambda: made[0], lambda: made.untyped()[0]):
        with pytest.raises(NotImplementedError, match="meta"):
            look()
    with pytest.raises(RuntimeError, match="on device"):
        tenon.zeros(2).set_(shown.float())


def test_storages_are_as_large_for_python_as_their_numbers():
    empty, ten = tenon.FloatStorage(), tenon.FloatStorage(10)

    assert (
        ten.__sizeof__() - empty.__sizeof__()
        == ten.untyped().__sizeof__() - empty.untyped().__sizeof__()
        == 40
    )


@pytest.mark.parametrize(
    ("kwargs", "args", "match"),
    [
        ({"device": "cpu"}, (), "'device' cannot be specified"),
        ({"dtype": tenon.float32}, (), "'dtype' cannot be specified"),
        ({}, (0, 0), "Too many positional"),
        ({}, ("text",), "invalid data type"),
        ({}, (tenon.zeros(2),), "Argument type not recognized"),
        ({"wrap_storage": 3}, (), "must be UntypedStorage"),
    ],
)
def test_what_a_storage_cannot_be_made_of(kwargs, args, match):
    with pytest.raises(RuntimeError, match=match):
        tenon.FloatStorage(*args, **kwargs)


def test_storages_of_the_gpu_are_classes_of_their_own():
    assert not isinstance(tenon.FloatStorage(1), tenon.cuda.FloatStorage)
    assert {tenon.FloatStorage, tenon.cuda.FloatStorage, tenon.UntypedStorage} < tenon._storage_classes
    with pytest.raises(RuntimeError, match="Not available for CUDA"):
        tenon.cuda.FloatStorage.from_buffer(b"1234", "big")


def test_a_storage_in_shared_memory_can_be_made():
    # What older collate functions write a batch into.
    batch = tenon.zeros(3)._typed_storage()._new_shared(6)

    assert batch.is_shared() and tenon.zeros(2).new(batch).resize_(2, 3).is_shared()
