"""Writing into a tensor: ``copy_``, ``fill_``, ``zero_``, and random numbers in torch's order."""

from __future__ import annotations

from numbers import Number
from typing import Any

from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, DTypeError, GradError, ShapeError
from tenon.tensors.inplace import inplace
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.overlap import refuse_partial


class Fill:
    """In-place writes."""

    __slots__ = ()
    raw: Any

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """``src`` broadcast, cast and moved into this tensor."""
        if isinstance(src, Value) and src._backend is not self._backend:  # type: ignore[attr-defined]
            src = src.to(self.device)  # type: ignore[attr-defined]
        elif isinstance(src, Value) and (src._view is not None or self._view is not None):  # type: ignore[attr-defined]
            refuse_partial(self, src)
        return inplace(f.copy, self, src)

    @as_function(out="none")
    def fill_(self, value: Any) -> Any:
        """Every element set to ``value`` (a number or 0-d tensor)."""
        if isinstance(value, Value) and value.raw.ndim:
            raise ArgumentError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.raw.ndim}"
                " dimensions."
            )
        if not isinstance(value, (Value, Number)) and not hasattr(value, "__array__"):
            raise DTypeError(
                f"fill_() received an invalid argument: got {type(value).__name__}, expected a number or a"
                " 0-d tensor."
            )
        if isinstance(value, complex) and self.raw.dtype.kind != "c":
            raise DTypeError(f"value cannot be converted to type {self.dtype} without overflow")  # type: ignore[attr-defined]
        return self._filled(value, "FillBackward3" if isinstance(value, Value) else "FillBackward2")

    def _filled(self, value: Any, title: str) -> Any:
        before = self._node  # type: ignore[attr-defined]
        x: Any = self
        if self.raw.size and 0 in self.raw.strides:  # elements that lie at one place take the one value
            key = (0 if step == 0 else slice(None) for step in self.raw.strides)
            x = f.index(self, key=(*key, ...))
        inplace(f.copy, x, value)
        node = self._node  # type: ignore[attr-defined]
        if node is not None and node is not before and self._view is None:  # type: ignore[attr-defined]
            node.title = title
        return self

    @as_function(out="none")
    def zero_(self) -> Any:
        """Every element set to 0."""
        return self._filled(0, "ZeroBackward0")

    def apply_(self, callable: Any) -> Any:
        """Every number of this CPU tensor replaced by what ``callable`` makes of it: slow."""
        return self._each("apply_", callable)

    def map_(self, tensor: Any, callable: Any) -> Any:
        """As ``apply_``, of this tensor's number and the one of ``tensor`` at its place."""
        return self._each("map_", callable, tensor)

    def map2_(self, tensor1: Any, tensor2: Any, callable: Any) -> Any:
        """As ``map_``, with two tensors."""
        return self._each("map2_", callable, tensor1, tensor2)

    def new(self, *args: Any, **kwargs: Any) -> Any:
        """A new tensor of this dtype, as the constructor of its type makes it: of sizes, or of data."""
        from tenon.tensors.creation.create import legacy_tensor

        return legacy_tensor(type(self), args, kwargs, self.dtype)  # type: ignore[attr-defined]

    def dense_dim(self) -> int:
        """Number of axes: none is sparse."""
        return int(self.raw.ndim)

    def _each(self, name: str, function: Any, *others: Any) -> Any:
        x: Any = self
        if x.requires_grad or any(o.requires_grad for o in others):
            raise GradError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
            )
        if x.device.type != "cpu":
            raise TypeError("apply_, map_ and map2_ are only implemented on CPU tensors")
        for place, other in enumerate(others):
            if other.raw.dtype != self.raw.dtype:
                names = ("other",) if len(others) == 1 else ("x", "y")
                raise TypeError(
                    f"{name}: expected {x.type()} for '{names[place]}' (got {other.type()}); convert it."
                )
        lists = [t.expand(self.raw.shape).reshape(-1).tolist() for t in (x, *others)]
        result = [_number(function(*values), self.raw.dtype.kind) for values in zip(*lists, strict=True)]
        return x.copy_(x.new_tensor(result).reshape(self.raw.shape))

    def fill_diagonal_(self, fill_value: Any, wrap: bool = False) -> Any:
        """The main diagonal set to ``fill_value``; with ``wrap`` a tall matrix has one after the other, a row
        between them."""
        shape = self.raw.shape
        if len(shape) < 2:
            raise ShapeError(
                f"dimensions must larger than 1: fill_diagonal_ has no diagonal in {list(shape)}"
            )
        if len(shape) > 2 and len(set(shape)) > 1:
            raise ShapeError(f"all dimensions of input must be of equal length, got {list(shape)}")
        x: Any = self
        several = wrap and len(shape) == 2 and shape[0] > shape[1] + 1 > 1
        blocks = range(0, shape[0], shape[1] + 1) if several else ()
        for diagonal in [x[i : i + shape[1]] for i in blocks] or [x]:
            while diagonal.raw.ndim > 1:
                diagonal = diagonal.diagonal()
            diagonal.fill_(fill_value)
        return self

    def _draw(self, name: str, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
        """Fill with numbers of ``tenon.random``'s function ``name``."""
        from tenon.tensors.creation.filling import draw_into

        given = (self, name, args, kwargs, generator)
        if WATCHERS.around_creation is not None:
            return WATCHERS.around_creation(f"{name.rstrip('_')}_", draw_into, given, {})
        return draw_into(*given)

    def uniform_(self, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **kwargs: Any) -> Any:
        """Uniform numbers in ``[from, to)``."""
        low = kwargs.pop("from", from_)
        if low > to:
            raise ArgumentError(
                f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
            )
        return self._draw("uniform", low, to, generator=generator)

    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
        """Normal numbers."""
        if std < 0:
            raise ArgumentError(f"normal expects std >= 0.0, but found std {std}")
        return self._draw("normal", mean, std, generator=generator)

    def random_(self, *bounds: int | None, generator: Any = None, **named: Any) -> Any:
        """Uniform integers: ``random_()``, ``random_(to)`` or ``random_(from, to)``."""
        low, high = named.get("from"), named.get("to")
        if len(bounds) == 1:
            high = bounds[0]
        elif len(bounds) == 2:
            low, high = bounds
        return self._draw("random_", generator=generator, from_=low, to=high)

    def bernoulli_(self, p: Any = 0.5, *, generator: Any = None) -> Any:
        """1 with probability ``p`` (a number or a tensor), else 0."""
        return self._draw("bernoulli", p.raw if isinstance(p, Value) else p, generator=generator)

    def exponential_(self, lambd: float = 1.0, *, generator: Any = None) -> Any:
        """Exponential numbers of rate ``lambd``."""
        return self._draw("exponential", lambd, generator=generator)

    def geometric_(self, p: float, *, generator: Any = None) -> Any:
        """Geometric numbers of success probability ``p``."""
        return self._draw("geometric", p, generator=generator)

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> Any:
        """Cauchy numbers."""
        return self._draw("cauchy", median, sigma, generator=generator)

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Any:
        """Numbers whose logarithm is normal."""
        return self._draw("log_normal", mean, std, generator=generator)

    @as_function(out="converted", resizes=True)
    def bernoulli(self, p: float | None = None, *, generator: Any = None) -> Any:
        """0 or 1, each with the probability that this tensor (or ``p``) holds."""
        result = f.clone(f.contiguous(self))  # whose history gives a gradient of zeros, as in torch
        return result.bernoulli_(self.detach() if p is None else p, generator=generator)  # type: ignore[attr-defined]

    @as_function(out="exact", resizes=True)
    @watched_creation
    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Any:
        """Indices drawn with these (unnormalised) probabilities, by row."""
        from tenon.tensors.creation.filling import draw_multinomial

        return draw_multinomial(self, num_samples, replacement, generator)


def _number(result: Any, kind: str) -> Any:
    """What a function called for each element made, refused unless an array of ``kind`` holds it."""
    if kind in "iu" and not hasattr(result, "__index__"):
        if not isinstance(result, float):
            raise TypeError(f"'{type(result).__name__}' object cannot be interpreted as an integer")
        return int(result)
    if not isinstance(result, (Number, Value)) and not hasattr(result, "__float__"):
        raise TypeError(f"must be real number, not {type(result).__name__}")
    return result
