# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.hub import *
from tenon.compat.hub import HASH_REGEX as HASH_REGEX
from tenon.compat.hub import T as T
from tenon.compat.hub import _entries as _entries
from tenon.compat.hub import _entry as _entry
from tenon.compat.hub import _get_torch_home as _get_torch_home
from tenon.compat.hub import _settings as _settings
from tenon.compat.hub import tqdm as tqdm
