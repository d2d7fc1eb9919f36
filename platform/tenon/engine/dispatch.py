"""Dispatch one op: unwrap the tensors, call the backend's kernel, wrap the result, record it on the tape.

``run`` is the hot path of all eager execution. It does not repeat checks that the array library makes; when
a kernel fails, ``explain`` runs the op's shape rule to report the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from tenon import dtypes
from tenon.device import Device, get_default_device
from tenon.engine import scopes
from tenon.engine.aval import Aval, aval_of, no_loop
from tenon.engine.grad_mode import MODE, UNCOUNTED
from tenon.engine.inlining import inlined
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Op
from tenon.engine.operands import KIND_RANK, LEAST, MOST, RANK, need_operands, with_plain_numbers
from tenon.engine.plans import VIEW, EngineBackend, Plan
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.tape import Node, record, record_pair, record_single
from tenon.engine.types import Arguments, Array, Attrs, Operand, OpFunction, OpResult
from tenon.engine.value import INFERENCE_VIEW, NO_GRAD_VIEW, FixedView, Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import DeviceError, DTypeError, IndexRangeError, ShapeError, TenonError

_new = object.__new__
#: Finds the backend that serves a device, set by ``backends_are``.
_backend_for: Callable[[Device], EngineBackend]
#: Python types whose numbers an array of that kind holds without a wider dtype.
_HOLDS = {kind: frozenset(t for t in RANK if RANK[t] <= rank) for kind, rank in KIND_RANK.items()}
_INEXACT = frozenset("fcV")
_BFLOAT16, _FLOAT16 = dtypes.bfloat16.numpy, dtypes.float16.numpy
#: Values of ``Op.promotion`` that do not convert integer inputs of one dtype.
_KEEPS_INTEGERS = frozenset((None, "same", "equal"))
_NO_ATTRS: Attrs = {}
#: Exceptions that kernels raise for invalid arguments; ``explain`` translates them.
_FAILURES = (ValueError, TypeError, IndexError, AttributeError, RuntimeError, OverflowError)


def backends_are(find: Callable[[Device], EngineBackend]) -> None:
    """Find the backend of a device by ``find(device)``, for ops that no tensor argument places."""
    global _backend_for
    _backend_for = find


def finish(
    plan: Plan, backend: EngineBackend, out: Array, tracked: bool, record: Callable[[], Node | None]
) -> Value:
    """Wrap ``out``, a kernel's only result, as a tensor; if ``tracked``, ``record()`` adds its tape node.

    ``@inlined`` substitutes this body for the calls below: as calls they take 0.1 us an op.
    """
    if out.__class__ is not backend.array_type:
        out = backend.as_array(out)
    t: Any = _new(plan.result)  # of a class of tensors
    t.raw = out
    t._backend = backend
    t._index = 0
    t._view = None
    t._version_counter = MODE.counter
    if tracked and plan.gradient and MODE.enabled and (plan.gradient is True or out.dtype.kind in _INEXACT):
        t._node = node = record()
        t._track = node is not None
        if plan.saves_out:
            _keep_output(plan.op, node, t)
        if WATCHERS.taped is not None and node is not None:
            WATCHERS.taped(node)
    else:
        t._node = None
        t._track = False
    return t


@inlined(finish)
def run(op: Op, args: Arguments, attrs: Attrs, compute: OpFunction | None = None) -> OpResult:
    """Execute ``op`` on any arguments; return a tensor, or a tuple of them for several outputs.

    ``compute(kernel, *arrays, **attrs)``, if given, is called instead of the kernel.
    """
    raw: list[Operand] = []
    backend: Any = None  # an EngineBackend after the first tensor
    kind: Any = None  # its NumPy dtype
    track = mixed = False
    number = -1
    for a in args:
        if isinstance(a, Value):
            r = a.raw
            raw.append(r)
            if a._track or (a._view is not None and a._stale()):
                track = True
            if backend is None:
                backend = a._backend
                kind = r.dtype
            elif a._backend is not backend:
                return run(op, _on_one_device(op, args), attrs, compute)
            elif r.dtype is not kind:
                mixed = True
        else:
            raw.append(a)
            rank = RANK.get(a.__class__)
            if rank is not None:
                number = rank if rank > number else number
                if rank == 1 and not LEAST <= a <= MOST:
                    mixed = True  # ``unify`` raises the error
            elif a is not None:
                return run(op, with_plain_numbers(op, args), attrs, compute)
    if backend is None:
        need_operands(op, args)
        backend = _backend_for(get_default_device())
        mixed = True
    plan = backend.plans[op]
    if (promotion := plan.promotion) is not None and (
        mixed
        or (number >= 0 and number > KIND_RANK[kind.kind] and (kind is not _BFLOAT16 or not _keeps(op, args)))
        or (promotion not in _KEEPS_INTEGERS and kind.kind not in _INEXACT)
    ):
        unified = plan.unify(op, args)
        if any(u is not a for u, a in zip(unified, args, strict=True)):
            args = unified
            raw = [a.raw if isinstance(a, Value) else a for a in args]
            kind = next((r.dtype for r in raw if hasattr(r, "dtype")), kind)
    if kind is None:
        raw = [backend.xp.asarray(r) if r.__class__ in RANK else r for r in raw]

    token = enter(IGNORE)
    try:
        short = kind is _BFLOAT16 or kind is _FLOAT16
        if plan.residuals and not (track and MODE.enabled):
            kernel = plan.short_value_kernel if short else plan.value_kernel
        else:
            kernel = plan.short_kernel if short else plan.kernel
        kernel = kernel if compute is None else partial(compute, kernel)
        layout = plan.layout
        out = layout(kernel, raw, attrs) if layout else kernel(*raw, **attrs) if attrs else kernel(*raw)
    except _FAILURES as error:
        if error.__class__ is OverflowError and promotion is not None and number == 1:
            # PyTorch wraps a number that the dtype cannot hold
            return run(op, plan.unify(op, args), attrs, compute)
        explain(op, raw, attrs, error)
    finally:
        leave(token)
    if kind is _BFLOAT16 and promotion is not None and out.dtype.kind == "f":
        out = out.astype(kind)  # NumPy widens it with a Python number; PyTorch rounds the result
    if not plan.new_array:
        return _view_or_several(plan, backend, out, track, args, raw, attrs)
    t = finish(plan, backend, out, track, lambda: record(plan, backend, args, raw, attrs))
    return t


@inlined(finish)
def pair(op: Op, x: object, y: Any) -> OpResult:  # a tensor or number
    """``run(op, (x, y), {})`` unrolled for tensors of one dtype, or a number ``y`` that it can hold.

    On 4x4 arrays an addition takes 0.95 us instead of 1.3, and 2.1 instead of 2.9 if it is taped.
    """
    if not isinstance(x, Value):
        return run(op, (x, y), _NO_ATTRS)
    backend, r = x._backend, x.raw
    kind, plan = r.dtype, backend.plans[op]
    letter = kind.kind
    if isinstance(y, Value):
        s = y.raw
        if s.dtype is not kind or y._backend is not backend or (plan.layout and not r.flags.c_contiguous):
            return run(op, (x, y), _NO_ATTRS)
        track = y._track or (y._view is not None and y._stale())
    else:
        number = y.__class__
        if number not in _HOLDS[letter] or (number is int and not LEAST <= y <= MOST):
            return run(op, (x, y), _NO_ATTRS)
        s, track = y, False
    if x._track or (x._view is not None and x._stale()):
        track = True
    if plan.arity != 2 or kind is _BFLOAT16 or kind is _FLOAT16:
        return run(op, (x, y), _NO_ATTRS)
    if letter not in _INEXACT and plan.promotion not in _KEEPS_INTEGERS:
        return run(op, (x, y), _NO_ATTRS)
    token = enter(IGNORE)
    try:
        out = plan.kernel(r, s)
    except _FAILURES as error:
        if error.__class__ is OverflowError and s is y:
            return run(op, plan.unify(op, (x, y)), _NO_ATTRS)  # as in ``run``
        explain(op, [r, s], _NO_ATTRS, error)
    finally:
        leave(token)
    t = finish(
        plan, backend, out, track,
        lambda: record(plan, backend, (x, y), [r, s], _NO_ATTRS)
        if s is y
        else record_pair(plan, backend, x, y, _NO_ATTRS),
    )  # fmt: skip
    return t


@inlined(finish)
def single(op: Op, x: object, attrs: Attrs) -> OpResult:
    """``run(op, (x,), attrs)`` unrolled for ops with one input and one output, an array or a view."""
    if not isinstance(x, Value):
        return run(op, (x,), attrs)
    backend, r = x._backend, x.raw
    kind, plan = r.dtype, backend.plans[op]
    if plan.arity != 1 or kind is _BFLOAT16 or kind is _FLOAT16:
        return _view(plan, x, attrs) if plan.arity == VIEW else run(op, (x,), attrs)
    if kind.kind not in _INEXACT and plan.promotion not in _KEEPS_INTEGERS:
        return run(op, (x,), attrs)
    token = enter(IGNORE)
    try:
        out = plan.kernel(r, **attrs) if attrs else plan.kernel(r)
    except _FAILURES as error:
        explain(op, [r], attrs, error)
    finally:
        leave(token)
    t = finish(
        plan, backend, out,
        x._track or (x._view is not None and x._stale()),
        lambda: record_single(plan, backend, x, attrs),
    )  # fmt: skip
    return t


@inlined(finish)
def _view(plan: Plan, x: Value, attrs: Attrs) -> Value:
    """``run(op, (x,), attrs)`` unrolled for ops that return one view of one input: 1.3 us instead of 2.0."""
    backend = x._backend
    try:
        out = plan.kernel(x.raw, **attrs)
    except _FAILURES as error:
        explain(plan.op, [x.raw], attrs, error)
    t = finish(
        plan, backend, out,
        x._track or (x._view is not None and x._stale()),
        lambda: record_single(plan, backend, x, attrs),
    )  # fmt: skip
    _link_view(plan.op, attrs, x, t)
    return t


SLOT.execute, SLOT.pair, SLOT.single = run, pair, single


def _keeps(op: Op, args: Arguments) -> bool:
    """Whether the kernel of ``op`` takes its number as it is beside bfloat16: 1.5 us less."""
    return op.keeps_digits and isinstance(args[0], Value) and args[1].__class__ is not complex


def _view_or_several(
    plan: Plan,
    backend: EngineBackend,
    out: Operand,
    track: bool,
    args: Arguments,
    raw: list[Operand],
    attrs: Attrs,
) -> OpResult:
    """Finish ``run`` for an op that returns a view, a result on another device, or several outputs."""
    op = plan.op
    if op.simple:
        t = finish(plan, backend, out, track, lambda: record(plan, backend, args, raw, attrs))
        if isinstance(args[0], Value):
            _link_view(op, attrs, args[0], t)
        return t
    node = None
    if track and plan.gradient and MODE.enabled and (plan.gradient is True or out.dtype.kind in _INEXACT):
        node = record(plan, backend, args, raw, attrs)
    return _wrap_several(op, backend, out, node, args, attrs)


def _keep_output(op: Op, node: Node | None, t: Value) -> None:
    """Save ``t``, the output of ``node``, and its version if a gradient rule that will run reads it."""
    if node is not None and (not op.reads or op.reads_out(node.edges)):
        node.out = t.raw
        node.out_counter = t._version_counter = [0]


def _link_view(op: Op, attrs: Attrs, parent: Value, view: Value) -> None:
    """Make ``view`` share ``parent``'s version counter, and record the op and attrs that replay it."""
    out, source = view.raw, parent.raw
    if out is not source:
        owner = out.base
        if owner is None or not (  # reading the owner first saves 0.3 us of comparing addresses
            owner is source or owner is source.base or parent._backend.shares_memory(out, source)
        ):
            return
    counter = parent._version_counter
    if counter is None:
        counter = parent._version_counter = [0]
    view._version_counter = counter
    if counter is UNCOUNTED:
        return  # neither inference tensors nor their views keep a history
    base = parent if parent._view is None else parent._view[0]
    made_by: Op | FixedView = op
    if base._track and not view._track and not MODE.enabled:
        made_by = FixedView(INFERENCE_VIEW if MODE.inference else NO_GRAD_VIEW)
        view._track = MODE.inference and parent._track
    view._view = [base, parent, made_by, attrs, counter[0]]


def _wrap_several(
    op: Op, backend: EngineBackend, out: Operand, node: Node | None, args: Arguments, attrs: Attrs
) -> OpResult:
    if op.crosses:
        backend, out = _backend_for(attrs["device"]), (out,)
        if node is not None:
            node.backend = backend  # its gradient arrives there
    visible = op.outputs or len(out)
    if node is not None:
        if op.residuals:
            node.residuals = tuple(out[visible:])
        node.output_avals = tuple(Aval(o.shape, o.dtype) for o in out[:visible])
    tensors = []
    array_type, is_view, counter, saves_out = backend.array_type, op.view, MODE.counter, op.saves_out
    result = backend.tensor_type or Value.plain
    for index, o in enumerate(out[:visible] if len(out) > visible else out):
        t = _new(result)
        r: Array = o if o.__class__ is array_type else backend.as_array(o)
        t.raw = r
        t._backend = backend
        t._index = 0
        t._node = t._view = None
        t._track = False
        t._version_counter = counter
        if node is not None and r.dtype.kind in _INEXACT:
            t._node, t._index, t._track = node, index, True
            if saves_out and index == 0:
                node.out = r
                node.out_counter = t._version_counter = [0]
        if is_view:
            single_op, single_attrs = op.view_of(index, **attrs)
            _link_view(single_op, single_attrs, args[0], t)
            if t._view is not None and MODE.enabled:
                t._view.append((op, index))
        tensors.append(t)
    if WATCHERS.taped is not None and node is not None:
        WATCHERS.taped(node)
    return tensors[0] if op.outputs == 1 else tuple(tensors)


def _on_one_device(op: Op, args: Arguments) -> Arguments:
    """Move 0-d CPU tensors to the device of the others, as PyTorch allows; DeviceError for anything else."""
    tensors = [a for a in args if isinstance(a, Value)]
    for backend in {id(t._backend): t._backend for t in tensors}.values():
        gathered = backend.gather_arguments(op, args)
        if gathered is not None:
            return gathered
    targets = {str(t.device): t.device for t in tensors if not (t.raw.ndim == 0 and t.device.type == "cpu")}
    if len(targets) != 1:
        raise DeviceError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted({str(t.device) for t in tensors}))}! {op.name} got "
            + ", ".join(f"{list(t.raw.shape)} on {t.device}" for t in tensors)
            + f"{scopes.suffix()}. Move them with .to(device)."
        )
    target = next(iter(targets.values()))
    return tuple(a.to(target) if any(a is t for t in tensors) and a.device != target else a for a in args)


def explain(op: Op, raw: list[Operand], attrs: Attrs, error: Exception) -> NoReturn:
    """Raise the error of the shape rule if it has one, else the kernel's ``error`` as a TenonError."""
    if isinstance(error, TenonError):
        raise error
    avals = [aval_of(r) for r in raw]
    arguments = ", ".join(map(repr, avals)) + "".join(f", {k}={v!r}" for k, v in attrs.items())
    try:
        op.infer(*avals, **attrs)
    except TenonError as refused:
        raise refused from None
    except (
        Exception
    ) as second:  # the rule itself failed on these arguments: show the kernel's error, keep this one too
        error.add_note(f"(shape rule of {op.name} also failed: {second})")
    if isinstance(error, IndexError):
        raise IndexRangeError(f"{op.name}({arguments}): {error}") from error
    if isinstance(error, TypeError) and "ufunc" in str(error) and avals:
        raise no_loop(op.name, avals[0].dtype, arguments) from error
    if isinstance(error, TypeError):
        raise DTypeError(
            f"{op.name}({arguments}): {error}. Check the dtypes, or cast with .to(dtype)."
        ) from error
    if isinstance(error, ValueError):
        raise ShapeError(f"{op.name}({arguments}): {error}") from error
    raise error
