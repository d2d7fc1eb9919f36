"""An array library that is NumPy inside and as strict as CuPy outside.

``Array`` is not a ``numpy.ndarray`` and never turns into one by itself; ``xp`` has only the names, parameters
and ufunc loops of ``cupy_names.txt``. What differs silently on a GPU differs here too, or is refused: index
arrays wrap around instead of raising, only ``add`` and ``multiply`` reduce and accumulate, sorting and
batched products know no bfloat16, arrays of the host are not taken. Code that runs here has a fair chance on
CuPy.
"""

import builtins
import itertools
import operator

import ml_dtypes
import numpy as np
from cupy_surface import Loops, Signature, read

VERSION, NAMES, METHODS = read()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SCALARS = (bool, int, float, complex, np.generic)
#: Functions that take host arrays.
FROM_HOST = frozenset({"cupy.asarray", "cupy.array", "cupy.asanyarray"})
_narrow = lambda a: a.dtype == BFLOAT16  # noqa: E731
_empty = lambda a: a.size == 0  # noqa: E731
#: Functions, and arrays that they fail on or (batched products of bfloat16) get wrong.
REFUSED = {
    "argsort": lambda a: _narrow(a) or _empty(a),
    "sort": _narrow,
    "searchsorted": _narrow,
    "cumsum": lambda a: _narrow(a) or _empty(a),
    "cumprod": lambda a: _narrow(a) or _empty(a),
}
#: What ``.at`` of a ufunc can combine on a GPU: atomic operations.
ATOMIC = {"add": "ilefdILqQ", "sub": "iI", "max": "ilfdILqQ", "min": "ilfdILqQ"}


class Place:
    """The current device, as ``cupy.cuda.Device`` keeps it."""

    current = 0
    allocations = 0


class Array:
    """As ``cupy.ndarray``: attributes and methods of an array, on the device where it was made."""

    __slots__ = ("__weakref__", "base", "device_id", "hidden")
    __array_ufunc__ = None
    __hash__ = None

    def __init__(self, hidden, base=None):
        self.hidden = hidden
        self.base = base
        self.device_id = Place.current if base is None else base.device_id
        Place.allocations += base is None

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __getattr__(self, name):
        if name in ATTRIBUTES:
            return getattr(self.hidden, name)
        if name not in METHODS or not hasattr(self.hidden, name):
            raise AttributeError(f"'ndarray' object has no attribute {name!r}")
        method = getattr(self.hidden, name)
        return lambda *args, **kwargs: self._shown(name, method(*bare(args), **bare(kwargs)))

    def _shown(self, name, result):
        if name in ("item", "tolist", "tobytes", "fill"):
            return result
        return wrapped(result, self)

    def get(self):
        """A host copy."""
        return self.hidden.copy(order="K")

    def view(self, dtype=None):
        """The same bytes, perhaps as another dtype."""
        return Array(self.hidden.view() if dtype is None else self.hidden.view(dtype), self.owner)

    @property
    def T(self):
        return Array(self.hidden.T, self.owner)

    @property
    def real(self):
        return Array(self.hidden.real, self.owner) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value):
        self.hidden.real = bare(value)

    @property
    def imag(self):
        return wrapped(self.hidden.imag, self)

    @imag.setter
    def imag(self, value):
        self.hidden.imag = bare(value)

    @property
    def data(self):
        return Pointer(self.hidden.__array_interface__["data"][0], self.device_id)

    @property
    def owner(self):
        """The array whose memory this one shows."""
        return self if self.base is None else self.base

    @property
    def device(self):
        return DeviceId(self.device_id)

    @property
    def __cuda_array_interface__(self):
        return {"data": (self.data.ptr, False), "shape": self.shape, "strides": self.strides, "version": 3}

    def __getitem__(self, key):
        key, advanced = self._key(key)
        if advanced:
            return Array(np.asarray(self.hidden[key]))
        key = key if any(k is Ellipsis for k in key) else (*key, Ellipsis)
        return Array(self.hidden[key], self.owner)  # a view also where NumPy would give a scalar

    def __setitem__(self, key, value):
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        self.hidden[self._key(key)[0]] = bare(value)

    def _key(self, key):
        """NumPy's key for the same elements (index arrays modulo the size), and whether it has arrays."""
        parts = key if isinstance(key, tuple) else (key,)
        consumed = builtins.sum(_axes_of(p) for p in parts)
        made, axis, advanced = [], 0, False
        for part in parts:
            if isinstance(part, np.ndarray):
                raise TypeError(
                    "index arrays of the host are copied to the device by every use; put them there once"
                )
            if isinstance(part, Array):
                advanced = True
                hidden = part.hidden
                if hidden.dtype.kind in "iu":
                    size = self.shape[axis]
                    hidden = hidden % size if size else hidden
                elif hidden.dtype.kind != "b":
                    raise IndexError(
                        f"arrays used as indices must be of integer or boolean type, not {hidden.dtype}"
                    )
                made.append(hidden)
            elif isinstance(part, (list, bool, np.bool_)):
                raise TypeError(f"{type(part).__name__} in an index is copied to the device; use an array")
            else:
                made.append(part)
            axis += self.ndim - consumed if part is Ellipsis else _axes_of(part)
        return tuple(made), advanced

    def __len__(self):
        return len(self.hidden)

    def __iter__(self):
        return (self[i] for i in range(len(self.hidden)))

    def __bool__(self):
        return bool(self.hidden)

    def __int__(self):
        return int(self.hidden)

    def __float__(self):
        return float(self.hidden)

    def __complex__(self):
        return complex(self.hidden)

    def __index__(self):
        return operator.index(self.hidden)

    def __repr__(self):
        return f"strict {self.hidden!r}"


ATTRIBUTES = frozenset({"dtype", "shape", "strides", "ndim", "size", "itemsize", "nbytes", "flags"})


class Pointer:
    """An address."""

    def __init__(self, ptr, device_id):
        self.ptr, self.device_id = ptr, device_id


class DeviceId:
    """A device as an array knows it."""

    def __init__(self, number):
        self.id = number


def _axes_of(part):
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, Array) and part.dtype.kind == "b" else 1


def wrapped(value, source=None):
    """``value`` with every NumPy array or scalar in it as an ``Array``; views of ``source`` know it."""
    if isinstance(value, np.ndarray):
        shares = source is not None and value.size and np.may_share_memory(value, source.hidden)
        return Array(value, source.owner) if shares else Array(value)
    if isinstance(value, np.generic):
        return Array(np.asarray(value))
    if isinstance(value, (tuple, list)):
        return (
            type(value)(wrapped(v, source) for v in value)
            if type(value) in (tuple, list)
            else tuple(wrapped(v, source) for v in value)
        )
    return value


def bare(value, host=False):
    """``value`` with every ``Array`` in it as its NumPy array; TypeError for arrays of the host."""
    if isinstance(value, Array):
        return value.hidden
    if isinstance(value, np.ndarray) and not host:
        raise TypeError(f"Unsupported type {type(value)}: an array of the host among those of the device")
    if isinstance(value, (tuple, list)):
        return type(value)(bare(v, host) for v in value)
    if isinstance(value, dict):
        return {k: bare(v, host) for k, v in value.items()}
    return value


class Ufunc:
    """A ufunc with CuPy's loops and CuPy's way of choosing one."""

    def __init__(self, name, facts):
        self.name, self.facts = name, facts
        self.function = getattr(np, name, None)
        self.loops = [tuple(tuple(_dtype(c) for c in side) for side in loop) for loop in facts.loops]
        self.chosen = {}

    def __call__(self, *args, out=None, dtype=None, casting="same_kind"):
        inputs, rest = args[: self.facts.inputs], args[self.facts.inputs :]
        out = rest[0] if rest else out
        for a in (*inputs, *(() if out is None else (out,))):
            if not isinstance(a, (Array, *SCALARS)):
                raise TypeError(f"cupy_{self.name}: Unsupported type {type(a)}")
        takes, gives = self._loop(inputs)
        plain = [np.asarray(bare(a)).astype(t) for a, t in zip(inputs, takes, strict=True)]
        function = self.function or getattr(np, ALIASES[self.name])
        result = function(*plain)
        if len(gives) > 1:
            return tuple(Array(each.astype(dtype)) for each, dtype in zip(result, gives, strict=True))
        result = np.asarray(result).astype(gives[0])
        if out is None:
            return Array(result)
        if not np.can_cast(result.dtype, out.dtype, casting):
            raise TypeError(f"Cannot cast array data from {result.dtype!r} to {out.dtype!r} ({casting})")
        if np.broadcast_shapes(result.shape, out.shape) != out.shape:
            raise ValueError(
                f"non-broadcastable output operand with shape {out.shape}, result {result.shape}"
            )
        out.hidden[...] = result
        return out

    def _loop(self, inputs):
        """The first loop that all inputs can be cast to; Python numbers take the others' dtype if it fits."""
        weak = tuple(type(a) if type(a) in WEAK else None for a in inputs)
        dtypes = tuple(WEAK[w] if w else a.dtype for a, w in zip(inputs, weak, strict=True))
        found = self.chosen.get((dtypes, weak))
        if found is None:
            found = self.chosen[dtypes, weak] = self._choice(dtypes, weak)
        return found

    def _choice(self, dtypes, weak):
        strong = [_kind(d) for d, w in zip(dtypes, weak, strict=True) if not w]
        loose = [_kind(d) for d, w in zip(dtypes, weak, strict=True) if w]
        weak = weak if strong and loose and max(strong) >= max(loose) else [None] * len(dtypes)
        for takes, gives in self.loops:
            if all(_fits(d, w, t) for d, w, t in zip(dtypes, weak, takes, strict=True)):
                return takes, gives
        raise TypeError(f"Wrong type ({list(dtypes)}) of arguments for cupy_{self.name}")

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False):
        """Sums and products only."""
        if self.name not in ("add", "multiply"):
            raise NotImplementedError(f"`cupy_{self.name}.reduce` is not supported yet")
        return (array.sum if self.name == "add" else array.prod)(axis, dtype, out, keepdims)

    def accumulate(self, array, axis=0, dtype=None, out=None):
        """Sums and products only."""
        if self.name not in ("add", "multiply"):
            raise NotImplementedError(f"`cupy_{self.name}.accumulate` is not supported yet")
        return (array.cumsum if self.name == "add" else array.cumprod)(axis, dtype, out)

    def at(self, array, indices, values=None):
        """Where the hardware has an atomic operation for the dtype."""
        if self.facts.scatter is None or array.dtype.char not in ATOMIC.get(self.facts.scatter, ""):
            raise NotImplementedError(f"`cupy_{self.name}.at` does not support {array.dtype}")
        getattr(np, self.name).at(array.hidden, array._key(indices)[0], bare(values))

    def reduceat(self, array, indices, axis=0, dtype=None, out=None):
        """Refused: CuPy's takes differences of running sums and loses digits."""
        raise NotImplementedError(f"`cupy_{self.name}.reduceat` is too inexact to be used")


WEAK = {
    bool: np.dtype(bool),
    int: np.dtype(np.int64),
    float: np.dtype(np.float64),
    complex: np.dtype(np.complex128),
}
ALIASES = {"sinc": "sinc", "round": "round"}


def _dtype(char):
    return BFLOAT16 if char == "E" else np.dtype("V8") if char == "V" else np.dtype(char)


def _kind(dtype):
    return {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}[dtype.kind]


def _fits(dtype, weak, target):
    if target.kind == "V" and target != BFLOAT16:
        return False
    if np.can_cast(dtype, target):
        return True
    if weak is None or weak is bool:
        return False
    if target == BFLOAT16:
        return weak is not complex
    return np.result_type(weak(0), target) == target


class Function:
    """A function of the library: its parameters checked, its arrays unwrapped and wrapped again."""

    def __init__(self, path, signature, function):
        self.path, self.signature, self.function = path, signature, function

    def __call__(self, *args, **kwargs):
        name = self.path.rpartition(".")[2]
        if isinstance(self.signature, Signature) and (problem := self.signature.problem(len(args), kwargs)):
            raise TypeError(f"{self.path}() {problem}")
        host = self.path in FROM_HOST
        arrays = [a for a in _flat((args, tuple(kwargs.values()))) if isinstance(a, Array)]
        plain = bare(args, host), bare(kwargs, host)
        refused = REFUSED.get(name)
        if refused is not None and any(refused(a) for a in arrays):
            raise NotImplementedError(
                f"{self.path} of {[(a.dtype, a.shape) for a in arrays]} fails or is wrong on a GPU"
            )
        if name == "argsort":
            plain[1]["kind"] = "stable"
        if name == "matmul":
            return self._product(*args, **kwargs)
        if host and isinstance(args[0], Array) and name != "array":
            return args[0]
        result = self.function(*plain[0], **plain[1])
        if host:
            return Array(np.array(result, order="K"))
        if name in ("where", "round", "clip") and result.dtype == BFLOAT16:
            result = result.astype(np.float32)  # they have no loop of bfloat16
        return wrapped(result, arrays[0] if arrays else None)

    def _product(self, x, y, out=None):
        if x.dtype == BFLOAT16 or y.dtype == BFLOAT16:
            if x.ndim > 2 or y.ndim > 2 or out is not None:
                raise TypeError("batched products of bfloat16 go to the integer kernel")
            return Array(np.matmul(x.hidden.astype("f"), y.hidden.astype("f")).astype(BFLOAT16))
        made = np.asarray(np.matmul(x.hidden, y.hidden))
        if out is None:
            return Array(made)
        out.hidden[...] = made
        return out


def _flat(value):
    return (
        itertools.chain.from_iterable(_flat(v) for v in value)
        if isinstance(value, (tuple, list))
        else (value,)
    )


class Namespace:
    """The library or one of its parts: only names that CuPy has."""

    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        path = f"{self._path}.{name}"
        if path in PARTS:
            made = Namespace(path)
        elif path not in NAMES:
            raise AttributeError(f"module '{self._path}' has no attribute {name!r} (cupy {VERSION})")
        else:
            made = self._made(path, name, NAMES[path])
        setattr(self, name, made)
        return made

    def _made(self, path, name, facts):
        home = np
        for part in path.split(".")[1:-1]:
            home = getattr(home, part)
        if isinstance(facts, Loops):
            return Ufunc(name, facts)
        value = getattr(home, name)
        if name in ("ogrid", "mgrid"):
            return Grid(value)
        return value if facts == "value" else Function(path, facts, value)


class Grid:
    """``ogrid``: arrays by slices."""

    def __init__(self, grid):
        self.grid = grid

    def __getitem__(self, key):
        return wrapped(self.grid[key])


PARTS = frozenset({"cupy.fft", "cupy.linalg", "cupy.lib", "cupy.lib.stride_tricks"})
xp = Namespace("cupy")
xp.ndarray = Array

_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and",
    "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip
_COMPARE = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


def _binary(name):
    def forwards(self, other):
        return getattr(xp, name)(self, other)

    def backwards(self, other):
        return getattr(xp, name)(other, self)

    def inplace(self, other):
        return getattr(xp, name)(self, other, out=self)

    return forwards, backwards, inplace


for _short, _name in _OPERATORS.items():
    for _prefix, _method in zip(("", "r", "i"), _binary(_name), strict=True):
        setattr(Array, f"__{_prefix}{_short}__", _method)
for _short, _name in _COMPARE.items():
    setattr(Array, f"__{_short}__", _binary(_name)[0])
for _short, _name in {"neg": "negative", "abs": "absolute", "invert": "invert"}.items():
    setattr(Array, f"__{_short}__", lambda self, name=_name: getattr(xp, name)(self))
Array.__matmul__ = lambda self, other: xp.matmul(self, other)
