"""torch.utils.checkpoint: keep no activations of a part of a model; compute them again in backward.

Without ``use_reentrant`` the graph stays as it is, and what its nodes would save are empty places
(``autograd.graph.saved_tensors_hooks``). The first place that a pass asks for runs the function once more
and fills them all; each is emptied as it is read. So every use of the graph works: ``autograd.grad``,
``create_graph``, hooks, several backward passes, parts inside parts.

``use_reentrant=True`` is torch's older way: a custom Function without a graph, with a backward pass inside.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tenon.amp.autocast_mode import autocast
from tenon.amp.state import STATE
from tenon.autograd.device_states import get_device_states, set_device_states  # noqa: F401 - torch has them here
from tenon.autograd.function import Function
from tenon.autograd.graph_exec_group import GraphExecGroup, group_of_pass
from tenon.autograd.selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from tenon.engine.backward import backward
from tenon.engine.backward_end import PASS
from tenon.engine.grad_mode import enable_grad, is_grad_enabled, no_grad
from tenon.engine.saving import Packed, SavedTensorsHooks, innermost
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, CheckpointMismatchError, GradError, TenonWarning
from tenon.random import default_generator, fork_rng
from tenon.tensors.tensor import Tensor
from tenon.tensors.where import user_line

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
Contexts = Callable[[], tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]]


def noop_context_fn() -> tuple[
    contextlib.AbstractContextManager[None], contextlib.AbstractContextManager[None]
]:
    """Nothing around the first run, nothing around the second."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _EarlyStop:
    """Whether the second run ends as soon as all places are filled; None: as each call says."""

    forced: bool | None = None


class _Debug:
    """Whether errors say more; None: as each call says."""

    forced: bool | None = None


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Whether the parts called inside are debugged, whatever their ``debug`` says; None: as it says."""
    before, _Debug.forced = _Debug.forced, enabled
    try:
        yield
    finally:
        _Debug.forced = before


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether second runs of the parts called inside end once all that is needed is there, whatever their
    ``early_stop`` says."""
    before, _EarlyStop.forced = _EarlyStop.forced, enable
    try:
        yield
    finally:
        _EarlyStop.forced = before


class _Surroundings:
    """Random numbers and autocast as they were when the function ran first."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self._random = default_generator.get_state() if preserve_rng_state else None
        self._regions = [(d, STATE.dtypes[d], on) for d, on in STATE.enabled.items()]
        self._cache = STATE.cache_enabled

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """The same for the second run; afterwards as before."""
        with contextlib.ExitStack() as stack:
            if self._random is not None:
                stack.enter_context(fork_rng())
                default_generator.set_state(self._random)
            for device, dtype, enabled in self._regions:
                stack.enter_context(autocast(device, dtype, enabled, self._cache))
            yield


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, whose activations are computed again in backward instead of kept.

    ``preserve_rng_state`` (default True) gives the second run the random numbers of the first. ``context_fn``
    makes two context managers, for the first and the second run. The second run must save what the first did,
    in number, shape and dtype, or ``CheckpointError`` says what differs (``determinism_check="none"``: only
    the number); with ``debug`` the error also lists where both runs saved what. Where ``tenon.compile``
    records, this is a plain call: its memory plan decides.

    >>> import tenon
    >>> from tenon.utils.checkpoint import checkpoint
    >>> x = tenon.ones(3, requires_grad=True)
    >>> checkpoint(lambda t: t.exp().sin(), x, use_reentrant=False).sum().backward()
    """
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly."
            " use_reentrant=False is recommended; without it, use_reentrant=True is taken.",
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
    early = early_stop if _EarlyStop.forced is None else _EarlyStop.forced
    part = _Part(function, args, kwargs, _Surroundings(preserve), second, determinism_check, early)
    part.debug = debug if _Debug.forced is None else _Debug.forced
    with SavedTensorsHooks(part.leave, part.fetch), first:
        result = function(*args, **kwargs)
    part.complete = True
    return result


class _Filled(BaseException):
    """All places are filled: the second run may end. No ``Exception``, so that nobody on its way catches
    it."""


class _Place:
    """Where a saved tensor would be."""

    __slots__ = ("__weakref__", "number", "told")

    def __init__(self, number: int, told: tuple[Any, ...]) -> None:
        self.number = number
        self.told = told


def _told(tensor: Any) -> tuple[Any, ...]:
    return list(tensor.shape), tensor.dtype, tensor.device


class _Part:
    """One call: what it takes to run it again, and the tensors that the second run left."""

    #: ``debug``: an error lists where both runs saved what.
    debug = False
    #: Whether the first run is over: a gradient inside of it may ask for tensors before that.
    complete = False

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        surroundings: _Surroundings,
        context: contextlib.AbstractContextManager[Any],
        check: str,
        early: bool,
    ) -> None:
        self._function = function
        self._surroundings, self._context, self._check, self._early = surroundings, context, check, early
        self._places: list[weakref.ref[_Place]] = []
        #: By pass (or group of them), which takes along what it did not use.
        self._found: weakref.WeakKeyDictionary[Any, dict[int, Any]] = weakref.WeakKeyDictionary()
        self._calls: list[str] = []
        # Inside of another part, its arguments are that part's activations: they are left to it.
        outer = innermost()
        self._args, self._kwargs = args, kwargs
        if outer is not None:
            self._args = tuple(_kept(outer, a) for a in args)
            self._kwargs = {name: _kept(outer, a) for name, a in kwargs.items()}

    def leave(self, tensor: Any) -> _Place:
        """First run: a place instead of ``tensor``."""
        place = _Place(len(self._places), _told(tensor))
        self._places.append(weakref.ref(place))
        if self.debug:
            self._calls.append(user_line(text=True))
        return place

    def fetch(self, place: _Place) -> Any:
        """Backward: the tensor of ``place``; the first one a pass asks for runs the function again."""
        group = group_of_pass()
        found = self._found.setdefault(group or self, {})
        if place.number not in found:
            self._again(found)
        tensor = found.pop(place.number)
        if group is not None:
            found[place.number] = None
        if tensor is None and isinstance(group, GraphExecGroup):
            raise CheckpointError(
                "Performing two backward calls that overlap, as both need the same saved activation, is not"
                " allowed inside torch.utils.checkpoint.GraphExecGroup. Let each go through its own part."
            )
        if tensor is None:
            raise CheckpointError(
                "torch.utils.checkpoint: Unpack is being triggered for a tensor that was already unpacked"
                " once. If you are calling ctx.saved_tensors in backward, make sure to do so only once."
            )
        return tensor

    def _again(self, found: dict[int, Any]) -> None:
        calls: list[str] = []
        try:
            self._second_run(found, calls)
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

    def _second_run(self, found: dict[int, Any], calls: list[str]) -> None:
        found.clear()
        run = 0

        def take(tensor: Any) -> Any:
            nonlocal run
            number, run = run, run + 1
            if self.debug:
                calls.append(user_line(text=True))
            if number >= len(self._places):
                if not self.complete:
                    return tensor
                raise CheckpointError(
                    "torch.utils.checkpoint: trying to save more tensors during recomputation than during"
                    f" the original forward pass ({len(self._places)}; the next is {_told(tensor)[0]}). The"
                    " function must do the same in both runs."
                )
            place = self._places[number]()
            if place is not None:
                if self._check == "default" and place.told != _told(tensor):
                    raise CheckpointError(
                        "torch.utils.checkpoint: Recomputed values for the following tensors have different"
                        f" metadata than during the forward pass.\ntensor at position {number}:\nsaved"
                        f" metadata: {place.told}\nrecomputed metadata: {_told(tensor)}"
                    )
                found[number] = tensor
            if self._early and run == len(self._places):
                raise _Filled
            return tensor

        with self._surroundings.again(), enable_grad(), SavedTensorsHooks(take, lambda t: t), self._context:
            args = [_given(a) for a in self._args]
            kwargs = {name: _given(a) for name, a in self._kwargs.items()}
            with contextlib.suppress(_Filled):
                self._function(*args, **kwargs)
        if run < len(self._places) or (run > len(self._places) and self.complete):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward"
                f" and recomputation.\nNumber of tensors saved during forward: {len(self._places)}\nNumber of"
                f" tensors saved during recomputation: {run}. The function must do the same in both runs."
            )


def _kept(outer: SavedTensorsHooks, value: Any) -> Any:
    return Packed(outer, value) if isinstance(value, Tensor) else value


def _given(value: Any) -> Any:
    return value.unpack() if isinstance(value, Packed) else value


class CheckpointFunction(Function):
    """``use_reentrant=True``: no graph inside, and a backward pass of its own in backward."""

    @staticmethod
    def forward(ctx: Any, run_function: Any, preserve_rng_state: bool, *args: Any) -> Any:
        """The function's result."""
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state)
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.tensors))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Run again with a graph, and go back through it; parameters inside get their gradients here."""
        if PASS.partial:
            raise GradError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an"
                " `inputs` parameter to .backward(). To resolve this error, you can either set"
                " use_reentrant=False, or call .backward() without passing the `inputs` argument."
            )
        args = list(ctx.others)
        for i, tensor in zip(ctx.tensors, ctx.saved_tensors, strict=True):
            args[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        with ctx.surroundings.again(), enable_grad():
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
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """``functions`` one after another, in ``segments`` parts of which all but the last are checkpointed.

    ``functions`` is a ``Sequential`` or a list of modules or functions.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed"
            " explicitly. use_reentrant=False is recommended; without it, use_reentrant=True is taken.",
            TenonWarning,
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ArgumentError(f"Unexpected keyword arguments: {','.join(kwargs)}")
    each: Sequence[Any] = list(functions.children() if hasattr(functions, "children") else functions)
    if not 1 <= segments <= len(each):
        raise ArgumentError(f"segments={segments} must be from 1 to the number of functions, {len(each)}.")
    size = len(each) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        part = _in_a_row(each[start : start + size])
        input = checkpoint(part, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _in_a_row(each[last:])(input)


def _in_a_row(functions: Sequence[Any]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return run
