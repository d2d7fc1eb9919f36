"""Check the types of JSON data from untrusted sources: BundleError names what is wrong."""

from __future__ import annotations

from typing import Any, TypeAlias

from tenon.errors import BundleError

#: JSON data; its structure is checked where it is read.
Json: TypeAlias = Any


def as_list(value: Json) -> list[Json]:
    """Return ``value`` if it is a list."""
    if type(value) is not list:
        raise BundleError(f"expected a list, got a {type(value).__name__}.")
    return value


def as_object(value: Json) -> dict[str, Json]:
    """Return ``value`` if it is an object."""
    if type(value) is not dict:
        raise BundleError(f"expected an object, got a {type(value).__name__}.")
    return value


def as_string(value: Json) -> str:
    """Return ``value`` if it is a string."""
    if type(value) is not str:
        raise BundleError(f"expected a string, got a {type(value).__name__}.")
    return value


def as_flag(value: Json) -> bool:
    """Return ``value`` if it is true or false."""
    if type(value) is not bool:
        raise BundleError(f"expected true or false, got a {type(value).__name__}.")
    return value
