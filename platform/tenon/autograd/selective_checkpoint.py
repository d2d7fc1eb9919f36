"""Selective activation checkpointing: a policy chooses the results that are cached, not recomputed.

The forward calls the policy for each op and caches results by the op's number in the order of calls; the
recomputation looks them up by the same number. Both are the innermost interceptor: they receive ops after
autocast, and the tape is recorded as usual, but the kernel of a cached result is not called.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, table
from tenon.engine.types import Array, Attrs
from tenon.errors import ArgumentError, CheckpointMismatchError, GradError, ModifiedValueError
from tenon.ops.aten import Operator, operator_of
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.engine.types import Arguments, Nested

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


#: The result of a kernel: an array, or a tuple of arrays and residuals.
Arrays: TypeAlias = Array | tuple[Array, ...]


class CheckpointPolicy(enum.Enum):
    """The decision on an op's result: save it, save it in host memory (offload), or recompute it.

    ``MUST_*`` and ``PREFER_*`` differ for PyTorch's compiler only.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
_OFFLOAD = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """The first argument of a policy, called in the forward only: ``op_output`` is the op's result."""

    def __init__(self, *, is_recompute: bool, op_output: Tensor | tuple[Tensor, ...] | None = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


#: ``policy(context, operator, *args, **attrs)``; True is MUST_SAVE.
Policy: TypeAlias = Callable[..., "CheckpointPolicy | bool"]
Context: TypeAlias = contextlib.AbstractContextManager[None]
#: ``compute(kernel, *arrays, **attrs)`` calls a kernel in an interceptor's place: see ``dispatch.run``.
Compute: TypeAlias = Callable[..., Any]


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Iterable[Operator], allow_cache_entry_mutation: bool = False
) -> tuple[Context, Context]:
    """Return the two contexts for ``checkpoint(context_fn=...)`` that cache the results a policy selects.

    The policy is called as ``policy(context, operator, *args, **attrs)`` after each op that is not a view
    and returns a ``CheckpointPolicy``. Given a list of operators (``ops.aten.mm.default``) instead, their
    results are cached and all others recomputed. ModifiedValueError if a cached result was modified in place
    since, unless ``allow_cache_entry_mutation``.
    """
    if callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        if not isinstance(policy_fn_or_list, (list, tuple, set, frozenset)):
            raise TypeError(
                "policy_fn_or_list must be either a function or a list of ops, got"
                f" {type(policy_fn_or_list).__name__}."
            )
        for op in policy_fn_or_list:
            if not isinstance(op, Operator):
                raise ArgumentError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op!r}. Name it as in"
                    " ops.aten.mm.default."
                )
            if not op.overload:
                raise ArgumentError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op!r}, which has several. Please"
                    f" update the OpOverloadPacket to a specific OpOverload: {op!r}.default."
                )
        policy = _saving(frozenset(policy_fn_or_list))
    cache: dict[int, _CachedResult] = {}
    return _CachingRun(policy, cache), _CachedRun(cache, allow_cache_entry_mutation)


def _saving(operators: frozenset[Operator]) -> Policy:
    """Return the policy that saves the results of ``operators``."""

    def policy(
        context: SelectiveCheckpointContext, op: Operator, *args: object, **attrs: object
    ) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in operators else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


class _CachedResult:
    """The result arrays of one op call with their version counters; the arrays are None once used."""

    def __init__(self, op: Op, arrays: Arrays, results: tuple[Tensor, ...], offloaded: bool) -> None:
        self.op, self.offloaded = op, offloaded
        self.counters = [(r._counter(), r._counter()[0]) for r in results]
        self.backend, self.device = results[0]._backend, results[0].device
        self.arrays: Arrays | None = self._each(self.backend.to_host, arrays) if offloaded else arrays

    def take(self, op: Op, mutable: bool) -> Arrays:
        """Return the arrays and drop them.

        GradError if they were used before, ModifiedValueError if they were modified and are not ``mutable``,
        CheckpointMismatchError if ``op`` is another op.
        """
        if self.arrays is None:
            raise GradError(
                "Trying to backward an extra time. You are only allowed to backward once on any region"
                " computed under selective activation checkpoint."
            )
        if self.op is not op:
            raise CheckpointMismatchError(
                f"selective checkpoint: the second run calls {op.name} where the first one called"
                f" {self.op.name}. The function must do the same in both runs."
            )
        if not mutable and any(counter[0] != then for counter, then in self.counters):
            raise ModifiedValueError(
                "Tensor cached during selective activation checkpoint has been mutated: the result of"
                f" {op.name} was modified in place. Use the out-of-place form, do not cache the result, or"
                " pass allow_cache_entry_mutation=True."
            )
        arrays, self.arrays = self.arrays, None
        return self._each(self._back, arrays) if self.offloaded else arrays

    def _back(self, array: np.ndarray) -> Array:
        return self.backend.from_host(array, self.device)

    @staticmethod
    def _each(move: Callable[[Array], Array], arrays: Arrays) -> Arrays:
        return tuple(map(move, arrays)) if isinstance(arrays, (tuple, list)) else move(arrays)


class _NumberedRun:
    """Base of both runs: an interceptor that numbers this thread's ops, views excepted."""

    def __init__(self, cache: dict[int, _CachedResult]) -> None:
        self._cache = cache
        self._thread = 0
        self._number = -1

    def __enter__(self) -> None:
        self._thread, self._number = threading.get_ident(), -1
        SLOT.sink(self)

    def __exit__(self, *exc: object) -> None:
        SLOT.pop(self)

    def run(self, op: Op, args: Arguments, attrs: Attrs, compute: Compute | None = None) -> Nested:
        """Number an op of this thread and call ``run_numbered``; pass views and ops of other threads on.

        ``compute`` is the argument of ``dispatch.run``; the next interceptor may be an outer checkpoint's.
        """
        if threading.get_ident() != self._thread or op.view:
            return SLOT.below(self)(op, args, attrs, compute)
        if isinstance(op, Composite) and not op.differentiable:
            return op.decompose(table, *args, **attrs)
        self._number += 1
        return self.run_numbered(op, args, attrs, compute)

    def run_numbered(self, op: Op, args: Arguments, attrs: Attrs, compute: Compute | None) -> Nested:
        """Run a numbered op."""
        raise TypeError("_NumberedRun is a base class; use _CachingRun or _CachedRun.")


class _CachingRun(_NumberedRun):
    """The forward: caches the results that the policy selects."""

    def __init__(self, policy: Policy, cache: dict[int, _CachedResult]) -> None:
        super().__init__(cache)
        self._policy = policy

    def run_numbered(self, op: Op, args: Arguments, attrs: Attrs, compute: Compute | None) -> Nested:
        """Run ``op`` and cache its result if the policy selects it."""
        arrays: Arrays = None

        def caching(kernel: Callable[..., Arrays], /, *raw: Array, **options: object) -> Arrays:
            nonlocal arrays
            arrays = kernel(*raw, **options) if compute is None else compute(kernel, *raw, **options)
            return arrays

        number = self._number
        result = SLOT.below(self)(op, args, attrs, caching)
        thread, self._thread = self._thread, 0  # do not number the ops that the policy itself calls
        enabled, MODE.enabled = MODE.enabled, False
        try:
            context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
            decision = self._policy(context, operator_of(op, args, attrs), *args, **attrs)
        finally:
            self._thread, MODE.enabled = thread, enabled
        if decision is True or decision in _SAVE or decision in _OFFLOAD:
            results = tuple(
                r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, Tensor)
            )
            self._cache[number] = _CachedResult(op, arrays, results, decision in _OFFLOAD)
        return result


class _CachedRun(_NumberedRun):
    """The recomputation: returns cached results without calling their kernels."""

    def __init__(self, cache: dict[int, _CachedResult], mutable: bool) -> None:
        super().__init__(cache)
        self._mutable = mutable

    def run_numbered(self, op: Op, args: Arguments, attrs: Attrs, compute: Compute | None) -> Nested:
        """Run ``op``, or take its cached result if there is one."""
        cached = self._cache.get(self._number)
        if cached is None:
            return SLOT.below(self)(op, args, attrs, compute)
        arrays = cached.take(op, self._mutable)

        def from_cache(kernel: Callable[..., Arrays], /, *raw: Array, **options: object) -> Arrays:
            return arrays if compute is None else compute(lambda *a, **k: arrays, *raw, **options)

        return SLOT.below(self)(op, args, attrs, from_cache)
