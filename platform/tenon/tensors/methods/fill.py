"""Writing into a tensor: ``copy_``, ``fill_``, ``zero_``, and random numbers in PyTorch's order."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenon.dtypes import bool as bool_
from tenon.dtypes import complex128, float64, int64
from tenon.engine.op import table as f
from tenon.engine.operands import wrong_type
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, DTypeError, GradError, ShapeError
from tenon.kernels.promotion import fitted
from tenon.tensors.inplace import inplace
from tenon.tensors.memory_overlap import refuse_partial
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.wrong_arguments import only_numbers

#: The dtype of a number of each class.
_WIDEST = {bool: bool_, int: int64, float: float64, complex: complex128}

if TYPE_CHECKING:
    from tenon.random.generator import Generator
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


class Fill(Family):
    """Methods that overwrite the elements, and random numbers with the tensor as their parameter."""

    __slots__ = ()

    def copy_(self, src: Tensor | Number, non_blocking: bool = False) -> Tensor:
        """Write ``src`` into this tensor and return it. ``src`` is broadcast to its shape, cast to its dtype
        and copied to its device."""
        if isinstance(src, Value):
            if src._backend is not self._backend:
                src = src.to(self.device)
            elif src._view is not None or self._view is not None:
                refuse_partial(self, src)
        elif src.__class__ is not float or self.raw.dtype.kind in "iu":  # cast as a tensor is
            if src is None:
                only_numbers(src)
            if isinstance(src, (int, float, complex)):
                src = self.new_tensor(src, dtype=_WIDEST.get(src.__class__, float64))
        return inplace(f.copy, self, src)

    @as_function(out="none")
    def fill_(self, value: Tensor | Number) -> Tensor:
        """Set every element to ``value``, a number or 0-d tensor."""
        if isinstance(value, Value) and value.raw.ndim:
            raise ArgumentError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.raw.ndim}"
                " dimensions."
            )
        if not isinstance(value, (Value, numbers.Number)) and not hasattr(value, "__array__"):
            raise DTypeError(
                f"fill_() received an invalid argument: got {type(value).__name__}, expected a number or a"
                " 0-d tensor."
            )
        if not isinstance(value, Value) and isinstance(value, (int, float, complex)):
            value = fitted(value, self.raw.dtype)
        return self._filled(value, "FillBackward3" if isinstance(value, Value) else "FillBackward2")

    def _filled(self, value: Tensor | Number, title: str) -> Tensor:
        """Write ``value`` into every element; ``title`` is the name of the gradient node."""
        before = self._node
        x: Tensor = self
        if self.raw.size and 0 in self.raw.strides:  # write elements that share memory once
            key = (0 if step == 0 else slice(None) for step in self.raw.strides)
            x = f.index(self, key=(*key, ...))
        inplace(f.copy, x, value)
        node = self._node
        if node is not None and node is not before and self._view is None:
            node.title = title
        return self

    @as_function(out="none")
    def zero_(self) -> Tensor:
        """Set every element to 0."""
        return self._filled(0, "ZeroBackward0")

    def apply_(self, callable: Callable[..., Number]) -> Tensor:
        """Replace every element of this CPU tensor by ``callable(element)``, one after the other in
        Python."""
        return self._each("apply_", callable)

    def map_(self, tensor: Tensor, callable: Callable[..., Number]) -> Tensor:
        """Replace every element by ``callable(element, element of tensor)``."""
        return self._each("map_", callable, tensor)

    def map2_(self, tensor1: Tensor, tensor2: Tensor, callable: Callable[..., Number]) -> Tensor:
        """Like ``map_``, with the elements of two tensors."""
        return self._each("map2_", callable, tensor1, tensor2)

    def new(self, *args: object, **kwargs: Any) -> Tensor:  # as the constructor ``Tensor`` takes them
        """A new tensor of this dtype, from sizes or data, as the constructor of its type creates it."""
        from tenon.tensors.creation.create import legacy_tensor

        return legacy_tensor(type(self), args, kwargs, self.dtype)

    def _each(self, name: str, function: Callable[..., Number], *others: Tensor) -> Tensor:
        """Overwrite every element with ``function`` of it and the elements of ``others``."""
        x: Tensor = self
        if x.requires_grad or any(o.requires_grad for o in others):
            raise GradError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
            )
        if x.device.type != "cpu":
            raise TypeError("apply_, map_ and map2_ are only implemented on CPU tensors")
        for position, other in enumerate(others):
            if other.raw.dtype != self.raw.dtype:
                names = ("other",) if len(others) == 1 else ("x", "y")
                raise TypeError(
                    f"{name}: expected {x.type()} for '{names[position]}' (got {other.type()}); convert it."
                )
        lists = [t.expand(self.raw.shape).reshape(-1).tolist() for t in (x, *others)]
        result = [_number(function(*values), self.raw.dtype.kind) for values in zip(*lists, strict=True)]
        return x.copy_(x.new_tensor(result).reshape(self.raw.shape))

    def fill_diagonal_(self, fill_value: Number, wrap: bool = False) -> Tensor:
        """Set the main diagonal to ``fill_value``; with ``wrap``, the diagonal of a tall matrix starts again
        after each ``columns + 1`` rows.

        Raises ShapeError for a vector, and for more than two axes of different sizes.
        """
        shape = self.raw.shape
        if len(shape) < 2:
            raise ShapeError(
                f"dimensions must larger than 1: fill_diagonal_ has no diagonal in {list(shape)}"
            )
        if len(shape) > 2 and len(set(shape)) > 1:
            raise ShapeError(f"all dimensions of input must be of equal length, got {list(shape)}")
        x: Tensor = self
        repeated = wrap and len(shape) == 2 and shape[0] > shape[1] + 1 > 1
        blocks = range(0, shape[0], shape[1] + 1) if repeated else ()
        for diagonal in [x[i : i + shape[1]] for i in blocks] or [x]:
            while diagonal.raw.ndim > 1:
                diagonal = diagonal.diagonal()
            diagonal.fill_(fill_value)
        return self

    def _draw(self, name: str, *args: object, generator: Generator | None = None, **kwargs: object) -> Tensor:
        """Fill with random numbers of the function ``name`` of ``tenon.random``."""
        from tenon.tensors.creation.random_filling import draw_into

        arguments = (self, name, args, kwargs, generator)
        if WATCHERS.around_creation is not None:
            return WATCHERS.around_creation(f"{name.rstrip('_')}_", draw_into, arguments, {})
        return draw_into(*arguments)

    def uniform_(
        self, from_: float = 0.0, to: float = 1.0, *, generator: Generator | None = None, **kwargs: float
    ) -> Tensor:
        """Fill with numbers of the uniform distribution over ``[from, to)``."""
        low, to = _real("uniform_", **{"from": kwargs.pop("from", from_), "to": to})
        if low > to:
            raise ArgumentError(
                f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
            )
        return self._draw("uniform", low, to, generator=generator)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers of the normal distribution with this mean and standard deviation."""
        mean, std = _real("normal_", mean=mean, std=std)
        if std < 0:
            raise ArgumentError(f"normal expects std >= 0.0, but found std {std}")
        return self._draw("normal", mean, std, generator=generator)

    def random_(self, *bounds: int | None, generator: Generator | None = None, **named: int | None) -> Tensor:
        """Fill with random integers from ``from`` up to but without ``to``: ``random_()``, ``random_(to)``
        or ``random_(from, to)``."""
        low, high = named.get("from"), named.get("to")
        if len(bounds) == 1:
            high = bounds[0]
        elif len(bounds) == 2:
            low, high = bounds
        return self._draw("random_", generator=generator, from_=low, to=high)

    def bernoulli_(self, p: Tensor | float = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Set each element to 1 with probability ``p``, a number or a tensor of probabilities, else to 0."""
        return self._draw("bernoulli", p.raw if isinstance(p, Value) else p, generator=generator)

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers of the exponential distribution of rate ``lambd``."""
        return self._draw("exponential", *_real("exponential_", lambd=lambd), generator=generator)

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Tensor:
        """Fill with numbers of the geometric distribution: trials until the first success, which has
        probability ``p``."""
        return self._draw("geometric", *_real("geometric_", p=p), generator=generator)

    def cauchy_(
        self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with numbers of the Cauchy distribution with this median and scale ``sigma``."""
        return self._draw("cauchy", *_real("cauchy_", median=median, sigma=sigma), generator=generator)

    def log_normal_(
        self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None
    ) -> Tensor:
        """Fill with numbers of the log-normal distribution: their logarithm has this mean and standard
        deviation."""
        return self._draw("log_normal", *_real("log_normal_", mean=mean, std=std), generator=generator)

    @as_function(out="converted", resizes=True)
    def bernoulli(self, p: float | None = None, *, generator: Generator | None = None) -> Tensor:
        """Return a tensor of zeros and ones, each 1 with the probability that this tensor has there, or
        ``p``."""
        result = f.clone(f.contiguous(self))  # whose history gives a gradient of zeros, as in PyTorch
        return result.bernoulli_(self.detach() if p is None else p, generator=generator)

    @as_function(out="exact", resizes=True)
    @watched_creation
    def multinomial(
        self, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
    ) -> Tensor:
        """Return ``num_samples`` indices drawn with the probabilities of this vector, or of each row of this
        matrix; they need not add up to 1. Without ``replacement``, no index is drawn twice."""
        from tenon.tensors.creation.random_filling import draw_multinomial

        return draw_multinomial(self, num_samples, replacement, generator)


def _real(method: str, **values: Any) -> list[Any]:  # numbers, or tensors of one
    """Return the arguments of ``method``, whose names are in order, as numbers; TypeError for a tensor that
    has axes or requires grad."""
    for position, (name, value) in enumerate(values.items(), 1):
        if isinstance(value, Value):
            if value.raw.ndim or value.requires_grad:
                raise wrong_type(method, name, position, value, "float")
            values[name] = value.item()
    return list(values.values())


def _number(result: object, kind: str) -> object:
    """Return ``result``, an int if arrays of ``kind`` hold integers; TypeError if they cannot hold it."""
    if kind in "iu" and not hasattr(result, "__index__"):
        if not isinstance(result, float):
            raise TypeError(f"'{type(result).__name__}' object cannot be interpreted as an integer")
        return int(result)
    if not isinstance(result, (numbers.Number, Value)) and not hasattr(result, "__float__"):
        raise TypeError(f"must be real number, not {type(result).__name__}")
    return result
