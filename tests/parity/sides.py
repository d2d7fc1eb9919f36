"""One call in tenon and in torch, and the comparison of all results.

A call is written as data: strings such as ``"f:3,4"`` stand for arrays. Their letter says what is in them:
f normal, p positive, u in (-0.9, 0.9), q in (0, 1), i integers below 5, n small non-zero integers,
b booleans, s sorted, c complex, z with NaN and infinities, d positive definite; ``"k:3,4<7"`` below 7;
``"f!:3"`` has no gradient.
``constant:p:4`` takes no gradient, ``dense:i:4`` is never strided, ``whole:0,2,5`` holds these integers,
``dtype:float32`` is a dtype, ``fn:relu`` a function of the library, ``power:0.9`` the function ``0.9 ** step``,
a mapping with the key ``layer`` (or ``scheduler``) and its arguments ``make`` an object of that class.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import zlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

SPEC = re.compile(r"^([fpuqinbsczdk]!?):([\d,]*)(?:<(\d+))?$")
#: The one table of tolerances, relative and absolute; gradients may be ten times as far apart.
TOLERANCE = {
    "float16": 4e-3,
    "bfloat16": 3e-2,
    "float32": 2e-5,
    "float64": 1e-10,
    "complex64": 2e-5,
    "complex128": 1e-10,
}


@functools.cache
def make(spec: str, seed: int = 0) -> np.ndarray:
    """The array that ``spec`` stands for."""
    kind, sizes, bound = SPEC.match(spec).groups()
    kind = kind[0]
    shape = tuple(int(s) for s in sizes.split(",") if s)
    draw = np.random.default_rng([zlib.crc32(spec.encode()), seed])
    if kind == "b":
        return np.asarray(draw.random(shape) > 0.5)
    if kind in "ik":
        return np.asarray(draw.integers(0, int(bound or 5), shape))
    if kind == "n":
        return np.asarray(draw.integers(1, 6, shape) * draw.choice([-1, 1], shape))
    if kind == "d":
        x = draw.normal(size=shape)
        return np.asarray(x @ np.swapaxes(x, -1, -2) + shape[-1] * np.eye(shape[-2]))
    x = draw.normal(size=shape)
    if kind == "c":
        x = x + 1j * draw.normal(size=shape)
    elif kind == "z":
        x = np.where(
            draw.random(shape) < 0.3, draw.choice([math.nan, math.inf, -math.inf, 0.0, -0.0], shape), x
        )
    elif kind == "s":
        x = np.sort(x, -1)
    elif kind != "f":
        x = {"p": np.abs(x) + 0.1, "u": np.tanh(x) * 0.9, "q": 1 / (1 + np.exp(-x))}[kind]
    return np.asarray(x)


def is_spec(value: Any) -> bool:
    return isinstance(value, str) and SPEC.match(value) is not None


def find(lib: Any, name: str) -> Any:
    """What ``name`` says in ``lib``: ``nn.functional.relu``; modules on the way are imported."""
    for part in name.split("."):
        if isinstance(lib, ModuleType) and not hasattr(lib, part):
            try:
                lib = importlib.import_module(f"{lib.__name__}.{part}")
            except ModuleNotFoundError:
                raise AttributeError(f"{lib.__name__} has no {part}") from None
        else:
            lib = getattr(lib, part)
    return lib


class Side:
    """One of both libraries, with the leaves that a call made."""

    def __init__(self, lib: Any, dtype: str | None, strided: bool = False) -> None:
        self.lib, self.dtype, self.strided = lib, dtype, strided
        self.leaves: list[Any] = []
        self.count = 0

    def tensor(self, spec: str) -> Any:
        """A leaf for ``spec``; strided ones lie transposed (or every second element) in their memory."""
        self.count += 1
        array = make(spec, self.count)
        if not array.size:  # torch's from_numpy alone would give it steps of 0
            tensor = self.lib.from_numpy(np.zeros(1, array.dtype)).new_empty(array.shape)
        elif not self.strided or array.ndim == 0:
            tensor = self.lib.from_numpy(array.copy())
        elif array.ndim == 1:
            tensor = self.lib.from_numpy(np.repeat(array, 2))[::2]
        else:
            tensor = self.lib.from_numpy(np.ascontiguousarray(array.T)).permute(*range(array.ndim)[::-1])
        if spec[0] not in "ikb" and self.dtype:
            wanted = self.dtype
            if spec[0] == "c":
                wanted = {"float64": "complex128"}.get(self.dtype, "complex64")
            tensor = tensor.to(getattr(self.lib, wanted))
        if spec[1] != "!" and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
            tensor.requires_grad_()
            self.leaves.append(tensor)
        return tensor

    def build(self, value: Any) -> Any:
        if isinstance(value, str):
            if SPEC.match(value):
                return self.tensor(value)
            kind, _, rest = value.partition(":")
            if kind == "constant" and rest:
                made = self.tensor(rest)
                return made.detach() if hasattr(made, "detach") else made
            if kind == "whole":
                return self.lib.tensor([int(v) for v in rest.split(",")])
            if kind == "dense":
                made = self.tensor(rest)
                return made.contiguous() if hasattr(made, "contiguous") else made  # a number stands for it
            if kind == "dtype":
                return getattr(self.lib, rest)
            if kind == "fn":
                return find(self.lib, rest)
            if kind == "power":
                return functools.partial(pow, float(rest))
            return value
        if isinstance(value, (list, tuple)):
            built = [self.build(v) for v in value]
            return tuple(built) if isinstance(value, tuple) or _plain(value) else built
        if isinstance(value, dict):
            if "layer" in value:
                return self.construct(value["layer"], value.get("make", []))
            return {k: self.build(v) for k, v in value.items()}
        return value

    def construct(self, name: str, args: Any, *first: Any) -> Any:
        """The object of class ``name`` made with ``args``, the last of which may hold keywords."""
        positional, keywords = parts(args)
        return find(self.lib, name)(*first, *self.build(positional), **self.build(keywords))

    def run(self, name: str, args: Any, kwargs: Any, as_method: bool = False) -> Any:
        if as_method:
            first, *rest = self.build(list(args))
            found = getattr(first, name)
            return found(*rest, **self.build(kwargs)) if callable(found) else found
        return find(self.lib, name)(*self.build(args), **self.build(kwargs))


def _plain(values: Any) -> bool:
    """Whether ``values`` are numbers only: sizes and the like, which are tuples to users."""
    return bool(values) and all(
        (isinstance(v, (list, tuple)) and _plain(v)) or v is None or isinstance(v, (int, float, complex))
        for v in values
    )


def parts(case: Any) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a case: a last mapping holds the keywords."""
    if isinstance(case, dict):
        return [], case
    if case and isinstance(case[-1], dict) and "layer" not in case[-1]:
        return list(case[:-1]), case[-1]
    return list(case), {}


def flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)) and type(result).__name__ != "Size":
        return [leaf for r in result for leaf in flat(r)]
    if isinstance(result, dict):
        return [leaf for key in result for leaf in flat(result[key])]
    return [result]


def as_numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    if "bfloat16" in str(tensor.dtype):
        tensor = tensor.float()
    return tensor.numpy(force=True)


def check(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Check that ``ours`` equals ``theirs``: dtype, shape and values."""
    assert str(ours.dtype) == str(theirs.dtype), f"{what}: dtype {ours.dtype}, torch has {theirs.dtype}"
    assert tuple(ours.shape) == tuple(theirs.shape), (
        f"{what}: shape {tuple(ours.shape)}, torch has {tuple(theirs.shape)}"
    )
    a, b = as_numpy(ours), as_numpy(theirs)
    if not np.array_equal(a, b):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)


def tolerance_of(results: list[Any], dtype: str | None) -> float:
    """The widest tolerance of the dtypes that took part."""
    names = [str(getattr(t, "dtype", "")).removeprefix("torch.") for t in results]
    return max(TOLERANCE.get(name or "", 0) for name in [dtype, *names])


def check_results(ours: Any, theirs: Any, tolerance: float, what: str = "result") -> None:
    """Every tensor, number and text of two results."""
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), f"{what}: {len(ours)} parts, torch has {len(theirs)}"
    for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if hasattr(b, "detach"):
            assert hasattr(a, "detach"), f"{what} {position}: {a!r}, torch has {b!r}"
            check(a, b, tolerance, f"{what} {position}")
        elif isinstance(b, float):
            assert isinstance(a, float) and (
                math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) or str(a) == str(b)
            ), f"{what} {position}: {a!r}, torch has {b!r}"
        else:
            assert a == b or str(a) == str(b), f"{what} {position}: {a!r}, torch has {b!r}"


def check_gradients(ours: Any, theirs: Any, tolerance: float, what: str = "gradient") -> None:
    """The gradients of two lists of leaves; None is distinguished from zero."""
    for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert (a.grad is None) == (b.grad is None), f"{what} {position}: {a.grad}, torch has {b.grad}"
        if b.grad is not None:
            check(a.grad, b.grad, tolerance * 10, f"{what} {position}")


@functools.cache
def _weights(lib: ModuleType, shape: tuple[int, ...]) -> Any:
    """The same tensor in each call: a compiled function may keep it."""
    return lib.from_numpy(np.cos(np.arange(math.prod(shape), dtype=np.float64)).reshape(shape))


def loss(lib: Any, results: Any) -> Any:
    """A number that depends differently on every element of every differentiable result; None without."""
    total = None
    for r in flat(results):
        if getattr(r, "requires_grad", False):
            term = (r * _weights(lib, tuple(r.shape)).to(r.dtype)).sum()
            term = term.real if term.dtype.is_complex else term
            total = term if total is None else total + term.to(total.dtype)
    return total


def differentiable(results: Any) -> Iterator[bool]:
    return (bool(getattr(r, "requires_grad", False)) for r in flat(results))
