"""The Kullback-Leibler divergence of two distributions, and the registry of its rules.

``register_kl(P, Q)`` adds a rule for two classes; a pair of distributions uses the rule of its most derived
registered base classes. Rules for one family are in ``kl_same_family.py``, for two in
``kl_across_families.py``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import tenon
from tenon.errors import ArgumentError, UnsupportedError
from tenon_distributions.distributions.exp_family import ExponentialFamily
from tenon_distributions.distributions.utils import _sum_rightmost

if TYPE_CHECKING:
    from tenon import Tensor
    from tenon_distributions.distributions.distribution import Distribution

Rule = TypeVar("Rule", bound=Callable[..., "Tensor"])
_KL_REGISTRY: dict[tuple[type, type], Callable[..., Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """Decorate ``f(p, q)``, which returns the divergence of a ``type_p`` from a ``type_q``."""
    for cls in (type_p, type_q):
        if not isinstance(
            cls, type
        ):  # not only Distribution: classes of other packages may be mixed in later
            raise ArgumentError(f"Expected type to be a Distribution subclass but got {cls}")

    def register(rule: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = rule
        _rule_for.cache_clear()
        return rule

    return register


@functools.lru_cache(maxsize=512)
def _rule_for(type_p: type, type_q: type) -> Callable[..., Tensor] | None:
    """Return the rule of the most derived bases.

    Where the order matters, the base of ``type_p`` is compared first, with a warning.
    """

    def distance(pair: tuple[type, type]) -> tuple[int, int]:
        return type_p.__mro__.index(pair[0]), type_q.__mro__.index(pair[1])

    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return None
    left, right = min(matches, key=distance), min(matches, key=lambda pair: distance(pair)[::-1])
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl("
            f"{left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the expected ``p.log_prob(x) - q.log_prob(x)`` of samples ``x`` of ``p``, of the batch shape.

    >>> from tenon.distributions import Normal
    >>> kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0))
    tensor(0.5000)
    """
    families: tuple[Any, Any] = type(p), type(q)  # Any: mypy does not take classes for Hashable
    rule = _rule_for(*families)
    if rule is None:
        raise UnsupportedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}. "
            "Add one with register_kl()."
        )
    return rule(p, q)


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    """Return Bregman's divergence of the log-normaliser (Nielsen and Nock, 2010)."""
    if type(p) is not type(q):
        raise UnsupportedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            "divergences"
        )
    natural_p = [n.detach().requires_grad_() for n in p._natural_params]
    natural_q = q._natural_params
    log_norm = p._log_normalizer(*natural_p)
    grads = tenon.autograd.grad(log_norm.sum(), natural_p, create_graph=True)
    result = q._log_normalizer(*natural_q) - log_norm
    for n_p, n_q, grad in zip(natural_p, natural_q, grads, strict=True):
        result = result - _sum_rightmost((n_q - n_p) * grad, len(q.event_shape))
    return result
