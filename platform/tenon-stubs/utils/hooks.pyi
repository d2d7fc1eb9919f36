# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.tensors.autograd.handles import RemovableHandle as RemovableHandle
from tenon.nn.backward_hooks import BackwardHook as BackwardHook
