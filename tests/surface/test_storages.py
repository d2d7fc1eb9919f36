"""``FloatStorage`` and its kin, and tensors over them."""

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
    with pytest.raises(TypeError, match="wrap_storage"):
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
    with pytest.raises(TypeError, match="got a storage of"):
        tenon.LongTensor(storage)
