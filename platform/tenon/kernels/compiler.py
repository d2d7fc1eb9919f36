"""``Compiler``: optional features of a backend for compiled programs, besides its kernels.

A compiled program is a graph of ops whose buffers never move. Where its backend has no compiler
(``Backend.compiler`` is None), each op runs by the kernel that eager code calls, and its result is copied
into its buffer. A compiler replaces such steps: it fuses several ops, binds an op to its buffers, or chooses
memory layouts. Every method may decline, as those of the base class do; a compiler overrides what it can.

Called by: ``tenon.graph.passes`` and ``tenon.graph.emit``; ``fuse_each`` by ``tenon.optim.fused``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tenon.engine.aval import Aval
from tenon.engine.op import Op
from tenon.engine.types import Array, Attrs, Operand

if TYPE_CHECKING:
    from tenon.kernels.backend import Backend

#: A ``tenon.graph.cluster.Cluster`` (``tenon.extend.cluster``), a class of a layer above this one.
Cluster: TypeAlias = Any
#: A memory layout as the backend represents it: immutable and hashable, with ``name`` ("plain" for C order)
#: and ``packed``, which is not None for the layout of a weight that a single call packs by itself.
Layout: TypeAlias = Any
#: A function without arguments that computes one step of a program on the buffers that it is bound to.
Thunk: TypeAlias = Callable[[], None]


class FusedKernel(Protocol):
    """The kernel of a cluster. ``bind(*inputs, *outputs)``, if it has that too, returns a ``Thunk``."""

    def __call__(self, *arrays: Array) -> None:
        """Compute the outputs, the last of ``arrays``, from the inputs; number inputs are Python floats."""


class BoundMultiTensorKernel(Protocol):
    """A multi-tensor kernel and the arrays that it works on."""

    def set(self, column: int, arrays: Sequence[Array]) -> None:
        """Replace the arrays of one input by others of the same lengths."""

    def run(self, numbers: Sequence[float]) -> None:
        """Compute all outputs in place, with these values of the number inputs."""


class MultiTensorKernel(Protocol):
    """An elementwise kernel over many tuples of flat arrays of any lengths (multi-tensor apply)."""

    def over(self, columns: Sequence[Sequence[Array]]) -> BoundMultiTensorKernel | None:
        """Bind the arrays, one sequence for each array input; None where single updates are faster."""


class AssignedLayouts(Protocol):
    """The layouts of a call's inputs and outputs; constructed from the two."""

    @property
    def inputs(self) -> tuple[Layout, ...]:
        """The layout of each input; the plain one for an argument that is not an array."""

    @property
    def outputs(self) -> tuple[Layout, ...]:
        """The layout of each output."""


class LayoutRules(Protocol):
    """Which memory layouts the backend's kernels prefer, for the passes ``layout`` and ``epilogue``.

    ``ins`` are avals, Python numbers or None, ``outs`` avals, residuals included. A module may be one.
    """

    @property
    def PLAIN(self) -> Layout:
        """The layout of arrays in C order."""

    @property
    def SEEDS(self) -> Collection[str]:
        """Names of the ops that gain enough to start a region in another layout."""

    @property
    def FINISHED(self) -> Collection[str]:
        """Names of the ops for which ``finishes`` may be true."""

    def wanted_layouts(
        self, op: Op, ins: Sequence[Operand], outs: Sequence[Aval], attrs: Attrs
    ) -> AssignedLayouts | None:
        """The layouts in which ``op`` is fastest; None if all are plain."""

    def follows(self, op: Op, ins: Sequence[Operand], outs: Sequence[Aval]) -> bool:
        """Whether the eager kernel of ``op`` computes the right values if all arrays have one layout, any."""

    def reorder(self, src: Array, src_layout: Layout, dst: Array, dst_layout: Layout) -> Thunk:
        """A thunk that copies ``src`` to ``dst``, each in its layout."""

    def finishes(
        self,
        op: Op,
        ins: Sequence[Operand],
        outs: Sequence[Aval],
        attrs: Attrs,
        steps: Sequence[tuple[str, Aval]],
    ) -> bool:
        """Whether ``op`` can apply ``steps`` ("add" or "mul", each with its operand) before it writes its
        result."""


class Compiler:
    """Base of the compilers of backends. Override the methods that the backend supports; the defaults
    decline."""

    def fuse(self, cluster: Cluster) -> FusedKernel | None:
        """Return one kernel for the ops of ``cluster``; None to run them one by one.

        An output array may be exactly one of the inputs. The kernel's ``bind`` may raise NotFusableError.
        """
        return None

    def fuse_each(self, cluster: Cluster, targets: tuple[int, ...]) -> MultiTensorKernel | None:
        """Return a kernel that applies ``cluster`` to many tuples of flat arrays, for optimizers, or None.

        Output ``k`` overwrites input ``targets[k]``.
        """
        return None

    def prepare(self, op: Op, ins: Sequence[Operand], attrs: Attrs, outs: Sequence[Array]) -> Thunk | None:
        """Bind ``op`` to its buffers: return a thunk that computes ``outs`` from ``ins``, or None if nothing
        is faster than the eager kernel.

        ``ins`` are arrays, Python numbers or None; ``outs`` arrays to write into, residuals included. The
        output of an elementwise op may alias an input.
        """
        return None

    def chain(self, thunks: Sequence[Thunk]) -> Sequence[tuple[int, Thunk]]:
        """Merge consecutive ``thunks``, which ``prepare`` and ``FusedKernel.bind`` returned.

        Return pairs, in order: the number of thunks that a merged one replaces, and the merged thunk.
        """
        return [(1, thunk) for thunk in thunks]

    def layouts(self) -> LayoutRules | None:
        """The memory layouts that the backend prefers; None to leave all arrays in C order."""
        return None

    def binding(self) -> AbstractContextManager[None]:
        """A context in which the steps of one program are bound; they never run concurrently."""
        return nullcontext()


#: The methods of ``Compiler``, which ``Backend`` had itself at first.
HOOKS = ("fuse", "fuse_each", "prepare", "chain", "layouts", "binding")


class _MethodsCompiler(Compiler):
    """Calls the hooks that a backend defines itself, and those of ``inherited`` for the others."""

    def __init__(self, backend: object, inherited: Compiler | None) -> None:
        for name in HOOKS:
            source = backend if hasattr(type(backend), name) else inherited
            if source is not None:
                setattr(self, name, getattr(source, name))


def compiler_from_methods(cls: type[Backend], hooks: Iterable[str]) -> functools.cached_property[Compiler]:
    """The property ``compiler`` of a backend class that defines ``hooks`` itself, which is deprecated."""
    warnings.warn(
        f"{cls.__qualname__} defines {', '.join(hooks)}, which are methods of tenon.extend.Compiler. Define"
        " them in a subclass of Compiler and write `compiler = ThatClass()` in the backend; a later version"
        " will not call them on the backend.",
        DeprecationWarning,
        stacklevel=3,
    )

    def compiler(backend: Any) -> Compiler:  # a Backend; which superclass has ``compiler`` depends on ``cls``
        return _MethodsCompiler(backend, super(cls, backend).compiler)

    result = functools.cached_property(compiler)
    result.__set_name__(cls, "compiler")
    return result
