"""``tenon.compile``: record a function's graph, compile it, and replay the program in later calls.

The first call with arguments of some shapes runs eagerly (optimizers create their state, lazy modules their
parameters). The second and the third are recorded; if both yield the same graph, later calls replay it. A
value that differs between the two though the shapes agree, such as a number that Python computed and that
became a constant of the graph, is detected by that comparison: the function then stays eager and reports why.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from tenon.compat.overriding import MODES
from tenon.device import get_default_device
from tenon.dtypes import get_default_dtype
from tenon.engine.aval import aval_of
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.precision import PRECISION
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError, DivergedError, TenonWarning, UnsupportedError
from tenon.graph import passes
from tenon.graph.compare import difference, fingerprint
from tenon.graph.differentiable_replay import DifferentiableReplay
from tenon.graph.entry import MISS, alike
from tenon.graph.recording import Recording, overlapping, record
from tenon.graph.replay import Replay
from tenon.graph.stance import STANCE
from tenon.graph.suspension import SUSPENSION
from tenon.kernels.backend import backend_named
from tenon.tensors.pytree import REGISTERED, TreeSpec, tree_flatten
from tenon.tensors.where import user_line

#: Maximum number of programs per function; further kinds of calls stay eager.
LIMIT = 8
#: Recordings of one kind of call that wait for an equal one, and calls that may set something up first.
PATIENCE = 4
#: Recordings of one kind of call over the life of a function; beyond, it stays eager.
MANY = 64

#: Held while a thread records; only one can at a time.
_RECORDING = threading.Lock()


class Case:
    """The programs and pending recordings for calls with one key (shapes, dtypes, plain values)."""

    __slots__ = ("alike", "calls", "pending", "reason", "recorded", "replays", "settled")

    def __init__(self) -> None:
        self.calls = self.recorded = self.settled = 0
        #: Recordings not yet confirmed by an equal one.
        self.pending: list[Recording] = []
        #: The latest first.
        self.replays: list[Any] = []
        #: A fast check for calls of this kind; None if there is none.
        self.alike: Any = None
        #: Why these calls stay eager; None if they do not.
        self.reason: str | None = None


#: All that there are.
EVERY: weakref.WeakSet[Compiled] = weakref.WeakSet()


class Compiled:
    """The compiled form of ``function``. ``reasons`` lists every recording and refusal, in words."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool, explain: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.fullgraph = fullgraph
        self.explain = explain
        self.reasons: list[str] = []
        self.cases: dict[Any, Case] = {}
        #: What it is inside autocast regions, by their kind.
        self.casting: dict[Any, Compiled] = {}
        #: The kind of the latest call that was replayed: a quick test, the mode, the case.
        self._latest: tuple[Any, tuple[Any, ...], Case] | None = None
        self._warned = self._warned_hooks = False
        EVERY.add(self)

    def forget(self) -> None:
        """Discard all programs and recordings; the next calls record again."""
        self.cases.clear()
        self.casting.clear()
        self.reasons.clear()
        self._latest = None
        self._warned = self._warned_hooks = False

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind to an instance; each instance has its own programs."""
        if instance is None:
            return self
        bound = self.function.__get__(instance, owner)
        own = getattr(instance, "__dict__", None)
        if own is None:
            return functools.partial(self, instance)
        kept = own.get(key := f"_compiled_{self.function.__name__}_{id(self)}")
        if kept is None:
            kept = own[key] = Compiled(bound, self.fullgraph, self.explain)
        return kept

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the function only; the copy records again."""
        return Compiled, (self.function, self.fullgraph, self.explain)

    @property
    def programs(self) -> list[Any]:
        """The compiled programs; ``.source`` is the generated Python, ``.graph`` the graph."""
        own = [p for case in self.cases.values() for replay in case.replays for p in replay.programs]
        return own + [p for each in self.casting.values() for p in each.programs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the program for these arguments, or call the function, recording it if needed."""
        if (
            WATCHERS.recorder is not None
            or WATCHERS.taped is not None
            or SLOT.watched()
            or MODES
            or STANCE.eager
        ):
            return self.function(*args, **kwargs)  # inside of another recording, or under an interceptor
        if SUSPENSION.reason is not None:
            raise UnsupportedError(f"{_name(self.function)}: {SUSPENSION.reason}")
        if PRECISION.casting is not None:
            return self._cast(PRECISION.casting, args, kwargs)
        mode = (MODE.enabled, MODE.inference, get_default_dtype(), get_default_device())
        latest: Any = self._latest
        leaves: Any = args
        if latest is None or kwargs or latest[1] != mode or not latest[0](args):
            leaves, found = self._find(args, kwargs, mode)
            if found is None:
                return self.function(*args, **kwargs)
            case = found
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
                    self._tell(reason)
                return self.function(*args, **kwargs)
            if result is not MISS:
                return result
        return self._record(case, args, kwargs)

    def _find(self, args: Any, kwargs: Any, mode: tuple[Any, ...]) -> tuple[Any, Case | None]:
        """Flatten the arguments and look up their case; None to run eagerly."""
        leaves, structure = _flat(args, kwargs)
        key: Any = (structure, _key(leaves), *mode)
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
                self._tell(f"another kind of call: {_described(leaves)}")
            case = self.cases.setdefault(key, Case())
        elif case.replays and structure == len(args) and not kwargs:
            quick = case.alike = case.alike or alike(leaves)
            self._latest = None if quick is None else (quick, mode, case)
        return leaves, case

    def _cast(self, casting: Any, args: Any, kwargs: Any) -> Any:
        """The same in an autocast region: the function brings its own region along."""
        key = casting.key
        own = self.casting.get(key)
        if own is None:
            own = Compiled(casting.around(self.function), self.fullgraph, self.explain)
            own = self.casting.setdefault(key, own)
            own.reasons = self.reasons
        with casting.lifted():
            return own(*args, **kwargs)

    def _record(self, case: Case, args: Any, kwargs: Any) -> Any:
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
                self._tell("recorded again: " + "; ".join(_broken(case.replays[0])))
            earlier = case.pending[-1].places if case.pending else None
            before = earlier.look() if earlier else []
            result, made = record(self.function, args, kwargs, self.fullgraph)
            case.recorded += 1  # not what raised or was interrupted
            own = earlier.differing(before) if earlier else []
            if self._judge(case, made):
                if own:
                    self._warn(
                        f"{_name(self.function)} changes {_listed(own)} itself. Its program does not: what"
                        " Python does beside the ops happens only while a call is recorded or eager"
                    )
                del made
                backend_named("cpu").trim()  # of both recordings' temporaries and the compilation's own
            return result
        finally:
            _RECORDING.release()

    def _judge(self, case: Case, made: Recording | CaptureError) -> bool:
        """Compile what was recorded twice, keep what is new, give up on what differs every time; whether a
        program was made."""
        if isinstance(made, DivergedError):
            self._tell(f"not recorded: {made}")
            return False
        if isinstance(made, CaptureError):
            self._refuse(case, str(made))
            return False
        if made.settling is not None and case.settled < PATIENCE:
            case.settled += 1
            return False
        text = fingerprint(made)
        for replay in case.replays:
            if replay.text == text and replay.fits():
                for tired in filter(None, (guard.forgive() for guard in replay.recording.guards)):
                    self._warn(
                        f"{_listed(tired)} changed in many calls and never changed what was recorded: it is"
                        " not looked at any more. If it can matter, pass it as an argument"
                    )
                if not _broken_guards(replay):
                    self._tell("what changed does not matter to the program")
                    return False
        for first in case.pending:
            if difference(first, made) is None:
                case.pending.remove(first)
                case.replays = [self._build(made, text), *case.replays[: LIMIT - 1]]
                return True
        if len(case.pending) >= PATIENCE:
            found = difference(case.pending[-1], made)
            case.pending.clear()
            self._refuse(case, f"two calls recorded different graphs: {found}")
            return False
        case.pending.append(made)
        return False

    def _build(self, made: Recording, text: bytes) -> Any:
        backend = backend_named("cpu")
        recorded = len(made.graph)
        if made.hooks and not self._warned_hooks:
            self._warned_hooks = True
            self._warn(
                "the tensor work of these hooks is part of the program, but their Python does not run again: "
                f"{', '.join(made.hooks)}. What they print, count or append stays as it is"
            )
        for graph in [made.graph] if made.backward is None else [made.graph, made.backward.graph]:
            for simplify in passes.default(backend):
                simplify(graph)
            graph.verify()
        self._tell(f"compiled {recorded} nodes")
        if made.backward is None:
            replay: Any = Replay(made, backend)
        else:
            replay = DifferentiableReplay(made, made.backward, backend)
        replay.text = text
        return replay

    def _refuse(self, case: Case, reason: str) -> None:
        case.reason = reason
        if self.fullgraph:
            self._tell(f"cannot be compiled: {reason}")
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
        self._tell(f"stays eager: {reason}")
        if not self._warned:
            self._warned = True
            self._warn(f"{_name(self.function)} runs eagerly: {reason}")

    def _too_many(self) -> str:
        return (
            f"more than {LIMIT} kinds of calls (shapes, dtypes, flags). Reasons so far:"
            f" {self.reasons[-LIMIT:]}. Pad inputs to a few sizes, or compile a smaller part."
        )

    def _tell(self, text: str) -> None:
        self.reasons.append(text)
        if self.explain:
            print(f"tenon.compile: {_name(self.function)}: {text}", file=sys.stderr)

    def __repr__(self) -> str:
        return f"<compiled {_name(self.function)}: {len(self.programs)} programs>"


def _name(function: Any) -> str:
    owner = getattr(function, "__self__", None)
    if owner is not None:
        return type(owner).__name__
    return getattr(function, "__qualname__", None) or type(function).__name__


def _flat(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """The leaves of the arguments, and a hashable description of their structure."""
    if not kwargs and not any(
        a.__class__ in _CONTAINERS or a.__class__ in REGISTERED or hasattr(a, "_fields") for a in args
    ):
        return list(args), len(args)
    leaves, spec = tree_flatten((args, kwargs))
    return leaves, _hashable(spec)


def _described(leaves: list[Any]) -> str:
    shown = [repr(aval_of(leaf.raw)) if isinstance(leaf, Value) else repr(leaf)[:40] for leaf in leaves[:6]]
    mode = "" if MODE.enabled else ", without gradients"
    return f"({', '.join(shown)}{', ...' if len(leaves) > 6 else ''}){mode}"


_CONTAINERS = frozenset((tuple, list, dict, OrderedDict, defaultdict))


def _hashable(spec: TreeSpec) -> Any:
    children = tuple(_hashable(child) for child in spec.children_specs)
    mapping = spec.type in _CONTAINERS and spec.context is not None
    keys = tuple(spec.context[0]) if mapping else spec.context
    return (spec.type, keys, children)


def _key(leaves: list[Any]) -> tuple[Any, ...]:
    seen: dict[int, int] = {}
    return tuple(
        (
            (
                leaf.__class__,
                leaf.raw.shape,
                leaf.raw.dtype,
                leaf._track and (leaf._node is not None, getattr(leaf, "_grad", None) is not None),
                leaf._backend.name,
                seen.setdefault(id(leaf), i),
            )
            if isinstance(leaf, Value)
            else (leaf.__class__, leaf if leaf.__class__ is not float or leaf else repr(leaf))
        )
        for i, leaf in enumerate(leaves)
    )


def _listed(places: list[str]) -> str:
    return ", ".join(dict.fromkeys(places))


def _broken_guards(replay: Any) -> list[Any]:
    return [guard for guard in replay.recording.guards if not guard.check()]


def _broken(replay: Replay) -> list[str]:
    found = [guard.changed() for guard in _broken_guards(replay)]
    return found or ["the shape or dtype of a parameter changed"]
