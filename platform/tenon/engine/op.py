"""Ops: shape rule, forward and gradient as one class, and the table that finds them by name.

A ``Primitive`` states ``infer`` (avals in, aval out), ``forward(xp, ...)`` over any NumPy-like
namespace, and one ``vjp_<input>`` rule per differentiable input. A ``Composite`` states
``decompose(f, ...)`` instead. Rules are pure functions of ``f``: with ``backend.raw`` they run on
bare arrays, with ``tenon.ops`` they are taped or recorded.

Contract of a rule: read only ``f``, arithmetic operators and attrs; inputs not named in ``saves``
arrive as avals (shape and dtype only); return a new array, ``g`` itself or a view of either.

An instance is the function: ``exp = Exp()`` registers itself as ``table.exp`` and is called as
``exp(t)``. Next: ``dispatch.py`` runs it, ``tape.py`` records it for autograd.
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tenon.engine.aval import Aval
from tenon.engine.interceptor import SLOT
from tenon.engine.op_table import table as table
from tenon.engine.sharding_rule import ShardingFacts, ShardingRule, pointwise
from tenon.engine.types import (
    Arguments,
    ArrayNamespace,
    Attr,
    Attrs,
    Operand,
    OpFunction,
    OpNamespace,
    OpResult,
)
from tenon.errors import ArgumentError, TenonError


class Kind(enum.Enum):
    """What an op does to its elements; passes and profilers group by it."""

    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    CONTRACT = "contract"
    CONVOLVE = "convolve"
    WINDOW = "window"
    MOVE = "move"
    INDEX = "index"
    CREATE = "create"
    RANDOM = "random"
    MEMORY = "memory"
    COLLECTIVE = "collective"
    COMPOSITE = "composite"


_MOVING = frozenset((Kind.MOVE, Kind.INDEX, Kind.CREATE, Kind.RANDOM, Kind.MEMORY, Kind.COLLECTIVE))


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Op(ShardingFacts):
    """Base of ``Primitive`` and ``Composite``; do not derive from it directly."""

    kind: ClassVar[Kind]
    #: Names of the array inputs, in order; a last name starting with ``*`` takes the rest.
    inputs: ClassVar[tuple[str, ...]] = ("x",)
    #: What the tape saves for the gradient rules: input names and/or ``"out"``.
    saves: ClassVar[tuple[str, ...]] = ()
    #: For ops whose rules read different values: input name -> what ``vjp_<input>`` reads of ``saves``. The
    #: tape then keeps only what the rules that will run read. Empty: every rule may read all of ``saves``.
    reads: ClassVar[dict[str, tuple[str, ...]]] = {}
    #: Visible outputs; 0 means a tuple whose length depends on the call.
    outputs: ClassVar[int] = 1
    #: Hidden outputs after the visible ones, kept for the gradient as ``residuals``.
    residuals: ClassVar[int] = 0
    #: ``vjp_joint`` recomputes them from ``saves`` where it gets none (with ``create_graph``).
    remakes: ClassVar[bool] = False
    #: A saved output that was modified in place is recomputed from the inputs, all of which ``saves`` names:
    #: PyTorch's rule does not read the output, so that it must not be an error.
    repeats: ClassVar[bool] = False
    #: None, "same" (arguments take their common dtype) or "float" (and integers become floats).
    promotion: ClassVar[str | None] = None
    #: Inputs before this one keep their dtype: a condition stays boolean.
    promoted_from: ClassVar[int] = 0
    #: A Python number that the common dtype cannot hold is an error; else it wraps around.
    numbers_fit: ClassVar[bool] = False
    #: Kernels take ``out``, which may be the first input where the others are numbers.
    overwrites: ClassVar[bool] = False
    #: Kernels take ``out``, which may be the first input if no other one shares its memory.
    in_place: ClassVar[bool] = False
    #: How many leading inputs propagate the channels_last memory format to the outputs.
    follows: ClassVar[int] = 0
    #: Outputs are C-contiguous, whatever the strides of the inputs.
    plain: ClassVar[bool] = False
    #: The output shares memory with the first input.
    view: ClassVar[bool] = False
    #: The output is on ``attrs["device"]``; ``transfer(x, **attrs)`` is the kernel on every backend.
    crosses: ClassVar[bool] = False
    #: The output may have an integer dtype, through which no gradient flows.
    integral: ClassVar[bool] = False
    # --- code generation: read by the compiler, its fusion and the code generators of backends ---

    #: One output element as a formula of the operands' ``a``, ``b``, ``c`` and the attrs, in the language of
    #: ``kernels/expressions.py``; None if there is none. Compiled programs fuse by it; a Primitive without
    #: ``forward`` or ``ufunc`` evaluates it. See ``expression_for``.
    expression: ClassVar[str | None] = None
    #: The result dtype is bool, whatever the operands' dtypes.
    boolean: ClassVar[bool] = False
    #: The expression is defined for floats only, which ``promotion = "float"`` implies.
    float_only: ClassVar[bool] = False
    #: For reductions over ``axes`` that can be fused into a cluster: the op that combines two elements,
    #: ``"add"`` for a sum and a mean.
    joined_by: ClassVar[str] = ""
    #: Returns the first operand's value where its shape and dtype do not change.
    identity: ClassVar[bool] = False
    #: Positions of operands whose buffers a compiled program may reuse for the output if this is their last
    #: use; None: all of an elementwise op, none of others.
    reuses: ClassVar[tuple[int, ...] | None] = None
    #: In which array inputs the op is linear: "", "jointly", "separately" or "first", see ``ShardingRule``.
    linear: ClassVar[str] = ""
    #: Divides by integer operands, so that it can raise (division by zero).
    checks_integers: ClassVar[bool] = False
    #: A matrix product: a backend may cache a large constant operand in a packed layout.
    packable: ClassVar[bool] = False
    #: Floats of 16 bits are computed in float32 and rounded once, where a backend has no kernel for them.
    computes_in_float32: ClassVar[bool] = False
    #: Beside 16-bit floats, a second operand that is a number (or 0-d, of another dtype) keeps the digits of
    #: float32, in which the op computes, as in PyTorch; numbers of other ops are rounded to 16 bits first.
    keeps_digits: ClassVar[bool] = False
    #: ``forward`` accepts ``out`` and writes into it.
    fills_out: ClassVar[bool] = False

    # --- names ---

    #: PyTorch's name for the node, as printed in ``grad_fn=<...>``.
    grad_name: ClassVar[str] = ""
    #: PyTorch's names of the node where some arguments are numbers: ``(True, False)`` if the first is one.
    grad_overloads: ClassVar[Mapping[tuple[bool, ...], str]] = {}
    #: Has gradient rules; an op without any is never taped.
    differentiable: bool

    # The public interface: read to generate Tensor's methods and tenon's functions, by autocast and by
    # grad_fn.

    #: ``x.name()`` and ``tenon.name(x, out=)`` exist. A handwritten method of that name takes precedence.
    public: ClassVar[bool] = False
    #: Aliases of the method and the function, as ``multiply`` of ``mul``.
    aliases: ClassVar[tuple[str, ...]] = ()
    #: What ``x.name_()`` calls to compute the value that it writes: the "op"; the "method" ``x.name()``,
    #: which checks more; "reals": the op for real operands, else the method. "" without an in-place form.
    inplace_form: ClassVar[str] = "op"
    #: ``tenon.name_(x)`` exists: for all names, for none, or for those listed.
    inplace_functions: ClassVar[bool | tuple[str, ...]] = False
    #: The second argument is a tensor, never a number.
    second_is_tensor: ClassVar[bool] = False
    #: Orders its operands; complex numbers, which have no order, raise an error.
    orders: ClassVar[bool] = False
    #: The first argument of ``tenon.name``: a "tensor"; also a "number" if another argument is a tensor;
    #: "numbers" may be all arguments.
    first_argument: ClassVar[str] = "tensor"
    #: Which dtype ``out=`` may have: "cast" (any that the result can be cast to), "kept" (the input's own,
    #: where the op keeps it) or "boolean".
    out: ClassVar[str] = "cast"
    #: The in-place form's node is named ``...Backward1``, as in PyTorch, not ``Backward0``.
    inplace_overload: ClassVar[bool] = False
    #: Aliases whose gradient node has a name of its own.
    alias_grad_names: ClassVar[Mapping[str, str]] = {}
    #: The dtype to which autocast casts the arguments: "" (no cast), "lower" (autocast's own),
    #: "float32", "float32 in space" (for three spatial axes only), "widest" (of the arguments), or an error:
    #: "refused: " and the reason.
    autocast: ClassVar[str] = ""
    #: The same on a GPU; None: as ``autocast``.
    autocast_cuda: ClassVar[str | None] = None
    #: PyTorch's names of a node's saved values that are no inputs or attrs -> how to read it off the node.
    saved_names: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    #: A view of the real or imaginary parts, of both as real numbers, or the reverse.
    splits_complex: ClassVar[bool] = False
    #: PyTorch has a function of lists of tensors, ``_foreach_<name>``.
    foreach: ClassVar[bool] = False
    #: PyTorch has a function that copies the view, ``<name>_copy``.
    copying_form: ClassVar[bool] = False

    name: str

    def __init__(self) -> None:
        self.name = (
            self.__dict__.get("name") or type(self).__dict__.get("name") or _snake(type(self).__name__)
        )
        self.__name__ = self.name
        self.__doc__ = type(self).__doc__
        self.variadic = bool(self.inputs) and self.inputs[-1].startswith("*")
        names = [n.lstrip("*") for n in self.inputs]
        self.save_mask = tuple(n in self.saves for n in names)
        self.saves_out = "out" in self.saves
        self.simple = self.outputs == 1 and self.residuals == 0 and not self.crosses
        plain = isinstance(self, Primitive) and type(self).forward is Primitive.forward
        self.is_ufunc = plain and self.simple and not self.view and getattr(self, "ufunc", None) is not None
        self.joint: OpFunction | None = getattr(self, "vjp_joint", None)
        self.rules: tuple[OpFunction | None, ...] = tuple(getattr(self, f"vjp_{n}", None) for n in names)
        self.differentiable = self.joint is not None or any(r is not None for r in self.rules)
        table.register(self)

    def reads_out(self, edges: Sequence[object]) -> bool:
        """Whether a rule that will run for these ``edges`` reads the output."""
        return self.saves_out and (
            not self.reads
            or any(
                e is not None and "out" in self.reads.get(n, self.saves)
                for n, e in zip(self.inputs, edges, strict=False)
            )
        )

    def saves_input(self, index: int) -> bool:
        """Whether the tape keeps the value of input ``index``."""
        return self.save_mask[min(index, len(self.save_mask) - 1)]

    def __call__(self, *args: Operand, **attrs: Attr) -> OpResult:
        """Run the op on tensors."""
        top = SLOT.top
        if top is not None:
            return top.run(self, args, attrs)
        count = len(args)
        if count == 1:
            return SLOT.single(self, args[0], attrs)
        if count == 2 and not attrs:
            return SLOT.pair(self, args[0], args[1])
        return SLOT.execute(self, args, attrs)

    def infer(self, *args: Operand, **attrs: Attr) -> OpResult:
        """Compute the avals of the visible outputs from those of the inputs; ShapeError if these mismatch."""
        raise NotInferable(self)

    def sharding_rule(self, *args: Operand, **attrs: Attr) -> ShardingRule | None:
        """How the axes of the results follow from those of the inputs, by their avals; None: not known."""
        return pointwise_rule(self, args, attrs) if self.kind is Kind.ELEMENTWISE else None

    def expression_for(self, args: Sequence[object], attrs: Mapping[str, object]) -> str | None:
        """The expression of a call. An array operand may be any object with its dtype, or ``...`` where that
        is not known yet."""
        return self.expression

    @functools.cached_property
    def defaults(self) -> Attrs:
        """The optional attrs and their default values."""
        states_attrs = self.decompose if isinstance(self, Composite) else self.infer
        return {
            p.name: p.default
            for p in inspect.signature(states_attrs).parameters.values()
            if p.kind is p.KEYWORD_ONLY and p.default is not p.empty
        }

    def view_of(self, index: int, **attrs: Attr) -> tuple[Op, Attrs]:
        """For ops that return several views: the single-output op and attrs that compute output ``index``."""
        raise ArgumentError(f"op {self.name} returns several views but defines no view_of.")

    def torch_name(self, args: Arguments, attrs: Attrs) -> str:
        """The name of the gradient node, as PyTorch prints it."""
        if self.grad_overloads:
            name = self.grad_overloads.get(tuple(not hasattr(a, "dtype") for a in args))
            if name is not None:
                return name
        return self.grad_name or "".join(p.capitalize() for p in self.name.split("_")) + "Backward0"

    def cost(self, *args: Operand, **attrs: Attr) -> float:
        """Floating-point operations of one call, from the avals of its inputs: by default one per output
        element, or per element of the largest input of a reduction; 0 where data only moves."""
        if self.kind in _MOVING:
            return 0.0
        if self.kind is Kind.REDUCE:
            return float(max((a.size for a in args if isinstance(a, Aval)), default=0))
        out = self.infer(*args, **attrs)
        return float(sum(o.size for o in out) if isinstance(out, tuple) else out.size)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> str | tuple[Callable[[str], Op], tuple[str]]:
        return (_find, (self.name,))

    def __deepcopy__(self, memo: object) -> Op:
        return self


def _find(name: str) -> Op:
    return table[name]


def pointwise_rule(op: Op, args: Arguments, attrs: Attrs) -> ShardingRule:
    """The sharding rule of an op whose results all have the broadcast shape of its inputs."""
    out = op.infer(*args, **attrs)
    shape, count = (out[0].shape, len(out)) if isinstance(out, tuple) else (out.shape, 1)
    return pointwise(args, tuple(shape), count + op.residuals, linear=op.linear)


class NotInferable(TenonError, TypeError):
    """The output shape of an op depends on its data, and was requested without data."""

    def __init__(self, op: Op) -> None:
        super().__init__(
            f"{op.name}: the output shape depends on the values, so it has no meta or shape-only form. "
            "Run it on a tensor with data."
        )


class Primitive(Op):
    """An op with its own ``forward``.

    ``ufunc`` names a function of the array namespace to be used as the forward directly: the bound kernel
    is then that function itself. An op with an ``expression`` needs neither.
    """

    ufunc: ClassVar[str | None] = None
    #: Computes ``expression`` on arrays of a namespace: ``expressions.evaluate``.
    evaluate: ClassVar[OpFunction]

    def forward(self, xp: ArrayNamespace, *args: Operand, **attrs: Attr) -> OpResult:
        """Compute the result over the NumPy-like namespace ``xp``."""
        if self.ufunc is None and self.expression is not None:
            return self.evaluate(table.by_name, xp, args, attrs)
        return getattr(xp, self.ufunc or self.name)(*args, **attrs)


class Composite(Op):
    """An op defined in terms of other ops.

    Runs as a single node if it has gradient rules (or the backend a kernel for it), else as its parts.
    With ``residuals``, ``decompose_with_residuals`` returns them after the outputs; second-order
    gradients are then computed through the parts.
    """

    kind = Kind.COMPOSITE
    #: The namespace whose kernels compute shapes only.
    shapes: ClassVar[OpNamespace]
    #: Computes 16-bit floats in float32 by itself, and decides which of its results are rounded.
    widens = False

    def __call__(self, *args: Operand, **attrs: Attr) -> OpResult:
        """Run the op on tensors."""
        top = SLOT.top
        if top is not None:
            return top.run(self, args, attrs)
        if self.differentiable:
            return SLOT.single(self, args[0], attrs) if len(args) == 1 else SLOT.execute(self, args, attrs)
        return SLOT.parts(self, args, attrs)

    def decompose(self, f: OpNamespace, *args: Operand, **attrs: Attr) -> OpResult:
        """Compute the op with the ops of the namespace ``f``."""
        raise TypeError(f"composite {self.name} defines no decompose; add it to {type(self).__module__}.")

    def raw_forward(self, f: OpNamespace, *args: Operand, **attrs: Attr) -> OpResult:
        """The forward of the op as a single node: ``decompose`` unless residuals are needed."""
        return self.decompose(f, *args, **attrs)

    def infer(self, *args: Operand, **attrs: Attr) -> OpResult:
        """Infer the avals by running ``decompose`` on the meta namespace."""
        return self.decompose(self.shapes, *args, **attrs)

    def cost(self, *args: Operand, **attrs: Attr) -> float:
        """The sum of its parts' costs."""
        return cost_of_parts(self, args, attrs)


def cost_of_parts(
    op: Composite, args: Arguments, attrs: Attrs, kinds: frozenset[Kind] | None = None
) -> float:
    """The cost of the parts of ``op`` (only those of ``kinds``, if given) from the avals of its inputs."""
    counting = _Counting(kinds)
    op.decompose(counting, *args, **attrs)
    return counting.total


def _in_parts(op: Composite, args: Arguments, attrs: Attrs) -> OpResult:
    return op.decompose(table, *args, **attrs)


SLOT.parts = _in_parts


class _Counting:
    """A namespace ``f`` that computes shapes only and adds up the cost of each op called."""

    def __init__(self, kinds: frozenset[Kind] | None) -> None:
        self.kinds = kinds
        self.total = 0.0

    def __getattr__(self, name: str) -> OpFunction:
        op, kernel = table[name], getattr(Composite.shapes, name)

        def call(*args: Operand, **attrs: Attr) -> OpResult:
            if any(isinstance(a, Aval) for a in args) and (self.kinds is None or op.kind in self.kinds):
                self.total += op.cost(*args, **attrs)
            return kernel(*args, **attrs)

        return call
