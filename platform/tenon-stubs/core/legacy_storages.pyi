# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.legacy_storages import *
from tenon.compat.legacy_storages import ON_CUDA as ON_CUDA
from tenon.compat.legacy_storages import _LegacyStorage as _LegacyStorage
from tenon.compat.legacy_storages import _LegacyStorageMeta as _LegacyStorageMeta
from tenon.compat.legacy_storages import _refuse_file as _refuse_file
from tenon.compat.legacy_storages import _storage_classes as _storage_classes
from tenon.compat.legacy_storages import _storage_type as _storage_type
from tenon.compat.legacy_storages import storage_class as storage_class
