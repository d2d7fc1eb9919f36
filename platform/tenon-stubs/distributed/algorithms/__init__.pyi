# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.join import Join as Join
from tenon.distributed.joinable import Joinable as Joinable
from tenon.distributed.joinable import JoinHook as JoinHook
