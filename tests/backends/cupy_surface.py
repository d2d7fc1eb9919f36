"""What CuPy offers: names, signatures and ufunc loops, as text that tests read where CuPy is not installed.

``cupy_names.txt`` is what ``python tests/backends/cupy_surface.py`` printed with the version in its first
line. One line a name: ``ufunc cupy.add 2 1 add ??->? bb->b ...`` (inputs, outputs, what ``.at`` does, loops;
bfloat16 is ``E``), ``function cupy.argmax (a, axis=None, ...)`` (``?``: signature unknown), ``value
cupy.inf``, ``method reshape``.
"""

import ast
import inspect
import types
import warnings
from dataclasses import dataclass
from pathlib import Path

TEXT = Path(__file__).with_name("cupy_names.txt")
MODULES = ("cupy", "cupy.fft", "cupy.linalg", "cupy.lib.stride_tricks", "cupy.cuda", "cupy.cuda.runtime")


@dataclass(frozen=True)
class Signature:
    """Parameter names in order, and whether any number of further ones may follow."""

    positional: tuple[str, ...]
    keywords: frozenset[str]
    open_positional: bool
    open_keywords: bool

    def problem(self, count, given):
        """What is wrong with a call of ``count`` positional arguments and the keywords ``given``, or None."""
        if count > len(self.positional) and not self.open_positional:
            return f"takes {len(self.positional)} positional arguments, got {count}"
        unknown = [k for k in given if k not in self.keywords and not self.open_keywords]
        return f"takes no {', '.join(unknown)}" if unknown else None


@dataclass(frozen=True)
class Loops:
    """A ufunc: its loops as (inputs, outputs) of type characters, and what ``.at`` combines with."""

    inputs: int
    outputs: int
    scatter: str | None
    loops: tuple[tuple[str, str], ...]


def parsed(signature):
    """``Signature`` of a text like ``(a, axis=None, *, out=None)``; None if unknown."""
    if signature == "?":
        return None
    arguments = ast.parse(f"def f{signature}: pass").body[0].args
    first = tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args))
    names = frozenset(a.arg for a in (*arguments.args, *arguments.kwonlyargs))
    return Signature(first, names, arguments.vararg is not None, arguments.kwarg is not None)


def read(text=None):
    """``(version, name -> Signature | Loops | "value" | None, method names)``."""
    lines = (text or TEXT.read_text()).splitlines()
    found, methods = {}, set()
    for line in lines[1:]:
        kind, name, *rest = line.split(" ", 2)
        detail = rest[0] if rest else ""
        if kind == "method":
            methods.add(name)
        elif kind == "ufunc":
            inputs, outputs, scatter, *loops = detail.split()
            pairs = tuple(tuple(one.split("->")) for one in loops)
            found[name] = Loops(int(inputs), int(outputs), None if scatter == "-" else scatter, pairs)
        else:
            found[name] = parsed(detail) if kind == "function" else "value"
    return lines[0].removeprefix("# "), found, methods


def survey(cupy):
    """The lines of ``cupy_names.txt`` for the installed CuPy."""
    lines = []
    for module in MODULES:
        home = cupy
        for part in module.split(".")[1:]:
            home = getattr(home, part)
        for name in sorted(n for n in dir(home) if not n.startswith("_")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = getattr(home, name, None)
            if isinstance(value, types.ModuleType) or (module.endswith("runtime") and not callable(value)):
                continue
            lines.append(_line(f"{module}.{name}", value, cupy))
    lines += [f"method {name}" for name in sorted(dir(cupy.ndarray)) if not name.startswith("_")]
    return [f"# cupy {cupy.__version__}", *lines]


def _line(name, value, cupy):
    if isinstance(value, cupy.ufunc):
        head = f"ufunc {name} {value.nin} {value.nout} {value._scatter_op or '-'}"
        return f"{head} {' '.join(value.types)}"
    if isinstance(value, type) or not callable(value):
        return f"value {name}"
    try:
        found = inspect.signature(value).parameters.values()
        bare = [p.replace(annotation=inspect.Parameter.empty, default=_shown(p)) for p in found]
        signature = str(inspect.Signature(bare))
        ast.parse(f"def f{signature}: pass")
    except (TypeError, ValueError, SyntaxError):
        signature = "?"
    return f"function {name} {signature}"


def _shown(parameter):
    """A default that can be written down and read back."""
    default = parameter.default
    if default is inspect.Parameter.empty or default is None or isinstance(default, (bool, int, float, str)):
        return default
    return None


if __name__ == "__main__":
    import cupy

    print("\n".join(survey(cupy)))
