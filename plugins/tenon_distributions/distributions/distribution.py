"""The base class of all distributions: shapes, validation, expansion, and the methods that subclasses define.

A distribution object is a batch of distributions, one for each index into ``batch_shape``, over tensors of
``event_shape``. Subclasses declare ``arg_constraints`` (parameter name -> constraint) and ``support``, keep
their parameters as attributes whose leading axes are the batch shape, and define ``rsample`` or ``sample``
and ``log_prob``. Broadcasting (``_set_broadcast``), ``expand``, validation and ``repr`` follow and are
written here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import tenon
from tenon.errors import ArgumentError, UnsupportedError
from tenon.extend import verifying
from tenon_distributions.distributions import constraints
from tenon_distributions.distributions.utils import broadcast_all, lazy_property

if TYPE_CHECKING:
    from tenon import Size, Tensor

#: A parameter: a tensor, or also a number.
_P = TypeVar("_P")


class Distribution:
    """Base class of all distributions: ``torch.distributions.Distribution``."""

    # Any in the next two: a class attribute here, a property where it depends on another distribution.
    #: Whether ``rsample`` draws samples that are differentiable with respect to the parameters.
    has_rsample: Any = False
    #: Whether ``enumerate_support`` is defined.
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Set the default of ``validate_args``, which is True at first (False under ``python -O``)."""
        if value not in (True, False):
            raise ArgumentError(f"The default of validate_args must be True or False, got {value!r}.")
        Distribution._validate_args = value

    def __init__(
        self,
        batch_shape: Sequence[int] = (),
        event_shape: Sequence[int] = (),
        validate_args: bool | None = None,
    ) -> None:
        self._batch_shape, self._event_shape = tenon.Size(batch_shape), tenon.Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            with verifying():
                self._validate_parameters()

    if TYPE_CHECKING:
        # Parameters are attributes that ``_set_broadcast`` and constructors set, most of them tensors.
        def __getattr__(self, name: str) -> Any: ...

    def _set_broadcast(self, validate_args: bool | None, **parameters: Tensor | float) -> None:
        """Initialize a scalar distribution: broadcast its parameters to one shape, the batch shape."""
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

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:  # Any: mostly type(self)
        """Return the distribution with its parameters expanded, as views, to ``batch_shape``.

        Subclasses that override ``expand`` pass a new uninitialized object as ``_instance``.
        """
        package = Distribution.__module__.rpartition(".")[0]
        owner = next(c for c in type(self).__mro__ if c.__module__.startswith(f"{package}."))
        if owner is Distribution:
            raise UnsupportedError(f"{type(self).__name__} does not define expand(batch_shape).")
        new = self._get_checked_instance(owner, _instance)
        shape, axes = tenon.Size(batch_shape), len(self.batch_shape)
        for name, value in self.__dict__.items():
            if isinstance(value, Distribution):
                value = self._expand_component(name, value, shape)
            elif isinstance(value, tenon.Tensor) and not name.startswith("_"):
                value = value.expand(shape + value.shape[axes:])
            setattr(new, name, value)
        new._batch_shape = shape
        return new

    def _expand_component(self, name: str, part: Distribution, shape: Size) -> Distribution:
        """Expand the distribution ``part``, attribute ``name`` of this one, for the batch ``shape``."""
        return part.expand(shape)

    # An instance of the class of ``self``, in which subclasses set the attributes of their own.
    def _get_checked_instance(self, cls: type[Distribution], _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:
            raise UnsupportedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must"
                " also define a custom .expand() method."
            )
        return type(self).__new__(type(self)) if _instance is None else _instance

    @property
    def batch_shape(self) -> Size:
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """The constraint of each parameter, by the parameter's name."""
        raise UnsupportedError(f"{type(self).__name__} does not define arg_constraints.")

    @property
    def support(self) -> constraints.Constraint:
        """The set of values that samples can take."""
        raise UnsupportedError(f"{type(self).__name__} does not define support.")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise UnsupportedError(f"{type(self).__name__} does not define its mean.")

    @property
    def mode(self) -> Tensor:
        """The value of highest probability (density)."""
        raise UnsupportedError(f"{type(self).__name__} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The expected squared distance from the mean."""
        raise UnsupportedError(f"{type(self).__name__} does not define its variance.")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples of shape ``sample_shape + batch_shape + event_shape``, without gradients."""
        with tenon.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples that are differentiable by the parameters (Kingma and Welling, 2014)."""
        raise UnsupportedError(f"{type(self).__name__} has no reparametrised samples. Use sample().")

    def sample_n(self, n: int) -> Tensor:
        """Return ``sample((n,))``: PyTorch's deprecated name of it."""
        warnings.warn(
            "`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2
        )
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability density or mass at each ``value``."""
        raise UnsupportedError(f"{type(self).__name__} does not define log_prob.")

    def cdf(self, value: Tensor) -> Tensor:
        """Return the cumulative distribution function at ``value``."""
        raise UnsupportedError(f"{type(self).__name__} does not define its cdf.")

    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile function, the inverse of ``cdf``, at probability ``value``."""
        raise UnsupportedError(f"{type(self).__name__} does not define its icdf.")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all values of the support along a new first axis, before the batch axes.

        The batch axes have size 1 if ``expand`` is False.
        """
        raise UnsupportedError(f"{type(self).__name__} does not define enumerate_support.")

    def entropy(self) -> Tensor:
        """Return the entropy, the expected ``-log_prob``, of each distribution of the batch."""
        raise UnsupportedError(f"{type(self).__name__} does not define its entropy.")

    def perplexity(self) -> Tensor:
        """Return ``exp(entropy)``."""
        return tenon.exp(self.entropy())

    def _extended_shape(self, sample_shape: Sequence[int] = ()) -> Size:
        """The shape of samples: ``sample_shape + batch_shape + event_shape``."""
        return tenon.Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, tenon.Tensor):
            raise ArgumentError("The value argument to log_prob must be a Tensor")
        event_start = max(value.dim() - len(self._event_shape), 0)
        if value.shape[event_start:] != self._event_shape:
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
        with verifying():
            valid = bool(support.check(value).all())
        if not valid:
            raise ArgumentError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be "
                f"within the support ({support!r}) of the distribution {self!r}, but found invalid values:"
                f"\n{value}"
            )

    def _as_support(self, values: Tensor, expand: bool) -> Tensor:
        """Shape the vector ``values`` as ``enumerate_support`` of a scalar distribution returns it."""
        values = values.reshape(-1, *(1,) * len(self._batch_shape))
        return values.expand(-1, *self._batch_shape) if expand else values

    def __repr__(self) -> str:
        parameters = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        parts = [f"{name}: {v if v.numel() == 1 else v.shape}" for name, v in parameters.items()]
        return f"{type(self).__name__}({', '.join(parts)})"


def select_parameter(probs: _P | None, logits: _P | None) -> tuple[str, _P]:
    """Return the name and the value of the parameter that is given; ArgumentError if both or none are."""
    if probs is None and logits is not None:
        return "logits", logits
    if logits is None and probs is not None:
        return "probs", probs
    raise ArgumentError("Either `probs` or `logits` must be specified, but not both.")
