# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.serialization import *
from tenon.compat.serialization import MAP_LOCATION as MAP_LOCATION
from tenon.compat.serialization import _is_zipfile as _is_zipfile
from tenon.compat.serialization import _open_file_like as _open_file_like
from tenon.compat.serialization import _open_zipfile_reader as _open_zipfile_reader
from tenon.compat.serialization import _open_zipfile_writer as _open_zipfile_writer
from tenon.compat.serialization import _serialization_tls as _serialization_tls
