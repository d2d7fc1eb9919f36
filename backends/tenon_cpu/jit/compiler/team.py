"""Run compiled kernels on libgomp's team: the threads of oneDNN, of fused clusters and of optimizers.

To hand a piece of work to a waiting Python thread costs some 50 us and a change of the interpreter lock's
holder; the team starts in 2 us. Besides, using the team keeps it awake: its threads go to sleep when they
have waited some time for work, and the kernels between two products of an eager training step take longer
than that. Waking them took 0.1 ms of each product (1024 x 128 x 128 on two threads: 0.28 ms, and 0.17 with
threads that had just been busy).

A kernel's last two arguments are ``start`` and ``stop``; its entry reads the others from a table
(``native.py``).
"""

from __future__ import annotations

import numpy as np

from tenon_cpu import threads
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.compile import Argument, Kernel
from tenon_cpu.onednn.primitives import address_of


def several() -> bool:
    """Whether the team has more than one thread."""
    return threads.usable() > 1 and llvm.available() and llvm.team_size() > 1


def run(kernel: Kernel, args: tuple[Argument, ...], count: int) -> None:
    """Call ``kernel(*args, start, stop)`` for parts of ``range(count)``, one on each thread.

    MemoryError if the kernel could not allocate memory.
    """
    native = kernel.native()
    assert native.entry is not None, kernel.signature.text
    words: list[int] = [count]
    for parameter, a in zip(native.parameters, args, strict=True):
        if not isinstance(a, np.ndarray):
            number = np.asarray(a, parameter.dtype)
            words.append(int(number.view(f"u{number.itemsize}")))
        else:
            words += (0, 0, a.size, a.itemsize, address_of(a), *a.shape, *a.strides)
    table = np.array(words, np.uint64)
    native.entry(address_of(table), llvm.ALL)
    if table[0] != count:
        raise MemoryError(f"{kernel.function.__name__} could not allocate memory for a temporary array.")
