"""``tenon.compile``: record a function's graph, compile it, and replay the program in later calls.

The first call with arguments of given shapes runs eagerly (optimizers create their state, lazy modules their
parameters). The second and the third are recorded; if both yield the same graph, later calls replay it. The
comparison detects values that differ between calls of equal shapes, such as a number computed by Python that
became a constant of the graph: the function then stays eager and reports why.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from tenon.compat.overriding import MODES
from tenon.device import Device, get_default_device
from tenon.dtypes import dtype, get_default_dtype
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.types import Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError, DivergedError, TenonWarning
from tenon.graph import passes
from tenon.graph.call_keys import described, flattened, key_of
from tenon.graph.compare import difference, fingerprint
from tenon.graph.differentiable_replay import DifferentiableReplay
from tenon.graph.entry import MISS, alike
from tenon.graph.guards import Guard
from tenon.graph.program import Program
from tenon.graph.recording import Leaves, Recording, overlapping, record
from tenon.graph.replay import Replay
from tenon.graph.stance import STANCE
from tenon.kernels.backend import backend_named
from tenon.tensors.call_site import user_line
from tenon.tensors.precision import PRECISION

#: Maximum number of cases per function; calls of further cases stay eager.
LIMIT = 8
#: Maximum number of recordings per case that wait for an equal one, and of calls discarded as set-up.
PATIENCE = 4
#: Maximum number of recordings per case over the lifetime of a function; then it stays eager.
MANY = 64

#: The key of a case: structure and leaves of the arguments, then the mode.
Key: TypeAlias = tuple[Hashable, ...]
#: Whether gradients are enabled, inference mode, default dtype, default device.
Mode: TypeAlias = tuple[bool, bool, dtype, Device]

#: Acquired while a thread records; only one can at a time.
_RECORDING = threading.Lock()


class Case:
    """The programs and pending recordings for calls with one key (shapes, dtypes, plain values)."""

    __slots__ = ("alike", "calls", "discarded", "pending", "reason", "recorded", "replays")

    def __init__(self) -> None:
        #: Numbers of calls without a program, of recordings, and of those discarded as set-up.
        self.calls = self.recorded = self.discarded = 0
        #: Recordings that no equal one has confirmed yet.
        self.pending: list[Recording] = []
        #: The compiled programs, the latest first.
        self.replays: list[Replay | DifferentiableReplay] = []
        #: Whether positional arguments belong to this case; None if only the key can tell.
        self.alike: Callable[[tuple[Nested, ...]], bool] | None = None
        #: Why these calls stay eager; None if they may be compiled.
        self.reason: str | None = None


#: All compiled functions of the process.
EVERY: weakref.WeakSet[Compiled] = weakref.WeakSet()


class Compiled:
    """The compiled form of ``function``; ``reasons`` explains each recording and each refusal."""

    def __init__(self, function: Callable[..., Nested], fullgraph: bool, explain: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.fullgraph = fullgraph
        self.explain = explain
        self.reasons: list[str] = []
        #: By structure, shapes, dtypes and plain values of the arguments, and the mode.
        self.cases: dict[Key, Case] = {}
        #: The compiled forms inside autocast regions, by the key of the region.
        self.casting: dict[Hashable, Compiled] = {}
        #: The case of the latest replay, with its ``alike`` and its mode.
        self._latest: tuple[Callable[[tuple[Nested, ...]], bool], Mode, Case] | None = None
        self._warned = self._warned_hooks = False
        EVERY.add(self)

    def forget(self) -> None:
        """Discard all programs and recordings; the next calls record again."""
        self.cases.clear()
        self.casting.clear()
        self.reasons.clear()
        self._latest = None
        self._warned = self._warned_hooks = False

    def __get__(self, instance: object, owner: type | None = None) -> Callable[..., Nested]:
        """Bind to an instance; each instance has its own programs."""
        if instance is None:
            return self
        bound = self.function.__get__(instance, owner)
        own = getattr(instance, "__dict__", None)
        if own is None:
            return functools.partial(self, instance)
        compiled = own.get(key := f"_compiled_{self.function.__name__}_{id(self)}")
        if compiled is None:
            compiled = own[key] = Compiled(bound, self.fullgraph, self.explain)
        return compiled

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Pickle and copy the function only; the copy records again."""
        return Compiled, (self.function, self.fullgraph, self.explain)

    @property
    def programs(self) -> list[Program]:
        """The compiled programs; ``.source`` is the generated Python, ``.graph`` the graph."""
        own = [p for case in self.cases.values() for replay in case.replays for p in replay.programs]
        return own + [p for each in self.casting.values() for p in each.programs]

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Replay the program for these arguments, or call the function, recording it if needed."""
        if (
            WATCHERS.recorder is not None
            or WATCHERS.taped is not None
            or SLOT.watched()
            or MODES
            or STANCE.eager
        ):
            return self.function(*args, **kwargs)  # inside of another recording, or under an interceptor
        if PRECISION.casting is not None:
            return self._cast(PRECISION.casting, args, kwargs)
        mode: Mode = (MODE.enabled, MODE.inference, get_default_dtype(), get_default_device())
        latest = self._latest
        leaves: Sequence[Nested] = args
        if latest is None or kwargs or latest[1] != mode or not latest[0](args):
            leaves, matching = self._find(args, kwargs, mode)
            if matching is None:
                return self.function(*args, **kwargs)
            case = matching
        else:
            case = latest[2]
        for replay in case.replays:
            if replay.changes and any(overlapping(leaves, i, replay.arguments) for i in replay.changes):
                return self.function(*args, **kwargs)
            try:
                result = replay.attempt(leaves)
                if result is MISS and replay.fits() and replay.prepare():
                    result = replay.attempt(leaves)
            except DivergedError as error:
                reason = f"one call ran eagerly: {error}"
                if reason not in self.reasons[-1:]:
                    self._report(reason)
                return self.function(*args, **kwargs)
            if result is not MISS:
                return result
        return self._record(case, args, kwargs)

    def _find(
        self, args: tuple[Nested, ...], kwargs: dict[str, Nested], mode: Mode
    ) -> tuple[Leaves, Case | None]:
        """Return the leaves of the arguments, and their case, or None to run eagerly."""
        leaves, structure = flattened(args, kwargs)
        key = (structure, key_of(leaves), *mode)
        try:
            case = self.cases.get(key)
        except TypeError as error:
            reason = "an argument is neither a tensor nor hashable"
            if self.fullgraph:
                raise self._uncompiled(reason) from error
            if not self._warned:
                self._stay_eager(reason)
            return leaves, None
        if case is None:
            if len(self.cases) >= LIMIT:
                if not self._warned:
                    self._stay_eager(self._too_many())
                return leaves, None
            if self.cases:
                self._report(f"another kind of call: {described(leaves)}")
            case = self.cases.setdefault(key, Case())
        elif case.replays and structure == len(args) and not kwargs:
            quick = case.alike = case.alike or alike(leaves)
            self._latest = None if quick is None else (quick, mode, case)
        return leaves, case

    # ``casting`` is what ``PRECISION.casting`` states, of a class that this layer does not import.
    def _cast(self, casting: Any, args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> Nested:
        """Call the compiled form for the active autocast region, which is entered inside of it."""
        key = casting.key
        own = self.casting.get(key)
        if own is None:
            own = Compiled(casting.around(self.function), self.fullgraph, self.explain)
            own = self.casting.setdefault(key, own)
            own.reasons = self.reasons
        with casting.disabled():
            return own(*args, **kwargs)

    def _record(self, case: Case, args: tuple[Nested, ...], kwargs: dict[str, Nested]) -> Nested:
        """Call the function; record the call if the case still needs recordings."""
        if not STANCE.may_record(_name(self.function)):
            return self.function(*args, **kwargs)
        case.calls += 1
        if self.fullgraph and case.reason is not None:
            raise self._uncompiled(case.reason)
        if case.reason is not None or case.calls == 1 or not _RECORDING.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            if case.recorded >= MANY:
                self._refuse(case, self._too_many())
                return self.function(*args, **kwargs)
            if case.replays:
                self._report("recorded again: " + "; ".join(_broken(case.replays[0])))
            earlier = case.pending[-1].places if case.pending else None
            before = earlier.read_all() if earlier else []
            result, recording = record(self.function, args, kwargs, self.fullgraph)
            case.recorded += 1  # not what raised or was interrupted
            changed = earlier.differing(before) if earlier else []
            if self._compile_if_confirmed(case, recording):
                if changed:
                    self._warn(
                        f"{_name(self.function)} changes {_listed(changed)} itself. Its program does not:"
                        " Python code other than ops runs only while a call is recorded or eager"
                    )
                del recording
                backend_named("cpu").trim()  # temporaries of both recordings and of the compilation
            return result
        finally:
            _RECORDING.release()

    def _compile_if_confirmed(self, case: Case, recording: Recording | CaptureError) -> bool:
        """Compile a recording that equals a pending one, else add it to the pending ones.

        After ``PATIENCE`` different recordings the case stays eager. Returns whether a program was compiled.
        """
        if isinstance(recording, DivergedError):
            self._report(f"not recorded: {recording}")
            return False
        if isinstance(recording, CaptureError):
            self._refuse(case, str(recording))
            return False
        if recording.discard_reason is not None and case.discarded < PATIENCE:
            case.discarded += 1
            return False
        text = fingerprint(recording)
        for replay in case.replays:
            if replay.text == text and replay.fits():
                for dropped in filter(None, (guard.accept_change() for guard in replay.recording.guards)):
                    self._warn(
                        f"{_listed(dropped)} changed in many calls without effect on the recorded graph, and"
                        " is not checked any more. If it can have an effect, pass it as an argument"
                    )
                if not _broken_guards(replay):
                    self._report("the change has no effect on the program")
                    return False
        for first in case.pending:
            if difference(first, recording) is None:
                case.pending.remove(first)
                case.replays = [self._build(recording, text), *case.replays[: LIMIT - 1]]
                return True
        if len(case.pending) >= PATIENCE:
            changed = difference(case.pending[-1], recording)
            case.pending.clear()
            self._refuse(case, f"two calls recorded different graphs: {changed}")
            return False
        case.pending.append(recording)
        return False

    def _build(self, recording: Recording, text: bytes) -> Replay | DifferentiableReplay:
        """Run the passes on a recording and return its replay."""
        backend = backend_named("cpu")
        recorded = len(recording.graph)
        if recording.hooks and not self._warned_hooks:
            self._warned_hooks = True
            self._warn(
                "the ops of these hooks are part of the program, but their Python code does not run again: "
                f"{', '.join(recording.hooks)}. They print, count and append nothing in later calls"
            )
        backward = recording.backward
        for graph in [recording.graph] if backward is None else [recording.graph, backward.graph]:
            for simplify in passes.default(backend):
                simplify(graph)
            graph.verify()
        self._report(f"compiled {recorded} nodes")
        replay: Replay | DifferentiableReplay
        if backward is None:
            replay = Replay(recording, backend)
        else:
            replay = DifferentiableReplay(recording, backward, backend)
        replay.text = text
        return replay

    def _refuse(self, case: Case, reason: str) -> None:
        """Run the case eagerly from now on for ``reason``; CaptureError with ``fullgraph``."""
        case.reason = reason
        if self.fullgraph:
            self._report(f"cannot be compiled: {reason}")
            raise self._uncompiled(reason)
        self._stay_eager(reason)

    def _uncompiled(self, reason: str | None) -> CaptureError:
        return CaptureError(f"{_name(self.function)} cannot be compiled (fullgraph=True): {reason}")

    def _warn(self, text: str) -> None:
        file, _, line = user_line().rpartition(":")
        text = f"tenon.compile: {text}"
        warnings.warn_explicit(text, TenonWarning, file or "<unknown>", int(line or 0))

    def _stay_eager(self, reason: str) -> None:
        """Record the reason to stay eager; the first time, warn."""
        self._report(f"stays eager: {reason}")
        if not self._warned:
            self._warned = True
            self._warn(f"{_name(self.function)} runs eagerly: {reason}")

    def _too_many(self) -> str:
        return (
            f"more than {LIMIT} kinds of calls (shapes, dtypes, flags). Reasons so far:"
            f" {self.reasons[-LIMIT:]}. Pad inputs to a few sizes, or compile a smaller part."
        )

    def _report(self, text: str) -> None:
        self.reasons.append(text)
        if self.explain:
            print(f"tenon.compile: {_name(self.function)}: {text}", file=sys.stderr)

    def __repr__(self) -> str:
        return f"<compiled {_name(self.function)}: {len(self.programs)} programs>"


def _name(function: object) -> str:
    """Return the name of a function in messages; of a bound method that of the class."""
    owner = getattr(function, "__self__", None)
    if owner is not None:
        return type(owner).__name__
    return getattr(function, "__qualname__", None) or type(function).__name__


def _listed(descriptions: list[str]) -> str:
    return ", ".join(dict.fromkeys(descriptions))


def _broken_guards(replay: Replay | DifferentiableReplay) -> list[Guard]:
    """Return the guards that do not hold."""
    return [guard for guard in replay.recording.guards if not guard.check()]


def _broken(replay: Replay | DifferentiableReplay) -> list[str]:
    """Describe why a replay is not valid for a call."""
    changes = [guard.changed() for guard in _broken_guards(replay)]
    return changes or ["the shape or dtype of a parameter changed"]
