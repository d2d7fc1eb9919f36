"""torch.utils.checkpoint: activation checkpointing, which recomputes activations in backward.

Without ``use_reentrant`` the autograd graph is built as usual, but saved-tensor hooks
(``autograd.graph.saved_tensors_hooks``) replace each tensor a node would save with an empty holder. The first
holder that a backward pass unpacks reruns the function, which fills all of them; each is cleared as it is
read. So all uses of the graph work: ``create_graph``, hooks, several backward passes, nested checkpoints.

``use_reentrant=True`` is PyTorch's older variant: a Function whose backward runs a nested backward pass.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tenon.autograd.checkpoint_settings import (
    Debug,
    EarlyStop,
    RunState,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)
from tenon.autograd.device_states import get_device_states, set_device_states  # noqa: F401 - PyTorch has them here
from tenon.autograd.function import Function
from tenon.autograd.graph_exec_group import GraphExecGroup, group_of_pass
from tenon.autograd.selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.engine.running_pass import PASS
from tenon.engine.sweep import Sweep
from tenon.engine.types import Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, CheckpointMismatchError, GradError, TenonWarning
from tenon.tensors.autograd.grad_mode import enable_grad, is_grad_enabled, no_grad
from tenon.tensors.autograd.passes import backward
from tenon.tensors.autograd.saved_tensor_hooks import Packed, SavedTensorsHooks, innermost
from tenon.tensors.call_site import user_line
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.autograd.function_context import Context
    from tenon.nn.containers import Sequential

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]

CheckpointError = CheckpointMismatchError
#: Returns the contexts of the forward and of the recomputation.
Contexts: TypeAlias = Callable[
    [], tuple[contextlib.AbstractContextManager[object], contextlib.AbstractContextManager[object]]
]
#: Shape, dtype and device of a saved tensor.
Metadata: TypeAlias = tuple[list[int], dtype, Device]


def noop_context_fn() -> tuple[
    contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]
]:
    """Return null contexts for the forward and the recomputation: the default ``context_fn``."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def checkpoint(
    function: Callable[..., Nested],
    *args: Nested,
    use_reentrant: bool | None = None,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Nested,
) -> Nested:
    """Call ``function(*args, **kwargs)``; its activations are not stored but recomputed in backward.

    With ``preserve_rng_state`` (default True) the recomputation draws the random numbers of the forward.
    ``context_fn`` returns two context managers, for the forward and for the recomputation. The recomputation
    must save as many tensors as the forward, with the same shapes and dtypes; else ``CheckpointError`` states
    what differs (``determinism_check="none"`` compares the number only); with ``debug`` the error also lists
    the lines at which both runs saved tensors. Under ``tenon.compile`` this is a plain call, as its memory
    plan decides what is stored.

    >>> import tenon
    >>> from tenon.utils.checkpoint import checkpoint
    >>> x = tenon.ones(3, requires_grad=True)
    >>> checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False).sum().backward()
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly."
            " use_reentrant=False is recommended; without it, use_reentrant=True is used.",
            TenonWarning,
            stacklevel=2,
        )
        use_reentrant = True
    if use_reentrant and kwargs:
        raise ArgumentError(
            f"Unexpected keyword arguments: {','.join(kwargs)} (use_reentrant=True takes none)"
        )
    if use_reentrant and (context_fn is not noop_context_fn or debug):
        raise ArgumentError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if determinism_check not in ("default", "none"):
        raise ArgumentError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check}"
        )
    if WATCHERS.recorder is not None or not is_grad_enabled():
        return function(*args, **kwargs)
    if use_reentrant:
        if not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            warnings.warn(
                "None of the inputs have requires_grad=True. Gradients will be None",
                TenonWarning,
                stacklevel=2,
            )
        return CheckpointFunction.apply(function, preserve, *args)
    first, second = context_fn()
    early = early_stop if EarlyStop.forced is None else EarlyStop.forced
    frame = _CheckpointFrame(function, args, kwargs, RunState(preserve), second, determinism_check, early)
    frame.debug = debug if Debug.forced is None else Debug.forced
    with SavedTensorsHooks(frame.pack, frame.unpack), first:
        result = function(*args, **kwargs)
    frame.complete = True
    return result


class _StopRecomputation(BaseException):
    """Ends the recomputation; a BaseException, so that ``except Exception`` in the function does not catch
    it."""


class _Holder:
    """Placeholder that a node saves for a tensor: its number among the saved tensors, and its metadata."""

    __slots__ = ("__weakref__", "metadata", "number")

    def __init__(self, number: int, metadata: Metadata) -> None:
        self.number = number
        self.metadata = metadata


def _metadata_of(tensor: Tensor) -> Metadata:
    return list(tensor.shape), tensor.dtype, tensor.device


class _CheckpointFrame:
    """One checkpointed call: its arguments and state for the recomputation, and the recomputed tensors."""

    #: Whether an error lists the lines at which both runs saved tensors.
    debug = False
    #: Whether the forward has returned; a gradient that it computes itself unpacks tensors before that.
    complete = False

    def __init__(
        self,
        function: Callable[..., Nested],
        args: tuple[Nested, ...],
        kwargs: dict[str, Nested],
        state: RunState,
        context: contextlib.AbstractContextManager[object],
        check: str,
        early: bool,
    ) -> None:
        self._function = function
        self._state, self._context, self._check, self._early = state, context, check, early
        self._holders: list[weakref.ref[_Holder]] = []
        #: Recomputed tensors by backward pass (or group of passes), freed together with it.
        self._recomputed: weakref.WeakKeyDictionary[
            GraphExecGroup | Sweep | _CheckpointFrame, dict[int, Tensor | None]
        ] = weakref.WeakKeyDictionary()
        #: The lines at which the forward saved tensors, if ``debug``.
        self._calls: list[str] = []
        # In a nested checkpoint the arguments are activations of the outer one, which packs them.
        outer = innermost()
        self._args, self._kwargs = args, kwargs
        if outer is not None:
            self._args = tuple(_packed(outer, a) for a in args)
            self._kwargs = {name: _packed(outer, a) for name, a in kwargs.items()}

    def pack(self, tensor: Tensor) -> _Holder:
        """Pack hook of the forward: return a holder instead of ``tensor``."""
        holder = _Holder(len(self._holders), _metadata_of(tensor))
        self._holders.append(weakref.ref(holder))
        if self.debug:
            self._calls.append(user_line(text=True))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        """Unpack hook: return the tensor of ``holder``; the first call in a pass recomputes the function."""
        group = group_of_pass()
        recomputed = self._recomputed.setdefault(group or self, {})
        if holder.number not in recomputed:
            self._recompute(recomputed)
        tensor = recomputed.pop(holder.number)
        if group is not None:
            recomputed[holder.number] = None
        if tensor is None and isinstance(group, GraphExecGroup):
            raise CheckpointError(
                "Performing two backward calls that overlap, as both need the same saved activation, is not"
                " allowed inside torch.utils.checkpoint.GraphExecGroup. Run each on its own part."
            )
        if tensor is None:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked"
                " once. If you are calling ctx.saved_tensors in backward, make sure to do so only once."
            )
        return tensor

    def _recompute(self, recomputed: dict[int, Tensor | None]) -> None:
        """Run the function again, which fills ``recomputed``; with ``debug`` extend errors by both stacks."""
        calls: list[str] = []
        try:
            self._rerun(recomputed, calls)
        except CheckpointError as error:
            if not self.debug:
                raise
            raise CheckpointError(
                f"{error}\nYou are seeing this error because you passed `debug=True` to checkpoint (or"
                " set_checkpoint_debug_enabled(True)). Tensors were saved, in this order,\nin the original"
                " run at:\n  "
                + "\n  ".join(self._calls)
                + "\nand in the second run at:\n  "
                + "\n  ".join(calls)
            ) from error

    def _rerun(self, recomputed: dict[int, Tensor | None], calls: list[str]) -> None:
        """Run the function again; fill ``recomputed`` and, with ``debug``, ``calls``."""
        recomputed.clear()
        run = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal run
            number, run = run, run + 1
            if self.debug:
                calls.append(user_line(text=True))
            if number >= len(self._holders):
                if not self.complete:
                    return tensor
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during"
                    f" the original forward pass ({len(self._holders)}; the next is {list(tensor.shape)})."
                    " The function must do the same in both runs."
                )
            holder = self._holders[number]()
            if holder is not None:
                if self._check == "default" and holder.metadata != _metadata_of(tensor):
                    raise CheckpointError(
                        "torch.utils.checkpoint: Recomputed values for the following tensors have different"
                        f" metadata than during the forward pass.\ntensor at position {number}:\nsaved"
                        f" metadata: {holder.metadata}\nrecomputed metadata: {_metadata_of(tensor)}"
                    )
                recomputed[number] = tensor
            if self._early and run == len(self._holders):
                raise _StopRecomputation
            return tensor

        with self._state.restored(), enable_grad(), SavedTensorsHooks(pack, lambda t: t), self._context:
            args = [_unpacked(a) for a in self._args]
            kwargs = {name: _unpacked(a) for name, a in self._kwargs.items()}
            with contextlib.suppress(_StopRecomputation):
                self._function(*args, **kwargs)
        if run < len(self._holders) or (run > len(self._holders) and self.complete):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward"
                f" and recomputation.\nNumber of tensors saved during forward: {len(self._holders)}\nNumber"
                f" of tensors saved during recomputation: {run}. The function must do the same in both runs."
            )


def _packed(outer: SavedTensorsHooks, value: object) -> object:
    """Return a tensor packed by the hooks ``outer``; any other value unchanged."""
    return Packed(outer, value) if isinstance(value, Tensor) else value


def _unpacked(value: object) -> object:
    return value.unpack() if isinstance(value, Packed) else value


class CheckpointFunction(Function):
    """``use_reentrant=True``: a forward without a graph, and a nested backward pass in backward."""

    @staticmethod
    def forward(
        ctx: Context, run_function: Callable[..., Nested], preserve_rng_state: bool, *args: Nested
    ) -> Nested:
        """Run the function without recording a graph."""
        ctx.run_function = run_function
        ctx.state = RunState(preserve_rng_state)
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.tensors))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Rerun the function with a graph and backpropagate through it; parameters accumulate gradients."""
        if PASS.partial:
            raise GradError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an"
                " `inputs` parameter to .backward(). To resolve this error, you can either set"
                " use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        args = list(ctx.others)
        for i, tensor in zip(ctx.tensors, ctx.saved_tensors, strict=True):
            args[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.state.restored(), enable_grad():
            outputs = ctx.run_function(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [
            (o, g)
            for o, g in zip(outputs, grads, strict=True)
            if isinstance(o, Tensor) and o.requires_grad and g is not None
        ]
        if not pairs:
            raise GradError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return (None, None, *(a.grad if isinstance(a, Tensor) else None for a in args))


def checkpoint_sequential(
    functions: Sequential | Sequence[Callable[..., Nested]],
    segments: int,
    input: Nested,
    use_reentrant: bool | None = None,
    **kwargs: bool,
) -> Nested:
    """Call ``functions`` in sequence, split into ``segments`` of which all but the last are checkpointed.

    ``functions`` is a ``Sequential`` or a list of modules or functions.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed"
            " explicitly. use_reentrant=False is recommended; without it, use_reentrant=True is used.",
            TenonWarning,
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    stages: list[Callable[..., Nested]]
    stages = list(functions.children() if hasattr(functions, "children") else functions)
    if not 1 <= segments <= len(stages):
        raise ArgumentError(f"segments={segments} must be from 1 to the number of functions, {len(stages)}.")
    size = len(stages) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        segment = _composed(stages[start : start + size])
        input = checkpoint(segment, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _composed(stages[last:])(input)


def _composed(functions: Sequence[Callable[..., Nested]]) -> Callable[[Nested], Nested]:
    """Return a function that calls ``functions`` in sequence."""

    def run(value: Nested) -> Nested:
        for function in functions:
            value = function(value)
        return value

    return run
