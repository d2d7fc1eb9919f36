"""Which results a checkpointed part keeps, so that its second run need not compute them again.

The first run asks a policy about each op and keeps results by the number of the call; the second run finds
them under the same numbers. Both stand at the bottom of the interceptors' slot: they see ops as autocast has
made them, and the tape is written as ever, only that a kernel is not called where its result is at hand.
"""

from __future__ import annotations

import contextlib
import enum
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, table
from tenon.engine.value import Value
from tenon.errors import ArgumentError, CheckpointMismatchError, GradError, ModifiedValueError
from tenon.ops.aten import Operator, called

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.tensors.tensor import Tensor

__all__ = ["CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's result: kept, kept in the host's memory, or computed again.

    ``MUST_*`` and ``PREFER_*`` differ for torch's compiler only.
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
    """What a policy is told beside the op: its result, ``op_output``. Policies see the first run only."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


Policy = Callable[..., "CheckpointPolicy | bool"]
Context = contextlib.AbstractContextManager[Any]


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | Iterable[Operator], allow_cache_entry_mutation: bool = False
) -> tuple[Context, Context]:
    """The two contexts of a ``checkpoint(context_fn=...)`` that keeps what a policy says.

    The policy is called as ``policy(context, operator, *args, **attrs)`` after each op that is no view, and
    returns a ``CheckpointPolicy``; of a list of operators (``ops.aten.mm.default``) the results are kept, and
    everything else is computed again. A kept result that was modified in place since is a ModifiedValueError,
    unless ``allow_cache_entry_mutation``.
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
        policy = _among(frozenset(policy_fn_or_list))
    kept: dict[int, _Kept] = {}
    return _Keeping(policy, kept), _Giving(kept, allow_cache_entry_mutation)


def _among(chosen: frozenset[Operator]) -> Policy:
    def policy(
        context: SelectiveCheckpointContext, op: Operator, *args: Tensor | None, **attrs: Any
    ) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in chosen else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


class _Kept:
    """The arrays that one call of an op gave, and when they were those; None once they were used."""

    def __init__(self, op: Any, arrays: Any, results: tuple[Any, ...], offloaded: bool) -> None:
        self.op, self.offloaded = op, offloaded
        self.counters = [(r._counter(), r._counter()[0]) for r in results]
        self.backend, self.device = results[0]._backend, results[0].device
        self.arrays = self._each(self.backend.to_host, arrays) if offloaded else arrays

    def take(self, op: Op, mutable: bool) -> Any:
        """The arrays, for good."""
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
                f"Tensor cached during selective activation checkpoint has been mutated: what {op.name} gave"
                " was modified in place since. Use the out-of-place form, do not keep it, or pass"
                " allow_cache_entry_mutation=True."
            )
        arrays, self.arrays = self.arrays, None
        return self._each(self._back, arrays) if self.offloaded else arrays

    def _back(self, array: Any) -> Any:
        return self.backend.from_host(array, self.device)

    @staticmethod
    def _each(move: Callable[[Any], Any], arrays: Any) -> Any:
        return tuple(map(move, arrays)) if isinstance(arrays, (tuple, list)) else move(arrays)


class _Counting:
    """Base of both runs: an interceptor, for this thread, that numbers the ops which compute something."""

    def __init__(self, kept: dict[int, _Kept]) -> None:
        self._kept = kept
        self._thread = 0
        self._number = -1

    def __enter__(self) -> None:
        self._thread, self._number = threading.get_ident(), -1
        SLOT.sink(self)

    def __exit__(self, *exc: object) -> None:
        SLOT.pop(self)

    def run(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any], compute: Any = None) -> Any:
        """Run an op of this thread as this run does, every other one as it is.

        ``compute`` is that of ``dispatch.run``: what lies below is another part's run, or dispatch.
        """
        if threading.get_ident() != self._thread or op.view:
            return SLOT.below(self)(op, args, attrs, compute)
        if isinstance(op, Composite) and not op.differentiable:
            return op.decompose(table, *args, **attrs)
        self._number += 1
        return self.one(op, args, attrs, compute)

    def one(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any], compute: Any) -> Any:
        """Run an op that was numbered."""
        raise TypeError("_Counting is a base class; use _Keeping or _Giving.")


class _Keeping(_Counting):
    """The first run."""

    def __init__(self, policy: Policy, kept: dict[int, _Kept]) -> None:
        super().__init__(kept)
        self._policy = policy

    def one(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any], compute: Any) -> Tensor:
        """Run ``op`` and keep its result if the policy says so."""
        arrays: Any = None

        def noting(kernel: Any, /, *raw: Any, **options: Any) -> Any:
            nonlocal arrays
            arrays = kernel(*raw, **options) if compute is None else compute(kernel, *raw, **options)
            return arrays

        number = self._number
        result = SLOT.below(self)(op, args, attrs, noting)
        thread, self._thread = self._thread, 0  # the ops of the policy itself are none of the function's
        enabled, MODE.enabled = MODE.enabled, False
        try:
            context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
            said = self._policy(context, called(op, args, attrs), *args, **attrs)
        finally:
            self._thread, MODE.enabled = thread, enabled
        if said is True or said in _SAVE or said in _OFFLOAD:
            results = tuple(
                r for r in (result if isinstance(result, tuple) else (result,)) if isinstance(r, Value)
            )
            self._kept[number] = _Kept(op, arrays, results, said in _OFFLOAD)
        return result


class _Giving(_Counting):
    """The second run."""

    def __init__(self, kept: dict[int, _Kept], mutable: bool) -> None:
        super().__init__(kept)
        self._mutable = mutable

    def one(self, op: Op, args: tuple[Any, ...], attrs: dict[str, Any], compute: Any) -> Tensor:
        """Run ``op``, with its kept result where there is one."""
        found = self._kept.get(self._number)
        if found is None:
            return SLOT.below(self)(op, args, attrs, compute)
        arrays = found.take(op, self._mutable)

        def giving(kernel: Any, /, *raw: Any, **options: Any) -> Any:
            return arrays if compute is None else compute(lambda *a, **k: arrays, *raw, **options)

        return SLOT.below(self)(op, args, attrs, giving)
