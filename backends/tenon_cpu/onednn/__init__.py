"""oneDNN for the CPU backend, through its C interface and ctypes; NumPy computes where it is absent.

Read in this order: ``signatures`` (functions and constants), ``library`` (search, version, statuses),
``runtime`` (engine, streams, threads, fork), ``descriptors`` (layouts), ``attributes`` (post-ops, scales),
``primitives`` (make one, bind it, call it), ``cache`` (keep it).

How to add a primitive
----------------------
1. See that ``signatures.PRIMITIVES`` has it; a new one is one line: the letters of its C parameters.
2. Write a function that makes it for shapes, strides and dtypes, and binds it::

       from tenon_cpu.onednn import signatures as c
       from tenon_cpu.onednn.cache import Cache
       from tenon_cpu.onednn.descriptors import Descriptor, representable
       from tenon_cpu.onednn.primitives import Execution, Primitive, address

       _cache = Cache("softmax")  # `tenon doctor` lists it

       def _prepare(shape, strides, dtype, axis):
           rows = Descriptor.rows(shape, dtype)
           source = Descriptor.strided(shape, strides, dtype)
           made = Primitive(
               "softmax_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["softmax"], source, rows, axis
           )
           return None if made.reference else made.execution({c.SRC: None, c.DST: None})

3. The eager kernel asks the cache, points the arguments at its arrays and calls. What cannot be prepared is
   kept as None, and the kernel declines::

       def softmax(x, *, axis):
           key = (x.shape, x.strides, x.dtype, axis)
           ready = _cache.get(key, lambda: _prepare(x.shape, element_strides(x), x.dtype, axis))
           if ready is None:
               return NotImplemented
           out = np.empty(x.shape, x.dtype)
           ready.bind(c.SRC, x)
           ready.bind(c.DST, out)
           ready()
           ready.release()
           return out

   Its row in ``table`` stands before those it is to beat, says which arrays it accepts (``representable``:
   else they are empty, broadcast, reversed, float64 ...), when it declines, and ``installed=available``.

   An execution belongs to its thread and is in use from the first ``bind`` to the end of the call: nothing
   between may compute through the same cache entry.
4. A prepared call for compiled programs binds once: ``primitive.execution({c.SRC: x, c.DST: out}).call()`` is
   the function without arguments that ``prepare`` returns. See ``prepared_matmul``.
5. Blocked layouts: pass ``Descriptor.any(shape, dtype)``, ask ``primitive.layout(c.WEIGHTS)``, and if it is
   not ``Descriptor.of(array)``, copy with ``packed(array, layout)`` or a ``reorder`` primitive into
   ``layout.buffer()``. A ``Buffer`` is accepted wherever an array is.

Traps: an argument too many, or an algorithm number of another primitive, is not always refused by oneDNN;
test each result and gradient against NumPy. A kernel named "ref" is correct and hundreds of times slower
(``primitive.reference``). Statuses are checked everywhere but in code that inlines ``execute(*run)``, which
must
check its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import Attrs, Operand
from tenon_cpu.onednn.runtime import available


def prepare(
    name: str, ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]
) -> Callable[[], None] | None:
    """``Backend.prepare`` of the op called ``name``, or None where oneDNN has nothing better."""
    from tenon_cpu.onednn import prepared, prepared_matmul, rnn

    if name == "epilogue" and attrs["base"].name == "matmul":
        return prepared_matmul.with_bias(ins, attrs, outs)
    rule = prepared_matmul.PREPARE.get(name) or prepared.PREPARE.get(name) or rnn.PREPARE.get(name)
    return None if rule is None else rule(ins, attrs, outs)


def release() -> None:
    """Forget what the calling thread's eager ops have prepared, and the scratch memory of its chains."""
    if available():
        from tenon_cpu.onednn.cache import caches
        from tenon_cpu.onednn.chain import shared

        for cache in caches:
            cache.clear()
        shared.release()


__all__ = ["available", "prepare", "release"]
