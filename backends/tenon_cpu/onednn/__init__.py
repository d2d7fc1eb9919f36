"""oneDNN for the CPU backend, through its C interface and ctypes; NumPy computes where it is absent.

Read in this order: ``signatures`` (functions and constants), ``library`` (search, version, statuses),
``runtime`` (engine, streams, threads, fork), ``descriptors`` (layouts), ``attributes`` (post-ops, scales),
``primitives`` (create one, bind it, execute it), ``cache`` (keep it).

How to add a primitive
----------------------
1. See that ``signatures.PRIMITIVES`` has it; a new one is one line: the letters of its C parameters.
2. Write a function that creates it for shapes, strides and dtypes, and binds it::

       from tenon_cpu.onednn import signatures as c
       from tenon_cpu.onednn.cache import Cache
       from tenon_cpu.onednn.descriptors import Descriptor, representable
       from tenon_cpu.onednn.primitives import Execution, Primitive, address

       _cache = Cache("softmax")  # `tenon doctor` lists it

       def _prepare(shape, strides, dtype, axis):
           rows = Descriptor.rows(shape, dtype)
           source = Descriptor.strided(shape, strides, dtype)
           primitive = Primitive(
               "softmax_forward", c.FORWARD_INFERENCE, c.ALGORITHMS["softmax"], source, rows, axis
           )
           return None if primitive.reference else primitive.execution({c.SRC: None, c.DST: None})

3. The eager kernel looks the execution up in the cache, points its arguments at the arrays and calls it. The
   entry of a case that cannot be prepared is None, and the kernel declines::

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

   Its row in ``table`` precedes those it is to replace, and states which arrays it accepts (``representable``
   excludes empty, broadcast and reversed arrays, float64 ...), when it declines, and ``installed=available``.

   An execution belongs to its thread and is in use from the first ``bind`` to the end of the call: no other
   call may use the same cache entry in between.
4. A prepared call for compiled programs binds once: ``primitive.execution({c.SRC: x, c.DST: out}).call()`` is
   the function without arguments that ``prepare`` returns. See ``prepared_matmul``.
5. Blocked layouts: pass ``Descriptor.any(shape, dtype)``, read ``primitive.layout(c.WEIGHTS)``, and if it is
   not ``Descriptor.of(array)``, copy with ``packed(array, layout)`` or a ``reorder`` primitive into
   ``layout.buffer()``. A ``Buffer`` is accepted wherever an array is.

Pitfalls: oneDNN does not always refuse an argument too many, or an algorithm number of another primitive;
test each result and gradient against NumPy. A kernel named "ref" is correct and hundreds of times slower
(``primitive.reference``). Statuses are checked everywhere but in code that inlines ``execute(*run)``, which
must check them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tenon.extend import Attrs, Operand
from tenon_cpu.onednn.runtime import available


def prepare(
    name: str, ins: Sequence[Operand], attrs: Attrs, outs: Sequence[np.ndarray]
) -> Callable[[], None] | None:
    """Implement ``Backend.prepare`` for the op ``name``; None where oneDNN has no faster kernel."""
    from tenon_cpu.onednn import prepared, prepared_matmul, rnn

    if name == "epilogue" and attrs["base"].name == "matmul":
        return prepared_matmul.with_bias(ins, attrs, outs)
    rule = prepared_matmul.PREPARE.get(name) or prepared.PREPARE.get(name) or rnn.PREPARE.get(name)
    return None if rule is None else rule(ins, attrs, outs)


def release() -> None:
    """Drop the calling thread's cached executions and the scratch memory of its chains."""
    if available():
        from tenon_cpu.onednn.cache import caches
        from tenon_cpu.onednn.chain import shared

        for cache in caches:
            cache.clear()
        shared.release()


__all__ = ["available", "prepare", "release"]
