"""``tenon.compile``: a function that records itself once and replays the program from then on.

The first call with arguments of some shapes runs as if nothing were compiled (optimizers make their state,
lazy modules their parameters). The second and the third are recorded; if both give the same graph, the later
ones replay it. What differs between two calls though shapes are the same, such as a number that Python
computed and froze into the graph, is found that way, and the function stays eager with that reason.
"""

from __future__ import annotations

import functools
import sys
import threading
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from tenon.core import watch
from tenon.core.backend import backend_named
from tenon.core.grad_mode import MODE
from tenon.core.interceptor import SLOT
from tenon.core.pytree import TreeSpec, tree_flatten
from tenon.core.value import Value
from tenon.dtypes import get_default_dtype
from tenon.errors import CaptureError
from tenon.graph import passes
from tenon.graph.compare import difference
from tenon.graph.pairs import DifferentiableReplay
from tenon.graph.recorder import user_line
from tenon.graph.recording import Recording, record
from tenon.graph.replay import Replay

#: Recordings kept for one function; with more kinds of calls it stays eager.
LIMIT = 8
#: Calls that may set something up before one is recorded.
PATIENCE = 4


class Case:
    """What is known about calls with one key."""

    __slots__ = ("calls", "first", "reason", "replays")

    def __init__(self) -> None:
        self.calls = 0
        self.first: Recording | None = None
        self.replays: list[Any] = []
        #: Why these calls stay eager; None if they do not.
        self.reason: str | None = None


class Compiled:
    """The compiled form of ``function``. ``reasons`` lists every recording and refusal, in words."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool, explain: bool) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.fullgraph = fullgraph
        self.explain = explain
        self.reasons: list[str] = []
        self.cases: dict[Any, Case] = {}
        self._lock = threading.RLock()
        self._warned = False

    @property
    def programs(self) -> list[Any]:
        """The programs made so far; ``.source`` is their text, ``.graph`` what they run."""
        return [p for case in self.cases.values() for replay in case.replays for p in replay.programs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or replay it."""
        if watch.recorder is not None or SLOT.top is not None:
            return self.function(*args, **kwargs)  # part of another recording, or somebody watches the ops
        leaves, structure = _flat(args, kwargs)
        key = (structure, _key(leaves), MODE.enabled, get_default_dtype())
        with self._lock:
            try:
                case = self.cases.get(key)
            except TypeError:
                return self._eager(args, kwargs, "an argument is neither a tensor nor hashable")
            if case is None:
                if len(self.cases) >= LIMIT:
                    return self._eager(args, kwargs, self._too_many())
                case = self.cases[key] = Case()
            for replay in case.replays:
                if _holds(replay):
                    return replay(leaves)
            return self._record(case, args, kwargs)

    def _record(self, case: Case, args: Any, kwargs: Any) -> Any:
        case.calls += 1
        if case.reason is not None or case.calls == 1:
            return self.function(*args, **kwargs)
        if len(case.replays) >= LIMIT:
            self._refuse(case, self._too_many())
            return self.function(*args, **kwargs)
        if case.replays:
            self._tell("recorded again: " + "; ".join(_broken(case.replays[-1])))
        result, made = record(self.function, args, kwargs, self.fullgraph)
        if isinstance(made, CaptureError):
            self._refuse(case, str(made))
            return result
        if made.settling is not None and case.calls <= PATIENCE:
            case.first = None
            return result
        first, case.first = case.first, None
        if first is None or difference(first, made) is not None:
            if first is not None and case.calls > PATIENCE:
                self._refuse(case, f"two calls recorded different graphs: {difference(first, made)}")
                return result
            case.first = made
            return result
        case.replays.append(self._build(made))
        return result

    def _build(self, made: Recording) -> Any:
        backend = backend_named("cpu")
        recorded = len(made.graph)
        for graph in [made.graph] if made.backward is None else [made.graph, made.backward.graph]:
            for simplify in passes.default(backend):
                simplify(graph)
            graph.verify()
        self._tell(f"compiled {recorded} nodes")
        if made.backward is None:
            return Replay(made, backend)
        return DifferentiableReplay(made, made.backward, backend)

    def _refuse(self, case: Case, reason: str) -> None:
        case.reason = reason
        self._tell(f"stays eager: {reason}")
        if not self._warned:
            self._warned = True
            file, _, line = user_line().rpartition(":")
            text = f"tenon.compile: {_name(self.function)} runs eagerly: {reason}"
            warnings.warn_explicit(text, UserWarning, file or "<unknown>", int(line or 0))

    def _eager(self, args: Any, kwargs: Any, reason: str) -> Any:
        if not self._warned:
            self._refuse(Case(), reason)
        return self.function(*args, **kwargs)

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
    """The leaves of the arguments, and a hashable description of their nest."""
    if not kwargs and not any(a.__class__ in _CONTAINERS or hasattr(a, "_fields") for a in args):
        return list(args), len(args)
    leaves, spec = tree_flatten((args, kwargs))
    return leaves, _hashable(spec)


_CONTAINERS = frozenset((tuple, list, dict, OrderedDict, defaultdict))


def _hashable(spec: TreeSpec) -> Any:
    children = tuple(_hashable(child) for child in spec.children_specs)
    keys = tuple(spec.context[0]) if isinstance(spec.context, tuple) else spec.context
    return (spec.type, keys, children)


def _key(leaves: list[Any]) -> tuple[Any, ...]:
    seen: dict[int, int] = {}
    return tuple(
        (
            (leaf.raw.shape, leaf.raw.dtype, leaf._track, leaf._backend.name, seen.setdefault(id(leaf), i))
            if isinstance(leaf, Value)
            else (leaf.__class__, leaf)
        )
        for i, leaf in enumerate(leaves)
    )


def _holds(replay: Replay) -> bool:
    return all(guard.check() for guard in replay.recording.guards) and replay.fits()


def _broken(replay: Replay) -> list[str]:
    found = [guard.what for guard in replay.recording.guards if not guard.check()]
    return [f"{what} changed" for what in found] or ["the shape or dtype of a parameter changed"]
