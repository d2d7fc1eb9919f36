"""``capture``: call a model or function once, and return its computation as an editable graph.

Python runs as usual and every op is recorded, so loops are unrolled and branches are those taken. Parameters,
buffers, optimizer state and the random generator are restored after the call.

Next: ``recorder.py`` records, ``naming.py`` labels inputs, ``captured.py`` is the result.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TypeAlias

import numpy as np

from tenon.engine.types import Array, Nested
from tenon.errors import ArgumentError, CaptureError
from tenon.export import naming
from tenon.export.axes import declared_axes
from tenon.export.captured import CapturedGraph
from tenon.export.dynamic import at_example, example_symbols, from_least_sizes, merged, resized
from tenon.export.effects.state_writes import add_writes
from tenon.export.recorder import CaptureRecorder, Options
from tenon.export.signature import Leaf, Result, Signature, TensorArgument, check_returned
from tenon.export.simplify import drop_unread, simplify
from tenon.export.sizes import Sizes
from tenon.export.spelled_constants import spell_constants
from tenon.export.spelled_numbers import spell_numbers
from tenon.export.symbolic.branches import OtherBranchError, SameBranches, add_guards
from tenon.export.symbolic.samples import CHOICES, Choice, sample_sizes
from tenon.export.symbolic.size_tracing import SizeTracer, traced_sizes
from tenon.export.symbolic.traced_numbers import untraced
from tenon.graph import shape_requests
from tenon.graph.graph import Node
from tenon.random.generator import fork_rng
from tenon.tensors.autograd.grad_mode import enable_grad, no_grad
from tenon.tensors.precision import PRECISION
from tenon.tensors.pytree import TreeSpec, tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

#: The most calls that are made if calls create parameters of lazy modules or state of optimizers.
_ATTEMPTS = 3


def capture(
    function: Callable[..., Nested],
    *examples: Nested,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    train: bool = False,
    guards: bool = False,
    kwargs: Mapping[str, Nested] | None = None,
    whole: Set[str] | None = None,
    as_run: bool = False,
) -> CapturedGraph:
    """Call ``function(*examples, **kwargs)`` and return its graph; a module runs in the mode that it is in.

    Without ``train`` no gradients are recorded. With it, ``function`` is a whole training step, which zeroes
    gradients, runs forward and backward and steps an optimizer. New parameters and state are the graph's
    ``writes``; learning rates, other options and the number of the step are scalar inputs.

    A value of a tensor that Python reads (``if x.sum() > 0:``) raises CaptureError; with ``guards`` a
    decision by a boolean or an integer is kept as a condition that every run of the graph checks.

    ``dynamic`` names sizes that may change, by argument and axis: ``{"x": {0: "batch"}}``. The function then
    runs on examples of several sizes; it has to run the same ops, and integers that differ become expressions
    such as ``4*batch``. Sizes of arguments may be such expressions themselves: ``{"x": {0: "batch"}, "y":
    {0: "2*batch"}}``. Each run of the graph checks the sizes of its arguments.

    ``whole`` names composite ops, or kinds of them (``"contract"``), that are recorded as one call each; all
    others are recorded as their parts. None records all composites as one call.

    ``as_run`` is for analyses of this one run: Python may read values and change arguments, shapes may depend
    on values, nothing that ran is left out or merged, and ``graph.shape_requests`` has the sizes that code
    requested of reshape, split and slices. The graph is valid for these examples only, and has no guards.

    >>> import tenon
    >>> print(capture(lambda x: (x * 2).relu(), tenon.ones(3)))  # doctest: +ELLIPSIS
    %0: float32[3] = input  # x
    %1: float32[3] = mul(%0, 2.0)  # ...
    %2: float32[3] = relu(%1)  # ...
    return %2
    """
    if as_run and (guards or dynamic):
        raise ArgumentError(
            "as_run=True captures this one run, so it takes neither guards= nor dynamic=. Leave one out."
        )
    call = (examples, dict(kwargs or {}))
    return capture_call(function, call, dynamic, train, Options(guards, whole, as_run))


#: The positional and the other arguments of a call.
Call: TypeAlias = tuple[tuple[Nested, ...], dict[str, Nested]]
#: Makes the recorder of one call.
MakeRecorder: TypeAlias = Callable[[], CaptureRecorder]


def capture_call(
    function: Callable[..., Nested],
    call: Call,
    dynamic: Mapping[str, Mapping[int, str]] | None,
    train: bool,
    options: Options,
) -> CapturedGraph:
    """``capture`` with its options in one object."""
    make = functools.partial(CaptureRecorder, options)
    if dynamic:
        return captured_at_sizes(function, call, dynamic, train, make)
    return captured(function, call, train, make)


def captured(function: Callable[..., Nested], call: Call, train: bool, make: MakeRecorder) -> CapturedGraph:
    """Capture at the sizes of the arguments; ``make()`` returns the recorder of each call."""
    history: list[CaptureRecorder] = []
    with enable_grad() if train else no_grad():
        try:
            return _record_until_stable(history, function, call, make)
        finally:
            for recorder in reversed(history):
                recorder.undo()


def captured_at_sizes(
    function: Callable[..., Nested],
    call: Call,
    dynamic: Mapping[str, Mapping[int, str]],
    train: bool,
    make: MakeRecorder,
    choices: Sequence[Choice] = CHOICES,
) -> CapturedGraph:
    """Capture at several sizes, those of the first of ``choices`` that works, and merge the graphs."""
    leaves, spec = tree_flatten(call)
    names = naming.argument_names(function, *call)
    shapes = {
        name: leaf.raw.shape for name, leaf in zip(names, leaves, strict=True) if isinstance(leaf, Tensor)
    }
    axes = declared_axes(dynamic, shapes)

    def make_for_any_size() -> CaptureRecorder:
        recorder = make()
        recorder.any_size, recorder.free_axes = True, axes
        return recorder

    def capture_at(sizes: Sizes) -> CapturedGraph:
        arguments = tree_unflatten(resized(names, leaves, axes, sizes), spec)
        return captured(function, arguments, train, make_for_any_size)

    def spell(graphs: list[CapturedGraph], samples: Sequence[Sizes]) -> None:
        spell_constants(graphs, samples)
        spell_numbers(graphs, samples)

    def guarded(
        graphs: Sequence[CapturedGraph], samples: Sequence[Sizes], capture_alike: SameBranches
    ) -> CapturedGraph:
        graph = at_example(merged(graphs, samples, symbols, capture_alike, spell), symbols, axes, example)
        for sizes in add_guards(graph, samples):
            other = capture_alike.attempt(sizes)
            if other is not None:
                with contextlib.suppress(CaptureError):  # the guard remains
                    return guarded([*graphs, other], [*samples, sizes], capture_alike)
        return graph

    symbols = example_symbols(axes, shapes)
    example = [leaf.raw.copy() for leaf in leaves if isinstance(leaf, Tensor)]
    problem: Exception | None = None
    for samples in sample_sizes(symbols, axes, choices):
        capture_alike = SameBranches(capture_at)
        try:
            graphs = [capture_alike(sizes) for sizes in samples]
        except CaptureError as error:
            if not isinstance(error, OtherBranchError):
                raise
            problem = problem or error
            continue
        except Exception as error:  # an error of the model, of any type: other sizes may work
            problem = problem or error
            continue
        try:
            graph = guarded(graphs, samples, capture_alike)
            simplify(graph)
            return from_least_sizes(graph)
        except OtherBranchError as error:
            problem = problem or error
    if isinstance(problem, OtherBranchError):
        raise problem
    sizes = ", ".join(f"{name} = {symbol.example}" for name, symbol in symbols.items())
    raise CaptureError(
        f"the function fails at other sizes than the example's ({sizes}): {problem or 'there are too few'} "
        "Leave sizes out of dynamic= that may not change, or pass another example."
    ) from problem


def _record_until_stable(
    history: list[CaptureRecorder], function: Callable[..., Nested], call: Call, make: MakeRecorder
) -> CapturedGraph:
    """Record calls, which all start from the same state, until one creates no state or parameters."""
    expected: dict[int, np.ndarray] = {}
    for attempt in range(_ATTEMPTS):
        recorder = make()
        history.append(recorder)
        with fork_rng():
            graph = _record(recorder, function, call)
        # A function that builds modules of its own does so every time.
        if recorder.discard_reason is None and (attempt or not recorder.created_parameters()):
            recorder.check_numbers()
            _compare(recorder.present(), expected)
            return graph
        expected = recorder.present()
        recorder.undo(keep_states=True)
        recorder.reset_new_states()
    raise CaptureError(
        f"each of {_ATTEMPTS} calls created optimizer state ({recorder.discard_reason}). "
        "Make one step before the capture."
    )


def _compare(arrays: dict[int, np.ndarray], expected: dict[int, np.ndarray]) -> None:
    """Raise CaptureError unless a step from zero state computes what the optimizer's first step computed."""
    for key, array in expected.items():
        if key in arrays and not np.allclose(arrays[key], array, rtol=1e-5, atol=1e-7, equal_nan=True):
            raise CaptureError(
                "the first step of the optimizer differs from all later ones (with dampening, for example), "
                "so that no graph holds for both. Make one step before the capture."
            )


def _record(recorder: CaptureRecorder, function: Callable[..., Nested], call: Call) -> CapturedGraph:
    """Record one call."""
    leaves, spec = tree_flatten(call)
    _make_distinct(leaves)
    args, kwargs = tree_unflatten(leaves, spec)
    names = naming.argument_names(function, args, kwargs)
    try:
        with _region_inside(function) as inner:
            recorder.start()
            nodes = {
                index: recorder.argument(leaf, names[index])
                for index, leaf in enumerate(leaves)
                if isinstance(leaf, Tensor)
            }
            recorder.captured.example = [leaves[index].raw.copy() for index in nodes]
            with _requests_recorded(recorder), _sizes_traced(recorder):
                result = inner(*args, **kwargs)
        return _finish(recorder, function, nodes, (leaves, spec), result)
    finally:
        try:
            recorder.stop()
        finally:
            recorder.stop()  # the first may have been interrupted


@contextlib.contextmanager
def _region_inside(function: Callable[..., Nested]) -> Iterator[Callable[..., Nested]]:
    """Enter an active autocast region inside of ``function`` instead, so that its casts are recorded."""
    casting = PRECISION.casting
    if casting is None:
        yield function
        return
    inner = casting.around(function)
    with casting.disabled():
        yield inner


@contextlib.contextmanager
def _requests_recorded(recorder: CaptureRecorder) -> Iterator[None]:
    """Store the size requests in the graph, if it is captured ``as_run``."""
    if not recorder.options.as_run:
        yield
        return
    graph = recorder.captured
    with shape_requests.recorded_in(graph.shape_requests, lambda: len(graph.nodes)):
        yield


@contextlib.contextmanager
def _sizes_traced(recorder: CaptureRecorder) -> Iterator[None]:
    """Note what Python decides by the sizes of tensors, if these may change."""
    if not recorder.any_size:
        yield
        return
    with traced_sizes(SizeTracer(recorder)):
        yield


def _make_distinct(leaves: list[Leaf]) -> None:
    """Copy tensors among ``leaves`` that share memory with an earlier one: they are separate arguments."""
    known: list[Array] = []
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            continue
        if not isinstance(leaf.raw, np.ndarray):
            raise ArgumentError(
                f"an example is on {leaf.device}; graphs are captured on the CPU. Move model and examples "
                "there by .cpu()."
            )
        if any(np.may_share_memory(leaf.raw, other) for other in known):
            leaves[index] = leaf = leaf.detach().clone()
        known.append(leaf.raw)


def _finish(
    recorder: CaptureRecorder,
    function: Callable[..., Nested],
    nodes: dict[int, Node],
    call: tuple[list[Leaf], TreeSpec],
    result: Nested,
) -> CapturedGraph:
    """Complete the graph of a call that has returned ``result``."""
    graph = recorder.captured
    _refuse_effects(recorder)
    replaced = list(recorder.assigned.new_states(recorder))
    recorder.assigned.restore()
    flat, out_spec = tree_flatten(result)
    returned: list[Leaf] = []
    for leaf in flat:
        if isinstance(leaf, Tensor):
            returned.append(Result(len(graph.outputs)))
            graph.outputs.append(recorder.ref(leaf))
        else:
            if not recorder.options.as_run:
                check_returned(leaf)
            returned.append(untraced(leaf))
    add_writes(recorder, nodes, replaced)
    states = naming.label_states(recorder, function, {node.label for node in nodes.values()})
    aliases = naming.aliases_of(recorder, function, states)
    scalars = naming.label_scalars(recorder)
    graph.guards = list({(g.value, g.question, repr(g.other)): g for g in recorder.found_guards}.values())
    if recorder.any_size:
        drop_unread(graph)  # calls that agree at the sizes of this call only must not be merged
    elif not recorder.options.as_run:
        simplify(graph)
    present = {node.label for node in graph.nodes}
    leaves, in_spec = call
    graph.signature = Signature(
        in_spec,
        tuple(TensorArgument(nodes[i].label) if i in nodes else leaf for i, leaf in enumerate(leaves)),
        out_spec,
        tuple(returned),
        {label: kind for label, kind in states.items() if label in present},
        tuple(scalar for scalar in scalars if scalar.name in present),
        {name: label for name, label in aliases.items() if label in present},
    )
    graph.verify()
    return graph


def _refuse_effects(recorder: CaptureRecorder) -> None:
    """Raise CaptureError for side effects that no run of the graph would repeat."""
    if recorder.after:
        raise CaptureError(
            "a learning rate scheduler steps in the captured function. Call its step() outside: the learning "
            "rate is an input of every run."
        )
    for problem in filter(None, (check() for check in recorder.final_checks)):
        raise CaptureError(f"{problem}. Bring both into the captured function, or leave both out of it.")
