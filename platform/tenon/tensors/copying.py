"""``copy.deepcopy`` of a tensor: its memory is copied once for all tensors and storages that share it."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING

import numpy as np

from tenon.dtypes import FROM_NUMPY
from tenon.engine.watchers import WATCHERS
from tenon.errors import GradError, ViewError
from tenon.tensors.creation.create import NOT_COPIED
from tenon.tensors.storage.sources import reached_in
from tenon.tensors.storage.untyped import UntypedStorage, is_shared, memory_of, strided

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Memo


def deepcopy(x: Tensor, memo: Memo) -> Tensor:
    """Copy a leaf with its gradient and attributes; GradError for a tensor with history."""
    if id(x) in memo:
        return memo[id(x)]
    if x._node is not None:
        raise GradError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the"
            " moment.  If you were attempting to deepcopy a module, this may be because of a"
            " torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
        )
    result = type(x)._of(_copied(x.raw, memo), x._backend)
    result._track = x._track
    result._expose()
    memo[id(x)] = result
    if x.grad is not None:
        result.grad = copy.deepcopy(x.grad, memo)
    extra = {k: v for k, v in x.__dict__.items() if k not in NOT_COPIED}
    result.__dict__.update(copy.deepcopy(extra, memo))
    kind: type = x.__class__
    for name in _own_slots(kind):
        if hasattr(x, name):
            setattr(result, name, copy.deepcopy(getattr(x, name), memo))
    return result


def _copied(raw: Array, memo: Memo) -> Array:
    """Copy the whole storage behind ``raw``, once per ``memo``, and return the same view of the copy."""
    plain = isinstance(raw, np.ndarray) and raw.size and all(step >= 0 for step in raw.strides)
    if not plain or WATCHERS.recorder is not None:
        return raw.copy(order="K")
    try:
        memory, start = memory_of(raw)
    except ViewError:  # a NumPy array with gaps; PyTorch would copy the gaps too
        return raw.copy(order="K")
    if memory.size > raw.size and is_shared(raw):
        return raw.copy(order="K")  # a view of a mapped file: do not copy the whole file
    storage, copies = UntypedStorage.of(raw), UntypedStorage.copies(memo)
    if raw.base is None and storage._cdata not in copies:  # ``raw`` owns its memory
        result = raw.copy(order="K")
        copies[storage._cdata] = UntypedStorage.of(result)
        return result
    has_gaps = reached_in(memory.base) is not memory.base
    if has_gaps and storage._cdata not in copies:
        copies[storage._cdata] = UntypedStorage.over(np.zeros(len(storage), np.uint8))
    copied = copy.deepcopy(storage, memo).array(FROM_NUMPY[raw.dtype])
    result = strided(np, copied[start:], raw.shape, raw.strides)
    if has_gaps:
        result[...] = raw  # and nothing of what lies between
    return result


@functools.cache
def _own_slots(kind: type) -> tuple[str, ...]:
    """Names of the slots declared by subclasses of Tensor outside tenon."""
    names = (
        getattr(each, "__slots__", ()) for each in kind.__mro__ if each.__module__.split(".")[0] != "tenon"
    )
    return tuple(
        name for each in names for name in ((each,) if isinstance(each, str) else each) if name[:2] != "__"
    )
