"""Kullback and Leibler's divergence of two distributions, and the table of who knows it.

``register_kl(P, Q)`` adds a rule for two classes; a pair takes the rule of its nearest bases. Rules for one
family lie in ``kl_same_family.py``, for two in ``kl_across_families.py``.
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

Rule = TypeVar("Rule", bound=Callable[[Any, Any], Any])
_KL_REGISTRY: dict[tuple[type, type], Callable[[Any, Any], Any]] = {}


def register_kl(type_p: Any, type_q: Any) -> Callable[[Rule], Rule]:
    """Decorate ``f(p, q)``, the divergence of a ``type_p`` from a ``type_q``."""
    for given in (type_p, type_q):
        if not isinstance(given, type):  # classes of other packages may be mixed into ours later
            raise ArgumentError(f"Expected type to be a Distribution subclass but got {given}")

    def register(rule: Rule) -> Rule:
        _KL_REGISTRY[type_p, type_q] = rule
        _rule_for.cache_clear()
        return rule

    return register


@functools.lru_cache(maxsize=512)
def _rule_for(type_p: Any, type_q: Any) -> Any:
    """The rule of the nearest bases; those of ``p`` count first, where that matters with a warning."""

    def nearness(pair: tuple[type, type]) -> tuple[int, int]:
        return type_p.__mro__.index(pair[0]), type_q.__mro__.index(pair[1])

    found = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not found:
        return None
    left, right = min(found, key=nearness), min(found, key=lambda pair: nearness(pair)[::-1])
    if _KL_REGISTRY[left] is not _KL_REGISTRY[right]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl("
            f"{left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Any, q: Any) -> Tensor:
    """The expected ``p.log_prob(x) - q.log_prob(x)`` of numbers ``x`` of ``p``, for each place of the batch.

    >>> from tenon.distributions import Normal
    >>> kl_divergence(Normal(1.0, 1.0), Normal(0.0, 1.0))
    tensor(0.5000)
    """
    families: Any = type(p), type(q)
    rule = _rule_for(*families)
    if rule is None:
        raise UnsupportedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}. "
            "Add one with register_kl()."
        )
    return rule(p, q)


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: Any, q: Any) -> Tensor:
    """Bregman's divergence of the log-normaliser (Nielsen and Nock, 2010)."""
    if type(p) is not type(q):
        raise UnsupportedError(
            "The cross KL-divergence between different exponential families cannot be computed using Bregman "
            "divergences"
        )
    own = [n.detach().requires_grad_() for n in p._natural_params]
    others = q._natural_params
    log_norm = p._log_normalizer(*own)
    slopes = tenon.autograd.grad(log_norm.sum(), own, create_graph=True)
    result = q._log_normalizer(*others) - log_norm
    for mine, other, slope in zip(own, others, slopes, strict=True):
        result = result - _sum_rightmost((other - mine) * slope, len(q.event_shape))
    return result
