# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.hub import load_state_dict_from_url as load_url
from tenon.compat.hub import tqdm as tqdm
