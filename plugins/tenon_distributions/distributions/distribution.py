"""What all distributions have in common: shapes, validation, expansion, and what subclasses fill in.

A distribution over tensors of ``event_shape``, one for every place of ``batch_shape``. Subclasses declare
``arg_constraints`` (parameter name -> constraint) and ``support``, hold their parameters as attributes that
begin with the batch shape, and define ``rsample`` or ``sample`` and ``log_prob``. Broadcasting (``_spread``),
``expand``, validation and ``repr`` follow from that and are written here once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tenon
from tenon.errors import ArgumentError, UnsupportedError
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.utils import broadcast_all, lazy_property

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon.extend import Size


class Distribution:
    """Base of all distributions: ``torch.distributions.Distribution``."""

    #: ``rsample`` draws with gradients by the parameters.
    has_rsample: Any = False
    #: ``enumerate_support`` lists all values.
    has_enumerate_support: Any = False
    _validate_args: Any = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check parameters and samples where nobody says; on at first (off by -O)."""
        if value not in (True, False):
            raise ArgumentError(f"The default of validate_args must be True or False, got {value!r}.")
        Distribution._validate_args = value

    def __init__(
        self, batch_shape: Size = (), event_shape: Any = (), validate_args: bool | None = None
    ) -> None:
        self._batch_shape, self._event_shape = tenon.Size(batch_shape), tenon.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._validate_parameters()

    if TYPE_CHECKING:  # Parameters are attributes that ``_spread`` sets.

        def __getattr__(self, name: str) -> Any: ...

    def _spread(self, validate_args: bool | None, **parameters: Any) -> None:
        """Begin a distribution of single numbers: its parameters, of one shape, which is the batch shape."""
        for name, value in zip(parameters, broadcast_all(*parameters.values()), strict=True):
            setattr(self, name, value)
        shape = getattr(self, next(iter(parameters))).shape
        Distribution.__init__(self, shape, validate_args=validate_args)

    def _validate_parameters(self) -> None:
        try:
            declared = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, constraint in declared.items():
            lazy = isinstance(getattr(type(self), name, None), lazy_property)
            if constraints.is_dependent(constraint) or (lazy and name not in self.__dict__):
                continue  # unknown before sampling, or computed from the parameter that was given
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ArgumentError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of "
                    f"distribution {self!r} to satisfy the constraint {constraint!r}, but found invalid "
                    f"values:\n{value}"
                )

    def expand(self, batch_shape: Size | Sequence[int], _instance: Any = None) -> Any:
        """The same distribution over a larger batch; parameters become views.

        ``_instance`` is for subclasses that define ``expand``: the new object, begun by them.
        """
        package = Distribution.__module__.rpartition(".")[0]
        owner = next(c for c in type(self).__mro__ if c.__module__.startswith(f"{package}."))
        if owner is Distribution:
            raise UnsupportedError(f"{type(self).__name__} does not define expand(batch_shape).")
        new = self._get_checked_instance(owner, _instance)
        shape, axes = tenon.Size(batch_shape), len(self.batch_shape)
        for name, value in self.__dict__.items():
            if isinstance(value, Distribution):
                value = self._expand_part(name, value, shape)
            elif isinstance(value, tenon.Tensor) and not name.startswith("_"):
                value = value.expand(shape + value.shape[axes:])
            setattr(new, name, value)
        new._batch_shape = shape
        return new

    def _expand_part(self, name: str, part: Distribution, shape: Size) -> Any:
        """The distribution that this one holds under ``name``, for the batch ``shape``."""
        return part.expand(shape)

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:
            raise UnsupportedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must"
                " also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """How many distributions there are, by axes."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one value."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """What parameters have to satisfy, by their names."""
        raise UnsupportedError(f"{type(self).__name__} does not define arg_constraints.")

    @property
    def support(self) -> Any:
        """The set of possible values."""
        raise UnsupportedError(f"{type(self).__name__} does not define support.")

    @property
    def mean(self) -> Any:
        """The expected value."""
        raise UnsupportedError(f"{type(self).__name__} does not define its mean.")

    @property
    def mode(self) -> Any:
        """The most probable value."""
        raise UnsupportedError(f"{type(self).__name__} does not implement mode")

    @property
    def variance(self) -> Any:
        """The expected squared distance from the mean."""
        raise UnsupportedError(f"{type(self).__name__} does not define its variance.")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Values of shape ``sample_shape + batch_shape + event_shape``, without gradients."""
        with tenon.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Any:
        """Values that depend on the parameters differentiably (Kingma and Welling, 2014)."""
        raise UnsupportedError(f"{type(self).__name__} has no reparametrised samples. Use sample().")

    def sample_n(self, n: int) -> Any:
        """``sample((n,))``; older PyTorch's name."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2
        )
        return self.sample((n,))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density (or probability) at ``value``, for each value of the batch."""
        raise UnsupportedError(f"{type(self).__name__} does not define log_prob.")

    def cdf(self, value: Any) -> Any:
        """The probability of numbers up to ``value``."""
        raise UnsupportedError(f"{type(self).__name__} does not define its cdf.")

    def icdf(self, value: Any) -> Any:
        """The number up to which lies the probability ``value``."""
        raise UnsupportedError(f"{type(self).__name__} does not define its icdf.")

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values along a new first axis; the batch axes follow, of size 1 for ``expand=False``."""
        raise UnsupportedError(f"{type(self).__name__} does not define enumerate_support.")

    def entropy(self) -> Any:
        """The expected ``-log_prob``, for each place of the batch."""
        raise UnsupportedError(f"{type(self).__name__} does not define its entropy.")

    def perplexity(self) -> Tensor:
        """``exp(entropy)``."""
        return tenon.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return tenon.Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, tenon.Tensor):
            raise ArgumentError("The value argument to log_prob must be a Tensor")
        first = value.dim() - len(self._event_shape)
        if value.shape[max(first, 0) :] != self._event_shape:
            raise ArgumentError(
                f"The right-most size of value must match event_shape: {value.shape} vs {self._event_shape}."
            )
        expected = self._extended_shape()
        for i, j in zip(reversed(value.shape), reversed(expected), strict=False):
            if i not in (1, j) and j != 1:
                raise ArgumentError(
                    f"Value is not broadcastable with batch_shape+event_shape: {value.shape} vs {expected}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not support.check(value).all():
            raise ArgumentError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                f"within the support ({support!r}) of the distribution {self!r}, but found invalid values:"
                f"\n{value}"
            )

    def _listed(self, values: Tensor, expand: bool) -> Tensor:
        """``values`` of a distribution of single numbers as ``enumerate_support`` gives them."""
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def __repr__(self) -> str:
        shown = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        parts = [f"{name}: {v if v.numel() == 1 else v.shape}" for name, v in shown.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


def given_once(probs: Tensor | None, logits: Tensor | None) -> None:
    """Refuse two parametrisations, and none."""
    if (probs is None) == (logits is None):
        raise ArgumentError("Either `probs` or `logits` must be specified, but not both.")
