"""Custom ops with a gradient written by hand: ``Function``, PyTorch's contract.

``apply`` runs ``forward`` with gradients disabled and makes one node the ``grad_fn`` of its outputs; a
backward pass calls the class's ``backward`` with tensors. Tensors of ``save_for_backward`` are checked for
in-place changes and freed like any saved value; outputs are saved without their history, which avoids
reference cycles.
"""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from tenon.autograd import forward_ad
from tenon.autograd.error_nodes import DelayedError
from tenon.autograd.function_context import Context, FunctionCtx
from tenon.autograd.function_outputs import connected
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.op import table
from tenon.engine.tape import CustomNode, StandIn
from tenon.errors import DTypeError, GradError
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.plans import EngineBackend
    from tenon.engine.types import Gradient


class FunctionNode(CustomNode):
    """The ``grad_fn`` of the outputs of one ``Function.apply``; forwards attribute access to its context."""

    __slots__ = ()

    def __init__(
        self, function: type[Function], ctx: FunctionCtx, args: tuple[object, ...], backend: EngineBackend
    ) -> None:
        title = f"{function.__name__}Backward"
        super().__init__(StandIn(title, title, 0, simple=False, saves=("ctx",)), backend, args)
        self.__dict__["ctx"] = ctx
        self.__dict__["function"] = function
        self.__dict__["inputs"] = tuple(
            Aval(tuple(a.raw.shape), a.raw.dtype) if isinstance(a, Tensor) else None for a in args
        )
        self.__dict__["plain"] = frozenset[int]()  # indices of outputs that are not differentiable
        ctx._node = weakref.ref(self)

    def __getattr__(self, name: str) -> Any:  # whatever ``forward`` stored under this name
        if name.startswith("__") or name == "ctx":
            raise AttributeError(name)
        return getattr(self.ctx, name)

    def apply_tensors(self, grad: Gradient, create_graph: bool) -> list[Tensor | None]:
        """Return the gradients that the class's ``backward`` computes, checked."""
        ctx, function = self.ctx, self.function
        grads = [grad] if self.op.outputs == 1 else list(grad)
        if ctx.materialize_grads and any(g is None for g in grads):
            plain = () if ctx._materialize_non_diff_grads else self.plain
            grads = [
                self._zeros(a) if g is None and a is not None and i not in plain else g
                for i, (g, a) in enumerate(zip(grads, self.output_avals, strict=True))
            ]
        rule = function.backward
        if function.vjp is not Function.vjp:
            if rule is not Function.backward:
                raise GradError(
                    "Implementing both 'backward' and 'vjp' for a custom Function is not allowed:"
                    f" {self.op.name}."
                )
            rule = function.vjp
        returned = rule(ctx, *grads)
        return self._checked(returned if isinstance(returned, tuple) else (returned,))

    def apply_nothing(self, create_graph: bool) -> list[Tensor | None]:
        """Call ``apply_tensors`` with zeros, or with None if the function does not materialize gradients."""
        grads = [None] * len(self.output_avals)
        return self.apply_tensors(grads[0] if self.op.outputs == 1 else grads, create_graph)

    def _zeros(self, aval: Aval) -> Tensor:
        array = self.backend.raw.new_full(aval, shape=aval.shape, value=0, dtype=aval.dtype)
        result: Tensor = Tensor.make(array, self.backend)
        return result

    def _checked(self, grads: tuple[Tensor | None, ...]) -> list[Tensor | None]:
        """Return ``grads`` in the shapes and dtypes of the inputs; GradError if they cannot be theirs."""
        name, inputs = self.op.name, self.inputs
        if len(grads) > len(inputs) and all(g is None for g in grads[len(inputs) :]):
            grads = grads[: len(inputs)]
        if len(grads) != len(inputs):
            raise GradError(
                f"function {name} returned an incorrect number of gradients (expected {len(inputs)}, got"
                f" {len(grads)}): one for each argument of forward, None for those that are not"
                f" tensors{self._where()}."
            )
        result: list[Tensor | None] = []
        for position, (g, own, edge) in enumerate(zip(grads, inputs, self.edges, strict=True)):
            if g is not None and not isinstance(g, Tensor):
                raise DTypeError(
                    f"expected Variable or None (got {type(g).__name__}) as gradient {position} of {name}"
                )
            if own is None and g is not None:
                raise GradError(
                    f"function {name} returned a gradient different than None at position {position + 1}, but"
                    " the corresponding forward input was not a Variable"
                )
            result.append(
                None if g is None or edge is None or own is None else self._fitted(g, own, position)
            )
        return result

    def _fitted(self, g: Tensor, own: Aval, position: int) -> Tensor:
        """Return ``g`` summed to the shape of its input and cast to its dtype."""
        if tuple(g.raw.shape) != tuple(own.shape):
            shape = tuple(g.raw.shape)
            lead = len(shape) - len(own.shape)
            if lead < 0 or any(o not in (1, s) for o, s in zip(own.shape, shape[lead:], strict=True)):
                raise GradError(
                    f"Function {self.op.name} returned an invalid gradient at index {position} - got"
                    f" {list(shape)} but expected shape compatible with {list(own.shape)}{self._where()}"
                )
            g = table.sum_to(g, shape=tuple(own.shape))
        edge = self.edges[position]
        if edge is not None and edge[1] < 0 and "_grad_dtype" in edge[0].__dict__:
            return g
        return g if g.raw.dtype == own.dtype else table.cast(g, dtype=own.dtype)

    def release(self) -> None:
        """Drop the saved tensors."""
        self.ctx._freed = True
        self.ctx._saved = None

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{self.op.name} object at {id(self):#x}>"


class Function:
    """Base class of custom ops with a gradient written by hand (torch.autograd.Function).

    Derive a class with the static methods ``forward(ctx, ...)`` and ``backward(ctx, *grads)``, and call it as
    ``YourFunction.apply(...)``. If it defines ``setup_context(ctx, inputs, output)``, ``forward`` is called
    without ``ctx``.
    """

    #: Accepted as in PyTorch; ``func.vmap`` needs no rule, as it runs the function row by row.
    generate_vmap_rule: bool = False
    #: ``saved_tensors`` is cleared on first access, which frees memory within ``backward``.
    clear_saved_tensors_on_access: bool = False
    #: The class of this function's nodes, named after it.
    _backward_cls: type[FunctionNode] = FunctionNode
    #: The class of this function's contexts, named after it.
    _context_class: type[FunctionCtx] = FunctionCtx

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls._backward_cls = type(f"{cls.__name__}Backward", (FunctionNode,), {"__slots__": ()})
        cls._context_class = type(f"{cls.__name__}Context", (FunctionCtx,), {"_forward_cls": cls})

    def __init__(self, *args: object, **kwargs: object) -> None:
        warnings.warn(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static,"
            f" so you should invoke them on the class itself: {type(self).__name__}.apply(...).",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise an error: a Function is called by ``apply``, not through an instance."""
        raise GradError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style"
            f" autograd function with static forward method: {type(self).__name__}.apply(...)."
        )

    # ``Any`` in what a subclass overrides: it chooses its own parameters, and mypy refuses narrower ones.
    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:  # with ``ctx`` first, unless there is ``setup_context``
        """Compute the result; autograd does not record the ops in it."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:  # as ``forward`` has them
        """Save what ``backward`` needs in ``ctx``, after ``forward(*inputs)`` returned ``output``."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Any) -> Any:  # tensors or None, as many as ``forward`` has
        """Return the gradients of the arguments of ``forward`` from those of its outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it"
            " with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def vmap(info: object, in_dims: tuple[int | None, ...], *args: Any) -> Any:  # as ``forward`` has them
        """PyTorch's batching rule for ``func.vmap``, which does not call it: it runs the function row by
        row."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must define the vmap staticmethod."
        )

    @staticmethod
    def jvp(ctx: Context, *grad_inputs: Any) -> Any:  # tensors or None, as many as ``forward`` has
        """Return the tangents of the outputs from those of the inputs, for ``autograd.forward_ad``.

        Tangents are None for inputs that are not tensors. Without a ``jvp``, forward mode transposes
        ``backward``.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:  # as ``forward`` has them
        """Run ``forward``; return its outputs, connected to the graph."""
        separate = _is_separate(cls)
        if separate:
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        ctx = cls._context_class()
        needs = tuple(isinstance(a, Tensor) and bool(a.requires_grad) for a in args)
        ctx.needs_input_grad = needs
        tracked = MODE.enabled and any(needs)
        tangents = _tangents(cls, args) if forward_ad.is_active() else None
        forward, MODE.forward = MODE.forward, False
        try:
            with no_grad():
                if separate:
                    result = cls.forward(*args, **kwargs)
                    cls.setup_context(ctx, args, result)
                else:
                    result = cls.forward(ctx, *args, **kwargs)
        finally:
            MODE.forward = forward
        returned = result if isinstance(result, tuple) else (result,)
        # That of the outputs, where gradients arrive. None only without tensors: then nothing is tracked.
        backend: Any = next((a._backend for a in (*returned, *args) if isinstance(a, Tensor)), None)
        node = cls._backward_cls(cls, ctx, args, backend) if tracked else None
        tangents_out = (
            () if tangents is None else forward_ad.tangents_by_jvp(cls.jvp, ctx, args, tangents, returned)
        )
        outputs = connected(cls, ctx, node, args, returned)
        if tangents_out:
            forward_ad.attach_tangents(outputs, tangents_out)
        ctx.to_push = ()
        return outputs if isinstance(result, tuple) else outputs[0]

    @classmethod
    def _call_forward(cls, *args: object) -> Tensor:
        """Call ``forward`` with a new context, without connecting its output."""
        return cls.forward(*args) if _is_separate(cls) else cls.forward(cls._context_class(), *args)


def _is_separate(cls: type[Function]) -> bool:
    """Whether the class overrides ``setup_context``, so that ``forward`` takes no ``ctx``."""
    return cls.setup_context is not Function.setup_context


def _tangents(cls: type[Function], args: tuple[object, ...]) -> list[Tensor | None] | None:
    """Return the tangents of ``args`` for ``cls.jvp``, before ``forward`` may change any.

    None if no argument has one, or if ``backward`` is transposed as there is no ``jvp``.
    """
    tangents = forward_ad.tangents_of(args)
    if tangents is not None and cls.jvp is Function.jvp:
        if cls.backward is Function.backward and cls.vjp is Function.vjp:
            cls.jvp(None)  # raises, as there is neither
        return None
    return tangents


def once_differentiable(fn: Callable[..., object]) -> Callable[..., Any]:  # as a ``backward`` is declared
    """Decorate a ``backward`` that is not differentiable: differentiating its results raises."""

    @functools.wraps(fn)
    def wrapper(ctx: FunctionCtx, *args: object) -> object:
        with no_grad():
            outputs = fn(ctx, *args)
        if not MODE.enabled or not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            return outputs
        refused = _refused(outputs if isinstance(outputs, tuple) else (outputs,))
        return refused if isinstance(outputs, tuple) else refused[0]

    return wrapper


#: PyTorch's name of the class behind custom Functions' nodes.
BackwardCFunction = FunctionNode


class InplaceFunction(Function):
    """A Function with a flag ``inplace`` that lets ``forward`` modify its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


_TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"


def _refused(outputs: tuple[object, ...]) -> tuple[object, ...]:
    """Detach ``outputs`` and attach a node that raises when differentiated."""
    leaves = [o.detach().requires_grad_() if isinstance(o, Tensor) else None for o in outputs]
    aliases = DelayedError(_TWICE, len(leaves))(*leaves)
    return aliases if isinstance(aliases, tuple) else (aliases,)
